/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WEFT_TESTS_RUN_COUNT_BLOCKS_H
#define WEFT_TESTS_RUN_COUNT_BLOCKS_H

extern long long count_blocks;
void __sanitizer_cov_trace_pc(void);

#endif
