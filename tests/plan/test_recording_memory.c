/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that recordings can take, against all orders in which the tasks
 * of small random ones can run: a search over every state that two ranks with
 * their programs, tasks and messages can come to. The bound is never less than
 * what is there in any of them, and mostly no more.
 */
#include "plan/engine/engine.h"
#include "random_recording.h"

/* ---- All orders -------------------------------------------------------- */

enum state { WAITING, RUNNING, ENDED };

/* Each rank's program, how far it has come with what may be early, what the
 * tasks do, and the message of each rank that has ended and still holds its
 * tile (its number + 1). */
struct now {
    uint8_t at[RANKS], ahead[RANKS], task[TASKS], late[RANKS];
};

struct search {
    const struct story *s;
    const struct weft_recording *r;
    bool after[TASKS][TASKS]; /* [b][a]: b waits for a */
    int inserted[TASKS];      /* its event */
    uint64_t *seen;
    size_t n_seen, room;
    struct now *stack;
    size_t n_stack;
    int64_t most[RANKS][WEFT_MEM_ALL + 1];
};

static int mode_of(const struct weft_recording *r, int task, int tile)
{
    const struct weft_rec_task *t = &r->task[task];
    for (int64_t a = t->access; a < t->access + t->n_access; a++)
        if ((int) r->access[a].tile == tile)
            return (int) r->access[a].mode;
    return -1;
}

static bool is_message(const struct search *x, int task)
{
    return x->r->task[task].kind == WEFT_REC_MESSAGE;
}

/* The ranks that insert a task. */
static bool is_of(const struct search *x, int task, int rank)
{
    return is_message(x, task) || x->r->task[task].place == rank;
}

static bool conflict(const struct search *x, int a, int b)
{
    for (int i = 0; i < (int) x->r->n_tiles; i++) {
        int m = mode_of(x->r, a, i), n = mode_of(x->r, b, i);
        if (m >= 0 && n >= 0 && m + n > 0)
            return true;
    }
    return false;
}

/* Task b is after a sample's task, and what that reads in its iteration. */
static void after_sample(struct search *x, int b, int sample)
{
    const struct weft_rec_task *t = x->r->task;
    x->after[b][sample] = true;
    for (int a = 0; a < sample; a++)
        if (!weft_rec_is_early(t[a].when) && conflict(x, a, sample)
            && t[a].iteration == t[sample].iteration)
            x->after[b][a] = true;
}

static void relate(struct search *x)
{
    const struct weft_recording *r = x->r;
    for (int b = 0; b < (int) r->n_tasks; b++)
        for (int a = 0; a < b; a++) {
            const struct weft_rec_task *s = &r->task[a], *t = &r->task[b];
            bool open = t->when == WEFT_REC_EARLIEST
                     && !weft_rec_is_early(s->when)
                     && t->iteration == s->iteration;
            x->after[b][a] = x->after[b][a] || (!open && conflict(x, a, b));
            bool like = t->when == WEFT_REC_AFTER_SAMPLES
                     && t->iteration == s->iteration;
            if (like && s->when == WEFT_REC_AFTER_SAMPLES)
                x->after[b][a] = true;
            if (like
                && (s->when == WEFT_REC_EARLIEST
                    || s->when == WEFT_REC_SAMPLE))
                after_sample(x, b, a);
            if (s->position > 0 && t->position > s->position
                && s->device == t->device) {
                bool all = false; /* positions began again between them */
                for (int64_t w = 0; w < r->n_waits; w++)
                    all = all
                       || (r->wait[w].tile < 0 && !r->wait[w].local
                           && r->wait[w].task > a && r->wait[w].task <= b);
                x->after[b][a] = x->after[b][a] || !all;
            }
        }
}

static bool is_hard(const struct search *x, int event)
{
    const struct event *v = &x->s->event[event];
    return v->kind == WAIT && x->r->wait[v->number].tile < 0;
}

static void find_events(struct search *x)
{
    for (int e = 0; e < x->s->n; e++)
        if (x->s->event[e].kind == TASK)
            x->inserted[x->s->event[e].number] = e;
}

/* Whether a rank has done what its program does in an event. */
static bool is_done(const struct search *x, const struct now *now, int rank,
                    int event)
{
    return event < now->at[rank]
        || (x->s->event[event].early && event < now->ahead[rank]);
}

