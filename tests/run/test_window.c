/* SPDX-License-Identifier: Apache-2.0 */
/* Mini-batches submitted a few at a time: how many tasks are held, and that
 * the bits stay. */
#include "run/iteration.h"
#include "run_fixture.h"

enum { SAMPLES = 50, EPOCHS = 5, MINI_BATCHES = SAMPLES * EPOCHS };

static struct fixture fixture;

struct held {
    long most, now;             /* records of tasks and messages */
    int64_t training, the_rest; /* tasks that an iteration ran */
};

/* Two iterations with a sample per mini-batch. */
static struct weft_hash run(const char *name, const char *ahead,
                            const char *more, struct held *out)
{
    const char *word[] = {ahead,
                          "iterations=2",
                          "rollout.prompts=25",
                          "rollout.max_new_tokens=2",
                          "ppo.epochs=5",
                          "ppo.mini_batches=50",
                          more,
                          NULL};
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    *out = (struct held){.most = 0};
    for (int32_t i = 0; i < 2; i++) {
        struct weft_call_time time[WEFT_MAX_CALLS];
        int64_t training = 0, rest = 0;
        fixture_steps(t, 1);
        weft_rt_times_all(t->rt, i, time);
        for (int c = 0; c < WEFT_MAX_CALLS; c++)
            if (weft_flow_trains(&t->flow, c))
                training += time[c].n_tasks;
            else
                rest += time[c].n_tasks;
        out->training = training > out->training ? training : out->training;
        out->the_rest = rest > out->the_rest ? rest : out->the_rest;
    }
    weft_rt_records(t->rt, &out->now, &out->most);
    weft_trainer_close(t);
    return fixture_hash(&fixture, name, 2);
}

/* All mini-batches have the same tasks. What is before the update ends with
 * its first mini-batch, what is behind it begins with its last. */
static void test_window_holds(void)
{
    struct held all, few;
    fixture_make(&fixture);
    struct weft_hash whole = run("all", "train.mini_batches_ahead=0",
                                 "runtime.devices=2", &all);
    CHECK(all.training >= 20 * MINI_BATCHES);
    CHECK_INT(all.now, 0);
    static const char *const ahead[] = {"train.mini_batches_ahead=1",
                                        "train.mini_batches_ahead=2",
                                        "train.mini_batches_ahead=16"};
    static const long n[] = {1, 2, 16};
    for (size_t i = 0; i < WEFT_COUNT(n); i++) {
        char name[32];
        snprintf(name, sizeof name, "ahead-%ld", n[i]);
        struct weft_hash hash = run(name, ahead[i], "runtime.devices=2",
                                    &few);
        CHECK(weft_hash_equal(whole, hash));
        long of_one = (long) (few.training + MINI_BATCHES - 1) / MINI_BATCHES;
        if (few.most > n[i] * of_one + few.the_rest)
            printf("%ld records, %ld of a mini-batch, %lld others\n",
                   few.most, of_one, (long long) few.the_rest);
        CHECK(few.most <= n[i] * of_one + few.the_rest);
        CHECK_INT(few.now, 0);
    }
}

static void test_window_layouts(void)
{
    static const char *const word[][3] = {
        {"runtime.devices=4", "layout=dp2pp2,zero=2", NULL},
        {"runtime.devices=4", "layout=tp2pp2",
         "train.intra_stage_fusion=true"},
        {"runtime.devices=4", "layout=dp2tp2", "runtime.place=device"}};
    const char *one[] = {"runtime.devices=1", "train.mini_batches_ahead=0",
                         NULL};
    struct weft_trainer *t = fixture_open(&fixture, "one", one);
    fixture_steps(t, 3);
    weft_trainer_close(t);
    struct weft_hash expected = fixture_hash(&fixture, "one", 3);
    for (size_t i = 0; i < WEFT_COUNT(word); i++)
        for (int k = 1; k <= 2; k++) {
            char name[32], ahead[64];
            const char *some[] = {ahead, word[i][0], word[i][1], word[i][2],
                                  NULL};
            snprintf(name, sizeof name, "layout-%zu-%d", i, k);
            snprintf(ahead, sizeof ahead, "train.mini_batches_ahead=%d", k);
            t = fixture_open(&fixture, name, some);
            fixture_steps(t, 3);
            weft_trainer_close(t);
            CHECK(weft_hash_equal(expected, fixture_hash(&fixture, name, 3)));
        }
    fixture_remove(&fixture);
}

WEFT_TESTS("run/window", {"test_window_holds", test_window_holds},
           {"test_window_layouts", test_window_layouts})
