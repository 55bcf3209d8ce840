/* SPDX-License-Identifier: Apache-2.0 */
#include "config_fixture.h"

#include <math.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"

/* ---- What is read -------------------------------------------------------- */

/* The largest power of two up to 64, a mini-batch's samples, and its tokens
 * by 512, but 4 at least for the latter. */
static void test_config_groups(void)
{
    static const struct {
        int prompts, samples, mini_batches, tokens, groups;
    } some[] = {
        {64, 1, 4, 512, 16},  {64, 1, 1, 512, 64}, {512, 8, 4, 512, 64},
        {128, 2, 2, 8, 4},    {63, 1, 1, 512, 32}, {9, 1, 3, 4096, 2},
        {1, 1, 1, 100000, 1}, {5, 1, 1, 1, 4},     {64, 1, 1, 256, 32},
        {64, 1, 1, 255, 16},  {3, 1, 1, 1, 2},     {1000, 7, 1000, 8192, 4},
    };
    for (size_t i = 0; i < WEFT_COUNT(some); i++) {
        char more[256];
        snprintf(more, sizeof more,
                 "rollout: {prompts: %d, samples_per_prompt: %d, "
                 "max_new_tokens: %d}\nppo: {mini_batches: %d}\n",
                 some[i].prompts, some[i].samples, some[i].tokens,
                 some[i].mini_batches);
        REQUIRE_OK(with(more), err);
        CHECK_INT(c.numerics.gradient_groups, some[i].groups);
        CHECK(c.numerics.default_groups);
        weft_config_release(&c);
    }
    REQUIRE_OK(with("numerics: {gradient_groups: 2}"), err);
    CHECK_INT(c.numerics.gradient_groups, 2);
    CHECK(!c.numerics.default_groups);
    weft_config_release(&c);
    static const char sft[] = "algorithm: sft\niterations: 1\ndata.path: d\n"
                              "model.actor: m\ntrain.batch: 40\n";
    REQUIRE_OK(parse(sft, 0, NULL), err);
    CHECK_INT(c.numerics.gradient_groups, 32);
    weft_config_release(&c);
    REQUIRE_OK(parse(sft, 1, &(const char *){"data.max_prompt_tokens=100"}),
               err);
    CHECK_INT(c.numerics.gradient_groups, 4);
    weft_config_release(&c);
}

static int word(const char *w)
{
    return parse(LEAST, 1, &w);
}

