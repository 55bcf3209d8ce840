/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Roots and joins against recursive trees, and the operations without sums
 * over blocks: embedding and transposed weights.
 */
#include "kern/parts.h"

#include "base/rng.h"
#include "parts_fixture.h"

static float noise(uint32_t stream, int64_t i)
{
    return (float) weft_rng_normal(3, WEFT_RNG_INIT, stream, 0, (uint32_t) i);
}

/* ---- Roots ------------------------------------------------------------- */

static void test_roots_are_subtrees(void)
{
    for (int32_t T = 1; T <= WEFT_MAX_BLOCKS; T *= 2)
        for (int32_t first = 0; first < T; first++)
            for (int32_t n = 1; first + n <= T; n++) {
                struct weft_range range = {first, n};
                struct weft_range got[WEFT_MAX_ROOTS], want[WEFT_MAX_BLOCKS];
                int32_t n_roots = weft_k_roots(T, range, got);
                REQUIRE(n_roots == oracle_roots(range, 0, T, want));
                for (int32_t i = 0; i < n_roots; i++) {
                    CHECK_INT(got[i].first, want[i].first);
                    CHECK_INT(got[i].n, want[i].n);
                }
            }
}

/* T leaves of n elements, and a range's roots of them. */
static void make_roots(int32_t T, float *const leaf[],
                       struct weft_range range, int64_t n, float *out)
{
    struct weft_range root[WEFT_MAX_BLOCKS];
    int32_t n_roots = oracle_roots(range, 0, T, root);
    for (int32_t j = 0; j < n_roots; j++)
        for (int64_t i = 0; i < n; i++)
            out[j * n + i] = oracle_sum(leaf, root[j].first, root[j].n, i);
}

/* The part of [0, T) from block `first` on, cut: its roots. */
static void join_of(int32_t T, float *const leaf[], int32_t first,
                    uint32_t cuts, int64_t n, bool in_place)
{
    struct split split = split_of(T, cuts | 1u << first >> 1);
    struct weft_k_part part[WEFT_MAX_BLOCKS];
    float *mine[WEFT_MAX_BLOCKS];
    struct weft_range all = {first, T - first};
    int32_t n_parts = 0;
    size_t bytes = (size_t) (WEFT_MAX_ROOTS * n) * sizeof(float);
    float *want = poisoned(bytes);
    make_roots(T, leaf, all, n, want);
    for (int32_t i = 0; i < split.n; i++) {
        if (split.range[i].first < first)
            continue;
        mine[n_parts] = poisoned(bytes);
        make_roots(T, leaf, split.range[i], n, mine[n_parts]);
        part[n_parts] = (struct weft_k_part){split.range[i], mine[n_parts]};
        n_parts++;
    }
    float *out = in_place ? mine[0] : poisoned(bytes);
    weft_k_join(T, n_parts, part, n, out);
    struct weft_range root[WEFT_MAX_ROOTS];
    int32_t n_roots = weft_k_roots(T, all, root);
    CHECK(memcmp(out, want, (size_t) (n_roots * n) * sizeof *out) == 0);
    if (!in_place)
        weft_free(out);
    for (int32_t i = 0; i < n_parts; i++)
        weft_free(mine[i]);
    weft_free(want);
}

/* A way to cut T blocks: of 8 all there are, of more the whole, each alone, and
 * some that are drawn, with few cuts and many. */
static uint32_t way_to_cut(int32_t T, uint32_t way)
{
    uint32_t word[4];
    if (T <= 8 || way == 0)
        return way;
    weft_rng_words(4, WEFT_RNG_INIT, way, 0, 0, word);
    return way == 1     ? ~0u
         : way % 3 == 0 ? word[0]
                        : word[0] & word[1] & word[2];
}

static void join_all(int32_t T, float *const leaf[], int64_t n)
{
    for (uint32_t way = 0; way < 128; way++)
        for (int32_t first = 0; first < T; first += T <= 8 ? 3 : 5)
            join_of(T, leaf, first, way_to_cut(T, way), n, way % 2);
}

