/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts whose responses all have one score are replaced, and updates stop at
 * a limit of the KL: with the same bits on every layout, after a resume, and no
 * more often than the run says. */
#include "run/iteration.h"
#include "run/predict/recorded.h"
#include "run_fixture.h"

#include <math.h>

enum { STEPS = 3, PROMPTS = 4, EACH = 2, SAMPLES = PROMPTS * EACH };

static struct fixture fixture;

static const char yaml[] =
    "algorithm: dapo\n"
    "seed: 5\n"
    "run_dir: unset\n"
    "iterations: 3\n"
    "data: {path: prompts.jsonl}\n"
    "model: {actor: model}\n"
    "reward: [{type: callback, name: coarse}, {type: model, name: judge,\n"
    "          model: judge, own_tokenizer: true, weight: 0}]\n"
    "rollout: {prompts: 4, samples_per_prompt: 2, max_new_tokens: 9,\n"
    "          refills: 3}\n"
    "ppo: {epochs: 2, mini_batches: 2, kl: {stop: 1.0e-6}}\n"
    "actor: {lr: 1e-3}\n"
    "train: {micro_batch_tokens: 64}\n"
    "checkpoint: {every: 0, dtype: f32}\n";

/* One of two scores. */
static int coarse(void *ctx, const struct weft_reward_sample *s,
                  double *score_out, struct weft_err *err)
{
    (void) ctx;
    (void) err;
    *score_out = s->response.n > 0 && (s->response.s[0] & 1);
    return 0;
}

static struct weft_trainer *open_run(const char *name,
                                     const char *const *word)
{
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    weft_trainer_set_reward(t, coarse, NULL);
    return t;
}

static double metric(const struct weft_trainer *t, const char *tag)
{
    double x = NAN;
    CHECK_INT(weft_trainer_metric(t, tag, &x), 0);
    return x;
}

static struct weft_hash hash_of(const char *name)
{
    const char *const file[] = {"actor/model", "optimizer/actor/exp_avg"};
    return fixture_hash_of(&fixture, name, STEPS, 2, file);
}

static void setup(void)
{
    struct weft_init_options o = fixture_model();
    struct weft_err err;
    fixture_make(&fixture);
    o.scalar_head = true;
    o.tied = false;
    fixture_init_model(&fixture, "judge", &o);
    REQUIRE_OK(weft_file_write(fixture.config, yaml, sizeof yaml - 1, &err),
               err);
}

static void test_layouts(void)
{
    static const char *const layout[][6] = {
        {"runtime.devices=1"},
        {"runtime.devices=4", "layout=dp2pp2,zero=2", "rollout.slots=2"},
        {"runtime.devices=4", "layout=tp2pp2,recompute",
         "runtime.place=device"},
        {"runtime.devices=3", "layout=dp2", "rollout.chunk_tokens=2",
         "runtime.overlap=false"}};
    struct weft_hash first = {0};
    double refilled = 0, stopped = 0;
    for (int i = 0; i < (int) WEFT_COUNT(layout); i++) {
        char name[32];
        snprintf(name, sizeof name, "laid-%d", i);
        struct weft_trainer *t = open_run(name, layout[i]);
        for (int k = 0; k < STEPS; k++) {
            fixture_steps(t, 1);
            if (i > 0)
                continue;
            refilled += metric(t, "rollout/refilled_prompts");
            stopped += metric(t, "actor/kl_stopped_mini_batches");
        }
        weft_trainer_close(t);
        if (i == 0)
            first = hash_of(name);
        CHECK(weft_hash_equal(first, hash_of(name)));
    }
    CHECK(refilled > 0);
    CHECK(stopped > 0);
    static const char *const off[] = {"rollout.refills=0", NULL};
    struct weft_trainer *t = open_run("off", off);
    fixture_steps(t, STEPS);
    weft_trainer_close(t);
    CHECK(!weft_hash_equal(first, hash_of("off")));
}

/* Which prompts come next is state of the run, also while the next iteration
 * is generated already. */
