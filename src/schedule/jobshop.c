/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule problem expanded to operations, arcs, series and stages. */
#include "schedule/jobshop.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"

/* Where a model's operations and stages are: micro-batches of all mini-batches
 * follow each other, (pipeline, pass, stage, micro-batch). */
struct span {
    const struct weft_schedule_model *m;
    int32_t index, first_op, first_series, first_model_stage, first_step;
    int32_t n_passes, n_micro; /* micro-batches of all mini-batches */
};

static enum weft_pass last_pass(const struct weft_schedule_model *m)
{
    return m->split_backward ? WEFT_PASS_WEIGHT : WEFT_PASS_BACKWARD;
}

static int32_t series_index(const struct span *s, int32_t p, int32_t pass,
                            int32_t stage)
{
    return s->first_series + (p * s->n_passes + pass) * s->m->stages + stage;
}

static int32_t op_index(const struct span *s, int32_t p, int32_t pass,
                        int32_t stage, int32_t micro)
{
    int32_t series = (p * s->n_passes + pass) * s->m->stages + stage;
    return s->first_op + series * s->n_micro + micro;
}

static double time_of(const struct weft_schedule_model *m, int32_t pass,
                      int32_t stage, int32_t micro)
{
    const double *t = pass == WEFT_PASS_FORWARD  ? m->forward
                    : pass == WEFT_PASS_BACKWARD ? m->backward
                                                 : m->weight;
    return t[(size_t) micro % (size_t) m->micro_batches * (size_t) m->stages
             + (size_t) stage];
}

/* Do all micro-batches take the same on every stage? */
static bool equal_micro_batches(const struct weft_schedule_model *m)
{
    for (int32_t s = 0; s < m->stages; s++)
        for (int32_t i = 1; i < m->micro_batches; i++) {
            size_t k = (size_t) i * (size_t) m->stages + (size_t) s;
            if (m->activation[k] != m->activation[s])
                return false;
            for (int32_t pass = 0; pass <= (int32_t) last_pass(m); pass++)
                if (time_of(m, pass, s, i) != time_of(m, pass, s, 0))
                    return false;
        }
    return true;
}

/* ---- Arcs -------------------------------------------------------------- */

struct arcs {
    struct weft_jobshop *shop;
    int32_t *from, *to;
    double *lag;
    int32_t n;
};

static void add_arc(struct arcs *a, int32_t from, int32_t to)
{
    const struct weft_jobshop_op *x = &a->shop->op[from],
                                 *y = &a->shop->op[to];
    bool moves = x->device >= 0 && y->device >= 0 && x->device != y->device;
    a->from[a->n] = from;
    a->to[a->n] = to;
    a->lag[a->n++] = moves ? a->shop->problem->latency : 0;
}

static void add_chain(struct arcs *a, const struct span *s, int32_t p,
                      int32_t i)
{
    enum { F = WEFT_PASS_FORWARD, B = WEFT_PASS_BACKWARD };
    int32_t n = s->m->stages;
    for (int32_t k = 1; k < n; k++) {
        add_arc(a, op_index(s, p, F, k - 1, i), op_index(s, p, F, k, i));
        add_arc(a, op_index(s, p, B, k, i), op_index(s, p, B, k - 1, i));
    }
    add_arc(a, op_index(s, p, F, n - 1, i), op_index(s, p, B, n - 1, i));
    for (int32_t k = 0; k < n && s->m->split_backward; k++)
        add_arc(a, op_index(s, p, B, k, i),
                op_index(s, p, WEFT_PASS_WEIGHT, k, i));
}

/* The optimizer step of a mini-batch: after the last backward pass of every
 * stage, before the next mini-batch's first forward passes. */
static void add_step(struct arcs *a, const struct span *s, int32_t mini)
{
    int32_t n = s->m->micro_batches, step = s->first_step + mini;
    enum weft_pass pass = last_pass(s->m);
    for (int32_t p = 0; p < s->m->pipelines; p++) {
        int32_t n_last = s->m->split_backward ? s->m->stages : 1;
        for (int32_t k = 0; k < n_last; k++)
            add_arc(a, op_index(s, p, (int32_t) pass, k, (mini + 1) * n - 1),
                    step);
        for (int32_t i = 0; i < n && (mini + 1) * n < s->n_micro; i++)
            add_arc(a, step,
                    op_index(s, p, WEFT_PASS_FORWARD, 0, (mini + 1) * n + i));
    }
}

