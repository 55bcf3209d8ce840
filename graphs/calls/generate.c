/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generation. A tp group on CPU devices of one place, or on GPUs of a rank
 * that may use one another's memory, like a single device, decodes a chunk of
 * steps in one task of each device (weft_insert_gang()). Where replicas have
 * several stages, a step's tokens must have passed the last one before the
 * next begins, so that the tasks are those of every step:
 *
 *     home: rows of the step -> stage 0 -> ... -> last: logits -> home: draw
 *
 * one for each member of a stage, if these are such devices; else each member
 * has tasks for its parts of every layer. There are as many instances as
 * stages, so that every stage has work.
 */
#include <stdlib.h>

#include "codelets/work.h"
#include "graphs/calls/generate_inside.h"
#include "graphs/calls/stage.h"

/* ---- Step by step ------------------------------------------------------ */

struct step {
    struct weft_g_generate *gen;
    const struct weft_g_view *view;
    struct weft_g_instance *instance;
    const struct weft_gen_args *args;
    struct weft_tile *status;
    struct weft_g_pass pass;
    struct weft_tile *batch;
    int32_t first_step, n_steps; /* of the chunk, that are inserted now */
};

/* What members of a stage do in these steps; NULL: not known. */
static const struct weft_work *work_of(const struct step *s,
                                       const struct weft_g_stage *stage,
                                       struct weft_work out[])
{
    const struct weft_g_pass *pass = &s->pass;
    if (!s->args->step || !weft_rt_keeps_gangs(pass->rt))
        return NULL;
    for (int32_t k = 0; k < stage->n; k++)
        out[k] = weft_work_steps(pass->shape, stage->member[k].blocks,
                                 stage->end - stage->first, stage->is_last,
                                 s->n_steps, s->args->step + s->first_step);
    return out;
}

static void layers(struct step *s, const struct weft_g_stage *stage,
                   const struct weft_g_value *batch,
                   const struct weft_g_value *x)
{
    struct weft_part_kv kv[WEFT_MAX_BLOCKS];
    int32_t tp = s->gen->layout.plan.tp;
    for (int32_t l = stage->first; l < stage->end; l++) {
        for (int32_t k = 0; k < tp; k++)
            kv[k] = (struct weft_part_kv){
                s->instance->arena[stage->index * tp + k], l - stage->first,
                stage->end - stage->first};
        weft_g_layer_forward(&(struct weft_g_layer){.pass = &s->pass,
                                                    .stage = stage,
                                                    .fwd = s->view->fwd,
                                                    .index = l,
                                                    .batch = batch,
                                                    .x = x,
                                                    .y = x,
                                                    .kv = kv});
    }
}

/* Where a GPU leaves what it draws in a step. */
static struct weft_tile *drawn_create(const struct step *s)
{
    return weft_g_temp(&s->pass, "tokens", WEFT_MEM_SAMPLES, -1,
                       weft_gen_drawn_bytes(s->gen->n_slots),
                       weft_tile_place(s->instance->state));
}

/* Puts that into the state, and releases the tile. */
static void settle(const struct step *s, const struct weft_g_member *home,
                   struct weft_tile *batch, struct weft_tile *drawn)
{
    struct weft_where where = weft_g_where_at(&s->pass, home);
    weft_insert_gen_settle(s->pass.seq, &where, s->args, s->gen->n_slots,
                           batch, drawn, s->instance->state, s->status);
    weft_tile_release(drawn);
}

/* parts: of the stage's first place. */
static void draw_on_gpu(struct step *s, const struct weft_g_member *home,
                        struct weft_tile *batch,
                        const struct weft_g_exchange *parts)
{
    const struct weft_g_pass *pass = &s->pass;
    int32_t n = s->gen->n_slots, place = weft_tile_place(s->instance->state);
    size_t bytes = weft_gen_draw_scratch_bytes(pass->shape, s->args, n);
    struct weft_tile *scratch = bytes > 0 ? weft_g_temp(pass, "sampling",
                                                        WEFT_MEM_ACTIVATIONS,
                                                        -1, bytes, place)
                                          : NULL;
    struct weft_tile *drawn = drawn_create(s);
    struct weft_where where = weft_g_where_at(pass, home);
    weft_insert_gen_draw(pass->seq, &where, pass->shape, s->args, n, batch,
                         parts->n[0], parts->part[0], scratch, drawn);
    settle(s, home, batch, drawn);
    weft_tile_release(scratch);
}

/* Members compute the logits of their vocabulary; then the last stage's first
 * member, which is the instance's home, draws the tokens. */
