/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chunk of decode steps at a GPU's place. The host plans the steps and puts
 * them on the stream, where each takes the tokens that the one before has drawn;
 * it waits once, at the end, and then ends texts.
 *
 * Until then it takes it that no text ends before its limit. The GPU sees which
 * tokens are ends (kern/ends.h): a row of a text that has ended stays in its
 * place, as launches have their sizes, but attends to nothing, leaves nothing in
 * the cache and draws nothing. Rows of one that a text ends (rollout.stop) go
 * on, in pages of its own, and what is drawn for them is dropped. So who stops,
 * and where, is what it is on a CPU device. Where pages may not suffice for a
 * step, it waits before it plans it, and knows who has ended.
 *
 * Steps that follow one another in which every text has one row are one launch:
 * a CUDA graph that is a loop, of as many rows as the first one has, or a few
 * more that are no text's. Everything in it has a fixed address; what differs
 * from step to step is copied there and from there, by a number of the step that
 * the GPU counts on.
 */
#include "base/alloc.h"
#include "base/hash.h"
#include "base/log.h"
#include "codelets/gen.h"
#include "codelets/gpu.h"
#include "codelets/parts.h"
#include "codelets/work.h"

struct chunk {
    const struct weft_gen_task *args;
    struct CUstream_st *stream;
    struct weft_gen_view view;
    struct weft_gen_status *status;
    struct weft_gang_weights weights;
    struct weft_k_kv kv;
    int32_t *token; /* drawn: row j of step i is number i * n_slots + j */
    float *logp;
    char *
        step; /* (n_steps): struct weft_batch, then what draws are keyed by */
    size_t step_bytes, keys_at;
    uint64_t key;  /* of what graphs depend on */
    int32_t first; /* of the steps that have not been settled */
    int32_t put;   /* the first that is planned and not on the stream yet */
    bool has_failed;
    uint64_t again; /* of the loop that is captured, or 0 */
    /* on the GPU */
    struct weft_k_steps *steps;
    struct weft_batch
        *batch;        /* a copy of the present step's, with the keys */
    float *x, *logits; /* (rows, H), (n_slots, V) */
    int32_t *token_out, *tokens; /* (n_slots); of all: (n_steps, n_slots) */
    float *logp_out, *logps;
    void *sampling, *scratch;
};

/* ---- Memory ------------------------------------------------------------- */

static size_t aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t keys_at(const struct weft_gen_args *gen, int32_t n_slots,
                      int32_t max_total)
{
    struct weft_batch layout;
    weft_step_layout(n_slots + gen->prefill_tokens, n_slots,
                     (int32_t) weft_ceil_div(max_total, WEFT_PAGE_TOKENS),
                     &layout);
    return aligned(layout.bytes);
}

static size_t step_bytes(const struct weft_gen_args *gen, int32_t n_slots,
                         int32_t max_total)
{
    return keys_at(gen, n_slots, max_total)
         + aligned((size_t) n_slots * 4 * sizeof(uint32_t));
}

/* Of tokens, or of log-probs. */
static size_t drawn_bytes(int32_t n)
{
    return aligned((size_t) n * 4);
}

size_t weft_gen_steps_bytes(const struct weft_gen_args *gen, int32_t n_slots,
                            int32_t max_total)
{
    return 2 * drawn_bytes(gen->n_steps * n_slots)
         + (size_t) gen->n_steps * step_bytes(gen, n_slots, max_total);
}

/* Bytes of what lies on the GPU. */
struct sizes {
    size_t steps, batch, x, logits, drawn, all_drawn, sampling, scratch;
};

