/* SPDX-License-Identifier: Apache-2.0 */
/* Emulated cards: what they notice, and that they answer as CUDA does. */
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "card_orders.h"
#include "test_device.h"

enum { N = 1000, ORDERS = 8 };
static const size_t bytes = N * sizeof(float);

static cudaStream_t new_stream(unsigned flags)
{
    cudaStream_t s = NULL;
    REQUIRE(cudaStreamCreateWithFlags(&s, flags) == cudaSuccess);
    return s;
}

static float *new_pinned(float value)
{
    void *p = NULL;
    REQUIRE(cudaMallocHost(&p, bytes) == cudaSuccess);
    for (int i = 0; i < N; i++)
        ((float *) p)[i] = value;
    return p;
}

static float *new_filled(float value)
{
    float *host = new_pinned(value), *p = dev_put(host, bytes);
    CHECK(cudaFreeHost(host) == cudaSuccess);
    return p;
}

/* The first and the last number there, if they are the same. */
static float value_of(const float *dev)
{
    float host[N];
    REQUIRE(cudaMemcpy(host, dev, bytes, cudaMemcpyDeviceToHost)
            == cudaSuccess);
    CHECK(host[0] == host[N - 1]);
    return host[0];
}

/* What failed is as expected, and forgotten. */
static void failed(cudaError_t error, const char *sentence)
{
    CHECK_INT(cudaDeviceSynchronize(), error);
    CHECK_INT(cudaGetLastError(), error);
    CHECK_INT(cudaGetLastError(), error); /* it stays */
    CHECK(strstr(cudaGetErrorString(error), sentence) != NULL);
    weft_exec_forget();
    CHECK_INT(cudaGetLastError(), cudaSuccess);
}

/* ---- The host and device memory ---------------------------------------- */

/* Runs in a child; what it wrote to stderr before it was killed. */
static bool dies_saying(void (*what)(void *), void *arg, const char *sentence)
{
    int fd[2], status = 0;
    char said[512] = "";
    REQUIRE(pipe(fd) == 0);
    fflush(stdout);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        dup2(fd[1], 2);
        what(arg);
        _exit(0);
    }
    close(fd[1]);
    size_t n = 0;
    for (ssize_t got = 1; got > 0 && n < sizeof said - 1; n += (size_t) got)
        if ((got = read(fd[0], said + n, sizeof said - 1 - n)) < 0)
            got = 0;
    close(fd[0]);
    CHECK(waitpid(child, &status, 0) == child);
    bool is_dead = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    return is_dead && strstr(said, sentence) != NULL;
}

static void read_it(void *p)
{
    *(volatile float *) p;
}

static void write_it(void *p)
{
    *(volatile float *) p = 1;
}

static void add_behind(void *p)
{
    weft_k_add_cuda(NULL, p, p, 4 * N);
    cudaDeviceSynchronize();
}

static void test_host_access(void)
{
    float *p = new_filled(1);
    CHECK(dies_saying(read_it, p, "the host reads or writes device memory"));
    CHECK(dies_saying(write_it, p, "the host reads or writes device memory"));
    CHECK(dies_saying(add_behind, p, "outside of device memory"));
    CHECK(value_of(p) == 1);
    dev_free(p);
    CHECK(dies_saying(read_it, p, "the host reads or writes device memory"));
}

static void test_kernel_pointers(void)
{
    float *p = new_filled(1), *pinned = new_pinned(2), pageable[N] = {0};
    void *to[] = {pinned};
    int32_t n = N;
    int64_t before = weft_cards_counts(0).n_pinned;
    weft_k_add_cuda(NULL, p, pinned, N);
    CHECK(value_of(p) == 3);
    CHECK_INT(weft_cards_counts(0).n_pinned - before, 1); /* of 1024 */
    weft_k_deal_cuda(NULL, 1, &n, p, to);                 /* in a struct */
    weft_k_add_cuda(NULL, p, p, N);
    CHECK(value_of(p) == 6);
    CHECK(pinned[N - 1] == 3);
    CHECK_INT(weft_cards_counts(0).n_pinned - before, 2);
    weft_k_add_cuda(NULL, p, pageable, N);
    failed(cudaErrorIllegalAddress, "pageable memory of the host");
    CHECK(value_of(p) == 6);
    dev_free(p);
    cudaFreeHost(pinned);
}

/* ---- Order -------------------------------------------------------------- */

