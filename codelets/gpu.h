/* SPDX-License-Identifier: Apache-2.0 */
/* What bodies at GPUs share. */
#ifndef WEFT_CODELETS_GPU_H
#define WEFT_CODELETS_GPU_H

#include "codelets/data.h"
#include "kern/kern_cuda.h"
#include "rt/codelet.h"

/* The end of a body that made products: the code of their first error. */
WEFT_INLINE int weft_gpu_end(struct weft_exec *x)
{
    return weft_k_products_error_cuda(weft_exec_err(x));
}

/* The code of the error that is written. */
WEFT_INLINE int weft_gpu_failed(struct weft_exec *x)
{
    return weft_exec_err(x)->code;
}

/* A batch lies in pinned memory, where each read of a kernel goes over PCIe,
 * also of what another block has read before. So what several blocks read, or
 * one more than once, is copied to the GPU, once for a task. This takes the
 * task's scratch memory: room for the copy, of the batch's arrays before the
 * one at offset `end`, and behind it `bytes` more (scratch_out NULL: 0), and
 * puts copying on the stream. The copy is for weft_batch_at() alone, with the
 * offsets of b. NULL: an error is written. */
const struct weft_batch *weft_gpu_batch(struct weft_exec *x,
                                        const struct weft_batch *b,
                                        size_t end, size_t bytes,
                                        void **scratch_out);
/* The tokens of an embedding's task, on the GPU. It has no other scratch. */
WEFT_INLINE const int32_t *weft_gpu_tokens(struct weft_exec *x,
                                           const struct weft_batch *b)
{
    const struct weft_batch *copy = weft_gpu_batch(x, b, b->run_targets, 0,
                                                   NULL);
    return copy ? weft_batch_at(copy, b->token) : NULL;
}
/* The scratch memory of a head's task, whose targets are then on the GPU. */
WEFT_INLINE void *weft_gpu_head_scratch(struct weft_exec *x,
                                        const struct weft_batch *b,
                                        size_t bytes,
                                        struct weft_k_targets *targets)
{
    void *scratch;
    const struct weft_batch *copy = weft_gpu_batch(x, b, b->weight, bytes,
                                                   &scratch);
    if (!copy)
        return NULL;
    targets->row = weft_batch_at(copy, b->row);
    targets->target = weft_batch_at(copy, b->target);
    return scratch;
}
/* The scratch memory of a layer's task. kv: its cache, whose pages are then
 * on the GPU; NULL: it has none. */
WEFT_INLINE void *weft_gpu_layer_scratch(struct weft_exec *x,
                                         const struct weft_batch *b,
                                         size_t bytes, struct weft_k_kv *kv)
{
    void *scratch;
    if (!kv)
        return weft_exec_scratch_gpu(x, bytes);
    const struct weft_batch *copy = weft_gpu_batch(x, b, b->copy, bytes,
                                                   &scratch);
    if (!copy)
        return NULL;
    kv->page = weft_batch_at(copy, b->page);
    return scratch;
}

#endif
