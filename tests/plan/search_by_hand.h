/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small problems of the search for plans, and a simulator of the tests' own,
 * which knows devices one by one and goes on in small steps of time.
 */
#ifndef WEFT_TESTS_PLAN_SEARCH_BY_HAND_H
#define WEFT_TESTS_PLAN_SEARCH_BY_HAND_H

#include "harness.h"

#include <math.h>

#include "plan/search/search.h"

enum { MOST = 8, LONG = 24, OPTIONS = 8, DEVICES = 8 };

static uint32_t state = 1;
static inline uint32_t rnd(uint32_t n)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
}

static struct weft_option option[MOST][OPTIONS];
static struct weft_search_problem p;

static inline bool alike(const struct weft_call_plan *a,
                         const struct weft_call_plan *b)
{
    return memcmp(&a->mesh, &b->mesh, sizeof a->mesh) == 0 && a->tp == b->tp
        && a->pp == b->pp;
}

static inline double move_s(void *ctx, int32_t role,
                            const struct weft_call_plan *from,
                            const struct weft_call_plan *to)
{
    (void) ctx;
    return 0.125 + 0.125 * role + 0.125 / to->tp
         + 0.5 * (from->mesh.node != to->mesh.node);
}

static inline void add(int32_t call, struct weft_mesh mesh, double seconds,
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

#define GENERATES .priority = 3, .trained = true
#define TRAINS .trains = true, .trained = true

struct graph {
    const char *algorithm;
    int32_t n_calls;
    struct weft_search_call call[MOST];
};
static const struct graph graphs[] = {
    /* generate (0) -> score (1), value (2) -> train (3), train the critic
     * (4) */
    {"ppo",
     5,
     {{.role = 0, GENERATES},
      {.role = 1, .before = 1},
      {.role = 2, .trained = true, .before = 1},
      {.role = 0, TRAINS, .priority = 2, .before = 7},
      {.role = 2, TRAINS, .priority = 1, .before = 7}}},
    /* generate (0) -> reference (1) -> train (2), and greedily (3) -> train */
    {"remax",
     4,
     {{.role = 0, GENERATES},
      {.role = 1, .before = 1},
      {.role = 0, TRAINS, .priority = 2, .before = 11},
      {.role = 0, GENERATES}}},
    /* generate (0) -> reference (1) -> train (2) */
    {"grpo",
     3,
     {{.role = 0, GENERATES},
      {.role = 1, .before = 1},
      {.role = 0, TRAINS, .priority = 2, .before = 3}}},
    /* reference (0) -> train (1) */
    {"dpo",
     2,
     {{.role = 1}, {.role = 0, TRAINS, .priority = 2, .before = 1}}}};

static inline void set_graph(const struct graph *g)
{
    p = (struct weft_search_problem){.n_nodes = 2,
                                     .n_devices = 4,
                                     .device_bytes = 100,
                                     .n_calls = g->n_calls};
    memcpy(p.call, g->call, sizeof g->call);
}

static inline void set_calls(void)
{
    set_graph(&graphs[0]);
}

/* ---- The test's own simulator ------------------------------------------- */

static inline bool on(const struct weft_mesh *m, int32_t device)
{
    int32_t node = device / p.n_devices, d = device % p.n_devices;
    return node >= m->node && node < m->node + m->n_nodes && d >= m->device
        && d < m->device + m->n_devices;
}

static inline const struct weft_option *chosen(const int32_t *choice,
                                               int32_t c)
{
    return &option[c][choice[c]];
}

static inline int32_t trainer(int32_t c)
{
    for (int32_t t = 0; t < p.n_calls; t++)
        if (p.call[t].trains
            && (p.call[t].role == p.call[c].role
                || (p.call[t].two && p.call[t].second == p.call[c].role)))
            return t;
    return -1;
}

/* The layout in which a call's role is trained. */
static inline const struct weft_call_plan *trained(const int32_t *choice,
                                                   int32_t c)
{
    int32_t t = trainer(c);
    return p.call[t].role == p.call[c].role ? &chosen(choice, t)->plan
                                            : &chosen(choice, t)->with;
}

static inline double moves(const int32_t *choice, int32_t c)
{
    int32_t t = trainer(c);
    if (!p.move || t < 0 || t == c)
        return 0;
    const struct weft_call_plan *a = trained(choice, c);
    const struct weft_call_plan *b = &chosen(choice, c)->plan;
    return alike(a, b) && a->zero < 3 ? 0
                                      : move_s(NULL, p.call[c].role, a, b);
}

/* Seconds of work of a call's device. */
static inline double work_of(const struct weft_option *o, int32_t device)
{
    bool second = p.kind_ends[0] > 0
               && device / p.n_devices >= p.kind_ends[0];
    return o->share * (1 + (double) o->uneven[second]) * o->seconds;
}

struct oracle {
    const int32_t *choice;
    const int *priority;
    int32_t done[MOST];
    double part[MOST], rate[MOST], ended[MOST], now;
};

/* The part of results that is there when `part` of a call is done, by straight
 * lines between parts. */
static inline double there(const struct weft_option *o, double part)
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

/* Whether a call waits for training t of the iteration before: they have a
 * device together, and a call of that role has another layout. */
static inline bool is_behind(const int32_t *choice, int32_t c, int32_t t)
{
    bool together = false, moves = false;
    for (int32_t d = 0; d < p.n_nodes * p.n_devices; d++)
        together = together
                || (on(&chosen(choice, c)->plan.mesh, d)
                    && on(&chosen(choice, t)->plan.mesh, d));
    for (int32_t k = 0; k < p.n_calls; k++)
        moves = moves
             || (k != t && trainer(k) == t
                 && !alike(&chosen(choice, k)->plan,
                           &chosen(choice, t)->plan));
    return (p.call[c].behind >> t & 1) && together && moves;
}

static inline double may_have(const struct oracle *q, int32_t c)
{
    double most = 1;
    int32_t t = trainer(c), i = q->done[c];
    for (int32_t k = 0; k < p.n_calls && i > 0; k++)
        if (q->done[k] < i && is_behind(q->choice, c, k))
            return 0;
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

/* What calls do within a step; those that any device takes parts of, on each
 * device. */
struct doing {
    double dt, may[MOST], does[MOST], on[MOST][DEVICES];
};

/* On which devices a call can do more. */
static inline void find_open(const struct oracle *q, const struct doing *w,
                             const double *left, int32_t c, bool *open)
{
    const struct weft_option *o = chosen(q->choice, c);
    int32_t n = p.n_nodes * p.n_devices;
    bool may = w->may[c] - w->does[c] > 1e-12, all = true;
    for (int32_t d = 0; d < n; d++) {
        open[d] = may && on(&o->plan.mesh, d);
        all = all && !(open[d] && left[d] <= 1e-12);
    }
    for (int32_t d = 0; d < n; d++)
        open[d] = open[d]
               && (o->any_device
                       ? left[d] > 1e-12
                             && w->dt / o->seconds - w->on[c][d] > 1e-12
                       : all);
}

/* As much more of every call that may and has devices, as can be; of those that
 * any device takes parts of, or the others. False: of none. */
static inline bool more(const struct oracle *q, double *left, bool any,
                        struct doing *w)
{
    bool open[MOST][DEVICES];
    double load[DEVICES] = {0}, share[MOST] = {0}, most = INFINITY;
    int32_t n = p.n_nodes * p.n_devices;
    for (int32_t c = 0; c < p.n_calls; c++) {
        const struct weft_option *o = chosen(q->choice, c);
        find_open(q, w, left, c, open[c]);
        if (o->any_device != any)
            memset(open[c], 0, sizeof open[c]);
        for (int32_t d = 0; d < n; d++) {
            load[d] += open[c][d] ? work_of(o, d) : 0;
            share[c] += open[c][d] ? 1.0 / weft_mesh_size(&o->plan.mesh) : 0;
            if (open[c][d] && o->any_device)
                most = fmin(most, w->dt / o->seconds - w->on[c][d]);
        }
        if (share[c] > 0)
            most = fmin(most, (w->may[c] - w->does[c]) / share[c]);
    }
    for (int32_t d = 0; d < n; d++)
        most = load[d] > 0 ? fmin(most, left[d] / load[d]) : most;
    if (most == INFINITY)
        return false;
    for (int32_t c = 0; c < p.n_calls; c++) {
        w->does[c] += most * share[c];
        for (int32_t d = 0; d < n; d++)
            w->on[c][d] += open[c][d] ? most : 0;
    }
    for (int32_t d = 0; d < n; d++)
        left[d] -= most * load[d];
    return true;
}

/* Devices of a call that works on all together have no time while one of them
 * has none, but for the first, which begins. */
static inline void wait_for_others(const struct oracle *q,
                                   const struct doing *w, double *left)
{
    for (int32_t again = 0; again < p.n_calls; again++)
        for (int32_t c = 0; c < p.n_calls; c++) {
            const struct weft_option *o = chosen(q->choice, c);
            const struct weft_mesh *m = &o->plan.mesh;
            bool none = false;
            for (int32_t d = 0; d < p.n_nodes * p.n_devices; d++)
                none = none || (on(m, d) && left[d] <= 1e-12);
            none = none && left[m->node * p.n_devices + m->device] > 1e-12;
            for (int32_t d = 0; d < p.n_nodes * p.n_devices; d++)
                if (none && o->gang && w->may[c] > 1e-12 && on(m, d))
                    left[d] = 0;
        }
}

/* What each call does within a step: those with the highest priority first,
 * of these those that have devices of their own, those of equal priority in
 * proportion to what they have to do, and then those that can do more. */
static inline void step(struct oracle *q, double dt)
{
    double left[DEVICES];
    for (int32_t d = 0; d < DEVICES; d++)
        left[d] = dt;
    for (int level = 9; level >= 0; level--) {
        struct doing w;
        bool some = false;
        for (int32_t c = 0; c < p.n_calls; c++) {
            w.may[c] = q->priority[c] != level
                         ? 0
                         : fmin(dt / chosen(q->choice, c)->seconds,
                                may_have(q, c) - q->part[c]);
            some = some || w.may[c] > 1e-12;
        }
        if (!some)
            continue;
        w.dt = dt;
        memset(w.does, 0, sizeof w.does);
        memset(w.on, 0, sizeof w.on);
        wait_for_others(q, &w, left);
        for (int any = 0; any <= 1; any++)
            while (more(q, left, any, &w))
                continue;
        for (int32_t c = 0; c < p.n_calls; c++)
            q->part[c] += w.does[c];
    }
    q->now += dt;
    for (int32_t c = 0; c < p.n_calls; c++)
        if (q->part[c] >= 1 - 1e-12) {
            q->part[c] = 0;
            q->ended[c] = q->now;
            q->done[c]++;
        }
}

/* The mean of the last of n iterations' times, by the ends of the first call
 * that trains; in steps of dt. */
static inline double simulate(const int32_t *choice, const int *priority,
                              int32_t n, int32_t last, double dt)
{
    struct oracle q = {.choice = choice, .priority = priority};
    double from = 0;
    int32_t t = 0;
    while (!p.call[t].trains)
        t++;
    while (q.done[t] < n) {
        int32_t before = q.done[t];
        step(&q, dt);
        if (before < n - last && q.done[t] == n - last)
            from = q.now;
        REQUIRE(q.now < 1e5);
    }
    return (q.now - from) / last;
}

/* Frozen weights that a call has and no call before it, nor the one that trains:
 * those of a trunk are once where calls lie alike. */
static inline double frozen_bytes(const int32_t *choice, int32_t c)
{
    const struct weft_option *o = chosen(choice, c);
    for (int32_t i = 0; i < p.n_calls; i++)
        if (i != c && p.call[i].trunk == p.call[c].trunk
            && (i < c || p.call[i].trains)
            && alike(&chosen(choice, i)->plan, &o->plan))
            return 0;
    return p.call[c].trains ? 0 : o->weights;
}

/* Each other layout of training has its weights cut. */
static inline void cut_weights(void)
{
    for (int32_t c = 0; c < p.n_calls; c++)
        for (int32_t i = 1; i < p.call[c].n_options && p.call[c].trains;
             i += 2)
            option[c][i].plan.zero = 3;
}

static inline double bytes_of(const int32_t *choice)
{
    double most = 0;
    for (int32_t d = 0; d < p.n_nodes * p.n_devices; d++) {
        double held = 0, active = 0, set[WEFT_SEARCH_TOGETHER] = {0};
        for (int32_t c = 0; c < p.n_calls; c++) {
            const struct weft_option *o = chosen(choice, c);
            int32_t t = trainer(c);
            if (!on(&o->plan.mesh, d))
                continue;
            bool reads = t >= 0 && t != c;
            bool cut = reads && trained(choice, c)->zero == 3;
            bool trunk = p.call[c].trunk > 0 && !cut;
            bool copies = reads && !trunk
                       && (cut || !alike(trained(choice, c), &o->plan));
            double runs = o->active + (copies ? o->weights : 0);
            held += o->held + (trunk ? frozen_bytes(choice, c) : 0);
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

/* ---- Problems ---------------------------------------------------------- */

static const struct weft_mesh all = {0, 2, 0, 4}, left = {0, 1, 0, 4},
                              right = {1, 1, 0, 4}, part = {1, 1, 2, 2};

static inline void make_random_of(const struct graph *g, uint32_t seed)
{
    static const struct weft_mesh mesh[] = {
        {0, 2, 0, 4}, {0, 1, 0, 4}, {1, 1, 0, 4}, {0, 1, 0, 2},
        {0, 1, 2, 2}, {1, 1, 0, 2}, {1, 1, 2, 2}, {1, 1, 3, 1}};
    state = seed;
    set_graph(g);
    p.move = rnd(3) ? move_s : NULL;
    if (g->n_calls == 5)
        p.call[0].behind = seed % 2 ? 1u << 4 : 0;
    for (int32_t c = 0; c < p.n_calls; c++) {
        int32_t n = 2 + (int32_t) rnd(5);
        for (int32_t i = 0; i < n; i++) {
            const struct weft_mesh *m = &mesh[rnd(WEFT_COUNT(mesh))];
            double work = 1 + rnd(40), size = weft_mesh_size(m);
            add(c, *m, work / pow(size, 0.8), 5 + rnd(15), 1 + rnd(30),
                1 + rnd(10));
            option[c][i].share = 0.25 + 0.25 * rnd(4);
            double came = 0;
            for (int k = 0; k < WEFT_SEARCH_PARTS && p.call[c].priority == 3;
                 k++) {
                came = fmin(1, came + 0.125 * rnd(4));
                option[c][i].came[k] = came;
            }
        }
    }
    for (int32_t k = 0; k < 3; k++)
        p.together[k] = rnd(1u << p.n_calls);
    p.n_together = (int32_t) rnd(4);
    for (int32_t c = 0; c < p.n_calls; c++)
        for (int32_t i = 0; i < p.call[c].n_options && !p.call[c].trains;
             i++) {
            option[c][i].gang = rnd(3) == 0;
            option[c][i].any_device = p.call[c].priority < 3
                                   && !option[c][i].gang && rnd(2);
        }
}

static inline void make_random(uint32_t seed)
{
    make_random_of(&graphs[0], seed);
}

/* The nodes are of two kinds, of which one has less to do of some calls that
 * both have. */
static inline void make_kinds(void)
{
    p.kind_ends[0] = 1;
    for (int32_t c = 0; c < p.n_calls; c++)
        for (int32_t i = 0; i < p.call[c].n_options; i++) {
            struct weft_option *o = &option[c][i];
            float less = 0.25f * (float) rnd(3);
            int32_t kind = (int32_t) rnd(2);
            if (o->plan.mesh.n_nodes < 2 || o->gang || o->any_device)
                continue;
            o->share = 0.5;
            o->uneven[kind] = -less;
            o->uneven[1 - kind] = less;
        }
}

/* Both trainings are one call, which has a layout for each role. */
static inline void fuse(void)
{
    p.call[3].two = true;
    p.call[3].second = 2;
    p.call[0].behind = 0;
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

static inline bool next_choice(int32_t *choice)
{
    for (int32_t c = 0; c < p.n_calls; c++) {
        if (++choice[c] < p.call[c].n_options)
            return true;
        choice[c] = 0;
    }
    return false;
}

static inline struct weft_search_value value(const int32_t *choice)
{
    struct weft_search *s;
    struct weft_err err;
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
    struct weft_search_value v = weft_search_value(s, choice);
    weft_search_free(s);
    return v;
}

/* The shortest period, and the lowest bound, of choices that fit. */
static inline double least_of_all(double *bound_out)
{
    struct weft_search *s;
    struct weft_err err;
    int32_t choice[MOST] = {0};
    double best = INFINITY;
    *bound_out = INFINITY;
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
    do {
        struct weft_search_value v = weft_search_value(s, choice);
        if (v.bytes > p.device_bytes)
            continue;
        best = fmin(best, v.period);
        *bound_out = fmin(*bound_out, v.bound);
    } while (next_choice(choice));
    weft_search_free(s);
    return best;
}

static inline double best_of_all(void)
{
    double bound;
    return least_of_all(&bound);
}

#endif
