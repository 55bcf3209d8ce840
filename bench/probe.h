/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a core can do at most: chains of arithmetic in registers, and passes
 * over memory. Written for the chosen instruction set; plain C where there is
 * none.
 */
#ifndef WEFT_BENCH_PROBE_H
#define WEFT_BENCH_PROBE_H

#include "kern/kern.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { PROBE_ROUNDS = 100000 };

/* 24 chains, enough for every latency; fewer where registers are. */
/* clang-format off */
#define EACH_8(op)                                                           \
    op(0) op(1) op(2) op(3) op(4) op(5) op(6) op(7)
#define EACH_12(op) EACH_8(op) op(8) op(9) op(10) op(11)
#define EACH_24(op)                                                          \
    EACH_12(op) op(12) op(13) op(14) op(15) op(16) op(17) op(18) op(19)      \
    op(20) op(21) op(22) op(23)
/* clang-format on */

static volatile float probe_sink;

#if defined(__x86_64__)
#define BEGIN_512(i) __m512 c##i = _mm512_set1_ps((float) i);
#define FMA_512(i) c##i = _mm512_fmadd_ps(a, w, c##i);
#define SUM_512(i) sum = _mm512_add_ps(sum, c##i);
/* The compiler must not see that nothing changes. */
#define KEEP_512(i) __asm__ volatile("" : "+v"(c##i));
WEFT_TARGET("avx512f")
static inline double probe_f32_512(void)
{
    __m512 a = _mm512_set1_ps(0.5f), w = _mm512_set1_ps(0.25f), sum = a;
    EACH_24(BEGIN_512)
    for (int r = 0; r < PROBE_ROUNDS; r++) {
        EACH_24(FMA_512)
        EACH_24(KEEP_512)
    }
    EACH_24(SUM_512)
    probe_sink = _mm512_reduce_add_ps(sum);
    return 24.0 * 32 * PROBE_ROUNDS;
}

#define DOT_512(i) c##i = _mm512_dpbf16_ps(c##i, pa, pw);
WEFT_TARGET("avx512f,avx512bf16")
static inline double probe_bf16_512(void)
{
    __m512 sum = _mm512_set1_ps(0.5f);
    __m512bh pa = (__m512bh) _mm512_set1_epi32(0x3f003f00), pw = pa;
    EACH_24(BEGIN_512)
    for (int r = 0; r < PROBE_ROUNDS; r++) {
        EACH_24(DOT_512)
        EACH_24(KEEP_512)
    }
    EACH_24(SUM_512)
    probe_sink = _mm512_reduce_add_ps(sum);
    return 24.0 * 64 * PROBE_ROUNDS;
}

#define BEGIN_256(i) __m256 c##i = _mm256_set1_ps((float) i);
#define SUM_256(i) sum = _mm256_add_ps(sum, c##i);
#define FMA_256(i) c##i = _mm256_fmadd_ps(a, w, c##i);
WEFT_TARGET("avx2,fma")
static inline double probe_f32_256(void)
{
    __m256 a = _mm256_set1_ps(0.5f), w = _mm256_set1_ps(0.25f), sum = a;
    EACH_12(BEGIN_256)
    for (int r = 0; r < PROBE_ROUNDS; r++) {
        EACH_12(FMA_256)
        EACH_12(KEEP_512)
    }
    EACH_12(SUM_256)
    probe_sink = _mm256_cvtss_f32(sum);
    return 12.0 * 16 * PROBE_ROUNDS;
}
#endif

/* Multiplies and adds of plain C, as compiled here. */
static inline double probe_f32_c(void)
{
    float c[32] = {0};
    volatile float a = 0.5f, w = 0.25f;
    float s = a, t = w;
    for (int r = 0; r < PROBE_ROUNDS; r++)
        for (int i = 0; i < 32; i++)
            c[i] = c[i] * s + t;
    for (int i = 0; i < 32; i++)
        probe_sink = probe_sink + c[i];
    return 64.0 * PROBE_ROUNDS;
}

/* Runs once; returns how many operations that was. */
static inline double probe_flop(enum weft_dtype dtype)
{
#if defined(__x86_64__)
    switch (weft_k_isa()) {
    case WEFT_ISA_AVX512_BF16:
        return dtype == WEFT_F32 ? probe_f32_512() : probe_bf16_512();
    case WEFT_ISA_AVX512:
        return probe_f32_512();
    case WEFT_ISA_AVX2:
        return probe_f32_256();
    default:
        break;
    }
#endif
    (void) dtype;
    return probe_f32_c();
}

#if defined(__x86_64__)
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

/* AdamW's traffic, 16 bytes read and 12 written each, little arithmetic. */
static inline void probe_update(float *x, size_t n)
{
    float *restrict g = x, *restrict p = x + n;
    float *restrict m = x + 2 * n, *restrict v = x + 3 * n;
    for (size_t i = 0; i < n; i++) {
        p[i] += g[i];
        m[i] += g[i];
        v[i] += g[i];
    }
}

#endif
