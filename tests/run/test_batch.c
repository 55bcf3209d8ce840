/* SPDX-License-Identifier: Apache-2.0 */
/* The largest batch, against trying one after the other. */
#include "job/plan_needs.h"
#include "job/run_config.h"

#include "run_fixture.h"

#include "base/alloc.h"
#include "run/predict/batch.h"

static struct fixture fixture;
static struct weft_err err;
static struct weft_config config;
static struct weft_run_needs needs;
static struct weft_plan plan;

static void describe(const char *layout, const char *word)
{
    const char *words[] = {layout, "runtime.place=device",
                           "numerics.gradient_groups=2", word};
    REQUIRE_OK(weft_run_config_read(fixture.config, word ? 4 : 3, words,
                                    &config, &err),
               err);
    REQUIRE_OK(weft_run_needs_read(&config, 1, 2, 0, &needs, &err), err);
    REQUIRE_OK(weft_run_plan(&config, &needs.plan, &plan, &err), err);
}

static void forget(void)
{
    weft_plan_release(&plan);
    plan = (struct weft_plan){0};
    weft_config_release(&config);
}

/* Bytes of the fullest of two devices with n prompts, none of whose samples
 * are cut. */
static double bytes_of(int32_t n)
{
    struct weft_config c = config;
    struct weft_g_job job = {1, 2, true, 0, false};
    struct weft_plan p = plan;
    p.memory = NULL;
    c.rollout.prompts = n;
    c.rollout.slots = n * c.rollout.samples_per_prompt;
    c.train.micro_batch_tokens = 1000 * n;
    bool gangs = false;
    REQUIRE_OK(weft_trainer_predict(&c, &job, &gangs, 0, &p, &err), err);
    double a = (double) p.memory[0][WEFT_MEM_ALL];
    double b = (double) p.memory[1][WEFT_MEM_ALL];
    weft_free(p.memory);
    return a > b ? a : b;
}

/* Finds it where a device has 95 % of what `want` prompts take, and a bit. */
static void check(int32_t want)
{
    struct weft_largest_batch b;
    double device = (bytes_of(want) + 1) / WEFT_BATCH_SHARE;
    int32_t n = 0;
    REQUIRE_OK(
        weft_run_largest_batch(&config, device, false, &plan, &b, &err), err);
    for (int32_t i = 1; i <= want + 3; i++)
        if (bytes_of(i) <= WEFT_BATCH_SHARE * device)
            n = i;
    CHECK_INT(b.n, n);
    CHECK_INT(b.n, want);
    CHECK(b.bytes <= bytes_of(n) && b.bytes >= bytes_of(n));
    CHECK(b.more_bytes > WEFT_BATCH_SHARE * device);
    CHECK(b.more_bytes <= bytes_of(n + 1) && b.more_bytes >= bytes_of(n + 1));
    CHECK_INT(b.samples, 2 * n);
    CHECK(plan.memory != NULL);
}

static void test_batch_scan(void)
{
    describe("layout=dp2", NULL);
    for (int32_t n = 1; n <= 9; n++)
        check(n);
    struct weft_largest_batch b;
    REQUIRE_OK(weft_run_largest_batch(&config, bytes_of(7) / 0.95 + 1, false,
                                      &plan, &b, &err),
               err);
    CHECK_INT(b.slots, 7);       /* of two instances */
    CHECK_INT(b.micro_batch, 4); /* 14 samples, 2 mini-batches, 2 groups */
    forget();
    describe("layout=tp2", "train.zero=1");
    check(6);
    forget();
}

/* The smallest is too large, or there is no end. */
static void test_batch_ends(void)
{
    struct weft_largest_batch b;
    struct weft_string text = {0};
    describe("layout=dp2", NULL);
    REQUIRE_OK(
        weft_run_largest_batch(&config, bytes_of(1), false, &plan, &b, &err),
        err);
    CHECK_INT(b.n, 0);
    CHECK(b.bytes > 0 && b.more_bytes > 0);
    REQUIRE_OK(weft_batch_text(&b, bytes_of(1), &text, &err), err);
    CHECK(strstr(text.data, "no batch fits: the smallest takes") != NULL);
    CHECK(strstr(text.data, "of which a batch may take 95 %\n") != NULL);
    weft_string_release(&text);
    forget();
}

/* Where tasks one by one take too much, memory is that of instructions: no
 * less, but for their records. */
static void test_predict_limit(void)
{
    static const struct weft_g_job job = {1, 2, true, 0, false};
    describe("layout=tp2", NULL);
    struct weft_plan by_task = plan, limited = plan, by_gang = plan;
    bool gangs[] = {false, false, true};
    by_task.memory = limited.memory = by_gang.memory = NULL;
    REQUIRE_OK(
        weft_trainer_predict(&config, &job, &gangs[0], 0, &by_task, &err),
        err);
    REQUIRE_OK(weft_trainer_predict(&config, &job, &gangs[1], 100000,
                                    &limited, &err),
               err);
    REQUIRE_OK(
        weft_trainer_predict(&config, &job, &gangs[2], 0, &by_gang, &err),
        err);
    CHECK(!gangs[0] && gangs[1] && gangs[2]);
    for (int d = 0; d < 2; d++) {
        for (int c = 0; c < WEFT_MEM_TASKS; c++)
            CHECK(limited.memory[d][c] >= by_task.memory[d][c]);
        CHECK(memcmp(limited.memory[d], by_gang.memory[d],
                     sizeof limited.memory[d])
              == 0);
    }
    weft_free(by_task.memory);
    weft_free(limited.memory);
    weft_free(by_gang.memory);
    forget();
}

static void test_make(void)
{
    fixture_make(&fixture);
}

static void test_remove(void)
{
    fixture_remove(&fixture);
}

WEFT_TESTS("run/batch", {"make", test_make}, {"scan", test_batch_scan},
           {"ends", test_batch_ends}, {"predict_limit", test_predict_limit},
           {"remove", test_remove})
