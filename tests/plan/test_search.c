/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search against every choice of small random problems, some of which are
 * played by a simulator of the test's own, which knows devices one by one and goes
 * on in small steps of time.
 */
#include "harness.h"

#include <math.h>

#include "plan/search/search.h"

enum { MOST = 8, LONG = 24, OPTIONS = 8 };

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
        .share = 1,
        .came = {1, 1, 1, 1},
        .held = held,
        .active = active,
        .weights = weights};
}

/* generate (0) -> score (1), value (2) -> train (3), train the critic (4). */
static void set_calls(void)
{
    static const struct weft_search_call calls[] = {
        {.role = 0, .priority = 3, .trained = true},
        {.role = 1, .before = 1},
        {.role = 2, .trained = true, .before = 1},
        {.role = 0,
         .priority = 2,
         .trains = true,
         .trained = true,
         .before = 7},
        {.role = 2,
         .priority = 1,
         .trains = true,
         .trained = true,
         .before = 7}};
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
        if (p.call[t].trains
            && (p.call[t].role == p.call[c].role
                || (p.call[t].two && p.call[t].second == p.call[c].role)))
            return t;
    return -1;
}

/* The layout in which a call's role is trained. */
static const struct weft_call_plan *trained(const int32_t *choice, int32_t c)
{
    int32_t t = trainer(c);
    return p.call[t].role == p.call[c].role ? &chosen(choice, t)->plan
                                            : &chosen(choice, t)->with;
}

static double moves(const int32_t *choice, int32_t c)
{
    int32_t t = trainer(c);
    if (!p.move || t < 0 || t == c)
        return 0;
    const struct weft_call_plan *a = trained(choice, c);
    const struct weft_call_plan *b = &chosen(choice, c)->plan;
    return alike(a, b) ? 0 : move_s(NULL, p.call[c].role, a, b);
}

struct oracle {
    const int32_t *choice;
    const int *priority;
    int32_t done[MOST];
    double part[MOST], rate[MOST], ended[MOST], now;
};

/* The part of results that is there when `part` of a call is done, by straight
 * lines between parts. */
static double there(const struct weft_option *o, double part)
{
    double most = part >= 1 ? 1 : 0;
    for (int k = 0; k < WEFT_SEARCH_PARTS; k++) {
        double from = o->came[k];
        double to = k + 1 < WEFT_SEARCH_PARTS ? o->came[k + 1] : 1;
        double x = part >= to ? 1 : (part - from) / (to - from);
        if (part >= from && from < 1)
            most = fmax(most,
                        (k + (part < 1 && to >= 1 && from >= to ? 0 : x))
                            / WEFT_SEARCH_PARTS);
    }
    return most;
}

static double may_have(const struct oracle *q, int32_t c)
{
    double most = 1;
    int32_t t = trainer(c), i = q->done[c];
    for (int32_t k = 0; k < p.n_calls; k++)
        if (q->done[k] < i - 1)
            return 0;
    if (i > 0 && t >= 0 && t != c
        && (q->done[t] < i || q->now < q->ended[t] + moves(q->choice, c)))
        return 0;
    for (int32_t b = 0; b < p.n_calls; b++) {
        if (!(p.call[c].before >> b & 1) || q->done[b] > i)
            continue;
        if (q->done[b] < i || p.call[c].trains)
            return 0;
        most = fmin(most, there(chosen(q->choice, b), q->part[b]));
    }
    return most;
}

/* As much more of every call that may and has all devices, as can be. False: of
 * none. */
static bool more(const struct oracle *q, const double *may, double *left,
                 double *does)
{
    bool open[MOST];
    double load[64] = {0}, most = INFINITY;
    int32_t n_open = 0, n = p.n_nodes * p.n_devices;
    for (int32_t c = 0; c < p.n_calls; c++) {
        const struct weft_option *o = chosen(q->choice, c);
        open[c] = may[c] - does[c] > 1e-12;
        for (int32_t d = 0; d < n; d++)
            open[c] = open[c] && !(on(&o->plan.mesh, d) && left[d] <= 1e-12);
        n_open += open[c];
        for (int32_t d = 0; d < n && open[c]; d++)
            load[d] += on(&o->plan.mesh, d) ? o->share * o->seconds : 0;
        most = open[c] ? fmin(most, may[c] - does[c]) : most;
    }
    for (int32_t d = 0; d < n; d++)
        most = load[d] > 0 ? fmin(most, left[d] / load[d]) : most;
    for (int32_t c = 0; c < p.n_calls; c++)
        does[c] += open[c] ? most : 0;
    for (int32_t d = 0; d < n; d++)
        left[d] -= load[d] > 0 ? most * load[d] : 0;
    return n_open > 0;
}

