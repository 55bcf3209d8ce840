/* SPDX-License-Identifier: Apache-2.0 */
/*
 * train.as_completed: mini-batches that train while others are generated give
 * the bits of those that wait for all, and where they must wait a sentence
 * says why. And a rank that cannot go on by itself, as its memory is used up,
 * while others are in the middle of an iteration:
 *
 *     test_as_completed RANK HOW FUNCTION CALL CONFIG.yaml words...
 *
 * does what `weft train` does, but on that rank that call of the function, from
 * 1, fails (alone_ranks.sh):
 *
 *     before, after  it does anything
 *     second         before, when a task of the rank has failed, too
 *     N              as its N-th allocation does
 */
#include "described_run.h"

#include "base/alloc.h"
#include "job/as_completed.h"
#include "plan/engine/engine.h"
#include "run/scorer.h"

static struct fixture fixture;

/* Rewards by rules, nothing over all samples; lengths differ. */
static const char *const common[] = {
    "iterations=3",
    "ppo.whiten_advantages=false",
    "reward=[{type: length, target: 4}, {type: regex, pattern: '[a-m]'}]",
    "rollout.max_new_tokens=40",
    "rollout.chunk_tokens=2",
    "rollout.samples_per_prompt=1",
    "rollout.prompts=16",
    "ppo.mini_batches=4",
    "rollout.temperature=1.5",
};

#define EARLY "train.as_completed=true"
#define APART "layout=disaggregated"
#define WHITENED "ppo.whiten_advantages=mini_batch"
/* Every device has a place: weights are copied between them. */
#define PLACES "runtime.place=device"

static const char *const *with(const char *const *more)
{
    static const char *all[WEFT_COUNT(common) + 12];
    size_t n = WEFT_COUNT(common);
    memcpy(all, common, sizeof common);
    while (*more)
        all[n++] = *more++;
    all[n] = NULL;
    return all;
}

/* Returns the largest number of mini-batches that trained early. */
static double run(const char *name, const char *const *more, int n_steps)
{
    struct weft_trainer *t = fixture_open(&fixture, name, with(more));
    double most = -1, x;
    while (n_steps-- > 0 && !weft_trainer_done(t)) {
        fixture_steps(t, 1);
        if (!weft_trainer_metric(t, "train/early_mini_batches", &x)
            && x > most)
            most = x;
        if (!weft_trainer_metric(t, "actor/first_ratio_abs_dev_max", &x))
            CHECK(x == 0);
    }
    weft_trainer_close(t);
    return most;
}

static void compare(const char *name, const char *with_name)
{
    CHECK(weft_hash_equal(fixture_hash(&fixture, name, 3),
                          fixture_hash(&fixture, with_name, 3)));
}

static void test_make(void)
{
    const char *plain[] = {"runtime.devices=1", NULL, NULL};
    fixture_make(&fixture);
    CHECK(run("whole", plain, 3) == -1);
    plain[1] = WHITENED;
    CHECK(run("whitened", plain, 3) == -1);
    CHECK(!weft_hash_equal(fixture_hash(&fixture, "whole", 3),
                           fixture_hash(&fixture, "whitened", 3)));
}

static void test_layouts(void)
{
    static const struct row {
        const char *word[7];
        bool early;
    } row[] = {{{"runtime.devices=4", APART}, true},
               {{"runtime.devices=4", APART, PLACES}, true},
               {{"runtime.devices=4", APART, "rollout.slots=3",
                 "train.mini_batches_ahead=1"},
                true},
               {{"runtime.devices=8", APART, PLACES, "rollout.slots=2",
                 "rollout.inter_stage_fusion=true", "rollout.remaining=0.5"},
                true},
               {{"runtime.devices=4", APART, "rollout.staleness=0",
                 "ppo.recompute_logprobs=true", PLACES},
                true},
               {{"runtime.devices=4", APART, PLACES, WHITENED}, true},
               {{"runtime.devices=4", APART, WHITENED, "rollout.slots=3",
                 "train.mini_batches_ahead=1"},
                true},
               /* in these training waits */
               {{"runtime.devices=2"}, false},
               {{"runtime.devices=4", "layout=dp2tp2,zero=2"}, false},
               {{"runtime.devices=4", "layout=dp2tp2", WHITENED,
                 "runtime.place=device"},
                false}};
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        const char *word[9] = {EARLY};
        char name[32];
        const char *same = "whole";
        for (int k = 0; k < 7 && row[i].word[k]; k++) {
            word[k + 1] = row[i].word[k];
            if (strcmp(row[i].word[k], WHITENED) == 0)
                same = "whitened";
        }
        snprintf(name, sizeof name, "layout-%zu", i);
        double early = run(name, word, 3);
        CHECK(row[i].early ? early > 0 : early == -1);
        compare(name, same);
    }
}

