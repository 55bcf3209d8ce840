/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of a run: `trace: true`. */
#ifndef WEFT_JOB_TRACE_H
#define WEFT_JOB_TRACE_H

#include "config/config.h"

/* StarPU's own trace needs a StarPU that was built with FxT. If the
 * configuration asks for a trace and there is such a StarPU, this starts the
 * program again (exec) with it and the same arguments; argv: the command's
 * name and its arguments, as weft_cmd_train() gets them. Otherwise it returns
 * 0, also when the configuration cannot be read. Call it before
 * weft_world_open(), as MPI does not survive exec(). Errors: the program
 * cannot be started, or that StarPU does not trace. */
int weft_trace_prepare(const char *file, int n_override,
                       const char *const *override, char **argv,
                       struct weft_err *err);
/* Logs a warning if the run asks for a trace and a rank has no StarPU for it.
 * Collective. */
void weft_trace_report(const struct weft_config *config);
/* Whether there is a file run_dir/trace/paje.trace. */
bool weft_trace_has_paje(const char *run_dir);

#endif
