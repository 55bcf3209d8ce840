/* SPDX-License-Identifier: Apache-2.0 */
/* Guesses which key was meant by an unknown name: a misspelt key, one in the
 * wrong group, or another framework's name for it. */
#include <stdio.h>
#include <string.h>

#include "base/edit_distance.h"
#include "config/keys.h"

/* What TRL, verl and OpenRLHF call Weft's keys; compared with the last part of
 * a dotted name. Some mean a size where Weft's key is a count; the message
 * shows the key's meaning, which says so. */
static const struct foreign_name {
    const char *ours;
    const char *theirs; /* between bars */
} foreign_names[] = {
    {"actor.lr", "|learning_rate|actor_learning_rate|"},
    {"critic.lr", "|critic_learning_rate|value_learning_rate|"},
    {"actor.schedule", "|lr_scheduler_type|lr_scheduler|lr_decay_style|"},
    {"actor.warmup_steps", "|num_warmup_steps|lr_warmup_steps|warmup_ratio"
                           "|lr_warmup_steps_ratio|lr_warmup_ratio|"},
    {"actor.grad_clip", "|max_grad_norm|clip_grad|max_norm|grad_norm|"},
    {"actor.beta1", "|adam_beta1|betas|adam_betas|"},
    {"actor.beta2", "|adam_beta2|"},
    {"actor.eps", "|adam_epsilon|epsilon_adam|"},
    {"actor.weight_decay", "|l2|"},
    {"rollout.samples_per_prompt",
     "|n|num_generations|n_samples_per_prompt|num_return_sequences"
     "|num_sample_generations|n_samples|"},
    {"rollout.max_new_tokens",
     "|max_completion_length|response_length|max_response_length|max_tokens"
     "|generate_max_len|max_gen_len|"},
    {"rollout.prompts", "|rollout_batch_size|train_batch_size|gen_batch_size"
                        "|num_prompts|n_prompts|"},
    {"rollout.stop", "|stop_sequences|stop_token|stop_strings|"},
    {"rollout.slots", "|max_num_seqs|"},
    {"data.max_prompt_tokens",
     "|max_prompt_length|prompt_max_len|max_seq_length|max_length|"},
    {"data.path", "|dataset_name|dataset|train_files|train_file|prompt_data"
                  "|dataset_path|data_path|"},
    {"data.prompt_key", "|input_key|"},
    {"data.response_key", "|output_key|completion_key|"},
    {"data.label_key", "|ground_truth_key|answer_key|"},
    {"data.template", "|chat_template|apply_chat_template|input_template|"},
    {"data.system", "|system_prompt|"},
    {"ppo.mini_batches", "|ppo_mini_batch_size|num_mini_batches"
                         "|mini_batch_size|minibatch_size|"},
    {"train.micro_batch_tokens",
     "|ppo_micro_batch_size|ppo_micro_batch_size_per_gpu"
     "|per_device_train_batch_size|micro_train_batch_size"
     "|ppo_max_token_len_per_gpu|micro_batch_size"
     "|gradient_accumulation_steps|"},
    {"ppo.epochs", "|num_ppo_epochs|ppo_epochs|num_iterations|max_epochs|"},
    {"iterations", "|num_train_epochs|total_epochs|max_steps"
                   "|total_training_steps|num_episodes|total_episodes"
                   "|epochs|steps|"},
    {"ppo.kl.coef", "|kl_coef|init_kl_coef|init_kl_coeff|kl_coeff|beta"
                    "|kl_loss_coef|kl_penalty_coef|"},
    {"ppo.kl.kind", "|kl_estimator|kl_penalty|kl_loss_type|"},
    {"ppo.kl.target", "|target_kl|kl_target|"},
    {"ppo.kl.horizon", "|kl_horizon|"},
    {"ppo.kl.place", "|use_kl_loss|use_kl_in_reward|"},
    {"ppo.kl.controller", "|kl_ctrl|adap_kl_ctrl|adaptive_kl|"},
    {"ppo.lambda", "|lam|lambd|gae_lambda|"},
    {"ppo.clip_low",
     "|cliprange|clip_range|clip_ratio|eps_clip|epsilon|clip_ratio_low"
     "|epsilon_low|"},
    {"ppo.clip_high", "|clip_ratio_high|epsilon_high|eps_clip_high|"},
    {"ppo.dual_clip", "|clip_ratio_c|dual_clip_ratio|"},
    {"ppo.value_clip", "|cliprange_value|clip_range_value|"},
    {"ppo.entropy_coef", "|entropy_coeff|ent_coef|entropy_loss_coef|"},
    {"ppo.whiten_advantages", "|whiten_rewards|normalize_advantage"
                              "|scale_rewards|use_whitening|"},
    {"ppo.aggregation", "|loss_agg_mode|loss_type|"},
    {"ppo.reward_clip", "|reward_clip_range|cliprange_reward|"},
    {"model.actor", "|model_name_or_path|pretrain|model_path|policy"
                    "|sft_model_path|actor_model|"},
    {"model.critic",
     "|value_model_path|critic_pretrain|value_model|critic_model|"},
    {"model.reference",
     "|ref_model|ref_model_path|reference_model|ref_pretrain|"},
    {"reward", "|reward_model_path|reward_pretrain|reward_funcs|reward_model"
               "|reward_fn|remote_rm_url|"},
    {"run_dir", "|output_dir|default_local_dir|save_path|ckpt_path"
                "|logging_dir|"},
    {"checkpoint.every", "|save_steps|save_freq|save_interval|"},
    {"checkpoint.keep", "|save_total_limit|max_ckpt_num"
                        "|max_actor_ckpt_to_keep|"},
    {"train.recompute", "|gradient_checkpointing"
                        "|enable_gradient_checkpointing|"},
    {"train.zero", "|zero_stage|"},
    {"numerics.dtype", "|bf16|fp16|torch_dtype|model_dtype|precision|"},
    {"layout", "|tensor_model_parallel_size|tensor_parallel_size|tp_size"
               "|pipeline_model_parallel_size|pipeline_parallel_size"
               "|data_parallel_size|"},
    {"runtime.devices", "|n_gpus_per_node|num_gpus|nproc_per_node|"},
};

