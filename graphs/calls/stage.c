/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/calls/stage.h"

#include "base/alloc.h"

/* ---- Tasks and tiles --------------------------------------------------- */

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
                        const struct weft_g_layout *layout, int32_t n_runs,
                        bool backward)
{
    if (!layout->on_gpus || !weft_rt_is_dry(pass->rt))
        return;
    struct weft_gpu_pass of = {.shape = pass->shape,
                               .n_rows = (int32_t) pass->n_rows,
                               .n_runs = n_runs,
                               .n_targets = pass->n_targets,
                               .backward = backward,
                               .recompute = layout->plan.recompute};
    for (int32_t i = 0; i < layout->plan.tp; i++) {
        of.range = weft_g_layout_member(layout, 0, 0, i)->blocks;
        weft_rt_expect_scratch(pass->rt, weft_gpu_scratch_bytes(&of));
    }
}

/* The end of the members at place number p, which begin at stage->lead[p]. */
static int32_t members_end(const struct weft_g_stage *stage, int32_t p)
{
    return p + 1 < stage->n_places ? stage->lead[p + 1] : stage->n;
}

/* Number of member k's place in the stage. */
static int32_t place_number(const struct weft_g_stage *stage, int32_t k)
{
    int32_t p = 0;
    while (members_end(stage, p) <= k)
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

void weft_g_stage_members(const struct weft_g_pass *pass,
                          const struct weft_g_stage *stage,
                          struct weft_members *out)
{
    struct weft_g_turn t = {0};
    out->n = stage->n;
    out->layers = (struct weft_stage_layers){stage->first, stage->end,
                                             stage->is_first, stage->is_last};
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
    int rc = weft_tile_create_temp(pass->rt, &id, c, bytes, &tile, &err);
    if (!rc)
        return tile;
    weft_seq_fail(pass->seq, rc, "%s", err.text);
    return NULL;
}

static void copy(const struct weft_g_pass *pass, struct weft_tile *from,
                 struct weft_tile *to)
{
    struct weft_where where = pass->where;
    where.device = -1;
    where.position = 0;
    if (from && to)
        weft_insert_copy(pass->seq, &where, from, to);
}

/* ---- Values ------------------------------------------------------------ */

void weft_g_value_create(const struct weft_g_pass *pass,
                         const struct weft_g_stage *stage, const char *kind,
                         enum weft_mem_class c, size_t bytes,
                         struct weft_g_value *out)
{
    *out = (struct weft_g_value){{NULL}, {false}};
    for (int32_t p = 0; p < stage->n_places; p++) {
        out->at[p] = weft_g_temp(pass, kind, c, -1, bytes, stage->place[p]);
        out->own[p] = true;
    }
}

size_t weft_g_rows_bytes(const struct weft_g_pass *pass)
{
    return (size_t) (pass->n_rows * pass->shape->hidden) * sizeof(float);
}

void weft_g_value_rows(const struct weft_g_pass *pass,
                       const struct weft_g_stage *stage, const char *kind,
                       struct weft_g_value *out)
{
    weft_g_value_create(pass, stage, kind, WEFT_MEM_ACTIVATIONS,
                        weft_g_rows_bytes(pass), out);
}

/* The number of the place of `from` from which `place` copies a value: itself,
 * a place of the same node, or else any, by turns. */
static int32_t source(const struct weft_g_pass *pass,
                      const struct weft_g_stage *from, int32_t place,
                      int32_t turn)
{
    int32_t near = -1;
    for (int32_t p = 0; p < from->n_places; p++) {
        if (from->place[p] == place)
            return p;
        if (near < 0
            && weft_rt_place_rank(pass->rt, from->place[p])
                   == weft_rt_place_rank(pass->rt, place))
            near = p;
    }
    return near >= 0 ? near : turn % from->n_places;
}

void weft_g_value_expect(const struct weft_g_pass *pass,
                         const struct weft_g_stage *from,
                         const struct weft_g_stage *to, enum weft_mem_class c,
                         size_t bytes, const struct weft_g_value *after,
                         struct weft_g_value *out)
{
    *out = (struct weft_g_value){{NULL}, {false}};
    for (int32_t p = 0; p < to->n_places; p++) {
        int32_t s = source(pass, from, to->place[p], p);
        if (from->place[s] == to->place[p])
            continue;
        out->at[p] = weft_g_temp(pass, "received", c, -1, bytes,
                                 to->place[p]);
        out->own[p] = true;
        struct weft_where where = weft_g_where_at(pass,
                                                  &to->member[to->lead[p]]);
        weft_insert_open(pass->seq, &where, after ? after->at[p] : NULL, 1,
                         &out->at[p]);
    }
}

void weft_g_value_fetch(const struct weft_g_pass *pass,
                        const struct weft_g_stage *from,
                        const struct weft_g_value *value,
                        const struct weft_g_stage *to,
                        struct weft_g_value *out)
{
    for (int32_t p = 0; p < to->n_places; p++) {
        struct weft_tile *tile =
            value->at[source(pass, from, to->place[p], p)];
        if (out->own[p])
            copy(pass, tile, out->at[p]);
        else
            out->at[p] = tile;
    }
}

struct weft_g_stage weft_g_stage_of_place(int32_t place)
{
    return (struct weft_g_stage){.n_places = 1, .place = {place}};
}

void weft_g_value_of_tile(const struct weft_g_pass *pass,
                          struct weft_tile *tile, int32_t place,
                          const struct weft_g_stage *to,
                          struct weft_g_value *out)
{
    struct weft_g_stage from = weft_g_stage_of_place(place);
    struct weft_g_value value = {.at = {tile}};
    weft_g_value_expect(pass, &from, to, WEFT_MEM_SAMPLES,
                        tile ? weft_tile_bytes(tile) : 1, NULL, out);
    weft_g_value_fetch(pass, &from, &value, to, out);
}

void weft_g_value_hand_over(struct weft_g_value *from,
                            struct weft_g_value *to)
{
    for (int32_t p = 0; p < WEFT_MAX_BLOCKS; p++) {
        int32_t q = 0;
        if (!from->own[p])
            continue;
        while (q < WEFT_MAX_BLOCKS && to->at[q] != from->at[p])
            q++;
        if (q == WEFT_MAX_BLOCKS)
            continue;
        to->own[q] = true;
        from->own[p] = false;
    }
    weft_g_value_release(from);
}

void weft_g_value_spread(const struct weft_g_pass *pass,
                         const struct weft_g_stage *stage,
                         const struct weft_g_value *value)
{
    for (int32_t p = 1; p < stage->n_places; p++)
        copy(pass, value->at[0], value->at[p]);
}

void weft_g_value_release(struct weft_g_value *value)
{
    for (int32_t p = 0; p < WEFT_MAX_BLOCKS; p++)
        if (value->own[p])
            weft_tile_release(value->at[p]);
    *value = (struct weft_g_value){{NULL}, {false}};
}

/* ---- Exchange ---------------------------------------------------------- */

static struct weft_range place_range(const struct weft_g_stage *stage,
                                     int32_t p)
{
    struct weft_range range = stage->member[stage->lead[p]].blocks;
    for (int32_t k = stage->lead[p] + 1; k < members_end(stage, p); k++)
        range.n += stage->member[k].blocks.n;
    return range;
}

/* The parts that place number p sends; returns how many. */
static int32_t outgoing(const struct weft_g_pass *pass,
                        const struct weft_g_stage *stage, int32_t p,
                        struct weft_tile *const member[],
                        const struct weft_g_value *batch, bool targets,
                        int64_t n, int32_t n_sets, struct weft_g_exchange *x,
                        struct weft_part_tile out[])
{
    int32_t first = stage->lead[p], end = members_end(stage, p), k = 0;
    for (int32_t i = first; i < end; i++)
        out[k++] = (struct weft_part_tile){stage->member[i].blocks,
                                           member[i]};
    if (k == 1 || n == 0)
        return k;
    struct weft_range all = place_range(stage, p);
    int64_t rows = targets ? pass->n_targets : pass->n_rows;
    struct weft_tile *joined = weft_g_temp(
        pass, "joined part", WEFT_MEM_ACTIVATIONS, -1,
        (size_t) n_sets * weft_part_bytes(pass->shape, all, rows * n),
        stage->place[p]);
    struct weft_where where = weft_g_where_at(pass, &stage->member[first]);
    weft_insert_join_parts(pass->seq, &where, pass->shape, batch->at[p],
                           targets, n, n_sets, k, out, joined);
    x->temp[x->n_temp++] = joined;
    out[0] = (struct weft_part_tile){all, joined};
    return 1;
}

void weft_g_exchange(const struct weft_g_pass *pass,
                     const struct weft_g_stage *stage,
                     struct weft_tile *const member[],
                     const struct weft_g_value *batch, bool targets,
                     int64_t n, int32_t n_sets, int32_t to,
                     struct weft_g_exchange *out)
{
    struct weft_part_tile sent[WEFT_MAX_BLOCKS][WEFT_MAX_BLOCKS];
    int32_t n_sent[WEFT_MAX_BLOCKS];
    out->n_temp = 0;
    for (int32_t p = 0; p < stage->n_places && stage->n_places > 1; p++)
        n_sent[p] = outgoing(pass, stage, p, member, batch, targets, n,
                             n_sets, out, sent[p]);
    for (int32_t q = 0; q < to; q++) {
        out->n[q] = 0;
        int32_t lead = stage->lead[q];
        for (int32_t p = 0; p < stage->n_places; p++) {
            if (p == q) {
                for (int32_t k = stage->lead[p]; k < members_end(stage, p);
                     k++)
                    out->part[q][out->n[q]++] = (struct weft_part_tile){
                        stage->member[k].blocks, member[k]};
                continue;
            }
            for (int32_t i = 0; i < n_sent[p]; i++) {
                struct weft_part_tile part = sent[p][i];
                if (part.tile) {
                    struct weft_tile *tile = part.tile;
                    part.tile = weft_g_temp(
                        pass, "received part", WEFT_MEM_ACTIVATIONS, -1,
                        weft_tile_bytes(tile), stage->place[q]);
                    out->temp[out->n_temp++] = part.tile;
                    struct weft_where where = weft_g_where_at(
                        pass, &stage->member[lead]);
                    weft_insert_open(pass->seq, &where, member[lead], 1,
                                     &part.tile);
                    copy(pass, tile, part.tile);
                }
                out->part[q][out->n[q]++] = part;
            }
        }
    }
}

void weft_g_exchange_release(struct weft_g_exchange *x)
{
    for (int32_t i = 0; i < x->n_temp; i++)
        weft_tile_release(x->temp[i]);
    x->n_temp = 0;
}

/* ---- Forward ----------------------------------------------------------- */

void weft_g_release_all(struct weft_tile *const tile[], int32_t n)
{
    for (int32_t k = 0; k < n; k++)
        weft_tile_release(tile[k]);
}

static void embed(const struct weft_g_pass *pass,
                  const struct weft_g_stage *stage,
                  const struct weft_params *params,
                  const struct weft_g_value *batch,
                  const struct weft_g_value *x)
{
    struct weft_tile *part[WEFT_MAX_BLOCKS] = {NULL};
    struct weft_g_exchange parts;
    struct weft_g_turn t = {0}, join = {0};
    if (stage->n_places == 1) {
        weft_g_next_member(pass, stage, &t);
        weft_insert_embed(pass->seq, &t.where, pass->shape,
                          &params[t.m->place], batch->at[0], x->at[0]);
        return;
    }
    while (weft_g_next_member(pass, stage, &t)) {
        part[t.k] = weft_g_temp(pass, "embedding", WEFT_MEM_ACTIVATIONS, -1,
                                weft_g_rows_bytes(pass), t.m->place);
        weft_insert_embed_part(pass->seq, &t.where, pass->shape, t.m->blocks,
                               &params[t.m->place], batch->at[t.p],
                               part[t.k]);
    }
    weft_g_exchange(pass, stage, part, batch, false, 0, 1, stage->n_places,
                    &parts);
    while (weft_g_next_place(pass, stage, &join))
        weft_insert_embed_select(pass->seq, &join.where, pass->shape,
                                 batch->at[join.p], parts.n[join.p],
                                 parts.part[join.p], x->at[join.p]);
    weft_g_exchange_release(&parts);
    weft_g_release_all(part, stage->n);
}

void weft_g_stage_embed(const struct weft_g_pass *pass,
                        const struct weft_g_stage *stage,
                        const struct weft_params *params,
                        const struct weft_g_value *batch,
                        const struct weft_g_value *x)
{
    const struct weft_g_gang gang = {"embed", -1, NULL};
    if (weft_g_gang_begin(pass, stage, &gang)) {
        for (int32_t p = 0; p < stage->n_places; p++)
            weft_g_gang_blocks(pass, params[stage->place[p]].embed);
        weft_g_gang_batch(pass, stage, batch);
        weft_g_gang_value(pass, stage, x);
        if (weft_g_gang_again(pass, &gang))
            return;
    }
    embed(pass, stage, params, batch, x);
    weft_g_gang_end(pass, &gang);
}

void weft_g_kept_create(const struct weft_g_pass *pass,
                        const struct weft_g_stage *stage, int32_t layer,
                        struct weft_g_kept *out)
{
    *out = (struct weft_g_kept){{NULL}, {{NULL}, {false}}};
    if (stage->n > 1)
        weft_g_value_rows(pass, stage, "activation", &out->x_mid);
    for (int32_t k = 0; k < stage->n; k++) {
        const struct weft_g_member *m = &stage->member[k];
        size_t bytes = stage->n == 1
                         ? weft_layer_saved_bytes(pass->shape, pass->n_rows)
                         : weft_part_saved_bytes(pass->shape, m->blocks,
                                                 pass->n_rows);
        out->member[k] = weft_g_temp(pass, "activation", WEFT_MEM_ACTIVATIONS,
                                     layer, bytes, m->place);
    }
}

void weft_g_kept_release(struct weft_g_kept *kept)
{
    weft_g_release_all(kept->member, WEFT_MAX_BLOCKS);
    weft_g_value_release(&kept->x_mid);
    *kept = (struct weft_g_kept){{NULL}, {{NULL}, {false}}};
}

void weft_g_roots_create(const struct weft_g_pass *pass,
                         const struct weft_g_stage *stage, int32_t layer,
                         int64_t n, struct weft_tile *out[])
{
    for (int32_t k = 0; k < stage->n; k++)
        out[k] = weft_g_temp(
            pass, "partial sum", WEFT_MEM_ACTIVATIONS, layer,
            weft_part_bytes(pass->shape, stage->member[k].blocks, n),
            stage->member[k].place);
}

/* y = x + sum of the members' roots, at every place; releases the roots. */
static void join(const struct weft_g_layer *l, bool attention,
                 struct weft_tile *roots[], const struct weft_g_value *x,
                 const struct weft_g_value *y)
{
    const struct weft_g_pass *pass = l->pass;
    struct weft_g_exchange parts;
    struct weft_g_turn t = {0};
    weft_g_exchange(pass, l->stage, roots, l->batch, false,
                    pass->shape->hidden, 1, l->stage->n_places, &parts);
    while (weft_g_next_place(pass, l->stage, &t))
        weft_insert_join_rows(pass->seq, &t.where, pass->shape,
                              &l->fwd[t.m->place], l->index, attention,
                              l->batch->at[t.p], parts.n[t.p],
                              parts.part[t.p], x->at[t.p], y->at[t.p]);
    weft_g_exchange_release(&parts);
    weft_g_release_all(roots, l->stage->n);
}

static void forward(const struct weft_g_layer *l)
{
    const struct weft_g_pass *pass = l->pass;
    const struct weft_g_stage *stage = l->stage;
    struct weft_tile *roots[WEFT_MAX_BLOCKS];
    struct weft_g_value temp = {{NULL}, {false}};
    struct weft_g_turn t = {0}, u = {0};
    if (stage->n == 1) {
        weft_g_next_member(pass, stage, &t);
        weft_insert_layer_forward(
            pass->seq, &t.where, pass->shape, &l->fwd[t.m->place], l->index,
            l->batch->at[0], l->x->at[0], l->kv, l->y->at[0],
            l->kept ? l->kept->member[0] : NULL);
        return;
    }
    int64_t n = pass->n_rows * pass->shape->hidden;
    if (!l->kept)
        weft_g_value_rows(pass, stage, "activation", &temp);
    const struct weft_g_value *x_mid = l->kept ? &l->kept->x_mid : &temp;
    weft_g_roots_create(pass, stage, l->index, n, roots);
    while (weft_g_next_member(pass, stage, &t))
        weft_insert_attention_part(
            pass->seq, &t.where, pass->shape, t.m->blocks,
            &l->fwd[t.m->place], l->index, l->batch->at[t.p], l->x->at[t.p],
            l->kv ? &l->kv[t.k] : NULL, l->kept ? l->kept->member[t.k] : NULL,
            roots[t.k]);
    join(l, true, roots, l->x, x_mid);
    if (l->y)
        weft_g_roots_create(pass, stage, l->index, n, roots);
    while (weft_g_next_member(pass, stage, &u))
        weft_insert_mlp_part(
            pass->seq, &u.where, pass->shape, u.m->blocks,
            &l->fwd[u.m->place], l->index, l->batch->at[u.p], x_mid->at[u.p],
            l->kept ? l->kept->member[u.k] : NULL, l->y ? roots[u.k] : NULL);
    if (l->y)
        join(l, false, roots, x_mid, l->y);
    weft_g_value_release(&temp);
}

void weft_g_layer_forward(const struct weft_g_layer *l)
{
    const struct weft_g_gang gang = {"layer_forward", l->index, NULL};
    if (weft_g_gang_begin(l->pass, l->stage, &gang)) {
        weft_g_gang_layer(l, false);
        if (weft_g_gang_again(l->pass, &gang))
            return;
    }
    forward(l);
    weft_g_gang_end(l->pass, &gang);
}

/* ---- Heads ------------------------------------------------------------- */

static void logprob(const struct weft_g_pass *pass,
                    const struct weft_g_stage *stage,
                    const struct weft_params *params,
                    const struct weft_g_value *batch,
                    const struct weft_g_value *x, float inv_temperature,
                    int32_t n, struct weft_tile *const out[])
{
    struct weft_tile *part[WEFT_MAX_BLOCKS];
    struct weft_g_exchange parts;
    if (stage->n == 1) {
        struct weft_where where = weft_g_where_at(pass, &stage->member[0]);
        weft_insert_logprob(pass->seq, &where, pass->shape,
                            &params[stage->place[0]], batch->at[0], x->at[0],
                            inv_temperature, n, out);
        return;
    }
    weft_g_stage_head_parts(pass, stage, params, batch, x, inv_temperature,
                            NULL, part, &parts);
    struct weft_where where = weft_g_where_at(pass, &stage->member[0]);
    weft_insert_logprob_merge(pass->seq, &where, pass->shape, batch->at[0],
                              parts.n[0], parts.part[0], n, out);
    weft_g_exchange_release(&parts);
    weft_g_release_all(part, stage->n);
}

void weft_g_stage_logprob(const struct weft_g_pass *pass,
                          const struct weft_g_stage *stage,
                          const struct weft_params *params,
                          const struct weft_g_value *batch,
                          const struct weft_g_value *x, float inv_temperature,
                          int32_t n, struct weft_tile *const out[])
{
    const struct weft_g_gang gang = {"logprob", -1, NULL};
    if (weft_g_gang_begin(pass, stage, &gang)) {
        for (int32_t p = 0; p < stage->n_places; p++)
            weft_g_gang_tiles(pass, &params[stage->place[p]].head);
        weft_g_gang_batch(pass, stage, batch);
        weft_g_gang_value(pass, stage, x);
        for (int32_t i = 0; i < n; i++)
            weft_gang_tile(pass->rt, out[i]);
        if (weft_g_gang_again(pass, &gang))
            return;
    }
    logprob(pass, stage, params, batch, x, inv_temperature, n, out);
    weft_g_gang_end(pass, &gang);
}

void weft_g_stage_head_parts(
    const struct weft_g_pass *pass, const struct weft_g_stage *stage,
    const struct weft_params *params, const struct weft_g_value *batch,
    const struct weft_g_value *x, float inv_temperature,
    struct weft_tile *const logits[], struct weft_tile *part[],
    struct weft_g_exchange *parts)
{
    struct weft_g_turn t = {0};
    while (weft_g_next_member(pass, stage, &t)) {
        part[t.k] = weft_g_temp(
            pass, "softmax of a range", WEFT_MEM_ACTIVATIONS, -1,
            weft_part_head_bytes(t.m->blocks, pass->n_targets), t.m->place);
        weft_insert_head_part(pass->seq, &t.where, pass->shape, t.m->blocks,
                              &params[t.m->place], batch->at[t.p], x->at[t.p],
                              inv_temperature, logits ? logits[t.k] : NULL,
                              part[t.k]);
    }
    weft_g_exchange(pass, stage, part, batch, true, 0, 1, stage->n_places,
                    parts);
}
