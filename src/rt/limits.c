/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the limits that a shell or a batch system may have set. StarPU aborts
 * when it gets no thread or no memory, so both are tried before it starts.
 */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "rt/internal.h"
#include "rt/environment.h"

enum {
    STACK_BYTES =
        /* stack of a thread: kernels keep small arrays there */
    256 << 10,
    START_BYTES = 64 << 20, /* address space that StarPU needs to start */
    /* threads of Weft, StarPU and MPI beside the devices' */
    OTHER_THREADS = 4
};

static void *wait_for(void *mutex)
{
    pthread_mutex_lock(mutex);
    pthread_mutex_unlock(mutex);
    return NULL;
}

/* Starts n threads that all exist at the same time, and ends them. Returns
 * errno, or 0. */
static int try_threads(int n)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *thread = weft_alloc((size_t) n, sizeof *thread);
    int why = thread ? 0 : ENOMEM, started = 0;
    pthread_mutex_lock(&mutex);
    for (; started < n && !why; started += !why)
        why = pthread_create(&thread[started], NULL, wait_for, &mutex);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    weft_free(thread);
    return why;
}

static size_t stack_bytes(void)
{
    pthread_attr_t attr;
    size_t bytes = 0;
    pthread_attr_init(&attr);
    pthread_attr_getstacksize(&attr, &bytes);
    pthread_attr_destroy(&attr);
    return bytes;
}

int weft_limits_check(int n_devices, struct weft_err *err)
{
    int n = n_devices + OTHER_THREADS;
    if (stack_bytes() < STACK_BYTES)
        return weft_err_set(err, WEFT_EUNSUPPORTED,
                            "threads have a stack of %zu KiB here, and need "
                            "%d; raise ulimit -s",
                            stack_bytes() >> 10, STACK_BYTES >> 10);
    void *space = mmap(NULL, START_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED)
        return weft_err_set(err, WEFT_ENOMEM,
                            "cannot start: %d MiB of address space are not "
                            "left; raise ulimit -v",
                            START_BYTES >> 20);
    int why = try_threads(n);
    munmap(space, START_BYTES);
    return why ? weft_err_set(err, WEFT_ENOMEM,
                              "cannot start %d threads for %d devices: %s; "
                              "raise ulimit -u or ulimit -v, or the "
                              "container's number of processes",
                              n, n_devices, strerror(why))
               : 0;
}
