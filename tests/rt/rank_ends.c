/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ends a job, or would stand still; ranks.sh starts it under mpirun and
 * reads what it says.
 *
 * usage: rank_ends --late LOG | --stop PID_FILE | --kill | --abort | --step
 *
 * --late: rank 0 is late until LOG says that rank 1 waits for it. --stop: rank
 * 1 stops, as by Ctrl-Z, once its process id is in PID_FILE.
 */
#include "rt/graph.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Whether the log, which mpirun writes, says it. */
static bool said(const char *log, const char *part)
{
    char line[4096];
    bool found = false;
    FILE *f = fopen(log, "r");
    while (f && !found && fgets(line, sizeof line, f))
        found = strstr(line, part) != NULL;
    if (f)
        fclose(f);
    return found;
}

static int stop_rank(struct weft_rt *rt, const char *pid_file)
{
    struct weft_err err;
    if (weft_world_rank() == 1) {
        FILE *f = fopen(pid_file, "w");
        if (!f || fprintf(f, "%ld\n", (long) getpid()) < 0 || fclose(f))
            return 1;
        raise(SIGSTOP);
    }
    int rc = weft_world_agree(0, &err);
    weft_rt_stop(rt);
    weft_world_close();
    return rc != 0;
}

static int end_job(const char *how, const char *file)
{
    struct weft_err err;
    struct weft_rt *rt;
    struct weft_seq *seq;
    struct weft_external *answer = NULL;
    const struct weft_where anywhere = {
        .device = -1, .iteration = -1, .micro_batch = -1, .layer = -1};
    struct weft_rt_options options = {
        .n_devices = 1, .nap = 1, .watchdog_s = 0.3};
    int me = weft_world_rank(), data = 0;
    if (weft_rt_start(&options, &rt, &err) || weft_seq_create(rt, &seq, &err))
        return 1;
    if (strcmp(how, "--stop") == 0)
        return stop_rank(rt, file);
    struct weft_tile *from, *to;
    struct weft_tile_id id = {"m", "x", -1, -1, -1, 0};
    if (weft_tile_create_temp(rt, &id, WEFT_MEM_SAMPLES, 8, &from, &err))
        return 1;
    id.place = 1;
    if (weft_tile_create_temp(rt, &id, WEFT_MEM_SAMPLES, 8, &to, &err))
        return 1;
    if (strcmp(how, "--late") == 0) { /* rank 1 waits for rank 0's answer */
        weft_external_begin(seq, from, &anywhere, &answer, &err);
        weft_insert_copy(seq, &anywhere, from, to);
        while (me == 0 && !said(file, "waits for 'm x' from rank 0"))
            usleep(10000);
        weft_external_complete(answer, NULL, 0);
        int rc = weft_seq_wait(seq, &err);
        weft_rt_stop(rt);
        weft_world_close();
        return rc != 0;
    }
    if (strcmp(how, "--kill") == 0 && me == 1)
        raise(SIGKILL);
    if (strcmp(how, "--abort") == 0 && me == 1) {
        weft_err_set(&err, WEFT_EIO, "the end of rank 1");
        weft_world_abort(&err);
    }
    /* what is awaited never comes; what were sent would fail, too, as nobody has
     * written it, and which is said first would depend on timing */
    if (strcmp(how, "--step") == 0 && me == 1)
        weft_insert_copy(seq, &anywhere, from, to);
    while (!weft_seq_agree(seq, &data, sizeof data, &err))
        usleep(1000);
    return 3;
}

int main(int argc, char **argv)
{
    struct weft_err err;
    if (argc < 2) {
        fprintf(stderr, "usage: rank_ends --late LOG | --stop PID_FILE | "
                        "--kill | --abort | --step\n");
        return 2;
    }
    if (weft_world_open(&err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    return end_job(argv[1], argc > 2 ? argv[2] : "");
}
