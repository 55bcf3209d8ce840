/* SPDX-License-Identifier: Apache-2.0 */
/* The instances of generation: their tiles, and how samples are shared out. */
#include "base/alloc.h"
#include "codelets/parts.h"
#include "graphs/calls/generate_inside.h"
#include "graphs/calls/stage.h"
#include "plan/shares.h"

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

static int member_graphs_init(const struct weft_g_generate *gen,
                              const struct weft_g_stage *stage, int32_t k,
                              struct weft_g_decode_graphs *out,
                              struct weft_err *err)
{
    const struct weft_g_model *model = gen->model;
    const struct weft_g_member *m = &stage->member[k];
    const struct weft_stage_layers layers = weft_g_stage_layers(stage);
    struct weft_tile_id id = {model->name, "CUDA graphs", 0, -1,
                              -1,          m->place};
    out->of = weft_gen_graphs_create(gen->n_slots);
    if (!out->of)
        return weft_err_nomem(err, "generation", 1);
    int rc = weft_tile_reserve(model->rt, &id, WEFT_MEM_ACTIVATIONS,
                               weft_gen_graphs_bytes(&model->shape, &layers,
                                                     m->blocks, gen->n_slots),
                               &out->memory, err);
    id.kind = "exchange";
    if (!rc && stage->n > 1)
        rc = weft_tile_create(
            model->rt, &id, WEFT_MEM_ACTIVATIONS,
            weft_gen_exchange_bytes(&model->shape, &layers, m->blocks,
                                    gen->n_slots + gen->prefill_tokens,
                                    gen->n_slots),
            &out->exchange, err);
    return rc;
}

static int graphs_init(struct weft_g_generate *gen,
                       struct weft_g_instance *instance, struct weft_err *err)
{
    const struct weft_call_plan *plan = &gen->layout.plan;
    size_t n = (size_t) (plan->pp * plan->tp);
    int rc = 0;
    instance->graphs = weft_alloc(n, sizeof *instance->graphs);
    if (!instance->graphs)
        return weft_err_nomem(err, "generation", n);
    for (int32_t s = 0; s < plan->pp; s++)
        for (int32_t k = 0; k < plan->tp && !rc; k++) {
            struct weft_g_stage stage;
            weft_g_stage_get(&gen->layout, instance->dp, s, &stage);
            rc = member_graphs_init(gen, &stage, k,
                                    &instance->graphs[s * plan->tp + k], err);
        }
    return rc;
}

/* Whether members are GPUs whose steps, or chunks of them, are tasks. */
static bool has_graphs(const struct weft_g_layout *layout)
{
    return layout->on_gpus && (layout->is_gang || layout->is_gpu_gang);
}

static int instance_init(struct weft_g_generate *gen, int32_t i,
                         struct weft_err *err)
{
    const struct weft_g_model *model = gen->model;
    struct weft_g_instance *instance = &gen->instance[i];
    instance->dp = i % gen->layout.plan.dp;
    const struct weft_g_member *home = weft_g_generate_home(&gen->layout,
                                                            instance->dp);
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
    if (!rc && has_graphs(&gen->layout))
        rc = graphs_init(gen, instance, err);
    return rc ? rc : arenas_init(gen, instance, err);
}

int weft_g_generate_init(const struct weft_g_model *model,
                         const struct weft_g_layout *layout,
                         int32_t max_instances, int32_t n_slots,
                         int32_t max_total, int32_t prefill_tokens,
                         int32_t kv_blocks, struct weft_g_generate *out,
                         struct weft_err *err)
{
    int32_t n = weft_g_generate_instances(layout, max_instances);
    int32_t most = weft_gen_most_pages(n_slots, max_total);
    int32_t least = weft_gen_most_pages(1, max_total);
    *out = (struct weft_g_generate){.model = model,
                                    .n_slots = n_slots,
                                    .max_total = max_total,
                                    .prefill_tokens = prefill_tokens};
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
        for (int32_t k = 0; instance->graphs && k < arenas; k++) {
            weft_gen_graphs_free(instance->graphs[k].of);
            weft_tile_release(instance->graphs[k].memory);
            weft_tile_release(instance->graphs[k].exchange);
        }
        weft_free(instance->graphs);
        weft_tile_release(instance->status[0]);
        weft_tile_release(instance->status[1]);
    }
    weft_free(gen->instance);
    weft_g_layout_release(&gen->layout);
    *gen = (struct weft_g_generate){0};
}

