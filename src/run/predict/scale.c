/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/scale.h"

#include <stdio.h>

/* Samples a second that each device stands for; 0: nothing fits. */
static double of_device(const struct weft_scale *s, int32_t i)
{
    const struct weft_scaled *row = &s->row[i];
    return row->best.name
             ? s->n_samples / row->best.simulated.iteration_s / row->n_devices
             : 0;
}

int32_t weft_scale_transition(const struct weft_scale *scale)
{
    int32_t most = -1;
    for (int32_t i = 0; i < scale->n; i++)
        if (of_device(scale, i) > (most < 0 ? 0 : of_device(scale, most)))
            most = i;
    return most;
}

/* Which size is the first on which a placement fits, if others do not. */
static void add_first(const struct weft_scale *s, struct weft_string *out)
{
    int32_t i = 0;
    while (i < s->n && !s->row[i].best.name)
        i++;
    if (i > 0 && i < s->n)
        weft_string_addf(out,
                         "\n%d devices are the fewest of these on which a "
                         "placement fits: %s.\n",
                         (int) s->row[i].n_devices, s->row[i].best.name);
}

static void add_transition(const struct weft_scale *s,
                           struct weft_string *out)
{
    int32_t i = weft_scale_transition(s);
    if (i < 0)
        return;
    weft_string_addf(
        out,
        "\nA device does most where there are %d of them; static "
        "memory is %.0f %% of theirs there.%s\n",
        (int) s->row[i].n_devices,
        100 * s->row[i].best.simulated.static_share,
        i + 1 < s->n ? " With more of them throughput grows less "
                       "than they do."
                     : "");
}

int weft_scale_text(const struct weft_scale *scale, struct weft_string *out,
                    struct weft_err *err)
{
    weft_string_addf(out, "%7s  %-21s %11s %10s %11s %8s %8s\n", "devices",
                     "fastest placement", "s/iteration", "samples/s",
                     "each device", "static %", "memory %");
    for (int32_t i = 0; i < scale->n; i++) {
        const struct weft_scaled *row = &scale->row[i];
        weft_string_addf(out, "%7d  ", (int) row->n_devices);
        if (row->best.name)
            weft_string_addf(out, "%-21s %11.4f %10.3f %11.4f %8.1f %8.1f\n",
                             row->best.name, row->best.simulated.iteration_s,
                             of_device(scale, i) * row->n_devices,
                             of_device(scale, i),
                             100 * row->best.simulated.static_share,
                             100 * row->best.simulated.fullest);
        else
            weft_string_add(out, "none fits the memory\n");
    }
    add_first(scale, out);
    add_transition(scale, out);
    return weft_string_check(out, "a table", err);
}
