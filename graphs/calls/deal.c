/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/calls/deal.h"

#include "base/alloc.h"
#include "plan/deal.h"
#include "plan/layout.h"

/* Sums over the unit whose samples are index[0], index[1], ... */
static double cost_of(const struct weft_g_deal *d, const int32_t *index)
{
    double cost = 0;
    for (int32_t i = 0; i < d->unit; i++)
        cost += d->cost[index[i]];
    return cost;
}

static int32_t rows_of(const struct weft_g_deal *d, const int32_t *index)
{
    int32_t rows = 0;
    for (int32_t i = 0; i < d->unit; i++)
        rows += d->sample[index[i]].n_total;
    return rows;
}

/* Sorts the samples by group[unit]. */
static void sort(struct weft_g_deal *d, int32_t n_groups,
                 const int32_t *group)
{
    int32_t at = 0;
    for (int32_t g = 0; g < n_groups; g++) {
        d->group_first[g] = at;
        for (int32_t i = 0; i < d->n; i++)
            if (group[i / d->unit] == g)
                d->order[at++] = i;
    }
    d->group_first[n_groups] = at;
}

int weft_g_deal_init(const struct weft_shape *shape, int32_t n_groups,
                     int32_t unit, int32_t n,
                     const struct weft_pack_sample *sample,
                     struct weft_g_deal *out, struct weft_err *err)
{
    size_t count = (size_t) n, groups = (size_t) n_groups;
    unit = unit > 0 ? unit : 1;
    size_t n_units = count / (size_t) unit;
    int32_t *group = weft_alloc(n_units, sizeof *group);
    struct weft_g_deal d = {
        .n = n,
        .unit = unit,
        .sample = sample,
        .order = weft_alloc(count, sizeof *d.order),
        .group_first = weft_alloc(groups + 1, sizeof *d.group_first),
        .cost = weft_alloc(count, sizeof *d.cost),
        .unit_cost = weft_alloc(n_units, sizeof *d.unit_cost),
        .unit_rows = weft_alloc(n_units, sizeof *d.unit_rows)};
    int rc = 0;
    *out = d;
    weft_assert(n % unit == 0);
    if (!group || !d.order || !d.group_first || !d.cost || !d.unit_cost
        || !d.unit_rows)
        rc = weft_err_nomem(err, "a mini-batch", count * sizeof *d.cost);
    for (int32_t i = 0; i < n && !rc; i++) {
        d.order[i] = i;
        d.cost[i] = weft_plan_sample_cost(shape, sample[i].n_total);
    }
    for (int32_t i = 0; i < n && !rc; i += unit)
        d.unit_cost[i / unit] = cost_of(&d, d.order + i);
    if (!rc)
        rc = weft_plan_deal(n / unit, d.unit_cost, n_groups, group, err);
    if (!rc)
        sort(&d, n_groups, group);
    weft_free(group);
    return rc;
}

void weft_g_deal_release(struct weft_g_deal *d)
{
    weft_free(d->order);
    weft_free(d->group_first);
    weft_free(d->cost);
    weft_free(d->unit_cost);
    weft_free(d->unit_rows);
    *d = (struct weft_g_deal){.n = 0};
}

const int32_t *weft_g_deal_group(const struct weft_g_deal *d, int32_t group,
                                 int32_t *n_out)
{
    *n_out = d->group_first[group + 1] - d->group_first[group];
    return d->order + d->group_first[group];
}

int32_t weft_g_deal_cut(struct weft_g_deal *d, int32_t group, int32_t parts,
                        int32_t max_rows, int32_t *first_out)
{
    int32_t n;
    const int32_t *index = weft_g_deal_group(d, group, &n);
    for (int32_t i = 0; i < n; i += d->unit) {
        d->unit_cost[i / d->unit] = cost_of(d, index + i);
        d->unit_rows[i / d->unit] = rows_of(d, index + i);
    }
    if (n == 0)
        return 0;
    n /= d->unit;
    int32_t n_out = parts > 0
                      ? weft_plan_split_cost(n, d->unit_cost, parts,
                                             first_out)
                      : weft_plan_split(n, d->unit_rows, max_rows, first_out);
    for (int32_t k = 0; k <= n_out; k++)
        first_out[k] *= d->unit;
    return n_out;
}
