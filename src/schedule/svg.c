/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A schedule as a picture: a row per device, time to the right; beneath it
 * what the device that holds most holds, model on model.
 */
#include "schedule/file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/string.h"
#include "base/svg.h"
#include "schedule/tasks.h"

/* Pixels. */
enum {
    LEFT = 56,
    RIGHT = 24,
    TOP = 50,
    WIDTH = 1040,
    GAP = 44,
    MEMORY = 110
};
enum { FOOT = 34, MOST_ROW = 20, ALL_ROWS = 1200, DIGIT = 6, PLOT_TICKS = 8 };

struct picture {
    FILE *f;
    const struct weft_schedule_problem *problem;
    const struct weft_schedule *schedule;
    const struct weft_schedule_report *report;
    double scale;   /* pixels per unit of time */
    double row;     /* height */
    double plot;    /* y of the top of the memory's plot */
    int32_t device; /* that is plotted */
};

/* Forward passes are light, backward ones plain, weights' dark. */
static const char *colour_of(int32_t model, enum weft_pass pass)
{
    return weft_svg_colour((size_t) model, (enum weft_svg_shade) pass);
}

static double x_of(const struct picture *p, double time)
{
    return LEFT + time * p->scale;
}

/* Text of a file may have signs of its own. */
static void put_escaped(FILE *f, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '&':
            fputs("&amp;", f);
            break;
        case '<':
            fputs("&lt;", f);
            break;
        default:
            fputc(*text, f);
        }
}

/* ---- Parts -------------------------------------------------------------- */

static void put_title(const struct picture *p)
{
    const struct weft_schedule *s = p->schedule;
    const struct weft_schedule_report *r = p->report;
    fprintf(p->f, "<text x=\"%d\" y=\"18\" class=\"t\">%s%smakespan %g", LEFT,
            r->title ? r->title : "", r->title ? ": " : "", s->makespan);
    if (isfinite(r->lower_bound))
        fprintf(p->f, ", lower bound %g%s", r->lower_bound,
                r->optimal ? " (optimal)" : "");
    if (isfinite(r->serial_1f1b) && s->makespan > 0)
        fprintf(p->f, ", %.2f times as fast as serial 1F1B",
                r->serial_1f1b / s->makespan);
    fputs("</text>\n", p->f);
    double x = LEFT;
    for (int32_t m = 0; m < p->problem->n_models; m++) {
        const struct weft_schedule_model *model = &p->problem->model[m];
        for (int pass = 0; pass <= (int) weft_schedule_last_pass(model);
             pass++)
            fprintf(p->f,
                    "<rect x=\"%g\" y=\"28\" width=\"12\" height=\"12\" "
                    "fill=\"%s\"/>\n",
                    x + 13 * pass, colour_of(m, (enum weft_pass) pass));
        x += 13 * (1 + (int) weft_schedule_last_pass(model)) + 4;
        fprintf(p->f, "<text x=\"%g\" y=\"38\">", x);
        put_escaped(p->f, model->name);
        fprintf(p->f, " forward, backward%s</text>\n",
                model->split_backward ? ", weight" : "");
        x += DIGIT * ((double) strlen(model->name) + 26);
    }
}

/* All passes of a kind as one path: a picture has thousands of them. */
static void put_passes(const struct picture *p, int32_t model, int pass)
{
    const struct weft_schedule *s = p->schedule;
    fprintf(p->f, "<path class=\"p\" fill=\"%s\" d=\"",
            colour_of(model, (enum weft_pass) pass));
    for (int32_t d = 0; d < s->n_devices; d++)
        for (int32_t i = 0; i < s->n[d]; i++) {
            const struct weft_subtask *t = &s->task[d][i];
            double width = (t->end - t->start) * p->scale;
            if (t->model == model && (int) t->pass == pass && width > 0)
                fprintf(p->f, "M%.5g %.5gh%.4gv%.4gh-%.4gz",
                        x_of(p, t->start), TOP + d * p->row, width,
                        p->row * 0.92, width);
        }
    fputs("\"/>\n", p->f);
}

