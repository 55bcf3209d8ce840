/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies to, from and between GPUs go on beside what these compute, and wait
 * for what they must. On emulated cards alone, which can be held.
 */
#include "gpus_fixture.h"

#include <math.h>
#include <sched.h>

#include "plan/card_memory.h"

#ifdef WEFT_CUDA_EXECUTOR
enum { COPIED = 4096, COPIED_N = COPIED / sizeof(float) };
enum { COPYING_CALL = 2, ADDING_CALL = 3 };

static void insert_add(struct weft_tile *to, struct weft_tile *from)
{
    struct weft_where where = at(0);
    where.call = ADDING_CALL;
    where.iteration = 5;
    struct weft_layer_tiles left = {.block = {to}}, right = {.block = {from}};
    weft_insert_grad_add(seq, &where, &left, &right);
}

/* An array of one value. */
static const float *all(float value)
{
    static float x[8][COPIED_N];
    static int next;
    float *out = x[next++ % 8];
    for (size_t i = 0; i < COPIED_N; i++)
        out[i] = value;
    return out;
}

static struct weft_tile *tile_of(int place, float value)
{
    struct weft_tile *tile = tile_at(place, WEFT_MEM_GRADIENTS, COPIED);
    put(tile, all(value));
    return tile;
}

/* While a kernel runs, and so does the worker's task, tiles are copied to and
 * from the card, and to and from another. If a copy waited for the kernel, this
 * would wait for ever. */
static void beside_kernel(void)
{
    start(0);
    int n = host_place();
    struct weft_tile *sum = tile_of(0, 1), *one = tile_of(0, 1),
                     *card = tile_of(0, 2), *other = tile_of(n - 1, 3),
                     *back = tile_of(0, 0), *home = tile_of(n, 0);
    struct weft_where where = at(0);
    weft_cards_hold(WEFT_CARDS_KERNELS);
    insert_add(sum, one);
    weft_insert_copy(seq, &where, card, home);
    CHECK(holds(home, all(2)));
    if (n > 1) {
        weft_insert_copy(seq, &where, card, other);
        weft_insert_copy(seq, &where, other, home);
        CHECK(holds(home, all(2)));
    }
    put(home, all(5));
    weft_insert_copy(seq, &where, home, back);
    weft_insert_copy(seq, &where, back, home);
    CHECK(holds(home, all(5)));
    CHECK(!weft_tile_ready(sum));
    weft_cards_hold(0);
    CHECK(holds(sum, all(2)));
    must_wait();
    struct weft_tile *tile[] = {sum, one, card, other, back, home};
    for (size_t i = 0; i < WEFT_COUNT(tile); i++)
        weft_tile_release(tile[i]);
    stop();
}

/* A task that reads a copy, or writes what is being copied, does not begin
 * before its end, while others do. */
static void after_copy(void)
{
    start(0);
    int n = host_place();
    struct weft_tile *in = tile_of(n, 7), *out = tile_of(n, 0),
                     *card = tile_of(0, 1), *left = tile_of(0, 2),
                     *sum = tile_of(0, 1), *other = tile_of(0, 1),
                     *one = tile_of(0, 1);
    struct weft_where where = at(0);
    weft_cards_hold(WEFT_CARDS_COPIES);
    weft_insert_copy(seq, &where, in, card);
    weft_insert_copy(seq, &where, left, out);
    insert_add(sum, card); /* reads what comes */
    insert_add(left, one); /* writes what goes */
    insert_add(other, one);
    while (!weft_tile_ready(other))
        sched_yield();
    CHECK(!weft_tile_ready(card) && !weft_tile_ready(out));
    CHECK(!weft_tile_ready(sum) && !weft_tile_ready(left));
    weft_cards_hold(0);
    CHECK(holds(sum, all(8)));
    CHECK(holds(out, all(2)));
    CHECK(holds(left, all(3)));
    CHECK(holds(other, all(2)));
    must_wait();
    struct weft_tile *tile[] = {in, out, card, left, sum, other, one};
    for (size_t i = 0; i < WEFT_COUNT(tile); i++)
        weft_tile_release(tile[i]);
    stop();
}

/* A copy of what a running kernel writes, and one to what it reads, wait for
 * its end; those of other tiles, inserted behind them, do not. */
static void after_kernel(void)
{
    start(0);
    int n = host_place();
    struct weft_tile *sum = tile_of(0, 1), *one = tile_of(0, 1),
                     *in = tile_of(n, 9), *home = tile_of(n, 0),
                     *card = tile_of(0, 2), *other = tile_of(n, 0);
    struct weft_where where = at(0);
    weft_cards_hold(WEFT_CARDS_KERNELS);
    insert_add(sum, one);
    weft_insert_copy(seq, &where, sum, home);
    weft_insert_copy(seq, &where, in, one);
    weft_insert_copy(seq, &where, card, other);
    CHECK(holds(other, all(2)));
    weft_insert_copy(seq, &where, in, card);
    weft_insert_copy(seq, &where, card, other);
    CHECK(holds(other, all(9)));
    CHECK(!weft_tile_ready(sum) && !weft_tile_ready(home));
    CHECK(!weft_tile_ready(one));
    weft_cards_hold(0);
    CHECK(holds(home, all(2)));
    CHECK(holds(one, all(9)));
    CHECK(holds(sum, all(2)));
    must_wait();
    struct weft_tile *tile[] = {sum, one, in, home, card, other};
    for (size_t i = 0; i < WEFT_COUNT(tile); i++)
        weft_tile_release(tile[i]);
    stop();
}