static bool is_in(const struct search *x, const struct now *now, int task,
                  int rank)
{
    return is_done(x, now, rank, x->inserted[task]);
}

/* Whether what a task waits for has ended. of_tile: only what its use of this
 * tile waits for; -1: all. */
static bool may_run(const struct search *x, const struct now *now, int task,
                    int of_tile)
{
    for (int a = 0; a < task; a++) {
        if (!x->after[task][a] || now->task[a] == ENDED)
            continue;
        if (of_tile < 0 || mode_of(x->r, a, of_tile) >= 0)
            return false;
    }
    return true;
}

static bool wait_over(const struct search *x, const struct now *now, int rank,
                      int event)
{
    const struct weft_rec_wait *w = &x->r->wait[x->s->event[event].number];
    int last = -1;
    for (int a = 0; a < (int) w->task && w->tile >= 0; a++)
        if (mode_of(x->r, a, w->tile) > READ)
            last = a;
    if (w->tile >= 0)
        return last < 0 || now->task[last] == ENDED;
    for (int a = 0; a < (int) w->ended; a++)
        if ((!w->local || is_of(x, a, rank)) && now->task[a] != ENDED)
            return false;
    for (int i = 0; i < RANKS; i++) /* the drain sees the callback's end */
        if ((!w->local || i == rank) && now->late[i]
            && now->late[i] - 1 < w->ended)
            return false;
    for (int i = 0; i < RANKS && !w->local; i++)
        if (now->at[i] < event)
            return false;
    return true;
}

/* Whether the tile at `rank` is there; parts count as their whole. */
static bool is_there(const struct search *x, const struct now *now, int tile)
{
    const struct weft_rec_tile *t = &x->r->tile[tile];
    int rank = t->place;
    bool begun = false, all = true, released = false;
    for (int e = 0; e < x->s->n; e++) {
        const struct event *v = &x->s->event[e];
        if (!is_done(x, now, rank, e))
            continue;
        begun = begun
             || (t->permanent && v->kind == CREATE && v->number == tile);
        released = released || (v->kind == RELEASE && v->number == tile);
    }
    for (int a = 0; a < (int) x->r->n_tasks; a++)
        for (int i = 0; i < (int) x->r->n_tiles; i++) {
            if ((i != tile && x->r->tile[i].whole != tile)
                || mode_of(x->r, a, i) < 0)
                continue;
            bool sends = is_message(x, a) && mode_of(x->r, a, i) == READ;
            begun = begun || (now->task[a] != WAITING && !sends);
            all = all && now->task[a] == ENDED && now->late[rank] != a + 1;
        }
    return begun && !(released && all);
}

static void measure(struct search *x, const struct now *now)
{
    int64_t sum[RANKS][WEFT_MEM_ALL + 1] = {{0}};
    for (int i = 0; i < (int) x->r->n_tiles; i++) {
        const struct weft_rec_tile *t = &x->r->tile[i];
        if (t->whole >= 0 || !is_there(x, now, i))
            continue;
        sum[t->place][t->mem] += (int64_t) t->bytes;
        sum[t->place][WEFT_MEM_ALL] += (int64_t) t->bytes;
    }
    for (int k = 0; k < RANKS; k++)
        for (int c = 0; c <= WEFT_MEM_ALL; c++)
            if (sum[k][c] > x->most[k][c])
                x->most[k][c] = sum[k][c];
}

static uint64_t key_of(const struct now *now)
{
    uint64_t key = 1;
    for (int k = 0; k < RANKS; k++)
        key = ((key * 32 + now->at[k]) * 32 + now->ahead[k]) * 8
            + now->late[k];
    for (int t = 0; t < TASKS; t++)
        key = key * 4 + now->task[t];
    return key;
}

/* Adds a state to those that are to be looked at, unless it was before. */
static void come_to(struct search *x, const struct now *now)
{
    uint64_t key = key_of(now);
    size_t i = (size_t) (key * 0x9e3779b97f4a7c15u >> 32) & (x->room - 1);
    while (x->seen[i] && x->seen[i] != key)
        i = (i + 1) & (x->room - 1);
    if (x->seen[i])
        return;
    x->seen[i] = key;
    x->n_seen++;
    REQUIRE(x->n_seen < x->room / 2);
    x->stack[x->n_stack++] = *now;
    measure(x, now);
}

