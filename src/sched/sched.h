/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scheduling policies, for weft_rt_options.policy. Free of StarPU.
 */
#ifndef WEFT_SCHED_SCHED_H
#define WEFT_SCHED_SCHED_H

struct weft_policy;

/* The policy "lanes" has a lane per device. Tasks with a position run strictly
 * in that order, the others by priority, then in the order they were inserted;
 * tasks for any device go to the first that is free. */
extern const struct weft_policy weft_sched_lanes;

#endif
