/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Searching for a given time: one search after the other, each from another
 * seed and with more evaluations, since annealing over more of them ends
 * lower. The last one's number is what fits the time that is left, so that it
 * is not cut in the middle of its annealing.
 */
#include "schedule/schedule.h"

/* A search of at most so many times the last one's evaluations. */
enum { MOST_GROWTH = 8 };

static bool better(const struct weft_schedule_result *a,
                   const struct weft_schedule_result *b)
{
    return a->schedule.makespan < b->schedule.makespan
        || (a->schedule.makespan == b->schedule.makespan
            && a->schedule.peak_activation < b->schedule.peak_activation);
}

/* Keeps the better schedule in `best`, and what is known of both. */
static void keep(struct weft_schedule_result *best,
                 struct weft_schedule_result *next)
{
    int64_t evaluations = best->evaluations + next->evaluations;
    double seconds = best->seconds + next->seconds;
    bool optimal = best->optimal || next->optimal;
    if (better(next, best)) {
        struct weft_schedule_result worse = *best;
        *best = *next;
        *next = worse;
    }
    weft_schedule_release(&next->schedule);
    if (next->bound.makespan > best->bound.makespan) {
        best->bound.makespan = next->bound.makespan;
        best->bound.argument = next->bound.argument;
    }
    best->optimal = optimal;
    best->evaluations = evaluations;
    best->seconds = seconds;
}

/* Evaluations of the next search in `left_s` seconds. */
static int64_t next_evaluations(const struct weft_schedule_result *last,
                                double left_s)
{
    double rate = (double) last->evaluations
                / (last->seconds > 1e-3 ? last->seconds : 1e-3);
    double most = (double) MOST_GROWTH * (double) last->evaluations;
    double fits = rate * left_s;
    return 1 + (int64_t) (fits < most ? fits : most);
}

int weft_schedule_search_until(const struct weft_schedule_problem *problem,
                               const struct weft_schedule_options *options,
                               weft_schedule_search_fn search,
                               struct weft_schedule_result *out,
                               struct weft_err *err)
{
    struct weft_schedule_options o = *options;
    double limit_s = options->time_limit_s;
    int rc = search(problem, &o, out, err);
    if (limit_s <= 0 || options->evaluations > 0)
        return rc;
    struct weft_schedule_result last = *out;
    while (!rc && !out->optimal && !last.cut
           && out->seconds < 0.95 * limit_s) {
        o.seed++;
        o.time_limit_s = limit_s - out->seconds;
        o.evaluations = next_evaluations(&last, o.time_limit_s);
        struct weft_schedule_result next;
        rc = search(problem, &o, &next, err);
        if (rc == WEFT_ENOTFOUND) {
            rc = 0; /* with few evaluations left it can find none */
            break;
        }
        last = next;
        if (!rc)
            keep(out, &next);
    }
    if (rc)
        weft_schedule_release(&out->schedule);
    else
        out->cut = !out->optimal;
    return rc;
}
