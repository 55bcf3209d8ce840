/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run directory.
 *
 *     run_dir/config.yaml                   the effective configuration
 *     run_dir/plan.json  lock
 *     run_dir/metrics.jsonl  samples/  trace/
 *     run_dir/decisions.jsonl               (run/tail.h)
 *     run_dir/checkpoints/iteration-000010/ (run/checkpoint.h)
 */
#ifndef WEFT_RUN_RUN_DIR_H
#define WEFT_RUN_RUN_DIR_H

#include "run/trainer.h"

/* If run_dir holds a run, checks that the configuration fits it.
 * checkpoint_out receives the folder of its newest checkpoint (the caller
 * frees; NULL: there is none) and t->iteration that checkpoint's iteration.
 * Creates nothing. Errors: the folder is not empty and holds no run, or a run
 * with another configuration. */
int weft_run_dir_open(struct weft_trainer *t, char **checkpoint_out,
                      struct weft_err *err);
/* Creates the run directory and locks it until the process ends, so that no
 * two processes write to it. Then removes incomplete files and folders that
 * killed processes left there. Errors: another process has the lock. */
int weft_run_dir_lock(struct weft_trainer *t, struct weft_err *err);
/* Creates the files that the run directory lacks, and opens the metrics, from
 * which it removes iterations after the one that the run resumes from. */
int weft_run_dir_begin(struct weft_trainer *t, struct weft_err *err);
/* If the run is new, has finished no iteration and this process has the lock,
 * removes what weft_run_dir_lock() and weft_run_dir_begin() created, unless
 * the directory has other files. The next start may then have another
 * configuration. */
void weft_run_dir_undo(struct weft_trainer *t);

#endif
