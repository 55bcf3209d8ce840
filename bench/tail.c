/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inter-stage fusion in a run: generation and inference of iterations with and
 * without it, in turn, of one run with the same lengths.
 *
 *     bench/tail CONFIG.yaml MEDIAN SIGMA PAIRS [key=value ...]
 *
 * Lengths of responses are log-normal, drawn by the samples' numbers and cut at
 * rollout.max_new_tokens; the models' end of sequence ends nothing. Time is
 * that from the first task of generation to the last of inference. Fusion
 * can win what devices idle, and that the tail is decoded in one batch.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "bench/check.h"
#include "plan/lengths.h"
#include "run/trainer.h"

enum { SEED = 15 };

/* Seconds of what an iteration did until all samples were inferred. */
struct times {
    double generated_s, all_s;
    double gen_busy_s, infer_busy_s;
};

static struct times times_of(struct weft_trainer *t, int32_t iteration)
{
    struct weft_call_time time[WEFT_MAX_CALLS];
    struct times out = {0};
    double first_s = INFINITY, generated_s = 0, all_s = 0;
    weft_rt_times_all(t->rt, iteration, time);
    for (int32_t i = 1; i < t->flow.n_calls; i++) {
        const struct weft_call_time *c = &time[i];
        bool generates = t->flow.call[i].kind == WEFT_GENERATE;
        if (c->n_tasks == 0
            || (!generates && t->flow.call[i].kind != WEFT_INFER))
            continue;
        first_s = fmin(first_s, c->first_s);
        all_s = fmax(all_s, c->last_s);
        if (generates)
            generated_s = fmax(generated_s, c->last_s);
        *(generates ? &out.gen_busy_s : &out.infer_busy_s) += c->busy_s;
    }
    out.generated_s = generated_s - first_s;
    out.all_s = all_s - first_s;
    return out;
}

static int ascending(const void *a, const void *b)
{
    int32_t x = *(const int32_t *) a, y = *(const int32_t *) b;
    return (x > y) - (x < y);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t) n, sizeof *x, by_size);
    return (x[(n - 1) / 2] + x[n / 2]) / 2;
}

static int32_t draw(const struct weft_lengths *lengths, int32_t pair,
                    int32_t n, int32_t most, int32_t *out, int32_t *sorted)
{
    for (int32_t i = 0; i < n; i++)
        out[i] = sorted[i] = weft_lengths_draw(lengths, SEED, pair, i, most);
    qsort(sorted, (size_t) n, sizeof *sorted, ascending);
    return sorted[n - 1];
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: tail CONFIG.yaml MEDIAN SIGMA PAIRS "
                        "[key=value ...]\n");
        return 2;
    }
    enum { MOST_PAIRS = 64 };
    const struct weft_lengths lengths = {.kind = WEFT_LENGTHS_LOGNORMAL,
                                         .a = atof(argv[2]),
                                         .b = atof(argv[3])};
    int pairs = atoi(argv[4]);
    double all[2][MOST_PAIRS], ratio[MOST_PAIRS], busy[MOST_PAIRS];
    struct weft_trainer *t;
    if (pairs < 1 || pairs > MOST_PAIRS)
        return 2;
    CHECK(weft_trainer_open(argv[1], argc - 5, (const char *const *) argv + 5,
                            &t, &err));
    int32_t n = t->config.rollout.prompts
              * t->config.rollout.samples_per_prompt;
    int32_t *limit = weft_alloc((size_t) n, sizeof *limit);
    int32_t *sorted = weft_alloc((size_t) n, sizeof *sorted);
    t->limits = limit;
    printf("lengths: lognormal:%g:%g, at most %d; %d samples\n", lengths.a,
           lengths.b, (int) t->config.rollout.max_new_tokens, (int) n);
    printf("pair      p50  p90  p99  most | off: gen    all  busy gen+inf | "
           "on: gen    all  busy gen+inf  moved | ratio\n");
    /* the first iteration is not counted */
    for (int k = -1; k < pairs; k++) {
        struct times x[2];
        double moved = 0;
        draw(&lengths, k + 1, n, t->config.rollout.max_new_tokens, limit,
             sorted);
        for (int turn = 0; turn < 2; turn++) {
            int on = (turn + k + 2) % 2; /* each first in turn */
            t->config.rollout.inter_stage_fusion = on;
            CHECK(weft_trainer_step(t, &err));
            x[on] = times_of(t, t->iteration - 1);
            if (on)
                CHECK(weft_trainer_metric(t, "gen/migrated", &moved));
        }
        printf("%4d     %4d %4d %4d  %4d | %8.3f %6.3f %5.2f %6.2f | "
               "%7.3f %6.3f %5.2f %6.2f %6.0f | %5.3f%s\n",
               k + 1, (int) sorted[n / 2], (int) sorted[n * 9 / 10],
               (int) sorted[n * 99 / 100], (int) sorted[n - 1],
               x[0].generated_s, x[0].all_s, x[0].gen_busy_s,
               x[0].infer_busy_s, x[1].generated_s, x[1].all_s,
               x[1].gen_busy_s, x[1].infer_busy_s, moved,
               x[0].all_s / x[1].all_s, k < 0 ? "  not counted" : "");
        fflush(stdout);
        if (k < 0)
            continue;
        all[0][k] = x[0].all_s;
        all[1][k] = x[1].all_s;
        ratio[k] = x[0].all_s / x[1].all_s;
        busy[k] = (x[0].gen_busy_s + x[0].infer_busy_s)
                / (weft_rt_n_devices(t->rt) * x[0].all_s);
    }
    double off = median(all[0], pairs), on = median(all[1], pairs);
    printf("medians: off %.3f s, on %.3f s, %.3f times; median of ratios "
           "%.3f\nwithout fusion devices are busy %.1f %% of the time\n",
           off, on, off / on, median(ratio, pairs),
           100 * median(busy, pairs));
    weft_free(limit);
    weft_free(sorted);
    weft_trainer_close(t);
    return 0;
}
