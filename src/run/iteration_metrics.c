/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics of a finished iteration, as the algorithm's table says. Sums are over
 * samples in index order, so a metric has the same bits for every placement.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "fuse/fuse.h"
#include "run/digest.h"
#include "run/iteration.h"
#include "run/predict/times.h"

enum { MAX_STATS = 32 };

/* Sums of an update's statistics over samples, in the order of their indices:
 * of all its epochs, and of its first step alone. */
struct sums {
    double all[MAX_STATS], first[MAX_STATS];
};

static bool is_maximum(enum weft_loss loss, int32_t k)
{
    return loss == WEFT_LOSS_POLICY
        && (k == WEFT_STAT_RATIO_MAX_DEV || k == WEFT_STAT_LOGP_DIFF_MAX);
}

/* Adds entries [from, to) of the update's statistics, by sample index. */
static int add_stats(const struct weft_iteration *p,
                     const struct weft_iteration_update *u, int32_t from,
                     int32_t to, double *sum)
{
    int32_t n_stats = weft_loss_n_stats(u->loss);
    weft_assert(n_stats <= MAX_STATS);
    size_t row = (size_t) n_stats;
    double *by_sample = weft_alloc((size_t) p->n * row, sizeof *by_sample);
    if (!by_sample)
        return weft_err_nomem(p->err, "metrics", (size_t) p->n * row * 8);
    for (int32_t k = from; k < to; k++) {
        const struct weft_g_stats *g = &u->stats[k];
        const double *v = weft_tile_acquire(g->tile, WEFT_READ);
        for (int32_t i = 0; i < g->n; i++)
            memcpy(by_sample + (size_t) g->sample[i] * row,
                   v + (size_t) i * row, row * sizeof *v);
        weft_tile_unacquire(g->tile);
    }
    for (int32_t i = 0; i < p->n; i++)
        for (int32_t k = 0; k < n_stats; k++) {
            double v = by_sample[(size_t) i * row + (size_t) k];
            sum[k] = is_maximum(u->loss, k) ? fmax(sum[k], v) : sum[k] + v;
        }
    weft_free(by_sample);
    return 0;
}

/* Sums an update's statistics, one epoch after another: a sample has one entry
 * per epoch, and add_stats() takes one entry of each sample. */
static int sum_update(const struct weft_iteration *p,
                      const struct weft_iteration_update *u, struct sums *out)
{
    *out = (struct sums){{0}, {0}};
    int32_t from = 0, seen = 0;
    int rc = add_stats(p, u, 0, u->first_stats, out->first);
    for (int32_t k = 0; k < u->n_stats && !rc; k++) {
        seen += u->stats[k].n;
        if (seen == p->n) { /* the end of an epoch */
            rc = add_stats(p, u, from, k + 1, out->all);
            from = k + 1;
            seen = 0;
        }
    }
    return rc;
}

static double mean_norm(const struct weft_iteration_update *u)
{
    double sum = 0;
    for (int32_t i = 0; i < u->n_norms; i++) {
        const struct weft_grad_norm *norm = weft_tile_acquire(u->norm[i],
                                                              WEFT_READ);
        sum += norm->norm;
        weft_tile_unacquire(u->norm[i]);
    }
    return sum / u->n_norms;
}

/* Optimizer steps that a gate has left out. */
static double n_left_out(const struct weft_iteration_update *u)
{
    int32_t n = 0;
    for (int32_t i = 0; i < u->n_norms; i++) {
        const struct weft_grad_norm *norm = weft_tile_acquire(u->norm[i],
                                                              WEFT_READ);
        n += norm->skip != 0;
        weft_tile_unacquire(u->norm[i]);
    }
    return n;
}

/* What was measured. */
struct measured {
    struct weft_iteration *p;
    double *column[WEFT_N_COLUMNS]; /* (n) each */
    double rows;
    struct weft_k_moments values, returns, probs; /* per token */
    struct sums sums[WEFT_MAX_ROLES];             /* of roles trained */
    struct weft_iteration_times time;
};

/* The score of the response that a sample is compared with; 0: of none. */
static double baseline_of(const struct weft_iteration *p, int32_t i)
{
    int32_t other = weft_iteration_baseline(p, i);
    if (other < 0)
        return 0;
    const struct weft_advantage *a = weft_tile_acquire(p->advantage[other],
                                                       WEFT_READ);
    double score = a->raw_score;
    weft_tile_unacquire(p->advantage[other]);
    return score;
}

/* How far the probabilities of a response's tokens, as generation had them,
 * are from those of inference. */
