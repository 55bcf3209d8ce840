/* SPDX-License-Identifier: Apache-2.0 */
/* What a test reads of a picture that Weft drew. */
#ifndef WEFT_TESTS_RECORD_READ_SVG_H
#define WEFT_TESTS_RECORD_READ_SVG_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

static inline int count(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)) != NULL; text++)
        n++;
    return n;
}

/* What follows the nth of a word. */
static inline const char *find(const char *svg, const char *word, int nth)
{
    for (; (svg = strstr(svg, word)) != NULL; nth--) {
        svg += strlen(word);
        if (nth == 0)
            break;
    }
    REQUIRE(svg != NULL);
    return svg;
}

/* The horizontal lines of a path. */
struct path {
    int n;
    struct {
        double left, right, y;
    } flat[4000];
};

static inline void read_path(const char *d, struct path *out)
{
    double x = 0, y = 0;
    out->n = 0;
    while (*d != '"') {
        char *end, op = *d++;
        if (op == 'z')
            continue;
        double v = strtod(d, &end), from = x;
        x = op == 'M' || op == 'H' ? v : op == 'h' ? x + v : x;
        y = op == 'V' ? v : op == 'v' ? y + v : y;
        if (op == 'M')
            y = strtod(end, &end);
        REQUIRE(end > d && strchr("MHhVv", op) && out->n < 4000);
        d = end;
        if (op != 'H' && op != 'h')
            continue;
        out->flat[out->n].left = fmin(from, x);
        out->flat[out->n].right = fmax(from, x);
        out->flat[out->n++].y = y;
    }
}

/* How far above its bottom a path is at x, within a band so high; -1: it is not
 * there. */
static inline double level(const struct path *p, double x, double bottom,
                           double high)
{
    double best = -1;
    for (int i = 0; i < p->n; i++) {
        double above = bottom - p->flat[i].y;
        if (p->flat[i].left < x && x < p->flat[i].right && above > -0.02
            && above < high + 0.02)
            best = fmax(best, above);
    }
    return best;
}

/* expected: a share of high, or none if below 0. */
static inline void check_level(const struct path *p, double x, double bottom,
                               double high, double expected)
{
    double is = level(p, x, bottom, high);
    bool good = expected < 0 ? is < 0 : fabs(is - expected * high) < 0.02;
    if (!good)
        printf("\n    at %.2f: %.3f of %.2f, expected %.3f\n", x, is / high,
               high, expected);
    CHECK(good);
}

struct line {
    double x, y, x2, y2;
};

static inline struct line find_line(const char *svg, const char *class,
                                    int nth)
{
    struct line l = {0};
    char is[4] = "";
    for (; (svg = strstr(svg, "<path d=\"M")) != NULL; svg++)
        if (sscanf(svg, "<path d=\"M%lf %lfL%lf %lf\" class=\"%3[a-z]", &l.x,
                   &l.y, &l.x2, &l.y2, is)
                == 5
            && strcmp(is, class) == 0 && nth-- == 0)
            break;
    REQUIRE(svg != NULL);
    return l;
}

#endif
