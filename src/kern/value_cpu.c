/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scalar head (reward model, critic) and the critic's loss.
 *
 * The flat order of a WEFT_TILE_FINAL is the norm's weight (H), then, at the
 * next multiple of 16, the score vector (H). The product with the score vector
 * has 16 partial sums (element j is added to sum j mod 16), which are added by
 * a binary tree. Everything is f32.
 */
#include "kern/policy_loss.h"

#include <string.h>

enum { N_SUMS = 16 };

static float dot(int64_t h, const float *a, const float *b)
{
    float sum[N_SUMS] = {0};
    for (int64_t j = 0; j < h; j++)
        sum[j % N_SUMS] += a[j] * b[j];
    for (int n = N_SUMS / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            sum[i] += sum[i + n];
    return sum[0];
}

static const float *score_of(const struct weft_shape *s, const float *final)
{
    struct weft_layout layout;
    weft_layout_get(s, WEFT_TILE_FINAL, 0, &layout);
    return final + weft_layout_part(&layout, WEFT_PART_SCORE)->offset;
}

/* Room for a row after the norm, and for its gradient. */
size_t weft_k_value_scratch_bytes(const struct weft_shape *s)
{
    return 2 * (size_t) s->hidden * sizeof(float);
}

void weft_k_value(const struct weft_shape *s, const float *final,
                  const float *x, const struct weft_k_targets *targets,
                  float *value_out, void *scratch)
{
    int64_t h = s->hidden;
    const float *score = score_of(s, final);
    float *y = scratch;
    for (int32_t i = 0; i < targets->n; i++) {
        weft_k_rmsnorm(WEFT_F32, 1, h, s->rms_eps, x + targets->row[i] * h,
                       final, y);
        value_out[i] = dot(h, y, score);
    }
}

/* value is the dot product of score and y: dscore += dv y, dy = dv score. */
void weft_k_value_backward(const struct weft_shape *s, const float *final,
                           int32_t n_rows, const float *x,
                           const struct weft_k_targets *targets,
                           const float *dvalue, float *dx, float *grad_final,
                           void *scratch)
{
    int64_t h = s->hidden;
    const float *score = score_of(s, final);
    float *grad_score = grad_final + (score - final);
    float *y = scratch, *dy = y + h;
    memset(dx, 0, (size_t) (n_rows * h) * sizeof *dx);
    for (int32_t i = 0; i < targets->n; i++) {
        const float *row = x + targets->row[i] * h;
        weft_k_rmsnorm(WEFT_F32, 1, h, s->rms_eps, row, final, y);
        for (int64_t j = 0; j < h; j++) {
            grad_score[j] += dvalue[i] * y[j];
            dy[j] = dvalue[i] * score[j];
        }
        weft_k_rmsnorm_backward(1, h, s->rms_eps, row, final, dy,
                                dx + targets->row[i] * h, grad_final);
    }
}

void weft_k_value_loss(float clip, int32_t n, float w, const float *value,
                       const float *old_value, const float *ret,
                       float *dvalue, double stat[WEFT_N_VALUE_STATS])
{
    for (int32_t i = 0; i < n; i++) {
        double one[WEFT_N_VALUE_STATS];
        weft_value_loss_token(clip, w, value[i], old_value[i], ret[i],
                              &dvalue[i], one);
        for (int k = 0; k < WEFT_N_VALUE_STATS; k++)
            stat[k] += one[k];
    }
}
