/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backward pass of a stage. All members have the norms' weights. Every
 * place computes a norm's backward pass for its own dx, but only place number
 * 0 adds to the gradient of the norm's weight.
 */
#include "graphs/calls/stage.h"

static void release_all(struct weft_tile *const tile[], int32_t n)
{
    for (int32_t k = 0; k < n; k++)
        weft_tile_release(tile[k]);
}

/* ---- Head -------------------------------------------------------------- */

/* With one member, or a scalar head, which is not divided among members: dx is
 * computed at place number 0 and copied to the others. */
static void loss_whole(
    const struct weft_g_pass *pass, const struct weft_g_stage *stage,
    const struct weft_params *fwd, const struct weft_params *bwd,
    const struct weft_loss_args *loss, const struct weft_g_value *kl,
    const struct weft_g_value *gate, const struct weft_g_value *batch,
    const struct weft_g_value *x, const struct weft_g_value *dx,
    const struct weft_params *grad, struct weft_tile *stats)
{
    struct weft_where where = weft_g_where_at(pass, &stage->member[0]);
    struct weft_loss_args here = *loss;
    here.kto_kl = kl->at[0];
    here.gate = gate->at[0];
    weft_insert_loss(pass->seq, &where, pass->shape, &fwd[stage->place[0]],
                     &bwd[stage->place[0]], &here, batch->at[0], x->at[0],
                     dx->at[0], grad, stats);
    weft_g_value_spread(pass, stage, dx);
}

void weft_g_stage_loss(
    const struct weft_g_pass *pass, const struct weft_g_stage *stage,
    const struct weft_params *fwd, const struct weft_params *bwd,
    const struct weft_loss_args *loss, const struct weft_g_value *kl,
    const struct weft_g_value *gate, const struct weft_g_value *batch,
    const struct weft_g_value *x, const struct weft_g_value *dx,
    const struct weft_params *grad, struct weft_tile *stats)
{
    struct weft_tile *part[WEFT_MAX_BLOCKS], *roots[WEFT_MAX_BLOCKS];
    struct weft_g_exchange parts;
    struct weft_g_value dloss;
    if (stage->n == 1 || pass->shape->scalar_head) {
        loss_whole(pass, stage, fwd, bwd, loss, kl, gate, batch, x, dx, grad,
                   stats);
        return;
    }
    weft_g_stage_head_parts(pass, stage, fwd, batch, x, loss->inv_temperature,
                            part, &parts);
    weft_g_value_create(pass, stage, "loss gradient", WEFT_MEM_ACTIVATIONS,
                        weft_part_dloss_bytes(pass->n_targets), &dloss);
    for (int32_t p = 0; p < stage->n_places; p++) {
        struct weft_where where = weft_g_where_at(
            pass, &stage->member[stage->lead[p]]);
        struct weft_loss_args here = *loss;
        here.kto_kl = kl->at[p];
        here.gate = gate->at[p];
        weft_insert_loss_merge(pass->seq, &where, pass->shape, &here,
                               batch->at[p], parts.n[p], parts.part[p],
                               dloss.at[p], p == 0 ? stats : NULL);
    }
    weft_g_exchange_release(&parts);
    weft_g_roots_create(pass, stage, -1,
                        (int64_t) pass->n_targets * pass->shape->hidden,
                        roots);
    for (int32_t k = 0; k < stage->n; k++) {
        const struct weft_g_member *m = &stage->member[k];
        struct weft_where where = weft_g_where_at(pass, m);
        int32_t p = weft_g_place_number(stage, k);
        weft_insert_head_backward_part(pass->seq, &where, pass->shape,
                                       m->blocks, &fwd[m->place],
                                       &bwd[m->place], loss, batch->at[p],
                                       x->at[p], dloss.at[p], grad, roots[k]);
    }
    weft_g_exchange(pass, stage, roots, batch, true, pass->shape->hidden, 1,
                    stage->n_places, &parts);
    for (int32_t p = 0; p < stage->n_places; p++) {
        struct weft_where where = weft_g_where_at(
            pass, &stage->member[stage->lead[p]]);
        weft_insert_head_norm_backward(pass->seq, &where, pass->shape,
                                       &fwd[stage->place[p]], batch->at[p],
                                       x->at[p], parts.n[p], parts.part[p],
                                       dx->at[p], p == 0 ? grad : NULL);
    }
    weft_g_exchange_release(&parts);
    weft_g_value_release(&dloss);
    release_all(part, stage->n);
    release_all(roots, stage->n);
}

