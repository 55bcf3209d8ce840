/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings: what tasks wait for against a double loop over all pairs, and
 * how many are open against a closure of that relation. */
#include <math.h>
#include <string.h>

#include "draw.h"
#include "harness.h"
#include "plan/recording.h"

enum { READ, WRITE, BOTH, TILES = 7, RANKS = 3, PLACES = 2 };

/* Tasks with up to four accesses, among them the same tile twice, messages
 * between places and answers; waits between them. */
static void make(struct weft_recording *r, int n_tasks)
{
    struct weft_where where = {.device = -1};
    weft_recording_init(r);
    for (int i = 0; i < TILES; i++)
        weft_recording_tile(
            r, &(struct weft_rec_tile){
                   .bytes = 64, .place = i % (RANKS * PLACES), .whole = -1});
    for (int t = 0; t < n_tasks; t++) {
        int kind = draw(8);
        if (kind == 0) { /* from a tile to another */
            weft_recording_task(r, WEFT_REC_MESSAGE, "message", &where, 0);
            weft_recording_access(r, draw(TILES), READ);
            weft_recording_access(r, draw(TILES), WRITE);
        } else if (kind == 1) {
            weft_recording_task(r, WEFT_REC_ANSWER, "answer", &where, -1);
            weft_recording_access(r, draw(TILES), WRITE);
        } else {
            weft_recording_task(r, WEFT_REC_TASK, "task", &where,
                                draw(RANKS * PLACES));
            for (int k = draw(5); k > 0; k--)
                weft_recording_access(r, draw(TILES), draw(3));
        }
        int wait = draw(20);
        if (wait == 0)
            weft_recording_wait(r);
        else if (wait == 1)
            weft_recording_wait_tile(r, draw(TILES));
        else if (wait == 2)
            weft_recording_lot(r);
        else if (wait == 3 && r->n_lots > 1)
            weft_recording_wait_lot(r, 1 + draw((int) r->n_lots - 1));
    }
}

static bool writes(const struct weft_recording *r, int64_t task, int tile,
                   bool *uses)
{
    const struct weft_rec_task *t = &r->task[task];
    bool does = false;
    *uses = false;
    for (int64_t a = t->access; a < t->access + t->n_access; a++)
        if ((int) r->access[a].tile == tile) {
            *uses = true;
            does = does || r->access[a].mode != READ;
        }
    return does;
}

/* Whether task b must wait for a: both use a tile that one of them writes. */
static bool conflict(const struct weft_recording *r, int64_t a, int64_t b)
{
    for (int tile = 0; tile < TILES; tile++) {
        bool first, second;
        bool one = writes(r, a, tile, &first);
        bool other = writes(r, b, tile, &second);
        if (first && second && (one || other))
            return true;
    }
    return false;
}

struct found {
    bool *before; /* (n_tasks) */
};

static void find(void *ctx, int64_t before)
{
    ((struct found *) ctx)->before[before] = true;
}

/* Every conflict is found, directly or through others; nothing else is. */
static void test_order(void)
{
    enum { N = 60 };
    struct weft_err err;
    for (uint32_t round = 0; round < 300; round++) {
        seed = round;
        struct weft_recording r;
        struct weft_rec_order order;
        static bool after[N][N]; /* [b][a]: b waits for a, also indirectly */
        make(&r, N);
        REQUIRE_OK(weft_rec_order_create(&r, &order, &err), err);
        memset(after, 0, sizeof after);
        bool all = true, none = true;
        for (int64_t b = 0; b < N; b++) {
            bool direct[N] = {false};
            struct found f = {direct};
            weft_rec_order_visit(&order, b, find, &f);
            for (int64_t a = 0; a < N; a++) {
                none = none && (!direct[a] || (a < b && conflict(&r, a, b)));
                if (!direct[a])
                    continue;
                after[b][a] = true;
                for (int64_t k = 0; k < a; k++)
                    after[b][k] = after[b][k] || after[a][k];
            }
            for (int64_t a = 0; a < b; a++)
                all = all && (!conflict(&r, a, b) || after[b][a]);
        }
        CHECK(all);
        CHECK(none);
        weft_rec_order_release(&order);
        weft_recording_release(&r);
    }
}

