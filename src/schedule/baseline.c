/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Known schedules, to compare with.
 *
 * The serial ones time every model alone and put the results one behind the
 * other: training of one model ends on all devices before the next begins.
 * That is what RLHFuse's Table 3 is relative to.
 */
#include "schedule/tasks.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

const char *weft_schedule_algorithm_name(enum weft_schedule_algorithm a)
{
    static const char *const name[WEFT_N_SCHEDULE_ALGORITHMS] = {
        "search", "serial", "1f1b-plus", "interleaved", "chimera", "greedy"};
    return name[a];
}

/* Appends one pass; a backward pass brings its weight pass with it. */
static void put(const struct weft_schedule_problem *problem,
                struct weft_schedule *out, struct weft_subtask t)
{
    weft_schedule_append(problem, out, &t);
    if (t.pass == WEFT_PASS_BACKWARD
        && problem->model[t.model].split_backward) {
        t.pass = WEFT_PASS_WEIGHT;
        weft_schedule_append(problem, out, &t);
    }
}

/* ---- One model alone ------------------------------------------------- */

/* 1F1B on one device, which has one stage: as many forward passes first as
 * there are stages behind it. */
static void put_1f1b(const struct weft_schedule_problem *problem,
                     int32_t pipeline, int32_t stage,
                     struct weft_schedule *out)
{
    const struct weft_schedule_model *m = problem->model;
    int32_t n = m->micro_batches, warm_up = m->stages - 1 - stage;
    for (int32_t i = 0; i < n + warm_up; i++) {
        struct weft_subtask t = {.pipeline = pipeline, .stage = stage};
        t.micro_batch = i;
        if (i < n)
            put(problem, out, t);
        t.pass = WEFT_PASS_BACKWARD;
        t.micro_batch = i - warm_up;
        if (i >= warm_up)
            put(problem, out, t);
    }
}

/* The i-th pass of a kind of interleaved 1F1B on device `rank` of `width`:
 * micro-batches in groups of `width`, chunk after chunk within a group. */
static struct weft_subtask interleave(const struct weft_schedule_model *m,
                                      int32_t pipeline, int32_t rank,
                                      int32_t i, enum weft_pass pass)
{
    int32_t width = weft_schedule_width(m), in = i % (width * m->chunks);
    int32_t chunk = in / width;
    if (pass == WEFT_PASS_BACKWARD)
        chunk = m->chunks - 1 - chunk;
    return (struct weft_subtask){
        .pipeline = pipeline,
        .micro_batch = i / (width * m->chunks) * width + in % width,
        .stage = chunk * width + rank,
        .pass = pass};
}

/* Narayanan et al. 2021, section 2.2. */
static void put_interleaved(const struct weft_schedule_problem *problem,
                            int32_t pipeline, int32_t rank,
                            struct weft_schedule *out)
{
    const struct weft_schedule_model *m = problem->model;
    int32_t width = weft_schedule_width(m), n = m->micro_batches * m->chunks;
    int32_t warm_up = 2 * (width - 1 - rank) + (m->chunks - 1) * width;
    if (warm_up > n)
        warm_up = n;
    for (int32_t i = 0; i < n + warm_up; i++) {
        if (i < n)
            put(problem, out,
                interleave(m, pipeline, rank, i, WEFT_PASS_FORWARD));
        if (i >= warm_up)
            put(problem, out,
                interleave(m, pipeline, rank, i - warm_up,
                           WEFT_PASS_BACKWARD));
    }
}

/* One mini-batch of the problem's only model. */
static int alone(const struct weft_schedule_problem *problem,
                 struct weft_schedule *out, struct weft_err *err)
{
    const struct weft_schedule_model *m = problem->model;
    int32_t width = weft_schedule_width(m);
    int rc = weft_schedule_init(problem, out, err);
    if (rc)
        return rc;
    for (int32_t p = 0; p < m->pipelines; p++)
        for (int32_t i = 0; i < width; i++)
            if (m->chunks == 1)
                put_1f1b(problem, p, i, out);
            else
                put_interleaved(problem, p, i, out);
    rc = weft_schedule_time(problem, out, err);
    if (rc)
        weft_schedule_release(out);
    return rc;
}

/* ---- Model after model ---------------------------------------------- */

/* The problem of one mini-batch of one of its models. */
static struct weft_schedule_problem only(
    const struct weft_schedule_problem *problem,
    struct weft_schedule_model *model)
{
    struct weft_schedule_problem one = *problem;
    one.n_models = one.mini_batches = 1;
    one.model = model;
    return one;
}

/* Puts a model's schedule behind what `out` has, which ends at its
 * makespan. */
