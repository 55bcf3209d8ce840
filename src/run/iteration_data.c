/* SPDX-License-Identifier: Apache-2.0 */
/* Samples that come from rows of the data, and metrics of learning them. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "run/iteration.h"

/* Sample i, whose tokens rank 0 writes. */
static int fill(struct weft_iteration *p, int32_t i)
{
    struct weft_trainer *t = p->t;
    struct weft_sample *s = &p->sample[i];
    int32_t field = p->field[WEFT_FIELD_ROLLOUT];
    const struct weft_run_prompt *row = weft_trainer_draw(
        t, (int64_t) p->iteration * p->n + i);
    struct weft_tile_id id = {"sample", "text", 0, -1, -1, 0};
    *s = (struct weft_sample){.prompt = i,
                              .n_prompt = row->n_prompt,
                              .n_total = row->n,
                              .limit = row->n,
                              .token = row->token,
                              .finished = true};
    int rc = weft_tile_create(t->rt, &id, WEFT_MEM_SAMPLES,
                              weft_rollout_bytes(row->n), &s->rollout,
                              p->err);
    if (rc)
        return rc;
    p->prompt[i] = row;
    p->extra[i].field[field] = p->extra[i].home[field] = s->rollout;
    if (!t->recorded && weft_tile_is_here(s->rollout)) {
        struct weft_rollout *r = weft_tile_acquire(s->rollout, WEFT_WRITE);
        *r = (struct weft_rollout){row->n, row->n_prompt, row->n, 1};
        memcpy(weft_rollout_token(r), row->token, (size_t) row->n * 4);
        weft_tile_unacquire(s->rollout);
    }
    return 0;
}

int weft_iteration_data(struct weft_iteration *p)
{
    int rc = weft_iteration_calls_init(p);
    for (int32_t i = 0; i < p->n && !rc; i++) {
        rc = fill(p, i);
        if (!rc)
            rc = weft_iteration_calls_add(p, i);
    }
    return rc ? rc : weft_iteration_calls_end(p);
}

/* ---- Metrics ----------------------------------------------------------- */

static void report_times(const struct weft_iteration *p, double rows)
{
    struct weft_metrics *m = p->t->metrics;
    double dt = weft_clock_s() - p->start_s;
    weft_metrics_set(m, "timing_s/step", dt);
    weft_metrics_set(m, "perf/total_num_tokens", rows);
    weft_metrics_set(m, "perf/time_per_step", dt);
    weft_metrics_set(m, "perf/steps_per_s", 1 / dt);
    weft_metrics_set(m, "perf/throughput",
                     rows / dt / weft_rt_n_devices(p->t->rt));
}

int weft_iteration_report_data(struct weft_iteration *p)
{
    struct weft_metrics *m = p->t->metrics;
    const struct weft_iteration_update *u = &p->update[0];
    struct weft_iteration_sums s;
    int rc = weft_iteration_sum_update(p, u, &s);
    if (rc)
        return rc;
    double n = 0, rows = 0;
    for (int32_t i = 0; i < p->n; i++) {
        n += p->sample[i].n_total - p->sample[i].n_prompt;
        rows += p->sample[i].n_total;
    }
    double nll = s.all[WEFT_STAT_PG_LOSS] / n;
    weft_metrics_set(m, "train/loss", nll);
    weft_metrics_set(m, "train/perplexity", exp(nll));
    weft_metrics_set(m, "train/entropy", s.all[WEFT_STAT_ENTROPY] / n);
    weft_metrics_set(m, "train/grad_norm", weft_iteration_mean_norm(u));
    weft_metrics_set(m, "train/lr", u->lr);
    weft_metrics_set(m, "train/n_tokens", n);
    report_times(p, rows);
    return 0;
}
