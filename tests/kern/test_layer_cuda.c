/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers on a GPU against the CPU's: bit for bit where the products are the
 * tests' own and attention has no tensor cores, else to a tolerance. And the
 * contract, bit for bit everywhere: micro-batches, neighbours and members of a
 * tp group change nothing. A decode step over a cache, and how many launches it
 * takes.
 */
#include "../cuda/test_device.h"

#include "kern/attention_cuda.h"
#include "kern/parts.h"
#include "layer_kinds.h"

static struct weft_k_batch *batch; /* on the host */

/* ---- A layer on the device ---------------------------------------------- */

struct device {
    struct weft_k_layer w;
    float *grad[WEFT_MAX_BLOCKS], *grad_norms;
};

static void device_init(struct device *d, const struct fixture *f)
{
    struct weft_layout l;
    for (int32_t t = 0; t < f->s.n_blocks; t++) {
        weft_layout_get(&f->s, WEFT_TILE_LAYER, t, &l);
        void *fwd, *bwd;
        dev_publish(&l, f->s.dtype, f->master[t], &fwd, &bwd);
        d->w.fwd[t] = fwd;
        d->w.bwd[t] = bwd;
        d->grad[t] = dev_new(l.n_flat * sizeof(float));
    }
    d->w.norms = dev_put(f->norms, f->n_norms * sizeof(float));
    d->grad_norms = dev_new(f->n_norms * sizeof(float));
}

static void device_zero_grad(const struct device *d, const struct fixture *f)
{
    for (int32_t t = 0; t < f->s.n_blocks; t++)
        weft_k_zero_cuda(0, d->grad[t], f->n_flat[t] * sizeof(float));
    weft_k_zero_cuda(0, d->grad_norms, f->n_norms * sizeof(float));
}

static void device_release(const struct device *d, const struct fixture *f)
{
    for (int32_t t = 0; t < f->s.n_blocks; t++) {
        dev_free((void *) (uintptr_t) d->w.fwd[t]);
        dev_free((void *) (uintptr_t) d->w.bwd[t]);
        dev_free(d->grad[t]);
    }
    dev_free((void *) (uintptr_t) d->w.norms);
    dev_free(d->grad_norms);
}

static void require_products(void)
{
    struct weft_err err = {0};
    int rc = weft_k_products_error_cuda(&err);
    if (rc != 0)
        printf("\n    %s\n", err.text);
    REQUIRE(rc == 0);
}

/* y; dx: of y on entry, of x on return. All device memory. */
static void run_whole(const struct device *d, const struct fixture *f,
                      const struct weft_k_batch *b, const float *x, float *y,
                      float *dx, bool recompute)
{
    const struct weft_shape *s = &f->s;
    void *saved = dev_new(weft_k_layer_saved_bytes(s, b->n_rows));
    void *scratch = dev_new(
        weft_k_part_forward_scratch_bytes_cuda(s, weft_all_blocks(s), b));
    weft_k_layer_forward_cuda(0, s, &d->w, 0, b, NULL, x, y,
                              recompute ? NULL : saved, scratch);
    dev_wait();
    dev_free(scratch);
    scratch = dev_new(
        weft_k_layer_backward_scratch_bytes_cuda(s, b, recompute));
    weft_k_layer_backward_cuda(0, s, &d->w, b, x, recompute ? NULL : saved,
                               dx, d->grad, d->grad_norms, scratch);
    dev_wait();
    require_products();
    dev_free(scratch);
    dev_free(saved);
}

/* ---- Members of a tp group ---------------------------------------------- */

enum { MOST_MEMBERS = 3 };

struct member {
    struct weft_range range;
    void *saved, *scratch;
    float *roots, *dqkv, *shared, *head_norms;
};

static size_t roots_bytes(const struct weft_shape *s, struct weft_range range,
                          int64_t n_rows)
{
    struct weft_range root[WEFT_MAX_ROOTS];
    return (size_t) (weft_k_roots(s->n_blocks, range, root) * n_rows
                     * s->hidden)
         * sizeof(float);
}

/* Of q's norm; those of k's follow. */
static int64_t head_norms_floats(const struct weft_shape *s,
                                 struct weft_range range, int64_t n_rows)
{
    struct weft_range root[WEFT_MAX_ROOTS];
    return weft_k_roots(s->n_blocks, range, root) * n_rows * s->head_dim;
}

