/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in for device_cuda.cu in a build without CUDA. */
#include "kern/device_cuda.h"

#include <stddef.h>

#include "base/err.h"

int weft_k_devices_cuda(struct weft_k_device *out, int max,
                        const char **why_out)
{
    (void) out;
    (void) max;
    if (why_out)
        *why_out = "built without CUDA";
    return 0;
}

int weft_k_products_version_cuda(int64_t *out, struct weft_err *err)
{
    (void) out;
    return weft_err_set(err, WEFT_EUNSUPPORTED, "built without CUDA");
}

int weft_k_load_cuda(struct weft_err *err)
{
    (void) err;
    return 0;
}

void weft_k_versions_cuda(int *driver_out, int *build_out)
{
    *driver_out = *build_out = 0;
}

int64_t weft_k_device_free_cuda(int device)
{
    (void) device;
    return 0;
}

bool weft_k_devices_reach_cuda(int n)
{
    (void) n;
    return false;
}
