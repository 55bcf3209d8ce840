/* SPDX-License-Identifier: Apache-2.0 */
/* A block of a task is nobody else's while the task lasts, whoever gives it
 * back, and then the next task's of its size. */
#include <pthread.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "harness.h"
#include "rt/internal.h"

enum { N = 3000, N_THREADS = 4, MOST_BYTES = 2 << 11, KEPT_BYTES = 1 << 11 };

static struct weft_rt *rt;
static struct weft_task *block[N];
static size_t more[N]; /* bytes behind the task */

static void get_all(void)
{
    for (int i = 0; i < N; i++) {
        block[i] = weft_block_get(rt, sizeof *block[i] + more[i]);
        REQUIRE(block[i] != NULL);
        CHECK(!block[i]->seq && block[i]->n_access == 0 && !block[i]->next);
        memset(block[i] + 1, i % 256, more[i]);
    }
}

/* Every fourth block, if its bytes are still its own. */
static void *put_some(void *arg)
{
    for (int i = (int) (intptr_t) arg; i < N; i += N_THREADS) {
        const unsigned char *bytes = (void *) (block[i] + 1);
        for (size_t k = 0; k < more[i]; k++)
            if (bytes[k] != i % 256)
                return arg;
        weft_block_put(rt, block[i]);
    }
    return NULL;
}

static void put_all(void)
{
    pthread_t thread[N_THREADS];
    for (intptr_t k = 0; k < N_THREADS; k++) {
        int arg = pthread_create(&thread[k], NULL, put_some, (void *) k);
        REQUIRE(arg == 0);
    }
    for (int k = 0; k < N_THREADS; k++) {
        void *wrong;
        pthread_join(thread[k], &wrong);
        CHECK(wrong == NULL);
    }
}

static int compare(const void *a, const void *b)
{
    const char *x = *(char *const *) a, *y = *(char *const *) b;
    return (x > y) - (x < y);
}

/* The blocks that are kept, by address. */
static int list_kept(struct weft_task **out)
{
    int n = 0;
    for (int i = 0; i < N; i++)
        if (sizeof *block[i] + more[i] <= KEPT_BYTES)
            out[n++] = block[i];
    qsort(out, (size_t) n, sizeof *out, compare);
    return n;
}

static void test_blocks(void)
{
    static struct weft_task *before[N], *after[N];
    rt = weft_alloc(1, sizeof *rt);
    REQUIRE(rt != NULL);
    for (int i = 0; i < N; i++)
        more[i] = (size_t) (MOST_BYTES
                            * weft_rng_uniform(1, WEFT_RNG_SHUFFLE, 0, 0,
                                               (uint32_t) i));
    get_all();
    int n = list_kept(before);
    put_all();
    get_all();
    list_kept(after);
    CHECK(n > N / 4 && n < N);
#ifndef __SANITIZE_ADDRESS__
    CHECK(memcmp(before, after, (size_t) n * sizeof *before) == 0);
#endif
    put_all();
    weft_blocks_free(rt);
    weft_free(rt);
}

WEFT_TESTS("rt/blocks", {"test_blocks", test_blocks})
