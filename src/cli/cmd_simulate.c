/* SPDX-License-Identifier: Apache-2.0 */
/* weft simulate: how long a run would take, without running it. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "job/profile.h"
#include "job/run_config.h"
#include "run/predict/known.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/planned.h"

WEFT_COMMAND(simulate);

const char weft_help_simulate[] =
    "usage: weft simulate [options] CONFIG.yaml [key=value ...]\n"
    "       weft simulate [options] --run RUN [key=value ...]\n"
    "\n"
    "Says how long iterations of a run would take on a cluster: the "
    "training\n"
    "loop records its tasks and messages, and an event engine plays them.\n"
    "Nothing is computed. Models' folders need only config.json, and a\n"
    "tokenizer unless data.prompt_tokens stands for the data.\n"
    "Prints the time of an iteration once iterations follow one another; "
    "when each\n"
    "call starts and ends; what part of the time devices compute, move data "
    "and\n"
    "wait; the memory that they take.\n"
    "\n"
    "options:\n"
    "      --cluster FILE      its devices and links; default: the key "
    "'cluster', or\n"
    "                          the machine that was profiled, with costs of "
    "all tasks\n"
    "      --costs FILE        tasks take what weft profile measured, where "
    "it did;\n"
    "                          default: the key 'costs', if the cluster is "
    "the key's\n"
    "      --run RUN           the last iterations of a run that was made: "
    "its\n"
    "                          configuration, its plan unless another is "
    "asked for,\n"
    "                          its samples' lengths, and with its plan when "
    "they\n"
    "                          moved (decisions.jsonl); prints measured "
    "times\n"
    "                          beside predicted ones\n"
    "      --plan PLAN.json    the plan of the run; default: as weft plan "
    "makes it\n"
    "      --from WHAT         make one from it: see weft plan --help\n"
    "      --nodes N           nodes of the run; default: the plan's, or all "
    "of\n"
    "                          the cluster\n"
    "      --devices N         CPU devices of each node; default: likewise\n"
    "      --gpus N            GPUs of each node\n"
    "      --iterations N      that are played, 3 or more; default: 3\n"
    "      --lengths WHAT      of responses: max, fixed:N, uniform:A:B,\n"
    "                          lognormal:MEDIAN:SIGMA, a run's "
    "metrics.jsonl, or\n"
    "                          a file of numbers of tokens; default: max\n"
    "      --gangs             play instructions of tp groups "
    "(doc/simulate.md)\n"
    "      --svg FILE          draw it: a row per device, and generation\n"
    "      --perfetto FILE     write it as a trace for "
    "https://ui.perfetto.dev\n"
    "      --json              print JSON instead of tables\n"
    "      --help              this text\n"
    "\n"
    "example:\n"
    "  weft simulate examples/quickstart/ppo.yaml --from layout=dp2 \\\n"
    "      --cluster examples/clusters/cpu_2cores.yaml --svg timeline.svg\n";

struct options {
    struct weft_known *known; /* of costs without a cluster; NULL: none */
    const char *cluster, *costs, *lengths;
    struct weft_cli_planned plan;
    struct weft_simulate_options simulate;
};

/* The machine that was profiled is the cluster. */
static void use_known(struct options *o, const struct weft_g_job *job)
{
    const struct weft_simulate_options k = weft_known_options(o->known, job);
    o->simulate.cluster = k.cluster;
    o->simulate.costs = k.costs;
    o->simulate.crowded = k.crowded;
    o->simulate.measured = true;
}

static int simulate(struct options *o, struct weft_config *config,
                    struct weft_string *out, struct weft_err *err)
{
    struct weft_run_needs needs;
    struct weft_plan plan = {0};
    int rc = weft_cli_plan(&o->plan, config, &needs, &plan, err);
    if (!rc) {
        struct weft_g_job job = {plan.n_nodes, plan.n_devices,
                                 config->runtime.place == WEFT_PLACE_DEVICE,
                                 plan.n_gpus, false};
        if (o->known)
            use_known(o, &job);
        if (plan.n_nodes * plan.n_devices > WEFT_FEW_DEVICES)
            o->simulate.gangs = true;
        rc = weft_run_simulate(config, &job, &plan, &o->simulate, out, err);
    }
    weft_plan_release(&plan);
    return rc;
}

/* Reads what the run is simulated on: a cluster, costs, or both. */
static int read_costs(struct options *o, struct weft_config *config,
                      struct weft_cluster *cluster,
                      struct weft_costs_file *costs, struct weft_err *err)
{
    const char *described = o->cluster ? o->cluster : config->cluster;
    const char *measured = weft_cli_costs(o->costs, o->cluster, config);
    if (!described && !measured)
        return weft_err_set(err, WEFT_EINVAL,
                            "give a cluster: --cluster FILE, or the "
                            "configuration's key 'cluster'; or --costs FILE "
                            "of weft profile");
    if (!described && o->costs) {
        weft_free(config->costs);
        config->costs = weft_strdup(o->costs);
        if (!config->costs)
            return weft_err_nomem(err, o->costs, strlen(o->costs));
    }
    if (!described)
        return weft_known_open(config, &o->known, err);
    int rc = weft_cluster_read(described, cluster, err);
    if (!rc && measured)
        rc = weft_profile_read(measured, config, costs, err);
    if (!rc) {
        o->simulate.cluster = cluster;
        weft_cli_use_cluster(&o->plan, cluster, config);
        o->simulate.costs = measured ? costs : NULL;
    }
    return rc;
}

