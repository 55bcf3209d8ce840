/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording: the tasks and tiles of a run as data, in the order in which
 * graph functions inserted them. Recordings are made by rt (rt/graph.h), with
 * or without running the tasks; prediction and simulation read them.
 */
#ifndef WEFT_PLAN_RECORDING_H
#define WEFT_PLAN_RECORDING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/shape.h"
#include "plan/task.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tile, or a part of one: parts have no memory of their own. */
struct weft_rec_tile {
    size_t bytes;
    int64_t created, released; /* numbers of the tasks that were recorded
                                  before; released -1: never */
    int32_t place;
    int32_t whole; /* number of the tile that it is a part of; -1: none */
    uint32_t turn; /* among what was released after the same task */
    int16_t layer; /* whose it is; -1: none's */
    uint8_t mem;   /* enum weft_mem_class */
    /* has its memory from creation, not from the first task that writes it */
    bool permanent : 1;
    /* created early (enum weft_rec_when); created, used and released early and
     * never in turn */
    bool early : 1, ends_early : 1;
};

/* A tile's number and how a task uses it: 0 reads, 1 writes, 2 both (enum
 * weft_mode of rt/tile.h). */
struct weft_rec_access {
    uint32_t tile : 30, mode : 2;
};

/* Whether a task, or the creation or release of a tile, is always in its turn.
 * What is done when a sample has ended comes at other times in another run:
 * it could be inserted as soon as the last wait is over that is not for a
 * tile, but in its turn among the like. */
enum weft_rec_when {
    WEFT_REC_IN_TURN,
    WEFT_REC_EARLY,
    /* and it reads what is written until then by its iteration's tasks that
       are in their turn: which of them, that run decides */
    WEFT_REC_EARLIEST,
    /* in its turn; these of an iteration come one after another, after all of
       its earliest ones and what those read, or its samples' */
    WEFT_REC_AFTER_SAMPLES,
    WEFT_REC_SAMPLE /* in its turn; what is the earliest in another run */
};

static inline bool weft_rec_is_early(int when)
{
    return when == WEFT_REC_EARLY || when == WEFT_REC_EARLIEST;
}

/* What a task does (struct weft_work); of a message its bytes, of an answer
 * nothing. */
struct weft_rec_work {
    float flop, bytes, n_keys;
    int32_t n_rows;
    uint16_t n_steps;  /* 1 or more */
    uint16_t shape;    /* number in weft_recording.shape; 0: of no model */
    uint16_t n_layers; /* of all steps, as the next */
    uint16_t n_passes; /* through a layer's norms and the like */
};

/* A model and the number of its tensor blocks that a task computes. */
struct weft_rec_shape {
    struct weft_shape shape;
    int32_t n_blocks;
};

enum weft_rec_kind {
    WEFT_REC_TASK,    /* runs on a device of its place */
    WEFT_REC_COPY,    /* at its place, beside its devices: between places of a
                         rank, on the links of messages */
    WEFT_REC_MESSAGE, /* from one rank to another: it has no device */
    WEFT_REC_ANSWER   /* from outside: it has no place */
};

/* Whether it is done at its place. */
static inline bool weft_rec_is_here(int kind)
{
    return kind == WEFT_REC_TASK || kind == WEFT_REC_COPY;
}

struct weft_rec_task {
    int64_t position; /* as in struct weft_where, down to layer */
    int64_t access;   /* number of its first access */
    int32_t n_access;
    int32_t device; /* in the job; -1: any of its place */
    int32_t place;  /* -1: none */
    int32_t iteration, micro_batch, layer;
    int32_t priority;
    uint16_t op; /* its operation's number, see weft_recording_op() */
    uint8_t call, chain, kind;
    uint8_t when : 7; /* enum weft_rec_when */
    uint8_t moves : 1;
    /* of a gang (struct weft_rec_gang): who it is, of how many; 0 of 0: none */
    uint8_t member, n_members;
    int32_t gang; /* its number in weft_recording.gang */
    struct weft_rec_work work;
};

/* Where the inserting thread waited, between two tasks. */
struct weft_rec_wait {
    int64_t task;  /* number of tasks recorded before */
    int64_t ended; /* tasks before this number had ended then */
    int32_t tile;  /* and those that had written this one; -1: none */
    bool local;    /* each rank waited for its own tasks alone; else no rank
                      went on before all of them had ended */
};

