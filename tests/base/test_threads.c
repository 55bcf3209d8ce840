/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include <sched.h>
#include <stdatomic.h>

#include "base/threads.h"

enum { MOST = 1000 };

struct done {
    atomic_int part[MOST + 1]; /* how often each was done */
    atomic_int n_inside, most_inside;
};

static void part(void *ctx, int64_t i)
{
    struct done *d = ctx;
    int inside = atomic_fetch_add(&d->n_inside, 1) + 1;
    int most = atomic_load(&d->most_inside);
    while (inside > most
           && !atomic_compare_exchange_weak(&d->most_inside, &most, inside))
        ;
    for (int k = 0; k < 10; k++)
        sched_yield(); /* so that others come in, too */
    atomic_fetch_add(&d->part[i], 1);
    atomic_fetch_sub(&d->n_inside, 1);
}

/* Each part once and no other, by no more threads than may be, whatever their
 * number. */
static void test_threads_run(void)
{
    static const int32_t n_threads[] = {-1, 0, 1, 2, 7, 2000};
    static const int64_t n_parts[] = {0, 1, 5, MOST};
    for (size_t t = 0; t < WEFT_COUNT(n_threads); t++)
        for (size_t k = 0; k < WEFT_COUNT(n_parts); k++) {
            static struct done d;
            memset(&d, 0, sizeof d);
            weft_threads_run(n_threads[t], n_parts[k], part, &d);
            for (int64_t i = 0; i <= MOST; i++)
                CHECK_INT(d.part[i], i < n_parts[k]);
            CHECK_INT(d.n_inside, 0);
            CHECK(d.most_inside <= weft_max32(n_threads[t], 1));
        }
}

static void wait_for_others(void *ctx, int64_t i)
{
    atomic_int *n = ctx;
    (void) i;
    atomic_fetch_add(n, 1);
    while (atomic_load(n) < 3)
        ;
}

/* Parts that wait for one another end, as each has a thread. */
static void test_threads_together(void)
{
    atomic_int n = 0;
    weft_threads_run(3, 3, wait_for_others, &n);
    CHECK_INT(n, 3);
}

static void test_threads_usable(void)
{
    CHECK(weft_threads_usable() >= 1);
}

WEFT_TESTS("base/threads", {"run", test_threads_run},
           {"together", test_threads_together},
           {"usable", test_threads_usable})
