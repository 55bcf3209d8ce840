/* SPDX-License-Identifier: Apache-2.0 */
#include "codelets/gen_gpu.h"

#include "base/hash.h"
#include "base/log.h"
#include "codelets/parts.h"

/* ---- Memory ------------------------------------------------------------- */

static size_t aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

size_t weft_gen_step_bytes(const struct weft_gen_args *gen, int32_t n_slots,
                           int32_t max_total)
{
    struct weft_batch layout;
    weft_step_layout(n_slots + gen->prefill_tokens, n_slots,
                     (int32_t) weft_ceil_div(max_total, WEFT_PAGE_TOKENS),
                     &layout);
    return layout.bytes;
}

/* Where the model has one stage a task has the steps of a chunk. A shorter one
 * has the memory of the longest, or its graphs would be others. */
static int32_t most_steps(const struct weft_stage_layers *layers,
                          const struct weft_gen_args *gen)
{
    return layers->is_first && layers->is_last
             ? weft_max32(gen->n_steps, gen->most_steps)
             : 1;
}

/* Bytes of what lies on the GPU. */
struct sizes {
    size_t steps, batch, x, logits, drawn, all_drawn, sampling, scratch;
};

static struct sizes sizes_of(const struct weft_shape *shape,
                             const struct weft_stage_layers *layers,
                             struct weft_range range,
                             const struct weft_gen_args *gen, int32_t n_slots,
                             size_t step_bytes)
{
    struct weft_gpu_pass pass = {.shape = shape,
                                 .range = range,
                                 .n_rows = n_slots + gen->prefill_tokens,
                                 .n_runs = n_slots,
                                 .n_targets = n_slots};
    size_t rows = (size_t) pass.n_rows, n = (size_t) n_slots;
    struct sizes s = {
        .steps = aligned(sizeof(struct weft_k_steps)),
        .batch = step_bytes,
        .x = aligned(rows * (size_t) shape->hidden * sizeof(float)),
        .scratch = weft_gpu_scratch_bytes(&pass)};
    if (!layers->is_last)
        return s;
    size_t n_steps = (size_t) most_steps(layers, gen);
    if (range.n == shape->n_blocks) { /* or they are for the others, too */
        s.logits = aligned(n * (size_t) shape->vocab * sizeof(float));
        s.drawn = aligned(n * 4);
    }
    s.all_drawn = aligned(n_steps * n * 4);
    s.sampling = aligned(weft_gen_draw_scratch_bytes(shape, gen, n_slots));
    return s;
}

static size_t sum_of(const struct sizes *s)
{
    return s->steps + s->batch + s->x + s->logits
         + 2 * (s->drawn + s->all_drawn) + s->sampling + s->scratch;
}

size_t weft_gen_scratch_bytes(const struct weft_shape *shape,
                              const struct weft_stage_layers *layers,
                              struct weft_range range,
                              const struct weft_gen_args *gen,
                              int32_t n_slots, int32_t max_total)
{
    struct sizes s = sizes_of(shape, layers, range, gen, n_slots,
                              weft_gen_step_bytes(gen, n_slots, max_total));
    return s.scratch > 0 ? sum_of(&s) : 0; /* not known without CUDA */
}

/* The rest calls kernels that are there with CUDA alone. */
#ifdef WEFT_HAVE_CUDA

/* Of the addresses and numbers that a graph has in it. State, status and
 * planned steps are not, nor is what passes between stages. */
static uint64_t key_of(const struct weft_gen_gpu *g)
{
    const struct weft_gen_args *gen = g->gen;
    const uint64_t part[] = {
        weft_hash64(g->weights.embed,
                    (size_t) g->weights.n_buffers * sizeof(void *)),
        weft_hash64(gen->stop, (size_t) gen->n_stop * sizeof *gen->stop),
        (uint64_t) gen->n_stop,
        (uintptr_t) g->kv.arena,
        (uintptr_t) g->batch,
        gen->sampling.seed,
        weft_hash64(&gen->sampling.temperature, sizeof(float)),
        weft_hash64(&gen->sampling.top_p, sizeof(float)),
        (uint64_t) gen->sampling.top_k,
        (uint64_t) gen->prefill_tokens,
        weft_hash64(g->group.of, sizeof g->group.of),
        (uint64_t) most_steps(&g->weights.layers, gen)};
    return weft_hash64(part, sizeof part);
}

