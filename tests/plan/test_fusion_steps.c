/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a simulated instance (plan/fusion/overlap.h) beside those that
 * the engine plans for the same samples (codelets/gen.h), row by row. */
#include <math.h>

#include "base/alloc.h"
#include "codelets/generation.h"
#include "draw.h"
#include "harness.h"
#include "plan/fusion/inside.h"

enum { SAMPLES = 30, LONGEST = 60, STEPS = 4000 };

static struct weft_err err;

struct steps {
    int32_t n;
    struct weft_work_rows rows[STEPS];
};

static double note(void *ctx, const struct weft_work_rows *rows)
{
    struct steps *x = ctx;
    REQUIRE(x->n < STEPS);
    x->rows[x->n++] = *rows;
    return 1;
}

/* A sample as it comes to the instance: new, or moved with some of its tokens
 * and of its cache. */
struct coming {
    int32_t has, cached;
};

static void simulate(const struct weft_overlap_job *job,
                     const struct coming *coming, double end_s[])
{
    struct weft_overlap_run run;
    struct weft_overlapped out;
    REQUIRE_OK(weft_overlap_run_init(&run, job, &out, &err), err);
    for (int32_t s = 0; s < job->n_samples; s++) {
        run.state[s].has = coming[s].has;
        run.state[s].cached = coming[s].cached;
    }
    weft_overlap_generate(&run, 0, INFINITY);
    for (int32_t s = 0; s < job->n_samples; s++)
        end_s[s] = run.state[s].end_s;
    weft_overlap_run_release(&run);
}

/* The same by the engine, a step after another. */
static void play(const struct weft_overlap_job *job,
                 const struct coming *coming, struct steps *out,
                 double end_s[])
{
    const struct weft_gen_args args = {
        .n_steps = 1, .prefill_tokens = job->costs->read_rows};
    int32_t n = job->slots, next = 0, n_done = 0, n_total[SAMPLES];
    int32_t sample[SAMPLES], token[LONGEST] = {0};
    struct weft_gen_play *p;
    struct weft_gen_status *status = weft_alloc(1, weft_gen_status_bytes(n));
    REQUIRE(status != NULL);
    REQUIRE_OK(weft_gen_play_create(n, 2 * LONGEST,
                                    weft_gen_most_pages(n, 2 * LONGEST),
                                    args.prefill_tokens, &p, &err),
               err);
    for (int32_t s = 0; s < job->n_samples; s++)
        n_total[s] = job->sample[s].prompt + job->sample[s].length;
    for (int32_t k = 0; k < n; k++)
        sample[k] = -1;
    for (out->n = 0; n_done < job->n_samples;) {
        for (int32_t k = 0; k < n; k++) {
            if (sample[k] >= 0 || next == job->n_samples)
                continue;
            const struct weft_gen_admit admit = {
                k, next, job->sample[next].prompt, n_total[next], token};
            weft_gen_play_enter(p, &admit, admit.n_prompt + coming[next].has,
                                coming[next].cached);
            sample[k] = next++;
        }
        REQUIRE(out->n < STEPS);
        REQUIRE_OK(weft_gen_play_chunk(p, NULL, &args, 0, NULL, n_total,
                                       status, &out->rows[out->n++], &err),
                   err);
        const struct weft_gen_slot *slot = (const void *) (status + 1);
        for (int32_t k = 0; k < n; k++) {
            if (sample[k] < 0 || !slot[k].done)
                continue;
            weft_gen_play_retire(p, k);
            end_s[sample[k]] = out->n;
            sample[k] = -1;
            n_done++;
        }
    }
    weft_gen_play_free(p);
    weft_free(status);
}

static void test_steps(void)
{
    static struct steps simulated, played;
    int n_mixed = 0;
    for (int round = 0; round < 300; round++) {
        struct weft_overlap_sample sample[SAMPLES];
        struct coming coming[SAMPLES];
        double end_s[SAMPLES], played_s[SAMPLES];
        const struct weft_migrate_costs costs = {
            .ctx = &simulated,
            .step_s = note,
            .read_rows = draw_from(1, 70),
            .token_bytes = 1,
            .memory_bytes = 1e9};
        const struct weft_overlap_job job = {
            .costs = &costs,
            .n_instances = 1,
            .slots = draw_from(1, 9),
            .n_samples = draw_from(1, SAMPLES),
            .sample = sample,
            .most = LONGEST};
        for (int32_t s = 0; s < job.n_samples; s++) {
            int32_t length = draw_from(1, LONGEST),
                    prompt = draw_from(1, LONGEST);
            int32_t has = draw_from(0, 2) ? 0 : draw_from(0, length - 1);
            sample[s] = (struct weft_overlap_sample){0, prompt, length};
            coming[s] = (struct coming){
                has, draw_from(0, 1) * draw_from(0, prompt + has - 1)};
        }
        simulated.n = 0;
        simulate(&job, coming, end_s);
        play(&job, coming, &played, played_s);
        CHECK_INT(simulated.n, played.n);
        for (int32_t k = 0; k < played.n && k < simulated.n; k++) {
            const struct weft_work_rows *a = &simulated.rows[k];
            const struct weft_work_rows *b = &played.rows[k];
            CHECK_INT(a->n_rows, b->n_rows);
            CHECK_INT(a->n_targets, b->n_targets);
            CHECK_INT(a->n_keys, b->n_keys);
            CHECK_INT(a->n_cached, b->n_cached);
            n_mixed += b->n_targets > 1 && b->n_targets < b->n_rows;
        }
        for (int32_t s = 0; s < job.n_samples; s++)
            CHECK_INT(end_s[s], played_s[s]);
    }
    CHECK(n_mixed > 1000);
}

WEFT_TESTS("plan/fusion/steps", {"test_steps", test_steps})
