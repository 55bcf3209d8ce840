/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a machine's own kernels take, measured by `weft profile` and kept as
 * JSON: for each operation (the name and the model's shape that recorded tasks
 * carry) seconds at sizes that double. The price of a task is linear between
 * these. Of operations without a model the size is bytes; of others it is rows
 * of a step, and keys that a row attends to.
 */
#ifndef WEFT_PLAN_COSTS_FILE_H
#define WEFT_PLAN_COSTS_FILE_H

#include "base/string.h"
#include "plan/cluster.h"
#include "plan/recording.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEFT_COSTS_TEXT = 128, WEFT_COSTS_MESSAGES = 16 };

/* An operation's name goes on with this where its points are of decode steps
 * that read prompts: they draw fewer tokens than they have rows. Those under the
 * name alone draw one with each row. */
#define WEFT_COSTS_READS " that reads"

/* Where something was measured. */
struct weft_costs_machine {
    char cpu[WEFT_COSTS_TEXT], kernels[WEFT_COSTS_TEXT];
    char version[WEFT_COSTS_TEXT];
    char device[WEFT_COSTS_TEXT]; /* "CPU", or which GPU */
    int32_t n_devices;            /* all of them busy */
};

/* A step of an operation. */
struct weft_cost_point {
    double n_rows, n_keys; /* keys: of a row */
    double flop, bytes, seconds;
};

struct weft_cost_op {
    char *name;
    int32_t shape; /* -1: of no model */
    struct weft_cost_point
        *point; /* (n) by rows, then by keys; or by bytes */
    int32_t n;
};

/* A message between two ranks, and how long a core of either is busy with
 * it. */
struct weft_cost_message {
    double bytes, seconds, core_s;
};

struct weft_costs_file {
    struct weft_costs_machine machine;
    /* What a device takes from the end of a task to the beginning of the next,
     * and the program to insert one; and more for each tile that the task uses
     */
    double task_s, task_tile_s, insert_s, insert_tile_s;
    /* Bytes per second of each device, all busy; 0: not measured. Of its
     * memory; of GPUs, to or from host memory, the slower way, and from one to
     * the next. */
    double memory, host, inside;
    /* between two ranks, by ascending bytes; none: not measured */
    struct weft_cost_message message[WEFT_COSTS_MESSAGES];
    int32_t n_messages;
    struct weft_rec_shape *shape;
    struct weft_cost_op *op;
    int32_t n_shapes, n_ops;
};

void weft_costs_file_release(struct weft_costs_file *file);

/* Collects what tasks of a recording took: those with ran[i].end_s > 0, of the
 * first n, but for copies from place to place, which links price. Sizes that
 * are alike become one point, their median. Copies what it takes. May be called
 * for several recordings. Errors: WEFT_ENOMEM. */
int weft_costs_file_add(struct weft_costs_file *file,
                        const struct weft_recording *r, int64_t n,
                        const struct weft_span ran[], struct weft_err *err);

/* Raises task_s to what devices took in that recording from the end of a task
 * to the beginning of the next, but for its tiles, in the median over those
 * that followed at once on a task of 0.1 ms or more: caches are cold then, as
 * in runs, which they are not where tasks do nothing. Errors: WEFT_ENOMEM. */
int weft_costs_file_turns(struct weft_costs_file *file,
                          const struct weft_recording *r, int64_t n,
                          const struct weft_span ran[], struct weft_err *err);

/* Appends it as JSON. */
void weft_costs_file_text(const struct weft_costs_file *file,
                          struct weft_string *out);
/* Reads it; `here` (NULL: any): the machine that it must be of, but for the
 * number of devices. Release it also after an error. Errors: WEFT_EFORMAT,
 * WEFT_EINVAL with a sentence that names what differs. */
int weft_costs_file_read(const char *path,
                         const struct weft_costs_machine *here,
                         struct weft_costs_file *out, struct weft_err *err);

/* Seconds of a recorded task; below 0: its operation was not measured. */
double weft_costs_file_task(const struct weft_costs_file *file,
                            const struct weft_recording *r, int64_t task);

/* Messages between two ranks; all are 0 where none was measured. Bytes per second
 * of large ones. */
double weft_costs_file_rate(const struct weft_costs_file *file);
/* Seconds of one of so many bytes, without those that the bytes take at that rate
 * and that a core is busy with it. */
double weft_costs_file_latency(const struct weft_costs_file *file,
                               double bytes);
/* Seconds that a core of either rank is busy with it. */
double weft_costs_file_core(const struct weft_costs_file *file, double bytes);

/* The machine as a cluster of nodes with so many devices: as fast as its
 * fastest task, memory and messages as its copies with all devices busy, and
 * so are the ways between GPUs and host memory, where they were measured.
 * device_bytes: of a device. */
void weft_costs_file_cluster(const struct weft_costs_file *file,
                             int32_t n_nodes, int32_t n_devices,
                             double device_bytes, struct weft_cluster *out);

#ifdef __cplusplus
}
#endif
#endif
