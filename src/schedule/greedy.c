/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The greedy fused schedule that RLHFuse starts from: always the subtask that
 * can start first, backward before forward passes; where a larger model has
 * one to start on the same device, a smaller model's must end before.
 */
#include "schedule/tasks.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

/* A stage of a pipeline on its device, and how far it is. */
struct place {
    int32_t model, pipeline, stage;
    int32_t rank;    /* of the model: 0 the largest */
    int32_t next[3]; /* micro-batch of the next pass of each kind, counted
                        through the mini-batches */
};

struct choice {
    struct weft_subtask task; /* end 0: none */
    struct place *place;
    bool known;
};

struct greedy {
    const struct weft_schedule_problem *problem;
    struct weft_schedule *out;
    struct place *place;   /* all, by device, then rank, then stage */
    int32_t *first;        /* (n_devices + 1): a device's places */
    struct choice *choice; /* (n_devices) */
    double *end, *free_at; /* (subtasks): NAN until chosen; (n_devices) */
    int64_t *left;         /* (models, mini-batches): subtasks to come */
    double *step;          /* (models, mini-batches): last end */
};

static bool larger_work(const struct weft_schedule_problem *problem,
                        int32_t a, int32_t b)
{
    double work[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        const struct weft_schedule_model *m = &problem->model[i ? b : a];
        int64_t n = (int64_t) m->micro_batches * m->stages;
        for (int64_t c = 0; c < n; c++)
            work[i] += m->forward[c] + m->backward[c]
                     + (m->weight ? m->weight[c] : 0);
        work[i] *= m->pipelines;
    }
    return work[0] > work[1] || (work[0] == work[1] && a < b);
}

static int32_t rank_of(const struct weft_schedule_problem *problem, int32_t m)
{
    int32_t rank = 0;
    for (int32_t i = 0; i < problem->n_models; i++)
        rank += i != m && larger_work(problem, i, m);
    return rank;
}

/* Fills g->place and g->first, which is zero: counts, then places. */
static void lay_out(struct greedy *g)
{
    const struct weft_schedule_problem *p = g->problem;
    for (int32_t i = 0; i < p->n_models; i++)
        for (int32_t q = 0; q < p->model[i].pipelines; q++)
            for (int32_t s = 0; s < p->model[i].stages; s++)
                g->first[1 + weft_schedule_device(p, &p->model[i], q, s)]++;
    for (int32_t d = 0; d < p->n_devices; d++)
        g->first[d + 1] += g->first[d];
    for (int32_t rank = 0; rank < p->n_models; rank++) {
        int32_t i = 0;
        while (rank_of(p, i) != rank)
            i++;
        for (int32_t q = 0; q < p->model[i].pipelines; q++)
            for (int32_t s = 0; s < p->model[i].stages; s++) {
                int32_t d = weft_schedule_device(p, &p->model[i], q, s);
                int32_t at = g->first[d];
                while (g->place[at].next[0] < 0) /* taken */
                    at++;
                g->place[at] = (struct place){i, q, s, rank, {-1, 0, 0}};
            }
    }
    for (int32_t i = 0; i < g->first[p->n_devices]; i++)
        g->place[i].next[0] = 0;
}

/* The next pass of a kind with its earliest start; false: there is none, or
 * what it waits for is not chosen yet. */
static bool candidate(const struct greedy *g, const struct place *place,
                      enum weft_pass pass, struct weft_subtask *out)
{
    const struct weft_schedule_problem *p = g->problem;
    const struct weft_schedule_model *m = &p->model[place->model];
    struct weft_subtask before[2], t = {.model = place->model,
                                        .pipeline = place->pipeline,
                                        .stage = place->stage,
                                        .pass = pass};
    if (pass > weft_schedule_last_pass(m)
        || place->next[pass] == p->mini_batches * m->micro_batches)
        return false;
    t.mini_batch = place->next[pass] / m->micro_batches;
    t.micro_batch = place->next[pass] % m->micro_batches;
    int32_t d = weft_subtask_device(p, &t);
    t.start = g->free_at[d];
    int n = weft_subtask_waits(p, &t, before);
    for (int i = 0; i < n; i++) {
        bool here = weft_subtask_device(p, &before[i]) == d;
        double end = g->end[weft_subtask_id(p, &before[i])];
        if (isnan(end))
            return false;
        t.start = fmax(t.start, end + (here ? 0 : p->latency));
    }
    if (weft_subtask_waits_for_step(&t)) {
        int64_t b = (int64_t) t.model * p->mini_batches + t.mini_batch - 1;
        if (g->left[b] > 0)
            return false;
        t.start = fmax(t.start, g->step[b] + m->sync + m->optimizer);
    }
    t.end = t.start + weft_subtask_duration(p, &t);
    *out = t;
    return true;
}

/* At the same start: backward, weight, forward. */
static int urgency(enum weft_pass pass)
{
    return (pass + 2) % 3;
}

