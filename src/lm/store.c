/* SPDX-License-Identifier: Apache-2.0 */
#include "lm/store.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "kern/parts.h"
#include "model/weights.h"

int weft_store_arch(const char *folder, const char *dtype,
                    int32_t tensor_blocks, struct weft_arch *out,
                    struct weft_err *err)
{
    struct weft_arch arch;
    int rc = weft_arch_read(folder, &arch, err);
    if (rc)
        return rc;
    if (dtype && strcmp(dtype, "f32") == 0)
        arch.shape.dtype = WEFT_F32;
    else if (dtype && strcmp(dtype, "bf16") == 0)
        arch.shape.dtype = WEFT_BF16;
    else if (dtype)
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
    const struct weft_g_model *from;    /* moving: to `model` */
    enum weft_store_what what;
    struct weft_seq *seq;
    struct weft_tile
        *sent;   /* the last part that left a GPU's memory; or NULL */
    bool takes;  /* this rank takes the values that are gathered */
    int rc;      /* saving: the first error; all tiles are still visited */
    float *flat; /* room for the largest tile */
    size_t most; /* numbers in it */
    void *other; /* twice the same, for a GPU's tile in both orders; or NULL
                  */
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
    if (model->shape.tied) /* a table is made in whole panels: untie() */
        most += (size_t) (WEFT_PANEL - 1) * (size_t) model->shape.hidden;
    bool gpus = weft_rt_n_gpus(model->rt) > 0;
    w->most = most;
    w->flat = weft_alloc_aligned((gpus ? 3 : 1) * most, sizeof *w->flat);
    w->other = w->flat && gpus ? w->flat + most : NULL;
    return w->flat ? 0 : weft_err_nomem(err, "a tile", most * 4);
}

/* ---- Loading ---------------------------------------------------------- */

/* Whether any place of this rank holds a tile of the model. */
static bool is_wanted(const struct walk *w, enum weft_tile_kind kind,
                      int32_t layer, int32_t block)
{
    for (int32_t p = 0; p < w->model->n_places; p++) {
        struct weft_tile *fwd = weft_g_params_tile(&w->model->fwd[p], kind,
                                                   layer, block);
        struct weft_tile *opt = w->model->trained ? weft_g_params_tile(
                                    &w->model->opt[p], kind, layer, block)
                                                  : NULL;
        if ((fwd && weft_tile_is_here(fwd))
            || (opt && weft_tile_is_here(opt)))
            return true;
    }
    return false;
}

/* The tile of a use at place p, or NULL where it is not in this process. */
static struct weft_tile *here(const struct weft_params *use, int32_t p,
                              enum weft_tile_kind kind, int32_t layer,
                              int32_t block)
{
    struct weft_tile *tile = use ? weft_g_params_tile(&use[p], kind, layer,
                                                      block)
                                 : NULL;
    return tile && weft_tile_is_here(tile) ? tile : NULL;
}

static size_t n_elements(const struct weft_layout *layout,
                         struct weft_range chunks)
{
    return weft_layout_chunk(layout, weft_range_end(chunks))
         - weft_layout_chunk(layout, chunks.first);
}

/* Whether a tile at place p has another order than a CPU's (weft_k_reorder()).
 */
static bool has_rows(const struct walk *w, int32_t p)
{
    return w->model->shape.dtype == WEFT_BF16
        && weft_rt_is_gpu_place(w->model->rt, p);
}

/* As weft_k_publish_chunks() of a tile's flat values, in a GPU's order. */
static void publish_rows(const struct walk *w,
                         const struct weft_layout *layout,
                         struct weft_range chunks, void *fwd)
{
    enum weft_dtype dtype = w->model->shape.dtype;
    char *panels = w->other, *rows = panels + layout->n_flat * sizeof(float);
    size_t first = weft_layout_chunk_byte(layout, dtype, chunks.first);
    size_t end = weft_layout_chunk_byte(layout, dtype,
                                        weft_range_end(chunks));
    weft_k_publish(layout, dtype, w->flat, panels, NULL);
    weft_k_reorder(layout, dtype, true, panels, rows);
    memcpy(fwd, rows + first, end - first);
}

/* Publishes these chunks of the flat values of a tile for place p. bwd: of all
 * of it; or NULL. */
