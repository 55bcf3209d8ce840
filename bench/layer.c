/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole decoder layers on one core, of the 110M model (hidden 768, 12 heads,
 * MLP 2048), against what the core can do, measured in the same run: a
 * micro-batch of two samples of 512 tokens forward and backward, and decode
 * steps over 512 cached tokens. The layers' weights do not fit into a cache.
 *
 *     bench/layer [--isa NAME] [--blocks T] [--heads N] [--head-dim D]
 *                 [--seconds S]
 *
 * 12 heads of 64 unless told otherwise; T blocks divide them, so that 32 need
 * --heads 32 --head-dim 32, say.
 *
 * "share" is of the f32 multiply-add or bf16 dot product probe, and for
 * decode of the reading probe; the attention of one head, all in f32, is of
 * the f32 probe.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "kern/kern.h"
#include "kern/rows.h"

#include "probe.h"

enum {
    LAYERS = 4,
    TOKENS = 512,
    SAMPLES = 2,
    SLOTS = 32,
    PROBE_FLOATS = 24 << 20
};

static double seconds = 0.5;
static int32_t n_blocks, n_heads = 12, head_dim = 64;

static double thread_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

static double best_time(void (*run)(void *), void *arg)
{
    double best = INFINITY, start = thread_s();
    run(arg);
    for (int i = 0; i < 3 || thread_s() - start < seconds; i++) {
        double t0 = thread_s();
        run(arg);
        best = fmin(best, thread_s() - t0);
    }
    return best;
}

static void *alloc(size_t bytes)
{
    void *p = weft_alloc_aligned(bytes, 1);
    if (!p) {
        fprintf(stderr, "bench/layer: out of memory\n");
        exit(1);
    }
    return p;
}

static float *numbers(size_t n, float size)
{
    float *x = alloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = size * ((float) (i * 2654435761u % 2048) / 1024.0f - 1);
    return x;
}

struct bench {
    struct weft_shape s;
    struct weft_k_layer w[LAYERS];
    int32_t layer; /* the next one */
    struct weft_k_batch batch;
    struct weft_k_run run[SLOTS];
    struct weft_k_kv kv;
    float *x, *y, *dx, *grad[WEFT_MAX_BLOCKS], *grad_norms;
    void *saved, *scratch;
};

static void make_weights(struct bench *b)
{
    struct weft_layout l;
    weft_layout_get(&b->s, WEFT_TILE_NORMS, 0, &l);
    float *norms = numbers(l.n_flat, 1);
    b->grad_norms = alloc(l.n_flat * sizeof(float));
    for (int32_t i = 0; i < LAYERS; i++)
        b->w[i].norms = norms;
    for (int32_t t = 0; t < b->s.n_blocks; t++) {
        weft_layout_get(&b->s, WEFT_TILE_LAYER, t, &l);
        float *master = numbers(l.n_flat, 0.04f);
        b->grad[t] = alloc(l.n_flat * sizeof(float));
        for (int32_t i = 0; i < LAYERS; i++) {
            void *fwd = alloc(l.fwd_bytes), *bwd = alloc(l.bwd_bytes);
            weft_k_publish(&l, b->s.dtype, master, fwd, bwd);
            b->w[i].fwd[t] = fwd;
            b->w[i].bwd[t] = bwd;
        }
        weft_free(master);
    }
}

static void run_forward(void *arg)
{
    struct bench *b = arg;
    weft_k_layer_forward(&b->s, &b->w[b->layer], b->layer, &b->batch,
                         b->kv.arena ? &b->kv : NULL, b->x, b->y, b->saved,
                         b->scratch);
    b->layer = (b->layer + 1) % LAYERS;
}

static void run_backward(void *arg)
{
    struct bench *b = arg;
    memcpy(b->dx, b->x,
           (size_t) (b->batch.n_rows * b->s.hidden) * sizeof *b->dx);
    weft_k_layer_backward(&b->s, &b->w[b->layer], &b->batch, b->x, b->saved,
                          b->dx, b->grad, b->grad_norms, b->scratch);
}

static void report(const char *what, enum weft_dtype dtype, double time_s,
                   double work, double probe, const char *unit)
{
    printf("%-22s %-4s %10.2f ms %8.1f G%s/s   %3.0f%%\n", what,
           weft_dtype_name(dtype), time_s * 1e3, work / time_s * 1e-9, unit,
           work / time_s / probe * 100);
    fflush(stdout);
}

/* Products of one token, and of attention over n keys. */
static double matrix_flop(const struct weft_shape *s)
{
    double q = (double) s->n_heads * s->head_dim;
    return 2.0 * s->hidden * (4.0 * q + 3.0 * s->intermediate);
}

