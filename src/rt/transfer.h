/* SPDX-License-Identifier: Apache-2.0 */
/* What moves tiles: messages between ranks, and those who copy to and from
 * cards. */
#ifndef WEFT_RT_TRANSFER_H
#define WEFT_RT_TRANSFER_H

#include "rt/internal.h"

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

/* A message from one GPU's memory to another's (direct.c). */
struct weft_direct {
    struct weft_tile *tile; /* the one that is here */
    int peer;
    bool sends;
    int64_t number; /* among those from one rank to the other */
    /* called when it has come and the tile is released; frees it */
    void (*ended)(void *arg);
    void *arg;
    /* the rest is who posts it's own: memory, which is free when this work of
     * its GPU has ended; bytes that have come; its piece that is under way */
    void *data;
    int64_t after;
    size_t at;
    MPI_Request request;
    struct weft_direct *next;
};
void weft_direct_post(struct weft_direct *message);
#endif
/* Who posts them. _stop is called when none is left, or nobody was started. */
int weft_direct_start(struct weft_rt *rt, struct weft_err *err);
void weft_direct_stop(struct weft_rt *rt);

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

#endif
