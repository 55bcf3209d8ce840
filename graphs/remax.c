/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/policy.h"

/* The policy answers every prompt a second time, with the likeliest tokens;
 * what that response scores is what the others are compared with. */
static void flow(const struct weft_flow_needs *needs,
                 struct weft_dataflow *out)
{
    weft_flow_policy(needs, false, out);
    uint32_t rollout = weft_flow_add(out, "greedy rollout",
                                     WEFT_FIELD_ROLLOUT);
    uint32_t answer = weft_flow_add(out, "greedy rewards", WEFT_FIELD_ANSWER);
    uint32_t baseline = weft_flow_add(out, "baseline", WEFT_FIELD_ADVANTAGE);
    int32_t call = weft_flow_call(out, "actor_greedy_generate", WEFT_GENERATE,
                                  0, 0, rollout);
    out->call[call].greedy = true;
    uint32_t scores = weft_flow_rewards(needs, "greedy", rollout, out);
    weft_flow_call(out, "greedy_reward", WEFT_STEP, -1, rollout, answer);
    weft_flow_call(out, "greedy_score", WEFT_STEP, -1,
                   rollout | answer | scores, baseline);
    out->call[weft_flow_find_call(out, "advantage")].reads |= baseline;
}

static const struct weft_config_default defaults[] = {
    /* arXiv 2310.10505, algorithm 1: a response to each prompt, the sum over
     * its tokens */
    {"ppo.whiten_advantages", "false"},
    {"ppo.aggregation", "seq-mean-token-sum"},
    {NULL, NULL}};

static const struct weft_metric of_baselines[] = {
    METRIC("critic/baseline", WEFT_OF_BASELINE, WEFT_SPREAD), METRIC_END};

static const struct weft_metric *const metrics[] = {
    weft_sample_metrics, of_baselines, weft_policy_metrics, weft_time_metrics,
    NULL};

static const struct weft_told told = {.metrics = metrics,
                                      .curves = weft_policy_curves,
                                      .times = weft_policy_times,
                                      .watched = weft_policy_watched};

const struct weft_algorithm weft_remax = {
    .config =
        {
            .name = "remax",
            .about = "REINFORCE, less the score of the likeliest response to "
                     "the prompt; no critic (Li et al. 2023, arXiv "
                     "2310.10505)",
            .generates = true,
            .tables = weft_policy_tables,
            .defaults = defaults,
        },
    .flow = flow,
    .advantage = WEFT_BY_TOKENS, /* returns, less the baseline */
    .policy = WEFT_POLICY_PPO,
    .settings = weft_policy_settings,
    .told = &told,
};
