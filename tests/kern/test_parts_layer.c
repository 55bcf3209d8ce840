/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layer by parts, however its blocks are dealt: the bits of the whole one
 * in outputs, saved values, caches and gradients. Members see their own
 * blocks only; all other memory is NaN.
 */
#include "kern/layer.h"
#include "layer_fixture.h"
#include "parts_fixture.h"

/* ---- Shapes and memory --------------------------------------------------- */

/* KV heads: one per query head, shared by two blocks, by all, and raggedly;
 * biases, norms of q and k, a run longer than a chunk of rows. */
static const struct kind {
    struct weft_shape s;
    int32_t n_blocks;
} kinds[] = {
    {{.hidden = 34,
      .n_heads = 8,
      .n_kv_heads = 8,
      .head_dim = 6,
      .intermediate = 500,
      .o_bias = true},
     8},
    {{.hidden = 32,
      .n_heads = 8,
      .n_kv_heads = 4,
      .head_dim = 8,
      .intermediate = 700,
      .qkv_bias = true,
      .qk_norm = true},
     8},
    {{.hidden = 40,
      .n_heads = 8,
      .n_kv_heads = 1,
      .head_dim = 10,
      .intermediate = 512,
      .qk_norm = true,
      .o_bias = true},
     8},
    {{.hidden = 32,
      .n_heads = 24,
      .n_kv_heads = 3,
      .head_dim = 4,
      .intermediate = 520,
      .qkv_bias = true,
      .qk_norm = true},
     8},
    {{.hidden = 48,
      .n_heads = 24,
      .n_kv_heads = 6,
      .head_dim = 8,
      .intermediate = 520,
      .qkv_bias = true},
     8},
    {{.hidden = 34,
      .n_heads = 12,
      .n_kv_heads = 3,
      .head_dim = 18,
      .intermediate = 250,
      .qk_norm = true},
     4},
    {{.hidden = 32,
      .n_heads = 2,
      .n_kv_heads = 1,
      .head_dim = 64,
      .intermediate = 100},
     2},
    {{.hidden = 16,
      .n_heads = 3,
      .n_kv_heads = 3,
      .head_dim = 4,
      .intermediate = 64,
      .qk_norm = true},
     1},
    {{.hidden = 34,
      .n_heads = 16,
      .n_kv_heads = 16,
      .head_dim = 6,
      .intermediate = 1030,
      .o_bias = true},
     16},
    {{.hidden = 32,
      .n_heads = 32,
      .n_kv_heads = 4,
      .head_dim = 4,
      .intermediate = 2050,
      .qkv_bias = true,
      .qk_norm = true},
     32},
    {{.hidden = 32,
      .n_heads = 96,
      .n_kv_heads = 12,
      .head_dim = 2,
      .intermediate = 2048,
      .qk_norm = true},
     32},
};

static void init(struct fixture *f, size_t kind, enum weft_dtype dtype)
{
    struct weft_shape s = kinds[kind].s;
    s.n_layers = 1;
    s.vocab = WEFT_FF_GRAIN * WEFT_MAX_BLOCKS;
    s.max_positions = 1024;
    s.rms_eps = 1e-5f;
    s.rope_theta = 10000;
    s.dtype = dtype;
    fixture_init(f, s, kinds[kind].n_blocks);
}

/* Every kind with the best instruction set, some with the rest; from the
 * `first`-th split on every step-th. */
static void each(void (*body)(struct fixture *, uint32_t cuts), size_t first,
                 size_t step)
{
    bool best = weft_k_isa() == weft_k_isa_detect();
    for (size_t kind = 0; kind < WEFT_COUNT(kinds); kind += best ? 1 : 3)
        for (int i = 0; i < 2; i++) {
            struct fixture f;
            init(&f, kind, i ? WEFT_BF16 : WEFT_F32);
            size_t n;
            const uint32_t *cuts = cuts_of_blocks(f.s.n_blocks, &n);
            for (size_t c = first; c < n; c += step)
                body(&f, cuts[c]);
            fixture_release(&f);
        }
}

/* ---- Members ----------------------------------------------------------- */

