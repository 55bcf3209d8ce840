/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole model through the runtime: decode, prefill, training, and what the
 * task graph costs against the same kernels called in a plain loop.
 *
 *     bench/model [--size 110m|1m] [--dtype f32|bf16] [--devices N]
 *                 [--only generate|train]
 *
 * Prints tokens per second: of prompts, and of decoding without their prompts,
 * beside what as many cores as there are devices read of memory in this run.
 * Training is beside what they compute at most in its dtype. "overhead" is the
 * task graph's time over the loop's on one device, minus 1, each the best of
 * its repetitions taken in turn.
 */
#include "tests/train_step.h" /* its arguments are named as bench/model.h's */
#include "bench/model.h"
#include "bench/cores.h"

#include <math.h>

#include "base/clock.h"
#include "codelets/work.h"
#include "graphs/calls/gather.h"
#include "rt/codelet.h"
#include "lm/rollout.h"

/* ---- Generation ------------------------------------------------------- */

/* `batch` samples of n_new tokens, in dp replicas of tp devices. Returns the
 * seconds that they took. */
static double generate(const struct weft_g_model *m, int32_t dp, int32_t tp,
                       int32_t batch, int32_t n_prompt, int32_t n_new,
                       struct weft_rollout_stats *stats)
{
    int32_t instances = dp < batch ? dp : batch;
    struct weft_g_generate gen;
    struct weft_g_layout layout;
    struct weft_gen_args args = {
        .sampling = {1, 0, 1, 1}, .n_steps = 16, .prefill_tokens = 512};
    struct weft_sample *sample = weft_alloc((size_t) batch, sizeof *sample);
    int32_t *prompt = weft_alloc((size_t) n_prompt, sizeof *prompt);
    for (int32_t i = 0; i < n_prompt; i++)
        prompt[i] = (i * 37 + 11) % m->shape.vocab;
    for (int32_t i = 0; i < batch; i++)
        sample[i] = (struct weft_sample){
            .n_prompt = n_prompt, .limit = n_prompt + n_new, .token = prompt};
    struct weft_g_view view;
    CHECK(
        weft_g_layout_simple(context->rt, &m->shape, dp, tp, &layout, &err));
    CHECK(weft_g_view_open(seq, &anywhere, m, &layout, &view, &err));
    CHECK(weft_g_generate_init(
        m, &layout, instances, (int32_t) weft_ceil_div(batch, instances),
        n_prompt + n_new, args.prefill_tokens, 0, &gen, &err));
    weft_rollout_reset(&gen);
    double start = weft_clock_s();
    CHECK(weft_rollout_run(seq, &gen, &view, &args, batch, sample, NULL, NULL,
                           stats, &err));
    CHECK(weft_seq_wait(seq, &err));
    double s = weft_clock_s() - start;
    for (int32_t i = 0; i < batch; i++)
        weft_tile_release(sample[i].rollout);
    weft_g_generate_release(&gen);
    weft_g_view_close(&view);
    weft_g_layout_release(&layout);
    weft_free(sample);
    weft_free(prompt);
    return s;
}

/* Decoding alone: a generation less one of the same prompts that ends with the
 * first token, which their last rows give. */
static void bench_decode(const struct weft_g_model *m, int32_t tp,
                         int32_t batch, double reads)
{
    enum { PROMPT = 16, NEW = 64 };
    const struct weft_shape *shape = &m->shape;
    int32_t dp = weft_rt_n_devices(context->rt) / tp;
    struct weft_rollout_stats all, prompts;
    double s = generate(m, dp, tp, batch, PROMPT, 1 + NEW, &all);
    s -= generate(m, dp, tp, batch, PROMPT, 1, &prompts);
    double n = (double) (all.n_decoded - prompts.n_decoded);
    /* what a step reads at least: all weights once, and the middle step's KV */
    const struct weft_work_rows step = {batch, batch, batch * PROMPT,
                                        batch * (PROMPT + NEW / 2)};
    double bytes = weft_work_steps(shape, weft_all_blocks(shape),
                                   shape->n_layers, true, 1, &step)
                       .bytes;
    double rate = n / s / batch * bytes;
    printf(
        "decode   batch %2d  dp %d tp %d  %8.1f tok/s  %5.1f GB/s, %.0f %% "
        "of reads\n",
        batch, dp, tp, n / s, rate * 1e-9, 100 * rate / reads);
    fflush(stdout);
}