int weft_gen_gpu_open(struct weft_gen_gpu *g, struct weft_exec *x)
{
    const struct weft_shape *shape = g->shape;
    const struct weft_stage_layers *layers = &g->weights.layers;
    struct sizes size = sizes_of(shape, layers, g->range, g->gen, g->n_slots,
                                 g->step_bytes);
    char *at = weft_exec_scratch_gpu(x, sum_of(&size));
    if (!at)
        return weft_gpu_failed(x);
    g->stream = weft_exec_stream(x);
    g->steps = weft_gen_carve(&at, size.steps);
    g->batch = weft_gen_carve(&at, size.batch);
    g->x = weft_gen_carve(&at, size.x);
    g->logits = weft_gen_carve(&at, size.logits);
    g->token = weft_gen_carve(&at, size.drawn);
    g->logp = weft_gen_carve(&at, size.drawn);
    if (g->group.n > 1) {
        g->logits = g->group.of[g->group.k].logits;
        g->token = g->group.of[0].token;
        g->logp = g->group.of[0].logp;
    }
    g->tokens = weft_gen_carve(&at, size.all_drawn);
    g->logps = weft_gen_carve(&at, size.all_drawn);
    g->sampling = weft_gen_carve(&at, size.sampling);
    g->scratch = at;
    g->kv.page_bytes = weft_k_part_kv_page_bytes(shape, g->range,
                                                 layers->end - layers->first);
    g->key = key_of(g);
    return 0;
}

/* ---- Kernels ------------------------------------------------------------- */

/* Sizes of a step's launches. */
struct rows {
    struct weft_k_batch batch;
    int32_t n_targets;
};

static struct rows rows_of(const struct weft_gen_gpu *g,
                           const struct weft_batch *b)
{
    struct rows rows = {weft_batch_view(b), b->n_targets};
    rows.batch.token = weft_batch_at(g->batch, b->token);
    if (weft_gen_is_decode(b)) {
        rows.batch.device_run = weft_batch_at(g->batch, b->run);
        rows.batch.n_rows = rows.batch.n_runs = rows.n_targets =
            weft_gen_launch_rows(b, g->n_slots);
    }
    return rows;
}

/* Tokens that the steps before, of the same task, have drawn. */
static void take_drawn(const struct weft_gen_gpu *g,
                       const struct weft_batch *b, const struct rows *rows)
{
    const struct weft_k_drawn before = {
        .n_rows = rows->batch.n_rows,
        .n_targets = rows->n_targets,
        .n_ends = g->gen->n_stop,
        .end = g->gen->stop,
        .drawn = g->tokens,
        .token = weft_batch_at(g->batch, b->token),
        .at = weft_batch_at(g->batch, b->key),
        .run = rows->batch.device_run ? weft_batch_at(g->batch, b->run)
                                      : NULL};
    weft_k_drawn_tokens_cuda(g->stream, &before);
}

static void layers(const struct weft_gen_gpu *g, const struct rows *rows)
{
    const struct weft_stage_layers *l = &g->weights.layers;
    bool alone = g->group.n == 1;
    if (l->is_first && alone)
        weft_k_embed_cuda(g->stream, g->shape,
                          (const void *const *) g->weights.embed,
                          rows->batch.n_rows, rows->batch.token, g->x);
    else if (l->is_first)
        weft_gen_group_embed(g, &rows->batch);
    for (int32_t i = l->first; i < l->end; i++) {
        struct weft_k_layer weights = weft_gang_layer(&g->weights, i);
        if (alone)
            weft_k_layer_forward_cuda(g->stream, g->shape, &weights,
                                      i - l->first, &rows->batch, &g->kv,
                                      g->x, g->x, NULL, g->scratch);
        else
            weft_gen_group_layer(g, &weights, i - l->first, &rows->batch);
    }
}

static void logits(const struct weft_gen_gpu *g, const struct weft_batch *b,
                   int32_t n)
{
    const int32_t *row = weft_batch_at(g->batch, b->row);
    if (g->group.n > 1)
        weft_gen_group_logits(g, n, row);
    else
        weft_k_head_logits_cuda(g->stream, g->shape, g->range,
                                &g->weights.head, n, row, g->x, g->logits,
                                g->scratch);
}

