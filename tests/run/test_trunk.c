/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What plans know of a critic that is a value head on the actor's weights,
 * against closed forms: calls, operations, bytes, what moves. And who refuses
 * it.
 */
#include "job/plan_needs.h"
#include "recorded_sums.h"

#define SHARES "critic.shares=true"

static double matrices(void)
{
    return L * H * (2 * Q + 2 * KV + 3 * FF);
}

/* In each of four blocks 48 rows of q, k and v are stored as 64; transposed,
 * the 16 columns of o are stored as 32, too. */
static const double PADDED = 2 * 64 * 4 * 16;

/* The trunk's weights as they are stored: the table, the last norm, and of each
 * layer two norms, those of q and k, and matrices; and these transposed. */
static double trunk(void)
{
    return VOCAB * H + H + L * (2 * H + 2 * 16) + matrices() + PADDED;
}

static double transposed(void)
{
    return matrices() + 2 * PADDED;
}

/* ---- Calls -------------------------------------------------------------- */

/* The critic is no role: it infers with the actor, and is trained with it. */
static void test_calls(void)
{
    const char *word[] = {SHARES};
    struct weft_config config;
    struct weft_run_needs needs;
    struct weft_err err;
    REQUIRE_OK(weft_run_config_read(fixture.config, 1, word, &config, &err),
               err);
    REQUIRE_OK(weft_run_needs_read(&config, 1, 2, 0, &needs, &err), err);
    const struct weft_dataflow *flow = &needs.flow;
    int32_t infers = weft_flow_find_call(flow, "critic_infer");
    int32_t trains = weft_flow_find_call(flow, "actor_train");
    REQUIRE(infers > 0 && trains > 0);
    CHECK(weft_flow_find_role(flow, "critic") < 0);
    CHECK(weft_flow_find_call(flow, "critic_train") < 0);
    CHECK_INT(flow->call[infers].role, flow->call[trains].role);
    CHECK_INT(flow->call[trains].reads & flow->call[infers].writes,
              flow->call[infers].writes);
    /* a score vector is all that the actor has more */
    struct weft_shape alone = needs.shape[0];
    CHECK(alone.value_head && !needs.shape[1].value_head);
    alone.value_head = false;
    CHECK_INT(weft_shape_n_params(&needs.shape[0]),
              weft_shape_n_params(&alone) + alone.hidden);
    CHECK(!weft_shape_alike(&needs.shape[0], &alone));
    /* and all that is trained then but adapters */
    struct weft_shape both = needs.shape[0];
    both.lora_rank = alone.lora_rank = 3;
    CHECK_INT(weft_shape_n_trained(&both),
              weft_shape_n_trained(&alone) + alone.hidden);
    check_near("new weights", weft_shape_changed_bytes(&both, 2),
               weft_shape_changed_bytes(&alone, 2) + 4 * H);
    weft_config_release(&config);
}

/* ---- Operations --------------------------------------------------------- */

/* Values take one pass of the trunk and one product with the score vector.
 * Training takes the actor's passes and three products with it, at every place
 * of a tp group (n_places). */
static void check_flop(const char *layout, const struct weft_g_job *job,
                       double tp, double n_places, double rank)
{
    char actor[40];
    const char *word[] = {layout, SHARES, actor, NULL};
    const char *apart[] = {layout, actor, NULL};
    struct described_run d, full;
    snprintf(actor, sizeof actor, "actor.lora_rank=%g", rank);
    describe(job, word, &d);
    describe(job, apart, &full);
    struct rows rows = count_rows(&d);
    double pass = 2 * matrices(),
           adapters = 2 * rank * (tp * whole() + cut());
    double attention = 4 * L * Q * rows.keys, head = 2 * H * VOCAB;
    double frozen = rank > 0; /* no product by weights */
    check_near(layout, flop_of(&d, "critic_infer"),
               (pass + adapters) * rows.all + attention
                   + 2 * H * rows.targets);
    check_near(layout, flop_of(&d, "actor_train"),
               EPOCHS
                   * (((3 - frozen) * pass + 3 * adapters) * rows.all
                      + 3.5 * attention + (3 - frozen) * head * rows.targets
                      + n_places * 3 * 2 * H * rows.targets));
    check_near(layout, flop_of(&d, "actor_generate"),
               flop_of(&full, "actor_generate"));
    forget_run(&d);
    forget_run(&full);
}

