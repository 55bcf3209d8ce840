/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of algorithms that learn from responses they generate. */
#include "base/limits.h"
#include "graphs/keys.h"

static const struct weft_config_key keys[] = {
    KEY_INT("rollout.prompts", rollout.prompts, "64", 1, 1e6, KEY_NUM,
            "prompts per iteration (fewer than verl's 1024: for one node)"),
    KEY_INT("rollout.samples_per_prompt", rollout.samples_per_prompt, "1", 1,
            1e5, KEY_NUM, "responses to each (PPO in verl and TRL)"),
    KEY_INT("rollout.refills", rollout.refills, "0", 0, 1000, KEY_NUM,
            "how often an iteration replaces prompts whose responses all "
            "have one score by the data's next (DAPO's dynamic sampling)"),
    KEY_INT("rollout.max_new_tokens", rollout.max_new_tokens, "512", 1, 1e7,
            KEY_NUM, "longest response (verl's default)"),
    KEY_INT("rollout.min_new_tokens", rollout.min_new_tokens, "0", 0, 1e7,
            KEY_NUM,
            "so many tokens do not end a response: what ends it by itself is "
            "not drawn, and a text of rollout.stop goes on"),
    KEY_FLOAT("rollout.temperature", rollout.temperature, "1", 0.001, 1000,
              KEY_NUM, "divides the logits; 1: the policy itself is sampled"),
    KEY_INT("rollout.top_k", rollout.top_k, "0", 0, KEY_MANY, KEY_NUM,
            "sample from the k likeliest; 0: all"),
    KEY_FLOAT("rollout.top_p", rollout.top_p, "1", 1e-6, 1, KEY_NUM,
              "sample from this much probability"),
    KEY_STRING("rollout.stop", rollout.stop, NULL, KEY_NUM,
               "text of any length that ends a response that has it"),
    KEY_BOOL("rollout.ignore_eos", rollout.ignore_eos, "false", KEY_NUM,
             "end-of-sequence tokens end no response (for measurements)"),
    KEY_STRING(
        "rollout.lengths", rollout.lengths, NULL, KEY_NUM,
        "for measurements: responses end after so many tokens at most; "
        "as 'weft simulate --lengths', such as lognormal:100:0.8"),
    KEY_INT("rollout.slots", rollout.slots, "32", 1, 65536, 0,
            "sequences decoded together, per device"),
    KEY_INT("rollout.chunk_tokens", rollout.chunk_tokens, "16", 1, 65536, 0,
            "decode steps per task"),
    KEY_INT("rollout.prefill_tokens", rollout.prefill_tokens, "256", 1, 1e6,
            0, "prompt rows per step"),
    KEY_INT("rollout.kv_blocks", rollout.kv_blocks, "0", 0, KEY_MANY, 0,
            "blocks of 64 tokens that a device's KV cache has for its slots; "
            "0: what their longest texts need together. With fewer, the "
            "text begun last waits when none is left"),
    KEY_BOOL("rollout.prefix_sharing", rollout.prefix_sharing, "true", 0,
             "texts whose prompts begin alike compute that part once and "
             "share its blocks of the KV cache"),
    KEY_BOOL("rollout.inter_stage_fusion", rollout.inter_stage_fusion,
             "false", WEFT_KEY_OPENS,
             "the last samples go on with few replicas, the others are free "
             "for inference (RLHFuse); when, and with how many, is chosen by "
             "simulating the last iterations (keys costs, cluster; without, "
             "none move), or said: {remaining: 20%, instances: 2}"),
    KEY_DOUBLE("rollout.remaining", rollout.remaining, "0", 0, 0.95,
               WEFT_KEY_SHARE | WEFT_KEY_SAYS_HOW,
               "inter_stage_fusion: the share of the samples that is left "
               "then; 0: chosen, or 0.2 (RLHFuse, figure 9) where "
               "rollout.instances is given"),
    KEY_INT("rollout.instances", rollout.instances, "0", 0, 1e6,
            WEFT_KEY_SAYS_HOW,
            "inter_stage_fusion: replicas that go on, or more where their "
            "slots or KV caches are too small; 0: chosen, or half of them "
            "where rollout.remaining is given"),
    KEY_PATH("rollout.decisions", rollout.decisions, WEFT_KEY_SAYS_HOW,
             "inter_stage_fusion: the decisions.jsonl of another run, which "
             "decides for this one"),
    KEY_INT("rollout.staleness", rollout.staleness, "0", 0, 1, KEY_NUM,
            "1: while an iteration trains, the next one's samples are "
            "generated, and inferred by trained models, with the weights "
            "from before that"),
    KEY_INT("ppo.epochs", policy.epochs, "1", 1, 1000, KEY_NUM,
            "passes over an iteration's samples (verl's; TRL's is 4)"),
    KEY_INT("ppo.mini_batches", policy.mini_batches, "4", 1, 1e6, KEY_NUM,
            "optimizer steps per epoch (verl's 1024 samples by 256); at most "
            "one per sample"),
    KEY_ENUM("ppo.whiten_advantages", policy.whiten, "true", WEFT_WHITEN_NONE,
             "false|true|mini_batch", KEY_NUM,
             "mean 0 and variance 1, true: over the iteration; mini_batch: "
             "over each mini-batch, which need not wait for others then"),
    KEY_FLOAT("ppo.clip_low", policy.clip_low, "0.2", 0, 1, KEY_NUM,
              "ratio is clipped below 1 - this (Schulman et al. 2017)"),
    KEY_FLOAT("ppo.clip_high", policy.clip_high, "0.2", 0, 1e6, KEY_NUM,
              "ratio is clipped above 1 + this"),
    KEY_FLOAT("ppo.dual_clip", policy.dual_clip, "0", 0, 1e6, KEY_NUM,
              "bound for negative advantages, above 1; 0: off"),
    KEY_FLOAT("ppo.entropy_coef", policy.entropy_coef, "0", -1e3, 1e3,
              KEY_NUM, "weight of the entropy bonus"),
    KEY_ENUM("ppo.kl.place", policy.kl_place, "reward", WEFT_KL_IN_REWARD,
             "reward|loss|none", KEY_NUM, "where the KL penalty goes"),
    KEY_ENUM("ppo.kl.kind", policy.kl_kind, "k1", 1, "k1|k2|k3|abs", KEY_NUM,
             "its estimator"),
    KEY_FLOAT("ppo.kl.coef", policy.kl_coef, "0.05", 0, 1e6, KEY_NUM,
              "its weight, adaptive: at first (TRL's PPO)"),
    KEY_ENUM("ppo.kl.controller", policy.kl_control, "fixed", WEFT_KL_FIXED,
             "fixed|adaptive", KEY_NUM, "how the weight moves"),
    KEY_FLOAT("ppo.kl.target", policy.kl_target, "6", 1e-9, 1e6, KEY_NUM,
              "adaptive: KL aimed at (Ziegler et al. 2019)"),
    KEY_INT("ppo.kl.horizon", policy.kl_horizon, "10000", 1, KEY_MANY,
            KEY_NUM, "adaptive: samples to get there (Ziegler et al. 2019)"),
    KEY_FLOAT("ppo.kl.stop", policy.kl_stop, "0", 0, 1e6, KEY_NUM,
              "once a mini-batch's mean KL from the policy that generated is "
              "above this, the iteration's others change nothing; 0: off"),
    KEY_BOOL("ppo.recompute_logprobs", policy.recompute_logprobs, "false", 0,
             "inference computes the log-probs of responses once more, and "
             "these count as the old ones (verl's old_log_prob)"),
    KEY_ENUM("ppo.aggregation", policy.aggregation, "token-mean",
             WEFT_AGG_TOKEN_MEAN,
             "token-mean|seq-mean-token-sum|seq-mean-token-mean"
             "|seq-mean-token-sum-norm",
             KEY_NUM,
             "how tokens' losses become one (verl's names, default)"),
    KEY_FLOAT("ppo.missing_eos_penalty", policy.missing_eos_penalty, "0", 0,
              1e6, KEY_NUM, "off the score of a cut response"),
    KEY_FLOAT("ppo.reward_clip", policy.reward_clip, "0", 0, 1e6, KEY_NUM,
              "clips the score to +-this; 0: off"),
    KEY_INT("ppo.overlong.cache", policy.overlong_cache, "0", 0, 1e7, KEY_NUM,
            "so many tokens before rollout.max_new_tokens a penalty for "
            "length begins, which grows to overlong.factor (DAPO); 0: off"),
    KEY_FLOAT("ppo.overlong.factor", policy.overlong_factor, "1", 0, 1e6,
              KEY_NUM, "off the score of a response of all tokens"),
    KEY_BOOL("ppo.overlong.filter", policy.overlong_filter, "false", KEY_NUM,
             "cut responses are not learned from, their rewards count for "
             "others (DAPO; TRL's mask_truncated_completions)"),
    KEY_INT("train.mini_batches_ahead", train.mini_batches_ahead, "16", 0,
            WEFT_LOTS - 1, 0,
            "submitted and not ended; 0: all (a task's record has 4 kB)"),
    KEY_BOOL("train.as_completed", train.as_completed, "false", 0,
             "on devices apart from generation, a mini-batch trains when its "
             "own samples are complete, while others are generated "
             "(FlexRLHF, figure 4)"),
    KEY_BOOL("runtime.overlap", runtime.overlap, "true", 0,
             "generate ahead while the critic trains"),
    KEY_INT("samples_kept", samples_kept, "8", -1, KEY_MANY, 0,
            "samples written per iteration; -1: all"),
    KEY_END};

