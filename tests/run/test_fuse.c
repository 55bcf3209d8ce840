/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Actor and critic trained under one schedule: the bits of one after the
 * other; what ran kept the planned order and every rule, as the run's own
 * record of it says.
 */
#include "run_fixture.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "schedule/file.h"
#include "schedule/tasks.h"

#define FUSED "train.intra_stage_fusion=true"

static struct fixture fixture;
static struct weft_hash serial;

/* words: NULL at their end. */
static void run(const char *name, int n, const char *const *word)
{
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    fixture_steps(t, n);
    weft_trainer_close(t);
}

static void same(const char *name, const char *const *word)
{
    run(name, 3, word);
    bool equal = weft_hash_equal(serial, fixture_hash(&fixture, name, 3));
    if (!equal)
        printf("\n    %s differs\n", name);
    CHECK(equal);
}

#define SAME(name, ...)                                                      \
    same(name, (const char *const[]){FUSED, __VA_ARGS__, NULL})

/* ---- The same bits ----------------------------------------------------- */

#define OTHERS(tp)                                                           \
    {"actor_generate", 0, 8, 8 / tp, tp, 1, NULL},                           \
        {"ref_infer", 0, 8, 4, 1, 2, NULL},                                  \
        {"reward_infer", 0, 8, 4, 2, 1, NULL},                               \
    {                                                                        \
        "critic_infer", 0, 8, 8, 1, 1, NULL                                  \
    }

/* As many devices, but other pipelines. */
static const struct fixture_call unlike[] = {
    OTHERS(4),
    {"actor_train", 0, 8, 2, 2, 2, ", \"micro_batches\": 2"},
    {"critic_train", 0, 8, 4, 2, 1, ", \"micro_batches\": 3"},
    {0}};
/* Both of the critic's stages are one of the schedule's; and the reverse, with
 * ZeRO and recomputing. */
static const struct fixture_call merged[] = {
    OTHERS(2),
    {"actor_train", 0, 8, 2, 4, 1, ", \"micro_batches\": 3"},
    {"critic_train", 0, 8, 2, 2, 2, ", \"micro_batches\": 2"},
    {0}};
static const struct fixture_call merged_back[] = {
    OTHERS(2),
    {"actor_train", 0, 8, 4, 1, 2, ", \"recompute\": true, \"zero\": 2"},
    {"critic_train", 0, 8, 2, 2, 2, ", \"zero\": 1"},
    {0}};

static void test_fuse_bits(void)
{
    run("serial", 3, (const char *const[]){"runtime.devices=1", NULL});
    serial = fixture_hash(&fixture, "serial", 3);
    SAME("pp", "runtime.devices=2", "layout=pp2,micro_batches=3");
    SAME("dp", "runtime.devices=8", "layout=dp2tp2pp2,recompute,zero=1",
         "runtime.place=device");
    SAME("unlike", "runtime.devices=8",
         fixture_plan(&fixture, "unlike", unlike), "runtime.place=device");
    SAME("merged", "runtime.devices=8",
         fixture_plan(&fixture, "merged", merged));
    SAME("back", "runtime.devices=8",
         fixture_plan(&fixture, "back", merged_back), "runtime.place=device",
         "train.schedule_search=iteration");
}

/* The plan that a fused run leaves is all that another one needs. */
static void test_fuse_by_plan(void)
{
    char plan[600], schedule[600];
    snprintf(plan, sizeof plan, "plan=%s/dp/plan.json", fixture.dir);
    run("by-plan", 3,
        (const char *const[]){"runtime.devices=8", "runtime.place=device",
                              plan, NULL});
    CHECK(weft_hash_equal(serial, fixture_hash(&fixture, "by-plan", 3)));
    snprintf(schedule, sizeof schedule, "%s/by-plan/schedule/fused.json",
             fixture.dir);
    CHECK(weft_file_exists(schedule));
}

/* Mini-batches of an epoch under one schedule, more of them than there are
 * too. */
static void test_fuse_joined(void)
{
    static const char three[] = "ppo.mini_batches=3";
    struct weft_hash all = serial;
    SAME("joined", "runtime.devices=2", "layout=pp2,micro_batches=2",
         "train.joined_mini_batches=2");
    run("serial-3", 3,
        (const char *const[]){"runtime.devices=1", three, NULL});
    serial = fixture_hash(&fixture, "serial-3", 3);
    SAME("joined-2", "runtime.devices=8",
         fixture_plan(&fixture, "joined", merged_back),
         "runtime.place=device", three, "train.joined_mini_batches=2");
    SAME("joined-9", "runtime.devices=2", "layout=dp2,zero=3", three,
         "train.joined_mini_batches=9");
    serial = all;
}

/* While the critic warms up it trains alone. */
static void test_fuse_warmup(void)
{
    static const char warmup[] = "ppo.critic_warmup=1";
    struct weft_hash all = serial;
    run("cold", 3, (const char *const[]){"runtime.devices=1", warmup, NULL});
    serial = fixture_hash(&fixture, "cold", 3);
    SAME("warm", "runtime.devices=2", "layout=pp2", warmup);
    serial = all;
}

