/* SPDX-License-Identifier: Apache-2.0 */
/* A model can write every byte, zero as well: responses reach rewards, files
 * and callers whole. */
#include <jansson.h>
#include <math.h>

#include "run_fixture.h"

#include "base/alloc.h"
#include "base/str.h"
#include "text/unicode/unicode.h"
#include "record/samples.h"

enum { MOST = 64 };

/* The responses that a callback has seen. */
struct seen {
    int n, with_zero;
    struct weft_str response[MOST];
};

static int see(void *ctx, const struct weft_reward_sample *sample,
               double *score_out, struct weft_err *err)
{
    struct seen *seen = ctx;
    struct weft_str r = sample->response;
    REQUIRE(seen->n < MOST);
    CHECK_INT(r.s[r.n], 0);
    bool zero = memchr(r.s, 0, r.n) != NULL;
    seen->with_zero += zero;
    *score_out = zero;
    return weft_str_copy(r, &seen->response[seen->n++], err);
}

/* What the samples' file holds is what the callback saw, and the other
 * rewards judged the same text. */
static void check_samples(const char *run, const struct seen *seen)
{
    struct weft_err err = {0};
    char *path = weft_samples_path(run, 1), *text;
    size_t n;
    REQUIRE_OK(weft_file_read(path, 0, &text, &n, &err), err);
    char *line = text;
    for (int i = 0; i < seen->n; i++) {
        size_t length = strcspn(line, "\n");
        json_t *o = json_loadb(line, length, JSON_ALLOW_NUL, NULL);
        REQUIRE(o != NULL);
        json_t *response = json_object_get(o, "response");
        struct weft_str r = {json_string_value(response),
                             json_string_length(response)};
        CHECK(weft_str_equal(r, seen->response[i]));
        json_t *part = json_object_get(o, "rewards");
        static const char *const reward[] = {"seen", "pattern", "program"};
        for (size_t k = 0; k < WEFT_COUNT(reward); k++) {
            double x = json_number_value(json_object_get(part, reward[k]));
            CHECK(x == (memchr(r.s, 0, r.n) ? 1 : 0));
        }
        json_decref(o);
        line += length + 1;
    }
    CHECK_INT(line - text, n);
    weft_free(text);
    weft_free(path);
}

static void test_zero_bytes_ppo(void)
{
    static const char *const word[] = {
        "iterations=1",
        "samples_kept=-1",
        "rollout.samples_per_prompt=8",
        "rollout.max_new_tokens=24",
        "reward=[{type: callback, name: seen}, "
        "{type: regex, name: pattern, pattern: '\\x00'}, "
        "{type: program, name: program, command: [/bin/sh, -c, "
        "'while read -r l; do case \"$l\" in *u0000*) echo 1;; "
        "*) echo 0;; esac; done']}]",
        NULL};
    struct fixture f;
    struct seen seen = {0};
    char run[512];
    fixture_make(&f);
    struct weft_trainer *t = fixture_open(&f, "run", word);
    weft_trainer_set_reward(t, see, &seen);
    fixture_steps(t, 1);
    weft_trainer_close(t);
    CHECK_INT(seen.n, 48);
    CHECK(seen.with_zero > 0); /* 48 * 24 tokens, 1 of 258 is zero */
    CHECK(seen.with_zero < seen.n);
    snprintf(run, sizeof run, "%s/run", f.dir);
    check_samples(run, &seen);
    for (int i = 0; i < seen.n; i++)
        weft_str_release(&seen.response[i]);
    fixture_remove(&f);
}

/* A completion's text is the bytes of its tokens. */
static bool check_completion(const struct weft_completion *c)
{
    char bytes[16], *text;
    size_t n = 0, n_text;
    struct weft_err err = {0};
    for (size_t i = 0; i < c->n; i++)
        if (c->token[i] < 256) /* the others are special */
            bytes[n++] = (char) c->token[i];
    REQUIRE_OK(weft_utf8_repair(bytes, n, &text, &n_text, &err), err);
    CHECK(weft_str_equal(c->text, (struct weft_str){text, n_text}));
    weft_free(text);
    return n > 0 && memchr(bytes, 0, n - 1);
}

static void test_zero_bytes_library(void)
{
    struct weft_generate_options o = {
        .max_new_tokens = 16, .temperature = 1, .top_p = 1};
    struct weft_context *context;
    struct weft_model *model;
    struct weft_err err = {0};
    struct fixture f;
    char folder[512];
    int32_t *token;
    float *logprob;
    size_t n;
    int found = 0;
    fixture_make(&f);
    snprintf(folder, sizeof folder, "%s/model", f.dir);
    REQUIRE_OK(weft_context_open(1, &context, &err), err);
    REQUIRE_OK(weft_model_open(context, folder, "f32", &model, &err), err);
    for (o.seed = 0; o.seed < 60; o.seed++) {
        struct weft_completion c;
        REQUIRE_OK(weft_model_generate(model, "a\0b", 3, &o, &c, &err), err);
        found += check_completion(&c);
        weft_completion_clear(&c);
    }
    CHECK(found > 0);
    REQUIRE_OK(
        weft_model_logprobs(model, "a\0b", 3, &token, &logprob, &n, &err),
        err);
    REQUIRE(n == 3);
    CHECK(token[0] == 'a' && token[1] == 0 && token[2] == 'b');
    weft_array_free(token);
    weft_array_free(logprob);
    weft_model_close(model);
    weft_context_close(context);
    fixture_remove(&f);
}

WEFT_TESTS("run/zero_bytes", {"test_zero_bytes_ppo", test_zero_bytes_ppo},
           {"test_zero_bytes_library", test_zero_bytes_library})
