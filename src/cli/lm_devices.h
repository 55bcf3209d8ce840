/* SPDX-License-Identifier: Apache-2.0 */
/* --devices, --gpus and --costs of the commands that use one model. */
#ifndef WEFT_CLI_LM_DEVICES_H
#define WEFT_CLI_LM_DEVICES_H

#include "lm/lm_file.h"

struct weft_lm_asked {
    const char *devices; /* a number or "gpu"; NULL: 0 */
    int32_t gpus;
    const char *costs; /* NULL: none */
};

/* costs: is read if it is asked for, and then out's; the caller releases it in
 * any case. Returns 0, or the command's exit status after it has said what is
 * wrong. */
int weft_lm_devices(const char *command, const struct weft_lm_asked *asked,
                    struct weft_costs_file *costs,
                    struct weft_lm_file_options *out);

#endif