static void bench_training(struct bench *b, double probe)
{
    double rows = SAMPLES * TOKENS;
    double q = (double) b->s.n_heads * b->s.head_dim;
    double attention = 4 * q * (TOKENS + 1) / 2;
    b->batch = (struct weft_k_batch){
        .n_rows = SAMPLES * TOKENS, .n_runs = SAMPLES, .run = b->run};
    for (int i = 0; i < SAMPLES; i++)
        b->run[i] = (struct weft_k_run){.n = TOKENS};
    size_t n = (size_t) (b->batch.n_rows * b->s.hidden);
    b->x = numbers(n, 1);
    b->y = alloc(n * sizeof(float));
    b->dx = alloc(n * sizeof(float));
    b->saved = alloc(weft_k_layer_saved_bytes(&b->s, b->batch.n_rows));
    size_t f = weft_k_layer_forward_scratch_bytes(&b->s, &b->batch);
    size_t g = weft_k_layer_backward_scratch_bytes(&b->s, &b->batch, false);
    b->scratch = alloc(f > g ? f : g);
    double forward = rows * (matrix_flop(&b->s) + attention);
    double backward = rows * (2 * matrix_flop(&b->s) + 2.5 * attention);
    report("forward 2 x 512", b->s.dtype, best_time(run_forward, b), forward,
           probe, "FLOP");
    report("backward", b->s.dtype, best_time(run_backward, b), backward,
           probe, "FLOP");
    weft_free(b->saved);
    b->saved = NULL;
}

static void bench_decode(struct bench *b, int32_t n, double probe)
{
    enum { PER_SLOT = TOKENS / WEFT_PAGE_TOKENS };
    static int32_t page[SLOTS * PER_SLOT];
    for (int32_t i = 0; i < SLOTS * PER_SLOT; i++)
        page[i] = i * 37 % (n * PER_SLOT);
    b->kv = (struct weft_k_kv){
        .page_bytes = weft_k_kv_page_bytes(&b->s, LAYERS),
        .page = page,
        .pages_per_slot = PER_SLOT};
    b->kv.arena = alloc((size_t) (n * PER_SLOT) * b->kv.page_bytes);
    b->batch = (struct weft_k_batch){.n_rows = n, .n_runs = n, .run = b->run};
    for (int32_t i = 0; i < n; i++)
        b->run[i] = (struct weft_k_run){.slot = i, .pos = TOKENS - 1, .n = 1};
    double element = (double) weft_dtype_bytes(b->s.dtype);
    double kv = 2.0 * b->s.n_kv_heads * b->s.head_dim;
    double bytes = element * (matrix_flop(&b->s) / 2 + n * TOKENS * kv);
    char what[32];
    snprintf(what, sizeof what, "decode, batch %d", n);
    report(what, b->s.dtype, best_time(run_forward, b), bytes, probe, "B");
    weft_free(b->kv.arena);
    b->kv.arena = NULL;
}

/* One head of one sample. */
struct head {
    struct weft_attention f;
    struct weft_attention_backward b;
};

static void run_head(void *arg)
{
    weft_row_ops()->attention(&((struct head *) arg)->f);
}

static void run_head_backward(void *arg)
{
    weft_row_ops()->attention_backward(&((struct head *) arg)->b);
}

static void bench_head(int32_t d, double probe)
{
    int64_t n = TOKENS * d;
    float *q = numbers((size_t) n, 1), *k = numbers((size_t) n, 1);
    float *v = numbers((size_t) n, 1), *out = numbers((size_t) n, 1);
    float *dout = numbers((size_t) n, 1), *dq = numbers((size_t) n, 1);
    float *dk = numbers((size_t) n, 1), *dv = numbers((size_t) n, 1);
    float *lse = numbers(TOKENS, 1);
    float *kv = alloc(TOKENS / WEFT_PAGE_TOKENS * weft_attention_segment(d)
                      * sizeof(float));
    weft_row_ops()->pack_kv(WEFT_F32, d, TOKENS, k, v, d, kv);
    float scale = 1 / sqrtf((float) d);
    size_t f = weft_attention_scratch(d);
    size_t g = weft_attention_backward_scratch(d, TOKENS);
    float *scratch = alloc((f > g ? f : g) * sizeof(float));
    struct head h = {
        .f = {.head_dim = d,
              .n_group = 1,
              .n = TOKENS,
              .q = q,
              .ldq = d,
              .kv = (const char *) kv,
              .page_bytes = weft_attention_segment(d) * sizeof(float),
              .scale = scale,
              .out = out,
              .ldo = d,
              .lse = lse,
              .ldlse = 1,
              .scratch = scratch},
        .b = {.head_dim = d,
              .n_group = 1,
              .n = TOKENS,
              .q = q,
              .k = k,
              .v = v,
              .ldqkv = d,
              .out = out,
              .dout = dout,
              .ldo = d,
              .lse = lse,
              .ldlse = 1,
              .scale = scale,
              .dq = dq,
              .dk = dk,
              .dv = dv,
              .ldd = d,
              .scratch = scratch}};
    double flop = 2.0 * (double) n * (TOKENS + 1);
    char what[40];
    snprintf(what, sizeof what, "attention D %d", d);
    report(what, WEFT_F32, best_time(run_head, &h), flop, probe, "FLOP");
    snprintf(what, sizeof what, "attention backward %d", d);
    report(what, WEFT_F32, best_time(run_head_backward, &h), 2.5 * flop,
           probe, "FLOP");
    float *all[] = {q, k, v, out, dout, dq, dk, dv, lse, kv, scratch};
    for (size_t i = 0; i < WEFT_COUNT(all); i++)
        weft_free(all[i]);
}

