/* SPDX-License-Identifier: Apache-2.0 */
/* What pictures have in common: colours, and where ticks are. */
#ifndef WEFT_BASE_SVG_H
#define WEFT_BASE_SVG_H

#include <stddef.h>

#include "base/string.h"

enum weft_svg_shade { WEFT_SVG_LIGHT, WEFT_SVG_PLAIN, WEFT_SVG_DARK };

/* The i-th colour, "#2f6fb5"; after the last comes the first again. */
const char *weft_svg_colour(size_t i, enum weft_svg_shade shade);

/* A call's colour in all pictures of what calls did, by its name; those that no
 * algorithm here has may share one. */
const char *weft_svg_call_colour(const char *call);

/* The least step of 1, 2 or 5 times a power of ten that makes at most n steps
 * of a span; 1 where the span is nothing, or as good as. */
double weft_svg_step(double span, int n);

/* Appends a picture of two, one beneath the other; each begins with
 * <svg ... viewBox="0 0 WIDTH HEIGHT" ...>, and both have one style sheet for
 * the words that both use. */
void weft_svg_stack(const char *above, const char *beneath,
                    struct weft_string *out);

#endif
