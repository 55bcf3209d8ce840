/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime's own structures; for src/rt alone. */
#ifndef WEFT_RT_INTERNAL_H
#define WEFT_RT_INTERNAL_H

#include <pthread.h>

#include "plan/recording.h"
#include "rt/card.h"
#include "rt/codelet.h"
#include "rt/policy.h"
#include "rt/pool.h"
#include "rt/tile_inside.h"
#include "rt/watchdog.h"
#include "rt/world.h"

/* ---- Workers ---------------------------------------------------------- */

struct weft_record {
    const struct weft_codelet *codelet;
    double start_us, end_us; /* since weft_rt_start */
    int32_t iteration, micro_batch, layer;
    int16_t call;
    bool restores;
};

struct weft_late; /* rt/moves.h */
struct weft_moves;

struct weft_exec {
    struct weft_rt *rt;
    struct weft_card *card; /* NULL: a CPU device */
    struct weft_err err;
    /* the stream of who only copies; NULL: the worker of a device */
    struct CUstream_st *copies;
    int64_t on_stream;      /* number of the body's work there */
    int device;             /* in the job; -1: of who copies */
    weft_body_fn at_end;    /* of the body that runs; NULL: nothing */
    struct weft_team *team; /* the same; NULL: none */
    int member;
    void *shared;                       /* of a body without a gang */
    char *scratch;                      /* kept block */
    size_t scratch_bytes, scratch_used; /* used: also of `more` */
    struct weft_more *more;             /* further blocks of this body */
    /* of the card's pool, as temporary tiles have */
    struct weft_need gpu_need;
    void *gpu_block; /* NULL: none */
};

void weft_exec_empty(struct weft_exec *x);            /* takes blocks back */
WEFT_INLINE void weft_exec_reset(struct weft_exec *x) /* after a body */
{
    if (x->gpu_block || x->more)
        weft_exec_empty(x);
    x->scratch_used = 0;
}
void weft_exec_clear(struct weft_exec *x);

/* Times of an iteration, and of the one that begins while it ends. */
struct weft_pieces {
    int32_t n;
    struct weft_span span[WEFT_RT_PIECES];
};
struct weft_times {
    struct {
        int32_t iteration;
        struct weft_call_time call[WEFT_MAX_CALLS];
        struct weft_pieces pieces[WEFT_MAX_CALLS];
    } kept[2];
};
void weft_times_add(struct weft_times *times, int32_t iteration, int32_t call,
                    double start_s, double end_s);
/* Adds a task that restores (struct weft_where). */
void weft_times_add_restore(struct weft_times *times, int32_t iteration,
                            int32_t call, double restore_s, double hidden_s);
void weft_times_add_waited(struct weft_times *times, int32_t iteration,
                           int32_t call, double waited_s);
/* Adds a span that begins after those before it; one too many joins the two
 * spans with the least time between. */
void weft_pieces_add(struct weft_pieces *pieces, double start_s,
                     double end_s);
/* No tasks: zeros. */
struct weft_call_time weft_times_get(const struct weft_times *times,
                                     int32_t iteration, int32_t call);

struct weft_worker {
    struct weft_exec exec;
    /* of a card, the worker's own: events around the last bodies' work, by
     * number; how many there were; when the last that has ended did so */
    struct CUevent_st *event[WEFT_CARD_EVENTS][2];
    double stream_ended_us;
    pthread_mutex_t mutex; /* guards all below */
    int64_t n_begun;
    /* the task that began last; NULL: it has ended */
    const struct weft_task *running;
    int n_running;   /* of a card: on its stream */
    double ended_us; /* the last that has ended; the worker's own */
    struct weft_record *record; /* ring (rt->n_records) or NULL */
    int64_t n_records;          /* ever */
    struct weft_times times;
    /* moves.h: when what it did last ended that moves, and that does not; tasks
     * that may have waited */
    double moved_us, computed_us;
    struct weft_late *late; /* (n_late) */
    int64_t n_late, late_room;
};

/* Seconds of a span in which at least one of n others lasts; sorts them. */
double weft_span_covered(const struct weft_span *of, size_t n,
                         struct weft_span by[]);
/* Seconds between two times, since weft_rt_start, in which another device of
 * this rank than w's ran a task of another call (not of none, and none
 * that restores). Of what ended before, it sees what is in the records. */
double weft_rt_hidden_s(struct weft_rt *rt, const struct weft_worker *w,
                        int32_t call, double start_us, double end_us);

/* ---- Sequences and tasks ---------------------------------------------- */

