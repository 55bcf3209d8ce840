/* SPDX-License-Identifier: Apache-2.0 */
/* The head with its products on a GPU, against the CPU's: bit for bit but for
 * log(), where the products are the tests' own; and with itself for any cut
 * into micro-batches. */
#include "../cuda/test_device.h"

#include "head_fixture.h"
#include "kern/head.h"
#include "kern/parts.h"

struct device {
    struct weft_k_head head;
    float *grad[WEFT_MAX_BLOCKS], *final;
};

static void device_init(struct device *d, const struct model *m)
{
    struct weft_layout l;
    for (int32_t t = 0; t < m->shape.n_blocks; t++) {
        weft_layout_get(&m->shape, WEFT_TILE_HEAD, t, &l);
        void *fwd, *bwd;
        dev_publish(&l, m->shape.dtype, m->master[t], &fwd, &bwd);
        d->head.fwd[t] = fwd;
        d->head.bwd[t] = bwd;
        d->grad[t] = dev_new(l.n_flat * sizeof(float));
    }
    d->head.final = dev_put(m->final, (size_t) m->h * sizeof(float));
    d->final = dev_new((size_t) m->h * sizeof(float));
}

static void device_zero(const struct device *d, const struct model *m)
{
    for (int32_t t = 0; t < m->shape.n_blocks; t++)
        weft_k_zero_cuda(0, d->grad[t], m->n_flat[t] * sizeof(float));
    weft_k_zero_cuda(0, d->final, (size_t) m->h * sizeof(float));
}

static void device_release(const struct device *d, const struct model *m)
{
    for (int32_t t = 0; t < m->shape.n_blocks; t++) {
        dev_free((void *) (uintptr_t) d->head.fwd[t]);
        dev_free((void *) (uintptr_t) d->head.bwd[t]);
        dev_free(d->grad[t]);
    }
    dev_free((void *) (uintptr_t) d->head.final);
    dev_free(d->final);
}

static void check_close(const char *what, const float *dev, const float *cpu,
                        size_t n, bool exact, double bound)
{
    float *got = weft_alloc_aligned(n, sizeof *got);
    double error = 0, size = 1e-30;
    dev_get(got, dev, n * sizeof *got);
    bool ok = memcmp(got, cpu, n * sizeof *got) == 0;
    for (size_t i = 0; !exact && i < n; i++) {
        double e = fabs((double) got[i] - (double) cpu[i]);
        error = e > error || e != e ? e : error;
        size = fabs((double) cpu[i]) > size ? fabs((double) cpu[i]) : size;
        ok = error <= bound * size;
    }
    if (!ok)
        printf("\n    %s: off by %g of %g", what, error, size);
    CHECK(ok);
    weft_free(got);
}

/* n targets from number `first`, whose rows are in samples of run_rows. */
static void backward(const struct device *d, const struct model *m,
                     const struct rows *r, const struct rows *dev,
                     int32_t first, int32_t n, int32_t n_runs,
                     const int32_t *run_rows, bool entropy, float *dx)
{
    struct weft_k_targets targets = {n, dev->row + first, dev->target + first,
                                     0, NULL};
    void *scratch = dev_new(
        weft_k_head_scratch_bytes_cuda(&m->shape, n, true));
    weft_k_head_backward_cuda(
        0, &m->shape, &d->head, r->n_rows, dev->x, &targets, n_runs, run_rows,
        0.7f, dev->lse + first, dev->entropy + first, dev->dlogp + first,
        entropy ? dev->dentropy + first : NULL, dx, d->grad, d->final,
        scratch);
    dev_wait();
    dev_free(scratch);
    struct weft_err err = {0};
    REQUIRE_OK(weft_k_products_error_cuda(&err), err);
}

static struct rows rows_put(const struct rows *r, const struct model *m)
{
    struct rows d = *r;
    size_t bytes = (size_t) r->n * sizeof(float);
    d.x = dev_put(r->x, (size_t) r->n_rows * (size_t) m->h * sizeof(float));
    d.logp = dev_new(bytes);
    d.entropy = dev_put(r->entropy, bytes);
    d.lse = dev_put(r->lse, bytes);
    d.dlogp = dev_put(r->dlogp, bytes);
    d.dentropy = dev_put(r->dentropy, bytes);
    d.row = dev_put(r->row, bytes);
    d.target = dev_put(r->target, bytes);
    return d;
}

static void rows_free(const struct rows *d)
{
    dev_free(d->x);
    dev_free(d->logp);
    dev_free(d->entropy);
    dev_free(d->lse);
    dev_free(d->dlogp);
    dev_free(d->dentropy);
    dev_free(d->row);
    dev_free(d->target);
}

