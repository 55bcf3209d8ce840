/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/string.h"
#include "config/config.h"
#include "record/metrics.h"
#include "record/progress.h"
#include "record/report.h"
#include "record/told.h"
#include "job/plan_needs.h"
#include "job/run_config.h"
#include "job/trace.h"
#include "run/trainer.h"
#include "cli/cli.h"
#include "cli/command.h"

WEFT_COMMAND(train);

const char weft_help_train[] =
    "usage: weft train CONFIG.yaml [key=value ...]\n"
    "       weft train --keys\n"
    "\n"
    "Trains a model by the algorithm that the configuration names: ppo,\n"
    "grpo and kin, dpo, kto, reward_model or sft. key=value words override\n"
    "the file. When run_dir already holds the run, it resumes from the\n"
    "newest checkpoint; the result has the same bits as a run that never\n"
    "stopped.\n"
    "\n"
    "A first Ctrl-C ends after the iteration, with a checkpoint and status\n"
    "130 (143 for SIGTERM), or ends the search of plan: auto and leaves\n"
    "nothing; a second one at once. Ranks are stopped so by SIGUSR1 to\n"
    "mpirun, which kills them two seconds after Ctrl-C.\n"
    "\n"
    "The run directory holds config.yaml, metrics.jsonl, samples/,\n"
    "checkpoints/ (Hugging Face folders), report.html and, with trace: "
    "true,\n"
    "trace/.\n"
    "\n"
    "options:\n"
    "  --keys        all keys: type, default, meaning\n"
    "  -q, --quiet   no progress, only the summary\n"
    "  --help        this text\n"
    "\n"
    "example:\n"
    "  weft train examples/quickstart/ppo.yaml run_dir=runs/slower \\\n"
    "      actor.lr=1e-4 iterations=20\n";

/* Mean of the last few finite entries of a column. */
static double last_mean(const double *column, size_t n)
{
    enum { LAST = 5 };
    double sum = 0;
    int count = 0;
    for (size_t i = n; i > 0 && count < LAST; i--)
        if (isfinite(column[i - 1])) {
            sum += column[i - 1];
            count++;
        }
    return count ? sum / count : NAN;
}

/* The path as a user would type it in the current folder. */
static const char *from_here(const char *path)
{
    char here[4096];
    size_t n = getcwd(here, sizeof here) ? strlen(here) : 0;
    if (n > 0 && strncmp(path, here, n) == 0 && path[n] == '/')
        return path + n + 1;
    return path;
}

/* How this program was called, for commands that the user may repeat. */
static const char *program(void)
{
    static char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0)
        return "weft";
    path[n] = 0;
    return from_here(path);
}

/* Appends a path as one word of a shell's command: where it has a byte that
 * may mean something to a shell, in single quotes. */
static void add_word(struct weft_string *out, const char *path)
{
    bool plain = path[0] != 0;
    for (const char *c = path; *c; c++)
        plain = plain
             && ((unsigned char) *c >= 0x80 || isalnum((unsigned char) *c)
                 || strchr("_./+-,:@%", *c));
    if (!plain)
        weft_string_add(out, "'");
    for (const char *c = path; *c; c++)
        if (*c == '\'')
            weft_string_add(out, "'\\''");
        else
            weft_string_add_n(out, c, 1);
    if (!plain)
        weft_string_add(out, "'");
}

/* What the user may do next: commands to copy into a shell. run: a word. */
static void next_commands(const struct weft_config *config, const char *run,
                          struct weft_string *out)
{
    weft_string_addf(out, "report  xdg-open %s/report.html\n", run);
    weft_string_addf(out, "metrics tail -n 1 %s/metrics.jsonl\n", run);
    if (weft_config_generates(config) && config->samples_kept != 0)
        weft_string_addf(out,
                         "samples tail -n 3 \"$(ls %s/samples/*.jsonl | "
                         "tail -n 1)\"\n",
                         run);
    struct weft_dataflow flow;
    if (weft_run_flow(config, &flow, NULL) == 0) {
        const struct weft_role *role = &flow.role[0];
        weft_string_add(out, "model   ");
        add_word(out, program());
        weft_string_addf(out,
                         " %s \"$(ls -d %s/checkpoints/*/%s | tail -n 1)\" "
                         "--data ",
                         role->scalar ? "score" : "generate", run,
                         role->name);
        add_word(out, from_here(config->data.path));
        weft_string_add(out, " --limit 3\n");
    }
    if (!config->trace)
        weft_string_add(
            out, "trace   run again with trace=true (and another run_dir)\n");
    else
        weft_string_addf(
            out, "trace   open %s/trace/trace.json in ui.perfetto.dev\n",
            run);
    if (config->trace && weft_trace_has_paje(config->run_dir))
        weft_string_addf(out, "        vite %s/trace/paje.trace\n", run);
}

