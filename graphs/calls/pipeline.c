/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/calls/pipeline.h"

#include <string.h>

#include "base/alloc.h"

static enum weft_pack_targets targets_of(const struct weft_g_train *t)
{
    return t->loss.loss == WEFT_LOSS_BRADLEY_TERRY ? WEFT_TARGETS_LAST
                                                   : WEFT_TARGETS_RESPONSE;
}

int weft_g_flight_init(const struct weft_g_train *t, struct weft_seq *seq,
                       int32_t dp, int32_t group, int32_t number, int32_t n,
                       const int32_t *index,
                       const struct weft_pack_sample *sample,
                       struct weft_g_flight *out, struct weft_err *err)
{
    const struct weft_g_model *m = t->model;
    size_t layers = (size_t) m->shape.n_layers;
    size_t pp = (size_t) m->home.plan.pp;
    struct weft_g_flight f = {
        .pass = weft_g_train_pass(t, seq, number),
        .dp = dp,
        .group = group,
        .n = n,
        .index = weft_alloc((size_t) n, sizeof *f.index),
        .x = weft_alloc(layers, sizeof *f.x),
        .kept = weft_alloc(layers, sizeof *f.kept),
        .out = weft_alloc(pp, sizeof *f.out),
        .dx = weft_alloc(pp, sizeof *f.dx),
        .in = weft_alloc(2 * pp, sizeof *f.in),
        .batch_place = weft_g_layout_member(&m->home, dp, 0, 0)->place,
    };
    f.pass.order = t->order;
    *out = f;
    if (!f.index || !f.x || !f.kept || !f.out || !f.dx || !f.in)
        return weft_err_nomem(err, "a micro-batch", layers * sizeof *f.kept);
    struct weft_batch layout;
    int32_t n_runs = n;
    memcpy(f.index, index, (size_t) n * sizeof *index);
    for (int32_t i = 0; i < n; i++) {
        const struct weft_pack_sample *s = &sample[index[i]];
        out->pass.n_rows += s->n_total;
        out->pass.n_targets += weft_pack_n_targets(targets_of(t), s);
    }
    if (t->most) {
        out->pass.n_rows = t->most->n_rows;
        out->pass.n_targets = t->most->n_targets;
        n_runs = t->most->n_runs;
    }
    weft_batch_layout((int32_t) out->pass.n_rows, n_runs, out->pass.n_targets,
                      true, &layout);
    out->batch_bytes = layout.bytes;
    weft_g_pass_expect(&out->pass, &m->home,
                       &(struct weft_gpu_pass){.n_runs = n_runs,
                                               .batch_bytes = layout.bytes,
                                               .backward = true});
    return 0;
}

void weft_g_flight_release(const struct weft_g_train *t,
                           struct weft_g_flight *f)
{
    const struct weft_g_model *m = t->model;
    for (int32_t l = 0; l < m->shape.n_layers; l++) {
        if (f->x)
            weft_g_value_release(&f->x[l]);
        if (f->kept)
            weft_g_kept_release(&f->kept[l]);
    }
    for (int32_t s = 0; s < m->home.plan.pp; s++) {
        if (f->out)
            weft_g_value_release(&f->out[s]);
        if (f->dx)
            weft_g_value_release(&f->dx[s]);
        for (int32_t k = 0; k < 2 && f->in; k++) {
            weft_g_value_release(&f->in[2 * s + k].batch);
            weft_g_value_release(&f->in[2 * s + k].x);
        }
    }
    weft_tile_release(f->batch);
    f->batch = NULL;
    weft_free(f->x);
    weft_free(f->kept);
    weft_free(f->out);
    weft_free(f->dx);
    weft_free(f->in);
    f->in = NULL;
    f->x = f->out = f->dx = NULL;
    f->kept = NULL;
}

/* ---- Forward ----------------------------------------------------------- */

