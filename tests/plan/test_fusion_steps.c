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
    REQUIRE_OK(weft_overlap_run_init(&run, job, &err), err);
    weft_overlap_run_begin(&run);
    for (int32_t s = 0; s < job->n_samples; s++) {
        run.state[s].has = coming[s].has;
        run.state[s].cached = coming[s].cached;
    }
    weft_overlap_generate(&run, 0, INFINITY);
    for (int32_t s = 0; s < job->n_samples; s++)
        end_s[s] = run.state[s].end_s;
    CHECK(run.instance[0].held == 0);
    weft_overlap_run_release(&run);
}

/* Prompts differ in their first token, unless they are the same. */
static void admit(struct weft_gen_play *p, const struct weft_overlap_job *job,
                  int32_t slot, int32_t s, const struct coming *coming,
                  const int32_t *n_total)
{
    const struct weft_overlap_sample *sample = &job->sample[s];
    int32_t token[LONGEST] = {sample->shared ? sample->shared : 100 + s};
    const struct weft_gen_admit in = {slot, s, sample->prompt, n_total[s],
                                      token};
    weft_gen_play_enter(p, &in, in.n_prompt + coming->has, coming->cached);
}

/* The same by the engine, a step after another. */
static void play(const struct weft_overlap_job *job,
                 const struct coming *coming, struct steps *out,
                 double end_s[])
{
    const struct weft_gen_args args = {
        .n_steps = 1,
        .prefill_tokens = job->costs->read_rows,
        .prefix_sharing = true};
    int32_t n = job->slots, next = 0, n_done = 0, n_total[SAMPLES];
    int32_t sample[SAMPLES];
    struct weft_gen_play *p;
    struct weft_gen_status *status = weft_alloc(1, weft_gen_status_bytes(n));
    REQUIRE(status != NULL);
    REQUIRE_OK(weft_gen_play_create(n, 2 * LONGEST,
                                    2 * weft_gen_most_pages(n, 2 * LONGEST),
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
            admit(p, job, k, next, &coming[next], n_total);
            sample[k] = next++;
        }
        REQUIRE(out->n < STEPS);
        weft_gen_play_chunk(p, &args, 0, NULL, n_total, status,
                            &out->rows[out->n++]);
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

/* n samples of one prompt, which is long enough to be worth sharing, and is
 * read before the step in which a response ends. */
static void share(struct weft_overlap_sample *sample, struct coming *coming,
                  int32_t n, int32_t first)
{
    int32_t prompt = draw_from(9, LONGEST);
    for (int32_t i = 0; i < n && n > 1; i++) {
        sample[i].prompt = prompt;
        sample[i].length = weft_max32(sample[i].length, 2);
        sample[i].shared = first + 1;
        coming[i].has = weft_min32(coming[i].has, sample[i].length - 2);
        coming[i].cached = 0;
    }
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
            sample[s] = (struct weft_overlap_sample){0, prompt, length, 0};
            coming[s] = (struct coming){
                has, draw_from(0, 1) * draw_from(0, prompt + has - 1)};
        }
        for (int32_t s = 0, n; s < job.n_samples && round % 2; s += n) {
            n = draw_from(1, 8);
            share(sample + s, coming + s, weft_min32(n, job.n_samples - s),
                  s);
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

/* How often samples were put off with room for so many tokens, and when the
 * last has ended. */
static int32_t put_off(const struct weft_overlap_sample sample[4],
                       int32_t room, double *end_s)
{
    static struct steps steps;
    const struct weft_migrate_costs costs = {.ctx = &steps,
                                             .step_s = note,
                                             .token_bytes = 1,
                                             .memory_bytes = room};
    const struct weft_overlap_job job = {.costs = &costs,
                                         .n_instances = 1,
                                         .n_samples = 4,
                                         .sample = sample,
                                         .most = 20};
    struct weft_overlapped out;
    steps.n = 0;
    REQUIRE_OK(weft_overlap_simulate(&job, &(struct weft_overlap_when){0},
                                     &out, NULL, &err),
               err);
    *end_s = out.generated_s;
    return out.n_put_off;
}

/* Four samples of 100 and 20 tokens. By themselves they have 119 cached each
 * when they end. With one prompt the first ends early, and the others, which
 * begin a step later, have its 99 tokens in common and 20 of their own. */
static void test_room(void)
{
    struct weft_overlap_sample sample[4];
    double end_s;
    for (int32_t shared = 0; shared < 2; shared++) {
        int32_t most = shared ? 99 + 3 * 20 : 4 * 119;
        for (int32_t s = 0; s < 4; s++)
            sample[s] = (struct weft_overlap_sample){
                0, 100, s > 0 || !shared ? 20 : 5, shared};
        CHECK_INT(put_off(sample, most, &end_s), 0);
        CHECK_INT(end_s, 20 + shared);
        CHECK_INT(put_off(sample, most - 1, &end_s), 1);
        CHECK_INT(end_s, 21 + shared);
    }
}

WEFT_TESTS("plan/fusion/steps", {"test_steps", test_steps},
           {"test_room", test_room})
