/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the runtime asks of CUDA beside StarPU: copies, zeros, times and errors.
 * Without CUDA, here and in StarPU, there are no cards, and nothing here is
 * called but for the host's memory.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "rt/internal.h"

#if defined(STARPU_USE_CUDA) && defined(WEFT_HAVE_CUDA)

bool weft_rt_has_cuda(void)
{
    return true;
}

struct CUstream_st *weft_exec_stream(struct weft_exec *x)
{
    return !x->card  ? NULL
         : x->copies ? x->copies
                     : starpu_cuda_get_local_stream();
}

static void must(cudaError_t rc)
{
    if (rc != cudaSuccess)
        STARPU_CUDA_REPORT_ERROR(rc);
}

int weft_card_count(void)
{
    int n = 0;
    bool sees = cudaGetDeviceCount(&n) == cudaSuccess;
    (void) cudaGetLastError();
    return sees ? n : 0;
}

void weft_card_use(const struct weft_rt *rt)
{
    int card = 0;
    must(cudaGetDevice(&card));
    if (card < rt->first_card || card >= rt->first_card + rt->n_cards)
        must(cudaSetDevice(rt->first_card));
}

/* Whether what a card sends another arrives. Where the machine's IOMMU
 * translates it, it may be something else, without an error. */
static bool arrives(int from, int to)
{
    enum { N = 1024 };
    uint32_t sent[N], came[N];
    void *a = NULL, *b = NULL;
    for (uint32_t i = 0; i < N; i++)
        sent[i] = ~i * 2654435761u;
    must(cudaSetDevice(from));
    must(cudaMalloc(&a, sizeof sent));
    must(cudaMemcpy(a, sent, sizeof sent, cudaMemcpyHostToDevice));
    must(cudaSetDevice(to));
    must(cudaMalloc(&b, sizeof sent));
    must(cudaMemcpyPeer(b, to, a, from, sizeof sent));
    must(cudaMemcpy(came, b, sizeof came, cudaMemcpyDeviceToHost));
    must(cudaFree(b));
    must(cudaSetDevice(from));
    must(cudaFree(a));
    return memcmp(sent, came, sizeof sent) == 0;
}

static void part_all(int first, int n)
{
    for (int i = 0; i < n * n; i++)
        if (i / n != i % n) {
            must(cudaSetDevice(first + i / n));
            (void) cudaDeviceDisablePeerAccess(first + i % n);
            (void) cudaGetLastError();
        }
}

static bool all_arrive(int first, int n)
{
    for (int i = 0; i < n * n; i++) {
        int from = first + i / n, to = first + i % n;
        if (from == to || arrives(from, to))
            continue;
        part_all(first, n);
        weft_warn("GPU %d does not get what GPU %d sends it: what GPUs send "
                  "one another passes through host memory, until the "
                  "machine's IOMMU is off, or PCIe's ACS",
                  to, from);
        return false;
    }
    return true;
}

bool weft_card_join_all(const struct weft_rt *rt)
{
    int n = rt->n_cards, first = rt->first_card, before = 0, can = 1;
    must(cudaGetDevice(&before));
    for (int i = 0; i < n * n && can; i++) {
        int card = first + i / n, other = first + i % n;
        if (card == other)
            continue;
        must(cudaDeviceCanAccessPeer(&can, card, other));
        if (!can)
            break;
        must(cudaSetDevice(card));
        cudaError_t rc = cudaDeviceEnablePeerAccess(other, 0);
        (void) cudaGetLastError();
        can = rc == cudaSuccess || rc == cudaErrorPeerAccessAlreadyEnabled;
    }
    can = can && all_arrive(first, n);
    must(cudaSetDevice(before));
    return can;
}

/* CUDA refuses to wait for a whole card while any thread captures one of its
 * streams, and what was captured is lost. And memory that cards use of one another
 * may wait for all of them, and keep others from launching meanwhile, which must
 * not be when one card's kernels wait for those of another that are not there
 * yet. */
static pthread_mutex_t whole_card = PTHREAD_MUTEX_INITIALIZER;

void weft_exec_hold_gpus(void)
{
    pthread_mutex_lock(&whole_card);
}

void weft_exec_let_gpus(void)
{
    pthread_mutex_unlock(&whole_card);
}

