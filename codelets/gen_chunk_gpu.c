/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chunk of decode steps at a GPU's place. The host plans the steps and puts
 * them on the stream, where each takes the tokens that the one before has
 * drawn; it waits once, at the end, and then ends texts.
 *
 * Until then it takes it that no text ends before its limit. The GPU sees which
 * tokens are ends (kern/ends.h): a row of a text that has ended stays in its
 * place, as launches have their sizes, but attends to nothing, leaves nothing
 * in the cache and draws nothing. Rows of one that a text ends (rollout.stop)
 * go on, in pages of its own, and what is drawn for them is dropped. So who
 * stops, and where, is what it is on a CPU device. Where pages may not suffice
 * for a step, it waits before it plans it, and knows who has ended.
 *
 * Steps that follow one another in which every text has one row are one launch,
 * of as many rows as the first one has (gen_gpu.h).
 */
#include "base/alloc.h"
#include "codelets/gen_gpu.h"
#include "codelets/parts.h"
#include "codelets/work.h"

struct chunk {
    const struct weft_gen_task *args;
    struct weft_gen_gpu gpu;
    struct weft_gen_view view;
    struct weft_gen_status *status;
    int32_t *token; /* drawn: row j of step i is number i * n_slots + j */
    float *logp;
    int32_t first; /* of the steps that have not been settled */
    int32_t put;   /* the first that is planned and not on the stream yet */
};

/* ---- Memory ------------------------------------------------------------- */

/* Of tokens, or of log-probs, of all steps. */
static size_t drawn_bytes(const struct weft_gen_args *gen, int32_t n_slots)
{
    return (size_t) weft_round_up((int64_t) gen->n_steps * n_slots * 4, 64);
}

size_t weft_gen_steps_bytes(const struct weft_gen_args *gen, int32_t n_slots,
                            int32_t max_total)
{
    return 2 * drawn_bytes(gen, n_slots)
         + (size_t) gen->n_steps
               * weft_gen_step_bytes(gen, n_slots, max_total);
}

static int open_chunk(struct chunk *c, void *const buf[], int n_buf,
                      struct weft_exec *x)
{
    const struct weft_shape *shape = c->args->shape;
    const struct weft_gen_args *gen = &c->args->gen;
    struct weft_take take = {buf, n_buf, 0};
    c->view = weft_gen_view_of(weft_take(&take));
    const struct weft_gen_state *state = c->view.state;
    int32_t n = state->n_slots;
    c->gpu = (struct weft_gen_gpu){
        .shape = shape,
        .gen = gen,
        .n_slots = n,
        .has_chunk = true,
        .range = weft_all_blocks(shape),
        .group.n = 1,
        .kv.arena = weft_take(&take),
        .step_bytes = weft_gen_step_bytes(gen, n, state->max_total)};
    c->status = weft_take(&take);
    weft_gang_take_weights(&take, shape, &c->args->members.layers,
                           weft_all_blocks(shape), weft_all_blocks(shape),
                           &c->gpu.weights);
    char *steps = weft_take(&take);
    weft_take_end(&take);
    c->token = weft_gen_carve(&steps, drawn_bytes(gen, n));
    c->logp = weft_gen_carve(&steps, drawn_bytes(gen, n));
    c->gpu.step = steps;
    return weft_gen_gpu_open(&c->gpu, x);
}

static struct weft_batch *step_of(const struct chunk *c, int32_t i)
{
    return (void *) (uintptr_t) weft_gen_gpu_step(&c->gpu, i);
}

/* ---- Plans --------------------------------------------------------------- */

/* Whether step i can be put on the stream together with those that are not
 * there yet: with sizes of launches that are theirs. */
static bool joins(const struct chunk *c, int32_t i)
{
    const struct weft_batch *first = step_of(c, c->put), *b = step_of(c, i);
    return i == c->put
        || (weft_gen_is_decode(first) && weft_gen_is_decode(b)
            && b->n_copies == 0
            && b->n_rows
                   <= weft_gen_launch_rows(first, c->view.state->n_slots));
}

/* Puts the planned steps before `end` on the stream. */
static void put_steps(struct chunk *c, int32_t end)
{
    if (c->put == end)
        return;
    int32_t n = weft_gen_launch_rows(step_of(c, c->put),
                                     c->view.state->n_slots);
    for (int32_t i = c->put; i < end; i++)
        weft_gen_fill_rows(step_of(c, i), n);
    weft_gen_gpu_put(&c->gpu, c->put, end);
    c->put = end;
}

/* Where each row's token comes from, by which the GPU sees who has ended. */
static void name_sources(struct weft_batch *b)
{
    const int32_t *token = weft_batch_at(b, b->token);
    const int32_t *row = weft_batch_at(b, b->row);
    uint32_t *key = weft_batch_at(b, b->key);
    for (int32_t j = 0; j < b->n_targets; j++)
        key[4 * j + 3] = weft_k_row_after(key[4 * j + 3], token[row[j]]);
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
    struct weft_batch *b = step_of(c, i);
    weft_gen_begin_step(&c->view, &c->args->gen, c->status, b);
    if (b->n_rows == 0)
        return false;
    if (!joins(c, i))
        put_steps(c, i);
    name_sources(b);
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
    put_steps(c, end);
    weft_gen_gpu_get(&c->gpu, c->first, end, c->token, c->logp);
    int rc = weft_gpu_end(x);
    c->gpu.has_failed |= !weft_k_wait_cuda(c->gpu.stream);
    if (rc || c->gpu.has_failed)
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
        if (rc || c.gpu.has_failed || !plan_step(&c, i))
            break;
    }
    if (!rc && !c.gpu.has_failed)
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
                                 weft_all_blocks(shape), fwd);
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
