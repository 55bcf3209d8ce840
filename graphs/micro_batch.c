/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/micro_batch.h"

#include "base/alloc.h"

/* Temporary tiles of one micro-batch. */
struct activations {
    struct weft_tile *batch, *dx, *stats;
    struct weft_tile **x, **saved; /* (n_layers + 1), (n_layers) */
};

static void activations_release(struct activations *a, int32_t n_layers)
{
    weft_tile_release(a->batch);
    weft_tile_release(a->dx);
    for (int32_t l = 0; a->x && l <= n_layers; l++)
        weft_tile_release(a->x[l]);
    for (int32_t l = 0; a->saved && l < n_layers; l++)
        weft_tile_release(a->saved[l]);
    weft_free(a->x);
    weft_free(a->saved);
}

static int activations_init(const struct weft_g_train *t, int64_t n_rows,
                            const struct weft_batch *layout,
                            struct activations *a, struct weft_err *err)
{
    const struct weft_g_model *m = t->model;
    int32_t n_layers = m->shape.n_layers;
    size_t x_bytes = (size_t) (n_rows * m->shape.hidden) * sizeof(float);
    size_t saved = weft_layer_saved_bytes(&m->shape, n_rows);
    size_t stats = (size_t) layout->n_runs * sizeof(double)
                 * (size_t) weft_loss_n_stats(t->loss.loss);
    struct weft_tile_id id = {m->name, "activation", 0, -1, -1, 0};
    *a = (struct activations){
        .x = weft_alloc((size_t) n_layers + 1, sizeof *a->x),
        .saved = weft_alloc((size_t) n_layers, sizeof *a->saved),
    };
    if (!a->x || !a->saved)
        return weft_err_nomem(err, "a micro-batch", x_bytes);
    int rc = weft_tile_create_temp(m->rt, &id, WEFT_MEM_SAMPLES,
                                   layout->bytes, &a->batch, err);
    if (!rc)
        rc = weft_tile_create_temp(m->rt, &id, WEFT_MEM_ACTIVATIONS, x_bytes,
                                   &a->dx, err);
    if (!rc)
        rc = weft_tile_create_temp(m->rt, &id, WEFT_MEM_SAMPLES, stats,
                                   &a->stats, err);
    for (int32_t l = 0; l <= n_layers && !rc; l++) {
        id.layer = l;
        rc = weft_tile_create_temp(m->rt, &id, WEFT_MEM_ACTIVATIONS, x_bytes,
                                   &a->x[l], err);
        if (!rc && l < n_layers && !t->recompute)
            rc = weft_tile_create_temp(m->rt, &id, WEFT_MEM_ACTIVATIONS,
                                       saved, &a->saved[l], err);
    }
    return rc;
}

size_t weft_g_train_bytes(const struct weft_shape *shape, int64_t n_rows,
                          bool recompute)
{
    size_t x = (size_t) (n_rows * shape->hidden) * sizeof(float);
    size_t saved = recompute ? 0 : weft_layer_saved_bytes(shape, n_rows);
    return ((size_t) shape->n_layers + 2) * x
         + (size_t) shape->n_layers * saved;
}

int weft_g_micro_batch(struct weft_seq *seq, const struct weft_where *where,
                       const struct weft_g_train *t, int32_t n,
                       const int32_t *index,
                       const struct weft_pack_sample *sample,
                       const struct weft_params *grad,
                       struct weft_g_stats *stats_out, struct weft_err *err)
{
    const struct weft_g_model *m = t->model;
    const struct weft_shape *shape = &m->shape;
    int32_t n_layers = shape->n_layers, n_rows = 0, n_targets = 0;
    struct activations a = {0};
    struct weft_batch layout;
    struct weft_pack_sample *pack = weft_alloc((size_t) n, sizeof *pack);
    int32_t *who = weft_alloc((size_t) n, sizeof *who);
    int rc = 0;

    if (!pack || !who) {
        rc = weft_err_nomem(err, "a micro-batch", (size_t) n * sizeof *pack);
        goto out;
    }
    for (int32_t i = 0; i < n; i++) {
        pack[i] = sample[index[i]];
        who[i] = index[i];
        n_rows += pack[i].n_total;
        n_targets += pack[i].n_total - pack[i].n_prompt;
    }
    weft_batch_layout(n_rows, n, n_targets, true, &layout);
    rc = activations_init(t, n_rows, &layout, &a, err);
    if (rc)
        goto out;
    weft_insert_pack(seq, where, WEFT_TARGETS_RESPONSE, true, n, pack,
                     t->moments, a.batch);
    weft_insert_embed(seq, where, shape, &m->fwd, a.batch, a.x[0]);
    for (int32_t l = 0; l < n_layers; l++)
        weft_insert_layer_forward(seq, where, shape, &m->fwd, l, a.batch,
                                  a.x[l], a.x[l + 1], a.saved[l]);
    weft_insert_loss(seq, where, shape, &m->fwd, &m->bwd, &t->loss, a.batch,
                     a.x[n_layers], a.dx, grad, a.stats);
    for (int32_t l = n_layers - 1; l >= 0; l--)
        weft_insert_layer_backward(seq, where, shape, &m->fwd, &m->bwd, l,
                                   a.batch, a.x[l], a.saved[l], a.dx, grad);
    weft_insert_embed_backward(seq, where, shape, a.batch, a.dx, grad);
    *stats_out = (struct weft_g_stats){a.stats, n, who};
    a.stats = NULL;
    who = NULL;
out:
    weft_tile_release(a.stats);
    activations_release(&a, n_layers);
    weft_free(pack);
    weft_free(who);
    return rc;
}
