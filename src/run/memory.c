/* SPDX-License-Identifier: Apache-2.0 */
#include "run/memory.h"

#include <stdio.h>
#include <string.h>

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
                        const struct weft_run_model *m, int64_t devices,
                        size_t *activations, struct weft_memory_plan *out)
{
    const struct weft_config *c = &t->config;
    const struct weft_shape *shape = &m->arch.shape;
    int64_t dp = weft_min64(devices, c->numerics.gradient_groups);
    weft_g_model_bytes(shape, true, out->bytes);
    out->bytes[WEFT_MEM_GRADIENTS] += weft_g_grads_bytes(
        shape, c->numerics.gradient_groups, (int32_t) dp);
    size_t one = weft_g_train_bytes(shape, most_rows(t), c->train.recompute);
    if (one * (size_t) dp > *activations)
        *activations = one * (size_t) dp;
}

static void add_sampling(const struct weft_trainer *t, int64_t devices,
                         struct weft_memory_plan *out)
{
    const struct weft_config *c = &t->config;
    int64_t n = (int64_t) c->rollout.prompts * c->rollout.samples_per_prompt;
    int64_t instances = weft_min64(devices, n);
    int64_t slots = weft_min64(c->rollout.slots, weft_ceil_div(n, instances));
    int64_t len = t->max_prompt + c->rollout.max_new_tokens;
    out->bytes[WEFT_MEM_KV] += (size_t) instances
                             * weft_g_generate_kv_bytes(&t->actor.arch.shape,
                                                        (int32_t) slots,
                                                        (int32_t) len);
    /* rollout, log-probs, values, advantages, the packed batch's columns */
    out->bytes[WEFT_MEM_SAMPLES] += (size_t) (n * len) * 64;
}

void weft_memory_plan(const struct weft_trainer *t,
                      struct weft_memory_plan *out)
{
    const struct weft_config *c = &t->config;
    int64_t devices = weft_rt_n_devices(t->rt);
    size_t activations = 0;
    *out = (struct weft_memory_plan){{0}, 0};
    add_trained(t, &t->actor, devices, &activations, out);
    if (c->algorithm == WEFT_ALGO_PPO) {
        add_trained(t, &t->critic, devices, &activations, out);
        add_sampling(t, devices, out);
        if (c->ppo.kl_place != WEFT_KL_NOWHERE)
            weft_g_model_bytes(&t->reference.arch.shape, false, out->bytes);
        for (int32_t r = 0; r < c->n_rewards; r++)
            if (c->reward[r].type == WEFT_REWARD_MODEL)
                weft_g_model_bytes(&t->reward[r].arch.shape, false,
                                   out->bytes);
    }
    out->bytes[WEFT_MEM_ACTIVATIONS] += activations;
    for (int i = 0; i < WEFT_N_MEM_CLASSES; i++)
        out->total += out->bytes[i];
}

int weft_memory_check(const struct weft_trainer *t, struct weft_err *err)
{
    static const char *const remedy[WEFT_N_MEM_CLASSES] = {
        [WEFT_MEM_WEIGHTS] = "use a smaller model or numerics.dtype bf16",
        [WEFT_MEM_GRADIENTS] = "lower runtime.devices or "
                               "numerics.gradient_groups",
        [WEFT_MEM_OPTIMIZER] = "use a smaller model",
        [WEFT_MEM_KV] = "lower rollout.slots or rollout.max_new_tokens",
        [WEFT_MEM_ACTIVATIONS] = "lower train.micro_batch_tokens or set "
                                 "train.recompute",
        [WEFT_MEM_SAMPLES] = "lower rollout.prompts",
    };
    struct weft_memory_plan plan;
    struct weft_topology machine;
    double limit_gib = t->config.runtime.memory_limit_gib;
    size_t limit = (size_t) (limit_gib * 1073741824.0);
    int most = 0;
    if (limit == 0) { /* also what a control group leaves */
        int rc = weft_topology_read(&machine, err);
        if (rc)
            return rc;
        limit = (size_t) machine.free_bytes;
    }
    weft_memory_plan(t, &plan);
    for (int i = 0; i < WEFT_N_MEM_CLASSES; i++)
        if (plan.bytes[i] > plan.bytes[most])
            most = i;
    if (limit > 0 && plan.total > limit)
        return weft_err_set(
            err, WEFT_ENOMEM,
            "the run needs %.2f GiB and %s %.2f GiB; most of it, %.2f GiB, "
            "is %s: %s",
            (double) plan.total / 1073741824.0,
            limit_gib > 0 ? "runtime.memory_limit_gib is"
                          : "this machine has free",
            (double) limit / 1073741824.0,
            (double) plan.bytes[most] / 1073741824.0,
            weft_mem_class_name((enum weft_mem_class) most), remedy[most]);
    char text[512] = "";
    for (int i = 0; i < WEFT_N_MEM_CLASSES; i++) {
        size_t at = strlen(text);
        snprintf(text + at, sizeof text - at, "%s%s %.0f", i ? ", " : "",
                 weft_mem_class_name((enum weft_mem_class) i),
                 (double) plan.bytes[i] / 1048576.0);
    }
    weft_debug("memory plan in MiB: %s", text);
    return 0;
}
