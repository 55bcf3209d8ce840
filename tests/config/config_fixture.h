/* SPDX-License-Identifier: Apache-2.0 */
/* Configurations as texts. */
#ifndef WEFT_TESTS_CONFIG_FIXTURE_H
#define WEFT_TESTS_CONFIG_FIXTURE_H

#include "harness.h"

#include "config/config.h"
#include "graphs/algorithms.h"

/* The least a PPO run needs. */
#define LEAST                                                                \
    "iterations: 3\n"                                                        \
    "data: {path: p.jsonl}\n"                                                \
    "model: {actor: m/a, critic: m/c}\n"                                     \
    "reward: [{type: gsm8k}]\n"

/* The same of SFT. */
#define SFT "algorithm: sft\niterations: 5\ndata.path: d\nmodel.actor: a\n"

static const struct weft_config_schema schema = {
    .algorithms = weft_algorithms};
static struct weft_config c;
static struct weft_err err;

static int parse(const char *text, int n, const char *const *words)
{
    return weft_config_parse(text, strlen(text), "run.yaml", "/", n, words,
                             &schema, &c, &err);
}

static int with(const char *more)
{
    char text[4096];
    snprintf(text, sizeof text, LEAST "%s", more);
    return parse(text, 0, NULL);
}

#endif
