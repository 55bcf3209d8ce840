/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes of the job and what they tell one another outside of tiles.
 *
 * MPI is touched only when mpirun or srun started several processes. Control
 * messages have a communicator of their own, so that they never meet StarPU's;
 * whoever waits for one naps.
 */
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "config.h"
#include "rt/internal.h"
#include "rt/world.h"
#ifdef HAVE_MPI_EXT_H
#include <mpi-ext.h>
#endif

static struct {
    int rank, size;
    int64_t n_collectives;
    _Atomic double waits_since_s; /* 0: does not */
    atomic_bool says_stop;        /* this rank does */
    atomic_int n_told_stop;       /* how many have told it */
    atomic_bool other_failed, has_news;
    struct weft_host host;
#ifdef WEFT_HAVE_MPI
    bool open;
    MPI_Comm control, transfers, direct, life;
    /* (size) which ranks have answered since the last question */
    bool *answered;
#endif
} world = {.size = 1, .host = {.n_ranks = 1, .share = 1}};

int weft_world_rank(void)
{
    return world.rank;
}

int weft_world_size(void)
{
    return world.size;
}

const struct weft_host *weft_world_host(void)
{
    return &world.host;
}

int weft_world_here(int *rank_out)
{
    *rank_out = world.host.rank;
    return world.host.n_ranks;
}

int weft_world_started(const char **variable_out)
{
    static const char *const variable[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                           "MV2_COMM_WORLD_SIZE",
                                           "SLURM_STEP_NUM_TASKS"};
    for (size_t i = 0; i < WEFT_COUNT(variable); i++) {
        const char *value = getenv(variable[i]);
        *variable_out = variable[i];
        if (value && atoi(value) > 1)
            return atoi(value);
    }
    return 1;
}

int64_t weft_world_n_collectives(void)
{
    return world.n_collectives;
}

double weft_world_waits_s(void)
{
    double since = atomic_load(&world.waits_since_s);
    return since > 0 ? weft_clock_s() - since : 0;
}

/* ---- Messages --------------------------------------------------------- */

#ifdef WEFT_HAVE_MPI

/* Waits for a request: polls for as long as a message inside a machine takes,
 * then sleeps between polls. meanwhile: called between them; NULL: nothing. */
static void complete_while(MPI_Request *request, void (*meanwhile)(void *ctx),
                           void *ctx)
{
    struct weft_nap nap = {0};
    int done = 0;
    atomic_store(&world.waits_since_s, weft_clock_s());
    while (MPI_Test(request, &done, MPI_STATUS_IGNORE), !done) {
        if (meanwhile)
            meanwhile(ctx);
        weft_nap(&nap);
    }
    atomic_store(&world.waits_since_s, 0);
}

static void complete(MPI_Request *request)
{
    complete_while(request, NULL, NULL);
}

void weft_world_reduce(int64_t *v, int n, enum weft_reduction how)
{
    MPI_Op op = how == WEFT_MIN ? MPI_MIN
              : how == WEFT_MAX ? MPI_MAX
                                : MPI_SUM;
    MPI_Request request;
    if (world.size == 1)
        return;
    world.n_collectives++;
    MPI_Iallreduce(MPI_IN_PLACE, v, n, MPI_INT64_T, op, world.control,
                   &request);
    complete(&request);
}

enum { PIECE = 1 << 30 }; /* MPI counts in int */

void weft_world_share_while(int rank, void *data, size_t bytes,
                            void (*meanwhile)(void *ctx), void *ctx)
{
    MPI_Request request;
    if (world.size == 1)
        return;
    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t n = bytes - at < PIECE ? bytes - at : PIECE;
        world.n_collectives++;
        MPI_Ibcast((char *) data + at, (int) n, MPI_BYTE, rank, world.control,
                   &request);
        complete_while(&request, meanwhile, ctx);
    }
}

