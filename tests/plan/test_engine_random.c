/* SPDX-License-Identifier: Apache-2.0 */
/* The event engine against a brute-force player of random recordings. */
#include "brute_engine.h"
#include "draw.h"
#include "engine_fixture.h"

_Static_assert((int) BRUTE_TASKS == (int) MOST_TASKS, "tasks of a recording");

static double draw_s(void)
{
    return (1 + draw(1 << 20)) / (double) (1 << 20);
}

enum { TILES = 12, LAYOUTS = 3, SIDES = 2 };

struct world {
    struct weft_engine_job job;
    bool released[2 * TILES], cut[2 * TILES];
    int64_t position[DEVICES][2];
};

static int some_tile(const struct world *w, int place)
{
    for (int tries = 0; tries < 10; tries++) {
        int i = draw((int) r.n_tiles);
        if (!w->released[i] && !w->cut[i]
            && (place < 0 || r.tile[i].place == place))
            return i;
    }
    return -1;
}

static void make_tile(struct world *w)
{
    if (r.n_tiles >= TILES)
        return;
    int32_t number = tile(draw(w->job.n_places), (size_t) (1 + draw(100)));
    r.tile[number].permanent = draw(3) == 0;
    r.tile[number].mem = draw(2) ? WEFT_MEM_GRADIENTS : WEFT_MEM_HOST;
    for (int i = 0; i < 2 && draw(4) == 0; i++) {
        struct weft_rec_tile part = r.tile[number];
        part.whole = number;
        part.permanent = false;
        weft_recording_tile(&r, &part);
        w->cut[number] = true;
    }
}

static void use_some(struct world *w, int place)
{
    for (int k = draw(4); k > 0; k--) {
        int i = some_tile(w, place);
        if (i >= 0)
            weft_recording_access(&r, i, draw(3));
    }
}

static void make_message(struct world *w)
{
    int from = some_tile(w, -1), to = some_tile(w, -1);
    if (from < 0 || to < 0)
        return;
    int a = draw(BRUTE_LINKS);
    send(from, to, a, (a + 1 + draw(BRUTE_LINKS - 1)) % BRUTE_LINKS,
         20 * draw_s(), draw(2) ? draw_s() / 4 : 0);
    message_of[r.n_tasks - 1].core_s = draw(2) ? draw_s() / 8 : 0;
    if (r.tile[from].place / w->job.places_per_rank
            == r.tile[to].place / w->job.places_per_rank
        && draw(2))
        r.task[r.n_tasks - 1].kind = WEFT_REC_COPY;
}

static void make_task(struct world *w)
{
    int d = draw(DEVICES), chain = draw(2), n = 1, priority = draw(3);
    bool strict = draw(2) == 0;
    if (draw(5) == 0)
        n = 2 + draw(DEVICES - d) % 3;
    n = n > DEVICES - d ? 1 : n;
    for (int i = 0; i < n; i++) {
        struct weft_where where = {
            .device = d + i, .priority = priority + i, .chain = chain};
        int place = w->job.place_of[d + i];
        if (strict)
            where.position = w->position[d + i][chain] += 1 + draw(2);
        else if (n == 1 && draw(3) == 0)
            where.device = -1;
        weft_recording_task(&r, WEFT_REC_TASK, "task", &where, place);
        if (n > 1)
            member(i, n);
        seconds_of[r.n_tasks - 1] = draw_s();
        use_some(w, place);
    }
}

static void make_wait(struct world *w)
{
    int tile_number = some_tile(w, -1), kind = draw(4);
    if (kind == 0) {
        weft_recording_wait(&r);
        memset(w->position, 0, sizeof w->position);
    } else if (kind == 1 && tile_number >= 0) {
        weft_recording_wait_tile(&r, tile_number);
    } else {
        weft_recording_lot(&r);
        if (r.n_lots > 1 && kind == 2)
            weft_recording_wait_lot(&r, 1 + draw((int) r.n_lots - 1));
    }
}

static void make_release(struct world *w)
{
    int i = some_tile(w, -1);
    if (i < 0)
        return;
    i = r.tile[i].whole >= 0 ? r.tile[i].whole : i;
    if (r.tile[i].created == r.n_tasks)
        return;
    for (int k = 0; k < (int) r.n_tiles; k++)
        if (k == i || r.tile[k].whole == i) {
            weft_recording_release_tile(&r, k);
            w->released[k] = true;
        }
}

