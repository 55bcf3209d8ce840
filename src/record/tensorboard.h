/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes TensorBoard's event files without its library: TFRecords of the
 * protobuf message Event with scalar summaries (tensorboard/compat/proto).
 */
#ifndef WEFT_RECORD_TENSORBOARD_H
#define WEFT_RECORD_TENSORBOARD_H

#include "record/metrics.h"

struct weft_tensorboard;

/* Creates `dir` and a new events.out.tfevents file in it. n_done > 0: the run
 * resumes after that step, and TensorBoard will ignore later steps of earlier
 * files. */
int weft_tensorboard_open(const char *dir, int64_t n_done,
                          struct weft_tensorboard **out,
                          struct weft_err *err);
/* Writes all metrics as scalars of a step; trl_names: also under TRL's names,
 * as in metrics.jsonl. */
int weft_tensorboard_write(struct weft_tensorboard *tb, int64_t step,
                           bool trl_names, const struct weft_metrics *metrics,
                           struct weft_err *err);
void weft_tensorboard_close(struct weft_tensorboard *tb); /* NULL allowed */

/* CRC-32C (Castagnoli) of n bytes. */
uint32_t weft_crc32c(const void *data, size_t n);

#endif
