/* SPDX-License-Identifier: Apache-2.0 */
/* What this build and this machine are, for `weft info`. */
#ifndef WEFT_RUN_INFO_H
#define WEFT_RUN_INFO_H

#include "run/text.h"

/* Appends it as text for people, or as one JSON object. Starts no runtime.
 * Errors: memory, hwloc. */
int weft_info(bool json, struct weft_text *out, struct weft_err *err);

#endif
