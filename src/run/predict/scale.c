/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/scale.h"

#include <math.h>
#include <stdio.h>

#include "base/svg.h"

/* ---- Finding ------------------------------------------------------------ */

/* The rows that may be the fastest that fits, as simulated. Prices are within a
 * few percent (tests/run/test_weigh.c), and further off where members of a tp
 * group wait for one another; memory is seldom above what is needed by more
 * than a fifth. */
static uint32_t may_be_best(const struct weft_comparison *priced)
{
    const double slower = 1.3, more = 1.25;
    double most_s = INFINITY;
    uint32_t rows = 0;
    if (priced->best >= 0)
        most_s = slower * priced->row[priced->best].simulated.iteration_s;
    for (int32_t i = 0; i < priced->n; i++) {
        const struct weft_simulated *s = &priced->row[i].simulated;
        if (s->iteration_s > 0 && s->iteration_s <= most_s
            && s->fullest <= more)
            rows |= 1u << i;
    }
    return rows;
}

int weft_run_scale(const struct weft_config *config,
                   const struct weft_plan_needs *needs,
                   const struct weft_plan *own,
                   const struct weft_simulate_options *options,
                   void (*progress)(int32_t done, int32_t of),
                   struct weft_scaled *out, struct weft_err *err)
{
    struct weft_simulate_options by_group = *options;
    struct weft_compare_how how = {.priced = true, .progress = progress};
    struct weft_comparison c;
    bool fused = own->intra_stage_fusion;
    int rc = 0;
    *out = (struct weft_scaled){.n_devices = needs->n_nodes
                                           * needs->n_devices};
    out->priced = out->n_devices > WEFT_FEW_DEVICES;
    out->unknown = out->priced && fused;
    by_group.gangs = true;
    if (!fused)
        rc = weft_run_compare(config, needs, own, &by_group, &how, &c, err);
    if (!out->priced && !rc) {
        how.priced = false;
        how.rows = fused ? 0 : may_be_best(&c);
        if (fused || how.rows)
            rc = weft_run_compare(config, needs, own, options, &how, &c, err);
        else
            c.best = -1;
    }
    if (!rc && !out->unknown && c.best >= 0)
        out->best = c.row[c.best];
    return rc;
}

/* ---- Showing ------------------------------------------------------------ */

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

/* Says which rows were not simulated. */
static void add_priced(const struct weft_scale *s, struct weft_string *out)
{
    for (int32_t i = 0; i < s->n; i++)
        if (s->row[i].priced && s->row[i].best.name) {
            weft_string_addf(out,
                             "\nfrom %d devices on by prices of calls, as "
                             "the search has them, give or take 5 %%\n",
                             (int) s->row[i].n_devices);
            return;
        }
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
            weft_string_add(out, row->unknown
                                     ? "not known: training is fused, which "
                                       "is simulated on at most 64 devices\n"
                                     : "none fits the memory\n");
    }
    add_priced(scale, out);
    add_first(scale, out);
    add_transition(scale, out);
    return weft_string_check(out, "a table", err);
}

/* ---- A picture ---------------------------------------------------------- */

enum { LEFT = 70, WIDTH = 560, TOP = 40, HEIGHT = 300, BELOW = 60 };

/* Both axes are logarithmic: proportional growth is a straight line. */
struct frame {
    double devices[2], rate[2]; /* the least and the most of each */
};

static double along(const double range[2], double value)
{
    return range[1] > range[0]
             ? log(value / range[0]) / log(range[1] / range[0])
             : 0.5;
}

static double at_x(const struct frame *f, double devices)
{
    return LEFT + WIDTH * along(f->devices, devices);
}

static double at_y(const struct frame *f, double rate)
{
    return TOP + HEIGHT * (1 - along(f->rate, rate));
}

/* Of what a device does most, on each number of devices. */
static struct frame frame_of(const struct weft_scale *s)
{
    struct frame f = {{s->row[0].n_devices, s->row[s->n - 1].n_devices},
                      {INFINITY, 0}};
    int32_t most = weft_scale_transition(s);
    for (int32_t i = 0; i < s->n; i++) {
        double rate = of_device(s, i) * s->row[i].n_devices;
        double ideal = most < 0 ? 0
                                : of_device(s, most) * s->row[i].n_devices;
        if (rate <= 0)
            continue;
        f.rate[0] = fmin(f.rate[0], rate);
        f.rate[1] = fmax(f.rate[1], ideal);
    }
    return f;
}

/* A size: its tick, and what the fastest placement does there. */
static void draw_size(const struct weft_scale *s, int32_t i,
                      const struct frame *f, struct weft_string *out)
{
    const struct weft_scaled *row = &s->row[i];
    double rate = of_device(s, i) * row->n_devices;
    double x = at_x(f, row->n_devices);
    bool most = i == weft_scale_transition(s);
    weft_string_addf(out,
                     "<text x=\"%.1f\" y=\"%d\" "
                     "text-anchor=\"middle\">%d</text>\n",
                     x, TOP + HEIGHT + 20, (int) row->n_devices);
    if (rate <= 0) {
        weft_string_addf(out,
                         "<text x=\"%.1f\" y=\"%d\" "
                         "text-anchor=\"middle\" fill=\"#888888\">%s"
                         "</text>\n",
                         x, TOP + HEIGHT - 6,
                         row->unknown ? "unknown" : "none");
        return;
    }
    double y = at_y(f, rate);
    weft_string_addf(
        out,
        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" fill=\"%s\"><title>%s: "
        "%.4g s an iteration, %.4g samples a second, static memory %.1f %%"
        "</title></circle>\n<text x=\"%.1f\" y=\"%.1f\" "
        "text-anchor=\"middle\">%.3g</text>\n",
        x, y, most ? 7 : 4,
        weft_svg_colour(0, most ? WEFT_SVG_DARK : WEFT_SVG_PLAIN),
        row->best.name, row->best.simulated.iteration_s, rate,
        100 * row->best.simulated.static_share, x, y - 12, rate);
}

/* What as many devices would do if each did as much as at the transition. */
static void draw_ideal(const struct weft_scale *s, const struct frame *f,
                       struct weft_string *out)
{
    int32_t most = weft_scale_transition(s), last = s->n - 1;
    if (most < 0)
        return;
    weft_string_addf(out,
                     "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                     "stroke=\"#888888\" stroke-dasharray=\"4 4\"/>\n",
                     at_x(f, s->row[most].n_devices),
                     at_y(f, of_device(s, most) * s->row[most].n_devices),
                     at_x(f, s->row[last].n_devices),
                     at_y(f, of_device(s, most) * s->row[last].n_devices));
}

int weft_scale_svg(const struct weft_scale *scale, struct weft_string *out,
                   struct weft_err *err)
{
    const struct frame f = frame_of(scale);
    weft_string_addf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
        "height=\"%d\" font-family=\"sans-serif\" font-size=\"13\">\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n"
        "<text x=\"%d\" y=\"20\">samples a second of the fastest placement; "
        "dashed: as much of each device as where it does most</text>\n"
        "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">devices</text>\n",
        LEFT + WIDTH + 50, TOP + HEIGHT + BELOW, 16, LEFT + WIDTH / 2,
        TOP + HEIGHT + 44);
    draw_ideal(scale, &f, out);
    for (int32_t i = 0; i < scale->n; i++)
        draw_size(scale, i, &f, out);
    weft_string_add(out, "</svg>\n");
    return weft_string_check(out, "a picture", err);
}
