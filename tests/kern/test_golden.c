/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole small models against PyTorch and Transformers: logits, log-probs,
 * entropies, the gradient of every tensor, its norm, and every tensor after
 * one step of clipping and AdamW. tests/data/golden/make_goldens.py wrote the
 * folders and the expected values, and explains their names.
 *
 * Gradients and weights go back to the names of the files through the writer
 * of weights, so this also checks that reading and writing agree.
 */
#include <math.h>
#include <unistd.h>

#include "base/alloc.h"
#include "harness.h"
#include "kern/parts.h"
#include "model/safetensors.h"
#include "model/weights.h"

enum { MAX_LAYERS = 2, SAMPLES = 3, STRIDE = 7919, MAX_TOKENS = 128 };

/* One tile per (kind, layer, block); replicated kinds have block 0 only. */
struct tile {
    enum weft_tile_kind kind;
    int32_t layer, block;
    struct weft_layout layout;
    float *master, *grad, *m, *v;
    void *fwd, *bwd;
};

struct model {
    struct weft_arch arch;
    struct weft_shape s;
    struct weft_safetensors *golden;
    struct tile tile[64];
    int32_t n_tiles;
    int32_t n, length[SAMPLES], token[MAX_TOKENS];
    struct weft_k_run run[SAMPLES];
    struct weft_k_batch batch;
};

/* ---- Expected values ---------------------------------------------------- */

static const struct weft_st_tensor *golden(const struct model *m,
                                           const char *prefix,
                                           const char *name)
{
    char full[256];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    const struct weft_st_tensor *t = weft_safetensors_find(m->golden, full);
    if (!t)
        printf("\n    no '%s' among the expected values", full);
    REQUIRE(t != NULL);
    return t;
}

static float *golden_values(const struct model *m, const char *name)
{
    const struct weft_st_tensor *t = golden(m, "", name);
    float *x = calloc(t->n + 1, sizeof *x);
    weft_st_tensor_read(t, 0, t->n, x);
    return x;
}

/* |a - b| <= bound * largest |b| for all. */
static void check_values(const char *what, const float *a, const float *b,
                         size_t n, double bound)
{
    double error = 0, value = 0;
    for (size_t i = 0; i < n; i++) {
        double e = fabs((double) a[i] - (double) b[i]);
        error = e > error || e != e ? e : error;
        value = fabs((double) b[i]) > value ? fabs((double) b[i]) : value;
    }
    bool ok = n > 0 && error <= bound * value;
    if (!ok)
        printf("\n    %s: off by %g of %g (%zu values)", what, error, value,
               n);
    CHECK(ok);
}

/* ---- The model ---------------------------------------------------------- */

static struct tile *add_tile(struct model *m, struct weft_weights *w,
                             enum weft_tile_kind kind, int32_t layer,
                             int32_t block)
{
    struct weft_err err;
    struct tile *t = &m->tile[m->n_tiles++];
    *t = (struct tile){.kind = kind, .layer = layer, .block = block};
    weft_layout_get(&m->s, kind, block, &t->layout);
    t->master = weft_alloc_aligned(t->layout.n_flat, 4);
    t->grad = weft_alloc_aligned(t->layout.n_flat, 4);
    t->m = weft_alloc_aligned(t->layout.n_flat, 4);
    t->v = weft_alloc_aligned(t->layout.n_flat, 4);
    t->fwd = weft_alloc_aligned(t->layout.fwd_bytes, 1);
    t->bwd = t->layout.bwd_bytes ? weft_alloc_aligned(t->layout.bwd_bytes, 1)
                                 : NULL;
    REQUIRE_OK(
        weft_weights_read_tile(w, &m->s, kind, layer, block, t->master, &err),
        err);
    weft_k_publish(&t->layout, m->s.dtype, t->master, t->fwd, t->bwd);
    return t;
}