static int members_init(struct member m[], const struct weft_shape *s,
                        const struct weft_k_batch *b, int n)
{
    for (int i = 0; i < n; i++) {
        int32_t first = (s->n_blocks * i + n - 1) / n;
        int32_t end = (s->n_blocks * (i + 1) + n - 1) / n;
        struct weft_range range = {first, end - first};
        size_t forward = weft_k_part_forward_scratch_bytes_cuda(s, range, b);
        size_t backward = weft_k_part_backward_scratch_bytes_cuda(s, range,
                                                                  b);
        size_t shared = weft_k_shared_kv_bytes(s, range, b->n_rows);
        m[i] = (struct member){
            .range = range,
            .saved = dev_new(weft_k_part_saved_bytes(s, range, b->n_rows)),
            .scratch = dev_new(forward > backward ? forward : backward),
            .roots = dev_new(roots_bytes(s, range, b->n_rows)),
            .dqkv = dev_new(weft_k_dqkv_bytes(s, range, b->n_rows)),
            .shared = shared ? dev_new(shared) : NULL,
            .head_norms = dev_new(
                2 * (size_t) head_norms_floats(s, range, b->n_rows)
                * sizeof(float))};
    }
    return n;
}

static void members_release(struct member m[], int n)
{
    for (int i = 0; i < n; i++) {
        dev_free(m[i].saved);
        dev_free(m[i].scratch);
        dev_free(m[i].roots);
        dev_free(m[i].dqkv);
        dev_free(m[i].head_norms);
        if (m[i].shared)
            dev_free(m[i].shared);
    }
}

/* As run_whole(), by n members. */
static void run_members(const struct device *d, const struct fixture *f,
                        const struct weft_k_batch *b, int n, const float *x,
                        float *y, float *dx)
{
    const struct weft_shape *s = &f->s;
    struct weft_range all = weft_all_blocks(s);
    struct member m[MOST_MEMBERS];
    struct weft_k_part part[MOST_MEMBERS], head_norm[2 * MOST_MEMBERS];
    struct weft_k_shared shared[MOST_MEMBERS];
    int64_t rows = b->n_rows, h = s->hidden;
    float *x_mid = dev_new((size_t) (rows * h) * sizeof(float));
    void *norm = dev_new(weft_k_norm_join_scratch_bytes_cuda(s, rows));
    float *const *grad = d->grad;
    members_init(m, s, b, n);
    for (int i = 0; i < n; i++) {
        part[i] = (struct weft_k_part){m[i].range, m[i].roots};
        shared[i] = (struct weft_k_shared){m[i].range, m[i].shared};
        for (int j = 0; j < 2; j++)
            head_norm[j * n + i] = (struct weft_k_part){
                m[i].range,
                m[i].head_norms + j * head_norms_floats(s, m[i].range, rows)};
        weft_k_attention_forward_cuda(0, s, m[i].range, &d->w, 0, b, NULL, x,
                                      m[i].saved, m[i].roots, m[i].scratch);
    }
    weft_k_join_rows_cuda(0, s->n_blocks, n, part, all, rows, h,
                          weft_k_o_bias(s, d->w.norms), x, x_mid);
    for (int i = 0; i < n; i++)
        weft_k_mlp_forward_cuda(0, s, m[i].range, &d->w, b, x_mid, m[i].saved,
                                m[i].roots, m[i].scratch);
    weft_k_join_rows_cuda(0, s->n_blocks, n, part, all, rows, h, NULL, x_mid,
                          y);
    for (int i = 0; i < n; i++)
        weft_k_mlp_backward_cuda(0, s, m[i].range, &d->w, b, x_mid,
                                 m[i].saved, dx, grad, m[i].roots,
                                 m[i].scratch);
    weft_k_norm_backward_cuda(0, s, false, d->w.norms, rows, x_mid, n, part,
                              NULL, dx, d->grad_norms, norm);
    for (int i = 0; i < n; i++)
        weft_k_heads_backward_cuda(0, s, m[i].range, &d->w, b, m[i].saved, dx,
                                   grad, m[i].dqkv, m[i].shared,
                                   m[i].scratch);
    for (int i = 0; i < n; i++)
        weft_k_qkv_backward_cuda(0, s, m[i].range, &d->w, b, x, m[i].saved, n,
                                 shared, m[i].dqkv, grad, m[i].roots,
                                 m[i].head_norms, m[i].scratch);
    weft_k_norm_backward_cuda(0, s, true, d->w.norms, rows, x, n, part,
                              s->qk_norm ? head_norm : NULL, dx,
                              d->grad_norms, norm);
    dev_wait();
    require_products();
    members_release(m, n);
    dev_free(x_mid);
    dev_free(norm);
}

