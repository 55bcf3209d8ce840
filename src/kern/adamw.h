/* SPDX-License-Identifier: Apache-2.0 */
/* Constants of one AdamW step, which all its implementations share. */
#ifndef WEFT_KERN_ADAMW_H
#define WEFT_KERN_ADAMW_H

#include <math.h>

#include "kern/kern.h"

struct weft_adamw_step {
    float keep, beta1, beta2, rest1, rest2, step_size, root_bias2, eps;
};

static inline struct weft_adamw_step weft_adamw_step(
    const struct weft_k_adamw *o)
{
    double bias1 = 1 - pow((double) o->beta1, (double) o->step);
    double bias2 = 1 - pow((double) o->beta2, (double) o->step);
    struct weft_adamw_step s;
    s.keep = (float) (1 - (double) o->lr * (double) o->weight_decay);
    s.beta1 = o->beta1;
    s.beta2 = o->beta2;
    s.rest1 = (float) (1 - (double) o->beta1);
    s.rest2 = (float) (1 - (double) o->beta2);
    s.step_size = (float) ((double) o->lr / bias1);
    s.root_bias2 = (float) (1 / sqrt(bias2));
    s.eps = o->eps;
    return s;
}

#endif
