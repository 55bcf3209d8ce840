/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search: independent restarts advance in rounds. After a round in which
 * one of them has met the bounds the search ends with the first that did;
 * within the round the later ones are dropped, the earlier ones finish. So
 * the result depends on seed and evaluations alone, not on threads.
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/threads.h"
#include "schedule/search/search.h"
#include "schedule/tasks.h"

enum { DEFAULT_RESTARTS = 4, N_ROUNDS = 64 };
enum { LEAST_EVALUATIONS = 40000000, MOST_EVALUATIONS = 120000000 };
/* Steps that refuting makespans may take: before the search, and after it per
 * evaluation and at most. */
enum {
    FIRST_STEPS = 20000000,
    STEPS_PER_EVALUATION = 64,
    MOST_STEPS = 2000000000
};

struct search {
    const struct weft_schedule_options *options;
    struct weft_jobshop_pair pair;
    struct weft_jobshop_goal goal;
    struct weft_jobshop_restart **restart;
    int32_t n_restarts, stride;
    int64_t round; /* evaluations of a restart in a round */
    double begin_s;
    atomic_int reached; /* least restart that met the bounds */
    atomic_bool cut;
    pthread_mutex_t lock; /* of progress */
    double makespan, peak;
    int64_t evaluations; /* of whole rounds */
};

static bool cut(void *ctx, int32_t restart)
{
    struct search *s = ctx;
    const struct weft_schedule_options *o = s->options;
    if ((o->time_limit_s > 0 && weft_clock_s() - s->begin_s > o->time_limit_s)
        || (o->stop && o->stop(o->ctx)))
        atomic_store(&s->cut, true);
    return atomic_load(&s->cut) || atomic_load(&s->reached) < restart;
}

static void found(void *ctx, double makespan, double peak)
{
    struct search *s = ctx;
    pthread_mutex_lock(&s->lock);
    if (makespan < s->makespan
        || (makespan == s->makespan && peak < s->peak)) {
        s->makespan = makespan;
        s->peak = peak;
        if (s->options->progress)
            s->options->progress(s->options->ctx, makespan, peak,
                                 s->evaluations);
    }
    pthread_mutex_unlock(&s->lock);
}

static void run_restart(void *ctx, int64_t i)
{
    struct search *s = ctx;
    int32_t index = s->options->first_restart + (int32_t) i * s->stride;
    if (cut(s, index))
        return;
    weft_jobshop_restart_run(s->restart[i], s->round);
    if (!weft_jobshop_restart_best(s->restart[i])->reached)
        return;
    int least = atomic_load(&s->reached);
    while (index < least
           && !atomic_compare_exchange_weak(&s->reached, &least, index))
        ;
}

static void run_round(struct search *s, int32_t n_threads)
{
    weft_threads_run(n_threads, s->n_restarts, run_restart, s);
    s->evaluations = 0;
    for (int32_t i = 0; i < s->n_restarts; i++)
        s->evaluations +=
            weft_jobshop_restart_best(s->restart[i])->evaluations;
}

/* ---- Preparing --------------------------------------------------------- */

/* About a minute on one core; fewer for large problems, whose swaps take
 * longer. */
static int64_t default_evaluations(
    const struct weft_schedule_problem *problem)
{
    int64_t n = INT64_C(120000000000) / (weft_schedule_count(problem) + 1);
    return weft_max64(LEAST_EVALUATIONS, weft_min64(n, MOST_EVALUATIONS));
}

