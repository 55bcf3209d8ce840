/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the data of a run. */
#ifndef WEFT_RUN_PROMPTS_H
#define WEFT_RUN_PROMPTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct weft_trainer;
struct weft_run_prompt;

/* Opens data.path, renders and tokenises every row (prompts; prompts and
 * responses; pairs), applies data.long_prompts, and collects the ids that end a
 * response. Needs t->tokenizer and the actor's architecture. Errors name file,
 * line and key. With data.prompt_tokens it reads nothing: the rows are those of
 * an iteration, of that length. */
int weft_prompts_load(struct weft_trainer *t, struct weft_err *err);
void weft_prompts_release(struct weft_trainer *t);

/* The samples of an iteration that come from rows of the data, and the number
 * of the first for weft_prompts_draw(). With epochs the rows that are left at
 * an epoch's end are an iteration of their own, else it goes on in the next
 * epoch. */
int32_t weft_prompts_batch(const struct weft_trainer *t, int32_t iteration,
                           int64_t *first_out);
/* How often the data has been gone through at the iteration's end: with epochs
 * by steps, as in Transformers, else by rows. */
double weft_prompts_epoch(const struct weft_trainer *t, int32_t iteration);
/* The iterations of the run. Needs the prompts. Errors: WEFT_EINVAL (more than
 * can be counted). */
int weft_prompts_iterations(const struct weft_trainer *t, int32_t *out,
                            struct weft_err *err);

/* Tokenises row i of the data as the algorithm wants rows: up to two texts
 * into out, how many into n_out; 0: the row is skipped. */
int weft_prompts_row(struct weft_trainer *t, size_t i,
                     struct weft_run_prompt *out, int32_t *n_out,
                     struct weft_err *err);
void weft_prompts_release_row(struct weft_run_prompt *row);

/* The k-th prompt of the run. In every epoch each prompt is drawn once, in a
 * new random order if data.shuffle. The two texts of a pair are drawn one
 * after the other. */
const struct weft_run_prompt *weft_prompts_draw(struct weft_trainer *t,
                                                int64_t k);

#endif
