/* SPDX-License-Identifier: Apache-2.0 */
/* Rewards in whole runs: what they see, and how their numbers are shaped. */
#include "run_fixture.h"

#include <jansson.h>
#include <math.h>
#include <unistd.h>

#include "rt/codelet.h"

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
}

/* ---- While others are generated ---------------------------------------- */

static char asked[600]; /* a file that the program leaves */

enum { AN_HOUR = 3600000 }; /* ms: ends what stands still, nothing else */

/* Occupies a device until the program has been asked. */
static int stand_cpu(const void *args, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    (void) args;
    (void) buf;
    (void) n_buf;
    for (int i = 0; i < AN_HOUR && access(asked, F_OK); i++)
        usleep(1000);
    return access(asked, F_OK) == 0
             ? 0
             : weft_err_set(weft_exec_err(x), WEFT_ESTATE,
                            "nobody asked the program");
}
WEFT_CODELET(stand, 0x0, stand_cpu)

/* One iteration in which a device stands before it generates. */
static int step_beside(struct weft_trainer *t, int32_t device,
                       struct weft_err *err)
{
    const struct weft_tile_id id = {
        "test", "stand", 0, -1, -1, weft_rt_place_of(t->rt, device)};
    const struct weft_where where = {
        .device = device, .iteration = 0, .micro_batch = -1, .layer = -1};
    struct weft_tile *tile;
    int rc = weft_tile_create(t->rt, &id, WEFT_MEM_SAMPLES, 8, &tile, err);
    if (rc)
        return rc;
    struct weft_access access[] = {{tile, WEFT_READ_WRITE}};
    weft_insert(t->seq, &weft_cl_stand, NULL, 0, access, 1, &where);
    rc = weft_trainer_step(t, err);
    weft_tile_release(tile);
    return rc;
}

/* What the second instance generates ends only when the program has been asked
 * about a sample of the first. */
static void early(const char *name, const char *const more[5])
{
    char command[900];
    const char *word[] = {"iterations=1", "rollout.slots=2", command,
                          more[0],        more[1],           more[2],
                          more[3],        more[4],           NULL};
    struct weft_err err;
    double ratio = -1, rule = -1, program = -2;
    snprintf(asked, sizeof asked, "%s/asked", fixture.dir);
    snprintf(command, sizeof command,
             "reward=[{type: length, name: rule, target: 3}, {type: program, "
             "name: p, command: [sh, -c, 'while read -r l; do : > %s; "
             "n=${l#*n_tokens\\\": }; echo ${n%%%%,*}; done']}]",
             asked);
    unlink(asked);
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    int32_t call = weft_flow_call_of(&t->flow, WEFT_GENERATE, -1);
    REQUIRE(t->gen[call].layout.plan.dp == 2);
    int32_t device =
        weft_g_layout_member(&t->gen[call].layout, 1, 0, 0)->device;
    REQUIRE_OK(step_beside(t, device, &err), err);
    REQUIRE_OK(weft_trainer_metric(t, "perf/reward_hidden_ratio", &ratio),
               err);
    REQUIRE_OK(weft_trainer_metric(t, "reward/rule/mean", &rule), err);
    REQUIRE_OK(weft_trainer_metric(t, "reward/p/mean", &program), err);
    CHECK(ratio >= 0 && ratio <= 1);
    double tokens = 0;
    REQUIRE_OK(weft_trainer_metric(t, "response_length/mean", &tokens), err);
    CHECK(fabs(program - tokens) < 1e-9);
    weft_trainer_close(t);
}

static void test_early(void)
{
    early("early", (const char *[5]){"runtime.devices=2", "layout=dp2"});
}

/* The only mini-batch needs all samples. */
static void test_early_as_completed(void)
{
    early("completed",
          (const char *[5]){"runtime.devices=4", "layout=disaggregated",
                            "train.as_completed=true", "ppo.mini_batches=1",
                            "ppo.whiten_advantages=false"});
}

/* On several ranks the first one's device stands until a file is there that
 * another rank's program leaves. argv: the file, the configuration, words. */
