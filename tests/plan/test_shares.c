/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/shares.h"

#include <math.h>
#include <string.h>

#include "harness.h"

#include "base/alloc.h"

static struct weft_call_plan plan_of(int32_t dp, const int32_t *share)
{
    struct weft_call_plan c = {.dp = dp, .tp = 1, .pp = 1};
    for (int32_t i = 0; share && i < dp; i++)
        REQUIRE(weft_shares_add(&c.shares, share[i]));
    return c;
}

/* Parts follow one another, all is dealt, and none is off its share by one. */
static void test_share(void)
{
    static const int32_t share[][5] = {{1, 1, 1, 1, 1},
                                       {5, 2, 2, 2, 2},
                                       {1, 2, 3, 4, 5},
                                       {1, 1, 1, 1, 1000}};
    for (size_t k = 0; k < WEFT_COUNT(share); k++)
        for (int32_t n = 0; n < 40; n++) {
            struct weft_call_plan c = plan_of(5, share[k]);
            double all = 0;
            int32_t at = 0, most = 0;
            for (int32_t i = 0; i < 5; i++)
                all += share[k][i];
            for (int32_t i = 0; i < 5; i++) {
                struct weft_range r = weft_plan_share(&c, n, i);
                CHECK_INT(r.first, at);
                CHECK(r.n >= 0);
                CHECK(fabs(r.n - n * share[k][i] / all) <= 1);
                most = r.n > most ? r.n : most;
                at += r.n;
            }
            CHECK_INT(at, n);
            CHECK_INT(weft_plan_most_share(&c, n), most);
        }
}

/* No other way of dealing has a smaller largest part by its share. */
static void test_best(void)
{
    static const int32_t share[][3] = {{2, 2, 1}, {5, 3, 1}, {1, 4, 4}};
    for (size_t k = 0; k < WEFT_COUNT(share); k++)
        for (int32_t n = 1; n < 20; n++) {
            struct weft_call_plan c = plan_of(3, share[k]);
            double mine = 0, best = n;
            for (int32_t i = 0; i < 3; i++)
                mine = fmax(mine, (double) weft_plan_share(&c, n, i).n
                                      / share[k][i]);
            for (int32_t a = 0; a <= n; a++)
                for (int32_t b = 0; a + b <= n; b++)
                    best = fmin(best,
                                fmax(fmax((double) a / share[k][0],
                                          (double) b / share[k][1]),
                                     (double) (n - a - b) / share[k][2]));
            CHECK(mine <= best + 1e-12);
        }
}

static void test_alike(void)
{
    struct weft_call_plan c = plan_of(3, NULL);
    for (int32_t i = 0; i < 3; i++) {
        struct weft_range a = weft_plan_share(&c, 8, i),
                          b = weft_plan_range(8, 3, i);
        CHECK(a.first == b.first && a.n == b.n);
    }
    CHECK_INT(weft_plan_most_share(&c, 8), 3);
    CHECK_INT(weft_shares_of(&c.shares, 2), 1);
}

static void test_runs(void)
{
    struct weft_shares s = {.n = 0};
    for (int32_t i = 0; i < 64; i++)
        CHECK(weft_shares_add(&s, i < 60 ? 4 : 3));
    CHECK_INT(s.n, 2);
    CHECK_INT(weft_shares_members(&s), 64);
    CHECK_INT(weft_shares_of(&s, 59), 4);
    CHECK_INT(weft_shares_of(&s, 60), 3);
    for (int32_t i = 0; s.n < WEFT_MAX_SHARES; i++)
        CHECK(weft_shares_add(&s, 1 + i % 2));
    CHECK(!weft_shares_add(&s, 9));
}

/* A plan's file says a share for each member, and is read again. */
static void test_file(void)
{
    static const char before[] =
        "{\"format\": 1, \"nodes\": 1, \"devices\": 4, \"calls\": {\n"
        "\"a_train\": {\"mesh\": {\"node\": 0, \"nodes\": 1, \"device\": 0, "
        "\"devices\": 4}, \"dp\": 4, \"tp\": 1, \"pp\": 1, \"shares\": ";
    static const struct row {
        const char *shares, *why;
    } row[] = {{"[2, 2, 1, 1]", NULL},
               {"[2, 0, 1, 1]", "'shares[1]' must be a whole number from 1"},
               {"[1, 2, 1, 2, 1, 2, 1, 2, 1]", "change more than 7 times"}};
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        char text[600];
        struct weft_plan plan = {0};
        struct weft_err err;
        snprintf(text, sizeof text, "%s%s}}}", before, row[i].shares);
        if (row[i].why) {
            CHECK_FAILS(
                weft_plan_parse(text, strlen(text), "p", NULL, &plan, &err),
                WEFT_EINVAL, err, row[i].why);
            continue;
        }
        REQUIRE_OK(
            weft_plan_parse(text, strlen(text), "p", NULL, &plan, &err), err);
        char *again = weft_plan_json(&plan);
        CHECK(strstr(again, "\"shares\": [2, 2, 1, 1]}") != NULL);
        weft_free(again);
        weft_plan_release(&plan);
    }
}