static void test_flop(void)
{
    static const double rank[] = {0, 16};
    for (size_t i = 0; i < WEFT_COUNT(rank); i++) {
        check_flop("layout=dp1", &(struct weft_g_job){1, 1, false, 0, false},
                   1, 1, rank[i]);
        check_flop("layout=dp2pp2,zero=2",
                   &(struct weft_g_job){1, 4, false, 0, false}, 1, 1,
                   rank[i]);
        check_flop("layout=tp4", &(struct weft_g_job){1, 4, false, 0, false},
                   4, 1, rank[i]);
        check_flop("layout=tp4", &(struct weft_g_job){1, 4, true, 0, false},
                   4, 4, rank[i]);
    }
}

/* ---- Bytes -------------------------------------------------------------- */

/* f32. A critic apart, with as many adapters, has a trunk more, its matrices
 * transposed, and adapters; of gradients and moments what is trained. */
static void check_bytes(const char *layout, int n_devices, double rank,
                        double gradients, double states, double weights)
{
    const struct weft_g_job job = {1, n_devices, true, 0, false};
    char actor[40], critic[40], groups[40];
    const char *word[] = {layout, actor, SHARES, groups, NULL};
    const char *apart[] = {layout, actor, critic, groups, NULL};
    struct described_run d, full;
    double each = rank * (whole() + cut()), less = rank > 0 ? each : trunk();
    snprintf(actor, sizeof actor, "actor.lora_rank=%g", rank);
    snprintf(critic, sizeof critic, "critic.lora_rank=%g", rank);
    snprintf(groups, sizeof groups, "numerics.gradient_groups=%g", gradients);
    describe(&job, word, &d);
    describe(&job, apart, &full);
    check_near("gradients",
               bytes_of(&full, WEFT_MEM_GRADIENTS)
                   - bytes_of(&d, WEFT_MEM_GRADIENTS),
               4 * gradients * less);
    check_near("optimizer",
               bytes_of(&full, WEFT_MEM_OPTIMIZER)
                   - bytes_of(&d, WEFT_MEM_OPTIMIZER),
               2 * 4 * states * less);
    if (rank > 0) {
        check_near("adapters and vector", bytes_of(&d, WEFT_MEM_GRADIENTS),
                   4 * gradients * (each + H));
        check_near("their moments", bytes_of(&d, WEFT_MEM_OPTIMIZER),
                   2 * 4 * states * (each + H));
    }
    check_near("weights",
               bytes_of(&full, WEFT_MEM_WEIGHTS)
                   - bytes_of(&d, WEFT_MEM_WEIGHTS),
               4 * weights * (trunk() + each + transposed()));
    forget_run(&d);
    forget_run(&full);
}

static void test_bytes(void)
{
    static const double rank[] = {0, 1, 16};
    for (size_t i = 0; i < WEFT_COUNT(rank); i++) {
        check_bytes("layout=dp1", 1, rank[i], 1, 1, 1);
        check_bytes("layout=dp2", 2, rank[i], 2, 2, 2);
        check_bytes("layout=dp2,zero=1", 2, rank[i], 2, 1, 2);
        check_bytes("layout=dp2,zero=2", 2, rank[i], 2, 1, 2);
        check_bytes("layout=pp2", 2, rank[i], 1, 1, 1);
    }
}

/* A reference without adapters shares the same trunk, and has no vector. Its
 * table and its head, which is tied to it, have 288 rows, of whole panels. */
static void test_reference(void)
{
    const struct weft_g_job job = {1, 2, true, 0, false};
    const char *own[] = {"layout=dp2", "actor.lora_rank=16", SHARES, NULL};
    const char *shared[] = {"layout=dp2", "actor.lora_rank=16", SHARES,
                            "reference.shares=true", NULL};
    struct described_run a, b;
    describe(&job, own, &a);
    describe(&job, shared, &b);
    check_near("weights",
               bytes_of(&a, WEFT_MEM_WEIGHTS)
                   - bytes_of(&b, WEFT_MEM_WEIGHTS),
               2 * 4 * (trunk() + (2 * 288 - VOCAB) * H));
    check_near("operations", flop_of(&b, "ref_infer"),
               flop_of(&a, "ref_infer"));
    forget_run(&a);
    forget_run(&b);
}

