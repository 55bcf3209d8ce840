/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs that offload frozen models: the bits of runs that do not, also when the
 * files are gone; weights leave memory between uses and the host's copy is
 * counted beside it; they come back while others still generate; metrics and
 * the report say what it took. The same for optimizer states of trained models,
 * of which two updates' are there at most.
 */
#include <math.h>

#include "described_run.h"
#include "plan/engine/engine.h"

static struct fixture fixture;
static char judge[512], reward[700];

/* A reward model beside the callback. */
static void test_make(void)
{
    struct weft_err err;
    struct weft_init_options o = fixture_model();
    fixture_make(&fixture);
    o.family = WEFT_LLAMA;
    o.scalar_head = true;
    o.tied = false;
    o.layers = 3;
    o.seed = 8;
    snprintf(judge, sizeof judge, "%s/judge", fixture.dir);
    REQUIRE_OK(weft_init_model(&o, judge, NULL, &err), err);
    snprintf(reward, sizeof reward,
             "reward=[{type: model, model: \"%s\", name: judge}, "
             "{type: callback, weight: 0.5}]",
             judge);
}

static double metric(const struct weft_trainer *t, const char *tag)
{
    double v = NAN;
    return weft_trainer_metric(t, tag, &v) ? NAN : v;
}

static size_t now_bytes(const struct weft_trainer *t, enum weft_mem_class c)
{
    size_t now, peak;
    weft_rt_memory(t->rt, c, &now, &peak);
    return now;
}

/* Copies of a folder's files that the run may lose. */
static void copy_model(const char *name, const char *from)
{
    static const char *const file[] = {
        "config.json", "model.safetensors", "tokenizer.json",
        "tokenizer_config.json", "generation_config.json"};
    struct weft_err err;
    char dir[600], a[700], b[700];
    snprintf(dir, sizeof dir, "%s/%s", fixture.dir, name);
    REQUIRE_OK(weft_dir_create(dir, &err), err);
    for (size_t i = 0; i < WEFT_COUNT(file); i++) {
        snprintf(a, sizeof a, "%s/%s/%s", fixture.dir, from, file[i]);
        snprintf(b, sizeof b, "%s/%s", dir, file[i]);
        if (weft_file_exists(a))
            REQUIRE_OK(weft_file_copy(a, b, &err), err);
    }
}

/* ---- The same numbers ---------------------------------------------------- */

static struct weft_hash run(const char *name, const char *a, const char *b)
{
    const char *word[] = {reward, a, b, NULL};
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    fixture_steps(t, 3);
    weft_trainer_close(t);
    return fixture_hash(&fixture, name, 3);
}

static void test_offload_layouts(void)
{
    static const char *const layout[][2] = {
        {"layout=dp1,offload", "runtime.devices=1"},
        {"layout=dp3,offload", "runtime.devices=3"},
        {"layout=tp2pp2,offload", "runtime.devices=4"},
        {"layout=dp2tp2pp2,offload", "runtime.devices=8"}};
    static const char *const where[] = {"node", "device"};
    struct weft_hash one = run("one", "runtime.devices=1", NULL);
    for (size_t i = 0; i < 2 * WEFT_COUNT(layout); i++) {
        char name[32], words[64];
        const char *word[] = {reward, layout[i / 2][0], layout[i / 2][1],
                              words, NULL};
        snprintf(name, sizeof name, "layout-%zu", i);
        snprintf(words, sizeof words, "runtime.place=%s", where[i % 2]);
        struct weft_trainer *t = fixture_open(&fixture, name, word);
        fixture_steps(t, 3);
        weft_trainer_close(t);
        CHECK(weft_hash_equal(one, fixture_hash(&fixture, name, 3)));
    }
}

