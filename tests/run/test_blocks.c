/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PPO with 16 and 32 tensor blocks: on every placement the bits of one device
 * that has all blocks, where a task of a layer has more tiles than StarPU has
 * room for in its own struct, up to one where every block has a device.
 */
#include "run_fixture.h"

static struct fixture fixture;

/* Heads, panels of the MLP and of the vocabulary for 32 blocks, no more; eight
 * blocks read a KV head. */
static struct weft_init_options wide_model(void)
{
    struct weft_init_options o = fixture_model();
    o.hidden = 32;
    o.heads = 32;
    o.kv_heads = 4;
    o.head_dim = 4;
    o.intermediate = 2045;
    o.vocab = 2001;
    return o;
}

static struct weft_hash run(const char *blocks, const char *const *variant)
{
    static const char *const role[] = {"actor", "critic", "reference"};
    static int n;
    char name[32], model[WEFT_COUNT(role)][512];
    double difference = 1;
    const char *word[16] = {"iterations=1", blocks};
    int n_words = 2;
    for (size_t i = 0; i < WEFT_COUNT(role); i++) {
        snprintf(model[i], sizeof model[i], "model.%s=%s/wide", role[i],
                 fixture.dir);
        word[n_words++] = model[i];
    }
    for (int i = 0; variant[i]; i++)
        word[n_words++] = variant[i];
    snprintf(name, sizeof name, "run-%d", n++);
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    fixture_steps(t, 1);
    REQUIRE(weft_trainer_metric(t, "rollout_train_logprob_abs_diff_max",
                                &difference)
            == 0);
    CHECK(difference == 0);
    weft_trainer_close(t);
    return fixture_hash(&fixture, name, 1);
}

static void compare(const char *blocks, struct weft_hash expected,
                    const char *const variants[][6], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool same = weft_hash_equal(expected, run(blocks, variants[i]));
        if (!same)
            printf("\n    %s %s %s differs\n", blocks, variants[i][0],
                   variants[i][1]);
        CHECK(same);
    }
}

/* Members of unlike ranges, replicas, stages, places that send roots, ZeRO,
 * layers computed again; a device for each block. */
static void test_32_blocks(void)
{
    static const char *const one[6] = {"runtime.devices=1"};
    static const char *const variants[][6] = {
        {"runtime.devices=2", "layout=tp2"},
        {"runtime.devices=3", "layout=tp3", "runtime.place=device"},
        {"runtime.devices=4", "layout=tp4", "train.recompute=true"},
        {"runtime.devices=4", "layout=tp2pp2"},
        {"runtime.devices=4", "layout=dp2tp2,zero=3", "runtime.place=device"},
        {"runtime.devices=32", "layout=tp32"},
        {"runtime.devices=32", "layout=tp32", "runtime.place=device"},
    };
    compare("numerics.tensor_blocks=32",
            run("numerics.tensor_blocks=32", one), variants,
            WEFT_COUNT(variants));
}

#define BF16 "numerics.dtype=bf16"

static void test_16_blocks(void)
{
    static const char *const one[6] = {"runtime.devices=1", BF16};
    static const char *const variants[][6] = {
        {"runtime.devices=5", BF16, "layout=tp5"},
        {"runtime.devices=16", BF16, "layout=tp16"},
    };
    struct weft_hash expected = run("numerics.tensor_blocks=16", one);
    compare("numerics.tensor_blocks=16", expected, variants,
            WEFT_COUNT(variants));
    /* the numbers are a function of T, or all this would prove nothing */
    CHECK(!weft_hash_equal(expected, run("numerics.tensor_blocks=32", one)));
    CHECK(!weft_hash_equal(expected, run("numerics.tensor_blocks=8", one)));
}

static void test_make(void)
{
    struct weft_init_options o = wide_model();
    fixture_make(&fixture);
    fixture_init_model(&fixture, "wide", &o);
}

static void test_remove(void)
{
    fixture_remove(&fixture);
}

WEFT_TESTS("run/blocks", {"make", test_make},
           {"test_32_blocks", test_32_blocks},
           {"test_16_blocks", test_16_blocks}, {"remove", test_remove})