/* The memory plan of such a run. */
static void test_predicted(void)
{
    const struct weft_g_job job = {1, 1, false, 0, false};
    const char *word[] = {"layout=dp1", "actor.lora_rank=5", SHARES,
                          "numerics.gradient_groups=1"};
    struct weft_plan plan = {.n_nodes = 0};
    struct weft_config config;
    struct weft_err err;
    bool gangs = false;
    double trained = 5 * (whole() + cut()) + H;
    REQUIRE_OK(weft_run_config_read(fixture.config, (int) WEFT_COUNT(word),
                                    word, &config, &err),
               err);
    REQUIRE_OK(weft_trainer_predict(&config, &job, &gangs, 0, &plan, &err),
               err);
    check_near("gradients", (double) plan.memory[0][WEFT_MEM_GRADIENTS],
               4 * trained);
    check_near("optimizer", (double) plan.memory[0][WEFT_MEM_OPTIMIZER],
               8 * trained);
    weft_plan_release(&plan);
    weft_config_release(&config);
}

/* ---- What moves --------------------------------------------------------- */

/* Nothing to where the actor lies anyway. Elsewhere, all that is trained to two
 * devices that generate and one that infers. */
static void test_moved(void)
{
    const struct weft_g_job beside = {1, 2, true, 0, false};
    const struct weft_g_job apart = {1, 4, true, 0, false};
    const char *alike[] = {"layout=dp2", SHARES, NULL};
    const char *adapters[] = {"layout=disaggregated", SHARES,
                              "actor.lora_rank=16", NULL};
    struct described_run d;
    describe(&beside, alike, &d);
    CHECK(sent(&d, "critic_infer", WEFT_MEM_WEIGHTS, true) <= 0);
    forget_run(&d);
    describe(&apart, adapters, &d);
    double each = 4 * (16 * (whole() + cut()) + H);
    const struct weft_call_plan *p =
        &d.t->plan.call[weft_flow_find_call(&d.t->flow, "critic_infer")];
    CHECK_INT(weft_mesh_size(&p->mesh), 1);
    check_near("inference", sent(&d, "critic_infer", WEFT_MEM_WEIGHTS, true),
               each);
    check_near("generation",
               sent(&d, "actor_generate", WEFT_MEM_WEIGHTS, true), 2 * each);
    forget_run(&d);
}

/* ---- Who refuses -------------------------------------------------------- */

static void refuse(const char *key, const char *says)
{
    const char *word[] = {SHARES, key};
    char other[600];
    struct weft_config config;
    struct weft_err err;
    if (strcmp(key, "model.critic=") == 0) {
        snprintf(other, sizeof other, "model.critic=%s/other", fixture.dir);
        word[1] = other;
    }
    CHECK_FAILS(weft_run_config_read(fixture.config, 2, word, &config, &err),
                WEFT_EINVAL, err, says);
}

static void test_refused(void)
{
    static const char *const word[] = {SHARES};
    struct weft_trainer *t = NULL;
    struct weft_err err;
    CHECK_FAILS(weft_trainer_open(fixture.config, 1, word, &t, &err),
                WEFT_EINVAL, err,
                "'critic.shares' is true, but training has no models that "
                "share weights yet");
    refuse("model.critic=", "'critic.shares' needs 'model.critic' to be the "
                            "folder of 'model.actor'");
    refuse("critic.lora_rank=4",
           "'critic.shares' needs 'critic.lora_rank' 0");
    refuse("ppo.critic_warmup=1",
           "'critic.shares' needs 'ppo.critic_warmup' 0");
    refuse("ppo.recompute_logprobs=true",
           "'critic.shares' needs 'ppo.recompute_logprobs' false");
    refuse("train.intra_stage_fusion=true",
           "'critic.shares' needs 'train.intra_stage_fusion' false");
    refuse("reference.every=2", "'critic.shares' needs 'reference.every' 0");
}

/* There is no critic to have devices of its own. */
static void test_ratio(void)
{
    const struct weft_g_job job = {1, 2, false, 0, false};
    const char *word[] = {SHARES, "layout=ratio=actor:1,critic:0.5"};
    struct weft_plan plan = {.n_nodes = 0};
    struct weft_trainer *t = NULL;
    struct weft_config config;
    struct weft_err err;
    REQUIRE_OK(weft_run_config_read(fixture.config, 2, word, &config, &err),
               err);
    CHECK_FAILS(weft_trainer_describe(&config, &job, &plan, &t, &err),
                WEFT_EINVAL, err, "'critic' is no role of the run");
    weft_config_release(&config);
}

WEFT_TESTS("run/trunk", {"setup", setup}, {"test_calls", test_calls},
           {"test_flop", test_flop}, {"test_bytes", test_bytes},
           {"test_reference", test_reference},
           {"test_predicted", test_predicted}, {"test_moved", test_moved},
           {"test_refused", test_refused}, {"test_ratio", test_ratio},
           {"teardown", teardown})
