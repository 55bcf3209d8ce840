/* SPDX-License-Identifier: Apache-2.0 */
#include "base/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"

static const char *const colour[][3] = {
    {"#a9cdf0", "#2f6fb5", "#1b4477"}, {"#f7b9c4", "#c9405c", "#84203a"},
    {"#b5dfb0", "#3b8f45", "#1f5a2c"}, {"#fbd59b", "#d0801f", "#8a500c"},
    {"#d3c1e8", "#7b52a8", "#4b2d70"}, {"#a8e0dc", "#23908a", "#115a57"},
};

const char *weft_svg_colour(size_t i, enum weft_svg_shade shade)
{
    return colour[i % WEFT_COUNT(colour)][shade];
}

double weft_svg_step(double span, int n)
{
    static const double factor[] = {1, 2, 5};
    if (!(span > 1e-290))
        return 1;
    double power = pow(10, floor(log10(span / n)));
    for (size_t i = 0; i < WEFT_COUNT(factor); i++)
        if (span / (power * factor[i]) <= n)
            return power * factor[i];
    return power * 10;
}

/* Its size; returns what follows "<svg ". */
static const char *size_of(const char *svg, double *width, double *height)
{
    const char *box = strstr(svg, "viewBox=\"");
    *width = *height = 0;
    if (box)
        (void) sscanf(box, "viewBox=\"0 0 %lf %lf\"", width, height);
    return strncmp(svg, "<svg ", 5) == 0 ? svg + 5 : svg;
}

void weft_svg_stack(const char *above, const char *beneath,
                    struct weft_string *out)
{
    double width, high, other, low;
    const char *first = size_of(above, &width, &high);
    const char *second = size_of(beneath, &other, &low);
    width = fmax(width, other);
    weft_string_addf(out,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" "
                     "viewBox=\"0 0 %.6g %.6g\" width=\"%.6g\" "
                     "height=\"%.6g\">\n<svg ",
                     width, high + low, width, high + low);
    weft_string_add(out, first);
    weft_string_addf(out, "<svg y=\"%.6g\" ", high);
    weft_string_add(out, second);
    weft_string_add(out, "</svg>\n");
}
