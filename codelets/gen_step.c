/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One decode step of an instance that several devices serve. One task chooses
 * the rows before the members' layers; after these each member computes the
 * logits of its vocabulary range, and one task draws the tokens.
 */
#include <string.h>

#include "base/alloc.h"
#include "codelets/gen.h"
#include "codelets/gpu.h"
#include "codelets/member.h"

static void key_rows(const struct weft_gen_view *view,
                     const struct weft_gen_args *gen,
                     const struct weft_batch *b)
{
    const int32_t *index = weft_batch_at(b, b->target);
    uint32_t *key = weft_batch_at(b, b->key);
    for (int32_t i = 0; i < b->n_targets; i++, key += 4) {
        const struct weft_gen_slot *slot = &view->slot[index[i]];
        key[0] = (uint32_t) gen->iteration;
        key[1] = (uint32_t) (gen->first_sample + slot->sample);
        key[2] = (uint32_t) slot->n_total;
        key[3] = weft_gen_is_held(gen, slot) ? WEFT_K_ROW_IS_HELD
                                             : WEFT_K_ROW_IS_OPEN;
    }
}

void weft_gen_fill_rows(const struct weft_batch *b, int32_t end)
{
    struct weft_k_run *run = weft_batch_at(b, b->run);
    int32_t *token = weft_batch_at(b, b->token);
    int32_t *row = weft_batch_at(b, b->row);
    uint32_t *key = weft_batch_at(b, b->key);
    for (int32_t i = b->n_rows; i < end; i++) {
        run[i] = (struct weft_k_run){0};
        token[i] = 0;
        row[i] = i;
        memset(key + 4 * (size_t) i, 0, 4 * sizeof *key);
    }
}

void weft_gen_begin_step(const struct weft_gen_view *view,
                         const struct weft_gen_args *gen,
                         struct weft_gen_status *status, struct weft_batch *b)
{
    const struct weft_gen_state *state = view->state;
    struct weft_gen_rows rows = {0};
    weft_step_layout(state->n_slots + gen->prefill_tokens, state->n_slots,
                     state->pages_per_slot, b);
    rows.run = weft_batch_at(b, b->run);
    rows.token = weft_batch_at(b, b->token);
    rows.sampled = weft_batch_at(b, b->target);
    weft_gen_plan_rows(view, gen, &rows, status);
    b->n_rows = rows.n_rows;
    b->n_runs = rows.n_runs;
    b->n_targets = rows.n_sampled;
    weft_gen_last_rows(&rows, weft_batch_at(b, b->row));
    b->n_copies = state->n_copies;
    memcpy(weft_batch_at(b, b->page), view->page,
           (size_t) state->n_slots * (size_t) state->pages_per_slot * 4);
    memcpy(weft_batch_at(b, b->copy), view->copy,
           (size_t) state->n_copies * 2 * 4);
    key_rows(view, gen, b);
    weft_gen_fill_rows(b, weft_gen_launch_rows(b, state->n_slots));
}

static int gen_begin_cpu(const void *args, void *const buf[], int n_buf,
                         struct weft_exec *x)
{
    (void) x;
    const struct weft_gen_task *task = args;
    weft_assert(n_buf == 3);
    struct weft_gen_view view = weft_gen_view_of(buf[0]);
    struct weft_gen_status *status = buf[1];
    if (task->first)
        *status = (struct weft_gen_status){.n_slots = view.state->n_slots};
    weft_gen_admit(&view, task);
    weft_gen_begin_step(&view, &task->gen, status, buf[2]);
    return 0;
}

WEFT_CODELET(gen_begin, 0x66bb6a, gen_begin_cpu)

void weft_insert_gen_begin(struct weft_seq *seq,
                           const struct weft_where *where,
                           const struct weft_gen_args *gen, int32_t n_admit,
                           const struct weft_gen_admit *admit, bool first,
                           struct weft_tile *state, struct weft_tile *status,
                           struct weft_tile *batch)
{
    size_t bytes;
    if (!weft_seq_is_here(seq, where))
        return;
    struct weft_gen_task *task = weft_gen_task_create(NULL, gen, n_admit,
                                                      admit, &bytes);
    task->first = first;
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, state, WEFT_READ_WRITE);
    weft_access_list_add(&access, status,
                         first ? WEFT_WRITE : WEFT_READ_WRITE);
    weft_access_list_add(&access, batch, WEFT_WRITE);
    weft_access_list_insert(&access, seq, where, &weft_cl_gen_begin, task,
                            bytes);
    weft_free(task);
}

