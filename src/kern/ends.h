/* SPDX-License-Identifier: Apache-2.0 */
/* Which tokens end a text: for the host and for kernels, which must agree. */
#ifndef WEFT_KERN_ENDS_H
#define WEFT_KERN_ENDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

enum {
    WEFT_MAX_ENDS = 96,
    WEFT_K_ENDED =
        -2 /* in a token's place: the row's text had ended before */
};

/* Of a row whose next token is drawn. */
enum weft_k_row_state {
    WEFT_K_ROW_IS_OPEN,
    WEFT_K_ROW_IS_HELD, /* its text may not end yet: no end is drawn */
    WEFT_K_ROW_HAS_ENDED
};

/* Whether a token ends a text that is not held. What else ends one: its limit,
 * which the host knows before, and texts (weft_gen_is_stopped()), which it
 * finds afterwards. */
WEFT_INLINE bool weft_k_is_end(int32_t n_ends, const int32_t *end,
                               int32_t token)
{
    for (int32_t i = 0; i < n_ends; i++)
        if (end[i] == token)
            return true;
    return false;
}

#endif
