/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the configuration's keys. Keys of a group follow one
 * another. */
#include "config/keys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"

#define AT(field) offsetof(struct weft_config, field)
#define NUM WEFT_KEY_NUMBERS
#define BIT(algorithm) (1u << WEFT_ALGO_##algorithm)
#define SFT BIT(SFT)
#define ALL (BIT(CISPO) * 2 - 1)
#define RL (ALL & ~SFT)
#define CRITIC BIT(PPO) /* those that have one */
/* Those whose rewards are of tokens, not of responses. */
#define TOKENS (BIT(PPO) | BIT(REINFORCE_PP))
#define REQ WEFT_KEY_REQUIRED
#define MANY 1e9

#define INT(name, field, standard, min, max, flags, meaning)                 \
    {                                                                        \
        name, WEFT_KEY_INT, AT(field), standard, min, max, NULL, flags,      \
            meaning                                                          \
    }
#define FLOAT(name, field, standard, min, max, flags, meaning)               \
    {                                                                        \
        name, WEFT_KEY_FLOAT, AT(field), standard, min, max, NULL, flags,    \
            meaning                                                          \
    }
#define DOUBLE(name, field, standard, min, max, flags, meaning)              \
    {                                                                        \
        name, WEFT_KEY_DOUBLE, AT(field), standard, min, max, NULL, flags,   \
            meaning                                                          \
    }
#define BOOL(name, field, standard, flags, meaning)                          \
    {                                                                        \
        name, WEFT_KEY_BOOL, AT(field), standard, 0, 0, NULL, flags, meaning \
    }
#define ENUM(name, field, standard, first, words, flags, meaning)            \
    {                                                                        \
        name, WEFT_KEY_ENUM, AT(field), standard, first, 0, words, flags,    \
            meaning                                                          \
    }
#define STRING(name, field, standard, flags, meaning)                        \
    {                                                                        \
        name, WEFT_KEY_STRING, AT(field), standard, 0, 0, NULL, flags,       \
            meaning                                                          \
    }
#define WORD(name, field, standard, words, flags, meaning)                   \
    {                                                                        \
        name, WEFT_KEY_WORD, AT(field), standard, 0, 0, words, flags,        \
            meaning                                                          \
    }
#define PATH(name, field, flags, meaning)                                    \
    {                                                                        \
        name, WEFT_KEY_PATH, AT(field), NULL, 0, 0, NULL, flags, meaning     \
    }

#define OPTIMIZER(who, optim, lr_standard, flags)                            \
    FLOAT(who ".lr", optim.lr, lr_standard, 0, 10, flags | NUM,              \
          "learning rate at its highest (verl's)"),                          \
        ENUM(who ".schedule", optim.schedule, "constant", WEFT_LR_CONSTANT,  \
             "constant|linear|cosine", flags | NUM,                          \
             "learning rate after the warm-up"),                             \
        INT(who ".warmup_steps", optim.warmup_steps, "0", 0, MANY,           \
            flags | NUM, "optimizer steps of linear warm-up"),               \
        FLOAT(who ".min_lr_ratio", optim.min_lr_ratio, "0", 0, 1,            \
              flags | NUM, "of lr, at the end of linear and cosine"),        \
        FLOAT(who ".beta1", optim.beta1, "0.9", 0, 0.99999, flags | NUM,     \
              "AdamW: decay of the first moment"),                           \
        FLOAT(who ".beta2", optim.beta2, "0.999", 0, 0.99999999,             \
              flags | NUM, "AdamW: decay of the second moment"),             \
        FLOAT(who ".eps", optim.eps, "1e-8", 1e-20, 1, flags | NUM,          \
              "AdamW: added to the root"),                                   \
        FLOAT(who ".weight_decay", optim.weight_decay, "0", 0, 10,           \
              flags | NUM, "AdamW: decoupled weight decay"),                 \
        FLOAT(who ".grad_clip", optim.grad_clip, "1", 0, 1e6, flags | NUM,   \
              "largest global gradient norm; 0: off")