static void read_probs(struct measured *c, int32_t i)
{
    const struct weft_iteration *p = c->p;
    struct weft_tile *own = weft_iteration_home(p, i, WEFT_FIELD_ROLLOUT);
    struct weft_tile *other = weft_iteration_home(p, i, WEFT_FIELD_OLD_LOGP);
    if (!other)
        return;
    const struct weft_rollout *r = weft_tile_acquire(own, WEFT_READ);
    const float *a = weft_rollout_logp(r) + r->n_prompt;
    const float *b = weft_tile_acquire(other, WEFT_READ);
    for (int32_t k = 0; k < r->n_total - r->n_prompt; k++) {
        float diff = (float) fabs(exp((double) a[k]) - exp((double) b[k]));
        weft_k_moments_add(&c->probs, 1, &diff);
    }
    weft_tile_unacquire(other);
    weft_tile_unacquire(own);
}

static void read_advantage(struct measured *c, int32_t i)
{
    const struct weft_iteration *p = c->p;
    struct weft_tile *advantage = weft_iteration_home(p, i,
                                                      WEFT_FIELD_ADVANTAGE);
    struct weft_tile *values = weft_iteration_home(p, i, WEFT_FIELD_VALUE);
    const struct weft_advantage *a = weft_tile_acquire(advantage, WEFT_READ);
    c->column[WEFT_OF_SCORE][i] = a->raw_score;
    c->column[WEFT_OF_REWARD][i] = a->reward_sum;
    c->column[WEFT_OF_KL][i] = a->kl_sum;
    c->column[WEFT_OF_KL_WEIGHT][i] = a->kl_coef;
    c->column[WEFT_OF_CUT][i] = a->ended ? 0 : 1;
    c->column[WEFT_OF_BASELINE][i] = baseline_of(p, i);
    weft_k_moments_add(&c->returns, a->n, weft_return_of(a));
    read_probs(c, i);
    if (values) {
        weft_k_moments_add(&c->values, a->n,
                           weft_tile_acquire(values, WEFT_READ));
        weft_tile_unacquire(values);
    }
    weft_tile_unacquire(advantage);
}

static void read_samples(struct measured *c)
{
    const struct weft_iteration *p = c->p;
    for (int32_t i = 0; i < p->n; i++) {
        const struct weft_sample *s = &p->sample[i];
        c->column[WEFT_OF_RESPONSE][i] = weft_iteration_learned(p, i);
        c->column[WEFT_OF_PROMPT][i] = s->n_prompt;
        c->rows += s->n_total;
        if (p->set->of[WEFT_FIELD_ADVANTAGE] >= 0)
            read_advantage(c, i);
    }
}

/* A role that was not trained in this iteration has no norms. */
static int read_updates(struct measured *c)
{
    int rc = 0;
    for (int32_t r = 0; r < c->p->t->flow.n_roles && !rc; r++)
        if (c->p->update[r].n_norms > 0)
            rc = sum_update(c->p, &c->p->update[r], &c->sums[r]);
    return rc;
}

/* ---- The table --------------------------------------------------------- */

static void set3(struct weft_metrics *m, const char *tag, double mean,
                 double max, double min)
{
    weft_metrics_setf(m, mean, "%s/mean", tag);
    weft_metrics_setf(m, max, "%s/max", tag);
    weft_metrics_setf(m, min, "%s/min", tag);
}

/* One number of each sample. */
static void report_column(const struct measured *c,
                          const struct weft_metric *metric)
{
    struct weft_metrics *m = c->p->t->metrics;
    const double *v = c->column[metric->of];
    int32_t n = c->p->n;
    double sum = 0;
    if (metric->how == WEFT_SPREAD) {
        weft_metrics_set_spread(m, metric->tag, (size_t) n, v);
        return;
    }
    for (int32_t i = 0; i < n; i++)
        sum += v[i];
    weft_metrics_set(m, metric->tag,
                     metric->how == WEFT_MEAN ? sum / n
                     : metric->how == WEFT_PER_TOKEN
                         ? sum / (double) c->returns.n
                     : metric->how == WEFT_LAST ? v[n - 1]
                                                : sum);
}

/* As verl names them. */
static void report_probs(const struct measured *c, const char *tag)
{
    struct weft_metrics *m = c->p->t->metrics;
    const struct weft_k_moments *x = &c->probs;
    double n = fmax((double) x->n - 1, 1);
    weft_metrics_setf(m, x->max, "%s_max", tag);
    weft_metrics_setf(m, x->mean, "%s_mean", tag);
    weft_metrics_setf(m, sqrt(x->squares / n), "%s_std", tag);
}

