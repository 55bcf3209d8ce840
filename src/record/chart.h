/* SPDX-License-Identifier: Apache-2.0 */
/* Line charts as SVG inside an HTML page; colours are the page's CSS. */
#ifndef WEFT_RECORD_CHART_H
#define WEFT_RECORD_CHART_H

#include "base/string.h"

enum { WEFT_CHART_SERIES = 8 };

struct weft_chart_series {
    const char *label;
    const double *y;          /* (n); where not finite, the line has a gap */
    const double *low, *high; /* (n) a band around y; NULL: none */
};

struct weft_chart {
    const char *title, *unit;
    size_t n;
    const int64_t *x; /* (n) ascending */
    int n_series;     /* at most WEFT_CHART_SERIES */
    struct weft_chart_series series[WEFT_CHART_SERIES];
    bool stacked; /* areas on top of each other, from 0 */
};

/* Appends a <figure>, or nothing when no value is finite. */
void weft_chart_add(const struct weft_chart *chart, struct weft_string *out);

#endif
