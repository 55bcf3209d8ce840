/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/recorded.h"

#include <string.h>

#include "base/alloc.h"
#include "job/plan_needs.h"
#include "lm/store.h"
#include "run/ahead.h"

/* A run of its own that borrows from t what describes it. */
static struct weft_trainer *describe(const struct weft_trainer *t,
                                     const struct weft_recorded *how)
{
    struct weft_trainer *d = weft_alloc(1, sizeof *d);
    uint32_t *order = weft_alloc((size_t) t->n_prompts, sizeof *order);
    if (!d || !order) {
        weft_free(d);
        weft_free(order);
        return NULL;
    }
    *d = (struct weft_trainer){.config = t->config,
                               .settings = t->settings,
                               .plan = t->plan,
                               .job = t->job,
                               .flow = t->flow,
                               .n_prompts = t->n_prompts,
                               .prompt = t->prompt,
                               .max_prompt = t->max_prompt,
                               .iteration = how->first,
                               .n_iterations = t->n_iterations,
                               .drawn = how->drawn,
                               .order = order,
                               .order_epoch = -1,
                               .recorded = how};
    if (how->n_total) /* else every sample goes to its limit */
        d->lengths = t->lengths;
    memcpy(d->layout, t->layout, sizeof d->layout);
    memcpy(d->reward_text, t->reward_text, sizeof d->reward_text);
    for (int32_t r = 0; r < t->flow.n_roles; r++)
        d->model[r].arch = t->model[r].arch;
    return d;
}

/* Records what saving the roles that change takes, and samples ahead. */
static int save(struct weft_trainer *d, struct weft_err *err)
{
    for (int32_t r = 0; r < d->flow.n_roles; r++)
        if (d->flow.role[r].trained || d->flow.role[r].follows >= 0)
            weft_store_record_save(d->seq,
                                   weft_trainer_weights(&d->model[r]));
    return weft_ahead_write(d, NULL, NULL, err);
}

static int record(struct weft_trainer *d, struct weft_recording *out,
                  struct weft_err *err)
{
    const struct weft_record_options options = {
        .n_ranks = d->job.n_ranks,
        .n_devices = d->job.n_devices,
        .n_gpus = d->job.n_gpus,
        .gpus_apart = d->job.gpus_apart,
        .direct_messages = d->config.runtime.gpu_messages == WEFT_BY_MPI,
        .place_per_device = d->job.place_per_device,
        .rank = d->recorded->rank,
        .open_ends = !d->recorded->n_total,
        .gangs = d->recorded->gangs,
        .joined_steps = d->recorded->joined_steps,
        .left_out = d->recorded->left_out,
        .calls = d->recorded->calls,
        .recording = out};
    int rc = weft_rt_record(&options, &d->rt, err);
    if (!rc)
        rc = weft_seq_create(d->rt, &d->seq, err);
    if (!rc)
        rc = weft_trainer_create_tiles(d, err);
    if (!rc && d->recorded->decisions)
        rc = weft_tail_replay(d, d->recorded->decisions, err);
    else if (!rc && d->recorded->costs)
        rc = weft_tail_create(d->recorded->costs,
                              weft_run_samples_all(&d->config, &d->flow),
                              &d->tail, err);
    for (int32_t i = 0; i < d->recorded->iterations && !rc; i++) {
        weft_recording_ask(out);
        rc = weft_recording_status(out, err);
        if (!rc)
            rc = weft_iteration_run(d, err);
        d->iteration++;
    }
    if (!rc && d->recorded->saves)
        rc = save(d, err);
    if (!rc)
        rc = weft_seq_status(d->seq, err);
    weft_recording_trim(out);
    return rc ? rc : weft_recording_status(out, err);
}

int weft_run_record(const struct weft_trainer *t,
                    const struct weft_recorded *how,
                    struct weft_recording *out, struct weft_err *err)
{
    struct weft_trainer *d = describe(t, how);
    if (!d)
        return weft_err_nomem(err, "recording a run", sizeof *d);
    int rc = record(d, out, err);
    weft_trainer_release_tiles(d);
    weft_rt_stop(d->rt);
    weft_tail_free(d->tail);
    weft_free(d->order);
    weft_free(d);
    return rc;
}

int weft_run_record_again(const struct weft_trainer *t,
                          const struct weft_replay *replay, int rank,
                          struct weft_recording *out, struct weft_err *err)
{
    const struct weft_recorded how = {.rank = rank,
                                      .saves = true,
                                      .first = replay->iteration,
                                      .iterations = 1,
                                      .drawn = replay->drawn,
                                      .n_total = replay->n_total,
                                      .n_text = replay->n_text,
                                      .order = replay->order,
                                      .n_orders = 2,
                                      .tail = replay->tail[0],
                                      .fused = &replay->fused};
    return weft_run_record(t, &how, out, err);
}

/* Fused training inserts the same tasks in an order that only a search
 * finds. */
static void forget_order(const struct weft_trainer *t,
                         struct weft_recording *r)
{
    for (int64_t i = 0; i < r->n_tasks; i++)
        if (weft_flow_trains(&t->flow, r->task[i].call))
            r->task[i].position = 0;
}

int weft_run_record_bound(const struct weft_trainer *t, bool gangs,
                          struct weft_recording *out, struct weft_err *err)
{
    struct weft_trainer most = *t;
    struct weft_config *c = &most.config;
    const struct weft_recorded how = {.rank = -1,
                                      .saves = true,
                                      .gangs = gangs,
                                      .first = t->settings.warmup,
                                      .iterations = 1};
    bool fused = t->plan.intra_stage_fusion;
    if (fused)
        c->train.mini_batches_ahead *= c->train.joined_mini_batches;
    most.plan.intra_stage_fusion = false;
    c->train.as_completed = c->train.as_completed && !fused;
    c->checkpoint.every = 0;
    c->plan_again.every = 0;
    c->epochs = 0; /* whole batches */
    most.n_iterations = how.first + 2;
    for (int32_t r = 0; r < most.flow.n_roles; r++)
        most.flow.role[r].every = 1; /* of those that follow another */
    int rc = weft_run_record(&most, &how, out, err);
    if (!rc && fused)
        forget_order(t, out);
    return rc;
}