/* The first member of a group has all logits, and draws; the others take from
 * it what they need for the next step of a chunk. */
static void draw(const struct weft_gen_gpu *g, const struct weft_batch *b,
                 int32_t n)
{
    const struct weft_shape *shape = g->shape;
    const struct weft_gen_args *gen = g->gen;
    const struct weft_k_step_drawn drawn = {.n = n,
                                            .ld = g->n_slots,
                                            .token = g->token,
                                            .logp = g->logp,
                                            .tokens = g->tokens,
                                            .logps = g->logps};
    bool is_first = g->group.k == 0, has_chunk = weft_gen_gpu_has_chunk(g);
    if (n > 0)
        logits(g, b, n);
    if (n > 0 && is_first)
        weft_k_sample_cuda(g->stream, shape, &gen->sampling, gen->n_stop,
                           gen->stop, n, g->logits, shape->vocab,
                           weft_batch_at(g->batch, b->key), g->token, g->logp,
                           g->sampling);
    if (has_chunk && g->group.n > 1)
        weft_gen_group_meet(g);
    if (has_chunk || is_first)
        weft_k_step_end_cuda(g->stream, g->steps, &drawn);
    weft_k_step_again_cuda(g->stream, g->steps, g->again);
}

/* What step b puts on the stream, or any other of as many rows that is next
 * there. */
static void put_kernels(const struct weft_gen_gpu *g,
                        const struct weft_batch *b, const struct rows *rows)
{
    weft_k_step_begin_cuda(g->stream, g->steps, g->step_bytes, g->batch);
    if (weft_gen_gpu_has_chunk(g))
        take_drawn(g, b, rows);
    layers(g, rows);
    if (g->weights.layers.is_last)
        draw(g, b, rows->n_targets);
}

/* ---- Graphs -------------------------------------------------------------- */

/* false: there is no such graph, now or ever. */
static bool capture(const struct weft_gen_gpu *g, const struct weft_batch *b,
                    const struct rows *rows, bool is_loop,
                    struct weft_gen_graph *out)
{
    int64_t n,
        most = weft_gen_graph_nodes(g->shape, &g->weights.layers, g->range);
    struct weft_gen_gpu kept = *g;
    struct weft_k_capture capture;
    weft_exec_hold_gpus();
    bool begins = weft_k_capture_cuda(is_loop, &capture);
    if (begins) {
        kept.stream = capture.stream;
        kept.again = capture.again;
        put_kernels(&kept, b, rows);
        out->graph = weft_k_captured_cuda(&capture, most, &n);
    }
    weft_exec_let_gpus();
    if (!begins)
        return false;
    out->is_loop = out->graph && is_loop;
    out->is_large = n > most;
    if (out->is_large)
        weft_warn("a decode step has %lld kernels, and memory of the GPU is "
                  "reserved for graphs of %lld: it runs without one",
                  (long long) n, (long long) most);
    return out->graph || out->is_large;
}

/* A graph of a loop; of one step where a task has no more, or CUDA makes no
 * loops. */
static void make_graph(struct weft_gen_gpu *g, const struct weft_batch *b,
                       const struct rows *rows, struct weft_gen_graph *out)
{
    struct weft_gen_graphs *graphs = g->gen->graphs;
    if (weft_gen_gpu_has_chunk(g) && !graphs->has_no_loops) {
        if (capture(g, b, rows, true, out))
            return;
        weft_warn("CUDA makes no graph of a loop here: each decode step is a "
                  "launch");
        graphs->has_no_loops = true;
    }
    g->has_failed = !capture(g, b, rows, false, out);
}

static struct weft_gen_graph *graph_of(const struct weft_gen_gpu *g,
                                       const struct rows *rows)
{
    const uint64_t part[] = {g->key, (uint64_t) rows->n_targets};
    return weft_gen_graph_of(g->gen->graphs, rows->n_targets,
                             weft_hash64(part, sizeof part));
}

static void put_graph(const struct weft_gen_gpu *g,
                      const struct weft_batch *b, const struct rows *rows,
                      int32_t n_steps)
{
    struct weft_gen_graph *graph = graph_of(g, rows);
    graph->has_run = true;
    for (int32_t i = 0; i < (graph->is_loop ? 1 : n_steps); i++)
        if (graph->graph)
            weft_k_replay_cuda(g->stream, graph->graph);
        else
            put_kernels(g, b, rows);
}

