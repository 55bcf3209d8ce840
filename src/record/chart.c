/* SPDX-License-Identifier: Apache-2.0 */
#include "record/chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/svg.h"

/* In the viewBox's units, which are pixels at the usual width. */
enum {
    WIDTH = 480,
    HEIGHT = 220,
    LEFT = 54,
    RIGHT = 10,
    TOP = 8,
    BOTTOM = 22,
    MAX_POINTS = 400, /* more are averaged in buckets */
    FEW = 40          /* points that get a dot of their own */
};

/* The chart's numbers after bucketing. */
struct plot {
    const struct weft_chart *c;
    size_t n;
    double *x;              /* (n) */
    double *y, *low, *high; /* (n_series, n) */
    double x0, x1, y0, y1;
};

/* ---- Numbers ---------------------------------------------------------- */

static double bucket_mean(const double *v, size_t from, size_t to)
{
    double sum = 0;
    size_t count = 0;
    for (size_t i = from; i < to; i++)
        if (isfinite(v[i])) {
            sum += v[i];
            count++;
        }
    return count > 0 ? sum / (double) count : NAN;
}

/* The least (sign 1) or greatest (sign -1) number of a bucket. */
static double bucket_end(const double *v, size_t from, size_t to, int sign)
{
    double best = NAN;
    for (size_t i = from; i < to; i++)
        if (isfinite(v[i]) && !(sign * best <= sign * v[i]))
            best = v[i];
    return best;
}

static void fill_series(struct plot *p, int s, size_t k, size_t from,
                        size_t to)
{
    const struct weft_chart_series *in = &p->c->series[s];
    size_t at = (size_t) s * p->n + k;
    p->y[at] = bucket_mean(in->y, from, to);
    p->low[at] = in->low ? bucket_end(in->low, from, to, 1) : NAN;
    p->high[at] = in->high ? bucket_end(in->high, from, to, -1) : NAN;
    if (p->c->stacked) { /* an area between the sums without and with it */
        double below = s > 0 ? p->high[at - p->n] : 0;
        p->low[at] = below;
        p->high[at] = below + (isfinite(p->y[at]) ? p->y[at] : 0);
        p->y[at] = p->high[at];
    }
}

static void include(struct plot *p, double v)
{
    if (!isfinite(v))
        return;
    p->y0 = v < p->y0 ? v : p->y0;
    p->y1 = v > p->y1 ? v : p->y1;
}

/* Computes the plot's numbers. False: no memory, or nothing to show. */
static bool prepare(struct plot *p)
{
    const struct weft_chart *c = p->c;
    p->n = c->n < MAX_POINTS ? c->n : MAX_POINTS;
    size_t cells = p->n * (size_t) c->n_series;
    p->x = weft_alloc(p->n + 3 * cells, sizeof(double));
    if (!p->x || p->n == 0)
        return false;
    p->y = p->x + p->n;
    p->low = p->y + cells;
    p->high = p->low + cells;
    p->y0 = c->stacked ? 0 : INFINITY;
    p->y1 = -INFINITY;
    for (size_t k = 0; k < p->n; k++) {
        size_t from = k * c->n / p->n, to = (k + 1) * c->n / p->n;
        p->x[k] = (double) c->x[to - 1];
        for (int s = 0; s < c->n_series; s++) {
            fill_series(p, s, k, from, to);
            include(p, p->y[(size_t) s * p->n + k]);
            include(p, p->low[(size_t) s * p->n + k]);
            include(p, p->high[(size_t) s * p->n + k]);
        }
    }
    p->x0 = p->x[0];
    p->x1 = p->x[p->n - 1] > p->x0 ? p->x[p->n - 1] : p->x0 + 1;
    if (!(p->y0 <= p->y1))
        return false;
    double pad = p->y1 - p->y0;
    if (!(pad > 1e-12 * fmax(fabs(p->y0), fabs(p->y1)))) /* a flat line */
        pad = p->y0 != 0 ? fabs(p->y0) : 1;
    p->y1 += 0.05 * pad;
    p->y0 -= c->stacked ? 0 : 0.05 * pad;
    return isfinite(p->y1 - p->y0);
}

static double px(const struct plot *p, double x)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * (x - p->x0) / (p->x1 - p->x0);
}

static double py(const struct plot *p, double y)
{
    return HEIGHT - BOTTOM
         - (HEIGHT - TOP - BOTTOM) * (y - p->y0) / (p->y1 - p->y0);
}

/* ---- Drawing ---------------------------------------------------------- */

/* "25k" rather than 25000. */
static void add_tick(struct weft_string *out, double v)
{
    static const char unit[] = {'k', 'M', 'G', 'T'};
    int k = -1;
    if (fabs(v) >= 10000)
        while (fabs(v) >= 1000 && k < 3) {
            v /= 1000;
            k++;
        }
    weft_string_addf(out, "%.4g", v);
    if (k >= 0)
        weft_string_addf(out, "%c", unit[k]);
}

