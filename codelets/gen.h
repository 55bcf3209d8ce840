/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of generation, shared by the chunk of one device and the steps of an
 * instance that several devices serve: which rows a step takes, and what is
 * drawn. A step takes one row of every running sequence, and up to
 * prefill_tokens rows of prompts that are still being read; rows are
 * independent, so which sequences share a step changes no number.
 * gen_pages.c has the pages of the KV cache, gen_prefix.c what prompts have in
 * common.
 */
#ifndef WEFT_CODELETS_GEN_H
#define WEFT_CODELETS_GEN_H

#include "codelets/gang.h"
#include "codelets/generation.h"

struct weft_gen_prompt {
    int32_t slot, sample, n_prompt, limit;
};

/* Task argument; prompt[n_admit], then their tokens, follow. */
struct weft_gen_task {
    const struct weft_shape *shape; /* NULL for tasks that need no shape */
    struct weft_gen_args gen;
    bool first; /* whether it is the chunk's first step */
    struct weft_gang_ranges members; /* of a chunk */
    int32_t n_admit;
};
/* The caller frees. */
struct weft_gen_task *weft_gen_task_create(const struct weft_shape *shape,
                                           const struct weft_gen_args *gen,
                                           int32_t n_admit,
                                           const struct weft_gen_admit *admit,
                                           size_t *bytes_out);

/* The arrays of a state tile. */
struct weft_gen_view {
    struct weft_gen_state *state;
    struct weft_gen_slot *slot;
    int32_t *order, *page, *n_users, *n_keepers, *free_page, *last_use;
    int32_t *copy, *token;
    float *logp;
};
struct weft_gen_view weft_gen_view_of(struct weft_gen_state *state);

void weft_gen_admit(const struct weft_gen_view *view,
                    const struct weft_gen_task *task);
/* Puts a sample of n_total tokens, of which nothing is cached, into a free
 * slot; returns where its tokens' numbers are in the view's token and logp.
 * token: (n_prompt or more) its own. */
int64_t weft_gen_enter(const struct weft_gen_view *view, int32_t slot,
                       int32_t sample, int32_t n_prompt, int32_t n_total,
                       int32_t limit, const int32_t *token);
/* The cache of a sample that moves: how many tokens it has, and the pages of an
 * instance that have them. */
struct weft_gen_cached {
    int32_t n_cached;
    int32_t page[]; /* (weft_gen_pages_for(n_cached)) */
};
/* Takes pages for the first n_cached tokens of a slot that has none, if there
 * are so many that nobody runs with; returns how many pages, or 0. */
int32_t weft_gen_take_cache(const struct weft_gen_view *view, int32_t slot,
                            int32_t n_cached);
/* Gives back a slot with its pages, but keeps those of its prompt until they
 * are wanted. */
void weft_gen_free_slot(const struct weft_gen_view *view, int32_t slot);
/* Gives back its pages alone: its tokens are known, but not cached. */
void weft_gen_free_pages(const struct weft_gen_view *view, int32_t slot);
/* Keeps the pages of the slot's prompt for who begins alike. */
void weft_gen_keep(const struct weft_gen_view *view, int32_t slot);
/* Takes slots that have ended out of the order. */
void weft_gen_drop_ended(const struct weft_gen_view *view);
/* A number that two prompts have in common if they share a prefix that pays. */
uint16_t weft_gen_head(const int32_t *token, int32_t n_prompt);
/* Slots that start in a step. */
struct weft_gen_starts {
    bool waits; /* one of those before waits for pages */
    /* how many slots have heads alike, 2 or more: 2; set by the first start */
    bool counted;
    uint8_t alike[8192];
};
/* Whether the slot at number `at` of the order, of which nothing is cached,
 * can start in this step; then it has what it shares with others. */
bool weft_gen_start(const struct weft_gen_view *view, bool sharing,
                    int32_t at, struct weft_gen_starts *starts,
                    struct weft_gen_status *status);
