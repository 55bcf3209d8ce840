/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Costs of an empty task, in microseconds: to insert it, and from the first
 * insertion to the last end; for numbers of devices and accesses, and for
 * tasks that are independent, or a chain.
 *
 *     bench/tasks [tasks]
 *
 * The second table: from inserting one task to its end, devices being idle.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "rt/codelet.h"
#include "sched/sched.h"

/* The last is a layer's backward pass with 32 tensor blocks, which has more
 * accesses than StarPU has room for in its struct. */
static const int tiles[] = {0, 2, 8, 20, 102};
enum { MOST_TILES = 102 };

static int empty_cpu(const void *args, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    (void) args;
    (void) buf;
    (void) n_buf;
    (void) x;
    return 0;
}
WEFT_CODELET(empty, 0x808080, empty_cpu)

static void must(int rc, const struct weft_err *err)
{
    if (rc) {
        fprintf(stderr, "tasks: %s\n", err->text);
        exit(1);
    }
}

static void start(int n_devices, int nap, struct weft_rt **rt,
                  struct weft_seq **seq)
{
    struct weft_err err;
    struct weft_rt_options options = {
        .n_devices = n_devices, .policy = &weft_sched_lanes, .nap = nap};
    must(weft_rt_start(&options, rt, &err), &err);
    must(weft_seq_create(*rt, seq, &err), &err);
}

/* Each device has tiles of its own; a chain writes the first of them. */
static void measure(int n_devices, int n_tiles, bool chain, int n_tasks)
{
    struct weft_rt *rt;
    struct weft_seq *seq;
    struct weft_err err;
    struct weft_access access[64][MOST_TILES];
    start(n_devices, -1, &rt, &seq);
    for (int d = 0; d < n_devices; d++) {
        for (int i = 0; i < n_tiles; i++) {
            must(weft_tile_create(rt, &(struct weft_tile_id){0},
                                  WEFT_MEM_SAMPLES, 64, &access[d][i].tile,
                                  &err),
                 &err);
            access[d][i].mode = chain && i == 0 ? WEFT_READ_WRITE : WEFT_READ;
        }
    }
    double insert_s = 0, all_s = 0;
    for (int round = 0; round < 2; round++) { /* the first one warms up */
        double begin = weft_clock_s();
        for (int k = 0; k < n_tasks; k++) {
            int d = k % n_devices;
            weft_insert(seq, &weft_cl_empty, NULL, 0, access[d], n_tiles,
                        &(struct weft_where){.device = d});
        }
        insert_s = weft_clock_s() - begin;
        must(weft_seq_wait(seq, &err), &err);
        all_s = weft_clock_s() - begin;
    }
    printf("%7d %9d %6s %9.2f %9.2f\n", n_devices, n_tiles,
           chain ? "yes" : "no", insert_s / n_tasks * 1e6,
           all_s / n_tasks * 1e6);
    for (int d = 0; d < n_devices; d++)
        for (int i = 0; i < n_tiles; i++)
            weft_tile_release(access[d][i].tile);
    weft_seq_free(seq);
    weft_rt_stop(rt);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static void measure_latency(int n_devices, int nap)
{
    enum { N = 201 };
    double took[N];
    struct weft_rt *rt;
    struct weft_seq *seq;
    struct weft_err err;
    start(n_devices, nap, &rt, &seq);
    for (int i = 0; i < N; i++) {
        usleep(3000);
        double begin = weft_clock_s();
        weft_insert(seq, &weft_cl_empty, NULL, 0, NULL, 0,
                    &(struct weft_where){.device = i % n_devices});
        must(weft_seq_wait(seq, &err), &err);
        took[i] = (weft_clock_s() - begin) * 1e6;
    }
    qsort(took, N, sizeof took[0], compare);
    printf("%7d %5s %9.1f %9.1f\n", n_devices, nap ? "nap" : "spin",
           took[N / 2], took[N * 9 / 10]);
    weft_seq_free(seq);
    weft_rt_stop(rt);
}

int main(int argc, char **argv)
{
    int n_tasks = argc > 1 ? atoi(argv[1]) : 20000;
    if (argc > 2 || n_tasks < 1) {
        fprintf(stderr, "usage: tasks [tasks]\n");
        return 2;
    }
    printf("devices  accesses  chain insert_us    all_us\n");
    for (int n_devices = 1; n_devices <= 4; n_devices *= 2)
        for (size_t i = 0; i < WEFT_COUNT(tiles); i++)
            for (int chain = 0; chain < (tiles[i] ? 2 : 1); chain++)
                measure(n_devices, tiles[i], chain, n_tasks);
    printf("\ndevices  idle median_us    p90_us\n");
    measure_latency(1, 0);
    measure_latency(1, 1);
    measure_latency(2, 1);
    measure_latency(8, 1);
    return 0;
}
