/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generation as a picture. Above, a row per instance, time to the right: how
 * many samples it goes on with, as a height where rows are high enough, else as
 * a depth of colour; what it infers; arrows for samples that move; a line where
 * a further round of generation begins. Beneath, on the same axis, the samples
 * that are left of the round and the blocks of all KV caches in use. Last the
 * lengths of responses.
 */
#include "record/timeline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/svg.h"
#include "record/timeline_picture.h"

/* Pixels. */
enum {
    TITLE = 18,
    LEGEND = 40,
    KEYS = 18,
    MARKS = 26,
    TOP = 46,
    ROUNDS = 14
};
enum { MOST_ROW = 34, ALL_ROWS = 640, HIGH_ROW = 12, GAP = 26 };
enum { AXIS = 34, STEPS = 40000, ARROWS = 400 };

#define SAMPLES_COLOUR "#86b6e8"
#define BLOCKS_COLOUR "#8a500c"
#define MOVE_COLOUR "#84203a"
#define CUT_COLOUR "#d0801f"
#define DIM "#667080"

struct picture {
    struct weft_string *out;
    const struct weft_timeline *g;
    double span, scale, row; /* seconds; pixels of one; a row's height */
    /* (n_rounds, n_rows) an instance generates no more in the round */
    double *ended_s;
    /* words above the rows; the rows; the curves' axis */
    double marks, top, bottom, curves;
};

double weft_timeline_x(const struct weft_timeline *g, double span, double s)
{
    return LEFT + (span > 0 ? fmax(s - g->start_s, 0) * WIDTH / span : 0);
}

static double x_of(const struct picture *p, double s)
{
    return weft_timeline_x(p->g, p->span, s);
}

static double *ended(const struct picture *p, size_t round, int32_t row)
{
    return &p->ended_s[round * (size_t) p->g->n_rows + (size_t) row];
}

static double y_of(const struct picture *p, int32_t row)
{
    return p->top + row * p->row;
}

/* ---- Marks --------------------------------------------------------------- */

void weft_timeline_put_text(struct weft_string *out, double x, double y,
                            const char *class, const char *text)
{
    weft_string_addf(out, "<text x=\"%.2f\" y=\"%.2f\" class=\"%s\">", x, y,
                     class);
    weft_string_add_html(out, text);
    weft_string_add(out, "</text>\n");
}

void weft_timeline_put_line(struct weft_string *out, double x, double y,
                            double x2, double y2, const char *class)
{
    weft_string_addf(out, "<path d=\"M%.2f %.2fL%.2f %.2f\" class=\"%s\"/>\n",
                     x, y, x2, y2, class);
}

void weft_timeline_put_beside(struct weft_string *out, double x, double y,
                              const char *text)
{
    bool after = x < LEFT + WIDTH * 0.7;
    weft_timeline_put_text(out, after ? x + 4 : x - 4, y, after ? "b" : "e b",
                           text);
}

/* Where the legend goes on. */
struct legend {
    double x, y;
    bool draws; /* else it is only measured */
};

static void put_key(const struct picture *p, struct legend *at,
                    const char *shape, const char *text)
{
    double width = 38 + DIGIT * (double) strlen(text) * 0.9;
    if (at->x + width > LEFT + WIDTH) {
        at->x = LEFT;
        at->y += KEYS;
    }
    if (at->draws) {
        weft_string_addf(p->out,
                         "<g transform=\"translate(%.1f %.1f)\">%s</g>\n",
                         at->x, at->y - 10, shape);
        weft_timeline_put_text(p->out, at->x + 20, at->y, "", text);
    }
    at->x += width;
}

/* Returns the y of its last line. */
static double put_legend(const struct picture *p, bool draws)
{
    const struct weft_timeline *g = p->g;
    char text[96];
    struct legend at = {LEFT, LEGEND, draws};
    snprintf(text, sizeof text, "samples generated (%s: %d)",
             p->row < HIGH_ROW ? "darkest" : "full height",
             (int) weft_max64(g->slots, 1));
    put_key(p, &at,
            p->row < HIGH_ROW
                ? "<rect width=\"14\" height=\"12\" class=\"h\"/>"
                : "<rect width=\"14\" height=\"12\" class=\"bg\"/>"
                  "<rect y=\"5\" width=\"14\" height=\"7\" class=\"s\"/>",
            text);
    for (int32_t c = 0; c < g->n_calls; c++) {
        snprintf(text, sizeof text,
                 "<rect width=\"14\" height=\"12\" fill=\"%s\"/>",
                 weft_svg_call_colour(g->infers[c]));
        put_key(p, &at, text, g->infers[c]);
    }
    put_key(p, &at, "<path d=\"M0 6H14\" class=\"k\"/>", "KV blocks in use");
    if (g->n_moves > 0)
        put_key(p, &at,
                "<path d=\"M0 6H10\" class=\"m\" "
                "marker-end=\"url(#move)\"/>",
                "samples move");
    return at.y;
}

