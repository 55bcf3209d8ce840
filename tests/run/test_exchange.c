/* SPDX-License-Identifier: Apache-2.0 */
/* What passes between ranks in a step of training, in recordings: of a gradient
 * and of new weights each part once, however many replicas a rank has. */
#include <config.h>

#include <math.h>

#include "recorded_run.h"

/* Two ranks of two places, with a replica at each. The sums over a rank's
 * gradient groups are a subtree. */
#define REPLICAS(layout, groups)                                             \
    {                                                                        \
        "replicas", 2, 2, true,                                              \
        {                                                                    \
            "layout=" layout, "numerics.gradient_groups=" groups,            \
                "ppo.mini_batches=1", "ppo.epochs=1", actor                  \
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

/* How often all gradients, and all weights, pass. */
static void check(const struct layout *l, int gradients, int weights)
{
    struct weft_trainer *t = describe(l);
    struct weft_recording r;
    double n = 4.0 * (double) weft_shape_n_params(&t->model[0].arch.shape);
    record(t, true, false, &r);
    /* tables have whole panels, and a KV row may be in two blocks */
    CHECK_INT(lround(sent(t, &r, WEFT_MEM_GRADIENTS) / n), gradients);
    CHECK_INT(lround(sent(t, &r, WEFT_MEM_WEIGHTS) / n), weights);
    weft_recording_release(&r);
    forget(t);
}

static void test_exchange(void)
{
    /* the sums come back as gradients */
    static const struct layout none = REPLICAS("dp4", "4"),
                               one = REPLICAS("dp4,zero=1", "4"),
                               two = REPLICAS("dp4,zero=2", "4"),
                               leaves = REPLICAS("dp4,zero=2", "8");
    check(&none, 2, 0);
    check(&one, 1, 1);
    check(&two, 1, 1);
    check(&leaves, 1, 1);
}

WEFT_TESTS("run/exchange", {"make_actor", make_actor},
           {"test_exchange", test_exchange}, {"teardown", teardown})
