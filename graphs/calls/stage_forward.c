/* SPDX-License-Identifier: Apache-2.0 */
/* The forward pass of a stage: embedding, layers, log-probs. */
#include "graphs/calls/stage.h"

/* ---- Embedding ----------------------------------------------------------- */

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

/* ---- Layer ------------------------------------------------------------- */

void weft_g_kept_create(const struct weft_g_pass *pass,
                        const struct weft_g_stage *stage, int32_t layer,
                        struct weft_g_kept *out)
{
    *out = (struct weft_g_kept){.n = stage->n};
    if (stage->n > 1)
        weft_g_value_rows(pass, stage, "activation", layer, &out->x_mid);
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
    weft_g_release_all(kept->member, kept->n);
    weft_g_value_release(&kept->x_mid);
    *kept = (struct weft_g_kept){.n = 0};
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
    struct weft_g_value temp = {.own = 0};
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
        weft_g_value_rows(pass, stage, "activation", l->index, &temp);
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

void weft_g_stage_head_parts(
    const struct weft_g_pass *pass, const struct weft_g_stage *stage,
    const struct weft_params *params, const struct weft_g_value *batch,
    const struct weft_g_value *x, float inv_temperature, int32_t to,
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
    weft_g_exchange(pass, stage, part, batch, true, 0, 1, to, parts);
}

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
    weft_g_stage_head_parts(pass, stage, params, batch, x, inv_temperature, 1,
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
