/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice of when to migrate. All that is tried in a round begins with the
 * same migrations, and what comes later is tried later (inside.h), so that
 * generation goes on from where the one before left it. What is chosen is as if
 * each were simulated by itself, in the order of shares: the first of those that
 * are equally fast.
 *
 * Most are not simulated to their end: a job takes at least as long as what is
 * simulated of it says, and the sum of that over jobs may already be no better
 * than the best so far. Where each term is no larger than the true one, so is
 * their sum, rounded in the same order: what is left out could not have been
 * chosen.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "plan/fusion/inside.h"

struct best {
    struct weft_overlap_when when;
    double seconds;
    int turn; /* of its share in the round; -1: of a round before */
};

struct choice {
    int32_t n_jobs;
    const struct weft_overlap_job *job; /* (n_jobs) */
    struct weft_overlap_trial *trial;   /* (n_jobs) */
    double *least_s;     /* (n_jobs) what they take at least, as is tried */
    int32_t n_instances; /* of a job, at most */
    struct best best;
};

static int begin(struct choice *c, const struct weft_overlap_when *when,
                 int32_t n, struct weft_err *err)
{
    int rc = 0;
    c->best.turn = -1;
    for (int32_t i = 0; i < c->n_jobs && !rc; i++)
        rc = weft_overlap_trial_begin(&c->trial[i], when, n, err);
    return rc;
}

/* Whether so many seconds are no better than the best so far. */
static bool loses(const struct best *best, double seconds, int turn)
{
    return seconds > best->seconds
        || (seconds >= best->seconds && turn >= best->turn);
}

/* Whether what jobs take at least, as far as is known, is no better than the
 * best so far; *sum_out: of all jobs. */
static bool is_worse(const struct choice *c, int turn, double *sum_out)
{
    *sum_out = 0;
    for (int32_t i = 0; i < c->n_jobs; i++)
        *sum_out += c->least_s[i];
    return loses(&c->best, *sum_out, turn);
}

/* Generates all samples of all jobs, as long as that may be better than the
 * best so far; the instances that are likely to end last come first. */
static bool generate(struct choice *c, int turn)
{
    double sum;
    bool more = true;
    for (int32_t i = 0; i < c->n_jobs; i++)
        c->least_s[i] = c->trial[i].run.out.generated_s;
    while (more && !is_worse(c, turn, &sum)) {
        more = false;
        for (int32_t i = 0; i < c->n_jobs; i++) {
            more = weft_overlap_trial_generate(&c->trial[i]) || more;
            c->least_s[i] = c->trial[i].run.out.generated_s;
        }
    }
    return !more;
}

/* Takes `when` if it is better than the best so far. *n_stay_out: how many
 * instances went on at last, at most; 0: no migration. */
static int try(struct choice *c, const struct weft_overlap_when *when,
               int turn, int32_t *n_stay_out, struct weft_err *err)
{
    double sum;
    int32_t n = 0;
    int rc = 0;
    *n_stay_out = 0;
    for (int32_t i = 0; i < c->n_jobs && !rc; i++) {
        rc = weft_overlap_trial_migrate(&c->trial[i], when, err);
        *n_stay_out = weft_max32(*n_stay_out, c->trial[i].run.out.n_stay);
    }
    if (rc || !generate(c, turn))
        return rc;
    for (int32_t i = 0; i < c->n_jobs && !rc; i++)
        rc = weft_overlap_trial_least(&c->trial[i], &c->least_s[i], err);
    for (; n < c->n_jobs && !rc && !is_worse(c, turn, &sum); n++) {
        rc = weft_overlap_trial_infer(&c->trial[n], err);
        c->least_s[n] = c->trial[n].run.out.all_s;
    }
    if (!rc && n == c->n_jobs && !is_worse(c, turn, &sum))
        c->best = (struct best){*when, sum, turn};
    return rc;
}

/* Tries the fewest instances in *instances, which is in `when`, and then each
 * time half as many again, but fewer than `most`. */
static int try_instances(struct choice *c,
                         const struct weft_overlap_when *when, int turn,
                         int32_t *instances, int32_t most,
                         struct weft_err *err)
{
    int32_t m, n_stay;
    *instances = 0;
    int rc = try(c, when, turn, &m, err);
    for (m += (m + 1) / 2; m > 0 && m < most && !rc; m += (m + 1) / 2) {
        *instances = m;
        rc = try(c, when, turn, &n_stay, err);
    }
    return rc;
}

/* The first migration, in steps of 5 %, then of 1 % around the best. */
static int choose_first(struct choice *c, int32_t most_batch,
                        struct weft_err *err)
{
    struct weft_overlap_when when = {.most_batch = most_batch};
    double sum;
    int32_t m;
    int rc = begin(c, &when, 0, err);
    for (int32_t i = 0; i < c->n_jobs; i++)
        c->least_s[i] = c->trial[i].whole.out.all_s;
    if (!is_worse(c, 0, &sum))
        c->best = (struct best){when, sum, 0};
    for (int p = 95; p >= 5 && !rc; p -= 5) {
        when.share = p / 100.0;
        rc = try_instances(c, &when, p, &when.instances, c->n_instances, err);
    }
    int around = (int) lround(100 * c->best.when.share);
    int32_t n = c->best.when.instances;
    c->best.turn = -1;
    for (int p = around + 4; p >= around - 4 && around > 0 && !rc; p--)
        for (int32_t k = n > 1 ? n - 1 : n; k <= n + (n > 0) && !rc; k++) {
            when.share = p / 100.0;
            when.instances = k;
            rc = try(c, &when, p, &m, err);
        }
    return rc;
}

