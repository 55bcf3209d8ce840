/* SPDX-License-Identifier: Apache-2.0 */
#include "calls.h"
#include "harness.h"

#include "plan/layout.h"

/* T 2 of at most 4; a scalar one of T 1 */
static struct weft_shape actor = {.n_layers = 4,
                                  .n_heads = 4,
                                  .intermediate = 256,
                                  .vocab = 256,
                                  .n_blocks = 2};
static struct weft_shape critic = {.n_layers = 2,
                                   .n_heads = 3,
                                   .intermediate = 256,
                                   .vocab = 256,
                                   .n_blocks = 1};
static struct weft_plan_needs needs = {
    .n_nodes = 2, .n_devices = 4, .gradient_groups = 4, .n_samples = 6};
static struct weft_err err;
static struct weft_plan p;
static struct weft_dataflow flow;

static void fresh(void)
{
    flow = *calls_flow();
    flow.call[CALL_REWARD_INFER].role = -1; /* they have no place */
    flow.call[CALL_CRITIC_INFER].role = -1;
    needs.flow = &flow;
    needs.shape[ROLE_ACTOR] = needs.shape[ROLE_REF] = &actor;
    needs.shape[ROLE_CRITIC] = &critic;
    weft_plan_default(&needs, &p);
}

static struct weft_call_plan on(struct weft_mesh mesh, int32_t dp, int32_t tp,
                                int32_t pp)
{
    return (struct weft_call_plan){
        .mesh = mesh, .dp = dp, .tp = tp, .pp = pp};
}

static void refused(int32_t call, struct weft_call_plan c, const char *part)
{
    fresh();
    p.call[call] = c;
    CHECK_FAILS(weft_plan_check(&p, &needs, &err), WEFT_EINVAL, err, part);
}

static void accepted(int32_t call, struct weft_call_plan c)
{
    fresh();
    p.call[call] = c;
    REQUIRE_OK(weft_plan_check(&p, &needs, &err), err);
}

/* A mesh of the 2 x 4 cluster: exactly these. */
static bool is_mesh(const struct weft_mesh *m)
{
    static const struct weft_mesh all[] = {
        {0, 1, 0, 1}, {0, 1, 1, 1}, {0, 1, 2, 1}, {0, 1, 3, 1}, {0, 1, 0, 2},
        {0, 1, 2, 2}, {0, 1, 0, 4}, {1, 1, 0, 1}, {1, 1, 1, 1}, {1, 1, 2, 1},
        {1, 1, 3, 1}, {1, 1, 0, 2}, {1, 1, 2, 2}, {1, 1, 0, 4}, {0, 2, 0, 4}};
    for (size_t i = 0; i < WEFT_COUNT(all); i++)
        if (memcmp(&all[i], m, sizeof *m) == 0)
            return true;
    return false;
}

static void test_check_meshes(void)
{
    for (int32_t node = -1; node <= 2; node++)
        for (int32_t nodes = -1; nodes <= 3; nodes++)
            for (int32_t device = -1; device <= 4; device++)
                for (int32_t devices = -1; devices <= 5; devices++) {
                    struct weft_mesh m = {node, nodes, device, devices};
                    fresh();
                    p.call[CALL_REF_INFER] = on(m, nodes * devices, 1, 1);
                    if (p.call[CALL_REF_INFER].dp == 0)
                        continue; /* not used */
                    CHECK_INT(weft_plan_check(&p, &needs, &err) == 0,
                              is_mesh(&m));
                }
    struct weft_mesh m = {0, INT32_MAX, 0, 4};
    refused(CALL_REF_INFER, on(m, 1, 1, 1),
            "ref_infer: a mesh of "
            "2147483647 nodes");
}

