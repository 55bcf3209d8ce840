/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generation: an instance of a model admits prompts into its slots, runs chunks
 * of decode steps, and gives up the samples that have ended. codelets.h says
 * what holds for all insert functions.
 */
#ifndef WEFT_CODELETS_GENERATION_H
#define WEFT_CODELETS_GENERATION_H

#include "codelets/codelets.h"
#include "kern/ends.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Texts that end a response, wherever its tokens' bytes come to hold one. */
enum { WEFT_MAX_STOP_TEXTS = 16 };
struct weft_stop_texts {
    const char *text[WEFT_MAX_STOP_TEXTS]; /* (n) */
    const char *bytes; /* of token i: at[i] .. at[i + 1] - 1 */
    const int64_t *at; /* (n_tokens + 1) */
    int32_t n, n_tokens;
};

struct weft_gen_args {
    struct weft_k_sampling sampling;
    int32_t iteration; /* keys the random draws, with first_sample + sample */
    int32_t first_sample;
    int32_t n_steps;        /* decode steps of a chunk */
    int32_t most_steps;     /* of any, for memory that stays; 0: n_steps */
    int32_t prefill_tokens; /* prompt rows per step, at most */
    bool prefix_sharing;    /* prompts that begin alike share the cache */
    int32_t min_new_tokens; /* so many do not end a response */
    int32_t n_stop;
    int32_t stop[WEFT_MAX_ENDS]; /* token ids that end a response */
    /* NULL: none. Borrowed until the tasks have run. */
    const struct weft_stop_texts *stop_text;
    /* (n_steps) the rows of each step, where it is known, for costs; read when
     * tasks are inserted. NULL: not known. */
    const struct weft_work_rows *step;
    /* NULL; or where stages are GPUs, of the instance and the stage: borrowed
     * until the tasks have run. */
    struct weft_gen_graphs *graphs;
};

/* The CUDA graphs of an instance's decode steps in a stage. NULL: out of
 * memory. */
struct weft_gen_graphs *weft_gen_graphs_create(int32_t n_slots);
void weft_gen_graphs_free(struct weft_gen_graphs *graphs); /* NULL: nothing */
/* What all of them take of a GPU's memory, at the most. range: its blocks; not
 * all of the model's: it is a member of a tp group. */
size_t weft_gen_graphs_bytes(const struct weft_shape *shape,
                             const struct weft_stage_layers *layers,
                             struct weft_range range, int32_t n_slots);
/* The most kernels that a graph has. */
int64_t weft_gen_graph_nodes(const struct weft_shape *shape,
                             const struct weft_stage_layers *layers,
                             struct weft_range range);
/* What a GPU in a tp group has for the others, which read it, of at most so
 * many rows in a step. */
size_t weft_gen_exchange_bytes(const struct weft_shape *shape,
                               const struct weft_stage_layers *layers,
                               struct weft_range range, int64_t n_rows,
                               int32_t n_slots);

/* Adds what member k reads of the others' in these steps, and how often, to
 * work->received and n_received. */
void weft_gen_exchange_work(const struct weft_shape *shape,
                            const struct weft_gang_ranges *members, int32_t k,
                            int32_t n_steps,
                            const struct weft_work_rows step[],
                            struct weft_work *work);

struct weft_gen_admit {
    int32_t slot, sample, n_prompt, limit;
    const int32_t *token; /* (n_prompt) */
};

/* What a member of a stage has. exchange: of several GPUs,
 * weft_gen_exchange_bytes() for steps of so many rows, which stays for all of
 * them; otherwise NULL. graphs: of GPUs, in place of the arguments'. */
struct weft_gen_member {
    const struct weft_params *fwd;
    struct weft_tile *arena; /* of its blocks */
    struct weft_tile *exchange;
    struct weft_gen_graphs *graphs;
};
/* Tiles of an instance. steps: NULL, or at a GPU's place a tile of class
 * samples of weft_gen_steps_bytes(). */
struct weft_gen_tiles {
    struct weft_tile *state, *status, *steps;
    struct weft_gen_member of[WEFT_MAX_BLOCKS];
};
/* Admits prompts into free slots, then runs n_steps decode steps of the
 * instance and writes status (W). Sequences that finish are skipped from then
 * on. members: of a model's only stage; GPUs may use one another's memory. */
void weft_insert_gen_chunk(struct weft_seq *seq,
                           const struct weft_members *members,
                           const struct weft_shape *shape,
                           const struct weft_gen_args *args, int32_t n_admit,
                           const struct weft_gen_admit *admit,
                           const struct weft_gen_tiles *tiles);
/* Of a decode step in one of several stages. state, status: of the last stage's
 * on CPU devices. drawn: of it on a GPU, class samples, weft_gen_drawn_bytes();
 * otherwise NULL. */
