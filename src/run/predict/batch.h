/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The largest batch that a plan has memory for: FlexRLHF raises it until 95 %
 * of a device's memory is taken (section IV-C). As in the systems that are
 * compared there a batch is not cut: an instance generates its samples at once,
 * inference has a replica's at once, and training those of a gradient group
 * in a mini-batch.
 */
#ifndef WEFT_RUN_PREDICT_BATCH_H
#define WEFT_RUN_PREDICT_BATCH_H

#include "base/string.h"
#include "config/config.h"
#include "plan/layout.h"

#define WEFT_BATCH_SHARE 0.95 /* of a device's memory */

struct weft_largest_batch {
    int32_t n; /* rollout.prompts, or train.batch without generation; 0: the
                      smallest does not fit */
    int32_t samples;      /* of an iteration */
    int32_t slots;        /* rollout.slots, that many at once; 0: none */
    int32_t micro_batch;  /* samples of a training micro-batch ... */
    int32_t micro_tokens; /* ... and train.micro_batch_tokens for it */
    double bytes;         /* of the fullest device */
    double more_bytes;    /* the same with n + 1; 0: n is the most that is
                             tried */
};

/* The keys of a batch of n whose samples are not cut. */
void weft_batch_set(struct weft_config *config, int32_t n);

/* Finds it between two sizes, by predicted memory (weft_trainer_predict()), of
 * which one fits and one does not; gangs:
 * as there. device_bytes: of each device. The plan gets the memory of that
 * batch, or of the smallest. Errors: those of weft_trainer_predict(). */
int weft_run_largest_batch(const struct weft_config *config,
                           double device_bytes, bool gangs,
                           struct weft_plan *plan,
                           struct weft_largest_batch *out,
                           struct weft_err *err);

/* Appends a line: the batch with the keys that a run needs for it. Errors:
 * WEFT_ENOMEM. */
int weft_batch_text(const struct weft_largest_batch *batch,
                    double device_bytes, struct weft_string *out,
                    struct weft_err *err);

#endif
