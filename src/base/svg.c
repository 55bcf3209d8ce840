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

const char *weft_svg_call_colour(const char *call)
{
    static const struct {
        const char *call;
        size_t i;
        enum weft_svg_shade shade;
    } known[] = {{"actor_generate", 0, WEFT_SVG_PLAIN},
                 {"actor_greedy_generate", 0, WEFT_SVG_DARK},
                 {"reward", 5, WEFT_SVG_DARK},
                 {"reward_infer", 4, WEFT_SVG_PLAIN},
                 {"reward_1_infer", 4, WEFT_SVG_PLAIN},
                 {"reward_2_infer", 4, WEFT_SVG_DARK},
                 {"ref_infer", 2, WEFT_SVG_PLAIN},
                 {"ref_kl_infer", 2, WEFT_SVG_DARK},
                 {"critic_infer", 1, WEFT_SVG_PLAIN},
                 {"actor_infer", 5, WEFT_SVG_PLAIN},
                 {"advantage", 3, WEFT_SVG_DARK},
                 {"actor_train", 3, WEFT_SVG_PLAIN},
                 {"critic_train", 1, WEFT_SVG_DARK},
                 {"reward_model_train", 4, WEFT_SVG_DARK}};
    size_t sum = 0;
    for (size_t k = 0; k < WEFT_COUNT(known); k++)
        if (strcmp(known[k].call, call) == 0)
            return weft_svg_colour(known[k].i, known[k].shade);
    for (const char *c = call; *c; c++)
        sum += (unsigned char) *c;
    return weft_svg_colour(sum, WEFT_SVG_PLAIN);
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
