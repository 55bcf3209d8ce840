/* SPDX-License-Identifier: Apache-2.0 */
/* --devices and --gpus of the commands that use one model. */
#ifndef WEFT_CLI_LM_DEVICES_H
#define WEFT_CLI_LM_DEVICES_H

#include "lm/lm_file.h"

/* devices: a number or "gpu"; NULL: 0. Returns 0, or the command's exit status
 * after it has said what is wrong. */
int weft_lm_devices(const char *command, const char *devices, int32_t gpus,
                    struct weft_lm_file_options *out);

#endif
