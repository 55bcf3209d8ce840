/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a scheduling policy of ours is to the runtime, and what it finds in a
 * task: for the rooms rt and sched.
 */
#ifndef WEFT_RT_POLICY_H
#define WEFT_RT_POLICY_H

#include <starpu.h>
#include <stdbool.h>
#include <stdint.h>

#include "plan/task.h"

/* A ready task; task->sched_data points at it (NULL for tasks that are not
 * Weft's). child and sibling belong to the policy. */
struct weft_node {
    struct weft_node *child, *sibling;
    struct starpu_task *task;
    struct weft_gates *gates;
    const struct weft_where *where;
    int64_t order; /* of insertion */
};

/* Strict order: the tasks of a (device, chain) pass one after the other. */
struct weft_gate {
    int64_t next;              /* position that may pass */
    struct weft_node *waiting; /* ready, but not their turn; the policy's */
};

/* All gates of a sequence; guarded by the policy's lock. `open`: after an
 * error bodies do nothing, so nobody needs to wait for his turn. */
struct weft_gates {
    bool open;
    int n_devices, first_device; /* as people count the first */
    struct weft_gate gate[];     /* (n_devices, WEFT_N_CHAINS) */
};

struct weft_policy {
    struct starpu_sched_policy *starpu;
    /* Before starpu_init(). Device d is StarPU's worker d. nap: idle workers
     * sleep; spin_us: but not before so long. */
    void (*configure)(int n_devices, bool nap, int spin_us);
    /* No turns from now on; whoever waits becomes ready. */
    void (*open)(struct weft_gates *gates);
    /* Positions start at 1 again; no task of the sequence is left. */
    void (*reset)(struct weft_gates *gates);
    /* One line about tasks that wait for their turn; "" when none does. */
    void (*describe)(struct weft_gates *gates, char *text, size_t size);
};

#endif
