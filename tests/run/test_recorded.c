/* SPDX-License-Identifier: Apache-2.0 */
/* A recorded run has the tasks and tiles of the run that was executed, one by
 * one; and what it says of open tasks bounds what there were. ranks.sh runs
 * it on several ranks, each of which compares its own. */
#include "base/alloc.h"
#include "base/file.h"
#include "job/plan_needs.h"
#include "job/run_config.h"
#include "run/iteration.h"
#include "run/predict/memory.h"
#include "run/predict/recorded.h"
#include "run/reward_text.h"
#include "run_fixture.h"

enum { STEPS = 2, SAMPLES = 12, MOST = 18 };

static struct fixture fixture;

struct lengths {
    int32_t all; /* samples of an iteration, with those that are not learned
                    from */
    int32_t n_total[(STEPS + 1) * MOST]; /* (iterations, all) */
    int32_t response[STEPS * MOST];
    int32_t n;
    struct weft_trainer *trainer;
    int32_t text[(STEPS + 1) * 2 * MOST]; /* (iterations, 2, all), of the
                                             second reward's model */
};

static int32_t n_all(const struct weft_trainer *t)
{
    int32_t n = 0;
    for (int32_t f = 0; f < t->flow.n_fields; f++)
        if (weft_flow_origin(&t->flow, f) == f)
            n += weft_run_samples_at(&t->config, &t->flow, f);
    return n;
}

/* Like fixture_reward(), and notes the lengths of responses. */
static int note_length(void *ctx, const struct weft_reward_sample *sample,
                       double *score_out, struct weft_err *err)
{
    struct lengths *l = ctx;
    REQUIRE(l->n < STEPS * l->all);
    if (l->trainer->reward_text[1]) {
        int32_t *token = NULL, n = 0;
        REQUIRE_OK(weft_reward_text_encode(l->trainer, 1, NULL,
                                           sample->prompt, sample->response,
                                           &token, &n, err),
                   *err);
        weft_array_free(token);
        l->text[(l->n / l->all * 2 + 1) * l->all + l->n % l->all] = n;
    }
    l->response[l->n++] = sample->n_tokens;
    return fixture_reward(NULL, sample, score_out, err);
}

/* Lengths of the run's samples, also of those generated ahead; where no
 * callback noted them, those that the run has kept. */
static void read_lengths(struct weft_trainer *t, struct lengths *l)
{
    const struct weft_config *c = &t->config;
    size_t all = (size_t) l->all;
    for (int32_t k = 0; l->n == 0 && k < t->replays.n; k++) {
        memcpy(l->n_total + (size_t) k * all, t->replays.kept[k].n_total,
               all * sizeof *l->n_total);
        if (t->reward_text[1])
            memcpy(l->text + ((size_t) k * 2 + 1) * all,
                   t->replays.kept[k].n_text + all, all * sizeof *l->text);
    }
    for (int32_t k = 0; k < l->n; k++) {
        int32_t i = k % l->all;
        int32_t prompt = i < SAMPLES ? i / c->rollout.samples_per_prompt
                                     : i - SAMPLES;
        prompt += k / l->all * c->rollout.prompts;
        l->n_total[k] = weft_prompts_draw(t, prompt)->n_prompt
                      + l->response[k];
    }
    for (int32_t i = 0; t->next && i < l->all; i++)
        l->n_total[l->n + i] = t->next->sample[i].n_total;
    if (t->next && t->reward_text[1])
        memcpy(l->text + ((size_t) STEPS * 2 + 1) * all,
               t->next->n_text + l->all, all * sizeof *l->text);
}

/* The most open tasks of each rank that are predicted. */
static void read_open(const struct weft_trainer *t, struct weft_rec_open *out)
{
    struct weft_recording r;
    struct weft_err err;
    weft_recording_init(&r);
    REQUIRE_OK(weft_run_record_bound(t, false, &r, &err), err);
    REQUIRE_OK(weft_memory_open(t, &r, out, &err), err);
    weft_recording_release(&r);
}

/* What the run has kept of its iterations, to be played again. */
static void check_kept(const struct weft_trainer *t, const struct lengths *l)
{
    size_t all = (size_t) l->all;
    CHECK(t->replays.n == STEPS || t->iteration < STEPS);
    for (int32_t k = 0; k < t->replays.n; k++) {
        const struct weft_replay *r = &t->replays.kept[k];
        CHECK_INT(r->iteration, k);
        if (!weft_config_generates(&t->config))
            continue;
        CHECK_INT(r->drawn, k * t->config.rollout.prompts);
        CHECK(memcmp(r->n_total, l->n_total + (size_t) k * all,
                     all * sizeof *r->n_total)
              == 0);
        if (t->reward_text[1])
            CHECK(memcmp(r->n_text + all,
                         l->text + ((size_t) k * 2 + 1) * all,
                         all * sizeof *r->n_text)
                  == 0);
    }
}

