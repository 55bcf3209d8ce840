/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backward pass of a stage. All members have the norms' weights. Every
 * place computes a norm's backward pass for its own dx, but only place number
 * 0 adds to the gradient of the norm's weight.
 */
#include "graphs/calls/stage.h"

/* ---- Head -------------------------------------------------------------- */

static struct weft_loss_args args_at(const struct weft_g_loss *l, int32_t p)
{
    struct weft_loss_args args = *l->args;
    args.kto_kl = l->kl->at[p];
    args.gate = l->gate->at[p];
    return args;
}

/* Memory for what each member keeps of its logits, by member; NULL: nothing. */
static void logits_create(const struct weft_g_loss *l,
                          struct weft_tile *out[])
{
    const struct weft_g_pass *pass = l->pass;
    for (int32_t k = 0; k < l->stage->n; k++) {
        const struct weft_g_member *m = &l->stage->member[k];
        size_t bytes = weft_part_logits_bytes(pass->shape, m->blocks,
                                              pass->n_targets);
        bool keeps = bytes > 0 && !l->recompute
                  && !weft_rt_is_gpu_place(pass->rt, m->place);
        out[k] = keeps ? weft_g_temp(pass, "logits", WEFT_MEM_ACTIVATIONS, -1,
                                     bytes, m->place)
                       : NULL;
    }
}

/* With one member, or a scalar head, which is not divided among members: dx is
 * computed at place number 0 and copied to the others. */
static void loss_whole(const struct weft_g_loss *l)
{
    const struct weft_g_pass *pass = l->pass;
    struct weft_where where = weft_g_where_at(pass, &l->stage->member[0]);
    struct weft_loss_args args = args_at(l, 0);
    int32_t place = l->stage->place[0];
    struct weft_tile *logits[WEFT_MAX_BLOCKS];
    logits_create(l, logits);
    weft_insert_loss(pass->seq, &where, pass->shape, &l->fwd[place],
                     &l->bwd[place], &args, l->batch->at[0], l->x->at[0],
                     logits[0], l->dx->at[0], l->grad, l->stats);
    weft_g_release_all(logits, l->stage->n);
}

/* Merges the members' parts: dloss, at every place. */
static void merge(const struct weft_g_loss *l,
                  struct weft_tile *const logits[], struct weft_tile *part[],
                  struct weft_g_value *dloss)
{
    const struct weft_g_pass *pass = l->pass;
    struct weft_g_exchange parts;
    struct weft_g_turn t = {0};
    weft_g_stage_head_parts(pass, l->stage, l->fwd, l->batch, l->x,
                            l->args->inv_temperature, l->stage->n_places,
                            logits, part, &parts);
    weft_g_value_create(pass, l->stage, "loss gradient", WEFT_MEM_ACTIVATIONS,
                        -1, weft_part_dloss_bytes(pass->n_targets), dloss);
    while (weft_g_next_place(pass, l->stage, &t)) {
        struct weft_loss_args args = args_at(l, t.p);
        weft_insert_loss_merge(pass->seq, &t.where, pass->shape, &args,
                               l->batch->at[t.p], parts.n[t.p],
                               parts.part[t.p], dloss->at[t.p],
                               t.p == 0 ? l->stats : NULL);
    }
    weft_g_exchange_release(&parts);
}

static void loss_parts(const struct weft_g_loss *l)
{
    const struct weft_g_pass *pass = l->pass;
    struct weft_tile *part[WEFT_MAX_BLOCKS], *roots[WEFT_MAX_BLOCKS];
    struct weft_tile *logits[WEFT_MAX_BLOCKS];
    struct weft_g_exchange parts;
    struct weft_g_value dloss;
    struct weft_g_turn t = {0}, u = {0};
    logits_create(l, logits);
    merge(l, logits, part, &dloss);
    weft_g_roots_create(pass, l->stage, -1,
                        (int64_t) pass->n_targets * pass->shape->hidden,
                        roots);
    while (weft_g_next_member(pass, l->stage, &t))
        weft_insert_head_backward_part(
            pass->seq, &t.where, pass->shape, t.m->blocks,
            &l->fwd[t.m->place], &l->bwd[t.m->place], l->args,
            l->batch->at[t.p], l->x->at[t.p], logits[t.k], dloss.at[t.p],
            l->grad, roots[t.k]);
    weft_g_release_all(logits, l->stage->n);
    weft_g_exchange(pass, l->stage, roots, l->batch, true,
                    pass->shape->hidden, 1, l->stage->n_places, &parts);
    while (weft_g_next_place(pass, l->stage, &u))
        weft_insert_head_norm_backward(
            pass->seq, &u.where, pass->shape, &l->fwd[u.m->place],
            l->batch->at[u.p], l->x->at[u.p], parts.n[u.p], parts.part[u.p],
            l->dx->at[u.p], u.p == 0 ? l->grad : NULL);
    weft_g_exchange_release(&parts);
    weft_g_value_release(&dloss);
    weft_g_release_all(part, l->stage->n);
    weft_g_release_all(roots, l->stage->n);
}

