/* SPDX-License-Identifier: Apache-2.0 */
/* Every strategy known by name trains what one device trains. */
#include "run_fixture.h"

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
        same(&one, name, 8);
    same(&one, "openrlhf", 2); /* parts share devices */
    same(&one, "disaggregated", 4);
    same(&one, "\"ratio=actor:1,critic:0.5,ref:0.5,reward:0.2\"", 8);
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
           {"test_strategies", test_strategies}, {"remove", test_remove})
