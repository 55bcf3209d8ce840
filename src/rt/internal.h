/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime's own structures; for src/rt alone. */
#ifndef WEFT_RT_INTERNAL_H
#define WEFT_RT_INTERNAL_H

#include <pthread.h>

#include "rt/codelet.h"
#include "rt/policy.h"
#include "rt/world.h"

/* ---- Memory ----------------------------------------------------------- */

enum { WEFT_POOL_CLASSES = 64 + 8 * 36 };

struct weft_usage { /* by class, and the total */
    size_t now_bytes[WEFT_N_MEM_CLASSES + 1];
    size_t peak_bytes[WEFT_N_MEM_CLASSES + 1];
};

/* Blocks of tiles, kept for reuse by size. Guarded by `mutex`. */
struct weft_pool {
    pthread_mutex_t mutex;
    void *free[WEFT_POOL_CLASSES]; /* lists; the link is in the block */
    size_t held_bytes;             /* given out */
    size_t cached_bytes;           /* in the lists */
    size_t limit_bytes;            /* of held_bytes */
    struct weft_usage all;
    struct weft_usage *place; /* (n_places) */
};

struct weft_need {
    size_t bytes;
    enum weft_mem_class c;
    int place;         /* of this rank: 0..n_places-1 */
    bool zeroed;       /* when got */
    bool beyond_limit; /* give it all the same */
};

struct weft_pool *weft_pool_create(size_t limit_bytes, int n_places);
void weft_pool_free(struct weft_pool *pool); /* NULL is allowed */
/* NULL beyond the limit, or when the system has none. */
void *weft_pool_get(struct weft_pool *pool, const struct weft_need *need);
void weft_pool_put(struct weft_pool *pool, const struct weft_need *need,
                   void *block);
/* Says class, wanted, left. Returns WEFT_ENOMEM. */
int weft_pool_refuse(struct weft_pool *pool, const struct weft_need *need,
                     const char *what, struct weft_err *err);

/* ---- Tiles ------------------------------------------------------------ */

/* The handle orders the tasks (interface.c: StarPU moves and allocates
 * nothing); the memory is ours. Handles are registered once and go with the
 * struct from tile to tile: registering costs 10 us and more. A tile of
 * another rank has neither. */
struct weft_tile {
    struct weft_rt *rt;
    starpu_data_handle_t handle; /* NULL: of another rank */
    struct weft_tile_id id;
    enum weft_mem_class mem;
    size_t bytes;
    struct weft_tile *whole; /* whose part it is, in whose memory; or NULL */
    size_t offset;           /* there */
    struct weft_tile **part; /* (n_parts); their handles count, not its own */
    int n_parts;             /* 0: it is not cut */
    void *_Atomic data;      /* NULL: temporary, not written yet; or a part */
    atomic_int n_users;      /* of the memory: owner, bodies, messages */
    atomic_int n_refs;       /* of the struct: owner, tasks of StarPU's */
    atomic_int n_writers;    /* tasks that write and have not ended */
    atomic_int n_receives;   /* messages among them */
    atomic_int trouble;      /* code of what a message found */
    double message_us;       /* when one was last posted */
    uint64_t mark;           /* last insertion that saw it ... */
    int slot;                /* ... as its handle number so */
    struct weft_tile *next;  /* free ones, or all of them */
    struct weft_tile *all;
};

/* "actor layer 3 block 1 weights" */
void weft_tile_label(const struct weft_tile *tile, char *text, size_t size);
/* Its memory, NULL when it has none yet. */
void *weft_tile_memory(struct weft_tile *tile);
/* Its memory; a temporary tile gets it now. NULL: none left. */
void *weft_tile_data(struct weft_tile *tile, bool zeroed);
/* Says that there is none left. Returns WEFT_ENOMEM. */
int weft_tile_refuse(const struct weft_tile *tile, struct weft_err *err);
/* Its memory for a message, always: what nobody wrote is zeros, what is beyond
 * the limit is given; `trouble` says so. */
void *weft_tile_message(struct weft_tile *tile);
/* A tile has two lives. Its memory is given back when the last body that uses
 * it has ended, before the next task may ask for memory. The struct with the
 * handle goes to the next tile only when StarPU is done with the last task,
 * as StarPU asks for sizes after the body. */
