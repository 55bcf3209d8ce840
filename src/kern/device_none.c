/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in for device_cuda.cu in a build without CUDA. */
#include "kern/device_cuda.h"

#include <stddef.h>

int weft_k_devices_cuda(struct weft_k_device *out, int max,
                        const char **why_out)
{
    (void) out;
    (void) max;
    if (why_out)
        *why_out = "built without CUDA";
    return 0;
}

bool weft_k_devices_reach_cuda(int n)
{
    (void) n;
    return false;
}
