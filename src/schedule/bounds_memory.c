/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a capacity says of the makespan: a micro-batch is held on its stage at
 * least as long as its way to the last stage and back takes; the sum of that
 * over all micro-batches is not more than fits over the makespan. Fewer fit
 * before the first can have come, after the last must have gone, while the
 * first ones come and the last ones go, and while the device runs passes of
 * another stage, whose activations are there as well.
 */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "schedule/jobshop.h"

/* Peaks to try, at most; otherwise so many steps. */
enum { MOST_PEAKS = 1 << 20, N_STEPS = 256 };

void weft_jobshop_holds(const struct weft_jobshop *shop, double *hold)
{
    for (int32_t u = 0; u < shop->n_model_stages; u++) {
        const struct weft_jobshop_series *take =
            &shop->series[shop->model_stage[u].take];
        const struct weft_jobshop_series *give =
            &shop->series[shop->model_stage[u].give];
        for (int32_t i = 0; i < take->n; i++) {
            int32_t x = give->op[i];
            double time = shop->op[x].time;
            /* Every operation has one predecessor, but for the first forward
             * pass. */
            while (x != take->op[i]) {
                const struct weft_jobshop_arc *arc =
                    &shop->pred[shop->pred_at[x]];
                x = arc->op;
                time += arc->lag + shop->op[x].time;
            }
            hold[x] = time;
        }
    }
}

static const struct weft_jobshop_op *taker(const struct weft_jobshop *shop,
                                           int32_t u, int32_t i)
{
    return &shop->op[shop->series[shop->model_stage[u].take].op[i]];
}

static double clamp(double x, double low, double high)
{
    return fmin(fmax(x, low), high);
}

/* The least of a series's values. */
static double least(const struct weft_jobshop_series *series,
                    const double *value)
{
    double x = INFINITY;
    for (int32_t i = 0; i < series->n; i++)
        x = fmin(x, value[series->op[i]]);
    return x;
}

static double least_time(const struct weft_jobshop *shop, int32_t series)
{
    double x = INFINITY;
    for (int32_t i = 0; i < shop->series[series].n; i++)
        x = fmin(x, shop->op[shop->series[series].op[i]].time);
    return x;
}

struct span {
    /* no micro-batch is held before this time, none after that */
    double head, tail;
};

/* While passes of other stages run, fewer micro-batches of size `each` fit
 * than `fit`. Returns the loss, as places times time, without what may fall
 * before or after the span. */
static double lost_to_others(const struct weft_jobshop_pair *pair, int32_t u,
                             double capacity, double each, double fit,
                             struct span span)
{
    const struct weft_jobshop *shop = &pair->forward;
    int32_t d = shop->model_stage[u].device;
    double lost = 0, before = 0, after = 0, most = 0;
    for (int32_t k = shop->series_at[d]; k < shop->series_at[d + 1]; k++) {
        const struct weft_jobshop_series *series =
            &shop->series[shop->series_of[k]];
        int32_t v = shop->op[series->op[0]].model_stage;
        for (int32_t i = 0; i < series->n && v != u; i++) {
            int32_t x = series->op[i];
            double time = shop->op[x].time;
            double left = capacity - taker(shop, v, i)->hold;
            double fewer = fit - fmin(fit, floor(left / each));
            lost += fewer * time;
            before += fewer * clamp(span.head - pair->head[x], 0, time);
            after += fewer * clamp(span.tail - pair->tail[x], 0, time);
            most = fmax(most, fewer);
        }
    }
    return lost - fmin(before, most * span.head)
         - fmin(after, most * span.tail);
}

/* The bound of one stage, counted in micro-batches of its smallest size. */
static double unit_bound(const struct weft_jobshop_pair *pair, int32_t u,
                         double capacity)
{
    const struct weft_jobshop *shop = &pair->forward;
    const struct weft_jobshop_model_stage *model_stage =
        &shop->model_stage[u];
    const struct weft_jobshop_series *take = &shop->series[model_stage->take];
    double each = INFINITY, held = 0;
    for (int32_t i = 0; i < take->n; i++) {
        each = fmin(each, taker(shop, u, i)->hold);
        held += pair->hold[take->op[i]];
    }
    double fit = each > 0 ? floor(capacity / each) : INFINITY;
    if (fit >= take->n || fit < 1)
        return 0;
    struct span span = {least(take, pair->head),
                        least(&shop->series[model_stage->give], pair->tail)};
    /* Only one micro-batch can be held while the first arrives, two while the
     * second does, and so on. */
    held += (least_time(shop, model_stage->take)
             + least_time(shop, model_stage->give))
          * fit * (fit - 1) / 2;
    held += lost_to_others(pair, u, capacity, each, fit, span);
    return span.head + span.tail + held / fit;
}

