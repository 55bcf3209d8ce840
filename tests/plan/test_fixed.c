/* SPDX-License-Identifier: Apache-2.0 */
/* What a search may not change, as a text says it. */
#include "calls.h"
#include "harness.h"

#include "plan/fixed.h"

static const struct weft_shape shape = {.n_layers = 4, .n_blocks = 4};
static struct weft_dataflow flow;
static struct weft_err err;

/* Six calls on a node of 4 devices. */
static struct weft_plan_needs needs(void)
{
    struct weft_plan_needs n = {
        .n_nodes = 1, .n_devices = 4, .gradient_groups = 4, .n_samples = 6};
    flow = *calls_flow();
    n.flow = &flow;
    for (int r = 0; r < N_ROLES; r++)
        n.shape[r] = &shape;
    return n;
}

static struct weft_fixed read_text(const char *text)
{
    const struct weft_plan_needs n = needs();
    struct weft_fixed f;
    REQUIRE_OK(weft_fixed_read(text, &n, &f, &err), err);
    return f;
}

static void check_call(const struct weft_fixed *f, int32_t call, int dp,
                       int tp, int pp, int micro_batches, int zero)
{
    const struct weft_call_plan *c = &f->call[call];
    CHECK_INT(c->dp, dp);
    CHECK_INT(c->tp, tp);
    CHECK_INT(c->pp, pp);
    CHECK_INT(c->micro_batches, micro_batches);
    CHECK_INT(c->zero, zero);
}

static void test_free(void)
{
    static const char *const text[] = {NULL, "", "  "};
    for (size_t i = 0; i < WEFT_COUNT(text); i++) {
        struct weft_fixed f = read_text(text[i]);
        CHECK(!f.any && !f.meshes);
        for (int32_t c = 1; c < flow.n_calls; c++)
            check_call(&f, c, 0, 0, 0, -1, -1);
    }
}

/* Options are those of calls to which they mean something; later words add to
 * those before, and win. */
static void test_words(void)
{
    struct weft_fixed f = read_text(
        "zero=1,micro_batches=3,recompute,offload  actor_generate:tp4 "
        "critic_train:dp2pp2,zero=0,offload_optimizer");
    CHECK(f.any && !f.meshes);
    check_call(&f, CALL_ACTOR_GENERATE, 0, 4, 0, -1, -1);
    check_call(&f, CALL_REF_INFER, 0, 0, 0, 3, -1);
    check_call(&f, CALL_ACTOR_TRAIN, 0, 0, 0, 3, 1);
    check_call(&f, CALL_CRITIC_TRAIN, 2, 0, 2, 3, 0);
    CHECK(f.call[CALL_REF_INFER].offload
          && !f.call[CALL_REF_INFER].recompute);
    CHECK(f.call[CALL_ACTOR_TRAIN].recompute
          && !f.call[CALL_ACTOR_TRAIN].offload);
    CHECK(f.call[CALL_CRITIC_TRAIN].offload);
    CHECK(!f.call[CALL_ACTOR_GENERATE].offload);
    CHECK(!f.call[CALL_CRITIC_INFER].offload); /* trained: never offloaded */
}

static void test_apply(void)
{
    struct weft_fixed f = read_text("actor_train:tp2,zero=3,hpz,recompute");
    struct weft_call_plan at = {
        .mesh = {0, 1, 0, 4}, .dp = 2, .tp = 2, .pp = 1};
    CHECK(weft_fixed_apply(&f, CALL_ACTOR_TRAIN, &at));
    CHECK(at.zero == 3 && at.hpz && at.recompute && at.micro_batches == 0);
    at = (struct weft_call_plan){.dp = 4, .tp = 1, .pp = 1, .zero = 1};
    CHECK(!weft_fixed_apply(&f, CALL_ACTOR_TRAIN, &at));
    CHECK(weft_fixed_apply(&f, CALL_CRITIC_TRAIN, &at));
    CHECK(at.zero == 1 && !at.hpz && !at.recompute);
}

/* A ratio says where calls are: the actor's on the first half, the reference's
 * on the second, others on all. */
static void test_ratio(void)
{
    struct weft_fixed f = read_text("ratio=actor:0.5,ref:0.5 zero=0");
    const struct weft_mesh all = {0, 1, 0, 4}, first = {0, 1, 0, 2},
                           second = {0, 1, 2, 2};
    struct weft_call_plan half = {.mesh = first, .dp = 2, .tp = 1, .pp = 1};
    CHECK(f.any && f.meshes);
    CHECK(weft_fixed_allows(&f, CALL_ACTOR_TRAIN, &first));
    CHECK(!weft_fixed_allows(&f, CALL_ACTOR_TRAIN, &second));
    CHECK(!weft_fixed_allows(&f, CALL_ACTOR_TRAIN, &all));
    CHECK(weft_fixed_allows(&f, CALL_REF_INFER, &second));
    CHECK(weft_fixed_allows(&f, CALL_CRITIC_TRAIN, &all));
    CHECK(!weft_fixed_allows(&f, CALL_CRITIC_TRAIN, &first));
    /* a size is asked for wherever the layout begins */
    CHECK(weft_fixed_apply(&f, CALL_REF_INFER, &half));
    CHECK(!weft_fixed_apply(&f, CALL_CRITIC_INFER, &half));
    check_call(&f, CALL_ACTOR_TRAIN, 0, 0, 0, -1, 0);
}

static void test_holds(void)
{
    static const struct {
        const char *text;
        bool holds;
    } row[] = {{NULL, true},
               {"dp2tp2", true},
               {"zero=1", true},
               {"actor_train:zero=0", false},
               {"micro_batches=0", true},
               {"micro_batches=2", false},
               {"recompute", false},
               {"offload", false},
               {"critic_infer:tp4", false},
               {"ratio=actor:1", true},
               {"ratio=critic:0.5", false}};
    const struct weft_plan_needs n = needs();
    struct weft_plan plan;
    REQUIRE_OK(weft_plan_uniform("dp2tp2,zero=1", &n, &plan, &err), err);
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        struct weft_fixed f = read_text(row[i].text);
        CHECK(weft_fixed_holds(&f, &plan) == row[i].holds);
    }
    weft_plan_release(&plan);
}

static void test_wrong(void)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"tp", "'tp' must be dp, tp or pp with a number of at least 1"},
        {"dp2 tp0", "layout 'tp0': 'tp0' must be dp, tp or pp"},
        {"dp2dp2", "gives dp twice"},
        {"zero", "'zero' must be zero=N, hpz, micro_batches=N"},
        {"zero=4", "layout 'zero=4': zero 4 must be 0 to 3"},
        {"dp2,,zero=1", "'' must be zero=N"},
        {"shares=2:1", "shares are not for a search"},
        {"actor:tp2", "'actor' is no call of the run with a place"},
        {":tp2", "'' is no call of the run"},
        {"actor_train:", "'' must be zero=N"},
        {"verl", "'verl' is a whole plan: leave out plan: auto"},
        {"rlinf=1:2:3", "is a whole plan"},
        {"ratio=actor:2", "the ratio of 'actor' must be a number above 0"},
        {"ratio=foo:1", "'foo' is no role of the run"}};
    const struct weft_plan_needs n = needs();
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        struct weft_fixed f;
        CHECK_FAILS(weft_fixed_read(bad[i].text, &n, &f, &err), WEFT_EINVAL,
                    err, bad[i].why);
    }
}

WEFT_TESTS("plan/fixed", {"free", test_free}, {"words", test_words},
           {"apply", test_apply}, {"ratio", test_ratio},
           {"holds", test_holds}, {"wrong", test_wrong})
