/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three PPO iterations on many placements: weights, moments and scores must
 * have the same bits (doc/numerics.md).
 */
#include "run_fixture.h"

static struct fixture fixture;

struct result {
    struct weft_hash hash;
    double score, kl, entropy, norm;
};

static struct result run(const char *name, const char *const *word)
{
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    struct result r;
    double difference = 1;
    fixture_steps(t, 3);
    REQUIRE(weft_trainer_metric(t, "critic/score/mean", &r.score) == 0);
    REQUIRE(weft_trainer_metric(t, "objective/kl", &r.kl) == 0);
    REQUIRE(weft_trainer_metric(t, "actor/entropy", &r.entropy) == 0);
    REQUIRE(weft_trainer_metric(t, "actor/grad_norm", &r.norm) == 0);
    REQUIRE(weft_trainer_metric(t, "rollout_train_logprob_abs_diff_max",
                                &difference) == 0);
    CHECK(difference == 0);
    weft_trainer_close(t);
    r.hash = fixture_hash(&fixture, name, 3);
    return r;
}

static void compare(const char *dtype, const char *const *variant)
{
    static int n;
    char base[32], name[32];
    const char *word[8] = {dtype};
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
               "%.17g\n", dtype, variant[0], expected.score, found.score,
               expected.norm, found.norm);
    CHECK(same);
}

static const char *const variants[][4] = {
    {"runtime.devices=2"},
    {"runtime.devices=3"},
    {"runtime.devices=4", "runtime.nap=true"},
    {"train.micro_batch_tokens=1"},
    {"train.micro_batch_tokens=100", "runtime.devices=2"},
    {"train.micro_batch_tokens=100000"},
    {"train.recompute=true"},
    {"rollout.chunk_tokens=1"},
    {"rollout.chunk_tokens=5", "rollout.slots=3"},
    {"rollout.slots=1"},
    {"rollout.prefill_tokens=1"},
    {"rollout.prefill_tokens=7", "runtime.devices=2", "rollout.slots=2"},
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

static void test_make(void)
{
    fixture_make(&fixture);
}

static void test_remove(void)
{
    fixture_remove(&fixture);
}

WEFT_TESTS("run/invariance", {"make", test_make}, {"test_f32", test_f32},
           {"test_bf16", test_bf16}, {"test_depends", test_depends},
           {"remove", test_remove})