/* One member of a tp group and what it holds. */
struct member {
    struct weft_range range;
    struct weft_k_layer w;
    void *saved;
    float *roots;
    float *dqkv, *shared, *head_norms;    /* in backward */
    float *grad[WEFT_MAX_BLOCKS], *norms; /* gradients */
};

struct group {
    struct fixture *f;
    const struct weft_k_batch *b;
    struct split split;
    struct member member[WEFT_MAX_BLOCKS];
    struct weft_k_part part[WEFT_MAX_BLOCKS];
};

static size_t row_bytes(const struct group *g)
{
    return (size_t) (g->b->n_rows * g->f->s.hidden) * sizeof(float);
}

static void group_init(struct group *g, struct fixture *f,
                       const struct weft_k_batch *b, uint32_t cuts)
{
    *g = (struct group){
        .f = f, .b = b, .split = split_of(f->s.n_blocks, cuts)};
    for (int32_t i = 0; i < g->split.n; i++) {
        struct member *m = &g->member[i];
        m->range = g->split.range[i];
        m->w.norms = f->norms;
        for (int32_t t = m->range.first; t < weft_range_end(m->range); t++) {
            m->w.fwd[t] = f->fwd[t];
            m->w.bwd[t] = f->bwd[t];
        }
        m->saved = poisoned(
            weft_k_part_saved_bytes(&f->s, m->range, b->n_rows));
        m->roots = poisoned(WEFT_MAX_ROOTS * row_bytes(g));
        g->part[i] = (struct weft_k_part){m->range, m->roots};
    }
}

static void group_release(struct group *g)
{
    for (int32_t i = 0; i < g->split.n; i++) {
        weft_free(g->member[i].saved);
        weft_free(g->member[i].roots);
    }
}

/* The sum of all members' roots in y. */
static void group_join(struct group *g, const float *bias,
                       const float *residual, float *y)
{
    void *scratch = poisoned(row_bytes(g));
    weft_k_join_rows(g->f->s.n_blocks, g->split.n, g->part, g->b->n_rows,
                     g->f->s.hidden, bias, residual, y, scratch);
    weft_free(scratch);
}

/* y may be x or x_mid. kv: caches of the members, or NULL. */
static void group_forward(struct group *g, int32_t layer,
                          const struct weft_k_kv *kv, const float *x,
                          float *x_mid, float *y, bool save)
{
    const struct weft_shape *s = &g->f->s;
    for (int half = 0; half < 2; half++) {
        for (int32_t i = 0; i < g->split.n; i++) {
            struct member *m = &g->member[i];
            void *saved = save ? m->saved : NULL;
            void *scratch = poisoned(
                weft_k_part_forward_scratch_bytes(s, m->range, g->b));
            if (half == 0)
                weft_k_attention_forward(s, m->range, &m->w, layer, g->b,
                                         kv ? &kv[i] : NULL, x, saved,
                                         m->roots, scratch);
            else
                weft_k_mlp_forward(s, m->range, &m->w, g->b, x_mid, saved,
                                   m->roots, scratch);
            weft_free(scratch);
        }
        if (half == 0)
            group_join(g, weft_k_o_bias(s, g->f->norms), x, x_mid);
        else
            group_join(g, NULL, x_mid, y);
    }
}

/* ---- Forward ----------------------------------------------------------- */

static void check_saved(const struct group *g, const char *whole)
{
    size_t at = (row_bytes(g) + 63) / 64 * 64;
    for (int32_t i = 0; i < g->split.n; i++) {
        size_t bytes = weft_k_part_saved_bytes(&g->f->s, g->split.range[i],
                                               g->b->n_rows);
        CHECK(memcmp(g->member[i].saved, whole + at, bytes) == 0);
        at += bytes;
    }
    CHECK_INT(at, weft_k_layer_saved_bytes(&g->f->s, g->b->n_rows));
}

