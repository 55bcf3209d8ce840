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

#include "base/limits.h"
#include "plan/task.h"
#include "rt/tile.h"

/* plan/recording.h */
struct weft_recording;
struct weft_rec_site;
struct weft_rec_ran;

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The job; weft.h has more of it ------------------------------------ */

/* How many ranks of the job are on this machine, and which of them this is.
 * Local. */
int weft_world_here(int *rank_out);
/* Copies the bytes of that rank to all ranks. Collective. */
void weft_world_share_from(int rank, void *data, size_t bytes);
/* The same, calling meanwhile(ctx) now and then while this rank waits. */
void weft_world_share_while(int rank, void *data, size_t bytes,
                            void (*meanwhile)(void *ctx), void *ctx);
/* A rank that is to stop something that all ranks do tells rank 0; rank 0, which
 * asks now and then, tells all. Any thread may; calls after the first do
 * nothing. Local. */
void weft_world_say_stop(void);
/* Whether this rank has said so or was told. Any thread may ask. Local. */
bool weft_world_said_stop(void);
/* Forgets it, when nobody says it any more. Collective. */
void weft_world_forget_stop(void);
/* Raises each of n numbers to the largest of all ranks. Collective. */
void weft_world_raise(int64_t *v, int n);
/* Prints the sentence and ends all processes of the job with exit code 1, for
 * failures that leave the ranks out of step. Does not return. */
WEFT_NORETURN void weft_world_abort(const struct weft_err *err);

/* Memory that tasks and copies are inserted with: n * size bytes, zeroed; free
 * with weft_free(). Never NULL: where there is none the job ends, one process
 * alone, too (exit code 1; the sentence says what it was for), as other ranks
 * wait for the copies that this one would leave out. Local. */
void *weft_insert_alloc(size_t n, size_t size, const char *what);
/* Ends the job likewise, where memory for `what` was not to be had otherwise. */
WEFT_NORETURN void weft_insert_nomem(const char *what, size_t bytes);

/* ---- Start and stop --------------------------------------------------- */

struct weft_policy; /* sched/sched.h */

struct weft_rt_options {
    int n_devices; /* CPU devices (workers) of a rank; 0: one per core */
    /* GPUs of a rank: devices that come before its CPU devices, each a place
     * of its own. With any, tasks with device -1 are dealt to the CPU devices
     * of their place in turn. */
    int n_gpus;
    int first_gpu;     /* the machine's number of the first */
    int ranks_per_gpu; /* so many have an equal part of each one's memory; 0:
                          it is this rank's alone */
    /* Loads all that tasks launch to the GPU that the calling thread uses: is
     * called for each GPU, before what is free of its memory is asked. Must be
     * there where n_gpus is not 0. */
    int (*load_kernels)(struct weft_err *err);
    size_t gpu_memory_bytes; /* limit for the tiles of each; 0: what is free,
                                but for what is left to CUDA */
    /* Messages from one GPU's memory to another's are MPI's, which can read and
     * write it; else they pass through host memory. */
    bool direct_messages;
    bool place_per_device;            /* see "Places" in rt/tile.h */
    const struct weft_policy *policy; /* NULL: StarPU's "prio", which knows
                             devices and priorities but no positions */
    /* idle workers sleep soon (1) or only after they have spun for 10 ms (0;
     * beside GPUs and with StarPU's policy never); -1: 1 where devices have all
     * cores or more, else 0 */
    int nap;
    bool profile;        /* keep task records for traces and timings */
    const char *fxt_dir; /* StarPU's own trace: weft_rt_stop() leaves
                             paje.trace there (rt/fxt.h); NULL: no, which
                             all ranks must agree on */
    /* for tests (rt/modes.c): a body that writes what it may only read is an
     * error; what it may only write is filled with NaN before */
    bool check_modes;
    double watchdog_s; /* report when nothing moves for so long; 0: off */
    /* limit for all tiles; 0: the machine's memory */
    size_t memory_limit_bytes;
    /* notes what this rank inserts, beside running it; the caller's, who
     * reads it after weft_rt_stop(). NULL: no */
    struct weft_recording *recording;
    /* (n_task_spans) when the first tasks of the recording ran, by number, in
     * seconds since the start; the caller's, who reads them after a wait. */
    struct weft_span *task_span;
    int64_t n_task_spans;
};

