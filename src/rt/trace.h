/* SPDX-License-Identifier: Apache-2.0 */
/* StarPU's traces while they are made; fxt.h says how a program asks for
 * them. */
#ifndef WEFT_RT_TRACE_H
#define WEFT_RT_TRACE_H

#include "base/err.h"

/* Trace events around StarPU's life (fxt.c). They go to a folder of their own
 * under TMPDIR. When StarPU has stopped everywhere, rank 0 turns those of all
 * ranks into dir/paje.trace: collective; errors are common to all ranks. At
 * last every rank that began clears its folder away. */
int weft_fxt_begin(struct weft_err *err);
int weft_fxt_end(const char *dir, struct weft_err *err);
void weft_fxt_clear(void);
void weft_fxt_off(void);
/* Corrects StarPU's Paje trace `raw` into `path`: definitions come first, then
 * the events in a stable order by time; colours get the range that Paje
 * wants; containers of threads that have events, and were never created, are
 * created before the first. */
int weft_paje_mend(const char *raw, const char *path, struct weft_err *err);
/* Tracing ends after so many tasks, as a trace grows by 1 KB per task and
 * converting it takes 0.1 ms per task. */
enum { WEFT_FXT_TASKS = 20000 };

#endif
