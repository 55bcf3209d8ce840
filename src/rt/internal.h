/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime's own structures; for src/rt alone. */
#ifndef WEFT_RT_INTERNAL_H
#define WEFT_RT_INTERNAL_H

#include <pthread.h>

#include "plan/recording.h"
#include "rt/codelet.h"
#include "rt/policy.h"
#include "rt/pool.h"
#include "rt/watchdog.h"
#include "rt/world.h"

/* ---- Tiles ------------------------------------------------------------ */

/* A GPU of this rank, which is a place. Tiles there have its memory, and their
 * handles are at home on its node; but for those of classes that lie in host
 * memory (weft_mem_class_on_host()). */
struct weft_card {
    struct weft_pool *pool;
    unsigned node;               /* StarPU's memory node */
    struct weft_tile *free_tile; /* as rt->free_tile */
};

struct weft_moments;

/* The handle orders the tasks; the memory is Weft's own, and StarPU moves and
 * allocates nothing (interface.c). Registering a handle costs 10 us and more,
 * so it is done once, and struct and handle are reused for later tiles. A tile
 * of another rank has neither handle nor memory. */
struct weft_tile {
    struct weft_rt *rt;
    struct weft_card *card;      /* whose memory it has; NULL: the host's */
    starpu_data_handle_t handle; /* NULL: of another rank, or a recorder's */
    bool here;                   /* of this rank */
    struct weft_tile_id id;
    enum weft_mem_class mem;
    size_t bytes;
    bool is_reserved; /* its bytes are counted, and it has no memory */
    /* the tile that this is a part of, which has the memory; or NULL */
    struct weft_tile *whole;
    size_t offset; /* there */
    /* (n_parts); tasks then use their handles, not its own */
    struct weft_tile **part;
    int n_parts; /* 0: it is not cut */
    /* NULL: temporary and not written yet, or a part */
    void *_Atomic data;
    atomic_llong after;    /* of its memory: as in struct weft_need */
    atomic_int n_users;    /* users of the memory: owner, bodies, messages */
    atomic_int n_refs;     /* users of the struct: owner, StarPU's tasks */
    atomic_int n_writers;  /* tasks that write and have not ended */
    atomic_int n_receives; /* how many of these writers are messages */
    atomic_int trouble;    /* error code that posting a message met */
    double message_us;     /* when one was last posted */
    /* of the next one that asks for the memory, to receive; or NULL */
    struct weft_moments *_Atomic receive;
    /* messages that have asked for the memory; that have come */
    atomic_int n_asked, n_came;
    void *acquired; /* the program's copy of a card's tile */
    bool acquired_writes;
    int32_t number; /* in the runtime's recording, if it makes one */
    uint64_t mark;  /* last insertion that listed this tile ... */
    int slot;       /* ... and the number of its handle there */
    struct weft_work_rows rows;
    struct weft_tile *next; /* next one in the list of free structs */
    struct weft_tile *all;
};

/* "actor layer 3 block 1 weights" */
void weft_tile_label(const struct weft_tile *tile, char *text, size_t size);
/* Its memory; NULL when it has none yet. */
WEFT_INLINE void *weft_tile_memory(const struct weft_tile *tile)
{
    const struct weft_tile *base = tile->whole ? tile->whole : tile;
    char *data = atomic_load(&base->data);
    return data ? data + tile->offset : NULL;
}
/* Its memory; a temporary tile without memory gets it now. NULL: none is
 * left. */
void *weft_tile_data(struct weft_tile *tile, bool zeroed);
/* The work of this number on the stream of its card's worker uses its memory;
 * the last that does, or -1. */
void weft_tile_used(struct weft_tile *tile, int64_t number);
int64_t weft_tile_user(const struct weft_tile *tile);
/* Writes an error that no memory is left for it. Returns WEFT_ENOMEM. */
int weft_tile_refuse(const struct weft_tile *tile, struct weft_err *err);
/* Its memory for a message, which always gets some: zeros if nobody wrote the
 * tile, and even beyond the memory limit. `trouble` then records the error. */
