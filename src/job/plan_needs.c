/* SPDX-License-Identifier: Apache-2.0 */
#include "job/plan_needs.h"

#include <stdio.h>

#include "config/keys.h"
#include "fuse/fuse.h"
#include "lm/store.h"
#include "plan/shares.h"
#include "plan/strategy.h"

int32_t weft_run_unit(const struct weft_config *c)
{
    return weft_algorithm_of(c)->rows == WEFT_ROWS_PAIR ? 2 : 1;
}

int32_t weft_run_samples(const struct weft_config *c)
{
    return weft_config_generates(c)
             ? c->rollout.prompts * c->rollout.samples_per_prompt
             : c->train.batch * weft_run_unit(c);
}

int32_t weft_run_samples_at(const struct weft_config *c,
                            const struct weft_dataflow *flow, int32_t field)
{
    int32_t writer = weft_flow_writer(flow, weft_flow_origin(flow, field));
    return writer > 0 && flow->call[writer].greedy ? c->rollout.prompts
                                                   : weft_run_samples(c);
}

int32_t weft_run_samples_all(const struct weft_config *c,
                             const struct weft_dataflow *flow)
{
    int32_t n = 0;
    for (int32_t f = 0; f < flow->n_fields; f++)
        if (weft_flow_origin(flow, f) == f)
            n += weft_run_samples_at(c, flow, f);
    return n;
}

int weft_run_flow(const struct weft_config *config, struct weft_dataflow *out,
                  struct weft_err *err)
{
    struct weft_settings settings;
    weft_settings_of(config, &settings);
    weft_algorithm_of(config)->flow(&settings.needs, out);
    return weft_flow_check(out, err);
}

/* ---- Models ------------------------------------------------------------ */

const char *weft_run_folder(const struct weft_config *config,
                            const struct weft_role *role)
{
    return role->index >= 0 ? config->reward[role->index].model
                            : config->role[role->slot].folder;
}

const struct weft_optimizer_config *weft_run_optimizer(
    const struct weft_config *config, const struct weft_role *role)
{
    return &config->role[role->slot].optim;
}

int weft_run_arch(const struct weft_config *config,
                  const struct weft_dataflow *flow, int32_t index,
                  const struct weft_shape *policy, struct weft_arch *out,
                  struct weft_err *err)
{
    const struct weft_role *role = &flow->role[index];
    const char *folder = weft_run_folder(config, role);
    char name[WEFT_MAX_NAME];
    struct weft_arch arch;
    snprintf(name, sizeof name, "%s", role->name);
    if (role->index >= 0) /* as the configuration's list counts them */
        snprintf(name, sizeof name, "reward %d", (int) role->index);
    int rc = weft_store_arch(folder, weft_dtype_name(config->numerics.dtype),
                             config->numerics.tensor_blocks, &arch, err);
    if (rc) {
        weft_err_prefix(err, "%s", name);
        return rc;
    }
    if (role->scalar && role->trained && index == 0 && arch.pad < 0
        && arch.n_eos > 0)
        arch.pad = arch.eos[0]; /* as TRL does; Transformers wants one */
    if (role->trained && role->slot >= 0)
        arch.shape.lora_rank = config->role[role->slot].lora_rank;
    arch.shape.value_head = role->value_head;
    if (role->scalar && role->trained)
        weft_arch_make_scalar(&arch); /* a language model's trunk will do */
    if (arch.shape.scalar_head != role->scalar)
        return weft_err_set(
            err, WEFT_EINVAL, "%s: '%s' %s", name, folder,
            role->scalar
                ? "is a language model; a reward model has a scalar head "
                  "(architectures ...ForSequenceClassification)"
                : "has a scalar head; a language model is needed");
    bool own = role->index >= 0 && config->reward[role->index].own_tokenizer;
    if (index > 0 && !own && arch.shape.vocab != policy->vocab)
        return weft_err_set(
            err, WEFT_EINVAL,
            "%s: '%s' has a vocabulary of %d, the %s's is "
            "%d; models of a run share the tokenizer%s",
            name, folder, arch.shape.vocab, flow->role[0].name, policy->vocab,
            role->index >= 0 ? " unless the reward has own_tokenizer: true"
                             : "");
    *out = arch;
    return 0;
}

/* shape: of all roles. */
static int check_follows(const struct weft_config *config,
                         const struct weft_dataflow *flow, int32_t index,
                         const struct weft_shape *shape, struct weft_err *err)
{
    const struct weft_role *role = &flow->role[index];
    const struct weft_role *other = &flow->role[role->follows];
    if (weft_shape_alike(&shape[index], &shape[role->follows]))
        return 0;
    return weft_err_set(err, WEFT_EINVAL,
                        "%s: '%s' is of another shape than the %s's '%s', "
                        "to which its weights are to move; take a model of "
                        "the same shape",
                        role->name, weft_run_folder(config, role),
                        other->name, weft_run_folder(config, other));
}

