/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between ranks: messages, failures that all are told, agreement. A job of
 * one does the same within itself; ranks.sh runs it under mpirun.
 */
#include "calls.h"
#include "rank_fixture.h"

#include <sched.h>
#include <starpu.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/topology.h"
#include "config.h"
#include "rt/world.h"

static int last_rank(void)
{
    return weft_world_size() - 1;
}

static void fill(struct weft_tile *tile, size_t bytes, int salt)
{
    unsigned char *p = weft_tile_acquire(tile, WEFT_WRITE);
    for (size_t k = 0; k < bytes; k++)
        p[k] = (unsigned char) ((size_t) salt * 101 + k * 7 + (k >> 8));
    weft_tile_unacquire(tile);
}

static int differs(struct weft_tile *tile, size_t bytes, int salt)
{
    int n = 0;
    const unsigned char *p = weft_tile_acquire(tile, WEFT_READ);
    for (size_t k = 0; k < bytes; k++)
        n += p[k] != (unsigned char) ((size_t) salt * 101 + k * 7 + (k >> 8));
    weft_tile_unacquire(tile);
    return n;
}

/* ---- Messages ------------------------------------------------------- */

/* Every rank's tile goes round, and one further. */
static void ring(size_t bytes)
{
    struct weft_err err;
    struct weft_tile *tile[PLACES], *next[PLACES];
    int n = weft_world_size(), me = weft_world_rank();
    for (int r = 0; r < n; r++) {
        tile[r] = tile_at(r, bytes, false);
        if (r == me)
            fill(tile[r], bytes, r);
    }
    for (int step = 0; step < n + 1; step++) {
        for (int r = 0; r < n; r++)
            next[r] = tile_at(r, bytes, true);
        for (int r = 0; r < n; r++)
            weft_insert_copy(seq, &anywhere, tile[r], next[(r + 1) % n]);
        for (int r = 0; r < n; r++) {
            weft_tile_release(tile[r]);
            tile[r] = next[r];
        }
    }
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    CHECK_INT(differs(tile[me], bytes, (me + n - 1) % n), 0);
    for (int r = 0; r < n; r++)
        weft_tile_release(tile[r]);
}

static void test_ring(void)
{
    static const size_t bytes[] = {1,     7,     4096,    65535,
                                   65536, 65537, 1000003, (size_t) 4 << 20};
    struct weft_traffic t;
    start(2, false);
    for (size_t i = 0; i < WEFT_COUNT(bytes); i++)
        ring(bytes[i]);
    weft_rt_traffic(rt, WEFT_MEM_SAMPLES, &t);
    int n = weft_world_size();
    CHECK_INT(t.n_messages, n > 1 ? (n + 1) * (int) WEFT_COUNT(bytes) : 0);
    stop();
}

static void test_foreign_insert(void)
{
    enum { N = 1000000 };
    struct weft_err err;
    struct scramble s = {.bytes = {8}};
    if (weft_world_size() == 1)
        return;
    start(1, false);
    int other = (weft_world_rank() + 1) % weft_world_size();
    struct weft_tile *tile = tile_at(other, 8, false);
    struct weft_where where = anywhere;
    struct weft_access access[] = {{tile, WEFT_READ_WRITE}};
    where.device = other;
    CHECK(!weft_seq_is_here(seq, &where));
    double begin = weft_clock_s();
    for (int i = 0; i < N; i++)
        weft_insert(seq, &weft_cl_scramble, &s, sizeof s, access, 1, &where);
    double end = weft_clock_s();
    for (int i = 0; i < N; i++)
        weft_tile_release(tile_at(other, 8, true));
    if (weft_world_rank() == 0)
        printf("\n    foreign: %.0f ns to insert a task, %.0f ns to make and "
               "release a tile\n",
               (end - begin) * 1e9 / N, (weft_clock_s() - end) * 1e9 / N);
    where.device = weft_world_rank();
    CHECK(weft_seq_is_here(seq, &where));
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    weft_tile_release(tile);
    stop();
}

