/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reference that moves to the policy: when, and to which bits; the same on
 * every placement and after a resume; what checkpoints have of it.
 * (test_iterations has the numbers, test_memory what it takes.)
 */
#include "record/manifest.h"
#include "run_fixture.h"

static struct fixture fixture;

static void path_of(char out[700], const char *name, int iteration,
                    const char *file)
{
    snprintf(out, 700, "%s/%s/checkpoints/iteration-%06d/%s", fixture.dir,
             name, iteration, file);
}

static bool has(const char *name, int iteration, const char *file)
{
    char path[700];
    path_of(path, name, iteration, file);
    return weft_file_exists(path);
}

static struct weft_hash hash_of(const char *name, int iteration,
                                const char *file)
{
    const char *const one[] = {file};
    return fixture_hash_of(&fixture, name, iteration, 1, one);
}

/* All that moves. */
static struct weft_hash run(const char *name, int steps,
                            const char *const *word)
{
    static const char *const file[] = {"actor/model", "reference/model",
                                       "optimizer/actor/exp_avg"};
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    fixture_steps(t, steps);
    weft_trainer_close(t);
    return fixture_hash_of(&fixture, name, steps, WEFT_COUNT(file), file);
}

/* A reset makes it the policy of that iteration, until the next. */
static void check_reset(const char *name, const char *dtype,
                        const char *folder_dtype)
{
    static const char actor[] = "actor/model", own[] = "reference/model";
    const char *word[] = {
        "iterations=4",      "reference.every=2",  "reference.mix=1", dtype,
        "checkpoint.keep=9", "checkpoint.every=1", folder_dtype,      NULL};
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    fixture_steps(t, 4);
    weft_trainer_close(t);
    CHECK(!has(name, 1, "reference/model.safetensors"));
    for (int i = 2; i <= 4; i++) {
        CHECK(weft_hash_equal(hash_of(name, i, own),
                              hash_of(name, i / 2 * 2, actor)));
        CHECK(has(name, i, "reference/config.json"));
        CHECK(has(name, i, "reference/tokenizer.json"));
        CHECK(!has(name, i, "optimizer/reference/exp_avg.safetensors"));
    }
    CHECK(!weft_hash_equal(hash_of(name, 3, own), hash_of(name, 3, actor)));
}

static void test_follow_reset(void)
{
    fixture_make(&fixture);
    check_reset("reset", "numerics.dtype=f32", "checkpoint.dtype=f32");
    check_reset("reset-bf16", "numerics.dtype=bf16", "checkpoint.dtype=bf16");
}

/* The second iteration reads what the first made of it; in bf16 what was
 * published of its masters. */
static void test_follow_reads(void)
{
    static const char *const dtype[] = {"numerics.dtype=f32",
                                        "numerics.dtype=bf16"};
    static const char *const mix[] = {"reference.every=0", "reference.mix=1",
                                      "reference.mix=0.5"};
    for (int d = 0; d < 2; d++) {
        struct weft_hash found[3];
        for (int i = 0; i < 3; i++) {
            char name[32];
            const char *word[] = {"iterations=2", "reference.every=1", mix[i],
                                  dtype[d], NULL};
            snprintf(name, sizeof name, "reads-%d-%d", d, i);
            struct weft_trainer *t = fixture_open(&fixture, name, word);
            fixture_steps(t, 2);
            weft_trainer_close(t);
            CHECK_INT(has(name, 2, "reference/model.safetensors"), i > 0);
            found[i] = hash_of(name, 2, "actor/model");
        }
        CHECK(!weft_hash_equal(found[0], found[1]));
        CHECK(!weft_hash_equal(found[0], found[2]));
        CHECK(!weft_hash_equal(found[1], found[2]));
    }
}

