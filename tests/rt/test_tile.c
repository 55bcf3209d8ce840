/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of tiles: when it comes and goes, what is counted, the limit. */
#include "rt/tile.h"

#include "base/alloc.h"
#include "harness.h"
#include "rt/codelet.h"
#include "rt/internal.h"

static struct weft_rt *rt;
static struct weft_seq *seq;

static void start(size_t limit)
{
    struct weft_err err;
    struct weft_rt_options options = {
        .n_devices = 2, .nap = 1, .memory_limit_bytes = limit};
    REQUIRE_OK(weft_rt_start(&options, &rt, &err), err);
    REQUIRE_OK(weft_seq_create(rt, &seq, &err), err);
}

static void stop(void)
{
    weft_seq_free(seq);
    weft_rt_stop(rt);
}

static size_t now_bytes(enum weft_mem_class c)
{
    size_t now, peak;
    weft_rt_memory(rt, c, &now, &peak);
    return now;
}

static size_t peak_bytes(enum weft_mem_class c)
{
    size_t now, peak;
    weft_rt_memory(rt, c, &now, &peak);
    return peak;
}

static const struct weft_tile_id id = {"actor", "weights", -1, 3, 1, 0};

/* Writes args into every byte. */
static int fill_cpu(const void *args, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    (void) x;
    const size_t *a = args; /* value, bytes */
    for (int i = 0; i < n_buf; i++) {
        if ((uintptr_t) buf[i] % 64 != 0)
            return weft_err_set(weft_exec_err(x), WEFT_EINTERNAL,
                                "not aligned");
        memset(buf[i], (int) a[0], a[1]);
    }
    return 0;
}
WEFT_CODELET(fill, 0x00ff00, fill_cpu)

static int read_cpu(const void *args, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    (void) n_buf;
    const size_t *a = args;
    for (size_t i = 0; i < a[1]; i++)
        if (((const unsigned char *) buf[0])[i] != a[0])
            return weft_err_set(weft_exec_err(x), WEFT_EINTERNAL,
                                "byte %zu is %d, not %zu", i,
                                ((const unsigned char *) buf[0])[i], a[0]);
    return 0;
}
WEFT_CODELET(read, 0x0000ff, read_cpu)

static void insert(const struct weft_codelet *codelet, size_t value,
                   struct weft_tile *tile, enum weft_mode mode)
{
    size_t args[2] = {value, weft_tile_bytes(tile)};
    weft_insert(seq, codelet, args, sizeof args,
                &(struct weft_access){tile, mode}, 1,
                &(struct weft_where){.device = -1});
}

static void test_permanent(void)
{
    static const size_t size[] = {1,    63,   64,   65,     4096,
                                  4097, 8192, 8193, 100001, (size_t) 5 << 20};
    struct weft_tile *tile[WEFT_COUNT(size)];
    struct weft_err err;
    start(0);
    size_t sum = 0;
    for (size_t i = 0; i < WEFT_COUNT(size); i++) {
        REQUIRE_OK(weft_tile_create(rt, &id, WEFT_MEM_WEIGHTS, size[i],
                                    &tile[i], &err),
                   err);
        sum += size[i];
        CHECK_INT(weft_tile_bytes(tile[i]), size[i]);
        CHECK(weft_tile_ready(tile[i]));
        unsigned char *p = weft_tile_acquire(tile[i], WEFT_READ_WRITE);
        CHECK_INT((uintptr_t) p % 64, 0);
        int not_zero = 0;
        for (size_t k = 0; k < size[i]; k++)
            not_zero += p[k] != 0;
        CHECK_INT(not_zero, 0);
        memset(p, (int) i + 1, size[i]);
        weft_tile_unacquire(tile[i]);
    }
    CHECK_INT(now_bytes(WEFT_MEM_WEIGHTS), sum);
    for (size_t i = 0; i < WEFT_COUNT(size); i++)
        insert(&weft_cl_read, i + 1, tile[i], WEFT_READ);
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    for (size_t i = 0; i < WEFT_COUNT(size); i++)
        weft_tile_release(tile[i]);
    CHECK_INT(now_bytes(WEFT_MEM_WEIGHTS), 0);
    CHECK_INT(peak_bytes(WEFT_MEM_WEIGHTS), sum);
    /* Memory used before comes back as zeros. */
    REQUIRE_OK(weft_tile_create(rt, &id, WEFT_MEM_KV, 100001, &tile[0], &err),
               err);
    insert(&weft_cl_read, 0, tile[0], WEFT_READ);
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    weft_tile_release(tile[0]);
    CHECK_FAILS(weft_tile_create(rt, &id, WEFT_MEM_KV, 0, &tile[0], &err),
                WEFT_EINVAL, err, "no bytes");
    weft_tile_release(NULL);
    stop();
}