static void test_resume(void)
{
    static const char *const word[] = {"checkpoint.every=1", NULL};
    struct weft_err err;
    for (int i = 0; i < STEPS; i++) {
        struct weft_trainer *t = open_run("parts", word);
        CHECK_INT(weft_trainer_iteration(t), i);
        fixture_steps(t, 1);
        weft_trainer_close(t);
    }
    CHECK(weft_hash_equal(hash_of("laid-0"), hash_of("parts")));
    for (int i = 0; i < STEPS; i++) {
        struct weft_trainer *t = open_run("ahead", NULL);
        CHECK_INT(weft_trainer_iteration(t), i);
        fixture_steps(t, 1);
        REQUIRE_OK(weft_trainer_checkpoint(t, &err), err);
        weft_trainer_close(t);
    }
    CHECK(weft_hash_equal(hash_of("laid-0"), hash_of("ahead")));
}

/* ---- The bound ---------------------------------------------------------- */

struct lengths {
    int32_t response[STEPS * 3 * SAMPLES], n;
};

static int constant(void *ctx, const struct weft_reward_sample *s,
                    double *score_out, struct weft_err *err)
{
    struct lengths *l = ctx;
    (void) err;
    REQUIRE(l->n < (int) WEFT_COUNT(l->response));
    l->response[l->n++] = s->n_tokens;
    *score_out = 0.5;
    return 0;
}

/* All rounds replace everything, and the last is learned from: without a
 * gradient. A recording that is given the lengths has the same tasks. */
static void test_bound(void)
{
    enum { REFILLS = 2 };
    static const char *const word[] = {
        "runtime.devices=4",     "layout=dp2pp2",
        "rollout.refills=2",     "reward=[{type: callback, name: one}]",
        "runtime.overlap=false", NULL};
    struct lengths l = {.n = 0};
    int32_t n_total[STEPS][REFILLS + 1][SAMPLES];
    struct weft_recording ran, recorded;
    struct weft_err err;
    char text[200];
    weft_recording_init(&ran);
    weft_recording_init(&recorded);
    struct weft_trainer *t = fixture_open_logged(&fixture, "bound", word,
                                                 &ran);
    weft_trainer_set_reward(t, constant, &l);
    for (int k = 0; k < STEPS; k++) {
        fixture_steps(t, 1);
        CHECK_INT(l.n, (k + 1) * (REFILLS + 1) * SAMPLES);
        CHECK(metric(t, "rollout/refilled_prompts") == REFILLS * PROMPTS);
        CHECK(metric(t, "rollout/equal_prompts") == PROMPTS);
        CHECK(metric(t, "actor/grad_norm") == 0);
        CHECK(isfinite(metric(t, "actor/pg_loss")));
    }
    for (int k = 0; k < l.n; k++)
        n_total[k / SAMPLES / (REFILLS + 1)][k / SAMPLES % (REFILLS + 1)]
               [k % SAMPLES] = weft_prompts_draw(t, k / EACH)->n_prompt
                             + l.response[k];
    struct weft_rollout_order order[STEPS];
    for (int k = 0; k < STEPS; k++)
        order[k] = t->replays.kept[k].order[0];
    const struct weft_recorded how = {.rank = 0,
                                      .iterations = STEPS,
                                      .n_total = n_total[0][0],
                                      .order = order,
                                      .n_orders = STEPS};
    REQUIRE_OK(weft_run_record(t, &how, &recorded, &err), err);
    weft_trainer_close(t);
    bool same = weft_recording_same(&ran, &recorded, text, sizeof text);
    CHECK(same);
    if (!same)
        printf("%s\n", text);
    weft_recording_release(&ran);
    weft_recording_release(&recorded);
}

static void test_refused(void)
{
    static const char *const word[] = {"algorithm=reinforce_pp",
                                       "rollout.samples_per_prompt=1"};
    struct weft_err err;
    struct weft_trainer *t;
    CHECK_FAILS(weft_trainer_open(fixture.config, 2, word, &t, &err),
                WEFT_EINVAL, err,
                "'rollout.refills' compares the responses to a prompt");
    fixture_remove(&fixture);
}

WEFT_TESTS("run/refills", {"setup", setup}, {"test_layouts", test_layouts},
           {"test_resume", test_resume}, {"test_bound", test_bound},
           {"test_refused", test_refused})
