/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bound of generation and inference beside all schedules there are of a few
 * samples, and where it can be said what it is. Times are whole seconds.
 */
#include <math.h>

#include "draw.h"
#include "harness.h"
#include "plan/fusion/bound.h"

static struct weft_err err;

/* ---- Costs -------------------------------------------------------------- */

/* Seconds: a row, each more, which takes no longer, and each so many keys. */
struct line {
    int first, more, tokens;
};
struct prices {
    struct line step, infer[2];
    int read_more; /* of a step for each row that is read, but the last */
};

static double line_s(const struct line *l, int n, double n_tokens)
{
    return l->first + l->more * (n - 1) + floor(n_tokens / l->tokens);
}

static double step_s(void *ctx, const struct weft_work_rows *rows)
{
    const struct prices *p = ctx;
    return line_s(&p->step, rows->n_targets > 0 ? rows->n_targets : 1,
                  (double) rows->n_keys)
         + p->read_more * (rows->n_rows - rows->n_targets);
}

static double infer_s(void *ctx, int32_t model, int32_t n, double n_tokens)
{
    return line_s(&((struct prices *) ctx)->infer[model], n, n_tokens);
}

static double bound_of(const struct weft_overlap_job *job)
{
    double out;
    REQUIRE_OK(weft_overlap_bound(job, &out, &err), err);
    return out;
}

static double work_of(const struct weft_overlap_job *job)
{
    double out;
    REQUIRE_OK(weft_overlap_work(job, &out, &err), err);
    return out;
}

/* ---- All schedules ------------------------------------------------------ */

/* An instance that is free does a step of, or infers with one model, any set of
 * samples that can be, wherever they were before; or waits until another is
 * done. In a step samples decode, and others are read, to the end or up to
 * PIECE tokens. */
enum { STEP = 1, INFER, SAMPLES = 3, INSTANCES = 2, STATES = 1 << 20 };
enum { PIECE = 4 };

struct state {
    struct {
        unsigned cached, has, inferred; /* inferred: bits of models */
    } sample[SAMPLES];
    struct {
        int does, which, set, left_s; /* which: model, or 1: in pieces */
    } instance[INSTANCES];
};

struct brute {
    const struct weft_overlap_job *job;
    int best;
    uint64_t key[STATES]; /* of states seen, and when first */
    int at[STATES];
};

static uint64_t key_of(const struct state *s)
{
    uint64_t key = 1;
    for (int i = 0; i < SAMPLES; i++)
        key = key << 9 | s->sample[i].cached << 5 | s->sample[i].has << 2
            | s->sample[i].inferred;
    for (int i = 0; i < INSTANCES; i++)
        key = key << 13
            | (uint64_t) (s->instance[i].does << 11
                          | s->instance[i].which << 10
                          | s->instance[i].set << 7 | s->instance[i].left_s);
    return key;
}

/* Whether the state was there as early; else it is now. */
static bool seen(struct brute *b, const struct state *s, int now)
{
    uint64_t key = key_of(s);
    uint64_t i = key * 0x9e3779b97f4a7c15u >> 44;
    while (b->key[i] && b->key[i] != key)
        i = (i + 1) % STATES;
    if (b->key[i] && b->at[i] <= now)
        return true;
    b->key[i] = key;
    b->at[i] = now;
    return false;
}

/* So many rows of a sample are in a step. */
static int rows_of(const struct weft_overlap_job *job, const struct state *s,
                   int i, int pieces)
{
    int rest = job->sample[i].prompt - (int) s->sample[i].cached;
    if (s->sample[i].has > 0)
        return 1;
    return pieces && rest > PIECE ? PIECE : rest;
}

static bool can(const struct brute *b, const struct state *s, int i, int does,
                int which)
{
    int length = b->job->sample[i].length;
    if (does == STEP)
        return (int) s->sample[i].has < length;
    return (int) s->sample[i].has == length
        && !(s->sample[i].inferred >> which & 1);
}

static int seconds_of(const struct brute *b, const struct state *s, int does,
                      int which, int set)
{
    const struct weft_overlap_job *job = b->job;
    struct weft_work_rows rows = {0, 0, 0, 0};
    int n = 0, all = 0;
    for (int i = 0; i < job->n_samples; i++) {
        const struct weft_overlap_sample *x = &job->sample[i];
        int has = (int) s->sample[i].has, more = rows_of(job, s, i, which);
        int at = has > 0 ? x->prompt + has - 1 : (int) s->sample[i].cached;
        if (!(set >> i & 1))
            continue;
        if (!can(b, s, i, does, which))
            return 0;
        for (int k = 0; k < INSTANCES; k++)
            if (s->instance[k].does && s->instance[k].set >> i & 1
                && (does == STEP || s->instance[k].which == which))
                return 0;
        all += x->prompt + has;
        n++;
        rows.n_rows += more;
        for (int k = 1; k <= more; k++)
            rows.n_keys += at + k;
        rows.n_targets += has > 0 || at + more == x->prompt;
    }
    if (does == INFER && n > 1 && all > job->micro_tokens)
        return 0;
    return (int) (does == STEP ? job->costs->step_s(job->costs->ctx, &rows)
                               : infer_s(job->costs->ctx, which, n, all));
}