/* ---- Cases -------------------------------------------------------------- */

/* Numbers on the device against the CPU's. */
static void check(const char *what, size_t kind, const struct weft_shape *s,
                  const float *dev, const float *cpu, size_t n)
{
    float *got = weft_alloc_aligned(n, sizeof *got);
    double error = 0, size = 0, bound = s->dtype == WEFT_F32 ? 1e-5 : 3e-2;
    dev_get(got, dev, n * sizeof *got);
    bool ok = memcmp(got, cpu, n * sizeof *got) == 0;
    bool same = products_are_cpus()
             && !weft_attention_on_tensor_cores(s->dtype, s->head_dim);
    for (size_t i = 0; !same && i < n; i++) {
        double e = fabs((double) got[i] - (double) cpu[i]);
        error = e > error || e != e ? e : error;
        size = fabs((double) cpu[i]) > size ? fabs((double) cpu[i]) : size;
        ok = error <= bound * size;
    }
    if (!ok)
        printf("\n    %s of kind %zu in %s: %g of %g", what, kind,
               weft_dtype_name(s->dtype), error, size);
    CHECK(ok);
    weft_free(got);
}

struct outcome {
    float *y, *dx; /* device */
};

static void check_outcome(size_t kind, const struct fixture *f,
                          const struct device *d, const struct outcome *o,
                          const float *y, const float *dx)
{
    size_t n = (size_t) (batch->n_rows * f->s.hidden);
    check("y", kind, &f->s, o->y, y, n);
    check("dx", kind, &f->s, o->dx, dx, n);
    for (int32_t t = 0; t < f->s.n_blocks; t++)
        check("a gradient", kind, &f->s, d->grad[t], f->grad[t],
              f->n_flat[t]);
    check("norms' gradient", kind, &f->s, d->grad_norms, f->grad_norms,
          f->n_norms);
}

/* Takes what the device has as what must come out from now on. */
static void take_as_right(const struct fixture *f, const struct device *d,
                          const struct outcome *o, float *y, float *dx)
{
    size_t bytes = (size_t) (batch->n_rows * f->s.hidden) * sizeof(float);
    dev_get(y, o->y, bytes);
    dev_get(dx, o->dx, bytes);
    for (int32_t t = 0; t < f->s.n_blocks; t++)
        dev_get(f->grad[t], d->grad[t], f->n_flat[t] * sizeof(float));
    dev_get(f->grad_norms, d->grad_norms, f->n_norms * sizeof(float));
}

static void check_same(const struct fixture *f, const struct device *d,
                       const struct outcome *o, const float *y,
                       const float *dx)
{
    size_t bytes = (size_t) (batch->n_rows * f->s.hidden) * sizeof(float);
    CHECK(dev_same(o->y, y, bytes));
    CHECK(dev_same(o->dx, dx, bytes));
    for (int32_t t = 0; t < f->s.n_blocks; t++)
        CHECK(dev_same(d->grad[t], f->grad[t], f->n_flat[t] * sizeof(float)));
    CHECK(dev_same(d->grad_norms, f->grad_norms, f->n_norms * sizeof(float)));
}

