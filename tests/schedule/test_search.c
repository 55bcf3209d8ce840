/* SPDX-License-Identifier: Apache-2.0 */
#include "jobshop_fixture.h"
#include "exhaustive.h"

#include <math.h>
#include <string.h>

static void search(const struct weft_schedule_problem *p, int64_t evaluations,
                   int32_t n_threads, struct weft_schedule_result *out)
{
    struct weft_err err;
    struct weft_schedule_options o = {.seed = 7,
                                      .evaluations = evaluations,
                                      .n_restarts = 4,
                                      .n_threads = n_threads};
    REQUIRE_OK(weft_schedule_search(p, &o, out, &err), err);
}

/* ---- Swaps ------------------------------------------------------------- */

static void check_walk(const struct weft_jobshop_walk *w, double *start,
                       int32_t *sequence)
{
    const struct weft_jobshop *shop = w->shop;
    weft_jobshop_walk_store(w, sequence);
    CHECK(weft_jobshop_time(shop, sequence, start) == w->makespan);
    double longest = 0;
    for (int32_t x = 0; x < shop->n_ops; x++) {
        CHECK(w->node[x].head == start[x]);
        longest = fmax(longest,
                       start[x] + shop->op[x].time + w->node[x].tail);
        CHECK(w->order[w->node[x].place] == x);
        double tail = 0;
        for (int32_t k = shop->succ_at[x]; k < shop->succ_at[x + 1]; k++) {
            const struct weft_jobshop_node *y = &w->node[shop->succ[k].op];
            CHECK(w->node[x].place < y->place);
            tail = fmax(tail, shop->succ[k].lag + y->time + y->tail);
        }
        if (w->node[x].after >= 0) {
            const struct weft_jobshop_node *y = &w->node[w->node[x].after];
            CHECK(w->node[x].place < y->place);
            tail = fmax(tail, y->time + y->tail);
        }
        CHECK(w->node[x].tail == tail);
    }
    CHECK(longest == w->makespan);
}

/* A schedule by a rule without a capacity; its makespan. */
static double draw_sequence(struct draw *d,
                            const struct weft_schedule_problem *p,
                            struct weft_jobshop_pair *pair, int32_t *sequence)
{
    struct weft_err err;
    struct weft_jobshop_rule rule;
    struct weft_jobshop_list *list = weft_jobshop_list_create(&pair->forward);
    REQUIRE(list != NULL);
    REQUIRE(weft_jobshop_bound(pair, 0, 0, NULL) > 0);
    REQUIRE_OK(weft_jobshop_rule_init(&rule, p, &err), err);
    weft_jobshop_rule_draw(&rule, p, 50, &d->rng);
    rule.reversed = false;
    double makespan = weft_jobshop_list_build(list, &rule, pair->tail, 0,
                                              INFINITY, sequence);
    REQUIRE(makespan < INFINITY);
    weft_jobshop_rule_release(&rule);
    weft_jobshop_list_free(list);
    return makespan;
}

/* A problem and a schedule of it. */
struct drawn {
    struct weft_schedule_problem problem;
    struct weft_jobshop_pair pair;
    struct weft_jobshop_walk walk; /* not loaded */
    int32_t *sequence;
    double *start, makespan;
};

static void drawn_init(struct drawn *s, struct draw *d)
{
    struct weft_err err;
    s->problem = random_problem(d, 5);
    REQUIRE_OK(weft_jobshop_pair_init(&s->pair, &s->problem, &err), err);
    size_t n = (size_t) s->pair.forward.n_ops;
    s->sequence = weft_alloc(n, sizeof *s->sequence);
    s->start = weft_alloc(n, sizeof *s->start);
    REQUIRE(s->sequence && s->start);
    s->makespan = draw_sequence(d, &s->problem, &s->pair, s->sequence);
    REQUIRE_OK(weft_jobshop_walk_init(&s->walk, &s->pair.forward, &err), err);
}

static void drawn_release(struct drawn *s)
{
    weft_jobshop_walk_release(&s->walk);
    weft_free(s->start);
    weft_free(s->sequence);
    weft_jobshop_pair_release(&s->pair);
    free_problem(&s->problem);
}

/* Any swap at all: heads, tails and order are those computed anew; the
 * estimate is the longest way through the two. */
