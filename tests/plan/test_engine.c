/* SPDX-License-Identifier: Apache-2.0 */
/* The event engine against closed forms, and against a brute-force player of
 * random recordings. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "brute_engine.h"

enum { READ, WRITE, BOTH, DEVICES = 4 };

/* ---- Recordings written by hand ---------------------------------------- */

static double seconds_of[BRUTE_TASKS]; /* by task */
static struct weft_engine_message message_of[BRUTE_TASKS];
static struct weft_recording r;

static double seconds(void *ctx, const struct weft_recording *rec,
                      int64_t task, int32_t device)
{
    (void) rec;
    /* a device of another speed */
    return seconds_of[task] * (ctx && device == 1 ? *(double *) ctx : 1);
}

static void message(void *ctx, const struct weft_recording *rec, int64_t task,
                    struct weft_engine_message *out)
{
    (void) ctx;
    (void) rec;
    *out = message_of[task];
}

static const int32_t own_place[] = {0, 1, 2, 3, 4, 5, 6, 7};
static const int32_t same_place[] = {0, 0, 1, 1, 2, 2, 3, 3};
static const double links[] = {10, 10, 10, 10, 5, 20, 10, 10};

static const struct weft_engine_job own = {.n_devices = DEVICES,
                                           .n_places = DEVICES,
                                           .places_per_rank = 1,
                                           .place_of = own_place,
                                           .n_links = BRUTE_LINKS,
                                           .bytes_per_s = links,
                                           .memory = true,
                                           .seconds = seconds,
                                           .message = message};

static void begin(void)
{
    weft_recording_init(&r);
    memset(message_of, 0, sizeof message_of);
}

static int32_t tile(int32_t place, size_t bytes)
{
    return weft_recording_tile(
        &r, &(struct weft_rec_tile){.bytes = bytes,
                                    .place = place,
                                    .whole = -1,
                                    .mem = WEFT_MEM_ACTIVATIONS});
}

/* Adds a task; then its accesses follow. */
static int64_t task(int32_t device, int64_t position, int priority, double s)
{
    const struct weft_where where = {
        .device = device, .position = position, .priority = priority};
    weft_recording_task(&r, WEFT_REC_TASK, "task", &where, device);
    seconds_of[r.n_tasks - 1] = s;
    return r.n_tasks - 1;
}

static int64_t send(int32_t src, int32_t dst, int32_t link, int32_t to_link,
                    double bytes, double latency_s)
{
    const struct weft_where where = {.device = -1};
    weft_recording_task(&r, WEFT_REC_MESSAGE, "message", &where,
                        r.tile[dst].place);
    weft_recording_access(&r, src, READ);
    weft_recording_access(&r, dst, WRITE);
    message_of[r.n_tasks - 1] = (struct weft_engine_message){
        bytes, latency_s, 2, {link, to_link}};
    return r.n_tasks - 1;
}

static struct weft_engine *play(const struct weft_engine_job *job)
{
    struct weft_engine *e;
    struct weft_err err;
    REQUIRE_OK(weft_engine_create(job, &r, &e, &err), err);
    REQUIRE_OK(weft_engine_run(e, &err), err);
    return e;
}

static struct weft_span span_of(const struct weft_engine *e, int64_t i)
{
    struct weft_span span = {-1, -1};
    int32_t device;
    CHECK(weft_engine_span(e, i, &span, &device));
    return span;
}

static void check_s(double actual, double expected)
{
    if (fabs(actual - expected) > 1e-9)
        printf("\n    %.12g, expected %.12g\n", actual, expected);
    CHECK(fabs(actual - expected) <= 1e-9);
}

static void check_span(const struct weft_engine *e, int64_t i, double start,
                       double end)
{
    check_s(span_of(e, i).start_s, start);
    check_s(span_of(e, i).end_s, end);
}

static void done(struct weft_engine *e)
{
    weft_engine_free(e);
    weft_recording_release(&r);
}

/* ---- Closed forms ------------------------------------------------------ */

/* a then b and c on two devices, then d on the first. */
static void test_fork(void)
{
    begin();
    int32_t x = tile(0, 1), y = tile(0, 1), z = tile(0, 1);
    int64_t a = task(0, 0, 0, 2);
    weft_recording_access(&r, x, WRITE);
    int64_t b = task(0, 0, 0, 3);
    weft_recording_access(&r, x, READ);
    weft_recording_access(&r, y, WRITE);
    int64_t c = task(1, 0, 0, 5);
    weft_recording_access(&r, x, READ);
    weft_recording_access(&r, z, WRITE);
    int64_t d = task(0, 0, 0, 1);
    weft_recording_access(&r, y, READ);
    weft_recording_access(&r, z, READ);
    weft_recording_access(&r, x, WRITE);
    struct weft_engine *e = play(&own);
    check_span(e, a, 0, 2);
    check_span(e, b, 2, 5);
    check_span(e, c, 2, 7);
    check_span(e, d, 7, 8);
    check_s(weft_engine_now_s(e), 8);
    check_s(weft_engine_use(e, 0).busy_s, 6);
    check_s(weft_engine_use(e, 1).busy_s, 5);
    check_s(weft_engine_use(e, 0).moving_s, 0);
    done(e);
}

