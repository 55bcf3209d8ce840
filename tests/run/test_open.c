/* SPDX-License-Identifier: Apache-2.0 */
/* Of any lengths, and in whatever order statuses come, no rank has more open
 * tasks than is said beforehand. */
#include "job/run_config.h"
#include "run/predict/memory.h"
#include "run/predict/recorded.h"
#include "second_costs.h"

enum { SAMPLES = 12 };

static struct fixture fixture;

/* A reward model that reads texts in tokens of its own. */
static char own_tokens[700];

static void test_make(void)
{
    struct weft_init_options o = fixture_model();
    fixture_make(&fixture);
    o.scalar_head = true;
    o.tied = false;
    fixture_init_model(&fixture, "judge", &o);
    snprintf(own_tokens, sizeof own_tokens,
             "reward=[{type: model, model: %s/judge, own_tokenizer: true}]",
             fixture.dir);
}

/* Tasks of inference of each rank. */
static void count_inference(const struct weft_trainer *t,
                            const struct weft_recording *r, int64_t *out)
{
    memset(out, 0, (size_t) t->job.n_ranks * sizeof *out);
    for (int64_t i = 0; i < r->n_tasks; i++)
        if (r->task[i].kind == WEFT_REC_TASK
            && t->flow.call[r->task[i].call].kind == WEFT_INFER)
            out[r->task[i].place / weft_g_job_places_per_rank(&t->job)]++;
}

/* With inter-stage fusion, which the configuration or the plan says, three
 * ranks of four generate to the end, and the last one infers nearly all: no
 * more tasks than all have where they share. */
static void freed(bool by_plan, const char *reward)
{
    static const struct weft_g_job job = {4, 1, true, 0, false};
    const char *word[] = {"layout=dp4",
                          "runtime.overlap=false",
                          "ppo.epochs=1",
                          "ppo.mini_batches=1",
                          "iterations=1",
                          by_plan ? "rollout.inter_stage_fusion=false"
                                  : "rollout.inter_stage_fusion=true",
                          "data.shuffle=false",
                          "rollout.max_new_tokens=60",
                          "rollout.chunk_tokens=2",
                          "train.micro_batch_tokens=1",
                          reward};
    struct weft_config config;
    struct weft_plan plan = {0};
    struct weft_trainer *t;
    struct weft_recording r;
    struct weft_cluster cluster;
    struct weft_err err;
    struct weft_rec_open bound[4], open[4];
    int64_t most[4], infers[4];
    int32_t n_total[SAMPLES];
    REQUIRE_OK(weft_run_config_read(fixture.config, (int) WEFT_COUNT(word),
                                    word, &config, &err),
               err);
    REQUIRE_OK(weft_trainer_describe(&config, &job, &plan, &t, &err), err);
    t->plan.inter_stage_fusion = true;
    weft_recording_init(&r);
    REQUIRE_OK(weft_run_record_bound(t, false, &r, &err), err);
    REQUIRE_OK(weft_memory_open(t, &r, bound, &err), err);
    count_inference(t, &r, most);
    weft_recording_release(&r);
    for (int k = 0; k < SAMPLES; k++)
        n_total[k] = k < 9 && k % 3 == 0 ? 60 : 1;
    const struct weft_recorded how = {.rank = -1,
                                      .iterations = 1,
                                      .n_total = n_total,
                                      .responses = true,
                                      .costs = second_costs(&job, &cluster)};
    weft_recording_init(&r);
    REQUIRE_OK(weft_run_record(t, &how, &r, &err), err);
    REQUIRE_OK(weft_recording_open(&r, job.n_ranks, 1, open, &err), err);
    count_inference(t, &r, infers);
    CHECK(infers[3] > 2 * most[3]);
    CHECK(infers[3] <= most[0] + most[1] + most[2] + most[3]);
    for (int k = 0; k < 4; k++)
        CHECK(open[k].tasks <= bound[k].tasks);
    weft_recording_release(&r);
    weft_trainer_forget(t);
    weft_plan_release(&plan);
    weft_config_release(&config);
}

static void test_freed(void)
{
    freed(false, "reward=[{type: callback}]");
    freed(true, "reward=[{type: callback}]");
    freed(true, own_tokens);
}

