/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics of learning the data's responses. Tags of preferences are TRL's:
 * those of its DPO and KTO trainers, and of its reward trainer.
 */
#include <math.h>

#include "base/clock.h"
#include "run/iteration.h"
#include "run/plan_needs.h"

static void report_sft(const struct weft_iteration *p, const double *sum,
                       double n_tokens)
{
    struct weft_metrics *m = p->t->metrics;
    double nll = sum[WEFT_STAT_PG_LOSS] / n_tokens;
    weft_metrics_set(m, "train/loss", nll);
    weft_metrics_set(m, "train/perplexity", exp(nll));
    weft_metrics_set(m, "train/entropy", sum[WEFT_STAT_ENTROPY] / n_tokens);
}

/* Sets the mean of n numbers; of none there is no metric. */
static void set_mean(struct weft_metrics *m, const char *tag, double sum,
                     double n)
{
    if (n > 0)
        weft_metrics_set(m, tag, sum / n);
}

/* A step's loss is a sum with weights. KTO has no pairs: its margin is the
 * difference of means. */
static void report_preferences(const struct weft_iteration *p,
                               const double *sum, bool pairs)
{
    struct weft_metrics *m = p->t->metrics;
    double chosen = sum[WEFT_PSTAT_CHOSEN],
           rejected = sum[WEFT_PSTAT_REJECTED];
    weft_metrics_set(m, "train/loss", sum[WEFT_PSTAT_LOSS]);
    set_mean(m, "rewards/chosen", sum[WEFT_PSTAT_CHOSEN_REWARD], chosen);
    set_mean(m, "rewards/rejected", sum[WEFT_PSTAT_REJECTED_REWARD],
             rejected);
    if (pairs)
        set_mean(m, "rewards/accuracies", sum[WEFT_PSTAT_ACCURACY], chosen);
    if (pairs)
        set_mean(m, "rewards/margins", sum[WEFT_PSTAT_MARGIN], chosen);
    else if (chosen > 0 && rejected > 0)
        weft_metrics_set(m, "rewards/margins",
                         sum[WEFT_PSTAT_CHOSEN_REWARD] / chosen
                             - sum[WEFT_PSTAT_REJECTED_REWARD] / rejected);
    set_mean(m, "logps/chosen", sum[WEFT_PSTAT_CHOSEN_LOGP], chosen);
    set_mean(m, "logps/rejected", sum[WEFT_PSTAT_REJECTED_LOGP], rejected);
    if (p->kl) {
        weft_metrics_set(
            m, "kl", *(const double *) weft_tile_acquire(p->kl, WEFT_READ));
        weft_tile_unacquire(p->kl);
    }
}

static void report_scores(const struct weft_iteration *p, const double *sum)
{
    struct weft_metrics *m = p->t->metrics;
    double n = sum[WEFT_PSTAT_CHOSEN];
    weft_metrics_set(m, "train/loss", sum[WEFT_PSTAT_LOSS]);
    weft_metrics_set(m, "accuracy", sum[WEFT_PSTAT_ACCURACY] / n);
    weft_metrics_set(m, "margin", sum[WEFT_PSTAT_MARGIN] / n);
    weft_metrics_set(
        m, "mean_reward",
        (sum[WEFT_PSTAT_CHOSEN_REWARD] + sum[WEFT_PSTAT_REJECTED_REWARD])
            / (2 * n));
    weft_metrics_set(m, "rewards/chosen", sum[WEFT_PSTAT_CHOSEN_REWARD] / n);
    weft_metrics_set(m, "rewards/rejected",
                     sum[WEFT_PSTAT_REJECTED_REWARD] / n);
}

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
    if (u->loss == WEFT_LOSS_SFT)
        report_sft(p, s.all, n);
    else if (u->loss == WEFT_LOSS_BRADLEY_TERRY)
        report_scores(p, s.all);
    else
        report_preferences(p, s.all, u->loss == WEFT_LOSS_PAIRS);
    weft_metrics_set(m, "train/grad_norm", weft_iteration_mean_norm(u));
    weft_metrics_set(m, "train/lr", u->lr);
    weft_metrics_set(m, "train/n_tokens", n);
    report_times(p, rows);
    return 0;
}