/* Starts StarPU in this process (one runtime per process), and StarPU-MPI
 * with several ranks. Collective. Errors: absurd device count, ranks with
 * different numbers of devices, StarPU that does not start, an MPI that does not
 * know GPUs and is to send their memory. */
int weft_rt_start(const struct weft_rt_options *options, struct weft_rt **out,
                  struct weft_err *err);
/* Waits for all tasks, stops StarPU and frees the runtime with the sequences
 * and tiles that are left. Answers that never came become zeros. NULL is
 * allowed. Collective. */
void weft_rt_stop(struct weft_rt *rt);

/* Ends StarPU's own trace (fxt_dir) before the runtime stops. Does nothing
 * when it has ended already, or without a trace. */
void weft_rt_fxt_stop(struct weft_rt *rt);
/* Whether StarPU-MPI can sleep while it waits, as ranks that share cores
 * need. */
bool weft_rt_messages_nap(void);

/* A runtime that records what is inserted and runs nothing, for any job (one
 * with GPUs that this machine lacks, too, and a task that GPUs have no code
 * for fails when it is inserted):
 * there is no StarPU, no MPI, and tiles have sizes but no memory, so that they
 * cannot be acquired. Waiting returns at once, and ranks are not asked. There
 * may be several, beside one that runs. Stopped like any other. Errors:
 * WEFT_EINVAL for GPUs without a CPU device, which a rank that runs always has;
 * WEFT_ENOMEM. */
struct weft_record_options {
    int n_ranks, n_devices; /* devices of a rank */
    int n_gpus;             /* of these, which come first */
    bool gpus_apart;        /* weft_rt_gpus_apart() */
    bool direct_messages;   /* as of struct weft_rt_options */
    bool place_per_device;
    int rank; /* whose tasks; -1: of all ranks */
    /* When samples end is not known: what weft_rt_when() says is noted. */
    bool open_ends;
    /* Of an instruction of a tp group (weft_gang_begin()) one task per member
     * is noted, instead of what it expands to. */
    bool gangs;
    /* With gangs: where generation has several stages, so many steps of a chunk
     * that have about as many rows pass them as one; 0: none do. */
    int32_t joined_steps;
    uint32_t calls; /* a set of them, whose tasks are noted; 0: all */
    /* as of struct weft_recording; with gangs */
    const bool *left_out;
    struct weft_recording *recording; /* outlives the runtime */
};
int weft_rt_record(const struct weft_record_options *options,
                   struct weft_rt **out, struct weft_err *err);
bool weft_rt_is_dry(const struct weft_rt *rt);
/* Waits recorded so far (struct weft_rec_wait). */
int64_t weft_rt_n_waits(const struct weft_rt *rt);
/* A task at a GPU's place will take so many bytes of weft_exec_scratch_gpu():
 * the recording keeps the most. */
void weft_rt_expect_scratch(struct weft_rt *rt, size_t bytes);
bool weft_rt_keeps_gangs(const struct weft_rt *rt);
/* The recorder's option of that name; 0 where tasks run. */
int32_t weft_rt_joined_steps(const struct weft_rt *rt);
/* What is recorded from here on, outside of instructions, stands for n of the
 * like, one after another. */
void weft_rt_repeat(struct weft_rt *rt, int32_t n);
/* What is inserted from here on is in its turn, or comes when a sample has
 * ended: a recorder with open ends notes it. when: enum weft_rec_when. */
void weft_rt_when(struct weft_rt *rt, int when);

int weft_rt_n_devices(const struct weft_rt *rt); /* of all ranks */
int weft_rt_devices_per_rank(const struct weft_rt *rt);
/* Whether this program and its StarPU were built with CUDA. */
bool weft_rt_has_cuda(void);
int weft_rt_n_gpus(const struct weft_rt *rt); /* of a rank */
/* Whether in some rank a GPU may not use the memory of another one, or may not
 * wait for its kernels. */
bool weft_rt_gpus_apart(const struct weft_rt *rt);
/* Of the GPU of this rank whose tiles may take least: how much, and what of
 * its memory was free when the runtime started; SIZE_MAX where it has none. */
