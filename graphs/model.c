/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "graphs/graphs.h"

/* What a set of parameter-shaped tiles is for. */
enum use { USE_FWD, USE_BWD, USE_OPT, USE_GRAD };

static size_t use_bytes(const struct weft_shape *shape, enum use use,
                        enum weft_tile_kind kind, int32_t block)
{
    struct weft_layout l;
    weft_layout_get(shape, kind, block, &l);
    bool tied_embed = shape->tied && kind == WEFT_TILE_EMBED;
    switch (use) {
    case USE_FWD:
        return l.fwd_bytes;
    case USE_BWD:
        return l.bwd_bytes;
    case USE_OPT:
        return tied_embed ? 0 : weft_opt_bytes(shape, kind, block);
    default:
        return l.n_flat * sizeof(float);
    }
}

/* Bytes of a whole set. */
static size_t set_bytes(const struct weft_shape *s, enum use use)
{
    size_t bytes = use_bytes(s, use, WEFT_TILE_FINAL, 0)
                 + (size_t) s->n_layers
                       * use_bytes(s, use, WEFT_TILE_NORMS, 0);
    for (int32_t b = 0; b < s->n_blocks; b++)
        bytes += use_bytes(s, use, WEFT_TILE_EMBED, b)
               + use_bytes(s, use, WEFT_TILE_HEAD, b)
               + (size_t) s->n_layers * use_bytes(s, use, WEFT_TILE_LAYER, b);
    return bytes;
}

void weft_g_model_bytes(const struct weft_shape *shape, bool trained,
                        size_t bytes[WEFT_N_MEM_CLASSES])
{
    bytes[WEFT_MEM_WEIGHTS] += set_bytes(shape, USE_FWD);
    if (trained) {
        bytes[WEFT_MEM_WEIGHTS] += set_bytes(shape, USE_BWD);
        bytes[WEFT_MEM_OPTIMIZER] += set_bytes(shape, USE_OPT);
    }
}

size_t weft_g_grads_bytes(const struct weft_shape *shape, int32_t n_groups,
                          int32_t dp)
{
    size_t n = 0;
    for (int32_t d = 0; d < dp; d++)
        n += (size_t) weft_g_grads_needed(n_groups, dp, d);
    return n * set_bytes(shape, USE_GRAD);
}

static int create(const struct weft_g_model *m, enum use use,
                  enum weft_tile_kind kind, int32_t layer, int32_t block,
                  struct weft_tile **out, struct weft_err *err)
{
    static const char *const name[] = {"weights", "transposed weights",
                                       "optimizer state", "gradient"};
    static const enum weft_mem_class class[] = {
        WEFT_MEM_WEIGHTS, WEFT_MEM_WEIGHTS, WEFT_MEM_OPTIMIZER,
        WEFT_MEM_GRADIENTS};
    size_t bytes = use_bytes(&m->shape, use, kind, block);
    struct weft_tile_id id = {m->name, name[use], 0, layer, block, 0};
    if (bytes == 0)
        return 0;
    return weft_tile_create(m->rt, &id, class[use], bytes, out, err);
}

static void params_release(const struct weft_shape *shape,
                           struct weft_params *p)
{
    for (int32_t b = 0; b < WEFT_MAX_BLOCKS; b++) {
        weft_tile_release(p->embed[b]);
        weft_tile_release(p->head.block[b]);
        for (int32_t l = 0; p->layer && l < shape->n_layers; l++)
            weft_tile_release(p->layer[l].block[b]);
    }
    for (int32_t l = 0; p->layer && l < shape->n_layers; l++)
        weft_tile_release(p->layer[l].norms);
    weft_tile_release(p->head.norms);
    weft_free(p->layer);
    *p = (struct weft_params){0};
}