void weft_tile_hold(struct weft_tile *tile);   /* its memory and the struct */
void weft_tile_done(struct weft_tile *tile);   /* with its memory */
void weft_tile_drop(struct weft_tile *tile);   /* the struct, after that */
void weft_tile_unhold(struct weft_tile *tile); /* both */
void weft_tile_register(struct weft_tile *tile); /* makes its handle */
void weft_interface_start(void);
/* All tiles' handles; no task is left. */
void weft_tile_free_all(struct weft_rt *rt);

/* ---- Workers ---------------------------------------------------------- */

struct weft_record {
    const struct weft_codelet *codelet;
    double start_us, end_us; /* since weft_rt_start */
    int32_t iteration, micro_batch, layer;
    int32_t call;
};

struct weft_exec {
    struct weft_rt *rt;
    struct weft_err err;
    int device;
    char *scratch;                      /* kept block */
    size_t scratch_bytes, scratch_used; /* used: also of `more` */
    struct weft_more *more;             /* further blocks of this body */
};

void weft_exec_reset(struct weft_exec *x); /* after a body */
void weft_exec_clear(struct weft_exec *x);

/* Of an iteration, and of the one that begins while it ends. */
struct weft_times {
    struct {
        int32_t iteration;
        struct weft_call_time call[WEFT_N_CALLS];
    } kept[2];
};
void weft_times_add(struct weft_times *times, int32_t iteration,
                    enum weft_call call, double start_s, double end_s);
/* No tasks: zeros. */
struct weft_call_time weft_times_get(const struct weft_times *times,
                                     int32_t iteration, enum weft_call call);

struct weft_worker {
    struct weft_exec exec;
    pthread_mutex_t mutex;              /* guards all below */
    const struct weft_codelet *running; /* NULL: nothing */
    struct weft_where where;
    double since_us;
    struct weft_record *record; /* ring (rt->n_records) or NULL */
    int64_t n_records;          /* ever */
    struct weft_times times;
};

/* ---- Sequences and tasks ---------------------------------------------- */

struct weft_seq {
    struct weft_rt *rt;
    pthread_mutex_t mutex; /* guards n_pending, n_in_lot, first, first_at */
    pthread_cond_t ended;  /* all tasks, or all of a lot */
    long n_pending;
    long n_in_lot[WEFT_LOTS]; /* pending ones by lot % WEFT_LOTS */
    int64_t lot;              /* of what is inserted now */
    atomic_int failed;        /* the first error's code */
    struct weft_err first;
    int64_t first_at; /* copies inserted before what failed */
    bool common;      /* all ranks know it */
    struct weft_gates *gates;
    struct weft_seq *next; /* of the runtime's; guarded by rt->mutex */
};

int64_t weft_seq_begin(struct weft_seq *seq); /* one task more: its lot */
void weft_seq_end(struct weft_seq *seq, int64_t lot); /* one less */
/* First wins; err->code is not 0. at: copies inserted before what failed. */
void weft_seq_record(struct weft_seq *seq, int64_t at,
                     const struct weft_err *err);

struct weft_task {
    struct weft_node node;
    struct weft_seq *seq;
    struct weft_codelet *codelet;
    struct weft_where where;
    int64_t at; /* copies inserted before */
    int64_t lot;
    void *args;
    void **buf;                 /* (n_access) */
    struct weft_access *access; /* (n_access) */
    struct weft_access *held;   /* (n_held): with parts instead of tiles */
    int n_access, n_held;
    size_t args_bytes;
};

/* Calls the body. Tiles that it only writes are filled with NaN before, those
 * that it only reads must be the same afterwards. */
int weft_task_run_checked(struct weft_task *t, struct weft_exec *x);

/* ---- The runtime ------------------------------------------------------ */

struct weft_rt {
    int n_devices; /* of this rank; the first is number first_device */
    int rank, n_ranks, first_device;
    int places_per_rank;              /* 1, or n_devices */
    int first_place;                  /* of this rank */
    const struct weft_policy *policy; /* NULL: one of StarPU's */
    int min_priority, max_priority;   /* of StarPU's */
    bool profile, nap, check_modes, starpu_on;
    double start_s;
    char *fxt_dir; /* NULL: no trace */
    bool fxt_began;
    atomic_bool fxt_stopped;
    int64_t n_inserted; /* also numbers the tasks */
    int64_t n_copies;   /* weft_insert_copy(), the same on all ranks */
    struct weft_traffic traffic[WEFT_N_MEM_CLASSES];
    int64_t *n_sent, *n_received; /* messages (n_ranks), numbers the next */
    atomic_long n_transfers;      /* not ended */
    struct weft_move *move;       /* ring (WEFT_MOVES) or NULL */
    int64_t n_moves;              /* ever; guarded by mutex, as the ring */
    atomic_long n_ended, n_external;
    atomic_long n_pending; /* tasks and messages of all sequences */
    long most_pending;
    struct weft_pool *pool;
    struct weft_worker *worker; /* (n_devices) */
    int64_t n_records;          /* ring of one worker */
    pthread_mutex_t mutex;      /* guards the lists below */
    struct weft_tile *free_tile, *free_foreign, *all_tile;
    struct weft_seq *seq;
    struct weft_codelet *codelet;
    struct weft_external *external;
    struct weft_transfer *transfer, **last_transfer; /* by insertion */
    struct weft_watchdog *watchdog;                  /* NULL: off */
};

