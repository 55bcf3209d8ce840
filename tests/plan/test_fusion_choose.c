/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of when to migrate (plan/fusion/choose.c) beside the plain one:
 * everything that is tried is simulated by itself, for each job from its
 * beginning, in the order of shares, and the first of the fastest is taken. What
 * inference takes at least, beside all last micro-batches that there can be. */
#include <math.h>

#include "draw.h"
#include "harness.h"
#include "plan/fusion/inside.h"

enum { JOBS = 3, SAMPLES = 60, SEEN = 100 };

static struct weft_err err;

/* ---- The plain choice --------------------------------------------------- */

struct plain {
    int n;
    const struct weft_overlap_job *job;
    struct weft_overlap_when best;
    double seconds;
};

/* Returns how many instances go on at last, at most. */
static int try(struct plain *p, const struct weft_overlap_when *when)
{
    double seconds = 0;
    int n_stay = 0;
    for (int i = 0; i < p->n; i++) {
        struct weft_overlapped out;
        REQUIRE_OK(weft_overlap_simulate(&p->job[i], when, &out, NULL, &err),
                   err);
        seconds += out.all_s;
        n_stay = out.n_stay > n_stay ? out.n_stay : n_stay;
    }
    if (seconds < p->seconds) {
        p->seconds = seconds;
        p->best = *when;
    }
    return n_stay;
}

static void try_instances(struct plain *p, struct weft_overlap_when *when,
                          int32_t *instances, int most)
{
    *instances = 0;
    for (int m = try(p, when); m > 0; try(p, when)) {
        m += (m + 1) / 2;
        if (m >= most)
            return;
        *instances = m;
    }
}

static void first(struct plain *p, int most_batch)
{
    struct weft_overlap_when when = {.most_batch = most_batch};
    try(p, &when);
    for (int share = 5; share <= 95; share += 5) {
        when.share = share / 100.0;
        try_instances(p, &when, &when.instances, p->job->n_instances);
    }
    const struct weft_overlap_when best = p->best;
    int around = (int) lround(100 * best.share), n = best.instances;
    for (int share = around - 4; around > 0 && share <= around + 4; share++)
        for (int k = n > 1 ? n - 1 : n; k <= (n > 0 ? n + 1 : n); k++) {
            when.share = share / 100.0;
            when.instances = k;
            try(p, &when);
        }
}

static void later(struct plain *p)
{
    struct weft_overlap_when when = p->best;
    int n = when.n_later++, most = try(p, &p->best);
    double share = n > 0 ? when.later[n - 1].share : when.share;
    for (int k = 1; k < 8 && most > 1; k++) {
        when.later[n].share = share * k / 8;
        try_instances(p, &when, &when.later[n].instances, most);
    }
}

static void earlier(struct plain *p)
{
    const struct weft_overlap_when best = p->best;
    struct weft_overlap_when when = best;
    for (int k = best.n_later; k > 0; k--)
        when.later[k] = best.later[k - 1];
    when.later[0] = (struct weft_migrate_later){best.share, best.instances};
    when.n_later++;
    for (int k = 1; k < 8; k++) {
        when.share = best.share + (0.95 - best.share) * k / 8;
        try_instances(p, &when, &when.instances, p->job->n_instances);
    }
}

static void choose_of(struct plain *p, int most_batch)
{
    p->seconds = INFINITY;
    first(p, most_batch);
    for (int k = 0; k < WEFT_MIGRATE_LATER; k++) {
        struct plain other = *p;
        if (p->best.share <= 0 || p->best.n_later < k)
            return;
        later(p);
        earlier(&other);
        if (other.seconds < p->seconds)
            *p = other;
    }
}

static void choose(struct plain *p)
{
    struct plain other = *p;
    int all = 0;
    for (int i = 0; i < p->n; i++) {
        int n = p->job[i].slots > 0 ? p->job[i].slots : p->job[i].n_samples;
        all = n > all ? n : all;
    }
    choose_of(p, 0);
    choose_of(&other, all);
    if (other.seconds < p->seconds)
        *p = other;
}

/* ---- Random jobs -------------------------------------------------------- */

/* No whole numbers of seconds, so that sums are rounded. */
struct pace {
    double step_s, row_s, key_s;
    int most; /* rows that have tokens */
    bool odd; /* of three sizes of micro-batches one takes longer */
};

static double step_s(void *ctx, const struct weft_work_rows *rows)
{
    const struct pace *p = ctx;
    return rows->n_targets > p->most ? INFINITY
                                     : p->step_s + p->row_s * rows->n_rows
                                           + p->key_s * (double) rows->n_keys;
}

static double infer_s(void *ctx, int32_t model, int32_t n, double n_tokens)
{
    const struct pace *p = ctx;
    double s = (0.31 + 0.17 * model) * (1.1 + 0.013 * n + 0.0371 * n_tokens);
    return p->odd && n % 3 == 1 ? 2.3 * s : s;
}

