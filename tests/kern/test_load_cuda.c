/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels are on a GPU before the first is launched there. */
#include "../cuda/test_device.h"

#include "kern/device_cuda.h"

enum { N = 3 };

static void add(void)
{
    const float one[N] = {1, 2, 3}, two[N] = {2, 4, 6};
    float *x = dev_put(one, sizeof one), *y = dev_put(one, sizeof one);
    weft_k_add_cuda(0, x, y, N);
    CHECK(dev_same(x, two, sizeof two));
    dev_free(x);
    dev_free(y);
}

static void test_load(void)
{
    struct weft_err err;
    add(); /* loads its kernel by itself */
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(weft_k_load_cuda(&err), err);
        add();
    }
#ifdef WEFT_CUDA_EXECUTOR
    CHECK(weft_cards_counts(0).n_loaded > 1);
    CHECK_INT(weft_cards_counts(1).n_loaded, 0);
    CHECK(cudaSetDevice(1) == cudaSuccess);
    REQUIRE_OK(weft_k_load_cuda(&err), err);
    CHECK_INT(weft_cards_counts(1).n_loaded, weft_cards_counts(0).n_loaded);
    CHECK(cudaSetDevice(0) == cudaSuccess);
#endif
}

/* A kernel that is not there may be any; the others are, and no error is
 * left. */
static void test_bad_kernel(void)
{
#ifdef WEFT_CUDA_EXECUTOR
    int n = (int) weft_cards_counts(0).n_loaded, n_failed = 0;
    struct weft_err err;
    for (int i = 0; i < n; i++) {
        void *x = NULL;
        CHECK(cudaDeviceReset() == cudaSuccess);
        weft_cards_loads(i, cudaErrorInvalidKernelImage);
        REQUIRE_OK(weft_k_load_cuda(&err), err);
        CHECK(cudaGetLastError() == cudaSuccess);
        CHECK_INT(weft_cards_counts(0).n_loaded, n + (i + 1) * (n - 1));
        x = dev_new(sizeof(float));
        weft_k_add_cuda(0, x, x, 1);
        if (cudaGetLastError() == cudaSuccess)
            continue;
        CHECK(strstr(weft_exec_sentence(), "that is not loaded") != NULL);
        weft_exec_forget();
        n_failed++;
    }
    CHECK_INT(n_failed, 1);
    CHECK(cudaDeviceReset() == cudaSuccess);
#else
    weft_test_skip("only emulated cards refuse one");
#endif
}

static void test_no_memory(void)
{
#ifdef WEFT_CUDA_EXECUTOR
    struct weft_err err;
    weft_cards_loads(1, cudaErrorMemoryAllocation);
    CHECK_FAILS(weft_k_load_cuda(&err), WEFT_ENOMEM, err,
                "GPU 0 has no memory left for kernels");
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(cudaDeviceReset() == cudaSuccess);
#else
    weft_test_skip("only emulated cards refuse one");
#endif
}

int main(void)
{
    const struct weft_test tests[] = {{"test_load", test_load},
                                      {"test_bad_kernel", test_bad_kernel},
                                      {"test_no_memory", test_no_memory}};
#ifdef WEFT_CUDA_EXECUTOR
    setenv("WEFT_CARDS", "2", 1);
#endif
    if (dev_missing()) {
        printf("skipped: no GPU: %s\n", dev_missing());
        return 77;
    }
    return weft_test_main("kern/load_cuda", tests, WEFT_COUNT(tests));
}
