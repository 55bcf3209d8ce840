/* SPDX-License-Identifier: Apache-2.0 */
/* What a micro-batch holds between its forward and backward pass. */
#include "graphs/calls/stage.h"

static bool has_place(const struct weft_g_stage *stage, int32_t place)
{
    for (int32_t p = 0; p < stage->n_places; p++)
        if (stage->place[p] == place)
            return true;
    return false;
}

/* Stage number s of replica i; a stage without places if there is none. */
static struct weft_g_stage stage_or_none(const struct weft_g_layout *home,
                                         int32_t i, int32_t s)
{
    struct weft_g_stage stage = {.n_places = 0};
    if (s >= 0 && s < home->plan.pp)
        weft_g_stage_get(home, i, s, &stage);
    return stage;
}

/* How many values (n_rows, H) a micro-batch in flight keeps at place number q
 * of stage s of replica i. */
static int64_t kept_rows(const struct weft_g_layout *home, int32_t i,
                         int32_t s, int32_t q)
{
    struct weft_g_stage stage = stage_or_none(home, i, s);
    struct weft_g_stage before = stage_or_none(home, i, s - 1);
    int32_t layers = stage.end - stage.first;
    bool gets_x = s > 0 && !has_place(&before, stage.place[q]);
    bool mid = stage.n > 1 && !home->plan.recompute;
    return layers + (s == 0 || gets_x) + (mid ? layers : 0);
}

/* Bytes that member k keeps of a layer for the backward pass. */
static size_t saved_bytes(const struct weft_shape *shape,
                          const struct weft_g_stage *stage, int32_t k,
                          int64_t n_rows)
{
    return stage->n == 1
             ? weft_layer_saved_bytes(shape, n_rows)
             : weft_part_saved_bytes(shape, stage->member[k].blocks, n_rows);
}

size_t weft_g_held_bytes(const struct weft_shape *shape,
                         const struct weft_g_layout *home, int32_t s,
                         int64_t n_rows)
{
    struct weft_g_stage stage = stage_or_none(home, 0, s);
    size_t x = (size_t) (n_rows * shape->hidden) * sizeof(float), sum = 0;
    for (int32_t q = 0; q < stage.n_places; q++)
        sum += (size_t) kept_rows(home, 0, s, q) * x;
    for (int32_t k = 0; k < stage.n && !home->plan.recompute; k++)
        sum += (size_t) (stage.end - stage.first)
             * saved_bytes(shape, &stage, k, n_rows);
    return sum;
}
