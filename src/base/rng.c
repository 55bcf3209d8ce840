/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"

#include <math.h>
#include <string.h>

#include "base/philox.h"

void weft_philox(const uint32_t counter[4], const uint32_t key[2],
                 uint32_t out[4])
{
    memcpy(out, counter, 4 * sizeof *out);
    weft_philox_rounds(out, key[0], key[1]);
}

void weft_rng_words(uint64_t seed, enum weft_rng_purpose purpose, uint32_t a,
                    uint32_t b, uint32_t c, uint32_t out[4])
{
    uint32_t counter[4] = {a, b, c, (uint32_t) purpose};
    uint32_t key[2] = {(uint32_t) seed, (uint32_t) (seed >> 32)};
    weft_philox(counter, key, out);
}

float weft_rng_uniform(uint64_t seed, enum weft_rng_purpose purpose,
                       uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t w[4];
    weft_rng_words(seed, purpose, a, b, c, w);
    return weft_philox_uniform(w[0]);
}

double weft_rng_normal(uint64_t seed, enum weft_rng_purpose purpose,
                       uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t w[4];
    weft_rng_words(seed, purpose, a, b, c, w);
    double u = ((double) w[0] + 0.5) * 0x1p-32; /* in (0, 1) */
    double v = (double) w[1] * 0x1p-32;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

void weft_rng_permutation(uint64_t seed, enum weft_rng_purpose purpose,
                          uint32_t a, uint32_t b, uint32_t n, uint32_t *order)
{
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n; i > 1; i--) { /* Fisher-Yates */
        uint32_t w[4];
        weft_rng_words(seed, purpose, a, b, i, w);
        uint32_t j = (uint32_t) (((uint64_t) w[0] * i) >> 32);
        uint32_t swap = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swap;
    }
}