/* Waits for all that the card of a node does; the thread then uses that card,
 * until leave(). Returns the one that it used before. */
static int settle(unsigned node)
{
    int before = 0;
    must(cudaGetDevice(&before));
    pthread_mutex_lock(&whole_card);
    must(cudaSetDevice(starpu_memory_node_get_devid(node)));
    must(cudaDeviceSynchronize());
    return before;
}

static void leave(int before)
{
    pthread_mutex_unlock(&whole_card);
    (void) cudaSetDevice(before);
}

void weft_card_memory(unsigned node, size_t *free_out, size_t *total_out)
{
    int before = 0;
    must(cudaGetDevice(&before));
    must(cudaSetDevice(starpu_memory_node_get_devid(node)));
    must(cudaMemGetInfo(free_out, total_out));
    must(cudaSetDevice(before));
}

/* StarPU's allocation would cut 32 MiB at a time, and keep them. */
void *weft_card_get(const struct weft_pool *pool, size_t bytes)
{
    void *block = NULL;
    int before = 0;
    weft_card_use(pool->rt);
    must(cudaGetDevice(&before));
    must(cudaSetDevice(starpu_memory_node_get_devid(pool->node)));
    pthread_mutex_lock(&whole_card);
    cudaError_t rc = cudaMalloc(&block, bytes);
    pthread_mutex_unlock(&whole_card);
    if (rc == cudaErrorMemoryAllocation) {
        (void) cudaGetLastError();
        block = NULL;
    } else {
        must(rc);
    }
    must(cudaSetDevice(before));
    WEFT_TSAN_ACQUIRE(pool); /* after who had the memory before */
    return block;
}

void weft_card_put(const struct weft_pool *pool, void *block, size_t bytes)
{
    (void) bytes;
    weft_card_use(pool->rt);
    WEFT_TSAN_RELEASE(pool);
    int before = settle(pool->node);
    must(cudaFree(block));
    leave(before);
}

void *weft_card_pin(size_t bytes)
{
    void *block = NULL;
    cudaError_t rc = cudaHostAlloc(&block, bytes, cudaHostAllocPortable);
    if (rc == cudaErrorMemoryAllocation) {
        (void) cudaGetLastError();
        return NULL;
    }
    must(rc);
    return block;
}

void weft_card_unpin(void *block)
{
    must(cudaFreeHost(block));
}

void weft_card_zero(unsigned node, void *to, size_t bytes)
{
    if (node == STARPU_MAIN_RAM) {
        memset(to, 0, bytes);
        return;
    }
    int before = settle(node);
    must(cudaMemset(to, 0, bytes));
    must(cudaDeviceSynchronize());
    leave(before);
}

void weft_card_copy(unsigned to_node, void *to, unsigned from_node,
                    const void *from, size_t bytes,
                    struct CUstream_st *stream)
{
    bool from_host = from_node == STARPU_MAIN_RAM,
         to_host = to_node == STARPU_MAIN_RAM;
    enum cudaMemcpyKind kind = from_host ? cudaMemcpyHostToDevice
                             : to_host   ? cudaMemcpyDeviceToHost
                                         : cudaMemcpyDeviceToDevice;
    int before = stream ? 0 : settle(from_host ? to_node : from_node);
    starpu_cuda_copy_async_sync((void *) (uintptr_t) from, from_node, to,
                                to_node, bytes, stream, kind);
    if (!stream)
        leave(before);
}

static int card_number(const struct weft_exec *x)
{
    return x->rt->first_card + (int) (x->card - x->rt->card);
}

int weft_card_error(struct weft_exec *x, int rc)
{
    cudaError_t error = cudaGetLastError();
    /* One that is still there is the GPU's, whatever the body made of it. */
    if (error == cudaSuccess || (rc && cudaGetLastError() == cudaSuccess))
        return rc;
    return weft_err_set(&x->err, WEFT_EINTERNAL, "GPU %d: %s", card_number(x),
                        cudaGetErrorString(error));
}

/* ---- Work that is under way ------------------------------------------- */

static cudaEvent_t *events_of(struct weft_worker *w, int64_t number)
{
    return w->event[number % WEFT_CARD_EVENTS];
}

