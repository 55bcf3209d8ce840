/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table of what papers measured and what is predicted, of the rows that
 * bench/papers* left (bench/rows.h), a picture of it, and one of the curves of
 * searches.
 *
 *     bench/papers_table ROWS [--svg PICTURE.svg CURVES.svg]
 *
 * Below the table: median errors, what is more than a quarter off, each with its
 * cause where one is known, and what plans that the papers could not have would
 * gain.
 */
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include "base/compiler.h"
#include "bench/median.h"
#include "bench/rows.h"

enum { MOST_ROWS = 400, MOST_TEXT = 65536, FIELDS = 8, MISSED = 25 };

static char text[MOST_TEXT];
static struct row rows[MOST_ROWS];
static int n_rows;

/* ---- Reading ------------------------------------------------------------ */

static void stop(const char *path, const char *why)
{
    fprintf(stderr, "papers_table: %s: %s\n", path, why);
    exit(1);
}

static bool parse(char *line, struct row *out)
{
    char *field[FIELDS];
    int n = 0, kind = 0;
    for (char *at = line; at && n < FIELDS; n++) {
        field[n] = at;
        at = strchr(at, '\t');
        if (at)
            *at++ = '\0';
    }
    while (n == FIELDS && kind < N_ROW_KINDS
           && strcmp(field[0], row_kind_name[kind]) != 0)
        kind++;
    if (n < FIELDS || kind == N_ROW_KINDS)
        return false;
    *out = (struct row){.kind = (enum row_kind) kind,
                        .paper = field[1],
                        .setting = field[2],
                        .what = field[3],
                        .unit = field[4],
                        .published = atof(field[5]),
                        .predicted = atof(field[6]),
                        .why = field[7]};
    return true;
}

static void read_rows(const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f)
        stop(path, "it cannot be opened");
    size_t n = fread(text, 1, MOST_TEXT - 1, f);
    fclose(f);
    if (n == MOST_TEXT - 1)
        stop(path, "it is too long");
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (n_rows == MOST_ROWS)
            stop(path, "it has too many rows");
        if (!parse(line, &rows[n_rows++]))
            stop(path, "a line is no row of bench/papers*");
    }
}

/* ---- The table ---------------------------------------------------------- */

static double error_of(const struct row *r)
{
    return 100 * (r->predicted / r->published - 1);
}

static bool is_value(const struct row *r)
{
    return r->kind <= ROW_FLAGGED;
}

static bool is_missed(const struct row *r)
{
    return r->kind == ROW_ORDER
             ? r->published != r->predicted
             : r->kind == ROW_PREDICTED && fabs(error_of(r)) > MISSED;
}

static void print_table(void)
{
    printf("%-9s %-34s %-24s %-10s %9s %9s %8s\n", "paper", "setting", "what",
           "unit", "published", "predicted", "error %");
    for (int i = 0; i < n_rows; i++) {
        const struct row *r = &rows[i];
        if (!is_value(r))
            continue;
        printf("%-9s %-34s %-24s %-10s %9.4g %9.4g %+8.1f%s%s\n", r->paper,
               r->setting, r->what, r->unit, r->published, r->predicted,
               error_of(r), r->kind == ROW_PREDICTED ? "" : " ",
               r->kind == ROW_PREDICTED ? "" : row_kind_name[r->kind]);
    }
    printf("\norders, ranges and limits\n");
    for (int i = 0; i < n_rows; i++)
        if (rows[i].kind == ROW_ORDER)
            printf("%-9s %-34s %s: %s\n", rows[i].paper, rows[i].setting,
                   rows[i].what, is_missed(&rows[i]) ? "missed" : "met");
}

/* Of a paper's rows in one unit, if it is the first of them. */
static void print_median(int first)
{
    static double error[MOST_ROWS];
    int n = 0, within = 0;
    for (int i = 0; i < n_rows; i++) {
        const struct row *r = &rows[i];
        if (r->kind != ROW_PREDICTED
            || strcmp(r->paper, rows[first].paper) != 0
            || strcmp(r->unit, rows[first].unit) != 0)
            continue;
        if (i < first)
            return;
        error[n++] = fabs(error_of(r));
        within += !is_missed(r);
    }
    double median = median_sort(error, n);
    printf("%-9s %-10s %3d cells: median error %.1f %%, largest %.0f %%; %d "
           "within %d %%\n",
           rows[first].paper, rows[first].unit, n, median, error[n - 1],
           within, MISSED);
}