struct weft_gen_stage_tiles {
    struct weft_tile *batch, *x;
    struct weft_tile *state, *status, *drawn;
    struct weft_gen_member of[WEFT_MAX_BLOCKS];
};
/* The same of one step, whose rows are in batch (weft_insert_gen_begin()), in
 * one stage: x (RW, or W in the first stage) passes the stage's layers, and the
 * last one draws the tokens: on a GPU into drawn (W), for
 * weft_insert_gen_settle(). status (RW) is complete after the chunk's last
 * step. Members that are GPUs may use one another's memory; their tasks may
 * have ended before others have read what is in `exchange`. */
void weft_insert_gen_stage(struct weft_seq *seq,
                           const struct weft_members *members,
                           const struct weft_shape *shape,
                           const struct weft_gen_args *args, int32_t n_slots,
                           const struct weft_gen_stage_tiles *tiles);
/* Of a planned step (struct weft_batch), and of a chunk's with what they
 * draw. */
size_t weft_gen_step_bytes(const struct weft_gen_args *args, int32_t n_slots,
                           int32_t max_total);
size_t weft_gen_steps_bytes(const struct weft_gen_args *args, int32_t n_slots,
                            int32_t max_total);
/* What a chunk, or a step in a stage, takes of a GPU's memory beside its
 * tiles. */
size_t weft_gen_scratch_bytes(const struct weft_shape *shape,
                              const struct weft_stage_layers *layers,
                              struct weft_range range,
                              const struct weft_gen_args *args,
                              int32_t n_slots, int32_t max_total);
/* Puts every slot where it has read `context` tokens but the last, of texts
 * that have room for as many more. */
void weft_gen_fill(struct weft_gen_state *state, int32_t context,
                   int32_t room);
/* Copies the sample of a slot into `rollout` (W) and frees slot and pages. It
 * has finished; or it has not (moves), and goes on elsewhere. cached (W,
 * weft_gen_cached_bytes(), may be NULL): which pages it had, which are as they
 * were until the instance's next step. */
void weft_insert_gen_retire(struct weft_seq *seq,
                            const struct weft_where *where, int32_t slot,
                            bool moves, struct weft_tile *state,
                            struct weft_tile *rollout,
                            struct weft_tile *cached);
/* Puts an unfinished sample into a free slot, behind those that are there. It
 * is read again, as one that had given its pages back, and goes on with the
 * same bits. Or it takes pages for the cache that it had there (left; NULL: it
 * is read again), if there are enough, and tells which (taken, W). */
void weft_insert_gen_enter(struct weft_seq *seq,
                           const struct weft_where *where, int32_t slot,
                           int32_t sample, int32_t limit,
                           struct weft_tile *rollout, struct weft_tile *state,
                           struct weft_tile *left, struct weft_tile *taken);
/* Of a sample of n_total tokens: what tells its pages. */
size_t weft_gen_cached_bytes(int32_t n_total);

enum { WEFT_GEN_ARENAS = 64 };
/* Gathers the pages that a sample had (left) in arenas of an instance into
 * `cache` (W, of weft_gen_cache_bytes()); and copies them to those that it has
 * taken in arenas of another one, cut alike. Of each all tiles lie at one
 * place. n_pages: of an arena. n_arenas: at most WEFT_GEN_ARENAS. */
size_t weft_gen_cache_bytes(int32_t n_arenas, struct weft_tile *const arena[],
                            int32_t n_pages, int32_t n_total);
void weft_insert_gen_pack(struct weft_seq *seq,
                          const struct weft_where *where,
                          struct weft_tile *left, int32_t n_arenas,
                          struct weft_tile *const arena[], int32_t n_pages,
                          struct weft_tile *cache);
void weft_insert_gen_unpack(struct weft_seq *seq,
                            const struct weft_where *where,
                            struct weft_tile *taken, struct weft_tile *cache,
                            int32_t n_arenas, struct weft_tile *const arena[],
                            int32_t n_pages);

/* What the controller would read when the samples' lengths were known: plays
 * an instance's chunks without a model or a runtime. n_total: by sample, the
 * tokens that it ends with, prompt included. */
struct weft_gen_play;
int weft_gen_play_create(int32_t n_slots, int32_t max_total, int32_t n_pages,
                         int32_t prefill_tokens, struct weft_gen_play **out,
                         struct weft_err *err);
void weft_gen_play_free(struct weft_gen_play *play); /* NULL is allowed */
/* status: weft_gen_status_bytes(n_slots). step (n_steps): the rows of each. */
void weft_gen_play_chunk(struct weft_gen_play *play,
                         const struct weft_gen_args *args, int32_t n_admit,
                         const struct weft_gen_admit *admit,
                         const int32_t *n_total,
                         struct weft_gen_status *status,
                         struct weft_work_rows step[]);
void weft_gen_play_retire(struct weft_gen_play *play, int32_t slot);
/* As weft_insert_gen_enter(), of a sample of n_total tokens, n_cached of which
 * were in its cache; 0: it is read again. */
void weft_gen_play_enter(struct weft_gen_play *play,
                         const struct weft_gen_admit *admit, int32_t n_total,
                         int32_t n_cached);
/* Tokens of a slot that are in the cache. */
int32_t weft_gen_play_cached(const struct weft_gen_play *play, int32_t slot);

#ifdef __cplusplus
}
#endif
#endif
