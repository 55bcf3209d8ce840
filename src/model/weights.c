/* SPDX-License-Identifier: Apache-2.0 */
#include "model/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/rng.h"
#include "model/safetensors.h"
#include "model/tensors.h"

/* A random scalar head's stream; tensors of init.c count from 0. */
static const uint32_t SCORE_STREAM = 0xffffffffu;

struct weft_weights {
    struct weft_safetensors *files;
    struct weft_shape shape;
    size_t n;
    /* (n) in the order of tensors.h; NULL: a scalar head that is made up */
    const struct weft_st_tensor **tensor;
    struct weft_weights_options options;
};

/* ---- Finding and checking --------------------------------------------- */

/* Other names of the scalar head: TRL's, OpenRLHF's, verl's value heads. */
static const char *const score_names[] = {
    "score.weight", "v_head.weight", "v_head.summary.weight",
    "value_head.weight", "classifier.weight"};
static const char *const score_biases[] = {
    "score.bias", "v_head.bias", "v_head.summary.bias", "value_head.bias",
    "classifier.bias"};

/* Models saved without a head have no "model." in front. */
static const struct weft_st_tensor *find(const struct weft_safetensors *st,
                                         const struct weft_tensor *t)
{
    const struct weft_st_tensor *found = NULL;
    if (t->id == WEFT_TENSOR_SCORE) {
        for (size_t i = 0; i < WEFT_COUNT(score_names) && !found; i++)
            found = weft_safetensors_find(st, score_names[i]);
        return found;
    }
    found = weft_safetensors_find(st, t->name);
    if (!found && strncmp(t->name, "model.", 6) == 0)
        found = weft_safetensors_find(st, t->name + 6);
    return found;
}

static bool shape_fits(const struct weft_tensor *t,
                       const struct weft_st_tensor *f)
{
    if (t->id == WEFT_TENSOR_SCORE && f->n_dims == 1)
        return f->dim[0] == t->cols;
    if (f->n_dims != (t->cols ? 2 : 1) || f->dim[0] != t->rows)
        return false;
    return t->cols == 0 || f->dim[1] == t->cols;
}

static int check_tensor(const struct weft_tensor *t,
                        const struct weft_st_tensor *f, struct weft_err *err)
{
    char found[96], wanted[96];
    const int64_t dim[2] = {t->rows, t->cols};
    if (!f->readable)
        return weft_err_set(err, WEFT_EUNSUPPORTED,
                            "'%s': tensor '%s' has dtype %s; F32, BF16 and "
                            "F16 are read",
                            f->file, f->name, f->type);
    if (!shape_fits(t, f))
        return weft_err_set(err, WEFT_EFORMAT,
                            "'%s': tensor '%s' has shape %s; config.json "
                            "makes it %s",
                            f->file, f->name,
                            weft_st_shape_text(f->dim, f->n_dims, found),
                            weft_st_shape_text(dim, t->cols ? 2 : 1, wanted));
    return 0;
}

static int fail_missing(const struct weft_weights *w, const char *dir,
                        const struct weft_tensor *t, struct weft_err *err)
{
    const char *hint = "";
    if (t->id == WEFT_TENSOR_HEAD)
        hint = "; if the embedding serves as the head, config.json must say "
               "\"tie_word_embeddings\": true";
    else if (t->id == WEFT_TENSOR_SCORE)
        hint = "; a model with a scalar head has it";
    return weft_err_set(err, WEFT_ENOTFOUND,
                        "'%s': tensor '%s' is missing among the %zu of its "
                        "weights%s",
                        dir, t->name, weft_safetensors_count(w->files), hint);
}

/* Refuses a bias: a scalar head is a linear map without one here. */
static int check_score_bias(const struct weft_safetensors *st,
                            struct weft_err *err)
{
    for (size_t i = 0; i < WEFT_COUNT(score_biases); i++) {
        const struct weft_st_tensor *b;
        b = weft_safetensors_find(st, score_biases[i]);
        for (size_t j = 0; b && j < b->n_bytes; j++)
            if (b->data[j] != 0)
                return weft_err_set(err, WEFT_EUNSUPPORTED,
                                    "'%s': tensor '%s': a scalar head with a "
                                    "bias is not supported",
                                    b->file, b->name);
    }
    return 0;
}

