/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three PPO iterations on many placements: weights, moments and scores must
 * have the same bits (doc/numerics.md).
 */
#include "run_fixture.h"

#define MOVES "rollout.inter_stage_fusion=true"

static struct fixture fixture;

struct result {
    struct weft_hash hash;
    double score, kl, entropy, norm;
};

/* Generation did what the words ask for. */
static void check_cache(const struct weft_trainer *t, const char *const *word)
{
    double shared, preempted, moved, freed;
    bool shares = true, few = false, moves = false;
    for (int i = 0; word[i]; i++) {
        moves = moves || !strcmp(word[i], MOVES);
        shares = shares && strcmp(word[i], "rollout.prefix_sharing=false");
        few = few || strncmp(word[i], "rollout.kv_blocks", 17) == 0;
    }
    REQUIRE(weft_trainer_metric(t, "gen/prefix_hit_tokens", &shared) == 0);
    REQUIRE(weft_trainer_metric(t, "gen/preempted", &preempted) == 0);
    REQUIRE(weft_trainer_metric(t, "gen/migrated", &moved) == 0);
    REQUIRE(weft_trainer_metric(t, "gen/freed_instances", &freed) == 0);
    CHECK(!shares ? shared == 0 : word[1] || shared > 0);
    CHECK(few == (preempted > 0));
    CHECK(moves == (moved > 0 && freed > 0));
}

static struct result run(const char *name, const char *const *word)
{
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    struct result r;
    double difference = 1;
    t->in_turn = true; /* so that what moves is the same in every run */
    fixture_steps(t, 3);
    REQUIRE(weft_trainer_metric(t, "critic/score/mean", &r.score) == 0);
    REQUIRE(weft_trainer_metric(t, "objective/kl", &r.kl) == 0);
    REQUIRE(weft_trainer_metric(t, "actor/entropy", &r.entropy) == 0);
    REQUIRE(weft_trainer_metric(t, "actor/grad_norm", &r.norm) == 0);
    REQUIRE(weft_trainer_metric(t, "rollout_train_logprob_abs_diff_max",
                                &difference)
            == 0);
    CHECK(difference == 0);
    check_cache(t, word);
    weft_trainer_close(t);
    r.hash = fixture_hash(&fixture, name, 3);
    return r;
}

static struct weft_hash run_without_kl(const char *name,
                                       const char *const *word)
{
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    fixture_steps(t, 3);
    weft_trainer_close(t);
    return fixture_hash(&fixture, name, 3);
}

static void compare(const char *dtype, const char *const *variant)
{
    static int n;
    char base[32], name[32];
    const char *word[12] = {dtype};
    snprintf(base, sizeof base, "%s", strchr(dtype, '=') + 1);
    struct result expected, found;
    static struct result kept[2];
    static bool have[2];
    int which = strcmp(base, "bf16") == 0;
    if (!have[which]) {
        kept[which] = run(base, word);
        have[which] = true;
    }
    expected = kept[which];
    for (int i = 0; variant[i]; i++)
        word[i + 1] = variant[i];
    snprintf(name, sizeof name, "variant-%d", n++);
    found = run(name, word);
    bool same = weft_hash_equal(expected.hash, found.hash)
             && expected.score == found.score && expected.kl == found.kl
             && expected.entropy == found.entropy
             && expected.norm == found.norm;
    if (!same)
        printf("\n    %s %s differs: score %.17g and %.17g, norm %.17g and "
               "%.17g\n",
               dtype, variant[0], expected.score, found.score, expected.norm,
               found.norm);
    CHECK(same);
}