void weft_world_send(int rank, const void *data, size_t bytes)
{
    MPI_Request request;
    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t n = bytes - at < PIECE ? bytes - at : PIECE;
        MPI_Isend((const char *) data + at, (int) n, MPI_BYTE, rank, 0,
                  world.control, &request);
        complete(&request);
    }
}

void weft_world_receive(int rank, void *data, size_t bytes)
{
    MPI_Request request;
    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t n = bytes - at < PIECE ? bytes - at : PIECE;
        MPI_Irecv((char *) data + at, (int) n, MPI_BYTE, rank, 0,
                  world.control, &request);
        complete(&request);
    }
}

MPI_Comm weft_world_transfers(void)
{
    return world.transfers;
}

MPI_Comm weft_world_direct(void)
{
    return world.direct;
}

int weft_world_knows_gpus(struct weft_err *err)
{
#ifdef HAVE_MPIX_QUERY_CUDA_SUPPORT
    if (!MPIX_Query_cuda_support())
        return weft_err_set(err, WEFT_EUNSUPPORTED,
                            "%s does not send what lies in a GPU's memory: "
                            "take one that was built with CUDA, or set "
                            "runtime.gpu_messages to host",
                            WEFT_MPI_NAME);
#else
    (void) err;
#endif
    return 0;
}

/* ---- Signs of life, and news ------------------------------------------ */

enum { LIFE_QUESTION, LIFE_ANSWER, LIFE_FAILED, LIFE_STOP };

/* Sends a message without data; nobody waits until it is sent. */
static void life_send(int rank, int tag)
{
    MPI_Request request;
    MPI_Isend(NULL, 0, MPI_BYTE, rank, tag, world.life, &request);
    MPI_Request_free(&request);
}

/* Takes one message, which no other thread can take then. Returns its rank, or
 * -1. */
static int life_receive(int tag)
{
    MPI_Message message;
    MPI_Status status;
    int there = 0;
    MPI_Improbe(MPI_ANY_SOURCE, tag, world.life, &there, &message, &status);
    if (!there)
        return -1;
    MPI_Mrecv(NULL, 0, MPI_BYTE, &message, MPI_STATUS_IGNORE);
    return status.MPI_SOURCE;
}

void weft_world_life_ask(void)
{
    for (int r = 0; world.answered && r < world.size; r++) {
        world.answered[r] = r == world.rank;
        if (r != world.rank)
            life_send(r, LIFE_QUESTION);
    }
}

void weft_world_life_answer(void)
{
    int r;
    while (world.answered && (r = life_receive(LIFE_QUESTION)) >= 0)
        life_send(r, LIFE_ANSWER);
    while (world.answered && (r = life_receive(LIFE_ANSWER)) >= 0)
        world.answered[r] = true;
}

int weft_world_life_silent(void)
{
    for (int r = 0; world.answered && r < world.size; r++)
        if (!world.answered[r])
            return r;
    return -1;
}

void weft_world_say_failed(void)
{
    for (int r = 0; world.open && r < world.size; r++)
        if (r != world.rank)
            life_send(r, LIFE_FAILED);
}

bool weft_world_other_failed(void)
{
    while (world.open && life_receive(LIFE_FAILED) >= 0) {
        atomic_store(&world.other_failed, true);
        atomic_store(&world.has_news, true);
    }
    return atomic_load(&world.other_failed);
}

bool weft_world_any_failed(void)
{
    (void) weft_world_other_failed();
    return atomic_exchange(&world.has_news, false);
}

void weft_world_forget_failed(void)
{
    (void) weft_world_other_failed();
    atomic_store(&world.other_failed, false);
}

static void tell_stop(void)
{
    if (world.rank > 0)
        life_send(0, LIFE_STOP);
    for (int r = 1; r < world.size && world.rank == 0; r++)
        life_send(r, LIFE_STOP);
}

static void hear_stop(void)
{
    if (world.open && life_receive(LIFE_STOP) >= 0)
        atomic_fetch_add(&world.n_told_stop, 1);
}

/* ---- Joining ---------------------------------------------------------- */

