/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of learning from preferences. Tags are those of TRL's DPO, KTO and
 * reward trainers. A loss's terms carry weights, so their sum is the loss. */
#include "graphs/preference.h"

#define STAT(tag, how, slot, statistic, by)                                  \
    METRIC_STAT(tag, how, slot, WEFT_PSTAT_##statistic, WEFT_PSTAT_##by, NULL)
#define ACTOR WEFT_SLOT_ACTOR
#define SCORE WEFT_SLOT_SCORE

/* Of the role with that slot. */
#define OF_REWARDS(slot)                                                     \
    STAT("train/loss", WEFT_AS_IT_IS, slot, LOSS, LOSS),                     \
        STAT("rewards/chosen", WEFT_MEAN, slot, CHOSEN_REWARD, CHOSEN),      \
        STAT("rewards/rejected", WEFT_MEAN, slot, REJECTED_REWARD, REJECTED)
#define OF_UPDATE(slot)                                                      \
    METRIC_ROLE("train/grad_norm", WEFT_OF_NORM, slot),                      \
        METRIC_ROLE("train/lr", WEFT_OF_RATE, slot),                         \
        METRIC("train/n_tokens", WEFT_OF_RESPONSE, WEFT_SUM)

static const struct weft_metric of_policy[] = {
    OF_REWARDS(ACTOR),
    STAT("logps/chosen", WEFT_MEAN, ACTOR, CHOSEN_LOGP, CHOSEN),
    STAT("logps/rejected", WEFT_MEAN, ACTOR, REJECTED_LOGP, REJECTED),
    METRIC("kl", WEFT_OF_KL_ESTIMATE, WEFT_AS_IT_IS),
    OF_UPDATE(ACTOR),
    METRIC_END};

static const struct weft_metric of_pairs[] = {
    STAT("rewards/accuracies", WEFT_MEAN, ACTOR, ACCURACY, CHOSEN),
    STAT("rewards/margins", WEFT_MEAN, ACTOR, MARGIN, CHOSEN), METRIC_END};

/* Without pairs a margin is the difference of means. */
static const struct weft_metric of_singles[] = {
    STAT("rewards/margins", WEFT_DIFFERENCE, ACTOR, CHOSEN_REWARD, CHOSEN),
    METRIC_END};

static const struct weft_metric of_scores[] = {
    OF_REWARDS(SCORE),
    STAT("accuracy", WEFT_MEAN, SCORE, ACCURACY, CHOSEN),
    STAT("margin", WEFT_MEAN, SCORE, MARGIN, CHOSEN),
    STAT("mean_reward", WEFT_MIDDLE, SCORE, CHOSEN_REWARD, CHOSEN),
    OF_UPDATE(SCORE),
    METRIC_END};

static const struct weft_metric *const pair_metrics[] = {of_policy, of_pairs,
                                                         NULL};
static const struct weft_metric *const single_metrics[] = {of_policy,
                                                           of_singles, NULL};
static const struct weft_metric *const score_metrics[] = {of_scores, NULL};

#define IN_ORDER                                                             \
    "Accuracy", "share of pairs that are put in order", "accuracy"
#define REWARDS "Rewards", "means of chosen and rejected responses"
#define LOGPS "Log-probs of responses", "nats"

static const struct weft_curve curves[] = {
    CURVE("Loss", NULL, "loss", "train/loss"),
    {IN_ORDER, "rewards/accuracies", false},
    {IN_ORDER, "accuracy", false},
    {REWARDS, "chosen", "rewards/chosen", false},
    {REWARDS, "rejected", "rewards/rejected", false},
    {REWARDS, "margin", "rewards/margins", false},
    {LOGPS, "chosen", "logps/chosen", false},
    {LOGPS, "rejected", "logps/rejected", false},
    CURVE("KL of mismatched responses", "nats per response", "KL", "kl"),
    CURVE("Gradient norm", NULL, "norm", "train/grad_norm"),
    CURVE("Learning rate", NULL, "rate", "train/lr"),
    CURVE_END};

#define WATCHED_LOSS                                                         \
    {                                                                        \
        "loss", "train/loss", "loss, first to last", false                   \
    }
#define WATCHED_END                                                          \
    {                                                                        \
        NULL, NULL, NULL, false                                              \
    }

static const struct weft_watched watched_pairs[] = {
    {"accuracy", "rewards/accuracies", "accuracy, first to last", false},
    WATCHED_LOSS,
    WATCHED_END};
static const struct weft_watched watched_scores[] = {
    {"accuracy", "accuracy", "accuracy, first to last", false},
    WATCHED_LOSS,
    WATCHED_END};
static const struct weft_watched watched_singles[] = {
    {"margin", "rewards/margins", "margin, first to last", false},
    WATCHED_LOSS,
    WATCHED_END};

const struct weft_told weft_pairs_told = {
    .metrics = pair_metrics, .curves = curves, .watched = watched_pairs};
const struct weft_told weft_singles_told = {
    .metrics = single_metrics, .curves = curves, .watched = watched_singles};
const struct weft_told weft_scores_told = {
    .metrics = score_metrics, .curves = curves, .watched = watched_scores};
