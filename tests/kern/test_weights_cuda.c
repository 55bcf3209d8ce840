/* SPDX-License-Identifier: Apache-2.0 */
/* Weights on a GPU, bit for bit: the optimizer's step, norms of gradients,
 * additions, published forms, what blocks share, tied tables, and the embedding
 * with its gradient. */
#include "../cuda/test_device.h"
#include "kern/parts.h"

/* ---- The optimizer, additions and norms ---------------------------------- */

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
        float *host[4], *dev[4];
        for (uint32_t i = 0; i < 4; i++) {
            host[i] = host_rows(i, (int64_t) n);
            for (size_t j = 0; i == 3 && j < n; j++)
                host[i][j] *= host[i][j]; /* v */
            dev[i] = dev_put(host[i], bytes);
        }
        weft_k_adamw(&o, n, scale, host[0], host[1], host[2], host[3]);
        weft_k_adamw_cuda(0, &o, n, scale, dev[0], dev[1], dev[2], dev[3]);
        for (int i = 0; i < 4; i++) {
            CHECK(dev_same(dev[i], host[i], bytes));
            dev_free(dev[i]);
            weft_free(host[i]);
        }
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

/* From pinned memory: nothing, a word, and more than a block copies. */
static void puts_all(void)
{
    static const size_t words[] = {0, 1, 256, 257, 1000};
    for (size_t k = 0; k < WEFT_COUNT(words); k++) {
        size_t n = words[k] * 8;
        float *x = host_rows(1, 2000);
        void *pinned = NULL, *to = dev_new(n);
        REQUIRE(cudaMallocHost(&pinned, n + 8) == cudaSuccess);
        memcpy(pinned, x, n);
        weft_k_put_cuda(0, to, pinned, n);
        CHECK(dev_same(to, x, n));
        dev_free(to);
        CHECK(cudaFreeHost(pinned) == cudaSuccess);
        weft_free(x);
    }
}

static void test_put(void)
{
    each_order(puts_all);
}

/* Pieces of all sizes about a block's 256 threads, more than a launch has. */
static void deals(void)
{
    static const int32_t each[] = {0, 1, 255, 256, 257, 3};
    enum { N = 300 };
    int32_t n[N], all = 0;
    void *to[N];
    for (int i = 0; i < N; i++) {
        n[i] = each[i % (int) WEFT_COUNT(each)];
        to[i] = dev_new((size_t) n[i] * 4);
        all += n[i];
    }
    float *x = host_rows(1, all), *x_ = dev_put(x, (size_t) all * 4);
    weft_k_deal_cuda(0, N, n, x_, to);
    for (int i = 0, at = 0; i < N; at += n[i++]) {
        CHECK(dev_same(to[i], x + at, (size_t) n[i] * 4));
        dev_free(to[i]);
    }
    weft_k_deal_cuda(0, 0, NULL, x_, NULL);
    CHECK(dev_same(x_, x, (size_t) all * 4));
    dev_free(x_);
    weft_free(x);
}

