/* SPDX-License-Identifier: Apache-2.0 */
/* The orders in which emulated cards do what lies on their streams. */
#ifndef WEFT_TESTS_CUDA_CARD_ORDERS_H
#define WEFT_TESTS_CUDA_CARD_ORDERS_H

#include <cuda_runtime.h>
#include <stdlib.h>

/* Runs a case in five of them; on a card of the machine once, and so where
 * emulated cards have sums of their own. */
static inline void each_card_order(void (*run)(void))
{
#ifdef WEFT_CUDA_EXECUTOR
    for (int order = 1; order < 5 && !getenv("WEFT_CARDS_SUMS"); order++) {
        weft_cards_order(order);
        run();
    }
    weft_cards_order(WEFT_CARDS_LATE);
#endif
    run();
}

#endif
