/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefill, and decode as the runtime has it (codelets/gen_chunk_gpu.c): a
 * chunk's steps are one launch of a CUDA graph, which is a loop of one step's
 * kernels; each round takes what was planned for it from pinned memory, and the
 * tokens of the round before. Beside it the same graph without a loop, a launch
 * for each step.
 */
#ifndef WEFT_BENCH_GPU_DECODE_H
#define WEFT_BENCH_GPU_DECODE_H

#include "bench/gpu_model.h"

enum { STEPS = 16 }; /* of a chunk: rollout.chunk_tokens */

/* What is planned for a step, in this order; the last is the start of keys of
 * draws, (n, 4). */
struct step_layout {
    size_t token, row, run, at, n_bytes;
};

/* A chunk of decode steps of the model's batch. */
struct chunk {
    struct model *m;
    struct step_layout layout;
    char *plan; /* STEPS of them, pinned */
    char *now;  /* device memory, as all below: the present step's */
    struct weft_k_steps *steps;
    float *logits, *logp, *logps;
    int32_t *token, *tokens;    /* drawn: in a step; in all, (STEPS, n) */
    struct CUstream_st *stream; /* NULL, or what captures */
    uint64_t again;             /* of the loop that is captured */
    struct CUgraphExec_st *loop, *each; /* loop: NULL where CUDA has none */
    int64_t n_nodes;                    /* kernels of a graph */
    double graph_bytes; /* what one takes of the card's memory */
};

/* ---- The cache ---------------------------------------------------------- */

/* Room for n_runs texts of n tokens. */
static inline void cache_init(struct model *m, int32_t n_runs, int32_t n)
{
    int32_t each = (int32_t) weft_ceil_div(n, WEFT_PAGE_TOKENS);
    int32_t *page = weft_alloc((size_t) (n_runs * each), sizeof *page);
    for (int32_t i = 0; page && i < n_runs * each; i++)
        page[i] = i;
    m->kv = (struct weft_k_kv){
        .page_bytes = weft_k_kv_page_bytes(&m->s, m->n_layers),
        .pages_per_slot = each};
    m->kv.arena = device((size_t) (n_runs * each) * m->kv.page_bytes);
    m->kv.page = sent(page, (size_t) (n_runs * each) * sizeof *page);
    weft_free(page);
}

static inline void forward(struct model *m, struct CUstream_st *stream)
{
    weft_k_embed_cuda(stream, &m->s, m->table, m->batch.n_rows,
                      m->batch.token, m->x[0]);
    for (int32_t l = 0; l < m->n_layers; l++)
        weft_k_layer_forward_cuda(stream, &m->s, &m->w[l], l, &m->batch,
                                  &m->kv, m->x[0], m->x[0], NULL, m->scratch);
}

/* ---- Prefill ------------------------------------------------------------ */

static void run_prefill(void *arg)
{
    forward(arg, NULL);
}

static inline void prefill(struct model *m, int32_t n_runs, int32_t n)
{
    const struct weft_shape *s = &m->s;
    char what[64];
    size_t before = n_held;
    cache_init(m, n_runs, n);
    batch_init(m, n_runs, n, 0);
    m->x[0] = device((size_t) (m->batch.n_rows * s->hidden) * sizeof(float));
    double flop = (double) m->batch.n_rows * m->n_layers
                * (2 * layer_elements(s) + attention_flop(s, n));
    snprintf(what, sizeof what, "prefill, %d x %d tokens", n_runs, n);
    row(m->name, what, best_s(run_prefill, m), flop, 1e12, "TFLOP/s",
        peak_flop, ">= 60");
    release_to(before);
}

/* ---- A chunk ------------------------------------------------------------ */

static inline size_t placed(size_t *at, size_t n_bytes)
{
    size_t here = *at;
    *at += (n_bytes + 63) / 64 * 64;
    return here;
}

