/* SPDX-License-Identifier: Apache-2.0 */
/*
 * List scheduling under a capacity. The device that can start first takes,
 * of the series' next operations, the one that is due first. A pass that takes
 * memory may not take what a model of a lower rank still needs for its oldest
 * micro-batch on this device: so the chain of rank 0 always drains, then that
 * of rank 1, and so on; no schedule gets stuck.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "schedule/search/search.h"

struct weft_jobshop_list {
    const struct weft_jobshop *shop;
    const struct weft_jobshop_rule *rule;
    const double *tail;
    double capacity, enough, makespan;
    double *ready;       /* of each operation, from predecessors that ended */
    int32_t *missing;    /* predecessors that did not */
    int32_t *next;       /* of each series, the place of its next operation */
    double *series_term; /* (n_series, 2): due date and its step per place */
    int32_t *limit;      /* of each stage: micro-batches in flight */
    double *model_stage_held;
    double *free_at, *held, *first; /* of each device; first: next start */
    /* earliest start of each series' next operation, ordered by series_at */
    double *start;
    int32_t *n_done; /* of each device */
    int32_t *out;
};

static double later(double a, double b)
{
    return a > b ? a : b;
}

struct weft_jobshop_list *weft_jobshop_list_create(
    const struct weft_jobshop *shop)
{
    struct weft_jobshop_list *list = weft_alloc(1, sizeof *list);
    if (!list)
        return NULL;
    size_t n = (size_t) shop->n_ops, d = (size_t) shop->n_devices;
    list->shop = shop;
    list->ready = weft_alloc(n, sizeof(double));
    list->missing = weft_alloc(n, sizeof(int32_t));
    list->next = weft_alloc((size_t) shop->n_series, sizeof(int32_t));
    list->series_term = weft_alloc((size_t) shop->n_series,
                                   2 * sizeof(double));
    list->start = weft_alloc((size_t) shop->n_series, sizeof(double));
    list->limit = weft_alloc((size_t) shop->n_model_stages, sizeof(int32_t));
    list->model_stage_held = weft_alloc((size_t) shop->n_model_stages,
                                        sizeof(double));
    list->free_at = weft_alloc(d, sizeof(double));
    list->held = weft_alloc(d, sizeof(double));
    list->first = weft_alloc(d, sizeof(double));
    list->n_done = weft_alloc(d, sizeof(int32_t));
    if (list->ready && list->missing && list->next && list->series_term
        && list->start && list->limit && list->model_stage_held
        && list->free_at && list->held && list->first && list->n_done)
        return list;
    weft_jobshop_list_free(list);
    return NULL;
}

void weft_jobshop_list_free(struct weft_jobshop_list *list)
{
    if (!list)
        return;
    weft_free(list->ready);
    weft_free(list->missing);
    weft_free(list->next);
    weft_free(list->series_term);
    weft_free(list->start);
    weft_free(list->limit);
    weft_free(list->model_stage_held);
    weft_free(list->free_at);
    weft_free(list->held);
    weft_free(list->first);
    weft_free(list->n_done);
    weft_free(list);
}

static void begin(struct weft_jobshop_list *list)
{
    const struct weft_jobshop *shop = list->shop;
    const struct weft_jobshop_rule *rule = list->rule;
    size_t n = (size_t) shop->n_ops, d = (size_t) shop->n_devices;
    memset(list->ready, 0, n * sizeof(double));
    memset(list->next, 0, (size_t) shop->n_series * sizeof(int32_t));
    memset(list->model_stage_held, 0,
           (size_t) shop->n_model_stages * sizeof(double));
    memset(list->free_at, 0, d * sizeof(double));
    memset(list->held, 0, d * sizeof(double));
    memset(list->n_done, 0, d * sizeof(int32_t));
    for (int32_t x = 0; x < shop->n_ops; x++)
        list->missing[x] = shop->pred_at[x + 1] - shop->pred_at[x];
    for (int32_t l = 0; l < shop->n_series; l++) {
        const struct weft_jobshop_series *series = &shop->series[l];
        const double *term = rule->term
                           + (series->model * 3 + (int32_t) series->pass)
                                 * WEFT_RULE_TERMS;
        list->series_term[2 * l] = term[0] + term[2] * series->stage;
        list->series_term[2 * l + 1] = term[1];
    }
    for (int32_t u = 0; u < shop->n_model_stages; u++) {
        const struct weft_jobshop_model_stage *model_stage =
            &shop->model_stage[u];
        const double *limit = rule->limit + 2 * model_stage->model;
        list->limit[u] = (int32_t) fmax(
            1, limit[0] - limit[1] * model_stage->stage);
    }
    list->makespan = 0;
}

