/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where GPUs have the bits of CPUs, for tests. Elsewhere these compare GPUs
 * with GPUs bit for bit, and with CPUs to a tolerance.
 */
#ifndef WEFT_TESTS_CUDA_CPU_BITS_H
#define WEFT_TESTS_CUDA_CPU_BITS_H

#include <cuda_runtime.h>
#include <stdlib.h>

#include "kern/kern_cuda.h"

/* Whether the CPU's kernels have fused multiply-adds, as GPUs have: what sums
 * nothing by the library, or by tensor cores, has their bits then. */
static inline bool cpu_is_fused(void)
{
    return weft_k_isa() != WEFT_ISA_C;
}

/* Whether products have the CPU's bits: those of emulated cards have its order
 * of sums, unless they are told to have their own (blaslt.cc). */
static inline bool products_are_cpus(void)
{
#ifdef WEFT_CUDA_EXECUTOR
    return cpu_is_fused() && !getenv("WEFT_CARDS_SUMS");
#else
    return false;
#endif
}

#endif