/* Takes pages for its tokens before `end`. false: those before it have them,
 * and it has given back its own. */
bool weft_gen_extend(const struct weft_gen_view *view, int32_t at,
                     int32_t end, struct weft_gen_status *status);

/* Whether a step finds pages for all that it may take, so that none waits,
 * and none gives its own back. */
bool weft_gen_has_room(const struct weft_gen_view *view);

/* One step's rows. */
struct weft_gen_rows {
    struct weft_k_run *run; /* (n_slots) */
    int32_t *token;         /* (n_slots + prefill_tokens) */
    int32_t *sampled;       /* (n_slots) slots that get a token */
    int32_t n_runs, n_rows, n_sampled;
};
/* Chooses a step's rows and takes the cache pages they need; counts prompt
 * rows and pages in `status`. */
void weft_gen_plan_rows(const struct weft_gen_view *view,
                        const struct weft_gen_args *gen,
                        struct weft_gen_rows *rows,
                        struct weft_gen_status *status);
/* Writes the last row of each run that gets a token, (n_sampled). */
void weft_gen_last_rows(const struct weft_gen_rows *rows, int32_t *row_out);

/* Plans a step and writes it into a batch, as weft_step_layout() lays it
 * out, with rows up to weft_gen_launch_rows(). */
void weft_gen_begin_step(const struct weft_gen_view *view,
                         const struct weft_gen_args *gen,
                         struct weft_gen_status *status,
                         struct weft_batch *batch);

/* Completes kv, which has arena and page_bytes, with the step's page table.
 * Of what belongs to layer number `layer` of the range it copies the pages
 * that the step copies, and clears those that the step's runs begin; a GPU's
 * kernels use nothing that no row has written, so there nothing is cleared. */
void weft_gen_open_cache(struct CUstream_st *stream,
                         const struct weft_batch *step,
                         const struct weft_range *range,
                         const struct weft_shape *shape, int32_t layer,
                         struct weft_k_kv *kv);
/* Copies `bytes` at `offset` of n pages, copy (n, 2): from, to; in this
 * order, as a page that was copied may then be another's. */
void weft_gen_copy_pages(struct CUstream_st *stream, int32_t n,
                         const int32_t *copy, const struct weft_k_kv *kv,
                         size_t offset, size_t bytes);
/* Clears `bytes` at `offset` of every page that these runs begin. */
void weft_gen_clear_pages(int32_t n_runs, const struct weft_k_run *run,
                          const struct weft_k_kv *kv, size_t offset,
                          size_t bytes);

/* Whether the slot's next token must not end its response. */
bool weft_gen_is_held(const struct weft_gen_args *gen,
                      const struct weft_gen_slot *slot);

/* Whether the last of a response's n tokens completes a text. */
bool weft_gen_is_stopped(const struct weft_stop_texts *stop, int32_t n,
                         const int32_t *token);
/* Adds a drawn token to a slot, which may end with it. Errors: token < 0. */
int weft_gen_put(const struct weft_gen_view *view,
                 const struct weft_gen_args *gen, int32_t slot, int32_t token,
                 float logp, struct weft_err *err);
/* Counts drawn tokens and copies the slots, for who reads the status. */
void weft_gen_report(const struct weft_gen_view *view, int32_t n_drawn,
                     struct weft_gen_status *status);

/* Draws a slot's next token from logits (V), which weft_k_sample_held() may
 * change; the caller puts it into the state. scratch: V * 8 bytes. */
int32_t weft_gen_draw_row(const struct weft_gen_view *view,
                          const struct weft_shape *shape,
                          const struct weft_gen_args *gen, int32_t slot,
                          float *logits, float *logp_out, void *scratch);
/* Draws and puts one token for each of n slots, logits (n, V). */
int weft_gen_draw(const struct weft_gen_view *view,
                  const struct weft_shape *shape,
                  const struct weft_gen_args *gen, int32_t n,
                  const int32_t *slot, float *logits, void *scratch,
                  struct weft_err *err);