/* The whole as two members compute it, the second of which has two roots where
 * there are four blocks; what the members' tiles then are is that of one. */
static void by_members(const struct device *d, const struct model *m,
                       const struct rows *r, const struct rows *dev,
                       const int32_t *run_rows, bool entropy, float *dx)
{
    const struct weft_shape *s = &m->shape;
    struct weft_range range[2] = {{0, 1}, {1, s->n_blocks - 1}};
    int32_t n_parts = s->n_blocks > 1 ? 2 : 1;
    struct weft_k_targets targets = {r->n, dev->row, dev->target, 0, NULL};
    size_t rows_bytes = (size_t) r->n * (size_t) m->h * sizeof(float);
    struct weft_k_part part[2];
    struct weft_k_head_parts head[2];
    size_t norm = weft_k_head_norm_scratch_bytes_cuda(s, r->n);
    size_t forward = weft_k_head_scratch_bytes_cuda(s, r->n, false);
    size_t bytes = weft_k_head_scratch_bytes_cuda(s, r->n, true);
    bytes = norm > bytes ? norm : bytes;
    void *scratch = dev_new(forward > bytes ? forward : bytes);
    for (int i = 0; i < n_parts; i++) {
        struct weft_range root[WEFT_MAX_ROOTS];
        size_t n_roots = (size_t) weft_k_roots(s->n_blocks, range[i], root);
        size_t n = weft_k_head_part_bytes(range[i], r->n);
        float *roots = dev_new(n_roots * rows_bytes);
        void *to = dev_new(n);
        weft_k_head_part_cuda(0, s, range[i], &d->head, dev->x, &targets,
                              0.7f, to, scratch);
        head[i] = (struct weft_k_head_parts){range[i], to};
        weft_k_head_backward_part_cuda(
            0, s, range[i], &d->head, dev->x, &targets, 5, run_rows, 0.7f,
            dev->lse, dev->entropy, dev->dlogp,
            entropy ? dev->dentropy : NULL, d->grad, roots, scratch);
        part[i] = (struct weft_k_part){range[i], roots};
    }
    weft_k_head_norm_backward_cuda(0, s, d->head.final, r->n_rows, dev->x,
                                   &targets, n_parts, part, dx, d->final,
                                   scratch);
    dev_wait();
    size_t n_bytes = (size_t) r->n * sizeof(float);
    float *logp = scratch_get(n_bytes);
    weft_k_head_merge_cuda(0, s, &targets, n_parts, head, dev->logp, NULL,
                           NULL);
    dev_get(logp, dev->logp, n_bytes);
    weft_k_head_logprob_cuda(0, s, &d->head, dev->x, &targets, 0.7f,
                             dev->logp, NULL, NULL, scratch);
    CHECK(dev_same(dev->logp, logp, n_bytes));
    weft_free(logp);
    for (int i = 0; i < n_parts; i++) {
        dev_free((void *) (uintptr_t) part[i].roots);
        dev_free((void *) (uintptr_t) head[i].part);
    }
    dev_free(scratch);
}

/* Tokens are drawn from the logits that training has, bit for bit: log-probs
 * of their softmax, piece by piece, are those that training computes. */
static void drawn_is_trained(const struct model *m, const struct rows *r,
                             const struct rows *dev, const float *logits)
{
    const struct weft_shape *s = &m->shape;
    struct weft_range all = {0, s->n_blocks};
    struct weft_k_targets targets = {r->n, dev->row, dev->target, 0, NULL};
    size_t bytes = (size_t) r->n * sizeof(float);
    void *part = dev_new(weft_k_head_part_bytes(all, r->n));
    float *drawn = dev_new(bytes), *logp = scratch_get(bytes);
    struct weft_head_part at;
    weft_head_part_at(all, r->n, (uintptr_t) part, &at);
    for (int32_t t = 0; t < s->n_blocks; t++)
        weft_k_head_take_cuda(0, r->n, s->block[t].vocab0,
                              s->block[t].n_vocab, true,
                              logits + s->block[t].vocab0, m->v, 0.7f,
                              dev->target, at.state + t, s->n_blocks, at.hit);
    weft_k_head_merge_cuda(0, s, &targets, 1,
                           &(struct weft_k_head_parts){all, part}, drawn,
                           NULL, NULL);
    dev_get(logp, dev->logp, bytes);
    CHECK(dev_same(drawn, logp, bytes));
    dev_free(part);
    dev_free(drawn);
    weft_free(logp);
}

