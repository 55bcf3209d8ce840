/* SPDX-License-Identifier: Apache-2.0 */
/* Of tail.h, between its files. */
#ifndef WEFT_RUN_TAIL_INSIDE_H
#define WEFT_RUN_TAIL_INSIDE_H

#include "lm/rollout.h"
#include "record/lines.h"
#include "run/tail.h"

/* A decision of another run. */
struct weft_tail_decided {
    int32_t iteration, call;
    struct weft_migration_when when;
    struct weft_tail_pace pace;
    struct weft_rollout_order order; /* of statuses, of all calls */
};

struct weft_tail {
    struct weft_costs *costs; /* NULL: none */
    int32_t n_samples, n_past;
    /* (WEFT_TAIL_PAST, n_samples) tokens of the last iterations' samples, the
     * newest last */
    int32_t *prompt, *response;
    struct weft_tail_decided *decided; /* (n_decided) to replay */
    int32_t n_decided;
    const char *decisions;      /* the file that they are from; borrowed */
    struct weft_line_file file; /* the run's record */
    int64_t read;               /* the last iteration read from it */
};

/* Where the lengths of one more iteration are to be written. */
void weft_tail_add(struct weft_tail *tail, int32_t **prompt_out,
                   int32_t **response_out);

/* The set's responses in the iterations that are noted, ascending, as many as
 * are kept (weft_migrate_keep()). out: (WEFT_MIGRATE_SEEN). Errors:
 * WEFT_ENOMEM. */
int weft_tail_seen(const struct weft_iteration_set *set, int32_t *n_out,
                   int32_t *out, struct weft_err *err);

/* ---- What the costs say (tail_costs.c). Errors: WEFT_ENOMEM. ------------- */

/* When samples move, and what that takes, with at least one iteration noted. */
int weft_tail_choose(const struct weft_iteration_set *set,
                     struct weft_tail_choice *out, struct weft_err *err);
/* Of a migration that is said: samples go on in batches up to BS_max, where
 * they then move and that takes no longer than with all slots by the lengths
 * that are known; and with their caches, where that is faster than to be read
 * again. */
int weft_tail_refine(const struct weft_iteration_set *set,
                     struct weft_migration_when *when, struct weft_err *err);
int weft_tail_find_pace(const struct weft_iteration_set *set,
                        struct weft_tail_pace *out, struct weft_err *err);

#endif