enum { WEFT_REC_MEMBERS = 32 }; /* of a gang, at most */

/* Temporary tiles of a gang's member that are there only within what it stands
 * for, by when they can begin and end. They begin with its task, with a copy
 * from another place, or when a message is expected; they end with its task, or
 * others read them. */
enum { WEFT_REC_OWN, WEFT_REC_COPIED, WEFT_REC_EXPECTED, WEFT_REC_N_BEGINS };
enum { WEFT_REC_KEPT, WEFT_REC_SENT, WEFT_REC_N_ENDS };
enum { WEFT_REC_SLOTS = WEFT_N_MEM_CLASSES };
struct weft_rec_temps {
    /* as blocks of the place's memory, and at last those of slots, which are
       in their classes, too (plan/card_memory.h) */
    int64_t bytes[WEFT_REC_N_BEGINS][WEFT_REC_N_ENDS][WEFT_REC_SLOTS + 1];
    int64_t kinds;                       /* of these slots: bits 1 << kind */
    int64_t message[WEFT_N_MEM_CLASSES]; /* the largest that one uses */
};

/* The task of one member of a tp group that stands for its part in the
 * expansion of an instruction; its tiles from outside are those of its place.
 * The members' tasks follow one another, begin together and end together. */
struct weft_rec_gang {
    int64_t received_bytes; /* from other members' places ... */
    int32_t n_received;     /* ... so often */
    int32_t n_expanded;     /* tasks and messages that it stands for */
    int32_t task;           /* its number */
    int32_t temps;          /* number in weft_recording.temps */
    /* members that are not recorded (weft_recording.left_out), and the place
     * of one of them */
    int32_t n_left_out, left_out_place;
    bool ahead; /* some members wait for no other */
};

/* Where an instruction is inserted: on devices and places of its members, with
 * what all its tasks have in common. next: the last position of the member's
 * device and chain; NULL: its tasks have none. */
struct weft_rec_member {
    int32_t device, place;
    int64_t *next;
};
struct weft_rec_site {
    struct weft_where where; /* without device and position */
    int32_t n;
    struct weft_rec_member member[WEFT_REC_MEMBERS];
};

/* An instruction that has not ended: where it began, what its expansion is a
 * function of, and the tiles from outside that it may use. */
enum { WEFT_REC_GANGS_WITHIN = 4 };
struct weft_rec_mark {
    int64_t task, access, tile, gang, released;
    struct weft_rec_site site;
    int64_t begin[WEFT_REC_MEMBERS]; /* positions before it */
    int64_t *word;
    int32_t *outside;
    int64_t n_words, word_room, n_outside, outside_room;
};
struct weft_rec_pattern; /* what an instruction's expansion came to */

struct weft_recording {
    struct weft_rec_task *task;
    struct weft_rec_access *access;
    struct weft_rec_tile *tile;
    struct weft_rec_wait *wait;
    const char **op;
    int64_t n_tasks, n_accesses, n_tiles, n_waits, n_ops;
    /* in elements */
    int64_t task_room, access_room, tile_room, wait_room, op_room;
    int64_t *lot; /* (n_lots) where lots begin, in tasks */
    int64_t n_lots, lot_room;
    struct weft_rec_gang *gang; /* (n_gangs) by task */
    int64_t n_gangs, gang_room;
    struct weft_rec_temps *temps; /* (n_temps) all different */
    int64_t n_temps, temps_room;
    /* of instructions that have not ended: where they began; tiles released
     * since */
    struct weft_rec_mark mark[WEFT_REC_GANGS_WITHIN];
    int32_t n_marks;
    struct weft_rec_pattern *pattern;
    int32_t
        *pattern_at; /* (pattern_slots) by what they depend on; from 1 on */
    int64_t n_patterns, pattern_room, pattern_slots;
    int32_t *released, *slot;
    int64_t n_released, released_room, slot_room;
    uint32_t n_turns;             /* releases so far */
    struct weft_rec_shape *shape; /* (n_shapes) number 0 is of no model */
    int64_t n_shapes, shape_room;
    enum weft_rec_when when; /* what is recorded now */
    /* by place; NULL: none. What is done there, and what passes between two of
     * them, is not recorded, of an instruction only other members. What is read
     * from there has been written before; borrowed */
    const bool *left_out;
    /* members that were left out of the last gang, and the place of one */
    int32_t n_left_out, left_out_place;
    int32_t n_gpus;          /* of each rank: its first places ... */
    int32_t places_per_rank; /* ... of so many; 0: where it has no GPUs */
    int64_t scratch_bytes;   /* of a GPU, the most that a task takes */
    /* asked now and then whether to give up; NULL: nobody is */
    bool (*stop)(void *ctx);
    void *stop_ctx;
    bool stopped;  /* it said so, and the recording is full */
    bool full;     /* memory or numbers ran out: what came then is missing */
    int64_t bytes; /* of its arrays */
    int64_t most_bytes; /* it may have, until it is full; 0: no limit */
};

