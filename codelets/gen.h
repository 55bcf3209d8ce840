/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of generation, shared by the chunk of one device and the steps of an
 * instance that several devices serve: which rows a step takes, and what is
 * drawn. A step takes one row of every running sequence, and up to
 * prefill_tokens rows of prompts that are still being read; rows are
 * independent, so which sequences share a step changes no number.
 */
#ifndef WEFT_CODELETS_GEN_H
#define WEFT_CODELETS_GEN_H

#include "codelets/access_list.h"
#include "kern/parts.h"
#include "rt/codelet.h"

struct weft_gen_prompt {
    int32_t slot, sample, n_prompt, limit;
};

/* Task argument; prompt[n_admit], then their tokens, follow. */
struct weft_gen_task {
    const struct weft_shape *shape; /* NULL for tasks that need no shape */
    struct weft_gen_args gen;
    bool first; /* whether it is the chunk's first step */
    int32_t n_admit;
};
/* The caller frees. NULL: out of memory, the sequence has failed. */
struct weft_gen_task *weft_gen_task_create(struct weft_seq *seq,
                                           const struct weft_shape *shape,
                                           const struct weft_gen_args *gen,
                                           int32_t n_admit,
                                           const struct weft_gen_admit *admit,
                                           size_t *bytes_out);

/* The arrays of a state tile. */
struct weft_gen_view {
    struct weft_gen_state *state;
    struct weft_gen_slot *slot;
    int32_t *page, *free_page, *token;
    float *logp;
};
struct weft_gen_view weft_gen_view_of(struct weft_gen_state *state);

void weft_gen_admit(const struct weft_gen_view *view,
                    const struct weft_gen_task *task);
/* Gives back a slot with its pages. */
void weft_gen_free_slot(const struct weft_gen_view *view, int32_t slot);

/* One step's rows. */
struct weft_gen_rows {
    struct weft_k_run *run; /* (n_slots) */
    int32_t *token;         /* (n_slots + prefill_tokens) */
    int32_t *sampled;       /* (n_slots) slots that get a token */
    int32_t n_runs, n_rows, n_sampled;
};
/* Chooses a step's rows and takes the cache pages they need; adds the number
 * of prompt rows to n_prefilled. */
int weft_gen_plan_rows(const struct weft_gen_view *view,
                       int32_t prefill_tokens, struct weft_gen_rows *rows,
                       int64_t *n_prefilled, struct weft_err *err);
/* Writes the last row of each run that gets a token, (n_sampled). */
void weft_gen_last_rows(const struct weft_gen_rows *rows, int32_t *row_out);

/* Completes kv, which has arena and page_bytes, with the step's page table. In
 * the pages that the step's runs begin it clears what belongs to layer number
 * `layer` of the range; not for a GPU, whose kernels use nothing that no row
 * has written. */
void weft_gen_open_cache(const struct weft_batch *step,
                         const struct weft_range *range,
                         const struct weft_shape *shape, int32_t layer,
                         bool on_gpu, struct weft_k_kv *kv);
/* Clears `bytes` at `offset` of every page that these runs begin. */
void weft_gen_clear_pages(int32_t n_runs, const struct weft_k_run *run,
                          const struct weft_k_kv *kv, size_t offset,
                          size_t bytes);

/* Adds a drawn token to a slot, which may end with it. Errors: token < 0. */
int weft_gen_put(const struct weft_gen_view *view,
                 const struct weft_gen_args *gen, int32_t slot, int32_t token,
                 float logp, struct weft_err *err);
/* Counts drawn tokens and copies the slots, for who reads the status. */
void weft_gen_report(const struct weft_gen_view *view, int32_t n_drawn,
                     struct weft_gen_status *status);

/* Draws one token for each of n slots from logits (n, V). scratch: V * 8
 * bytes. */
int weft_gen_draw(const struct weft_gen_view *view,
                  const struct weft_shape *shape,
                  const struct weft_gen_args *gen, int32_t n,
                  const int32_t *slot, const float *logits, void *scratch,
                  struct weft_err *err);

/* Takes the next aligned piece of a scratch area. */
WEFT_INLINE void *weft_gen_carve(char **at, size_t bytes)
{
    void *p = *at;
    *at += (bytes + 63) / 64 * 64;
    return p;
}

#endif
