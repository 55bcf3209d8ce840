/* SPDX-License-Identifier: Apache-2.0 */
/* Complete error checking in one word, for the examples. */
#ifndef WEFT_EXAMPLES_CHECK_H
#define WEFT_EXAMPLES_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include "weft.h"

/* Says the sentence of `err` and ends the program when the call fails. */
#define CHECK(call)                                                          \
    do {                                                                     \
        if ((call) != 0) {                                                   \
            fprintf(stderr, "%s: %s\n", #call, err.text);                    \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

#endif