static void test_follow_layouts(void)
{
    static const struct fixture_call apart[] = {
        {"actor_generate", 0, 4, 2, 2, 1, NULL},
        {"ref_infer", 4, 4, 1, 2, 2, NULL},
        {"critic_infer", 4, 2, 2, 1, 1, NULL},
        {"actor_train", 0, 4, 2, 1, 2, ", \"zero\": 2"},
        {"critic_train", 4, 4, 2, 2, 1, NULL},
        {0}};
    static const struct fixture_call away[] = {
        {"actor_generate", 0, 8, 8, 1, 1, NULL},
        {"ref_infer", 6, 2, 1, 1, 2, ", \"offload\": true"},
        {"critic_infer", 0, 1, 1, 1, 1, NULL},
        {"actor_train", 0, 4, 4, 1, 1, ", \"zero\": 3"},
        {"critic_train", 4, 2, 1, 2, 1, NULL},
        {0}};
    const char *const layout[][4] = {
        {"runtime.devices=1"},
        {"runtime.devices=2", "runtime.overlap=false"},
        {"runtime.devices=4", "layout=dp2tp2", "runtime.place=device"},
        {"runtime.devices=4", "layout=dp2pp2,zero=2",
         "train.intra_stage_fusion=true"},
        {"runtime.devices=4", "layout=tp2pp2,offload",
         "runtime.place=device"},
        {"runtime.devices=8", "layout=dp4tp2,zero=3,offload"},
        {"runtime.devices=8", fixture_plan(&fixture, "apart", apart),
         "runtime.place=device"},
        {"runtime.devices=8", fixture_plan(&fixture, "away", away),
         "runtime.place=device"},
        {"runtime.devices=8", fixture_plan(&fixture, "away-node", away)}};
    /* masters of its own on all placements, the others on some */
    static const char *const how[][2] = {
        {"numerics.dtype=bf16", "reference.mix=0.3"},
        {"numerics.dtype=f32", "reference.mix=0.5"},
        {"numerics.dtype=bf16", "reference.mix=1"}};
    for (size_t k = 0; k < WEFT_COUNT(how); k++) {
        struct weft_hash one = {0};
        for (size_t i = 0; i < WEFT_COUNT(layout); i += k == 0 ? 1 : 3) {
            char name[32];
            const char *word[] = {
                "iterations=2", "reference.every=1", how[k][0],    how[k][1],
                layout[i][0],   layout[i][1],        layout[i][2], NULL};
            snprintf(name, sizeof name, "layout-%zu-%zu", k, i);
            struct weft_hash found = run(name, 2, word);
            if (i == 0)
                one = found;
            CHECK(weft_hash_equal(one, found));
        }
    }
}

/* How often the reference has moved. */
static int64_t moves(const char *name, int iteration)
{
    struct weft_manifest m = {0};
    struct weft_err err;
    char folder[700];
    path_of(folder, name, iteration, "");
    REQUIRE_OK(weft_manifest_read(folder, iteration, &m, &err), err);
    const struct weft_manifest_role *role = weft_manifest_role(&m,
                                                               "reference");
    int64_t n = role ? role->steps : 0;
    weft_manifest_release(&m);
    return n;
}

/* What was not yet saved is repeated, on other placements; in bf16 folders the
 * masters are beside the optimizer's. */
static void resume(const char *base, const char *mix)
{
    const char *whole[] = {
        "iterations=4",        "reference.every=2",     mix,
        "numerics.dtype=bf16", "checkpoint.dtype=bf16", NULL};
    const char *first[] = {"iterations=4",
                           "reference.every=2",
                           mix,
                           "numerics.dtype=bf16",
                           "checkpoint.dtype=bf16",
                           "checkpoint.every=1",
                           NULL};
    const char *then[] = {"iterations=4",
                          "reference.every=2",
                          mix,
                          "numerics.dtype=bf16",
                          "checkpoint.dtype=bf16",
                          "runtime.devices=4",
                          "layout=tp2pp2,offload",
                          NULL};
    struct weft_hash one = run(base, 4, whole);
    struct weft_hash master = hash_of(base, 4, "optimizer/reference/master");
    for (int k = 1; k < 4; k++) {
        char name[32];
        snprintf(name, sizeof name, "%s-%d", base, k);
        struct weft_trainer *t = fixture_open(&fixture, name, first);
        fixture_steps(t, k);
        weft_trainer_close(t);
        CHECK(weft_hash_equal(one, run(name, 4, then)));
        CHECK(weft_hash_equal(
            master, hash_of(name, 4, "optimizer/reference/master")));
        CHECK_INT(moves(name, k), k / 2);
        CHECK_INT(moves(name, 4), 2);
    }
}

static void test_follow_resume(void)
{
    resume("mixed", "reference.mix=0.3");
    resume("copied", "reference.mix=1");
}

/* A run goes on with the keys that it began with, and with the reference's
 * folder as it was. */
static void test_follow_resume_refuses(void)
{
    static const char *const other[] = {"reference.every=3",
                                        "reference.mix=0.4"};
    struct weft_trainer *t = NULL;
    struct weft_err err;
    char run_dir[512];
    snprintf(run_dir, sizeof run_dir, "run_dir=%s/mixed-3", fixture.dir);
    for (int i = 0; i < 2; i++) {
        const char *word[] = {run_dir,
                              "iterations=4",
                              "numerics.dtype=bf16",
                              "checkpoint.dtype=bf16",
                              "reference.every=2",
                              "reference.mix=0.3",
                              other[i]};
        CHECK_FAILS(weft_trainer_open(fixture.config, 7, word, &t, &err),
                    WEFT_EINVAL, err, "it can only go on with what it began");
    }
}

static void test_follow_remove(void)
{
    fixture_remove(&fixture);
}

WEFT_TESTS("run/follow", {"test_follow_reset", test_follow_reset},
           {"test_follow_reads", test_follow_reads},
           {"test_follow_layouts", test_follow_layouts},
           {"test_follow_resume", test_follow_resume},
           {"test_follow_resume_refuses", test_follow_resume_refuses},
           {"remove", test_follow_remove})
