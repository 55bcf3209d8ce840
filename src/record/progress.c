/* SPDX-License-Identifier: Apache-2.0 */
#include "record/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "record/told.h"

struct weft_progress {
    FILE *out;
    bool terminal;
    bool drawn; /* a bar is shown below the lines */
    int64_t n_total;
    double last_s;   /* end of the last iteration */
    double step_s;   /* moving mean of an iteration's time; < 0: none yet */
    double changing; /* metric of the last iteration; NaN: none */
};

const char *weft_progress_duration(double s, char out[24])
{
    long long t = s > 0 && s < 1e15 ? (long long) (s + 0.5) : 0;
    if (t < 60)
        snprintf(out, 24, "%llds", t);
    else if (t < 3600)
        snprintf(out, 24, "%lldm%02llds", t / 60, t % 60);
    else if (t < 48 * 3600)
        snprintf(out, 24, "%lldh%02lldm", t / 3600, t / 60 % 60);
    else
        snprintf(out, 24, "%lldd%02lldh", t / 86400, t / 3600 % 24);
    return out;
}

struct line {
    char *out;
    size_t n, room;
};

WEFT_PRINTF(2, 3)
static void add(struct line *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(l->out + l->n, l->room - l->n, fmt, ap);
    va_end(ap);
    if (n > 0)
        l->n = l->n + (size_t) n < l->room ? l->n + (size_t) n : l->room - 1;
}

/* Adds "  name value" if the record has the tag, and how it changed. */
static void add_watched(struct line *l, const struct weft_metrics *m,
                        const struct weft_watched *w, double before)
{
    double v;
    if (!weft_metrics_get(m, w->tag, &v))
        return;
    add(l, "  %s %.3g", w->name, v);
    if (w->change && isfinite(before))
        add(l, " (%+.2g)", v - before + 0.0);
}

/* The metric whose change is shown; NaN: the record has none. */
static double changing(const struct weft_metrics *m)
{
    const struct weft_watched *w;
    double v = NAN;
    for (int i = 0; (w = weft_told_watched(i)) != NULL; i++)
        if (w->change && weft_metrics_get(m, w->tag, &v))
            break;
    return v;
}

const char *weft_progress_line(int64_t iteration, int64_t n_total,
                               const struct weft_metrics *metrics,
                               double before, double eta_s, char *out,
                               size_t n)
{
    struct line l = {out, 0, n};
    const struct weft_watched *w;
    double tokens, rate;
    char eta[24];
    out[0] = 0;
    add(&l, "iteration %lld/%lld", (long long) iteration,
        (long long) n_total);
    for (int i = 0; (w = weft_told_watched(i)) != NULL; i++)
        add_watched(&l, metrics, w, before);
    if (weft_metrics_get(metrics, "perf/total_num_tokens", &tokens)
        && weft_metrics_get(metrics, "perf/steps_per_s", &rate))
        add(&l, "  tok/s %.0f", tokens * rate);
    if (eta_s >= 0 && iteration < n_total)
        add(&l, "  eta %s", weft_progress_duration(eta_s, eta));
    return out;
}

/* ---- The bar ---------------------------------------------------------- */

static void erase(struct weft_progress *p)
{
    if (p->drawn)
        fputs("\r\033[K", p->out);
    p->drawn = false;
}

static void draw(struct weft_progress *p, int64_t done, double eta_s)
{
    struct winsize size = {.ws_col = 0};
    char eta[24];
    if (ioctl(fileno(p->out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        size.ws_col = 80;
    int width = size.ws_col - 40 < 50 ? size.ws_col - 40 : 50;
    if (width < 5 || done >= p->n_total)
        return;
    int full = (int) (done * width / p->n_total);
    fputc('[', p->out);
    for (int i = 0; i < width; i++)
        fputc(i < full ? '=' : i == full ? '>' : ' ', p->out);
    fprintf(p->out, "] %3d%%", (int) (100 * done / p->n_total));
    if (eta_s >= 0)
        fprintf(p->out, "  eta %s", weft_progress_duration(eta_s, eta));
    p->drawn = true;
}

/* ---- A run ------------------------------------------------------------ */

struct weft_progress *weft_progress_create(FILE *out, int64_t n_done,
                                           int64_t n_total, double now_s)
{
    struct weft_progress *p = weft_alloc(1, sizeof *p);
    if (!p)
        return NULL;
    const char *term = getenv("TERM");
    *p = (struct weft_progress){
        .out = out,
        .terminal = isatty(fileno(out)) && term && strcmp(term, "dumb") != 0,
        .n_total = n_total,
        .last_s = now_s,
        .step_s = -1,
        .changing = NAN,
    };
    if (p->terminal)
        draw(p, n_done, -1);
    fflush(out);
    return p;
}

void weft_progress_step(struct weft_progress *progress, int64_t iteration,
                        const struct weft_metrics *metrics, double now_s)
{
    struct weft_progress *p = progress;
    char line[512];
    if (!p)
        return;
    double s = now_s - p->last_s;
    p->last_s = now_s;
    p->step_s = p->step_s < 0 ? s : 0.8 * p->step_s + 0.2 * s;
    double eta_s = p->step_s * (double) (p->n_total - iteration);
    erase(p);
    fprintf(p->out, "%s\n",
            weft_progress_line(iteration, p->n_total, metrics, p->changing,
                               eta_s, line, sizeof line));
    if (p->terminal)
        draw(p, iteration, eta_s);
    fflush(p->out);
    p->changing = changing(metrics);
}

void weft_progress_pause(struct weft_progress *progress)
{
    if (!progress)
        return;
    erase(progress);
    fflush(progress->out);
}

void weft_progress_free(struct weft_progress *progress)
{
    weft_progress_pause(progress);
    weft_free(progress);
}
