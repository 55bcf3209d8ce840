/* SPDX-License-Identifier: Apache-2.0 */
/* What an iteration that ran decided its tasks by: with it the iteration is
 * recorded as it was (run/predict/recorded.h). */
#ifndef WEFT_RUN_PREDICT_REPLAY_H
#define WEFT_RUN_PREDICT_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "fuse/fuse.h"
#include "lm/rollout.h"
#include "plan/dataflow.h"
#include "run/tail.h"
#include "plan/recording.h"

struct weft_trainer;
struct weft_iteration;

/* As in struct weft_recorded, of the iteration and of the one after it. */
struct weft_replay {
    int32_t iteration;
    int64_t drawn, tokens;
    int32_t *n_total, *n_text;
    struct weft_rollout_order order[2];
    struct weft_tail_choice tail[2][WEFT_MAX_CALLS];
    struct weft_fuse_planned fused; /* the schedules of fused training */
    struct weft_rec_ran ran[2]; /* on this rank; of the next one, so far */
};

/* Those with the most tokens, of all since the process began. */
enum { WEFT_MOST_REPLAYS = 4 };
struct weft_replays {
    struct weft_replay kept[WEFT_MOST_REPLAYS];
    int32_t n;
    bool changed;
};

/* Keeps an iteration that has ended, and what the next one has begun with.
 * Errors: WEFT_ENOMEM. */
int weft_replay_keep(struct weft_trainer *t, const struct weft_iteration *p,
                     struct weft_err *err);
void weft_replays_release(struct weft_replays *replays);

#endif
