/* SPDX-License-Identifier: Apache-2.0 */
/* Drawing a token where some must not come. */
#ifndef WEFT_KERN_SAMPLE_H
#define WEFT_KERN_SAMPLE_H

#include "kern/kern.h"

/* weft_k_sample() after the logits of the n_held tokens became -infinity,
 * which they stay; so top_k and top_p choose among the others, as with
 * Transformers' MinNewTokensLengthLogitsProcessor. logp_out is that of the
 * logits as they were. -1 also where the others have none that is finite. */
int32_t weft_k_sample_held(const struct weft_shape *shape,
                           const struct weft_k_sampling *sampling,
                           int32_t n_held, const int32_t *held, float *logits,
                           uint32_t a, uint32_t b, uint32_t position,
                           float *logp_out, void *scratch);

#endif
