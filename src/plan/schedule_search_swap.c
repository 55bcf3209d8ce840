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
#include "plan/schedule_shop.h"

int weft_shop_walk_init(struct weft_shop_walk *walk,
                        const struct weft_shop *shop, struct weft_err *err)
{
    size_t n = (size_t) shop->n_ops;
    *walk = (struct weft_shop_walk){.shop = shop};
    walk->before = weft_alloc(n, sizeof(int32_t));
    walk->after = weft_alloc(n, sizeof(int32_t));
    walk->head = weft_alloc(n, sizeof(double));
    walk->tail = weft_alloc(n, sizeof(double));
    walk->held = weft_alloc(n, sizeof(double));
    walk->place = weft_alloc(n, sizeof(int32_t));
    walk->order = weft_alloc(n, sizeof(int32_t));
    walk->last = weft_alloc((size_t) shop->n_devices, sizeof(int32_t));
    walk->dirty = weft_alloc(n / 64 + 1, sizeof(uint64_t));
    walk->mark = weft_alloc(n, sizeof(bool));
    walk->scratch = weft_alloc(n, sizeof(int32_t));
    walk->end = weft_alloc(n, sizeof(int32_t));
    if (walk->before && walk->after && walk->head && walk->tail && walk->held
        && walk->place && walk->order && walk->last && walk->dirty
        && walk->mark && walk->scratch && walk->end) {
        for (int32_t x = 0; x < shop->n_ops; x++)
            if (shop->op[x].device < 0
                && shop->succ_at[x] == shop->succ_at[x + 1])
                walk->end[walk->n_ends++] = x;
        return 0;
    }
    weft_shop_walk_release(walk);
    return weft_err_nomem(err, "a schedule's heads and tails",
                          n * sizeof(double));
}

void weft_shop_walk_release(struct weft_shop_walk *walk)
{
    weft_free(walk->before);
    weft_free(walk->after);
    weft_free(walk->head);
    weft_free(walk->tail);
    weft_free(walk->held);
    weft_free(walk->place);
    weft_free(walk->order);
    weft_free(walk->last);
    weft_free(walk->dirty);
    weft_free(walk->mark);
    weft_free(walk->scratch);
    weft_free(walk->end);
    *walk = (struct weft_shop_walk){0};
}

/* ---- Heads and tails ------------------------------------------------------ */

static double end_of(const struct weft_shop_walk *w, int32_t x)
{
    return w->head[x] + w->shop->op[x].time;
}

static double tail_with(const struct weft_shop_walk *w, int32_t x)
{
    return w->tail[x] + w->shop->op[x].time;
}

/* From the predecessors by arcs alone. */
static double head_by_arcs(const struct weft_shop_walk *w, int32_t x)
{
    const struct weft_shop *shop = w->shop;
    double head = 0;
    for (int32_t k = shop->pred_at[x]; k < shop->pred_at[x + 1]; k++) {
        double at = end_of(w, shop->pred[k].op) + shop->pred[k].lag;
        head = at > head ? at : head;
    }
    return head;
}

static double tail_by_arcs(const struct weft_shop_walk *w, int32_t x)
{
    const struct weft_shop *shop = w->shop;
    double tail = 0;
    for (int32_t k = shop->succ_at[x]; k < shop->succ_at[x + 1]; k++) {
        double at = tail_with(w, shop->succ[k].op) + shop->succ[k].lag;
        tail = at > tail ? at : tail;
    }
    return tail;
}

static double head_of(const struct weft_shop_walk *w, int32_t x)
{
    double head = head_by_arcs(w, x);
    double at = w->before[x] >= 0 ? end_of(w, w->before[x]) : 0;
    return at > head ? at : head;
}

static double tail_of(const struct weft_shop_walk *w, int32_t x)
{
    double tail = tail_by_arcs(w, x);
    double at = w->after[x] >= 0 ? tail_with(w, w->after[x]) : 0;
    return at > tail ? at : tail;
}

/* Everything of a model comes before its last optimizer step. */
static double makespan_of(const struct weft_shop_walk *w)
{
    double makespan = 0;
    for (int32_t k = 0; k < w->n_ends; k++)
        makespan = end_of(w, w->end[k]) > makespan ? end_of(w, w->end[k])
                                                   : makespan;
    return makespan;
}

/* ---- Loading and storing -------------------------------------------------- */

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

