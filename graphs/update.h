/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From gradients of gradient groups to updated weights: the tree over groups,
 * each shard (graphs/shard.h) at its owner's place, the norm, AdamW, and the
 * published weights' way back to the replicas.
 */
#ifndef WEFT_GRAPHS_UPDATE_H
#define WEFT_GRAPHS_UPDATE_H

#include "graphs/stage.h"

struct weft_g_update;

int weft_g_update_create(const struct weft_g_train *train,
                         struct weft_seq *seq, struct weft_g_update **out,
                         struct weft_err *err);
/* What is inserted from now on widens the span. */
void weft_g_update_watch(struct weft_g_update *update,
                         struct weft_span *span);
void weft_g_update_free(struct weft_g_update *update); /* NULL is allowed */

/* The gradient of groups lo .. lo + size - 1 (size a power of two that
 * divides lo) of replica `dp` and stage is complete in `set` (NULL: no sample
 * was in these groups). reused: the set will be written again before the
 * update. */
void weft_g_update_give(struct weft_g_update *update, int32_t dp,
                        int32_t stage, int32_t lo, int32_t size,
                        const struct weft_params *set, bool reused);

/* left += right of a stage of replica dp: one node of the tree. */
void weft_g_update_add(struct weft_g_update *update, int32_t dp,
                       int32_t stage, const struct weft_params *left,
                       const struct weft_params *right);

/* All groups were given: norm and AdamW. Returns the norm's tile, which the
 * caller releases. */
struct weft_tile *weft_g_update_finish(struct weft_g_update *update);

#endif
