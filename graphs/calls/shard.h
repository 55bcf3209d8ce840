/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which place reduces the gradients of which parameters and updates them. The
 * parameters of one tp member in a stage are a row of tiles: embedding,
 * layers, head. The places of the member's n replicas divide the row's
 * elements into n equal ranges, rounded to chunks (base/shape.h), so that a
 * range cuts at most two tiles:
 *
 *     tiles     | embedding     | layer 0   | layer 1   | head          |
 *     owners    | place 0    | place 1    | place 2     | place 3       |
 *
 * With ZeRO a place holds the optimizer state (and weights) of its range
 * alone. With ZeRO 3 the embedding, each layer and the head are rows of their
 * own, as all places gather one layer at a time: each sends an equal part of it.
 * A tied embedding has no optimizer state, and its gradient is added to
 * the head's. So it is divided as the head is, among the last stage's places.
 * As places hold two gradients for one state of a tied head, it is a row of
 * its own, and each place owns an equal share of it.
 *
 * With LoRA adapters the row consists of what is trained alone: adapters are
 * the last chunks of the layers' tiles (weft_layout_trained()). With ZeRO 3
 * frozen weights are a row of their own, which is divided in the same way;
 * else they are no place's own.
 */
#ifndef WEFT_CALLS_SHARD_H
#define WEFT_CALLS_SHARD_H

#include "graphs/calls/calls.h"

/* The chunks of one tile that a place owns. */
struct weft_g_piece {
    int32_t place;
    struct weft_range chunks;
};
/* The pieces of a tile's part in a row, in order, out (WEFT_G_MAX_DP). Returns
 * how many. */
int32_t weft_g_pieces(const struct weft_shape *shape,
                      const struct weft_g_layout *home, enum weft_g_row row,
                      enum weft_tile_kind kind, int32_t layer, int32_t block,
                      struct weft_g_piece *out);
/* The n - 1 byte offsets at which a gradient tile (or a published one) is cut
 * into these pieces, out (WEFT_G_MAX_DP). */
void weft_g_pieces_cut(const struct weft_shape *shape,
                       enum weft_tile_kind kind, int32_t block,
                       bool published, int32_t n,
                       const struct weft_g_piece *piece, size_t *out);

/* With ZeRO 3: all pieces of a published tile in order, each with its owner's
 * tile, and where they cut the whole one. Of a tied table those of the head. */
enum { WEFT_G_MAX_PIECES = WEFT_G_N_ROWS * WEFT_G_MAX_DP };
struct weft_g_owned_pieces {
    int32_t n, n_frozen; /* these come first */
    struct weft_g_piece piece[WEFT_G_MAX_PIECES];
    struct weft_tile *tile[WEFT_G_MAX_PIECES];
    size_t at[WEFT_G_MAX_PIECES];
};
void weft_g_owned_pieces_get(const struct weft_g_model *model,
                             enum weft_tile_kind kind, int32_t layer,
                             int32_t block, struct weft_g_owned_pieces *out);

/* The tp member whose range has the block. */
int32_t weft_g_member_of(const struct weft_shape *shape,
                         const struct weft_g_layout *home, int32_t block);

/* Those of places that are of one rank and follow one another, from number
 * `first` on. */
struct weft_range weft_g_places_of_rank(const struct weft_rt *rt,
                                        struct weft_g_places places,
                                        int32_t first);
/* The place of another rank through which all passes between a shard's owner
 * and the rank's `of` places, so that it passes between ranks once; -1: it has
 * none, as it is the owner's rank or has no other place. Owners of one rank
 * have each its own where there are as many. (weft_plan_moves() would choose by
 * what places have sent so far, and takes the square of their number.) */
int32_t weft_g_relay(const struct weft_rt *rt, int32_t owner,
                     struct weft_g_places places, struct weft_range of);

/* The part of one bundle's row that a place owns. */
struct weft_g_shard {
    struct weft_g_bundle bundle;
    int32_t place;
    struct weft_chunks chunks;
    int32_t part[WEFT_GROUP_TILES]; /* its number among a tile's pieces */
};
/* The shards of a bundle in order, out (WEFT_G_MAX_DP). Returns how many. */
int32_t weft_g_shards(const struct weft_g_model *model, enum weft_g_row row,
                      const struct weft_g_bundle *bundle,
                      struct weft_g_shard *out);
/* The parts of the whole gradient tiles in `params` that belong to the
 * shard. */
struct weft_layer_tiles weft_g_shard_parts(const struct weft_g_model *model,
                                           const struct weft_g_shard *shard,
                                           const struct weft_params *params);
/* The same of a place's whole published tiles. */
struct weft_layer_tiles weft_g_shard_published(
    const struct weft_g_model *model, const struct weft_g_shard *shard,
    int32_t place);
/* The tiles in `params` that hold the shard and nothing else. */
struct weft_layer_tiles weft_g_shard_tiles(const struct weft_g_model *model,
                                           const struct weft_g_shard *shard,
                                           const struct weft_params *params);
/* The number of pieces into which a whole published tile of the home layout is
 * cut; 1 if it is not cut. Offsets as in weft_g_pieces_cut(). Of a tile with
 * adapters the first weft_g_frozen_parts() are its frozen weights; the others
 * are those of the gradient, or one without ZeRO. */
int32_t weft_g_frozen_parts(const struct weft_shape *shape);
int32_t weft_g_published_cut(const struct weft_shape *shape,
                             const struct weft_g_layout *home,
                             enum weft_tile_kind kind, int32_t layer,
                             int32_t block, size_t *out);

#endif
