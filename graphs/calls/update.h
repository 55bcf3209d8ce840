/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the gradients of gradient groups to updated weights: the tree over
 * groups, each shard (graphs/calls/shard.h) of which is added at its owner's
 * place; the norm; AdamW; and copying the published weights to all replicas.
 *
 * A rank other than the owner's that has several places adds its replicas'
 * groups at one of them first, and sends the sums when all groups were given.
 * New weights come to it once, too, and go from place to place there. So what
 * passes between ranks does not grow with the replicas of a rank:
 *
 *     rank 0                rank 1
 *     groups 0, 1 -> owner  groups 2, 3 -> relay -> owner
 *     other places <- owner                owner -> relay -> other places
 */
#ifndef WEFT_CALLS_UPDATE_H
#define WEFT_CALLS_UPDATE_H

#include "graphs/calls/stage.h"

struct weft_g_update;

int weft_g_update_create(const struct weft_g_train *train,
                         struct weft_seq *seq, struct weft_g_update **out,
                         struct weft_err *err);
/* Tasks that are inserted from now on are recorded in `span`. */
void weft_g_update_watch(struct weft_g_update *update,
                         struct weft_span *span);
void weft_g_update_free(struct weft_g_update *update); /* NULL is allowed */

/* To be called when tasks have been inserted that complete the gradient of
 * groups lo .. lo + size - 1 in `set`, for a stage of replica dp. size: a
 * power of two that divides lo. set NULL: these groups have no sample. reused:
 * the set will be written again before the update, so it is copied. */
void weft_g_update_give(struct weft_g_update *update, int32_t dp,
                        int32_t stage, int32_t lo, int32_t size,
                        const struct weft_params *set, bool reused);

/* One addition of the tree, left += right, for a stage of replica dp. */
void weft_g_update_add(struct weft_g_update *update, int32_t dp,
                       int32_t stage, const struct weft_params *left,
                       const struct weft_params *right);

/* To be called when all groups were given: submits the norm and AdamW. Returns
 * the norm's tile, which the caller releases. */
struct weft_tile *weft_g_update_finish(struct weft_g_update *update);

#endif
