/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tasks by which a stage's tp group computes a micro-batch. Every call and
 * layout uses these functions, so the order of the computation is written
 * once. With one member a layer is one task; otherwise members compute parts,
 * which are exchanged between the group's places and joined at each of them
 * (codelets/parts.h). When memory is out the functions fail the sequence and
 * return no error.
 *
 * What a stage is asked to do is an instruction, however many members it has:
 * embedding, a layer forwards or backwards, the head. The tasks are its one
 * expansion (weft_gang_begin()).
 */
#ifndef WEFT_CALLS_STAGE_H
#define WEFT_CALLS_STAGE_H

#include "codelets/parts.h"
#include "graphs/calls/calls.h"

/* A value of which every place of a stage has a copy; at[p] is the copy at
 * place number p of the stage. */
struct weft_g_value {
    uint32_t own; /* bit p: at[p] does not belong to another value */
    struct weft_tile *at[WEFT_MAX_BLOCKS];
};
_Static_assert(WEFT_MAX_BLOCKS <= 32, "a bit for each place of a stage");

/* What all tasks of a micro-batch have in common. */
struct weft_g_pass {
    struct weft_rt *rt;
    struct weft_seq *seq;
    const char *name; /* of the model */
    const struct weft_shape *shape;
    struct weft_where where;    /* without device and position */
    struct weft_g_order *order; /* NULL: no strict positions */
    bool any_device;
    int64_t n_rows; /* at most */
    int32_t n_targets;
};

/* Of a training call, without an order; micro_batch: -1: of none. */
struct weft_g_pass weft_g_train_pass(const struct weft_g_train *train,
                                     struct weft_seq *seq,
                                     int32_t micro_batch);

/* `where` of a task on a member's device; takes the next position. */
struct weft_where weft_g_where_at(const struct weft_g_pass *pass,
                                  const struct weft_g_member *member);
/* Goes through a stage's members, or through the first members at its places;
 * 0 at first. Each takes the next position of its device. */
struct weft_g_turn {
    int32_t next;
    int32_t k, p; /* number of the member, and of its place */
    const struct weft_g_member *m;
    struct weft_where where;
};
bool weft_g_next_member(const struct weft_g_pass *pass,
                        const struct weft_g_stage *stage,
                        struct weft_g_turn *turn);
struct weft_stage_layers weft_g_stage_layers(
    const struct weft_g_stage *stage);
/* The members as those of a gang, each at the next position of its device;
 * their layout is_gang. */
void weft_g_stage_members(const struct weft_g_pass *pass,
                          const struct weft_g_stage *stage,
                          struct weft_members *out);
bool weft_g_next_place(const struct weft_g_pass *pass,
                       const struct weft_g_stage *stage,
                       struct weft_g_turn *turn);
/* Notes what its tasks at GPUs take beside their tiles, and fails the sequence
 * where these cannot compute the model. more: what is not in pass and layout,
 * n_runs, batch_bytes, generates and backward. */
void weft_g_pass_expect(const struct weft_g_pass *pass,
                        const struct weft_g_layout *layout,
                        const struct weft_gpu_pass *more);
/* The end of the members at place number p, which begin at stage->lead[p]. */
int32_t weft_g_members_end(const struct weft_g_stage *stage, int32_t p);
void weft_g_release_all(struct weft_tile *const tile[], int32_t n);
/* Copies a tile, in no order of a device; nothing where one is NULL. */
void weft_g_copy(const struct weft_g_pass *pass, struct weft_tile *from,
                 struct weft_tile *to);
/* A temporary tile; NULL after the sequence has failed. */
struct weft_tile *weft_g_temp(const struct weft_g_pass *pass,
                              const char *kind, enum weft_mem_class c,
                              int32_t layer, size_t bytes, int32_t place);

/* ---- Values ------------------------------------------------------------ */

/* layer: whose it is; -1: no layer's, or of many. */
void weft_g_value_create(const struct weft_g_pass *pass,
                         const struct weft_g_stage *stage, const char *kind,
                         enum weft_mem_class c, int32_t layer, size_t bytes,
                         struct weft_g_value *out);
/* (n_rows, H) f32 */
size_t weft_g_rows_bytes(const struct weft_g_pass *pass);
void weft_g_value_rows(const struct weft_g_pass *pass,
                       const struct weft_g_stage *stage, const char *kind,
                       int32_t layer, struct weft_g_value *out);
