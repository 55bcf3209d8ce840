/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast this machine is now: seconds that some arithmetic in registers and
 * some passes over memory take, on all threads at once; the middle of some
 * rounds of the slowest thread.
 *
 *     bench/speed [THREADS]
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "median.h"
#include "probe.h"

enum { MOST = 64, ROUNDS = 5, FLOATS = 8 << 20, FLOPS = 80, PASSES = 4 };

struct worker {
    pthread_t thread;
    float *x; /* (FLOATS) */
    double seconds;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    double start = weft_clock_s();
    for (int i = 0; i < FLOPS; i++)
        probe_flop(WEFT_F32);
    for (int i = 0; i < PASSES; i++) {
        probe_read(w->x, FLOATS);
        probe_update(w->x, FLOATS / 4);
    }
    w->seconds = weft_clock_s() - start;
    return NULL;
}

static double slowest(struct worker *w, int n)
{
    double most = 0;
    for (int i = 0; i < n; i++)
        if (pthread_create(&w[i].thread, NULL, work, &w[i]) != 0)
            exit(1);
    for (int i = 0; i < n; i++) {
        pthread_join(w[i].thread, NULL);
        most = w[i].seconds > most ? w[i].seconds : most;
    }
    return most;
}

int main(int argc, char **argv)
{
    static struct worker w[MOST];
    double took[ROUNDS];
    struct weft_err err;
    int n = argc > 1 ? atoi(argv[1]) : 1;
    if (n < 1 || n > MOST || weft_k_init(NULL, &err) != 0)
        return 1;
    for (int i = 0; i < n; i++)
        if (!(w[i].x = weft_alloc(FLOATS, sizeof *w[i].x)))
            return 1;
    for (int r = -1; r < ROUNDS; r++) /* the first one touches the pages */
        took[r < 0 ? 0 : r] = slowest(w, n);
    printf("%.6f\n", median_sort(took, ROUNDS));
    for (int i = 0; i < n; i++)
        weft_free(w[i].x);
    return 0;
}
