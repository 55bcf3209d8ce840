/* SPDX-License-Identifier: Apache-2.0 */
/* Simulations that begin alike, without what they have in common. */
#include <math.h>

#include "base/alloc.h"
#include "plan/fusion/inside.h"

/* ---- What a migration leaves as it is ------------------------------------ */

static void take_list(struct weft_overlap_run *run,
                      const struct weft_overlap_run *from,
                      const struct weft_overlap_list *list)
{
    for (int32_t s = list->first, next; s >= 0; s = next) {
        next = run->state[s].next;
        run->state[s] = from->state[s];
    }
}

/* Brings an instance to its end: as it is in `before`, the same run to its end
 * without the last migration. Nothing passes between instances but by
 * migrations: an instance to which none comes and which loses none, with as many
 * slots as before, goes through the same steps at the same times, also where
 * they are done in two parts. */
static void take(struct weft_overlap_run *run,
                 const struct weft_overlap_run *before, int32_t i)
{
    struct weft_overlap_instance *in = &run->instance[i];
    take_list(run, before, &in->active);
    take_list(run, before, &in->queue);
    *in = before->instance[i];
}

/* The run to its end. */
static void complete(struct weft_overlap_run *out,
                     const struct weft_overlap_run *run,
                     const struct weft_overlap_run *before)
{
    weft_overlap_run_copy(out, run);
    for (int32_t i = 0; i < run->job->n_instances; i++) {
        if (run->instance[i].touched)
            weft_overlap_generate(out, i, INFINITY);
        else
            take(out, before, i);
    }
}

/* ---- A trial ------------------------------------------------------------- */

static int32_t longest_text(const struct weft_overlap_job *job)
{
    int32_t most = 0;
    for (int32_t s = 0; s < job->n_samples; s++)
        most = weft_max32(most,
                          job->sample[s].prompt + job->sample[s].length);
    return most;
}

int weft_overlap_trial_init(struct weft_overlap_trial *trial,
                            const struct weft_overlap_job *job,
                            int32_t other_batch, struct weft_err *err)
{
    size_t n = 3 * (size_t) job->n_samples, n_in = (size_t) job->n_instances;
    size_t most = (size_t) longest_text(job) + 1;
    *trial = (struct weft_overlap_trial){
        .end_s = weft_alloc(n, sizeof *trial->end_s),
        .known = {.reads = weft_alloc(most, sizeof *trial->known.reads),
                  .expected = weft_alloc(most,
                                         sizeof *trial->known.expected)},
        .rest = weft_alloc(n_in, sizeof *trial->rest)};
    int rc = trial->end_s && trial->known.reads && trial->known.expected
                  && trial->rest
               ? weft_overlap_check(job, err)
               : weft_err_nomem(err, "a simulation", 8 * n);
    struct weft_overlap_run *const run[] = {
        &trial->whole, &trial->start,    &trial->trunk,   &trial->ended,
        &trial->run,   &trial->spare[0], &trial->spare[1]};
    for (size_t k = 0; k < WEFT_COUNT(run) && !rc; k++) {
        rc = weft_overlap_run_init(run[k], job, err);
        run[k]->other_batch = other_batch;
        run[k]->known = &trial->known;
    }
    if (rc)
        return rc;
    weft_overlap_run_begin(&trial->whole);
    weft_overlap_generate_all(&trial->whole, INFINITY);
    weft_overlap_ends(&trial->whole, trial->end_s);
    trial->whole.out.generated_s = weft_overlap_last_end(&trial->whole);
    return weft_overlap_infer(&trial->whole, err);
}

void weft_overlap_trial_release(struct weft_overlap_trial *trial)
{
    weft_overlap_run_release(&trial->whole);
    weft_overlap_run_release(&trial->start);
    weft_overlap_run_release(&trial->trunk);
    weft_overlap_run_release(&trial->ended);
    weft_overlap_run_release(&trial->run);
    weft_overlap_run_release(&trial->spare[0]);
    weft_overlap_run_release(&trial->spare[1]);
    weft_free(trial->end_s);
    weft_free(trial->known.reads);
    weft_free(trial->known.expected);
    weft_free(trial->rest);
}

/* Migrations, each of which comes when so few samples are left by those before
 * it, the first at at_s; and none after one that never comes. *before: the run
 * to its end without any of them; then without the last one. *all_out: whether
 * all came. */
static int migrate_all(struct weft_overlap_trial *trial,
                       struct weft_overlap_run *run,
                       const struct weft_overlap_run **before, double at_s,
                       int32_t n, const struct weft_overlap_step *step,
                       int32_t most_batch, bool *all_out,
                       struct weft_err *err)
{
    double *end_s = trial->end_s + 2 * (size_t) run->job->n_samples;
    int32_t k = 0;
    int rc = 0;
    while (k < n && at_s > 0 && !rc) {
        rc = weft_overlap_migrate(run, &step[k++], at_s, most_batch, err);
        if (rc || k == n)
            break;
        complete(&trial->spare[k % 2], run, *before);
        *before = &trial->spare[k % 2];
        weft_overlap_ends(*before, end_s);
        at_s = weft_overlap_when_left(run->job, end_s, step[k].n_left);
    }
    *all_out = k == n;
    return rc;
}

