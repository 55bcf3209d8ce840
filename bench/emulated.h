/* SPDX-License-Identifier: Apache-2.0 */
/* What benchmarks on emulated devices have in common: the runtime with its
 * policy executes a recording's tasks, each of which only sleeps for its time,
 * so the order of tasks is the real one's, whatever this machine has. A failure
 * ends the program. */
#ifndef WEFT_BENCH_EMULATED_H
#define WEFT_BENCH_EMULATED_H

#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "bench/check.h"
#include "plan/recording.h"
#include "rt/codelet.h"
#include "sched/sched.h"

/* Seconds of a recorded task on a device. */
typedef double (*emulated_fn)(void *ctx, const struct weft_recording *r,
                              int64_t task, int32_t device);

struct sleep_args {
    double seconds;
    struct weft_span *span;
};

static int sleep_cpu(const void *args_, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    const struct sleep_args *args = args_;
    double left;
    (void) buf;
    (void) n_buf;
    (void) x;
    args->span->start_s = weft_clock_s();
    while ((left = args->span->start_s + args->seconds - weft_clock_s())
           > 0) {
        struct timespec t = {(time_t) left,
                             (long) ((left - (double) (time_t) left) * 1e9)};
        (void) nanosleep(&t, NULL);
    }
    args->span->end_s = weft_clock_s();
    return 0;
}
WEFT_CODELET(sleep, 0x808080, sleep_cpu)

struct emulated {
    emulated_fn seconds;
    bool pins;
    void *ctx;
    struct weft_rt *rt;
    struct weft_seq *seq;
    const struct weft_recording *r;
    struct weft_tile **tile;
    struct weft_span *span; /* (n_tasks) */
    int64_t wait, lots;
};

static void pass_waits(struct emulated *j, int64_t task)
{
    const struct weft_recording *r = j->r;
    for (; j->lots < r->n_lots && r->lot[j->lots] <= task; j->lots++)
        weft_seq_lot(j->seq);
    for (; j->wait < r->n_waits && r->wait[j->wait].task <= task; j->wait++) {
        const struct weft_rec_wait *w = &r->wait[j->wait];
        if (w->tile >= 0) {
            (void) weft_tile_acquire(j->tile[w->tile], WEFT_READ);
            weft_tile_unacquire(j->tile[w->tile]);
        } else if (!w->local) {
            CHECK(weft_seq_wait(j->seq, &err));
        } else {
            int64_t lot = 0; /* it ends where the next one begins */
            while (r->lot[lot] != w->ended)
                lot++;
            weft_seq_wait_lot(j->seq, lot);
        }
    }
}

static void insert(struct emulated *j, int64_t i)
{
    enum { MOST = 512 };
    struct weft_access access[MOST];
    const struct weft_rec_task *t = &j->r->task[i];
    const struct weft_where where = {
        .device = t->device < 0 && j->pins ? t->place : t->device,
        .priority = t->priority,
        .position = t->position,
        .chain = t->chain,
        .call = t->call,
        .iteration = t->iteration,
        .micro_batch = t->micro_batch,
        .layer = t->layer};
    const struct sleep_args args = {j->seconds(j->ctx, j->r, i, t->device),
                                    &j->span[i]};
    if (t->kind == WEFT_REC_ANSWER)
        return; /* it is there at once */
    weft_assert(t->n_access <= MOST && t->kind == WEFT_REC_TASK);
    for (int32_t k = 0; k < t->n_access; k++) {
        struct weft_rec_access a = j->r->access[t->access + k];
        access[k] = (struct weft_access){j->tile[a.tile],
                                         a.mode == 0   ? WEFT_READ
                                         : a.mode == 1 ? WEFT_WRITE
                                                       : WEFT_READ_WRITE};
    }
    weft_insert(j->seq, &weft_cl_sleep, &args, sizeof args, access,
                t->n_access, &where);
}

/* Returns the seconds from the first start to the last end. pins: places have a
 * device each, which runs their tasks; else those without a device run on any.
 * All tiles lie together, as copies between places sleep, too. */
static double execute(const struct weft_recording *r, int32_t n_devices,
                      bool pins, emulated_fn seconds, void *ctx,
                      struct weft_span *span)
{
    struct weft_rt_options options = {
        .n_devices = n_devices, .policy = &weft_sched_lanes, .nap = 1};
    struct emulated j = {
        .seconds = seconds, .pins = pins, .ctx = ctx, .r = r, .span = span};
    double first = 0, last = 0;
    j.tile = weft_alloc((size_t) r->n_tiles, sizeof *j.tile);
    CHECK(weft_rt_start(&options, &j.rt, &err));
    CHECK(weft_seq_create(j.rt, &j.seq, &err));
    for (int64_t i = 0; i < r->n_tiles; i++)
        CHECK(weft_tile_create(j.rt,
                               &(struct weft_tile_id){.model = "emulated"},
                               WEFT_MEM_SAMPLES, 8, &j.tile[i], &err));
    for (int64_t i = 0; i < r->n_tasks; i++) {
        pass_waits(&j, i);
        insert(&j, i);
    }
    CHECK(weft_seq_wait(j.seq, &err));
    for (int64_t i = 0; i < r->n_tiles; i++)
        weft_tile_release(j.tile[i]);
    weft_seq_free(j.seq);
    weft_rt_stop(j.rt);
    for (int64_t i = 0; i < r->n_tasks; i++) {
        if (span[i].end_s > 0 && (first == 0 || span[i].start_s < first))
            first = span[i].start_s;
        last = span[i].end_s > last ? span[i].end_s : last;
    }
    weft_free(j.tile);
    return last - first;
}

#endif
