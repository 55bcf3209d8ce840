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
    const char *config; /* the configuration's file; NULL: the built-in job
                           (verify/builtin.h), made in `dir` */
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

/* Whether the job can run a case. plan_out: the text of its plan; the caller
 * frees. Errors: it has too few layers, heads or samples, or no launcher of
 * ranks. */
int weft_verify_check(const struct weft_verify_job *job,
                      const struct weft_verify_case *c, char **plan_out,
                      struct weft_err *err);

/* Runs a case. The first row that is run for an algorithm and a data type must
 * be row 0, the reference: the others are compared with its folder, which is
 * kept until weft_verify_end(). */
void weft_verify_run(const struct weft_verify_job *job,
                     const struct weft_verify_case *c,
                     struct weft_verify_result *out);
/* Removes the reference's folder of c's algorithm and data type, unless
 * job->keep. */
void weft_verify_end(const struct weft_verify_job *job,
                     const struct weft_verify_case *c);

/* If `err` is a known error of an MPI launcher, adds how to avoid it. */
void weft_verify_explain(struct weft_err *err);

#endif
