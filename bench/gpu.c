/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of a GPU on models of Qwen2.5's shapes, against what the card can do,
 * measured in the same run: a training step, prefill, decode, AdamW.
 *
 *     bench/gpu [--shape 0.5b|1.5b|7b|tiny] [--seconds S]
 *
 * Without --shape: the first three. Weights are made up; of a large model as
 * many layers as fit beside their optimizer states. "share" is of the probed
 * bf16 product, or of the bandwidth that a copy has, or, for the head, of the
 * step. Times are the best of S seconds (1) of repetitions, by events. With
 * tests/cuda's executor (make check) it runs on the CPU, where only the table's
 * form means something.
 */
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gpu_decode.h"

/* ---- The card's own probes --------------------------------------------- */

struct product {
    struct weft_k_gemm_args args;
    void *scratch;
};

static void run_product(void *arg)
{
    const struct product *p = arg;
    weft_k_gemm_cuda(NULL, &p->args, p->scratch);
}

struct copy {
    void *to, *from;
    size_t n_bytes;
};

static void run_copy(void *arg)
{
    const struct copy *c = arg;
    weft_k_copy_cuda(NULL, c->to, c->from, c->n_bytes);
}

static void probe(bool tiny)
{
    int64_t n = tiny ? 64 : 8192;
    size_t bytes = tiny ? 1 << 16 : (size_t) 1 << 30;
    struct product p = {.args = {.dtype = WEFT_BF16,
                                 .y_dtype = WEFT_BF16,
                                 .m = n,
                                 .n = n,
                                 .n_blocks = 1,
                                 .ldx = {n},
                                 .k = {n},
                                 .ldy = n}};
    struct copy c = {device(bytes), device(bytes), bytes};
    void *x = device((size_t) (n * n) * 2), *w = device((size_t) (n * n) * 2);
    p.args.x[0] = x;
    p.args.w[0] = w;
    p.args.y = device((size_t) (n * n) * 2);
    p.scratch = device(weft_k_gemm_scratch_bytes_cuda(&p.args));
    double s = best_s(run_product, &p), flop = 2.0 * pow((double) n, 3);
    peak_flop = flop / s;
    row("", "probe: bf16 product", s, flop, 1e12, "TFLOP/s", peak_flop, "");
    s = best_s(run_copy, &c);
    peak_bytes = 2.0 * (double) bytes / s;
    row("", "probe: copy, read and written", s, 2.0 * (double) bytes, 1e9,
        "GB/s", peak_bytes, "");
    release_to(0);
}

/* ---- A training step ---------------------------------------------------- */

static void run_head(void *arg)
{
    struct model *m = arg;
    float *grad[WEFT_MAX_BLOCKS] = {NULL}, **c = m->column;
    for (int32_t b = 0; b < m->s.n_blocks; b++)
        grad[b] = m->head[b].grad;
    weft_k_head_logprob_cuda(NULL, &m->s, &m->h, m->x[m->n_layers],
                             &m->targets, 1, c[0], c[1], c[2], m->scratch);
    weft_k_head_backward_cuda(NULL, &m->s, &m->h, m->batch.n_rows,
                              m->x[m->n_layers], &m->targets, m->batch.n_runs,
                              m->run_targets, 1, c[2], c[1], c[3], NULL,
                              m->dx, grad, m->final.grad, m->scratch);
}

static void update(struct model *m, struct tile *t)
{
    const struct weft_k_adamw o = {1e-6f, 0.9f, 0.999f, 1e-8f, 0, 1};
    struct weft_range all = {0, weft_layout_n_chunks(&t->layout)};
    weft_k_adamw_cuda(NULL, &o, t->n, 1, t->grad, t->opt, t->opt + t->n,
                      t->opt + 2 * t->n);
    weft_k_publish_cuda(NULL, &t->layout, m->s.dtype, all, t->opt, t->fwd);
    weft_k_transpose_cuda(NULL, &t->layout, m->s.dtype, t->fwd, t->bwd);
    weft_k_zero_cuda(NULL, t->grad, t->n * sizeof(float));
}

static void run_step(void *arg)
{
    struct model *m = arg;
    const struct weft_shape *s = &m->s;
    float *grad[WEFT_MAX_BLOCKS] = {NULL};
    weft_k_embed_cuda(NULL, s, m->table, m->batch.n_rows, m->token, m->x[0]);
    for (int32_t l = 0; l < m->n_layers; l++)
        weft_k_layer_forward_cuda(NULL, s, &m->w[l], l, &m->batch, NULL,
                                  m->x[l], m->x[l + 1], m->saved[l],
                                  m->scratch);
    run_head(m);
    for (int32_t l = m->n_layers - 1; l >= 0; l--) {
        for (int32_t b = 0; b < s->n_blocks; b++)
            grad[b] = m->layer[l][b].grad;
        weft_k_layer_backward_cuda(NULL, s, &m->w[l], &m->batch, m->x[l],
                                   m->saved[l], m->dx, grad, m->norms[l].grad,
                                   m->scratch);
    }
    for (int32_t b = 0; b < s->n_blocks; b++)
        grad[b] = m->embed[b].grad;
    weft_k_embed_backward_cuda(NULL, s, m->batch.n_rows, m->token, m->dx,
                               grad);
    for (int32_t b = 0; b < s->n_blocks; b++) {
        for (int32_t l = 0; l < m->n_layers; l++)
            update(m, &m->layer[l][b]);
        update(m, &m->head[b]);
    }
}

