/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What plans know of LoRA adapters and of a reference that shares the actor's
 * weights, against closed forms: operations, bytes of each class, what replicas
 * exchange, what moves between calls. And who refuses them.
 */
#include "job/plan_needs.h"
#include "recorded_sums.h"
#include "run/predict/price.h"

/* ---- Operations ----------------------------------------------------------- */

/* Training: a frozen matrix has one product forwards and one backwards, by
 * input; an adapter's side one and two. Attention is computed once forwards, and
 * backwards with five products in place of two. */
static void check_flop(const char *layout, int n_devices, double tp,
                       double rank)
{
    const struct weft_g_job job = {1, n_devices, false, 0, false};
    char actor[40], critic[40];
    const char *word[] = {layout, actor, critic, NULL};
    const char *none[] = {layout, NULL};
    struct described_run d, full;
    snprintf(actor, sizeof actor, "actor.lora_rank=%g", rank);
    snprintf(critic, sizeof critic, "critic.lora_rank=%g", rank);
    describe(&job, word, &d);
    describe(&job, none, &full);
    struct rows rows = count_rows(&d);
    double matrices = 2 * L * H * (2 * Q + 2 * KV + 3 * FF);
    double adapters = 2 * rank * (tp * whole() + cut());
    double attention = 4 * L * Q * rows.keys, head = 2 * H * VOCAB;
    check_near(layout, flop_of(&d, "ref_infer"), flop_of(&full, "ref_infer"));
    check_near(layout, flop_of(&d, "actor_generate"),
               flop_of(&full, "actor_generate") + adapters * rows.passed);
    check_near(layout, flop_of(&d, "critic_infer"),
               flop_of(&full, "critic_infer") + adapters * rows.all);
    check_near(layout, flop_of(&d, "actor_train"),
               EPOCHS
                   * ((2 * matrices + 3 * adapters) * rows.all
                      + 3.5 * attention
                      /* logits, which are kept, and by input */
                      + 2 * head * rows.targets));
    check_near(layout, flop_of(&d, "critic_train"),
               EPOCHS
                   * ((2 * matrices + 3 * adapters) * rows.all
                      + 3.5 * attention
                      + 4 * 2 * H * rows.targets)); /* its head is trained */
    forget_run(&d);
    forget_run(&full);
}

/* So large a rank costs more than it saves: that is what it says. */
static void test_flop(void)
{
    static const double rank[] = {1, 16, 500};
    for (size_t i = 0; i < WEFT_COUNT(rank); i++) {
        check_flop("layout=dp1", 1, 1, rank[i]);
        check_flop("layout=dp2pp2,zero=2", 4, 1, rank[i]);
        check_flop("layout=tp4", 4, 4, rank[i]);
    }
}

static void test_large_rank(void)
{
    const struct weft_g_job job = {1, 1, false, 0, false};
    const char *small[] = {"actor.lora_rank=4", NULL};
    const char *large[] = {"actor.lora_rank=200", NULL};
    const char *none[] = {"actor.lora_rank=0", NULL};
    struct described_run s, l, n;
    describe(&job, small, &s);
    describe(&job, large, &l);
    describe(&job, none, &n);
    CHECK(flop_of(&s, "actor_train") < flop_of(&n, "actor_train"));
    CHECK(flop_of(&l, "actor_train") > flop_of(&n, "actor_train"));
    forget_run(&s);
    forget_run(&l);
    forget_run(&n);
}

/* ---- Bytes ----------------------------------------------------------------- */

/* f32, in so many copies: gradients of one group, two moments, and the weights
 * more than with adapters of rank `less`; the critic's score, too, which is among
 * its weights anyway. */