static void test_config_defaults(void)
{
    REQUIRE_OK(parse(LEAST, 0, NULL), err);
    CHECK_STR(weft_config_algorithm(&c), "ppo");
    CHECK_INT(c.seed, 1);
    CHECK_INT(c.iterations, 3);
    CHECK_STR(c.data.path, "/p.jsonl");
    CHECK_STR(c.data.template, "auto");
    CHECK_STR(c.data.date, "2024-07-26");
    CHECK(c.data.label_key == NULL);
    CHECK_INT(c.data.max_prompt_tokens, 512);
    CHECK_STR(c.data.long_prompts, "refuse");
    CHECK(c.data.shuffle && c.data.add_eos);
    CHECK_STR(c.role[0].folder, "/m/a");
    CHECK_STR(c.role[2].folder, "/m/a");
    CHECK(!c.role[2].offload);
    CHECK_INT(c.rollout.prompts, 64);
    CHECK_INT(c.rollout.max_new_tokens, 512);
    CHECK(c.rollout.temperature == 1 && c.rollout.top_p == 1);
    CHECK_INT(c.rollout.slots, 32);
    CHECK_INT(c.rollout.chunk_tokens, 16);
    CHECK_INT(c.rollout.prefill_tokens, 256);
    CHECK(c.rollout.stop == NULL);
    CHECK_INT(c.policy.epochs, 1);
    CHECK_INT(c.policy.mini_batches, 4);
    CHECK(c.policy.gamma == 1 && c.policy.lambda == 0.95f);
    CHECK(c.policy.clip_low == 0.2f && c.policy.clip_high == 0.2f);
    CHECK(c.policy.dual_clip == 0 && c.policy.value_clip == 0.2f);
    CHECK_INT(c.policy.kl_place, WEFT_KL_IN_REWARD);
    CHECK_INT(c.policy.kl_kind, 1);
    CHECK(c.policy.kl_coef == 0.05f && c.policy.kl_target == 6);
    CHECK_INT(c.policy.kl_horizon, 10000);
    CHECK_INT(c.policy.aggregation, WEFT_AGG_TOKEN_MEAN);
    CHECK(c.role[0].optim.lr == 1e-6f && c.role[1].optim.lr == 1e-5f);
    CHECK(c.role[0].optim.beta1 == 0.9f && c.role[1].optim.beta2 == 0.999f);
    CHECK(c.role[0].optim.eps == 1e-8f && c.role[0].optim.grad_clip == 1);
    CHECK_INT(c.train.micro_batch_tokens, 1024);
    CHECK_INT(c.train.micro_batches, 0);
    CHECK_INT(c.train.zero, 0);
    CHECK(c.plan == NULL && c.layout == NULL);
    CHECK_INT(c.runtime.place, WEFT_PLACE_NODE);
    CHECK_INT(c.numerics.dtype, WEFT_F32);
    CHECK_INT(c.numerics.gradient_groups, 16); /* 64 / 4 samples */
    CHECK(c.numerics.isa == NULL);
    CHECK_INT(c.runtime.nap, -1);
    CHECK(c.runtime.watchdog_s == 300);
    CHECK_INT(c.checkpoint.every, 10);
    CHECK_INT(c.checkpoint.keep, 2);
    CHECK_STR(c.metric_names, "verl");
    CHECK_INT(c.samples_kept, 8);
    CHECK_INT(c.digest, WEFT_DIGEST_NONE);
    CHECK_INT(c.n_rewards, 1);
    CHECK_INT(c.reward[0].type, WEFT_REWARD_GSM8K);
    CHECK(c.reward[0].weight == 1 && c.reward[0].timeout_s == 60);
    CHECK_STR(c.reward[0].name, "gsm8k");
    CHECK_STR(c.reward[0].method, "strict");
    char *cwd = getcwd(NULL, 0);
    REQUIRE(cwd && strncmp(c.run_dir, cwd, strlen(cwd)) == 0);
    CHECK_STR(c.run_dir + strlen(cwd), "/runs/run");
    free(cwd);
    weft_config_release(&c);
    CHECK(c.run_dir == NULL);
}

static void test_config_values(void)
{
    REQUIRE_OK(with("seed: 18\n"
                    "rollout: {temperature: 1e-1, top_k: 0050, stop: \"\\n\"}"
                    "\nppo:\n"
                    "  lambda: .5\n"
                    "  kl: {place: none, kind: k3}\n"
                    "  aggregation: seq-mean-token-sum-norm\n"
                    "numerics: {dtype: bf16, isa: avx2}\n"
                    "runtime: {nap: true, place: device}\n"
                    "train: {zero: 2, micro_batches: 3}\n"
                    "plan: p/../plan.json\n"
                    "actor.lr: +3E-4\n"
                    "checkpoint:\n"
                    "trace: True\n"
                    "digest: true\n"),
               err);
    CHECK_INT(c.seed, 18);
    CHECK(c.rollout.temperature == 0.1f);
    CHECK_INT(c.rollout.top_k, 50);
    CHECK_STR(c.rollout.stop, "\n");
    CHECK(c.policy.lambda == 0.5f);
    CHECK_INT(c.policy.kl_place, WEFT_KL_NOWHERE);
    CHECK_INT(c.policy.kl_kind, 3);
    CHECK_INT(c.policy.aggregation, WEFT_AGG_SEQ_MEAN_TOKEN_SUM_NORM);
    CHECK_INT(c.numerics.dtype, WEFT_BF16);
    CHECK_STR(c.numerics.isa, "avx2");
    CHECK_INT(c.runtime.nap, 1);
    CHECK_INT(c.runtime.place, WEFT_PLACE_DEVICE);
    CHECK_INT(c.train.zero, 2);
    CHECK_INT(c.train.micro_batches, 3);
    CHECK_STR(c.plan, "/plan.json");
    CHECK(c.role[0].optim.lr == 3e-4f && c.trace);
    CHECK_INT(c.digest, WEFT_DIGEST_HASHES);
    weft_config_release(&c);
}

