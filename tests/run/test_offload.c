/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs that offload frozen models: the bits of runs that do not, also when the
 * files are gone; weights leave memory between uses and the host's copy is
 * counted beside it; metrics and the report say what it took.
 */
#include <math.h>

#include "run/trainer.h"
#include "run_fixture.h"

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
           {"test_offload_metrics", test_offload_metrics},
           {"remove", test_offload_remove})
