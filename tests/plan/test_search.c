/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search against every choice of small random problems, each played by a
 * simulator of the test's own, which knows devices one by one.
 */
#include "harness.h"

#include <math.h>

#include "plan/search/search.h"

enum { MOST = 8, LONG = 60, OPTIONS = 6 };

static uint32_t state = 1;
static uint32_t rnd(uint32_t n)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
}

static struct weft_option option[MOST][OPTIONS];
static struct weft_search_problem p;

static bool alike(const struct weft_call_plan *a,
                  const struct weft_call_plan *b)
{
    return memcmp(&a->mesh, &b->mesh, sizeof a->mesh) == 0 && a->tp == b->tp
        && a->pp == b->pp;
}

static double move_s(void *ctx, int32_t role,
                     const struct weft_call_plan *from,
                     const struct weft_call_plan *to)
{
    (void) ctx;
    return 0.125 + 0.125 * role + 0.125 / to->tp
         + 0.5 * (from->mesh.node != to->mesh.node);
}

static void add(int32_t call, struct weft_mesh mesh, double seconds,
                double held, double active, double weights)
{
    struct weft_search_call *c = &p.call[call];
    c->option = option[call];
    option[call][c->n_options++] = (struct weft_option){
        .plan = {.mesh = mesh, .dp = weft_mesh_size(&mesh), .tp = 1, .pp = 1},
        .seconds = seconds,
        .held = held,
        .active = active,
        .weights = weights};
}

/* generate (0) -> score (1), value (2) -> train (3), train the critic (4). */
static void set_calls(void)
{
    static const struct weft_search_call calls[] = {
        {.role = 0, .trained = true},
        {.role = 1, .before = 1},
        {.role = 2, .trained = true, .before = 1},
        {.role = 0, .trains = true, .trained = true, .before = 7},
        {.role = 2, .trains = true, .trained = true, .before = 7}};
    p = (struct weft_search_problem){
        .n_nodes = 2, .n_devices = 4, .device_bytes = 100, .n_calls = 5};
    memcpy(p.call, calls, sizeof calls);
}

/* ---- The test's own simulator ------------------------------------------- */

static bool on(const struct weft_mesh *m, int32_t device)
{
    int32_t node = device / p.n_devices, d = device % p.n_devices;
    return node >= m->node && node < m->node + m->n_nodes && d >= m->device
        && d < m->device + m->n_devices;
}

static const struct weft_option *chosen(const int32_t *choice, int32_t c)
{
    return &option[c][choice[c]];
}

static int32_t trainer(int32_t c)
{
    for (int32_t t = 0; t < p.n_calls; t++)
        if (p.call[t].trains && p.call[t].role == p.call[c].role)
            return t;
    return -1;
}

static double moves(const int32_t *choice, int32_t c)
{
    int32_t t = trainer(c);
    if (!p.move || t < 0 || t == c)
        return 0;
    const struct weft_call_plan *a = &chosen(choice, t)->plan;
    const struct weft_call_plan *b = &chosen(choice, c)->plan;
    return alike(a, b) ? 0 : move_s(NULL, p.call[c].role, a, b);
}

/* The mean of the later half of n iterations' times. any: whatever is ready
 * comes next, else what was ready first. */
static double simulate(const int32_t *choice, int32_t n, bool any)
{
    static double end[LONG][2 * MOST]; /* -1: has not run */
    double free[64] = {0}, last[LONG] = {0};
    int32_t all = 2 * p.n_calls;
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = 0; j < all; j++)
            end[i][j] = j >= p.n_calls
                             && (i == 0 || moves(choice, j - p.n_calls) <= 0)
                          ? 0
                          : -1;
    for (;;) {
        double first = INFINITY;
        int32_t at_i = -1, at_j = -1, n_ready = 0;
        for (int32_t i = 0; i < n; i++) {
            for (int32_t j = 0; j < all; j++) {
                int32_t c = j % p.n_calls, t = trainer(c);
                double ready = i > 0 && t >= 0 ? end[i - 1][t] : 0;
                bool waits = ready < 0 || end[i][j] >= 0;
                if (j < p.n_calls) {
                    double m = end[i][p.n_calls + c];
                    waits = waits || m < 0;
                    ready = fmax(ready, m);
                    for (int32_t b = 0; b < p.n_calls; b++)
                        if (p.call[c].before >> b & 1) {
                            waits = waits || end[i][b] < 0;
                            ready = fmax(ready, end[i][b]);
                        }
                }
                if (waits || (i > 3 + (at_i < 0 ? i : at_i) && any))
                    continue;
                bool takes = any ? rnd((uint32_t) ++n_ready) == 0
                                 : ready < first;
                if (takes) {
                    first = ready;
                    at_i = i;
                    at_j = j;
                }
            }
        }
        if (at_i < 0)
            break;
        int32_t c = at_j % p.n_calls;
        bool is_move = at_j >= p.n_calls;
        double begin = first;
        double took = is_move ? moves(choice, c) : chosen(choice, c)->seconds;
        for (int pass = 0; pass < 2; pass++)
            for (int32_t d = 0; d < p.n_nodes * p.n_devices; d++) {
                bool mine = on(&chosen(choice, c)->plan.mesh, d)
                         || (is_move
                             && on(&chosen(choice, trainer(c))->plan.mesh,
                                   d));
                if (mine && pass == 0)
                    begin = fmax(begin, free[d]);
                else if (mine)
                    free[d] = begin + took;
            }
        end[at_i][at_j] = begin + took;
        for (int32_t i = at_i; i < n; i++)
            last[i] = fmax(last[i], begin + took);
    }
    return (last[n - 1] - last[n / 2 - 1]) / (n - n / 2);
}