static void list_loss(const struct weft_g_loss *l)
{
    const struct weft_g_pass *pass = l->pass;
    const struct weft_g_stage *stage = l->stage;
    for (int32_t p = 0; p < stage->n_places; p++) {
        weft_g_gang_tiles(pass, &l->fwd[stage->place[p]].head);
        weft_g_gang_blocks(pass, l->bwd[stage->place[p]].head.block);
    }
    weft_g_gang_tiles(pass, &l->grad->head);
    weft_g_gang_value(pass, stage, l->kl);
    weft_g_gang_value(pass, stage, l->gate);
    weft_g_gang_batch(pass, stage, l->batch);
    weft_g_gang_value(pass, stage, l->x);
    weft_g_gang_value(pass, stage, l->dx);
    weft_gang_tile(pass->rt, l->stats);
    weft_gang_word(pass->rt, l->recompute);
}

static void loss_of(const struct weft_g_loss *l, bool whole)
{
    const struct weft_g_pass *pass = l->pass;
    const struct weft_g_gang gang = {"loss", -1, NULL};
    if (weft_g_gang_begin(pass, l->stage, &gang)) {
        list_loss(l);
        if (weft_g_gang_again(pass, &gang))
            return;
    }
    (whole ? loss_whole : loss_parts)(l);
    weft_g_gang_end(pass, &gang);
}

void weft_g_stage_loss(const struct weft_g_loss *loss)
{
    const struct weft_g_pass *pass = loss->pass;
    bool whole = loss->stage->n == 1 || pass->shape->scalar_head;
    loss_of(loss, whole);
    if (whole)
        weft_g_value_spread(pass, loss->stage, loss->dx);
}

/* ---- Layer ------------------------------------------------------------- */

static void roots_create(const struct weft_g_layer *l,
                         struct weft_tile *out[])
{
    weft_g_roots_create(l->pass, l->stage, l->index,
                        l->pass->n_rows * l->pass->shape->hidden, out);
}

static void mlp(const struct weft_g_layer *l)
{
    const struct weft_g_pass *pass = l->pass;
    struct weft_tile *roots[WEFT_MAX_BLOCKS];
    struct weft_g_exchange parts;
    struct weft_g_turn t = {0}, u = {0};
    roots_create(l, roots);
    while (weft_g_next_member(pass, l->stage, &t))
        weft_insert_mlp_backward_part(
            pass->seq, &t.where, pass->shape, t.m->blocks,
            &l->fwd[t.m->place], &l->bwd[t.m->place], l->index,
            l->batch->at[t.p], l->kept->x_mid.at[t.p], l->kept->member[t.k],
            l->dx->at[t.p], l->grad, roots[t.k]);
    weft_g_exchange(pass, l->stage, roots, l->batch, false,
                    pass->shape->hidden, 1, l->stage->n_places, &parts);
    while (weft_g_next_place(pass, l->stage, &u))
        weft_insert_mlp_norm_backward(
            pass->seq, &u.where, pass->shape, &l->fwd[u.m->place], l->index,
            l->batch->at[u.p], l->kept->x_mid.at[u.p], parts.n[u.p],
            parts.part[u.p], l->dx->at[u.p], u.p == 0 ? l->grad : NULL);
    weft_g_exchange_release(&parts);
    weft_g_release_all(roots, l->stage->n);
}

/* Tiles of the attention half, by member. */
struct heads {
    struct weft_tile *dqkv[WEFT_MAX_BLOCKS], *shared[WEFT_MAX_BLOCKS];
    struct weft_tile *norms[WEFT_MAX_BLOCKS], *roots[WEFT_MAX_BLOCKS];
};

static void heads_create(const struct weft_g_layer *l, struct heads *h)
{
    const struct weft_g_pass *pass = l->pass;
    *h = (struct heads){{NULL}, {NULL}, {NULL}, {NULL}};
    for (int32_t k = 0; k < l->stage->n; k++) {
        const struct weft_g_member *m = &l->stage->member[k];
        size_t shared = weft_part_shared_bytes(pass->shape, m->blocks,
                                               pass->n_rows);
        size_t norms = weft_part_head_norms_bytes(pass->shape, m->blocks,
                                                  pass->n_rows);
        h->dqkv[k] = weft_g_temp(
            pass, "gradient of q, k, v", WEFT_MEM_ACTIVATIONS, l->index,
            weft_part_dqkv_bytes(pass->shape, m->blocks, pass->n_rows),
            m->place);
        if (shared)
            h->shared[k] = weft_g_temp(pass, "gradient of shared k, v",
                                       WEFT_MEM_ACTIVATIONS, l->index, shared,
                                       m->place);
        if (norms)
            h->norms[k] = weft_g_temp(pass, "gradient of head norms",
                                      WEFT_MEM_ACTIVATIONS, l->index, norms,
                                      m->place);
    }
}