/* A tile that goes to and fro as fast as it can; more messages than fit an
 * unsigned short between two control steps. */
static void test_many_messages(void)
{
    enum { N = 40000, HOPS = 1000 };
    struct weft_err err;
    start(1, false);
    struct weft_tile *a = tile_at(0, 8, false),
                     *b = tile_at(last_rank(), 8, false),
                     *c = tile_at(last_rank(), 8, false);
    double begin = weft_clock_s();
    for (int i = 0; i < HOPS; i++)
        weft_insert_copy(seq, &anywhere, i % 2 ? b : a, i % 2 ? a : b);
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    double middle = weft_clock_s();
    for (int i = 0; i < N; i++)
        weft_insert_copy(seq, &anywhere, a, i % 2 ? b : c);
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    if (weft_world_rank() == 0 && last_rank() > 0)
        printf("\n    foreign: %.0f us for a message that the next one "
               "waits for, %.1f us for one of many\n",
               (middle - begin) * 1e6 / HOPS,
               (weft_clock_s() - middle) * 1e6 / N);
    weft_tile_release(a);
    weft_tile_release(b);
    weft_tile_release(c);
    stop();
}

/* ---- Failures ------------------------------------------------------- */

static int fail_cpu(const void *args, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    (void) args;
    (void) buf;
    (void) n_buf;
    return weft_err_set(weft_exec_err(x), WEFT_ENUMERIC, "row 3 is NaN");
}
WEFT_CODELET(fail, 0x0, fail_cpu)

/* What a failure does to those who get its tile: nobody wrote it. */
static int suffer_cpu(const void *args, void *const buf[], int n_buf,
                      struct weft_exec *x)
{
    (void) args;
    (void) n_buf;
    return *(const char *) buf[0]
             ? 0
             : weft_err_set(weft_exec_err(x), WEFT_EINTERNAL, "zeros");
}
WEFT_CODELET(suffer, 0x0, suffer_cpu)

/* A tile of the last rank, written by a task that fails, goes to all, who
 * fail then too. */
static void insert_failure(struct weft_codelet *codelet)
{
    struct weft_where where = anywhere;
    int from = last_rank();
    struct weft_tile *bad = tile_at(from, 100, true);
    struct weft_access access[] = {{bad, WEFT_WRITE}};
    weft_insert(seq, codelet, NULL, 0, access, 1, &where);
    for (int r = 0; r <= from; r++) {
        struct weft_tile *copy = tile_at(r, 100, true);
        struct weft_access read[] = {{copy, WEFT_READ}};
        weft_insert_copy(seq, &where, bad, copy);
        weft_insert(seq, &weft_cl_suffer, NULL, 0, read, 1, &where);
        weft_tile_release(copy);
    }
    weft_tile_release(bad);
}

static const char *failure(void)
{
    static char text[64];
    snprintf(text, sizeof text, "rank %d: fail on 'm x': row 3 is NaN",
             last_rank());
    return last_rank() > 0 ? text : "fail on 'm x': row 3 is NaN";
}

/* The sequence must work, and ranks be in step. */
static void check_usable(void)
{
    struct weft_err err;
    int data[] = {0, 0};
    ring(3000);
    if (weft_world_rank() == 0)
        data[0] = 17, data[1] = 4;
    REQUIRE_OK(weft_seq_agree(seq, data, sizeof data, &err), err);
    CHECK(weft_world_rank() > 0 || data[0] == 17);
    CHECK_INT(data[0] + data[1], 21);
}

static void test_error_by_agree(void)
{
    struct weft_err err;
    start(2, false);
    check_usable();
    insert_failure(&weft_cl_fail);
    int rc = 0, data = 1;
    double begin_s = weft_clock_s();
    while (!rc && data) { /* until the task has run; rank 0's patience */
        data = weft_clock_s() - begin_s < 600;
        rc = weft_seq_agree(seq, &data, sizeof data, &err);
    }
    CHECK_INT(rc, WEFT_ENUMERIC);
    CHECK_STR(err.text, failure());
    CHECK_FAILS(weft_seq_status(seq, &err), WEFT_ENUMERIC, err, "row 3");
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_ENUMERIC, err, failure());
    CHECK_INT(weft_seq_status(seq, &err), 0); /* told once */
    check_usable();
    stop();
}

