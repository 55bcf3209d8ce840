/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/calls/stage.h"

#include "base/alloc.h"

int weft_g_order_init(struct weft_rt *rt, struct weft_g_order *out,
                      struct weft_err *err)
{
    size_t n = (size_t) weft_rt_n_devices(rt) * WEFT_N_CHAINS;
    *out = (struct weft_g_order){weft_alloc(n, sizeof *out->next),
                                 weft_rt_n_devices(rt)};
    return out->next ? 0
                     : weft_err_nomem(err, "an order", n * sizeof *out->next);
}

void weft_g_order_release(struct weft_g_order *order)
{
    weft_free(order->next);
    *order = (struct weft_g_order){0};
}

void weft_g_order_reset(struct weft_g_order *order)
{
    for (int32_t i = 0; i < order->n_devices * WEFT_N_CHAINS; i++)
        order->next[i] = 0;
}

struct weft_g_pass weft_g_train_pass(const struct weft_g_train *t,
                                     struct weft_seq *seq,
                                     int32_t micro_batch)
{
    const struct weft_g_model *m = t->model;
    return (struct weft_g_pass){.rt = m->rt,
                                .seq = seq,
                                .name = m->name,
                                .shape = &m->shape,
                                .where = {.device = -1,
                                          .priority = t->priority,
                                          .call = t->call,
                                          .chain = t->chain,
                                          .iteration = t->iteration,
                                          .micro_batch = micro_batch,
                                          .layer = -1}};
}

struct weft_where weft_g_where_at(const struct weft_g_pass *pass,
                                  const struct weft_g_member *member)
{
    struct weft_where where = pass->where;
    where.device = pass->any_device ? -1 : member->device;
    if (pass->order && !pass->any_device)
        where.position =
            ++pass->order->next[member->device * WEFT_N_CHAINS + where.chain];
    return where;
}

void weft_g_choose_products(struct weft_seq *seq,
                            const struct weft_g_layout *layout, int32_t call,
                            const struct weft_shape *shape, bool generates,
                            bool backward)
{
    const struct weft_call_plan *plan = &layout->plan;
    for (int32_t i = 0; i < plan->dp * plan->tp * plan->pp; i++)
        weft_insert_choose_products(
            seq,
            &(struct weft_where){.device = layout->member[i].device,
                                 .call = call,
                                 .iteration = -1,
                                 .micro_batch = -1,
                                 .layer = -1},
            shape, generates, backward);
}

void weft_g_pass_expect(const struct weft_g_pass *pass,
                        const struct weft_g_layout *layout,
                        const struct weft_gpu_pass *more)
{
    if (!layout->on_gpus || !weft_rt_is_dry(pass->rt))
        return;
    struct weft_gpu_pass of = *more;
    of.shape = pass->shape;
    of.n_rows = (int32_t) pass->n_rows;
    of.n_targets = pass->n_targets;
    of.recompute = layout->plan.recompute;
    for (int32_t i = 0; i < layout->plan.tp; i++) {
        of.range = weft_g_layout_member(layout, 0, 0, i)->blocks;
        weft_rt_expect_scratch(pass->rt, weft_gpu_scratch_bytes(&of));
    }
}

int32_t weft_g_members_end(const struct weft_g_stage *stage, int32_t p)
{
    return p + 1 < stage->n_places ? stage->lead[p + 1] : stage->n;
}

/* Number of member k's place in the stage. */
static int32_t place_number(const struct weft_g_stage *stage, int32_t k)
{
    int32_t p = 0;
    while (weft_g_members_end(stage, p) <= k)
        p++;
    return p;
}

bool weft_g_next_member(const struct weft_g_pass *pass,
                        const struct weft_g_stage *stage,
                        struct weft_g_turn *t)
{
    if (t->next >= stage->n)
        return false;
    t->k = t->next++;
    t->m = &stage->member[t->k];
    t->p = place_number(stage, t->k);
    t->where = weft_g_where_at(pass, t->m);
    return true;
}

struct weft_stage_layers weft_g_stage_layers(const struct weft_g_stage *stage)
{
    return (struct weft_stage_layers){stage->first, stage->end,
                                      stage->is_first, stage->is_last};
}

void weft_g_stage_members(const struct weft_g_pass *pass,
                          const struct weft_g_stage *stage,
                          struct weft_members *out)
{
    struct weft_g_turn t = {0};
    out->n = stage->n;
    out->layers = weft_g_stage_layers(stage);
    while (weft_g_next_member(pass, stage, &t)) {
        out->where[t.k] = t.where;
        out->range[t.k] = t.m->blocks;
    }
}

bool weft_g_next_place(const struct weft_g_pass *pass,
                       const struct weft_g_stage *stage,
                       struct weft_g_turn *t)
{
    if (t->next >= stage->n_places)
        return false;
    t->p = t->next++;
    t->k = stage->lead[t->p];
    t->m = &stage->member[t->k];
    t->where = weft_g_where_at(pass, t->m);
    return true;
}

struct weft_tile *weft_g_temp(const struct weft_g_pass *pass,
                              const char *kind, enum weft_mem_class c,
                              int32_t layer, size_t bytes, int32_t place)
{
    struct weft_tile_id id = {pass->name, kind, 0, layer, -1, place};
    struct weft_tile *tile;
    struct weft_err err;
    if (weft_tile_create_temp(pass->rt, &id, c, bytes, &tile, &err))
        weft_world_abort(&err);
    return tile;
}

void weft_g_copy(const struct weft_g_pass *pass, struct weft_tile *from,
                 struct weft_tile *to)
{
    struct weft_where where = pass->where;
    where.device = -1;
    where.position = 0;
    where.span = NULL; /* it may be copied long before what reads it runs */
    if (from && to)
        weft_insert_copy(pass->seq, &where, from, to);
}

void weft_g_release_all(struct weft_tile *const tile[], int32_t n)
{
    for (int32_t k = 0; k < n; k++)
        weft_tile_release(tile[k]);
}
