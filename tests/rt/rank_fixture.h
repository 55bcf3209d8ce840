/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A runtime that is every rank's, a task whose result depends on all that it
 * reads, and the main of test programs that ranks.sh runs under mpirun.
 */
#ifndef WEFT_TESTS_RT_RANK_FIXTURE_H
#define WEFT_TESTS_RT_RANK_FIXTURE_H

#include "harness.h"
#include "rt/codelet.h"
#include "rt/graph.h"

enum { PLACES = 8 }; /* at most */

static struct weft_rt *rt;
static struct weft_seq *seq;
static const struct weft_where anywhere = {
    .device = -1, .iteration = -1, .micro_batch = -1, .layer = -1};

static inline void start(int n_devices, bool place_per_device)
{
    struct weft_err err;
    struct weft_rt_options options = {.n_devices = n_devices,
                                      .place_per_device = place_per_device,
                                      .nap = 1,
                                      .memory_limit_bytes = 64 << 20};
    REQUIRE_OK(weft_rt_start(&options, &rt, &err), err);
    REQUIRE_OK(weft_seq_create(rt, &seq, &err), err);
}

static inline void stop(void)
{
    weft_seq_free(seq);
    weft_rt_stop(rt);
}

static inline struct weft_tile *tile_at(int place, size_t bytes,
                                        bool temporary)
{
    struct weft_err err;
    struct weft_tile *tile = NULL;
    struct weft_tile_id id = {"m", "x", -1, -1, -1, place};
    REQUIRE_OK((temporary ? weft_tile_create_temp : weft_tile_create)(
                   rt, &id, WEFT_MEM_SAMPLES, bytes, &tile, &err),
               err);
    CHECK_INT(weft_tile_place(tile), place);
    CHECK_INT(weft_tile_is_here(tile),
              weft_rt_place_rank(rt, place) == weft_world_rank());
    return tile;
}

/* Every byte of the output depends on every byte of the inputs. */
struct scramble {
    uint64_t salt;
    size_t bytes[4]; /* of the buffers */
};

static inline int scramble_cpu(const void *args, void *const buf[], int n_buf,
                               struct weft_exec *x)
{
    (void) x;
    const struct scramble *s = args;
    uint64_t h = s->salt;
    for (int i = 0; i < n_buf; i++)
        for (size_t k = 0; k < s->bytes[i]; k++)
            h = (h ^ ((const unsigned char *) buf[i])[k]) * 0x100000001b3u;
    for (size_t k = 0; k < s->bytes[0]; k++) {
        ((unsigned char *) buf[0])[k] = (unsigned char) (h >> 32);
        h = h * 0x5851f42d4c957f2du + 1;
    }
    return 0;
}
WEFT_CODELET(scramble, 0x123456, scramble_cpu)

/* All ranks have the status of the worst. */
static inline int ranks_main(const char *suite, const struct weft_test *tests,
                             size_t n)
{
    struct weft_err err;
    if (weft_world_open(&err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    int status = weft_test_main(suite, tests, n);
    status = (int) weft_world_max(status);
    weft_world_close();
    return status;
}

#endif
