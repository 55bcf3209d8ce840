/* SPDX-License-Identifier: Apache-2.0 */
/* Times of an iteration, from given spans and of a run that generates ahead. */
#include <math.h>

#include "graphs/algorithms.h"
#include "job/plan_needs.h"
#include "job/run_config.h"
#include "run/iteration.h"
#include "run/predict/price.h"
#include "run/predict/simulate.h"
#include "run_fixture.h"

static struct weft_call_time span(double first, double last, double busy)
{
    return (struct weft_call_time){
        .n_tasks = 3, .busy_s = busy, .first_s = first, .last_s = last};
}

static struct weft_call_time *of(const struct weft_dataflow *flow,
                                 struct weft_call_time *time,
                                 const char *call)
{
    int32_t i = weft_flow_find_call(flow, call);
    REQUIRE(i > 0);
    return &time[i];
}

static void test_times_of_spans(void)
{
    struct weft_dataflow flow;
    weft_ppo.flow(
        &(struct weft_flow_needs){.reference = true, .n_rewards = 1}, &flow);
    struct weft_call_time time[WEFT_MAX_CALLS] = {{0}};
    *of(&flow, time, "actor_generate") = span(10, 18, 4);
    *of(&flow, time, "ref_infer") = span(12, 19, 1);
    *of(&flow, time, "critic_infer") = span(13, 20, 1);
    *of(&flow, time, "advantage") = span(15, 24, 0.5);
    *of(&flow, time, "actor_train") = span(24, 30, 5);
    *of(&flow, time, "critic_train") = span(23, 41, 6);
    struct weft_span rewards = {20, 23};
    struct weft_iteration_times t;
    weft_iteration_times_get(&flow, time, &rewards, &t);
    CHECK(t.gen == 8 && t.gen_work == 4);
    CHECK(t.logps == 7 && t.valuing == 7);
    CHECK(t.scoring == 3);
    CHECK(t.steps == 0.5); /* not its wait for the rewards */
    CHECK(t.train_policy == 6 && t.train_values == 18);
    CHECK(t.step == 31);
    CHECK(t.offload == 0 && t.hidden == 0);
    of(&flow, time, "ref_infer")->restore_s = 2;
    of(&flow, time, "ref_infer")->hidden_s = 0.5;
    of(&flow, time, "reward_infer")->restore_s = 4;
    of(&flow, time, "reward_infer")->hidden_s = 2.5;
    weft_iteration_times_get(&flow, time, &rewards, &t);
    CHECK(t.offload == 6 && t.hidden == 3);
    CHECK(t.logps == 7 && t.scoring == 3); /* restoring is no part of them */
    /* Reward models before, during and around the host's rewards. */
    static const double model[][3] = {
        {14, 19, 8}, {14, 21, 9}, {21, 22, 3}, {19, 25, 6}, {22, 26, 6}};
    for (size_t i = 0; i < WEFT_COUNT(model); i++) {
        *of(&flow, time, "reward_infer") = span(model[i][0], model[i][1], 1);
        weft_iteration_times_get(&flow, time, &rewards, &t);
        CHECK(t.scoring == model[i][2]);
    }
    /* Only the critic trains while it warms up; or nothing ran at all. */
    *of(&flow, time, "actor_train") = (struct weft_call_time){.n_tasks = 0};
    weft_iteration_times_get(&flow, time, &rewards, &t);
    CHECK(t.train_policy == 0 && t.step == 31);
    memset(time, 0, sizeof time);
    weft_iteration_times_get(&flow, time, &(struct weft_span){0, 0}, &t);
    CHECK(t.step == 0 && t.gen == 0 && t.scoring == 0);
}

static double metric(struct weft_trainer *t, const char *tag)
{
    double v = NAN;
    CHECK_INT(weft_trainer_metric(t, tag, &v), 0);
    return v;
}

/* Every iteration has its own calls' times, the first and the last too. */
static void test_times_of_run(void)
{
    static const char *const call[] = {
        "timing_s/gen",         "timing_s/reward", "timing_s/ref",
        "timing_s/values",      "timing_s/adv",    "timing_s/update_critic",
        "timing_s/update_actor"};
    static const char *const overlap[] = {"runtime.overlap=true",
                                          "runtime.overlap=false"};
    struct fixture f;
    fixture_make(&f);
    for (int k = 0; k < 2; k++) {
        const char *word[] = {overlap[k], "checkpoint.every=0", NULL};
        struct weft_trainer *t = fixture_open(&f, k ? "no" : "yes", word);
        for (int i = 1; i <= 3; i++) {
            fixture_steps(t, 1);
            double step = metric(t, "timing_s/step");
            CHECK(step == metric(t, "perf/time_per_step"));
            for (size_t c = 0; c < WEFT_COUNT(call); c++) {
                double s = metric(t, call[c]);
                if (!(s > 0 && s <= step))
                    printf("%s of iteration %d: %g of %g\n", call[c], i, s,
                           step);
                CHECK(s > 0 && s <= step);
            }
            CHECK(metric(t, "perf/generation_tokens_per_s") > 0);
            CHECK(metric(t, "perf/steps_per_s") > 0);
            CHECK(metric(t, "perf/max_task_records") > 0);
            if (k == 1) /* a batch has its turn for itself */
                CHECK(step <= 1 / metric(t, "perf/steps_per_s"));
        }
        weft_trainer_close(t);
    }
    fixture_remove(&f);
}

