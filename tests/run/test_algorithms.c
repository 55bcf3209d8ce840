/* SPDX-License-Identifier: Apache-2.0 */
/* Every algorithm: its graph stands and its roles have settings; every one that
 * generates: layouts give the same bits, also where samples move to another
 * replica, and different algorithms different ones. */
#include "config/keys.h"
#include "job/plan_needs.h"
#include "job/run_config.h"
#include "run_fixture.h"

#define MOVES "rollout.inter_stage_fusion=true"

static struct fixture fixture;

/* As the fixture's, without what only PPO has. */
static const char yaml[] =
    "seed: 5\n"
    "run_dir: unset\n"
    "iterations: 2\n"
    "data: {path: prompts.jsonl}\n"
    "model: {actor: model}\n"
    "reward: [{type: callback, name: low}]\n"
    "rollout: {prompts: 3, samples_per_prompt: 4, max_new_tokens: 40,\n"
    "          lengths: \"lognormal:16:0.8\"}\n"
    "ppo: {epochs: 2, mini_batches: 2}\n"
    "actor: {lr: 1e-3}\n"
    "train: {micro_batch_tokens: 64}\n"
    "checkpoint: {every: 0, dtype: f32}\n";

static const char *word_of(const struct weft_algorithm *a)
{
    static char word[64];
    snprintf(word, sizeof word, "algorithm=%s", a->config.name);
    return word;
}

static struct weft_hash run(const struct weft_algorithm *a, int k,
                            const char *const *layout)
{
    char name[64];
    const char *word[9] = {word_of(a)};
    bool moves = false;
    double moved, n_moved = 0;
    for (int i = 0; layout[i]; i++) {
        word[i + 1] = layout[i];
        moves = moves || strcmp(layout[i], MOVES) == 0;
    }
    snprintf(name, sizeof name, "%s-%d", a->config.name, k);
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    t->in_turn = true; /* so that what moves is the same in every run */
    for (int i = 1; i <= 2; i++) {
        fixture_steps(t, 1);
        CHECK_INT(weft_trainer_iteration(t), i);
        REQUIRE(weft_trainer_metric(t, "gen/migrated", &moved) == 0);
        n_moved += moved;
    }
    CHECK(moves == (n_moved > 0));
    weft_trainer_close(t);
    const char *const file[] = {"actor/model", "optimizer/actor/exp_avg"};
    return fixture_hash_of(&fixture, name, 2, 2, file);
}

static void test_layouts(void)
{
    static const char *const layout[][8] = {
        {"runtime.devices=1"},
        {"runtime.devices=4", "layout=dp2pp2,zero=2", "rollout.kv_blocks=3"},
        {"runtime.devices=4", "layout=tp2pp2,recompute",
         "runtime.place=device"},
        {"runtime.devices=3", "layout=dp2", "train.micro_batch_tokens=32",
         "rollout.chunk_tokens=1", "rollout.prefix_sharing=false", MOVES,
         "rollout.remaining=0.6"},
        {"runtime.devices=4", "layout=tp2pp2",
         "ppo.recompute_logprobs=true"}};
    struct weft_err err;
    struct weft_hash seen[16];
    int n_seen = 0;
    fixture_make(&fixture);
    REQUIRE_OK(weft_file_write(fixture.config, yaml, sizeof yaml - 1, &err),
               err);
    for (int i = 0; weft_algorithms[i]; i++) {
        const struct weft_algorithm *a = weft_algorithm_of(
            &(struct weft_config){.algorithm = weft_algorithms[i]});
        if (!a->config.generates || a == &weft_ppo) /* other tests' */
            continue;
        struct weft_hash one = run(a, 0, layout[0]);
        for (int k = 1; k < (int) WEFT_COUNT(layout); k++)
            CHECK(weft_hash_equal(one, run(a, k, layout[k])));
        for (int k = 0; k < n_seen; k++)
            CHECK(!weft_hash_equal(one, seen[k]));
        seen[n_seen++] = one;
    }
    CHECK_INT(n_seen, 9);
}