static void load(struct model *m, const char *family, int32_t n_blocks)
{
    char dir[64], file[64];
    struct weft_err err;
    struct weft_weights *w;
    *m = (struct model){0};
    snprintf(dir, sizeof dir, "golden/%s", family);
    snprintf(file, sizeof file, "golden/%s.safetensors", family);
    REQUIRE_OK(weft_arch_read(weft_test_data(dir), &m->arch, &err), err);
    REQUIRE_OK(
        weft_safetensors_open_file(weft_test_data(file), &m->golden, &err),
        err);
    m->s = m->arch.shape;
    CHECK(m->s.dtype == WEFT_F32);
    REQUIRE_OK(weft_shape_partition(&m->s, n_blocks, &err), err);
    REQUIRE_OK(
        weft_weights_open(weft_test_data(dir), &m->arch, NULL, &w, &err),
        err);
    REQUIRE(m->s.n_layers <= MAX_LAYERS);
    for (int32_t t = 0; t < n_blocks; t++) {
        add_tile(m, w, WEFT_TILE_EMBED, 0, t);
        add_tile(m, w, WEFT_TILE_HEAD, 0, t);
        for (int32_t l = 0; l < m->s.n_layers; l++)
            add_tile(m, w, WEFT_TILE_LAYER, l, t);
    }
    for (int32_t l = 0; l < m->s.n_layers; l++)
        add_tile(m, w, WEFT_TILE_NORMS, l, 0);
    add_tile(m, w, WEFT_TILE_FINAL, 0, 0);
    weft_weights_close(w);

    float *length = golden_values(m, "lengths");
    float *token = golden_values(m, "tokens");
    for (int32_t i = 0; i < SAMPLES; i++) {
        m->run[i].n = m->length[i] = (int32_t) length[i];
        m->n += m->length[i];
    }
    REQUIRE(m->n <= MAX_TOKENS);
    for (int32_t i = 0; i < m->n; i++)
        m->token[i] = (int32_t) token[i];
    m->batch = (struct weft_k_batch){
        .n_rows = m->n, .n_runs = SAMPLES, .run = m->run, .token = m->token};
    free(length);
    free(token);
}

static void unload(struct model *m)
{
    for (int32_t i = 0; i < m->n_tiles; i++) {
        struct tile *t = &m->tile[i];
        void *all[] = {t->master, t->grad, t->m, t->v, t->fwd, t->bwd};
        for (size_t j = 0; j < WEFT_COUNT(all); j++)
            weft_free(all[j]);
    }
    weft_safetensors_close(m->golden);
}

static struct tile *find(struct model *m, enum weft_tile_kind kind,
                         int32_t layer, int32_t block)
{
    for (int32_t i = 0; i < m->n_tiles; i++)
        if (m->tile[i].kind == kind && m->tile[i].layer == layer
            && m->tile[i].block == block)
            return &m->tile[i];
    return NULL;
}

static struct weft_k_layer layer_of(struct model *m, int32_t layer,
                                    float *grad[])
{
    struct weft_k_layer w = {
        .norms = find(m, WEFT_TILE_NORMS, layer, 0)->master};
    for (int32_t t = 0; t < m->s.n_blocks; t++) {
        struct tile *tile = find(m, WEFT_TILE_LAYER, layer, t);
        w.fwd[t] = tile->fwd;
        w.bwd[t] = tile->bwd;
        grad[t] = tile->grad;
    }
    return w;
}

/* ---- Forward and backward ---------------------------------------------- */

static void *alloc(size_t bytes)
{
    return weft_alloc_aligned(bytes, 1);
}

static void check_logits(struct model *m, const struct weft_k_head *head,
                         const float *x)
{
    enum { LAST = 8 };
    size_t n = (size_t) (LAST * m->s.vocab);
    float *expected = golden_values(m, "logits");
    float *logits = weft_alloc_aligned(n, sizeof *logits);
    void *scratch = alloc(weft_k_head_scratch_bytes(&m->s, LAST));
    weft_k_head_logits(&m->s, head, LAST, x + (m->n - LAST) * m->s.hidden,
                       logits, scratch);
    check_values("logits", logits, expected, n, 3e-6);
    free(expected);
    weft_free(logits);
    weft_free(scratch);
}

