/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans that are found for algorithms with other calls than PPO's: ReMax, which
 * generates twice, GRPO, which has no critic, DPO, which generates nothing.
 * Every choice of all their layouts, also of those that a search does not
 * price, by brute force, against what is found and proven; and a run of the
 * found plan against one of one device.
 */
#include "find_fixture.h"

struct algorithm {
    const char *name, *data, *words;
    const char *calls[5];  /* that are placed, in the graph's order */
    const char *before[5]; /* calls whose results each waits for */
};

static const struct algorithm algorithms[] = {
    {"remax",
     "prompts.jsonl",
     "reward: [{type: callback, name: low}]\n"
     "rollout: {prompts: 4, samples_per_prompt: 2, max_new_tokens: 12}\n"
     "ppo: {epochs: 1, mini_batches: 1}\n",
     {"actor_generate", "ref_infer", "actor_train", "actor_greedy_generate"},
     {"", "actor_generate", "actor_generate ref_infer actor_greedy_generate",
      ""}},
    {"grpo",
     "prompts.jsonl",
     "reward: [{type: callback, name: low}]\n"
     "rollout: {prompts: 4, samples_per_prompt: 2, max_new_tokens: 12}\n"
     "ppo: {epochs: 1, mini_batches: 1}\n",
     {"actor_generate", "ref_infer", "actor_train"},
     {"", "actor_generate", "actor_generate ref_infer"}},
    {"dpo",
     "pairs.jsonl",
     "train: {batch: 4}\n",
     {"ref_infer", "actor_train"},
     {"", "ref_infer"}}};

static void write_text(const char *name, const char *text, char path[512])
{
    snprintf(path, 512, "%s/%s", fixture.dir, name);
    REQUIRE_OK(weft_file_write(path, text, strlen(text), &err), err);
}

static void write_run(const struct algorithm *a, char path[512])
{
    char text[1024], pairs[1024] = "";
    for (int i = 0; i < 8; i++)
        snprintf(pairs + strlen(pairs), sizeof pairs - strlen(pairs),
                 "{\"prompt\": \"%.*s\", \"chosen\": \"%.*s\", \"rejected\": "
                 "\"no\"}\n",
                 1 + i, "question", 8 - i, "answered");
    write_text("pairs.jsonl", pairs, path);
    snprintf(text, sizeof text,
             "algorithm: %s\nseed: 5\nrun_dir: unset\niterations: 2\n"
             "data: {path: %s}\nmodel: {actor: model, reference: model}\n%s"
             "actor: {lr: 1e-3}\nnumerics: {gradient_groups: 2}\n"
             "checkpoint: {every: 0, dtype: f32}\n",
             a->name, a->data, a->words);
    write_text("algorithm.yaml", text, path);
}

/* The search knows the algorithm's calls, and what each waits for. */
static void check_graph(const struct algorithm *a,
                        const struct weft_finding *f,
                        const struct weft_search_problem *p)
{
    const struct weft_dataflow *flow = f->needs->flow;
    int32_t n = 0;
    while (n < 5 && a->calls[n])
        n++;
    REQUIRE(p->n_calls == n);
    for (int32_t i = 0; i < n; i++) {
        char before[200] = "";
        CHECK_STR(flow->call[f->call_of[i]].name, a->calls[i]);
        for (int32_t b = 0; b < n; b++)
            if (p->call[i].before >> b & 1)
                snprintf(before + strlen(before),
                         sizeof before - strlen(before), "%s%s",
                         before[0] ? " " : "", a->calls[b]);
        CHECK_STR(before, a->before[i]);
        CHECK(p->call[i].trains == !strcmp(a->calls[i], "actor_train"));
        CHECK(p->call[i].trained == !strncmp(a->calls[i], "actor", 5));
        CHECK(p->call[i].behind == 0); /* only one model is trained */
    }
}