static void publish(const struct walk *w, int32_t p,
                    const struct weft_layout *layout,
                    struct weft_range chunks, void *fwd, void *bwd)
{
    enum weft_dtype dtype = w->model->shape.dtype;
    if (has_rows(w, p)) {
        publish_rows(w, layout, chunks, fwd);
        if (bwd)
            weft_k_transpose_rows(layout, fwd, bwd);
        return;
    }
    weft_k_publish_chunks(layout, dtype, chunks,
                          w->flat + weft_layout_chunk(layout, chunks.first),
                          fwd);
    if (bwd)
        weft_k_transpose(layout, dtype, fwd, bwd);
}

/* Writes the flat values of a tile to the tiles of all uses at place p. */
static void fill_place(const struct walk *w, int32_t p,
                       enum weft_tile_kind kind, int32_t layer, int32_t block)
{
    const struct weft_g_model *m = w->model;
    struct weft_layout layout;
    struct weft_tile *fwd = here(m->fwd, p, kind, layer, block);
    struct weft_tile *bwd = here(m->bwd, p, kind, layer, block);
    struct weft_tile *opt = here(m->opt, p, kind, layer, block);
    struct weft_tile *master = here(m->master, p, kind, layer, block);
    weft_layout_get(&m->shape, kind, block, &layout);
    if (fwd) {
        publish(w, p, &layout,
                bwd ? (struct weft_range){0, weft_layout_n_chunks(&layout)}
                    : weft_g_chunks_at(m, false, p, kind, layer, block),
                weft_tile_acquire(fwd, WEFT_WRITE),
                bwd ? weft_tile_acquire(bwd, WEFT_WRITE) : NULL);
        weft_tile_unacquire(fwd);
        if (bwd)
            weft_tile_unacquire(bwd);
    }
    if (master)
        weft_tile_write(master, 0, weft_tile_bytes(master), w->flat);
    if (opt) { /* moments are 0; the master is there if it is separate */
        struct weft_range has = weft_g_chunks_at(m, true, p, kind, layer,
                                                 block);
        float *state = weft_tile_acquire(opt, WEFT_WRITE);
        memset(state, 0, weft_tile_bytes(opt));
        if (weft_master_apart(&m->shape, kind))
            memcpy(state, w->flat + weft_layout_chunk(&layout, has.first),
                   n_elements(&layout, has) * sizeof *state);
        weft_tile_unacquire(opt);
    }
}

