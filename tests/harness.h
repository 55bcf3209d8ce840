/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one place that knows CUnit. A test program lists its cases:
 *
 *     WEFT_TESTS("model/arch",
 *                {"test_arch_read_llama", test_arch_read_llama},
 *                ...)
 *
 * and exits 1 when any assertion failed, 77 when a case called
 * weft_test_skip() and none failed.
 */
#ifndef WEFT_TESTS_HARNESS_H
#define WEFT_TESTS_HARNESS_H

#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft.h"

#define CHECK(cond) CU_ASSERT(cond)
#define CHECK_INT(actual, expected)                                          \
    weft_test_int((long long) (actual), (long long) (expected), #actual,     \
                  __FILE__, __LINE__)
#define CHECK_STR(actual, expected)                                          \
    weft_test_str((actual), (expected), #actual, __FILE__, __LINE__)
/* Stops the case when it fails. */
#define REQUIRE(cond) CU_ASSERT_FATAL(cond)
/* The call must succeed; prints the error's sentence and stops if not. */
#define REQUIRE_OK(call, err)                                                \
    do {                                                                     \
        int weft_rc_ = (call);                                               \
        if (weft_rc_ != 0)                                                   \
            printf("\n    %s:%d: %s: %s\n", __FILE__, __LINE__, #call,       \
                   (err).text);                                              \
        CU_ASSERT_FATAL(weft_rc_ == 0);                                      \
    } while (0)
/* The call must fail with `rc`, and the sentence must contain `part`. */
#define CHECK_FAILS(call, rc, err, part)                                     \
    do {                                                                     \
        (err).text[0] = 0;                                                   \
        int weft_rc_ = (call);                                               \
        if (weft_rc_ != (rc) || !strstr((err).text, (part)))                 \
            printf("\n    %s:%d: got %d '%s', expected '%s'\n", __FILE__,    \
                   __LINE__, weft_rc_, (err).text, (part));                  \
        CU_ASSERT(weft_rc_ == (rc));                                         \
        CU_ASSERT(strstr((err).text, (part)) != NULL);                       \
    } while (0)

/* Whether all cases of a long matrix are asked for, as `make check-long` does,
 * not some of each kind. */
static inline bool weft_test_long(void)
{
    return getenv("WEFT_LONG") != NULL;
}

struct weft_test {
    const char *name;
    void (*run)(void);
};

static int weft_test_skipped;

static inline void weft_test_int(long long a, long long b, const char *what,
                                 const char *file, int line)
{
    if (a != b)
        printf("\n    %s:%d: %s is %lld, expected %lld\n", file, line, what,
               a, b);
    CU_assertImplementation(a == b, (unsigned) line, what, file, "",
                            CU_FALSE);
}

static inline void weft_test_str(const char *a, const char *b,
                                 const char *what, const char *file, int line)
{
    int same = a && b && strcmp(a, b) == 0;
    if (!same)
        printf("\n    %s:%d: %s is '%s', expected '%s'\n", file, line, what,
               a ? a : "(null)", b ? b : "(null)");
    CU_assertImplementation(same, (unsigned) line, what, file, "", CU_FALSE);
}

/* Says why a case did not run; the program exits 77 unless one failed. */
static inline void weft_test_skip(const char *why)
{
    printf("\n    skipped: %s\n", why);
    weft_test_skipped = 1;
    CU_PASS("skipped");
}

/* Path of a file under tests/data; a static buffer per call site of eight. */
static inline const char *weft_test_data(const char *name)
{
    static char path[8][4096];
    static unsigned next;
    const char *dir = getenv("WEFT_TEST_DATA");
    char *out = path[next++ % 8];
    snprintf(out, sizeof path[0], "%s/%s", dir ? dir : "tests/data", name);
    return out;
}

static inline int weft_test_main(const char *suite_name,
                                 const struct weft_test *tests, size_t n)
{
    if (CU_initialize_registry() != CUE_SUCCESS)
        return 1;
    CU_pSuite suite = CU_add_suite(suite_name, NULL, NULL);
    for (size_t i = 0; suite && i < n; i++)
        if (!CU_add_test(suite, tests[i].name, tests[i].run))
            suite = NULL;
    if (!suite) {
        CU_cleanup_registry();
        return 1;
    }
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_ErrorCode rc = CU_basic_run_tests();
    unsigned failed = CU_get_number_of_failures();
    CU_cleanup_registry();
    if (rc != CUE_SUCCESS || failed != 0)
        return 1;
    return weft_test_skipped ? 77 : 0;
}

#define WEFT_TESTS(suite, ...)                                               \
    int main(void)                                                           \
    {                                                                        \
        const struct weft_test tests[] = {__VA_ARGS__};                      \
        return weft_test_main(suite, tests, sizeof tests / sizeof tests[0]); \
    }

#endif
