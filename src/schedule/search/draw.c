/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers of a restart. */
#include "base/rng.h"
#include "schedule/search/search.h"

uint32_t weft_jobshop_draw(struct weft_jobshop_rng *rng)
{
    if (rng->left == 0) {
        weft_rng_words(rng->seed, WEFT_RNG_SCHEDULE, rng->stream,
                       (uint32_t) (rng->count >> 32), (uint32_t) rng->count,
                       rng->word);
        rng->count++;
        rng->left = 4;
    }
    return rng->word[--rng->left];
}

int32_t weft_jobshop_below(struct weft_jobshop_rng *rng, int32_t n)
{
    return (int32_t) ((uint64_t) weft_jobshop_draw(rng) * (uint64_t) n >> 32);
}

double weft_jobshop_uniform(struct weft_jobshop_rng *rng, double a, double b)
{
    return a + (b - a) * ((double) weft_jobshop_draw(rng) * 0x1p-32);
}