static struct sizes sizes_of(const struct weft_shape *shape,
                             const struct weft_gen_args *gen, int32_t n_slots,
                             int32_t max_total)
{
    struct weft_gpu_pass pass = {.shape = shape,
                                 .range = {0, shape->n_blocks},
                                 .n_rows = n_slots + gen->prefill_tokens,
                                 .n_runs = n_slots,
                                 .n_targets = n_slots};
    size_t rows = (size_t) pass.n_rows, n = (size_t) n_slots;
    return (struct sizes){
        .steps = aligned(sizeof(struct weft_k_steps)),
        .batch = step_bytes(gen, n_slots, max_total),
        .x = aligned(rows * (size_t) shape->hidden * sizeof(float)),
        .logits = aligned(n * (size_t) shape->vocab * sizeof(float)),
        .drawn = drawn_bytes(n_slots),
        .all_drawn = drawn_bytes(gen->n_steps * n_slots),
        .sampling = aligned(weft_gen_draw_scratch_bytes(shape, gen, n_slots)),
        .scratch = weft_gpu_scratch_bytes(&pass)};
}

size_t weft_gen_chunk_scratch_bytes(const struct weft_shape *shape,
                                    const struct weft_gen_args *gen,
                                    int32_t n_slots, int32_t max_total)
{
    struct sizes s = sizes_of(shape, gen, n_slots, max_total);
    return s.steps + s.batch + s.x + s.logits + 2 * (s.drawn + s.all_drawn)
         + s.sampling + s.scratch;
}

/* Of the addresses and numbers that a graph has in it; the last of n_buf is a
 * weight. State, status and steps are not in it. */
static uint64_t key_of(const struct chunk *c, void *const buf[], int n_buf)
{
    const struct weft_gen_args *gen = &c->args->gen;
    const uint64_t part[] = {
        weft_hash64(buf + 3, (size_t) (n_buf - 3) * sizeof *buf),
        weft_hash64(gen->stop, (size_t) gen->n_stop * sizeof *gen->stop),
        (uint64_t) gen->n_stop,
        (uintptr_t) c->kv.arena,
        (uintptr_t) c->batch,
        gen->sampling.seed,
        weft_hash64(&gen->sampling.temperature, sizeof(float)),
        weft_hash64(&gen->sampling.top_p, sizeof(float)),
        (uint64_t) gen->sampling.top_k,
        (uint64_t) gen->prefill_tokens,
        (uint64_t) gen->n_steps};
    return weft_hash64(part, sizeof part);
}

static int open_chunk(struct chunk *c, void *const buf[], int n_buf,
                      struct weft_exec *x)
{
    const struct weft_shape *shape = c->args->shape;
    const struct weft_gen_args *gen = &c->args->gen;
    struct weft_take take = {buf, n_buf, 0};
    c->stream = weft_exec_stream(x);
    c->view = weft_gen_view_of(weft_take(&take));
    const struct weft_gen_state *state = c->view.state;
    int32_t n = state->n_slots;
    c->kv = (struct weft_k_kv){.arena = weft_take(&take),
                               .page_bytes = weft_kv_page_bytes(shape),
                               .pages_per_slot = state->pages_per_slot};
    c->status = weft_take(&take);
    weft_gang_take_weights(&take, shape, &c->args->members.layers,
                           weft_all_blocks(shape), &c->weights);
    char *steps = weft_take(&take);
    weft_take_end(&take);
    c->token = weft_gen_carve(&steps, drawn_bytes(gen->n_steps * n));
    c->logp = weft_gen_carve(&steps, drawn_bytes(gen->n_steps * n));
    c->step = steps;
    c->step_bytes = step_bytes(gen, n, state->max_total);
    c->keys_at = keys_at(gen, n, state->max_total);

    struct sizes size = sizes_of(shape, gen, n, state->max_total);
    char *at = weft_exec_scratch_gpu(
        x, weft_gen_chunk_scratch_bytes(shape, gen, n, state->max_total));
    if (!at)
        return weft_gpu_failed(x);
    c->steps = weft_gen_carve(&at, size.steps);
    c->batch = weft_gen_carve(&at, size.batch);
    c->x = weft_gen_carve(&at, size.x);
    c->logits = weft_gen_carve(&at, size.logits);
    c->token_out = weft_gen_carve(&at, size.drawn);
    c->logp_out = weft_gen_carve(&at, size.drawn);
    c->tokens = weft_gen_carve(&at, size.all_drawn);
    c->logps = weft_gen_carve(&at, size.all_drawn);
    c->sampling = weft_gen_carve(&at, size.sampling);
    c->scratch = at;
    c->key = key_of(c, buf, take.next - 1);
    return 0;
}

