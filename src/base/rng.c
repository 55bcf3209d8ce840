/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"

#include <math.h>

void weft_philox(const uint32_t counter[4], const uint32_t key[2],
                 uint32_t out[4])
{
    /* Constants of the paper, section 4.3. */
    const uint32_t m0 = 0xD2511F53u, m1 = 0xCD9E8D57u;
    const uint32_t w0 = 0x9E3779B9u, w1 = 0xBB67AE85u;
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2],
             c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t) m0 * c0, p1 = (uint64_t) m1 * c2;
        c0 = (uint32_t) (p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t) p1;
        c2 = (uint32_t) (p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t) p0;
        k0 += w0;
        k1 += w1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
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
    return (float) (w[0] >> 8) * 0x1p-24f;
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
