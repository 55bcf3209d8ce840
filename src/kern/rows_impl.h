/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms, activation and rotation of rows.h for the instruction set this file
 * is compiled for.
 */
#include "kern/rope_angles.h"
#include "kern/rows.h"
#include "kern/vec16.h"

/* Sixteen elements of a row in dtype; those from n on read as 0. */
WEFT_INLINE weft_v16 row_load(enum weft_dtype dtype, const void *p, int64_t i,
                              int64_t n)
{
    if (dtype == WEFT_BF16) {
        const uint16_t *h = (const uint16_t *) p + i;
        return n - i >= WEFT_LANES ? v_load_bf16(h) : v_load_bf16_n(h, n - i);
    }
    const float *f = (const float *) p + i;
    return n - i >= WEFT_LANES ? v_load(f) : v_load_n(f, n - i);
}

WEFT_INLINE void row_store(enum weft_dtype dtype, void *p, int64_t i,
                           int64_t n, weft_v16 a)
{
    if (dtype == WEFT_BF16) {
        uint16_t *h = (uint16_t *) p + i;
        if (n - i >= WEFT_LANES)
            v_store_bf16(h, a);
        else
            v_store_bf16_n(h, a, n - i);
    } else if (n - i >= WEFT_LANES) {
        v_store((float *) p + i, a);
    } else {
        v_store_n((float *) p + i, a, n - i);
    }
}

/* Calls `body` with a constant dtype, so that its copies have no branches on
 * the dtype. */
#define BY_DTYPE(dtype, body, ...)                                           \
    do {                                                                     \
        if ((dtype) == WEFT_BF16)                                            \
            body(WEFT_BF16, __VA_ARGS__);                                    \
        else                                                                 \
            body(WEFT_F32, __VA_ARGS__);                                     \
    } while (0)

WEFT_INLINE void *row_at(enum weft_dtype dtype, void *p, int64_t i)
{
    return (char *) p + (size_t) i * weft_dtype_bytes(dtype);
}

WEFT_INLINE const void *row_of(enum weft_dtype dtype, const void *p,
                               int64_t i)
{
    return (const char *) p + (size_t) i * weft_dtype_bytes(dtype);
}

static float row_inv_rms(int64_t h, float eps, const float *x)
{
    weft_v16 s[4] = {v_set1(0), v_set1(0), v_set1(0), v_set1(0)};
    int64_t i = 0;
    for (; i + 64 <= h; i += 64) {
        weft_v16 a = v_load(x + i), b = v_load(x + i + 16);
        weft_v16 c = v_load(x + i + 32), d = v_load(x + i + 48);
        s[0] = v_fma(a, a, s[0]);
        s[1] = v_fma(b, b, s[1]);
        s[2] = v_fma(c, c, s[2]);
        s[3] = v_fma(d, d, s[3]);
    }
    for (; i < h; i += 16) {
        weft_v16 a = row_load(WEFT_F32, x, i, h);
        s[0] = v_fma(a, a, s[0]);
    }
    float sum = v_sum(v_add(v_add(s[0], s[1]), v_add(s[2], s[3])));
    return 1.0f / sqrtf(sum / (float) h + eps);
}

WEFT_INLINE void rmsnorm_body(enum weft_dtype dtype, int64_t m, int64_t h,
                              float eps, const float *x, const float *w,
                              void *y)
{
    for (int64_t r = 0; r < m; r++) {
        weft_v16 inv = v_set1(row_inv_rms(h, eps, x + r * h));
        void *out = row_at(dtype, y, r * h);
        for (int64_t i = 0; i < h; i += 16) {
            weft_v16 a = v_mul(row_load(WEFT_F32, x + r * h, i, h), inv);
            row_store(dtype, out, i, h,
                      v_mul(a, row_load(WEFT_F32, w, i, h)));
        }
    }
}

static void rmsnorm(enum weft_dtype dtype, int64_t m, int64_t h, float eps,
                    const float *x, const float *w, void *y)
{
    BY_DTYPE(dtype, rmsnorm_body, m, h, eps, x, w, y);
}

/* With n = x / rms: dx = (w dy - n mean(w dy n)) / rms, dw = dy n. */
static void rmsnorm_backward(int64_t m, int64_t h, float eps, const float *x,
                             const float *w, const float *dy, float *dx,
                             float *dw)
{
    for (int64_t r = 0; r < m; r++, x += h, dy += h, dx += h) {
        float inv_rms = row_inv_rms(h, eps, x);
        weft_v16 inv = v_set1(inv_rms), s0 = v_set1(0), s1 = v_set1(0);
        int64_t i = 0;
        for (; i < h; i += 32) {
            weft_v16 n = v_mul(row_load(WEFT_F32, x, i, h), inv);
            weft_v16 g = row_load(WEFT_F32, dy, i, h);
            s0 = v_fma(v_mul(g, row_load(WEFT_F32, w, i, h)), n, s0);
            if (i + 16 >= h)
                break;
            n = v_mul(row_load(WEFT_F32, x, i + 16, h), inv);
            g = row_load(WEFT_F32, dy, i + 16, h);
            s1 = v_fma(v_mul(g, row_load(WEFT_F32, w, i + 16, h)), n, s1);
        }
        weft_v16 mean = v_set1(-v_sum(v_add(s0, s1)) / (float) h);
        for (i = 0; i < h; i += 16) {
            weft_v16 n = v_mul(row_load(WEFT_F32, x, i, h), inv);
            weft_v16 g = row_load(WEFT_F32, dy, i, h);
            weft_v16 d = v_fma(n, mean,
                               v_mul(g, row_load(WEFT_F32, w, i, h)));
            row_store(WEFT_F32, dx, i, h,
                      v_fma(d, inv, row_load(WEFT_F32, dx, i, h)));
            if (dw)
                row_store(WEFT_F32, dw, i, h,
                          v_fma(g, n, row_load(WEFT_F32, dw, i, h)));
        }
    }
}