static void draw(struct step *s, const struct weft_g_stage *stage,
                 const struct weft_g_value *batch,
                 const struct weft_g_value *x)
{
    const struct weft_g_pass *pass = &s->pass;
    struct weft_tile *logits[WEFT_MAX_BLOCKS];
    struct weft_g_exchange parts;
    size_t bytes = (size_t) s->gen->n_slots * (size_t) pass->shape->vocab
                 * sizeof(float);
    struct weft_g_turn t = {0};
    while (weft_g_next_member(pass, stage, &t)) {
        logits[t.k] = weft_g_temp(pass, "logits", WEFT_MEM_ACTIVATIONS, -1,
                                  bytes, t.m->place);
        weft_insert_logits_part(pass->seq, &t.where, pass->shape, t.m->blocks,
                                &s->view->fwd[t.m->place], batch->at[t.p],
                                x->at[t.p], logits[t.k]);
    }
    weft_g_exchange(pass, stage, logits, batch, true, 0, 1, 1, &parts);
    if (s->gen->layout.on_gpus) {
        draw_on_gpu(s, &stage->member[0], batch->at[0], &parts);
    } else {
        struct weft_where where = weft_g_where_at(pass, &stage->member[0]);
        weft_insert_gen_sample(pass->seq, &where, pass->shape, s->args,
                               batch->at[0], parts.n[0], parts.part[0],
                               s->instance->state, s->status);
    }
    weft_g_exchange_release(&parts);
    weft_g_release_all(logits, stage->n);
}

/* Says what a step or chunk of a stage uses. */
static void list_step(const struct step *s, const struct weft_g_stage *stage,
                      const struct weft_g_value *batch,
                      const struct weft_g_value *x)
{
    const struct weft_g_pass *pass = &s->pass;
    int32_t tp = s->gen->layout.plan.tp;
    weft_gang_word(pass->rt, s->n_steps);
    weft_gang_word(pass->rt, (int64_t) weft_gen_draw_scratch_bytes(
                                 pass->shape, s->args, s->gen->n_slots));
    weft_g_gang_model(pass, stage, s->view->fwd);
    for (int32_t k = 0; k < tp; k++)
        weft_gang_tile(pass->rt, s->instance->arena[stage->index * tp + k]);
    for (int32_t k = 0; k < tp && s->gen->layout.is_gpu_gang; k++)
        weft_gang_tile(pass->rt,
                       s->instance->graphs[stage->index * tp + k].exchange);
    weft_g_gang_value(pass, stage, batch);
    weft_g_gang_value(pass, stage, x);
    if (stage->is_last) {
        weft_gang_tile(pass->rt, s->instance->state);
        weft_gang_tile(pass->rt, s->status);
    }
}

/* Says what members of GPUs read of one another's in the steps depends on. */
static void list_rows(const struct step *s)
{
    const struct weft_work_rows *step = s->args->step;
    int32_t end = s->first_step + s->n_steps;
    for (int32_t i = s->first_step;
         i < end && step && s->gen->layout.is_gpu_gang; i++)
        weft_gang_word(s->pass.rt,
                       (int64_t) step[i].n_rows << 32 | step[i].n_targets);
}

/* What each member of a stage has. */
static void list_members(const struct step *s,
                         const struct weft_g_stage *stage,
                         struct weft_gen_member out[])
{
    const struct weft_g_decode_graphs *graphs = s->instance->graphs;
    weft_assert(!graphs || s->args->prefill_tokens <= s->gen->prefill_tokens);
    for (int32_t k = 0; k < stage->n; k++) {
        int32_t i = stage->index * stage->n + k;
        out[k] = (struct weft_gen_member){
            .fwd = &s->view->fwd[stage->member[k].place],
            .arena = s->instance->arena[i],
            .exchange = graphs ? graphs[i].exchange : NULL,
            .graphs = graphs ? graphs[i].of : NULL};
    }
}

/* All of a stage as one task of each member. */
static void by_gang(struct step *s, const struct weft_g_stage *stage,
                    const struct weft_g_value *batch,
                    const struct weft_g_value *x)
{
    const struct weft_g_pass *pass = &s->pass;
    bool draws = stage->is_last && s->gen->layout.on_gpus;
    struct weft_gen_stage_tiles tiles = {.batch = batch->at[0],
                                         .x = x->at[0],
                                         .state = s->instance->state,
                                         .status = s->status,
                                         .drawn = draws ? drawn_create(s)
                                                        : NULL};
    struct weft_members members;
    list_members(s, stage, tiles.of);
    weft_g_stage_members(pass, stage, &members);
    weft_insert_gen_stage(pass->seq, &members, pass->shape, s->args,
                          s->gen->n_slots, &tiles);
    if (draws)
        settle(s, &stage->member[0], batch->at[0], tiles.drawn);
}

