/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention on a GPU over a paged cache: prefill, chunks and decode at odd
 * head sizes, groups and positions, with NaN where no key was written, against
 * the CPU and a double loop; and a row's bits whatever the call: in chunks, as
 * a decode step, with its keys shared among blocks.
 *
 * On tensor cores (bf16, head sizes of whole 16 bytes) probabilities are
 * rounded to bf16, to 2^-8 of themselves; then the output is, in both, and may
 * go the other way: 2^-6 where it is from 2 to 4, as large as here.
 */
#include "../cuda/test_device.h"

#include <math.h>

#include "kern/attention_cuda.h"
#include "kern/layer_rows_cuda.h"
#include "kern/rows.h"

enum { RUNS = 5, KV = 2, PAGE = WEFT_PAGE_TOKENS, PAGES = 9, MAX_N = 560 };

/* Positions and rows of the runs: decode at the ends of pages, a prefill of
 * more than a page, a chunk that begins inside of a page and goes into the
 * third segment of 256 keys. */
static const struct weft_k_run runs[RUNS] = {
    {3, 0, 1}, {0, 63, 1}, {4, 64, 1}, {1, 0, 67}, {2, 437, 90}};

struct cache {
    enum weft_dtype dtype;
    int32_t d, g;
    size_t size, page_bytes;
    int32_t page[RUNS * PAGES];
    int32_t first_row[RUNS], n_rows;
    void *k[RUNS], *v[RUNS]; /* (pos + n, KV d) of each run's sequence */
    char *kv, *kv_;
    void *q, *q_;
    int32_t *page_;
};

static struct weft_attention_cuda args_of(const struct cache *c)
{
    return (struct weft_attention_cuda){
        .dtype = c->dtype,
        .head_dim = c->d,
        .n_kv = KV,
        .n_group = c->g,
        .page_bytes = c->page_bytes,
        .head_bytes = (size_t) (2 * c->d * PAGE) * c->size,
        .page = c->page_,
        .pages_per_slot = PAGES,
        .scale = 1 / sqrtf((float) c->d),
        .ldq = KV * c->g * c->d + 8,
        .ldo = KV * c->g * c->d,
        .ldlse = KV * c->g,
        .n_blocks = 1,
        .block = {{.kv = c->kv_, .q = c->q_}}};
}

static double at_of(enum weft_dtype dtype, const void *p, int64_t i)
{
    return dtype == WEFT_F32
             ? (double) ((const float *) p)[i]
             : (double) weft_bf16_to_f32(((const uint16_t *) p)[i]);
}

