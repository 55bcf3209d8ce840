/* SPDX-License-Identifier: Apache-2.0 */
/* The partition into tensor blocks, and where parameters lie. */
#include "base/shape.h"

#include "tests/harness.h"

/* Sizes of published models, and edges. */
static const struct weft_shape models[] = {
    {.hidden = 896,
     .n_layers = 24,
     .n_heads = 14,
     .n_kv_heads = 2,
     .head_dim = 64,
     .intermediate = 4864,
     .vocab = 151936,
     .qkv_bias = true,
     .tied = true}, /* Qwen2.5-0.5B */
    {.hidden = 6656,
     .n_layers = 60,
     .n_heads = 52,
     .n_kv_heads = 52,
     .head_dim = 128,
     .intermediate = 17920,
     .vocab = 32000}, /* LLaMA 33B */
    {.hidden = 4096,
     .n_layers = 32,
     .n_heads = 32,
     .n_kv_heads = 8,
     .head_dim = 128,
     .intermediate = 14336,
     .vocab = 128256},
    {.hidden = 768,
     .n_layers = 12,
     .n_heads = 12,
     .n_kv_heads = 12,
     .head_dim = 64,
     .intermediate = 2048,
     .vocab = 32000},
    {.hidden = 64,
     .n_layers = 2,
     .n_heads = 8,
     .n_kv_heads = 1,
     .head_dim = 24,
     .intermediate = 65,
     .vocab = 257,
     .qk_norm = true},
    {.hidden = 24,
     .n_layers = 1,
     .n_heads = 6,
     .n_kv_heads = 3,
     .head_dim = 4,
     .intermediate = 1,
     .vocab = 2,
     .o_bias = true},
    {.hidden = 64,
     .n_layers = 1,
     .n_heads = 8,
     .n_kv_heads = 2,
     .head_dim = 8,
     .intermediate = 513,
     .vocab = 449,
     .scalar_head = true},
    {.hidden = 48,
     .n_layers = 1,
     .n_heads = 48,
     .n_kv_heads = 4,
     .head_dim = 2,
     .intermediate = 1025,
     .vocab = 2048}, /* heads for 16 */
    {.hidden = 16,
     .n_layers = 1,
     .n_heads = 64,
     .n_kv_heads = 2,
     .head_dim = 2,
     .intermediate = 2047,
     .vocab = 1985}, /* panels for 32, not one more */
    {.hidden = 16,
     .n_layers = 1,
     .n_heads = 64,
     .n_kv_heads = 64,
     .head_dim = 2,
     .intermediate = 1984,
     .vocab = 4096}, /* panels for 31 */
};

static void check_partition(const struct weft_shape *s)
{
    int32_t head = 0, ff = 0, vocab = 0, kv_end = 0;
    int32_t per_kv = s->n_heads / s->n_kv_heads;
    for (int32_t t = 0; t < s->n_blocks; t++) {
        const struct weft_block *b = &s->block[t];
        CHECK_INT(b->head0, head);
        CHECK_INT(b->n_heads, s->n_heads / s->n_blocks);
        head += b->n_heads;
        /* exactly the KV heads that its query heads read */
        CHECK_INT(b->kv0, b->head0 / per_kv);
        CHECK_INT(b->kv0 + b->n_kv - 1, (head - 1) / per_kv);
        CHECK(b->kv0 <= kv_end); /* no gap */
        kv_end = b->kv0 + b->n_kv;
        CHECK_INT(b->ff0, ff);
        CHECK(b->n_ff > 0);
        ff += b->n_ff;
        CHECK_INT(b->vocab0, vocab);
        CHECK(b->n_vocab > 0);
        vocab += b->n_vocab;
        if (t + 1 < s->n_blocks) { /* whole panels but for the last block */
            CHECK_INT(b->n_ff % WEFT_FF_GRAIN, 0);
            CHECK_INT(b->n_vocab % WEFT_FF_GRAIN, 0);
        }
        /* shares differ by one panel at most */
        CHECK(abs(b->n_ff - s->intermediate / s->n_blocks) < 2 * 64);
        CHECK(abs(b->n_vocab - s->vocab / s->n_blocks) < 2 * 64);
    }
    CHECK_INT(head, s->n_heads);
    CHECK_INT(kv_end, s->n_kv_heads);
    CHECK_INT(ff, s->intermediate);
    CHECK_INT(vocab, s->vocab);
}

static void test_partition_covers_everything(void)
{
    for (size_t i = 0; i < WEFT_COUNT(models); i++) {
        struct weft_shape s = models[i];
        int32_t most = weft_shape_most_blocks(&s);
        for (int32_t t = 1; t <= most; t *= 2) {
            struct weft_err err = {0};
            REQUIRE_OK(weft_shape_partition(&s, t, &err), err);
            CHECK_INT(s.n_blocks, t);
            check_partition(&s);
        }
    }
}

