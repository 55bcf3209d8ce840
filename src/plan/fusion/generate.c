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
    run->prompt = weft_alloc(n_in * (n + 1), sizeof *run->prompt);
    if (!run->state || !run->instance || !run->free_s || !run->number
        || !run->prompt) {
        weft_overlap_run_release(run);
        return weft_err_nomem(err, "a simulation", n_in * n * 24);
    }
    for (size_t i = 0; i < n_in; i++) {
        run->free_s[i] = -1;
        run->instance[i].slots = job->slots;
        run->instance[i].active = run->number + 3 * n * i;
        run->instance[i].queue = run->instance[i].active + n;
        run->instance[i].prompt = run->prompt + i * (n + 1);
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
    weft_free(run->prompt);
    *run = (struct weft_overlap_run){.job = NULL};
}

static int32_t tokens_of(const struct weft_overlap_run *run, int32_t s)
{
    return run->job->sample[s].prompt + run->state[s].has;
}

/* Frees what is cached of a sample, but for what others have of it, too. */
static void drop(struct weft_overlap_run *run,
                 struct weft_overlap_instance *in, int32_t s)
{
    struct weft_overlap_state *at = &run->state[s];
    struct weft_overlap_prompt *p = &in->prompt[run->job->sample[s].shared];
    in->held -= at->cached - at->common;
    if (at->common > 0 && --p->n_uses == 0)
        in->held -= p->held;
    at->cached = at->ready = at->common = 0;
}

/* The same of one that has ended, whose prompt may be of use later. */
static void end(struct weft_overlap_run *run,
                struct weft_overlap_instance *in, int32_t s)
{
    const struct weft_overlap_sample *sample = &run->job->sample[s];
    int32_t *kept = &in->prompt[sample->shared].kept;
    *kept = weft_max32(*kept,
                       weft_min32(sample->prompt, run->state[s].ready));
    run->state[s].end_s = in->now_s;
    drop(run, in, s);
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

/* How many tokens of its prompt the active sample number k, of which nothing is
 * cached, can take from others. *from_out: from which sample; -1: from one that
 * has ended. -1 while one before it has the prompt still to read. */
static int32_t find_common(const struct weft_overlap_run *run,
                           const struct weft_overlap_instance *in, int32_t k,
                           int32_t *from_out)
{
    const struct weft_overlap_sample *sample = run->job->sample;
    int32_t s = in->active[k], shared = sample[s].shared, best = 0;
    int32_t most = weft_min32(sample[s].prompt, tokens_of(run, s) - 1);
    bool comes = false;
    *from_out = -1;
    for (int32_t i = 0; i < in->n_active && shared > 0; i++) {
        int32_t other = in->active[i];
        int32_t n = weft_min32(run->state[other].ready, most);
        if (i == k || sample[other].shared != shared)
            continue;
        comes = comes || i < k;
        if (n > best) {
            best = n;
            *from_out = other;
        }
    }
    if (shared > 0 && weft_min32(in->prompt[shared].kept, most) > best) {
        best = weft_min32(in->prompt[shared].kept, most);
        *from_out = -1;
    }
    return comes && best < most ? -1 : best;
}

static void take_common(struct weft_overlap_run *run,
                        struct weft_overlap_instance *in, int32_t s,
                        int32_t from, int32_t n)
{
    struct weft_overlap_prompt *p = &in->prompt[run->job->sample[s].shared];
    if (p->n_uses == 0) {
        p->held = n;
        in->held += from < 0 ? n : 0;
    }
    if (p->n_uses == 0 && from >= 0) {
        run->state[from].common = n;
        p->n_uses++;
    }
    p->n_uses++;
    run->state[s].common = weft_min32(n, p->held);
    run->state[s].cached = n;
    in->held += n - run->state[s].common;
}

/* Whether the active sample number k, of which nothing is cached, begins in
 * this step: none that began earlier waits for room, there is room for all of
 * it, and its prompt is not just being read. */
static bool start(struct weft_overlap_run *run,
                  struct weft_overlap_instance *in, int32_t k, bool *waits)
{
    int32_t s = in->active[k], from;
    int32_t n = find_common(run, in, k, &from);
    if (*waits || n < 0)
        return false;
    double more = tokens_of(run, s) + 1.0 - (from < 0 ? 0 : n);
    *waits = in->held + more > run->room;
    if (!*waits && n > 0)
        take_common(run, in, s, from, n);
    return !*waits;
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
        drop(run, in, in->active[last]);
        if (last == k)
            return false;
    }
    run->state[in->active[k]].cached += n;
    in->held += n;
    return true;
}

/* Chooses a step's rows, for which it makes room. Each sample that gets a token
 * has it. */
static struct weft_work_rows plan_rows(struct weft_overlap_run *run,
                                       struct weft_overlap_instance *in)
{
    const struct weft_migrate_costs *c = run->job->costs;
    struct weft_work_rows rows = {.n_rows = 0};
    int32_t budget = c->read_rows > 0 ? c->read_rows : INT32_MAX;
    bool waits = false;
    for (int32_t k = 0; k < in->n_active; k++)
        run->state[in->active[k]].ready = run->state[in->active[k]].cached;
    for (int32_t k = 0; k < in->n_active; k++) {
        struct weft_overlap_state *at = &run->state[in->active[k]];
        if (at->cached == 0 && !start(run, in, k, &waits))
            continue;
        int32_t cached = at->cached;
        int32_t rest = tokens_of(run, in->active[k]) - cached;
        int32_t n = rest == 1 ? 1 : weft_min32(rest, budget);
        if (n == 0)
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
        end(run, in, s);
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
