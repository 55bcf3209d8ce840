/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over one KV head against double loops, at odd head sizes, group
 * sizes and positions; memory of unseen keys full of NaN; the bits of a row
 * however rows are cut into calls, keys into pages; gradients.
 */
#include "layer_fixture.h"

#include "kern/rows.h"

enum { PAGE = WEFT_PAGE_TOKENS, MAX_N = 200 };

/* One KV head and its group, n tokens. */
struct head {
    enum weft_dtype dtype;
    int32_t d, g, n;
    struct weft_shape s; /* for the oracle */
    void *q, *k, *v, *out;
    float *lse;
    double *rq, *rk, *rv, *rout;
    char *pages; /* scattered by `page` */
    size_t page_bytes;
    int32_t page[MAX_N / PAGE + 1];
};

static double *widen(enum weft_dtype dtype, const void *x, int64_t n)
{
    double *y = ref_zeros(n);
    for (int64_t i = 0; i < n; i++)
        y[i] = dtype == WEFT_F32
                 ? (double) ((const float *) x)[i]
                 : (double) weft_bf16_to_f32(((const uint16_t *) x)[i]);
    return y;
}

static void *rows_of(enum weft_dtype dtype, uint32_t stream, int64_t n,
                     float size)
{
    float *x = fixture_rows(stream, n);
    void *y = weft_alloc_aligned((size_t) n, 4);
    for (int64_t i = 0; i < n; i++)
        x[i] *= size;
    weft_row_ops()->round(dtype, n, x, y);
    weft_free(x);
    return y;
}

static void copy_element(const struct head *h, void *to, int64_t i,
                         const void *from, int64_t j)
{
    size_t size = weft_dtype_bytes(h->dtype);
    memcpy((char *) to + (size_t) i * size,
           (const char *) from + (size_t) j * size, size);
}

static void head_init(struct head *h, enum weft_dtype dtype, int32_t d,
                      int32_t g, int32_t n)
{
    *h = (struct head){.dtype = dtype,
                       .d = d,
                       .g = g,
                       .n = n,
                       .s = {.head_dim = d, .n_heads = g, .n_kv_heads = 1}};
    h->q = rows_of(dtype, 1, n * g * d, 2);
    h->k = rows_of(dtype, 2, n * d, 2);
    h->v = rows_of(dtype, 3, n * d, 1);
    h->out = weft_alloc_aligned((size_t) (n * g * d), 4);
    h->lse = weft_alloc_aligned((size_t) (n * g), 4);
    h->rq = widen(dtype, h->q, n * g * d);
    h->rk = widen(dtype, h->k, n * d);
    h->rv = widen(dtype, h->v, n * d);
    h->rout = ref_zeros(n * g * d);
    ref_attention(&h->s, n, h->rq, h->rk, h->rv, h->rout, NULL, NULL, NULL,
                  NULL);
    int32_t pages = (n + PAGE - 1) / PAGE;
    h->page_bytes = (size_t) (2 * d * PAGE) * weft_dtype_bytes(dtype) + 64;
    h->pages = weft_alloc_aligned((size_t) pages, h->page_bytes);
    memset(h->pages, 0xff, (size_t) pages * h->page_bytes); /* NaN */
    for (int32_t i = 0; i < pages; i++)
        h->page[i] = (i + pages / 2) % pages;
}

/* Keys and values from `from` to `to` into their pages. */
static void write_keys(struct head *h, int32_t from, int32_t to)
{
    for (int32_t j = from; j < to; j++) {
        char *page = h->pages + (size_t) h->page[j / PAGE] * h->page_bytes;
        for (int32_t i = 0; i < h->d; i++) {
            copy_element(h, page, i * PAGE + j % PAGE, h->k, j * h->d + i);
            copy_element(h, page, (PAGE + j % PAGE) * h->d + i, h->v,
                         j * h->d + i);
        }
    }
}

static void head_release(struct head *h)
{
    void *all[] = {h->q, h->k, h->v, h->out, h->lse, h->pages};
    double *ref[] = {h->rq, h->rk, h->rv, h->rout};
    for (size_t i = 0; i < WEFT_COUNT(all); i++)
        weft_free(all[i]);
    for (size_t i = 0; i < WEFT_COUNT(ref); i++)
        free(ref[i]);
}

static void attend(struct head *h, int32_t pos, int32_t n, void *out,
                   float *lse)
{
    size_t size = weft_dtype_bytes(h->dtype);
    int64_t ld = h->g * h->d;
    struct weft_attention a = {
        .dtype = h->dtype,
        .kv_dtype = h->dtype,
        .head_dim = h->d,
        .n_group = h->g,
        .n = n,
        .pos = pos,
        .q = (char *) h->q + (size_t) (pos * ld) * size,
        .ldq = ld,
        .kv = h->pages,
        .page = h->page,
        .page_bytes = h->page_bytes,
        .scale = 1 / sqrtf((float) h->d),
        .out = (char *) out + (size_t) (pos * ld) * size,
        .ldo = ld,
        .lse = lse ? lse + pos * h->g : NULL,
        .ldlse = h->g,
        .scratch = weft_alloc_aligned(weft_attention_scratch(h->d), 4)};
    weft_row_ops()->attention(&a);
    weft_free(a.scratch);
}