/* Log-probs of x, and with their weights dx and the head's gradients. */
static void run_head(struct model *m, const float *x, float *dx)
{
    struct weft_k_head head = {
        .final = find(m, WEFT_TILE_FINAL, 0, 0)->master};
    float *grad[WEFT_MAX_BLOCKS];
    for (int32_t t = 0; t < m->s.n_blocks; t++) {
        struct tile *tile = find(m, WEFT_TILE_HEAD, 0, t);
        head.fwd[t] = tile->fwd;
        head.bwd[t] = tile->bwd;
        grad[t] = tile->grad;
    }
    int32_t row[MAX_TOKENS], target[MAX_TOKENS], run_rows[SAMPLES], n = 0;
    for (int32_t i = 0, at = 0; i < SAMPLES; at += m->length[i++]) {
        run_rows[i] = m->length[i] - 1;
        for (int32_t j = 0; j < run_rows[i]; j++, n++) {
            row[n] = at + j;
            target[n] = m->token[at + j + 1];
        }
    }
    struct weft_k_targets targets = {n, row, target, 0, NULL};
    float logp[MAX_TOKENS], entropy[MAX_TOKENS], lse[MAX_TOKENS];
    float dlogp[MAX_TOKENS], dentropy[MAX_TOKENS];
    void *scratch = alloc(weft_k_head_scratch_bytes(&m->s, n));
    weft_k_head_logprob(&m->s, &head, x, &targets, 1, logp, entropy, lse,
                        scratch);
    weft_free(scratch);
    check_logits(m, &head, x);
    float *expected = golden_values(m, "logp");
    check_values("log-probs", logp, expected, (size_t) n, 3e-6);
    free(expected);
    expected = golden_values(m, "entropy");
    check_values("entropies", entropy, expected, (size_t) n, 3e-6);
    free(expected);

    float *weight = golden_values(m, "weight");
    float *coef = golden_values(m, "entropy_coef");
    float *loss = golden_values(m, "loss");
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        dlogp[i] = -weight[i];
        dentropy[i] = coef[0];
        sum += dlogp[i] * logp[i] + coef[0] * entropy[i];
    }
    CHECK(fabs(sum - loss[0]) < 1e-5 * fabs((double) loss[0]));
    scratch = alloc(weft_k_head_backward_scratch_bytes(&m->s, n, SAMPLES));
    weft_k_head_backward(&m->s, &head, m->n, x, &targets, SAMPLES, run_rows,
                         1, lse, entropy, dlogp, dentropy, dx, grad,
                         find(m, WEFT_TILE_FINAL, 0, 0)->grad, scratch);
    weft_free(scratch);
    free(weight);
    free(coef);
    free(loss);
}

static void forward_backward(struct model *m)
{
    const struct weft_shape *s = &m->s;
    size_t rows = (size_t) (m->n * s->hidden);
    float *x[MAX_LAYERS + 1], *dx = weft_alloc_aligned(rows, 4);
    float *grad[WEFT_MAX_BLOCKS];
    void *saved[MAX_LAYERS];
    const void *table[WEFT_MAX_BLOCKS];
    for (int32_t t = 0; t < s->n_blocks; t++)
        table[t] = find(m, WEFT_TILE_EMBED, 0, t)->fwd;
    void *scratch = alloc(weft_k_layer_forward_scratch_bytes(s, &m->batch));
    x[0] = weft_alloc_aligned(rows, 4);
    weft_k_embed(s, table, m->n, m->token, x[0]);
    for (int32_t l = 0; l < s->n_layers; l++) {
        struct weft_k_layer w = layer_of(m, l, grad);
        x[l + 1] = weft_alloc_aligned(rows, 4);
        saved[l] = alloc(weft_k_layer_saved_bytes(s, m->n));
        weft_k_layer_forward(s, &w, l, &m->batch, NULL, x[l], x[l + 1],
                             saved[l], scratch);
    }
    weft_free(scratch);
    run_head(m, x[s->n_layers], dx);
    scratch = alloc(weft_k_layer_backward_scratch_bytes(s, &m->batch, false));
    for (int32_t l = s->n_layers - 1; l >= 0; l--) {
        struct weft_k_layer w = layer_of(m, l, grad);
        weft_k_layer_backward(s, &w, &m->batch, x[l], saved[l], dx, grad,
                              find(m, WEFT_TILE_NORMS, l, 0)->grad, scratch);
        weft_free(saved[l]);
        weft_free(x[l + 1]);
    }
    weft_free(scratch);
    for (int32_t t = 0; t < s->n_blocks; t++)
        grad[t] = find(m, WEFT_TILE_EMBED, 0, t)->grad;
    weft_k_embed_backward(s, m->n, m->token, dx, grad);
    for (int32_t t = 0; s->tied && t < s->n_blocks; t++)
        weft_k_tied_add_gradient(
            s, t,
            (struct weft_range){
                0,
                weft_layout_n_chunks(&find(m, WEFT_TILE_HEAD, 0, t)->layout)},
            grad[t], find(m, WEFT_TILE_HEAD, 0, t)->grad);
    weft_free(x[0]);
    weft_free(dx);
}

/* ---- By the files' names ----------------------------------------------- */

/* A tied model's one matrix is the head's tile. */
static bool counts(const struct model *m, const struct tile *t)
{
    return !(m->s.tied && t->kind == WEFT_TILE_EMBED);
}

