/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What plans are found among: options whose recordings are too large are left
 * out, and what a configuration fixes is not searched, by brute force.
 */
#include "find_fixture.h"

/* ---- Recordings that are too large --------------------------------------- */

static bool is_variant(const struct weft_finding *f, int32_t call,
                       const struct weft_call_plan *at)
{
    for (int32_t i = 0; i < f->n_variants[call]; i++)
        if (memcmp(&f->variant[call][i].plan, at, sizeof *at) == 0)
            return true;
    return false;
}

/* Layouts of which a recording takes more than may be are left out, each
 * counted once, and no others. As fused training is asked for, all are
 * priced. */
static void test_left_out(void)
{
    static const char *const word[] = {LONG, "train.intra_stage_fusion=true",
                                       NULL};
    struct finding f;
    int64_t all = 0, some = 0, most = 0;
    bool a_part = false;
    open_finding(&f, fixture.config, 2, word);
    do {
        struct weft_finding one;
        struct weft_priced priced[WEFT_MAX_CALLS];
        int64_t n = 0;
        f.simulate.most_bytes = most;
        REQUIRE_OK(
            weft_finding_open(&f.config, &f.needs.plan, &f.find, &one, &err),
            err);
        all = most > 0 ? all : one.n_priced;
        for (int32_t c = 0; c < WEFT_MAX_CALLS; c++)
            for (int32_t k = 0; k < one.candidates[c].n; k++) {
                const struct weft_call_plan *at =
                    &one.candidates[c].at[k].plan;
                int rc = weft_pricer_price(one.pricer, at, 1u << c, priced,
                                           &err);
                CHECK(rc == 0 || rc == WEFT_ENOMEM);
                CHECK(is_variant(&one, c, at) == (rc == 0));
                n += rc == WEFT_ENOMEM;
            }
        CHECK_INT(one.n_left_out, n);
        CHECK_INT(one.n_priced + n, all);
        some = n;
        a_part = a_part || (n > 0 && n < all);
        weft_finding_close(&one);
        most = most > 0 ? most * 9 / 10 : 1 << 21;
    } while (some < all);
    CHECK(a_part);
    close_finding(&f);
}

/* ZeRO 3 is tried with hpz, too, where a replica has others in its node and in
 * others: on two nodes of two devices with four replicas alone. */
static void test_hpz(void)
{
    static const char *const word[] = {"runtime.place=device", NULL};
    for (int n_nodes = 1; n_nodes <= 2; n_nodes++) {
        struct finding f;
        struct weft_finding at;
        int n = 0;
        open_finding(&f, fixture.config, 2, word);
        f.cluster.n_nodes = f.cluster.kind[0].n_nodes = n_nodes;
        REQUIRE_OK(
            weft_run_needs_read(&f.config, n_nodes, 2, 0, &f.needs, &err),
            err);
        f.needs.plan.device_bytes = (int64_t) weft_cluster_device_bytes(
            &f.cluster);
        REQUIRE_OK(
            weft_finding_open(&f.config, &f.needs.plan, &f.find, &at, &err),
            err);
        for (int32_t c = 0; c < WEFT_MAX_CALLS; c++)
            for (int32_t i = 0; i < at.candidates[c].n; i++) {
                const struct weft_call_plan *p = &at.candidates[c].at[i].plan;
                struct weft_call_plan without = *p;
                without.hpz = false;
                CHECK(!p->hpz || (p->zero == 3 && p->dp == 4));
                CHECK(!p->hpz || is_variant(&at, c, &without));
                n += p->hpz;
            }
        CHECK((n > 0) == (n_nodes == 2));
        weft_finding_close(&at);
        close_finding(&f);
    }
}

/* ---- What was not priced ------------------------------------------------- */

static int asked; /* how often a search goes on before it is stopped, once */

static bool is_stopped(void *ctx)
{
    (void) ctx;
    return asked-- == 0;
}

