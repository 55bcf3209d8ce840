/* SPDX-License-Identifier: Apache-2.0 */
/* Makes randomly initialised model folders: a model of model/init.h and its
 * tokenizer. */
#ifndef WEFT_LM_INIT_H
#define WEFT_LM_INIT_H

#include "model/init.h"

/* Makes the folder; on failure nothing is left. `dir` must be an empty folder,
 * or not exist. arch_out (may be NULL) gets what was made. */
int weft_init_model(const struct weft_init_options *options, const char *dir,
                    struct weft_arch *arch_out, struct weft_err *err);

#endif
