/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime's own structures; for src/rt alone. */
#ifndef WEFT_RT_INTERNAL_H
#define WEFT_RT_INTERNAL_H

#include <pthread.h>

#include "rt/codelet.h"
#include "rt/policy.h"

/* ---- Memory ----------------------------------------------------------- */

enum { WEFT_POOL_CLASSES = 64 + 8 * 36 };

/* Blocks of tiles, kept for reuse by size. Guarded by `mutex`. */
struct weft_pool {
    pthread_mutex_t mutex;
    void *free[WEFT_POOL_CLASSES]; /* lists; the link is in the block */
    size_t held_bytes;             /* given out, rounded up to classes */
    size_t cached_bytes;           /* in the lists */
    size_t limit_bytes;            /* of held_bytes */
    size_t now_bytes[WEFT_N_MEM_CLASSES], peak_bytes[WEFT_N_MEM_CLASSES];
};

struct weft_pool *weft_pool_create(size_t limit_bytes);
void weft_pool_free(struct weft_pool *pool); /* NULL is allowed */
/* NULL beyond the limit, or when the system has none. */
void *weft_pool_get(struct weft_pool *pool, enum weft_mem_class c,
                    size_t bytes, bool zeroed);
void weft_pool_put(struct weft_pool *pool, enum weft_mem_class c,
                   size_t bytes, void *block);
/* Says class, wanted, left. Returns WEFT_ENOMEM. */
int weft_pool_refuse(struct weft_pool *pool, enum weft_mem_class c,
                     size_t bytes, const char *what, struct weft_err *err);

/* ---- Tiles ------------------------------------------------------------ */

/* The handle orders the tasks (a void interface: StarPU moves and allocates
 * nothing); the memory is ours. Handles are registered once and go with the
 * struct from tile to tile: registering costs 10 us and more. */
struct weft_tile {
    struct weft_rt *rt;
    starpu_data_handle_t handle;
    struct weft_tile_id id;
    enum weft_mem_class mem;
    size_t bytes;
    void *data;             /* NULL: temporary, not written yet */
    atomic_int n_refs;      /* owner, and tasks that have not ended */
    atomic_int n_writers;   /* tasks that write and have not ended */
    uint64_t mark;          /* last insertion that saw it ... */
    int slot;               /* ... as its handle number so */
    struct weft_tile *next; /* free ones, or all of them */
    struct weft_tile *all;
};

/* "actor layer 3 block 1 weights" */
void weft_tile_label(const struct weft_tile *tile, char *text, size_t size);
/* Its memory; a temporary tile gets it now. NULL: none left. */
void *weft_tile_data(struct weft_tile *tile, bool zeroed);
/* One reference less; the last one frees. */
void weft_tile_drop(struct weft_tile *tile);
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

struct weft_worker {
    struct weft_exec exec;
    pthread_mutex_t mutex;              /* guards all below */
    const struct weft_codelet *running; /* NULL: nothing */
    struct weft_where where;
    double since_us;
    struct weft_record *record; /* ring (rt->n_records) or NULL */
    int64_t n_records;          /* ever */
    struct weft_call_time time[WEFT_N_CALLS];
};

/* ---- Sequences and tasks ---------------------------------------------- */

struct weft_seq {
    struct weft_rt *rt;
    pthread_mutex_t mutex; /* guards n_pending, first */
    pthread_cond_t idle;
    long n_pending;
    atomic_int failed; /* the first error's code */
    struct weft_err first;
    struct weft_gates *gates;
    struct weft_seq *next; /* of the runtime's; guarded by rt->mutex */
};

void weft_seq_begin(struct weft_seq *seq); /* one task more */
void weft_seq_end(struct weft_seq *seq);   /* one less */
/* First wins; err->code is not 0. */
void weft_seq_record(struct weft_seq *seq, const struct weft_err *err);

struct weft_task {
    struct weft_node node;
    struct weft_seq *seq;
    struct weft_codelet *codelet;
    struct weft_where where;
    void *args;
    void **buf;                 /* (n_access) */
    struct weft_access *access; /* (n_access) */
    int n_access;
    size_t args_bytes;
};

/* ---- The runtime ------------------------------------------------------ */

struct weft_rt {
    int n_devices;
    const struct weft_policy *policy; /* NULL: one of StarPU's */
    int min_priority, max_priority;   /* of StarPU's */
    bool profile;
    double start_s;
    char *fxt_dir; /* NULL: no trace */
    bool fxt_began;
    int64_t n_inserted; /* also numbers the tasks */
    atomic_long n_ended, n_external;
    struct weft_pool *pool;
    struct weft_worker *worker; /* (n_devices) */
    int64_t n_records;          /* ring of one worker */
    pthread_mutex_t mutex;      /* guards the lists below */
    struct weft_tile *free_tile, *all_tile;
    struct weft_seq *seq;
    struct weft_codelet *codelet;
    struct weft_external *external;
    struct weft_watchdog *watchdog; /* NULL: off */
};

double weft_rt_now_us(const struct weft_rt *rt);

/* Completes what nobody answered with zeros, so that stopping ends. */
void weft_external_abandon_all(struct weft_rt *rt);

int weft_watchdog_start(struct weft_rt *rt, double after_s,
                        struct weft_err *err);
void weft_watchdog_stop(struct weft_rt *rt);

/* A policy of StarPU's whose idle workers sleep; NULL: no such name. */
struct starpu_sched_policy *weft_nap_policy(const char *name);

/* FxT around StarPU's life (fxt.c): events go to a folder of their own under
 * TMPDIR until they are converted to dir/paje.trace (NULL: dropped); then
 * that folder goes. */
int weft_fxt_begin(struct weft_err *err);
int weft_fxt_end(const char *dir, struct weft_err *err);
void weft_fxt_off(void);
/* Traces grow by 1 KB per task, and a conversion takes 0.1 ms: no more events
 * after so many tasks. */
enum { WEFT_FXT_TASKS = 20000 };

#endif
