/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics of a finished iteration. Sums are over samples in index order, so a
 * metric has the same bits for every placement. Tags are verl's.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "fuse/fuse.h"
#include "run/digest.h"
#include "run/iteration.h"

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
    weft_assert(n_stats <= WEFT_MAX_STATS);
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
int weft_iteration_sum_update(const struct weft_iteration *p,
                              const struct weft_iteration_update *u,
                              struct weft_iteration_sums *out)
{
    *out = (struct weft_iteration_sums){{0}, {0}};
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

double weft_iteration_mean_norm(const struct weft_iteration_update *u)
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

/* Columns over the iteration's samples. */
struct columns {
    double *score, *reward, *length, *prompt;
    double kl_sum, kl_coef, clipped, rows;
    struct weft_k_moments values, returns; /* per token */
};

static void read_sample(const struct weft_iteration *p, int32_t i,
                        struct columns *c)
{
    struct weft_tile *advantage = weft_iteration_home(p, i,
                                                      WEFT_FIELD_ADVANTAGE);
    struct weft_tile *values = weft_iteration_home(p, i, WEFT_FIELD_VALUE);
    const struct weft_advantage *a = weft_tile_acquire(advantage, WEFT_READ);
    c->score[i] = a->raw_score;
    c->reward[i] = a->reward_sum;
    c->length[i] = a->n;
    c->prompt[i] = p->sample[i].n_prompt;
    c->kl_sum += a->kl_sum;
    c->kl_coef = a->kl_coef;
    c->rows += p->sample[i].n_total;
    c->clipped += a->ended ? 0 : 1;
    weft_k_moments_add(&c->returns, a->n, weft_return_of(a));
    if (values) {
        weft_k_moments_add(&c->values, a->n,
                           weft_tile_acquire(values, WEFT_READ));
        weft_tile_unacquire(values);
    }
    weft_tile_unacquire(advantage);
}

static void set3(struct weft_metrics *m, const char *tag, double mean,
                 double max, double min)
{
    weft_metrics_setf(m, mean, "%s/mean", tag);
    weft_metrics_setf(m, max, "%s/max", tag);
    weft_metrics_setf(m, min, "%s/min", tag);
}

/* Warns if all scores are equal: nothing can be learned from them, and usually
 * the reward finds no answer in any response. It warns again only after scores
 * have differed. */
static void warn_equal_scores(const struct weft_iteration *p,
                              const struct columns *c)
{
    bool equal = p->n > 1;
    for (int32_t i = 1; i < p->n && equal; i++)
        equal = c->score[i] == c->score[0];
    if (equal && !p->t->scores_were_equal)
        weft_warn("iteration %d: all %d scores are %g, which tells no "
                  "response from another; look at samples/ and at the "
                  "reward's keys",
                  p->iteration + 1, p->n, c->score[0]);
    p->t->scores_were_equal = equal;
}

static void report_samples(const struct weft_iteration *p,
                           const struct columns *c)
{
    struct weft_metrics *m = p->t->metrics;
    const struct weft_config *config = &p->t->config;
    size_t n = (size_t) p->n;
    const struct weft_k_moments *values = &c->values, *returns = &c->returns;
    double tokens = (double) returns->n;
    warn_equal_scores(p, c);
    weft_metrics_set_spread(m, "critic/score", n, c->score);
    weft_metrics_set_spread(m, "critic/rewards", n, c->reward);
    const struct weft_moments *a = weft_tile_acquire(p->moments, WEFT_READ);
    set3(m, "critic/advantages", (a->of.mean - a->mean) * a->rstd,
         (a->of.max - a->mean) * a->rstd, (a->of.min - a->mean) * a->rstd);
    /* an advantage is its return minus its value */
    if (values->n > 0)
        weft_metrics_set(
            m, "critic/vf_explained_var",
            1 - a->of.squares / tokens / (returns->squares / tokens + 1e-5));
    weft_tile_unacquire(p->moments);
    set3(m, "critic/returns", returns->mean, returns->max, returns->min);
    if (values->n > 0)
        set3(m, "critic/values", values->mean, values->max, values->min);
    if (config->policy.kl_place == WEFT_KL_IN_REWARD) {
        weft_metrics_set(m, "actor/reward_kl_penalty", c->kl_sum / tokens);
        weft_metrics_set(m, "actor/reward_kl_penalty_coeff", c->kl_coef);
    }
    if (config->policy.kl_place != WEFT_KL_NOWHERE)
        weft_metrics_set(m, "objective/kl", c->kl_sum / p->n);
    weft_metrics_set_spread(m, "response_length", n, c->length);
    weft_metrics_set(m, "response_length/clip_ratio", c->clipped / p->n);
    weft_metrics_set_spread(m, "prompt_length", n, c->prompt);
    for (int32_t r = 0; r < config->n_rewards; r++) {
        double sum = 0;
        for (int32_t i = 0; i < p->n; i++)
            sum += p->part[i][r];
        weft_metrics_setf(m, sum / p->n, "reward/%s/mean",
                          config->reward[r].name);
    }
}

static int report_values(const struct weft_iteration *p,
                         const struct weft_iteration_update *u)
{
    struct weft_metrics *m = p->t->metrics;
    struct weft_iteration_sums s;
    int rc = weft_iteration_sum_update(p, u, &s);
    if (rc)
        return rc;
    double n = fmax(s.all[WEFT_VSTAT_TOKENS], 1); /* 0: all cut */
    /* LOSS carries each token's weight: a mini-batch's sum is its mean. */
    weft_metrics_set(m, "critic/vf_loss",
                     s.all[WEFT_VSTAT_LOSS] / u->n_norms);
    weft_metrics_set(m, "critic/vf_clipfrac", s.all[WEFT_VSTAT_CLIPPED] / n);
    weft_metrics_set(m, "critic/vpred_mean", s.all[WEFT_VSTAT_VALUE] / n);
    return 0;
}

static int report_policy(const struct weft_iteration *p,
                         const struct weft_iteration_update *u)
{
    struct weft_metrics *m = p->t->metrics;
    const struct weft_config *c = &p->t->config;
    struct weft_iteration_sums s;
    int rc = weft_iteration_sum_update(p, u, &s);
    if (rc)
        return rc;
    double n = fmax(s.all[WEFT_STAT_TOKENS], 1); /* 0: all cut */
    weft_metrics_set(m, "actor/pg_loss", s.all[WEFT_STAT_PG_LOSS] / n);
    weft_metrics_set(m, "actor/pg_clipfrac", s.all[WEFT_STAT_CLIPPED] / n);
    weft_metrics_set(m, "actor/pg_clipfrac_lower",
                     s.all[WEFT_STAT_CLIPPED_LOWER] / n);
    weft_metrics_set(m, "actor/ppo_kl", s.all[WEFT_STAT_PPO_KL] / n);
    weft_metrics_set(m, "actor/entropy", s.all[WEFT_STAT_ENTROPY] / n);
    if (c->policy.kl_place == WEFT_KL_IN_LOSS) {
        weft_metrics_set(m, "actor/kl_loss", s.all[WEFT_STAT_KL] / n);
        weft_metrics_set(m, "actor/kl_coef", (double) c->policy.kl_coef);
    }
    weft_metrics_set(m, "rollout_train_logprob_abs_diff_max",
                     s.first[WEFT_STAT_LOGP_DIFF_MAX]);
    weft_metrics_set(m, "actor/first_ratio_abs_dev_max",
                     s.first[WEFT_STAT_RATIO_MAX_DEV]);
    return 0;
}

/* A role that was not trained in this iteration has no norms. */
static int report_updates(const struct weft_iteration *p)
{
    struct weft_metrics *m = p->t->metrics;
    int rc = 0;
    for (int32_t r = 0; r < p->t->flow.n_roles && !rc; r++) {
        const struct weft_iteration_update *u = &p->update[r];
        const char *role = p->t->flow.role[r].name;
        if (u->n_norms == 0)
            continue;
        rc = u->loss == WEFT_LOSS_VALUE ? report_values(p, u)
                                        : report_policy(p, u);
        weft_metrics_setf(m, weft_iteration_mean_norm(u), "%s/grad_norm",
                          role);
        weft_metrics_setf(m, u->lr, "%s/lr", role);
    }
    return rc;
}

static bool offloads(const struct weft_trainer *t)
{
    bool any = false;
    for (int32_t r = 0; r < t->flow.n_roles; r++)
        any = any || t->model[r].offload;
    return any;
}

static void report_times(const struct weft_iteration *p,
                         const struct columns *c)
{
    struct weft_rt *rt = p->t->rt;
    struct weft_metrics *m = p->t->metrics;
    double turn = weft_clock_s() - p->start_s;
    const struct weft_mesh *mesh = &p->t->plan.call[p->t->gen.call].mesh;
    struct weft_iteration_times s;
    size_t now, peak, total = 0;
    weft_iteration_times_get(&p->t->flow, p->time, &p->rewards, &s);
    weft_metrics_set(m, "timing_s/gen", s.gen);
    weft_metrics_set(m, "timing_s/reward", s.reward);
    weft_metrics_set(m, "timing_s/ref", s.ref);
    weft_metrics_set(m, "timing_s/values", s.values);
    weft_metrics_set(m, "timing_s/adv", s.adv);
    weft_metrics_set(m, "timing_s/update_critic", s.update_critic);
    weft_metrics_set(m, "timing_s/update_actor", s.update_actor);
    weft_metrics_set(m, "timing_s/step", s.step);
    weft_metrics_set(m, "perf/total_num_tokens", c->rows);
    weft_metrics_set(m, "perf/time_per_step", s.step);
    weft_metrics_set(m, "perf/steps_per_s", 1 / turn);
    weft_metrics_set(m, "perf/throughput",
                     c->rows / turn / weft_rt_n_devices(rt));
    weft_metrics_set(m, "perf/generation_tokens_per_s",
                     (double) p->rollout.n_decoded * weft_mesh_size(mesh)
                         / s.gen_work);
    if (offloads(p->t)) {
        weft_metrics_set(m, "perf/offload_s", s.offload);
        weft_metrics_set(m, "perf/offload_hidden_ratio",
                         s.offload > 0 ? s.hidden / s.offload : 0);
    }
    long records, most_records;
    weft_rt_records(rt, &records, &most_records);
    weft_metrics_set(m, "perf/max_task_records", (double) most_records);
    for (int k = 0; k < WEFT_N_MEM_CLASSES; k++) {
        weft_rt_memory(rt, (enum weft_mem_class) k, &now, &peak);
        total += weft_mem_class_at_place((enum weft_mem_class) k) ? peak : 0;
    }
    weft_metrics_set(m, "perf/max_memory_allocated_gb",
                     (double) total / 1073741824.0);
}

/* Reads the scores of reward models. */
static void read_model_scores(struct weft_iteration *p)
{
    const struct weft_dataflow *flow = &p->t->flow;
    for (int32_t k = 0; k < p->n_calls; k++) {
        int32_t f = p->call[k].field;
        int32_t reward = flow->role[p->call[k].model->role].index;
        if (flow->field[f].type != WEFT_FIELD_SCORE)
            continue;
        for (int32_t i = 0; i < p->n; i++) {
            struct weft_tile *tile = p->extra[i].home[f];
            p->part[i][reward] = (double) *(const float *) weft_tile_acquire(
                tile, WEFT_READ);
            weft_tile_unacquire(tile);
        }
    }
}

static int write_samples(const struct weft_iteration *p,
                         const struct columns *c)
{
    const struct weft_config *config = &p->t->config;
    int32_t n = config->samples_kept < 0 || config->samples_kept > p->n
                  ? p->n
                  : config->samples_kept;
    struct weft_sample_record *record = weft_alloc((size_t) n,
                                                   sizeof *record);
    if (!record)
        return weft_err_nomem(p->err, "samples", (size_t) n * sizeof *record);
    for (int32_t i = 0; i < n; i++) {
        const struct weft_iteration_text *text = &p->text[i];
        record[i] = (struct weft_sample_record){
            .index = i,
            .prompt = text->prompt,
            .response = text->response,
            .label = text->row.label,
            .score = c->score[i],
            .n_tokens = text->n_tokens,
            .ended = text->ended,
        };
        memcpy(record[i].part, p->part[i], sizeof record[i].part);
    }
    int rc = weft_samples_write(config->run_dir, p->iteration + 1,
                                config->reward, config->n_rewards, n, record,
                                p->err);
    weft_free(record);
    return rc;
}

int weft_iteration_report(struct weft_iteration *p)
{
    size_t n = (size_t) p->n;
    double *column = weft_alloc(4 * n, sizeof *column);
    if (!column)
        return weft_err_nomem(p->err, "metrics", 4 * n * sizeof *column);
    struct columns c = {.score = column,
                        .reward = column + n,
                        .length = column + 2 * n,
                        .prompt = column + 3 * n};
    for (int32_t i = 0; i < p->n; i++)
        read_sample(p, i, &c);
    read_model_scores(p);
    report_samples(p, &c);
    int rc = report_updates(p);
    if (!rc) {
        report_times(p, &c);
        rc = p->t->config.samples_kept == 0 ? 0 : write_samples(p, &c);
    }
    if (!rc)
        rc = weft_fuse_report(p->t->fuse,
                              p->t->iteration + 1 >= p->t->config.iterations,
                              p->t->metrics, p->err);
    if (!rc)
        rc = weft_digest_write(p);
    weft_free(column);
    return rc;
}
