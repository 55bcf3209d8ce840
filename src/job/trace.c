/* SPDX-License-Identifier: Apache-2.0 */
#include "job/trace.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "rt/fxt.h"
#include "job/run_config.h"

static int start_again(char **argv, struct weft_err *err)
{
    /* argv begins with the command's name; add the program's before it. */
    static char name[] = "weft";
    size_t n = 0;
    while (argv[n])
        n++;
    char **all = weft_alloc(n + 2, sizeof *all);
    if (!all)
        return weft_err_nomem(err, "arguments", (n + 2) * sizeof *all);
    all[0] = name;
    memcpy(all + 1, argv, n * sizeof *all);
    int rc = weft_fxt_reexec(all, err);
    weft_free(all);
    return rc;
}

int weft_trace_prepare(const char *file, int n_override,
                       const char *const *override, char **argv,
                       struct weft_err *err)
{
    struct weft_config config;
    struct weft_err later; /* who reads it next says what is wrong */
    if (!weft_fxt_needed() || !weft_fxt_built()
        || weft_run_config_read(file, n_override, override, &config, &later))
        return 0;
    bool wanted = config.trace;
    weft_config_release(&config);
    return wanted ? start_again(argv, err) : 0;
}

void weft_trace_report(const struct weft_config *config)
{
    bool all = weft_world_min(!weft_fxt_needed()) != 0;
    if (config->trace && !all && weft_world_rank() == 0)
        weft_info("this build has no StarPU with FxT: the trace is "
                  "trace.json alone");
}

bool weft_trace_has_paje(const char *run_dir)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/trace/paje.trace", run_dir);
    return weft_file_exists(path);
}
