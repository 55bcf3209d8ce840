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

/* Bytes by place and class. */
struct budget {
    int32_t n_places;
    size_t (*bytes)[WEFT_N_MEM_CLASSES];
};

static void add_trained(const struct weft_trainer *t,
                        const struct weft_run_model *m, enum weft_call call,
                        struct budget *out)
{
    const struct weft_g_layout *home = &t->layout[call];
    const struct weft_shape *shape = &m->arch.shape;
    weft_g_model_bytes(shape, true, home, out->bytes);
    weft_g_gather_bytes(shape, home, out->bytes);
    weft_g_grads_bytes(shape, home, t->config.numerics.gradient_groups,
                       out->bytes);
    weft_g_train_bytes(shape, home, most_rows(t), out->bytes);
}

static int add_sampling(const struct weft_trainer *t, struct budget *out,
                        struct weft_err *err)
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

static int count(const struct weft_trainer *t, struct budget *out,
                 struct weft_err *err)
{
    const struct weft_config *c = &t->config;
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
                               &t->reward[r].layout, out->bytes);
    return add_sampling(t, out, err);
}

static int table_create(const struct weft_trainer *t,
                        int64_t (**out)[WEFT_MEM_ALL + 1],
                        struct weft_err *err)
{
    size_t n = (size_t) (t->job.n_ranks * t->job.n_devices);
    weft_free(*out);
    *out = weft_alloc(n, sizeof **out);
    return *out ? 0 : weft_err_nomem(err, "a memory plan", n * sizeof **out);
}

int weft_memory_predict(struct weft_trainer *t, struct weft_err *err)
{
    size_t n = (size_t) weft_g_job_n_places(&t->job);
    struct budget budget = {(int32_t) n, weft_alloc(n, sizeof *budget.bytes)};
    int rc = table_create(t, &t->plan.memory, err);
    if (!rc && !budget.bytes)
        rc = weft_err_nomem(err, "a memory plan", n * sizeof *budget.bytes);
    if (!rc)
        rc = count(t, &budget, err);
    for (int32_t d = 0; d < t->job.n_ranks * t->job.n_devices && !rc; d++) {
        int32_t place = weft_g_job_place_of(&t->job, d);
        int64_t *to = t->plan.memory[d];
        for (int c = 0; c < WEFT_N_MEM_CLASSES; c++) {
            to[c] = (int64_t) budget.bytes[place][c];
            to[WEFT_MEM_ALL] += to[c];
        }
    }
    weft_free(budget.bytes);
    return rc;
}

/* ---- Measured --------------------------------------------------------- */

static void warn_of(const struct weft_trainer *t, int32_t device, int c)
{
    const double mib = 1048576.0;
    int64_t predicted = t->plan.memory[device][c];
    int64_t measured = t->plan.measured[device][c];
    if (measured > predicted)
        weft_warn("place %d: %s took %.2f MiB, %.2f were predicted",
                  (int) weft_g_job_place_of(&t->job, device),
                  c == WEFT_MEM_ALL
                      ? "all"
                      : weft_mem_class_name((enum weft_mem_class) c),
                  (double) measured / mib, (double) predicted / mib);
}

int weft_memory_measure(struct weft_trainer *t, struct weft_err *err)
{
    size_t n = (size_t) weft_rt_n_places(t->rt);
    size_t *peak = weft_alloc(n, sizeof *peak);
    int32_t last = -1;
    int rc = table_create(t, &t->plan.measured, err);
    if (!rc && !peak)
        rc = weft_err_nomem(err, "a memory plan", n * sizeof *peak);
    rc = weft_world_agree(rc, err);
    for (int c = 0; c <= WEFT_MEM_ALL && !rc; c++) {
        weft_rt_memory_places(t->rt, (enum weft_mem_class) c, peak);
        for (int32_t d = 0; d < t->job.n_ranks * t->job.n_devices; d++)
            t->plan.measured[d][c] = (int64_t)
                peak[weft_g_job_place_of(&t->job, d)];
    }
    weft_free(peak);
    for (int32_t d = 0; d < t->job.n_ranks * t->job.n_devices && !rc; d++) {
        int32_t place = weft_g_job_place_of(&t->job, d);
        for (int c = 0; c <= WEFT_MEM_ALL && place != last; c++)
            if (weft_world_rank() == 0)
                warn_of(t, d, c);
        last = place;
    }
    return rc;
}

int weft_memory_write(const struct weft_trainer *t, struct weft_err *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/plan.json", t->config.run_dir);
    return weft_plan_write(&t->plan, path, err);
}

/* ---- Does it fit ------------------------------------------------------ */

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

/* What the places of this rank take, by class. */
static void sum_rank(const struct weft_trainer *t,
                     int64_t out[WEFT_MEM_ALL + 1])
{
    int32_t n = t->job.place_per_device ? t->job.n_devices : 1;
    int32_t first = weft_world_rank() * t->job.n_devices;
    memset(out, 0, (WEFT_MEM_ALL + 1) * sizeof *out);
    for (int32_t d = first; d < first + n; d++)
        for (int c = 0; c <= WEFT_MEM_ALL; c++)
            out[c] += t->plan.memory[d][c];
}

int weft_memory_check(const struct weft_trainer *t, struct weft_err *err)
{
    const double gib = 1073741824.0;
    int64_t sum[WEFT_MEM_ALL + 1];
    size_t limit;
    int most = 0;
    int rc = memory_limit(t, &limit, err);
    if (rc)
        return rc;
    sum_rank(t, sum);
    for (int c = 0; c < WEFT_N_MEM_CLASSES; c++)
        if (sum[c] > sum[most])
            most = c;
    if (limit > 0 && (size_t) sum[WEFT_MEM_ALL] > limit)
        return weft_err_set(
            err, WEFT_ENOMEM,
            "the run needs %.2f GiB and %s %.2f GiB; most of it, %.2f GiB, "
            "is %s: %s",
            (double) sum[WEFT_MEM_ALL] / gib,
            t->config.runtime.memory_limit_gib > 0
                ? "runtime.memory_limit_gib is"
                : "this machine has free",
            (double) limit / gib, (double) sum[most] / gib,
            weft_mem_class_name((enum weft_mem_class) most), remedy[most]);
    return 0;
}
