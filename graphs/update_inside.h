/* SPDX-License-Identifier: Apache-2.0 */
/* What update.c and update_weights.c share. */
#ifndef WEFT_GRAPHS_UPDATE_INSIDE_H
#define WEFT_GRAPHS_UPDATE_INSIDE_H

#include "graphs/shard.h"
#include "graphs/update.h"

/* The sum over groups lo .. lo + size - 1 of a shard, at its owner. */
struct weft_g_node {
    int32_t lo, size;
    bool any;  /* false: no samples, a sum of nothing */
    bool temp; /* tiles are ours */
    struct weft_layer_tiles tiles;
};

enum { WEFT_G_MAX_NODES = WEFT_G_MAX_DP + 8 };

/* A shard, and what has come of its gradient. */
struct weft_g_owned {
    struct weft_g_shard shard;
    int32_t n;
    struct weft_g_node node[WEFT_G_MAX_NODES];
    struct weft_tile *squares; /* at the norm's place */
};

struct weft_g_update {
    const struct weft_g_train *t;
    const struct weft_g_model *m;
    struct weft_seq *seq;
    struct weft_g_pass pass;
    struct weft_g_owned
        *owned;     /* (n): by bundle, in the order of its chunks */
    int32_t *first; /* (n_bundles + 1): where a bundle's begin */
    int32_t n, n_bundles;
};

/* A tied embedding: summed with the head. */
WEFT_INLINE bool weft_g_is_tied_embed(const struct weft_g_update *u,
                                      const struct weft_g_bundle *b)
{
    return b->group == WEFT_GROUP_EMBED && u->m->shape.tied;
}

/* The stage at whose places a bundle's gradient is summed. */
int32_t weft_g_sum_stage(const struct weft_g_update *update,
                         const struct weft_g_bundle *bundle);
/* Tiles of a place are a bundle's work on one of the devices that a stage's
 * replicas have there. */
struct weft_where weft_g_update_at(const struct weft_g_update *update,
                                   const struct weft_g_bundle *bundle,
                                   int32_t stage, int32_t place);
/* The same where it is summed, in the device's order, which bounds how many
 * copies wait there. */
struct weft_where weft_g_update_turn(const struct weft_g_update *update,
                                     const struct weft_g_bundle *bundle,
                                     int32_t place);

typedef void (*weft_g_slot_fn)(void *arg, struct weft_tile **a,
                               struct weft_tile **b);
/* Calls visit for every slot of a, with b's of the same place in it. */
void weft_g_for_each_slot(struct weft_layer_tiles *a,
                          struct weft_layer_tiles *b, weft_g_slot_fn visit,
                          void *arg);
/* Tiles of one place to the same of another, where it has them. */
void weft_g_copy_tiles(struct weft_g_update *update,
                       struct weft_layer_tiles from,
                       struct weft_layer_tiles to);

/* New weights of bundle number `i`, wherever they are held. */
void weft_g_update_weights(struct weft_g_update *update, int32_t i,
                           struct weft_tile *norm);

#endif
