/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks tell one another what they have read. */
#ifndef WEFT_JOB_SAME_H
#define WEFT_JOB_SAME_H

#include "base/string.h"

/* Compares lines of text "name is value" with rank 0's. rc: this rank's error
 * in making them, or 0. Collective; each rank returns its own error.
 * WEFT_EINVAL: the text names what differs. */
int weft_run_same(const struct weft_string *mine, int rc,
                  struct weft_err *err);

#endif
