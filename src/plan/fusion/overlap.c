/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/fusion/overlap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "plan/fusion/inside.h"

/* ---- Generation to its end ---------------------------------------------- */

void weft_overlap_generate_all(struct weft_overlap_run *run, double stop_s)
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

static int32_t expect(const struct weft_overlap_run *run, int32_t has)
{
    const struct weft_overlap_job *job = run->job;
    int32_t *known = run->known ? &run->known->expected[has] : NULL;
    if (known && *known > 0)
        return *known;
    int32_t n = weft_migrate_expect(job->n_seen, job->seen, has, job->most,
                                    WEFT_MIGRATE_QUANTILE);
    if (known)
        *known = n;
    return n;
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
            .expected = expect(run, at->has)};
        l->sample[l->n++] = s;
    }
}

/* Whether a sample of so many tokens is read again where it moves. */
static bool reads(const struct weft_overlap_run *run, int32_t n_tokens)
{
    signed char *known = run->known ? &run->known->reads[n_tokens] : NULL;
    if (known && *known != 0)
        return *known > 0;
    bool is_read = weft_migrate_reads(run->job->costs, n_tokens);
    if (known)
        *known = is_read ? 1 : -1;
    return is_read;
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
    if (reads(run, l->left[k].prompt + l->left[k].has))
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

/* Instances that stay go on with what they have and what comes to them, others
 * are free. */
static void part(struct weft_overlap_run *run, const struct leaving *l)
{
    const struct weft_migrate_decision *d = &l->decision;
    for (int32_t k = 0; k < l->n; k++)
        if (d->to[k] != l->left[k].instance)
            run->instance[d->to[k]].touched = true;
    for (int32_t i = 0; i < run->job->n_instances; i++) {
        struct weft_overlap_instance *in = &run->instance[i];
        if (!l->among[i])
            continue;
        if (d->stays[i]) {
            if (in->slots > 0 && in->slots < d->most_batch) {
                in->slots = d->most_batch;
                in->touched = true;
            }
            continue;
        }
        in->active = in->queue = (struct weft_overlap_list){-1, -1};
        in->n_active = 0;
        in->touched = true;
        run->free_s[i] = fmax(in->now_s, l->sends_s[i]);
    }
}

/* Samples left go to the instances that stay. */
static int migrate(struct weft_overlap_run *run, int32_t instances,
                   int32_t most_batch, struct weft_err *err)
{
    struct weft_migrate_costs costs = *run->job->costs;
    struct leaving l;
    int rc = leaving_init(&l, run->job, err);
    if (most_batch > 0)
        costs.most_batch = most_batch;
    for (int32_t i = 0; i < run->job->n_instances; i++)
        run->instance[i].touched = false;
    if (!rc) {
        find_left(run, &l);
        for (int32_t i = 0; i < run->job->n_instances; i++)
            l.among[i] = run->free_s[i] < 0;
        rc = weft_migrate_decide(&costs, run->job->n_instances, l.among, NULL,
                                 l.n, l.left, instances, &l.decision, err);
    }
    if (!rc && l.n > 0)
        run->matters = run->matters || matters(&l, run->other_batch);
    if (!rc && l.decision.n_stay > 0) {
        run->out.n_stay = l.decision.n_stay;
        run->out.n_migrated++;
        rc = move_all(run, &l, err);
        part(run, &l);
    }
    leaving_release(&l);
    return rc;
}

/* Generates until then, and migrates what is left. */
int weft_overlap_migrate(struct weft_overlap_run *run,
                         const struct weft_overlap_step *step, double at_s,
                         int32_t most_batch, struct weft_err *err)
{
    weft_overlap_generate_all(run, at_s);
    int rc = migrate(run, step->instances, most_batch, err);
    if (run->out.n_migrated == 1 && run->out.trigger_s == 0)
        run->out.trigger_s = at_s;
    return rc;
}

/* ---- When --------------------------------------------------------------- */

static int32_t left_at(const struct weft_overlap_job *job, double share)
{
    return (int32_t) floor(share * job->n_samples + 1e-9);
}

int32_t weft_overlap_steps(const struct weft_overlap_job *job,
                           const struct weft_overlap_when *when,
                           struct weft_overlap_step out[])
{
    out[0] = (struct weft_overlap_step){left_at(job, when->share),
                                        when->instances};
    for (int32_t k = 0; k < when->n_later; k++)
        out[k + 1] = (struct weft_overlap_step){
            left_at(job, when->later[k].share), when->later[k].instances};
    return 1 + when->n_later;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

void weft_overlap_ends(const struct weft_overlap_run *run, double *out)
{
    int32_t n = run->job->n_samples;
    for (int32_t s = 0; s < n; s++)
        out[s] = run->state[s].end_s;
    qsort(out, (size_t) n, sizeof *out, by_size);
}

double weft_overlap_last_end(const struct weft_overlap_run *run)
{
    double end_s = 0;
    for (int32_t s = 0; s < run->job->n_samples; s++)
        end_s = fmax(end_s, run->state[s].end_s);
    return end_s;
}

double weft_overlap_when_left(const struct weft_overlap_job *job,
                              const double *end_s, int32_t n_left)
{
    int32_t n = job->n_samples;
    return n_left > 0 && n_left < n ? end_s[n - n_left - 1] : 0;
}

/* ---- A simulation ------------------------------------------------------- */

int weft_overlap_check(const struct weft_overlap_job *job,
                       struct weft_err *err)
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

/* Generates all samples, instance after instance; `spare` is a run of the same
 * job, which finds when migrations come. */
static int generate(struct weft_overlap_run *run,
                    struct weft_overlap_run *spare, double *end_s,
                    const struct weft_overlap_when *when,
                    struct weft_err *err)
{
    const struct weft_overlap_job *job = run->job;
    struct weft_overlap_step step[1 + WEFT_MIGRATE_LATER];
    int32_t n = weft_overlap_steps(job, when, step);
    int rc = 0;
    weft_overlap_run_begin(run);
    for (int32_t k = 0; k < n && step[k].n_left > 0 && !rc; k++) {
        weft_overlap_run_copy(spare, run);
        weft_overlap_generate_all(spare, INFINITY);
        weft_overlap_ends(spare, end_s);
        double at_s = weft_overlap_when_left(job, end_s, step[k].n_left);
        if (at_s <= 0)
            break;
        rc = weft_overlap_migrate(run, &step[k], at_s, when->most_batch, err);
    }
    weft_overlap_generate_all(run, INFINITY);
    run->out.generated_s = weft_overlap_last_end(run);
    return rc;
}

int weft_overlap_simulate(const struct weft_overlap_job *job,
                          const struct weft_overlap_when *when,
                          struct weft_overlapped *out, double *end_s_out,
                          struct weft_err *err)
{
    struct weft_overlap_run run, spare;
    size_t n = (size_t) job->n_samples;
    double *end_s = weft_alloc(n, sizeof *end_s);
    int rc = end_s ? weft_overlap_check(job, err)
                   : weft_err_nomem(err, "a simulation", n * sizeof *end_s);
    int rc_run = weft_overlap_run_init(&run, job, rc ? NULL : err);
    int rc_spare = weft_overlap_run_init(&spare, job, rc ? NULL : err);
    rc = rc ? rc : rc_run ? rc_run : rc_spare;
    if (!rc)
        rc = generate(&run, &spare, end_s, when, err);
    if (!rc)
        rc = weft_overlap_infer(&run, err);
    for (int32_t s = 0; s < job->n_samples && !rc && end_s_out; s++)
        end_s_out[s] = run.state[s].end_s;
    if (!rc)
        *out = run.out;
    weft_overlap_run_release(&run);
    weft_overlap_run_release(&spare);
    weft_free(end_s);
    return rc;
}
