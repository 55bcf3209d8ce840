/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Intra-stage fusion (RLHFuse section 5): actor and critic train under one
 * bidirectional pipeline schedule, on the same devices.
 *
 * A device of the schedule is a tp group of devices. Where the models' tp
 * differ, that of the larger one: so many stages of the other model, one after
 * another in its pipeline, are one stage of the schedule.
 */
#ifndef WEFT_RUN_FUSE_H
#define WEFT_RUN_FUSE_H

#include "run/trainer.h"

struct weft_fuse;

/* Lays the training calls' pipelines beside one another, the critic's
 * reversed. Errors: meshes that differ, a tp or pp that is no multiple. */
int weft_fuse_plan(struct weft_plan *plan, struct weft_err *err);

/* Sets t->fuse, from the layouts; reads train.schedule. Errors: a file that is
 * no schedule of these pipelines, or has fewer micro-batches. */
int weft_fuse_open(struct weft_trainer *t, struct weft_err *err);
void weft_fuse_free(struct weft_fuse *fuse); /* NULL is allowed */

/* Submits n optimizer steps of the actor (step[2 i]) and the critic (step[2 i
 * + 1]), mini-batch after mini-batch, in the order of a schedule: that of
 * train.schedule, or one searched for their numbers of micro-batches, first
 * from the models' sizes, then from measured times. Every rank finds the same.
 * Collective. Errors: WEFT_ENOMEM; those of the sequence. */
int weft_fuse_submit(struct weft_trainer *t, struct weft_g_step *const step[],
                     int32_t n, struct weft_err *err);

/* After the iteration's wait: reads when its subtasks ran. Collective. Errors:
 * WEFT_ENOMEM. */
int weft_fuse_measure(struct weft_trainer *t, struct weft_err *err);
/* Rank 0's: the iteration's plan beside what was measured, as metrics, and its
 * last step in run_dir/schedule: problem.json (for weft schedule), fused.json,
 * planned.svg, measured.svg. Errors: a file that cannot be written. */
int weft_fuse_report(struct weft_trainer *t, struct weft_err *err);
/* Frees the iteration's steps; its tasks have ended. */
void weft_fuse_forget(struct weft_trainer *t);

#endif