/* A reward model reads texts in tokens of its own, other ones than the
 * policy's and fewer, beside a rule and in front of a critic. */
static void test_texts(void)
{
    static const char *const layout[][4] = {
        {"runtime.devices=4", APART},
        {"runtime.devices=4", APART, "rollout.slots=3", PLACES},
        {"runtime.devices=8", APART, PLACES,
         "rollout.inter_stage_fusion=true"}};
    struct weft_init_options o = fixture_model();
    struct weft_err err;
    char path[600], reward[800];
    snprintf(path, sizeof path, "%s/words", fixture.dir);
    REQUIRE_OK(weft_dir_create(path, &err), err);
    snprintf(path, sizeof path, "%s/words/tokenizer.json", fixture.dir);
    REQUIRE_OK(
        weft_file_copy(weft_test_data("tokenizer/gpt2.json"), path, &err),
        err);
    snprintf(path, sizeof path, "%s/words", fixture.dir);
    o.scalar_head = true;
    o.tied = false;
    o.tokenizer = path;
    fixture_init_model(&fixture, "judge", &o);
    snprintf(reward, sizeof reward,
             "reward=[{type: model, model: %s/judge, own_tokenizer: true}, "
             "{type: length, target: 4}]",
             fixture.dir);
    const char *plain[] = {"runtime.devices=1", reward, NULL};
    CHECK(run("texts", plain, 3) == -1);
    CHECK(!weft_hash_equal(fixture_hash(&fixture, "texts", 3),
                           fixture_hash(&fixture, "whole", 3)));
    for (size_t i = 0; i < WEFT_COUNT(layout); i++) {
        const char *word[7] = {EARLY, reward};
        char name[32];
        for (int k = 0; k < 4 && layout[i][k]; k++)
            word[k + 2] = layout[i][k];
        snprintf(name, sizeof name, "texts-%zu", i);
        CHECK(run(name, word, 3) > 0);
        compare(name, "texts");
    }
}

/* The fixture without a critic. */
static struct fixture without_critic(void)
{
    const char *yaml = "seed: 5\n"
                       "run_dir: unset\n"
                       "data: {path: prompts.jsonl}\n"
                       "model: {actor: model, reference: model}\n"
                       "actor: {lr: 1e-3}\n"
                       "checkpoint: {every: 0, dtype: f32}\n";
    struct weft_err err;
    struct fixture own = fixture;
    snprintf(own.config, sizeof own.config, "%s/own.yaml", own.dir);
    REQUIRE_OK(weft_file_write(own.config, yaml, strlen(yaml), &err), err);
    return own;
}

/* A sample waits for those that it is compared with. */
static void test_groups(void)
{
    static const char *const algorithm[] = {"grpo", "remax"};
    static const char *const file[] = {"actor/model",
                                       "optimizer/actor/exp_avg"};
    struct fixture own = without_critic();
    for (size_t a = 0; a < WEFT_COUNT(algorithm); a++)
        for (int early = 0; early < 2; early++) {
            char word[64], name[64];
            const char *more[] = {
                word,
                early ? APART : "layout=dp1",
                early ? "runtime.devices=4" : "runtime.devices=1",
                early ? EARLY : "runtime.overlap=true",
                a == 0 ? "rollout.samples_per_prompt=2" : "seed=5",
                "ppo.mini_batches=8",
                "rollout.slots=3",
                NULL};
            snprintf(word, sizeof word, "algorithm=%s", algorithm[a]);
            snprintf(name, sizeof name, "%s-%d", algorithm[a], early);
            struct weft_trainer *t = fixture_open(&own, name, with(more));
            double x = -1, most = 0;
            while (!weft_trainer_done(t)) {
                fixture_steps(t, 1);
                (void) weft_trainer_metric(t, "train/early_mini_batches", &x);
                most = x > most ? x : most;
            }
            weft_trainer_close(t);
            CHECK(!early || most > 0);
        }
    for (size_t a = 0; a < WEFT_COUNT(algorithm); a++) {
        char name[2][64];
        for (int early = 0; early < 2; early++)
            snprintf(name[early], sizeof name[0], "%s-%d", algorithm[a],
                     early);
        CHECK(weft_hash_equal(fixture_hash_of(&own, name[0], 3, 2, file),
                              fixture_hash_of(&own, name[1], 3, 2, file)));
    }
}

