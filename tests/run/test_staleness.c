/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rollout.staleness: an iteration is generated with the weights from before
 * the last update, wherever and whenever it runs, also behind a checkpoint.
 * That the numbers are those of these weights, test_iterations checks, and
 * test_versions on whole runs: against the weights in their checkpoints.
 */
#include "run_fixture.h"

#include <jansson.h>
#include <math.h>

#include "base/alloc.h"
#include "lm/lm.h"
#include "record/manifest.h"
#include "run/ahead.h"

static struct fixture fixture;

#define STALE "rollout.staleness=1"

static void open_run(const char *name, const char *const *word, int n_steps,
                     struct weft_trainer **out)
{
    *out = fixture_open(&fixture, name, word);
    fixture_steps(*out, n_steps);
}

static double metric(const struct weft_trainer *t, const char *tag)
{
    double x = -1;
    REQUIRE(weft_trainer_metric(t, tag, &x) == 0);
    return x;
}

static void test_make(void)
{
    const char *word[] = {"iterations=4", STALE, NULL};
    const char *fresh[] = {"iterations=4", NULL};
    struct weft_trainer *t;
    fixture_make(&fixture);
    open_run("whole", word, 1, &t);
    CHECK(metric(t, "gen/staleness") == 0);
    CHECK(metric(t, "actor/first_ratio_abs_dev_max") == 0);
    fixture_steps(t, 3);
    CHECK(metric(t, "gen/staleness") == 1);
    CHECK(metric(t, "actor/first_ratio_abs_dev_max") > 0);
    weft_trainer_close(t);
    open_run("fresh", fresh, 4, &t);
    CHECK(metric(t, "gen/staleness") == 0);
    weft_trainer_close(t);
    CHECK(!weft_hash_equal(fixture_hash(&fixture, "whole", 4),
                           fixture_hash(&fixture, "fresh", 4)));
}

static void test_layouts(void)
{
    static const char *const layout[][6] = {
        {"runtime.devices=3", "runtime.overlap=false"},
        {"runtime.devices=4", "layout=disaggregated", "runtime.place=device"},
        {"runtime.devices=4", "layout=interleave-2", "checkpoint.every=3"},
        {"runtime.devices=4", "layout=dp2pp2,zero=2", "runtime.place=device"},
        {"runtime.devices=4", "layout=dp2tp2,zero=3",
         "train.mini_batches_ahead=1"},
        {"runtime.devices=2", "layout=pp2,micro_batches=2",
         "train.intra_stage_fusion=true", "rollout.chunk_tokens=2"},
        {"runtime.devices=2", "rollout.inter_stage_fusion=true",
         "rollout.remaining=0.6", "rollout.prefill_tokens=3",
         "rollout.chunk_tokens=1"},
        {"runtime.devices=4", "layout=interleave-2",
         "ppo.recompute_logprobs=true"}};
    for (size_t i = 0; i < WEFT_COUNT(layout); i++) {
        const char *word[9] = {"iterations=4", STALE};
        char name[32];
        struct weft_trainer *t;
        for (int k = 0; layout[i][k]; k++)
            word[k + 2] = layout[i][k];
        snprintf(name, sizeof name, "layout-%zu", i);
        open_run(name, word, 4, &t);
        weft_trainer_close(t);
        CHECK(weft_hash_equal(fixture_hash(&fixture, "whole", 4),
                              fixture_hash(&fixture, name, 4)));
    }
}

/* The samples behind a checkpoint are those of weights that it lacks. */
static void test_resumed(void)
{
    static const char *const then[][3] = {
        {"runtime.devices=1"},
        {"runtime.devices=3", "train.micro_batch_tokens=9"},
        {"runtime.devices=4", "layout=disaggregated",
         "runtime.place=device"}};
    for (int k = 1; k < 4; k++) {
        const char *first[] = {"iterations=4", STALE, "checkpoint.every=1",
                               "runtime.devices=2", NULL};
        const char *word[8] = {"iterations=4", STALE, "checkpoint.every=1"};
        char name[32];
        struct weft_trainer *t;
        for (int i = 0; i < 3 && then[k - 1][i]; i++)
            word[i + 3] = then[k - 1][i];
        snprintf(name, sizeof name, "resumed-%d", k);
        open_run(name, first, k, &t);
        weft_trainer_close(t);
        t = fixture_open(&fixture, name, word);
        CHECK_INT(weft_trainer_iteration(t), k);
        fixture_steps(t, 1);
        CHECK(metric(t, "gen/staleness") == 1);
        CHECK(metric(t, "gen/kv_blocks") > 0);
        fixture_steps(t, 4);
        weft_trainer_close(t);
        CHECK(weft_hash_equal(fixture_hash(&fixture, "whole", 4),
                              fixture_hash(&fixture, name, 4)));
    }
}

