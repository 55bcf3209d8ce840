/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sequence under swaps of neighbours. Heads and tails of what a swap changes
 * are computed again in a topological order that is kept up to date: only the
 * operations between the two move in it.
 *
 *     order:  ... u a b v c ...   v goes before u, and b, which v waits for,
 *             ... b v u a c ...   goes with it
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "schedule/search/search.h"

/* What no swap changes. */
static void set_node(struct weft_jobshop_node *node,
                     const struct weft_jobshop *shop, int32_t x)
{
    int32_t p = shop->pred_at[x], n_preds = shop->pred_at[x + 1] - p;
    int32_t s = shop->succ_at[x], n_succs = shop->succ_at[x + 1] - s;
    node->time = shop->op[x].time;
    node->pred = n_preds > 0 ? shop->pred[p].op : -1;
    node->pred_lag = n_preds > 0 ? shop->pred[p].lag : 0;
    node->succ = n_succs > 0 ? shop->succ[s].op : -1;
    node->succ_lag = n_succs > 0 ? shop->succ[s].lag : 0;
    node->more_preds = n_preds > 1;
    node->more_succs = n_succs > 1;
}

int weft_jobshop_walk_init(struct weft_jobshop_walk *walk,
                           const struct weft_jobshop *shop,
                           struct weft_err *err)
{
    size_t n = (size_t) shop->n_ops;
    struct weft_jobshop_node *node = weft_alloc_aligned(n + 1, sizeof *node);
    *walk = (struct weft_jobshop_walk){.shop = shop};
    walk->node = node ? node + 1 : NULL;
    walk->held = weft_alloc(n, sizeof(double));
    walk->over = weft_alloc(n, sizeof(int32_t));
    walk->over_at = weft_alloc(n, sizeof(int32_t));
    walk->order = weft_alloc(n, sizeof(int32_t));
    walk->last = weft_alloc((size_t) shop->n_devices, sizeof(int32_t));
    walk->dirty = weft_alloc(n / 64 + 1, sizeof(uint64_t));
    walk->mark = weft_alloc(n, sizeof(bool));
    walk->scratch = weft_alloc(n, sizeof(int32_t));
    walk->end = weft_alloc(n, sizeof(int32_t));
    if (walk->node && walk->held && walk->over && walk->over_at && walk->order
        && walk->last && walk->dirty && walk->mark && walk->scratch
        && walk->end) {
        walk->least_hold = INFINITY;
        for (int32_t x = 0; x < shop->n_ops; x++) {
            set_node(&walk->node[x], shop, x);
            if (shop->op[x].hold > 0)
                walk->least_hold = fmin(walk->least_hold, shop->op[x].hold);
            if (shop->op[x].device < 0 && walk->node[x].succ < 0)
                walk->end[walk->n_ends++] = x;
        }
        return 0;
    }
    weft_jobshop_walk_release(walk);
    return weft_err_nomem(err, "a schedule's heads and tails",
                          n * sizeof *node);
}

void weft_jobshop_walk_release(struct weft_jobshop_walk *walk)
{
    weft_free(walk->node ? walk->node - 1 : NULL);
    weft_free(walk->held);
    weft_free(walk->over);
    weft_free(walk->over_at);
    weft_free(walk->order);
    weft_free(walk->last);
    weft_free(walk->dirty);
    weft_free(walk->mark);
    weft_free(walk->scratch);
    weft_free(walk->end);
    *walk = (struct weft_jobshop_walk){0};
}

/* ---- Heads and tails --------------------------------------------------- */

static double later(double a, double b)
{
    return a > b ? a : b;
}

static double end_of(const struct weft_jobshop_walk *w, int32_t x)
{
    return w->node[x].head + w->node[x].time;
}

static double tail_with(const struct weft_jobshop_walk *w, int32_t x)
{
    return w->node[x].tail + w->node[x].time;
}

/* The head that follows from predecessors by arcs alone. */
static double head_by_arcs(const struct weft_jobshop_walk *w, int32_t x)
{
    const struct weft_jobshop_node *node = &w->node[x];
    const struct weft_jobshop *shop = w->shop;
    double head = end_of(w, node->pred) + node->pred_lag;
    if (node->more_preds)
        for (int32_t k = shop->pred_at[x] + 1; k < shop->pred_at[x + 1]; k++)
            head = later(head,
                         end_of(w, shop->pred[k].op) + shop->pred[k].lag);
    return head;
}

