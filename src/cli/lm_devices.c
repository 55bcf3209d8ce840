/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/lm_devices.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "job/gpus.h"

int weft_lm_devices(const char *command, const char *devices, int32_t gpus,
                    struct weft_lm_file_options *out)
{
    const struct weft_gpus_asked asked = {gpus, 1, "--devices", "--gpus",
                                          "--devices 0"};
    struct weft_err err = {0};
    char *end = NULL;
    if (devices && strcmp(devices, "gpu") == 0) {
        out->devices = 1;
        return weft_gpus_ask(&asked, &out->n_gpus, &out->first_gpu, &err)
                 ? weft_cli_fail(command, &err)
                 : 0;
    }
    if (gpus > 0)
        return weft_cli_usage(command, "--gpus belongs to --devices gpu");
    long n = devices ? strtol(devices, &end, 10) : 0;
    if (n < 0 || n > 1000000 || (devices && (end == devices || *end)))
        return weft_cli_usage(command,
                              "--devices is a number from 0 to 1000000, or "
                              "gpu");
    out->devices = (int32_t) n;
    return 0;
}
