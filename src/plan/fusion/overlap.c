/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/fusion/overlap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "plan/fusion/inside.h"

/* ---- Generation to its end ---------------------------------------------- */

static void generate(struct weft_overlap_run *run, double stop_s)
{
    for (int32_t i = 0; i < run->job->n_instances; i++)
        weft_overlap_generate(run, i, stop_s);
}

/* ---- Migration ---------------------------------------------------------- */

/* What is left at the trigger. Arrays of n_samples, but for stays. */
struct leaving {
    int32_t n, *sample; /* (n) their numbers */
    struct weft_migrate_left *left;
    struct weft_migrate_decision decision;
    bool *among;                  /* (n_instances) that generate so far */
    double *sends_s, *receives_s; /* (n_instances) busy until then */
};

static void leaving_release(struct leaving *l)
{
    weft_free(l->sample);
    weft_free(l->left);
    weft_free(l->decision.stays);
    weft_free(l->decision.to);
    weft_free(l->among);
    weft_free(l->sends_s);
    weft_free(l->receives_s);
}

static int leaving_init(struct leaving *l, const struct weft_overlap_job *job,
                        struct weft_err *err)
{
    size_t n = (size_t) job->n_samples, n_in = (size_t) job->n_instances;
    struct weft_migrate_decision *d = &l->decision;
    *l = (struct leaving){.n = 0};
    l->sample = weft_alloc(n, sizeof *l->sample);
    l->left = weft_alloc(n, sizeof *l->left);
    d->stays = weft_alloc(n_in, sizeof *d->stays);
    d->to = weft_alloc(n, sizeof *d->to);
    l->among = weft_alloc(n_in, sizeof *l->among);
    l->sends_s = weft_alloc(n_in, sizeof *l->sends_s);
    l->receives_s = weft_alloc(n_in, sizeof *l->receives_s);
    return l->sample && l->left && d->stays && d->to && l->among && l->sends_s
                && l->receives_s
             ? 0
             : weft_err_nomem(err, "a simulation", n * sizeof *l->left);
}

static void find_left(const struct weft_overlap_run *run, struct leaving *l)
{
    const struct weft_overlap_job *job = run->job;
    for (int32_t s = 0; s < job->n_samples; s++) {
        const struct weft_overlap_state *at = &run->state[s];
        if (at->end_s >= 0)
            continue;
        l->left[l->n] = (struct weft_migrate_left){
            .instance = at->instance,
            .prompt = job->sample[s].prompt,
            .has = at->has,
            .expected = weft_migrate_expect(job->n_seen, job->seen, at->has,
                                            job->most,
                                            WEFT_MIGRATE_QUANTILE)};
        l->sample[l->n++] = s;
    }
}

/* A sample's cache, or its tokens, go to another instance, over links that
 * carry one sample after another. */
static void move(struct weft_overlap_run *run, struct leaving *l, int32_t k)
{
    const struct weft_migrate_costs *c = run->job->costs;
    struct weft_overlap_state *at = &run->state[l->sample[k]];
    int32_t from = at->instance, to = l->decision.to[k];
    double start_s = fmax(run->instance[from].now_s, at->ready_s);
    at->instance = to;
    at->ready = at->common = 0;
    run->out.n_moved++;
    if (weft_migrate_reads(c, l->left[k].prompt + l->left[k].has))
        at->cached = 0;
    run->out.n_read += at->cached == 0;
    if (at->cached > 0) {
        double bytes = c->token_bytes * at->cached;
        start_s = fmax(start_s, fmax(l->sends_s[from], l->receives_s[to]))
                + bytes / c->link_bytes_per_s;
        l->sends_s[from] = l->receives_s[to] = start_s;
    }
    at->ready_s = start_s + c->link_latency_s;
}

struct arriving {
    double ready_s;
    int32_t sample;
};

static int by_ready(const void *a, const void *b)
{
    const struct arriving *x = a, *y = b;
    if (x->ready_s < y->ready_s || x->ready_s > y->ready_s)
        return x->ready_s < y->ready_s ? -1 : 1;
    return x->sample < y->sample ? -1 : x->sample > y->sample;
}

/* Sends samples in their order; they are queued as they come. */
static int move_all(struct weft_overlap_run *run, struct leaving *l,
                    struct weft_err *err)
{
    struct arriving *coming = weft_alloc((size_t) l->n, sizeof *coming);
    int32_t n = 0;
    if (!coming)
        return weft_err_nomem(err, "a simulation", (size_t) l->n * 16);
    for (int32_t k = 0; k < l->n; k++) {
        int32_t s = l->sample[k];
        if (l->decision.to[k] == l->left[k].instance)
            continue;
        move(run, l, k);
        coming[n++] = (struct arriving){run->state[s].ready_s, s};
    }
    qsort(coming, (size_t) n, sizeof *coming, by_ready);
    for (int32_t i = 0; i < n; i++)
        weft_overlap_queue(run, coming[i].sample);
    weft_free(coming);
    return 0;
}

