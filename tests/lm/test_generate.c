/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lm/lm.c: what `weft generate` generates against Transformers, whose tokens
 * and log-probs are in tests/data/golden/greedy.txt (make_greedy.py beside it),
 * and what ends it, against its own text without an end.
 */
#include "goldens.h"

#include "base/file.h"
#include "lm/init.h"

static void test_min_new_tokens(void)
{
    struct weft_context *context;
    struct weft_err err;
    REQUIRE_OK(weft_context_open(2, &context, &err), err);
    check_goldens(context);
    weft_context_close(context);
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