/* ---- The version that generated ----------------------------------------- */

enum { VERSIONS = 4, SAMPLES = 12, LONGEST = 256 };

/* The samples that the checkpoint of an iteration has of the next one. */
struct ahead {
    struct weft_lm_prompt text[SAMPLES];
    int32_t token[SAMPLES][LONGEST], n_prompt[SAMPLES];
    float kept[SAMPLES][LONGEST]; /* log-probs as they were drawn */
};

/* Reads the file by itself, without weft_ahead_read(). */
static void read_ahead(int version, struct ahead *out)
{
    static char line[1 << 16];
    char path[600];
    snprintf(path, sizeof path,
             "%s/versions/checkpoints/iteration-%06d/" WEFT_AHEAD_FILE,
             fixture.dir, version);
    FILE *f = fopen(path, "r");
    REQUIRE(f != NULL);
    REQUIRE(fgets(line, sizeof line, f) != NULL); /* what was counted */
    for (int i = 0; i < SAMPLES; i++) {
        REQUIRE(fgets(line, sizeof line, f) != NULL);
        json_t *root = json_loads(line, 0, NULL);
        const json_t *token = json_object_get(root, "tokens");
        const json_t *logp = json_object_get(root, "logprobs");
        int n = (int) json_array_size(token);
        int n_prompt = (int) json_integer_value(
            json_object_get(root, "prompt_tokens"));
        REQUIRE(n_prompt > 0 && n_prompt < n && n <= LONGEST);
        REQUIRE((int) json_array_size(logp) == n - n_prompt);
        for (int k = 0; k < n; k++)
            out->token[i][k] = (int32_t) json_integer_value(
                json_array_get(token, (size_t) k));
        for (int k = n_prompt; k < n; k++)
            out->kept[i][k] = (float) json_number_value(
                json_array_get(logp, (size_t) (k - n_prompt)));
        out->text[i] = (struct weft_lm_prompt){out->token[i], n};
        out->n_prompt[i] = n_prompt;
        json_decref(root);
    }
    fclose(f);
}

/* Log-probs of the samples by a version of the actor: a model folder, which
 * `weft score` could read too. Version 0 is what the run began with. */
static void score_by(struct weft_context *context, int version,
                     const struct ahead *ahead, float out[SAMPLES][LONGEST])
{
    struct weft_model *model;
    struct weft_err err;
    char folder[600];
    float *logp[SAMPLES];
    for (int i = 0; i < SAMPLES; i++)
        logp[i] = out[i];
    if (version == 0)
        snprintf(folder, sizeof folder, "%s/model", fixture.dir);
    else
        snprintf(folder, sizeof folder,
                 "%s/versions/checkpoints/iteration-%06d/actor", fixture.dir,
                 version);
    REQUIRE_OK(weft_model_open(context, folder, "f32", &model, &err), err);
    REQUIRE_OK(weft_lm_score(model, SAMPLES, ahead->text, 1, logp, &err),
               err);
    weft_model_close(model);
}

/* The largest distance from 1 of exp(now - kept), over all responses. */
static double largest_ratio_miss(const struct ahead *ahead,
                                 float now[SAMPLES][LONGEST])
{
    double most = 0;
    for (int i = 0; i < SAMPLES; i++)
        for (int k = ahead->n_prompt[i]; k < ahead->text[i].n; k++)
            most = fmax(
                most,
                fabs(exp((double) (now[i][k] - ahead->kept[i][k])) - 1));
    return most;
}