/* ---- What ran ---------------------------------------------------------- */

static char *path_of(const char *run, const char *file, char path[600])
{
    snprintf(path, 600, "%s/%s/schedule/%s", fixture.dir, run, file);
    return path;
}

static double metric(const char *run, const char *key)
{
    char path[600], line[1 << 14], last[1 << 14] = "";
    json_t *root;
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", fixture.dir, run);
    FILE *f = fopen(path, "r");
    REQUIRE(f != NULL);
    while (fgets(line, sizeof line, f))
        memcpy(last, line, sizeof last);
    fclose(f);
    root = json_loads(last, 0, NULL);
    REQUIRE(root != NULL);
    const json_t *value = json_object_get(root, key);
    double x = value ? json_number_value(value) : NAN;
    json_decref(root);
    return x;
}

/* The measured times of the subtasks of fused.json take the places of the
 * planned ones. */
static void take_measured(const char *path, struct weft_schedule *s)
{
    json_t *root = json_load_file(path, 0, NULL);
    REQUIRE(root != NULL);
    const json_t *stages = json_object_get(root, "stages");
    for (int32_t d = 0; d < s->n_devices; d++)
        for (int32_t i = 0; i < s->n[d]; i++) {
            const json_t *task = json_array_get(
                json_array_get(stages, (size_t) d), (size_t) i);
            s->task[d][i].start = json_number_value(
                json_object_get(task, "measured_start"));
            s->task[d][i].end = json_number_value(
                json_object_get(task, "measured_end"));
        }
    json_decref(root);
}

static const struct weft_subtask *find(const struct weft_schedule *s,
                                       const struct weft_subtask *wanted)
{
    for (int32_t d = 0; d < s->n_devices; d++)
        for (int32_t i = 0; i < s->n[d]; i++) {
            const struct weft_subtask *t = &s->task[d][i];
            if (t->model == wanted->model && t->pass == wanted->pass
                && t->pipeline == wanted->pipeline
                && t->stage == wanted->stage
                && t->mini_batch == wanted->mini_batch
                && t->micro_batch == wanted->micro_batch)
                return t;
        }
    return NULL;
}

/* Every unit ran, after what it waits for had begun (its first tasks may run
 * beside the last ones of that) and in its device's turn. `apart`: a stage is
 * on one device, so that its units don't overlap. */
static void check_measured(const struct weft_schedule_problem *p,
                           const struct weft_schedule *s, bool apart)
{
    for (int32_t d = 0; d < s->n_devices; d++)
        for (int32_t i = 0; i < s->n[d]; i++) {
            const struct weft_subtask *t = &s->task[d][i];
            struct weft_subtask before[2];
            int n = weft_subtask_waits(p, t, before);
            CHECK(t->end > t->start);
            for (int k = 0; k < n; k++)
                CHECK(find(s, &before[k])->end <= t->end);
            if (weft_subtask_waits_for_step(t)) {
                struct weft_subtask step = *t; /* all of its backwards */
                step.mini_batch--;
                step.pass = WEFT_PASS_BACKWARD;
                CHECK(find(s, &step)->end <= t->start);
            }
            const struct weft_subtask *last = i > 0 ? t - 1 : NULL;
            CHECK(!last || t->start >= (apart ? last->end : last->start));
        }
}

static void check_record(const char *name, bool apart)
{
    struct weft_schedule_problem p;
    struct weft_schedule s;
    struct weft_err err;
    char path[600];
    REQUIRE_OK(weft_schedule_problem_read(path_of(name, "problem.json", path),
                                          &p, &err),
               err);
    /* the plan is a schedule of the problem, by every rule */
    REQUIRE_OK(
        weft_schedule_read(&p, path_of(name, "fused.json", path), &s, &err),
        err);
    CHECK(fabs(s.makespan - metric(name, "schedule/planned_s"))
          <= 1e-6 * s.makespan);
    take_measured(path, &s);
    check_measured(&p, &s, apart);
    CHECK(metric(name, "schedule/in_order") == 1);
    CHECK(metric(name, "schedule/measured_s") > 0);
    CHECK(metric(name, "schedule/measured_bubble") >= 0);
    CHECK(metric(name, "schedule/measured_bubble") < 1);
    double planned = metric(name, "schedule/planned_peak_mib");
    double peak = metric(name, "schedule/measured_peak_mib");
    CHECK(apart ? fabs(peak - planned) <= 1e-9 * planned : peak > 0);
    CHECK(weft_file_exists(path_of(name, "planned.svg", path)));
    CHECK(weft_file_exists(path_of(name, "measured.svg", path)));
    weft_schedule_release(&s);
    weft_schedule_problem_release(&p);
}

#define ONE_STEP "ppo.epochs=1", "ppo.mini_batches=1"

