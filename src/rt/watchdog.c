/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Says what is stuck when no task ends for a while: which tasks run, how many
 * of which operation wait, whose turn in a strict order does not come, which
 * rank no longer answers. It reports once for each standstill and changes
 * nothing.
 */
#include <stdio.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "rt/internal.h"
#include "rt/transfer.h"

/* A rank that does not answer for so long is reported: the watchdog of each
 * rank looks at its messages once a second. */
static const double ANSWER_S = 5;

struct weft_watchdog {
    struct weft_watchdog_view view;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards stop */
    pthread_cond_t wake;
    bool stop;
};

static void report_running(struct weft_rt *rt)
{
    for (int d = 0; d < rt->n_workers; d++) {
        struct weft_worker *w = &rt->worker[d];
        pthread_mutex_lock(&w->mutex);
        const struct weft_task *t = w->running;
        if (t)
            weft_warn(
                "  %s %d runs %s (%s, iteration %d, micro-batch "
                "%d, layer %d) for %.1f s",
                d < rt->n_devices ? "device" : "the copies of device",
                rt->first_device
                    + (d < rt->n_devices
                           ? d
                           : (d - rt->n_devices) / WEFT_CARD_COPIERS),
                t->codelet->starpu.name, weft_rt_call_name(rt, t->where.call),
                t->where.iteration, t->where.micro_batch, t->where.layer,
                (weft_rt_now_us(rt) - t->start_us) * 1e-6);
        pthread_mutex_unlock(&w->mutex);
    }
}

/* Writes a text such as "layer_forward 12, adamw 3"; returns the total. */
static long list_pending(struct weft_rt *rt, char *text, size_t size)
{
    long total = 0;
    size_t n = 0;
    text[0] = 0;
    pthread_mutex_lock(&rt->mutex);
    for (struct weft_codelet *c = rt->codelet; c; c = c->next) {
        long pending = atomic_load(&c->n_pending);
        total += pending;
        if (pending > 0 && n < size)
            n += (size_t) snprintf(text + n, size - n, "%s%s %ld",
                                   n ? ", " : "", c->starpu.name, pending);
    }
    pthread_mutex_unlock(&rt->mutex);
    return total;
}

static void report_turns(struct weft_rt *rt)
{
    char text[512];
    if (!rt->policy)
        return;
    pthread_mutex_lock(&rt->mutex);
    for (struct weft_seq *seq = rt->seq; seq; seq = seq->next) {
        rt->policy->describe(seq->gates, text, sizeof text);
        if (text[0])
            weft_warn("  %s", text);
    }
    pthread_mutex_unlock(&rt->mutex);
}

/* True when there was something to report. */
static bool report(struct weft_rt *rt, double standstill_s)
{
    char text[1024];
    long n = list_pending(rt, text, sizeof text);
    long n_external = atomic_load(&rt->n_external);
    double waits = weft_world_waits_s();
    if (n == 0 && n_external == 0 && waits == 0
        && atomic_load(&rt->n_transfers) == 0)
        return false;
    weft_warn("no task has ended for %.1f s; %ld wait or run: %s",
              standstill_s, n, n ? text : "none");
    if (n_external)
        weft_warn("  %ld answers from outside have not come", n_external);
    weft_transfer_report(rt);
    if (waits > 0)
        weft_warn("  rank %d waits for the other ranks to come to the same "
                  "point since %.1f s",
                  rt->rank, waits);
    report_running(rt);
    report_turns(rt);
    return true;
}

/* Whether nothing is pending that could make progress. */
static bool is_idle(struct weft_rt *rt)
{
    char none[1];
    return list_pending(rt, none, sizeof none) == 0
        && atomic_load(&rt->n_external) == 0 && weft_world_waits_s() == 0
        && atomic_load(&rt->n_transfers) == 0;
}

void weft_watchdog_look(struct weft_watchdog_view *view, double now_s)
{
    struct weft_rt *rt = view->rt;
    /* Time without pending work is no standstill: it counts as progress. */
    long ended = atomic_load(&rt->n_ended);
    bool idle = is_idle(rt);
    weft_world_life_answer();
    if (ended != view->seen || idle) {
        view->seen = ended;
        view->moved_s = now_s;
        view->told = view->blamed = false;
    } else if (view->after_s > 0 && !view->told
               && now_s - view->moved_s >= view->after_s) {
        view->told = report(rt, now_s - view->moved_s);
        view->asked_s = now_s;
        weft_world_life_ask();
    } else if (view->told && !view->blamed
               && now_s - view->asked_s >= ANSWER_S) {
        int silent = weft_world_life_silent();
        view->blamed = true;
        if (silent >= 0)
            weft_warn("  rank %d has not answered for %.1f s: its process "
                      "is stopped, or its machine out of reach",
                      silent, now_s - view->asked_s);
    }
}

static void *watch(void *arg)
{
    struct weft_watchdog *w = arg;
    double after_s = w->view.after_s;
    double period = after_s > 0 && after_s < 4 ? after_s / 4 : 1;
    pthread_mutex_lock(&w->mutex);
    while (!w->stop) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        double until = (double) t.tv_nsec * 1e-9 + period;
        t.tv_sec += (time_t) until;
        t.tv_nsec = (long) ((until - (double) (time_t) until) * 1e9);
        pthread_cond_timedwait(&w->wake, &w->mutex, &t);
        weft_watchdog_look(&w->view, weft_clock_s());
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

int weft_watchdog_start(struct weft_rt *rt, double after_s,
                        struct weft_err *err)
{
    struct weft_watchdog *w = weft_alloc(1, sizeof *w);
    if (!w)
        return weft_err_nomem(err, "the watchdog", sizeof *w);
    w->view = (struct weft_watchdog_view){
        .rt = rt, .after_s = after_s, .moved_s = weft_clock_s(), .seen = -1};
    pthread_mutex_init(&w->mutex, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &attr);
    pthread_condattr_destroy(&attr);
    if (pthread_create(&w->thread, NULL, watch, w)) {
        pthread_cond_destroy(&w->wake);
        pthread_mutex_destroy(&w->mutex);
        weft_free(w);
        return weft_err_set(err, WEFT_ENOMEM,
                            "cannot start the watchdog's thread");
    }
    rt->watchdog = w;
    return 0;
}

void weft_watchdog_stop(struct weft_rt *rt)
{
    struct weft_watchdog *w = rt->watchdog;
    if (!w)
        return;
    pthread_mutex_lock(&w->mutex);
    w->stop = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->mutex);
    weft_free(w);
    rt->watchdog = NULL;
}
