/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing of a manifest's "roles" and "numbers". */
#ifndef WEFT_RECORD_MANIFEST_STATE_H
#define WEFT_RECORD_MANIFEST_STATE_H

#include "base/json.h"
#include "base/string.h"
#include "record/manifest.h"

/* Appends ",\n \"roles\": {...}", and numbers if there are any. */
void weft_manifest_state_write(const struct weft_manifest *m,
                               struct weft_string *text);
/* Adds those of the manifest `o`. Errors name `subject`. */
int weft_manifest_state_read(const json_t *o, const char *subject,
                             struct weft_manifest *m, struct weft_err *err);

#endif
