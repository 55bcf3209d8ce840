/* SPDX-License-Identifier: Apache-2.0 */
/* The rounds of Philox 4x32-10 (rng.h), for the CPU and for GPUs. */
#ifndef WEFT_BASE_PHILOX_H
#define WEFT_BASE_PHILOX_H

#include "base/compiler.h"

/* c: the counter, overwritten by the result. k: the key. */
WEFT_INLINE void weft_philox_rounds(uint32_t c[4], uint32_t k0, uint32_t k1)
{
    /* Constants of the paper, section 4.3. */
    const uint32_t m0 = 0xD2511F53u, m1 = 0xCD9E8D57u;
    const uint32_t w0 = 0x9E3779B9u, w1 = 0xBB67AE85u;
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t) m0 * c[0], p1 = (uint64_t) m1 * c[2];
        c[0] = (uint32_t) (p1 >> 32) ^ c[1] ^ k0;
        c[1] = (uint32_t) p1;
        c[2] = (uint32_t) (p0 >> 32) ^ c[3] ^ k1;
        c[3] = (uint32_t) p0;
        k0 += w0;
        k1 += w1;
    }
}

/* Uniform in [0, 1): the first word's upper 24 bits times 2^-24. */
WEFT_INLINE float weft_philox_uniform(uint32_t first_word)
{
    return (float) (first_word >> 8) * 5.9604644775390625e-8f;
}

#endif
