/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was played as a picture: a row per device, time to the right, coloured
 * by call (as ReaL, Figure 10); lines down where iterations end. Tasks of a
 * call that follow one another closer than can be seen are one.
 */
#include "plan/engine/played.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/svg.h"

/* Pixels. */
enum { LEFT = 56, RIGHT = 24, TOP = 58, WIDTH = 1040, FOOT = 34, DIGIT = 7 };
enum { MOST_ROW = 20, ALL_ROWS = 1200, TICKS = 12 };

/* Of a device, by start. */
struct piece {
    double start_s, end_s;
    int32_t device, call;
};

struct picture {
    struct weft_string *out;
    const struct weft_played *p;
    struct piece *piece;
    size_t n, room;
    double scale; /* pixels per second */
    double row;   /* height */
};

static bool is_shown(const struct weft_played *p, int32_t call)
{
    for (int32_t i = 0; i < p->n; i++)
        if (p->call[i * WEFT_MAX_CALLS + call].ran_s > 0)
            return true;
    return false;
}

/* What is of no call is grey. */
static const char *colour_of(const struct weft_played *p, int32_t call)
{
    return call == 0 ? "#b0b0b0"
                     : weft_svg_call_colour(weft_played_name(p, call));
}

/* ---- Pieces ------------------------------------------------------------ */

static int compare(const void *left, const void *right)
{
    const struct piece *a = left, *b = right;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    return (a->start_s > b->start_s) - (a->start_s < b->start_s);
}

/* Joins neighbours of a call with less than a third of a pixel between. */
static void join(struct picture *s)
{
    double near_s = 1 / (3 * s->scale);
    size_t n = 0;
    qsort(s->piece, s->n, sizeof *s->piece, compare);
    for (size_t i = 0; i < s->n; i++) {
        struct piece *last = n > 0 ? &s->piece[n - 1] : NULL;
        const struct piece *one = &s->piece[i];
        if (last && last->device == one->device && last->call == one->call
            && one->start_s - last->end_s < near_s)
            last->end_s = fmax(last->end_s, one->end_s);
        else
            s->piece[n++] = *one;
    }
    s->n = n;
}

/* Tasks come device by device in hardly any order, so that those of a device
 * that follow one another are joined before there are too many. */
static bool list(struct picture *s)
{
    const struct weft_played *p = s->p;
    for (int64_t i = 0; i < p->r->n_tasks; i++) {
        struct weft_span span;
        int32_t device;
        if (!weft_engine_span(p->engine, i, &span, &device) || device < 0)
            continue;
        if (s->n == s->room) {
            join(s);
            if (2 * s->n >= s->room) {
                size_t room = s->room ? 2 * s->room : 1 << 16;
                struct piece *more = weft_realloc(s->piece, room,
                                                  sizeof *more);
                if (!more)
                    return false;
                s->piece = more;
                s->room = room;
            }
        }
        s->piece[s->n++] = (struct piece){span.start_s, span.end_s, device,
                                          p->r->task[i].call};
    }
    join(s);
    return true;
}

/* ---- The picture ------------------------------------------------------- */

static double x_of(const struct picture *s, double time)
{
    return LEFT + time * s->scale;
}

static void put_title(const struct picture *s)
{
    const struct weft_played *p = s->p;
    int x = LEFT;
    weft_string_addf(
        s->out,
        "<text x=\"%d\" y=\"18\" class=\"t\">%d iterations on %d devices: "
        "%.4g s each once they follow one another</text>\n",
        LEFT, (int) p->n, (int) p->job->n_devices, p->steady_s);
    for (int32_t c = 1; c <= p->flow->n_calls; c++) {
        int32_t call = c % p->flow->n_calls;
        if (!is_shown(p, call))
            continue;
        weft_string_addf(s->out,
                         "<rect x=\"%d\" y=\"28\" width=\"12\" height=\"12\" "
                         "fill=\"%s\"/><text x=\"%d\" y=\"38\">%s</text>\n",
                         x, colour_of(p, call), x + 16,
                         weft_played_name(p, call));
        x += 34 + DIGIT * (int) strlen(weft_played_name(p, call));
    }
}