/* Creates tiles for a value of stage `from` at those places of stage `to` that
 * have no copy of it. Their memory is allocated by a task in the order of the
 * first member at the place (without an order: after the task that writes
 * `after`, a value of `to`), so that data which is sent early waits at the
 * sender. */
void weft_g_value_expect(const struct weft_g_pass *pass,
                         const struct weft_g_stage *from,
                         const struct weft_g_stage *to, enum weft_mem_class c,
                         size_t bytes, const struct weft_g_value *after,
                         struct weft_g_value *out);
/* Brings the value of stage `from` to the places of stage `to`. `out` is from
 * weft_g_value_expect(): its tiles receive copies; at the other places it
 * shares the tiles of `value`. */
void weft_g_value_fetch(const struct weft_g_pass *pass,
                        const struct weft_g_stage *from,
                        const struct weft_g_value *value,
                        const struct weft_g_stage *to,
                        struct weft_g_value *out);
/* A stage with this place alone, for values that lie there. */
struct weft_g_stage weft_g_stage_of_place(int32_t place);
/* Brings a tile that lies at `place` to the places of a stage. */
void weft_g_value_of_tile(const struct weft_g_pass *pass,
                          struct weft_tile *tile, int32_t place,
                          const struct weft_g_stage *to,
                          struct weft_g_value *out);
/* Makes `to` the owner of the tiles that it shares with `from`, releases the
 * other tiles of `from` and empties it. */
void weft_g_value_hand_over(struct weft_g_value *from,
                            struct weft_g_value *to);
/* Copies the tile at place number 0 to the tiles at the other places. */
void weft_g_value_spread(const struct weft_g_pass *pass,
                         const struct weft_g_stage *stage,
                         const struct weft_g_value *value);
void weft_g_value_release(struct weft_g_value *value);

/* ---- Exchange ---------------------------------------------------------- */

/* Parts of all members at every place. */
struct weft_g_exchange {
    int32_t n[WEFT_MAX_BLOCKS]; /* by place */
    struct weft_part_tile part[WEFT_MAX_BLOCKS][WEFT_MAX_BLOCKS];
    struct weft_tile *temp[2 * WEFT_MAX_BLOCKS * WEFT_MAX_BLOCKS];
    int32_t n_temp;
};
/* Sends all members' parts to places number 0 .. to - 1. With n > 0 parts have
 * n floats per row (per target if `targets`), n_sets times, and a place joins
 * its members' parts before it sends them; with n = 0 it sends each member's
 * tile. member[k] may be NULL: the member has an entry in `out` and no part.
 * The caller still owns the members' tiles. */
void weft_g_exchange(const struct weft_g_pass *pass,
                     const struct weft_g_stage *stage,
                     struct weft_tile *const member[],
                     const struct weft_g_value *batch, bool targets,
                     int64_t n, int32_t n_sets, int32_t to,
                     struct weft_g_exchange *out);
void weft_g_exchange_release(struct weft_g_exchange *exchange);

/* Creates a tile for the roots of a sum of n floats, for every member. */
void weft_g_roots_create(const struct weft_g_pass *pass,
                         const struct weft_g_stage *stage, int32_t layer,
                         int64_t n, struct weft_tile *out[]);

/* ---- Forward ----------------------------------------------------------- */

/* params: published weights by place. */
void weft_g_stage_embed(const struct weft_g_pass *pass,
                        const struct weft_g_stage *stage,
                        const struct weft_params *params,
                        const struct weft_g_value *batch,
                        const struct weft_g_value *x);

/* What a layer keeps for its backward pass. */
struct weft_g_kept {
    int32_t n; /* members; 0: nothing is kept */
    struct weft_tile *member[WEFT_MAX_BLOCKS];
    struct weft_g_value x_mid; /* empty with one member */
};
void weft_g_kept_create(const struct weft_g_pass *pass,
                        const struct weft_g_stage *stage, int32_t layer,
                        struct weft_g_kept *out);
void weft_g_kept_release(struct weft_g_kept *kept);

