/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "job/profile_inside.h"

/* Of a task that computes between two messages. By its end the thread that
 * expects the next one takes its longest naps. */
static const double WORK_S = 1e-3;

enum { PAUSE_US = 500, RALLIES = 20, ROWS = 25 };

/* Of a message. Larger ones than small are announced first, and wait until the
 * other rank looks: their time has a part that hardly grows with them, nor does
 * that of cores, as one side copies. */
static const int sizes[] = {64, 4096, 1 << 16, 1 << 20, 1 << 24};

/* Two tiles that are sent to and fro between the first two ranks. */
struct rally {
    struct weft_seq *seq;
    struct weft_tile *tile[2];
};

static int rally_create(struct weft_context *c, size_t bytes,
                        struct rally *out, struct weft_err *err)
{
    struct weft_rt *rt = weft_context_rt(c);
    struct weft_tile_id id = {"profiled", "message", 0, -1, -1, 0};
    int rc = 0;
    *out = (struct rally){.seq = c->seq};
    for (int i = 0; i < 2 && !rc; i++) {
        id.place = weft_rt_host_place(rt, i);
        rc = weft_tile_create(rt, &id, WEFT_MEM_ACTIVATIONS, bytes,
                              &out->tile[i], err);
    }
    return rc;
}

static double clock_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

/* CPU seconds of this process's other threads. */
static double others_s(void)
{
    return clock_of(CLOCK_PROCESS_CPUTIME_ID)
         - clock_of(CLOCK_THREAD_CPUTIME_ID);
}

/* Seconds of a message from the end of the task that it is from to the begin of
 * the one that waits for it, in a row of them. Each task keeps its core busy
 * until what expects messages at the other rank has fallen asleep, as in
 * runs. */
static int rally_play(const struct rally *r, double *out,
                      struct weft_err *err)
{
    struct weft_where where = {.micro_batch = -1, .layer = -1};
    double start = weft_clock_s();
    for (int i = 0; i < 2 * RALLIES; i++) {
        where.device = i % 2;
        weft_insert_spin(r->seq, &where, WORK_S, r->tile[i % 2]);
        where.device = -1;
        weft_insert_copy(r->seq, &where, r->tile[i % 2], r->tile[1 - i % 2]);
    }
    int rc = weft_context_wait(r->seq, 0, err);
    *out = (weft_clock_s() - start) / (2 * RALLIES) - WORK_S;
    return weft_world_agree(rc, err);
}

static int ascending(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

/* CPU seconds of a message, but for inserting it. In runs messages come one by
 * one, and threads that expect them have fallen asleep: there are pauses. */
static int rally_handle(const struct rally *r, double *out,
                        struct weft_err *err)
{
    const struct weft_where where = {
        .device = -1, .micro_batch = -1, .layer = -1};
    double start = others_s();
    for (int i = 0; i < 2 * RALLIES; i++) {
        weft_insert_copy(r->seq, &where, r->tile[i % 2], r->tile[1 - i % 2]);
        usleep(PAUSE_US);
    }
    int rc = weft_context_wait(r->seq, 0, err);
    *out = (others_s() - start) / (2 * RALLIES);
    return weft_world_agree(rc, err);
}

/* What `play` says of a message, in the median of some rows, as threads wake
 * sooner or later, and the least. The first one makes pages and connections. */
static int measure(struct weft_context *c, double bytes,
                   int (*play)(const struct rally *, double *,
                               struct weft_err *),
                   double *median_out, double *least_out,
                   struct weft_err *err)
{
    struct rally r;
    double s[ROWS], first;
    int rc = weft_world_agree(rally_create(c, (size_t) bytes, &r, err), err);
    if (!rc)
        rc = play(&r, &first, err);
    for (int i = 0; i < ROWS && !rc; i++)
        rc = play(&r, &s[i], err);
    for (int i = 0; i < 2; i++)
        weft_tile_release(r.tile[i]);
    if (rc)
        return rc;
    qsort(s, ROWS, sizeof *s, ascending);
    *median_out = s[ROWS / 2];
    *least_out = s[0];
    return 0;
}

int weft_profile_messages(const struct weft_config *config,
                          struct weft_costs_file *file, struct weft_err *err)
{
    enum { LAST = WEFT_COUNT(sizes) - 1 };
    struct weft_context *c = NULL;
    struct weft_cost_message *m = file->message;
    double least[LAST + 1], least_core;
    int rc = weft_context_open_with(
        &(struct weft_context_options){.isa = config->numerics.isa,
                                       .rt = {.n_devices = 1, .nap = -1}},
        &c, err);
    rc = weft_world_agree(rc, err);
    for (int i = 0; i <= LAST && !rc; i++) {
        m[i].bytes = sizes[i];
        rc = measure(c, sizes[i], rally_play, &m[i].seconds, &least[i], err);
        if (!rc)
            rc = measure(c, sizes[i], rally_handle, &m[i].core_s, &least_core,
                         err);
        /* without what the task that waits for it takes to begin */
        m[i].seconds = rc ? 0 : fmax(m[i].seconds - file->task_s, 0);
    }
    file->n_messages = rc ? 0 : LAST + 1;
    if (!rc && !(least[LAST] > least[LAST - 1]))
        rc = weft_err_set(err, WEFT_ESTATE,
                          "a message of %d bytes took no longer than one of "
                          "%d: is the machine busy?",
                          (int) m[LAST].bytes, (int) m[LAST - 1].bytes);
    if (!rc) /* bytes per second are of messages that nobody disturbs */
        m[LAST].seconds = m[LAST - 1].seconds + least[LAST] - least[LAST - 1];
    weft_context_close(c);
    return weft_world_agree(rc, err);
}
