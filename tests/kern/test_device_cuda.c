/* SPDX-License-Identifier: Apache-2.0 */
/* Listing devices never fails; where there are some, they make sense. */
#include "kern/device_cuda.h"
#include "tests/harness.h"

static void test_devices_cuda_count_without_room(void)
{
    const char *why = "untouched";
    int n = weft_k_devices_cuda(NULL, 0, &why);
    CHECK(n >= 0);
    if (n == 0) {
        REQUIRE(why != NULL);
        CHECK(strlen(why) > 5);
    } else {
        CHECK(why == NULL);
    }
    CHECK_INT(weft_k_devices_cuda(NULL, 0, NULL), n);
}

static void test_devices_cuda_fields(void)
{
    struct weft_k_device d[17];
    memset(d, 0x5a, sizeof d);
    const char *why = NULL;
    int n = weft_k_devices_cuda(d, 16, &why);
    if (n == 0) {
        CHECK((unsigned char) d[0].name[0] == 0x5a);
        weft_test_skip(why);
        return;
    }
    for (int i = 0; i < n && i < 16; i++) {
        CHECK(memchr(d[i].name, 0, sizeof d[i].name) != NULL);
        CHECK(d[i].name[0] != 0);
        CHECK(d[i].memory_bytes > (int64_t) 256 << 20);
        CHECK(d[i].major >= 3 && d[i].minor >= 0);
        CHECK(d[i].n_multiprocessors > 0);
    }
    CHECK((unsigned char) d[16].name[0] == 0x5a);
}

WEFT_TESTS("kern/device_cuda",
           {"devices_cuda_count_without_room",
            test_devices_cuda_count_without_room},
           {"devices_cuda_fields", test_devices_cuda_fields})