static void forward(const struct device *d, const struct model *m,
                    const struct rows *r, const struct rows *dev)
{
    struct weft_k_targets targets = {r->n, dev->row, dev->target, 0, NULL};
    void *scratch = dev_new(
        weft_k_head_scratch_bytes_cuda(&m->shape, r->n, false));
    weft_k_head_logprob_cuda(0, &m->shape, &d->head, dev->x, &targets, 0.7f,
                             dev->logp, dev->entropy, dev->lse, scratch);
    /* one unit in the last place of log() */
    double bound = m->shape.dtype == WEFT_F32 ? 1e-5 : 2e-2;
    check_close("log-probs", dev->logp, r->logp, (size_t) r->n, false, bound);
    check_close("entropies", dev->entropy, r->entropy, (size_t) r->n, false,
                bound);
    check_close("log-sum-exps", dev->lse, r->lse, (size_t) r->n, false,
                bound);
    float *logits = dev_new((size_t) r->n * (size_t) m->v * sizeof(float));
    float *cpu = scratch_get((size_t) r->n * (size_t) m->v * sizeof(float));
    float *x = scratch_get((size_t) r->n * (size_t) m->h * sizeof(float));
    void *work = scratch_get(weft_k_head_scratch_bytes(&m->shape, r->n));
    for (int32_t i = 0; i < r->n; i++)
        memcpy(x + (int64_t) i * m->h, r->x + (int64_t) r->row[i] * m->h,
               (size_t) m->h * sizeof(float));
    weft_k_head_logits(&m->shape, &m->head, r->n, x, cpu, work);
    weft_k_head_logits_cuda(
        0, &m->shape, (struct weft_range){0, m->shape.n_blocks}, &d->head,
        r->n, dev->row, dev->x, logits, scratch);
    check_close("logits", logits, cpu, (size_t) r->n * (size_t) m->v,
                products_are_cpus(), bound);
    drawn_is_trained(m, r, dev, logits);
    dev_free(scratch);
    dev_free(logits);
    weft_free(cpu);
    weft_free(x);
    weft_free(work);
}

static void one_model(int32_t v, int32_t h, int32_t n_blocks,
                      enum weft_dtype dtype)
{
    /* 61 targets: one sample is longer than a chunk of the executor */
    static const int32_t run_rows[] = {1, 6, 0, 49, 5};
    struct model m;
    struct rows r;
    struct device d;
    model_init(&m, v, h, n_blocks, dtype);
    rows_init(&r, &m, 122, 2);
    REQUIRE(r.n == 61);
    device_init(&d, &m);
    float *dx = scratch_get((size_t) (r.n_rows * h) * sizeof(float));
    size_t dx_bytes = (size_t) (r.n_rows * h) * sizeof(float);
    float *grad[WEFT_MAX_BLOCKS] = {NULL};
    float *final = weft_alloc((size_t) h, sizeof *final);
    for (int32_t t = 0; t < n_blocks; t++)
        grad[t] = weft_alloc_aligned(m.n_flat[t], sizeof(float));
    void *scratch = scratch_get(weft_k_head_scratch_bytes(&m.shape, r.n));
    weft_k_head_logprob(&m.shape, &m.head, r.x, &r.targets, 0.7f, r.logp,
                        r.entropy, r.lse, scratch);
    weft_free(scratch);
    scratch = scratch_get(
        weft_k_head_backward_scratch_bytes(&m.shape, r.n, 5));
    struct rows dev = rows_put(&r, &m);
    for (int entropy = 0; entropy < 2; entropy++) {
        double bound = dtype == WEFT_F32 ? 1e-5 : 2e-2;
        float *dx_ = dev_new(dx_bytes);
        for (int32_t t = 0; t < n_blocks; t++)
            memset(grad[t], 0, m.n_flat[t] * sizeof(float));
        memset(final, 0, (size_t) h * sizeof(float));
        device_zero(&d, &m);
        weft_k_head_backward(&m.shape, &m.head, r.n_rows, r.x, &r.targets, 5,
                             run_rows, 0.7f, r.lse, r.entropy, r.dlogp,
                             entropy ? r.dentropy : NULL, dx, grad, final,
                             scratch);
        backward(&d, &m, &r, &dev, 0, r.n, 5, run_rows, entropy, dx_);
        check_close("dx", dx_, dx, (size_t) (r.n_rows * h),
                    products_are_cpus(), bound);
        check_close("the norm's gradient", d.final, final, (size_t) h,
                    products_are_cpus(), bound);
        for (int32_t t = 0; t < n_blocks; t++) {
            check_close("a gradient", d.grad[t], grad[t], m.n_flat[t],
                        products_are_cpus(), bound);
            dev_get(grad[t], d.grad[t], m.n_flat[t] * sizeof(float));
        }
        dev_get(final, d.final, (size_t) h * sizeof(float));
        device_zero(&d, &m);
        backward(&d, &m, &r, &dev, 0, 7, 2, run_rows, entropy, dx_);
        backward(&d, &m, &r, &dev, 7, 54, 3, run_rows + 2, entropy, dx_);
        for (int32_t t = 0; t < n_blocks; t++)
            CHECK(dev_same(d.grad[t], grad[t], m.n_flat[t] * sizeof(float)));
        CHECK(dev_same(d.final, final, (size_t) h * sizeof(float)));
        device_zero(&d, &m);
        backward(&d, &m, &r, &dev, 0, r.n, 5, run_rows, entropy, dx_);
        dev_get(dx, dx_, dx_bytes);
        device_zero(&d, &m);
        by_members(&d, &m, &r, &dev, run_rows, entropy, dx_);
        CHECK(dev_same(dx_, dx, dx_bytes));
        for (int32_t t = 0; t < n_blocks; t++)
            CHECK(dev_same(d.grad[t], grad[t], m.n_flat[t] * sizeof(float)));
        CHECK(dev_same(d.final, final, (size_t) h * sizeof(float)));
        dev_free(dx_);
    }
    forward(&d, &m, &r, &dev);
    for (int32_t t = 0; t < n_blocks; t++)
        weft_free(grad[t]);
    weft_free(final);
    weft_free(dx);
    weft_free(scratch);
    rows_free(&dev);
    device_release(&d, &m);
    rows_release(&r);
    model_release(&m);
}

