/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GSM8K with a model folder whose tokenizer and configuration were written by
 * Hugging Face's libraries (tests/data/gsm8k/make_model.py). The data is not
 * shipped: WEFT_GSM8K names the folder with test.jsonl and
 * example_model_solutions.jsonl, else ../shared/data/gsm8k beside the tree.
 */
#include <jansson.h>
#include <math.h>
#include <unistd.h>

#include "harness.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "text/tokenizer.h"
#include "reward/reward.h"

/* Path of a GSM8K file in a static buffer, or NULL when it is not there. */
static const char *gsm8k(const char *name)
{
    static char path[4096];
    const char *dir = getenv("WEFT_GSM8K"), *src = getenv("WEFT_SRCDIR");
    if (dir)
        snprintf(path, sizeof path, "%s/%s", dir, name);
    else
        snprintf(path, sizeof path, "%s/../shared/data/gsm8k/%s",
                 src ? src : ".", name);
    return weft_file_exists(path) ? path : NULL;
}

static void test_tokenizer(void)
{
    struct weft_err err;
    struct weft_tokenizer *tok;
    json_t *list = json_load_file(weft_test_data("gsm8k/goldens.json"), 0,
                                  NULL),
           *entry;
    size_t i;
    REQUIRE(json_array_size(list) == 5);
    REQUIRE_OK(weft_tokenizer_open(weft_test_data("gsm8k/model"), &tok, &err),
               err);
    json_array_foreach(list, i, entry)
    {
        const char *text = json_string_value(json_object_get(entry, "text"));
        json_t *ids = json_object_get(entry, "ids");
        int32_t *found;
        size_t n;
        REQUIRE_OK(weft_tokenizer_encode(tok, text, strlen(text),
                                         WEFT_TOK_SPECIAL, &found, &n, &err),
                   err);
        REQUIRE(n == json_array_size(ids));
        for (size_t k = 0; k < n; k++)
            CHECK_INT(found[k], json_integer_value(json_array_get(ids, k)));
        weft_free(found);
    }
    weft_tokenizer_free(tok);
    json_decref(list);
}

static double metric(struct weft_trainer *t, const char *tag)
{
    double v = NAN;
    CHECK(weft_trainer_metric(t, tag, &v) == 0);
    return v;
}

static void test_train(void)
{
    static const char *const phase[] = {
        "gen", "reward",        "ref",          "values",
        "adv", "update_critic", "update_actor", "step"};
    struct weft_err err;
    struct weft_trainer *t;
    char dir[256], run[512], data[4200], path[512], *text;
    const char *word[2] = {run, data}, *found = gsm8k("test.jsonl");
    size_t n;
    if (!found) {
        weft_test_skip("GSM8K's test.jsonl is not here; WEFT_GSM8K names its "
                       "folder");
        return;
    }
    snprintf(dir, sizeof dir, "%s/weft-gsm8k-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    REQUIRE(mkdtemp(dir) != NULL);
    snprintf(run, sizeof run, "run_dir=%s/run", dir);
    snprintf(data, sizeof data, "data.path=%s", found);
    REQUIRE_OK(weft_trainer_open(weft_test_data("gsm8k/ppo.yaml"), 2, word,
                                 &t, &err),
               err);
    while (!weft_trainer_done(t))
        REQUIRE_OK(weft_trainer_step(t, &err), err);
    CHECK(metric(t, "rollout_train_logprob_abs_diff_max") == 0);
    CHECK(metric(t, "prompt_length/mean") > 30);
    CHECK(metric(t, "response_length/max") <= 48);
    printf("\n    %.0f tokens/s, %.0f generated/s; seconds:",
           metric(t, "perf/total_num_tokens") * metric(t, "perf/steps_per_s"),
           metric(t, "perf/generation_tokens_per_s"));
    for (size_t i = 0; i < sizeof phase / sizeof *phase; i++) {
        snprintf(path, sizeof path, "timing_s/%s", phase[i]);
        printf(" %s %.3f", phase[i], metric(t, path));
    }
    printf("\n    ");
    weft_trainer_close(t);
    /* The samples hold GSM8K's questions and answers. */
    snprintf(path, sizeof path, "%s/run/samples/000002.jsonl", dir);
    REQUIRE_OK(weft_file_read(path, 0, &text, &n, &err), err);
    json_t *row = json_loadb(text, strcspn(text, "\n"), 0, NULL);
    const char *label = json_string_value(json_object_get(row, "label"));
    const char *prompt = json_string_value(json_object_get(row, "prompt"));
    CHECK(label && strstr(label, "#### ") != NULL);
    CHECK(prompt && strncmp(prompt, "<|im_start|>user\n", 17) == 0);
    json_decref(row);
    free(text);
    weft_dir_remove(dir, NULL);
}

/* These solutions end in "A: number" where GSM8K has "#### number". */
static char *with_marker(const char *text)
{
    char *out = calloc(1, strlen(text) + 4);
    const char *mark = NULL;
    REQUIRE(out != NULL);
    for (const char *p = text; (p = strstr(p, "A: ")) != NULL; p++)
        if (p == text || p[-1] == '\n')
            mark = p;
    if (!mark)
        return strcpy(out, text);
    sprintf(out, "%.*s#### %s", (int) (mark - text), text, mark + 3);
    return out;
}

/* The rule agrees with the published labels of 1319 x 4 model solutions. */
static void test_rule(void)
{
    const char *found = gsm8k("example_model_solutions.jsonl");
    static const char *const solver[] = {"6b_finetuning", "6b_verification",
                                         "175b_finetuning",
                                         "175b_verification"};
    char *line = NULL;
    size_t room = 0, n = 0;
    if (!found) {
        weft_test_skip("GSM8K's example_model_solutions.jsonl is not here");
        return;
    }
    FILE *f = fopen(found, "r");
    REQUIRE(f != NULL);
    while (getline(&line, &room, f) > 0) {
        json_t *row = json_loads(line, 0, NULL);
        const char *truth = json_string_value(
            json_object_get(row, "ground_truth"));
        REQUIRE(truth != NULL);
        char *label = with_marker(truth);
        for (int s = 0; s < 4; s++) {
            json_t *entry = json_object_get(row, solver[s]);
            const char *answer = json_string_value(
                json_object_get(entry, "solution"));
            if (!answer)
                continue;
            bool correct = json_is_true(json_object_get(entry, "is_correct"));
            char *response = with_marker(answer);
            bool rule = weft_reward_gsm8k(weft_str_of(response),
                                          weft_str_of(label), false);
            if (rule != correct)
                printf("\n    row %zu %s: %s\n%s\n", n, solver[s], response,
                       label);
            CHECK(rule == correct);
            free(response);
        }
        free(label);
        json_decref(row);
        n++;
    }
    CHECK_INT(n, 1319);
    free(line);
    fclose(f);
}

WEFT_TESTS("run/gsm8k", {"test_tokenizer", test_tokenizer},
           {"test_train", test_train}, {"test_rule", test_rule})