/* A chain of temporary tiles holds few of them at a time. */
static void test_temporary(void)
{
    enum { N = 200, BYTES = 1 << 20 };
    struct weft_err err;
    start(0);
    struct weft_tile *tile;
    REQUIRE_OK(weft_tile_create_temp(rt, &id, WEFT_MEM_ACTIVATIONS, BYTES,
                                     &tile, &err),
               err);
    CHECK_INT(now_bytes(WEFT_MEM_ACTIVATIONS), 0); /* not written yet */
    insert(&weft_cl_fill, 7, tile, WEFT_WRITE);
    insert(&weft_cl_read, 7, tile, WEFT_READ);
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    CHECK_INT(now_bytes(WEFT_MEM_ACTIVATIONS), BYTES);
    CHECK(weft_tile_ready(tile));
    weft_tile_release(tile);
    CHECK_INT(now_bytes(WEFT_MEM_ACTIVATIONS), 0);
    for (size_t i = 0; i < N; i++) {
        REQUIRE_OK(weft_tile_create_temp(rt, &id, WEFT_MEM_ACTIVATIONS, BYTES,
                                         &tile, &err),
                   err);
        insert(&weft_cl_fill, i % 251, tile, WEFT_WRITE);
        insert(&weft_cl_read, i % 251, tile, WEFT_READ);
        weft_tile_release(tile); /* the tasks still have it */
        if (i % 8 == 7)
            REQUIRE_OK(weft_seq_wait(seq, &err), err);
    }
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    CHECK_INT(now_bytes(WEFT_MEM_ACTIVATIONS), 0);
    CHECK(peak_bytes(WEFT_MEM_ACTIVATIONS) <= (size_t) 8 * BYTES);
    stop();
}

static void test_temporary_unwritten(void)
{
    struct weft_err err;
    start(0);
    struct weft_tile *tile;
    REQUIRE_OK(
        weft_tile_create_temp(rt, &id, WEFT_MEM_SAMPLES, 100, &tile, &err),
        err);
    insert(&weft_cl_read, 0, tile, WEFT_READ);
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_ESTATE, err,
                "read on 'actor layer 3 block 1 weights': reads 'actor "
                "layer 3 block 1 weights', which nothing has written");
    /* The program itself finds zeros there. */
    const char *p = weft_tile_acquire(tile, WEFT_READ);
    CHECK(p != NULL && p[0] == 0 && p[99] == 0);
    weft_tile_unacquire(tile);
    weft_tile_release(tile);
    stop();
}

