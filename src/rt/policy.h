/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface between the runtime and Weft's own scheduling policies, for
 * the rooms rt and sched.
 */
#ifndef WEFT_RT_POLICY_H
#define WEFT_RT_POLICY_H

#include <starpu.h>
#include <stdbool.h>
#include <stdint.h>

#include "plan/task.h"

enum { WEFT_GANG_MEMBERS = 32 }; /* at most */

/* Tasks that begin together, each on a device of its own. Guarded by the
 * policy's lock. */
struct weft_gang {
    int n, n_ready;
    bool apart; /* after an error they need not begin together */
    struct weft_node *member[WEFT_GANG_MEMBERS]; /* those that are ready */
    struct weft_gang *next, **here; /* in the list of its gates */
};

/* A ready task; task->sched_data points at it (NULL for tasks that are not
 * Weft's). child and sibling belong to the policy. */
struct weft_node {
    struct weft_node *child, *sibling;
    struct starpu_task *task;
    struct weft_gates *gates;
    const struct weft_where *where;
    struct weft_gang *gang; /* NULL: none */
    int64_t order;          /* of insertion */
};

/* Keeps the strict order of one chain of a device: its tasks pass the gate one
 * after the other. */
struct weft_gate {
    int64_t next; /* position of the task that may pass next */
    /* ready tasks whose turn has not come; belongs to the policy */
    struct weft_node *waiting;
};

/* All gates of a sequence; guarded by the policy's lock. `open`: after an
 * error bodies do nothing, so nobody needs to wait for his turn. */
struct weft_gates {
    bool open;
    /* number of the first device in the whole job, for messages */
    int n_devices, first_device;
    struct weft_gang *forming; /* of which some members are ready, not all */
    struct weft_gate gate[];   /* (n_devices, WEFT_N_CHAINS) */
};

struct weft_policy {
    struct starpu_sched_policy *starpu;
    /* Called before starpu_init(). Device d is StarPU's worker d. Idle workers
     * sleep after they have spun for spin_us. */
    void (*configure)(int n_devices, int spin_us);
    /* Opens all gates: turns no longer count, and tasks that wait for theirs
     * become ready. */
    void (*open)(struct weft_gates *gates);
    /* Lets positions start at 1 again; called when no task of the sequence is
     * left. */
    void (*reset)(struct weft_gates *gates);
    /* Writes a line about tasks that wait for their turn; "" when none
     * does. */
    void (*describe)(struct weft_gates *gates, char *text, size_t size);
};

#endif