static void attend(const struct weft_g_layer *l, struct heads *h)
{
    const struct weft_g_pass *pass = l->pass;
    struct weft_g_exchange shared;
    struct weft_g_turn t = {0}, u = {0};
    while (weft_g_next_member(pass, l->stage, &t))
        weft_insert_heads_backward_part(
            pass->seq, &t.where, pass->shape, t.m->blocks,
            &l->fwd[t.m->place], &l->bwd[t.m->place], l->index,
            l->batch->at[t.p], l->kept->member[t.k], l->dx->at[t.p], l->grad,
            h->dqkv[t.k], h->shared[t.k]);
    weft_g_exchange(pass, l->stage, h->shared, l->batch, false, 0, 1,
                    l->stage->n_places, &shared);
    roots_create(l, h->roots);
    while (weft_g_next_member(pass, l->stage, &u))
        weft_insert_qkv_backward_part(
            pass->seq, &u.where, pass->shape, u.m->blocks,
            &l->fwd[u.m->place], &l->bwd[u.m->place], l->index,
            l->batch->at[u.p], l->x->at[u.p], l->kept->member[u.k],
            shared.n[u.p], shared.part[u.p], h->dqkv[u.k], l->grad,
            h->roots[u.k], h->norms[u.k]);
    weft_g_exchange_release(&shared);
}

static void attention(const struct weft_g_layer *l)
{
    const struct weft_g_pass *pass = l->pass;
    struct weft_g_exchange parts, norms = {.n_temp = 0};
    struct weft_g_turn t = {0};
    struct heads h;
    heads_create(l, &h);
    attend(l, &h);
    weft_g_exchange(pass, l->stage, h.roots, l->batch, false,
                    pass->shape->hidden, 1, l->stage->n_places, &parts);
    if (pass->shape->qk_norm)
        weft_g_exchange(pass, l->stage, h.norms, l->batch, false,
                        pass->shape->head_dim, 2, 1, &norms);
    while (weft_g_next_place(pass, l->stage, &t))
        weft_insert_attention_norm_backward(
            pass->seq, &t.where, pass->shape, &l->fwd[t.m->place], l->index,
            l->batch->at[t.p], l->x->at[t.p], parts.n[t.p], parts.part[t.p],
            pass->shape->qk_norm && t.p == 0 ? norms.part[0] : NULL,
            l->dx->at[t.p], t.p == 0 ? l->grad : NULL);
    weft_g_exchange_release(&parts);
    weft_g_exchange_release(&norms);
    weft_g_release_all(h.roots, l->stage->n);
    weft_g_release_all(h.dqkv, l->stage->n);
    weft_g_release_all(h.shared, l->stage->n);
    weft_g_release_all(h.norms, l->stage->n);
}

static void backward(const struct weft_g_layer *l)
{
    struct weft_g_turn t = {0};
    if (l->stage->n > 1) {
        mlp(l);
        attention(l);
        return;
    }
    weft_g_next_member(l->pass, l->stage, &t);
    weft_insert_layer_backward(l->pass->seq, &t.where, l->pass->shape,
                               &l->fwd[t.m->place], &l->bwd[t.m->place],
                               l->index, l->batch->at[0], l->x->at[0],
                               l->kept->member[0], l->dx->at[0], l->grad);
}

/* One member recomputes the layer in the task itself. */
void weft_g_layer_backward(const struct weft_g_layer *layer, bool recompute)
{
    struct weft_g_layer l = *layer;
    struct weft_g_kept kept = {.n = 0};
    const struct weft_g_gang gang = {"layer_backward", l.index, NULL};
    if (weft_g_gang_begin(l.pass, l.stage, &gang)) {
        weft_g_gang_layer(&l, true);
        weft_gang_word(l.pass->rt, recompute);
        if (weft_g_gang_again(l.pass, &gang))
            return;
    }
    if (recompute && l.stage->n > 1) {
        weft_g_kept_create(l.pass, l.stage, l.index, &kept);
        l.kept = &kept;
        weft_g_layer_forward(&l);
    }
    backward(&l);
    weft_g_kept_release(&kept);
    weft_g_gang_end(l.pass, &gang);
}

void weft_g_stage_embed_backward(const struct weft_g_pass *pass,
                                 const struct weft_g_stage *stage,
                                 const struct weft_g_value *batch,
                                 const struct weft_g_value *dx,
                                 const struct weft_params *grad)
{
    struct weft_g_turn t = {0};
    const struct weft_g_gang gang = {"embed_backward", -1, NULL};
    if (weft_g_gang_begin(pass, stage, &gang)) {
        weft_g_gang_blocks(pass, grad->embed);
        weft_g_gang_batch(pass, stage, batch);
        weft_g_gang_value(pass, stage, dx);
        if (weft_g_gang_again(pass, &gang))
            return;
    }
    while (weft_g_next_member(pass, stage, &t))
        weft_insert_embed_backward_part(pass->seq, &t.where, pass->shape,
                                        t.m->blocks, batch->at[t.p],
                                        dx->at[t.p], grad);
    weft_g_gang_end(pass, &gang);
}
