/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a body and checks that it keeps to the modes of its accesses. */
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "rt/internal.h"

/* Whether two accesses share memory: a tile may come twice, or together with
 * its parts. */
static bool overlap(const struct weft_task *t, int i, int k)
{
    const char *a = t->buf[i], *b = t->buf[k];
    return a < b + t->access[k].tile->bytes
        && b < a + t->access[i].tile->bytes;
}

/* Whether no access with another mode shares memory with this one. */
static bool is_alone(const struct weft_task *t, int i)
{
    for (int k = 0; k < t->n_access; k++)
        if (t->access[k].mode != t->access[i].mode && overlap(t, i, k))
            return false;
    return true;
}

int weft_task_run_checked(struct weft_task *t, struct weft_exec *x)
{
    char label[160];
    size_t n = (size_t) t->n_access;
    uint64_t *before = weft_alloc(n, sizeof *before);
    if (!before)
        return weft_err_nomem(&x->err, "checking modes", n * sizeof *before);
    for (size_t i = 0; i < n; i++) {
        enum weft_mode mode = t->access[i].mode;
        size_t bytes = t->access[i].tile->bytes;
        if (mode == WEFT_READ)
            before[i] = weft_hash64(t->buf[i], bytes);
        else if (mode == WEFT_WRITE && is_alone(t, (int) i))
            /* floating-point numbers become NaN */
            memset(t->buf[i], 0xff, bytes);
    }
    int rc = t->codelet->cpu(t->args, t->buf, t->n_access, x);
    for (size_t i = 0; i < n && !rc; i++) {
        const struct weft_tile *tile = t->access[i].tile;
        if (t->access[i].mode != WEFT_READ || !is_alone(t, (int) i)
            || weft_hash64(t->buf[i], tile->bytes) == before[i])
            continue;
        weft_tile_label(tile, label, sizeof label);
        rc = weft_err_set(&x->err, WEFT_EINTERNAL,
                          "writes '%s', which it was given to read", label);
    }
    weft_free(before);
    return rc;
}
