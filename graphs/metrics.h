/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What runs tell of an algorithm, as tables: metrics, each of something that
 * was measured and a way to make one number of it; the curves that a report
 * draws of them; and the few that stand in the line of an iteration. run reads
 * the first, record the others. Tags are verl's where it has them.
 */
#ifndef WEFT_GRAPHS_METRICS_H
#define WEFT_GRAPHS_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weft_settings;

enum weft_measured {
    /* One number of each sample: from its advantage's tile, ... */
    WEFT_OF_SCORE,     /* the score, before penalties */
    WEFT_OF_REWARD,    /* the sum of its rewards, with the KL's */
    WEFT_OF_KL,        /* the KL to the reference, summed over tokens */
    WEFT_OF_KL_WEIGHT, /* the coefficient in the reward */
    WEFT_OF_CUT,       /* 1: it has no end */
    WEFT_OF_BASELINE,  /* the score that its own is compared with */
    /* ... and from what was generated or read. */
    WEFT_OF_RESPONSE, /* tokens */
    WEFT_OF_PROMPT,   /* tokens */
    WEFT_N_COLUMNS,

    /* Moments over all response tokens. */
    WEFT_OF_ADVANTAGES = WEFT_N_COLUMNS,
    WEFT_OF_RETURNS,
    WEFT_OF_VALUES,
    WEFT_OF_ROLLOUT_PROBS, /* |p of generation - p of inference| */
    WEFT_OF_EXPLAINED, /* variance of the returns that the values explain */

    WEFT_OF_KL_ESTIMATE, /* from mismatched responses */
    WEFT_OF_EACH_REWARD, /* each of the configuration's; its name follows the
                            tag */

    /* Of the training call of the role with that slot; no metric in iterations
     * in which it is not trained. */
    WEFT_OF_STATISTIC,    /* a loss's, summed over samples and epochs */
    WEFT_OF_FIRST_STEP,   /* the same of the first mini-batch alone */
    WEFT_OF_NORM,         /* of the gradient, mean over steps */
    WEFT_OF_LEFT_OUT,     /* optimizer steps that a gate has left out */
    WEFT_OF_RATE,         /* the last learning rate */
    WEFT_OF_LOSS_KL_COEF, /* the weight of the KL in the loss */

    /* Seconds of a kind of call, from its first task to its last. */
    WEFT_OF_GENERATION,
    WEFT_OF_SCORING,   /* of rewards on the host and reward models */
    WEFT_OF_LOGPS,     /* of a frozen role */
    WEFT_OF_OLD_LOGPS, /* of one that is trained */
    WEFT_OF_VALUING,
    WEFT_OF_STEPS, /* run times of tasks without a model */
    WEFT_OF_TRAINING_VALUES,
    WEFT_OF_TRAINING_POLICY
};

enum weft_reduction {
    WEFT_AS_IT_IS,
    WEFT_MEAN,       /* over samples; of a statistic: divided by `by`,
                        and no metric if that is 0 */
    WEFT_SUM,        /* over samples */
    WEFT_SPREAD,     /* TAG/mean, TAG/max, TAG/min */
    WEFT_PER_TOKEN,  /* the sum, per response token; of a statistic: divided
                        by `by`, the tokens that learn, 0 if none does */
    WEFT_LAST,       /* of the last sample */
    WEFT_PER_STEP,   /* of a statistic: per optimizer step */
    WEFT_DIFFERENCE, /* the mean of a statistic, less that of the statistic and
                        the count that follow */
    WEFT_MIDDLE,     /* the mean of it and of the statistic that follows */
    WEFT_PERPLEXITY  /* e to the mean */
};

struct weft_metric {
    const char *tag;
    enum weft_measured of;
    enum weft_reduction how;
    int32_t slot;                                   /* of a training call */
    int32_t statistic, by;                          /* of its loss */
    bool (*when)(const struct weft_settings *made); /* NULL: always */
};

/* A line of a chart; lines that follow one another and have the same title are
 * one chart. Nothing is drawn of tags that a run has not. */
struct weft_curve {
    const char *title, *unit; /* unit: NULL: none */
    const char *label, *tag;
    bool band; /* of a spread: mean, least and most */
};

/* A metric in the line of an iteration, and among a report's first. */
struct weft_watched {
    const char *name, *tag;
    const char *tile; /* what the report calls it; NULL: not there */
    bool change;      /* the line shows its change too */
};

/* What is told of an algorithm. Lists end with one without a tag. */
struct weft_told {
    const struct weft_metric *const *metrics; /* lists; NULL ends them */
    const struct weft_curve *curves;
    const struct weft_curve *times;     /* of calls, stacked */
    const struct weft_watched *watched; /* the first is the headline */
};

/* ---- Lines of tables --------------------------------------------------- */

#define METRIC(tag, of, how)                                                 \
    {                                                                        \
        tag, of, how, -1, 0, 0, NULL                                         \
    }
#define METRIC_WHEN(tag, of, how, when)                                      \
    {                                                                        \
        tag, of, how, -1, 0, 0, when                                         \
    }
/* Of the update of the role with that slot. */
#define METRIC_ROLE(tag, of, slot)                                           \
    {                                                                        \
        tag, of, WEFT_AS_IT_IS, slot, 0, 0, NULL                             \
    }
#define METRIC_STAT(tag, how, slot, statistic, by, when)                     \
    {                                                                        \
        tag, WEFT_OF_STATISTIC, how, slot, statistic, by, when               \
    }
#define METRIC_FIRST(tag, slot, statistic)                                   \
    {                                                                        \
        tag, WEFT_OF_FIRST_STEP, WEFT_AS_IT_IS, slot, statistic, 0, NULL     \
    }
#define METRIC_END METRIC(NULL, WEFT_OF_SCORE, WEFT_AS_IT_IS)
#define CURVE(title, unit, label, tag)                                       \
    {                                                                        \
        title, unit, label, tag, false                                       \
    }
#define CURVE_BAND(title, unit, label, tag)                                  \
    {                                                                        \
        title, unit, label, tag, true                                        \
    }
#define CURVE_END CURVE(NULL, NULL, NULL, NULL)

/* Of all algorithms that generate. */
extern const struct weft_metric weft_sample_metrics[], weft_policy_metrics[],
    weft_time_metrics[];
extern const struct weft_curve weft_policy_curves[], weft_policy_times[];
extern const struct weft_watched weft_policy_watched[];
extern const struct weft_told weft_policy_told; /* all of these */
/* Of those that learn values too. */
extern const struct weft_metric weft_value_metrics[];

#endif
