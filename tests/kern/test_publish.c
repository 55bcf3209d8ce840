/* SPDX-License-Identifier: Apache-2.0 */
/* Published tiles against the index formulas of shape.h and kern.h, for
 * every kind of tile and block; and that products read what was meant. */
#include "kern/parts.h"
#include "products.h"

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
    {.hidden = 64,
     .n_layers = 1,
     .n_heads = 2,
     .n_kv_heads = 1,
     .head_dim = 32,
     .intermediate = 128,
     .vocab = 256,
     .scalar_head = true},
    /* Tiles of megabytes, which are written past the caches. */
    {.hidden = 600,
     .n_layers = 1,
     .n_heads = 4,
     .n_kv_heads = 2,
     .head_dim = 30,
     .intermediate = 1100,
     .vocab = 1111},
};

/* The number at index i of a published vector of `dtype`. */
static float number_at(const void *p, size_t i, enum weft_dtype dtype)
{
    return dtype == WEFT_F32 ? ((const float *) p)[i]
                             : weft_bf16_to_f32(((const uint16_t *) p)[i]);
}

static float rounded(float x, enum weft_dtype dtype)
{
    return dtype == WEFT_F32 ? x : weft_bf16_to_f32(weft_f32_to_bf16(x));
}

static void check_matrix(const struct weft_part *p, enum weft_dtype dtype,
                         const float *flat, const void *fwd, const void *bwd)
{
    int64_t bad = 0;
    for (int64_t n = 0; n < p->n_pad; n++)
        for (int64_t k = 0; k < p->k_pad; k++) {
            float w = 0;
            if (k < p->k) {
                w = rounded(flat[weft_flat_index(p, n, k)], dtype);
                bad += number_at(fwd,
                                 (size_t) packed_index(dtype, p->k, n, k),
                                 dtype)
                    != w;
            }
            if (bwd)
                bad += number_at(bwd,
                                 (size_t) packed_index(dtype, p->n_pad, k, n),
                                 dtype)
                    != w;
        }
    CHECK_INT(bad, 0);
}

/* bwd may be NULL. */
static void check_parts(const struct weft_layout *l, enum weft_dtype dtype,
                        const float *master, const char *fwd, const char *bwd)
{
    for (int32_t i = 0; i < l->n_parts; i++) {
        const struct weft_part *p = &l->part[i];
        const float *flat = master + p->offset;
        const char *f = fwd + p->fwd_bytes;
        if (p->k > 0 && p->id != WEFT_PART_EMBED) {
            check_matrix(p, dtype, flat, f, bwd ? bwd + p->bwd_bytes : NULL);
            continue;
        }
        enum weft_dtype type = p->k ? dtype : WEFT_F32;
        int64_t bad = 0;
        for (size_t j = 0; j < p->n_flat; j++)
            bad += number_at(f, j, type) != rounded(flat[j], type);
        CHECK_INT(bad, 0);
    }
}

static void check_tile(const struct weft_shape *s, enum weft_tile_kind kind,
                       int32_t block)
{
    struct weft_layout l;
    weft_layout_get(s, kind, block, &l);
    float *master = test_alloc((int64_t) l.n_flat, sizeof(float));
    char *fwd = weft_alloc_aligned(l.fwd_bytes, 1);
    char *bwd = weft_alloc_aligned(l.bwd_bytes, 1);
    REQUIRE(fwd != NULL && bwd != NULL);
    for (size_t i = 0; i < l.n_flat; i++)
        master[i] = test_uniform(5, (int64_t) i);
    memset(bwd, 0x55, l.bwd_bytes);
    weft_k_publish(&l, s->dtype, master, fwd, NULL);
    check_parts(&l, s->dtype, master, fwd, NULL);
    size_t written = 0; /* without being asked */
    for (size_t i = 0; i < l.bwd_bytes; i++)
        written += bwd[i] != 0x55;
    CHECK_INT(written, 0);
    weft_k_transpose(&l, s->dtype, fwd, bwd);
    check_parts(&l, s->dtype, master, fwd, bwd);
    memset(fwd, 0x55, l.fwd_bytes);
    memset(bwd, 0x55, l.bwd_bytes);
    /* In f32 masters may be published where they are. */
    if (s->dtype == WEFT_F32 && l.fwd_bytes > 0)
        memcpy(fwd, master, l.n_flat * sizeof *master);
    weft_k_publish(&l, s->dtype,
                   s->dtype == WEFT_F32 ? (float *) (void *) fwd : master,
                   fwd, bwd);
    check_parts(&l, s->dtype, master, fwd, bwd);
    weft_free(master);
    weft_free(fwd);
    weft_free(bwd);
}

static void test_publish_tiles(void)
{
    for (int isa = 0; isa < test_n_isas(); isa++) {
        test_use_isa(isa);
        for (size_t i = 0; i < WEFT_COUNT(shapes); i++)
            for (int d = 0; d < 2; d++) {
                struct weft_shape s = shapes[i];
                struct weft_err err = {0};
                s.dtype = d ? WEFT_BF16 : WEFT_F32;
                REQUIRE_OK(weft_shape_partition(&s, 2, &err), err);
                for (int kind = 0; kind < WEFT_N_TILE_KINDS; kind++)
                    for (int32_t b = 0; b < s.n_blocks; b++)
                        check_tile(&s, (enum weft_tile_kind) kind, b);
            }
    }
}