static void test_check_mesh_sentences(void)
{
    const struct weft_mesh beyond = {1, 2, 0, 4}, wide = {0, 1, 2, 3};
    const struct weft_mesh odd = {0, 1, 1, 2}, three = {0, 1, 0, 3};
    const struct weft_mesh parts = {0, 2, 0, 2};
    refused(CALL_REF_INFER, on(beyond, 8, 1, 1),
            "ref_infer: a mesh of 2 nodes from node 1 on does not fit the 2 "
            "nodes");
    refused(CALL_REF_INFER, on(wide, 3, 1, 1),
            "ref_infer: a mesh of 3 devices from device 2 on does not fit "
            "the 4 devices of a node");
    refused(CALL_REF_INFER, on(odd, 2, 1, 1),
            "ref_infer: devices 1 to 2 are no mesh: a part of a node is a "
            "power of two and begins at a multiple of it, like 0 to 1");
    refused(CALL_REF_INFER, on(three, 3, 1, 1), "like 0 to 1");
    refused(CALL_REF_INFER, on(parts, 4, 1, 1),
            "ref_infer: a mesh of 2 nodes has all 4 devices of each, not 2");
}

static void test_check_degrees(void)
{
    const struct weft_mesh all = {0, 2, 0, 4}, node = {1, 1, 0, 4};
    accepted(CALL_ACTOR_TRAIN, on(all, 2, 2, 2));
    accepted(CALL_ACTOR_TRAIN, on(all, 1, 2, 4));
    accepted(CALL_ACTOR_TRAIN, on(node, 4, 1, 1));
    refused(CALL_ACTOR_TRAIN, on(all, 0, 1, 1),
            "actor_train: the run makes this call, but the plan has no "
            "place for it");
    refused(CALL_ACTOR_TRAIN, on(all, 8, 0, 1),
            "actor_train: dp 8, tp 0 and pp 1 must be at least 1");
    refused(CALL_ACTOR_TRAIN, on(all, -4, -2, 1), "must be at least 1");
    refused(CALL_ACTOR_TRAIN, on(all, 2, 2, 1),
            "actor_train: dp 2 x tp 2 x pp 1 is 4 devices, but the mesh has "
            "8");
    refused(CALL_ACTOR_TRAIN, on(all, 65536, 65536, 1), "4294967296");
    refused(CALL_ACTOR_TRAIN, on(node, 1, 4, 1),
            "actor_train: tp 4 is more than the model's 2 tensor blocks; "
            "take tp 2, or numerics.tensor_blocks 4");
    refused(CALL_CRITIC_TRAIN, on(node, 2, 2, 1),
            "critic_train: tp 2 is more than the model's 1 tensor blocks; "
            "take tp 1");
    CHECK(strstr(err.text, "numerics") == NULL);
    refused(CALL_CRITIC_TRAIN, on(node, 1, 1, 4),
            "critic_train: pp 4 is more than the model's 2 layers; take pp "
            "2");
    refused(CALL_ACTOR_TRAIN, on(all, 8, 1, 1),
            "actor_train: dp 8 is more than the 4 gradient groups; take dp "
            "4, or numerics.gradient_groups 8");
    refused(CALL_ACTOR_GENERATE, on(all, 8, 1, 1),
            "actor_generate: dp 8 is more than the 6 samples of an "
            "iteration; take dp 6, or more rollout.prompts");
    accepted(CALL_REF_INFER, on(all, 8, 1, 1));
}

/* The key to raise is a power of two, the degree need not be. */
static void test_check_raised(void)
{
    const struct weft_mesh all = {0, 3, 0, 2};
    struct weft_plan_needs three = {
        .n_nodes = 3, .n_devices = 2, .gradient_groups = 4, .n_samples = 6};
    fresh();
    three.flow = &flow;
    memcpy(three.shape, needs.shape, sizeof three.shape);
    weft_plan_default(&three, &p);
    p.call[CALL_ACTOR_TRAIN] = on(all, 6, 1, 1);
    CHECK_FAILS(weft_plan_check(&p, &three, &err), WEFT_EINVAL, err,
                "take dp 4, or numerics.gradient_groups 8");
    p.call[CALL_ACTOR_TRAIN] = on(all, 2, 3, 1);
    CHECK_FAILS(weft_plan_check(&p, &three, &err), WEFT_EINVAL, err,
                "take tp 2, or numerics.tensor_blocks 4");
}

