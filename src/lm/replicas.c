/* SPDX-License-Identifier: Apache-2.0 */
#include "lm/replicas.h"

#include <math.h>

#include "base/alloc.h"
#include "lm/steps.h"
#include "plan/fusion/overlap.h"

/* With fewer for each replica, half as many of twice the devices are faster:
 * samples, as a step reads all weights whatever its rows are (`bench/model
 * --only generate`, on 2 devices), and micro-batches of texts, which replicas
 * seldom have equally many of. */
enum { ENOUGH_SAMPLES = 32, ENOUGH_BATCHES = 4 };

/* What makes up for reading weights is the rows of a step, however many devices
 * read them: so it is the same for all tp. */
static struct weft_replicas by_rule(const struct weft_replicas_job *job,
                                    int64_t amount, int64_t enough)
{
    int32_t n = job->devices.n_devices, tp = 1;
    while (2 * tp <= job->shape->n_blocks && n % (2 * tp) == 0
           && amount < enough * (n / tp))
        tp *= 2;
    return (struct weft_replicas){n / tp, tp, 0};
}

/* ---- By costs ----------------------------------------------------------- */

/* What is to be done, and its seconds with a layout; below 0: not measured. */
struct work {
    const char *what;
    int (*seconds)(const void *of, struct weft_costs *costs,
                   const struct weft_shape *shape,
                   const struct weft_g_layout *layout, double *out,
                   struct weft_err *err);
    const void *of;
};

static int try(const struct weft_replicas_job *job, const struct work *work,
               struct weft_costs *costs, struct weft_replicas *best,
               int32_t tp, struct weft_err *err)
{
    int32_t dp = job->devices.n_devices / tp;
    struct weft_plan plan = {.n_nodes = 1,
                             .n_devices = job->devices.n_devices};
    struct weft_g_layout layout;
    double seconds = -1;
    plan.call[1] = (struct weft_call_plan){
        .mesh = {.n_nodes = 1, .n_devices = dp * tp},
        .dp = dp,
        .tp = tp,
        .pp = 1};
    int rc = weft_g_layout_init(&job->devices, job->shape, &plan, 1, &layout,
                                err);
    if (!rc)
        rc = work->seconds(work->of, costs, job->shape, &layout, &seconds,
                           err);
    if (!rc && seconds >= 0 && (best->tp == 0 || seconds < best->seconds))
        *best = (struct weft_replicas){dp, tp, seconds};
    weft_g_layout_release(&layout);
    return rc;
}

static int by_costs(const struct weft_replicas_job *job,
                    const struct work *work, struct weft_replicas *out,
                    struct weft_err *err)
{
    int32_t n = job->devices.n_devices;
    struct weft_replicas best = {.tp = 0};
    struct weft_cluster cluster;
    struct weft_costs *costs;
    weft_costs_file_cluster(job->costs, 1, n, 0, &cluster);
    int rc = weft_costs_create(&(struct weft_costs_job){.cluster = &cluster,
                                                        .file = job->costs,
                                                        .n_ranks = 1,
                                                        .n_devices = n},
                               &costs, err);
    if (rc)
        return rc;
    for (int32_t tp = 1; tp <= n && tp <= job->shape->n_blocks && !rc; tp++)
        rc = try(job, work, costs, &best, tp, err);
    weft_costs_free(costs);
    if (!rc && best.tp == 0)
        rc = weft_err_set(err, WEFT_ENOTFOUND,
                          "'%s' does not say what %s of this model takes in "
                          "%s with %d tensor blocks; run weft profile on a "
                          "configuration that has the model",
                          job->costs_path, work->what,
                          weft_dtype_name(job->shape->dtype),
                          job->shape->n_blocks);
    if (!rc)
        *out = best;
    return rc;
}

/* ---- Samples ------------------------------------------------------------ */

int32_t weft_replicas_slots(const struct weft_g_layout *layout, int32_t n,
                            int32_t slots)
{
    int32_t instances = weft_g_generate_instances(layout, n);
    return (int32_t) weft_min64((int64_t) slots * layout->plan.tp,
                                weft_ceil_div(n, instances));
}

static double step_s(void *ctx, const struct weft_work_rows *rows)
{
    return weft_steps_s(ctx, rows);
}

/* Instances begin with as many samples as they have slots, and take as many
 * again when those have ended, which is at the same time. */