static void test_config_rewards(void)
{
    static const char text[] =
        "iterations: 3\n"
        "data: {path: p.jsonl}\n"
        "model: {actor: a, critic: c}\n"
        "reward:\n"
        "- exact_match\n"
        "- {type: model, model: ../rm, weight: -0.5}\n"
        "- {type: length, target: 20, method: most, name: short}\n"
        "- {type: regex, pattern: '^<b>', weight: 2}\n"
        "- type: program\n"
        "  command: [python3, grade.py, --fast]\n"
        "  timeout_s: 1.5\n"
        "- {type: program, command: 'cat | grade', name: sh}\n"
        "- {type: boxed}\n"
        "- {type: callback}\n";
    REQUIRE_OK(weft_config_parse(text, sizeof text - 1, "run.yaml", "/tmp", 0,
                                 NULL, &schema, &c, &err),
               err);
    REQUIRE(c.n_rewards == 8);
    CHECK_INT(c.reward[0].type, WEFT_REWARD_EXACT);
    CHECK_STR(c.reward[1].model, "/rm");
    CHECK(c.reward[1].weight == -0.5f);
    CHECK_INT(c.reward[2].target, 20);
    CHECK_STR(c.reward[2].method, "most");
    CHECK_STR(c.reward[2].name, "short");
    CHECK_STR(c.reward[3].pattern, "^<b>");
    CHECK_STR(c.reward[4].command[0], "python3");
    CHECK_STR(c.reward[4].command[2], "--fast");
    CHECK(c.reward[4].command[3] == NULL);
    CHECK_STR(c.reward[4].directory, "/tmp");
    CHECK(c.reward[4].timeout_s == 1.5);
    CHECK_STR(c.reward[5].command[0], "/bin/sh");
    CHECK_STR(c.reward[5].command[2], "cat | grade");
    CHECK_INT(c.reward[7].type, WEFT_REWARD_CALLBACK);
    weft_config_release(&c);

    static const struct {
        const char *reward, *part;
    } bad[] = {
        {"[]", "run.yaml: 'reward' is missing"},
        {"[{weight: 1}]", "run.yaml:4: a reward has no 'type'"},
        {"[{type: gsm}]",
         "'type' must be model, gsm8k, exact_match, boxed, "
         "regex, length, program, callback or think_answer, not 'gsm'"},
        {"[{type: regex}]", "type regex needs 'pattern'"},
        {"[{type: model}]", "type model needs 'model'"},
        {"[{type: length}]", "type length needs 'target'"},
        {"[{type: program}]", "type program needs 'command'"},
        {"[{type: program, command: []}]", "a program and at most 31"},
        {"[{type: boxed, pattern: x}]",
         "'pattern' is not a key of a reward of type boxed"},
        {"[{type: gsm8k, wieght: 2}]", "did you mean 'weight'?"},
        {"[{type: gsm8k, method: most}]", "must be strict or flexible"},
        {"[{type: length, target: 5, method: strict}]",
         "must be around, most or least"},
        {"[gsm8k, gsm8k]", "two rewards are named 'gsm8k'"},
        {"[{type: gsm8k, name: a/b}]", "no blank and no '/'"},
        {"[[gsm8k]]", "'type' must be"},
    };
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        char more[512];
        snprintf(more, sizeof more,
                 "iterations: 3\ndata: {path: p}\nmodel: {actor: a, critic: "
                 "c}\nreward: %s\n",
                 bad[i].reward);
        CHECK_FAILS(parse(more, 0, NULL), WEFT_EINVAL, err, bad[i].part);
    }
    char nine[256] = "iterations: 3\nreward: [";
    for (int i = 0; i < 9; i++)
        sprintf(nine + strlen(nine), "{type: boxed, name: n%d},", i);
    strcat(nine, "]\n");
    CHECK_FAILS(parse(nine, 0, NULL), WEFT_EINVAL, err, "more than 8");
}

/* An iteration of fewer samples than the default has mini-batches has one per
 * sample. */
static void test_config_derived(void)
{
    REQUIRE_OK(word("rollout.prompts=3"), err);
    CHECK_INT(c.policy.mini_batches, 3);
    weft_config_release(&c);
}

