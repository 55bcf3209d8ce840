/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Angles of rotary embeddings (Su et al. 2021), with the linear and Llama-3
 * scalings. Frequencies are rounded to f32, as other implementations do.
 * Angles, sines and cosines are computed in double by the code below, so that
 * they do not depend on a mathematics library.
 */
#include <math.h>

#include "kern/layer.h"

/* Llama-3's scaling (transformers, modeling_rope_utils): long wavelengths are
 * multiplied by `factor`, short ones kept, those between interpolated. */
static double llama3(const struct weft_shape *s, double f)
{
    double waves = s->rope_original * f / (2 * 3.14159265358979323846);
    if (waves < s->rope_low)
        return f / s->rope_factor;
    if (waves > s->rope_high)
        return f;
    double blend = (waves - s->rope_low) / (s->rope_high - s->rope_low);
    return (1 - blend) * f / s->rope_factor + blend * f;
}

void weft_rope_frequencies(const struct weft_shape *s, float *out)
{
    int32_t half = s->head_dim / 2;
    for (int32_t i = 0; i < half; i++) {
        double f = pow(s->rope_theta, -(double) i / half);
        if (s->rope == WEFT_ROPE_LINEAR)
            f /= s->rope_factor;
        else if (s->rope == WEFT_ROPE_LLAMA3)
            f = llama3(s, f);
        out[i] = (float) f;
    }
}

/* Taylor series of sine and cosine on |r| <= pi / 4; error below 1e-13. */
static double sine(double r)
{
    double x = r * r, s = 1.0 / 6227020800.0;
    static const double c[] = {-1.0 / 39916800, 1.0 / 362880, -1.0 / 5040,
                               1.0 / 120,       -1.0 / 6,     1};
    for (size_t i = 0; i < WEFT_COUNT(c); i++)
        s = s * x + c[i];
    return s * r;
}

static double cosine(double r)
{
    double x = r * r, s = -1.0 / 87178291200.0;
    static const double c[] = {1.0 / 479001600,
                               -1.0 / 3628800,
                               1.0 / 40320,
                               -1.0 / 720,
                               1.0 / 24,
                               -1.0 / 2,
                               1};
    for (size_t i = 0; i < WEFT_COUNT(c); i++)
        s = s * x + c[i];
    return s;
}

void weft_rope_angles(int64_t d, const float *frequency, int64_t position,
                      float *out)
{
    /* pi / 2 as its first 33 bits and the rest (fdlibm): the reduction is
     * exact for up to 2^20 turns. */
    const double high = 1.57079632673412561417e+00;
    const double low = 6.07710050650619224932e-11;
    for (int64_t i = 0; i < d / 2; i++) {
        double angle = (double) position * (double) frequency[i];
        double n = floor(angle / (high + low) + 0.5);
        double r = angle - n * high - n * low;
        double s = sine(r), c = cosine(r);
        int quarter = (int) ((int64_t) n & 3);
        double sin = quarter & 1 ? c : s, cos = quarter & 1 ? s : c;
        out[i] = (float) (quarter == 1 || quarter == 2 ? -cos : cos);
        out[d / 2 + i] = (float) (quarter >= 2 ? -sin : sin);
    }
}

void weft_rope_table_at(const struct weft_shape *s, int64_t n_rows,
                        int64_t n_runs, struct weft_arena *arena,
                        struct weft_rope_table *out)
{
    int64_t d = s->head_dim;
    out->first = weft_arena_take(arena, n_runs, sizeof(int32_t));
    out->cos_sin = weft_arena_take(arena, n_rows * d, sizeof(float));
    out->frequency = weft_arena_take(arena, d / 2, sizeof(float));
}

void weft_rope_table_fill(const struct weft_shape *s,
                          const struct weft_k_batch *batch,
                          struct weft_rope_table *table)
{
    int64_t d = s->head_dim;
    int32_t shared = 0;
    for (int32_t i = 0; i < batch->n_runs; i++)
        if (batch->run[i].pos == 0 && batch->run[i].n > shared)
            shared = batch->run[i].n;
    weft_rope_frequencies(s, table->frequency);
    for (int32_t p = 0; p < shared; p++)
        weft_rope_angles(d, table->frequency, p, table->cos_sin + p * d);
    for (int32_t i = 0, next = shared; i < batch->n_runs; i++) {
        const struct weft_k_run *run = &batch->run[i];
        table->first[i] = run->pos == 0 ? 0 : next;
        if (run->pos == 0)
            continue;
        for (int32_t j = 0; j < run->n; j++, next++)
            weft_rope_angles(d, table->frequency, run->pos + j,
                             table->cos_sin + next * d);
    }
}