static void test_join_is_the_tree(void)
{
    static const int64_t size[] = {1, 37, 1024, 2500};
    float *leaf[WEFT_MAX_BLOCKS];
    for (uint32_t t = 0; t < WEFT_MAX_BLOCKS; t++) {
        leaf[t] = weft_alloc(2500, sizeof(float));
        for (int64_t i = 0; i < 2500; i++)
            leaf[t][i] = noise(t, i);
    }
    for (size_t i = 0; i < WEFT_COUNT(size); i++)
        for (int32_t T = 8; T <= WEFT_MAX_BLOCKS; T *= 2)
            join_all(T, leaf, size[i]);
    for (int32_t t = 0; t < WEFT_MAX_BLOCKS; t++)
        weft_free(leaf[t]);
}

static void test_join_rows_adds_bias_then_residual(void)
{
    enum { M = 5, H = 70, N = M * H };
    static float leaf[2][N], bias[H], residual[N], y[N], scratch[N];
    const struct weft_k_part part[2] = {{{0, 1}, leaf[0]}, {{1, 1}, leaf[1]}};
    for (int i = 0; i < N; i++) {
        leaf[0][i] = noise(20, i);
        leaf[1][i] = noise(21, i);
        residual[i] = noise(22, i);
        bias[i % H] = noise(23, i % H);
    }
    for (int has = 0; has < 4; has++)
        for (int32_t n_parts = 1; n_parts <= 2; n_parts++) {
            /* y may be the residual */
            memcpy(y, residual, sizeof y);
            weft_k_join_rows(n_parts, n_parts, part, M, H,
                             has & 1 ? bias : NULL, has & 2 ? y : NULL, y,
                             scratch);
            for (int i = 0; i < N; i++) {
                float want = leaf[0][i];
                want = n_parts == 2 ? want + leaf[1][i] : want;
                want = has & 1 ? want + bias[i % H] : want;
                want = has & 2 ? want + residual[i] : want;
                CHECK(y[i] == want);
            }
        }
}

/* ---- Embedding --------------------------------------------------------- */

static void embed_of(int32_t T, enum weft_dtype dtype, uint32_t cuts)
{
    enum { MOST = WEFT_MAX_BLOCKS, H = 34, N = 50 };
    const int32_t V = T > 8 ? 64 * T + 17 : 700;
    struct weft_shape s = {.hidden = H,
                           .n_heads = T,
                           .n_kv_heads = T,
                           .head_dim = 4,
                           .intermediate = 64 * T,
                           .vocab = V,
                           .dtype = dtype};
    struct weft_err err;
    REQUIRE_OK(weft_shape_partition(&s, T, &err), err);
    struct split split = split_of(T, cuts);
    struct weft_k_part part[MOST];
    const void *table[MOST], *of[MOST] = {NULL};
    float *grad[2][MOST], *mine[MOST] = {NULL}, *x[MOST + 1];
    float *whole = poisoned(N * H * sizeof(float));
    int32_t token[N];
    for (int32_t i = 0; i < N; i++)
        token[i] = i < 4 ? (V - 1) * (i % 2) : i * 7919 % V;
    for (int32_t t = 0; t < T; t++) {
        size_t n = (size_t) s.block[t].n_vocab * H;
        float *w = poisoned(n * sizeof *w);
        for (size_t i = 0; i < n; i++)
            w[i] = noise(130 + (uint32_t) t, (int64_t) i);
        void *as = poisoned(n * weft_dtype_bytes(dtype));
        weft_convert(as, dtype, w, WEFT_F32, n);
        weft_free(w);
        table[t] = as;
        for (int i = 0; i < 2; i++)
            grad[i][t] = weft_alloc_aligned(n, sizeof(float));
    }
    weft_k_embed(&s, table, N, token, whole);
    weft_k_embed_backward(&s, N, token, whole, grad[0]);
    for (int32_t p = 0; p < split.n; p++) {
        struct weft_range range = split.range[p];
        for (int32_t t = 0; t < T; t++) {
            bool in = t >= range.first && t < weft_range_end(range);
            of[t] = in ? table[t] : NULL;
            mine[t] = in ? grad[1][t] : NULL;
        }
        x[p] = poisoned(N * H * sizeof(float));
        weft_k_embed_part(&s, range, of, N, token, x[p]);
        weft_k_embed_backward(&s, N, token, whole, mine);
        part[p] = (struct weft_k_part){range, x[p]};
    }
    x[split.n] = poisoned(N * H * sizeof(float));
    float *out = x[cuts % 3 == 0 ? split.n - 1 : split.n];
    weft_k_embed_select(&s, N, token, split.n, part, out);
    CHECK(memcmp(out, whole, N * H * sizeof *out) == 0);
    for (int32_t t = 0; t < T; t++) {
        size_t n = (size_t) s.block[t].n_vocab * H;
        CHECK(memcmp(grad[0][t], grad[1][t], n * sizeof(float)) == 0);
        weft_free(grad[0][t]);
        weft_free(grad[1][t]);
        weft_free((void *) (uintptr_t) table[t]);
    }
    for (int32_t p = 0; p <= split.n; p++)
        weft_free(x[p]);
    weft_free(whole);
}