void weft_g_generate_expect(const struct weft_g_generate *gen,
                            const struct weft_g_pass *pass,
                            const struct weft_gen_args *args)
{
    struct weft_g_stage stage;
    if (!gen->layout.is_gang && !gen->layout.is_gpu_gang) {
        weft_g_pass_expect(
            pass, &gen->layout,
            &(struct weft_gpu_pass){.n_runs = gen->n_slots,
                                    .batch_bytes = weft_gen_step_bytes(
                                        args, gen->n_slots, gen->max_total),
                                    .generates = true});
        return;
    }
    if (!gen->layout.on_gpus || !weft_rt_is_dry(pass->rt))
        return;
    for (int32_t i = 0; i < gen->layout.plan.pp; i++) {
        weft_g_stage_get(&gen->layout, 0, i, &stage);
        const struct weft_stage_layers layers = weft_g_stage_layers(&stage);
        for (int32_t k = 0; k < stage.n; k++)
            weft_rt_expect_scratch(
                pass->rt, weft_gen_scratch_bytes(
                              pass->shape, &layers, stage.member[k].blocks,
                              args, gen->n_slots, gen->max_total));
    }
}

int32_t weft_g_generate_place(const struct weft_g_generate *gen,
                              int32_t instance)
{
    return weft_tile_place(gen->instance[instance].state);
}

/* ---- Training that shares its devices ------------------------------------ */

/* Has a tile written after all weights that a training stage publishes at a
 * place. */
static void behind_stage(struct weft_seq *seq, const struct weft_where *where,
                         const struct weft_params *fwd,
                         const struct weft_g_stage *stage,
                         struct weft_tile *tile)
{
    const struct weft_layer_tiles to = {.norms = tile};
    int32_t first = stage->first - stage->is_first;
    for (int32_t l = first; l < stage->end + stage->is_last; l++) {
        enum weft_param_group group = l < stage->first ? WEFT_GROUP_EMBED
                                    : l == stage->end  ? WEFT_GROUP_HEAD
                                                       : WEFT_GROUP_LAYER;
        const struct weft_layer_tiles own = weft_params_group(fwd, group, l);
        weft_insert_open_group(seq, where, NULL, &own, &to);
    }
}

static void behind_device(struct weft_seq *seq,
                          const struct weft_where *where,
                          const struct weft_g_model *trained, int32_t device,
                          struct weft_tile *tile)
{
    const struct weft_g_layout *home = &trained->home;
    for (int32_t i = 0; i < home->plan.dp * home->plan.pp; i++) {
        struct weft_g_stage stage;
        weft_g_stage_get(home, i % home->plan.dp, i / home->plan.dp, &stage);
        for (int32_t k = 0; k < stage.n; k++)
            if (stage.member[k].device == device)
                behind_stage(seq, where, &trained->fwd[stage.member[k].place],
                             &stage, tile);
    }
}

void weft_g_generate_behind(struct weft_seq *seq,
                            const struct weft_g_generate *gen,
                            const struct weft_g_model *trained,
                            int32_t iteration)
{
    const struct weft_call_plan *plan = &gen->layout.plan;
    for (int32_t i = 0; i < gen->n_instances; i++) {
        const struct weft_g_instance *instance = &gen->instance[i];
        struct weft_where where = weft_g_generate_where(gen, instance,
                                                        iteration);
        where.device = -1;
        for (int32_t k = 0; k < plan->pp * plan->tp; k++) {
            const struct weft_g_member *m = weft_g_layout_member(
                &gen->layout, instance->dp, k / plan->tp, k % plan->tp);
            behind_device(seq, &where, trained, m->device,
                          instance->arena[k]);
        }
    }
}

/* On a device chunks have priority over inference, as the next phase waits for
 * generation. */
struct weft_where weft_g_generate_where(
    const struct weft_g_generate *gen, const struct weft_g_instance *instance,
    int32_t iteration)
{
    return (struct weft_where){.device = instance->home,
                               .priority = WEFT_PRIORITY_GENERATE,
                               .call = gen->call,
                               .iteration = iteration,
                               .micro_batch = -1,
                               .layer = -1};
}