static void make(struct world *w)
{
    begin();
    for (int i = 0; i < 4; i++)
        make_tile(w);
    while (r.n_tasks < BRUTE_TASKS - 5) {
        int what = draw(16);
        if (what == 0)
            make_wait(w);
        else if (what == 1)
            make_release(w);
        else if (what < 4)
            make_tile(w);
        else if (what < 6)
            make_message(w);
        else
            make_task(w);
    }
}

/* When something is done: at one time what ends comes first, then the
 * program, then what begins. */
struct when {
    double s;
    int phase;
    int64_t number;
};

static bool is_before(struct when a, struct when b)
{
    return a.s != b.s         ? a.s < b.s
         : a.phase != b.phase ? a.phase < b.phase
                              : a.number < b.number;
}

/* When the program had passed its waits before a task. */
static double passed(const struct brute *b, int64_t task)
{
    double s = 0;
    bool writes;
    for (int64_t k = 0; k < r.n_waits; k++) {
        const struct weft_rec_wait *w = &r.wait[k];
        double last = 0;
        for (int64_t i = 0; i < w->task && w->task <= task && !w->local; i++)
            if (i < w->ended)
                s = b->end[i] > s ? b->end[i] : s;
            else if (w->tile >= 0
                     && brute_uses(&r, i, (uint32_t) w->tile, &writes)
                     && writes)
                last = b->end[i];
        s = last > s ? last : s;
    }
    return s;
}

/* When a tile has its memory; false: never. */
static bool lasts(const struct brute *b, int64_t number, struct when *from,
                  struct when *to)
{
    const struct weft_rec_tile *t = &r.tile[number];
    double last = -1;
    bool any = t->permanent && t->created < r.n_tasks;
    *from = (struct when){passed(b, t->created), 1, 2 * t->created + 1};
    for (int64_t i = 0; i < r.n_tasks; i++)
        for (int64_t a = r.task[i].access;
             a < r.task[i].access + r.task[i].n_access; a++) {
            int64_t k = r.access[a].tile;
            if (k != number && r.tile[k].whole != number)
                continue;
            last = b->end[i] > last ? b->end[i] : last;
            struct when start = {b->start[i], 2, 0};
            if (r.access[a].mode != READ
                && (!any || is_before(start, *from))) {
                *from = start;
                any = true;
            }
        }
    if (t->released < 0)
        to->s = 1e9;
    else if (t->released > 0 && passed(b, t->released - 1) >= last)
        *to = (struct when){passed(b, t->released - 1), 1, 2 * t->released};
    else
        *to = (struct when){last, 0, 0};
    return any;
}

static void check_memory(const struct brute *b, const struct weft_engine *e)
{
    static struct when from[2 * TILES], to[2 * TILES];
    int64_t peak[DEVICES][WEFT_MEM_ALL + 1] = {{0}};
    bool has[2 * TILES];
    for (int64_t i = 0; i < r.n_tiles; i++)
        has[i] = r.tile[i].whole < 0 && lasts(b, i, &from[i], &to[i]);
    for (int64_t i = 0; i < r.n_tiles; i++) {
        int64_t sum[WEFT_MEM_ALL + 1] = {0};
        for (int64_t k = 0; k < r.n_tiles && has[i]; k++) {
            if (!has[k] || r.tile[k].place != r.tile[i].place
                || is_before(from[i], from[k]) || !is_before(from[i], to[k]))
                continue;
            sum[r.tile[k].mem] += (int64_t) r.tile[k].bytes;
            if (r.tile[k].mem != WEFT_MEM_HOST)
                sum[WEFT_MEM_ALL] += (int64_t) r.tile[k].bytes;
        }
        for (int c = 0; c <= WEFT_MEM_ALL; c++)
            if (sum[c] > peak[r.tile[i].place][c])
                peak[r.tile[i].place][c] = sum[c];
    }
    bool same = true;
    for (int p = 0; p < b->job->n_places; p++)
        same = same
            && memcmp(peak[p], weft_engine_memory(e, p), sizeof peak[p]) == 0;
    CHECK(same);
    if (!same)
        printf("\n    memory of another peak, seed %u\n", seed);
}

/* What a place holds at a time, or, `when` what happens then does. */
static int64_t held(struct when *from, struct when *to, const bool *has,
                    int place, struct when when)
{
    int64_t sum = 0;
    for (int64_t k = 0; k < r.n_tiles; k++)
        if (has[k] && r.tile[k].place == place && !is_before(when, from[k])
            && is_before(when, to[k]) && r.tile[k].mem != WEFT_MEM_HOST)
            sum += (int64_t) r.tile[k].bytes;
    return sum;
}