static int early_on_ranks(int argc, char **argv)
{
    struct weft_trainer *t = NULL;
    struct weft_err err;
    snprintf(asked, sizeof asked, "%s", argv[1]);
    int rc = weft_world_open(&err);
    if (!rc)
        rc = weft_trainer_open(argv[2], argc - 3,
                               (const char *const *) argv + 3, &t, &err);
    if (!rc)
        rc = step_beside(t, 0, &err);
    if (rc)
        fprintf(stderr, "%s\n", err.text);
    else
        weft_trainer_close(t);
    weft_world_close();
    return rc ? 1 : 0;
}

/* ---- Normalising and clipping ----------------------------------------- */

enum { STEPS = 3, SAMPLES = 12 };

static void make_judge(void)
{
    struct weft_init_options o = fixture_model();
    o.scalar_head = true;
    o.tied = false;
    o.seed = 11;
    fixture_init_model(&fixture, "judge", &o);
}

struct scores {
    double rule[STEPS * SAMPLES], model[STEPS * SAMPLES];
    double score[STEPS * SAMPLES];
};

static void read_scores(const char *name, struct scores *out)
{
    static char line[1 << 16];
    int n = 0;
    for (int k = 1; k <= STEPS; k++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s/samples/%06d.jsonl", fixture.dir,
                 name, k);
        FILE *f = fopen(path, "r");
        REQUIRE(f != NULL);
        for (; fgets(line, sizeof line, f); n++) {
            json_t *o = json_loads(line, JSON_ALLOW_NUL, NULL), *r;
            REQUIRE(o != NULL && n < STEPS * SAMPLES);
            r = json_object_get(o, "rewards");
            out->rule[n] = json_number_value(json_object_get(r, "rule"));
            out->model[n] = json_number_value(json_object_get(r, "judge"));
            out->score[n] = json_number_value(json_object_get(o, "score"));
            json_decref(o);
        }
        fclose(f);
    }
    CHECK_INT(n, STEPS * SAMPLES);
}

/* x[i] by mean and unbiased variance of x[from .. to), clipped. */
static double shaped(const double *x, int i, int from, int to, double clip)
{
    double mean = 0, squares = 0;
    for (int k = from; k < to; k++)
        mean += x[k] / (to - from);
    for (int k = from; k < to; k++)
        squares += (x[k] - mean) * (x[k] - mean);
    double y = (x[i] - mean) / sqrt(squares / (to - from - 1) + 1e-8);
    return clip > 0 ? fmin(fmax(y, -clip), clip) : y;
}

#define RULE "{type: callback, name: rule, weight: 2, "
#define JUDGE "{type: model, name: judge, model: judge, weight: 0.5, "

/* running: over all samples up to the iteration's end; else the iteration's. */
static void check_scores(const char *name, bool rule_running,
                         bool model_running, double clip)
{
    struct scores s;
    int n_clipped = 0;
    read_scores(name, &s);
    for (int i = 0; i < STEPS * SAMPLES; i++) {
        int begin = i / SAMPLES * SAMPLES, end = begin + SAMPLES;
        double a = shaped(s.rule, i, rule_running ? 0 : begin, end, clip);
        double b = shaped(s.model, i, model_running ? 0 : begin, end, 0);
        CHECK(fabs(s.score[i] - (2 * a + 0.5 * b)) < 1e-5);
        n_clipped += fabs(a) == clip;
    }
    CHECK(n_clipped > 0);
}

static void test_normalize(void)
{
    const char *word[] = {"reward=[" RULE
                          "normalize: running, clip: 1.5}, " JUDGE
                          "normalize: batch}]",
                          "samples_kept=-1", NULL};
    make_judge();
    run("normal-1", word, STEPS);
    check_scores("normal-1", true, false, 1.5);
    word[0] = "reward=[" RULE "normalize: batch, clip: 1.25}, " JUDGE
              "normalize: running}]";
    run("normal-2", word, STEPS);
    check_scores("normal-2", false, true, 1.25);
}

/* Layouts change nothing; what is over all samples so far outlasts the
 * process. */
