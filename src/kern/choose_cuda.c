/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All products of a model, so that their algorithms are chosen before a run
 * begins. A pass of one row goes through the functions that a run calls, where
 * nothing is computed: there is no second list of products.
 */
#include "kern/blaslt_cuda.h"
#include "kern/kern_cuda.h"
#include "kern/parts.h"

/* Stands for memory that nobody reads or writes. */
#define NOWHERE ((void *) (uintptr_t) (1 << 20))

static void layer(const struct weft_shape *s, bool backward)
{
    static const struct weft_k_run run = {0, 0, 1};
    const struct weft_k_batch batch = {1, 1, &run, NOWHERE, NULL};
    struct weft_k_layer weights = {.norms = NOWHERE};
    float *grad[WEFT_MAX_BLOCKS] = {NULL};
    for (int32_t t = 0; t < s->n_blocks; t++) {
        weights.fwd[t] = weights.bwd[t] = NOWHERE;
        grad[t] = NOWHERE;
    }
    weft_k_layer_forward_cuda(NULL, s, &weights, 0, &batch, NULL, NOWHERE,
                              NOWHERE, backward ? NOWHERE : NULL, NOWHERE);
    if (backward)
        weft_k_layer_backward_cuda(NULL, s, &weights, &batch, NOWHERE,
                                   NOWHERE, NOWHERE, grad, NOWHERE, NOWHERE);
}

static void head(const struct weft_shape *s, bool generates, bool backward)
{
    static const int32_t one = 1;
    const struct weft_k_targets target = {1, NOWHERE, NOWHERE, 0, NULL};
    struct weft_k_head h = {.final = NOWHERE};
    float *grad[WEFT_MAX_BLOCKS] = {NULL};
    for (int32_t t = 0; t < s->n_blocks; t++) {
        h.fwd[t] = h.bwd[t] = NOWHERE;
        grad[t] = NOWHERE;
    }
    if (generates)
        weft_k_head_logits_cuda(NULL, s, weft_all_blocks(s), &h, 1, NOWHERE,
                                NOWHERE, NOWHERE, NOWHERE);
    else
        weft_k_head_logprob_cuda(NULL, s, &h, NOWHERE, &target, 1, NOWHERE,
                                 NULL, NULL, NOWHERE);
    if (backward)
        weft_k_head_backward_cuda(NULL, s, &h, 1, NOWHERE, &target, 1, &one,
                                  1, NOWHERE, NULL, NOWHERE, NULL, NOWHERE,
                                  grad, NOWHERE, NOWHERE);
}

int weft_k_choose_products_cuda(const struct weft_shape *s, bool generates,
                                bool backward, struct weft_err *err)
{
    weft_blaslt_choose(true);
    layer(s, backward);
    if (!s->scalar_head)
        head(s, generates, backward);
    weft_blaslt_choose(false);
    return weft_k_products_error_cuda(err);
}
