/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of roles: where their models come from, how they are trained. */
#include <string.h>

#include "base/alloc.h"
#include "graphs/algorithms.h"
#include "graphs/keys.h"

/* Default learning rates are verl's. AdamW's settings are PyTorch's, except
 * for weight decay, which is 0 as in TRL. */
#define OPTIMIZER(who, slot, lr_standard, whose)                             \
    KEY_FLOAT(who ".lr", role[slot].optim.lr, lr_standard, 0, 10, KEY_NUM,   \
              "learning rate at its highest (" whose "'s)"),                 \
        KEY_ENUM(who ".schedule", role[slot].optim.schedule, "constant",     \
                 WEFT_LR_CONSTANT, "constant|linear|cosine", KEY_NUM,        \
                 "learning rate after the warm-up"),                         \
        KEY_INT(who ".warmup_steps", role[slot].optim.warmup_steps, "0", 0,  \
                KEY_MANY, KEY_NUM, "optimizer steps of linear warm-up"),     \
        KEY_FLOAT(who ".min_lr_ratio", role[slot].optim.min_lr_ratio, "0",   \
                  0, 1, KEY_NUM, "of lr, at the end of linear and cosine"),  \
        KEY_FLOAT(who ".beta1", role[slot].optim.beta1, "0.9", 0, 0.99999,   \
                  KEY_NUM, "AdamW: decay of the first moment"),              \
        KEY_FLOAT(who ".beta2", role[slot].optim.beta2, "0.999", 0,          \
                  0.99999999, KEY_NUM, "AdamW: decay of the second moment"), \
        KEY_FLOAT(who ".eps", role[slot].optim.eps, "1e-8", 1e-20, 1,        \
                  KEY_NUM, "AdamW: added to the root"),                      \
        KEY_FLOAT(who ".weight_decay", role[slot].optim.weight_decay, "0",   \
                  0, 10, KEY_NUM, "AdamW: decoupled weight decay"),          \
        KEY_FLOAT(who ".grad_clip", role[slot].optim.grad_clip, "1", 0, 1e6, \
                  KEY_NUM, "largest global gradient norm; 0: off"),          \
        KEY_INT(who ".lora_rank", role[slot].lora_rank, "0", 0, 65536, 0,    \
                "of LoRA adapters, which alone are trained then; 0: none "   \
                "(for planning alone)")

/* ---- The policy --------------------------------------------------------- */

static const struct weft_config_key actor[] = {
    KEY_PATH("model.actor", role[WEFT_SLOT_ACTOR].folder, KEY_NUM | KEY_REQ,
             "folder of the language model to train"),
    OPTIMIZER("actor", WEFT_SLOT_ACTOR, "1e-6", "verl"), KEY_END};

static const struct weft_config_alias actor_aliases[] = {
    {"actor.lr", "|learning_rate|actor_learning_rate|"},
    {"actor.schedule", "|lr_scheduler_type|lr_scheduler|lr_decay_style|"},
    {"actor.warmup_steps", "|num_warmup_steps|lr_warmup_steps|warmup_ratio"
                           "|lr_warmup_steps_ratio|lr_warmup_ratio|"},
    {"actor.grad_clip", "|max_grad_norm|clip_grad|max_norm|grad_norm|"},
    {"actor.beta1", "|adam_beta1|betas|adam_betas|"},
    {"actor.beta2", "|adam_beta2|"},
    {"actor.eps", "|adam_epsilon|epsilon_adam|"},
    {"actor.weight_decay", "|l2|"},
    {"actor.lora_rank", "|lora_r|lora_dim|peft_r|"},
    {"model.actor", "|model_name_or_path|pretrain|model_path|policy"
                    "|sft_model_path|actor_model|"},
    {NULL, NULL}};

static int check_actor_lora(const struct weft_config *c, struct weft_err *err)
{
    if (c->role[WEFT_SLOT_ACTOR].lora_rank > 0 && c->rollout.staleness > 0)
        return weft_err_set(err, WEFT_EINVAL,
                            "'rollout.staleness' must be 0 with "
                            "'actor.lora_rank': what keeping the adapters of "
                            "one update before takes is not known");
    return 0;
}

