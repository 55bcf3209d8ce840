/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run that goes on by other plans while it runs: the numbers are those of one
 * device.
 */
#include "run_fixture.h"

#include "job/plan_needs.h"
#include "run/predict/memory.h"

static struct fixture fixture;

/* Goes on by another layout of all calls. */
static void change(struct weft_trainer *t, const char *layout)
{
    struct weft_run_needs needs;
    struct weft_plan plan;
    struct weft_err err;
    char *before = t->config.layout;
    REQUIRE_OK(weft_run_needs_read(&t->config, t->job.n_ranks,
                                   t->job.n_devices, t->job.n_gpus, &needs,
                                   &err),
               err);
    t->config.layout = (char *) (uintptr_t) layout;
    REQUIRE_OK(weft_run_plan(&t->config, &needs.plan, &plan, &err), err);
    t->config.layout = before;
    bool gangs = false;
    REQUIRE_OK(weft_trainer_predict(&t->config, &t->job, &gangs, INT64_MAX,
                                    &plan, &err),
               err);
    weft_memory_join(t, &plan);
    bool fits = false;
    REQUIRE_OK(weft_memory_fits(t, &plan, &fits, &err), err);
    REQUIRE(fits);
    REQUIRE_OK(weft_trainer_change_plan(t, &plan, &err), err);
}

/* All the run's layouts, one after the other, and back to the first. */
static void change_often(const char *name, const char *const *word,
                         const char *const *layout, int n)
{
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    for (int i = 0; i < n; i++) {
        fixture_steps(t, 1);
        change(t, layout[i]);
    }
    fixture_steps(t, n);
    weft_trainer_close(t);
}

#define LONG "iterations=5", "rollout.prompts=8"
/* Published weights are rounded, and the reference keeps masters. */
#define ROUNDED "numerics.dtype=bf16", "reference.every=2"
#define FOUR                                                                 \
    "runtime.devices=4", "runtime.place=device", "runtime.overlap=false"

static void test_make(void)
{
    const char *word[] = {LONG, NULL};
    const char *rounded[] = {LONG, ROUNDED, NULL};
    struct weft_trainer *t;
    fixture_make(&fixture);
    t = fixture_open(&fixture, "one", word);
    fixture_steps(t, 5);
    weft_trainer_close(t);
    t = fixture_open(&fixture, "one-rounded", rounded);
    fixture_steps(t, 5);
    weft_trainer_close(t);
}

/* A tied model: other dp, tp, pp, ZeRO, and meshes. */
static void test_layouts(void)
{
    static const char *const to[] = {"tp2dp2,zero=3",
                                     "pp2dp2,micro_batches=2",
                                     "disaggregated", "tp4,recompute"};
    const char *word[] = {LONG, FOUR, "layout=dp4,zero=1", NULL};
    change_often("layouts", word, to, 4);
    CHECK(weft_hash_equal(fixture_hash(&fixture, "one", 5),
                          fixture_hash(&fixture, "layouts", 5)));
}

static void test_rounded(void)
{
    static const char *const to[] = {"dp2tp2,zero=2,offload", "interleave-2",
                                     "pp2,offload", "dp4,zero=3"};
    const char *word[] = {LONG, ROUNDED, FOUR, "layout=tp2pp2", NULL};
    change_often("rounded", word, to, 4);
    CHECK(weft_hash_equal(fixture_hash(&fixture, "one-rounded", 5),
                          fixture_hash(&fixture, "rounded", 5)));
}

/* The checkpoint after a change is that of any run. */
static void test_resumed(void)
{
    static const char *const to[] = {"tp2dp2,zero=1"};
    const char *word[] = {LONG, FOUR, "layout=pp2", "checkpoint.every=1",
                          NULL};
    struct weft_trainer *t = fixture_open(&fixture, "resumed", word);
    fixture_steps(t, 1);
    change(t, to[0]);
    fixture_steps(t, 1);
    weft_trainer_close(t);
    t = fixture_open(&fixture, "resumed", word);
    CHECK_INT(weft_trainer_iteration(t), 2);
    fixture_steps(t, 5);
    weft_trainer_close(t);
    CHECK(weft_hash_equal(fixture_hash(&fixture, "one", 5),
                          fixture_hash(&fixture, "resumed", 5)));
}

static void test_remove(void)
{
    fixture_remove(&fixture);
}

WEFT_TESTS("run/plan_again", {"make", test_make},
           {"test_layouts", test_layouts}, {"test_rounded", test_rounded},
           {"test_resumed", test_resumed}, {"remove", test_remove})
