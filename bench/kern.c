/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels on one core against what the core can do, measured in the same
 * run: independent fused multiply-adds (f32) or dot products (bf16) in
 * registers, and reading memory. Times are this thread's own and the best of
 * several, since other programs can only make them longer.
 *
 *     bench/kern [--json] [--isa NAME] [--seconds S]
 *
 * `bar` is the share of the probe that a plain packed kernel of intrinsics
 * reached on another machine (Zen 4); "share" is ours.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "kern/kern.h"
#include "kern/losses.h"

#include "probe.h"

/* One measurement, and what it is compared with. */
struct result {
    const char *what;
    enum weft_dtype dtype;
    int64_t m, n, k;
    double seconds;
    double flop, bytes; /* of one run */
    double bar;         /* share of the flop probe, or of the bytes probe */
    bool by_bytes;
};

struct bench {
    double seconds; /* for one measurement */
    bool json, first;
    double flop_probe[2], read_probe, update_probe; /* per second */
};

/* Something to measure. */
typedef void (*run_fn)(void *arg);

static double thread_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

static double best_time(const struct bench *b, run_fn run, void *arg)
{
    double best = INFINITY, start = thread_s();
    run(arg);
    for (int i = 0; i < 5 || thread_s() - start < b->seconds; i++) {
        double t0 = thread_s();
        run(arg);
        best = fmin(best, thread_s() - t0);
    }
    return best;
}

static void report(struct bench *b, const struct result *r)
{
    double gflops = r->flop / r->seconds * 1e-9;
    double gbps = r->bytes / r->seconds * 1e-9;
    double probe = r->by_bytes ? (strcmp(r->what, "adamw") ? b->read_probe
                                                           : b->update_probe)
                               : b->flop_probe[r->dtype];
    double share = (r->by_bytes ? gbps : gflops) * 1e9 / probe;
    if (b->json)
        printf("%s\n  {\"op\": \"%s\", \"dtype\": \"%s\", \"m\": %lld, "
               "\"n\": %lld, \"k\": %lld, \"us\": %.2f, \"gflops\": %.2f, "
               "\"gbps\": %.2f, \"of\": \"%s\", \"share\": %.4f, "
               "\"bar\": %.2f}",
               b->first ? "" : ",", r->what, weft_dtype_name(r->dtype),
               (long long) r->m, (long long) r->n, (long long) r->k,
               r->seconds * 1e6, gflops, gbps, r->by_bytes ? "bytes" : "flop",
               share, r->bar);
    else
        printf("%-8s %-4s %5lld %6lld %5lld %10.1f %9.1f %7.1f   %3.0f%% of "
               "%-5s %s%.0f\n",
               r->what, weft_dtype_name(r->dtype), (long long) r->m,
               (long long) r->n, (long long) r->k, r->seconds * 1e6, gflops,
               gbps, share * 100, r->by_bytes ? "bytes" : "flop",
               r->bar > 0 ? "bar " : "", r->bar * 100);
    b->first = false;
    fflush(stdout);
}

static void *numbers(enum weft_dtype dtype, int64_t n)
{
    char *p = weft_alloc_aligned((size_t) n, weft_dtype_bytes(dtype));
    if (!p) {
        fprintf(stderr, "bench/kern: out of memory\n");
        exit(1);
    }
    for (int64_t i = 0; i < n; i++) {
        float x = (float) (i * 2654435761u % 2048) / 1024.0f - 1;
        uint16_t h = weft_f32_to_bf16(x);
        if (dtype == WEFT_F32)
            memcpy(p + i * 4, &x, sizeof x);
        else
            memcpy(p + i * 2, &h, sizeof h);
    }
    return p;
}

static void run_gemm(void *arg)
{
    weft_k_gemm(arg);
}

/* blocks > 1: k in so many blocks, a residual, and y in `dtype`. */
static void bench_gemm(struct bench *b, enum weft_dtype dtype, int32_t blocks,
                       int64_t m, int64_t n, int64_t k, double bar)
{
    int64_t size = (int64_t) weft_dtype_bytes(dtype);
    void *x = numbers(dtype, m * k), *w = numbers(dtype, n * k);
    float *y = numbers(WEFT_F32, m * n);
    float *out = numbers(WEFT_F32, m * n);
    struct weft_k_gemm_args a = {
        .dtype = dtype,
        .y_dtype = blocks > 1 ? dtype : WEFT_F32,
        .m = m,
        .n = n,
        .n_blocks = blocks,
        .residual = blocks > 1 ? y : NULL,
        .y = out,
        .ldy = n,
    };
    for (int32_t i = 0; i < blocks; i++) {
        a.k[i] = k / blocks;
        a.ldx[i] = k;
        a.x[i] = (char *) x + i * a.k[i] * size;
        a.w[i] = (char *) w + i * a.k[i] * n * size;
    }
    struct result r = {
        .what = blocks > 1 ? "gemm T=8" : "gemm",
        .dtype = dtype,
        .m = m,
        .n = n,
        .k = k,
        .seconds = best_time(b, run_gemm, &a),
        .flop = 2.0 * (double) (m * n * k),
        .bytes = (double) ((n + m) * k * size + 4 * m * n),
        .bar = bar,
        .by_bytes = m == 1,
    };
    report(b, &r);
    weft_free(x);
    weft_free(w);
    weft_free(y);
    weft_free(out);
}

