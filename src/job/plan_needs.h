/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan of a run, made from its configuration and its models' folders,
 * without tiles or a runtime.
 */
#ifndef WEFT_JOB_PLAN_NEEDS_H
#define WEFT_JOB_PLAN_NEEDS_H

#include "graphs/algorithms.h"
#include "model/arch.h"
#include "config/config.h"
#include "plan/layout.h"

/* Samples that are dealt and split together: 2 of a pair, else 1. */
int32_t weft_run_unit(const struct weft_config *config);
/* Samples of an iteration that are learned from. */
int32_t weft_run_samples(const struct weft_config *config);
/* Samples that have a field of the graph. */
int32_t weft_run_samples_at(const struct weft_config *config,
                            const struct weft_dataflow *flow, int32_t field);

/* Samples of an iteration, of all sets. */
int32_t weft_run_samples_all(const struct weft_config *config,
                             const struct weft_dataflow *flow);

/* The dataflow graph of the configuration's algorithm. Errors: those of
 * weft_flow_check(). */
int weft_run_flow(const struct weft_config *config, struct weft_dataflow *out,
                  struct weft_err *err);

/* The folder that a role's model is made from, as the configuration says. */
const char *weft_run_folder(const struct weft_config *config,
                            const struct weft_role *role);
/* The optimizer of a trained role, which the configuration has keys for. */
const struct weft_optimizer_config *weft_run_optimizer(
    const struct weft_config *config, const struct weft_role *role);

/* Reads the architecture of a role's folder. dtype and tensor blocks are the
 * run's; a trained role with a scalar head may come from a language model.
 * policy: the shape of role 0, ignored for that role itself. Errors: those of
 * weft_store_arch(), a head of the wrong kind, a vocabulary other than the
 * policy's. */
int weft_run_arch(const struct weft_config *config,
                  const struct weft_dataflow *flow, int32_t role,
                  const struct weft_shape *policy, struct weft_arch *out,
                  struct weft_err *err);

/* What a plan is made for. It must not be copied, as `plan` points to what is
 * beside it. */
struct weft_run_needs {
    struct weft_plan_needs plan;
    struct weft_dataflow flow;
    struct weft_shape shape[WEFT_MAX_ROLES];
};

/* n_devices: of a node, of which n_gpus are GPUs. Reads the models' folders.
 * Errors: those of weft_run_arch(), a role of
 * another shape than that which it follows. */
int weft_run_needs_read(const struct weft_config *config, int32_t n_nodes,
                        int32_t n_devices, int32_t n_gpus,
                        struct weft_run_needs *out, struct weft_err *err);

/* Refuses a configuration with LoRA adapters, or with models that share
 * weights, where planning is not all that is done. who: "training has".
 * Errors: WEFT_EINVAL. */
int weft_run_check_supported(const struct weft_config *config,
                             const char *who, struct weft_err *err);

/* The stage fusion of a plan is what the plan says, or the configuration.
 * Pipelines that are to be fused lie beside one another then. Errors: those of
 * weft_fuse_plan(). */
int weft_run_fuse(const struct weft_config *config, struct weft_plan *plan,
                  struct weft_err *err);

/* Makes and checks the plan that the configuration asks for: the file `plan`,
 * or `layout`, one for all calls or a strategy's name, or data parallelism,
 * also where the plan is to be found (run/predict/auto.h). What a `layout` does
 * not say, and data parallelism, take from train.micro_batches, train.zero,
 * train.recompute, train.offload_optimizer and model.reference_offload. Calls
 * that the run does not make are left out. Release with weft_plan_release().
 * Errors: those of weft_plan_read(), weft_plan_uniform(), weft_plan_check(). */
int weft_run_plan(const struct weft_config *config,
                  const struct weft_plan_needs *needs, struct weft_plan *out,
                  struct weft_err *err);

#endif