static double tail_by_arcs(const struct weft_jobshop_walk *w, int32_t x)
{
    const struct weft_jobshop_node *node = &w->node[x];
    const struct weft_jobshop *shop = w->shop;
    double tail = tail_with(w, node->succ) + node->succ_lag;
    if (node->more_succs)
        for (int32_t k = shop->succ_at[x] + 1; k < shop->succ_at[x + 1]; k++)
            tail = later(tail,
                         tail_with(w, shop->succ[k].op) + shop->succ[k].lag);
    return tail;
}

static double head_of(const struct weft_jobshop_walk *w, int32_t x)
{
    return later(head_by_arcs(w, x), end_of(w, w->node[x].before));
}

static double tail_of(const struct weft_jobshop_walk *w, int32_t x)
{
    return later(tail_by_arcs(w, x), tail_with(w, w->node[x].after));
}

/* The makespan is the end of the last optimizer step, since all passes of a
 * model come before it. */
static double makespan_of(const struct weft_jobshop_walk *w)
{
    double makespan = 0;
    for (int32_t k = 0; k < w->n_ends; k++)
        makespan = later(makespan, end_of(w, w->end[k]));
    return makespan;
}

/* ---- Order ------------------------------------------------------------- */

struct timed {
    double start;
    int32_t place, op;
};

