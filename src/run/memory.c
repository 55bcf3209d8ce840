/* SPDX-License-Identifier: Apache-2.0 */
#include "run/memory.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/topology.h"

/* Rows of the largest micro-batch: whole samples, at least one. */
static int64_t most_rows(const struct weft_trainer *t)
{
    int64_t longest = t->max_prompt;
    if (t->config.algorithm == WEFT_ALGO_PPO)
        longest += t->config.rollout.max_new_tokens;
    return weft_max64(t->config.train.micro_batch_tokens, longest);
}

static void add_trained(const struct weft_trainer *t,
                        const struct weft_run_model *m, enum weft_call call,
                        struct weft_memory_plan *out)
{
    const struct weft_g_layout *home = &t->layout[call];
    const struct weft_shape *shape = &m->arch.shape;
    weft_g_model_bytes(shape, true, home, out->bytes);
    weft_g_gather_bytes(shape, home, out->bytes);
    weft_g_grads_bytes(shape, home, t->config.numerics.gradient_groups,
                       out->bytes);
    weft_g_train_bytes(shape, home, most_rows(t), out->bytes);
}

static int add_sampling(const struct weft_trainer *t,
                        struct weft_memory_plan *out, struct weft_err *err)
{
    const struct weft_config *c = &t->config;
    const struct weft_g_layout *layout = &t->layout[WEFT_CALL_ACTOR_GENERATE];
    int32_t n = c->rollout.prompts * c->rollout.samples_per_prompt;
    int32_t instances = weft_g_generate_instances(layout, n);
    int64_t slots = weft_min64(c->rollout.slots, weft_ceil_div(n, instances));
    int64_t len = t->max_prompt + c->rollout.max_new_tokens;
    weft_g_generate_bytes(&t->actor.arch.shape, layout, instances,
                          (int32_t) slots, (int32_t) len, out->bytes);
    /* rollout, log-probs, values, advantages, the packed batch's columns */
    for (int32_t p = 0; p < out->n_places; p++)
        out->bytes[p][WEFT_MEM_SAMPLES] += (size_t) (n * len) * 64;
    int rc = weft_g_view_bytes(&t->actor.arch.shape,
                               &t->layout[WEFT_CALL_ACTOR_TRAIN], layout,
                               out->n_places, out->bytes, err);
    if (rc)
        return rc;
    return weft_g_view_bytes(
        &t->critic.arch.shape, &t->layout[WEFT_CALL_CRITIC_TRAIN],
        &t->layout[WEFT_CALL_CRITIC_INFER], out->n_places, out->bytes, err);
}

int weft_memory_plan(const struct weft_trainer *t,
                     struct weft_memory_plan *out, struct weft_err *err)
{
    const struct weft_config *c = &t->config;
    size_t n = (size_t) weft_rt_n_places(t->rt);
    *out = (struct weft_memory_plan){(int32_t) n,
                                     weft_alloc(n, sizeof *out->bytes)};
    if (!out->bytes)
        return weft_err_nomem(err, "a memory plan", n * sizeof *out->bytes);
    add_trained(t, &t->actor, WEFT_CALL_ACTOR_TRAIN, out);
    if (c->algorithm != WEFT_ALGO_PPO)
        return 0;
    add_trained(t, &t->critic, WEFT_CALL_CRITIC_TRAIN, out);
    if (c->ppo.kl_place != WEFT_KL_NOWHERE)
        weft_g_model_bytes(&t->reference.arch.shape, false,
                           &t->layout[WEFT_CALL_REF_INFER], out->bytes);
    for (int32_t r = 0; r < c->n_rewards; r++)
        if (c->reward[r].type == WEFT_REWARD_MODEL)
            weft_g_model_bytes(&t->reward[r].arch.shape, false,
                               &t->layout[WEFT_CALL_REWARD_INFER],
                               out->bytes);
    return add_sampling(t, out, err);
}

void weft_memory_plan_release(struct weft_memory_plan *plan)
{
    weft_free(plan->bytes);
    *plan = (struct weft_memory_plan){0, NULL};
}

static const char *const remedy[WEFT_N_MEM_CLASSES] = {
    [WEFT_MEM_WEIGHTS] = "use a smaller model, numerics.dtype bf16, more "
                         "stages (pp) or tensor parallel members (tp)",
    [WEFT_MEM_GRADIENTS] = "lower numerics.gradient_groups, or raise tp, pp "
                           "or ZeRO",
    [WEFT_MEM_OPTIMIZER] = "use a smaller model, or raise tp, pp or ZeRO",
    [WEFT_MEM_KV] = "lower rollout.slots or rollout.max_new_tokens",
    [WEFT_MEM_ACTIVATIONS] = "lower train.micro_batch_tokens or set "
                             "train.recompute",
    [WEFT_MEM_SAMPLES] = "lower rollout.prompts",
};

static int memory_limit(const struct weft_trainer *t, size_t *out,
                        struct weft_err *err)
{
    struct weft_topology machine;
    double limit_gib = t->config.runtime.memory_limit_gib;
    *out = (size_t) (limit_gib * 1073741824.0);
    if (*out)
        return 0;
    int rc = weft_topology_read(&machine, err);
    if (!rc) /* also what a control group leaves */
        *out = (size_t) machine.free_bytes;
    return rc;
}

int weft_memory_check(const struct weft_trainer *t, struct weft_err *err)
{
    struct weft_memory_plan plan;
    size_t limit, sum[WEFT_N_MEM_CLASSES] = {0}, total = 0;
    int most = 0;
    int rc = memory_limit(t, &limit, err);
    if (!rc)
        rc = weft_memory_plan(t, &plan, err);
    if (rc)
        return rc;
    for (int32_t p = 0; p < plan.n_places; p++)
        for (int i = 0; i < WEFT_N_MEM_CLASSES; i++)
            if (weft_rt_place_rank(t->rt, p) == weft_world_rank()) {
                sum[i] += plan.bytes[p][i];
                total += plan.bytes[p][i];
            }
    weft_memory_plan_release(&plan);
    for (int i = 0; i < WEFT_N_MEM_CLASSES; i++)
        if (sum[i] > sum[most])
            most = i;
    if (limit > 0 && total > limit)
        return weft_err_set(
            err, WEFT_ENOMEM,
            "the run needs %.2f GiB and %s %.2f GiB; most of it, %.2f GiB, "
            "is %s: %s",
            (double) total / 1073741824.0,
            t->config.runtime.memory_limit_gib > 0
                ? "runtime.memory_limit_gib is"
                : "this machine has free",
            (double) limit / 1073741824.0, (double) sum[most] / 1073741824.0,
            weft_mem_class_name((enum weft_mem_class) most), remedy[most]);
    char text[512] = "";
    for (int i = 0; i < WEFT_N_MEM_CLASSES; i++) {
        size_t at = strlen(text);
        snprintf(text + at, sizeof text - at, "%s%s %.0f", i ? ", " : "",
                 weft_mem_class_name((enum weft_mem_class) i),
                 (double) sum[i] / 1048576.0);
    }
    weft_debug("memory plan in MiB: %s", text);
    return 0;
}
