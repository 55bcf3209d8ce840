/* SPDX-License-Identifier: Apache-2.0 */
/* What a checkpoint's folders hold, and that each form of them resumes. */
#include "run_fixture.h"

#include "base/json.h"
#include "kern/kern.h"
#include "model/safetensors.h"

static struct fixture fixture;

/* A file of a run's checkpoint. */
static const char *path_of(const char *run, int iteration, const char *file)
{
    static char path[4][768];
    static int next;
    char *out = path[next++ % 4];
    snprintf(out, sizeof path[0], "%s/%s/checkpoints/iteration-%06d/%s",
             fixture.dir, run, iteration, file);
    return out;
}

static struct weft_hash hash_of(const char *run, int iteration,
                                const char *file, uint64_t *bytes)
{
    struct weft_hash hash;
    struct weft_err err;
    REQUIRE_OK(
        weft_hash_file(path_of(run, iteration, file), &hash, bytes, &err),
        err);
    return hash;
}

static bool same_file(const char *run, const char *file, const char *other,
                      const char *other_file)
{
    uint64_t a, b;
    return weft_hash_equal(hash_of(run, 2, file, &a),
                           hash_of(other, 2, other_file, &b));
}

/* n steps of a run of two, opened with the words. */
static void run(const char *name, int n, const char *a, const char *b)
{
    const char *word[] = {"iterations=2", "checkpoint.every=1", a, b, NULL};
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    fixture_steps(t, n);
    weft_trainer_close(t);
}

static void test_checkpoint_make(void)
{
    fixture_make(&fixture);
    run("whole", 2, "checkpoint.dtype=f32", NULL);
}

/* ---- Model folders ---------------------------------------------------- */

/* The folder's weights are the masters, rounded. */
static void check_rounded(const char *run, const char *name)
{
    struct weft_safetensors *half, *full;
    char path[64];
    struct weft_err err;
    REQUIRE_OK(
        weft_safetensors_open(path_of(run, 2, name), "model", &half, &err),
        err);
    snprintf(path, sizeof path, "optimizer/%s", name);
    REQUIRE_OK(
        weft_safetensors_open(path_of(run, 2, path), "master", &full, &err),
        err);
    size_t wrong = 0;
    CHECK_INT(weft_safetensors_count(half), weft_safetensors_count(full));
    for (size_t i = 0; i < weft_safetensors_count(full); i++) {
        const struct weft_st_tensor *a = weft_safetensors_get(half, i);
        const struct weft_st_tensor *b = weft_safetensors_get(full, i);
        CHECK_STR(a->type, "BF16");
        CHECK_STR(b->type, "F32");
        CHECK_STR(a->name, b->name);
        REQUIRE(a->n == b->n);
        for (size_t k = 0; k < a->n; k++) {
            float x, y;
            weft_st_tensor_read(a, k, 1, &x);
            weft_st_tensor_read(b, k, 1, &y);
            wrong += x != weft_bf16_to_f32(weft_f32_to_bf16(y));
        }
    }
    CHECK_INT(wrong, 0);
    weft_safetensors_close(half);
    weft_safetensors_close(full);
}

/* A model folder has its weights and no other tensors. */
static void test_checkpoint_model_folders(void)
{
    static const char *const name[] = {"actor", "critic"};
    run("bf16", 2, "checkpoint.dtype=bf16", NULL);
    for (int i = 0; i < 2; i++) {
        char command[1024];
        snprintf(command, sizeof command,
                 "test \"$(ls '%s' | grep -c safetensors)\" = 1",
                 path_of("bf16", 2, name[i]));
        CHECK_INT(system(command), 0);
        check_rounded("bf16", name[i]);
    }
    CHECK(same_file("bf16", "optimizer/actor/master.safetensors", "whole",
                    "actor/model.safetensors"));
    CHECK(same_file("bf16", "optimizer/critic/exp_avg.safetensors", "whole",
                    "optimizer/critic/exp_avg.safetensors"));
    CHECK(!weft_file_exists(
        path_of("whole", 2, "optimizer/actor/master.safetensors")));
}

/* Of whatever dtype the folders are, the run goes on from the masters; the
 * dtype may change on the way. */
