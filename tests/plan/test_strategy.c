/* SPDX-License-Identifier: Apache-2.0 */
#include "calls.h"
#include "harness.h"

#include "plan/strategy.h"

/* 7B and 70B, nearly; a parameter takes 8 bytes and 12 / dp where it is
 * trained, else 2. */
static struct weft_shape small = {.hidden = 4096,
                                  .n_layers = 32,
                                  .n_heads = 32,
                                  .n_kv_heads = 32,
                                  .head_dim = 128,
                                  .intermediate = 11008,
                                  .vocab = 32000,
                                  .dtype = WEFT_BF16};
static struct weft_shape large = {.hidden = 8192,
                                  .n_layers = 80,
                                  .n_heads = 64,
                                  .n_kv_heads = 8,
                                  .head_dim = 128,
                                  .intermediate = 28672,
                                  .vocab = 32000,
                                  .dtype = WEFT_BF16};
static struct weft_dataflow flow;
static struct weft_plan_needs needs;
static struct weft_plan p;
static struct weft_err err;

static void cluster(int32_t n_nodes, int32_t n_devices, double gib,
                    struct weft_shape *actor)
{
    REQUIRE_OK(weft_shape_partition(&small, 0, &err), err);
    REQUIRE_OK(weft_shape_partition(&large, 0, &err), err);
    flow = *calls_flow();
    flow.role[ROLE_CRITIC].scalar = flow.role[ROLE_REWARD].scalar = true;
    needs = (struct weft_plan_needs){.flow = &flow,
                                     .n_nodes = n_nodes,
                                     .n_devices = n_devices,
                                     .device_bytes = (int64_t) (gib * 0x1p30),
                                     .gradient_groups = 1024,
                                     .n_samples = 4096,
                                     .n_prompts = 4096};
    needs.shape[ROLE_ACTOR] = needs.shape[ROLE_REF] = actor;
    needs.shape[ROLE_CRITIC] = needs.shape[ROLE_REWARD] = &small;
}

static void make(const char *name)
{
    REQUIRE_OK(weft_plan_strategy(name, &needs, &p, &err), err);
}

/* "nodes devices dp tp pp zero", as "0+2 0+8 2 8 1 3". */
static void check_call(int32_t call, const char *want)
{
    const struct weft_call_plan *c = &p.call[call];
    char is[100];
    snprintf(is, sizeof is, "%d+%d %d+%d %d %d %d %d", c->mesh.node,
             c->mesh.n_nodes, c->mesh.device, c->mesh.n_devices, c->dp, c->tp,
             c->pp, c->zero);
    if (strcmp(is, want) != 0)
        printf("\n    %s: %s, not %s\n", calls_name[call], is, want);
    CHECK(strcmp(is, want) == 0);
}

/* Each makes a plan of its own that passes the check, on any cluster. */
static void test_all_are_plans(void)
{
    static const int32_t size[][2] = {{1, 1}, {1, 2}, {1, 8},  {2, 8},
                                      {3, 8}, {4, 4}, {16, 8}, {6, 6}};
    const char *name;
    for (size_t k = 0; k < WEFT_COUNT(size); k++) {
        cluster(size[k][0], size[k][1], 80, &large);
        for (int32_t i = 0; (name = weft_strategy_name(i, NULL)); i++) {
            CHECK(weft_strategy_is(name));
            make(strcmp(name, "rlinf") ? name : "rlinf=4:1:4");
            int rc = weft_plan_check(&p, &needs, &err);
            if (rc)
                printf("\n    %s on %d x %d: %s\n", name, size[k][0],
                       size[k][1], err.text);
            CHECK_INT(rc, 0);
        }
    }
    CHECK(!weft_strategy_is("dp2"));
}

