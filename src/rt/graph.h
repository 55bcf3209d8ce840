/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The task graph: start-up, sequences and the one insert contract.
 *
 * Tasks are inserted in program order; a task waits for earlier tasks that
 * write what it reads, or read what it writes. Where it runs and in what
 * order among the ready ones is said by struct weft_where (plan/task.h), never
 * by the data.
 *
 * Errors: the first task body that fails records its sentence in the sequence;
 * later bodies of the sequence become no-ops, and weft_seq_wait() returns it.
 *
 * This header is free of StarPU.
 */
#ifndef WEFT_RT_GRAPH_H
#define WEFT_RT_GRAPH_H

#include "plan/task.h"
#include "rt/tile.h"

/* ---- Start and stop --------------------------------------------------- */

struct weft_policy; /* sched/sched.h */

/* What a run may ask for; a StarPU built with a smaller maxcpus has less. */
enum { WEFT_MAX_DEVICES = 64 };

struct weft_rt_options {
    int n_devices; /* CPU devices (workers); 0: one per core */
    const struct weft_policy *policy; /* NULL: StarPU's "prio", which knows
                             devices and priorities but no positions */
    int nap;             /* idle workers sleep: 1, spin: 0, -1: decide */
    bool profile;        /* keep task records for traces and timings */
    const char *fxt_dir; /* StarPU's own trace: weft_rt_stop() leaves
                             paje.trace there (rt/fxt.h); NULL: no */
    double watchdog_s;   /* report when nothing moves for so long; 0: off */
    size_t memory_limit_bytes; /* of all tiles; 0: what the machine has */
};

/* Starts StarPU in this process (one runtime per process). Errors: absurd
 * device count, several MPI ranks, StarPU that does not start. */
int weft_rt_start(const struct weft_rt_options *options, struct weft_rt **out,
                  struct weft_err *err);
/* Waits for all tasks, stops StarPU, frees; sequences and tiles that are left
 * go too, answers that never came are zeros. NULL is allowed. */
void weft_rt_stop(struct weft_rt *rt);

int weft_rt_n_devices(const struct weft_rt *rt);
/* The most devices of this StarPU: WEFT_MAX_DEVICES or fewer. */
int weft_rt_max_devices(void);

/* ---- Sequences -------------------------------------------------------- */

struct weft_seq;

int weft_seq_create(struct weft_rt *rt, struct weft_seq **out,
                    struct weft_err *err);
/* Waits for the sequence's tasks, so answers from outside must have come.
 * NULL is allowed. */
void weft_seq_free(struct weft_seq *seq);

/* Waits for all tasks inserted so far; returns 0 or the first error, whose
 * sentence names operation and tile. The error is told once: the sequence
 * can be used again afterwards. */
int weft_seq_wait(struct weft_seq *seq, struct weft_err *err);

/* 0, or the code of the first error so far. Does not wait. */
int weft_seq_status(struct weft_seq *seq, struct weft_err *err);

/* Records an error from outside of tasks (first wins). */
void weft_seq_fail(struct weft_seq *seq, int code, const char *fmt, ...)
    WEFT_PRINTF(3, 4);

/* ---- Inserting -------------------------------------------------------- */

struct weft_codelet; /* an operation; see codelets/ */

struct weft_access {
    struct weft_tile *tile;
    enum weft_mode mode;
};

const char *weft_call_name(enum weft_call call); /* "actor_generate", ... */

/* Inserts one task; `args` is copied. Does not wait for the task. On errors
 * (memory) the sequence is failed, so callers need not check each insert. */
void weft_insert(struct weft_seq *seq, const struct weft_codelet *codelet,
                 const void *args, size_t args_bytes,
                 const struct weft_access *access, int n_access,
                 const struct weft_where *where);

/* ---- Answers from outside --------------------------------------------- */

/* A tile that the program fills when an answer arrives: tasks inserted later
 * that read it wait until weft_external_complete(); no worker is occupied. */
struct weft_external;
int weft_external_begin(struct weft_seq *seq, struct weft_tile *tile,
                        const struct weft_where *where,
                        struct weft_external **out, struct weft_err *err);
/* Copies `bytes` of `data` into the tile and lets its readers run; frees. */
void weft_external_complete(struct weft_external *external, const void *data,
                            size_t bytes);

/* ---- What ran --------------------------------------------------------- */

struct weft_call_time {
    int64_t n_tasks;
    double busy_s;          /* sum over tasks and devices */
    double first_s, last_s; /* since weft_rt_start */
};
/* Totals of tasks ended since the last weft_rt_times_reset(); needs
 * options.profile. */
void weft_rt_times(struct weft_rt *rt, enum weft_call call,
                   struct weft_call_time *out);
void weft_rt_times_reset(struct weft_rt *rt);

/* Chrome/Perfetto trace of the records kept (a bounded number: the latest). */
int weft_rt_write_trace(struct weft_rt *rt, const char *path,
                        struct weft_err *err);

#endif
