/* SPDX-License-Identifier: Apache-2.0 */
#include "lm/weights.h"

#include <math.h>

#include "base/alloc.h"

/* Copies that are on their way at once. */
struct copies {
    const struct weft_costs *costs;
    double *busy_s; /* (n_links) */
    double most_s;
};

static int copies_init(struct copies *c, const struct weft_costs *costs,
                       struct weft_err *err)
{
    int32_t n_links;
    weft_costs_links(costs, &n_links);
    *c = (struct copies){
        .costs = costs,
        .busy_s = weft_alloc((size_t) n_links + 1, sizeof *c->busy_s)};
    return c->busy_s ? 0 : weft_err_nomem(err, "links", (size_t) n_links * 8);
}

static void copy(struct copies *c, int32_t from, int32_t to, double bytes)
{
    int32_t link[WEFT_COSTS_PATH], n_links;
    double latency_s;
    const double *speed = weft_costs_links(c->costs, &n_links);
    int32_t n = weft_costs_path(c->costs, from, to, link, &latency_s);
    for (int32_t i = 0; i < n; i++) {
        c->busy_s[link[i]] += bytes / speed[link[i]];
        c->most_s = fmax(c->most_s, latency_s + c->busy_s[link[i]]);
    }
}

/* ---- From home to a call ------------------------------------------------- */

/* Places of two layouts. */
struct places {
    int32_t n, n_have, n_want;
    int32_t *node, *have, *want; /* (n) node: rank */
    int32_t *listed, n_lists;    /* (n) the last list that has it */
    struct weft_move_load *load; /* (n) */
    struct weft_move *move;      /* (n) */
};

static int32_t last_place(const struct weft_g_layout *l)
{
    int32_t last = 0;
    for (int32_t i = 0; i < l->plan.dp * l->plan.pp * l->plan.tp; i++)
        last = weft_max32(last, l->member[i].place);
    return last;
}

static int places_init(struct places *p, const struct weft_g_layout *a,
                       const struct weft_g_layout *b, struct weft_err *err)
{
    size_t n = (size_t) weft_max32(last_place(a), last_place(b)) + 1;
    *p = (struct places){.n = (int32_t) n};
    p->node = weft_alloc(n, 4 * sizeof *p->node);
    p->load = weft_alloc(n, sizeof *p->load);
    p->move = weft_alloc(n, sizeof *p->move);
    if (!p->node || !p->load || !p->move)
        return weft_err_nomem(err, "places", n * sizeof *p->load);
    p->have = p->node + n;
    p->want = p->have + n;
    p->listed = p->want + n;
    for (int32_t i = 0; i < p->n; i++)
        p->node[i] = i / a->places_per_rank;
    return 0;
}

static void places_release(struct places *p)
{
    weft_free(p->node);
    weft_free(p->load);
    weft_free(p->move);
}

/* The places of some replicas' members that have a block of a stage, each
 * once. */
static int32_t list(struct places *p, const struct weft_g_layout *l,
                    struct weft_range replicas, int32_t stage, int32_t block,
                    int32_t *out)
{
    int32_t n = 0;
    p->n_lists++;
    for (int32_t i = replicas.first; i < weft_range_end(replicas); i++)
        for (int32_t k = 0; k < l->plan.tp; k++) {
            const struct weft_g_member *m = weft_g_layout_member(l, i, stage,
                                                                 k);
            if (block < m->blocks.first
                || block >= m->blocks.first + m->blocks.n
                || p->listed[m->place] == p->n_lists)
                continue;
            p->listed[m->place] = p->n_lists;
            out[n++] = m->place;
        }
    return n;
}

static int32_t n_common(const struct weft_g_layout *a, int32_t stage_a,
                        const struct weft_g_layout *b, int32_t stage_b)
{
    return weft_min32(a->first_layer[stage_a + 1],
                      b->first_layer[stage_b + 1])
         - weft_max32(a->first_layer[stage_a], b->first_layer[stage_b]);
}

struct block {
    int32_t from, to; /* the stages that have it */
    int32_t number;
    double bytes; /* in all layers that these have in common */
};

