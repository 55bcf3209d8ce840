/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A search whose restarts all ranks do: what one process finds, also after one
 * of them had no memory or was to stop. A job of one does them itself;
 * spread_ranks.sh runs it under mpirun.
 */
#include "plan/search_by_hand.h"

#include <sched.h>

#include "rt/graph.h"
#include "run/predict/moving.h"
#include "run/predict/spread.h"

/* No test waits for so many. */
#define NO_END ((int64_t) 1 << 50)

static const char *const yaml =
    "name: two\n"
    "kinds: [{name: node, nodes: 2, devices: 4, memory_gib: 1,\n"
    "  tflops: {f32: 1}, memory_gbs: 1, task_us: 1,\n"
    "  inside: {gbs: 4, us: 1}, network: {rails: 1, gbs: 1, us: 1}}]\n";

static struct weft_cluster cluster;
static struct weft_shape shape[3];
static struct weft_moving moving;
static struct weft_search *s;
static struct weft_err err;

/* Rank 0 alone has a problem, with weights that take part of a second to
 * move. */
static void begin(uint32_t seed)
{
    state = seed;
    set_calls();
    for (int32_t c = 0; c < p.n_calls; c++)
        for (int32_t i = 0; i < OPTIONS; i++) {
            struct weft_mesh m = {(int32_t) rnd(2), 1, 0, 4 >> rnd(2)};
            if (rnd(3) == 0)
                m = (struct weft_mesh){0, 2, 0, 4};
            add(c, m, 1 + rnd(90) / 10.0, rnd(20), rnd(20), rnd(10));
            if (rnd(2))
                option[c][i].plan.zero = 3;
        }
    REQUIRE_OK(weft_cluster_parse(yaml, strlen(yaml), "two", &cluster, &err),
               err);
    moving = (struct weft_moving){.n_nodes = 2, .cluster = &cluster};
    for (int32_t r = 0; r < 3; r++) {
        shape[r] = (struct weft_shape){.hidden = 1024,
                                       .n_layers = 8 + 4 * r,
                                       .n_heads = 8,
                                       .n_kv_heads = 8,
                                       .head_dim = 128,
                                       .intermediate = 4096,
                                       .vocab = 30000,
                                       .dtype = WEFT_F32};
        moving.shape[r] = &shape[r];
    }
    p.move = weft_moving_s;
    p.ctx = &moving;
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
}

static struct weft_search_how how_of(int32_t restarts)
{
    return (struct weft_search_how){.seed = 5,
                                    .evaluations = 80000,
                                    .restarts = restarts,
                                    .n_threads = 2};
}

static bool same(const struct weft_search_result *a,
                 const struct weft_search_result *b)
{
    return memcmp(a->choice, b->choice, sizeof a->choice) == 0
        && a->value.period == b->value.period
        && a->evaluations == b->evaluations
        && a->n_finalists == b->n_finalists
        && memcmp(a->finalist, b->finalist,
                  (size_t) a->n_finalists * sizeof a->finalist[0])
               == 0
        && a->stopped == b->stopped;
}

/* Rank 0 searches alone, and with all. */
static void check_same(int32_t restarts)
{
    struct weft_search_how how = how_of(restarts);
    struct weft_search_result alone, r;
    REQUIRE_OK(weft_search_run(s, &how, &alone, &err), err);
    how.spread = weft_spread_restarts;
    int64_t before = weft_world_n_collectives();
    REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
    int64_t n = weft_world_n_collectives() - before;
    CHECK(same(&alone, &r));
    CHECK(alone.n_finalists > 1 && alone.evaluations > 80000 - restarts);
    /* the order, twice that all can follow it, the options, the results; of an
     * eighth of the evaluations and of all */
    CHECK_INT(n, weft_world_size() > 1 ? 2 * (4 + restarts) : 0);
}

static void test_same(void)
{
    static const int32_t restarts[] = {1, 2, 4, 7};
    for (uint32_t seed = 1; seed <= 3; seed++) {
        if (weft_world_rank() > 0) {
            weft_spread_serve(NULL, NULL);
            continue;
        }
        begin(seed);
        for (size_t i = 0; i < WEFT_COUNT(restarts); i++)
            check_same(restarts[i]);
        weft_search_free(s);
        weft_spread_end();
    }
}

/* Fewer evaluations than it takes to tell the others stay on rank 0. */
static void test_few(void)
{
    struct weft_search_how how = how_of(4);
    struct weft_search_result alone, r;
    how.evaluations = 9999;
    if (weft_world_rank() > 0) {
        weft_spread_serve(NULL, NULL);
        return;
    }
    begin(4);
    REQUIRE_OK(weft_search_run(s, &how, &alone, &err), err);
    how.spread = weft_spread_restarts;
    int64_t before = weft_world_n_collectives();
    REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
    CHECK(weft_world_n_collectives() == before && same(&alone, &r));
    weft_search_free(s);
    weft_spread_end();
}

/* Others have no room for so many results; rank 0, which is given that, is told
 * so, and all go on. */
static void test_no_memory(void)
{
    struct weft_search_how how = how_of(INT32_MAX);
    struct weft_search_result best = {.n_finalists = 0}, own[1];
    if (weft_world_size() == 1)
        return;
    if (weft_world_rank() > 0) {
        weft_spread_serve(NULL, NULL);
        return;
    }
    begin(1);
    CHECK_FAILS(weft_spread_restarts(s, &how, &best, own, &err), WEFT_ENOMEM,
                err, "rank 1: ");
    check_same(4);
    weft_search_free(s);
    weft_spread_end();
}

/* Whether this rank has come so far. */
static bool has_come(void *ctx)
{
    return weft_world_n_collectives() >= *(int64_t *) ctx;
}

/* One rank is to stop, at once or when its restarts have begun, or those of
 * others, if it has none: all do, and what was found by then is there.
 * Afterwards nobody is to stop. */
static void check_stop(int rank, bool at_once, int32_t restarts)
{
    struct weft_search_how how = how_of(restarts);
    struct weft_search_result r;
    int64_t come = weft_world_n_collectives() + 4; /* as in check_same() */
    if (at_once || weft_world_size() == 1)
        come = 0;
    how.evaluations = NO_END;
    how.stop = weft_world_rank() == rank ? has_come : NULL;
    how.ctx = &come;
    how.spread = weft_spread_restarts;
    if (weft_world_rank() > 0) {
        weft_spread_serve(how.stop, how.ctx);
        weft_spread_serve(NULL, NULL);
        return;
    }
    begin(1);
    while (at_once && rank > 0 && !weft_spread_stopped())
        sched_yield(); /* it tells so without an order, too */
    REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
    CHECK(r.stopped && r.value.period < INFINITY && r.n_finalists > 0);
    CHECK(rank == 0 || weft_spread_stopped());
    weft_spread_end();
    CHECK(!weft_spread_stopped());
    check_same(4);
    weft_search_free(s);
    weft_spread_end();
}

static void test_stop(void)
{
    for (int rank = 0; rank < weft_world_size(); rank++)
        for (int32_t restarts = 1; restarts <= 4; restarts += 3) {
            check_stop(rank, true, restarts);
            check_stop(rank, false, restarts);
        }
}

int main(void)
{
    static const struct weft_test tests[] = {
        {"test_same", test_same},
        {"test_few", test_few},
        {"test_no_memory", test_no_memory},
        {"test_stop", test_stop}};
    struct weft_err why;
    if (weft_world_open(&why)) {
        fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    int status = weft_test_main("run/spread", tests, WEFT_COUNT(tests));
    status = (int) weft_world_max(status);
    weft_world_close();
    return status;
}
