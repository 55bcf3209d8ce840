/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scalar head (reward model, critic) and the critic's loss.
 *
 * FINAL's flat order is the norm's weight (H), then, at the next multiple of
 * 16, the score vector (H). Sums over H run in 16 lanes (element j in lane
 * j mod 16), lanes joined by a binary tree. Everything is f32.
 */
#include "kern/kern.h"

#include <math.h>

enum { LANES = 16 };

static float join(float lane[LANES])
{
    for (int n = LANES / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            lane[i] += lane[i + n];
    return lane[0];
}

static const float *score_of(const struct weft_shape *s, const float *final)
{
    struct weft_layout layout;
    weft_layout_get(s, WEFT_TILE_FINAL, 0, &layout);
    return final + weft_layout_part(&layout, WEFT_PART_SCORE)->offset;
}

/* 1 / rms of a row. */
static float inv_rms(int64_t h, float eps, const float *x)
{
    float lane[LANES] = {0};
    for (int64_t j = 0; j < h; j++)
        lane[j % LANES] += x[j] * x[j];
    return 1 / sqrtf(join(lane) / (float) h + eps);
}

void weft_k_value(const struct weft_shape *s, const float *final,
                  const float *x, const struct weft_k_targets *targets,
                  float *value_out)
{
    int64_t h = s->hidden;
    const float *score = score_of(s, final);
    for (int32_t i = 0; i < targets->n; i++) {
        const float *row = x + targets->row[i] * h;
        float r = inv_rms(h, s->rms_eps, row), lane[LANES] = {0};
        for (int64_t j = 0; j < h; j++)
            lane[j % LANES] += row[j] * r * final[j] * score[j];
        value_out[i] = join(lane);
    }
}

/* y = w * xhat, xhat = r x: dscore += dv y, dw += dv score xhat, and
 * dx = r (g - xhat mean(g xhat)) with g = dv score w. */
void weft_k_value_backward(const struct weft_shape *s, const float *final,
                           int32_t n_rows, const float *x,
                           const struct weft_k_targets *targets,
                           const float *dvalue, float *dx, float *grad_final)
{
    int64_t h = s->hidden;
    const float *score = score_of(s, final);
    float *grad_score = grad_final + (score - final);
    memset(dx, 0, (size_t) (n_rows * h) * sizeof *dx);
    for (int32_t i = 0; i < targets->n; i++) {
        const float *row = x + targets->row[i] * h;
        float *out = dx + targets->row[i] * h;
        float r = inv_rms(h, s->rms_eps, row), dv = dvalue[i];
        float lane[LANES] = {0};
        for (int64_t j = 0; j < h; j++) {
            float hat = row[j] * r, g = dv * score[j];
            grad_score[j] += dv * (hat * final[j]);
            grad_final[j] += g * hat;
            out[j] = g * final[j];
            lane[j % LANES] += out[j] * hat;
        }
        float mean = join(lane) / (float) h;
        for (int64_t j = 0; j < h; j++)
            out[j] = r * (out[j] - row[j] * r * mean);
    }
}

void weft_k_value_loss(float clip, int32_t n, float w, const float *value,
                       const float *old_value, const float *ret,
                       float *dvalue, double stat[WEFT_N_VALUE_STATS])
{
    for (int32_t i = 0; i < n; i++) {
        float v = value[i], kept = v, error = v - ret[i];
        if (clip > 0) {
            float low = old_value[i] - clip, high = old_value[i] + clip;
            kept = v < low ? low : v > high ? high : v;
        }
        float square = error * error, other = kept - ret[i];
        dvalue[i] = w * error;
        if (other * other > square) { /* then v is outside: no gradient */
            square = other * other;
            dvalue[i] = 0;
            stat[WEFT_VSTAT_CLIPPED] += 1;
        }
        double miss = (double) ret[i] - (double) v;
        stat[WEFT_VSTAT_LOSS] += 0.5 * (double) w * (double) square;
        stat[WEFT_VSTAT_VALUE] += (double) v;
        stat[WEFT_VSTAT_RETURN] += (double) ret[i];
        stat[WEFT_VSTAT_RETURN_SQ] += (double) ret[i] * (double) ret[i];
        stat[WEFT_VSTAT_ERROR] += miss;
        stat[WEFT_VSTAT_ERROR_SQ] += miss * miss;
        stat[WEFT_VSTAT_TOKENS] += 1;
    }
}