/* Puts rows of a sequence into the cache, on both sides. */
static void write_keys(struct cache *c, int32_t i, int32_t pos, int32_t n)
{
    int64_t ld = KV * c->d;
    struct weft_k_run run = {runs[i].slot, pos, n};
    int32_t zero = 0;
    int64_t m = n + 2; /* rows, of which the run has the first */
    float *product = host_rows(3, m * 2 * ld);
    float *angles = weft_alloc_aligned((size_t) (m * c->d), 4);
    for (int64_t r = 0; r < n; r++)
        for (int64_t j = 0; j < ld; j++) {
            int64_t from = (pos + r) * ld + j;
            float *to = product + r * 2 * ld + j;
            to[0] = (float) at_of(c->dtype, c->k[i], from);
            to[ld] = (float) at_of(c->dtype, c->v[i], from);
        }
    for (int64_t j = 0; j < m * c->d; j++)
        angles[j] = j % c->d < c->d / 2; /* they rotate nothing */
    struct weft_attention_cuda of = args_of(c);
    struct weft_qkv_cuda a = {.dtype = c->dtype,
                              .head_dim = c->d,
                              .n_runs = 1,
                              .max_rows = n + 3,
                              .n_rows = m,
                              .page_bytes = of.page_bytes,
                              .head_bytes = of.head_bytes,
                              .page = of.page,
                              .pages_per_slot = PAGES,
                              .n_blocks = 1};
    float *product_ = dev_put(product, (size_t) (m * 2 * ld) * 4);
    float *angles_ = dev_put(angles, (size_t) (m * c->d) * 4);
    void *qkv_ = dev_new((size_t) (m * 2 * ld) * c->size);
    struct weft_k_run *run_ = dev_put(&run, sizeof run);
    int32_t *first_ = dev_put(&zero, sizeof zero);
    a.run = run_;
    a.first_row = first_;
    a.cos_sin = angles_;
    a.block[0] = (struct weft_qkv_block_cuda){
        .product = product_, .qkv = qkv_, .kv = c->kv_, .n_kv = KV};
    weft_qkv_cuda(0, &a);
    dev_wait();
    for (int32_t p = pos; p < pos + n; p++)
        for (int64_t h = 0; h < KV; h++)
            for (int64_t j = 0; j < c->d; j++) {
                size_t from = (size_t) (p * ld + h * c->d + j) * c->size;
                char *to = c->kv
                         + (size_t) c->page[run.slot * PAGES + p / PAGE]
                               * c->page_bytes
                         + (size_t) h * a.head_bytes;
                memcpy(to + (size_t) (j * PAGE + p % PAGE) * c->size,
                       (char *) c->k[i] + from, c->size);
                memcpy(to
                           + (size_t) (c->d * PAGE + p % PAGE * c->d + j)
                                 * c->size,
                       (char *) c->v[i] + from, c->size);
            }
    void *dev[] = {product_, angles_, qkv_, run_, first_};
    for (size_t e = 0; e < WEFT_COUNT(dev); e++)
        dev_free(dev[e]);
    weft_free(product);
    weft_free(angles);
}

static void *numbers(enum weft_dtype dtype, uint32_t stream, int64_t n)
{
    float *x = host_rows(stream, n);
    void *y = host_as(dtype, x, n);
    weft_free(x);
    return y;
}

static void cache_init(struct cache *c, enum weft_dtype dtype, int32_t d,
                       int32_t g)
{
    *c = (struct cache){.dtype = dtype, .d = d, .g = g};
    c->size = weft_dtype_bytes(dtype);
    c->page_bytes = (size_t) (2 * KV * d * PAGE) * c->size + 64;
    for (int i = 0; i < RUNS * PAGES; i++)
        c->page[i] = (i * 7 + 3) % (RUNS * PAGES);
    for (int i = 0; i < RUNS; i++) {
        int64_t n = (int64_t) (runs[i].pos + runs[i].n) * KV * d;
        c->first_row[i] = c->n_rows;
        c->n_rows += runs[i].n;
        c->k[i] = numbers(dtype, 10 + (uint32_t) i, n);
        c->v[i] = numbers(dtype, 20 + (uint32_t) i, n);
    }
    size_t bytes = c->page_bytes * RUNS * PAGES;
    c->kv = weft_alloc_aligned(bytes, 1);
    memset(c->kv, 0xff, bytes); /* NaN */
    c->kv_ = dev_put(c->kv, bytes);
    c->page_ = dev_put(c->page, sizeof c->page);
    int64_t n_q = (int64_t) c->n_rows * (KV * g * d + 8);
    c->q = numbers(dtype, 1, n_q);
    c->q_ = dev_put(c->q, (size_t) n_q * c->size);
    for (int i = 0; i < RUNS; i++) {
        if (runs[i].pos > 0)
            write_keys(c, i, 0, runs[i].pos);
        write_keys(c, i, runs[i].pos, runs[i].n);
    }
    CHECK(dev_same(c->kv_, c->kv, bytes));
}

static void cache_release(struct cache *c)
{
    for (int i = 0; i < RUNS; i++) {
        weft_free(c->k[i]);
        weft_free(c->v[i]);
    }
    weft_free(c->kv);
    weft_free(c->q);
    dev_free(c->kv_);
    dev_free(c->page_);
    dev_free(c->q_);
}

