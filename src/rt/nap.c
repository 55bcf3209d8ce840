/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting without spinning: for loops that poll, and for idle workers under
 * StarPU's own policy "prio". */
#include <string.h>
#include <time.h>

#include "rt/internal.h"

/* Number of polls before the first nap, and between two naps. */
enum { POLLS = 64, POLLS_BETWEEN = 16 };

static void sleep_us(int us)
{
    struct timespec t = {0, (long) us * 1000};
    nanosleep(&t, NULL);
}

static int longer(int us)
{
    return us * 2 < WEFT_NAP_LAST_US ? us * 2 : WEFT_NAP_LAST_US;
}

void weft_nap(struct weft_nap *nap)
{
    if (nap->n_polls < POLLS) {
        nap->n_polls++;
        return;
    }
    nap->n_polls -= POLLS_BETWEEN;
    nap->us = nap->us ? longer(nap->us) : WEFT_NAP_FIRST_US;
    sleep_us(nap->us);
}

static struct starpu_sched_policy napping;
static struct starpu_task *(*pop_awake)(unsigned sched_ctx_id);
/* each is used by its own worker alone */
static int nap_us[STARPU_NMAXWORKERS];

static struct starpu_task *pop_napping(unsigned sched_ctx_id)
{
    struct starpu_task *task = pop_awake(sched_ctx_id);
    int *us = &nap_us[starpu_worker_get_id_check()];
    if (task) {
        *us = WEFT_NAP_FIRST_US;
        return task;
    }
    starpu_worker_relax_on();
    sleep_us(*us);
    starpu_worker_relax_off();
    *us = longer(*us);
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
            nap_us[i] = WEFT_NAP_FIRST_US;
        return &napping;
    }
    return NULL;
}
