/* SPDX-License-Identifier: Apache-2.0 */
/* Weights on a GPU, bit for bit: the optimizer's step, norms of gradients,
 * additions, published forms, and the embedding with its gradient. */
#include "../cuda/test_device.h"

static const int64_t sizes[] = {1, 3, 4, 5, 1023, 1024, 1025, 4099};

static void adamws(void)
{
    struct weft_k_adamw o = {.lr = 1e-3f,
                             .beta1 = 0.9f,
                             .beta2 = 0.999f,
                             .eps = 1e-8f,
                             .weight_decay = 0.1f,
                             .step = 7};
    for (size_t k = 0; k < WEFT_COUNT(sizes); k++) {
        size_t n = (size_t) sizes[k], bytes = n * 4;
        float scale = 0.37f;
        float *host[4], *dev[4], *scale_ = dev_put(&scale, 4);
        for (uint32_t i = 0; i < 4; i++) {
            host[i] = host_rows(i, (int64_t) n);
            for (size_t j = 0; i == 3 && j < n; j++)
                host[i][j] *= host[i][j]; /* v */
            dev[i] = dev_put(host[i], bytes);
        }
        weft_k_adamw(&o, n, scale, host[0], host[1], host[2], host[3]);
        weft_k_adamw_cuda(0, &o, n, scale_, dev[0], dev[1], dev[2], dev[3]);
        for (int i = 0; i < 4; i++) {
            CHECK(dev_same(dev[i], host[i], bytes));
            dev_free(dev[i]);
            weft_free(host[i]);
        }
        dev_free(scale_);
    }
}

static void test_adamw(void)
{
    each_order(adamws);
}

static void additions(void)
{
    for (size_t k = 0; k < WEFT_COUNT(sizes); k++) {
        size_t n = (size_t) sizes[k];
        float *a = host_rows(1, (int64_t) n), *b = host_rows(2, (int64_t) n);
        float *a_ = dev_put(a, n * 4), *b_ = dev_put(b, n * 4);
        for (size_t i = 0; i < n; i++)
            a[i] += b[i];
        weft_k_add_cuda(0, a_, b_, n);
        CHECK(dev_same(a_, a, n * 4));
        dev_free(a_);
        dev_free(b_);
        weft_free(a);
        weft_free(b);
    }
}

static void test_add(void)
{
    each_order(additions);
}

/* Chunks of all sizes about a tile of 4096, and of many tiles. */
static void squares(void)
{
    static const int64_t n[] = {
        0, 1, 15, 16, 17, 4095, 4096, 4097, 4096 * 17 + 5, 32};
    enum { CHUNKS = WEFT_COUNT(n) };
    int64_t begin[CHUNKS + 1] = {0};
    double sum[CHUNKS];
    for (int i = 0; i < CHUNKS; i++)
        begin[i + 1] = begin[i] + n[i];
    float *x = host_rows(1, begin[CHUNKS]);
    for (int i = 0; i < CHUNKS; i++)
        sum[i] = weft_k_sum_squares(x + begin[i], (size_t) n[i]);
    float *x_ = dev_put(x, (size_t) begin[CHUNKS] * 4);
    int64_t *begin_ = dev_put(begin, sizeof begin);
    double *sum_ = dev_new(sizeof sum);
    weft_k_sum_squares_cuda(0, CHUNKS, begin_, x_, sum_);
    CHECK(dev_same(sum_, sum, sizeof sum));
    dev_free(x_);
    dev_free(begin_);
    dev_free(sum_);
    weft_free(x);
}

static void test_sum_squares(void)
{
    each_order(squares);
}

/* ---- Published tiles --------------------------------------------------- */

static const struct weft_shape shape = {.hidden = 70,
                                        .n_layers = 1,
                                        .n_heads = 4,
                                        .n_kv_heads = 2,
                                        .head_dim = 10,
                                        .intermediate = 200,
                                        .vocab = 150,
                                        .max_positions = 64,
                                        .rms_eps = 1e-6f,
                                        .rope_theta = 10000,
                                        .qkv_bias = true,
                                        .qk_norm = true,
                                        .dtype = WEFT_F32};