/* Query head h of row j of run i, by the definition. */
static void check_row(const struct cache *c, int i, int32_t j, int32_t h,
                      const void *out, float lse)
{
    double p[MAX_N], max = -INFINITY, sum = 0;
    int32_t n = runs[i].pos + j + 1, row = c->first_row[i] + j;
    int64_t ldq = KV * c->g * c->d + 8, ld = KV * c->d;
    int64_t kv = h / c->g * c->d;
    for (int32_t key = 0; key < n; key++) {
        p[key] = 0;
        for (int64_t e = 0; e < c->d; e++)
            p[key] += at_of(c->dtype, c->q, row * ldq + h * c->d + e)
                    * at_of(c->dtype, c->k[i], key * ld + kv + e);
        p[key] /= sqrt(c->d);
        max = fmax(max, p[key]);
    }
    for (int32_t key = 0; key < n; key++)
        sum += p[key] = exp(p[key] - max);
    CHECK(fabs((double) lse - (max + log(sum))) < 1e-5);
    for (int64_t e = 0; e < c->d; e++) {
        double o = 0;
        for (int32_t key = 0; key < n; key++)
            o += p[key] / sum * at_of(c->dtype, c->v[i], key * ld + kv + e);
        CHECK(fabs(at_of(c->dtype, out, (row * KV * c->g + h) * c->d + e) - o)
              < (c->dtype == WEFT_F32 ? 1e-5 : 1e-2));
    }
}

static void cpu_attention(const struct cache *c, void *out, float *lse)
{
    struct weft_attention_cuda a = args_of(c);
    float *scratch = weft_alloc_aligned(weft_attention_scratch(c->d), 4);
    for (int i = 0; i < RUNS; i++)
        for (int64_t h = 0; h < KV; h++) {
            int64_t row = c->first_row[i], head = h * c->g;
            struct weft_attention cpu = {
                .dtype = c->dtype,
                .kv_dtype = c->dtype,
                .head_dim = c->d,
                .n_group = c->g,
                .n = runs[i].n,
                .pos = runs[i].pos,
                .q = (char *) c->q
                   + (size_t) (row * a.ldq + head * c->d) * c->size,
                .ldq = a.ldq,
                .kv = c->kv + (size_t) h * a.head_bytes,
                .page = c->page + runs[i].slot * PAGES,
                .page_bytes = c->page_bytes,
                .scale = a.scale,
                .out = (char *) out
                     + (size_t) (row * a.ldo + head * c->d) * c->size,
                .ldo = a.ldo,
                .lse = lse + row * a.ldlse + head,
                .ldlse = a.ldlse,
                .scratch = scratch};
            weft_row_ops()->attention(&cpu);
        }
    weft_free(scratch);
}

static void check_near(const struct cache *c, const void *out_,
                       const char *cpu)
{
    int64_t n = (int64_t) c->n_rows * KV * c->g * c->d;
    uint16_t *out = weft_alloc_aligned((size_t) n, 2);
    double most = 0;
    dev_get(out, out_, (size_t) n * 2);
    for (int64_t i = 0; i < n; i++)
        most = fmax(most,
                    fabs(at_of(c->dtype, out, i) - at_of(c->dtype, cpu, i)));
    CHECK(most < 0x1p-5);
    weft_free(out);
}

/* n rows of the last run from row j on, alone: the bits that they had among
 * the others; the run before it is there and has no row, nor a slot. */
