/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the controller of generation and the dealing of inference do for each
 * chunk grows neither with instances nor with tokens: their basic blocks are
 * counted in recordings of few and of many instances, with as many samples for
 * each, of the same lengths; and of few with chunks and samples that are
 * several times as long.
 */
#include "count_blocks.h"
#include "described_run.h"
#include "second_costs.h"

enum { FEW = 16, MANY = 128, EACH = 4, LONGEST = 60, CHUNK = 4, LONGER = 8 };

static struct fixture fixture;
static struct weft_err err;

static void setup(void)
{
    struct weft_init_options o = fixture_model();
    o.max_positions = 1024;
    fixture_make(&fixture);
    fixture_init_model(&fixture, "long", &o);
}

static void teardown(void)
{
    fixture_remove(&fixture);
}

/* A long tail, of most lengths below. */
static int32_t length_of(int i)
{
    return i % (5 * EACH) == 0 ? LONGEST : 1 + i * 7 % 19;
}

/* The instances' statuses in turn, as long as any sample is. */
static void list_order(const struct weft_trainer *t, int n_samples,
                       struct weft_rollout_order *out)
{
    int32_t call = weft_flow_call_of(&t->flow, WEFT_GENERATE, -1);
    int n_instances = weft_g_generate_instances(&t->layout[call], n_samples);
    *out = (struct weft_rollout_order){.follows = true};
    for (int i = 0; i < 8 * EACH * LONGEST * n_instances; i++)
        REQUIRE_OK(weft_rollout_order_add(out, i % n_instances, &err), err);
}

/* Blocks of each chunk. layout: of n_devices, to be filled in; times: as many
 * tokens of a chunk and of a response as else; more: words, NULL at their
 * end. */
static double count(int n_devices, int times, const char *layout, bool costs,
                    const char *const *more)
{
    static const char *const role[] = {"actor", "critic", "reference"};
    const struct weft_g_job job = {1, n_devices, true, 0, false};
    int n_samples = EACH * n_devices, n = 12, n_chunks = 0;
    char text[5][64], model[3][300];
    const char *word[20] = {model[0],
                            model[1],
                            model[2],
                            "data.shuffle=false",
                            "runtime.overlap=false",
                            "train.micro_batch_tokens=1",
                            "rollout.slots=4",
                            text[0],
                            text[1],
                            text[2],
                            text[3],
                            text[4]};
    struct described_run d;
    struct weft_cluster cluster;
    struct weft_rollout_order order;
    int32_t n_total[EACH * MANY];
    for (int i = 0; i < 3; i++)
        snprintf(model[i], sizeof model[i], "model.%s=%s/long", role[i],
                 fixture.dir);
    snprintf(text[0], sizeof text[0], layout, n_devices);
    snprintf(text[1], sizeof text[1], "rollout.prompts=%d", n_samples / 2);
    snprintf(text[2], sizeof text[2], "numerics.gradient_groups=%d",
             n_devices);
    snprintf(text[3], sizeof text[3], "rollout.max_new_tokens=%d",
             times * LONGEST);
    snprintf(text[4], sizeof text[4], "rollout.chunk_tokens=%d",
             times * CHUNK);
    while (*more)
        word[n++] = *more++;
    describe_run(&fixture, &job, n, word, &d);
    for (int i = 0; i < n_samples; i++)
        n_total[i] = times * length_of(i);
    list_order(d.t, n_samples, &order);
    const struct weft_recorded how = {
        .rank = -1,
        .iterations = 1,
        .n_total = n_total,
        .order = &order,
        .n_orders = 1,
        .responses = true,
        .costs = costs ? second_costs(&job, &cluster) : NULL};
    long long n_before = count_blocks;
    REQUIRE_OK(weft_run_record(d.t, &how, &d.r, &err), err);
    long long n_blocks = count_blocks - n_before;
    for (int64_t i = 0; i < d.r.n_tasks; i++)
        n_chunks += strcmp(weft_recording_op(&d.r, i), "gen_chunk") == 0;
    printf("%d devices, %d times: %lld blocks, %d chunks\n", n_devices, times,
           n_blocks, n_chunks);
    weft_rollout_order_release(&order);
    forget_run(&d);
    return (double) n_blocks / n_chunks;
}

/* What finds the first of many takes a logarithm of them. */
static void compare(const char *layout, bool costs, const char *const *more)
{
    double few = count(FEW, 1, layout, costs, more);
    CHECK(few > 0);
    CHECK(count(MANY, 1, layout, costs, more) < 1.25 * few);
    CHECK(count(FEW, LONGER, layout, costs, more) < 1.05 * few);
}

static void test_costs(void)
{
    static const char *const more[] = {"rollout.inter_stage_fusion=true",
                                       NULL};
    compare("layout=dp%d", true, more);
}

static void test_moves(void)
{
    static const char *const more[] = {"rollout.inter_stage_fusion=true",
                                       "rollout.remaining=0.3", NULL};
    compare("layout=dp%d", false, more);
}

static void test_as_completed(void)
{
    static const char *const more[] = {
        "train.as_completed=true", "ppo.whiten_advantages=false",
        "ppo.mini_batches=8", "reward=[{type: length, target: 4}]", NULL};
    compare("layout=disaggregated", false, more);
}

WEFT_TESTS("run/control", {"setup", setup}, {"test_costs", test_costs},
           {"test_moves", test_moves},
           {"test_as_completed", test_as_completed}, {"teardown", teardown})