static inline struct step_layout step_layout(int32_t n)
{
    struct step_layout l = {.n_bytes = 0};
    size_t number = (size_t) n * 4;
    l.token = placed(&l.n_bytes, number);
    l.row = placed(&l.n_bytes, number);
    l.run = placed(&l.n_bytes, (size_t) n * sizeof(struct weft_k_run));
    l.at = placed(&l.n_bytes, 4 * number);
    return l;
}

/* Each text's next row; its token is that of the step before. */
static inline void plan_step(const struct chunk *c, int32_t i,
                             int32_t context)
{
    char *plan = c->plan + (size_t) i * c->layout.n_bytes;
    int32_t n = c->m->batch.n_rows;
    int32_t *token = (void *) (plan + c->layout.token);
    int32_t *of = (void *) (plan + c->layout.row);
    struct weft_k_run *run = (void *) (plan + c->layout.run);
    uint32_t *at = (void *) (plan + c->layout.at);
    for (int32_t j = 0; j < n; j++) {
        token[j] = i ? -1 - ((i - 1) * n + j) : j % c->m->s.vocab;
        of[j] = j;
        run[j] = (struct weft_k_run){j, context + i, 1};
        at[4 * j] = 0;
        at[4 * j + 1] = (uint32_t) j;
        at[4 * j + 2] = (uint32_t) (context + i);
        at[4 * j + 3] = weft_k_row_after(WEFT_K_ROW_IS_OPEN, token[j]);
    }
}

static inline void chunk_init(struct chunk *c, struct model *m, int32_t n,
                              int32_t context)
{
    void *plan = NULL;
    cache_init(m, n, context + STEPS);
    batch_init(m, n, 1, context);
    *c = (struct chunk){.m = m, .layout = step_layout(n)};
    must(cudaMallocHost(&plan, STEPS * c->layout.n_bytes), "pinned memory");
    c->plan = plan;
    memset(c->plan, 0, STEPS * c->layout.n_bytes);
    for (int32_t i = 0; i < STEPS; i++)
        plan_step(c, i, context);
    c->now = device(c->layout.n_bytes);
    c->steps = device(sizeof *c->steps);
    m->x[0] = device((size_t) (n * m->s.hidden) * sizeof(float));
    c->logits = device((size_t) n * (size_t) m->s.vocab * sizeof(float));
    c->token = device((size_t) n * 4);
    c->logp = device((size_t) n * 4);
    c->tokens = device((size_t) (STEPS * n) * 4);
    c->logps = device((size_t) (STEPS * n) * 4);
    m->batch.token = (const void *) (c->now + c->layout.token);
    m->batch.device_run = (const void *) (c->now + c->layout.run);
}

static inline void put_step(const struct chunk *c)
{
    const struct weft_k_sampling sampling = {1, 0, 1, 1};
    struct model *m = c->m;
    int32_t n = m->batch.n_rows;
    const struct weft_k_drawn before = {
        .n_rows = n,
        .n_targets = n,
        .drawn = c->tokens,
        .token = (void *) (c->now + c->layout.token),
        .at = (void *) (c->now + c->layout.at),
        .run = (void *) (c->now + c->layout.run)};
    const struct weft_k_step_drawn drawn = {n,       n,         c->token,
                                            c->logp, c->tokens, c->logps};
    weft_k_step_begin_cuda(c->stream, c->steps, c->layout.n_bytes, c->now);
    weft_k_drawn_tokens_cuda(c->stream, &before);
    forward(m, c->stream);
    weft_k_head_logits_cuda(c->stream, &m->s, weft_all_blocks(&m->s), &m->h,
                            n, (const void *) (c->now + c->layout.row),
                            m->x[0], c->logits, m->scratch);
    weft_k_sample_cuda(c->stream, &m->s, &sampling, 0, NULL, n, c->logits,
                       m->s.vocab, before.at, c->token, c->logp, NULL);
    weft_k_step_end_cuda(c->stream, c->steps, &drawn);
    weft_k_step_again_cuda(c->stream, c->steps, c->again);
}

static inline void begin_chunk(const struct chunk *c)
{
    weft_k_steps_cuda(NULL, c->plan, 0, STEPS, c->steps);
}