/* Fails when its rank waits for the others. */
static int fail_late_cpu(const void *args, void *const buf[], int n_buf,
                         struct weft_exec *x)
{
    while (weft_world_waits_s() <= 0)
        sched_yield();
    return fail_cpu(args, buf, n_buf, x);
}
WEFT_CODELET(fail_late, 0x0, fail_late_cpu)

/* The others come when they have suffered from it: it is told all the same, not
 * what followed. */
static void test_error_while_waiting(void)
{
    struct weft_err err;
    char text[64];
    int data = 1;
    if (last_rank() == 0)
        return;
    start(1, false);
    snprintf(text, sizeof text, "rank %d: fail_late on 'm x': row 3 is NaN",
             last_rank());
    insert_failure(&weft_cl_fail_late);
    while (weft_world_rank() != last_rank() && !weft_seq_status(seq, &err))
        sched_yield();
    CHECK_FAILS(weft_seq_agree(seq, &data, sizeof data, &err), WEFT_ENUMERIC,
                err, text);
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_ENUMERIC, err, text);
    check_usable();
    stop();
}

/* Writes when another rank has failed. */
static int write_late_cpu(const void *args, void *const buf[], int n_buf,
                          struct weft_exec *x)
{
    (void) args;
    (void) n_buf;
    (void) x;
    while (!weft_world_other_failed())
        sched_yield();
    memset(buf[0], 1, 100);
    return 0;
}
WEFT_CODELET(write_late, 0x0, write_late_cpu)

/* A task of the last rank fails and is not the first that was inserted: those
 * before it that have not begun do nothing, and make rank 0 fail. That one is
 * not told, though its task was inserted before. */
static void test_error_before_it(void)
{
    struct weft_err err;
    struct weft_where where = anywhere;
    int last = last_rank();
    if (last == 0)
        return;
    start(2, false);
    struct weft_tile *late = tile_at(0, 100, true),
                     *there = tile_at(last, 100, true),
                     *next = tile_at(last, 100, true),
                     *back = tile_at(0, 100, true),
                     *bad = tile_at(last, 100, true);
    weft_insert(seq, &weft_cl_write_late, NULL, 0,
                (struct weft_access[]){{late, WEFT_WRITE}}, 1, &where);
    weft_insert_copy(seq, &where, late, there);
    weft_insert_copy(seq, &where, there, next);
    weft_insert_copy(seq, &where, next, back);
    weft_insert(seq, &weft_cl_suffer, NULL, 0,
                (struct weft_access[]){{back, WEFT_READ}}, 1, &where);
    weft_insert_copy(seq, &where, late, there);
    weft_insert(seq, &weft_cl_fail, NULL, 0,
                (struct weft_access[]){{bad, WEFT_WRITE}}, 1, &where);
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_ENUMERIC, err, failure());
    weft_tile_release(late);
    weft_tile_release(there);
    weft_tile_release(next);
    weft_tile_release(back);
    weft_tile_release(bad);
    check_usable();
    stop();
}

static void test_error_by_wait(void)
{
    struct weft_err err;
    start(1, false);
    for (int i = 0; i < 3; i++) {
        insert_failure(&weft_cl_fail);
        CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_ENUMERIC, err, failure());
        CHECK_STR(err.text, failure());
        check_usable();
    }
    stop();
}