static void check_bytes(const char *layout, int n_devices, double rank,
                        double less, double gradients, double states,
                        double weights)
{
    const struct weft_g_job job = {1, n_devices, true, 0, false};
    char actor[40], critic[40], actor_less[40], critic_less[40], groups[40];
    const char *word[] = {layout, actor, critic, groups, NULL};
    const char *other[] = {layout, actor_less, critic_less, groups, NULL};
    struct described_run d, l;
    double each = rank * (whole() + cut());
    snprintf(actor, sizeof actor, "actor.lora_rank=%g", rank);
    snprintf(critic, sizeof critic, "critic.lora_rank=%g", rank);
    snprintf(actor_less, sizeof actor_less, "actor.lora_rank=%g", less);
    snprintf(critic_less, sizeof critic_less, "critic.lora_rank=%g", less);
    snprintf(groups, sizeof groups, "numerics.gradient_groups=%g", gradients);
    describe(&job, word, &d);
    describe(&job, other, &l);
    check_near("gradients", bytes_of(&d, WEFT_MEM_GRADIENTS),
               4 * gradients * (2 * each + H));
    check_near("optimizer", bytes_of(&d, WEFT_MEM_OPTIMIZER),
               2 * 4 * states * (2 * each + H));
    check_near("weights",
               bytes_of(&d, WEFT_MEM_WEIGHTS)
                   - bytes_of(&l, WEFT_MEM_WEIGHTS),
               4 * weights * 2 * (rank - less) * (whole() + cut()));
    forget_run(&d);
    forget_run(&l);
}

/* The memory plan of such a run, which is saved in the end, too. */
static void test_predicted(void)
{
    const struct weft_g_job job = {1, 1, false, 0, false};
    const char *word[] = {"layout=dp1", "actor.lora_rank=5",
                          "critic.lora_rank=7", "numerics.gradient_groups=1"};
    struct weft_plan plan = {.n_nodes = 0};
    struct weft_config config;
    struct weft_err err;
    bool gangs = false;
    double each = whole() + cut();
    REQUIRE_OK(weft_run_config_read(fixture.config, (int) WEFT_COUNT(word),
                                    word, &config, &err),
               err);
    REQUIRE_OK(weft_trainer_predict(&config, &job, &gangs, 0, &plan, &err),
               err);
    check_near("gradients", (double) plan.memory[0][WEFT_MEM_GRADIENTS],
               4 * (12 * each + H));
    check_near("optimizer", (double) plan.memory[0][WEFT_MEM_OPTIMIZER],
               8 * (12 * each + H));
    weft_plan_release(&plan);
    weft_config_release(&config);
}

/* Sides that tensor blocks cut are published in bf16 and have f32 masters; the
 * others are f32, as norms are. */
static void test_bf16(void)
{
    const struct weft_g_job job = {1, 1, false, 0, false};
    const char *word[] = {"numerics.dtype=bf16", "actor.lora_rank=3",
                          "critic.lora_rank=5", NULL};
    const char *none[] = {"numerics.dtype=bf16", NULL};
    struct described_run d, full;
    describe(&job, word, &d);
    describe(&job, none, &full);
    check_near("optimizer", bytes_of(&d, WEFT_MEM_OPTIMIZER),
               8 * (12 * cut() + 8 * whole()) + 8 * H);
    check_near("weights",
               bytes_of(&d, WEFT_MEM_WEIGHTS)
                   - bytes_of(&full, WEFT_MEM_WEIGHTS),
               8 * (2 * cut() + 4 * whole()));
    forget_run(&d);
    forget_run(&full);
}

static void test_bytes(void)
{
    static const double rank[] = {1, 16, 33};
    for (size_t i = 0; i < WEFT_COUNT(rank); i++) {
        check_bytes("layout=dp1", 1, rank[i], 0, 1, 1, 1);
        check_bytes("layout=dp2", 2, rank[i], 0, 2, 2, 2);
        check_bytes("layout=dp2,zero=1", 2, rank[i], 0, 2, 1, 2);
        check_bytes("layout=dp2,zero=2", 2, rank[i], 0, 2, 1, 2);
        /* divided, and in buffers for the two layers of each replica; without
         * adapters blocks that a replica has all of need none */
        check_bytes("layout=dp2,zero=3", 2, rank[i], 2, 2, 1, 1 + 2);
        check_bytes("layout=pp2", 2, rank[i], 0, 1, 1, 1);
    }
}

/* ---- What is sent ---------------------------------------------------------- */

/* Two replicas: each sends the half of its gradient that the other owns, and of
 * new weights the half that it owns itself. */
static void test_exchanged(void)
{
    const struct weft_g_job job = {2, 1, false, 0, false};
    const char *word[] = {"layout=dp2,zero=1", "actor.lora_rank=16",
                          "numerics.gradient_groups=2", NULL};
    struct described_run d;
    double each = 4 * 16 * (whole() + cut());
    describe(&job, word, &d);
    check_near("gradients",
               sent(&d, "actor_train", WEFT_MEM_GRADIENTS, false),
               STEPS * each);
    check_near("weights", sent(&d, "actor_train", WEFT_MEM_WEIGHTS, false),
               STEPS * each);
    forget_run(&d);
}

