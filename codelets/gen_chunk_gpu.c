/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chunk of decode steps at a GPU's place. The host plans one step after the
 * other and puts it on the stream, where each takes the tokens that the one
 * before has drawn; it waits once, at the end, and then ends texts.
 *
 * Until then it takes it that no text ends before its limit: rows of one that
 * has ended go on, in pages of its own, and what is drawn for them is dropped.
 * So who stops, and where, is what it is on a CPU device. Where pages may not
 * suffice for a step, it waits before it plans it, and knows who has ended.
 */
#include "base/alloc.h"
#include "codelets/gen.h"
#include "codelets/gpu.h"
#include "codelets/parts.h"

struct chunk {
    const struct weft_gen_task *args;
    struct CUstream_st *stream;
    struct weft_gen_view view;
    struct weft_gen_status *status;
    struct weft_gen_weights weights;
    struct weft_k_kv kv;
    struct weft_gen_drawn drawn; /* row j of step i: number i * n_slots + j */
    char *step;                  /* (n_steps): struct weft_batch */
    size_t step_bytes;
    int32_t first; /* of the steps that have not been settled */
    bool has_failed;
    /* on the GPU */
    struct weft_batch *batch; /* a copy of the present step's */
    float *x, *logits;        /* (rows, H), (n_slots, V) */
    void *sampling, *scratch;
};

/* ---- Memory ------------------------------------------------------------- */

static size_t aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t step_bytes(const struct weft_gen_args *gen, int32_t n_slots,
                         int32_t max_total)
{
    struct weft_batch layout;
    weft_step_layout(n_slots + gen->prefill_tokens, n_slots,
                     (int32_t) weft_ceil_div(max_total, WEFT_PAGE_TOKENS),
                     &layout);
    return aligned(layout.bytes);
}

static size_t all_drawn_bytes(const struct weft_gen_args *gen,
                              int32_t n_slots)
{
    return aligned(weft_gen_drawn_bytes(gen->n_steps * n_slots));
}

size_t weft_gen_steps_bytes(const struct weft_gen_args *gen, int32_t n_slots,
                            int32_t max_total)
{
    return all_drawn_bytes(gen, n_slots)
         + (size_t) gen->n_steps * step_bytes(gen, n_slots, max_total);
}

/* Bytes of what lies on the GPU. */
struct sizes {
    size_t batch, x, logits, sampling, scratch;
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
        .batch = step_bytes(gen, n_slots, max_total),
        .x = aligned(rows * (size_t) shape->hidden * sizeof(float)),
        .logits = aligned(n * (size_t) shape->vocab * sizeof(float)),
        .sampling = aligned(weft_gen_draw_scratch_bytes(shape, gen, n_slots)),
        .scratch = weft_gpu_scratch_bytes(&pass)};
}

size_t weft_gen_chunk_scratch_bytes(const struct weft_shape *shape,
                                    const struct weft_gen_args *gen,
                                    int32_t n_slots, int32_t max_total)
{
    struct sizes s = sizes_of(shape, gen, n_slots, max_total);
    return s.batch + s.x + s.logits + s.sampling + s.scratch;
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
    weft_gen_take_weights(&take, shape, &c->weights);
    char *steps = weft_take(&take);
    weft_take_end(&take);
    c->drawn = weft_gen_drawn_of(steps, gen->n_steps * n);
    c->step = steps + all_drawn_bytes(gen, n);
    c->step_bytes = step_bytes(gen, n, state->max_total);

    struct sizes size = sizes_of(shape, gen, n, state->max_total);
    char *at = weft_exec_scratch_gpu(
        x, weft_gen_chunk_scratch_bytes(shape, gen, n, state->max_total));
    if (!at)
        return weft_gpu_failed(x);
    c->batch = weft_gen_carve(&at, size.batch);
    c->x = weft_gen_carve(&at, size.x);
    c->logits = weft_gen_carve(&at, size.logits);
    c->sampling = weft_gen_carve(&at, size.sampling);
    c->scratch = at;
    return 0;
}

static struct weft_batch *step_of(const struct chunk *c, int32_t i)
{
    return (void *) (c->step + (size_t) i * c->step_bytes);
}

/* ---- A step on the stream ----------------------------------------------- */