static double bytes_of(const int32_t *choice)
{
    double most = 0;
    for (int32_t d = 0; d < p.n_nodes * p.n_devices; d++) {
        double held = 0, active = 0, set[WEFT_SEARCH_TOGETHER] = {0};
        for (int32_t c = 0; c < p.n_calls; c++) {
            const struct weft_option *o = chosen(choice, c);
            int32_t t = trainer(c);
            if (!on(&o->plan.mesh, d))
                continue;
            bool copies = t >= 0 && t != c
                       && !alike(&chosen(choice, t)->plan, &o->plan);
            double runs = o->active + (copies ? o->weights : 0);
            held += o->held;
            active = fmax(active, runs);
            for (int32_t k = 0; k < p.n_together; k++)
                set[k] += p.together[k] >> c & 1 ? runs : 0;
        }
        for (int32_t k = 0; k < p.n_together; k++)
            active = fmax(active, set[k]);
        most = fmax(most, held + active);
    }
    return most;
}

/* ---- Closed forms ------------------------------------------------------- */

static struct weft_search_value value(const int32_t *choice)
{
    struct weft_search *s;
    struct weft_err err;
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
    struct weft_search_value v = weft_search_value(s, choice);
    weft_search_free(s);
    return v;
}

static const struct weft_mesh all = {0, 2, 0, 4}, left = {0, 1, 0, 4},
                              right = {1, 1, 0, 4}, part = {1, 1, 2, 2};

static void test_all_on_all_devices(void)
{
    static const int32_t first[MOST] = {0};
    set_calls();
    for (int32_t c = 0; c < 5; c++)
        add(c, all, c + 1, 10, 5 * c, 7);
    struct weft_search_value v = value(first);
    CHECK(fabs(v.period - 15) < 1e-12);
    CHECK(fabs(v.bound - 15) < 1e-12);
    CHECK(fabs(v.bytes - (50 + 20)) < 1e-12);
}

/* The critic trains beside the next generation; scores beside values. */
static void test_apart(void)
{
    static const int32_t first[MOST] = {0};
    set_calls();
    add(0, left, 4, 1, 2, 3);
    add(1, left, 1, 10, 2, 3);
    add(2, right, 2, 1, 2, 3);
    add(3, left, 3, 40, 2, 3);
    add(4, right, 3.5, 30, 2, 3);
    struct weft_search_value v = value(first);
    CHECK(fabs(v.period - 9) < 1e-12); /* 4 + 2 + 3; the right one has 5.5 */
    CHECK(fabs(v.bound - 9) < 1e-12);
    CHECK(fabs(v.bytes - (51 + 2)) < 1e-12);
    p.move = move_s; /* no layout changes on its devices */
    CHECK(fabs(value(first).period - 9) < 1e-12);
    p.call[0].n_options = 0;
    add(0, part, 4, 1, 2, 3);
    v = value(
        first); /* weights move to the right: 0.75, after its training */
    CHECK(fabs(v.period - 10.25) < 1e-12);
    CHECK(fabs(v.bound - 10.25) < 1e-12); /* the right one has no rest */
    CHECK(fabs(v.bytes - (50 + 2)) < 1e-12);
}

/* ---- Random problems ---------------------------------------------------- */

static void make_random(uint32_t seed)
{
    static const struct weft_mesh mesh[] = {
        {0, 2, 0, 4}, {0, 1, 0, 4}, {1, 1, 0, 4}, {0, 1, 0, 2},
        {0, 1, 2, 2}, {1, 1, 0, 2}, {1, 1, 2, 2}, {1, 1, 3, 1}};
    state = seed;
    set_calls();
    p.move = rnd(3) ? move_s : NULL;
    for (int32_t c = 0; c < p.n_calls; c++) {
        int32_t n = 2 + (int32_t) rnd(OPTIONS - 1);
        for (int32_t i = 0; i < n; i++) {
            const struct weft_mesh *m = &mesh[rnd(WEFT_COUNT(mesh))];
            double work = 1 + rnd(40), size = weft_mesh_size(m);
            add(c, *m, work / pow(size, 0.8), 5 + rnd(15), 1 + rnd(30),
                1 + rnd(10));
        }
    }
    for (int32_t k = 0; k < 3; k++)
        p.together[k] = rnd(32);
    p.n_together = (int32_t) rnd(4);
}