static void call_again(const struct cache *c,
                       const struct weft_attention_cuda *args,
                       const char *out, const float *lse, int32_t j,
                       int32_t n)
{
    struct weft_attention_cuda a = *args;
    struct weft_k_run run[2] = {
        {1 << 28, 0, 0}, {runs[RUNS - 1].slot, runs[RUNS - 1].pos + j, n}};
    int32_t first[2] = {0, c->first_row[RUNS - 1] + j};
    size_t heads = (size_t) (KV * c->g);
    size_t row = heads * (size_t) c->d * c->size, i = (size_t) first[1];
    struct weft_k_run *run_ = dev_put(run, sizeof run);
    int32_t *first_ = dev_put(first, sizeof first);
    a.n_runs = 2;
    a.max_rows = n;
    a.run = run_;
    a.first_row = first_;
    weft_k_attention_cuda(0, &a);
    CHECK(dev_same((char *) a.block[0].out + i * row, out + i * row,
                   (size_t) n * row));
    CHECK(dev_same(a.block[0].lse + i * heads, lse + i * heads,
                   (size_t) n * heads * sizeof *lse));
    dev_free(run_);
    dev_free(first_);
}

static void attention_of(enum weft_dtype dtype, int32_t d, int32_t g)
{
    struct cache c;
    cache_init(&c, dtype, d, g);
    struct weft_attention_cuda a = args_of(&c);
    size_t heads = (size_t) c.n_rows * (size_t) (KV * g);
    size_t bytes = heads * (size_t) d * c.size;
    char *out = weft_alloc_aligned(bytes, 1);
    float *lse = weft_alloc_aligned(heads, 4);
    struct weft_k_run *run_ = dev_put(runs, sizeof runs);
    int32_t *first_ = dev_put(c.first_row, sizeof c.first_row);
    a.n_runs = RUNS;
    a.max_rows = 91;
    a.run = run_;
    a.first_row = first_;
    a.block[0].out = dev_new(bytes);
    a.block[0].lse = dev_new(heads * 4);
    weft_k_attention_cuda(0, &a);
    cpu_attention(&c, out, lse);
    bool on_tensor_cores = weft_attention_on_tensor_cores(dtype, d);
    if (cpu_is_fused() && !on_tensor_cores) {
        CHECK(dev_same(a.block[0].out, out, bytes));
        CHECK(dev_same(a.block[0].lse, lse, heads * 4));
    }
    if (on_tensor_cores)
        check_near(&c, a.block[0].out, out);
    dev_get(out, a.block[0].out, bytes);
    dev_get(lse, a.block[0].lse, heads * 4);
    for (int i = 0; i < RUNS; i++)
        for (int32_t j = 0; j < runs[i].n; j += 33)
            for (int32_t h = 0; h < KV * g; h++)
                check_row(&c, i, j, h, out,
                          lse[(c.first_row[i] + j) * KV * g + h]);

    struct weft_attention_cuda b = a;
    b.block[0].out = dev_new(bytes);
    b.block[0].lse = dev_new(heads * 4);
    for (int32_t j = 0; j < 90; j += 29)
        call_again(&c, &b, out, lse, j, 1);
    for (int32_t j = 0; j < 90; j += 30)
        call_again(&c, &b, out, lse, j, 30);
    b.max_keys = PAGES * PAGE;
    size_t parts = weft_attention_parts_bytes_cuda(dtype, d, KV, g, RUNS, 1,
                                                   b.max_keys);
    CHECK((parts > 0) == on_tensor_cores);
    b.parts = dev_new(parts);
    for (int32_t j = 7; parts > 0 && j < 90; j += 37)
        call_again(&c, &b, out, lse, j, 1);
    void *dev[] = {run_,           first_,         a.block[0].out,
                   a.block[0].lse, b.block[0].out, b.block[0].lse,
                   b.parts};
    for (size_t i = 0; i < WEFT_COUNT(dev); i++)
        dev_free(dev[i]);
    weft_free(out);
    weft_free(lse);
    cache_release(&c);
}

static void attentions(void)
{
    attention_of(WEFT_F32, 10, 1);
    attention_of(WEFT_F32, 80, 3);
    attention_of(WEFT_BF16, 8, 17);
    attention_of(WEFT_BF16, 64, 7);
    attention_of(WEFT_BF16, 104, 1);
    attention_of(WEFT_BF16, 128, 2);
    attention_of(WEFT_BF16, 10, 1);
    attention_of(WEFT_BF16, 130, 1);
}

