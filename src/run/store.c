/* SPDX-License-Identifier: Apache-2.0 */
#include "run/store.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "kern/kern.h"
#include "model/weights.h"

int weft_store_arch(const char *folder, const char *dtype,
                    int32_t tensor_blocks, struct weft_arch *out,
                    struct weft_err *err)
{
    struct weft_arch arch;
    int rc = weft_arch_read(folder, &arch, err);
    if (rc)
        return rc;
    if (strcmp(dtype, "f32") == 0)
        arch.shape.dtype = WEFT_F32;
    else if (strcmp(dtype, "bf16") == 0)
        arch.shape.dtype = WEFT_BF16;
    else
        return weft_err_set(err, WEFT_EINVAL,
                            "dtype '%s' is neither 'f32' nor 'bf16'", dtype);
    rc = weft_shape_partition(&arch.shape, tensor_blocks, err);
    if (rc) {
        weft_err_prefix(err, "'%s'", folder);
        return rc;
    }
    *out = arch;
    return 0;
}

bool weft_store_has_tokenizer(const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    return weft_file_exists(path);
}

/* ---- Every tile of a model -------------------------------------------- */

struct walk {
    const struct weft_g_model *model;
    const struct weft_weights *weights; /* loading */
    struct weft_weights_writer *writer; /* saving */
    enum weft_store_what what;
    float *flat; /* room for the largest tile */
    struct weft_err *err;
};

typedef int (*tile_fn)(struct walk *w, enum weft_tile_kind kind,
                       int32_t layer, int32_t block);

static int for_each_tile(struct walk *w, tile_fn visit)
{
    const struct weft_shape *s = &w->model->shape;
    int rc = 0;
    for (int32_t b = 0; b < s->n_blocks && !rc; b++) {
        rc = visit(w, WEFT_TILE_EMBED, -1, b);
        if (!rc && !s->scalar_head)
            rc = visit(w, WEFT_TILE_HEAD, -1, b);
        for (int32_t l = 0; l < s->n_layers && !rc; l++)
            rc = visit(w, WEFT_TILE_LAYER, l, b);
    }
    for (int32_t l = 0; l < s->n_layers && !rc; l++)
        rc = visit(w, WEFT_TILE_NORMS, l, 0);
    return rc ? rc : visit(w, WEFT_TILE_FINAL, -1, 0);
}

static int walk_init(struct walk *w, const struct weft_g_model *model,
                     struct weft_err *err)
{
    size_t most = 0;
    *w = (struct walk){.model = model, .err = err};
    for (int kind = 0; kind < WEFT_N_TILE_KINDS; kind++)
        for (int32_t b = 0; b < model->shape.n_blocks; b++) {
            struct weft_layout layout;
            weft_layout_get(&model->shape, (enum weft_tile_kind) kind, b,
                            &layout);
            if (layout.n_flat > most)
                most = layout.n_flat;
        }
    w->flat = weft_alloc_aligned(most, sizeof *w->flat);
    return w->flat ? 0 : weft_err_nomem(err, "a tile", most * 4);
}

/* ---- Loading ---------------------------------------------------------- */

static int load_tile(struct walk *w, enum weft_tile_kind kind, int32_t layer,
                     int32_t block)
{
    const struct weft_shape *s = &w->model->shape;
    struct weft_layout layout;
    struct weft_tile *fwd = weft_g_params_tile(&w->model->fwd, kind, layer,
                                               block);
    struct weft_tile *bwd = w->model->trained ? weft_g_params_tile(
                                &w->model->bwd, kind, layer, block)
                                              : NULL;
    struct weft_tile *opt = w->model->trained ? weft_g_params_tile(
                                &w->model->opt, kind, layer, block)
                                              : NULL;
    weft_layout_get(s, kind, block, &layout);
    int rc = weft_weights_read_tile(w->weights, s, kind, layer, block,
                                    w->flat, w->err);
    if (rc)
        return rc;
    void *to = weft_tile_acquire(fwd, WEFT_WRITE);
    void *transposed = bwd ? weft_tile_acquire(bwd, WEFT_WRITE) : NULL;
    weft_k_publish(&layout, s->dtype, w->flat, to, transposed);
    if (bwd)
        weft_tile_unacquire(bwd);
    weft_tile_unacquire(fwd);
    if (opt) { /* moments zero, the master beside them where it is apart */
        float *state = weft_tile_acquire(opt, WEFT_WRITE);
        memset(state, 0, weft_tile_bytes(opt));
        if (weft_master_apart(s, kind))
            memcpy(state, w->flat, layout.n_flat * sizeof *state);
        weft_tile_unacquire(opt);
    }
    return 0;
}

