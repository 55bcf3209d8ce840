/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of a run: `trace: true`. */
#ifndef WEFT_RUN_TRACE_H
#define WEFT_RUN_TRACE_H

#include "run/config.h"

/* StarPU's own trace needs a StarPU built with FxT: when the run that is
 * configured so wants a trace and one is known, the process is started again
 * (exec) on it with the same words (argv: the command's name and its words, as
 * weft_cmd_train() has them); otherwise returns 0, also when the configuration
 * cannot be read. Before weft_world_open(), as MPI does not survive exec().
 * Errors: the start fails, or that StarPU does not trace. */
int weft_trace_prepare(const char *file, int n_override,
                       const char *const *override, char **argv,
                       struct weft_err *err);
/* Says so when the run wants a trace and a rank's build has no StarPU for it.
 * Collective. */
void weft_trace_report(const struct weft_config *config);
/* run_dir/trace/paje.trace is there. */
bool weft_trace_has_paje(const char *run_dir);

#endif