static void draw_job(struct weft_overlap_job *job, int n_instances, int slots,
                     const struct weft_migrate_costs *costs,
                     struct weft_overlap_sample *sample, int32_t *seen)
{
    bool shares = draw_from(0, 1);
    int prompt = 0;
    *job = (struct weft_overlap_job){
        .costs = costs,
        .n_instances = n_instances,
        .slots = slots,
        .n_samples = draw_from(1, SAMPLES),
        .sample = sample,
        .most = 60,
        .n_seen = draw_from(0, 1) * SEEN,
        .seen = seen,
        .n_models = draw_from(0, 3),
        .infer_s = infer_s,
        .load_s = {draw_from(0, 3) ? 0 : draw_from(1, 30) * 0.77},
        .restore_s = {0, draw_from(0, 1) * draw_from(0, 60) * 0.77},
        .move_s = {draw_from(0, 1) * draw_from(0, 30) * 0.77},
        .micro_tokens = draw_from(1, 300),
        .wait_s = draw_from(0, 1) * draw_from(0, 30) * 0.77,
        .serial = draw_from(0, 9) == 0,
        .at_trigger = draw_from(0, 9) == 0};
    for (int s = 0; s < job->n_samples; s++) {
        prompt = !shares || s % 4 == 0 ? draw_from(1, 40) : prompt;
        sample[s] = (struct weft_overlap_sample){
            draw_from(0, n_instances - 1), prompt,
            draw_from(1, draw_from(0, 3) ? 12 : 60), shares ? 1 + s / 4 : 0};
    }
    for (int i = 0; i < SEEN; i++)
        seen[i] = i ? seen[i - 1] + (draw_from(0, 2) == 0) : 1;
}

static void check_same(const struct plain *p,
                       const struct weft_overlap_when *when, double seconds)
{
    CHECK(seconds == p->seconds);
    CHECK(when->share == p->best.share);
    CHECK_INT(when->instances, p->best.instances);
    CHECK_INT(when->most_batch, p->best.most_batch);
    CHECK_INT(when->n_later, p->best.n_later);
    for (int k = 0; k < when->n_later && k < p->best.n_later; k++) {
        CHECK(when->later[k].share == p->best.later[k].share);
        CHECK_INT(when->later[k].instances, p->best.later[k].instances);
    }
}

static double unmoved(const struct weft_overlap_job *job)
{
    const struct weft_overlap_when never = {.share = 0};
    struct weft_overlapped out;
    REQUIRE_OK(weft_overlap_simulate(job, &never, &out, NULL, &err), err);
    return out.all_s;
}

static void test_same_choice(void)
{
    static struct weft_overlap_sample sample[JOBS][SAMPLES];
    static int32_t seen[JOBS][SEEN];
    int n_chosen = 0, n_later = 0, n_batch = 0;
    for (int round = 0; round < 150; round++) {
        int n_instances = draw_from(1, 12);
        int slots = draw_from(0, 1) * draw_from(1, 12);
        struct pace pace = {
            0.11 * draw_from(1, 30), 0.0123 * draw_from(0, 30),
            0.000317 * draw_from(0, 30),
            draw_from(0, 1) && slots ? slots : 1000, draw_from(0, 1)};
        const struct weft_migrate_costs costs = {
            .ctx = &pace,
            .step_s = step_s,
            .read_rows = draw_from(0, 2) * draw_from(1, 40),
            .token_bytes = 1.5,
            .memory_bytes = draw_from(0, 2) ? 1e9 : 1.5 * draw_from(100, 300),
            .link_bytes_per_s = draw_from(0, 1) ? INFINITY
                                                : 1.0 * draw_from(1, 99),
            .link_latency_s = draw_from(0, 1) * 0.3};
        struct weft_overlap_job job[JOBS];
        struct weft_overlap_when when;
        double seconds, unmoved_s[JOBS];
        struct plain p = {.n = draw_from(1, JOBS), .job = job};
        for (int i = 0; i < p.n; i++)
            draw_job(&job[i], n_instances, slots, &costs, sample[i], seen[i]);
        choose(&p);
        REQUIRE_OK(
            weft_overlap_choose(p.n, job, &when, &seconds, unmoved_s, &err),
            err);
        check_same(&p, &when, seconds);
        for (int i = 0; i < p.n; i++)
            CHECK(unmoved_s[i] == unmoved(&job[i]));
        n_chosen += when.share > 0;
        n_later += when.n_later > 0;
        n_batch += when.most_batch > 0;
    }
    CHECK(n_chosen > 20 && n_later > 0 && n_batch > 2);
}

/* ---- What inference takes at least --------------------------------------- */

enum { MANY = 400 };

static int later_first(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (x[0] < y[0]) - (x[0] > y[0]);
}

