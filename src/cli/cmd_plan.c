/* SPDX-License-Identifier: Apache-2.0 */
/* weft plan: who computes what where. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/topology.h"
#include "job/gpus.h"
#include "job/plan_needs.h"
#include "job/run_config.h"
#include "plan/strategy.h"
#include "run/trainer.h"
#include "cli/cli.h"
#include "cli/command.h"

WEFT_COMMAND(plan);

const char weft_help_plan[] =
    "usage: weft plan [options] CONFIG.yaml [key=value ...]\n"
    "       weft plan --explain PLAN.json\n"
    "\n"
    "Makes the execution plan of a run: devices and layout of each model\n"
    "function call. Prints it as a table. Any plan gives the same numbers; "
    "a\n"
    "run takes it with plan: PLAN.json. Without --from it is the\n"
    "configuration's 'layout' or, where there is none, data parallel; there "
    "is\n"
    "no search for the fastest plan yet.\n"
    "\n"
    "options:\n"
    "      --from layout=TEXT  one layout for all calls: dp2tp2pp1, then\n"
    "                          ,zero=1 ,micro_batches=4 ,recompute "
    ",offload\n"
    "      --from NAME         as a system known by name places the calls;\n"
    "                          --from list names them. Or shares of the\n"
    "                          devices: ratio=ROLE:0.5,ROLE:0.25\n"
    "      --nodes N           nodes of the cluster; default: 1\n"
    "      --devices N         CPU devices of each node; default: "
    "runtime.devices,\n"
    "                          runtime.cpu_devices, or one per core\n"
    "      --gpus N            with runtime.devices=gpu, GPUs of each node;\n"
    "                          default: runtime.gpus, or this machine's\n"
    "  -o, --output PLAN.json  write it to a file, too\n"
    "      --check PLAN.json   make none: check this one (default for nodes "
    "and\n"
    "                          devices: its own)\n"
    "      --explain PLAN.json print a file as a table; of a run, with the\n"
    "                          memory that it took\n"
    "      --gangs             count memory by instruction of a tp group, "
    "not\n"
    "                          by task, which is quicker and no bound: the\n"
    "                          sum was up to 3 % less, samples up to 22 %;\n"
    "                          always above 64 devices\n"
    "      --graph             print the algorithm's dataflow graph: roles,\n"
    "                          calls, what they read and write\n"
    "      --svg FILE          draw the graph, and beneath each call its\n"
    "                          devices in the plan\n"
    "      --json              print JSON instead of the table\n"
    "      --help              this text\n"
    "\n"
    "example:\n"
    "  weft plan examples/quickstart/ppo.yaml --from layout=dp2tp2 "
    "--devices 4\n"
    "  weft plan examples/quickstart/ppo.yaml --graph --svg graph.svg\n";

struct options {
    const char *from, *output, *check, *explain, *svg;
    int32_t nodes, devices, gpus; /* 0: not given */
    bool json, graph, gangs;
};

/* Devices of which memory is counted task by task. */
enum { FEW_DEVICES = 64 };

static int print(const struct weft_plan *plan, bool json,
                 struct weft_err *err)
{
    char *text = json ? weft_plan_json(plan) : weft_plan_explain(plan);
    if (!text)
        return weft_err_nomem(err, "a plan", 4096);
    fputs(text, stdout);
    weft_free(text);
    return 0;
}

static int print_graph(const struct weft_dataflow *flow, struct weft_err *err)
{
    char *text = weft_flow_text(flow);
    if (!text)
        return weft_err_nomem(err, "a graph", sizeof *flow);
    fputs(text, stdout);
    weft_free(text);
    return 0;
}

static int draw(const struct weft_plan *plan, const char *path,
                struct weft_err *err)
{
    char *text = weft_plan_svg(plan);
    if (!text)
        return weft_err_nomem(err, "a picture", 4096);
    int rc = weft_file_write(path, text, strlen(text), err);
    weft_free(text);
    return rc;
}

/* Counts the CPU devices that the run has: by default one per core. */
static int count_cpus(const struct weft_config *config, int32_t *out,
                      struct weft_err *err)
{
    struct weft_topology topology;
    *out = config->runtime.devices == WEFT_ON_GPUS
             ? config->runtime.cpu_devices
             : config->runtime.devices;
    if (*out > 0)
        return 0;
    int rc = weft_topology_read(&topology, err);
    if (!rc)
        *out = topology.n_cores > 0 && topology.n_cores < topology.n_usable
                 ? topology.n_cores
                 : topology.n_usable;
    return rc;
}