static void random_swaps(struct draw *d)
{
    struct drawn s;
    drawn_init(&s, d);
    struct weft_jobshop_walk *w = &s.walk;
    REQUIRE(weft_jobshop_walk_load(w, s.sequence, 0, true));
    CHECK(w->makespan <= s.makespan);
    for (int i = 0; i < 300; i++) {
        int32_t v = draw_int(d, 0, s.pair.forward.n_ops - 1);
        int32_t u = w->node[v].before;
        if (u < 0 || !weft_jobshop_walk_may_swap(w, u, v))
            continue;
        double before = w->makespan, t = weft_jobshop_walk_estimate(w, u, v);
        if (weft_jobshop_walk_swap(w, u, v)) {
            CHECK(t <= w->makespan && w->makespan <= fmax(before, t));
            check_walk(w, s.start, s.sequence);
            if (i % 2 == 0) { /* undone */
                CHECK(weft_jobshop_walk_swap(w, v, u));
                CHECK(w->makespan == before);
            }
        }
        check_walk(w, s.start, s.sequence);
    }
    drawn_release(&s);
}

static void test_walk_random_swaps(void)
{
    struct draw d = {.rng = {.seed = 1}};
    for (int i = 0; i < 60; i++)
        random_swaps(&d);
}

/* ---- Annealing of memory ----------------------------------------------- */

/* What holds too much, counted in the sequence itself. */
static void check_excess(const struct weft_jobshop_walk *w, int32_t *sequence)
{
    const struct weft_jobshop *shop = w->shop;
    double excess = 0, least = INFINITY;
    int32_t n_over = 0;
    for (int32_t x = 0; x < shop->n_ops; x++)
        if (shop->op[x].hold > 0)
            least = fmin(least, shop->op[x].hold);
    weft_jobshop_walk_store(w, sequence);
    for (int32_t d = 0; d < shop->n_devices; d++) {
        double held = 0;
        for (int32_t k = shop->device_at[d]; k < shop->device_at[d + 1];
             k++) {
            int32_t x = sequence[k];
            held += shop->op[x].hold;
            CHECK((w->over_at[x] >= 0) == (held > w->capacity));
            if (held > w->capacity) {
                CHECK_INT(w->over[w->over_at[x]], x);
                excess += fmax(held - w->capacity, least);
                n_over++;
            }
        }
    }
    CHECK_INT(w->n_over, n_over);
    CHECK(fabs(w->excess - excess) < 1e-6);
    CHECK((n_over == 0)
          == (weft_jobshop_peak(shop, sequence) <= w->capacity));
}

/* Hot and cold: the excess is what it is; without a price no deadline is
 * missed. Returns whether less came of it. */
static bool random_settling(struct draw *d, bool priced)
{
    struct drawn s;
    struct weft_jobshop_metropolis metropolis;
    drawn_init(&s, d);
    struct weft_jobshop_walk *w = &s.walk;
    double peak = weft_jobshop_peak(&s.pair.forward, s.sequence);
    REQUIRE(weft_jobshop_walk_load(
        w, s.sequence, peak * weft_jobshop_uniform(&d->rng, 0.5, 1), false));
    double deadline = w->makespan + draw_int(d, priced ? -5 : 0, 5);
    weft_jobshop_metropolis_begin(&metropolis, w, deadline,
                                  priced ? 0.2 : INFINITY);
    metropolis.focused = draw_int(d, 0, 1) == 1;
    double before = w->excess;
    for (int i = 0; i < 60; i++) {
        weft_jobshop_metropolis_run(&metropolis, &d->rng, i < 20 ? 2 : 0.05,
                                    20);
        check_excess(w, s.sequence);
        check_walk(w, s.start, s.sequence);
        CHECK(priced || w->makespan <= deadline);
        CHECK(weft_jobshop_metropolis_done(&metropolis)
              == (w->n_over == 0 && w->makespan <= deadline));
    }
    bool less = w->excess < before;
    drawn_release(&s);
    return less;
}

static void test_settle_excess(void)
{
    struct draw d = {.rng = {.seed = 4}};
    int n_less[2] = {0, 0};
    for (int i = 0; i < 120; i++)
        n_less[i % 2] += random_settling(&d, i % 2);
    CHECK(n_less[0] > 30);
    CHECK(n_less[1] > 30);
}

