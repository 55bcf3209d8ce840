/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include "plan/layout.h"

enum { N_PLACES = 6 };

static int32_t members(uint32_t set, int32_t *out)
{
    int32_t n = 0;
    for (int32_t p = 0; p < N_PLACES; p++)
        if (set >> p & 1)
            out[n++] = p;
    return n;
}

/* The least copies between nodes that bring the tile everywhere: over all
 * orders of destinations and all sources. */
static int best_between(const int32_t *node_of, uint32_t have, uint32_t want)
{
    uint32_t left = want & ~have;
    int best = left ? N_PLACES + 1 : 0;
    for (int32_t to = 0; to < N_PLACES; to++) {
        if (!(left >> to & 1))
            continue;
        for (int32_t from = 0; from < N_PLACES; from++) {
            if (!(have >> from & 1))
                continue;
            int cost = (node_of[from] != node_of[to])
                     + best_between(node_of, have | 1u << to, want);
            best = cost < best ? cost : best;
        }
    }
    return best;
}

static void check_moves(const int32_t *node_of, uint32_t have, uint32_t want)
{
    int32_t source[N_PLACES], dest[N_PLACES];
    struct weft_move move[N_PLACES];
    struct weft_move_load load[N_PLACES] = {{0, 0, 0}};
    double expected[N_PLACES] = {0};
    int32_t n_have = members(have, source), n_want = members(want, dest);
    int32_t n = weft_plan_moves(node_of, n_have, source, n_want, dest, 8,
                                load, move);
    uint32_t there = have;
    int between = 0;
    for (int32_t i = 0; i < n; i++) {
        CHECK(there >> move[i].from & 1);
        CHECK(!(there >> move[i].to & 1));
        CHECK(want >> move[i].to & 1);
        there |= 1u << move[i].to;
        between += node_of[move[i].from] != node_of[move[i].to];
        expected[move[i].from] += 8;
    }
    CHECK_INT(there & want, want);
    for (int32_t p = 0; p < N_PLACES; p++)
        CHECK_INT(load[p].sent, expected[p]);
    CHECK_INT(between, best_between(node_of, have, want));
}

static void test_moves_exhaustive(void)
{
    static const int32_t node_of[][N_PLACES] = {
        {0, 0, 0, 0, 0, 0}, {0, 0, 0, 1, 1, 1}, {0, 0, 1, 1, 2, 2},
        {0, 1, 0, 1, 2, 0}, {0, 1, 2, 3, 4, 5},
    };
    for (size_t k = 0; k < WEFT_COUNT(node_of); k++)
        for (uint32_t have = 1; have < 1u << N_PLACES; have += 3)
            for (uint32_t want = 0; want < 1u << N_PLACES; want += 5)
                check_moves(node_of[k], have, want);
}

/* Tile after tile, the sources of a node share the work. */
static void test_moves_balance(void)
{
    const int32_t node_of[] = {0, 0, 1, 1}, have[] = {0, 1}, want[] = {2};
    struct weft_move_load load[4] = {{0, 0, 0}};
    struct weft_move move[4];
    for (int i = 0; i < 10; i++)
        CHECK_INT(weft_plan_moves(node_of, 2, have, 1, want, 3, load, move),
                  1);
    CHECK_INT(load[0].sent, 15);
    CHECK_INT(load[1].sent, 15);
}

/* So do the places of a node to which all tiles come. */
static void test_moves_receivers(void)
{
    const int32_t node_of[] = {0, 1, 1, 1}, have[] = {0}, want[] = {1, 2, 3};
    struct weft_move_load load[4] = {{0, 0, 0}};
    struct weft_move move[3];
    for (int i = 0; i < 12; i++)
        CHECK_INT(weft_plan_moves(node_of, 1, have, 3, want, 2, load, move),
                  3);
    for (int p = 1; p < 4; p++)
        CHECK_INT(load[p].got, 8);
}

/* Eight nodes of a place, of which two have each of eight tiles, all of them
 * are to come to all. What comes to all is 6 tiles a place, and each may send
 * as much of its own: nobody sends on what it got. With one tile, which 0 has,
 * it is sent on once 0 has sent what comes to another. */
static void test_moves_spread(void)
{
    enum { N = 8 };
    int32_t node_of[N], want[N];
    struct weft_move_load load[N] = {{0, 0, 0}};
    struct weft_move move[N];
    for (int32_t p = 0; p < N; p++) {
        node_of[p] = want[p] = p;
        load[p].comes = 6;
    }
    for (int32_t i = 0; i < N; i++) {
        const int32_t have[] = {i, (i + 3) % N};
        CHECK_INT(weft_plan_moves(node_of, 2, have, N, want, 1, load, move),
                  6);
        for (int k = 0; k < 6; k++)
            CHECK(move[k].from == have[0] || move[k].from == have[1]);
    }
    for (int32_t p = 0; p < N; p++) {
        CHECK(fabs(load[p].sent - 6) <= 1);
        CHECK_INT(load[p].got, 6);
        load[p] = (struct weft_move_load){.comes = 3};
    }
    const int32_t have[] = {0};
    CHECK_INT(weft_plan_moves(node_of, 1, have, N, want, 1, load, move), 7);
    CHECK_INT(load[0].sent, 4);
    for (int k = 0; k < 7; k++)
        CHECK_INT(move[k].after, k < 4 ? 3 : 6);
}

/* By hand: 0 has it; 1 (its node) from 0; 2 (other node) from 1, which has
 * sent nothing; 3 (2's node) from 2. Who has it, and who asks twice, gets
 * nothing. */
static void test_moves_by_hand(void)
{
    const int32_t node_of[] = {0, 0, 1, 1}, have[] = {0};
    const int32_t want[] = {0, 1, 2, 3, 2};
    struct weft_move_load load[4] = {{0, 0, 0}};
    struct weft_move move[5];
    CHECK_INT(weft_plan_moves(node_of, 1, have, 5, want, 1, load, move), 3);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(move[i].from, i);
        CHECK_INT(move[i].to, i + 1);
    }
    CHECK_INT(weft_plan_moves(node_of, 1, have, 0, want, 1, load, move), 0);
}

WEFT_TESTS("plan/moves", {"test_moves_exhaustive", test_moves_exhaustive},
           {"test_moves_balance", test_moves_balance},
           {"test_moves_receivers", test_moves_receivers},
           {"test_moves_spread", test_moves_spread},
           {"test_moves_by_hand", test_moves_by_hand})