/* Compares masters or gradients with the golden samples `prefix`. */
static void check_tensors(struct model *m, const char *prefix, bool grad,
                          double bound)
{
    char dir[] = "/tmp/weft-golden-XXXXXX", path[128];
    struct weft_err err;
    struct weft_weights_writer_options options = {.dtype = WEFT_F32};
    struct weft_weights_writer *writer;
    struct weft_safetensors *st;
    REQUIRE(mkdtemp(dir) != NULL);
    REQUIRE_OK(
        weft_weights_writer_open(dir, &m->arch, &options, &writer, &err),
        err);
    for (int32_t i = 0; i < m->n_tiles; i++) {
        const struct tile *t = &m->tile[i];
        if (counts(m, t))
            REQUIRE_OK(weft_weights_writer_put(
                           writer, &m->s, t->kind, t->layer, t->block,
                           grad ? t->grad : t->master, &err),
                       err);
    }
    REQUIRE_OK(weft_weights_writer_close(writer, &err), err);
    REQUIRE_OK(weft_safetensors_open(dir, "model", &st, &err), err);
    CHECK(weft_safetensors_count(st) > 10);
    for (size_t i = 0; i < weft_safetensors_count(st); i++) {
        const struct weft_st_tensor *t = weft_safetensors_get(st, i);
        const struct weft_st_tensor *e = golden(m, prefix, t->name);
        float *a = calloc(e->n, sizeof *a), *b = calloc(e->n, sizeof *b);
        weft_st_tensor_read(e, 0, e->n, b);
        for (size_t j = 0; j < e->n; j++)
            weft_st_tensor_read(t, t->n > e->n ? j * STRIDE % t->n : j, 1,
                                &a[j]);
        check_values(e->name, a, b, e->n, bound);
        free(a);
        free(b);
    }
    weft_safetensors_close(st);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    CHECK(unlink(path) == 0);
    CHECK(rmdir(dir) == 0);
}

static double gradient_norm(struct model *m)
{
    double sum = 0;
    for (int32_t i = 0; i < m->n_tiles; i++) {
        const struct tile *t = &m->tile[i];
        struct weft_range one = {0, 1};
        int32_t n = weft_layout_n_chunks(&t->layout);
        for (; one.first < n && counts(m, t); one.first++) {
            double squares;
            weft_k_chunk_squares(
                &m->s, t->kind, t->block, one,
                t->grad + weft_layout_chunk(&t->layout, one.first), &squares);
            sum += squares;
        }
    }
    return sqrt(sum);
}

static void step(struct model *m)
{
    float *norm = golden_values(m, "grad_norm");
    float *o = golden_values(m, "adamw");
    double mine = gradient_norm(m);
    CHECK(fabs(mine - norm[0]) < 1e-5 * mine);
    double scale = fmin(1, o[5] / (mine + 1e-6));
    struct weft_k_adamw adamw = {o[0], o[1], o[2], o[3], o[4], 1};
    for (int32_t l = 0; l < m->s.n_layers; l++) {
        float *grad[WEFT_MAX_BLOCKS];
        layer_of(m, l, grad);
        weft_k_share_range(&m->s, weft_all_blocks(&m->s), grad);
    }
    for (int32_t i = 0; i < m->n_tiles; i++) {
        struct tile *t = &m->tile[i];
        if (counts(m, t))
            weft_k_adamw(&adamw, t->layout.n_flat, (float) scale, t->grad,
                         t->master, t->m, t->v);
    }
    free(norm);
    free(o);
}

/* Bounds: both sides compute in f32, chains of some hundred terms that
 * cancel, and gradients pass two layers; AdamW's first step is lr g / (|g| +
 * eps), so the gradient's error counts relative to |g| + eps, times lr. */
static void check_family(const char *family, int32_t n_blocks)
{
    struct model m;
    load(&m, family, n_blocks);
    forward_backward(&m);
    check_tensors(&m, "grad.", true, 1e-5);
    step(&m);
    check_tensors(&m, "step.", false, 3e-6);
    unload(&m);
}

static void each(const char *family)
{
    static const char *const isa[] = {"c", NULL};
    for (int i = 0; i < 2; i++) {
        struct weft_err err;
        REQUIRE_OK(weft_k_init(isa[i], &err), err);
        check_family(family, 1);
        check_family(family, 2);
    }
}

static void test_golden_llama(void)
{
    each("llama");
}

static void test_golden_qwen2(void)
{
    each("qwen2");
}

static void test_golden_qwen3(void)
{
    each("qwen3");
}

static void test_golden_mistral(void)
{
    each("mistral");
}

WEFT_TESTS("kern/golden", {"test_golden_llama", test_golden_llama},
           {"test_golden_qwen2", test_golden_qwen2},
           {"test_golden_qwen3", test_golden_qwen3},
           {"test_golden_mistral", test_golden_mistral})
