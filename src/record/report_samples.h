/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of samples on a run's page. */
#ifndef WEFT_RECORD_REPORT_SAMPLES_H
#define WEFT_RECORD_REPORT_SAMPLES_H

#include "base/string.h"
#include "record/metrics.h"

/* Adds the samples of the last and of the first iteration of the table that has
 * any. Errors: WEFT_ENOMEM, those of files and of their lines. */
int weft_report_samples(const char *run_dir,
                        const struct weft_metrics_table *table,
                        struct weft_string *out, struct weft_err *err);

#endif