struct weft_seq {
    struct weft_rt *rt;
    pthread_mutex_t mutex; /* guards n_pending, n_in_lot, first, first_at */
    /* signalled when all tasks, or all of a lot, have ended */
    pthread_cond_t ended;
    long n_pending;
    long n_in_lot[WEFT_LOTS]; /* pending ones by lot % WEFT_LOTS */
    int64_t lot;              /* lot of what is inserted now */
    atomic_int failed;        /* the first error's code */
    struct weft_err first;
    int64_t first_at;   /* copies inserted before what failed */
    bool first_follows; /* when another rank had */
    bool common;        /* all ranks know it */
    int64_t n_told;     /* rank 0's decisions so far */
    struct weft_gates *gates;
    /* the gang that is being inserted; whose turn it is; 0 of 0: none */
    struct weft_team *team;
    int n_members, member;
    struct weft_seq *next; /* in the runtime's list; guarded by rt->mutex */
};

/* A gang while its members run. */
struct weft_team {
    struct weft_gang gang;
    atomic_int n_users;             /* tasks that point at it */
    atomic_uint round;              /* meetings that have ended */
    atomic_int n_arrived, n_asleep; /* at this one */
    atomic_int n_left, failed;      /* bodies that have returned; any error */
    int spins;                      /* before a member sleeps */
    pthread_mutex_t mutex;          /* of those that sleep */
    pthread_cond_t moved;
    void *shared[WEFT_GANG_MEMBERS];
};
/* Whether the task that is inserted now is a member, and which of how many;
 * team NULL: it is none, or is only recorded, or the sequence has failed. */
struct weft_team *weft_team_next(struct weft_seq *seq, int *member_out,
                                 int *n_out);
/* A task no longer needs it; NULL is allowed. */
void weft_team_drop(struct weft_team *team);
/* A member's body returned rc, or did not run; it waits for the others. */
void weft_team_leave(struct weft_team *team, bool ran, int rc);

/* Counts one task more, with n accesses; returns its lot. */
int64_t weft_seq_begin(struct weft_seq *seq, int n_accesses);
void weft_seq_end(struct weft_seq *seq, int64_t lot, int n_accesses);
/* Records an error, unless there was one before; err->code is not 0. at:
 * number of copies inserted before what failed. */
void weft_seq_record(struct weft_seq *seq, int64_t at,
                     const struct weft_err *err);

/* The numbers of events among all of this rank (plan/recording.h); 0: not
 * yet. */
struct weft_moments {
    atomic_llong inserted, began, ended;
    uint32_t what;
};

/* A tile of this rank is released; its memory is given back, if that is the
 * inserting thread's doing. */
struct weft_release {
    atomic_llong began, ended;
    uint32_t what;
};

/* What an iteration's tasks did (ran.c), and what was released after the first
 * and before the next one's first. */
struct weft_ran {
    int32_t iteration;
    int64_t n, n_released; /* inserted; released */
    /* of the first of them */
    struct weft_moments *moments;
    struct weft_release *released;
};

struct weft_task {
    struct weft_node node;
    struct weft_seq *seq;
    struct weft_codelet *codelet;
    struct weft_where where;
    int64_t at; /* number of copies inserted before */
    int64_t lot;
    void *args;
    void **buf;                 /* (n_access) */
    struct weft_access *access; /* (n_access) */
    /* (n_held): the same with parts instead of cut tiles */
    struct weft_access *held;
    int n_access, n_held;
    struct weft_team *team;       /* NULL: none */
    struct weft_moments *moments; /* NULL: they are not noted */
    struct weft_span *span;       /* in the options' list; NULL: none */
    double inserted_us;           /* as the next, since weft_rt_start() */
    double start_us;              /* of the body */
    /* moves.h: its number, if it moves (0: it does not, or is not noted), and
     * moves that it waits for */
    int64_t move;
    int32_t first_wait, n_waits;
    int64_t on_stream;   /* weft_card_begin(), if it is under way */
    weft_body_fn at_end; /* NULL: nothing */
    /* of who copies: accesses that are missing */
    struct weft_copier *copier;
    atomic_int n_missing;
    int16_t member;    /* of the team */
    int8_t size;       /* of its block; -1: not kept (blocks.c) */
    bool follows;      /* others were under way on the stream before */
    bool is_under_way; /* its body put work on a stream, which may go on */
    struct weft_task
        *next; /* in the queue of who copies, or of free blocks */
};

/* Memory of tasks (blocks.c). Returns a task of zeros with bytes behind it that
 * are not zeroed. The inserting thread gets, anybody puts; _free gives all back
 * when no task is left. */
enum { WEFT_BLOCK_SIZES = 16 };
struct weft_blocks {
    struct {
        struct weft_task *free; /* the inserting thread's */
        struct weft_task *_Atomic ended;
    } list[WEFT_BLOCK_SIZES];
    void *slab; /* the last one; it begins with a link to the one before */
    char *rest; /* of it */
    size_t rest_bytes;
};
struct weft_task *weft_block_get(struct weft_rt *rt, size_t bytes);
void weft_block_put(struct weft_rt *rt, struct weft_task *t);
void weft_blocks_free(struct weft_rt *rt);

