/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan of a run: what its configuration and its models' folders say,
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

/* Reads a folder as the run's model of that role: dtype and tensor blocks are
 * the run's, a critic gets a scalar head. `name` stands in messages; `actor`:
 * the actor's shape (not looked at for the actor itself). Errors: those of
 * weft_store_arch(), a head of the wrong kind, another vocabulary. */
int weft_run_arch(const struct weft_config *config, enum weft_run_role role,
                  const char *folder, const char *name,
                  const struct weft_shape *actor, struct weft_arch *out,
                  struct weft_err *err);

/* What the plan is made for. `plan` points to the shapes beside it: not to be
 * copied. */
struct weft_run_needs {
    struct weft_plan_needs plan;
    struct weft_shape actor, critic, reference;
    struct weft_shape reward; /* several: the least layers and blocks of all,
                                 so that a layout for it does for each */
};

/* Reads the models' folders. Errors: those of weft_run_arch(). */
int weft_run_needs_read(const struct weft_config *config, int32_t n_nodes,
                        int32_t n_devices, struct weft_run_needs *out,
                        struct weft_err *err);

/* The plan that the configuration asks for, checked: the file `plan`, or
 * `layout` for all calls, or data parallel; the latter two with
 * train.micro_batches, train.zero, train.recompute and
 * model.reference_offload where the layout says nothing. Calls that the run
 * does not make are left out. Release with weft_plan_release(). Errors: those
 * of weft_plan_read(), weft_plan_uniform(), weft_plan_check(). */
int weft_run_plan(const struct weft_config *config,
                  const struct weft_plan_needs *needs, struct weft_plan *out,
                  struct weft_err *err);

#endif
