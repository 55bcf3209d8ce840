/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job that `weft verify` runs in many ways (rows). Each row is a child
 * process `weft train` in a folder of its own; its results are compared with
 * those of its reference, another row.
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
    int32_t n_gpus;      /* of this machine, for rows on GPUs */
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
    struct weft_verify_distance distance; /* of the first row on a GPU */
    struct weft_err why;                  /* of FAILED, SKIPPED */
};

/* Whether the job can run a case. plan_out: the text of its plan; the caller
 * frees. Errors: it has too few layers, heads or samples, or no launcher of
 * ranks. */
int weft_verify_check(const struct weft_verify_job *job,
                      const struct weft_verify_case *c, char **plan_out,
                      struct weft_err *err);

/* Whether others are compared with a row. */
bool weft_verify_is_reference(const struct weft_verify_row *row);
/* Runs a case. Of an algorithm and a data type the references must be run
 * before the others: these are compared with their folders, which are kept
 * until weft_verify_end(). The first row on a GPU must be near row 0. */
void weft_verify_run(const struct weft_verify_job *job,
                     const struct weft_verify_case *c,
                     struct weft_verify_result *out);
/* Removes the references' folders of c's algorithm and data type, unless
 * job->keep. */
void weft_verify_end(const struct weft_verify_job *job,
                     const struct weft_verify_case *c);

/* If `err` is a known error of an MPI launcher, adds how to avoid it. */
void weft_verify_explain(struct weft_err *err);

#endif
