/* SPDX-License-Identifier: Apache-2.0 */
#include "base/svg.h"

#include <math.h>

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
