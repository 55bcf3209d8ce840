/* SPDX-License-Identifier: Apache-2.0 */
/* weft info: this build, this machine. */
#include <stdio.h>

#include "cli/cli.h"
#include "cli/command.h"
#include "job/cluster_info.h"
#include "run/info.h"

WEFT_COMMAND(info);

const char weft_help_info[] =
    "usage: weft info [--json | --cluster FILE]\n"
    "\n"
    "Prints what this program was built with and what this machine is: what\n"
    "configure found, StarPU, MPI, cores, caches, memory, CUDA devices, the\n"
    "kernels that would be chosen, limits, and the environment variables "
    "that\n"
    "count.\n"
    "\n"
    "options:\n"
    "  --json          one JSON object\n"
    "  --cluster FILE  instead, what a cluster's file says (doc/costs.md), "
    "and\n"
    "                  what a layer and messages take there\n"
    "  --help          this text\n"
    "\n"
    "example:\n"
    "  weft info --json\n"
    "  weft info --cluster examples/clusters/real_h100.yaml\n";

int weft_cmd_info(int argc, char **argv)
{
    bool json = false;
    const char *cluster = NULL;
    const struct weft_cli_option table[] = {
        {0, "json", WEFT_CLI_FLAG, &json, 0, 0},
        {0, "cluster", WEFT_CLI_STRING, &cluster, 0, 0},
    };
    int first, status;
    if (!weft_cli_parse(argc, argv, weft_help_info, table, WEFT_COUNT(table),
                        0, 0, &first, &status))
        return status;
    struct weft_err err = {0};
    struct weft_string text = {0};
    int rc = cluster ? weft_cluster_info(cluster, &text, &err)
                     : weft_info(json, &text, &err);
    if (!rc)
        fwrite(text.data, 1, text.n, stdout);
    weft_string_release(&text);
    if (rc)
        return weft_cli_fail("info", &err);
    return weft_cli_finish("info");
}