/* ---- Memory ------------------------------------------------------------ */

/* Memory that stage u must leave free on its device for stages that are
 * drained before it. */
static double reserve(const struct weft_jobshop_list *list, int32_t u)
{
    const struct weft_jobshop *shop = list->shop;
    const struct weft_jobshop_model_stage *model_stage =
        &shop->model_stage[u];
    const int32_t *rank = list->rule->rank;
    double sum = 0;
    for (int32_t k = shop->model_stage_at[model_stage->device];
         k < shop->model_stage_at[model_stage->device + 1]; k++) {
        const struct weft_jobshop_model_stage *other =
            &shop->model_stage[shop->model_stage_of[k]];
        bool before = other->model == model_stage->model
                        ? other->stage > model_stage->stage
                        : rank[other->model] < rank[model_stage->model];
        if (before && list->next[other->give] < shop->series[other->give].n)
            sum += later(
                0, other->most
                       - list->model_stage_held[shop->model_stage_of[k]]);
    }
    return sum;
}

static bool admits(const struct weft_jobshop_list *list,
                   const struct weft_jobshop_op *op)
{
    const struct weft_jobshop_model_stage *model_stage =
        &list->shop->model_stage[op->model_stage];
    if (op->series != model_stage->take)
        return true;
    int32_t in_flight = list->next[model_stage->take]
                      - list->next[model_stage->give];
    if (in_flight >= list->limit[op->model_stage])
        return false;
    double held = list->held[op->device] + op->hold;
    if (list->capacity == INFINITY)
        return true;
    return held <= list->capacity
        && held + reserve(list, op->model_stage) <= list->capacity;
}

/* ---- Choosing ---------------------------------------------------------- */

/* The earliest start of a series' next operation; INFINITY when it is not
 * known yet. */
static double start_of(const struct weft_jobshop_list *list, int32_t l)
{
    const struct weft_jobshop_series *series = &list->shop->series[l];
    int32_t i = list->next[l];
    if (i == series->n)
        return INFINITY;
    int32_t x = series->op[i];
    const struct weft_jobshop_op *op = &list->shop->op[x];
    if (list->missing[x] != 0 || !admits(list, op))
        return INFINITY;
    return later(list->ready[x], list->free_at[op->device]);
}

static void look(struct weft_jobshop_list *list, int32_t d)
{
    const struct weft_jobshop *shop = list->shop;
    double first = INFINITY;
    for (int32_t k = shop->series_at[d]; k < shop->series_at[d + 1]; k++) {
        double start = start_of(list, shop->series_of[k]);
        list->start[k] = start;
        first = start < first ? start : first;
    }
    list->first[d] = first;
}

/* Updates series l alone, whose next operation has become ready. */
static void look_at(struct weft_jobshop_list *list, int32_t l, int32_t d)
{
    double start = start_of(list, l);
    list->start[list->shop->series[l].slot] = start;
    if (start < list->first[d])
        list->first[d] = start;
}

static int32_t next_of(const struct weft_jobshop_list *list, int32_t l)
{
    return list->shop->series[l].op[list->next[l]];
}