/* Arcs by their ends, in both directions. */
static void index_arcs(struct weft_jobshop *shop, const struct arcs *a)
{
    for (int32_t i = 0; i < a->n; i++) {
        shop->succ_at[a->from[i] + 1]++;
        shop->pred_at[a->to[i] + 1]++;
    }
    for (int32_t x = 0; x < shop->n_ops; x++) {
        shop->succ_at[x + 1] += shop->succ_at[x];
        shop->pred_at[x + 1] += shop->pred_at[x];
    }
    /* The starts move on while filling, and are put back. */
    for (int32_t i = 0; i < a->n; i++) {
        shop->succ[shop->succ_at[a->from[i]]++] = (struct weft_jobshop_arc){
            a->to[i], a->lag[i]};
        shop->pred[shop->pred_at[a->to[i]]++] = (struct weft_jobshop_arc){
            a->from[i], a->lag[i]};
    }
    size_t n = (size_t) shop->n_ops * sizeof *shop->succ_at;
    memmove(shop->succ_at + 1, shop->succ_at, n);
    memmove(shop->pred_at + 1, shop->pred_at, n);
    shop->succ_at[0] = shop->pred_at[0] = 0;
}

/* ---- Filling ----------------------------------------------------------- */

static void fill_series(struct weft_jobshop *shop, const struct span *s,
                        int32_t p, int32_t pass, int32_t stage, bool equal)
{
    const struct weft_schedule_model *m = s->m;
    int32_t index = series_index(s, p, pass, stage);
    int32_t model_stage = s->first_model_stage + p * m->stages + stage;
    struct weft_jobshop_series *series = &shop->series[index];
    *series = (struct weft_jobshop_series){
        .op = shop->series_ops + op_index(s, p, pass, stage, 0),
        .n = s->n_micro,
        .model = s->index,
        .stage = stage,
        .pass = (enum weft_pass) pass,
        .fixed = equal || pass == (int32_t) last_pass(m)};
    for (int32_t i = 0; i < s->n_micro; i++) {
        int32_t x = op_index(s, p, pass, stage, i);
        double act = m->activation[i % m->micro_batches * m->stages + stage];
        series->op[i] = x;
        shop->op[x] = (struct weft_jobshop_op){
            .time = time_of(m, pass, stage, i),
            .hold = pass == WEFT_PASS_FORWARD      ? act
                  : pass == (int32_t) last_pass(m) ? -act
                                                   : 0,
            .device = shop->model_stage[model_stage].device,
            .series = index,
            .model_stage = model_stage,
            .place = i};
        if (act > shop->model_stage[model_stage].most)
            shop->model_stage[model_stage].most = act;
    }
}

static void fill_model(struct weft_jobshop *shop, const struct span *s,
                       struct arcs *arcs)
{
    const struct weft_schedule_model *m = s->m;
    bool equal = equal_micro_batches(m);
    for (int32_t p = 0; p < m->pipelines; p++)
        for (int32_t k = 0; k < m->stages; k++) {
            shop->model_stage[s->first_model_stage + p * m->stages + k] =
                (struct weft_jobshop_model_stage){
                    .model = s->index,
                    .stage = k,
                    .device = weft_schedule_device(shop->problem, m, p, k),
                    .take = series_index(s, p, WEFT_PASS_FORWARD, k),
                    .give = series_index(s, p, (int32_t) last_pass(m), k),
                    .equal = equal};
            for (int32_t pass = 0; pass < s->n_passes; pass++)
                fill_series(shop, s, p, pass, k, equal);
        }
    int32_t n_mini = shop->problem->mini_batches;
    for (int32_t i = 0; i < n_mini; i++)
        shop->op[s->first_step + i] = (struct weft_jobshop_op){
            .time = m->sync + m->optimizer,
            .device = -1,
            .series = -1,
            .model_stage = -1};
    for (int32_t p = 0; p < m->pipelines; p++)
        for (int32_t i = 0; i < s->n_micro; i++)
            add_chain(arcs, s, p, i);
    for (int32_t i = 0; i < n_mini; i++)
        add_step(arcs, s, i);
}