struct weft_gpu_memory {
    size_t tiles_bytes, free_bytes, total_bytes;
};
struct weft_gpu_memory weft_rt_gpu_memory(const struct weft_rt *rt);
/* Whether other processes must hold some: an eighth is not free. */
bool weft_gpu_memory_is_taken(const struct weft_gpu_memory *memory);
/* The most devices that this StarPU allows: WEFT_MAX_DEVICES or fewer. */
int weft_rt_max_devices(void);
/* GPUs whose numbers are below this are all that this StarPU has room for; of
 * those that a process sees it may be given no others. */
int weft_rt_max_gpus(void);

/* ---- Sequences -------------------------------------------------------- */

struct weft_seq;

int weft_seq_create(struct weft_rt *rt, struct weft_seq **out,
                    struct weft_err *err);
/* Waits for this rank's tasks and transfers, so answers from outside must
 * have come. NULL is allowed. */
void weft_seq_free(struct weft_seq *seq);

/* Waits for all tasks and transfers inserted so far. Returns 0 or, on all
 * ranks, the same error: that of the task inserted first among the first
 * errors of the ranks which knew of no other's; its text names operation and
 * tile. The error is reported once, and the sequence can be used again
 * afterwards. Collective. */
int weft_seq_wait(struct weft_seq *seq, struct weft_err *err);

/* Begins a lot: what this rank inserts until the next call belongs to it. A
 * program that waits for lots holds the records of a few lots, not of all
 * tasks, at a time. Returns the lot's number. At most WEFT_LOTS lots are open,
 * so the call waits for the lot WEFT_LOTS numbers before. Local. */
int64_t weft_seq_lot(struct weft_seq *seq);
/* Waits until this rank's tasks and transfers of a lot have ended, in error or
 * not; positions go on, and no error is reported. What they depend on must
 * have been inserted here, and other ranks must insert their side of it
 * without waiting for this one. Local. */
void weft_seq_wait_lot(struct weft_seq *seq, int64_t lot);

/* 0, or the code of the first error so far. Does not wait. */
int weft_seq_status(struct weft_seq *seq, struct weft_err *err);
/* Whether all ranks have that error: a control step has shared it. */
bool weft_seq_is_shared(const struct weft_seq *seq);

/* The control step: all ranks get rank 0's `bytes` of data, or, when any
 * rank's sequence has failed, all get that error and no data. Every decision
 * that depends on data goes through here, so that all ranks insert the same
 * tasks. Collective; a rank in weft_seq_wait() with an error meets the others
 * here. */
int weft_seq_agree(struct weft_seq *seq, void *data, size_t bytes,
                   struct weft_err *err);

/* The same, but all ranks get what is in any rank's `bytes`, a multiple of 8:
 * of each 8 of them at most one rank's are not 0. Collective. */
int weft_seq_merge(struct weft_seq *seq, void *data, size_t bytes,
                   struct weft_err *err);

/* As weft_seq_agree() in one broadcast, for decisions that come often: a rank's
 * failure ends it soon, not at once, and at the latest where rank 0 says that
 * this is the `last` one of its kind. data NULL: rank 0 has nothing to say. Who
 * cannot go on fails the sequence, and calls this with `last` until it returns
 * the error. Collective. */
int weft_seq_tell(struct weft_seq *seq, void *data, size_t bytes, bool last,
                  struct weft_err *err);

/* Records an error that happened outside of tasks, unless there was one
 * before; other ranks learn of it at the next control step. */
void weft_seq_fail(struct weft_seq *seq, int code, const char *fmt, ...)
    WEFT_PRINTF(3, 4);

/* ---- Events ----------------------------------------------------------- */

/* Calls fn when the tasks inserted so far that write a tile of this rank have
 * ended, in error or not, from any thread, which must not be kept waiting.
 * data: the tile's, NULL where nobody wrote it or it has a GPU's memory.
 * Errors: WEFT_ENOMEM. Local. */
typedef void (*weft_written_fn)(void *ctx, const void *data);
int weft_tile_when_written(struct weft_tile *tile, weft_written_fn fn,
                           void *ctx, struct weft_err *err);

/* Tells in which order tiles are written. */
struct weft_events;
int weft_events_create(struct weft_events **out, struct weft_err *err);
/* Waits for nothing: events that have not come are forgotten. NULL is
 * allowed. */
void weft_events_free(struct weft_events *events);
/* Event `id` comes when the tasks inserted so far that write a tile of this
 * rank have ended, in error or not. Errors: WEFT_ENOMEM. Local. */
