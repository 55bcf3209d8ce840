/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode steps of a stage at a GPU's place: what they have in its memory, and
 * how they are put on its stream. A task has one (gen_stage.c); where the model
 * has no other stage it has a chunk of them (gen_chunk_gpu.c). The members of a
 * tp group have such a task each (gen_group_gpu.c).
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
    int32_t *token; /* (n_slots) the first member's: what a step has drawn */
    float *logp;
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

/* Whether its steps follow one another without the host: the model has no other
 * stage. */
WEFT_INLINE bool weft_gen_gpu_has_chunk(const struct weft_gen_gpu *g)
{
    return g->weights.layers.is_first && g->weights.layers.is_last;
}

WEFT_INLINE const struct weft_batch *weft_gen_gpu_step(
    const struct weft_gen_gpu *g, int32_t i)
{
    return (const void *) (g->step + (size_t) i * g->step_bytes);
}

/* What members tell one another, in their scratch memory; of all but `exchange`
 * the first one's holds. */
struct weft_gen_told {
    void *exchange;   /* weft_gen_exchange_bytes(); NULL: it is alone */
    const char *step; /* weft_gen_gpu.step and so on */
    size_t step_bytes;
    float *passed;
    int32_t n_slots;
    int32_t first, end; /* the steps of a chunk that all put next */
};
/* Completes shape, gen, range and what the member tells by what the others do,
 * also where there are none. Returns what the first one has told; NULL: a
 * member has failed, or *rc says what. */
struct weft_gen_told *weft_gen_gpu_tell(
    struct weft_gen_gpu *g, const struct weft_gang_ranges *members,
    const struct weft_gen_told *mine, struct weft_exec *x, int *rc);
/* Then the rest. Errors: WEFT_ENOMEM. */
int weft_gen_gpu_open(struct weft_gen_gpu *g, struct weft_exec *x);
/* Does what may keep others waiting before the same weft_gen_gpu_put(): chooses
 * products, which waits for the GPU, and makes the steps' graph, if it is to be
 * made. Errors: of products. */
int weft_gen_gpu_prepare(struct weft_gen_gpu *g, int32_t first,
                         struct weft_exec *x);
/* Whether steps like this one can be a graph: one has run without. */
bool weft_gen_gpu_has_run(const struct weft_gen_gpu *g, int32_t step);

/* Whether the step of a task without a chunk has no rows. */
WEFT_INLINE bool weft_gen_gpu_is_idle(const struct weft_gen_gpu *g)
{
    return weft_gen_gpu_step(g, 0)->n_rows == 0;
}

/* Puts planned steps before `end` on the stream, which have rows: one, or
 * several of the first one's launch rows (weft_gen_launch_rows()), of which
 * none but the first copies pages. */
void weft_gen_gpu_put(struct weft_gen_gpu *g, int32_t first, int32_t end);
/* Puts copying what they have drawn, (steps, n_slots), and whether the group
 * has failed, to pinned memory behind them. */
void weft_gen_gpu_get(const struct weft_gen_gpu *g, int32_t first,
                      int32_t end, int32_t *token, float *logp,
                      int32_t *has_failed);
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
/* Behind what the first member has drawn: the others may read it. */
void weft_gen_group_meet(const struct weft_gen_gpu *g);
/* Behind all that a member puts there: where a launch has failed, the others do
 * not wait for it. */
void weft_gen_group_close(const struct weft_gen_gpu *g);
/* All members meet before they launch, and when all have; in between the GPUs
 * are held (weft_exec_hold_gpus()), if there are several. false: a member has
 * failed, and then they are not. */
bool weft_gen_group_begin(const struct weft_gen_gpu *g, struct weft_exec *x);
bool weft_gen_group_end(const struct weft_gen_gpu *g, struct weft_exec *x);

#endif