static void end(const struct weft_overlap_job *job, struct state *s, int k)
{
    for (int i = 0; i < job->n_samples; i++) {
        if (!(s->instance[k].set >> i & 1))
            continue;
        if (s->instance[k].does == INFER) {
            s->sample[i].inferred |= 1u << s->instance[k].which;
            continue;
        }
        if (s->sample[i].has == 0)
            s->sample[i].cached += (unsigned) rows_of(job, s, i,
                                                      s->instance[k].which);
        if ((int) s->sample[i].cached == job->sample[i].prompt)
            s->sample[i].has++;
    }
    memset(&s->instance[k], 0, sizeof s->instance[k]);
}

static bool done(const struct weft_overlap_job *job, const struct state *s)
{
    for (int i = 0; i < job->n_samples; i++)
        if ((int) s->sample[i].has < job->sample[i].length
            || s->sample[i].inferred != (1u << job->n_models) - 1)
            return false;
    return true;
}

/* Goes on from an instance on, of those that may begin something at `now`. */
static void search(struct brute *b, struct state s, int k, int now)
{
    const struct weft_overlap_job *job = b->job;
    int least = 0;
    if (now >= b->best)
        return;
    for (; k < job->n_instances; k++) {
        if (s.instance[k].does)
            continue;
        for (int does = STEP; does <= INFER; does++)
            for (int j = 0; j < (does == INFER ? job->n_models : 2); j++)
                for (int set = 1; set < 1 << job->n_samples; set++) {
                    struct state next = s;
                    int t = seconds_of(b, &s, does, j, set);
                    if (t == 0)
                        continue;
                    next.instance[k].does = does;
                    next.instance[k].which = j;
                    next.instance[k].set = set;
                    next.instance[k].left_s = t;
                    search(b, next, k + 1, now);
                }
    }
    for (k = 0; k < job->n_instances; k++)
        if (s.instance[k].does && (!least || s.instance[k].left_s < least))
            least = s.instance[k].left_s;
    if (least == 0)
        return;
    for (k = 0; k < job->n_instances; k++)
        if (s.instance[k].does && (s.instance[k].left_s -= least) == 0)
            end(job, &s, k);
    now += least;
    if (done(job, &s))
        b->best = now < b->best ? now : b->best;
    else if (!seen(b, &s, now))
        search(b, s, 0, now);
}

static int best_of(const struct weft_overlap_job *job)
{
    static struct brute b;
    const struct state s = {{{0}}, {{0}}};
    memset(&b, 0, sizeof b);
    b.job = job;
    b.best = 1 << 30;
    search(&b, s, 0, 0);
    return b.best;
}

static void random_job(struct weft_overlap_job *job,
                       struct weft_migrate_costs *c, struct prices *p,
                       struct weft_overlap_sample *sample)
{
    *p = (struct prices){
        {draw_from(1, 4), draw_from(0, 3), draw_from(4, 30)},
        {{draw_from(1, 5), draw_from(0, 4), draw_from(4, 30)},
         {draw_from(1, 3), draw_from(0, 2), draw_from(4, 30)}},
        draw_from(0, 1)};
    *c = (struct weft_migrate_costs){p, step_s, 0, 1, 1e9, 1, 0, 0};
    *job = (struct weft_overlap_job){
        .costs = c,
        .n_instances = draw_from(1, INSTANCES),
        .n_samples = draw_from(0, 4) ? draw_from(2, SAMPLES) : 1,
        .sample = sample,
        .most = 4,
        .n_models = draw_from(1, 2),
        .infer_s = infer_s,
        .micro_tokens = draw_from(1, 40)};
    for (int32_t s = 0; s < job->n_samples; s++)
        sample[s] = (struct weft_overlap_sample){
            draw_from(0, job->n_instances - 1), draw_from(1, 9),
            draw_from(1, 4), 0};
}

static void test_all_schedules(void)
{
    enum { ROUNDS = 200 };
    int n_equal = 0;
    double sum = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct weft_overlap_sample sample[SAMPLES];
        struct weft_migrate_costs c;
        struct weft_overlap_job job;
        struct prices p;
        random_job(&job, &c, &p, sample);
        double bound = bound_of(&job), best = best_of(&job);
        CHECK(bound <= best);
        CHECK(work_of(&job) <= best * job.n_instances);
        n_equal += bound >= best * (1 - 1e-5);
        sum += bound / best;
    }
    CHECK(n_equal > ROUNDS / 3);
    CHECK(sum / ROUNDS > 0.83);
}

/* ---- What it is ---------------------------------------------------------- */

static const struct line nothing = {0, 0, 1 << 20};