int weft_events_expect(struct weft_events *events, struct weft_tile *tile,
                       int64_t id, struct weft_err *err);
/* Waits for the next event; there must be one to come. Local. */
int64_t weft_events_next(struct weft_events *events);

/* Collectives of this rank's control messages so far. Local. */
int64_t weft_world_n_collectives(void);

/* ---- Inserting -------------------------------------------------------- */

struct weft_codelet; /* an operation; see codelets/ */

struct weft_access {
    struct weft_tile *tile;
    enum weft_mode mode;
};

/* Whether a task at `where` may run in this process (with device -1 its tiles
 * decide). If not, inserting it would do nothing, so callers need not put its
 * accesses together. */
bool weft_seq_is_here(const struct weft_seq *seq,
                      const struct weft_where *where);

/* Inserts one task; `args` is copied. Does not wait for the task. On errors
 * the sequence is failed, so callers need not check each insert. All tiles must
 * lie at the place of where->device; with device -1 the task runs on any device
 * of their place. Nothing happens at other ranks. */
void weft_insert(struct weft_seq *seq, const struct weft_codelet *codelet,
                 const void *args, size_t args_bytes,
                 const struct weft_access *access, int n_access,
                 const struct weft_where *where);

/* The same, and says what the task does, of which recorders take note. */
void weft_insert_work(struct weft_seq *seq,
                      const struct weft_codelet *codelet, const void *args,
                      size_t args_bytes, const struct weft_access *access,
                      int n_access, const struct weft_where *where,
                      const struct weft_work *work);

/* The next n tasks that are inserted here are members 0 .. n - 1 of a gang:
 * they run at the same time, each on a CPU device of its own of one place, and
 * may meet (weft_exec_meet() in rt/codelet.h). They begin when all of them are
 * ready, so none may depend on another, and their positions, if any, must come
 * in one order on all devices. The caller has asked weft_seq_is_here(). Errors:
 * WEFT_EUNSUPPORTED where options.policy is NULL. */
void weft_insert_gang(struct weft_seq *seq, int n);

/* dst = src, two tiles of one size at any places: a copy in memory, a message
 * between ranks (one per part of cut tiles, which must be cut alike), or
 * nothing where neither is here. where->device: who copies
 * when both are here (-1, or a device of neither place: one of dst's);
 * priority, call, iteration as for tasks; copies have no position. */
void weft_insert_copy(struct weft_seq *seq, const struct weft_where *where,
                      struct weft_tile *src, struct weft_tile *dst);

/* Does weft_tile_cut() in program order: tasks inserted before use the tile as
 * it was cut then, and those inserted later wait for them. `where` is that of
 * the task that is inserted between them; nothing is inserted when the tile is
 * cut so already. */
void weft_insert_cut(struct weft_seq *seq, const struct weft_where *where,
                     struct weft_tile *tile, int n, const size_t at[]);

/* ---- Instructions of a tp group ---------------------------------------- */

/* What is inserted between the two is the expansion of instruction `op`: tasks
 * of the group's members, and the copies by which they exchange temporary
 * tiles of the expansion. Other tiles are used at their own place, and
 * nothing is waited for. Tasks run, and are recorded, one by one, unless the
 * recorder keeps instructions. Instructions may hold others. `op` is a
 * constant of the program; layer -1: none.
 *
 * A recorder that keeps instructions need not see an expansion twice. If
 * weft_gang_begin() says true, the caller then says all that the expansion is a
 * function of but for the site: words, and every tile from outside that it may
 * use (NULL: there is none) in an order of its own. Where weft_gang_again() is
 * true there is nothing more to insert, and no end. site NULL: nothing is
 * said.
 *
 * work: what each member of the site does; NULL: what its tasks do together,
 * which words and tiles determine, too. */
bool weft_gang_begin(struct weft_rt *rt, const char *op,
                     const struct weft_rec_site *site);
void weft_gang_word(struct weft_rt *rt, int64_t word);
void weft_gang_tile(struct weft_rt *rt, struct weft_tile *tile);
bool weft_gang_again(struct weft_rt *rt, const char *op, int32_t layer,
                     const struct weft_work *work);
void weft_gang_end(struct weft_rt *rt, const char *op, int32_t layer,
                   const struct weft_work *work);

/* ---- Answers from outside --------------------------------------------- */