static void test_attention(void)
{
    each_order(attentions);
}

/* ---- Backward ---------------------------------------------------------- */

enum { SEQUENCES = 4 };

/* A batch of whole sequences; rows have q, k and v beside one another. */
struct whole {
    enum weft_dtype dtype;
    int32_t d, g, n[SEQUENCES], first[SEQUENCES], rows;
    int64_t ld, ldo, ldlse;
    void *qkv, *out;
    float *dout, *lse, *grad; /* grad: as qkv, in f32 */
};

static void *element(const struct whole *b, void *p, int64_t i)
{
    return (char *) p + (size_t) i * weft_dtype_bytes(b->dtype);
}

/* One KV head of a sequence by the CPU; its forward makes out and lse. */
static void cpu_backward(const struct whole *b, int i, int64_t h)
{
    int64_t d = b->d, q0 = b->first[i] * b->ld + h * b->g * d;
    int64_t k0 = b->first[i] * b->ld + (KV * b->g + h) * d, v0 = k0 + KV * d;
    int64_t o0 = b->first[i] * b->ldo + h * b->g * d;
    int64_t l0 = b->first[i] * b->ldlse + h * b->g;
    int64_t segments = (b->n[i] + PAGE - 1) / PAGE;
    float *kv = weft_alloc_aligned(
        weft_attention_segment(d) * (size_t) segments, 4);
    float *scratch = weft_alloc_aligned(
        weft_attention_scratch(d)
            + weft_attention_backward_scratch(d, b->n[i]),
        4);
    weft_row_ops()->pack_kv(b->dtype, d, b->n[i], element(b, b->qkv, k0),
                            element(b, b->qkv, v0), b->ld, kv);
    struct weft_attention forward = {.dtype = b->dtype,
                                     .kv_dtype = WEFT_F32,
                                     .head_dim = b->d,
                                     .n_group = b->g,
                                     .n = b->n[i],
                                     .q = element(b, b->qkv, q0),
                                     .ldq = b->ld,
                                     .kv = (char *) kv,
                                     .page_bytes = weft_attention_segment(d)
                                                 * 4,
                                     .scale = 0.3f,
                                     .out = element(b, b->out, o0),
                                     .ldo = b->ldo,
                                     .lse = b->lse + l0,
                                     .ldlse = b->ldlse,
                                     .scratch = scratch};
    weft_row_ops()->attention(&forward);
    struct weft_attention_backward a = {.dtype = b->dtype,
                                        .head_dim = b->d,
                                        .n_group = b->g,
                                        .n = b->n[i],
                                        .q = element(b, b->qkv, q0),
                                        .k = element(b, b->qkv, k0),
                                        .v = element(b, b->qkv, v0),
                                        .ldqkv = b->ld,
                                        .out = element(b, b->out, o0),
                                        .dout = b->dout + o0,
                                        .ldo = b->ldo,
                                        .lse = b->lse + l0,
                                        .ldlse = b->ldlse,
                                        .scale = 0.3f,
                                        .dq = b->grad + q0,
                                        .dk = b->grad + k0,
                                        .dv = b->grad + v0,
                                        .ldd = b->ld,
                                        .scratch = scratch};
    weft_row_ops()->attention_backward(&a);
    weft_free(kv);
    weft_free(scratch);
}

/* dV and dK of KV head h, and dQ of its query heads, in double. On tensor cores
 * every addend has a factor that was rounded to bf16, to 2^-8 of itself. */
