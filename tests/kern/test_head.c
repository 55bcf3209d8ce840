/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The language-model head's log-probs against double loops, and against
 * themselves: the same bits for any number of rows, from training and decode.
 */
#include "head_fixture.h"

#include "kern/softmax.h"

static void naive_logprob(void)
{
    static const float scales[] = {1, 1 / 0.7f, 0.25f};
    for (size_t s = 0; s < WEFT_COUNT(sizes); s++)
        for (size_t d = 0; d < 2; d++) {
            struct model m;
            struct rows r;
            float scale = scales[s % 3];
            model_init(&m, sizes[s].v, sizes[s].h, sizes[s].n_blocks,
                       dtypes[d]);
            rows_init(&r, &m, 9, 2);
            logprob(&m, &r, scale);
            double *z = malloc((size_t) m.v * sizeof *z);
            REQUIRE(z != NULL);
            for (int32_t i = 0; i < r.n; i++) {
                naive_logits(&m, r.x + r.row[i] * m.h, scale, z);
                struct naive e = naive_softmax(z, m.v);
                /* logits of size < 30 from chains of <= 64 terms, sums of
                 * <= 65 terms a lane: some 70 roundings of 2^-24 * 30 */
                double tolerance = 1.3e-4;
                CHECK(fabs(e.lse - (double) r.lse[i]) < tolerance);
                CHECK(fabs(z[r.target[i]] - e.lse - (double) r.logp[i])
                      < tolerance);
                CHECK(fabs(e.entropy - (double) r.entropy[i]) < tolerance);
                CHECK(r.logp[i] <= 0);
            }
            free(z);
            rows_release(&r);
            model_release(&m);
        }
}

static void test_logprob_naive(void)
{
    each_isa(naive_logprob);
}

/* Rows alone, in batches of 1..33, and through decode: identical bits. */
static void same_bits(void)
{
    static const int32_t blocks[] = {1, 2, 4, 8, 16, 32};
    const float temperature = 0.7f;
    for (size_t b = 0; b < WEFT_COUNT(blocks); b++)
        for (size_t d = 0; d < 2; d++) {
            struct model m;
            struct rows r;
            int bad = 0;
            model_init(&m, 2103, 48, blocks[b], dtypes[d]);
            rows_init(&r, &m, 33, 1);
            logprob(&m, &r, 1 / temperature);
            void *scratch = scratch_get(
                weft_k_head_scratch_bytes(&m.shape, 33));
            float *logits = scratch_get((size_t) (33 * m.v) * 4);
            for (int32_t n = 1; n <= 33; n++) {
                float logp[33], entropy[33], lse[33];
                int32_t from = 33 - n;
                struct weft_k_targets part = {n, r.row + from,
                                              r.target + from, 0, NULL};
                weft_k_head_logprob(&m.shape, &m.head, r.x, &part,
                                    1 / temperature, logp, entropy, lse,
                                    scratch);
                bad += memcmp(logp, r.logp + from, (size_t) n * 4) != 0;
                bad += memcmp(entropy, r.entropy + from, (size_t) n * 4) != 0;
                bad += memcmp(lse, r.lse + from, (size_t) n * 4) != 0;
                weft_k_head_logits(&m.shape, &m.head, n, r.x + from * m.h,
                                   logits, scratch);
                for (int32_t i = 0; i < n; i++) {
                    float *z = logits + i * m.v;
                    struct weft_softmax all = weft_softmax_row(
                        &m.shape, z, 1 / temperature);
                    float l = weft_softmax_lse(&all);
                    float p = z[r.target[from + i]] * (1 / temperature) - l;
                    bad += memcmp(&l, &r.lse[from + i], 4) != 0;
                    bad += memcmp(&p, &r.logp[from + i], 4) != 0;
                }
            }
            CHECK_INT(bad, 0);
            /* and the sampled token's log-prob is the training one */
            struct weft_k_sampling sampling = {
                .temperature = temperature, .top_p = 1, .seed = 5};
            void *pool = scratch_get((size_t) m.v * 8);
            float sampled[33];
            for (int32_t i = 0; i < 33; i++) {
                sampling.top_k = i % 3 == 1 ? 20 : 0;
                sampling.top_p = i % 3 == 2 ? 0.9f : 1;
                r.target[i] = weft_k_sample(&m.shape, &sampling,
                                            logits + i * m.v, 1, 2,
                                            (uint32_t) i, &sampled[i], pool);
                REQUIRE(r.target[i] >= 0 && r.target[i] < m.v);
            }
            logprob(&m, &r, 1 / temperature);
            CHECK(memcmp(sampled, r.logp, sizeof sampled) == 0);
            weft_free(pool);
            weft_free(logits);
            weft_free(scratch);
            rows_release(&r);
            model_release(&m);
        }
}

static void test_logprob_same_bits(void)
{
    each_isa(same_bits);
}

/* More rows than a chunk holds. */
static void test_logprob_many_rows(void)
{
    struct model m;
    struct rows r, one;
    model_init(&m, 200, 16, 2, WEFT_BF16);
    rows_init(&r, &m, 300, 1);
    logprob(&m, &r, 1);
    int bad = 0;
    one = r;
    float values[3] = {0};
    one.n = one.targets.n = 1;
    one.logp = &values[0];
    one.entropy = &values[1];
    one.lse = &values[2];
    for (int32_t i = 0; i < r.n; i += 7) {
        one.targets.row = r.row + i;
        one.targets.target = r.target + i;
        logprob(&m, &one, 1);
        bad += values[0] != r.logp[i] || values[1] != r.entropy[i]
            || values[2] != r.lse[i];
    }
    CHECK_INT(bad, 0);
    rows_release(&r);
    model_release(&m);
}

WEFT_TESTS("kern/head", {"test_logprob_naive", test_logprob_naive},
           {"test_logprob_same_bits", test_logprob_same_bits},
           {"test_logprob_many_rows", test_logprob_many_rows})