/* Announces that the program fills a tile when an answer arrives: tasks
 * inserted later that read it wait until weft_external_complete(), without
 * occupying a worker. For a tile of another rank *out is NULL, and completing
 * NULL does nothing. */
struct weft_external;
int weft_external_begin(struct weft_seq *seq, struct weft_tile *tile,
                        const struct weft_where *where,
                        struct weft_external **out, struct weft_err *err);
/* Copies `bytes` of `data` into the tile, lets its readers run and frees
 * `external`. */
void weft_external_complete(struct weft_external *external, const void *data,
                            size_t bytes);

/* ---- What ran --------------------------------------------------------- */

/* Names calls 0 .. n - 1 in traces and messages; the strings outlive rt. Others
 * are "none". */
void weft_rt_name_calls(struct weft_rt *rt, int n, const char *const name[]);

struct weft_call_time {
    int64_t n_tasks;
    double busy_s;          /* sum over tasks and devices */
    double first_s, last_s; /* since weft_rt_start */
    /* Of tasks that restore (struct weft_where), which do not count above:
     * their time, summed like busy_s, and of it the part in which another
     * device of the same rank ran a task of another call. */
    double restore_s, hidden_s;
    /* sum over devices: they waited for what moves, and for nothing else
     * (rt/moves.h), before tasks of the call. Below 0: not known. */
    double waited_s;
};
/* Seconds since weft_rt_start(). */
double weft_rt_clock_s(const struct weft_rt *rt);
/* Notes in the trace that something has come to number `which` of a call; both
 * strings are constants. */
void weft_rt_mark(struct weft_rt *rt, const char *what, const char *of,
                  int32_t call, int32_t iteration, int32_t which);
/* Totals of the ended tasks of an iteration (struct weft_where). They are kept
 * until tasks of the second iteration after it run. Needs options.profile. */
void weft_rt_times(struct weft_rt *rt, int32_t iteration, int32_t call,
                   struct weft_call_time *out);
/* The same of all ranks together: sums, the earliest start and the latest end.
 * Clocks start in weft_rt_start(), which all ranks leave together.
 * Collective. */
void weft_rt_times_all(struct weft_rt *rt, int32_t iteration,
                       struct weft_call_time out[WEFT_MAX_CALLS]);
/* When devices did calls: at most WEFT_RT_PIECES spans of each device of all
 * ranks for each of n calls of an iteration, where what has the least time
 * between is joined; end_s 0: none. out (n, devices, WEFT_RT_PIECES): the
 * caller's. Kept as those of weft_rt_times(). Collective. Errors:
 * WEFT_ENOMEM. */
enum { WEFT_RT_PIECES = 16 };
int weft_rt_pieces_all(struct weft_rt *rt, int32_t iteration, int32_t n,
                       const int32_t *call, struct weft_span *out,
                       struct weft_err *err);
/* Merges spans of tasks (struct weft_where) over all ranks: each gets the
 * earliest start and the latest end. Collective. Errors: WEFT_ENOMEM. */
int weft_rt_spans_all(size_t n, struct weft_span span[],
                      struct weft_err *err);
/* How this rank's tasks of an iteration, of the last two, have run so far;
 * events count from the first of iteration `first`, the same or the one before.
 * Of too many tasks it is not known. The caller frees out->moments and
 * out->released, also after an error. Errors: WEFT_ENOMEM. */
int weft_rt_ran(struct weft_rt *rt, int32_t first, int32_t iteration,
                struct weft_rec_ran *out, struct weft_err *err);
/* How many tasks and messages of this rank are inserted and have not ended:
 * now, and the most there were. */
void weft_rt_records(const struct weft_rt *rt, long *now_out, long *peak_out);
/* What was copied between places since the start, by memory class of the
 * tiles. */
struct weft_traffic {
    int64_t n_copies, n_messages; /* within this rank; sent to others */
    size_t copied_bytes, sent_bytes;
};
void weft_rt_traffic(const struct weft_rt *rt, enum weft_mem_class c,
                     struct weft_traffic *out);

/* Rank 0 writes a Chrome/Perfetto trace of the records that all ranks have
 * kept (a bounded number, the latest). A rank is a process of the trace;
 * transfers have rows of their own. Collective. */
int weft_rt_write_trace(struct weft_rt *rt, const char *path,
                        struct weft_err *err);

#ifdef __cplusplus
}
#endif
#endif
