/* SPDX-License-Identifier: Apache-2.0 */
/* The tiles of a run: of its models, its instances and its state. */
#include <string.h>

#include "base/alloc.h"
#include "fuse/fuse.h"
#include "job/plan_needs.h"
#include "lm/migration.h"
#include "lm/store.h"
#include "run/ahead.h"
#include "run/gpu_products.h"
#include "run/predict/largest.h"
#include "run/predict/recorded.h"
#include "run/prompts.h"
#include "run/reward_state.h"
#include "run/trainer.h"

int weft_trainer_lay_out(struct weft_trainer *t, struct weft_err *err)
{
    int rc = 0;
    for (int32_t i = 1; i < t->flow.n_calls && !rc; i++) {
        const struct weft_flow_call *call = &t->flow.call[i];
        if (weft_flow_placed(&t->flow, i))
            rc = weft_g_layout_init(&t->job, &t->model[call->role].arch.shape,
                                    &t->plan, i, &t->layout[i], err);
    }
    for (int32_t i = 1; !rc && i < t->flow.n_calls; i++)
        if (t->flow.call[i].kind == WEFT_GENERATE)
            rc = weft_migration_check(t->config.rollout.instances,
                                      t->flow.call[i].name,
                                      t->layout[i].plan.dp, err);
    return rc;
}

/* ---- Creating ---------------------------------------------------------- */

/* The call whose layout a role's tiles have. */
static int32_t home_of(const struct weft_trainer *t, int32_t role)
{
    return weft_flow_call_of(
        &t->flow, t->flow.role[role].trained ? WEFT_TRAIN : WEFT_INFER, role);
}

static int create_model(struct weft_trainer *t, struct weft_run_model *m,
                        struct weft_err *err)
{
    const struct weft_role *role = &t->flow.role[m->role];
    const char *folder = weft_run_folder(&t->config, role);
    m->home = home_of(t, m->role);
    m->open = true;
    m->optim = role->trained ? weft_run_optimizer(&t->config, role) : NULL;
    m->offload = !role->trained && t->plan.call[m->home].offload;
    m->folder = weft_strdup(folder);
    if (!m->folder)
        return weft_err_nomem(err, role->name, strlen(folder));
    int rc = role->shares >= 0
               ? weft_g_model_share(&t->model[role->shares].tiles, role->name,
                                    &m->arch.shape, &t->layout[m->home],
                                    &m->tiles, err)
           : m->offload
               ? weft_g_host_init(t->rt, role->name, &m->arch.shape,
                                  &t->layout[m->home], &m->host, err)
               : weft_g_model_init(t->rt, role->name, &m->arch.shape,
                                   role->trained, &t->layout[m->home],
                                   &m->tiles, err);
    m->tiles.order = &t->order_of_tasks;
    if (!rc && role->follows >= 0 && role->mix < 1)
        rc = weft_g_masters_init(m->offload ? &m->host : &m->tiles,
                                 m->offload, err);
    return rc;
}

/* What training needs beside a model's state. */
static int create_training(struct weft_trainer *t, struct weft_err *err)
{
    int rc = 0;
    for (int32_t r = 0; r < t->flow.n_roles && !rc; r++) {
        struct weft_run_model *m = &t->model[r];
        if (!t->flow.role[r].trained)
            continue;
        rc = weft_g_grads_init(&m->tiles, t->config.numerics.gradient_groups,
                               &m->grads, err);
        if (!rc)
            rc = weft_g_gather_create(&m->tiles, &m->gather, err);
    }
    return rc;
}

static int create_models(struct weft_trainer *t, struct weft_err *err)
{
    int rc = 0;
    for (int32_t r = 0; r < t->flow.n_roles && !rc; r++) {
        t->model[r].role = r;
        rc = create_model(t, &t->model[r], err);
    }
    return rc ? rc : create_training(t, err);
}

/* chain: the first that no other call's instances have. */
static int create_generation(struct weft_trainer *t, int32_t call,
                             int32_t *chain, struct weft_err *err)
{
    const struct weft_config *c = &t->config;
    const struct weft_g_layout *layout = &t->layout[call];
    int32_t n = weft_run_samples_at(c, &t->flow,
                                    weft_flow_origin_of_call(&t->flow, call));
    int32_t instances = weft_g_generate_instances(layout, n);
    int32_t slots = weft_min32(c->rollout.slots,
                               weft_g_generate_slots(layout, n));
    int rc = weft_g_generate_init(
        &t->model[t->flow.call[call].role].tiles, layout, instances, slots,
        t->max_prompt + c->rollout.max_new_tokens, c->rollout.prefill_tokens,
        c->rollout.kv_blocks, &t->gen[call], err);
    t->gen[call].call = call;
    t->gen[call].first_chain = *chain;
    *chain += layout->plan.pp;
    return rc;
}

static int create_instances(struct weft_trainer *t, struct weft_err *err)
{
    int32_t chain = 0;
    int rc = 0;
    for (int32_t i = 1; i < t->flow.n_calls && !rc; i++)
        if (t->flow.call[i].kind == WEFT_GENERATE)
            rc = create_generation(t, i, &chain, err);
    return rc;
}

/* Creates the tiles of the run's state: of rewards, KL controller. */
static int create_state(struct weft_trainer *t, struct weft_err *err)
{
    struct weft_tile_id id = {"run", "KL controller", 0, -1, -1, 0};
    if (!weft_config_generates(&t->config))
        return 0;
    int rc = weft_reward_state_create(t, err);
    if (!rc)
        rc = weft_tile_create(t->rt, &id, WEFT_MEM_SAMPLES,
                              sizeof(struct weft_kl_state), &t->kl_state,
                              err);
    if (rc || t->recorded || !weft_tile_is_here(t->kl_state))
        return rc;
    struct weft_kl_state *kl = weft_tile_acquire(t->kl_state, WEFT_WRITE);
    *kl = (struct weft_kl_state){.coef = t->settings.kl_coef};
    weft_tile_unacquire(t->kl_state);
    return 0;
}