/* ---- Layer ------------------------------------------------------------- */

struct layer {
    const struct weft_g_pass *pass;
    const struct weft_g_stage *stage;
    const struct weft_params *fwd, *bwd, *grad;
    int32_t index;
    const struct weft_g_value *batch, *x, *dx;
    const struct weft_g_kept *kept;
    struct weft_tile *roots[WEFT_MAX_BLOCKS];
};

static void roots_create(struct layer *l)
{
    weft_g_roots_create(l->pass, l->stage, l->index,
                        l->pass->n_rows * l->pass->shape->hidden, l->roots);
}

static void mlp(struct layer *l)
{
    const struct weft_g_pass *pass = l->pass;
    const struct weft_g_stage *stage = l->stage;
    struct weft_g_exchange parts;
    roots_create(l);
    for (int32_t k = 0; k < stage->n; k++) {
        const struct weft_g_member *m = &stage->member[k];
        struct weft_where where = weft_g_where_at(pass, m);
        int32_t p = weft_g_place_number(stage, k);
        weft_insert_mlp_backward_part(
            pass->seq, &where, pass->shape, m->blocks, &l->fwd[m->place],
            &l->bwd[m->place], l->index, l->batch->at[p],
            l->kept->x_mid.at[p], l->kept->member[k], l->dx->at[p], l->grad,
            l->roots[k]);
    }
    weft_g_exchange(pass, stage, l->roots, l->batch, false,
                    pass->shape->hidden, 1, stage->n_places, &parts);
    for (int32_t p = 0; p < stage->n_places; p++) {
        struct weft_where where = weft_g_where_at(
            pass, &stage->member[stage->lead[p]]);
        weft_insert_mlp_norm_backward(
            pass->seq, &where, pass->shape, &l->fwd[stage->place[p]],
            l->index, l->batch->at[p], l->kept->x_mid.at[p], parts.n[p],
            parts.part[p], l->dx->at[p], p == 0 ? l->grad : NULL);
    }
    weft_g_exchange_release(&parts);
    release_all(l->roots, stage->n);
}

/* Tiles of the attention half, by member. */
struct heads {
    struct weft_tile *dqkv[WEFT_MAX_BLOCKS], *shared[WEFT_MAX_BLOCKS];
    struct weft_tile *norms[WEFT_MAX_BLOCKS];
};

