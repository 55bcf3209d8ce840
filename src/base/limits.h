/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of a run that its configuration and the rooms which keep to them
 * share. */
#ifndef WEFT_BASE_LIMITS_H
#define WEFT_BASE_LIMITS_H

enum {
    WEFT_MAX_GROUPS = 1024,   /* gradient groups, G; and replicas of a call */
    WEFT_DEFAULT_GROUPS = 64, /* of them by default, at most */
    /* Devices of a rank; a StarPU that was built with a smaller maxcpus allows
     * fewer. */
    WEFT_MAX_DEVICES = 256,
    WEFT_LOTS = 64 /* open at a time (weft_seq_lot()) */
};

#endif
