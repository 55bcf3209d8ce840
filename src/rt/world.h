/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communication between the processes of the job; for src/rt alone. All
 * functions but sending, receiving and those marked "Local" are collective;
 * they do nothing in a job of one process.
 */
#ifndef WEFT_RT_WORLD_H
#define WEFT_RT_WORLD_H

#include "config.h"
#include "rt/graph.h"

#ifdef WEFT_HAVE_MPI
#include <mpi.h>
#include <starpu_mpi.h>

/* The communicators of StarPU-MPI's messages, and of those from one GPU's memory
 * to another's. */
MPI_Comm weft_world_transfers(void);
MPI_Comm weft_world_direct(void);
#endif

/* Whether MPI sends what lies in GPUs' memory. Local. Errors: WEFT_EUNSUPPORTED;
 * an MPI that does not say is believed. */
int weft_world_knows_gpus(struct weft_err *err);

/* The number of processes according to the environment, and the variable that
 * says so. Local. */
int weft_world_started(const char **variable_out);

struct weft_host {
    int n_ranks; /* ranks of the job on this machine */
    int rank;    /* which of them this is */
    /* part of the processors it may use that is its own: (0, 1] */
    double share;
};
const struct weft_host *weft_world_host(void);

/* How long this rank has been waiting for the others; 0: it does not wait. */
double weft_world_waits_s(void);

/* Signs of life between the ranks, for watchdogs. Local; one thread calls
 * them. Ask sends a question to all other ranks; answer replies to their
 * questions and receives replies to ours; silent returns the first rank that
 * has not answered since the last question, or -1. */
void weft_world_life_ask(void);
void weft_world_life_answer(void);
int weft_world_life_silent(void);

/* A rank tells the others that a task has failed; any thread may. Local. */
void weft_world_say_failed(void);
/* Whether a rank has said so since the last call; one thread asks. Local. */
bool weft_world_any_failed(void);
/* Whether another has said so since its failure was shared; any thread may ask:
 * what it sends from then on is of no use, and may make this rank fail, too.
 * Local. */
bool weft_world_other_failed(void);
/* Its failure is shared. Local. */
void weft_world_forget_failed(void);

enum weft_reduction { WEFT_MIN, WEFT_MAX, WEFT_SUM };
/* Reduces v (n) over all ranks, number by number. */
void weft_world_reduce(int64_t *v, int n, enum weft_reduction how);
/* Copies that rank's error to all ranks and adds which rank had it. Returns
 * its code. */
int weft_world_share_err(int rank, struct weft_err *err);

void weft_world_send(int rank, const void *data, size_t bytes);
void weft_world_receive(int rank, void *data, size_t bytes);

#endif
