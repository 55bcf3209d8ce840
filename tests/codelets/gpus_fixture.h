/* SPDX-License-Identifier: Apache-2.0 */
/* A runtime with GPUs, for tests of tasks at their places. */
#ifndef WEFT_TESTS_CODELETS_GPUS_FIXTURE_H
#define WEFT_TESTS_CODELETS_GPUS_FIXTURE_H

#include <stdlib.h>

#include "../cuda/card_orders.h"
#include "kern/device_cuda.h"
#include "task_fixture.h"

#ifndef WEFT_TEST_CARDS /* how many are used, and emulated, at the most */
#define WEFT_TEST_CARDS 2
#endif
enum { CARDS = WEFT_TEST_CARDS, CPUS = 2 };

static struct weft_rt *rt;
static struct weft_seq *seq;
/* options of the runtime */
static struct weft_recording *recorded;
static bool checks_modes, sends_directly;
static bool is_apart; /* layouts: GPUs may not use one another's memory */

static inline int n_found(void)
{
    int n = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}

/* The place of CPU devices. */
static inline int host_place(void)
{
    return weft_rt_n_places(rt) - 1;
}

static inline void start(size_t gpu_bytes)
{
    struct weft_err err;
    struct weft_rt_options options = {.n_devices = CPUS,
                                      .n_gpus = n_found(),
                                      .load_kernels = weft_k_load_cuda,
                                      .gpu_memory_bytes = gpu_bytes,
                                      .policy = &weft_sched_lanes,
                                      .nap = 1,
                                      .check_modes = checks_modes,
                                      .direct_messages = sends_directly,
                                      .recording = recorded,
                                      .profile = true};
    if (options.n_gpus > CARDS)
        options.n_gpus = CARDS;
    REQUIRE_OK(weft_rt_start(&options, &rt, &err), err);
    REQUIRE_OK(weft_seq_create(rt, &seq, &err), err);
}

static inline void stop(void)
{
    weft_seq_free(seq);
    weft_rt_stop(rt);
}

static inline void must_wait(void)
{
    struct weft_err err;
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
}

/* How often the host has waited for emulated GPUs so far. */
static inline int64_t n_waits(void)
{
    int64_t n = 0;
#ifdef WEFT_CUDA_EXECUTOR
    for (int i = 0; i < weft_rt_n_gpus(rt); i++)
        n += weft_cards_counts(i).n_waits;
#endif
    return n;
}

/* How many blocks emulated GPUs have run so far of kernels that were given
 * pinned memory. */
static inline int64_t n_pinned(void)
{
    int64_t n = 0;
#ifdef WEFT_CUDA_EXECUTOR
    for (int i = 0; i < weft_rt_n_gpus(rt); i++)
        n += weft_cards_counts(i).n_pinned;
#endif
    return n;
}

/* At most so many since n_pinned() was `before`. A batch of these tests is
 * copied by one block. */
static inline void check_pinned(int64_t before, int64_t most)
{
    int64_t n = n_pinned() - before;
    if (n > most)
        printf("\n    %lld blocks have pinned memory\n", (long long) n);
    CHECK(n <= most);
}

/* For tasks that were inserted since n_waits() was `before`, none of which may
 * wait for a GPU. */
static inline void must_wait_once(int64_t before)
{
    must_wait();
    CHECK(n_waits() == before);
}

/* Any device of a place. */
static inline struct weft_where at(int place)
{
    int device = place == host_place() ? weft_rt_n_devices(rt) - 1 : place;
    return (struct weft_where){
        .device = device, .iteration = -1, .micro_batch = -1, .layer = -1};
}

/* A layout of call 1 on dp * tp * pp devices from this one on. */
static inline struct weft_g_layout layout_on(const struct weft_shape *shape,
                                             int32_t device, int32_t dp,
                                             int32_t tp, int32_t pp)
{
    struct weft_g_job job = weft_g_job_of(rt);
    job.gpus_apart |= is_apart;
    struct weft_plan plan = {
        .n_nodes = 1, .n_devices = job.n_devices, .n_gpus = job.n_gpus};
    struct weft_g_layout out;
    struct weft_err err;
    plan.call[1] = (struct weft_call_plan){
        .mesh = {0, 1, device, dp * tp * pp}, .dp = dp, .tp = tp, .pp = pp};
    REQUIRE_OK(weft_g_layout_init(&job, shape, &plan, 1, &out, &err), err);
    return out;
}

static inline struct weft_tile *tile_at(int place, enum weft_mem_class c,
                                        size_t bytes)
{
    struct weft_err err;
    struct weft_tile *tile = NULL;
    struct weft_tile_id id = {"m", "x", -1, -1, -1, place};
    REQUIRE_OK(weft_tile_create(rt, &id, c, bytes, &tile, &err), err);
    return tile;
}

static inline struct weft_tile *temp_at(int place, enum weft_mem_class c,
                                        size_t bytes)
{
    struct weft_err err;
    struct weft_tile *tile = NULL;
    struct weft_tile_id id = {"m", "temporary", -1, -1, -1, place};
    REQUIRE_OK(weft_tile_create_temp(rt, &id, c, bytes, &tile, &err), err);
    return tile;
}

static inline void put(struct weft_tile *tile, const void *from)
{
    memcpy(weft_tile_acquire(tile, WEFT_WRITE), from, weft_tile_bytes(tile));
    weft_tile_unacquire(tile);
}

static inline bool holds(struct weft_tile *tile, const void *what)
{
    const void *p = weft_tile_acquire(tile, WEFT_READ);
    bool same = memcmp(p, what, weft_tile_bytes(tile)) == 0;
    weft_tile_unacquire(tile);
    return same;
}

static inline float *numbers(uint32_t stream, size_t n)
{
    float *x = weft_alloc_aligned(n, sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float) weft_rng_normal(5, WEFT_RNG_INIT, stream, 0,
                                       (uint32_t) i);
    return x;
}

/* As weft_test_main(); skipped where there is no GPU, emulated or not. */
static inline int gpus_main(const char *suite, const struct weft_test *tests,
                            size_t n)
{
    char cards[12];
    snprintf(cards, sizeof cards, "%d", CARDS);
    setenv("WEFT_CARDS", cards, 0);
    if (n_found() == 0) {
        printf("skipped: no GPU\n");
        return 77;
    }
    return weft_test_main(suite, tests, n);
}

#endif
