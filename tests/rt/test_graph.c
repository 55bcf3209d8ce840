/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks against a loop: dependencies, errors, accesses, answers, scratch. */
#include "rt/graph.h"

#include <stdatomic.h>
#include <unistd.h>

#include "harness.h"
#include "rt/codelet.h"

static struct weft_rt *rt;
static struct weft_seq *seq;
static const struct weft_where anywhere = {
    .device = -1, .iteration = -1, .micro_batch = -1, .layer = -1};

static void start(int n_devices)
{
    struct weft_err err;
    struct weft_rt_options options = {
        .n_devices = n_devices, .nap = 1, .check_modes = n_devices == 2};
    REQUIRE_OK(weft_rt_start(&options, &rt, &err), err);
    REQUIRE_OK(weft_seq_create(rt, &seq, &err), err);
}

static void stop(void)
{
    weft_seq_free(seq);
    weft_rt_stop(rt);
}

static struct weft_tile *tile_of(int32_t layer, size_t bytes)
{
    struct weft_err err;
    struct weft_tile *tile = NULL;
    struct weft_tile_id id = {"m", "x", -1, layer, -1, 0};
    REQUIRE_OK(
        weft_tile_create(rt, &id, WEFT_MEM_SAMPLES, bytes, &tile, &err), err);
    return tile;
}

/* buf[0] = hash(old buf[0], buf[1..], args): order of the tasks matters. */
static uint64_t mix(uint64_t h, uint64_t v)
{
    return (h ^ v) * 0x9e3779b97f4a7c15u + (h >> 29);
}

static atomic_int n_bodies;

static int mix_cpu(const void *args, void *const buf[], int n_buf,
                   struct weft_exec *x)
{
    (void) x;
    uint64_t *out = buf[0];
    uint64_t h = mix(*out, *(const uint64_t *) args);
    for (int i = 1; i < n_buf; i++)
        h = mix(h, *(const uint64_t *) buf[i]);
    *out = h;
    atomic_fetch_add(&n_bodies, 1);
    return 0;
}
WEFT_CODELET(mix, 0x123456, mix_cpu)

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Random tasks over few tiles; the oracle is the same loop done at once. */
static void dataflow(int n_devices)
{
    enum { TILES = 24, TASKS = 3000, MOST = 7 };
    struct weft_err err;
    struct weft_tile *tile[TILES];
    uint64_t want[TILES] = {0};
    uint32_t random = 1;
    start(n_devices);
    for (int i = 0; i < TILES; i++)
        tile[i] = tile_of(i, sizeof(uint64_t));
    for (int k = 0; k < TASKS; k++) {
        struct weft_access access[MOST];
        uint64_t salt = next_random(&random);
        int n = 1 + (int) (next_random(&random) % MOST);
        int at = (int) (next_random(&random) % TILES);
        access[0] = (struct weft_access){tile[at], WEFT_READ_WRITE};
        uint64_t h = mix(want[at], salt);
        for (int i = 1; i < n; i++) {
            /* Any tile, also one that is there already. */
            int j = (int) (next_random(&random) % TILES);
            access[i] = (struct weft_access){tile[j], WEFT_READ};
            h = mix(h, want[j]);
        }
        want[at] = h;
        struct weft_where where = anywhere;
        where.device = (int) (next_random(&random)
                              % (uint32_t) (n_devices + 1))
                     - 1;
        where.priority = (int) (next_random(&random) % 5);
        weft_insert(seq, &weft_cl_mix, &salt, sizeof salt, access, n, &where);
    }
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    int wrong = 0;
    for (int i = 0; i < TILES; i++) {
        wrong += *(uint64_t *) weft_tile_acquire(tile[i], WEFT_READ)
              != want[i];
        weft_tile_unacquire(tile[i]);
        weft_tile_release(tile[i]);
    }
    CHECK_INT(wrong, 0);
    stop();
}

static void test_dataflow(void)
{
    dataflow(1);
    dataflow(2);
    dataflow(8);
}

