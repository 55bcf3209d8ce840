/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WEFT_TESTS_CUDA_TEST_EXECUTOR_H
#define WEFT_TESTS_CUDA_TEST_EXECUTOR_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum executor_wrong {
    HALF_A_BARRIER,
    TWO_BARRIERS,
    HALF_A_SHUFFLE,
    FROM_OUTSIDE,
    BESIDE_SHARED,
    BESIDE_DEVICE,
    NO_BLOCKS,
    MANY_THREADS
};

void executor_reverse(int n_blocks, float *x, bool has_barrier);
void executor_sums(int n_blocks, const float *x, float *y);
void executor_wrong(enum executor_wrong what, float *x);
void executor_masked(float *x);
/* (24, 30): 1 + 1000 block + thread is added. */
void executor_indices(int *out);

#ifdef __cplusplus
}
#endif
#endif