static void test_partition_default(void)
{
    static const int32_t expected[] = {2, 4, 8, 4, 2, 1, 8, 8, 8, 8};
    static const int32_t most[] = {2, 4, 32, 4, 2, 1, 8, 16, 32, 16};
    for (size_t i = 0; i < WEFT_COUNT(models); i++) {
        struct weft_shape s = models[i];
        struct weft_err err = {0};
        CHECK_INT(weft_shape_default_blocks(&s), expected[i]);
        CHECK_INT(weft_shape_most_blocks(&s), most[i]);
        REQUIRE_OK(weft_shape_partition(&s, 0, &err), err);
        CHECK_INT(s.n_blocks, expected[i]);
    }
}

static void test_partition_refuses(void)
{
    struct weft_err err = {0};
    struct weft_shape s = models[0];
    CHECK_FAILS(weft_shape_partition(&s, 3, &err), WEFT_EINVAL, err,
                "tensor_blocks 3 is not 1, 2, 4, 8, 16 or 32");
    CHECK_FAILS(weft_shape_partition(&s, 64, &err), WEFT_EINVAL, err,
                "tensor_blocks 64 is not 1, 2, 4, 8, 16 or 32");
    CHECK_FAILS(weft_shape_partition(&s, -2, &err), WEFT_EINVAL, err,
                "tensor_blocks -2");
    CHECK_FAILS(weft_shape_partition(&s, 4, &err), WEFT_EINVAL, err,
                "does not divide the 14 query heads; the largest that does "
                "is 2");
    s = models[4];
    CHECK_FAILS(weft_shape_partition(&s, 8, &err), WEFT_EINVAL, err,
                "intermediate size 65 and vocabulary 257");
    CHECK_INT(s.n_blocks, 0); /* nothing half-done */
    s = models[9];
    CHECK_FAILS(weft_shape_partition(&s, 32, &err), WEFT_EINVAL, err,
                "must each have 32 panels of 64; the largest that fits is "
                "16");
}

static void test_kv_owner_is_the_first_holder(void)
{
    for (size_t i = 0; i < WEFT_COUNT(models); i++) {
        struct weft_shape s = models[i];
        struct weft_err err = {0};
        REQUIRE_OK(weft_shape_partition(&s, 0, &err), err);
        for (int32_t kv = 0; kv < s.n_kv_heads; kv++) {
            int32_t first = -1;
            for (int32_t t = s.n_blocks - 1; t >= 0; t--)
                if (kv >= s.block[t].kv0
                    && kv < s.block[t].kv0 + s.block[t].n_kv)
                    first = t;
            CHECK_INT(weft_shape_kv_owner(&s, kv), first);
        }
    }
}

/* Parameters of all tiles, replicas of shared KV heads counted once. */
static int64_t count(const struct weft_shape *s)
{
    int64_t n = 0;
    struct weft_layout l;
    for (int32_t t = 0; t < s->n_blocks; t++) {
        weft_layout_get(s, WEFT_TILE_EMBED, t, &l);
        n += (int64_t) l.part[0].n * l.part[0].k;
        weft_layout_get(s, WEFT_TILE_HEAD, t, &l);
        if (l.n_parts && !s->tied)
            n += (int64_t) l.part[0].n * l.part[0].k;
        int64_t replicas = 0;
        for (int32_t kv = 0; kv < s->block[t].n_kv; kv++)
            replicas += weft_shape_kv_owner(s, s->block[t].kv0 + kv) != t;
        weft_layout_get(s, WEFT_TILE_LAYER, t, &l);
        for (int32_t i = 0; i < l.n_parts; i++) {
            const struct weft_part *p = &l.part[i];
            int64_t rows = p->n, k = p->k ? p->k : 1;
            if (p->id == WEFT_PART_QKV || p->id == WEFT_PART_QKV_BIAS)
                rows -= 2 * replicas * s->head_dim;
            if (p->id == WEFT_PART_GATE_UP) /* without padding columns */
                rows = 2 * s->block[t].n_ff;
            if (p->id == WEFT_PART_DOWN)
                k = s->block[t].n_ff;
            n += s->n_layers * rows * k;
        }
    }
    static const enum weft_tile_kind shared[] = {WEFT_TILE_NORMS,
                                                 WEFT_TILE_FINAL};
    for (int j = 0; j < 2; j++) {
        weft_layout_get(s, shared[j], 0, &l);
        for (int32_t i = 0; i < l.n_parts; i++)
            n += (j == 0 ? s->n_layers : 1) * l.part[i].n;
    }
    return n;
}