static double one_second(void *ctx, const struct weft_recording *r,
                         int64_t task, int32_t device)
{
    (void) ctx;
    (void) device;
    return r->task[task].kind == WEFT_REC_TASK;
}

static void at_once(void *ctx, const struct weft_recording *r, int64_t task,
                    struct weft_engine_message *out)
{
    (void) ctx;
    (void) r;
    (void) task;
    *out = (struct weft_engine_message){.latency_s = 0};
}

/* Plays an iteration whose tasks take a second each: returns how much earlier
 * training begins on samples than generation ends. */
static double begins_before(const char *const *word, bool place_per_device)
{
    enum { SAMPLES = 16, DEVICES = 4 };
    struct weft_config config;
    struct weft_plan plan = {0};
    struct weft_trainer *t;
    struct weft_recording r;
    struct weft_engine *e;
    struct weft_err err;
    struct weft_span span;
    int32_t n_total[SAMPLES], n = 0, device;
    const int32_t of_node[DEVICES] = {0}, of_each[] = {0, 1, 2, 3};
    double begins = INFINITY, ends = 0;
    int32_t n_places = place_per_device ? DEVICES : 1;
    const char *const *all = with(word);
    while (all[n])
        n++;
    for (int32_t i = 0; i < SAMPLES; i++)
        n_total[i] = 3 + i * 7 % 38;
    REQUIRE_OK(weft_run_config_read(fixture.config, n, all, &config, &err),
               err);
    const struct weft_g_job job = {.n_ranks = 1,
                                   .n_devices = DEVICES,
                                   .place_per_device = place_per_device};
    REQUIRE_OK(weft_trainer_describe(&config, &job, &plan, &t, &err), err);
    t->n_iterations = 1;
    const struct weft_recorded how = {
        .rank = -1, .iterations = 1, .n_total = n_total, .responses = true};
    weft_recording_init(&r);
    REQUIRE_OK(weft_run_record(t, &how, &r, &err), err);
    const struct weft_engine_job engine = {
        .n_devices = DEVICES,
        .n_places = n_places,
        .places_per_rank = n_places,
        .place_of = place_per_device ? of_each : of_node,
        .seconds = one_second,
        .message = at_once};
    REQUIRE_OK(weft_engine_create(&engine, &r, &e, &err), err);
    REQUIRE_OK(weft_engine_run(e, &err), err);
    for (int64_t i = 0; i < r.n_tasks; i++) {
        int kind = t->flow.call[r.task[i].call].kind;
        if (one_second(NULL, &r, i, 0) <= 0)
            continue;
        REQUIRE(weft_engine_span(e, i, &span, &device));
        if (strcmp(weft_recording_op(&r, i), "pack") == 0
            && kind == WEFT_TRAIN)
            begins = fmin(begins, span.start_s);
        if (kind == WEFT_GENERATE)
            ends = fmax(ends, span.end_s);
    }
    weft_engine_free(e);
    weft_recording_release(&r);
    weft_trainer_forget(t);
    weft_plan_release(&plan);
    weft_config_release(&config);
    return ends - begins;
}

/* By what tasks wait for, not by a clock. */
static void test_begins(void)
{
    static const char *const whiten[] = {"ppo.whiten_advantages=false",
                                         WHITENED,
                                         "ppo.whiten_advantages=true"};
    for (size_t i = 0; i < WEFT_COUNT(whiten); i++) {
        const char *early[] = {APART, "rollout.slots=3", whiten[i], EARLY,
                               NULL},
                   *late[] = {APART, "rollout.slots=3", whiten[i], NULL};
        /* the device whose place gets advantages generates, too */
        for (int each = 0; each < 2; each++) {
            double by = begins_before(early, each);
            CHECK(i < 2 ? by > 0 : by <= 0);
            CHECK(begins_before(late, each) <= 0);
        }
    }
}