#define NODE(name, n, tflops, gbs)                                           \
    "  - {name: " name ", nodes: " #n ", devices: 2, memory_gib: 1,\n"       \
    "     tflops: {f32: " #tflops "}, memory_gbs: " #gbs ",\n"               \
    "     task_us: 1, inside: {gbs: 1, us: 1}, network: {rails: 1, gbs: 1, " \
    "us: 1}}\n"

/* One fast node and one slow: 5 to 2 in training, 3 to 1 in generation. */
static void test_by_speed(void)
{
    static const char text[] = "name: two\nkinds:\n" NODE("fast", 1, 5, 30)
        NODE("slow", 1, 2, 10);
    struct weft_cluster cluster;
    struct weft_err err;
    struct weft_dataflow flow;
    struct weft_shape shape = {.dtype = WEFT_F32};
    struct weft_plan plan;
    REQUIRE_OK(weft_cluster_parse(text, sizeof text - 1, "c", &cluster, &err),
               err);
    weft_flow_init(&flow);
    int32_t trains = weft_flow_guess(&flow, "a_train");
    int32_t generates = weft_flow_guess(&flow, "a_generate");
    struct weft_plan_needs needs = {.flow = &flow,
                                    .n_nodes = 2,
                                    .n_devices = 2,
                                    .gradient_groups = 16,
                                    .n_samples = 64,
                                    .n_prompts = 64,
                                    .shape = {&shape}};
    weft_plan_begin(&needs, &plan);
    const struct weft_call_plan all = {
        .mesh = {0, 2, 0, 2}, .dp = 4, .tp = 1, .pp = 1};
    plan.call[trains] = plan.call[generates] = all;
    weft_plan_share_by_speed(&plan, &needs, &cluster);
    CHECK_INT(weft_shares_of(&plan.call[trains].shares, 1), 12);
    CHECK_INT(weft_shares_of(&plan.call[trains].shares, 2), 5);
    CHECK_INT(weft_shares_of(&plan.call[generates].shares, 0), 3);
    CHECK_INT(weft_shares_of(&plan.call[generates].shares, 3), 1);
    /* a replica over both kinds is as slow as the slow one: all are alike */
    plan.call[trains] = (struct weft_call_plan){
        .mesh = {0, 2, 0, 2}, .dp = 2, .tp = 1, .pp = 2};
    weft_plan_share_by_speed(&plan, &needs, &cluster);
    CHECK_INT(plan.call[trains].shares.n, 0);
    REQUIRE_OK(weft_plan_check_kinds(&plan, &cluster, &err), err);
    plan.call[trains] = (struct weft_call_plan){
        .mesh = {0, 2, 0, 2}, .dp = 1, .tp = 4, .pp = 1};
    CHECK_FAILS(weft_plan_check_kinds(&plan, &cluster, &err), WEFT_EINVAL,
                err, "'fast' and 'slow'");
}

/* A node of 8 and two of 4 are four ranks of 4. */
static void test_ranks(void)
{
    static const int32_t node[] = {0, 0, 1, 2}, device[] = {0, 4, 0, 0};
    struct weft_cluster c = {.n_kinds = 2,
                             .n_nodes = 3,
                             .kind = {{.n_nodes = 1, .n_devices = 8},
                                      {.n_nodes = 2, .n_devices = 4}}};
    int32_t first;
    CHECK_INT(weft_cluster_common(&c), 4);
    CHECK_INT(weft_cluster_fits(&c, 4), 4);
    for (int32_t r = 0; r < 4; r++) {
        CHECK_INT(weft_cluster_rank(&c, 4, 4, r, &first), node[r]);
        CHECK_INT(first, device[r]);
    }
    CHECK_INT(weft_cluster_rank(&c, 5, 4, 4, &first), 3); /* there is none */
    /* where all are alike, ranks beyond the nodes share them */
    c.kind[1].n_devices = 8;
    CHECK_INT(weft_cluster_rank(&c, 6, 4, 3, &first), 1);
    CHECK_INT(first, 4);
    CHECK_INT(weft_cluster_rank(&c, 3, 4, 2, &first), 2);
}

WEFT_TESTS("plan/shares", {"share", test_share}, {"best", test_best},
           {"alike", test_alike}, {"runs", test_runs}, {"file", test_file},
           {"by speed", test_by_speed}, {"ranks", test_ranks})