/* Waits until tiles take no more than this. */
static void wait_for_memory(size_t bytes_left)
{
    size_t now, peak;
    do
        weft_rt_memory(rt, WEFT_MEM_GRADIENTS, &now, &peak);
    while (now > bytes_left);
}

/* A kernel still reads memory that its tile has given back: a copy that gets
 * this memory waits for the kernel, and one that needs none does not. */
static void memory_of_kernel_in(size_t gpu_bytes)
{
    start(gpu_bytes);
    int n = host_place();
    struct weft_tile *in = tile_of(n, 9), *sum = tile_of(0, 1),
                     *old = tile_of(0, 4), *home = tile_of(n, 0),
                     *small = tile_at(0, WEFT_MEM_GRADIENTS, 64);
    struct weft_where where = at(0);
    weft_cards_hold(WEFT_CARDS_KERNELS);
    insert_add(sum, old);
    weft_tile_release(old);
    /* the worker's body returns, and the memory is given back */
    wait_for_memory(3 * COPIED + WEFT_CARD_SLOT_BYTES);
    struct weft_tile *new = temp_at(0, WEFT_MEM_GRADIENTS, COPIED);
    weft_insert_copy(seq, &where, in, new);
    while (weft_cards_blocked() == 0 && !weft_tile_ready(new))
        sched_yield();
    CHECK(!weft_tile_ready(new));
    struct weft_tile *out = tile_at(n, WEFT_MEM_GRADIENTS, 64);
    weft_insert_copy(seq, &where, small, out);
    (void) weft_tile_acquire(out, WEFT_READ);
    weft_tile_unacquire(out);
    CHECK(!weft_tile_ready(new));
    weft_cards_hold(0);
    CHECK(holds(sum, all(5)));
    weft_insert_copy(seq, &where, new, home);
    CHECK(holds(home, all(9)));
    must_wait();
    struct weft_tile *tile[] = {in, sum, home, small, new, out};
    for (size_t i = 0; i < WEFT_COUNT(tile); i++)
        weft_tile_release(tile[i]);
    stop();
}

/* A copy that restores while the same card runs a task of another call is
 * hidden; a copy takes nothing of its device's time. */
static void times_of_copies(void)
{
    struct weft_call_time time;
    start(0);
    int n = host_place();
    struct weft_tile *in = tile_of(n, 9), *card = tile_of(0, 1),
                     *sum = tile_of(0, 1), *old = tile_of(0, 4);
    struct weft_where where = at(0);
    where.call = COPYING_CALL;
    where.iteration = 5;
    weft_insert_copy(seq, &where, in, card);
    must_wait();
    weft_rt_times(rt, 5, COPYING_CALL, &time);
    CHECK(time.n_tasks == 0 && time.busy_s == 0 && time.restore_s == 0);
    where.restores = true;
    weft_insert_copy(seq, &where, in, card);
    must_wait();
    weft_rt_times(rt, 5, COPYING_CALL, &time);
    CHECK(time.restore_s > 0 && time.hidden_s == 0);
    double before_s = time.restore_s;
    weft_cards_hold(WEFT_CARDS_KERNELS);
    insert_add(sum, old);
    weft_tile_release(old);
    wait_for_memory(3 * COPIED); /* the body has begun */
    weft_insert_copy(seq, &where, in, card);
    weft_insert_copy(seq, &where, card, in);
    (void) weft_tile_acquire(in, WEFT_READ);
    weft_tile_unacquire(in);
    weft_rt_times(rt, 5, COPYING_CALL, &time);
    CHECK(time.hidden_s > 0);
    CHECK(fabs(time.restore_s - before_s - time.hidden_s) < 1e-9);
    weft_cards_hold(0);
    must_wait();
    weft_rt_times(rt, 5, ADDING_CALL, &time);
    CHECK_INT(time.n_tasks, 1);
    weft_tile_release(in);
    weft_tile_release(card);
    weft_tile_release(sum);
    stop();
}

static void memory_of_kernel(void)
{
    memory_of_kernel_in(0);
    /* the card has room for no page but those of both sizes */
    memory_of_kernel_in(2 * WEFT_CARD_PAGE_BYTES);
}

static void test_beside_kernel(void)
{
    each_card_order(beside_kernel);
}

static void test_after_copy(void)
{
    each_card_order(after_copy);
}

static void test_after_kernel(void)
{
    each_card_order(after_kernel);
}

static void test_memory_of_kernel(void)
{
    each_card_order(memory_of_kernel);
}

static void test_times_of_copies(void)
{
    each_card_order(times_of_copies);
}

int main(void)
{
    const struct weft_test tests[] = {
        {"test_beside_kernel", test_beside_kernel},
        {"test_after_copy", test_after_copy},
        {"test_after_kernel", test_after_kernel},
        {"test_memory_of_kernel", test_memory_of_kernel},
        {"test_times_of_copies", test_times_of_copies}};
    return gpus_main("codelets/gpu_copies", tests, WEFT_COUNT(tests));
}
#else
int main(void)
{
    printf("skipped: only emulated cards hold what was put on a stream\n");
    return 77;
}
#endif
