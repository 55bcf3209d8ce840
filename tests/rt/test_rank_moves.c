/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for messages that move a tile from rank to rank: what could have been
 * there when only the ranks before know. */
#include <math.h>

#include "base/alloc.h"
#include "rt/moves.h" /* before the fixture's rt */

#include "rank_fixture.h"

/* The k-th rank of a relay, in which ranks come in their order, or backwards. */
static int rank_at(int k, bool back)
{
    return back ? weft_world_size() - 1 - k : k;
}

/* A tile that the first rank gets from outside goes to the second, from there to
 * the third, and so on; each rank reads it. No message can end before all are
 * inserted. */
static void insert_relay(struct weft_tile **tile, int n, bool back)
{
    struct weft_err err;
    struct weft_external *answer;
    struct weft_where where = anywhere;
    where.iteration = 0;
    for (int k = 0; k < n; k++)
        tile[k] = tile_at(rank_at(k, back), 8, true);
    REQUIRE_OK(weft_external_begin(seq, tile[0], &where, &answer, &err), err);
    where.moves = true;
    for (int k = 1; k < n; k++)
        weft_insert_copy(seq, &where, tile[k - 1], tile[k]);
    where.moves = false;
    for (int k = 0; k < n; k++) {
        const struct weft_access access[] = {{tile[k], WEFT_READ_WRITE}};
        const struct scramble args = {.bytes = {8}};
        where.device = rank_at(k, back);
        where.call = 3;
        weft_insert(seq, &weft_cl_scramble, &args, sizeof args, access, 1,
                    &where);
    }
    weft_world_max(0); /* no rank's message ends before */
    weft_external_complete(answer, "answered", 8);
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
}

static double waited_s(int k)
{
    return k == 0 ? 0 : (k * 100 - (k < 3 ? 30 : 170)) * 1e-6;
}

/* When the k-th rank could have sent the tile but for the message before. */
static const double sent_us[] = {30, 20, 170};

/* Times as if the k-th rank had the tile at k * 100 us. Seconds that its task waited
 * for the message. */
static double set_times(struct weft_moves *m, int k)
{
    struct weft_late late = {
        .could_us = 10, .start_us = 1000, .iteration = 0, .call = 3};
    struct weft_worker *w = &rt->worker[0];
    for (int32_t i = 0; i < m->n; i++) {
        struct weft_move *move = &m->move[i];
        move->could_us = move->sends ? sent_us[k] : 0;
        atomic_store(&move->ended_us, 100 * k);
        CHECK_INT(move->n_waits, k > 0 && move->sends);
    }
    w->n_late = 0;
    if (k == 0)
        return 0;
    late.first_wait = m->n_waits - 1; /* of the task that reads */
    late.n_waits = 1;
    w->late[w->n_late++] = late;
    return waited_s(k);
}

static void check_relay(bool back)
{
    struct weft_err err;
    struct weft_rt_options options = {
        .n_devices = 1, .nap = 1, .profile = true};
    struct weft_call_time time[WEFT_MAX_CALLS];
    struct weft_tile *tile[PLACES];
    int n = weft_world_size(), at = rank_at(weft_world_rank(), back);
    REQUIRE_OK(weft_rt_start(&options, &rt, &err), err);
    REQUIRE_OK(weft_seq_create(rt, &seq, &err), err);
    insert_relay(tile, n, back);
    CHECK_INT(rt->moves->n, (at > 0) + (at < n - 1));
    rt->worker[0].late = weft_realloc(rt->worker[0].late, 8,
                                      sizeof *rt->worker[0].late);
    REQUIRE(rt->worker[0].late != NULL);
    rt->worker[0].late_room = 8;
    double own = set_times(rt->moves, at), all = 0;
    for (int k = 0; k < n; k++)
        all += waited_s(k);
    weft_rt_times_all(rt, 0, time);
    CHECK(fabs(time[3].waited_s - all) < 1e-9);
    weft_rt_times(rt, 0, 3, &time[3]);
    CHECK(fabs(time[3].waited_s - own) < 1e-9);
    CHECK_INT(rt->moves->n, 0);
    for (int k = 0; k < n; k++)
        weft_tile_release(tile[k]);
    stop();
}

static void test_relay(void)
{
    check_relay(false);
    check_relay(true);
}

/* A rank that has lost what it should have noted makes it unknown to all. */
static void test_lost(void)
{
    struct weft_err err;
    struct weft_rt_options options = {
        .n_devices = 1, .nap = 1, .profile = true};
    struct weft_call_time time[WEFT_MAX_CALLS];
    struct weft_tile *tile[PLACES];
    REQUIRE_OK(weft_rt_start(&options, &rt, &err), err);
    REQUIRE_OK(weft_seq_create(rt, &seq, &err), err);
    insert_relay(tile, weft_world_size(), false);
    if (weft_world_rank() == 0)
        atomic_store(&rt->moves->lost, true);
    weft_rt_times_all(rt, 0, time);
    CHECK(time[3].waited_s < 0);
    weft_rt_times_all(rt, 0, time);
    CHECK(time[3].waited_s >= 0);
    for (int k = 0; k < weft_world_size(); k++)
        weft_tile_release(tile[k]);
    stop();
}

int main(void)
{
    static const struct weft_test tests[] = {{"test_relay", test_relay},
                                             {"test_lost", test_lost}};
    return ranks_main("rt/rank_moves", tests, WEFT_COUNT(tests));
}