/* What the members of a gang draw together, in memory of the first one. */
struct weft_gen_drawn {
    float *logits;  /* (n_slots, V) */
    int32_t *token; /* (n_slots) */
    float *logp;
};
/* Bytes of it, and of what each member needs to draw. */
size_t weft_gen_drawn_scratch_bytes(const struct weft_shape *shape,
                                    int32_t n_slots);
size_t weft_gen_draw_own_bytes(const struct weft_shape *shape,
                               int32_t n_slots);
/* Lays it out at *at, behind which it ends. */
void weft_gen_drawn_at(const struct weft_shape *shape, int32_t n_slots,
                       char **at, struct weft_gen_drawn *out);
/* A member computes the logits of its vocabulary for rows row (n) of its x, and
 * draws its share of the tokens of slot (n); own: weft_gen_draw_own_bytes().
 * false: a member has failed. */
bool weft_gen_draw_member(const struct weft_gang_member *m,
                          const struct weft_gang_weights *weights,
                          const struct weft_gen_view *view,
                          const struct weft_gen_args *gen, int32_t n,
                          const int32_t *row, const int32_t *slot, void *own,
                          const struct weft_gen_drawn *out);
/* Puts what all members drew into the state. */
int weft_gen_put_drawn(const struct weft_gen_view *view,
                       const struct weft_gen_args *gen, int32_t n,
                       const int32_t *slot,
                       const struct weft_gen_drawn *drawn,
                       struct weft_err *err);

/* Whether every text has one row, and its next token is drawn. */
WEFT_INLINE bool weft_gen_is_decode(const struct weft_batch *step)
{
    return step->n_rows == step->n_runs && step->n_targets == step->n_rows;
}
/* How many rows a GPU computes for a step: where weft_gen_is_decode() those of
 * a graph, otherwise its own. */
int32_t weft_gen_launch_rows(const struct weft_batch *step, int32_t n_slots);
/* Such a step's rows up to `end` are no text's: they compute, and leave
 * nothing. */
void weft_gen_fill_rows(const struct weft_batch *step, int32_t end);

/* Decode steps that can be put on a stream as one: all zero when the last ones
 * of so many rows (weft_gen_launch_rows()) had another key. */
struct weft_gen_graph {
    uint64_t key;
    bool has_run;  /* by itself: nothing is chosen or loaded any more */
    bool is_large; /* larger than its memory: it stays without */
    bool is_loop;  /* of a run of steps; otherwise of one */
    struct CUgraphExec_st *graph;
};
struct weft_gen_graphs {
    bool has_no_loops; /* CUDA made none */
    bool has_products; /* they are chosen */
    int32_t n;
    struct weft_gen_graph of[]; /* (n) */
};
struct weft_gen_graph *weft_gen_graph_of(struct weft_gen_graphs *graphs,
                                         int32_t n_rows, uint64_t key);

/* The first body of gen_chunk. */
int weft_gen_chunk_cpu(const void *args, void *const buf[], int n_buf,
                       struct weft_exec *x);

/* In a tile of weft_gen_drawn_bytes(), behind the tokens: their log-probs, and
 * whether the tp group that has drawn them has failed. */
WEFT_INLINE float *weft_gen_drawn_logp(int32_t *drawn, int32_t n_slots)
{
    return (float *) (drawn + n_slots);
}
WEFT_INLINE int32_t *weft_gen_drawn_failed(int32_t *drawn, int32_t n_slots)
{
    return drawn + 2 * (int64_t) n_slots;
}

/* What is said then. */
int weft_gen_group_failed(struct weft_err *err);

/* Takes the next aligned piece of a scratch area. */
WEFT_INLINE void *weft_gen_carve(char **at, size_t bytes)
{
    void *p = *at;
    *at += (bytes + 63) / 64 * 64;
    return p;
}

#endif
