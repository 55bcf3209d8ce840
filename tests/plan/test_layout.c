/* SPDX-License-Identifier: Apache-2.0 */
#include "calls.h"
#include "harness.h"

#include "plan/layout.h"

static const struct weft_shape shape = {.n_layers = 4, .n_blocks = 2};
static struct weft_err err;
static struct weft_plan p;

static struct weft_dataflow flow;

/* Six calls on n_nodes nodes of n_devices; G 4, 6 samples. */
static struct weft_plan_needs needs(int32_t n_nodes, int32_t n_devices)
{
    struct weft_plan_needs n = {.n_nodes = n_nodes,
                                .n_devices = n_devices,
                                .gradient_groups = 4,
                                .n_samples = 6};
    flow = *calls_flow();
    n.flow = &flow;
    for (int r = 0; r < N_ROLES; r++)
        n.shape[r] = &shape;
    return n;
}

static void check_default(int32_t n_nodes, int32_t n_devices,
                          int32_t generate, int32_t infer, int32_t train)
{
    struct weft_plan_needs n = needs(n_nodes, n_devices);
    flow.call[CALL_REF_INFER].role = -1; /* a step */
    weft_plan_default(&n, &p);
    CHECK_INT(p.n_nodes, n_nodes);
    CHECK_INT(p.n_devices, n_devices);
    CHECK_INT(p.call[CALL_ACTOR_GENERATE].dp, generate);
    CHECK_INT(p.call[CALL_CRITIC_INFER].dp, infer);
    CHECK_INT(p.call[CALL_REWARD_INFER].dp, infer);
    CHECK_INT(p.call[CALL_ACTOR_TRAIN].dp, train);
    CHECK_INT(p.call[CALL_CRITIC_TRAIN].dp, train);
    CHECK_INT(p.call[CALL_REF_INFER].dp, 0);
    for (int c = 0; c < WEFT_MAX_CALLS; c++)
        if (p.call[c].dp > 0) {
            CHECK(p.call[c].tp == 1 && p.call[c].pp == 1);
            CHECK_INT(weft_mesh_size(&p.call[c].mesh), p.call[c].dp);
        }
    weft_plan_release(&p);
}

static void test_plan_default(void)
{
    check_default(1, 1, 1, 1, 1);
    check_default(1, 3, 3, 3, 3);
    check_default(1, 8, 4, 8, 4); /* 6 samples: 4 of the node's 8 */
    check_default(3, 2, 6, 6, 4); /* two whole nodes train */
    check_default(2, 5, 5, 10, 4);
}

static void test_plan_hpz(void)
{
    struct weft_plan_needs n = needs(2, 4);
    REQUIRE_OK(weft_plan_uniform("dp8,zero=3,hpz", &n, &p, &err), err);
    for (int c = 0; c < WEFT_MAX_CALLS; c++)
        CHECK_INT(p.call[c].hpz,
                  c == CALL_ACTOR_TRAIN || c == CALL_CRITIC_TRAIN);
}

static void test_plan_uniform(void)
{
    struct weft_plan_needs n = needs(2, 4);
    flow.call[CALL_CRITIC_INFER].role = -1;
    REQUIRE_OK(weft_plan_uniform("dp2tp2pp1,zero=1,micro_batches=3,recompute,"
                                 "offload",
                                 &n, &p, &err),
               err);
    for (int c = 0; c < WEFT_MAX_CALLS; c++) {
        const struct weft_call_plan *k = &p.call[c];
        bool used = weft_flow_placed(&flow, c);
        bool trains = c == CALL_ACTOR_TRAIN || c == CALL_CRITIC_TRAIN;
        CHECK_INT(k->dp, used ? 2 : 0);
        CHECK_INT(k->tp, used ? 2 : 0);
        CHECK_INT(k->pp, used);
        CHECK_INT(weft_mesh_size(&k->mesh), used ? 4 : 0);
        CHECK_INT(k->zero, trains);
        CHECK_INT(k->recompute, trains);
        CHECK_INT(k->offload, c == CALL_REF_INFER || c == CALL_REWARD_INFER);
        CHECK_INT(k->micro_batches, used && c != CALL_ACTOR_GENERATE ? 3 : 0);
    }
    REQUIRE_OK(weft_plan_uniform("dp2,offload_optimizer", &n, &p, &err), err);
    for (int c = 0; c < WEFT_MAX_CALLS; c++)
        CHECK_INT(p.call[c].offload,
                  weft_flow_placed(&flow, c) && weft_flow_trains(&flow, c));
    REQUIRE_OK(weft_plan_uniform("pp2dp4", &n, &p, &err), err);
    CHECK_INT(p.call[CALL_ACTOR_TRAIN].dp, 4);
    CHECK_INT(p.call[CALL_ACTOR_TRAIN].tp, 1);
    CHECK_INT(p.call[CALL_ACTOR_TRAIN].pp, 2);
    CHECK_INT(p.call[CALL_ACTOR_TRAIN].mesh.n_nodes, 2);
}

static void test_plan_uniform_refused(void)
{
    static const struct {
        const char *layout, *part;
    } bad[] = {
        {"", "layout '' begins with no degree; it must be like dp2tp2pp1"},
        {",zero=1", "begins with no degree"},
        {"dq2", "layout 'dq2': 'dq2' must be dp, tp or pp with a number of "
                "at least 1, like dp2tp2pp1"},
        {"dp2x", "'x' must be dp, tp or pp"},
        {"dp", "'dp' must be"},
        {"dp0", "'dp0' must be"},
        {"dp-1", "'dp-1' must be"},
        {"dp2tp2dp2", "layout 'dp2tp2dp2' gives dp twice"},
        {"dp2,", "'' must be zero=N, hpz, micro_batches=N, shares=N:N, "
                 "recompute, offload or offload_optimizer"},
        {"dp2,zeor=1", "'zeor=1' must be zero=N"},
        {"dp2,zero", "'zero' must be zero=N"},
        {"dp2,zero=", "'zero=' must be zero=N"},
        {"dp2,zero=1x", "'zero=1x' must be"},
        {"dp2,recompute=1", "'recompute=1' must be"},
        {"dp2,hpz=1", "'hpz=1' must be"},
        {"dp2,offload,,", "'' must be"},
        {"dp2,offload_optimizers", "'offload_optimizers' must be"},
        {"dp3", "layout 'dp3' takes 3 devices, but a mesh is a power of two "
                "of a node's 4 devices, or whole nodes of the 2; the nearest "
                "below has 2"},
        {"dp6", "the nearest below has 4"},
        {"dp16", "the nearest below has 8"},
        {"dp999999999999tp999999999999pp999999999999", "below has 8"},
    };
    struct weft_plan_needs n = needs(2, 4);
    for (size_t i = 0; i < WEFT_COUNT(bad); i++)
        CHECK_FAILS(weft_plan_uniform(bad[i].layout, &n, &p, &err),
                    WEFT_EINVAL, err, bad[i].part);
}

WEFT_TESTS("plan/layout", {"test_plan_default", test_plan_default},
           {"test_plan_hpz", test_plan_hpz},
           {"test_plan_uniform", test_plan_uniform},
           {"test_plan_uniform_refused", test_plan_uniform_refused})
