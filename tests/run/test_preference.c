/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learning from preferences: whole steps of DPO, KTO and reward models against
 * PyTorch (tests/data/preference/preferences.txt, which make_preferences.py
 * beside it computed in float64 from the papers), and one of TRL's trainers;
 * one hash in all layouts; and what is said of data from which nothing can be
 * learned.
 */
#include "run_fixture.h"

#include <math.h>

#include "base/alloc.h"
#include "model/safetensors.h"

static struct fixture fixture;

static void copy_data(const char *name)
{
    struct weft_err err;
    char from[256], *text;
    size_t n;
    snprintf(from, sizeof from, "%s", name);
    REQUIRE_OK(weft_file_read(weft_test_data(from), 1 << 20, &text, &n, &err),
               err);
    REQUIRE_OK(weft_file_write(strchr(name, '/') + 1, text, n, &err), err);
    weft_free(text);
}

static void test_make(void)
{
    static const char yaml[] = "runtime: {devices: 1}\n"
                               "checkpoint: {every: 0, dtype: f32}\n";
    struct weft_err err;
    fixture_make_folder(&fixture);
    REQUIRE(chdir(fixture.dir) == 0); /* words have paths */
    fixture_make_model(&fixture, "actor", 3, false, false, "bytes");
    fixture_make_model(&fixture, "reference", 4, false, false, "bytes");
    fixture_make_model(&fixture, "critic", 5, true, false, "bytes");
    copy_data("preference/pairs.jsonl");
    copy_data("preference/rows.jsonl");
    copy_data("sft/turns.jsonl");
    snprintf(fixture.config, sizeof fixture.config, "%s/run.yaml",
             fixture.dir);
    REQUIRE_OK(weft_file_write(fixture.config, yaml, sizeof yaml - 1, &err),
               err);
}

/* ---- PyTorch ----------------------------------------------------------- */

/* |found - expected| <= TOLERANCE (1 + |expected|); largest seen: 6e-6. */
static const double TOLERANCE = 3e-5;

enum { MAX_WORDS = 32 };

struct words {
    char text[4096];
    const char *word[MAX_WORDS + 1]; /* NULL ends them */
};

static void split(struct words *w)
{
    int n = 0;
    for (char *s = strtok(w->text, " \n"); s; s = strtok(NULL, " \n")) {
        REQUIRE(n < MAX_WORDS);
        w->word[n++] = s;
    }
    w->word[n] = NULL;
}

/* Size and direction of what training has changed of folder `start`. */
static double moved(const char *start, const char *end, bool size)
{
    struct weft_safetensors *before, *after;
    struct weft_err err;
    double squares = 0, sum = 0;
    int64_t at = 0;
    REQUIRE_OK(weft_safetensors_open(start, "model", &before, &err), err);
    REQUIRE_OK(weft_safetensors_open(end, "model", &after, &err), err);
    for (size_t i = 0; i < weft_safetensors_count(after); i++) {
        const struct weft_st_tensor *b = weft_safetensors_get(after, i);
        const struct weft_st_tensor *a = weft_safetensors_find(before,
                                                               b->name);
        REQUIRE(a && a->n == b->n);
        float *x = weft_alloc(2 * a->n, sizeof *x);
        weft_st_tensor_read(a, 0, a->n, x);
        weft_st_tensor_read(b, 0, b->n, x + a->n);
        for (size_t k = 0; k < a->n; k++, at++) {
            double d = (double) x[a->n + k] - (double) x[k];
            squares += d * d;
            sum += d * cos(0.7 * (double) at + 0.3);
        }
        weft_free(x);
    }
    weft_safetensors_close(before);
    weft_safetensors_close(after);
    return size ? sqrt(squares) : sum / sqrt(squares);
}

static double worst;
static int n_files;

