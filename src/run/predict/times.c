/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/times.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "job/plan_needs.h"
#include "run/predict/known.h"
#include "run/predict/simulate_run.h"
#include "run/predict/simulation.h"

enum { MANY_TASKS = 300000 };

/* ---- Recording ---------------------------------------------------------- */

/* The iteration between its neighbours, if there is one before; these get its
 * lengths, too. */
static int choose(const struct weft_iteration *p,
                  const struct weft_simulate_options *options,
                  struct weft_recorded *how, int32_t **length_out,
                  struct weft_tail_choice *tail, struct weft_err *err)
{
    const struct weft_trainer *t = p->t;
    const struct weft_config *c = &t->config;
    size_t n = (size_t) p->n_all, rounds = (size_t) t->settings.refills + 1;
    size_t texts = n * (size_t) c->n_rewards,
           of = (size_t) options->iterations;
    size_t all = of * (n * rounds + texts);
    int64_t each = weft_config_generates(c) ? c->rollout.prompts
                                            : weft_run_samples(c);
    int32_t before = p->iteration > 0;
    int32_t *length = weft_alloc(all + 1, sizeof *length);
    int32_t *text = length ? length + of * n * rounds : NULL;
    if (!length)
        return weft_err_nomem(err, "lengths", all * sizeof *length);
    for (size_t i = 0; i < of; i++) {
        for (size_t k = 0; k < n; k++)
            length[i * rounds * n + k] = p->sample[k].n_total
                                       - p->sample[k].n_prompt;
        memcpy(text + i * texts, p->n_text, texts * sizeof *text);
        memcpy(tail + i * WEFT_MAX_CALLS, p->tail, sizeof p->tail);
    }
    *how = (struct weft_recorded){
        .rank = -1,
        .gangs = options->gangs,
        .first = p->iteration - before,
        .iterations = options->iterations,
        .drawn = weft_max64(p->first_prompt - before * each, 0),
        .n_total = length,
        .responses = true,
        .n_text = text,
        .tail = tail};
    *length_out = length;
    return 0;
}

/* ---- Metrics ------------------------------------------------------------ */

static void set_metrics(const struct weft_iteration *p,
                        const struct weft_played *played, int32_t at)
{
    static const char measured[] = "timing_s/";
    const struct weft_trainer *t = p->t;
    const struct weft_iteration_times s = weft_simulate_times(played, at);
    bool generates = weft_config_generates(&t->config);
    const struct weft_metric *const *list =
        weft_algorithm_of(&t->config)->told->metrics;
    for (; *list; list++)
        for (const struct weft_metric *m = *list; m->tag; m++)
            if (weft_simulate_predicts(t, m)
                && strncmp(m->tag, measured, sizeof measured - 1) == 0)
                weft_metrics_setf(t->metrics, weft_iteration_time(&s, m->of),
                                  "perf/predicted_s/%s",
                                  m->tag + sizeof measured - 1);
    weft_metrics_set(t->metrics, "perf/predicted_s/moves_exposed",
                     s.waited / played->job->n_devices);
    weft_metrics_set(t->metrics, "perf/predicted_s/step",
                     generates ? s.step : played->steady_s);
    weft_metrics_set(t->metrics, "perf/predicted_steps_per_s",
                     1 / played->steady_s);
}

static int predict(const struct weft_iteration *p,
                   struct weft_plan_times *out, struct weft_err *err)
{
    struct weft_trainer *t = p->t;
    const struct weft_simulate_options options = weft_known_options(t->known,
                                                                    &t->job);
    struct weft_simulation s = {.options = NULL};
    struct weft_played played = {.n = 0};
    struct weft_recorded how;
    int32_t *length = NULL;
    struct weft_tail_choice *tail = weft_alloc(
        (size_t) options.iterations * WEFT_MAX_CALLS, sizeof *tail);
    int rc = tail ? choose(p, &options, &how, &length, tail, err)
                  : weft_err_nomem(err, "lengths", sizeof p->tail);
    if (!rc)
        rc = weft_simulation_of(t, &how, &options, &s, err);
    s.job.moves = true;
    if (!rc)
        rc = weft_simulation_play(&s, err);
    if (!rc)
        rc = weft_played_create(s.engine, &s.r, &s.job, &t->flow, how.first,
                                how.iterations, &played, err);
    if (!rc) {
        int32_t at = p->iteration - how.first;
        const struct weft_played_call *call = played.call
                                            + at * WEFT_MAX_CALLS;
        set_metrics(p, &played, at);
        t->noted.n_tasks = s.r.n_tasks;
        out->iteration_s = played.steady_s;
        for (int32_t c = 1; c < t->flow.n_calls; c++)
            out->call_s[c] = call[c].span.end_s - call[c].span.start_s;
    }
    weft_played_release(&played);
    weft_simulation_close(&s);
    weft_free(length);
    weft_free(tail);
    return rc;
}

/* ---- Means -------------------------------------------------------------- */

/* The first iteration makes room for the second: its pages and caches are
 * new. */
static void add(struct weft_plan_times *mean, const struct weft_plan_times *x,
                int32_t n)
{
    if (n <= 2) {
        *mean = *x;
        return;
    }
    mean->iteration_s += (x->iteration_s - mean->iteration_s) / (n - 1);
    for (int32_t c = 0; c < WEFT_MAX_CALLS; c++)
        mean->call_s[c] += (x->call_s[c] - mean->call_s[c]) / (n - 1);
}

static bool is_due(const struct weft_iteration *p)
{
    const struct weft_trainer *t = p->t;
    int32_t every = t->config.checkpoint.every, done = p->iteration + 1;
    return t->noted.n_tasks <= MANY_TASKS || done >= t->n_iterations
        || (every > 0 && done % every == 0);
}

int weft_times_note(struct weft_iteration *p)
{
    struct weft_trainer *t = p->t;
    struct weft_plan_times predicted = {0}, measured = {0};
    struct weft_err why = {0};
    double rate = 0;
    if (t->known && !is_due(p))
        return 0;
    int rc = t->known ? predict(p, &predicted, &why) : 0;
    if (rc == WEFT_ENOMEM) {
        if (p->err)
            *p->err = why;
        return rc;
    }
    if (rc) {
        weft_warn("no times are predicted: %s", why.text);
        weft_known_close(t->known);
        t->known = NULL;
    }
    (void) weft_metrics_get(t->metrics, "perf/steps_per_s", &rate);
    measured.iteration_s = rate > 0 ? 1 / rate : 0;
    for (int32_t c = 1; c < t->flow.n_calls; c++)
        if (p->time[c].n_tasks > 0)
            measured.call_s[c] = p->time[c].last_s - p->time[c].first_s;
    t->noted.n++;
    add(&t->plan.measured_s, &measured, t->noted.n);
    if (t->known)
        add(&t->plan.predicted_s, &predicted, t->noted.n);
    return 0;
}
