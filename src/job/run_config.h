/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration of a run as config/config.h reads it, with what text and
 * model know of its values. */
#ifndef WEFT_JOB_RUN_CONFIG_H
#define WEFT_JOB_RUN_CONFIG_H

#include "config/schema.h"

/* What weft_config_read() does. A dtype that is not given is that of the
 * actor's folder. */
int weft_run_config_read(const char *path, int n_override,
                         const char *const *override, struct weft_config *out,
                         struct weft_err *err);

/* All algorithms, and what text knows of values. */
extern const struct weft_config_schema weft_run_schema;

#endif
