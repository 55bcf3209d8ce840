/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/play.h"

#include "base/alloc.h"
#include "codelets/codelets.h"
#include "lm/context.h"

struct play {
    const struct weft_schedule_problem *problem;
    struct weft_schedule *schedule;
    double unit_s;
    struct weft_context *context;
    struct weft_tile **span; /* by id_of() */
    size_t n;                /* ids */
};

enum { PASSES = 3 };

/* Number of subtasks of the first n models, as if all had passes for
 * weights. */
static size_t n_ids(const struct weft_schedule_problem *problem, int32_t n)
{
    size_t ids = 0;
    for (int32_t m = 0; m < n; m++) {
        const struct weft_schedule_model *model = &problem->model[m];
        ids += (size_t) problem->mini_batches * (size_t) model->pipelines
             * (size_t) model->micro_batches * (size_t) model->stages
             * PASSES;
    }
    return ids;
}

static size_t id_of(const struct play *p, const struct weft_subtask *k)
{
    const struct weft_schedule_model *model = &p->problem->model[k->model];
    size_t at = (size_t) k->mini_batch;
    at = at * (size_t) model->pipelines + (size_t) k->pipeline;
    at = at * (size_t) model->micro_batches + (size_t) k->micro_batch;
    at = at * (size_t) model->stages + (size_t) k->stage;
    return n_ids(p->problem, k->model) + at * PASSES + (size_t) k->pass;
}

/* The subtasks that must end before k starts, besides its device's
 * predecessor. */
static int32_t before_of(const struct play *p, const struct weft_subtask *k,
                         struct weft_subtask out[WEFT_EMULATE_BEFORE])
{
    const struct weft_schedule_model *m = &p->problem->model[k->model];
    int32_t n = 0;
    struct weft_subtask one = *k;
    bool forward = k->pass == WEFT_PASS_FORWARD;
    if (k->pass == WEFT_PASS_WEIGHT) {
        one.pass = WEFT_PASS_BACKWARD;
        out[n++] = one;
    } else if (forward && k->stage > 0) {
        one.stage--;
        out[n++] = one;
    } else if (!forward && k->stage + 1 < m->stages) {
        one.stage++;
        out[n++] = one;
    } else if (!forward) {
        one.pass = WEFT_PASS_FORWARD;
        out[n++] = one;
    }
    bool accumulates = m->split_backward ? k->pass == WEFT_PASS_WEIGHT
                                         : k->pass == WEFT_PASS_BACKWARD;
    if (accumulates && k->micro_batch > 0) {
        one = *k;
        one.micro_batch--;
        out[n++] = one;
    }
    return n;
}

static bool is_inserted(const struct play *p, const bool *inserted,
                        const struct weft_subtask *k)
{
    struct weft_subtask before[WEFT_EMULATE_BEFORE];
    int32_t n = before_of(p, k, before);
    for (int32_t i = 0; i < n; i++)
        if (!inserted[id_of(p, &before[i])])
            return false;
    return true;
}

static void insert(struct play *p, const struct weft_subtask *k,
                   int32_t device, int64_t position)
{
    const struct weft_schedule_problem *problem = p->problem;
    struct weft_subtask before[WEFT_EMULATE_BEFORE];
    struct weft_tile *tile[WEFT_EMULATE_BEFORE];
    bool is_far[WEFT_EMULATE_BEFORE];
    int32_t n = before_of(p, k, before);
    struct weft_where where = {.device = device,
                               .position = position,
                               .call = 1 + k->model,
                               .iteration = -1,
                               .micro_batch = k->micro_batch,
                               .layer = k->stage};
    for (int32_t i = 0; i < n; i++) {
        tile[i] = p->span[id_of(p, &before[i])];
        is_far[i] = weft_schedule_device(problem,
                                         &problem->model[before[i].model],
                                         before[i].pipeline, before[i].stage)
                 != device;
    }
    weft_insert_emulate(
        p->context->seq, &where, (k->end - k->start) * p->unit_s,
        problem->latency * p->unit_s, n, tile, is_far, p->span[id_of(p, k)]);
}

