/* SPDX-License-Identifier: Apache-2.0 */
/* The process's runtime: kernels, StarPU, memory limit. */
#ifndef WEFT_LM_CONTEXT_H
#define WEFT_LM_CONTEXT_H

#include "rt/graph.h"

struct weft_context_options {
    struct weft_rt_options rt;
    const char *isa; /* NULL: the best of this CPU */
};

struct weft_context {
    struct weft_rt *rt;
    struct weft_seq *seq; /* for models that weft_model_open() opens */
};

/* weft_context_open() of weft.h with all options. */
int weft_context_open_with(const struct weft_context_options *options,
                           struct weft_context **out, struct weft_err *err);

/* Waits for the sequence's tasks, also when rc is an error. Returns rc,
 * without changing `err`, if it is an error, else the sequence's own error. */
int weft_context_wait(struct weft_seq *seq, int rc, struct weft_err *err);

#endif
