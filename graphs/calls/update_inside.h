/* SPDX-License-Identifier: Apache-2.0 */
/* What update.c and update_weights.c share. */
#ifndef WEFT_CALLS_UPDATE_INSIDE_H
#define WEFT_CALLS_UPDATE_INSIDE_H

#include "graphs/calls/shard.h"
#include "graphs/calls/update.h"

/* A node of the tree over groups: the sum over groups lo .. lo + size - 1 of a
 * shard's gradient, at a place. */
struct weft_g_node {
    int32_t lo, size, place;
    bool any;  /* false: the groups have no samples and no tiles */
    bool temp; /* the tiles are temporary and belong to the node */
    struct weft_layer_tiles tiles;
};

/* A shard, and the nodes of its gradient so far. */
struct weft_g_owned {
    struct weft_g_shard shard;
    int32_t n;
    struct weft_g_node *node;  /* (n_nodes) */
    struct weft_tile *squares; /* at the norm's place */
};

struct weft_g_update {
    const struct weft_g_train *t;
    const struct weft_g_model *m;
    struct weft_seq *seq;
    struct weft_g_pass pass;
    struct weft_g_owned
        *owned;     /* (n): by bundle, then in the order of chunks */
    int32_t *first; /* (n_bundles + 1): a bundle's first shard */
    struct weft_g_node *node; /* (n, n_nodes) of the shards */
    int32_t n_nodes;          /* there is room for, of a shard */
    int32_t n, n_bundles;
    /* (n_places) of a place the first replica that has the bundle there whose
     * sums are being spread */
    int32_t *replica;
};

/* Whether the bundle is a tied embedding, whose gradient is summed at the
 * places of the head. */
WEFT_INLINE bool weft_g_is_tied_embed(const struct weft_g_update *u,
                                      const struct weft_g_bundle *b)
{
    return b->group == WEFT_GROUP_EMBED && u->m->shape.tied;
}

/* The stage at whose places a bundle's gradient is summed. */
int32_t weft_g_sum_stage(const struct weft_g_update *update,
                         const struct weft_g_bundle *bundle);
/* Where a task on a bundle's tiles at `place` runs: on one of the devices that
 * the stage's replicas have at the place. */
struct weft_where weft_g_update_at(const struct weft_g_update *update,
                                   const struct weft_g_bundle *bundle,
                                   int32_t stage, int32_t place);
/* The same for the stage at which the bundle is summed, with the next position
 * in the device's order, which bounds how many copies wait there. */
struct weft_where weft_g_update_turn(const struct weft_g_update *update,
                                     const struct weft_g_bundle *bundle,
                                     int32_t place);

typedef void (*weft_g_slot_fn)(void *arg, struct weft_tile **a,
                               struct weft_tile **b);
/* Calls visit for every tile pointer of a, together with b's corresponding
 * one. */
void weft_g_for_each_slot(struct weft_layer_tiles *a,
                          struct weft_layer_tiles *b, weft_g_slot_fn visit,
                          void *arg);
/* Temporary tiles at a place, as large as others, for u to copy them there. */
struct weft_layer_tiles weft_g_temp_like(struct weft_g_update *update,
                                         const char *kind,
                                         enum weft_mem_class mem,
                                         int32_t layer, int32_t place,
                                         struct weft_layer_tiles like);
void weft_g_tiles_release(struct weft_layer_tiles *tiles);
bool weft_g_tiles_none(const struct weft_layer_tiles *tiles);
/* Copies tiles of one place to the corresponding tiles of another, where there
 * are such. */
void weft_g_copy_tiles(struct weft_g_update *update,
                       struct weft_layer_tiles from,
                       struct weft_layer_tiles to);
/* The same between a place's memory and the host's (struct weft_where). */
void weft_g_move_tiles(struct weft_g_update *update,
                       struct weft_layer_tiles from,
                       struct weft_layer_tiles to);

/* Submits AdamW for bundle number `i`, and copies its new published weights to
 * all places that hold them. */
void weft_g_update_weights(struct weft_g_update *update, int32_t i,
                           struct weft_tile *norm);

#endif
