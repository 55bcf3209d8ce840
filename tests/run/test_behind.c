/* SPDX-License-Identifier: Apache-2.0 */
/* Generation waits for another model's training where they share devices and
 * its weights move afterwards, and only there; inference comes before its own
 * iteration's training, and behind the one before. */
#include "run_fixture.h"

#include "job/plan_needs.h"
#include "job/run_config.h"
#include "plan/engine/engine.h"
#include "run/predict/recorded.h"

enum { DEVICES = 4, ITERATIONS = 2 };

static struct fixture fixture;

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

/* When the critic's optimizer was last at work on a device for iteration 0, and
 * when generation first uses a KV cache for iteration 1. */
struct seen {
    double trained_s, generates_s;
};

static bool has_cache(const struct weft_recording *r,
                      const struct weft_rec_task *task)
{
    for (int32_t i = 0; i < task->n_access; i++)
        if (r->tile[r->access[task->access + i].tile].mem == WEFT_MEM_KV)
            return true;
    return false;
}

/* Of inference the first call comes first, and behind all of them what any
 * device takes. */
static void check_turn(const struct weft_trainer *t,
                       const struct weft_rec_task *task, int32_t least)
{
    int32_t before = 0;
    for (int32_t c = 1; c < task->call; c++)
        before += t->flow.call[c].kind == WEFT_INFER;
    bool any = task->device < 0;
    CHECK_INT(task->priority,
              least + (any ? 0 : WEFT_PRIORITY_TURNS - 1 - before));
}

/* What passes layers: inference of the first iteration is inserted before its
 * training, that of the second while the first one trains. */
static void check_priorities(const struct weft_trainer *t,
                             const struct weft_recording *r)
{
    int n[2] = {0};
    for (int64_t i = 0; i < r->n_tasks; i++) {
        const struct weft_rec_task *task = &r->task[i];
        enum weft_call_kind kind = t->flow.call[task->call].kind;
        if (strncmp(weft_recording_op(r, i), "layer_", 6) != 0)
            continue;
        if (kind == WEFT_INFER && task->iteration == 0)
            check_turn(t, task, WEFT_PRIORITY_INFER);
        if (kind == WEFT_INFER && task->iteration == 1)
            check_turn(t, task, WEFT_PRIORITY_INFER_AHEAD);
        if (kind == WEFT_INFER)
            n[task->iteration]++;
        if (kind == WEFT_TRAIN)
            CHECK(task->priority
                      >= WEFT_PRIORITY_INFER_AHEAD + WEFT_PRIORITY_TURNS
                  && task->priority < WEFT_PRIORITY_INFER
                  && task->priority >= WEFT_PRIORITY_TRAIN
                  && task->priority <= WEFT_PRIORITY_TRAIN_POLICY);
    }
    CHECK(n[0] > 0 && n[1] > 0);
}

static void look(const struct weft_trainer *t, const struct weft_recording *r,
                 const struct weft_engine *e, struct seen *out)
{
    int32_t critic = weft_flow_find_call(&t->flow, "critic_train");
    for (int32_t d = 0; d < DEVICES; d++)
        out[d] = (struct seen){0, INFINITY};
    for (int64_t i = 0; i < r->n_tasks; i++) {
        const struct weft_rec_task *task = &r->task[i];
        const char *op = weft_recording_op(r, i);
        struct weft_span span;
        int32_t d;
        REQUIRE(weft_engine_span(e, i, &span, &d));
        if (d < 0)
            continue;
        if (task->call == critic && task->iteration == 0
            && strcmp(op, "adamw") == 0)
            out[d].trained_s = fmax(out[d].trained_s, span.end_s);
        if (t->flow.call[task->call].kind == WEFT_GENERATE
            && task->iteration == 1 && strcmp(op, "open") != 0
            && has_cache(r, task))
            out[d].generates_s = fmin(out[d].generates_s, span.start_s);
    }
}

/* Plays iterations whose tasks take a second each; home: how the critic trains,
 * if not as `word` says. */