static void test_checkpoint_dtypes_resume(void)
{
    run("mixed", 1, "checkpoint.dtype=bf16", NULL);
    run("mixed", 1, "checkpoint.dtype=f32", NULL);
    CHECK(weft_hash_equal(fixture_hash(&fixture, "mixed", 2),
                          fixture_hash(&fixture, "whole", 2)));
    run("half", 1, "numerics.dtype=bf16", "checkpoint.dtype=run");
    run("half", 1, "numerics.dtype=bf16", "checkpoint.dtype=run");
    check_rounded("half", "actor");
    run("half-whole", 2, "numerics.dtype=bf16", "checkpoint.dtype=f32");
    CHECK(same_file("half", "optimizer/actor/master.safetensors",
                    "half-whole", "actor/model.safetensors"));
}

/* ---- Instruction sets ------------------------------------------------- */

static int open_with(const char *name, const char *isa, const char *dtype,
                     struct weft_err *err)
{
    char run[320];
    struct weft_trainer *t = NULL;
    const char *const word[] = {run, isa, dtype, "iterations=2",
                                "checkpoint.every=1"};
    snprintf(run, sizeof run, "run_dir=%s/%s", fixture.dir, name);
    int rc = weft_trainer_open(fixture.config, 5, word, &t, err);
    weft_trainer_close(t);
    return rc;
}

/* One step with AVX2 and one with each other set of its class end with the
 * bits of two with AVX2; plain C is another class, and what the refusal says
 * helps. */
static void check_isa(const char *dtype, const char *name)
{
    struct weft_err err;
    char part[64], isa[64], remedy[64];
    enum weft_isa best = weft_k_isa_detect();
    run(name, 2, "numerics.isa=avx2", dtype);
    for (int i = WEFT_ISA_AVX2; i <= (int) best; i++) {
        snprintf(part, sizeof part, "%s-%d", name, i);
        snprintf(isa, sizeof isa, "numerics.isa=%s",
                 weft_k_isa_name((enum weft_isa) i));
        run(part, 1, "numerics.isa=avx2", dtype);
        run(part, 1, isa, dtype);
        CHECK(weft_hash_equal(fixture_hash(&fixture, name, 2),
                              fixture_hash(&fixture, part, 2)));
    }
    snprintf(part, sizeof part, "%s-c", name);
    run(part, 1, "numerics.isa=c", dtype);
    CHECK_FAILS(open_with(part, "numerics.isa=avx2", dtype, &err),
                WEFT_EINVAL, err, "set numerics.isa=c");
    REQUIRE_OK(open_with(part, "numerics.isa=c", dtype, &err), err);
    snprintf(part, sizeof part, "%s-%d", name, WEFT_ISA_AVX2);
    snprintf(remedy, sizeof remedy, "set numerics.isa=%s",
             weft_k_isa_name(best));
    CHECK_FAILS(open_with(part, "numerics.isa=c", dtype, &err), WEFT_EINVAL,
                err, remedy);
    REQUIRE_OK(open_with(part, remedy + strlen("set "), dtype, &err), err);
}

static void test_checkpoint_isa(void)
{
    if (weft_k_isa_detect() == WEFT_ISA_C) {
        weft_test_skip("this CPU has plain C alone");
        return;
    }
    check_isa("numerics.dtype=f32", "isa-f32");
    check_isa("numerics.dtype=bf16", "isa-bf16");
}

/* ---- What the run has read -------------------------------------------- */

/* Opens the run with a reference of its own, and a step more if `n`. */
static int again(const char *name, int n, const char *a, const char *b,
                 struct weft_err *err)
{
    char run[320], reference[320];
    struct weft_trainer *t = NULL;
    snprintf(run, sizeof run, "run_dir=%s/%s", fixture.dir, name);
    snprintf(reference, sizeof reference, "model.reference=%s/reference",
             fixture.dir);
    const char *const all[] = {
        run, reference, "iterations=9", "checkpoint.every=1", a, b};
    int rc = weft_trainer_open(fixture.config, 4 + (a != NULL) + (b != NULL),
                               all, &t, err);
    if (!rc) {
        weft_trainer_set_reward(t, fixture_reward, NULL);
        fixture_steps(t, n);
    }
    weft_trainer_close(t);
    return rc;
}

static const char accept[] = "resume.accept_changed_inputs=true";

/* The run does not go on after the change, but where it is accepted, and
 * then without a word the next time. */
static void check_changed(const char *name, const char *part)
{
    struct weft_err err;
    CHECK_FAILS(again(name, 0, NULL, NULL, &err), WEFT_EINVAL, err, part);
    CHECK(strstr(err.text, "resume.accept_changed_inputs") != NULL);
    REQUIRE_OK(again(name, 1, accept, NULL, &err), err);
    REQUIRE_OK(again(name, 0, NULL, NULL, &err), err);
}