static int rank_of(const struct weft_recording *r, int64_t tile)
{
    return r->tile[tile].place / PLACES;
}

/* Adds a task's records to each rank's. */
static void count(const struct weft_recording *r, int64_t task,
                  struct weft_rec_open *open)
{
    const struct weft_rec_task *t = &r->task[task];
    bool one = t->kind == WEFT_REC_TASK;
    for (int i = 0; i < (one ? 1 : t->n_access); i++) {
        int rank = one ? t->place / PLACES
                       : rank_of(r, r->access[t->access + i].tile);
        int64_t bytes = (int64_t) weft_rec_task_bytes(one ? t->n_access : 1);
        open[rank].tasks++;
        open[rank].bytes += bytes;
        if (bytes > open[rank].largest)
            open[rank].largest = bytes;
    }
}

/* Ends a task and all that it conflicts with before, again and again. */
static void end(const struct weft_recording *r, int64_t task, bool *ended)
{
    if (ended[task])
        return;
    ended[task] = true;
    for (int64_t a = 0; a < task; a++)
        if (conflict(r, a, task))
            end(r, a, ended);
}

static void test_open(void)
{
    enum { N = 90 };
    struct weft_err err;
    for (uint32_t round = 0; round < 300; round++) {
        seed = round;
        struct weft_recording r;
        struct weft_rec_open most[RANKS], expected[RANKS] = {{0}};
        bool ended[N] = {false}, gone[N] = {false};
        int64_t w = 0;
        make(&r, N);
        for (int64_t t = 0; t < N; t++) {
            struct weft_rec_open open[RANKS] = {{0}};
            for (; w < r.n_waits && r.wait[w].task <= t; w++) {
                for (int64_t a = 0; a < r.wait[w].ended; a++)
                    end(&r, a, ended);
                memcpy(gone, ended, sizeof gone); /* until the next wait */
                bool uses;
                for (int64_t a = t - 1; a >= 0 && r.wait[w].tile >= 0; a--)
                    if (writes(&r, a, r.wait[w].tile, &uses)) {
                        end(&r, a, ended);
                        break;
                    }
            }
            for (int64_t a = 0; a <= t; a++)
                if (!gone[a])
                    count(&r, a, open);
            for (int i = 0; i < RANKS; i++) {
                if (open[i].tasks > expected[i].tasks)
                    expected[i].tasks = open[i].tasks;
                if (open[i].bytes > expected[i].bytes)
                    expected[i].bytes = open[i].bytes;
                if (open[i].largest > expected[i].largest)
                    expected[i].largest = open[i].largest;
            }
        }
        REQUIRE_OK(weft_recording_open(&r, RANKS, PLACES, most, &err), err);
        for (int i = 0; i < RANKS; i++) {
            CHECK_INT(most[i].tasks, expected[i].tasks);
            CHECK_INT(most[i].bytes, expected[i].bytes);
            CHECK_INT(most[i].largest, expected[i].largest);
        }
        weft_recording_release(&r);
    }
}

static void test_same(void)
{
    struct weft_recording a, b;
    char text[200];
    seed = 5;
    make(&a, 40);
    seed = 5;
    make(&b, 40);
    CHECK(weft_recording_same(&a, &b, text, sizeof text));
    b.task[17].layer++;
    CHECK(!weft_recording_same(&a, &b, text, sizeof text));
    CHECK(strncmp(text, "task 17:", 8) == 0);
    b.task[17].layer--;
    b.tile[3].bytes++;
    CHECK(!weft_recording_same(&a, &b, text, sizeof text));
    CHECK(strncmp(text, "tile 3:", 7) == 0);
    b.tile[3].bytes--;
    weft_recording_access(&b, 1, READ);
    CHECK(!weft_recording_same(&a, &b, text, sizeof text));
    weft_recording_release(&a);
    weft_recording_release(&b);
}