static struct weft_batch *step_of(const struct chunk *c, int32_t i)
{
    return (void *) (c->step + (size_t) i * c->step_bytes);
}

/* ---- Steps on the stream ------------------------------------------------- */

/* Sizes of a step's launches. */
struct rows {
    struct weft_k_batch batch;
    int32_t n_targets;
};

static void layers(const struct chunk *c, const struct rows *rows)
{
    const struct weft_shape *shape = c->args->shape;
    weft_k_embed_cuda(c->stream, shape,
                      (const void *const *) c->weights.embed,
                      rows->batch.n_rows, rows->batch.token, c->x);
    for (int32_t l = 0; l < shape->n_layers; l++) {
        struct weft_k_layer weights = weft_gang_layer(&c->weights, l);
        weft_k_layer_forward_cuda(c->stream, shape, &weights, l, &rows->batch,
                                  &c->kv, c->x, c->x, NULL, c->scratch);
    }
}

static void draw(const struct chunk *c, const struct weft_batch *b, int32_t n)
{
    const struct weft_shape *shape = c->args->shape;
    const struct weft_gen_args *gen = &c->args->gen;
    if (n == 0)
        return;
    weft_k_head_logits_cuda(
        c->stream, shape, (struct weft_range){0, shape->n_blocks},
        &c->weights.head, n, weft_batch_at(c->batch, b->row), c->x, c->logits,
        c->scratch);
    weft_k_sample_cuda(c->stream, shape, &gen->sampling, gen->n_stop,
                       gen->stop, n, c->logits, shape->vocab,
                       weft_batch_at(c->batch, c->keys_at), c->token_out,
                       c->logp_out, c->sampling);
}

/* What step b puts on the stream, or any other of as many rows that is next
 * there. */
static void put_kernels(const struct chunk *c, const struct weft_batch *b,
                        const struct rows *rows)
{
    const struct weft_gen_args *gen = &c->args->gen;
    const struct weft_k_drawn before = {
        .n_rows = rows->batch.n_rows,
        .n_targets = rows->n_targets,
        .n_ends = gen->n_stop,
        .end = gen->stop,
        .drawn = c->tokens,
        .token = weft_batch_at(c->batch, b->token),
        .at = weft_batch_at(c->batch, c->keys_at),
        .run = rows->batch.device_run ? weft_batch_at(c->batch, b->run)
                                      : NULL};
    const struct weft_k_step_drawn drawn = {.n = rows->n_targets,
                                            .ld = c->view.state->n_slots,
                                            .token = c->token_out,
                                            .logp = c->logp_out,
                                            .tokens = c->tokens,
                                            .logps = c->logps};
    weft_k_step_begin_cuda(c->stream, c->steps, c->step_bytes, c->batch);
    weft_k_drawn_tokens_cuda(c->stream, &before);
    layers(c, rows);
    draw(c, b, rows->n_targets);
    weft_k_step_end_cuda(c->stream, c->steps, &drawn, c->again);
}

/* false: there is no such graph, now or ever. */
static bool capture(const struct chunk *c, const struct weft_batch *b,
                    const struct rows *rows, bool is_loop,
                    struct weft_gen_graph *g)
{
    int64_t n, most = weft_gen_graph_nodes(c->args->shape);
    struct chunk kept = *c;
    struct weft_k_capture capture;
    if (!weft_k_capture_cuda(is_loop, &capture))
        return false;
    kept.stream = capture.stream;
    kept.again = capture.again;
    put_kernels(&kept, b, rows);
    g->graph = weft_k_captured_cuda(&capture, most, &n);
    g->is_loop = g->graph && is_loop;
    g->is_large = n > most;
    if (g->is_large)
        weft_warn("a decode step has %lld kernels, and memory of the GPU is "
                  "reserved for graphs of %lld: it runs without one",
                  (long long) n, (long long) most);
    return g->graph || g->is_large;
}

