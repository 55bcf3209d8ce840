/* SPDX-License-Identifier: Apache-2.0 */
/* What a run does between its opening and its end: an iteration after the
 * other, with metrics, checkpoints and what memory was taken. */
#include "base/clock.h"
#include "run/checkpoint.h"
#include "run/predict/again.h"
#include "run/predict/memory.h"
#include "run/run_dir.h"
#include "run/trainer.h"

bool weft_trainer_done(const struct weft_trainer *t)
{
    return t->iteration >= t->n_iterations;
}

int32_t weft_trainer_iteration(const struct weft_trainer *t)
{
    return t->iteration;
}

int32_t weft_trainer_iterations(const struct weft_trainer *t)
{
    return t->n_iterations;
}

int weft_trainer_metric(const struct weft_trainer *t, const char *tag,
                        double *out)
{
    return weft_metrics_get(t->metrics, tag, out) ? 0 : WEFT_ENOTFOUND;
}

const struct weft_metrics *weft_trainer_metrics(const struct weft_trainer *t)
{
    return t->metrics;
}

void weft_trainer_set_reward(struct weft_trainer *t, weft_reward_fn fn,
                             void *ctx)
{
    if (t->rewards) /* an SFT run has none */
        weft_rewards_set_callback(t->rewards, fn, ctx);
}

void weft_trainer_set_reward_batch(struct weft_trainer *t,
                                   weft_reward_batch_fn fn, void *ctx)
{
    if (t->rewards)
        weft_rewards_set_batch(t->rewards, fn, ctx);
}

static bool checkpoint_due(const struct weft_trainer *t)
{
    int32_t every = t->config.checkpoint.every;
    return weft_trainer_done(t) || (every > 0 && t->iteration % every == 0);
}

/* Writes measured memory beside the prediction. */
static int measure(struct weft_trainer *t, struct weft_err *err)
{
    int rc = weft_memory_measure(t, err);
    if (!rc)
        rc = weft_memory_replay(t, err);
    if (!rc && weft_world_rank() == 0)
        rc = weft_memory_write(t, err);
    return weft_world_agree(rc, err);
}

int weft_trainer_step(struct weft_trainer *t, struct weft_err *err)
{
    if (weft_trainer_done(t))
        return weft_err_set(err, WEFT_ESTATE,
                            "the run has made its %d iterations",
                            t->n_iterations);
    weft_metrics_clear(t->metrics);
    int rc = weft_again_plan(t, err);
    if (!rc)
        rc = weft_iteration_run(t, err);
    if (rc)
        return rc;
    t->iteration++;
    weft_metrics_set(t->metrics, "timing_s/save_checkpoint", t->last_save_s);
    weft_metrics_set(t->metrics, "training/global_step", t->iteration);
    if (weft_world_rank() == 0)
        rc = weft_metrics_write(t->metrics_writer, t->iteration, t->metrics,
                                err);
    rc = weft_world_agree(rc, err);
    if (!rc)
        rc = weft_metrics_share(t->metrics, err);
    if (t->iteration - t->began >= t->config.trace_iterations)
        weft_rt_fxt_stop(t->rt);
    /* Metrics are written before the checkpoint: resuming removes lines after
     * the checkpoint, but cannot add missing ones. */
    t->last_save_s = 0;
    if (!rc && checkpoint_due(t))
        rc = weft_trainer_checkpoint(t, err);
    if (!rc && checkpoint_due(t))
        rc = measure(t, err);
    return rc;
}

int weft_trainer_checkpoint(struct weft_trainer *t, struct weft_err *err)
{
    double start = weft_clock_s();
    int rc = weft_checkpoint_write(t, err);
    t->last_save_s = weft_clock_s() - start;
    return rc;
}
