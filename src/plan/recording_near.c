/* SPDX-License-Identifier: Apache-2.0 */
/* Which places are near to each other, and which tasks touch them. */
#include "base/alloc.h"
#include "plan/recording_reach.h"

static void meet(struct weft_rec_reach *x, int32_t a, int32_t b)
{
    if (a < 0 || b < 0)
        return;
    weft_rec_set_bit(weft_rec_reach_near(x, a), (size_t) b);
    weft_rec_set_bit(weft_rec_reach_near(x, b), (size_t) a);
}

/* Fills in the ends of a group's first task. A task that runs uses the tiles
 * of its place, but for a copy. */
static void find_ends(struct weft_rec_reach *x, int64_t k)
{
    const struct weft_recording *r = x->r;
    const struct weft_rec_task *t = &r->task[x->head[k]];
    int32_t *ends = x->ends[k];
    ends[0] = ends[1] = t->kind == WEFT_REC_TASK ? t->place : -1;
    for (int64_t a = t->access; a < t->access + t->n_access; a++) {
        int32_t place = r->tile[r->access[a].tile].place;
        if (ends[0] < 0)
            ends[0] = ends[1] = place;
        else if (place != ends[0])
            ends[1] = place;
    }
}

static bool near_create(struct weft_rec_reach *x)
{
    size_t n = (size_t) x->n_places;
    x->near_words = n / 64 + 1;
    x->near = weft_alloc(n * x->near_words, sizeof *x->near);
    x->ends = weft_alloc((size_t) x->n_groups, sizeof *x->ends);
    x->touch_end = weft_alloc(n + 1, sizeof *x->touch_end);
    x->node_of = weft_alloc((size_t) x->n_groups, sizeof *x->node_of);
    x->seen = weft_alloc((size_t) x->r->n_tasks / 64 + 1, sizeof *x->seen);
    return x->near && x->ends && x->touch_end && x->node_of && x->seen;
}

static void find_near(struct weft_rec_reach *x)
{
    const struct weft_recording *r = x->r;
    for (int32_t p = 0; p < x->n_places; p++)
        for (int32_t q = 0; q < x->n_places; q++)
            if (q == p || !x->large)
                weft_rec_set_bit(weft_rec_reach_near(x, p), (size_t) q);
    for (int64_t k = 0; k < x->n_groups; k++)
        meet(x, x->ends[k][0], x->ends[k][1]);
    for (int64_t t = 0; t < r->n_tasks; t++)
        for (int64_t i = t - r->task[t].member; i < t; i++)
            meet(x, r->task[i].place, r->task[t].place);
}

/* Calls visit with the places of a group's members, or of its ends; they may
 * come twice. */
static void each_place(struct weft_rec_reach *x, int64_t k,
                       void (*visit)(struct weft_rec_reach *x, int32_t place,
                                     int64_t k))
{
    const struct weft_rec_task *t = &x->r->task[x->head[k]];
    const int32_t *ends = x->ends[k];
    for (int i = 0; i < t->n_members; i++)
        visit(x, t[i].place, k);
    if (t->n_members == 0 && ends[0] >= 0)
        visit(x, ends[0], k);
    if (t->n_members == 0 && ends[1] != ends[0])
        visit(x, ends[1], k);
}

static void count_touch(struct weft_rec_reach *x, int32_t place, int64_t k)
{
    (void) k;
    x->touch_end[place]++;
    x->n_touch++;
}

static void add_touch(struct weft_rec_reach *x, int32_t place, int64_t k)
{
    x->touch[x->touch_end[place]++] = (int32_t) k;
}

/* Sorts groups by the places of their ends. */
static bool list_groups(struct weft_rec_reach *x)
{
    int64_t sum = 0;
    for (int64_t k = 0; k < x->n_groups; k++)
        each_place(x, k, count_touch);
    x->touch = weft_alloc((size_t) x->n_touch, sizeof *x->touch);
    if (!x->touch)
        return false;
    for (int32_t p = 0; p < x->n_places; p++) {
        int64_t n = x->touch_end[p];
        x->touch_end[p] = sum;
        sum += n;
    }
    for (int64_t k = 0; k < x->n_groups; k++)
        each_place(x, k, add_touch);
    return true;
}

int weft_rec_reach_find_near(struct weft_rec_reach *x, struct weft_err *err)
{
    bool ok = near_create(x);
    for (int64_t k = 0; k < x->n_groups && ok; k++)
        find_ends(x, k);
    if (ok)
        find_near(x);
    return ok && list_groups(x)
             ? 0
             : weft_err_nomem(err, "the order of tasks",
                              (size_t) x->n_groups * sizeof *x->ends);
}
