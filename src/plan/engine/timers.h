/* SPDX-License-Identifier: Apache-2.0 */
/* Times by number, and which comes first: a heap whose members can be moved.
 * Of equal times the lowest number comes first. */
#ifndef WEFT_PLAN_ENGINE_TIMERS_H
#define WEFT_PLAN_ENGINE_TIMERS_H

#include <stdbool.h>
#include <stdint.h>

struct weft_timers {
    double *time;  /* (room) by number */
    int32_t *at;   /* (room) 1 + where it is in the heap; 0: it is not */
    int32_t *heap; /* (n) numbers */
    int32_t n, room;
};

/* Makes room for numbers below n; false when there is no memory. */
bool weft_timers_room(struct weft_timers *t, int32_t n);
void weft_timers_release(struct weft_timers *t);
void weft_timers_set(struct weft_timers *t, int32_t number, double time);
static inline bool weft_timers_is_set(const struct weft_timers *t,
                                      int32_t number)
{
    return t->at[number] > 0;
}
void weft_timers_remove_first(struct weft_timers *t);

#endif
