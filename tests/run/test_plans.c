/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs on plans give the checkpoints of one device: every call on a layout of
 * its own, ZeRO, offload, several reward models, warm-up of the critic, SFT;
 * and a run goes on from a checkpoint on another plan.
 */
#include "run_fixture.h"

static struct fixture fixture;

/* All calls on the whole mesh. */
static const struct fixture_call wide[] = {
    {"actor_generate", 0, 8, 2, 2, 2, NULL},
    {"ref_infer", 0, 8, 2, 4, 1, ", \"micro_batches\": 2"},
    {"reward_infer", 0, 8, 4, 2, 1, NULL},
    {"reward_2_infer", 0, 8, 1, 2, 4, NULL},
    {"critic_infer", 0, 8, 8, 1, 1, NULL},
    {"actor_train", 0, 8, 1, 4, 2, ", \"recompute\": true"},
    {"critic_train", 0, 8, 4, 1, 2, ", \"zero\": 3"},
    {0}};
/* Actor and critic apart, as disaggregated systems have them. */
static const struct fixture_call apart[] = {
    {"actor_generate", 0, 4, 1, 4, 1, NULL},
    {"ref_infer", 4, 2, 1, 1, 2, ", \"offload\": true"},
    {"reward_infer", 6, 2, 1, 2, 1, ", \"offload\": true"},
    {"reward_2_infer", 4, 4, 2, 2, 1, ", \"offload\": true"},
    {"critic_infer", 4, 4, 1, 2, 2, ", \"micro_batches\": 3"},
    {"actor_train", 0, 4, 2, 1, 2, ", \"zero\": 2, \"micro_batches\": 2"},
    {"critic_train", 4, 4, 2, 2, 1, ", \"zero\": 1, \"recompute\": true"},
    {0}};
/* Overlapping in part; a single device for some. */
static const struct fixture_call mixed[] = {
    {"actor_generate", 0, 8, 8, 1, 1, NULL},
    {"ref_infer", 7, 1, 1, 1, 1, NULL},
    {"reward_infer", 2, 2, 2, 1, 1, NULL},
    {"reward_2_infer", 5, 1, 1, 1, 1, NULL},
    {"critic_infer", 4, 2, 1, 2, 1, NULL},
    {"actor_train", 0, 4, 1, 2, 2, ", \"zero\": 3, \"micro_batches\": 3"},
    {"critic_train", 2, 2, 1, 1, 2, NULL},
    {0}};

/* A run of three iterations; words: NULL at their end. */
static struct weft_hash run(const char *name, const char *a, const char *b,
                            const char *c, const char *d)
{
    const char *word[] = {a, b, c, d, NULL};
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    fixture_steps(t, 3);
    weft_trainer_close(t);
    return fixture_hash(&fixture, name, 3);
}

static void same_on_plans(const char *name, const char *option,
                          const char *dtype)
{
    static const char *const where[] = {"runtime.place=device",
                                        "runtime.place=node"};
    const struct fixture_call *const plan[] = {wide, apart, mixed};
    char other[64];
    struct weft_hash one = run(name, "runtime.devices=1", option, dtype,
                               NULL);
    for (size_t i = 0; i < WEFT_COUNT(plan); i++) {
        const char *word[] = {"runtime.devices=8",
                              option,
                              dtype,
                              where[i == 2],
                              fixture_plan(&fixture, "plan", plan[i]),
                              NULL};
        snprintf(other, sizeof other, "%s-%zu", name, i);
        struct weft_trainer *t = fixture_open(&fixture, other, word);
        fixture_steps(t, 3);
        weft_trainer_close(t);
        struct weft_hash h = fixture_hash(&fixture, other, 3);
        if (!weft_hash_equal(one, h))
            printf("\n    %s differs on plan %zu\n", name, i);
        CHECK(weft_hash_equal(one, h));
    }
}

static void test_plans_ppo(void)
{
    same_on_plans("f32", "seed=5", "numerics.dtype=f32");
    same_on_plans("bf16", "seed=5", "numerics.dtype=bf16");
}

static void test_plans_warmup(void)
{
    same_on_plans("warmup", "ppo.critic_warmup=1", "numerics.dtype=f32");
}

/* Generation ahead of the critic's training changes nothing. */
static void test_plans_overlap(void)
{
    char plan[600];
    snprintf(plan, sizeof plan, "%s",
             fixture_plan(&fixture, "overlap", apart));
    struct weft_hash on = run("overlap", plan, "runtime.devices=8",
                              "runtime.place=device", "runtime.overlap=true");
    struct weft_hash off = run("alone", plan, "runtime.devices=8",
                               "runtime.place=device",
                               "runtime.overlap=false");
    struct weft_hash one = run("one", "runtime.devices=1",
                               "runtime.overlap=false", NULL, NULL);
    CHECK(weft_hash_equal(on, off));
    CHECK(weft_hash_equal(on, one));
}

static void make_judge(const char *name, int32_t layers, int32_t heads)
{
    struct weft_err err;
    char path[512];
    struct weft_init_options o = {.family = WEFT_LLAMA,
                                  .hidden = 32,
                                  .layers = layers,
                                  .heads = heads,
                                  .intermediate = 256,
                                  .max_positions = 256,
                                  .std = 0.3,
                                  .dtype = WEFT_F32,
                                  .seed = (uint64_t) layers,
                                  .scalar_head = true,
                                  .tokenizer = "bytes"};
    snprintf(path, sizeof path, "%s/%s", fixture.dir, name);
    REQUIRE_OK(weft_init_model(&o, path, NULL, &err), err);
}