/* Members that make only gate and up again save the same. */
static void check_recompute(struct group *g, const float *x_mid,
                            const char *whole)
{
    const struct weft_shape *s = &g->f->s;
    int64_t n = g->b->n_rows;
    for (int32_t i = 0; i < g->split.n; i++) {
        struct member *m = &g->member[i];
        struct weft_arena arena = {.base = m->saved};
        struct weft_layer_saved at;
        weft_layer_saved_at(s, m->range, n, &arena, &at);
        for (int32_t t = m->range.first; t < weft_range_end(m->range); t++)
            memset(at.gate_up[t], 0xff,
                   (size_t) (n * 2 * weft_block_ff(s, t))
                       * weft_dtype_bytes(s->dtype));
        void *scratch = poisoned(
            weft_k_part_forward_scratch_bytes(s, m->range, g->b));
        weft_k_mlp_forward(s, m->range, &m->w, g->b, x_mid, m->saved, NULL,
                           scratch);
        weft_free(scratch);
    }
    check_saved(g, whole);
}

static void forward_of(struct fixture *f, int32_t n_runs,
                       const int32_t *length, uint32_t cuts)
{
    struct fixture_batch batch;
    fixture_batch(&batch, n_runs, length);
    struct group g;
    group_init(&g, f, &batch.b, cuts);
    float *x = fixture_rows(1, batch.b.n_rows * f->s.hidden);
    float *y = poisoned(row_bytes(&g)), *x_mid = poisoned(row_bytes(&g));
    float *got = poisoned(row_bytes(&g));
    char *saved = poisoned(weft_k_layer_saved_bytes(&f->s, batch.b.n_rows));
    void *scratch = poisoned(
        weft_k_layer_forward_scratch_bytes(&f->s, &batch.b));
    weft_k_layer_forward(&f->s, &f->w, 0, &batch.b, NULL, x, y, saved,
                         scratch);
    group_forward(&g, 0, NULL, x, x_mid, got, true);
    CHECK(memcmp(got, y, row_bytes(&g)) == 0);
    CHECK(memcmp(x_mid, saved, row_bytes(&g)) == 0);
    check_saved(&g, saved);
    check_recompute(&g, x_mid, saved);
    group_forward(&g, 0, NULL, x, x, x, false);
    CHECK(memcmp(x, y, row_bytes(&g)) == 0);
    void *all[] = {x, y, x_mid, got, saved, scratch};
    for (size_t i = 0; i < WEFT_COUNT(all); i++)
        weft_free(all[i]);
    group_release(&g);
}

static void forward_short(struct fixture *f, uint32_t cuts)
{
    static const int32_t length[] = {3, 1, 66};
    forward_of(f, 3, length, cuts);
}

static void forward(void)
{
    each(forward_short, 0, 1);
}

static void test_forward_by_parts(void)
{
    static const int32_t length[] = {500, 90};
    struct fixture f;
    each_isa(forward);
    init(&f, 3, WEFT_F32);
    forward_of(&f, 2, length, 0x04); /* two chunks of rows */
    fixture_release(&f);
}

/* Roots of a range against single blocks' products and a recursive tree. */
static void roots_of(size_t kind)
{
    static const int32_t length[] = {5};
    struct fixture f;
    struct fixture_batch batch;
    init(&f, kind, WEFT_BF16);
    fixture_batch(&batch, 1, length);
    struct group one, some;
    size_t n_cuts;
    const uint32_t *cuts = cuts_of_blocks(f.s.n_blocks, &n_cuts);
    group_init(&one, &f, &batch.b, 0x7fffffff);
    int64_t n = batch.b.n_rows * f.s.hidden;
    float *x = fixture_rows(1, n), *x_mid = poisoned(row_bytes(&one));
    group_forward(&one, 0, NULL, x, x_mid, x_mid, false);
    float *leaf[WEFT_MAX_BLOCKS];
    for (int32_t t = 0; t < f.s.n_blocks; t++)
        leaf[t] = one.member[t].roots;
    for (size_t c = 0; c < n_cuts; c++) {
        group_init(&some, &f, &batch.b, cuts[c]);
        group_forward(&some, 0, NULL, x, x_mid, x_mid, false);
        for (int32_t i = 0; i < some.split.n; i++) {
            struct weft_range root[WEFT_MAX_BLOCKS];
            int32_t n_roots = oracle_roots(some.split.range[i], 0,
                                           f.s.n_blocks, root);
            for (int64_t j = 0; j < n_roots * n; j++)
                CHECK(some.member[i].roots[j]
                      == oracle_sum(leaf, root[j / n].first, root[j / n].n,
                                    j % n));
        }
        group_release(&some);
    }
    weft_free(x);
    weft_free(x_mid);
    group_release(&one);
    fixture_release(&f);
}

