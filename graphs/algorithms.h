/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The algorithms as values, one file each: its keys and defaults, a dataflow
 * graph (ReaL, Figure 4), how advantages follow from scores, and what its keys
 * make of an iteration: losses, rewards, epochs; and its metrics. Role 0 is
 * the policy: its tokenizer and its positions are the run's. doc/hacking.md
 * adds one in full.
 */
#ifndef WEFT_GRAPHS_ALGORITHMS_H
#define WEFT_GRAPHS_ALGORITHMS_H

#include "codelets/codelets.h"
#include "config/schema.h"
#include "graphs/metrics.h"
#include "plan/dataflow.h"

/* What a configuration asks of its algorithm's graph. */
struct weft_flow_needs {
    bool reference;       /* a reference, to which a KL is penalised ... */
    bool kl_in_loss;      /* ... in the loss, not in the reward */
    bool recompute;       /* the policy's log-probs, once more by inference */
    int32_t staleness;    /* updates that samples may lack */
    int32_t follow_every; /* iterations after which the reference moves to
                             the policy; 0: never */
    float follow_mix;     /* by how much */
    bool shares;          /* it has the policy's weights, without adapters */
    bool critic_shares;   /* the critic is a value head of the policy's */
    int32_t n_rewards;    /* reward models, and their numbers in the
                          configuration's list of rewards */
    int32_t reward[8];
    bool reads_text[8]; /* it has a tokenizer of its own */
};

enum weft_advantage_rule {
    WEFT_BY_TOKENS, /* from rewards of tokens: GAE, or returns without values */
    WEFT_BY_GROUPS /* by comparing the responses to a prompt */
};

/* How a trained role learns. */
struct weft_learning {
    struct weft_loss_args loss; /* without what changes from step to step */
    enum weft_loss_agg aggregation;
};

/* What a configuration makes of its algorithm's iterations. */
struct weft_settings {
    struct weft_flow_needs needs;
    int32_t epochs, mini_batches; /* of an iteration's samples */
    int32_t warmup;               /* iterations that do not train role 0 */
    struct weft_learning learn[WEFT_CONFIG_ROLES]; /* by roles' slots */
    struct weft_gae_args reward;                   /* of every sample */
    enum weft_whiten whiten;                       /* advantages */
    float kl_stop; /* of a mini-batch, ends an iteration's updates; 0: off */
    int32_t refills;  /* how often prompts are replaced whose responses all
                        have one score */
    bool exact;       /* log-probs of rollout and training are the same */
    bool skip_cut;    /* responses without an end are not learned from */
    int32_t max_new;  /* tokens of a response */
    double kl_coef;   /* at first ... */
    bool kl_adaptive; /* ... and moved by Ziegler's controller */
    float kl_target;
    int32_t kl_horizon;
};

/* What a row of the data becomes. */
enum weft_rows {
    WEFT_ROWS_PROMPT,   /* a prompt that is to be answered */
    WEFT_ROWS_RESPONSE, /* a prompt and its response */
    WEFT_ROWS_PAIR,     /* two samples: the chosen response, the rejected */
    WEFT_ROWS_LABELLED  /* a prompt and a response that is desirable or not;
                           two from a pair */
};

struct weft_algorithm {
    struct weft_config_algorithm config; /* name, keys, defaults, checks */
    void (*flow)(const struct weft_flow_needs *needs,
                 struct weft_dataflow *out);
    enum weft_advantage_rule advantage;
    enum weft_group_advantage group; /* of BY_GROUPS */
    enum weft_rows rows;
    enum weft_loss loss; /* of role 0 */
    enum weft_policy_kind policy;
    /* Sets what differs from one pass over all samples in one mini-batch, with
     * `loss`; NULL: nothing. */
    void (*settings)(const struct weft_config *config,
                     struct weft_settings *out);
    const struct weft_told *told; /* metrics and their charts */
};

/* A new algorithm is a line here; the first is the configuration's default. */
#define WEFT_ALGORITHMS(A)                                                   \
    A(ppo)                                                                   \
    A(sft)                                                                   \
    A(dpo)                                                                   \
    A(kto)                                                                   \
    A(reward_model)                                                          \
    A(grpo)                                                                  \
    A(dr_grpo)                                                               \
    A(rloo)                                                                  \
    A(remax)                                                                 \
    A(reinforce_pp)                                                          \
    A(reinforce_pp_baseline)                                                 \
    A(gspo)                                                                  \
    A(cispo)                                                                 \
    A(dapo)

#define WEFT_ALGORITHM_DECLARE(name)                                         \
    extern const struct weft_algorithm weft_##name;
WEFT_ALGORITHMS(WEFT_ALGORITHM_DECLARE)

/* All of them, in that order; NULL ends them. */
extern const struct weft_config_algorithm *const weft_algorithms[];

/* The algorithm that a configuration was read with. */
const struct weft_algorithm *weft_algorithm_of(
    const struct weft_config *config);

/* What the configuration says of losses, rewards and the graph. */
void weft_settings_of(const struct weft_config *config,
                      struct weft_settings *out);

/* A sample's weight in the loss of a step on n samples with n_tokens response
 * tokens, of which it has len. */
float weft_sample_weight(const struct weft_settings *settings,
                         const struct weft_learning *learning, int32_t n,
                         int64_t n_tokens, int32_t len);

#endif