static void test_fuse_record(void)
{
    run("record", 3,
        (const char *const[]){FUSED, ONE_STEP, "runtime.devices=2",
                              "layout=pp2,micro_batches=3", NULL});
    check_record("record", true);
    /* where copies of what subtasks read are tasks of the same devices */
    run("record-places", 3,
        (const char *const[]){FUSED, ONE_STEP, "runtime.devices=2",
                              "runtime.place=device",
                              "layout=pp2,micro_batches=3", NULL});
    check_record("record-places", true);
    run("record-joined", 3,
        (const char *const[]){
            FUSED, "ppo.epochs=1", "train.joined_mini_batches=2",
            "runtime.devices=2", "layout=pp2,micro_batches=3", NULL});
    check_record("record-joined", true);
    run("record-merged", 3,
        (const char *const[]){FUSED, ONE_STEP, "runtime.devices=8",
                              fixture_plan(&fixture, "record", merged),
                              NULL});
    check_record("record-merged", false);
}

/* ---- From a file ------------------------------------------------------- */

static int refused(const char *const *word, struct weft_err *err)
{
    char run[300];
    const char *all[8] = {run};
    struct weft_trainer *t = NULL;
    int n = 1;
    snprintf(run, sizeof run, "run_dir=%s/refused", fixture.dir);
    while (word[n - 1]) {
        all[n] = word[n - 1];
        n++;
    }
    int rc = weft_trainer_open(fixture.config, n, all, &t, err);
    weft_trainer_close(t);
    return rc;
}

static void test_fuse_file(void)
{
    char path[600], word[640];
    struct weft_err err;
    snprintf(word, sizeof word, "train.schedule=%s",
             path_of("pp", "fused.json", path));
    SAME("filed", "runtime.devices=2", "layout=pp2,micro_batches=3", word);
    /* one of fewer micro-batches leaves some of the file's out */
    SAME("fewer", "runtime.devices=2", "layout=pp2,micro_batches=2", word);
    CHECK(refused((const char *const[]){FUSED, word, "runtime.devices=2",
                                        "layout=pp2", NULL},
                  &err)
          == WEFT_EINVAL);
    CHECK(strstr(err.text, "set train.micro_batches") != NULL);
    CHECK(refused((const char *const[]){FUSED, word, "runtime.devices=2",
                                        "layout=dp2,micro_batches=3", NULL},
                  &err)
          != 0);
    CHECK(strstr(err.text, "fused.json") != NULL);
    CHECK(refused((const char *const[]){word, "runtime.devices=2",
                                        "layout=pp2,micro_batches=3", NULL},
                  &err)
          == WEFT_EINVAL);
    CHECK(strstr(err.text, "train.intra_stage_fusion") != NULL);
}

/* More micro-batches than the file has. */
static void test_fuse_too_many(void)
{
    char path[600], word[640];
    struct weft_err err;
    snprintf(word, sizeof word, "train.schedule=%s",
             path_of("record", "fused.json", path));
    CHECK(refused((const char *const[]){FUSED, ONE_STEP, word,
                                        "runtime.devices=2",
                                        "layout=pp2,micro_batches=4",
                                        "rollout.prompts=60", NULL},
                  &err)
          == WEFT_EINVAL);
    CHECK(strstr(err.text, "the run's steps have 16") != NULL);
}

static void test_fuse_layouts(void)
{
    struct weft_err err;
    const struct fixture_call odd[] = {OTHERS(2),
                                       {"actor_train", 0, 8, 2, 4, 1, NULL},
                                       {"critic_train", 0, 8, 4, 2, 1, NULL},
                                       {0}};
    const struct fixture_call apart[] = {
        OTHERS(2),
        {"actor_train", 0, 4, 2, 1, 2, NULL},
        {"critic_train", 4, 4, 2, 1, 2, NULL},
        {0}};
    CHECK(refused((const char *const[]){FUSED, "runtime.devices=8",
                                        fixture_plan(&fixture, "odd", odd),
                                        NULL},
                  &err)
          == WEFT_EINVAL);
    CHECK(strstr(err.text, "critic_train tp 2, pp 1") != NULL);
    CHECK(
        refused((const char *const[]){FUSED, "runtime.devices=8",
                                      fixture_plan(&fixture, "apart", apart),
                                      NULL},
                &err)
        == WEFT_EINVAL);
    CHECK(strstr(err.text, "same mesh") != NULL);
}

static void test_make(void)
{
    fixture_make(&fixture);
}

static void test_remove(void)
{
    fixture_remove(&fixture);
}

WEFT_TESTS("run/fuse", {"make", test_make},
           {"test_fuse_bits", test_fuse_bits},
           {"test_fuse_by_plan", test_fuse_by_plan},
           {"test_fuse_joined", test_fuse_joined},
           {"test_fuse_warmup", test_fuse_warmup},
           {"test_fuse_record", test_fuse_record},
           {"test_fuse_file", test_fuse_file},
           {"test_fuse_too_many", test_fuse_too_many},
           {"test_fuse_layouts", test_fuse_layouts}, {"remove", test_remove})
