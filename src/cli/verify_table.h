/* SPDX-License-Identifier: Apache-2.0 */
/* What `weft verify` prints: a line or a JSON object for each row that was run,
 * and how many there were of each kind. */
#ifndef WEFT_CLI_VERIFY_TABLE_H
#define WEFT_CLI_VERIFY_TABLE_H

#include "verify/job.h"

/* Set before the first row: json, terminal, n_rows, no_gpus. */
struct weft_verify_table {
    bool json, terminal; /* terminal: whether stderr is one */
    int n_rows, n_done;
    int n[WEFT_VERIFY_SKIPPED + 1]; /* number of rows of each state */
    int n_gpu_ok;                   /* of those that are ok, on GPUs */
    int n_compared;                 /* those that ran, but references */
    /* the last error printed, which is not repeated */
    struct weft_err why;
    struct weft_err skipped; /* why the last row was */
    struct weft_err no_gpus; /* why rows on GPUs are left out */
};

/* Show on a terminal which row runs, and erase that. */
void weft_verify_table_begin(const struct weft_verify_table *t,
                             const char *label);
void weft_verify_table_end(const struct weft_verify_table *t);

/* Prints and counts a row. */
void weft_verify_table_add(struct weft_verify_table *t,
                           const struct weft_verify_case *c,
                           const char *label,
                           const struct weft_verify_result *r);

/* Prints what all rows come to. */
void weft_verify_table_sum(const struct weft_verify_table *t);

#endif
