/* SPDX-License-Identifier: Apache-2.0 */
/* What no order of tasks undercuts, and no schedule of generation whose samples
 * move; and what generation waits for. */
#include "search_by_hand.h"

static const int32_t first[MOST] = {0};

/* The policy trains on the left; all that it waits for is on the right. */
static void test_work(void)
{
    set_calls();
    add(0, right, 2, 1, 1, 1);
    add(1, right, 3, 1, 1, 1);
    add(2, right, 3, 1, 1, 1);
    add(3, left, 4, 1, 1, 1);
    add(4, left, 1, 1, 1, 1);
    struct weft_search_value v = value(first);
    CHECK(fabs(v.bound - 12) < 1e-12);
    CHECK(fabs(v.period - 12) < 1e-9);
    p.move = move_s; /* generation waits for weights, and all for it */
    CHECK(fabs(value(first).bound - 12.75) < 1e-9);
}

/* The critic trains for 5 s on the left, the policy for 3 s on the right, both
 * from the same moment on. Generation, on all, would come between and hold the
 * critic up, whose weights then move beside nothing: 3 + 4 + 2 + 0.875 + 1 s.
 * Behind it, it ends after 5 + 4 s, and the values 1 s later. */
static void test_behind(void)
{
    set_calls();
    add(0, all, 4, 1, 1, 1);
    add(1, right, 0.5, 1, 1, 1);
    add(2, left, 1, 1, 1, 1);
    add(3, right, 3, 1, 1, 1);
    add(4, left, 5, 1, 1, 1);
    option[2][0].plan.tp = 2;
    option[0][0].plan.tp = 1;
    p.move = move_s;
    double move = move_s(NULL, 2, &option[4][0].plan, &option[2][0].plan);
    double waits = move_s(NULL, 0, &option[3][0].plan, &option[0][0].plan);
    CHECK(fabs(value(first).period
               - (3 + waits + 4 + (5 - 3 - waits) + move + 1))
          < 1e-9);
    p.call[0].behind = 1u << 4;
    CHECK(fabs(value(first).period - (5 + 4 + 1)) < 1e-9);
    /* not where it shares no device with it, nor where no weights move */
    option[2][0].plan.tp = 1;
    CHECK(fabs(value(first).period - (3 + waits + 4 + (5 - 3 - waits) + 1))
          < 1e-9);
    option[2][0].plan.tp = 2;
    p.call[0].n_options = 0;
    add(0, right, 4, 1, 1, 1);
    CHECK(fabs(value(first).period - (3 + 4 + 1)) < 1e-9);
}

/* ---- Any order ------------------------------------------------------------ */

static double least_bound(void)
{
    struct weft_search *s;
    struct weft_err err;
    int32_t choice[MOST] = {0};
    double least = INFINITY;
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
    do {
        struct weft_search_value v = weft_search_value(s, choice);
        if (v.bytes <= p.device_bytes)
            least = fmin(least, v.bound);
    } while (next_choice(choice));
    weft_search_free(s);
    return least;
}

static struct weft_search_result run(int64_t branches)
{
    const struct weft_search_how how = {
        .seed = 1, .evaluations = 500, .branches = branches};
    struct weft_search_result r;
    struct weft_search *s;
    struct weft_err err;
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
    REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
    weft_search_free(s);
    return r;
}

/* It is the least bound of all choices that fit; cut early it is no more. */
static void test_any_order(void)
{
    int n_less = 0;
    for (uint32_t seed = 41; seed <= 60; seed++) {
        make_random(seed);
        double least = least_bound();
        if (!(least < INFINITY))
            continue;
        struct weft_search_result r = run(1000000);
        CHECK(fabs(r.any_order - least) <= 1e-9 * least);
        n_less += r.any_order < r.bound * (1 - 1e-6);
        for (int64_t branches = 20; branches < 4000;
             branches += 20 + branches / 8) {
            r = run(branches);
            CHECK(r.any_order <= least * (1 + 1e-9));
        }
    }
    CHECK(n_less > 3);
}

/* ---- Samples that move ----------------------------------------------------- */

