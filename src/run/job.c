/* SPDX-License-Identifier: Apache-2.0 */
#include "run/job.h"

#include "rt/graph.h"

int weft_job_open(struct weft_err *err)
{
    return weft_world_open(err);
}

void weft_job_close(void)
{
    weft_world_close();
}

bool weft_job_is_first(void)
{
    return weft_world_rank() == 0;
}

int weft_job_size(void)
{
    return weft_world_size();
}

int weft_job_agree(int rc, struct weft_err *err)
{
    return weft_world_agree(rc, err);
}

int weft_job_max(int mine)
{
    return (int) weft_world_max(mine);
}
