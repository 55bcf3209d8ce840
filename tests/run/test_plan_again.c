/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run that goes on by other plans while it runs: the numbers are those of one
 * device.
 */
#include "run_fixture.h"

#include "job/plan_needs.h"
#include "run/ahead.h"
#include "run/iteration.h"
#include "run/predict/memory.h"

static struct fixture fixture;

/* A layout of all calls. */
struct to {
    const char *layout;
    bool trains_fused, moves; /* intra-stage and inter-stage fusion */
};

static struct weft_err err;

/* The plan of a layout, with its memory and that of going on by it. */
static void make_plan(struct weft_trainer *t, const struct to *to,
                      struct weft_plan *plan)
{
    struct weft_run_needs needs;
    char *before = t->config.layout;
    REQUIRE_OK(weft_run_needs_read(&t->config, t->job.n_ranks,
                                   t->job.n_devices, t->job.n_gpus, &needs,
                                   &err),
               err);
    t->config.layout = (char *) (uintptr_t) to->layout;
    t->config.train.intra_stage_fusion = to->trains_fused;
    REQUIRE_OK(weft_run_plan(&t->config, &needs.plan, plan, &err), err);
    t->config.layout = before;
    t->config.train.intra_stage_fusion = false;
    plan->inter_stage_fusion = to->moves;
    REQUIRE_OK(weft_memory_of_change(t, plan, &err), err);
}

static void change(struct weft_trainer *t, const struct to *to)
{
    struct weft_plan plan;
    bool fits = false;
    make_plan(t, to, &plan);
    REQUIRE_OK(weft_memory_fits(t, &plan, &fits, &err), err);
    REQUIRE(fits);
    REQUIRE_OK(weft_trainer_change_plan(t, &plan, &err), err);
    /* of the plan before nothing is left: no tiles of samples, no schedule */
    CHECK(!t->next);
    REQUIRE((t->fuse != NULL) == to->trains_fused);
}

/* Whether the iteration's plan did what it says, by its metrics; of a schedule
 * there are some from the second iteration on. Whether instances are free
 * before the others depends on when their statuses come. */
static void check_fusion(const struct weft_trainer *t, const struct to *to)
{
    double planned_s = 0, freed = 0;
    bool fused = weft_trainer_metric(t, "schedule/planned_s", &planned_s)
              == 0;
    REQUIRE(weft_trainer_metric(t, "gen/freed_instances", &freed) == 0);
    CHECK(fused == to->trains_fused);
    CHECK(t->plan.inter_stage_fusion == to->moves);
    CHECK(freed == 0 || to->moves);
}

/* No place took more than was predicted, of any class; open tasks are one. */
static void check_memory(struct weft_trainer *t)
{
    REQUIRE_OK(weft_memory_measure(t, &err), err);
    for (int32_t d = 0; d < t->job.n_ranks * t->job.n_devices; d++)
        for (int c = 0; c <= WEFT_MEM_ALL; c++)
            CHECK(t->plan.measured[d][c] <= t->plan.memory[d][c]);
}

/* Goes on by n layouts, one after the other, with so many iterations of each
 * after the first. */
static void change_often(const char *name, const char *const *word,
                         const struct to *to, int n, int steps)
{
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    fixture_steps(t, 1);
    for (int i = 0; i < n; i++) {
        change(t, &to[i]);
        fixture_steps(t, steps);
        if (steps > 1)
            check_fusion(t, &to[i]);
    }
    CHECK(weft_trainer_done(t));
    check_memory(t);
    weft_trainer_close(t);
}

#define LONG "iterations=5", "rollout.prompts=8"
#define STALE "rollout.staleness=1"
/* Published weights are rounded, and the reference keeps masters. */
#define ROUNDED "numerics.dtype=bf16", "reference.every=2"
#define FOUR                                                                 \
    "runtime.devices=4", "runtime.place=device", "runtime.overlap=false"

static void test_make(void)
{
    const char *word[] = {LONG, NULL};
    const char *stale[] = {LONG, STALE, NULL};
    const char *rounded[] = {LONG, ROUNDED, NULL};
    struct weft_trainer *t;
    fixture_make(&fixture);
    t = fixture_open(&fixture, "one", word);
    fixture_steps(t, 5);
    weft_trainer_close(t);
    t = fixture_open(&fixture, "one-stale", stale);
    fixture_steps(t, 5);
    weft_trainer_close(t);
    t = fixture_open(&fixture, "one-rounded", rounded);
    fixture_steps(t, 5);
    weft_trainer_close(t);
}