/* Whether a tile has a GPU's memory. */
WEFT_INLINE bool weft_rec_tile_on_card(const struct weft_recording *r,
                                       const struct weft_rec_tile *tile)
{
    return r->n_gpus > 0 && tile->place % r->places_per_rank < r->n_gpus
        && !weft_mem_class_on_host((enum weft_mem_class) tile->mem);
}
/* Bytes that its memory has. */
int64_t weft_rec_tile_block_bytes(const struct weft_recording *r,
                                  const struct weft_rec_tile *tile);

/* The caller frees it with weft_recording_release(). */
void weft_recording_init(struct weft_recording *r);
void weft_recording_release(struct weft_recording *r);
/* Gives back what arrays have in reserve. */
void weft_recording_trim(struct weft_recording *r);
/* 0, or WEFT_ENOMEM when something is missing, WEFT_EINTERRUPTED where r->stop
 * said so. */
int weft_recording_status(const struct weft_recording *r,
                          struct weft_err *err);

/* Asks r->stop, as adding tasks does now and then. */
void weft_recording_ask(struct weft_recording *r);

/* Adds a tile; `created` is filled in. Returns its number. */
int32_t weft_recording_tile(struct weft_recording *r,
                            const struct weft_rec_tile *tile);
void weft_recording_release_tile(struct weft_recording *r, int32_t tile);
/* Gives tasks from the first on another operation's name, which lives as long as
 * r, where they have one. */
void weft_recording_rename(struct weft_recording *r, int64_t first,
                           const char *from, const char *to);
/* Adds a task at `place`, which has no accesses yet; `op` lives as long as r.
 * weft_recording_access() then adds them one by one. */
void weft_recording_task(struct weft_recording *r, enum weft_rec_kind kind,
                         const char *op, const struct weft_where *where,
                         int32_t place);
void weft_recording_access(struct weft_recording *r, int32_t tile, int mode);
/* What the last task does, when all its accesses have been added; NULL: only
 * what its tiles say. */
void weft_recording_work(struct weft_recording *r,
                         const struct weft_work *work);
/* The work of n like it, one after another. */
void weft_rec_work_repeat(struct weft_rec_work *work, double n);
/* The last task stands for n of the like, one after another. */
void weft_recording_repeat(struct weft_recording *r, int32_t n);
/* Layer l of a model stands for times[l] of the like, l < n_layers: its tasks
 * do as much work, its tiles are as large. A task without a layer does as much
 * more as the tiles are larger that it uses, and a message as the one that it
 * reads: so an activation that passes from stage to stage has to be no
 * layer's. */
void weft_recording_stretch(struct weft_recording *r, int32_t n_layers,
                            const int32_t times[]);
/* Tasks of the recording, with those that its instructions stand for. */
int64_t weft_recording_n_expanded(const struct weft_recording *r);
/* What is recorded from here on is in its turn, or what is done when a sample
 * has ended: see enum weft_rec_when. */
void weft_recording_when(struct weft_recording *r, enum weft_rec_when when);
/* A lot begins (rt/graph.h): its number. */
int64_t weft_recording_lot(struct weft_recording *r);
/* The program waited for all tasks, or for those of a lot. */
void weft_recording_wait(struct weft_recording *r);
/* ... for the tasks that write the tile. */
void weft_recording_wait_tile(struct weft_recording *r, int32_t tile);
void weft_recording_wait_lot(struct weft_recording *r, int64_t lot);

