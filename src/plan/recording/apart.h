/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members of a gang begin together and end together (recording/reach.h), but
 * what they stand for does not: a member ends while another still computes, and
 * reads of its tiles; and what the others send to it comes while it is at the
 * instruction before. In an instruction each member waits for all others once,
 * so that they are never further apart:
 *
 *     member 0   | part | join | part | join |
 *     member 1      | part | join | part | join |
 *                     tiles of the first instruction have ended here |
 *
 * So a tile that a member uses has ended when its next task begins; one that
 * others read of, when the next instruction of all of them has; and what they
 * send comes after the begin of the one before. Instructions in which a member
 * waits for no other (struct weft_rec_gang.ahead) are passed over in this: for
 * log-probs members send their parts to the first, which alone waits, and
 * gradients of the embedding are each member's own. Where none is known to be
 * before or after, only the program's waits say.
 */
#ifndef WEFT_PLAN_RECORDING_APART_H
#define WEFT_PLAN_RECORDING_APART_H

#include "plan/recording/reach.h"

/* Of the tasks at the place that is looked from, by their numbers there: others
 * there; -1: none. */
struct weft_rec_apart {
    const struct weft_rec_reach *reach; /* borrowed */
    int32_t *next; /* when it begins, a gang's member has ended */
    int32_t *same; /* the latest instruction of the same members */
    /* one that is known to be before, or after, in which all wait for one
     * another */
    int32_t *before, *after;
};

/* After weft_rec_reach_look(). Errors: WEFT_ENOMEM. */
int weft_rec_apart_look(struct weft_rec_apart *apart,
                        const struct weft_rec_reach *reach,
                        struct weft_err *err);
void weft_rec_apart_release(struct weft_rec_apart *apart);

/* For every lane, of a gang's member here: what has ended when one of its
 * temporaries begins (WEFT_REC_OWN ...), out (n_lanes). Raises numbers
 * (n_lanes) to the first tasks after the end of a tile that it uses, or that
 * others use of it, too (WEFT_REC_SENT). */
void weft_rec_apart_has(const struct weft_rec_apart *apart, int64_t task,
                        int begin, int32_t *out);
void weft_rec_apart_ends(const struct weft_rec_apart *apart, int64_t task,
                         int end, int32_t *out);

#endif
