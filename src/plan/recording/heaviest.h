/* SPDX-License-Identifier: Apache-2.0 */
/* The most bytes that tiles of a place can take together: a part of
 * weft_recording_memory(). */
#ifndef WEFT_PLAN_RECORDING_HEAVIEST_H
#define WEFT_PLAN_RECORDING_HEAVIEST_H

#include "plan/recording/reach.h"

/* A tile with memory. Piece a has ended before b begins if it is one of the
 * first `over` of b in the order of release, and if in one lane the first task
 * after its end is not later than the last that has ended before b begins. */
struct weft_rec_piece {
    int64_t bytes;
    int32_t release, over;     /* its number in the order of release */
    int32_t lane;              /* of the task that begins it; -1: none */
    const int32_t *has, *ends; /* (n_lanes) */
    uint8_t mem;
};

/* The most bytes of a set of pieces none of which has ended before another of
 * it begins, of the classes in the mask (bits 1 << enum weft_mem_class). piece
 * (n): in the order of the begins; of three, if a has ended before b begins and
 * b before c, so has a before c. effort: ended pieces that are looked at beyond
 * the first attempt; when it is used up the answer is a bound, no less than
 * that. Errors: WEFT_ENOMEM. */
int weft_rec_heaviest(const struct weft_rec_piece *piece, int32_t n,
                      int32_t n_lanes, unsigned mask, int32_t effort,
                      int64_t *bytes_out, struct weft_err *err);

#endif