static void add_grid(const struct plot *p, struct weft_string *out)
{
    double step = weft_svg_step(p->y1 - p->y0, 4);
    for (double k = ceil(p->y0 / step); k * step <= p->y1; k++) {
        double y = py(p, k * step);
        weft_string_addf(out,
                         "<line class=\"grid\" x1=\"%d\" x2=\"%d\" "
                         "y1=\"%.1f\" y2=\"%.1f\"/><text class=\"tick\" "
                         "x=\"%d\" y=\"%.1f\" text-anchor=\"end\">",
                         LEFT, WIDTH - RIGHT, y, y, LEFT - 6, y + 3.5);
        add_tick(out, k == 0 ? 0.0 : k * step);
        weft_string_add(out, "</text>");
    }
    step = fmax(1, weft_svg_step(p->x1 - p->x0, 5));
    for (double k = ceil(p->x0 / step); k * step <= p->x1; k++)
        weft_string_addf(out,
                         "<text class=\"tick\" x=\"%.1f\" y=\"%d\" "
                         "text-anchor=\"middle\">%.0f</text>",
                         px(p, k * step), HEIGHT - 6, k * step);
}

/* The band's outline: along its upper edge and back along the lower. */
static void add_band(const struct plot *p, int s, struct weft_string *out)
{
    const double *low = p->low + (size_t) s * p->n;
    const double *high = p->high + (size_t) s * p->n;
    size_t start = out->n;
    bool any = false;
    weft_string_addf(out, "<path class=\"%s s%d\" d=\"",
                     p->c->stacked ? "area" : "band", s);
    for (size_t k = 0; k < p->n; k++)
        if (isfinite(low[k]) && isfinite(high[k])) {
            weft_string_addf(out, "%c%.1f %.1f", any ? 'L' : 'M',
                             px(p, p->x[k]), py(p, high[k]));
            any = true;
        }
    for (size_t k = p->n; any && k-- > 0;)
        if (isfinite(low[k]) && isfinite(high[k]))
            weft_string_addf(out, "L%.1f %.1f", px(p, p->x[k]),
                             py(p, low[k]));
    weft_string_add(out, "Z\"/>");
    if (!any && !out->failed) {
        out->n = start;
        out->data[start] = 0;
    }
}

static void add_line(const struct plot *p, int s, struct weft_string *out)
{
    const double *y = p->y + (size_t) s * p->n;
    bool pen = false;
    weft_string_addf(out, "<path class=\"line s%d\" d=\"", s);
    for (size_t k = 0; k < p->n; k++) {
        if (isfinite(y[k]))
            weft_string_addf(out, "%c%.1f %.1f", pen ? 'L' : 'M',
                             px(p, p->x[k]), py(p, y[k]));
        pen = isfinite(y[k]);
    }
    weft_string_add(out, "\"/>");
}

/* Dots, which show their numbers under the pointer. */
static void add_dots(const struct plot *p, int s, struct weft_string *out)
{
    const struct weft_chart_series *in = &p->c->series[s];
    const double *y = p->y + (size_t) s * p->n;
    bool few = p->n <= FEW;
    for (size_t k = 0; k < p->n; k++) {
        if (!isfinite(y[k]))
            continue;
        weft_string_addf(out,
                         "<circle class=\"%s s%d\" cx=\"%.1f\" cy=\"%.1f\" "
                         "r=\"%s\"><title>",
                         few ? "dot" : "hit", s, px(p, p->x[k]), py(p, y[k]),
                         few ? "2" : "4");
        weft_string_add_html(out, in->label);
        weft_string_addf(out, " %.5g, iteration %.0f</title></circle>",
                         p->n == p->c->n ? in->y[k] : y[k], p->x[k]);
    }
}

static void add_head(const struct weft_chart *c, struct weft_string *out)
{
    weft_string_add(out, "<figure><figcaption><b>");
    weft_string_add_html(out, c->title);
    weft_string_add(out, "</b>");
    if (c->unit) {
        weft_string_add(out, " <span class=\"unit\">");
        weft_string_add_html(out, c->unit);
        weft_string_add(out, "</span>");
    }
    for (int s = 0; s < c->n_series && c->n_series > 1; s++) {
        weft_string_addf(out, " <span class=\"key\"><i class=\"s%d\"></i>",
                         s);
        weft_string_add_html(out, c->series[s].label);
        weft_string_add(out, "</span>");
    }
    weft_string_addf(out,
                     "</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\" "
                     "aria-label=\"",
                     WIDTH, HEIGHT);
    weft_string_add_html(out, c->title);
    weft_string_add(out, "\">");
}

void weft_chart_add(const struct weft_chart *chart, struct weft_string *out)
{
    struct plot p = {.c = chart};
    if (prepare(&p)) {
        add_head(chart, out);
        add_grid(&p, out);
        for (int s = 0; s < chart->n_series; s++)
            add_band(&p, s, out);
        for (int s = 0; s < chart->n_series && !chart->stacked; s++)
            add_line(&p, s, out);
        for (int s = 0; s < chart->n_series; s++)
            add_dots(&p, s, out);
        weft_string_add(out, "</svg></figure>\n");
    }
    weft_free(p.x);
}
