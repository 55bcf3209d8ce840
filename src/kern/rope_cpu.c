/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Angles of rotary embeddings (Su et al. 2021), with the linear and Llama-3
 * scalings. Frequencies are rounded to f32, as other implementations do.
 */
#include <math.h>

#include "kern/layer.h"
#include "kern/rows.h"

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

void weft_rope_angles(int64_t d, const float *frequency, int64_t position,
                      float *out)
{
    weft_row_ops()->angles(d / 2, frequency, position, out, out + d / 2);
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