/* A device's operations that are in no window, in their order. */
static int32_t outside(const struct weft_jobshop *shop, const bool *in_window,
                       const int32_t *sequence, int32_t *out)
{
    int32_t n = 0;
    for (int32_t k = 0; k < shop->device_at[shop->n_devices]; k++)
        if (!in_window[sequence[k]])
            out[n++] = sequence[k];
    return n;
}

/* Returns whether something moved. */
static bool random_window(struct draw *d)
{
    struct drawn s;
    struct weft_jobshop_metropolis metropolis;
    drawn_init(&s, d);
    const struct weft_jobshop *shop = &s.pair.forward;
    size_t n = (size_t) shop->n_ops;
    int32_t *window = weft_alloc(3 * n, sizeof *window);
    int32_t *was = window + n, *is = was + n;
    bool *in_window = weft_alloc(n, sizeof *in_window);
    REQUIRE(window && in_window);
    REQUIRE(weft_jobshop_walk_load(&s.walk, s.sequence,
                                   0.5 * weft_jobshop_peak(shop, s.sequence),
                                   false));
    weft_jobshop_metropolis_begin(&metropolis, &s.walk, s.walk.makespan,
                                  INFINITY);
    metropolis.window = window;
    for (int32_t x = 0; x < shop->n_ops; x++) {
        in_window[x] = x == 0 || draw_int(d, 0, 2) == 0;
        if (in_window[x])
            window[metropolis.n_window++] = x;
    }
    int32_t n_was = outside(shop, in_window, s.sequence, was);
    weft_jobshop_metropolis_run(&metropolis, &d->rng, 2, 500);
    weft_jobshop_walk_store(&s.walk, s.sequence);
    CHECK_INT(outside(shop, in_window, s.sequence, is), n_was);
    CHECK(memcmp(was, is, (size_t) n_was * sizeof *was) == 0);
    weft_free(in_window);
    weft_free(window);
    drawn_release(&s);
    return metropolis.n_swaps > 0;
}

/* What is outside of a window keeps its order. */
static void test_settle_window(void)
{
    struct draw d = {.rng = {.seed = 6}};
    int n_moved = 0;
    for (int i = 0; i < 60; i++)
        n_moved += random_window(&d);
    CHECK(n_moved > 20);
}

/* ---- Lists ------------------------------------------------------------- */

/* Every rule gives a whole schedule within any capacity in which each model
 * alone can run, and, backwards too, the makespan that its orders have. */
static void random_lists(struct draw *d)
{
    struct weft_err err;
    struct weft_schedule_problem p = random_problem(d, 5);
    struct weft_jobshop_pair pair;
    struct weft_jobshop_rule rule;
    REQUIRE_OK(weft_jobshop_pair_init(&pair, &p, &err), err);
    size_t n = (size_t) pair.forward.n_ops;
    int32_t *sequence = weft_alloc(n, sizeof *sequence);
    double *start = weft_alloc(n, sizeof *start), capacity = 0;
    struct weft_jobshop_list *list[2] = {
        weft_jobshop_list_create(&pair.forward),
        weft_jobshop_list_create(&pair.back)};
    REQUIRE(sequence && start && list[0] && list[1]);
    REQUIRE(weft_jobshop_bound(&pair, 0, 0, NULL) > 0);
    REQUIRE_OK(weft_jobshop_rule_init(&rule, &p, &err), err);
    for (int32_t u = 0; u < pair.forward.n_model_stages; u++)
        capacity = fmax(capacity, pair.forward.model_stage[u].most);
    capacity += draw_int(d, 0, 3);
    for (int i = 0; i < 50; i++) {
        weft_jobshop_rule_draw(&rule, &p, 50, &d->rng);
        double t = weft_jobshop_list_build(
            list[rule.reversed], &rule, rule.reversed ? pair.head : pair.tail,
            capacity, INFINITY, sequence);
        REQUIRE(t < INFINITY);
        CHECK(weft_jobshop_time(&pair.forward, sequence, start) <= t);
        CHECK(weft_jobshop_peak(&pair.forward, sequence) <= capacity);
    }
    weft_jobshop_rule_release(&rule);
    weft_jobshop_list_free(list[0]);
    weft_jobshop_list_free(list[1]);
    weft_free(start);
    weft_free(sequence);
    weft_jobshop_pair_release(&pair);
    free_problem(&p);
}

static void test_list_never_stuck(void)
{
    struct draw d = {.rng = {.seed = 2}};
    for (int i = 0; i < 60; i++)
        random_lists(&d);
}

