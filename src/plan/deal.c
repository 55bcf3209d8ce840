/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/deal.h"

#include <stdlib.h>
#include <string.h>

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

/* Deals n items, costliest first, to the groups from `first` on: to the two
 * halves of the groups, and on within each. A half has room for its share of
 * the items, so how many a group gets depends on n and n_groups alone. */
static void halve(struct item *item, int32_t n, int32_t first,
                  int32_t n_groups, struct item *spare, int32_t *group_out)
{
    if (n_groups == 1) {
        for (int32_t i = 0; i < n; i++)
            group_out[item[i].index] = first;
        return;
    }
    int32_t groups[2] = {(n_groups + 1) / 2, n_groups / 2};
    int32_t left = (int32_t) weft_ceil_div((int64_t) n * groups[0], n_groups);
    int32_t room[2] = {left, n - left}, count[2] = {0, 0};
    double load[2] = {0, 0};
    for (int32_t i = 0; i < n; i++) {
        double ahead = load[0] * groups[1] - load[1] * groups[0];
        int half = ahead > 0 || (ahead == 0 && room[1] < room[0]);
        if (count[half] == room[half])
            half = !half;
        load[half] += item[i].cost;
        (half ? spare : item)[count[half]++] = item[i];
    }
    memcpy(item + left, spare, (size_t) room[1] * sizeof *item);
    halve(item, left, first, groups[0], spare, group_out);
    halve(item + left, room[1], first + groups[0], groups[1], spare,
          group_out);
}

int weft_plan_deal(int32_t n, const double *cost, int32_t n_groups,
                   int32_t *group_out, struct weft_err *err)
{
    struct item *item = weft_alloc(2 * (size_t) n, sizeof *item);
    if (!item)
        return weft_err_nomem(err, "dealing samples",
                              2 * (size_t) n * sizeof *item);
    for (int32_t i = 0; i < n; i++)
        item[i] = (struct item){cost[i], i};
    qsort(item, (size_t) n, sizeof *item, by_cost);
    halve(item, n, 0, n_groups, item + n, group_out);
    weft_free(item);
    return 0;
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