/* Whether the best plan of what was priced is longer than the best of all, than
 * which its bound is never. */
static bool is_worse(struct finding *f, struct weft_finding *at, double best)
{
    struct weft_search_problem p;
    struct weft_search_result r;
    struct weft_search *s;
    int64_t n = 0;
    f->find.how.stop = NULL;
    int rc = weft_finding_problem(at, &p, &n, &err);
    if (rc) /* a call without a layout */
        return false;
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
    REQUIRE_OK(weft_search_run(s, &f->find.how, &r, &err), err);
    weft_search_free(s);
    CHECK(r.bound <= best * (1 + 1e-9));
    return r.fits && r.value.period > best * (1 + 1e-9);
}

/* A search that was stopped at any layout, or whose recordings may not be
 * large, proves nothing that is not so: by brute force among all layouts. */
static void check_not_priced(const char *fused)
{
    const char *word[] = {LONG, fused, NULL};
    struct finding f;
    struct weft_finding at;
    struct weft_search_problem p;
    int64_t n = 0, n_all;
    bool worse[2] = {false, false};
    open_finding(&f, deep, 4, word);
    REQUIRE_OK(
        weft_finding_open(&f.config, &f.needs.plan, &f.find, &at, &err), err);
    REQUIRE_OK(weft_finding_problem(&at, &p, &n, &err), err);
    double best = shortest(&p);
    n_all = at.n_priced;
    weft_finding_close(&at);
    for (int k = 0; k < n_all; k++) {
        f.find.how.stop = is_stopped;
        asked = k;
        if (!weft_finding_open(&f.config, &f.needs.plan, &f.find, &at, &err)
            && is_worse(&f, &at, best))
            worse[0] = true;
        weft_finding_close(&at);
    }
    for (int64_t most = 1 << 21; most > 1 << 14; most = most * 31 / 32) {
        f.simulate.most_bytes = most;
        if (!weft_finding_open(&f.config, &f.needs.plan, &f.find, &at, &err)
            && is_worse(&f, &at, best))
            worse[1] = true;
        weft_finding_close(&at);
    }
    CHECK(worse[0]);
    CHECK(worse[1]);
    close_finding(&f);
}

static void test_not_priced(void)
{
    check_not_priced("train.intra_stage_fusion=false");
    check_not_priced("train.intra_stage_fusion=true");
}

/* Whether a search that is stopped after so many layouts has a plan that fits.
 */
static bool has_plan(struct finding *f, int after)
{
    struct weft_finding at;
    struct weft_search_problem p;
    struct weft_search_result r = {.fits = false};
    struct weft_search *s = NULL;
    int64_t n = 0;
    f->find.how.stop = is_stopped;
    asked = after - 1;
    int rc = weft_finding_open(&f->config, &f->needs.plan, &f->find, &at,
                               &err);
    f->find.how.stop = NULL;
    if (!rc && !weft_finding_problem(&at, &p, &n, &err)) {
        REQUIRE_OK(weft_search_create(&p, &s, &err), err);
        REQUIRE_OK(weft_search_run(s, &f->find.how, &r, &err), err);
    }
    weft_search_free(s);
    weft_finding_close(&at);
    return r.fits;
}

/* Where memory is short, layouts with which all calls fit are priced first: the
 * fastest of each call do not fit together, and 25 are priced before one does.
 * Where it is shorter, weights, gradients and optimizer state do not say which:
 * by these alone 21 are priced. */
static void test_first(void)
{
    static const char *const word[] = {LONG, NULL};
    struct finding f;
    open_finding(&f, deep, 4, word);
    f.needs.plan.device_bytes = 24 << 20;
    CHECK(has_plan(&f, 8));
    f.needs.plan.device_bytes = 18 << 20;
    CHECK(has_plan(&f, 16));
    close_finding(&f);
}

static double open_part(const struct weft_candidates *list)
{
    double n = 0;
    for (int32_t k = 0; k < list->n; k++)
        n += !list->at[k].closed;
    return n / list->n;
}