/* The operation that device d takes: among those that can start soon enough
 * (before a share, set by the rule, of the time until the earliest end), the
 * one that is due first. */
static int32_t choose(const struct weft_jobshop_list *list, int32_t d,
                      double *start_out)
{
    const struct weft_jobshop *shop = list->shop;
    int32_t from = shop->series_at[d], to = shop->series_at[d + 1], best = -1;
    double first = list->first[d], end = INFINITY, least = INFINITY;
    for (int32_t k = from; k < to && list->rule->wait > 0; k++)
        if (list->start[k] < INFINITY) {
            int32_t x = next_of(list, shop->series_of[k]);
            double t = list->start[k] + shop->op[x].time;
            end = t < end ? t : end;
        }
    double until = list->rule->wait > 0
                     ? first + list->rule->wait * (end - first)
                     : 0;
    for (int32_t k = from; k < to; k++) {
        int32_t l = shop->series_of[k];
        if (list->start[k] > first && list->start[k] >= until)
            continue;
        double due = list->series_term[2 * l]
                   + list->series_term[2 * l + 1] * list->next[l];
        if (due < least || best < 0) {
            least = due;
            best = k;
        }
    }
    *start_out = list->start[best];
    return next_of(list, shop->series_of[best]);
}

/* Operation x has ended: updates its successors, and the devices on which they
 * are next. */
static void finish(struct weft_jobshop_list *list, int32_t x, double end)
{
    const struct weft_jobshop *shop = list->shop;
    list->makespan = later(list->makespan, end);
    for (int32_t k = shop->succ_at[x]; k < shop->succ_at[x + 1]; k++) {
        int32_t y = shop->succ[k].op;
        list->ready[y] = later(list->ready[y], end + shop->succ[k].lag);
        if (--list->missing[y] > 0)
            continue;
        int32_t d = shop->op[y].device;
        if (d < 0)
            finish(list, y, list->ready[y] + shop->op[y].time);
        else
            look_at(list, shop->op[y].series, d);
    }
}

static void take(struct weft_jobshop_list *list, int32_t x, double start)
{
    const struct weft_jobshop *shop = list->shop;
    const struct weft_jobshop_op *op = &shop->op[x];
    int32_t d = op->device, begin = shop->device_at[d];
    int32_t k = shop->reversed ? shop->device_at[d + 1] - 1 - list->n_done[d]
                               : begin + list->n_done[d];
    list->out[k] = x;
    list->n_done[d]++;
    list->next[op->series]++;
    list->held[d] += op->hold;
    list->model_stage_held[op->model_stage] += op->hold;
    list->free_at[d] = start + op->time;
    finish(list, x, start + op->time);
    look(list, d);
}

double weft_jobshop_list_build(struct weft_jobshop_list *list,
                               const struct weft_jobshop_rule *rule,
                               const double *tail, double capacity,
                               double enough, int32_t *sequence_out)
{
    const struct weft_jobshop *shop = list->shop;
    list->rule = rule;
    list->capacity = capacity > 0 ? capacity * (1 + WEFT_JOBSHOP_SLACK)
                                  : INFINITY;
    list->out = sequence_out;
    begin(list);
    for (int32_t x = 0; x < shop->n_ops; x++)
        if (shop->op[x].device < 0 && list->missing[x] == 0)
            finish(list, x, shop->op[x].time);
    for (int32_t d = 0; d < shop->n_devices; d++)
        look(list, d);
    for (int32_t left = shop->device_at[shop->n_devices]; left > 0; left--) {
        int32_t d = 0;
        double start = 0;
        for (int32_t k = 1; k < shop->n_devices; k++)
            if (list->first[k] < list->first[d])
                d = k;
        if (list->first[d] == INFINITY)
            return INFINITY;
        int32_t x = choose(list, d, &start);
        if (start + shop->op[x].time + tail[x] > enough)
            return INFINITY;
        take(list, x, start);
    }
    return list->makespan;
}
