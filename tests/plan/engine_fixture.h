/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings written task by task, and the engine that plays them. */
#ifndef WEFT_TESTS_PLAN_ENGINE_FIXTURE_H
#define WEFT_TESTS_PLAN_ENGINE_FIXTURE_H

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "harness.h"
#include "plan/engine/engine.h"

enum { READ, WRITE, BOTH, DEVICES = 4, MOST_TASKS = 64 };

static double seconds_of[MOST_TASKS]; /* by task */
static struct weft_engine_message message_of[MOST_TASKS];
static struct weft_recording r;

static inline double seconds(void *ctx, const struct weft_recording *rec,
                             int64_t task, int32_t device)
{
    (void) rec;
    /* a device of another speed */
    return seconds_of[task] * (ctx && device == 1 ? *(double *) ctx : 1);
}

static double insert_s[MOST_TASKS]; /* by task */

static inline double insert(void *ctx, const struct weft_recording *rec,
                            int64_t task)
{
    (void) ctx;
    (void) rec;
    return insert_s[task];
}

static inline void message(void *ctx, const struct weft_recording *rec,
                           int64_t task, struct weft_engine_message *out)
{
    (void) ctx;
    (void) rec;
    *out = message_of[task];
}

static const int32_t own_place[] = {0, 1, 2, 3, 4, 5, 6, 7};
static const int32_t same_place[] = {0, 0, 1, 1, 2, 2, 3, 3};
static const double links[] = {10, 10, 10, 10, 5, 20, 10, 10};

static const struct weft_engine_job own = {
    .n_devices = DEVICES,
    .n_places = DEVICES,
    .places_per_rank = 1,
    .place_of = own_place,
    .n_links = (int32_t) WEFT_COUNT(links),
    .bytes_per_s = links,
    .memory = true,
    .seconds = seconds,
    .message = message};

static inline void begin(void)
{
    weft_recording_init(&r);
    memset(message_of, 0, sizeof message_of);
}

static inline int32_t tile(int32_t place, size_t bytes)
{
    return weft_recording_tile(
        &r, &(struct weft_rec_tile){.bytes = bytes,
                                    .place = place,
                                    .whole = -1,
                                    .mem = WEFT_MEM_ACTIVATIONS});
}

/* Adds a task; then its accesses follow. */
static inline int64_t task(int32_t device, int64_t position, int priority,
                           double s)
{
    const struct weft_where where = {
        .device = device, .position = position, .priority = priority};
    weft_recording_task(&r, WEFT_REC_TASK, "task", &where, device);
    seconds_of[r.n_tasks - 1] = s;
    return r.n_tasks - 1;
}

/* That is member i of n, which run together. */
static inline void member(int32_t i, int32_t n)
{
    weft_recording_member(&r, &(struct weft_rec_member_of){i, n, i, NULL, 1});
}

static inline int64_t send(int32_t src, int32_t dst, int32_t link,
                           int32_t to_link, double bytes, double latency_s)
{
    const struct weft_where where = {.device = -1};
    weft_recording_task(&r, WEFT_REC_MESSAGE, "message", &where,
                        r.tile[dst].place);
    weft_recording_access(&r, src, READ);
    weft_recording_access(&r, dst, WRITE);
    message_of[r.n_tasks - 1] = (struct weft_engine_message){
        bytes, latency_s, 0, 2, {link, to_link}};
    return r.n_tasks - 1;
}

static inline struct weft_engine *play(const struct weft_engine_job *job)
{
    struct weft_engine *e;
    struct weft_err err;
    REQUIRE_OK(weft_engine_create(job, &r, &e, &err), err);
    REQUIRE_OK(weft_engine_run(e, &err), err);
    return e;
}

static inline struct weft_span span_of(const struct weft_engine *e, int64_t i)
{
    struct weft_span span = {-1, -1};
    int32_t device;
    CHECK(weft_engine_span(e, i, &span, &device));
    return span;
}

static inline void check_s(double actual, double expected)
{
    if (fabs(actual - expected) > 1e-9)
        printf("\n    %.12g, expected %.12g\n", actual, expected);
    CHECK(fabs(actual - expected) <= 1e-9);
}

static inline void check_span(const struct weft_engine *e, int64_t i,
                              double start, double end)
{
    check_s(span_of(e, i).start_s, start);
    check_s(span_of(e, i).end_s, end);
}

static inline void done(struct weft_engine *e)
{
    weft_engine_free(e);
    weft_recording_release(&r);
}

#endif
