/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counter-based randomness: Philox 4x32-10 (Salmon et al., "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011). A number is a pure function of
 * (seed, purpose, a, b, c), so results do not depend on task order.
 */
#ifndef WEFT_BASE_RNG_H
#define WEFT_BASE_RNG_H

#include "base/compiler.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a number is drawn for; keeps streams apart. */
enum weft_rng_purpose {
    WEFT_RNG_SAMPLE = 1,    /* next token: (iteration, sample, position) */
    WEFT_RNG_SHUFFLE = 2,   /* order of data: (epoch, index, 0) */
    WEFT_RNG_INIT = 3,      /* weights: (tensor, index high, index low) */
    WEFT_RNG_MINIBATCH = 4, /* order of samples: (iteration, epoch, index) */
    WEFT_RNG_SCHEDULE = 5,  /* search: (restart, count high, count low) */
    WEFT_RNG_LENGTH = 6,    /* of responses: (iteration, sample high, low) */
    WEFT_RNG_PLAN = 7,      /* search of plans: (restart, count high, low) */
};

/* Computes Philox 4x32-10 of counter and key. */
void weft_philox(const uint32_t counter[4], const uint32_t key[2],
                 uint32_t out[4]);

/* Four 32-bit words for (seed, purpose, a, b, c). */
void weft_rng_words(uint64_t seed, enum weft_rng_purpose purpose, uint32_t a,
                    uint32_t b, uint32_t c, uint32_t out[4]);

/* Uniform in [0, 1): the first word's upper 24 bits times 2^-24. */
float weft_rng_uniform(uint64_t seed, enum weft_rng_purpose purpose,
                       uint32_t a, uint32_t b, uint32_t c);

/* Standard normal (Box-Muller of the first two words, in double). */
double weft_rng_normal(uint64_t seed, enum weft_rng_purpose purpose,
                       uint32_t a, uint32_t b, uint32_t c);

/* Writes a permutation of 0..n-1 into `order` that (seed, purpose, a, b)
 * determine. */
void weft_rng_permutation(uint64_t seed, enum weft_rng_purpose purpose,
                          uint32_t a, uint32_t b, uint32_t n,
                          uint32_t *order);

#ifdef __cplusplus
}
#endif
#endif