static void layers(const struct chunk *c, const struct weft_batch *b)
{
    const struct weft_shape *shape = c->args->shape;
    struct weft_k_batch rows = weft_batch_view(b);
    struct weft_k_kv kv = c->kv;
    int32_t *token = weft_batch_at(c->batch, b->token);
    kv.page = weft_batch_at(c->batch, b->page);
    rows.token = token;
    weft_gen_copy_pages(c->stream, b->n_copies, weft_batch_at(b, b->copy),
                        &kv, 0, kv.page_bytes);
    weft_k_drawn_tokens_cuda(c->stream, b->n_rows, c->drawn.token, token);
    weft_k_embed_cuda(c->stream, shape,
                      (const void *const *) c->weights.embed, b->n_rows,
                      token, c->x);
    for (int32_t l = 0; l < shape->n_layers; l++) {
        struct weft_k_layer weights = weft_gen_layer(&c->weights, shape, l);
        weft_k_layer_forward_cuda(c->stream, shape, &weights, l, &rows, &kv,
                                  c->x, c->x, NULL, c->scratch);
    }
}

static void draw(const struct chunk *c, const struct weft_batch *b,
                 int32_t first)
{
    const struct weft_shape *shape = c->args->shape;
    const struct weft_gen_args *gen = &c->args->gen;
    uint32_t *at = c->drawn.at + 4 * (size_t) first;
    if (b->n_targets == 0)
        return;
    weft_k_head_logits_cuda(
        c->stream, shape, (struct weft_range){0, shape->n_blocks},
        &c->weights.head, b->n_targets, weft_batch_at(c->batch, b->row), c->x,
        c->logits, c->scratch);
    weft_gen_key_rows(&c->view, gen, b, at);
    weft_k_sample_cuda(c->stream, shape, &gen->sampling, gen->n_stop,
                       gen->stop, b->n_targets, c->logits, shape->vocab, at,
                       c->drawn.token + first, c->drawn.logp + first,
                       c->sampling);
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

/* false: nobody has rows. */
static bool put_step(struct chunk *c, int32_t i)
{
    struct weft_batch *b = step_of(c, i);
    int32_t first = i * c->view.state->n_slots;
    weft_gen_begin_step(&c->view, &c->args->gen, c->status, b);
    if (b->n_rows == 0)
        return false;
    weft_k_put_cuda(c->stream, c->batch, b, b->bytes);
    layers(c, b);
    draw(c, b, first);
    go_on(c, b, first);
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

/* Waits for the steps before `end`, and puts their tokens into the state. */
static int settle(struct chunk *c, int32_t end, struct weft_exec *x)
{
    int rc = weft_gpu_end(x);
    c->has_failed = !weft_k_wait_cuda(c->stream);
    if (rc || c->has_failed)
        return rc;
    go_back(c, end);
    for (; c->first < end; c->first++) {
        const struct weft_batch *b = step_of(c, c->first);
        const int32_t *target = weft_batch_at(b, b->target);
        int32_t row = c->first * c->view.state->n_slots;
        for (int32_t j = 0; j < b->n_targets && !rc; j++, row++)
            if (!c->view.slot[target[j]].done) {
                c->status->n_decoded++;
                rc = weft_gen_put(&c->view, &c->args->gen, target[j],
                                  c->drawn.token[row], c->drawn.logp[row],
                                  weft_exec_err(x));
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
        if (rc || c.has_failed || !put_step(&c, i))
            break;
    }
    if (!rc && !c.has_failed)
        rc = settle(&c, i, x);
    weft_gen_report(&c.view, 0, c.status);
    return rc; /* has_failed: the runtime says what */
}

WEFT_CODELET_2(gen_chunk, 0x66bb6a, weft_gen_chunk_cpu, gen_chunk_cuda)

void weft_insert_gen_chunk(struct weft_seq *seq,
                           const struct weft_where *where,
                           const struct weft_shape *shape,
                           const struct weft_params *fwd,
                           const struct weft_gen_args *gen, int32_t n_admit,
                           const struct weft_gen_admit *admit,
                           struct weft_tile *state, struct weft_tile *arena,
                           struct weft_tile *steps, struct weft_tile *status)
{
    size_t bytes;
    if (!weft_seq_is_here(seq, where))
        return;
    struct weft_gen_task *task = weft_gen_task_create(seq, shape, gen,
                                                      n_admit, admit, &bytes);
    if (!task)
        return;
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, state, WEFT_READ_WRITE);
    weft_access_list_add(&access, arena, WEFT_READ_WRITE);
    weft_access_list_add(&access, status, WEFT_WRITE);
    weft_access_list_add_blocks(&access, fwd->embed, WEFT_READ);
    for (int32_t l = 0; l < shape->n_layers; l++)
        weft_access_list_add_layer(&access, &fwd->layer[l], WEFT_READ);
    weft_access_list_add_layer(&access, &fwd->head, WEFT_READ);
    weft_access_list_add_optional(&access, steps, WEFT_WRITE);
    if (gen->step)
        access.work = weft_work_steps(
            shape, (struct weft_range){0, shape->n_blocks}, shape->n_layers,
            true, gen->n_steps, gen->step);
    weft_access_list_insert(&access, seq, where, &weft_cl_gen_chunk, task,
                            bytes);
    weft_free(task);
}
