/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was played as a picture: a row per device, time to the right, coloured
 * by call (as ReaL, Figure 10); lines down where iterations end. Tasks of a
 * call that follow one another closer than can be seen are one. What a place
 * holds over time, by class, is beneath its devices' rows; of many places, that
 * of the fullest is beneath all.
 */
#include "plan/engine/played.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/svg.h"

/* Pixels. */
enum { LEFT = 64, RIGHT = 24, HEAD = 58, WIDTH = 1040, FOOT = 34, DIGIT = 7 };
enum { MOST_ROW = 20, ALL_ROWS = 1200, TICKS = 12 };
enum { LEGEND = 18, BAND = 24, LARGE_BAND = 80, SPACE = 4 };
enum { MOST_BANDS = 32 };

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
    int top;      /* of the first row */
    /* memory over time: in so many slices, and bands of that height, for all
     * places or for one, of so many bytes */
    int32_t n_slices, n_bands;
    double slice_s, band, bytes;
    bool capacities; /* what there is in some place is no more than that */
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
    if (s->n == 0)
        return; /* qsort() takes no NULL */
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

/* ---- Where things are --------------------------------------------------- */

static double x_of(const struct picture *s, double time)
{
    return LEFT + time * s->scale;
}

static bool has_band_each(const struct picture *s)
{
    return s->n_bands == s->p->job->n_places;
}

static double y_of(const struct picture *s, int32_t device)
{
    return s->top + device * s->row
         + (has_band_each(s) ? s->p->job->place_of[device] : 0)
               * (s->band + SPACE);
}

static double bottom_of(const struct picture *s)
{
    return s->top + s->p->job->n_devices * s->row
         + s->n_bands * (s->band + SPACE);
}

/* Memory that there is; 0: not known, as of CPU devices beside GPUs, which are
 * not the cluster's. */
static double place_bytes(const struct weft_played *p, int32_t place)
{
    int32_t n_gpus = p->r->n_gpus;
    bool of_host = n_gpus > 0 && place % p->job->places_per_rank >= n_gpus;
    return p->place_bytes && !of_host ? p->place_bytes[place] : 0;
}

/* Bands show what there is where that is not far more than what is held. */
static void measure(struct picture *s)
{
    const struct weft_played *p = s->p;
    int32_t n = p->job->n_places;
    s->n_slices = weft_engine_slices(p->engine, &s->slice_s);
    for (int32_t k = 0; k < n; k++)
        s->bytes = fmax(s->bytes, (double) weft_engine_memory(
                                      p->engine, k)[WEFT_MEM_ALL]);
    if (s->n_slices > 0 && s->bytes > 0) {
        double held = s->bytes;
        s->n_bands = n <= MOST_BANDS ? n : 1;
        s->band = n <= MOST_BANDS ? BAND : LARGE_BAND;
        for (int32_t k = 0; k < n; k++) {
            double has = place_bytes(p, k);
            if (has <= 0 || has >= 4 * held)
                continue;
            s->capacities = true;
            s->bytes = fmax(s->bytes, has);
        }
    }
    s->top = HEAD + (s->n_bands > 0 ? LEGEND : 0);
    s->row = fmin((double) ALL_ROWS / p->job->n_devices, MOST_ROW);
}

/* ---- Memory over time ---------------------------------------------------- */

static bool is_held(const struct picture *s, int c)
{
    const struct weft_played *p = s->p;
    for (int32_t k = 0; k < p->job->n_places; k++)
        if (weft_engine_memory(p->engine, k)[c] > 0
            && weft_engine_counts(p->engine, k, c))
            return true;
    return false;
}

static void put_bytes(const struct picture *s, double bytes)
{
    bool large = bytes >= 0x1p29;
    weft_string_addf(s->out, "%.3g %s", bytes / (large ? 0x1p30 : 0x1p20),
                     large ? "GiB" : "MiB");
}

static void put_memory_legend(const struct picture *s)
{
    int x = LEFT;
    if (s->n_bands == 0)
        return;
    for (int c = 0; c < WEFT_N_MEM_CLASSES; c++) {
        const char *name = weft_mem_class_name((enum weft_mem_class) c);
        if (!is_held(s, c))
            continue;
        weft_string_addf(s->out,
                         "<rect x=\"%d\" y=\"%d\" width=\"12\" "
                         "height=\"12\" fill=\"%s\"/>"
                         "<text x=\"%d\" y=\"%d\">%s</text>\n",
                         x, 28 + LEGEND,
                         weft_svg_colour((size_t) c, WEFT_SVG_LIGHT), x + 16,
                         38 + LEGEND, name);
        x += 34 + DIGIT * (int) strlen(name);
    }
    weft_string_addf(s->out,
                     "<text x=\"%d\" y=\"%d\">held over time, and the most "
                     "of it",
                     x, 38 + LEGEND);
    if (s->capacities)
        weft_string_add(s->out, "; dashed: what there is");
    weft_string_add(s->out, "</text>\n");
}

/* Pixels of what classes up to this one hold in a slice. */
static double height_of(const struct picture *s, int32_t place, int32_t i,
                        int c)
{
    int64_t bytes[WEFT_MEM_ALL + 1];
    double sum = 0;
    weft_engine_slice(s->p->engine, place, i, bytes);
    for (int k = 0; k <= c; k++)
        sum += (double) bytes[k];
    return sum / s->bytes * s->band;
}

