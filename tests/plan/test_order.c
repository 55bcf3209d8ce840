/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include "plan/layout.h"

enum { MAX_PP = 8, MAX_N = 20 };

/* Runs the published orders of all stages, each unit as soon as its stage is
 * free and its input there (forwards cost 1, backwards 2); returns when the
 * last one ends, or -1 when they wait for each other. */
static int64_t simulate(int32_t pp, int32_t n,
                        struct weft_unit unit[MAX_PP][2 * MAX_N])
{
    int64_t end[2][MAX_PP][MAX_N], now[MAX_PP] = {0};
    int32_t next[MAX_PP] = {0}, left = 2 * n * pp;
    memset(end, 0xff, sizeof end); /* -1: not yet */
    for (bool moved = true; moved && left > 0;) {
        moved = false;
        for (int32_t s = 0; s < pp; s++) {
            if (next[s] == 2 * n)
                continue;
            struct weft_unit u = unit[s][next[s]];
            int32_t m = u.micro_batch;
            bool edge = u.backward ? s == pp - 1 : s == 0;
            int64_t ready =
                edge ? 0 : end[u.backward][u.backward ? s + 1 : s - 1][m];
            if (u.backward && end[0][s][m] < 0)
                ready = -1;
            if (ready < 0)
                continue;
            now[s] = (ready > now[s] ? ready : now[s]) + 1 + u.backward;
            end[u.backward][s][m] = now[s];
            next[s]++;
            left--;
            moved = true;
        }
    }
    int64_t last = left > 0 ? -1 : 0;
    for (int32_t s = 0; s < pp && last >= 0; s++)
        last = now[s] > last ? now[s] : last;
    return last;
}

static void check_order(int32_t pp, int32_t n)
{
    struct weft_unit unit[MAX_PP][2 * MAX_N];
    for (int32_t s = 0; s < pp; s++) {
        bool forward[MAX_N] = {0}, backward[MAX_N] = {0};
        int32_t in_flight = 0, most = 0;
        weft_plan_1f1b(pp, s, n, unit[s]);
        for (int32_t i = 0; i < 2 * n; i++) {
            struct weft_unit u = unit[s][i];
            REQUIRE(u.micro_batch >= 0 && u.micro_batch < n);
            bool *done = u.backward ? backward : forward;
            CHECK(!done[u.micro_batch]);
            CHECK(!u.backward || forward[u.micro_batch]);
            CHECK(u.micro_batch == 0 || done[u.micro_batch - 1]);
            done[u.micro_batch] = true;
            in_flight += u.backward ? -1 : 1;
            most = in_flight > most ? in_flight : most;
        }
        CHECK_INT(in_flight, 0);
        CHECK_INT(most, n < pp - s ? n : pp - s);
    }
    /* No pipeline that finishes its gradients at the end is faster. */
    CHECK_INT(simulate(pp, n, unit), 3 * (n + pp - 1));
}

static void test_1f1b(void)
{
    for (int32_t pp = 1; pp <= MAX_PP; pp++)
        for (int32_t n = 1; n <= MAX_N; n++)
            check_order(pp, n);
    weft_plan_1f1b(3, 1, 0, NULL); /* nothing is written */
}

/* ---- Cutting by cost --------------------------------------------------- */

/* The least possible largest sum: every set of cuts. */
static double best_cut(int32_t n, const double *cost, int32_t runs)
{
    double best = 1e300;
    for (uint32_t cuts = 0; cuts < 1u << (n - 1); cuts++) {
        double largest = 0, sum = 0;
        int32_t count = 1;
        for (int32_t i = 0; i < n; i++) {
            if (i > 0 && (cuts >> (i - 1) & 1)) {
                count++;
                sum = 0;
            }
            sum += cost[i];
            largest = sum > largest ? sum : largest;
        }
        if (count == runs && largest < best)
            best = largest;
    }
    return best;
}

static void check_split(int32_t n, const double *cost, int32_t parts)
{
    int32_t first[16], runs = parts < n ? parts : n;
    double largest = 0;
    REQUIRE(weft_plan_split_cost(n, cost, parts, first) == runs);
    CHECK_INT(first[0], 0);
    CHECK_INT(first[runs], n);
    for (int32_t r = 0; r < runs; r++) {
        double sum = 0;
        CHECK(first[r] < first[r + 1]);
        for (int32_t i = first[r]; i < first[r + 1]; i++)
            sum += cost[i];
        largest = sum > largest ? sum : largest;
    }
    double best = best_cut(n, cost, runs);
    if (largest < best || largest > best)
        printf("\n    %d into %d: %.17g, best %.17g\n", n, parts, largest,
               best);
    CHECK(largest <= best && largest >= best);
}

static void test_split_cost(void)
{
    double cost[12];
    uint32_t x = 12345;
    for (int round = 0; round < 40; round++)
        for (int32_t n = 1; n <= 12; n++) {
            for (int32_t i = 0; i < n; i++) {
                x = x * 1664525 + 1013904223;
                cost[i] = round % 4 == 0 ? 1
                        : round % 4 == 1 ? (double) (x >> 30)
                        : round % 4 == 2 ? (double) (x >> 20)
                        : (x >> 31) != 0 ? 1e15
                                         : (double) (x >> 28);
            }
            for (int32_t parts = 1; parts <= n + 2; parts++)
                check_split(n, cost, parts);
        }
}

static void test_split_cost_by_hand(void)
{
    const double even[] = {1, 1, 1, 1, 1}, zero[] = {0, 0, 0};
    const double near[] = {1, 1 + 0x1p-52};
    const int32_t cut_even[] = {0, 2, 4, 5}, cut_zero[] = {0, 2, 3};
    int32_t first[6];
    CHECK_INT(weft_plan_split_cost(0, even, 3, first), 0);
    CHECK_INT(first[0], 0);
    CHECK_INT(weft_plan_split_cost(5, even, 3, first), 3);
    for (int32_t i = 0; i <= 3; i++)
        CHECK_INT(first[i], cut_even[i]);
    CHECK_INT(weft_plan_split_cost(3, zero, 2, first), 2);
    for (int32_t i = 0; i <= 2; i++)
        CHECK_INT(first[i], cut_zero[i]);
    CHECK_INT(weft_plan_split_cost(2, near, 2, first), 2);
}

WEFT_TESTS("plan/order", {"test_1f1b", test_1f1b},
           {"test_split_cost", test_split_cost},
           {"test_split_cost_by_hand", test_split_cost_by_hand})