static bool is_before(const struct weft_subtask *a,
                      const struct weft_subtask *b)
{
    return a->start < b->start
        || (a->start == b->start && urgency(a->pass) < urgency(b->pass));
}

/* What a device would do next. */
static void choose(struct greedy *g, int32_t d)
{
    struct choice *c = &g->choice[d];
    double larger = INFINITY, same = INFINITY; /* earliest starts */
    int32_t rank = 0;
    c->known = true;
    c->place = NULL;
    for (int32_t i = g->first[d]; i < g->first[d + 1]; i++) {
        struct place *place = &g->place[i];
        if (place->rank != rank)
            larger = fmin(larger, same);
        rank = place->rank;
        for (int pass = 0; pass < 3; pass++) {
            struct weft_subtask t;
            if (!candidate(g, place, (enum weft_pass) pass, &t))
                continue;
            same = fmin(same, t.start);
            if (t.end > larger || (c->place && !is_before(&t, &c->task)))
                continue;
            c->task = t;
            c->place = place;
        }
    }
}

static void take(struct greedy *g, int32_t d)
{
    const struct weft_schedule_problem *p = g->problem;
    const struct weft_subtask t = g->choice[d].task;
    const struct weft_schedule_model *m = &p->model[t.model];
    int32_t width = weft_schedule_width(m), first = t.pipeline * width;
    int64_t b = (int64_t) t.model * p->mini_batches + t.mini_batch;
    weft_schedule_append(p, g->out, &t);
    g->choice[d].place->next[t.pass]++;
    g->end[weft_subtask_id(p, &t)] = g->free_at[d] = t.end;
    g->step[b] = fmax(g->step[b], t.end);
    g->choice[d].known = false;
    g->choice[first + (d - first + 1) % width].known = false;
    g->choice[first + (d - first + width - 1) % width].known = false;
    if (--g->left[b] == 0)
        for (int32_t q = 0; q < m->pipelines; q++)
            g->choice[weft_schedule_device(p, m, q, 0)].known = false;
}

static void run(struct greedy *g)
{
    const struct weft_schedule_problem *p = g->problem;
    for (int64_t n = weft_schedule_count(p); n > 0; n--) {
        int32_t best = -1;
        for (int32_t d = 0; d < p->n_devices; d++) {
            if (!g->choice[d].known)
                choose(g, d);
            if (g->choice[d].place
                && (best < 0
                    || is_before(&g->choice[d].task, &g->choice[best].task)))
                best = d;
        }
        take(g, best);
    }
}

static void set_up(struct greedy *g)
{
    const struct weft_schedule_problem *p = g->problem;
    int64_t n = weft_schedule_count(p);
    lay_out(g);
    for (int64_t i = 0; i < n; i++)
        g->end[i] = NAN;
    for (int32_t i = 0; i < p->n_models; i++) {
        const struct weft_schedule_model *m = &p->model[i];
        for (int32_t b = 0; b < p->mini_batches; b++)
            g->left[(int64_t) i * p->mini_batches + b] =
                (int64_t) m->pipelines * m->micro_batches * m->stages
                * (m->split_backward ? 3 : 2);
    }
}

int weft_schedule_greedy(const struct weft_schedule_problem *problem,
                         struct weft_schedule *out, struct weft_err *err)
{
    size_t d = (size_t) problem->n_devices, places = 0;
    size_t steps = (size_t) problem->n_models
                 * (size_t) problem->mini_batches;
    size_t n = (size_t) weft_schedule_count(problem);
    for (int32_t i = 0; i < problem->n_models; i++)
        places += (size_t) problem->model[i].pipelines
                * (size_t) problem->model[i].stages;
    int rc = weft_schedule_init(problem, out, err);
    if (rc)
        return rc;
    struct greedy g = {.problem = problem, .out = out};
    g.place = weft_alloc(places, sizeof *g.place);
    g.first = weft_alloc(d + 1, sizeof *g.first);
    g.choice = weft_alloc(d, sizeof *g.choice);
    g.free_at = weft_alloc(d, sizeof *g.free_at);
    g.end = weft_alloc(n, sizeof *g.end);
    g.left = weft_alloc(steps, sizeof *g.left);
    g.step = weft_alloc(steps, sizeof *g.step);
    if (g.place && g.first && g.choice && g.free_at && g.end && g.left
        && g.step) {
        set_up(&g);
        run(&g);
        rc = weft_schedule_time(problem, out, err);
    } else {
        rc = weft_err_nomem(err, "a schedule", n * sizeof *g.end);
    }
    weft_free(g.place);
    weft_free(g.first);
    weft_free(g.choice);
    weft_free(g.free_at);
    weft_free(g.end);
    weft_free(g.left);
    weft_free(g.step);
    if (rc)
        weft_schedule_release(out);
    return rc;
}
