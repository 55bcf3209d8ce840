/* SPDX-License-Identifier: Apache-2.0 */
/* What decode steps of a replica of generation take, by costs. */
#ifndef WEFT_LM_STEPS_H
#define WEFT_LM_STEPS_H

#include "lm/passes.h"

/* Seconds of a step in which so many samples decode, and of each token of their
 * texts. Priced at short texts and the longest, and linear. */
struct weft_step {
    bool priced;
    double each_step, each_token;
};

struct weft_steps {
    struct weft_pass_price *pass;
    int32_t n_instances, slots; /* of a replica */
    double longest;             /* text, in tokens */
    struct weft_step *step;     /* (slots + 1) */
};

/* n_slots: of an instance. Borrows costs, shape and layout. Release it also
 * after an error. Errors: WEFT_ENOMEM. */
int weft_steps_init(struct weft_costs *costs, const struct weft_shape *shape,
                    const struct weft_g_layout *layout, int32_t n_instances,
                    int32_t n_slots, int32_t longest, struct weft_steps *out,
                    struct weft_err *err);
void weft_steps_release(struct weft_steps *s);

/* Of n <= slots samples. */
const struct weft_step *weft_steps_decode(struct weft_steps *s, int32_t n);
/* Of any step; one that reads is priced by itself. INFINITY: it has more
 * samples than slots. */
double weft_steps_s(struct weft_steps *s, const struct weft_work_rows *rows);

#endif
