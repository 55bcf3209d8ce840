/* SPDX-License-Identifier: Apache-2.0 */
/* StarPU's own policy "prio", but for idle workers that sleep. */
#include <string.h>
#include <time.h>

#include "rt/internal.h"

enum { NAP_FIRST_US = 20, NAP_LAST_US = 1000 };

static struct starpu_sched_policy napping;
static struct starpu_task *(*pop_awake)(unsigned sched_ctx_id);
static int nap_us[STARPU_NMAXWORKERS]; /* each the worker's own */

static struct starpu_task *pop_napping(unsigned sched_ctx_id)
{
    struct starpu_task *task = pop_awake(sched_ctx_id);
    int *us = &nap_us[starpu_worker_get_id_check()];
    if (task) {
        *us = NAP_FIRST_US;
        return task;
    }
    struct timespec t = {0, (long) *us * 1000};
    starpu_worker_relax_on();
    nanosleep(&t, NULL);
    starpu_worker_relax_off();
    *us = *us * 2 < NAP_LAST_US ? *us * 2 : NAP_LAST_US;
    return pop_awake(sched_ctx_id);
}

struct starpu_sched_policy *weft_nap_policy(const char *name)
{
    struct starpu_sched_policy **all = starpu_sched_get_predefined_policies();
    for (; *all; all++) {
        if (strcmp((*all)->policy_name, name) != 0 || !(*all)->pop_task)
            continue;
        napping = **all;
        pop_awake = napping.pop_task;
        napping.pop_task = pop_napping;
        for (int i = 0; i < STARPU_NMAXWORKERS; i++)
            nap_us[i] = NAP_FIRST_US;
        return &napping;
    }
    return NULL;
}
