/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of algorithms that train a second role, which learns values. */
#include "graphs/keys.h"

static const struct weft_config_key keys[] = {
    KEY_FLOAT("ppo.lambda", policy.lambda, "0.95", 0, 1, KEY_NUM,
              "GAE's lambda (TRL's; verl's is 1)"),
    KEY_FLOAT("ppo.value_clip", policy.value_clip, "0.2", 0, 1e6, KEY_NUM,
              "clips value changes (TRL's; verl's is 0.5); 0: off"),
    KEY_INT("ppo.critic_warmup", policy.warmup, "0", 0, KEY_MANY, KEY_NUM,
            "iterations that train the critic alone"),
    KEY_BOOL("train.intra_stage_fusion", train.intra_stage_fusion, "false", 0,
             "actor and critic share one bidirectional pipeline schedule"),
    KEY_INT("train.joined_mini_batches", train.joined_mini_batches, "1", 1,
            1e6, 0, "of an epoch in one fused schedule"),
    KEY_PATH("train.schedule", train.schedule, 0,
             "the fused schedule, of weft schedule; else it is searched"),
    KEY_ENUM("train.schedule_search", train.schedule_search, "once",
             WEFT_FUSE_ONCE, "once|iteration", 0,
             "with stage times of the first two iterations, or of each"),
    KEY_INT("train.schedule_evaluations", train.schedule_evaluations, "0", 0,
            KEY_MANY, 0, "of a search; 0: by the schedule's size"),
    KEY_END};

static const struct weft_config_alias aliases[] = {
    {"ppo.lambda", "|lam|lambd|gae_lambda|"},
    {"ppo.value_clip", "|cliprange_value|clip_range_value|"},
    {NULL, NULL}};

static int check_warmup(const struct weft_config *c, struct weft_err *err)
{
    if (c->policy.warmup >= c->iterations)
        return weft_err_set(err, WEFT_EINVAL,
                            "'ppo.critic_warmup' is %d of %d iterations: the "
                            "actor would never be trained",
                            c->policy.warmup, c->iterations);
    return 0;
}

static int check_schedule(const struct weft_config *c, struct weft_err *err)
{
    if (c->train.schedule && !c->train.intra_stage_fusion)
        return weft_err_set(err, WEFT_EINVAL,
                            "'train.schedule' is the order of fused "
                            "training: set train.intra_stage_fusion, or "
                            "leave it out");
    return 0;
}

static const struct weft_config_rule rules[] = {
    {"train.schedule", check_schedule},
    {"ppo.critic_warmup", check_warmup},
    {NULL, NULL}};

const struct weft_config_table weft_value_keys = {
    .keys = keys, .rules = rules, .aliases = aliases};
