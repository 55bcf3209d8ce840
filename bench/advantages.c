/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generalised advantage estimation as the recursion that it is (weft_k_gae), and
 * as RLHFuse has it (section 6): a product of the one-step errors with a
 * triangular matrix of powers of gamma lambda, here in blocks of 64 tokens that
 * hand on their first advantage. Nanoseconds a token, and the largest error, of
 * the largest advantage, from a recursion in f64.
 *
 *     bench/advantages
 *
 * By itself: a sample at a time, as tasks have it. Together: 64 samples of one
 * length in one product, which a run could do only when all of them have ended.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "bench/check.h"
#include "kern/kern.h"
#include "kern/losses.h"

enum { BLOCK = 64, SAMPLES = 64, LONGEST = 8192, REPEAT = 7 };

static float reward[SAMPLES * LONGEST], value[SAMPLES * LONGEST];
static float found[2][SAMPLES * LONGEST], returns[LONGEST];
static double exact[LONGEST];
/* power[i]: (gamma lambda)^i. Weights, as panels of a published matrix
 * (kern/kern.h): from the errors of a block to its advantages. */
static float power[BLOCK + 1], weight[BLOCK * BLOCK];
static const float gamma_ = 1;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

static void by_recursion(int32_t samples, int32_t n, float lambda)
{
    for (int64_t s = 0; s < samples; s++)
        weft_k_gae(n, gamma_, lambda, reward + s * n, value + s * n, 0,
                   found[0] + s * n, returns);
}

/* n: a multiple of BLOCK. */
static void by_product(int32_t samples, int32_t n)
{
    static float error[SAMPLES * BLOCK];
    for (int32_t first = n - BLOCK; first >= 0; first -= BLOCK) {
        for (int64_t s = 0; s < samples; s++)
            for (int32_t i = 0; i < BLOCK; i++) {
                int64_t at = s * n + first + i;
                float next = first + i + 1 < n ? value[at + 1] : 0;
                float carry = first + BLOCK < n
                                ? found[1][s * n + first + BLOCK]
                                : 0;
                error[s * BLOCK + i] = reward[at] + gamma_ * next - value[at];
                found[1][at] = power[BLOCK - i] * carry;
            }
        struct weft_k_gemm_args a = {.dtype = WEFT_F32,
                                     .y_dtype = WEFT_F32,
                                     .m = samples,
                                     .n = BLOCK,
                                     .n_blocks = 1,
                                     .y = found[1] + first,
                                     .ldy = n,
                                     .accumulate = true};
        a.x[0] = error;
        a.ldx[0] = a.k[0] = BLOCK;
        a.w[0] = weight;
        weft_k_gemm(&a);
    }
}

static double off(const float *a, int32_t n)
{
    double most = 0, error = 0;
    for (int32_t i = 0; i < n; i++) {
        most = fmax(most, fabs(exact[i]));
        error = fmax(error, fabs(exact[i] - (double) a[i]));
    }
    return error / most;
}

static void measure(int32_t samples, int32_t n, float lambda)
{
    double best[2] = {INFINITY, INFINITY}, next = 0, advantage = 0;
    int32_t times = 1 + LONGEST / n;
    for (int32_t i = n - 1; i >= 0; i--) {
        advantage = (double) reward[i] + (double) gamma_ * next
                  - (double) value[i]
                  + (double) gamma_ * (double) lambda * advantage;
        exact[i] = advantage;
        next = (double) value[i];
    }
    for (int k = 0; k < REPEAT; k++)
        for (int how = 0; how < 2; how++) {
            double start = now_s();
            for (int32_t i = 0; i < times; i++)
                if (how == 0)
                    by_recursion(samples, n, lambda);
                else
                    by_product(samples, n);
            best[how] = fmin(best[how], (now_s() - start) / times);
        }
    double tokens = (double) samples * n;
    printf("%-9s %6d %6.2f  %9.2f %8.2f   %8.1e %8.1e\n",
           samples > 1 ? "together" : "by itself", (int) n, (double) lambda,
           best[0] / tokens * 1e9, best[1] / tokens * 1e9, off(found[0], n),
           off(found[1], n));
}

int main(void)
{
    static const float lambda[] = {0.95f, 1};
    CHECK(weft_k_init(NULL, &err));
    for (uint32_t i = 0; i < SAMPLES * LONGEST; i++) {
        reward[i] = 0.01f
                  * (float) weft_rng_normal(1, WEFT_RNG_INIT, 0, 0, i);
        value[i] = (float) weft_rng_normal(1, WEFT_RNG_INIT, 1, 0, i);
    }
    printf(
        "samples   tokens lambda  recursion  product   recursion  product\n"
        "                            ns a token          error\n");
    for (size_t l = 0; l < WEFT_COUNT(lambda); l++) {
        double p = 1;
        for (int32_t i = 0; i <= BLOCK; i++, p *= (double) lambda[l])
            power[i] = (float) p;
        for (int32_t t = 0; t < BLOCK; t++)
            for (int32_t i = t; i < BLOCK; i++)
                weight[(t / 32 * BLOCK + i) * 32 + t % 32] = power[i - t];
        for (int32_t n = 128; n <= LONGEST; n *= 4) {
            measure(1, n, lambda[l]);
            measure(SAMPLES, n, lambda[l]);
        }
    }
    return 0;
}
