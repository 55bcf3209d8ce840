/* SPDX-License-Identifier: Apache-2.0 */
/* Passes over memory: what one core reads, and several at once. */
#ifndef WEFT_BENCH_READS_H
#define WEFT_BENCH_READS_H

#include <pthread.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "kern/kern.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* clang-format off */
#define EACH_8(op)                                                           \
    op(0) op(1) op(2) op(3) op(4) op(5) op(6) op(7)
/* clang-format on */

static volatile float probe_sink;

#if defined(__x86_64__)
#define SUM_256(i) sum = _mm256_add_ps(sum, c##i);
#define BEGIN_READ(i) __m256 c##i = _mm256_setzero_ps();
#define READ_256(i)                                                          \
    c##i = _mm256_add_ps(c##i, _mm256_loadu_ps(x + at + 8 * i));             \
    c##i = _mm256_add_ps(c##i, _mm256_loadu_ps(x + n / 2 + at + 8 * i));
WEFT_TARGET("avx2")
static inline void probe_read_256(const float *x, size_t n)
{
    __m256 sum = _mm256_setzero_ps();
    EACH_8(BEGIN_READ)
    for (size_t at = 0; at + 64 <= n / 2; at += 64) {
        EACH_8(READ_256)
    }
    EACH_8(SUM_256)
    probe_sink = _mm256_cvtss_f32(sum);
}
#endif

/* Two streams, as wide as there are vectors. */
static inline void probe_read(const float *x, size_t n)
{
#if defined(__x86_64__)
    if (weft_k_isa() != WEFT_ISA_C) {
        probe_read_256(x, n);
        return;
    }
#endif
    float lane[64] = {0};
    for (size_t i = 0; i + 64 <= n / 2; i += 64)
        for (int j = 0; j < 64; j++)
            lane[j] += x[i + j] + x[n / 2 + i + j];
    for (int j = 0; j < 64; j++)
        probe_sink = probe_sink + lane[j];
}

/* ---- Several cores ----------------------------------------------------- */

enum { READ_CORES = 64, READ_ROUNDS = 7, READ_FLOATS = 24 << 20 };

struct reader {
    pthread_t thread;
    pthread_barrier_t *together;
    float *x; /* (READ_FLOATS) */
    double start_s[READ_ROUNDS], end_s[READ_ROUNDS];
};

static inline void *reader_run(void *arg)
{
    struct reader *r = arg;
    for (int i = 0; i < READ_ROUNDS; i++) {
        pthread_barrier_wait(r->together);
        r->start_s[i] = weft_clock_s();
        probe_read(r->x, READ_FLOATS);
        r->end_s[i] = weft_clock_s();
    }
    return NULL;
}

/* Bytes per second that n cores read together, far beyond every cache: the
 * best of some rounds, from the first who begins to the last who ends. 0: no
 * memory, or no threads. */
static inline double probe_reads(int n)
{
    static struct reader reader[READ_CORES];
    pthread_barrier_t together;
    double best = 0;
    int started = 0;
    if (n < 1 || n > READ_CORES
        || pthread_barrier_init(&together, NULL, (unsigned) n) != 0)
        return 0;
    for (int k = 0; k < n; k++) {
        reader[k].together = &together;
        reader[k].x = weft_alloc_aligned(READ_FLOATS, sizeof(float));
        if (!reader[k].x)
            exit(1);
    }
    for (int k = 0; k < n; k++)
        started += pthread_create(&reader[k].thread, NULL, reader_run,
                                  &reader[k])
                == 0;
    if (started < n)
        exit(1); /* the others would wait for it */
    for (int k = 0; k < n; k++)
        pthread_join(reader[k].thread, NULL);
    for (int i = 0; i < READ_ROUNDS; i++) {
        double first = reader[0].start_s[i], last = reader[0].end_s[i];
        for (int k = 1; k < n; k++) {
            first = reader[k].start_s[i] < first ? reader[k].start_s[i]
                                                 : first;
            last = reader[k].end_s[i] > last ? reader[k].end_s[i] : last;
        }
        double rate = 4.0 * READ_FLOATS * n / (last - first);
        best = rate > best ? rate : best;
    }
    for (int k = 0; k < n; k++)
        weft_free(reader[k].x);
    pthread_barrier_destroy(&together);
    return best;
}

#endif
