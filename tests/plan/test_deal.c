/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include "plan/deal.h"

enum { MOST = 64, GROUPS = 16 };

/* The number of `bits` bits that has those of i from the other end. */
static int32_t reversed(int32_t i, int32_t bits)
{
    int32_t r = 0;
    for (int32_t k = 0; k < bits; k++)
        r = 2 * r + (i >> k & 1);
    return r;
}

/* Deals; every sample is dealt, and how many samples a group has is a function
 * of counts: groups get one more in the order of reversed bits. */
static void deal(int32_t n, const double *cost, int32_t bits, int32_t *group)
{
    int32_t n_groups = 1 << bits, count[GROUPS] = {0};
    struct weft_err err;
    REQUIRE_OK(weft_plan_deal(n, cost, n_groups, group, &err), err);
    for (int32_t i = 0; i < n; i++) {
        REQUIRE(group[i] >= 0 && group[i] < n_groups);
        count[group[i]]++;
    }
    for (int32_t g = 0; g < n_groups; g++)
        CHECK_INT(count[g],
                  n / n_groups + (reversed(g, bits) < n % n_groups));
}

/* What a member has whose groups are [first, first + size); the costliest. */
static double load_of(int32_t n, const double *cost, const int32_t *group,
                      int32_t first, int32_t size, double *most)
{
    double load = 0;
    for (int32_t i = 0; i < n; i++)
        if (group[i] >= first && group[i] < first + size) {
            load += cost[i];
            *most = cost[i] > *most ? cost[i] : *most;
        }
    return load;
}

/* The two members of a pair of ranges, of any length that is a power of two,
 * differ by no more than the costliest sample of both. */
static void check_halves(int32_t n, const double *cost, int32_t n_groups,
                         const int32_t *group)
{
    for (int32_t size = 1; size < n_groups; size *= 2)
        for (int32_t g = 0; g < n_groups; g += 2 * size) {
            double most = 0;
            double a = load_of(n, cost, group, g, size, &most);
            double b = load_of(n, cost, group, g + size, size, &most);
            CHECK((a > b ? a - b : b - a) <= most);
        }
}

/* The least possible heaviest load of dp members with at most ceil(n / dp)
 * samples each, below `best`: all deals of samples i..n-1. */
static double best_of(int32_t n, const double *cost, int32_t i, int32_t dp,
                      double *load, int32_t *count, double best)
{
    double heaviest = 0;
    for (int32_t d = 0; d < dp; d++)
        heaviest = load[d] > heaviest ? load[d] : heaviest;
    if (i == n || heaviest >= best)
        return heaviest < best ? heaviest : best;
    for (int32_t d = 0; d < dp; d++)
        if (count[d] < (n + dp - 1) / dp) {
            load[d] += cost[i];
            count[d]++;
            best = best_of(n, cost, i + 1, dp, load, count, best);
            count[d]--;
            load[d] -= cost[i];
        }
    return best;
}

/* For every dp, the heaviest of dp members that have groups in a row is within
 * 4/3 of the best deal there is: Graham's bound for longest-first, which
 * halving again and again was seen to keep. */
static void check_members(int32_t n, const double *cost, int32_t n_groups,
                          const int32_t *group)
{
    for (int32_t dp = 2; dp <= n_groups && dp <= 8; dp *= 2) {
        double load[8] = {0}, heaviest = 0, most = 0;
        int32_t count[8] = {0}, size = n_groups / dp;
        for (int32_t d = 0; d < dp; d++) {
            double mine = load_of(n, cost, group, d * size, size, &most);
            heaviest = mine > heaviest ? mine : heaviest;
        }
        double best = best_of(n, cost, 0, dp, load, count, 1e300);
        CHECK(heaviest <= best * 4 / 3);
    }
}

static void test_deal_sizes(void)
{
    double cost[MOST];
    int32_t group[MOST];
    for (int32_t n = 1; n <= MOST; n++)
        for (int32_t bits = 0; 1 << bits <= GROUPS; bits++) {
            for (int32_t i = 0; i < n; i++)
                cost[i] = 1 + (i * 7919 + n) % 97;
            deal(n, cost, bits, group);
            check_halves(n, cost, 1 << bits, group);
            if (n <= 7)
                check_members(n, cost, 1 << bits, group);
        }
}

/* Most are short and a few are long. */
static void test_deal_long_tail(void)
{
    double cost[MOST];
    int32_t group[MOST];
    uint32_t x = 1;
    for (int32_t round = 0; round < 200; round++) {
        int32_t n = 1 + round % 8, bits = 1 + round % 4;
        for (int32_t i = 0; i < MOST; i++) {
            x = x * 1664525u + 1013904223u;
            cost[i] = 4 + (double) (x >> 24) + 5000.0 / (1 + (x >> 16 & 255));
        }
        deal(n, cost, bits, group);
        check_members(n, cost, 1 << bits, group);
        deal(MOST, cost, bits, group);
        check_halves(MOST, cost, 1 << bits, group);
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

/* By hand: 8 7 6 5 3 into four: three to the first half, so 8 goes to the
 * second, 7 and 6 to the first, 5 to the second (8 < 13), which is full, 3 to
 * the first. There 7 is alone, in the half with less room, and 6 and 3 are
 * together. */
static void test_deal_in_fours(void)
{
    const double cost[] = {8, 7, 6, 5, 3};
    const int32_t expected[] = {2, 1, 0, 3, 0};
    int32_t group[5];
    struct weft_err err;
    REQUIRE_OK(weft_plan_deal(5, cost, 4, group, &err), err);
    for (int i = 0; i < 5; i++)
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
           {"test_deal_long_tail", test_deal_long_tail},
           {"test_deal_in_fours", test_deal_in_fours},
           {"test_deal_by_hand", test_deal_by_hand},
           {"test_deal_ties_by_index", test_deal_ties_by_index},
           {"test_split", test_split}, {"test_stage_share", test_stage_share})
