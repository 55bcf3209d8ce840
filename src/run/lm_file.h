/* SPDX-License-Identifier: Apache-2.0 */
/* Files of prompts and texts through a model: `weft generate`, `weft score`.
 * Lines in, lines out, in order; formats in doc/formats.md. */
#ifndef WEFT_RUN_LM_FILE_H
#define WEFT_RUN_LM_FILE_H

#include "run/lm.h"

struct weft_lm_file_options {
    const char *model;         /* folder */
    const char *data, *prompt; /* one of them */
    const char *output;        /* NULL: stdout. A file is written whole */
    const char *chat_template; /* as in struct weft_renderer_options */
    const char *date;          /* too */
    const char *dtype;
    int32_t limit; /* rows; 0: all */
    int32_t devices;
    struct weft_lm_options lm;
};

int weft_lm_file_generate(const struct weft_lm_file_options *options,
                          struct weft_err *err);
/* lm.sampling.temperature counts; the rest of lm does not. */
int weft_lm_file_score(const struct weft_lm_file_options *options,
                       struct weft_err *err);

#endif
