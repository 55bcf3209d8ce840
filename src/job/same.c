/* SPDX-License-Identifier: Apache-2.0 */
#include "job/same.h"

#include <string.h>

#include "base/alloc.h"
#include "rt/graph.h"

/* WEFT_EINVAL: names the first line in which the texts differ. Both end in a
 * newline. */
static int compare(const char *mine, const char *first, struct weft_err *err)
{
    for (;;) {
        size_t a = strcspn(mine, "\n"), b = strcspn(first, "\n");
        if (a != b || memcmp(mine, first, a) != 0)
            return weft_err_set(err, WEFT_EINVAL,
                                "here %.*s, but at rank 0 %.*s; all ranks "
                                "must have the same",
                                (int) a, mine, (int) b, first);
        if (!mine[a])
            return 0;
        mine += a + 1;
        first += a + 1;
    }
}

int weft_run_same(const struct weft_string *mine, int rc,
                  struct weft_err *err)
{
    char *first = NULL;
    size_t n = mine->n + 1;
    rc = weft_world_agree(rc, err);
    if (!rc) {
        weft_world_share(&n, sizeof n);
        first = weft_alloc(n, 1);
        if (!first)
            rc = weft_err_nomem(err, "the configuration", n);
        rc = weft_world_agree(rc, err);
    }
    if (!rc) {
        if (weft_world_rank() == 0 && mine->data)
            memcpy(first, mine->data, n);
        weft_world_share(first, n);
        rc = compare(mine->data ? mine->data : "", first, err);
    }
    weft_free(first);
    return rc;
}