static void test_bound(void)
{
    enum { RANKS = 4, DRAWS = 200, STATUSES = 200 };
    static const struct {
        struct weft_g_job job;
        const char *words[10];
    } row[] = {
        {{4, 1, true, 0, false},
         {"layout=dp2tp2,shares=3:1", "runtime.overlap=false"}},
        {{4, 1, true, 0, false},
         {"layout=dp2pp2,shares=1:3", "runtime.overlap=false"}},
        {{4, 1, true, 0, false},
         {"layout=dp2pp2,micro_batches=2,shares=3:1",
          "runtime.overlap=false"}},
        {{4, 1, true, 0, false}, {"layout=dp4", "runtime.overlap=false"}},
        {{1, 4, false, 0, false},
         {"layout=disaggregated", "train.as_completed=true",
          "ppo.whiten_advantages=false", "rollout.slots=2",
          "rollout.chunk_tokens=1", "rollout.max_new_tokens=7",
          "rollout.prompts=4", "rollout.prefill_tokens=16",
          "train.micro_batch_tokens=32"}},
        {{1, 4, false, 0, false},
         {"layout=disaggregated", "train.as_completed=true",
          "ppo.whiten_advantages=mini_batch", "rollout.slots=2",
          "rollout.chunk_tokens=1", "rollout.max_new_tokens=7",
          "rollout.prompts=4", "rollout.prefill_tokens=16",
          "train.micro_batch_tokens=32"}},
        {{4, 1, true, 0, false},
         {"layout=disaggregated", "train.as_completed=true",
          "ppo.whiten_advantages=false", "rollout.slots=2",
          "rollout.chunk_tokens=1", "rollout.max_new_tokens=7",
          "rollout.prompts=4", "rollout.prefill_tokens=16",
          "train.micro_batch_tokens=32", own_tokens}}};
    uint32_t seed = 1;
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        const struct weft_g_job *job = &row[i].job;
        struct weft_rec_open bound[RANKS], open[RANKS];
        int64_t most[RANKS], infers[RANKS];
        struct weft_config config;
        struct weft_plan plan = {0};
        struct weft_trainer *t;
        struct weft_recording r;
        struct weft_err err;
        int n = 0;
        while (n < 10 && row[i].words[n])
            n++;
        REQUIRE_OK(weft_run_config_read(fixture.config, n, row[i].words,
                                        &config, &err),
                   err);
        REQUIRE_OK(weft_trainer_describe(&config, job, &plan, &t, &err), err);
        weft_recording_init(&r);
        REQUIRE_OK(weft_run_record_bound(t, false, &r, &err), err);
        REQUIRE_OK(weft_memory_open(t, &r, bound, &err), err);
        count_inference(t, &r, most);
        weft_recording_release(&r);
        for (int draw = 0; draw < DRAWS; draw++) {
            int32_t n_total[2 * SAMPLES], came[STATUSES];
            for (int k = 0; k < 2 * SAMPLES + STATUSES; k++) {
                seed = seed * 1664525 + 1013904223;
                int32_t x = (int32_t) ((seed >> 16) % 60);
                if (k < 2 * SAMPLES)
                    n_total[k] = 1 + x % config.rollout.max_new_tokens;
                else
                    came[k - 2 * SAMPLES] = x % 2;
            }
            const struct weft_rollout_order order[2] = {
                {.instance = came, .n = STATUSES / 2, .follows = true},
                {.instance = came + STATUSES / 2,
                 .n = STATUSES / 2,
                 .follows = true}};
            const struct weft_recorded how = {.rank = -1,
                                              .iterations = 1,
                                              .n_total = n_total,
                                              .order = order,
                                              .n_orders = draw % 2 * 2,
                                              .responses = true};
            weft_recording_init(&r);
            REQUIRE_OK(weft_run_record(t, &how, &r, &err), err);
            REQUIRE_OK(weft_recording_open(&r, job->n_ranks, 1, open, &err),
                       err);
            count_inference(t, &r, infers);
            for (int k = 0; k < job->n_ranks; k++) {
                CHECK(infers[k] <= most[k]);
                CHECK(open[k].tasks <= bound[k].tasks);
                if (open[k].tasks > bound[k].tasks)
                    printf("%s, rank %d: %lld open tasks, %lld said\n",
                           row[i].words[0], k, (long long) open[k].tasks,
                           (long long) bound[k].tasks);
            }
            weft_recording_release(&r);
        }
        weft_trainer_forget(t);
        weft_plan_release(&plan);
        weft_config_release(&config);
    }
}

static void test_remove(void)
{
    fixture_remove(&fixture);
}

WEFT_TESTS("run/open", {"make", test_make}, {"bound", test_bound},
           {"freed", test_freed}, {"remove", test_remove})
