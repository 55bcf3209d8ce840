/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Intra-stage fusion (RLHFuse section 5): actor and critic train under one
 * bidirectional pipeline schedule, on the same devices.
 *
 * A device of the schedule is a tp group of devices: that of the model with
 * the larger tp, if they differ. Consecutive stages of the other model that
 * run on these devices are then one stage of the schedule.
 */
#ifndef WEFT_RUN_FUSE_H
#define WEFT_RUN_FUSE_H

#include "run/trainer.h"

struct weft_fuse;

/* Assigns the stages of both training calls to the same devices, the critic's
 * in reversed order. Errors: their meshes differ; one tp or pp is no multiple
 * of the other. */
int weft_fuse_plan(struct weft_plan *plan, struct weft_err *err);

/* Sets t->fuse from the layouts and reads the file train.schedule. Errors: the
 * file is no schedule of these pipelines, or has too few micro-batches. */
int weft_fuse_open(struct weft_trainer *t, struct weft_err *err);
void weft_fuse_free(struct weft_fuse *fuse); /* NULL is allowed */

/* Submits n optimizer steps of the actor (step[2 i]) and the critic (step[2 i
 * + 1]), one per mini-batch, in the order of one schedule: that of
 * train.schedule, or one that is searched for their numbers of micro-batches,
 * at first with stage times estimated from the models' sizes, later with
 * measured ones. All ranks use the same schedule. Collective. Errors:
 * WEFT_ENOMEM; those of the sequence. */
int weft_fuse_submit(struct weft_trainer *t, struct weft_g_step *const step[],
                     int32_t n, struct weft_err *err);

/* Reads when the iteration's subtasks ran; call it after the wait for its
 * tasks. Collective. Errors: WEFT_ENOMEM. */
int weft_fuse_measure(struct weft_trainer *t, struct weft_err *err);
/* On rank 0: sets metrics that compare planned and measured times, and writes
 * the iteration's last schedule to run_dir/schedule: problem.json (for `weft
 * schedule`), fused.json, planned.svg, measured.svg. Errors: a file that
 * cannot be written. */
int weft_fuse_report(struct weft_trainer *t, struct weft_err *err);
/* Frees what the iteration's steps used, when its tasks have ended. */
void weft_fuse_forget(struct weft_trainer *t);

#endif