int64_t weft_card_begin(struct weft_worker *w)
{
    pthread_mutex_lock(&w->mutex);
    int64_t number = w->n_begun++;
    pthread_mutex_unlock(&w->mutex);
    /* StarPU has asked what is ready; that something is not may be kept. */
    (void) cudaGetLastError();
    weft_assert(w->n_running < WEFT_CARD_EVENTS);
    cudaEvent_t *event = events_of(w, number);
    /* who copies sleeps until its end; nobody waits for a worker's */
    unsigned flags = w->exec.copies ? cudaEventBlockingSync
                                    : cudaEventDefault;
    for (int i = 0; i < 2 && !event[i]; i++)
        must(cudaEventCreateWithFlags(&event[i], flags));
    must(cudaEventRecord(event[0], weft_exec_stream(&w->exec)));
    return number;
}

void weft_card_end(struct weft_worker *w, int64_t number)
{
    must(
        cudaEventRecord(events_of(w, number)[1], weft_exec_stream(&w->exec)));
}

void weft_card_wait(struct weft_worker *w, int64_t number, double spin_us)
{
    cudaEvent_t end = events_of(w, number)[1];
    const struct weft_rt *rt = w->exec.rt;
    double until_us = weft_rt_now_us(rt) + spin_us;
    cudaError_t rc = cudaErrorNotReady;
    while (rc == cudaErrorNotReady && weft_rt_now_us(rt) < until_us) {
        rc = cudaEventQuery(end);
        (void) cudaGetLastError(); /* that it is not ready is none */
    }
    must(rc == cudaErrorNotReady ? cudaEventSynchronize(end) : rc);
}

void weft_card_follow(struct weft_worker *w, struct weft_worker *user,
                      int64_t number)
{
    if (number < 0)
        return;
    pthread_mutex_lock(&user->mutex);
    /* else its event is that of later work, and it has ended */
    if (user->n_begun <= number + WEFT_CARD_EVENTS)
        must(cudaStreamWaitEvent(w->exec.copies, events_of(user, number)[1],
                                 0));
    pthread_mutex_unlock(&user->mutex);
}

bool weft_card_is_over(struct weft_worker *user, int64_t number)
{
    cudaError_t rc = cudaSuccess;
    if (number < 0)
        return true;
    pthread_mutex_lock(&user->mutex);
    if (user->n_begun <= number + WEFT_CARD_EVENTS)
        rc = cudaEventQuery(events_of(user, number)[1]);
    pthread_mutex_unlock(&user->mutex);
    if (rc == cudaErrorNotReady)
        (void) cudaGetLastError(); /* that it is not ready is none */
    else
        must(rc);
    return rc == cudaSuccess;
}

void weft_card_enter(unsigned node)
{
    must(cudaSetDevice(starpu_memory_node_get_devid(node)));
}

void weft_card_open(struct weft_worker *w)
{
    weft_card_note(w);
    weft_card_enter(w->exec.card->node);
    must(cudaStreamCreateWithFlags(&w->exec.copies, cudaStreamNonBlocking));
}

void weft_card_close(struct weft_worker *w)
{
    weft_card_clear(w);
    must(cudaStreamDestroy(w->exec.copies));
    w->exec.copies = NULL;
}

double weft_card_took(struct weft_worker *w, int64_t number,
                      double *since_us_out)
{
    cudaEvent_t *event = events_of(w, number);
    float took_ms = 0, since_ms = 0;
    must(cudaEventElapsedTime(&took_ms, event[0], event[1]));
    if (since_us_out) {
        must(cudaEventElapsedTime(&since_ms, events_of(w, number - 1)[1],
                                  event[0]));
        *since_us_out = since_ms * 1e3;
    }
    return took_ms * 1e3;
}

void weft_card_clear(struct weft_worker *w)
{
    for (int i = 0; i < WEFT_CARD_EVENTS; i++)
        for (int k = 0; k < 2; k++) {
            if (w->event[i][k])
                (void) cudaEventDestroy(w->event[i][k]);
            w->event[i][k] = NULL;
        }
}

/* ---- Errors ----------------------------------------------------------- */

/* The worker of a GPU that this thread is, once it has run a task. */
static _Thread_local const struct weft_worker *this_worker;

void weft_card_note(const struct weft_worker *w)
{
    this_worker = w;
}

