/* SPDX-License-Identifier: Apache-2.0 */
/* Layers dealt to pipeline stages, by multiply-adds per token. */
#include "plan/layout.h"

static int64_t layer_cost(const struct weft_shape *s)
{
    int64_t heads = 2 * ((int64_t) s->n_heads + s->n_kv_heads);
    return s->hidden * (heads * s->head_dim + 3 * (int64_t) s->intermediate);
}

/* Layers all cost the same, so that giving each one more to the stage that
 * stays cheapest is best. */
void weft_plan_stages(const struct weft_shape *s, int32_t pp,
                      int32_t *first_out)
{
    int64_t layer = layer_cost(s), cost[WEFT_MAX_STAGES];
    weft_assert(pp >= 1 && pp <= WEFT_MAX_STAGES && pp <= s->n_layers);
    for (int32_t i = 0; i < pp; i++) {
        cost[i] = layer;
        first_out[i] = 1; /* a count until the end */
    }
    cost[0] += s->hidden;
    cost[pp - 1] += s->hidden * (s->scalar_head ? 1 : (int64_t) s->vocab);
    for (int32_t l = pp; l < s->n_layers; l++) {
        int32_t best = pp - 1;
        for (int32_t i = pp - 2; i >= 0; i--)
            if (cost[i] < cost[best])
                best = i;
        cost[best] += layer;
        first_out[best]++;
    }
    int32_t end = s->n_layers;
    first_out[pp] = end;
    for (int32_t i = pp - 1; i >= 0; i--)
        first_out[i] = end -= first_out[i];
}