static void put_title(const struct picture *p)
{
    const struct weft_timeline *g = p->g;
    char text[192], rounds[48] = "";
    if (g->n_rounds > 1)
        snprintf(rounds, sizeof rounds, " in %zu rounds", g->n_rounds);
    snprintf(text, sizeof text,
             "Iteration %lld, %s: %zu sample%s%s on %d instance%s, %zu moved",
             (long long) g->iteration, g->call, g->n_samples,
             g->n_samples == 1 ? "" : "s", rounds, (int) g->n_instances,
             g->n_instances == 1 ? "" : "s", g->n_moves);
    weft_timeline_put_text(p->out, LEFT, TITLE, "t", text);
}

/* ---- Rows --------------------------------------------------------------- */

/* What an instance has between two moments. */
struct step {
    double start_s, end_s;
    int32_t samples, blocks;
};

/* Steps of an instance, of chunks that are told apart in the picture. Returns
 * how many; out: room for its chunks. */
static size_t steps_of(const struct picture *p, int32_t instance,
                       struct step *out)
{
    const struct weft_timeline *g = p->g;
    double least = fmax(0.7, (double) g->n_instances * WIDTH / STEPS);
    double from = g->start_s;
    size_t n = 0, round = 0;
    bool idle = false;
    for (size_t i = 0; i < g->n_chunks; i++) {
        const struct weft_timeline_chunk *c = &g->chunk[i];
        for (; round < g->n_rounds && g->round[round].first_chunk == i;
             round++) {
            from = g->round[round].start.s;
            idle = false;
        }
        if (c->instance != instance)
            continue;
        /* what is idle begins again with what comes to it */
        for (size_t k = 0; k < g->n_moves && idle; k++)
            if (g->move[k].to == instance && g->move[k].at.s >= from
                && g->move[k].at.s < c->end.s) {
                from = g->move[k].at.s;
                idle = false;
            }
        struct step *last = n > 0 ? &out[n - 1] : NULL;
        bool same = last && from <= last->end_s && last->samples == c->samples
                 && last->blocks == c->blocks;
        bool near = last && from <= last->end_s
                 && (last->end_s - last->start_s) * p->scale < least;
        if (same || near) {
            last->end_s = c->end.s;
            last->samples = same ? c->samples
                                 : (int32_t) weft_max64(last->samples,
                                                        c->samples);
            last->blocks = (int32_t) weft_max64(last->blocks, c->blocks);
        } else {
            out[n++] = (struct step){from, c->end.s, c->samples, c->blocks};
        }
        from = c->end.s;
        idle = c->left == 0;
    }
    return n;
}

static void put_samples(const struct picture *p, int32_t i, size_t n,
                        const struct step *step)
{
    double most = (double) weft_max64(p->g->slots, 1);
    double height = p->row * 0.9, y = y_of(p, i) + height;
    bool high = p->row >= HIGH_ROW;
    if (n > 0 && high)
        weft_string_add(p->out, "<path class=\"s\" d=\"");
    for (size_t k = 0; k < n; k++) {
        double x = x_of(p, step[k].start_s), end = x_of(p, step[k].end_s);
        double share = fmin(step[k].samples / most, 1);
        if (high)
            weft_string_addf(p->out, "M%.2f %.2fV%.2fH%.2fV%.2fz", x, y,
                             y - share * height, end, y);
        else
            weft_string_addf(p->out,
                             "<path class=\"h\" fill-opacity=\"%.2f\" "
                             "d=\"M%.2f %.2fh%.2fv%.2fh%.2fz\"/>\n",
                             0.2 + 0.8 * share, x, y - height, end - x,
                             height, x - end);
    }
    if (n > 0 && high)
        weft_string_addf(p->out, "\"><title>instance %d</title></path>\n",
                         (int) i);
}

