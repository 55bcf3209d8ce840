/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lm/lm.c: what `weft generate` generates against Transformers, whose tokens
 * and log-probs are in tests/data/golden/greedy.txt (make_greedy.py beside it),
 * and what ends it, against its own text without an end.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "harness.h"
#include "lm/init.h"
#include "lm/lm.h"
#include "weft.h"

enum { MOST = 64, EOS = 3 };

/* A line of the goldens. */
struct golden {
    char family[16];
    int32_t least, most, n_eos, n_prompt, n;
    int32_t eos[EOS], prompt[MOST], token[MOST];
    double logp[MOST];
};

/* The numbers up to the next ':' or the end. */
static int32_t numbers(char **at, double out[MOST])
{
    int32_t n = 0;
    for (char *end; n < MOST; n++, *at = end) {
        out[n] = strtod(*at, &end);
        if (end == *at)
            break;
    }
    *at += strspn(*at, " :\n");
    return n;
}

static int32_t integers(char **at, int32_t *out)
{
    double x[MOST];
    int32_t n = numbers(at, x);
    for (int32_t i = 0; i < n; i++)
        out[i] = (int32_t) x[i];
    return n;
}

static bool next_golden(FILE *f, struct golden *g)
{
    char line[4096], *at = line;
    int32_t given[MOST];
    int n = 0;
    if (!fgets(line, sizeof line, f))
        return false;
    REQUIRE(sscanf(line, "%15s%n", g->family, &n) == 1);
    at += n;
    REQUIRE(integers(&at, given) == 2);
    g->least = given[0];
    g->most = given[1];
    g->n_eos = integers(&at, given);
    REQUIRE(g->n_eos <= EOS);
    memcpy(g->eos, given, sizeof g->eos);
    g->n_prompt = integers(&at, g->prompt);
    g->n = integers(&at, g->token);
    REQUIRE(g->n > 0 && numbers(&at, g->logp) == g->n && !*at);
    return true;
}

static int check_sample(void *ctx, int32_t p, int32_t s,
                        const struct weft_rollout *r, struct weft_err *err)
{
    const struct golden *g = ctx;
    const float *logp = weft_rollout_logp(r) + r->n_prompt;
    (void) p;
    (void) s;
    (void) err;
    CHECK_INT(r->n_total - r->n_prompt, g->n);
    CHECK(memcmp(weft_rollout_token(r) + r->n_prompt, g->token,
                 (size_t) (r->n_total - r->n_prompt) * 4)
          == 0);
    for (int32_t i = 0; i < r->n_total - r->n_prompt; i++)
        CHECK(fabs((double) logp[i] - g->logp[i]) < 1e-4);
    return 0;
}

static void test_min_new_tokens(void)
{
    FILE *f = fopen(weft_test_data("golden/greedy.txt"), "r");
    struct weft_context *context;
    struct weft_model *model = NULL;
    struct golden g;
    struct weft_err err;
    char family[16] = "";
    int n = 0, n_held = 0;
    REQUIRE(f != NULL);
    REQUIRE_OK(weft_context_open(2, &context, &err), err);
    for (; next_golden(f, &g); n++) {
        char folder[64];
        snprintf(folder, sizeof folder, "golden/%s", g.family);
        if (strcmp(g.family, family) != 0) {
            weft_model_close(model);
            REQUIRE_OK(weft_model_open(context, weft_test_data(folder), "f32",
                                       &model, &err),
                       err);
            strcpy(family, g.family);
        }
        model->arch.n_eos = g.n_eos;
        memcpy(model->arch.eos, g.eos, sizeof g.eos);
        const struct weft_lm_prompt prompt = {g.prompt, g.n_prompt};
        const struct weft_lm_options o = {.sampling = {0, 0, 1, 1},
                                          .max_new_tokens = g.most,
                                          .min_new_tokens = g.least,
                                          .samples = 1};
        REQUIRE_OK(
            weft_lm_generate(model, &o, 1, &prompt, check_sample, &g, &err),
            err);
        n_held += g.least > 1 && g.n > g.least;
    }
    CHECK(n >= 40 && n_held > 5);
    weft_model_close(model);
    weft_context_close(context);
    fclose(f);
}

/* ---- Stop texts, blocks of the KV cache --------------------------------- */

