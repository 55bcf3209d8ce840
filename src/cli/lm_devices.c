/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/lm_devices.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "job/gpus.h"
#include "job/profile.h"

/* Costs choose how many CPU devices serve a replica. */
static int read_costs(const char *command, const char *path,
                      struct weft_costs_file *costs,
                      struct weft_lm_file_options *out)
{
    const struct weft_config config = {.seed = 0}; /* on CPU devices */
    struct weft_err err = {0};
    if (out->n_gpus > 0)
        return weft_cli_usage(command,
                              "--costs chooses among CPU devices, and each "
                              "GPU has a replica: leave it out");
    if (out->tp > 0)
        return weft_cli_usage(command,
                              "--tp says what --costs would choose: give one "
                              "of them");
    out->costs = costs;
    out->costs_path = path;
    return weft_profile_read(path, &config, costs, &err)
             ? weft_cli_fail(command, &err)
             : 0;
}

int weft_lm_devices(const char *command, const struct weft_lm_asked *asked,
                    struct weft_costs_file *costs,
                    struct weft_lm_file_options *out)
{
    const struct weft_gpus_asked gpus = {
        asked->gpus, 1, "'--devices' is gpu", "--gpus", "--devices 0", false};
    const char *devices = asked->devices;
    struct weft_err err = {0};
    char *end = NULL;
    if (devices && strcmp(devices, "gpu") == 0) {
        out->devices = 1;
        if (weft_gpus_ask(&gpus, &out->n_gpus, &out->first_gpu, &err))
            return weft_cli_fail(command, &err);
    } else {
        long n = devices ? strtol(devices, &end, 10) : 0;
        if (asked->gpus > 0)
            return weft_cli_usage(command, "--gpus belongs to --devices gpu");
        if (n < 0 || n > 1000000 || (devices && (end == devices || *end)))
            return weft_cli_usage(command,
                                  "--devices is a number from 0 to 1000000, "
                                  "or gpu");
        out->devices = (int32_t) n;
    }
    return asked->costs ? read_costs(command, asked->costs, costs, out) : 0;
}