/* ---- Search ------------------------------------------------------------ */

static void check_against_exhaustive(const struct weft_schedule_problem *p)
{
    struct weft_schedule best;
    struct weft_schedule_result r;
    struct weft_err err;
    REQUIRE_OK(schedule_exhaustive(p, &best, &err), err);
    search(p, 200000, 1, &r);
    CHECK(r.schedule.makespan == best.makespan);
    CHECK(r.schedule.peak_activation == best.peak_activation);
    CHECK(r.bound.makespan <= best.makespan);
    CHECK(r.bound.peak_activation <= best.peak_activation);
    CHECK(!r.optimal || r.bound.makespan == best.makespan);
    CHECK(!r.cut);
    double makespan = r.schedule.makespan, peak = r.schedule.peak_activation;
    REQUIRE_OK(weft_schedule_time(p, &r.schedule, &err), err);
    CHECK(r.schedule.makespan == makespan);
    CHECK(r.schedule.peak_activation == peak);
    CHECK(p->capacity == 0 || peak <= p->capacity);
    weft_schedule_release(&r.schedule);
    weft_schedule_release(&best);
}

static void test_search_exhaustive(void)
{
    struct draw d = {.rng = {.seed = 3}};
    for (int n = 0; n < 40;) {
        struct weft_schedule_problem p = random_problem(&d, 2);
        if (count_subtasks(&p) <= 14) {
            check_against_exhaustive(&p);
            p.capacity = 5 + draw_int(&d, 0, 3);
            check_against_exhaustive(&p);
            n++;
        }
        free_problem(&p);
    }
}

static void test_search_table3(void)
{
    struct weft_schedule_problem p = two_models(8, 8, 8, 5, 2, 1.95, 1);
    struct weft_schedule_result r;
    p.capacity = 8 * 1.95;
    search(&p, 0, 1, &r);
    CHECK(r.schedule.makespan == 225);
    CHECK(r.optimal);
    CHECK(fabs(r.schedule.peak_activation - 8 * 1.95) < 1e-9);
    CHECK(fabs(r.bound.peak_activation - 8 * 1.95) < 1e-9);
    weft_schedule_release(&r.schedule);
    free_problem(&p);
}

/* The least makespan is CP-SAT's: bench/schedule_cpsat.py proves 282 for this
 * problem within a minute. */
static void test_search_memory_binds(void)
{
    struct weft_schedule_problem p = two_models(4, 4, 8, 5, 2, 1, 0.5);
    struct weft_schedule_result r;
    p.capacity = 2;
    search(&p, 2000000, 2, &r);
    CHECK(r.schedule.makespan >= 282 && r.schedule.makespan <= 290);
    CHECK(r.bound.makespan <= 282);
    CHECK(r.schedule.peak_activation <= 2);
    weft_schedule_release(&r.schedule);
    free_problem(&p);
}

static void check_same(const struct weft_schedule *a,
                       const struct weft_schedule *b)
{
    CHECK(a->makespan == b->makespan);
    CHECK(a->peak_activation == b->peak_activation);
    REQUIRE(a->n_devices == b->n_devices);
    for (int32_t d = 0; d < a->n_devices; d++) {
        REQUIRE(a->n[d] == b->n[d]);
        CHECK(memcmp(a->task[d], b->task[d],
                     (size_t) a->n[d] * sizeof **a->task)
              == 0);
    }
}

/* On one that meets its bounds early and on one that does not. */
static void test_search_threads(void)
{
    for (int i = 0; i < 3; i++) {
        struct weft_schedule_problem p = two_models(4, i == 1 ? 2 : 4, 8, 3,
                                                    2, 1, i == 1 ? 1.5 : 1);
        struct weft_schedule_result one, three;
        p.capacity = i == 2 ? 2 : 0; /* memory binds: trades as well */
        search(&p, i == 2 ? 400000 : 20000, 1, &one);
        search(&p, i == 2 ? 400000 : 20000, 3, &three);
        CHECK_INT(one.restart, three.restart);
        check_same(&one.schedule, &three.schedule);
        weft_schedule_release(&one.schedule);
        weft_schedule_release(&three.schedule);
        free_problem(&p);
    }
}