/* Replaces what is recorded between them, an instruction's expansion, by a
 * task `op` of each member, unless nothing was. There is no wait between them.
 * Instructions may hold others, which they then replace, too.
 *
 * Where it is said what the expansion is a function of, it is recorded only
 * once: words, and the tiles from outside, which differ. A site (NULL: it is
 * not said) has the members; words then say what else matters, where devices
 * and places count from those of the first member. A tile's words hold its
 * bytes and place, and whether it came before. If weft_recording_gang_again()
 * says true, the same was recorded before, and the members' tasks now are:
 * there is no end then.
 *
 * work: what each member of the site does; NULL, or without a site: what the
 * tasks do that it stands for, which words and tiles then determine. */
void weft_recording_gang_begin(struct weft_recording *r,
                               const struct weft_rec_site *site);
void weft_recording_gang_word(struct weft_recording *r, int64_t word);
void weft_recording_gang_tile(struct weft_recording *r, int32_t tile);
bool weft_recording_gang_again(struct weft_recording *r, const char *op,
                               int32_t layer, const struct weft_work *work);
void weft_recording_gang_end(struct weft_recording *r, const char *op,
                             int32_t layer, const struct weft_work *work);
/* Whether what is done at a place is not recorded; within an instruction all
 * is. */
static inline bool weft_recording_leaves_out(const struct weft_recording *r,
                                             int32_t place)
{
    return r->left_out && r->n_marks == 0 && r->left_out[place];
}
/* Says, of one member after another, that the last task is one of a gang's n,
 * which all do one thing each: no instruction, but tasks that run together. Of
 * members at places that are left out there is no task. work: what it reads of
 * the others, so many times; NULL: nothing. */
struct weft_rec_member_of {
    int32_t member, n, place;
    const struct weft_work *work;
    int32_t times;
};
void weft_recording_member(struct weft_recording *r,
                           const struct weft_rec_member_of *of);
/* Says that the next task is a gang's. */
void weft_recording_gang(struct weft_recording *r,
                         const struct weft_rec_gang *gang);
/* What is said of a task that is a gang's; NULL: it is none. */
const struct weft_rec_gang *weft_recording_gang_of(
    const struct weft_recording *r, int64_t task);

/* Of the parts of this: makes room for n elements more of `size` bytes in an
 * array (a pointer to its pointer) with so many used; false when there is no
 * memory, from then on. */
bool weft_recording_grow(struct weft_recording *r, void *array, int64_t used,
                         int64_t *capacity, int64_t n, size_t size);
static inline bool weft_recording_room(struct weft_recording *r, void *array,
                                       int64_t used, int64_t *capacity,
                                       int64_t n, size_t size)
{
    return !r->full
        && (used + n <= *capacity
            || weft_recording_grow(r, array, used, capacity, n, size));
}
void weft_recording_patterns_release(struct weft_recording *r);

/* The tasks of the gang that a task belongs to: *first_out .. *end_out - 1; a
 * task of none is alone. */
void weft_recording_members(const struct weft_recording *r, int64_t task,
                            int64_t *first_out, int64_t *end_out);

/* The operation of a task, as in messages and traces: "layer_forward". */
const char *weft_recording_op(const struct weft_recording *r, int64_t task);

/* Finds the first difference of two recordings' tasks and tiles. Returns true
 * when there is none; else `text` names it. */
bool weft_recording_same(const struct weft_recording *a,
                         const struct weft_recording *b, char *text,
                         size_t size);

/* What tasks wait for, by their data: a task that reads a tile waits for the
 * last one that wrote it; one that writes it, also for those that have read it
 * since. Indexed by access. */
struct weft_rec_order {
    const struct weft_recording *r;
    int32_t *task;   /* (n_accesses) whose access it is */
    int32_t *before; /* (n_accesses) the tile's access before it; -1: none */
    int32_t *writer; /* (n_accesses) the last one before it that writes */
};
/* Borrows r. Errors: WEFT_ENOMEM, also of more than 2^31 accesses. */
int weft_rec_order_create(const struct weft_recording *r,
                          struct weft_rec_order *out, struct weft_err *err);
void weft_rec_order_release(struct weft_rec_order *order);
/* Calls visit with the number of every task that `task` waits for itself; a
 * number may come more than once. */
void weft_rec_order_visit(const struct weft_rec_order *order, int64_t task,
                          void (*visit)(void *ctx, int64_t before),
                          void *ctx);

