/* SPDX-License-Identifier: Apache-2.0 */
/* What GPUs generate against Transformers, on one of them and on two that share
 * the samples. */
#include "goldens.h"

#include <cuda_runtime.h>

#include "lm/context.h"

static int n_found(void)
{
    int n = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}

static void test_goldens(void)
{
    for (int n = 1; n <= 2 && n <= n_found(); n++) {
        const struct weft_context_options options = {
            .rt = {.n_devices = 1, .n_gpus = n, .nap = 1}};
        struct weft_context *context;
        struct weft_err err;
        REQUIRE_OK(weft_context_open_with(&options, &context, &err), err);
        check_goldens(context);
        weft_context_close(context);
    }
}

int main(void)
{
    const struct weft_test tests[] = {{"test_goldens", test_goldens}};
    setenv("WEFT_CARDS", "2", 0);
    if (n_found() == 0) {
        printf("skipped: no GPU\n");
        return 77;
    }
    return weft_test_main("lm/gpu_goldens", tests, WEFT_COUNT(tests));
}