static void programs_go_on(struct search *x, const struct now *now)
{
    for (int k = 0; k < RANKS; k++) {
        struct now next = *now;
        if (now->late[k]) {
            next.late[k] = 0;
            come_to(x, &next);
        }
        next = *now;
        int ahead = now->ahead[k] > now->at[k] ? now->ahead[k] : now->at[k];
        if (ahead < x->s->n && !is_hard(x, ahead)) {
            next.ahead[k] = (uint8_t) (ahead + 1);
            come_to(x, &next);
        }
        next = *now;
        if (now->at[k] == x->s->n
            || (x->s->event[now->at[k]].kind == WAIT
                && !wait_over(x, now, k, now->at[k])))
            continue;
        next.at[k]++;
        if (next.ahead[k] <= next.at[k])
            next.ahead[k] = 0;
        come_to(x, &next);
    }
}

static void message_goes_on(struct search *x, const struct now *now, int t)
{
    struct now next = *now;
    int from = (int) x->r->access[x->r->task[t].access].tile;
    int to = (int) x->r->access[x->r->task[t].access + 1].tile;
    int src = x->r->tile[from].place, dst = x->r->tile[to].place;
    if (now->task[t] == WAITING && is_in(x, now, t, dst)
        && may_run(x, now, t, to)) {
        next.task[t] = RUNNING; /* it has its memory */
        come_to(x, &next);
    }
    if (now->task[t] == RUNNING && is_in(x, now, t, src)
        && may_run(x, now, t, -1) && !now->late[src] && !now->late[dst]) {
        next.task[t] = ENDED;
        next.late[src] = next.late[dst] = (uint8_t) (t + 1);
        come_to(x, &next);
    }
}

static void task_goes_on(struct search *x, const struct now *now, int t)
{
    struct now next = *now;
    if (now->task[t] == WAITING
        && (!is_in(x, now, t, x->r->task[t].place)
            || !may_run(x, now, t, -1)))
        return;
    if (now->task[t] == ENDED)
        return;
    next.task[t]++;
    come_to(x, &next);
}

static void search_all(struct search *x)
{
    struct now now = {.at = {0}};
    x->n_seen = x->n_stack = 0;
    memset(x->seen, 0, x->room * sizeof *x->seen);
    memset(x->most, 0, sizeof x->most);
    memset(x->after, 0, sizeof x->after);
    x->r = &x->s->r;
    relate(x);
    find_events(x);
    come_to(x, &now);
    while (x->n_stack > 0) {
        now = x->stack[--x->n_stack];
        programs_go_on(x, &now);
        for (int t = 0; t < (int) x->r->n_tasks; t++)
            if (is_message(x, t))
                message_goes_on(x, &now, t);
            else
                task_goes_on(x, &now, t);
    }
}

static double some_time(void *ctx, const struct weft_recording *r,
                        int64_t task, int32_t device)
{
    (void) ctx;
    (void) r;
    (void) device;
    return 1 + draw(5) + (double) task / 1024;
}

static void no_links(void *ctx, const struct weft_recording *r, int64_t task,
                     struct weft_engine_message *out)
{
    *out = (struct weft_engine_message){
        .latency_s = some_time(ctx, r, task, -1)};
}

/* What the event engine plays is one of the orders. */
static void check_played(const struct weft_recording *r,
                         int64_t (*most)[WEFT_MEM_ALL + 1])
{
    static const int32_t place_of[DEVICES] = {0, 0, 1, 1};
    const struct weft_engine_job job = {.n_devices = DEVICES,
                                        .n_places = RANKS,
                                        .places_per_rank = 1,
                                        .place_of = place_of,
                                        .memory = true,
                                        .seconds = some_time,
                                        .message = no_links};
    struct weft_engine *e;
    struct weft_err err;
    for (int times = 0; times < 10; times++) {
        REQUIRE_OK(weft_engine_create(&job, r, &e, &err), err);
        REQUIRE_OK(weft_engine_run(e, &err), err);
        for (int k = 0; k < RANKS; k++)
            for (int c = 0; c <= WEFT_MEM_ALL; c++)
                CHECK(weft_engine_memory(e, k)[c] <= most[k][c]);
        weft_engine_free(e);
    }
}