/* All the schedules of fused training that the run has kept; borrowed. */
static struct weft_fuse_planned read_fused(const struct weft_trainer *t)
{
    enum { MOST_TURNS = 32 };
    static struct weft_schedule schedule[MOST_TURNS];
    struct weft_fuse_planned all = {schedule, 0};
    for (int32_t k = 0; k < t->replays.n; k++)
        for (int32_t i = 0; i < t->replays.kept[k].fused.n; i++) {
            REQUIRE(all.n < MOST_TURNS);
            schedule[all.n++] = t->replays.kept[k].fused.schedule[i];
        }
    return all;
}

/* In which order statuses came, of the iterations and of the one that has
 * begun; borrowed. */
static void read_orders(const struct weft_trainer *t,
                        struct weft_rollout_order out[STEPS + 1])
{
    for (int32_t k = 0; k < t->replays.n && k < STEPS; k++) {
        out[k] = t->replays.kept[k].order[0];
        out[k + 1] = t->replays.kept[k].order[1];
    }
}

/* What was decided of samples that move, also of the iteration that has begun;
 * borrowed. */
static const struct weft_tail_choice *read_tails(const struct weft_trainer *t)
{
    static struct weft_tail_choice tail[STEPS + 1][WEFT_MAX_CALLS];
    for (int32_t k = 0; k < t->replays.n && k < STEPS; k++)
        memcpy(tail[k], t->replays.kept[k].tail, 2 * sizeof tail[k]);
    return tail[0];
}

/* Runs iterations and records them. */
static void check_same(const struct fixture *f, const char *name,
                       const char *const *word)
{
    struct lengths lengths = {.n = 0};
    struct weft_recording ran, recorded;
    struct weft_rec_open open[4];
    struct weft_err err;
    char text[200];
    weft_recording_init(&ran);
    weft_recording_init(&recorded);
    struct weft_trainer *t = fixture_open_logged(f, name, word, &ran);
    lengths.trainer = t;
    lengths.all = n_all(t);
    REQUIRE(lengths.all <= MOST
            || !weft_config_generates(&t->config)); /* no room is needed */
    weft_trainer_set_reward(t, note_length, &lengths);
    fixture_steps(t, STEPS);
    weft_world_share(&lengths, sizeof lengths); /* rank 0's */
    lengths.trainer = t;
    read_lengths(t, &lengths);
    check_kept(t, &lengths);
    const struct weft_fuse_planned fused = read_fused(t);
    struct weft_rollout_order order[STEPS + 1] = {{.n = 0}};
    read_orders(t, order);
    struct weft_recorded how = {.rank = weft_world_rank(),
                                .first = 0,
                                .iterations = STEPS,
                                .n_total = lengths.n_total,
                                .n_text = lengths.text,
                                .order = order,
                                .n_orders = STEPS + 1,
                                .fused = &fused};
    if (t->config.rollout.decisions)
        how.tail = read_tails(t);
    REQUIRE_OK(weft_run_record(t, &how, &recorded, &err), err);
    read_open(t, open);
    long now, most;
    weft_rt_records(t->rt, &now, &most);
    int64_t said = open[weft_world_rank()].tasks;
    CHECK(most <= said);
    if (most > said)
        printf("%s: %ld open tasks, %lld recorded\n", name, most,
               (long long) said);
    weft_trainer_close(t);
    /* other ranks may have nothing to do */
    CHECK(weft_world_rank() > 0 || ran.n_tasks > 50);
    bool same = weft_recording_same(&ran, &recorded, text, sizeof text);
    CHECK(same);
    if (!same)
        printf("%s: %s\n", name, text);
    weft_recording_release(&ran);
    weft_recording_release(&recorded);
}

/* Devices of a rank, so that the job has n. */
static const char *devices(int n)
{
    static char word[2][32];
    static int next;
    char *out = word[next++ % 2];
    snprintf(out, sizeof word[0], "runtime.devices=%d",
             n / weft_world_size());
    return out;
}