static const char *const variants[][8] = {
    {"runtime.devices=2"},
    {"runtime.devices=3"},
    {"runtime.devices=4", "runtime.nap=true"},
    {"train.micro_batch_tokens=1"},
    {"train.micro_batch_tokens=100", "runtime.devices=2"},
    {"train.micro_batch_tokens=100000"},
    {"train.recompute=true"},
    {"model.reference_offload=true"},
    {"rollout.chunk_tokens=1", "rollout.kv_blocks=3"},
    {"rollout.chunk_tokens=5", "rollout.slots=3"},
    {"rollout.slots=1"},
    {"rollout.prefill_tokens=1", "rollout.prefix_sharing=false"},
    {"rollout.prefill_tokens=7", "runtime.devices=2", "rollout.kv_blocks=4"},
    {MOVES, "runtime.devices=2", "rollout.remaining=0.6",
     "rollout.prefill_tokens=3", "rollout.chunk_tokens=1"},
    {MOVES, "runtime.devices=4", "rollout.remaining=0.6",
     "rollout.prefill_tokens=9", "rollout.chunk_tokens=1",
     "rollout.instances=1", "rollout.prefix_sharing=false"},
    {MOVES, "runtime.devices=4", "layout=dp2pp2", "rollout.remaining=0.3",
     "rollout.prefill_tokens=8", "rollout.chunk_tokens=1",
     "train.intra_stage_fusion=true"},
    {MOVES, "runtime.devices=4", "layout=dp2tp2,zero=2",
     "rollout.remaining=0.7", "rollout.prefill_tokens=5",
     "rollout.chunk_tokens=1", "runtime.place=device"},
};

static void test_f32(void)
{
    for (size_t i = 0; i < WEFT_COUNT(variants); i++)
        compare("numerics.dtype=f32", variants[i]);
}

static void test_bf16(void)
{
    for (size_t i = 0; i < WEFT_COUNT(variants); i++)
        compare("numerics.dtype=bf16", variants[i]);
}

/* The numbers must change with what they are a function of; otherwise the
 * comparison above would prove nothing. */
static void test_depends(void)
{
    static const char *const other[][3] = {
        {"numerics.dtype=f32", "seed=6"},
        {"numerics.dtype=f32", "numerics.gradient_groups=1"},
        {"numerics.dtype=f32", "numerics.tensor_blocks=1"},
        {"numerics.dtype=bf16"}};
    const char *f32[] = {"numerics.dtype=f32", NULL};
    struct result base = run("base", f32);
    for (size_t i = 0; i < WEFT_COUNT(other); i++) {
        char name[32];
        snprintf(name, sizeof name, "other-%zu", i);
        struct result r = run(name, other[i]);
        CHECK(!weft_hash_equal(base.hash, r.hash));
    }
}

/* Each option of PPO runs, changes the numbers, and keeps the promise. */
static void test_options(void)
{
    static const char *const option[][4] = {
        {"ppo.kl.place=loss", "ppo.kl.kind=k3", "ppo.kl.controller=fixed"},
        {"ppo.kl.place=loss", "ppo.kl.kind=k2", "ppo.kl.controller=fixed"},
        {"ppo.kl.place=none", "ppo.kl.controller=fixed"},
        {"ppo.kl.kind=k3"},
        {"ppo.aggregation=seq-mean-token-sum"},
        {"ppo.aggregation=seq-mean-token-mean"},
        {"ppo.aggregation=seq-mean-token-sum-norm"},
        {"ppo.clip_low=0.001", "ppo.clip_high=0.002"},
        {"ppo.value_clip=0"},
        {"ppo.whiten_advantages=false"},
        {"ppo.whiten_advantages=mini_batch"},
        {"ppo.missing_eos_penalty=1", "ppo.reward_clip=0.2"},
        {"ppo.critic_warmup=1"},
        {"ppo.gamma=0.9", "ppo.lambda=0.5"},
        {"actor.schedule=cosine", "actor.warmup_steps=3"},
        {"actor.grad_clip=0.1", "actor.weight_decay=0.1"},
        {"rollout.temperature=0.7", "rollout.top_k=20"},
        {"rollout.top_p=0.8"},
    };
    struct weft_hash seen[WEFT_COUNT(option)];
    for (size_t i = 0; i < WEFT_COUNT(option); i++) {
        char name[32];
        const char *word[8] = {"runtime.devices=1"};
        for (int k = 0; k < 4 && option[i][k]; k++)
            word[k + 1] = option[i][k];
        snprintf(name, sizeof name, "option-%zu", i);
        bool kl = strcmp(option[i][0], "ppo.kl.place=none") != 0;
        seen[i] = kl ? run(name, word).hash : run_without_kl(name, word);
        word[0] = "runtime.devices=3";
        snprintf(name, sizeof name, "option-%zu-3", i);
        struct weft_hash other = kl ? run(name, word).hash
                                    : run_without_kl(name, word);
        CHECK(weft_hash_equal(seen[i], other));
        for (size_t k = 0; k < i; k++)
            CHECK(!weft_hash_equal(seen[i], seen[k]));
    }
}

