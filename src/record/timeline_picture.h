/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a timeline's picture know of one another. */
#ifndef WEFT_RECORD_TIMELINE_PICTURE_H
#define WEFT_RECORD_TIMELINE_PICTURE_H

#include "record/timeline.h"

/* Pixels: of the plots; of the curves; of the lengths' bars, their words above and below. */
enum { LEFT = 64, WIDTH = 1040, RIGHT = 30, DIGIT = 7, TICKS = 12 };
enum { CURVES = 100 };
enum { LENGTHS = 120, LABELS = 64, FOOT = 40 };

/* A class of the picture's style sheet may be "". */
void weft_timeline_put_text(struct weft_string *out, double x, double y,
                            const char *class, const char *text);
void weft_timeline_put_line(struct weft_string *out, double x, double y,
                            double x2, double y2, const char *class);
/* Words beside a vertical line, on the side where there is room. */
void weft_timeline_put_beside(struct weft_string *out, double x, double y,
                              const char *text);

/* Where an instant s is of a picture of so many seconds from g's start on. */
double weft_timeline_x(const struct weft_timeline *g, double span, double s);

/* What is left, and the blocks in use, as curves over the axis at y, with the
 * axis' numbers. false: memory is out. */
bool weft_timeline_put_curves(const struct weft_timeline *g, double span,
                              double y, struct weft_string *out);

/* The lengths of one sample or more as bars that stand on y. false: memory is
 * out. */
bool weft_timeline_put_lengths(const struct weft_timeline *g, double y,
                               struct weft_string *out);

#endif
