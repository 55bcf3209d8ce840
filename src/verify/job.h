/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job that `weft verify` runs in many ways (rows). Each row is a child
 * process `weft train` in a folder of its own; its results are compared with
 * those of the reference row.
 */
#ifndef WEFT_VERIFY_JOB_H
#define WEFT_VERIFY_JOB_H

#include "verify/child.h"
#include "verify/compare.h"
#include "verify/rows.h"

struct weft_verify_job {
    const char *dir;    /* existing folder for all that is written */
    const char *config; /* the configuration's file */
    int n_words;
    const char *const *word; /* (n_words) key=value */
    int32_t iterations;
    char *program;       /* path of weft */
    const char *mpiexec; /* command for rows of several ranks; NULL: none */
    const char *no_mpi;  /* the reason if mpiexec is NULL */
    double timeout_s;    /* of a row */
    bool keep;           /* leave the rows' folders */
    const volatile sig_atomic_t *stop;
};

enum weft_verify_state {
    WEFT_VERIFY_OK,
    WEFT_VERIFY_DIFFERS,
    WEFT_VERIFY_FAILED,
    WEFT_VERIFY_SKIPPED /* impossible on this machine or for this job */
};

struct weft_verify_result {
    enum weft_verify_state state;
    double seconds;
    struct weft_verify_hashes hashes; /* of states OK, DIFFERS */
    struct weft_verify_difference difference;
    struct weft_err why; /* of FAILED, SKIPPED */
};

/* Creates in `dir` what the built-in job needs: two random models, prompts,
 * and the configuration, whose path is config_out (the caller frees). Errors:
 * those of model/init.h. */
int weft_verify_make(const char *dir, char **config_out,
                     struct weft_err *err);

/* Runs a row. The first row that is run for a dtype must be row 0, the
 * reference: the others are compared with its folder, which is kept until
 * weft_verify_end(). */
void weft_verify_run(const struct weft_verify_job *job,
                     const struct weft_verify_row *row, enum weft_dtype dtype,
                     struct weft_verify_result *out);

/* Removes the reference's folder of a dtype, unless job->keep. */
void weft_verify_end(const struct weft_verify_job *job,
                     enum weft_dtype dtype);

/* If `err` is a known error of an MPI launcher, adds how to avoid it. */
void weft_verify_explain(struct weft_err *err);

#endif
