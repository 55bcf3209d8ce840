/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generation. A tp group on CPU devices of one place, like a single device,
 * decodes a chunk of steps in one task of each device (weft_insert_gang()). Any
 * other replica has tasks for every step, stage and member:
 *
 *     home: rows of the step -> stage 0 -> ... -> last: logits -> home: draw
 *
 * There are as many instances as stages, so that every stage has work.
 */
#include "base/alloc.h"
#include "graphs/calls/copies.h"
#include "graphs/calls/stage.h"
#include "plan/shares.h"

/* ---- Instances ---------------------------------------------------------- */

/* A chunk is a task of each member. */
static bool is_one_task(const struct weft_g_layout *layout)
{
    return layout->plan.pp == 1 && layout->is_gang;
}

/* The member of a replica that draws tokens. */
static const struct weft_g_member *home_of(const struct weft_g_layout *layout,
                                           int32_t dp)
{
    return weft_g_layout_member(layout, dp, layout->plan.pp - 1, 0);
}

static size_t arena_bytes(const struct weft_shape *shape,
                          const struct weft_g_layout *layout, int32_t stage,
                          const struct weft_g_member *member, int32_t pages)
{
    int32_t layers = layout->first_layer[stage + 1]
                   - layout->first_layer[stage];
    return (size_t) pages
         * weft_part_kv_page_bytes(shape, member->blocks, layers);
}

int32_t weft_g_generate_instances(const struct weft_g_layout *layout,
                                  int32_t n)
{
    return (int32_t) weft_min64(layout->plan.dp * layout->plan.pp, n);
}

int32_t weft_g_generate_share(const struct weft_g_layout *layout, int32_t n,
                              int32_t instance)
{
    const struct weft_call_plan *plan = &layout->plan;
    int32_t instances = weft_g_generate_instances(layout, n);
    if (plan->shares.n == 0 || instances < plan->dp)
        return (int32_t) weft_ceil_div(n, instances);
    int32_t mine = weft_plan_share(plan, n, instance % plan->dp).n;
    return (int32_t) weft_ceil_div(mine, instances / plan->dp);
}

int32_t weft_g_generate_slots(const struct weft_g_layout *layout, int32_t n)
{
    int32_t most = 0;
    for (int32_t i = 0; i < weft_g_generate_instances(layout, n); i++)
        most = weft_max32(most, weft_g_generate_share(layout, n, i));
    return most;
}

static int arenas_init(struct weft_g_generate *gen,
                       struct weft_g_instance *instance, struct weft_err *err)
{
    const struct weft_g_model *model = gen->model;
    const struct weft_call_plan *plan = &gen->layout.plan;
    size_t n = (size_t) (plan->pp * plan->tp);
    int rc = 0;
    instance->arena = weft_alloc(n, sizeof *instance->arena);
    if (!instance->arena)
        return weft_err_nomem(err, "generation", n * 8);
    for (int32_t s = 0; s < plan->pp; s++)
        for (int32_t k = 0; k < plan->tp && !rc; k++) {
            const struct weft_g_member *m = weft_g_layout_member(
                &gen->layout, instance->dp, s, k);
            struct weft_tile_id id = {model->name, "KV arena", 0,
                                      -1,          -1,         m->place};
            rc = weft_tile_create(
                model->rt, &id, WEFT_MEM_KV,
                arena_bytes(&model->shape, &gen->layout, s, m, gen->n_pages),
                &instance->arena[s * plan->tp + k], err);
        }
    return rc;
}