/* Layouts of the calls that take most of an iteration are priced first. */
static void test_longest_first(void)
{
    static const char *const word[] = {LONG, NULL};
    struct finding f;
    struct weft_finding at;
    open_finding(&f, deep, 4, word);
    f.cluster.n_nodes = f.cluster.kind[0].n_nodes = 4;
    REQUIRE_OK(weft_run_needs_read(&f.config, 4, 4, 0, &f.needs, &err), err);
    f.needs.plan.device_bytes = (int64_t) weft_cluster_device_bytes(
        &f.cluster);
    f.find.stop_pricing = is_stopped;
    asked = 79;
    REQUIRE_OK(
        weft_finding_open(&f.config, &f.needs.plan, &f.find, &at, &err), err);
    const struct weft_dataflow *flow = f.needs.plan.flow;
    for (int32_t c = 1; c < flow->n_calls; c++) {
        const struct weft_candidates *list = &at.candidates[c];
        if (weft_flow_trains(flow, c))
            CHECK(open_part(list) <= 0);
        if (flow->call[c].kind == WEFT_INFER && list->n > 0)
            CHECK(open_part(list) > 0.2);
    }
    weft_finding_close(&at);
    close_finding(&f);
}

/* Time for pricing is up, for searching it is not: the fastest layouts of each
 * call do not fit together, and a plan that does is searched. */
static void test_pricing_is_over(void)
{
    static const char *const word[] = {LONG, NULL};
    struct finding f;
    struct weft_found found;
    struct weft_plan plan;
    open_finding(&f, deep, 4, word);
    f.needs.plan.device_bytes = 24 << 20;
    f.find.finalists = 1;
    f.find.stop_pricing = is_stopped;
    asked = 7;
    REQUIRE_OK(
        weft_run_find(&f.config, &f.needs.plan, &f.find, &plan, &found, &err),
        err);
    CHECK_INT(found.priced, 8);
    CHECK(found.result.fits);
    weft_plan_release(&plan);
    close_finding(&f);
}

static int goes_on; /* how often it is not time to stop */

static bool is_over(void *ctx)
{
    (void) ctx;
    return goes_on-- <= 0;
}

/* A search whose time is up while its first finalist is recorded or simulated
 * has that one as it knows it; later the first one as simulated. */
static void test_time_is_up(void)
{
    static const char *const word[] = {LONG, NULL};
    struct finding f;
    double played_s = 0;
    int n_unplayed = 0;
    open_finding(&f, fixture.config, 4, word);
    f.find.stop = is_over;
    for (int asks = 0; asks < 16 && played_s <= 0; asks++) {
        struct weft_found found;
        struct weft_plan plan;
        goes_on = asks;
        REQUIRE_OK(weft_run_find(&f.config, &f.needs.plan, &f.find, &plan,
                                 &found, &err),
                   err);
        REQUIRE_OK(weft_plan_check(&plan, &f.needs.plan, &err), err);
        double s = found.simulated.iteration_s;
        CHECK(found.unplayed == (found.finalists == 0));
        if (found.unplayed)
            CHECK(fabs(s / found.result.finalist[0].value.period - 1) < 1e-9);
        CHECK(fabs(s / plan.predicted_s.iteration_s - 1) < 1e-9);
        played_s = found.unplayed ? 0 : s;
        n_unplayed += found.unplayed;
        weft_plan_release(&plan);
    }
    CHECK(n_unplayed >= 3 && played_s > 0); /* three iterations */
    close_finding(&f);
}

/* Where nothing fits, a sentence says what the search has found; where it has
 * time, what a run of that needs, and where. */