/* The most that a place holds between two times: when they begin, or a tile has
 * its memory. */
static int64_t most_between(struct when *from, struct when *to,
                            const bool *has, int place, double begin_s,
                            double end_s)
{
    int64_t most = held(from, to, has, place, (struct when){begin_s, -1, 0});
    for (int64_t i = 0; i < r.n_tiles; i++)
        if (has[i] && r.tile[i].place == place && from[i].s >= begin_s
            && from[i].s < end_s)
            most = weft_max64(most, held(from, to, has, place, from[i]));
    return most;
}

/* Slices of time as defined; where something happens within rounding of where
 * one begins, it may be in either. */
static void check_slices(const struct brute *b, const struct weft_engine *e)
{
    static struct when from[2 * TILES], to[2 * TILES];
    const double near = 1e-6;
    bool has[2 * TILES];
    double s;
    int n = weft_engine_slices(e, &s), room = b->job->n_slices;
    CHECK(2 * n >= room && n <= room && n * s >= b->now - near);
    for (int64_t i = 0; i < r.n_tiles; i++)
        has[i] = r.tile[i].whole < 0 && lasts(b, i, &from[i], &to[i]);
    for (int p = 0; p < b->job->n_places; p++) {
        int64_t most = 0, bytes[WEFT_MEM_ALL + 1];
        for (int i = 0; i < n; i++) {
            int64_t sum = 0;
            weft_engine_slice(e, p, i, bytes);
            for (int c = 0; c < WEFT_MEM_ALL; c++)
                sum += bytes[c];
            CHECK(sum == bytes[WEFT_MEM_ALL]);
            CHECK(sum >= most_between(from, to, has, p, i * s + near,
                                      (i + 1) * s - near));
            CHECK(sum <= most_between(from, to, has, p, i * s - near,
                                      (i + 1) * s + near));
            most = weft_max64(most, sum);
        }
        CHECK(most == weft_engine_memory(e, p)[WEFT_MEM_ALL]);
    }
}

static void check_times(const struct brute *b, const struct weft_engine *e,
                        uint32_t round)
{
    double busy[DEVICES] = {0};
    for (int64_t i = 0; i < r.n_tasks; i++) {
        struct weft_span span = {-1, -1};
        int32_t device = -2;
        bool ended = weft_engine_span(e, i, &span, &device);
        bool same = ended == b->ended[i]
                 && (!ended
                     || (fabs(span.start_s - b->start[i]) < 1e-6
                         && fabs(span.end_s - b->end[i]) < 1e-6
                         && device == b->device[i]));
        if (!same)
            printf("\n    round %u, task %d: %g to %g on %d, expected %g to "
                   "%g on %d\n",
                   round, (int) i, span.start_s, span.end_s, device,
                   b->start[i], b->end[i], b->device[i]);
        REQUIRE(same);
        if (device >= 0)
            busy[device] += span.end_s - span.start_s;
    }
    for (int d = 0; d < DEVICES; d++)
        check_s(weft_engine_use(e, d).busy_s, busy[d]);
}

/* Rounding may not order what ends at one time, so times are not round. */
static void test_random(void)
{
    static struct brute b;
    struct weft_err err;
    for (uint32_t round = 0; round < 1500; round++) {
        struct world w = {.job = own};
        struct weft_engine *e;
        double slow = 1.25;
        seed = round * 7919u;
        if (round % LAYOUTS) {
            w.job.place_of = same_place;
            w.job.n_places = DEVICES / 2;
        }
        w.job.places_per_rank = round % LAYOUTS == 2 ? 2 : 1;
        w.job.ctx = &slow;
        w.job.insert = round % 2 ? insert : NULL;
        w.job.crowded = round % 4 < 2;
        w.job.n_slices = 1 + (int32_t) (round % 9);
        make(&w);
        for (int i = 0; i < MOST_TASKS && w.job.insert; i++)
            insert_s[i] = draw(4) ? draw_s() / 2 : 0;
        b = (struct brute){.job = &w.job, .r = &r};
        brute_play(&b);
        REQUIRE_OK(weft_engine_create(&w.job, &r, &e, &err), err);
        while (weft_engine_advance(e))
            continue;
        check_times(&b, e, round);
        REQUIRE_OK(weft_engine_run(e, &err), err);
        check_memory(&b, e);
        check_slices(&b, e);
        done(e);
    }
}

WEFT_TESTS("plan/engine_random", {"test_random", test_random})