static void test_limit(void)
{
    enum { MIB = 1 << 20 };
    struct weft_err err;
    struct weft_tile *a, *b;
    start((size_t) 10 * MIB);
    REQUIRE_OK(
        weft_tile_create(rt, &id, WEFT_MEM_OPTIMIZER, 6 * MIB, &a, &err),
        err);
    CHECK_FAILS(
        weft_tile_create(rt, &id, WEFT_MEM_WEIGHTS, 5 * MIB, &b, &err),
        WEFT_ENOMEM, err,
        "'actor layer 3 block 1 weights' wants 5.0 MiB of weights; "
        "4.0 of 10.0 MiB are left");
    CHECK_INT(now_bytes(WEFT_MEM_WEIGHTS), 0);
    /* Inside of a task the sequence says it. */
    REQUIRE_OK(weft_tile_create_temp(rt, &id, WEFT_MEM_ACTIVATIONS, 5 * MIB,
                                     &b, &err),
               err);
    insert(&weft_cl_fill, 1, b, WEFT_WRITE);
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_ENOMEM, err,
                "wants 5.0 MiB of activations");
    weft_tile_release(a);
    insert(&weft_cl_fill, 1, b, WEFT_WRITE); /* there is room now */
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    weft_tile_release(b);
    /* Kept blocks of other sizes give way. */
    for (size_t n = 1; n <= 9; n++) {
        REQUIRE_OK(weft_tile_create(rt, &id, WEFT_MEM_KV, n * MIB, &a, &err),
                   err);
        weft_tile_release(a);
    }
    CHECK_FAILS(
        weft_tile_create(rt, &id, WEFT_MEM_KV, SIZE_MAX / 2, &a, &err),
        WEFT_ENOMEM, err, "wants");
    stop();
}

/* Reserved bytes count as a tile's, and come back with it. */
static void test_reserved(void)
{
    enum { MIB = 1 << 20 };
    struct weft_err err;
    struct weft_tile *a, *b;
    start((size_t) 10 * MIB);
    REQUIRE_OK(
        weft_tile_reserve(rt, &id, WEFT_MEM_ACTIVATIONS, 6 * MIB, &a, &err),
        err);
    CHECK_INT(now_bytes(WEFT_MEM_ACTIVATIONS), 6 * MIB);
    CHECK_FAILS(
        weft_tile_create(rt, &id, WEFT_MEM_WEIGHTS, 5 * MIB, &b, &err),
        WEFT_ENOMEM, err, "4.0 of 10.0 MiB are left");
    CHECK_FAILS(
        weft_tile_reserve(rt, &id, WEFT_MEM_ACTIVATIONS, 5 * MIB, &b, &err),
        WEFT_ENOMEM, err,
        "wants 5.0 MiB of activations; 4.0 of 10.0 MiB are left, activations "
        "hold 6.0 MiB");
    weft_tile_release(a);
    CHECK_INT(now_bytes(WEFT_MEM_ACTIVATIONS), 0);
    REQUIRE_OK(/* the struct of the one that went */
               weft_tile_create(rt, &id, WEFT_MEM_WEIGHTS, 9 * MIB, &b, &err),
               err);
    memset(weft_tile_acquire(b, WEFT_WRITE), 1, 9 * MIB);
    weft_tile_unacquire(b);
    weft_tile_release(b);
    CHECK_INT(now_bytes(WEFT_MEM_WEIGHTS), 0);
    stop();
}

/* What the host keeps is counted in its class alone, and no limit bounds it. */
static void test_host(void)
{
    enum { MIB = 1 << 20 };
    struct weft_err err;
    struct weft_tile *host, *all, *more;
    size_t peak[1];
    start((size_t) 10 * MIB);
    REQUIRE_OK(
        weft_tile_create(rt, &id, WEFT_MEM_HOST, 64 * MIB, &host, &err), err);
    CHECK_INT(now_bytes(WEFT_MEM_HOST), 64 * MIB);
    CHECK_INT(now_bytes((enum weft_mem_class) WEFT_MEM_ALL), 0);
    REQUIRE_OK(
        weft_tile_create(rt, &id, WEFT_MEM_WEIGHTS, 10 * MIB, &all, &err),
        err);
    CHECK_FAILS(weft_tile_create(rt, &id, WEFT_MEM_WEIGHTS, 64, &more, &err),
                WEFT_ENOMEM, err, "0.0 of 10.0 MiB are left");
    CHECK_FAILS(
        weft_tile_create(rt, &id, WEFT_MEM_HOST, SIZE_MAX / 2, &more, &err),
        WEFT_ENOMEM, err,
        "of this machine's memory, beside the 10.0 MiB that tiles may take; "
        "host holds 64.0 MiB");
    weft_tile_release(host);
    weft_tile_release(all);
    CHECK_INT(now_bytes(WEFT_MEM_HOST), 0);
    CHECK_INT(now_bytes((enum weft_mem_class) WEFT_MEM_ALL), 0);
    weft_rt_memory_places(rt, (enum weft_mem_class) WEFT_MEM_ALL, peak);
    CHECK_INT(peak[0], 10 * MIB);
    weft_rt_memory_places(rt, WEFT_MEM_HOST, peak);
    CHECK_INT(peak[0], 64 * MIB);
    stop();
}

