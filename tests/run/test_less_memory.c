/* SPDX-License-Identifier: Apache-2.0 */
/* With how much memory a search is made again where what it found does not fit
 * in any order of its tasks: against lists that were made by hand, of a device
 * of 100. */
#include "harness.h"

#include <math.h>

#include "run/predict/find_inside.h"

enum { HAS = 100, TIMES = 4 };

/* Plans are found with no less than `least`, and then need `times` that. */
static const struct {
    double times, least;
    double memory[TIMES];    /* of searches, until a plan fits; 0: no more */
} row[] = {{1.25, 0, {75}},  /* takes 93.75 */
           {1.25, 75, {75}}, /* the least */
           {1.25, 78, {75, 87.5, 78.125}}, /* of which that is 9.375 less */
           {1.25, 81, {75, 87.5, 78.125, 82.8125}}, /* none fits */
           {1.5, 60, {50, 75, 62.5}},               /* takes 93.75 */
           {3, 0, {50, 25}}, /* it would be less than nothing */
           {3, 30, {50, 25, 37.5, 31.25}},
           {1.01, 0, {99}}, /* takes 99.99 */
           {1.01, 99.5, {99, 99.5, 99.25, 99.375}}};

static void check(size_t i)
{
    double low = 0, high = HAS;
    bool fits = false;
    for (int k = 0; k < TIMES; k++) {
        double bytes = fits ? 0
                            : weft_find_less_memory(HAS, k, low, high,
                                                    high * row[i].times);
        bool near = fabs(bytes - row[i].memory[k]) < 1e-9;
        CHECK(near);
        if (!near)
            printf("row %zu, search %d: %g, not %g\n", i, k, bytes,
                   row[i].memory[k]);
        if (fits)
            continue;
        bool found = bytes >= row[i].least;
        fits = found && bytes * row[i].times <= HAS;
        *(found ? &high : &low) = bytes;
    }
}

static void test_again(void)
{
    for (size_t i = 0; i < WEFT_COUNT(row); i++)
        check(i);
}

/* A plan that misses by little: 4, 8 and 16 % less than before. */
static void test_little(void)
{
    double high = HAS;
    const double less[TIMES] = {0.999, 0.96, 0.92, 0.84};
    for (int k = 0; k < TIMES; k++) {
        double bytes = weft_find_less_memory(HAS, k, 0, high, 1.001 * HAS);
        CHECK(fabs(bytes - less[k] * high) < 1e-9);
        high = bytes;
    }
}

WEFT_TESTS("run/less_memory", {"again", test_again}, {"little", test_little})
