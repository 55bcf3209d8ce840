/* SPDX-License-Identifier: Apache-2.0 */
/* SVG on the standard output, as little of it as the pictures need. */
#ifndef WEFT_DOC_SVG_H
#define WEFT_DOC_SVG_H

#include <stdarg.h>
#include <stdio.h>

#include "base/compiler.h"

#define INK "#24292f"
#define PALE "#8c959f"
#define PAPER "#f6f8fa"

/* Members, places, stages. */
static const char *const svg_colour[] = {"#4e79a7", "#f28e2b", "#59a14f",
                                         "#b07aa1", "#e15759", "#76b7b2",
                                         "#edc948", "#9c755f"};

static inline void svg_begin(int width, int height)
{
    printf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
           "height=\"%d\" viewBox=\"0 0 %d %d\" "
           "font-family=\"Helvetica,Arial,sans-serif\" font-size=\"12\">\n"
           "<defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" "
           "markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">"
           "<path d=\"M0,0L8,4L0,8z\" fill=\"" INK "\"/></marker></defs>\n"
           "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
           width, height, width, height);
}

static inline void svg_end(void)
{
    puts("</svg>");
}

/* fill, stroke: a colour or "none". */
static inline void svg_rect(double x, double y, double w, double h,
                            const char *fill, const char *stroke)
{
    printf("<rect x=\"%.4g\" y=\"%.4g\" width=\"%.4g\" height=\"%.4g\" "
           "fill=\"%s\" stroke=\"%s\"/>\n",
           x, y, w, h, fill, stroke);
}

/* The same, see-through. */
static inline void svg_shade(double x, double y, double w, double h,
                             const char *fill, double opacity)
{
    printf("<rect x=\"%.4g\" y=\"%.4g\" width=\"%.4g\" height=\"%.4g\" "
           "fill=\"%s\" fill-opacity=\"%.2g\" stroke=\"%s\" "
           "stroke-opacity=\"0.5\"/>\n",
           x, y, w, h, fill, opacity, fill);
}

static inline void svg_circle(double x, double y, double r, const char *fill,
                              const char *stroke, double width)
{
    printf("<circle cx=\"%.4g\" cy=\"%.4g\" r=\"%.4g\" fill=\"%s\" "
           "stroke=\"%s\" stroke-width=\"%.2g\"/>\n",
           x, y, r, fill, stroke, width);
}

static inline void svg_line(double x1, double y1, double x2, double y2,
                            const char *colour)
{
    printf("<path d=\"M%.4g,%.4gL%.4g,%.4g\" stroke=\"%s\" fill=\"none\"/>\n",
           x1, y1, x2, y2, colour);
}

static inline void svg_arrow(double x1, double y1, double x2, double y2)
{
    printf("<path d=\"M%.4g,%.4gL%.4g,%.4g\" stroke=\"" INK
           "\" fill=\"none\" marker-end=\"url(#a)\"/>\n",
           x1, y1, x2, y2);
}

/* anchor: "start", "middle", "end". The text has no & and <. */
WEFT_PRINTF(6, 7)
static inline void svg_text(double x, double y, int size, const char *anchor,
                            const char *colour, const char *format, ...)
{
    va_list ap;
    printf("<text x=\"%.4g\" y=\"%.4g\" font-size=\"%d\" text-anchor=\"%s\" "
           "fill=\"%s\">",
           x, y, size, anchor, colour);
    va_start(ap, format);
    vprintf(format, ap);
    va_end(ap);
    puts("</text>");
}

#endif