static void put_blocks(const struct picture *p, int32_t i, size_t n,
                       const struct step *step)
{
    double most = (double) weft_max64(p->g->blocks, 1);
    double height = p->row * 0.9, y = y_of(p, i) + height;
    if (n == 0 || p->row < 2 * HIGH_ROW)
        return;
    weft_string_add(p->out, "<path class=\"k\" d=\"");
    for (size_t k = 0; k < n; k++) {
        bool follows = k > 0 && step[k].start_s <= step[k - 1].end_s;
        double share = fmin(step[k].blocks / most, 1);
        weft_string_addf(p->out, follows ? "V%.2f" : "M%.2f %.2f",
                         follows ? y - share * height
                                 : x_of(p, step[k].start_s),
                         y - share * height);
        weft_string_addf(p->out, "H%.2f", x_of(p, step[k].end_s));
    }
    weft_string_add(p->out, "\"/>\n");
}

/* The part of a piece between two times. */
static void put_part(const struct picture *p,
                     const struct weft_timeline_piece *k, double from_s,
                     double to_s, double share)
{
    double width = fmax((to_s - from_s) * p->scale, 0.3);
    double height = p->row * 0.9 * share;
    if (to_s <= from_s)
        return;
    weft_string_addf(p->out, "M%.2f %.2fh%.2fv%.2fh%.2fz", x_of(p, from_s),
                     y_of(p, k->row) + p->row * 0.9 - height, width, height,
                     -width);
}

/* Inference has the whole row while the instance generates nothing, and half of
 * it before its last chunk of a round. */
static void put_piece(const struct picture *p,
                      const struct weft_timeline_piece *k)
{
    const struct weft_timeline *g = p->g;
    for (size_t r = 0; r < g->n_rounds; r++) {
        double from = r == 0 ? k->start_s
                             : fmax(k->start_s, g->round[r].start.s);
        double to = r + 1 == g->n_rounds
                      ? k->end_s
                      : fmin(k->end_s, g->round[r + 1].start.s);
        put_part(p, k, from, fmin(to, *ended(p, r, k->row)), 0.5);
        put_part(p, k, fmax(from, *ended(p, r, k->row)), to, 1);
    }
}

static void put_inference(const struct picture *p)
{
    for (int32_t c = 0; c < p->g->n_calls; c++) {
        weft_string_addf(p->out, "<path fill=\"%s\" d=\"",
                         weft_svg_call_colour(p->g->infers[c]));
        for (size_t i = 0; i < p->g->n_pieces; i++)
            if (p->g->piece[i].call == c)
                put_piece(p, &p->g->piece[i]);
        weft_string_add(p->out, "\"><title>");
        weft_string_add_html(p->out, p->g->infers[c]);
        weft_string_add(p->out, "</title></path>\n");
    }
}

static void put_names(const struct picture *p)
{
    const struct weft_timeline *g = p->g;
    int32_t each = p->row >= 12 ? 1 : (int32_t) ceil(12 / p->row);
    for (int32_t i = 0; i < g->n_rows; i++) {
        double y = y_of(p, i) + fmin(p->row, MOST_ROW) * 0.45 + 4;
        char text[32];
        weft_string_addf(p->out,
                         "<rect x=\"%d\" y=\"%.2f\" width=\"%d\" "
                         "height=\"%.2f\" class=\"bg\"/>\n",
                         LEFT, y_of(p, i), WIDTH, p->row * 0.9);
        snprintf(text, sizeof text, i < g->n_instances ? "%d" : "device %d",
                 i < g->n_instances ? (int) i : (int) g->first_device[i]);
        if (i % each == 0 && i + each <= g->n_rows + (each == 1))
            weft_timeline_put_text(p->out, LEFT - 6, y, "e", text);
    }
    weft_string_addf(p->out,
                     "<text transform=\"translate(14 %.2f) rotate(-90)\" "
                     "class=\"n d\">instance</text>\n",
                     fmax((p->top + p->bottom) / 2, p->top + 24));
}

/* ---- What moves ---------------------------------------------------------- */

static int by_way(const void *left, const void *right)
{
    const struct weft_timeline_move *a = left, *b = right;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    return (a->at.s > b->at.s) - (a->at.s < b->at.s);
}