/* A map in the place of `true` says how. */
static void test_config_opens(void)
{
    REQUIRE_OK(with("rollout: {inter_stage_fusion: {remaining: 20%, "
                    "instances: 2}}\n"),
               err);
    CHECK(c.rollout.inter_stage_fusion);
    CHECK(fabs(c.rollout.remaining - 0.2) < 1e-15);
    CHECK_INT(c.rollout.instances, 2);
    weft_config_release(&c);
}

/* The same in a word of the command line, which replaces the file's value. */
static void test_config_opens_words(void)
{
    static const char *const map[] = {
        "rollout.inter_stage_fusion={remaining: 20%, instances: 2}"};
    static const char *const other[] = {
        "rollout.inter_stage_fusion={remaining: 20%}"};
    static const char *const off[] = {"rollout.inter_stage_fusion=false"};
    static const char *const later[] = {
        "rollout.inter_stage_fusion={remaining: 20%}",
        "rollout.remaining=40%"};
    const char *file = LEAST "rollout: {inter_stage_fusion: {remaining: 30%, "
                             "instances: 3}}\n";
    REQUIRE_OK(parse(LEAST, 1, map), err);
    CHECK(c.rollout.inter_stage_fusion);
    CHECK(fabs(c.rollout.remaining - 0.2) < 1e-15);
    CHECK_INT(c.rollout.instances, 2);
    weft_config_release(&c);
    REQUIRE_OK(parse(file, 1, other), err);
    CHECK(fabs(c.rollout.remaining - 0.2) < 1e-15);
    CHECK_INT(c.rollout.instances, 0);
    weft_config_release(&c);
    REQUIRE_OK(parse(file, 1, off), err);
    CHECK(!c.rollout.inter_stage_fusion);
    CHECK(c.rollout.remaining == 0);
    weft_config_release(&c);
    REQUIRE_OK(parse(file, 2, later), err);
    CHECK(fabs(c.rollout.remaining - 0.4) < 1e-15);
    weft_config_release(&c);

    CHECK_FAILS(word("rollout.inter_stage_fusion={remaining: 96%}"),
                WEFT_EINVAL, err,
                "argument 'rollout.inter_stage_fusion={remaining: 96%}': "
                "'rollout.remaining' must be from 0 to 0.95, not 96%");
    CHECK_FAILS(word("rollout.inter_stage_fusion={slots: 3}"), WEFT_EINVAL,
                err, "unknown key 'rollout.inter_stage_fusion.slots'");
    CHECK_FAILS(word("rollout.inter_stage_fusion={remaining"), WEFT_EFORMAT,
                err, "argument 'rollout.inter_stage_fusion={remaining'");
    CHECK_FAILS(word("rollout.ignore_eos={slots: 3}"), WEFT_EINVAL, err,
                "must be true or false");
}

/* ---- What is refused ----------------------------------------------------- */

