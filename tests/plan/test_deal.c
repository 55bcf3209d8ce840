/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include "plan/deal.h"

/* The least possible heaviest load of n samples in two groups of at most
 * `most` samples each: all 2^n deals. */
static double best_of_two(int32_t n, const double *cost, int32_t most)
{
    double best = 1e300, total = 0;
    for (int32_t i = 0; i < n; i++)
        total += cost[i];
    for (uint32_t mask = 0; mask < 1u << n; mask++) {
        double load = 0;
        int32_t count = 0;
        for (int32_t i = 0; i < n; i++)
            if (mask >> i & 1) {
                load += cost[i];
                count++;
            }
        double heavier = load > total - load ? load : total - load;
        if (count <= most && n - count <= most && heavier < best)
            best = heavier;
    }
    return best;
}

/* Every sample once, counts near equal; two groups: within 4/3 of the best
 * deal there is (Graham's bound for longest-first). */
static void check_deal(int32_t n, const double *cost, int32_t n_groups)
{
    int32_t group[64], count[16] = {0}, most = (n + n_groups - 1) / n_groups;
    double load[16] = {0};
    struct weft_err err;
    REQUIRE_OK(weft_plan_deal(n, cost, n_groups, group, &err), err);
    for (int32_t i = 0; i < n; i++) {
        REQUIRE(group[i] >= 0 && group[i] < n_groups);
        count[group[i]]++;
        load[group[i]] += cost[i];
    }
    for (int32_t g = 0; g < n_groups; g++)
        CHECK(count[g] <= most);
    if (n_groups == 2 && n <= 12) {
        double heavier = load[0] > load[1] ? load[0] : load[1];
        CHECK(heavier <= best_of_two(n, cost, most) * 4 / 3);
    }
}

static void test_deal_sizes(void)
{
    double cost[64];
    for (int32_t n = 1; n <= 64; n++)
        for (int32_t g = 1; g <= 16; g *= 2) {
            for (int32_t i = 0; i < n; i++)
                cost[i] = 1 + (i * 7919 + n) % 97;
            check_deal(n, cost, g);
        }
}

/* By hand: 9 8 7 1 1 1 into two: 9 | 8, 7 -> second (8 < 9): 15 and full at
 * three after one more; 1s go to the first. */
static void test_deal_by_hand(void)
{
    const double cost[] = {1, 9, 1, 7, 8, 1};
    const int32_t expected[] = {0, 0, 0, 1, 1, 1};
    int32_t group[6];
    struct weft_err err;
    REQUIRE_OK(weft_plan_deal(6, cost, 2, group, &err), err);
    for (int i = 0; i < 6; i++)
        CHECK_INT(group[i], expected[i]);
}

static void test_deal_ties_by_index(void)
{
    const double cost[] = {3, 3, 3, 3};
    const int32_t expected[] = {0, 1, 0, 1};
    int32_t group[4];
    struct weft_err err;
    REQUIRE_OK(weft_plan_deal(4, cost, 2, group, &err), err);
    for (int i = 0; i < 4; i++)
        CHECK_INT(group[i], expected[i]);
}

static void test_split(void)
{
    const int32_t rows[] = {5, 5, 5, 20, 1, 1, 8};
    int32_t first[8];
    CHECK_INT(weft_plan_split(7, rows, 10, first), 4);
    const int32_t expected[] = {0, 2, 3, 4, 7};
    for (int i = 0; i < 5; i++)
        CHECK_INT(first[i], expected[i]);
    CHECK_INT(weft_plan_split(7, rows, 1, first), 7);
    CHECK_INT(weft_plan_split(7, rows, 1000, first), 1);
    CHECK_INT(first[1], 7);
    CHECK_INT(weft_plan_split(0, rows, 10, first), 0);
}

/* By hand: a layer of (4 + 2 + 2) 4 + 4 4 + 3 4 8 + 2 4 = 152 parameters, a
 * final norm of 4, a head of 40, or of 4. */
static void test_stage_share(void)
{
    struct weft_shape s = {.hidden = 4,
                           .n_layers = 3,
                           .n_heads = 2,
                           .n_kv_heads = 1,
                           .head_dim = 2,
                           .intermediate = 8,
                           .vocab = 10};
    CHECK(weft_plan_stage_share(&s, 2, false) == 304.0 / 500);
    CHECK(weft_plan_stage_share(&s, 1, true) == 196.0 / 500);
    CHECK(weft_plan_stage_share(&s, 3, true) == 1);
    s.tied = true; /* the embedding is the head */
    CHECK(weft_plan_stage_share(&s, 2, false) == 304.0 / 500);
    CHECK(weft_plan_stage_share(&s, 1, true) == 196.0 / 500);
    s.tied = false;
    s.scalar_head = true;
    CHECK(weft_plan_stage_share(&s, 2, false) == 304.0 / 464);
    CHECK(weft_plan_stage_share(&s, 1, true) == 160.0 / 464);
}

WEFT_TESTS("plan/deal", {"test_deal_sizes", test_deal_sizes},
           {"test_deal_by_hand", test_deal_by_hand},
           {"test_deal_ties_by_index", test_deal_ties_by_index},
           {"test_split", test_split}, {"test_stage_share", test_stage_share})
