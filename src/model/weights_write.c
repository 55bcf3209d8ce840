/* SPDX-License-Identifier: Apache-2.0 */
#include "model/weights.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/string.h"
#include "model/safetensors.h"
#include "model/tensors.h"

enum { GATHER_ELEMENTS = 1 << 16 }; /* elements gathered for one write */

struct shard {
    char *name, *path;
    size_t first, n;             /* tensors, in state_dict order */
    struct weft_st_writer *file; /* NULL when closed */
    bool closed;
};

struct weft_weights_writer {
    char *dir, *stem;
    struct weft_shape shape;
    enum weft_dtype dtype;
    size_t n_tensors, n_shards;
    struct weft_tensor *tensor;
    struct weft_st_spec *spec;
    uint32_t *shard_of;
    int64_t *missing; /* elements that are not put yet; guarded by lock */
    struct shard *shard;
    pthread_mutex_t lock;
};

static uint64_t tensor_bytes(const struct weft_tensor *t, enum weft_dtype d)
{
    return (uint64_t) t->rows * (uint64_t) weft_max64(t->cols, 1)
         * weft_dtype_bytes(d);
}

/* ---- Opening ---------------------------------------------------------- */

/* Deals the tensors to shards of at most max bytes, in order; a tensor larger
 * than that has a shard of its own. */
static void deal(struct weft_weights_writer *w, uint64_t max)
{
    uint64_t filled = 0;
    w->n_shards = 0;
    for (size_t i = 0; i < w->n_tensors; i++) {
        uint64_t bytes = tensor_bytes(&w->tensor[i], w->dtype);
        if (i == 0 || (max > 0 && filled + bytes > max)) {
            w->shard[w->n_shards++].first = i;
            filled = 0;
        }
        filled += bytes;
        w->shard_of[i] = (uint32_t) (w->n_shards - 1);
        w->shard[w->n_shards - 1].n++;
    }
}

static int open_shards(struct weft_weights_writer *w, struct weft_err *err)
{
    char name[320];
    int rc = 0;
    for (size_t i = 0; i < w->n_shards && !rc; i++) {
        struct shard *s = &w->shard[i];
        if (w->n_shards == 1)
            snprintf(name, sizeof name, "%s.safetensors", w->stem);
        else
            snprintf(name, sizeof name, "%s-%05zu-of-%05zu.safetensors",
                     w->stem, i + 1, w->n_shards);
        s->name = weft_strdup(name);
        s->path = weft_path_join(w->dir, name);
        if (!s->name || !s->path)
            rc = weft_err_nomem(err, name, sizeof name);
        else
            rc = weft_st_writer_open(s->path, s->n, w->spec + s->first,
                                     &s->file, err);
    }
    return rc;
}

static int prepare(struct weft_weights_writer *w, const char *dir,
                   const struct weft_weights_writer_options *o,
                   struct weft_err *err)
{
    size_t n = w->n_tensors;
    w->dir = weft_strdup(dir);
    w->stem = weft_strdup(o->stem ? o->stem : "model");
    w->tensor = weft_alloc(n, sizeof *w->tensor);
    w->spec = weft_alloc(n, sizeof *w->spec);
    w->shard_of = weft_alloc(n, sizeof *w->shard_of);
    w->missing = weft_alloc(n, sizeof *w->missing);
    w->shard = weft_alloc(n, sizeof *w->shard);
    if (!w->dir || !w->stem || !w->tensor || !w->spec || !w->shard_of
        || !w->missing || !w->shard)
        return weft_err_nomem(err, dir, n * sizeof *w->tensor);
    for (size_t i = 0; i < n; i++) {
        struct weft_tensor *t = &w->tensor[i];
        weft_tensor_get(&w->shape, i, t);
        w->spec[i] = (struct weft_st_spec){t->name, w->dtype, t->rows,
                                           t->cols};
        w->missing[i] = t->rows * weft_max64(t->cols, 1);
    }
    return 0;
}

