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
 * Several ranks (processes of one MPI job; each is a node with D devices) run
 * the same program: every rank inserts every task, and the runtime executes
 * those of its own devices. Devices are numbered over the whole job, rank r
 * has r * D .. r * D + D - 1. What says "collective" must be called by every
 * rank, in the same order.
 *
 * This header is free of StarPU and MPI.
 */
#ifndef WEFT_RT_GRAPH_H
#define WEFT_RT_GRAPH_H

#include "plan/task.h"
#include "rt/tile.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The job; weft.h has more of it ------------------------------------ */

/* That rank's bytes to all. Collective. */
void weft_world_share_from(int rank, void *data, size_t bytes);
/* Prints the sentence and ends all processes of the job with exit code 1, for
 * failures that leave the ranks out of step. Does not return. */
WEFT_NORETURN void weft_world_abort(const struct weft_err *err);

/* ---- Start and stop --------------------------------------------------- */

struct weft_policy; /* sched/sched.h */

/* What a run may ask for; a StarPU built with a smaller maxcpus has less. */
enum { WEFT_MAX_DEVICES = 64 };

struct weft_rt_options {
    int n_devices; /* CPU devices (workers) of a rank; 0: one per core */
    bool place_per_device;            /* see "Places" in rt/tile.h */
    const struct weft_policy *policy; /* NULL: StarPU's "prio", which knows
                             devices and priorities but no positions */
    int nap;             /* idle workers sleep: 1, spin: 0, -1: decide */
    bool profile;        /* keep task records for traces and timings */
    const char *fxt_dir; /* StarPU's own trace: weft_rt_stop() leaves
                             paje.trace there (rt/fxt.h); NULL: no */
    bool check_modes;    /* tests: an error when a body writes what it was
                             given to read; what it is given to write alone
                             holds NaN before (rt/modes.c) */
    double watchdog_s;   /* report when nothing moves for so long; 0: off */
    size_t memory_limit_bytes; /* of all tiles; 0: what the machine has */
};

/* Starts StarPU in this process (one runtime per process), and StarPU-MPI
 * with several ranks. Collective. Errors: absurd device count, ranks with
 * different numbers of devices, StarPU that does not start. */
int weft_rt_start(const struct weft_rt_options *options, struct weft_rt **out,
                  struct weft_err *err);
/* Waits for all tasks, stops StarPU, frees; sequences and tiles that are left
 * go too, answers that never came are zeros. NULL is allowed. Collective. */
void weft_rt_stop(struct weft_rt *rt);

/* Ends StarPU's own trace (fxt_dir) before the runtime stops; once is enough,
 * and without a trace nothing happens. */
void weft_rt_fxt_stop(struct weft_rt *rt);
/* StarPU-MPI can sleep while it waits, as ranks that share cores need it. */
bool weft_rt_messages_nap(void);

int weft_rt_n_devices(const struct weft_rt *rt); /* of all ranks */
int weft_rt_devices_per_rank(const struct weft_rt *rt);
/* The most devices of this StarPU: WEFT_MAX_DEVICES or fewer. */
int weft_rt_max_devices(void);

/* ---- Sequences -------------------------------------------------------- */

struct weft_seq;

int weft_seq_create(struct weft_rt *rt, struct weft_seq **out,
                    struct weft_err *err);
/* Waits for this rank's tasks and transfers, so answers from outside must
 * have come. NULL is allowed. */
void weft_seq_free(struct weft_seq *seq);

/* Waits for all tasks and transfers inserted so far; returns 0 or the first
 * error of any rank (of what was inserted first), whose sentence names operation and
 * tile, on all ranks. The error is told once: the sequence can be used again
 * afterwards. Collective. */
int weft_seq_wait(struct weft_seq *seq, struct weft_err *err);

/* Lots: what this rank inserts from here on until the next call is one lot,
 * so that a few lots, not all tasks, are held at a time. Returns its number;
 * there are WEFT_LOTS at a time, and the call waits for the one of so many
 * before. Local. */
enum { WEFT_LOTS = 64 };
int64_t weft_seq_lot(struct weft_seq *seq);
/* Waits until this rank's tasks and transfers of a lot have ended, in error or
 * not; positions go on, and no error is told. What they need must have been
 * inserted, or be inserted by the other ranks whatever this one does. Local. */
void weft_seq_wait_lot(struct weft_seq *seq, int64_t lot);

