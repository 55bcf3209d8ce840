/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a run fits what it may take, and what helps where it does not. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/topology.h"
#include "run/predict/memory.h"
#include "run/predict/shortage.h"

static const char *const remedy[WEFT_N_MEM_CLASSES] = {
    [WEFT_MEM_WEIGHTS] = "use a smaller model, numerics.dtype bf16, more "
                         "stages (pp) or tensor parallel members (tp)",
    [WEFT_MEM_GRADIENTS] = "lower numerics.gradient_groups, or raise tp, pp "
                           "or ZeRO",
    [WEFT_MEM_OPTIMIZER] = "use a smaller model, or raise tp, pp or ZeRO",
    [WEFT_MEM_KV] = "lower rollout.slots, rollout.kv_blocks or "
                    "rollout.max_new_tokens",
    [WEFT_MEM_ACTIVATIONS] = "lower train.micro_batch_tokens or set "
                             "train.recompute",
    [WEFT_MEM_SAMPLES] = "lower rollout.prompts",
    [WEFT_MEM_TASKS] = "lower train.mini_batches_ahead",
    [WEFT_MEM_HOST] = "offload less, raise ZeRO, or use smaller models",
};

/* What the machine has free for each rank here, or what its control group or
 * ulimit leaves.
 * whose_out: the words that describe the limit in messages. */
static int machine_limit(size_t *out, const char **whose_out,
                         struct weft_err *err)
{
    struct weft_topology machine;
    int rc = weft_topology_read(&machine, err);
    if (rc)
        return rc;
    int rank, n_ranks = machine.of_process ? 1 : weft_world_here(&rank);
    *out = (size_t) (machine.free_bytes / n_ranks);
    *whose_out = machine.of_process ? "ulimit -v leaves it"
               : n_ranks > 1 ? "this machine has free for each of its ranks"
                             : "this machine has free";
    return 0;
}

/* The same for what lies at places alone. */
static int memory_limit(const struct weft_trainer *t, size_t *out,
                        const char **whose_out, struct weft_err *err)
{
    double limit_gib = t->config.runtime.memory_limit_gib;
    *out = (size_t) (limit_gib * 1073741824.0);
    *whose_out = "runtime.memory_limit_gib is";
    return *out ? 0 : machine_limit(out, whose_out, err);
}

/* Bytes of this rank in host memory, by class: of its CPU devices' places, and
 * what its GPUs' have there. */
static void sum_rank(const struct weft_trainer *t,
                     int64_t out[WEFT_MEM_ALL + 1])
{
    int32_t gpus = t->job.n_gpus;
    int32_t n = t->job.place_per_device ? t->job.n_devices : gpus + 1;
    int32_t first = weft_world_rank() * t->job.n_devices;
    memset(out, 0, (WEFT_MEM_ALL + 1) * sizeof *out);
    for (int32_t d = 0; d < n; d++)
        for (int c = 0; c <= WEFT_MEM_ALL; c++) {
            bool there = d >= gpus
                      || (c < WEFT_MEM_ALL
                          && weft_mem_class_on_host((enum weft_mem_class) c));
            int64_t bytes = there ? t->plan.memory[first + d][c] : 0;
            out[c] += bytes;
            if (d < gpus && c < WEFT_MEM_ALL
                && weft_mem_class_at_place((enum weft_mem_class) c))
                out[WEFT_MEM_ALL] += bytes;
        }
}

/* The GPU of this rank that needs most; -1: it has none. */
static int32_t fullest_gpu(const struct weft_trainer *t)
{
    int32_t first = weft_world_rank() * t->job.n_devices, most = -1;
    for (int32_t d = first; d < first + t->job.n_gpus; d++)
        if (most < 0
            || t->plan.memory[d][WEFT_MEM_ALL]
                   > t->plan.memory[most][WEFT_MEM_ALL])
            most = d;
    return most;
}

/* Changes that may save memory, in the order of the time that they cost. */
static const struct change {
    const char *text;
    int32_t zero;
    bool recompute;
    int32_t tp, pp; /* factors by which dp is divided */
    bool offload;   /* of a GPU's memory: optimizer states */
} changes[] = {
    {"train.recompute", 0, true, 1, 1, false},
    {"train.zero 1", 1, false, 1, 1, false},
    {"train.zero 2", 2, false, 1, 1, false},
    {"train.zero 3", 3, false, 1, 1, false},
    {"twice the tp", 0, false, 2, 1, false},
    {"twice the pp", 0, false, 1, 2, false},
    {"twice the pp and train.zero 1", 1, false, 1, 2, false},
    {"train.offload_optimizer", 0, false, 1, 1, true},
    {"train.offload_optimizer and train.recompute", 0, true, 1, 1, true},
};