static int params_init(const struct weft_g_model *m, enum use use,
                       struct weft_params *p, struct weft_err *err)
{
    const struct weft_shape *s = &m->shape;
    int rc = 0;
    *p = (struct weft_params){0};
    p->layer = weft_alloc((size_t) s->n_layers, sizeof *p->layer);
    if (!p->layer)
        return weft_err_nomem(err, m->name,
                              (size_t) s->n_layers * sizeof *p->layer);
    for (int32_t b = 0; b < s->n_blocks && !rc; b++) {
        rc = create(m, use, WEFT_TILE_EMBED, -1, b, &p->embed[b], err);
        if (!rc)
            rc = create(m, use, WEFT_TILE_HEAD, -1, b, &p->head.block[b],
                        err);
        for (int32_t l = 0; l < s->n_layers && !rc; l++)
            rc = create(m, use, WEFT_TILE_LAYER, l, b, &p->layer[l].block[b],
                        err);
    }
    for (int32_t l = 0; l < s->n_layers && !rc; l++)
        rc = create(m, use, WEFT_TILE_NORMS, l, 0, &p->layer[l].norms, err);
    if (!rc)
        rc = create(m, use, WEFT_TILE_FINAL, -1, 0, &p->head.norms, err);
    return rc;
}

int weft_g_model_init(struct weft_rt *rt, const char *name,
                      const struct weft_shape *shape, bool trained,
                      struct weft_g_model *out, struct weft_err *err)
{
    *out = (struct weft_g_model){
        .rt = rt, .name = name, .shape = *shape, .trained = trained};
    int rc = params_init(out, USE_FWD, &out->fwd, err);
    if (!rc && trained)
        rc = params_init(out, USE_BWD, &out->bwd, err);
    if (!rc && trained)
        rc = params_init(out, USE_OPT, &out->opt, err);
    return rc;
}

void weft_g_model_release(struct weft_g_model *m)
{
    params_release(&m->shape, &m->fwd);
    params_release(&m->shape, &m->bwd);
    params_release(&m->shape, &m->opt);
}

struct weft_tile *weft_g_params_tile(const struct weft_params *p,
                                     enum weft_tile_kind kind, int32_t layer,
                                     int32_t block)
{
    switch (kind) {
    case WEFT_TILE_EMBED:
        return p->embed[block];
    case WEFT_TILE_HEAD:
        return p->head.block[block];
    case WEFT_TILE_FINAL:
        return p->head.norms;
    case WEFT_TILE_NORMS:
        return p->layer ? p->layer[layer].norms : NULL;
    default:
        return p->layer ? p->layer[layer].block[block] : NULL;
    }
}

/* ---- Gradients -------------------------------------------------------- */

int32_t weft_g_grads_needed(int32_t n_groups, int32_t dp, int32_t d)
{
    int32_t first = 0, end, most = 0, held = 0;
    while (first < n_groups && (int64_t) first * dp / n_groups < d)
        first++;
    for (end = first; end < n_groups && (int64_t) end * dp / n_groups == d;)
        end++;
    /* A binary counter over the device's leaves: a node's right child is
     * given back once both children are the device's own. */
    for (int32_t g = first; g < end; g++) {
        held++;
        most = held > most ? held : most;
        for (int32_t size = 1;
             (g + 1) % (2 * size) == 0 && g + 1 - 2 * size >= first;
             size *= 2)
            held--;
    }
    return most;
}

int weft_g_grads_init(const struct weft_g_model *model, int32_t n_groups,
                      int32_t dp, struct weft_g_grads *out,
                      struct weft_err *err)
{
    int rc = 0;
    *out = (struct weft_g_grads){.n_groups = n_groups, .dp = dp};
    for (int32_t d = 0; d < dp && !rc; d++) {
        int32_t n = weft_g_grads_needed(n_groups, dp, d);
        out->set[d] = weft_alloc((size_t) n, sizeof *out->set[d]);
        if (!out->set[d])
            return weft_err_nomem(err, "gradients",
                                  (size_t) n * sizeof *out->set[d]);
        for (int32_t i = 0; i < n && !rc; i++) {
            out->n_sets[d]++;
            rc = params_init(model, USE_GRAD, &out->set[d][i], err);
        }
    }
    return rc;
}

void weft_g_grads_release(const struct weft_g_model *model,
                          struct weft_g_grads *grads)
{
    for (int32_t d = 0; d < grads->dp; d++) {
        for (int32_t i = 0; i < grads->n_sets[d]; i++)
            params_release(&model->shape, &grads->set[d][i]);
        weft_free(grads->set[d]);
    }
    *grads = (struct weft_g_grads){0};
}