/* The steps of a task's life (insert.c, task.c), for those who run what StarPU
 * does not. */
struct weft_task *weft_task_create(struct weft_seq *seq,
                                   const struct weft_codelet *codelet,
                                   const void *args, size_t args_bytes,
                                   const struct weft_access *access,
                                   int n_access,
                                   const struct weft_where *where);
/* Takes references to its tiles, when it is complete. */
void weft_task_hold_tiles(struct weft_task *t);
/* It no longer needs the memory of its tiles, but for those of the card `left`
 * (NULL: none), which it has left before. */
void weft_task_leave_tiles(struct weft_task *t, const struct weft_card *left);
/* What a codelet is told that a GPU's tile has come to; with its label. */
#define WEFT_NO_CUDA_BODY                                                    \
    "does not run on GPUs yet, and '%s' lies in the memory of one"
/* Gets memory and calls the body, or what is left of that after an error. */
void weft_task_run(struct weft_task *t, struct weft_worker *w);
/* All that it does is done, and it leaves its tiles. */
void weft_task_over(struct weft_task *t, struct weft_worker *w,
                    const struct weft_card *left);
/* StarPU calls it when it is done with the task's data and has told its
 * successors; on the worker, if the task was under way on its stream. */
void weft_task_ended(void *task);
/* StarPU is done with their handles. */
void weft_task_drop_tiles(struct weft_task *t);
enum starpu_data_access_mode weft_starpu_mode(enum weft_mode mode);

/* Note that a task begins, and has ended: for times, records and the watchdog.
 * Called by the worker's thread. */
void weft_worker_begin(struct weft_worker *w, struct weft_task *t);
void weft_worker_end(struct weft_worker *w, const struct weft_task *t);

/* Calls the body. Tiles that it only writes are filled with NaN before, those
 * that it only reads must be the same afterwards. */
int weft_task_run_checked(struct weft_task *t, struct weft_exec *x);

/* ---- The runtime ------------------------------------------------------ */

struct weft_rt {
    int n_devices;  /* of this rank; the first is number first_device */
    int n_cards;    /* of these, which come first */
    int first_card; /* the machine's number of the first */
    int rank, n_ranks, first_device;
    int places_per_rank; /* n_devices, or one per card and one for all CPUs */
    int first_place;     /* of this rank */
    const struct weft_policy *policy; /* NULL: one of StarPU's */
    int min_priority, max_priority;   /* of StarPU's */
    int n_cores; /* that this process may use, by itself or with others */
    bool profile, nap, check_modes, starpu_on;
    /* what is inserted is noted there; NULL: nowhere */
    struct weft_recording *recording;
    struct weft_span *task_span; /* (n_task_spans) */
    int64_t n_task_spans;
    bool is_dry;    /* it records and runs nothing: there is no StarPU */
    bool all_ranks; /* and what it records is of all ranks */
    bool open_ends; /* when samples end is not known */
    bool gangs;     /* it records instructions, not what they expand to */
    int32_t joined_steps;
    int32_t repeats; /* weft_rt_repeat() */
    uint32_t calls;  /* whose tasks it records; 0: of all */
    double start_s;
    const char *call_name[WEFT_MAX_CALLS]; /* NULL: none */
    char *fxt_dir;                         /* NULL: no trace */
    bool fxt_began;
    atomic_bool fxt_stopped;
    int64_t n_inserted; /* also numbers the tasks */
    int64_t n_copies; /* calls of weft_insert_copy(), the same on all ranks */
    struct weft_traffic traffic[WEFT_N_MEM_CLASSES];
    /* (n_ranks) messages so far; numbers the next one */
    int64_t *n_sent, *n_received;
    atomic_long n_transfers; /* not ended */
    struct weft_message_time
        *message_time;       /* ring (WEFT_MESSAGE_TIMES) or NULL */
    int64_t n_message_times; /* ever; guarded by mutex, as the ring */
    struct weft_mark *mark;  /* ring (profile.c) or NULL */
    int64_t n_marks;         /* ever; the inserting thread's */
    atomic_long n_ended, n_external;
    struct weft_moves *moves;  /* NULL: they are not noted */
    struct weft_ran ran[2];    /* by iteration */
    struct weft_ran *ran_last; /* with what was inserted last */
    atomic_llong n_events;     /* noted so far */
    /* tasks and messages of all sequences, and what they take */
    atomic_long n_pending, pending_bytes;
    long most_pending, most_pending_bytes;
    struct weft_pool *pool; /* of host memory */
    struct weft_card *card; /* (n_cards) */
    bool gpus_apart;        /* weft_rt_gpus_apart() */
    struct weft_copier
        *copier;   /* (n_copiers), WEFT_CARD_COPIERS of each card */
    int n_copiers; /* whose threads run */
    bool direct;   /* weft_rt_options.direct_messages */
    char *stage;   /* of weft_tile_read(), pinned; NULL: not needed yet */
    struct weft_mailer *mailer; /* who posts these; NULL: nobody */
    struct weft_blocks blocks;
    struct weft_worker *worker; /* (n_workers) devices, then copiers */
    int n_workers;
    int64_t n_records;     /* ring of one worker */
    pthread_mutex_t mutex; /* guards the lists below */
    struct weft_tile *free_tile, *free_foreign, *all_tile;
    struct weft_seq *seq;
    struct weft_codelet *codelet;
    struct weft_external *external;
    struct weft_transfer *transfer, **last_transfer; /* by insertion */
    struct weft_watchdog *watchdog;                  /* NULL: off */
};

