/* SPDX-License-Identifier: Apache-2.0 */
/* The lengths of responses as bars, with their tail. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/svg.h"
#include "record/timeline_picture.h"

enum { BINS = 65 };

static int ascending(const void *a, const void *b)
{
    int32_t x = *(const int32_t *) a, y = *(const int32_t *) b;
    return (x > y) - (x < y);
}

int32_t weft_timeline_quantile(size_t n, const int32_t *ascending_lengths,
                               double share)
{
    double rank = ceil(share * (double) n - 1e-9);
    return ascending_lengths[rank < 1 ? 0 : (size_t) rank - 1];
}

struct lengths {
    size_t n[BINS][3]; /* that stayed, moved, were cut */
    size_t most, n_cut;
    int32_t each, n_bins; /* tokens of a bin */
    size_t n_samples;
    int32_t *sorted; /* (n_samples) ascending */
    double y, scale; /* pixels of a token */
};

static bool count_lengths(const struct weft_timeline *g, struct lengths *l)
{
    uint8_t *moved = weft_alloc(g->n_samples + 1, 1);
    l->sorted = weft_alloc(g->n_samples + 1, sizeof *l->sorted);
    if (!moved || !l->sorted) {
        weft_free(moved);
        return false;
    }
    for (size_t i = 0; i < g->n_samples; i++)
        l->sorted[i] = g->sample[i].response;
    qsort(l->sorted, g->n_samples, sizeof *l->sorted, ascending);
    for (size_t i = 0; i < g->n_moves; i++)
        if ((size_t) g->move[i].sample < g->n_samples)
            moved[g->move[i].sample] = 1;
    int32_t longest = l->sorted[g->n_samples - 1];
    l->each = (int32_t) fmax(1, weft_svg_step(longest + 1, BINS));
    l->n_bins = longest / l->each + 1;
    for (size_t i = 0; i < g->n_samples; i++) {
        size_t *bin = l->n[g->sample[i].response / l->each];
        bin[g->sample[i].cut ? 2 : moved[i]]++;
        l->n_cut += g->sample[i].cut;
        if (bin[0] + bin[1] + bin[2] > l->most)
            l->most = bin[0] + bin[1] + bin[2];
    }
    l->n_samples = g->n_samples;
    l->scale = (double) WIDTH / ((double) l->n_bins * l->each);
    weft_free(moved);
    return true;
}

static void put_bars(struct weft_string *out, const struct lengths *l)
{
    static const char *const class[] = {"s", "mv", "ct"};
    for (int k = 0; k < 3; k++) {
        weft_string_addf(out, "<path class=\"%s\" d=\"", class[k]);
        for (int32_t b = 0; b < l->n_bins; b++) {
            double below = 0, high = (double) l->n[b][k];
            for (int j = 0; j < k; j++)
                below += (double) l->n[b][j];
            if (high <= 0)
                continue;
            double one = LENGTHS / (double) l->most;
            double width = l->each * l->scale;
            weft_string_addf(out, "M%.2f %.2fv%.2fh%.2fv%.2fz",
                             LEFT + b * width, l->y - below * one,
                             -high * one, width * 0.94, high * one);
        }
        weft_string_add(out, "\"/>\n");
    }
}

static void put_quantiles(struct weft_string *out, const struct lengths *l)
{
    static const struct {
        const char *name;
        double share;
    } of[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"longest", 1}};
    for (size_t i = 0; i < WEFT_COUNT(of); i++) {
        int32_t tokens = weft_timeline_quantile(l->n_samples, l->sorted,
                                                of[i].share);
        double x = LEFT + (tokens + 0.5) * l->scale;
        double y = l->y - LENGTHS - 44 + 12 * (double) i;
        char text[64];
        snprintf(text, sizeof text, "%s: %d", of[i].name, (int) tokens);
        weft_timeline_put_line(out, x, y - 9, x, l->y, "q");
        weft_timeline_put_beside(out, x, y, text);
    }
}

static void put_length_axis(struct weft_string *out, const struct lengths *l)
{
    double tokens = (double) l->n_bins * l->each;
    double step = fmax(1, weft_svg_step(tokens, TICKS));
    char text[160];
    for (double t = 0; t <= tokens; t += step) {
        snprintf(text, sizeof text, "%.6g", t);
        weft_timeline_put_line(out, LEFT + t * l->scale, l->y,
                               LEFT + t * l->scale, l->y + 4, "a");
        weft_timeline_put_text(out, LEFT + t * l->scale, l->y + 16, "n",
                               text);
    }
    weft_timeline_put_line(out, LEFT, l->y, LEFT + WIDTH, l->y, "a");
    snprintf(text, sizeof text, "%zu", l->most);
    weft_timeline_put_text(out, LEFT - 6, l->y - LENGTHS + 4, "e", text);
    weft_timeline_put_text(out, LEFT - 6, l->y + 4, "e", "0");
    snprintf(text, sizeof text,
             "tokens of a response, samples by %d (red: moved; orange: cut "
             "at the limit, %zu of %zu)",
             (int) l->each, l->n_cut, l->n_samples);
    weft_timeline_put_text(out, LEFT + WIDTH / 2.0, l->y + 30, "n d", text);
}

bool weft_timeline_put_lengths(const struct weft_timeline *g, double y,
                               struct weft_string *out)
{
    struct lengths *l = weft_alloc(1, sizeof *l);
    bool good = l && count_lengths(g, l);
    if (good) {
        l->y = y;
        put_bars(out, l);
        put_quantiles(out, l);
        put_length_axis(out, l);
    }
    if (l)
        weft_free(l->sorted);
    weft_free(l);
    return good;
}
