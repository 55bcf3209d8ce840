/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/fuse.h"

#include <string.h>

#include "base/alloc.h"
#include "plan/deal.h"
#include "schedule/tasks.h"
#include "fuse/inside.h"
#include "fuse/least.h"

static bool same_mesh(const struct weft_mesh *a, const struct weft_mesh *b)
{
    return a->node == b->node && a->n_nodes == b->n_nodes
        && a->device == b->device && a->n_devices == b->n_devices;
}

/* Checks two training calls, and turns the second one round where `odd`. */
static int fuse_pair(struct weft_plan *plan, int32_t first, int32_t second,
                     bool odd, struct weft_err *err)
{
    struct weft_call_plan *a = &plan->call[first], *b = &plan->call[second];
    const char *name[] = {plan->flow.call[first].name,
                          plan->flow.call[second].name};
    if (!same_mesh(&a->mesh, &b->mesh))
        return weft_err_set(err, WEFT_EINVAL,
                            "intra_stage_fusion: %s and %s need the "
                            "same mesh",
                            name[0], name[1]);
    if (!weft_fuse_fits(a, b))
        return weft_err_set(
            err, WEFT_EINVAL,
            "intra_stage_fusion: %s has tp %d, pp %d and "
            "%s tp %d, pp %d; the larger tp must be a multiple of "
            "the other, and that one's pp of the quotient, so that its "
            "stages fill groups of devices",
            name[0], a->tp, a->pp, name[1], b->tp, b->pp);
    a->contiguous = b->contiguous = true;
    b->reversed = odd;
    return 0;
}

int weft_fuse_plan(struct weft_plan *plan, struct weft_err *err)
{
    const struct weft_dataflow *flow = &plan->flow;
    int32_t call[WEFT_MAX_ROLES], n = 0;
    int rc = 0;
    for (int32_t i = 1; i < flow->n_calls; i++)
        if (weft_flow_trains(flow, i))
            call[n++] = i;
    if (n < 2)
        return weft_err_set(err, WEFT_EINVAL,
                            "intra_stage_fusion: this algorithm trains "
                            "one model; there is nothing to fuse it with");
    plan->call[call[0]].reversed = false;
    for (int32_t i = 0; i < n && !rc; i++)
        for (int32_t k = i + 1; k < n && !rc; k++)
            rc = fuse_pair(plan, call[i], call[k], k % 2 == 1, err);
    return rc;
}

/* ---- Shapes ------------------------------------------------------------- */

static void turn_free(struct weft_fuse_turn *s)
{
    weft_schedule_problem_release(&s->problem);
    weft_schedule_release(&s->planned);
    weft_schedule_release(&s->measured);
    weft_free(s->span);
    weft_free(s->cost);
    weft_free(s);
}

static void forget_turns(struct weft_fuse *fuse)
{
    while (fuse->turn) {
        struct weft_fuse_turn *next = fuse->turn->next;
        turn_free(fuse->turn);
        fuse->turn = next;
    }
    fuse->last = &fuse->turn;
}

void weft_fuse_forget(struct weft_fuse *fuse)
{
    if (fuse)
        forget_turns(fuse);
}

static void forget_orders(struct weft_fuse *fuse)
{
    while (fuse->order) {
        struct weft_fuse_order *next = fuse->order->next;
        weft_schedule_release(&fuse->order->schedule);
        weft_free(fuse->order);
        fuse->order = next;
    }
}

void weft_fuse_free(struct weft_fuse *fuse)
{
    if (!fuse)
        return;
    forget_turns(fuse);
    forget_orders(fuse);
    for (int m = 0; m < fuse->n_models; m++)
        weft_free(fuse->model[m].rate);
    weft_free(fuse);
}

/* Sets a model's stages. Times are not measured yet; the unit is the time of a
 * forward pass of cost 1. */
static int open_model(struct weft_fuse *fuse, int i,
                      const struct weft_g_model *tiles, int32_t tp,
                      struct weft_err *err)
{
    const struct weft_call_plan *plan = &tiles->home.plan;
    const int32_t *first = tiles->home.first_layer;
    struct weft_fuse_model *m = &fuse->model[i];
    m->tiles = tiles;
    m->merge = tp / plan->tp;
    m->stages = plan->pp / m->merge;
    m->rate = weft_alloc(2 * (size_t) m->stages, sizeof *m->rate);
    if (!m->rate)
        return weft_err_nomem(err, "a schedule", 16 * (size_t) m->stages);
    weft_fuse_rates(&tiles->shape, first, plan, m->merge, m->rate);
    return 0;
}

