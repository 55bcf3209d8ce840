/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of a plan from prices of its calls, beside a simulation of all
 * of it. */
#include "find_fixture.h"

#include "run/predict/compare.h"
#include "run/predict/weigh.h"

static const struct weft_call_plan
    all = {.mesh = {0, 1, 0, 4}, .dp = 4, .tp = 1, .pp = 1},
    stages = {.mesh = {0, 1, 0, 4}, .dp = 2, .tp = 1, .pp = 2},
    left = {.mesh = {0, 1, 0, 2}, .dp = 2, .tp = 1, .pp = 1},
    right = {.mesh = {0, 1, 2, 2}, .dp = 2, .tp = 1, .pp = 1},
    last = {.mesh = {0, 1, 3, 1}, .dp = 1, .tp = 1, .pp = 1};

/* Calls that generate, that infer, and that train. */
static const struct weft_call_plan *const placement[][3] = {
    {&all, &all, &all},      {&stages, &all, &stages},
    {&left, &right, &all},   /* inference beside generation */
    {&left, &right, &right}, /* nothing but generation on the left */
    {&all, &last, &stages},
};

static void place(const struct weft_plan_needs *needs,
                  const struct weft_call_plan *const at[3],
                  struct weft_plan *plan)
{
    weft_plan_default(needs, plan);
    for (int32_t c = 1; c < plan->flow.n_calls; c++)
        if (weft_flow_placed(&plan->flow, c))
            plan->call[c] = *at[plan->flow.call[c].kind == WEFT_GENERATE ? 0
                                : weft_flow_trains(&plan->flow, c)       ? 2
                                                                         : 1];
    REQUIRE_OK(weft_plan_check(plan, needs, &err), err);
}

/* Seconds within 5 %, as is asked of the search; memory has no small tiles that
 * belong to no call, and each call at its fullest. */
static void test_simulated(void)
{
    static const char *const word[] = {"numerics.gradient_groups=4",
                                       "numerics.tensor_blocks=1",
                                       "rollout.prompts=16",
                                       "ppo.mini_batches=1",
                                       "ppo.epochs=1",
                                       NULL};
    struct finding f;
    open_finding(&f, deep, 4, word);
    struct weft_pricer *pricer;
    REQUIRE_OK(weft_pricer_create(&f.config, &f.needs.plan, &f.simulate,
                                  false, &pricer, &err),
               err);
    for (size_t i = 0; i < sizeof placement / sizeof *placement; i++) {
        struct weft_plan plan;
        struct weft_simulated v, s;
        place(&f.needs.plan, placement[i], &plan);
        REQUIRE_OK(weft_run_weigh(&f.config, &f.needs.plan, &f.simulate,
                                  &plan, &v, &err),
                   err);
        CHECK(plan.predicted_s.iteration_s == v.iteration_s);
        REQUIRE_OK(weft_pricer_simulate(pricer, &plan, NULL, NULL, &s, &err),
                   err);
        CHECK(fabs(v.iteration_s / s.iteration_s - 1) < 0.05);
        CHECK(v.device_bytes >= 0.95 * s.device_bytes);
        CHECK(v.device_bytes <= 1.2 * s.device_bytes);
        CHECK(v.static_share >= 0.99 * s.static_share);
        CHECK(v.static_share <= 1.01 * s.static_share);
        weft_plan_release(&plan);
    }
    weft_pricer_free(pricer);
    close_finding(&f);
}

/* A part of 40 replicas, whose number is no power of two, divides gradient
 * groups, which are, as all do: some have two of them. What replicas send is
 * little: calls that share a network are priced as if each had its own. */
static void test_twenty_nodes(void)
{
    enum { NODES = 20, DEVICES = 2 };
    static const char *const word[] = {"numerics.gradient_groups=64",
                                       "numerics.tensor_blocks=1",
                                       "rollout.prompts=80",
                                       "ppo.mini_batches=1",
                                       "ppo.epochs=1",
                                       "runtime.place=device",
                                       NULL};
    const struct weft_call_plan everywhere = {
        .mesh = {0, NODES, 0, DEVICES}, .dp = 40, .tp = 1, .pp = 1};
    struct weft_call_plan trains = everywhere;
    const struct weft_call_plan *const at[3] = {&everywhere, &everywhere,
                                                &trains};
    struct finding f;
    struct weft_pricer *pricer;
    struct weft_plan plan;
    struct weft_simulated v, s;
    trains.zero = 2;
    open_finding(&f, deep, DEVICES, word);
    f.cluster.n_nodes = f.cluster.kind[0].n_nodes = NODES;
    f.cluster.kind[0].rail.bytes_per_s *= 10;
    REQUIRE_OK(
        weft_run_needs_read(&f.config, NODES, DEVICES, 0, &f.needs, &err),
        err);
    f.needs.plan.device_bytes = (int64_t) weft_cluster_device_bytes(
        &f.cluster);
    place(&f.needs.plan, at, &plan);
    REQUIRE_OK(weft_run_weigh(&f.config, &f.needs.plan, &f.simulate, &plan,
                              &v, &err),
               err);
    REQUIRE_OK(weft_pricer_create(&f.config, &f.needs.plan, &f.simulate,
                                  false, &pricer, &err),
               err);
    REQUIRE_OK(weft_pricer_simulate(pricer, &plan, NULL, NULL, &s, &err),
               err);
    CHECK(fabs(v.iteration_s / s.iteration_s - 1) < 0.05);
    weft_pricer_free(pricer);
    weft_plan_release(&plan);
    close_finding(&f);
}

