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
    weft_free(l->decision.reads);
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
    d->reads = weft_alloc(n, sizeof *d->reads);
    l->among = weft_alloc(n_in, sizeof *l->among);
    l->sends_s = weft_alloc(n_in, sizeof *l->sends_s);
    l->receives_s = weft_alloc(n_in, sizeof *l->receives_s);
    return l->sample && l->left && d->stays && d->to && d->reads && l->among
                && l->sends_s && l->receives_s
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
    run->out->n_moved++;
    if (l->decision.reads[k])
        at->cached = 0;
    run->out->n_read += at->cached == 0;
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
    if (!rc && d->n_stay > 0) {
        run->out->n_stay = d->n_stay;
        run->out->n_migrated++;
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
            in->n_active = 0;
            in->head = in->n_queue;
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
    double at_s;               /* when so few are; 0: never */
};

static int32_t list_steps(const struct weft_overlap_job *job,
                          const struct weft_overlap_when *when,
                          struct step out[1 + WEFT_MIGRATE_LATER])
{
    out[0] = (struct step){left_at(job, when->share), when->instances, 0};
    for (int32_t k = 0; k < when->n_later; k++)
        out[k + 1] = (struct step){left_at(job, when->later[k].share),
                                   when->later[k].instances, 0};
    return 1 + when->n_later;
}

/* Generates all samples, with the first n migrations, and none after one that
 * never comes. */
