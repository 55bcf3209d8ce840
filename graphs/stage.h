/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a stage's tp group does with a micro-batch, as tasks of its members:
 * the one description of the mathematics' order, for every call and layout.
 * With one member a layer is one task; else members contribute parts, which
 * are exchanged between the group's places and joined at each (codelets/
 * parts.h). Out of memory fails the sequence; nothing is returned.
 */
#ifndef WEFT_GRAPHS_STAGE_H
#define WEFT_GRAPHS_STAGE_H

#include "codelets/parts.h"
#include "graphs/graphs.h"

/* A value of which every place of a stage has a copy, by the number of the
 * place in the stage. */
struct weft_g_value {
    struct weft_tile *at[WEFT_MAX_BLOCKS];
    bool own[WEFT_MAX_BLOCKS]; /* else another value's */
};

/* Surroundings of a micro-batch's tasks. */
struct weft_g_pass {
    struct weft_rt *rt;
    struct weft_seq *seq;
    const char *name; /* of the model */
    const struct weft_shape *shape;
    struct weft_where where;    /* but the device and position */
    struct weft_g_order *order; /* NULL: no strict positions */
    bool any_device;
    int64_t n_rows; /* at most */
    int32_t n_targets;
};

/* `where` of a task on a member's device; takes the next position. */
struct weft_where weft_g_where_at(const struct weft_g_pass *pass,
                                  const struct weft_g_member *member);
/* A temporary tile; NULL after the sequence has failed. */
struct weft_tile *weft_g_temp(const struct weft_g_pass *pass,
                              const char *kind, enum weft_mem_class c,
                              int32_t layer, size_t bytes, int32_t place);

/* ---- Values -------------------------------------------------------------- */

void weft_g_value_create(const struct weft_g_pass *pass,
                         const struct weft_g_stage *stage, const char *kind,
                         enum weft_mem_class c, size_t bytes,
                         struct weft_g_value *out);
/* (n_rows, H) f32 */
size_t weft_g_rows_bytes(const struct weft_g_pass *pass);
void weft_g_value_rows(const struct weft_g_pass *pass,
                       const struct weft_g_stage *stage, const char *kind,
                       struct weft_g_value *out);
/* Tiles for a value of `from` at the places of `to` that it does not lie at:
 * their memory is taken in the turn of the places' first members (without an
 * order: when `after`, a value of `to`, has been written), so that what is
 * sent early waits at its sender. */
void weft_g_value_expect(const struct weft_g_pass *pass,
                         const struct weft_g_stage *from,
                         const struct weft_g_stage *to, enum weft_mem_class c,
                         size_t bytes, const struct weft_g_value *after,
                         struct weft_g_value *out);
/* The value of one stage at the places of another, out as expected: copied,
 * or shared. */
void weft_g_value_fetch(const struct weft_g_pass *pass,
                        const struct weft_g_stage *from,
                        const struct weft_g_value *value,
                        const struct weft_g_stage *to,
                        struct weft_g_value *out);
/* A stage that has this place, for values that lie there. */
struct weft_g_stage weft_g_stage_of_place(int32_t place);
/* A tile that lies at `place`, at the places of a stage. */
void weft_g_value_of_tile(const struct weft_g_pass *pass,
                          struct weft_tile *tile, int32_t place,
                          const struct weft_g_stage *to,
                          struct weft_g_value *out);
/* `to` may share tiles of `from`: it takes these over, the others go, and
 * `from` is empty. */
void weft_g_value_hand_over(struct weft_g_value *from,
                            struct weft_g_value *to);
/* Copies the tile of place number 0 to the others, which exist. */
void weft_g_value_spread(const struct weft_g_pass *pass,
                         const struct weft_g_stage *stage,
                         const struct weft_g_value *value);
void weft_g_value_release(struct weft_g_value *value);

/* ---- Forward -------------------------------------------------------------- */

/* params: published weights by place. */
void weft_g_stage_embed(const struct weft_g_pass *pass,
                        const struct weft_g_stage *stage,
                        const struct weft_params *params,
                        const struct weft_g_value *batch,
                        const struct weft_g_value *x);

