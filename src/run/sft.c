/* SPDX-License-Identifier: Apache-2.0 */
/* Supervised fine-tuning: one optimizer step on a batch of rows. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "run/context.h"
#include "run/trainer.h"

struct sft {
    struct weft_trainer *t;
    int32_t n;
    struct weft_pack_sample *pack;
    struct weft_g_stats *stats;
    int32_t n_stats;
    struct weft_tile *norm;
    int64_t n_tokens, n_rows;
    float lr;
    double start_s;
};

static int fill(struct sft *s, int32_t i, struct weft_err *err)
{
    struct weft_trainer *t = s->t;
    const struct weft_run_prompt *p = weft_trainer_draw(
        t, (int64_t) t->iteration * t->config.train.batch + i);
    struct weft_tile_id id = {"sample", "text", 0, -1, -1, 0};
    int rc = weft_tile_create(t->rt, &id, WEFT_MEM_SAMPLES,
                              weft_rollout_bytes(p->n), &s->pack[i].rollout,
                              err);
    if (rc)
        return rc;
    if (!t->recorded && weft_tile_is_here(s->pack[i].rollout)) {
        struct weft_rollout *r = weft_tile_acquire(s->pack[i].rollout,
                                                   WEFT_WRITE);
        *r = (struct weft_rollout){p->n, p->n_prompt, p->n, 1};
        memcpy(weft_rollout_token(r), p->token, (size_t) p->n * 4);
        weft_tile_unacquire(s->pack[i].rollout);
    }
    s->pack[i].n_prompt = p->n_prompt;
    s->pack[i].n_total = p->n;
    s->n_tokens += p->n - p->n_prompt;
    s->n_rows += p->n;
    return 0;
}

/* Copies the results that rank 0 reads to the first place. */
static void fetch_results(struct sft *s)
{
    for (int32_t k = 0; k < s->n_stats; k++)
        weft_trainer_fetch(s->t, &s->stats[k].tile);
    weft_trainer_fetch(s->t, &s->norm);
}

/* Sets metrics; sums are in the batch's order of samples. */
static int report(struct sft *s, struct weft_err *err)
{
    enum { N = WEFT_N_POLICY_STATS };
    double *stat = weft_alloc((size_t) s->n * N, sizeof *stat);
    double nll = 0, entropy = 0;
    if (!stat)
        return weft_err_nomem(err, "metrics", (size_t) s->n * N * 8);
    for (int32_t k = 0; k < s->n_stats; k++) {
        const struct weft_g_stats *g = &s->stats[k];
        const double *v = weft_tile_acquire(g->tile, WEFT_READ);
        for (int32_t i = 0; i < g->n; i++)
            memcpy(stat + (size_t) g->sample[i] * N, v + (size_t) i * N,
                   N * sizeof *v);
        weft_tile_unacquire(g->tile);
    }
    for (int32_t i = 0; i < s->n; i++) {
        nll += stat[i * N + WEFT_STAT_PG_LOSS];
        entropy += stat[i * N + WEFT_STAT_ENTROPY];
    }
    weft_free(stat);
    const struct weft_grad_norm *norm = weft_tile_acquire(s->norm, WEFT_READ);
    double grad_norm = norm->norm;
    weft_tile_unacquire(s->norm);
    double n = (double) s->n_tokens, dt = weft_clock_s() - s->start_s;
    struct weft_metrics *m = s->t->metrics;
    weft_metrics_set(m, "train/loss", nll / n);
    weft_metrics_set(m, "train/perplexity", exp(nll / n));
    weft_metrics_set(m, "train/entropy", entropy / n);
    weft_metrics_set(m, "train/grad_norm", grad_norm);
    weft_metrics_set(m, "train/lr", (double) s->lr);
    weft_metrics_set(m, "train/n_tokens", n);
    weft_metrics_set(m, "timing_s/step", dt);
    weft_metrics_set(m, "perf/total_num_tokens", (double) s->n_rows);
    weft_metrics_set(m, "perf/time_per_step", dt);
    weft_metrics_set(m, "perf/steps_per_s", 1 / dt);
    weft_metrics_set(m, "perf/throughput",
                     (double) s->n_rows / dt / weft_rt_n_devices(s->t->rt));
    return 0;
}

int weft_sft_step(struct weft_trainer *t, struct weft_err *err)
{
    const struct weft_config *c = &t->config;
    struct sft s = {
        .t = t,
        .n = c->train.batch,
        .pack = weft_alloc((size_t) c->train.batch, sizeof *s.pack),
        .stats = weft_alloc((size_t) c->train.batch, sizeof *s.stats),
        .start_s = weft_clock_s(),
    };
    struct weft_g_train train = {
        .model = &t->model[0].tiles,
        .grads = &t->model[0].grads,
        .loss = {.loss = WEFT_LOSS_SFT, .inv_temperature = 1},
        .adamw = weft_adamw_at(t->model[0].optim, t->model[0].steps,
                               c->iterations),
        .grad_clip = t->model[0].optim->grad_clip,
        .micro_batch_rows = c->train.micro_batch_tokens,
        .gather = t->model[0].gather,
        .order = &t->order_of_tasks,
        .call = t->model[0].home,
        .iteration = t->iteration,
    };
    int rc = s.pack && s.stats
               ? weft_g_copies_create(t->rt, &train.copies, err)
               : weft_err_nomem(err, "a batch", (size_t) s.n * 64);
    for (int32_t i = 0; i < s.n && !rc; i++)
        rc = fill(&s, i, err);
    for (int32_t i = 0; i < s.n && !rc; i++)
        s.pack[i].weight = 1 / (float) s.n_tokens;
    if (!rc) {
        rc = weft_g_train_step(t->seq, &train, s.n, s.pack, s.stats,
                               &s.n_stats, &s.norm, err);
        fetch_results(&s);
        rc = weft_run_wait(t->seq, rc, err);
        weft_g_order_reset(&t->order_of_tasks);
    }
    s.lr = train.adamw.lr;
    t->model[0].steps++;
    if (!rc && !t->recorded && weft_world_rank() == 0)
        rc = report(&s, err);
    if (!t->recorded)
        rc = weft_world_agree(rc, err);
    weft_g_copies_free(train.copies);
    for (int32_t i = 0; s.pack && i < s.n; i++)
        weft_tile_release(s.pack[i].rollout);
    for (int32_t k = 0; k < s.n_stats; k++) {
        weft_tile_release(s.stats[k].tile);
        weft_free(s.stats[k].sample);
    }
    weft_tile_release(s.norm);
    weft_free(s.pack);
    weft_free(s.stats);
    return rc;
}