static int play(struct weft_overlap_run *run, int32_t n,
                const struct step *step, int32_t most_batch,
                struct weft_err *err)
{
    int rc = 0;
    for (int32_t k = 0; k < n && step[k].at_s > 0 && !rc; k++) {
        generate(run, step[k].at_s);
        rc = migrate(run, step[k].instances, most_batch, err);
        if (run->out->n_migrated == 1 && run->out->trigger_s == 0)
            run->out->trigger_s = step[k].at_s;
    }
    generate(run, INFINITY);
    return rc;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

/* When so few samples are left in a run whose generation has ended; 0: never.
 * end_s (n_samples) is scratch. */
static double find_trigger(const struct weft_overlap_run *run, int32_t left,
                           double *end_s)
{
    int32_t n = run->job->n_samples;
    if (left <= 0 || left >= n)
        return 0;
    for (int32_t s = 0; s < n; s++)
        end_s[s] = run->state[s].end_s;
    qsort(end_s, (size_t) n, sizeof *end_s, by_size);
    return end_s[n - left - 1];
}

/* Finds when each migration comes after those before it, by generating with
 * these alone; at last generates with all. The caller releases the run, also
 * after an error. */
static int generate_all(struct weft_overlap_run *run,
                        const struct weft_overlap_job *job,
                        const struct weft_overlap_when *when,
                        struct weft_overlapped *out, struct weft_err *err)
{
    struct step step[1 + WEFT_MIGRATE_LATER];
    int32_t n = list_steps(job, when, step);
    size_t samples = (size_t) job->n_samples;
    double *end_s = weft_alloc(samples, sizeof *end_s);
    int rc = end_s ? 0 : weft_err_nomem(err, "a simulation", samples * 8);
    for (int32_t k = step[0].n_left > 0 ? 0 : n; k <= n && !rc; k++) {
        weft_overlap_run_release(run);
        rc = weft_overlap_run_init(run, job, out, err);
        if (!rc)
            rc = play(run, k, step, when->most_batch, err);
        if (!rc && k < n)
            step[k].at_s = find_trigger(run, step[k].n_left, end_s);
    }
    weft_free(end_s);
    return rc;
}

int weft_overlap_simulate(const struct weft_overlap_job *job,
                          const struct weft_overlap_when *when,
                          struct weft_overlapped *out, double *end_s_out,
                          struct weft_err *err)
{
    struct weft_overlap_run run = {.job = NULL};
    struct weft_overlapped found;
    int rc = check(job, err);
    if (!rc)
        rc = generate_all(&run, job, when, &found, err);
    for (int32_t s = 0; s < job->n_samples && !rc; s++)
        found.generated_s = fmax(found.generated_s, run.state[s].end_s);
    double first_s = job->serial || (job->at_trigger && found.n_migrated == 0)
                       ? found.generated_s
                   : job->at_trigger ? found.trigger_s
                                     : 0;
    for (int32_t i = 0; i < job->n_instances && !rc; i++)
        run.free_s[i] = fmax(first_s, run.free_s[i] >= 0
                                          ? run.free_s[i]
                                          : run.instance[i].now_s);
    if (!rc)
        rc = weft_overlap_infer(&run, err);
    for (int32_t s = 0; s < job->n_samples && !rc && end_s_out; s++)
        end_s_out[s] = run.state[s].end_s;
    if (!rc)
        *out = found;
    weft_overlap_run_release(&run);
    return rc;
}

/* ---- The choice --------------------------------------------------------- */

struct best {
    struct weft_overlap_when when;
    double seconds;
};

/* Takes `when` if it is better than the best so far. *n_stay_out: how many
 * instances went on at last, at most; 0: no migration. */
static int try(int32_t n_jobs, const struct weft_overlap_job *job,
               const struct weft_overlap_when *when, struct best *best,
               int32_t *n_stay_out, struct weft_err *err)
{
    double seconds = 0;
    int rc = 0;
    *n_stay_out = 0;
    for (int32_t i = 0; i < n_jobs && !rc; i++) {
        struct weft_overlapped out = {0};
        rc = weft_overlap_simulate(&job[i], when, &out, NULL, err);
        seconds += out.all_s;
        *n_stay_out = out.n_stay > *n_stay_out ? out.n_stay : *n_stay_out;
    }
    if (!rc && seconds < best->seconds)
        *best = (struct best){*when, seconds};
    return rc;
}

/* Tries the fewest instances in *instances, which is in `when`, and then each
 * time half as many again, but fewer than `most`. */
static int try_instances(int32_t n_jobs, const struct weft_overlap_job *job,
                         const struct weft_overlap_when *when,
                         int32_t *instances, int32_t most, struct best *best,
                         struct weft_err *err)
{
    int32_t m, n_stay;
    *instances = 0;
    int rc = try(n_jobs, job, when, best, &m, err);
    for (m += (m + 1) / 2; m > 0 && m < most && !rc; m += (m + 1) / 2) {
        *instances = m;
        rc = try(n_jobs, job, when, best, &n_stay, err);
    }
    return rc;
}

/* The first migration, in steps of 5 %, then of 1 % around the best. */
static int choose_first(int32_t n_jobs, const struct weft_overlap_job *job,
                        int32_t most_batch, struct best *best,
                        struct weft_err *err)
{
    struct weft_overlap_when when = {.most_batch = most_batch};
    int32_t m;
    int rc = try(n_jobs, job, &when, best, &m, err);
    for (int p = 5; p <= 95 && !rc; p += 5) {
        when.share = p / 100.0;
        rc = try_instances(n_jobs, job, &when, &when.instances,
                           job->n_instances, best, err);
    }
    int around = (int) lround(100 * best->when.share);
    int32_t n = best->when.instances;
    for (int p = around - 4; p <= around + 4 && around > 0 && !rc; p++)
        for (int32_t k = n > 1 ? n - 1 : n; k <= n + (n > 0) && !rc; k++) {
            when.share = p / 100.0;
            when.instances = k;
            rc = try(n_jobs, job, &when, best, &m, err);
        }
    return rc;
}

/* One more migration after those of the best, when an eighth to seven eighths
 * of what is left then are left. */
static int choose_later(int32_t n_jobs, const struct weft_overlap_job *job,
                        struct best *best, struct weft_err *err)
{
    struct weft_overlap_when when = best->when;
    struct weft_migrate_later *later = &when.later[when.n_later];
    double share = when.n_later > 0 ? later[-1].share : when.share;
    int32_t n_stay;
    int rc = try(n_jobs, job, &when, best, &n_stay, err);
    when.n_later++;
    for (int k = 1; k < 8 && n_stay > 1 && !rc; k++) {
        later->share = share * k / 8;
        rc = try_instances(n_jobs, job, &when, &later->instances, n_stay,
                           best, err);
    }
    return rc;
}

/* One more before them, when more samples are left, with more instances. */
static int choose_earlier(int32_t n_jobs, const struct weft_overlap_job *job,
                          struct best *best, struct weft_err *err)
{
    const struct weft_overlap_when old = best->when;
    struct weft_overlap_when when = {.n_later = old.n_later + 1,
                                     .most_batch = old.most_batch};
    int rc = 0;
    when.later[0] = (struct weft_migrate_later){old.share, old.instances};
    memcpy(when.later + 1, old.later,
           (size_t) old.n_later * sizeof *old.later);
    for (int k = 1; k < 8 && !rc; k++) {
        when.share = old.share + (0.95 - old.share) * k / 8;
        rc = try_instances(n_jobs, job, &when, &when.instances,
                           job->n_instances, best, err);
    }
    return rc;
}

/* The best with batches of so many samples; 0: of BS_max. */
static int choose_of(int32_t n_jobs, const struct weft_overlap_job *job,
                     int32_t most_batch, struct best *out,
                     struct weft_err *err)
{
    struct best best = {.seconds = INFINITY};
    int rc = choose_first(n_jobs, job, most_batch, &best, err);
    for (int32_t k = 0; k < WEFT_MIGRATE_LATER && !rc; k++) {
        struct best one = best; /* with so many later ones */
        if (one.when.share <= 0 || one.when.n_later < k)
            break;
        rc = choose_later(n_jobs, job, &best, err);
        if (!rc)
            rc = choose_earlier(n_jobs, job, &one, err);
        if (one.seconds < best.seconds)
            best = one;
    }
    *out = best;
    return rc;
}

int weft_overlap_choose(int32_t n_jobs, const struct weft_overlap_job *job,
                        struct weft_overlap_when *out, double *seconds_out,
                        struct weft_err *err)
{
    int32_t all = 0;
    struct best best, larger;
    for (int32_t i = 0; i < n_jobs; i++)
        all = weft_max32(all,
                         job[i].slots > 0 ? job[i].slots : job[i].n_samples);
    int rc = choose_of(n_jobs, job, 0, &best, err);
    if (!rc)
        rc = choose_of(n_jobs, job, all, &larger, err);
    if (rc)
        return rc;
    if (larger.seconds < best.seconds)
        best = larger;
    *out = best.when;
    if (seconds_out)
        *seconds_out = best.seconds;
    return 0;
}
