/* SPDX-License-Identifier: Apache-2.0 */
/* A card's memory, and times of work on it. A failure ends the program. */
#ifndef WEFT_BENCH_CARD_H
#define WEFT_BENCH_CARD_H

#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/dtype.h"
#include "base/err.h"
#include "base/rng.h"
#include "kern/kern_cuda.h"

static double seconds = 1; /* of repetitions */

static void must(cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess)
        return;
    fprintf(stderr, "bench/gpu: %s: %s\n", what, cudaGetErrorString(rc));
    exit(1);
}

static void must_err(int rc, const struct weft_err *err)
{
    if (rc == 0)
        return;
    fprintf(stderr, "bench/gpu: %s\n", err->text);
    exit(1);
}

/* What is not freed yet. */
static void *held[1 << 14];
static size_t n_held;

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Random numbers of bf16 between -0.03 and 0.03, which also are some of f32:
 * how fast a card multiplies depends on how many bits change. */
static void *device(size_t n_bytes)
{
    enum { N = 65521 };
    static uint16_t random[N];
    char *p = NULL;
    weft_assert(n_held < WEFT_COUNT(held));
    must(cudaMalloc((void **) &p, n_bytes ? n_bytes : 16), "memory");
    for (uint32_t i = 0; i < N && random[0] == 0; i++)
        random[N - 1 - i] = weft_f32_to_bf16(
            0.06f * weft_rng_uniform(1, WEFT_RNG_INIT, 0, 0, i) - 0.03f);
    size_t done = least(n_bytes, sizeof random);
    must(cudaMemcpy(p, random, done, cudaMemcpyHostToDevice), "a copy");
    for (size_t n; done < n_bytes; done += n) {
        n = least(done, n_bytes - done);
        must(cudaMemcpy(p + done, p, n, cudaMemcpyDeviceToDevice), "a copy");
    }
    held[n_held++] = p;
    return p;
}

/* Frees all but the first n. */
static void release_to(size_t n)
{
    while (n_held > n)
        must(cudaFree(held[--n_held]), "a kernel");
}

static void *sent(const void *host, size_t n_bytes)
{
    void *p = device(n_bytes);
    must(cudaMemcpy(p, host, n_bytes, cudaMemcpyHostToDevice), "a copy");
    return p;
}

static double once_s(void (*run)(void *), void *arg)
{
    struct weft_err err;
    cudaEvent_t from, to;
    float ms = 0;
    must(cudaEventCreate(&from), "an event");
    must(cudaEventCreate(&to), "an event");
    must(cudaEventRecord(from, NULL), "an event");
    run(arg);
    must(cudaEventRecord(to, NULL), "an event");
    must(cudaEventSynchronize(to), "a kernel");
    must(cudaGetLastError(), "a launch");
    must_err(weft_k_products_error_cuda(&err), &err);
    must(cudaEventElapsedTime(&ms, from, to), "an event");
    must(cudaEventDestroy(from), "an event");
    must(cudaEventDestroy(to), "an event");
    return 1e-3 * (double) ms;
}

static double best_s(void (*run)(void *), void *arg)
{
    double best = once_s(run, arg), all = 0;
    for (int i = 0; i < 2 || all < seconds; i++) {
        double s = once_s(run, arg);
        all += s > 0 ? s : seconds;
        best = fmin(best, s);
    }
    return best;
}

#endif
