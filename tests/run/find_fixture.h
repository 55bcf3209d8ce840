/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that are found for small runs on a cluster of four devices. */
#ifndef WEFT_TESTS_FIND_FIXTURE_H
#define WEFT_TESTS_FIND_FIXTURE_H

#include "run_fixture.h"

#include <math.h>

#include "job/plan_needs.h"
#include "job/run_config.h"
#include "run/predict/options_inside.h"

static struct fixture fixture;
static struct weft_err err;
/* Configurations beside the fixture's own: both models deep, or the critic. */
static char deep[512], deep_critic[512];

/* One gradient group and one tensor block: training has stages or one device,
 * and a step two micro-batches at most. */
#define SMALL                                                                \
    "numerics.gradient_groups=1", "numerics.tensor_blocks=1",                \
        "rollout.prompts=2", "rollout.samples_per_prompt=1",                 \
        "ppo.mini_batches=1", "ppo.epochs=1"

#define LONG                                                                 \
    "numerics.gradient_groups=1", "numerics.tensor_blocks=1",                \
        "rollout.prompts=32", "rollout.samples_per_prompt=1",                \
        "rollout.max_new_tokens=150", "rollout.chunk_tokens=4",              \
        "ppo.mini_batches=1", "ppo.epochs=1"

static const char cluster_yaml[] =
    "name: four\n"
    "kinds:\n"
    "  - {name: node, nodes: 1, devices: 4, memory_gib: 4,\n"
    "     tflops: {f32: 0.1, bf16: 0.2}, memory_gbs: 20, task_us: 1,\n"
    "     inside: {gbs: 10, us: 1}, network: {rails: 1, gbs: 1, us: 20}}\n";

static inline void write_config(bool actor, const char *name, char path[512])
{
    char text[sizeof fixture_yaml];
    memcpy(text, fixture_yaml, sizeof text);
    char *a = strstr(text, "actor: model"),
         *c = strstr(text, "critic: model");
    REQUIRE(a != NULL && c != NULL);
    if (actor)
        memcpy(a, "actor: deep ", 12);
    memcpy(c, "critic: deep ", 13);
    snprintf(path, 512, "%s/%s", fixture.dir, name);
    REQUIRE_OK(weft_file_write(path, text, sizeof text - 1, &err), err);
}

static inline void make_runs(void)
{
    struct weft_init_options o = fixture_model();
    char path[512];
    fixture_make(&fixture);
    o.layers = 8;
    fixture_init_model(&fixture, "deep", &o);
    /* all prompts have 100 tokens, so that micro-batches are alike */
    snprintf(path, sizeof path, "%s/prompts.jsonl", fixture.dir);
    FILE *data = fopen(path, "w");
    REQUIRE(data != NULL);
    for (int i = 0; i < 20; i++)
        fprintf(data, "{\"prompt\": \"%0100d\", \"label\": \"%d\"}\n", i, i);
    fclose(data);
    write_config(true, "deep.yaml", deep);
    write_config(false, "critic.yaml", deep_critic);
    snprintf(path, sizeof path, "%s/cluster.yaml", fixture.dir);
    REQUIRE_OK(
        weft_file_write(path, cluster_yaml, sizeof cluster_yaml - 1, &err),
        err);
}

/* ---- A finding ---------------------------------------------------------- */

struct finding {
    struct weft_config config;
    struct weft_run_needs needs;
    struct weft_cluster cluster;
    struct weft_lengths lengths;
    struct weft_simulate_options simulate;
    struct weft_find find;
};

static const char *lengths = "max"; /* of responses */

static inline void open_finding(struct finding *f, const char *config,
                                int32_t n_devices, const char *const *word)
{
    char path[512];
    int n = 0;
    while (word[n])
        n++;
    REQUIRE_OK(weft_run_config_read(config, n, word, &f->config, &err), err);
    snprintf(path, sizeof path, "%s/cluster.yaml", fixture.dir);
    REQUIRE_OK(weft_cluster_read(path, &f->cluster, &err), err);
    REQUIRE_OK(weft_lengths_read(lengths, &f->lengths, &err), err);
    REQUIRE_OK(
        weft_run_needs_read(&f->config, 1, n_devices, 0, &f->needs, &err),
        err);
    f->needs.plan.device_bytes = (int64_t) weft_cluster_device_bytes(
        &f->cluster);
    f->simulate = (struct weft_simulate_options){
        .cluster = &f->cluster, .lengths = &f->lengths, .iterations = 3};
    f->find = (struct weft_find){
        .simulate = &f->simulate,
        .how = {.seed = 1, .evaluations = 4000, .branches = 1000000}};
}

static inline void close_finding(struct finding *f)
{
    weft_lengths_release(&f->lengths);
    weft_config_release(&f->config);
}

static inline bool next_choice(const struct weft_search_problem *p,
                               int32_t *choice)
{
    for (int32_t c = 0; c < p->n_calls; c++) {
        if (++choice[c] < p->call[c].n_options)
            return true;
        choice[c] = 0;
    }
    return false;
}

/* The shortest period of any choice that fits. */
static inline double shortest(const struct weft_search_problem *p)
{
    struct weft_search *s;
    int32_t choice[WEFT_MAX_CALLS] = {0};
    double best = INFINITY;
    REQUIRE_OK(weft_search_create(p, &s, &err), err);
    do {
        struct weft_search_value v = weft_search_value(s, choice);
        if (v.bytes <= p->device_bytes)
            best = fmin(best, v.period);
    } while (next_choice(p, choice));
    weft_search_free(s);
    return best;
}

#endif
