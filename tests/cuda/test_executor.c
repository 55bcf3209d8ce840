/* SPDX-License-Identifier: Apache-2.0 */
/* The executor itself: what it runs, and what it notices. */
#include <sys/wait.h>
#include <unistd.h>

#include "test_device.h"
#include "test_executor.h"

static void indices(void)
{
    int host[24 * 30] = {0};
    int *x = dev_put(host, sizeof host);
    executor_indices(x);
    dev_get(host, x, sizeof host);
    for (int i = 0; i < 24 * 30; i++)
        CHECK_INT(host[i], 1 + i / 30 * 1000 + i % 30);
    dev_free(x);
}

static void test_indices(void)
{
    each_order(indices);
}

static void reverses(void)
{
    enum { N = 64 * 3 };
    float host[N], expect[N];
    for (int i = 0; i < N; i++) {
        host[i] = (float) i;
        expect[i] = (float) (i / 64 * 64 + 63 - i % 64);
    }
    float *x = dev_put(host, sizeof host);
    executor_reverse(3, x, true);
    CHECK(dev_same(x, expect, sizeof expect));
    dev_free(x);
}

static void test_barrier(void)
{
    each_order(reverses);
}

/* Without its barrier the same kernel reads what nobody wrote: NaN. */
static void test_missing_barrier(void)
{
    for (int order = 0; order < WEFT_EXEC_ORDERS; order++) {
        float host[64] = {0};
        int n_nan = 0;
        float *x = dev_put(host, sizeof host);
        weft_exec_order(order);
        executor_reverse(1, x, false);
        dev_get(host, x, sizeof host);
        for (int i = 0; i < 64; i++)
            n_nan += host[i] != host[i];
        CHECK(n_nan > 0);
        dev_free(x);
    }
    weft_exec_order(0);
}

static void shuffles(void)
{
    float host[128], sum[4] = {0};
    for (int i = 0; i < 128; i++)
        sum[i / 32] += host[i] = (float) (i * i);
    float *x = dev_put(host, sizeof host), *y = dev_new(sizeof host);
    executor_sums(2, x, y);
    dev_get(host, y, sizeof host);
    for (int i = 0; i < 128; i++)
        CHECK(host[i] == sum[i / 32]);
    dev_free(y);
    /* Half a warp, as its mask says. */
    executor_masked(x);
    dev_get(host, x, sizeof host);
    for (int i = 0; i < 32; i++)
        CHECK(host[i] == (float) (i < 16 ? 9 : i * i));
    dev_free(x);
}

static void test_shuffle(void)
{
    each_order(shuffles);
}

/* Tensor cores: small integers, whose products and sums are exact. */
static void products(void)
{
    enum { N = 16 };
    float a[N * N], b[N * N], c[2][N * N];
    for (int i = 0; i < N * N; i++) {
        a[i] = (float) (i * 7 % 23 - 11);
        b[i] = (float) (i * 5 % 19 - 9);
    }
    uint16_t *a16 = host_as(WEFT_BF16, a, N * N);
    uint16_t *b16 = host_as(WEFT_BF16, b, N * N);
    void *a_ = dev_put(a16, 2 * N * N), *b_ = dev_put(b16, 2 * N * N);
    float *c_ = dev_new(sizeof c);
    executor_products(a_, b_, c_);
    dev_get(c, c_, sizeof c);
    for (int i = 0; i < N * N; i++) {
        float x = 0;
        for (int k = 0; k < N; k++)
            x += a[i / N * N + k] * b[k * N + i % N];
        CHECK(c[0][i] == x);
        CHECK(c[1][i] == x);
    }
    weft_free(a16);
    weft_free(b16);
    dev_free(a_);
    dev_free(b_);
    dev_free(c_);
}

static void test_products(void)
{
    each_order(products);
}

/* What is copied is not there before a thread has waited for it. */
static void test_copies(void)
{
    float x[128], y[256];
    for (int i = 0; i < 128; i++)
        x[i] = (float) i;
    float *x_ = dev_put(x, sizeof x), *y_ = dev_new(sizeof y);
    for (int waits = 0; waits < 2; waits++) {
        executor_copies(x_, y_, waits);
        dev_get(y, y_, sizeof y);
        for (int i = 0; i < 128; i++) {
            CHECK(waits ? y[i] == (i / 4 % 2 ? 0 : x[i]) : y[i] != y[i]);
            CHECK(y[128 + i] != y[128 + i]);
        }
    }
    dev_free(x_);
    dev_free(y_);
}

static void wrong(enum executor_wrong what, const char *sentence)
{
    float *x = dev_new(64 * sizeof *x);
    CHECK(cudaGetLastError() == cudaSuccess);
    executor_wrong(what, x);
    cudaDeviceSynchronize();
    if (what == BESIDE_DEVICE)
        cudaFree(x);
    CHECK(cudaGetLastError() != cudaSuccess);
    CHECK(strstr(weft_exec_sentence(), sentence) != NULL);
    weft_exec_forget();
    if (what != BESIDE_DEVICE)
        dev_free(x);
    reverses(); /* goes on as if nothing had been */
}

static void all_wrong(void)
{
    wrong(HALF_A_BARRIER, "do not reach a barrier");
    wrong(TWO_BARRIERS, "do not reach a barrier");
    wrong(HALF_A_SHUFFLE, "different shuffles");
    wrong(FROM_OUTSIDE, "leaves out");
    wrong(BESIDE_SHARED, "shared memory is written outside");
    wrong(BESIDE_DEVICE, "outside of an allocation");
    wrong(FORGOTTEN_COPY, "ends before what it copies is there");
    wrong(ODD_COPY, "not aligned");
    wrong(NO_BLOCKS, "0 x 1 x 1 blocks");
    wrong(MANY_THREADS, "1025 threads");
}

static void test_wrong(void)
{
    each_order(all_wrong);
}

/* Behind an allocation lies a page without rights. */
static void test_guard(void)
{
    volatile char *x = dev_new(48);
    fflush(stdout);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        if (freopen("/dev/null", "w", stderr))
            x[48] = 1;
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
    dev_free((void *) x);
}

WEFT_CUDA_TESTS("cuda/executor", {"test_indices", test_indices},
                {"test_barrier", test_barrier},
                {"test_missing_barrier", test_missing_barrier},
                {"test_shuffle", test_shuffle},
                {"test_products", test_products},
                {"test_copies", test_copies}, {"test_wrong", test_wrong},
                {"test_guard", test_guard})