enum { PROMPTS = 5, SAMPLES = 3, ALL = PROMPTS * SAMPLES, NEW = 90 };

/* All samples of a call. */
struct samples {
    int32_t n[ALL], token[ALL][NEW];
    bool ended[ALL];
};

static int take_sample(void *ctx, int32_t p, int32_t s,
                       const struct weft_rollout *r, struct weft_err *err)
{
    struct samples *all = ctx;
    int32_t i = p * SAMPLES + s;
    (void) err;
    all->n[i] = r->n_total - r->n_prompt;
    all->ended[i] = r->ended;
    REQUIRE(all->n[i] <= NEW);
    memcpy(all->token[i], weft_rollout_token(r) + r->n_prompt,
           (size_t) all->n[i] * 4);
    return 0;
}

static void generate(struct weft_model *model,
                     const struct weft_lm_options *changes,
                     struct samples *out)
{
    int32_t text[PROMPTS] = {'a', 'b', 'a', 'c', 'a'};
    struct weft_lm_prompt prompt[PROMPTS];
    struct weft_lm_options o = *changes;
    struct weft_err err;
    for (int32_t i = 0; i < PROMPTS; i++)
        prompt[i] = (struct weft_lm_prompt){&text[i], 1};
    o.sampling = (struct weft_k_sampling){1, 0, 1, 5};
    o.max_new_tokens = NEW;
    o.samples = SAMPLES;
    o.slots = 4;
    memset(out, 0, sizeof *out);
    REQUIRE_OK(
        weft_lm_generate(model, &o, PROMPTS, prompt, take_sample, out, &err),
        err);
}

/* How often a text is in the first n tokens, which are bytes. */
static int32_t count(const int32_t *token, int32_t n, const char *text)
{
    int32_t found = 0, length = (int32_t) strlen(text);
    for (int32_t i = 0; i + length <= n; i++) {
        int32_t k = 0;
        while (k < length && token[i + k] == (unsigned char) text[k])
            k++;
        found += k == length;
    }
    return found;
}

/* With `stop` a sample is what it is without, up to where it has a text of
 * these behind its first `least` tokens. */
static void check_stops(const struct samples *all, const struct samples *cut,
                        int32_t n_stop, const char *const *stop,
                        int32_t least, int *n_cut)
{
    for (int32_t i = 0; i < ALL; i++) {
        const int32_t *token = all->token[i];
        int32_t n = least;
        bool ends = false;
        while (!ends && n < all->n[i]) {
            n++;
            for (int32_t k = 0; k < n_stop; k++)
                ends = ends
                    || count(token, n, stop[k])
                           > count(token, n - 1, stop[k]);
        }
        CHECK_INT(cut->n[i], n);
        CHECK(memcmp(cut->token[i], token, (size_t) n * 4) == 0);
        CHECK(cut->ended[i] == ends);
        *n_cut += ends;
    }
}

static void test_stops(void)
{
    static struct samples all, some;
    char dir[] = "/tmp/weft-test-XXXXXX", path[40], text[8][3];
    const char *stop[8];
    struct weft_init_options init = {.seed = 7, .tokenizer = "bytes"};
    struct weft_context *context;
    struct weft_model *model;
    struct weft_err err;
    int32_t n_stop = 0;
    int n_cut = 0;
    REQUIRE(mkdtemp(dir) != NULL && weft_init_preset("nano", &init));
    snprintf(path, sizeof path, "%s/model", dir);
    REQUIRE_OK(weft_init_model(&init, path, NULL, &err), err);
    REQUIRE_OK(weft_context_open(2, &context, &err), err);
    REQUIRE_OK(weft_model_open(context, path, "f32", &model, &err), err);
    /* Nothing ends a sample: the first's tenth token would. */
    generate(model, &(struct weft_lm_options){.ignore_eos = true}, &all);
    model->arch.n_eos = 1;
    model->arch.eos[0] = all.token[0][9];
    generate(model, &(struct weft_lm_options){.ignore_eos = true}, &some);
    CHECK(memcmp(&all, &some, sizeof all) == 0);
    for (int32_t i = 0; i < ALL; i++)
        CHECK_INT(all.n[i], NEW);
    generate(model, &(struct weft_lm_options){0}, &some);
    CHECK(some.ended[0] && some.n[0] <= 10);
    /* Waiting for blocks changes nothing. */
    generate(model,
             &(struct weft_lm_options){.ignore_eos = true, .kv_blocks = 2},
             &some);
    CHECK(memcmp(&all, &some, sizeof all) == 0);
    /* Texts of two bytes that samples have. */
    for (int32_t i = 0; i < ALL; i++)
        for (int32_t k = 20; k + 1 < NEW && n_stop < 8; k++) {
            const int32_t *t = &all.token[i][k];
            if (t[0] <= ' ' || t[0] > '~' || t[1] <= ' ' || t[1] > '~')
                continue;
            snprintf(text[n_stop], 3, "%c%c", (char) t[0], (char) t[1]);
            stop[n_stop] = text[n_stop];
            n_stop++;
            break;
        }
    REQUIRE(n_stop >= 4);
    for (int32_t n = 1; n <= n_stop; n++)
        for (int32_t least = 0; least <= 40; least += 40) {
            const struct weft_lm_options o = {.ignore_eos = true,
                                              .min_new_tokens = least,
                                              .n_stop_texts = n,
                                              .stop_text = stop};
            generate(model, &o, &some);
            check_stops(&all, &some, n, stop, least, &n_cut);
        }
    CHECK(n_cut > n_stop);
    weft_model_close(model);
    weft_context_close(context);
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
}