static void test_time_is_up_and_nothing_fits(void)
{
    static const char *const word[] = {LONG, NULL};
    struct finding f;
    open_finding(&f, fixture.config, 4, word);
    f.needs.plan.device_bytes = 1 << 20;
    f.find.stop = is_over;
    for (int asks = 0; asks <= 1000; asks += 1000) {
        struct weft_found found;
        struct weft_plan plan;
        goes_on = asks;
        CHECK_FAILS(weft_run_find(&f.config, &f.needs.plan, &f.find, &plan,
                                  &found, &err),
                    WEFT_EINVAL, err,
                    asks == 0 ? "until time was up needs" : "; most of it, ");
        CHECK(strstr(err.text, "which has 0.0009766") != NULL);
        weft_plan_release(&plan);
    }
    close_finding(&f);
}

/* ---- Threads ------------------------------------------------------------ */

static bool same_option(const struct weft_option *a,
                        const struct weft_option *b)
{
    return memcmp(&a->plan, &b->plan, sizeof a->plan) == 0
        && a->seconds == b->seconds && a->share == b->share
        && a->held == b->held && a->active == b->active
        && a->weights == b->weights
        && memcmp(a->came, b->came, sizeof a->came) == 0;
}

static bool same_variants(const struct weft_finding *a,
                          const struct weft_finding *b)
{
    bool same = a->n_priced == b->n_priced && a->n_left_out == b->n_left_out
             && a->left_out_s == b->left_out_s && !a->stopped && !b->stopped;
    for (int32_t c = 0; c < WEFT_MAX_CALLS; c++) {
        same = same && a->n_variants[c] == b->n_variants[c];
        for (int32_t i = 0; same && i < a->n_variants[c]; i++)
            same = same_option(&a->variant[c][i], &b->variant[c][i]);
    }
    return same;
}

/* Prices, what is left out, and plans are the same in any number of threads:
 * where memory counts, so that a layout's price makes others needless, and
 * where recordings are too large. Returns how many are left out for that. */
static int64_t check_threads(const char *config, int64_t device_bytes,
                             int64_t most_bytes)
{
    static const char *const word[] = {LONG, NULL};
    static const int32_t n_threads[] = {1, 2, 5};
    struct finding f;
    struct weft_finding at[WEFT_COUNT(n_threads)];
    struct weft_found found[WEFT_COUNT(n_threads)];
    struct weft_plan plan[WEFT_COUNT(n_threads)];
    int64_t n;
    open_finding(&f, config, 4, word);
    f.needs.plan.device_bytes = device_bytes;
    f.simulate.most_bytes = most_bytes;
    f.find.finalists = 6;
    for (size_t i = 0; i < WEFT_COUNT(n_threads); i++) {
        f.find.how.n_threads = n_threads[i];
        REQUIRE_OK(weft_finding_open(&f.config, &f.needs.plan, &f.find,
                                     &at[i], &err),
                   err);
        CHECK(at[i].n_priced > 20 && same_variants(&at[0], &at[i]));
        REQUIRE_OK(weft_run_find(&f.config, &f.needs.plan, &f.find, &plan[i],
                                 &found[i], &err),
                   err);
        CHECK(!memcmp(plan[0].call, plan[i].call, sizeof plan[0].call));
        CHECK(found[0].result.evaluations == found[i].result.evaluations);
        CHECK(found[0].result.bound == found[i].result.bound);
        CHECK(found[0].finalists == found[i].finalists);
        CHECK(!memcmp(found[0].best_s, found[i].best_s,
                      sizeof found[0].best_s));
        CHECK(found[0].moved_bound == found[i].moved_bound);
    }
    n = at[0].n_left_out;
    for (size_t i = 0; i < WEFT_COUNT(n_threads); i++) {
        weft_plan_release(&plan[i]);
        weft_finding_close(&at[i]);
    }
    close_finding(&f);
    return n;
}

static void test_threads(void)
{
    CHECK_INT(check_threads(deep, (int64_t) 4 << 30, 0), 0);
    CHECK_INT(check_threads(deep, 24 << 20, 0), 0);
    CHECK(check_threads(fixture.config, (int64_t) 4 << 30, 14 << 15) > 0);
}