/* One arrow for samples that go the same way as soon as one another. */
static bool put_moves(const struct picture *p)
{
    const struct weft_timeline *g = p->g;
    struct weft_timeline_move *m = weft_alloc(g->n_moves, sizeof *m);
    int32_t n_arrows = 0;
    if (g->n_moves == 0 || !m) {
        weft_free(m);
        return g->n_moves == 0;
    }
    memcpy(m, g->move, g->n_moves * sizeof *m);
    qsort(m, g->n_moves, sizeof *m, by_way);
    for (size_t i = 0, end; i < g->n_moves && n_arrows < ARROWS; i = end) {
        for (end = i + 1; end < g->n_moves && m[end].from == m[i].from
                          && m[end].to == m[i].to
                          && (m[end].at.s - m[i].at.s) * p->scale < 3;)
            end++;
        double x = x_of(p, m[i].at.s);
        double y = y_of(p, m[i].from) + p->row * 0.45;
        double to = y_of(p, m[i].to) + p->row * 0.45;
        double bend = x + 10 + fmin(fabs(to - y) / 5, 28);
        weft_string_addf(p->out,
                         "<path class=\"m\" marker-end=\"url(#move)\" "
                         "d=\"M%.2f %.2fC%.2f %.2f %.2f %.2f %.2f %.2f\">"
                         "<title>%zu from %d to %d</title></path>\n",
                         x, y, bend, y, bend, to, x + 5, to, end - i,
                         (int) m[i].from, (int) m[i].to);
        n_arrows++;
    }
    weft_free(m);
    return true;
}

/* One above the other, so that their words cannot meet. */
static void put_triggers(const struct picture *p)
{
    const struct weft_timeline *g = p->g;
    double y = p->curves, last = -WIDTH, ends = g->start_s;
    char text[64];
    for (size_t i = 0; i < g->n_triggers; i++) {
        double x = x_of(p, g->trigger[i].at.s);
        weft_timeline_put_line(p->out, x, p->marks - 9, x, y, "r");
        snprintf(text, sizeof text, "%s%d left",
                 i ? "" : "R_t: ", (int) g->trigger[i].left);
        if (fabs(x - last) > 90) {
            weft_timeline_put_beside(p->out, x, p->marks, text);
            last = x;
        }
    }
    for (int32_t i = 0; i < g->n_instances; i++)
        ends = fmax(ends, *ended(p, g->n_rounds - 1, i));
    weft_timeline_put_line(p->out, x_of(p, ends), p->marks + 4, x_of(p, ends),
                           y, "z");
    double took = ends - g->start_s;
    snprintf(text, sizeof text, "all have ended: %.4g %s",
             took < 0.1 ? 1e3 * took : took, took < 0.1 ? "ms" : "s");
    weft_timeline_put_beside(p->out, x_of(p, ends), p->marks + 14, text);
}

/* Where further rounds begin; words where there is room. */
static void put_rounds(const struct picture *p)
{
    const struct weft_timeline *g = p->g;
    double y = p->curves, last = LEFT;
    for (size_t r = 1; r < g->n_rounds; r++) {
        double x = x_of(p, g->round[r].start.s);
        size_t n = weft_timeline_round_samples(g, r);
        char text[64];
        snprintf(text, sizeof text, "round %zu: %zu sample%s", r + 1, n,
                 n == 1 ? "" : "s");
        double width = DIGIT * (double) strlen(text);
        double left = fmin(x + 4, LEFT + WIDTH - width);
        weft_timeline_put_line(p->out, x, p->marks - ROUNDS - 9, x, y, "o");
        if (left < last)
            continue;
        weft_timeline_put_text(p->out, left, p->marks - ROUNDS, "b", text);
        last = left + width;
    }
}

/* ---- Together ------------------------------------------------------------ */

static void put_head(const struct picture *p, double height)
{
    int width = LEFT + WIDTH + RIGHT;
    weft_string_addf(
        p->out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.6g\" "
        "width=\"%d\" height=\"%.6g\">\n<style>"
        "text{font:11px sans-serif;fill:#333}.t{font-weight:bold}"
        ".b{paint-order:stroke;stroke:#fff;stroke-width:3px}"
        ".n{text-anchor:middle}.e{text-anchor:end}.d{fill:" DIM "}"
        ".bg{fill:#f0f3f6}.s,.l{fill:" SAMPLES_COLOUR
        "}.h{fill:%s}.mv{fill:" MOVE_COLOUR "}"
        ".ct{fill:" CUT_COLOUR "}.a{stroke:#555}.g{stroke:#dde2e8}"
        ".k,.m,.r,.z,.q,.o{fill:none}.k{stroke:" BLOCKS_COLOUR
        ";stroke-width:1.2}.m{stroke:" MOVE_COLOUR ";stroke-width:%s}"
        ".r{stroke:" MOVE_COLOUR ";stroke-dasharray:4 3}"
        ".z{stroke:" DIM ";stroke-dasharray:2 3}.q{stroke:#333}"
        ".o{stroke:#333;stroke-width:.7}</style>\n"
        "<defs><marker id=\"move\" viewBox=\"0 0 8 8\" refX=\"6\" refY=\"4\" "
        "markerWidth=\"%s\" markerHeight=\"6\" orient=\"auto\" "
        "markerUnits=\"userSpaceOnUse\"><path d=\"M0 0L8 4L0 8z\" "
        "fill=\"" MOVE_COLOUR "\"/></marker></defs>\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
        width, height, width, height, weft_svg_colour(0, WEFT_SVG_PLAIN),
        p->row < HIGH_ROW ? "0.7;opacity:.6" : "1.5",
        p->row < HIGH_ROW ? "6" : "8");
}

