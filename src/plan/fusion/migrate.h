/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving the samples that are still generated when most have ended to a few
 * instances, so that the others are free for inference: who stays, who goes
 * where, and how (RLHFuse, "Optimizing RLHF Training for Large Language Models
 * with Stage Fusion", section 4.2; what it leaves open is said at each
 * function).
 *
 * Pure functions: no clock, no chance; ties are broken by the lower index.
 */
#ifndef WEFT_PLAN_FUSION_MIGRATE_H
#define WEFT_PLAN_FUSION_MIGRATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "plan/task.h"

/* How much longer a decode step may take than that of one sample. */
#define WEFT_MIGRATE_SLOWER 1.2
/* Of the lengths seen: what a sample is expected not to exceed. */
#define WEFT_MIGRATE_QUANTILE 0.9
/* Migrations after the first, at most; ranges of tokens; lengths that are kept
 * of those seen. */
enum {
    WEFT_MIGRATE_LATER = 2,
    WEFT_MIGRATE_RANGES = 8,
    WEFT_MIGRATE_SEEN = 256
};

/* A migration after the first: the tail shrinks to fewer instances again. */
struct weft_migrate_later {
    double share;      /* of all samples that are left, less than before */
    int32_t instances; /* so many go on at least; 0: the fewest */
};

/* What generation costs on an instance. All instances are alike. */
struct weft_migrate_costs {
    void *ctx; /* of the functions, which are pure */
    /* Seconds of a step: a row of each sample that decodes, and beside them
     * rows of samples that are read; the targets are those that get a token.
     * Grows with the rows and with their keys. */
    double (*step_s)(void *ctx, const struct weft_work_rows *rows);
    int32_t read_rows;   /* of samples that are read, in a step, at most; 0:
                          any (rollout.prefill_tokens) */
    double token_bytes;  /* of KV, on all devices of an instance together */
    double memory_bytes; /* of an instance, for KV */
    double link_bytes_per_s, link_latency_s; /* of an instance, each way */
    int32_t most_batch; /* BS_max; 0: weft_migrate_most_batch() finds it */
};

/* A sample that is still generated, in tokens. */
struct weft_migrate_left {
    int32_t instance;
    int32_t prompt, has; /* has: of the response, so far */
    int32_t expected;    /* of the response, in the end: more than it has */
};

/* Seconds of a step in which n >= 1 samples decode that attend to n_tokens in
 * all. */
double weft_migrate_decode_s(const struct weft_migrate_costs *costs,
                             int32_t n, double n_tokens);

/* Seconds of reading n_tokens >= 1 of a sample by itself, in as few steps as
 * can be; the last also draws a token. */
double weft_migrate_read_s(const struct weft_migrate_costs *costs,
                           int32_t n_tokens);

/* The largest batch up to `most` whose decode step takes at most
 * WEFT_MIGRATE_SLOWER times that of one sample (BS_max), each sample with
 * tokens_each in its KV cache; at least 1. The paper profiles a batch size
 * alone, but a step also takes longer with longer texts. */
int32_t weft_migrate_most_batch(const struct weft_migrate_costs *costs,
                                double tokens_each, int32_t most);

/* How long a response of which there are `has` tokens is expected to become:
 * the quantile (from 0 to below 1) of those of the n ascending lengths seen
 * that are longer. If these are fewer than 1 / (1 - quantile), `most`, the
 * worst case, which the paper always takes. Lengths that were cut at the
 * maximum are seen as the maximum. */
int32_t weft_migrate_expect(int32_t n, const int32_t *seen, int32_t has,
                            int32_t most, double quantile);

/* The fewest instances for n_left >= 1 samples: max(ceil(n_left / most_batch),
 * ceil(n_left * sample_bytes / memory_bytes), 1). Errors: WEFT_EINVAL, a
 * sentence, when one sample does not fit. */
int weft_migrate_fewest(int32_t n_left, int32_t most_batch,
                        double sample_bytes, double memory_bytes,
                        int32_t *out, struct weft_err *err);

/* The n_stay instances that have most samples left, so that the fewest move;
 * n_left_of (n_instances): -1 for those that have gone before; stays_out
 * (n_instances). */
void weft_migrate_stay(int32_t n_instances, const int32_t *n_left_of,
                       int32_t n_stay, bool *stays_out);

/* Deals the samples of instances that do not stay to those that do, for which
 * the paper has no rule: in descending remaining length, each to the instance
 * that will have the fewest tokens in the end, of those where no more than
 * most_batch samples and most_tokens come together. Samples of instances that
 * stay are kept there, also beyond the limits. to_out (n_left): instances;
 * *fits_out: whether all found one (else to_out has -1 for some). Errors:
 * WEFT_ENOMEM. */
int weft_migrate_deal(int32_t n_instances, const bool *stays, int32_t n_left,
                      const struct weft_migrate_left *left,
                      int32_t most_batch, double most_tokens, int32_t *to_out,
                      bool *fits_out, struct weft_err *err);

/* Whether it is cheaper to send n_tokens of one sample and fill the KV cache
 * again than to send the cache, both alone. The paper decides once, by the
 * network; here it is decided for each sample. */
bool weft_migrate_reads(const struct weft_migrate_costs *costs,
                        int32_t n_tokens);

/* Tokens of a sample, both included. */
struct weft_migrate_range {
    int32_t first, last;
};

/* Those, of 1 to `most` tokens, for which it is not cheaper: samples whose cache
 * is sent. Ascending; of more than WEFT_MIGRATE_RANGES the last one has what
 * follows, too, of which some would be read. Returns their number. */
int32_t weft_migrate_cached(const struct weft_migrate_costs *costs,
                            int32_t most, struct weft_migrate_range *out);

/* Keeps at most WEFT_MIGRATE_SEEN of n ascending lengths: the longest of each of
 * so many equal parts of them. Returns how many; out may be `seen`. */
int32_t weft_migrate_keep(int32_t n, const int32_t *seen, int32_t *out);

/* What is decided when the trigger comes. Arrays are the caller's. */
struct weft_migrate_decision {
    int32_t n_stay;     /* 0: nothing moves, and the rest is not set */
    int32_t most_batch; /* BS_max */
    bool *stays;        /* (n_instances) */
    int32_t *to;        /* (n_left) who goes on with a sample */
    bool *reads;        /* (n_left) it is read again, where it moves; NULL:
                           not wanted */
};

/* All of the above: the fewest instances, but at least `instances`, to which
 * the samples can be dealt; n_stay 0 where that is no fewer than all, or no
 * sample is left. among (n_instances): those that can stay, which have all
 * samples; NULL: all. beside (n_instances): those that stay first, as another
 * generation goes on with the same devices; NULL: nobody does. Errors: WEFT_ENOMEM; WEFT_EINVAL as
 * weft_migrate_fewest(). */
int weft_migrate_decide(const struct weft_migrate_costs *costs,
                        int32_t n_instances, const bool *among,
                        const bool *beside, int32_t n_left,
                        const struct weft_migrate_left *left,
                        int32_t instances, struct weft_migrate_decision *out,
                        struct weft_err *err);

#endif
