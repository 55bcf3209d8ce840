/* SPDX-License-Identifier: Apache-2.0 */
#include "record/metrics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

struct entry {
    char *tag;
    double value;
};

struct weft_metrics {
    struct entry *entry;
    size_t n, room;
    bool failed;
};

int weft_metrics_create(struct weft_metrics **out, struct weft_err *err)
{
    struct weft_metrics *m = weft_alloc(1, sizeof *m);
    if (!m)
        return weft_err_nomem(err, "metrics", sizeof *m);
    *out = m;
    return 0;
}

void weft_metrics_free(struct weft_metrics *metrics)
{
    if (!metrics)
        return;
    weft_metrics_clear(metrics);
    weft_free(metrics->entry);
    weft_free(metrics);
}

void weft_metrics_clear(struct weft_metrics *metrics)
{
    for (size_t i = 0; i < metrics->n; i++)
        weft_free(metrics->entry[i].tag);
    metrics->n = 0;
    metrics->failed = false;
}

static struct entry *find(const struct weft_metrics *m, const char *tag)
{
    for (size_t i = 0; i < m->n; i++)
        if (strcmp(m->entry[i].tag, tag) == 0)
            return &m->entry[i];
    return NULL;
}

void weft_metrics_set(struct weft_metrics *metrics, const char *tag,
                      double value)
{
    struct entry *e = find(metrics, tag);
    if (e) {
        e->value = value;
        return;
    }
    if (metrics->n == metrics->room) {
        size_t room = metrics->room ? 2 * metrics->room : 64;
        e = weft_realloc(metrics->entry, room, sizeof *e);
        if (!e) {
            metrics->failed = true;
            return;
        }
        metrics->entry = e;
        metrics->room = room;
    }
    e = &metrics->entry[metrics->n];
    *e = (struct entry){weft_strdup(tag), value};
    if (e->tag)
        metrics->n++;
    else
        metrics->failed = true;
}

void weft_metrics_setf(struct weft_metrics *metrics, double value,
                       const char *fmt, ...)
{
    char tag[WEFT_METRICS_TAG];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(tag, sizeof tag, fmt, ap);
    va_end(ap);
    weft_metrics_set(metrics, tag, value);
}

void weft_metrics_set_spread(struct weft_metrics *metrics, const char *tag,
                             size_t n, const double *value)
{
    double sum = 0, max = -INFINITY, min = INFINITY;
    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++) {
        sum += value[i];
        max = value[i] > max || isnan(value[i]) ? value[i] : max;
        min = value[i] < min || isnan(value[i]) ? value[i] : min;
    }
    weft_metrics_setf(metrics, sum / (double) n, "%s/mean", tag);
    weft_metrics_setf(metrics, max, "%s/max", tag);
    weft_metrics_setf(metrics, min, "%s/min", tag);
}

bool weft_metrics_get(const struct weft_metrics *metrics, const char *tag,
                      double *out)
{
    const struct entry *e = find(metrics, tag);
    if (e)
        *out = e->value;
    return e != NULL;
}

bool weft_metrics_failed(const struct weft_metrics *metrics)
{
    return metrics->failed;
}

size_t weft_metrics_n(const struct weft_metrics *metrics)
{
    return metrics->n;
}

const char *weft_metrics_at(const struct weft_metrics *metrics, size_t i,
                            double *value_out)
{
    *value_out = metrics->entry[i].value;
    return metrics->entry[i].tag;
}

/* ---- TRL's names ------------------------------------------------------ */

/* Names in TRL's PPO, GRPO and SFT trainers that mean the same number. */
static const struct {
    const char *tag, *trl;
} alias[] = {
    {"critic/score/mean", "objective/scores"},
    {"critic/score/mean", "reward"},
    {"critic/rewards/mean", "objective/rlhf_reward"},
    {"actor/pg_loss", "loss/policy_avg"},
    {"critic/vf_loss", "loss/value_avg"},
    {"actor/ppo_kl", "policy/approxkl_avg"},
    {"actor/pg_clipfrac", "policy/clipfrac_avg"},
    {"critic/vf_clipfrac", "val/clipfrac_avg"},
    {"actor/entropy", "policy/entropy_avg"},
    {"actor/entropy", "entropy"},
    {"actor/kl_loss", "kl"},
    {"actor/reward_kl_penalty", "kl"},
    {"actor/grad_norm", "grad_norm"},
    {"actor/lr", "learning_rate"},
    {"response_length/mean", "completions/mean_length"},
    {"response_length/max", "completions/max_length"},
    {"response_length/min", "completions/min_length"},
    {"response_length/clip_ratio", "completions/clipped_ratio"},
    {"timing_s/step", "step_time"},
    {"train/loss", "loss"},
    {"train/entropy", "entropy"},
    {"train/grad_norm", "grad_norm"},
    {"train/lr", "learning_rate"},
};

size_t weft_metrics_trl_names(
    const char *tag, char out[WEFT_METRICS_ALIASES][WEFT_METRICS_TAG])
{
    size_t n = 0;
    for (size_t i = 0; i < WEFT_COUNT(alias) && n < WEFT_METRICS_ALIASES; i++)
        if (strcmp(alias[i].tag, tag) == 0)
            snprintf(out[n++], WEFT_METRICS_TAG, "%s", alias[i].trl);
    if (strncmp(tag, "reward/", 7) == 0) /* reward/<name>/mean */
        snprintf(out[n++], WEFT_METRICS_TAG, "rewards/%s", tag + 7);
    return n;
}