/* With ZeRO 3 each replica gathers the half of a layer that it lacks, forwards
 * and backwards, and to generate once. The same of frozen weights as without
 * adapters, of which there are so many more then. */
static void check_gathered(const char *rank, double each)
{
    const struct weft_g_job job = {2, 1, false, 0, false};
    const char *layout = "layout=dp2,zero=3,micro_batches=1";
    const char *word[] = {layout, rank, "numerics.gradient_groups=2", NULL};
    const char *none[] = {layout, "numerics.gradient_groups=2", NULL};
    struct described_run d, full;
    describe(&job, word, &d);
    describe(&job, none, &full);
    check_near("gradients",
               sent(&d, "actor_train", WEFT_MEM_GRADIENTS, false),
               STEPS * each);
    check_near("gathered",
               sent(&d, "actor_train", WEFT_MEM_WEIGHTS, false)
                   - sent(&full, "actor_train", WEFT_MEM_WEIGHTS, false),
               STEPS * 2 * each);
    check_near("generation",
               sent(&d, "actor_generate", WEFT_MEM_WEIGHTS, true)
                   - sent(&full, "actor_generate", WEFT_MEM_WEIGHTS, true),
               each);
    forget_run(&d);
    forget_run(&full);
}

static void test_gathered(void)
{
    check_gathered("actor.lora_rank=1", 4 * (whole() + cut()));
    check_gathered("actor.lora_rank=16", 4 * 16 * (whole() + cut()));
}

/* Two devices generate and one trains: there are frozen weights at all three,
 * and adapters alone move to those that generate. */
static void check_moved(const struct weft_g_job *job, const char *rank,
                        double *moved_out, double *held_out)
{
    const char *word[] = {"layout=disaggregated", rank, NULL};
    struct described_run d;
    describe(job, word, &d);
    *moved_out = sent(&d, "actor_generate", WEFT_MEM_WEIGHTS, true);
    *held_out = bytes_of(&d, WEFT_MEM_WEIGHTS);
    const struct weft_call_plan *p =
        &d.t->plan.call[weft_flow_find_call(&d.t->flow, "actor_generate")];
    CHECK_INT(p->dp, 2);
    CHECK_INT(p->tp * p->pp, 1);
    forget_run(&d);
}

static void test_moved(void)
{
    const struct weft_g_job job = {1, 4, true, 0, false};
    double moved[3], held[3], place = whole() + cut();
    double kv = H * 2 * (KV - KV / 2) * L; /* copies of KV heads */
    double base = VOCAB * H + H + L * (2 * H + 2 * 16)
                + L * H * (2 * Q + KV + 3 * FF) + kv;
    check_moved(&job, "actor.lora_rank=0", &moved[0], &held[0]);
    check_moved(&job, "actor.lora_rank=1", &moved[1], &held[1]);
    check_moved(&job, "actor.lora_rank=16", &moved[2], &held[2]);
    CHECK(moved[0]
          > 4 * 2 * base); /* the table and the head of a tied model */
    check_near("rank 1", moved[1], 4 * 2 * place);
    check_near("rank 16", moved[2], 16 * 4 * 2 * place);
    check_near("held", held[2] - held[1], 15 * 4 * 3 * place);
    CHECK(held[1] - held[0] > 4 * 2 * base);
}

/* ---- A reference that shares ------------------------------------------------ */

static void test_shares(void)
{
    const struct weft_g_job job = {1, 2, true, 0, false};
    const char *own[] = {"layout=dp2", "actor.lora_rank=16", NULL};
    const char *shared[] = {"layout=dp2", "actor.lora_rank=16",
                            "reference.shares=true", NULL};
    struct described_run a, b;
    describe(&job, own, &a);
    describe(&job, shared, &b);
    const struct weft_g_layout *l = &a.t->layout[1];
    struct weft_shape s = a.t->model[0].arch.shape;
    double base = 0;
    s.lora_rank = 0;
    for (int k = 0; k < WEFT_N_TILE_KINDS; k++)
        for (int32_t i = 0; i < s.n_blocks; i++) {
            bool once = k == WEFT_TILE_NORMS || k == WEFT_TILE_FINAL;
            bool layers = k == WEFT_TILE_LAYER || k == WEFT_TILE_NORMS;
            if (!once || i == 0)
                base += (layers ? L : 1)
                      * (double) weft_g_fwd_bytes(&s, (enum weft_tile_kind) k,
                                                  i);
        }
    REQUIRE(l->plan.dp == 2);
    check_near("weights",
               bytes_of(&a, WEFT_MEM_WEIGHTS)
                   - bytes_of(&b, WEFT_MEM_WEIGHTS),
               2 * base);
    check_near("operations", flop_of(&b, "ref_infer"),
               flop_of(&a, "ref_infer"));
    /* it waits for no adapters */
    CHECK(sent(&b, "ref_infer", WEFT_MEM_WEIGHTS, true) <= 0);
    forget_run(&a);
    forget_run(&b);
}