static int prepare(struct search *s,
                   const struct weft_schedule_problem *problem,
                   struct weft_schedule_bound *bound, struct weft_err *err)
{
    const struct weft_schedule_options *o = s->options;
    int32_t n = o->n_restarts > 0 ? o->n_restarts : DEFAULT_RESTARTS;
    int64_t evaluations = o->evaluations > 0 ? o->evaluations
                                             : default_evaluations(problem);
    s->stride = o->restart_stride > 0 ? o->restart_stride : 1;
    s->n_restarts = (n - o->first_restart + s->stride - 1) / s->stride;
    s->n_restarts = s->n_restarts > 0 ? s->n_restarts : 0;
    bound->makespan = weft_jobshop_bound(&s->pair, problem->capacity, 1,
                                         &bound->argument);
    if (bound->makespan >= 0)
        bound->makespan = weft_jobshop_refute(
            &s->pair.forward, problem->capacity, bound->makespan, INFINITY,
            weft_min64(FIRST_STEPS, evaluations), &bound->argument);
    if (bound->makespan == INFINITY)
        return weft_err_set(err, WEFT_ENOTFOUND,
                            "nothing fits the capacity %g: one micro-batch "
                            "alone holds more on some stage",
                            problem->capacity);
    bound->peak_activation = weft_jobshop_peak_bound(&s->pair,
                                                     bound->makespan, 1);
    /* This comes last: it leaves heads and tails that hold under every
     * capacity. */
    double free_bound = weft_jobshop_bound(&s->pair, 0, 1, NULL);
    if (bound->makespan < 0 || bound->peak_activation < 0 || free_bound < 0)
        return weft_err_nomem(err, "a schedule's bounds", 0);
    s->goal = (struct weft_jobshop_goal){
        .pair = &s->pair,
        .capacity = problem->capacity,
        .makespan = bound->makespan,
        .peak = bound->peak_activation,
        .memory_binds = !weft_jobshop_at_most(bound->makespan, free_bound),
        .seed = o->seed,
        .share = weft_max64(1, evaluations / n), /* one builds a schedule */
        .cut = cut,
        .found = found,
        .ctx = s};
    s->round = s->goal.share / N_ROUNDS + 1;
    s->restart = weft_alloc((size_t) s->n_restarts, sizeof *s->restart);
    if (!s->restart)
        return weft_err_nomem(err, "restarts", 0);
    int rc = 0;
    for (int32_t i = 0; i < s->n_restarts && !rc; i++)
        rc = weft_jobshop_restart_create(
            &s->goal, o->first_restart + i * s->stride, &s->restart[i], err);
    return rc;
}

static void release(struct search *s)
{
    for (int32_t i = 0; i < s->n_restarts && s->restart; i++)
        weft_jobshop_restart_free(s->restart[i]);
    weft_free(s->restart);
    weft_jobshop_pair_release(&s->pair);
    pthread_mutex_destroy(&s->lock);
}

/* ---- Results ----------------------------------------------------------- */

static bool better(const struct weft_jobshop_best *a,
                   const struct weft_jobshop_best *b)
{
    double slack = b->makespan * WEFT_JOBSHOP_SLACK;
    return a->makespan < b->makespan - slack
        || (a->makespan <= b->makespan + slack && a->peak < b->peak);
}

/* A search that was stopped before its first schedule gives the greedy one, or
 * the serial one, where they keep to the capacity. */
static int finish_early(struct search *s, struct weft_schedule_result *out,
                        struct weft_err *err)
{
    static const enum weft_schedule_algorithm which[] = {
        WEFT_SCHEDULE_GREEDY, WEFT_SCHEDULE_SERIAL};
    double capacity = s->goal.capacity;
    for (size_t i = 0; i < WEFT_COUNT(which) && atomic_load(&s->cut); i++) {
        if (weft_schedule_baseline(s->pair.forward.problem, which[i],
                                   &out->schedule, err)
            != 0)
            continue;
        if (out->schedule.task
            && (capacity <= 0
                || weft_jobshop_at_most(out->schedule.peak_activation,
                                        capacity)))
            return 0;
        weft_schedule_release(&out->schedule);
    }
    return weft_err_set(err, WEFT_ENOTFOUND,
                        "no schedule found within the capacity %g; one that "
                        "is shorter than %g needs at least %g",
                        capacity, out->bound.makespan,
                        out->bound.peak_activation);
}

static int finish(struct search *s, struct weft_schedule_result *out,
                  struct weft_err *err)
{
    int32_t k = -1;
    for (int32_t i = 0; i < s->n_restarts; i++) {
        const struct weft_jobshop_best *b = weft_jobshop_restart_best(
            s->restart[i]);
        if (b->makespan < INFINITY
            && (k < 0 || better(b, weft_jobshop_restart_best(s->restart[k]))))
            k = i;
    }
    if (k < 0)
        return finish_early(s, out, err);
    const struct weft_jobshop_best *b = weft_jobshop_restart_best(
        s->restart[k]);
    out->restart = s->options->first_restart + k * s->stride;
    out->optimal = weft_jobshop_at_most(b->makespan, out->bound.makespan);
    if (!out->optimal)
        out->bound.peak_activation = weft_jobshop_peak_bound(&s->pair,
                                                             b->makespan, 1);
    return weft_jobshop_export(&s->pair.forward, b->sequence, &out->schedule,
                               err);
}