/* Whether batches of the other size would be other batches. */
static bool matters(const struct leaving *l, int32_t other_batch)
{
    return weft_min32(l->decision.most_batch, l->n)
        != weft_min32(other_batch, l->n);
}

/* Samples left go to the instances that stay; the others are free. */
static int migrate(struct weft_overlap_run *run, int32_t instances,
                   int32_t most_batch, struct weft_err *err)
{
    struct weft_migrate_costs costs = *run->job->costs;
    struct leaving l;
    const struct weft_migrate_decision *d = &l.decision;
    int rc = leaving_init(&l, run->job, err);
    if (most_batch > 0)
        costs.most_batch = most_batch;
    if (!rc) {
        find_left(run, &l);
        for (int32_t i = 0; i < run->job->n_instances; i++)
            l.among[i] = run->free_s[i] < 0;
        rc = weft_migrate_decide(&costs, run->job->n_instances, l.among, l.n,
                                 l.left, instances, &l.decision, err);
    }
    if (!rc && l.n > 0)
        run->matters = run->matters || matters(&l, run->other_batch);
    if (!rc && d->n_stay > 0) {
        run->out.n_stay = d->n_stay;
        run->out.n_migrated++;
        rc = move_all(run, &l, err);
        for (int32_t i = 0; i < run->job->n_instances; i++) {
            struct weft_overlap_instance *in = &run->instance[i];
            if (!l.among[i])
                continue;
            if (d->stays[i]) {
                if (in->slots > 0 && in->slots < d->most_batch)
                    in->slots = d->most_batch;
                continue;
            }
            in->active = in->queue = (struct weft_overlap_list){-1, -1};
            in->n_active = 0;
            run->free_s[i] = fmax(in->now_s, l.sends_s[i]);
        }
    }
    leaving_release(&l);
    return rc;
}

/* ---- A simulation ------------------------------------------------------- */

static int check(const struct weft_overlap_job *job, struct weft_err *err)
{
    const struct weft_migrate_costs *c = job->costs;
    int32_t prompt = 0, n;
    weft_assert(job->n_models <= WEFT_OVERLAP_MODELS);
    for (int32_t s = 0; s < job->n_samples; s++)
        if (job->sample[s].prompt > prompt)
            prompt = job->sample[s].prompt;
    return weft_migrate_fewest(1, 1,
                               c->token_bytes * ((double) prompt + job->most),
                               c->memory_bytes, &n, err);
}

static int32_t left_at(const struct weft_overlap_job *job, double share)
{
    return (int32_t) floor(share * job->n_samples + 1e-9);
}

/* The migrations of `when`, in their order. */
struct step {
    int32_t n_left, instances; /* samples left, at most */
};

