/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the emulated cards (toolkit/include/cuda_runtime_api.h says what they
 * are): executor.cc runs kernels, memory.cc has the memory, streams.cc what is
 * queued, cudart.cc the rest. One lock, which the functions of CUDA take;
 * those below are called under it. Only C's library is used, so that C
 * programs can link this without the library of C++.
 */
#ifndef WEFT_TESTS_CUDA_EMULATOR_H
#define WEFT_TESTS_CUDA_EMULATOR_H

#include <cuda_runtime.h>

enum { WEFT_EMU_CARDS = 17 }; /* more than StarPU is built for */

/* ---- Cards: cudart.cc --------------------------------------------------- */

struct weft_emu_setup {
    int driver; /* the newest CUDA that it serves; 0: there is none */
    bool has_peers, spoils; /* what cards send one another is changed */
    int n_cards, first,
        order; /* first: of the machine's, by which others see it */
    int major[WEFT_EMU_CARDS], minor[WEFT_EMU_CARDS]; /* by card */
    long refused, lost;  /* numbers of launches, -1: none */
    size_t memory_bytes; /* of each */
    size_t others_bytes; /* of these, what other processes hold */
    size_t pinned_bytes; /* the most of the host's that can be pinned */
};
const struct weft_emu_setup *weft_emu_setup(void);

struct weft_emu_guard {
    weft_emu_guard();
    ~weft_emu_guard();
};
/* Sleeps without the lock, until what is held has changed, or a little. */
void weft_emu_pause(void);
/* What is held now, of WEFT_CARDS_KERNELS and WEFT_CARDS_COPIES. */
int weft_emu_held(void);
bool weft_emu_is_kernel(void (*run)(int card, void *what));
bool weft_emu_is_copy(void (*run)(int card, void *what));
int weft_emu_card(void); /* of the calling thread, which uses it */
bool weft_emu_may_use(int card, int other); /* the other's memory */
struct weft_cards_counts *weft_emu_counts(int card);

/* Something failed on a card: every call fails until that is forgotten. The
 * first sentence is kept. */
void weft_emu_fail(cudaError_t error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
cudaError_t weft_emu_failure(void);
/* What a function of CUDA returns: keeps the thread's last error. */
cudaError_t weft_emu_end(cudaError_t error);

/* A library's kernel, which it may load when it likes. */
void weft_emu_load_own(const void *kernel);

/* ---- Kernels: executor.cc ----------------------------------------------- */

bool weft_emu_can_run(dim3 grid, dim3 block);
/* Errors go to weft_emu_fail(). False: a thread waits for another card, and
 * the launch is to be run once more. */
bool weft_emu_run(dim3 grid, dim3 block, void (*body)(void *), void *arg);
/* Whether the operation that ran last is to be run once more; says so once. */
bool weft_emu_waits(void);
void weft_emu_sleep(void); /* it is */

/* ---- Memory: memory.cc -------------------------------------------------- */

/* n_bytes of NaN at the end of whole pages, and what lies around them. */
struct weft_emu_span {
    char *page, *at;
    size_t pages_bytes, n_bytes;
    unsigned char rim; /* its own: a copy of another's is noticed, too */
    int shared, unit;  /* of a card: the page that it has a part of; or -1 */
};
size_t weft_emu_span_bytes(size_t n_bytes, size_t align); /* whole pages */
void weft_emu_span_fill(struct weft_emu_span *s, char *page, size_t n_bytes,
                        size_t align);
bool weft_emu_span_is_intact(const struct weft_emu_span *s);

/* False: the card has no room. */
bool weft_emu_memory_new(int card, size_t n_bytes, void **out);
bool weft_emu_memory_free(
    void *p); /* false: not the start of an allocation */
void weft_emu_memory_clear(int card);
size_t weft_emu_memory_free_bytes(int card);
/* The most that a card has held, in pages, since the start or since _new. */
size_t weft_emu_memory_peak(int card);
void weft_emu_memory_new_peak(int card);
/* Whose memory an address is, -1 for the host's. */
int weft_emu_memory_card(const void *p);
/* Whether all bytes are in one allocation. */
bool weft_emu_memory_has(const void *p, size_t n_bytes);
/* Where kernels and copies find what lies at a device's address. */
char *weft_emu_memory_twin(const void *p);

void *weft_emu_pinned_new(size_t n_bytes);
bool weft_emu_pinned_add(void *p, size_t n_bytes); /* false: is there */
/* False: not there; ours: whether by weft_emu_pinned_new(). */
bool weft_emu_pinned_remove(void *p, bool is_ours);
bool weft_emu_pinned_has(const void *p, size_t n_bytes);

/* ---- Streams: streams.cc ------------------------------------------------ */

/* The stream of a handle; NULL when there is none. */
struct CUstream_st *weft_emu_stream(cudaStream_t stream);
int weft_emu_stream_card(const struct CUstream_st *stream);
/* Queues run(card, a copy of n_bytes at what). */
void weft_emu_put(struct CUstream_st *stream, void (*run)(int, void *),
                  const void *what, size_t n_bytes);
/* Runs what was put there until now. */
void weft_emu_wait(struct CUstream_st *stream);
void weft_emu_wait_card(int card);
void weft_emu_streams_clear(int card); /* nothing of it runs any more */
void weft_emu_order(int order);
/* A kernel or a copy has ended: weft_cards_tick(). */
void weft_emu_tick(void);

/* ---- Graphs: graphs.cc -------------------------------------------------- */

/* Whether this thread captures the stream: then it has the operation. */
bool weft_emu_captures(struct CUstream_st *stream, void (*run)(int, void *),
                       const void *what, size_t n_bytes);
/* Whether an operation is a loop of others, of which each call of it runs
 * one; and whether it has more of them. */
bool weft_emu_is_loop(void (*run)(int card, void *what));
bool weft_emu_goes_on(const void *what);
/* Whether this thread captures a stream, so that it may neither wait nor
 * allocate: then the capture is invalid from here on. */
bool weft_emu_forbids(void);
/* Whether any thread captures a stream of the card. Then nobody may wait for
 * all of it; the captures are invalid from here on. */
bool weft_emu_spoils(int card);

#endif
