/* SPDX-License-Identifier: Apache-2.0 */
#include "base/children.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

void *weft_children_alloc(size_t n, size_t size)
{
    if (size > 0 && n > (SIZE_MAX - 1) / size)
        return NULL;
    void *p = mmap(NULL, n * size + 1, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void weft_children_free(void *p, size_t n, size_t size)
{
    if (p)
        munmap(p, n * size + 1);
}

/* Of each number: what came of it. */
struct outcome {
    struct weft_err err;
    int rc;
    bool done;
};

static void do_one(const struct weft_children *c, int32_t i,
                   struct outcome *out)
{
    out->rc = c->one(c->ctx, i, &out->err);
    out->done = true;
}

static void run(const struct weft_children *c, struct outcome *outcome)
{
    int32_t running = 0, next = 0;
    for (int32_t done = 0; done < c->n;) {
        pid_t child = -1;
        if (next < c->n && running < c->at_once && c->at_once > 1) {
            fflush(NULL);
            child = fork();
        }
        if (child == 0) {
            do_one(c, next, &outcome[next]);
            fflush(NULL);
            _exit(0);
        }
        if (child > 0) {
            running++;
            next++;
            continue;
        }
        if (running > 0 && waitpid(-1, NULL, 0) > 0) {
            running--;
        } else if (next < c->n) { /* no process can be had */
            do_one(c, next, &outcome[next]);
            next++;
        }
        done++;
        if (c->progress)
            c->progress(done, c->n);
    }
}

int weft_children_run(const struct weft_children *c, struct weft_err *err)
{
    size_t n = (size_t) c->n;
    struct outcome *outcome = weft_children_alloc(n, sizeof *outcome);
    if (!outcome)
        return weft_err_nomem(err, "processes", n * sizeof *outcome);
    run(c, outcome);
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        rc = outcome[i].rc;
        if (!outcome[i].done)
            rc = weft_err_set(
                err, WEFT_EINTERNAL,
                "a process ended by itself (number %zu of %zu); "
                "memory may have been out",
                i + 1, n);
        else if (rc && err)
            *err = outcome[i].err;
    }
    weft_children_free(outcome, n, sizeof *outcome);
    return rc;
}
