/* SPDX-License-Identifier: Apache-2.0 */
/* weft profile: what this machine's kernels take. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/topology.h"
#include "job/gpus.h"
#include "job/plan_needs.h"
#include "job/profile.h"
#include "job/run_config.h"
#include "run/predict/recorded.h"
#include "cli/cli.h"
#include "cli/command.h"

WEFT_COMMAND(profile);

const char weft_help_profile[] =
    "usage: weft profile [options] CONFIG.yaml [key=value ...]\n"
    "\n"
    "Measures what this machine takes for the models of a run: layers\n"
    "forwards and backwards, decode steps by batch and context, heads,\n"
    "optimizer, copies and empty tasks, for each degree of tensor\n"
    "parallelism, at sizes that double, all devices busy; GPUs where\n"
    "runtime.devices is gpu. It needs no weights: config.json is enough.\n"
    "The file is for this machine, these kernels and this version alone\n"
    "(doc/costs.md).\n"
    "\n"
    "options:\n"
    "  -o, --output FILE   where to write it (costs.json)\n"
    "      --devices N     CPU devices; default: runtime.devices, or one "
    "per\n"
    "                      core\n"
    "      --limit S       seconds; larger sizes are left out (60)\n"
    "      --check FILE    measure nothing: say whether this file is of "
    "this\n"
    "                      machine, and what of the run has no price in it\n"
    "      --messages FILE as two ranks (mpirun -n 2 weft profile): measure "
    "what\n"
    "                      messages between them take, and add it to this "
    "file\n"
    "      --help          this text\n"
    "\n"
    "example:\n"
    "  weft profile examples/quickstart/ppo.yaml -o costs.json --limit 5\n";

struct options {
    const char *output, *check, *messages;
    int32_t devices;
    double limit_s;
};

struct devices {
    int32_t cpus, gpus, first_gpu;
};

/* ---- Progress ---------------------------------------------------------- */

struct shown {
    bool bar;
    double last_s;
};

/* A bar on a terminal, else a line every few seconds. */
static void show(void *ctx, const char *what, double share)
{
    enum { WIDTH = 24 };
    struct shown *s = ctx;
    double now = weft_clock_s();
    int n = (int) (share * WIDTH);
    if (s->bar)
        fprintf(stderr, "\r[%.*s%.*s] %-40.40s", n < WIDTH ? n : WIDTH,
                "########################", n < WIDTH ? WIDTH - n : 0,
                "                        ", what);
    else if (now - s->last_s > 5)
        fprintf(stderr, "weft profile: %s\n", what);
    if (s->bar || now - s->last_s > 5)
        s->last_s = now;
}

/* ---- What has no price ------------------------------------------------- */

/* Says which operations of the recording were not measured. */
static void list_missing(const struct weft_costs_file *file,
                         const struct weft_recording *r)
{
    int64_t n = 0;
    bool *told = weft_alloc((size_t) r->n_ops + 1, sizeof *told);
    for (int64_t i = 0; told && i < r->n_tasks; i++) {
        if (r->task[i].kind != WEFT_REC_TASK
            || weft_costs_file_task(file, r, i) >= 0)
            continue;
        if (!told[r->task[i].op])
            printf("%s%s",
                   n ? ", " : "not measured: ", weft_recording_op(r, i));
        told[r->task[i].op] = true;
        n++;
    }
    if (n)
        printf(" (%lld of %lld tasks of an iteration)\n", (long long) n,
               (long long) r->n_tasks);
    else
        printf("every task of an iteration has a measured price\n");
    weft_free(told);
}

/* Of an iteration of the run, with the longest samples. */
static int check_run(const struct weft_config *config,
                     const struct devices *d,
                     const struct weft_costs_file *file, struct weft_err *err)
{
    int32_t n = d->gpus + d->cpus;
    const struct weft_g_job job = {
        .n_ranks = 1, .n_devices = n, .n_gpus = d->gpus};
    struct weft_run_needs *needs = weft_alloc(1, sizeof *needs);
    struct weft_plan plan = {.n_nodes = 0};
    struct weft_trainer *t = NULL;
    struct weft_recording r;
    weft_recording_init(&r);
    int rc = needs ? weft_run_needs_read(config, 1, n, d->gpus, needs, err)
                   : weft_err_nomem(err, "a plan", sizeof *needs);
    if (!rc)
        rc = weft_run_plan(config, &needs->plan, &plan, err);
    if (!rc)
        rc = weft_trainer_describe(config, &job, &plan, &t, err);
    if (!rc)
        rc = weft_run_record(
            t, &(struct weft_recorded){.rank = -1, .iterations = 1}, &r, err);
    if (!rc)
        list_missing(file, &r);
    weft_recording_release(&r);
    if (t)
        weft_trainer_forget(t);
    weft_plan_release(&plan);
    weft_free(needs);
    return rc;
}

/* ---- Command ----------------------------------------------------------- */

static int count_devices(const struct options *o,
                         const struct weft_config *config,
                         struct devices *out, struct weft_err *err)
{
    struct weft_topology topology;
    *out = (struct devices){.cpus = config->runtime.devices};
    if (config->runtime.devices == WEFT_ON_GPUS) {
        if (o->devices > 0)
            return weft_err_set(err, WEFT_EINVAL,
                                "'--devices' counts CPU devices, and "
                                "runtime.devices is gpu: give runtime.gpus, "
                                "or runtime.devices a number");
        out->cpus = config->runtime.cpu_devices;
        return weft_run_gpus(config, &out->gpus, &out->first_gpu, err);
    }
    if (o->devices > 0)
        out->cpus = o->devices;
    if (out->cpus > 0)
        return 0;
    int rc = weft_topology_read(&topology, err);
    if (!rc)
        out->cpus = weft_min32(weft_topology_cores(&topology),
                               WEFT_MAX_DEVICES);
    return rc;
}

