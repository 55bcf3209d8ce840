/* SPDX-License-Identifier: Apache-2.0 */
/* What passes between ranks in a step of training, in recordings: of a gradient
 * and of weights each part once, however many replicas a rank has. */
#include <config.h>

#include <math.h>

#include "recorded_run.h"

/* Ranks of two places, with a replica at each. The sums over a rank's gradient
 * groups are a subtree. */
#define REPLICAS(ranks, layout, groups, steps, other)                        \
    {                                                                        \
        "replicas", ranks, 2, true,                                          \
        {                                                                    \
            "layout=" layout, "numerics.gradient_groups=" groups,            \
                "ppo.mini_batches=" steps, "ppo.epochs=1", other             \
        }                                                                    \
    }

/* Its tables are apart. */
static char actor[300];

static void make_actor(void)
{
    struct weft_init_options o = fixture_model();
    setup();
    o.tied = false;
    fixture_init_model(&fixture, "untied", &o);
    snprintf(actor, sizeof actor, "model.actor=%s/untied", fixture.dir);
}

static int rank_of(const struct weft_trainer *t, int32_t place)
{
    return place / t->layout[1].places_per_rank;
}

/* Bytes of messages to tiles of a class, of the policy's training. */
static double sent(const struct weft_trainer *t,
                   const struct weft_recording *r, enum weft_mem_class mem)
{
    double sum = 0;
    for (int64_t i = 0; i < r->n_tasks; i++) {
        const struct weft_rec_task *task = &r->task[i];
        const struct weft_rec_tile *from = NULL, *to = NULL;
        if (task->kind != WEFT_REC_MESSAGE || task->iteration != 0
            || !weft_flow_trains(&t->flow, task->call)
            || t->flow.call[task->call].role != 0)
            continue;
        for (int64_t a = task->access; a < task->access + task->n_access; a++)
            *(r->access[a].mode == 0 ? &from
                                     : &to) = &r->tile[r->access[a].tile];
        REQUIRE(from && to);
        CHECK(rank_of(t, from->place) != rank_of(t, to->place));
        if (to->mem == mem)
            sum += (double) to->bytes;
    }
    return sum;
}

/* What passes in a run: how often all parameters of the policy, in floats, as
 * gradients and as weights. */
struct passed {
    double gradients, weights;
};

static struct passed passed(const struct layout *l)
{
    struct weft_trainer *t = describe(l);
    struct weft_recording r;
    double n = 4.0 * (double) weft_shape_n_params(&t->model[0].arch.shape);
    record(t, true, false, &r);
    struct passed out = {sent(t, &r, WEFT_MEM_GRADIENTS) / n,
                         sent(t, &r, WEFT_MEM_WEIGHTS) / n};
    weft_recording_release(&r);
    forget(t);
    return out;
}

static void check(const struct layout *l, int gradients, int weights)
{
    struct passed p = passed(l);
    /* tables have whole panels, and a KV row may be in two blocks */
    CHECK_INT(lround(p.gradients), gradients);
    CHECK_INT(lround(p.weights), weights);
}

static void test_exchange(void)
{
    /* the sums come back as gradients */
    static const struct layout none = REPLICAS(2, "dp4", "4", "1", actor),
                               one = REPLICAS(2, "dp4,zero=1", "4", "1",
                                              actor),
                               two = REPLICAS(2, "dp4,zero=2", "4", "1",
                                              actor),
                               leaves = REPLICAS(2, "dp4,zero=2", "8", "1",
                                                 actor);
    check(&none, 2, 0);
    check(&one, 1, 1);
    check(&two, 1, 1);
    check(&leaves, 1, 1);
}

/* What is gathered forwards and backwards comes to each replica by itself; with
 * hpz to a rank, once in a step, however many micro-batches there are. */
static void test_gathered(void)
{
    static const struct layout
        each = REPLICAS(2, "dp4,zero=3", "4", "1", actor),
        once = REPLICAS(2, "dp4,zero=3,hpz", "4", "1", actor),
        more = REPLICAS(2, "dp4,zero=3,hpz,micro_batches=2", "8", "1", actor),
        steps = REPLICAS(2, "dp4,zero=3,hpz", "4", "2", actor),
        ranks = REPLICAS(4, "dp8,zero=3,hpz", "8", "1", actor);
    check(&each, 1, 4);
    check(&once, 1, 1);
    check(&more, 1, 1);
    check(&steps, 2, 2);
    check(&ranks, 3, 3);
}

/* A tied table, which a stage has twice, comes once, and of weights with
 * adapters only these: to the byte what new weights are below ZeRO 3. */
static void test_new(void)
{
    static const struct layout tied[] = {REPLICAS(2, "dp4,zero=1", "4", "1",
                                                  NULL),
                                         REPLICAS(2, "dp4,zero=3,hpz", "4",
                                                  "1", NULL)},
                               lora[] = {REPLICAS(2, "dp4,zero=1", "4", "2",
                                                  "actor.lora_rank=3"),
                                         REPLICAS(2, "dp4,zero=3,hpz", "4",
                                                  "2", "actor.lora_rank=3")};
    CHECK(passed(&tied[0]).weights > 0);
    CHECK(passed(&tied[0]).weights == passed(&tied[1]).weights);
    CHECK(passed(&lora[0]).weights > 0);
    CHECK(passed(&lora[0]).weights == passed(&lora[1]).weights);
}

WEFT_TESTS("run/exchange", {"make_actor", make_actor},
           {"test_exchange", test_exchange}, {"test_gathered", test_gathered},
           {"test_new", test_new}, {"teardown", teardown})