/* A line "step tag number", or "-" for a tag that is not there. */
static void compare(const char *line, int step, struct weft_trainer *t,
                    const char *name)
{
    char tag[80], value[40], end[512];
    double found = NAN, expected;
    int at;
    REQUIRE(sscanf(line, "%d %79s %39s", &at, tag, value) == 3);
    REQUIRE(at == step);
    bool there = strncmp(tag, "weights/", 8) == 0;
    if (there) {
        bool reward = strncmp(tag + 8, "reward", 6) == 0;
        snprintf(end, sizeof end, "%s/checkpoints/iteration-%06d/%s", name,
                 step, reward ? "reward_model" : "actor");
        found = moved(reward ? "critic" : "actor", end,
                      strstr(tag, ".size") != NULL);
    } else {
        there = weft_trainer_metric(t, tag, &found) == 0;
    }
    if (strcmp(value, "-") == 0) {
        CHECK(!there);
        return;
    }
    expected = strtod(value, NULL);
    double miss = fabs(found - expected) / (1 + fabs(expected));
    worst = miss > worst ? miss : worst;
    if (!there || !(miss <= TOLERANCE))
        printf("\n    %s: step %d: %s is %.9g, expected %.9g", name, step,
               tag, found, expected);
    CHECK(there && miss <= TOLERANCE);
}

/* Every run of a file; returns how many. */
static int check_file(const char *path)
{
    static struct words w;
    char line[4096], name[64];
    struct weft_err err;
    struct weft_trainer *t = NULL;
    int n_runs = 0, step = 0;
    FILE *f = fopen(weft_test_data(path), "r");
    REQUIRE(f != NULL);
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, "run", 3) == 0) {
            snprintf(w.text, sizeof w.text, "%s", line + 3);
            split(&w);
            snprintf(name, sizeof name, "golden-%d-%d", n_files, n_runs++);
            weft_trainer_close(t);
            t = fixture_open(&fixture, name, w.word);
            step = 0;
            continue;
        }
        for (; step < atoi(line); step++)
            REQUIRE_OK(weft_trainer_step(t, &err), err);
        compare(line, step, t, name);
    }
    weft_trainer_close(t);
    fclose(f);
    n_files++;
    printf("\n    largest relative difference %.2g\n    ", worst);
    return n_runs;
}

static void test_pytorch(void)
{
    CHECK_INT(check_file("preference/preferences.txt"), 26);
}

/* One optimizer step of TRL's trainers, and two epochs of SFT, made by
 * make_trl.py. */
static void test_trl(void)
{
    CHECK_INT(check_file("preference/trl.txt"), 12);
}

/* ---- Layouts ------------------------------------------------------------ */

static const char *const algorithm[][3] = {
    {"algorithm=sft", "data.path=turns.jsonl", "model.actor=actor"},
    {"algorithm=dpo", "data.path=pairs.jsonl", "model.actor=actor"},
    {"algorithm=kto", "data.path=rows.jsonl", "model.actor=actor"},
    {"algorithm=reward_model", "data.path=pairs.jsonl",
     "model.reward_model=actor"}};

static struct weft_hash hash_of(const char *const words[3], const char *name,
                                const char *devices, const char *layout,
                                const char *more)
{
    bool reward = strstr(words[0], "reward") != NULL;
    bool sft = strstr(words[0], "sft") != NULL;
    static const char *const file[2][3] = {
        {"actor/model", "optimizer/actor/exp_avg",
         "optimizer/actor/exp_avg_sq"},
        {"reward_model/model", "optimizer/reward_model/exp_avg",
         "optimizer/reward_model/exp_avg_sq"}};
    const char *word[] = {words[0],
                          words[1],
                          words[2],
                          "data.template=[{role}]{content};",
                          sft ? "data.learn=assistant"
                              : "data.max_prompt_tokens=500",
                          sft ? "train.batch=3" : "train.batch=5",
                          "epochs=1.5", /* 3 steps: the second is small */
                          reward ? "reward_model.lr=1e-3" : "actor.lr=1e-3",
                          "train.micro_batch_tokens=64",
                          "numerics.gradient_groups=4",
                          "numerics.tensor_blocks=2",
                          devices,
                          layout,
                          more,
                          NULL};
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    fixture_steps(t, 3);
    weft_trainer_close(t);
    return fixture_hash_of(&fixture, name, 3, 3, file[reward]);
}

