/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include <math.h>

#include "base/svg.h"

/* Of all steps 1, 2, 5 times a power of ten, the least that is large enough,
 * found from the smallest up. */
static double least_step(double span, int n)
{
    static const double digit[] = {1, 2, 5};
    for (int e = -12; e < 12; e++)
        for (int i = 0; i < 3; i++) {
            double step = digit[i] * pow(10, e);
            if (span / step <= n * (1 + 1e-12))
                return step;
        }
    return 0;
}

static void test_svg_steps(void)
{
    static const double span[] = {0.00013, 0.1, 0.7, 1,  2,   4.9,    5,
                                  5.1,     9,   10,  11, 186, 123456, 1e9};
    for (size_t i = 0; i < sizeof span / sizeof *span; i++)
        for (int n = 1; n < 13; n++)
            CHECK(fabs(weft_svg_step(span[i], n) / least_step(span[i], n) - 1)
                  < 1e-9);
    CHECK(weft_svg_step(0.8, 4) == 0.2);
    CHECK(weft_svg_step(101, 5) == 50);
    CHECK(weft_svg_step(0, 4) == 1);
    CHECK(weft_svg_step(5e-324, 4) == 1);
    CHECK(weft_svg_step((double) NAN, 4) == 1);
}

/* In all pictures a call has one colour, and calls of an iteration have others:
 * PPO's, KTO's and ReMax's here. */
static void test_svg_calls(void)
{
    static const char *const flow[][8] = {
        {"actor_generate", "reward", "reward_infer", "ref_infer",
         "critic_infer", "advantage", "actor_train", "critic_train"},
        {"actor_infer", "ref_infer", "ref_kl_infer", "actor_train"},
        {"actor_generate", "actor_greedy_generate", "reward_1_infer",
         "reward_2_infer", "ref_infer", "advantage", "actor_train"}};
    for (size_t f = 0; f < sizeof flow / sizeof *flow; f++)
        for (int i = 0; i < 8 && flow[f][i]; i++)
            for (int k = 0; k < i; k++)
                CHECK(strcmp(weft_svg_call_colour(flow[f][i]),
                             weft_svg_call_colour(flow[f][k]))
                      != 0);
    CHECK_STR(weft_svg_call_colour("nobody"), weft_svg_call_colour("nobody"));
}

static void test_svg_colours(void)
{
    CHECK_STR(weft_svg_colour(0, WEFT_SVG_PLAIN), "#2f6fb5");
    CHECK_STR(weft_svg_colour(6, WEFT_SVG_DARK), "#1b4477");
}

static void test_svg_stack(void)
{
    static const char above[] = "<svg viewBox=\"0 0 30 20\" id=\"a\"></svg>";
    static const char beneath[] =
        "<svg id=\"b\" viewBox=\"0 0 40 5.5\"></svg>";
    struct weft_string out = {0};
    weft_svg_stack(above, beneath, &out);
    REQUIRE(out.data != NULL);
    CHECK_STR(out.data,
              "<svg xmlns=\"http://www.w3.org/2000/svg\" "
              "viewBox=\"0 0 40 25.5\" width=\"40\" height=\"25.5\">\n"
              "<svg viewBox=\"0 0 30 20\" id=\"a\"></svg>"
              "<svg y=\"20\" id=\"b\" viewBox=\"0 0 40 5.5\"></svg>"
              "</svg>\n");
    weft_string_release(&out);
}

WEFT_TESTS("base/svg", {"test_svg_stack", test_svg_stack},
           {"test_svg_steps", test_svg_steps},
           {"test_svg_calls", test_svg_calls},
           {"test_svg_colours", test_svg_colours})
