/* SPDX-License-Identifier: Apache-2.0 */
/* The largest sizes that micro-batches of a run can have, whatever the lengths
 * of its samples. */
#ifndef WEFT_RUN_PREDICT_LARGEST_H
#define WEFT_RUN_PREDICT_LARGEST_H

#include "run/trainer.h"

/* Of a training call; of an inference call. */
struct weft_g_rows weft_run_most_train(const struct weft_trainer *t,
                                       int32_t call);
struct weft_g_rows weft_run_most_infer(const struct weft_trainer *t,
                                       int32_t call);
/* The most micro-batches of a pipeline in an optimizer step of a training
 * call. */
int32_t weft_run_micro_batches(const struct weft_trainer *t, int32_t call);
/* The most samples of which a place has copies at one time, of each field one,
 * as others made them or go on with them. */
int64_t weft_run_most_moved(const struct weft_trainer *t);

#endif