/* The bound of all stages of a device together. */
static double all_bound(const struct weft_jobshop_pair *pair, int32_t d,
                        double capacity)
{
    const struct weft_jobshop *shop = &pair->forward;
    struct span span = {INFINITY, INFINITY};
    double held = 0;
    for (int32_t k = shop->model_stage_at[d]; k < shop->model_stage_at[d + 1];
         k++) {
        int32_t u = shop->model_stage_of[k];
        const struct weft_jobshop_series *take =
            &shop->series[shop->model_stage[u].take];
        span.head = fmin(span.head, least(take, pair->head));
        span.tail = fmin(
            span.tail,
            least(&shop->series[shop->model_stage[u].give], pair->tail));
        for (int32_t i = 0; i < take->n; i++)
            held += pair->hold[take->op[i]] * taker(shop, u, i)->hold;
    }
    return held > 0 ? span.head + span.tail + held / capacity : 0;
}

double weft_jobshop_memory_bound(const struct weft_jobshop_pair *pair,
                                 double capacity)
{
    double bound = 0;
    if (capacity <= 0)
        return 0;
    capacity *= 1 + WEFT_JOBSHOP_SLACK;
    for (int32_t u = 0; u < pair->forward.n_model_stages; u++)
        bound = fmax(bound, unit_bound(pair, u, capacity));
    for (int32_t d = 0; d < pair->forward.n_devices; d++)
        bound = fmax(bound, all_bound(pair, d, capacity));
    return bound;
}

/* ---- The least peak ---------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return x < y ? -1 : x > y;
}

/* How many different numbers of micro-batches a device may hold; INFINITY
 * where they are not alike. */
static double count_peaks(const struct weft_jobshop *shop, int32_t d)
{
    double n = 1;
    for (int32_t k = shop->model_stage_at[d]; k < shop->model_stage_at[d + 1];
         k++) {
        const struct weft_jobshop_model_stage *model_stage =
            &shop->model_stage[shop->model_stage_of[k]];
        n *= model_stage->equal ? shop->series[model_stage->take].n + 1.0
                                : INFINITY;
    }
    return n;
}

/* Writes every amount that a device may hold into peak and returns how many
 * there are. */
static size_t list_peaks(const struct weft_jobshop *shop, int32_t d,
                         double *peak)
{
    size_t n = 1;
    peak[0] = 0;
    for (int32_t k = shop->model_stage_at[d]; k < shop->model_stage_at[d + 1];
         k++) {
        const struct weft_jobshop_model_stage *model_stage =
            &shop->model_stage[shop->model_stage_of[k]];
        size_t old = n;
        for (int32_t i = 1; i <= shop->series[model_stage->take].n; i++)
            for (size_t j = 0; j < old; j++)
                peak[n++] = peak[j] + i * model_stage->most;
    }
    return n;
}

/* What a device holds when it holds all micro-batches. */
static double sum_all(const struct weft_jobshop *shop, int32_t d)
{
    double sum = 0;
    for (int32_t k = shop->model_stage_at[d]; k < shop->model_stage_at[d + 1];
         k++) {
        int32_t u = shop->model_stage_of[k];
        for (int32_t i = 0; i < shop->series[shop->model_stage[u].take].n;
             i++)
            sum += taker(shop, u, i)->hold;
    }
    return sum;
}

/* Peaks to try by rising value, the first 0, all that there can be (*exact)
 * or steps. NULL: no memory. */
static double *make_peaks(const struct weft_jobshop *shop, size_t *n_out,
                          bool *exact)
{
    double count = 0, most = 0;
    size_t n = 0;
    for (int32_t d = 0; d < shop->n_devices; d++) {
        count += count_peaks(shop, d);
        most = fmax(most, sum_all(shop, d));
    }
    *exact = count <= MOST_PEAKS;
    double *peak = weft_alloc(*exact ? (size_t) count : N_STEPS + 1,
                              sizeof *peak);
    for (int32_t d = 0; d < shop->n_devices && peak && *exact; d++)
        n += list_peaks(shop, d, peak + n);
    for (; n <= N_STEPS && peak && !*exact; n++)
        peak[n] = most * (double) n / N_STEPS;
    if (peak)
        qsort(peak, n, sizeof *peak, by_value);
    *n_out = n;
    return peak;
}

/* The higher the capacity, the lower the bound: a peak whose bound is above
 * the makespan is too low. */
double weft_jobshop_peak_bound(struct weft_jobshop_pair *pair,
                               double makespan, int effort)
{
    size_t n, low = 0;
    bool exact;
    double *peak = make_peaks(&pair->forward, &n, &exact), bound = 0;
    if (!peak)
        return -1;
    size_t high = n - 1; /* everything fits into the highest peak */
    while (low < high && bound >= 0) {
        size_t k = (low + high) / 2;
        bound = peak[k] > 0 ? weft_jobshop_bound(pair, peak[k], effort, NULL)
                            : INFINITY;
        if (bound <= makespan * (1 + WEFT_JOBSHOP_SLACK))
            high = k;
        else
            low = k + 1;
    }
    double least_peak = exact || high == 0 ? peak[high] : peak[high - 1];
    weft_free(peak);
    return bound < 0 ? -1 : least_peak;
}