static void by_parts(struct step *s, const struct weft_g_stage *stage,
                     const struct weft_g_value *batch,
                     const struct weft_g_value *x)
{
    if (stage->is_first)
        weft_g_stage_embed(&s->pass, stage, s->view->fwd, batch, x);
    layers(s, stage, batch, x);
    if (stage->is_last)
        draw(s, stage, batch, x);
}

/* A decode step of a stage; several, where a recording joins them. */
static void stage_step(struct step *s, const struct weft_g_stage *stage,
                       const struct weft_g_value *batch,
                       const struct weft_g_value *x)
{
    const struct weft_g_pass *pass = &s->pass;
    struct weft_work work[WEFT_MAX_BLOCKS];
    const struct weft_g_gang gang = {"decode_step", -1,
                                     work_of(s, stage, work)};
    if (weft_g_gang_begin(pass, stage, &gang)) {
        list_step(s, stage, batch, x);
        list_rows(s);
        if (weft_g_gang_again(pass, &gang))
            return;
    }
    for (int32_t i = 0; i < s->n_steps; i++)
        (weft_g_generate_is_gang(&s->gen->layout) ? by_gang : by_parts)(
            s, stage, batch, x);
    weft_g_gang_end(pass, &gang);
}

/* Where a stage's rows are: at the places of its members, or where these read
 * one another's memory at the first one's. */
static struct weft_g_stage rows_at(const struct step *s,
                                   const struct weft_g_stage *stage)
{
    struct weft_g_stage at = *stage;
    if (s->gen->layout.is_gpu_gang)
        at.n_places = 1;
    return at;
}

static void through_stages(struct step *s)
{
    const struct weft_g_pass *pass = &s->pass;
    struct weft_g_stage stage, at, before = {.n = 0};
    struct weft_g_value x, previous = {.own = 0}, batch;
    int32_t home = weft_tile_place(s->instance->state);
    for (int32_t i = 0; i < s->gen->layout.plan.pp; i++) {
        weft_g_stage_get(&s->gen->layout, s->instance->dp, i, &stage);
        at = rows_at(s, &stage);
        weft_g_value_of_tile(pass, s->batch, home, &at, &batch);
        if (stage.is_first) {
            weft_g_value_rows(pass, &at, "activation", -1, &x);
        } else {
            weft_g_value_expect(pass, &before, &at, WEFT_MEM_ACTIVATIONS,
                                weft_g_rows_bytes(pass), &batch, &x);
            weft_g_value_fetch(pass, &before, &previous, &at, &x);
        }
        stage_step(s, &stage, &batch, &x);
        weft_g_value_release(&batch);
        weft_g_value_hand_over(&previous, &x);
        previous = x;
        before = at;
    }
    weft_g_value_release(&previous);
}

/* ---- Chunks ------------------------------------------------------------- */

/* One group alone has a step, and a chunk of them, as one instruction. */
static bool is_one_group(const struct step *s)
{
    return s->gen->layout.plan.pp == 1;
}

/* How many of the chunk's steps from `first` on are taken as one: those with
 * nearly as many rows, where a recording joins them. */
static int32_t n_joined(const struct step *s, int32_t first)
{
    const struct weft_work_rows *step = s->args->step;
    int32_t most = weft_rt_joined_steps(s->pass.rt), n = 1;
    if (is_one_group(s) || !step)
        return 1;
    int32_t rows = step[first].n_rows;
    while (n < most && first + n < s->args->n_steps
           && 8 * abs(step[first + n].n_rows - rows) <= rows)
        n++;
    return n;
}

static void chunk_by_steps(struct step *s, int32_t n_admit,
                           const struct weft_gen_admit *admit)
{
    const struct weft_g_generate *gen = s->gen;
    size_t bytes = weft_gen_step_bytes(s->args, gen->n_slots, gen->max_total);
    for (int32_t i = 0; i < s->args->n_steps; i += s->n_steps) {
        s->first_step = i;
        s->n_steps = n_joined(s, i);
        weft_rt_repeat(s->pass.rt, s->n_steps);
        if (is_one_group(s))
            weft_gang_begin(s->pass.rt, "decode_step", NULL);
        s->batch = weft_g_temp(&s->pass, "decode step", WEFT_MEM_SAMPLES, -1,
                               bytes, weft_tile_place(s->instance->state));
        struct weft_where where = weft_g_where_at(
            &s->pass, weft_g_generate_home(&gen->layout, s->instance->dp));
        where.priority = WEFT_PRIORITY_STEP;
        weft_insert_gen_begin(s->pass.seq, &where, s->args,
                              i == 0 ? n_admit : 0, admit, i == 0,
                              s->instance->state, s->status, s->batch);
        if (s->args->step)
            weft_tile_set_rows(s->batch, &s->args->step[i]);
        through_stages(s);
        weft_tile_release(s->batch);
        if (is_one_group(s))
            weft_gang_end(s->pass.rt, "decode_step", -1, NULL);
    }
    weft_rt_repeat(s->pass.rt, 1);
}

