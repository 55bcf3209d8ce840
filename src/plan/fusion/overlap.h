/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generation and inference of an iteration, simulated, with and without
 * inter-stage fusion (RLHFuse, section 4), and the choice of when to migrate.
 *
 *     instance 0  generates ------------ | inference
 *     instance 1  generates ---- + ~~~~~~ moved samples ~~~~ | inference
 *     instance 2  generates ----/ | inference ---------------------------
 *                               ^ trigger: so many samples are left
 *
 * Generation: continuous batching, as the engine does it (codelets/gen.h). An
 * instance begins its samples in their order while it has slots. A step has a
 * row of each that decodes, and beside them rows of those that are read, in the
 * order in which they began, up to costs->read_rows; the last row of a sample
 * that is read gives it a token. Where KV memory runs out, the one begun last
 * is put off and read again, when there is room for all of it. KV memory is
 * counted in tokens, not in pages. Samples of one prompt have its cache in
 * common: who is read later waits until the prompt has been read, and reads its
 * last token alone. What different prompts begin with is not known here.
 *
 * Inference: every sample that has ended passes every model, in any order. The
 * devices of an instance are one worker, and all workers are alike. A worker
 * that is free takes samples for the model that has most left to do (the
 * longest processing time first); what has ended last waits for no full
 * micro-batch longer than wait_s.
 *
 * It leaves out what the controller and the exchange of results take.
 * Deterministic: no clock, no chance; ties are broken by the lower index.
 */
#ifndef WEFT_PLAN_FUSION_OVERLAP_H
#define WEFT_PLAN_FUSION_OVERLAP_H

#include "plan/fusion/migrate.h"
#include "plan/task.h"

enum { WEFT_OVERLAP_MODELS = WEFT_MAX_CALLS };

/* In tokens. */
struct weft_overlap_sample {
    int32_t instance;
    int32_t prompt, length; /* length: of the response, 1 to `most` */
    /* number of the prompt, 1 to n_samples, which samples with the same one
     * share; 0: it is read for this one alone */
    int32_t shared;
};

struct weft_overlap_job {
    const struct weft_migrate_costs *costs;
    int32_t n_instances;
    int32_t slots; /* samples that an instance generates at once; 0: any */
    int32_t n_samples;
    const struct weft_overlap_sample *sample; /* in each instance's order */
    int32_t most;                             /* tokens of a response */
    /* lengths of earlier iterations, ascending: all that decisions know of
     * samples that have not ended */
    int32_t n_seen;
    const int32_t *seen;
    /* reading a prompt may take no more than a row, as another begins alike;
     * only the bound (bound.h) asks for it */
    bool shares_prefixes;
    int32_t n_models;
    /* Seconds that a worker takes for n >= 1 samples of n_tokens in all; a
     * pure function of costs->ctx */
    double (*infer_s)(void *ctx, int32_t model, int32_t n, double n_tokens);
    /* until a worker has the model's weights, from the host or over links, on
     * which it takes no other work; 0: it has them when generation ends */
    double load_s[WEFT_OVERLAP_MODELS];
    /* weights come to all workers beside generation, as they do in a run: from
     * the host so many seconds after its beginning, and from elsewhere so many
     * after that, but not before the first sample has ended */
    double restore_s[WEFT_OVERLAP_MODELS], move_s[WEFT_OVERLAP_MODELS];
    double micro_tokens; /* of a micro-batch, at most, or one sample */
    double wait_s;       /* for a full micro-batch */
    /* inference begins when all samples have ended, as RLHFuse-Base does; else
     * instances turn to it one by one */
    bool serial;
    /* it begins for nobody before the first migration, as RLHFuse does; where
     * none comes, when all samples have ended */
    bool at_trigger;
};

/* When to migrate. */
struct weft_overlap_when {
    double share;      /* of the samples left; 0: never */
    int32_t instances; /* at least so many go on; 0: the fewest (migrate.h) */
    int32_t n_later;   /* migrations after it */
    struct weft_migrate_later later[WEFT_MIGRATE_LATER];
    int32_t most_batch; /* samples that an instance goes on with, at most; 0:
                           BS_max (migrate.h) */
};

struct weft_overlapped {
    double
        trigger_s; /* when so few samples are left, first; 0: no migration */
    double generated_s; /* all samples have ended */
    double all_s;       /* and have passed all models */
    double infer_s; /* work of inference, of all workers; without loading */
    int32_t n_stay; /* instances that went on, at last; 0: no migration */
    int32_t n_migrated;      /* migrations */
    int32_t n_moved, n_read; /* samples that moved; of these, read again */
    int32_t n_put_off;       /* times that KV memory ran out */
};

/* Simulates a job. end_s_out (n_samples): when samples end; NULL: not wanted.
 * Errors: WEFT_ENOMEM; WEFT_EINVAL, a sentence, when the longest sample does
 * not fit an instance's memory. */
int weft_overlap_simulate(const struct weft_overlap_job *job,
                          const struct weft_overlap_when *when,
                          struct weft_overlapped *out, double *end_s_out,
                          struct weft_err *err);

/* Chooses when to migrate: the share (5 % to 95 % in steps of 5 %, then of
 * 1 % around the best) and the instances with the least sum of all_s over jobs,
 * such as the last iterations with the lengths that they had; then, one by one,
 * later migrations that make it less. All of that with batches up to BS_max,
 * and with as many samples as there are slots, as larger batches take longer
 * but free more instances: on a CPU BS_max may be 1, with which no samples come
 * together. Not to migrate is one of the choices.
 * seconds_out: that sum; unmoved_out (n_jobs): all_s without migration; NULL: not
 * wanted. Errors: those of weft_overlap_simulate(). */
int weft_overlap_choose(int32_t n_jobs, const struct weft_overlap_job *job,
                        struct weft_overlap_when *out, double *seconds_out,
                        double *unmoved_out, struct weft_err *err);

#endif