/* An asynchronous copy has not happened before someone waits for it. */
static void test_unwaited_copy(void)
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    float *host = new_pinned(1), *back = new_pinned(0), *p = new_filled(0);
    weft_cards_order(WEFT_CARDS_LATE);
    cudaMemcpyAsync(p, host, bytes, cudaMemcpyHostToDevice, s);
    host[0] = host[N - 1] = 2; /* too early */
    cudaMemcpyAsync(back, p, bytes, cudaMemcpyDeviceToHost, s);
    CHECK(back[0] == 0);
    CHECK(cudaStreamSynchronize(s) == cudaSuccess);
    CHECK(back[0] == 2);
    weft_cards_order(WEFT_CARDS_AT_ONCE);
    cudaMemcpyAsync(p, host, bytes, cudaMemcpyHostToDevice, s);
    host[0] = host[N - 1] = 3;
    CHECK(value_of(p) == 2);
    weft_cards_order(WEFT_CARDS_LATE);
    CHECK(cudaStreamDestroy(s) == cudaSuccess);
    cudaFreeHost(host);
    cudaFreeHost(back);
    dev_free(p);
}

/* p = 1 by a copy in one stream, p += q in another. */
static float copied_then_added(int order, bool has_event)
{
    cudaStream_t a = new_stream(cudaStreamNonBlocking);
    cudaStream_t b = new_stream(cudaStreamNonBlocking);
    cudaEvent_t e = NULL;
    float *host = new_pinned(1), *p = new_filled(100), *q = new_filled(10);
    REQUIRE(cudaEventCreateWithFlags(&e, cudaEventDisableTiming)
            == cudaSuccess);
    weft_cards_order(order);
    cudaMemcpyAsync(p, host, bytes, cudaMemcpyHostToDevice, a);
    cudaEventRecord(e, a);
    if (has_event)
        cudaStreamWaitEvent(b, e, 0);
    weft_k_add_cuda(b, p, q, N);
    cudaStreamSynchronize(b);
    cudaStreamSynchronize(a);
    float value = value_of(p);
    weft_cards_order(WEFT_CARDS_LATE);
    CHECK(cudaEventDestroy(e) == cudaSuccess);
    CHECK(cudaStreamDestroy(a) == cudaSuccess);
    CHECK(cudaStreamDestroy(b) == cudaSuccess);
    cudaFreeHost(host);
    dev_free(p);
    dev_free(q);
    return value;
}

static void test_streams(void)
{
    int n_wrong = 0;
    for (int order = 0; order < ORDERS; order++) {
        CHECK(copied_then_added(order, true) == 11);
        n_wrong += copied_then_added(order, false) != 11;
    }
    CHECK(copied_then_added(WEFT_CARDS_LATE, false) == 1);
    CHECK(n_wrong > 1 && n_wrong < ORDERS);
}

/* The null stream waits for blocking streams, and they for it. */
static void test_null_stream(void)
{
    cudaStream_t s = new_stream(cudaStreamDefault);
    float *host = new_pinned(1), *p = new_filled(100), *q = new_filled(10);
    cudaMemcpyAsync(p, host, bytes, cudaMemcpyHostToDevice, s);
    weft_k_add_cuda(NULL, p, q, N);
    weft_k_add_cuda(s, p, p, N);
    CHECK(cudaStreamSynchronize(s) == cudaSuccess);
    CHECK(value_of(p) == 22);
    /* As does a copy that the host waits for. */
    cudaMemsetAsync(p, 0, bytes, s);
    CHECK(value_of(p) == 0);
    CHECK(cudaStreamDestroy(s) == cudaSuccess);
    cudaFreeHost(host);
    dev_free(p);
    dev_free(q);
}

/* Asking is enough to get on. */
static void test_queries(void)
{
    for (int order = 0; order < ORDERS; order++) {
        cudaStream_t s = new_stream(cudaStreamNonBlocking);
        cudaEvent_t e = NULL;
        float *p = new_filled(1);
        int n_asked = 0;
        REQUIRE(cudaEventCreate(&e) == cudaSuccess);
        CHECK(cudaEventQuery(e) == cudaSuccess); /* nothing recorded */
        weft_cards_order(order);
        for (int i = 0; i < 5; i++)
            weft_k_add_cuda(s, p, p, N);
        cudaEventRecord(e, s);
        while (cudaEventQuery(e) == cudaErrorNotReady)
            REQUIRE(n_asked++ < 1000);
        CHECK((n_asked == 0) == (order == WEFT_CARDS_AT_ONCE));
        CHECK(cudaStreamQuery(s) == cudaSuccess);
        CHECK(cudaGetLastError()
              == (n_asked ? cudaErrorNotReady : cudaSuccess));
        CHECK(cudaGetLastError() == cudaSuccess);
        CHECK(value_of(p) == 32);
        weft_cards_order(WEFT_CARDS_LATE);
        CHECK(cudaEventDestroy(e) == cudaSuccess);
        CHECK(cudaStreamDestroy(s) == cudaSuccess);
        dev_free(p);
    }
}