void *weft_tile_message(struct weft_tile *tile);
/* A tile has two lives. Its memory is given back when the last body that uses
 * it has ended, before the next task may ask for memory. The struct with the
 * handle goes to the next tile only when StarPU is done with the last task,
 * as StarPU asks for sizes after the body. */
/* uses its memory and the struct */
WEFT_INLINE void weft_tile_hold(struct weft_tile *tile)
{
    atomic_fetch_add(&tile->n_users, 1);
    atomic_fetch_add(&tile->n_refs, 1);
}
void weft_tile_give_back(struct weft_tile *tile);       /* its memory */
WEFT_INLINE void weft_tile_done(struct weft_tile *tile) /* with its memory */
{
    if (atomic_fetch_sub(&tile->n_users, 1) == 1)
        weft_tile_give_back(tile);
}
void weft_tile_give_up(struct weft_tile *tile); /* the struct */
/* ends the use of the struct, after that */
WEFT_INLINE void weft_tile_drop(struct weft_tile *tile)
{
    if (atomic_fetch_sub(&tile->n_refs, 1) == 1)
        weft_tile_give_up(tile);
}
void weft_tile_unhold(struct weft_tile *tile);   /* both */
void weft_tile_register(struct weft_tile *tile); /* makes its handle */
void weft_interface_start(void);
/* Its memory node, where its handle is at home. */
WEFT_INLINE unsigned weft_tile_node(const struct weft_tile *tile)
{
    return tile->card ? tile->card->node : STARPU_MAIN_RAM;
}
/* The body of a codelet that only waits for its tiles. Returns 0. */
int weft_no_work(const void *args, void *const buf[], int n_buf,
                 struct weft_exec *x);
/* Whether it has a GPU's memory, or would have, where it is only recorded. */
bool weft_tile_on_card(const struct weft_tile *tile);
/* The device that does what is to be done at a place by any; -1: one of those
 * that share it. */
int weft_place_device(const struct weft_rt *rt, int place);
/* Drops the owner's references to its parts (parts.c). */
void weft_tile_drop_parts(struct weft_tile *tile);
/* Frees all tiles with their handles; called when no task is left. */
void weft_tile_free_all(struct weft_rt *rt);

/* ---- Workers ---------------------------------------------------------- */

struct weft_record {
    const struct weft_codelet *codelet;
    double start_us, end_us; /* since weft_rt_start */
    int32_t iteration, micro_batch, layer;
    int16_t call;
    bool restores;
};

