/* SPDX-License-Identifier: Apache-2.0 */
/* Mean scores of runs, iteration by iteration. */
#include "pictures/draw.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/svg.h"
#include "pictures/svg.h"

enum {
    MOST = 10000, /* iterations */
    LABELS = 8,
    MEAN_OF = 10, /* iterations, up to the one that is drawn */
    WIDTH = 620,
    HEIGHT = 300,
    LEFT = 44,
    TOP = 14,
    BOTTOM = 40
};

/* Reads the scores of a run's metrics.jsonl; returns how many, -1: an error. */
static int read_scores(const char *path, double *out)
{
    char *text = NULL;
    size_t n = 0;
    int found = 0;
    struct weft_err err;
    if (weft_file_read(path, 0, &text, &n, &err)) {
        fprintf(stderr, "draw: %s\n", err.text);
        return -1;
    }
    for (char *line = strtok(text, "\n"); line && found < MOST;
         line = strtok(NULL, "\n")) {
        json_t *row = NULL;
        if (weft_json_parse(line, strlen(line), path, &row, &err)
            || weft_json_double(row, path, "critic/score/mean", &out[found],
                                &err)) {
            fprintf(stderr, "draw: %s\n", err.text);
            found = -2;
        }
        found++;
        json_decref(row);
        if (found < 0)
            break;
    }
    weft_free(text);
    return found;
}

static double x_of(int i, int n)
{
    return LEFT + (WIDTH - LEFT - 10.0) * i / (n > 1 ? n - 1 : 1);
}

static double y_of(double score)
{
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - score);
}

static void draw_run(const double *score, int n, const char *colour)
{
    printf("<path d=\"");
    for (int i = 0; i < n; i++) {
        int from = i < MEAN_OF ? 0 : i - MEAN_OF + 1;
        double sum = 0;
        for (int k = from; k <= i; k++)
            sum += score[k];
        printf("%c%.1f,%.1f", i ? 'L' : 'M', x_of(i, n),
               y_of(sum / (i - from + 1)));
    }
    printf("\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.4\"/>\n", colour);
}

static void draw_axes(int n)
{
    int step = (int) weft_svg_step(n, 8);
    for (int k = 0; k <= 5; k++) {
        svg_line(LEFT, y_of(k / 5.0), WIDTH - 10, y_of(k / 5.0), "#e1e4e8");
        svg_text(LEFT - 6, y_of(k / 5.0) + 4, 11, "end", INK, "%.1f",
                 k / 5.0);
    }
    for (int i = step; i <= n; i += step)
        svg_text(x_of(i - 1, n), HEIGHT - BOTTOM + 16, 11, "middle", INK,
                 "%d", i);
    svg_text(WIDTH - 10, HEIGHT - 6, 11, "end", PALE,
             "iterations; mean score, of the last %d", MEAN_OF);
}

/* LABEL=metrics.jsonl: runs of one label have one colour. */
int draw_curves(int n, char **run)
{
    double *score = weft_alloc(MOST, sizeof *score);
    char label[LABELS][32];
    int n_labels = 0, rc = !score;
    svg_begin(WIDTH, HEIGHT);
    for (int i = 0; i < n && !rc; i++) {
        const char *path = strchr(run[i], '=');
        int k = 0, n_scores = path ? read_scores(path + 1, score) : -1;
        rc = n_scores < 0;
        if (rc)
            break;
        if (i == 0)
            draw_axes(n_scores);
        size_t length = (size_t) (path - run[i]);
        while (k < n_labels
               && (strncmp(label[k], run[i], length) || label[k][length]))
            k++;
        if (k == n_labels && k < LABELS && length < sizeof label[k]) {
            memcpy(label[k], run[i], length);
            label[n_labels++][length] = 0;
            svg_line(LEFT + 10, TOP + 14 + 18 * k, LEFT + 34,
                     TOP + 14 + 18 * k, svg_colour[k]);
            svg_text(LEFT + 40, TOP + 18 + 18 * k, 12, "start", INK, "%s",
                     label[k]);
        }
        draw_run(score, n_scores, svg_colour[k % LABELS]);
    }
    svg_end();
    weft_free(score);
    return rc;
}