static int write_file(const char *path, const struct weft_costs_file *file,
                      struct weft_err *err)
{
    struct weft_string text = {0};
    weft_costs_file_text(file, &text);
    int rc = weft_string_check(&text, path, err);
    if (!rc)
        rc = weft_file_write(path, text.data, text.n, err);
    weft_string_release(&text);
    return rc;
}

static void print_summary(const struct weft_costs_file *f, bool gpus,
                          double seconds)
{
    printf("%s, %s kernels, %d %s%s: %d operations in %.0f s\n",
           gpus ? f->machine.device : f->machine.cpu, f->machine.kernels,
           f->machine.n_devices, gpus ? "GPU" : "device",
           f->machine.n_devices > 1 ? "s" : "", f->n_ops, seconds);
    printf(
        "to insert a task takes %.2f us and %.2f for each of its tiles, from "
        "one to the next\n%.2f and %.2f; copies move %.1f GB/s on each "
        "device\n",
        f->insert_s * 1e6, f->insert_tile_s * 1e6, f->task_s * 1e6,
        f->task_tile_s * 1e6, f->memory / 1e9);
    if (gpus)
        printf("between a GPU and host memory %.1f GB/s", f->host / 1e9);
    if (f->inside > 0)
        printf(", from one GPU to the next %.1f GB/s", f->inside / 1e9);
    printf("%s", gpus ? "\n" : "");
}

static int measure(const struct options *o, const struct weft_config *config,
                   const struct devices *d, struct weft_costs_file *out,
                   struct weft_err *err)
{
    struct shown shown = {.bar = isatty(STDERR_FILENO)};
    double start = weft_clock_s();
    const struct weft_profile_options options = {.n_gpus = d->gpus,
                                                 .first_gpu = d->first_gpu,
                                                 .n_devices = d->cpus,
                                                 .limit_s = o->limit_s,
                                                 .progress = show,
                                                 .ctx = &shown};
    int rc = weft_profile(config, &options, out, err);
    if (shown.bar)
        fprintf(stderr, "\r%70s\r", "");
    if (!rc)
        rc = write_file(o->output, out, err);
    if (!rc)
        print_summary(out, d->gpus > 0, weft_clock_s() - start);
    return rc;
}

/* Adds what messages take to a file that was made before; all ranks read it. */
static int add_messages(const struct options *o,
                        const struct weft_config *config,
                        struct weft_err *err)
{
    struct weft_costs_file file = {.n_ops = 0};
    int rc = weft_world_size() == 2
               ? weft_profile_read(o->messages, config, &file, err)
               : weft_err_set(err, WEFT_EINVAL,
                              "--messages measures between two ranks: start "
                              "it with mpirun -n 2");
    rc = weft_world_agree(rc, err);
    if (!rc)
        rc = weft_profile_messages(config, &file, err);
    if (!rc && weft_world_rank() == 0) {
        rc = write_file(o->messages, &file, err);
        printf("a message takes %.1f us, and a second for %.2f GB; a core of "
               "each rank is busy with\none for %.1f us, and for %.1f with "
               "1 MB\n",
               1e6 * file.message[0].seconds,
               weft_costs_file_rate(&file) / 1e9,
               1e6 * weft_costs_file_core(&file, 0),
               1e6 * weft_costs_file_core(&file, 1e6));
    }
    weft_costs_file_release(&file);
    return weft_world_agree(rc, err);
}

static int run(const struct options *o, int n_words, char **word,
               struct weft_err *err)
{
    struct weft_config config = {0};
    struct weft_costs_file file = {.n_ops = 0};
    struct devices d;
    int rc = weft_run_config_read(
        word[0], n_words - 1, (const char *const *) word + 1, &config, err);
    if (rc)
        return rc;
    rc = weft_run_check_supported(&config, "measured costs have", err);
    if (rc) {
        weft_config_release(&config);
        return rc;
    }
    if (o->messages) {
        rc = add_messages(o, &config, err);
        weft_config_release(&config);
        return rc;
    }
    rc = count_devices(o, &config, &d, err);
    if (!rc)
        rc = o->check ? weft_profile_read(o->check, &config, &file, err)
                      : measure(o, &config, &d, &file, err);
    if (!rc)
        rc = check_run(&config, &d, &file, err);
    weft_costs_file_release(&file);
    weft_config_release(&config);
    return rc;
}

int weft_cmd_profile(int argc, char **argv)
{
    struct options o = {.output = "costs.json", .limit_s = 60};
    const struct weft_cli_option table[] = {
        {'o', "output", WEFT_CLI_OUTPUT, &o.output, 0, 0},
        {0, "devices", WEFT_CLI_INT, &o.devices, 1, WEFT_MAX_DEVICES},
        {0, "limit", WEFT_CLI_DOUBLE, &o.limit_s, 1, 86400},
        {0, "check", WEFT_CLI_STRING, &o.check, 0, 0},
        {0, "messages", WEFT_CLI_STRING, &o.messages, 0, 0},
    };
    int first, status;
    if (!weft_cli_parse(argc, argv, weft_help_profile, table,
                        WEFT_COUNT(table), 1, 1000, &first, &status))
        return status;
    struct weft_err err = {0};
    int rc = o.messages ? weft_world_open(&err) : 0;
    if (!rc)
        rc = run(&o, argc - first, argv + first, &err);
    /* The first rank prints before the ranks disconnect, as the launcher may
     * kill late ones. */
    if (rc)
        status = weft_world_rank() == 0 ? weft_cli_fail("profile", &err)
                                        : WEFT_EXIT_FAILED;
    else
        status = weft_cli_finish("profile");
    weft_world_close();
    return status;
}