/* Inserts all subtasks, in the order of every device, and after those that
 * they depend on. */
static int insert_all(struct play *p, struct weft_err *err)
{
    const struct weft_schedule *s = p->schedule;
    size_t devices = (size_t) s->n_devices, left = 0;
    bool *inserted = weft_alloc(p->n, sizeof *inserted);
    int32_t *next = weft_alloc(devices, sizeof *next);
    int rc = inserted && next ? 0 : weft_err_nomem(err, "a schedule", p->n);
    for (size_t d = 0; d < devices; d++)
        left += (size_t) s->n[d];
    for (bool any = true; any && left > 0 && !rc;) {
        any = false;
        for (int32_t d = 0; d < s->n_devices; d++)
            while (next[d] < s->n[d]
                   && is_inserted(p, inserted, &s->task[d][next[d]])) {
                const struct weft_subtask *k = &s->task[d][next[d]++];
                insert(p, k, d, next[d]);
                inserted[id_of(p, k)] = any = true;
                left--;
            }
    }
    if (!rc && left > 0)
        rc = weft_err_set(err, WEFT_EINVAL,
                          "the schedule's devices wait for one another");
    weft_free(inserted);
    weft_free(next);
    return rc;
}

static int create_spans(struct play *p, struct weft_err *err)
{
    struct weft_tile_id id = {"schedule", "span", 0, -1, -1, 0};
    int rc = 0;
    const struct weft_schedule *s = p->schedule;
    for (int32_t d = 0; d < s->n_devices; d++)
        for (int32_t i = 0; i < s->n[d] && !rc; i++)
            rc = weft_tile_create(p->context->rt, &id, WEFT_MEM_SAMPLES,
                                  sizeof(struct weft_span),
                                  &p->span[id_of(p, &s->task[d][i])], err);
    return rc;
}

/* Writes measured times to the schedule, in units since the first start. */
static void read_spans(struct play *p)
{
    struct weft_schedule *s = p->schedule;
    double first = 0, last = 0;
    bool any = false;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t d = 0; d < s->n_devices; d++)
            for (int32_t i = 0; i < s->n[d]; i++) {
                struct weft_subtask *k = &s->task[d][i];
                struct weft_tile *tile = p->span[id_of(p, k)];
                if (pass == 1) {
                    k->start = (k->start - first) / p->unit_s;
                    k->end = (k->end - first) / p->unit_s;
                    last = k->end > last ? k->end : last;
                    continue;
                }
                const struct weft_span *span = weft_tile_acquire(tile,
                                                                 WEFT_READ);
                k->start = span->start_s;
                k->end = span->end_s;
                weft_tile_unacquire(tile);
                first = !any || k->start < first ? k->start : first;
                any = true;
            }
    s->makespan = last;
}

int weft_play_schedule(const struct weft_schedule_problem *problem,
                       struct weft_schedule *schedule, double unit_s,
                       struct weft_err *err)
{
    struct play p = {
        .problem = problem, .schedule = schedule, .unit_s = unit_s};
    struct weft_context_options options = {
        .rt = {.n_devices = schedule->n_devices, .nap = 1}};
    p.n = n_ids(problem, problem->n_models);
    p.span = weft_alloc(p.n, sizeof *p.span);
    int rc = p.span ? weft_context_open_with(&options, &p.context, err)
                    : weft_err_nomem(err, "a schedule", p.n * 8);
    if (!rc)
        rc = create_spans(&p, err);
    if (!rc)
        rc = insert_all(&p, err);
    if (!rc)
        rc = weft_seq_wait(p.context->seq, err);
    if (!rc)
        read_spans(&p);
    for (size_t i = 0; p.span && i < p.n; i++)
        weft_tile_release(p.span[i]);
    weft_context_close(p.context);
    weft_free(p.span);
    return rc;
}
