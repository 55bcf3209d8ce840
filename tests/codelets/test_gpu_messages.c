/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages from one GPU's memory to another's. A job of one copies within
 * itself; tests/cuda/messages.sh runs it as several ranks, with an MPI that knows
 * emulated cards.
 */
#define WEFT_TEST_CARDS 1
#include "gpus_fixture.h"

#include <sched.h>

#include "rt/world.h"

enum { N = 1024, BYTES = N * sizeof(float), NEXT_CALL = 3 };

static int gpu_of(int rank)
{
    return rank * weft_rt_n_places(rt) / weft_world_size();
}

static bool is_mine(int rank)
{
    return rank == weft_world_rank();
}

static struct weft_where on(int rank)
{
    return (struct weft_where){.device = rank * weft_rt_devices_per_rank(rt),
                               .iteration = -1,
                               .micro_batch = -1,
                               .layer = -1};
}

static void fill(struct weft_tile *tile, int salt)
{
    unsigned char *p = weft_tile_acquire(tile, WEFT_WRITE);
    for (size_t k = 0; k < weft_tile_bytes(tile); k++)
        p[k] = (unsigned char) ((size_t) salt * 101 + k * 7 + (k >> 8));
    weft_tile_unacquire(tile);
}

static int differs(struct weft_tile *tile, int salt)
{
    int n = 0;
    const unsigned char *p = weft_tile_acquire(tile, WEFT_READ);
    for (size_t k = 0; k < weft_tile_bytes(tile); k++)
        n += p[k] != (unsigned char) ((size_t) salt * 101 + k * 7 + (k >> 8));
    weft_tile_unacquire(tile);
    return n;
}

/* Bytes that went between the host and this rank's card. */
static int64_t by_host(void)
{
#ifdef WEFT_CUDA_EXECUTOR
    struct weft_cards_counts c = weft_cards_counts(0);
    return c.bytes_in + c.bytes_out;
#else
    return 0;
#endif
}

/* ---- What arrives -------------------------------------------------------- */

/* Every rank's tile goes round, and one further; none passes the host. */
static void ring(size_t bytes)
{
    struct weft_tile *tile[8], *next[8];
    int n = weft_world_size(), me = weft_world_rank();
    for (int r = 0; r < n; r++) {
        tile[r] = tile_at(gpu_of(r), WEFT_MEM_GRADIENTS, bytes);
        if (is_mine(r))
            fill(tile[r], r);
    }
    int64_t before = by_host();
    for (int step = 0; step < n + 1; step++) {
        for (int r = 0; r < n; r++)
            next[r] = temp_at(gpu_of(r), WEFT_MEM_GRADIENTS, bytes);
        for (int r = 0; r < n; r++)
            weft_insert_copy(seq, &anywhere, tile[r], next[(r + 1) % n]);
        for (int r = 0; r < n; r++) {
            weft_tile_release(tile[r]);
            tile[r] = next[r];
        }
    }
    must_wait();
    CHECK(by_host() == before);
    CHECK_INT(differs(tile[me], (me + n - 1) % n), 0);
    for (int r = 0; r < n; r++)
        weft_tile_release(tile[r]);
}

/* The last is longer than what MPI is given at one time. */
static void test_ring(void)
{
    static const size_t bytes[] = {1, 65537, 1000003,
                                   ((size_t) 64 << 20) + 3};
    struct weft_traffic t;
    start(0);
    for (size_t i = 0; i < WEFT_COUNT(bytes); i++)
        ring(bytes[i]);
    weft_rt_traffic(rt, WEFT_MEM_GRADIENTS, &t);
    int n = weft_world_size();
    CHECK_INT(t.n_messages, n > 1 ? (n + 1) * (int) WEFT_COUNT(bytes) : 0);
    stop();
}

static struct weft_tile *all(int rank, float value)
{
    struct weft_tile *tile = tile_at(gpu_of(rank), WEFT_MEM_GRADIENTS, BYTES);
    float x[N];
    for (int i = 0; i < N; i++)
        x[i] = value;
    if (is_mine(rank))
        put(tile, x);
    return tile;
}

static void add(int rank, struct weft_tile *to, struct weft_tile *from)
{
    struct weft_where where = on(rank);
    struct weft_layer_tiles left = {.block = {to}}, right = {.block = {from}};
    where.call = NEXT_CALL;
    weft_insert_grad_add(seq, &where, &left, &right);
}

static bool is_all(struct weft_tile *tile, float value)
{
    const float *x = weft_tile_acquire(tile, WEFT_READ);
    int n = 0;
    for (int i = 0; i < N; i++)
        n += x[i] == value;
    weft_tile_unacquire(tile);
    return n == N;
}

