/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/engine/played.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

enum { READS = 0 };

void weft_played_release(struct weft_played *p)
{
    weft_free(p->iteration);
    weft_free(p->call);
    weft_free(p->device);
    *p = (struct weft_played){.engine = NULL};
}

const char *weft_played_name(const struct weft_played *p, int32_t call)
{
    return call > 0 && call < p->flow->n_calls ? p->flow->call[call].name
                                               : "other";
}

static void widen(struct weft_span *all, struct weft_span one)
{
    if (all->end_s == 0 || one.start_s < all->start_s)
        all->start_s = one.start_s;
    if (one.end_s > all->end_s)
        all->end_s = one.end_s;
}

/* Whether a task brings data from another place. */
static bool moves(const struct weft_recording *r,
                  const struct weft_rec_task *t)
{
    bool far = false;
    for (int64_t a = t->access; a < t->access + t->n_access && !far; a++)
        far = r->tile[r->access[a].tile].place != t->place;
    return far;
}

static void add_use(struct weft_played_use *use, bool moving, double s)
{
    *(moving ? &use->moving_s : &use->busy_s) += s;
}

static void add_task(struct weft_played *p, int64_t task, int32_t first)
{
    const struct weft_rec_task *t = &p->r->task[task];
    struct weft_span span;
    int32_t device;
    if (!weft_engine_span(p->engine, task, &span, &device))
        return;
    double s = span.end_s - span.start_s;
    bool moving = device >= 0 && moves(p->r, t);
    if (device >= 0)
        add_use(&p->device[device], moving, s);
    int32_t i = t->iteration - first;
    if (i < 0 || i >= p->n)
        return;
    struct weft_played_call *call = &p->call[i * WEFT_MAX_CALLS + t->call];
    widen(&p->iteration[i], span);
    widen(&call->span, span);
    if (device < 0)
        return;
    call->ran_s += s;
    call->moment_s += s * (span.start_s + span.end_s) / 2;
    add_use(&call->use, moving, s);
}

/* What devices did before tasks of calls began. */
static void add_gaps(struct weft_played *p, int32_t first)
{
    for (int32_t i = 0; i < p->n && p->job->n_iterations > 0; i++)
        for (int32_t c = 0; c < WEFT_MAX_CALLS; c++) {
            struct weft_engine_gap gap = weft_engine_gap(p->engine, first + i,
                                                         c);
            struct weft_played_use *use =
                &p->call[i * WEFT_MAX_CALLS + c].use;
            use->moving_s += gap.moving_s;
            use->waiting_s += gap.waiting_s;
        }
}

static void add_waited(struct weft_played *p, int32_t first)
{
    int64_t n;
    const struct weft_engine_waited *w = weft_engine_waited(p->engine, &n);
    for (int64_t k = 0; k < n; k++) {
        const struct weft_rec_task *t = &p->r->task[w[k].task];
        int32_t i = t->iteration - first;
        if (i >= 0 && i < p->n)
            p->call[i * WEFT_MAX_CALLS + t->call].waited_s += w[k].s;
    }
}

/* The call by which iterations are timed: the first that trains. -1: none. */
static int32_t timing_call(const struct weft_dataflow *flow)
{
    for (int32_t c = 1; c < flow->n_calls; c++)
        if (weft_flow_trains(flow, c))
            return c;
    return -1;
}

/* When a call of an iteration was at work, in the mean over its work. */
static double centre_s(const struct weft_played *p, int32_t i, int32_t call)
{
    const struct weft_played_call *c = &p->call[i * WEFT_MAX_CALLS + call];
    return c->ran_s > 0 ? c->moment_s / c->ran_s : 0;
}

/* Iterations follow one another as the policy's training does. Its first task
 * may begin, and its last one end, far from the others, so that the mean time
 * of its work counts. The first iteration has nothing before it, so it counts
 * from the second one on. Nothing of a next iteration delays the last one's
 * training; with staleness it does, and the last one is left out. Without
 * training iterations follow one another as they start. No period is shorter
 * than a device's work. */