/* Replicas that send each leaf of gradients to its owners (ZeRO 2) do not wait
 * for one another's next leaves: it takes about as long as without (ZeRO 1). */
static void test_leaves(void)
{
    static const char *const word[] = {"numerics.gradient_groups=16",
                                       "numerics.tensor_blocks=1",
                                       "rollout.prompts=16",
                                       "ppo.mini_batches=1",
                                       "ppo.epochs=1",
                                       NULL};
    struct weft_call_plan trains = all;
    const struct weft_call_plan *const at[3] = {&all, &all, &trains};
    struct weft_simulated s[3];
    struct weft_pricer *pricer;
    struct finding f;
    open_finding(&f, deep, 4, word);
    REQUIRE_OK(weft_pricer_create(&f.config, &f.needs.plan, &f.simulate,
                                  false, &pricer, &err),
               err);
    for (trains.zero = 1; trains.zero <= 2; trains.zero++) {
        struct weft_plan plan;
        place(&f.needs.plan, at, &plan);
        REQUIRE_OK(weft_pricer_simulate(pricer, &plan, NULL, NULL,
                                        &s[trains.zero], &err),
                   err);
        weft_plan_release(&plan);
    }
    CHECK(s[2].iteration_s < 1.04 * s[1].iteration_s);
    weft_pricer_free(pricer);
    close_finding(&f);
}

/* The row of a comparison with a plan of too many tasks is what prices say; else
 * it is a simulation. */
static void test_row(void)
{
    static const char *const word[] = {
        "numerics.gradient_groups=4", "rollout.prompts=64",
        "ppo.mini_batches=1", "ppo.epochs=1", NULL};
    const struct weft_compare_how own = {.rows = 1};
    struct weft_comparison c;
    struct weft_simulated v, s;
    struct weft_plan plan;
    struct finding f;
    open_finding(&f, deep, 4, word);
    place(&f.needs.plan, placement[0], &plan);
    struct weft_simulate_options one = f.simulate;
    one.gangs = true; /* as there are too many tasks */
    REQUIRE_OK(
        weft_run_weigh(&f.config, &f.needs.plan, &one, &plan, &v, &err), err);
    one.gangs = false;
    struct weft_g_job job = {1, 4, false, 0, false};
    one.simulated = &s;
    REQUIRE_OK(weft_run_simulate(&f.config, &job, &plan, &one, NULL, &err),
               err);
    CHECK(v.iteration_s != s.iteration_s);
    for (int little = 0; little < 2; little++) {
        f.simulate.most_bytes = little ? 2 << 20 : 0;
        REQUIRE_OK(weft_run_compare(&f.config, &f.needs.plan, &plan,
                                    &f.simulate, &own, &c, &err),
                   err);
        const struct weft_simulated *row = &c.row[0].simulated;
        CHECK_INT(c.row[0].priced, little);
        CHECK(c.row[0].fits);
        CHECK(row->iteration_s == (little ? v : s).iteration_s);
        CHECK(row->device_bytes == (little ? v : s).device_bytes);
    }
    weft_plan_release(&plan);
    close_finding(&f);
}

static void test_fused(void)
{
    static const char *const word[] = {NULL};
    struct finding f;
    struct weft_plan plan;
    struct weft_simulated v;
    open_finding(&f, deep, 4, word);
    place(&f.needs.plan, placement[0], &plan);
    plan.intra_stage_fusion = true;
    CHECK_INT(weft_run_weigh(&f.config, &f.needs.plan, &f.simulate, &plan, &v,
                             &err),
              WEFT_EINVAL);
    CHECK(strstr(err.text, "fused training") != NULL);
    weft_plan_release(&plan);
    close_finding(&f);
}

static void test_remove(void)
{
    fixture_remove(&fixture);
}

WEFT_TESTS("run/weigh", {"make", make_runs}, {"simulated", test_simulated},
           {"twenty_nodes", test_twenty_nodes}, {"leaves", test_leaves},
           {"row", test_row}, {"fused", test_fused}, {"remove", test_remove})
