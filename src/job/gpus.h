/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs that a run's configuration, or a command's options, ask for. */
#ifndef WEFT_JOB_GPUS_H
#define WEFT_JOB_GPUS_H

#include "config/config.h"

/* n: 0 for all. n_sharing: ranks that have each GPU together. The other three
 * are for sentences: that GPUs are asked for, the name of what asks for a
 * number of them, and what asks for CPUs. may_differ: GPUs need not be of one
 * kind. */
struct weft_gpus_asked {
    int32_t n, n_sharing;
    const char *said, *gpus, *cpus;
    bool may_differ;
};

/* How many GPUs of this machine this rank has, and the number of the first.
 * Ranks on one machine have equal parts of its GPUs, one after the other, or
 * n_sharing of them, which come one after the other, have a part together.
 * Where a launcher lets each see GPUs of its own (weft_gpus_meet()), those are
 * its.
 * Errors, in one sentence that says how to run on CPUs: there is no GPU or
 * driver, the driver is too old, there are fewer than n for each of the ranks
 * here, more than StarPU was built for, one has a compute capability that Weft
 * has no code for, or they are of two kinds, whose products may round otherwise.
 * Local. */
int weft_gpus_ask(const struct weft_gpus_asked *asked, int32_t *out,
                  int32_t *first_out, struct weft_err *err);

/* Finds out which ranks see the same GPUs, for weft_gpus_ask() from then on;
 * until then all of a machine are taken to. Collective. */
void weft_gpus_meet(void);

/* How many of this machine's GPUs, the first ones, a run could have: of one
 * kind, and with a compute capability that Weft has code for. 0: why gets the
 * reason. Local. */
int32_t weft_gpus_usable(struct weft_err *why);

/* Those of runtime.devices and runtime.gpus; 0 unless that is gpu. */
int weft_run_gpus(const struct weft_config *config, int32_t *out,
                  int32_t *first_out, struct weft_err *err);

/* Says that this machine has a GPU that the run could have as a device, if it
 * has none and its CPU devices were not counted. */
void weft_gpus_tell_unused(const struct weft_config *config);

enum { WEFT_GPU_TEXT = 160 };
struct weft_k_device;
/* Name and compute capability: GPUs of one kind have the same. */
void weft_gpu_text(const struct weft_k_device *gpu, char *out, size_t size);
/* The same of this machine's GPU of that number, and the library that has its
 * products: what their bits depend on. Errors: there is no such GPU, or the
 * library cannot be opened. */
int weft_gpu_describe(int32_t gpu, char out[WEFT_GPU_TEXT],
                      struct weft_err *err);

#endif
