/* SPDX-License-Identifier: Apache-2.0 */
/* Continuous batching on an instance, step by step. */
#include <math.h>

#include "base/alloc.h"
#include "plan/fusion/inside.h"

void weft_overlap_queue(struct weft_overlap_run *run, int32_t s)
{
    struct weft_overlap_instance *in = &run->instance[run->state[s].instance];
    in->queue[in->n_queue++] = s;
}

int weft_overlap_run_init(struct weft_overlap_run *run,
                          const struct weft_overlap_job *job,
                          struct weft_overlapped *out, struct weft_err *err)
{
    size_t n = (size_t) job->n_samples, n_in = (size_t) job->n_instances;
    *out = (struct weft_overlapped){.n_stay = 0};
    *run = (struct weft_overlap_run){.job = job,
                                     .out = out,
                                     .room = job->costs->memory_bytes
                                           / job->costs->token_bytes};
    run->state = weft_alloc(n, sizeof *run->state);
    run->instance = weft_alloc(n_in, sizeof *run->instance);
    run->free_s = weft_alloc(n_in, sizeof *run->free_s);
    /* each sample may come to an instance twice: at first, and moved */
    run->number = weft_alloc(n_in * n, 3 * sizeof *run->number);
    if (!run->state || !run->instance || !run->free_s || !run->number) {
        weft_overlap_run_release(run);
        return weft_err_nomem(err, "a simulation", n_in * n * 12);
    }
    for (size_t i = 0; i < n_in; i++) {
        run->free_s[i] = -1;
        run->instance[i].slots = job->slots;
        run->instance[i].active = run->number + 3 * n * i;
        run->instance[i].queue = run->instance[i].active + n;
    }
    for (int32_t s = 0; s < job->n_samples; s++) {
        run->state[s] = (struct weft_overlap_state){
            .instance = job->sample[s].instance, .end_s = -1};
        weft_overlap_queue(run, s);
    }
    return 0;
}

void weft_overlap_run_release(struct weft_overlap_run *run)
{
    weft_free(run->state);
    weft_free(run->instance);
    weft_free(run->free_s);
    weft_free(run->number);
    *run = (struct weft_overlap_run){.job = NULL};
}

static int32_t tokens_of(const struct weft_overlap_run *run, int32_t s)
{
    return run->job->sample[s].prompt + run->state[s].has;
}

static void set_cached(struct weft_overlap_run *run,
                       struct weft_overlap_instance *in, int32_t s, int32_t n)
{
    in->held += n - run->state[s].cached;
    run->state[s].cached = n;
}

/* Gives samples of the queue their slots. Where a cache that has come with one
 * does not fit, it is put off in the next step. */
static void admit(struct weft_overlap_run *run,
                  struct weft_overlap_instance *in)
{
    while (in->head < in->n_queue
           && (in->slots == 0 || in->n_active < in->slots)) {
        int32_t s = in->queue[in->head];
        if (run->state[s].ready_s > in->now_s)
            break;
        in->head++;
        in->active[in->n_active++] = s;
        in->held += run->state[s].cached;
    }
}

/* Finds room for n more tokens of the active sample number k by putting off
 * those that began after it, the last one first. Where that is not enough it is
 * put off itself. */
static bool extend(struct weft_overlap_run *run,
                   struct weft_overlap_instance *in, int32_t k, int32_t n)
{
    int32_t last = in->n_active;
    while (in->held + n > run->room) {
        while (--last > k && run->state[in->active[last]].cached == 0)
            continue;
        run->out->n_put_off += run->state[in->active[last]].cached > 0;
        set_cached(run, in, in->active[last], 0);
        if (last == k)
            return false;
    }
    set_cached(run, in, in->active[k], run->state[in->active[k]].cached + n);
    return true;
}

/* Chooses a step's rows, for which it makes room. A sample of which nothing is
 * cached starts when there is room for all of it, and not before those that
 * began earlier. Each sample that gets a token has it. */
static struct weft_work_rows plan_rows(struct weft_overlap_run *run,
                                       struct weft_overlap_instance *in)
{
    const struct weft_migrate_costs *c = run->job->costs;
    struct weft_work_rows rows = {.n_rows = 0};
    int32_t budget = c->read_rows > 0 ? c->read_rows : INT32_MAX;
    bool waits = false;
    for (int32_t k = 0; k < in->n_active; k++) {
        struct weft_overlap_state *at = &run->state[in->active[k]];
        int32_t cached = at->cached, all = tokens_of(run, in->active[k]);
        int32_t rest = all - cached;
        int32_t n = rest == 1 ? 1 : weft_min32(rest, budget);
        if (cached == 0)
            waits = waits || in->held + all + 1 > run->room;
        if ((cached == 0 && waits) || n == 0)
            continue;
        if (!extend(run, in, k, n)) {
            waits = true;
            continue;
        }
        budget -= rest > 1 ? n : 0;
        weft_work_rows_add(&rows, cached, n);
        rows.n_targets += n == rest;
        at->has += n == rest;
    }
    return rows;
}

static void step(struct weft_overlap_run *run,
                 struct weft_overlap_instance *in)
{
    const struct weft_migrate_costs *c = run->job->costs;
    struct weft_work_rows rows = plan_rows(run, in);
    int32_t n = 0;
    weft_assert(rows.n_rows > 0); /* the first goes on */
    in->now_s += c->step_s(c->ctx, &rows);
    for (int32_t k = 0; k < in->n_active; k++) {
        int32_t s = in->active[k];
        if (run->state[s].has < run->job->sample[s].length) {
            in->active[n++] = s;
            continue;
        }
        run->state[s].end_s = in->now_s;
        set_cached(run, in, s, 0);
    }
    in->n_active = n;
}

void weft_overlap_generate(struct weft_overlap_run *run, int32_t instance,
                           double stop_s)
{
    struct weft_overlap_instance *in = &run->instance[instance];
    while (in->now_s < stop_s && (in->n_active || in->head < in->n_queue)) {
        if (in->n_active == 0) {
            double ready_s = run->state[in->queue[in->head]].ready_s;
            in->now_s = fmax(in->now_s, fmin(ready_s, stop_s));
            if (ready_s >= stop_s)
                return;
        }
        admit(run, in);
        step(run, in);
    }
}
