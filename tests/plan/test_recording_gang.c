/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions in recordings, against what is seen in a small one: two members
 * with a place each compute parts, exchange them and join them. */
#include "harness.h"
#include "plan/recording.h"

enum { READ, WRITE, BOTH };

static struct weft_recording r;

static int32_t tile(int32_t place, size_t bytes)
{
    return weft_recording_tile(
        &r, &(struct weft_rec_tile){.bytes = bytes,
                                    .place = place,
                                    .whole = -1,
                                    .mem = WEFT_MEM_ACTIVATIONS});
}

static void task(const char *op, int device, int64_t position)
{
    const struct weft_where where = {
        .device = device, .position = position, .call = 3, .layer = 7};
    weft_recording_task(&r, WEFT_REC_TASK, op, &where, device);
}

static void message(int32_t from, int32_t to, int32_t place)
{
    const struct weft_where where = {.device = -1};
    weft_recording_task(&r, WEFT_REC_MESSAGE, "message", &where, place);
    weft_recording_access(&r, from, READ);
    weft_recording_access(&r, to, WRITE);
}

/* y = join of the parts of x, at both places; parts take `bytes`. */
static void half(const int32_t x[2], const int32_t y[2], size_t bytes,
                 int64_t position)
{
    int32_t part[2], got[2];
    for (int k = 0; k < 2; k++) {
        part[k] = tile(k, bytes);
        task("part", k, position);
        weft_recording_access(&r, x[k], READ);
        weft_recording_access(&r, part[k], WRITE);
    }
    for (int k = 0; k < 2; k++) {
        got[k] = tile(k, bytes);
        message(part[1 - k], got[k], k);
    }
    for (int k = 0; k < 2; k++) {
        task("join", k, position ? position + 1 : 0);
        weft_recording_access(&r, part[k], READ);
        weft_recording_access(&r, got[k], READ);
        weft_recording_access(&r, y[k], y[k] == x[k] ? BOTH : WRITE);
    }
    for (int k = 0; k < 2; k++) {
        weft_recording_release_tile(&r, part[k]);
        weft_recording_release_tile(&r, got[k]);
    }
}

static void check_access(int64_t task, int i, int32_t tile, int mode)
{
    const struct weft_rec_access *a = &r.access[r.task[task].access + i];
    CHECK((int32_t) a->tile == tile && (int) a->mode == mode);
}

static void test_members(void)
{
    const struct weft_work work = {.n_rows = 5, .n_layers = 1};
    weft_recording_init(&r);
    int32_t x[2] = {tile(0, 64), tile(1, 64)};
    task("make", 0, 0);
    weft_recording_access(&r, x[0], WRITE);
    int32_t y[2] = {tile(0, 64), tile(1, 64)};
    weft_recording_gang_begin(&r);
    half(x, y, 100, 11);
    weft_recording_release_tile(&r, x[1]); /* one from outside */
    weft_recording_gang_end(&r, "layer", 4, &work);
    CHECK(r.n_tasks == 3 && r.n_gangs == 2 && !r.full);
    for (int k = 0; k < 2; k++) {
        const struct weft_rec_task *t = &r.task[1 + k];
        const struct weft_rec_gang *g = &r.gang[k];
        CHECK(t->device == k && t->place == k && t->position == 11);
        CHECK(t->call == 3 && t->layer == 4 && t->n_access == 3);
        CHECK(g->task == 1 + k && g->member == k && g->n_members == 2);
        CHECK(g->n_expanded == 3 && g->received_bytes == 100);
        CHECK(g->work.n_rows == 5 && g->work.n_layers == 1);
        check_access(1 + k, 0, x[k], READ);
        check_access(1 + k, 1, y[k], WRITE);
        check_access(1 + k, 2, 4 + k, WRITE);
        const struct weft_rec_tile *own = &r.tile[4 + k];
        CHECK(own->gang && own->bytes == 200 && own->place == k);
        CHECK(own->created == 1 && own->released == 3);
        int64_t first, end;
        weft_recording_members(&r, 1 + k, &first, &end);
        CHECK(first == 1 && end == 3);
    }
    CHECK(r.n_tiles == 6);
    CHECK(r.tile[x[1]].released == 3 && r.tile[x[0]].released == -1);
    weft_recording_release(&r);
}

/* Of the halves within, the larger counts; y becomes x in place. */
static void test_within(void)
{
    const struct weft_work work = {.n_steps = 1};
    weft_recording_init(&r);
    int32_t x[2] = {tile(0, 64), tile(1, 64)};
    weft_recording_gang_begin(&r);
    int32_t mid[2] = {tile(0, 10), tile(1, 10)};
    for (int i = 0; i < 2; i++) {
        weft_recording_gang_begin(&r);
        half(i ? mid : x, i ? x : mid, i ? 300 : 100, 1 + 2 * i);
        weft_recording_gang_end(&r, "half", -1, &work);
    }
    weft_recording_release_tile(&r, mid[0]);
    weft_recording_release_tile(&r, mid[1]);
    weft_recording_gang_end(&r, "layer", -1, &work);
    CHECK(r.n_tasks == 2 && r.n_gangs == 2 && r.n_tiles == 4);
    for (int k = 0; k < 2; k++) {
        CHECK(r.gang[k].n_expanded == 6);
        CHECK(r.gang[k].received_bytes == 400);
        CHECK(r.task[k].position == 1 && r.task[k].n_access == 2);
        check_access(k, 0, x[k], BOTH);
        CHECK(r.tile[2 + k].bytes == 10 + 600);
    }
    weft_recording_release(&r);
}

/* What begins after a member has ended, begins after all have: a tile that
 * place 1 gets from place 0 is not there together with what member 1 wrote. */
static void test_together(void)
{
    enum { PLACES = 2 };
    int64_t most[PLACES][WEFT_MEM_ALL + 1];
    struct weft_err err;
    weft_recording_init(&r);
    int32_t x[2] = {tile(0, 64), tile(1, 64)};
    int32_t y[2] = {tile(0, 1000), tile(1, 1000)}, z = tile(1, 900);
    weft_recording_gang_begin(&r);
    half(x, y, 100, 0);
    weft_recording_gang_end(&r, "layer", -1, &(struct weft_work){0});
    weft_recording_release_tile(&r, y[1]);
    task("copy", 1, 0);
    weft_recording_access(&r, y[0], READ);
    weft_recording_access(&r, z, WRITE);
    REQUIRE_OK(weft_recording_memory(&r, PLACES, PLACES, most, &err), err);
    CHECK(most[0][WEFT_MEM_ACTIVATIONS] == 64 + 1000 + 200);
    CHECK(most[1][WEFT_MEM_ACTIVATIONS] == 64 + 1000 + 200);
    weft_recording_release(&r);
}

WEFT_TESTS("plan/recording_gang", {"test_members", test_members},
           {"test_within", test_within}, {"test_together", test_together})
