/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NVIDIA devices of this machine, for `weft info` and for cost tables.
 * Without CUDA at build time, without a driver or without a device the answer
 * is none, with the reason; nothing fails.
 */
#ifndef WEFT_KERN_DEVICE_CUDA_H
#define WEFT_KERN_DEVICE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

struct weft_err;

#ifdef __cplusplus
extern "C" {
#endif

/* The least compute capability that the kernels are compiled for (NVCC_GENCODE
 * in m4/weft_check_cuda.m4). */
enum { WEFT_K_CUDA_MAJOR = 8 };

struct weft_k_device {
    char name[128];
    int64_t memory_bytes;
    int major, minor; /* compute capability */
    int n_multiprocessors;
    int clock_khz; /* 0 where CUDA does not tell */
    int64_t id; /* the same in all processes that see it, and of it alone */
};

/* Writes at most `max` devices (out may be NULL when max is 0) and returns how
 * many the machine has. When that is 0, `why_out` (may be NULL) is set to one
 * sentence, static storage. Starts no context: no device memory is used. */
int weft_k_devices_cuda(struct weft_k_device *out, int max,
                        const char **why_out);

/* The newest CUDA that the driver serves, and that of this build: 1000 * major
 * + 10 * minor; 0: none. */
void weft_k_versions_cuda(int *driver_out, int *build_out);

/* Free bytes of a device's memory, without what CUDA itself takes for this
 * process, which keeps it (some 100 MiB); 0: unknown. */
int64_t weft_k_device_free_cuda(int device);

/* Whether each of the machine's first n devices may use the memory of the
 * others. */
bool weft_k_devices_reach_cuda(int n);

/* Loads all kernels to the GPU that the calling thread uses, so that no launch
 * has to, which could wait for the GPU. One that its driver cannot load, as it
 * is too old for it, fails when it is launched. Errors: WEFT_ENOMEM, of the
 * GPU's memory. */
int weft_k_load_cuda(struct weft_err *err);

/* The version of the library that has the products, cublasLtGetVersion(), which
 * is opened for it. Errors: it cannot be. */
int weft_k_products_version_cuda(int64_t *out, struct weft_err *err);

#ifdef __cplusplus
}
#endif
#endif
