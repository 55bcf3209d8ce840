/* SPDX-License-Identifier: Apache-2.0 */
/* How long devices waited for what moves: of tasks whose times are said here,
 * as the event engine plays them, which says how long they waited. */
#include "plan/moves_fixture.h"
#include "rt/moves.h"

/* A runtime that has devices, and behind them one who copies, for messages. */
static struct weft_rt rt;
static struct weft_worker worker[DEVICES + 1];
static struct weft_tile tiles[TILES];
static struct weft_access held[MOST_TASKS][2];
static struct weft_task tasks[MOST_TASKS];

enum { CALLS = WEFT_MAX_CALLS };

static void rt_make(void)
{
    struct weft_err err;
    memset(&rt, 0, sizeof rt);
    memset(worker, 0, sizeof worker);
    memset(tiles, 0, sizeof tiles);
    rt.n_devices = DEVICES;
    rt.n_workers = DEVICES + 1;
    rt.n_ranks = 1;
    rt.worker = worker;
    for (int d = 0; d <= DEVICES; d++) {
        worker[d].exec.rt = &rt;
        pthread_mutex_init(&worker[d].mutex, NULL);
    }
    worker[DEVICES].exec.copies = (struct CUstream_st *) &rt;
    REQUIRE_OK(weft_moves_create(&rt, &err), err);
}

static void rt_end(void)
{
    weft_moves_free(&rt);
    for (int d = 0; d <= DEVICES; d++) {
        weft_free(worker[d].late);
        pthread_mutex_destroy(&worker[d].mutex);
    }
}

/* All tasks of the recording, each of another iteration or call. */
static void insert_all(int32_t first_iteration)
{
    for (int i = 0; i < (int) r.n_tasks; i++) {
        const struct weft_rec_task *t = &r.task[i];
        for (int32_t a = 0; a < t->n_access; a++) {
            const struct weft_rec_access *x = &r.access[t->access + a];
            held[i][a] = (struct weft_access){
                &tiles[x->tile], x->mode == READ ? WEFT_READ : WEFT_WRITE};
        }
        tasks[i] = (struct weft_task){
            .held = held[i],
            .n_held = (int) t->n_access,
            .where = {.iteration = first_iteration + i / CALLS,
                      .call = i % CALLS,
                      .moves = t->moves}};
        weft_moves_insert(&rt, &tasks[i]);
        tasks[i].inserted_us = 0;
    }
}

/* In the order of their ends; equal ones in that of insertion. */
static void end_all(const struct weft_engine *e)
{
    bool ended[MOST_TASKS] = {false};
    for (int64_t n = 0; n < r.n_tasks; n++) {
        int64_t next = -1;
        for (int64_t i = 0; i < r.n_tasks; i++)
            if (!ended[i]
                && (next < 0 || span_of(e, i).end_s < span_of(e, next).end_s))
                next = i;
        ended[next] = true;
        int device = r.task[next].kind == WEFT_REC_TASK ? r.task[next].device
                                                        : DEVICES;
        weft_moves_ended(&worker[device], &tasks[next], span_of(e, next));
    }
}

static double found_s(int32_t first_iteration, int64_t task)
{
    double s = 0;
    for (int d = 0; d <= DEVICES; d++)
        s += weft_times_get(&worker[d].times,
                            first_iteration + (int32_t) task / CALLS,
                            (int32_t) task % CALLS)
                 .waited_s;
    return s;
}

/* Two times the same, as numbers of moves and notes begin anew. */
static void test_random(void)
{
    int n_waited = 0;
    for (int k = 0; k < 100; k++) {
        make_moving();
        struct weft_engine *e = play_moves();
        rt_make();
        for (int32_t turn = 0; turn < 4; turn += 2) {
            for (int i = 0; i < TILES; i++) /* as at 0 s */
                atomic_store(&tiles[i].written_us, 0);
            for (int d = 0; d <= DEVICES; d++)
                worker[d].moved_us = worker[d].computed_us = 0;
            insert_all(turn);
            end_all(e);
            CHECK(weft_moves_find(&rt));
            for (int64_t t = 0; t < r.n_tasks; t++) {
                check_s(found_s(turn, t), waited_s(e, t));
                n_waited += waited_s(e, t) > 0;
            }
        }
        rt_end();
        done(e);
    }
    CHECK(n_waited > 1000);
}

/* A task that is inserted when a move has ended does not wait for it, and one
 * that is inserted before does, but not before it was inserted itself. */
static void test_inserted_later(void)
{
    for (int later = 0; later < 2; later++) {
        begin();
        int32_t x = tile(1, 1);
        moves(writes(task(0, 0, 0, 5), x));
        rt_make();
        insert_all(0);
        if (later)
            weft_moves_ended(&worker[DEVICES], &tasks[0],
                             (struct weft_span){0, 5});
        held[1][0] = (struct weft_access){&tiles[x], WEFT_READ};
        tasks[1] = (struct weft_task){
            .held = held[1], .n_held = 1, .where = {.call = 1}};
        weft_moves_insert(&rt, &tasks[1]);
        CHECK_INT(tasks[1].n_waits, !later);
        tasks[1].inserted_us = later ? 6e6 : 2e6;
        if (!later)
            weft_moves_ended(&worker[DEVICES], &tasks[0],
                             (struct weft_span){0, 5});
        weft_moves_ended(&worker[1], &tasks[1], (struct weft_span){7, 8});
        CHECK(weft_moves_find(&rt));
        check_s(found_s(0, 1), later ? 0 : 3);
        rt_end();
        weft_recording_release(&r);
    }
}

/* A tile that came in an iteration before comes no more, whatever moves now. */
static void test_came_before(void)
{
    rt_make();
    begin();
    int32_t x = tile(0, 1), y = tile(1, 1);
    moves(writes(task(0, 0, 0, 1), x));
    insert_all(0);
    weft_moves_ended(&worker[DEVICES], &tasks[0], (struct weft_span){0, 1});
    CHECK(weft_moves_find(&rt));
    held[0][0] = (struct weft_access){&tiles[y], WEFT_WRITE};
    weft_moves_insert(&rt, &tasks[0]); /* and has not ended */
    for (int32_t i = x; i <= y; i++) {
        held[1][0] = (struct weft_access){&tiles[i], WEFT_READ};
        tasks[1] = (struct weft_task){.held = held[1], .n_held = 1};
        weft_moves_insert(&rt, &tasks[1]);
        CHECK_INT(tasks[1].n_waits, i == y);
    }
    rt_end();
    weft_recording_release(&r);
}

/* What is too much to be noted is said, and the next iteration is known. */
static void test_lost(void)
{
    rt_make();
    atomic_store(&rt.moves->lost, true);
    CHECK(!weft_moves_find(&rt));
    CHECK(weft_moves_find(&rt));
    rt_end();
}

int main(void)
{
    static const struct weft_test tests[] = {
        {"test_random", test_random},
        {"test_inserted_later", test_inserted_later},
        {"test_came_before", test_came_before},
        {"test_lost", test_lost}};
    return weft_test_main("rt/moves", tests, WEFT_COUNT(tests));
}
