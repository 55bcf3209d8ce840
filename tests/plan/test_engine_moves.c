/* SPDX-License-Identifier: Apache-2.0 */
/* How long devices wait for what moves, and what they do for each call, in
 * recordings written by hand against closed forms, and in random ones against
 * the definitions (engine.h). */
#include "moves_fixture.h"
#include "plan/engine/played.h"

static double all_waited_s(const struct weft_engine *e)
{
    int64_t n;
    double s = 0;
    const struct weft_engine_waited *w = weft_engine_waited(e, &n);
    for (int64_t i = 0; i < n; i++)
        s += w[i].s;
    return s;
}

/* Device 0 makes a tile in 2 s, which a message brings to device 1 in 3 s. That
 * does other things for so long before it reads it, for 1 s. */
static void check_message(double other_s, bool does_move, double expected_s)
{
    begin();
    int32_t x = tile(0, 1), y = tile(1, 1);
    if (other_s > 0)
        task(1, 0, 1, other_s);
    writes(task(0, 0, 0, 2), x);
    int64_t m = send(x, y, 0, 1, 30, 0);
    if (does_move)
        moves(m);
    int64_t reader = reads(task(1, 0, 0, 1), y);
    struct weft_engine *e = play_moves();
    check_span(e, m, 2, 5);
    check_s(waited_s(e, reader), expected_s);
    check_s(all_waited_s(e), expected_s);
    done(e);
}

/* Before 2 s the reader waits for device 0, and not for the message. */
static void test_message(void)
{
    check_message(0, true, 3); /* nothing hides it */
    check_message(2, true, 3); /* neither */
    check_message(4, true, 1); /* two thirds are hidden */
    check_message(5, true, 0); /* all of it */
    check_message(9, true, 0);
    check_message(0, false, 0); /* it is part of a call */
    check_message(4, false, 0);
}

/* Two tiles come at 3 and 5 s. Where one of them comes with what does not move,
 * the reader would have waited for that in any case. */
static void check_two(bool first_moves, bool second_moves, double expected_s)
{
    begin();
    int32_t x = tile(0, 1), y = tile(1, 1), z = tile(1, 1);
    writes(task(0, 0, 0, 1), x);
    int64_t a = send(x, y, 0, 1, 20, 0), b = send(x, z, 2, 3, 40, 0);
    if (first_moves)
        moves(a);
    if (second_moves)
        moves(b);
    int64_t reader = reads(reads(task(1, 0, 0, 1), y), z);
    struct weft_engine *e = play_moves();
    check_span(e, a, 1, 3);
    check_span(e, b, 1, 5);
    check_s(waited_s(e, reader), expected_s);
    done(e);
}

static void test_two_messages(void)
{
    check_two(true, true, 4);
    check_two(false, true, 2);
    check_two(true, false, 0);
    check_two(false, false, 0);
}

/* From place to place: 2 and 3 s, which both are waited for, and none for the
 * other, as nothing took time if neither did. The device that has the tile first
 * waits for the first message alone. */
static void test_relay(void)
{
    begin();
    int32_t x = tile(0, 1), y = tile(1, 1), z = tile(2, 1);
    writes(task(0, 0, 0, 1), x);
    moves(send(x, y, 0, 1, 20, 0));
    moves(send(y, z, 2, 3, 30, 0));
    int64_t near = reads(task(1, 0, 0, 1), y);
    int64_t far = reads(task(2, 0, 0, 1), z);
    struct weft_engine *e = play_moves();
    check_s(waited_s(e, near), 2);
    check_s(waited_s(e, far), 5);
    done(e);
}

/* A device copies for 3 s, then computes what did not need the copy: it could
 * have begun at once, or at 2 s, when a tile has come that does not move. */
static void check_own_copy(bool later, double expected_s)
{
    begin();
    int32_t from = tile(0, 1), to = tile(0, 1), far = tile(1, 1),
            here = tile(0, 1);
    moves(writes(reads(task(0, 0, 1, 3), from), to));
    writes(task(1, 0, 0, 1), far);
    send(far, here, 0, 1, 10, 0); /* there at 2 s */
    int64_t next = task(0, 0, 0, 1);
    if (later)
        reads(next, here);
    struct weft_engine *e = play_moves();
    check_span(e, next, 3, 4);
    check_s(waited_s(e, next), expected_s);
    done(e);
}

static void test_own_copies(void)
{
    check_own_copy(false, 3);
    check_own_copy(true, 1);
}

/* A tile comes within 1 s; its reader is inserted after a wait for another,
 * of 4 s, so the message was hidden. If it takes 6 s, 2 were not. */
static void check_wait(double message_s, double expected_s)
{
    begin();
    int32_t x = tile(0, 1), y = tile(1, 1), other = tile(2, 1);
    writes(task(0, 0, 0, 0), x);
    moves(send(x, y, 0, 1, 10 * message_s, 0));
    writes(task(2, 0, 0, 4), other);
    weft_recording_wait_tile(&r, other);
    int64_t reader = reads(task(1, 0, 0, 1), y);
    struct weft_engine *e = play_moves();
    check_s(waited_s(e, reader), expected_s);
    done(e);
}