static void test_embedding_by_parts(void)
{
    for (int32_t T = 8; T <= WEFT_MAX_BLOCKS; T *= 2) {
        size_t n;
        const uint32_t *cuts = cuts_of_blocks(T, &n);
        for (size_t i = 0; i < n; i++) {
            embed_of(T, WEFT_F32, cuts[i]);
            embed_of(T, WEFT_BF16, cuts[i]);
        }
    }
}

/* ---- Transposed weights ------------------------------------------------ */

static void transpose_of(enum weft_dtype dtype, enum weft_tile_kind kind)
{
    struct weft_shape s = {.hidden = 70,
                           .n_heads = 6,
                           .n_kv_heads = 3,
                           .head_dim = 10,
                           .intermediate = 200,
                           .vocab = 333,
                           .qkv_bias = true,
                           .dtype = dtype};
    struct weft_err err;
    struct weft_layout l;
    REQUIRE_OK(weft_shape_partition(&s, 2, &err), err);
    for (int32_t t = 0; t < 2; t++) {
        weft_layout_get(&s, kind, t, &l);
        float *master = weft_alloc_aligned(l.n_flat, sizeof *master);
        for (size_t i = 0; i < l.n_flat; i++)
            master[i] = noise(50, (int64_t) i);
        void *fwd = poisoned(l.fwd_bytes);
        void *want = poisoned(l.bwd_bytes), *got = poisoned(l.bwd_bytes);
        weft_k_publish(&l, dtype, master, fwd, want);
        weft_k_transpose(&l, dtype, fwd, got);
        CHECK(memcmp(got, want, l.bwd_bytes + 64) == 0);
        weft_free(master);
        weft_free(fwd);
        weft_free(want);
        weft_free(got);
    }
}

static void test_transpose_is_publish(void)
{
    for (int i = 0; i < 2; i++) {
        enum weft_dtype dtype = i ? WEFT_BF16 : WEFT_F32;
        transpose_of(dtype, WEFT_TILE_LAYER);
        transpose_of(dtype, WEFT_TILE_HEAD);
    }
}

WEFT_TESTS("kern/parts", {"test_roots_are_subtrees", test_roots_are_subtrees},
           {"test_join_is_the_tree", test_join_is_the_tree},
           {"test_join_rows_adds_bias_then_residual",
            test_join_rows_adds_bias_then_residual},
           {"test_embedding_by_parts", test_embedding_by_parts},
           {"test_transpose_is_publish", test_transpose_is_publish})