/* Makes a problem of the models' pipelines, with all times and activations
 * 0. */
static int make_problem(const struct weft_fuse *fuse,
                        const struct weft_fuse_size *size,
                        struct weft_schedule_problem *out,
                        struct weft_err *err)
{
    *out = (struct weft_schedule_problem){
        .n_devices = fuse->n_devices,
        .mini_batches = size->mini_batches,
        .model = weft_alloc((size_t) fuse->n_models, sizeof *out->model)};
    int rc = out->model ? 0 : weft_err_nomem(err, "a schedule", 256);
    for (int i = 0; i < fuse->n_models && !rc; i++) {
        const struct weft_fuse_model *f = &fuse->model[i];
        struct weft_schedule_model *m = &out->model[out->n_models++];
        size_t cells = (size_t) size->n[i] * (size_t) f->stages;
        *m = (struct weft_schedule_model){
            .name = weft_strdup(f->tiles->name),
            .pipelines = f->tiles->home.plan.dp,
            .stages = f->stages,
            .chunks = 1,
            .micro_batches = size->n[i],
            .up = i % 2 == 1,
            .forward = weft_alloc(cells, sizeof(double)),
            .backward = weft_alloc(cells, sizeof(double)),
            .activation = weft_alloc(cells, sizeof(double)),
            .optimizer = f->update};
        if (!m->name || !m->forward || !m->backward || !m->activation)
            rc = weft_err_nomem(err, "a schedule", cells * sizeof(double));
    }
    if (rc)
        weft_schedule_problem_release(out);
    return rc;
}

/* Adds a schedule for a size; takes ownership of it, also after an error. */
static int add_order(struct weft_fuse *fuse,
                     const struct weft_fuse_size *size,
                     struct weft_schedule *schedule,
                     struct weft_fuse_order **out, struct weft_err *err)
{
    struct weft_fuse_order *order = weft_alloc(1, sizeof *order);
    if (!order) {
        weft_schedule_release(schedule);
        return weft_err_nomem(err, "a schedule", sizeof *order);
    }
    *order = (struct weft_fuse_order){*size, *schedule, fuse->order};
    *out = fuse->order = order;
    return 0;
}

/* Checks that the schedule is complete for its size. */
static int check_whole(const struct weft_fuse *fuse,
                       const struct weft_fuse_size *size,
                       struct weft_schedule *schedule, struct weft_err *err)
{
    struct weft_schedule_problem p;
    int rc = make_problem(fuse, size, &p, err);
    if (rc)
        return rc;
    rc = weft_schedule_time(&p, schedule, err);
    weft_schedule_problem_release(&p);
    return rc;
}

static int read_order(struct weft_fuse *fuse, const char *path,
                      int32_t mini_batches, struct weft_err *err)
{
    struct weft_fuse_size size = {.mini_batches = mini_batches};
    struct weft_schedule_problem p;
    struct weft_schedule s;
    struct weft_fuse_order *order;
    int rc = make_problem(fuse, &size, &p, err);
    if (rc)
        return rc;
    rc = weft_schedule_read_order(&p, path, &s, err);
    for (int i = 0; i < fuse->n_models; i++)
        size.n[i] = p.model[i].micro_batches;
    weft_schedule_problem_release(&p);
    if (rc)
        return rc;
    rc = check_whole(fuse, &size, &s, err);
    if (!rc)
        return add_order(fuse, &size, &s, &order, err);
    weft_err_prefix(err, "%s", path);
    weft_schedule_release(&s);
    return rc;
}

/* Checks that the schedule from the file has enough micro-batches for the
 * run's steps. */
static int check_order(const struct weft_fuse *fuse, struct weft_err *err)
{
    const char *file = fuse->options.config->train.schedule;
    for (int i = 0; i < fuse->n_models; i++) {
        const struct weft_g_model *tiles = fuse->model[i].tiles;
        int32_t n = fuse->options.n_micro_batches[i];
        int32_t has = fuse->order->size.n[i];
        if (tiles->home.plan.micro_batches == 0)
            return weft_err_set(err, WEFT_EINVAL,
                                "%s: a schedule needs as many micro-batches "
                                "in every step: set train.micro_batches",
                                file);
        if (n > has)
            return weft_err_set(err, WEFT_EINVAL,
                                "%s: a schedule of %d micro-batches of the "
                                "%s; the run's steps have %d",
                                file, has, tiles->name, n);
    }
    return 0;
}