/* ---- What is fixed ------------------------------------------------------- */

static bool zero_one(const struct weft_flow_call *c,
                     const struct weft_call_plan *p)
{
    return c->kind != WEFT_TRAIN || p->zero == 1;
}

static bool tp_two(const struct weft_flow_call *c,
                   const struct weft_call_plan *p)
{
    return c->kind != WEFT_GENERATE || (p->tp == 2 && p->dp == 2);
}

static bool in_stages(const struct weft_flow_call *c,
                      const struct weft_call_plan *p)
{
    return p->pp == 2 && (c->kind == WEFT_GENERATE || p->micro_batches == 2);
}

/* The actor's on the first two, the critic's, which take most, on the last, the
 * reference's on all. */
static bool halves(const struct weft_flow_call *c,
                   const struct weft_call_plan *p)
{
    int device = strncmp(c->name, "actor", 5) == 0  ? 0
               : strncmp(c->name, "critic", 6) == 0 ? 2
                                                    : -1;
    return device < 0 ? p->mesh.n_devices == 4
                      : p->mesh.device == device && p->mesh.n_devices == 2;
}

/* Branch and bound, without a walk that would find it, has the best choice. */
static void check_search(const struct weft_search_problem *p)
{
    const struct weft_search_how how = {
        .seed = 1, .evaluations = 1, .branches = 1000000};
    struct weft_search *s;
    struct weft_search_result r;
    double best = shortest(p);
    REQUIRE_OK(weft_search_create(p, &s, &err), err);
    REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
    CHECK(r.fits && fabs(r.value.period - best) <= WEFT_SEARCH_NEAR * best);
    CHECK(r.bound <= best * (1 + 1e-9));
    weft_search_free(s);
}

static int32_t count(const struct weft_search_call *call,
                     const struct weft_call_plan *plan)
{
    int32_t n = 0;
    for (int32_t k = 0; k < call->n_options; k++)
        n += memcmp(&call->option[k].plan, plan, sizeof *plan) == 0;
    return n;
}

/* Where a search leaves out mirror images of choices, each option is there on
 * every mesh of the node that is as large. */
static void check_mirrors(const struct weft_search_problem *p, bool has)
{
    bool all = true;
    for (int32_t i = 0; i < p->n_calls; i++)
        for (int32_t k = 0; k < p->call[i].n_options; k++) {
            struct weft_call_plan plan = p->call[i].option[k].plan;
            int32_t n = plan.mesh.n_devices;
            for (plan.mesh.device = 0; plan.mesh.device < p->n_devices;
                 plan.mesh.device += n)
                all = all && count(&p->call[i], &plan) == 1;
        }
    CHECK(p->alike == all && all == has);
}

/* The options of a search for which something is fixed are those of a free one
 * that are so. */
static void check_fixed(const char *layout, bool searches,
                        bool (*is)(const struct weft_flow_call *c,
                                   const struct weft_call_plan *p))
{
    const char *free_word[] = {"train.intra_stage_fusion=true", "plan=auto",
                               "rollout.prompts=8", NULL};
    const char *word[] = {free_word[0], free_word[1], free_word[2], layout,
                          NULL};
    struct finding f[2];
    struct weft_finding at[2];
    struct weft_search_problem p[2];
    for (int k = 0; k < 2; k++) {
        int64_t n = 0;
        open_finding(&f[k], deep_critic, 4, k ? word : free_word);
        REQUIRE_OK(weft_finding_open(&f[k].config, &f[k].needs.plan,
                                     &f[k].find, &at[k], &err),
                   err);
        REQUIRE_OK(weft_finding_place(&at[k], &p[k], &n, &err), err);
    }
    for (int32_t i = 0; i < p[0].n_calls; i++) {
        const struct weft_search_call *all = &p[0].call[i];
        const struct weft_search_call *some = &p[1].call[i];
        const struct weft_flow_call *c =
            &f[0].needs.flow.call[at[0].call_of[i]];
        int32_t n = 0;
        for (int32_t k = 0; k < all->n_options; k++) {
            int32_t found = count(some, &all->option[k].plan);
            CHECK_INT(found, is(c, &all->option[k].plan));
            n += found;
        }
        CHECK(n > 0);
        for (int32_t j = 0; j < some->n_options; j++) {
            CHECK(is(c, &some->option[j].plan));
            CHECK_INT(count(some, &some->option[j].plan), 1);
        }
    }
    check_mirrors(&p[0], true);
    check_mirrors(&p[1], is != halves);
    if (searches)
        check_search(&p[1]);
    for (int k = 0; k < 2; k++) {
        weft_finding_close(&at[k]);
        close_finding(&f[k]);
    }
}

