/* SPDX-License-Identifier: Apache-2.0 */
/* What a body may use while it runs: its error and its scratch memory. */
#include "rt/internal.h"

#include "base/alloc.h"

/* Header of a block that is allocated when the kept one is used up; it has 64
 * bytes, and the data follow. */
struct weft_more {
    struct weft_more *next;
    char pad[64 - sizeof(struct weft_more *)];
};

/* Names the memory of a card that its worker's bodies have, one at a time. */
enum { SCRATCH = 1 };

struct weft_err *weft_exec_err(struct weft_exec *x)
{
    return &x->err;
}

void weft_exec_at_end(struct weft_exec *x, weft_body_fn check)
{
    x->at_end = check;
}

void *weft_exec_scratch(struct weft_exec *x, size_t bytes)
{
    if (bytes > (size_t) 1 << 47) { /* no machine has it */
        weft_err_nomem(&x->err, "scratch memory", bytes);
        return NULL;
    }
    size_t rounded = (bytes + 63) / 64 * 64;
    size_t before = x->scratch_used;
    /* the first request decides how large the kept block is */
    if (!x->scratch && before == 0) {
        x->scratch = weft_alloc_aligned(rounded ? rounded : 64, 1);
        if (x->scratch)
            x->scratch_bytes = rounded ? rounded : 64;
    }
    if (x->scratch && !x->more && rounded <= x->scratch_bytes - before) {
        x->scratch_used += rounded;
        return x->scratch + before;
    }
    struct weft_more *more = weft_alloc_aligned(
        rounded + sizeof(struct weft_more), 1);
    if (!more) {
        weft_err_nomem(&x->err, "scratch memory", bytes);
        return NULL;
    }
    more->next = x->more;
    x->more = more;
    x->scratch_used += rounded;
    return more + 1;
}

void *weft_exec_scratch_gpu(struct weft_exec *x, size_t bytes)
{
    weft_assert(x->card && !x->gpu_block);
    x->gpu_need = (struct weft_need){.bytes = bytes ? bytes : 64,
                                     .c = WEFT_MEM_ACTIVATIONS,
                                     .place = (int) (x->card - x->rt->card),
                                     .name = SCRATCH};
    x->gpu_block = weft_pool_get(x->card->pool, &x->gpu_need);
    if (!x->gpu_block)
        weft_pool_refuse(x->card->pool, &x->gpu_need, "scratch memory",
                         &x->err);
    return x->gpu_block;
}

void weft_exec_empty(struct weft_exec *x)
{
    x->gpu_need.after = x->on_stream + 1;
    if (x->gpu_block)
        weft_pool_put(x->card->pool, &x->gpu_need, x->gpu_block);
    x->gpu_block = NULL;
    if (x->more) {
        while (x->more) {
            struct weft_more *next = x->more->next;
            weft_free(x->more);
            x->more = next;
        }
        /* The next body gets a kept block that has room for all of this. */
        weft_free(x->scratch);
        x->scratch = weft_alloc_aligned(x->scratch_used, 1);
        x->scratch_bytes = x->scratch ? x->scratch_used : 0;
    }
}

void weft_exec_clear(struct weft_exec *x)
{
    weft_exec_reset(x);
    weft_free(x->scratch);
    x->scratch = NULL;
    x->scratch_bytes = 0;
}