/* Of advantages as the policy learns from them; where mini-batches whiten
 * theirs, in the first epoch. */
static void report_advantages(const struct measured *c, const char *tag)
{
    const struct weft_iteration *p = c->p;
    const struct weft_iteration_update *u = &p->update[0];
    bool whole = u->n_moments == 0;
    double sum = 0, n = 0, max = -INFINITY, min = INFINITY;
    for (int32_t k = 0; k < (whole ? 1 : p->t->settings.mini_batches); k++) {
        struct weft_tile *tile = whole ? p->moments : u->moments[k];
        const struct weft_moments *a = weft_tile_acquire(tile, WEFT_READ);
        sum += (double) a->of.n * (a->of.mean - a->mean) * a->rstd;
        n += (double) a->of.n;
        max = fmax(max, (a->of.max - a->mean) * a->rstd);
        min = fmin(min, (a->of.min - a->mean) * a->rstd);
        weft_tile_unacquire(tile);
    }
    set3(c->p->t->metrics, tag, sum / n, max, min);
}

/* Moments of tokens; of values only if there are any. */
static void report_tokens(const struct measured *c,
                          const struct weft_metric *metric)
{
    struct weft_metrics *m = c->p->t->metrics;
    const struct weft_k_moments *values = &c->values, *returns = &c->returns;
    double tokens = (double) returns->n;
    const struct weft_moments *a = weft_tile_acquire(c->p->moments,
                                                     WEFT_READ);
    if (metric->of == WEFT_OF_ADVANTAGES)
        report_advantages(c, metric->tag);
    else if (metric->of == WEFT_OF_RETURNS)
        set3(m, metric->tag, returns->mean, returns->max, returns->min);
    else if (metric->of == WEFT_OF_ROLLOUT_PROBS)
        report_probs(c, metric->tag);
    else if (metric->of == WEFT_OF_VALUES && values->n > 0)
        set3(m, metric->tag, values->mean, values->max, values->min);
    else if (values->n > 0) /* an advantage is its return minus its value */
        weft_metrics_set(
            m, metric->tag,
            1 - a->of.squares / tokens / (returns->squares / tokens + 1e-5));
    weft_tile_unacquire(c->p->moments);
}

static void report_each_reward(const struct measured *c,
                               const struct weft_metric *metric)
{
    const struct weft_iteration *p = c->p;
    const struct weft_config *config = &p->t->config;
    for (int32_t r = 0; r < config->n_rewards; r++) {
        double sum = 0;
        for (int32_t i = 0; i < p->n; i++)
            sum += p->part[i][r];
        weft_metrics_setf(p->t->metrics, sum / p->n, "%s/%s/mean",
                          metric->tag, config->reward[r].name);
    }
}

/* False: it is the mean of nothing. */
static bool statistic(const struct weft_metric *metric, const double *sum,
                      int32_t n_steps, double *out)
{
    const double *v = sum + metric->statistic, *n = sum + metric->by;
    switch (metric->how) {
    case WEFT_PER_STEP:
        *out = v[0] / n_steps;
        return true;
    case WEFT_PER_TOKEN:
        *out = v[0] / fmax(n[0], 1);
        return true;
    case WEFT_MEAN:
        *out = v[0] / n[0];
        return n[0] > 0;
    case WEFT_PERPLEXITY:
        *out = exp(v[0] / n[0]);
        return n[0] > 0;
    case WEFT_DIFFERENCE:
        *out = v[0] / n[0] - v[1] / n[1];
        return n[0] > 0 && n[1] > 0;
    case WEFT_MIDDLE:
        *out = (v[0] + v[1]) / (2 * n[0]);
        return n[0] > 0;
    default:
        *out = v[0];
        return true;
    }
}

static void report_update(const struct measured *c,
                          const struct weft_metric *metric)
{
    const struct weft_trainer *t = c->p->t;
    int32_t r = 0;
    while (r < t->flow.n_roles && t->flow.role[r].slot != metric->slot)
        r++;
    const struct weft_iteration_update *u = &c->p->update[r];
    if (r == t->flow.n_roles || u->n_norms == 0)
        return;
    const struct weft_loss_args *loss = &t->settings.learn[metric->slot].loss;
    double v = 0;
    bool is = true;
    if (metric->of == WEFT_OF_NORM)
        v = mean_norm(u);
    else if (metric->of == WEFT_OF_LEFT_OUT)
        v = n_left_out(u);
    else if (metric->of == WEFT_OF_RATE)
        v = u->lr;
    else if (metric->of == WEFT_OF_LOSS_KL_COEF)
        v = (double) loss->policy.kl_coef;
    else if (metric->of == WEFT_OF_FIRST_STEP)
        is = statistic(metric, c->sums[r].first, 1, &v);
    else
        is = statistic(metric, c->sums[r].all, u->n_norms, &v);
    if (is)
        weft_metrics_set(t->metrics, metric->tag, v);
}