static void run_dw(void *arg)
{
    weft_k_gemm_dw(arg);
}

static void bench_dw(struct bench *b, enum weft_dtype dtype, int32_t m,
                     int64_t n, int64_t k)
{
    const int32_t runs[3] = {m / 3, m / 3, m - 2 * (m / 3)};
    struct weft_k_gemm_dw_args a = {
        .dtype = dtype,
        .n = n,
        .k = k,
        .n_runs = 3,
        .run_rows = runs,
        .dy = numbers(dtype, m * n),
        .lddy = n,
        .x = numbers(dtype, m * k),
        .ldx = k,
        .grad = numbers(WEFT_F32, n * k),
        .scratch = weft_alloc_aligned(
            weft_k_gemm_dw_scratch_bytes(dtype, m, 3, n, k), 1),
    };
    struct result r = {
        .what = "gemm_dw",
        .dtype = dtype,
        .m = m,
        .n = n,
        .k = k,
        .seconds = best_time(b, run_dw, &a),
        .flop = 2.0 * (double) (m * n * k),
        .bytes = (double) ((n + k) * m * (int64_t) weft_dtype_bytes(dtype)
                           + 8 * n * k),
    };
    report(b, &r);
    weft_free((void *) a.dy);
    weft_free((void *) a.x);
    weft_free(a.grad);
    weft_free(a.scratch);
}

/* A flat vector as long as the optimizer likes it. */
struct flat {
    int64_t n;
    float *grad, *master, *m, *v;
    struct weft_layout layout;
    enum weft_dtype dtype;
    void *fwd, *bwd;
};

static void run_adamw(void *arg)
{
    static const struct weft_k_adamw o = {1e-3f, 0.9f, 0.99f, 1e-8f, 0.1f, 3};
    struct flat *f = arg;
    weft_k_adamw(&o, (size_t) f->n, 0.5f, f->grad, f->master, f->m, f->v);
}

static void run_publish(void *arg)
{
    struct flat *f = arg;
    weft_k_publish(&f->layout, f->dtype, f->master, f->fwd, f->bwd);
}

/* One layer of 110M parameters in a single block. */
static void bench_flat(struct bench *b, enum weft_dtype dtype, bool adamw)
{
    struct weft_shape shape = {
        .hidden = 768,
        .n_layers = 1,
        .n_heads = 12,
        .n_kv_heads = 12,
        .head_dim = 64,
        .intermediate = 2048,
        .vocab = 32000,
        .dtype = dtype,
    };
    struct flat f = {.dtype = dtype};
    if (weft_shape_partition(&shape, 1, NULL) != 0)
        exit(1);
    weft_layout_get(&shape, WEFT_TILE_LAYER, 0, &f.layout);
    f.n = (int64_t) f.layout.n_flat * (adamw ? 2 : 1);
    f.master = numbers(WEFT_F32, f.n);
    if (adamw) {
        f.grad = numbers(WEFT_F32, f.n);
        f.m = numbers(WEFT_F32, f.n);
        f.v = weft_alloc_aligned((size_t) f.n, sizeof(float));
    } else {
        f.fwd = weft_alloc_aligned(f.layout.fwd_bytes, 1);
        f.bwd = weft_alloc_aligned(f.layout.bwd_bytes, 1);
    }
    struct result r = {
        .what = adamw ? "adamw" : "publish",
        .dtype = dtype,
        .n = f.n,
        .by_bytes = true,
        .bar = adamw ? 0.85 : 0,
        .seconds = best_time(b, adamw ? run_adamw : run_publish, &f),
        .bytes = adamw
                   ? 28.0 * (double) f.n
                   : 4.0 * (double) f.n
                         + (double) (f.layout.fwd_bytes + f.layout.bwd_bytes),
    };
    report(b, &r);
    weft_free(f.master);
    weft_free(f.grad);
    weft_free(f.m);
    weft_free(f.v);
    weft_free(f.fwd);
    weft_free(f.bwd);
}