/* More accesses than StarPU has room for in a task. */
static void test_many_accesses(void)
{
    enum { N = 300 };
    struct weft_err err;
    struct weft_access access[N];
    uint64_t salt = 5, h;
    start(2);
    for (int i = 0; i < N; i++) {
        access[i] = (struct weft_access){tile_of(i, 8), WEFT_READ};
        *(uint64_t *) weft_tile_acquire(access[i].tile,
                                        WEFT_WRITE) = (uint64_t) i * 77;
        weft_tile_unacquire(access[i].tile);
    }
    access[0].mode = WEFT_READ_WRITE;
    for (int n = STARPU_NMAXBUFS - 1; n <= N; n = n < 40 ? n + 1 : n * 2) {
        uint64_t *first = weft_tile_acquire(access[0].tile, WEFT_READ);
        h = mix(*first, salt);
        weft_tile_unacquire(access[0].tile);
        for (int i = 1; i < n; i++)
            h = mix(h, (uint64_t) i * 77);
        weft_insert(seq, &weft_cl_mix, &salt, sizeof salt, access, n,
                    &anywhere);
        REQUIRE_OK(weft_seq_wait(seq, &err), err);
        first = weft_tile_acquire(access[0].tile, WEFT_READ);
        CHECK(*first == h);
        weft_tile_unacquire(access[0].tile);
    }
    for (int i = 0; i < N; i++)
        weft_tile_release(access[i].tile);
    stop();
}

static int fail_cpu(const void *args, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    (void) buf;
    (void) n_buf;
    int which = *(const int *) args;
    if (which == 0)
        return WEFT_EIO; /* without a sentence */
    return weft_err_set(weft_exec_err(x), WEFT_ENUMERIC, "row %d is NaN",
                        which);
}
WEFT_CODELET(fail, 0x0, fail_cpu)

static void insert_mix(struct weft_tile *tile)
{
    uint64_t salt = 1;
    weft_insert(seq, &weft_cl_mix, &salt, sizeof salt,
                &(struct weft_access){tile, WEFT_READ_WRITE}, 1, &anywhere);
}

static void insert_fail(struct weft_tile *tile, int which)
{
    weft_insert(seq, &weft_cl_fail, &which, sizeof which,
                &(struct weft_access){tile, WEFT_READ_WRITE}, 1, &anywhere);
}

static void test_error_first_wins(void)
{
    struct weft_err err;
    start(2);
    struct weft_tile *tile = tile_of(4, 8);
    atomic_store(&n_bodies, 0);
    CHECK_INT(weft_seq_status(seq, &err), 0);
    for (int i = 0; i < 10; i++)
        insert_mix(tile);
    insert_fail(tile, 17);
    insert_fail(tile, 18);
    for (int i = 0; i < 10; i++)
        insert_mix(tile); /* does nothing, but ends */
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_ENUMERIC, err,
                "fail on 'm layer 4 x': row 17 is NaN");
    CHECK_INT(n_bodies, 10);
    /* Told once; the sequence works again. */
    CHECK_INT(weft_seq_status(seq, &err), 0);
    insert_mix(tile);
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    CHECK_INT(n_bodies, 11);
    insert_fail(tile, 0);
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_EIO, err,
                "failed with code -3");
    /* From outside, and NULL instead of an error. */
    weft_seq_fail(seq, WEFT_EINTERRUPTED, "stopped by %s", "a signal");
    weft_seq_fail(seq, WEFT_EIO, "later");
    CHECK_FAILS(weft_seq_status(seq, &err), WEFT_EINTERRUPTED, err,
                "stopped by a signal");
    insert_mix(tile);
    CHECK_INT(weft_seq_wait(seq, NULL), WEFT_EINTERRUPTED);
    CHECK_INT(n_bodies, 11);
    weft_tile_release(tile);
    stop();
}

/* The error of one sequence is none of another's. */
static void test_error_of_sequence(void)
{
    struct weft_err err;
    start(2);
    struct weft_seq *other, *own = seq;
    REQUIRE_OK(weft_seq_create(rt, &other, &err), err);
    struct weft_tile *tile = tile_of(1, 8);
    atomic_store(&n_bodies, 0);
    insert_fail(tile, 3);
    seq = other;
    insert_mix(tile);
    REQUIRE_OK(weft_seq_wait(other, &err), err);
    CHECK_INT(n_bodies, 1);
    seq = own;
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_ENUMERIC, err, "row 3");
    weft_tile_release(tile);
    weft_seq_free(other);
    stop();
}

