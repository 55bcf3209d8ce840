/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fused pipeline schedules (RLHFuse section 5.2): several models train on the
 * same devices, their pipelines in opposite directions, each filling the
 * other's bubbles.
 *
 * A problem is a job shop. A subtask is one pass (forward; backward, or with a
 * split backward pass input and weight gradients) of one micro-batch of one
 * pipeline of one model on one stage; it runs on that stage's device and
 * takes its time without interruption. A schedule gives every device the
 * order of its subtasks and every subtask its start.
 *
 * Rules: forward of stage s waits for forward of stage s - 1, backward of s
 * for backward of s + 1 (each + latency when the device changes), backward of
 * the last stage for its own forward; a weight pass for its input pass. On
 * every stage of a pipeline backward passes (weight passes where split) keep
 * micro-batch order: that is the order in which gradients are accumulated.
 * Activations of a micro-batch are held on a stage from the start of its
 * forward to the end of its (weight) backward; a device never holds more than
 * the capacity. After the last backward of all its pipelines a model's
 * gradients are summed (sync) and its optimizer steps: the makespan is the end
 * of the last of these.
 *
 * Times are doubles in one unit of the user's. All functions are pure and
 * deterministic; ties are broken by index.
 */
#ifndef WEFT_SCHEDULE_SCHEDULE_H
#define WEFT_SCHEDULE_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum weft_pass { WEFT_PASS_FORWARD, WEFT_PASS_BACKWARD, WEFT_PASS_WEIGHT };

/* Times and activations are arrays (micro_batches, stages): the same for all
 * of the model's pipelines. */
struct weft_schedule_model {
    char *name;
    int32_t pipelines; /* K */
    int32_t stages;    /* N of each; K * N = devices * chunks */
    int32_t chunks;    /* interleaved: stages per device and pipeline, 1 */
    int32_t micro_batches;
    bool up; /* direction */
    bool split_backward;
    double *forward, *backward, *weight; /* weight: NULL unless split */
    double *activation;
    double sync, optimizer; /* after the last backward pass */
};

struct weft_schedule_problem {
    int32_t n_devices;
    int32_t n_models;
    struct weft_schedule_model *model;
    double latency;       /* between neighbouring devices */
    double capacity;      /* activation per device; 0: no limit */
    int32_t mini_batches; /* joined one after another: a model's next one
                             waits for its own optimizer step alone; 1 */
};

/* Device of stage s of pipeline p. */
int32_t weft_schedule_device(const struct weft_schedule_problem *problem,
                             const struct weft_schedule_model *model,
                             int32_t pipeline, int32_t stage);

struct weft_subtask {
    int32_t model, mini_batch, pipeline, micro_batch, stage;
    enum weft_pass pass;
    double start, end;
};

/* Per device its subtasks in order of start. */
struct weft_schedule {
    int32_t n_devices;
    int32_t *n;                 /* (n_devices) */
    struct weft_subtask **task; /* (n_devices): (n[d]) */
    double makespan;
    double peak_activation; /* the highest of any device */
};
void weft_schedule_release(struct weft_schedule *schedule);

/* ---- Files (design section 7, doc/formats.md) -------------------------- */

/* Errors name file, key and what would be right: inconsistent stages, times
 * that are negative or no numbers, no micro-batches, capacity below one
 * micro-batch, unknown keys. Release with ..._problem_release(). */
int weft_schedule_problem_read(const char *path,
                               struct weft_schedule_problem *out,
                               struct weft_err *err);
/* The same from n bytes; `name` stands in messages. */
int weft_schedule_problem_parse(const char *text, size_t n, const char *name,
                                struct weft_schedule_problem *out,
                                struct weft_err *err);
int weft_schedule_problem_check(const struct weft_schedule_problem *problem,
                                struct weft_err *err);
void weft_schedule_problem_release(struct weft_schedule_problem *problem);

/* ---- Evaluating -------------------------------------------------------- */

/* Starts, makespan and peak from the devices' orders: every subtask as early
 * as the rules and its device's order allow. Errors: WEFT_EINVAL for orders
 * with a cycle, a subtask missing or twice, or on a wrong device. */
int weft_schedule_time(const struct weft_schedule_problem *problem,
                       struct weft_schedule *schedule, struct weft_err *err);

/* ---- Baselines --------------------------------------------------------- */

enum weft_schedule_algorithm {
    WEFT_SCHEDULE_SEARCH,
    WEFT_SCHEDULE_SERIAL,      /* 1F1B, model after model */
    WEFT_SCHEDULE_1F1B_PLUS,   /* half the stages, twice the pipelines */
    WEFT_SCHEDULE_INTERLEAVED, /* interleaved 1F1B, model after model */
    WEFT_SCHEDULE_CHIMERA,     /* two equal models */
    WEFT_SCHEDULE_GREEDY,      /* larger model first (RLHFuse) */
    WEFT_N_SCHEDULE_ALGORITHMS
};
const char *weft_schedule_algorithm_name(enum weft_schedule_algorithm a);
/* Errors: WEFT_EUNSUPPORTED, where the problem is none for the algorithm, with
 * the reason. A baseline may break the capacity; look at its peak. 1F1B+, and
 * the serial 1F1B of models with chunks, which lays them out in one piece per
 * device, have another shape than the problem: only makespan and peak are
 * set. */