/* Counts the ranks on this machine, and finds which share of the processors
 * that this rank may use is its own: all of them when mpirun gave each rank
 * its own, a fraction when ranks have the same ones. */
static void read_host(void)
{
    enum { WORDS = sizeof(cpu_set_t) / sizeof(uint64_t) };
    MPI_Comm local;
    cpu_set_t set;
    uint64_t any[WORDS];
    int own, all = 0, sum;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    own = CPU_COUNT(&set);
    MPI_Comm_split_type(world.control, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                        &local);
    MPI_Comm_size(local, &world.host.n_ranks);
    MPI_Comm_rank(local, &world.host.rank);
    MPI_Allreduce(&set, any, WORDS, MPI_UINT64_T, MPI_BOR, local);
    MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, local);
    MPI_Comm_free(&local);
    for (int i = 0; i < WORDS; i++)
        all += __builtin_popcountll(any[i]);
    world.host.share = sum > 0 ? (double) all / sum : 1;
}

/* Where there are more ranks than processors, Open MPI yields in every poll,
 * and beside other busy programs each yield lasts until all of them had their
 * turn: tens of milliseconds. Whoever polls here naps between polls, if
 * StarPU's messages do so, too; then a poll shall return at once. */
static void let_polls_return(void)
{
    if (weft_rt_messages_nap())
        setenv("OMPI_MCA_mpi_yield_when_idle", "0", 1);
}

int weft_world_open(struct weft_err *err)
{
    const char *variable;
    int n = weft_world_started(&variable), level = 0;
    if (n == 1 || world.open)
        return 0;
    let_polls_return();
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level)
        != MPI_SUCCESS)
        return weft_err_set(err, WEFT_EINTERNAL, "MPI does not start");
    world.open = true;
    MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world.size);
    weft_log_set_rank(world.rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &world.control);
    MPI_Comm_dup(MPI_COMM_WORLD, &world.transfers);
    MPI_Comm_dup(MPI_COMM_WORLD, &world.direct);
    MPI_Comm_dup(MPI_COMM_WORLD, &world.life);
    read_host();
    world.answered = weft_alloc((size_t) world.size, sizeof(bool));
    int rc = 0;
    if (!world.answered)
        rc = weft_err_nomem(err, "the ranks", (size_t) world.size);
    else if (level < MPI_THREAD_MULTIPLE)
        rc = weft_err_set(err, WEFT_EUNSUPPORTED,
                          "%s has no MPI_THREAD_MULTIPLE, which several "
                          "processes need",
                          WEFT_MPI_NAME);
    else if (world.size != n)
        rc = weft_err_set(err, WEFT_EUNSUPPORTED,
                          "%d processes were started (%s), but MPI sees %d; "
                          "start them with the mpirun of %s, or srun "
                          "--mpi=pmix",
                          n, variable, world.size, WEFT_MPI_NAME);
    if (rc)
        weft_world_close();
    return rc;
}

void weft_world_close(void)
{
    if (!world.open)
        return;
    MPI_Comm_free(&world.control);
    MPI_Comm_free(&world.transfers);
    MPI_Comm_free(&world.direct);
    MPI_Comm_free(&world.life);
    weft_free(world.answered);
    world.answered = NULL;
    MPI_Finalize();
    world.open = false;
    world.rank = 0;
    world.size = 1;
    world.host = (struct weft_host){.n_ranks = 1, .share = 1};
}

static void end_job(void)
{
    if (world.open)
        MPI_Abort(MPI_COMM_WORLD, 1);
}

#else /* one process */

int weft_world_knows_gpus(struct weft_err *err)
{
    (void) err;
    return 0;
}

void weft_world_reduce(int64_t *v, int n, enum weft_reduction how)
{
    (void) v;
    (void) n;
    (void) how;
}

void weft_world_share_while(int rank, void *data, size_t bytes,
                            void (*meanwhile)(void *ctx), void *ctx)
{
    (void) rank;
    (void) data;
    (void) bytes;
    (void) meanwhile;
    (void) ctx;
}