/* A graph of a loop, or where CUDA makes none, of one step. */
static void make_graph(struct chunk *c, const struct weft_batch *b,
                       const struct rows *rows, struct weft_gen_graph *g)
{
    struct weft_gen_graphs *graphs = c->args->gen.graphs;
    if (!graphs->has_no_loops && capture(c, b, rows, true, g))
        return;
    if (!graphs->has_no_loops)
        weft_warn("CUDA makes no graph of a loop here: each decode step is a "
                  "launch");
    graphs->has_no_loops = true;
    c->has_failed = !capture(c, b, rows, false, g);
}

/* A graph is made when a step has run once without one: then nothing in it is
 * chosen or loaded any more. */
static void put_graph(struct chunk *c, const struct weft_batch *b,
                      const struct rows *rows, int32_t n_steps)
{
    const uint64_t part[] = {c->key, (uint64_t) rows->n_targets};
    struct weft_gen_graph *g = weft_gen_graph_of(
        c->args->gen.graphs, rows->n_targets, weft_hash64(part, sizeof part));
    if (!g->has_run) {
        put_kernels(c, b, rows);
        g->has_run = true;
        n_steps--;
    }
    if (n_steps > 0 && !g->graph && !g->is_large)
        make_graph(c, b, rows, g);
    if (g->is_loop)
        n_steps = n_steps > 0;
    for (int32_t i = 0; i < n_steps && !c->has_failed; i++)
        if (g->graph)
            weft_k_replay_cuda(c->stream, g->graph);
        else
            put_kernels(c, b, rows);
}

/* Every text has one row. */
static bool is_decode(const struct weft_batch *b)
{
    return b->n_rows == b->n_runs && b->n_targets == b->n_rows;
}

/* Rows up to `end` are no text's: they compute, and leave nothing. */
static void fill_bucket(const struct chunk *c, struct weft_batch *b,
                        int32_t end)
{
    struct weft_k_run *run = weft_batch_at(b, b->run);
    int32_t *token = weft_batch_at(b, b->token);
    int32_t *row = weft_batch_at(b, b->row);
    uint32_t *at = weft_batch_at(b, c->keys_at);
    for (int32_t i = b->n_rows; i < end; i++) {
        run[i] = (struct weft_k_run){0};
        token[i] = 0;
        row[i] = i;
        memset(at + 4 * (size_t) i, 0, 4 * sizeof *at);
    }
}

static int32_t bucket_of(const struct chunk *c, const struct weft_batch *b)
{
    return weft_gen_graph_rows(b->n_rows, c->view.state->n_slots);
}

/* Whether step i can be put on the stream together with those that are not
 * there yet: with sizes of launches that are theirs. */
static bool joins(const struct chunk *c, int32_t i)
{
    const struct weft_batch *first = step_of(c, c->put), *b = step_of(c, i);
    return i == c->put
        || (is_decode(first) && is_decode(b) && b->n_copies == 0
            && b->n_rows <= bucket_of(c, first));
}