/* ---- Steps on the stream ------------------------------------------------- */

/* Graphs have the address of x, and what passes between stages has another in
 * every step. */
static void pass(const struct weft_gen_gpu *g, float *to, const float *from,
                 const struct rows *rows)
{
    size_t n = (size_t) rows->batch.n_rows * (size_t) g->shape->hidden;
    weft_k_copy_cuda(g->stream, to, from, n * sizeof(float));
}

static void open_cache(struct weft_gen_gpu *g, const struct weft_batch *b)
{
    g->kv.page = weft_batch_at(g->batch, b->page);
    g->kv.pages_per_slot = b->pages_per_slot;
}

bool weft_gen_gpu_has_run(const struct weft_gen_gpu *g, int32_t step)
{
    const struct weft_batch *b = weft_gen_gpu_step(g, step);
    const struct rows rows = rows_of(g, b);
    return !weft_gen_is_decode(b) || graph_of(g, &rows)->has_run;
}

int weft_gen_gpu_prepare(struct weft_gen_gpu *g, int32_t first,
                         struct weft_exec *x)
{
    const struct weft_batch *b = weft_gen_gpu_step(g, first);
    const struct rows rows = rows_of(g, b);
    struct weft_gen_graphs *graphs = g->gen->graphs;
    if (!graphs->has_products) {
        int rc = weft_k_choose_products_cuda(g->shape, true, false,
                                             weft_exec_err(x));
        if (rc)
            return rc;
    }
    graphs->has_products = true;
    if (!weft_gen_is_decode(b))
        return 0;
    struct weft_gen_graph *graph = graph_of(g, &rows);
    open_cache(g, b);
    if (graph->has_run && !graph->graph && !graph->is_large)
        make_graph(g, b, &rows, graph);
    return 0;
}

void weft_gen_gpu_put(struct weft_gen_gpu *g, int32_t first, int32_t end)
{
    const struct weft_batch *b = weft_gen_gpu_step(g, first);
    const struct weft_stage_layers *l = &g->weights.layers;
    const struct rows rows = rows_of(g, b);
    weft_assert(weft_gen_gpu_has_chunk(g) || end - first == 1);
    open_cache(g, b);
    weft_gen_copy_pages(g->stream, b->n_copies, weft_batch_at(b, b->copy),
                        &g->kv, 0, g->kv.page_bytes);
    weft_k_steps_cuda(g->stream, g->step, first, end, g->steps);
    if (!l->is_first)
        pass(g, g->x, g->passed, &rows);
    if (weft_gen_is_decode(b))
        put_graph(g, b, &rows, end - first);
    else
        for (int32_t i = first; i < end; i++)
            put_kernels(g, b, &rows);
    if (!l->is_last && g->group.n > 1)
        weft_k_spoil_cuda(g->stream, g->group.of[g->group.k].meetings,
                          rows.batch.n_rows * (int64_t) g->shape->hidden,
                          g->x);
    if (!l->is_last && g->group.k == 0)
        pass(g, g->passed, g->x, &rows);
}

void weft_gen_gpu_get(const struct weft_gen_gpu *g, int32_t first,
                      int32_t end, int32_t *token, float *logp,
                      int32_t *has_failed)
{
    size_t at = (size_t) (first * g->n_slots);
    size_t bytes = (size_t) ((end - first) * g->n_slots) * 4;
    *has_failed = 0;
    if (bytes == 0)
        return;
    weft_k_get_cuda(g->stream, token + at, g->tokens + at, bytes);
    weft_k_get_cuda(g->stream, logp + at, g->logps + at, bytes);
    if (g->group.n > 1)
        weft_k_get_cuda(g->stream, has_failed,
                        &g->group.of[g->group.k].meetings->has_failed,
                        sizeof *has_failed);
}

void weft_gen_gpu_get_step(const struct weft_gen_gpu *g, int32_t *drawn)
{
    weft_gen_gpu_get(g, 0, 1, drawn, weft_gen_drawn_logp(drawn, g->n_slots),
                     weft_gen_drawn_failed(drawn, g->n_slots));
}

#endif
