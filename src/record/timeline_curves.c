/* SPDX-License-Identifier: Apache-2.0 */
/* Beneath the rows of generation's picture, on the same axis: the samples that
 * are left of each round, and the blocks of all KV caches in use. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/svg.h"
#include "record/timeline_picture.h"

struct curves {
    struct weft_string *out;
    const struct weft_timeline *g;
    double span, y; /* seconds; of the axis */
};

static double x_of(const struct curves *p, double s)
{
    return weft_timeline_x(p->g, p->span, s);
}

static int by_end(const void *left, const void *right)
{
    const struct weft_timeline_chunk *a = left, *b = right;
    return (a->end.s > b->end.s) - (a->end.s < b->end.s);
}

/* The blocks that an instance uses after its chunk i: those of its next one, or
 * none where no sample is left, or others go on with them. */
static int32_t next_blocks(size_t n, const struct weft_timeline_chunk *c,
                           size_t i)
{
    for (size_t k = i + 1; k < n && c[i].left > 0; k++)
        if (c[k].instance == c[i].instance)
            return c[k].blocks;
    return 0;
}

/* What a round's chunks, in the order of their ends, leave: the share of most
 * samples, and of all caches' blocks. Steps of less than a pixel are one.
 * has: (n_instances) -1. */
static void put_curve(const struct curves *p, size_t round, size_t most,
                      const struct weft_timeline_chunk *c, int32_t *has,
                      struct weft_string *blocks)
{
    const struct weft_timeline *g = p->g;
    size_t n = weft_timeline_round_chunks(g, round);
    double y = p->y, high = CURVES;
    double all = fmax((double) g->blocks * g->n_instances, 1), used = 0;
    double left = (double) weft_timeline_round_samples(g, round);
    double x = x_of(p, g->round[round].start.s);
    double each = high / (double) (most > 0 ? most : 1);
    for (size_t i = 0; i < n; i++)
        if (has[c[i].instance] < 0)
            used += has[c[i].instance] = c[i].blocks;
    weft_string_addf(p->out, "M%.2f %.2fV%.2f", x, y, y - left * each);
    weft_string_addf(blocks, "M%.2f %.2f", x, y - high * fmin(used / all, 1));
    for (size_t i = 0, end; i < n; i = end) {
        double from = x_of(p, c[i].end.s);
        for (end = i;
             end < n && (end == i || x_of(p, c[end].end.s) < from + 0.5);
             end++) {
            used += c[end].blocks - has[c[end].instance];
            has[c[end].instance] = c[end].blocks;
            left -= c[end].ended;
        }
        x = x_of(p, c[end - 1].end.s);
        weft_string_addf(p->out, "H%.2fV%.2f", x, y - each * fmax(left, 0));
        weft_string_addf(blocks, "V%.2fH%.2f", y - high * fmin(used / all, 1),
                         x);
        for (size_t k = i; k < end; k++) {
            int32_t next = next_blocks(n, c, k);
            used += next - has[c[k].instance];
            has[c[k].instance] = next;
        }
    }
    weft_string_addf(p->out, "V%.2fz", y);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static bool put_rounds(const struct curves *p)
{
    const struct weft_timeline *g = p->g;
    size_t room = (size_t) g->n_instances + 1, most = 0;
    struct weft_timeline_chunk *c = weft_alloc(g->n_chunks + 1, sizeof *c);
    int32_t *has = weft_alloc(room, sizeof *has);
    struct weft_string blocks = {0};
    bool good = c && has;
    weft_string_add(p->out, "<path class=\"l\" d=\"");
    for (size_t r = 0; r < g->n_rounds; r++)
        most = larger(most, weft_timeline_round_samples(g, r));
    for (size_t r = 0; r < g->n_rounds && good; r++) {
        size_t n = weft_timeline_round_chunks(g, r);
        memcpy(c, g->chunk + g->round[r].first_chunk, n * sizeof *c);
        qsort(c, n, sizeof *c, by_end);
        memset(has, 0xff, room * sizeof *has);
        put_curve(p, r, most, c, has, &blocks);
    }
    weft_string_addf(p->out, "\"/>\n<path class=\"k\" d=\"%s\"/>\n",
                     blocks.data ? blocks.data : "");
    good = good && !blocks.failed;
    weft_string_release(&blocks);
    weft_free(c);
    weft_free(has);
    return good;
}

static void put_shares(const struct curves *p)
{
    double y = p->y;
    for (int i = 0; i <= 2; i++) {
        char text[16];
        weft_timeline_put_line(p->out, LEFT, y - i * CURVES / 2.0,
                               LEFT + WIDTH, y - i * CURVES / 2.0, "g");
        snprintf(text, sizeof text, "%d %%", 50 * i);
        weft_timeline_put_text(p->out, LEFT - 6, y - i * CURVES / 2.0 + 4,
                               "e", text);
    }
    weft_timeline_put_text(
        p->out, LEFT, y - CURVES - 7, "d",
        "samples left (area), and blocks of all KV caches in use "
        "(line)");
}

static void put_times(const struct curves *p)
{
    double y = p->y, step = weft_svg_step(p->span, TICKS);
    bool small = p->span < 0.1;
    for (double t = 0; t <= p->span * (1 + 1e-9); t += step) {
        char text[32];
        snprintf(text, sizeof text, "%.6g", small ? 1e3 * t : t);
        double x = x_of(p, p->g->start_s + t);
        weft_timeline_put_line(p->out, x, y, x, y + 4, "a");
        weft_timeline_put_text(p->out, x, y + 16, "n", text);
    }
    weft_timeline_put_text(p->out, LEFT + WIDTH / 2.0, y + 30, "n d",
                           small ? "milliseconds since generation began"
                                 : "seconds since generation began");
}

bool weft_timeline_put_curves(const struct weft_timeline *g, double span,
                              double y, struct weft_string *out)
{
    struct curves p = {.out = out, .g = g, .span = span, .y = y};
    put_shares(&p);
    bool good = put_rounds(&p);
    put_times(&p);
    return good;
}
