/* SPDX-License-Identifier: Apache-2.0 */
/*
 * StarPU's own traces. They need a StarPU that was built with FxT. As that one
 * is slower, the program is linked with one without FxT, and a run with a
 * trace starts itself again with the other library.
 *
 *     if (trace && weft_fxt_needed())
 *         rc = weft_fxt_reexec(argv, &err); // returns only on errors
 *     ... options.fxt_dir = "<run>/trace"; weft_rt_start(&options, ...)
 *
 * weft_rt_stop() then leaves <run>/trace/paje.trace, for ViTE, with the events
 * of all ranks. All ranks start again, before weft_world_open(): MPI does not
 * survive exec(). All ranks trace, or none.
 */
#ifndef WEFT_RT_FXT_H
#define WEFT_RT_FXT_H

#include "base/err.h"

/* Whether Weft was built with a StarPU that traces. */
bool weft_fxt_built(void);
/* Whether the StarPU of this process is one that does not trace. */
bool weft_fxt_needed(void);
/* Starts this program again with the StarPU that traces; argv ends in NULL.
 * Errors: there is no such StarPU; the program was started again already; the
 * system refuses. */
int weft_fxt_reexec(char *const argv[], struct weft_err *err);

#endif
