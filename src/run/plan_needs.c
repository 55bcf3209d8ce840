/* SPDX-License-Identifier: Apache-2.0 */
#include "run/plan_needs.h"

#include <stdio.h>

#include "run/fuse.h"
#include "run/store.h"

bool weft_run_has_reference(const struct weft_config *config)
{
    return config->algorithm == WEFT_ALGO_PPO
        && config->ppo.kl_place != WEFT_KL_NOWHERE;
}

int weft_run_arch(const struct weft_config *config, enum weft_run_role role,
                  const char *folder, const char *name,
                  const struct weft_shape *actor, struct weft_arch *out,
                  struct weft_err *err)
{
    bool scalar = role == WEFT_RUN_CRITIC || role == WEFT_RUN_REWARD;
    struct weft_arch arch;
    int rc = weft_store_arch(folder, weft_dtype_name(config->numerics.dtype),
                             config->numerics.tensor_blocks, &arch, err);
    if (rc) {
        weft_err_prefix(err, "%s", name);
        return rc;
    }
    if (role == WEFT_RUN_CRITIC)
        weft_arch_make_scalar(&arch); /* of a language model: new head */
    if (arch.shape.scalar_head != scalar)
        return weft_err_set(
            err, WEFT_EINVAL, "%s: '%s' %s", name, folder,
            scalar ? "is a language model; a reward model has a scalar head "
                     "(architectures ...ForSequenceClassification)"
                   : "has a scalar head; a language model is needed");
    if (role != WEFT_RUN_ACTOR && arch.shape.vocab != actor->vocab)
        return weft_err_set(err, WEFT_EINVAL,
                            "%s: '%s' has a vocabulary of %d, the actor's is "
                            "%d; models of a run share the tokenizer",
                            name, folder, arch.shape.vocab, actor->vocab);
    *out = arch;
    return 0;
}

/* ---- Needs ------------------------------------------------------------ */

static int read_shape(const struct weft_config *c, enum weft_run_role role,
                      const char *folder, const char *name,
                      const struct weft_shape *actor, struct weft_shape *out,
                      struct weft_err *err)
{
    struct weft_arch arch;
    int rc = weft_run_arch(c, role, folder, name, actor, &arch, err);
    if (!rc)
        *out = arch.shape;
    return rc;
}

static int read_rewards(const struct weft_config *c,
                        struct weft_run_needs *out, struct weft_err *err)
{
    struct weft_shape *all = &out->reward;
    int32_t n = 0;
    int rc = 0;
    for (int32_t r = 0; r < c->n_rewards && !rc; r++) {
        char name[16];
        struct weft_shape s;
        if (c->reward[r].type != WEFT_REWARD_MODEL)
            continue;
        snprintf(name, sizeof name, "reward %d", (int) r);
        rc = read_shape(c, WEFT_RUN_REWARD, c->reward[r].model, name,
                        &out->actor, &s, err);
        if (!rc && n++ == 0)
            *all = s;
        if (!rc && s.n_layers < all->n_layers)
            all->n_layers = s.n_layers;
        if (!rc && s.n_blocks < all->n_blocks) /* a divisor: both are 2^k */
            rc = weft_shape_partition(all, s.n_blocks, err);
    }
    out->plan.shape[WEFT_CALL_REWARD_INFER] = n > 0 ? all : NULL;
    return rc;
}

static int read_ppo(const struct weft_config *c, struct weft_run_needs *out,
                    struct weft_err *err)
{
    const struct weft_shape **shape = out->plan.shape;
    out->plan.n_samples = c->rollout.prompts * c->rollout.samples_per_prompt;
    shape[WEFT_CALL_ACTOR_GENERATE] = &out->actor;
    shape[WEFT_CALL_CRITIC_INFER] = &out->critic;
    shape[WEFT_CALL_CRITIC_TRAIN] = &out->critic;
    int rc = read_shape(c, WEFT_RUN_CRITIC, c->model.critic, "critic",
                        &out->actor, &out->critic, err);
    if (!rc && weft_run_has_reference(c)) {
        shape[WEFT_CALL_REF_INFER] = &out->reference;
        rc = read_shape(c, WEFT_RUN_REFERENCE, c->model.reference,
                        "reference", &out->actor, &out->reference, err);
    }
    return rc ? rc : read_rewards(c, out, err);
}

int weft_run_needs_read(const struct weft_config *config, int32_t n_nodes,
                        int32_t n_devices, struct weft_run_needs *out,
                        struct weft_err *err)
{
    *out = (struct weft_run_needs){
        .plan = {.n_nodes = n_nodes,
                 .n_devices = n_devices,
                 .gradient_groups = config->numerics.gradient_groups,
                 .n_samples = config->train.batch}};
    out->plan.shape[WEFT_CALL_ACTOR_TRAIN] = &out->actor;
    int rc = read_shape(config, WEFT_RUN_ACTOR, config->model.actor, "actor",
                        NULL, &out->actor, err);
    if (!rc && config->algorithm == WEFT_ALGO_PPO)
        rc = read_ppo(config, out, err);
    return rc;
}

/* ---- The plan --------------------------------------------------------- */

/* Applies the configuration's keys where the layout's text does not say. */
static void apply_keys(const struct weft_config *c, struct weft_plan *plan)
{
    struct weft_call_plan *ref = &plan->call[WEFT_CALL_REF_INFER];
    for (int i = 0; i < WEFT_N_CALLS; i++) {
        struct weft_call_plan *k = &plan->call[i];
        if (k->dp == 0 || !weft_plan_call_trains((enum weft_call) i))
            continue;
        if (k->micro_batches == 0)
            k->micro_batches = c->train.micro_batches;
        if (k->zero == 0)
            k->zero = c->train.zero;
        k->recompute = k->recompute || c->train.recompute;
    }
    if (ref->dp > 0)
        ref->offload = ref->offload || c->model.reference_offload;
}

int weft_run_plan(const struct weft_config *config,
                  const struct weft_plan_needs *needs, struct weft_plan *out,
                  struct weft_err *err)
{
    struct weft_plan plan = {0};
    int rc = 0;
    if (config->plan)
        rc = weft_plan_read(config->plan, &plan, err);
    else if (config->layout)
        rc = weft_plan_uniform(config->layout, needs, &plan, err);
    else
        weft_plan_default(needs, &plan);
    if (rc)
        return rc;
    if (!config->plan)
        apply_keys(config, &plan);
    for (int c = 0; c < WEFT_N_CALLS; c++)
        if (!needs->shape[c])
            plan.call[c] = (struct weft_call_plan){0};
    if (config->train.intra_stage_fusion)
        rc = weft_fuse_plan(&plan, err);
    if (!rc)
        rc = weft_plan_check(&plan, needs, err);
    if (rc && config->plan)
        weft_err_prefix(err, "%s", config->plan);
    if (rc)
        weft_plan_release(&plan);
    else
        *out = plan;
    return rc;
}