/* 1F1B of p stages and m micro-batches takes (m + p - 1) (f + b). */
static void test_pipeline(void)
{
    enum { P = 4, M = 6 };
    const double f = 1, b = 2;
    int32_t forth[P][M], back[P][M];
    begin();
    for (int s = 0; s < P; s++)
        for (int i = 0; i < M; i++) {
            forth[s][i] = tile(s, 1);
            back[s][i] = tile(s, 1);
        }
    /* what a device does first is inserted first, stage by stage: the order
     * of insertion must not matter where data and positions decide */
    int64_t at[P] = {0};
    int done_f[P] = {0}, done_b[P] = {0};
    for (int left = 2 * P * M; left > 0;)
        for (int s = 0; s < P; s++) {
            int warm = P - 1 - s < M ? P - 1 - s : M;
            bool forward = done_f[s] < M && done_f[s] - done_b[s] <= warm;
            int i = forward ? done_f[s] : done_b[s];
            if (i == M
                || (forward     ? s > 0 && done_f[s - 1] <= i
                    : s + 1 < P ? done_b[s + 1] <= i
                                : done_f[s] <= i))
                continue;
            task(s, ++at[s], 0, forward ? f : b);
            if (forward && s > 0)
                weft_recording_access(&r, forth[s - 1][i], READ);
            if (!forward && s + 1 < P)
                weft_recording_access(&r, back[s + 1][i], READ);
            weft_recording_access(&r, forward ? forth[s][i] : back[s][i],
                                  WRITE);
            if (!forward)
                weft_recording_access(&r, forth[s][i], READ);
            *(forward ? &done_f[s] : &done_b[s]) += 1;
            left--;
        }
    struct weft_engine *e = play(&own);
    check_s(weft_engine_now_s(e), (M + P - 1) * (f + b));
    for (int s = 0; s < P; s++)
        check_s(weft_engine_use(e, s).busy_s, M * (f + b));
    done(e);
}

/* Two messages that share the sender's link take twice as long, and the rest
 * of the longer one is carried alone; one of 5 bytes per second holds up that
 * which goes there. */
static void test_links(void)
{
    begin();
    int32_t x = tile(0, 40), y = tile(1, 20), z = tile(2, 40);
    task(0, 0, 0, 1);
    weft_recording_access(&r, x, WRITE);
    int64_t a = send(x, y, 0, 1, 20, 0.5);
    int64_t b = send(x, z, 0, 2, 40, 0);
    int64_t c = task(1, 0, 0, 1);
    weft_recording_access(&r, y, READ);
    struct weft_engine *e = play(&own);
    check_span(e, a, 1, 5.5); /* 20 bytes at 5 per second */
    check_span(e, b, 1, 7);   /* 20 at 5, 20 at 10 */
    check_span(e, c, 5.5, 6.5);
    check_s(weft_engine_use(e, 1).moving_s, 4.5);
    check_s(weft_engine_use(e, 2).moving_s, 6);
    check_s(weft_engine_use(e, 0).moving_s, 6);
    done(e);
    begin();
    x = tile(0, 40);
    y = tile(1, 40);
    task(0, 0, 0, 1);
    weft_recording_access(&r, x, WRITE);
    a = send(x, y, 0, 4, 40, 0);
    e = play(&own);
    check_span(e, a, 1, 9);
    done(e);
}

/* Ready tasks of a device: priority, then those with a position, then the
 * order of insertion; a position that is not next waits, and one of another
 * chain does not. */
static void test_order(void)
{
    begin();
    int32_t x = tile(0, 1), y = tile(1, 1);
    int64_t first = task(0, 0, 0, 1);
    int64_t later = task(1, 0, 0, 10);
    weft_recording_access(&r, y, WRITE);
    int64_t plain = task(0, 0, 0, 1), again = task(0, 0, 0, 1);
    int64_t one = task(0, 1, 0, 1); /* waits for `later` */
    weft_recording_access(&r, y, READ);
    int64_t two = task(0, 2, 0, 1);
    int64_t high = task(0, 0, 5, 1);
    weft_recording_access(&r, x, WRITE);
    struct weft_where other = {.device = 0, .position = 1, .chain = 3};
    weft_recording_task(&r, WEFT_REC_TASK, "task", &other, 0);
    int64_t chain = r.n_tasks - 1;
    seconds_of[chain] = 1;
    struct weft_engine *e = play(&own);
    check_span(e, high, 0, 1); /* all is inserted before anything begins */
    check_span(e, chain, 1, 2);
    check_span(e, first, 2, 3);
    check_span(e, plain, 3, 4);
    check_span(e, again, 4, 5);
    check_span(e, later, 0, 10);
    check_span(e, one, 10, 11);
    check_span(e, two, 11, 12);
    done(e);
}