static void probe_flop_f32(void *arg)
{
    (void) arg;
    probe_flop(WEFT_F32);
}

static void probe_flop_bf16(void *arg)
{
    (void) arg;
    probe_flop(WEFT_BF16);
}

/* Buffers far beyond every cache. */
enum { PROBE_FLOATS = 24 << 20 };

static void probe_read_all(void *arg)
{
    probe_read(arg, PROBE_FLOATS);
}

static void probe_update_all(void *arg)
{
    probe_update(arg, PROBE_FLOATS / 4);
}

static void measure_probes(struct bench *b)
{
    float *buffer = numbers(WEFT_F32, PROBE_FLOATS);
    b->flop_probe[WEFT_F32] = probe_flop(WEFT_F32)
                            / best_time(b, probe_flop_f32, NULL);
    b->flop_probe[WEFT_BF16] = probe_flop(WEFT_BF16)
                             / best_time(b, probe_flop_bf16, NULL);
    b->read_probe = 4.0 * PROBE_FLOATS / best_time(b, probe_read_all, buffer);
    b->update_probe = 7.0 * PROBE_FLOATS
                    / best_time(b, probe_update_all, buffer);
    weft_free(buffer);
    const char *isa = weft_k_isa_name(weft_k_isa());
    if (b->json)
        printf("{\"isa\": \"%s\", \"probe\": {\"f32_gflops\": %.2f, "
               "\"bf16_gflops\": %.2f, \"read_gbps\": %.2f, "
               "\"adamw_gbps\": %.2f},\n \"results\": [",
               isa, b->flop_probe[0] * 1e-9, b->flop_probe[1] * 1e-9,
               b->read_probe * 1e-9, b->update_probe * 1e-9);
    else
        printf("%s: %.0f GFLOP/s f32, %.0f GFLOP/s bf16, reads %.1f GB/s, "
               "updates %.1f GB/s\n\n%-8s %-4s %5s %6s %5s %10s %9s %7s   "
               "share\n",
               isa, b->flop_probe[0] * 1e-9, b->flop_probe[1] * 1e-9,
               b->read_probe * 1e-9, b->update_probe * 1e-9, "op", "type",
               "M", "N", "K", "us", "GFLOP/s", "GB/s");
}

static void measure_all(struct bench *b)
{
    /* Bars: shares of 117 and 235 GFLOP/s, or of 33 GB/s. */
    static const struct {
        int64_t m, n, k;
        double bar[2];
    } sizes[] = {
        {256, 768, 768, {0.93, 0.94}},  {256, 2048, 2048, {0.83, 0.83}},
        {128, 3072, 768, {0.94, 0.90}}, {32, 3072, 768, {0.94, 0.90}},
        {8, 3072, 768, {0.76, 0.67}},   {4, 3072, 768, {0, 0}},
        {1, 3072, 768, {0, 0}},         {1, 32000, 768, {0.91, 0.94}},
    };
    for (int d = 0; d < 2; d++) {
        enum weft_dtype dtype = d ? WEFT_BF16 : WEFT_F32;
        for (size_t i = 0; i < WEFT_COUNT(sizes); i++)
            bench_gemm(b, dtype, 1, sizes[i].m, sizes[i].n, sizes[i].k,
                       sizes[i].bar[d]);
        bench_gemm(b, dtype, 8, 256, 768, 768, 0);
        bench_gemm(b, dtype, 8, 256, 768, 2048, 0);
        bench_gemm(b, dtype, 8, 8, 768, 2048, 0);
        bench_dw(b, dtype, 512, 768, 768);
        bench_dw(b, dtype, 512, 2048, 2048);
        bench_flat(b, dtype, false);
    }
    bench_flat(b, WEFT_F32, true);
}

int main(int argc, char **argv)
{
    struct bench b = {.seconds = 0.3, .first = true};
    struct weft_err err = {0};
    const char *isa = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            b.json = true;
        else if (strcmp(argv[i], "--isa") == 0 && i + 1 < argc)
            isa = argv[++i];
        else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            b.seconds = atof(argv[++i]);
        else {
            fprintf(stderr, "usage: kern [--json] [--isa NAME] "
                            "[--seconds S]\n");
            return 2;
        }
    }
    if (weft_k_init(isa, &err) != 0) {
        fprintf(stderr, "bench/kern: %s\n", err.text);
        return 1;
    }
    measure_probes(&b);
    measure_all(&b);
    if (b.json)
        printf("\n]}\n");
    return 0;
}