double weft_rt_now_us(const struct weft_rt *rt);
/* Whether this runtime runs, or records, what happens at a place. */
bool weft_rt_has_place(const struct weft_rt *rt, int place);

const char *weft_rt_call_name(const struct weft_rt *rt, int32_t call);

/* When tasks were inserted, began and ended, and what the inserting thread
 * released (ran.c). What is inserted now gets moments, or NULL; op: of
 * weft_rec_op_what(). */
int weft_ran_create(struct weft_rt *rt, struct weft_err *err);
void weft_ran_free(struct weft_rt *rt);
struct weft_moments *weft_ran_insert(struct weft_rt *rt, uint32_t op,
                                     const struct weft_where *where);
WEFT_INLINE void weft_ran_note(struct weft_rt *rt, atomic_llong *moment)
{
    atomic_store(moment, atomic_fetch_add(&rt->n_events, 1) + 1);
}
/* Whose doing this thread's memory is. */
extern _Thread_local struct weft_ran_doer {
    struct weft_rt *rt;
    atomic_llong *get, *put; /* NULL: no more, or not noted */
} weft_ran_doer;
/* A task begins, ends, or the inserting thread releases a tile: what memory
 * this thread gets or gives back until weft_ran_done() is its doing. moments:
 * NULL is not noted. */
WEFT_INLINE void weft_ran_begin(struct weft_rt *rt,
                                struct weft_moments *moments)
{
    if (!moments)
        return;
    weft_ran_doer = (struct weft_ran_doer){.rt = rt, .get = &moments->began};
    weft_ran_note(rt, &moments->began);
}
WEFT_INLINE void weft_ran_end(struct weft_rt *rt,
                              struct weft_moments *moments)
{
    if (!moments)
        return;
    weft_ran_doer = (struct weft_ran_doer){.rt = rt, .put = &moments->ended};
    weft_ran_note(rt, &moments->ended);
}
void weft_ran_release(const struct weft_tile *tile);
WEFT_INLINE void weft_ran_done(void)
{
    weft_ran_doer.get = weft_ran_doer.put = NULL;
}
/* This thread gets memory, or gives it back: called where that is counted, with
 * the lock, so that the moments are in the order of the counts. */
void weft_ran_get(void);
void weft_ran_put(void);

/* Checks device, position, chain and call. `op` is named in the error's
 * text. */
int weft_where_check(const struct weft_rt *rt, const char *op,
                     const struct weft_where *where, struct weft_err *err);
/* weft_insert() for tasks known to run here: where->device is one of this rank
 * or -1, and the tiles' places are not checked. */
void weft_insert_here(struct weft_seq *seq,
                      const struct weft_codelet *codelet, const void *args,
                      size_t args_bytes, const struct weft_access *access,
                      int n_access, const struct weft_where *where,
                      const struct weft_work *work);

/* Completes what nobody has answered with zeros, so that the runtime can
 * stop. */
void weft_external_abandon_all(struct weft_rt *rt);

/* Spinning before a thread sleeps: a wake-up costs about as much. A device's
 * thread that has a core for itself spins longer. */
enum { WEFT_SPIN_US = 20, WEFT_SPIN_ALONE_US = 10000 };

/* For loops that poll: the first calls return at once, later ones sleep longer
 * and longer. */
enum { WEFT_NAP_FIRST_US = 20, WEFT_NAP_LAST_US = 1000 };
struct weft_nap {
    int n_polls;
    int us;
};
void weft_nap(struct weft_nap *nap);

/* When this thread, and those that it starts from now on, run where threads
 * have fewer cores (wake.c). */
enum weft_wake { WEFT_WAKE_IN_TURN, WEFT_WAKE_FIRST, WEFT_WAKE_LAST };
void weft_wake(enum weft_wake how);

/* A variant of StarPU's policy `name` whose idle workers sleep; NULL: there is
 * none. */
struct starpu_sched_policy *weft_nap_policy(const char *name);

#endif