/* Response tokens whose log-prob is not, bit for bit, the one that was kept. */
static int count_other(const struct ahead *ahead, float by[SAMPLES][LONGEST])
{
    int n = 0;
    for (int i = 0; i < SAMPLES; i++)
        for (int k = ahead->n_prompt[i]; k < ahead->text[i].n; k++)
            n += memcmp(&by[i][k], &ahead->kept[i][k], sizeof(float)) != 0;
    return n;
}

/* The log-probs that a sample keeps are those of the version that generated it,
 * one update behind the newest, and the ratio of the first step is the newest
 * version's probability over that one's. All samples are in one mini-batch, so
 * that the metric has the ratio of every token. */
static void test_versions(void)
{
    static struct ahead ahead;
    static float by[SAMPLES][LONGEST], now[SAMPLES][LONGEST];
    const char *word[] = {"iterations=4",       STALE,
                          "checkpoint.every=1", "checkpoint.keep=9",
                          "ppo.mini_batches=1", NULL};
    double metric_miss[VERSIONS];
    struct weft_context *context;
    struct weft_trainer *t = fixture_open(&fixture, "versions", word);
    struct weft_err err;
    for (int v = 0; v < VERSIONS; v++) {
        fixture_steps(t, 1); /* with samples ahead of the v-th checkpoint */
        metric_miss[v] = metric(t, "actor/first_ratio_abs_dev_max");
    }
    weft_trainer_close(t);
    REQUIRE_OK(weft_context_open(1, &context, &err), err);
    for (int v = 1; v < VERSIONS; v++) {
        read_ahead(v, &ahead);
        score_by(context, v - 1, &ahead, by);
        score_by(context, v, &ahead, now);
        CHECK_INT(count_other(&ahead, by), 0);
        CHECK(count_other(&ahead, now) > SAMPLES);
        double miss = largest_ratio_miss(&ahead, now);
        CHECK(miss > 1e-4);
        /* the kernel's exp and difference are f32 */
        CHECK(fabs(metric_miss[v] - miss) <= 1e-6 * (1 + miss));
    }
    weft_context_close(context);
}

/* Of a run that had ended there are no samples: it goes on with new ones. */
static void test_longer(void)
{
    const char *first[] = {"iterations=1", STALE, NULL};
    const char *then[] = {"iterations=2", STALE, NULL};
    struct weft_trainer *t;
    open_run("longer", first, 1, &t);
    weft_trainer_close(t);
    open_run("longer", then, 1, &t);
    CHECK(weft_trainer_done(t));
    CHECK(metric(t, "gen/staleness") == 0);
    CHECK(metric(t, "actor/first_ratio_abs_dev_max") == 0);
    weft_trainer_close(t);
}

static void test_refused(void)
{
    char run[512];
    const char *word[] = {run, "rollout.staleness=2", NULL};
    struct weft_trainer *t = NULL;
    struct weft_err err;
    snprintf(run, sizeof run, "run_dir=%s/refused", fixture.dir);
    CHECK_FAILS(weft_trainer_open(fixture.config, 2, word, &t, &err),
                WEFT_EINVAL, err, "'rollout.staleness' must be from 0 to 1");
    snprintf(run, sizeof run, "run_dir=%s/fresh", fixture.dir);
    word[1] = STALE;
    word[2] = "iterations=6";
    CHECK_FAILS(weft_trainer_open(fixture.config, 3, word, &t, &err),
                WEFT_EINVAL, err, "rollout.staleness");
}

#define COUNTS                                                               \
    "\"decoded\": 1, \"prefilled\": 2, \"shared\": 0, \"preempted\": 0, "    \
    "\"chunks\": 1, \"turns\": 1, \"tail_turns\": 0, \"kv_blocks\": 3, "     \
    "\"migrated\": 0, \"freed\": 0, \"cached\": 0"
#define HEAD "{\"iteration\": 3, \"samples\": 2, " COUNTS "}\n"
#define SAMPLE(tokens, logprobs)                                             \
    "{\"critic_infer\": [2.5], \"prompt_tokens\": 2, \"ended\": true, "      \
    "\"tokens\": [" tokens "], \"logprobs\": [" logprobs "]}\n"