static bool holds(const char *theirs, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = theirs; (p = strstr(p, name)) != NULL; p++)
        if (p[-1] == '|' && p[n] == '|')
            return true;
    return false;
}

static const char *last_part(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* The key of the model that is named first: critic.learning_rate means the
 * critic's key. */
static const char *of_same_model(const char *name, const char *ours)
{
    char other[64];
    if (strncmp(name, "critic.", 7) != 0 || strncmp(ours, "actor.", 6) != 0)
        return ours;
    snprintf(other, sizeof other, "critic.%s", ours + 6);
    for (size_t i = 0; i < weft_config_n_keys; i++)
        if (strcmp(weft_config_keys[i].name, other) == 0)
            return weft_config_keys[i].name;
    return ours;
}

static const char *from_foreign(const char *name)
{
    const char *last = last_part(name);
    for (size_t i = 0; i < WEFT_COUNT(foreign_names); i++)
        if (*last && holds(foreign_names[i].theirs, last))
            return of_same_model(name, foreign_names[i].ours);
    return NULL;
}

/* The first key that ends with ".NAME". */
static const char *ending_with(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < weft_config_n_keys; i++) {
        const char *known = weft_config_keys[i].name;
        size_t len = strlen(known);
        if (n > 0 && len > n && known[len - n - 1] == '.'
            && strcmp(known + len - n, name) == 0)
            return known;
    }
    return NULL;
}

static const char *nearest_spelling(const char *name)
{
    const char *best = NULL;
    size_t n = strlen(name), least = 3 + n / 6;
    for (size_t i = 0; i <= weft_config_n_keys; i++) {
        const char *known = i < weft_config_n_keys ? weft_config_keys[i].name
                                                   : "reward";
        size_t d = weft_edit_distance(name, known);
        if (d < least && d * 2 <= n) {
            least = d;
            best = known;
        }
    }
    return best;
}

const char *weft_config_meant(const char *name)
{
    const char *meant = ending_with(name);
    if (!meant)
        meant = from_foreign(name);
    if (!meant)
        meant = nearest_spelling(name);
    if (!meant)
        meant = ending_with(last_part(name));
    return meant;
}

const char *weft_config_meaning(const char *name)
{
    for (size_t i = 0; i < weft_config_n_keys; i++)
        if (strcmp(weft_config_keys[i].name, name) == 0)
            return weft_config_keys[i].meaning;
    return strcmp(name, "reward") == 0 ? "a list of what makes the score"
                                       : "";
}