/* From the bottom of the band; classes above this one are behind it. */
static void put_class(const struct picture *s, int32_t place, int c,
                      double base)
{
    double last = 0;
    weft_string_addf(s->out, "<path fill=\"%s\" d=\"M%d %.2f",
                     weft_svg_colour((size_t) c, WEFT_SVG_LIGHT), LEFT, base);
    for (int32_t i = 0; i < s->n_slices; i++) {
        double height = height_of(s, place, i, c);
        if (fabs(height - last) < 0.01)
            continue;
        weft_string_addf(s->out, "H%.2fV%.2f", x_of(s, i * s->slice_s),
                         base - height);
        last = height;
    }
    weft_string_addf(s->out, "H%dV%.2fz\"><title>%s</title></path>\n",
                     LEFT + WIDTH, base,
                     weft_mem_class_name((enum weft_mem_class) c));
}

static void put_band(const struct picture *s, int32_t place, double y)
{
    const struct weft_played *p = s->p;
    double most = (double) weft_engine_memory(p->engine, place)[WEFT_MEM_ALL];
    double has = place_bytes(p, place);
    double base = y + s->band;
    weft_string_addf(s->out,
                     "<rect x=\"%d\" y=\"%.2f\" width=\"%d\" "
                     "height=\"%.2f\" fill=\"#f4f4f4\"/>\n"
                     "<text x=\"%d\" y=\"%.2f\" class=\"small\">",
                     LEFT, y, WIDTH, s->band, LEFT - 6, base - 2);
    put_bytes(s, most);
    weft_string_add(s->out, "</text>\n");
    for (int c = WEFT_N_MEM_CLASSES - 1; c >= 0; c--)
        if (is_held(s, c))
            put_class(s, place, c, base);
    if (has <= 0 || has > s->bytes)
        return;
    weft_string_addf(s->out,
                     "<path d=\"M%d %.2fh%d\" class=\"has\"><title>there is ",
                     LEFT, base - has / s->bytes * s->band, WIDTH);
    put_bytes(s, has);
    weft_string_add(s->out, "</title></path>\n");
}

static void put_bands(const struct picture *s)
{
    const struct weft_played *p = s->p;
    for (int32_t d = 0; d < p->job->n_devices && has_band_each(s); d++)
        if (d + 1 == p->job->n_devices
            || p->job->place_of[d + 1] != p->job->place_of[d])
            put_band(s, p->job->place_of[d], y_of(s, d) + s->row);
    if (s->n_bands == 1 && !has_band_each(s)) {
        int32_t k = weft_played_fullest(p);
        double y = bottom_of(s) - s->band - SPACE / 2;
        put_band(s, k, y);
        weft_string_addf(s->out,
                         "<text x=\"%d\" y=\"%.2f\" class=\"small\">device %d"
                         "</text>\n",
                         LEFT - 6, y + 12,
                         (int) weft_played_first_device(p, k));
    }
}

/* ---- The picture ------------------------------------------------------- */

static void put_title(const struct picture *s)
{
    const struct weft_played *p = s->p;
    int x = LEFT;
    weft_string_addf(
        s->out,
        "<text x=\"%d\" y=\"18\" class=\"t\">%d iterations on %d devices: "
        "%.4g s each once they follow one another%s</text>\n",
        LEFT, (int) p->n, (int) p->job->n_devices, p->steady_s,
        p->one_round ? ", with one round of generation" : "");
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
            LEFT - 6, y_of(s, d) + fmin(s->row, 18) * 0.5 + 3.5, (int) d);
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
                             x_of(s, k->start_s), y_of(s, k->device), width,
                             s->row * 0.92, width);
        }
        if (any)
            weft_string_addf(s->out, "\"><title>%s</title></path>\n",
                             weft_played_name(p, call));
    }
}

static void put_times(const struct picture *s)
{
    const struct weft_played *p = s->p;
    double bottom = bottom_of(s);
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
                         x_of(s, p->iteration[i].end_s), s->top - 6,
                         bottom + 4);
}

static void put_all(const struct picture *s)
{
    int width = LEFT + WIDTH + RIGHT;
    double height = bottom_of(s) + FOOT;
    weft_string_addf(
        s->out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d "
        "%.5g\" width=\"%d\" height=\"%.5g\">\n<style>"
        "text{font:11px sans-serif;fill:#333}.t{font-weight:bold}"
        ".n{text-anchor:middle}.e{text-anchor:end}"
        ".small{text-anchor:end;font-size:9px}"
        ".a{stroke:#555;fill:none}"
        ".has{stroke:#c00;fill:none;stroke-dasharray:4 3}</style>\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
        width, height, width, height);
    put_title(s);
    put_memory_legend(s);
    put_rows(s);
    put_bands(s);
    put_times(s);
    weft_string_add(s->out, "</svg>\n");
}

int weft_played_svg(const struct weft_played *p, struct weft_string *out,
                    struct weft_err *err)
{
    struct picture s = {.p = p, .out = out};
    s.scale = p->end_s > 0 ? WIDTH / p->end_s : 1;
    measure(&s);
    bool listed = list(&s);
    if (listed)
        put_all(&s);
    weft_free(s.piece);
    return listed
             ? weft_string_check(out, "a picture", err)
             : weft_err_nomem(err, "a picture", s.room * sizeof *s.piece);
}
