/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the members of a tp group compute when their tasks are a gang
 * (weft_insert_gang()): each the blocks of its range, all layers of a stage in
 * one task. After each sum over blocks they meet; then every member joins
 * everybody's roots into its own copy of the rows, as parts do that are tasks
 * (kern/parts.h), with the same bits. One member alone computes whole layers.
 */
#ifndef WEFT_CODELETS_GANG_H
#define WEFT_CODELETS_GANG_H

#include "codelets/access_list.h"
#include "kern/parts.h"
#include "rt/codelet.h"

struct weft_gang_ranges weft_gang_ranges_of(
    const struct weft_members *members);
/* Says that the tasks inserted next are the members', of which there may be one
 * alone. */
void weft_insert_members(struct weft_seq *seq,
                         const struct weft_members *members);

/* Roots of the two sums of a layer, by member. Of two, as a member may still
 * read those of one sum when others write the next one's. */
struct weft_gang_roots {
    float *of[2][WEFT_MAX_BLOCKS];
};

struct weft_gang_member {
    struct weft_exec *exec;
    const struct weft_shape *shape;
    const struct weft_gang_ranges *all;
    struct weft_range range; /* its own */
    int k;
    struct weft_gang_roots *roots;
    float *x;      /* (rows, H) its own copy */
    void *scratch; /* weft_gang_scratch_bytes() */
};
/* Fills in all but what has memory. */
void weft_gang_member_init(struct weft_exec *exec,
                           const struct weft_shape *shape,
                           const struct weft_gang_ranges *all,
                           struct weft_gang_member *out);
/* Bytes of x and the roots, for so many rows. */
size_t weft_gang_rows_bytes(const struct weft_gang_member *m, int64_t rows);
/* Sets x and its roots to memory of so many bytes. */
void weft_gang_rows_at(struct weft_gang_member *m, int64_t rows, void *at);
size_t weft_gang_scratch_bytes(const struct weft_gang_member *m,
                               const struct weft_k_batch *batch);

/* Takes the rows that come from the stage before, or in the first stage go to
 * the next, (rows, H) at x: these are the first member's own, and the others
 * copy what comes. All members do, before the first of them computes a
 * layer. */
void weft_gang_rows_from(struct weft_gang_member *m, int64_t rows, float *x);

/* A stage's published tiles, as one task has them: the range's blocks, but all
 * of the embedding where they lie at the same place. */
struct weft_gang_weights {
    struct weft_stage_layers layers;
    struct weft_range range, embedded;
    void *const *embed, *const *layer; /* buffers in order */
    int n_buffers;                     /* from `embed` on, with the head's */
    struct weft_k_head head;
};
void weft_access_list_add_weights(struct weft_access_list *access,
                                  const struct weft_shape *shape,
                                  const struct weft_stage_layers *layers,
                                  struct weft_range range,
                                  struct weft_range embedded,
                                  const struct weft_params *fwd);
void weft_gang_take_weights(struct weft_take *take,
                            const struct weft_shape *shape,
                            const struct weft_stage_layers *layers,
                            struct weft_range range,
                            struct weft_range embedded,
                            struct weft_gang_weights *out);
/* layer: of the model. */
struct weft_k_layer weft_gang_layer(const struct weft_gang_weights *weights,
                                    int32_t layer);

/* Embeds the batch's tokens, if the stage does, and computes its layers: x. kv:
 * the member's, or NULL. false: a member has failed. */
bool weft_gang_forward(const struct weft_gang_member *m,
                       const struct weft_gang_weights *weights,
                       const struct weft_k_batch *batch,
                       const struct weft_k_kv *kv);

#endif
