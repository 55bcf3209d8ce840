/* SPDX-License-Identifier: Apache-2.0 */
/* The only place for compiler extensions. */
#ifndef WEFT_BASE_COMPILER_H
#define WEFT_BASE_COMPILER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) || defined(__clang__)
#define WEFT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define WEFT_NORETURN __attribute__((noreturn))
#ifdef __CUDACC__ /* kernels call these functions, too */
#define WEFT_INLINE static inline __host__ __device__
#else
#define WEFT_INLINE static inline __attribute__((always_inline))
#endif
#define WEFT_NOINLINE __attribute__((noinline))
#define WEFT_LIKELY(x) __builtin_expect(!!(x), 1)
#define WEFT_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define WEFT_TARGET(isa) __attribute__((target(isa)))
#define WEFT_UNUSED __attribute__((unused))
#define WEFT_EXPORT __attribute__((visibility("default")))
#define WEFT_PREFETCH(address) __builtin_prefetch(address)
/* Index of the lowest or highest bit set; x is not 0. */
#define WEFT_LOWEST_BIT(x) __builtin_ctzll(x)
#define WEFT_HIGHEST_BIT(x) (63 - __builtin_clzll(x))
#else
#define WEFT_PRINTF(fmt, args)
#define WEFT_NORETURN
#define WEFT_INLINE static inline
#define WEFT_NOINLINE
#define WEFT_LIKELY(x) (x)
#define WEFT_UNLIKELY(x) (x)
#define WEFT_TARGET(isa)
#define WEFT_UNUSED
#define WEFT_EXPORT
#define WEFT_PREFETCH(address) ((void) (address))
static inline int WEFT_LOWEST_BIT(uint64_t x)
{
    int i = 0;
    while ((x >> i & 1) == 0)
        i++;
    return i;
}
static inline int WEFT_HIGHEST_BIT(uint64_t x)
{
    int i = 63;
    while ((x >> i & 1) == 0)
        i--;
    return i;
}
#endif

/* Tell ThreadSanitizer of an order that a library keeps which was built
 * without it: what came before the release of `p` precedes what comes after
 * its acquire. Without ThreadSanitizer they do nothing. */
#ifdef __SANITIZE_THREAD__
void __tsan_acquire(const void *p);
void __tsan_release(const void *p);
#define WEFT_TSAN_ACQUIRE(p) __tsan_acquire(p)
#define WEFT_TSAN_RELEASE(p) __tsan_release(p)
#else
#define WEFT_TSAN_ACQUIRE(p) ((void) (p))
#define WEFT_TSAN_RELEASE(p) ((void) (p))
#endif

/* Says to the core that this thread spins. */
#if defined(__x86_64__)
#define WEFT_PAUSE() __builtin_ia32_pause()
#else
#define WEFT_PAUSE() ((void) 0)
#endif

#define WEFT_COUNT(array) (sizeof(array) / sizeof((array)[0]))

WEFT_INLINE int32_t weft_min32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

WEFT_INLINE int32_t weft_max32(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

WEFT_INLINE int64_t weft_min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
WEFT_INLINE int64_t weft_max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
WEFT_INLINE int64_t weft_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
WEFT_INLINE int64_t weft_round_up(int64_t a, int64_t b)
{
    return weft_ceil_div(a, b) * b;
}

#ifdef __cplusplus
}
#endif
#endif
