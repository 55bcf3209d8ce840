/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/batch.h"

#include "job/plan_needs.h"
#include "run/trainer.h"

enum {
    MOST = 16384
}; /* that are tried: larger ones take minutes to record */

static int32_t *key_of(struct weft_config *c)
{
    return weft_config_generates(c) ? &c->rollout.prompts : &c->train.batch;
}

void weft_batch_set(struct weft_config *c, int32_t n)
{
    *key_of(c) = n;
    c->rollout.slots = weft_run_samples(c);
    c->train.micro_batch_tokens = INT32_MAX;
}

/* Bytes of the fullest device, of which some may have a place together. */
static double fullest(const struct weft_config *c,
                      const struct weft_plan *plan)
{
    bool own = c->runtime.place == WEFT_PLACE_DEVICE;
    int32_t cpus = plan->n_devices - plan->n_gpus;
    double most = 0;
    for (int32_t d = 0; d < plan->n_nodes * plan->n_devices; d++) {
        double bytes = (double) plan->memory[d][WEFT_MEM_ALL];
        if (!own && !weft_plan_is_gpu(plan, d))
            bytes /= cpus;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static struct weft_g_job job_of(const struct weft_config *c,
                                const struct weft_plan *plan)
{
    return (struct weft_g_job){plan->n_nodes, plan->n_devices,
                               c->runtime.place == WEFT_PLACE_DEVICE,
                               plan->n_gpus, false};
}

static int predict(const struct weft_config *config, int32_t n, bool gangs,
                   struct weft_plan *plan, double *out, struct weft_err *err)
{
    struct weft_config c = *config;
    struct weft_g_job job = job_of(config, plan);
    weft_batch_set(&c, n);
    int rc = weft_trainer_predict(&c, &job, &gangs, 0, plan, err);
    if (!rc)
        *out = fullest(&c, plan);
    return rc;
}

/* The smallest n with which each replica that generates has a sample, and each
 * mini-batch. */
static int32_t smallest(const struct weft_config *config,
                        const struct weft_plan *plan)
{
    const struct weft_dataflow *flow = &plan->flow;
    int32_t each = weft_config_generates(config)
                     ? config->rollout.samples_per_prompt
                     : weft_run_unit(config);
    int64_t least = weft_max64(config->policy.mini_batches, 1);
    for (int32_t i = 1; i < flow->n_calls; i++)
        if (flow->call[i].kind == WEFT_GENERATE)
            least = weft_max64(least,
                               (int64_t) plan->call[i].dp
                                   * (flow->call[i].greedy ? each : 1));
    return (int32_t) weft_ceil_div(least, each);
}

/* What a batch of n is, and its memory. */
static int describe(const struct weft_config *config, int32_t n, bool gangs,
                    struct weft_plan *plan, struct weft_largest_batch *out,
                    struct weft_err *err)
{
    struct weft_trainer *t;
    struct weft_config c = *config;
    struct weft_g_job job = job_of(config, plan);
    int64_t slots = 0;
    int rc = predict(config, n, gangs, plan, &out->bytes, err);
    weft_batch_set(&c, n);
    if (!rc)
        rc = weft_trainer_describe(&c, &job, plan, &t, err);
    if (rc)
        return rc;
    out->samples = weft_run_samples(&c);
    for (int32_t i = 1; i < t->flow.n_calls; i++)
        if (t->flow.call[i].kind == WEFT_GENERATE)
            slots = weft_max64(
                slots, weft_ceil_div(out->samples, t->layout[i].plan.dp));
    int64_t longest = t->max_prompt + (slots ? c.rollout.max_new_tokens : 0);
    int64_t step = weft_ceil_div(out->samples, t->settings.mini_batches);
    out->slots = (int32_t) slots;
    out->micro_batch = (int32_t) weft_ceil_div(step,
                                               c.numerics.gradient_groups);
    out->micro_tokens = (int32_t) (out->micro_batch * longest);
    weft_trainer_forget(t);
    return 0;
}

/* What is known of memory: the largest n that fits, the one that fitted before,
 * and the smallest that does not. */
struct known {
    int32_t before, fits, more;
    double before_bytes, fits_bytes, more_bytes;
    int32_t tries;
};

/* Where a line through two sizes takes `bytes`. */
static int64_t on_line(int32_t n0, double bytes0, int32_t n1, double bytes1,
                       double bytes)
{
    double each = (bytes1 - bytes0) / (n1 - n0);
    double n = each > 0 ? n1 + (bytes - bytes1) / each : 2.0 * n1;
    return (int64_t) (n < MOST ? n : MOST);
}

/* The size to try next, as memory is nearly linear in n; the middle now and
 * then, so that the end is near even where it is not. 0: all is known. */
static int32_t next_size(const struct known *k, double limit)
{
    if (k->fits == 0 || k->fits == MOST || k->more - k->fits == 1)
        return 0;
    if (k->more > MOST) {
        int64_t n = k->before ? on_line(k->before, k->before_bytes, k->fits,
                                        k->fits_bytes, limit)
                              : 2 * (int64_t) k->fits;
        n = weft_max64(n, k->fits + 1);
        return (int32_t) weft_min64(weft_min64(n, 16 * (int64_t) k->fits),
                                    MOST);
    }
    int64_t n = k->tries % 3 == 2 ? ((int64_t) k->fits + k->more) / 2
                                  : on_line(k->fits, k->fits_bytes, k->more,
                                            k->more_bytes, limit);
    return (int32_t) weft_min64(weft_max64(n, k->fits + 1), k->more - 1);
}

int weft_run_largest_batch(const struct weft_config *config,
                           double device_bytes, bool gangs,
                           struct weft_plan *plan,
                           struct weft_largest_batch *out,
                           struct weft_err *err)
{
    const double limit = WEFT_BATCH_SHARE * device_bytes;
    int32_t least = smallest(config, plan);
    struct known k = {.more = MOST + 1};
    int rc = 0;
    *out = (struct weft_largest_batch){.n = 0};
    for (int32_t n = least; n > 0 && !rc; n = next_size(&k, limit)) {
        double bytes = 0;
        rc = predict(config, n, gangs, plan, &bytes, err);
        k.tries++;
        if (bytes <= limit) {
            k.before = k.fits;
            k.before_bytes = k.fits_bytes;
            k.fits = n;
            k.fits_bytes = bytes;
        } else {
            k.more = n;
            k.more_bytes = bytes;
        }
    }
    out->n = k.fits;
    out->more_bytes = k.more_bytes;
    return rc ? rc
              : describe(config, k.fits ? k.fits : least, gangs, plan, out,
                         err);
}

int weft_batch_text(const struct weft_largest_batch *b, double device_bytes,
                    struct weft_string *out, struct weft_err *err)
{
    const char *key = b->slots ? "rollout.prompts" : "train.batch";
    if (b->n == 0)
        weft_string_addf(out,
                         "no batch fits: the smallest takes %.4g GiB of a "
                         "device, which has %.4g, of which a batch may "
                         "take %g %%\n",
                         b->bytes / 0x1p30, device_bytes / 0x1p30,
                         100 * WEFT_BATCH_SHARE);
    else
        weft_string_addf(out,
                         "the largest batch is %s=%d: %d samples an "
                         "iteration, micro-batches of %d "
                         "(train.micro_batch_tokens=%d)",
                         key, (int) b->n, (int) b->samples,
                         (int) b->micro_batch, (int) b->micro_tokens);
    if (b->n > 0 && b->slots)
        weft_string_addf(out, ", %d at once in an instance (rollout.slots)",
                         (int) b->slots);
    if (b->n > 0)
        weft_string_addf(out,
                         "; it takes %.4g GiB of a device, which has %.4g",
                         b->bytes / 0x1p30, device_bytes / 0x1p30);
    if (b->n > 0 && b->more_bytes > 0)
        weft_string_addf(out, "; one more would take %.4g, above 95 %%\n",
                         b->more_bytes / 0x1p30);
    else if (b->n > 0)
        weft_string_add(out, "; larger ones were not tried\n");
    return weft_string_check(out, "a batch", err);
}
