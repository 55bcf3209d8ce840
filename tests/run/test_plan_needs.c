/* SPDX-License-Identifier: Apache-2.0 */
#include "job/plan_needs.h"
#include "job/run_config.h"

#include "run_fixture.h"

static struct fixture f;
static struct weft_err err;
static struct weft_config config;
static struct weft_run_needs needs;
static struct weft_plan plan;

/* The plan of the call of that name; none: zeros. */
static const struct weft_call_plan *call(const char *name)
{
    static const struct weft_call_plan none;
    int32_t i = weft_flow_find_call(&plan.flow, name);
    return i < 0 ? &none : &plan.call[i];
}

/* The fixture's run on 2 nodes of 2 with up to three words. */
static void open_run(const char *a, const char *b, const char *c)
{
    const char *word[] = {a, b, c};
    int n = 0;
    while (n < 3 && word[n])
        n++;
    if (!f.config[0])
        fixture_make(&f);
    REQUIRE_OK(weft_run_config_read(f.config, n, word, &config, &err), err);
}

static int make(const char *a, const char *b, const char *c)
{
    open_run(a, b, c);
    int rc = weft_run_needs_read(&config, 2, 2, 0, &needs, &err);
    if (!rc)
        rc = weft_run_plan(&config, &needs.plan, &plan, &err);
    weft_config_release(&config);
    return rc;
}

static void init_model(const char *name, int32_t layers, int32_t heads,
                       int32_t vocab, bool scalar)
{
    struct weft_init_options o = {.family = WEFT_LLAMA,
                                  .hidden = 64,
                                  .layers = layers,
                                  .heads = heads,
                                  .kv_heads = heads,
                                  .intermediate = 512,
                                  .vocab = vocab,
                                  .max_positions = 64,
                                  .std = 0.1,
                                  .dtype = WEFT_F32,
                                  .seed = 3,
                                  .scalar_head = scalar,
                                  .tokenizer = "bytes"};
    char path[512];
    snprintf(path, sizeof path, "%s/%s", f.dir, name);
    REQUIRE_OK(weft_init_model(&o, path, NULL, &err), err);
}

static const struct weft_shape *shape(const char *role)
{
    int32_t r = weft_flow_find_role(&needs.flow, role);
    REQUIRE(r >= 0 && needs.plan.shape[r] == &needs.shape[r]);
    return &needs.shape[r];
}

static void test_needs_ppo(void)
{
    open_run(NULL, NULL, NULL);
    REQUIRE_OK(weft_run_needs_read(&config, 3, 5, 0, &needs, &err), err);
    const struct weft_plan_needs *p = &needs.plan;
    CHECK_INT(p->n_nodes, 3);
    CHECK_INT(p->n_devices, 5);
    CHECK_INT(p->gradient_groups, 4);
    CHECK_INT(p->n_samples, 12);
    CHECK_INT(p->flow->n_roles, 3);
    const struct weft_shape *actor = shape("actor");
    CHECK_INT(actor->n_layers, 2);
    CHECK_INT(actor->n_blocks, 4);
    CHECK(!actor->scalar_head && shape("critic")->scalar_head);
    CHECK(!shape("reference")->scalar_head);
    weft_config_release(&config);
}

static void test_needs_calls(void)
{
    open_run("ppo.kl.place=none", "ppo.kl.controller=fixed", NULL);
    REQUIRE_OK(weft_run_needs_read(&config, 1, 1, 0, &needs, &err), err);
    CHECK_INT(weft_flow_find_role(&needs.flow, "reference"), -1);
    CHECK_INT(weft_flow_find_call(&needs.flow, "ref_infer"), -1);
    weft_config_release(&config);

    char path[512];
    static const char sft[] = "algorithm: sft\niterations: 1\n"
                              "data.path: d\nmodel.actor: model\n"
                              "train.batch: 7\n";
    snprintf(path, sizeof path, "%s/sft.yaml", f.dir);
    REQUIRE_OK(weft_file_write(path, sft, sizeof sft - 1, &err), err);
    REQUIRE_OK(weft_run_config_read(path, 0, NULL, &config, &err), err);
    REQUIRE_OK(weft_run_needs_read(&config, 1, 1, 0, &needs, &err), err);
    CHECK_INT(needs.flow.n_roles, 1);
    CHECK_INT(needs.flow.n_calls, 3);
    CHECK_INT(weft_flow_find_call(&needs.flow, "actor_train"), 2);
    CHECK_INT(needs.plan.n_samples, 7);
    weft_config_release(&config);
}

/* Two reward models are two roles, each with a call of its own. */
static void test_needs_rewards(void)
{
    char word[2048];
    init_model("deep", 5, 2, 259, true);
    init_model("wide", 3, 8, 259, true);
    snprintf(word, sizeof word,
             "reward=[{type: model, model: \"%s/wide\", name: a}, {type: "
             "model, model: \"%s/deep\", name: b}]",
             f.dir, f.dir);
    open_run(word, NULL, NULL);
    REQUIRE_OK(weft_run_needs_read(&config, 1, 1, 0, &needs, &err), err);
    CHECK_INT(shape("reward")->n_layers, 3);
    CHECK_INT(shape("reward")->n_blocks, 4);
    CHECK_INT(shape("reward_2")->n_layers, 5);
    CHECK_INT(shape("reward_2")->n_blocks, 2);
    CHECK(weft_flow_find_call(&needs.flow, "reward_2_infer") > 0);
    weft_config_release(&config);
}

static void needs_refused(const char *word, int rc, const char *part)
{
    open_run(word, NULL, NULL);
    CHECK_FAILS(weft_run_needs_read(&config, 1, 1, 0, &needs, &err), rc, err,
                part);
    weft_config_release(&config);
}

