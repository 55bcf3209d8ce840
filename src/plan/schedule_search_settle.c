/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory within a deadline: an annealing whose moves are swaps of any two
 * neighbours on a device after which no way is longer than the deadline. A
 * swap changes what is held at one place, so what the excess becomes is known
 * before it is done. The schedule may hold too much on the way, else it could
 * hardly move at all.
 */
#include <math.h>

#include "plan/schedule_shop.h"

static double over(double held, double capacity)
{
    return held > capacity ? held - capacity : 0;
}

void weft_shop_settle_begin(struct weft_shop_settle *s,
                            struct weft_shop_walk *walk, double deadline,
                            double capacity)
{
    const struct weft_shop *shop = walk->shop;
    *s = (struct weft_shop_settle){
        .walk = walk,
        .deadline = deadline * (1 + WEFT_SHOP_SLACK),
        .capacity = capacity * (1 + WEFT_SHOP_SLACK)};
    for (int32_t u = 0; u < shop->n_units; u++)
        s->most = fmax(s->most, shop->unit[u].most);
    for (int32_t x = 0; x < shop->n_ops; x++)
        if (shop->op[x].device >= 0) {
            s->excess += over(walk->held[x], s->capacity);
            s->n_over += walk->held[x] > s->capacity;
        }
}

void weft_shop_settle_run(struct weft_shop_settle *s,
                          struct weft_shop_rng *rng, double temperature,
                          int32_t n_moves)
{
    struct weft_shop_walk *w = s->walk;
    const struct weft_shop_op *op = w->shop->op;
    for (int32_t i = 0; i < n_moves && s->n_over > 0; i++) {
        int32_t v = weft_shop_below(rng, w->shop->n_ops),
                u = w->node[v].before;
        if (u < 0 || !weft_shop_walk_may_swap(w, u, v))
            continue;
        double from = w->held[u], to = from - op[u].hold + op[v].hold;
        double more = over(to, s->capacity) - over(from, s->capacity);
        if (more > 0
            && weft_shop_uniform(rng, 0, 1)
                   >= exp(-more / (temperature * s->most)))
            continue;
        if (weft_shop_walk_estimate(w, u, v) > s->deadline
            || !weft_shop_walk_swap(w, u, v))
            continue;
        s->excess += more;
        s->n_over += (to > s->capacity) - (from > s->capacity);
        s->n_swaps++;
    }
}

bool weft_shop_walk_repair(struct weft_shop_walk *w)
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
                if (!weft_shop_walk_swap(w, w->node[give].before, give))
                    return false;
            if (give < 0 || w->held[x] > w->capacity)
                return false;
        }
    }
    return true;
}
