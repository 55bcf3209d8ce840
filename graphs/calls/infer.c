/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "graphs/calls/stage.h"

static enum weft_pack_targets targets_of(enum weft_g_infer_kind kind)
{
    return kind == WEFT_INFER_SCORE       ? WEFT_TARGETS_LAST
         : kind == WEFT_INFER_LOGPROB_ALL ? WEFT_TARGETS_ALL
                                          : WEFT_TARGETS_RESPONSE;
}

/* The others are by the score vector. */
static bool by_language_head(enum weft_g_infer_kind kind)
{
    return kind == WEFT_INFER_LOGPROB || kind == WEFT_INFER_LOGPROB_ALL;
}

int32_t weft_g_infer_out_place(const struct weft_g_layout *layout, int32_t dp)
{
    return weft_g_layout_member(layout, dp, layout->plan.pp - 1, 0)->place;
}

/* Packs the samples into a batch, at the first stage's place number 0. */
static struct weft_tile *pack_batch(const struct weft_g_pass *pass,
                                    const struct weft_g_layout *places,
                                    const struct weft_g_stage *first,
                                    enum weft_pack_targets targets, int32_t n,
                                    const struct weft_pack_sample *pack,
                                    int32_t n_runs)
{
    struct weft_batch layout;
    weft_batch_layout((int32_t) pass->n_rows, n_runs, pass->n_targets, false,
                      &layout);
    weft_g_pass_expect(pass, places,
                       &(struct weft_gpu_pass){.n_runs = n_runs,
                                               .batch_bytes = layout.bytes});
    struct weft_tile *batch = weft_g_temp(pass, "inference batch",
                                          WEFT_MEM_SAMPLES, -1, layout.bytes,
                                          first->place[0]);
    struct weft_where where = weft_g_where_at(pass, &first->member[0]);
    weft_insert_pack(pass->seq, &where, targets, false, n, pack, NULL, batch);
    return batch;
}

/* A stage by tasks of its members' parts. */
static void by_parts(const struct weft_g_pass *pass,
                     const struct weft_g_view *view,
                     const struct weft_g_stage *stage,
                     enum weft_g_infer_kind kind, float inv_temperature,
                     int32_t n, struct weft_tile *const out[],
                     const struct weft_g_value *batch,
                     const struct weft_g_value *x)
{
    if (stage->is_first)
        weft_g_stage_embed(pass, stage, view->fwd, batch, x);
    for (int32_t l = stage->first; l < stage->end; l++)
        weft_g_layer_forward(&(struct weft_g_layer){.pass = pass,
                                                    .stage = stage,
                                                    .fwd = view->fwd,
                                                    .index = l,
                                                    .batch = batch,
                                                    .x = x,
                                                    .y = x});
    if (!stage->is_last)
        return;
    if (by_language_head(kind)) {
        weft_g_stage_logprob(pass, stage, view->fwd, batch, x,
                             inv_temperature, n, out);
    } else {
        struct weft_where where = weft_g_where_at(pass, &stage->member[0]);
        weft_insert_value(pass->seq, &where, pass->shape,
                          &view->fwd[stage->place[0]], batch->at[0], x->at[0],
                          n, out);
    }
}

/* The same of a tp group that is a gang, in one task of each member. */
static void by_gang(const struct weft_g_pass *pass,
                    const struct weft_g_view *view,
                    const struct weft_g_stage *stage,
                    enum weft_g_infer_kind kind, float inv_temperature,
                    int32_t n, struct weft_tile *const out[],
                    const struct weft_g_value *batch,
                    const struct weft_g_value *x)
{
    struct weft_members members;
    weft_g_stage_members(pass, stage, &members);
    weft_insert_infer_stage(pass->seq, &members, pass->shape,
                            &view->fwd[stage->place[0]], batch->at[0],
                            x->at[0], !by_language_head(kind),
                            inv_temperature, n, out);
}

/* Submits the stages one after another; the last one writes the samples' `out`
 * tiles. */
static void through(const struct weft_g_pass *pass,
                    const struct weft_g_view *view, int32_t dp,
                    enum weft_g_infer_kind kind, float inv_temperature,
                    int32_t n, struct weft_tile *const out[],
                    struct weft_tile *batch, int32_t batch_place)
{
    bool gang = view->layout.is_gang && view->layout.plan.tp > 1;
    struct weft_g_stage stage, before = {.n = 0};
    struct weft_g_value x, previous = {.own = 0}, b;
    for (int32_t s = 0; s < view->layout.plan.pp; s++) {
        weft_g_stage_get(&view->layout, dp, s, &stage);
        weft_g_value_of_tile(pass, batch, batch_place, &stage, &b);
        if (stage.is_first) {
            weft_g_value_rows(pass, &stage, "activation", -1, &x);
        } else {
            /* Layers write their output over their input, so the stage can
             * use the tiles of the previous one. */
            weft_g_value_expect(pass, &before, &stage, WEFT_MEM_ACTIVATIONS,
                                weft_g_rows_bytes(pass), &b, &x);
            weft_g_value_fetch(pass, &before, &previous, &stage, &x);
        }
        if (gang)
            by_gang(pass, view, &stage, kind, inv_temperature, n, out, &b,
                    &x);
        else
            by_parts(pass, view, &stage, kind, inv_temperature, n, out, &b,
                     &x);
        weft_g_value_release(&b);
        weft_g_value_hand_over(&previous, &x);
        previous = x;
        before = stage;
    }
    weft_g_value_release(&previous);
}

void weft_g_infer(struct weft_seq *seq, const struct weft_where *where,
                  const struct weft_g_view *view, int32_t dp,
                  enum weft_g_infer_kind kind, float inv_temperature,
                  int32_t n, const struct weft_g_infer_sample *sample,
                  struct weft_g_copies *copies,
                  const struct weft_g_rows *most)
{
    const struct weft_g_model *model = view->model;
    enum weft_pack_targets targets = targets_of(kind);
    struct weft_pack_sample *pack = weft_insert_alloc(
        (size_t) n, sizeof *pack, "samples");
    struct weft_tile **out = weft_insert_alloc((size_t) n, sizeof *out,
                                               "samples");
    struct weft_g_stage first;
    struct weft_g_pass pass = {.rt = model->rt,
                               .seq = seq,
                               .name = model->name,
                               .shape = &model->shape,
                               .where = *where,
                               .order = model->order,
                               .any_device = view->layout.any_device};
    weft_g_stage_get(&view->layout, dp, 0, &first);
    for (int32_t i = 0; i < n; i++) {
        pack[i] = (struct weft_pack_sample){
            .rollout = weft_g_sample_at(copies, seq, where, sample[i].rollout,
                                        first.place[0]),
            .n_prompt = sample[i].n_prompt,
            .n_total = sample[i].n_total,
            .skips_pad = model->shape.score_skips_pad,
            .pad = model->shape.score_pad};
        out[i] = sample[i].out;
        pass.n_rows += sample[i].n_total;
        pass.n_targets += weft_pack_n_targets(targets, &pack[i]);
    }
    if (most) {
        pass.n_rows = most->n_rows;
        pass.n_targets = most->n_targets;
    }
    int32_t n_runs = most ? most->n_runs : n;
    struct weft_tile *batch = pack_batch(&pass, &view->layout, &first,
                                         targets, n, pack, n_runs);
    through(&pass, view, dp, kind, inv_temperature, n, out, batch,
            first.place[0]);
    weft_tile_release(batch);
    weft_free(pack);
    weft_free(out);
}
