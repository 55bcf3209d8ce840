/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of the instruction set. */
#include "harness.h"
#include "kern/kern.h"

static void test_isa_names(void)
{
    CHECK_STR(weft_k_isa_name(WEFT_ISA_C), "c");
    CHECK_STR(weft_k_isa_name(WEFT_ISA_AVX2), "avx2");
    CHECK_STR(weft_k_isa_name(WEFT_ISA_AVX512), "avx512");
    CHECK_STR(weft_k_isa_name(WEFT_ISA_AVX512_BF16), "avx512_bf16");
    CHECK_STR(weft_k_isa_name(WEFT_N_ISAS), "unknown");
}

static void test_isa_default(void)
{
    struct weft_err err = {0};
    unsetenv("WEFT_ISA");
    CHECK_INT(weft_k_isa(), weft_k_isa_detect()); /* nobody chose */
    REQUIRE_OK(weft_k_init(NULL, &err), err);
    CHECK_INT(weft_k_isa(), weft_k_isa_detect());
}

static void test_isa_by_name(void)
{
    struct weft_err err = {0};
    for (int i = 0; i < WEFT_N_ISAS; i++) {
        enum weft_isa isa = (enum weft_isa) i;
        if (isa <= weft_k_isa_detect()) {
            REQUIRE_OK(weft_k_init(weft_k_isa_name(isa), &err), err);
            CHECK_INT(weft_k_isa(), isa);
        } else {
            CHECK_FAILS(weft_k_init(weft_k_isa_name(isa), &err), WEFT_EINVAL,
                        err, "lacks it");
        }
    }
}

static void test_isa_environment(void)
{
    struct weft_err err = {0};
    setenv("WEFT_ISA", "c", 1);
    REQUIRE_OK(weft_k_init(NULL, &err), err);
    CHECK_INT(weft_k_isa(), WEFT_ISA_C);
    setenv("WEFT_ISA", "", 1);
    REQUIRE_OK(weft_k_init(NULL, &err), err);
    CHECK_INT(weft_k_isa(), weft_k_isa_detect());
    setenv("WEFT_ISA", "mmx", 1);
    CHECK_FAILS(weft_k_init(NULL, &err), WEFT_EINVAL, err,
                "WEFT_ISA 'mmx' is unknown; known are c, avx2");
    unsetenv("WEFT_ISA");
}

/* A refused choice leaves the old one. */
static void test_isa_refused(void)
{
    struct weft_err err = {0};
    REQUIRE_OK(weft_k_init("c", &err), err);
    CHECK_FAILS(weft_k_init("AVX2", &err), WEFT_EINVAL, err,
                "instruction set 'AVX2' is unknown");
    CHECK_INT(weft_k_isa(), WEFT_ISA_C);
}

WEFT_TESTS("kern/isa", {"test_isa_names", test_isa_names},
           {"test_isa_default", test_isa_default},
           {"test_isa_by_name", test_isa_by_name},
           {"test_isa_environment", test_isa_environment},
           {"test_isa_refused", test_isa_refused})
