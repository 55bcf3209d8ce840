/* SPDX-License-Identifier: Apache-2.0 */
#include "base/edit_distance.h"

#include <string.h>

enum { MAX = 63 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t weft_edit_distance(const char *a, const char *b)
{
    size_t n = strnlen(a, MAX), m = strnlen(b, MAX);
    size_t row[3][MAX + 1]; /* row i of the table is row[i % 3] */
    for (size_t j = 0; j <= m; j++)
        row[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *here = row[i % 3], *up = row[(i + 2) % 3];
        const size_t *up2 = row[(i + 1) % 3];
        here[0] = i;
        for (size_t j = 1; j <= m; j++) {
            here[j] = least(least(up[j], here[j - 1]) + 1,
                            up[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2]
                && a[i - 2] == b[j - 1])
                here[j] = least(here[j], up2[j - 2] + 1);
        }
    }
    return row[n % 3][m];
}
