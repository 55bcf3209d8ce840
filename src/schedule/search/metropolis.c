/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metropolis sampling of schedules that hold less memory within a deadline. A
 * move swaps two neighbours on a device. A swap changes how much is held at
 * one place only, so the new excess is known before the swap is done, and so
 * is the makespan if it grows. On the way the schedule may hold too much, or
 * it could hardly move at all; it may also be late where being late has a
 * price.
 */
#include <math.h>

#include "schedule/search/search.h"

enum { MOST_STEPS = 16 }; /* of two bits */

void weft_jobshop_metropolis_begin(struct weft_jobshop_metropolis *s,
                                   struct weft_jobshop_walk *walk,
                                   double deadline, double price)
{
    const struct weft_jobshop *shop = walk->shop;
    *s = (struct weft_jobshop_metropolis){
        .walk = walk,
        .deadline = deadline * (1 + WEFT_JOBSHOP_SLACK),
        .price = price};
    for (int32_t u = 0; u < shop->n_model_stages; u++)
        s->most = fmax(s->most, shop->model_stage[u].most);
}

bool weft_jobshop_metropolis_done(const struct weft_jobshop_metropolis *s)
{
    return s->walk->n_over == 0 && s->walk->makespan <= s->deadline;
}

/* What the swap adds to the makespan beyond the deadline. */
static double later(const struct weft_jobshop_metropolis *s, int32_t u,
                    int32_t v)
{
    const struct weft_jobshop_walk *w = s->walk;
    double late = weft_jobshop_walk_estimate(w, u, v)
                - fmax(s->deadline, w->makespan);
    return late > 0 ? late : 0;
}

/* Draws the place of a swap: in the window, or anywhere, or a few operations
 * away from a place that holds too much. */
static int32_t draw(const struct weft_jobshop_metropolis *s,
                    struct weft_jobshop_rng *rng)
{
    const struct weft_jobshop_walk *w = s->walk;
    if (s->window)
        return s->window[weft_jobshop_below(rng, s->n_window)];
    if (!s->focused || w->n_over == 0 || weft_jobshop_below(rng, 2) == 0)
        return weft_jobshop_below(rng, w->shop->n_ops);
    int32_t x = w->over[weft_jobshop_below(rng, w->n_over)];
    uint32_t steps = weft_jobshop_draw(rng);
    for (int32_t n = weft_jobshop_below(rng, MOST_STEPS); n > 0; n--) {
        const struct weft_jobshop_node *node = &w->node[x];
        const int32_t next[4] = {node->before, node->after, node->pred,
                                 node->succ};
        int32_t y = next[steps % 4];
        steps /= 4;
        if (y >= 0)
            x = y;
    }
    return x;
}

void weft_jobshop_metropolis_run(struct weft_jobshop_metropolis *s,
                                 struct weft_jobshop_rng *rng,
                                 double temperature, int32_t n_moves)
{
    struct weft_jobshop_walk *w = s->walk;
    double scale = temperature * s->most;
    for (int32_t i = 0; i < n_moves && !weft_jobshop_metropolis_done(s);
         i++) {
        int32_t v = draw(s, rng), u = w->node[v].before;
        if (u < 0 || !weft_jobshop_walk_may_swap(w, u, v))
            continue;
        double worse = weft_jobshop_walk_excess(w, u, v);
        worse = worse > 0 ? worse : 0;
        double most = s->price < INFINITY || worse > 0
                        ? -scale * log(1 - weft_jobshop_uniform(rng, 0, 1))
                        : 0;
        if (worse > most)
            continue;
        double late = later(s, u, v);
        if (late > 0)
            worse += s->price * late;
        if (worse <= most && weft_jobshop_walk_swap(w, u, v))
            s->n_swaps++;
    }
}

bool weft_jobshop_walk_repair(struct weft_jobshop_walk *w)
{
    for (int32_t d = 0; d < w->shop->n_devices; d++) {
        int32_t x = w->last[d];
        while (w->node[x].before >= 0)
            x = w->node[x].before;
        for (; x >= 0; x = w->node[x].after) {
            int32_t give = x;
            if (w->held[x] <= w->capacity)
                continue;
            while (give >= 0 && w->shop->op[give].hold >= 0)
                give = w->node[give].after;
            while (give >= 0 && w->node[x].before != give)
                if (!weft_jobshop_walk_swap(w, w->node[give].before, give))
                    return false;
            if (give < 0 || w->held[x] > w->capacity)
                return false;
        }
    }
    return true;
}