static void add_one(void *arg)
{
    ++*(int *) arg;
}

static void test_times_and_callbacks(void)
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    cudaEvent_t from = NULL, to = NULL;
    float ms = -1, *p = new_filled(1);
    int n_called = 0;
    REQUIRE(cudaEventCreate(&from) == cudaSuccess);
    REQUIRE(cudaEventCreate(&to) == cudaSuccess);
    CHECK(cudaEventElapsedTime(&ms, from, to)
          == cudaErrorInvalidResourceHandle);
    (void) cudaGetLastError(); /* nothing is launched behind an error */
    cudaEventRecord(from, s);
    weft_k_add_cuda(s, p, p, N);
    cudaLaunchHostFunc(s, add_one, &n_called);
    cudaEventRecord(to, s);
    CHECK(cudaEventElapsedTime(&ms, from, to) == cudaErrorNotReady);
    CHECK_INT(n_called, 0);
    CHECK(cudaEventSynchronize(to) == cudaSuccess);
    CHECK_INT(n_called, 1);
    CHECK(cudaEventElapsedTime(&ms, from, to) == cudaSuccess && ms >= 0);
    /* What a destroyed stream still had to do is done. */
    (void) cudaGetLastError();
    weft_k_add_cuda(s, p, p, N);
    CHECK(cudaStreamDestroy(s) == cudaSuccess);
    CHECK(cudaStreamSynchronize(s) == cudaErrorInvalidResourceHandle);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(value_of(p) == 4);
    CHECK(cudaEventDestroy(from) == cudaSuccess);
    CHECK(cudaEventDestroy(from) == cudaErrorInvalidResourceHandle);
    CHECK(cudaEventDestroy(to) == cudaSuccess);
    dev_free(p);
    (void) cudaGetLastError();
}

/* ---- Memory ------------------------------------------------------------- */

static void *wait_for(void *stream)
{
    CHECK_INT(cudaStreamSynchronize(stream), cudaSuccess);
    return NULL;
}

/* A copy goes on while another stream's kernel is held, and not while one is
 * that it waits for. */
static void holds(void)
{
    cudaStream_t a = new_stream(cudaStreamNonBlocking),
                 b = new_stream(cudaStreamNonBlocking);
    float *x = new_filled(1), *y = new_filled(1), *host = new_pinned(0);
    cudaEvent_t event;
    pthread_t thread;
    CHECK_INT(cudaEventCreate(&event), cudaSuccess);
    weft_cards_hold(WEFT_CARDS_KERNELS);
    weft_k_add_cuda(a, x, y, N);
    CHECK_INT(cudaEventRecord(event, a), cudaSuccess);
    cudaMemcpyAsync(host, y, bytes, cudaMemcpyDeviceToHost, b);
    CHECK_INT(cudaStreamSynchronize(b), cudaSuccess);
    CHECK(host[N - 1] == 1);
    CHECK_INT(cudaStreamQuery(a), cudaErrorNotReady);
    CHECK_INT(cudaEventQuery(event), cudaErrorNotReady);
    CHECK_INT(cudaGetLastError(), cudaErrorNotReady);
    CHECK_INT(cudaStreamWaitEvent(b, event, 0), cudaSuccess);
    cudaMemcpyAsync(host, x, bytes, cudaMemcpyDeviceToHost, b);
    CHECK_INT(weft_cards_blocked(), 0);
    REQUIRE(pthread_create(&thread, NULL, wait_for, b) == 0);
    while (weft_cards_blocked() == 0)
        sched_yield();
    CHECK(host[N - 1] == 1);
    weft_cards_hold(0);
    pthread_join(thread, NULL);
    CHECK(host[N - 1] == 2);
    CHECK_INT(weft_cards_blocked(), 0);
    CHECK(cudaFreeHost(host) == cudaSuccess);
    CHECK(cudaFree(x) == cudaSuccess && cudaFree(y) == cudaSuccess);
    CHECK(cudaEventDestroy(event) == cudaSuccess);
    CHECK(cudaStreamDestroy(a) == cudaSuccess);
    CHECK(cudaStreamDestroy(b) == cudaSuccess);
}