static void test_config_refused(void)
{
    static const struct {
        const char *more, *part;
    } bad[] = {
        {"ppo: {lamda: 1}",
         "run.yaml:5: unknown key 'ppo.lamda'; did you mean 'ppo.lambda'?"},
        {"rewards: x", "did you mean 'reward'?"},
        {"lr: 1", "unknown key 'lr'; did you mean 'actor.lr'?"},
        {"kl.coef: 1", "did you mean 'ppo.kl.coef'?"},
        {"n: 8",
         "unknown key 'n'; did you mean 'rollout.samples_per_prompt'? "
         "That is: responses to each"},
        {"learning_rate: 1", "did you mean 'actor.lr'?"},
        {"critic: {learning_rate: 1}", "did you mean 'critic.lr'?"},
        {"actor: {temperature: 1}", "did you mean 'rollout.temperature'?"},
        {"temperature: 1", "did you mean 'rollout.temperature'?"},
        {"trainer: {total_epochs: 1}",
         "unknown key 'trainer.total_epochs'; did you mean 'iterations'?"},
        {"ppo: {cliprange: 0.1}", "did you mean 'ppo.clip_low'?"},
        {"ppo_mini_batch_size: 4",
         "did you mean 'ppo.mini_batches'? That is: optimizer steps"},
        {"model_name_or_path: x", "did you mean 'model.actor'?"},
        {"beta: 1", "did you mean 'ppo.kl.coef'?"},
        {"reward_funcs: x", "did you mean 'reward'?"},
        {"actor: m/a", "'actor' must be a map of keys, not 'm/a'; did you "
                       "mean 'model.actor'?"},
        {"rollout: {inter_stage_fusion: {slots: 3}}",
         "unknown key 'rollout.inter_stage_fusion.slots'"},
        {"rollout: {inter_stage_fusion: {remaining: 96%}}",
         "'rollout.remaining' must be from 0 to 0.95, not 96%"},
        {"rollout: {inter_stage_fusion: {remaining: x%}}",
         "must be a number"},
        {"rollout: {inter_stage_fusion: [1]}", "must be true or false"},
        {"rollout: {inter_stage_fusion: {instances: 20%}}",
         "must be a whole number"},
        {"rollout: {remaining: 0.1, inter_stage_fusion: {remaining: 0.1}}",
         "'rollout.remaining' is given twice"},
        {"rollout: {ignore_eos: {slots: 3}}", "must be true or false"},
        {"zzzzzz: 1", "'weft train --keys' lists all"},
        {"seed: -1", "'seed' must be from 0 to"},
        {"seed: 1.5", "'seed' must be a whole number, not '1.5'"},
        {"ppo: {gamma: 1.5}", "'ppo.gamma' must be from 0 to 1, not 1.5"},
        {"ppo: {gamma: nan}", "'ppo.gamma' must be a number, not 'nan'"},
        {"ppo: {gamma: .inf}", "must be a number"},
        {"ppo: {gamma: 1e999}", "must be a finite number"},
        {"ppo: {gamma: 0x1}", "must be a number"},
        {"ppo: {gamma: 1x}", "must be a number, not '1x'"},
        {"ppo: {gamma: '1'}", "must be a number"},
        {"ppo: {gamma: [1]}", "must be a number, not a list"},
        {"trace: yes", "'trace' must be true or false, not 'yes'"},
        {"trace: 1", "must be true or false"},
        {"ppo: {kl: {place: off}}",
         "'ppo.kl.place' must be reward, loss or none, not 'off'"},
        {"ppo: {kl: {kind: k4}}", "must be k1, k2, k3 or abs"},
        {"data: {path: q}", "run.yaml:5: key 'data' is given twice"},
        {"data.path: q", "'data.path' is given twice, first in line 2"},
        {"model.critic: ''", "given twice"},
        {"data.prompt_key: ''", "'data.prompt_key' must not be empty"},
        {"data.prompt_key: [a]", "'data.prompt_key' must be a text"},
        {"train.batch: 4", "'train.batch' is not a key of algorithm ppo"},
        {"ppo: {mini_batches: 65}", "has only 64 samples"},
        {"rollout: {prompts: 1000000, samples_per_prompt: 100}",
         "at most 10000000"},
        {"ppo: {dual_clip: 0.5}", "'ppo.dual_clip' must be above 1"},
        {"ppo: {critic_warmup: 3}", "would never be trained"},
        {"ppo: {kl: {place: loss, controller: adaptive}}",
         "needs 'ppo.kl.place' reward"},
        {"ppo: {kl: {coef: 0, controller: adaptive}}", "must be above 0"},
        {"numerics: {tensor_blocks: 3}", "must be 1, 2, 4, 8, 16 or 32"},
        {"numerics: {tensor_blocks: 64}", "tensor_blocks"},
        {"numerics: {isa: sse}", "must be c, avx2, avx512 or avx512_bf16"},
        {"numerics: {gradient_groups: 3}", "must be a power of two, not 3"},
        {"actor: {min_lr_ratio: 0.1}", "no meaning with a constant"},
        {"reference: {every: -1}", "'reference.every' must be from 0"},
        {"reference: {every: 2}\nppo.kl.place: none",
         "'reference.every' must be 0 in a run without a reference "
         "('ppo.kl.place' is none)"},
        {"reference: {mix: 0}", "'reference.mix' must be from 1e-06 to 1"},
        {"reference: {mix: 1.01}", "to 1, not 1.01"},
        {"reference: {ref_model_mixup_alpha: 1}",
         "did you mean 'reference.mix'?"},
        {"runtime: {devices: 257}",
         "'runtime.devices' must be from 0 to 256"},
        {"runtime: {devices: gpus}", "'runtime.devices' must be gpu, or from "
                                     "0 to 256, not gpus"},
        {"runtime: {gpus: 2}", "'runtime.gpus' has no meaning where GPUs are "
                               "no devices; set runtime.devices to gpu, or "
                               "leave it out"},
        {"runtime: {ranks_per_gpu: 2}",
         "'runtime.ranks_per_gpu' has no meaning"},
        {"runtime: {devices: gpu, ranks_per_gpu: 0}",
         "'runtime.ranks_per_gpu' must be from 1 to 256"},
        {"runtime: {cpu_devices: 2}", "'runtime.cpu_devices' has no meaning"},
        {"runtime: {gpu_memory_gib: 8}",
         "'runtime.gpu_memory_gib' has no meaning"},
        {"runtime: {gpu_messages: mpi}",
         "'runtime.gpu_messages' has no meaning"},
        {"runtime: {devices: gpu, gpu_messages: nccl}",
         "'runtime.gpu_messages'"},
        {"runtime: {devices: gpu, gpus: 257}", "'runtime.gpus' must be from"},
        {"runtime: {place: core}", "'runtime.place' must be node or device"},
        {"train: {zero: 4}", "'train.zero' must be from 0 to 3, not 4"},
        {"train: {micro_batches: -1}", "'train.micro_batches' must be from"},
        {"plan: p.json\nlayout: dp2",
         "run.yaml:6: 'layout' and 'plan' exclude each other"},
        {"layuot: dp2", "did you mean 'layout'?"},
        {"rollout: {temperature: 0}", "'rollout.temperature' must be from"},
    };
    for (size_t i = 0; i < WEFT_COUNT(bad); i++)
        CHECK_FAILS(with(bad[i].more),
                    strstr(bad[i].part, "key 'data'") ? WEFT_EFORMAT
                                                      : WEFT_EINVAL,
                    err, bad[i].part);
    CHECK_FAILS(parse("", 0, NULL), WEFT_EINVAL, err,
                "run.yaml: 'iterations' is missing");
    CHECK_FAILS(parse("- a\n", 0, NULL), WEFT_EFORMAT, err,
                "a configuration is a map of keys, not a list");
    CHECK_FAILS(parse("a: [1\nb: 2\n", 0, NULL), WEFT_EFORMAT, err,
                "run.yaml:");
    CHECK_FAILS(
        weft_config_read("/nonexistent/run.yaml", 0, NULL, &schema, &c, &err),
        WEFT_ENOTFOUND, err, "/nonexistent/run.yaml");
}