static struct weft_shape shape_of(enum weft_dtype dtype, int32_t n_blocks)
{
    struct weft_shape s = shape;
    struct weft_err err;
    s.dtype = dtype;
    REQUIRE_OK(weft_shape_partition(&s, n_blocks, &err), err);
    return s;
}

/* A CPU's published tile into a GPU's, and back. rows: the GPU's. */
static void reorder_of(const struct weft_layout *l, enum weft_dtype dtype,
                       const float *master, const char *rows)
{
    size_t n = l->fwd_bytes;
    char *cpu = weft_alloc_aligned(n, 1), *got = weft_alloc_aligned(n, 1);
    memset(cpu, 0x5a, n);
    weft_k_publish(l, dtype, master, cpu, NULL);
    const char *expect = dtype == WEFT_BF16 ? rows : cpu;
    weft_k_reorder(l, dtype, true, cpu, got);
    CHECK(memcmp(got, expect, n) == 0);
    weft_k_reorder(l, dtype, false, expect, got);
    CHECK(memcmp(got, cpu, n) == 0);
    char *cpu_ = dev_put(cpu, n), *got_ = dev_new(n), *back_ = dev_new(n);
    weft_k_reorder_cuda(0, l, dtype, true, cpu_, got_);
    CHECK(dev_same(got_, expect, n));
    weft_k_reorder_cuda(0, l, dtype, false, got_, back_);
    CHECK(dev_same(back_, cpu, n));
    dev_free(cpu_);
    dev_free(got_);
    dev_free(back_);
    weft_free(cpu);
    weft_free(got);
}

/* Every element by its index in the flat order. */
static void publish_of(const struct weft_layout *l, enum weft_dtype dtype)
{
    float *master = host_rows(1, (int64_t) l->n_flat);
    char *expect = weft_alloc_aligned(l->fwd_bytes, 1);
    memset(expect, 0x5a, l->fwd_bytes);
    for (int32_t i = 0; i < l->n_parts; i++) {
        const struct weft_part *p = &l->part[i];
        enum weft_dtype to = p->k > 0 ? dtype : WEFT_F32;
        char *out = expect + p->fwd_bytes;
        bool is_row_major = p->k == 0 || p->id == WEFT_PART_EMBED;
        int64_t k = p->k > 0 ? p->k : 1;
        for (int64_t r = 0; r < p->n_pad; r++)
            for (int64_t c = 0; c < k; c++) {
                size_t at = is_row_major ? (size_t) (r * k + c)
                                         : weft_flat_index(p, r, c);
                weft_convert(
                    out + (size_t) (r * k + c) * weft_dtype_bytes(to), to,
                    master + p->offset + at, WEFT_F32, 1);
            }
    }
    float *master_ = dev_put(master, l->n_flat * 4);
    char *fwd_ = dev_new(l->fwd_bytes),
         *got = weft_alloc_aligned(l->fwd_bytes, 1);
    memset(got, 0x5a, l->fwd_bytes);
    dev_set(fwd_, got, l->fwd_bytes);
    weft_k_publish_cuda(0, l, dtype, master_, fwd_);
    CHECK(dev_same(fwd_, expect, l->fwd_bytes));
    reorder_of(l, dtype, master, expect);
    dev_free(master_);
    dev_free(fwd_);
    weft_free(master);
    weft_free(expect);
    weft_free(got);
}

static void publishes(void)
{
    for (int dtype = WEFT_F32; dtype <= WEFT_BF16; dtype++)
        for (int32_t n_blocks = 1; n_blocks <= 2; n_blocks++) {
            struct weft_shape s = shape_of((enum weft_dtype) dtype, n_blocks);
            for (int kind = 0; kind < WEFT_N_TILE_KINDS; kind++) {
                struct weft_layout l;
                weft_layout_get(&s, (enum weft_tile_kind) kind, 0, &l);
                publish_of(&l, s.dtype);
            }
        }
}

