/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WEFT_TESTS_CUDA_TEST_EXECUTOR_H
#define WEFT_TESTS_CUDA_TEST_EXECUTOR_H

#include <stdbool.h>
#include <stdint.h>

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
    FORGOTTEN_COPY,
    ODD_COPY,
    NO_BLOCKS,
    MANY_THREADS
};

void executor_reverse(int n_blocks, float *x, bool has_barrier);
void executor_sums(int n_blocks, const float *x, float *y);
/* c (2, 16, 16) = a b twice, all (16, 16), a and b bf16. */
void executor_products(const uint16_t *a, const uint16_t *b, float *c);
/* y (2, 32, 4): x, every second four being 0, when the kernel waits for it;
 * then x, for which it does not. */
void executor_copies(const float *x, float *y, bool waits);
void executor_wrong(enum executor_wrong what, float *x);
void executor_masked(float *x);
/* (24, 30): 1 + 1000 block + thread is added. */
void executor_indices(int *out);

#ifdef __cplusplus
}
#endif
#endif