/* What rank 0 tells is one collective, but for a control step in 64. */
static void test_tell(void)
{
    enum { N = 200 };
    struct weft_err err;
    start(1, false);
    int none = 0; /* news of failures before are old by then */
    REQUIRE_OK(weft_seq_tell(seq, &none, sizeof none, true, &err), err);
    REQUIRE_OK(weft_seq_tell(seq, NULL, sizeof none, true, &err), err);
    int64_t before = weft_world_n_collectives();
    for (int64_t i = 0; i < N; i++) {
        int64_t data[] = {weft_world_rank() == 0 ? i : -1, 7};
        REQUIRE_OK(weft_seq_tell(seq, data, sizeof data, i == N - 1, &err),
                   err);
        CHECK_INT(data[0], i);
    }
    int64_t n = weft_world_n_collectives() - before;
    int64_t most = last_rank() > 0 ? N + N / 64 + 1 : 0;
    CHECK(n == most || n == most + 1); /* the news may have been late */
    check_usable();
    stop();
}

/* A rank's failure, of a task or of its own, ends what rank 0 tells, soon; with
 * nobody else's task the ranks are still in step. */
static void test_error_by_tell(void)
{
    struct weft_err err;
    start(1, false);
    for (int own = 0; own < 2; own++) {
        int rc = 0, data = 1;
        if (!own)
            insert_failure(&weft_cl_fail);
        else if (weft_world_rank() == last_rank())
            weft_seq_fail(seq, WEFT_EIO, "no disk");
        double begin_s = weft_clock_s();
        while (!rc && data) { /* rank 0's patience */
            data = weft_clock_s() - begin_s < 600;
            rc = weft_seq_tell(seq, &data, sizeof data, false, &err);
        }
        CHECK_INT(rc, own ? WEFT_EIO : WEFT_ENUMERIC);
        if (!own)
            CHECK_STR(err.text, failure());
        CHECK_FAILS(weft_seq_wait(seq, &err), rc, err,
                    own ? "no disk" : failure());
        check_usable();
    }
    stop();
}

/* A rank that cannot go on, and rank 0, which has told all. */
static void test_error_by_last(void)
{
    struct weft_err err;
    int rc = 0, data = 1;
    start(1, false);
    if (weft_world_rank() == last_rank()) {
        weft_seq_fail(seq, WEFT_EIO, "no disk");
        while (!rc)
            rc = weft_seq_tell(seq, &data, sizeof data, true, &err);
    }
    for (int i = 3; i-- > 0 && !rc;)
        rc = weft_seq_tell(seq, &data, sizeof data, i == 0, &err);
    CHECK_INT(rc, WEFT_EIO);
    CHECK(strstr(err.text, "no disk") != NULL);
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_EIO, err, "no disk");
    check_usable();
    stop();
}

/* ---- Events, waits and limits --------------------------------------- */

/* Tiles of this rank, written in another order than they were expected in: an
 * answer that comes late holds up nobody else. */
static void test_events(void)
{
    enum { N = 3 };
    struct weft_err err;
    struct weft_events *events;
    struct weft_external *answer[N];
    static const int order[N] = {2, 0, 1};
    start(1, false);
    REQUIRE_OK(weft_events_create(&events, &err), err);
    for (int i = 0; i < N; i++) {
        struct weft_tile *tile = tile_at(weft_world_rank(), 8, true);
        REQUIRE_OK(
            weft_external_begin(seq, tile, &anywhere, &answer[i], &err), err);
        REQUIRE_OK(weft_events_expect(events, tile, 10 + i, &err), err);
        weft_tile_release(tile); /* the event comes all the same */
    }
    for (int i = 0; i < N; i++) {
        weft_external_complete(answer[order[i]], NULL, 0);
        if (i < N - 1) /* the last one is forgotten */
            CHECK_INT(weft_events_next(events), 10 + order[i]);
    }
    weft_events_free(events);
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    stop();
}

