/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <time.h>

double weft_clock_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double) now.tv_sec + (double) now.tv_nsec * 1e-9;
}
