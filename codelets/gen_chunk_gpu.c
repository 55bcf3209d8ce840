/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chunk of decode steps at GPUs' places. The host plans the steps and puts
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
 *
 * The members of a tp group have a task each. The first one plans, waits and
 * ends texts; all put the same steps on their streams, which take their plans
 * from the first one's tile, and the tokens that it has drawn. Meetings are the
 * same in all of them: whether a member's steps are a loop, a graph each or
 * kernels, they have as many.
 */
#include "base/alloc.h"
#include "codelets/gen_gpu.h"
#include "codelets/parts.h"
#include "codelets/work.h"

struct chunk {
    const struct weft_gen_task *args;
    struct weft_exec *exec;
    struct weft_gen_gpu gpu;
    struct weft_gen_told *told; /* by the first member; the rest is its own */
    struct weft_gen_view view;
    struct weft_gen_status *status;
    int32_t *token; /* drawn: row j of step i is number i * n_slots + j */
    float *logp;
    int32_t *has_failed; /* of the group; behind them */
    int32_t first;       /* of the steps that have not been settled */
    int32_t put; /* the first that is planned and not on the stream yet */
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
    return 2 * drawn_bytes(gen, n_slots) + 64
         + (size_t) gen->n_steps
               * weft_gen_step_bytes(gen, n_slots, max_total);
}

/* What is the first member's alone. */
static void open_first(struct chunk *c, struct weft_gen_state *state,
                       char *steps, struct weft_gen_told *mine)
{
    const struct weft_gen_args *gen = &c->args->gen;
    int32_t n = state->n_slots;
    c->view = weft_gen_view_of(state);
    c->token = weft_gen_carve(&steps, drawn_bytes(gen, n));
    c->logp = weft_gen_carve(&steps, drawn_bytes(gen, n));
    c->has_failed = weft_gen_carve(&steps, sizeof *c->has_failed);
    mine->step = steps;
    mine->step_bytes = weft_gen_step_bytes(gen, n, state->max_total);
    mine->n_slots = n;
}

static int open_chunk(struct chunk *c, void *const buf[], int n_buf)
{
    const struct weft_gang_ranges *members = &c->args->members;
    int k = weft_exec_member(c->exec), rc = 0;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_gen_told mine = {.exchange = NULL};
    struct weft_gen_state *state = k == 0 ? weft_take(&take) : NULL;
    c->gpu = (struct weft_gen_gpu){.shape = c->args->shape,
                                   .gen = &c->args->gen,
                                   .range = members->range[k],
                                   .kv.arena = weft_take(&take)};
    mine.exchange = members->n > 1 ? weft_take(&take) : NULL;
    c->status = k == 0 ? weft_take(&take) : NULL;
    weft_gang_take_weights(&take, c->args->shape, &members->layers,
                           c->gpu.range, c->gpu.range, &c->gpu.weights);
    if (k == 0)
        open_first(c, state, weft_take(&take), &mine);
    weft_take_end(&take);
    c->told = weft_gen_gpu_tell(&c->gpu, members, &mine, c->exec, &rc);
    return c->told ? weft_gen_gpu_open(&c->gpu, c->exec) : rc;
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

/* Puts the steps that the first member has told on the stream, when all members
 * can. false: there are none, a member has failed, or *rc says what. */
static bool put_told(struct chunk *c, int *rc)
{
    if (!weft_exec_meet(c->exec))
        return false;
    int32_t first = c->told->first, end = c->told->end;
    if (first == end)
        return false;
    *rc = weft_gen_gpu_prepare(&c->gpu, first, c->exec);
    if (*rc || c->gpu.has_failed || !weft_gen_group_begin(&c->gpu, c->exec))
        return false;
    weft_gen_gpu_put(&c->gpu, first, end);
    weft_gen_group_close(&c->gpu);
    bool all = weft_gen_group_end(&c->gpu, c->exec);
    *rc = weft_gpu_end(c->exec);
    return all && !*rc && weft_k_has_launched_cuda();
}

/* Has all put the planned steps before `end` on their streams; the first of
 * those of which there is no graph yet by itself. */
static int put_steps(struct chunk *c, int32_t end)
{
    int rc = 0;
    if (c->put == end)
        return 0;
    int32_t n = weft_gen_launch_rows(step_of(c, c->put),
                                     c->view.state->n_slots);
    for (int32_t i = c->put; i < end; i++)
        weft_gen_fill_rows(step_of(c, i), n);
    while (c->put < end && !c->gpu.has_failed) {
        bool has_run = weft_gen_gpu_has_run(&c->gpu, c->put);
        c->told->first = c->put;
        c->told->end = c->put = has_run ? end : c->put + 1;
        c->gpu.has_failed |= !put_told(c, &rc);
    }
    return rc;
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
 * them. false: nobody has rows, or *rc says what. */
static bool plan_step(struct chunk *c, int32_t i, int *rc)
{
    struct weft_batch *b = step_of(c, i);
    weft_gen_begin_step(&c->view, &c->args->gen, c->status, b);
    if (b->n_rows == 0)
        return false;
    if (!joins(c, i))
        *rc = put_steps(c, i);
    name_sources(b);
    go_on(c, b, i * c->view.state->n_slots);
    return !*rc && !c->gpu.has_failed;
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

/* They have no more steps. false: one has failed. */
static bool end_others(struct chunk *c)
{
    c->told->first = c->told->end;
    return weft_exec_meet(c->exec);
}

/* Waits for the steps before `end`, and puts their tokens into the state. */
static int settle(struct chunk *c, int32_t end)
{
    int rc = put_steps(c, end);
    if (rc || c->gpu.has_failed)
        return rc;
    weft_gen_gpu_get(&c->gpu, c->first, end, c->token, c->logp,
                     c->has_failed);
    c->gpu.has_failed = !weft_k_wait_cuda(c->gpu.stream);
    if (c->gpu.has_failed)
        return 0;
    if (*c->has_failed) { /* a member that has says what */
        c->gpu.has_failed = true;
        return end_others(c) ? weft_gen_group_failed(weft_exec_err(c->exec))
                             : 0;
    }
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
                              c->token[row], c->logp[row],
                              weft_exec_err(c->exec));
        }
    }
    return rc;
}