/* The micro-batches' numbers, where they fit. */
static void put_labels(const struct picture *p, bool forward)
{
    const struct weft_schedule *s = p->schedule;
    char label[16];
    fprintf(p->f, "<g class=\"n\" fill=\"%s\">\n", forward ? "#000" : "#fff");
    for (int32_t d = 0; d < s->n_devices && p->row >= 11; d++)
        for (int32_t i = 0; i < s->n[d]; i++) {
            const struct weft_subtask *t = &s->task[d][i];
            int n = snprintf(label, sizeof label, "%d", t->micro_batch);
            if ((t->pass == WEFT_PASS_FORWARD) == forward
                && (t->end - t->start) * p->scale >= DIGIT * n + 2)
                fprintf(p->f, "<text x=\"%.5g\" y=\"%.5g\">%s</text>\n",
                        x_of(p, (t->start + t->end) / 2),
                        TOP + (d + 0.46) * p->row + 3.2, label);
        }
    fputs("</g>\n", p->f);
}

static void put_rows(const struct picture *p)
{
    int32_t each = p->row >= 11 ? 1 : (int32_t) ceil(11 / p->row);
    for (int32_t d = 0; d < p->schedule->n_devices; d += each)
        fprintf(p->f, "<text x=\"%d\" y=\"%.2f\" class=\"e\">%d</text>\n",
                LEFT - 6, TOP + d * p->row + fmin(p->row, 18) * 0.5 + 3.5, d);
    for (int32_t m = 0; m < p->problem->n_models; m++)
        for (int pass = 0;
             pass <= (int) weft_schedule_last_pass(&p->problem->model[m]);
             pass++)
            put_passes(p, m, pass);
    put_labels(p, true);
    put_labels(p, false);
}

/* The axis of time, and lines down through all: the end and the bound. */
static void put_times(const struct picture *p)
{
    double bottom = TOP + p->schedule->n_devices * p->row;
    double end = p->schedule->makespan, step = weft_svg_step(end, 12);
    for (double t = 0; t <= end; t += step)
        fprintf(p->f,
                "<text x=\"%.2f\" y=\"%.2f\" class=\"n\">%g</text>\n"
                "<path d=\"M%.2f %.2fv4\" class=\"a\"/>\n",
                x_of(p, t), bottom + 16, t, x_of(p, t), bottom);
    fprintf(p->f, "<path d=\"M%.2f %dV%.2f\" class=\"a\"/>\n", x_of(p, end),
            TOP - 4, p->plot + MEMORY);
    if (isfinite(p->report->lower_bound))
        fprintf(p->f,
                "<path d=\"M%.2f %dV%.2f\" class=\"b\"/>\n"
                "<text x=\"%.2f\" y=\"%d\" class=\"e\">bound</text>\n",
                x_of(p, p->report->lower_bound), TOP - 14, p->plot + MEMORY,
                x_of(p, p->report->lower_bound) - 4, TOP - 6);
}

static void put_level(const struct picture *p, double level, double top,
                      const char *class, const char *says)
{
    double y = p->plot + MEMORY * (1 - level / top);
    if (!(level > 0 && level <= top))
        return;
    fprintf(p->f,
            "<path d=\"M%d %.2fH%.2f\" class=\"%s\"/>\n"
            "<text x=\"%d\" y=\"%.2f\">%s %g</text>\n",
            LEFT, y, x_of(p, p->schedule->makespan), class, LEFT + 4, y - 3,
            says, level);
}