static const char cluster[] =
    "name: two\nkinds: [{name: node, nodes: 1, devices: 2, memory_gib: 1, "
    "tflops: {f32: 0.01}, memory_gbs: 10, task_us: 3, insert_us: 40, "
    "inside: {gbs: 5, us: 1}}]\n";

/* Makes the cluster; path: the file. */
static void make_cluster(const struct fixture *f, char path[600])
{
    struct weft_err err;
    snprintf(path, 600, "%s/cluster.yaml", f->dir);
    REQUIRE_OK(weft_file_write(path, cluster, sizeof cluster - 1, &err), err);
}

/* Of responses of one token, whose lengths are known beforehand, a run predicts
 * what a simulation of its configuration does. */
static void test_times_predicted(void)
{
    struct fixture f;
    struct weft_err err;
    struct weft_config config;
    struct weft_cluster two;
    struct weft_lengths longest;
    struct weft_simulated simulated;
    char path[600], word[700];
    fixture_make(&f);
    make_cluster(&f, path);
    snprintf(word, sizeof word, "cluster=%s", path);
    const char *words[] = {word, "iterations=2", "rollout.max_new_tokens=1",
                           "runtime.devices=2", NULL};
    struct weft_trainer *t = fixture_open(&f, "run", words);
    fixture_steps(t, 2);
    struct weft_plan_times predicted = t->plan.predicted_s;
    CHECK(t->plan.measured_s.iteration_s > 0);
    CHECK(predicted.iteration_s
          == 1 / metric(t, "perf/predicted_steps_per_s"));
    for (int c = 1; c < t->flow.n_calls; c++)
        if (weft_flow_placed(&t->flow, c))
            CHECK(t->plan.measured_s.call_s[c] > 0);
    int gen = weft_flow_call_of(&t->flow, WEFT_GENERATE, -1);
    CHECK(predicted.call_s[gen] == metric(t, "perf/predicted_s/gen"));
    struct weft_g_job job = t->job;
    weft_trainer_close(t);

    REQUIRE_OK(weft_cluster_read(path, &two, &err), err);
    REQUIRE_OK(weft_lengths_read("max", &longest, &err), err);
    snprintf(path, sizeof path, "%s/run/config.yaml", f.dir);
    REQUIRE_OK(weft_run_config_read(path, 0, NULL, &config, &err), err);
    struct weft_plan plan = {0}, left;
    REQUIRE_OK(weft_run_simulate(
                   &config, &job, &plan,
                   &(struct weft_simulate_options){.cluster = &two,
                                                   .lengths = &longest,
                                                   .iterations = 3,
                                                   .simulated = &simulated},
                   NULL, &err),
               err);
    CHECK(simulated.iteration_s == predicted.iteration_s);
    CHECK(memcmp(simulated.call_s, predicted.call_s, sizeof simulated.call_s)
          == 0);
    /* the run leaves both in its plan */
    snprintf(path, sizeof path, "%s/run/plan.json", f.dir);
    REQUIRE_OK(weft_plan_read(path, &plan.flow, &left, &err), err);
    CHECK(fabs(left.predicted_s.iteration_s / predicted.iteration_s - 1)
          < 1e-5);
    CHECK(left.measured_s.iteration_s > 0);
    weft_plan_release(&left);
    weft_plan_release(&plan);
    weft_lengths_release(&longest);
    weft_config_release(&config);
    fixture_remove(&f);
}

/* What reward models take is predicted where all rewards are of models. */
static void test_times_of_rewards(void)
{
    static const char model[] = "{type: model, model: %s/judge, name: a}";
    static const char other[] = "{type: callback, name: low}";
    static const char *const name[] = {"one", "both", "none"};
    struct fixture f;
    char path[600], known[700], judge[700], word[900];
    fixture_make(&f);
    fixture_make_model(&f, "judge", 5, true, true, "bytes");
    make_cluster(&f, path);
    snprintf(known, sizeof known, "cluster=%s", path);
    snprintf(judge, sizeof judge, model, f.dir);
    for (int k = 0; k < 3; k++) {
        const char *words[] = {known, "iterations=1",
                               "rollout.max_new_tokens=1", word, NULL};
        double s;
        snprintf(word, sizeof word, "reward=[%s%s%s]", k < 2 ? judge : "",
                 k == 1 ? ", " : "", k > 0 ? other : "");
        struct weft_trainer *t = fixture_open(&f, name[k], words);
        fixture_steps(t, 1);
        bool has = weft_trainer_metric(t, "perf/predicted_s/reward", &s) == 0;
        CHECK_INT(has, k == 0);
        for (int c = 1; c < t->flow.n_calls && has; c++)
            if (strcmp(t->flow.call[c].name, "reward_infer") == 0)
                CHECK(s > 0 && s == t->plan.predicted_s.call_s[c]);
        CHECK(metric(t, "perf/predicted_s/gen") > 0);
        weft_trainer_close(t);
    }
    fixture_remove(&f);
}

WEFT_TESTS("run/times", {"test_times_of_spans", test_times_of_spans},
           {"test_times_of_run", test_times_of_run},
           {"test_times_predicted", test_times_predicted},
           {"test_times_of_rewards", test_times_of_rewards})