/* Changes a training call's layout as far as that is possible. */
static int apply(struct weft_trainer *t, const struct change *change,
                 int32_t call, const struct weft_shape *shape,
                 struct weft_err *err)
{
    struct weft_call_plan *plan = &t->plan.call[call];
    int32_t factor = change->tp * change->pp;
    plan->zero = plan->zero > change->zero ? plan->zero : change->zero;
    plan->recompute = plan->recompute || change->recompute;
    plan->offload = plan->offload || change->offload;
    if (plan->dp % factor == 0 && plan->tp * change->tp <= shape->n_blocks
        && plan->pp * change->pp <= shape->n_layers) {
        plan->dp /= factor;
        plan->tp *= change->tp;
        plan->pp *= change->pp;
    }
    return weft_g_layout_init(&t->job, shape, &t->plan, call,
                              &t->layout[call], err);
}

/* Bytes of this rank in host memory, or with gpu of its fullest GPU, with a
 * change; negative if they cannot be predicted. */
static int64_t bytes_with(const struct weft_trainer *t, bool gpu,
                          const struct change *change)
{
    struct weft_trainer other = *t;
    struct weft_err ignored;
    int64_t sum[WEFT_MEM_ALL + 1] = {[WEFT_MEM_ALL] = -1};
    int rc = 0;
    other.plan.memory = NULL;
    for (int32_t i = 1; i < t->flow.n_calls; i++)
        if (weft_flow_trains(&t->flow, i))
            other.layout[i] = (struct weft_g_layout){.member = NULL};
    for (int32_t i = 1; i < t->flow.n_calls && !rc; i++)
        if (weft_flow_trains(&t->flow, i))
            rc = apply(&other, change, i,
                       &t->model[t->flow.call[i].role].arch.shape, &ignored);
    if (!rc)
        rc = weft_memory_predict(&other, &ignored);
    if (!rc)
        sum_rank(&other, sum);
    if (!rc && gpu)
        sum[WEFT_MEM_ALL] =
            other.plan.memory[fullest_gpu(&other)][WEFT_MEM_ALL];
    for (int32_t i = 1; i < t->flow.n_calls; i++)
        if (weft_flow_trains(&t->flow, i))
            weft_g_layout_release(&other.layout[i]);
    weft_free(other.plan.memory);
    return sum[WEFT_MEM_ALL];
}

/* What helps where no change of the layout does: less of what takes most, or
 * more devices. limit: bytes of a GPU, or of a rank. */
static void advise_more(const struct weft_trainer *t, bool gpu,
                        enum weft_mem_class most, double limit, char *out,
                        size_t size)
{
    double bytes = 0;
    for (int32_t r = 0; r < t->flow.n_roles; r++)
        if (t->flow.role[r].trained)
            bytes += weft_shortage_state_bytes(&t->config,
                                               &t->model[r].arch.shape);
    snprintf(
        out, size,
        "%s; weights, gradients and optimizer state of what is trained "
        "fill %.0f such %s at least; 'weft plan --search --cluster FILE' "
        "finds out what a plan needs",
        remedy[most], ceil(bytes / fmax(limit, 1)), gpu ? "GPUs" : "ranks");
}

static int refuse(const struct weft_trainer *t, bool gpu,
                  const int64_t sum[WEFT_MEM_ALL + 1], double limit,
                  const char *whose, struct weft_err *err)
{
    const double gib = 1073741824.0;
    char advice[400];
    int most = 0;
    for (int c = 0; c < WEFT_N_MEM_CLASSES; c++)
        if (weft_mem_class_at_place((enum weft_mem_class) c)
            && !(gpu && weft_mem_class_on_host((enum weft_mem_class) c))
            && sum[c] > sum[most])
            most = c;
    advise_more(t, gpu, (enum weft_mem_class) most, limit, advice,
                sizeof advice);
    for (size_t i = 0; i < WEFT_COUNT(changes); i++) {
        if (changes[i].offload && !gpu)
            continue; /* all is the host's */
        int64_t bytes = bytes_with(t, gpu, &changes[i]);
        if (bytes < 0 || (double) bytes > limit)
            continue;
        snprintf(advice, sizeof advice, "with %s it would need %.2f GiB",
                 changes[i].text, (double) bytes / gib);
        break;
    }
    return weft_err_set(
        err, WEFT_ENOMEM,
        "the run needs %.2f GiB%s and %s %.2f GiB; most of it, %.2f GiB, is "
        "%s: %s",
        (double) sum[WEFT_MEM_ALL] / gib, gpu ? " of a GPU's memory" : "",
        whose, limit / gib, (double) sum[most] / gib,
        weft_mem_class_name((enum weft_mem_class) most), advice);
}

/* The host's copies lie beside what the limit bounds, in the machine's
 * memory. */
static int check_host(const int64_t sum[WEFT_MEM_ALL + 1],
                      struct weft_err *err)
{
    const double gib = 1073741824.0;
    const char *whose;
    size_t limit;
    int64_t host = sum[WEFT_MEM_HOST], all = sum[WEFT_MEM_ALL] + host;
    if (host == 0)
        return 0;
    int rc = machine_limit(&limit, &whose, err);
    if (rc || (size_t) all <= limit)
        return rc;
    return weft_err_set(
        err, WEFT_ENOMEM,
        "the run needs %.2f GiB and %s %.2f GiB; %.2f GiB of "
        "it are weights and optimizer states that are offloaded (class %s): "
        "%s",
        (double) all / gib, whose, (double) limit / gib, (double) host / gib,
        weft_mem_class_name(WEFT_MEM_HOST), remedy[WEFT_MEM_HOST]);
}