static int run(struct options *o, const char *file, int n_override,
               const char *const *override, struct weft_err *err)
{
    struct weft_config config;
    struct weft_cluster cluster;
    struct weft_costs_file costs = {.n_ops = 0};
    struct weft_lengths lengths = {.n = 0};
    struct weft_string out = {0};
    int rc = weft_run_config_read(file, n_override, override, &config, err);
    if (rc)
        return rc;
    rc = read_costs(o, &config, &cluster, &costs, err);
    if (!rc)
        rc = weft_cli_lengths(o->lengths, &config, &lengths, err);
    if (!rc) {
        o->simulate.lengths = &lengths;
        rc = simulate(o, &config, &out, err);
    }
    weft_lengths_release(&lengths);
    if (!rc)
        fputs(out.data, stdout);
    weft_string_release(&out);
    weft_known_close(o->known);
    weft_costs_file_release(&costs);
    weft_config_release(&config);
    return rc;
}

/* Simulates a run that was made, as it was or with another plan. */
static int run_again(struct options *o, int n_override,
                     const char *const *override, struct weft_err *err)
{
    const char *dir = o->simulate.run_dir;
    const struct weft_cli_planned *p = &o->plan;
    bool other = p->from || p->check || p->nodes || p->devices || p->gpus;
    char *file = weft_path_join(dir, "config.yaml");
    char *plan = weft_path_join(dir, "plan.json");
    int rc = file && plan ? 0 : weft_err_nomem(err, dir, strlen(dir));
    if (!other)
        o->plan.check = plan;
    o->simulate.decided = !other;
    if (!rc)
        rc = run(o, file, n_override, override, err);
    weft_free(file);
    weft_free(plan);
    return rc;
}

/* Says which options do not go together, or NULL. */
static const char *misuse(const struct options *o, int n_operands)
{
    if (!o->simulate.run_dir && n_operands == 0)
        return "give a configuration file";
    if (o->plan.from && o->plan.check)
        return "--plan and --from exclude each other";
    if (o->simulate.run_dir && o->simulate.json)
        return "--run prints tables: leave out --json";
    return weft_cli_plan_misuse(&o->plan);
}

int weft_cmd_simulate(int argc, char **argv)
{
    struct options o = {.lengths = "max",
                        .simulate = {.iterations = 3, .bound = true}};
    const struct weft_cli_option table[] = {
        {0, "cluster", WEFT_CLI_STRING, &o.cluster, 0, 0},
        {0, "costs", WEFT_CLI_STRING, &o.costs, 0, 0},
        {0, "run", WEFT_CLI_STRING, &o.simulate.run_dir, 0, 0},
        {0, "plan", WEFT_CLI_STRING, &o.plan.check, 0, 0},
        {0, "from", WEFT_CLI_STRING, &o.plan.from, 0, 0},
        {0, "nodes", WEFT_CLI_INT, &o.plan.nodes, 1, WEFT_MAX_NODES},
        {0, "devices", WEFT_CLI_INT, &o.plan.devices, 1, WEFT_MAX_DEVICES},
        {0, "gpus", WEFT_CLI_INT, &o.plan.gpus, 1, WEFT_MAX_DEVICES},
        {0, "iterations", WEFT_CLI_INT, &o.simulate.iterations, 3, 1000},
        {0, "lengths", WEFT_CLI_STRING, &o.lengths, 0, 0},
        {0, "gangs", WEFT_CLI_FLAG, &o.simulate.gangs, 0, 0},
        {0, "svg", WEFT_CLI_OUTPUT, &o.simulate.svg, 0, 0},
        {0, "perfetto", WEFT_CLI_OUTPUT, &o.simulate.trace, 0, 0},
        {0, "json", WEFT_CLI_FLAG, &o.simulate.json, 0, 0},
    };
    int first, status;
    if (!weft_cli_parse(argc, argv, weft_help_simulate, table,
                        WEFT_COUNT(table), 0, -1, &first, &status))
        return status;
    const char *wrong = misuse(&o, argc - first);
    if (wrong)
        return weft_cli_usage("simulate", "%s", wrong);
    const char *file = o.simulate.run_dir ? NULL : argv[first++];
    for (int i = first; i < argc; i++)
        if (!strchr(argv[i], '='))
            return weft_cli_usage("simulate", "'%s' is no key=value word",
                                  argv[i]);
    struct weft_err err = {0};
    const char *const *word = (const char *const *) argv + first;
    int rc = file ? run(&o, file, argc - first, word, &err)
                  : run_again(&o, argc - first, word, &err);
    return rc ? weft_cli_fail("simulate", &err) : weft_cli_finish("simulate");
}