/* Prices what the search has left out. Returns how much that is. */
static int32_t price_rest(struct weft_finding *f)
{
    int32_t n = 0;
    for (int32_t c = 0; c < WEFT_MAX_CALLS; c++)
        for (int32_t k = 0; k < f->candidates[c].n; k++) {
            const struct weft_call_plan *at = &f->candidates[c].at[k].plan;
            struct weft_priced priced[WEFT_MAX_CALLS];
            bool there = false;
            for (int32_t i = 0; i < f->n_variants[c]; i++)
                there = there
                     || !memcmp(&f->variant[c][i].plan, at, sizeof *at);
            if (there)
                continue;
            REQUIRE_OK(
                weft_pricer_price(f->pricer, at, 1u << c, priced, &err), err);
            const struct weft_option o = weft_finding_option(f, c, at,
                                                             &priced[c]);
            REQUIRE_OK(weft_finding_add(f, c, &o, &err), err);
            n++;
        }
    return n;
}

/* Two iterations by a plan, or on one device. */
static struct weft_hash train(const char *config, const char *name,
                              const char *plan)
{
    static const char *const file[] = {"actor/model",
                                       "optimizer/actor/exp_avg",
                                       "optimizer/actor/exp_avg_sq"};
    struct fixture f = fixture;
    snprintf(f.config, sizeof f.config, "%s", config);
    const char *const word[] = {
        "runtime.place=device",
        plan ? "runtime.devices=2" : "runtime.devices=1", plan, NULL};
    struct weft_trainer *t = fixture_open(&f, name, word);
    fixture_steps(t, 2);
    weft_trainer_close(t);
    return fixture_hash_of(&fixture, name, 2, WEFT_COUNT(file), file);
}

static void check(const struct algorithm *a)
{
    static const char *const word[] = {"runtime.place=device", NULL};
    struct finding f;
    struct weft_finding all;
    struct weft_search_problem p;
    struct weft_found found;
    struct weft_plan plan;
    char config[512], path[600], name[64];
    int64_t n = 0;
    write_run(a, config);
    open_finding(&f, config, 2, word);
    REQUIRE_OK(
        weft_finding_open(&f.config, &f.needs.plan, &f.find, &all, &err),
        err);
    CHECK(!weft_finding_fuses(&all));
    CHECK(price_rest(&all) > 0);
    REQUIRE_OK(weft_finding_place(&all, &p, &n, &err), err);
    check_graph(a, &all, &p);
    double best = shortest(&p);
    REQUIRE_OK(
        weft_run_find(&f.config, &f.needs.plan, &f.find, &plan, &found, &err),
        err);
    CHECK(fabs(found.result.value.period - best)
          <= 2 * WEFT_SEARCH_NEAR * best);
    CHECK(found.result.bound <= best * (1 + 1e-9));
    CHECK(found.result.bound >= best * (1 - 2 * WEFT_SEARCH_NEAR));
    CHECK((found.moved_bound == INFINITY) == !strcmp(a->name, "dpo"));
    weft_finding_close(&all);
    close_finding(&f);
    snprintf(path, sizeof path, "plan=%s/%s.json", fixture.dir, a->name);
    REQUIRE_OK(weft_plan_write(&plan, path + 5, &err), err);
    weft_plan_release(&plan);
    snprintf(name, sizeof name, "%s-one", a->name);
    CHECK(weft_hash_equal(train(config, a->name, path),
                          train(config, name, NULL)));
}

static void test_remax(void)
{
    check(&algorithms[0]);
}

static void test_grpo(void)
{
    check(&algorithms[1]);
}

static void test_dpo(void)
{
    check(&algorithms[2]);
}

static void test_remove(void)
{
    fixture_remove(&fixture);
}

WEFT_TESTS("run/find_algorithms", {"make", make_runs}, {"remax", test_remax},
           {"grpo", test_grpo}, {"dpo", test_dpo}, {"remove", test_remove})