/* ---- Who refuses ------------------------------------------------------------ */

static void refuse_config(const char *const *word, int n, const char *says)
{
    struct weft_config config;
    struct weft_err err;
    CHECK_FAILS(weft_run_config_read(fixture.config, n, word, &config, &err),
                WEFT_EINVAL, err, says);
}

static void test_refused(void)
{
    static const char *const word[] = {
        "actor.lora_rank=8", "layout=dp2,zero=3", "reference.shares=true"};
    static const char *const none[] = {"reference.shares=true"};
    static const char *const stale[] = {"actor.lora_rank=8",
                                        "rollout.staleness=1"};
    static const char *const follows[] = {"actor.lora_rank=8",
                                          "reference.every=2"};
    static const char *const below[] = {"actor.lora_rank=-1"};
    const struct weft_g_job job = {1, 2, false, 0, false};
    struct weft_plan plan = {.n_nodes = 0};
    struct weft_trainer *t = NULL;
    struct weft_config config;
    struct weft_err err;
    CHECK_FAILS(weft_trainer_open(fixture.config, 1, word, &t, &err),
                WEFT_EINVAL, err,
                "'actor.lora_rank' is 8, but training has no LoRA adapters");
    refuse_config(none, 1, "'reference.shares' needs 'actor.lora_rank'");
    refuse_config(stale, 2, "'rollout.staleness' must be 0 with");
    refuse_config(follows, 2, "'reference.every' must be 0 with");
    refuse_config(below, 1, "'actor.lora_rank' must be from 0 to 65536");
    REQUIRE_OK(weft_run_config_read(fixture.config, 3, word, &config, &err),
               err);
    CHECK_FAILS(weft_trainer_describe(&config, &job, &plan, &t, &err),
                WEFT_EINVAL, err, "zero 3 cuts the weights that the ref");
    weft_config_release(&config);
}

/* The search does not list it either. */
static void check_zero_3(bool shares)
{
    const char *word[] = {"actor.lora_rank=8", shares
                                                   ? "reference.shares=true"
                                                   : "critic.lora_rank=8"};
    struct weft_call_plan at = {
        .mesh = {.n_nodes = 1, .n_devices = 2}, .dp = 2, .tp = 1, .pp = 1};
    struct weft_run_needs needs;
    struct weft_config config;
    struct weft_err err;
    REQUIRE_OK(weft_run_config_read(fixture.config, 2, word, &config, &err),
               err);
    REQUIRE_OK(weft_run_needs_read(&config, 1, 2, 0, &needs, &err), err);
    int32_t actor = weft_flow_find_call(&needs.flow, "actor_train");
    int32_t critic = weft_flow_find_call(&needs.flow, "critic_train");
    for (at.zero = 0; at.zero <= 3; at.zero++) {
        CHECK(weft_price_can(&needs.plan, actor, &at)
              == (at.zero < 3 || !shares));
        CHECK(weft_price_can(&needs.plan, critic, &at));
    }
    weft_config_release(&config);
}

static void test_zero_3(void)
{
    check_zero_3(false);
    check_zero_3(true);
}

WEFT_TESTS("run/lora", {"setup", setup}, {"test_flop", test_flop},
           {"test_large_rank", test_large_rank}, {"test_bytes", test_bytes},
           {"test_predicted", test_predicted}, {"test_bf16", test_bf16},
           {"test_exchanged", test_exchanged},
           {"test_gathered", test_gathered}, {"test_moved", test_moved},
           {"test_shares", test_shares}, {"test_refused", test_refused},
           {"test_zero_3", test_zero_3}, {"teardown", teardown})