static void test_groups(void)
{
    cluster(4, 8, 80, &large);
    make("openrlhf");
    check_call(CALL_ACTOR_GENERATE, "2+2 0+8 4 4 1 0"); /* 35 GiB of 40 */
    check_call(CALL_ACTOR_TRAIN, "0+1 0+8 8 1 1 3");
    check_call(CALL_REF_INFER, "0+1 0+8 8 1 1 0");
    check_call(CALL_CRITIC_TRAIN, "1+1 0+8 8 1 1 3");
    check_call(CALL_REWARD_INFER, "1+1 0+8 8 1 1 0");
    cluster(1, 8, 80, &small);
    make("openrlhf");
    check_call(CALL_ACTOR_GENERATE, "0+1 4+4 4 1 1 0");
    check_call(CALL_ACTOR_TRAIN, "0+1 0+2 2 1 1 3");
    check_call(CALL_CRITIC_INFER, "0+1 2+2 2 1 1 0");
    make("trlx-standalone");
    check_call(CALL_REWARD_INFER, "0+1 7+1 1 1 1 0");
    check_call(CALL_ACTOR_TRAIN, "0+1 0+4 4 1 1 3");
    make("interleave-2");
    check_call(CALL_REWARD_INFER, "0+1 0+4 4 1 1 0");
    check_call(CALL_REF_INFER, "0+1 4+4 4 1 1 0");
    make("disaggregated");
    check_call(CALL_ACTOR_GENERATE, "0+1 0+4 4 1 1 0");
    check_call(CALL_CRITIC_INFER, "0+1 4+2 2 1 1 0");
    check_call(CALL_CRITIC_TRAIN, "0+1 6+2 1 2 1 0");
}

/* 70B trained: 70e9 * (4 + 4 s + 12 / dp) / 8 / pp with s sums of gradients,
 * and the frozen 70B and two of 7B beside it; a quarter stays free. */
static void test_as_much_data_parallelism_as_fits(void)
{
    for (int32_t gib = 8; gib <= 1024; gib *= 2) {
        cluster(16, 8, gib, &large);
        make("real-heuristic");
        double a = (double) weft_shape_n_params(&large);
        double c = (double) weft_shape_n_params(&small);
        int32_t want = 1;
        for (int32_t dp = 1; dp <= 16; dp *= 2) {
            double pp = 16 / dp, sums = 1;
            for (int32_t groups = 1024 / dp; groups > 1; groups /= 2)
                sums++;
            double trained = 4 + 4 * sums + 12.0 / dp;
            double bytes = (a + c) * trained + (a + c) * 2;
            if (16 / dp <= 32 && bytes / (8 * pp) <= 0.75 * gib * 0x1p30)
                want = dp;
        }
        CHECK_INT(p.call[CALL_ACTOR_TRAIN].dp, want);
        for (int32_t i = 1; i < N_CALLS; i++) {
            CHECK_INT(p.call[i].dp, want);
            CHECK_INT(p.call[i].tp, 8);
            CHECK_INT(p.call[i].pp, 16 / want);
        }
    }
}

static void test_guideline(void)
{
    cluster(1, 8, 80, &small);
    make("flexrlhf-guideline");
    check_call(CALL_REF_INFER, "0+1 0+4 4 1 1 0"); /* interleaved */
    cluster(2, 8, 0.5, &large);
    make("flexrlhf-guideline");
    check_call(CALL_REF_INFER, "0+2 0+8 16 1 1 0"); /* co-located */
    cluster(4, 8, 80, &small);
    make("flexrlhf-guideline");
    check_call(CALL_ACTOR_GENERATE, "0+2 0+8 16 1 1 0"); /* disaggregated */
}