static void pack(const struct weft_g_train *t, struct weft_g_flight *f,
                 const struct weft_g_stage *first,
                 const struct weft_pack_sample *sample)
{
    struct weft_g_pass *pass = &f->pass;
    int32_t place = f->batch_place;
    struct weft_pack_sample *here = weft_insert_alloc(
        (size_t) f->n, sizeof *here, "samples");
    for (int32_t i = 0; i < f->n; i++) {
        struct weft_tile **tile[] = {&here[i].rollout, &here[i].advantage,
                                     &here[i].value, &here[i].ref};
        here[i] = sample[f->index[i]];
        here[i].skips_pad = pass->shape->score_skips_pad;
        here[i].pad = pass->shape->score_pad;
        for (size_t k = 0; k < WEFT_COUNT(tile); k++)
            *tile[k] = weft_g_sample_at(t->copies, pass->seq, &pass->where,
                                        *tile[k], place);
    }
    f->batch = weft_g_temp(pass, "batch", WEFT_MEM_SAMPLES, -1,
                           f->batch_bytes, place);
    struct weft_where where = weft_g_where_at(pass, &first->member[0]);
    weft_insert_pack(
        pass->seq, &where, targets_of(t), true, f->n, here,
        weft_g_copy_at(t->copies, pass->seq, &pass->where, t->moments, place),
        f->batch);
    weft_free(here);
}

void weft_g_flight_expect(const struct weft_g_train *t,
                          struct weft_g_flight *f, int32_t s, bool backward)
{
    const struct weft_g_layout *home = &t->model->home;
    struct weft_g_arrival *in = &f->in[2 * s + backward];
    struct weft_g_stage stage, from = weft_g_stage_of_place(f->batch_place);
    if (in->expected)
        return;
    in->expected = true;
    weft_g_stage_get(home, f->dp, s, &stage);
    weft_g_value_expect(&f->pass, &from, &stage, WEFT_MEM_SAMPLES,
                        f->batch_bytes, NULL, &in->batch);
    if (backward ? stage.is_last : stage.is_first)
        return;
    weft_g_stage_get(home, f->dp, backward ? s + 1 : s - 1, &from);
    weft_g_value_expect(&f->pass, &from, &stage, WEFT_MEM_ACTIVATIONS,
                        weft_g_rows_bytes(&f->pass), NULL, &in->x);
}

/* Brings what a subtask receives to the stage's places: the batch, and its
 * input or the gradient of its output. */
static struct weft_g_arrival arrive(struct weft_g_flight *f,
                                    const struct weft_g_stage *stage,
                                    bool backward)
{
    struct weft_g_arrival *in = &f->in[2 * stage->index + backward];
    struct weft_g_arrival out = *in;
    struct weft_g_stage from = weft_g_stage_of_place(f->batch_place);
    struct weft_g_value batch = {.at = {f->batch}};
    *in = (struct weft_g_arrival){.batch = {.own = 0}};
    weft_g_value_fetch(&f->pass, &from, &batch, stage, &out.batch);
    return out;
}

void weft_g_flight_forward(const struct weft_g_train *t,
                           struct weft_g_flight *f, int32_t s,
                           const struct weft_pack_sample *sample,
                           struct weft_g_gather *gather)
{
    const struct weft_g_model *m = t->model;
    struct weft_g_pass *pass = &f->pass;
    struct weft_g_stage stage, before;
    bool keep = !m->home.plan.recompute;
    weft_g_stage_get(&m->home, f->dp, s, &stage);
    if (stage.is_first)
        pack(t, f, &stage, sample);
    struct weft_g_arrival in = arrive(f, &stage, false);
    if (stage.is_first) {
        weft_g_value_rows(pass, &stage, "activation", 0, &f->x[0]);
        weft_g_stage_embed(pass, &stage,
                           weft_g_gather_embed(gather, pass, &stage),
                           &in.batch, &f->x[0]);
    } else {
        weft_g_stage_get(&m->home, f->dp, s - 1, &before);
        f->x[stage.first] = in.x;
        weft_g_value_fetch(pass, &before, &f->out[s - 1], &stage,
                           &f->x[stage.first]);
    }
    for (int32_t l = stage.first; l < stage.end; l++) {
        bool last = l + 1 == stage.end;
        struct weft_g_value *y = last ? &f->out[s] : &f->x[l + 1];
        weft_g_value_rows(pass, &stage, "activation", last ? -1 : l + 1, y);
        if (keep)
            weft_g_kept_create(pass, &stage, l, &f->kept[l]);
        weft_g_layer_forward(&(struct weft_g_layer){
            .pass = pass,
            .stage = &stage,
            .fwd = weft_g_gather_layer(gather, pass, &stage, l, false),
            .index = l,
            .batch = &in.batch,
            .x = &f->x[l],
            .y = y,
            .kept = keep ? &f->kept[l] : NULL});
    }
    weft_g_value_release(&in.batch);
}

