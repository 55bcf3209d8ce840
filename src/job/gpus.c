/* SPDX-License-Identifier: Apache-2.0 */
#include "job/gpus.h"

#include "base/limits.h"
#include "kern/device_cuda.h"
#include "rt/graph.h"

#define INSTEAD "runtime.devices=0 runs on this machine's CPUs instead"

int weft_run_gpus(const struct weft_config *config, int32_t *out,
                  struct weft_err *err)
{
    struct weft_k_device device[WEFT_MAX_DEVICES];
    int32_t wanted = config->runtime.gpus;
    const char *why;
    *out = 0;
    if (config->runtime.devices != WEFT_ON_GPUS)
        return 0;
    int n = weft_k_devices_cuda(device, WEFT_MAX_DEVICES, &why);
    if (n == 0)
        return weft_err_set(err, WEFT_EUNSUPPORTED,
                            "'runtime.devices' is gpu, but Weft can use no "
                            "GPU here: %s; " INSTEAD,
                            why);
    if (!weft_rt_has_cuda())
        return weft_err_set(err, WEFT_EUNSUPPORTED,
                            "'runtime.devices' is gpu, but Weft's StarPU was "
                            "built without CUDA (./quickstart builds one "
                            "with it); " INSTEAD);
    if (wanted > n)
        return weft_err_set(err, WEFT_EINVAL,
                            "'runtime.gpus' is %d, but this machine has %d; "
                            "lower it, or leave it out",
                            wanted, n);
    int32_t used = wanted > 0 ? wanted : n;
    used = used < WEFT_MAX_DEVICES ? used : WEFT_MAX_DEVICES;
    for (int32_t i = 0; i < used; i++)
        if (device[i].major < WEFT_K_CUDA_MAJOR)
            return weft_err_set(err, WEFT_EUNSUPPORTED,
                                "GPU %d, %s, has compute capability %d.%d, "
                                "and Weft's kernels need %d.0 or later; %s",
                                i, device[i].name, device[i].major,
                                device[i].minor, WEFT_K_CUDA_MAJOR,
                                i > 0 ? "set runtime.gpus to use only those "
                                        "before it"
                                      : INSTEAD);
    *out = used;
    return 0;
}