/* All get what each has, to the last bit; or one's error. */
static void test_merge(void)
{
    enum { N = 12 };
    struct weft_err err;
    double data[N] = {0};
    start(1, false);
    for (int i = weft_world_rank(); i < N; i += weft_world_size())
        data[i] = i % 2 ? -0.1 * i : -0.0;
    REQUIRE_OK(weft_seq_merge(seq, data, sizeof data, &err), err);
    for (int i = 0; i < N; i++) {
        double expected = i % 2 ? -0.1 * i : -0.0;
        CHECK(memcmp(&data[i], &expected, sizeof expected) == 0);
    }
    if (weft_world_rank() == last_rank())
        weft_seq_fail(seq, WEFT_EIO, "no disk");
    CHECK_FAILS(weft_seq_merge(seq, data, sizeof data, &err), WEFT_EIO, err,
                "no disk");
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_EIO, err, "no disk");
    check_usable();
    stop();
}

/* One waits with an error, the others want to agree. */
static void test_wait_meets_agree(void)
{
    struct weft_err err;
    int data = 0;
    start(1, false);
    if (weft_world_rank() == last_rank()) {
        weft_seq_fail(seq, WEFT_EIO, "no disk");
    } else {
        CHECK_FAILS(weft_seq_agree(seq, &data, sizeof data, &err), WEFT_EIO,
                    err, "no disk");
    }
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_EIO, err, "no disk");
    check_usable();
    stop();
}

static void test_unwritten_copy(void)
{
    struct weft_err err;
    start(1, false);
    struct weft_tile *from = tile_at(0, 100, true),
                     *to = tile_at(last_rank(), 100, true);
    weft_insert_copy(seq, &anywhere, from, to);
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_ESTATE, err,
                "nothing has written");
    weft_tile_release(from);
    weft_tile_release(to);
    check_usable();
    stop();
}

/* No room where it should go: the message is taken all the same. */
static void test_message_beyond_limit(void)
{
    enum { BYTES = 3 << 20 };
    struct weft_err err;
    bool small = weft_world_rank() == last_rank();
    struct weft_rt_options options = {.n_devices = 1,
                                      .nap = 1,
                                      .memory_limit_bytes = small ? 2 << 20
                                                                  : 9 << 20};
    if (last_rank() == 0)
        return;
    REQUIRE_OK(weft_rt_start(&options, &rt, &err), err);
    REQUIRE_OK(weft_seq_create(rt, &seq, &err), err);
    struct weft_tile *from = tile_at(0, BYTES, false),
                     *to = tile_at(last_rank(), BYTES, true);
    weft_insert_copy(seq, &anywhere, from, to);
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_ENOMEM, err,
                "'m x' wants 3.0 MiB of samples");
    weft_tile_release(from);
    weft_tile_release(to);
    check_usable();
    stop();
}

/* ---- The job -------------------------------------------------------- */

/* An answer that rank 0 gets feeds a task of the last rank. */
static void test_external(void)
{
    struct weft_err err;
    struct weft_external *answer;
    start(1, false);
    struct weft_tile *score = tile_at(0, 8, true),
                     *copy = tile_at(last_rank(), 8, true);
    REQUIRE_OK(weft_external_begin(seq, score, &anywhere, &answer, &err),
               err);
    CHECK_INT(answer != NULL, weft_world_rank() == 0);
    weft_insert_copy(seq, &anywhere, score, copy);
    usleep(20000);
    weft_external_complete(answer, "answered", 8);
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    if (weft_tile_is_here(copy)) {
        const char *p = weft_tile_acquire(copy, WEFT_READ);
        CHECK(memcmp(p, "answered", 8) == 0);
        weft_tile_unacquire(copy);
    }
    CHECK(weft_tile_ready(copy));
    weft_tile_release(score);
    weft_tile_release(copy);
    stop();
}

static void test_unequal_devices(void)
{
    struct weft_err err;
    struct weft_rt_options options = {.n_devices = 1, .nap = 1};
    char part[100];
    if (last_rank() == 0)
        return;
    if (weft_world_rank() == last_rank())
        options.n_devices = 2;
    snprintf(part, sizeof part,
             "rank %d: cannot start 2 devices: rank 0 has 1", last_rank());
    CHECK_FAILS(weft_rt_start(&options, &rt, &err), WEFT_EINVAL, err, part);
    start(1, false);
    check_usable();
    stop();
}