static double one_or_two_s(void *ctx, const struct weft_work_rows *rows)
{
    (void) ctx;
    return rows->n_targets == 1 ? 1 : rows->n_targets <= 10 ? 2 : INFINITY;
}

/* On two instances a sample of 100 tokens after the first, and 45 of 20; a step
 * takes 1 s with one sample and 2 s with up to 10. The 45 take 20 x 45 x 2 / 10
 * = 180 s of work at least. By itself the long one ends at 100, and costs 100
 * s: with the others' that is too much. With x of its steps in full batches all
 * is done in 100 + x seconds, of 100 - x + 0.2 x + 180 s of work: x = 80 / 2.8.
 * No price but 0.8 says so much, and there is one within a tenth of it. */
static void test_few_or_many(void)
{
    struct weft_overlap_sample sample[46];
    const struct weft_migrate_costs c = {
        .step_s = one_or_two_s, .token_bytes = 1, .memory_bytes = 1e9};
    const struct weft_overlap_job job = {.costs = &c,
                                         .n_instances = 2,
                                         .n_samples = 46,
                                         .sample = sample,
                                         .most = 101};
    double least = 1 + 100 + 78 / 2.8; /* a second to read */
    for (int s = 0; s < 46; s++)
        sample[s] = (struct weft_overlap_sample){0, 1, s ? 21 : 101, 0};
    double bound = bound_of(&job);
    CHECK(bound <= least);
    CHECK(bound > 0.99 * least);
    CHECK(fabs(work_of(&job) - (180 + 100 * 2.0 / 10)) < 1e-9);
}

/* A sample by itself: it is read, decoded, and inferred by the slower model,
 * in the meantime by the other. Two of them on one instance: every step is
 * theirs together, and every model of one after the other. Reading is no work,
 * and no more than a row where others begin alike. */
static void test_one_and_two(void)
{
    struct prices p = {{10, 1, 20}, {{7, 7, 1}, {4, 4, 1}}, 2};
    const struct weft_overlap_sample sample[] = {{0, 10, 30, 0},
                                                 {0, 10, 30, 0}};
    const struct weft_migrate_costs c = {&p, step_s, 0, 1, 1e9, 1, 0, 0};
    struct weft_overlap_job job = {.costs = &c,
                                   .n_instances = 1,
                                   .n_samples = 1,
                                   .sample = sample,
                                   .most = 30,
                                   .n_models = 1,
                                   .infer_s = infer_s,
                                   .micro_tokens = 1e9};
    double alone = 10 + 55 / 20 + 9 * 2 + 7 + 40;
    for (int t = 11; t < 40; t++)
        alone += 10 + t / 20;
    CHECK(fabs(bound_of(&job) / alone - 1) < 2e-6);
    job.shares_prefixes = true;
    CHECK(fabs(bound_of(&job) / (alone - 2 - 18) - 1) < 2e-6);
    job.shares_prefixes = false;
    job.n_instances = 2;
    job.n_models = 2;
    CHECK(fabs(bound_of(&job) / alone - 1) < 2e-6);
    job.n_instances = 1;
    CHECK(fabs(bound_of(&job) / (alone - 30 + 44) - 1) < 0.01);
    p.step.tokens = 1 << 20;
    job.n_samples = 2;
    CHECK(fabs(bound_of(&job) / (29 * 11 + 2 * (47 + 44)) - 1) < 0.01);
}

/* Batches that the memory has no room for do not count: of 20 tokens for two
 * samples there is none, and each decodes by itself. */
static void test_room(void)
{
    struct prices p = {{5, 0, 1 << 20}, {nothing, nothing}, 0};
    const struct weft_overlap_sample sample[] = {{0, 9, 11, 0},
                                                 {0, 9, 11, 0}};
    struct weft_migrate_costs c = {&p, step_s, 0, 1, 19, 1, 0, 0};
    const struct weft_overlap_job job = {.costs = &c,
                                         .n_instances = 1,
                                         .n_samples = 2,
                                         .sample = sample,
                                         .most = 11};
    CHECK(fabs(bound_of(&job) / 100 - 1) < 2e-6);
    CHECK(fabs(work_of(&job) - 100) < 1e-9);
    c.memory_bytes = 38; /* as long as one takes, and is read */
    CHECK(fabs(bound_of(&job) / 55 - 1) < 2e-6);
    CHECK(fabs(work_of(&job) - 50) < 1e-9);
}

static void test_no_samples(void)
{
    CHECK(bound_of(&(struct weft_overlap_job){.n_instances = 2}) == 0);
    CHECK(work_of(&(struct weft_overlap_job){.n_instances = 2}) == 0);
}

WEFT_TESTS("plan/fusion/bound", {"test_all_schedules", test_all_schedules},
           {"test_few_or_many", test_few_or_many},
           {"test_one_and_two", test_one_and_two}, {"test_room", test_room},
           {"test_no_samples", test_no_samples})
