/* SPDX-License-Identifier: Apache-2.0 */
/* Philox against the known answers of Random123, and what is built on it. */
#include "base/rng.h"

#include <math.h>

#include "tests/harness.h"

/* Random123 1.14, tests/kat_vectors, "philox4x32 10". */
static void test_philox_known_answers(void)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } kat[] = {
        {{0, 0, 0, 0},
         {0, 0},
         {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < WEFT_COUNT(kat); i++) {
        uint32_t out[4];
        weft_philox(kat[i].counter, kat[i].key, out);
        CHECK(memcmp(out, kat[i].out, sizeof out) == 0);
    }
}

static void test_rng_words_layout(void)
{
    /* The counter is (a, b, c, purpose), the key the seed's two halves: a
     * checkpoint resumes only as long as this stays. */
    uint32_t counter[4] = {7, 8, 9, WEFT_RNG_SAMPLE};
    uint32_t key[2] = {0x89abcdef, 0x01234567}, expected[4], out[4];
    weft_philox(counter, key, expected);
    weft_rng_words(0x0123456789abcdefu, WEFT_RNG_SAMPLE, 7, 8, 9, out);
    CHECK(memcmp(out, expected, sizeof out) == 0);
    float u = weft_rng_uniform(0x0123456789abcdefu, WEFT_RNG_SAMPLE, 7, 8, 9);
    CHECK(u == (float) (expected[0] >> 8) / 16777216.0f);
}

static void test_rng_uniform_moments(void)
{
    enum { N = 100000 };
    double sum = 0, square = 0;
    for (uint32_t i = 0; i < N; i++) {
        float u = weft_rng_uniform(1, WEFT_RNG_INIT, 0, 0, i);
        REQUIRE(u >= 0 && u < 1);
        sum += (double) u;
        square += (double) u * (double) u;
    }
    /* five standard errors of the mean and of the mean square */
    CHECK(fabs(sum / N - 0.5) < 5 * sqrt(1 / 12.0 / N));
    CHECK(fabs(square / N - 1 / 3.0) < 5 * sqrt(4 / 45.0 / N));
}

static void test_rng_normal_moments(void)
{
    enum { N = 100000 };
    double sum = 0, square = 0, fourth = 0;
    for (uint32_t i = 0; i < N; i++) {
        double x = weft_rng_normal(1, WEFT_RNG_INIT, 3, 0, i);
        REQUIRE(isfinite(x));
        sum += x;
        square += x * x;
        fourth += x * x * x * x;
    }
    CHECK(fabs(sum / N) < 5 * sqrt(1.0 / N));
    CHECK(fabs(square / N - 1) < 5 * sqrt(2.0 / N));
    CHECK(fabs(fourth / N - 3) < 5 * sqrt(96.0 / N));
}

static void test_rng_permutation(void)
{
    static const uint32_t sizes[] = {0, 1, 2, 3, 17, 1000};
    for (size_t s = 0; s < WEFT_COUNT(sizes); s++) {
        uint32_t order[1000], again[1000], n = sizes[s];
        unsigned char seen[1000] = {0};
        weft_rng_permutation(5, WEFT_RNG_SHUFFLE, 1, 2, n, order);
        weft_rng_permutation(5, WEFT_RNG_SHUFFLE, 1, 2, n, again);
        CHECK(memcmp(order, again, n * sizeof *order) == 0);
        for (uint32_t i = 0; i < n; i++) {
            REQUIRE(order[i] < n);
            CHECK_INT(seen[order[i]]++, 0);
        }
    }
}

static void test_rng_permutation_uniform(void)
{
    /* all 6 orders of 3, 6000 draws: chi-square with 5 degrees of freedom
     * stays below 25.7 with probability 0.9999 */
    enum { N = 6000 };
    int count[27] = {0};
    for (uint32_t i = 0; i < N; i++) {
        uint32_t o[3];
        weft_rng_permutation(11, WEFT_RNG_MINIBATCH, i, 0, 3, o);
        count[o[0] * 9 + o[1] * 3 + o[2]]++;
    }
    double chi = 0;
    for (int i = 0; i < 27; i++)
        if (count[i])
            chi += (count[i] - N / 6.0) * (count[i] - N / 6.0) / (N / 6.0);
    CHECK(chi < 25.7);
    CHECK(count[5] && count[7] && count[11] && count[15] && count[19]
          && count[21]);
}

static void test_rng_streams_differ(void)
{
    uint32_t a[4], b[4];
    weft_rng_words(1, WEFT_RNG_SAMPLE, 1, 2, 3, a);
    weft_rng_words(1, WEFT_RNG_SHUFFLE, 1, 2, 3, b);
    CHECK(memcmp(a, b, sizeof a) != 0);
    weft_rng_words((uint64_t) 1 << 32 | 1, WEFT_RNG_SAMPLE, 1, 2, 3, b);
    CHECK(memcmp(a, b, sizeof a) != 0);
}

WEFT_TESTS("base/rng",
           {"test_philox_known_answers", test_philox_known_answers},
           {"test_rng_words_layout", test_rng_words_layout},
           {"test_rng_uniform_moments", test_rng_uniform_moments},
           {"test_rng_normal_moments", test_rng_normal_moments},
           {"test_rng_permutation", test_rng_permutation},
           {"test_rng_permutation_uniform", test_rng_permutation_uniform},
           {"test_rng_streams_differ", test_rng_streams_differ})