/* One prompt, and the first token after it. */
static void bench_prefill(const struct weft_g_model *m, int32_t tp,
                          int32_t n_prompt)
{
    int32_t dp = weft_rt_n_devices(context->rt) / tp;
    struct weft_rollout_stats stats;
    double s = generate(m, dp, tp, 1, n_prompt, 1, &stats);
    printf("prefill  %4d tokens dp %d tp %d %8.1f tok/s\n", n_prompt, dp, tp,
           (double) stats.n_prefilled / s);
    fflush(stdout);
}

/* ---- Training: the graph ---------------------------------------------- */

enum { N_TEXTS = 4, TEXT_TOKENS = 256, MB_ROWS = 256 };

static struct weft_pack_sample texts[N_TEXTS];

static void make_texts(int32_t vocab)
{
    struct weft_tile_id id = {"bench", "text", 0, -1, -1, 0};
    for (int i = 0; i < N_TEXTS; i++) {
        CHECK(weft_tile_create(context->rt, &id, WEFT_MEM_SAMPLES,
                               weft_rollout_bytes(TEXT_TOKENS),
                               &texts[i].rollout, &err));
        struct weft_rollout *r = weft_tile_acquire(texts[i].rollout,
                                                   WEFT_WRITE);
        *r = (struct weft_rollout){TEXT_TOKENS, 1, TEXT_TOKENS, 1};
        for (int k = 0; k < TEXT_TOKENS; k++)
            weft_rollout_token(r)[k] = (i * 131 + k * 17) % vocab;
        weft_tile_unacquire(texts[i].rollout);
        texts[i].n_prompt = 1;
        texts[i].n_total = TEXT_TOKENS;
        texts[i].weight = 1.0f / (N_TEXTS * (TEXT_TOKENS - 1));
    }
}

/* Of a step, without what is computed again: three times the forward pass, but
 * for attention, whose backward pass has five products for two. */
static double train_flop(const struct weft_shape *s)
{
    enum { T = TEXT_TOKENS, ALL = WEFT_WORK_ATTENTION | WEFT_WORK_MLP };
    struct weft_range all = weft_all_blocks(s);
    const struct weft_work_rows rows = {T, T - 1, 0, 0};
    const struct weft_work_rows keys = {.n_keys = T * (T + 1) / 2};
    double flop = 3 * weft_work_layer(s, all, ALL, &rows).flop
                + 3.5 * weft_work_layer(s, all, ALL, &keys).flop;
    return N_TEXTS
         * (s->n_layers * flop + weft_work_head(s, all, 3, &rows).flop);
}

static struct weft_g_gather *gather;
static struct weft_g_copies *copies;
static struct weft_g_order order;

static double train_graph(const struct weft_g_model *m,
                          const struct weft_g_grads *grads, int64_t step)
{
    struct weft_g_stats stats[N_TEXTS];
    struct weft_tile *norm;
    int32_t n_stats;
    struct weft_g_train train = {
        .model = m,
        .grads = grads,
        .gather = gather,
        .copies = copies,
        .order = &order,
        .loss = {.loss = WEFT_LOSS_SFT, .inv_temperature = 1},
        .adamw = {1e-4f, 0.9f, 0.999f, 1e-8f, 0, step},
        .grad_clip = 1,
        .micro_batch_rows = MB_ROWS,
        .call = 1};
    double start = weft_clock_s();
    CHECK(train_step(seq, &train, N_TEXTS, texts, stats, &n_stats, &norm,
                     &err));
    CHECK(weft_seq_wait(seq, &err));
    double s = weft_clock_s() - start;
    weft_g_order_reset(&order);
    weft_g_copies_drop(copies);
    for (int32_t i = 0; i < n_stats; i++) {
        weft_tile_release(stats[i].tile);
        weft_free(stats[i].sample);
    }
    weft_tile_release(norm);
    return s;
}

