/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode steps of a stage at a GPU's place: what they have in its memory, and
 * how they are put on its stream. A task has one (gen_stage.c); where the GPU
 * has the whole model it has a chunk of them (gen_chunk_gpu.c). The members of
 * a tp group have one each (gen_group_gpu.c).
 *
 * Steps in which every text has one row are CUDA graphs: of as many rows as
 * there are, or a few more that are no text's, and where several follow one
 * another a loop. Everything in a graph has a fixed address; what differs from
 * step to step is copied there and from there, of a loop by a number of the
 * step that the GPU counts on.
 */
#ifndef WEFT_CODELETS_GEN_GPU_H
#define WEFT_CODELETS_GEN_GPU_H

#include "codelets/gen.h"
#include "codelets/gpu.h"

/* What a member of a tp group has in its GPU's memory for the others. NULL:
 * what its stage does not do. */
struct weft_gen_exchange {
    struct weft_k_meetings *meetings;
    float *embedded; /* (rows, H) its tokens' rows */
    /* (roots, rows, H) of the two sums of a layer; of two, as a slow member may
     * still read those of one when others write the next one's */
    float *roots[2];
    float *joined; /* (rows, H) its rows of a sum that is shared */
    float *logits; /* (n_slots, V) its columns */
};

struct weft_gen_group {
    int32_t n, k; /* members; which this is. 1: the GPU has all blocks */
    const struct weft_range *range; /* (n) */
    struct weft_gen_exchange of[WEFT_MAX_BLOCKS];
    struct weft_k_group meetings;
};

struct weft_gen_gpu {
    const struct weft_shape *shape;
    const struct weft_gen_args *gen;
    int32_t n_slots;
    bool has_chunk; /* its steps follow one another without the host */
    struct weft_range range; /* its blocks */
    struct weft_gen_group group;
    struct weft_gang_weights weights; /* with the stage's layers */
    struct weft_k_kv kv;              /* its arena; the rest is filled in */
    /* (steps) as they were planned, struct weft_batch, each of so many bytes */
    const char *step;
    size_t step_bytes;
    /* (rows, H) what passes from stage to stage, the first member's; NULL: the
     * model has one */
    float *passed;
    struct CUstream_st *stream;
    uint64_t key;   /* of what graphs depend on */
    uint64_t again; /* of the loop that is captured, or 0 */
    bool has_failed;
    /* on the GPU */
    struct weft_k_steps *steps;
    struct weft_batch *batch; /* a copy of the present step's */
    float *x;                 /* (rows, H) */
    /* in the last stage: what is drawn, of the present step (n_slots) and of
     * all (steps, n_slots) */
    float *logits; /* (n_slots, V) */
    int32_t *token, *tokens;
    float *logp, *logps;
    void *sampling, *scratch;
};

WEFT_INLINE const struct weft_batch *weft_gen_gpu_step(
    const struct weft_gen_gpu *g, int32_t i)
{
    return (const void *) (g->step + (size_t) i * g->step_bytes);
}

/* Completes what the caller filled in, up to `passed`. Errors: WEFT_ENOMEM. */
int weft_gen_gpu_open(struct weft_gen_gpu *g, struct weft_exec *x);
/* Finds the members' memory for one another, which begins there and is for so
 * many rows; before weft_gen_gpu_open(). */
void weft_gen_group_open(struct weft_gen_gpu *g,
                         const struct weft_gang_ranges *members, int32_t k,
                         int32_t most_rows, void *const exchange[]);
/* Does what weft_gen_gpu_put() may otherwise do in between: it chooses
 * products, which waits for the GPU, and makes the graph of a step without a
 * chunk if it is to be made now. Errors: of products. */
int weft_gen_gpu_prepare(struct weft_gen_gpu *g, int32_t step,
                         struct weft_exec *x);

/* Whether the step of a task without a chunk has no rows. */
WEFT_INLINE bool weft_gen_gpu_is_idle(const struct weft_gen_gpu *g)
{
    return weft_gen_gpu_step(g, 0)->n_rows == 0;
}

/* Puts planned steps before `end` on the stream, which have rows: one, or
 * several of the first one's launch rows (weft_gen_launch_rows()), of which
 * none but the first copies pages. */
void weft_gen_gpu_put(struct weft_gen_gpu *g, int32_t first, int32_t end);
/* Puts copying what they have drawn, (steps, n_slots), to pinned memory behind
 * them. */
void weft_gen_gpu_get(const struct weft_gen_gpu *g, int32_t first,
                      int32_t end, int32_t *token, float *logp);
/* The same of a task without a chunk, drawn: weft_gen_drawn_bytes(). */
void weft_gen_gpu_get_step(const struct weft_gen_gpu *g, int32_t *drawn);

/* What a member puts on its stream where a GPU with all blocks does the same
 * alone: the embedding, a layer of the stage, and logits of rows (n) of x,
 * which the first member then has whole. */
void weft_gen_group_embed(const struct weft_gen_gpu *g,
                          const struct weft_k_batch *batch);
void weft_gen_group_layer(const struct weft_gen_gpu *g,
                          const struct weft_k_layer *weights, int32_t layer,
                          const struct weft_k_batch *batch);
void weft_gen_group_logits(const struct weft_gen_gpu *g, int32_t n,
                           const int32_t *row);
/* Behind all that a member puts there: where a launch has failed, the others do
 * not wait for it. */
void weft_gen_group_close(const struct weft_gen_gpu *g);

#endif