/* ---- When samples have left their instances ----------------------------- */

/* Of the iteration that was recorded last: mini-batches that were submitted
 * before its generation had ended. */
static int32_t n_early;

__typeof__(weft_iteration_early_turn) __real_weft_iteration_early_turn,
    __wrap_weft_iteration_early_turn;
int __wrap_weft_iteration_early_turn(struct weft_iteration *p)
{
    int rc = __real_weft_iteration_early_turn(p);
    n_early = p->n_early;
    return rc;
}

/* All samples but one end by the first status. Mini-batches train in their
 * order, so those before the one that the long sample is of train early, on
 * whatever instances it and they are; each of four has a quarter of the
 * samples. With ReMax a second generation gives each what it is compared with,
 * and one of the two ends at once. */
static void test_left(void)
{
    enum { SAMPLES = 16 };
    static const struct row {
        int n_devices, n_sets;
        const char *word[4];
    } row[] = {{2, 1, {APART, EARLY}},
               {4, 1, {APART, EARLY}},
               {8, 1, {APART, EARLY}},
               {4, 2, {APART, EARLY, "algorithm=remax"}}};
    struct fixture own = without_critic();
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        int32_t n_total[2 * SAMPLES], sum = 0;
        int n = 0, all = row[i].n_sets * SAMPLES;
        const struct weft_g_job job = {.n_ranks = 1,
                                       .n_devices = row[i].n_devices};
        const struct weft_recorded how = {.rank = -1,
                                          .iterations = 1,
                                          .n_total = n_total,
                                          .responses = true};
        const char *const *words = with(row[i].word);
        struct described_run d;
        struct weft_err err;
        while (words[n])
            n++;
        describe_run(row[i].n_sets > 1 ? &own : &fixture, &job, n, words, &d);
        for (int longest = 0; longest < all; longest++) {
            for (int k = 0; k < all; k++)
                n_total[k] = k == longest ? 40 : 1;
            weft_recording_release(&d.r);
            weft_recording_init(&d.r);
            REQUIRE_OK(weft_run_record(d.t, &how, &d.r, &err), err);
            sum += n_early;
        }
        CHECK_INT(sum, all / 4 * (0 + 1 + 2 + 3));
        forget_run(&d);
    }
}

static void test_resumed(void)
{
    const char *first[] = {"runtime.devices=4", APART, EARLY,
                           "checkpoint.every=1", NULL};
    const char *then[] = {"runtime.devices=2", EARLY, "checkpoint.every=1",
                          NULL};
    CHECK(run("resumed", first, 2) > 0);
    CHECK(run("resumed", then, 1) == -1);
    compare("resumed", "whole");
    CHECK(run("resumed-2", then, 1) == -1);
    CHECK(run("resumed-2", first, 2) > 0);
    compare("resumed-2", "whole");
}

static void test_why(void)
{
    static const struct row {
        const char *word[5], *why;
    } row[] = {
        {{"runtime.devices=4", APART, "ppo.whiten_advantages=true"},
         "(whiten_advantages;"},
        {{"runtime.devices=4", APART, "rollout.staleness=1"},
         "rollout.staleness"},
        {{"runtime.devices=4", APART,
          "reward=[{type: length, target: 4, normalize: batch}]"},
         "reward.normalize"},
        {{"runtime.devices=4", APART, "reward=[{type: callback}]"},
         "a callback"},
        {{"runtime.devices=2"}, "device 0 generates and trains"},
        {{"runtime.devices=2", "layout=pp2", "train.intra_stage_fusion=true"},
         "train.intra_stage_fusion"}};
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        const char *word[7] = {EARLY};
        char name[32], why[400];
        for (int k = 0; k < 5 && row[i].word[k]; k++)
            word[k + 1] = row[i].word[k];
        snprintf(name, sizeof name, "why-%zu", i);
        struct weft_trainer *t = fixture_open(&fixture, name, with(word));
        CHECK(!weft_run_trains_as_completed(&t->config, &t->flow, &t->plan,
                                            why, sizeof why));
        CHECK(strstr(why, row[i].why) != NULL);
        weft_trainer_close(t);
    }
}

