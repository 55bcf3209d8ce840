/* SPDX-License-Identifier: Apache-2.0 */
/* Placements known by name, each simulated for the same run on a cluster. */
#ifndef WEFT_RUN_PREDICT_COMPARE_H
#define WEFT_RUN_PREDICT_COMPARE_H

#include "plan/layout.h"
#include "run/predict/batch.h"
#include "run/predict/options.h"
#include "run/predict/simulate.h"

struct weft_compared {
    const char *name;
    char asked[80]; /* the strategy, with numbers where it needs some */
    struct weft_simulated simulated;
    bool fits; /* its memory fits the devices */
    bool
        priced; /* by prices of calls, not simulated: that was asked for, it is
                    far beyond these on more than WEFT_FEW_DEVICES, or it has
                    too many tasks */
    int32_t groups; /* gradient groups, if it needs more of them than the
                       configuration has, for its replicas that train; or 0 */
    struct weft_largest_batch batch; /* the largest, if that was asked for */
    bool cut;       /* its search was, before it had done all */
    char why[1024]; /* why the run cannot have it; "": it can */
};

/* The configuration's own plan, all strategies (plan/strategy.h) and the plan
 * that a search finds, if there is one, in this order. */
struct weft_comparison {
    struct weft_compared row[32];
    int32_t n;
    int32_t best;   /* the fastest that fits; -1: none */
    int32_t found;  /* the searched plan; -1: there is none that fits */
    bool batches;   /* the largest batches are known */
    char none[400]; /* where none fits, what would do */
};

/* How rows are made. */
struct weft_compare_how {
    /* of the last one a search, within these processes, so that nobody is told
     * of its progress; it is the first to begin, or with find->begin, which then
     * says what time the others have left, the last; NULL: none */
    const struct weft_find *find;
    double
        batch_bytes; /* of a device, for the largest batch of each; 0: these
                           are not wanted */
    bool priced; /* by prices of calls (run/predict/weigh.h), not simulated */
    uint32_t rows; /* a set; 0: all */
    /* called with the number of those that are done; NULL: nobody is */
    void (*progress)(int32_t done, int32_t of);
};

/* How many simulations of a job of this size may run at once, each in a process
 * of its own (base/children.h): as many as there are processors and memory. */
int32_t weft_simulate_at_once(const struct weft_plan_needs *needs);

/* Simulates them on all cores, or prices them (struct weft_compared). Errors:
 * WEFT_ENOMEM; others make a row's `why`. */
int weft_run_compare(const struct weft_config *config,
                     const struct weft_plan_needs *needs,
                     const struct weft_plan *own,
                     const struct weft_simulate_options *options,
                     const struct weft_compare_how *how,
                     struct weft_comparison *out, struct weft_err *err);

/* A line per placement: seconds of an iteration and how many times the searched
 * plan's, or without one the best's, GiB of the fullest device, seconds of each
 * call, what limits it (struct weft_limit); then what is refused. Appended to
 * out. Errors: WEFT_ENOMEM. */
int weft_compare_text(const struct weft_comparison *c,
                      const struct weft_dataflow *flow,
                      struct weft_string *out, struct weft_err *err);
int weft_compare_json(const struct weft_comparison *c,
                      const struct weft_dataflow *flow,
                      struct weft_string *out, struct weft_err *err);
/* A bar per placement, with what limits it. */
int weft_compare_svg(const struct weft_comparison *c,
                     const struct weft_dataflow *flow,
                     struct weft_string *out, struct weft_err *err);

#endif