static double common(double a, double b)
{
    while (b > 0) {
        double rest = fmod(a, b);
        a = b;
        b = rest;
    }
    return a;
}

/* The largest number whose multiples are all times, if it is a whole number
 * of thousandths, halves, thirds, ...; 0: none. */
static double find_grain(const struct weft_jobshop *shop)
{
    for (int32_t k = 1; k <= 1000; k++) {
        double grain = shop->problem->latency * k;
        bool fits = grain == round(grain);
        for (int32_t x = 0; x < shop->n_ops && fits; x++) {
            double t = shop->op[x].time * k, whole = round(t);
            fits = fabs(t - whole) <= 1e-12 * t;
            grain = common(grain, whole);
        }
        if (fits)
            return grain / k;
    }
    return 0;
}

/* Series and stages by device, work, and what all times are multiples of. */
static void index_devices(struct weft_jobshop *shop)
{
    shop->grain = find_grain(shop);
    for (int32_t x = 0; x < shop->n_ops; x++)
        if (shop->op[x].device >= 0)
            shop->device_at[shop->op[x].device + 1]++;
    int32_t n_series = 0, n_model_stages = 0;
    for (int32_t d = 0; d < shop->n_devices; d++) {
        double work = 0;
        shop->device_at[d + 1] += shop->device_at[d];
        for (int32_t u = 0; u < shop->n_model_stages; u++)
            if (shop->model_stage[u].device == d)
                shop->model_stage_of[n_model_stages++] = u;
        for (int32_t l = 0; l < shop->n_series; l++) {
            struct weft_jobshop_series *series = &shop->series[l];
            if (shop->op[series->op[0]].device != d)
                continue;
            series->slot = n_series;
            shop->series_of[n_series++] = l;
            for (int32_t i = 0; i < series->n; i++)
                work += shop->op[series->op[i]].time;
        }
        shop->series_at[d + 1] = n_series;
        shop->model_stage_at[d + 1] = n_model_stages;
        shop->work = fmax(shop->work, work);
    }
}

static void turn_around(struct weft_jobshop *shop)
{
    int32_t *at = shop->pred_at;
    shop->pred_at = shop->succ_at;
    shop->succ_at = at;
    struct weft_jobshop_arc *arc = shop->pred;
    shop->pred = shop->succ;
    shop->succ = arc;
    for (int32_t l = 0; l < shop->n_series; l++) {
        struct weft_jobshop_series *series = &shop->series[l];
        for (int32_t i = 0; i < series->n; i++)
            shop->op[series->op[i]].place = series->n - 1 - i;
        for (int32_t i = 0, j = series->n - 1; i < j; i++, j--) {
            int32_t x = series->op[i];
            series->op[i] = series->op[j];
            series->op[j] = x;
        }
    }
    for (int32_t x = 0; x < shop->n_ops; x++)
        shop->op[x].hold = -shop->op[x].hold;
    for (int32_t u = 0; u < shop->n_model_stages; u++) {
        int32_t take = shop->model_stage[u].take;
        shop->model_stage[u].take = shop->model_stage[u].give;
        shop->model_stage[u].give = take;
    }
    shop->reversed = true;
}

static int64_t count(struct weft_jobshop *shop, struct span *span)
{
    const struct weft_schedule_problem *p = shop->problem;
    int64_t n_ops = 0, n_arcs = 0, n_series = 0, n_model_stages = 0;
    for (int32_t i = 0; i < p->n_models; i++) {
        const struct weft_schedule_model *m = &p->model[i];
        int32_t n_passes = m->split_backward ? 3 : 2;
        int32_t n_micro = m->micro_batches * p->mini_batches;
        int64_t model_stages = (int64_t) m->pipelines * m->stages;
        span[i] = (struct span){.m = m,
                                .index = i,
                                .first_op = (int32_t) n_ops,
                                .first_series = (int32_t) n_series,
                                .first_model_stage = (int32_t) n_model_stages,
                                .n_passes = n_passes,
                                .n_micro = n_micro};
        n_model_stages += model_stages;
        n_series += model_stages * n_passes;
        n_ops += model_stages * n_passes * n_micro;
        n_arcs += model_stages * n_passes * n_micro
                + (int64_t) p->mini_batches * model_stages
                + (int64_t) m->pipelines * n_micro;
        if (n_ops > INT32_MAX / 4)
            return -1;
    }
    for (int32_t i = 0; i < p->n_models; i++) {
        span[i].first_step = (int32_t) n_ops;
        n_ops += p->mini_batches;
    }
    shop->n_ops = (int32_t) n_ops;
    shop->n_series = (int32_t) n_series;
    shop->n_model_stages = (int32_t) n_model_stages;
    shop->n_devices = p->n_devices;
    return n_arcs;
}