/* ---- Devices that share a replica --------------------------------------- */

enum { TEXTS = 3, LENGTH = 40 };

static void score(struct weft_model *model, float out[TEXTS][LENGTH])
{
    struct weft_lm_prompt text[TEXTS];
    int32_t token[LENGTH];
    float *logp[TEXTS];
    struct weft_err err;
    for (int32_t i = 0; i < LENGTH; i++)
        token[i] = 'a' + i % 7;
    for (int32_t i = 0; i < TEXTS; i++) {
        text[i] = (struct weft_lm_prompt){token, LENGTH - 9 * i};
        logp[i] = out[i];
    }
    memset(out, 0, sizeof(float[TEXTS][LENGTH]));
    REQUIRE_OK(weft_lm_score(model, TEXTS, text, 1, logp, &err), err);
}

/* Devices that share a replica, of which there are more than cores: the same
 * bits. */
static void check_tp(bool scalar)
{
    static struct samples base, other;
    float logp[2][TEXTS][LENGTH];
    char dir[] = "/tmp/weft-test-XXXXXX", path[40];
    struct weft_init_options init = {.seed = 7, .tokenizer = "bytes"};
    const struct weft_lm_options o = {.ignore_eos = true};
    struct weft_context *context;
    struct weft_model *model;
    struct weft_err err;
    REQUIRE(mkdtemp(dir) != NULL && weft_init_preset("nano", &init));
    init.intermediate = 256; /* four blocks */
    init.scalar_head = scalar;
    snprintf(path, sizeof path, "%s/model", dir);
    REQUIRE_OK(weft_init_model(&init, path, NULL, &err), err);
    REQUIRE_OK(weft_context_open(4, &context, &err), err);
    REQUIRE_OK(weft_model_open(context, path, "f32", &model, &err), err);
    REQUIRE(model->arch.shape.n_blocks == 4);
    for (int32_t tp = 1; tp <= 4; tp *= 2) {
        model->tp = tp;
        score(model, logp[tp > 1]);
        CHECK(memcmp(logp[0], logp[tp > 1], sizeof logp[0]) == 0);
        if (scalar)
            continue;
        generate(model, &o, tp > 1 ? &other : &base);
        CHECK(tp == 1 || memcmp(&base, &other, sizeof base) == 0);
    }
    CHECK(logp[0][0][scalar ? 0 : LENGTH - 1] != 0);
    model->tp = 3;
    CHECK_INT(weft_lm_score(model, 0, NULL, 1, NULL, &err), WEFT_EINVAL);
    CHECK(strstr(err.text, "--tp 3: it must divide the 4 devices") != NULL);
    weft_model_close(model);
    weft_context_close(context);
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
}

static void test_tp(void)
{
    check_tp(false);
    check_tp(true);
}

WEFT_TESTS("lm/generate", {"test_min_new_tokens", test_min_new_tokens},
           {"test_stops", test_stops}, {"test_tp", test_tp})
