/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run directory.
 *
 *     run_dir/config.yaml                   the effective configuration
 *     run_dir/plan.json  lock
 *     run_dir/metrics.jsonl  samples/  trace/
 *     run_dir/checkpoints/iteration-000010/ (run/checkpoint.h)
 */
#ifndef WEFT_RUN_RUN_DIR_H
#define WEFT_RUN_RUN_DIR_H

#include "run/trainer.h"

/* Finds out whether run_dir holds a run: then checks that the configuration
 * fits it, and returns its newest checkpoint's folder (NULL: none yet; the
 * caller frees), with its iteration in t->iteration. Creates nothing. Errors:
 * a folder that is no run and not empty, another configuration. */
int weft_run_dir_open(struct weft_trainer *t, char **checkpoint_out,
                      struct weft_err *err);
/* Creates the run directory and takes its lock, which the process holds until
 * it ends: two runs in one directory would mix. What killed processes left
 * half-written there is removed. Errors: it is taken. */
int weft_run_dir_lock(struct weft_trainer *t, struct weft_err *err);
/* Creates the run directory's files where missing, opens the metrics (cut
 * back to the iteration resumed from). */
int weft_run_dir_begin(struct weft_trainer *t, struct weft_err *err);
/* Of a new run that did not finish an iteration, in the process that holds
 * the lock: takes away what lock and begin made, if nothing else is there, so
 * that the next start may have another configuration. */
void weft_run_dir_undo(struct weft_trainer *t);

#endif