static void test_normalize_state(void)
{
    static const char rewards[] = "reward=[" RULE
                                  "normalize: running}, " JUDGE
                                  "normalize: running, clip: 2}]";
    const char *one[] = {rewards, NULL};
    const char *more[][4] = {
        {rewards, "runtime.devices=4", "layout=dp2pp2", NULL},
        {rewards, "runtime.devices=4", "layout=tp2pp2",
         "runtime.place=device"}};
    const char *parts[] = {rewards, "checkpoint.every=1", NULL};
    struct weft_hash hash = run("whole", one, STEPS);
    for (int i = 0; i < 2; i++) {
        char name[32];
        const char *word[] = {more[i][0], more[i][1], more[i][2], more[i][3],
                              NULL};
        snprintf(name, sizeof name, "laid-%d", i);
        CHECK(weft_hash_equal(hash, run(name, word, STEPS)));
    }
    for (int i = 0; i < STEPS; i++) {
        struct weft_trainer *t = fixture_open(&fixture, "parts", parts);
        CHECK_INT(weft_trainer_iteration(t), i);
        fixture_steps(t, 1);
        weft_trainer_close(t);
    }
    CHECK(weft_hash_equal(hash, fixture_hash(&fixture, "parts", STEPS)));
}

/* ---- Another tokenizer ------------------------------------------------- */

static void copy(const char *from, const char *folder, const char *name)
{
    struct weft_err err;
    char path[600];
    snprintf(path, sizeof path, "%s/%s", fixture.dir, folder);
    REQUIRE_OK(weft_dir_create(path, &err), err);
    snprintf(path, sizeof path, "%s/%s/%s", fixture.dir, folder, name);
    REQUIRE_OK(weft_file_copy(weft_test_data(from), path, &err), err);
}

/* A reward model with a trained tokenizer: others' tokens, and fewer. */
static void make_other_judge(void)
{
    struct weft_init_options o = fixture_model();
    char tokenizer[512];
    copy("tokenizer/gpt2.json", "words", "tokenizer.json");
    snprintf(tokenizer, sizeof tokenizer, "%s/words", fixture.dir);
    o.scalar_head = true;
    o.tied = false;
    o.seed = 13;
    o.tokenizer = tokenizer;
    fixture_init_model(&fixture, "other", &o);
}

/* Each text by itself through the same model, without a run. skip: what the
 * policy's template wrote before and behind the prompt; write: what the reward
 * model's writes before it, between it and the response, and behind. */
static void check_texts(const char *name, const char *const skip[2],
                        const char *const write[3])
{
    static char line[1 << 16], text[1 << 16];
    struct weft_context *context;
    struct weft_model *judge;
    struct weft_err err;
    char path[600];
    int n = 0;
    snprintf(path, sizeof path, "%s/other", fixture.dir);
    REQUIRE_OK(weft_context_open(1, &context, &err), err);
    REQUIRE_OK(weft_model_open(context, path, NULL, &judge, &err), err);
    snprintf(path, sizeof path, "%s/%s/samples/000001.jsonl", fixture.dir,
             name);
    FILE *f = fopen(path, "r");
    REQUIRE(f != NULL);
    for (; fgets(line, sizeof line, f); n++) {
        json_t *o = json_loads(line, JSON_ALLOW_NUL, NULL);
        REQUIRE(o != NULL);
        json_t *prompt = json_object_get(o, "prompt");
        json_t *response = json_object_get(o, "response");
        size_t a = json_string_length(prompt), at = 0;
        size_t b = json_string_length(response);
        const char *p = json_string_value(prompt);
        a -= strlen(skip[0]) + strlen(skip[1]);
        CHECK(strncmp(p, skip[0], strlen(skip[0])) == 0);
        p += strlen(skip[0]);
        CHECK(strcmp(p + a, skip[1]) == 0);
        at += (size_t) sprintf(text, "%s", write[0]);
        memcpy(text + at, p, a);
        at += a;
        at += (size_t) sprintf(text + at, "%s", write[1]);
        memcpy(text + at, json_string_value(response), b);
        at += b;
        at += (size_t) sprintf(text + at, "%s", write[2]);
        float score = NAN;
        REQUIRE_OK(weft_model_score(judge, text, at, &score, &err), err);
        double found = json_number_value(
            json_object_get(json_object_get(o, "rewards"), "other"));
        CHECK(fabs(found - (double) score) < 1e-5 * (1 + fabs(found)));
        json_decref(o);
    }
    fclose(f);
    CHECK_INT(n, SAMPLES);
    weft_model_close(judge);
    weft_context_close(context);
}

#define OTHER                                                                \
    "reward=[{type: model, name: other, model: other, own_tokenizer: true}]"

