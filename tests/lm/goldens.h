/* SPDX-License-Identifier: Apache-2.0 */
/* Texts and log-probs of Transformers: tests/data/golden/greedy.txt
 * (make_greedy.py beside it). */
#ifndef WEFT_TESTS_LM_GOLDENS_H
#define WEFT_TESTS_LM_GOLDENS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness.h"
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
static inline int32_t numbers(char **at, double out[MOST])
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

static inline int32_t integers(char **at, int32_t *out)
{
    double x[MOST];
    int32_t n = numbers(at, x);
    for (int32_t i = 0; i < n; i++)
        out[i] = (int32_t) x[i];
    return n;
}

static inline bool next_golden(FILE *f, struct golden *g)
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

static inline int check_sample(void *ctx, int32_t p, int32_t s,
                               const struct weft_rollout *r,
                               struct weft_err *err)
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

/* What is generated on a context's devices, greedily and in f32, is what
 * Transformers generates; log-probs are within 1e-4. */
static inline void check_goldens(struct weft_context *context)
{
    FILE *f = fopen(weft_test_data("golden/greedy.txt"), "r");
    struct weft_model *model = NULL;
    struct golden g;
    struct weft_err err;
    char family[16] = "";
    int n = 0, n_held = 0;
    REQUIRE(f != NULL);
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
    fclose(f);
}

#endif