static void one_kind(size_t kind, enum weft_dtype dtype)
{
    static const int32_t length[] = {1, 3, 70, 33};
    struct fixture_batch all, first, rest;
    struct fixture f;
    struct device d;
    fixture_batch(&all, 4, length);
    fixture_batch(&first, 2, length);
    fixture_batch(&rest, 2, length + 2);
    batch = &all.b;
    init_kind(&f, kind, dtype);
    device_init(&d, &f);
    int64_t n = all.b.n_rows * f.s.hidden, cut = first.b.n_rows * f.s.hidden;
    size_t bytes = (size_t) n * sizeof(float);
    float *x = fixture_rows(1, n), *dy = fixture_rows(2, n);
    float *y = weft_alloc_aligned((size_t) n, sizeof *y);
    float *dx = host_copy(dy, n), *x_ = dev_put(x, bytes);
    struct outcome o = {dev_new(bytes), dev_put(dy, bytes)};
    fixture_zero_grad(&f);
    fixture_run(&f, &all.b, x, y, dx, false);
    device_zero_grad(&d, &f);
    run_whole(&d, &f, &all.b, x_, o.y, o.dx, false);
    check_outcome(kind, &f, &d, &o, y, dx);

    take_as_right(&f, &d, &o, y, dx);
    dev_set(o.dx, dy, bytes);
    device_zero_grad(&d, &f);
    run_whole(&d, &f, &all.b, x_, o.y, o.dx, true);
    check_same(&f, &d, &o, y, dx);

    dev_set(o.dx, dy, bytes);
    device_zero_grad(&d, &f);
    run_whole(&d, &f, &first.b, x_, o.y, o.dx, false);
    run_whole(&d, &f, &rest.b, x_ + cut, o.y + cut, o.dx + cut, true);
    check_same(&f, &d, &o, y, dx);

    for (int members = 2; members <= MOST_MEMBERS; members++) {
        if (members > f.s.n_blocks)
            continue;
        dev_set(o.dx, dy, bytes);
        device_zero_grad(&d, &f);
        run_members(&d, &f, &all.b, members, x_, o.y, o.dx);
        CHECK(dev_same(o.y, y, bytes));
        CHECK(dev_same(o.dx, dx, bytes));
        CHECK(
            dev_same(d.grad_norms, f.grad_norms, f.n_norms * sizeof(float)));
    }
    device_release(&d, &f);
    fixture_release(&f);
    dev_free(o.y);
    dev_free(o.dx);
    dev_free(x_);
    weft_free(x);
    weft_free(dy);
    weft_free(y);
    weft_free(dx);
}

static void test_layers(void)
{
    for (size_t kind = 0; kind < WEFT_COUNT(kinds); kind++)
        for (int dtype = 0; dtype < 2; dtype++)
            one_kind(kind, dtype ? WEFT_BF16 : WEFT_F32);
}

/* ---- A decode step ------------------------------------------------------ */

enum { DECODED = 10, SLOT_PAGES = 2, CACHE_PAGES = 32 };

/* Launches until now; a card does not count them. */
#ifdef WEFT_CUDA_EXECUTOR
enum { ARE_COUNTED = 1 };
static int64_t kernels_run(void)
{
    return weft_cards_counts(0).n_kernels;
}
#else
enum { ARE_COUNTED = 0 };
static int64_t kernels_run(void)
{
    return 0;
}
#endif

/* A cache of DECODED sequences on the host and on the device. */
struct caches {
    struct weft_k_kv cpu, dev;
    int32_t page[DECODED * SLOT_PAGES];
    size_t bytes;
};

static void caches_init(struct caches *c, const struct weft_shape *s)
{
    size_t page_bytes = weft_k_kv_page_bytes(s, 1);
    c->bytes = CACHE_PAGES * page_bytes;
    for (int32_t i = 0; i < DECODED * SLOT_PAGES; i++)
        c->page[i] = (i * 5 + 2) % CACHE_PAGES;
    c->cpu = (struct weft_k_kv){weft_alloc_aligned(c->bytes, 1), page_bytes,
                                c->page, SLOT_PAGES};
    c->dev = c->cpu;
    memset(c->cpu.arena, 0xff, c->bytes); /* NaN */
    c->dev.arena = dev_put(c->cpu.arena, c->bytes);
    memset(c->cpu.arena, 0, c->bytes);
    c->dev.page = dev_put(c->page, sizeof c->page);
}

static void caches_release(struct caches *c)
{
    weft_free(c->cpu.arena);
    dev_free(c->dev.arena);
    dev_free((void *) (uintptr_t) c->dev.page);
}

static void forward_both(struct fixture *f, const struct device *d,
                         struct caches *c, struct weft_k_batch *b,
                         const struct weft_k_run *device_run, const float *x,
                         float *y, float *y_)
{
    const struct weft_shape *s = &f->s;
    size_t bytes = (size_t) (b->n_rows * s->hidden) * sizeof(float);
    float *x_ = dev_put(x, bytes);
    void *scratch = weft_alloc_aligned(
        weft_k_layer_forward_scratch_bytes(s, b), 1);
    void *scratch_ = dev_new(
        weft_k_part_forward_scratch_bytes_cuda(s, weft_all_blocks(s), b));
    weft_k_layer_forward(s, &f->w, 0, b, &c->cpu, x, y, NULL, scratch);
    b->device_run = device_run;
    weft_k_layer_forward_cuda(0, s, &d->w, 0, b, &c->dev, x_, y_, NULL,
                              scratch_);
    dev_wait();
    b->device_run = NULL;
    require_products();
    weft_free(scratch);
    dev_free(scratch_);
    dev_free(x_);
}