static void test_config_sft(void)
{
    REQUIRE_OK(parse(SFT "train.batch: 7\n", 0, NULL), err);
    CHECK_STR(weft_config_algorithm(&c), "sft");
    CHECK_INT(c.train.batch, 7);
    CHECK(c.role[0].optim.lr == 1e-5f);
    CHECK_INT(c.n_rewards, 0);
    weft_config_release(&c);
    CHECK_FAILS(parse(SFT "ppo: {epochs: 2}\n", 0, NULL), WEFT_EINVAL, err,
                "run.yaml:5: 'ppo.epochs' is not a key of algorithm sft");
    CHECK_FAILS(parse(SFT "critic: {lr: 1}\n", 0, NULL), WEFT_EINVAL, err,
                "not a key of algorithm sft");
    CHECK_FAILS(parse(SFT "reward: [gsm8k]\n", 0, NULL), WEFT_EINVAL, err,
                "'reward' is not a key of algorithm sft");
    CHECK_FAILS(parse("algorithm: orpo\n", 0, NULL), WEFT_EINVAL, err,
                "reinforce_pp_baseline, gspo, cispo or dapo, not 'orpo'");
}

/* Keys of several algorithms may have one field. */
static void test_config_shared_field(void)
{
#define PAIRS "iterations: 5\ndata.path: d\nalgorithm: "
    REQUIRE_OK(parse(PAIRS "dpo\nmodel.actor: a\ndpo.beta: 0.5\n", 0, NULL),
               err);
    CHECK(c.preference.beta == 0.5f);
    CHECK(strstr(c.role[0].folder, "/a") != NULL);
    weft_config_release(&c);
    REQUIRE_OK(parse(PAIRS "reward_model\nmodel.reward_model: r\n"
                           "reward_model.lr: 0.25\n",
                     0, NULL),
               err);
    CHECK(c.role[0].optim.lr == 0.25f);
    CHECK(strstr(c.role[0].folder, "/r") != NULL);
    weft_config_release(&c);
    CHECK_FAILS(parse(PAIRS "dpo\nmodel.actor: a\nreference.every: 1\n"
                            "dpo.reference_free: true\n",
                      0, NULL),
                WEFT_EINVAL, err,
                "without a reference ('dpo.reference_free' is true)");
    CHECK_FAILS(parse(PAIRS "dpo\nmodel.actor: a\nkto.beta: 0.5\n", 0, NULL),
                WEFT_EINVAL, err, "'kto.beta' is not a key of algorithm dpo");
}