static void join(struct weft_schedule *out, const struct weft_schedule *more,
                 int32_t model, int32_t mini_batch)
{
    for (int32_t d = 0; d < out->n_devices; d++)
        for (int32_t i = 0; i < more->n[d]; i++) {
            struct weft_subtask *t = &out->task[d][out->n[d]++];
            *t = more->task[d][i];
            t->model = model;
            t->mini_batch = mini_batch;
            t->start += out->makespan;
            t->end += out->makespan;
        }
    out->makespan += more->makespan;
    out->peak_activation = fmax(out->peak_activation, more->peak_activation);
}

static int serial(const struct weft_schedule_problem *problem,
                  struct weft_schedule *out, struct weft_err *err)
{
    struct weft_schedule more = {0};
    int rc = weft_schedule_init(problem, out, err);
    for (int32_t b = 0; b < problem->mini_batches && !rc; b++)
        for (int32_t m = 0; m < problem->n_models && !rc; m++) {
            struct weft_schedule_problem one = only(problem,
                                                    &problem->model[m]);
            rc = alone(&one, &more, err);
            if (!rc)
                join(out, &more, m, b);
            weft_schedule_release(&more);
        }
    if (rc)
        weft_schedule_release(out);
    return rc;
}

/* ---- Other shapes ----------------------------------------------------- */

/* A model with every `by` consecutive stages in one, every `step`-th
 * micro-batch from the `first` on, one chunk. */
static double *merge(const struct weft_schedule_model *m, const double *from,
                     int32_t by, int32_t first, int32_t step)
{
    int32_t stages = m->stages / by, n = m->micro_batches / step;
    double *to = from ? weft_alloc((size_t) n * (size_t) stages, sizeof *to)
                      : NULL;
    for (int32_t j = 0; j < n && to; j++)
        for (int32_t s = 0; s < m->stages; s++)
            to[(int64_t) j * stages + s / by] +=
                from[(int64_t) (first + j * step) * m->stages + s];
    return to;
}

/* A mini-batch of the merged model alone: raises *time_out and *peak_out to
 * what it takes. */
static int time_merged(const struct weft_schedule_problem *problem,
                       const struct weft_schedule_model *model, int32_t by,
                       int32_t first, int32_t step, double *time_out,
                       double *peak_out, struct weft_err *err)
{
    struct weft_schedule_model m = *model;
    struct weft_schedule_problem one = only(problem, &m);
    struct weft_schedule s = {0};
    m.stages /= by;
    m.micro_batches /= step;
    m.chunks = 1;
    m.pipelines = one.n_devices / m.stages;
    m.forward = merge(model, model->forward, by, first, step);
    m.backward = merge(model, model->backward, by, first, step);
    m.weight = merge(model, model->weight, by, first, step);
    m.activation = merge(model, model->activation, by, first, step);
    bool ok = m.forward && m.backward && m.activation
           && !m.weight == !model->weight;
    int rc = ok ? alone(&one, &s, err)
                : weft_err_nomem(err, "a schedule", sizeof m);
    if (!rc) {
        *time_out = fmax(*time_out, s.makespan);
        *peak_out = fmax(*peak_out, s.peak_activation);
    }
    weft_schedule_release(&s);
    weft_free(m.forward);
    weft_free(m.backward);
    weft_free(m.weight);
    weft_free(m.activation);
    return rc;
}

/* Model after model on pipelines of width / `shorter` devices, 1F1B, layers
 * in one piece per device. Twice the pipelines share the micro-batches. */
static int serial_merged(const struct weft_schedule_problem *problem,
                         int32_t shorter, struct weft_schedule *out,
                         struct weft_err *err)
{
    struct weft_schedule sum = {0};
    int rc = 0;
    for (int32_t i = 0; i < problem->n_models && !rc; i++) {
        const struct weft_schedule_model *m = &problem->model[i];
        double time = 0;
        for (int32_t first = 0; first < shorter && !rc; first++)
            rc = time_merged(problem, m, m->chunks * shorter, first, shorter,
                             &time, &sum.peak_activation, err);
        sum.makespan += time * problem->mini_batches;
    }
    if (!rc)
        *out = sum;
    return rc;
}

static int plus_1f1b(const struct weft_schedule_problem *problem,
                     struct weft_schedule *out, struct weft_err *err)
{
    for (int32_t i = 0; i < problem->n_models; i++) {
        const struct weft_schedule_model *m = &problem->model[i];
        if (weft_schedule_width(m) % 2 || m->micro_batches % 2)
            return weft_err_set(err, WEFT_EUNSUPPORTED,
                                "1F1B+ halves pipelines and micro-batches, "
                                "but %s has %d devices per pipeline and %d "
                                "micro-batches",
                                m->name, weft_schedule_width(m),
                                m->micro_batches);
    }
    return serial_merged(problem, 2, out, err);
}