static int instance_init(struct weft_g_generate *gen, int32_t i,
                         struct weft_err *err)
{
    const struct weft_g_model *model = gen->model;
    struct weft_g_instance *instance = &gen->instance[i];
    instance->dp = i % gen->layout.plan.dp;
    const struct weft_g_member *home = home_of(&gen->layout, instance->dp);
    struct weft_tile_id id = {model->name, "decode state", 0, -1,
                              -1,          home->place};
    struct weft_gen_state layout;
    instance->home = home->device;
    weft_gen_state_layout(gen->n_slots, gen->max_total, gen->n_pages,
                          &layout);
    int rc = weft_tile_create(model->rt, &id, WEFT_MEM_SAMPLES, layout.bytes,
                              &instance->state, err);
    id.kind = "decode status";
    for (int k = 0; k < 2 && !rc; k++)
        rc = weft_tile_create(model->rt, &id, WEFT_MEM_SAMPLES,
                              weft_gen_status_bytes(gen->n_slots),
                              &instance->status[k], err);
    if (!rc && gen->layout.on_gpus && is_one_task(&gen->layout)) {
        instance->graphs = weft_gen_graphs_create(gen->n_slots);
        if (!instance->graphs)
            rc = weft_err_nomem(err, "generation", 1);
        id.kind = "CUDA graphs";
        if (!rc)
            rc = weft_tile_reserve(
                model->rt, &id, WEFT_MEM_ACTIVATIONS,
                weft_gen_graphs_bytes(&model->shape, gen->n_slots),
                &instance->graphs_memory, err);
    }
    return rc ? rc : arenas_init(gen, instance, err);
}

int weft_g_generate_init(const struct weft_g_model *model,
                         const struct weft_g_layout *layout,
                         int32_t max_instances, int32_t n_slots,
                         int32_t max_total, int32_t kv_blocks,
                         struct weft_g_generate *out, struct weft_err *err)
{
    int32_t n = weft_g_generate_instances(layout, max_instances);
    int32_t most = weft_gen_most_pages(n_slots, max_total);
    int32_t least = weft_gen_most_pages(1, max_total);
    *out = (struct weft_g_generate){
        .model = model, .n_slots = n_slots, .max_total = max_total};
    if (kv_blocks > 0 && kv_blocks < least)
        return weft_err_set(err, WEFT_EINVAL,
                            "a KV cache of %d blocks is too small "
                            "(rollout.kv_blocks, --kv-blocks): a text of %d "
                            "tokens needs %d blocks of %d tokens",
                            kv_blocks, max_total, least, WEFT_PAGE_TOKENS);
    out->n_pages = kv_blocks > 0 && kv_blocks < most ? kv_blocks : most;
    int rc = weft_g_layout_copy(layout, &out->layout, err);
    out->instance = weft_alloc((size_t) n, sizeof *out->instance);
    if (!rc && !out->instance)
        rc = weft_err_nomem(err, "generation",
                            (size_t) n * sizeof *out->instance);
    for (int32_t i = 0; i < n && !rc; i++) {
        out->n_instances++;
        rc = instance_init(out, i, err);
    }
    return rc;
}

void weft_g_generate_release(struct weft_g_generate *gen)
{
    int32_t arenas = gen->layout.plan.pp * gen->layout.plan.tp;
    for (int32_t i = 0; i < gen->n_instances; i++) {
        struct weft_g_instance *instance = &gen->instance[i];
        weft_tile_release(instance->state);
        for (int32_t k = 0; instance->arena && k < arenas; k++)
            weft_tile_release(instance->arena[k]);
        weft_free(instance->arena);
        weft_gen_graphs_free(instance->graphs);
        weft_tile_release(instance->graphs_memory);
        weft_tile_release(instance->status[0]);
        weft_tile_release(instance->status[1]);
    }
    weft_free(gen->instance);
    weft_g_layout_release(&gen->layout);
    *gen = (struct weft_g_generate){0};
}

int32_t weft_g_generate_place(const struct weft_g_generate *gen,
                              int32_t instance)
{
    return weft_tile_place(gen->instance[instance].state);
}

/* On a device chunks have priority over inference, as the next phase waits for
 * generation. */