/* The first member. */
static int lead(struct chunk *c)
{
    int32_t i = 0;
    int rc = 0;
    *c->status = (struct weft_gen_status){.n_slots = c->gpu.n_slots};
    weft_gen_admit(&c->view, c->args);
    for (; i < c->args->gen.n_steps; i++) {
        if (c->first < i && !weft_gen_has_room(&c->view))
            rc = settle(c, i);
        if (rc || c->gpu.has_failed || !plan_step(c, i, &rc))
            break;
    }
    if (!rc && !c->gpu.has_failed)
        rc = settle(c, i);
    if (!rc && !c->gpu.has_failed)
        end_others(c);
    weft_gen_report(&c->view, 0, c->status);
    return rc; /* has_failed: the runtime says what */
}

/* Another one. */
static int follow(struct chunk *c)
{
    int rc = 0;
    while (put_told(c, &rc))
        continue;
    return rc; /* nothing: the runtime says what, or all is well */
}

static int gen_chunk_cuda(const void *args, void *const buf[], int n_buf,
                          struct weft_exec *x)
{
    struct chunk c = {.args = args, .exec = x};
    int rc = open_chunk(&c, buf, n_buf);
    if (rc || !c.told)
        return rc;
    return weft_exec_member(x) == 0 ? lead(&c) : follow(&c);
}

WEFT_CODELET_2(gen_chunk, 0x66bb6a, weft_gen_chunk_cpu, gen_chunk_cuda)

/* What a member uses; the first one has the state. */
static void add_member(struct weft_access_list *access,
                       const struct weft_gen_task *task, int32_t k,
                       const struct weft_gen_tiles *tiles)
{
    const struct weft_gen_member *own = &tiles->of[k];
    struct weft_range range = task->members.range[k];
    weft_access_list_init(access);
    if (k == 0)
        weft_access_list_add(access, tiles->state, WEFT_READ_WRITE);
    weft_access_list_add(access, own->arena, WEFT_READ_WRITE);
    weft_access_list_add_optional(access, own->exchange, WEFT_READ_WRITE);
    if (k == 0)
        weft_access_list_add(access, tiles->status, WEFT_WRITE);
    weft_access_list_add_weights(
        access, task->shape, &task->members.layers, range,
        own->graphs ? range : weft_all_blocks(task->shape), own->fwd);
    if (k == 0)
        weft_access_list_add_optional(access, tiles->steps, WEFT_WRITE);
}

static void add_work(struct weft_access_list *access,
                     const struct weft_gen_task *task, int32_t k,
                     const struct weft_gen_args *gen)
{
    const struct weft_gang_ranges *members = &task->members;
    if (!gen->step)
        return;
    access->work = weft_work_steps(task->shape, members->range[k],
                                   task->shape->n_layers, true, gen->n_steps,
                                   gen->step);
    if (task->gen.graphs && members->n > 1)
        weft_gen_exchange_work(task->shape, members, k, gen->n_steps,
                               gen->step, &access->work);
}

void weft_insert_gen_chunk(struct weft_seq *seq,
                           const struct weft_members *members,
                           const struct weft_shape *shape,
                           const struct weft_gen_args *gen, int32_t n_admit,
                           const struct weft_gen_admit *admit,
                           const struct weft_gen_tiles *tiles)
{
    size_t bytes;
    if (!weft_seq_is_here(seq, &members->where[0]))
        return;
    struct weft_gen_task *task = weft_gen_task_create(shape, gen, n_admit,
                                                      admit, &bytes);
    task->members = weft_gang_ranges_of(members);
    weft_insert_members(seq, members);
    for (int32_t k = 0; k < members->n; k++) {
        struct weft_access_list access;
        add_member(&access, task, k, tiles);
        task->gen.graphs = tiles->of[k].graphs;
        add_work(&access, task, k, gen);
        weft_access_list_insert(&access, seq, &members->where[k],
                                &weft_cl_gen_chunk, task,
                                k == 0 ? bytes : sizeof *task);
    }
    weft_free(task);
}