/* What was loaded counts, whatever becomes of the files. */
static void test_offload_gone(void)
{
    struct weft_err err;
    char word[2][600], path[700], gone[600];
    struct weft_hash kept = run("kept", "runtime.devices=2", NULL);
    copy_model("mine", "model");
    copy_model("other", "model");
    snprintf(word[0], sizeof word[0], "model.reference=%s/mine", fixture.dir);
    snprintf(word[1], sizeof word[1],
             "reward=[{type: model, model: \"%s/judged\", name: judge}, "
             "{type: callback, weight: 0.5}]",
             fixture.dir);
    copy_model("judged", "judge");
    const char *words[] = {word[0], word[1], "layout=dp2,offload",
                           "runtime.devices=2", NULL};
    struct weft_trainer *t = fixture_open(&fixture, "gone", words);
    snprintf(path, sizeof path, "%s/mine/model.safetensors", fixture.dir);
    REQUIRE(unlink(path) == 0);
    snprintf(path, sizeof path, "%s/mine/config.json", fixture.dir);
    REQUIRE(unlink(path) == 0);
    fixture_steps(t, 1);
    /* other weights in the place of the reward model's */
    snprintf(path, sizeof path, "%s/judged/model.safetensors", fixture.dir);
    snprintf(gone, sizeof gone, "%s/other/model.safetensors", fixture.dir);
    REQUIRE_OK(weft_file_copy(gone, path, &err), err);
    fixture_steps(t, 2);
    weft_trainer_close(t);
    CHECK(weft_hash_equal(kept, fixture_hash(&fixture, "gone", 3)));
}

/* ---- Memory --------------------------------------------------------------- */

/* Between uses weights take what they take without the frozen models, whose
 * bytes are the host's. */
static void test_offload_memory(void)
{
    static const char *const layout[] = {"layout=dp1", "layout=dp1,offload"};
    size_t at_rest[2] = {0, 0}, host = 0;
    for (int k = 0; k < 2; k++) {
        const char *word[] = {reward, layout[k], "runtime.devices=1",
                              "runtime.overlap=false", NULL};
        struct weft_trainer *t = fixture_open(&fixture, k ? "off" : "there",
                                              word);
        at_rest[k] = now_bytes(t, WEFT_MEM_WEIGHTS);
        for (int i = 0; i < 3; i++) {
            size_t now, peak;
            fixture_steps(t, 1);
            host = now_bytes(t, WEFT_MEM_HOST);
            weft_rt_memory(t->rt, WEFT_MEM_WEIGHTS, &now, &peak);
            CHECK_INT(now, at_rest[k]);
            CHECK(peak <= at_rest[k] + host);
            CHECK(k == 0 || peak > at_rest[k]);
        }
        CHECK((host > 0) == (k == 1));
        weft_trainer_close(t);
    }
    CHECK_INT(at_rest[0], at_rest[1] + host); /* one place has it all */
}

/* ---- When weights come back ---------------------------------------------- */

enum { DEVICES = 2, ITERATIONS = 2, SAMPLES = 12 };

/* A chunk takes a second, and other tasks a thousandth. */
static double chunk_second(void *ctx, const struct weft_recording *r,
                           int64_t task, int32_t device)
{
    (void) ctx;
    (void) device;
    return strcmp(weft_recording_op(r, task), "gen_chunk") == 0 ? 1 : 1e-3;
}

static void at_once(void *ctx, const struct weft_recording *r, int64_t task,
                    struct weft_engine_message *out)
{
    (void) ctx;
    (void) r;
    (void) task;
    *out = (struct weft_engine_message){.latency_s = 0};
}

/* When the instances of an iteration have ended. Returns the task that takes
 * out its first sample that has. */
static int64_t first_ended(const struct weft_recording *r,
                           const struct weft_engine *e, int32_t iteration,
                           double ends_s[DEVICES])
{
    int64_t first = -1;
    struct weft_span span;
    int32_t d;
    ends_s[0] = ends_s[1] = 0;
    for (int64_t i = 0; i < r->n_tasks; i++) {
        const char *op = weft_recording_op(r, i);
        if (r->task[i].iteration != iteration)
            continue;
        if (first < 0 && strcmp(op, "gen_retire") == 0)
            first = i;
        if (strcmp(op, "gen_chunk") != 0)
            continue;
        REQUIRE(weft_engine_span(e, i, &span, &d) && d >= 0);
        ends_s[d] = fmax(ends_s[d], span.end_s);
    }
    REQUIRE(first >= 0 && ends_s[0] < ends_s[1] - 2);
    return first;
}

/* Weights are called for before any sample has ended, and the device that
 * generates no more has all of them within a second, while the other one still
 * does. */