/* T 8 of at most 32: what there may be is more than the default. */
static void test_check_wide(void)
{
    const struct weft_mesh all = {0, 1, 0, 32};
    struct weft_shape wide = {.n_layers = 4,
                              .n_heads = 32,
                              .intermediate = 2048,
                              .vocab = 2048,
                              .n_blocks = 8};
    struct weft_plan_needs node = {
        .n_nodes = 1, .n_devices = 32, .gradient_groups = 4, .n_samples = 6};
    char text[400] = "";
    fresh();
    node.flow = &flow;
    for (int r = 0; r < WEFT_MAX_ROLES; r++)
        node.shape[r] = needs.shape[r] ? &wide : NULL;
    weft_plan_default(&node, &p);
    p.call[CALL_ACTOR_TRAIN] = on(all, 2, 16, 1);
    CHECK_FAILS(weft_plan_check(&p, &node, &err), WEFT_EINVAL, err,
                "actor_train: tp 16 is more than the model's 8 tensor "
                "blocks; take tp 8, or numerics.tensor_blocks 16");
    p.call[CALL_ACTOR_TRAIN] = on(all, 1, 32, 1);
    CHECK_FAILS(weft_plan_check(&p, &node, &err), WEFT_EINVAL, err,
                "take tp 8, or numerics.tensor_blocks 32");
    wide.n_blocks = 32;
    REQUIRE_OK(weft_plan_check(&p, &node, &err), err);
    wide.n_blocks = 8;
    for (int c = 0; c < flow.n_calls; c++)
        if (weft_flow_trains(&flow, c))
            p.call[c] = on((struct weft_mesh){0, 1, 0, 8}, 1, 8, 1);
    CHECK(weft_plan_idle(&p, &node, text, sizeof text));
    CHECK(strstr(text, "tp 8, all that numerics.tensor_blocks allows; a new "
                       "run may set it to 32")
          != NULL);
}

static void test_check_stages(void)
{
    const struct weft_mesh all = {0, 2, 0, 256};
    struct weft_plan_needs many = {.n_nodes = 2,
                                   .n_devices = 256,
                                   .gradient_groups = 4,
                                   .n_samples = 600};
    struct weft_shape deep = actor;
    deep.n_layers = 600;
    fresh();
    many.flow = &flow;
    memcpy(many.shape, needs.shape, sizeof many.shape);
    many.shape[ROLE_ACTOR] = &deep;
    weft_plan_default(&many, &p);
    p.call[CALL_ACTOR_TRAIN] = on(all, 1, 1, 512);
    CHECK_FAILS(weft_plan_check(&p, &many, &err), WEFT_EINVAL, err,
                "actor_train: pp 512 is more than the 256 stages there may "
                "be");
    p.call[CALL_ACTOR_TRAIN] = on(all, 2, 1, 256);
    REQUIRE_OK(weft_plan_check(&p, &many, &err), err);
}

static void test_check_options(void)
{
    const struct weft_mesh one = {0, 1, 3, 1};
    struct weft_call_plan c = on(one, 1, 1, 1);
    c.zero = 4;
    refused(CALL_ACTOR_TRAIN, c, "actor_train: zero 4 must be 0 to 3");
    c.zero = -1;
    refused(CALL_ACTOR_TRAIN, c, "zero -1 must be 0 to 3");
    c.zero = 3;
    accepted(CALL_ACTOR_TRAIN, c);
    c.hpz = true;
    accepted(CALL_ACTOR_TRAIN, c);
    c.zero = 2;
    refused(CALL_ACTOR_TRAIN, c, "hpz is for zero 3, here it is 2");
    c.zero = 3;
    refused(CALL_REF_INFER, c,
            "ref_infer: zero 3 is for calls that train; take zero 0");
    c = on(one, 1, 1, 1);
    c.recompute = true;
    accepted(CALL_CRITIC_TRAIN, c);
    refused(CALL_REF_INFER, c,
            "ref_infer: recompute is for calls that train");
    c = on(one, 1, 1, 1);
    c.offload = true;
    accepted(CALL_REF_INFER, c);
    accepted(CALL_ACTOR_TRAIN, c);
    refused(CALL_ACTOR_GENERATE, c,
            "actor_generate: offload is for calls that train, and for models "
            "that are never trained");
    c = on(one, 1, 1, 1);
    c.micro_batches = 2;
    accepted(CALL_REF_INFER, c);
    accepted(CALL_ACTOR_TRAIN, c);
    refused(CALL_ACTOR_GENERATE, c,
            "actor_generate: micro_batches 2 is for calls that infer or "
            "train; take 0");
    c.micro_batches = -2;
    refused(CALL_REF_INFER, c,
            "ref_infer: micro_batches -2 must be at least 0");
}