static const struct weft_config_rule actor_rules[] = {
    {"actor.lora_rank", check_actor_lora}, {NULL, NULL}};

const struct weft_config_table weft_actor_keys = {
    .keys = actor, .rules = actor_rules, .aliases = actor_aliases};

/* ---- The critic --------------------------------------------------------- */

static const struct weft_config_key critic[] = {
    KEY_PATH("model.critic", role[WEFT_SLOT_CRITIC].folder, KEY_NUM | KEY_REQ,
             "folder with a scalar head, or a language model's trunk"),
    KEY_BOOL(
        "critic.shares", role[WEFT_SLOT_CRITIC].shares, "false", 0,
        "it is a value head on the actor's weights, which the same passes "
        "train (for planning alone)"),
    OPTIMIZER("critic", WEFT_SLOT_CRITIC, "1e-5", "verl"), KEY_END};

static const struct weft_config_alias critic_aliases[] = {
    {"critic.lr", "|critic_learning_rate|value_learning_rate|"},
    {"model.critic",
     "|value_model_path|critic_pretrain|value_model|critic_model|"},
    {NULL, NULL}};

/* All but its head must be the actor's, now and later, and each pass one of
 * both. */
static int check_trunk(const struct weft_config *c, struct weft_err *err)
{
    const struct weft_role_config *policy = &c->role[WEFT_SLOT_ACTOR];
    const struct weft_role_config *own = &c->role[WEFT_SLOT_CRITIC];
    const char *why = NULL;
    if (!own->shares)
        return 0;
    if (strcmp(own->folder, policy->folder) != 0)
        why = "'model.critic' to be the folder of 'model.actor'";
    else if (own->lora_rank > 0)
        why = "'critic.lora_rank' 0, as the adapters are the actor's";
    else if (c->policy.warmup > 0)
        why =
            "'ppo.critic_warmup' 0, as the critic is trained with the actor";
    else if (c->policy.recompute_logprobs)
        why = "'ppo.recompute_logprobs' false, as one pass cannot give both "
              "values and log-probs yet";
    else if (c->train.intra_stage_fusion)
        why =
            "'train.intra_stage_fusion' false, as one model alone is trained";
    else if (c->role[WEFT_SLOT_REFERENCE].follow_every > 0)
        why = "'reference.every' 0, as the reference has no value head";
    return why
             ? weft_err_set(err, WEFT_EINVAL, "'critic.shares' needs %s", why)
             : 0;
}

static const struct weft_config_rule critic_rules[] = {
    {"critic.shares", check_trunk}, {NULL, NULL}};

const struct weft_config_table weft_critic_keys = {
    .keys = critic, .rules = critic_rules, .aliases = critic_aliases};

/* ---- A reward model ------------------------------------------------------ */

static const struct weft_config_key score[] = {
    KEY_PATH("model.reward_model", role[WEFT_SLOT_SCORE].folder,
             KEY_NUM | KEY_REQ,
             "folder with a scalar head, or a language model's trunk"),
    OPTIMIZER("reward_model", WEFT_SLOT_SCORE, "9e-6", "OpenRLHF"), KEY_END};

static const struct weft_config_alias score_aliases[] = {
    {"model.reward_model", "|reward_pretrain|"}, {NULL, NULL}};

const struct weft_config_table weft_score_keys = {.keys = score,
                                                  .aliases = score_aliases};

/* ---- The reference ------------------------------------------------------ */

static const struct weft_config_key reference[] = {
    KEY_PATH("model.reference", role[WEFT_SLOT_REFERENCE].folder, KEY_NUM,
             "folder of the reference; model.actor"),
    KEY_BOOL("model.reference_offload", role[WEFT_SLOT_REFERENCE].offload,
             "false", 0, "the host keeps its weights between uses"),
    KEY_INT("reference.every", role[WEFT_SLOT_REFERENCE].follow_every, "0", 0,
            KEY_MANY, KEY_NUM,
            "iterations after which its weights move to the policy's; 0: "
            "never"),
    KEY_FLOAT("reference.mix", role[WEFT_SLOT_REFERENCE].follow_mix, "0.6",
              1e-6, 1, KEY_NUM,
              "the policy's share of the new weights (TRL's); 1: a reset"),
    KEY_BOOL("reference.shares", role[WEFT_SLOT_REFERENCE].shares, "false", 0,
             "it is the actor without its LoRA adapters, whose weights it "
             "shares (for planning alone)"),
    KEY_END};

