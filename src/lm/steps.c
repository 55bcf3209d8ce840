/* SPDX-License-Identifier: Apache-2.0 */
#include "lm/steps.h"

#include <math.h>

#include "base/alloc.h"

/* Tokens; weft profile measures no shorter texts. */
static const double SHORT = 16;

int weft_steps_init(struct weft_costs *costs, const struct weft_shape *shape,
                    const struct weft_g_layout *layout, int32_t n_instances,
                    int32_t n_slots, int32_t longest, struct weft_steps *out,
                    struct weft_err *err)
{
    *out = (struct weft_steps){.n_instances = n_instances,
                               .slots = n_instances * n_slots,
                               .longest = longest};
    out->step = weft_alloc((size_t) out->slots + 1, sizeof *out->step);
    return out->step ? weft_pass_price_create(costs, shape, layout, true,
                                              &out->pass, err)
                     : weft_err_nomem(err, "costs", (size_t) out->slots);
}

void weft_steps_release(struct weft_steps *s)
{
    weft_pass_price_free(s->pass);
    weft_free(s->step);
}

/* Instances of a replica go through its stages at the same time, and have
 * equal shares of the samples. */
static double price(const struct weft_steps *s, int32_t n, double tokens)
{
    int32_t rows = (int32_t) weft_ceil_div(n, s->n_instances);
    int64_t keys = (int64_t) (rows * tokens);
    const struct weft_work_rows work = {rows, rows, keys, keys - rows};
    return weft_pass_price_s(s->pass, &work);
}

const struct weft_step *weft_steps_decode(struct weft_steps *s, int32_t n)
{
    struct weft_step *step = &s->step[n];
    if (!step->priced) {
        double shortest = fmin(SHORT, floor(s->longest / 2));
        double least = price(s, n, shortest);
        step->each_token = (price(s, n, s->longest) - least)
                         / (n * (s->longest - shortest));
        step->each_step = least - n * shortest * step->each_token;
        step->priced = true;
    }
    return step;
}

double weft_steps_s(struct weft_steps *s, const struct weft_work_rows *rows)
{
    int32_t n = rows->n_targets, k = s->n_instances;
    if (n > s->slots)
        return INFINITY;
    if (n == rows->n_rows) {
        const struct weft_step *step = weft_steps_decode(s, n);
        return step->each_step + (double) rows->n_keys * step->each_token;
    }
    const struct weft_work_rows each = {
        (int32_t) weft_ceil_div(rows->n_rows, k),
        (int32_t) weft_ceil_div(n, k), rows->n_keys / k, rows->n_cached / k};
    return weft_pass_price_s(s->pass, &each);
}