struct weft_exec {
    struct weft_rt *rt;
    struct weft_card *card; /* NULL: a CPU device */
    struct weft_err err;
    /* the stream of who only copies; NULL: the worker of a device */
    struct CUstream_st *copies;
    int64_t on_stream;      /* number of the body's work there */
    int device;             /* in the job; -1: of who copies */
    struct weft_team *team; /* of the body that runs; NULL: none */
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

/* Work of a card (card.c). The host's node with any pointer of the host. _copy
 * with stream NULL ends before it returns, as _zero does, and comes after what
 * was put on any stream of the card before; _error: the code of a body that
 * returned rc, with what was refused when it was launched. What fails later
 * ends the job with a sentence; _note: of the worker whose thread this is. */
/* The calling thread uses one of this rank's cards from here on, if it named
 * none yet. Else its first call of CUDA would take some hundred MiB of the
 * machine's card 0, which may be another rank's. */
void weft_card_use(const struct weft_rt *rt);
/* Lets this rank's cards use one another's memory. false: some may not. */
bool weft_card_join_all(const struct weft_rt *rt);
void weft_card_zero(unsigned node, void *to, size_t bytes);
void weft_card_copy(unsigned to_node, void *to, unsigned from_node,
                    const void *from, size_t bytes,
                    struct CUstream_st *stream);
int weft_card_error(struct weft_exec *x, int rc);
struct weft_worker;
void weft_card_note(const struct weft_worker *w);
/* When the work of a body began and ended on the worker's stream: _begin, which
 * returns its number, and _end are called around the body. weft_card_took() is
 * called when the work has ended, in the order of numbers: microseconds that it
 * took, and, unless since_us_out is NULL, from the end of the one before. */
int64_t weft_card_begin(struct weft_worker *w);
void weft_card_end(struct weft_worker *w, int64_t number);
double weft_card_took(struct weft_worker *w, int64_t number,
                      double *since_us_out);
void weft_card_clear(struct weft_worker *w);
/* Waits for the end of work, awake for spin_us at most; lets what comes next on
 * the stream of one who copies wait for work of the card's worker `user`, -1:
 * for none. */
void weft_card_wait(struct weft_worker *w, int64_t number, double spin_us);
void weft_card_follow(struct weft_worker *w, struct weft_worker *user,
                      int64_t number);
/* Makes, and destroys, the stream of one who copies, for its thread. */
void weft_card_open(struct weft_worker *w);
void weft_card_close(struct weft_worker *w);

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
/* Adds a span that begins after those before it; one too many joins the two
 * spans with the least time between. */
void weft_pieces_add(struct weft_pieces *pieces, double start_s,
                     double end_s);
/* No tasks: zeros. */
struct weft_call_time weft_times_get(const struct weft_times *times,
                                     int32_t iteration, int32_t call);

/* More than the bodies whose work may be under way on a stream (StarPU's
 * pipeline, at most 4), and the one before them. */
enum { WEFT_CARD_EVENTS = 8 };

/* Those who copy to a card, and from it. */
enum { WEFT_CARD_COPIERS = 2 };

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
    int64_t first_at; /* copies inserted before what failed */
    bool common;      /* all ranks know it */
    int64_t n_told;   /* rank 0's decisions so far */
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
    double start_us;              /* of the body, since weft_rt_start */
    int64_t on_stream;            /* weft_card_begin(), if it is under way */
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
 * are not zeroed; NULL: out of memory. The inserting thread gets, anybody puts;
 * _free gives all back when no task is left. */
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
 * does not. NULL: out of memory. */
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
    struct weft_mark *mark;  /* ring (WEFT_MARKS) or NULL */
    int64_t n_marks;         /* ever; the inserting thread's */
    atomic_long n_ended, n_external;
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

/* Messages between ranks. They do nothing in a job of one rank. */
enum { WEFT_MESSAGE_TIMES = 1 << 14 }; /* records kept: 2 MiB */
struct weft_message_time {
    /* when it was posted and done, since weft_rt_start */
    double start_us, end_us;
    size_t bytes;
    int32_t peer, iteration;
    bool sends;
    char label[80];
};
/* What weft_rt_mark() notes. */
enum { WEFT_MARKS = 1 << 14 };
struct weft_mark {
    const char *what, *of;
    double at_us; /* since weft_rt_start */
    int32_t call, iteration, which;
};
int weft_transfer_create(struct weft_rt *rt, struct weft_err *err);
void weft_transfer_free(struct weft_rt *rt);
/* Starts and stops StarPU-MPI, while all ranks have StarPU. Collective. */
void weft_transfer_start(struct weft_rt *rt);
void weft_transfer_stop(struct weft_rt *rt);
/* Sends src, receives dst, or does nothing when neither is here. */
void weft_transfer_insert(struct weft_seq *seq,
                          const struct weft_where *where,
                          struct weft_tile *src, struct weft_tile *dst);
/* Starts the messages' numbers again. All ranks call it, or none. */
void weft_transfer_renumber(struct weft_rt *rt);
/* Logs a warning about messages that have not come. */
void weft_transfer_report(struct weft_rt *rt);
#ifdef WEFT_HAVE_MPI
void weft_interface_messages(void); /* tells StarPU-MPI */
#endif

/* Who copies to and from cards, beside their workers (copier.c). _stop is
 * called when nothing is left to copy. */
int weft_copiers_start(struct weft_rt *rt, struct weft_err *err);
void weft_copiers_stop(struct weft_rt *rt);
/* Inserts what a card's copier does: a body that copies, with accesses to
 * tiles that have no parts, or one that does nothing. where: no device. */
void weft_insert_beside(struct weft_seq *seq,
                        const struct weft_codelet *codelet, const void *args,
                        size_t args_bytes, const struct weft_access access[2],
                        const struct weft_where *where);
/* src and dst are here. */
void weft_copy_here(struct weft_seq *seq, const struct weft_where *where,
                    struct weft_tile *src, struct weft_tile *dst);

double weft_rt_now_us(const struct weft_rt *rt);
/* Whether this runtime runs, or records, what happens at a place. */
bool weft_rt_has_place(const struct weft_rt *rt, int place);

const char *weft_rt_call_name(const struct weft_rt *rt, int32_t call);

/* The environment (environment.c). Refuses variables that ask StarPU for what
 * Weft decides itself: ignoring them silently would surprise the user. A value
 * that asks for the same as Weft does is fine. Errors: WEFT_EINVAL. */
int weft_environment_check(struct weft_err *err);
/* Sets the folder where StarPU keeps measurements of the machine, unless the
 * user has set it; StarPU's default is the user's home itself. */
void weft_environment_set_home(void);
/* With CUDA, StarPU measures the buses when it first starts, into files that
 * another process, such as the next rank, would read half-written. Takes a lock
 * in their folder; returns its descriptor, which the caller closes, or -1. */
int weft_environment_lock_home(void);

/* Recording (record.c). They do nothing where there is no recording. */
void weft_record_tile(struct weft_tile *tile, bool permanent);
void weft_record_part(const struct weft_tile *part); /* of part->whole */
void weft_record_release(const struct weft_tile *tile);
/* A task with the parts of its tiles; where->device is one of the job. */
void weft_record_task(struct weft_rt *rt, enum weft_rec_kind kind,
                      const char *op, const struct weft_where *where,
                      const struct weft_access *access, int n_access,
                      const struct weft_work *work);
/* The task that was inserted last is one of a gang's n. */
void weft_record_member(struct weft_rt *rt, const struct weft_where *where,
                        int member, int n);
/* Where it is noted when the last one ran; NULL: nowhere. */
struct weft_span *weft_record_span(const struct weft_rt *rt);
/* A message from src to dst, one of which may be another rank's. */
void weft_record_message(struct weft_rt *rt, const struct weft_where *where,
                         struct weft_tile *src, struct weft_tile *dst);
void weft_record_answer(struct weft_rt *rt, const struct weft_where *where,
                        const struct weft_tile *tile);

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
    weft_ran_doer.rt = rt;
    weft_ran_doer.get = &moments->began;
    weft_ran_note(rt, &moments->began);
}
WEFT_INLINE void weft_ran_end(struct weft_rt *rt,
                              struct weft_moments *moments)
{
    if (!moments)
        return;
    weft_ran_doer.rt = rt;
    weft_ran_doer.put = &moments->ended;
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

/* Whether StarPU can start so many devices within the process's limits. */
int weft_limits_check(int n_devices, struct weft_err *err);

/* Spinning before a thread sleeps: a wake-up costs about as much. */
enum { WEFT_SPIN_US = 20 };

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

/* Trace events around StarPU's life (fxt.c). They go to a folder of their own
 * under TMPDIR. When StarPU has stopped everywhere, rank 0 turns those of all
 * ranks into dir/paje.trace: collective; errors are common to all ranks. At
 * last every rank that began clears its folder away. */
int weft_fxt_begin(struct weft_err *err);
int weft_fxt_end(const char *dir, struct weft_err *err);
void weft_fxt_clear(void);
void weft_fxt_off(void);
/* Corrects StarPU's Paje trace `raw` into `path`: definitions come first, then
 * the events in a stable order by time; colours get the range that Paje
 * wants; containers of threads that have events, and were never created, are
 * created before the first. */
int weft_paje_mend(const char *raw, const char *path, struct weft_err *err);
/* Tracing ends after so many tasks, as a trace grows by 1 KB per task and
 * converting it takes 0.1 ms per task. */
enum { WEFT_FXT_TASKS = 20000 };

#endif