static void test_layouts(void)
{
    static const char *const layout[][3] = {
        {"runtime.devices=1", "layout=dp1", NULL},
        {"runtime.devices=2", "layout=dp2,zero=3", NULL},
        {"runtime.devices=2", "layout=tp2,recompute", "runtime.place=device"},
        {"runtime.devices=4", "layout=dp2pp2,zero=2",
         "train.micro_batches=1"},
        {"runtime.devices=4", "layout=tp2pp2,micro_batches=2",
         "runtime.place=device"},
        {"runtime.devices=4", "layout=dp2tp2,zero=1",
         "train.micro_batch_tokens=40"},
        {"runtime.devices=2", "layout=pp2,offload", "runtime.place=device"}};
    for (size_t a = 0; a < WEFT_COUNT(algorithm); a++) {
        struct weft_hash one = {0};
        for (size_t k = 0; k < WEFT_COUNT(layout); k++) {
            char name[64];
            snprintf(name, sizeof name, "layout-%zu-%zu", a, k);
            struct weft_hash h = hash_of(algorithm[a], name, layout[k][0],
                                         layout[k][1], layout[k][2]);
            if (k == 0)
                one = h;
            if (!weft_hash_equal(one, h))
                printf("\n    %s, %s", algorithm[a][0], layout[k][1]);
            CHECK(weft_hash_equal(one, h));
        }
    }
}

/* A model without a padding token pads with the end of a text. */
static void test_pad(void)
{
    struct weft_err err;
    char *text, *at;
    size_t n;
    fixture_make_model(&fixture, "bare", 3, false, false, "bytes");
    REQUIRE(unlink("bare/generation_config.json") == 0); /* it pads, too */
    REQUIRE_OK(weft_file_read("bare/config.json", 1 << 16, &text, &n, &err),
               err);
    REQUIRE((at = strstr(text, "\"pad_token_id\": 256,")) != NULL);
    memset(at, ' ', strlen("\"pad_token_id\": 256,"));
    REQUIRE_OK(weft_file_write("bare/config.json", text, n, &err), err);
    weft_free(text);
    const char *const bare[] = {algorithm[3][0], algorithm[3][1],
                                "model.reward_model=bare"};
    struct weft_hash a = hash_of(algorithm[3], "padded", "runtime.devices=1",
                                 "layout=dp1", NULL);
    struct weft_hash b = hash_of(bare, "bare-run", "runtime.devices=1",
                                 "layout=dp1", NULL);
    CHECK(weft_hash_equal(a, b));
}

/* A run that ends after one step and goes on has the weights of one that does
 * not end. */
static void test_resume(void)
{
    for (size_t a = 0; a < WEFT_COUNT(algorithm); a++) {
        bool reward = strstr(algorithm[a][0], "reward") != NULL;
        const char *word[] = {algorithm[a][0],
                              algorithm[a][1],
                              algorithm[a][2],
                              a % 2 ? "iterations=4" : "epochs=2",
                              a == 0 ? "train.batch=3" : "train.batch=5",
                              "checkpoint.every=1",
                              "data.template=[{role}]{content};",
                              NULL};
        const char *file = reward ? "reward_model/model" : "actor/model";
        char name[2][64];
        for (int k = 0; k < 2; k++) {
            snprintf(name[k], sizeof name[k], "resume-%zu-%d", a, k);
            struct weft_trainer *t = fixture_open(&fixture, name[k], word);
            fixture_steps(t, k ? 2 : 4);
            weft_trainer_close(t);
            t = k ? fixture_open(&fixture, name[k], word) : NULL;
            if (t)
                fixture_steps(t, 2);
            weft_trainer_close(t);
        }
        CHECK(
            weft_hash_equal(fixture_hash_of(&fixture, name[0], 4, 1, &file),
                            fixture_hash_of(&fixture, name[1], 4, 1, &file)));
    }
}

/* ---- Bad input ---------------------------------------------------------- */