static int logits_part(const void *args_, void *const buf[], int n_buf,
                       struct weft_exec *x)
{
    const struct weft_member_args *args = args_;
    const struct weft_shape *shape = args->shape;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_k_layer tiles = {0};
    struct weft_k_head head = {0};
    weft_take_member(&take, args->range, false, &tiles);
    memcpy(head.fwd, tiles.fwd, sizeof head.fwd);
    head.final = tiles.norms;
    const struct weft_batch *b = weft_take(&take);
    const float *in = weft_take(&take);
    float *logits = weft_take(&take);
    weft_take_end(&take);
    int32_t n = b->n_targets;
    if (n == 0)
        return 0;
    const int32_t *index = weft_batch_at(b, b->row);
    struct CUstream_st *stream = weft_exec_stream(x);
    if (WEFT_ON_GPU(stream)) {
        struct weft_k_targets targets;
        void *scratch = weft_gpu_head_scratch(
            x, b, weft_k_head_scratch_bytes_cuda(shape, n, false), &targets);
        if (!scratch)
            return weft_gpu_failed(x);
        weft_k_head_logits_cuda(stream, shape, args->range, &head, n,
                                targets.row, in, logits, scratch);
        return weft_gpu_end(x);
    }
    size_t row = (size_t) shape->hidden * sizeof(float);
    size_t rows = (size_t) weft_round_up((int64_t) ((size_t) n * row), 64);
    char *last = weft_exec_scratch(
        x, rows + weft_k_head_scratch_bytes(shape, n));
    if (!last)
        return WEFT_ENOMEM;
    for (int32_t i = 0; i < n; i++)
        memcpy(last + (size_t) i * row,
               in + (int64_t) index[i] * shape->hidden, row);
    weft_k_head_logits_part(shape, args->range, &head, n,
                            (const float *) (void *) last, logits,
                            last + rows);
    return 0;
}

WEFT_CODELET_2(logits_part, 0xdce775, logits_part, logits_part)

void weft_insert_logits_part(struct weft_seq *seq,
                             const struct weft_where *where,
                             const struct weft_shape *shape,
                             struct weft_range range,
                             const struct weft_params *fwd,
                             struct weft_tile *batch, struct weft_tile *x,
                             struct weft_tile *logits)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct weft_member_args args = {.shape = shape, .range = range};
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add_member(&access, range, &fwd->head, NULL);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add(&access, x, WEFT_READ);
    weft_access_list_add(&access, logits, WEFT_WRITE);
    struct weft_work_rows rows = weft_tile_rows(batch);
    access.work = weft_work_head(shape, range, 1, &rows);
    weft_access_list_insert(&access, seq, where, &weft_cl_logits_part, &args,
                            sizeof args);
}

struct sample_args {
    struct weft_join_args join;
    struct weft_gen_args gen;
};

/* Copies the columns of all members' tiles into rows of all columns. */
static void gather(const struct weft_join_args *join, int32_t n,
                   struct weft_take *take, float *logits)
{
    int64_t v = join->shape->vocab;
    for (int i = 0; i < join->n_parts; i++) {
        const float *from = weft_take(take);
        int32_t first, columns;
        weft_k_vocab_range(join->shape, join->range[i], &first, &columns);
        for (int64_t r = 0; r < n; r++)
            memcpy(logits + r * v + first, from + r * v + first,
                   (size_t) columns * sizeof *from);
    }
}

static int gen_sample_cpu(const void *args_, void *const buf[], int n_buf,
                          struct weft_exec *x)
{
    const struct sample_args *args = args_;
    const struct weft_shape *shape = args->join.shape;
    struct weft_take take = {buf, n_buf, 0};
    const struct weft_batch *b = weft_take(&take);
    struct weft_gen_view view = weft_gen_view_of(weft_take(&take));
    struct weft_gen_status *status = weft_take(&take);
    int32_t n = b->n_targets;
    size_t v = (size_t) shape->vocab;
    size_t bytes = ((size_t) n * v * 4 + 63) / 64 * 64;
    char *scratch = weft_exec_scratch(x, bytes + v * 8);
    if (!scratch)
        return WEFT_ENOMEM;
    gather(&args->join, n, &take, (float *) (void *) scratch);
    weft_take_end(&take);
    int rc = weft_gen_draw(
        &view, shape, &args->gen, n, weft_batch_at(b, b->target),
        (float *) (void *) scratch, scratch + bytes, weft_exec_err(x));
    weft_gen_report(&view, n, status);
    return rc;
}

WEFT_CODELET(gen_sample, 0x9ccc65, gen_sample_cpu)

void weft_insert_gen_sample(struct weft_seq *seq,
                            const struct weft_where *where,
                            const struct weft_shape *shape,
                            const struct weft_gen_args *gen,
                            struct weft_tile *batch, int n_parts,
                            const struct weft_part_tile logits[],
                            struct weft_tile *state, struct weft_tile *status)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct sample_args args = {weft_join_args_of(shape, n_parts, logits),
                               *gen};
    args.gen.step = NULL;
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add(&access, state, WEFT_READ_WRITE);
    weft_access_list_add(&access, status, WEFT_READ_WRITE);
    weft_access_list_add_parts(&access, n_parts, logits);
    weft_access_list_insert(&access, seq, where, &weft_cl_gen_sample, &args,
                            sizeof args);
}