WEFT_INLINE void swiglu_body(enum weft_dtype dtype, int64_t n, const void *gu,
                             void *y)
{
    weft_v16 one = v_set1(1);
    for (int64_t i = 0; i < n; i += 16) {
        int64_t at = i / 32 * 64 + i % 32;
        weft_v16 g = row_load(dtype, gu, at, 2 * n);
        weft_v16 u = row_load(dtype, gu, at + 32, 2 * n);
        weft_v16 e = v_exp(v_sub(v_set1(0), g));
        row_store(dtype, y, i, n, v_mul(v_div(g, v_add(one, e)), u));
    }
}

static void swiglu(enum weft_dtype dtype, int64_t m, int64_t ff,
                   const void *gate_up, void *y)
{
    BY_DTYPE(dtype, swiglu_body, m * ff, gate_up, y);
}

/* With s = 1 / (1 + e^-g), the derivative of silu(g) is s (1 + g (1 - s)). */
WEFT_INLINE void swiglu_backward_body(enum weft_dtype dtype, int64_t n,
                                      const void *gu, const float *dy,
                                      void *dgu)
{
    weft_v16 one = v_set1(1);
    for (int64_t i = 0; i < n; i += 16) {
        int64_t at = i / 32 * 64 + i % 32;
        weft_v16 g = row_load(dtype, gu, at, 2 * n);
        weft_v16 u = row_load(dtype, gu, at + 32, 2 * n);
        weft_v16 d = v_load(dy + i);
        weft_v16 e = v_exp(v_sub(v_set1(0), g));
        weft_v16 s = v_div(one, v_add(one, e));
        weft_v16 slope = v_mul(s, v_fma(g, v_sub(one, s), one));
        row_store(dtype, dgu, at, 2 * n, v_mul(v_mul(d, u), slope));
        row_store(dtype, dgu, at + 32, 2 * n, v_mul(d, v_mul(g, s)));
    }
}

static void swiglu_backward(enum weft_dtype dtype, int64_t m, int64_t ff,
                            const void *gate_up, const float *dy,
                            void *dgate_up)
{
    BY_DTYPE(dtype, swiglu_backward_body, m * ff, gate_up, dy, dgate_up);
}

static void angles(int64_t n, const float *restrict frequency,
                   int64_t position, float *restrict cos, float *restrict sin)
{
    for (int64_t i = 0; i < n; i++)
        weft_rope_angle(frequency[i], position, &cos[i], &sin[i]);
}

static void rope(int64_t n_heads, int64_t d, const float *cos_sin,
                 bool inverse, float *x)
{
    int64_t half = d / 2;
    weft_v16 sign = v_set1(inverse ? -1.0f : 1.0f);
    for (int64_t head = 0; head < n_heads; head++, x += d)
        for (int64_t i = 0; i < half; i += 16) {
            weft_v16 c = row_load(WEFT_F32, cos_sin, i, half);
            weft_v16 s = row_load(WEFT_F32, cos_sin + half, i, half);
            weft_v16 a = row_load(WEFT_F32, x, i, half);
            weft_v16 b = row_load(WEFT_F32, x + half, i, half);
            s = v_mul(s, sign);
            row_store(WEFT_F32, x, i, half, v_sub(v_mul(a, c), v_mul(b, s)));
            row_store(WEFT_F32, x + half, i, half,
                      v_add(v_mul(b, c), v_mul(a, s)));
        }
}

WEFT_INLINE void round_body(enum weft_dtype dtype, int64_t n, const float *x,
                            void *y)
{
    for (int64_t i = 0; i < n; i += 16)
        row_store(dtype, y, i, n, row_load(WEFT_F32, x, i, n));
}

static void round_row(enum weft_dtype dtype, int64_t n, const float *x,
                      void *y)
{
    BY_DTYPE(dtype, round_body, n, x, y);
}

static void add_rows(int64_t m, int64_t n, const float *x, int64_t ldx,
                     float *sum)
{
    for (int64_t r = 0; r < m; r++, x += ldx)
        for (int64_t i = 0; i < n; i++)
            sum[i] += x[i];
}