/* Two calls generate: together, on parts of the devices, one after another. */
static void test_two_generations(void)
{
    static const struct fixture_call apart[] = {
        {"actor_generate", 0, 4, 2, 1, 2, NULL},
        {"actor_greedy_generate", 4, 2, 1, 2, 1, NULL},
        {"ref_infer", 6, 2, 2, 1, 1, ", \"offload\": true"},
        {"actor_train", 0, 8, 2, 2, 2, ", \"zero\": 1"},
        {0}};
    static const struct fixture_call across[] = {
        {"actor_generate", 6, 2, 1, 2, 1, NULL},
        {"actor_greedy_generate", 4, 4, 1, 2, 2, NULL},
        {"ref_infer", 0, 1, 1, 1, 1, NULL},
        {"actor_train", 0, 4, 4, 1, 1, ", \"zero\": 3"},
        {0}};
    const char *const layout[][4] = {
        {"runtime.devices=1"},
        {"runtime.devices=8", fixture_plan(&fixture, "apart", apart)},
        {"runtime.devices=8", fixture_plan(&fixture, "across", across),
         "runtime.place=device"}};
    struct weft_hash one = run(&weft_remax, 10, layout[0]);
    for (int k = 1; k < (int) WEFT_COUNT(layout); k++)
        CHECK(weft_hash_equal(one, run(&weft_remax, 10 + k, layout[k])));
}

/* Each graph stands, its roles have settings, its metrics are told. */
static void test_table(void)
{
    struct weft_err err;
    struct weft_dataflow flow;
    for (int n = 0; weft_algorithms[n]; n++) {
        struct weft_config c = {.schema = &weft_run_schema,
                                .algorithm = weft_algorithms[n]};
        const struct weft_algorithm *a = weft_algorithm_of(&c);
        CHECK(&a->config == weft_algorithms[n]);
        REQUIRE(a->told && a->told->metrics && a->told->curves);
        REQUIRE(a->told->watched && a->told->watched[0].tag);
        for (int k = 0; k < 16; k++) {
            a->flow(&(struct weft_flow_needs){.reference = k & 1,
                                              .kl_in_loss = k & 2,
                                              .recompute = k & 8,
                                              .n_rewards = k & 4 ? 3 : 0},
                    &flow);
            REQUIRE_OK(weft_flow_check(&flow, &err), err);
            for (int32_t r = 0; r < flow.n_roles; r++) {
                const struct weft_role *role = &flow.role[r];
                CHECK((role->slot < 0) == (role->index >= 0));
                if (role->slot < 0)
                    continue;
                CHECK(weft_config_name(&c, &c.role[role->slot].folder)
                      != NULL);
                CHECK(!role->trained
                      || weft_config_name(&c, &c.role[role->slot].optim.lr)
                             != NULL);
            }
        }
    }
}

static void refused(const char *algorithm, const char *word, const char *part)
{
    struct weft_err err;
    struct weft_config c;
    const char *all[] = {algorithm, word};
    CHECK_FAILS(weft_run_config_read(fixture.config, 2, all, &c, &err),
                WEFT_EINVAL, err, part);
}

static void test_refused(void)
{
    refused("algorithm=grpo", "rollout.samples_per_prompt=1",
            "compares the responses to a prompt: "
            "'rollout.samples_per_prompt' must be at least 2");
    refused("algorithm=gspo", "model.critic=x",
            "'model.critic' is not a key of algorithm gspo");
    refused("algorithm=rloo", "ppo.lambda=1",
            "'ppo.lambda' is not a key of algorithm rloo");
    refused("algorithm=cispo", "ppo.gamma=0.9",
            "'ppo.gamma' is not a key of algorithm cispo");
    refused("algorithm=dapo", "ppo.overlong.cache=41",
            "'ppo.overlong.cache' is 41 tokens, but a response has at most");
    refused("algorithm=grop", "seed=1", "'algorithm' must be ppo");
    fixture_remove(&fixture);
}

WEFT_TESTS("run/algorithms", {"test_table", test_table},
           {"test_layouts", test_layouts},
           {"test_two_generations", test_two_generations},
           {"test_refused", test_refused})
