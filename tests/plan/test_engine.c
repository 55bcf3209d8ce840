/* SPDX-License-Identifier: Apache-2.0 */
/* The event engine against closed forms. */
#include "engine_fixture.h"
#include "plan/engine/played.h"

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

static void check_slice(const struct weft_engine *e, int32_t place, int32_t i,
                        int64_t weights, int64_t activations, int64_t kv)
{
    int64_t bytes[WEFT_MEM_ALL + 1];
    weft_engine_slice(e, place, i, bytes);
    CHECK(bytes[WEFT_MEM_WEIGHTS] == weights);
    CHECK(bytes[WEFT_MEM_ACTIVATIONS] == activations);
    CHECK(bytes[WEFT_MEM_KV] == kv);
    CHECK(bytes[WEFT_MEM_ALL] == weights + activations + kv);
}

/* Weights of 100 bytes are there from the start. Four slices of 2 s:
 *
 *     seconds      0   1   2   3   4   5   6   7
 *     tasks        | 0 |   1   |   2   |   3   |
 *     activations  |    50     |   0   |  20   |
 *     kv           | 0 |      30       |   0   |
 *     slices       |       |       |       |
 */
static void test_memory_over_time(void)
{
    struct weft_engine_job job = own;
    double s;
    job.n_slices = 4;
    begin();
    int32_t weights = tile(0, 100), first = tile(0, 50), kv = tile(0, 30);
    r.tile[weights].mem = WEFT_MEM_WEIGHTS;
    r.tile[weights].permanent = true;
    r.tile[kv].mem = WEFT_MEM_KV;
    task(0, 0, 0, 1);
    weft_recording_access(&r, first, WRITE);
    task(0, 0, 0, 2);
    weft_recording_access(&r, first, READ);
    weft_recording_access(&r, kv, WRITE);
    weft_recording_release_tile(&r, first);
    task(0, 0, 0, 2);
    weft_recording_access(&r, kv, READ);
    weft_recording_release_tile(&r, kv);
    int32_t last = tile(0, 20);
    int64_t end = task(0, 0, 0, 2);
    weft_recording_access(&r, last, WRITE);
    struct weft_engine *e = play(&job);
    check_span(e, end, 5, 7);
    CHECK(weft_engine_slices(e, &s) == 4);
    check_s(s, 2);
    check_slice(e, 0, 0, 100, 50, 30); /* from 1 s on, not the 150 before */
    check_slice(e, 0, 1, 100, 50, 30); /* until 3 s */
    check_slice(e, 0, 2, 100, 0, 30);
    check_slice(e, 0, 3, 100, 20, 0);
    for (int32_t i = 0; i < 4; i++)
        check_slice(e, 1, i, 0, 0, 0);
    weft_engine_free(e);
    e = play(&own);
    CHECK(weft_engine_slices(e, &s) == 0);
    done(e);
}

/* Plays n iterations. Seconds of a period. */
static double steady_s(const struct weft_dataflow *flow, int n)
{
    struct weft_err err;
    struct weft_played played;
    struct weft_engine *e = play(&own);
    REQUIRE_OK(weft_played_create(e, &r, &own, flow, 0, n, &played, &err),
               err);
    double s = played.steady_s;
    weft_played_release(&played);
    done(e);
    return s;
}

/* Iterations of a rollout of 1 s, which then a policy is trained with for 1 s
 * on another device; and a critic, on the first, in 4 parts, which give way to
 * the next rollout; the rollout after the next waits for it. Seconds of a
 * period. */
static double period(int n, double part_s)
{
    struct weft_dataflow flow;
    int32_t policy[8], samples[8], critic[8];
    begin();
    weft_flow_init(&flow);
    for (int i = 0; i < n; i++) {
        policy[i] = tile(1, 1);
        samples[i] = tile(0, 1);
        critic[i] = tile(0, 1);
    }
    for (int i = 0; i < n; i++) {
        task(0, 0, 1, 1);
        r.task[r.n_tasks - 1].iteration = i;
        weft_recording_access(&r, samples[i], WRITE);
        if (i > 0)
            weft_recording_access(&r, policy[i - 1], READ);
        if (i > 1)
            weft_recording_access(&r, critic[i - 2], READ);
        task(1, 0, 0, 1);
        r.task[r.n_tasks - 1].iteration = i;
        weft_recording_access(&r, samples[i], READ);
        weft_recording_access(&r, policy[i], WRITE);
        for (int k = 0; k < 4; k++) {
            task(0, 0, 0, part_s);
            r.task[r.n_tasks - 1].iteration = i;
            weft_recording_access(&r, samples[i], READ);
            weft_recording_access(&r, critic[i], BOTH);
        }
    }
    return steady_s(&flow, n);
}

/* With staleness: the weights that a rollout keeps, 0.5 s of copies, are those
 * from before the training beside which it runs; the second one's are there
 * from the start. A rollout takes 1 s, training 2 s on another device. */
