/* SPDX-License-Identifier: Apache-2.0 */
/* Every strategy known by name trains what one device trains. */
#include "run_fixture.h"

#include <stdatomic.h>

#include "plan/strategy.h"

static struct fixture fixture;
static char reward[600];

static struct weft_hash run(const char *name, const char *devices,
                            const char *strategy)
{
    char layout[100];
    const char *word[] = {reward,
                          "iterations=2",
                          "rollout.prompts=8",
                          "numerics.gradient_groups=8",
                          "runtime.place=device",
                          devices,
                          layout,
                          NULL};
    snprintf(layout, sizeof layout, "layout=%s", strategy);
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    fixture_steps(t, 2);
    weft_trainer_close(t);
    return fixture_hash(&fixture, name, 2);
}

static void same(const struct weft_hash *one, const char *strategy, int n)
{
    char devices[40], name[120];
    snprintf(devices, sizeof devices, "runtime.devices=%d", n);
    snprintf(name, sizeof name, "%.20s-%d", strategy, n);
    struct weft_hash h = run(name, devices, strategy);
    if (!weft_hash_equal(*one, h))
        printf("\n    %s on %d devices differs\n", strategy, n);
    CHECK(weft_hash_equal(*one, h));
}

static void test_strategies(void)
{
    struct weft_init_options judge = fixture_model();
    judge.scalar_head = true;
    judge.tied = false;
    fixture_init_model(&fixture, "judge", &judge);
    snprintf(reward, sizeof reward,
             "reward=[{type: model, model: \"%s/judge\"}]", fixture.dir);
    struct weft_hash one = run("one", "runtime.devices=1", "dp1");
    const char *name;
    for (int32_t i = 0; (name = weft_strategy_name(i, NULL)); i++)
        for (int n = 2; n <= 8; n *= 2)
            same(&one, weft_strategy_is_divided(name) ? "rlinf=9:1:9" : name,
                 n);
    same(&one, "rlinf=9:9:9", 2); /* takes turns */
    same(&one, "\"ratio=actor:1,critic:0.5,ref:0.5,reward:0.2\"", 8);
}

/* ---- A plan that is found ----------------------------------------------- */

static const char cluster[] =
    "name: two\nkinds: [{name: node, nodes: 1, devices: 2, memory_gib: 1, "
    "tflops: {f32: 0.01}, memory_gbs: 10, task_us: 3, "
    "inside: {gbs: 5, us: 1}}]\n";

/* Asked so often; from the last of these times on it says yes. */
static atomic_int n_asked;
static int yes_from;
static bool searching;

static bool stop(void *ctx)
{
    CHECK(ctx == &n_asked);
    return atomic_fetch_add(&n_asked, 1) + 1 >= yes_from;
}

static void searches(bool begins)
{
    CHECK(searching != begins);
    searching = begins;
}

/* A run that is ended while a plan is searched for it, from the time on that it
 * asks whether it is to be: it asks again, ends, and leaves nothing. */
static void check_ended(int from)
{
    static const struct weft_trainer_opening opening = {
        .searches = searches, .stop = stop, .ctx = &n_asked};
    char costs[600], run[600];
    struct weft_trainer *t = NULL;
    struct weft_err err;
    snprintf(costs, sizeof costs, "cluster=%s/cluster.yaml", fixture.dir);
    snprintf(run, sizeof run, "run_dir=%s/ended", fixture.dir);
    const char *word[] = {run, "plan=auto", "runtime.place=device",
                          "runtime.devices=2", costs};
    n_asked = 0;
    yes_from = from;
    CHECK_FAILS(weft_trainer_open_with(fixture.config, WEFT_COUNT(word), word,
                                       &opening, &t, &err),
                WEFT_EINTERRUPTED, err, "stopped while it searched");
    CHECK(n_asked > from && n_asked < from + 20);
    /* nobody is told of an end, as another rank may get its signal later */
    CHECK(searching && !weft_file_exists(run + strlen("run_dir=")));
    searching = false;
}

/* n iterations of two of a run with plan: auto; its plan, to be released. */
static struct weft_plan run_found(const char *name, const char *devices,
                                  int n)
{
    char costs[600], path[600];
    struct weft_plan plan;
    struct weft_err err;
    snprintf(costs, sizeof costs, "cluster=%s/cluster.yaml", fixture.dir);
    const char *word[] = {reward,
                          "iterations=2",
                          "rollout.prompts=8",
                          "numerics.gradient_groups=8",
                          "runtime.place=device",
                          "checkpoint.every=1",
                          "plan=auto",
                          devices,
                          costs,
                          NULL};
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    fixture_steps(t, n);
    weft_trainer_close(t);
    snprintf(path, sizeof path, "%s/%s/plan.json", fixture.dir, name);
    REQUIRE_OK(weft_plan_read(path, NULL, &plan, &err), err);
    return plan;
}

/* Writes a plan of one device for the calls of another. */
static void write_other(const char *name, struct weft_plan *plan)
{
    struct weft_err err;
    char path[600];
    for (int32_t c = 1; c < plan->flow.n_calls; c++)
        if (plan->call[c].dp > 0)
            plan->call[c] = (struct weft_call_plan){
                .mesh = {0, 1, 1, 1}, .dp = 1, .tp = 1, .pp = 1};
    snprintf(path, sizeof path, "%s/%s/plan.json", fixture.dir, name);
    REQUIRE_OK(weft_plan_write(plan, path, &err), err);
}

static bool same_calls(const struct weft_plan *a, const struct weft_plan *b)
{
    return memcmp(a->call, b->call, sizeof a->call) == 0;
}

/* The same numbers as any plan's, the same plan each time; a run that resumes
 * keeps the one that it had, whatever a search would find, unless its devices
 * are others. */
static void test_found(void)
{
    char path[600];
    struct weft_err err;
    snprintf(path, sizeof path, "%s/cluster.yaml", fixture.dir);
    REQUIRE_OK(weft_file_write(path, cluster, sizeof cluster - 1, &err), err);
    struct weft_hash one = fixture_hash(&fixture, "one", 2);
    for (int from = 1; from < 100; from = 3 * from)
        check_ended(from);
    struct weft_plan a = run_found("found", "runtime.devices=2", 2);
    CHECK(weft_hash_equal(one, fixture_hash(&fixture, "found", 2)));
    CHECK(a.predicted_s.iteration_s > 0);
    struct weft_plan b = run_found("again", "runtime.devices=2", 1);
    CHECK(same_calls(&a, &b));
    write_other("again", &b);
    struct weft_plan c = run_found("again", "runtime.devices=2", 1);
    CHECK(same_calls(&b, &c) && !same_calls(&a, &c));
    CHECK(weft_hash_equal(one, fixture_hash(&fixture, "again", 2)));
    struct weft_plan d = run_found("fewer", "runtime.devices=2", 1);
    weft_plan_release(&d);
    d = run_found("fewer", "runtime.devices=1", 1);
    CHECK_INT(d.n_devices, 1);
    CHECK(weft_hash_equal(one, fixture_hash(&fixture, "fewer", 2)));
    weft_plan_release(&a);
    weft_plan_release(&b);
    weft_plan_release(&c);
    weft_plan_release(&d);
}

static void test_make(void)
{
    fixture_make(&fixture);
}

static void test_remove(void)
{
    fixture_remove(&fixture);
}

WEFT_TESTS("run/strategies", {"make", test_make},
           {"test_strategies", test_strategies}, {"test_found", test_found},
           {"remove", test_remove})
