/* SPDX-License-Identifier: Apache-2.0 */
/* Emulated cards: what they are, errors, launches, memory and copies. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "emulator.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_emu_setup setup;
static bool is_set_up, may_use[WEFT_EMU_CARDS][WEFT_EMU_CARDS];
static struct weft_cards_counts counts[WEFT_EMU_CARDS];
static cudaError_t failure;
static char sentence[256];
static __thread int this_card;
static __thread cudaError_t last_error;

weft_emu_guard::weft_emu_guard()
{
    pthread_mutex_lock(&lock);
}

weft_emu_guard::~weft_emu_guard()
{
    pthread_mutex_unlock(&lock);
}

static pthread_cond_t let_go = PTHREAD_COND_INITIALIZER;
static int held, n_blocked;

void weft_cards_hold(int what)
{
    weft_emu_guard guard;
    held = what;
    pthread_cond_broadcast(&let_go);
}

int weft_cards_blocked(void)
{
    weft_emu_guard guard;
    return n_blocked;
}

int weft_emu_held(void)
{
    return held;
}

void weft_emu_pause(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    n_blocked++;
    pthread_cond_timedwait(&let_go, &lock, &t);
    n_blocked--;
}

/* ---- Setup -------------------------------------------------------------- */

static long number(const char *name, long otherwise, long least, long most)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text)
        return otherwise;
    long x = strtol(text, &end, 10);
    if (*end || x < least || x > most) {
        fprintf(stderr, "%s is '%s': a number from %ld to %ld, please\n",
                name, text, least, most);
        exit(2);
    }
    return x;
}

/* Of all cards, or of one after the other: "9.0,8.0"; the last one's is that of
 * those behind it. */
static void read_capability(void)
{
    const char *text = getenv("WEFT_CARDS_CAPABILITY");
    int major = 9, minor = 0;
    for (int i = 0; i < WEFT_EMU_CARDS; i++) {
        if (text && sscanf(text, "%d.%d", &major, &minor) != 2) {
            fprintf(stderr, "WEFT_CARDS_CAPABILITY is '%s': 9.0, say\n", text);
            exit(2);
        }
        setup.major[i] = major;
        setup.minor[i] = minor;
        text = text ? strchr(text, ',') : NULL;
        text += text != NULL;
    }
}

/* A line for each card: graphs that were made, and launches of them. */
static void write_counts(void)
{
    FILE *file = fopen(getenv("WEFT_CARDS_GRAPHS"), "w");
    for (int i = 0; file && i < setup.n_cards; i++)
        fprintf(file, "%lld %lld\n", (long long) counts[i].n_instances,
                (long long) counts[i].n_graphs);
    if (file)
        fclose(file);
}

/* A line for each card: the most bytes that it has held. */
static void write_peaks(void)
{
    FILE *file = fopen(getenv("WEFT_CARDS_PEAKS"), "w");
    for (int i = 0; file && i < setup.n_cards; i++)
        fprintf(file, "%zu\n", weft_emu_memory_peak(i));
    if (file)
        fclose(file);
}

const struct weft_emu_setup *weft_emu_setup(void)
{
    if (is_set_up)
        return &setup;
    const char *cards = getenv("WEFT_CARDS");
    setup.driver = !cards                       ? CUDART_VERSION
                 : strcmp(cards, "none") == 0   ? 0
                 : strcmp(cards, "old") == 0    ? CUDART_VERSION - 1000
                                                : CUDART_VERSION;
    bool serves = setup.driver == CUDART_VERSION;
    setup.n_cards =
        serves ? (int) number("WEFT_CARDS", 1, 0, WEFT_EMU_CARDS) : 0;
    setup.memory_bytes =
        (size_t) number("WEFT_CARDS_MEMORY", 1024, 1, 1 << 17) << 20;
    setup.others_bytes =
        (size_t) number("WEFT_CARDS_HELD", 0, 0,
                        (long) (setup.memory_bytes >> 20)) << 20;
    setup.first = (int) number("WEFT_CARDS_FIRST", 0, 0, 1 << 20);
    setup.order = (int) number("WEFT_CARDS_ORDER", WEFT_CARDS_LATE, 0, 1 << 30);
    setup.has_peers = number("WEFT_CARDS_PEER", 1, 0, 2) >= 1;
    setup.spoils = number("WEFT_CARDS_PEER", 1, 0, 2) == 2;
    setup.pinned_bytes =
        (size_t) number("WEFT_CARDS_PINNED", 1 << 20, 0, 1 << 20) << 20;
    setup.refused = number("WEFT_CARDS_REFUSED", -1, 0, 1L << 40);
    setup.lost = number("WEFT_CARDS_LOST", -1, 0, 1L << 40);
    read_capability();
    if (getenv("WEFT_CARDS_GRAPHS"))
        atexit(write_counts);
    if (getenv("WEFT_CARDS_PEAKS"))
        atexit(write_peaks);
    is_set_up = true;
    return &setup;
}