static void refused(const char *words, const char *row, const char *part)
{
    static struct words w;
    struct weft_err err = {0};
    struct weft_trainer *t = NULL;
    FILE *f = fopen("bad.jsonl", "w");
    REQUIRE(f != NULL);
    fprintf(f,
            "{\"prompt\": \"p\", \"chosen\": \"c\", \"rejected\": "
            "\"r\"}\n%s\n",
            row);
    fclose(f);
    snprintf(w.text, sizeof w.text,
             "run_dir=bad iterations=1 data.path=bad.jsonl %s %s",
             strstr(words, "=reward") ? "model.reward_model=actor"
                                      : "model.actor=actor",
             words);
    split(&w);
    int n = 0;
    while (w.word[n])
        n++;
    CHECK_FAILS(weft_trainer_open(fixture.config, n, w.word, &t, &err),
                err.code, err, part);
    CHECK(err.code != 0);
}

static void test_refused(void)
{
    refused("algorithm=dpo", "{\"prompt\": \"p\", \"chosen\": \"c\"}",
            "bad.jsonl:2: no rejected answer: there is no 'rejected'");
    refused("algorithm=reward_model",
            "{\"prompt\": \"p\", \"rejected\": \"c\"}",
            "bad.jsonl:2: no chosen answer: there is no 'chosen'");
    refused("algorithm=dpo",
            "{\"prompt\": \"p\", \"chosen\": \"\", \"rejected\": \"r\"}",
            "bad.jsonl' line 2: the chosen response is empty");
    refused("algorithm=dpo",
            "{\"prompt\": \"p\", \"chosen\": \"c\", \"rejected\": \"c\"}",
            "bad.jsonl' line 2: 'chosen' and 'rejected' are the same 3 "
            "tokens");
    refused("algorithm=reward_model",
            "{\"prompt\": \"p\", \"chosen\": \"c\", \"rejected\": \"r\", "
            "\"margin\": \"much\"}",
            "bad.jsonl:2: 'margin' must be a number, not a string");
    refused("algorithm=reward_model reward_model.margin=scores",
            "{\"prompt\": \"p\", \"chosen\": \"c\", \"rejected\": \"r\"}",
            "line 1: 'score_chosen' and 'score_rejected' are not both there");
    refused("algorithm=kto", "{\"prompt\": \"p\", \"completion\": \"c\"}",
            "bad.jsonl:2: no label");
    refused("algorithm=kto",
            "{\"prompt\": \"p\", \"completion\": \"c\", \"label\": \"good\"}",
            "line 2: the label is 'good'; it must be true or false");
    refused("algorithm=kto", "{\"prompt\": \"p\", \"chosen\": \"c\"}",
            "bad.jsonl:2: no rejected answer");
    refused("algorithm=kto iterations=0 epochs=1 train.batch=2",
            "{\"prompt\": \"p\", \"completion\": \"c\", \"label\": true}",
            "leaves a single row of");
    refused("algorithm=dpo epochs=2", "",
            "'epochs' is 2 and 'iterations' is 1; set the one to 0");
    refused("algorithm=dpo iterations=0", "",
            "'iterations' is missing (and 'epochs', which may stand in its "
            "place)");
    refused("algorithm=dpo iterations=0 epochs=-1", "", "'epochs' must be");
    refused("algorithm=dpo iterations=0 train.batch=1 epochs=1e9", "",
            "'epochs' must be");
    refused("algorithm=kto train.batch=1", "", "must be at least 2");
    refused("algorithm=dpo dpo.loss=ipo dpo.label_smoothing=0.1", "",
            "'dpo.label_smoothing' has a meaning with dpo.loss sigmoid");
    refused("algorithm=dpo reward_model.center=1", "",
            "'reward_model.center' is not a key of algorithm dpo");
    refused("algorithm=dpo data.max_prompt_tokens=3",
            "{\"prompt\": \"long one\", \"chosen\": \"c\", \"rejected\": "
            "\"r\"}",
            "line 2: the prompt has 8 tokens, data.max_prompt_tokens is 3");
}

static void test_remove(void)
{
    fixture_remove(&fixture);
}

WEFT_TESTS("run/preference", {"make", test_make},
           {"test_pytorch", test_pytorch}, {"test_trl", test_trl},
           {"test_layouts", test_layouts}, {"test_pad", test_pad},
           {"test_resume", test_resume}, {"test_refused", test_refused},
           {"remove", test_remove})
