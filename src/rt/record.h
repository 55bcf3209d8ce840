/* SPDX-License-Identifier: Apache-2.0 */
/* Notes what is inserted in the runtime's recording (plan/recording.h). Nothing
 * is done where there is none. */
#ifndef WEFT_RT_RECORD_H
#define WEFT_RT_RECORD_H

#include "rt/internal.h"

void weft_record_tile(struct weft_tile *tile, bool permanent);
void weft_record_part(const struct weft_tile *part); /* of part->whole */
void weft_record_release(const struct weft_tile *tile);
/* A task with the parts of its tiles; where->device is one of the job. */
void weft_record_task(struct weft_rt *rt, enum weft_rec_kind kind,
                      const char *op, const struct weft_where *where,
                      const struct weft_access *access, int n_access,
                      const struct weft_work *work);
/* It is one of a gang's n. */
void weft_record_member(struct weft_rt *rt, const struct weft_where *where,
                        int member, int n, const struct weft_work *work);
/* Where it is noted when the last one ran; NULL: nowhere. */
struct weft_span *weft_record_span(const struct weft_rt *rt);
/* A message from src to dst, one of which may be another rank's. */
void weft_record_message(struct weft_rt *rt, const struct weft_where *where,
                         struct weft_tile *src, struct weft_tile *dst);
void weft_record_answer(struct weft_rt *rt, const struct weft_where *where,
                        const struct weft_tile *tile);

#endif
