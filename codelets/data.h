/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tiles of samples and micro-batches hold: plain structs over one piece
 * of memory, so that codelets, graphs and the run agree on them.
 */
#ifndef WEFT_CODELETS_DATA_H
#define WEFT_CODELETS_DATA_H

#include "kern/kern.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- One rollout ------------------------------------------------------ */

struct weft_rollout {
    int32_t capacity; /* tokens the tile has room for */
    int32_t n_prompt;
    int32_t n_total; /* prompt and response */
    int32_t ended;   /* 1: by an end-of-sequence token; 0: by length */
    /* int32_t token[capacity]; float logp[capacity] follow; logp[i] is
     * log p(token i | tokens before it), 0 in the prompt */
};

WEFT_INLINE size_t weft_rollout_bytes(int32_t capacity)
{
    return sizeof(struct weft_rollout) + (size_t) capacity * 8;
}
WEFT_INLINE int32_t *weft_rollout_token(const struct weft_rollout *r)
{
    return (int32_t *) (r + 1);
}
WEFT_INLINE float *weft_rollout_logp(const struct weft_rollout *r)
{
    return (float *) (weft_rollout_token(r) + r->capacity);
}

/* ---- Advantages of one sample ----------------------------------------- */

struct weft_advantage {
    int32_t n; /* response tokens */
    int32_t ended;
    /* weighted sum of rewards, after missing-EOS penalty and clip */
    double score;
    double raw_score;  /* before missing-EOS penalty and clipping */
    double kl_sum;     /* sum over tokens of log p - log p_ref */
    double reward_sum; /* score minus the KL penalty */
    double kl_coef;    /* coefficient of that penalty */
    /* float advantage[n]; float ret[n] follow */
};

WEFT_INLINE size_t weft_advantage_bytes(int32_t n)
{
    return sizeof(struct weft_advantage) + (size_t) n * 8;
}
WEFT_INLINE float *weft_advantage_of(const struct weft_advantage *a)
{
    return (float *) (a + 1);
}
WEFT_INLINE float *weft_return_of(const struct weft_advantage *a)
{
    return weft_advantage_of(a) + a->n;
}

/* Moments of all advantages of an iteration, and what whitens them: A becomes
 * (A - mean) * rstd. Without whitening mean is 0 and rstd 1. */
struct weft_moments {
    struct weft_k_moments of;
    double mean, rstd;
};

/* The KL controller's state. */
struct weft_kl_state {
    double coef;
    double last_kl; /* mean over samples of kl_sum at the last update */
};

/* ---- A micro-batch ---------------------------------------------------- */

/* Packed rows of whole samples, and the rows that predict a token ("targets").
 * In a sample of n_prompt + n tokens these are the rows n_prompt - 1 ..
 * n_prompt + n - 2. */
struct weft_batch {
    int32_t n_rows, n_runs, n_targets;
    int32_t has_columns;
    /* byte offsets of arrays, which lie in this order */
    size_t run, token, run_targets, row, target;
    size_t weight, label;                                 /* per run, float */
    size_t old_logp, ref_logp, advantage, ret, old_value; /* per target */
    /* Only for a decode step: page numbers (n_slots, pages_per_slot) of the KV
     * cache. Its targets are the rows whose next token is drawn; run_targets
     * is unused. */
    int32_t pages_per_slot;
    size_t page;
    /* pairs of pages (n_copies, 2), from and to, that are copied before the
     * step's rows are written */
    int32_t n_copies;
    size_t copy;
    /* (n_slots, 4): what the draw of each target is keyed by, and enum
     * weft_k_row_state */
    size_t key;
    size_t bytes;
};

/* Computes sizes and offsets of a batch; fills everything but the data. */
void weft_batch_layout(int32_t n_rows, int32_t n_runs, int32_t n_targets,
                       bool columns, struct weft_batch *out);

WEFT_INLINE void *weft_batch_at(const struct weft_batch *b, size_t offset)
{
    return (char *) (uintptr_t) b + offset;
}

/* The same for a decode step of at most n_rows rows of n_slots sequences; bytes
 * is a multiple of 64. */
void weft_step_layout(int32_t n_rows, int32_t n_slots, int32_t pages_per_slot,
                      struct weft_batch *out);

/* Sizes of tiles: the activations that a layer keeps for its backward pass,
 * and one page of the KV cache. */
size_t weft_layer_saved_bytes(const struct weft_shape *shape, int64_t n_rows);
size_t weft_kv_page_bytes(const struct weft_shape *shape);

/* ---- Generation: one instance's state --------------------------------- */

struct weft_gen_slot {
    int32_t sample; /* -1: free */
    int32_t n_prompt;
    int32_t n_total;  /* tokens known */
    int32_t n_cached; /* tokens whose K and V are in the cache */
    int32_t n_ready;  /* those of them that earlier steps wrote */
    int32_t limit;    /* it stops when n_total reaches this */
    int16_t done;     /* 0: running, 1: stopped by EOS, 2: by length */
    uint16_t head;    /* weft_gen_head() of its prompt */
};

/* Behind the slots of samples come as many of prompts that samples had which
 * have gone: their pages are kept for who begins alike.
 *
 * struct weft_gen_state | slot[2 n_slots] | order[n_slots] |
 * page[2 n_slots][pages_per_slot] | n_users[n_pages] | n_keepers[n_pages] |
 * free_page[n_pages] | last_use[n_slots] | copy[n_slots][2] |
 * token[2 n_slots][max_total] | logp[n_slots][max_total] */
struct weft_gen_state {
    int32_t n_slots, max_total, pages_per_slot, n_pages;
    int32_t n_free;    /* pages on the stack free_page */
    int32_t n_running; /* slots in `order`, the first admitted first */
    int32_t n_copies;  /* of the step that was planned last */
    int32_t n_idle;    /* pages that nobody but kept prompts has */
    int32_t n_uses;    /* of kept prompts so far */
    int32_t reserved;
    size_t slot, order, page, n_users, n_keepers, free_page, last_use, copy,
        token, logp, bytes;
};

/* Sets the sizes and where each array lies; everything else is 0. */
void weft_gen_state_layout(int32_t n_slots, int32_t max_total,
                           int32_t n_pages, struct weft_gen_state *out);
/* Frees all slots and puts all pages on the stack. */
void weft_gen_state_clear(struct weft_gen_state *state);
/* Pages of the cache with which no slot ever waits for one. */
int32_t weft_gen_most_pages(int32_t n_slots, int32_t max_total);

/* What the controller reads after a chunk. */
struct weft_gen_status {
    int64_t n_decoded, n_prefilled; /* rows of this chunk */
    int64_t n_shared; /* rows not computed, as another slot's were taken */
    int32_t n_preempted;
    int32_t most_pages; /* that were in use at one time */
    int32_t n_slots, reserved;
    /* struct weft_gen_slot slot[n_slots] follow */
};
WEFT_INLINE size_t weft_gen_status_bytes(int32_t n_slots)
{
    return sizeof(struct weft_gen_status)
         + (size_t) n_slots * sizeof(struct weft_gen_slot);
}

#ifdef __cplusplus
}
#endif
#endif