/* What each call does within a step: those with the highest priority first,
 * those of equal priority in proportion to what they have to do, and then those
 * that can do more. */
static void step(struct oracle *q, double dt)
{
    double left[64];
    for (int32_t d = 0; d < 64; d++)
        left[d] = dt;
    for (int level = 9; level >= 0; level--) {
        double does[MOST] = {0}, may[MOST];
        for (int32_t c = 0; c < p.n_calls; c++)
            may[c] = q->priority[c] != level
                       ? 0
                       : fmin(dt / chosen(q->choice, c)->seconds,
                              may_have(q, c) - q->part[c]);
        while (more(q, may, left, does))
            continue;
        for (int32_t c = 0; c < p.n_calls; c++)
            q->part[c] += does[c];
    }
    q->now += dt;
    for (int32_t c = 0; c < p.n_calls; c++)
        if (q->part[c] >= 1 - 1e-12) {
            q->part[c] = 0;
            q->ended[c] = q->now;
            q->done[c]++;
        }
}

/* The mean of the last of n iterations' times, by the ends of training; in
 * steps of dt. */
static double simulate(const int32_t *choice, const int *priority, int32_t n,
                       int32_t last, double dt)
{
    struct oracle q = {.choice = choice, .priority = priority};
    double from = 0;
    while (q.done[3] < n) {
        int32_t before = q.done[3];
        step(&q, dt);
        if (before < n - last && q.done[3] == n - last)
            from = q.now;
        REQUIRE(q.now < 1e5);
    }
    return (q.now - from) / last;
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
                       && !alike(trained(choice, c), &o->plan);
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
    v = value(first); /* weights move to the right: 0.75 */
    CHECK(fabs(v.period - 9.75) < 1e-9);
    CHECK(fabs(v.bound - 9.75) < 1e-12);
    CHECK(fabs(v.bytes - (50 + 2)) < 1e-12);
}

/* All but the scores on the same devices. Of these the critic's training, 5 s with
 * half of them, has what the calls before leave: 0.3 of the policy's 4 s and 1 / 6
 * of generation's 6 s. Of its 2.5 s of work 0.3 are left then, 0.6 s, for which the
 * values wait. */
static void test_bubbles(void)
{
    static const int32_t first[MOST] = {0};
    set_calls();
    add(0, left, 6, 1, 1, 1);
    add(1, right, 1, 1, 1, 1);
    add(2, left, 2, 1, 1, 1);
    add(3, left, 4, 1, 1, 1);
    add(4, left, 5, 1, 1, 1);
    option[0][0].share = 5.0 / 6;
    option[3][0].share = 0.7;
    option[4][0].share = 0.5;
    CHECK(fabs(value(first).period - (4 + 6 + 0.6 + 2)) < 1e-9);
}

/* Values are inferred as samples come, on other devices. */
static void test_streams(void)
{
    static const struct {
        double came[WEFT_SEARCH_PARTS], seconds, end;
    } want[] = {{{0, 0.25, 0.5, 0.75}, 2, 8},   /* with the last samples */
                {{0, 0.25, 0.5, 0.75}, 16, 16}, /* from the first ones on */
                {{0.5, 0.625, 0.75, 0.875}, 16, 20}, /* from the middle on */
                {{0.5, 0.5, 0.5, 1}, 4, 8 + 1}, /* one more quarter in time */
                {{1, 1, 1, 1}, 4, 12}};
    static const int32_t first[MOST] = {0};
    for (size_t i = 0; i < WEFT_COUNT(want); i++) {
        set_calls();
        add(0, left, 8, 1, 1, 1);
        add(1, left, 0.001, 1, 1, 1);
        add(2, right, want[i].seconds, 1, 1, 1);
        add(3, left, 3, 1, 1, 1);
        add(4, right, 0.5, 1, 1, 1);
        memcpy(option[0][0].came, want[i].came, sizeof want[i].came);
        struct weft_search_value v = value(first);
        double error = v.period - (want[i].end + 3);
        CHECK(error > -1e-9 && error < 0.0011);
        CHECK(v.bound <= v.period + 1e-9);
        CHECK(i == 3 || v.bound > v.period - 0.0011);
    }
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
        int32_t n = 2 + (int32_t) rnd(5);
        for (int32_t i = 0; i < n; i++) {
            const struct weft_mesh *m = &mesh[rnd(WEFT_COUNT(mesh))];
            double work = 1 + rnd(40), size = weft_mesh_size(m);
            add(c, *m, work / pow(size, 0.8), 5 + rnd(15), 1 + rnd(30),
                1 + rnd(10));
            option[c][i].share = 0.25 + 0.25 * rnd(4);
            double came = 0;
            for (int k = 0; k < WEFT_SEARCH_PARTS && c == 0; k++) {
                came = fmin(1, came + 0.125 * rnd(4));
                option[c][i].came[k] = came;
            }
        }
    }
    for (int32_t k = 0; k < 3; k++)
        p.together[k] = rnd(32);
    p.n_together = (int32_t) rnd(4);
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

