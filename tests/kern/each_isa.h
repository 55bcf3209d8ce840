/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WEFT_TESTS_KERN_EACH_ISA_H
#define WEFT_TESTS_KERN_EACH_ISA_H

#include "harness.h"
#include "kern/kern.h"

/* Once with every instruction set that this machine has; then the best. */
static inline void each_isa(void (*body)(void))
{
    struct weft_err err = {0};
    for (int i = 0; i <= (int) weft_k_isa_detect(); i++) {
        REQUIRE_OK(weft_k_init(weft_k_isa_name((enum weft_isa) i), &err),
                   err);
        body();
    }
    REQUIRE_OK(weft_k_init(NULL, &err), err);
}

#endif
