/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing of a manifest's "numbers". */
#ifndef WEFT_RECORD_MANIFEST_NUMBERS_H
#define WEFT_RECORD_MANIFEST_NUMBERS_H

#include "base/json.h"
#include "base/string.h"
#include "record/manifest.h"

/* Appends ",\n \"numbers\": {...}" if there are any. */
void weft_manifest_numbers_write(const struct weft_manifest *m,
                                 struct weft_string *text);
/* Adds those of the manifest `o`, if it has any. Errors name `subject`. */
int weft_manifest_numbers_read(const json_t *o, const char *subject,
                               struct weft_manifest *m, struct weft_err *err);

#endif