static void test_check_cluster(void)
{
    fresh();
    REQUIRE_OK(weft_plan_check(&p, &needs, &err), err);
    p.call[CALL_REWARD_INFER].tp = -7; /* a call that nobody makes */
    REQUIRE_OK(weft_plan_check(&p, &needs, &err), err);
    p.n_devices = 8;
    CHECK_FAILS(weft_plan_check(&p, &needs, &err), WEFT_EINVAL, err,
                "the plan is for 2 nodes of 8 devices, but the run has 2 of "
                "4");
    fresh();
    p.n_nodes = 3;
    CHECK_FAILS(weft_plan_check(&p, &needs, &err), WEFT_EINVAL, err,
                "the plan is for 3 nodes");
}

static void idle(const char *part)
{
    char text[400] = "";
    bool found = weft_plan_idle(&p, &needs, text, sizeof text);
    CHECK_INT(found, part != NULL);
    if (part && !strstr(text, part))
        CHECK_STR(text, part);
}

/* 8 devices; G 4; T 2 of 4, and 1 of 1. */
static void test_idle(void)
{
    const struct weft_mesh half = {0, 1, 0, 4}, all = {0, 2, 0, 4},
                           other = {1, 1, 0, 4};
    fresh();
    idle("4 of 8 devices train nothing: actor_train has dp 4, all that "
         "numerics.gradient_groups allows; a new run may set it to 8");
    p.call[CALL_CRITIC_TRAIN] = on(other, 4, 1, 1);
    idle(NULL); /* the other half is the critic's */
    p.call[CALL_CRITIC_TRAIN] = on(all, 4, 1, 2);
    idle(NULL);
    p.call[CALL_ACTOR_TRAIN] = on(half, 2, 2, 1);
    p.call[CALL_CRITIC_TRAIN] = on(half, 2, 1, 2);
    idle("actor_train has tp 2, all that numerics.tensor_blocks allows; a "
         "new run may set it to 4");
    p.call[CALL_ACTOR_TRAIN] = on(half, 2, 1, 2);
    idle(NULL); /* nothing keeps the layout from more */
    p.call[CALL_CRITIC_TRAIN] = on((struct weft_mesh){0, 1, 0, 1}, 1, 1, 1);
    p.call[CALL_ACTOR_TRAIN] = on((struct weft_mesh){0, 1, 0, 1}, 1, 1, 1);
    idle(NULL);
    needs.gradient_groups = 1;
    idle("7 of 8 devices train nothing: actor_train has dp 1, all that "
         "numerics.gradient_groups allows; a new run may set it to 8");
    needs.gradient_groups = 4;
}

WEFT_TESTS("plan/layout_check", {"test_check_meshes", test_check_meshes},
           {"test_check_mesh_sentences", test_check_mesh_sentences},
           {"test_check_degrees", test_check_degrees},
           {"test_check_raised", test_check_raised},
           {"test_check_wide", test_check_wide},
           {"test_check_stages", test_check_stages},
           {"test_check_options", test_check_options},
           {"test_check_cluster", test_check_cluster},
           {"test_idle", test_idle})