int weft_fuse_open(const struct weft_fuse_options *options,
                   struct weft_fuse **out, struct weft_err *err)
{
    const struct weft_config *c = options->config;
    struct weft_fuse *fuse = weft_alloc(1, sizeof *fuse);
    int32_t tp = 1;
    int rc = 0;
    *out = fuse;
    if (!fuse)
        return weft_err_nomem(err, "a schedule", sizeof *fuse);
    fuse->options = *options;
    fuse->n_models = options->n_models;
    fuse->last = &fuse->turn;
    for (int i = 0; i < fuse->n_models; i++)
        if (options->model[i]->home.plan.tp > tp)
            tp = options->model[i]->home.plan.tp;
    for (int i = 0; i < fuse->n_models && !rc; i++)
        rc = open_model(fuse, i, options->model[i], tp, err);
    if (!rc)
        fuse->n_devices = fuse->model[0].stages
                        * options->model[0]->home.plan.dp;
    if (!rc && c->train.schedule)
        rc = read_order(fuse, c->train.schedule, c->train.joined_mini_batches,
                        err);
    if (!rc && c->train.schedule)
        rc = check_order(fuse, err);
    return rc;
}

size_t weft_fuse_first(const struct weft_schedule_problem *p, int model)
{
    size_t n = 0;
    for (int i = 0; i < model; i++)
        n += (size_t) p->model[i].micro_batches;
    return n;
}

/* ---- A turn's problem --------------------------------------------------- */

/* The mean cost and rows of a micro-batch over the mini-batches and pipelines
 * that have it; 0: none has. step: (mini-batches, models), from the model's
 * first one on. */
static void cost_of(const struct weft_fuse_model *m, int n_models,
                    struct weft_g_step *const step[], int32_t n_steps,
                    int32_t micro_batch, double *cost_out,
                    int64_t *n_rows_out)
{
    int64_t n = 0, rows = 0, r;
    double cost = 0;
    for (int32_t i = 0; i < n_steps; i++)
        for (int32_t d = 0; d < m->tiles->home.plan.dp; d++) {
            const struct weft_g_step *s = step[i * n_models];
            if (micro_batch >= weft_g_step_n(s, d))
                continue;
            cost += weft_g_step_cost(s, d, micro_batch, &r);
            rows += r;
            n++;
        }
    *cost_out = n > 0 ? cost / (double) n : 0;
    *n_rows_out = n > 0 ? rows / n : 0;
}

static double held_mib(const struct weft_fuse_model *m, int32_t stage,
                       int64_t n_rows)
{
    double sum = 0;
    for (int32_t k = 0; k < m->merge; k++)
        sum += (double) weft_g_held_bytes(&m->tiles->shape, &m->tiles->home,
                                          stage * m->merge + k, n_rows);
    return sum / 1048576.0;
}

static void fill_model(const struct weft_fuse_model *f, int n_models,
                       struct weft_g_step *const step[], int32_t n_steps,
                       struct weft_schedule_model *out, double *cost)
{
    for (int32_t i = 0; i < out->micro_batches; i++) {
        int64_t rows;
        cost_of(f, n_models, step, n_steps, i, &cost[i], &rows);
        for (int32_t s = 0; s < f->stages; s++) {
            int32_t at = i * f->stages + s;
            out->forward[at] = cost[i] * f->rate[2 * s];
            out->backward[at] = cost[i] * f->rate[2 * s + 1];
            out->activation[at] = held_mib(f, s, rows);
        }
    }
}

static int search(const struct weft_fuse *fuse,
                  const struct weft_fuse_turn *turn,
                  struct weft_schedule *out, struct weft_err *err)
{
    const struct weft_config *c = fuse->options.config;
    int64_t evaluations = c->train.schedule_evaluations;
    if (evaluations == 0) /* so many take seconds for 10^5 subtasks */
        evaluations = 200000 + 50 * weft_schedule_count(&turn->problem);
    struct weft_schedule_options options = {.seed = c->seed,
                                            .evaluations = evaluations,
                                            .n_threads = 1,
                                            .restart_stride = 1};
    struct weft_schedule_result result;
    int rc = weft_schedule_search(&turn->problem, &options, &result, err);
    if (!rc)
        *out = result.schedule;
    return rc;
}

/* Converts a schedule to one array of subtasks, by device; and back. */
static void pack(const struct weft_schedule *s, int32_t *n,
                 struct weft_subtask *task)
{
    for (int32_t d = 0; d < s->n_devices; d++) {
        n[d] = s->n[d];
        memcpy(task, s->task[d], (size_t) n[d] * sizeof *task);
        task += n[d];
    }
}