/* Puts the planned steps before `end` on the stream. */
static void put_steps(struct chunk *c, int32_t end)
{
    if (c->put == end)
        return;
    const struct weft_batch *b = step_of(c, c->put);
    struct rows rows = {weft_batch_view(b), b->n_targets};
    rows.batch.token = weft_batch_at(c->batch, b->token);
    if (is_decode(b)) {
        int32_t n = bucket_of(c, b);
        for (int32_t i = c->put; i < end; i++)
            fill_bucket(c, step_of(c, i), n);
        rows.batch.device_run = weft_batch_at(c->batch, b->run);
        rows.batch.n_rows = rows.batch.n_runs = rows.n_targets = n;
    }
    c->kv.page = weft_batch_at(c->batch, b->page);
    weft_gen_copy_pages(c->stream, b->n_copies, weft_batch_at(b, b->copy),
                        &c->kv, 0, c->kv.page_bytes);
    weft_k_steps_cuda(c->stream, c->step, c->put, end, c->steps);
    if (is_decode(b) && c->args->gen.graphs)
        put_graph(c, b, &rows, end - c->put);
    else
        for (int32_t i = c->put; i < end; i++)
            put_kernels(c, b, &rows);
    c->put = end;
}

/* ---- Plans --------------------------------------------------------------- */

/* Where each row's token comes from, by which the GPU sees who has ended. */
static void name_sources(const struct chunk *c, struct weft_batch *b)
{
    const int32_t *token = weft_batch_at(b, b->token);
    const int32_t *row = weft_batch_at(b, b->row);
    uint32_t *at = weft_batch_at(b, c->keys_at);
    for (int32_t j = 0; j < b->n_targets; j++)
        at[4 * j + 3] = weft_k_row_after(at[4 * j + 3], token[row[j]]);
}

/* The state goes on as if the tokens were known and ended nothing; they are
 * -1 - the number of their row, from which a step takes them. */
static void go_on(const struct chunk *c, const struct weft_batch *b,
                  int32_t first)
{
    const int32_t *target = weft_batch_at(b, b->target);
    for (int32_t j = 0; j < b->n_targets; j++) {
        struct weft_gen_slot *slot = &c->view.slot[target[j]];
        int64_t at = (int64_t) target[j] * c->view.state->max_total;
        c->view.token[at + slot->n_total] = -1 - (first + j);
        if (++slot->n_total >= slot->limit)
            slot->done = 2;
    }
}

/* Plans step i, and puts those before it on the stream where it does not join
 * them. false: nobody has rows. */
static bool plan_step(struct chunk *c, int32_t i)
{
    const struct weft_gen_args *gen = &c->args->gen;
    struct weft_batch *b = step_of(c, i);
    weft_gen_begin_step(&c->view, gen, c->status, b);
    if (b->n_rows == 0)
        return false;
    if (!joins(c, i))
        put_steps(c, i);
    weft_gen_key_rows(&c->view, gen, b, weft_batch_at(b, c->keys_at));
    name_sources(c, b);
    go_on(c, b, i * c->view.state->n_slots);
    return true;
}

/* ---- What was drawn ------------------------------------------------------ */

static void go_back(const struct chunk *c, int32_t end)
{
    for (int32_t i = c->first; i < end; i++) {
        const struct weft_batch *b = step_of(c, i);
        const int32_t *target = weft_batch_at(b, b->target);
        for (int32_t j = 0; j < b->n_targets; j++) {
            c->view.slot[target[j]].n_total--;
            c->view.slot[target[j]].done = 0;
        }
    }
}

/* Whether the GPU has seen that the slot ended with a token, and drew no
 * more. */
static bool is_known(const struct chunk *c, int32_t index, int32_t drawn)
{
    const struct weft_gen_slot *slot = &c->view.slot[index];
    int64_t last = (int64_t) index * c->view.state->max_total + slot->n_total
                 - 1;
    return drawn == WEFT_K_ENDED
        || !weft_k_is_end(c->args->gen.n_stop, c->args->gen.stop,
                          c->view.token[last]);
}