static void chunk_of_one_task(struct step *s, int32_t n_admit,
                              const struct weft_gen_admit *admit)
{
    const struct weft_g_generate *gen = s->gen;
    const struct weft_g_pass *pass = &s->pass;
    struct weft_gen_tiles tiles = {.state = s->instance->state,
                                   .status = s->status};
    struct weft_g_stage stage;
    struct weft_members members;
    if (gen->layout.on_gpus)
        tiles.steps = weft_g_temp(
            pass, "decode steps", WEFT_MEM_SAMPLES, -1,
            weft_gen_steps_bytes(s->args, gen->n_slots, gen->max_total),
            weft_tile_place(s->instance->state));
    weft_g_stage_get(&gen->layout, s->instance->dp, 0, &stage);
    list_members(s, &stage, tiles.of);
    weft_g_stage_members(pass, &stage, &members);
    weft_insert_gen_chunk(pass->seq, &members, pass->shape, s->args, n_admit,
                          admit, &tiles);
    weft_tile_release(tiles.steps);
}

static void chunk(struct step *s, int32_t n_admit,
                  const struct weft_gen_admit *admit)
{
    (weft_g_generate_is_one_task(&s->gen->layout)
         ? chunk_of_one_task
         : chunk_by_steps)(s, n_admit, admit);
}

static void chunk_of_group(struct step *s, int32_t n_admit,
                           const struct weft_gen_admit *admit)
{
    const struct weft_g_pass *pass = &s->pass;
    struct weft_work work[WEFT_MAX_BLOCKS];
    struct weft_g_stage stage;
    weft_g_stage_get(&s->gen->layout, s->instance->dp, 0, &stage);
    s->n_steps = s->args->n_steps;
    const struct weft_g_gang gang = {"decode_chunk", -1,
                                     work_of(s, &stage, work)};
    if (weft_g_gang_begin(pass, &stage, &gang)) {
        list_step(s, &stage, NULL, NULL);
        list_rows(s);
        if (weft_g_gang_again(pass, &gang))
            return;
    }
    chunk(s, n_admit, admit);
    weft_g_gang_end(pass, &gang);
}

/* The order in which an instance's steps run on each device, and its chain.
 * Instances of a replica do not wait for one another; where there are more of
 * them than chains, the others have no order but that of their data. */
static struct weft_g_order *order_of(const struct weft_g_generate *gen,
                                     int32_t index, int32_t *chain_out)
{
    int32_t chain = WEFT_CHAIN_GENERATE + gen->first_chain
                  + index / gen->layout.plan.dp;
    if (chain >= WEFT_N_CHAINS)
        return NULL;
    *chain_out = chain;
    return gen->model->order;
}

void weft_g_generate_chunk(struct weft_seq *seq, struct weft_g_generate *gen,
                           const struct weft_g_view *view, int32_t index,
                           const struct weft_gen_args *args, int32_t n_admit,
                           const struct weft_gen_admit *admit)
{
    struct weft_g_instance *instance = &gen->instance[index];
    const struct weft_g_model *model = gen->model;
    struct weft_where where = weft_g_generate_where(gen, instance,
                                                    args->iteration);
    where.micro_batch = (int32_t) instance->n_chunks;
    struct step s = {.gen = gen,
                     .view = view,
                     .instance = instance,
                     .args = args,
                     .status = instance->status[instance->n_chunks++ % 2],
                     .pass = {.rt = model->rt,
                              .seq = seq,
                              .name = model->name,
                              .shape = &model->shape,
                              .where = where,
                              .n_rows = gen->n_slots + args->prefill_tokens,
                              .n_targets = gen->n_slots}};
    if (!weft_g_generate_is_one_task(&gen->layout))
        s.pass.order = order_of(gen, index, &s.pass.where.chain);
    weft_g_generate_expect(gen, &s.pass, args);
    (is_one_group(&s) ? chunk_of_group : chunk)(&s, n_admit, admit);
}
