/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings in which some tasks and messages move tiles. */
#ifndef WEFT_TESTS_PLAN_MOVES_FIXTURE_H
#define WEFT_TESTS_PLAN_MOVES_FIXTURE_H

#include "draw.h"
#include "engine_fixture.h"

static inline int64_t reads(int64_t task, int32_t tile)
{
    weft_recording_access(&r, tile, READ);
    return task;
}

static inline int64_t writes(int64_t task, int32_t tile)
{
    weft_recording_access(&r, tile, WRITE);
    return task;
}

static inline int64_t moves(int64_t task)
{
    r.task[task].moves = 1;
    return task;
}

static inline struct weft_engine *play_moves(void)
{
    struct weft_engine_job job = own;
    job.moves = true;
    return play(&job);
}

static inline double waited_s(const struct weft_engine *e, int64_t task)
{
    int64_t n;
    double s = 0;
    const struct weft_engine_waited *w = weft_engine_waited(e, &n);
    for (int64_t i = 0; i < n; i++)
        s += w[i].task == task ? w[i].s : 0;
    return s;
}

enum { TILES = 12 };

/* Tasks of devices, and messages, all inserted at once. */
static inline void make_moving(void)
{
    begin();
    for (int i = 0; i < TILES; i++)
        tile(i % DEVICES, 1);
    while (r.n_tasks < MOST_TASKS) {
        int a = draw(TILES), b = draw(TILES);
        double s = 1 + draw(8);
        if (draw(2) && a % DEVICES != b % DEVICES) {
            send(a, b, draw(4), 4 + draw(4), 10 * s, 0);
        } else {
            b = (b / DEVICES) * DEVICES + a % DEVICES;
            task(a % DEVICES, 0, draw(3), s);
            if (a != b)
                reads(r.n_tasks - 1, a);
            writes(r.n_tasks - 1, b);
        }
        if (draw(2))
            moves(r.n_tasks - 1);
    }
}

#endif
