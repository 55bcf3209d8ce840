/* SPDX-License-Identifier: Apache-2.0 */
/* Token embedding, its gradient, and tied weights. */
#include "kern/kern.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "tests/harness.h"

struct table {
    struct weft_shape shape;
    float *value; /* (V, H), what the table holds */
    void *published[WEFT_MAX_BLOCKS];
    float *grad[WEFT_MAX_BLOCKS];
};

static float noise(int64_t i)
{
    return (float) weft_rng_normal(9, WEFT_RNG_INIT, 0, 0, (uint32_t) i);
}

static void table_init(struct table *t, int32_t vocab, int32_t h,
                       int32_t n_blocks, enum weft_dtype dtype)
{
    struct weft_err err = {0};
    *t = (struct table){.shape = {.hidden = h,
                                  .n_heads = 32,
                                  .n_kv_heads = 32,
                                  .head_dim = 2,
                                  .intermediate = 2048,
                                  .vocab = vocab,
                                  .dtype = dtype,
                                  .tied = true}};
    REQUIRE_OK(weft_shape_partition(&t->shape, n_blocks, &err), err);
    size_t n = (size_t) vocab * (size_t) h;
    t->value = weft_alloc(n, sizeof(float));
    REQUIRE(t->value != NULL);
    for (size_t i = 0; i < n; i++)
        t->value[i] = dtype == WEFT_BF16 ? weft_bf16_to_f32(
                          weft_f32_to_bf16(noise((int64_t) i)))
                                         : noise((int64_t) i);
    for (int32_t b = 0; b < n_blocks; b++) {
        const struct weft_block *k = &t->shape.block[b];
        size_t count = (size_t) k->n_vocab * (size_t) h;
        t->published[b] = weft_alloc_aligned(count, weft_dtype_bytes(dtype));
        t->grad[b] = weft_alloc_aligned(count, sizeof(float));
        REQUIRE(t->published[b] && t->grad[b]);
        weft_convert(t->published[b], dtype,
                     t->value + (size_t) k->vocab0 * (size_t) h, WEFT_F32,
                     count);
    }
}

static void table_release(struct table *t)
{
    weft_free(t->value);
    for (int32_t b = 0; b < t->shape.n_blocks; b++) {
        weft_free(t->published[b]);
        weft_free(t->grad[b]);
    }
}

static const struct {
    int32_t vocab, h, n_blocks;
} sizes[] = {{64, 1, 1},
             {65, 7, 2},
             {257, 33, 4},
             {513, 64, 8},
             {1025, 5, 16},
             {2049, 3, 32},
             /* Written past the caches; but the second's rows are not whole
              * cache lines. */
             {2101, 544, 2},
             {2203, 530, 2}};

static void test_embed_rows(void)
{
    for (int d = WEFT_F32; d <= WEFT_BF16; d++)
        for (size_t s = 0; s < WEFT_COUNT(sizes); s++) {
            struct table t;
            int32_t v = sizes[s].vocab, h = sizes[s].h;
            table_init(&t, v, h, sizes[s].n_blocks, (enum weft_dtype) d);
            int32_t *token = weft_alloc((size_t) v, sizeof *token);
            float *x = weft_alloc((size_t) (v * h), sizeof *x);
            REQUIRE(token && x);
            for (int32_t i = 0; i < v; i++)
                token[i] = v - 1 - i; /* every token, across blocks */
            weft_k_embed(&t.shape, (const void *const *) t.published, v,
                         token, x);
            int bad = 0;
            for (int32_t i = 0; i < v; i++)
                bad += memcmp(x + i * h, t.value + token[i] * h,
                              (size_t) h * sizeof *x)
                    != 0;
            CHECK_INT(bad, 0);
            weft_free(token);
            weft_free(x);
            table_release(&t);
        }
}

/* One f32 chain per row of the table, in the order of the tokens, and the
 * same bits however the rows are cut into calls. */
static void test_embed_backward_chain(void)
{
    enum { N = 200 };
    for (size_t s = 0; s < WEFT_COUNT(sizes); s++) {
        struct table t, cut;
        int32_t v = sizes[s].vocab, h = sizes[s].h, token[N];
        int32_t n_blocks = sizes[s].n_blocks;
        table_init(&t, v, h, n_blocks, WEFT_F32);
        table_init(&cut, v, h, n_blocks, WEFT_F32);
        float *dx = weft_alloc((size_t) (N * h), sizeof *dx);
        float *expected = weft_alloc((size_t) (v * h), sizeof *expected);
        REQUIRE(dx && expected);
        for (int32_t i = 0; i < N; i++)
            token[i] = i % 3 ? i * 37 % v : v - 1; /* many repeats */
        for (int32_t i = 0; i < N * h; i++)
            dx[i] = noise(i);
        for (int32_t i = 0; i < N; i++)
            for (int32_t j = 0; j < h; j++)
                expected[token[i] * h + j] += dx[i * h + j];
        weft_k_embed_backward(&t.shape, N, token, dx, t.grad);
        weft_k_embed_backward(&cut.shape, 71, token, dx, cut.grad);
        weft_k_embed_backward(&cut.shape, N - 71, token + 71, dx + 71 * h,
                              cut.grad);
        for (int32_t b = 0; b < n_blocks; b++) {
            const struct weft_block *k = &t.shape.block[b];
            size_t bytes = (size_t) (k->n_vocab * h) * sizeof(float);
            CHECK(memcmp(t.grad[b], expected + k->vocab0 * h, bytes) == 0);
            CHECK(memcmp(t.grad[b], cut.grad[b], bytes) == 0);
        }
        weft_free(dx);
        weft_free(expected);
        table_release(&t);
        table_release(&cut);
    }
}