static void test_layout_counts_every_parameter(void)
{
    for (size_t i = 0; i < WEFT_COUNT(models); i++) {
        struct weft_shape s = models[i];
        struct weft_err err = {0};
        for (int32_t t = weft_shape_default_blocks(&s); t > 0; t /= 2) {
            REQUIRE_OK(weft_shape_partition(&s, t, &err), err);
            CHECK_INT(count(&s), weft_shape_n_params(&s));
        }
    }
    /* as the model card says: 0.49 B */
    CHECK_INT(weft_shape_n_params(&models[0]), 494032768);
}

static void check_layout(const struct weft_shape *s, enum weft_tile_kind kind,
                         int32_t t)
{
    struct weft_layout l;
    weft_layout_get(s, kind, t, &l);
    size_t flat = 0, fwd = 0, bwd = 0, width = weft_dtype_bytes(s->dtype);
    for (int32_t i = 0; i < l.n_parts; i++) {
        const struct weft_part *p = &l.part[i];
        bool matrix = p->k > 0 && p->id != WEFT_PART_EMBED;
        size_t n = (size_t) p->n_pad * (size_t) (p->k ? p->k : 1);
        CHECK(p->offset >= flat && p->fwd_bytes >= fwd);
        CHECK(p->bwd_bytes >= bwd);
        CHECK_INT(p->offset % 16, 0);
        CHECK_INT(p->fwd_bytes % 64, 0);
        CHECK_INT(p->bwd_bytes % 64, 0);
        CHECK_INT(p->n_flat, n);
        CHECK(p->n_pad >= p->n && p->n_pad < p->n + WEFT_PANEL);
        CHECK(!matrix || p->n_pad % WEFT_PANEL == 0);
        CHECK(weft_layout_part(&l, p->id) == p);
        flat = p->offset + n;
        fwd = p->fwd_bytes + n * (p->k ? width : 4);
        if (matrix)
            bwd = p->bwd_bytes
                + (size_t) p->n_pad * (size_t) p->k_pad * width;
    }
    CHECK(l.n_flat >= flat && l.fwd_bytes >= fwd);
    CHECK_INT(l.bwd_bytes, bwd);
    CHECK_INT(l.n_flat % 16, 0);
    CHECK(weft_layout_part(&l, WEFT_N_PARTS) == NULL);
}

static void test_layout_parts_do_not_overlap(void)
{
    static const enum weft_dtype types[] = {WEFT_F32, WEFT_BF16};
    for (size_t i = 0; i < WEFT_COUNT(models); i++)
        for (size_t d = 0; d < WEFT_COUNT(types); d++) {
            struct weft_shape s = models[i];
            struct weft_err err = {0};
            s.dtype = types[d];
            REQUIRE_OK(weft_shape_partition(&s, 0, &err), err);
            for (int32_t t = 0; t < s.n_blocks; t++)
                for (int k = 0; k < WEFT_N_TILE_KINDS; k++)
                    check_layout(&s, (enum weft_tile_kind) k, t);
        }
}

static void test_flat_index_is_a_bijection(void)
{
    struct weft_shape s = models[4];
    struct weft_err err = {0};
    struct weft_layout l;
    REQUIRE_OK(weft_shape_partition(&s, 2, &err), err);
    weft_layout_get(&s, WEFT_TILE_HEAD, 1, &l);
    const struct weft_part *p = &l.part[0];
    unsigned char *seen = calloc(p->n_flat, 1);
    REQUIRE(seen != NULL);
    int twice = 0;
    for (int64_t n = 0; n < p->n_pad; n++)
        for (int64_t k = 0; k < p->k; k++) {
            size_t at = weft_flat_index(p, n, k);
            REQUIRE(at < p->n_flat);
            twice += seen[at]++;
        }
    CHECK_INT(twice, 0);
    free(seen);
}

static void test_gate_up_rows_alternate_by_panel(void)
{
    enum { FF = 3 * WEFT_PANEL };
    unsigned char seen[2 * FF] = {0};
    for (int64_t f = 0; f < FF; f++)
        for (int up = 0; up < 2; up++) {
            int64_t row = weft_gate_up_row(f, up);
            REQUIRE(row >= 0 && row < 2 * FF);
            CHECK_INT(seen[row]++, 0);
            CHECK_INT(row / WEFT_PANEL % 2, up);
            CHECK_INT(row % WEFT_PANEL, f % WEFT_PANEL);
        }
}

/* Chunks are rows of one part, in order, and leave out the padding between
 * parts alone; the published tile has them at the same places. */