/* ---- Overrides, and what is written -------------------------------------- */

static void test_config_override(void)
{
    static const char *const words[] = {"iterations=9",
                                        "ppo.lambda=0.9",
                                        "ppo.lambda=0.8",
                                        "run_dir=/r/../x",
                                        "data.system=a: b # c",
                                        "data.prompt_key=\"q\\n\"",
                                        "seed=",
                                        "reward=[{type: boxed, weight: 3}]"};
    REQUIRE_OK(parse(LEAST "seed: 4\n", (int) WEFT_COUNT(words), words), err);
    CHECK_INT(c.iterations, 9);
    CHECK(c.policy.lambda == 0.8f);
    CHECK_STR(c.run_dir, "/x");
    CHECK_STR(c.data.system, "a: b # c");
    CHECK_STR(c.data.prompt_key, "q\n");
    CHECK_INT(c.seed, 1);
    CHECK_INT(c.reward[0].type, WEFT_REWARD_BOXED);
    CHECK(c.reward[0].weight == 3);
    weft_config_release(&c);

    /* Paths of words are under the working directory. */
    char *cwd = getcwd(NULL, 0);
    static const char *const paths[] = {
        "model.reference=x/../r", "model.critic=\"q\"",
        "reward=[{type: model, model: rm}, {type: program, command: [g]}]"};
    REQUIRE_OK(parse(LEAST, (int) WEFT_COUNT(paths), paths), err);
    size_t n = strlen(cwd);
    CHECK_STR(c.role[0].folder, "/m/a");
    CHECK(strncmp(c.role[2].folder, cwd, n) == 0);
    CHECK_STR(c.role[2].folder + n, "/r");
    CHECK_STR(c.role[1].folder + n, "/q");
    CHECK_STR(c.reward[0].model + n, "/rm");
    CHECK_STR(c.reward[1].directory, cwd);
    free(cwd);
    weft_config_release(&c);

    CHECK_FAILS(word("ppo.epochs=x"), WEFT_EINVAL, err,
                "argument 'ppo.epochs=x': 'ppo.epochs' must be a whole "
                "number, not 'x'");
    CHECK_FAILS(word("ppo.epoch=1"), WEFT_EINVAL, err,
                "argument 'ppo.epoch=1': unknown key 'ppo.epoch'; did you "
                "mean 'ppo.epochs'?");
    CHECK_FAILS(word("fast"), WEFT_EINVAL, err,
                "argument 'fast' must be key=value");
    CHECK_FAILS(word("=1"), WEFT_EINVAL, err, "must be key=value");
    CHECK_FAILS(word("reward=[{"), WEFT_EFORMAT, err, "argument 'reward=[{'");
    CHECK_FAILS(word("run_dir=\xff"), WEFT_EINVAL, err, "is not UTF-8");
    CHECK_FAILS(word("run_dir=\"a"), WEFT_EFORMAT, err, "argument");
}