/* Messages between ranks; nothing in a job of one. */
enum { WEFT_MOVES = 1 << 14 }; /* records kept: 2 MiB */
struct weft_move {
    double start_us, end_us; /* since weft_rt_start; posted, done */
    size_t bytes;
    int32_t peer, iteration;
    bool sends;
    char label[80];
};
int weft_transfer_create(struct weft_rt *rt, struct weft_err *err);
void weft_transfer_free(struct weft_rt *rt);
/* StarPU-MPI, when all ranks have StarPU. Collective. */
void weft_transfer_start(struct weft_rt *rt);
void weft_transfer_stop(struct weft_rt *rt);
/* Sends, receives or does nothing. */
void weft_transfer_insert(struct weft_seq *seq,
                          const struct weft_where *where,
                          struct weft_tile *src, struct weft_tile *dst);
/* All ranks call it, or none. */
void weft_transfer_renumber(struct weft_rt *rt);
/* Warns of what has not come. */
void weft_transfer_report(struct weft_rt *rt);
#ifdef WEFT_HAVE_MPI
void weft_interface_messages(void); /* tells StarPU-MPI */
#endif

double weft_rt_now_us(const struct weft_rt *rt);

/* Device, position, chain, call. `op`: for the sentence. */
int weft_where_check(const struct weft_rt *rt, const char *op,
                     const struct weft_where *where, struct weft_err *err);
/* weft_insert() of what is known to be here: `where` has a device of this
 * rank or -1, and places are not looked at. */
void weft_insert_here(struct weft_seq *seq,
                      const struct weft_codelet *codelet, const void *args,
                      size_t args_bytes, const struct weft_access *access,
                      int n_access, const struct weft_where *where);

/* Completes what nobody answered with zeros, so that stopping ends. */
void weft_external_abandon_all(struct weft_rt *rt);

/* Whether StarPU can start so many devices within the process's limits. */
int weft_limits_check(int n_devices, struct weft_err *err);

/* Looks at the runtime again and again, from a thread of its own. after_s 0:
 * reports nothing, but answers the other ranks. */
int weft_watchdog_start(struct weft_rt *rt, double after_s,
                        struct weft_err *err);
void weft_watchdog_stop(struct weft_rt *rt);
/* One look at a time now_s that the caller counts. */
struct weft_watchdog_view {
    struct weft_rt *rt;
    double after_s;
    double moved_s, asked_s; /* when something moved, others were asked */
    long seen;               /* tasks that had ended; at first -1 */
    bool told, blamed;       /* of this standstill */
};
void weft_watchdog_look(struct weft_watchdog_view *view, double now_s);

/* For loops that poll: a while for nothing, then sleeps that grow. */
enum { WEFT_NAP_FIRST_US = 20, WEFT_NAP_LAST_US = 1000 };
struct weft_nap {
    int n_polls;
    int us;
};
void weft_nap(struct weft_nap *nap);

/* A policy of StarPU's whose idle workers sleep; NULL: no such name. */
struct starpu_sched_policy *weft_nap_policy(const char *name);

/* FxT around StarPU's life (fxt.c): events go to a folder of their own under
 * TMPDIR until they are converted to dir/paje.trace (NULL: dropped); then
 * that folder goes. */
int weft_fxt_begin(struct weft_err *err);
int weft_fxt_end(const char *dir, struct weft_err *err);
void weft_fxt_off(void);
/* A Paje trace of StarPU's to `path`: events sorted by time, those of one time
 * as they were, after all definitions; colours as Paje has them. */
int weft_paje_mend(const char *raw, const char *path, struct weft_err *err);
/* Traces grow by 1 KB per task, and a conversion takes 0.1 ms: no more events
 * after so many tasks. */
enum { WEFT_FXT_TASKS = 20000 };

#endif