static void test_roots_of_products(void)
{
    for (size_t kind = 0; kind < WEFT_COUNT(kinds); kind++)
        if (kinds[kind].n_blocks >= 8)
            roots_of(kind);
}

/* ---- Cache ------------------------------------------------------------- */

enum { PAGES = 6, PER_SLOT = 3, LAYERS = 2, LAYER = 1 };

static void caches_init(const struct fixture *f, const struct split *split,
                        struct weft_k_kv *kv)
{
    static const int32_t page[2 * PER_SLOT] = {5, 1, 2, 3, 0, 4};
    size_t sum = 0;
    for (int32_t i = 0; i < split->n; i++) {
        size_t bytes = weft_k_part_kv_page_bytes(&f->s, split->range[i],
                                                 LAYERS);
        kv[i] = (struct weft_k_kv){.arena = poisoned(PAGES * bytes),
                                   .page_bytes = bytes,
                                   .page = page,
                                   .pages_per_slot = PER_SLOT};
        sum += bytes;
    }
    CHECK_INT(sum, weft_k_kv_page_bytes(&f->s, LAYERS));
}

/* A prompt, then single tokens of two sequences over a page's end. */
static void decode_of(struct fixture *f, uint32_t cuts)
{
    static const int32_t step[] = {50, 1, 12, 1, 1, 70};
    struct split all = split_of(f->s.n_blocks, 0);
    struct split split = split_of(f->s.n_blocks, cuts);
    struct weft_k_kv whole, kv[WEFT_MAX_BLOCKS];
    caches_init(f, &all, &whole);
    caches_init(f, &split, kv);
    for (uint32_t i = 0, pos = 0; i < WEFT_COUNT(step); pos += step[i++]) {
        int32_t length[2] = {step[i], step[i]};
        struct fixture_batch batch;
        fixture_batch(&batch, 2, length);
        for (int32_t slot = 0; slot < 2; slot++) {
            batch.run[slot].slot = slot;
            batch.run[slot].pos = (int32_t) pos;
        }
        struct group g;
        group_init(&g, f, &batch.b, cuts);
        float *x = fixture_rows(i, batch.b.n_rows * f->s.hidden);
        float *y = poisoned(row_bytes(&g));
        void *scratch = poisoned(
            weft_k_layer_forward_scratch_bytes(&f->s, &batch.b));
        weft_k_layer_forward(&f->s, &f->w, LAYER, &batch.b, &whole, x, y,
                             NULL, scratch);
        group_forward(&g, LAYER, kv, x, x, x, false);
        CHECK(memcmp(x, y, row_bytes(&g)) == 0);
        weft_free(scratch);
        weft_free(x);
        weft_free(y);
        group_release(&g);
    }
    weft_free(whole.arena);
    for (int32_t i = 0; i < split.n; i++)
        weft_free(kv[i].arena);
}

static void decode(void)
{
    each(decode_of, 2, 2);
}

static void test_decode_by_parts(void)
{
    each_isa(decode);
}

/* ---- Backward ---------------------------------------------------------- */

/* Gradients that continue: the same noise for both ways. */
static void grad_init(const struct fixture *f, float *grad[], float **norms)
{
    for (int32_t t = 0; t < f->s.n_blocks; t++)
        grad[t] = fixture_rows(20 + (uint32_t) t, (int64_t) f->n_flat[t]);
    weft_k_share_range(&f->s, weft_all_blocks(&f->s),
                       grad); /* where a replica's chain begins, too */
    *norms = fixture_rows(60, (int64_t) f->n_norms);
}

static float *copy_of(const float *x, size_t n)
{
    float *copy = poisoned(n * sizeof *x);
    memcpy(copy, x, n * sizeof *x);
    return copy;
}

