/* SPDX-License-Identifier: Apache-2.0 */
/* The tasks of a gang's members, and patterns of instructions: parts of
 * weft_recording_gang_begin() and what belongs to it. */
#ifndef WEFT_PLAN_RECORDING_GANG_H
#define WEFT_PLAN_RECORDING_GANG_H

#include "plan/recording.h"

/* What becomes one task. */
struct weft_rec_one {
    struct weft_where where;
    int32_t place;
    struct weft_rec_gang gang;
    struct weft_rec_work work; /* of the tasks that it stands for */
    int64_t access, n_access;
};

/* The members' tasks, and all their accesses. */
struct weft_rec_put {
    struct weft_rec_one *one; /* (n) */
    int32_t n;
    const struct weft_rec_access *access;
    const char *op;
    int32_t layer;
    const struct weft_work *work; /* NULL, or by member: `which` says whose */
    const int32_t *which;         /* (n) */
};
void weft_recording_put(struct weft_recording *r,
                        const struct weft_rec_put *put);

/* Numbers of n members in a site, out (n); NULL: not all are in it. */
const int32_t *weft_recording_which(const struct weft_rec_site *site,
                                    int32_t n,
                                    const struct weft_rec_one one[],
                                    int32_t out[WEFT_REC_MEMBERS]);

/* Keeps what the instruction of a mark came to. If that is more than a pattern
 * can say, such as a tile that outlives it, nothing is kept. */
void weft_recording_learn(struct weft_recording *r,
                          const struct weft_rec_mark *mark,
                          const struct weft_rec_put *put);

/* A number for every tile, 0; whoever writes there writes 0 again. NULL: no
 * memory. */
int32_t *weft_recording_slots(struct weft_recording *r);

#endif
