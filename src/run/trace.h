/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of a run: `trace: true`. */
#ifndef WEFT_RUN_TRACE_H
#define WEFT_RUN_TRACE_H

#include "run/config.h"

/* StarPU's own trace needs a StarPU built with FxT: when the run wants a
 * trace and one is known, the process is started again (exec) on it with the
 * same words (argv: the command's name and its words, as weft_cmd_train()
 * has them); otherwise, and the second time, returns 0. */
int weft_trace_prepare(const struct weft_config *config, char **argv,
                       struct weft_err *err);
/* run_dir/trace/paje.trace is there. */
bool weft_trace_has_paje(const char *run_dir);

#endif