/* Two reward models of different depths and numbers of blocks, each with a
 * call of its own; runs without the second leave its line out. */
static void test_plans_rewards(void)
{
    char reward[1400];
    make_judge("shallow", 2, 4);
    make_judge("deep", 5, 2);
    snprintf(reward, sizeof reward,
             "reward=[{type: model, model: \"%s/shallow\", name: a}, "
             "{type: callback, weight: 0.5}, "
             "{type: model, model: \"%s/deep\", weight: 2, name: b}]",
             fixture.dir, fixture.dir);
    same_on_plans("judged", reward, "numerics.dtype=f32");
}

/* A checkpoint of one plan goes on with another. */
static void test_plans_resume(void)
{
    const struct fixture_call *const plan[] = {wide, mixed, apart, wide};
    struct weft_hash whole = run("whole", "runtime.devices=1", NULL, NULL,
                                 NULL);
    for (int from = 0; from < 3; from++) {
        char name[32];
        snprintf(name, sizeof name, "resumed-%d", from);
        for (int k = 0; k < 3; k++) {
            const char *word[] = {
                "runtime.devices=8", "checkpoint.every=1",
                k % 2 ? "runtime.place=node" : "runtime.place=device",
                fixture_plan(&fixture, "step", plan[(from + k) % 4]), NULL};
            struct weft_trainer *t = fixture_open(&fixture, name, word);
            CHECK_INT(weft_trainer_iteration(t), k);
            fixture_steps(t, 1);
            weft_trainer_close(t);
        }
        CHECK(weft_hash_equal(whole, fixture_hash(&fixture, name, 3)));
    }
}

/* ---- SFT -------------------------------------------------------------- */

static const char sft_yaml[] =
    "algorithm: sft\n"
    "seed: 5\n"
    "run_dir: unset\n"
    "iterations: 3\n"
    "data: {path: prompts.jsonl, prompt_key: label, response_key: prompt}\n"
    "model: {actor: model}\n"
    "actor: {lr: 1e-3}\n"
    "train: {batch: 9, micro_batch_tokens: 64}\n"
    "runtime: {devices: 1}\n"
    "checkpoint: {every: 1, keep: 9}\n";

static struct weft_hash sft_hash(const char *name)
{
    static const char *const file[] = {"actor/model",
                                       "optimizer/actor/exp_avg",
                                       "optimizer/actor/exp_avg_sq"};
    struct weft_hash hash[WEFT_COUNT(file)];
    struct weft_err err;
    for (size_t i = 0; i < WEFT_COUNT(file); i++) {
        char path[768];
        uint64_t bytes;
        snprintf(path, sizeof path,
                 "%s/%s/checkpoints/iteration-000003/%s.safetensors",
                 fixture.dir, name, file[i]);
        REQUIRE_OK(weft_hash_file(path, &hash[i], &bytes, &err), err);
    }
    return weft_hash128(hash, sizeof hash);
}

static struct weft_hash sft(const char *name, int n, const char *a,
                            const char *b, const char *c)
{
    const char *word[] = {a, b, c, NULL};
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    fixture_steps(t, n);
    bool done = weft_trainer_done(t);
    weft_trainer_close(t);
    return done ? sft_hash(name) : (struct weft_hash){0};
}

static void test_plans_sft(void)
{
    static const char *const layout[] = {
        "layout=dp2tp2pp2,zero=3",
        "layout=tp4pp2,recompute",
        "layout=dp4pp2,zero=1,micro_batches=2",
        "layout=dp4tp2,zero=2",
    };
    struct weft_err err;
    REQUIRE_OK(
        weft_file_write(fixture.config, sft_yaml, sizeof sft_yaml - 1, &err),
        err);
    struct weft_hash one = sft("sft", 3, "runtime.devices=1", NULL, NULL);
    for (size_t i = 0; i < WEFT_COUNT(layout); i++) {
        char name[32];
        const char *place = i == 3 ? "runtime.place=node"
                                   : "runtime.place=device";
        snprintf(name, sizeof name, "sft-%zu", i);
        struct weft_hash all = sft(name, 3, "runtime.devices=8", place,
                                   layout[i]);
        CHECK(weft_hash_equal(one, all));
        /* one step each on another layout */
        snprintf(name, sizeof name, "sft-resumed-%zu", i);
        for (size_t k = 0; k < 3; k++)
            all = sft(name, 1, "runtime.devices=8", place,
                      layout[(i + k) % WEFT_COUNT(layout)]);
        CHECK(weft_hash_equal(one, all));
    }
}

static void test_make(void)
{
    fixture_make(&fixture);
}

static void test_remove(void)
{
    fixture_remove(&fixture);
}

WEFT_TESTS("run/plans", {"make", test_make},
           {"test_plans_ppo", test_plans_ppo},
           {"test_plans_warmup", test_plans_warmup},
           {"test_plans_overlap", test_plans_overlap},
           {"test_plans_rewards", test_plans_rewards},
           {"test_plans_resume", test_plans_resume},
           {"test_plans_sft", test_plans_sft}, {"remove", test_remove})