static struct weft_where where_of(const struct weft_g_generate *gen,
                                  const struct weft_g_instance *instance,
                                  int32_t iteration)
{
    return (struct weft_where){.device = instance->home,
                               .priority = WEFT_PRIORITY_GENERATE,
                               .call = gen->call,
                               .iteration = iteration,
                               .micro_batch = -1,
                               .layer = -1};
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
    struct weft_tile *drawn = weft_g_temp(pass, "tokens", WEFT_MEM_SAMPLES,
                                          -1, weft_gen_drawn_bytes(n), place);
    struct weft_where where = weft_g_where_at(pass, home);
    weft_insert_gen_draw(pass->seq, &where, pass->shape, s->args, n, batch,
                         parts->n[0], parts->part[0], s->instance->state,
                         scratch, drawn);
    where = weft_g_where_at(pass, home);
    weft_insert_gen_settle(pass->seq, &where, s->args, n, batch, drawn,
                           s->instance->state, s->status);
    weft_tile_release(scratch);
    weft_tile_release(drawn);
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
    weft_gang_word(pass->rt, (int64_t) weft_gen_draw_scratch_bytes(
                                 pass->shape, s->args, s->gen->n_slots));
    weft_g_gang_model(pass, stage, s->view->fwd);
    for (int32_t k = 0; k < tp; k++)
        weft_gang_tile(pass->rt, s->instance->arena[stage->index * tp + k]);
    weft_g_gang_value(pass, stage, batch);
    weft_g_gang_value(pass, stage, x);
    if (stage->is_last) {
        weft_gang_tile(pass->rt, s->instance->state);
        weft_gang_tile(pass->rt, s->status);
    }
}

/* A decode step of a stage. */
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
        if (weft_g_gang_again(pass, &gang))
            return;
    }
    if (stage->is_first)
        weft_g_stage_embed(pass, stage, s->view->fwd, batch, x);
    layers(s, stage, batch, x);
    if (stage->is_last)
        draw(s, stage, batch, x);
    weft_g_gang_end(pass, &gang);
}

static void through_stages(struct step *s)
{
    const struct weft_g_pass *pass = &s->pass;
    struct weft_g_stage stage, before = {.n = 0};
    struct weft_g_value x, previous = {{NULL}, {false}}, batch;
    int32_t home = weft_tile_place(s->instance->state);
    for (int32_t i = 0; i < s->gen->layout.plan.pp; i++) {
        weft_g_stage_get(&s->gen->layout, s->instance->dp, i, &stage);
        weft_g_value_of_tile(pass, s->batch, home, &stage, &batch);
        if (stage.is_first) {
            weft_g_value_rows(pass, &stage, "activation", &x);
        } else {
            weft_g_value_expect(pass, &before, &stage, WEFT_MEM_ACTIVATIONS,
                                weft_g_rows_bytes(pass), &batch, &x);
            weft_g_value_fetch(pass, &before, &previous, &stage, &x);
        }
        stage_step(s, &stage, &batch, &x);
        weft_g_value_release(&batch);
        weft_g_value_hand_over(&previous, &x);
        previous = x;
        before = stage;
    }
    weft_g_value_release(&previous);
}

/* ---- Chunks ------------------------------------------------------------- */

/* One group alone has a step, and a chunk of them, as one instruction. */
static bool is_one_group(const struct step *s)
{
    return s->gen->layout.plan.pp == 1;
}