static void make_reference(uint64_t seed)
{
    struct weft_init_options o = fixture_model();
    char path[320], old[320];
    struct weft_err err;
    o.seed = seed;
    snprintf(path, sizeof path, "%s/reference", fixture.dir);
    snprintf(old, sizeof old, "%s/reference-before-%d", fixture.dir,
             (int) seed);
    (void) rename(path, old);
    REQUIRE_OK(weft_init_model(&o, path, NULL, &err), err);
}

static void append(const char *name, const char *text)
{
    char path[320];
    snprintf(path, sizeof path, "%s/%s", fixture.dir, name);
    FILE *f = fopen(path, "a");
    REQUIRE(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void test_checkpoint_inputs(void)
{
    struct weft_err err;
    char path[320], aside[320];
    make_reference(7);
    REQUIRE_OK(again("inputs", 1, NULL, NULL, &err), err);
    REQUIRE_OK(again("inputs", 1, NULL, NULL, &err), err);
    make_reference(8);
    check_changed("inputs",
                  "reference/model.safetensors' (model.reference (weights)) "
                  "has changed");
    append("prompts.jsonl", "{\"prompt\": \"one more\"}\n");
    check_changed("inputs", "prompts.jsonl' (data.path) has changed");
    CHECK_FAILS(again("inputs", 0, "seed=9", NULL, &err), WEFT_EINVAL, err,
                "(set it back, or take another run_dir)");
    append("model/chat_template.jinja", "{{ messages }}");
    check_changed("inputs",
                  "chat_template.jinja' (model.actor) was not there");
    snprintf(path, sizeof path, "%s/model/chat_template.jinja", fixture.dir);
    REQUIRE(unlink(path) == 0);
    check_changed("inputs",
                  "chat_template.jinja' (model.actor) is not read any more");
    /* The actor's and the critic's weights are the checkpoint's by now. */
    snprintf(path, sizeof path, "%s/model/model.safetensors", fixture.dir);
    snprintf(aside, sizeof aside, "%s/aside", fixture.dir);
    REQUIRE(rename(path, aside) == 0);
    REQUIRE_OK(again("inputs", 0, NULL, NULL, &err), err);
    REQUIRE(rename(aside, path) == 0);
}

/* Programs are files, too, and other paths can be accepted. */
static void test_checkpoint_input_paths(void)
{
    struct weft_err err;
    char grade[400], data[320], text[4096];
    snprintf(grade, sizeof grade,
             "reward=[{type: program, command: [sh, %s/grade.sh]}]",
             fixture.dir);
    append("grade.sh", "while read -r x; do echo 0.5; done\n");
    REQUIRE_OK(again("graded", 1, grade, NULL, &err), err);
    append("grade.sh", "# another\n");
    CHECK_FAILS(again("graded", 0, grade, NULL, &err), WEFT_EINVAL, err,
                "grade.sh' (reward[0].command) has changed");
    snprintf(data, sizeof data, "%s/prompts.jsonl", fixture.dir);
    FILE *f = fopen(data, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    REQUIRE(n > 0 && fclose(f) == 0);
    text[n] = 0;
    append("others.jsonl", text);
    snprintf(data, sizeof data, "data.path=%s/others.jsonl", fixture.dir);
    CHECK_FAILS(again("inputs", 0, data, NULL, &err), WEFT_EINVAL, err,
                "'data.path'");
    CHECK(strstr(err.text,
                 "(set it back, set resume.accept_changed_inputs=true, or")
          != NULL);
    REQUIRE_OK(again("inputs", 1, data, accept, &err), err);
    REQUIRE_OK(again("inputs", 0, data, NULL, &err), err);
}

static void test_checkpoint_remove(void)
{
    fixture_remove(&fixture);
}

WEFT_TESTS("run/checkpoint", {"test_checkpoint_make", test_checkpoint_make},
           {"test_checkpoint_model_folders", test_checkpoint_model_folders},
           {"test_checkpoint_dtypes_resume", test_checkpoint_dtypes_resume},
           {"test_checkpoint_isa", test_checkpoint_isa},
           {"test_checkpoint_inputs", test_checkpoint_inputs},
           {"test_checkpoint_input_paths", test_checkpoint_input_paths},
           {"test_checkpoint_remove", test_checkpoint_remove})