static int unpack(int32_t n_devices, int32_t *n, struct weft_subtask *task,
                  struct weft_schedule *out, struct weft_err *err)
{
    struct weft_subtask **list = weft_alloc((size_t) n_devices, sizeof *list);
    if (!list)
        return weft_err_nomem(err, "a schedule", (size_t) n_devices * 8);
    struct weft_schedule s = {.n_devices = n_devices, .n = n, .task = list};
    for (int32_t d = 0; d < n_devices; d++) {
        list[d] = task;
        task += n[d];
    }
    int rc = weft_schedule_copy(&s, out, err);
    weft_free(list);
    return rc;
}

/* Rank 0 searches and sends the schedule to the others, which could find
 * another one if their processors round differently. Collective. */
static int search_together(const struct weft_fuse *fuse,
                           const struct weft_fuse_turn *turn,
                           struct weft_schedule *out, struct weft_err *err)
{
    size_t devices = (size_t) turn->problem.n_devices;
    size_t tasks = (size_t) weft_schedule_count(&turn->problem);
    size_t lists = tasks * sizeof(struct weft_subtask);
    size_t bytes = lists + devices * sizeof(int32_t);
    char *data = weft_alloc(bytes, 1);
    if (!data)
        return weft_err_nomem(err, "a schedule", bytes);
    struct weft_subtask *task = (void *) data;
    int32_t *n = (void *) (data + lists);
    struct weft_schedule found;
    bool first = weft_world_rank() == 0 || fuse->options.recorded;
    if (first && search(fuse, turn, &found, err)) {
        weft_seq_fail(fuse->options.seq, err->code, "%s", err->text);
    } else if (first) {
        pack(&found, n, task);
        weft_schedule_release(&found);
    }
    int rc = weft_seq_agree(fuse->options.seq, data, bytes, err);
    if (!rc)
        rc = unpack(turn->problem.n_devices, n, task, out, err);
    weft_free(data);
    return rc;
}

/* ---- The order --------------------------------------------------------- */

/* The size of the largest step, or of the file's schedule. Subtasks that a
 * step does not have are skipped. */
static struct weft_fuse_size size_of(const struct weft_fuse *fuse,
                                     struct weft_g_step *const step[],
                                     int32_t n_steps)
{
    struct weft_fuse_size size = {.mini_batches = n_steps};
    if (fuse->options.config->train.schedule)
        return fuse->order->size;
    for (int i = 0; i < fuse->n_models; i++) {
        const struct weft_fuse_model *m = &fuse->model[i];
        size.n[i] = 1; /* without micro-batches: one that is skipped */
        for (int32_t k = 0; k < n_steps; k++)
            for (int32_t d = 0; d < m->tiles->home.plan.dp; d++) {
                int32_t n = weft_g_step_n(step[k * fuse->n_models + i], d);
                size.n[i] = n > size.n[i] ? n : size.n[i];
            }
    }
    return size;
}

static int find_order(struct weft_fuse *fuse, struct weft_fuse_turn *turn,
                      const struct weft_fuse_size *size,
                      struct weft_fuse_order **out, struct weft_err *err)
{
    struct weft_schedule schedule;
    for (struct weft_fuse_order *o = fuse->order; o; o = o->next)
        if (memcmp(&o->size, size, sizeof *size) == 0) {
            *out = o;
            return 0;
        }
    int rc = search_together(fuse, turn, &schedule, err);
    return rc ? rc : add_order(fuse, size, &schedule, out, err);
}

/* The schedule that these steps had when they ran. */
static int plan_again(const struct weft_fuse *fuse,
                      struct weft_fuse_turn *turn, struct weft_err *err)
{
    const struct weft_fuse_planned *planned = fuse->options.planned;
    weft_assert(fuse->n_turns <= planned->n);
    return weft_schedule_copy(&planned->schedule[fuse->n_turns - 1],
                              &turn->planned, err);
}

/* Makes the problem of these steps, and its schedule. */
static int plan_turn(struct weft_fuse *fuse, struct weft_g_step *const step[],
                     int32_t n_steps, struct weft_fuse_turn *turn,
                     struct weft_err *err)
{
    struct weft_fuse_order *order = NULL;
    struct weft_fuse_size size = size_of(fuse, step, n_steps);
    size_t n = 0;
    for (int i = 0; i < fuse->n_models; i++)
        n += (size_t) size.n[i];
    int rc = make_problem(fuse, &size, &turn->problem, err);
    turn->cost = weft_alloc(n, sizeof *turn->cost);
    if (!rc && !turn->cost)
        rc = weft_err_nomem(err, "a schedule", n * sizeof *turn->cost);
    for (int i = 0; i < fuse->n_models && !rc; i++)
        fill_model(&fuse->model[i], fuse->n_models, step + i, n_steps,
                   &turn->problem.model[i],
                   turn->cost + weft_fuse_first(&turn->problem, i));
    if (!rc && fuse->options.planned)
        return plan_again(fuse, turn, err);
    if (!rc)
        rc = find_order(fuse, turn, &size, &order, err);
    if (!rc)
        rc = weft_schedule_copy(&order->schedule, &turn->planned, err);
    return rc ? rc : weft_schedule_time(&turn->problem, &turn->planned, err);
}

