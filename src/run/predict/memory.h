/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a run by place and class: predicted before the run starts, and
 * measured while it runs. Both are written to the plan's file. */
#ifndef WEFT_RUN_PREDICT_MEMORY_H
#define WEFT_RUN_PREDICT_MEMORY_H

#include "plan/recording.h"
#include "run/trainer.h"

/* Sets t->plan.memory, an upper bound. Needs architectures, prompts and
 * layouts, but no runtime. Errors: WEFT_ENOMEM, those of recording. */
int weft_memory_predict(struct weft_trainer *t, struct weft_err *err);
/* Whether predictions have what tasks on GPUs take beside tiles: not without
 * CUDA. */
bool weft_memory_knows_gpus(void);
/* The most open tasks of each rank whatever lengths samples have and in
 * whatever order they end; bound: of weft_run_record_bound(); open (n_ranks).
 * Errors: WEFT_ENOMEM. */
int weft_memory_open(const struct weft_trainer *t,
                     const struct weft_recording *bound,
                     struct weft_rec_open *open, struct weft_err *err);
/* Errors: the prediction exceeds runtime.memory_limit_gib, or the machine's
 * free memory. The text names the largest class, and the smallest change of
 * the layout that fits, or keys whose values to lower. The host's copies
 * of offloaded weights must fit the free memory beside the rest. */
int weft_memory_check(const struct weft_trainer *t, struct weft_err *err);
/* Sets plan->memory of a plan by which the run may go on: of each class the
 * most of the run so far and of the plan, and of models both copies, as while
 * they move from the present plan's homes. Errors: those of
 * weft_trainer_predict(). */
int weft_memory_of_change(const struct weft_trainer *t,
                          struct weft_plan *plan, struct weft_err *err);
/* Whether this rank may take what plan->memory says, with what it has by now.
 * Errors: those of weft_topology_read(). */
int weft_memory_fits(const struct weft_trainer *t,
                     const struct weft_plan *plan, bool *out,
                     struct weft_err *err);
/* Sets t->plan.measured to the peaks so far, and warns of those above the
 * prediction. Collective. Errors: WEFT_ENOMEM. */
int weft_memory_measure(struct weft_trainer *t, struct weft_err *err);

/* Sets t->plan.replayed to what the iterations kept in t->replays take when
 * they are recorded with the lengths that they had, and played in the order
 * that their tasks took. Where that is not known, such as of fused training,
 * any order may be taken, as in the prediction. Collective. Errors:
 * WEFT_ENOMEM, those of recording. */
int weft_memory_replay(struct weft_trainer *t, struct weft_err *err);

/* Writes <run>/plan.json: the plan, predicted memory, and measured and
 * replayed memory if there is any. */
int weft_memory_write(const struct weft_trainer *t, struct weft_err *err);

#endif
