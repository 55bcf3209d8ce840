/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Describes a run on one self-contained HTML page: curves of metrics.jsonl,
 * times of calls, samples, configuration.
 */
#ifndef WEFT_RECORD_REPORT_H
#define WEFT_RECORD_REPORT_H

#include "base/err.h"

/* Reads a run directory and writes the page to `path` (NULL: report.html in
 * the run directory). path_out (may be NULL) receives the file's path; the
 * caller frees it. Errors: no run directory, damaged metrics. */
int weft_report_write(const char *run_dir, const char *path, char **path_out,
                      struct weft_err *err);

/* Draws how the newest iteration was generated of which the run has kept it
 * (record/timeline.h). Errors: it has kept none; those of files. */
int weft_report_generation(const char *run_dir, const char *path,
                           struct weft_err *err);

#endif
