/* SPDX-License-Identifier: Apache-2.0 */
/* Mixing of weights against a double loop over the elements of every kind of
 * tile, and its edges: equal weights stay, a mix of 1 copies. */
#include "products.h"

/* Ragged everywhere: rows beyond whole panels, vectors, a score. */
static const struct weft_shape shapes[] = {
    {.hidden = 40,
     .n_layers = 1,
     .n_heads = 4,
     .n_kv_heads = 2,
     .head_dim = 10,
     .intermediate = 150,
     .vocab = 201,
     .qkv_bias = true,
     .o_bias = true,
     .qk_norm = true},
    {.hidden = 2,
     .n_layers = 1,
     .n_heads = 1,
     .n_kv_heads = 1,
     .head_dim = 2,
     .intermediate = 1,
     .vocab = 1,
     .scalar_head = true},
};

/* Index in the flat part and in its published form of every element. */
static void indices(const struct weft_part *p, enum weft_dtype dtype,
                    int64_t n, int64_t k, size_t *flat, size_t *published)
{
    bool matrix = p->k > 0 && p->id != WEFT_PART_EMBED;
    int64_t row = p->k > 0 ? n * p->k + k : n;
    *flat = matrix ? weft_flat_index(p, n, k) : (size_t) row;
    *published = matrix ? (size_t) packed_index(dtype, p->k, n, k)
                        : (size_t) row;
}

static void check_part(const struct weft_part *p, enum weft_dtype run,
                       float mix, const void *fwd, const float *before,
                       const float *after)
{
    enum weft_dtype dtype = p->k ? run : WEFT_F32;
    int64_t columns = p->k > 0 ? p->k : 1, bad = 0;
    for (int64_t n = 0; n < p->n_pad; n++)
        for (int64_t k = 0; k < columns; k++) {
            size_t i, j;
            indices(p, dtype, n, k, &i, &j);
            float from = dtype == WEFT_F32
                           ? ((const float *) fwd)[j]
                           : weft_bf16_to_f32(((const uint16_t *) fwd)[j]);
            /* volatile: each operation rounds */
            volatile float x = from - before[i];
            x = mix * x;
            x = before[i] + x;
            bad += after[i] != (mix < 1 ? x : from);
            /* what it should be: three roundings of numbers below 2 */
            double exact = (double) mix * (double) from
                         + (1 - (double) mix) * (double) before[i];
            bad += fabs(exact - (double) after[i]) > 4 * 0x1p-24 * 2;
        }
    CHECK_INT(bad, 0);
}

static void check_tile(const struct weft_shape *s, enum weft_tile_kind kind,
                       int32_t block, float mix)
{
    struct weft_layout l;
    weft_layout_get(s, kind, block, &l);
    if (l.n_flat == 0)
        return;
    int64_t n = (int64_t) l.n_flat;
    float *policy = test_alloc(n, sizeof *policy);
    float *before = test_alloc(n, sizeof *before);
    float *own = test_alloc(n, sizeof *own);
    char *fwd = weft_alloc_aligned(l.fwd_bytes, 1);
    REQUIRE(fwd != NULL);
    for (int64_t i = 0; i < n; i++) {
        policy[i] = test_uniform(5, i);
        before[i] = own[i] = test_uniform(6, i);
    }
    weft_k_publish(&l, s->dtype, policy, fwd, NULL);
    weft_k_mix(&l, s->dtype, mix, fwd, own);
    for (int32_t i = 0; i < l.n_parts; i++)
        check_part(&l.part[i], s->dtype, mix, fwd + l.part[i].fwd_bytes,
                   before + l.part[i].offset, own + l.part[i].offset);
    /* by 1 to what was published; from there it does not move */
    weft_k_mix(&l, s->dtype, 1, fwd, own);
    memcpy(before, own, l.n_flat * sizeof *own);
    weft_k_mix(&l, s->dtype, mix, fwd, own);
    CHECK(memcmp(before, own, l.n_flat * sizeof *own) == 0);
    weft_free(policy);
    weft_free(before);
    weft_free(own);
    weft_free(fwd);
}

static void test_mix_tiles(void)
{
    static const float mix[] = {1e-6f, 0.1f, 0.5f, 0.6f, 1};
    for (int isa = 0; isa < test_n_isas(); isa++) {
        test_use_isa(isa);
        for (size_t i = 0; i < 4 * WEFT_COUNT(shapes); i++) {
            struct weft_shape s = shapes[i / 4];
            struct weft_err err = {0};
            s.dtype = i % 2 ? WEFT_BF16 : WEFT_F32;
            int32_t blocks = s.n_heads > 1 && i % 4 > 1 ? 2 : 1;
            REQUIRE_OK(weft_shape_partition(&s, blocks, &err), err);
            for (int kind = 0; kind < WEFT_N_TILE_KINDS; kind++)
                for (int32_t b = 0; b < s.n_blocks; b++)
                    for (size_t k = 0; k < WEFT_COUNT(mix); k++)
                        check_tile(&s, (enum weft_tile_kind) kind, b, mix[k]);
        }
    }
}

/* A thousand moves of a thousandth, each far below a step of bf16. */
static void test_mix_small(void)
{
    struct weft_shape s = shapes[0];
    struct weft_err err = {0};
    struct weft_layout l;
    s.dtype = WEFT_BF16;
    REQUIRE_OK(weft_shape_partition(&s, 1, &err), err);
    weft_layout_get(&s, WEFT_TILE_LAYER, 0, &l);
    float *policy = test_alloc((int64_t) l.n_flat, sizeof *policy);
    float *own = test_alloc((int64_t) l.n_flat, sizeof *own);
    void *fwd = weft_alloc_aligned(l.fwd_bytes, 1);
    REQUIRE(fwd != NULL);
    for (size_t i = 0; i < l.n_flat; i++) {
        policy[i] = 1.0078125f; /* the next bf16 */
        own[i] = 1;
    }
    weft_k_publish(&l, s.dtype, policy, fwd, NULL);
    for (int i = 0; i < 1000; i++)
        weft_k_mix(&l, s.dtype, 1e-3f, fwd, own);
    double exact = 1 + 0.0078125 * (1 - pow(1 - 1e-3, 1000));
    int64_t bad = 0;
    for (size_t i = 0; i < l.n_flat; i++) /* 1000 roundings by half an ulp */
        bad += own[i] != 0 && fabs((double) own[i] - exact) > 1000 * 0x1p-24;
    CHECK_INT(bad, 0);
    weft_free(policy);
    weft_free(own);
    weft_free(fwd);
}

WEFT_TESTS("kern/mix", {"test_mix_tiles", test_mix_tiles},
           {"test_mix_small", test_mix_small})
