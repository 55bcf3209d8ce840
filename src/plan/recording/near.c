/* SPDX-License-Identifier: Apache-2.0 */
/* Which places are near to each other, and which tasks touch them. */
#include <string.h>

#include "base/alloc.h"
#include "plan/recording/reach.h"

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
    ends[0] = ends[1] = weft_rec_is_here(t->kind) ? t->place : -1;
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
    x->gang_end = weft_alloc(n + 1, sizeof *x->gang_end);
    x->pair_end = weft_alloc(n + 1, sizeof *x->pair_end);
    x->node_of = weft_alloc((size_t) x->n_groups, sizeof *x->node_of);
    x->seen = weft_alloc((size_t) x->r->n_tasks / 64 + 1, sizeof *x->seen);
    return x->near && x->ends && x->gang_end && x->pair_end && x->node_of
        && x->seen;
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

/* Makes each number the sum of those before it. */
static void sum_up(int64_t *n, int64_t many)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < many; i++) {
        int64_t own = n[i];
        n[i] = sum;
        sum += own;
    }
}

/* Sorts gangs by the places of their members. */
static bool list_gangs(struct weft_rec_reach *x)
{
    const struct weft_rec_task *task = x->r->task;
    for (int64_t k = 0; k < x->n_groups; k++)
        for (int i = 0; i < task[x->head[k]].n_members; i++) {
            x->gang_end[task[x->head[k] + i].place]++;
            x->n_gang++;
        }
    x->gang = weft_alloc((size_t) x->n_gang, sizeof *x->gang);
    if (!x->gang)
        return false;
    sum_up(x->gang_end, x->n_places);
    for (int64_t k = 0; k < x->n_groups; k++)
        for (int i = 0; i < task[x->head[k]].n_members; i++)
            x->gang[x->gang_end[task[x->head[k] + i].place]++] = (int32_t) k;
    return true;
}

/* The lesser end of a group that is none of gangs, or the greater one; -1: it
 * has none. */
static int32_t end_of(const struct weft_rec_reach *x, int64_t k, bool greater)
{
    const int32_t *e = x->ends[k];
    if (x->r->task[x->head[k]].n_members > 0)
        return -1;
    return (e[0] > e[1]) == greater ? e[0] : e[1];
}

/* Sorts n groups by one of their ends; end (n_places) is filled in. */
static void sort_by_end(const struct weft_rec_reach *x, const int32_t *from,
                        int64_t n, bool greater, int32_t *to, int64_t *end)
{
    memset(end, 0, (size_t) x->n_places * sizeof *end);
    for (int64_t i = 0; i < n; i++)
        end[end_of(x, from[i], greater)]++;
    sum_up(end, x->n_places);
    for (int64_t i = 0; i < n; i++)
        to[end[end_of(x, from[i], greater)]++] = from[i];
}

/* Lists where in x->touch each pair of ends begins. */
static bool list_pairs(struct weft_rec_reach *x)
{
    int64_t n = 0, room = 0, i = 0;
    for (int32_t p = 0; p < x->n_places; p++) {
        int64_t first = n, end = x->pair_end[p];
        for (; i < end; i++) {
            int32_t other = end_of(x, x->touch[i], true);
            bool more = n == first || x->pair[n - 1].other != other;
            if (more && n == room) {
                room = room * 2 + 1024;
                void *larger = weft_realloc(x->pair, (size_t) room,
                                            sizeof *x->pair);
                if (!larger)
                    return false;
                x->pair = larger;
            }
            n += more;
            x->pair[n - 1] = (struct weft_rec_pair){other, i + 1};
        }
        x->pair_end[p] = n;
    }
    return true;
}

/* Sorts other groups by their ends. */
static bool list_groups(struct weft_rec_reach *x)
{
    int64_t n = 0;
    int32_t *list = weft_alloc((size_t) x->n_groups, sizeof *list);
    x->touch = weft_alloc((size_t) x->n_groups, sizeof *x->touch);
    for (int64_t k = 0; k < x->n_groups && x->touch && list; k++)
        if (end_of(x, k, false) >= 0)
            x->touch[n++] = (int32_t) k;
    if (x->touch && list) {
        sort_by_end(x, x->touch, n, true, list, x->pair_end);
        sort_by_end(x, list, n, false, x->touch, x->pair_end);
    }
    bool ok = x->touch && list && list_pairs(x);
    weft_free(list);
    return ok;
}

int weft_rec_reach_find_near(struct weft_rec_reach *x, struct weft_err *err)
{
    bool ok = near_create(x);
    for (int64_t k = 0; k < x->n_groups && ok; k++)
        find_ends(x, k);
    if (ok)
        find_near(x);
    return ok && list_gangs(x) && list_groups(x)
             ? 0
             : weft_err_nomem(err, "the order of tasks",
                              (size_t) x->n_groups * sizeof *x->ends);
}