/* A layer, forwards or backwards. */
struct weft_g_layer {
    const struct weft_g_pass *pass;
    const struct weft_g_stage *stage;
    const struct weft_params *fwd; /* by place, as the others */
    int32_t index;
    const struct weft_g_value *batch, *x;
    /* Forward: y may be x; NULL: only what is kept is computed. kept receives
     * what the backward pass needs; NULL: nothing. kv: by member, or NULL. */
    const struct weft_g_value *y;
    const struct weft_g_kept *kept;
    const struct weft_part_kv *kv;
    /* Backward: dx holds the gradient of the layer's output and receives that
     * of its input. */
    const struct weft_params *bwd, *grad;
    const struct weft_g_value *dx;
};
void weft_g_layer_forward(const struct weft_g_layer *layer);
/* Computes again what the layer would have kept, if `recompute`. */
void weft_g_layer_backward(const struct weft_g_layer *layer, bool recompute);

/* Computes every member's softmax over its vocabulary and sends them to places
 * number 0 .. to - 1. The caller releases part[] (by member) and the exchange.
 * logits: by member, where they are kept; NULL: nowhere. */
void weft_g_stage_head_parts(
    const struct weft_g_pass *pass, const struct weft_g_stage *stage,
    const struct weft_params *params, const struct weft_g_value *batch,
    const struct weft_g_value *x, float inv_temperature, int32_t to,
    struct weft_tile *const logits[], struct weft_tile *part[],
    struct weft_g_exchange *parts);
/* Writes log-probs of the targets to the samples' tiles `out` (n), at place
 * number 0. */
void weft_g_stage_logprob(const struct weft_g_pass *pass,
                          const struct weft_g_stage *stage,
                          const struct weft_params *params,
                          const struct weft_g_value *batch,
                          const struct weft_g_value *x, float inv_temperature,
                          int32_t n, struct weft_tile *const out[]);

/* ---- Backward ---------------------------------------------------------- */

/* The loss of a micro-batch and the head's backward pass. */
struct weft_g_loss {
    const struct weft_g_pass *pass;
    const struct weft_g_stage *stage;
    const struct weft_params *fwd, *bwd, *grad; /* by place */
    const struct weft_loss_args *args;
    /* args->kto_kl and args->gate at each place */
    const struct weft_g_value *kl, *gate;
    const struct weft_g_value *batch, *x;
    const struct weft_g_value *dx; /* is written */
    struct weft_tile *stats;       /* the same, at place number 0 */
    bool recompute; /* no logits are kept for the backward pass */
};
void weft_g_stage_loss(const struct weft_g_loss *loss);
void weft_g_stage_embed_backward(const struct weft_g_pass *pass,
                                 const struct weft_g_stage *stage,
                                 const struct weft_g_value *batch,
                                 const struct weft_g_value *dx,
                                 const struct weft_params *grad);

/* ---- Instructions ------------------------------------------------------ */

/* One of a stage's members, on the rows of a pass. op: a constant of the
 * program. work: (members) of the stage; NULL: that of its tasks. */
struct weft_g_gang {
    const char *op;
    int32_t layer;
    const struct weft_work *work;
};
/* As weft_gang_begin() and those after it (rt/graph.h); the words of pass and
 * stage are said. */
bool weft_g_gang_begin(const struct weft_g_pass *pass,
                       const struct weft_g_stage *stage,
                       const struct weft_g_gang *gang);
bool weft_g_gang_again(const struct weft_g_pass *pass,
                       const struct weft_g_gang *gang);
void weft_g_gang_end(const struct weft_g_pass *pass,
                     const struct weft_g_gang *gang);
/* Tiles that the instruction may use: of a value (NULL: it has none), blocks,
 * a layer's parameters, what a layer's instruction is given, and all published
 * weights of a stage. */
void weft_g_gang_value(const struct weft_g_pass *pass,
                       const struct weft_g_stage *stage,
                       const struct weft_g_value *value);
/* The same of a batch, whose rows matter for costs. */
void weft_g_gang_batch(const struct weft_g_pass *pass,
                       const struct weft_g_stage *stage,
                       const struct weft_g_value *batch);
void weft_g_gang_blocks(const struct weft_g_pass *pass,
                        struct weft_tile *const tile[]);
void weft_g_gang_tiles(const struct weft_g_pass *pass,
                       const struct weft_layer_tiles *tiles);
void weft_g_gang_layer(const struct weft_g_layer *layer, bool backward);
void weft_g_gang_model(const struct weft_g_pass *pass,
                       const struct weft_g_stage *stage,
                       const struct weft_params *params);

#endif