static struct weft_overlap_sample *samples_of(
    const struct weft_replicas_samples *s, int32_t instances, int32_t slots)
{
    struct weft_overlap_sample *out = weft_alloc((size_t) s->n, sizeof *out);
    for (int32_t k = 0; out && k < s->n; k++) {
        const struct weft_sample *from = &s->sample[k];
        out[k] = (struct weft_overlap_sample){
            k / slots % instances, from->n_prompt,
            from->limit - from->n_prompt, from->prompt + 1};
    }
    return out;
}

/* Seconds of generating them, simulated step by step. */
static int simulate(const struct weft_replicas_samples *s,
                    const struct weft_g_layout *layout,
                    struct weft_steps *steps, double *out,
                    struct weft_err *err)
{
    const struct weft_overlap_when never = {.share = 0};
    struct weft_migrate_costs costs = {.ctx = steps,
                                       .step_s = step_s,
                                       .read_rows = s->read_rows,
                                       .token_bytes = 1,
                                       .memory_bytes = INFINITY};
    struct weft_overlap_job job = {
        .costs = &costs,
        .n_instances = weft_g_generate_instances(layout, s->n),
        .slots = steps->slots,
        .n_samples = s->n};
    struct weft_overlapped played;
    struct weft_overlap_sample *sample = samples_of(s, job.n_instances,
                                                    job.slots);
    int32_t prompt = 0;
    if (!sample)
        return weft_err_nomem(err, "samples", (size_t) s->n * sizeof *sample);
    for (int32_t k = 0; k < s->n; k++) {
        prompt = weft_max32(prompt, sample[k].prompt);
        job.most = weft_max32(job.most, sample[k].length);
    }
    if (s->kv_tokens > 0) /* too few are refused when the cache is made */
        costs.memory_bytes = weft_max32(s->kv_tokens, prompt + job.most);
    job.sample = sample;
    int rc = weft_overlap_simulate(&job, &never, &played, NULL, err);
    if (!rc)
        *out = played.generated_s;
    weft_free(sample);
    return rc;
}

static int samples_s(const void *of, struct weft_costs *costs,
                     const struct weft_shape *shape,
                     const struct weft_g_layout *layout, double *out,
                     struct weft_err *err)
{
    const struct weft_replicas_samples *s = of;
    struct weft_steps steps;
    int32_t longest = 0;
    for (int32_t k = 0; k < s->n; k++)
        longest = weft_max32(longest, s->sample[k].limit);
    int rc = weft_steps_init(costs, shape, layout, 1,
                             weft_replicas_slots(layout, s->n, s->slots),
                             longest, &steps, err);
    if (!rc && weft_pass_price_is_measured(steps.pass))
        rc = simulate(s, layout, &steps, out, err);
    weft_steps_release(&steps);
    return rc;
}

int weft_replicas_of_samples(const struct weft_replicas_job *job,
                             const struct weft_replicas_samples *samples,
                             struct weft_replicas *out, struct weft_err *err)
{
    const struct work work = {"generation", samples_s, samples};
    *out = by_rule(job, samples->n, ENOUGH_SAMPLES);
    return job->costs && samples->n > 0 ? by_costs(job, &work, out, err) : 0;
}

/* ---- Texts -------------------------------------------------------------- */

struct batches {
    int32_t n;
    const struct weft_work_rows *rows; /* (n) */
};

static int batches_s(const void *of, struct weft_costs *costs,
                     const struct weft_shape *shape,
                     const struct weft_g_layout *layout, double *out,
                     struct weft_err *err)
{
    const struct batches *b = of;
    double busy_s[WEFT_MAX_DEVICES] = {0}, last_s = 0;
    struct weft_pass_price *pass;
    int rc = weft_pass_price_create(costs, shape, layout, false, &pass, err);
    if (rc)
        return rc;
    for (int32_t i = 0; i < b->n; i++) {
        double *s = &busy_s[i % layout->plan.dp];
        *s += weft_pass_price_s(pass, &b->rows[i]);
        last_s = fmax(last_s, *s);
    }
    if (weft_pass_price_is_measured(pass))
        *out = last_s;
    weft_pass_price_free(pass);
    return 0;
}

int weft_replicas_of_batches(const struct weft_replicas_job *job, int32_t n,
                             const struct weft_work_rows batch[],
                             struct weft_replicas *out, struct weft_err *err)
{
    const struct batches batches = {n, batch};
    const struct work work = {"inference", batches_s, &batches};
    *out = by_rule(job, n, ENOUGH_BATCHES);
    return job->costs && n > 0 ? by_costs(job, &work, out, err) : 0;
}
