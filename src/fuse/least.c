/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/least.h"

#include <math.h>

#include "base/alloc.h"
#include "fuse/inside.h"
#include "plan/deal.h"

/* Subtasks of a problem that is bounded whole. */
enum { MOST_SUBTASKS = 8192 };

bool weft_fuse_fits(const struct weft_call_plan *a,
                    const struct weft_call_plan *b)
{
    const struct weft_call_plan *wide = a->tp >= b->tp ? a : b;
    const struct weft_call_plan *thin = wide == a ? b : a;
    return thin->tp > 0 && wide->tp % thin->tp == 0
        && thin->pp % (wide->tp / thin->tp) == 0;
}

void weft_fuse_rates(const struct weft_shape *shape, const int32_t *first,
                     const struct weft_call_plan *plan, int32_t merge,
                     double *rate_out)
{
    int32_t stages = plan->pp / merge;
    for (int32_t s = 0; s < stages; s++) {
        int32_t layers = first[(s + 1) * merge] - first[s * merge];
        double share = weft_plan_stage_share(shape, layers, s == stages - 1);
        rate_out[2 * s] = share;
        rate_out[2 * s + 1] = share * (plan->recompute ? 3 : 2);
    }
}

/* One of the models, all micro-batches alike: what its devices do in passes is
 * divided over stages and passes as layers are. Where the rest is done, as of
 * the optimizer, is left open. */
static int add_model(const struct weft_fuse_call *call, int32_t tp, bool up,
                     struct weft_schedule_problem *p, struct weft_err *err)
{
    const struct weft_call_plan *plan = call->plan;
    int32_t first[WEFT_MAX_STAGES + 1], merge = tp / plan->tp;
    int32_t stages = plan->pp / merge, n = call->micro_batches;
    size_t cells = (size_t) n * (size_t) stages;
    struct weft_schedule_model *m = &p->model[p->n_models++];
    double rate[2 * WEFT_MAX_STAGES], sum = 0;
    *m = (struct weft_schedule_model){
        .name = weft_strdup(up ? "up" : "down"),
        .pipelines = plan->dp,
        .stages = stages,
        .chunks = 1,
        .micro_batches = n,
        .up = up,
        .forward = weft_alloc(cells, sizeof(double)),
        .backward = weft_alloc(cells, sizeof(double)),
        .activation = weft_alloc(cells, sizeof(double))};
    if (!m->name || !m->forward || !m->backward || !m->activation)
        return weft_err_nomem(err, "a schedule", cells * sizeof(double));
    weft_plan_stages(call->shape, plan->pp, first);
    weft_fuse_rates(call->shape, first, plan, merge, rate);
    for (int32_t s = 0; s < 2 * stages; s++)
        sum += rate[s];
    double each = call->passes_s * stages / sum / n;
    for (size_t i = 0; i < cells; i++) {
        m->forward[i] = each * rate[2 * (i % (size_t) stages)];
        m->backward[i] = each * rate[2 * (i % (size_t) stages) + 1];
    }
    p->n_devices = stages * plan->dp;
    return 0;
}

static int64_t subtasks(const struct weft_fuse_call *call)
{
    return 2 * (int64_t) call->micro_batches * call->plan->pp
         * call->plan->dp;
}

int weft_fuse_least(const struct weft_fuse_call call[2], int32_t mini_batches,
                    double *out, struct weft_err *err)
{
    int32_t tp = call[0].plan->tp > call[1].plan->tp ? call[0].plan->tp
                                                     : call[1].plan->tp;
    int64_t each = subtasks(&call[0]) + subtasks(&call[1]);
    int64_t n = weft_min64(mini_batches, weft_max64(1, MOST_SUBTASKS / each));
    struct weft_schedule_problem p = {
        .mini_batches = (int32_t) n, .model = weft_alloc(2, sizeof *p.model)};
    struct weft_schedule_bound bound = {.makespan = 0};
    int rc = p.model ? 0 : weft_err_nomem(err, "a schedule", 256);
    for (int i = 0; i < 2 && !rc; i++)
        rc = add_model(&call[i], tp, i == 1, &p, err);
    if (!rc)
        rc = weft_schedule_bounds(&p, 0, &bound, err);
    weft_schedule_problem_release(&p);
    /* of more mini-batches what their devices do at least */
    *out = fmax(bound.makespan,
                mini_batches * (call[0].busy_s + call[1].busy_s));
    return rc;
}