int weft_emu_card(void)
{
    counts[this_card].is_open = true;
    return this_card;
}

bool weft_emu_may_use(int card, int other)
{
    return card == other || may_use[card][other];
}

void weft_cards_order(int order)
{
    weft_emu_guard guard;
    weft_emu_order(order);
}

struct weft_cards_counts *weft_emu_counts(int card)
{
    return &counts[card];
}

struct weft_cards_counts weft_cards_counts(int card)
{
    weft_emu_guard guard;
    struct weft_cards_counts c = counts[card];
    c.peak_bytes = (int64_t) weft_emu_memory_peak(card);
    return c;
}

void *weft_cards_reach(const void *p, size_t n_bytes)
{
    weft_emu_guard guard;
    int card = weft_emu_memory_card(p);
    return card < 0 ? (void *) p
         : card == this_card && weft_emu_memory_has(p, n_bytes)
             ? weft_emu_memory_twin(p)
             : NULL;
}

void weft_cards_new_peak(void)
{
    weft_emu_guard guard;
    for (int i = 0; i < WEFT_EMU_CARDS; i++)
        weft_emu_memory_new_peak(i);
}

/* ---- Errors ------------------------------------------------------------- */

void weft_emu_fail(cudaError_t error, const char *format, ...)
{
    va_list args;
    if (failure != cudaSuccess)
        return;
    failure = error;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
}

cudaError_t weft_emu_failure(void)
{
    return failure;
}

cudaError_t weft_emu_end(cudaError_t error)
{
    if (failure != cudaSuccess)
        error = failure;
    if (error != cudaSuccess) /* that something is not ready may be kept, too */
        last_error = error;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    weft_emu_guard guard;
    return failure != cudaSuccess ? failure : last_error;
}

cudaError_t cudaGetLastError(void)
{
    weft_emu_guard guard;
    cudaError_t error = failure != cudaSuccess ? failure : last_error;
    last_error = cudaSuccess;
    return error;
}

const char *weft_exec_sentence(void)
{
    return sentence;
}

void weft_exec_forget(void)
{
    weft_emu_guard guard;
    failure = last_error = cudaSuccess;
}

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice",
     "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice",
     "invalid device ordinal"},
    {cudaErrorInvalidKernelImage, "cudaErrorInvalidKernelImage",
     "device kernel image is invalid"},
    {cudaErrorPeerAccessUnsupported, "cudaErrorPeerAccessUnsupported",
     "peer access is not supported between these two devices"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle",
     "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", sentence},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled",
     "peer access is already enabled"},
    {cudaErrorPeerAccessNotEnabled, "cudaErrorPeerAccessNotEnabled",
     "peer access has not been enabled"},
    {cudaErrorHostMemoryAlreadyRegistered,
     "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", sentence},
    {cudaErrorNotSupported, "cudaErrorNotSupported",
     "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking "
     "stream"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const char *cudaGetErrorString(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].error == error)
            return errors[i].text;
    return "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].error == error)
            return errors[i].name;
    return "unrecognized error code";
}

/* ---- Kernels that are loaded ---------------------------------------------- */

enum { MOST_KERNELS = 1024 };
static struct loaded {
    const void *kernel[MOST_KERNELS];
    int n;
    bool is_all; /* what is not there may not be launched */
} loaded[WEFT_EMU_CARDS];
static int n_good_loads = -1; /* until one is not; -1: all are */
static cudaError_t bad_load;

static bool is_loaded(int card, const void *kernel)
{
    for (int i = 0; i < loaded[card].n; i++)
        if (loaded[card].kernel[i] == kernel)
            return true;
    return false;
}

static void load(int card, const void *kernel)
{
    if (is_loaded(card, kernel))
        return;
    if (loaded[card].n == MOST_KERNELS)
        abort();
    loaded[card].kernel[loaded[card].n++] = kernel;
}

void weft_emu_load_own(const void *kernel)
{
    weft_emu_guard guard;
    load(weft_emu_card(), kernel);
}

void weft_cards_loads(int n, cudaError_t error)
{
    weft_emu_guard guard;
    n_good_loads = n;
    bad_load = error;
}

/* ---- Cards -------------------------------------------------------------- */

