/* SPDX-License-Identifier: Apache-2.0 */
/* Work in processes of its own: computations that do not need one another, on
 * all cores. Only for programs that have one thread so far. */
#ifndef WEFT_BASE_CHILDREN_H
#define WEFT_BASE_CHILDREN_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct weft_children {
    int32_t n;
    int32_t at_once; /* 1: no process is started */
    /* Does number i. Of what it writes only what lies in memory of
     * weft_children_alloc() reaches the caller. */
    int (*one)(void *ctx, int32_t i, struct weft_err *err);
    void *ctx;
    /* told how many are done, as they are; NULL: nobody */
    void (*progress)(int32_t done, int32_t of);
};

/* Zeroed memory that children share with the caller; NULL: memory is out. */
void *weft_children_alloc(size_t n, size_t size);
void weft_children_free(void *p, size_t n, size_t size); /* NULL is allowed */

/* Does all of them, whichever fail. Errors: that of the lowest number which
 * failed; WEFT_EINTERNAL where a process ended by itself. */
int weft_children_run(const struct weft_children *c, struct weft_err *err);

#endif
