/* SPDX-License-Identifier: Apache-2.0 */
#include "base/edit_distance.h"

#include "base/compiler.h"
#include "harness.h"

/* Distances worked out by hand. */
static void test_edit_distance(void)
{
    static const struct {
        const char *a, *b;
        size_t d;
    } known[] = {
        {"", "", 0},
        {"", "abc", 3},
        {"abc", "", 3},
        {"abc", "abc", 0},
        {"kitten", "sitting", 3},
        {"lamda", "lambda", 1},
        {"ab", "ba", 1},
        {"flaw", "lawn", 2},
        {"ca", "abc", 3},
        {"abcdef", "abdcef", 1},
    };
    for (size_t i = 0; i < WEFT_COUNT(known); i++) {
        CHECK_INT(weft_edit_distance(known[i].a, known[i].b), known[i].d);
        CHECK_INT(weft_edit_distance(known[i].b, known[i].a), known[i].d);
    }
    char longer[200];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    CHECK_INT(weft_edit_distance(longer, ""), 63);
    CHECK_INT(weft_edit_distance(longer, longer), 0);
}

WEFT_TESTS("base/edit_distance", {"test_edit_distance", test_edit_distance})