static const struct weft_config_alias aliases[] = {
    {"rollout.samples_per_prompt",
     "|n|num_generations|n_samples_per_prompt|num_return_sequences"
     "|num_sample_generations|n_samples|"},
    {"rollout.refills", "|max_num_gen_batches|filter_groups"
                        "|dynamic_filtering|"},
    {"rollout.max_new_tokens",
     "|max_completion_length|response_length|max_response_length|max_tokens"
     "|generate_max_len|max_gen_len|"},
    {"rollout.min_new_tokens", "|min_tokens|min_length|min_response_length|"},
    {"rollout.prompts", "|rollout_batch_size|train_batch_size|gen_batch_size"
                        "|num_prompts|n_prompts|"},
    {"rollout.stop", "|stop_sequences|stop_token|stop_strings|"},
    {"rollout.slots", "|max_num_seqs|"},
    {"rollout.kv_blocks", "|num_gpu_blocks_override|max_total_tokens|"},
    {"rollout.prefix_sharing", "|enable_prefix_caching|radix_cache|"},
    {"ppo.mini_batches", "|ppo_mini_batch_size|num_mini_batches"
                         "|mini_batch_size|minibatch_size|"},
    {"ppo.epochs", "|num_ppo_epochs|ppo_epochs|num_iterations|max_epochs|"},
    {"ppo.kl.coef", "|kl_coef|init_kl_coef|init_kl_coeff|kl_coeff|beta"
                    "|kl_loss_coef|kl_penalty_coef|"},
    {"ppo.kl.kind", "|kl_estimator|kl_penalty|kl_loss_type|"},
    {"ppo.kl.target", "|target_kl|kl_target|"},
    {"ppo.kl.horizon", "|kl_horizon|"},
    {"ppo.kl.place", "|use_kl_loss|use_kl_in_reward|"},
    {"ppo.kl.controller", "|kl_ctrl|adap_kl_ctrl|adaptive_kl|"},
    {"ppo.clip_low",
     "|cliprange|clip_range|clip_ratio|eps_clip|epsilon|clip_ratio_low"
     "|epsilon_low|"},
    {"ppo.clip_high", "|clip_ratio_high|epsilon_high|eps_clip_high|"},
    {"ppo.dual_clip", "|clip_ratio_c|dual_clip_ratio|"},
    {"ppo.entropy_coef", "|entropy_coeff|ent_coef|entropy_loss_coef|"},
    {"ppo.whiten_advantages", "|whiten_rewards|normalize_advantage"
                              "|scale_rewards|use_whitening|"},
    {"ppo.aggregation", "|loss_agg_mode|loss_type|"},
    {"ppo.overlong.cache", "|overlong_buffer|overlong_buffer_len"
                           "|soft_punish_cache|"},
    {"ppo.overlong.factor", "|overlong_penalty_factor|penalty_factor|"},
    {"ppo.overlong.filter", "|mask_truncated_completions|overlong_filter"
                            "|filter_overlong|"},
    {"ppo.reward_clip", "|reward_clip_range|cliprange_reward|"},
    {NULL, NULL}};

