/* SPDX-License-Identifier: Apache-2.0 */
/*
 * With ZeRO 3 and hpz, what a rank has of the weights that other ranks own.
 * Replicas of a rank with several places gather the same pieces, often: one of
 * the places, the piece's relay (weft_g_relay()), gets it once in an optimizer
 * step and keeps it until the next one, and the replicas copy from there. So a
 * rank's places have all weights between them (ZeRO++'s hierarchical
 * partitioning), and what passes between ranks grows neither with replicas nor
 * with micro-batches.
 *
 *     rank 0                       rank 1
 *     owner, for the next step ->  relay -> buffers of its replicas, each pass
 *       -> buffers of rank 0's replicas, each pass
 *
 * With LoRA adapters only these come: relays have frozen weights from the
 * beginning, as all places that need them for good do (struct weft_g_model).
 *
 * A relay has the memory for good, rather than for one pass: replicas take the
 * same layer at other times, as their micro-batches are of unlike sizes. Were
 * it to give back a layer after each pass, others would wait for the last one.
 */
#ifndef WEFT_CALLS_RELAYS_H
#define WEFT_CALLS_RELAYS_H

#include "graphs/calls/shard.h"

struct weft_g_relays;

/* Creates the copies of a model with ZeRO 3, which is borrowed; without hpz
 * there are none: NULL, with which the functions below do nothing and return the
 * owner's tile. Errors: WEFT_ENOMEM; free it also then. */
int weft_g_relays_create(const struct weft_g_model *model,
                         struct weft_g_relays **out, struct weft_err *err);
void weft_g_relays_free(struct weft_g_relays *relays); /* NULL is allowed */
/* To be called when tasks were inserted that write the owners' weights. */
void weft_g_relays_renew(struct weft_g_relays *relays);
/* The tile from which a place of the stage that uses it copies piece i of
 * `pieces`, those of a published tile: the owner's or the relay's. Submits
 * bringing it there, where it is not. */
struct weft_tile *weft_g_relays_source(
    struct weft_g_relays *relays, struct weft_seq *seq,
    const struct weft_where *where, enum weft_tile_kind kind, int32_t layer,
    int32_t block, const struct weft_g_owned_pieces *pieces, int32_t i,
    int32_t place);

#endif
