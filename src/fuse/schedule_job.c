/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/schedule_job.h"

#include <string.h>

#include "base/clock.h"
#include "rt/graph.h"

/* The bits of a double >= 0, which are ordered like the numbers. */
static int64_t bits_of(double x)
{
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Whether this rank is among those, of the ranks that are `in`, that have the
 * least value. Collective. */
static bool stay(bool in, int64_t value)
{
    int64_t least = weft_world_min(in ? value : INT64_MAX);
    return in && value == least;
}

/* The rank whose result is best. Results are compared as a single process
 * compares its restarts, which stops after the round in which the first of
 * them reaches the bounds. */
static int winner(bool found, const struct weft_schedule_result *r)
{
    bool in = stay(found, bits_of(r->schedule.makespan));
    in = stay(in, bits_of(r->schedule.peak_activation));
    in = stay(in, r->rounds);
    in = stay(in, r->restart);
    return (int) weft_world_max(in ? weft_world_rank() : -1);
}

/* Sends the rank's schedule to all; allocates it where a rank has found
 * none. */
static int share_schedule(const struct weft_schedule_problem *problem,
                          int rank, bool found, struct weft_schedule *s,
                          struct weft_err *err)
{
    int rc = 0;
    if (!found)
        rc = weft_schedule_baseline(problem, WEFT_SCHEDULE_GREEDY, s, err);
    rc = weft_world_agree(rc, err);
    if (rc)
        return rc;
    for (int32_t d = 0; d < s->n_devices; d++)
        weft_world_share_from(rank, s->task[d],
                              (size_t) s->n[d] * sizeof **s->task);
    weft_world_share_from(rank, &s->makespan, sizeof s->makespan);
    weft_world_share_from(rank, &s->peak_activation,
                          sizeof s->peak_activation);
    return 0;
}

static int share_result(const struct weft_schedule_problem *problem,
                        bool found, struct weft_schedule_result *r,
                        struct weft_err *err)
{
    int rank = winner(found, r);
    int64_t restart = r->restart, rounds = r->rounds, optimal = r->optimal;
    r->evaluations = weft_world_sum(r->evaluations);
    r->cut = weft_world_max(r->cut) > 0;
    weft_world_share_from(rank, &restart, sizeof restart);
    weft_world_share_from(rank, &rounds, sizeof rounds);
    weft_world_share_from(rank, &optimal, sizeof optimal);
    weft_world_share_from(rank, &r->bound.makespan, sizeof(double));
    weft_world_share_from(rank, &r->bound.peak_activation, sizeof(double));
    weft_world_share(&r->seconds, sizeof r->seconds);
    r->restart = (int32_t) restart;
    r->rounds = (int32_t) rounds;
    r->optimal = optimal;
    return share_schedule(problem, rank, found, &r->schedule, err);
}

static int search(const struct weft_schedule_problem *problem,
                  const struct weft_schedule_options *options,
                  struct weft_schedule_result *out, struct weft_err *err)
{
    struct weft_schedule_options own = *options;
    struct weft_schedule_result r = {0};
    own.first_restart = weft_world_rank();
    own.restart_stride = weft_world_size();
    int rc = weft_schedule_search(problem, &own, &r, err);
    bool found = rc == 0;
    /* It is enough that one rank finds a schedule; other errors fail all. */
    if (weft_world_max(found) > 0 && rc == WEFT_ENOTFOUND)
        rc = 0;
    rc = weft_world_agree(rc, err);
    if (!rc && weft_world_size() > 1)
        rc = share_result(problem, found, &r, err);
    if (rc)
        weft_schedule_release(&r.schedule);
    else
        *out = r;
    return rc;
}

static int search_and_prove(const struct weft_schedule_problem *problem,
                            const struct weft_schedule_options *options,
                            struct weft_schedule_result *out,
                            struct weft_err *err)
{
    struct weft_schedule_result r;
    int rc = search(problem, options, &r, err);
    if (rc)
        return rc;
    double begin_s = weft_clock_s();
    rc = weft_schedule_prove(problem, options, &r, err);
    double prove_s = weft_clock_s() - begin_s;
    weft_world_share(&prove_s, sizeof prove_s);
    r.seconds += prove_s;
    if (rc)
        weft_schedule_release(&r.schedule);
    else
        *out = r;
    return rc;
}

int weft_schedule_job_search(const struct weft_schedule_problem *problem,
                             const struct weft_schedule_options *options,
                             struct weft_schedule_result *out,
                             struct weft_err *err)
{
    return weft_schedule_search_until(problem, options, search_and_prove, out,
                                      err);
}

int weft_schedule_job_pareto(const struct weft_schedule_problem *problem,
                             const struct weft_schedule_options *options,
                             struct weft_schedule **out, int32_t *n_out,
                             struct weft_err *err)
{
    return weft_schedule_pareto(problem, options, search, out, n_out, err);
}