static void test_publish(void)
{
    each_order(publishes);
}

/* ---- Embedding --------------------------------------------------------- */

/* Widths that are multiples of 4 or not, of less and more than one slab of
 * 1024; many rows of few tokens, so that chains are long. */
static void embed_of(enum weft_dtype dtype, int32_t h, int32_t n)
{
    struct weft_shape s = shape_of(dtype, 2);
    s.hidden = h;
    size_t rows = (size_t) n * (size_t) h * 4;
    int32_t *token = weft_alloc_aligned((size_t) n, 4);
    void *table[2], *table_[2];
    float *grad[2], *grad_[2];
    for (int32_t i = 0; i < n; i++)
        token[i] = i % 3 == 0 ? 63 + i / 3 % 2 : i / 3 * 14 % shape.vocab;
    for (int t = 0; t < 2; t++) {
        int64_t size = (int64_t) s.block[t].n_vocab * h;
        float *wide = host_rows((uint32_t) t, size);
        table[t] = host_as(dtype, wide, size);
        table_[t] = dev_put(table[t],
                            (size_t) size * weft_dtype_bytes(dtype));
        grad[t] = wide;
        grad_[t] = dev_put(wide, (size_t) size * 4);
    }
    float *x = host_rows(5, (int64_t) n * h), *x_ = dev_put(x, rows);
    int32_t *token_ = dev_put(token, (size_t) n * 4);
    weft_k_embed(&s, (const void *const *) table, n, token, x);
    weft_k_embed_cuda(0, &s, (const void *const *) table_, n, token_, x_);
    CHECK(dev_same(x_, x, rows));
    weft_k_embed_backward(&s, n, token, x, grad);
    weft_k_embed_backward_cuda(0, &s, n, token_, x_, grad_);
    for (int t = 0; t < 2; t++)
        CHECK(dev_same(grad_[t], grad[t],
                       (size_t) s.block[t].n_vocab * (size_t) h * 4));
    /* Without the first block: its rows stay, its gradient is not wanted. */
    const void *second[2] = {NULL, table_[1]};
    float *second_grad[2] = {NULL, grad_[1]}, *cpu_grad[2] = {NULL, grad[1]};
    float *other = host_rows(9, (int64_t) n * h);
    dev_set(x_, other, rows);
    weft_k_embed_cuda(0, &s, second, n, token_, x_);
    for (int32_t i = 0; i < n; i++)
        if (token[i] >= s.block[1].vocab0)
            memcpy(other + (int64_t) i * h, x + (int64_t) i * h,
                   (size_t) h * 4);
    CHECK(dev_same(x_, other, rows));
    weft_k_embed_backward(&s, n, token, other, cpu_grad);
    weft_k_embed_backward_cuda(0, &s, n, token_, x_, second_grad);
    CHECK(dev_same(grad_[1], grad[1],
                   (size_t) s.block[1].n_vocab * (size_t) h * 4));
    for (int t = 0; t < 2; t++) {
        dev_free(table_[t]);
        dev_free(grad_[t]);
        weft_free(table[t]);
        weft_free(grad[t]);
    }
    dev_free(x_);
    dev_free(token_);
    weft_free(x);
    weft_free(other);
    weft_free(token);
}

static void embeds(void)
{
    static const int32_t widths[] = {1, 6, 64, 1028};
    for (size_t i = 0; i < WEFT_COUNT(widths); i++) {
        embed_of(WEFT_F32, widths[i], 5);
        embed_of(WEFT_BF16, widths[i], 11);
    }
    embed_of(WEFT_BF16, 8, 300);
}

static void test_embed(void)
{
    each_order(embeds);
}

WEFT_CUDA_TESTS("kern/weights_cuda", {"test_adamw", test_adamw},
                {"test_add", test_add},
                {"test_sum_squares", test_sum_squares},
                {"test_publish", test_publish}, {"test_embed", test_embed})