int weft_overlap_trial_begin(struct weft_overlap_trial *trial,
                             const struct weft_overlap_when *when, int32_t n,
                             struct weft_err *err)
{
    const struct weft_overlap_job *job = trial->start.job;
    const struct weft_overlap_run *before = &trial->whole;
    struct weft_overlap_step step[1 + WEFT_MIGRATE_LATER];
    weft_overlap_steps(job, when, step);
    weft_overlap_run_begin(&trial->start);
    double at_s = weft_overlap_when_left(job, trial->end_s, step[0].n_left);
    int rc = migrate_all(trial, &trial->start, &before, at_s, n, step,
                         when->most_batch, &trial->goes_on, err);
    if (rc)
        return rc;
    complete(&trial->ended, &trial->start, before);
    weft_overlap_ends(&trial->ended, trial->end_s + job->n_samples);
    weft_overlap_run_copy(&trial->trunk, &trial->start);
    trial->n_before = n;
    trial->at_s = 0;
    return 0;
}

/* Goes on with the trunk to the time, from its start where it is beyond. */
static void go_to(struct weft_overlap_trial *trial, double at_s)
{
    if (at_s < trial->at_s)
        weft_overlap_run_copy(&trial->trunk, &trial->start);
    weft_overlap_generate_all(&trial->trunk, at_s);
    trial->at_s = at_s;
}

/* ---- Instances that a migration changes ---------------------------------- */

static int32_t most_rest(const struct weft_overlap_run *run,
                         const struct weft_overlap_list *list)
{
    int32_t most = 0;
    for (int32_t s = list->first; s >= 0; s = run->state[s].next)
        most = weft_max32(most,
                          run->job->sample[s].length - run->state[s].has);
    return most;
}

/* Those that are to be simulated; the others are brought to their ends. */
static void list_rest(struct weft_overlap_trial *trial,
                      const struct weft_overlap_run *before)
{
    struct weft_overlap_run *run = &trial->run;
    trial->n_rest = 0;
    for (int32_t i = 0; i < run->job->n_instances; i++) {
        const struct weft_overlap_instance *in = &run->instance[i];
        if (!in->touched) {
            take(run, before, i);
            continue;
        }
        int32_t tokens = weft_max32(most_rest(run, &in->active),
                                    most_rest(run, &in->queue));
        if (tokens > 0)
            trial->rest[trial->n_rest++] = (struct weft_overlap_rest){i,
                                                                      tokens};
    }
}

int weft_overlap_trial_migrate(struct weft_overlap_trial *trial,
                               const struct weft_overlap_when *when,
                               struct weft_err *err)
{
    struct weft_overlap_step step[1 + WEFT_MIGRATE_LATER];
    struct weft_overlap_run *run = &trial->run;
    const struct weft_overlap_run *before = &trial->ended;
    const struct weft_overlap_job *job = run->job;
    int32_t n = weft_overlap_steps(job, when, step), k = trial->n_before;
    double at_s = 0;
    bool all;
    int rc = 0;
    if (trial->goes_on && k < n)
        at_s = weft_overlap_when_left(job, trial->end_s + job->n_samples,
                                      step[k].n_left);
    if (at_s > 0)
        go_to(trial, at_s);
    weft_overlap_run_copy(run, at_s > 0 ? &trial->trunk : before);
    if (at_s > 0)
        rc = migrate_all(trial, run, &before, at_s, n - k, step + k,
                         when->most_batch, &all, err);
    list_rest(trial, before);
    run->out.generated_s = weft_overlap_last_end(run);
    return rc;
}

bool weft_overlap_trial_generate(struct weft_overlap_trial *trial)
{
    struct weft_overlap_run *run = &trial->run;
    int32_t best = 0; /* it is likely to end last */
    if (trial->n_rest == 0)
        return false;
    for (int32_t k = 1; k < trial->n_rest; k++)
        if (trial->rest[k].tokens > trial->rest[best].tokens)
            best = k;
    int32_t i = trial->rest[best].instance;
    trial->rest[best] = trial->rest[--trial->n_rest];
    weft_overlap_generate(run, i, INFINITY);
    run->out.generated_s = fmax(run->out.generated_s, run->instance[i].now_s);
    return true;
}

int weft_overlap_trial_least(const struct weft_overlap_trial *trial,
                             double *out, struct weft_err *err)
{
    const struct weft_overlap_run *run = &trial->run;
    return weft_overlap_infer_least(run, trial->end_s + run->job->n_samples,
                                    out, err);
}

int weft_overlap_trial_infer(struct weft_overlap_trial *trial,
                             struct weft_err *err)
{
    return weft_overlap_infer(&trial->run, err);
}