static void chunk_by_steps(struct step *s, int32_t n_admit,
                           const struct weft_gen_admit *admit)
{
    const struct weft_g_generate *gen = s->gen;
    int32_t rows = gen->n_slots + s->args->prefill_tokens;
    struct weft_batch layout;
    weft_step_layout(
        rows, gen->n_slots,
        (int32_t) weft_ceil_div(gen->max_total, WEFT_PAGE_TOKENS), &layout);
    for (int32_t i = 0; i < s->args->n_steps; i++) {
        s->first_step = i;
        s->n_steps = 1;
        if (is_one_group(s))
            weft_gang_begin(s->pass.rt, "decode_step", NULL);
        s->batch = weft_g_temp(&s->pass, "decode step", WEFT_MEM_SAMPLES, -1,
                               layout.bytes,
                               weft_tile_place(s->instance->state));
        struct weft_where where = weft_g_where_at(
            &s->pass, home_of(&gen->layout, s->instance->dp));
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
}

static void chunk_of_one_task(struct step *s, int32_t n_admit,
                              const struct weft_gen_admit *admit)
{
    const struct weft_g_generate *gen = s->gen;
    const struct weft_g_pass *pass = &s->pass;
    int32_t place = weft_tile_place(s->instance->state);
    struct weft_tile *steps = NULL;
    struct weft_gen_args args = *s->args;
    args.graphs = s->instance->graphs;
    if (gen->layout.on_gpus)
        steps = weft_g_temp(
            pass, "decode steps", WEFT_MEM_SAMPLES, -1,
            weft_gen_steps_bytes(s->args, gen->n_slots, gen->max_total),
            place);
    struct weft_where where[WEFT_MAX_BLOCKS];
    struct weft_range range[WEFT_MAX_BLOCKS];
    const struct weft_gen_tiles tiles = {s->instance->state, s->status,
                                         s->instance->arena, steps};
    for (int32_t k = 0; k < gen->layout.plan.tp; k++) {
        const struct weft_g_member *m = weft_g_layout_member(
            &gen->layout, s->instance->dp, 0, k);
        where[k] = pass->where;
        where[k].device = m->device;
        range[k] = m->blocks;
    }
    weft_insert_gen_chunk(pass->seq, gen->layout.plan.tp, where, range,
                          pass->shape, &s->view->fwd[place], &args, n_admit,
                          admit, &tiles);
    weft_tile_release(steps);
}

static void chunk(struct step *s, int32_t n_admit,
                  const struct weft_gen_admit *admit)
{
    (is_one_task(&s->gen->layout) ? chunk_of_one_task
                                  : chunk_by_steps)(s, n_admit, admit);
}

/* Says what of a GPU's memory tasks take, for predictions. */
static void expect_scratch(const struct step *s)
{
    const struct weft_g_generate *gen = s->gen;
    const struct weft_g_pass *pass = &s->pass;
    if (!is_one_task(&gen->layout))
        weft_g_pass_expect(pass, &gen->layout, gen->n_slots, false);
    else if (gen->layout.on_gpus && weft_rt_is_dry(pass->rt))
        weft_rt_expect_scratch(pass->rt, weft_gen_chunk_scratch_bytes(
                                             pass->shape, s->args,
                                             gen->n_slots, gen->max_total));
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
        weft_gang_word(pass->rt, s->args->n_steps);
        list_step(s, &stage, NULL, NULL);
        if (weft_g_gang_again(pass, &gang))
            return;
    }
    chunk(s, n_admit, admit);
    weft_g_gang_end(pass, &gang);
}

void weft_g_generate_chunk(struct weft_seq *seq, struct weft_g_generate *gen,
                           const struct weft_g_view *view, int32_t index,
                           const struct weft_gen_args *args, int32_t n_admit,
                           const struct weft_gen_admit *admit)
{
    struct weft_g_instance *instance = &gen->instance[index];
    const struct weft_g_model *model = gen->model;
    struct weft_where where = where_of(gen, instance, args->iteration);
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
    if (!is_one_task(&gen->layout))
        s.pass.order = order_of(gen, index, &s.pass.where.chain);
    expect_scratch(&s);
    (is_one_group(&s) ? chunk_of_group : chunk)(&s, n_admit, admit);
}

/* ---- Samples that leave and move ---------------------------------------- */

void weft_g_generate_retire(struct weft_seq *seq,
                            const struct weft_g_generate *gen, int32_t index,
                            int32_t slot, int32_t iteration,
                            struct weft_tile *rollout)
{
    const struct weft_g_instance *instance = &gen->instance[index];
    struct weft_where where = where_of(gen, instance, iteration);
    where.priority = WEFT_PRIORITY_SAMPLE;
    weft_insert_gen_retire(seq, &where, slot, false, instance->state,
                           rollout);
}

/* A sample that moves, or its cache, as it leaves and where it goes. */
struct moving {
    struct weft_tile *tile, *copy;
};