static const struct weft_config_alias reference_aliases[] = {
    {"model.reference",
     "|ref_model|ref_model_path|reference_model|ref_pretrain|"},
    {"reference.every",
     "|sync_ref_model|ref_model_sync_steps|ref_reset_steps|"},
    {"reference.mix", "|ref_model_mixup_alpha|eta|"},
    {NULL, NULL}};

static int derive_reference(struct weft_config *c)
{
    const char *actor_folder = c->role[WEFT_SLOT_ACTOR].folder;
    char **folder = &c->role[WEFT_SLOT_REFERENCE].folder;
    if (actor_folder)
        *folder = weft_strdup(actor_folder);
    return !actor_folder || *folder ? 0 : WEFT_ENOMEM;
}

static const struct weft_config_derived reference_derived[] = {
    {"model.reference", derive_reference}, {NULL, NULL}};

static int check_follows(const struct weft_config *c, struct weft_err *err)
{
    struct weft_settings settings;
    weft_settings_of(c, &settings);
    if (c->role[WEFT_SLOT_REFERENCE].follow_every > 0
        && !settings.needs.reference)
        return weft_err_set(err, WEFT_EINVAL,
                            "'reference.every' must be 0 in a run without a "
                            "reference (%s)",
                            weft_config_generates(c)
                                ? "'ppo.kl.place' is none"
                                : "'dpo.reference_free' is true");
    return 0;
}

/* The actor's frozen weights must be the reference's, now and later. */
static int check_shares(const struct weft_config *c, struct weft_err *err)
{
    const struct weft_role_config *policy = &c->role[WEFT_SLOT_ACTOR];
    const struct weft_role_config *own = &c->role[WEFT_SLOT_REFERENCE];
    const char *why = NULL;
    if (own->follow_every > 0 && policy->lora_rank > 0)
        return weft_err_set(err, WEFT_EINVAL,
                            "'reference.every' must be 0 with "
                            "'actor.lora_rank', as the reference has no "
                            "adapters");
    if (!own->shares)
        return 0;
    if (policy->lora_rank == 0)
        why = "'actor.lora_rank' above 0, as all of the actor's weights are "
              "trained else";
    else if (own->offload)
        why = "'model.reference_offload' false, as the actor's weights stay";
    else if (own->folder && strcmp(own->folder, policy->folder) != 0)
        why = "'model.reference' to be the folder of 'model.actor'";
    return why ? weft_err_set(err, WEFT_EINVAL, "'reference.shares' needs %s",
                              why)
               : 0;
}

static const struct weft_config_rule reference_rules[] = {
    {"reference.every", check_follows},
    {"reference.shares", check_shares},
    {NULL, NULL}};

const struct weft_config_table weft_reference_keys = {
    .keys = reference,
    .derived = reference_derived,
    .rules = reference_rules,
    .aliases = reference_aliases};

int32_t weft_flow_slot(struct weft_dataflow *flow, const char *name,
                       bool trained, bool scalar, enum weft_role_slot slot)
{
    int32_t i = weft_flow_role(flow, name, trained, scalar);
    flow->role[i].slot = slot;
    return i;
}

int32_t weft_flow_reference(struct weft_dataflow *flow, int32_t policy,
                            const struct weft_flow_needs *needs)
{
    int32_t i = weft_flow_slot(flow, "reference", false, false,
                               WEFT_SLOT_REFERENCE);
    if (needs->follow_every > 0) {
        flow->role[i].follows = policy;
        flow->role[i].every = needs->follow_every;
        flow->role[i].mix = needs->follow_mix;
    }
    if (needs->shares)
        flow->role[i].shares = policy;
    return i;
}