/* The page of the cache that a run's next row goes to is untouched. */
static void check_untouched(const struct caches *c,
                            const struct weft_k_run *run)
{
    size_t bytes = c->dev.page_bytes;
    int32_t page =
        c->page[run->slot * SLOT_PAGES + run->pos / WEFT_PAGE_TOKENS];
    char *nan = weft_alloc_aligned(bytes, 1);
    memset(nan, 0xff, bytes);
    CHECK(
        dev_same((char *) c->dev.arena + (size_t) page * bytes, nan, bytes));
    weft_free(nan);
}

/* Sequences of some rows, then a row each; but the last has ended, as the
 * device alone knows. Returns how many kernels the step was. */
static int64_t decode_step(struct fixture *f)
{
    static const int32_t length[DECODED] = {70, 1, 63, 2, 5, 3, 1, 64, 9, 64};
    const struct weft_shape *s = &f->s;
    struct fixture_batch b;
    struct caches c;
    struct device d;
    device_init(&d, f);
    caches_init(&c, s);
    fixture_batch(&b, DECODED, length);
    for (int32_t i = 0; i < DECODED; i++)
        b.run[i].slot = i;
    size_t n = (size_t) (b.b.n_rows * s->hidden);
    size_t n_live = (size_t) ((DECODED - 1) * s->hidden);
    float *x = fixture_rows(1, (int64_t) n);
    float *y = weft_alloc_aligned(n, sizeof *y), *y_ = dev_new(n * sizeof *y);
    forward_both(f, &d, &c, &b.b, NULL, x, y, y_);
    check("prefilled y", 0, s, y_, y, n);
    struct weft_k_run step[DECODED];
    for (int32_t i = 0; i < DECODED; i++)
        step[i] = (struct weft_k_run){i, length[i], i < DECODED - 1};
    struct weft_k_run *step_ = dev_put(step, sizeof step);
    for (int32_t i = 0; i < DECODED; i++)
        b.run[i] = (struct weft_k_run){i, length[i], 1};
    b.b.n_rows = DECODED;
    int64_t before = kernels_run();
    forward_both(f, &d, &c, &b.b, step_, x, y, y_);
    int64_t kernels = kernels_run() - before;
    check("decoded y", 0, s, y_, y, n_live);
    check_untouched(&c, &step[DECODED - 1]);
    dev_free(step_);
    dev_free(y_);
    weft_free(x);
    weft_free(y);
    caches_release(&c);
    device_release(&d, f);
    return kernels;
}

/* Whatever the heads and how blocks share them. */
static void test_decode(void)
{
    for (size_t kind = 0; kind < WEFT_COUNT(kinds); kind++)
        for (int dtype = 0; dtype < 2; dtype++) {
            struct fixture f;
            init_kind(&f, kind, dtype ? WEFT_BF16 : WEFT_F32);
            decode_step(&f);
            fixture_release(&f);
        }
}

/* ---- How many kernels a layer is ------------------------------------- */

/* A layer like Qwen2.5's, of these blocks and KV heads. */
static void init_qwen(struct fixture *f, int32_t n_blocks, int32_t n_kv_heads)
{
    struct weft_shape s = {.hidden = 64,
                           .n_layers = 1,
                           .n_heads = 8,
                           .n_kv_heads = n_kv_heads,
                           .head_dim = 16,
                           .intermediate = 256,
                           .vocab = 512,
                           .max_positions = 512,
                           .qkv_bias = true,
                           .rms_eps = 1e-6f,
                           .rope_theta = 1e6f,
                           .dtype = WEFT_BF16};
    fixture_init(f, s, n_blocks);
}

/* How many kernels a training step's backward pass of the layer is, of two
 * sequences, the second of n rows. */