static void test_same(void)
{
    static const char *const word[][8] = {
        {"runtime.devices=1"},
        {"runtime.devices=4", "rollout.inter_stage_fusion=true",
         "rollout.remaining=0.4", "rollout.prefill_tokens=9",
         "rollout.chunk_tokens=1", "rollout.instances=1",
         "runtime.place=device"},
        {"runtime.devices=4", "layout=dp2pp2",
         "rollout.inter_stage_fusion=true", "rollout.remaining=0.5",
         "rollout.prefill_tokens=8", "rollout.chunk_tokens=1"},
        {"runtime.devices=1", "runtime.overlap=false"},
        {"runtime.devices=1", "rollout.staleness=1"},
        {"runtime.devices=4", "layout=disaggregated", "rollout.staleness=1",
         "runtime.place=device"},
        {"runtime.devices=4", "layout=dp2pp2,zero=3", "rollout.staleness=1"},
        {"runtime.devices=4", "layout=disaggregated",
         "train.as_completed=true", "ppo.whiten_advantages=false",
         "reward=[{type: length, target: 4}]", "rollout.chunk_tokens=1",
         "rollout.slots=2"},
        {"runtime.devices=4", "layout=dp2tp2,shares=3:1",
         "runtime.place=device"},
        {"runtime.devices=2", "rollout.slots=2", "rollout.chunk_tokens=3"},
        {"runtime.devices=1", "rollout.kv_blocks=4"},
        {"runtime.devices=4", "layout=dp2pp2,zero=2"},
        {"runtime.devices=4", "layout=dp2pp2", "ppo.recompute_logprobs=true"},
        {"runtime.devices=4", "layout=dp2tp2", "runtime.place=device",
         "rollout.prefill_tokens=16", "rollout.kv_blocks=3"},
        {"runtime.devices=4", "layout=dp4,zero=3",
         "train.mini_batches_ahead=1"},
        {"runtime.devices=4", "layout=tp2pp2,recompute,micro_batches=2"},
        {"runtime.devices=4", "layout=tp2pp2,offload",
         "runtime.place=device"},
        {"runtime.devices=4", "layout=dp2tp2,zero=2", "reference.every=1"},
        {"runtime.devices=4", "layout=dp2pp2,offload", "reference.every=2",
         "numerics.dtype=bf16", "runtime.place=device"},
        {"runtime.devices=4", "layout=dp2pp2,zero=1,offload_optimizer",
         "runtime.place=device"}};
    for (size_t i = 0; i < WEFT_COUNT(word); i++) {
        char name[32];
        const char *all[9] = {NULL};
        int n = 0;
        for (int k = 0; word[i][k]; k++)
            all[n++] = word[i][k];
        if (strcmp(all[0], "runtime.devices=4") == 0)
            all[0] = devices(4);
        snprintf(name, sizeof name, "same-%zu", i);
        check_same(&fixture, name, all);
    }
}

/* Some iteration of the run has had more than one migration. */
static void check_moved_again(const char *name)
{
    char path[512], *text;
    size_t n;
    struct weft_err err;
    snprintf(path, sizeof path, "%s/%s/decisions.jsonl", fixture.dir, name);
    REQUIRE_OK(weft_file_read(path, 0, &text, &n, &err), err);
    CHECK(strstr(text, "\"again\": [{\"left\": ") != NULL);
    weft_free(text);
}

/* Samples that move up to three times, as a file says. */
static void test_same_again(void)
{
    static const char decisions[] =
        "{\"iteration\": 1, \"call\": \"actor_generate\", \"remaining\": "
        "0.9, "
        "\"instances\": 3, \"most_batch\": 0, "
        "\"later\": [[0.5, 2], [0.25, 1]], \"cached\": [[1, 4096]]}\n"
        "{\"iteration\": 2, \"call\": \"actor_generate\", \"remaining\": "
        "0.7, "
        "\"instances\": 2, \"most_batch\": 0, \"later\": [[0.3, 0]], "
        "\"cached\": [[5, 4096]]}\n"
        "{\"iteration\": 3, \"call\": \"actor_generate\", \"remaining\": 0, "
        "\"instances\": 0, \"most_batch\": 0}\n";
    char path[512], word[600];
    struct weft_err err;
    snprintf(path, sizeof path, "%s/several.jsonl", fixture.dir);
    snprintf(word, sizeof word, "rollout.decisions=%s", path);
    REQUIRE_OK(weft_file_write(path, decisions, sizeof decisions - 1, &err),
               err);
    const char *const all[] = {devices(4),
                               "layout=dp4",
                               "rollout.inter_stage_fusion=true",
                               word,
                               "rollout.prefill_tokens=9",
                               "rollout.chunk_tokens=1",
                               "runtime.place=device",
                               NULL};
    check_same(&fixture, "again", all);
    if (weft_world_rank() == 0)
        check_moved_again("again");
}