static void run_adamw(void *arg)
{
    struct model *m = arg;
    const struct weft_k_adamw o = {1e-6f, 0.9f, 0.999f, 1e-8f, 0, 1};
    for (int32_t b = 0; b < m->s.n_blocks; b++) {
        struct tile *t = &m->head[b];
        weft_k_adamw_cuda(NULL, &o, t->n, 1, t->grad, t->opt, t->opt + t->n,
                          t->opt + 2 * t->n);
    }
}

static void train(struct model *m, int32_t n_runs, int32_t n)
{
    const struct weft_shape *s = &m->s;
    char what[64];
    size_t before = n_held;
    batch_init(m, n_runs, n, 0);
    double rows = m->batch.n_rows, layers = m->n_layers;
    size_t x = (size_t) (m->batch.n_rows * s->hidden) * sizeof(float);
    for (int32_t l = 0; l <= m->n_layers; l++)
        m->x[l] = device(x);
    m->dx = device(x);
    for (int32_t l = 0; l < m->n_layers; l++)
        m->saved[l] = device(weft_k_layer_saved_bytes(s, m->batch.n_rows));
    for (int i = 0; i < 5; i++)
        m->column[i] = device((size_t) m->batch.n_rows * sizeof(float));
    double flop = rows
                * (layers
                       * (6 * layer_elements(s) + 3.5 * attention_flop(s, n))
                   + 6 * head_elements(s));
    double step = best_s(run_step, m), head = best_s(run_head, m);
    snprintf(what, sizeof what, "training step, %d layers, %.0f tokens",
             m->n_layers, rows);
    row(m->name, what, step, flop, 1e12, "TFLOP/s", peak_flop, ">= 50");
    /* of small models it has more of the operations than that */
    row(m->name, "head and loss, share of the step", head,
        6 * rows * head_elements(s), 1e12, "TFLOP/s",
        6 * rows * head_elements(s) * step / (head * head),
        strcmp(m->name, "7b") == 0 ? "<= 10" : "");
    double n_opt = 0;
    for (int32_t b = 0; b < s->n_blocks; b++)
        n_opt += (double) m->head[b].n;
    row(m->name, "AdamW, 28 bytes a parameter", best_s(run_adamw, m),
        28 * n_opt, 1e9, "GB/s", peak_bytes, ">= 85");
    release_to(before);
}

/* ---- Shapes ------------------------------------------------------------- */

/* Qwen2.5's (config.json of the models of that size on Hugging Face). */
static const struct {
    const char *name;
    struct weft_shape s;
    int32_t n_texts, n, context, batch[3];
} shapes[] = {
    {"0.5b",
     {.hidden = 896,
      .n_layers = 24,
      .n_heads = 14,
      .n_kv_heads = 2,
      .head_dim = 64,
      .intermediate = 4864,
      .vocab = 151936},
     4,
     1024,
     512,
     {1, 32, 256}},
    {"1.5b",
     {.hidden = 1536,
      .n_layers = 28,
      .n_heads = 12,
      .n_kv_heads = 2,
      .head_dim = 128,
      .intermediate = 8960,
      .vocab = 151936},
     4,
     1024,
     512,
     {1, 32, 256}},
    {"7b",
     {.hidden = 3584,
      .n_layers = 28,
      .n_heads = 28,
      .n_kv_heads = 4,
      .head_dim = 128,
      .intermediate = 18944,
      .vocab = 152064},
     4,
     1024,
     512,
     {1, 32, 256}},
    {"tiny",
     {.hidden = 32,
      .n_layers = 2,
      .n_heads = 4,
      .n_kv_heads = 2,
      .head_dim = 8,
      .intermediate = 64,
      .vocab = 160},
     2,
     16,
     8,
     {1, 2, 3}},
};

/* Layers that fit: a matrix element has 4 bytes of published weights, 4 of
 * gradient and 12 of optimizer state; a row what its layer saves. The head has
 * as much, the embedding's table and gradient 6 bytes; the rest is what is left
 * of 85 %. */