static void test_inserted_later(void)
{
    check_wait(1, 0);
    check_wait(6, 2);
}

/* Sums of iterations and calls, and the mean of devices. */
static void test_played(void)
{
    struct weft_dataflow flow;
    struct weft_err err;
    struct weft_played played;
    struct weft_engine_job job = own;
    job.moves = true;
    begin();
    weft_flow_init(&flow);
    int32_t actor = weft_flow_role(&flow, "actor", true, false);
    uint8_t call = (uint8_t) weft_flow_call(&flow, "actor_train", WEFT_TRAIN,
                                            actor, 0, 0);
    int32_t x = tile(0, 1), y = tile(1, 1), z = tile(2, 1);
    writes(task(0, 0, 0, 1), x);
    moves(send(x, y, 0, 1, 20, 0));
    moves(send(x, z, 2, 3, 30, 0));
    r.task[reads(task(1, 0, 0, 1), y)].call = call;
    r.task[reads(task(2, 0, 0, 1), z)].call = call;
    struct weft_engine *e = play(&job);
    REQUIRE_OK(weft_played_create(e, &r, &job, &flow, 0, 1, &played, &err),
               err);
    check_s(played.call[call].waited_s, 5);
    check_s(played.call[0].waited_s, 0);
    check_s(weft_played_waited_s(&played), 5.0 / DEVICES);
    weft_played_release(&played);
    done(e);
}

/* ---- What devices do for calls ------------------------------------------- */

static void check_use(struct weft_played_use use, double busy_s,
                      double moving_s, double waiting_s)
{
    check_s(use.busy_s, busy_s);
    check_s(use.moving_s, moving_s);
    check_s(use.waiting_s, waiting_s);
}

/*     device 0   a |             | c copies z |
 *     message      | x moves |
 *     device 1               | b |             | d
 *
 * a and c are of call 1, in iterations 5 and 6; b and d of call 2. Before c
 * device 0 has the message for 2 s, then nothing for 1 s. */
static void test_use_by_call(void)
{
    struct weft_dataflow flow;
    struct weft_err err;
    struct weft_played p;
    struct weft_engine_job job = own;
    job.first_iteration = 5;
    job.n_iterations = 2;
    begin();
    weft_flow_init(&flow);
    int32_t x = tile(0, 1), y = tile(1, 1), z = tile(1, 1), w = tile(0, 1);
    int64_t a = writes(task(0, 0, 0, 1), x);
    send(x, y, 0, 1, 20, 0);
    int64_t b = writes(reads(task(1, 0, 0, 1), y), z);
    int64_t c = writes(reads(task(0, 0, 0, 2), z), w);
    int64_t d = reads(task(1, 0, 0, 3), w);
    const int64_t number[] = {a, b, c, d};
    for (int i = 0; i < 4; i++) {
        r.task[number[i]].call = (uint8_t) (1 + i % 2);
        r.task[number[i]].iteration = 5 + i / 2;
    }
    struct weft_engine *e = play(&job);
    REQUIRE_OK(weft_played_create(e, &r, &job, &flow, 5, 2, &p, &err), err);
    check_span(e, d, 6, 9);
    check_use(p.call[1].use, 1, 0, 0);
    check_use(p.call[2].use, 1, 2, 1);
    check_use(p.call[WEFT_MAX_CALLS + 1].use, 0, 2 + 2, 1);
    check_use(p.call[WEFT_MAX_CALLS + 2].use, 0, 3, 2);
    weft_played_release(&p);
    job.n_iterations = 0; /* only what tasks take is known */
    weft_engine_free(e);
    e = play(&job);
    REQUIRE_OK(weft_played_create(e, &r, &job, &flow, 5, 2, &p, &err), err);
    check_use(p.call[2].use, 1, 0, 0);
    weft_played_release(&p);
    done(e);
}

/* Seconds in which messages from or to a place are under way. */
static double messages_s(const struct weft_engine *e, int32_t place,
                         double from_s, double to_s)
{
    enum { PARTS = 1000 };
    int n = 0;
    for (int k = 0; k < PARTS; k++) {
        double s = from_s + (to_s - from_s) * (k + 0.5) / PARTS;
        bool any = false;
        for (int64_t i = 0; i < r.n_tasks; i++) {
            const struct weft_rec_access *x = &r.access[r.task[i].access];
            any = any
               || (r.task[i].kind == WEFT_REC_MESSAGE
                   && span_of(e, i).start_s <= s && s < span_of(e, i).end_s
                   && (r.tile[x[0].tile].place == place
                       || r.tile[x[1].tile].place == place));
        }
        n += any;
    }
    return (to_s - from_s) * n / PARTS;
}

/* When the task before ended on that device. */
static double before_s(const struct weft_engine *e, int64_t t)
{
    double s = 0;
    for (int64_t i = 0; i < r.n_tasks; i++)
        if (r.task[i].device == r.task[t].device && i != t
            && span_of(e, i).end_s <= span_of(e, t).start_s)
            s = fmax(s, span_of(e, i).end_s);
    return s;
}