/* Samples that come from the data. */
static void test_same_data(void)
{
    static const char yaml[] = "iterations: 4\n"
                               "run_dir: unset\n"
                               "data: {path: rows.jsonl}\n"
                               "train: {batch: 12, micro_batch_tokens: 64}\n"
                               "checkpoint: {every: 0}\n";
    static const char *const algorithm[][2] = {
        {"algorithm=sft", "model.actor="},
        {"algorithm=dpo", "model.actor="},
        {"algorithm=kto", "model.actor="},
        {"algorithm=reward_model", "model.reward_model="}};
    static const char *const layout[] = {
        "layout=dp1", "layout=dp2pp2,zero=2",
        "layout=tp2pp2,recompute,micro_batches=2", "layout=dp2tp2,offload"};
    struct fixture rows = fixture;
    struct weft_err err;
    char path[600];
    snprintf(path, sizeof path, "%s/rows.jsonl", rows.dir);
    snprintf(rows.config, sizeof rows.config, "%s/data.yaml", rows.dir);
    if (weft_world_rank() == 0) {
        FILE *f = fopen(path, "w");
        REQUIRE(f != NULL);
        for (int i = 0; i < 30; i++)
            fprintf(f,
                    "{\"prompt\": \"%d\", \"completion\": \"%.*s\", "
                    "\"chosen\": \"%.*s\", \"rejected\": \"no\"}\n",
                    i, 1 + i * 5 % 23, "and so on, and so forth",
                    1 + i * 7 % 19, "yes, and so forth, and so on");
        fclose(f);
        REQUIRE_OK(weft_file_write(rows.config, yaml, sizeof yaml - 1, &err),
                   err);
    }
    weft_world_min(0); /* the files are there */
    for (size_t i = 0; i < WEFT_COUNT(algorithm); i++)
        for (size_t k = 0; k < WEFT_COUNT(layout); k++) {
            char model[600], name[64];
            const char *all[] = {k > 0 ? devices(4) : "runtime.devices=1",
                                 algorithm[i][0],
                                 model,
                                 layout[k],
                                 k == 3 ? "runtime.place=device" : NULL,
                                 i % 3 ? "reference.every=1" : NULL,
                                 NULL};
            snprintf(model, sizeof model, "%s%s/model", algorithm[i][1],
                     rows.dir);
            snprintf(name, sizeof name, "data-%zu-%zu", i, k);
            check_same(&rows, name, all);
        }
}

static const char two[] = "algorithm: remax\n"
                          "iterations: 4\n"
                          "run_dir: unset\n"
                          "data: {path: prompts.jsonl}\n"
                          "model: {actor: model}\n"
                          "reward: [{type: callback, name: low}]\n"
                          "rollout: {prompts: 6, samples_per_prompt: 2, "
                          "max_new_tokens: 9}\n"
                          "ppo: {mini_batches: 2}\n"
                          "actor: {lr: 1e-3}\n"
                          "train: {micro_batch_tokens: 64}\n"
                          "checkpoint: {every: 0}\n";

/* A run in which two calls generate. */
static struct fixture two_fixture(void)
{
    struct fixture f = fixture;
    struct weft_err err;
    snprintf(f.config, sizeof f.config, "%s/two.yaml", f.dir);
    if (weft_world_rank() == 0)
        REQUIRE_OK(weft_file_write(f.config, two, sizeof two - 1, &err), err);
    weft_world_min(0); /* the file is there */
    return f;
}

/* They do on the same devices, with layouts of their own, apart. */
static void test_same_two(void)
{
    static const struct fixture_call shared[] = {
        {"actor_generate", 0, 4, 1, 2, 2, NULL},
        {"actor_greedy_generate", 0, 4, 2, 1, 2, NULL},
        {"ref_infer", 0, 4, 4, 1, 1, NULL},
        {"actor_train", 0, 4, 2, 2, 1, ", \"zero\": 2"},
        {0}};
    static const struct fixture_call apart[] = {
        {"actor_generate", 0, 2, 1, 2, 1, NULL},
        {"actor_greedy_generate", 3, 1, 1, 1, 1, NULL},
        {"ref_infer", 2, 1, 1, 1, 1, ", \"offload\": true"},
        {"actor_train", 0, 4, 1, 2, 2, NULL},
        {0}};
    struct fixture f = two_fixture();
    const char *const word[][4] = {
        {"runtime.devices=1"},
        {devices(4), "layout=dp2pp2", "ppo.recompute_logprobs=true"},
        {"runtime.devices=8", fixture_plan(&f, "shared", shared)},
        {"runtime.devices=8", fixture_plan(&f, "apart", apart)},
        {"runtime.devices=8", fixture_plan(&f, "apart", apart),
         "runtime.place=device"}};
    size_t n = weft_world_size() > 1 ? 2 : WEFT_COUNT(word);
    for (size_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "two-%zu", i);
        check_same(&f, name, word[i]);
    }
}

