/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The next iteration's samples in a checkpoint. With rollout.staleness they
 * were generated, and inferred by trained models, with weights from before the
 * last update. A checkpoint does not have these, so it has what they gave:
 * rollouts.jsonl (doc/formats.md).
 */
#ifndef WEFT_RUN_AHEAD_H
#define WEFT_RUN_AHEAD_H

#include "record/manifest.h"
#include "run/iteration.h"

#define WEFT_AHEAD_FILE "rollouts.jsonl"

struct weft_ahead_sample {
    int32_t n_prompt, n_total;
    bool ended;
    int32_t *token;            /* (n_total) */
    float *logp;               /* (n_total), 0 for the prompt */
    float *of[WEFT_MAX_CALLS]; /* (n_total - n_prompt) what the call gave, if
                                  weft_iteration_keeps(); else NULL */
};

struct weft_ahead {
    struct weft_rollout_stats stats;
    int32_t n;
    struct weft_ahead_sample *sample; /* (n) of all sets */
};

/* Whether the checkpoint of this manifest has the file. */
bool weft_ahead_is_in(const struct weft_manifest *manifest);
/* Writes the file into the checkpoint's folder `stage`, and adds it to the
 * manifest on rank 0; nothing if no iteration is ahead. A run that is only
 * recorded inserts the same tasks. Collective. Errors: those of writing files,
 * WEFT_ENOMEM. */
int weft_ahead_write(struct weft_trainer *t, const char *stage,
                     struct weft_manifest *manifest, struct weft_err *err);
/* Reads it into t->ahead, if it is there. Errors: WEFT_EFORMAT, WEFT_EIO,
 * WEFT_ENOMEM. */
int weft_ahead_read(struct weft_trainer *t, const char *folder,
                    const struct weft_manifest *manifest,
                    struct weft_err *err);
/* Before a run goes on by another plan: the next iteration's samples leave
 * their tiles and the iteration is forgotten, to begin again with t->ahead, as
 * it does behind a checkpoint; nothing if none is ahead. Collective. Errors:
 * WEFT_ENOMEM, those of the sequence. */
int weft_ahead_lift(struct weft_trainer *t, struct weft_err *err);
/* Makes sample i of t->ahead, whose prompt was drawn, a finished one, with
 * what calls gave. Errors: WEFT_EFORMAT: it answers another prompt; those of
 * creating a tile. */
int weft_ahead_get(struct weft_iteration *p, int32_t i,
                   struct weft_sample *out);
/* Frees t->ahead; NULL: allowed. */
void weft_ahead_forget(struct weft_trainer *t);

#endif