static void test_remove(void)
{
    fixture_remove(&fixture);
}

/* ---- A rank that cannot go on ------------------------------------------- */

static struct {
    bool here;
    const char *function, *how;
    int left; /* calls until one fails */
} fails;

/* Allocations of this thread until one fails; 0: none does. */
static _Thread_local int n_allocations;

__typeof__(weft_alloc) __real_weft_alloc, __wrap_weft_alloc;
void *__wrap_weft_alloc(size_t n, size_t size)
{
    return n_allocations > 0 && --n_allocations == 0
             ? NULL
             : __real_weft_alloc(n, size);
}

/* Whether the call of a function that begins is the one that fails. */
static bool is_due(const char *function)
{
    return fails.here && strcmp(fails.function, function) == 0
        && --fails.left == 0;
}

static bool fails_so(bool due, const char *how)
{
    return due && strcmp(fails.how, how) == 0;
}

/* Of a function with such arguments, a sequence, and where it says errors. */
#define FAILS_IN(seq, err, name, more, given)                                \
    __typeof__(name) __real_##name, __wrap_##name;                           \
    int __wrap_##name more                                                   \
    {                                                                        \
        bool due = is_due(#name), second = fails_so(due, "second");          \
        if (second)                                                          \
            weft_seq_fail(seq, WEFT_EINVAL, "a task before " #name);         \
        if (second || fails_so(due, "before"))                               \
            return weft_err_nomem(err, #name, 1);                            \
        if (due)                                                             \
            n_allocations = atoi(fails.how);                                 \
        int rc = __real_##name given;                                        \
        if (due)                                                             \
            n_allocations = 0;                                               \
        return fails_so(due, "after") ? weft_err_nomem(err, #name, 1) : rc;  \
    }
#define FAILS(name, more, given)                                             \
    FAILS_IN(p->t->seq, p->err, name, more, given)

FAILS(weft_scorer_begin, (struct weft_iteration * p), (p))
FAILS(weft_scorer_expect, (struct weft_iteration * p, int32_t i), (p, i))
FAILS(weft_iteration_calls_add, (struct weft_iteration * p, int32_t i),
      (p, i))
FAILS(weft_iteration_calls_flush, (struct weft_iteration * p), (p))
FAILS(weft_iteration_advantages, (struct weft_iteration * p), (p))
FAILS(weft_iteration_train_next, (struct weft_iteration * p), (p))
FAILS(weft_iteration_moments,
      (struct weft_iteration * p, bool whiten, int32_t n,
       struct weft_tile *const advantage[], struct weft_tile **out),
      (p, whiten, n, advantage, out))
FAILS_IN(seq, err, weft_rollout_run_all,
         (struct weft_seq * seq, int32_t n, struct weft_rollout_job *job,
          struct weft_rollout_order *order, struct weft_err *err),
         (seq, n, job, order, err))

static int fail_on(int argc, char **argv)
{
    struct weft_trainer *t = NULL;
    struct weft_err err;
    int rc = weft_world_open(&err);
    if (!rc)
        rc = weft_trainer_open(argv[5], argc - 6,
                               (const char *const *) argv + 6, &t, &err);
    fails.here = weft_world_rank() == atoi(argv[1]);
    fails.how = argv[2];
    fails.function = argv[3];
    fails.left = atoi(argv[4]);
    while (!rc && !weft_trainer_done(t))
        rc = weft_trainer_step(t, &err);
    if (rc && weft_world_rank() == 0)
        fprintf(stderr, "weft: error: %s\n", err.text);
    weft_trainer_close(t);
    weft_world_close();
    return rc ? 1 : 0;
}

int main(int argc, char **argv)
{
    static const struct weft_test tests[] = {
        {"make", test_make},       {"layouts", test_layouts},
        {"texts", test_texts},     {"groups", test_groups},
        {"begins", test_begins},   {"left", test_left},
        {"resumed", test_resumed}, {"why", test_why},
        {"remove", test_remove}};
    return argc > 5
             ? fail_on(argc, argv)
             : weft_test_main("run/as_completed", tests, WEFT_COUNT(tests));
}
