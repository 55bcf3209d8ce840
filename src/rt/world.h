/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the processes of the job; for src/rt alone. All of it is collective
 * but sending and receiving, and does nothing in a job of one.
 */
#ifndef WEFT_RT_WORLD_H
#define WEFT_RT_WORLD_H

#include "config.h"
#include "rt/graph.h"

#ifdef WEFT_HAVE_MPI
#include <mpi.h>
#include <starpu_mpi.h>

/* StarPU-MPI's messages. */
MPI_Comm weft_world_transfers(void);
#endif

/* The number of processes that the environment tells, and the variable that
 * does; Local. */
int weft_world_started(const char **variable_out);

struct weft_host {
    int n_ranks;  /* of the job on this machine */
    double share; /* this one's, of the processors it may use: (0, 1] */
};
const struct weft_host *weft_world_host(void);

/* How long this rank has waited for the others so far; 0: it does not. */
double weft_world_waits_s(void);

/* Signs of life between the ranks, for watchdogs; Local, by one thread. Ask
 * sends a question to all others, answer replies to theirs and takes in what
 * came to ours, silent tells the first rank that has not answered since the
 * last question, or -1. */
void weft_world_life_ask(void);
void weft_world_life_answer(void);
int weft_world_life_silent(void);

enum weft_reduction { WEFT_MIN, WEFT_MAX, WEFT_SUM };
/* v (n): all ranks', number by number. */
void weft_world_reduce(int64_t *v, int n, enum weft_reduction how);
/* That rank's error to all, which say who had it. Returns its code. */
int weft_world_share_err(int rank, struct weft_err *err);

void weft_world_send(int rank, const void *data, size_t bytes);
void weft_world_receive(int rank, void *data, size_t bytes);

#endif