/* A tied model: other dp, tp, pp, ZeRO, and meshes. */
static void test_layouts(void)
{
    static const struct to to[] = {{.layout = "tp2dp2,zero=3"},
                                   {.layout = "pp2dp2,micro_batches=2"},
                                   {.layout = "disaggregated"},
                                   {.layout = "tp4,recompute"}};
    const char *word[] = {LONG, FOUR, "layout=dp4,zero=1", NULL};
    change_often("layouts", word, to, 4, 1);
    CHECK(weft_hash_equal(fixture_hash(&fixture, "one", 5),
                          fixture_hash(&fixture, "layouts", 5)));
}

static void test_rounded(void)
{
    static const struct to to[] = {{.layout = "dp2tp2,zero=2,offload"},
                                   {.layout = "interleave-2"},
                                   {.layout = "pp2,offload"},
                                   {.layout = "dp4,zero=3"}};
    const char *word[] = {LONG, ROUNDED, FOUR, "layout=tp2pp2", NULL};
    change_often("rounded", word, to, 4, 1);
    CHECK(weft_hash_equal(fixture_hash(&fixture, "one-rounded", 5),
                          fixture_hash(&fixture, "rounded", 5)));
}

/* Models begin to train under one schedule, samples to move, and no more. */
static void test_fusion(void)
{
    static const struct to to[] = {
        {.layout = "dp2pp2,micro_batches=2", .trains_fused = true},
        {.layout = "dp4", .moves = true},
        {.layout = "dp2pp2,micro_batches=2", true, true},
        {.layout = "tp2dp2"}};
    const char *one[] = {"iterations=9", "rollout.prompts=8", NULL};
    const char *word[] = {"iterations=9", "rollout.prompts=8",      FOUR,
                          "layout=tp4",   "rollout.chunk_tokens=1", NULL};
    struct weft_trainer *t = fixture_open(&fixture, "one-longer", one);
    fixture_steps(t, 9);
    weft_trainer_close(t);
    change_often("fusion", word, to, 4, 2);
    CHECK(weft_hash_equal(fixture_hash(&fixture, "one-longer", 9),
                          fixture_hash(&fixture, "fusion", 9)));
}

/* The same while the next iteration's samples have been generated, with weights
 * from before the last update. */
static void test_stale(void)
{
    static const struct to to[] = {
        {.layout = "disaggregated"},
        {.layout = "dp4", .moves = true},
        {.layout = "dp2pp2,micro_batches=2", .trains_fused = true},
        {.layout = "interleave-2"}};
    const char *word[] = {LONG, STALE, FOUR, "layout=tp2dp2,zero=2", NULL};
    struct weft_trainer *t = fixture_open(&fixture, "stale", word);
    for (int i = 0; i < 4; i++) {
        double stale = -1;
        fixture_steps(t, 1);
        REQUIRE(weft_trainer_metric(t, "gen/staleness", &stale) == 0);
        CHECK(stale == (i > 0));
        REQUIRE(t->next != NULL);
        int32_t n = t->next->n_all;
        change(t, &to[i]);
        REQUIRE(t->ahead != NULL);
        CHECK_INT(t->ahead->n, n);
    }
    fixture_steps(t, 4);
    check_memory(t);
    weft_trainer_close(t);
    CHECK(weft_hash_equal(fixture_hash(&fixture, "one-stale", 5),
                          fixture_hash(&fixture, "stale", 5)));
    CHECK(!weft_hash_equal(fixture_hash(&fixture, "one", 5),
                           fixture_hash(&fixture, "one-stale", 5)));
}

/* Of a run that changes back and forth only two plans' models are there at a
 * time. */
static void test_memory(void)
{
    static const struct to to[] = {{.layout = "dp4,zero=1"},
                                   {.layout = "tp4"}};
    const char *word[] = {LONG, FOUR, "layout=tp4", NULL};
    struct weft_trainer *t = fixture_open(&fixture, "memory", word);
    int64_t first[4];
    for (int i = 0; i < 6; i++) {
        change(t, &to[i % 2]);
        for (int32_t d = 0; d < 4; d++) {
            int64_t all = t->plan.memory[d][WEFT_MEM_ALL];
            first[d] = i < 1 ? all : first[d];
            CHECK_INT(all, first[d]);
        }
    }
    weft_trainer_close(t);
}

/* The checkpoint after a change is that of any run. */
static void test_resumed(void)
{
    static const struct to to = {.layout = "tp2dp2,zero=1"};
    const char *word[] = {LONG, FOUR, "layout=pp2", "checkpoint.every=1",
                          NULL};
    struct weft_trainer *t = fixture_open(&fixture, "resumed", word);
    fixture_steps(t, 1);
    change(t, &to);
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
           {"test_fusion", test_fusion}, {"test_stale", test_stale},
           {"test_memory", test_memory}, {"test_resumed", test_resumed},
           {"remove", test_remove})