static void test_heads(void)
{
    one_model(70, 32, 1, WEFT_F32);
    one_model(333, 24, 4, WEFT_F32);
    one_model(1100, 16, 1, WEFT_BF16); /* two chunks of columns */
    one_model(300, 48, 4, WEFT_BF16);
}

/* By a library whose sums have another order, as those of cuBLASLt. */
static void test_heads_of_other_sums(void)
{
    setenv("WEFT_CARDS_SUMS", "own", 1);
    one_model(333, 24, 4, WEFT_F32);
    one_model(1100, 16, 1, WEFT_BF16);
    unsetenv("WEFT_CARDS_SUMS");
}

/* ---- Launches ----------------------------------------------------------- */

#ifdef WEFT_CUDA_EXECUTOR
/* Kernels of a few rows' logits: weft_gen_graph_nodes() has the same count. */
static int64_t logits_launches(int32_t v, int32_t n_blocks,
                               enum weft_dtype dtype)
{
    enum { FEW = 5 };
    struct model m;
    struct rows r;
    struct device d;
    model_init(&m, v, 16, n_blocks, dtype);
    rows_init(&r, &m, 122, 2);
    device_init(&d, &m);
    struct rows dev = rows_put(&r, &m);
    void *scratch = dev_new(
        weft_k_head_scratch_bytes_cuda(&m.shape, FEW, false));
    float *logits = dev_new((size_t) FEW * (size_t) m.v * sizeof(float));
    int64_t n = 0;
    for (int i = 0; i < 2; i++) { /* the first time products are chosen */
        n = weft_cards_counts(0).n_kernels;
        weft_k_head_logits_cuda(0, &m.shape, (struct weft_range){0, n_blocks},
                                &d.head, FEW, dev.row, dev.x, logits,
                                scratch);
        dev_wait();
        n = weft_cards_counts(0).n_kernels - n;
    }
    dev_free(logits);
    dev_free(scratch);
    rows_free(&dev);
    device_release(&d, &m);
    rows_release(&r);
    model_release(&m);
    return n;
}

/* Rows and their norm; of each piece a product, in f32 another of columns that
 * fill no panel, and a copy. */
static void test_launches_of_logits(void)
{
    CHECK_INT(logits_launches(1000, 1, WEFT_BF16), 2 + 2);
    CHECK_INT(logits_launches(1100, 1, WEFT_BF16), 2 + 2 * 2);
    CHECK_INT(logits_launches(300, 4, WEFT_BF16), 2 + 4 * 2);
    CHECK_INT(logits_launches(70, 1, WEFT_F32), 2 + 3);
}
#else
static void test_launches_of_logits(void)
{
    weft_test_skip("a card does not count launches");
}
#endif

WEFT_CUDA_TESTS("kern/head_products_cuda", {"test_heads", test_heads},
                {"test_launches_of_logits", test_launches_of_logits},
                {"test_heads_of_other_sums", test_heads_of_other_sums})