static void test_needs_refused(void)
{
    char word[1024];
    init_model("other", 2, 4, 300, false);
    snprintf(word, sizeof word, "model.reference=%s/other", f.dir);
    needs_refused(word, WEFT_EINVAL, "has a vocabulary of 300, the actor's");
    /* a reference of any shape, unless it is to become the policy */
    init_model("taller", 3, 4, 259, false);
    snprintf(word, sizeof word, "model.reference=%s/taller", f.dir);
    open_run(word, NULL, NULL);
    REQUIRE_OK(weft_run_needs_read(&config, 1, 1, 0, &needs, &err), err);
    weft_config_release(&config);
    open_run(word, "reference.every=1", NULL);
    CHECK_FAILS(weft_run_needs_read(&config, 1, 1, 0, &needs, &err),
                WEFT_EINVAL, err, "reference: '");
    CHECK(strstr(err.text, "/taller' is of another shape than the actor's '")
          != NULL);
    weft_config_release(&config);
    open_run("reference.every=1", NULL, NULL);
    REQUIRE_OK(weft_run_needs_read(&config, 1, 1, 0, &needs, &err), err);
    weft_config_release(&config);
    snprintf(word, sizeof word, "model.actor=%s/deep", f.dir);
    needs_refused(word, WEFT_EINVAL, "a language model is needed");
    snprintf(word, sizeof word, "reward=[{type: model, model: \"%s/other\"}]",
             f.dir);
    needs_refused(word, WEFT_EINVAL,
                  "reward 0: '"); /* and then the folder's name */
    CHECK(strstr(err.text, "is a language model") != NULL);
    needs_refused("model.critic=/nonexistent", WEFT_ENOTFOUND, "critic: ");
    needs_refused("numerics.tensor_blocks=8", WEFT_EINVAL,
                  "tensor_blocks 8 does not divide the 4 query heads");
}

static void test_plan_of_keys(void)
{
    REQUIRE_OK(make(NULL, NULL, NULL), err);
    CHECK_INT(call("ref_infer")->dp, 4);
    CHECK_INT(call("actor_train")->dp, 4);
    CHECK(!call("actor_train")->recompute);
    CHECK(!call("ref_infer")->offload);

    REQUIRE_OK(
        make("train.zero=2", "train.micro_batches=3", "train.recompute=true"),
        err);
    for (int c = 1; c < plan.flow.n_calls; c++) {
        bool trains = plan.flow.call[c].kind == WEFT_TRAIN;
        CHECK_INT(plan.call[c].zero, trains ? 2 : 0);
        CHECK_INT(plan.call[c].micro_batches, trains ? 3 : 0);
        CHECK_INT(plan.call[c].recompute, trains);
        CHECK_INT(plan.call[c].offload, 0);
    }
    REQUIRE_OK(make("layout=dp2tp2,zero=1", "train.zero=2",
                    "model.reference_offload=true"),
               err);
    CHECK_INT(call("actor_train")->tp, 2);
    CHECK_INT(call("actor_train")->zero, 1);
    CHECK(call("ref_infer")->offload);
    CHECK_INT(call("reward_infer")->dp, 0);
    REQUIRE_OK(make("layout=dp2", "train.offload_optimizer=true", NULL), err);
    CHECK(call("actor_train")->offload && !call("ref_infer")->offload);
    CHECK_FAILS(make("layout=dp1tp1pp4", NULL, NULL), WEFT_EINVAL, err,
                "actor_generate: pp 4 is more than the model's 2 layers");
    CHECK_FAILS(make("layout=dp3", NULL, NULL), WEFT_EINVAL, err,
                "layout 'dp3' takes 3 devices");
}

/* A file says all itself; what the run does not do is left out. */
static void test_plan_of_file(void)
{
    char path[512], word[600];
    snprintf(path, sizeof path, "%s/plan.json", f.dir);
    snprintf(word, sizeof word, "plan=%s", path);
    REQUIRE_OK(make("layout=tp2pp2,zero=3", NULL, NULL), err);
    int32_t more = weft_flow_guess(&plan.flow, "reward_infer");
    plan.call[more] = *call("ref_infer");
    REQUIRE_OK(weft_plan_write(&plan, path, &err), err);
    REQUIRE_OK(make(word, "train.zero=1", "train.recompute=true"), err);
    CHECK_INT(call("actor_train")->pp, 2);
    CHECK_INT(call("actor_train")->zero, 3);
    CHECK(!call("actor_train")->recompute);
    CHECK_INT(call("reward_infer")->dp, 0);
    weft_plan_release(&plan);

    REQUIRE_OK(make("layout=tp2pp2", NULL, NULL), err);
    plan.call[weft_flow_find_call(&plan.flow, "critic_infer")].dp = 0;
    REQUIRE_OK(weft_plan_write(&plan, path, &err), err);
    CHECK_FAILS(make(word, NULL, NULL), WEFT_EINVAL, err,
                "plan.json: critic_infer: the run makes this call");
    CHECK_FAILS(make("plan=/nonexistent", NULL, NULL), WEFT_ENOTFOUND, err,
                "/nonexistent");
    fixture_remove(&f);
}

WEFT_TESTS("run/plan_needs", {"test_needs_ppo", test_needs_ppo},
           {"test_needs_calls", test_needs_calls},
           {"test_needs_rewards", test_needs_rewards},
           {"test_needs_refused", test_needs_refused},
           {"test_plan_of_keys", test_plan_of_keys},
           {"test_plan_of_file", test_plan_of_file})