static void test_tied_add_gradient(void)
{
    for (size_t s = 0; s < WEFT_COUNT(sizes); s++) {
        struct table t;
        int32_t h = sizes[s].h, b = sizes[s].n_blocks - 1;
        table_init(&t, sizes[s].vocab, h, sizes[s].n_blocks, WEFT_F32);
        struct weft_layout l;
        weft_layout_get(&t.shape, WEFT_TILE_HEAD, b, &l);
        const struct weft_part *p = &l.part[0];
        float *head = weft_alloc_aligned(l.n_flat, sizeof *head);
        REQUIRE(head != NULL);
        for (size_t i = 0; i < p->n_flat; i++)
            head[i] = (float) i;
        const float *embed = t.value + t.shape.block[b].vocab0 * h;
        /* in two goes */
        int32_t n_chunks = weft_layout_n_chunks(&l), first = n_chunks / 2;
        struct weft_range low = {0, first}, high = {first, n_chunks - first};
        size_t at = weft_layout_chunk(&l, first);
        weft_k_tied_add_gradient(&t.shape, b, low, embed, head);
        weft_k_tied_add_gradient(&t.shape, b, high, embed + at, head + at);
        int bad = 0;
        for (int32_t n = 0; n < p->n_pad; n++)
            for (int32_t k = 0; k < h; k++) {
                size_t i = weft_flat_index(p, n, k);
                float add = n < p->n ? embed[n * h + k] : 0;
                bad += head[i] != (float) i + add;
            }
        CHECK_INT(bad, 0);
        weft_free(head);
        table_release(&t);
    }
}

/* From a head of its own, and in the head's memory. */
static void check_table(const struct table *t, int32_t b,
                        const struct weft_layout *l, void *head)
{
    size_t bytes = (size_t) (t->shape.block[b].n_vocab * t->shape.hidden)
                 * weft_dtype_bytes(t->shape.dtype);
    void *table = weft_alloc_aligned(l->fwd_bytes, 1);
    void *scratch = weft_alloc_aligned(
        weft_k_tied_table_scratch_bytes(&t->shape), 1);
    REQUIRE(table && scratch);
    weft_k_tied_table(&t->shape, b, head, table, scratch);
    CHECK(memcmp(table, t->published[b], bytes) == 0);
    weft_k_tied_table(&t->shape, b, head, head, scratch);
    CHECK(memcmp(head, table, l->fwd_bytes) == 0);
    weft_free(table);
    weft_free(scratch);
}

static void test_tied_table(void)
{
    for (int d = WEFT_F32; d <= WEFT_BF16; d++)
        for (size_t s = 0; s < WEFT_COUNT(sizes); s++) {
            struct table t;
            int32_t h = sizes[s].h, b = sizes[s].n_blocks - 1;
            if (d == WEFT_BF16)
                h += h % 2;
            table_init(&t, sizes[s].vocab, h, sizes[s].n_blocks,
                       (enum weft_dtype) d);
            struct weft_layout l;
            weft_layout_get(&t.shape, WEFT_TILE_HEAD, b, &l);
            float *master = weft_alloc_aligned(l.n_flat, sizeof *master);
            void *head = weft_alloc_aligned(l.fwd_bytes, 1);
            REQUIRE(master && head);
            int32_t n = t.shape.block[b].n_vocab;
            for (int32_t i = 0; i < n; i++)
                for (int32_t k = 0; k < h; k++)
                    master[weft_flat_index(&l.part[0], i, k)] = noise(
                        t.shape.block[b].vocab0 * h + i * h + k);
            weft_k_publish(&l, (enum weft_dtype) d, master, head, NULL);
            check_table(&t, b, &l, head);
            weft_free(head);
            weft_free(master);
            table_release(&t);
        }
}

WEFT_TESTS("kern/embed", {"test_embed_rows", test_embed_rows},
           {"test_embed_backward_chain", test_embed_backward_chain},
           {"test_tied_add_gradient", test_tied_add_gradient},
           {"test_tied_table", test_tied_table})