static void forward_of(enum weft_dtype dtype, int32_t d, int32_t g, int32_t n)
{
    struct head h;
    head_init(&h, dtype, d, g, n);
    size_t bytes = (size_t) (n * g * d) * weft_dtype_bytes(dtype);
    void *out = weft_alloc_aligned(bytes, 1);
    float *lse = weft_alloc_aligned((size_t) (n * g), 4);
    write_keys(&h, 0, n);
    attend(&h, 0, n, h.out, h.lse);
    double *got = widen(dtype, h.out, n * g * d);
    for (int64_t i = 0; i < n * g * d; i++) /* weights sum to 1, |v| < 5 */
        CHECK(fabs(got[i] - h.rout[i])
              < (dtype == WEFT_F32 ? 1e-5 : 1e-5 + fabs(h.rout[i]) / 256));
    for (int64_t r = 0; r < n * g; r++) {
        double sum = 0, scale = 1 / sqrt((double) d);
        for (int64_t j = 0; j <= r / g; j++) {
            double s = 0;
            for (int64_t i = 0; i < d; i++)
                s += h.rq[r * d + i] * h.rk[j * d + i];
            sum += exp(s * scale);
        }
        CHECK(fabs((double) h.lse[r] - log(sum)) < 1e-5);
    }
    /* The same rows with no key behind them in memory, in several calls. */
    static const int32_t step[] = {1, 5, 64, 100};
    for (size_t i = 0; i < WEFT_COUNT(step); i++) {
        memset(h.pages, 0xff,
               (size_t) ((n + PAGE - 1) / PAGE) * h.page_bytes);
        memset(out, 0, bytes);
        for (int32_t pos = 0; pos < n; pos += step[i]) {
            int32_t m = n - pos < step[i] ? n - pos : step[i];
            write_keys(&h, pos, pos + m);
            attend(&h, pos, m, out, i % 2 ? NULL : lse);
        }
        CHECK(memcmp(out, h.out, bytes) == 0);
        CHECK(i % 2
              || memcmp(lse, h.lse, (size_t) (n * g) * sizeof *lse) == 0);
    }
    /* Packed for training: f32 segments. */
    struct weft_attention a = {
        .dtype = dtype,
        .kv_dtype = WEFT_F32,
        .head_dim = d,
        .n_group = g,
        .n = n,
        .q = h.q,
        .ldq = g * d,
        .scale = 1 / sqrtf((float) d),
        .page_bytes = weft_attention_segment(d) * 4,
        .out = out,
        .ldo = g * d,
        .scratch = weft_alloc_aligned(weft_attention_scratch(d), 4)};
    float *segments = weft_alloc_aligned(
        (size_t) ((n + PAGE - 1) / PAGE) * weft_attention_segment(d), 4);
    weft_row_ops()->pack_kv(dtype, d, n, h.k, h.v, d, segments);
    a.kv = (const char *) segments;
    memset(out, 0, bytes);
    weft_row_ops()->attention(&a);
    CHECK(memcmp(out, h.out, bytes) == 0);
    weft_free(segments);
    weft_free(a.scratch);
    weft_free(out);
    weft_free(lse);
    free(got);
    head_release(&h);
}

static void forwards(void)
{
    static const int32_t d[] = {2, 10, 16, 24, 32, 48, 64, 80, 96, 128};
    for (size_t i = 0; i < WEFT_COUNT(d); i++)
        for (int dtype = 0; dtype < 2; dtype++) {
            forward_of((enum weft_dtype) dtype, d[i], 1, 130);
            forward_of((enum weft_dtype) dtype, d[i], 1 + (int) i, 66);
        }
    forward_of(WEFT_F32, 16, 4, 1);
    forward_of(WEFT_BF16, 64, 7, 64);
}

static void test_forward(void)
{
    each_isa(forwards);
}

/* Scores far apart: the largest wins whole, nothing overflows. */
static void extremes(void)
{
    struct head h;
    head_init(&h, WEFT_F32, 16, 1, 100);
    float *q = h.q, *k = h.k;
    for (int i = 0; i < 100 * 16; i++) {
        q[i] = 30;
        k[i] = i / 16 == 70 ? 30 : i / 16 % 2 ? -30 : 0;
    }
    write_keys(&h, 0, 100);
    attend(&h, 0, 100, h.out, h.lse);
    const float *out = h.out, *v = h.v;
    for (int r = 70; r < 100; r++)
        for (int i = 0; i < 16; i++)
            CHECK(out[r * 16 + i] == v[70 * 16 + i]);
    CHECK(h.lse[99] == 30 * 30 * 4);
    for (int i = 0; i < 16; i++) /* key 1 at -3600 beside key 0 at 0 */
        CHECK(out[16 + i] == v[i]);
    head_release(&h);
}

