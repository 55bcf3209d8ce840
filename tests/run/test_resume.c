/* SPDX-License-Identifier: Apache-2.0 */
/* N iterations equal k, a resume, and N - k; also on other placements. */
#include "run_fixture.h"

static struct fixture fixture;

static void test_resume_same_bits(void)
{
    const char *whole[] = {"iterations=4", NULL};
    const char *first[] = {"iterations=4", "checkpoint.every=1",
                           "checkpoint.keep=2", NULL};
    const char *then[] = {
        "iterations=4",           "checkpoint.every=1",
        "runtime.devices=3",      "train.micro_batch_tokens=9",
        "rollout.chunk_tokens=2", NULL};
    fixture_make(&fixture);
    struct weft_trainer *t = fixture_open(&fixture, "whole", whole);
    fixture_steps(t, 4);
    CHECK(weft_trainer_done(t));
    weft_trainer_close(t);
    for (int k = 1; k < 4; k++) {
        char name[32];
        snprintf(name, sizeof name, "resumed-%d", k);
        t = fixture_open(&fixture, name, first);
        fixture_steps(t, k);
        weft_trainer_close(t); /* nothing is written by closing */
        t = fixture_open(&fixture, name, then);
        CHECK_INT(weft_trainer_iteration(t), k);
        fixture_steps(t, 4);
        weft_trainer_close(t);
        CHECK(weft_hash_equal(fixture_hash(&fixture, "whole", 4),
                              fixture_hash(&fixture, name, 4)));
    }
}

/* Two at once in one directory would mix their files. */
static void test_resume_locked(void)
{
    const char *word[] = {"iterations=4", NULL};
    char run[512], command[1536];
    struct weft_trainer *t = fixture_open(&fixture, "locked", word);
    fixture_steps(t, 1); /* a run without an iteration leaves nothing */
    snprintf(run, sizeof run, "%s/locked", fixture.dir);
    snprintf(command, sizeof command, "flock -n '%s/lock' true",
             run); /* util-linux: another process */
    CHECK(system(command) != 0);
    weft_trainer_close(t);
    CHECK(system(command) == 0);
}

/* A process that dies between checkpoints repeats what was not saved, and
 * metrics.jsonl has every iteration once. */
static void test_resume_repeats(void)
{
    const char *word[] = {"iterations=4", "checkpoint.every=2", NULL};
    char path[512], *text;
    size_t n;
    struct weft_err err;
    struct weft_trainer *t = fixture_open(&fixture, "repeats", word);
    fixture_steps(t, 3);
    weft_trainer_close(t);
    t = fixture_open(&fixture, "repeats", word);
    CHECK_INT(weft_trainer_iteration(t), 2);
    fixture_steps(t, 4);
    weft_trainer_close(t);
    CHECK(weft_hash_equal(fixture_hash(&fixture, "whole", 4),
                          fixture_hash(&fixture, "repeats", 4)));
    snprintf(path, sizeof path, "%s/repeats/metrics.jsonl", fixture.dir);
    REQUIRE_OK(weft_file_read(path, 0, &text, &n, &err), err);
    int lines = 0;
    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    CHECK_INT(lines, 4);
    free(text);
}

static int open_run(const char *name, const char *a, const char *b,
                    struct weft_err *err)
{
    char run[512];
    const char *word[] = {run, a, b};
    struct weft_trainer *t = NULL;
    snprintf(run, sizeof run, "run_dir=%s/%s", fixture.dir, name);
    int rc = weft_trainer_open(fixture.config, 3, word, &t, err);
    weft_trainer_close(t);
    return rc;
}

/* A run keeps the G that was the default when it began. */
static void test_resume_old_groups(void)
{
    const char *first[] = {"iterations=4", "numerics.gradient_groups=2",
                           "checkpoint.every=1", NULL};
    const char *then[] = {"iterations=4", "checkpoint.every=1", NULL};
    struct weft_trainer *t = fixture_open(&fixture, "old", first);
    fixture_steps(t, 2);
    weft_trainer_close(t);
    t = fixture_open(&fixture, "old", then);
    fixture_steps(t, 4);
    weft_trainer_close(t);
    t = fixture_open(&fixture, "two groups", first);
    fixture_steps(t, 4);
    weft_trainer_close(t);
    CHECK(weft_hash_equal(fixture_hash(&fixture, "old", 4),
                          fixture_hash(&fixture, "two groups", 4)));
    CHECK(!weft_hash_equal(fixture_hash(&fixture, "old", 4),
                           fixture_hash(&fixture, "whole", 4)));
}

static void test_resume_refuses(void)
{
    struct weft_err err;
    char path[512];
    CHECK_FAILS(open_run("whole", "iterations=4", "seed=9", &err),
                WEFT_EINVAL, err, "seed");
    CHECK_FAILS(
        open_run("whole", "iterations=4", "numerics.gradient_groups=8", &err),
        WEFT_EINVAL, err, "gradient_groups");
    /* One flipped byte in a checkpoint. */
    snprintf(path, sizeof path,
             "%s/whole/checkpoints/iteration-000004/optimizer/"
             "critic/exp_avg.safetensors",
             fixture.dir);
    FILE *f = fopen(path, "r+");
    REQUIRE(f != NULL);
    fseek(f, -5, SEEK_END);
    int byte = fgetc(f);
    fseek(f, -1, SEEK_CUR);
    fputc(byte ^ 1, f);
    fclose(f);
    CHECK_FAILS(open_run("whole", "iterations=4", "seed=5", &err),
                WEFT_EFORMAT, err, "exp_avg.safetensors' is damaged");
    /* A folder that is no run. */
    CHECK_FAILS(open_run("model", "iterations=4", "seed=5", &err),
                WEFT_EINVAL, err, "holds other files");
    fixture_remove(&fixture);
}

WEFT_TESTS("run/resume", {"test_resume_same_bits", test_resume_same_bits},
           {"test_resume_locked", test_resume_locked},
           {"test_resume_repeats", test_resume_repeats},
           {"test_resume_old_groups", test_resume_old_groups},
           {"test_resume_refuses", test_resume_refuses})
