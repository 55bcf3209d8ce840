/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of kernels for GPUs. The same source runs under the executor
 * (cuda_runtime.h beside this) and on a card, where it is skipped without one.
 */
#ifndef WEFT_TESTS_CUDA_TEST_DEVICE_H
#define WEFT_TESTS_CUDA_TEST_DEVICE_H

#include <cuda_runtime.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "cpu_bits.h"
#include "harness.h"
#include "kern/kern_cuda.h"

/* ---- Device memory ----------------------------------------------------- */

static inline void *dev_new(size_t n_bytes)
{
    void *p = NULL;
    REQUIRE(cudaMalloc(&p, n_bytes ? n_bytes : 1) == cudaSuccess);
    return p;
}

static inline void dev_set(void *to, const void *host, size_t n_bytes)
{
    REQUIRE(cudaMemcpy(to, host, n_bytes, cudaMemcpyHostToDevice)
            == cudaSuccess);
}

/* A copy of n_bytes of the host's. */
static inline void *dev_put(const void *host, size_t n_bytes)
{
    void *p = dev_new(n_bytes);
    dev_set(p, host, n_bytes);
    return p;
}

/* Frees device memory; under the executor it sees writes beside it. */
static inline void dev_free(void *p)
{
    CHECK(cudaFree(p) == cudaSuccess);
}

/* Nothing that was launched has failed; waits for its end. */
static inline void dev_wait(void)
{
    cudaError_t sync = cudaDeviceSynchronize(), last = cudaGetLastError();
    cudaError_t error = sync != cudaSuccess ? sync : last;
    if (error != cudaSuccess)
        printf("\n    a launch failed: %s\n", cudaGetErrorString(error));
    REQUIRE(error == cudaSuccess);
}

/* Waits, then copies to the host. */
static inline void dev_get(void *host, const void *from, size_t n_bytes)
{
    dev_wait();
    REQUIRE(cudaMemcpy(host, from, n_bytes, cudaMemcpyDeviceToHost)
            == cudaSuccess);
}

/* Whether the numbers on the device are these, bit for bit. */
static inline bool dev_same(const void *dev, const void *host, size_t n_bytes)
{
    void *got = weft_alloc_aligned(n_bytes ? n_bytes : 1, 1);
    dev_get(got, dev, n_bytes);
    bool same = memcmp(got, host, n_bytes) == 0;
    weft_free(got);
    return same;
}

/* ---- Numbers ----------------------------------------------------------- */

/* Deterministic numbers of about unit size. */
static inline float *host_rows(uint32_t stream, int64_t n)
{
    float *x = weft_alloc_aligned((size_t) (n ? n : 1), sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float) weft_rng_normal(11, WEFT_RNG_INIT, stream, 0,
                                       (uint32_t) i);
    return x;
}

static inline float *host_copy(const float *x, int64_t n)
{
    float *y = weft_alloc_aligned((size_t) (n ? n : 1), sizeof *y);
    memcpy(y, x, (size_t) n * sizeof *y);
    return y;
}

/* x in a dtype. */
static inline void *host_as(enum weft_dtype dtype, const float *x, int64_t n)
{
    void *y = weft_alloc_aligned((size_t) (n ? n : 1), 4);
    weft_convert(y, dtype, x, WEFT_F32, (size_t) n);
    return y;
}

/* ---- Cases ------------------------------------------------------------- */

/* A published tile of weights and its transposed, from masters of the host. */
static inline void dev_publish(const struct weft_layout *l,
                               enum weft_dtype dtype, const float *master,
                               void **fwd_out, void **bwd_out)
{
    size_t n_bytes = l->n_flat * sizeof *master;
    *fwd_out = dev_new(l->fwd_bytes);
    *bwd_out = dev_new(l->bwd_bytes);
    if (dtype == WEFT_BF16) {
        float *flat = dev_put(master, n_bytes);
        struct weft_range all = {0, weft_layout_n_chunks(l)};
        weft_k_publish_cuda(0, l, dtype, all, flat, *fwd_out);
        dev_wait();
        dev_free(flat);
    } else {
        dev_set(*fwd_out, master, n_bytes);
    }
    weft_k_transpose_cuda(0, l, dtype, *fwd_out, *bwd_out);
}

/* Runs a case with threads and blocks in every order of the executor; on a
 * card once. */
static inline void each_order(void (*run)(void))
{
#ifdef WEFT_CUDA_EXECUTOR
    for (int i = 0; i < WEFT_EXEC_ORDERS; i++) {
        weft_exec_order(i);
        run();
    }
    weft_exec_order(0);
#else
    run();
#endif
}

/* Why there is no device, or NULL. */
static inline const char *dev_missing(void)
{
#ifdef WEFT_CUDA_EXECUTOR
    return NULL;
#else
    void *p = NULL;
    cudaError_t error = cudaMalloc(&p, 16);
    cudaFree(p);
    return error == cudaSuccess ? NULL : cudaGetErrorString(error);
#endif
}

/* As WEFT_TESTS(). */
#define WEFT_CUDA_TESTS(suite, ...)                                          \
    int main(void)                                                           \
    {                                                                        \
        const struct weft_test tests[] = {__VA_ARGS__};                      \
        if (dev_missing()) {                                                 \
            printf("skipped: no GPU: %s\n", dev_missing());                  \
            return 77;                                                       \
        }                                                                    \
        return weft_test_main(suite, tests, sizeof tests / sizeof tests[0]); \
    }

#endif