static int moving_init(const struct weft_g_generate *gen, int32_t at,
                       const char *kind, enum weft_mem_class c, size_t bytes,
                       struct moving *out, struct weft_err *err)
{
    const struct weft_tile_id id = {gen->model->name, kind, 0, -1, -1, at};
    out->copy = NULL;
    return weft_tile_create_temp(gen->model->rt, &id, c, bytes, &out->tile,
                                 err);
}

/* The tile there; NULL: the sequence has failed. */
static struct weft_tile *arrive(struct weft_seq *seq,
                                const struct weft_where *where,
                                const struct weft_g_generate *gen,
                                enum weft_mem_class c, const char *kind,
                                int32_t place, struct moving *m)
{
    if (weft_tile_place(m->tile) == place)
        return m->tile;
    m->copy = weft_g_copy_to(seq, where, gen->model->rt, m->tile, c, kind,
                             place);
    return m->copy;
}

static void moving_release(struct moving *m)
{
    weft_tile_release(m->copy);
    weft_tile_release(m->tile);
}

bool weft_g_generate_caches_move(const struct weft_g_generate *gen)
{
    int32_t n = gen->layout.plan.pp * gen->layout.plan.tp;
    bool same = !gen->layout.on_gpus && n <= WEFT_GEN_ARENAS;
    for (int32_t i = 0; i < gen->n_instances && same; i++)
        for (int32_t k = 0; k < n; k++)
            same = same
                && weft_tile_place(gen->instance[i].arena[k])
                       == weft_g_generate_place(gen, i);
    return same;
}

int32_t weft_g_generate_moved_pages(const struct weft_g_generate *gen)
{
    return weft_max32(weft_gen_most_pages(1, gen->max_total),
                      gen->n_pages / 8);
}

int weft_g_generate_move(struct weft_seq *seq,
                         const struct weft_g_generate *gen, int32_t from,
                         int32_t from_slot, int32_t iteration,
                         int32_t n_total, int32_t to,
                         const struct weft_gen_admit *admit, bool cache,
                         struct weft_err *err)
{
    const struct weft_g_instance *a = &gen->instance[from];
    const struct weft_g_instance *b = &gen->instance[to];
    int32_t at = weft_tile_place(a->state), there = weft_tile_place(b->state);
    int32_t n = gen->layout.plan.pp * gen->layout.plan.tp;
    struct weft_where where = where_of(gen, a, iteration);
    struct moving sample, kv = {NULL, NULL};
    struct weft_tile *tile;
    int rc = moving_init(gen, at, "moved sample", WEFT_MEM_SAMPLES,
                         weft_rollout_bytes(n_total), &sample, err);
    if (!rc && cache)
        rc = moving_init(
            gen, at, "moved KV", WEFT_MEM_KV,
            weft_gen_cache_bytes(n, a->arena, gen->n_pages, n_total), &kv,
            err);
    if (rc) {
        moving_release(&sample);
        return rc;
    }
    where.priority = WEFT_PRIORITY_SAMPLE;
    if (cache)
        weft_insert_gen_pack(seq, &where, from_slot, a->state, n, a->arena,
                             gen->n_pages, kv.tile);
    weft_insert_gen_retire(seq, &where, from_slot, true, a->state,
                           sample.tile);
    where = where_of(gen, b, iteration);
    where.priority = WEFT_PRIORITY_SAMPLE;
    tile = arrive(seq, &where, gen, WEFT_MEM_SAMPLES, "moved sample", there,
                  &sample);
    if (tile)
        weft_insert_gen_enter(seq, &where, admit->slot, admit->sample,
                              admit->limit, tile, b->state);
    tile = cache
             ? arrive(seq, &where, gen, WEFT_MEM_KV, "moved KV", there, &kv)
             : NULL;
    if (tile)
        weft_insert_gen_unpack(seq, &where, admit->slot, tile, b->state, n,
                               b->arena, gen->n_pages);
    moving_release(&kv);
    moving_release(&sample);
    return 0;
}