/* Every size fits its class, and classes waste an eighth at most. */
static void test_pool_sizes(void)
{
    struct weft_pool *pool = weft_pool_create(SIZE_MAX / 2, 1);
    REQUIRE(pool != NULL);
    for (size_t bytes = 1; bytes < 70000; bytes += bytes < 10000 ? 1 : 37) {
        struct weft_need need = {.bytes = bytes, .c = WEFT_MEM_KV};
        unsigned char *p = weft_pool_get(pool, &need);
        REQUIRE(p != NULL);
        memset(p, 0xa5, bytes); /* the sanitizer watches */
        REQUIRE(pool->held_bytes >= bytes);
        REQUIRE(pool->held_bytes <= bytes + bytes / 8 + 64);
        weft_pool_put(pool, &need, p);
        REQUIRE(pool->held_bytes == 0);
        need.zeroed = true;
        unsigned char *q = weft_pool_get(pool, &need);
        CHECK(q == p); /* the kept block */
        CHECK(q[0] == 0 && q[bytes - 1] == 0);
        weft_pool_put(pool, &need, q);
    }
    struct weft_need huge = {.bytes = (size_t) 1 << 60, .c = WEFT_MEM_KV};
    CHECK(weft_pool_get(pool, &huge) == NULL);
    weft_pool_free(pool);
}

static void test_ready(void)
{
    struct weft_err err;
    start(0);
    struct weft_tile *tile;
    struct weft_external *answer;
    struct weft_where where = {.device = -1};
    REQUIRE_OK(weft_tile_create(rt, &id, WEFT_MEM_SAMPLES, 8, &tile, &err),
               err);
    REQUIRE_OK(weft_external_begin(seq, tile, &where, &answer, &err), err);
    CHECK(!weft_tile_ready(tile));
    weft_external_complete(answer, "\7\7\7\7\7\7\7\7", 8);
    CHECK(weft_tile_ready(tile));
    insert(&weft_cl_read, 7, tile, WEFT_READ);
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    weft_tile_release(tile);
    stop();
}

/* A body that gives up its own tile, and what StarPU finds when it asks for
 * the task's sizes after it, as it does for traces and performance models:
 * others have made tiles in between. */
static uint32_t asked_after(struct starpu_task *task);
static struct starpu_perfmodel last_model = {.type = STARPU_HISTORY_BASED,
                                             .symbol = "weft_test_last_use",
                                             .footprint = asked_after};
static struct {
    int n_asked;
    size_t bytes;
} last;

static int last_use_cpu(const void *args, void *const buf[], int n_buf,
                        struct weft_exec *x)
{
    (void) buf;
    (void) n_buf;
    (void) x;
    struct weft_tile *tile;
    memcpy(&tile, args, sizeof tile);
    weft_tile_release(tile);
    last_model.benchmarking = 1; /* this task is measured */
    return 0;
}
WEFT_CODELET(last_use, 0x00ffff, last_use_cpu)

