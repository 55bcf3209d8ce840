/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode steps of a stage at a GPU's place: what they have in its memory, and
 * how they are put on its stream. A task has one (gen_stage.c); of a model's
 * only stage it has a chunk of them (gen_chunk_gpu.c).
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

struct weft_gen_gpu {
    const struct weft_shape *shape;
    const struct weft_gen_args *gen;
    int32_t n_slots;
    struct weft_gang_weights weights; /* with the stage's layers */
    struct weft_k_kv kv;              /* its arena; the rest is filled in */
    /* (steps) as they were planned, struct weft_batch, each of so many bytes */
    const char *step;
    size_t step_bytes;
    /* (rows, H) what passes from stage to stage; NULL: the model has one */
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

/* Completes what the caller filled in, up to `passed`. Errors: WEFT_ENOMEM. */
int weft_gen_gpu_open(struct weft_gen_gpu *g, struct weft_exec *x);

WEFT_INLINE const struct weft_batch *weft_gen_gpu_step(
    const struct weft_gen_gpu *g, int32_t i)
{
    return (const void *) (g->step + (size_t) i * g->step_bytes);
}

/* Puts planned steps before `end` on the stream, which have rows: one, or
 * several of the first one's launch rows (weft_gen_launch_rows()), of which
 * none but the first copies pages. */
void weft_gen_gpu_put(struct weft_gen_gpu *g, int32_t first, int32_t end);
/* Puts copying what they have drawn, (steps, n_slots), to pinned memory behind
 * them. */
void weft_gen_gpu_get(const struct weft_gen_gpu *g, int32_t first,
                      int32_t end, int32_t *token, float *logp);

#endif