static void check_restored(const struct weft_recording *r,
                           const struct weft_engine *e, int32_t iteration)
{
    double ends_s[DEVICES];
    int64_t first = first_ended(r, e, iteration, ends_s);
    int n[DEVICES] = {0};
    for (int64_t i = 0; i < r->n_tasks; i++) {
        const struct weft_rec_task *task = &r->task[i];
        struct weft_span span;
        int32_t d;
        if (task->iteration != iteration
            || task->priority != WEFT_PRIORITY_RESTORE
            || strcmp(weft_recording_op(r, i), "copy") != 0)
            continue;
        n[task->place]++;
        CHECK(i < first);
        REQUIRE(weft_engine_span(e, i, &span, &d));
        if (task->place == 0)
            CHECK(span.end_s < ends_s[0] + 1);
    }
    CHECK(n[0] > 5 && n[0] == n[1]); /* of two models' tiles */
}

static void test_offload_beside(void)
{
    static const char *const fusion[] = {
        "rollout.inter_stage_fusion=false",
        "rollout.inter_stage_fusion={remaining: 30%, instances: 1}"};
    static const int32_t place_of[] = {0, 1};
    const struct weft_g_job job = {1, DEVICES, true, 0, false};
    for (int k = 0; k < 2; k++) {
        int32_t length[ITERATIONS * SAMPLES];
        const char *word[] = {reward, "layout=dp2,offload",
                              "rollout.chunk_tokens=2", "iterations=2",
                              fusion[k]};
        struct described_run d;
        struct weft_engine *e;
        struct weft_err err;
        for (int i = 0; i < ITERATIONS * SAMPLES; i++)
            length[i] = i % SAMPLES < SAMPLES / 2 ? 1 : 12;
        describe_run(&fixture, &job, (int) WEFT_COUNT(word), word, &d);
        const struct weft_recorded how = {.rank = -1,
                                          .iterations = ITERATIONS,
                                          .n_total = length,
                                          .responses = true};
        REQUIRE_OK(weft_run_record(d.t, &how, &d.r, &err), err);
        const struct weft_engine_job engine = {.n_devices = DEVICES,
                                               .n_places = DEVICES,
                                               .places_per_rank = DEVICES,
                                               .place_of = place_of,
                                               .seconds = chunk_second,
                                               .message = at_once};
        REQUIRE_OK(weft_engine_create(&engine, &d.r, &e, &err), err);
        REQUIRE_OK(weft_engine_run(e, &err), err);
        for (int32_t i = 0; i < ITERATIONS; i++)
            check_restored(&d.r, e, i);
        weft_engine_free(e);
        forget_run(&d);
    }
}

/* ---- Optimizer states ----------------------------------------------------- */

static void test_optimizer_layouts(void)
{
    static const char *const layout[][2] = {
        {"layout=dp1", "runtime.devices=1"},
        {"layout=dp3", "runtime.devices=3"},
        {"layout=tp2pp2", "runtime.devices=4"},
        {"layout=dp4,zero=1", "runtime.devices=4"},
        {"layout=dp2tp2,zero=2", "runtime.devices=4"},
        {"layout=dp2pp2,zero=3,offload", "runtime.devices=4"}};
    static const char *const dtype[] = {"numerics.dtype=f32",
                                        "numerics.dtype=bf16"};
    for (size_t i = 0; i < 2 * WEFT_COUNT(layout); i++) {
        const char *type = dtype[i % 2];
        char name[32];
        const char *one[] = {type, "runtime.devices=1", NULL};
        const char *word[] = {type,
                              layout[i / 2][0],
                              layout[i / 2][1],
                              i % 4 < 2 ? "runtime.place=node"
                                        : "runtime.place=device",
                              "train.offload_optimizer=true",
                              NULL};
        static struct weft_hash there[2];
        if (i < 2) {
            snprintf(name, sizeof name, "state-%zu", i);
            struct weft_trainer *t = fixture_open(&fixture, name, one);
            fixture_steps(t, 3);
            weft_trainer_close(t);
            there[i] = fixture_hash(&fixture, name, 3);
        }
        snprintf(name, sizeof name, "host-%zu", i);
        struct weft_trainer *t = fixture_open(&fixture, name, word);
        fixture_steps(t, 3);
        weft_trainer_close(t);
        CHECK(weft_hash_equal(there[i % 2], fixture_hash(&fixture, name, 3)));
    }
}

