/* SPDX-License-Identifier: Apache-2.0 */
/* What a tile is within the runtime; for src/rt alone. */
#ifndef WEFT_RT_TILE_INSIDE_H
#define WEFT_RT_TILE_INSIDE_H

#include "rt/card.h"
#include "rt/codelet.h"

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
    /* moves.h: the move that was inserted last to write it, 0: none; when what
     * does not move wrote it last */
    int64_t move;
    _Atomic double written_us;
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
/* The device that does what is to be done at a place by any; -1: one of those
 * that share it. */
int weft_place_device(const struct weft_rt *rt, int place);
/* Drops the owner's references to its parts (parts.c). */
void weft_tile_drop_parts(struct weft_tile *tile);
void weft_stage_free(struct weft_rt *rt); /* of acquire.c */
/* Frees all tiles with their handles; called when no task is left. */
void weft_tile_free_all(struct weft_rt *rt);

#endif
