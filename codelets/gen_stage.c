/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A decode step in a stage, on GPUs or on CPU devices of one place: one task of
 * each member, for all layers of the stage. The rows of the step are planned
 * before the first stage (gen_step.c), and pass from stage to stage as a tile,
 * which the first member has; the last stage draws. CPU devices put what they
 * draw into the state; a GPU's task ends on its stream, and gen_settle follows.
 * What several GPUs do there is in gen_group_gpu.c.
 */
#include <string.h>

#include "codelets/gen_gpu.h"
#include "codelets/parts.h"
#include "codelets/work.h"

struct gen_stage_args {
    const struct weft_shape *shape;
    struct weft_gen_args gen;
    struct weft_gang_ranges members;
    int32_t n_slots;
    bool on_gpus;
};

/* In the first member's scratch memory. */
struct common {
    float *x; /* (n_rows, H) from the stage before */
    struct weft_gen_view view;
    struct weft_gen_drawn drawn;
    struct weft_gang_roots roots;
};

struct step {
    const struct gen_stage_args *args;
    const struct weft_batch *batch;
    struct weft_gang_member member;
    struct weft_gang_weights weights;
    struct weft_k_kv kv;
    struct common *all;
};

/* x, state: the first member's. */
static int open_common(struct step *s, float *x, struct weft_gen_state *state)
{
    const struct weft_shape *shape = s->args->shape;
    int32_t n = s->batch->n_targets;
    size_t drawn = state ? weft_gen_drawn_scratch_bytes(shape, n) : 0;
    char *at = weft_exec_scratch(s->member.exec, sizeof *s->all + 64 + drawn);
    if (!at)
        return WEFT_ENOMEM;
    s->all = weft_gen_carve(&at, sizeof *s->all);
    *s->all = (struct common){.x = x};
    if (state) {
        s->all->view = weft_gen_view_of(state);
        weft_gen_drawn_at(shape, n, &at, &s->all->drawn);
    }
    weft_exec_shared(s->member.exec)[0] = s->all;
    return 0;
}

static int open_own(struct step *s, const struct weft_k_batch *batch)
{
    const struct weft_shape *shape = s->args->shape;
    struct weft_gang_member *m = &s->member;
    size_t own = weft_gang_rows_bytes(m, batch->n_rows);
    size_t layer = weft_gang_scratch_bytes(m, batch);
    size_t draw = s->args->members.layers.is_last
                    ? weft_gen_draw_own_bytes(shape, s->batch->n_targets)
                    : 0;
    char *at = weft_exec_scratch(m->exec, own + (draw > layer ? draw : layer)
                                              + 2 * 64);
    if (!at)
        return WEFT_ENOMEM;
    m->roots = &s->all->roots;
    weft_gang_rows_at(m, batch->n_rows, weft_gen_carve(&at, own));
    m->scratch = at;
    weft_gang_rows_from(m, batch->n_rows, s->all->x);
    return 0;
}

static void open_cache(struct step *s)
{
    const struct weft_batch *b = s->batch;
    const struct weft_stage_layers *l = &s->args->members.layers;
    s->kv.page_bytes = weft_k_part_kv_page_bytes(
        s->args->shape, s->member.range, l->end - l->first);
    s->kv.page = weft_batch_at(b, b->page);
    s->kv.pages_per_slot = b->pages_per_slot;
    weft_gen_copy_pages(NULL, b->n_copies, weft_batch_at(b, b->copy), &s->kv,
                        0, s->kv.page_bytes);
    weft_gen_clear_pages(b->n_runs, weft_batch_at(b, b->run), &s->kv, 0,
                         s->kv.page_bytes);
}

/* The step's rows, if it has any. x, state: the first member's. */
static int compute(struct step *s, float *x, struct weft_gen_state *state)
{
    const struct weft_batch *b = s->batch;
    const struct weft_gang_member *m = &s->member;
    const struct weft_k_batch batch = weft_batch_view(b);
    const int32_t *slot = weft_batch_at(b, b->target);
    int rc = 0;
    if (b->n_rows == 0)
        return 0;
    if (m->k == 0)
        rc = open_common(s, x, state);
    if (rc || !weft_exec_meet(m->exec))
        return rc;
    s->all = weft_exec_shared(m->exec)[0];
    rc = open_own(s, &batch);
    if (rc)
        return rc;
    open_cache(s);
    if (!weft_gang_forward(m, &s->weights, &batch, &s->kv)
        || !s->args->members.layers.is_last
        || !weft_gen_draw_member(m, &s->weights, &s->all->view, &s->args->gen,
                                 b->n_targets, weft_batch_at(b, b->row), slot,
                                 m->scratch, &s->all->drawn))
        return 0;
    return m->k == 0 ? weft_gen_put_drawn(&s->all->view, &s->args->gen,
                                          b->n_targets, slot, &s->all->drawn,
                                          weft_exec_err(m->exec))
                     : 0;
}

static int gen_stage_cpu(const void *args_, void *const buf[], int n_buf,
                         struct weft_exec *exec)
{
    struct step s = {.args = args_};
    const struct weft_stage_layers *layers = &s.args->members.layers;
    struct weft_take take = {buf, n_buf, 0};
    weft_gang_member_init(exec, s.args->shape, &s.args->members, &s.member);
    bool lead = s.member.k == 0, last = lead && layers->is_last;
    s.batch = weft_take(&take);
    s.kv.arena = weft_take(&take);
    float *x = lead ? weft_take(&take) : NULL;
    struct weft_gen_state *state = last ? weft_take(&take) : NULL;
    struct weft_gen_status *status = last ? weft_take(&take) : NULL;
    weft_gang_take_weights(&take, s.args->shape, layers, s.member.range,
                           weft_all_blocks(s.args->shape), &s.weights);
    weft_take_end(&take);
    int rc = compute(&s, x, state);
    if (last) {
        struct weft_gen_view view = weft_gen_view_of(state);
        weft_gen_report(&view, s.batch->n_targets, status);
    }
    return rc;
}

