/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over the recording of a run of the fixture's model, and numbers of that
 * model for closed forms. */
#ifndef WEFT_TESTS_RUN_RECORDED_SUMS_H
#define WEFT_TESTS_RUN_RECORDED_SUMS_H

#include <math.h>

#include "described_run.h"

enum { SAMPLES = 12, EPOCHS = 2, STEPS = 4 };

static struct fixture fixture;

/* Of the fixture's model: hidden and MLP size, query and KV width, layers. With
 * four tensor blocks, each of which has a copy of its KV head: twice the two
 * that there are. */
static const double H = 64, FF = 256, Q = 64, KV = 64, L = 2, VOCAB = 259;

/* Adapters of rank 1 beside q, k, v, o, gate, up and down: for each of them an A
 * of as many columns as the matrix has and a B of as many rows. Sides that face
 * the hidden state are whole at every member of a tp group, the others cut. */
static inline double whole(void)
{
    return L * 7 * H;
}

static inline double cut(void)
{
    return L * (2 * Q + 2 * KV + 3 * FF);
}

static inline int32_t alike(int i)
{
    (void) i;
    return 12;
}

/* Records an iteration whose samples have responses of so many tokens each. */
static inline void describe(const struct weft_g_job *job,
                            const char *const *word,
                            struct described_run *out)
{
    const char *all[32] = {"data.shuffle=false", "runtime.overlap=false",
                           "rollout.prefix_sharing=false"};
    int32_t n_total[2 * SAMPLES];
    struct weft_err err;
    int n = 3;
    for (; *word; word++)
        all[n++] = *word;
    describe_run(&fixture, job, n, all, out);
    for (int i = 0; i < 2 * SAMPLES; i++)
        n_total[i] = weft_prompts_draw(out->t, i / 2)->n_prompt + alike(i);
    const struct weft_recorded how = {
        .rank = -1, .iterations = 1, .n_total = n_total};
    REQUIRE_OK(weft_run_record(out->t, &how, &out->r, &err), err);
}

static inline void check_near(const char *what, double got, double expected)
{
    bool near = fabs(got - expected) <= 1e-5 * fabs(expected);
    CHECK(near);
    if (!near)
        printf("%s: %.9g, not %.9g\n", what, got, expected);
}

static inline double flop_of(const struct described_run *d, const char *call)
{
    int32_t c = weft_flow_find_call(&d->t->flow, call);
    double sum = 0;
    REQUIRE(c > 0);
    for (int64_t i = 0; i < d->r.n_tasks; i++)
        if (d->r.task[i].call == c)
            sum += (double) d->r.task[i].work.flop;
    return sum;
}

/* Tokens of all samples; those from which the next is predicted; keys of all
 * rows; generated tokens. */
struct rows {
    double all, passed, keys, targets;
};

static inline struct rows count_rows(const struct described_run *d)
{
    struct rows rows = {.all = 0};
    for (int i = 0; i < SAMPLES; i++) {
        double n = weft_prompts_draw(d->t, i / 2)->n_prompt + alike(i);
        rows.all += n;
        rows.passed += n - 1;
        rows.keys += n * (n + 1) / 2;
        rows.targets += alike(i);
    }
    return rows;
}

/* Of all places, of what is there for good. */
static inline double bytes_of(const struct described_run *d,
                              enum weft_mem_class c)
{
    double sum = 0;
    for (int64_t i = 0; i < d->r.n_tiles; i++) {
        const struct weft_rec_tile *tile = &d->r.tile[i];
        if (tile->permanent && tile->whole < 0 && tile->mem == c)
            sum += (double) tile->bytes;
    }
    return sum;
}

/* Bytes of a class that a call's copies and messages bring from place to place:
 * to reallocate weights, or not. */
static inline double sent(const struct described_run *d, const char *call,
                          enum weft_mem_class c, bool moves)
{
    int32_t number = weft_flow_find_call(&d->t->flow, call);
    double sum = 0;
    REQUIRE(number > 0);
    for (int64_t i = 0; i < d->r.n_tasks; i++) {
        const struct weft_rec_task *t = &d->r.task[i];
        if (t->call != number || t->moves != moves || t->n_access != 2)
            continue; /* they have a source and a destination */
        const struct weft_rec_access *a = &d->r.access[t->access];
        const struct weft_rec_tile *from = &d->r.tile[a[0].tile];
        const struct weft_rec_tile *to = &d->r.tile[a[1].tile];
        if (from->place != to->place && from->mem == c && to->mem == c)
            sum += (double) to->bytes;
    }
    return sum;
}

static inline void setup(void)
{
    fixture_make(&fixture);
}

static inline void teardown(void)
{
    fixture_remove(&fixture);
}

#endif