static void check_chunks(const struct weft_layout *l, enum weft_dtype dtype)
{
    int32_t n = weft_layout_n_chunks(l), at = 0;
    for (int32_t i = 0; i < l->n_parts; i++) {
        const struct weft_part *p = &l->part[i];
        size_t rows = (size_t) (p->k > 0 ? WEFT_PANEL * p->k : p->n);
        size_t size = p->k > 0 ? weft_dtype_bytes(dtype) : sizeof(float);
        for (size_t begin = 0; begin < p->n_flat; begin += rows, at++) {
            size_t left = p->n_flat - begin, got;
            REQUIRE(at < n);
            CHECK(weft_layout_chunk_part(l, at, &got) == p);
            CHECK_INT(got, left < rows ? left : rows);
            CHECK_INT(weft_layout_chunk(l, at), p->offset + begin);
            CHECK_INT(weft_layout_chunk_byte(l, dtype, at),
                      p->fwd_bytes + begin * size);
            CHECK_INT(weft_layout_chunk_byte(l, dtype, at) % 64, 0);
            CHECK_INT(weft_layout_chunk(l, at) % 16, 0);
        }
    }
    CHECK_INT(at, n);
    CHECK_INT(weft_layout_chunk(l, n), l->n_flat);
    CHECK_INT(weft_layout_chunk_byte(l, dtype, n), l->fwd_bytes);
    for (size_t step = l->n_flat / 97 + 1, e = 0; e <= l->n_flat + step;
         e += step) {
        int32_t near = weft_layout_chunk_near(l, e);
        REQUIRE(near >= 0 && near <= n);
        size_t far = (size_t) llabs((long long) e
                                    - (long long) weft_layout_chunk(l, near));
        for (int32_t i = near > 0 ? near - 1 : 0; i <= near + 1 && i <= n;
             i++)
            CHECK((size_t) llabs((long long) e
                                 - (long long) weft_layout_chunk(l, i))
                  >= far);
    }
}

static void test_chunks(void)
{
    for (size_t m = 0; m < WEFT_COUNT(models); m++)
        for (int dtype = WEFT_F32; dtype <= WEFT_BF16; dtype++) {
            struct weft_shape s = models[m];
            struct weft_err err;
            s.dtype = (enum weft_dtype) dtype;
            REQUIRE_OK(weft_shape_partition(&s, 0, &err), err);
            for (int kind = 0; kind < WEFT_N_TILE_KINDS; kind++)
                for (int32_t b = 0; b < s.n_blocks; b++) {
                    struct weft_layout l;
                    weft_layout_get(&s, (enum weft_tile_kind) kind, b, &l);
                    bool odd = false; /* bf16 takes rows in pairs */
                    for (int32_t i = 0; i < l.n_parts; i++)
                        odd = odd || l.part[i].k % 2 != 0;
                    if (!odd)
                        check_chunks(&l, (enum weft_dtype) dtype);
                }
        }
}

/* Models are alike but for what their texts may be. */
static void test_alike(void)
{
    const struct weft_shape a = models[0];
    struct weft_shape b = a;
    b.max_positions = 7;
    b.score_skips_pad = !a.score_skips_pad;
    b.score_pad = 3;
    CHECK(weft_shape_alike(&a, &b));
#define OTHER(field, value)                                                  \
    do {                                                                     \
        struct weft_shape other = a;                                         \
        other.field = value;                                                 \
        CHECK(!weft_shape_alike(&a, &other));                                \
        CHECK(!weft_shape_alike(&other, &a));                                \
    } while (0)
    OTHER(hidden, 64);
    OTHER(n_layers, 25);
    OTHER(n_heads, 7);
    OTHER(n_kv_heads, 1);
    OTHER(head_dim, 32);
    OTHER(intermediate, 64);
    OTHER(vocab, 151935);
    OTHER(rms_eps, 1e-6f);
    OTHER(rope, WEFT_ROPE_LINEAR);
    OTHER(rope_theta, 1e6);
    OTHER(rope_factor, 2);
    OTHER(rope_low, 2);
    OTHER(rope_high, 2);
    OTHER(rope_original, 2);
    OTHER(qkv_bias, false);
    OTHER(o_bias, true);
    OTHER(qk_norm, true);
    OTHER(tied, false);
    OTHER(scalar_head, true);
    OTHER(dtype, WEFT_BF16);
    OTHER(n_blocks, 2);
#undef OTHER
}

WEFT_TESTS(
    "base/shape", {"test_alike", test_alike}, {"test_chunks", test_chunks},
    {"test_partition_covers_everything", test_partition_covers_everything},
    {"test_partition_default", test_partition_default},
    {"test_partition_refuses", test_partition_refuses},
    {"test_kv_owner_is_the_first_holder", test_kv_owner_is_the_first_holder},
    {"test_layout_counts_every_parameter",
     test_layout_counts_every_parameter},
    {"test_layout_parts_do_not_overlap", test_layout_parts_do_not_overlap},
    {"test_flat_index_is_a_bijection", test_flat_index_is_a_bijection},
    {"test_gate_up_rows_alternate_by_panel",
     test_gate_up_rows_alternate_by_panel})
