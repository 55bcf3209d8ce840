/* SPDX-License-Identifier: Apache-2.0 */
/* Says what is stuck when nothing moves; for src/rt alone. */
#ifndef WEFT_RT_WATCHDOG_H
#define WEFT_RT_WATCHDOG_H

#include "rt/graph.h"

/* Starts a thread that looks at the runtime again and again. With after_s 0 it
 * reports nothing, but answers the other ranks. */
int weft_watchdog_start(struct weft_rt *rt, double after_s,
                        struct weft_err *err);
void weft_watchdog_stop(struct weft_rt *rt);
/* One look at the runtime, at time now_s on the caller's clock. */
struct weft_watchdog_view {
    struct weft_rt *rt;
    double after_s;
    /* when there was progress; when other ranks were asked */
    double moved_s, asked_s;
    /* number of ended tasks at the last look; at first -1 */
    long seen;
    /* whether this standstill, and a silent rank in it, was reported */
    bool told, blamed;
};
void weft_watchdog_look(struct weft_watchdog_view *view, double now_s);

#endif
