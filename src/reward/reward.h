/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rewards that are not models: rules on the text, external programs, the
 * caller's function. A sample's score is the weighted sum of all of them and
 * of the reward models' scores, which a task adds.
 *
 *     gsm8k        1 when the number after the last "#### " (method strict,
 *                  the default; commas are ignored) or the last number
 *                  (flexible) is the label's, as in verl's rule
 *     exact_match  1 when the response is the label, blanks around trimmed
 *     boxed        1 when the last \boxed{...} is the label's, except for
 *                  LaTeX spellings that the MATH benchmark ignores
 *     regex        1 when the PCRE2 pattern is found in the response
 *     think_answer 1 when the response is <think>...</think> and then
 *                  <answer>...</answer>: method strict (the default) wants
 *                  each tag on a line of its own, as open-r1's format_reward;
 *                  flexible allows blanks around the tags
 *     length       -|tokens - target| / target; method most: 0 up to the
 *                  target, least: 0 from the target on
 */
#ifndef WEFT_REWARD_REWARD_H
#define WEFT_REWARD_REWARD_H

#include "config/config.h"
#include "kern/losses.h"

struct weft_rewards;

/* Compiles patterns and starts programs. `config` is borrowed until
 * weft_rewards_close(). Errors name the reward. */
int weft_rewards_open(const struct weft_reward_config *config, int32_t n,
                      struct weft_rewards **out, struct weft_err *err);
void weft_rewards_close(struct weft_rewards *rewards); /* NULL is allowed */

/* The name of the first reward that needs the row's label, or NULL. */
const char *weft_rewards_label_user(const struct weft_reward_config *config,
                                    int32_t n);

/* Sets the function for rewards of `type: callback`: one that gets a sample,
 * or one that gets all of a batch. The last one set counts. */
void weft_rewards_set_callback(struct weft_rewards *rewards,
                               weft_reward_fn fn, void *ctx);
void weft_rewards_set_batch(struct weft_rewards *rewards,
                            weft_reward_batch_fn fn, void *ctx);

/* Rules and programs: samples of a batch, with indices below n, come one by
 * one. Rules are computed at once; programs are asked at once, too, if `order`
 * is NULL, else as soon as all samples that are before it in `order` (n) have
 * come. sample (n): each is filled before it is added, and like `order`
 * borrowed until the batch's last end. One thread calls these at a time.
 * Errors: WEFT_ENOMEM. */
int weft_rewards_begin(struct weft_rewards *rewards, int32_t n,
                       const int32_t *order,
                       const struct weft_reward_sample *sample,
                       struct weft_err *err);
void weft_rewards_add(struct weft_rewards *rewards, int32_t i);
/* Moves what programs take and say, without waiting. Returns whether they owe
 * answers. */
bool weft_rewards_move(struct weft_rewards *rewards);
/* Scores n samples that were added, as were all before them in `order`:
 * part[k][r] becomes the unweighted reward r of sample index[k]. Entries of
 * models and callbacks are not changed. Waits for the programs. Errors: a rule
 * needs a label and the row has none, a program fails, a score is not finite;
 * part is then undefined. */
int weft_rewards_end(struct weft_rewards *rewards, int32_t n,
                     const int32_t *index, double (*part)[WEFT_MAX_REWARDS],
                     struct weft_err *err);
/* Time in which programs had something to answer, between the last end and the
 * one before. */
double weft_rewards_busy_s(const struct weft_rewards *rewards);
/* The same as the end for rewards of `type: callback`, of any n samples.
 * Errors: there is no function, it fails, a score is not finite. */
int weft_rewards_call(struct weft_rewards *rewards, int32_t n,
                      const struct weft_reward_sample *sample,
                      double (*part)[WEFT_MAX_REWARDS], struct weft_err *err);
/* Whether there are rules or programs. */
bool weft_rewards_early(const struct weft_reward_config *config, int32_t n);

/* Normalises and clips the rewards of n samples that are not models, as their
 * keys say; samples are in the order of their indices. */
void weft_rewards_shape(struct weft_rewards *rewards, int32_t n,
                        double (*part)[WEFT_MAX_REWARDS]);
/* The moments of reward r, which are the run's state if it is normalised over
 * all samples. */
struct weft_k_moments *weft_rewards_moments(struct weft_rewards *rewards,
                                            int32_t r);

/* The weighted sum of a sample's rewards that are not models, added in the
 * order of the configuration. */
double weft_rewards_sum(const struct weft_rewards *rewards,
                        const double part[WEFT_MAX_REWARDS]);

/* ---- The single rules ------------------------------------------------- */

/* label: a number, or a solution that ends in "#### number". */
bool weft_reward_gsm8k(struct weft_str response, struct weft_str label,
                       bool flexible);
bool weft_reward_exact(struct weft_str response, struct weft_str label);
/* Errors: WEFT_ENOMEM. */
int weft_reward_boxed(struct weft_str response, struct weft_str label,
                      bool *out);
/* method: "around", "most", "least" */
double weft_reward_length(int32_t n_tokens, int32_t target,
                          const char *method);

#endif