/* Why there is no such card. */
static cudaError_t check_card(int card)
{
    const struct weft_emu_setup *s = weft_emu_setup();
    if (s->n_cards == 0)
        return s->driver == CUDART_VERSION ? cudaErrorNoDevice
                                           : cudaErrorInsufficientDriver;
    return card >= 0 && card < s->n_cards ? cudaSuccess
                                          : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDeviceCount(int *n_out)
{
    weft_emu_guard guard;
    *n_out = weft_emu_setup()->n_cards;
    return weft_emu_end(check_card(0));
}

cudaError_t cudaGetDevice(int *card_out)
{
    weft_emu_guard guard;
    *card_out = this_card;
    return weft_emu_end(check_card(0));
}

cudaError_t cudaSetDevice(int card)
{
    weft_emu_guard guard;
    cudaError_t error = check_card(card);
    if (error == cudaSuccess) {
        this_card = card;
        (void) weft_emu_card(); /* as from CUDA 12 on */
    }
    return weft_emu_end(error);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int card)
{
    weft_emu_guard guard;
    cudaError_t error = check_card(card);
    if (error != cudaSuccess)
        return weft_emu_end(error);
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "Emulated card");
    out->totalGlobalMem = setup.memory_bytes;
    out->sharedMemPerBlock = out->sharedMemPerBlockOptin = 48 << 10;
    out->warpSize = 32;
    out->maxThreadsPerBlock = 1024;
    out->major = setup.major[card];
    out->minor = setup.minor[card];
    out->multiProcessorCount = 1;
    out->concurrentKernels = out->unifiedAddressing = 1;
    out->asyncEngineCount = 2;
    int number_there = setup.first + card;
    memcpy(out->uuid.bytes, &number_there, sizeof number_there);
    out->pciBusID = number_there + 1;
    return weft_emu_end(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int *out, cudaDeviceAttr what, int card)
{
    weft_emu_guard guard;
    cudaError_t error = check_card(card);
    if (error != cudaSuccess)
        return weft_emu_end(error);
    switch (what) {
    case cudaDevAttrMaxThreadsPerBlock: *out = 1024; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *out = 48 << 10; break;
    case cudaDevAttrWarpSize: *out = 32; break;
    case cudaDevAttrClockRate: *out = 1000000; break;
    case cudaDevAttrMultiProcessorCount: *out = 1; break;
    case cudaDevAttrComputeMode: *out = cudaComputeModeDefault; break;
    case cudaDevAttrConcurrentKernels: *out = 1; break;
    case cudaDevAttrComputeCapabilityMajor: *out = setup.major[card]; break;
    case cudaDevAttrComputeCapabilityMinor: *out = setup.minor[card]; break;
    default: error = cudaErrorInvalidValue;
    }
    return weft_emu_end(error);
}

cudaError_t cudaDeviceSynchronize(void)
{
    weft_emu_guard guard;
    if (weft_emu_forbids())
        return weft_emu_end(cudaErrorStreamCaptureUnsupported);
    if (weft_emu_spoils(this_card))
        return weft_emu_end(cudaErrorStreamCaptureUnsupported);
    cudaError_t error = check_card(this_card);
    if (error == cudaSuccess) {
        weft_emu_counts(weft_emu_card())->n_waits++;
        weft_emu_wait_card(this_card);
    }
    return weft_emu_end(error);
}

cudaError_t cudaDeviceReset(void)
{
    weft_emu_guard guard;
    weft_emu_streams_clear(this_card);
    weft_emu_memory_clear(this_card);
    memset(may_use[this_card], 0, sizeof may_use[this_card]);
    failure = last_error = cudaSuccess;
    counts[this_card].is_open = false;
    loaded[this_card].n = 0;
    loaded[this_card].is_all = false;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can_out, int card, int other)
{
    weft_emu_guard guard;
    cudaError_t error = check_card(card);
    if (error == cudaSuccess)
        error = check_card(other);
    *can_out = setup.has_peers && card != other;
    return weft_emu_end(error);
}

cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned)
{
    weft_emu_guard guard;
    cudaError_t error = check_card(other);
    if (error == cudaSuccess && other == this_card)
        error = cudaErrorInvalidDevice;
    else if (error == cudaSuccess && !setup.has_peers)
        error = cudaErrorPeerAccessUnsupported;
    else if (error == cudaSuccess && may_use[this_card][other])
        error = cudaErrorPeerAccessAlreadyEnabled;
    if (error == cudaSuccess)
        may_use[this_card][other] = true;
    return weft_emu_end(error);
}

cudaError_t cudaDeviceDisablePeerAccess(int other)
{
    weft_emu_guard guard;
    cudaError_t error = check_card(other);
    if (error == cudaSuccess && !may_use[this_card][other])
        error = cudaErrorPeerAccessNotEnabled;
    if (error == cudaSuccess)
        may_use[this_card][other] = false;
    return weft_emu_end(error);
}