static void test_ratios(void)
{
    cluster(2, 8, 80, &small);
    make("ratio=actor:1,critic:1,ref:0.5,reward:0.5");
    check_call(CALL_ACTOR_TRAIN, "0+2 0+8 16 1 1 3");
    check_call(CALL_ACTOR_GENERATE, "0+2 0+8 2 8 1 0");
    check_call(CALL_REWARD_INFER, "0+1 0+8 8 1 1 0");
    check_call(CALL_REF_INFER, "1+1 0+8 8 1 1 0");
    make("ratio=actor:0.5,reward:0.3,ref:0.25,critic:0.125");
    check_call(CALL_ACTOR_TRAIN, "0+1 0+8 8 1 1 3");
    check_call(CALL_REWARD_INFER, "1+1 0+4 4 1 1 0");
    check_call(CALL_REF_INFER, "1+1 4+4 4 1 1 0");
    check_call(CALL_CRITIC_INFER, "0+1 0+2 2 1 1 0"); /* begins again */
    CHECK_FAILS(weft_plan_strategy("ratio=actr:1", &needs, &p, &err),
                WEFT_EINVAL, err, "'actr' is no role");
    CHECK_FAILS(weft_plan_strategy("ratio=actor:0", &needs, &p, &err),
                WEFT_EINVAL, err, "ratio of 'actor' must be");
    CHECK_FAILS(weft_plan_strategy("ratio=actor:1x", &needs, &p, &err),
                WEFT_EINVAL, err, "ratio of 'actor' must be");
    CHECK_FAILS(weft_plan_strategy("ratio=actor", &needs, &p, &err),
                WEFT_EINVAL, err, "ratio of 'actor' must be");
}

static void test_divided(void)
{
    cluster(1, 8, 80, &small);
    needs.n_prompts = needs.n_samples = 512;
    needs.slots = 32;
    make("rlinf=12:3:9"); /* in time: turns */
    check_call(CALL_ACTOR_GENERATE, "0+1 0+8 8 1 1 0");
    check_call(CALL_REWARD_INFER, "0+1 0+8 8 1 1 0");
    check_call(CALL_CRITIC_TRAIN, "0+1 0+8 8 1 1 3");
    needs.slots = 512;
    make("rlinf=12:1:9"); /* in space: generation has 2, training 4 */
    check_call(CALL_ACTOR_TRAIN, "0+1 0+4 4 1 1 3");
    check_call(CALL_ACTOR_GENERATE, "0+1 4+2 2 1 1 0");
    check_call(CALL_REF_INFER, "0+1 6+2 2 1 1 0");
    cluster(4, 8, 80, &large); /* an instance has 4 devices */
    needs.n_prompts = needs.n_samples = 512;
    needs.slots = 512;
    make("rlinf=20.5:1:9");
    check_call(CALL_ACTOR_GENERATE, "2+1 0+8 2 4 1 0");
    check_call(CALL_ACTOR_TRAIN, "0+2 0+8 16 1 1 3");
    needs.n_samples = 2; /* two instances, no more, of 8 devices each */
    needs.slots = 1;
    make("rlinf=20.5:1:2");
    check_call(CALL_ACTOR_GENERATE, "0+2 0+8 2 8 1 0");
    check_call(CALL_ACTOR_TRAIN, "3+1 0+8 8 1 1 3");
    CHECK_FAILS(weft_plan_strategy("rlinf", &needs, &p, &err), WEFT_EINVAL,
                err, "'rlinf' needs the seconds");
    CHECK_FAILS(weft_plan_strategy("rlinf=1:2", &needs, &p, &err),
                WEFT_EINVAL, err, "'rlinf=1:2' needs the seconds");
    CHECK_FAILS(weft_plan_strategy("rlinf=1:2:3x", &needs, &p, &err),
                WEFT_EINVAL, err, "needs the seconds");
    CHECK_FAILS(weft_plan_strategy("rlinf=1:0:3", &needs, &p, &err),
                WEFT_EINVAL, err, "needs the seconds");
    CHECK_FAILS(weft_plan_strategy("rlinf=1:inf:3", &needs, &p, &err),
                WEFT_EINVAL, err, "needs the seconds");
    CHECK(!weft_strategy_is("rlinfx"));
}

WEFT_TESTS("plan/strategy", {"all_are_plans", test_all_are_plans},
           {"groups", test_groups},
           {"as_much_data_parallelism_as_fits",
            test_as_much_data_parallelism_as_fits},
           {"guideline", test_guideline}, {"ratios", test_ratios},
           {"divided", test_divided})