int weft_run_needs_read(const struct weft_config *config, int32_t n_nodes,
                        int32_t n_devices, int32_t n_gpus,
                        struct weft_run_needs *out, struct weft_err *err)
{
    *out = (struct weft_run_needs){
        .plan = {.flow = &out->flow,
                 .n_nodes = n_nodes,
                 .n_devices = n_devices,
                 .n_gpus = n_gpus,
                 .mixes = !config->numerics.exact,
                 .device_bytes = n_gpus > 0
                                   ? (int64_t) (config->runtime.gpu_memory_gib
                                                * 0x1p30)
                                   : 0,
                 .gradient_groups = config->numerics.gradient_groups,
                 .n_samples = weft_run_samples(config),
                 .n_prompts = config->rollout.prompts,
                 .slots = config->rollout.slots}};
    int rc = weft_run_flow(config, &out->flow, err);
    for (int32_t r = 0; r < out->flow.n_roles && !rc; r++) {
        struct weft_arch arch;
        rc = weft_run_arch(config, &out->flow, r, &out->shape[0], &arch, err);
        if (!rc)
            out->shape[r] = arch.shape;
        out->plan.shape[r] = &out->shape[r];
    }
    for (int32_t r = 0; r < out->flow.n_roles && !rc; r++)
        if (out->flow.role[r].follows >= 0)
            rc = check_follows(config, &out->flow, r, out->shape, err);
    return rc;
}

int weft_run_check_supported(const struct weft_config *config,
                             const char *who, struct weft_err *err)
{
    for (int s = 0; s < WEFT_CONFIG_ROLES; s++)
        if (config->role[s].shares)
            return weft_err_set(
                err, WEFT_EINVAL,
                "'%s' is true, but %s no models that share weights yet, "
                "which "
                "only weft plan and weft simulate know, by a cluster's "
                "description; set it to false",
                weft_config_name(config, &config->role[s].shares), who);
    for (int s = 0; s < WEFT_CONFIG_ROLES; s++)
        if (config->role[s].lora_rank > 0)
            return weft_err_set(
                err, WEFT_EINVAL,
                "'%s' is %d, but %s no LoRA adapters yet, which only weft "
                "plan and weft simulate know, by a cluster's description; "
                "set it to 0",
                weft_config_name(config, &config->role[s].lora_rank),
                config->role[s].lora_rank, who);
    return 0;
}

/* ---- The plan --------------------------------------------------------- */

/* Applies the configuration's keys where the layout's text does not say. */
static void apply_keys(const struct weft_config *c, struct weft_plan *plan)
{
    const struct weft_dataflow *flow = &plan->flow;
    for (int32_t i = 1; i < flow->n_calls; i++) {
        struct weft_call_plan *k = &plan->call[i];
        if (!weft_flow_placed(flow, i))
            continue;
        const struct weft_role *role = &flow->role[flow->call[i].role];
        if (weft_flow_frozen(flow, i) && role->slot >= 0)
            k->offload = k->offload || c->role[role->slot].offload;
        if (!weft_flow_trains(flow, i))
            continue;
        if (k->micro_batches == 0)
            k->micro_batches = c->train.micro_batches;
        if (k->zero == 0)
            k->zero = c->train.zero;
        k->recompute = k->recompute || c->train.recompute;
        k->offload = k->offload || c->train.offload_optimizer;
    }
}

int weft_run_fuse(const struct weft_config *config, struct weft_plan *plan,
                  struct weft_err *err)
{
    plan->intra_stage_fusion |= config->train.intra_stage_fusion;
    plan->inter_stage_fusion |= config->rollout.inter_stage_fusion;
    return plan->intra_stage_fusion ? weft_fuse_plan(plan, err) : 0;
}

int weft_run_plan(const struct weft_config *config,
                  const struct weft_plan_needs *needs, struct weft_plan *out,
                  struct weft_err *err)
{
    struct weft_plan plan = {0};
    bool searched = weft_config_plans(config); /* layout is for the search */
    const char *layout = searched ? NULL : config->layout;
    bool file = config->plan && !searched;
    int rc = 0;
    if (file)
        rc = weft_plan_read(config->plan, needs->flow, &plan, err);
    else if (layout && weft_strategy_is(layout))
        rc = weft_plan_strategy(layout, needs, &plan, err);
    else if (layout)
        rc = weft_plan_uniform(layout, needs, &plan, err);
    else
        weft_plan_default(needs, &plan);
    if (rc)
        return rc;
    if (!file)
        apply_keys(config, &plan);
    rc = weft_run_fuse(config, &plan, err);
    if (!rc && !file && needs->cluster)
        weft_plan_share_by_speed(&plan, needs, needs->cluster);
    if (!rc)
        rc = weft_plan_check(&plan, needs, err);
    if (rc && file)
        weft_err_prefix(err, "%s", config->plan);
    if (rc)
        weft_plan_release(&plan);
    else
        *out = plan;
    return rc;
}
