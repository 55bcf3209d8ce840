/* SPDX-License-Identifier: Apache-2.0 */
/* Describes this build and this machine, for `weft info`. */
#ifndef WEFT_RUN_INFO_H
#define WEFT_RUN_INFO_H

#include "base/string.h"

/* Appends the description as text, or as one JSON object. Starts no runtime.
 * Errors: no memory, an error of hwloc. */
int weft_info(bool json, struct weft_string *out, struct weft_err *err);

#endif