/* What a layer keeps for its backward. */
struct weft_g_kept {
    struct weft_tile *member[WEFT_MAX_BLOCKS]; /* NULL: nothing */
    struct weft_g_value x_mid;                 /* with several members */
};
void weft_g_kept_create(const struct weft_g_pass *pass,
                        const struct weft_g_stage *stage, int32_t layer,
                        struct weft_g_kept *out);
void weft_g_kept_release(struct weft_g_kept *kept);

/* x -> y, which may be x. kv: (n members) or NULL. kept: NULL in inference;
 * recompute: fills kept from x, y is not made. */
void weft_g_stage_layer(const struct weft_g_pass *pass,
                        const struct weft_g_stage *stage,
                        const struct weft_params *params, int32_t layer,
                        const struct weft_g_value *batch,
                        const struct weft_g_value *x,
                        const struct weft_part_kv *kv,
                        const struct weft_g_value *y,
                        struct weft_g_kept *kept, bool recompute);

/* Log-probs of the targets into the samples' tiles, at place number 0. */
void weft_g_stage_logprob(const struct weft_g_pass *pass,
                          const struct weft_g_stage *stage,
                          const struct weft_params *params,
                          const struct weft_g_value *batch,
                          const struct weft_g_value *x, float inv_temperature,
                          int32_t n, struct weft_tile *const out[]);

/* ---- Backward ------------------------------------------------------------- */

/* Loss and the head's backward: dx is made; stats lies at place number 0. */
void weft_g_stage_loss(
    const struct weft_g_pass *pass, const struct weft_g_stage *stage,
    const struct weft_params *fwd, const struct weft_params *bwd,
    const struct weft_loss_args *loss, const struct weft_g_value *batch,
    const struct weft_g_value *x, const struct weft_g_value *dx,
    const struct weft_params *grad, struct weft_tile *stats);
/* dx of the layer's output becomes dx of its input. With one member and
 * nothing kept the layer is recomputed inside its task. */
void weft_g_stage_layer_backward(
    const struct weft_g_pass *pass, const struct weft_g_stage *stage,
    const struct weft_params *fwd, const struct weft_params *bwd,
    int32_t layer, const struct weft_g_value *batch,
    const struct weft_g_value *x, const struct weft_g_kept *kept,
    const struct weft_g_value *dx, const struct weft_params *grad);
void weft_g_stage_embed_backward(const struct weft_g_pass *pass,
                                 const struct weft_g_stage *stage,
                                 const struct weft_g_value *batch,
                                 const struct weft_g_value *dx,
                                 const struct weft_params *grad);

/* ---- Exchange -------------------------------------------------------------- */

/* Parts of all members at every place. */
struct weft_g_exchange {
    int32_t n[WEFT_MAX_BLOCKS]; /* by place */
    struct weft_part_tile part[WEFT_MAX_BLOCKS][WEFT_MAX_BLOCKS];
    struct weft_tile *temp[2 * WEFT_MAX_BLOCKS * WEFT_MAX_BLOCKS];
    int32_t n_temp;
};
/* n floats per row (per target), n_sets times: a place joins its members'
 * parts before it sends them. n 0: they are sent as they are. Members without
 * a tile have no part, but an entry. to: the first so many places get them.
 * The members' tiles stay the caller's. */
void weft_g_exchange(const struct weft_g_pass *pass,
                     const struct weft_g_stage *stage,
                     struct weft_tile *const member[],
                     const struct weft_g_value *batch, bool targets,
                     int64_t n, int32_t n_sets, int32_t to,
                     struct weft_g_exchange *out);
void weft_g_exchange_release(struct weft_g_exchange *exchange);

/* Number of member k's place in the stage. */
int32_t weft_g_place_number(const struct weft_g_stage *stage, int32_t k);

/* Every member's softmax over its vocabulary, exchanged; the caller releases
 * part (n members) and the exchange. */
void weft_g_stage_head_parts(const struct weft_g_pass *pass,
                             const struct weft_g_stage *stage,
                             const struct weft_params *params,
                             const struct weft_g_value *batch,
                             const struct weft_g_value *x,
                             float inv_temperature, struct weft_tile *part[],
                             struct weft_g_exchange *parts);
/* A partial sum of n floats for every member. */
void weft_g_roots_create(const struct weft_g_pass *pass,
                         const struct weft_g_stage *stage, int32_t layer,
                         int64_t n, struct weft_tile *out[]);

#endif