/* ---- Submitting -------------------------------------------------------- */

/* Adds the subtasks of the model's stages that a subtask of the schedule
 * stands for. */
static void add_subtasks(const struct weft_fuse_model *m, int n_models,
                         const struct weft_subtask *k, struct weft_span *span,
                         struct weft_g_subtask *subtask)
{
    bool backward = k->pass != WEFT_PASS_FORWARD;
    for (int32_t i = 0; i < m->merge; i++)
        subtask[i] = (struct weft_g_subtask){
            .step = k->mini_batch * n_models + k->model,
            .dp = k->pipeline,
            .stage = k->stage * m->merge + (backward ? m->merge - 1 - i : i),
            .micro_batch = k->micro_batch,
            .backward = backward,
            .start = k->start,
            .span = span};
}

static void fill_queues(const struct weft_fuse *fuse,
                        struct weft_fuse_turn *turn,
                        struct weft_g_queue *queue,
                        struct weft_g_subtask *subtask)
{
    const struct weft_schedule *s = &turn->planned;
    struct weft_span *span = turn->span;
    for (int32_t d = 0; d < s->n_devices; d++) {
        queue[d] = (struct weft_g_queue){.subtask = subtask};
        for (int32_t i = 0; i < s->n[d]; i++) {
            const struct weft_fuse_model *m =
                &fuse->model[s->task[d][i].model];
            add_subtasks(m, fuse->n_models, &s->task[d][i], span++, subtask);
            subtask += m->merge;
            queue[d].n += m->merge;
        }
    }
}

static int submit(const struct weft_fuse *fuse, struct weft_fuse_turn *turn,
                  struct weft_g_step *const step[], int32_t n_steps,
                  struct weft_err *err)
{
    const struct weft_schedule *s = &turn->planned;
    int32_t n_all = n_steps * fuse->n_models;
    size_t merge = 1;
    for (int32_t d = 0; d < s->n_devices; d++)
        turn->n_tasks += (size_t) s->n[d];
    turn->n_spans = turn->n_tasks
                  + (size_t) (turn->problem.mini_batches * fuse->n_models);
    for (int i = 0; i < fuse->n_models; i++)
        if ((size_t) fuse->model[i].merge > merge)
            merge = (size_t) fuse->model[i].merge;
    struct weft_g_queue *queue = weft_alloc((size_t) s->n_devices,
                                            sizeof *queue);
    struct weft_g_subtask *subtask = weft_alloc(turn->n_tasks * merge,
                                                sizeof *subtask);
    turn->span = weft_alloc(turn->n_spans, sizeof *turn->span);
    int rc = queue && subtask && turn->span
               ? 0
               : weft_err_nomem(err, "a schedule",
                                turn->n_spans * sizeof *subtask);
    if (!rc) {
        fill_queues(fuse, turn, queue, subtask);
        for (int32_t i = 0; i < n_all; i++)
            weft_g_step_watch(step[i],
                              &turn->span[turn->n_tasks + (size_t) i]);
        rc = weft_g_step_submit(step, n_all, queue, s->n_devices, err);
    }
    weft_free(queue);
    weft_free(subtask);
    return rc;
}

int weft_fuse_submit(struct weft_fuse *fuse, struct weft_g_step *const step[],
                     int32_t n, struct weft_err *err)
{
    struct weft_fuse_turn *turn = weft_alloc(1, sizeof *turn);
    if (!turn)
        return weft_err_nomem(err, "a schedule", sizeof *turn);
    *fuse->last = turn; /* tasks write its spans, also after an error */
    fuse->last = &turn->next;
    fuse->n_turns++;
    if (fuse->search_again)
        forget_orders(fuse);
    if (fuse->options.config->train.schedule_search == WEFT_FUSE_ONCE)
        fuse->search_again = false;
    int rc = plan_turn(fuse, step, n, turn, err);
    return rc ? rc : submit(fuse, turn, step, n, err);
}