static struct weft_mesh half(const struct weft_mesh *m, int second)
{
    struct weft_mesh h = *m;
    int32_t *n = m->n_nodes > 1 ? &h.n_nodes : &h.n_devices;
    *n /= 2;
    if (second)
        *(m->n_nodes > 1 ? &h.node : &h.device) += *n;
    return h;
}

/* Plays a choice whose generation, as long as its option says, has more of its
 * work on one half of its devices: as two calls. */
static double simulate_halves(const int32_t *choice, int busy, double dt)
{
    static const int priority[MOST] = {3, 0, 0, 2, 1, 3};
    struct weft_search_problem before = p;
    struct weft_option o = option[0][choice[0]], h[2] = {o, o};
    int32_t halves[MOST];
    double most = fmin(1, 2 * o.share);
    memcpy(halves, choice, sizeof halves);
    for (int k = 0; k < 2; k++) {
        h[k].plan.mesh = half(&o.plan.mesh, k);
        h[k].share = k == busy ? most : fmax(2 * o.share - most, 1e-9);
    }
    p.n_calls = 6;
    p.call[5] = p.call[0];
    for (int32_t c = 1; c < 5; c++)
        p.call[c].before |= (p.call[c].before & 1) << 5;
    option[0][choice[0]] = h[0];
    option[5][0] = h[1];
    halves[5] = 0;
    double period = simulate(halves, priority, LONG, LONG / 2, dt);
    option[0][choice[0]] = o;
    p = before;
    return period;
}

/* The critic trains on the right for 8 s. Half of the time of all devices is
 * enough for generation, which may be that of the left ones alone. */
static void test_uneven(void)
{
    set_calls();
    add(0, all, 4, 1, 1, 1);
    add(1, left, 0.01, 1, 1, 1);
    add(2, left, 0.01, 1, 1, 1);
    add(3, left, 1, 1, 1, 1);
    add(4, right, 8, 1, 1, 1);
    option[0][0].share = 0.5;
    CHECK(fabs(value(first).bound - 10) < 1e-12);
    CHECK(simulate_halves(first, 0, 0.01) < 8.1);
    p.call[0].moves = true;
    /* and the values wait for its weights */
    CHECK(fabs(value(first).bound - 8.01) < 1e-12);
    p.call[3].n_options = 0;
    add(3, left, 5, 1, 1, 1);
    option[0][0].seconds = 6;
    option[0][0].share = 1; /* on no device is less than in the mean */
    CHECK(fabs(value(first).bound - (2 * 6 + 0.02 + 5 + 8) / 2) < 1e-12);
}

/* The period is the bound, which holds wherever generation's work is; the best is
 * that of all choices. */
static void test_moves(void)
{
    int n_played = 0, n_near = 0;
    for (uint32_t seed = 71; seed <= 90; seed++) {
        int32_t choice[MOST] = {0}, n = 0;
        make_random(seed);
        p.move = NULL;
        p.call[0].moves = true;
        double least = least_bound();
        do {
            const struct weft_mesh *m = &option[0][choice[0]].plan.mesh;
            struct weft_search_value v = value(choice);
            CHECK(v.period == v.bound);
            if (weft_mesh_size(m) == 1 || n++ % 400 != 0)
                continue;
            for (int busy = 0; busy < 2; busy++) {
                double s = simulate_halves(choice, busy, v.bound / 500);
                CHECK(s >= v.bound * (1 - 4.0 / LONG));
                n_near += s < 1.05 * v.bound;
                n_played++;
            }
        } while (next_choice(choice));
        if (least < INFINITY) {
            struct weft_search_result r = run(1000000);
            CHECK(fabs(r.bound - least) <= 1e-9 * least);
            CHECK(fabs(r.value.period - least) <= 1e-9 * least);
        }
    }
    CHECK(n_played > 60 && n_near > n_played / 10);
}

WEFT_TESTS("plan/search_bounds", {"work", test_work}, {"behind", test_behind},
           {"any_order", test_any_order}, {"uneven", test_uneven},
           {"moves", test_moves})