static void check_gradient(const struct whole *b, int i, int64_t h,
                           const float *got)
{
    int64_t d = b->d, row0 = b->first[i], n = b->n[i], n_parts = b->g + 2;
    double *expect = calloc((size_t) (2 * n_parts * n * d), sizeof *expect);
    double *size = expect + n_parts * n * d; /* of the addends */
    double rounded = weft_attention_on_tensor_cores(b->dtype, b->d) ? 0x1p-8
                                                                    : 0;
    int64_t at_q = h * b->g * d, at_k = (KV * b->g + h) * d;
    int64_t at_v = at_k + KV * d;
    for (int64_t g = 0; g < b->g; g++)
        for (int64_t r = 0; r < n; r++) {
            double delta = 0;
            int64_t o0 = (row0 + r) * b->ldo + at_q + g * d;
            int64_t q = (row0 + r) * b->ld + at_q + g * d;
            double lse = (double)
                             b->lse[(row0 + r) * b->ldlse + h * b->g + g];
            const float *o = b->dout + o0;
            for (int64_t e = 0; e < d; e++)
                delta += (double) o[e] * at_of(b->dtype, b->out, o0 + e);
            for (int64_t key = 0; key <= r; key++) {
                int64_t k = (row0 + key) * b->ld + at_k;
                int64_t v = (row0 + key) * b->ld + at_v;
                double s = 0, dp = 0;
                for (int64_t e = 0; e < d; e++) {
                    s += at_of(b->dtype, b->qkv, q + e)
                       * at_of(b->dtype, b->qkv, k + e);
                    dp += (double) o[e] * at_of(b->dtype, b->qkv, v + e);
                }
                double p = exp(s * 0.3 - lse);
                double ds = (dp - delta) * p * 0.3;
                for (int64_t e = 0; e < d; e++) {
                    double of[3] = {ds * at_of(b->dtype, b->qkv, k + e),
                                    ds * at_of(b->dtype, b->qkv, q + e),
                                    p * (double) o[e]};
                    for (int64_t part = 0; part < 3; part++) {
                        int64_t of_part = part ? b->g - 1 + part : g;
                        int64_t to = (of_part * n + (part ? key : r)) * d + e;
                        expect[to] += of[part];
                        size[to] += fabs(of[part]);
                    }
                }
            }
        }
    for (int64_t part = 0; part < n_parts; part++)
        for (int64_t r = 0; r < n; r++)
            for (int64_t e = 0; e < d; e++) {
                int64_t at = part < b->g  ? at_q + part * d
                           : part == b->g ? at_k
                                          : at_v;
                int64_t to = (part * n + r) * d + e;
                double x = expect[to];
                CHECK(fabs((double) got[(row0 + r) * b->ld + at + e] - x)
                      < 2e-4 * (1 + fabs(x)) + rounded * size[to]);
            }
    free(expect);
}

