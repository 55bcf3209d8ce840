/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many CPU devices serve a replica of a model outside training: of all dp
 * replicas of tp devices those that are done first, by measured costs. Without
 * any there are as many replicas as have enough to do, each of devices with
 * equally many tensor blocks. No number depends on it.
 */
#ifndef WEFT_LM_REPLICAS_H
#define WEFT_LM_REPLICAS_H

#include "lm/rollout.h"
#include "plan/costs_file.h"

struct weft_replicas_job {
    struct weft_g_job devices; /* of one rank, all CPU devices */
    const struct weft_shape *shape;
    const struct weft_costs_file *costs; /* NULL: none */
    const char *costs_path;              /* of it, for errors */
};

struct weft_replicas {
    int32_t dp, tp; /* dp * tp devices at most; some may be left */
    double seconds; /* by costs; 0: there are none */
};

/* Generation of samples that become as long as their limits say. */
struct weft_replicas_samples {
    int32_t n;
    const struct weft_sample *sample; /* (n) */
    int32_t slots;                    /* of a device */
    int32_t read_rows; /* of prompts, in a step of a replica, at most */
    int32_t kv_tokens; /* of a device's KV cache; 0: all ever needed */
};

/* Errors: WEFT_ENOMEM; WEFT_ENOTFOUND, a sentence, where costs say of no tp
 * what the model takes. Deterministic; ties go to the smaller tp. */
int weft_replicas_of_samples(const struct weft_replicas_job *job,
                             const struct weft_replicas_samples *samples,
                             struct weft_replicas *out, struct weft_err *err);
/* The same for inference of n micro-batches, which replicas take in turn. */
int weft_replicas_of_batches(const struct weft_replicas_job *job, int32_t n,
                             const struct weft_work_rows batch[],
                             struct weft_replicas *out, struct weft_err *err);

/* Slots of each of a layout's instances, which generate n samples: as many for
 * each of its devices, but no more than there are samples. */
int32_t weft_replicas_slots(const struct weft_g_layout *layout, int32_t n,
                            int32_t slots);

#endif