static void test_world(void)
{
    struct weft_err err;
    int me = weft_world_rank(), n = weft_world_size();
    char text[16] = "none";
    CHECK_INT(weft_world_min(me - 5), -5);
    CHECK_INT(weft_world_max(me), n - 1);
    if (me == 0)
        strcpy(text, "zero");
    weft_world_share(text, sizeof text);
    CHECK_STR(text, "zero");
    CHECK_INT(weft_world_agree(0, &err), 0);
    weft_err_set(&err, WEFT_EIO, "disk %d", me);
    int rc = weft_world_agree(me == n - 1 ? WEFT_EIO : 0, &err);
    CHECK_INT(rc, WEFT_EIO);
    snprintf(text, sizeof text, "%d", n - 1);
    CHECK(strstr(err.text, "disk ") && strstr(err.text, text));
    CHECK_INT(weft_world_agree(me == n - 1 ? WEFT_EIO : 0, NULL), WEFT_EIO);
}

static int occurs(const char *path, const char *part)
{
    static char text[1 << 20];
    FILE *f = fopen(path, "r");
    int n = 0;
    REQUIRE(f != NULL);
    size_t size = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[size] = 0;
    for (const char *p = text; (p = strstr(p, part)) != NULL; p++)
        n++;
    return n;
}

/* All ranks' tasks and messages are in rank 0's file, and in the sums. */
static void test_times_and_trace(void)
{
    enum { N = 7 };
    struct weft_err err;
    struct weft_call_time time[WEFT_MAX_CALLS];
    char path[] = "/tmp/weft-test-XXXXXX", part[32];
    struct weft_rt_options options = {
        .n_devices = 1, .nap = 1, .profile = true};
    int n = weft_world_size(), file = mkstemp(path);
    REQUIRE(file >= 0);
    close(file);
    REQUIRE_OK(weft_rt_start(&options, &rt, &err), err);
    REQUIRE_OK(weft_seq_create(rt, &seq, &err), err);
    for (int d = 0; d < n; d++)
        for (int i = 0; i < N; i++)
            weft_insert(
                seq, &weft_cl_scramble, &(struct scramble){0},
                sizeof(struct scramble), NULL, 0,
                &(struct weft_where){.device = d, .call = CALL_REF_INFER});
    ring(5000);
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    weft_rt_times_all(rt, 0, time);
    CHECK_INT(time[CALL_REF_INFER].n_tasks, N * n);
    CHECK(time[CALL_REF_INFER].last_s > time[CALL_REF_INFER].first_s);
    CHECK_INT(time[CALL_CRITIC_INFER].n_tasks, 0);
    REQUIRE_OK(weft_rt_write_trace(rt, path, &err), err);
    for (int r = 0; r < n && weft_world_rank() == 0; r++) {
        snprintf(part, sizeof part, "\"ph\":\"X\",\"pid\":%d,", r);
        CHECK_INT(occurs(path, part), n > 1 ? N : N + 2);
        snprintf(part, sizeof part, "\"to rank %d\"", r);
        CHECK_INT(occurs(path, part), n > 1 ? 2 * (n + 1) : 0);
    }
    unlink(path);
    stop();
}

/* Writes which hardware threads the device's thread may use. */
static int cores_cpu(const void *args, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    (void) args;
    (void) n_buf;
    (void) x;
    return sched_getaffinity(0, sizeof(cpu_set_t), buf[0]) ? WEFT_EINTERNAL
                                                           : 0;
}
WEFT_CODELET(cores, 0x808080, cores_cpu)

