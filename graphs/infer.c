/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "graphs/graphs.h"

static enum weft_pack_targets targets_of(enum weft_g_infer_kind kind)
{
    return kind == WEFT_INFER_SCORE       ? WEFT_TARGETS_LAST
         : kind == WEFT_INFER_LOGPROB_ALL ? WEFT_TARGETS_ALL
                                          : WEFT_TARGETS_RESPONSE;
}

void weft_g_infer(struct weft_seq *seq, const struct weft_where *where,
                  const struct weft_g_model *model,
                  enum weft_g_infer_kind kind, float inv_temperature,
                  int32_t n, const struct weft_g_infer_sample *sample)
{
    const struct weft_shape *shape = &model->shape;
    enum weft_pack_targets targets = targets_of(kind);
    struct weft_pack_sample *pack = weft_alloc((size_t) n, sizeof *pack);
    struct weft_tile **out = weft_alloc((size_t) n, sizeof *out);
    struct weft_tile *batch = NULL, *x = NULL;
    struct weft_tile_id id = {model->name, "inference batch", 0, -1, -1, 0};
    struct weft_err err = {0};
    int64_t n_rows = 0, n_targets = 0;
    struct weft_batch layout;

    if (!pack || !out) {
        weft_seq_fail(seq, WEFT_ENOMEM, "out of memory for %d samples", n);
        goto out;
    }
    for (int32_t i = 0; i < n; i++) {
        pack[i] = (struct weft_pack_sample){.rollout = sample[i].rollout,
                                            .n_prompt = sample[i].n_prompt,
                                            .n_total = sample[i].n_total};
        out[i] = sample[i].out;
        n_rows += sample[i].n_total;
        n_targets += weft_pack_n_targets(targets, sample[i].n_prompt,
                                         sample[i].n_total);
    }
    weft_batch_layout((int32_t) n_rows, n, (int32_t) n_targets, false,
                      &layout);
    int rc = weft_tile_create_temp(model->rt, &id, WEFT_MEM_SAMPLES,
                                   layout.bytes, &batch, &err);
    id.kind = "activation";
    if (!rc)
        rc = weft_tile_create_temp(model->rt, &id, WEFT_MEM_ACTIVATIONS,
                                   (size_t) (n_rows * shape->hidden) * 4, &x,
                                   &err);
    if (rc) {
        weft_seq_fail(seq, rc, "%s", err.text);
        goto out;
    }
    weft_insert_pack(seq, where, targets, false, n, pack, NULL, batch);
    weft_insert_embed(seq, where, shape, &model->fwd, batch, x);
    for (int32_t l = 0; l < shape->n_layers; l++)
        weft_insert_layer_forward(seq, where, shape, &model->fwd, l, batch, x,
                                  x, NULL);
    if (kind == WEFT_INFER_LOGPROB || kind == WEFT_INFER_LOGPROB_ALL)
        weft_insert_logprob(seq, where, shape, &model->fwd, batch, x,
                            inv_temperature, n, out);
    else
        weft_insert_value(seq, where, shape, &model->fwd, batch, x, n, out);
out:
    weft_tile_release(batch);
    weft_tile_release(x);
    weft_free(pack);
    weft_free(out);
}