/* The lm_head of a tied model must equal the embedding; otherwise it is
 * unclear which of the two is meant (transformers 4 and 5 differ). */
static int check_tied(const struct weft_weights *w, struct weft_err *err)
{
    const struct weft_st_tensor *head, *embed = w->tensor[0];
    head = weft_safetensors_find(w->files, "lm_head.weight");
    if (!w->shape.tied || !head)
        return 0;
    if (head->n_bytes == embed->n_bytes && head->dtype == embed->dtype
        && memcmp(head->data, embed->data, head->n_bytes) == 0)
        return 0;
    return weft_err_set(err, WEFT_EFORMAT,
                        "'%s': tensor 'lm_head.weight' differs from the "
                        "embedding, but config.json says "
                        "\"tie_word_embeddings\": true; say false, or remove "
                        "the tensor",
                        head->file);
}

static bool is_harmless(const struct weft_weights *w, const char *name)
{
    size_t n = strlen(name);
    static const char *const end[] = {".rotary_emb.inv_freq", ".attn.bias",
                                      ".attn.masked_bias"};
    for (size_t i = 0; i < WEFT_COUNT(end); i++)
        if (n > strlen(end[i])
            && strcmp(name + n - strlen(end[i]), end[i]) == 0)
            return true;
    for (size_t i = 0; w->shape.scalar_head && i < WEFT_COUNT(score_biases);
         i++)
        if (strcmp(name, score_biases[i]) == 0)
            return true;
    return strcmp(name, "lm_head.weight") == 0;
}

static bool is_used(const struct weft_weights *w,
                    const struct weft_st_tensor *t)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->tensor[i] == t)
            return true;
    return false;
}

static void warn_unused(const struct weft_weights *w, const char *dir)
{
    size_t n = weft_safetensors_count(w->files), unused = 0;
    const char *first = NULL;
    for (size_t i = 0; i < n && n > w->n; i++) {
        const struct weft_st_tensor *t = weft_safetensors_get(w->files, i);
        if (is_harmless(w, t->name) || is_used(w, t))
            continue;
        if (unused++ == 0)
            first = t->name;
    }
    if (unused > 0)
        weft_warn("'%s': %zu tensor%s not part of the model and not read, "
                  "the first '%.200s'",
                  dir, unused, unused > 1 ? "s are" : " is", first);
}

static int resolve(struct weft_weights *w, const char *dir,
                   struct weft_err *err)
{
    bool may_lack = w->options.score != WEFT_SCORE_REQUIRED;
    for (size_t i = 0; i < w->n; i++) {
        struct weft_tensor t;
        weft_tensor_get(&w->shape, i, &t);
        w->tensor[i] = find(w->files, &t);
        if (!w->tensor[i] && (t.id != WEFT_TENSOR_SCORE || !may_lack))
            return fail_missing(w, dir, &t, err);
        int rc = w->tensor[i] ? check_tensor(&t, w->tensor[i], err) : 0;
        if (!rc && t.id == WEFT_TENSOR_SCORE && w->tensor[i])
            rc = check_score_bias(w->files, err);
        if (rc)
            return rc;
    }
    return check_tied(w, err);
}

int weft_weights_open(const char *dir, const struct weft_arch *arch,
                      const struct weft_weights_options *options,
                      struct weft_weights **out, struct weft_err *err)
{
    struct weft_weights *w = weft_alloc(1, sizeof *w);
    int rc = 0;
    if (!w)
        return weft_err_nomem(err, dir, sizeof *w);
    w->shape = arch->shape;
    if (options)
        w->options = *options;
    const char *stem = w->options.stem ? w->options.stem : "model";
    w->n = weft_tensor_count(&w->shape);
    w->tensor = weft_alloc(w->n, sizeof(struct weft_st_tensor *));
    if (!w->tensor)
        rc = weft_err_nomem(err, dir, w->n * sizeof(void *));
    if (!rc)
        rc = weft_safetensors_open(dir, stem, &w->files, err);
    if (!rc)
        rc = resolve(w, dir, err);
    if (rc) {
        weft_weights_close(w);
        return rc;
    }
    warn_unused(w, dir);
    *out = w;
    return 0;
}

void weft_weights_close(struct weft_weights *w)
{
    if (!w)
        return;
    weft_safetensors_close(w->files);
    weft_free((void *) w->tensor);
    weft_free(w);
}