/* Where each rank's device can have a core, no two may use the same. */
static void test_cores(void)
{
    struct weft_err err;
    struct weft_topology topology;
    int64_t all[2 * CPU_SETSIZE] = {0};
    int64_t *device = all + CPU_SETSIZE, n_all = 0, n_device = 0;
    cpu_set_t own;
    start(1, false);
    struct weft_tile *tile = tile_at(weft_world_rank(), sizeof own, false);
    weft_insert(seq, &weft_cl_cores, NULL, 0,
                (struct weft_access[]){{tile, WEFT_WRITE}}, 1, &anywhere);
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    memcpy(&own, weft_tile_acquire(tile, WEFT_READ), sizeof own);
    weft_tile_unacquire(tile);
    weft_tile_release(tile);
    stop();
    for (int i = 0; i < CPU_SETSIZE; i++)
        device[i] = CPU_ISSET(i, &own);
    REQUIRE(sched_getaffinity(0, sizeof own, &own) == 0);
    for (int i = 0; i < CPU_SETSIZE; i++)
        all[i] = CPU_ISSET(i, &own);
    weft_world_reduce(all, 2 * CPU_SETSIZE, WEFT_SUM);
    REQUIRE_OK(weft_topology_read(&topology, &err), err);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        n_all += all[i] > 0;
        n_device = device[i] > n_device ? device[i] : n_device;
    }
    int64_t each = topology.n_threads / topology.n_cores; /* of a core */
    if (n_all >= each * weft_world_size()
        && topology.n_usable >= topology.n_threads) /* no quota */
        CHECK_INT(n_device, 1);
}

/* Ranks that may use the same cores divide them, and each has the first of its
 * part: on the machine that ranks.sh makes up, of 2 sockets, ranks of one device
 * are on both. */
static void test_spread(void)
{
#if defined(STARPU_HAVE_HWLOC) && defined(WEFT_HAVE_HWLOC)
    struct weft_err err;
    struct weft_topology topology;
    REQUIRE_OK(weft_topology_read(&topology, &err), err);
    REQUIRE(topology.n_cores == 8 && topology.n_threads == 16);
    start(1, false);
    CHECK_INT(starpu_worker_get_hwloc_obj(0)->logical_index,
              weft_world_rank() * topology.n_threads / weft_world_size());
    stop();
#else
    weft_test_skip("no hwloc");
#endif
}

static bool has_mpi(void)
{
#ifdef WEFT_HAVE_MPI
    return true;
#else
    return false;
#endif
}

int main(int argc, char **argv)
{
    /* ranks.sh asks for these by themselves: tests leave threads unbound */
    static const struct weft_test cores[] = {{"test_cores", test_cores}};
    static const struct weft_test spread[] = {{"test_spread", test_spread}};
    if (argc > 1 && strcmp(argv[1], "--has-mpi") == 0)
        return has_mpi() ? 0 : 1;
    if (argc > 1 && strcmp(argv[1], "--cores") == 0)
        return ranks_main("rt/ranks", cores, WEFT_COUNT(cores));
    if (argc > 1 && strcmp(argv[1], "--spread") == 0)
        return ranks_main("rt/ranks", spread, WEFT_COUNT(spread));
    static const struct weft_test tests[] = {
        {"test_ring", test_ring},
        {"test_foreign_insert", test_foreign_insert},
        {"test_many_messages", test_many_messages},
        {"test_error_by_agree", test_error_by_agree},
        {"test_tell", test_tell},
        {"test_error_by_tell", test_error_by_tell},
        {"test_error_by_last", test_error_by_last},
        {"test_events", test_events},
        {"test_error_while_waiting", test_error_while_waiting},
        {"test_error_before_it", test_error_before_it},
        {"test_error_by_wait", test_error_by_wait},
        {"test_merge", test_merge},
        {"test_wait_meets_agree", test_wait_meets_agree},
        {"test_unwritten_copy", test_unwritten_copy},
        {"test_message_beyond_limit", test_message_beyond_limit},
        {"test_external", test_external},
        {"test_unequal_devices", test_unequal_devices},
        {"test_world", test_world},
        {"test_times_and_trace", test_times_and_trace}};
    return ranks_main("rt/ranks", tests, WEFT_COUNT(tests));
}