static int interleaved(const struct weft_schedule_problem *problem,
                       struct weft_schedule *out, struct weft_err *err)
{
    bool any = false;
    for (int32_t i = 0; i < problem->n_models; i++) {
        const struct weft_schedule_model *m = &problem->model[i];
        if (m->chunks > 1 && m->micro_batches % weft_schedule_width(m))
            return weft_err_set(err, WEFT_EUNSUPPORTED,
                                "interleaved 1F1B takes micro-batches in "
                                "groups of %d, one per device of a pipeline, "
                                "but %s has %d",
                                weft_schedule_width(m), m->name,
                                m->micro_batches);
        any = any || m->chunks > 1;
    }
    if (!any)
        return weft_err_set(err, WEFT_EUNSUPPORTED,
                            "no model has 'chunks' above 1 to interleave");
    return serial(problem, out, err);
}

static int serial_1f1b(const struct weft_schedule_problem *problem,
                       struct weft_schedule *out, struct weft_err *err)
{
    for (int32_t i = 0; i < problem->n_models; i++)
        if (problem->model[i].chunks > 1)
            return serial_merged(problem, 1, out, err);
    return serial(problem, out, err);
}

/* ---- Chimera ----------------------------------------------------------- */

static int check_chimera(const struct weft_schedule_problem *problem,
                         struct weft_err *err)
{
    const struct weft_schedule_model *a = problem->model, *b = a + 1;
    bool ok = problem->n_models == 2 && problem->n_devices % 2 == 0;
    ok = ok && a->pipelines == 1 && b->pipelines == 1 && a->chunks == 1
      && b->chunks == 1 && a->micro_batches == b->micro_batches
      && a->up != b->up;
    return ok ? 0
              : weft_err_set(err, WEFT_EUNSUPPORTED,
                             "Chimera wants two models of one pipeline each "
                             "in opposite directions, with equally many "
                             "micro-batches, on an even number of devices");
}

/* The passes of both models on a device in order of their slots, where every
 * pass is one slot: micro-batch j passes forward through stage s in slot
 * s + 2j, backward in 2N - 1 - s + 2j. With at most N / 2 micro-batches the
 * two directions never meet in a slot (Li and Hoefler 2021). */
static void put_chimera_unit(const struct weft_schedule_problem *problem,
                             int32_t device, struct weft_subtask first,
                             int32_t n_micro_batches,
                             struct weft_schedule *out)
{
    int32_t stages = problem->n_devices;
    for (int32_t slot = 0; slot < 4 * stages; slot++)
        for (int32_t m = 0; m < 2; m++)
            for (int32_t pass = 0; pass < 2; pass++) {
                struct weft_subtask t = first;
                t.model = m;
                t.stage = problem->model[m].up ? stages - 1 - device : device;
                t.pass = (enum weft_pass) pass;
                int32_t at = pass ? 2 * stages - 1 - t.stage : t.stage;
                int32_t j = (slot - at) / 2;
                if (slot < at || (slot - at) % 2 || j >= n_micro_batches)
                    continue;
                t.micro_batch += j;
                put(problem, out, t);
            }
}

static int chimera(const struct weft_schedule_problem *problem,
                   struct weft_schedule *out, struct weft_err *err)
{
    int rc = check_chimera(problem, err);
    if (!rc)
        rc = weft_schedule_init(problem, out, err);
    if (rc)
        return rc;
    int32_t unit = problem->n_devices / 2, n = problem->model->micro_batches;
    for (int32_t d = 0; d < problem->n_devices; d++)
        for (int32_t b = 0; b < problem->mini_batches; b++)
            for (int32_t j = 0; j < n; j += unit) {
                struct weft_subtask t = {.mini_batch = b, .micro_batch = j};
                put_chimera_unit(problem, d, t, n - j < unit ? n - j : unit,
                                 out);
            }
    rc = weft_schedule_time(problem, out, err);
    if (rc)
        weft_schedule_release(out);
    return rc;
}

int weft_schedule_baseline(const struct weft_schedule_problem *problem,
                           enum weft_schedule_algorithm algorithm,
                           struct weft_schedule *out, struct weft_err *err)
{
    switch (algorithm) {
    case WEFT_SCHEDULE_SERIAL:
        return serial_1f1b(problem, out, err);
    case WEFT_SCHEDULE_1F1B_PLUS:
        return plus_1f1b(problem, out, err);
    case WEFT_SCHEDULE_INTERLEAVED:
        return interleaved(problem, out, err);
    case WEFT_SCHEDULE_CHIMERA:
        return chimera(problem, out, err);
    case WEFT_SCHEDULE_GREEDY:
        return weft_schedule_greedy(problem, out, err);
    default:
        return weft_err_set(err, WEFT_EUNSUPPORTED, "'%s' is no baseline",
                            weft_schedule_algorithm_name(algorithm));
    }
}