/* What is sent is what was there, whatever is written behind it; what is
 * received is read by what comes behind. */
static void test_order(void)
{
    enum { HOPS = 20 };
    struct weft_tile *sent[HOPS];
    start(0);
    int last = weft_world_size() - 1;
    struct weft_tile *sum = all(0, 1), *one = all(0, 1),
                     *there = all(last, 0);
    for (int i = 0; i < HOPS; i++) {
        sent[i] = temp_at(gpu_of(last), WEFT_MEM_GRADIENTS, BYTES);
        weft_insert_copy(seq, &anywhere, sum, sent[i]);
        add(0, sum, one);
        add(last, there, sent[i]);
    }
    must_wait();
    for (int i = 0; i < HOPS; i++) {
        CHECK(!is_mine(last) || is_all(sent[i], (float) (1 + i)));
        weft_tile_release(sent[i]);
    }
    CHECK(!is_mine(0) || is_all(sum, 1 + HOPS));
    CHECK(!is_mine(last) || is_all(there, HOPS * (HOPS + 1) / 2));
    weft_tile_release(sum);
    weft_tile_release(one);
    weft_tile_release(there);
    stop();
}

/* ---- Memory ------------------------------------------------------------- */

#ifdef WEFT_CUDA_EXECUTOR
/* A kernel that has not begun will read memory that its tile has given back: a
 * message that gets this memory comes behind it, and one that needs none does
 * not wait. */
static void test_busy_memory(void)
{
    size_t now = 0, peak = 0;
    start(0);
    int last = weft_world_size() - 1;
    struct weft_tile *from = all(0, 7), *other = all(last, 0),
                     *sum = all(last, 1), *old = all(last, 4);
    weft_cards_hold(is_mine(last) ? WEFT_CARDS_KERNELS : 0);
    add(last, sum, old);
    weft_tile_release(old);
    while (is_mine(last) && now == peak) /* until the task's body has ended */
        weft_rt_memory(rt, WEFT_MEM_GRADIENTS, &now, &peak);
    struct weft_tile *to = temp_at(gpu_of(last), WEFT_MEM_GRADIENTS, BYTES);
    weft_insert_copy(seq, &anywhere, from, to);
    weft_insert_copy(seq, &anywhere, from, other);
    if (is_mine(last) && last > 0) {
        while (!weft_tile_ready(other))
            sched_yield();
        CHECK(!weft_tile_ready(to));
    }
    weft_cards_hold(0);
    must_wait();
    CHECK(!is_mine(last) || (is_all(to, 7) && is_all(sum, 5)));
    weft_tile_release(from);
    weft_tile_release(other);
    weft_tile_release(sum);
    weft_tile_release(to);
    stop();
}
#endif

/* Who has no memory for a message still receives it, and all are told. */
static void test_no_memory(void)
{
    enum { MUCH = 48 << 20 };
    struct weft_err err;
    start((size_t) 64 << 20);
    int last = weft_world_size() - 1;
    struct weft_tile *from = tile_at(gpu_of(0), WEFT_MEM_GRADIENTS, MUCH),
                     *to[2];
    if (is_mine(0))
        fill(from, 1);
    for (int i = 0; i < 2; i++) {
        to[i] = temp_at(gpu_of(last), WEFT_MEM_GRADIENTS, MUCH);
        weft_insert_copy(seq, &anywhere, from, to[i]);
    }
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_ENOMEM, err, "'m temporary'");
    weft_tile_release(from);
    weft_tile_release(to[0]);
    weft_tile_release(to[1]);
    stop();
}

/* What nobody has written is no message. */
static void test_unwritten(void)
{
    struct weft_err err;
    start(0);
    int last = weft_world_size() - 1;
    struct weft_tile *from = temp_at(gpu_of(0), WEFT_MEM_GRADIENTS, BYTES),
                     *to = temp_at(gpu_of(last), WEFT_MEM_GRADIENTS, BYTES);
    weft_insert_copy(seq, &anywhere, from, to);
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_ESTATE, err,
                last > 0 ? "nothing has written it"
                         : "which nothing has written");
    weft_tile_release(from);
    weft_tile_release(to);
    stop();
}

int main(void)
{
    static const struct weft_test tests[] = {
        {"ring", test_ring},
        {"order", test_order},
#ifdef WEFT_CUDA_EXECUTOR
        {"busy memory", test_busy_memory},
#endif
        {"no memory", test_no_memory},
        {"unwritten", test_unwritten}};
    struct weft_err err;
    if (weft_world_open(&err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    sends_directly = true;
    int status = gpus_main("codelets/gpu_messages", tests, WEFT_COUNT(tests));
    status = (int) weft_world_max(status);
    weft_world_close();
    return status;
}