/* The models that train under one schedule. */
static int open_fuse(struct weft_trainer *t, struct weft_err *err)
{
    struct weft_fuse_options o = {.config = &t->config,
                                  .seq = t->seq,
                                  .recorded = t->recorded != NULL,
                                  .planned = t->recorded ? t->recorded->fused
                                                         : NULL};
    for (int32_t i = 1; i < t->flow.n_calls; i++) {
        if (!weft_flow_trains(&t->flow, i))
            continue;
        const struct weft_run_model *m = &t->model[t->flow.call[i].role];
        o.model[o.n_models] = &m->tiles;
        o.n_micro_batches[o.n_models++] = weft_run_micro_batches(t, m->home);
    }
    return weft_fuse_open(&o, &t->fuse, err);
}

int weft_trainer_create_tiles(struct weft_trainer *t, struct weft_err *err)
{
    int rc = weft_g_order_init(t->rt, &t->order_of_tasks, err);
    if (!rc)
        rc = create_models(t, err);
    if (!rc)
        rc = create_instances(t, err);
    if (!rc)
        rc = create_state(t, err);
    if (!rc && t->plan.intra_stage_fusion)
        rc = open_fuse(t, err);
    return rc;
}

/* ---- Releasing --------------------------------------------------------- */

static void release_training(struct weft_run_model *m)
{
    weft_g_grads_release(&m->tiles, &m->grads);
    weft_g_gather_free(m->gather);
    m->gather = NULL;
}

static void model_release(struct weft_run_model *m)
{
    if (!m->open)
        return;
    release_training(m);
    weft_g_model_release(&m->tiles);
    weft_g_model_release(&m->host);
    weft_free(m->folder);
}

static void release_instances(struct weft_trainer *t)
{
    for (int32_t i = 0; i < t->flow.n_calls; i++)
        weft_g_generate_release(&t->gen[i]);
}

void weft_trainer_release_tiles(struct weft_trainer *t)
{
    weft_iteration_forget(t);
    weft_seq_free(t->seq);
    weft_fuse_free(t->fuse); /* tasks write its spans */
    release_instances(t);
    weft_tile_release(t->kl_state);
    weft_reward_state_release(t);
    for (int32_t r = 0; r < t->flow.n_roles; r++)
        model_release(&t->model[r]);
    weft_g_order_release(&t->order_of_tasks);
}

/* ---- Another plan ------------------------------------------------------ */

static bool same_layout(const struct weft_call_plan *a,
                        const struct weft_call_plan *b)
{
    return memcmp(&a->mesh, &b->mesh, sizeof a->mesh) == 0 && a->dp == b->dp
        && a->tp == b->tp && a->pp == b->pp && a->zero == b->zero
        && a->hpz == b->hpz && a->micro_batches == b->micro_batches
        && a->recompute == b->recompute && a->offload == b->offload
        && a->contiguous == b->contiguous && a->reversed == b->reversed
        && a->shares.n == b->shares.n
        && memcmp(a->shares.run, b->shares.run,
                  (size_t) a->shares.n * sizeof *a->shares.run)
               == 0;
}

bool weft_trainer_moves(const struct weft_trainer *t,
                        const struct weft_plan *plan, int32_t role)
{
    int32_t home = home_of(t, role);
    return !same_layout(&t->plan.call[home], &plan->call[home]);
}

/* Moves a model's weights and state to tiles of its new home layout. */
static int move_model(struct weft_trainer *t, struct weft_run_model *m,
                      struct weft_err *err)
{
    struct weft_run_model old = *m;
    *m = (struct weft_run_model){
        .arch = old.arch, .role = old.role, .steps = old.steps};
    int rc = weft_world_agree(create_model(t, m, err), err);
    if (!rc)
        rc = weft_store_move(t->seq, weft_trainer_weights(&old),
                             weft_trainer_weights(m), err);
    weft_g_model_release(&old.tiles);
    weft_g_model_release(&old.host);
    weft_free(old.folder);
    return rc;
}

int weft_trainer_change_plan(struct weft_trainer *t, struct weft_plan *plan,
                             struct weft_err *err)
{
    bool moves[WEFT_MAX_ROLES];
    int rc = weft_ahead_lift(t, err);
    for (int32_t r = 0; r < t->flow.n_roles; r++) {
        moves[r] = weft_trainer_moves(t, plan, r);
        release_training(&t->model[r]);
    }
    release_instances(t);
    weft_fuse_free(t->fuse);
    t->fuse = NULL;
    weft_replays_release(&t->replays); /* they are of the plan before */
    t->noted.n = 0;
    for (int32_t i = 0; i < t->flow.n_calls; i++)
        weft_g_layout_release(&t->layout[i]);
    weft_plan_release(&t->plan);
    t->plan = *plan;
    *plan = (struct weft_plan){.n_nodes = 0};
    if (!rc)
        rc = weft_trainer_lay_out(t, err);
    if (!rc)
        rc = weft_run_choose_products(t, err);
    rc = weft_world_agree(rc, err);
    for (int32_t r = 0; r < t->flow.n_roles && !rc; r++)
        if (moves[r])
            rc = move_model(t, &t->model[r], err);
    if (!rc)
        rc = create_training(t, err);
    if (!rc)
        rc = create_instances(t, err);
    if (!rc && t->plan.intra_stage_fusion)
        rc = open_fuse(t, err);
    rc = weft_world_agree(rc, err);
    return rc ? rc : weft_seq_wait(t->seq, err);
}