/* Also in another order no choice undercuts its bound. */
static void check_period(const int32_t *choice,
                         const struct weft_search_value *v)
{
    int own[MOST], other[MOST];
    for (int32_t c = 0; c < p.n_calls; c++) {
        own[c] = p.call[c].priority;
        other[c] = (int) rnd(5);
    }
    double dt = v->period / 4000;
    double period = fmax(simulate(choice, own, 5, 2, dt), v->bound);
    CHECK(fabs(v->period - period) < 0.01 * v->period);
    period = simulate(choice, other, LONG, LONG / 2, 8 * dt);
    CHECK(period >= v->bound * (1 - 4.0 / LONG));
}

static void check_problem(void)
{
    struct weft_search *s;
    struct weft_err err;
    struct weft_search_result r;
    struct weft_search_how how = {
        .seed = 3, .evaluations = 2000, .restarts = 2, .branches = 1000000};
    int32_t choice[MOST] = {0};
    double best = INFINITY;
    int32_t n = 0;
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
    do {
        struct weft_search_value v = weft_search_value(s, choice);
        CHECK(fabs(v.bytes - bytes_of(choice)) < 1e-9);
        CHECK(v.period >= v.bound);
        if (n++ % 50 == 0)
            check_period(choice, &v);
        if (v.bytes > p.device_bytes)
            continue;
        best = fmin(best, v.period);
    } while (next_choice(choice));
    REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
    CHECK(r.fits == (best < INFINITY));
    if (r.fits) {
        CHECK(fabs(r.value.period - best) <= 1e-9 * best);
        CHECK(fabs(r.bound - best) <= 1e-9 * best);
        /* cut early, it is still a bound */
        for (how.branches = 0; how.branches < 50; how.branches += 7) {
            REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
            CHECK(r.bound <= best * (1 + 1e-9) && r.bound > 0);
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

/* Both trainings are one call, which has a layout for each role. */
static void fuse(void)
{
    p.call[3].two = true;
    p.call[3].second = 2;
    p.n_calls = 4;
    for (int32_t i = 0; i < p.call[3].n_options; i++) {
        struct weft_option *o = &option[3][i];
        o->with = o->plan;
        o->plan.tp = 1 << rnd(2);
        o->with.tp = 1 << rnd(2);
    }
    for (int32_t c = 0; c < 3; c++)
        for (int32_t i = 0; i < p.call[c].n_options; i++)
            option[c][i].plan.tp = 1 << rnd(2);
}

static void test_fused(void)
{
    for (uint32_t seed = 21; seed <= 28; seed++) {
        make_random(seed);
        fuse();
        p.device_bytes = 60 + 10 * (double) (seed % 6);
        check_problem();
    }
}

/* Both roles' weights move, each from its own layout: 1 / tp of them is in
 * move_s(). */
static void test_fused_moves(void)
{
    static const int32_t first[MOST] = {0};
    for (int32_t i = 0; i < 4; i++) {
        set_calls();
        for (int32_t c = 0; c < 4; c++)
            add(c, all, c + 1, 10, 5, 7);
        fuse();
        for (int32_t c = 0; c < 3; c++)
            option[c][0].plan.tp = 1;
        option[3][0].plan.tp = 1 + (i & 1);
        option[3][0].with.tp = 1 + (i >> 1);
        p.move = move_s;
        struct weft_search_value v = value(first);
        /* generation waits for the policy's; the critic's move is hidden
         * behind generation and the scores */
        CHECK(fabs(v.period - (10 + (i & 1 ? 0.25 : 0))) < 1e-9);
        CHECK(fabs(v.bytes - (40 + 5 + (i ? 7 : 0))) < 1e-9);
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
        best = fmin(best, v.period);
    } while (next_choice(choice));
    weft_search_free(s);
    return best;
}

/* The best plan scores and values on a half each; from what is on all devices
 * neither call fits there alone. Plans that exceed memory by a fifth are four
 * times as fast, and five options in six of three calls lead there. */
static void make_trap(void)
{
    static const double slow[] = {50, 0, 0, 85, 85};
    static const double held[] = {8, 0, 0, 33, 31};
    set_calls();
    p.device_bytes = 80;
    p.together[p.n_together++] = 2 | 4;
    for (int32_t c = 0; c < p.n_calls; c++) {
        for (int32_t i = 0; i < OPTIONS && c != 1 && c != 2; i++)
            add(c, all, i ? 10 + i : slow[c], i ? held[c] + 6 : held[c], 2,
                0);
        for (int32_t i = 0; i < 2 && (c == 1 || c == 2); i++) {
            add(c, all, 4 + i, 1, 2 + c, 0);
            add(c, all, 20 + 10 * c + i, 2, 0.1, 0);
            add(c, c == 1 ? left : right, 8 + i, 1, c == 1 ? 5.5 : 4, 0);
        }
    }
}

static void test_annealing(void)
{
    struct weft_search *s;
    struct weft_err err;
    make_trap();
    double best = best_of_all();
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
    for (uint64_t seed = 1; seed <= 20; seed++) {
        const struct weft_search_how how = {.seed = seed,
                                            .evaluations = 4000};
        struct weft_search_result r;
        REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
        CHECK(r.fits && fabs(r.value.period - best) <= 1e-9 * best);
    }
    weft_search_free(s);
}

/* What is known of another problem ends the search sooner; the bound is that of
 * both, and no choice of either is below it. */
static void test_known(void)
{
    int32_t n_fused = 0, fewer = 0;
    for (uint32_t seed = 31; seed <= 42; seed++) {
        struct weft_search_how how = {.seed = 3, .branches = 1000000};
        struct weft_search_result alone, r;
        struct weft_search *s;
        struct weft_err err;
        make_random(seed);
        how.known = best_of_all();
        fuse();
        for (int32_t i = 0; i < p.call[3].n_options; i++)
            option[3][i].seconds *= seed % 2 ? 0.8 : 1.6;
        double fused = best_of_all();
        REQUIRE_OK(weft_search_create(&p, &s, &err), err);
        REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
        double best = fmin(fused, how.known);
        CHECK(fabs(r.bound - best) <= 1e-9 * best);
        CHECK(fused > how.known || fabs(r.value.period - fused) < 1e-9);
        n_fused += fused < how.known;
        how.known = 0;
        REQUIRE_OK(weft_search_run(s, &how, &alone, &err), err);
        CHECK(r.branches <= alone.branches);
        fewer += r.branches < alone.branches;
        weft_search_free(s);
    }
    CHECK(n_fused > 1 && n_fused < 11 && fewer > 0);
}

static double move_anywhere_s(void *ctx, int32_t role,
                              const struct weft_call_plan *from,
                              const struct weft_call_plan *to)
{
    (void) ctx;
    bool inside = from->mesh.n_nodes == 1 && to->mesh.n_nodes == 1
               && from->mesh.node == to->mesh.node;
    return 0.125 + 0.125 * role + 0.5 * !inside;
}

/* Two layouts of each call, wherever they can be. */
static void make_everywhere(uint32_t seed)
{
    static const struct weft_mesh mesh[] = {
        {0, 2, 0, 4}, {0, 1, 0, 4}, {0, 1, 0, 2}};
    make_random(seed);
    p.move = rnd(2) ? move_anywhere_s : NULL;
    for (int32_t c = 0; c < p.n_calls; c++) {
        int32_t first = (int32_t) rnd(WEFT_COUNT(mesh));
        p.call[c].n_options = 0;
        for (int32_t i = 0; i < 2; i++) {
            struct weft_mesh m = mesh[(first + i) % WEFT_COUNT(mesh)];
            double seconds = 3 + 0.125 * rnd(40), held = 5 + rnd(15);
            for (m.node = 0; m.node < 2; m.node += m.n_nodes)
                for (m.device = 0; m.device < 4; m.device += m.n_devices)
                    add(c, m, seconds, held, 1, 2);
        }
    }
}

/* Of plans that differ in which of alike devices calls have one is looked at, and
 * none is missed. */
static void test_mirrors(void)
{
    int64_t n_all = 0, n_once = 0;
    for (uint32_t seed = 1; seed <= 25; seed++) {
        struct weft_search_how how = {
            .seed = 1, .evaluations = 1, .branches = 10000000};
        struct weft_search_result r[2];
        make_everywhere(seed);
        p.device_bytes = 30 + 5 * (double) (seed % 5);
        double best = best_of_all();
        for (int32_t once = 0; once < 2; once++) {
            struct weft_search *s;
            struct weft_err err;
            p.alike = once;
            REQUIRE_OK(weft_search_create(&p, &s, &err), err);
            REQUIRE_OK(weft_search_run(s, &how, &r[once], &err), err);
            weft_search_free(s);
            CHECK(r[once].fits == (best < INFINITY));
            if (r[once].fits) {
                CHECK(fabs(r[once].value.period - best) <= 1e-9 * best);
                CHECK(fabs(r[once].bound - best) <= 1e-9 * best);
            }
        }
        n_all += r[0].branches;
        n_once += r[1].branches;
    }
    CHECK((double) n_once < 0.7 * (double) n_all);
}

/* No choice with an option undercuts its least, nor a search what was left out
 * before it. */
static void test_least(void)
{
    for (uint32_t seed = 1; seed <= 8; seed++) {
        struct weft_search *s;
        struct weft_err err;
        struct weft_search_result r;
        const struct weft_search_how how = {
            .seed = 1, .evaluations = 100, .branches = 1000000};
        int32_t choice[MOST] = {0};
        double least[MOST][OPTIONS], most = 0;
        make_random(seed);
        p.device_bytes = 1e9;
        REQUIRE_OK(weft_search_create(&p, &s, &err), err);
        for (int32_t c = 0; c < p.n_calls; c++)
            for (int32_t i = 0; i < p.call[c].n_options; i++)
                least[c][i] = weft_search_least(s, c, &option[c][i]);
        do {
            double period = weft_search_value(s, choice).period;
            for (int32_t c = 0; c < p.n_calls; c++) {
                CHECK(least[c][choice[c]] <= period * (1 + 1e-9));
                most = fmax(most, least[c][choice[c]] / period);
            }
        } while (next_choice(choice));
        CHECK(most > 0.5);
        p.left_out_s = 0.75 * best_of_all();
        REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
        CHECK(fabs(r.bound - p.left_out_s) <= 1e-12);
        weft_search_free(s);
    }
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
        if (seed % 3 == 0)
            fuse();
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

/* With the faster training, of other degrees, both other calls of the role have a
 * copy of its weights, at the same time: it makes the slower one needless only
 * where that holds as much more. */
static void test_copies(void)
{
    static const struct {
        double held;
        int32_t n;
    } row[] = {{14, 2}, {16.5, 2}, {17, 1}, {20, 1}};
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        struct weft_option *array[MOST];
        struct weft_err err;
        set_calls();
        p.call[1].role = 0;
        p.call[1].trained = true;
        p.n_together = 1;
        p.together[0] = 3;
        for (int32_t c = 0; c < 5; c++) {
            array[c] = option[c];
            add(c, c == 2 || c == 4 ? right : left, 2, 1, 1, 3 + c);
        }
        option[3][0].plan.tp = 2;
        option[3][0].held = 10;
        add(3, left, 3, row[i].held, 1, 6);
        p.device_bytes = 1 + 1 + row[i].held + 1 + 1;
        double before = best_of_all();
        CHECK(before < INFINITY);
        REQUIRE_OK(weft_search_prune(&p, array, &err), err);
        CHECK_INT(p.call[3].n_options, row[i].n);
        CHECK(best_of_all() <= before);
    }
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
           {"apart", test_apart}, {"bubbles", test_bubbles},
           {"streams", test_streams}, {"random", test_random},
           {"annealing", test_annealing}, {"fused", test_fused},
           {"fused_moves", test_fused_moves}, {"known", test_known},
           {"same_seed_same_result", test_same_seed_same_result},
           {"pruned", test_pruned}, {"copies", test_copies},
           {"mirrors", test_mirrors}, {"least", test_least},
           {"finalists", test_finalists}, {"stopped", test_stopped},
           {"refused", test_refused})