int weft_weights_writer_open(const char *dir, const struct weft_arch *arch,
                             const struct weft_weights_writer_options *o,
                             struct weft_weights_writer **out,
                             struct weft_err *err)
{
    struct weft_weights_writer *w = weft_alloc(1, sizeof *w);
    if (!w)
        return weft_err_nomem(err, dir, sizeof *w);
    pthread_mutex_init(&w->lock, NULL);
    w->shape = arch->shape;
    w->dtype = o->dtype;
    w->n_tensors = weft_tensor_count(&w->shape);
    int rc = prepare(w, dir, o, err);
    if (!rc) {
        deal(w, o->max_shard_bytes);
        rc = open_shards(w, err);
    }
    if (rc)
        weft_weights_writer_abandon(w);
    else
        *out = w;
    return rc;
}

/* ---- Putting ---------------------------------------------------------- */

/* Refuses NaN, infinity, and what would become infinite in f16. */
static int check_numbers(const struct weft_weights_writer *w, size_t tensor,
                         size_t first, const float *x, size_t n,
                         struct weft_err *err)
{
    static const float max_f16 = 65520; /* rounds to infinity */
    float limit = w->dtype == WEFT_F16 ? max_f16 : INFINITY;
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) < limit))
            return weft_err_set(
                err, WEFT_ENUMERIC,
                "tensor '%s': element %zu is %g, which cannot be saved as a "
                "finite %s",
                w->tensor[tensor].name, first + i, (double) x[i],
                weft_dtype_name(w->dtype));
    return 0;
}

int weft_weights_writer_put_tensor(struct weft_weights_writer *w, size_t i,
                                   size_t first, size_t n, const float *x,
                                   struct weft_err *err)
{
    weft_assert(i < w->n_tensors);
    struct shard *s = &w->shard[w->shard_of[i]];
    int rc = check_numbers(w, i, first, x, n, err);
    if (!rc)
        rc = weft_st_writer_put(s->file, i - s->first, first, n, x, err);
    if (rc)
        return rc;
    pthread_mutex_lock(&w->lock);
    w->missing[i] -= (int64_t) n;
    pthread_mutex_unlock(&w->lock);
    return 0;
}

/* Gathers full rows and writes them together; writes slices of rows one by
 * one. */
static int put_piece(struct weft_weights_writer *w,
                     const struct weft_piece *p, const struct weft_part *part,
                     int32_t layer, const float *flat, float *room,
                     size_t n_room, struct weft_err *err)
{
    size_t i = (size_t) weft_tensor_index(&w->shape, p->id, layer);
    const struct weft_tensor *t = &w->tensor[i];
    if (p->n_cols == 0)
        return weft_weights_writer_put_tensor(
            w, i, (size_t) p->row0, (size_t) p->n_rows,
            flat + weft_piece_flat(p, part, 0, 0), err);
    size_t n_cols = (size_t) p->n_cols, step;
    int64_t together = p->n_cols == t->cols
                         ? weft_max64(1, (int64_t) (n_room / n_cols))
                         : 1;
    step = part->id == WEFT_PART_EMBED ? 1 : WEFT_PANEL;
    int rc = 0;
    for (int64_t r = 0; r < p->n_rows && !rc; r += together) {
        int64_t n = weft_min64(together, p->n_rows - r);
        for (int64_t j = 0; j < n; j++) {
            const float *from = flat + weft_piece_flat(p, part, r + j, 0);
            float *to = room + (size_t) j * n_cols;
            for (size_t c = 0; c < n_cols; c++)
                to[c] = from[c * step];
        }
        rc = weft_weights_writer_put_tensor(
            w, i,
            (size_t) (p->row0 + r) * (size_t) t->cols + (size_t) p->col0,
            (size_t) n * n_cols, room, err);
    }
    return rc;
}