static void test_deal(void)
{
    each_order(deals);
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

/* The transposed tile that the host makes is the GPU's. */
static void transposed_of(const struct weft_layout *l, const char *rows,
                          const void *rows_)
{
    char *bwd = weft_alloc_aligned(l->bwd_bytes ? l->bwd_bytes : 1, 1);
    memset(bwd, 0x5a, l->bwd_bytes);
    void *bwd_ = dev_put(bwd, l->bwd_bytes);
    weft_k_transpose_rows(l, rows, bwd);
    weft_k_transpose_cuda(0, l, WEFT_BF16, rows_, bwd_);
    CHECK(dev_same(bwd_, bwd, l->bwd_bytes));
    dev_free(bwd_);
    weft_free(bwd);
}

/* Towards published weights, in f32 masters: from others, from equal ones, and
 * all the way. rows_: a GPU's in bf16. */
static void mix_of(const struct weft_layout *l, enum weft_dtype dtype,
                   const float *master, const void *rows_)
{
    char *fwd = weft_alloc_aligned(l->fwd_bytes, 1);
    memset(fwd, 0x5a, l->fwd_bytes);
    weft_k_publish(l, dtype, master, fwd, NULL);
    void *fwd_ = dev_put(fwd, l->fwd_bytes);
    for (int i = 0; i < 3; i++) {
        float *own = host_rows(i == 1 ? 1 : 4, (int64_t) l->n_flat);
        float *own_ = dev_put(own, l->n_flat * 4);
        float by = i == 2 ? 1 : 0.3f;
        weft_k_mix(l, dtype, by, fwd, own);
        weft_k_mix_cuda(0, l, dtype, by, dtype == WEFT_BF16 ? rows_ : fwd_,
                        own_);
        CHECK(dev_same(own_, own, l->n_flat * 4));
        dev_free(own_);
        weft_free(own);
    }
    dev_free(fwd_);
    weft_free(fwd);
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
    int32_t n = weft_layout_n_chunks(l);
    weft_k_publish_cuda(0, l, dtype, (struct weft_range){0, n}, master_,
                        fwd_);
    CHECK(dev_same(fwd_, expect, l->fwd_bytes));
    dev_set(fwd_, got, l->fwd_bytes);
    for (int32_t first = 0, m; first < n; first += m) { /* in pieces */
        m = first + 3 <= n ? first % 3 + 1 : n - first;
        weft_k_publish_cuda(0, l, dtype, (struct weft_range){first, m},
                            master_ + weft_layout_chunk(l, first),
                            (char *) fwd_
                                + weft_layout_chunk_byte(l, dtype, first));
    }
    CHECK(dev_same(fwd_, expect, l->fwd_bytes));
    mix_of(l, dtype, master, fwd_);
    reorder_of(l, dtype, master, expect);
    if (dtype == WEFT_BF16)
        transposed_of(l, expect, fwd_);
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

/* ---- Rows of panels ------------------------------------------------------ */

/* Heads of keys and values that blocks share: none, whole groups of blocks,
 * and with 12 heads ragged ones. */
static struct weft_shape shared_shape(int32_t n_heads, int32_t n_kv_heads,
                                      enum weft_dtype dtype)
{
    struct weft_shape s = shape;
    struct weft_err err;
    s.n_heads = n_heads;
    s.n_kv_heads = n_kv_heads;
    s.vocab = 261;
    s.dtype = dtype;
    REQUIRE_OK(weft_shape_partition(&s, 4, &err), err);
    return s;
}

static void squares_of(const struct weft_shape *s, enum weft_tile_kind kind,
                       int32_t t)
{
    struct weft_layout l;
    weft_layout_get(s, kind, t, &l);
    int32_t n = weft_layout_n_chunks(&l);
    struct weft_range ranges[] = {
        {0, n}, {0, 1}, {n / 2, n - n / 2}, {n - 1, 1}};
    float *grad = host_rows((uint32_t) kind, (int64_t) l.n_flat);
    for (int32_t i = 0; i < l.n_parts; i++) { /* padding is 0 */
        const struct weft_part *p = &l.part[i];
        for (int64_t r = p->n; p->k > 0 && r < p->n_pad; r++)
            for (int64_t c = 0; c < p->k; c++)
                grad[p->offset + weft_flat_index(p, r, c)] = 0;
        for (size_t r = (size_t) p->n; p->k == 0 && r < p->n_flat; r++)
            grad[p->offset + r] = 0;
    }
    for (int32_t i = 0; i < n; i++) { /* and what lies between parts */
        size_t begin = weft_layout_chunk(&l, i), size;
        (void) weft_layout_chunk_part(&l, i, &size);
        for (size_t k = begin + size; k < weft_layout_chunk(&l, i + 1); k++)
            grad[k] = 0;
    }
    void *grad_ = dev_put(grad, l.n_flat * 4);
    double *sum = weft_alloc((size_t) n, sizeof *sum);
    double *got = NULL; /* pinned */
    REQUIRE(cudaMallocHost((void **) &got, (size_t) n * sizeof *got)
            == cudaSuccess);
    void *scratch = dev_new(
        weft_k_chunk_squares_scratch_bytes_cuda(s, kind, t, n));
    for (size_t i = 0; i < WEFT_COUNT(ranges); i++) {
        size_t first = weft_layout_chunk(&l, ranges[i].first);
        weft_k_chunk_squares(s, kind, t, ranges[i], grad + first, sum);
        weft_k_chunk_squares_cuda(0, s, kind, t, ranges[i],
                                  (float *) grad_ + first, false, got,
                                  scratch);
        dev_wait();
        CHECK(memcmp(got, sum, (size_t) ranges[i].n * sizeof *sum) == 0);
        double all = 0;
        for (int32_t k = 0; k < ranges[i].n; k++)
            all += sum[k];
        weft_k_chunk_squares_cuda(0, s, kind, t, ranges[i],
                                  (float *) grad_ + first, true, got,
                                  scratch);
        dev_wait();
        CHECK(*got == all);
    }
    CHECK(dev_same(grad_, grad, l.n_flat * 4));
    dev_free(grad_);
    dev_free(scratch);
    weft_free(grad);
    weft_free(sum);
    CHECK(cudaFreeHost(got) == cudaSuccess);
}

static void share_of(const struct weft_shape *s, struct weft_range range)
{
    float *tile[WEFT_MAX_BLOCKS] = {NULL}, *tile_[WEFT_MAX_BLOCKS] = {NULL};
    struct weft_layout l[WEFT_MAX_BLOCKS];
    for (int32_t t = range.first; t < weft_range_end(range); t++) {
        weft_layout_get(s, WEFT_TILE_LAYER, t, &l[t]);
        tile[t] = host_rows((uint32_t) t, (int64_t) l[t].n_flat);
        tile_[t] = dev_put(tile[t], l[t].n_flat * 4);
    }
    weft_k_share_range(s, range, tile);
    weft_k_share_range_cuda(0, s, range, tile_);
    for (int32_t t = range.first; t < weft_range_end(range); t++) {
        CHECK(dev_same(tile_[t], tile[t], l[t].n_flat * 4));
        dev_free(tile_[t]);
        weft_free(tile[t]);
    }
}

/* The table in place, and apart. A GPU's published head is row-major in
 * bf16. */
static void tied_of(const struct weft_shape *s, int32_t t)
{
    struct weft_layout h, e;
    weft_layout_get(s, WEFT_TILE_HEAD, t, &h);
    weft_layout_get(s, WEFT_TILE_EMBED, t, &e);
    size_t bytes = h.fwd_bytes > e.fwd_bytes ? h.fwd_bytes : e.fwd_bytes;
    size_t used = (size_t) (s->block[t].n_vocab * s->hidden)
                * weft_dtype_bytes(s->dtype);
    float *master = host_rows(3, (int64_t) h.n_flat);
    char *head = weft_alloc_aligned(bytes, 1);
    char *rows = weft_alloc_aligned(bytes, 1);
    char *table = weft_alloc_aligned(bytes, 1);
    void *cpu_scratch = weft_alloc_aligned(weft_k_tied_table_scratch_bytes(s),
                                           1);
    weft_k_publish(&h, s->dtype, master, head, NULL);
    weft_k_reorder(&h, s->dtype, true, head, rows);
    weft_k_tied_table(s, t, head, table, cpu_scratch);
    void *rows_ = dev_put(rows, bytes), *table_ = dev_new(bytes);
    void *scratch = dev_new(weft_k_tied_table_scratch_bytes_cuda(s, t));
    weft_k_tied_table_cuda(0, s, t, rows_, table_, scratch);
    CHECK(dev_same(table_, table, used));
    weft_k_tied_table_cuda(0, s, t, rows_, rows_, scratch);
    CHECK(dev_same(rows_, table, used));
    dev_free(rows_);
    dev_free(table_);
    dev_free(scratch);
    weft_free(master);
    weft_free(head);
    weft_free(rows);
    weft_free(table);
    weft_free(cpu_scratch);
}

static void tied_add_of(const struct weft_shape *s, int32_t t)
{
    struct weft_layout h, e;
    weft_layout_get(s, WEFT_TILE_HEAD, t, &h);
    weft_layout_get(s, WEFT_TILE_EMBED, t, &e);
    int32_t n = weft_layout_n_chunks(&e);
    struct weft_range ranges[] = {{0, n}, {0, 1}, {n - 1, 1}};
    float *embed = host_rows(1, (int64_t) e.n_flat);
    float *head = host_rows(2, (int64_t) h.n_flat);
    float *embed_ = dev_put(embed, e.n_flat * 4);
    float *head_ = dev_put(head, h.n_flat * 4);
    for (size_t i = 0; i < WEFT_COUNT(ranges); i++) {
        size_t a = weft_layout_chunk(&e, ranges[i].first);
        size_t b = weft_layout_chunk(&h, ranges[i].first);
        weft_k_tied_add_gradient(s, t, ranges[i], embed + a, head + b);
        weft_k_tied_add_gradient_cuda(0, s, t, ranges[i], embed_ + a,
                                      head_ + b);
    }
    CHECK(dev_same(head_, head, h.n_flat * 4));
    dev_free(embed_);
    dev_free(head_);
    weft_free(embed);
    weft_free(head);
}

static void panels(void)
{
    static const int32_t heads[][2] = {{4, 4}, {8, 2}, {12, 3}, {8, 1}};
    for (size_t i = 0; i < WEFT_COUNT(heads); i++)
        for (int dtype = WEFT_F32; dtype <= WEFT_BF16; dtype++) {
            struct weft_shape s = shared_shape(heads[i][0], heads[i][1],
                                               (enum weft_dtype) dtype);
            share_of(&s, weft_all_blocks(&s));
            share_of(&s, (struct weft_range){1, 2});
            for (int32_t t = 0; t < s.n_blocks; t++) {
                squares_of(&s, WEFT_TILE_LAYER, t);
                squares_of(&s, WEFT_TILE_EMBED, t);
                tied_of(&s, t);
                tied_add_of(&s, t);
            }
        }
}

static void test_panels(void)
{
    each_order(panels);
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
    /* Each row from the member that has its token; one has all others. */
    float *y = host_rows(7, (int64_t) n * h), *y_ = dev_put(y, rows);
    struct weft_k_part part[2] = {{{0, 1}, y}, {{1, 1}, other}};
    struct weft_k_part part_[2] = {{{0, 1}, y_}, {{1, 1}, x_}};
    weft_k_embed_select(&s, n, token, 2, part, y);
    weft_k_embed_select_cuda(0, &s, n, token_, 2, part_, y_);
    CHECK(dev_same(y_, y, rows));
    float *z = host_rows(8, (int64_t) n * h), *z_ = dev_put(z, rows);
    weft_k_embed_select(&s, n, token, 2, part, z);
    weft_k_embed_select_cuda(0, &s, n, token_, 2, part_, z_);
    CHECK(dev_same(z_, z, rows));
    dev_free(y_);
    dev_free(z_);
    weft_free(y);
    weft_free(z);
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

/* More than one block of tokens: known ones stay. */
static void drawn_tokens(void)
{
    enum { N = 300, DRAWN = 7 };
    static const int32_t drawn[DRAWN] = {11, 0, -1, 269, 3, 12, 13};
    int32_t token[N], expected[N];
    for (int32_t i = 0; i < N; i++) {
        token[i] = i % 2 ? -1 - i % DRAWN : i;
        expected[i] = i % 2 == 0 ? i : i % DRAWN == 2 ? 0 : drawn[i % DRAWN];
    }
    int32_t *token_ = dev_put(token, sizeof token);
    int32_t *drawn_ = dev_put(drawn, sizeof drawn);
    struct weft_k_drawn d = {
        .n_rows = N - 1, .drawn = drawn_, .token = token_};
    weft_k_drawn_tokens_cuda(0, &d);
    d.n_rows = 0;
    weft_k_drawn_tokens_cuda(0, &d);
    expected[N - 1] = token[N - 1]; /* beside the rows */
    CHECK(dev_same(token_, expected, sizeof token));
    dev_free(token_);
    dev_free(drawn_);
}

/* Targets behind every kind of token, beside rows whose tokens are known. */
static void drawn_ends(void)
{
    enum { N = 8, HELD = WEFT_K_ROW_IS_HELD, ENDED = WEFT_K_ROW_HAS_ENDED };
    static const int32_t drawn[] = {40, 7, -1, WEFT_K_ENDED, 9, 8};
    static const int32_t end[] = {9, 7};
    /* of each target: index into drawn, or -1, and its state */
    static const int32_t from[N] = {0, 1, 2, 3, 4, 5, -1, 1};
    static const uint32_t state[N] = {0, 0, HELD, HELD, 0, HELD, HELD, 0};
    static const uint32_t after[N] = {0,     ENDED, HELD, ENDED,
                                      ENDED, HELD,  HELD, ENDED};
    uint32_t at[N][4], expected[N][4];
    struct weft_k_run run[N], left[N];
    int32_t token[N];
    for (int32_t i = 0; i < N; i++) {
        token[i] = from[i] < 0 ? 6 : -1 - from[i];
        at[i][0] = at[i][1] = at[i][2] = expected[i][0] = expected[i][1] =
            expected[i][2] = 70 + (uint32_t) i;
        at[i][3] = weft_k_row_after(state[i], token[i]);
        expected[i][3] = after[i];
        left[i] = run[i] = (struct weft_k_run){i, 3, 1};
        if (after[i] == ENDED)
            left[i] = (struct weft_k_run){0};
    }
    int32_t *token_ = dev_put(token, sizeof token);
    int32_t *drawn_ = dev_put(drawn, sizeof drawn);
    uint32_t *at_ = dev_put(at, sizeof at);
    struct weft_k_run *run_ = dev_put(run, sizeof run);
    struct weft_k_drawn d = {N, N, 2, end, drawn_, token_, at_, run_};
    weft_k_drawn_tokens_cuda(0, &d);
    CHECK(dev_same(at_, expected, sizeof at));
    CHECK(dev_same(run_, left, sizeof run));
    dev_free(token_);
    dev_free(drawn_);
    dev_free(at_);
    dev_free(run_);
}

static void test_drawn_tokens(void)
{
    each_order(drawn_tokens);
    each_order(drawn_ends);
}

WEFT_CUDA_TESTS("kern/weights_cuda", {"test_adamw", test_adamw},
                {"test_add", test_add}, {"test_put", test_put},
                {"test_deal", test_deal},
                {"test_sum_squares", test_sum_squares},
                {"test_publish", test_publish}, {"test_panels", test_panels},
                {"test_embed", test_embed},
                {"test_drawn_tokens", test_drawn_tokens})