static void test_all_orders(void)
{
    struct weft_err err;
    struct search x = {.room = 1 << 22};
    int64_t sum = 0, least = 0;
    int n_same = 0, n = 0;
    x.seen = weft_alloc(x.room, sizeof *x.seen);
    x.stack = weft_alloc(x.room, sizeof *x.stack);
    REQUIRE(x.seen && x.stack);
    for (uint32_t round = 0; round < 150; round++) {
        struct story s;
        int64_t most[RANKS][WEFT_MEM_ALL + 1];
        seed = round;
        make(&s);
        x.s = &s;
        search_all(&x);
        int64_t more[RANKS][WEFT_MEM_ALL + 1]; /* if it were large ... */
        int64_t own[RANKS][WEFT_MEM_ALL + 1];  /* ... and had no memory */
        REQUIRE_OK(weft_recording_memory(&s.r, RANKS, 1, most, &err), err);
        REQUIRE_OK(weft_recording_memory_of(&s.r, RANKS, 1, true, INT64_MAX,
                                            more, &err),
                   err);
        REQUIRE_OK(
            weft_recording_memory_of(&s.r, RANKS, 1, true, 0, own, &err),
            err);
        for (int k = 0; k < RANKS; k++)
            for (int c = 0; c <= WEFT_MEM_ALL; c++) {
                CHECK(most[k][c] >= x.most[k][c]);
                CHECK(more[k][c] >= x.most[k][c]);
                CHECK(own[k][c] >= x.most[k][c]);
                if (most[k][c] < x.most[k][c])
                    printf("round %u, place %d, class %d: %lld, not %lld\n",
                           round, k, c, (long long) most[k][c],
                           (long long) x.most[k][c]);
                sum += most[k][c];
                least += x.most[k][c];
                n += x.most[k][c] > 0;
                n_same += x.most[k][c] > 0 && most[k][c] == x.most[k][c];
            }
        check_played(&s.r, x.most);
        weft_recording_release(&s.r);
    }
    printf("%d of %d are the most there can be; together %.3f of it\n",
           n_same, n, (double) sum / (double) least);
    CHECK(n_same >= n * 96 / 100);
    weft_free(x.seen);
    weft_free(x.stack);
}

/* ---- Large recordings -------------------------------------------------- */

enum { PLACES = 5, MOST_TILES = 60 };

static void add_random_task(struct weft_recording *r, int32_t n)
{
    int32_t from = draw(n), place = r->tile[from].place;
    bool copies = draw(6) == 0, message = copies || draw(3) == 0;
    const struct weft_where where = {
        .device = message ? -1 : place,
        .position = message || draw(2) ? 0 : r->n_tasks + 1};
    int32_t to = draw(PLACES);
    weft_recording_task(r,
                        copies    ? WEFT_REC_COPY
                        : message ? WEFT_REC_MESSAGE
                                  : WEFT_REC_TASK,
                        "task", &where, message ? to : place);
    weft_recording_access(r, from, 0);
    weft_recording_access(
        r,
        weft_recording_tile(
            r, &(struct weft_rec_tile){.bytes = 1 + (size_t) draw(50),
                                       .place = message ? to : place,
                                       .whole = -1,
                                       .mem = WEFT_MEM_ACTIVATIONS}),
        1);
}

/* Tasks and messages at random; nearly all tiles end. */
static void make_random(struct weft_recording *r)
{
    weft_recording_init(r);
    for (int32_t p = 0; p < PLACES; p++)
        weft_recording_tile(
            r, &(struct weft_rec_tile){
                   .bytes = 5, .place = p, .whole = -1, .permanent = true});
    while (r->n_tiles < MOST_TILES) {
        add_random_task(r, (int32_t) r->n_tiles);
        int32_t tile = PLACES + draw((int32_t) r->n_tiles - PLACES);
        if (draw(2) && r->tile[tile].released < 0
            && tile + 3 < (int32_t) r->n_tiles)
            weft_recording_release_tile(r, tile);
    }
}

/* Fewer places and lanes may say more, never less; nor does it with no memory
 * for what is known of other places. */
