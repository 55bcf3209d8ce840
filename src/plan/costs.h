/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Costs: the seconds of a recorded task on a device, and what a message takes
 * on its way. They come from a cluster's description by a roofline: the larger
 * of operations by the device's speed and bytes by its memory's; or, where a
 * machine was profiled, from what its own kernels took (plan/costs_file.h). One
 * interface for search, schedules and simulation.
 *
 *     tasks      steps x task_s + layers x layer_s
 *                + max(flop / speed(rows), bytes / memory)
 *                + passes x rows x hidden x row_bytes / memory
 *     measured   task_s + tiles x task_tile_s + what its work took
 *     gangs      what a member's tasks take that its instruction stands for,
 *                and what it receives from the others; members at several
 *                places that are sent nothing read two sums in each layer
 *     messages   from place to place: links and latency; who shares a link
 *                with whom is the simulation's matter. Measured ones are as many
 *                bytes longer as a link carries while a core handles one
 *
 * Pure functions: no clock, no environment.
 */
#ifndef WEFT_PLAN_COSTS_H
#define WEFT_PLAN_COSTS_H

#include "plan/cluster.h"
#include "plan/recording.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weft_costs_file; /* plan/costs_file.h */

/* Ranks are nodes, or equal parts of nodes, of the cluster in its order. */
struct weft_costs_job {
    const struct weft_cluster *cluster;
    /* tasks as measured, where they were (plan/costs_file.h); NULL: none */
    const struct weft_costs_file *file;
    int32_t n_ranks, n_devices; /* devices of a rank */
    int32_t ranks_per_node;     /* 0: 1 */
    bool fits;                  /* or they lie as weft_cluster_rank() says */
    int32_t n_gpus;             /* of a rank: devices with a place each */
    bool place_per_device;      /* of the others too */
};

struct weft_costs;

/* Copies the job; cluster and file live as long as the costs. Errors:
 * WEFT_EINVAL, a sentence, when the cluster has too few nodes or devices;
 * WEFT_ENOMEM. */
int weft_costs_create(const struct weft_costs_job *job,
                      struct weft_costs **out, struct weft_err *err);
void weft_costs_free(struct weft_costs *costs); /* NULL is allowed */

/* Seconds of a task on a device of the job (-1: no device, as of an answer: 0).
 * Of a gang's member, it alone; what it receives included. A copy between
 * places takes its links for itself. Recordings may come in turn; one may have
 * grown since. */
double weft_costs_task(const struct weft_costs *costs,
                       const struct weft_recording *r, int64_t task,
                       int32_t device);

/* The same by what takes them. Measured seconds are of compute or memory,
 * whichever the roofline says is more. */
enum weft_cost_part {
    WEFT_COST_COMPUTE,  /* operations */
    WEFT_COST_MEMORY,   /* bytes that kernels read and write */
    WEFT_COST_MESSAGES, /* from and to other places, within the task */
    WEFT_COST_STARTS,   /* before tasks and layers begin their work */
    WEFT_N_COST_PARTS
};
void weft_costs_parts(const struct weft_costs *costs,
                      const struct weft_recording *r, int64_t task,
                      int32_t device, double out[WEFT_N_COST_PARTS]);

/* Whether the file says what a recorded task or message takes, or its links do,
 * as of copies; false: the cluster's description does. */
bool weft_costs_is_measured(const struct weft_costs *costs,
                            const struct weft_recording *r, int64_t task);

/* Seconds that the program takes to insert a task or message (>= 0), and
 * whether it ever takes any. */
double weft_costs_insert(const struct weft_costs *costs,
                         const struct weft_recording *r, int64_t task);
bool weft_costs_inserts(const struct weft_costs *costs);

/* Bytes per second of the links that messages pass, (n_links). */
const double *weft_costs_links(const struct weft_costs *costs,
                               int32_t *n_links_out);
enum { WEFT_COSTS_PATH = 4 };
/* Links from one place to another (at most WEFT_COSTS_PATH, all different),
 * and the latency; returns how many. 0: the places are one. */
int32_t weft_costs_path(const struct weft_costs *costs, int32_t from,
                        int32_t to, int32_t link[WEFT_COSTS_PATH],
                        double *latency_s_out);
/* The same of a recorded message. */
int32_t weft_costs_message(const struct weft_costs *costs,
                           const struct weft_recording *r, int64_t task,
                           int32_t link[WEFT_COSTS_PATH],
                           double *latency_s_out, double *bytes_out);
/* Seconds that a core of the sender, and one of the receiver, is busy with a
 * message; 0 where that was not measured. */
double weft_costs_message_core(const struct weft_costs *costs,
                               const struct weft_recording *r, int64_t task);

#ifdef __cplusplus
}
#endif
#endif
