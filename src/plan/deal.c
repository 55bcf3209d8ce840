/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/deal.h"

#include <stdlib.h>

#include "base/alloc.h"

/* Parameters that a token meets. */
static double per_token(const struct weft_shape *s)
{
    return (double) weft_shape_n_params(s)
         - (s->tied ? 0 : (double) s->vocab * s->hidden);
}

double weft_plan_sample_cost(const struct weft_shape *s, int32_t len)
{
    double attention = (double) s->n_layers * s->n_heads * s->head_dim;
    return per_token(s) * len + attention * len * len;
}

double weft_plan_stage_share(const struct weft_shape *s, int32_t n_layers,
                             bool head)
{
    struct weft_shape none = *s;
    none.n_layers = 0;
    double all = per_token(s), rest = per_token(&none);
    return ((all - rest) * n_layers / s->n_layers + (head ? rest : 0)) / all;
}

struct item {
    double cost;
    int32_t index;
};

static int by_cost(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->cost != y->cost)
        return x->cost > y->cost ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

int weft_plan_deal(int32_t n, const double *cost, int32_t n_groups,
                   int32_t *group_out, struct weft_err *err)
{
    struct item *item = weft_alloc((size_t) n, sizeof *item);
    double *load = weft_alloc((size_t) n_groups, sizeof *load);
    int32_t *count = weft_alloc((size_t) n_groups, sizeof *count);
    int32_t most = (int32_t) weft_ceil_div(n, n_groups);
    int rc = 0;

    if (!item || !load || !count) {
        rc = weft_err_nomem(err, "dealing samples",
                            (size_t) n * sizeof *item);
        goto out;
    }
    for (int32_t i = 0; i < n; i++)
        item[i] = (struct item){cost[i], i};
    qsort(item, (size_t) n, sizeof *item, by_cost);
    for (int32_t i = 0; i < n; i++) {
        int32_t best = -1;
        for (int32_t g = 0; g < n_groups; g++)
            if (count[g] < most && (best < 0 || load[g] < load[best]))
                best = g;
        group_out[item[i].index] = best;
        load[best] += item[i].cost;
        count[best]++;
    }
out:
    weft_free(item);
    weft_free(load);
    weft_free(count);
    return rc;
}

int32_t weft_plan_split(int32_t n, const int32_t *n_rows, int32_t max_rows,
                        int32_t *first_out)
{
    int32_t n_parts = 0, rows = 0;
    for (int32_t i = 0; i < n; i++) {
        if (i == 0 || rows + n_rows[i] > max_rows) {
            first_out[n_parts++] = i;
            rows = 0;
        }
        rows += n_rows[i];
    }
    first_out[n_parts] = n;
    return n_parts;
}