static bool allocate(struct weft_jobshop *shop, struct arcs *arcs,
                     size_t n_arcs)
{
    size_t n = (size_t) shop->n_ops, d = (size_t) shop->n_devices + 1;
    arcs->from = weft_alloc(n_arcs, sizeof(int32_t));
    arcs->to = weft_alloc(n_arcs, sizeof(int32_t));
    arcs->lag = weft_alloc(n_arcs, sizeof(double));
    shop->op = weft_alloc(n, sizeof *shop->op);
    shop->pred_at = weft_alloc(n + 1, sizeof(int32_t));
    shop->succ_at = weft_alloc(n + 1, sizeof(int32_t));
    shop->pred = weft_alloc(n_arcs, sizeof *shop->pred);
    shop->succ = weft_alloc(n_arcs, sizeof *shop->succ);
    shop->series = weft_alloc((size_t) shop->n_series, sizeof *shop->series);
    shop->model_stage = weft_alloc((size_t) shop->n_model_stages,
                                   sizeof *shop->model_stage);
    shop->device_at = weft_alloc(d, sizeof(int32_t));
    shop->series_at = weft_alloc(d, sizeof(int32_t));
    shop->model_stage_at = weft_alloc(d, sizeof(int32_t));
    shop->series_of = weft_alloc((size_t) shop->n_series, sizeof(int32_t));
    shop->model_stage_of = weft_alloc((size_t) shop->n_model_stages,
                                      sizeof(int32_t));
    shop->series_ops = weft_alloc(n, sizeof(int32_t));
    return arcs->from && arcs->to && arcs->lag && shop->op && shop->pred_at
        && shop->succ_at && shop->pred && shop->succ && shop->series
        && shop->model_stage && shop->device_at && shop->series_at
        && shop->model_stage_at && shop->series_of && shop->model_stage_of
        && shop->series_ops;
}

int weft_jobshop_init(struct weft_jobshop *shop,
                      const struct weft_schedule_problem *problem,
                      bool reversed, struct weft_err *err)
{
    struct arcs arcs = {.shop = shop};
    int rc = 0;
    *shop = (struct weft_jobshop){.problem = problem};
    struct span *span = weft_alloc((size_t) problem->n_models, sizeof *span);
    int64_t n_arcs = span ? count(shop, span) : 0;
    if (n_arcs < 0)
        rc = weft_err_set(err, WEFT_EINVAL,
                          "the schedule has more than %d subtasks",
                          INT32_MAX / 4);
    else if (!span || !allocate(shop, &arcs, (size_t) n_arcs))
        rc = weft_err_nomem(err, "a schedule's subtasks",
                            (size_t) shop->n_ops * sizeof *shop->op);
    if (!rc) {
        for (int32_t i = 0; i < problem->n_models; i++)
            fill_model(shop, &span[i], &arcs);
        index_arcs(shop, &arcs);
        index_devices(shop);
        if (reversed)
            turn_around(shop);
    } else {
        weft_jobshop_release(shop);
    }
    weft_free(arcs.from);
    weft_free(arcs.to);
    weft_free(arcs.lag);
    weft_free(span);
    return rc;
}

void weft_jobshop_release(struct weft_jobshop *shop)
{
    weft_free(shop->op);
    weft_free(shop->pred_at);
    weft_free(shop->succ_at);
    weft_free(shop->pred);
    weft_free(shop->succ);
    weft_free(shop->series);
    weft_free(shop->model_stage);
    weft_free(shop->device_at);
    weft_free(shop->series_at);
    weft_free(shop->model_stage_at);
    weft_free(shop->series_of);
    weft_free(shop->model_stage_of);
    weft_free(shop->series_ops);
    *shop = (struct weft_jobshop){0};
}