/* Counts the devices of each node. */
static int count_devices(const struct options *o,
                         const struct weft_config *config, int32_t *out,
                         int32_t *gpus_out, struct weft_err *err)
{
    int rc = 0;
    *out = o->devices;
    *gpus_out = o->gpus > 0 ? o->gpus : config->runtime.gpus;
    if (o->gpus > 0 && config->runtime.devices != WEFT_ON_GPUS)
        return weft_err_set(err, WEFT_EINVAL,
                            "--gpus is for runs on GPUs: add "
                            "runtime.devices=gpu");
    if (*gpus_out == 0)
        rc = weft_run_gpus(config, gpus_out, err);
    if (!rc && *out == 0)
        rc = count_cpus(config, out, err);
    *out += *gpus_out;
    return rc;
}

/* Predicts what a run of the plan takes, and says so where it is no bound. */
static int predict(const struct options *o, const struct weft_config *config,
                   struct weft_plan *plan, struct weft_err *err)
{
    bool gangs = o->gangs || plan->n_nodes * plan->n_devices > FEW_DEVICES;
    struct weft_g_job job = {plan->n_nodes, plan->n_devices,
                             config->runtime.place == WEFT_PLACE_DEVICE,
                             plan->n_gpus};
    int rc = weft_trainer_predict(config, &job, gangs, plan, err);
    if (!rc && gangs)
        weft_info("memory is counted by instruction of a tp group: "
                  "activations and samples may need a few per cent more, and "
                  "records of tasks are those of instructions");
    return rc;
}

/* Names idle devices, in a line of its own beside the table. */
static void tell_idle(const struct options *o, const struct weft_plan *plan,
                      const struct weft_plan_needs *needs)
{
    char idle[400];
    if (!weft_plan_idle(plan, needs, idle, sizeof idle))
        return;
    if (o->json)
        weft_warn("%s", idle);
    else
        printf("%s\n\n", idle);
}

/* Reads and checks the plan of `--check`; its cluster is used where none is
 * given. */
static int check(const struct options *o, const struct weft_config *config,
                 struct weft_plan *out, struct weft_err *err)
{
    struct weft_run_needs needs;
    struct weft_dataflow flow;
    int rc = weft_run_flow(config, &flow, err);
    if (!rc)
        rc = weft_plan_read(o->check, &flow, out, err);
    if (rc)
        return rc;
    int32_t gpus = o->gpus ? o->gpus : out->n_gpus;
    int32_t cpus = o->devices ? o->devices : out->n_devices - out->n_gpus;
    rc = weft_run_needs_read(config, o->nodes ? o->nodes : out->n_nodes,
                             gpus + cpus, gpus, &needs, err);
    if (rc)
        return rc;
    rc = weft_plan_check(out, &needs.plan, err);
    if (rc)
        weft_err_prefix(err, "%s", o->check);
    if (!rc)
        rc = predict(o, config, out, err);
    if (!rc)
        tell_idle(o, out, &needs.plan);
    return rc;
}

/* Length of "layout=" where the text begins so. */
static size_t layout_length(const char *from)
{
    static const char layout[] = "layout=";
    size_t n = sizeof layout - 1;
    return strncmp(from, layout, n) == 0 ? n : 0;
}

static void list_strategies(void)
{
    const char *name, *what;
    for (int32_t i = 0; (name = weft_strategy_name(i, &what)); i++)
        printf("%-21s %s\n", name, what);
}

static int make(const struct options *o, struct weft_config *config,
                struct weft_plan *out, struct weft_err *err)
{
    struct weft_run_needs needs;
    int32_t devices, gpus;
    weft_free(config->plan); /* the command makes a new plan */
    config->plan = NULL;
    if (o->from) {
        weft_free(config->layout);
        config->layout = weft_strdup(o->from + layout_length(o->from));
        if (!config->layout)
            return weft_err_nomem(err, "a layout", strlen(o->from));
    }
    int rc = count_devices(o, config, &devices, &gpus, err);
    if (!rc)
        rc = weft_run_needs_read(config, o->nodes ? o->nodes : 1, devices,
                                 gpus, &needs, err);
    if (!rc)
        rc = weft_run_plan(config, &needs.plan, out, err);
    if (!rc)
        rc = predict(o, config, out, err);
    if (!rc && o->output)
        rc = weft_plan_write(out, o->output, err);
    if (!rc)
        tell_idle(o, out, &needs.plan);
    return rc;
}

