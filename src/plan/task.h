/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a task carries beside its data: the model function call it belongs
 * to, and where and when it runs. Written by graphs, read by the scheduling
 * policy and the simulator; never part of the numbers.
 */
#ifndef WEFT_PLAN_TASK_H
#define WEFT_PLAN_TASK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weft_shape; /* base/shape.h */

/* Calls of a dataflow graph (plan/dataflow.h) at most. They are numbered from
 * 1 on; 0 is no call. */
enum { WEFT_MAX_CALLS = 32 };

/* Memory classes of the plan; accounted separately. */
enum weft_mem_class {
    WEFT_MEM_WEIGHTS,
    WEFT_MEM_GRADIENTS,
    WEFT_MEM_OPTIMIZER,
    WEFT_MEM_KV,
    WEFT_MEM_ACTIVATIONS,
    WEFT_MEM_SAMPLES, /* tokens, log-probs, values, metrics */
    WEFT_MEM_TASKS,   /* records of tasks that have not ended */
    WEFT_MEM_HOST,    /* weights and optimizer states that are offloaded */
    WEFT_N_MEM_CLASSES
};
/* Index of the sum where bytes are given by class. */
enum { WEFT_MEM_ALL = WEFT_N_MEM_CLASSES };

const char *weft_mem_class_name(enum weft_mem_class c); /* "weights", ... */
/* Whether a class is part of a place's memory: of the sum of all classes, and
 * of what a limit bounds. The host's copies lie beside it. */
bool weft_mem_class_at_place(enum weft_mem_class c);
/* Whether tiles of a class lie in host memory at the place of a GPU too, which
 * then reads and writes them there: what host code reads, such as sizes,
 * tokens, page tables, statistics, is never in a GPU's memory. */
bool weft_mem_class_on_host(enum weft_mem_class c);

/* Of a device: two for training, then those of inference calls, then those of
 * the instances that generate. */
enum {
    WEFT_CHAIN_INFER = 2,
    WEFT_N_INFER_CHAINS = 6,
    WEFT_CHAIN_GENERATE = WEFT_CHAIN_INFER + WEFT_N_INFER_CHAINS,
    WEFT_N_CHAINS = WEFT_CHAIN_GENERATE + 8
};

/* The rows of a micro-batch or of a decode step, for costs; all 0: not
 * known. */
struct weft_work_rows {
    int32_t n_rows, n_targets; /* tokens; of these, rows of the head */
    /* keys that the rows attend to, themselves included, added up; of these,
     * read from KV caches, where a run's rows read them once */
    int64_t n_keys, n_cached;
};

/* Adds a run of n rows of a text of which `cached` tokens are cached. */
WEFT_INLINE void weft_work_rows_add(struct weft_work_rows *rows,
                                    int64_t cached, int32_t n)
{
    rows->n_rows += n;
    rows->n_keys += n * cached + (int64_t) n * (n + 1) / 2;
    rows->n_cached += cached;
}

/* What a task does, for costs. All 0: it reads and writes its tiles. */
struct weft_work {
    const struct weft_shape *shape; /* of the model; NULL: of none */
    int32_t n_blocks;               /* of its tensor blocks */
    int32_t n_steps; /* the task does so many steps one after another; 0: 1 */
    int32_t n_layers; /* of the model, in each step */
    /* through a layer's norms, residual sums and activation functions, in each
     * step: a forward pass is one, a backward one counts two */
    int32_t n_passes;
    int64_t n_rows; /* of all steps: tokens, or targets of a head */
    int64_t n_keys;
    double flop;  /* multiplication and addition are two */
    double bytes; /* read and written, beside those of its tiles: each counts
                     once, twice if it is updated, and a KV cache not */
    bool is_all;  /* its tiles' bytes do not count */
    /* of a gang's member, in all steps: bytes that it reads where the others
     * have left them, and how often it waits for them */
    double received;
    int32_t n_received;
};

/* When something ran, in seconds; end_s 0: it has not. */
struct weft_span {
    double start_s, end_s;
};

/* Of inference each call can have a priority of its own. */
enum { WEFT_PRIORITY_TURNS = WEFT_MAX_CALLS };

/* Which calls' tasks come first on devices that they share. All that follows
 * waits for generation, and that for the policy's training. An iteration's
 * training waits for its inference: where this came later on a device, another
 * one would wait for it with nothing to do. But the training before comes first,
 * as a part of the inference waits for it and the rest need not be the first to
 * end. */
enum weft_priority {
    WEFT_PRIORITY_RESTORE = -1, /* of offloaded weights */
    WEFT_PRIORITY_INFER_AHEAD,  /* beside the training before; and whatever
                                    has no other */
    WEFT_PRIORITY_TRAIN = WEFT_PRIORITY_INFER_AHEAD + WEFT_PRIORITY_TURNS,
    WEFT_PRIORITY_TRAIN_POLICY,
    WEFT_PRIORITY_INFER,
    WEFT_PRIORITY_GENERATE = WEFT_PRIORITY_INFER + WEFT_PRIORITY_TURNS,
    WEFT_PRIORITY_STEP,  /* begins a step of generation, which is little work:
                           its stages wait for it, on other devices */
    WEFT_PRIORITY_SAMPLE /* leaves generation, changes its instance, or is made
                            ready for training: little work that others, on
                            other devices, wait for */
};

struct weft_where {
    int device;       /* 0..n_devices-1, -1: any */
    int priority;     /* higher first among ready tasks of a lane */
    int64_t position; /* >= 1: strict order on the device; 0: none.
                           Positions of a (device, chain) start at 1 after
                           each weft_seq_wait() and have no gaps. */
    int32_t chain;    /* 0..WEFT_N_CHAINS-1: positions of several chains
                           on a device are independent */
    int32_t call;     /* number in the dataflow graph; 0: of none */
    int32_t iteration, micro_batch, layer; /* for traces; -1: none */
    bool restores; /* brings offloaded weights back: its time is no part of
                      its call's, but counted beside it */
    bool moves; /* brings weights, samples or KV caches to where they are used
                   next, from another layout, instance or memory; what members
                   of a tp group, or stages, exchange is none of it */
    struct weft_span *span; /* widened to hold the task's time, on the clock
                               of weft_rt_times(); lives until the next wait.
                               NULL: nobody asks */
};

#ifdef __cplusplus
}
#endif
#endif