int weft_weights_writer_put(struct weft_weights_writer *w,
                            const struct weft_shape *shape,
                            enum weft_tile_kind kind, int32_t layer,
                            int32_t block, const float *flat,
                            struct weft_err *err)
{
    struct weft_layout layout;
    weft_assert(shape->n_blocks > 0 && shape->hidden == w->shape.hidden
                && shape->scalar_head == w->shape.scalar_head
                && shape->tied == w->shape.tied);
    weft_layout_get(shape, kind, block, &layout);
    size_t n_room = (size_t) weft_max64(
        GATHER_ELEMENTS,
        weft_max64(weft_max64(shape->hidden, shape->intermediate),
                   (int64_t) shape->n_heads * shape->head_dim));
    float *room = weft_alloc(n_room, sizeof *room);
    int rc = room ? 0 : weft_err_nomem(err, "rows", n_room * sizeof *room);
    size_t n = weft_piece_count(shape, kind, block);
    for (size_t i = 0; i < n && !rc; i++) {
        struct weft_piece p;
        weft_piece_get(shape, kind, block, i, &p);
        const struct weft_part *part = weft_layout_part(&layout, p.part);
        if (p.owned)
            rc = put_piece(w, &p, part, layer, flat + part->offset, room,
                           n_room, err);
    }
    weft_free(room);
    return rc;
}

/* ---- Closing ---------------------------------------------------------- */

static int check_complete(const struct weft_weights_writer *w,
                          struct weft_err *err)
{
    for (size_t i = 0; i < w->n_tensors; i++)
        if (w->missing[i] != 0)
            return weft_err_set(
                err, WEFT_ESTATE,
                "tensor '%s' was put %s; %" PRId64 " elements too %s",
                w->tensor[i].name, w->missing[i] > 0 ? "in part" : "twice",
                w->missing[i] > 0 ? w->missing[i] : -w->missing[i],
                w->missing[i] > 0 ? "few" : "many");
    return 0;
}

static void put_index(FILE *f, const void *writer)
{
    const struct weft_weights_writer *w = writer;
    uint64_t total = 0;
    for (size_t i = 0; i < w->n_tensors; i++)
        total += tensor_bytes(&w->tensor[i], w->dtype);
    fprintf(f,
            "{\n  \"metadata\": {\"total_size\": %" PRIu64 "},\n"
            "  \"weight_map\": {\n",
            total);
    for (size_t i = 0; i < w->n_tensors; i++)
        fprintf(f, "    \"%s\": \"%s\"%s\n", w->tensor[i].name,
                w->shard[w->shard_of[i]].name,
                i + 1 < w->n_tensors ? "," : "");
    fputs("  }\n}\n", f);
}

static int write_index(const struct weft_weights_writer *w,
                       struct weft_err *err)
{
    char name[320];
    snprintf(name, sizeof name, "%s.safetensors.index.json", w->stem);
    return weft_file_print(w->dir, name, put_index, w, err);
}

int weft_weights_writer_close(struct weft_weights_writer *w,
                              struct weft_err *err)
{
    int rc = check_complete(w, err);
    for (size_t i = 0; i < w->n_shards && !rc; i++) {
        struct shard *s = &w->shard[i];
        rc = weft_st_writer_close(s->file, err);
        s->file = NULL;
        s->closed = rc == 0;
    }
    if (!rc && w->n_shards > 1)
        rc = write_index(w, err);
    for (size_t i = 0; i < w->n_shards && !rc; i++)
        w->shard[i].closed = false; /* they stay */
    weft_weights_writer_abandon(w);
    return rc;
}

void weft_weights_writer_abandon(struct weft_weights_writer *w)
{
    if (!w)
        return;
    for (size_t i = 0; w->shard && i < w->n_shards; i++) {
        weft_st_writer_abandon(w->shard[i].file);
        if (w->shard[i].closed)
            (void) unlink(w->shard[i].path);
        weft_free(w->shard[i].name);
        weft_free(w->shard[i].path);
    }
    pthread_mutex_destroy(&w->lock);
    weft_free(w->dir);
    weft_free(w->stem);
    weft_free(w->tensor);
    weft_free(w->spec);
    weft_free(w->shard_of);
    weft_free(w->missing);
    weft_free(w->shard);
    weft_free(w);
}
