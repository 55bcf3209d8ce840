/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures what this machine's kernels take for the models of a configuration:
 * it runs the graphs of training, inference and generation on some layers of
 * each model, with all devices busy, at sizes that double, and notes every
 * task beside what was recorded of it. So the names and shapes of what is
 * measured are those that recorded tasks have.
 */
#ifndef WEFT_JOB_PROFILE_H
#define WEFT_JOB_PROFILE_H

#include "config/config.h"
#include "plan/costs_file.h"

struct weft_profile_options {
    /* GPUs if there are any, from number first_gpu on: these are measured, and
     * not the CPU devices beside them */
    int32_t n_gpus, first_gpu;
    int32_t n_devices; /* CPU devices */
    double limit_s; /* larger sizes are left out when it would take longer */
    /* Called before each measurement: what, and the share of the time that is
     * used; may be NULL. */
    void (*progress)(void *ctx, const char *what, double share);
    void *ctx;
};

/* This machine, with so many devices of the configuration's kind, and the
 * kernels that are in use (or would be chosen for it). Errors: those of
 * weft_k_init(), hwloc; GPUs of several kinds. */
int weft_profile_machine(const struct weft_config *config, int32_t n_devices,
                         struct weft_costs_machine *out,
                         struct weft_err *err);

/* Reads what was measured on this machine, with any number of devices of the
 * configuration's kind. What was measured elsewhere, on another GPU or by other
 * kernels, is refused. Release it with weft_costs_file_release(). Errors: those
 * of weft_profile_machine(), weft_costs_file_read(). */
int weft_profile_read(const char *path, const struct weft_config *config,
                      struct weft_costs_file *out, struct weft_err *err);

/* Reads the models' config.json alone: weights are made up. The caller
 * releases `out`, also after an error. Errors: those of the configuration's
 * models, WEFT_ENOMEM. */
int weft_profile(const struct weft_config *config,
                 const struct weft_profile_options *options,
                 struct weft_costs_file *out, struct weft_err *err);

/* Measures messages between the first two ranks of the job, one after another,
 * and sets them in a file of this machine. Collective. Errors: those of the
 * runtime, WEFT_ESTATE where a large message took no longer than a small
 * one. */
int weft_profile_messages(const struct weft_config *config,
                          struct weft_costs_file *file, struct weft_err *err);

#endif