static void test_search_nothing_fits(void)
{
    struct weft_schedule_problem p = two_models(4, 4, 4, 1, 1, 1, 2);
    struct weft_schedule_options o = {.seed = 1, .evaluations = 1000};
    struct weft_schedule_result r;
    struct weft_err err;
    p.capacity = 1.5;
    CHECK_FAILS(weft_schedule_search(&p, &o, &r, &err), WEFT_ENOTFOUND, err,
                "nothing fits the capacity 1.5");
    free_problem(&p);
}

/* However few evaluations there are, each restart builds a schedule: without a
 * capacity there is always one, also of passes that hold nothing. */
static void test_search_few(void)
{
    struct weft_schedule_problem p = two_models(4, 2, 8, 3, 2, 0, 0);
    for (int64_t n = 1; n < 9; n++) {
        struct weft_schedule_result r;
        struct weft_err err;
        search(&p, n, 1, &r);
        double makespan = r.schedule.makespan;
        REQUIRE_OK(weft_schedule_time(&p, &r.schedule, &err), err);
        CHECK(r.schedule.makespan == makespan);
        CHECK(r.schedule.peak_activation == 0 && !r.cut);
        weft_schedule_release(&r.schedule);
    }
    free_problem(&p);
}

static bool at_once(void *ctx)
{
    (void) ctx;
    return true;
}

/* A search that is stopped before it has found anything has the greedy
 * schedule, unless that holds more than the capacity. */
static void test_search_stopped(void)
{
    struct weft_schedule_problem p = two_models(4, 2, 8, 3, 2, 1, 1.5);
    struct weft_schedule_options o = {.seed = 1, .stop = at_once};
    struct weft_schedule_result r;
    struct weft_schedule greedy;
    struct weft_err err;
    REQUIRE_OK(
        weft_schedule_baseline(&p, WEFT_SCHEDULE_GREEDY, &greedy, &err), err);
    REQUIRE_OK(weft_schedule_search(&p, &o, &r, &err), err);
    CHECK(r.cut && r.schedule.makespan == greedy.makespan);
    REQUIRE_OK(weft_schedule_time(&p, &r.schedule, &err), err);
    CHECK(r.schedule.makespan == greedy.makespan);
    weft_schedule_release(&r.schedule);
    p.capacity = 1.5; /* one micro-batch: no baseline keeps to that */
    CHECK_FAILS(weft_schedule_search(&p, &o, &r, &err), WEFT_ENOTFOUND, err,
                "no schedule found within the capacity 1.5");
    weft_schedule_release(&greedy);
    free_problem(&p);
}

/* Rising makespan, falling peak; the first as good as a search, all valid. */
static void test_pareto(void)
{
    struct weft_schedule_problem p = two_models(4, 2, 8, 3, 2, 1, 1.5);
    struct weft_schedule_options o = {.seed = 1, .evaluations = 320000};
    struct weft_schedule *s;
    struct weft_schedule_result r;
    struct weft_err err;
    int32_t n;
    REQUIRE_OK(
        weft_schedule_pareto(&p, &o, weft_schedule_search, &s, &n, &err),
        err);
    CHECK(n > 1);
    search(&p, 80000, 1, &r);
    CHECK(s[0].makespan <= r.schedule.makespan);
    for (int32_t i = 0; i < n; i++) {
        double makespan = s[i].makespan, peak = s[i].peak_activation;
        REQUIRE_OK(weft_schedule_time(&p, &s[i], &err), err);
        CHECK(s[i].makespan == makespan && s[i].peak_activation == peak);
        CHECK(i == 0 || makespan > s[i - 1].makespan);
        CHECK(i == 0 || peak < s[i - 1].peak_activation);
    }
    for (int32_t i = 0; i < n; i++)
        weft_schedule_release(&s[i]);
    weft_free(s);
    weft_schedule_release(&r.schedule);
    free_problem(&p);
}

WEFT_TESTS("schedule/search",
           {"test_walk_random_swaps", test_walk_random_swaps},
           {"test_settle_excess", test_settle_excess},
           {"test_settle_window", test_settle_window},
           {"test_list_never_stuck", test_list_never_stuck},
           {"test_search_exhaustive", test_search_exhaustive},
           {"test_search_table3", test_search_table3},
           {"test_search_memory_binds", test_search_memory_binds},
           {"test_search_threads", test_search_threads},
           {"test_search_nothing_fits", test_search_nothing_fits},
           {"test_search_few", test_search_few},
           {"test_search_stopped", test_search_stopped},
           {"test_pareto", test_pareto})