/* Two samples at a time: those that a reward model reads in its own tokens are
 * inferred while others are generated, most of them before the last has ended. */
static void check_streams(const char *reward)
{
    const char *const word[] = {"runtime.devices=1",      "rollout.slots=2",
                                "rollout.chunk_tokens=1", reward,
                                "iterations=1",           NULL};
    struct weft_recording ran;
    weft_recording_init(&ran);
    struct weft_trainer *t = fixture_open_logged(&fixture, "text-streams",
                                                 word, &ran);
    weft_trainer_set_reward(t, fixture_reward, NULL);
    fixture_steps(t, 1);
    int32_t last = -1, before = 0;
    int64_t last_end = -1;
    bool is_judge[WEFT_MAX_CALLS] = {false};
    for (int32_t c = 1; c < t->flow.n_calls; c++) {
        int32_t role = t->flow.call[c].role;
        is_judge[c] = t->flow.call[c].kind == WEFT_INFER
                   && t->flow.role[role].index == 1;
    }
    for (int64_t i = 0; i < ran.n_tasks; i++)
        if (t->flow.call[ran.task[i].call].kind == WEFT_GENERATE)
            last_end = i;
    for (int64_t i = 0; i < ran.n_tasks; i++)
        if (is_judge[ran.task[i].call] && ran.task[i].micro_batch > last) {
            last = ran.task[i].micro_batch;
            before += i < last_end;
        }
    CHECK(last > 1 && before > last / 2 && before < last + 1);
    weft_trainer_close(t);
    weft_recording_release(&ran);
}

/* A reward model that reads texts in its own tokens. */
static void test_same_text(void)
{
    char reward[800], early[800];
    struct weft_init_options o = fixture_model();
    struct weft_err err;
    char path[600];
    o.scalar_head = true;
    o.tied = false;
    snprintf(path, sizeof path, "%s/judge", fixture.dir);
    snprintf(reward, sizeof reward,
             "reward=[{type: callback, name: low}, {type: model, name: "
             "judge, model: \"%s\", own_tokenizer: true, normalize: "
             "running}]",
             path);
    snprintf(
        early, sizeof early,
        "reward=[{type: length, target: 4}, {type: model, model: \"%s\", "
        "own_tokenizer: true}]",
        path);
    if (weft_world_rank() == 0)
        REQUIRE_OK(weft_init_model(&o, path, NULL, &err), err);
    weft_world_min(0); /* the folder is there */
    const char *word[][8] = {
        {devices(4), reward, "layout=dp2pp2"},
        {devices(4), reward, "layout=tp2pp2,offload", "runtime.place=device"},
        {devices(4), reward, "layout=dp4", "rollout.inter_stage_fusion=true",
         "rollout.remaining=0.5", "rollout.instances=1",
         "rollout.chunk_tokens=1"},
        {devices(4), reward, "layout=dp2pp2", "rollout.staleness=1",
         "rollout.slots=2"},
        {devices(4), early, "layout=disaggregated", "train.as_completed=true",
         "ppo.whiten_advantages=false", "rollout.chunk_tokens=1",
         "rollout.slots=2"}};
    for (int i = 0; i < 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "text-%d", i);
        check_same(&fixture, name, word[i]);
    }
    struct fixture f = two_fixture();
    check_same(&f, "text-two", word[0]);
    if (weft_world_size() == 1)
        check_streams(reward);
}

/* The second iteration's schedules are from measured times. */
static void test_same_fused(void)
{
    const char *word[] = {devices(4), "layout=dp2pp2",
                          "train.intra_stage_fusion=true", NULL};
    check_same(&fixture, "fused", word);
}

static void setup(void)
{
    struct weft_err err;
    REQUIRE_OK(weft_world_open(&err), err);
    if (weft_world_rank() == 0)
        fixture_make(&fixture);
    weft_world_share(&fixture, sizeof fixture);
}

static void teardown(void)
{
    weft_world_min(0); /* nobody needs it any more */
    if (weft_world_rank() == 0)
        fixture_remove(&fixture);
    weft_world_close();
}

WEFT_TESTS("run/recorded", {"setup", setup}, {"test_same", test_same},
           {"test_same_again", test_same_again},
           {"test_same_data", test_same_data},
           {"test_same_two", test_same_two},
           {"test_same_text", test_same_text},
           {"test_same_fused", test_same_fused}, {"teardown", teardown})
