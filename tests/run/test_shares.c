/* SPDX-License-Identifier: Apache-2.0 */
/* Replicas with shares of their own: the same bits, and each gets its share. */
#include "run_fixture.h"

#include "plan/recording.h"
#include "run/predict/recorded.h"

static struct fixture fixture;

static void run(const char *name, const char *const *more)
{
    const char *word[11] = {"iterations=2", "rollout.chunk_tokens=2",
                            "numerics.gradient_groups=8"};
    for (int k = 0; k < 7 && more[k]; k++)
        word[k + 3] = more[k];
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    fixture_steps(t, 2);
    weft_trainer_close(t);
}

static void test_make(void)
{
    const char *one[] = {"runtime.devices=1", NULL};
    fixture_make(&fixture);
    run("whole", one);
}

static void test_bits(void)
{
    static const char *const row[][7] = {
        {"runtime.devices=2", "layout=dp2,shares=3:1"},
        {"runtime.devices=2", "layout=dp2,shares=1:3",
         "runtime.place=device"},
        {"runtime.devices=4", "layout=dp4,shares=2:1:1:1,zero=1",
         "runtime.place=device", "rollout.slots=2"},
        {"runtime.devices=4", "layout=dp2tp2,shares=5:3,zero=2",
         "runtime.place=device"},
        {"runtime.devices=4", "layout=dp2pp2,shares=1:2,micro_batches=2"},
        {"runtime.devices=4", "layout=dp4,shares=1:1:1:2,zero=3",
         "runtime.place=device", "rollout.inter_stage_fusion=true",
         "rollout.remaining=0.6", "rollout.prefill_tokens=9"}};
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        char name[32];
        snprintf(name, sizeof name, "shares-%zu", i);
        run(name, row[i]);
        CHECK(weft_hash_equal(fixture_hash(&fixture, "whole", 2),
                              fixture_hash(&fixture, name, 2)));
    }
}

/* Of a recording with responses of one length, the tasks of a device. */
static int64_t count(const struct weft_recording *r, const char *op,
                     int32_t device, int32_t call)
{
    int64_t n = 0;
    for (int64_t i = 0; i < r->n_tasks; i++)
        n += r->task[i].device == device && r->task[i].call == call
          && strcmp(weft_recording_op(r, i), op) == 0;
    return n;
}

/* Twelve samples, three of four to the first device. */
static void test_dealt(void)
{
    const char *word[] = {"iterations=1",
                          "runtime.devices=2",
                          "layout=dp2,shares=3:1",
                          "runtime.place=device",
                          "ppo.mini_batches=1",
                          "numerics.gradient_groups=4",
                          NULL};
    struct weft_recording r;
    int32_t length[12];
    struct weft_err err;
    for (int i = 0; i < 12; i++)
        length[i] = 5;
    struct weft_trainer *t = fixture_open(&fixture, "dealt", word);
    const struct weft_recorded how = {
        .rank = -1, .iterations = 1, .n_total = length, .responses = true};
    weft_recording_init(&r);
    REQUIRE_OK(weft_run_record(t, &how, &r, &err), err);
    int32_t gen = weft_flow_find_call(&t->flow, "actor_generate");
    CHECK_INT(count(&r, "gen_retire", 0, gen), 9);
    CHECK_INT(count(&r, "gen_retire", 1, gen), 3);
    weft_recording_release(&r);
    weft_trainer_close(t);
}

static void test_refused(void)
{
    static const struct row {
        const char *layout, *why;
    } row[] = {
        {"layout=dp2,shares=1:2:3", "shares are of 3 members, but dp is 2"},
        {"layout=dp2,shares=0:1", "must be zero=N"},
        {"layout=dp2,shares=900:1",
         "with a share of 1 member 1 of 2 gets none of the"}};
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        char dir[512];
        const char *word[] = {dir, "runtime.devices=2", row[i].layout};
        struct weft_trainer *t = NULL;
        struct weft_err err;
        snprintf(dir, sizeof dir, "run_dir=%s/refused", fixture.dir);
        CHECK_FAILS(weft_trainer_open(fixture.config, 3, word, &t, &err),
                    WEFT_EINVAL, err, row[i].why);
    }
}

static void test_remove(void)
{
    fixture_remove(&fixture);
}

WEFT_TESTS("run/shares", {"make", test_make}, {"bits", test_bits},
           {"dealt", test_dealt}, {"refused", test_refused},
           {"remove", test_remove})
