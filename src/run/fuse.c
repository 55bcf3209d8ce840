/* SPDX-License-Identifier: Apache-2.0 */
#include "run/fuse.h"

#include "base/alloc.h"
#include "plan/deal.h"
#include "plan/schedule.h"

enum { EVALUATIONS = 200000, N_MODELS = 2 };

/* Schedules found so far, by numbers of micro-batches. */
struct weft_fuse {
    int32_t n[N_MODELS];
    struct weft_schedule schedule;
    struct weft_fuse *next;
};

void weft_fuse_free(struct weft_fuse *fuse)
{
    while (fuse) {
        struct weft_fuse *next = fuse->next;
        weft_schedule_release(&fuse->schedule);
        weft_free(fuse);
        fuse = next;
    }
}

int weft_fuse_plan(struct weft_plan *plan, struct weft_err *err)
{
    struct weft_call_plan *a = &plan->call[WEFT_CALL_ACTOR_TRAIN];
    struct weft_call_plan *b = &plan->call[WEFT_CALL_CRITIC_TRAIN];
    if (a->mesh.node != b->mesh.node || a->mesh.n_nodes != b->mesh.n_nodes
        || a->mesh.device != b->mesh.device
        || a->mesh.n_devices != b->mesh.n_devices || a->tp != b->tp)
        return weft_err_set(err, WEFT_EINVAL,
                            "train.intra_stage_fusion: actor_train and "
                            "critic_train need the same mesh and tp");
    a->contiguous = b->contiguous = true;
    a->reversed = false;
    b->reversed = true;
    return 0;
}

/* ---- The problem ------------------------------------------------------- */

/* Time of each layer's share; all micro-batches alike: they are cut to equal
 * cost. */
static int fill_model(struct weft_trainer *t, const struct weft_run_model *m,
                      bool up, int32_t n, struct weft_schedule_model *out,
                      struct weft_err *err)
{
    const struct weft_call_plan *plan = &m->tiles.home.plan;
    const int32_t *first = m->tiles.home.first_layer;
    size_t cells = (size_t) (n * plan->pp);
    double cost = weft_plan_sample_cost(
                      &m->arch.shape,
                      t->max_prompt + t->config.rollout.max_new_tokens)
                / m->arch.shape.n_layers;
    *out = (struct weft_schedule_model){
        .name = weft_strdup(up ? "critic" : "actor"),
        .pipelines = plan->dp,
        .stages = plan->pp,
        .chunks = 1,
        .micro_batches = n,
        .up = up,
        .forward = weft_alloc(cells, sizeof(double)),
        .backward = weft_alloc(cells, sizeof(double)),
        .activation = weft_alloc(cells, sizeof(double))};
    if (!out->name || !out->forward || !out->backward || !out->activation)
        return weft_err_nomem(err, "a schedule", cells * sizeof(double));
    for (int32_t i = 0; i < n * plan->pp; i++) {
        int32_t s = i % plan->pp, layers = first[s + 1] - first[s];
        out->forward[i] = cost * layers;
        out->backward[i] = cost * layers * (plan->recompute ? 3 : 2);
        out->activation[i] = layers * m->arch.shape.hidden;
    }
    return 0;
}

static int search(struct weft_trainer *t, struct weft_fuse *fuse,
                  struct weft_err *err)
{
    const struct weft_call_plan *plan = &t->actor.tiles.home.plan;
    struct weft_schedule_problem problem = {
        .n_devices = plan->dp * plan->pp,
        .n_models = N_MODELS,
        .model = weft_alloc(N_MODELS, sizeof *problem.model),
        .mini_batches = 1};
    struct weft_schedule_options options = {.seed = t->config.seed,
                                            .evaluations = EVALUATIONS,
                                            .n_threads = 1,
                                            .restart_stride = 1};
    struct weft_schedule_result result;
    int rc = problem.model ? 0 : weft_err_nomem(err, "a schedule", 256);
    if (!rc)
        rc = fill_model(t, &t->actor, false, fuse->n[0], &problem.model[0],
                        err);
    if (!rc)
        rc = fill_model(t, &t->critic, true, fuse->n[1], &problem.model[1],
                        err);
    if (!rc)
        rc = weft_schedule_search(&problem, &options, &result, err);
    if (!rc)
        fuse->schedule = result.schedule;
    weft_schedule_problem_release(&problem);
    return rc;
}

/* ---- The order --------------------------------------------------------- */

static int lookup(struct weft_trainer *t, const int32_t n[N_MODELS],
                  struct weft_fuse **out, struct weft_err *err)
{
    for (struct weft_fuse *f = t->fuse; f; f = f->next)
        if (f->n[0] == n[0] && f->n[1] == n[1]) {
            *out = f;
            return 0;
        }
    struct weft_fuse *fuse = weft_alloc(1, sizeof *fuse);
    if (!fuse)
        return weft_err_nomem(err, "a schedule", sizeof *fuse);
    *fuse = (struct weft_fuse){.n = {n[0], n[1]}, .next = t->fuse};
    int rc = search(t, fuse, err);
    if (rc) {
        weft_free(fuse);
        return rc;
    }
    *out = t->fuse = fuse;
    return 0;
}

static int32_t most_micro_batches(const struct weft_g_step *step, int32_t dp)
{
    int32_t most = 1; /* a pipeline without any has an empty one */
    for (int32_t d = 0; d < dp; d++) {
        int32_t n = weft_g_step_n(step, d);
        most = n > most ? n : most;
    }
    return most;
}

int weft_fuse_submit(struct weft_trainer *t, struct weft_g_step *step[2],
                     struct weft_err *err)
{
    const struct weft_run_model *model[N_MODELS] = {&t->actor, &t->critic};
    struct weft_fuse *fuse = NULL;
    int32_t n[N_MODELS];
    for (int i = 0; i < N_MODELS; i++)
        n[i] = most_micro_batches(step[i], model[i]->tiles.home.plan.dp);
    int rc = lookup(t, n, &fuse, err);
    if (rc)
        return rc;
    const struct weft_schedule *s = &fuse->schedule;
    size_t n_units = 0, at = 0;
    for (int32_t d = 0; d < s->n_devices; d++)
        n_units += (size_t) s->n[d];
    struct weft_g_lane *lane = weft_alloc((size_t) s->n_devices,
                                          sizeof *lane);
    struct weft_g_unit *unit = weft_alloc(n_units, sizeof *unit);
    for (int32_t d = 0; d < s->n_devices && lane && unit; d++) {
        lane[d] = (struct weft_g_lane){unit + at, s->n[d], 0};
        for (int32_t i = 0; i < s->n[d]; i++) {
            const struct weft_subtask *k = &s->task[d][i];
            unit[at++] = (struct weft_g_unit){k->model, k->pipeline, k->stage,
                                              k->micro_batch,
                                              k->pass != WEFT_PASS_FORWARD};
        }
    }
    rc = lane && unit
           ? weft_g_step_submit(step, N_MODELS, lane, s->n_devices, err)
           : weft_err_nomem(err, "a schedule", n_units * sizeof *unit);
    weft_free(lane);
    weft_free(unit);
    return rc;
}