static int load_tile(struct walk *w, enum weft_tile_kind kind, int32_t layer,
                     int32_t block)
{
    if (!is_wanted(w, kind, layer, block))
        return 0;
    int rc = weft_weights_read_tile(w->weights, &w->model->shape, kind, layer,
                                    block, w->flat, w->err);
    for (int32_t p = 0; p < w->model->n_places && !rc; p++)
        fill_place(w, p, kind, layer, block);
    return rc;
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

/* The use whose tiles have what `what` means, and which of their vectors it
 * is. */
static const struct weft_params *use_of(const struct walk *w,
                                        enum weft_tile_kind kind,
                                        int32_t *vector_out)
{
    bool apart = weft_master_apart(&w->model->shape, kind);
    bool master = w->what == WEFT_STORE_MASTER;
    *vector_out = master ? 0 : apart + (w->what == WEFT_STORE_EXP_AVG_SQ);
    if (!w->model->trained) /* without masters, fwd is not rounded from any */
        return apart && w->model->master ? w->model->master : w->model->fwd;
    return master && !apart ? w->model->fwd : w->model->opt;
}

/* A part of a GPU's memory is sent from the host's, where all parts of the model
 * would come if its rank did not wait until the one before is gone. */
static void send_next(struct walk *w, struct weft_tile *next)
{
    struct weft_tile *before = w->sent;
    w->sent = next;
    if (before && weft_tile_is_here(before)
        && !weft_rt_is_dry(w->model->rt)) {
        (void) weft_tile_acquire(before, WEFT_READ_WRITE);
        weft_tile_unacquire(before);
    }
    weft_tile_release(before);
}

/* A copy of another rank's part at rank 0. */
static struct weft_tile *bring_part(struct walk *w, struct weft_tile *tile,
                                    const struct weft_where *where)
{
    struct weft_rt *rt = w->model->rt;
    struct weft_tile *host = NULL;
    if (weft_tile_on_card(tile))
        host = weft_g_copy_to(w->seq, where, rt, tile, WEFT_MEM_HOST,
                              "to be sent", weft_tile_place(tile));
    struct weft_tile *copy = weft_g_copy_to(
        w->seq, where, rt, host ? host : tile, WEFT_MEM_OPTIMIZER,
        "to be saved", weft_rt_host_place(rt, 0));
    if (host)
        send_next(w, host);
    return copy;
}

/* All ranks submit the copy of one place's tile to the first place; rank 0, or
 * a recorder in its place, waits for it and takes those chunks of the vector
 * that the tile has. published: it is whole, and in the model's dtype. */
static void gather_part(struct walk *w, struct weft_tile *tile,
                        const struct weft_layout *layout,
                        struct weft_range has, int32_t vector, int32_t layer,
                        bool published)
{
    const struct weft_where where = {
        .device = -1, .iteration = -1, .micro_batch = -1, .layer = layer};
    size_t n = n_elements(layout, has);
    struct weft_tile *copy = NULL;
    int32_t place = weft_tile_place(tile);
    if (weft_rt_place_rank(w->model->rt, place) != 0)
        tile = copy = bring_part(w, tile, &where);
    if (w->takes && tile && published) {
        const float *from = weft_tile_acquire(tile, WEFT_READ);
        bool rows = has_rows(w, place);
        if (rows)
            weft_k_reorder(layout, w->model->shape.dtype, false, from,
                           w->other);
        weft_k_mix(layout, w->model->shape.dtype,
                   1, /* a copy, in flat order */
                   rows ? w->other : from, w->flat);
        weft_tile_unacquire(tile);
    } else if (w->takes && tile) {
        weft_tile_read(tile, (size_t) vector * n * sizeof *w->flat,
                       n * sizeof *w->flat,
                       w->flat + weft_layout_chunk(layout, has.first));
    } else if (copy && weft_rt_is_dry(w->model->rt)) {
        weft_tile_await(tile);
    }
    weft_tile_release(copy);
}

/* Gathers the flat values of a tile, or of a trained model those of its chunks
 * that are trained, of which it takes each from the first place that has it. */
static void gather_tile(struct walk *w, enum weft_tile_kind kind,
                        int32_t layer, int32_t block)
{
    struct weft_layout layout;
    int32_t vector;
    const struct weft_params *use = use_of(w, kind, &vector);
    weft_layout_get(&w->model->shape, kind, block, &layout);
    int32_t n = weft_layout_n_chunks(&layout);
    int32_t next = w->model->trained ? layout.first_trained : 0;
    while (next < n)
        for (int32_t p = 0; p < w->model->n_places && next < n; p++) {
            struct weft_tile *tile = weft_g_params_tile(&use[p], kind, layer,
                                                        block);
            if (!tile)
                continue;
            struct weft_range has = weft_g_chunks_at(
                w->model, use == w->model->opt, p, kind, layer, block);
            if (has.first != next)
                continue;
            gather_part(w, tile, &layout, has, vector, layer,
                        use == w->model->fwd && !w->model->trained);
            next += has.n;
        }
}

static int save_tile(struct walk *w, enum weft_tile_kind kind, int32_t layer,
                     int32_t block)
{
    if (w->model->shape.tied && kind == WEFT_TILE_EMBED)
        return 0; /* tied: the head's tiles are saved */
    gather_tile(w, kind, layer, block);
    if (!w->rc && w->writer)
        w->rc = weft_weights_writer_put(w->writer, &w->model->shape, kind,
                                        layer, block, w->flat, w->err);
    return 0;
}

void weft_store_record_save(struct weft_seq *seq,
                            const struct weft_g_model *model)
{
    struct walk w = {.model = model, .what = WEFT_STORE_EXP_AVG, .seq = seq};
    (void) for_each_tile(&w, save_tile);
    send_next(&w, NULL);
}

int weft_store_save(struct weft_seq *seq, const char *dir, const char *stem,
                    enum weft_store_what what, enum weft_dtype dtype,
                    const struct weft_arch *arch,
                    const struct weft_g_model *model, struct weft_err *err)
{
    struct weft_weights_writer_options options = {.stem = stem,
                                                  .dtype = dtype};
    struct weft_weights_writer *writer = NULL;
    struct walk w;
    int rc = walk_init(&w, model, err);
    if (!rc && weft_world_rank() == 0)
        rc = weft_weights_writer_open(dir, arch, &options, &writer, err);
    rc = weft_world_agree(rc, err);
    w.writer = writer;
    w.takes = writer != NULL;
    w.what = what;
    w.seq = seq;
    if (!rc) {
        (void) for_each_tile(&w, save_tile);
        send_next(&w, NULL);
        rc = w.rc;
    }
    weft_free(w.flat);
    if (rc && writer)
        weft_weights_writer_abandon(writer);
    else if (writer)
        rc = weft_weights_writer_close(writer, err);
    return weft_world_agree(rc, err);
}

/* Writes the flat values of one of a tile's moments to all places. */
static void fill_moment(const struct walk *w, enum weft_tile_kind kind,
                        int32_t layer, int32_t block)
{
    struct weft_layout layout;
    int32_t vector;
    const struct weft_params *use = use_of(w, kind, &vector);
    weft_layout_get(&w->model->shape, kind, block, &layout);
    for (int32_t p = 0; p < w->model->n_places; p++) {
        struct weft_tile *tile = here(use, p, kind, layer, block);
        if (!tile)
            continue;
        struct weft_range has = weft_g_chunks_at(
            w->model, use == w->model->opt, p, kind, layer, block);
        size_t n = n_elements(&layout, has);
        weft_tile_write(tile, (size_t) vector * n * sizeof *w->flat,
                        n * sizeof *w->flat,
                        w->flat + weft_layout_chunk(&layout, has.first));
    }
}

static int load_moment_tile(struct walk *w, enum weft_tile_kind kind,
                            int32_t layer, int32_t block)
{
    const struct weft_shape *s = &w->model->shape;
    if ((s->tied && kind == WEFT_TILE_EMBED)
        || !is_wanted(w, kind, layer, block))
        return 0;
    int rc = weft_weights_read_tile(w->weights, s, kind, layer, block,
                                    w->flat, w->err);
    if (!rc)
        fill_moment(w, kind, layer, block);
    return rc;
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

/* ---- Moving ------------------------------------------------------------ */

/* Gathers the flat values of a tile of the model that is moved on rank 0, and
 * gives them to all ranks. */
static void fetch_tile(struct walk *w, enum weft_store_what what,
                       enum weft_tile_kind kind, int32_t layer, int32_t block)
{
    struct weft_layout layout;
    struct walk from = *w;
    weft_layout_get(&w->model->shape, kind, block, &layout);
    memset(w->flat, 0, layout.n_flat * sizeof *w->flat);
    from.model = w->from;
    from.what = w->what = what;
    gather_tile(&from, kind, layer, block);
    w->sent = from.sent;
    weft_world_share_from(0, w->flat, layout.n_flat * sizeof *w->flat);
}

/* Makes the flat values of a tied embedding's block of those of its head's,
 * which have another order. */
static int untie(struct walk *w, int32_t block)
{
    struct weft_shape s = w->model->shape;
    s.dtype = WEFT_F32;
    size_t bytes = weft_k_tied_table_scratch_bytes(&s);
    int64_t n_rows = weft_round_up(s.block[block].n_vocab, WEFT_PANEL);
    weft_assert((size_t) n_rows * (size_t) s.hidden <= w->most);
    void *scratch = weft_alloc_aligned(bytes, 1);
    if (!scratch)
        return weft_err_nomem(w->err, "an embedding", bytes);
    weft_k_tied_table(&s, block, w->flat, w->flat, scratch);
    weft_free(scratch);
    return 0;
}

static int move_tile(struct walk *w, enum weft_tile_kind kind, int32_t layer,
                     int32_t block)
{
    static const enum weft_store_what moment[] = {WEFT_STORE_EXP_AVG,
                                                  WEFT_STORE_EXP_AVG_SQ};
    bool tied = w->model->shape.tied;
    int rc = 0;
    if (tied && kind == WEFT_TILE_EMBED)
        return 0; /* it is moved with the head */
    fetch_tile(w, WEFT_STORE_MASTER, kind, layer, block);
    for (int32_t p = 0; p < w->model->n_places; p++)
        fill_place(w, p, kind, layer, block);
    if (tied && kind == WEFT_TILE_HEAD)
        rc = untie(w, block);
    for (int32_t p = 0;
         p < w->model->n_places && tied && !rc && kind == WEFT_TILE_HEAD; p++)
        fill_place(w, p, WEFT_TILE_EMBED, layer, block);
    for (size_t i = 0; i < WEFT_COUNT(moment) && w->model->trained && !rc;
         i++) {
        fetch_tile(w, moment[i], kind, layer, block);
        fill_moment(w, kind, layer, block);
    }
    return weft_world_agree(rc, w->err);
}

int weft_store_move(struct weft_seq *seq, const struct weft_g_model *from,
                    const struct weft_g_model *to, struct weft_err *err)
{
    struct walk w;
    weft_assert(weft_shape_alike(&from->shape, &to->shape)
                && from->trained == to->trained);
    int rc = weft_world_agree(walk_init(&w, to, err), err);
    w.from = from;
    w.seq = seq;
    w.takes = weft_world_rank() == 0;
    if (!rc)
        rc = for_each_tile(&w, move_tile);
    send_next(&w, NULL);
    weft_free(w.flat);
    return rc;
}
