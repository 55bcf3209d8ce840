/* SPDX-License-Identifier: Apache-2.0 */
/* `weft generate` and `weft score`: reads a file of prompts or texts, and
 * writes a line for each row in the same order. Formats: doc/formats.md. */
#ifndef WEFT_LM_LM_FILE_H
#define WEFT_LM_LM_FILE_H

#include "lm/lm.h"

struct weft_lm_file_options {
    const char *model;         /* folder */
    const char *data, *prompt; /* one of them, the other NULL */
    const char *output; /* NULL: stdout; a file appears when complete */
    /* told of the file that is written until then, and of NULL when there is
     * none any more; NULL: nobody asks */
    void (*unfinished)(const char *path);
    const char *chat_template; /* as in struct weft_renderer_options */
    const char *date;          /* the same */
    const char *dtype;
    int32_t limit;   /* rows; 0: all */
    int32_t devices; /* CPU devices; 0: one per core */
    int32_t tp;      /* struct weft_model's, as the next two */
    const struct weft_costs_file *costs;
    const char *costs_path;
    int32_t n_gpus, first_gpu; /* above 0: on these, beside the CPU devices */
    struct weft_lm_options lm;
};

int weft_lm_file_generate(const struct weft_lm_file_options *options,
                          struct weft_err *err);
/* Of options->lm only sampling.temperature is used. */
int weft_lm_file_score(const struct weft_lm_file_options *options,
                       struct weft_err *err);

#endif