static double stale_period(int n)
{
    struct weft_dataflow flow;
    int32_t policy[8], kept[8], samples[8];
    begin();
    weft_flow_init(&flow);
    int32_t actor = weft_flow_role(&flow, "actor", true, false);
    uint8_t train = (uint8_t) weft_flow_call(&flow, "actor_train", WEFT_TRAIN,
                                             actor, 0, 0);
    flow.staleness = 1;
    for (int i = 0; i < n; i++) {
        policy[i] = tile(1, 1);
        kept[i] = tile(2, 1);
        samples[i] = tile(0, 1);
    }
    for (int i = 0; i < n; i++) {
        task(2, 0, 0, 0.5);
        r.task[r.n_tasks - 1].iteration = i;
        if (i > 1)
            weft_recording_access(&r, policy[i - 2], READ);
        weft_recording_access(&r, kept[i], WRITE);
        task(0, 0, 0, 1);
        r.task[r.n_tasks - 1].iteration = i;
        weft_recording_access(&r, kept[i], READ);
        weft_recording_access(&r, samples[i], WRITE);
        task(1, 0, 0, 2);
        r.task[r.n_tasks - 1].iteration = i;
        r.task[r.n_tasks - 1].call = train;
        weft_recording_access(&r, samples[i], READ);
        weft_recording_access(&r, policy[i], WRITE);
    }
    return steady_s(&flow, n);
}

/* Iterations in which a rollout of 2 s and 3 s of training take turns on one
 * device. The second one's training has a task that begins at once, others
 * after the training before; and one of lower priority ends after all
 * rollouts. */
static double scattered_period(int n)
{
    struct weft_dataflow flow;
    int32_t policy[8], samples[8];
    begin();
    weft_flow_init(&flow);
    int32_t actor = weft_flow_role(&flow, "actor", true, false);
    uint8_t train = (uint8_t) weft_flow_call(&flow, "actor_train", WEFT_TRAIN,
                                             actor, 0, 0);
    for (int i = 0; i < n; i++) {
        policy[i] = tile(0, 1);
        samples[i] = tile(0, 1);
    }
    for (int i = 0; i < n; i++) {
        task(1, 0, 0, 0);
        r.task[r.n_tasks - 1].iteration = i;
        r.task[r.n_tasks - 1].call = train;
        if (i > 1)
            weft_recording_access(&r, policy[i - 1], READ);
        task(0, 0, 1, 2);
        r.task[r.n_tasks - 1].iteration = i;
        weft_recording_access(&r, samples[i], WRITE);
        if (i > 0)
            weft_recording_access(&r, policy[i - 1], READ);
        task(0, 0, 1, 3);
        r.task[r.n_tasks - 1].iteration = i;
        r.task[r.n_tasks - 1].call = train;
        weft_recording_access(&r, samples[i], READ);
        weft_recording_access(&r, policy[i], WRITE);
        task(0, 0, 0, 0.25);
        r.task[r.n_tasks - 1].iteration = i;
        r.task[r.n_tasks - 1].call = train;
        weft_recording_access(&r, policy[i], READ);
    }
    return steady_s(&flow, n);
}