/* The KL that a step of the graph estimates. */
static void report_kl(const struct measured *c,
                      const struct weft_metric *metric)
{
    const struct weft_iteration *p = c->p;
    if (!p->kl)
        return;
    const double *kl = weft_tile_acquire(p->kl, WEFT_READ);
    weft_metrics_set(p->t->metrics, metric->tag, *kl);
    weft_tile_unacquire(p->kl);
}

static void report_time(const struct measured *c,
                        const struct weft_metric *metric)
{
    weft_metrics_set(c->p->t->metrics, metric->tag,
                     weft_iteration_time(&c->time, metric->of));
}

static void report_one(const struct measured *c,
                       const struct weft_metric *metric)
{
    if (metric->of < WEFT_N_COLUMNS)
        report_column(c, metric);
    else if (metric->of < WEFT_OF_KL_ESTIMATE)
        report_tokens(c, metric);
    else if (metric->of == WEFT_OF_KL_ESTIMATE)
        report_kl(c, metric);
    else if (metric->of == WEFT_OF_EACH_REWARD)
        report_each_reward(c, metric);
    else if (metric->of < WEFT_OF_GENERATION)
        report_update(c, metric);
    else
        report_time(c, metric);
}

static void report_table(const struct measured *c)
{
    const struct weft_trainer *t = c->p->t;
    const struct weft_metric *const *list =
        weft_algorithm_of(&t->config)->told->metrics;
    for (; *list; list++)
        for (const struct weft_metric *m = *list; m->tag; m++)
            if (!m->when || m->when(&t->settings))
                report_one(c, m);
}

/* ---- Of every run ------------------------------------------------------ */

static bool offloads(const struct weft_trainer *t)
{
    bool any = false;
    for (int32_t r = 0; r < t->flow.n_roles; r++)
        any = any || t->model[r].offload;
    return any;
}

static void report_memory(const struct weft_iteration *p)
{
    struct weft_metrics *m = p->t->metrics;
    size_t now, peak, total = 0;
    long records, most_records;
    weft_rt_records(p->t->rt, &records, &most_records);
    weft_metrics_set(m, "perf/max_task_records", (double) most_records);
    for (int k = 0; k < WEFT_N_MEM_CLASSES; k++) {
        weft_rt_memory(p->t->rt, (enum weft_mem_class) k, &now, &peak);
        total += weft_mem_class_at_place((enum weft_mem_class) k) ? peak : 0;
    }
    weft_metrics_set(m, "perf/max_memory_allocated_gb",
                     (double) total / 1073741824.0);
}

/* The devices on which some call generates. */
static int32_t n_generating(const struct weft_trainer *t)
{
    const struct weft_plan *plan = &t->plan;
    int32_t n = 0;
    for (int32_t d = 0; d < plan->n_nodes * plan->n_devices; d++) {
        bool does = false;
        for (int32_t i = 1; i < t->flow.n_calls; i++)
            if (t->flow.call[i].kind == WEFT_GENERATE)
                does = does || weft_mesh_has(plan, &plan->call[i].mesh, d);
        n += does;
    }
    return n;
}

/* The micro-batches of role 0's updates, and what they held. */
static void report_micro_batches(const struct measured *c)
{
    const struct weft_iteration *p = c->p;
    struct weft_metrics *m = p->t->metrics;
    int32_t n = p->update[0].n_stats;
    if (n == 0) /* it was not trained */
        return;
    weft_metrics_set(m, "perf/micro_batches", n);
    weft_metrics_set(m, "perf/tokens_per_micro_batch",
                     c->rows * p->t->settings.epochs / n);
}

/* Seconds from the first task of training to the last of generation; 0: it
 * began later. */
static double began_early(const struct weft_iteration *p)
{
    double trains = INFINITY, generates = 0;
    for (int32_t c = 1; c < p->t->flow.n_calls; c++) {
        const struct weft_call_time *x = &p->time[c];
        if (x->n_tasks == 0)
            continue;
        if (p->t->flow.call[c].kind == WEFT_GENERATE)
            generates = fmax(generates, x->last_s);
        else if (weft_flow_trains(&p->t->flow, c))
            trains = fmin(trains, x->first_s);
    }
    return fmax(generates - trains, 0);
}