int weft_schedule_search(const struct weft_schedule_problem *problem,
                         const struct weft_schedule_options *options,
                         struct weft_schedule_result *out,
                         struct weft_err *err)
{
    struct search s = {.options = options,
                       .begin_s = weft_clock_s(),
                       .makespan = INFINITY,
                       .peak = INFINITY};
    struct weft_schedule_result r = {0};
    int32_t n_threads = options->n_threads;
    atomic_init(&s.reached, INT32_MAX);
    atomic_init(&s.cut, false);
    pthread_mutex_init(&s.lock, NULL);
    if (n_threads <= 0)
        n_threads = weft_threads_usable();
    int rc = weft_jobshop_pair_init(&s.pair, problem, err);
    if (!rc)
        rc = prepare(&s, problem, &r.bound, err);
    for (int i = 0; i < N_ROUNDS && !rc && !atomic_load(&s.cut)
                    && atomic_load(&s.reached) == INT32_MAX;
         i++, r.rounds = i)
        run_round(&s, n_threads);
    if (!rc)
        rc = finish(&s, &r, err);
    r.evaluations = s.evaluations;
    r.cut = atomic_load(&s.cut);
    r.seconds = weft_clock_s() - s.begin_s;
    release(&s);
    if (!rc)
        *out = r;
    return rc;
}

int weft_schedule_prove(const struct weft_schedule_problem *problem,
                        const struct weft_schedule_options *options,
                        struct weft_schedule_result *result,
                        struct weft_err *err)
{
    struct weft_schedule_bound *b = &result->bound;
    struct weft_jobshop_pair pair;
    double makespan = result->schedule.makespan;
    int64_t evaluations = options->evaluations > 0
                            ? options->evaluations
                            : default_evaluations(problem);
    int64_t steps = weft_min64(MOST_STEPS / (result->cut ? 4 : 1),
                               weft_min64(evaluations, MOST_STEPS)
                                   * STEPS_PER_EVALUATION);
    if (result->optimal)
        return 0;
    int rc = weft_jobshop_pair_init(&pair, problem, err);
    if (rc)
        return rc;
    b->makespan = weft_jobshop_refute(&pair.forward, problem->capacity,
                                      b->makespan, makespan, steps,
                                      &b->argument);
    result->optimal = weft_jobshop_at_most(makespan, b->makespan);
    if (b->makespan < 0)
        rc = weft_err_nomem(err, "a schedule's bounds", 0);
    weft_jobshop_pair_release(&pair);
    return rc;
}

/* ---- The front --------------------------------------------------------- */

enum { MOST_FRONT = 16 };

/* Adds a schedule, which the list owns from now on, unless one of the list is
 * as good in both; those it beats go. */
static void add_to_front(struct weft_schedule *list, int32_t *n,
                         struct weft_schedule *s)
{
    int32_t kept = 0, k;
    for (int32_t i = 0; i < *n; i++)
        if (list[i].makespan <= s->makespan
            && list[i].peak_activation <= s->peak_activation) {
            weft_schedule_release(s);
            return;
        }
    for (int32_t i = 0; i < *n; i++)
        if (s->makespan <= list[i].makespan
            && s->peak_activation <= list[i].peak_activation)
            weft_schedule_release(&list[i]);
        else
            list[kept++] = list[i];
    for (k = kept; k > 0 && list[k - 1].makespan > s->makespan; k--)
        list[k] = list[k - 1];
    list[k] = *s;
    *n = kept + 1;
}

int weft_schedule_pareto(const struct weft_schedule_problem *problem,
                         const struct weft_schedule_options *options,
                         weft_schedule_search_fn search,
                         struct weft_schedule **out, int32_t *n_out,
                         struct weft_err *err)
{
    struct weft_schedule_problem p = *problem;
    struct weft_schedule_options o = *options;
    struct weft_schedule *list = weft_alloc(MOST_FRONT, sizeof *list);
    double step = 0;
    int32_t n = 0;
    int rc = list ? 0 : weft_err_nomem(err, "a front of schedules", 0);
    o.evaluations = (o.evaluations > 0 ? o.evaluations
                                       : default_evaluations(problem))
                  / MOST_FRONT;
    o.time_limit_s = options->time_limit_s / MOST_FRONT;
    for (int i = 0; i < MOST_FRONT && !rc; i++) {
        struct weft_schedule_result r;
        rc = search(&p, &o, &r, err);
        if (rc)
            break;
        double peak = r.schedule.peak_activation;
        if (step == 0)
            step = peak / MOST_FRONT;
        add_to_front(list, &n, &r.schedule);
        p.capacity = peak - step;
        if (p.capacity <= 0)
            break;
    }
    if (n > 0 && rc == WEFT_ENOTFOUND)
        rc = 0; /* no schedule fits into less memory */
    for (int32_t i = 0; i < n && rc; i++)
        weft_schedule_release(&list[i]);
    if (rc) {
        weft_free(list);
        return rc;
    }
    *out = list;
    *n_out = n;
    return 0;
}
