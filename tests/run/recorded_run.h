/* SPDX-License-Identifier: Apache-2.0 */
/* Small runs that are recorded, by instruction of tp groups or task by task. */
#ifndef WEFT_TEST_RECORDED_RUN_H
#define WEFT_TEST_RECORDED_RUN_H

#include "job/run_config.h"
#include "run/predict/recorded.h"
#include "run_fixture.h"

enum { MOST_WORDS = 8, STEPS = 1, SAMPLES = 12 };

static struct fixture fixture;

/* A run on a job of n_ranks with n_devices each. */
struct layout {
    const char *name;
    int n_ranks, n_devices;
    bool place_per_device;
    const char *word[MOST_WORDS];
};

/* Whether the GPUs of a rank may not use one another's memory. */
static bool gpus_apart;

static struct weft_config config;
static struct weft_plan plan;

static struct weft_trainer *describe(const struct layout *l)
{
    struct weft_g_job job = {l->n_ranks, l->n_devices, l->place_per_device, 0,
                             gpus_apart};
    struct weft_trainer *t;
    struct weft_err err;
    const char *word[MOST_WORDS + 3] = {
        "data.shuffle=false", "numerics.gradient_groups=2",
        l->place_per_device ? "runtime.place=device" : "runtime.place=node"};
    int n = 3;
    for (int i = 0; i < MOST_WORDS && l->word[i]; i++)
        word[n++] = l->word[i];
    plan = (struct weft_plan){0};
    REQUIRE_OK(weft_run_config_read(fixture.config, n, word, &config, &err),
               err);
    if (config.runtime.devices == WEFT_ON_GPUS)
        job.n_gpus = job.n_devices - 1; /* and a CPU */
    REQUIRE_OK(weft_trainer_describe(&config, &job, &plan, &t, &err), err);
    plan = t->plan; /* ours */
    return t;
}

static void forget(struct weft_trainer *t)
{
    weft_trainer_forget(t);
    weft_plan_release(&plan);
    weft_config_release(&config);
}

/* lengths: some, or the longest. left_out: of places; NULL: none. */
static void record_part(const struct weft_trainer *t, bool lengths,
                        bool gangs, const bool *left_out,
                        struct weft_recording *out)
{
    int32_t n_total[STEPS + 1][SAMPLES];
    struct weft_err err;
    struct weft_recorded how = {.rank = -1,
                                .gangs = gangs,
                                .left_out = left_out,
                                .iterations = STEPS,
                                .n_total = lengths ? n_total[0] : NULL};
    for (int i = 0; i <= STEPS; i++)
        for (int k = 0; k < SAMPLES; k++)
            n_total[i][k] = t->prompt[(i * SAMPLES + k) / 2 % t->n_prompts].n
                          + 1 + (i + k) * 5 % 12;
    weft_recording_init(out);
    REQUIRE_OK(weft_run_record(t, &how, out, &err), err);
}

static void record(const struct weft_trainer *t, bool lengths, bool gangs,
                   struct weft_recording *out)
{
    record_part(t, lengths, gangs, NULL, out);
}

static void setup(void)
{
    struct weft_err err;
    REQUIRE_OK(weft_world_open(&err), err);
    fixture_make(&fixture);
}

static void teardown(void)
{
    fixture_remove(&fixture);
    weft_world_close();
}

#endif