/* ---- Training: the same kernels in a loop ----------------------------- */

struct loop {
    const struct weft_g_model *m;
    struct weft_k_layer layer[64];
    struct weft_k_head head;
    const void *embed[WEFT_MAX_BLOCKS];
    void *fwd[66][WEFT_MAX_BLOCKS + 1], *bwd[66][WEFT_MAX_BLOCKS];
    float *grad[66][WEFT_MAX_BLOCKS + 1]; /* layers, head, embedding */
    float *opt[66][WEFT_MAX_BLOCKS + 1];
    size_t n_grad[66][WEFT_MAX_BLOCKS + 1];
    float *x[65], *dx, *logits;
    const struct weft_rollout *text[N_TEXTS];
    void *saved[64], *scratch;
};

static void *hold(struct weft_tile *tile)
{
    void *p = weft_tile_acquire(tile, WEFT_READ_WRITE);
    weft_tile_unacquire(tile); /* its memory stays where it is */
    return p;
}

/* Pointers of the graph's own tiles, so that both sides touch one memory. */
static struct loop *loop_make(const struct weft_g_model *m,
                              const struct weft_params *g)
{
    const struct weft_shape *s = &m->shape;
    struct loop *p = weft_alloc(1, sizeof *p);
    int32_t nl = s->n_layers;
    p->m = m;
    for (int i = 0; i < N_TEXTS; i++)
        p->text[i] = hold(texts[i].rollout);
    for (int32_t l = 0; l < nl; l++) {
        for (int32_t b = 0; b < s->n_blocks; b++) {
            p->layer[l].fwd[b] = p->fwd[l][b] = hold(
                m->fwd[0].layer[l].block[b]);
            p->layer[l].bwd[b] = p->bwd[l][b] = hold(
                m->bwd[0].layer[l].block[b]);
            p->grad[l][b] = hold(g->layer[l].block[b]);
            p->opt[l][b] = hold(m->opt[0].layer[l].block[b]);
            p->n_grad[l][b] = weft_tile_bytes(g->layer[l].block[b]) / 4;
        }
        p->layer[l].norms = hold(m->fwd[0].layer[l].norms);
        p->grad[l][s->n_blocks] = hold(g->layer[l].norms);
        p->n_grad[l][s->n_blocks] = weft_tile_bytes(g->layer[l].norms) / 4;
    }
    for (int32_t b = 0; b < s->n_blocks; b++) {
        p->embed[b] = hold(m->fwd[0].embed[b]);
        p->head.fwd[b] = p->fwd[nl][b] = hold(m->fwd[0].head.block[b]);
        p->head.bwd[b] = p->bwd[nl][b] = hold(m->bwd[0].head.block[b]);
        p->grad[nl][b] = hold(g->head.block[b]);
        p->opt[nl][b] = hold(m->opt[0].head.block[b]);
        p->n_grad[nl][b] = weft_tile_bytes(g->head.block[b]) / 4;
        p->grad[nl + 1][b] = hold(g->embed[b]);
        p->n_grad[nl + 1][b] = weft_tile_bytes(g->embed[b]) / 4;
    }
    p->head.final = hold(m->fwd[0].head.norms);
    p->grad[nl][s->n_blocks] = hold(g->head.norms);
    p->n_grad[nl][s->n_blocks] = weft_tile_bytes(g->head.norms) / 4;
    size_t x = (size_t) MB_ROWS * (size_t) s->hidden;
    for (int32_t l = 0; l <= nl; l++) {
        p->x[l] = weft_alloc_aligned(x, 4);
        if (l < nl)
            p->saved[l] = weft_alloc_aligned(
                weft_k_layer_saved_bytes(s, MB_ROWS), 1);
    }
    p->dx = weft_alloc_aligned(x, 4);
    p->logits = weft_alloc_aligned((size_t) MB_ROWS * (size_t) s->vocab, 4);
    p->scratch = weft_alloc_aligned((size_t) 512 << 20, 1);
    return p;
}