/* A topological order by start time (ties, that operations without a time
 * make, by a topological order): windows of swaps are short in it. */
static bool sort_by_start(struct weft_shop_walk *w)
{
    const struct weft_shop *shop = w->shop;
    int32_t n = shop->n_ops, n_order = 0;
    struct timed *t = weft_alloc((size_t) n, sizeof *t);
    int32_t *missing = w->scratch;
    if (!t)
        return false;
    for (int32_t x = 0; x < n; x++) {
        missing[x] = shop->pred_at[x + 1] - shop->pred_at[x]
                   + (w->before[x] >= 0);
        if (missing[x] == 0)
            w->order[n_order++] = x;
    }
    for (int32_t i = 0; i < n_order; i++) {
        int32_t x = w->order[i];
        w->head[x] = head_of(w, x);
        t[i] = (struct timed){w->head[x], i, x};
        for (int32_t k = shop->succ_at[x]; k < shop->succ_at[x + 1]; k++)
            if (--missing[shop->succ[k].op] == 0)
                w->order[n_order++] = shop->succ[k].op;
        if (w->after[x] >= 0 && --missing[w->after[x]] == 0)
            w->order[n_order++] = w->after[x];
    }
    if (n_order == n) {
        qsort(t, (size_t) n, sizeof *t, by_start);
        for (int32_t i = 0; i < n; i++) {
            w->order[i] = t[i].op;
            w->place[t[i].op] = i;
        }
    }
    weft_free(t);
    return n_order == n;
}

bool weft_shop_walk_load(struct weft_shop_walk *w, const int32_t *sequence,
                         double capacity)
{
    const struct weft_shop *shop = w->shop;
    w->capacity = capacity > 0 ? capacity * (1 + WEFT_SHOP_SLACK) : INFINITY;
    for (int32_t x = 0; x < shop->n_ops; x++)
        w->before[x] = w->after[x] = -1;
    for (int32_t d = 0; d < shop->n_devices; d++) {
        double held = 0;
        int32_t u = -1;
        for (int32_t k = shop->device_at[d]; k < shop->device_at[d + 1];
             k++) {
            int32_t x = sequence[k];
            w->before[x] = u;
            if (u >= 0)
                w->after[u] = x;
            w->held[x] = held += shop->op[x].hold;
            u = x;
        }
        w->last[d] = u;
    }
    if (!sort_by_start(w))
        return false;
    for (int32_t i = shop->n_ops; i-- > 0;)
        w->tail[w->order[i]] = tail_of(w, w->order[i]);
    w->makespan = makespan_of(w);
    return true;
}

void weft_shop_walk_store(const struct weft_shop_walk *w,
                          int32_t *sequence_out)
{
    for (int32_t d = 0; d < w->shop->n_devices; d++) {
        int32_t k = w->shop->device_at[d + 1];
        for (int32_t x = w->last[d]; x >= 0; x = w->before[x])
            sequence_out[--k] = x;
    }
}

/* ---- Swapping ------------------------------------------------------------- */

bool weft_shop_walk_may_swap(const struct weft_shop_walk *w, int32_t u,
                             int32_t v)
{
    const struct weft_shop_op *x = &w->shop->op[u], *y = &w->shop->op[v];
    if (x->lane == y->lane && w->shop->lane[x->lane].fixed)
        return false;
    return w->held[u] - x->hold + y->hold <= w->capacity;
}

double weft_shop_walk_estimate(const struct weft_shop_walk *w, int32_t u,
                               int32_t v)
{
    const struct weft_shop_op *op = w->shop->op;
    int32_t before = w->before[u], after = w->after[v];
    double head_v = head_by_arcs(w, v), head_u = head_by_arcs(w, u);
    double tail_u = tail_by_arcs(w, u), tail_v = tail_by_arcs(w, v), t;
    if (before >= 0 && (t = end_of(w, before)) > head_v)
        head_v = t;
    if ((t = head_v + op[v].time) > head_u)
        head_u = t;
    if (after >= 0 && (t = tail_with(w, after)) > tail_u)
        tail_u = t;
    if ((t = tail_u + op[u].time) > tail_v)
        tail_v = t;
    double by_v = head_v + op[v].time + tail_v;
    double by_u = head_u + op[u].time + tail_u;
    return by_v > by_u ? by_v : by_u;
}