/* ---- What follows from other keys -------------------------------------- */

static int64_t samples(const struct weft_config *c)
{
    return (int64_t) c->rollout.prompts * c->rollout.samples_per_prompt;
}

/* At most one mini-batch per sample. */
static int derive_mini_batches(struct weft_config *c)
{
    c->policy.mini_batches = (int32_t) weft_min64(c->policy.mini_batches,
                                                  samples(c));
    return 0;
}

static const struct weft_config_derived derived[] = {
    {"ppo.mini_batches", derive_mini_batches}, {NULL, NULL}};

/* ---- Checks ------------------------------------------------------------ */

static int check_samples(const struct weft_config *c, struct weft_err *err)
{
    if (samples(c) > 10 * 1000 * 1000)
        return weft_err_set(err, WEFT_EINVAL,
                            "'rollout.prompts' times samples_per_prompt is "
                            "%lld samples; at most 10000000 fit an iteration",
                            (long long) samples(c));
    return 0;
}

static int check_mini_batches(const struct weft_config *c,
                              struct weft_err *err)
{
    if (c->policy.mini_batches > samples(c))
        return weft_err_set(err, WEFT_EINVAL,
                            "'ppo.mini_batches' is %d, but an iteration has "
                            "only %lld samples (rollout.prompts times "
                            "samples_per_prompt)",
                            c->policy.mini_batches, (long long) samples(c));
    return 0;
}

static int check_dual_clip(const struct weft_config *c, struct weft_err *err)
{
    if (c->policy.dual_clip > 0 && c->policy.dual_clip <= 1)
        return weft_err_set(err, WEFT_EINVAL,
                            "'ppo.dual_clip' must be above 1 (3 is usual), "
                            "or 0 for off, not %g",
                            (double) c->policy.dual_clip);
    return 0;
}