static void test_extremes(void)
{
    each_isa(extremes);
}

/* ---- Backward ---------------------------------------------------------- */

static void backward_of(enum weft_dtype dtype, int32_t d, int32_t g,
                        int32_t n)
{
    struct head h;
    head_init(&h, dtype, d, g, n);
    write_keys(&h, 0, n);
    attend(&h, 0, n, h.out, h.lse);
    int64_t nq = n * g * d, nk = n * d, ldd = g * d + 2 * d + 3;
    float *dout = fixture_rows(4, nq);
    float *grad = fixture_rows(5, n * ldd); /* to be overwritten */
    double *rdout = ref_zeros(nq), *rdq = ref_zeros(nq);
    double *rdk = ref_zeros(nk), *rdv = ref_zeros(nk), *out = ref_zeros(nq);
    for (int64_t i = 0; i < nq; i++)
        rdout[i] = dout[i];
    ref_attention(&h.s, n, h.rq, h.rk, h.rv, out, rdout, rdq, rdk, rdv);
    struct weft_attention_backward a = {
        .dtype = dtype,
        .head_dim = d,
        .n_group = g,
        .n = n,
        .q = h.q,
        .k = h.k,
        .v = h.v,
        .ldqkv = d,
        .out = h.out,
        .dout = dout,
        .ldo = g * d,
        .lse = h.lse,
        .ldlse = g,
        .scale = 1 / sqrtf((float) d),
        .dq = grad,
        .dk = grad + g * d,
        .dv = grad + (g + 1) * d,
        .ldd = ldd,
        .scratch = weft_alloc_aligned(weft_attention_backward_scratch(d, n),
                                      4)};
    /* q, k and v share one leading dimension, as in a layer. */
    size_t size = weft_dtype_bytes(dtype);
    char *qkv = weft_alloc_aligned((size_t) (n * (g + 2) * d), size);
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < (g + 2) * d; i++)
            copy_element(&h, qkv, r * (g + 2) * d + i,
                         i < g * d         ? h.q
                         : i < (g + 1) * d ? h.k
                                           : h.v,
                         i < g * d ? r * g * d + i : r * d + i % d);
    a.q = qkv;
    a.k = qkv + (size_t) (g * d) * size;
    a.v = qkv + (size_t) ((g + 1) * d) * size;
    a.ldqkv = (g + 2) * d;
    weft_row_ops()->attention_backward(&a);
    /* f32: sums of up to n * g terms. bf16: also out, rounded to 2^-9, in
     * delta. */
    double bound = dtype == WEFT_F32 ? 2e-5 : 4e-2;
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < (g + 2) * d; i++) {
            double e = i < g * d       ? rdq[r * g * d + i]
                     : i < (g + 1) * d ? rdk[r * d + i % d]
                                       : rdv[r * d + i % d];
            double got = grad[r * ldd + i];
            bool ok = fabs(got - e) < bound * (1 + fabs(e));
            if (!ok)
                printf("\n    d %d g %d n %d row %d column %d: %g, not %g", d,
                       g, n, (int) r, (int) i, got, e);
            CHECK(ok);
        }
    float *untouched = fixture_rows(5, n * ldd);
    for (int64_t r = 0; r < n; r++)
        CHECK(memcmp(grad + r * ldd + (g + 2) * d,
                     untouched + r * ldd + (g + 2) * d, 3 * 4)
              == 0);
    float *floats[] = {dout, grad, untouched, a.scratch};
    double *doubles[] = {rdout, rdq, rdk, rdv, out};
    for (size_t i = 0; i < WEFT_COUNT(floats); i++)
        weft_free(floats[i]);
    for (size_t i = 0; i < WEFT_COUNT(doubles); i++)
        free(doubles[i]);
    weft_free(qkv);
    head_release(&h);
}

static void backwards(void)
{
    static const int32_t d[] = {2, 10, 16, 24, 48, 64, 80, 128};
    for (size_t i = 0; i < WEFT_COUNT(d); i++)
        for (int dtype = 0; dtype < 2; dtype++) {
            backward_of((enum weft_dtype) dtype, d[i], 1, 130);
            backward_of((enum weft_dtype) dtype, d[i], 3, 65);
        }
    backward_of(WEFT_F32, 16, 2, 1);
    backward_of(WEFT_BF16, 64, 1, 64);
}

static void test_backward(void)
{
    each_isa(backwards);
}

WEFT_TESTS("kern/attention", {"test_forward", test_forward},
           {"test_extremes", test_extremes}, {"test_backward", test_backward})
