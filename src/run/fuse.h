/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Intra-stage fusion (RLHFuse section 5): actor and critic train under one
 * bidirectional pipeline schedule, on the same devices.
 */
#ifndef WEFT_RUN_FUSE_H
#define WEFT_RUN_FUSE_H

#include "run/trainer.h"

/* The schedule in use. */
struct weft_fuse;
void weft_fuse_free(struct weft_fuse *fuse); /* NULL is allowed */

/* Lays the training calls' pipelines beside one another, the critic's
 * reversed. Errors: meshes, or numbers of devices or tp that differ. */
int weft_fuse_plan(struct weft_plan *plan, struct weft_err *err);

/* Submits the forwards and backwards of an optimizer step of the actor
 * (step[0]) and the critic (step[1]) in the schedule's order: read from
 * train.schedule, or searched for their numbers of micro-batches, which are
 * looked up from then on. Every rank finds the same. Errors: a file that does
 * not fit, WEFT_ENOMEM. */
int weft_fuse_submit(struct weft_trainer *t, struct weft_g_step *step[2],
                     struct weft_err *err);

#endif