/* A reward model beside the function: its score is in the record. */
static void test_reward_model(void)
{
    struct weft_err err;
    char path[512], reward[1024];
    struct weft_init_options o = {.family = WEFT_LLAMA,
                                  .hidden = 32,
                                  .layers = 1,
                                  .heads = 4,
                                  .intermediate = 256,
                                  .max_positions = 256,
                                  .std = 0.3,
                                  .dtype = WEFT_F32,
                                  .seed = 8,
                                  .scalar_head = true,
                                  .tokenizer = "bytes"};
    snprintf(path, sizeof path, "%s/judge", fixture.dir);
    REQUIRE_OK(weft_init_model(&o, path, NULL, &err), err);
    snprintf(reward, sizeof reward,
             "reward=[{type: callback, weight: 0.5}, {type: model, model: "
             "\"%s\", weight: 2, name: judge}]",
             path);
    const char *word[] = {reward, "runtime.devices=1", NULL};
    const char *three[] = {reward, "runtime.devices=3",
                           "train.micro_batch_tokens=30", NULL};
    struct weft_trainer *t = fixture_open(&fixture, "judged", word);
    fixture_steps(t, 3);
    double score, own, judge;
    REQUIRE(weft_trainer_metric(t, "critic/score/mean", &score) == 0);
    REQUIRE(weft_trainer_metric(t, "reward/callback/mean", &own) == 0);
    REQUIRE(weft_trainer_metric(t, "reward/judge/mean", &judge) == 0);
    weft_trainer_close(t);
    CHECK(judge != 0);
    CHECK(score - (0.5 * own + 2 * judge) < 1e-6
          && score - (0.5 * own + 2 * judge) > -1e-6);
    t = fixture_open(&fixture, "judged-3", three);
    fixture_steps(t, 3);
    weft_trainer_close(t);
    CHECK(weft_hash_equal(fixture_hash(&fixture, "judged", 3),
                          fixture_hash(&fixture, "judged-3", 3)));
}

static void test_make(void)
{
    fixture_make(&fixture);
}

/* A cache that no text fits, and a text that no response can have. */
static void test_refused(void)
{
    struct weft_err err;
    struct weft_trainer *t = NULL;
    char run[512];
    const char *word[3] = {run, "rollout.kv_blocks=2"};
    snprintf(run, sizeof run, "run_dir=%s/refused", fixture.dir);
    CHECK_FAILS(weft_trainer_open(fixture.config, 2, word, &t, &err),
                WEFT_EINVAL, err,
                "a KV cache of 2 blocks is too small (rollout.kv_blocks, "
                "--kv-blocks): a text of 162 tokens needs 3 "
                "blocks of 64 tokens");
    word[1] = "rollout.instances=2";
    CHECK_FAILS(weft_trainer_open(fixture.config, 2, word, &t, &err),
                WEFT_EINVAL, err,
                "'rollout.instances' says when samples move to fewer "
                "replicas: set rollout.inter_stage_fusion, or leave it out");
    word[2] = MOVES;
    CHECK_FAILS(weft_trainer_open(fixture.config, 3, word, &t, &err),
                WEFT_EINVAL, err,
                "'rollout.instances' is 2, but actor_generate has 1 replicas "
                "(dp) that could go on; lower it, or set it to 0 for half of "
                "them");
    word[1] = "rollout.remaining=1.5";
    CHECK_FAILS(weft_trainer_open(fixture.config, 3, word, &t, &err),
                WEFT_EINVAL, err,
                "'rollout.remaining' must be from 0 to 0.95, not 1.5");
    word[1] = "rollout.stop=<|im_end|>x";
    CHECK_FAILS(weft_trainer_open(fixture.config, 2, word, &t, &err),
                WEFT_EINVAL, err,
                "rollout.stop '<|im_end|>x' has a special token and other "
                "text; it must be one of them");
}

static void test_remove(void)
{
    fixture_remove(&fixture);
}

WEFT_TESTS("run/invariance", {"make", test_make}, {"test_f32", test_f32},
           {"test_bf16", test_bf16}, {"test_depends", test_depends},
           {"test_options", test_options},
           {"test_reward_model", test_reward_model},
           {"test_refused", test_refused}, {"remove", test_remove})