static void test_fixed(void)
{
    check_fixed("layout=zero=1", false, zero_one);
    check_fixed("layout=actor_generate:dp2tp2", false, tp_two);
    check_fixed("layout=pp2,micro_batches=2", true, in_stages);
    check_fixed("layout=ratio=actor:0.5,critic:0.5", true, halves);
}

/* ---- Beside simulations ------------------------------------------------- */

/* Plans with these layouts on two devices take what they do as simulated, but
 * for a share of it. */
static void check_simulated(const char *layout, double share)
{
    const char *const word[] = {"plan=auto",          layout,
                                "ppo.mini_batches=1", "ppo.epochs=1",
                                "rollout.prompts=32", NULL};
    enum { N = 6 };
    static struct weft_drawn drawn[N];
    struct finding f;
    open_finding(&f, deep, 2, word);
    REQUIRE_OK(
        weft_run_draw(&f.config, &f.needs.plan, &f.find, N, drawn, &err),
        err);
    for (int i = 0; i < N; i++) {
        double e = drawn[i].period_s / drawn[i].simulated.iteration_s - 1;
        if (getenv("WEFT_TEST_SHOW"))
            printf("\n%.4g s, %.4g simulated: %.1f %%", drawn[i].period_s,
                   drawn[i].simulated.iteration_s, 100 * e);
        CHECK(fabs(e) < share);
    }
    close_finding(&f);
}

/* The reference infers by a gang of both devices, the critic by a pipeline of
 * two stages: on both devices the gang comes first. */
static void test_gang_and_pipeline(void)
{
    check_simulated("layout=ref_infer:tp2 critic_infer:pp2", 0.05);
}

/* The reference infers on one device: it comes first there, and the other one
 * does the more for the critic. */
static void test_any_device(void)
{
    check_simulated("layout=actor_generate:dp2 ref_infer:dp1 "
                    "critic_infer:dp2 actor_train:dp2 critic_train:dp2",
                    0.005);
}

/* The reference infers by a gang. While its first device packs a micro-batch
 * the other one begins a task of the critic's, for whose end the gang waits. */
static void test_gaps_of_gang(void)
{
    check_simulated("layout=actor_generate:dp2 ref_infer:tp2 "
                    "critic_infer:dp2 actor_train:dp2 critic_train:dp2",
                    0.008);
}

static void test_remove(void)
{
    fixture_remove(&fixture);
}

WEFT_TESTS("run/find_options", {"make", make_runs},
           {"left_out", test_left_out}, {"hpz", test_hpz},
           {"not_priced", test_not_priced}, {"first", test_first},
           {"longest_first", test_longest_first},
           {"pricing_is_over", test_pricing_is_over},
           {"time_is_up", test_time_is_up},
           {"nothing_fits", test_time_is_up_and_nothing_fits},
           {"threads", test_threads}, {"fixed", test_fixed},
           {"gang_and_pipeline", test_gang_and_pipeline},
           {"any_device", test_any_device},
           {"gaps_of_gang", test_gaps_of_gang}, {"remove", test_remove})
