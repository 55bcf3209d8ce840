/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices divided in time or in space by three measured seconds: the automatic
 * placement of RLinf (github.com/RLinf/RLinf, toolkits/auto_placement, read at
 * commits 38e06359 and 085621d3). Its stages are generation, inference and
 * training. Either all have all devices, one after the other, or each has
 * devices of its own, and the groups of prompts pass through them as through a
 * pipeline. Nothing else is tried: no layout, no memory, no bound.
 */
#ifndef WEFT_PLAN_DIVIDE_H
#define WEFT_PLAN_DIVIDE_H

#include <stdint.h>

enum { WEFT_DIVIDE_STAGES = 3 }; /* generation, inference, training */

struct weft_divide {
    /* of an iteration, on all devices; 0: there is no such stage */
    double seconds[WEFT_DIVIDE_STAGES];
    int32_t n_nodes, n_devices;       /* of each node */
    int32_t most[WEFT_DIVIDE_STAGES]; /* devices that a stage can use */
    int32_t n_groups; /* of samples of one prompt, that pass the stages */
    int32_t n_samples;
    int32_t instance; /* devices that generate together ... */
    int32_t slots;    /* ... so many samples at once */
};

/* Seconds of an iteration, as it is predicted there, with n_out devices for
 * each stage; all 0: stages take turns on all of them. A stage has whole nodes
 * or a power of two of a node's devices. Of equals the first: turns, then few
 * devices for generation, then for inference. */
double weft_divide(const struct weft_divide *d,
                   int32_t n_out[WEFT_DIVIDE_STAGES]);

#endif