/* 0, or the code of the first error so far. Does not wait. */
int weft_seq_status(struct weft_seq *seq, struct weft_err *err);

/* The control step: all ranks get rank 0's `bytes` of data, or, when any
 * rank's sequence has failed, all get that error and no data. Every decision
 * that depends on data goes through here, so that all ranks insert the same
 * tasks. Collective; a rank in weft_seq_wait() with an error meets the others
 * here. */
int weft_seq_agree(struct weft_seq *seq, void *data, size_t bytes,
                   struct weft_err *err);

/* Records an error from outside of tasks (first wins); other ranks hear of it
 * at the next control step. */
void weft_seq_fail(struct weft_seq *seq, int code, const char *fmt, ...)
    WEFT_PRINTF(3, 4);

/* ---- Inserting -------------------------------------------------------- */

struct weft_codelet; /* an operation; see codelets/ */

struct weft_access {
    struct weft_tile *tile;
    enum weft_mode mode;
};

/* Whether a task at `where` may run in this process (with device -1 its tiles
 * decide); when not, inserting it does nothing, and its accesses need not be
 * put together. */
bool weft_seq_is_here(const struct weft_seq *seq,
                      const struct weft_where *where);

/* Inserts one task; `args` is copied. Does not wait for the task. On errors
 * (memory) the sequence is failed, so callers need not check each insert. All
 * tiles must lie at the place of where->device; with device -1 the task runs
 * on any device of their place. Nothing happens at other ranks. */
void weft_insert(struct weft_seq *seq, const struct weft_codelet *codelet,
                 const void *args, size_t args_bytes,
                 const struct weft_access *access, int n_access,
                 const struct weft_where *where);

/* dst = src, two tiles of one size at any places: a copy in memory, a message
 * between ranks (one per part of cut tiles, which must be cut alike), or
 * nothing where neither is here. where->device: who copies
 * when both are here (-1, or a device of neither place: one of dst's);
 * priority, call, iteration as for tasks; copies have no position. */
void weft_insert_copy(struct weft_seq *seq, const struct weft_where *where,
                      struct weft_tile *src, struct weft_tile *dst);

/* weft_tile_cut() in program order: tasks inserted before use the tile as it
 * was cut then, and those inserted later wait for them. `where`: of the task
 * that stands between, if the cut is another one at all. */
void weft_insert_cut(struct weft_seq *seq, const struct weft_where *where,
                     struct weft_tile *tile, int n, const size_t at[]);

/* ---- Answers from outside --------------------------------------------- */

/* A tile that the program fills when an answer arrives: tasks inserted later
 * that read it wait until weft_external_complete(); no worker is occupied.
 * For a tile of another rank *out is NULL, and completing NULL does nothing. */
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
/* Seconds since weft_rt_start(). */
double weft_rt_clock_s(const struct weft_rt *rt);
/* Totals of the ended tasks of an iteration (struct weft_where): kept until
 * tasks of the second iteration after it run. Needs options.profile. */
void weft_rt_times(struct weft_rt *rt, int32_t iteration, enum weft_call call,
                   struct weft_call_time *out);
/* Of all ranks together: sums; the earliest start, the latest end (clocks are
 * those of weft_rt_start(), which all ranks leave together). Collective. */
void weft_rt_times_all(struct weft_rt *rt, int32_t iteration,
                       struct weft_call_time out[WEFT_N_CALLS]);
/* Spans of tasks (struct weft_where) of all ranks: the earliest start, the
 * latest end. Collective. Errors: WEFT_ENOMEM. */
int weft_rt_spans_all(size_t n, struct weft_span span[],
                      struct weft_err *err);
/* Records of inserted tasks and messages that have not ended: now, and the
 * most there were. Of this rank. */
void weft_rt_records(const struct weft_rt *rt, long *now_out, long *peak_out);
/* What crossed between places since start: by class of the tiles copied. */
struct weft_traffic {
    int64_t n_copies, n_messages; /* within this rank; sent to others */
    size_t copied_bytes, sent_bytes;
};
void weft_rt_traffic(const struct weft_rt *rt, enum weft_mem_class c,
                     struct weft_traffic *out);

/* Chrome/Perfetto trace of the records kept (a bounded number: the latest) of
 * all ranks, written by rank 0; a rank is a process of the trace, transfers
 * are on lanes of their own. Collective. */
int weft_rt_write_trace(struct weft_rt *rt, const char *path,
                        struct weft_err *err);

#ifdef __cplusplus
}
#endif
#endif
