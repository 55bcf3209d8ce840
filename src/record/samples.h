/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the samples of an iteration for people to read, one line each, to
 * <run>/samples/000012.jsonl. The file appears when it is complete.
 */
#ifndef WEFT_RECORD_SAMPLES_H
#define WEFT_RECORD_SAMPLES_H

#include "config/config.h"

/* All texts are borrowed; bytes that are not UTF-8 become U+FFFD. */
struct weft_sample_record {
    int64_t index; /* within the iteration */
    struct weft_str prompt, response;
    struct weft_str label;         /* s NULL: the row has none */
    double score;                  /* weighted sum of rewards */
    double part[WEFT_MAX_REWARDS]; /* unweighted rewards */
    int32_t n_tokens;              /* of the response */
    bool ended;                    /* finish_reason "stop", else "length" */
    struct weft_str baseline; /* the response it is compared with; s NULL:
                                 none */
    double baseline_score;
};

/* Writes n samples of an iteration (from 1). reward: has the names of the
 * records' parts. */
int weft_samples_write(const char *run_dir, int64_t iteration,
                       const struct weft_reward_config *reward,
                       int32_t n_rewards, int32_t n,
                       const struct weft_sample_record *sample,
                       struct weft_err *err);

/* Path of an iteration's file. Caller frees; NULL: no memory. */
char *weft_samples_path(const char *run_dir, int64_t iteration);

/* Removes the files of iterations after n_iterations, which a process wrote
 * that died before its next checkpoint. */
int weft_samples_truncate(const char *run_dir, int64_t n_iterations,
                          struct weft_err *err);

#endif