/* No two samples end at once. */
static double plain_least(const struct weft_overlap_run *run)
{
    static double ended[MANY][2]; /* when, and tokens */
    const struct weft_overlap_job *job = run->job;
    double most = 0;
    for (int s = 0; s < job->n_samples; s++) {
        ended[s][0] = run->state[s].end_s;
        ended[s][1] = job->sample[s].prompt + job->sample[s].length;
    }
    qsort(ended, (size_t) job->n_samples, sizeof *ended, later_first);
    for (int j = 0; j < job->n_models; j++) {
        double least = INFINITY;
        for (int n = 1; n <= job->n_samples; n++) {
            double tokens = 0;
            for (int k = 0; k < n; k++)
                tokens += ended[k][1];
            if (n == 1 || tokens <= job->micro_tokens)
                least = fmin(least, infer_s(job->costs->ctx, j, n, tokens));
        }
        most = fmax(most, least);
    }
    return ended[0][0] + most;
}

/* When other samples end says no more than how many to look at first. */
static void test_least(void)
{
    static struct weft_overlap_sample sample[MANY];
    static int32_t seen[1];
    static double end_s[MANY];
    for (int round = 0; round < 300; round++) {
        struct pace pace = {1, 0, 0, 1000, draw_from(0, 1)};
        const struct weft_migrate_costs costs = {.ctx = &pace,
                                                 .step_s = step_s,
                                                 .token_bytes = 1,
                                                 .memory_bytes = 1e9};
        int n = draw_from(1, draw_from(0, 1) ? MANY : 20);
        int base = draw_from(0, n);
        struct weft_overlap_job job = {.costs = &costs,
                                       .n_instances = draw_from(1, 12),
                                       .n_samples = n,
                                       .sample = sample,
                                       .most = 60,
                                       .seen = seen,
                                       .n_models = draw_from(1, 3),
                                       .infer_s = infer_s,
                                       .micro_tokens = draw_from(1, 20000)};
        struct weft_overlap_run run;
        double least;
        REQUIRE_OK(weft_overlap_run_init(&run, &job, &err), err);
        for (int s = 0; s < n; s++) {
            sample[s] = (struct weft_overlap_sample){0, draw_from(1, 40),
                                                     draw_from(1, 60), 0};
            /* each its own: 7 has no divisor in common with the modulus */
            run.state[s].end_s = 0.1 * ((s * 7 + base) % 401);
            end_s[s] = draw_from(0, 1) ? 0.1 * s : 40;
            run.out.generated_s = fmax(run.out.generated_s,
                                       run.state[s].end_s);
            end_s[s] = s > 0 ? fmax(end_s[s], end_s[s - 1]) : end_s[s];
        }
        for (int i = 0; i < job.n_instances; i++)
            run.free_s[i] = 0.1 * draw_from(0, 400);
        REQUIRE_OK(weft_overlap_infer_least(&run, end_s, &least, &err), err);
        CHECK(least == plain_least(&run));
        REQUIRE_OK(weft_overlap_infer(&run, &err), err);
        CHECK(least <= run.out.all_s);
        weft_overlap_run_release(&run);
    }
}

/* ---- Another size of batches --------------------------------------------- */

static double ten_s(void *ctx, int32_t model, int32_t n, double n_tokens)
{
    (void) ctx, (void) model, (void) n, (void) n_tokens;
    return 10;
}

/* Seven instances have a sample of 100 s, the eighth has eight of a second,
 * one after another, and inference, 10 s a sample, begins with a migration.
 * Without any two samples follow one another from 100 s on. BS_max is 2, for
 * four or six instances, of which one at least takes 15 % longer. One sample
 * an instance lets seven go on. */
static void test_smaller_batches(void)
{
    struct pace pace = {0.85, 0.15, 0, 1000, false};
    const struct weft_migrate_costs costs = {.ctx = &pace,
                                             .step_s = step_s,
                                             .token_bytes = 1,
                                             .memory_bytes = 1e9,
                                             .link_bytes_per_s = INFINITY};
    struct weft_overlap_sample sample[15];
    const struct weft_overlap_job job = {.costs = &costs,
                                         .n_instances = 8,
                                         .slots = 1,
                                         .n_samples = 15,
                                         .sample = sample,
                                         .most = 100,
                                         .n_models = 1,
                                         .infer_s = ten_s,
                                         .micro_tokens = 1,
                                         .at_trigger = true};
    struct weft_overlap_when when;
    struct plain p = {.n = 1, .job = &job};
    double seconds;
    for (int s = 0; s < 15; s++)
        sample[s] = (struct weft_overlap_sample){s < 7 ? s : 7, 1,
                                                 s < 7 ? 100 : 1, 0};
    choose(&p);
    REQUIRE_OK(weft_overlap_choose(1, &job, &when, &seconds, NULL, &err),
               err);
    check_same(&p, &when, seconds);
    CHECK(fabs(seconds - 110) < 1e-9);
    CHECK_INT(when.most_batch, 1);
}

WEFT_TESTS("plan/fusion/choose", {"test_same_choice", test_same_choice},
           {"test_least", test_least},
           {"test_smaller_batches", test_smaller_batches})