/* What models 0 ... m hold on the plotted device, as an area. */
static void put_area(const struct picture *p, int32_t m, double top)
{
    double held = 0, bottom = p->plot + MEMORY;
    fprintf(p->f, "<path fill=\"%s\" d=\"M%d %.2f",
            colour_of(m, WEFT_PASS_FORWARD), LEFT, bottom);
    for (int32_t i = 0; i < p->schedule->n[p->device]; i++) {
        const struct weft_subtask *t = &p->schedule->task[p->device][i];
        double change = weft_subtask_memory(p->problem, t);
        if (t->model > m || change == 0 || !isfinite(t->start))
            continue;
        held += change;
        fprintf(p->f, "H%.2fV%.2f", x_of(p, change > 0 ? t->start : t->end),
                bottom - MEMORY * held / top);
    }
    fprintf(p->f, "V%.2fz\"/>\n", bottom);
}

static void put_memory(const struct picture *p)
{
    double serial = p->report->serial_peak_activation;
    double peak = p->schedule->peak_activation;
    double top = 1.18 * fmax(peak, isfinite(serial) ? serial : 0);
    double capacity = p->problem->capacity;
    if (!(peak > 0))
        return;
    for (int32_t m = p->problem->n_models - 1; m >= 0; m--)
        put_area(p, m, top);
    fprintf(p->f,
            "<path d=\"M%d %.2fv%dH%.2f\" class=\"a\"/>\n"
            "<text x=\"%d\" y=\"%.2f\">activations of device %d, which "
            "holds most: %g</text>\n",
            LEFT, p->plot, MEMORY, x_of(p, p->schedule->makespan), LEFT,
            p->plot - 6, p->device, peak);
    double step = weft_svg_step(top, PLOT_TICKS / 2);
    for (double y = 0; y <= top; y += step)
        fprintf(p->f, "<text x=\"%d\" y=\"%.2f\" class=\"e\">%g</text>\n",
                LEFT - 6, p->plot + MEMORY * (1 - y / top) + 3.5, y);
    put_level(p, serial, top, "r", "serial 1F1B");
    put_level(p, capacity, top, "b", "capacity");
}

static void put_all(struct picture *p)
{
    const struct weft_schedule *s = p->schedule;
    double height = p->plot + (s->peak_activation > 0 ? MEMORY : 0) + FOOT;
    fprintf(p->f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
            "height=\"%.0f\" viewBox=\"0 0 %d %.0f\" "
            "font-family=\"sans-serif\" font-size=\"10\">\n"
            "<style>.t{font-size:13px}.n{text-anchor:middle;font-size:9px}"
            ".e{text-anchor:end}.a{stroke:#444;fill:none}"
            ".b{stroke:#111;fill:none;stroke-dasharray:5 3}"
            ".p{stroke:#fff;stroke-width:.7}.r{stroke:#d00;fill:none;stroke-"
            "dasharray:5 3}</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            LEFT + WIDTH + RIGHT, height, LEFT + WIDTH + RIGHT, height);
    put_title(p);
    put_rows(p);
    put_memory(p);
    put_times(p);
    fputs("</svg>\n", p->f);
}

int weft_schedule_write_svg(const struct weft_schedule_problem *problem,
                            const struct weft_schedule *schedule,
                            const struct weft_schedule_report *report,
                            const char *path, struct weft_err *err)
{
    char *text = NULL;
    size_t size = 0;
    double end = fmax(schedule->makespan, report->until);
    end = end > 0 ? end : 1;
    struct picture p = {open_memstream(&text, &size), problem, schedule,
                        report, .scale = WIDTH / end};
    if (!p.f)
        return weft_err_nomem(err, path, 4096);
    p.row = fmin(MOST_ROW, fmax(3, ALL_ROWS / (double) schedule->n_devices));
    p.plot = TOP + schedule->n_devices * p.row + GAP;
    double most = -1;
    for (int32_t d = 0; d < schedule->n_devices; d++) {
        double peak = weft_schedule_peak(problem, schedule, d);
        if (peak > most)
            p.device = d;
        most = fmax(most, peak);
    }
    put_all(&p);
    return weft_file_write_text(path, weft_string_end_stream(p.f, &text),
                                err);
}