static int run(const struct options *o, const char *file, int n_override,
               const char *const *override, struct weft_err *err)
{
    struct weft_config config;
    struct weft_plan plan = {0};
    int rc;
    if (o->explain) {
        rc = weft_plan_read(o->explain, NULL, &plan, err);
    } else {
        rc = weft_run_config_read(file, n_override, override, &config, err);
        if (rc)
            return rc;
        rc = o->graph && !o->svg ? weft_run_flow(&config, &plan.flow, err)
           : o->check            ? check(o, &config, &plan, err)
                                 : make(o, &config, &plan, err);
        weft_config_release(&config);
    }
    if (!rc && o->svg)
        rc = draw(&plan, o->svg, err);
    if (!rc)
        rc = o->graph ? print_graph(&plan.flow, err)
                      : print(&plan, o->json, err);
    weft_plan_release(&plan);
    return rc;
}

/* Says which options do not go together, or NULL. */
static const char *misuse(const struct options *o, bool config)
{
    bool makes = o->from || o->output;
    if (o->explain
        && (config || makes || o->check || o->nodes || o->devices || o->gpus
            || o->graph || o->svg || o->gangs))
        return "--explain takes a plan alone, no configuration and no "
               "option but --json";
    if (!o->explain && !config)
        return "give a configuration file";
    if (o->graph && o->json)
        return "--graph has no JSON";
    if (o->graph && !o->svg
        && (makes || o->check || o->nodes || o->devices || o->gpus
            || o->gangs))
        return "--graph makes no plan, but with --svg";
    if (o->check && makes)
        return "--check makes no plan: leave out --from and --output";
    if (o->from && layout_length(o->from) == 0 && !weft_strategy_is(o->from))
        return "'--from' must be layout=TEXT, like layout=dp2tp2pp1, "
               "ratio=ROLE:SHARE,... or a name that --from list prints";
    return NULL;
}

int weft_cmd_plan(int argc, char **argv)
{
    struct options o = {0};
    const struct weft_cli_option table[] = {
        {0, "from", WEFT_CLI_STRING, &o.from, 0, 0},
        {0, "nodes", WEFT_CLI_INT, &o.nodes, 1, WEFT_MAX_NODES},
        {0, "devices", WEFT_CLI_INT, &o.devices, 1, WEFT_MAX_NODE_DEVICES},
        {0, "gpus", WEFT_CLI_INT, &o.gpus, 1, WEFT_MAX_NODE_DEVICES},
        {'o', "output", WEFT_CLI_STRING, &o.output, 0, 0},
        {0, "check", WEFT_CLI_STRING, &o.check, 0, 0},
        {0, "explain", WEFT_CLI_STRING, &o.explain, 0, 0},
        {0, "gangs", WEFT_CLI_FLAG, &o.gangs, 0, 0},
        {0, "graph", WEFT_CLI_FLAG, &o.graph, 0, 0},
        {0, "svg", WEFT_CLI_STRING, &o.svg, 0, 0},
        {0, "json", WEFT_CLI_FLAG, &o.json, 0, 0},
    };
    int first, status;
    if (!weft_cli_parse(argc, argv, weft_help_plan, table, WEFT_COUNT(table),
                        0, -1, &first, &status))
        return status;
    if (o.from && strcmp(o.from, "list") == 0) {
        list_strategies();
        return weft_cli_finish("plan");
    }
    const char *wrong = misuse(&o, first < argc);
    if (wrong)
        return weft_cli_usage("plan", "%s", wrong);
    for (int i = first + 1; i < argc; i++)
        if (!strchr(argv[i], '='))
            return weft_cli_usage("plan", "'%s' is no key=value word",
                                  argv[i]);
    struct weft_err err = {0};
    int n_override = first < argc ? argc - first - 1 : 0;
    if (run(&o, argv[first], n_override,
            (const char *const *) argv + first + 1, &err)
        != 0)
        return weft_cli_fail("plan", &err);
    return weft_cli_finish("plan");
}