static void play(const char *const *word, const struct weft_call_plan *home,
                 bool place_per_device, struct seen *out)
{
    struct weft_config config;
    struct weft_run_needs needs;
    struct weft_plan plan = {0};
    struct weft_trainer *t;
    struct weft_recording r;
    struct weft_engine *e;
    struct weft_err err;
    static const int32_t of_node[DEVICES] = {0}, of_each[] = {0, 1, 2, 3};
    int32_t n_places = place_per_device ? DEVICES : 1, n = 0;
    while (word[n])
        n++;
    REQUIRE_OK(weft_run_config_read(fixture.config, n, word, &config, &err),
               err);
    const struct weft_g_job job = {.n_ranks = 1,
                                   .n_devices = DEVICES,
                                   .place_per_device = place_per_device};
    REQUIRE_OK(weft_run_needs_read(&config, 1, DEVICES, 0, &needs, &err),
               err);
    REQUIRE_OK(weft_run_plan(&config, &needs.plan, &plan, &err), err);
    if (home)
        plan.call[weft_flow_find_call(&plan.flow, "critic_train")] = *home;
    REQUIRE_OK(weft_trainer_describe(&config, &job, &plan, &t, &err), err);
    t->n_iterations = ITERATIONS;
    const struct weft_recorded how = {.rank = -1, .iterations = ITERATIONS};
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
    look(t, &r, e, out);
    check_priorities(t, &r);
    weft_engine_free(e);
    weft_recording_release(&r);
    weft_trainer_forget(t);
    weft_plan_release(&plan);
    weft_config_release(&config);
}

static void test_shared(void)
{
    static const struct weft_mesh all = {0, 1, 0, DEVICES};
    const struct weft_call_plan home[] = {
        {.mesh = all, .dp = 2, .tp = 1, .pp = 2},
        {.mesh = all, .dp = 2, .tp = 2, .pp = 1},
        {.mesh = all, .dp = 2, .tp = 2, .pp = 1, .zero = 2},
        {.mesh = all, .dp = 4, .tp = 1, .pp = 1, .zero = 3}};
    static const char *const layout[] = {"layout=dp4", "layout=dp2pp2"};
    fixture_make(&fixture);
    for (size_t i = 0; i < 2 * WEFT_COUNT(home); i++) {
        const char *word[] = {"runtime.devices=4",
                              layout[i % WEFT_COUNT(home) == 3], NULL};
        struct seen seen[DEVICES];
        bool any = false;
        play(word, &home[i % WEFT_COUNT(home)], i < WEFT_COUNT(home), seen);
        for (int32_t d = 0; d < DEVICES; d++) {
            any = any || seen[d].trained_s > 0;
            CHECK(isfinite(seen[d].generates_s));
            CHECK(seen[d].generates_s >= seen[d].trained_s);
        }
        CHECK(any);
    }
}

/* Where its weights stay, generation comes first, as all that follows waits for
 * it. */
static void test_stays(void)
{
    const char *word[] = {"runtime.devices=4", "layout=dp2pp2", NULL};
    struct seen seen[DEVICES];
    bool before = false;
    play(word, NULL, true, seen);
    for (int32_t d = 0; d < DEVICES; d++)
        before = before || seen[d].generates_s < seen[d].trained_s;
    CHECK(before);
}

/* Other devices train the critic: nobody waits for them. */
static void test_apart(void)
{
    const char *word[] = {"runtime.devices=4", "layout=disaggregated", NULL};
    for (int each = 0; each < 2; each++) {
        struct seen seen[DEVICES];
        double trained_s = 0, generates_s = INFINITY;
        play(word, NULL, each, seen);
        for (int32_t d = 0; d < DEVICES; d++) {
            trained_s = fmax(trained_s, seen[d].trained_s);
            generates_s = fmin(generates_s, seen[d].generates_s);
            CHECK(seen[d].trained_s == 0 || isinf(seen[d].generates_s));
        }
        CHECK(generates_s < trained_s);
        if (each)
            fixture_remove(&fixture);
    }
}

WEFT_TESTS("run/behind", {"shared", test_shared}, {"stays", test_stays},
           {"apart", test_apart})