static void check_round_trip(const char *text)
{
    char dir[] = "/tmp/weft-config-XXXXXX", path[64], again[64];
    struct weft_config d;
    char *a, *b;
    size_t n, m;
    REQUIRE_OK(parse(text, 0, NULL), err);
    REQUIRE(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/config.yaml", dir);
    snprintf(again, sizeof again, "%s/again.yaml", dir);
    REQUIRE_OK(weft_config_write(&c, path, &err), err);
    REQUIRE_OK(weft_config_read(path, 0, NULL, &schema, &d, &err), err);
    REQUIRE_OK(weft_config_write(&d, again, &err), err);
    CHECK_INT(weft_config_check_resume(&c, &d, &err), 0);
    CHECK_STR(d.run_dir, c.run_dir);
    CHECK(d.runtime.memory_limit_gib == c.runtime.memory_limit_gib);
    CHECK_INT(d.runtime.devices, c.runtime.devices);
    CHECK_INT(d.runtime.gpus, c.runtime.gpus);
    CHECK_INT(d.runtime.ranks_per_gpu, c.runtime.ranks_per_gpu);
    CHECK_INT(d.runtime.cpu_devices, c.runtime.cpu_devices);
    CHECK(d.runtime.gpu_memory_gib == c.runtime.gpu_memory_gib);
    CHECK_INT(d.runtime.gpu_messages, c.runtime.gpu_messages);
    REQUIRE_OK(weft_file_read(path, 0, &a, &n, &err), err);
    REQUIRE_OK(weft_file_read(again, 0, &b, &m, &err), err);
    CHECK_STR(a, b);
    weft_free(a);
    weft_free(b);
    weft_config_release(&c);
    weft_config_release(&d);
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
}

static void test_config_write(void)
{
    check_round_trip(LEAST);
    check_round_trip(SFT "plan: 'a b/plan.json'\n");
    check_round_trip(
        SFT
        "runtime: {devices: gpu, gpus: 2, ranks_per_gpu: 4, cpu_devices: 3, "
        "gpu_memory_gib: 70.5, gpu_messages: mpi}\n");
    check_round_trip(
        "iterations: 3\n"
        "data: {path: 'p: q.jsonl', template: \"{role}\\t\\\"{content}\\\"\"}"
        "\nmodel: {actor: \"m/\\u00e9\", critic: m/c}\n"
        "ppo: {lambda: 0.1234567, kl: {place: loss, kind: k2, coef: 1e-7}}\n"
        "rollout: {temperature: 0.3333333}\n"
        "runtime: {nap: false, memory_limit_gib: 0.1, place: device}\n"
        "layout: 'dp2tp2,zero=1'\n"
        "train: {zero: 1, micro_batches: 2}\n"
        "reward:\n"
        "- {type: regex, pattern: '\\d+ \"x\" # no'}\n"
        "- {type: program, command: [a, \"b\\tc\"], weight: 0.1}\n"
        "- {type: length, target: 3}\n");
}

/* Cut anywhere, or with any byte changed, a file is read or refused. */
static void test_config_damaged(void)
{
    static const char text[] = LEAST
        "ppo: {kl: {coef: 0.1}, clip_low: 0.1}\nseed: 3\n";
    char copy[sizeof text];
    for (size_t i = 0; i < sizeof text - 1; i++) {
        if (weft_config_parse(text, i, "f", "/", 0, NULL, &schema, &c, &err)
            == 0)
            weft_config_release(&c);
        else
            CHECK(err.text[0] != 0 && err.code != 0);
        for (int k = 0; k < 4; k++) {
            memcpy(copy, text, sizeof text);
            copy[i] = "\xff\0[\n"[k];
            if (weft_config_parse(copy, sizeof text - 1, "f", "/", 0, NULL,
                                  &schema, &c, &err)
                == 0)
                weft_config_release(&c);
            else
                CHECK(err.code != 0);
        }
    }
}

WEFT_TESTS("config/config", {"test_config_groups", test_config_groups},
           {"test_config_defaults", test_config_defaults},
           {"test_config_values", test_config_values},
           {"test_config_rewards", test_config_rewards},
           {"test_config_derived", test_config_derived},
           {"test_config_opens", test_config_opens},
           {"test_config_refused", test_config_refused},
           {"test_config_sft", test_config_sft},
           {"test_config_shared_field", test_config_shared_field},
           {"test_config_opens_words", test_config_opens_words},
           {"test_config_override", test_config_override},
           {"test_config_write", test_config_write},
           {"test_config_damaged", test_config_damaged})