static void test_holds(void)
{
    each_card_order(holds);
}

static void test_out_of_memory(void)
{
    size_t before = 0, total = 0, now = 0;
    void *p = NULL, *q = NULL;
    REQUIRE(cudaMemGetInfo(&before, &total) == cudaSuccess);
    CHECK(total == (size_t) 8 << 20);
    CHECK(cudaMalloc(&p, before) == cudaSuccess);
    CHECK(((uintptr_t) p & 255) == 0);
    CHECK(cudaMemGetInfo(&now, &total) == cudaSuccess && now == 0);
    CHECK(cudaMalloc(&q, 1) == cudaErrorMemoryAllocation);
    CHECK(q == NULL);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaSuccess); /* does not stay */
    dev_free(p);
    CHECK(cudaMemGetInfo(&now, &total) == cudaSuccess && now == before);
    CHECK(cudaMalloc(&q, (size_t) -1) == cudaErrorMemoryAllocation);
    CHECK(cudaMalloc(&q, 0) == cudaSuccess && q == NULL);
    (void) cudaGetLastError();
}

static void test_wrong_calls(void)
{
    char host[16] = "", *p = dev_new(16);
    CHECK(cudaFree(p + 1) == cudaErrorInvalidValue);
    CHECK(cudaFree(host) == cudaErrorInvalidValue);
    CHECK(cudaFree(NULL) == cudaSuccess);
    CHECK(cudaMemcpy(p, host, 17, cudaMemcpyHostToDevice)
          == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(p + 1, host, 16, cudaMemcpyHostToDevice)
          == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(p, host, 16, cudaMemcpyDeviceToHost)
          == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(p, host, 16, cudaMemcpyDefault) == cudaSuccess);
    CHECK(cudaMemset(p, 0, 17) == cudaErrorInvalidValue);
    CHECK(cudaMemsetAsync(p, 0, 16, (cudaStream_t) host)
          == cudaErrorInvalidResourceHandle);
    CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
    CHECK(cudaHostUnregister(host) == cudaErrorHostMemoryNotRegistered);
    CHECK(cudaHostRegister(host, 16, 0) == cudaSuccess);
    CHECK(cudaHostRegister(host + 8, 16, 0)
          == cudaErrorHostMemoryAlreadyRegistered);
    CHECK(cudaFreeHost(host) == cudaErrorInvalidValue);
    CHECK(cudaHostUnregister(host) == cudaSuccess);
    dev_free(p);
    CHECK(cudaFree(p) == cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

/* Freed in one stream, used in another. */
static void test_freed_too_early(void)
{
    cudaStream_t a = new_stream(cudaStreamNonBlocking);
    cudaStream_t b = new_stream(cudaStreamNonBlocking);
    float host[N], *p = new_filled(1);
    cudaMemcpyAsync(host, p, bytes, cudaMemcpyDeviceToHost, a);
    CHECK(cudaFreeAsync(p, b) == cudaSuccess);
    CHECK(cudaStreamSynchronize(b) == cudaSuccess);
    CHECK(cudaStreamSynchronize(a) == cudaErrorIllegalAddress);
    failed(cudaErrorIllegalAddress, "device memory that was freed");
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
}

static void test_rectangles(void)
{
    char host[4][8], back[4][3];
    char *p = dev_new(4 * 16);
    for (int i = 0; i < 32; i++)
        host[i / 8][i % 8] = (char) i;
    CHECK(cudaMemcpy2D(p, 16, host, 8, 3, 4, cudaMemcpyHostToDevice)
          == cudaSuccess);
    CHECK(cudaMemcpy2D(back, 3, p, 16, 3, 4, cudaMemcpyDeviceToHost)
          == cudaSuccess);
    for (int i = 0; i < 12; i++)
        CHECK_INT(back[i / 3][i % 3], 8 * (i / 3) + i % 3);
    CHECK(cudaMemcpy2D(p, 2, host, 8, 3, 4, cudaMemcpyHostToDevice)
          == cudaErrorInvalidValue);
    CHECK(cudaMemcpy2D(p, 31, host, 8, 3, 4, cudaMemcpyHostToDevice)
          == cudaErrorInvalidValue);
    (void) cudaGetLastError();
    dev_free(p);
}

/* ---- Graphs -------------------------------------------------------------- */

static cudaGraph_t add_captured(cudaStream_t s, float *p, const float *q,
                                float *back)
{
    cudaGraph_t graph = NULL;
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal)
          == cudaSuccess);
    weft_k_add_cuda(s, p, q, N);
    cudaMemcpyAsync(back, p, bytes, cudaMemcpyDeviceToHost, s);
    CHECK(cudaStreamEndCapture(s, &graph) == cudaSuccess);
    return graph;
}