static int summary(const struct weft_config *config, double seconds,
                   struct weft_err *err)
{
    const char *run = from_here(config->run_dir);
    char path[4096], took[24];
    struct weft_metrics_table table;
    const struct weft_watched *headline = weft_told_headline(config);
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    int rc = weft_metrics_read(path, &table, err);
    if (rc)
        return rc;
    const double *column = weft_metrics_column(&table, headline->tag);
    if (column && table.n_rows > 0) {
        double before = column[0], after = last_mean(column, table.n_rows);
        printf("%-7s %.3f before, %.3f after %lld iterations (%s)\n",
               headline->name, before, after,
               (long long) table.iteration[table.n_rows - 1],
               weft_progress_duration(seconds, took));
    }
    weft_metrics_table_clear(&table);
    rc = weft_report_write(run, NULL, NULL, err);
    if (rc)
        return rc;
    struct weft_string word = {0}, text = {0};
    add_word(&word, run);
    next_commands(config, word.data ? word.data : "", &text);
    rc = weft_string_check(&word, "a summary", err);
    if (!rc)
        rc = weft_string_check(&text, "a summary", err);
    if (!rc)
        fputs(text.data, stdout);
    weft_string_release(&word);
    weft_string_release(&text);
    return rc;
}

static void search(bool begins)
{
    if (!begins) {
        weft_cli_leave_stop();
        return;
    }
    weft_cli_catch_stop(weft_world_rank() == 0
                            ? "weft: stops; the next signal ends it at once\n"
                            : NULL);
}

static bool wants_stop(void *ctx)
{
    (void) ctx;
    return weft_cli_stop != 0;
}

/* stopped_by_out: the signal that ended it early, or 0; the same on all ranks,
 * although one rank may see a signal an iteration earlier than others. */
static int train(const char *file, int n_override,
                 const char *const *override, bool quiet,
                 const struct weft_config *config, int *stopped_by_out,
                 struct weft_err *err)
{
    const struct weft_trainer_opening opening = {.searches = search,
                                                 .stop = wants_stop};
    struct weft_trainer *trainer = NULL;
    struct weft_progress *progress = NULL;
    int stopped_by = 0;
    double start = weft_clock_s();
    int rc = weft_trainer_open_with(file, n_override, override, &opening,
                                    &trainer, err);
    if (rc == WEFT_EINTERRUPTED)
        *stopped_by_out = (int) weft_world_max(weft_cli_stop);
    if (rc)
        return rc;
    if (!quiet && weft_world_rank() == 0)
        progress = weft_progress_create(
            stderr, weft_trainer_iteration(trainer),
            weft_trainer_iterations(trainer), weft_clock_s());
    weft_cli_catch_stop(weft_world_rank() == 0
                            ? "weft: stops after this iteration, with a "
                              "checkpoint; the next signal ends it at once\n"
                            : NULL);
    while (!rc && !weft_trainer_done(trainer)
           && (stopped_by = (int) weft_world_max(weft_cli_stop)) == 0) {
        rc = weft_trainer_step(trainer, err);
        if (!rc)
            weft_progress_step(progress, weft_trainer_iteration(trainer),
                               weft_trainer_metrics(trainer), weft_clock_s());
    }
    weft_progress_free(progress);
    if (!rc && stopped_by)
        rc = weft_trainer_checkpoint(trainer, err);
    int iteration = weft_trainer_iteration(trainer);
    weft_trainer_close(trainer);
    *stopped_by_out = stopped_by;
    if (rc || weft_world_rank() > 0)
        return rc;
    if (stopped_by)
        fprintf(stderr,
                "weft: stopped after iteration %d; the same command goes "
                "on from there\n",
                iteration);
    return summary(config, weft_clock_s() - start, err);
}

int weft_cmd_train(int argc, char **argv)
{
    bool keys = false, quiet = false;
    const struct weft_cli_option table[] = {
        {0, "keys", WEFT_CLI_FLAG, &keys, 0, 0},
        {'q', "quiet", WEFT_CLI_FLAG, &quiet, 0, 0},
    };
    int first, status;
    if (!weft_cli_parse(argc, argv, weft_help_train, table, WEFT_COUNT(table),
                        0, -1, &first, &status))
        return status;
    if (keys) {
        weft_config_print_keys(&weft_run_schema);
        return weft_cli_finish("train");
    }
    if (first == argc)
        return weft_cli_usage("train", "give a configuration file");
    const char *file = argv[first];
    int n = argc - first - 1;
    const char *const *override = (const char *const *) argv + first + 1;
    for (int i = 0; i < n; i++)
        if (!strchr(override[i], '='))
            return weft_cli_usage("train", "'%s' is no key=value word",
                                  override[i]);
    struct weft_err err = {0}, prepare_err;
    struct weft_config config;
    int prepare_rc = weft_trace_prepare(file, n, override, argv,
                                        &prepare_err);
    int stopped_by = 0, rc = weft_world_open(&err);
    if (rc)
        return weft_cli_fail("train", &err);
    rc = weft_run_config_read(file, n, override, &config, &err);
    bool read = !rc;
    rc = weft_world_agree(rc, &err);
    if (!rc && prepare_rc)
        err = prepare_err;
    if (!rc)
        rc = weft_world_agree(prepare_rc, &err);
    if (!rc) {
        weft_trace_report(&config);
        rc = train(file, n, override, quiet, &config, &stopped_by, &err);
    }
    if (read)
        weft_config_release(&config);
    /* Errors are common to all ranks, and the first rank prints them. It does
     * so before the ranks disconnect, as the launcher may kill late ones. */
    if (rc)
        status = weft_world_rank() == 0 ? weft_cli_fail("train", &err)
                                        : WEFT_EXIT_FAILED;
    else
        status = weft_cli_finish("train");
    if (stopped_by && (!status || rc == WEFT_EINTERRUPTED))
        status = weft_cli_stop_status(stopped_by);
    weft_world_close();
    return status;
}