/* Members of a gang begin and end together; a task that comes before a gang
 * that cannot begin yet goes on, one that comes after waits. */
static void test_gang(void)
{
    begin();
    int64_t busy = task(1, 0, 0, 3);
    int64_t before = task(0, 0, 1, 1), gang = r.n_tasks;
    for (int i = 0; i < 2; i++) {
        task(i, 0, 0, 2 + i);
        r.task[gang + i].member = (uint8_t) i;
        r.task[gang + i].n_members = 2;
    }
    int64_t after = task(0, 0, 0, 1);
    struct weft_engine *e = play(&own);
    check_span(e, busy, 0, 3);
    check_span(e, before, 0, 1);
    check_span(e, gang, 3, 6);
    check_span(e, gang + 1, 3, 6);
    check_span(e, after, 6, 7);
    done(e);
}

/* What comes after a wait begins when what it waits for has ended; a rank that
 * waits for a lot does not keep others back; a device of half the speed. */
static void test_waits(void)
{
    double slow = 2;
    struct weft_engine_job job = own;
    job.ctx = &slow;
    begin();
    int32_t x = tile(0, 1);
    int64_t a = task(0, 0, 0, 1);
    weft_recording_access(&r, x, WRITE);
    int64_t b = task(1, 0, 0, 2);
    weft_recording_wait_tile(&r, x);
    int64_t c = task(2, 0, 0, 1);
    weft_recording_lot(&r);
    int64_t d = task(2, 0, 0, 1);
    weft_recording_lot(&r);
    weft_recording_wait_lot(&r, 1);
    int64_t f = task(3, 0, 0, 1), g = task(2, 0, 0, 1);
    weft_recording_wait(&r);
    int64_t h = task(3, 0, 0, 1);
    struct weft_engine *e = play(&job);
    check_span(e, a, 0, 1);
    check_span(e, b, 0, 4);
    check_span(e, c, 1, 2);
    check_span(e, d, 2, 3);
    check_span(e, f, 1, 2); /* its rank has nothing in the lot */
    check_span(e, g, 3, 4);
    check_span(e, h, 4, 5);
    done(e);
}

/* An answer takes its time and no device; recording goes on while it is
 * played; what can never begin is named. */
static void test_grows(void)
{
    struct weft_engine *e;
    struct weft_err err;
    const struct weft_where where = {.device = -1};
    begin();
    int32_t x = tile(0, 64);
    weft_recording_task(&r, WEFT_REC_ANSWER, "answer", &where, -1);
    weft_recording_access(&r, x, WRITE);
    seconds_of[0] = 4;
    REQUIRE_OK(weft_engine_create(&own, &r, &e, &err), err);
    CHECK(weft_engine_advance(e));
    check_span(e, 0, 0, 4);
    CHECK(!weft_engine_advance(e));
    for (int i = 0; i < 40; i++) { /* arrays grow */
        task(0, i + 1, 0, 1);
        weft_recording_access(&r, x, BOTH);
        REQUIRE_OK(weft_engine_extend(e, &err), err);
        REQUIRE_OK(weft_engine_run(e, &err), err);
        check_span(e, i + 1, 4 + i, 5 + i);
    }
    weft_recording_release_tile(&r, x);
    int32_t y = tile(0, 64);
    task(0, 41, 0, 1);
    weft_recording_access(&r, y, WRITE);
    task(0, 42, 0, 1);
    r.task[r.n_tasks - 1].n_members = 2; /* the other does not come */
    REQUIRE_OK(weft_engine_extend(e, &err), err);
    CHECK_FAILS(weft_engine_run(e, &err), WEFT_EINVAL, err,
                "task 42 (task, device 0) never begins: its turn never "
                "comes");
    /* the first tile was given back */
    CHECK_INT(weft_engine_memory(e, 0)[WEFT_MEM_ACTIVATIONS], 64);
    done(e);
}

/* ---- Random recordings ------------------------------------------------- */

static uint32_t seed;

static int draw(int n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int) (seed >> 8) % n;
}

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
        struct weft_rec_task *t = &r.task[r.n_tasks - 1];
        t->member = (uint8_t) i;
        t->n_members = (uint8_t) (n > 1 ? n : 0);
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
        make(&w);
        b = (struct brute){.job = &w.job, .r = &r};
        brute_play(&b);
        REQUIRE_OK(weft_engine_create(&w.job, &r, &e, &err), err);
        while (weft_engine_advance(e))
            continue;
        check_times(&b, e, round);
        REQUIRE_OK(weft_engine_run(e, &err), err);
        check_memory(&b, e);
        done(e);
    }
}

WEFT_TESTS("plan/engine", {"test_fork", test_fork},
           {"test_pipeline", test_pipeline}, {"test_links", test_links},
           {"test_order", test_order}, {"test_gang", test_gang},
           {"test_waits", test_waits}, {"test_grows", test_grows},
           {"test_random", test_random})