static void report_moves(const struct measured *c, double turn)
{
    struct weft_metrics *m = c->p->t->metrics;
    double s = c->time.waited / weft_rt_n_devices(c->p->t->rt);
    if (s < 0)
        return;
    weft_metrics_set(m, "timing_s/moves_exposed", s);
    weft_metrics_set(m, "sched/moves_exposed_ratio", s / turn);
}

/* A step on the data's samples takes the time of its turn. */
static void report_speed(const struct measured *c, bool generates)
{
    const struct weft_iteration *p = c->p;
    struct weft_metrics *m = p->t->metrics;
    double turn = weft_clock_s() - p->start_s;
    double step = generates ? c->time.step : turn;
    weft_metrics_set(m, "timing_s/step", step);
    weft_metrics_set(m, "perf/total_num_tokens", c->rows);
    weft_metrics_set(m, "perf/time_per_step", step);
    weft_metrics_set(m, "perf/steps_per_s", 1 / turn);
    weft_metrics_set(m, "perf/throughput",
                     c->rows / turn / weft_rt_n_devices(p->t->rt));
    report_micro_batches(c);
    report_moves(c, turn);
    if (!generates)
        return;
    weft_metrics_set(m, "perf/generation_tokens_per_s",
                     (double) p->rollout.n_decoded * n_generating(p->t)
                         / c->time.gen_work);
    if (c->time.gen_infer > 0) {
        weft_metrics_set(m, "timing_s/gen_infer", c->time.gen_infer);
        weft_metrics_set(m, "sched/overlap_ratio", c->time.overlap);
    }
    weft_metrics_set(m, "gen/kv_blocks", p->rollout.most_pages);
    weft_metrics_set(m, "gen/prefix_hit_tokens",
                     (double) p->rollout.n_shared);
    weft_metrics_set(m, "gen/preempted", (double) p->rollout.n_preempted);
    weft_metrics_set(m, "gen/long_tail_share",
                     (double) p->rollout.n_tail_turns
                         / (double) weft_max64(p->rollout.n_turns, 1));
    weft_metrics_set(m, "gen/staleness", p->stale);
    if (p->as_completed) {
        weft_metrics_set(m, "train/early_mini_batches", p->n_early);
        weft_metrics_set(m, "train/began_early", began_early(p));
    }
    weft_metrics_set(m, "gen/migrated", p->rollout.n_moved);
    weft_metrics_set(m, "gen/moved_caches", p->rollout.n_cached);
    weft_metrics_set(m, "gen/freed_instances", p->rollout.n_freed);
    if (p->most_reward_s > 0)
        weft_metrics_set(m, "perf/reward_hidden_ratio",
                         fmax(1 - p->reward_waits_s / p->most_reward_s, 0));
    if (offloads(p->t)) {
        weft_metrics_set(m, "perf/offload_s", c->time.offload);
        weft_metrics_set(
            m, "perf/offload_hidden_ratio",
            c->time.offload > 0 ? c->time.hidden / c->time.offload : 0);
    }
    report_memory(p);
}

/* Files beside the metrics. */
static int write_files(const struct weft_iteration *p)
{
    struct weft_trainer *t = p->t;
    int rc = weft_fuse_report(t->fuse, t->iteration + 1 >= t->n_iterations,
                              t->metrics, p->err);
    return rc ? rc : weft_digest_write(p);
}

int weft_iteration_report(struct weft_iteration *p)
{
    bool generates = weft_config_generates(&p->t->config);
    size_t n = (size_t) p->n;
    double *column = weft_alloc(WEFT_N_COLUMNS * n, sizeof *column);
    struct measured *c = weft_alloc(1, sizeof *c);
    int rc = column && c
               ? 0
               : weft_err_nomem(p->err, "metrics",
                                WEFT_N_COLUMNS * n * sizeof *column);
    if (!rc) {
        c->p = p;
        for (size_t k = 0; k < WEFT_N_COLUMNS; k++)
            c->column[k] = column + k * n;
        read_samples(c);
        if (generates)
            weft_iteration_model_scores(p);
        weft_iteration_times_get(&p->t->flow, p->time, &p->rewards, &c->time);
        rc = read_updates(c);
    }
    if (!rc) {
        report_table(c);
        report_speed(c, generates);
        rc = weft_times_note(p);
        if (!generates)
            weft_metrics_set(p->t->metrics, "epoch",
                             weft_prompts_epoch(p->t, p->iteration));
        if (!rc && generates)
            rc = weft_iteration_report_samples(p, c->column[WEFT_OF_SCORE],
                                               c->column[WEFT_OF_BASELINE]);
        rc = rc ? rc : write_files(p);
    }
    weft_free(c);
    weft_free(column);
    return rc;
}