static void print_below(void)
{
    printf("\nmedians, without cells that are calibrated or flagged\n");
    for (int i = 0; i < n_rows; i++)
        if (rows[i].kind == ROW_PREDICTED)
            print_median(i);
    printf("\nmissed (more than %d %%, or another order) or flagged\n",
           MISSED);
    for (int i = 0; i < n_rows; i++) {
        const struct row *r = &rows[i];
        if (!is_missed(r) && r->kind != ROW_FLAGGED)
            continue;
        printf("%s, %s, %s", r->paper, r->setting, r->what);
        if (is_value(r))
            printf(" (%+.0f %%)", error_of(r));
        printf(": %s\n", *r->why ? r->why : "not explained");
    }
    printf(
        "\nplans that the papers' systems could not have, both predicted\n");
    for (int i = 0; i < n_rows; i++) {
        const struct row *r = &rows[i];
        if (r->kind == ROW_MORE)
            printf("%-9s %-34s %9.4g to %9.4g %s: %.2f times as fast; %s\n",
                   r->paper, r->setting, r->published, r->predicted, r->unit,
                   strcmp(r->unit, "s") == 0 ? r->published / r->predicted
                                             : r->predicted / r->published,
                   r->why);
    }
}

/* ---- The picture -------------------------------------------------------- */

enum { SIZE = 460, EDGE = 46, LEGEND = 150 };

/* Powers of ten that the axes begin and end at. */
static int low = 10, high = -10;

static double place(double value)
{
    return (log10(value) - low) / (high - low) * SIZE;
}

static FILE *begin(const char *path)
{
    int width = EDGE + SIZE + LEGEND + 40, height = EDGE / 2 + SIZE + EDGE;
    FILE *f = fopen(path, "w");
    if (!f)
        stop(path, "it cannot be written");
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
            "height=\"%d\" viewBox=\"0 0 %d %d\" font-size=\"12\" "
            "font-family=\"Helvetica,Arial,sans-serif\">\n<rect "
            "width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            width, height, width, height);
    return f;
}

static void end(FILE *f, const char *path)
{
    fprintf(f, "</svg>\n");
    if (fclose(f) != 0)
        stop(path, "it cannot be written");
}

WEFT_PRINTF(6, 7)
static void put_text(FILE *f, double x, double y, const char *anchor,
                     const char *colour, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(f,
            "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" "
            "fill=\"%s\">",
            x, y, anchor, colour);
    vfprintf(f, format, args);
    fprintf(f, "</text>\n");
    va_end(args);
}

static void put_line(FILE *f, double x1, double y1, double x2, double y2,
                     const char *style)
{
    fprintf(f,
            "<path d=\"M%.1f,%.1fL%.1f,%.1f\" fill=\"none\" "
            "stroke=\"%s\"/>\n",
            EDGE + x1, EDGE / 2 + SIZE - y1, EDGE + x2, EDGE / 2 + SIZE - y2,
            style);
}

static void put_tick_x(FILE *f, double value)
{
    double at = place(value);
    put_line(f, at, 0, at, SIZE, "#d8dee4");
    put_text(f, EDGE + at, EDGE / 2 + SIZE + 16, "middle", "#24292f", "%g",
             value);
}

static void put_tick_y(FILE *f, double at, double value)
{
    put_line(f, 0, at, SIZE, at, "#d8dee4");
    put_text(f, EDGE - 6, EDGE / 2 + SIZE - at + 4, "end", "#24292f", "%g",
             value);
}

static void put_names(FILE *f, const char *x, const char *y)
{
    put_text(f, EDGE + SIZE / 2, EDGE / 2 + SIZE + 34, "middle", "#24292f",
             "%s", x);
    fprintf(f, "<g transform=\"rotate(-90 12 %d)\">", EDGE / 2 + SIZE / 2);
    put_text(f, 12, EDGE / 2 + SIZE / 2, "middle", "#24292f", "%s", y);
    fprintf(f, "</g>\n");
}

static void put_axes(FILE *f)
{
    for (int k = low; k <= high; k++) {
        put_tick_x(f, pow(10, k));
        put_tick_y(f, place(pow(10, k)), pow(10, k));
    }
    double off = place(1 + MISSED / 100.0) - place(1);
    put_line(f, 0, 0, SIZE, SIZE, "#57606a");
    put_line(f, 0, off, SIZE - off, SIZE, "#8c959f\" stroke-dasharray=\"3 3");
    put_line(f, off, 0, SIZE, SIZE - off, "#8c959f\" stroke-dasharray=\"3 3");
    put_names(f, "published", "predicted");
}

static const char *const colour[] = {"#4e79a7", "#f28e2b", "#59a14f",
                                     "#b07aa1", "#e15759", "#76b7b2",
                                     "#9c755f", "#8c959f"};

/* A colour for each paper and unit, in the order of the table. */
static int series_of(int row)
{
    int n = 0;
    for (int i = 0; i <= row; i++) {
        bool is_new = is_value(&rows[i]);
        for (int k = 0; k < i && is_new; k++)
            is_new = !is_value(&rows[k])
                  || strcmp(rows[k].paper, rows[i].paper) != 0
                  || strcmp(rows[k].unit, rows[i].unit) != 0;
        if (strcmp(rows[i].paper, rows[row].paper) == 0
            && strcmp(rows[i].unit, rows[row].unit) == 0 && is_new)
            return n;
        n += is_new;
    }
    return n;
}

