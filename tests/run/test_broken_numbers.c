/* SPDX-License-Identifier: Apache-2.0 */
/* What an iteration refuses to go on with: rollouts of other weights than
 * training's, gradients that are not finite. */
#include "run_fixture.h"

#include <math.h>

#include "run/iteration.h"

static struct fixture fixture;

/* Opens a run whose second iteration has been generated when the first has
 * been trained. */
static struct weft_trainer *generated_with(const char *name,
                                           const char *layout,
                                           const char *more)
{
    const char *word[] = {"iterations=3", "runtime.devices=2", layout, more,
                          NULL};
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    fixture_steps(t, 1);
    REQUIRE(t->next != NULL);
    return t;
}

static struct weft_trainer *generated_ahead(const char *name,
                                            const char *layout)
{
    return generated_with(name, layout, NULL);
}

/* Multiplies the first weight of a tile. */
static void scale(struct weft_tile *tile, float by)
{
    float *x = weft_tile_acquire(tile, WEFT_READ_WRITE);
    x[0] *= by;
    weft_tile_unacquire(tile);
}

static void check_run_ended(struct weft_trainer *t, const char *name)
{
    char path[512];
    CHECK_INT(weft_trainer_iteration(t), 1);
    weft_trainer_close(t);
    snprintf(path, sizeof path, "%s/%s/checkpoints/iteration-000002",
             fixture.dir, name);
    CHECK(!weft_dir_exists(path));
}

/* The tokens were drawn with one weight a thousandth smaller. */
static void test_exact_first(void)
{
    static const char *const layout[] = {"layout=dp2tp1pp1",
                                         "layout=dp1tp2pp1"};
    struct weft_err err;
    fixture_make(&fixture);
    for (size_t i = 0; i < WEFT_COUNT(layout); i++) {
        struct weft_trainer *t = generated_ahead(layout[i], layout[i]);
        scale(t->model[0].tiles.fwd[0].head.norms, 1.001f);
        CHECK_FAILS(weft_trainer_step(t, &err), WEFT_EINTERNAL, err,
                    "rollout and training disagree");
        check_run_ended(t, layout[i]);
    }
}

static double metric(const struct weft_trainer *t, const char *tag)
{
    double value = NAN;
    CHECK_INT(weft_trainer_metric(t, tag, &value), 0);
    return value;
}

/* The same is only told. */
static void test_not_exact(void)
{
    struct weft_err err;
    struct weft_trainer *t = generated_with("told", "layout=dp2tp1pp1",
                                            "numerics.exact=false");
    CHECK(metric(t, "actor/first_ratio_abs_dev_max") == 0);
    scale(t->model[0].tiles.fwd[0].head.norms, 1.001f);
    REQUIRE_OK(weft_trainer_step(t, &err), err);
    CHECK(metric(t, "actor/first_ratio_abs_dev_max") > 0);
    weft_trainer_close(t);
}

/* Changes a log-prob that generation has computed. Returns by how much its
 * probability. */
static double spoil(struct weft_trainer *t)
{
    struct weft_tile *tile = t->next->sample[3].rollout;
    struct weft_rollout *r = weft_tile_acquire(tile, WEFT_READ_WRITE);
    float *logp = weft_rollout_logp(r) + r->n_prompt;
    double before = exp((double) *logp);
    *logp -= 0.5f;
    double by = before - exp((double) *logp);
    weft_tile_unacquire(tile);
    return by;
}

/* Those of inference count where they are computed. */
static void test_recomputed(void)
{
    struct weft_err err;
    struct weft_trainer *t = generated_with("own", "layout=tp2",
                                            "ppo.recompute_logprobs=false");
    spoil(t);
    CHECK_FAILS(weft_trainer_step(t, &err), WEFT_EINTERNAL, err,
                "rollout and training disagree");
    weft_trainer_close(t);
    t = generated_with("reread", "layout=tp2", "ppo.recompute_logprobs=true");
    CHECK(metric(t, "training/rollout_probs_diff_max") == 0);
    double by = spoil(t);
    REQUIRE_OK(weft_trainer_step(t, &err), err);
    CHECK(fabs(metric(t, "training/rollout_probs_diff_max") - by) < 1e-6);
    CHECK(metric(t, "training/rollout_probs_diff_mean") < by);
    CHECK(metric(t, "training/rollout_probs_diff_std") > 0);
    CHECK(metric(t, "actor/first_ratio_abs_dev_max") == 0);
    weft_trainer_close(t);
}

/* The values of the rollouts are good, those of training are not. */
static void test_gradient_not_finite(void)
{
    static const float broken[] = {NAN, INFINITY, 1e30f};
    struct weft_err err;
    for (size_t i = 0; i < WEFT_COUNT(broken); i++) {
        char name[16];
        snprintf(name, sizeof name, "broken-%zu", i);
        struct weft_trainer *t = generated_ahead(name, "layout=dp2tp1pp1");
        scale(t->model[1].tiles.fwd[0].head.norms, broken[i]);
        CHECK_FAILS(weft_trainer_step(t, &err), WEFT_ENUMERIC, err,
                    "the gradient is not finite");
        check_run_ended(t, name);
    }
    fixture_remove(&fixture);
}

WEFT_TESTS("run/broken_numbers", {"test_exact_first", test_exact_first},
           {"test_not_exact", test_not_exact},
           {"test_recomputed", test_recomputed},
           {"test_gradient_not_finite", test_gradient_not_finite})