/* Puts v, and what it waits for, before u in the topological order. */
static bool reorder(struct weft_shop_walk *w, int32_t u, int32_t v)
{
    const struct weft_shop *shop = w->shop;
    int32_t first = w->place[u], last = w->place[v], n_kept = 0;
    bool cycle = false;
    w->mark[v] = true;
    for (int32_t i = last; i > first; i--) {
        int32_t x = w->order[i];
        if (!w->mark[x]) {
            w->scratch[n_kept++] = x; /* later ones first */
            continue;
        }
        for (int32_t k = shop->pred_at[x]; k < shop->pred_at[x + 1]; k++)
            if (w->place[shop->pred[k].op] >= first)
                w->mark[shop->pred[k].op] = true;
        if (w->before[x] >= 0 && x != v && w->place[w->before[x]] >= first)
            w->mark[w->before[x]] = true;
    }
    cycle = w->mark[u];
    int32_t to = first;
    for (int32_t i = first + 1; i <= last && !cycle; i++)
        if (w->mark[w->order[i]]) {
            w->order[to] = w->order[i];
            w->place[w->order[to]] = to;
            to++;
        }
    if (!cycle) {
        w->order[to] = u;
        w->place[u] = to++;
        while (n_kept > 0) {
            int32_t x = w->scratch[--n_kept];
            w->order[to] = x;
            w->place[x] = to++;
        }
    }
    for (int32_t i = first; i <= last; i++)
        w->mark[w->order[i]] = false;
    return !cycle;
}

static void touch(struct weft_shop_walk *w, int32_t x)
{
    uint64_t *word = &w->dirty[w->place[x] / 64];
    uint64_t bit = UINT64_C(1) << (w->place[x] % 64);
    w->n_dirty += (*word & bit) == 0;
    *word |= bit;
}

static void update_heads(struct weft_shop_walk *w, int32_t first)
{
    const struct weft_shop *shop = w->shop;
    for (int32_t word = first / 64; w->n_dirty > 0; word++)
        while (w->dirty[word]) {
            int32_t bit = WEFT_LOWEST_BIT(w->dirty[word]);
            int32_t x = w->order[word * 64 + bit];
            w->dirty[word] &= w->dirty[word] - 1;
            double head = head_of(w, x);
            w->n_dirty--;
            w->n_updates++;
            if (head == w->head[x])
                continue;
            w->head[x] = head;
            for (int32_t k = shop->succ_at[x]; k < shop->succ_at[x + 1]; k++)
                touch(w, shop->succ[k].op);
            if (w->after[x] >= 0)
                touch(w, w->after[x]);
        }
}

static void update_tails(struct weft_shop_walk *w, int32_t last)
{
    const struct weft_shop *shop = w->shop;
    for (int32_t word = last / 64; w->n_dirty > 0; word--)
        while (w->dirty[word]) {
            int32_t bit = WEFT_HIGHEST_BIT(w->dirty[word]);
            int32_t x = w->order[word * 64 + bit];
            w->dirty[word] &= ~(UINT64_C(1) << bit);
            double tail = tail_of(w, x);
            w->n_dirty--;
            w->n_updates++;
            if (tail == w->tail[x])
                continue;
            w->tail[x] = tail;
            for (int32_t k = shop->pred_at[x]; k < shop->pred_at[x + 1]; k++)
                touch(w, shop->pred[k].op);
            if (w->before[x] >= 0)
                touch(w, w->before[x]);
        }
}

bool weft_shop_walk_swap(struct weft_shop_walk *w, int32_t u, int32_t v)
{
    const struct weft_shop_op *op = w->shop->op;
    int32_t first = w->place[u], last = w->place[v];
    int32_t before = w->before[u], after = w->after[v];
    if (!reorder(w, u, v))
        return false;
    w->before[v] = before;
    w->after[v] = u;
    w->before[u] = v;
    w->after[u] = after;
    if (before >= 0)
        w->after[before] = v;
    if (after >= 0)
        w->before[after] = u;
    else
        w->last[op[u].device] = u;
    w->held[v] = (before >= 0 ? w->held[before] : 0) + op[v].hold;
    w->held[u] = w->held[v] + op[u].hold;
    touch(w, u);
    touch(w, v);
    if (after >= 0)
        touch(w, after);
    update_heads(w, first);
    touch(w, u);
    touch(w, v);
    if (before >= 0)
        touch(w, before);
    update_tails(w, last);
    w->makespan = makespan_of(w);
    return true;
}
