/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Intra-stage fusion (RLHFuse section 5): models train under one bidirectional
 * pipeline schedule, on the same devices.
 *
 * A device of the schedule is a tp group of devices: that of the model with
 * the largest tp, if they differ. Consecutive stages of another model that run
 * on these devices are then one stage of the schedule.
 */
#ifndef WEFT_FUSE_FUSE_H
#define WEFT_FUSE_FUSE_H

#include "config/config.h"
#include "graphs/calls/calls.h"
#include "record/metrics.h"
#include "schedule/schedule.h"

struct weft_fuse;

/* Assigns the stages of all training calls to the same devices, every second
 * one's in reversed order. Errors: there is only one; their meshes differ; one
 * tp or pp is no multiple of another. */
int weft_fuse_plan(struct weft_plan *plan, struct weft_err *err);

/* Schedules in the order of their submission. */
struct weft_fuse_planned {
    struct weft_schedule *schedule; /* (n) */
    int32_t n;
};
void weft_fuse_planned_release(struct weft_fuse_planned *planned);

/* All is borrowed. */
struct weft_fuse_options {
    const struct weft_config *config; /* seed, run_dir, train.* */
    struct weft_seq *seq;
    bool recorded; /* by one process for all ranks */
    /* those to use, as they were when it ran; NULL: they are searched for */
    const struct weft_fuse_planned *planned;
    int n_models; /* in the order of their training calls */
    const struct weft_g_model *model[WEFT_MAX_ROLES];
    /* The most micro-batches of a pipeline in an optimizer step. */
    int32_t n_micro_batches[WEFT_MAX_ROLES];
};

/* Reads the file train.schedule. Errors: it is no schedule of these pipelines,
 * or has too few micro-batches. Free with weft_fuse_free(), also after an
 * error. */
int weft_fuse_open(const struct weft_fuse_options *options,
                   struct weft_fuse **out, struct weft_err *err);
void weft_fuse_free(struct weft_fuse *fuse); /* NULL is allowed */

/* Submits optimizer steps of n mini-batches, step[n_models i + k] of model k,
 * in the order of one schedule: that of train.schedule, or one that is
 * searched for their numbers of micro-batches, at first with stage times
 * estimated from the models' sizes, later with measured ones. All ranks use
 * the same schedule. Collective. Errors: WEFT_ENOMEM; those of the
 * sequence. */
int weft_fuse_submit(struct weft_fuse *fuse, struct weft_g_step *const step[],
                     int32_t n, struct weft_err *err);

/* Reads when the iteration's subtasks ran; call it after the wait for its
 * tasks. NULL is allowed. Collective. Errors: WEFT_ENOMEM. */
int weft_fuse_measure(struct weft_fuse *fuse, struct weft_err *err);
/* On rank 0: sets metrics that compare planned and measured times, and writes
 * the iteration's last schedule to run_dir/schedule: problem.json (for `weft
 * schedule`), fused.json, planned.svg, measured.svg; not more than once a
 * second, but in the run's last iteration. NULL is allowed. Errors: a file that
 * cannot be written. */
int weft_fuse_report(struct weft_fuse *fuse, bool last,
                     struct weft_metrics *metrics, struct weft_err *err);
/* Copies the iteration's schedules so far; none if fuse is NULL. Errors:
 * WEFT_ENOMEM. */
int weft_fuse_keep(const struct weft_fuse *fuse,
                   struct weft_fuse_planned *out, struct weft_err *err);
/* Frees what the iteration's steps used, when its tasks have ended. NULL is
 * allowed. */
void weft_fuse_forget(struct weft_fuse *fuse);

#endif