/* Waits for the steps before `end`, and puts their tokens into the state. */
static int settle(struct chunk *c, int32_t end, struct weft_exec *x)
{
    size_t at = (size_t) (c->first * c->view.state->n_slots);
    size_t bytes = (size_t) ((end - c->first) * c->view.state->n_slots) * 4;
    put_steps(c, end);
    if (bytes > 0) {
        weft_k_get_cuda(c->stream, c->token + at, c->tokens + at, bytes);
        weft_k_get_cuda(c->stream, c->logp + at, c->logps + at, bytes);
    }
    int rc = weft_gpu_end(x);
    c->has_failed |= !weft_k_wait_cuda(c->stream);
    if (rc || c->has_failed)
        return rc;
    go_back(c, end);
    for (; c->first < end; c->first++) {
        const struct weft_batch *b = step_of(c, c->first);
        const int32_t *target = weft_batch_at(b, b->target);
        int32_t row = c->first * c->view.state->n_slots;
        for (int32_t j = 0; j < b->n_targets && !rc; j++, row++) {
            if (c->view.slot[target[j]].done) {
                weft_assert(is_known(c, target[j], c->token[row]));
                continue;
            }
            c->status->n_decoded++;
            rc = weft_gen_put(&c->view, &c->args->gen, target[j],
                              c->token[row], c->logp[row], weft_exec_err(x));
        }
    }
    return rc;
}

static int gen_chunk_cuda(const void *args, void *const buf[], int n_buf,
                          struct weft_exec *x)
{
    struct chunk c = {.args = args};
    int rc = open_chunk(&c, buf, n_buf, x), i = 0;
    if (rc)
        return rc;
    int32_t n_slots = c.view.state->n_slots;
    *c.status = (struct weft_gen_status){.n_slots = n_slots};
    weft_gen_admit(&c.view, c.args);
    for (; i < c.args->gen.n_steps; i++) {
        if (c.first < i && !weft_gen_has_room(&c.view))
            rc = settle(&c, i, x);
        if (rc || c.has_failed || !plan_step(&c, i))
            break;
    }
    if (!rc && !c.has_failed)
        rc = settle(&c, i, x);
    weft_gen_report(&c.view, 0, c.status);
    return rc; /* has_failed: the runtime says what */
}

WEFT_CODELET_2(gen_chunk, 0x66bb6a, weft_gen_chunk_cpu, gen_chunk_cuda)

/* What a member uses; the first one has the state. */
static void add_member(struct weft_access_list *access,
                       const struct weft_gen_task *task, int32_t k,
                       const struct weft_params *fwd,
                       const struct weft_gen_tiles *tiles)
{
    const struct weft_shape *shape = task->shape;
    struct weft_range range = task->members.range[k];
    weft_access_list_init(access);
    if (k == 0)
        weft_access_list_add(access, tiles->state, WEFT_READ_WRITE);
    weft_access_list_add(access, tiles->arena[k], WEFT_READ_WRITE);
    if (k == 0)
        weft_access_list_add(access, tiles->status, WEFT_WRITE);
    weft_access_list_add_weights(access, shape, &task->members.layers, range,
                                 fwd);
    if (k == 0)
        weft_access_list_add_optional(access, tiles->steps, WEFT_WRITE);
}

void weft_insert_gen_chunk(struct weft_seq *seq,
                           const struct weft_members *members,
                           const struct weft_shape *shape,
                           const struct weft_params *fwd,
                           const struct weft_gen_args *gen, int32_t n_admit,
                           const struct weft_gen_admit *admit,
                           const struct weft_gen_tiles *tiles)
{
    size_t bytes;
    if (!weft_seq_is_here(seq, &members->where[0]))
        return;
    struct weft_gen_task *task = weft_gen_task_create(seq, shape, gen,
                                                      n_admit, admit, &bytes);
    if (!task)
        return;
    task->members = weft_gang_ranges_of(members);
    weft_insert_members(seq, members);
    for (int32_t k = 0; k < members->n; k++) {
        struct weft_access_list access;
        add_member(&access, task, k, fwd, tiles);
        if (gen->step)
            access.work = weft_work_steps(shape, members->range[k],
                                          shape->n_layers, true, gen->n_steps,
                                          gen->step);
        weft_access_list_insert(&access, seq, &members->where[k],
                                &weft_cl_gen_chunk, task,
                                k == 0 ? bytes : sizeof *task);
    }
    weft_free(task);
}