/* Jobs of an iteration on the devices they have, one after another, after what
 * they wait for, over and over. */
static void check_order(const int32_t *choice, double period,
                        const double *start)
{
    int32_t n = p.n_calls;
    for (int32_t d = 0; d < p.n_nodes * p.n_devices; d++) {
        double busy[64][2];
        int32_t n_busy = 0;
        for (int32_t j = 0; j < 2 * n; j++) {
            int32_t c = j % n;
            double took = j < n ? chosen(choice, c)->seconds
                                : moves(choice, c);
            bool here = on(&chosen(choice, c)->plan.mesh, d)
                     || (j >= n && took > 0
                         && on(&chosen(choice, trainer(c))->plan.mesh, d));
            if (!here || took <= 0)
                continue;
            busy[n_busy][0] = start[j] - floor(start[j] / period) * period;
            busy[n_busy++][1] = took;
        }
        for (int32_t a = 0; a < n_busy; a++)
            for (int32_t b = 0; b < n_busy; b++) {
                double gap = busy[b][0] - busy[a][0];
                if (gap < 0 || (gap <= 0 && b < a))
                    gap += period;
                if (a != b)
                    CHECK(gap >= busy[a][1] - 1e-6 * period);
            }
    }
    for (int32_t c = 0; c < n; c++) {
        int32_t t = trainer(c);
        double at = start[c];
        if (moves(choice, c) > 0) {
            CHECK(at >= start[n + c] + moves(choice, c) - 1e-6 * period);
            at = start[n + c];
        }
        if (t >= 0)
            CHECK(at + period
                  >= start[t] + chosen(choice, t)->seconds - 1e-6 * period);
        for (int32_t b = 0; b < n; b++)
            if (p.call[c].before >> b & 1)
                CHECK(start[c] >= start[b] + chosen(choice, b)->seconds
                                      - 1e-6 * period);
    }
}

static bool next_choice(int32_t *choice)
{
    for (int32_t c = 0; c < p.n_calls; c++) {
        if (++choice[c] < p.call[c].n_options)
            return true;
        choice[c] = 0;
    }
    return false;
}

static void check_problem(void)
{
    struct weft_search *s;
    struct weft_err err;
    struct weft_search_result r;
    struct weft_search_how how = {
        .seed = 3, .evaluations = 2000, .restarts = 2, .branches = 1000000};
    int32_t choice[MOST] = {0};
    double best = INFINITY, any = INFINITY;
    int32_t n = 0;
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
    do {
        struct weft_search_value v = weft_search_value(s, choice);
        double period = fmax(simulate(choice, 8, false), v.bound);
        CHECK(fabs(v.period - period) < 1e-9);
        CHECK(fabs(v.bytes - bytes_of(choice)) < 1e-9);
        /* no order is better, but for what the first iterations began */
        double start[2 * MOST];
        struct weft_search_value o = v;
        bool ordered = weft_search_order(s, choice, v.period, &o, start);
        CHECK(o.period <= v.period + 1e-9 && o.bound >= v.bound - 1e-9);
        CHECK(!ordered || o.period - o.bound <= 2e-4 * o.period);
        if (ordered)
            check_order(choice, o.period, start);
        if (n++ % 50 == 0)
            CHECK(simulate(choice, LONG, true) >= o.bound * (1 - 4.0 / LONG));
        if (v.bytes > p.device_bytes)
            continue;
        best = fmin(best, o.period);
        any = fmin(any, o.bound);
    } while (next_choice(choice));
    REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
    CHECK(r.fits == (best < INFINITY));
    if (r.fits) {
        CHECK(fabs(r.value.period - best) <= 3e-4 * best);
        CHECK(r.bound <= best * (1 + 2e-4));
        CHECK(r.bound >= fmin(any, best) * (1 - 2e-4));
        /* cut early, it is still a bound */
        for (how.branches = 0; how.branches < 50; how.branches += 7) {
            REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
            CHECK(r.bound <= best * (1 + 2e-4) && r.bound > 0);
        }
    }
    weft_search_free(s);
}

static void test_random(void)
{
    for (uint32_t seed = 1; seed <= 12; seed++) {
        make_random(seed);
        p.device_bytes = 60 + 10 * (double) (seed % 6);
        check_problem();
    }
}