static bool put_rows(const struct picture *p)
{
    struct step *step = weft_alloc(p->g->n_chunks + 1, sizeof *step);
    put_names(p);
    for (int32_t i = 0; i < p->g->n_instances && step; i++)
        put_samples(p, i, steps_of(p, i, step), step);
    put_inference(p);
    for (int32_t i = 0; i < p->g->n_instances && step; i++)
        put_blocks(p, i, steps_of(p, i, step), step);
    weft_free(step);
    return step != NULL;
}

static void measure(struct picture *p)
{
    const struct weft_timeline *g = p->g;
    double end_s = g->start_s;
    for (size_t r = 0; r < g->n_rounds; r++)
        for (size_t k = 0; k < weft_timeline_round_chunks(g, r); k++) {
            const struct weft_timeline_chunk *c =
                &g->chunk[g->round[r].first_chunk + k];
            double *ends = ended(p, r, c->instance);
            *ends = fmax(*ends, c->end.s);
            end_s = fmax(end_s, *ends);
        }
    for (size_t i = 0; i < g->n_pieces; i++)
        end_s = fmax(end_s, g->piece[i].end_s);
    p->span = end_s - g->start_s;
    p->scale = p->span > 0 ? WIDTH / p->span : 1;
    p->row = fmin((double) ALL_ROWS / (double) weft_max64(g->n_rows, 1),
                  MOST_ROW);
    p->marks = put_legend(p, false) + MARKS + (g->n_rounds > 1 ? ROUNDS : 0);
    p->top = p->marks + TOP - MARKS;
    p->bottom = p->top + g->n_rows * p->row;
    p->curves = p->bottom + GAP + CURVES;
}

static int draw(const struct weft_timeline *g, struct weft_string *out,
                struct weft_err *err)
{
    struct picture p = {.out = out, .g = g};
    p.ended_s = weft_alloc(g->n_rounds * (size_t) g->n_rows + 1,
                           sizeof *p.ended_s);
    bool good = p.ended_s && !g->failed;
    if (good) {
        measure(&p);
        double axis = p.curves + AXIS;
        double y = axis + LABELS + LENGTHS;
        bool any = g->n_chunks > 0;
        put_head(&p, !any               ? LEGEND + TOP
                     : g->n_samples > 0 ? y + FOOT
                                        : axis);
        put_title(&p);
        if (!any)
            weft_timeline_put_text(out, LEFT, LEGEND, "d",
                                   "nothing was generated");
        if (any) {
            (void) put_legend(&p, true);
            good = put_rows(&p)
                && weft_timeline_put_curves(g, p.span, p.curves, out);
            put_rounds(&p);
            put_triggers(&p);
            good = put_moves(&p) && good;
        }
        if (any && g->n_samples > 0)
            good = weft_timeline_put_lengths(g, y, out) && good;
        weft_string_add(out, "</svg>\n");
    }
    weft_free(p.ended_s);
    return good ? weft_string_check(out, "a picture", err)
                : weft_err_nomem(err, "a picture", g->n_chunks * 32);
}

int weft_timeline_svg(const struct weft_timeline *g, struct weft_string *out,
                      struct weft_err *err)
{
    struct weft_string one = {0}, rest = {0};
    if (!g->beside)
        return draw(g, out, err);
    int rc = draw(g, &one, err);
    if (!rc)
        rc = weft_timeline_svg(g->beside, &rest, err);
    if (!rc) {
        weft_svg_stack(one.data, rest.data, out);
        rc = weft_string_check(out, "a picture", err);
    }
    weft_string_release(&one);
    weft_string_release(&rest);
    return rc;
}