static void loop_micro_batch(struct loop *p, int first)
{
    enum { N = MB_ROWS / TEXT_TOKENS, T = TEXT_TOKENS - 1 };
    const struct weft_shape *s = &p->m->shape;
    struct weft_k_run run[N];
    int32_t token[MB_ROWS], row[N * T], target[N * T], run_targets[N];
    float logp[N * T], entropy[N * T], lse[N * T], dlogp[N * T];
    for (int i = 0; i < N; i++) {
        const struct weft_rollout *r = p->text[first + i];
        run[i] = (struct weft_k_run){i, 0, TEXT_TOKENS};
        run_targets[i] = T;
        memcpy(token + i * TEXT_TOKENS, weft_rollout_token(r),
               TEXT_TOKENS * 4);
        for (int k = 0; k < T; k++) {
            row[i * T + k] = i * TEXT_TOKENS + k;
            target[i * T + k] = token[i * TEXT_TOKENS + k + 1];
            dlogp[i * T + k] = -texts[0].weight;
        }
    }
    struct weft_k_batch batch = {MB_ROWS, N, run, token, NULL};
    struct weft_k_targets targets = {N * T, row, target, N * T, p->logits};
    weft_k_embed(s, p->embed, MB_ROWS, token, p->x[0]);
    for (int32_t l = 0; l < s->n_layers; l++)
        weft_k_layer_forward(s, &p->layer[l], l, &batch, NULL, p->x[l],
                             p->x[l + 1], p->saved[l], p->scratch);
    weft_k_head_logprob(s, &p->head, p->x[s->n_layers], &targets, 1, logp,
                        entropy, lse, p->scratch);
    weft_k_head_backward(s, &p->head, MB_ROWS, p->x[s->n_layers], &targets, N,
                         run_targets, 1, lse, entropy, dlogp, NULL, p->dx,
                         p->grad[s->n_layers],
                         p->grad[s->n_layers][s->n_blocks], p->scratch);
    for (int32_t l = s->n_layers - 1; l >= 0; l--)
        weft_k_layer_backward(s, &p->layer[l], &batch, p->x[l], p->saved[l],
                              p->dx, p->grad[l], p->grad[l][s->n_blocks],
                              p->scratch);
    weft_k_embed_backward(s, MB_ROWS, token, p->dx, p->grad[s->n_layers + 1]);
}

static double train_loop(struct loop *p, int64_t step)
{
    const struct weft_shape *s = &p->m->shape;
    struct weft_k_adamw adamw = {1e-4f, 0.9f, 0.999f, 1e-8f, 0, step};
    int32_t nl = s->n_layers;
    double norm = 0;
    void *scratch = weft_alloc_aligned(weft_k_tied_table_scratch_bytes(s), 1);
    double start = weft_clock_s();
    for (int32_t l = 0; l < nl + 2; l++)
        for (int32_t b = 0; b <= s->n_blocks; b++)
            if (p->grad[l][b])
                memset(p->grad[l][b], 0, p->n_grad[l][b] * 4);
    for (int i = 0; i < N_TEXTS; i += MB_ROWS / TEXT_TOKENS)
        loop_micro_batch(p, i);
    for (int32_t b = 0; b < s->n_blocks; b++)
        weft_k_tied_add_gradient(
            s, b,
            (struct weft_range){
                0, (int32_t) weft_ceil_div(s->block[b].n_vocab, WEFT_PANEL)},
            p->grad[nl + 1][b], p->grad[nl][b]);
    for (int32_t l = 0; l <= nl; l++)
        for (int32_t b = 0; b < s->n_blocks; b++)
            norm += weft_k_sum_squares(p->grad[l][b], p->n_grad[l][b]);
    float scale = weft_k_clip_scale(sqrt(norm), 1);
    for (int32_t l = 0; l <= nl; l++)
        for (int32_t b = 0; b < s->n_blocks; b++) {
            struct weft_layout layout;
            bool apart = s->dtype == WEFT_BF16;
            size_t n = p->n_grad[l][b];
            float *master = apart ? p->opt[l][b] : p->fwd[l][b];
            float *moment = apart ? p->opt[l][b] + n : p->opt[l][b];
            weft_layout_get(s, l == nl ? WEFT_TILE_HEAD : WEFT_TILE_LAYER, b,
                            &layout);
            weft_k_adamw(&adamw, n, scale, p->grad[l][b], master, moment,
                         moment + n);
            weft_k_publish(&layout, s->dtype, master, p->fwd[l][b],
                           p->bwd[l][b]);
            if (l == nl)
                weft_k_tied_table(s, b, p->fwd[l][b],
                                  (void *) (uintptr_t) p->embed[b], scratch);
        }
    double seconds = weft_clock_s() - start;
    weft_free(scratch);
    return seconds;
}