/* ---- Backward ---------------------------------------------------------- */

static void loss(const struct weft_g_train *t, struct weft_g_flight *f,
                 const struct weft_g_stage *stage,
                 const struct weft_g_value *batch,
                 const struct weft_params *grad, struct weft_g_gather *gather)
{
    struct weft_g_pass *pass = &f->pass;
    int32_t s = stage->index;
    size_t bytes = (size_t) f->n * sizeof(double)
                 * (size_t) weft_loss_n_stats(t->loss.loss);
    const struct weft_params *bwd;
    const struct weft_params *fwd = weft_g_gather_head(gather, pass, stage,
                                                       &bwd);
    f->stats = weft_g_temp(pass, "statistics", WEFT_MEM_SAMPLES, -1, bytes,
                           stage->place[0]);
    weft_g_value_rows(pass, stage, "gradient of activation", -1, &f->dx[s]);
    struct weft_g_value kl = {.own = 0}, gate = kl;
    for (int32_t p = 0; p < stage->n_places; p++) {
        gate.at[p] = weft_g_copy_at(t->copies, pass->seq, &pass->where,
                                    t->loss.gate, stage->place[p]);
        kl.at[p] = weft_g_copy_at(t->copies, pass->seq, &pass->where,
                                  t->loss.kto_kl, stage->place[p]);
    }
    weft_g_stage_loss(
        &(struct weft_g_loss){.pass = pass,
                              .stage = stage,
                              .fwd = fwd,
                              .bwd = bwd,
                              .grad = grad,
                              .args = &t->loss,
                              .kl = &kl,
                              .gate = &gate,
                              .batch = batch,
                              .x = &f->out[s],
                              .dx = &f->dx[s],
                              .stats = f->stats,
                              .recompute = t->model->home.plan.recompute});
    weft_g_value_release(&f->out[s]);
}

static void layer_backward(const struct weft_g_train *t,
                           struct weft_g_flight *f,
                           const struct weft_g_stage *stage, int32_t l,
                           const struct weft_g_value *batch,
                           const struct weft_params *grad,
                           struct weft_g_gather *gather)
{
    struct weft_g_pass *pass = &f->pass;
    const struct weft_params *fwd = weft_g_gather_layer(gather, pass, stage,
                                                        l, true);
    weft_g_layer_backward(
        &(struct weft_g_layer){.pass = pass,
                               .stage = stage,
                               .fwd = fwd,
                               .index = l,
                               .batch = batch,
                               .x = &f->x[l],
                               .kept = &f->kept[l],
                               .bwd = weft_g_gather_transposed(gather),
                               .grad = grad,
                               .dx = &f->dx[stage->index]},
        t->model->home.plan.recompute);
    weft_g_kept_release(&f->kept[l]);
    /* Tiles that another stage's value shares are released with that value. */
    weft_g_value_release(&f->x[l]);
}

void weft_g_flight_backward(const struct weft_g_train *t,
                            struct weft_g_flight *f, int32_t s,
                            const struct weft_params *grad,
                            struct weft_g_gather *gather)
{
    const struct weft_g_model *m = t->model;
    struct weft_g_pass *pass = &f->pass;
    struct weft_g_stage stage, after;
    weft_g_stage_get(&m->home, f->dp, s, &stage);
    struct weft_g_arrival in = arrive(f, &stage, true);
    if (stage.is_last) {
        loss(t, f, &stage, &in.batch, grad, gather);
    } else {
        weft_g_stage_get(&m->home, f->dp, s + 1, &after);
        f->dx[s] = in.x;
        weft_g_value_fetch(pass, &after, &f->dx[s + 1], &stage, &f->dx[s]);
        weft_g_value_hand_over(&f->dx[s + 1], &f->dx[s]);
        weft_g_value_release(&f->out[s]);
    }
    for (int32_t l = stage.end - 1; l >= stage.first; l--)
        layer_backward(t, f, &stage, l, &in.batch, grad, gather);
    if (stage.is_first) {
        if (m->shape.lora_rank == 0)
            weft_g_stage_embed_backward(pass, &stage, &in.batch, &f->dx[0],
                                        grad);
        weft_g_value_release(&f->dx[0]);
    }
    weft_g_value_release(&in.batch);
}
