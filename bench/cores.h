/* SPDX-License-Identifier: Apache-2.0 */
/* What several cores do at most when all are busy. */
#ifndef WEFT_BENCH_CORES_H
#define WEFT_BENCH_CORES_H

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "bench/probe.h"

/* Floats of each core: 256 MB, as a cache of 32 MB kept a part of 96 MB from
 * round to round. */
enum { CORES = 64, CORE_ROUNDS = 7, CORE_FLOATS = 64 << 20 };

/* What a core does; returns how much that was. x: (CORE_FLOATS) of its own. */
typedef double (*core_fn)(float *x);

static inline double core_reads(float *x)
{
    probe_read(x, CORE_FLOATS);
    return 4.0 * CORE_FLOATS;
}

static inline double core_f32(float *x)
{
    (void) x;
    return probe_flop(WEFT_F32);
}

static inline double core_bf16(float *x)
{
    (void) x;
    return probe_flop(WEFT_BF16);
}

struct core {
    pthread_t thread;
    pthread_barrier_t *together;
    core_fn run;
    float *x;
    double start_s[CORE_ROUNDS], end_s[CORE_ROUNDS], done;
};

static inline void *core_run(void *arg)
{
    struct core *c = arg;
    for (int i = 0; i < CORE_ROUNDS; i++) {
        pthread_barrier_wait(c->together);
        c->start_s[i] = weft_clock_s();
        c->done = c->run(c->x);
        c->end_s[i] = weft_clock_s();
    }
    return NULL;
}

/* Binds the k-th of n threads to a core of its own, of those that this process
 * may use: Linux may leave two that wake on one core for as long as they
 * run. */
static inline void bind_core(pthread_t thread, int k, int n)
{
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    int left = k * CPU_COUNT(&all) / n, cpu = 0;
    while (cpu < CPU_SETSIZE - 1 && (!CPU_ISSET(cpu, &all) || left-- > 0))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    (void) pthread_setaffinity_np(thread, sizeof one, &one);
}

/* What n cores do together in a second: the best of some rounds, from the first
 * that begins to the last that ends. The program ends where it has no memory or
 * threads for it. */
static inline double cores_probe(int n, core_fn run)
{
    static struct core core[CORES];
    pthread_barrier_t together;
    double best = 0;
    if (n < 1 || n > CORES
        || pthread_barrier_init(&together, NULL, (unsigned) n) != 0)
        exit(1);
    for (int k = 0; k < n; k++) {
        core[k].together = &together;
        core[k].run = run;
        core[k].x = weft_alloc_aligned(CORE_FLOATS, sizeof(float));
        if (!core[k].x)
            exit(1);
    }
    for (int k = 0; k < n; k++) {
        if (pthread_create(&core[k].thread, NULL, core_run, &core[k]) != 0)
            exit(1);
        bind_core(core[k].thread, k, n);
    }
    for (int k = 0; k < n; k++)
        pthread_join(core[k].thread, NULL);
    for (int i = 0; i < CORE_ROUNDS; i++) {
        double first = core[0].start_s[i], last = core[0].end_s[i], done = 0;
        for (int k = 0; k < n; k++) {
            first = core[k].start_s[i] < first ? core[k].start_s[i] : first;
            last = core[k].end_s[i] > last ? core[k].end_s[i] : last;
            done += core[k].done;
        }
        best = done / (last - first) > best ? done / (last - first) : best;
    }
    for (int k = 0; k < n; k++)
        weft_free(core[k].x);
    pthread_barrier_destroy(&together);
    return best;
}

#endif