static void put_rows(const struct picture *s)
{
    const struct weft_played *p = s->p;
    int32_t each = s->row >= 11 ? 1 : (int32_t) ceil(11 / s->row);
    for (int32_t d = 0; d < p->job->n_devices; d += each)
        weft_string_addf(
            s->out, "<text x=\"%d\" y=\"%.2f\" class=\"e\">%d</text>\n",
            LEFT - 6, TOP + d * s->row + fmin(s->row, 18) * 0.5 + 3.5,
            (int) d);
    for (int32_t call = 0; call < p->flow->n_calls; call++) {
        bool any = false;
        for (size_t i = 0; i < s->n; i++) {
            const struct piece *k = &s->piece[i];
            double width = fmax((k->end_s - k->start_s) * s->scale, 0.3);
            if (k->call != call)
                continue;
            if (!any)
                weft_string_addf(s->out, "<path fill=\"%s\" d=\"",
                                 colour_of(p, call));
            any = true;
            weft_string_addf(s->out, "M%.6g %.5gh%.4gv%.4gh-%.4gz",
                             x_of(s, k->start_s), TOP + k->device * s->row,
                             width, s->row * 0.92, width);
        }
        if (any)
            weft_string_addf(s->out, "\"><title>%s</title></path>\n",
                             weft_played_name(p, call));
    }
}

static void put_times(const struct picture *s)
{
    const struct weft_played *p = s->p;
    double bottom = TOP + p->job->n_devices * s->row;
    double step = weft_svg_step(p->end_s, TICKS);
    for (double t = 0; t <= p->end_s * (1 + 1e-9); t += step)
        weft_string_addf(
            s->out,
            "<text x=\"%.2f\" y=\"%.2f\" class=\"n\">%.6g</text>\n"
            "<path d=\"M%.2f %.2fv4\" class=\"a\"/>\n",
            x_of(s, t), bottom + 16, t, x_of(s, t), bottom);
    weft_string_addf(s->out, "<text x=\"%d\" y=\"%.2f\">s</text>\n",
                     LEFT + WIDTH + 8, bottom + 16);
    for (int32_t i = 0; i < p->n; i++)
        weft_string_addf(s->out, "<path d=\"M%.2f %dV%.2f\" class=\"a\"/>\n",
                         x_of(s, p->iteration[i].end_s), TOP - 6, bottom + 4);
}

static void put_all(const struct picture *s)
{
    int width = LEFT + WIDTH + RIGHT;
    double height = TOP + s->p->job->n_devices * s->row + FOOT;
    weft_string_addf(
        s->out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d "
        "%.5g\" width=\"%d\" height=\"%.5g\">\n<style>"
        "text{font:11px sans-serif;fill:#333}.t{font-weight:bold}"
        ".n{text-anchor:middle}.e{text-anchor:end}"
        ".a{stroke:#555;fill:none}</style>\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
        width, height, width, height);
    put_title(s);
    put_rows(s);
    put_times(s);
    weft_string_add(s->out, "</svg>\n");
}

int weft_played_svg(const struct weft_played *p, struct weft_string *out,
                    struct weft_err *err)
{
    struct picture s = {.p = p, .out = out};
    s.scale = p->end_s > 0 ? WIDTH / p->end_s : 1;
    s.row = fmin((double) ALL_ROWS / p->job->n_devices, MOST_ROW);
    bool listed = list(&s);
    if (listed)
        put_all(&s);
    weft_free(s.piece);
    return listed
             ? weft_string_check(out, "a picture", err)
             : weft_err_nomem(err, "a picture", s.room * sizeof *s.piece);
}