static uint32_t asked_after(struct starpu_task *task)
{
    const struct weft_task *t = task->cl_arg;
    struct weft_tile *other;
    struct weft_err err;
    CHECK_INT(now_bytes(WEFT_MEM_KV), 0); /* the memory has gone back */
    REQUIRE_OK(
        weft_tile_create_temp(rt, &id, WEFT_MEM_KV, 2000, &other, &err), err);
    last.bytes = weft_tile_bytes(t->access[0].tile);
    weft_tile_release(other);
    last.n_asked++;
    last_model.benchmarking = 0; /* nor is it kept in a file */
    return 1;
}

static void test_asked_after_body(void)
{
    struct weft_tile *tile;
    struct weft_err err;
    start(0);
    weft_cl_last_use.starpu.model = &last_model;
    REQUIRE_OK(weft_tile_create_temp(rt, &id, WEFT_MEM_KV, 1000, &tile, &err),
               err);
    weft_insert(seq, &weft_cl_last_use, &tile, sizeof tile,
                &(struct weft_access){tile, WEFT_WRITE}, 1,
                &(struct weft_where){.device = -1});
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    CHECK_INT(last.n_asked, 1);
    CHECK_INT(last.bytes, 1000);
    stop();
}

/* Of iteration 0. Returns its moments. */
static struct weft_moments *insert_noted(const struct weft_codelet *codelet,
                                         struct weft_tile *tile,
                                         enum weft_mode mode)
{
    size_t args[2] = {1, weft_tile_bytes(tile)};
    weft_insert(seq, codelet, args, sizeof args,
                &(struct weft_access){tile, mode}, 1,
                &(struct weft_where){.device = 0, .iteration = 0});
    return &rt->ran[0].moments[rt->ran[0].n - 1];
}

/* Lets a task that waits for the pool go on, after an event. Returns that. */
static long long let_go(atomic_llong *moment)
{
    atomic_llong event;
    while (atomic_load(moment) == 0) /* it waits, or is about to */
        ;
    weft_ran_note(rt, &event);
    pthread_mutex_unlock(&rt->pool->mutex);
    return atomic_load(&event);
}

/* Memory is noted in the order that it is counted in, however long a task waits
 * to get it or to give it back. */
static void test_moments(void)
{
    struct weft_tile *tile[2];
    struct weft_err err;
    start(0);
    for (int i = 0; i < 2; i++)
        REQUIRE_OK(
            weft_tile_create_temp(rt, &id, WEFT_MEM_KV, 1000, &tile[i], &err),
            err);
    const struct weft_release *released = rt->ran[0].released;
    pthread_mutex_lock(&rt->pool->mutex);
    struct weft_moments *fill = insert_noted(&weft_cl_fill, tile[0],
                                             WEFT_WRITE);
    long long event = let_go(&fill->began);
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    CHECK(fill->began > event && fill->ended > fill->began);
    pthread_mutex_lock(&rt->pool->mutex);
    struct weft_moments *read = insert_noted(&weft_cl_read, tile[0],
                                             WEFT_READ);
    weft_tile_release(tile[0]);
    event = let_go(&read->ended);
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    CHECK(read->ended > event && released[0].ended < event);
    CHECK(released[0].began > read->inserted);
    CHECK(released[0].ended > released[0].began);
    /* the inserting thread gives it back */
    fill = insert_noted(&weft_cl_fill, tile[1], WEFT_WRITE);
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    CHECK_INT(rt->ran[0].n_released, 1);
    weft_tile_release(tile[1]);
    CHECK_INT(rt->ran[0].n_released, 2);
    CHECK(released[1].began > fill->ended);
    CHECK(released[1].ended > released[1].began + 1);
    CHECK_INT(now_bytes(WEFT_MEM_KV), 0);
    stop();
}

WEFT_TESTS("rt/tile", {"test_permanent", test_permanent},
           {"test_asked_after_body", test_asked_after_body},
           {"test_temporary", test_temporary},
           {"test_temporary_unwritten", test_temporary_unwritten},
           {"test_limit", test_limit}, {"test_reserved", test_reserved},
           {"test_host", test_host}, {"test_pool_sizes", test_pool_sizes},
           {"test_ready", test_ready}, {"test_moments", test_moments})