/* The shortest period of a choice that fits, in its best order. */
static double best_of_all(void)
{
    struct weft_search *s;
    struct weft_err err;
    int32_t choice[MOST] = {0};
    double best = INFINITY;
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
    do {
        struct weft_search_value v = weft_search_value(s, choice);
        if (v.bytes > p.device_bytes)
            continue;
        weft_search_order(s, choice, v.period, &v, NULL);
        best = fmin(best, v.period);
    } while (next_choice(choice));
    weft_search_free(s);
    return best;
}

/* Options on few meshes, with other degrees, of which some are no use. */
static void make_similar(uint32_t seed)
{
    static const struct weft_mesh mesh[] = {
        {0, 2, 0, 4}, {0, 1, 0, 4}, {1, 1, 0, 4}};
    make_random(seed);
    p.move = move_s;
    for (int32_t c = 0; c < p.n_calls; c++) {
        int32_t first = (int32_t) rnd(2);
        p.call[c].n_options = 0;
        for (int32_t i = 0; i < 4; i++) {
            add(c, mesh[first + i / 2], 3 + 0.125 * rnd(5), 4 + 2.0 * rnd(2),
                1 + rnd(3), 2);
            option[c][i].plan.tp = 1 << rnd(2);
        }
    }
}

/* What is left out is never missed. */
static void test_pruned(void)
{
    int32_t n_before = 0, n_after = 0;
    for (uint32_t seed = 1; seed <= 40; seed++) {
        struct weft_option *array[MOST];
        struct weft_err err;
        make_similar(seed);
        p.device_bytes = 16 + 2 * (double) (seed % 8);
        double before = best_of_all();
        for (int32_t c = 0; c < p.n_calls; c++) {
            array[c] = option[c];
            n_before += p.call[c].n_options;
        }
        REQUIRE_OK(weft_search_prune(&p, array, &err), err);
        for (int32_t c = 0; c < p.n_calls; c++)
            n_after += p.call[c].n_options;
        double after = best_of_all();
        CHECK(after <= before * (1 + 3e-4));
    }
    CHECK(n_after < 0.8 * n_before);
}

/* Finalists are different choices that fit, the best first. */
static void test_finalists(void)
{
    struct weft_search *s;
    struct weft_err err;
    struct weft_search_result r;
    struct weft_search_how how = {.seed = 7, .evaluations = 4000};
    make_random(4);
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
    REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
    CHECK(r.fits && r.n_finalists > 3);
    CHECK(memcmp(r.choice, r.finalist[0].choice, 5 * sizeof r.choice[0])
          == 0);
    for (int32_t i = 0; i < r.n_finalists; i++) {
        const struct weft_search_finalist *f = &r.finalist[i];
        struct weft_search_value v = weft_search_value(s, f->choice);
        CHECK(f->value.period <= v.period && f->value.bytes <= 100);
        CHECK(i == 0 || f->value.period >= f[-1].value.period);
    }
    weft_search_free(s);
}

static bool at_once(void *ctx)
{
    (void) ctx;
    return true;
}

static void test_stopped(void)
{
    struct weft_search *s;
    struct weft_err err;
    struct weft_search_result r;
    struct weft_search_how how = {
        .evaluations = 1 << 20, .branches = 1 << 20, .stop = at_once};
    make_random(4);
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
    REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
    CHECK(r.stopped && r.value.period < INFINITY && r.bound > 0);
    CHECK(r.evaluations < 1 << 12);
    weft_search_free(s);
}

static void test_same_seed_same_result(void)
{
    struct weft_search *s;
    struct weft_err err;
    struct weft_search_result a, b;
    struct weft_search_how how = {.seed = 7, .evaluations = 900};
    make_random(11);
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
    REQUIRE_OK(weft_search_run(s, &how, &a, &err), err);
    REQUIRE_OK(weft_search_run(s, &how, &b, &err), err);
    CHECK(memcmp(a.choice, b.choice, sizeof a.choice) == 0);
    CHECK(a.evaluations == b.evaluations);
    weft_search_free(s);
}

static void test_refused(void)
{
    struct weft_search *s;
    struct weft_err err;
    set_calls();
    CHECK_FAILS(weft_search_create(&p, &s, &err), WEFT_EINVAL, err,
                "call 0 has no option");
    p.n_calls = 0;
    CHECK_FAILS(weft_search_create(&p, &s, &err), WEFT_EINVAL, err,
                "1 to 32 calls");
}

WEFT_TESTS("plan/search", {"all_on_all_devices", test_all_on_all_devices},
           {"apart", test_apart}, {"random", test_random},
           {"same_seed_same_result", test_same_seed_same_result},
           {"pruned", test_pruned}, {"finalists", test_finalists},
           {"stopped", test_stopped}, {"refused", test_refused})