static double steady_s(const struct weft_played *p)
{
    int32_t from = p->n > 2, last = p->n - 1, c = timing_call(p->flow);
    if (p->n == 1)
        return p->iteration[0].end_s;
    double s = (p->iteration[last].start_s - p->iteration[from].start_s)
             / (last - from);
    if (p->flow->staleness && p->n > 2) {
        from = 0;
        last--;
    }
    if (c >= 0 && centre_s(p, from, c) > 0)
        s = (centre_s(p, last, c) - centre_s(p, from, c)) / (last - from);
    for (int32_t d = 0; d < p->job->n_devices; d++) {
        double work_s = (p->device[d].busy_s + p->device[d].moving_s) / p->n;
        s = work_s > s ? work_s : s;
    }
    return s;
}

static void sum_up(struct weft_played *p)
{
    p->steady_s = steady_s(p);
    for (int32_t d = 0; d < p->job->n_devices; d++) {
        struct weft_played_use *device = &p->device[d];
        device->moving_s += weft_engine_use(p->engine, d).moving_s;
        device->waiting_s = p->end_s - device->busy_s - device->moving_s;
    }
}

int weft_played_create(const struct weft_engine *engine,
                       const struct weft_recording *r,
                       const struct weft_engine_job *job,
                       const struct weft_dataflow *flow, int32_t first,
                       int32_t n, struct weft_played *out,
                       struct weft_err *err)
{
    size_t devices = (size_t) job->n_devices;
    struct weft_played p = {
        .engine = engine,
        .r = r,
        .job = job,
        .flow = flow,
        .n = n,
        .iteration = weft_alloc((size_t) n, sizeof *p.iteration),
        .call = weft_alloc((size_t) n * WEFT_MAX_CALLS, sizeof *p.call),
        .device = weft_alloc(devices, sizeof *p.device),
        .end_s = weft_engine_now_s(engine)};
    if (!p.iteration || !p.call || !p.device) {
        weft_played_release(&p);
        return weft_err_nomem(err, "what was played",
                              devices * sizeof *p.device);
    }
    for (int64_t i = 0; i < r->n_tasks; i++)
        add_task(&p, i, first);
    add_gaps(&p, first);
    add_waited(&p, first);
    sum_up(&p);
    *out = p;
    return 0;
}

double weft_played_gen_infer_s(const struct weft_played *p)
{
    struct weft_span all = {INFINITY, 0};
    for (int32_t i = 1; i < p->flow->n_calls; i++) {
        const struct weft_span *span =
            &p->call[weft_played_shown(p) * WEFT_MAX_CALLS + i].span;
        enum weft_call_kind kind = p->flow->call[i].kind;
        if (span->end_s <= 0 || (kind != WEFT_GENERATE && kind != WEFT_INFER))
            continue;
        all.start_s = fmin(all.start_s, span->start_s);
        all.end_s = fmax(all.end_s, span->end_s);
    }
    return all.end_s - all.start_s;
}

int32_t weft_played_fullest(const struct weft_played *p)
{
    int32_t most = 0;
    for (int32_t k = 1; k < p->job->n_places; k++)
        if (weft_engine_memory(p->engine, k)[WEFT_MEM_ALL]
            > weft_engine_memory(p->engine, most)[WEFT_MEM_ALL])
            most = k;
    return most;
}

int32_t weft_played_first_device(const struct weft_played *p, int32_t place)
{
    int32_t d = 0;
    while (d + 1 < p->job->n_devices && p->job->place_of[d] != place)
        d++;
    return d;
}

double weft_played_waited_s(const struct weft_played *p)
{
    double s = 0;
    for (int32_t c = 0; c < WEFT_MAX_CALLS; c++)
        s += p->call[weft_played_shown(p) * WEFT_MAX_CALLS + c].waited_s;
    return s / p->job->n_devices;
}