static int check_controller(const struct weft_config *c, struct weft_err *err)
{
    if (c->policy.kl_control == WEFT_KL_ADAPTIVE
        && c->policy.kl_place != WEFT_KL_IN_REWARD)
        return weft_err_set(err, WEFT_EINVAL,
                            "'ppo.kl.controller' adaptive needs "
                            "'ppo.kl.place' reward");
    return 0;
}

static int check_coef(const struct weft_config *c, struct weft_err *err)
{
    if (c->policy.kl_control == WEFT_KL_ADAPTIVE && c->policy.kl_coef <= 0)
        return weft_err_set(err, WEFT_EINVAL,
                            "'ppo.kl.coef' must be above 0 for the adaptive "
                            "controller, which multiplies it");
    return 0;
}

static int check_refills(const struct weft_config *c, struct weft_err *err)
{
    if (c->rollout.refills > 0 && c->rollout.samples_per_prompt < 2)
        return weft_err_set(err, WEFT_EINVAL,
                            "'rollout.refills' compares the responses to a "
                            "prompt: 'rollout.samples_per_prompt' must be at "
                            "least 2");
    return 0;
}

static int check_min_new_tokens(const struct weft_config *c,
                                struct weft_err *err)
{
    if (c->rollout.min_new_tokens > c->rollout.max_new_tokens)
        return weft_err_set(err, WEFT_EINVAL,
                            "'rollout.min_new_tokens' is %d, but a response "
                            "has at most %d (rollout.max_new_tokens)",
                            c->rollout.min_new_tokens,
                            c->rollout.max_new_tokens);
    return 0;
}

/* Keys of inter-stage fusion say nothing without it. */
static int check_remaining(const struct weft_config *c, struct weft_err *err)
{
    const char *name = c->rollout.remaining > 0 ? "rollout.remaining"
                     : c->rollout.instances > 0 ? "rollout.instances"
                     : c->rollout.decisions     ? "rollout.decisions"
                                                : NULL;
    if (c->rollout.decisions
        && (c->rollout.remaining > 0 || c->rollout.instances > 0))
        return weft_err_set(err, WEFT_EINVAL,
                            "'rollout.decisions' says when samples move, and "
                            "so does '%s': leave one out",
                            name);
    if (name && !c->rollout.inter_stage_fusion)
        return weft_err_set(err, WEFT_EINVAL,
                            "'%s' says when samples move to fewer replicas: "
                            "set rollout.inter_stage_fusion, or leave it out",
                            name);
    return 0;
}

static int check_overlong(const struct weft_config *c, struct weft_err *err)
{
    if (c->policy.overlong_cache > c->rollout.max_new_tokens)
        return weft_err_set(
            err, WEFT_EINVAL,
            "'ppo.overlong.cache' is %d tokens, but a "
            "response has at most %d (rollout.max_new_tokens)",
            c->policy.overlong_cache, c->rollout.max_new_tokens);
    return 0;
}

static const struct weft_config_rule rules[] = {
    {"rollout.refills", check_refills},
    {"rollout.min_new_tokens", check_min_new_tokens},
    {"rollout.inter_stage_fusion", check_remaining},
    {"ppo.overlong.cache", check_overlong},
    {"rollout.prompts", check_samples},
    {"ppo.mini_batches", check_mini_batches},
    {"ppo.dual_clip", check_dual_clip},
    {"ppo.kl.controller", check_controller},
    {"ppo.kl.coef", check_coef},
    {NULL, NULL}};

const struct weft_config_table weft_policy_keys = {
    .keys = keys, .derived = derived, .rules = rules, .aliases = aliases};

/* ---- Some of them ------------------------------------------------------ */

static const struct weft_config_key token_keys[] = {
    KEY_FLOAT("ppo.gamma", policy.gamma, "1", 0, 1, KEY_NUM,
              "discount; 1: only the whole response is scored"),
    KEY_END};

const struct weft_config_table weft_token_keys = {.keys = token_keys};

const struct weft_config_table *const weft_policy_tables[] = {
    &weft_actor_keys, &weft_reference_keys, &weft_policy_keys,
    &weft_label_keys, NULL};

static int check_group(const struct weft_config *c, struct weft_err *err)
{
    if (c->rollout.samples_per_prompt < 2)
        return weft_err_set(err, WEFT_EINVAL,
                            "algorithm %s compares the responses to a "
                            "prompt: 'rollout.samples_per_prompt' must be at "
                            "least 2",
                            c->algorithm->name);
    return 0;
}

const struct weft_config_rule weft_group_rules[] = {
    {"rollout.samples_per_prompt", check_group}, {NULL, NULL}};