void weft_world_send(int rank, const void *data, size_t bytes)
{
    (void) rank;
    (void) data;
    (void) bytes;
}

void weft_world_receive(int rank, void *data, size_t bytes)
{
    (void) rank;
    (void) data;
    (void) bytes;
}

void weft_world_life_ask(void)
{
}

void weft_world_life_answer(void)
{
}

int weft_world_life_silent(void)
{
    return -1;
}

void weft_world_say_failed(void)
{
}

bool weft_world_other_failed(void)
{
    return false;
}

bool weft_world_any_failed(void)
{
    return false;
}

void weft_world_forget_failed(void)
{
}

static void tell_stop(void)
{
}

static void hear_stop(void)
{
}

int weft_world_open(struct weft_err *err)
{
    const char *variable;
    int n = weft_world_started(&variable);
    if (n == 1)
        return 0;
    return weft_err_set(err, WEFT_EUNSUPPORTED,
                        "started as one of %d processes (%s), but built "
                        "without MPI; install it and configure again, or "
                        "start one process",
                        n, variable);
}

void weft_world_close(void)
{
}

static void end_job(void)
{
}

#endif

/* ---- What is built of them -------------------------------------------- */

void weft_world_say_stop(void)
{
    if (!atomic_exchange(&world.says_stop, true))
        tell_stop();
}

bool weft_world_said_stop(void)
{
    if (atomic_load(&world.says_stop))
        return true;
    hear_stop();
    return atomic_load(&world.n_told_stop) > 0;
}

/* Rank 0 is told by all that say it, the others by rank 0 alone. */
void weft_world_forget_stop(void)
{
    int64_t n[2] = {0, 0};
    n[world.rank > 0] = atomic_load(&world.says_stop);
    weft_world_reduce(n, 2, WEFT_SUM);
    while (world.size > 1
           && atomic_load(&world.n_told_stop) < n[world.rank == 0])
        hear_stop();
    atomic_store(&world.says_stop, false);
    atomic_store(&world.n_told_stop, 0);
}

void weft_world_share_from(int rank, void *data, size_t bytes)
{
    weft_world_share_while(rank, data, bytes, NULL, NULL);
}

void weft_world_share(void *data, size_t bytes)
{
    weft_world_share_from(0, data, bytes);
}

int64_t weft_world_min(int64_t value)
{
    weft_world_reduce(&value, 1, WEFT_MIN);
    return value;
}

int64_t weft_world_max(int64_t value)
{
    weft_world_reduce(&value, 1, WEFT_MAX);
    return value;
}

void weft_world_raise(int64_t *v, int n)
{
    weft_world_reduce(v, n, WEFT_MAX);
}

int64_t weft_world_sum(int64_t value)
{
    weft_world_reduce(&value, 1, WEFT_SUM);
    return value;
}

int weft_world_share_err(int rank, struct weft_err *err)
{
    if (world.rank == rank && rank > 0)
        weft_err_prefix(err, "rank %d", rank);
    weft_world_share_from(rank, err, sizeof *err);
    return err->code;
}

int weft_world_agree(int rc, struct weft_err *err)
{
    struct weft_err common = {.code = rc};
    if (world.size == 1)
        return rc;
    int64_t failed = weft_world_min(rc ? world.rank : world.size);
    if (failed == world.size)
        return 0;
    if (rc && err)
        common = *err;
    common.code = rc; /* the caller may have passed no err */
    rc = weft_world_share_err((int) failed, &common);
    if (err)
        *err = common;
    return rc;
}

void *weft_insert_alloc(size_t n, size_t size, const char *what)
{
    void *p = weft_alloc(n, size);
    if (!p)
        weft_insert_nomem(what, n * size);
    return p;
}

void weft_insert_nomem(const char *what, size_t bytes)
{
    struct weft_err err;
    weft_err_nomem(&err, what, bytes);
    weft_world_abort(&err);
}

void weft_world_abort(const struct weft_err *err)
{
    weft_error("%s", err->text);
    fflush(NULL);
    end_job();
    _exit(1);
}
