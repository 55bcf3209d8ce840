/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers at random, the same in every run. */
#ifndef WEFT_TESTS_PLAN_DRAW_H
#define WEFT_TESTS_PLAN_DRAW_H

#include "base/rng.h"

/* A program that sets it goes on as any other that does. */
static uint32_t seed = 1;

/* 0 to n - 1. Neighbours are not independent. */
static inline int draw(int n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int) (seed >> 8) % n;
}

/* Neighbours are independent. */
static inline int32_t draw_from(int32_t least, int32_t most)
{
    static uint32_t n_drawn;
    uint32_t word[4];
    weft_rng_words(11, WEFT_RNG_PLAN, n_drawn++, 0, 0, word);
    return least + (int32_t) (word[0] % (uint32_t) (most - least + 1));
}

#endif