#define ALGORITHMS                                                           \
    "ppo|sft|grpo|dr_grpo|rloo|reinforce_pp|reinforce_pp_baseline|gspo|"     \
    "cispo"

const struct weft_config_key weft_config_keys[] = {
    ENUM("algorithm", algorithm, "ppo", WEFT_ALGO_PPO, ALGORITHMS, ALL | NUM,
         "how to train: PPO, supervised fine-tuning, or RL without a critic"),
    {"seed", WEFT_KEY_SEED, AT(seed), "1", 0, 9.2e18, NULL, ALL | NUM,
     "of every random number"},
    {"run_dir", WEFT_KEY_PATH_CWD, AT(run_dir), NULL, 0, 0, NULL, ALL,
     "where the run is kept; runs/<file's name>"},
    INT("iterations", iterations, NULL, 1, MANY, ALL | REQ,
        "of generating and training, or SFT steps"),

    PATH("data.path", data.path, ALL | NUM | REQ, "a JSONL file"),
    STRING("data.prompt_key", data.prompt_key, NULL, ALL | NUM,
           "key of the prompt or messages; else found"),
    STRING("data.response_key", data.response_key, NULL, SFT | NUM,
           "key of the response; else found"),
    STRING("data.label_key", data.label_key, NULL, RL | NUM,
           "key of the label for rules; else found"),
    STRING(
        "data.template", data.template, "auto", ALL | NUM,
        "chat template of messages, and of plain prompts as a user's: auto "
        "(the model folder's; without one plain prompts stay as they "
        "are), none, folder, chatml, llama3, mistral, or a "
        "pattern with {role} and {content}"),
    STRING("data.date", data.date, "2024-07-26", ALL | NUM,
           "today's date for templates that write it; fixed, so that texts "
           "do not change with the calendar"),
    STRING("data.system", data.system, NULL, ALL | NUM,
           "system message put first"),
    INT("data.max_prompt_tokens", data.max_prompt_tokens, "512", 1, 1e7,
        ALL | NUM,
        "longest prompt; prompt and response together may be as long as the "
        "model's positions"),
    WORD("data.long_prompts", data.long_prompts, "refuse",
         "refuse|skip|truncate", ALL | NUM,
         "what becomes of rows that are longer; truncate cuts a prompt's "
         "beginning, a response's end"),
    BOOL("data.shuffle", data.shuffle, "true", ALL | NUM,
         "a new order every epoch"),
    BOOL("data.add_eos", data.add_eos, "true", SFT | NUM,
         "end a plain response with EOS; a chat template ends its turns "
         "itself"),

    PATH("model.actor", model.actor, ALL | NUM | REQ,
         "folder of the language model to train"),
    PATH("model.critic", model.critic, CRITIC | NUM | REQ,
         "folder with a scalar head, or a language model's trunk"),
    PATH("model.reference", model.reference, RL | NUM,
         "folder of the reference; model.actor"),
    BOOL("model.reference_offload", model.reference_offload, "false", RL,
         "the host keeps its weights between uses"),

    INT("rollout.prompts", rollout.prompts, "64", 1, 1e6, RL | NUM,
        "prompts per iteration (fewer than verl's 1024: for one node)"),
    INT("rollout.samples_per_prompt", rollout.samples_per_prompt, "1", 1, 1e5,
        RL | NUM, "responses to each (PPO in verl and TRL)"),
    INT("rollout.max_new_tokens", rollout.max_new_tokens, "512", 1, 1e7,
        RL | NUM, "longest response (verl's default)"),
    FLOAT("rollout.temperature", rollout.temperature, "1", 0.001, 1000,
          RL | NUM, "divides the logits; 1: the policy itself is sampled"),
    INT("rollout.top_k", rollout.top_k, "0", 0, MANY, RL | NUM,
        "sample from the k likeliest; 0: all"),
    FLOAT("rollout.top_p", rollout.top_p, "1", 1e-6, 1, RL | NUM,
          "sample from this much probability"),
    STRING("rollout.stop", rollout.stop, NULL, RL | NUM,
           "text that ends a response"),
    INT("rollout.slots", rollout.slots, "32", 1, 65536, RL,
        "sequences decoded together, per device"),
    INT("rollout.chunk_tokens", rollout.chunk_tokens, "16", 1, 65536, RL,
        "decode steps per task"),
    INT("rollout.prefill_tokens", rollout.prefill_tokens, "256", 1, 1e6, RL,
        "prompt rows per step"),

    INT("ppo.epochs", ppo.epochs, "1", 1, 1000, RL | NUM,
        "passes over an iteration's samples (verl's; TRL's is 4)"),
    INT("ppo.mini_batches", ppo.mini_batches, "4", 1, 1e6, RL | NUM,
        "optimizer steps per epoch (verl's 1024 samples by 256); at most "
        "one per sample"),
    FLOAT("ppo.gamma", ppo.gamma, "1", 0, 1, TOKENS | NUM,
          "discount; 1: only the whole response is scored"),
    FLOAT("ppo.lambda", ppo.lambda, "0.95", 0, 1, CRITIC | NUM,
          "GAE's lambda (TRL's; verl's is 1)"),
    BOOL("ppo.whiten_advantages", ppo.whiten_advantages, "true", RL | NUM,
         "mean 0 and variance 1 over the iteration"),
    FLOAT("ppo.clip_low", ppo.clip_low, "0.2", 0, 1, RL | NUM,
          "ratio is clipped below 1 - this (Schulman et al. 2017)"),
    FLOAT("ppo.clip_high", ppo.clip_high, "0.2", 0, 1e6, RL | NUM,
          "ratio is clipped above 1 + this"),
    FLOAT("ppo.dual_clip", ppo.dual_clip, "0", 0, 1e6, RL | NUM,
          "bound for negative advantages, above 1; 0: off"),
    FLOAT("ppo.value_clip", ppo.value_clip, "0.2", 0, 1e6, CRITIC | NUM,
          "clips value changes (TRL's; verl's is 0.5); 0: off"),
    FLOAT("ppo.entropy_coef", ppo.entropy_coef, "0", -1e3, 1e3, RL | NUM,
          "weight of the entropy bonus"),
    ENUM("ppo.kl.place", ppo.kl_place, "reward", WEFT_KL_IN_REWARD,
         "reward|loss|none", RL | NUM, "where the KL penalty goes"),
    ENUM("ppo.kl.kind", ppo.kl_kind, "k1", 1, "k1|k2|k3", RL | NUM,
         "its estimator"),
    FLOAT("ppo.kl.coef", ppo.kl_coef, "0.05", 0, 1e6, RL | NUM,
          "its weight, adaptive: at first (TRL's PPO)"),
    ENUM("ppo.kl.controller", ppo.kl_control, "fixed", WEFT_KL_FIXED,
         "fixed|adaptive", RL | NUM, "how the weight moves"),
    FLOAT("ppo.kl.target", ppo.kl_target, "6", 1e-9, 1e6, RL | NUM,
          "adaptive: KL aimed at (Ziegler et al. 2019)"),
    INT("ppo.kl.horizon", ppo.kl_horizon, "10000", 1, MANY, RL | NUM,
        "adaptive: samples to get there (Ziegler et al. 2019)"),
    ENUM("ppo.aggregation", ppo.aggregation, "token-mean",
         WEFT_AGG_TOKEN_MEAN,
         "token-mean|seq-mean-token-sum|seq-mean-token-mean"
         "|seq-mean-token-sum-norm",
         RL | NUM, "how tokens' losses become one (verl's names, default)"),
    FLOAT("ppo.missing_eos_penalty", ppo.missing_eos_penalty, "0", 0, 1e6,
          RL | NUM, "off the score of a cut response"),
    FLOAT("ppo.reward_clip", ppo.reward_clip, "0", 0, 1e6, RL | NUM,
          "clips the score to +-this; 0: off"),
    INT("ppo.critic_warmup", ppo.critic_warmup, "0", 0, MANY, CRITIC | NUM,
        "iterations that train the critic alone"),

    /* Default learning rates are verl's. AdamW's settings are PyTorch's,
     * except for weight decay, which is 0 as in TRL. */
    OPTIMIZER("actor", actor_optim, "1e-6", ALL),
    OPTIMIZER("critic", critic_optim, "1e-5", CRITIC),

    INT("train.batch", train.batch, "32", 1, 1e6, SFT | NUM,
        "samples per step"),
    INT("train.micro_batch_tokens", train.micro_batch_tokens, "1024", 1, 1e8,
        ALL, "rows per micro-batch"),
    INT("train.micro_batches", train.micro_batches, "0", 0, 1e6, ALL,
        "parts of each gradient group; 0: by tokens"),
    INT("train.zero", train.zero, "0", 0, 3, ALL,
        "split over dp: 1 optimizer, 2 and gradients, 3 and weights"),
    BOOL("train.intra_stage_fusion", train.intra_stage_fusion, "false",
         CRITIC,
         "actor and critic share one bidirectional pipeline schedule"),
    INT("train.joined_mini_batches", train.joined_mini_batches, "1", 1, 1e6,
        CRITIC, "of an epoch in one fused schedule"),
    INT("train.mini_batches_ahead", train.mini_batches_ahead, "16", 0,
        WEFT_LOTS - 1, RL,
        "submitted and not ended; 0: all (a task's record has 4 kB)"),
    PATH("train.schedule", train.schedule, CRITIC,
         "the fused schedule, of weft schedule; else it is searched"),
    ENUM("train.schedule_search", train.schedule_search, "once",
         WEFT_FUSE_ONCE, "once|iteration", CRITIC,
         "with stage times of the first two iterations, or of each"),
    INT("train.schedule_evaluations", train.schedule_evaluations, "0", 0,
        MANY, CRITIC, "of a search; 0: by the schedule's size"),
    BOOL("train.recompute", train.recompute, "false", ALL,
         "recompute activations, for less memory"),

    ENUM("numerics.dtype", numerics.dtype, NULL, WEFT_F32, "f32|bf16",
         ALL | NUM,
         "of weights and activations; else model.actor's (f16: f32)"),
    INT("numerics.tensor_blocks", numerics.tensor_blocks, "0", 0, 8,
        ALL | NUM, "T: 1, 2, 4 or 8; 0: the model's default"),
    INT("numerics.gradient_groups", numerics.gradient_groups, "0", 0,
        WEFT_MAX_GROUPS, ALL | NUM,
        "G: largest data parallel degree, a power of two; 0: at most 64, a "
        "mini-batch's samples, and its longest tokens / 512 (if above 4)"),
    WORD("numerics.isa", numerics.isa, NULL, "c|avx2|avx512|avx512_bf16", ALL,
         "kernels; else the best of this CPU"),

    INT("runtime.devices", runtime.devices, "0", 0, WEFT_MAX_DEVICES, ALL,
        "CPU devices; 0: one per core"),
    ENUM("runtime.place", runtime.place, "node", WEFT_PLACE_NODE,
         "node|device", ALL, "who keeps copies: a node, or each device"),
    BOOL("runtime.overlap", runtime.overlap, "true", RL,
         "generate ahead while the critic trains"),
    ENUM("runtime.nap", runtime.nap, "auto", -1, "auto|false|true", ALL,
         "idle devices sleep instead of spinning"),
    DOUBLE("runtime.watchdog_s", runtime.watchdog_s, "300", 0, 1e9, ALL,
           "report when nothing moves for this long; 0: off"),
    DOUBLE("runtime.memory_limit_gib", runtime.memory_limit_gib, "0", 0, 1e6,
           ALL, "0: what the machine has"),

    INT("checkpoint.every", checkpoint.every, "10", 0, MANY, ALL,
        "iterations; 0: only at the end"),
    INT("checkpoint.keep", checkpoint.keep, "2", 1, MANY, ALL,
        "newest checkpoints kept"),
    ENUM("checkpoint.dtype", checkpoint.dtype, "run", -1, "run|f32|bf16", ALL,
         "of the weights in a checkpoint's model folders"),

    BOOL("resume.accept_changed_inputs", resume.accept_changed_inputs,
         "false", ALL, "go on though files that the run reads have changed"),

    PATH("plan", plan, ALL, "file of 'weft plan'; else layout's"),
    STRING("layout", layout, NULL, ALL,
           "of all calls, like dp2tp2pp1,zero=1; else data parallel"),

    BOOL("trace", trace, "false", ALL, "write StarPU's trace and our own"),
    INT("trace_iterations", trace_iterations, "3", 1, INT32_MAX, ALL,
        "iterations that StarPU's trace holds, the first of this start"),
    BOOL("tensorboard", tensorboard, "false", ALL, "write an event file"),
    WORD("metric_names", metric_names, "verl", "verl|trl", ALL,
         "trl adds TRL's names"),
    INT("samples_kept", samples_kept, "8", -1, MANY, RL,
        "samples written per iteration; -1: all"),
    ENUM("digest", digest, "false", WEFT_DIGEST_NONE, "false|true|values", RL,
         "write hashes of an iteration's numbers, or all"),
};
const size_t weft_config_n_keys = WEFT_COUNT(weft_config_keys);

