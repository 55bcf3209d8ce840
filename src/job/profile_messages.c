/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "job/profile_inside.h"

enum {
    PAUSE_US = 500,
    RALLIES = 20,
    TIMES = 15,
    SMALL = 4096,
    SMALL_TIMES = 100 /* rows of a millisecond and less */
};

/* Of a message. Larger ones than small are announced first, and wait until the
 * other rank looks: their time has a part that hardly grows with them, nor does
 * that of cores, as one side copies. */
static const int sizes[] = {64, SMALL, 1 << 16, 1 << 20, 1 << 24};

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
    struct weft_cost_message *m = file->message;
    int rc = weft_context_open_with(
        &(struct weft_context_options){.isa = config->numerics.isa,
                                       .rt = {.n_devices = 1, .nap = -1}},
        &c, err);
    rc = weft_world_agree(rc, err);
    for (size_t i = 0; i < WEFT_COUNT(sizes) && !rc; i++) {
        m[i].bytes = sizes[i];
        rc = measure(c, (size_t) sizes[i],
                     sizes[i] <= SMALL ? SMALL_TIMES : TIMES, &m[i].seconds,
                     err);
        if (!rc)
            rc = handle(c, (size_t) sizes[i], &m[i].core_s, err);
    }
    file->n_messages = rc ? 0 : (int32_t) WEFT_COUNT(sizes);
    const struct weft_cost_message *last = &m[WEFT_COUNT(sizes) - 1];
    if (!rc && !(last->seconds > last[-1].seconds))
        rc = weft_err_set(err, WEFT_ESTATE,
                          "a message of %d bytes took no longer than one of "
                          "%d: is the machine busy?",
                          (int) last->bytes, (int) last[-1].bytes);
    weft_context_close(c);
    return weft_world_agree(rc, err);
}
