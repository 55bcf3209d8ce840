/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/alloc.h"
#include "rt/graph.h"
#include "record/metrics.h"

struct row {
    char tag[WEFT_METRICS_TAG];
    double value;
};

int weft_metrics_share(struct weft_metrics *m, struct weft_err *err)
{
    bool first = weft_world_rank() == 0;
    size_t n = weft_metrics_n(m);
    if (weft_world_size() == 1)
        return 0;
    weft_world_share(&n, sizeof n);
    struct row *row = weft_alloc(n, sizeof *row);
    int rc = row || n == 0 ? 0
                           : weft_err_nomem(err, "metrics", n * sizeof *row);
    rc = weft_world_agree(rc, err);
    for (size_t i = 0; i < n && first && !rc; i++)
        snprintf(row[i].tag, sizeof row[i].tag, "%s",
                 weft_metrics_at(m, i, &row[i].value));
    if (!rc)
        weft_world_share(row, n * sizeof *row);
    if (!rc && !first)
        weft_metrics_clear(m);
    for (size_t i = 0; i < n && !first && !rc; i++)
        weft_metrics_set(m, row[i].tag, row[i].value);
    weft_free(row);
    return rc;
}