/* n_blocks: tensor blocks that share the KV heads. */
static void backward_of(enum weft_dtype dtype, int32_t d, int32_t g,
                        int32_t n_blocks)
{
    struct whole b = {dtype,
                      d,
                      g,
                      {1, 64, 130, 17},
                      {0},
                      0,
                      (KV * g + 2 * KV) * d,
                      KV * g * d,
                      KV * g,
                      NULL,
                      NULL,
                      NULL,
                      NULL,
                      NULL};
    for (int i = 0; i < SEQUENCES; i++) {
        b.first[i] = b.rows;
        b.rows += b.n[i];
    }
    size_t n_out = (size_t) (b.rows * b.ldo),
           n_qkv = (size_t) (b.rows * b.ld);
    size_t n_lse = (size_t) (b.rows * b.ldlse),
           size = weft_dtype_bytes(dtype);
    b.qkv = numbers(dtype, 1, (int64_t) n_qkv);
    b.out = weft_alloc_aligned(n_out, 4);
    b.dout = host_rows(2, (int64_t) n_out);
    bool on_tensor_cores = weft_attention_on_tensor_cores(dtype, d);
    enum weft_dtype dout_dtype = on_tensor_cores ? dtype : WEFT_F32;
    void *dout = host_as(dout_dtype, b.dout, (int64_t) n_out);
    weft_convert(b.dout, WEFT_F32, dout, dout_dtype, n_out);
    b.lse = weft_alloc_aligned(n_lse, 4);
    b.grad = host_rows(3, (int64_t) n_qkv);
    for (int i = 0; i < SEQUENCES; i++)
        for (int64_t h = 0; h < KV; h++)
            cpu_backward(&b, i, h);
    char *qkv_ = dev_put(b.qkv, n_qkv * size);
    char *out_ = dev_put(b.out, n_out * size);
    char *dout_ = dev_put(dout, n_out * weft_dtype_bytes(dout_dtype));
    float *grad_ = dev_new(n_qkv * 4);
    float *lse_ = dev_put(b.lse, n_lse * 4), *delta_ = dev_new(n_lse * 4);
    int32_t *n_ = dev_put(b.n, sizeof b.n);
    int32_t *first_ = dev_put(b.first, sizeof b.first);
    int64_t k0 = KV * g * d, v0 = k0 + KV * d;
    struct weft_attention_backward_cuda a = {.dtype = dtype,
                                             .head_dim = d,
                                             .n_kv = KV / n_blocks,
                                             .n_group = g,
                                             .n_runs = SEQUENCES,
                                             .max_rows = 131,
                                             .run_rows = n_,
                                             .first_row = first_,
                                             .ldqkv = b.ld,
                                             .ldo = b.ldo,
                                             .ldlse = b.ldlse,
                                             .ldd = b.ld,
                                             .scale = 0.3f,
                                             .n_blocks = n_blocks};
    for (int32_t t = 0; t < n_blocks; t++) {
        int64_t kv = (int64_t) t * a.n_kv * d, q = kv * g;
        a.block[t] = (struct weft_attention_backward_block){
            .q = qkv_ + (size_t) q * size,
            .k = qkv_ + (size_t) (k0 + kv) * size,
            .v = qkv_ + (size_t) (v0 + kv) * size,
            .out = out_ + (size_t) q * size,
            .dout = dout_ + (size_t) q * weft_dtype_bytes(dout_dtype),
            .lse = lse_ + t * a.n_kv * g,
            .delta = delta_ + (int64_t) t * b.rows * a.n_kv * g,
            .dq = grad_ + q,
            .dk = grad_ + k0 + kv,
            .dv = grad_ + v0 + kv};
    }
    weft_k_attention_backward_cuda(0, &a, b.rows);
    if (cpu_is_fused() && !on_tensor_cores)
        CHECK(dev_same(grad_, b.grad, n_qkv * 4));
    dev_get(b.grad, grad_, n_qkv * 4);
    for (int i = 0; i < SEQUENCES; i++)
        for (int64_t h = 0; h < KV; h++)
            check_gradient(&b, i, h, b.grad);
    void *dev[] = {qkv_, out_, dout_, grad_, lse_, delta_, n_, first_};
    for (size_t i = 0; i < WEFT_COUNT(dev); i++)
        dev_free(dev[i]);
    void *host[] = {b.qkv, b.out, b.dout, b.lse, b.grad, dout};
    for (size_t i = 0; i < WEFT_COUNT(host); i++)
        weft_free(host[i]);
}

static void backwards(void)
{
    backward_of(WEFT_F32, 10, 2, 1);
    backward_of(WEFT_F32, 10, 2, KV);
    backward_of(WEFT_BF16, 64, 3, 1);
    backward_of(WEFT_BF16, 8, 2, KV);
    backward_of(WEFT_BF16, 120, 1, 1);
    backward_of(WEFT_F32, 80, 1, 1);
    backward_of(WEFT_BF16, 130, 1, 1);
}

static void test_attention_backward(void)
{
    each_order(backwards);
}

WEFT_CUDA_TESTS("kern/attention_cuda", {"test_attention", test_attention},
                {"test_attention_backward", test_attention_backward})
