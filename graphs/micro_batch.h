/* SPDX-License-Identifier: Apache-2.0 */
/* Forward, loss and backward of one training micro-batch. */
#ifndef WEFT_GRAPHS_MICRO_BATCH_H
#define WEFT_GRAPHS_MICRO_BATCH_H

#include "graphs/graphs.h"

/* Submits samples sample[index[0..n-1]] through `t->model` on where->device;
 * gradients go on in `grad`. stats_out: the caller releases tile and array;
 * its samples are the indices. Errors: WEFT_ENOMEM. */
int weft_g_micro_batch(struct weft_seq *seq, const struct weft_where *where,
                       const struct weft_g_train *t, int32_t n,
                       const int32_t *index,
                       const struct weft_pack_sample *sample,
                       const struct weft_params *grad,
                       struct weft_g_stats *stats_out, struct weft_err *err);

#endif
