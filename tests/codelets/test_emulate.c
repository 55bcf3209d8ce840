/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks that compute nothing. */
#include "codelets/task_fixture.h"

#include "base/clock.h"

/* Of tasks that wait for one another on two devices each takes its time, and
 * what they wait for keeps its bytes. */
static void test_spin(void)
{
    enum { TASKS = 6 };
    const double seconds = 2e-3;
    struct weft_err err;
    struct task_fixture f;
    fixture_open_rt(&f, 2, false);
    struct weft_tile *tile = fixture_tile(&f, sizeof(int));
    *(int *) weft_tile_acquire(tile, WEFT_WRITE) = 42;
    weft_tile_unacquire(tile);
    double start = weft_clock_s();
    for (int i = 0; i < TASKS; i++) {
        struct weft_where where = anywhere;
        where.device = i % 2;
        weft_insert_spin(f.seq, &where, seconds, tile);
    }
    REQUIRE_OK(weft_seq_wait(f.seq, &err), err);
    CHECK(weft_clock_s() - start >= TASKS * seconds);
    CHECK_INT(*(int *) weft_tile_acquire(tile, WEFT_READ), 42);
    weft_tile_unacquire(tile);
    weft_tile_release(tile);
    weft_seq_free(f.seq);
    weft_rt_stop(f.rt);
}

WEFT_TESTS("codelets/emulate", {"test_spin", test_spin})
