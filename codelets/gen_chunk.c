/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chunk of decode steps of an instance on CPU devices of one place:
 * continuous batching over slots with a paged KV cache, all layers in one task
 * of each device. The first member chooses a step's rows; every member
 * computes its blocks of the layers and of the vocabulary, with a KV cache of
 * its own heads, and draws its share of the rows; the first puts the tokens
 * into the state. gen_chunk_gpu.c has the chunk of a GPU, and the tasks.
 */
#include "base/alloc.h"
#include "codelets/gen.h"

/* What the members have in common, in the first one's scratch memory. */
struct common {
    struct weft_gen_view view;
    struct weft_gen_rows rows; /* of this step */
    int32_t *last_row;         /* (n_slots) */
    struct weft_gen_drawn drawn;
    struct weft_gang_roots roots;
};

struct chunk {
    const struct weft_gen_task *args;
    struct common *all;
    struct weft_gang_member member;
    struct weft_gang_weights weights;
    void *arena;
    size_t page_bytes;
};

/* Bytes of scratch that the layers need for the largest step that a chunk can
 * have: every slot has rows and is at its longest. 0: out of memory. */
static size_t layer_scratch(const struct weft_gang_member *m,
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
    size_t bytes = weft_gang_scratch_bytes(m, &batch);
    weft_free(worst);
    return bytes;
}

/* Makes what all members need, and tells them where it is. */
static int open_common(struct chunk *c, struct weft_gen_state *state)
{
    struct weft_exec *x = c->member.exec;
    const struct weft_shape *shape = c->args->shape;
    int64_t n = state->n_slots, rows = n + c->args->gen.prefill_tokens;
    size_t run = sizeof *c->all->rows.run;
    char *at = weft_exec_scratch(
        x, sizeof *c->all + (size_t) n * run + (size_t) (rows + 2 * n) * 4
               + 5 * 64
               + weft_gen_drawn_scratch_bytes(shape, state->n_slots));
    if (!at)
        return WEFT_ENOMEM;
    c->all = weft_gen_carve(&at, sizeof *c->all);
    *c->all = (struct common){.view = weft_gen_view_of(state)};
    c->all->rows.run = weft_gen_carve(&at, (size_t) n * run);
    c->all->rows.token = weft_gen_carve(&at, (size_t) rows * 4);
    c->all->rows.sampled = weft_gen_carve(&at, (size_t) n * 4);
    c->all->last_row = weft_gen_carve(&at, (size_t) n * 4);
    weft_gen_drawn_at(shape, state->n_slots, &at, &c->all->drawn);
    weft_exec_shared(x)[0] = c->all;
    return 0;
}

static int open_own(struct chunk *c)
{
    const struct weft_shape *shape = c->args->shape;
    const struct weft_gen_state *state = c->all->view.state;
    struct weft_gang_member *m = &c->member;
    int64_t n = state->n_slots, rows = n + c->args->gen.prefill_tokens;
    m->roots = &c->all->roots;
    c->page_bytes = weft_k_part_kv_page_bytes(shape, m->range,
                                              shape->n_layers);
    int64_t layer = (int64_t) layer_scratch(m, state, rows);
    if (layer == 0)
        return weft_err_nomem(weft_exec_err(m->exec), "a decode step",
                              (size_t) n * sizeof(struct weft_k_run));
    size_t most = (size_t) weft_max64(
        layer, (int64_t) weft_gen_draw_own_bytes(shape, state->n_slots));
    size_t own = weft_gang_rows_bytes(m, rows);
    char *at = weft_exec_scratch(m->exec, own + most + 2 * 64);
    if (!at)
        return WEFT_ENOMEM;
    weft_gang_rows_at(m, rows, weft_gen_carve(&at, own));
    m->scratch = at;
    return 0;
}

/* A step's rows, computed and drawn. false: a member has failed. */
static bool step(const struct chunk *c)
{
    const struct common *all = c->all;
    const struct weft_gen_rows *rows = &all->rows;
    const struct weft_gen_state *state = all->view.state;
    struct weft_k_batch batch = {rows->n_rows, rows->n_runs, rows->run,
                                 rows->token, NULL};
    struct weft_k_kv kv = {c->arena, c->page_bytes, all->view.page,
                           state->pages_per_slot};
    weft_gen_copy_pages(NULL, state->n_copies, all->view.copy, &kv, 0,
                        c->page_bytes);
    weft_gen_clear_pages(rows->n_runs, rows->run, &kv, 0, c->page_bytes);
    return weft_gang_forward(&c->member, &c->weights, &batch, &kv)
        && weft_gen_draw_member(&c->member, &c->weights, &all->view,
                                &c->args->gen, rows->n_sampled, all->last_row,
                                rows->sampled, c->member.scratch,
                                &all->drawn);
}

/* Chooses a step's rows. */
static void begin(const struct chunk *c, struct weft_gen_status *status)
{
    weft_gen_plan_rows(&c->all->view, &c->args->gen, &c->all->rows, status);
    weft_gen_last_rows(&c->all->rows, c->all->last_row);
}

/* status: NULL but for the first member. */
static int steps(const struct chunk *c, struct weft_gen_status *status)
{
    int rc = 0;
    for (int32_t i = 0; i < c->args->gen.n_steps && !rc; i++) {
        if (status)
            begin(c, status);
        if (!weft_exec_meet(c->member.exec) || c->all->rows.n_rows == 0
            || !step(c))
            break;
        if (status) {
            status->n_decoded += c->all->rows.n_sampled;
            rc = weft_gen_put_drawn(&c->all->view, &c->args->gen,
                                    c->all->rows.n_sampled,
                                    c->all->rows.sampled, &c->all->drawn,
                                    weft_exec_err(c->member.exec));
        }
    }
    return rc;
}

int weft_gen_chunk_cpu(const void *args, void *const buf[], int n_buf,
                       struct weft_exec *x)
{
    struct chunk c = {.args = args};
    struct weft_take take = {buf, n_buf, 0};
    struct weft_gen_status *status = NULL;
    weft_gang_member_init(x, c.args->shape, &c.args->members, &c.member);
    int rc = 0;
    if (c.member.k == 0)
        rc = open_common(&c, weft_take(&take));
    c.arena = weft_take(&take);
    if (c.member.k == 0)
        status = weft_take(&take);
    weft_gang_take_weights(&take, c.args->shape, &c.args->members.layers,
                           c.member.range, weft_all_blocks(c.args->shape),
                           &c.weights);
    weft_take_end(&take);
    if (rc || !weft_exec_meet(x))
        return rc;
    c.all = weft_exec_shared(x)[0];
    rc = open_own(&c);
    if (rc)
        return rc;
    if (status) {
        *status = (struct weft_gen_status){
            .n_slots = c.all->view.state->n_slots};
        weft_gen_admit(&c.all->view, c.args);
    }
    rc = steps(&c, status);
    if (status)
        weft_gen_report(&c.all->view, 0, status);
    return rc;
}
