/* SPDX-License-Identifier: Apache-2.0 */
#include "run/trace.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "rt/fxt.h"

int weft_trace_prepare(const struct weft_config *config, char **argv,
                       struct weft_err *err)
{
    if (!config->trace || !weft_fxt_needed())
        return 0;
    if (weft_world_size() > 1) {
        if (weft_world_rank() == 0)
            weft_info("with several processes the trace is trace.json alone, "
                      "without StarPU's own events");
        return 0;
    }
    if (!weft_fxt_built()) {
        weft_info("this build has no StarPU with FxT: the trace is "
                  "trace.json alone");
        return 0;
    }
    /* argv begins with the command's name; the program's comes before it. */
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

bool weft_trace_has_paje(const char *run_dir)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/trace/paje.trace", run_dir);
    return weft_file_exists(path);
}
