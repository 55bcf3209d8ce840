/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks that only sleep, so that a schedule of many devices can be played on
 * few cores; and tasks that keep a core busy. */
#include <time.h>

#include "base/clock.h"
#include "codelets/access_list.h"
#include "rt/codelet.h"

struct emulate_args {
    double seconds, latency_s;
    int32_t n_before;
    uint8_t is_far[WEFT_EMULATE_BEFORE]; /* before[i] is on another device */
};

static void sleep_until(double when)
{
    double left;
    while ((left = when - weft_clock_s()) > 0) {
        struct timespec t = {(time_t) left,
                             (long) ((left - (double) (time_t) left) * 1e9)};
        (void) nanosleep(&t, NULL);
    }
}

static int emulate_cpu(const void *args_, void *const buf[], int n_buf,
                       struct weft_exec *x)
{
    (void) x;
    const struct emulate_args *args = args_;
    weft_assert(n_buf == 1 + args->n_before);
    struct weft_span *span = buf[0];
    double start = weft_clock_s(), ready = start;
    for (int32_t i = 0; i < args->n_before; i++) {
        const struct weft_span *before = buf[1 + i];
        double there = before->end_s
                     + (args->is_far[i] ? args->latency_s : 0);
        ready = there > ready ? there : ready;
    }
    sleep_until(ready);
    span->start_s = ready > start ? ready : start;
    sleep_until(span->start_s + args->seconds);
    span->end_s = weft_clock_s();
    return 0;
}

WEFT_CODELET(emulate, 0x9e9e9e, emulate_cpu)

void weft_insert_emulate(struct weft_seq *seq, const struct weft_where *where,
                         double seconds, double latency_s, int32_t n_before,
                         struct weft_tile *const before[],
                         const bool is_far[], struct weft_tile *span)
{
    struct emulate_args args = {seconds, latency_s, n_before, {0}};
    struct weft_access_list access;
    weft_assert(n_before <= WEFT_EMULATE_BEFORE);
    weft_access_list_init(&access);
    weft_access_list_add(&access, span, WEFT_WRITE);
    for (int32_t i = 0; i < n_before; i++) {
        args.is_far[i] = is_far[i];
        weft_access_list_add(&access, before[i], WEFT_READ);
    }
    weft_access_list_insert(&access, seq, where, &weft_cl_emulate, &args,
                            sizeof args);
}

static int spin_cpu(const void *args, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    (void) buf;
    (void) x;
    weft_assert(n_buf == 1);
    double end = weft_clock_s() + *(const double *) args;
    while (weft_clock_s() < end)
        ;
    return 0;
}

WEFT_CODELET(spin, 0x9e9e9e, spin_cpu)

void weft_insert_spin(struct weft_seq *seq, const struct weft_where *where,
                      double seconds, struct weft_tile *tile)
{
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, tile, WEFT_READ_WRITE);
    weft_access_list_insert(&access, seq, where, &weft_cl_spin, &seconds,
                            sizeof seconds);
}
