/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan of a run, made from its configuration and its models' folders,
 * without tiles or a runtime.
 */
#ifndef WEFT_RUN_PLAN_NEEDS_H
#define WEFT_RUN_PLAN_NEEDS_H

#include "model/arch.h"
#include "plan/layout.h"
#include "run/config.h"

enum weft_run_role {
    WEFT_RUN_ACTOR,
    WEFT_RUN_CRITIC,
    WEFT_RUN_REFERENCE,
    WEFT_RUN_REWARD
};

bool weft_run_has_reference(const struct weft_config *config);

/* Reads the architecture of a folder for the run's model of that role. dtype
 * and tensor blocks are the run's; a critic gets a scalar head. name: for
 * messages; actor: the actor's shape, ignored for the actor itself. Errors:
 * those of weft_store_arch(), a head of the wrong kind, a vocabulary other
 * than the actor's. */
int weft_run_arch(const struct weft_config *config, enum weft_run_role role,
                  const char *folder, const char *name,
                  const struct weft_shape *actor, struct weft_arch *out,
                  struct weft_err *err);

/* What a plan is made for. It must not be copied, as `plan` points to the
 * shapes in it. */
struct weft_run_needs {
    struct weft_plan_needs plan;
    struct weft_shape actor, critic, reference;
    struct weft_shape reward; /* of several reward models: the fewest layers
                                 and blocks, so that a layout fits each */
};

/* Reads the models' folders. Errors: those of weft_run_arch(). */
int weft_run_needs_read(const struct weft_config *config, int32_t n_nodes,
                        int32_t n_devices, struct weft_run_needs *out,
                        struct weft_err *err);

/* Makes and checks the plan that the configuration asks for: the file `plan`,
 * or `layout` for all calls, or data parallelism. What a `layout` does not
 * say, and data parallelism, take from train.micro_batches, train.zero,
 * train.recompute and model.reference_offload. Calls that the run does not
 * make are left out. Release with weft_plan_release(). Errors: those of
 * weft_plan_read(), weft_plan_uniform(), weft_plan_check(). */
int weft_run_plan(const struct weft_config *config,
                  const struct weft_plan_needs *needs, struct weft_plan *out,
                  struct weft_err *err);

#endif