/* The loop as one task, so that it runs on the same worker and core. */
struct loop_task {
    struct loop *loop;
    int64_t step;
    double *seconds;
};

static int loop_cpu(const void *args, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    const struct loop_task *t = args;
    (void) buf;
    (void) n_buf;
    (void) x;
    *t->seconds = train_loop(t->loop, t->step);
    return 0;
}

WEFT_CODELET(plain_loop, 0x000000, loop_cpu)

static double train_loop_on_worker(struct loop *p, int64_t step)
{
    double seconds = 0;
    struct loop_task task = {p, step, &seconds};
    struct weft_where where = {
        .iteration = -1, .micro_batch = -1, .layer = -1};
    weft_insert(seq, &weft_cl_plain_loop, &task, sizeof task, NULL, 0,
                &where);
    CHECK(weft_seq_wait(seq, &err));
    return seconds;
}

/* ---- All -------------------------------------------------------------- */

int main(int argc, char **argv)
{
    const char *size = "110m", *dtype = "f32";
    int devices = 1;
    bool generates = true, trains = true;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--size") == 0)
            size = argv[i + 1];
        else if (strcmp(argv[i], "--dtype") == 0)
            dtype = argv[i + 1];
        else if (strcmp(argv[i], "--devices") == 0)
            devices = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--only") == 0) {
            generates = strcmp(argv[i + 1], "train") != 0;
            trains = !generates;
        }
    }
    struct weft_g_model m;
    struct weft_g_grads grads;
    struct weft_shape shape;
    CHECK(weft_k_init(NULL, &err));
    /* before workers are awake */
    double reads = cores_probe(devices, core_reads);
    double peak = cores_probe(devices,
                              strcmp(dtype, "bf16") ? core_f32 : core_bf16);
    open_model(size, dtype, devices, true, &shape, &m);
    printf("reads %.1f GB/s, %.0f GFLOP/s on as many cores\n", reads * 1e-9,
           peak * 1e-9);
    for (int tp = 1; generates && tp <= devices && tp <= shape.n_blocks;
         tp *= 2) {
        bench_decode(&m, tp, 1, reads);
        bench_decode(&m, tp, 8, reads);
        bench_decode(&m, tp, 32, reads);
        bench_prefill(&m, tp, 512);
    }
    if (!trains)
        return 0;
    /* One gradient group on one device is the loop's own order of work. */
    CHECK(weft_g_grads_init(&m, devices, &grads, &err));
    CHECK(weft_g_gather_create(&m, &gather, &err));
    CHECK(weft_g_copies_create(context->rt, &copies, &err));
    CHECK(weft_g_order_init(context->rt, &order, &err));
    make_texts(shape.vocab);
    double graph = 1e300, loop = 1e300;
    struct loop *p = devices == 1 ? loop_make(&m, &grads.set[0][0]) : NULL;
    for (int i = 0; i < (strcmp(size, "1m") ? 4 : 20); i++) {
        double s = train_graph(&m, &grads, i + 1);
        graph = s < graph ? s : graph;
        s = p ? train_loop_on_worker(p, i + 1) : 0;
        loop = s < loop ? s : loop;
    }
    double tokens = N_TEXTS * TEXT_TOKENS;
    printf("training %4.0f tokens a step  %8.0f tok/s, %.0f %% of the "
           "operations%s\n",
           tokens, tokens / graph, 100 * train_flop(&shape) / graph / peak,
           strcmp(size, "110m") ? ""
           : devices == 1       ? " (bar: 80)"
                                : " (bar on two cores: 75)");
    if (p)
        printf("plain loop                  %8.0f tok/s, overhead %.1f %%\n",
               tokens / loop, 100 * (graph / loop - 1));
    return 0;
}