static int32_t list_steps(const struct weft_overlap_job *job,
                          const struct weft_overlap_when *when,
                          struct step out[1 + WEFT_MIGRATE_LATER])
{
    out[0] = (struct step){left_at(job, when->share), when->instances};
    for (int32_t k = 0; k < when->n_later; k++)
        out[k + 1] = (struct step){left_at(job, when->later[k].share),
                                   when->later[k].instances};
    return 1 + when->n_later;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

/* Generates all that is left in a copy of a run, and sorts when its samples
 * end. */
static void find_ends(const struct weft_overlap_run *run,
                      struct weft_overlap_run *spare, double *end_s)
{
    int32_t n = run->job->n_samples;
    weft_overlap_run_copy(spare, run);
    generate(spare, INFINITY);
    for (int32_t s = 0; s < n; s++)
        end_s[s] = spare->state[s].end_s;
    qsort(end_s, (size_t) n, sizeof *end_s, by_size);
}

static bool comes(const struct weft_overlap_job *job, int32_t left)
{
    return left > 0 && left < job->n_samples;
}

static int migrate_at(struct weft_overlap_run *run, const struct step *step,
                      double at_s, int32_t most_batch, struct weft_err *err)
{
    generate(run, at_s);
    int rc = migrate(run, step->instances, most_batch, err);
    if (run->out.n_migrated == 1 && run->out.trigger_s == 0)
        run->out.trigger_s = at_s;
    return rc;
}

/* Migrations, each of which comes when so few samples are left by those before
 * it, and none after one that never comes. *all_out: whether all came. */
static int migrate_all(struct weft_overlap_trial *trial,
                       struct weft_overlap_run *run, int32_t n,
                       const struct step *step, int32_t most_batch,
                       bool *all_out, struct weft_err *err)
{
    int32_t n_samples = run->job->n_samples, k = 0;
    double *end_s = trial->end_s + n_samples;
    int rc = 0;
    for (; k < n && comes(run->job, step[k].n_left) && !rc; k++) {
        find_ends(run, &trial->spare, end_s);
        double at_s = end_s[n_samples - step[k].n_left - 1];
        if (at_s <= 0)
            break;
        rc = migrate_at(run, &step[k], at_s, most_batch, err);
    }
    *all_out = k == n;
    return rc;
}

int weft_overlap_trial_init(struct weft_overlap_trial *trial,
                            const struct weft_overlap_job *job,
                            int32_t other_batch, struct weft_err *err)
{
    size_t n = 2 * (size_t) job->n_samples;
    *trial = (struct weft_overlap_trial){.n_before = 0};
    trial->end_s = weft_alloc(n, sizeof *trial->end_s);
    int rc = trial->end_s ? check(job, err)
                          : weft_err_nomem(err, "a simulation", 8 * n);
    struct weft_overlap_run *const run[] = {&trial->start, &trial->trunk,
                                            &trial->ended, &trial->run,
                                            &trial->spare};
    for (size_t k = 0; k < WEFT_COUNT(run) && !rc; k++) {
        rc = weft_overlap_run_init(run[k], job, err);
        run[k]->other_batch = other_batch;
    }
    return rc;
}

void weft_overlap_trial_release(struct weft_overlap_trial *trial)
{
    weft_overlap_run_release(&trial->start);
    weft_overlap_run_release(&trial->trunk);
    weft_overlap_run_release(&trial->ended);
    weft_overlap_run_release(&trial->run);
    weft_overlap_run_release(&trial->spare);
    weft_free(trial->end_s);
}

int weft_overlap_trial_begin(struct weft_overlap_trial *trial,
                             const struct weft_overlap_when *when, int32_t n,
                             struct weft_err *err)
{
    struct step step[1 + WEFT_MIGRATE_LATER];
    list_steps(trial->start.job, when, step);
    weft_overlap_run_begin(&trial->start);
    int rc = migrate_all(trial, &trial->start, n, step, when->most_batch,
                         &trial->goes_on, err);
    if (rc)
        return rc;
    find_ends(&trial->start, &trial->ended, trial->end_s);
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
    generate(&trial->trunk, at_s);
    trial->at_s = at_s;
}

int weft_overlap_trial_generate(struct weft_overlap_trial *trial,
                                const struct weft_overlap_when *when,
                                struct weft_err *err)
{
    struct step step[1 + WEFT_MIGRATE_LATER];
    struct weft_overlap_run *run = &trial->run;
    const struct weft_overlap_job *job = run->job;
    int32_t n = list_steps(job, when, step), k = trial->n_before;
    double at_s = 0;
    bool all;
    int rc = 0;
    if (trial->goes_on && k < n && comes(job, step[k].n_left))
        at_s = trial->end_s[job->n_samples - step[k].n_left - 1];
    if (at_s > 0)
        go_to(trial, at_s);
    weft_overlap_run_copy(run, at_s > 0 ? &trial->trunk : &trial->ended);
    if (at_s > 0)
        rc = migrate_at(run, &step[k], at_s, when->most_batch, err);
    if (at_s > 0 && !rc)
        rc = migrate_all(trial, run, n - k - 1, step + k + 1,
                         when->most_batch, &all, err);
    generate(run, INFINITY);
    for (int32_t s = 0; s < job->n_samples; s++)
        run->out.generated_s = fmax(run->out.generated_s,
                                    run->state[s].end_s);
    return rc;
}

int weft_overlap_trial_infer(struct weft_overlap_trial *trial,
                             struct weft_err *err)
{
    struct weft_overlap_run *run = &trial->run;
    const struct weft_overlap_job *job = run->job;
    bool waits = job->serial || (job->at_trigger && run->out.n_migrated == 0);
    double first_s = waits           ? run->out.generated_s
                   : job->at_trigger ? run->out.trigger_s
                                     : 0;
    for (int32_t i = 0; i < job->n_instances; i++)
        run->free_s[i] = fmax(first_s, run->free_s[i] >= 0
                                           ? run->free_s[i]
                                           : run->instance[i].now_s);
    return weft_overlap_infer(run, err);
}

int weft_overlap_simulate(const struct weft_overlap_job *job,
                          const struct weft_overlap_when *when,
                          struct weft_overlapped *out, double *end_s_out,
                          struct weft_err *err)
{
    struct weft_overlap_trial trial;
    int rc = weft_overlap_trial_init(&trial, job, 0, err);
    if (!rc)
        rc = weft_overlap_trial_begin(&trial, when, 0, err);
    if (!rc)
        rc = weft_overlap_trial_generate(&trial, when, err);
    if (!rc)
        rc = weft_overlap_trial_infer(&trial, err);
    for (int32_t s = 0; s < job->n_samples && !rc && end_s_out; s++)
        end_s_out[s] = trial.run.state[s].end_s;
    if (!rc)
        *out = trial.run.out;
    weft_overlap_trial_release(&trial);
    return rc;
}