/* One more migration after those of the best, when an eighth to seven eighths
 * of what is left then are left. */
static int choose_later(struct choice *c, struct weft_err *err)
{
    struct weft_overlap_when when = c->best.when;
    struct weft_migrate_later *later = &when.later[when.n_later];
    double share = when.n_later > 0 ? later[-1].share : when.share;
    int32_t n_stay = 0;
    int rc = begin(c, &when, 1 + when.n_later, err);
    for (int32_t i = 0; i < c->n_jobs && !rc; i++)
        n_stay = weft_max32(n_stay, c->trial[i].ended.out.n_stay);
    when.n_later++;
    for (int k = 7; k > 0 && n_stay > 1 && !rc; k--) {
        later->share = share * k / 8;
        rc = try_instances(c, &when, k, &later->instances, n_stay, err);
    }
    return rc;
}

/* One more before them, when more samples are left, with more instances. */
static int choose_earlier(struct choice *c, struct weft_err *err)
{
    const struct weft_overlap_when old = c->best.when;
    struct weft_overlap_when when = {.n_later = old.n_later + 1,
                                     .most_batch = old.most_batch};
    int rc = begin(c, &when, 0, err);
    when.later[0] = (struct weft_migrate_later){old.share, old.instances};
    memcpy(when.later + 1, old.later,
           (size_t) old.n_later * sizeof *old.later);
    for (int k = 7; k > 0 && !rc; k--) {
        when.share = old.share + (0.95 - old.share) * k / 8;
        rc = try_instances(c, &when, k, &when.instances, c->n_instances, err);
    }
    return rc;
}

/* The best with batches of so many samples; 0: of BS_max. */
static int choose_of(struct choice *c, int32_t most_batch,
                     struct weft_err *err)
{
    c->best = (struct best){.seconds = INFINITY};
    int rc = choose_first(c, most_batch, err);
    for (int32_t k = 0; k < WEFT_MIGRATE_LATER && !rc; k++) {
        const struct best before = c->best;
        if (before.when.share <= 0 || before.when.n_later < k)
            break;
        rc = choose_later(c, err);
        const struct best later = c->best;
        c->best = before; /* one earlier, with so many later ones */
        if (!rc)
            rc = choose_earlier(c, err);
        if (c->best.seconds >= later.seconds)
            c->best = later;
    }
    return rc;
}

static void choice_release(struct choice *c)
{
    for (int32_t i = 0; i < c->n_jobs && c->trial; i++)
        weft_overlap_trial_release(&c->trial[i]);
    weft_free(c->trial);
    weft_free(c->least_s);
}

/* Release it also after an error. */
static int choice_init(struct choice *c, int32_t n_jobs,
                       const struct weft_overlap_job *job,
                       int32_t other_batch, struct weft_err *err)
{
    size_t n = (size_t) n_jobs;
    *c = (struct choice){.n_jobs = n_jobs,
                         .job = job,
                         .n_instances = job->n_instances,
                         .trial = weft_alloc(n, sizeof *c->trial),
                         .least_s = weft_alloc(n, sizeof *c->least_s)};
    int rc = c->trial && c->least_s
               ? 0
               : weft_err_nomem(err, "a choice", n * sizeof *c->trial);
    for (int32_t i = 0; i < n_jobs && !rc; i++)
        rc = weft_overlap_trial_init(&c->trial[i], &job[i], other_batch, err);
    return rc;
}

/* Whether batches of the other size than BS_max may choose otherwise. */
static bool matters(const struct choice *c)
{
    bool any = false;
    for (int32_t i = 0; i < c->n_jobs; i++)
        any = any || c->trial[i].run.matters;
    return any;
}

int weft_overlap_choose(int32_t n_jobs, const struct weft_overlap_job *job,
                        struct weft_overlap_when *out, double *seconds_out,
                        double *unmoved_out, struct weft_err *err)
{
    int32_t all = 0;
    struct choice c;
    for (int32_t i = 0; i < n_jobs; i++)
        all = weft_max32(all,
                         job[i].slots > 0 ? job[i].slots : job[i].n_samples);
    int rc = choice_init(&c, n_jobs, job, all, err);
    if (!rc)
        rc = choose_of(&c, 0, err);
    const struct best best = c.best;
    if (!rc && matters(&c))
        rc = choose_of(&c, all, err);
    if (!rc && c.best.seconds >= best.seconds)
        c.best = best;
    if (!rc)
        *out = c.best.when;
    if (!rc && seconds_out)
        *seconds_out = c.best.seconds;
    for (int32_t i = 0; i < n_jobs && !rc && unmoved_out; i++)
        unmoved_out[i] = c.trial[i].whole.out.all_s;
    choice_release(&c);
    return rc;
}