static int64_t backward_step(struct fixture *f, int32_t n_rows)
{
    const int32_t length[] = {3, n_rows};
    const struct weft_shape *s = &f->s;
    struct fixture_batch b;
    struct device d;
    fixture_batch(&b, 2, length);
    device_init(&d, f);
    int64_t m = b.b.n_rows;
    size_t bytes = (size_t) (m * s->hidden) * sizeof(float);
    float *x = fixture_rows(1, m * s->hidden), *x_ = dev_put(x, bytes);
    float *y_ = dev_new(bytes), *dx_ = dev_put(x, bytes);
    void *saved = dev_new(weft_k_layer_saved_bytes(s, m));
    void *forward = dev_new(
        weft_k_part_forward_scratch_bytes_cuda(s, weft_all_blocks(s), &b.b));
    void *backward = dev_new(
        weft_k_layer_backward_scratch_bytes_cuda(s, &b.b, false));
    device_zero_grad(&d, f);
    weft_k_layer_forward_cuda(0, s, &d.w, 0, &b.b, NULL, x_, y_, saved,
                              forward);
    int64_t n = 0;
    for (int i = 0; i < 2; i++) { /* the first chooses products, too */
        dev_wait();
        n = -kernels_run();
        weft_k_layer_backward_cuda(0, s, &d.w, &b.b, x_, saved, dx_, d.grad,
                                   d.grad_norms, backward);
        dev_wait();
        n += kernels_run();
    }
    require_products();
    void *dev[] = {x_, y_, dx_, saved, forward, backward};
    for (size_t i = 0; i < WEFT_COUNT(dev); i++)
        dev_free(dev[i]);
    weft_free(x);
    device_release(&d, f);
    return n;
}

/* Beside its products, of which each block has one of q, k and v, of o, of gate
 * and up, of down: rows with the first norm; q, k and v with rotation and
 * cache; attention and its join; the sum with the second norm; SwiGLU; the last
 * sum. */
static int64_t decode_launches(int32_t n_blocks)
{
    return 4 * n_blocks + 7;
}

/* Each block has 8 products, for gradients of weights and of inputs, and
 * SwiGLU; besides: the rounded gradient with the second norm; rows; three of
 * attention; rotation with rounding; the first norm; biases; two for each norm
 * backwards. Gradients of the layer's and of the MLP's input are sums over
 * several blocks, which come in pieces of as many rows as scratch has room for:
 * a launch more for each, and the products' again. A KV head that several
 * blocks read has its sum and its zero in the other one, for dk and for dv. */
static int64_t backward_launches(int32_t n_blocks, int32_t n_pieces,
                                 int32_t n_shared)
{
    int64_t sums = n_blocks > 1 ? n_pieces + (n_pieces - 1) * n_blocks : 0;
    return 9 * n_blocks + 12 + 2 * sums + 4 * n_shared;
}

static void count_launches(void)
{
    for (int32_t n_blocks = 1; n_blocks <= 4; n_blocks *= 2) {
        struct fixture f;
        init_qwen(&f, n_blocks, 4);
        int64_t n = decode_step(&f), few = backward_step(&f, 11);
        int64_t many = backward_step(&f, 70);
        fixture_release(&f);
        init_qwen(&f, n_blocks, 2);
        int64_t shared = backward_step(&f, 11);
        fixture_release(&f);
        if (!ARE_COUNTED)
            continue;
        /* here a piece is 16 KiB of what blocks have: rows of 64 numbers */
        int32_t n_pieces = (73 + 64 / n_blocks - 1) / (64 / n_blocks);
        CHECK_INT(n, decode_launches(n_blocks));
        CHECK_INT(few, backward_launches(n_blocks, 1, 0));
        CHECK_INT(many, backward_launches(n_blocks, n_pieces, 0));
        CHECK_INT(shared,
                  backward_launches(n_blocks, 1, n_blocks > 2 ? 2 : 0));
    }
}

static void test_launches_of_a_layer(void)
{
    each_order(count_launches);
}

/* ---- Other products -------------------------------------------------- */

/* By a library whose sums have another order, as those of cuBLASLt. */
static void test_layers_of_other_sums(void)
{
    setenv("WEFT_CARDS_SUMS", "own", 1);
    one_kind(2, WEFT_F32);
    one_kind(0, WEFT_BF16);
    unsetenv("WEFT_CARDS_SUMS");
}

WEFT_CUDA_TESTS("kern/layer_cuda", {"test_layers", test_layers},
                {"test_decode", test_decode},
                {"test_launches_of_a_layer", test_launches_of_a_layer},
                {"test_layers_of_other_sums", test_layers_of_other_sums})
