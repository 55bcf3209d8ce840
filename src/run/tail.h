/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The long tail of generation: when the last samples go on with fewer
 * replicas, and with how many (RLHFuse, section 4.2). Where the configuration
 * does not say it, it is chosen anew for each iteration, by simulating the
 * last ones with the lengths that their samples had (plan/fusion/overlap.h) on
 * the costs that the run knows. What was chosen, and which samples moved, is
 * noted in
 *
 *     run_dir/decisions.jsonl
 *
 * with the lengths and the pace, so that a run that goes on chooses as one
 * that was not interrupted, and another run can be told to decide the same,
 * and to deal inference alike. No clock is read, and no number of the run
 * depends on any of it. Which samples move also depends on whose status came
 * first; that order is noted, too.
 */
#ifndef WEFT_RUN_TAIL_H
#define WEFT_RUN_TAIL_H

#include "lm/migration.h"
#include "plan/costs.h"
#include "plan/fusion/overlap.h"

struct weft_rollout_order;
struct weft_iteration;
struct weft_iteration_set;
struct weft_trainer;

#define WEFT_TAIL_FILE "decisions.jsonl"
/* The share of the samples that is left where rollout.instances alone is said:
 * the minimum of RLHFuse's figure 9. */
#define WEFT_TAIL_REMAINING 0.2
/* Iterations that are simulated. */
enum { WEFT_TAIL_PAST = 3 };

enum weft_tail_reason {
    WEFT_TAIL_OFF,      /* no inter-stage fusion, or one replica */
    WEFT_TAIL_SAID,     /* the configuration says it */
    WEFT_TAIL_NO_COSTS, /* nothing moves, nor is it slower than without */
    WEFT_TAIL_FIRST,    /* no lengths are known yet: nothing moves */
    WEFT_TAIL_CHOSEN,
    WEFT_TAIL_REPLAYED /* another run's decision */
};

/* What generation and inference take, by costs, in a simple form: a decode
 * step of n samples with so many tokens step_s + n sample_s + tokens token_s
 * seconds. */
struct weft_tail_pace {
    bool known;
    double step_s, sample_s, token_s;
    double read_s; /* a token that is read beside those that decode */
    /* by calls: a micro-batch that a replica infers, and each token of it;
     * both 0: of a call that is not made as samples end, or not on devices
     * that generate */
    struct {
        double batch_s, token_s;
    } infer[WEFT_MAX_CALLS];
};

/* Of one call that generates. */
struct weft_tail_choice {
    struct weft_migration_when when;
    struct weft_tail_pace pace;
    int32_t why; /* enum weft_tail_reason */
    /* chosen: seconds of generation and inference, means of the iterations
     * simulated; and without migration */
    double seconds, unmoved_s;
};

struct weft_tail;

/* costs: to choose with, which it frees, also after an error; NULL: none.
 * Errors: WEFT_ENOMEM. */
int weft_tail_create(struct weft_costs *costs, int32_t n_samples,
                     struct weft_tail **out, struct weft_err *err);
void weft_tail_free(struct weft_tail *tail); /* NULL is allowed */

/* Decides for the generation of the set in this iteration. Rank 0 decides for
 * all. Collective. Errors: WEFT_ENOMEM; a decision to replay is missing. */
int weft_tail_decide(const struct weft_iteration_set *set,
                     struct weft_tail_choice *out, struct weft_err *err);
/* The order in which the replayed run acted on statuses in the iteration; NULL:
 * none is given. Borrowed. */
const struct weft_rollout_order *weft_tail_order(const struct weft_trainer *t,
                                                 int32_t iteration);
/* Remembers the lengths of an iteration whose samples are all there, on rank
 * 0. */
void weft_tail_note(const struct weft_iteration *p);

/* The lengths of responses in the last iterations that were noted, of which 0
 * are of sets that are not generated. Returns their number. Borrowed until more
 * are noted. */
int32_t weft_tail_responses(const struct weft_tail *tail,
                            const int32_t **out);

/* Seconds that generation and inference of the iteration noted last take at
 * least, by the costs (plan/fusion/bound.h), on the devices that generate, but
 * for texts that are read in tokens of a call's own; 0: none are known, or
 * fewer replicas infer than generate. Errors: WEFT_ENOMEM. */
int weft_tail_bound(const struct weft_iteration *p, double *out,
                    struct weft_err *err);

/* ---- The record, on rank 0 --------------------------------------------- */

/* Begins t->tail for a run with inter-stage fusion: reads the lengths of
 * iterations before, from the record, which loses what came after; reads the
 * decisions to replay. Errors: WEFT_ENOMEM, WEFT_EFORMAT, those of files. */
int weft_tail_open(struct weft_trainer *t, struct weft_err *err);
/* Begins t->tail of a recording, with decisions of a run to be made again; the
 * path lives as long as it. Errors: as weft_tail_open(). */
int weft_tail_replay(struct weft_trainer *t, const char *decisions,
                     struct weft_err *err);
/* The lengths of responses that a run's decisions have, of n iterations from
 * `first` on, into length (n, stride), which has samples of all sets; others
 * stay as they are. Errors: as weft_tail_open(). */
int weft_tail_lengths(const struct weft_trainer *t, const char *path,
                      int32_t first, int32_t n, size_t stride,
                      int32_t *length_inout, struct weft_err *err);
/* Appends a line for each call that generated. */
int weft_tail_write(const struct weft_iteration *p, struct weft_err *err);

#endif