static void test_where_is_checked(void)
{
    static const struct {
        struct weft_where where;
        const char *part;
    } bad[] = {{{.device = 2}, "mix: there is no device 2; 0 to 1, or -1"},
               {{.device = -2}, "there is no device -2"},
               {{.device = -1, .position = 1}, "position 1 needs a device"},
               {{.position = -4}, "position -4"},
               {{.chain = WEFT_N_CHAINS}, "there is no chain 16"},
               {{.call = WEFT_MAX_CALLS}, "unknown call 32"}};
    struct weft_err err;
    start(2);
    struct weft_tile *tile = tile_of(1, 8);
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        uint64_t salt = 0;
        weft_insert(seq, &weft_cl_mix, &salt, sizeof salt,
                    &(struct weft_access){tile, WEFT_READ_WRITE}, 1,
                    &bad[i].where);
        CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_EINVAL, err, bad[i].part);
    }
    weft_tile_release(tile);
    stop();
}

static int scratch_cpu(const void *args, void *const buf[], int n_buf,
                       struct weft_exec *x)
{
    (void) buf;
    (void) n_buf;
    enum { N = 5 };
    unsigned char *p[N];
    size_t bytes = *(const size_t *) args;
    for (int i = 0; i < N; i++) {
        p[i] = weft_exec_scratch(x, bytes * (size_t) (i + 1));
        if (!p[i])
            return WEFT_ENOMEM;
        if ((uintptr_t) p[i] % 64)
            return weft_err_set(weft_exec_err(x), WEFT_EINTERNAL, "align");
        memset(p[i], i, bytes * (size_t) (i + 1));
    }
    for (int i = 0; i < N; i++) /* nobody wrote over another's */
        for (size_t k = 0; k < bytes * (size_t) (i + 1); k++)
            if (p[i][k] != i)
                return weft_err_set(weft_exec_err(x), WEFT_EINTERNAL,
                                    "scratch %d overlaps", i);
    return 0;
}
WEFT_CODELET(scratch, 0x0, scratch_cpu)

static void test_scratch(void)
{
    static const size_t size[] = {1, 64, 1000, 100000, 3, 1 << 20, 0, 77};
    struct weft_err err;
    start(2);
    for (size_t round = 0; round < 3; round++)
        for (size_t i = 0; i < WEFT_COUNT(size); i++)
            weft_insert(seq, &weft_cl_scratch, &size[i], sizeof size[i], NULL,
                        0, &anywhere);
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    size_t huge = SIZE_MAX / 64;
    weft_insert(seq, &weft_cl_scratch, &huge, sizeof huge, NULL, 0,
                &anywhere);
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_ENOMEM, err,
                "out of memory: scratch memory");
    stop();
}

/* ---- Checks at the end of a task --------------------------------------- */

static atomic_int n_ends;

static int is_counted(const void *args, void *const buf[], int n_buf,
                      struct weft_exec *x)
{
    const uint64_t *most = args, *count = buf[0];
    atomic_fetch_add(&n_ends, 1);
    if (n_buf == 1 && *count <= *most)
        return 0;
    return weft_err_set(weft_exec_err(x), WEFT_ENUMERIC, "has come to %d",
                        (int) *count);
}

/* Counts up to *args; what is above fails at the end, and 9 before. */
static int count_cpu(const void *args, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    (void) args;
    (void) n_buf;
    weft_exec_at_end(x, is_counted);
    if (++*(uint64_t *) buf[0] == 9)
        return weft_err_set(weft_exec_err(x), WEFT_EINVAL, "is nine");
    return 0;
}
WEFT_CODELET(count, 0x0, count_cpu)

static void insert_count(struct weft_tile *tile, uint64_t most)
{
    weft_insert(seq, &weft_cl_count, &most, sizeof most,
                &(struct weft_access){tile, WEFT_READ_WRITE}, 1, &anywhere);
}

