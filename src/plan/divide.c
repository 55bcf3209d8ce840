/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/divide.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/limits.h"

enum { GENERATION, INFERENCE, TRAINING };

/* Whether samples that wait for an instance are none with so many devices.
 * From 128 slots on a tenth of them is taken to be kept free. */
static bool all_at_once(const struct weft_divide *d, int32_t n)
{
    double slots = ceil(d->slots * (d->slots >= 128 ? 0.9 : 1.0));
    return n / d->instance * slots >= d->n_samples;
}

/* A stage on n of the N devices. Generation takes as long as with all while no
 * sample waits, else N / n times that; the others N / n times, less what fewer
 * devices save in messages: a tenth to nine tenths of that. */
static double stage_s(const struct weft_divide *d, int stage, int32_t n)
{
    double all = (double) d->n_nodes * d->n_devices, times = all / n;
    if (n >= all || (stage == GENERATION && all_at_once(d, n)))
        return d->seconds[stage];
    if (stage != GENERATION)
        times /= 1 + fmin(0.9, fmax(times / 10, 0.1));
    return d->seconds[stage] * times;
}

/* The size of a mesh after n devices; 0: there is none. */
static int32_t next_size(const struct weft_divide *d, int32_t n)
{
    int32_t more = n >= d->n_devices ? n + d->n_devices : n > 0 ? 2 * n : 1;
    more = n < d->n_devices && more > d->n_devices ? d->n_devices : more;
    return more <= d->n_nodes * d->n_devices ? more : 0;
}

static bool is_size(const struct weft_divide *d, int32_t n)
{
    return n > 0
        && (n % d->n_devices == 0 || (n < d->n_devices && !(n & (n - 1))));
}

static bool can_have(const struct weft_divide *d, int stage, int32_t n)
{
    if (!(d->seconds[stage] > 0))
        return n == 0;
    return is_size(d, n) && n <= d->most[stage]
        && (stage != GENERATION || n % d->instance == 0);
}

/* The first group passes all stages, the others follow as fast as the slowest
 * stage lets them. */
static double piped_s(const struct weft_divide *d,
                      const int32_t n[WEFT_DIVIDE_STAGES])
{
    double first = 0, slowest = 0;
    for (int i = 0; i < WEFT_DIVIDE_STAGES; i++) {
        double s = n[i] > 0 ? stage_s(d, i, n[i]) / d->n_groups : 0;
        first += s;
        slowest = fmax(slowest, s);
    }
    return first + slowest * (d->n_groups - 1);
}

/* Sizes of a stage, from the first on: 0 alone where there is no stage. */
static int32_t first_size(const struct weft_divide *d, int stage)
{
    return d->seconds[stage] > 0 ? 1 : 0;
}

static int32_t size_after(const struct weft_divide *d, int stage, int32_t n)
{
    int32_t more = d->seconds[stage] > 0 ? next_size(d, n) : 0;
    return more > 0 ? more : INT32_MAX;
}

/* As there, the last stage has two devices at least. */
double weft_divide(const struct weft_divide *d,
                   int32_t n_out[WEFT_DIVIDE_STAGES])
{
    enum { LEAST_LAST = 2 };
    int32_t all = d->n_nodes * d->n_devices, n[WEFT_DIVIDE_STAGES];
    double best = 0;
    memset(n_out, 0, WEFT_DIVIDE_STAGES * sizeof *n_out);
    for (int i = 0; i < WEFT_DIVIDE_STAGES; i++)
        best += d->seconds[i];
    for (n[GENERATION] = first_size(d, GENERATION); n[GENERATION] < all;
         n[GENERATION] = size_after(d, GENERATION, n[GENERATION]))
        for (n[INFERENCE] = first_size(d, INFERENCE);
             n[INFERENCE] < all - n[GENERATION];
             n[INFERENCE] = size_after(d, INFERENCE, n[INFERENCE])) {
            n[TRAINING] = all - n[GENERATION] - n[INFERENCE];
            bool can = n[TRAINING] >= LEAST_LAST && n[TRAINING] < all;
            for (int i = 0; i < WEFT_DIVIDE_STAGES && can; i++)
                can = can_have(d, i, n[i]);
            double s = can ? piped_s(d, n) : INFINITY;
            if (s < best) {
                best = s;
                memcpy(n_out, n, sizeof n);
            }
        }
    return best;
}
