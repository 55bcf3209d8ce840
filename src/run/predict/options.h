/* SPDX-License-Identifier: Apache-2.0 */
/* The search for a run's plan on a cluster: every mesh and layout that a call
 * can have, priced by simulation (price.h), then searched
 * (plan/search/search.h), with two models' training apart and fused, and what
 * was found simulated as a whole, with inter-stage fusion and without. */
#ifndef WEFT_RUN_PREDICT_OPTIONS_H
#define WEFT_RUN_PREDICT_OPTIONS_H

#include "plan/search/search.h"
#include "run/predict/simulate.h"

/* Bytes that a run can take of the device that it takes most of, in the worst
 * order of its tasks. */
struct weft_needed {
    double all, most; /* of all classes; of the one that takes most */
    int32_t device;
    enum weft_mem_class mem; /* which that is */
    /* there was no time to count: it is what the simulation takes, or what the
     * search knows, and `device`, `most` and `mem` are not known */
    bool one_order;
    bool
        by_gangs; /* counted by instructions of tp groups: a bound, but it can be
                      far above what any order takes */
};

struct weft_found {
    struct weft_search_result result;
    int64_t options, needed; /* of all calls together; those that are not left
                                out as others are as good */
    int64_t priced;          /* layouts */
    int64_t left_out;  /* of calls: to price them takes too much memory */
    int64_t pairs;     /* of layouts of two models, to be fused */
    bool stopped;      /* before all was done */
    int32_t finalists; /* that were simulated ... */
    int32_t taken;     /* ... of which this one is the plan */
    bool fused[WEFT_SEARCH_FINALISTS]; /* whose training is */
    bool moves;    /* the plan's last samples do (inter-stage fusion) */
    bool unplayed; /* there was no time to simulate it, or no memory: what is
                      said of that is what the search knows */
    /* the least seconds of an iteration that were simulated, without and with
     * fused training, of each without and with samples that move; 0: of none
     * that fits */
    double best_s[2][2];
    /* within the model no plan whose last samples move takes less, nor less than
     * the model's best; INFINITY: none can move; 0: not known */
    double moved_bound;
    struct weft_simulated simulated; /* the plan as a whole */
    struct weft_needed memory;       /* that a run of the plan can take */
    double bytes; /* of a device's memory, which the search had */
};

/* What a search does, in this order; again from the second one on where no plan
 * fits in any order of its tasks. */
enum weft_find_stage {
    WEFT_FIND_PRICES,   /* layouts of calls ... */
    WEFT_FIND_SEARCHES, /* ... among these ... */
    WEFT_FIND_SIMULATES /* ... for plans, which it simulates */
};

struct weft_find {
    const struct weft_simulate_options *simulate;
    /* asked, with how.ctx, when it begins, whether there is time for it; NULL:
     * there is */
    bool (*begin)(void *ctx);
    /* asked, with how.ctx, while layouts are priced; what is not priced by then
     * has no options. NULL: how.stop is, so that nothing is searched then */
    bool (*stop_pricing)(void *ctx);
    struct weft_search_how how;
    bool gangs; /* as of weft_trainer_predict(), also with few devices */
    int32_t finalists; /* to simulate, of the search's; 0: all */
    /* asked, with how.ctx, between simulations and in them; NULL: nobody is
     * asked */
    bool (*stop)(void *ctx);
    /* told how many layouts are priced, and finalists simulated, of how many at
     * most; NULL: nobody */
    void (*progress)(enum weft_find_stage stage, int32_t done, int32_t of);
};

/* How much is searched unless something else is said. */
#define WEFT_FIND_HOW                                                        \
    {                                                                        \
        .seed = 1, .evaluations = 400000, .branches = 10000000               \
    }

/* Finds a plan, whose memory is predicted, and fits a device in any order of
 * its tasks; where that is counted by instructions of tp groups it is known to
 * fit in one order, and may exceed a device in others. needs->device_bytes is
 * the memory of a device. Release the plan with weft_plan_release(), also after
 * an error. Errors: those of weft_pricer_price() and weft_search_run();
 * WEFT_EINVAL when no plan fits the memory; WEFT_EINTERRUPTED when there is no
 * time for it. */
int weft_run_find(const struct weft_config *config,
                  const struct weft_plan_needs *needs,
                  const struct weft_find *find, struct weft_plan *plan_out,
                  struct weft_found *out, struct weft_err *err);

/* A plan at random, as the search has it and as simulated. */
struct weft_drawn {
    struct weft_plan plan;
    double period_s, bytes;        /* within the model; of a device */
    double call_s[WEFT_MAX_CALLS]; /* prices */
    struct weft_simulated simulated;
};

/* Draws n plans, each option with equal chance, until one fits a device, if any
 * does in many tries. Errors: those of weft_run_find(). */
int weft_run_draw(const struct weft_config *config,
                  const struct weft_plan_needs *needs,
                  const struct weft_find *find, int32_t n,
                  struct weft_drawn *out, struct weft_err *err);

#endif
