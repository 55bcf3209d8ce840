/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "job/profile_inside.h"

enum {
    SOME_BYTES = 1 << 17, /* as tiles of gradients have */
    PAUSE_US = 500,
    LARGE_MESSAGE = 16 << 20,
    SMALL_MESSAGE = 64,
    RALLIES = 20,
    TIMES = 15,
    SMALL_TIMES = 100 /* rows of a millisecond and less */
};

/* Two tiles that are sent to and fro between the first two ranks. */
struct rally {
    struct weft_seq *seq;
    struct weft_tile *tile[2];
};

static int rally_create(struct weft_context *c, size_t bytes,
                        struct rally *out, struct weft_err *err)
{
    struct weft_rt *rt = weft_context_rt(c);
    struct weft_tile_id id = {"profiled", "message", 0, -1, -1, 0};
    int rc = 0;
    *out = (struct rally){.seq = c->seq};
    for (int i = 0; i < 2 && !rc; i++) {
        id.place = weft_rt_host_place(rt, i);
        rc = weft_tile_create(rt, &id, WEFT_MEM_ACTIVATIONS, bytes,
                              &out->tile[i], err);
    }
    return rc;
}

static double clock_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

/* CPU seconds of this process's other threads. */
static double others_s(void)
{
    return clock_of(CLOCK_PROCESS_CPUTIME_ID)
         - clock_of(CLOCK_THREAD_CPUTIME_ID);
}

/* Seconds of a message, in a row of them, each of which waits for the one
 * before. */
static int rally_play(const struct rally *r, double *out,
                      struct weft_err *err)
{
    const struct weft_where where = {
        .device = -1, .micro_batch = -1, .layer = -1};
    double start = weft_clock_s();
    for (int i = 0; i < 2 * RALLIES; i++)
        weft_insert_copy(r->seq, &where, r->tile[i % 2], r->tile[1 - i % 2]);
    int rc = weft_context_wait(r->seq, 0, err);
    *out = (weft_clock_s() - start) / (2 * RALLIES);
    return weft_world_agree(rc, err);
}

/* The least of some rows: others wait for cores that are busy otherwise. The
 * first one makes pages and connections. Five rows of small messages were all
 * slow now and then, by up to 30 times, with nothing else running. */
static int measure(struct weft_context *c, size_t bytes, int times,
                   double *least_out, struct weft_err *err)
{
    struct rally r;
    double s = 0;
    int rc = weft_world_agree(rally_create(c, bytes, &r, err), err);
    *least_out = 0;
    for (int i = 0; i <= times && !rc; i++) {
        rc = rally_play(&r, &s, err);
        if (i == 1 || (i > 0 && s < *least_out))
            *least_out = s;
    }
    for (int i = 0; i < 2; i++)
        weft_tile_release(r.tile[i]);
    return rc;
}

/* CPU seconds of a message, but for inserting it. In runs messages come one by
 * one, and threads that expect them have fallen asleep: there are pauses. */
static int handle(struct weft_context *c, size_t bytes, double *out,
                  struct weft_err *err)
{
    const struct weft_where where = {
        .device = -1, .micro_batch = -1, .layer = -1};
    struct rally r;
    int rc = weft_world_agree(rally_create(c, bytes, &r, err), err);
    *out = 0;
    for (int k = 0; k <= TIMES && !rc; k++) {
        double start = others_s();
        for (int i = 0; i < 2 * RALLIES; i++) {
            weft_insert_copy(r.seq, &where, r.tile[i % 2], r.tile[1 - i % 2]);
            usleep(PAUSE_US);
        }
        rc = weft_context_wait(r.seq, 0, err);
        double s = (others_s() - start) / (2 * RALLIES);
        if (k == 1 || (k > 0 && s < *out))
            *out = s;
        rc = weft_world_agree(rc, err);
    }
    for (int i = 0; i < 2; i++)
        weft_tile_release(r.tile[i]);
    return rc;
}

int weft_profile_messages(const struct weft_config *config,
                          struct weft_costs_file *file, struct weft_err *err)
{
    struct weft_context *c = NULL;
    double small_s, large_s = 0, core_s = 0, some_s = 0;
    int rc = weft_context_open_with(
        &(struct weft_context_options){.isa = config->numerics.isa,
                                       .rt = {.n_devices = 1, .nap = -1}},
        &c, err);
    rc = weft_world_agree(rc, err);
    if (!rc)
        rc = measure(c, SMALL_MESSAGE, SMALL_TIMES, &small_s, err);
    if (!rc)
        rc = measure(c, LARGE_MESSAGE, TIMES, &large_s, err);
    if (!rc)
        rc = handle(c, SMALL_MESSAGE, &core_s, err);
    if (!rc)
        rc = handle(c, SOME_BYTES, &some_s, err);
    if (!rc && !(large_s > small_s))
        rc = weft_err_set(err, WEFT_ESTATE,
                          "a message of %d bytes took no longer than one of "
                          "%d: is the machine busy?",
                          LARGE_MESSAGE, SMALL_MESSAGE);
    if (!rc) {
        file->message_core_s = core_s;
        file->message_core_byte_s = some_s > core_s
                                      ? (some_s - core_s)
                                            / (SOME_BYTES - SMALL_MESSAGE)
                                      : 0;
        file->message_s = small_s;
        file->message_rate = (LARGE_MESSAGE - SMALL_MESSAGE)
                           / (large_s - small_s);
    }
    weft_context_close(c);
    return weft_world_agree(rc, err);
}