static void backward_init(struct group *g, float *const grad[],
                          const float *norms)
{
    const struct weft_shape *s = &g->f->s;
    size_t row = (size_t) s->head_dim * sizeof(float);
    for (int32_t i = 0; i < g->split.n; i++) {
        struct member *m = &g->member[i];
        for (int32_t t = m->range.first; t < weft_range_end(m->range); t++)
            m->grad[t] = copy_of(grad[t], g->f->n_flat[t]);
        m->norms = copy_of(norms, g->f->n_norms);
        size_t shared = weft_k_shared_kv_bytes(s, m->range, g->b->n_rows);
        m->dqkv = poisoned(weft_k_dqkv_bytes(s, m->range, g->b->n_rows));
        m->shared = shared ? poisoned(shared) : NULL;
        m->head_norms = poisoned(2 * WEFT_MAX_ROOTS * (size_t) g->b->n_rows
                                 * row);
    }
}

static void backward_release(struct group *g)
{
    for (int32_t i = 0; i < g->split.n; i++) {
        struct member *m = &g->member[i];
        for (int32_t t = 0; t < g->f->s.n_blocks; t++)
            weft_free(m->grad[t]);
        weft_free(m->norms);
        weft_free(m->dqkv);
        weft_free(m->shared);
        weft_free(m->head_norms);
    }
}

static void *backward_scratch(const struct group *g, const struct member *m)
{
    return poisoned(
        weft_k_part_backward_scratch_bytes(&g->f->s, m->range, g->b));
}

/* The MLP half: every member goes through the norm; dx is the last one's. */
static void group_mlp_backward(struct group *g, const float *x_mid, float *dx)
{
    const struct weft_shape *s = &g->f->s;
    float *before = poisoned(row_bytes(g));
    memcpy(before, dx, row_bytes(g));
    for (int32_t i = 0; i < g->split.n; i++) {
        struct member *m = &g->member[i];
        void *scratch = backward_scratch(g, m);
        weft_k_mlp_backward(s, m->range, &m->w, g->b, x_mid, m->saved, dx,
                            m->grad, m->roots, scratch);
        weft_free(scratch);
    }
    for (int32_t i = 0; i < g->split.n; i++) {
        void *scratch = poisoned(
            weft_k_norm_join_scratch_bytes(s, g->b->n_rows));
        memcpy(dx, before, row_bytes(g));
        weft_k_mlp_norm_backward(s, g->f->norms, g->b->n_rows, x_mid,
                                 g->split.n, g->part, dx, g->member[i].norms,
                                 scratch);
        weft_free(scratch);
    }
    weft_free(before);
}

static void group_qkv_backward(struct group *g, const float *x)
{
    const struct weft_shape *s = &g->f->s;
    struct weft_k_shared shared[WEFT_MAX_BLOCKS];
    for (int32_t i = 0; i < g->split.n; i++)
        shared[i] = (struct weft_k_shared){g->member[i].range,
                                           g->member[i].shared};
    for (int32_t i = 0; i < g->split.n; i++) {
        struct member *m = &g->member[i];
        void *scratch = backward_scratch(g, m);
        weft_k_qkv_backward(s, m->range, &m->w, g->b, x, m->saved, g->split.n,
                            shared, m->dqkv, m->grad, m->roots,
                            s->qk_norm ? m->head_norms : NULL, scratch);
        weft_free(scratch);
    }
}