static int32_t layers_that_fit(const struct weft_shape *s, int32_t n_rows)
{
    struct cudaDeviceProp card;
    must(cudaGetDeviceProperties(&card, 0), "the card");
    double left = 0.85 * (double) card.totalGlobalMem - 28 * head_elements(s);
    double layer = 20 * layer_elements(s)
                 + (double) weft_k_layer_saved_bytes(s, n_rows)
                 + 4.0 * n_rows * s->hidden;
    double n = floor(left / layer);
    return n < 1 ? 0 : n < s->n_layers ? (int32_t) n : s->n_layers;
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void scratch_init(struct model *m, int32_t n_texts, int32_t n)
{
    const struct weft_shape *s = &m->s;
    int32_t n_rows = n_texts * n;
    for (int32_t i = 0; i < MOST_RUNS; i++)
        m->run[i] = (struct weft_k_run){i, 0, i < n_texts ? n : 1};
    struct weft_k_batch few = {n_rows, n_texts, m->run, NULL, NULL};
    struct weft_k_batch many = {MOST_RUNS, MOST_RUNS, m->run + n_texts, NULL,
                                NULL};
    struct weft_range all = weft_all_blocks(s);
    many.n_runs = many.n_rows = MOST_RUNS - n_texts;
    size_t bytes = weft_k_layer_backward_scratch_bytes_cuda(s, &few, false);
    bytes = most(bytes, weft_k_part_forward_scratch_bytes_cuda(s, all, &few));
    bytes = most(bytes,
                 2 * weft_k_part_forward_scratch_bytes_cuda(s, all, &many));
    bytes = most(bytes, weft_k_head_scratch_bytes_cuda(s, n_rows, true));
    bytes = most(bytes, weft_k_head_scratch_bytes_cuda(s, n_rows, false));
    m->scratch = device(bytes);
}

static void bench(size_t i)
{
    struct weft_err err;
    struct model *m = weft_alloc(1, sizeof *m);
    int32_t n_rows = shapes[i].n_texts * shapes[i].n;
    m->name = shapes[i].name;
    m->s = shapes[i].s;
    m->s.max_positions = 4096;
    m->s.rms_eps = 1e-6f;
    m->s.rope_theta = 1e6f;
    m->s.qkv_bias = true;
    m->s.dtype = WEFT_BF16;
    must_err(weft_shape_partition(&m->s, 0, &err), &err);
    m->n_layers = layers_that_fit(&m->s, n_rows);
    if (m->n_layers == 0) {
        printf("| %-5s | not one layer fits into this GPU's memory\n",
               m->name);
        weft_free(m);
        return;
    }
    must_err(weft_k_choose_products_cuda(&m->s, true, true, &err), &err);
    model_init(m);
    scratch_init(m, shapes[i].n_texts, shapes[i].n);
    train(m, shapes[i].n_texts, shapes[i].n);
    prefill(m, shapes[i].n_texts, shapes[i].n);
    for (int k = 0; k < 3; k++)
        decode(m, shapes[i].batch[k], shapes[i].context);
    release_to(0);
    weft_free(m);
}

static const char *no_card(void)
{
    int n = 0;
    int driver = 0;
    cudaError_t rc = cudaGetDeviceCount(&n);
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0)
        return "there is no CUDA driver";
    return rc != cudaSuccess ? cudaGetErrorString(rc)
         : n == 0            ? "there is none"
                             : NULL;
}

int main(int argc, char **argv)
{
    const char *only = NULL, *why = no_card();
    bool known = false;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--shape") == 0)
            only = argv[i + 1];
        else if (strcmp(argv[i], "--seconds") == 0)
            seconds = atof(argv[i + 1]);
    }
    for (size_t i = 0; i < WEFT_COUNT(shapes); i++)
        known |= !only || strcmp(only, shapes[i].name) == 0;
    if (!known) {
        fprintf(stderr, "bench/gpu: --shape is 0.5b, 1.5b, 7b or tiny\n");
        return 2;
    }
    if (why) {
        printf("bench/gpu: nothing is measured without a GPU: %s\n", why);
        return 77;
    }
    struct cudaDeviceProp card;
    must(cudaGetDeviceProperties(&card, 0), "the card");
    printf("%s, %.0f GiB, compute capability %d.%d; bf16\n\n", card.name,
           (double) card.totalGlobalMem / (1 << 30), card.major, card.minor);
    printf("| shape | %-38s | %12s | %16s | share   | bar   |        |\n"
           "|---|---|---|---|---|---|---|\n",
           "what", "time", "rate");
    probe(only && strcmp(only, "tiny") == 0);
    for (size_t i = 0; i < WEFT_COUNT(shapes); i++)
        if (only ? strcmp(only, shapes[i].name) == 0
                 : strcmp("tiny", shapes[i].name) != 0)
            bench(i);
    return 0;
}