static void test_at_end(void)
{
    struct weft_err err;
    for (int n_devices = 1; n_devices < 3; n_devices++) {
        start(n_devices);
        struct weft_tile *tile = tile_of(7, 8), *other = tile_of(1, 8);
        atomic_store(&n_ends, 0);
        for (int i = 0; i < 5; i++)
            insert_count(tile, 5);
        insert_mix(other); /* which has no check */
        REQUIRE_OK(weft_seq_wait(seq, &err), err);
        CHECK_INT(n_ends, 5);
        for (int i = 0; i < 3; i++)
            insert_count(tile, 5);
        CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_ENUMERIC, err,
                    "count on 'm layer 7 x': has come to 6");
        CHECK_INT(n_ends, 6); /* nothing has run behind the failure */
        *(uint64_t *) weft_tile_acquire(tile, WEFT_WRITE) = 8;
        weft_tile_unacquire(tile);
        insert_count(tile, 5);
        CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_EINVAL, err, "is nine");
        CHECK_INT(n_ends, 6); /* a body that fails is not checked */
        weft_tile_release(tile);
        weft_tile_release(other);
        stop();
    }
}

/* ---- Answers from outside --------------------------------------------- */

static void test_external(void)
{
    enum { N = 50 };
    struct weft_err err;
    struct weft_external *answer[N];
    struct weft_tile *score[N];
    start(1); /* waiting answers must not occupy the only device */
    struct weft_tile *sum = tile_of(0, 8);
    uint64_t want = 0, salt = 3;
    atomic_store(&n_bodies, 0);
    for (int i = 0; i < N; i++) {
        score[i] = tile_of(i, 8);
        REQUIRE_OK(
            weft_external_begin(seq, score[i], &anywhere, &answer[i], &err),
            err);
        struct weft_access access[] = {{sum, WEFT_READ_WRITE},
                                       {score[i], WEFT_READ}};
        weft_insert(seq, &weft_cl_mix, &salt, sizeof salt, access, 2,
                    &anywhere);
        want = mix(mix(want, salt), (uint64_t) (i * i));
    }
    struct weft_tile *other = tile_of(9, 8);
    insert_mix(other); /* runs though 50 others wait */
    while (atomic_load(&n_bodies) < 1)
        usleep(1000);
    CHECK_INT(n_bodies, 1);
    for (int i = N - 1; i >= 0; i--) { /* in any order */
        uint64_t value = (uint64_t) (i * i);
        weft_external_complete(answer[i], &value, sizeof value);
    }
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    CHECK(*(uint64_t *) weft_tile_acquire(sum, WEFT_READ) == want);
    weft_tile_unacquire(sum);
    for (int i = 0; i < N; i++)
        weft_tile_release(score[i]);
    weft_tile_release(sum);
    weft_tile_release(other);
    stop();
}

static atomic_bool slow_may_end;

static int slow_cpu(const void *args, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    (void) args;
    (void) n_buf;
    (void) x;
    while (!atomic_load(&slow_may_end))
        usleep(1000);
    *(uint64_t *) buf[1] = *(const uint64_t *) buf[0];
    return 0;
}
WEFT_CODELET(slow, 0x0, slow_cpu)

/* An answer that comes before the tile's turn waits for earlier readers. */
/* A lot is waited for beside an older one that has not ended. */
static void test_lots(void)
{
    enum { N = 20 };
    struct weft_err err;
    struct weft_external *answer;
    long now, most;
    start(1);
    struct weft_tile *late = tile_of(0, 8), *other = tile_of(1, 8);
    uint64_t value = 1;
    atomic_store(&n_bodies, 0);
    int64_t first = weft_seq_lot(seq);
    REQUIRE_OK(weft_external_begin(seq, late, &anywhere, &answer, &err), err);
    insert_mix(late);
    int64_t second = weft_seq_lot(seq);
    for (int i = 0; i < N; i++)
        insert_mix(other);
    int64_t third = weft_seq_lot(seq);
    weft_seq_wait_lot(seq, second);
    CHECK_INT(n_bodies, N);
    weft_rt_records(rt, &now, &most);
    CHECK_INT(now, 2); /* the answer and its reader */
    CHECK(most >= 3 && most <= N + 2);
    weft_external_complete(answer, &value, sizeof value);
    weft_seq_wait_lot(seq, first);
    CHECK_INT(n_bodies, N + 1);
    /* Numbers go on for more lots than there are at a time. */
    for (int i = 1; i <= 3 * WEFT_LOTS; i++) {
        insert_mix(other);
        CHECK_INT(weft_seq_lot(seq), third + i);
        if (i % 5 == 0) {
            weft_seq_wait_lot(seq, third + i - 1);
            CHECK_INT(n_bodies, N + 1 + i);
        }
    }
    weft_seq_wait_lot(seq, first); /* long gone */
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    weft_rt_records(rt, &now, &most);
    CHECK_INT(now, 0);
    weft_tile_release(late);
    weft_tile_release(other);
    stop();
}