#undef AT
#define AT(field) offsetof(struct weft_reward_config, field)
#define ANY ((1u << WEFT_N_REWARD_TYPES) - 1)
#define OF(type) (1u << WEFT_REWARD_##type)
#define RNUM WEFT_REWARD_KEY_NUMBERS

/* In the order of the enum. */
#define TYPES                                                                \
    "model|gsm8k|exact_match|boxed|regex|length|program|callback|"           \
    "think_answer"

const struct weft_config_key weft_reward_keys[] = {
    ENUM("type", type, NULL, WEFT_REWARD_MODEL, TYPES, ANY | RNUM,
         "which reward"),
    FLOAT("weight", weight, "1", -1e6, 1e6, ANY | RNUM,
          "factor in the score"),
    ENUM("normalize", normalize, "none", WEFT_NORMALIZE_NONE,
         "none|batch|running", ANY | RNUM,
         "to mean 0 and variance 1, before the weight: over the iteration's "
         "samples, or over all samples so far"),
    FLOAT("clip", clip, "0", 0, 1e6, ANY | RNUM,
          "then clipped to +-this, before the weight; 0: off"),
    STRING("name", name, NULL, ANY, "in metrics; the type's name"),
    PATH("model", model, OF(MODEL) | RNUM, "folder with a scalar head"),
    WORD("method", method, NULL, "strict|flexible|around|most|least",
         OF(GSM8K) | OF(LENGTH) | OF(THINK_ANSWER) | RNUM,
         "gsm8k and think_answer: strict (default), flexible; length: "
         "around (default), most, least"),
    STRING("pattern", pattern, NULL, OF(REGEX) | RNUM,
           "PCRE2 pattern to be found in the response"),
    INT("target", target, NULL, 1, 1e7, OF(LENGTH) | RNUM, "tokens"),
    {"command", WEFT_KEY_LIST, AT(command), NULL, 0, 0, NULL,
     OF(PROGRAM) | RNUM, "program and arguments"},
    PATH("directory", directory, OF(PROGRAM),
         "where it runs; this file's folder"),
    DOUBLE("timeout_s", timeout_s, "60", 0.001, 1e6, OF(PROGRAM),
           "for an iteration's answers"),
};
const size_t weft_reward_n_keys = WEFT_COUNT(weft_reward_keys);

