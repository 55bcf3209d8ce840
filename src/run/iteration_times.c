/* SPDX-License-Identifier: Apache-2.0 */
/* Computes how long an iteration and its calls took, from its tasks' times. */
#include "run/iteration.h"

#include <math.h>

static double length(const struct weft_call_time *t)
{
    return t->n_tasks > 0 ? t->last_s - t->first_s : 0;
}

/* The length of the union of two spans. */
static double together(const struct weft_call_time *t,
                       const struct weft_span *span)
{
    double both = length(t) + span->end_s - span->start_s;
    if (t->n_tasks == 0)
        return both;
    double common = fmin(t->last_s, span->end_s)
                  - fmax(t->first_s, span->start_s);
    return both - fmax(common, 0);
}

/* Adds a call's tasks to those of others. */
static void join(struct weft_call_time *sum, const struct weft_call_time *t)
{
    if (t->n_tasks == 0)
        return;
    bool first = sum->n_tasks == 0;
    sum->first_s = first ? t->first_s : fmin(sum->first_s, t->first_s);
    sum->last_s = first ? t->last_s : fmax(sum->last_s, t->last_s);
    sum->busy_s += t->busy_s;
    sum->n_tasks += t->n_tasks;
}

static void set_overlap(const struct weft_call_time *gen,
                        const struct weft_call_time *infer,
                        struct weft_iteration_times *out)
{
    if (gen->n_tasks == 0 || infer->n_tasks == 0)
        return;
    double beside = fmin(gen->last_s, infer->last_s)
                  - fmax(gen->first_s, infer->first_s);
    out->gen_infer = fmax(gen->last_s, infer->last_s) - gen->first_s;
    out->overlap = length(infer) > 0 ? fmax(beside, 0) / length(infer) : 0;
}

/* By what calls do and write. */
void weft_iteration_times_get(
    const struct weft_dataflow *flow,
    const struct weft_call_time time[WEFT_MAX_CALLS],
    const struct weft_span *rewards, struct weft_iteration_times *out)
{
    struct weft_call_time gen = {0}, score = {0}, logps = {0}, value = {0},
                          old = {0}, steps = {0}, policy = {0}, values = {0},
                          infer = {0}, train;
    for (int32_t i = 1; i < flow->n_calls; i++) {
        const struct weft_flow_call *c = &flow->call[i];
        bool scalar = c->role >= 0 && flow->role[c->role].scalar;
        bool scores = weft_flow_field_of(flow, c->writes, WEFT_FIELD_SCORE)
                   >= 0;
        join(c->kind == WEFT_GENERATE      ? &gen
             : c->role < 0                 ? &steps
             : c->kind == WEFT_TRAIN       ? (scalar ? &values : &policy)
             : scores                      ? &score
             : scalar                      ? &value
             : flow->role[c->role].trained ? &old
                                           : &logps,
             &time[i]);
        if (c->kind == WEFT_INFER)
            join(&infer, &time[i]);
    }
    train = policy;
    join(&train, &values);
    *out = (struct weft_iteration_times){
        .gen = length(&gen),
        .gen_work = gen.busy_s,
        .scoring = together(&score, rewards),
        .logps = length(&logps),
        .old_logps = length(&old),
        .valuing = length(&value),
        .steps = steps.busy_s,
        .train_values = length(&values),
        .train_policy = length(&policy),
        .step = fmax(train.last_s - gen.first_s, 0),
    };
    set_overlap(&gen, &infer, out);
    for (int c = 0; c < WEFT_MAX_CALLS; c++) {
        out->offload += time[c].restore_s;
        out->hidden += time[c].hidden_s;
        out->waited += time[c].waited_s;
    }
}

double weft_iteration_time(const struct weft_iteration_times *s,
                           enum weft_measured of)
{
    const double time[] = {s->gen,          s->scoring,     s->logps,
                           s->old_logps,    s->valuing,     s->steps,
                           s->train_values, s->train_policy};
    return time[of - WEFT_OF_GENERATION];
}
