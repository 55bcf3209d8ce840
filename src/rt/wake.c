/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which thread runs first where threads have fewer cores. Devices' threads have
 * work for long; those that insert tasks or handle messages have some for a few
 * microseconds, for which other devices wait. Linux lets a thread that wakes
 * wait until the one that runs has had its slice, of milliseconds; not behind
 * one of policy "batch" that wakes, and, from 6.12 on, not where its own slice
 * is the shorter one. Shares of the cores stay what they are. Nothing of this
 * needs privileges, and where the system refuses it, all goes on as before.
 */
#include <sched.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rt/internal.h"

/* The least that Linux takes. */
enum { SLICE_NS = 100000 };

/* As sched_setattr() takes it; C libraries declare it since 2025 only. */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

void weft_wake(enum weft_wake how)
{
    struct attributes a = {
        .size = sizeof a,
        .policy = how == WEFT_WAKE_LAST ? SCHED_BATCH : SCHED_OTHER,
        .nice = getpriority(PRIO_PROCESS, 0),
        .runtime_ns = how == WEFT_WAKE_FIRST ? SLICE_NS : 0};
    int policy = sched_getscheduler(0);
    if (policy == SCHED_OTHER || policy == SCHED_BATCH)
        (void) syscall(SYS_sched_setattr, 0, &a, 0);
}
