/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/limit.h"

const char *weft_limit_name(int by)
{
    static const char *const name[] = {
        [WEFT_COST_COMPUTE] = "compute",
        [WEFT_COST_MEMORY] = "memory bandwidth",
        [WEFT_COST_MESSAGES] = "messages",
        [WEFT_COST_STARTS] = "task starts",
        [WEFT_LIMIT_WAITING] = "waiting"};
    return name[by];
}

static double sum_of(const struct weft_played_use *use)
{
    return use->busy_s + use->moving_s + use->waiting_s;
}

/* Adds what a task takes; what it takes longer than by itself it waits, for
 * the other members of its group or for a core. */
static void add_task(const struct weft_simulation *s, int64_t task,
                     double by_s[])
{
    struct weft_span span;
    int32_t device;
    double part[WEFT_N_COST_PARTS];
    if (!weft_engine_span(s->engine, task, &span, &device) || device < 0)
        return;
    weft_costs_parts(s->costs, &s->r, task, device, part);
    by_s[WEFT_LIMIT_WAITING] += span.end_s - span.start_s;
    for (int k = 0; k < WEFT_N_COST_PARTS; k++) {
        by_s[k] += part[k];
        by_s[WEFT_LIMIT_WAITING] -= part[k];
    }
}

void weft_limit_find(const struct weft_simulation *s,
                     const struct weft_played *played, struct weft_limit *out)
{
    int32_t shown = weft_played_shown(played), call = 0;
    int32_t iteration = s->how.first + shown;
    const struct weft_played_call *c = played->call + shown * WEFT_MAX_CALLS;
    double by_s[WEFT_LIMIT_WAITING + 1] = {0}, all_s = 0;
    for (int32_t k = 0; k < WEFT_MAX_CALLS; k++) {
        all_s += sum_of(&c[k].use);
        call = sum_of(&c[k].use) > sum_of(&c[call].use) ? k : call;
    }
    for (int64_t i = 0; i < s->r.n_tasks; i++)
        if (s->r.task[i].iteration == iteration && s->r.task[i].call == call)
            add_task(s, i, by_s);
    struct weft_engine_gap gap = weft_engine_gap(s->engine, iteration, call);
    by_s[WEFT_COST_MESSAGES] += gap.moving_s;
    by_s[WEFT_LIMIT_WAITING] += gap.waiting_s;
    out->call = call;
    out->share = all_s > 0 ? sum_of(&c[call].use) / all_s : 0;
    out->by = 0;
    for (int k = 1; k <= WEFT_LIMIT_WAITING; k++)
        out->by = by_s[k] > by_s[out->by] ? k : out->by;
}
