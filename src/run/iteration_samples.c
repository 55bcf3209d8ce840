/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of samples that were generated, and of their scores. */
#include "run/iteration.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "record/samples.h"

/* Reads the scores of reward models. */
void weft_iteration_model_scores(struct weft_iteration *p)
{
    const struct weft_dataflow *flow = &p->t->flow;
    for (int32_t k = 0; k < p->n_calls; k++) {
        int32_t f = p->call[k].field;
        int32_t reward = flow->role[p->call[k].model->role].index;
        if (flow->field[f].type != WEFT_FIELD_SCORE)
            continue;
        const struct weft_iteration_set *s = p->call[k].set;
        for (int32_t i = s->first; i < s->first + s->n; i++) {
            struct weft_tile *tile = p->extra[i].home[f];
            if (!tile) /* read before */
                continue;
            p->part[i][reward] = (double) *(const float *) weft_tile_acquire(
                tile, WEFT_READ);
            weft_tile_unacquire(tile);
        }
    }
}

/* Warns if all scores are equal: nothing can be learned from them, and usually
 * the reward finds no answer in any response. It warns again only after scores
 * have differed. */
static void warn_equal_scores(const struct weft_iteration *p,
                              const double *score)
{
    bool equal = p->n > 1;
    for (int32_t i = 1; i < p->n && equal; i++)
        equal = score[i] == score[0];
    if (equal && !p->t->scores_were_equal)
        weft_warn("iteration %d: all %d scores are %g, which tells no "
                  "response from another; look at samples/ and at the "
                  "reward's keys",
                  p->iteration + 1, p->n, score[0]);
    p->t->scores_were_equal = equal;
}

/* Prompts whose responses all have one score, and those that were replaced for
 * it. */
static void report_equal(const struct weft_iteration *p, const double *score)
{
    struct weft_metrics *m = p->t->metrics;
    int32_t each = p->t->config.rollout.samples_per_prompt, n_equal = 0;
    if (each < 2)
        return;
    for (int32_t i = 0; i < p->n; i += each) {
        int32_t k = 1;
        while (k < each && score[i + k] == score[i])
            k++;
        n_equal += k == each;
    }
    weft_metrics_set(m, "rollout/equal_prompts", n_equal);
    if (p->t->settings.refills > 0)
        weft_metrics_set(m, "rollout/refilled_prompts", p->n_refilled);
}

static int write_samples(const struct weft_iteration *p, const double *score,
                         const double *baseline)
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
        int32_t other = weft_iteration_baseline(p, i);
        record[i] = (struct weft_sample_record){
            .index = i,
            .prompt = text->prompt,
            .response = text->response,
            .label = text->row.label,
            .score = score[i],
            .n_tokens = text->n_tokens,
            .ended = text->ended,
            .baseline_score = baseline[i],
        };
        if (other >= 0)
            record[i].baseline = p->text[other].response;
        memcpy(record[i].part, p->part[i], sizeof record[i].part);
    }
    int rc = weft_samples_write(config->run_dir, p->iteration + 1,
                                config->reward, config->n_rewards, n, record,
                                p->err);
    weft_free(record);
    return rc;
}

int weft_iteration_report_samples(struct weft_iteration *p,
                                  const double *score, const double *baseline)
{
    warn_equal_scores(p, score);
    report_equal(p, score);
    return p->t->config.samples_kept == 0 ? 0
                                          : write_samples(p, score, baseline);
}