/* Defaults of algorithms that differ from the table's, with their sources. */
static const struct {
    enum weft_algorithm_id algorithm;
    const char *key, *standard;
} standards[] = {
    {WEFT_ALGO_SFT, "actor.lr", "1e-5"},
    /* verl's GRPO example: 5 responses; a power of two for groups */
    {WEFT_ALGO_GRPO, "rollout.samples_per_prompt", "8"},
    {WEFT_ALGO_GRPO, "ppo.whiten_advantages", "false"},
    {WEFT_ALGO_GRPO, "ppo.kl.place", "loss"},
    {WEFT_ALGO_GRPO, "ppo.kl.kind", "k3"},
    {WEFT_ALGO_GRPO, "ppo.kl.coef", "0.001"}, /* verl's */
    {WEFT_ALGO_GRPO, "ppo.aggregation", "seq-mean-token-mean"},
    /* arXiv 2503.20783: no KL, sums over tokens divided by a constant */
    {WEFT_ALGO_DR_GRPO, "rollout.samples_per_prompt", "8"},
    {WEFT_ALGO_DR_GRPO, "ppo.whiten_advantages", "false"},
    {WEFT_ALGO_DR_GRPO, "ppo.kl.place", "none"},
    {WEFT_ALGO_DR_GRPO, "ppo.aggregation", "seq-mean-token-sum-norm"},
    /* arXiv 2402.14740: k = 4, the KL in the reward, whole responses */
    {WEFT_ALGO_RLOO, "rollout.samples_per_prompt", "4"},
    {WEFT_ALGO_RLOO, "ppo.whiten_advantages", "false"},
    {WEFT_ALGO_RLOO, "ppo.aggregation", "seq-mean-token-sum"},
    /* arXiv 2501.03262, section 3.3 */
    {WEFT_ALGO_REINFORCE_PP_BASELINE, "rollout.samples_per_prompt", "8"},
    {WEFT_ALGO_REINFORCE_PP_BASELINE, "ppo.kl.place", "loss"},
    {WEFT_ALGO_REINFORCE_PP_BASELINE, "ppo.kl.kind", "k2"},
    {WEFT_ALGO_REINFORCE_PP_BASELINE, "ppo.kl.coef", "0.001"},
    /* arXiv 2507.18071, section 5.1 */
    {WEFT_ALGO_GSPO, "rollout.samples_per_prompt", "8"},
    {WEFT_ALGO_GSPO, "ppo.whiten_advantages", "false"},
    {WEFT_ALGO_GSPO, "ppo.kl.place", "none"},
    {WEFT_ALGO_GSPO, "ppo.clip_low", "3e-4"},
    {WEFT_ALGO_GSPO, "ppo.clip_high", "4e-4"},
    {WEFT_ALGO_GSPO, "ppo.aggregation", "seq-mean-token-mean"},
    /* arXiv 2506.13585: no lower bound, no KL, tokens count alike */
    {WEFT_ALGO_CISPO, "rollout.samples_per_prompt", "8"},
    {WEFT_ALGO_CISPO, "ppo.whiten_advantages", "false"},
    {WEFT_ALGO_CISPO, "ppo.kl.place", "none"},
    {WEFT_ALGO_CISPO, "ppo.clip_low", "1"},
};

const char *weft_config_standard(const struct weft_config_key *key,
                                 enum weft_algorithm_id algorithm)
{
    for (size_t i = 0; i < WEFT_COUNT(standards); i++)
        if (standards[i].algorithm == algorithm
            && strcmp(standards[i].key, key->name) == 0)
            return standards[i].standard;
    return key->standard;
}

bool weft_config_generates(const struct weft_config *c)
{
    return c->algorithm != WEFT_ALGO_SFT;
}

bool weft_config_groups(const struct weft_config *c)
{
    return weft_config_generates(c) && !(TOKENS & 1u << c->algorithm);
}

const char *weft_config_algorithm(const struct weft_config *c)
{
    static char word[WEFT_N_ALGOS][32];
    size_t n;
    const char *at = weft_config_word(ALGORITHMS, (int) c->algorithm, &n);
    snprintf(word[c->algorithm], sizeof word[0], "%.*s", (int) n, at);
    return word[c->algorithm];
}

const char *weft_config_word(const char *words, int i, size_t *n_out)
{
    for (; i > 0 && words; i--) {
        words = strchr(words, '|');
        words = words ? words + 1 : NULL;
    }
    if (words)
        *n_out = strcspn(words, "|");
    return words;
}