int weft_schedule_baseline(const struct weft_schedule_problem *problem,
                           enum weft_schedule_algorithm algorithm,
                           struct weft_schedule *out, struct weft_err *err);

/* ---- Bounds ------------------------------------------------------------ */

struct weft_schedule_bound {
    double makespan;        /* no schedule within the capacity is shorter */
    double peak_activation; /* no schedule that reaches `makespan` (or, if
                               none is known to, no schedule at all) holds
                               less */
    const char *argument;   /* "work of a device with head and tail", ... */
};
/* `effort` 0: longest chains and each device alone with heads and tails; 1:
 * heads and tails count the work that a device must do before and after (up
 * to 16384 subtasks; quadratic). Both know how many micro-batches fit and
 * how long each is held. 2: makespans above that are refuted, for about a
 * second. */
int weft_schedule_bounds(const struct weft_schedule_problem *problem,
                         int effort, struct weft_schedule_bound *out,
                         struct weft_err *err);
/* Beside a schedule of this makespan and peak: the least makespan of one that
 * holds as little, the least peak of one that is as short. Effort 1. */
int weft_schedule_bounds_tradeoff(const struct weft_schedule_problem *problem,
                                  double makespan, double peak,
                                  struct weft_schedule_bound *out,
                                  struct weft_err *err);

/* ---- Search ------------------------------------------------------------ */

struct weft_schedule_options {
    uint64_t seed;
    int64_t evaluations; /* budget of evaluated moves and constructions of all
                            restarts together; 0: the default */
    int32_t n_restarts;  /* independent ones; 0: the default */
    int32_t n_threads;   /* changes no result; 0: one per core */
    double time_limit_s; /* 0: none; a limit that cuts makes the result depend
                            on the machine, and is reported */
    bool (*stop)(void *ctx); /* Ctrl-C; may be NULL */
    void (*progress)(void *ctx, double makespan, double peak,
                     int64_t evaluations); /* may be NULL; any thread, one at
                                              a time */
    void *ctx;
    int32_t first_restart, restart_stride; /* of this rank: 0, 1 alone */
};

struct weft_schedule_result {
    struct weft_schedule schedule; /* the best: makespan, then peak */
    struct weft_schedule_bound bound;
    int64_t evaluations;
    int32_t restart; /* that found it */
    int32_t rounds;  /* of evaluations that the restarts went through */
    double seconds;
    bool cut;     /* by time_limit_s or stop */
    bool optimal; /* makespan proven least */
};

/* Makespan first, peak activation second, never above the capacity. Errors:
 * WEFT_ENOTFOUND when nothing fits the capacity (the sentence says what is
 * known), WEFT_ENOMEM. Release the schedule. */
int weft_schedule_search(const struct weft_schedule_problem *problem,
                         const struct weft_schedule_options *options,
                         struct weft_schedule_result *out,
                         struct weft_err *err);

/* Raises the bound of a result that is not proven least, by refuting shorter
 * makespans: for at most a few seconds, less after few evaluations or a cut.
 * Errors: WEFT_ENOMEM. */
int weft_schedule_prove(const struct weft_schedule_problem *problem,
                        const struct weft_schedule_options *options,
                        struct weft_schedule_result *result,
                        struct weft_err *err);

/* weft_schedule_search or what does the same, for those who search several
 * times. */
typedef int (*weft_schedule_search_fn)(
    const struct weft_schedule_problem *problem,
    const struct weft_schedule_options *options,
    struct weft_schedule_result *out, struct weft_err *err);

/* Searches until options->time_limit_s has passed or the makespan is proven
 * least, again and again with other seeds and more evaluations; the result's
 * seconds tell the time. With a number of evaluations, or without a time
 * limit, one search. Errors: the search's. Release the schedule. */
int weft_schedule_search_until(const struct weft_schedule_problem *problem,
                               const struct weft_schedule_options *options,
                               weft_schedule_search_fn search,
                               struct weft_schedule_result *out,
                               struct weft_err *err);

/* The front of makespan against peak: schedules, none better in both, by
 * rising makespan; the caller releases each and frees the array. */
int weft_schedule_pareto(const struct weft_schedule_problem *problem,
                         const struct weft_schedule_options *options,
                         weft_schedule_search_fn search,
                         struct weft_schedule **out, int32_t *n_out,
                         struct weft_err *err);

#endif
