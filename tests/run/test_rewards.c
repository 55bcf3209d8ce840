/* SPDX-License-Identifier: Apache-2.0 */
/* Rewards in whole runs: what they see, and how their numbers are shaped. */
#include "run_fixture.h"

static struct fixture fixture;

static struct weft_hash run(const char *name, const char *const *word, int n)
{
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    fixture_steps(t, n);
    weft_trainer_close(t);
    return fixture_hash(&fixture, name, n);
}

static int batch(void *ctx, int32_t n, const struct weft_reward_sample *s,
                 double *score_out, struct weft_err *err)
{
    int rc = 0;
    ++*(int *) ctx;
    for (int32_t i = 0; i < n && !rc; i++)
        rc = fixture_reward(NULL, &s[i], &score_out[i], err);
    return rc;
}

/* One call per iteration, and the same training as sample by sample. */
static void test_batch(void)
{
    const char *word[] = {"iterations=2", NULL};
    int calls = 0;
    fixture_make(&fixture);
    struct weft_hash one = run("one", word, 2);
    struct weft_trainer *t = fixture_open(&fixture, "batch", word);
    weft_trainer_set_reward_batch(t, batch, &calls);
    fixture_steps(t, 2);
    weft_trainer_close(t);
    CHECK_INT(calls, 2);
    CHECK(weft_hash_equal(one, fixture_hash(&fixture, "batch", 2)));
}

/* A program and a callback read a column that Weft knows nothing of. */
static int by_column(void *ctx, const struct weft_reward_sample *s,
                     double *score_out, struct weft_err *err)
{
    (void) ctx;
    (void) err;
    *score_out = strstr(s->row, "\"colour\": \"red\"") != NULL;
    return 0;
}

static void test_columns(void)
{
    static const char *const word[] = {
        "iterations=1",
        "data.path=columns.jsonl",
        "rollout.prompts=4",
        "data.shuffle=false",
        "reward=[{type: callback, name: c}, {type: program, name: p, command:"
        " [sh, -c, 'while read -r l; do case \"$l\" in *colour*red*) echo 1;;"
        " *) echo 0;; esac; done']}]",
        NULL};
    struct weft_err err;
    char path[512];
    double mean = -1;
    snprintf(path, sizeof path, "%s/columns.jsonl", fixture.dir);
    FILE *f = fopen(path, "w");
    REQUIRE(f != NULL);
    for (int i = 0; i < 4; i++)
        fprintf(f,
                "{\"prompt\": \"p%d\", \"label\": \"1\", \"colour\": \"%s\"}"
                "\n",
                i, i < 3 ? "red" : "blue");
    fclose(f);
    REQUIRE(chdir(fixture.dir) == 0); /* words have paths */
    struct weft_trainer *t = fixture_open(&fixture, "columns", word);
    weft_trainer_set_reward(t, by_column, NULL);
    REQUIRE_OK(weft_trainer_step(t, &err), err);
    REQUIRE_OK(weft_trainer_metric(t, "reward/c/mean", &mean), err);
    CHECK(mean == 0.75);
    REQUIRE_OK(weft_trainer_metric(t, "reward/p/mean", &mean), err);
    CHECK(mean == 0.75);
    weft_trainer_close(t);
    fixture_remove(&fixture);
}

WEFT_TESTS("run/rewards", {"test_batch", test_batch},
           {"test_columns", test_columns})