/* What is captured does not happen; each launch does it, in order, with what
 * then lies at its addresses. */
static void graphs(void)
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    cudaGraphExec_t exec = NULL;
    float *p = new_filled(1), *q = new_filled(10), *back = new_pinned(0);
    cudaGraph_t graph = add_captured(s, p, q, back);
    CHECK(cudaStreamSynchronize(s) == cudaSuccess);
    CHECK(back[0] == 0 && value_of(p) == 1);
    REQUIRE(cudaGraphInstantiateWithFlags(&exec, graph, 0) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    for (int i = 1; i <= 3; i++) {
        CHECK(cudaGraphLaunch(exec, s) == cudaSuccess);
        CHECK(cudaStreamSynchronize(s) == cudaSuccess);
        CHECK(back[N - 1] == (float) (1 + 10 * i));
    }
    CHECK(cudaGraphLaunch(exec, s) == cudaSuccess);
    weft_k_add_cuda(s, q, q, N);
    CHECK(cudaGraphLaunch(exec, s) == cudaSuccess);
    CHECK(cudaStreamSynchronize(s) == cudaSuccess);
    CHECK(back[0] == 41 + 20 && value_of(p) == 61);
    CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
    CHECK(cudaStreamDestroy(s) == cudaSuccess);
    cudaFreeHost(back);
    dev_free(p);
    dev_free(q);
}

static void test_graphs(void)
{
    each_card_order(graphs);
}

static cudaError_t may_not(int i, cudaStream_t s, cudaStream_t other,
                           float *p)
{
    float host[N] = {0};
    void *more = NULL;
    switch (i) {
    case 0:
        return cudaMalloc(&more, 16);
    case 1:
        return cudaFree(p);
    case 2:
        return cudaMallocHost(&more, 16);
    case 3:
        return cudaStreamSynchronize(s);
    case 4:
        return cudaStreamSynchronize(other);
    case 5:
        return cudaDeviceSynchronize();
    case 6:
        return cudaStreamQuery(s);
    case 7:
        return cudaMemcpy(host, p, bytes, cudaMemcpyDeviceToHost);
    default:
        return cudaSuccess;
    }
}

static void *allocates(void *card)
{
    void *p = NULL;
    (void) card;
    CHECK(cudaMalloc(&p, 16) == cudaSuccess);
    CHECK(cudaFree(p) == cudaSuccess);
    return NULL;
}

/* A thread that captures neither waits nor allocates: such a capture comes to
 * nothing. Other threads may. */
static void test_forbidden_while_capturing(void)
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    cudaStream_t other = new_stream(cudaStreamNonBlocking);
    float *p = new_filled(1), *q = new_filled(10);
    pthread_t thread;
    for (int i = 0; i <= 8; i++) {
        cudaGraph_t graph = NULL;
        REQUIRE(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal)
                == cudaSuccess);
        weft_k_add_cuda(s, p, q, N);
        CHECK_INT(may_not(i, s, other, p),
                  i == 8   ? cudaSuccess
                  : i == 7 ? cudaErrorStreamCaptureImplicit
                           : cudaErrorStreamCaptureUnsupported);
        REQUIRE(pthread_create(&thread, NULL, allocates, NULL) == 0);
        pthread_join(thread, NULL);
        CHECK_INT(cudaStreamEndCapture(s, &graph),
                  i == 8 ? cudaSuccess : cudaErrorStreamCaptureInvalidated);
        CHECK((graph != NULL) == (i == 8));
        (void) cudaGetLastError();
        CHECK(!graph || cudaGraphDestroy(graph) == cudaSuccess);
    }
    /* The null stream would wait for others. */
    cudaGraph_t graph = NULL;
    CHECK(cudaStreamBeginCapture(NULL, cudaStreamCaptureModeThreadLocal)
          == cudaErrorStreamCaptureUnsupported);
    (void) cudaGetLastError();
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal)
          == cudaSuccess);
    weft_k_add_cuda(NULL, p, q, N);
    CHECK(cudaStreamEndCapture(s, &graph)
          == cudaErrorStreamCaptureInvalidated);
    CHECK(cudaStreamEndCapture(s, &graph) == cudaErrorIllegalState);
    (void) cudaGetLastError();
    CHECK(cudaStreamDestroy(s) == cudaSuccess);
    CHECK(cudaStreamDestroy(other) == cudaSuccess);
    CHECK(value_of(p) == 11);
    dev_free(p);
    dev_free(q);
}