/* Takes a member's buffers but those of g, and says what it tells the others;
 * drawn: NULL where it draws none. */
static struct weft_gen_told take_stage(const struct gen_stage_args *args,
                                       int k, struct weft_take *take,
                                       struct weft_gen_gpu *g,
                                       int32_t **drawn_out)
{
    const struct weft_stage_layers *layers = &args->members.layers;
    const struct weft_batch *batch = k == 0 ? weft_take(take) : NULL;
    struct weft_gen_told mine = {.n_slots = args->n_slots};
    if (k == 0) {
        mine.step = (const char *) batch;
        mine.step_bytes = batch->bytes;
    }
    g->kv.arena = weft_take(take);
    mine.exchange = args->members.n > 1 ? weft_take(take) : NULL;
    mine.passed = k == 0 ? weft_take(take) : NULL;
    *drawn_out = k == 0 && layers->is_last ? weft_take(take) : NULL;
    weft_gang_take_weights(take, args->shape, layers, g->range, g->range,
                           &g->weights);
    weft_take_end(take);
    return mine;
}

/* All that may keep others waiting comes before the members' last meeting;
 * then they only launch (gen_group_gpu.c). */
static int gen_stage_cuda(const void *args_, void *const buf[], int n_buf,
                          struct weft_exec *exec)
{
    const struct gen_stage_args *args = args_;
    int k = weft_exec_member(exec), rc = 0;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_gen_gpu g = {.shape = args->shape,
                             .gen = &args->gen,
                             .range = args->members.range[k]};
    int32_t *drawn;
    const struct weft_gen_told mine = take_stage(args, k, &take, &g, &drawn);
    if (!weft_gen_gpu_tell(&g, &args->members, &mine, exec, &rc)
        || weft_gen_gpu_is_idle(&g))
        return rc;
    rc = weft_gen_gpu_open(&g, exec);
    if (!rc)
        rc = weft_gen_gpu_prepare(&g, 0, exec);
    if (rc || g.has_failed || !weft_gen_group_begin(&g, exec))
        return rc;
    weft_gen_gpu_put(&g, 0, 1);
    if (drawn)
        weft_gen_gpu_get_step(&g, drawn);
    weft_gen_group_close(&g);
    (void) weft_gen_group_end(&g, exec);
    return weft_gpu_end(exec); /* has_failed: the runtime says what */
}

/* By the last stage and the others, as the head costs more. */
WEFT_CODELET_2(gen_stage, 0x66bb6a, gen_stage_cpu, gen_stage_cuda)
WEFT_CODELET_2(gen_last_stage, 0x9ccc65, gen_stage_cpu, gen_stage_cuda)

/* What a member uses; the first one has the rows, and what is drawn. */
static void add_member(struct weft_access_list *access,
                       const struct gen_stage_args *args, int32_t k,
                       const struct weft_gen_stage_tiles *tiles)
{
    const struct weft_stage_layers *layers = &args->members.layers;
    struct weft_range range = args->members.range[k];
    weft_access_list_init(access);
    if (k == 0 || !args->on_gpus)
        weft_access_list_add(access, tiles->batch, WEFT_READ);
    weft_access_list_add(access, tiles->of[k].arena, WEFT_READ_WRITE);
    weft_access_list_add_optional(access, tiles->of[k].exchange,
                                  WEFT_READ_WRITE);
    if (k == 0)
        weft_access_list_add(access, tiles->x,
                             layers->is_first ? WEFT_WRITE : WEFT_READ_WRITE);
    if (k == 0 && layers->is_last
        && !weft_access_list_add_optional(access, tiles->drawn, WEFT_WRITE)) {
        weft_access_list_add(access, tiles->state, WEFT_READ_WRITE);
        weft_access_list_add(access, tiles->status, WEFT_READ_WRITE);
    }
    weft_access_list_add_weights(access, args->shape, layers, range,
                                 args->on_gpus ? range
                                               : weft_all_blocks(args->shape),
                                 tiles->of[k].fwd);
}

void weft_insert_gen_stage(struct weft_seq *seq,
                           const struct weft_members *members,
                           const struct weft_shape *shape,
                           const struct weft_gen_args *gen, int32_t n_slots,
                           const struct weft_gen_stage_tiles *tiles)
{
    const struct weft_stage_layers *layers = &members->layers;
    struct gen_stage_args args = {.shape = shape,
                                  .gen = *gen,
                                  .members = weft_gang_ranges_of(members),
                                  .n_slots = n_slots,
                                  .on_gpus = tiles->of[0].graphs != NULL};
    struct weft_work_rows rows = weft_tile_rows(tiles->batch);
    if (!weft_seq_is_here(seq, &members->where[0]))
        return;
    args.gen.step = NULL;
    weft_insert_members(seq, members);
    for (int32_t k = 0; k < members->n; k++) {
        struct weft_access_list access;
        add_member(&access, &args, k, tiles);
        args.gen.graphs = tiles->of[k].graphs;
        if (gen->step)
            access.work = weft_work_steps(shape, members->range[k],
                                          layers->end - layers->first,
                                          layers->is_last, 1, &rows);
        if (gen->step && args.on_gpus && members->n > 1)
            weft_gen_exchange_work(shape, &args.members, k, 1, &rows,
                                   &access.work);
        weft_access_list_insert(&access, seq, &members->where[k],
                                layers->is_last ? &weft_cl_gen_last_stage
                                                : &weft_cl_gen_stage,
                                &args, sizeof args);
    }
}