/* Calls have all that devices did until their last tasks ended, each what was
 * done in and before its own. */
static void check_all_use(const struct weft_engine *e,
                          const struct weft_played *p, int n_calls)
{
    double moving_s[WEFT_MAX_CALLS] = {0}, waiting_s[WEFT_MAX_CALLS] = {0};
    double last_s[DEVICES] = {0}, all_s = 0;
    for (int64_t t = 0; t < r.n_tasks; t++) {
        int d = r.task[t].device, c = r.task[t].call;
        if (r.task[t].kind != WEFT_REC_TASK)
            continue;
        double from = before_s(e, t), to = span_of(e, t).start_s;
        double s = messages_s(e, d, from, to);
        moving_s[c] += s;
        waiting_s[c] += to - from - s;
        last_s[d] = fmax(last_s[d], span_of(e, t).end_s);
    }
    for (int c = 0; c < n_calls; c++) {
        const struct weft_played_use *u = &p->call[c].use;
        CHECK(fabs(u->moving_s - moving_s[c]) < 0.01 * p->end_s);
        CHECK(fabs(u->waiting_s - waiting_s[c]) < 0.01 * p->end_s);
        all_s += u->busy_s + u->moving_s + u->waiting_s;
    }
    for (int d = 0; d < DEVICES; d++)
        all_s -= last_s[d];
    check_s(all_s, 0);
}

static void test_random_use(void)
{
    enum { CALLS = 3 };
    struct weft_dataflow flow;
    struct weft_err err;
    struct weft_engine_job job = own;
    job.n_iterations = 1;
    weft_flow_init(&flow);
    for (int k = 0; k < 20; k++) {
        struct weft_played p;
        make_moving();
        for (int64_t t = 0; t < r.n_tasks; t++)
            r.task[t].call = (uint8_t) draw(CALLS);
        struct weft_engine *e = play(&job);
        REQUIRE_OK(weft_played_create(e, &r, &job, &flow, 0, 1, &p, &err),
                   err);
        check_all_use(e, &p, CALLS);
        weft_played_release(&p);
        done(e);
    }
}

/* ---- Random ------------------------------------------------------------- */

/* The last task before t that writes a tile; -1: none. */
static int64_t writer_of(int64_t t, uint32_t tile)
{
    for (int64_t i = t - 1; i >= 0; i--)
        for (int32_t a = 0; a < r.task[i].n_access; a++) {
            const struct weft_rec_access *x = &r.access[r.task[i].access + a];
            if (x->tile == tile && x->mode != READ)
                return i;
        }
    return -1;
}

static double end_of(const struct weft_engine *e, int64_t t)
{
    return span_of(e, t).end_s;
}

/* When a task's tiles could have been there if nothing took time that moves. */
static double could_s(const struct weft_engine *e, int64_t t)
{
    double s = 0;
    for (int32_t a = 0; a < r.task[t].n_access; a++) {
        int64_t w = writer_of(t, r.access[r.task[t].access + a].tile);
        if (w >= 0)
            s = fmax(s, r.task[w].moves ? could_s(e, w) : end_of(e, w));
    }
    return s;
}

static double defined_s(const struct weft_engine *e, int64_t t)
{
    double begin_s = span_of(e, t).start_s, could = could_s(e, t), here = 0;
    for (int32_t a = 0; a < r.task[t].n_access; a++) {
        int64_t w = writer_of(t, r.access[r.task[t].access + a].tile);
        here = w >= 0 ? fmax(here, end_of(e, w)) : here;
    }
    for (int64_t i = 0; i < r.n_tasks; i++) {
        bool before = r.task[i].device == r.task[t].device
                   && end_of(e, i) <= begin_s && i != t;
        if (before && r.task[i].moves)
            here = fmax(here, end_of(e, i));
        else if (before)
            could = fmax(could, end_of(e, i));
    }
    return fmax(fmin(here, begin_s) - could, 0);
}

static void test_random(void)
{
    int n_waited = 0;
    for (int k = 0; k < 200; k++) {
        make_moving();
        struct weft_engine *e = play_moves();
        for (int64_t t = 0; t < r.n_tasks; t++) {
            bool waits = r.task[t].kind == WEFT_REC_TASK && !r.task[t].moves;
            double s = waits ? defined_s(e, t) : 0;
            check_s(waited_s(e, t), s);
            n_waited += s > 0;
        }
        done(e);
    }
    CHECK(n_waited > 1000);
}

int main(void)
{
    static const struct weft_test tests[] = {
        {"test_message", test_message},
        {"test_two_messages", test_two_messages},
        {"test_relay", test_relay},
        {"test_own_copies", test_own_copies},
        {"test_inserted_later", test_inserted_later},
        {"test_played", test_played},
        {"test_use_by_call", test_use_by_call},
        {"test_random_use", test_random_use},
        {"test_random", test_random}};
    return weft_test_main("plan/engine_moves", tests, WEFT_COUNT(tests));
}
