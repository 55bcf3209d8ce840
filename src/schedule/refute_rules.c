/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one device says to heads and tails:
 *
 *   order   y goes before x where it must, or where x before y is too late;
 *           x starts when all these can have ended
 *   sets    what cannot end before a set of others has begun starts after
 *           all of them: edge finding (Carlier and Pinson 1989) by a tree of
 *           sets (Vilim 2004)
 *   memory  micro-batches that do not fit together are not held together
 */
#include "schedule/refute.h"

#include <math.h>

/* fmax() is a call. */
static double later(double a, double b)
{
    return a > b ? a : b;
}

/* By rising head; they were nearly so the last time. */
static void sort(const double *head, int32_t *op, int32_t n)
{
    for (int32_t i = 1; i < n; i++) {
        int32_t x = op[i], k = i;
        for (; k > 0 && head[op[k - 1]] > head[x]; k--)
            op[k] = op[k - 1];
        op[k] = x;
    }
}

/* risen: when all that go before have ended; what comes first of them
 * first. */
static void follow_order(struct weft_refute *r, int side, const int32_t *op,
                         int32_t n)
{
    struct weft_refute_job *job = r->job;
    for (int32_t k = 0; k < n; k++) {
        const uint64_t *then = r->first[1 - side]
                             + (size_t) op[k] * r->n_words;
        double latest = job[k].due - job[k].time + r->eps;
        /* Without a branch, which would be a coin's. */
        const double head[2] = {0, job[k].head}, time[2] = {0, job[k].time};
        for (int32_t i = 0; i < n; i++) {
            uint32_t x = job[i].local;
            bool before = (then[x / 64] >> (x % 64) & 1)
                        | ((job[i].head + job[i].time > latest) & (i != k));
            job[i].risen = later(job[i].risen, head[before]) + time[before];
        }
    }
    for (int32_t i = 0; i < n; i++)
        job[i].risen = later(job[i].head, job[i].risen);
}

/* ---- Sets -------------------------------------------------------------- */

/* Of the jobs below a node, by head: the time of those that are in the set,
 * and when they have all ended; the same with one of the others beside them,
 * whichever makes most. */
static struct weft_refute_node join(const struct weft_refute_node *a,
                                    const struct weft_refute_node *b)
{
    struct weft_refute_node c = {
        .time = a->time + b->time,
        .end = later(b->end, a->end + b->time),
        .time1 = a->time1 + b->time,
        .time_of = a->time_of,
        .end1 = b->end1,
        .end_of = b->end_of,
    };
    if (a->time + b->time1 > c.time1) {
        c.time1 = a->time + b->time1;
        c.time_of = b->time_of;
    }
    if (a->end + b->time1 > c.end1) {
        c.end1 = a->end + b->time1;
        c.end_of = b->time_of;
    }
    if (a->end1 + b->time > c.end1) {
        c.end1 = a->end1 + b->time;
        c.end_of = a->end_of;
    }
    return c;
}

enum place { IN_SET, BESIDE, AWAY };

static struct weft_refute_node leaf(const struct weft_refute_job *job,
                                    int32_t i, enum place place)
{
    struct weft_refute_node l = {
        .end = -INFINITY, .end1 = -INFINITY, .time_of = -1, .end_of = -1};
    if (place != AWAY) {
        l.time1 = job[i].time;
        l.end1 = job[i].head + job[i].time;
    }
    if (place == IN_SET) {
        l.time = l.time1;
        l.end = l.end1;
    } else if (place == BESIDE) {
        l.time_of = l.end_of = i;
    }
    return l;
}

/* Leaves are node[size + i]. */
static void put(struct weft_refute *r, int32_t size, int32_t i,
                enum place place)
{
    int32_t k = size + i;
    r->node[k] = leaf(r->job, i, place);
    for (k /= 2; k > 0; k /= 2)
        r->node[k] = join(&r->node[2 * k], &r->node[2 * k + 1]);
}

