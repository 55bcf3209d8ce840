/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of weft_profile(). */
#ifndef WEFT_JOB_PROFILE_INSIDE_H
#define WEFT_JOB_PROFILE_INSIDE_H

#include "graphs/calls/calls.h"
#include "job/profile.h"
#include "lm/context.h"

struct weft_profile_bench {
    const struct weft_profile_options *options;
    int32_t n; /* devices that are measured: the first ones */
    struct weft_costs_file *file;
    struct weft_context *context;
    struct weft_rt *rt;
    struct weft_seq *seq;
    struct weft_recording recording;
    struct weft_span *ran;
    double start_s, part_end_s;
    double since_s;   /* when the last size began ... */
    const char *what; /* ... of this measurement */
    int32_t n_left;   /* parts of the work */
    int64_t most_rows;
    int32_t most_slots, longest;
    float mix; /* of a model that follows a trained one; 0: none does */
};

bool weft_profile_goes_on(struct weft_profile_bench *b, const char *what,
                          int64_t size);
/* Small numbers that are no zeros, whose pages would all be one. NULL is
 * allowed. */
void weft_profile_fill(struct weft_tile *tile);
/* Layers of a model that do not fit into the caches, so that tasks read memory
 * as those of the whole model do; all, where these fit. */
int32_t weft_profile_layers(const struct weft_profile_bench *b,
                            const struct weft_shape *shape);
/* The caller releases model and layout, also after an error. */
int weft_profile_model(struct weft_profile_bench *b,
                       const struct weft_shape *shape, bool trained,
                       int32_t tp, int32_t pp, struct weft_g_model *model,
                       struct weft_g_layout *layout, struct weft_err *err);

/* The same on the devices that `call` has; and its layout alone. */
int weft_profile_model_on(struct weft_profile_bench *b,
                          const struct weft_shape *shape, bool trained,
                          const struct weft_call_plan *call,
                          struct weft_g_model *model,
                          struct weft_g_layout *layout, struct weft_err *err);
int weft_profile_layout(struct weft_profile_bench *b,
                        const struct weft_shape *shape,
                        const struct weft_call_plan *call,
                        struct weft_g_layout *out, struct weft_err *err);

/* profile_train.c: micro-batches of training, if `trained`, and inference. */
int weft_profile_train(struct weft_profile_bench *b,
                       const struct weft_shape *shape, bool trained,
                       int32_t tp, struct weft_err *err);
/* profile_generate.c: decode steps by batch and context. */
int weft_profile_generate(struct weft_profile_bench *b,
                          const struct weft_shape *shape, int32_t tp,
                          int32_t pp, struct weft_err *err);
/* profile_samples.c: what is done to samples beside models. */
int weft_profile_samples(struct weft_profile_bench *b, struct weft_err *err);
/* profile_moves.c: weights of a CPU device for a GPU, which has them in another
 * order; nothing where either is missing. */
int weft_profile_moves(struct weft_profile_bench *b,
                       const struct weft_shape *shape, struct weft_err *err);
/* profile_memory.c: copies, those between GPUs and host memory, and empty
 * tasks. */
int weft_profile_memory(struct weft_profile_bench *b, struct weft_err *err);

#endif
