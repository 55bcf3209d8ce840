/* SPDX-License-Identifier: Apache-2.0 */
/* Of overlap.h, between its files: the state of a simulation. */
#ifndef WEFT_PLAN_FUSION_INSIDE_H
#define WEFT_PLAN_FUSION_INSIDE_H

#include "plan/fusion/overlap.h"

/* A sample on its way. */
struct weft_overlap_state {
    int32_t instance, has;
    int32_t cached; /* tokens in its instance's KV cache ... */
    int32_t ready;  /* ... when the last step began */
    int32_t common; /* of those cached, what its prompt's `held` counts */
    double ready_s; /* from when on its instance can begin it */
    double end_s;   /* -1: it has not ended */
};

/* A prompt that samples of an instance share. */
struct weft_overlap_prompt {
    int32_t kept; /* tokens that one which has ended left, where there is room
                       that nobody wants */
    int32_t held; /* tokens that samples have in common ... */
    int32_t n_uses; /* ... of which so many have not ended */
};

/* An instance; queue and active have numbers of samples. Those that are active
 * have a slot; where the memory has run out some wait there, with nothing
 * cached. */
struct weft_overlap_instance {
    double now_s;
    int32_t *active, n_active;     /* in the order in which they began */
    int32_t *queue, head, n_queue; /* head .. n_queue - 1 have not begun */
    int32_t slots;
    struct weft_overlap_prompt *prompt; /* (n_samples + 1) by number */
    double held; /* tokens cached of all, those in common once */
};

struct weft_overlap_run {
    const struct weft_overlap_job *job;
    struct weft_overlap_state *state;       /* (n_samples) */
    struct weft_overlap_instance *instance; /* (n_instances) */
    double *free_s;  /* (n_instances) from when on it can infer; -1: it still
                        generates */
    int32_t *number; /* of all instances' queues and active samples */
    struct weft_overlap_prompt *prompt; /* of all instances */
    double room;                        /* tokens that an instance can hold */
    struct weft_overlapped *out;
};

int weft_overlap_run_init(struct weft_overlap_run *run,
                          const struct weft_overlap_job *job,
                          struct weft_overlapped *out, struct weft_err *err);
void weft_overlap_run_release(struct weft_overlap_run *run);

/* Goes on with an instance until it has nothing left, or to the end of the
 * first step that ends at stop_s or later. */
void weft_overlap_generate(struct weft_overlap_run *run, int32_t instance,
                           double stop_s);
/* Puts a sample, which is in no queue, at the end of its instance's. */
void weft_overlap_queue(struct weft_overlap_run *run, int32_t sample);

/* Inference by workers that are free from free_s on; sets all_s and
 * infer_s. */
int weft_overlap_infer(struct weft_overlap_run *run, struct weft_err *err);

#endif