/* Rounding at the edges of bf16: ties, overflow, NaN, denormals. */
static void test_publish_rounding(void)
{
    static const uint32_t hard[] = {
        0x3f800000, 0x3f808000, 0x3f818000, 0x3f807fff,
        0x3f808001, 0x7f7fffff, 0x7f800000, 0xff800000,
        0x7fc00000, 0x7f800001, 0xffbfffff, 0x00000001,
        0x00008000, 0x80018000, 0x80000000, 0,
    };
    struct weft_shape s = shapes[1];
    struct weft_err err = {0};
    struct weft_layout l;
    s.dtype = WEFT_BF16;
    s.scalar_head = false;
    REQUIRE_OK(weft_shape_partition(&s, 1, &err), err);
    weft_layout_get(&s, WEFT_TILE_HEAD, 0, &l);
    const struct weft_part *p = &l.part[0];
    float *master = test_alloc((int64_t) l.n_flat, sizeof(float));
    uint16_t *fwd = test_alloc((int64_t) l.fwd_bytes, 1);
    uint16_t *bwd = test_alloc((int64_t) l.bwd_bytes, 1);
    for (size_t i = 0; i < l.n_flat; i++)
        memcpy(master + i, &hard[i * 7 % WEFT_COUNT(hard)], sizeof(float));
    for (int isa = 0; isa < test_n_isas(); isa++) {
        int64_t bad = 0;
        test_use_isa(isa);
        weft_k_publish(&l, s.dtype, master, fwd, bwd);
        for (int64_t n = 0; n < p->n; n++)
            for (int64_t k = 0; k < p->k; k++) {
                uint16_t h = weft_f32_to_bf16(
                    master[weft_flat_index(p, n, k)]);
                bad += fwd[packed_index(WEFT_BF16, p->k, n, k)] != h;
                bad += bwd[packed_index(WEFT_BF16, p->n_pad, k, n)] != h;
            }
        CHECK_INT(bad, 0);
    }
    weft_free(master);
    weft_free(fwd);
    weft_free(bwd);
}

/* dX = dY W by the transposed tile. Tolerance: a chain of n additions. */
static void test_publish_transposed_product(void)
{
    struct weft_shape s = shapes[0];
    struct weft_err err = {0};
    struct weft_layout l;
    REQUIRE_OK(weft_shape_partition(&s, 1, &err), err);
    for (int d = 0; d < 2; d++) {
        s.dtype = d ? WEFT_BF16 : WEFT_F32;
        weft_layout_get(&s, WEFT_TILE_HEAD, 0, &l);
        const struct weft_part *p = &l.part[0];
        /* bf16 takes pairs: one zero column beyond an odd n. */
        int64_t n = weft_round_up(p->n, 2), bad = 0;
        struct matrix dy = matrix_random(s.dtype, 7, n, n, 6);
        float *master = test_alloc((int64_t) l.n_flat, sizeof(float));
        void *fwd = weft_alloc_aligned(l.fwd_bytes, 1);
        void *bwd = weft_alloc_aligned(l.bwd_bytes, 1);
        float *dx = test_alloc(7 * p->k, sizeof(float));
        for (int64_t i = 0; i < 7; i++)
            for (int64_t j = p->n; j < n; j++)
                matrix_set(&dy, i * n + j, 0);
        for (int64_t i = 0; i < p->n; i++)
            for (int64_t k = 0; k < p->k; k++)
                master[weft_flat_index(p, i, k)] = rounded(
                    test_uniform(7, i * p->k + k), s.dtype);
        weft_k_publish(&l, s.dtype, master, fwd, bwd);
        struct weft_k_gemm_args a = {
            .dtype = s.dtype,
            .y_dtype = WEFT_F32,
            .m = 7,
            .n = p->k,
            .n_blocks = 1,
            .x = {dy.data},
            .ldx = {n},
            .w = {bwd},
            .k = {n},
            .kstride = {p->n_pad},
            .y = dx,
            .ldy = p->k,
        };
        weft_k_gemm(&a);
        for (int64_t i = 0; i < 7; i++)
            for (int64_t k = 0; k < p->k; k++) {
                double sum = 0, size = 0;
                for (int64_t j = 0; j < p->n; j++) {
                    double term = (double) dy.f[i * n + j]
                                * master[weft_flat_index(p, j, k)];
                    sum += term;
                    size += fabs(term);
                }
                bad += !(fabs(dx[i * p->k + k] - sum)
                         <= (double) (n + 1) * 0x1p-24 * size);
            }
        CHECK_INT(bad, 0);
        matrix_free(&dy);
        weft_free(master);
        weft_free(fwd);
        weft_free(bwd);
        weft_free(dx);
    }
}

WEFT_TESTS("kern/publish", {"test_publish_tiles", test_publish_tiles},
           {"test_publish_rounding", test_publish_rounding},
           {"test_publish_transposed_product",
            test_publish_transposed_product})
