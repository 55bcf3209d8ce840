/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the basic blocks that code has run which was compiled to call this
 * (-fsanitize-coverage=trace-pc); this file is not. */
#include "count_blocks.h"

long long count_blocks;

void __sanitizer_cov_trace_pc(void)
{
    count_blocks++;
}