#define REST                                                                 \
    "\"prompt_tokens\": 2, \"ended\": true, \"tokens\": [4, 5, 6], "         \
    "\"logprobs\": [-1]}\n"
#define GOOD SAMPLE("4, 5, 6", "-0.5")

/* A checkpoint's file that its checksum does not betray. */
static void test_file(void)
{
    static const struct {
        const char *text, *says;
    } row[] = {
        {"", "rollouts.jsonl is empty"},
        {"{\n", "rollouts.jsonl:1:"},
        {"{\"iteration\": 4, \"samples\": 2, " COUNTS "}\n",
         "rollouts.jsonl:1: 'iteration'"},
        {"{\"iteration\": 3, \"samples\": 1, " COUNTS "}\n",
         "rollouts.jsonl:1: 'samples'"},
        {"{\"iteration\": 3, \"samples\": 2}\n", "'decoded'"},
        {HEAD GOOD, "rollouts.jsonl ends after 1 of 2 samples"},
        {HEAD GOOD "[]\n", "rollouts.jsonl:3"},
        {HEAD GOOD SAMPLE("4, 9, 6", "-1"),
         "rollouts.jsonl:3: 'tokens[1]' is no token of the model's 9"},
        {HEAD SAMPLE("4, 5, 6", "\"a\"") GOOD,
         "rollouts.jsonl:2: 'logprobs[0]' is a string, not a number"},
        {HEAD SAMPLE("4, 5, 6", "-1, -2") GOOD,
         "rollouts.jsonl:2: 'logprobs' has 2 numbers for the response's 1 "
         "tokens"},
        {HEAD GOOD "{\"critic_infer\": [1, 2], " REST,
         "rollouts.jsonl:3: 'critic_infer' has 2 numbers for"},
        {HEAD SAMPLE("4, 5, 6, 7, 8", "-1, -1, -1") GOOD,
         "rollouts.jsonl:2: 'tokens' has 5, not the prompt's 2 and 1 to 2 "
         "more"},
        {HEAD GOOD GOOD, NULL}};
    char path[600];
    struct weft_err err;
    struct weft_manifest m = {0};
    struct weft_trainer *t = weft_alloc(1, sizeof *t);
    REQUIRE(t != NULL);
    t->iteration = 2;
    t->max_prompt = 4;
    t->config.rollout.max_new_tokens = 2;
    t->model[0].arch.shape.vocab = 9;
    weft_flow_init(&t->flow);
    CHECK_INT(weft_flow_guess(&t->flow, "critic_infer"), 1);
    REQUIRE_OK(weft_ahead_read(t, fixture.dir, &m, &err), err);
    CHECK(!t->ahead); /* the manifest names none */
    REQUIRE_OK(weft_manifest_add_number(&m, "rollouts", 2, &err), err);
    snprintf(path, sizeof path, "%s/" WEFT_AHEAD_FILE, fixture.dir);
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        REQUIRE_OK(
            weft_file_write(path, row[i].text, strlen(row[i].text), &err),
            err);
        if (row[i].says) {
            CHECK_FAILS(weft_ahead_read(t, fixture.dir, &m, &err), err.code,
                        err, row[i].says);
            CHECK(strstr(err.text, fixture.dir) != NULL);
        } else {
            REQUIRE_OK(weft_ahead_read(t, fixture.dir, &m, &err), err);
            CHECK_INT(t->ahead->stats.most_pages, 3);
            CHECK(t->ahead->sample[1].logp[2] == -0.5f);
            CHECK_INT(t->ahead->sample[1].token[2], 6);
            CHECK(t->ahead->sample[1].of[1][0] == 2.5f);
        }
        weft_ahead_forget(t);
    }
    weft_manifest_release(&m);
    weft_free(t);
}

static void test_remove(void)
{
    fixture_remove(&fixture);
}

WEFT_TESTS("run/staleness", {"make", test_make},
           {"test_layouts", test_layouts}, {"test_resumed", test_resumed},
           {"test_longer", test_longer}, {"test_refused", test_refused},
           {"test_versions", test_versions}, {"test_file", test_file},
           {"remove", test_remove})