static void test_external_early(void)
{
    struct weft_err err;
    struct weft_external *answer;
    start(1);
    struct weft_tile *score = tile_of(0, 8), *copy = tile_of(1, 8);
    *(uint64_t *) weft_tile_acquire(score, WEFT_WRITE) = 5;
    weft_tile_unacquire(score);
    struct weft_access access[] = {{score, WEFT_READ}, {copy, WEFT_WRITE}};
    weft_insert(seq, &weft_cl_slow, NULL, 0, access, 2, &anywhere);
    REQUIRE_OK(weft_external_begin(seq, score, &anywhere, &answer, &err),
               err);
    uint32_t short_answer = 9; /* the rest is zeros */
    weft_external_complete(answer, &short_answer, sizeof short_answer);
    weft_tile_release(score);
    atomic_store(&slow_may_end, true);
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    CHECK(*(uint64_t *) weft_tile_acquire(copy, WEFT_READ) == 5);
    weft_tile_unacquire(copy);
    /* Too long an answer is an error of the sequence. */
    char big[100] = {0};
    REQUIRE_OK(weft_external_begin(seq, copy, &anywhere, &answer, &err), err);
    weft_external_complete(answer, big, sizeof big);
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_EINVAL, err,
                "an answer of 100 bytes for 'm layer 1 x', which has 8");
    /* Nobody answers: stopping ends all the same. */
    REQUIRE_OK(weft_external_begin(seq, copy, &anywhere, &answer, &err), err);
    insert_mix(copy);
    weft_tile_release(copy);
    weft_rt_stop(rt);
}

/* Runs mix with its result in this mode, then what it needs beside. */
static int mixed(enum weft_mode mode, struct weft_tile *out,
                 struct weft_tile *in, struct weft_err *err)
{
    uint64_t salt = 7;
    struct weft_access access[2] = {{out, mode}, {in, WEFT_READ}};
    weft_insert(seq, &weft_cl_mix, &salt, sizeof salt, access, 2, &anywhere);
    return weft_seq_wait(seq, err);
}

/* A body that does not keep to the modes of its accesses is found. */
static void test_modes(void)
{
    struct weft_err err;
    start(2);
    struct weft_tile *a = tile_of(0, sizeof(uint64_t));
    struct weft_tile *b = tile_of(1, sizeof(uint64_t));
    CHECK_FAILS(mixed(WEFT_READ, a, b, &err), WEFT_EINTERNAL, err,
                "writes 'm layer 0 x', which it was given to read");
    REQUIRE_OK(mixed(WEFT_READ_WRITE, a, b, &err), err);
    REQUIRE_OK(mixed(WEFT_READ_WRITE, a, a, &err), err);
    /* what it reads without having said so are no numbers */
    REQUIRE_OK(mixed(WEFT_WRITE, a, b, &err), err);
    uint64_t *x = weft_tile_acquire(a, WEFT_READ);
    CHECK(*x == mix(mix(UINT64_MAX, 7), 0));
    weft_tile_unacquire(a);
    weft_tile_release(a);
    weft_tile_release(b);
    stop();
}

WEFT_TESTS("rt/graph", {"test_dataflow", test_dataflow},
           {"test_modes", test_modes},
           {"test_many_accesses", test_many_accesses},
           {"test_error_first_wins", test_error_first_wins},
           {"test_error_of_sequence", test_error_of_sequence},
           {"test_where_is_checked", test_where_is_checked},
           {"test_scratch", test_scratch}, {"test_at_end", test_at_end},
           {"test_external", test_external}, {"test_lots", test_lots},
           {"test_external_early", test_external_early})