cudaError_t cudaRuntimeGetVersion(int *out)
{
    *out = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *out)
{
    weft_emu_guard guard;
    *out = weft_emu_setup()->driver;
    return cudaSuccess;
}

/* ---- Launches ------------------------------------------------------------ */

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out,
                                  const void *kernel)
{
    weft_emu_guard guard;
    cudaError_t error = check_card(this_card);
    memset(out, 0, sizeof *out);
    out->maxThreadsPerBlock = 1024;
    if (error == cudaSuccess && n_good_loads-- == 0)
        error = bad_load;
    if (error == cudaSuccess) {
        struct loaded *l = &loaded[weft_emu_card()];
        counts[this_card].n_loaded += !is_loaded(this_card, kernel);
        load(this_card, kernel);
        l->is_all = true;
    }
    return weft_emu_end(error);
}

struct alignas(16) launch {
    dim3 grid, block;
    size_t n_bytes;
    void (*run)(void *);
};

/* Words that are addresses of device memory, to where that is. What looks like
 * one of another card's, and is in no allocation, is padding behind a number:
 * left alone, a kernel that uses it dies. */
static bool translate(int card, void *call, size_t n_bytes)
{
    uintptr_t *word = (uintptr_t *) call;
    for (size_t i = 0; i < n_bytes / sizeof *word; i++) {
        int whose = weft_emu_memory_card((void *) word[i]);
        bool may = whose >= 0 && weft_emu_may_use(card, whose);
        if (whose < 0
            || (!may && !weft_emu_memory_has((void *) word[i], 1)))
            continue;
        if (!may) {
            weft_emu_fail(cudaErrorIllegalAddress,
                          "a kernel of card %d uses memory of card %d, "
                          "without peer access", card, whose);
            return false;
        }
        word[i] = (uintptr_t) weft_emu_memory_twin((void *) word[i]);
    }
    return true;
}

/* Whether a word is an address of pinned memory. */
static bool has_pinned(const void *call, size_t n_bytes)
{
    const uintptr_t *word = (const uintptr_t *) call;
    for (size_t i = 0; i < n_bytes / sizeof *word; i++)
        if (weft_emu_pinned_has((void *) word[i], 1))
            return true;
    return false;
}

static void run_kernel(int card, void *what)
{
    static long n_run;
    struct launch *l = (struct launch *) what;
    if (n_run == weft_emu_setup()->lost)
        weft_emu_fail(cudaErrorUnknown, "card %d is lost", card);
    else if (translate(card, l + 1, l->n_bytes)
             && !weft_emu_run(l->grid, l->block, l->run, l + 1))
        return;
    counts[card].n_kernels++;
    if (has_pinned(l + 1, l->n_bytes))
        counts[card].n_pinned += (int64_t) l->grid.x * l->grid.y * l->grid.z;
    n_run++;
}

bool weft_emu_is_kernel(void (*run)(int, void *))
{
    return run == run_kernel;
}

void weft_exec_put(const void *kernel, dim3 grid, dim3 block,
                   cudaStream_t stream, void (*run)(void *call),
                   const void *call, size_t n_bytes)
{
    static long n_put;
    weft_emu_guard guard;
    cudaError_t error = check_card(this_card);
    struct CUstream_st *s = weft_emu_stream(stream);
    if (error == cudaSuccess && n_put++ == weft_emu_setup()->refused)
        error = cudaErrorLaunchOutOfResources;
    if (error == cudaSuccess && (!s || weft_emu_stream_card(s) != this_card))
        error = cudaErrorInvalidResourceHandle;
    if (error == cudaSuccess && !weft_emu_can_run(grid, block)) {
        error = cudaErrorInvalidConfiguration;
        snprintf(sentence, sizeof sentence,
                 "a launch of %u x %u x %u blocks of %u threads", grid.x,
                 grid.y, grid.z, block.x * block.y * block.z);
    }
    if (loaded[this_card].is_all && !is_loaded(this_card, kernel))
        weft_emu_fail(cudaErrorLaunchFailure,
                      "a kernel is launched that is not loaded: CUDA may wait "
                      "for the card to load it");
    if (weft_emu_end(error) != cudaSuccess)
        return;
    size_t total = sizeof(struct launch) + n_bytes;
    struct launch *l = (struct launch *) malloc(total);
    if (!l)
        abort();
    *l = launch{grid, block, n_bytes, run};
    memcpy(l + 1, call, n_bytes);
    weft_emu_put(s, run_kernel, l, total);
    free(l);
}

void weft_exec_pointer(const void *p)
{
    weft_emu_guard guard;
    if (p && weft_emu_memory_card(p) < 0 && !weft_emu_pinned_has(p, 0))
        weft_emu_fail(cudaErrorIllegalAddress,
                      "a kernel is given pageable memory of the host");
}