/* by_due: the last one first. */
static void follow_sets(struct weft_refute *r, const int32_t *by_due,
                        int32_t n)
{
    struct weft_refute_node *root = &r->node[1];
    int32_t size = 1;
    while (size < n)
        size *= 2;
    for (int32_t i = 0; i < size; i++)
        r->node[size + i] = leaf(r->job, i, i < n ? IN_SET : AWAY);
    for (int32_t k = size - 1; k > 0; k--)
        r->node[k] = join(&r->node[2 * k], &r->node[2 * k + 1]);
    for (int32_t k = 0; k < n; k++) {
        int32_t i = r->place[r->local[by_due[k]]];
        double due = r->job[i].due + r->eps;
        while (root->end <= due && root->end1 > due) {
            int32_t late = root->end_of;
            r->job[late].risen = later(r->job[late].risen, root->end);
            put(r, size, late, AWAY);
        }
        if (root->end > due) {
            r->refuted = true;
            return;
        }
        put(r, size, i, BESIDE);
    }
}

/* ---- Memory ------------------------------------------------------------ */

static bool can_precede(const struct weft_refute *r, int32_t x, int32_t y)
{
    const struct weft_jobshop_op *op = r->shop->op;
    return r->head[0][x] + op[x].time
        <= r->makespan - r->head[1][y] - op[y].time + r->eps;
}

/* From the start of `first` on a stage holds too much, to the end of `last`,
 * if that is later; another one likewise. So one of four is: */
static void hold_apart(struct weft_refute *r, int32_t first, int32_t last,
                       int32_t other_first, int32_t other_last)
{
    const int32_t pair[4][2] = {{last, first},
                                {other_last, other_first},
                                {last, other_first},
                                {other_last, first}};
    int n = 0, k = 0;
    for (int i = 0; i < 4; i++)
        if (can_precede(r, pair[i][0], pair[i][1])) {
            n++;
            k = i;
        }
    if (n == 0)
        r->refuted = true;
    if (n != 1)
        return;
    int32_t x = pair[k][0], y = pair[k][1];
    weft_refute_raise(r, 0, y, r->head[0][x] + r->shop->op[x].time);
    weft_refute_raise(r, 1, x, r->head[1][y] + r->shop->op[y].time);
}

static void follow_memory(struct weft_refute *r, int32_t device)
{
    const struct weft_jobshop *shop = r->shop;
    for (int32_t c = r->clash_at[device];
         c < r->clash_at[device + 1] && !r->refuted; c++) {
        const struct weft_refute_clash *k = &r->clash[c];
        const struct weft_jobshop_model_stage *u = &shop->model_stage[k->u];
        const struct weft_jobshop_model_stage *v = &shop->model_stage[k->v];
        const struct weft_jobshop_series *take = &shop->series[u->take];
        const struct weft_jobshop_series *other = &shop->series[v->take];
        for (int32_t i = 0; i + k->a <= take->n; i++)
            for (int32_t j = 0; j + k->b <= other->n; j++)
                hold_apart(
                    r, take->op[i + k->a - 1], shop->series[u->give].op[i],
                    other->op[j + k->b - 1], shop->series[v->give].op[j]);
        r->steps += (int64_t) take->n * other->n;
    }
}

void weft_refute_device(struct weft_refute *r, int32_t device)
{
    int32_t at = r->shop->device_at[device];
    int32_t n = r->shop->device_at[device + 1] - at;
    for (int side = 0; side < 2 && !r->refuted; side++) {
        int32_t *op = r->sorted[side] + at;
        int32_t *by_due = r->sorted[1 - side] + at;
        sort(r->head[side], op, n);
        sort(r->head[1 - side], by_due, n);
        for (int32_t i = 0; i < n; i++) {
            r->place[r->local[op[i]]] = i;
            r->job[i] = (struct weft_refute_job){
                .local = (uint32_t) r->local[op[i]],
                .head = r->head[side][op[i]],
                .time = r->shop->op[op[i]].time,
                .due = r->makespan - r->head[1 - side][op[i]]};
        }
        follow_order(r, side, op, n);
        follow_sets(r, by_due, n);
        for (int32_t i = 0; i < n; i++)
            weft_refute_raise(r, side, op[i], r->job[i].risen);
        r->steps += n * (n + 100);
    }
    if (!r->refuted)
        follow_memory(r, device);
}