static void test_other_tokenizer(void)
{
    const char *word[] = {OTHER, "samples_kept=-1", NULL};
    const char *more[][9] = {
        {OTHER, "runtime.devices=4", "layout=dp2pp2"},
        {OTHER, "runtime.devices=4", "layout=dp4",
         "rollout.inter_stage_fusion=true", "rollout.remaining=0.5",
         "rollout.instances=1", "rollout.chunk_tokens=1", "rollout.slots=2"},
        {OTHER, "runtime.devices=4", "layout=tp2pp2", "runtime.place=device"},
        {OTHER, "runtime.devices=3", "train.micro_batch_tokens=200",
         "runtime.overlap=false"}};
    make_other_judge();
    struct weft_hash hash = run("other-1", word, STEPS);
    check_texts("other-1", (const char *[]){"", ""},
                (const char *[]){"", "", ""});
    for (int i = 0; i < (int) WEFT_COUNT(more); i++) {
        char name[32];
        snprintf(name, sizeof name, "other-laid-%d", i);
        CHECK(weft_hash_equal(hash, run(name, more[i], STEPS)));
    }
}

/* ... while training has begun with others. */
static void test_other_as_completed(void)
{
    const char *word[] = {OTHER,
                          "samples_kept=-1",
                          "iterations=1",
                          "runtime.devices=4",
                          "layout=disaggregated",
                          "train.as_completed=true",
                          "ppo.whiten_advantages=false",
                          "rollout.slots=2",
                          NULL};
    run("other-early", word, 1);
    check_texts("other-early", (const char *[]){"", ""},
                (const char *[]){"", "", ""});
}

/* By the template of the reward model, which is not the policy's. */
static void test_other_template(void)
{
    static const char *const skip[] = {"<user>", "</user><assistant>"};
    static const char *const write[] = {"<|im_start|>user\n",
                                        "<|im_end|>\n<|im_start|>assistant\n",
                                        "<|im_end|>\n"};
    const char *word[] = {OTHER, "samples_kept=-1",
                          "data.template=<{role}>{content}</{role}>",
                          "iterations=1", NULL};
    char path[600];
    copy("chat/chatml.jinja", "other", "chat_template.jinja");
    snprintf(path, sizeof path, "%s/other/chat_template.jinja", fixture.dir);
    run("template", word, 1);
    check_texts("template", skip, write);
    REQUIRE(unlink(path) == 0);
}

/* A text that is too long loses its beginning. */
static void test_other_cut(void)
{
    static const char rewards[] =
        "reward=[{type: model, name: other, model: other, own_tokenizer: "
        "true, max_tokens: 3}]";
    const char *word[] = {rewards, "iterations=1", NULL};
    struct weft_trainer *t;
    struct weft_err err;
    run("cut", word, 1);
    word[0] = "reward=[{type: model, name: other, model: other}]";
    CHECK_FAILS(weft_trainer_open(fixture.config, 1, word, &t, &err),
                WEFT_EINVAL, err,
                "models of a run share the tokenizer unless the reward has "
                "own_tokenizer: true");
    word[0] = "reward=[{type: model, name: other, model: other, "
              "own_tokenizer: true, max_tokens: 300}]";
    CHECK_FAILS(weft_trainer_open(fixture.config, 1, word, &t, &err),
                WEFT_EINVAL, err, "max_tokens is 300, but");
    word[0] = "reward=[{type: model, name: other, model: other, "
              "max_tokens: 30}]";
    CHECK_FAILS(weft_trainer_open(fixture.config, 1, word, &t, &err),
                WEFT_EINVAL, err, "set own_tokenizer: true");
    fixture_remove(&fixture);
}

int main(int argc, char **argv)
{
    static const struct weft_test tests[] = {
        {"test_batch", test_batch},
        {"test_columns", test_columns},
        {"test_early", test_early},
        {"test_early_as_completed", test_early_as_completed},
        {"test_normalize", test_normalize},
        {"test_normalize_state", test_normalize_state},
        {"test_other_tokenizer", test_other_tokenizer},
        {"test_other_as_completed", test_other_as_completed},
        {"test_other_template", test_other_template},
        {"test_other_cut", test_other_cut}};
    return argc > 3 ? early_on_ranks(argc, argv)
                    : weft_test_main("run/rewards", tests, WEFT_COUNT(tests));
}
