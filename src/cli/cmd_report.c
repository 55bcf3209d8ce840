/* SPDX-License-Identifier: Apache-2.0 */
/* weft report: a run as one HTML page. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/string.h"
#include "record/report.h"
#include "cli/cli.h"
#include "cli/command.h"

WEFT_COMMAND(report);

const char weft_help_report[] =
    "usage: weft report [options] RUN_DIR\n"
    "\n"
    "Makes an HTML page of a run that needs nothing else to be read: curves\n"
    "of its metrics, where the time went, samples, configuration. Prints "
    "the\n"
    "page's name. 'weft train' does it at the end of a run; a run that is\n"
    "under way can be looked at the same way.\n"
    "\n"
    "options:\n"
    "  -o, --output FILE   the page; default: RUN_DIR/report.html\n"
    "      --svg FILE      instead, a picture of how the newest iteration "
    "was\n"
    "                      generated of which the run has kept it\n"
    "      --json          print {\"report\": FILE}\n"
    "      --help          this text\n"
    "\n"
    "example:\n"
    "  xdg-open \"$(weft report runs/quickstart)\"\n";

int weft_cmd_report(int argc, char **argv)
{
    const char *output = NULL, *svg = NULL;
    bool json = false;
    const struct weft_cli_option table[] = {
        {'o', "output", WEFT_CLI_OUTPUT, &output, 0, 0},
        {0, "svg", WEFT_CLI_OUTPUT, &svg, 0, 0},
        {0, "json", WEFT_CLI_FLAG, &json, 0, 0},
    };
    int first, status;
    if (!weft_cli_parse(argc, argv, weft_help_report, table,
                        WEFT_COUNT(table), 1, 1, &first, &status))
        return status;
    struct weft_err err = {0};
    char *path = NULL;
    if (svg && (output || json))
        return weft_cli_usage("report", "--svg makes no page: leave out "
                                        "--output and --json");
    if (svg && weft_report_generation(argv[first], svg, &err) != 0)
        return weft_cli_fail("report", &err);
    if (svg) {
        puts(svg);
        return weft_cli_finish("report");
    }
    if (weft_report_write(argv[first], output, &path, &err) != 0)
        return weft_cli_fail("report", &err);
    struct weft_string text = {0};
    weft_string_add_json(&text, path);
    if (json)
        printf("{\"report\": %s}\n", text.data ? text.data : "null");
    else
        puts(path);
    weft_string_release(&text);
    weft_free(path);
    return weft_cli_finish("report");
}