/* A layer's task, or a message, with two tiles. */
static void add(struct weft_recording *r, enum weft_rec_kind kind,
                int32_t layer, int32_t first, int32_t second)
{
    const struct weft_where where = {.device = -1, .layer = layer};
    weft_recording_task(r, kind, "task", &where, 0);
    weft_recording_access(r, first, READ);
    weft_recording_access(r, second, WRITE);
    weft_recording_work(r, &(struct weft_work){.flop = 10,
                                               .bytes = 1000,
                                               .n_rows = 8,
                                               .n_layers = 1,
                                               .n_passes = 2});
}

/* Two layers that stand for one and three. */
static void test_stretch(void)
{
    static const int32_t times[] = {1, 3}, layer[] = {0, 1, -1};
    struct weft_recording r;
    weft_recording_init(&r);
    for (int i = 0; i < 3; i++)
        weft_recording_tile(
            &r, &(struct weft_rec_tile){.bytes = i < 2 ? 100 : 60,
                                        .layer = (int16_t) layer[i],
                                        .whole = -1});
    add(&r, WEFT_REC_TASK, 0, 0, 2);
    add(&r, WEFT_REC_TASK, 1, 1, 2);
    add(&r, WEFT_REC_TASK, -1, 0, 1); /* 400 bytes instead of 200 */
    add(&r, WEFT_REC_MESSAGE, -1, 1,
        2); /* what it reads is three times as large */
    add(&r, WEFT_REC_MESSAGE, -1, 2, 1);
    weft_recording_gang(&r, &(struct weft_rec_gang){.task = 1,
                                                    .received_bytes = 7,
                                                    .n_received = 2,
                                                    .n_expanded = 5});
    static const double expected[] = {1, 3, 2, 3, 1};
    struct weft_rec_task before[WEFT_COUNT(expected)];
    memcpy(before, r.task, sizeof before);
    weft_recording_stretch(&r, 2, times);
    for (size_t i = 0; i < WEFT_COUNT(expected); i++) {
        const struct weft_rec_work *a = &before[i].work, *b = &r.task[i].work;
        double n = expected[i];
        CHECK(fabs(b->flop - n * a->flop) < 1e-6);
        CHECK(fabs(b->bytes - n * a->bytes) < 1e-6);
        CHECK_INT(b->n_rows, n * a->n_rows);
        CHECK_INT(b->n_steps, n * a->n_steps);
        CHECK_INT(b->n_layers, n * a->n_layers);
        CHECK_INT(b->n_passes, n * a->n_passes);
    }
    CHECK(r.tile[0].bytes == 100 && r.tile[1].bytes == 300
          && r.tile[2].bytes == 60);
    CHECK_INT(r.gang[0].received_bytes, 21);
    CHECK_INT(r.gang[0].n_received, 6);
    CHECK_INT(r.gang[0].n_expanded, 15);
    weft_recording_release(&r);
}

/* Says stop when it has been asked so many times. */
static bool is_enough(void *left)
{
    return (*(int *) left)-- == 0;
}

/* What is recorded after a stop is missing, however much that is. */
static void test_stop(void)
{
    enum { ASKED = 3, MANY = 1 << 18 };
    const struct weft_where where = {.device = -1};
    struct weft_recording r;
    struct weft_err err;
    int left = ASKED;
    weft_recording_init(&r);
    r.stop = is_enough;
    r.stop_ctx = &left;
    for (int i = 0; i < MANY; i++)
        weft_recording_task(&r, WEFT_REC_TASK, "task", &where, 0);
    CHECK(0 < r.n_tasks && r.n_tasks < MANY / 2);
    CHECK_INT(left, -1);
    CHECK_FAILS(weft_recording_status(&r, &err), WEFT_EINTERRUPTED, err,
                "stopped while a run was recorded");
    weft_recording_release(&r);
}

WEFT_TESTS("plan/recording", {"test_stop", test_stop},
           {"test_order", test_order}, {"test_open", test_open},
           {"test_same", test_same}, {"test_stretch", test_stretch})