/* Moves a part of a block that some replicas have. */
static void move(struct copies *c, struct places *p,
                 const struct weft_g_layout *home, struct weft_range replicas,
                 const struct weft_g_layout *layout, const struct block *b,
                 double part)
{
    p->n_have = list(p, home, replicas, b->from, b->number, p->have);
    p->n_want = list(p, layout, (struct weft_range){0, layout->plan.dp},
                     b->to, b->number, p->want);
    int32_t n = weft_plan_moves(p->node, p->n_have, p->have, p->n_want,
                                p->want, part * b->bytes, p->load, p->move);
    for (int32_t i = 0; i < n; i++)
        copy(c, p->move[i].from, p->move[i].to, part * b->bytes);
}

/* With ZeRO 3 replicas have equal parts of a tp member's blocks, in order
 * (graphs/calls/shard.h): the block is the i-th of n. */
static void move_parts(struct copies *c, struct places *p,
                       const struct weft_g_layout *home,
                       const struct weft_g_layout *layout,
                       const struct block *b)
{
    const struct weft_g_member *m = weft_g_layout_member(home, 0, b->from, 0);
    while (b->number >= weft_range_end(m->blocks))
        m++;
    int32_t i = b->number - m->blocks.first, n = m->blocks.n;
    int32_t dp = home->plan.dp;
    for (int32_t r = i * dp / n; r * n < (i + 1) * dp; r++) {
        int32_t begin = weft_max32(r * n, i * dp);
        int32_t end = weft_min32((r + 1) * n, (i + 1) * dp);
        move(c, p, home, (struct weft_range){r, 1}, layout, b,
             (double) (end - begin) / dp);
    }
}

static double all_bytes(const struct weft_shape *shape)
{
    return (double) weft_shape_n_params(shape)
         * (double) weft_dtype_bytes(shape->dtype);
}

int weft_weights_move_s(const struct weft_costs *costs,
                        const struct weft_shape *shape,
                        const struct weft_g_layout *home,
                        const struct weft_g_layout *layout, double *out,
                        struct weft_err *err)
{
    double each = weft_shape_changed_bytes(shape, shape->n_blocks)
                / shape->n_layers;
    struct copies c;
    struct places p = {.n = 0};
    *out = 0;
    if (weft_plan_lies_alike(&home->plan, &layout->plan)
        && home->plan.zero < 3)
        return 0;
    int rc = copies_init(&c, costs, err);
    if (!rc)
        rc = places_init(&p, home, layout, err);
    for (int32_t a = 0; a < home->plan.pp && !rc; a++)
        for (int32_t b = 0; b < layout->plan.pp; b++) {
            int32_t n = n_common(home, a, layout, b);
            for (int32_t k = 0; k < shape->n_blocks && n > 0; k++) {
                const struct block block = {a, b, k, n * each};
                if (home->plan.zero >= 3)
                    move_parts(&c, &p, home, layout, &block);
                else
                    move(&c, &p, home, (struct weft_range){0, home->plan.dp},
                         layout, &block, 1);
            }
        }
    if (!rc)
        *out = c.most_s;
    places_release(&p);
    weft_free(c.busy_s);
    return rc;
}

/* ---- From the host -------------------------------------------------------- */

int weft_weights_restore_s(const struct weft_costs *costs,
                           const struct weft_shape *shape,
                           const struct weft_g_layout *home, int32_t n_gpus,
                           double *out, struct weft_err *err)
{
    int32_t n = home->plan.pp * home->plan.tp, each = home->places_per_rank;
    struct copies c;
    int rc = copies_init(&c, costs, err);
    for (int32_t i = 0; i < home->plan.dp * n && !rc; i++) {
        int32_t to = home->member[i].place, local = to % each;
        if (local < n_gpus && n_gpus < each)
            copy(&c, to - local + n_gpus, to, all_bytes(shape) / n);
    }
    if (!rc)
        *out = c.most_s;
    weft_free(c.busy_s);
    return rc;
}