static void test_large(void)
{
    int n_more = 0, n_own = 0;
    for (uint32_t round = 0; round < 300; round++) {
        struct weft_recording r;
        struct weft_err err;
        int64_t most[PLACES][WEFT_MEM_ALL + 1];
        int64_t more[PLACES][WEFT_MEM_ALL + 1];
        int64_t own[PLACES][WEFT_MEM_ALL + 1];
        seed = round;
        make_random(&r);
        REQUIRE_OK(weft_recording_memory_of(&r, PLACES, 1, false, INT64_MAX,
                                            most, &err),
                   err);
        REQUIRE_OK(weft_recording_memory_of(&r, PLACES, 1, true, INT64_MAX,
                                            more, &err),
                   err);
        REQUIRE_OK(
            weft_recording_memory_of(&r, PLACES, 1, true, 0, own, &err), err);
        for (int k = 0; k < PLACES; k++) {
            CHECK(more[k][WEFT_MEM_ALL] >= most[k][WEFT_MEM_ALL]);
            CHECK(own[k][WEFT_MEM_ALL] >= more[k][WEFT_MEM_ALL]);
            n_more += more[k][WEFT_MEM_ALL] > most[k][WEFT_MEM_ALL];
            n_own += own[k][WEFT_MEM_ALL] > more[k][WEFT_MEM_ALL];
        }
        weft_recording_release(&r);
    }
    CHECK(n_more > 0);
    CHECK(n_own > 0);
}

/* ---- A known order ----------------------------------------------------- */

/* Tasks that begin and end at random moments after their insertion; a few have
 * not, by the end. Tiles are released between tasks, or it is not noted.
 * Returns the last moment. */
static int32_t make_moments(const struct weft_recording *r,
                            struct weft_rec_played *out)
{
    int32_t now = 0, end = 0;
    for (int64_t i = 0; i < r->n_tasks; i++) {
        struct weft_rec_moments *m = &out->moments[i];
        now += 1 + (int32_t) draw(3);
        m->inserted = now;
        m->began = draw(8) ? now + 1 + (int32_t) draw(9) : 0;
        m->ended = m->began && draw(8) ? m->began + 1 + (int32_t) draw(9) : 0;
        end = m->began > end ? m->began : end;
        end = m->ended > end ? m->ended : end;
    }
    for (int64_t i = 0; i < r->n_tiles; i++) {
        int64_t n = r->tile[i].released;
        out->released[i] = n > 0 && draw(2) ? out->moments[n - 1].inserted
                                                  + (int32_t) draw(3)
                                            : 0;
    }
    return end > now ? end : now;
}

/* Whether a tile has memory at a moment. */
static bool has_memory(const struct weft_recording *r,
                       const struct weft_rec_played *played, int tile,
                       int32_t at)
{
    const struct weft_rec_tile *t = &r->tile[tile];
    const struct weft_rec_moments *m = played->moments;
    bool begun = t->permanent
              && (t->created == 0 || m[t->created - 1].inserted <= at);
    int64_t n = t->released;
    int32_t noted = played->released[tile];
    bool ended = noted ? noted <= at
                       : n >= 0 && n < r->n_tasks && m[n].inserted <= at;
    for (int i = 0; i < (int) r->n_tasks; i++)
        for (int k = 0; k < (int) r->n_tiles; k++) {
            int mode = k == tile || r->tile[k].whole == tile
                         ? mode_of(r, i, k)
                         : -1;
            begun = begun
                 || (!t->permanent && mode > 0 && m[i].began
                     && m[i].began <= at);
            ended = ended && (mode < 0 || (m[i].ended && m[i].ended <= at));
        }
    return t->whole < 0 && begun && !ended;
}

static void test_ran(void)
{
    for (uint32_t round = 0; round < 300; round++) {
        struct weft_recording r;
        struct weft_err err;
        struct weft_rec_moments m[MOST_TILES];
        int32_t released[MOST_TILES];
        struct weft_rec_played played = {m, released};
        int64_t out[PLACES][WEFT_MEM_ALL + 1], most[PLACES] = {0};
        seed = round;
        make_random(&r);
        int32_t end = make_moments(&r, &played);
        REQUIRE_OK(
            weft_recording_memory_ran(&r, &played, PLACES, 1, out, &err),
            err);
        for (int32_t at = 0; at <= end; at++) {
            int64_t now[PLACES] = {0};
            for (int i = 0; i < (int) r.n_tiles; i++)
                if (has_memory(&r, &played, i, at))
                    now[r.tile[i].place] += (int64_t) r.tile[i].bytes;
            for (int k = 0; k < PLACES; k++)
                most[k] = now[k] > most[k] ? now[k] : most[k];
        }
        for (int k = 0; k < PLACES; k++)
            CHECK_INT(out[k][WEFT_MEM_ALL], most[k]);
        weft_recording_release(&r);
    }
}

WEFT_TESTS("plan/recording_memory", {"test_all_orders", test_all_orders},
           {"test_large", test_large}, {"test_ran", test_ran})
