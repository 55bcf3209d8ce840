/* SPDX-License-Identifier: Apache-2.0 */
/* A recording without some places beside the whole one. */
#include <math.h>
#include <string.h>

#include "plan/costs.h"
#include "recorded_run.h"

static const char four_nodes[] =
    "name: four\n"
    "kinds:\n"
    "  - {name: node, nodes: 4, devices: 4, memory_gib: 8,\n"
    "     tflops: {f32: 0.1, bf16: 0.2}, memory_gbs: 20, task_us: 4,\n"
    "     inside: {gbs: 10, us: 1}, network: {rails: 4, gbs: 5, us: 5}}\n";

/* Whether a task is to be recorded: what passes between places if one of them
 * is not left out, all else if its place is not. */
static bool is_kept(const struct weft_recording *r,
                    const struct weft_rec_task *t, const bool *left_out)
{
    bool kept = t->kind == WEFT_REC_ANSWER
             || (weft_rec_is_here(t->kind) && !left_out[t->place]);
    for (int64_t a = t->access; a < t->access + t->n_access; a++)
        kept = kept
            || (t->kind == WEFT_REC_MESSAGE
                && !left_out[r->tile[r->access[a].tile].place]);
    return kept;
}

static bool same_task(const struct weft_recording *r, int64_t i,
                      const struct weft_recording *part, int64_t k)
{
    const struct weft_rec_task *a = &r->task[i], *b = &part->task[k];
    return strcmp(weft_recording_op(r, i), weft_recording_op(part, k)) == 0
        && a->kind == b->kind && a->place == b->place
        && a->device == b->device && a->position == b->position
        && a->layer == b->layer && a->n_access == b->n_access
        && memcmp(r->access + a->access, part->access + b->access,
                  (size_t) a->n_access * sizeof *r->access)
               == 0;
}

/* A recording without some places has the tasks of all the others, in the same
 * order, and each takes as long. */
static void check_part(const struct weft_trainer *t,
                       const struct weft_recording *r, const bool *left_out)
{
    struct weft_cluster cluster;
    struct weft_recording part;
    struct weft_costs *costs;
    struct weft_err err;
    int64_t k = 0, n_gangs = 0;
    record_part(t, true, true, left_out, &part);
    REQUIRE_OK(weft_cluster_parse(four_nodes, sizeof four_nodes - 1, "test",
                                  &cluster, &err),
               err);
    const struct weft_costs_job job = {
        .cluster = &cluster,
        .n_ranks = t->job.n_ranks,
        .n_devices = t->job.n_devices,
        .place_per_device = t->job.place_per_device};
    REQUIRE_OK(weft_costs_create(&job, &costs, &err), err);
    for (int64_t i = 0; i < r->n_tasks; i++) {
        const struct weft_rec_task *a = &r->task[i], *b = &part.task[k];
        if (!is_kept(r, a, left_out))
            continue;
        REQUIRE(k < part.n_tasks && same_task(r, i, &part, k));
        double alone = weft_costs_task(costs, r, i, a->device);
        double apart = weft_costs_task(costs, &part, k, b->device);
        CHECK(fabs(alone - apart) <= 1e-12);
        const struct weft_rec_gang *gang = weft_recording_gang_of(&part, k++);
        int32_t n = b->n_members + (gang ? gang->n_left_out : 0);
        CHECK_INT(n, a->n_members);
        n_gangs += gang && gang->n_left_out > 0;
    }
    CHECK_INT(k, part.n_tasks);
    CHECK(k < r->n_tasks && (n_gangs > 0) == (t->plan.call[1].tp > 1));
    weft_costs_free(costs);
    weft_recording_release(&part);
}

static void test_left_out(void)
{
    static const struct {
        struct layout layout;
        bool left_out[4];
    } row[] = {
        {{"tp4", 1, 4, true, {"layout=tp4"}}, {false, true, true, true}},
        {{"tp4 of two", 1, 4, true, {"layout=tp4"}},
         {false, false, true, true}},
        {{"tp4 in ranks", 4, 1, false, {"layout=tp4"}},
         {false, false, true, true}},
        {{"tp2pp2", 2, 2, true, {"layout=tp2pp2,micro_batches=2"}},
         {false, true, false, true}},
        {{"dp2tp2", 2, 2, true, {"layout=dp2tp2,zero=3"}},
         {false, true, false, true}},
        {{"dp4",
          2,
          2,
          true,
          {"layout=dp4,zero=1", "numerics.gradient_groups=4"}},
         {false, false, true, true}},
    };
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        struct weft_trainer *t = describe(&row[i].layout);
        struct weft_recording r;
        record(t, true, true, &r);
        check_part(t, &r, row[i].left_out);
        weft_recording_release(&r);
        forget(t);
    }
}

WEFT_TESTS("run/places_left_out", {"setup", setup},
           {"left_out", test_left_out}, {"teardown", teardown})