static void test_period(void)
{
    check_s(scattered_period(3), 5.25); /* all that the device does */
    check_s(scattered_period(8), 5.25);
    check_s(stale_period(3), 2);
    check_s(stale_period(6), 2);
    /* the way from a policy to the next one, and all that device 0 does */
    check_s(period(3, 0.125), 2);
    check_s(period(3, 0.5), 3);
    check_s(period(8, 0.5), 3);
    check_s(period(2, 0.125), 2);
    check_s(period(1, 0.125), 2);
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

/* A copy beside the devices of two places, which are busy meanwhile. */
static void test_copy_beside(void)
{
    begin();
    int32_t x = tile(0, 20), y = tile(1, 20);
    int64_t a = task(0, 0, 0, 10), b = task(1, 0, 0, 8);
    int64_t copy = send(x, y, 0, 1, 20, 0.5);
    r.task[copy].kind = WEFT_REC_COPY;
    int64_t c = task(1, 0, 0, 1);
    weft_recording_access(&r, y, READ);
    struct weft_engine *e = play(&own);
    check_span(e, a, 0, 10);
    check_span(e, b, 0, 8);
    check_span(e, copy, 0, 2.5); /* 20 bytes at 10 per second */
    check_span(e, c, 8, 9);
    check_s(weft_engine_use(e, 0).busy_s, 10);
    check_s(weft_engine_use(e, 1).busy_s, 9);
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
        member(i, 2);
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

/* What has numbers that are too large is refused before it is looked at. */
static void test_too_large(void)
{
    struct weft_engine *e;
    struct weft_err err;
    begin();
    r.n_accesses = INT64_C(1) << 31;
    CHECK_FAILS(weft_engine_create(&own, &r, &e, &err), WEFT_ENOMEM, err,
                "use 2147483648 tiles is too large to simulate");
    r.n_accesses = 0;
    r.n_tasks = INT64_C(1) << 31;
    CHECK_FAILS(weft_engine_create(&own, &r, &e, &err), WEFT_ENOMEM, err,
                "a run of 2147483648 tasks");
    r.n_tasks = 0;
    weft_recording_release(&r);
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
    member(0, 2); /* the other does not come */
    REQUIRE_OK(weft_engine_extend(e, &err), err);
    CHECK_FAILS(weft_engine_run(e, &err), WEFT_EINVAL, err,
                "task 42 (task, device 0) never begins: its turn never "
                "comes");
    /* the first tile was given back */
    CHECK_INT(weft_engine_memory(e, 0)[WEFT_MEM_ACTIVATIONS], 64);
    done(e);
}

/* n tasks of s seconds, each of which takes i to be inserted: a device waits
 * for the program, or the program is ahead of it. */
static void check_inserted(int n, double i, double s)
{
    struct weft_engine_job job = own;
    job.insert = insert;
    begin();
    for (int k = 0; k < n; k++)
        insert_s[task(0, 0, 0, s)] = i;
    struct weft_engine *e = play(&job);
    check_s(weft_engine_now_s(e), s < i ? n * i + s : i + n * s);
    check_s(weft_engine_use(e, 0).busy_s, n * s);
    done(e);
}

static void test_insertion(void)
{
    check_inserted(1, 2, 3);
    check_inserted(7, 2, 3);
    check_inserted(7, 3, 2);
    check_inserted(7, 0, 2);
}

/* A rank inserts its tasks one after another, and others at the same time; the
 * program that waits for a task goes on when it has ended. A message is
 * inserted by both of its ranks. */
static void test_insertion_ranks(void)
{
    struct weft_engine_job job = own;
    job.insert = insert;
    job.place_of = same_place;
    job.n_places = DEVICES / 2;
    job.places_per_rank = 1;
    for (int i = 0; i < MOST_TASKS; i++)
        insert_s[i] = 1;
    begin();
    int32_t x = tile(0, 1), y = tile(1, 1);
    int64_t a = task(0, 0, 0, 10), b = task(1, 0, 0, 10);
    int64_t c = task(2, 0, 0, 1);
    r.task[a].place = r.task[b].place = 0;
    r.task[c].place = 1;
    weft_recording_access(&r, y, WRITE);
    weft_recording_wait_tile(&r, y);
    int64_t m = send(x, y, 0, 1, 10, 0);
    int64_t d = task(3, 0, 0, 1);
    r.task[d].place = 1;
    struct weft_engine *e = play(&job);
    check_span(e, a, 1, 11);
    check_span(e, b, 2, 12);
    check_span(e, c, 1, 2);
    check_span(e, m, 3, 4); /* from 2 on, as b has been inserted then */
    check_span(e, d, 4, 5);
    done(e);
}

/* Where devices have all cores, a program that inserts takes a core of a busy
 * device, and so do messages at both of their ends; an idle device's is
 * free. */
static void test_crowded(void)
{
    struct weft_engine_job job = own;
    job.crowded = true;
    job.insert = insert;
    begin();
    for (int k = 0; k < 3; k++)
        insert_s[task(0, 0, 0, 10)] = 1;
    struct weft_engine *e = play(&job);
    check_span(e, 0, 1, 13); /* while the two others are inserted */
    check_span(e, 2, 23, 33);
    check_s(weft_engine_use(e, 0).busy_s, 32);
    done(e);
    job.insert = NULL;
    begin();
    int32_t x = tile(0, 20), y = tile(1, 20);
    task(0, 0, 0, 1);
    weft_recording_access(&r, x, WRITE);
    int64_t m = send(x, y, 0, 1, 20, 0);
    message_of[m].core_s = 0.25;
    int64_t a = task(0, 0, 0, 4), b = task(1, 0, 0, 2), c = task(1, 0, 0, 6);
    e = play(&job);
    check_span(e, m, 1, 3);
    check_span(e, a, 1, 5.25);
    check_span(e, b, 0, 2); /* nothing has come yet */
    check_span(e, c, 2, 8.25);
    done(e);
    /* two devices of a rank take turns; one that is idle does it alone */
    job.place_of = same_place;
    job.n_places = DEVICES / 2;
    job.insert = insert;
    begin();
    int32_t device[] = {0, 1, 0, 1, 0};
    for (int k = 0; k < 5; k++) {
        insert_s[task(device[k], 0, 0, 10)] = 1;
        r.task[k].place = 0;
    }
    e = play(&job);
    check_span(e, 0, 1, 13); /* the third's insertion, and the fifth's */
    check_span(e, 1, 2, 13);
    done(e);
}

WEFT_TESTS("plan/engine", {"test_fork", test_fork},
           {"test_pipeline", test_pipeline}, {"test_period", test_period},
           {"test_links", test_links}, {"test_copy_beside", test_copy_beside},
           {"test_order", test_order}, {"test_gang", test_gang},
           {"test_waits", test_waits}, {"test_too_large", test_too_large},
           {"test_grows", test_grows}, {"test_insertion", test_insertion},
           {"test_insertion_ranks", test_insertion_ranks},
           {"test_crowded", test_crowded},
           {"test_memory_over_time", test_memory_over_time})
