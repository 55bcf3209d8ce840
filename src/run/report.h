/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run as one HTML page that needs nothing else: curves of metrics.jsonl,
 * where the time went, samples, configuration.
 */
#ifndef WEFT_RUN_REPORT_H
#define WEFT_RUN_REPORT_H

#include "base/err.h"

/* Reads a run directory and writes the page to `path` (NULL: report.html in
 * it). The name written goes to path_out (caller frees; may be NULL).
 * Errors: no run directory, damaged metrics. */
int weft_report_write(const char *run_dir, const char *path, char **path_out,
                      struct weft_err *err);

#endif
