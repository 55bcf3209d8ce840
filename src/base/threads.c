/* SPDX-License-Identifier: Apache-2.0 */
#include "base/threads.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/topology.h"

enum { MOST_THREADS = 256 };

int32_t weft_threads_usable(void)
{
    struct weft_topology machine;
    return weft_topology_read(&machine, NULL) == 0 ? machine.n_usable : 1;
}

struct work {
    int64_t n;
    void (*part)(void *ctx, int64_t i);
    void *ctx;
    atomic_llong next;
};

static void *work(void *arg)
{
    struct work *w = arg;
    int64_t i;
    while ((i = atomic_fetch_add(&w->next, 1)) < w->n)
        w->part(w->ctx, i);
    return NULL;
}

void weft_threads_run(int32_t n_threads, int64_t n,
                      void (*part)(void *ctx, int64_t i), void *ctx)
{
    struct work w = {.n = n, .part = part, .ctx = ctx};
    pthread_t thread[MOST_THREADS];
    int32_t more = 0;
    atomic_init(&w.next, 0);
    while (more + 1 < n_threads && more + 1 < n && more < MOST_THREADS
           && pthread_create(&thread[more], NULL, work, &w) == 0)
        more++;
    work(&w);
    while (more > 0)
        pthread_join(thread[--more], NULL);
}