/* What each GPU's place has in its memory. */
static int check_gpus(const struct weft_trainer *t, struct weft_err *err)
{
    const double gib = 1073741824.0;
    struct weft_gpu_memory has = weft_rt_gpu_memory(t->rt);
    int32_t most = fullest_gpu(t);
    char whose[160] = "it has";
    if (most < 0
        || (size_t) t->plan.memory[most][WEFT_MEM_ALL] <= has.tiles_bytes)
        return 0;
    if (t->config.runtime.gpu_memory_gib > 0)
        snprintf(whose, sizeof whose, "runtime.gpu_memory_gib is");
    else if (weft_gpu_memory_is_taken(&has))
        snprintf(
            whose, sizeof whose,
            "other processes hold memory there, so that %.2f of its %.2f "
            "GiB are free and tiles may have",
            (double) has.free_bytes / gib, (double) has.total_bytes / gib);
    return refuse(t, true, t->plan.memory[most], (double) has.tiles_bytes,
                  whose, err);
}

int weft_memory_check(const struct weft_trainer *t, struct weft_err *err)
{
    int64_t sum[WEFT_MEM_ALL + 1];
    const char *whose;
    size_t limit;
    int rc = memory_limit(t, &limit, &whose, err);
    if (rc)
        return rc;
    sum_rank(t, sum);
    if ((size_t) sum[WEFT_MEM_ALL] > limit)
        return refuse(t, false, sum, (double) limit, whose, err);
    rc = check_gpus(t, err);
    return rc ? rc : check_host(sum, err);
}

/* ---- Another plan ------------------------------------------------------ */

/* before: the run so far, of all its plans; now: the present plan's. */
static void join(const int64_t *before, const int64_t *now, int64_t *m)
{
    static const bool moves[WEFT_N_MEM_CLASSES] = {
        [WEFT_MEM_WEIGHTS] = true,
        [WEFT_MEM_OPTIMIZER] = true,
        [WEFT_MEM_HOST] = true};
    int64_t moving = before[WEFT_MEM_SAMPLES];
    for (int c = 0; c < WEFT_N_MEM_CLASSES; c++) {
        m[c] += moves[c] ? now[c] : 0;
        if (moves[c] && weft_mem_class_at_place((enum weft_mem_class) c))
            moving += m[c];
        m[c] = weft_max64(m[c], before[c]);
    }
    m[WEFT_MEM_ALL] = weft_max64(
        moving, weft_max64(m[WEFT_MEM_ALL], before[WEFT_MEM_ALL]));
}

int weft_memory_of_change(const struct weft_trainer *t,
                          struct weft_plan *plan, struct weft_err *err)
{
    struct weft_plan now = t->plan;
    bool gangs = t->gangs;
    now.memory = NULL; /* it may have more than one plan's */
    int rc = weft_trainer_predict(&t->config, &t->job, &gangs, INT64_MAX,
                                  &now, err);
    if (!rc)
        rc = weft_trainer_predict(&t->config, &t->job, &gangs, INT64_MAX,
                                  plan, err);
    for (int32_t d = 0; d < plan->n_nodes * plan->n_devices && !rc; d++)
        join(t->plan.memory[d], now.memory[d], plan->memory[d]);
    weft_free(now.memory);
    return rc;
}

/* What this rank's tiles take now, without those of GPUs. */
static size_t held(const struct weft_trainer *t)
{
    size_t sum = 0, now, peak;
    for (int c = 0; c < WEFT_N_MEM_CLASSES && t->job.n_gpus == 0; c++) {
        weft_rt_memory(t->rt, (enum weft_mem_class) c, &now, &peak);
        sum += now;
    }
    return sum;
}

int weft_memory_fits(const struct weft_trainer *t,
                     const struct weft_plan *plan, bool *out,
                     struct weft_err *err)
{
    struct weft_trainer other = *t;
    int64_t sum[WEFT_MEM_ALL + 1];
    const char *whose;
    size_t limit, machine;
    int rc = memory_limit(t, &limit, &whose, err);
    if (!rc)
        rc = machine_limit(&machine, &whose, err);
    if (rc)
        return rc;
    machine += held(t);
    if (!(t->config.runtime.memory_limit_gib > 0))
        limit = machine;
    other.plan.memory = plan->memory;
    sum_rank(&other, sum);
    int32_t gpu = fullest_gpu(&other);
    *out = (size_t) sum[WEFT_MEM_ALL] <= limit
        && (size_t) (sum[WEFT_MEM_ALL] + sum[WEFT_MEM_HOST]) <= machine
        && (gpu < 0
            || (size_t) plan->memory[gpu][WEFT_MEM_ALL]
                   <= weft_rt_gpu_memory(t->rt).tiles_bytes);
    return 0;
}
