/* SPDX-License-Identifier: Apache-2.0 */
/* Moments of rewards that are normalised: of models in tiles at the first
 * place, of others in weft_rewards. Those of `normalize: running` are state of
 * the run. */
#ifndef WEFT_RUN_REWARD_STATE_H
#define WEFT_RUN_REWARD_STATE_H

#include "record/manifest.h"
#include "run/trainer.h"

/* Whether a reward's numbers are changed before they are weighted. */
bool weft_reward_is_shaped(const struct weft_reward_config *reward);

/* Creates the tiles; release them also after an error. */
int weft_reward_state_create(struct weft_trainer *t, struct weft_err *err);
void weft_reward_state_release(struct weft_trainer *t);

/* Adds the state to a manifest, on rank 0. */
int weft_reward_state_save(struct weft_trainer *t, struct weft_manifest *m,
                           struct weft_err *err);
/* Sets the state from a manifest. Errors: it lacks a number. */
int weft_reward_state_load(struct weft_trainer *t,
                           const struct weft_manifest *m,
                           struct weft_err *err);

#endif