/* ---- Two cards ----------------------------------------------------------- */

static float *new_on(int card, float value)
{
    REQUIRE(cudaSetDevice(card) == cudaSuccess);
    float *p = new_filled(value);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    return p;
}

static void test_peers(void)
{
    float *here = new_on(0, 1), *there = new_on(1, 2);
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    int64_t before = weft_cards_counts(1).bytes_peer;
    int can = 0;
    CHECK(cudaMemcpyPeerAsync(there, 0, here, 1, bytes, s)
          == cudaErrorInvalidValue);
    CHECK(cudaMemcpyPeerAsync(there, 1, here, 0, bytes, s) == cudaSuccess);
    CHECK(cudaStreamSynchronize(s) == cudaSuccess);
    CHECK(value_of(there) == 1);
    CHECK(weft_cards_counts(1).bytes_peer - before == (int64_t) bytes);
    /* A kernel needs more. */
    (void) cudaGetLastError();
    weft_k_add_cuda(s, here, there, N);
    failed(cudaErrorIllegalAddress, "memory of card 1, without peer access");
    CHECK(cudaDeviceCanAccessPeer(&can, 0, 1) == cudaSuccess && can);
    CHECK(cudaDeviceEnablePeerAccess(1, 0) == cudaSuccess);
    CHECK(cudaDeviceEnablePeerAccess(1, 0)
          == cudaErrorPeerAccessAlreadyEnabled);
    (void) cudaGetLastError();
    weft_k_add_cuda(s, here, there, N);
    CHECK(cudaStreamSynchronize(s) == cudaSuccess);
    CHECK(value_of(here) == 2);
    CHECK(cudaDeviceDisablePeerAccess(1) == cudaSuccess);
    /* A stream belongs to a card. */
    CHECK(cudaSetDevice(1) == cudaSuccess);
    weft_k_add_cuda(s, there, there, N);
    CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
    CHECK(cudaSetDevice(0) == cudaSuccess);
    cudaStreamDestroy(s);
    dev_free(here);
    dev_free(there);
}

static void *card_of_thread(void *card)
{
    CHECK(cudaGetDevice(card) == cudaSuccess);
    return NULL;
}

static void test_threads(void)
{
    pthread_t thread;
    int card = -1;
    CHECK(cudaSetDevice(1) == cudaSuccess);
    REQUIRE(pthread_create(&thread, NULL, card_of_thread, &card) == 0);
    pthread_join(thread, NULL);
    CHECK_INT(card, 0);
    CHECK(cudaSetDevice(0) == cudaSuccess);
}

int main(void)
{
    const struct weft_test tests[] = {
        {"test_host_access", test_host_access},
        {"test_kernel_pointers", test_kernel_pointers},
        {"test_unwaited_copy", test_unwaited_copy},
        {"test_streams", test_streams},
        {"test_null_stream", test_null_stream},
        {"test_queries", test_queries},
        {"test_times_and_callbacks", test_times_and_callbacks},
        {"test_holds", test_holds},
        {"test_out_of_memory", test_out_of_memory},
        {"test_wrong_calls", test_wrong_calls},
        {"test_freed_too_early", test_freed_too_early},
        {"test_rectangles", test_rectangles},
        {"test_graphs", test_graphs},
        {"test_forbidden_while_capturing", test_forbidden_while_capturing},
        {"test_peers", test_peers},
        {"test_threads", test_threads}};
    setenv("WEFT_CARDS", "2", 1);
    setenv("WEFT_CARDS_MEMORY", "8", 1);
    return weft_test_main("cuda/emulator", tests,
                          sizeof tests / sizeof tests[0]);
}