/* The attention half. */
static void group_attention_backward(struct group *g, const float *x,
                                     float *dx)
{
    const struct weft_shape *s = &g->f->s;
    int32_t n = g->split.n;
    struct weft_k_part head_norm[2 * WEFT_MAX_BLOCKS];
    float *before = poisoned(row_bytes(g));
    memcpy(before, dx, row_bytes(g));
    for (int32_t i = 0; i < n; i++) {
        struct member *m = &g->member[i];
        void *scratch = backward_scratch(g, m);
        weft_k_heads_backward(s, m->range, &m->w, g->b, m->saved, dx, m->grad,
                              m->dqkv, m->shared, scratch);
        weft_free(scratch);
        struct weft_range root[WEFT_MAX_BLOCKS];
        int32_t n_roots = oracle_roots(m->range, 0, s->n_blocks, root);
        head_norm[i] = (struct weft_k_part){m->range, m->head_norms};
        head_norm[n + i] = (struct weft_k_part){
            m->range,
            m->head_norms + (int64_t) n_roots * g->b->n_rows * s->head_dim};
    }
    group_qkv_backward(g, x);
    for (int32_t i = 0; i < n; i++) {
        void *scratch = poisoned(
            weft_k_norm_join_scratch_bytes(s, g->b->n_rows));
        memcpy(dx, before, row_bytes(g));
        weft_k_attention_norm_backward(s, g->f->norms, g->b->n_rows, x, n,
                                       g->part, s->qk_norm ? head_norm : NULL,
                                       dx, g->member[i].norms, scratch);
        weft_free(scratch);
    }
    weft_free(before);
}

/* Whether two blocks of the range hold one head. */
static bool oracle_shares(const struct weft_shape *s, struct weft_range range)
{
    for (int32_t a = range.first; a < weft_range_end(range); a++)
        for (int32_t b = a + 1; b < weft_range_end(range); b++)
            if (s->block[b].kv0 < s->block[a].kv0 + s->block[a].n_kv)
                return true;
    return false;
}

/* After sharing, all replicas of all members are the owner's rows. */
static void check_gradients(struct group *g, float *const grad[],
                            const float *grad_norms)
{
    const struct weft_shape *s = &g->f->s;
    weft_k_share_range(s, weft_all_blocks(s), grad);
    for (int32_t i = 0; i < g->split.n; i++) {
        struct member *m = &g->member[i];
        bool shares = oracle_shares(s, m->range);
        CHECK(weft_k_shares_in_range(s, m->range) == shares);
        if (shares)
            weft_k_share_range(s, m->range, m->grad);
        for (int32_t t = m->range.first; t < weft_range_end(m->range); t++)
            CHECK(memcmp(m->grad[t], grad[t], g->f->n_flat[t] * 4) == 0);
        CHECK(memcmp(m->norms, grad_norms, g->f->n_norms * 4) == 0);
    }
}

static void backward_of(struct fixture *f, uint32_t cuts)
{
    static const int32_t length[] = {3, 1, 66};
    struct fixture_batch batch;
    struct group g;
    fixture_batch(&batch, 3, length);
    group_init(&g, f, &batch.b, cuts);
    float *grad[WEFT_MAX_BLOCKS], *norms;
    grad_init(f, grad, &norms);
    backward_init(&g, grad, norms);
    int64_t n = batch.b.n_rows * f->s.hidden;
    float *x = fixture_rows(1, n), *y = poisoned(row_bytes(&g));
    float *dx = fixture_rows(2, n), *got = fixture_rows(2, n);
    float *x_mid = poisoned(row_bytes(&g));
    void *scratch = poisoned(
        weft_k_layer_backward_scratch_bytes(&f->s, &batch.b, true));
    weft_k_layer_backward(&f->s, &f->w, &batch.b, x, NULL, dx, grad, norms,
                          scratch);
    group_forward(&g, 0, NULL, x, x_mid, y, true);
    group_mlp_backward(&g, x_mid, got);
    group_attention_backward(&g, x, got);
    CHECK(memcmp(got, dx, row_bytes(&g)) == 0);
    check_gradients(&g, grad, norms);
    void *all[] = {x, y, dx, got, x_mid, scratch, norms};
    for (size_t i = 0; i < WEFT_COUNT(all); i++)
        weft_free(all[i]);
    for (int32_t t = 0; t < f->s.n_blocks; t++)
        weft_free(grad[t]);
    backward_release(&g);
    group_release(&g);
}

static void backward(void)
{
    each(backward_of, 0, 1);
}

static void test_backward_by_parts(void)
{
    each_isa(backward);
}

WEFT_TESTS("kern/parts_layer",
           {"test_forward_by_parts", test_forward_by_parts},
           {"test_roots_of_products", test_roots_of_products},
           {"test_decode_by_parts", test_decode_by_parts},
           {"test_backward_by_parts", test_backward_by_parts})