static size_t bytes_of(const struct weft_layer_tiles *tiles)
{
    size_t sum = tiles->norms ? weft_tile_bytes(tiles->norms) : 0;
    for (int32_t b = 0; b < WEFT_MAX_BLOCKS; b++)
        sum += tiles->block[b] ? weft_tile_bytes(tiles->block[b]) : 0;
    return sum;
}

/* The most that two updates have of the state of a model on one device; of the
 * whole model, all_out. */
static size_t two_updates(const struct weft_g_model *m, size_t *all_out)
{
    size_t most = 0, second = 0;
    *all_out = 0;
    for (int32_t i = 0; i < weft_g_n_bundles(m); i++) {
        struct weft_g_bundle b = weft_g_bundle_get(m, i);
        struct weft_layer_tiles tiles = weft_g_bundle_tiles(m, &b,
                                                            &m->opt[0]);
        size_t bytes = bytes_of(&tiles);
        *all_out += bytes;
        if (bytes > most) {
            second = most;
            most = bytes;
        } else if (bytes > second) {
            second = bytes;
        }
    }
    return most + second;
}

/* Between steps no optimizer state is at its place, and in a step that of two
 * updates, across steps too. */
static void test_optimizer_memory(void)
{
    const char *word[] = {"layout=dp1,offload_optimizer", "runtime.devices=1",
                          "runtime.place=device", "ppo.mini_batches=2", NULL};
    struct weft_trainer *t = fixture_open(&fixture, "states", word);
    size_t most = 0, sum = 0, now, peak;
    for (int32_t r = 0; r < t->flow.n_roles; r++) {
        size_t all = 0;
        if (t->flow.role[r].trained)
            most += two_updates(&t->model[r].tiles, &all);
        sum += all;
    }
    for (int i = 0; i < 2; i++) {
        CHECK_INT(now_bytes(t, WEFT_MEM_OPTIMIZER), 0);
        CHECK_INT(now_bytes(t, WEFT_MEM_HOST), sum);
        fixture_steps(t, 1);
    }
    weft_rt_memory(t->rt, WEFT_MEM_OPTIMIZER, &now, &peak);
    CHECK(peak > 0 && peak <= most && most < sum);
    CHECK((size_t) t->plan.memory[0][WEFT_MEM_OPTIMIZER] <= most);
    CHECK_INT(t->plan.memory[0][WEFT_MEM_HOST], sum);
    weft_trainer_close(t);
}

/* ---- What is said ---------------------------------------------------------- */

static void test_offload_metrics(void)
{
    const char *const none[] = {reward, NULL};
    const char *const some[] = {reward, "layout=dp2,offload",
                                "runtime.devices=2", NULL};
    struct weft_trainer *t = fixture_open(&fixture, "silent", none);
    fixture_steps(t, 1);
    CHECK(isnan(metric(t, "perf/offload_s")));
    CHECK(isnan(metric(t, "perf/offload_hidden_ratio")));
    weft_trainer_close(t);
    t = fixture_open(&fixture, "said", some);
    for (int i = 0; i < 3; i++) {
        fixture_steps(t, 1);
        double ratio = metric(t, "perf/offload_hidden_ratio");
        CHECK(metric(t, "perf/offload_s") > 0);
        CHECK(ratio >= 0 && ratio <= 1 + 1e-6);
    }
    weft_trainer_close(t);
}

static void test_offload_remove(void)
{
    fixture_remove(&fixture);
}

WEFT_TESTS("run/offload", {"make", test_make},
           {"test_offload_layouts", test_offload_layouts},
           {"test_offload_gone", test_offload_gone},
           {"test_offload_memory", test_offload_memory},
           {"test_offload_beside", test_offload_beside},
           {"test_offload_metrics", test_offload_metrics},
           {"test_optimizer_layouts", test_optimizer_layouts},
           {"test_optimizer_memory", test_optimizer_memory},
           {"remove", test_offload_remove})