static void put_points(FILE *f)
{
    int named = 0;
    for (int i = 0; i < n_rows; i++) {
        const struct row *r = &rows[i];
        if (!is_value(r) || r->predicted <= 0 || r->published <= 0)
            continue;
        int series = series_of(i) % 8;
        const char *c = colour[series];
        fprintf(f,
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.4\" fill=\"%s\" "
                "stroke=\"%s\" fill-opacity=\"0.7\"/>\n",
                EDGE + place(r->published),
                EDGE / 2 + SIZE - place(r->predicted),
                r->kind == ROW_PREDICTED ? c : "#fff", c);
        if (series < named)
            continue;
        double y = EDGE / 2 + 12 + 18 * named++;
        fprintf(f, "<circle cx=\"%d\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n",
                EDGE + SIZE + 18, y - 4, c);
        put_text(f, EDGE + SIZE + 28, y, "start", "#24292f", "%s, %s",
                 r->paper, r->unit);
    }
    put_text(f, EDGE + SIZE + 14, EDGE / 2 + 16 + 18 * named, "start",
             "#24292f", "hollow: calibrated, flagged");
    put_text(f, EDGE + SIZE + 14, EDGE / 2 + 32 + 18 * named, "start",
             "#24292f", "dashed: a quarter off");
}

static void draw(const char *path)
{
    for (int i = 0; i < n_rows; i++) {
        double a = rows[i].published, b = rows[i].predicted;
        if (!is_value(&rows[i]) || a <= 0 || b <= 0)
            continue;
        low = (int) fmin(low, floor(log10(fmin(a, b))));
        high = (int) fmax(high, ceil(log10(fmax(a, b))));
    }
    FILE *f = begin(path);
    put_axes(f);
    put_points(f);
    end(f, path);
}

/* ---- The curves --------------------------------------------------------- */

/* A colour for each setting; dashed: of all options. */
static void put_curves(FILE *f, double top)
{
    int n = -1;
    for (int i = 0, last = -1; i < n_rows; i++) {
        const struct row *r = &rows[i], *to = NULL;
        if (r->kind != ROW_POINT)
            continue;
        bool dashed = strcmp(r->what, "all") == 0;
        if (last < 0 || strcmp(rows[last].setting, r->setting) != 0) {
            double y = 12 + 18 * ++n;
            put_line(f, SIZE + 12, SIZE - y + 4, SIZE + 28, SIZE - y + 4,
                     colour[n % 8]);
            put_text(f, EDGE + SIZE + 34, EDGE / 2 + y, "start", "#24292f",
                     "%s", r->setting);
        }
        last = i;
        for (int k = i + 1; k < n_rows && !to; k++)
            if (rows[k].kind == ROW_POINT
                && strcmp(rows[k].setting, r->setting) == 0
                && strcmp(rows[k].what, r->what) == 0)
                to = &rows[k];
        char style[60];
        snprintf(style, sizeof style, "%s%s", colour[n % 8],
                 dashed ? "\" stroke-dasharray=\"5 4" : "");
        if (to)
            put_line(f, place(r->published), r->predicted / top * SIZE,
                     place(to->published), to->predicted / top * SIZE, style);
    }
    put_text(f, EDGE + SIZE + 12, EDGE / 2 + 16 + 18 * (n + 1), "start",
             "#24292f", "dashed: of all options");
}

static void draw_curves(const char *path)
{
    double top = 10;
    low = 10;
    high = -10;
    for (int i = 0; i < n_rows; i++)
        if (rows[i].kind == ROW_POINT) {
            low = (int) fmin(low, floor(log10(rows[i].published)));
            high = (int) fmax(high, ceil(log10(rows[i].published)));
            top = fmax(top, 10 * ceil(rows[i].predicted / 10));
        }
    if (low > high)
        return;
    FILE *f = begin(path);
    for (int k = low; k <= high; k++)
        put_tick_x(f, pow(10, k));
    for (int k = 0; k <= 5; k++)
        put_tick_y(f, k * SIZE / 5.0, k * top / 5);
    put_names(f, "evaluations", "% above the best");
    put_curves(f, top);
    end(f, path);
}

int main(int argc, char **argv)
{
    if (argc != 2 && (argc != 5 || strcmp(argv[2], "--svg") != 0)) {
        fprintf(stderr, "usage: papers_table ROWS [--svg PICTURE.svg "
                        "CURVES.svg]\n");
        return 2;
    }
    read_rows(argv[1]);
    print_table();
    print_below();
    if (argc == 5) {
        draw(argv[3]);
        draw_curves(argv[4]);
    }
    return 0;
}