/* In place of StarPU's function, which aborts: what a GPU cannot do, because it
 * has failed or a kernel on it has, ends the job with a sentence. Nothing can
 * be done on it any more, and what the task before has left there is lost. */
void starpu_cuda_report_error(const char *function, const char *file,
                              int line, cudaError_t status)
{
    const struct weft_worker *w = this_worker;
    const struct weft_task *t = w ? w->running : NULL;
    struct weft_err err;
    char where[160] = "";
    int card = -1;
    (void) function;
    (void) file;
    (void) line;
    (void) cudaGetDevice(&card);
    if (t && t->where.layer >= 0)
        snprintf(where, sizeof where, " in or before %s of %s, layer %d",
                 t->codelet->starpu.name,
                 weft_rt_call_name(w->exec.rt, t->where.call),
                 t->where.layer);
    else if (t)
        snprintf(where, sizeof where, " in or before %s of %s",
                 t->codelet->starpu.name,
                 weft_rt_call_name(w->exec.rt, t->where.call));
    weft_err_set(&err, WEFT_EINTERNAL,
                 "GPU %d has failed%s: %s; the system's log may say more "
                 "('dmesg | grep NVRM')",
                 w ? card_number(&w->exec) : card, where,
                 cudaGetErrorString(status));
    weft_world_abort(&err);
}

#else

bool weft_rt_has_cuda(void)
{
    return false;
}

struct CUstream_st *weft_exec_stream(struct weft_exec *x)
{
    (void) x;
    return NULL;
}

void weft_exec_hold_gpus(void)
{
}

void weft_exec_let_gpus(void)
{
}

int weft_card_count(void)
{
    return 0;
}

void weft_card_use(const struct weft_rt *rt)
{
    (void) rt;
}

bool weft_card_join_all(const struct weft_rt *rt)
{
    (void) rt;
    return true;
}

void weft_card_memory(unsigned node, size_t *free_out, size_t *total_out)
{
    (void) node;
    *free_out = *total_out = 0;
}

void *weft_card_get(const struct weft_pool *pool, size_t bytes)
{
    (void) pool;
    (void) bytes;
    return NULL;
}

void weft_card_put(const struct weft_pool *pool, void *block, size_t bytes)
{
    (void) pool;
    (void) block;
    (void) bytes;
}

void *weft_card_pin(size_t bytes)
{
    (void) bytes;
    return NULL;
}

void weft_card_unpin(void *block)
{
    (void) block;
}

void weft_card_zero(unsigned node, void *to, size_t bytes)
{
    weft_assert(node == STARPU_MAIN_RAM);
    memset(to, 0, bytes);
}

void weft_card_copy(unsigned to_node, void *to, unsigned from_node,
                    const void *from, size_t bytes,
                    struct CUstream_st *stream)
{
    (void) stream;
    weft_assert(to_node == STARPU_MAIN_RAM && from_node == STARPU_MAIN_RAM);
    memcpy(to, from, bytes);
}

int weft_card_error(struct weft_exec *x, int rc)
{
    (void) x;
    return rc;
}

void weft_card_note(const struct weft_worker *w)
{
    (void) w;
}

int64_t weft_card_begin(struct weft_worker *w)
{
    (void) w;
    return 0;
}

void weft_card_end(struct weft_worker *w, int64_t number)
{
    (void) w;
    (void) number;
}

double weft_card_took(struct weft_worker *w, int64_t number,
                      double *since_us_out)
{
    (void) w;
    (void) number;
    (void) since_us_out;
    return 0;
}

void weft_card_clear(struct weft_worker *w)
{
    (void) w;
}

void weft_card_wait(struct weft_worker *w, int64_t number, double spin_us)
{
    (void) w;
    (void) number;
    (void) spin_us;
}

void weft_card_follow(struct weft_worker *w, struct weft_worker *user,
                      int64_t number)
{
    (void) w;
    (void) user;
    (void) number;
}

bool weft_card_is_over(struct weft_worker *user, int64_t number)
{
    (void) user;
    (void) number;
    return true;
}

void weft_card_enter(unsigned node)
{
    (void) node;
}

void weft_card_open(struct weft_worker *w)
{
    (void) w;
}

void weft_card_close(struct weft_worker *w)
{
    (void) w;
}

#endif
