/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chunk of decode steps of an instance on one device: continuous batching
 * over slots with a paged KV cache, all layers in one task. Its body on a CPU
 * device; gen_chunk_gpu.c has the other, and the task.
 */
#include <string.h>

#include "base/alloc.h"
#include "codelets/gen.h"
#include "codelets/head.h"

void weft_gen_take_weights(struct weft_take *take,
                           const struct weft_shape *shape,
                           struct weft_gen_weights *out)
{
    out->embed = take->buf + take->next;
    take->next += shape->n_blocks;
    out->layer = take->buf + take->next;
    take->next += shape->n_layers * (shape->n_blocks + 1);
    weft_head_take(take, shape, false, &out->head);
}

struct weft_k_layer weft_gen_layer(const struct weft_gen_weights *weights,
                                   const struct weft_shape *shape,
                                   int32_t layer)
{
    void *const *buf = weights->layer
                     + (size_t) layer * (size_t) (shape->n_blocks + 1);
    struct weft_k_layer out = {.norms = buf[shape->n_blocks]};
    for (int b = 0; b < shape->n_blocks; b++)
        out.fwd[b] = buf[b];
    return out;
}

/* One step's rows, and what the kernels read and write. */
struct step {
    const struct weft_gen_task *args;
    struct weft_gen_view view;
    struct weft_gen_rows rows;
    void *arena;
    size_t page_bytes;
    struct weft_gen_weights weights;
    int32_t *last_row; /* (n_slots) */
    float *x, *last, *logits;
    void *scratch;
};

static void forward(struct step *s)
{
    const struct weft_shape *shape = s->args->shape;
    const struct weft_gen_rows *rows = &s->rows;
    struct weft_k_batch batch = {rows->n_rows, rows->n_runs, rows->run,
                                 rows->token, NULL};
    struct weft_k_kv kv = {s->arena, s->page_bytes, s->view.page,
                           s->view.state->pages_per_slot};
    weft_gen_copy_pages(NULL, s->view.state->n_copies, s->view.copy, &kv, 0,
                        s->page_bytes);
    weft_gen_clear_pages(rows->n_runs, rows->run, &kv, 0, s->page_bytes);
    weft_k_embed(shape, (const void *const *) s->weights.embed, rows->n_rows,
                 rows->token, s->x);
    for (int32_t l = 0; l < shape->n_layers; l++) {
        struct weft_k_layer weights = weft_gen_layer(&s->weights, shape, l);
        weft_k_layer_forward(shape, &weights, l, &batch, &kv, s->x, s->x,
                             NULL, s->scratch);
    }
    weft_gen_last_rows(rows, s->last_row);
    for (int32_t i = 0; i < rows->n_sampled; i++)
        memcpy(s->last + (int64_t) i * shape->hidden,
               s->x + (int64_t) s->last_row[i] * shape->hidden,
               (size_t) shape->hidden * sizeof(float));
}

/* Bytes of scratch that the layers need for the largest step that a chunk can
 * have: every slot has rows and is at its longest. 0: out of memory. */
static size_t layer_scratch(const struct weft_shape *shape,
                            const struct weft_gen_state *state, int64_t rows)
{
    int64_t n = state->n_slots;
    struct weft_k_run *worst = weft_alloc((size_t) n, sizeof *worst);
    if (!worst)
        return 0;
    for (int64_t i = 0; i < n; i++)
        worst[i] = (struct weft_k_run){(int32_t) i, state->max_total - 1, 1};
    worst[0].n = (int32_t) (rows - n + 1);
    worst[0].pos = (int32_t) weft_max64(state->max_total - worst[0].n, 0);
    struct weft_k_batch batch = {(int32_t) rows, (int32_t) n, worst, NULL,
                                 NULL};
    size_t bytes = weft_k_layer_forward_scratch_bytes(shape, &batch);
    weft_free(worst);
    return bytes;
}

static int step_init(struct step *s, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    const struct weft_shape *shape = s->args->shape;
    s->view = weft_gen_view_of(buf[0]);
    const struct weft_gen_state *state = s->view.state;
    int64_t n = state->n_slots, rows = n + s->args->gen.prefill_tokens;
    int64_t h = shape->hidden, v = shape->vocab;
    struct weft_take take = {buf, n_buf, 3};

    s->arena = buf[1];
    s->page_bytes = weft_kv_page_bytes(shape);
    weft_gen_take_weights(&take, shape, &s->weights);
    weft_take_end(&take);

    size_t layer = layer_scratch(shape, state, rows);
    if (layer == 0)
        return weft_err_nomem(weft_exec_err(x), "a decode step",
                              (size_t) n * sizeof(struct weft_k_run));
    size_t head = weft_k_head_scratch_bytes(shape, (int32_t) n);
    size_t most = (size_t) weft_max64(
        weft_max64((int64_t) layer, (int64_t) head), v * 8);
    size_t bytes = (size_t) (n * (int64_t) sizeof *s->rows.run + rows * 4
                             + n * 8 + (rows + n) * h * 4 + n * v * 4)
                 + 8 * 64;
    char *at = weft_exec_scratch(x, bytes + most);
    if (!at)
        return WEFT_ENOMEM;
    s->rows.run = weft_gen_carve(&at, (size_t) n * sizeof *s->rows.run);
    s->rows.token = weft_gen_carve(&at, (size_t) rows * 4);
    s->rows.sampled = weft_gen_carve(&at, (size_t) n * 4);
    s->last_row = weft_gen_carve(&at, (size_t) n * 4);
    s->x = weft_gen_carve(&at, (size_t) (rows * h) * 4);
    s->last = weft_gen_carve(&at, (size_t) (n * h) * 4);
    s->logits = weft_gen_carve(&at, (size_t) (n * v) * 4);
    s->scratch = at;
    return 0;
}

int weft_gen_chunk_cpu(const void *args, void *const buf[], int n_buf,
                       struct weft_exec *x)
{
    struct step s = {.args = args};
    struct weft_gen_status *status = buf[2];
    int rc = step_init(&s, buf, n_buf, x);
    if (rc)
        return rc;
    const struct weft_shape *shape = s.args->shape;
    int32_t n_slots = s.view.state->n_slots;
    *status = (struct weft_gen_status){.n_slots = n_slots};
    weft_gen_admit(&s.view, s.args);
    for (int32_t i = 0; i < s.args->gen.n_steps && !rc; i++) {
        weft_gen_plan_rows(&s.view, &s.args->gen, &s.rows, status);
        if (s.rows.n_rows == 0)
            break;
        forward(&s);
        status->n_decoded += s.rows.n_sampled;
        if (s.rows.n_sampled == 0)
            continue;
        weft_k_head_logits(shape, &s.weights.head, s.rows.n_sampled, s.last,
                           s.logits, s.scratch);
        rc = weft_gen_draw(&s.view, shape, &s.args->gen, s.rows.n_sampled,
                           s.rows.sampled, s.logits, s.scratch,
                           weft_exec_err(x));
    }
    memcpy(status + 1, s.view.slot, (size_t) n_slots * sizeof *s.view.slot);
    return rc;
}