static int by_start(const void *a, const void *b)
{
    const struct timed *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* A topological order by start time, in which the operations that a swap moves
 * are close together. Operations without duration start at the same time;
 * another topological order decides among them. */
static bool sort_by_start(struct weft_jobshop_walk *w)
{
    const struct weft_jobshop *shop = w->shop;
    int32_t n = shop->n_ops, n_order = 0;
    struct timed *t = weft_alloc((size_t) n, sizeof *t);
    int32_t *missing = w->scratch;
    if (!t)
        return false;
    for (int32_t x = 0; x < n; x++) {
        missing[x] = shop->pred_at[x + 1] - shop->pred_at[x]
                   + (w->node[x].before >= 0);
        if (missing[x] == 0)
            w->order[n_order++] = x;
    }
    for (int32_t i = 0; i < n_order; i++) {
        int32_t x = w->order[i];
        w->node[x].head = head_of(w, x);
        t[i] = (struct timed){w->node[x].head, i, x};
        for (int32_t k = shop->succ_at[x]; k < shop->succ_at[x + 1]; k++)
            if (--missing[shop->succ[k].op] == 0)
                w->order[n_order++] = shop->succ[k].op;
        if (w->node[x].after >= 0 && --missing[w->node[x].after] == 0)
            w->order[n_order++] = w->node[x].after;
    }
    if (n_order == n) {
        qsort(t, (size_t) n, sizeof *t, by_start);
        for (int32_t i = 0; i < n; i++) {
            w->order[i] = t[i].op;
            w->node[t[i].op].place = i;
        }
    }
    weft_free(t);
    return n_order == n;
}

/* ---- What is held too much --------------------------------------------- */

/* The excess is rounded up to the smallest activation, since at least that
 * must go. */
static double over(const struct weft_jobshop_walk *w, double held)
{
    return held > w->capacity ? fmax(held - w->capacity, w->least_hold) : 0;
}

/* Sets what is held after x, and updates the excess. */
static void set_held(struct weft_jobshop_walk *w, int32_t x, double held)
{
    bool was = w->over_at[x] >= 0, is = held > w->capacity;
    if (was)
        w->excess -= over(w, w->held[x]);
    if (is)
        w->excess += over(w, held);
    w->held[x] = held;
    if (is == was)
        return;
    if (is) {
        w->over_at[x] = w->n_over;
        w->over[w->n_over++] = x;
        return;
    }
    int32_t last = w->over[--w->n_over];
    w->over[w->over_at[x]] = last;
    w->over_at[last] = w->over_at[x];
    w->over_at[x] = -1;
    if (w->n_over == 0)
        w->excess = 0; /* rounding */
}

double weft_jobshop_walk_excess(const struct weft_jobshop_walk *w, int32_t u,
                                int32_t v)
{
    const struct weft_jobshop_op *op = w->shop->op;
    double held = w->held[u] - op[u].hold + op[v].hold;
    return over(w, held) - over(w, w->held[u]);
}

/* ---- Loading and storing ----------------------------------------------- */

bool weft_jobshop_walk_load(struct weft_jobshop_walk *w,
                            const int32_t *sequence, double capacity,
                            bool strict)
{
    const struct weft_jobshop *shop = w->shop;
    w->capacity = capacity > 0 ? capacity * (1 + WEFT_JOBSHOP_SLACK)
                               : INFINITY;
    w->strict = strict;
    w->excess = 0;
    w->n_over = 0;
    for (int32_t x = 0; x < shop->n_ops; x++)
        w->node[x].before = w->node[x].after = w->over_at[x] = -1;
    for (int32_t d = 0; d < shop->n_devices; d++) {
        double held = 0;
        int32_t u = -1;
        for (int32_t k = shop->device_at[d]; k < shop->device_at[d + 1];
             k++) {
            int32_t x = sequence[k];
            w->node[x].before = u;
            if (u >= 0)
                w->node[u].after = x;
            held += shop->op[x].hold;
            set_held(w, x, held);
            u = x;
        }
        w->last[d] = u;
    }
    if (!sort_by_start(w))
        return false;
    for (int32_t i = shop->n_ops; i-- > 0;)
        w->node[w->order[i]].tail = tail_of(w, w->order[i]);
    w->makespan = makespan_of(w);
    return true;
}

void weft_jobshop_walk_store(const struct weft_jobshop_walk *w,
                             int32_t *sequence_out)
{
    for (int32_t d = 0; d < w->shop->n_devices; d++) {
        int32_t k = w->shop->device_at[d + 1];
        for (int32_t x = w->last[d]; x >= 0; x = w->node[x].before)
            sequence_out[--k] = x;
    }
}

/* ---- Swapping ---------------------------------------------------------- */

bool weft_jobshop_walk_may_swap(const struct weft_jobshop_walk *w, int32_t u,
                                int32_t v)
{
    const struct weft_jobshop_op *x = &w->shop->op[u], *y = &w->shop->op[v];
    if (x->series == y->series && w->shop->series[x->series].fixed)
        return false;
    return !w->strict || w->held[u] - x->hold + y->hold <= w->capacity;
}

double weft_jobshop_walk_estimate(const struct weft_jobshop_walk *w,
                                  int32_t u, int32_t v)
{
    double time_u = w->node[u].time, time_v = w->node[v].time;
    double head_v = later(head_by_arcs(w, v), end_of(w, w->node[u].before));
    double head_u = later(head_by_arcs(w, u), head_v + time_v);
    double tail_u = later(tail_by_arcs(w, u), tail_with(w, w->node[v].after));
    double tail_v = later(tail_by_arcs(w, v), tail_u + time_u);
    return later(head_v + time_v + tail_v, head_u + time_u + tail_u);
}

static void put(struct weft_jobshop_walk *w, int32_t place, int32_t x)
{
    w->order[place] = x;
    w->node[x].place = place;
}

/* Puts v, and what it waits for, before u in the topological order. */
static bool reorder_all(struct weft_jobshop_walk *w, int32_t u, int32_t v)
{
    const struct weft_jobshop *shop = w->shop;
    const struct weft_jobshop_node *node = w->node;
    int32_t first = node[u].place, last = node[v].place, n_kept = 0;
    w->mark[v] = true;
    for (int32_t i = last; i > first; i--) {
        int32_t x = w->order[i];
        if (!w->mark[x]) {
            w->scratch[n_kept++] = x; /* later ones first */
            continue;
        }
        for (int32_t k = shop->pred_at[x]; k < shop->pred_at[x + 1]; k++)
            if (node[shop->pred[k].op].place >= first)
                w->mark[shop->pred[k].op] = true;
        if (node[x].before >= 0 && x != v
            && node[node[x].before].place >= first)
            w->mark[node[x].before] = true;
    }
    bool cycle = w->mark[u];
    int32_t to = first;
    for (int32_t i = first; i <= last; i++) {
        int32_t x = w->order[i];
        if (w->mark[x] && !cycle)
            put(w, to++, x);
        w->mark[x] = false;
    }
    if (cycle)
        return false;
    put(w, to++, u);
    while (n_kept > 0)
        put(w, to++, w->scratch[--n_kept]);
    return true;
}

/* The same with fewer moves, for the case that all operations v waits for come
 * before all that wait for u: v moves behind the last of the former, u before
 * the first of the latter. */
static bool reorder(struct weft_jobshop_walk *w, int32_t u, int32_t v)
{
    const struct weft_jobshop *shop = w->shop;
    int32_t first = w->node[u].place, last = w->node[v].place;
    int32_t to_v = first, to_u = last;
    for (int32_t k = shop->pred_at[v]; k < shop->pred_at[v + 1]; k++) {
        if (shop->pred[k].op == u)
            return false;
        to_v = weft_max32(to_v, w->node[shop->pred[k].op].place);
    }
    for (int32_t k = shop->succ_at[u]; k < shop->succ_at[u + 1]; k++)
        to_u = weft_min32(to_u, w->node[shop->succ[k].op].place);
    if (to_v == to_u)
        return false; /* v waits for an operation that waits for u: a cycle */
    if (to_v > to_u)
        return reorder_all(w, u, v);
    for (int32_t i = first; i < to_v; i++)
        put(w, i, w->order[i + 1]);
    for (int32_t i = last; i > to_u; i--)
        put(w, i, w->order[i - 1]);
    put(w, to_v, v);
    put(w, to_u, u);
    return true;
}

/* Marks x to be computed again and returns its place. */
static int32_t touch(struct weft_jobshop_walk *w, int32_t x)
{
    int32_t place = w->node[x].place;
    w->dirty[place / 64] |= UINT64_C(1) << (place % 64);
    return place;
}

/* A predecessor lets x start at `now` instead of `was`. Marks x if that
 * predecessor determined its start, or now would. Returns the furthest place
 * that was marked. */
static int32_t tell_head(struct weft_jobshop_walk *w, int32_t x, double was,
                         double now, int32_t far)
{
    double head = w->node[x].head;
    if (x >= 0 && ((now > head) | (was == head)))
        far = weft_max32(far, touch(w, x));
    return far;
}

static int32_t tell_tail(struct weft_jobshop_walk *w, int32_t x, double was,
                         double now, int32_t far)
{
    double tail = w->node[x].tail;
    if (x >= 0 && ((now > tail) | (was == tail)))
        far = weft_min32(far, touch(w, x));
    return far;
}

/* Computes the marked operations from place `first` to `far`, and those that
 * move with them. */
static void update_heads(struct weft_jobshop_walk *w, int32_t first,
                         int32_t far)
{
    const struct weft_jobshop *shop = w->shop;
    for (int32_t word = first / 64; word <= far / 64; word++)
        while (w->dirty[word]) {
            int32_t x = w->order[word * 64 + WEFT_LOWEST_BIT(w->dirty[word])];
            struct weft_jobshop_node *n = &w->node[x];
            double head = head_of(w, x), was = n->head + n->time;
            w->dirty[word] &= w->dirty[word] - 1;
            w->n_updates++;
            if (head == n->head)
                continue;
            double now = head + n->time;
            n->head = head;
            far = tell_head(w, n->after, was, now, far);
            far = tell_head(w, n->succ, was + n->succ_lag, now + n->succ_lag,
                            far);
            for (int32_t k = shop->succ_at[x] + 1;
                 n->more_succs && k < shop->succ_at[x + 1]; k++)
                far = weft_max32(far, touch(w, shop->succ[k].op));
        }
}

static void update_tails(struct weft_jobshop_walk *w, int32_t last,
                         int32_t far)
{
    const struct weft_jobshop *shop = w->shop;
    for (int32_t word = last / 64; word >= far / 64; word--)
        while (w->dirty[word]) {
            int32_t bit = WEFT_HIGHEST_BIT(w->dirty[word]);
            int32_t x = w->order[word * 64 + bit];
            struct weft_jobshop_node *n = &w->node[x];
            double tail = tail_of(w, x), was = n->tail + n->time;
            w->dirty[word] &= ~(UINT64_C(1) << bit);
            w->n_updates++;
            if (tail == n->tail)
                continue;
            double now = tail + n->time;
            n->tail = tail;
            far = tell_tail(w, n->before, was, now, far);
            far = tell_tail(w, n->pred, was + n->pred_lag, now + n->pred_lag,
                            far);
            for (int32_t k = shop->pred_at[x] + 1;
                 n->more_preds && k < shop->pred_at[x + 1]; k++)
                far = weft_min32(far, touch(w, shop->pred[k].op));
        }
}

bool weft_jobshop_walk_swap(struct weft_jobshop_walk *w, int32_t u, int32_t v)
{
    const struct weft_jobshop_op *op = w->shop->op;
    struct weft_jobshop_node *node = w->node;
    int32_t first = node[u].place, last = node[v].place;
    int32_t before = node[u].before, after = node[v].after, far;
    if (!reorder(w, u, v))
        return false;
    node[v].before = before;
    node[v].after = u;
    node[u].before = v;
    node[u].after = after;
    if (before >= 0)
        node[before].after = v;
    if (after >= 0)
        node[after].before = u;
    else
        w->last[op[u].device] = u;
    set_held(w, v, (before >= 0 ? w->held[before] : 0) + op[v].hold);
    set_held(w, u, w->held[v] + op[u].hold);
    touch(w, u);
    touch(w, v);
    far = after < 0 ? last : weft_max32(last, touch(w, after));
    update_heads(w, first, far);
    touch(w, u);
    touch(w, v);
    far = before < 0 ? first : weft_min32(first, touch(w, before));
    update_tails(w, last, far);
    w->makespan = makespan_of(w);
    return true;
}