/* ---- Reading tiles ---------------------------------------------------- */

static int check_finite(const struct weft_st_tensor *t, size_t first,
                        const float *x, size_t n, struct weft_err *err)
{
    uint32_t worst = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], 4);
        u &= 0x7fffffffu;
        worst = u > worst ? u : worst;
    }
    if (worst < 0x7f800000u)
        return 0;
    size_t i = 0;
    while (isfinite(x[i]))
        i++;
    char at[96];
    const int64_t cols = t->n_dims == 2 ? t->dim[1] : 1;
    const int64_t place[2] = {(int64_t) (first + i) / cols,
                              (int64_t) (first + i) % cols};
    return weft_err_set(
        err, WEFT_ENUMERIC,
        "'%s': tensor '%s': element %s is %s; weights must be finite numbers",
        t->file, t->name,
        weft_st_shape_text(place, t->n_dims == 2 ? 2 : 1, at),
        isnan(x[i]) ? "NaN" : "infinite");
}

static void make_score(const struct weft_weights *w, float *x)
{
    if (w->options.score != WEFT_SCORE_RANDOM)
        return;
    double std = 1 / sqrt(w->shape.hidden + 1.0);
    for (int32_t i = 0; i < w->shape.hidden; i++)
        x[i] = (float) (std
                        * weft_rng_normal(w->options.seed, WEFT_RNG_INIT,
                                          SCORE_STREAM, 0, (uint32_t) i));
}

/* Copies one rectangle of a tensor to its place in the part. row: memory for
 * one row. */
static int read_piece(const struct weft_weights *w,
                      const struct weft_piece *piece,
                      const struct weft_part *part, int32_t layer, float *row,
                      float *out, struct weft_err *err)
{
    int64_t index = weft_tensor_index(&w->shape, piece->id, layer);
    weft_assert(index >= 0);
    const struct weft_st_tensor *t = w->tensor[index];
    bool vector = piece->n_cols == 0;
    if (!t) {
        make_score(w, out);
        return 0;
    }
    size_t n = (size_t) (vector ? piece->n_rows : piece->n_cols);
    size_t stride = vector ? 0 : (size_t) t->dim[1];
    int64_t n_rows = vector ? 1 : piece->n_rows;
    for (int64_t r = 0; r < n_rows; r++) {
        size_t first = vector ? (size_t) piece->row0
                              : (size_t) (piece->row0 + r) * stride
                                    + (size_t) piece->col0;
        size_t at = weft_piece_flat(piece, part, r, 0);
        bool direct = vector || part->id == WEFT_PART_EMBED;
        float *x = direct ? out + at : row;
        weft_st_tensor_read(t, first, n, x);
        int rc = check_finite(t, first, x, n, err);
        if (rc)
            return rc;
        for (size_t c = 0; !direct && c < n; c++)
            out[at + c * WEFT_PANEL] = row[c];
    }
    return 0;
}

int weft_weights_read_tile(const struct weft_weights *w,
                           const struct weft_shape *shape,
                           enum weft_tile_kind kind, int32_t layer,
                           int32_t block, float *flat_out,
                           struct weft_err *err)
{
    struct weft_layout layout;
    weft_assert(shape->n_blocks > 0 && shape->hidden == w->shape.hidden
                && shape->scalar_head == w->shape.scalar_head
                && shape->tied == w->shape.tied);
    weft_layout_get(shape, kind, block, &layout);
    memset(flat_out, 0, layout.n_flat * sizeof *flat_out);
    size_t n_row = (size_t) weft_max64(
        weft_max64(shape->hidden, shape->intermediate),
        (int64_t) shape->n_heads * shape->head_dim);
    float *row = weft_alloc(n_row, sizeof *row);
    int rc = row ? 0 : weft_err_nomem(err, "a row", n_row * sizeof *row);
    size_t n = weft_piece_count(shape, kind, block);
    for (size_t i = 0; i < n && !rc; i++) {
        struct weft_piece piece;
        weft_piece_get(shape, kind, block, i, &piece);
        const struct weft_part *part = weft_layout_part(&layout, piece.part);
        rc = read_piece(w, &piece, part, layer, row, flat_out + part->offset,
                        err);
    }
    weft_free(row);
    return rc;
}
