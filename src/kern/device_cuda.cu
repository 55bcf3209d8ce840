/* SPDX-License-Identifier: Apache-2.0 */
#include "kern/device_cuda.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int attribute(cudaDeviceAttr what, int device)
{
    int value = 0;
    if (cudaDeviceGetAttribute(&value, what, device) != cudaSuccess)
        return 0;
    return value;
}

static uint64_t hash(uint64_t id, const char *bytes, size_t n) /* FNV-1a */
{
    for (size_t i = 0; i < n; i++)
        id = (id ^ (unsigned char) bytes[i]) * 0x100000001b3u;
    return id;
}

/* Slices of a GPU (MIG) have the GPU's identity and its place on the bus, and the
 * runtime's interface has nothing else that tells them apart. A process can use
 * but one, and what gives it that names it in this variable; where a container
 * does it otherwise, ranks with slices of one GPU are taken to share it. */
static uint64_t hash_slice(uint64_t id)
{
    const char *seen = getenv("CUDA_VISIBLE_DEVICES");
    bool is_slice = seen && strncmp(seen, "MIG-", 4) == 0;
    return is_slice ? hash(id, seen, strcspn(seen, ",")) : id;
}

static int fill(struct weft_k_device *d, int device)
{
    cudaDeviceProp prop;
    if (cudaGetDeviceProperties(&prop, device) != cudaSuccess)
        return -1;
    snprintf(d->name, sizeof d->name, "%.*s", (int) sizeof d->name - 1,
             prop.name);
    uint64_t id = hash_slice(
        hash(0xcbf29ce484222325u, prop.uuid.bytes, sizeof prop.uuid.bytes));
    d->id = (int64_t) (id >> 1 | 1); /* never 0, nor negative */
    d->memory_bytes = (int64_t) prop.totalGlobalMem;
    d->major = prop.major;
    d->minor = prop.minor;
    d->n_multiprocessors = prop.multiProcessorCount;
    d->clock_khz = attribute(cudaDevAttrClockRate, device);
    return 0;
}

extern "C" void weft_k_versions_cuda(int *driver_out, int *build_out)
{
    *driver_out = *build_out = 0;
    if (cudaDriverGetVersion(driver_out) != cudaSuccess
        || cudaRuntimeGetVersion(build_out) != cudaSuccess)
        *driver_out = 0;
}

static const char *why_driver(void)
{
    static char text[96];
    int driver, runtime;
    weft_k_versions_cuda(&driver, &runtime);
    if (driver == 0)
        return "no CUDA driver";
    snprintf(text, sizeof text,
             "the driver serves CUDA %d.%d, and this build needs %d.%d",
             driver / 1000, driver % 1000 / 10, runtime / 1000,
             runtime % 1000 / 10);
    return text;
}

extern "C" int weft_k_devices_cuda(struct weft_k_device *out, int max,
                                   const char **why_out)
{
    int n = 0;
    cudaError_t rc = cudaGetDeviceCount(&n);
    const char *why = NULL;
    if (rc == cudaErrorInsufficientDriver || rc == cudaErrorNoDevice)
        why = rc == cudaErrorNoDevice ? "no CUDA device" : why_driver();
    else if (rc != cudaSuccess)
        why = cudaGetErrorString(rc);
    if (rc != cudaSuccess) {
        (void) cudaGetLastError(); /* the error is told, not kept */
        n = 0;
    }
    for (int i = 0; i < n && i < max; i++) {
        struct weft_k_device blank = {};
        out[i] = blank;
        if (fill(&out[i], i) != 0)
            snprintf(out[i].name, sizeof out[i].name, "device %d", i);
    }
    if (why_out)
        *why_out = n > 0 ? NULL : why ? why : "no CUDA device";
    return n;
}

extern "C" int64_t weft_k_device_free_cuda(int device)
{
    size_t free_bytes = 0, total_bytes;
    if (cudaSetDevice(device) != cudaSuccess
        || cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess)
        free_bytes = 0;
    (void) cudaGetLastError();
    return (int64_t) free_bytes;
}

extern "C" bool weft_k_devices_reach_cuda(int n)
{
    int can = 1;
    for (int i = 0; i < n * n && can; i++)
        if (i / n != i % n
            && cudaDeviceCanAccessPeer(&can, i / n, i % n) != cudaSuccess)
            can = 0;
    (void) cudaGetLastError();
    return can != 0;
}