static void run_loop(void *arg)
{
    const struct chunk *c = arg;
    begin_chunk(c);
    weft_k_replay_cuda(NULL, c->loop);
}

static void run_each(void *arg)
{
    const struct chunk *c = arg;
    begin_chunk(c);
    for (int32_t i = 0; i < STEPS; i++)
        weft_k_replay_cuda(NULL, c->each);
}

/* NULL: CUDA makes no loops here. */
static inline struct CUgraphExec_st *captured(const struct chunk *c,
                                              bool is_loop, int64_t *n_out)
{
    struct weft_k_capture capture;
    struct chunk to = *c;
    if (!weft_k_capture_cuda(is_loop, &capture)) {
        must(cudaPeekAtLastError(), "a capture");
        return NULL;
    }
    to.stream = capture.stream;
    to.again = capture.again;
    put_step(&to);
    must(cudaPeekAtLastError(), "a capture");
    struct CUgraphExec_st *graph = weft_k_captured_cuda(&capture, INT64_MAX,
                                                        n_out);
    must(cudaPeekAtLastError(), "a graph");
    return graph;
}

static inline size_t free_bytes(void)
{
    size_t free = 0, all;
    must(cudaDeviceSynchronize(), "a decode step");
    must(cudaMemGetInfo(&free, &all), "memory");
    return free;
}

/* As the runtime does: when a step has run without. */
static inline void make_graphs(struct chunk *c)
{
    begin_chunk(c);
    put_step(c);
    size_t before = free_bytes();
    c->each = captured(c, false, &c->n_nodes);
    run_each(c);
    c->graph_bytes = (double) before - (double) free_bytes();
    c->loop = captured(c, true, &c->n_nodes);
}

/* ---- Decode ------------------------------------------------------------- */

/* The runtime reserves 68 KiB for each kernel of a graph. */
static inline void say_graph(const struct chunk *c)
{
    char what[64];
    double kib = c->graph_bytes / 1024 / (double) c->n_nodes;
    snprintf(what, sizeof what, "its CUDA graph, each of %lld kernels",
             (long long) c->n_nodes);
    printf("| %-5s | %-38s | %12s | %8.1f %-7s | %7s | %-5s | %-6s |\n",
           c->m->name, what, "-", kib, "KiB", "-", "<= 68",
           kib <= 68 ? "met" : "missed");
}

/* What is lost by a launch for each step of a chunk, as a share of its time. */
static inline void say_gain(const struct chunk *c, double each, double loop)
{
    printf("| %-5s | %-38s | %9.3f ms | %8s %-7s | %5.1f %% | %-5s | %-6s "
           "|\n",
           c->m->name, "one launch for the chunk's steps saves",
           1e3 * (each - loop), "-", "", 100 * (1 - loop / each), "-", "");
}

static inline void decode(struct model *m, int32_t batch, int32_t context)
{
    const struct weft_shape *s = &m->s;
    struct chunk c;
    char what[64];
    double element = (double) weft_dtype_bytes(s->dtype);
    double keys = context + (STEPS + 1) / 2.0;
    double kv = 2.0 * s->n_kv_heads * s->head_dim * keys * batch;
    double bytes = element
                 * (m->n_layers * (layer_elements(s) + kv)
                    + head_elements(s));
    size_t before = n_held;
    chunk_init(&c, m, batch, context);
    make_graphs(&c);
    double each = best_s(run_each, &c) / STEPS;
    double loop = c.loop ? best_s(run_loop, &c) / STEPS : each;
    snprintf(what, sizeof what, "decode, batch %d, %d tokens before", batch,
             context);
    row(m->name, what, loop, bytes, 1e9, "GB/s", peak_bytes, ">= 75");
    if (c.loop)
        say_gain(&c, each, loop);
    else
        printf("| %-5s | CUDA makes no graph of a loop here: a launch for "
               "each step\n",
               m->name);
    say_graph(&c);
    weft_k_graph_free_cuda(c.loop);
    weft_k_graph_free_cuda(c.each);
    must(cudaFreeHost(c.plan), "pinned memory");
    m->batch.device_run = NULL;
    release_to(before);
}

#endif
