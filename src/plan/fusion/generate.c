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
    *run = (struct weft_overlap_run){.job = job, .out = out};
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
            .instance = job->sample[s].instance, .end_s = -1, .reads = true};
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

static double tokens_of(const struct weft_overlap_run *run, int32_t s)
{
    return (double) run->job->sample[s].prompt + run->state[s].has;
}

static double room_of(const struct weft_overlap_run *run)
{
    const struct weft_migrate_costs *c = run->job->costs;
    return c->memory_bytes / c->token_bytes;
}

/* Begins samples of the queue. The first step of each needs room, too. */
static void admit(struct weft_overlap_run *run,
                  struct weft_overlap_instance *in)
{
    const struct weft_migrate_costs *c = run->job->costs;
    double room = room_of(run), read = 0;
    int32_t n_read = 0;
    while (in->head < in->n_queue) {
        int32_t s = in->queue[in->head];
        double tokens = tokens_of(run, s);
        bool fits = (in->slots == 0 || in->n_active < in->slots)
                 && in->held + tokens + in->n_active + 1 <= room;
        if (run->state[s].ready_s > in->now_s || (in->n_active > 0 && !fits))
            break;
        in->head++;
        in->active[in->n_active++] = s;
        in->held += tokens;
        read += run->state[s].reads ? tokens : 0;
        n_read += run->state[s].reads;
        run->state[s].reads = false;
    }
    if (n_read > 0)
        in->now_s += c->prefill_s(c->ctx, n_read, read);
}

/* Puts off the samples begun last until the next step has room. They cannot
 * begin again before another has ended, as those that run grow. */
static void make_room(struct weft_overlap_run *run,
                      struct weft_overlap_instance *in)
{
    double room = room_of(run);
    while (in->n_active > 1 && in->held + in->n_active > room) {
        int32_t s = in->active[--in->n_active];
        in->held -= tokens_of(run, s);
        run->state[s].reads = true;
        in->queue[--in->head] = s;
        run->out->n_put_off++;
    }
}

static void step(struct weft_overlap_run *run,
                 struct weft_overlap_instance *in)
{
    const struct weft_migrate_costs *c = run->job->costs;
    int32_t n = 0;
    in->held += in->n_active;
    in->now_s += c->step_s(c->ctx, in->n_active, in->held);
    for (int32_t k = 0; k < in->n_active; k++) {
        int32_t s = in->active[k];
        if (++run->state[s].has < run->job->sample[s].length) {
            in->active[n++] = s;
            continue;
        }
        run->state[s].end_s = in->now_s;
        in->held -= tokens_of(run, s);
    }
    in->n_active = n;
}

void weft_overlap_generate(struct weft_overlap_run *run, int32_t instance,
                           double stop_s)
{
    struct weft_overlap_instance *in = &run->instance[instance];
    while (in->now_s < stop_s && (in->n_active || in->head < in->n_queue)) {
        if (in->n_active == 0)
            in->now_s = fmax(in->now_s,
                             run->state[in->queue[in->head]].ready_s);
        admit(run, in);
        make_room(run, in);
        step(run, in);
    }
}