static void heads_create(const struct layer *l, struct heads *h)
{
    const struct weft_g_pass *pass = l->pass;
    *h = (struct heads){{NULL}, {NULL}, {NULL}};
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

static void attend(struct layer *l, struct heads *h)
{
    const struct weft_g_pass *pass = l->pass;
    const struct weft_g_stage *stage = l->stage;
    struct weft_g_exchange shared;
    for (int32_t k = 0; k < stage->n; k++) {
        const struct weft_g_member *m = &stage->member[k];
        struct weft_where where = weft_g_where_at(pass, m);
        int32_t p = weft_g_place_number(stage, k);
        weft_insert_heads_backward_part(
            pass->seq, &where, pass->shape, m->blocks, &l->fwd[m->place],
            &l->bwd[m->place], l->index, l->batch->at[p], l->kept->member[k],
            l->dx->at[p], l->grad, h->dqkv[k], h->shared[k]);
    }
    weft_g_exchange(pass, stage, h->shared, l->batch, false, 0, 1,
                    stage->n_places, &shared);
    roots_create(l);
    for (int32_t k = 0; k < stage->n; k++) {
        const struct weft_g_member *m = &stage->member[k];
        struct weft_where where = weft_g_where_at(pass, m);
        int32_t p = weft_g_place_number(stage, k);
        weft_insert_qkv_backward_part(
            pass->seq, &where, pass->shape, m->blocks, &l->fwd[m->place],
            &l->bwd[m->place], l->index, l->batch->at[p], l->x->at[p],
            l->kept->member[k], shared.n[p], shared.part[p], h->dqkv[k],
            l->grad, l->roots[k], h->norms[k]);
    }
    weft_g_exchange_release(&shared);
}

static void attention(struct layer *l)
{
    const struct weft_g_pass *pass = l->pass;
    const struct weft_g_stage *stage = l->stage;
    struct weft_g_exchange parts, norms = {.n_temp = 0};
    struct heads h;
    heads_create(l, &h);
    attend(l, &h);
    weft_g_exchange(pass, stage, l->roots, l->batch, false,
                    pass->shape->hidden, 1, stage->n_places, &parts);
    if (pass->shape->qk_norm)
        weft_g_exchange(pass, stage, h.norms, l->batch, false,
                        pass->shape->head_dim, 2, 1, &norms);
    for (int32_t p = 0; p < stage->n_places; p++) {
        struct weft_where where = weft_g_where_at(
            pass, &stage->member[stage->lead[p]]);
        weft_insert_attention_norm_backward(
            pass->seq, &where, pass->shape, &l->fwd[stage->place[p]],
            l->index, l->batch->at[p], l->x->at[p], parts.n[p], parts.part[p],
            pass->shape->qk_norm && p == 0 ? norms.part[0] : NULL,
            l->dx->at[p], p == 0 ? l->grad : NULL);
    }
    weft_g_exchange_release(&parts);
    weft_g_exchange_release(&norms);
    release_all(l->roots, stage->n);
    release_all(h.dqkv, stage->n);
    release_all(h.shared, stage->n);
    release_all(h.norms, stage->n);
}

void weft_g_stage_layer_backward(
    const struct weft_g_pass *pass, const struct weft_g_stage *stage,
    const struct weft_params *fwd, const struct weft_params *bwd,
    int32_t layer, const struct weft_g_value *batch,
    const struct weft_g_value *x, const struct weft_g_kept *kept,
    const struct weft_g_value *dx, const struct weft_params *grad)
{
    struct layer l = {.pass = pass,
                      .stage = stage,
                      .fwd = fwd,
                      .bwd = bwd,
                      .grad = grad,
                      .index = layer,
                      .batch = batch,
                      .x = x,
                      .dx = dx,
                      .kept = kept};
    if (stage->n > 1) {
        mlp(&l);
        attention(&l);
        return;
    }
    struct weft_where where = weft_g_where_at(pass, &stage->member[0]);
    weft_insert_layer_backward(pass->seq, &where, pass->shape,
                               &fwd[stage->place[0]], &bwd[stage->place[0]],
                               layer, batch->at[0], x->at[0], kept->member[0],
                               dx->at[0], grad);
}

void weft_g_stage_embed_backward(const struct weft_g_pass *pass,
                                 const struct weft_g_stage *stage,
                                 const struct weft_g_value *batch,
                                 const struct weft_g_value *dx,
                                 const struct weft_params *grad)
{
    for (int32_t k = 0; k < stage->n; k++) {
        const struct weft_g_member *m = &stage->member[k];
        struct weft_where where = weft_g_where_at(pass, m);
        int32_t p = weft_g_place_number(stage, k);
        weft_insert_embed_backward_part(pass->seq, &where, pass->shape,
                                        m->blocks, batch->at[p], dx->at[p],
                                        grad);
    }
}