static void probe_f32(void *arg)
{
    (void) arg;
    probe_flop(WEFT_F32);
}

static void probe_bf16(void *arg)
{
    (void) arg;
    probe_flop(WEFT_BF16);
}

static void probe_reading(void *arg)
{
    probe_read(arg, PROBE_FLOATS);
}

static void probe_updating(void *arg)
{
    probe_update(arg, PROBE_FLOATS / 4);
}

static void bench_dtype(enum weft_dtype dtype, double flop, double read)
{
    struct weft_err err;
    struct bench b = {.s = {.hidden = 768,
                            .n_layers = LAYERS,
                            .n_heads = n_heads,
                            .n_kv_heads = n_heads,
                            .head_dim = head_dim,
                            .intermediate = 2048,
                            .vocab = 32000,
                            .max_positions = TOKENS,
                            .rms_eps = 1e-5f,
                            .rope_theta = 10000,
                            .dtype = dtype}};
    if (weft_shape_partition(&b.s, n_blocks, &err) != 0) {
        fprintf(stderr, "bench/layer: %s\n", err.text);
        exit(1);
    }
    make_weights(&b);
    bench_training(&b, flop);
    bench_decode(&b, 1, read);
    bench_decode(&b, 8, read);
    bench_decode(&b, 32, read);
    for (int32_t t = 0; t < b.s.n_blocks; t++) {
        for (int32_t i = 0; i < LAYERS; i++) {
            weft_free((void *) (uintptr_t) b.w[i].fwd[t]);
            weft_free((void *) (uintptr_t) b.w[i].bwd[t]);
        }
        weft_free(b.grad[t]);
    }
    weft_free((void *) (uintptr_t) b.w[0].norms);
    void *all[] = {b.grad_norms, b.x, b.y, b.dx, b.scratch};
    for (size_t i = 0; i < WEFT_COUNT(all); i++)
        weft_free(all[i]);
}

int main(int argc, char **argv)
{
    struct weft_err err;
    const char *isa = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--isa") == 0 && i + 1 < argc)
            isa = argv[++i];
        else if (strcmp(argv[i], "--blocks") == 0 && i + 1 < argc)
            n_blocks = atoi(argv[++i]);
        else if (strcmp(argv[i], "--heads") == 0 && i + 1 < argc)
            n_heads = atoi(argv[++i]);
        else if (strcmp(argv[i], "--head-dim") == 0 && i + 1 < argc)
            head_dim = atoi(argv[++i]);
        else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            seconds = atof(argv[++i]);
        else {
            fprintf(stderr, "usage: layer [--isa NAME] [--blocks T] [--heads "
                            "N] [--head-dim D] [--seconds S]\n");
            return 2;
        }
    }
    if (weft_k_init(isa, &err) != 0) {
        fprintf(stderr, "bench/layer: %s\n", err.text);
        return 1;
    }
    float *buffer = numbers(PROBE_FLOATS, 1);
    double f32 = probe_flop(WEFT_F32) / best_time(probe_f32, NULL);
    double bf16 = probe_flop(WEFT_BF16) / best_time(probe_bf16, NULL);
    double read = 4.0 * PROBE_FLOATS / best_time(probe_reading, buffer);
    double update = 7.0 * PROBE_FLOATS / best_time(probe_updating, buffer);
    weft_free(buffer);
    printf("%s: %.0f GFLOP/s f32, %.0f GFLOP/s bf16, reads %.1f GB/s, "
           "updates %.1f GB/s\n\n%-22s %-4s %13s %15s share\n",
           weft_k_isa_name(weft_k_isa()), f32 * 1e-9, bf16 * 1e-9,
           read * 1e-9, update * 1e-9, "", "type", "time", "rate");
    bench_head(64, f32);
    bench_head(128, f32);
    bench_dtype(WEFT_F32, f32, read);
    bench_dtype(WEFT_BF16, bf16, read);
    return 0;
}
