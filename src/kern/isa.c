/* SPDX-License-Identifier: Apache-2.0 */
/* Which instruction set the kernels use. */
#include <config.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kern/ops.h"

static const char *const isa_names[WEFT_N_ISAS] = {"c", "avx2", "avx512",
                                                   "avx512_bf16"};

#ifdef WEFT_HAVE_X86_KERNELS
static const struct weft_k_ops *const tables[WEFT_N_ISAS] = {
    &weft_k_ops_c,
    &weft_k_ops_avx2,
    &weft_k_ops_avx512,
    &weft_k_ops_avx512_bf16,
};

enum weft_isa weft_k_isa_detect(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return WEFT_ISA_C;
    if (!__builtin_cpu_supports("avx512f")
        || !__builtin_cpu_supports("avx512bw")
        || !__builtin_cpu_supports("avx512vl")
        || !__builtin_cpu_supports("avx512dq"))
        return WEFT_ISA_AVX2;
    return __builtin_cpu_supports("avx512bf16") ? WEFT_ISA_AVX512_BF16
                                                : WEFT_ISA_AVX512;
}
#else
static const struct weft_k_ops *const tables[WEFT_N_ISAS] = {&weft_k_ops_c};

enum weft_isa weft_k_isa_detect(void)
{
    return WEFT_ISA_C;
}
#endif

const char *weft_k_isa_name(enum weft_isa isa)
{
    return (unsigned) isa < WEFT_N_ISAS ? isa_names[isa] : "unknown";
}

bool weft_k_isa_same_bits(enum weft_isa a, enum weft_isa b)
{
    return (a == WEFT_ISA_C) == (b == WEFT_ISA_C);
}

static _Atomic(const struct weft_k_ops *) chosen;

int weft_k_init(const char *name, struct weft_err *err)
{
    enum weft_isa best = weft_k_isa_detect();
    const char *from = "instruction set";
    if (!name) {
        name = getenv("WEFT_ISA");
        from = "WEFT_ISA";
    }
    if (!name || !*name)
        name = isa_names[best];
    for (int i = 0; i < WEFT_N_ISAS; i++) {
        if (strcmp(name, isa_names[i]) != 0)
            continue;
        if (i > (int) best)
            return weft_err_set(err, WEFT_EINVAL,
                                "%s '%s': this CPU or build lacks it; the "
                                "best here is '%s'",
                                from, name, isa_names[best]);
        atomic_store(&chosen, tables[i]);
        return 0;
    }
    return weft_err_set(err, WEFT_EINVAL,
                        "%s '%s' is unknown; known are c, avx2, avx512 and "
                        "avx512_bf16",
                        from, name);
}

const struct weft_k_ops *weft_k_ops(void)
{
    const struct weft_k_ops *ops = atomic_load_explicit(&chosen,
                                                        memory_order_acquire);
    if (ops)
        return ops;
    if (weft_k_init(NULL, NULL) != 0)
        atomic_store(&chosen, tables[weft_k_isa_detect()]);
    return atomic_load(&chosen);
}

enum weft_isa weft_k_isa(void)
{
    return weft_k_ops()->isa;
}