/* Bytes that the runtime and StarPU hold for a task with n accesses from its
 * insertion to its end, its arguments apart: as measured with StarPU 1.3
 * (tests/rt/test_record.c measures again). */
size_t weft_rec_task_bytes(int64_t n_accesses);

/* The most tasks and messages of a rank that are inserted and may not have
 * ended at one time, given where the program waited; most_out (n_ranks).
 * Errors: WEFT_ENOMEM. */
struct weft_rec_open {
    int64_t tasks, bytes;
    int64_t largest; /* bytes of one record */
};
int weft_recording_open(const struct weft_recording *r, int32_t n_ranks,
                        int32_t places_per_rank,
                        struct weft_rec_open *most_out, struct weft_err *err);

/* The most bytes of each class, and of all classes together, that tiles can
 * take at each place at one time, in whatever order tasks run that data,
 * positions and waits allow; out (n_places). Classes that are no part of a
 * place's memory, or that a GPU's place has in host memory, are not part of
 * the sum, and records of tasks are not counted. It is an upper bound, often
 * the least one. Errors: WEFT_ENOMEM. */
int weft_recording_memory(const struct weft_recording *r, int32_t n_places,
                          int32_t places_per_rank,
                          int64_t (*out)[WEFT_MEM_ALL + 1],
                          struct weft_err *err);

/* When a task or message was inserted, began and ended: the numbers, from 1 on,
 * of these events in their order on its rank; 0: it has not. */
struct weft_rec_moments {
    int32_t inserted, began, ended;
    uint32_t what; /* weft_rec_ran_what() */
};

/* When the program released a tile of its rank, and had given the memory back
 * if no task kept it. */
struct weft_rec_release {
    int32_t began, ended;
    uint32_t what; /* weft_rec_tile_what() */
};

/* How the tasks, messages and answers of an iteration ran on a rank, and what
 * was released from the first one's insertion to the next iteration's. */
struct weft_rec_ran {
    int32_t iteration;
    int32_t first_place, n_places; /* of the rank */
    bool known;
    int64_t n, n_released;
    /* (n), (n_released), in the order of insertion and of release */
    struct weft_rec_moments *moments;
    struct weft_rec_release *released;
};

/* Tell tasks of an iteration, and kinds of tiles, apart. */
uint32_t weft_rec_op_what(const char *op);
WEFT_INLINE uint32_t weft_rec_ran_what(uint32_t op, int32_t call,
                                       int32_t layer)
{
    return (op ^ (uint32_t) call << 16 ^ (uint32_t) layer) * 16777619u;
}
uint32_t weft_rec_tile_what(size_t bytes, int mem, int32_t place);

/* How a rank played its part of a recording. Zeros: tasks of others or not yet
 * inserted, tiles of others or whose release was not noted. */
struct weft_rec_played {
    struct weft_rec_moments *moments; /* (n_tasks) */
    int32_t *released;                /* (n_tiles) */
};

/* Finds the moments of a rank's recorded tasks among those of its iterations
 * that ran, and those of its tiles' releases among what was released between
 * the same tasks, which may be more: tiles of an iteration before. A task that
 * did not come, as tiles had been cut by an iteration before, took no time.
 * *known_out: false where others came than are recorded. The caller releases
 * *out, also after an error. Errors: WEFT_ENOMEM. */
int weft_recording_follow(const struct weft_recording *r,
                          const struct weft_rec_ran *ran, int32_t n_ran,
                          bool *known_out, struct weft_rec_played *out,
                          struct weft_err *err);
void weft_rec_played_release(struct weft_rec_played *played);

/* The most bytes that tiles took, in the form of weft_recording_memory(). A
 * temporary tile has memory from the begin of the first task that writes it
 * until it is released and all tasks that use it have ended; it is released by
 * the next task's insertion where that was not noted. Tasks that were not
 * inserted are taken to run one after another when all others have ended.
 * Errors: WEFT_ENOMEM. */
int weft_recording_memory_ran(const struct weft_recording *r,
                              const struct weft_rec_played *played,
                              int32_t n_places, int32_t places_per_rank,
                              int64_t (*out)[WEFT_MEM_ALL + 1],
                              struct weft_err *err);

#ifdef __cplusplus
}
#endif
#endif