int weft_store_load(const char *folder, const char *stem,
                    const struct weft_arch *arch,
                    const struct weft_g_model *model, struct weft_err *err)
{
    struct weft_weights_options options = {.stem = stem,
                                           .score = WEFT_SCORE_REQUIRED};
    struct weft_weights *weights = NULL;
    struct walk w;
    if (model->trained && model->shape.scalar_head)
        options.score = WEFT_SCORE_ZERO;
    int rc = weft_weights_open(folder, arch, &options, &weights, err);
    if (rc)
        return rc;
    rc = walk_init(&w, model, err);
    w.weights = weights;
    if (!rc)
        rc = for_each_tile(&w, load_tile);
    weft_free(w.flat);
    weft_weights_close(weights);
    return rc;
}

/* ---- Masters and moments ---------------------------------------------- */

/* The flat vector that `what` means in a tile's optimizer state or forward
 * tile. NULL: it has none (a tied embedding's moments). */
static float *vector_of(struct walk *w, enum weft_tile_kind kind,
                        int32_t layer, int32_t block, enum weft_mode mode,
                        struct weft_tile **acquired_out)
{
    const struct weft_shape *s = &w->model->shape;
    struct weft_layout layout;
    bool apart = weft_master_apart(s, kind);
    bool master = w->what == WEFT_STORE_MASTER;
    struct weft_tile *tile = weft_g_params_tile(
        master && !apart ? &w->model->fwd : &w->model->opt, kind, layer,
        block);
    *acquired_out = tile;
    if (!tile)
        return NULL;
    weft_layout_get(s, kind, block, &layout);
    float *base = weft_tile_acquire(tile, mode);
    size_t skip = master ? 0 : (apart ? 1 : 0);
    if (w->what == WEFT_STORE_EXP_AVG_SQ)
        skip++;
    return base + skip * layout.n_flat;
}

static int save_tile(struct walk *w, enum weft_tile_kind kind, int32_t layer,
                     int32_t block)
{
    struct weft_tile *tile;
    if (w->model->shape.tied && kind == WEFT_TILE_EMBED)
        return 0; /* the head's tiles are the weights */
    const float *flat = vector_of(w, kind, layer, block, WEFT_READ, &tile);
    int rc = weft_weights_writer_put(w->writer, &w->model->shape, kind, layer,
                                     block, flat, w->err);
    weft_tile_unacquire(tile);
    return rc;
}

int weft_store_save(const char *dir, const char *stem,
                    enum weft_store_what what, const struct weft_arch *arch,
                    const struct weft_g_model *model, struct weft_err *err)
{
    struct weft_weights_writer_options options = {.stem = stem,
                                                  .dtype = WEFT_F32};
    struct weft_weights_writer *writer = NULL;
    struct walk w;
    int rc = weft_weights_writer_open(dir, arch, &options, &writer, err);
    if (rc)
        return rc;
    rc = walk_init(&w, model, err);
    w.writer = writer;
    w.what = what;
    if (!rc)
        rc = for_each_tile(&w, save_tile);
    weft_free(w.flat);
    if (rc) {
        weft_weights_writer_abandon(writer);
        return rc;
    }
    return weft_weights_writer_close(writer, err);
}

static int load_moment_tile(struct walk *w, enum weft_tile_kind kind,
                            int32_t layer, int32_t block)
{
    const struct weft_shape *s = &w->model->shape;
    struct weft_layout layout;
    struct weft_tile *tile;
    if (s->tied && kind == WEFT_TILE_EMBED)
        return 0;
    weft_layout_get(s, kind, block, &layout);
    int rc = weft_weights_read_tile(w->weights, s, kind, layer, block,
                                    w->flat, w->err);
    if (rc)
        return rc;
    float *to = vector_of(w, kind, layer, block, WEFT_READ_WRITE, &tile);
    memcpy(to, w->flat, layout.n_flat * sizeof *to);
    weft_tile_unacquire(tile);
    return 0;
}

int weft_store_load_moment(const char *dir, const char *stem,
                           enum weft_store_what what,
                           const struct weft_arch *arch,
                           const struct weft_g_model *model,
                           struct weft_err *err)
{
    struct weft_weights_options options = {.stem = stem};
    struct weft_weights *weights = NULL;
    struct walk w;
    int rc = weft_weights_open(dir, arch, &options, &weights, err);
    if (rc)
        return rc;
    rc = walk_init(&w, model, err);
    w.weights = weights;
    w.what = what;
    if (!rc)
        rc = for_each_tile(&w, load_moment_tile);
    weft_free(w.flat);
    weft_weights_close(weights);
    return rc;
}
