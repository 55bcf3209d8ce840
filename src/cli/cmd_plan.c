/* SPDX-License-Identifier: Apache-2.0 */
/* weft plan: who computes what where. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "job/as_completed.h"
#include "job/profile.h"
#include "job/run_config.h"
#include "plan/strategy.h"
#include "run/predict/memory.h"
#include "run/predict/simulate.h"
#include "run/predict/spread.h"
#include "run/trainer.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/plan_found.h"

WEFT_COMMAND(plan);

const char weft_help_plan[] =
    "usage: weft plan [options] CONFIG.yaml [key=value ...]\n"
    "       weft plan --explain PLAN.json\n"
    "\n"
    "Makes the execution plan of a run: devices and layout of each model "
    "function\n"
    "call. Prints a table. Any plan gives the same numbers; a run takes it "
    "with plan:\n"
    "PLAN.json. Without --from it is the configuration's 'layout' or data "
    "parallel;\n"
    "--search finds the fastest there is, as simulated, on all ranks of an "
    "mpirun.\n"
    "\n"
    "options:\n"
    "      --from layout=TEXT  one layout for all calls: dp2tp2pp1, then "
    ",zero=3 ,hpz\n"
    "                          ,micro_batches=4 ,recompute "
    ",offload[_optimizer]\n"
    "      --from NAME         as a system known by name; --from list names "
    "them;\n"
    "                          or shares of devices: "
    "ratio=ROLE:0.5,ROLE:0.25\n"
    "      --nodes N           nodes of the cluster; default: 1\n"
    "      --devices N         CPU devices of each node; default: the run's "
    "keys\n"
    "      --gpus N            GPUs of each node; default: likewise\n"
    "  -o, --output PLAN.json  write it to a file, too\n"
    "      --check PLAN.json   make none: check this one, for its nodes and "
    "devices\n"
    "      --explain PLAN.json print a file as a table; of a run, with its "
    "memory\n"
    "      --gangs             count memory by instruction of a tp group, "
    "more than\n"
    "                          by task; without it, above 64 devices by "
    "calls' prices\n"
    "      --cluster FILE      make it for all of a cluster (doc/costs.md)\n"
    "      --compare           simulate all placements, last what a search "
    "finds in\n"
    "                          half a minute (--no-search: none); --svg "
    "draws "
    "it\n"
    "      --batch max         the largest batch that fits; with --compare "
    "each's\n"
    "      --scale A..B        the same on A, 2 A, ... B devices of that "
    "kind\n"
    "      --search            find the plan with the shortest iterations "
    "there\n"
    "      --method NAME       of it: all, greedy, anneal, branches, "
    "exhaustive\n"
    "      --seed N, --evaluations N, --branches N, --threads N, "
    "--time-limit S,\n"
    "      --recording N, --restarts N  default: 1, 400, 10000 thousand, "
    "cores, none,\n"
    "                          1024 MiB, 4\n"
    "      --lengths WHAT      of responses, for both: see weft simulate\n"
    "      --graph             print the algorithm's dataflow graph\n"
    "      --svg FILE          draw the graph with the devices of each call\n"
    "      --json              print JSON instead of the table\n"
    "      --help              this text\n"
    "\n"
    "example:\n"
    "  weft plan examples/quickstart/ppo.yaml --from layout=dp2tp2 --devices "
    "4\n"
    "  weft plan examples/clusters/real_70b.yaml --compare\n";

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
    return weft_file_write_text(path, weft_plan_svg(plan), err);
}

/* Predicts what a run of the plan takes, and says so where it is no bound. */
static int predict(const struct weft_cli_plan_options *o,
                   const struct weft_config *config, struct weft_plan *plan,
                   struct weft_err *err)
{
    bool gangs = weft_cli_by_gangs(o, plan);
    struct weft_g_job job = {plan->n_nodes, plan->n_devices,
                             config->runtime.place == WEFT_PLACE_DEVICE,
                             plan->n_gpus, false};
    int rc = weft_trainer_predict(config, &job, &gangs, 0, plan, err);
    if (!rc && gangs)
        weft_info("memory is counted by instruction of a tp group, which is "
                  "more than a run needs; records of tasks are those of "
                  "instructions");
    return rc;
}

/* Says what memory of GPUs is not counted. */
static void tell_unknown(const struct weft_cli_plan_options *o,
                         const struct weft_config *config)
{
    if (config->runtime.devices == WEFT_ON_GPUS && !weft_memory_knows_gpus())
        weft_cli_tell(o, "weft was built without CUDA: what a task on a GPU "
                         "takes beside its tiles is not counted, so a run "
                         "needs more of a GPU's memory");
}

/* Names idle devices. */
static void tell_idle(const struct weft_cli_plan_options *o,
                      const struct weft_plan *plan,
                      const struct weft_plan_needs *needs)
{
    char idle[400];
    if (weft_plan_idle(plan, needs, idle, sizeof idle))
        weft_cli_tell(o, idle);
}

/* Says why training waits for all samples where it was told not to. */
static void tell_order(const struct weft_cli_plan_options *o,
                       const struct weft_config *config,
                       const struct weft_plan *plan,
                       const struct weft_plan_needs *needs)
{
    char why[400];
    if (!weft_run_trains_as_completed(config, needs->flow, plan, why,
                                      sizeof why)
        && why[0])
        weft_cli_tell(o, why);
}

static void list_strategies(void)
{
    const char *name, *what;
    for (int32_t i = 0; (name = weft_strategy_name(i, &what)); i++)
        printf("%-21s %s\n", name, what);
}

/* Says what a plan takes: of many devices by prices, as a recording of all of
 * them takes minutes and gigabytes, unless it is asked for. */
static int count(const struct weft_cli_plan_options *o,
                 const struct weft_cluster *cluster,
                 const struct weft_config *config,
                 const struct weft_plan_needs *needs, struct weft_plan *plan,
                 struct weft_err *err)
{
    if (plan->n_nodes * plan->n_devices <= WEFT_FEW_DEVICES || o->gangs) {
        int rc = predict(o, config, plan, err);
        return rc || !cluster ? rc
                              : weft_cli_tell_shortage(o, cluster, config,
                                                       needs, plan, err);
    }
    if (cluster && !plan->intra_stage_fusion)
        return weft_cli_weigh(o, cluster, config, needs, plan, err);
    weft_cli_tell(o, "its memory is not counted: with --cluster FILE it is "
                     "from prices, where training is not fused, and with "
                     "--gangs by all that a run does, which can take minutes "
                     "and gigabytes");
    return 0;
}

/* Makes or checks the plan, and says what it takes. cluster: NULL: none. */
static int make(const struct weft_cli_plan_options *o,
                const struct weft_cluster *cluster,
                struct weft_config *config, struct weft_plan *out,
                struct weft_err *err)
{
    struct weft_run_needs needs;
    int rc = weft_cli_plan(&o->plan, config, &needs, out, err);
    if (!rc)
        rc = o->batch ? weft_cli_batch(
                 o, config, (double) needs.plan.device_bytes, out, err)
                      : count(o, cluster, config, &needs.plan, out, err);
    if (!rc && o->output)
        rc = weft_plan_write(out, o->output, err);
    if (!rc) {
        tell_idle(o, out, &needs.plan);
        tell_order(o, config, out, &needs.plan);
    }
    return rc;
}

static int show(const struct weft_cli_plan_options *o,
                const struct weft_plan *plan, struct weft_err *err)
{
    int rc = o->svg ? draw(plan, o->svg, err) : 0;
    if (rc)
        return rc;
    return o->graph ? print_graph(&plan->flow, err)
                    : print(plan, o->json, err);
}

static int run(struct weft_cli_plan_options *o, struct weft_config *config,
               struct weft_err *err)
{
    struct weft_cluster cluster;
    struct weft_costs_file costs = {.n_ops = 0};
    struct weft_plan plan = {0};
    const char *measured = weft_cli_costs(NULL, o->cluster, config);
    bool simulates = o->compare || o->search || o->scale;
    if (!o->cluster)
        o->cluster = config->cluster;
    if (simulates && !o->cluster)
        return weft_err_set(err, WEFT_EINVAL,
                            "--compare, --scale and --search need a cluster: "
                            "--cluster FILE, or the key 'cluster'");
    int rc = o->cluster ? weft_cluster_read(o->cluster, &cluster, err) : 0;
    if (!rc && simulates && measured) {
        rc = weft_profile_read(measured, config, &costs, err);
        o->costs = &costs;
    }
    if (!rc && o->cluster)
        weft_cli_use_cluster(&o->plan, &cluster, config);
    if (!rc)
        rc = o->scale            ? weft_cli_scale(o, &cluster, config, err)
           : o->compare          ? weft_cli_compare(o, &cluster, config, err)
           : o->graph && !o->svg ? weft_run_flow(config, &plan.flow, err)
           : o->search
               ? weft_cli_search(o, &cluster, config, &plan, err)
               : make(o, o->cluster ? &cluster : NULL, config, &plan, err);
    if (!rc && (o->search || !o->graph))
        tell_unknown(o, config);
    if (!rc && !o->scale && !o->compare)
        rc = show(o, &plan, err);
    weft_costs_file_release(&costs);
    weft_plan_release(&plan);
    return rc;
}

static int explain(const struct weft_cli_plan_options *o,
                   struct weft_err *err)
{
    struct weft_plan plan = {0};
    int rc = weft_plan_read(o->explain, NULL, &plan, err);
    if (!rc)
        rc = show(o, &plan, err);
    weft_plan_release(&plan);
    return rc;
}

static int read_and_run(struct weft_cli_plan_options *o, int n_words,
                        char **word, struct weft_err *err)
{
    struct weft_config config;
    if (o->explain)
        return explain(o, err);
    int rc = weft_run_config_read(
        word[0], n_words - 1, (const char *const *) word + 1, &config, err);
    if (rc)
        return rc;
    rc = run(o, &config, err);
    weft_config_release(&config);
    return rc;
}

static bool wants_stop(void *ctx)
{
    (void) ctx;
    return weft_cli_stop != 0;
}

/* Rank 0 does what one process does, and the others help it to search. */
static int run_on_ranks(struct weft_cli_plan_options *o, int n_words,
                        char **word, struct weft_err *err)
{
    bool searches = o->search || (o->compare && !o->no_search);
    if (weft_world_size() > 1 && !searches)
        return weft_err_set(err, WEFT_EUNSUPPORTED,
                            "only a search (--search, --compare) is for "
                            "several ranks; start it without mpirun or srun");
    if (weft_world_rank() > 0)
        weft_cli_catch_stop(NULL);
    /* before rank 0 says that a signal ends it, which all may get */
    int rc = weft_world_agree(0, err);
    if (weft_world_rank() == 0) {
        rc = read_and_run(o, n_words, word, err);
        weft_spread_end();
    } else {
        weft_spread_serve(wants_stop, NULL);
    }
    return weft_world_agree(rc, err);
}

/* Whether there is a method of the search with that name; NULL: all. */
static bool method_of(const char *name, enum weft_search_method *out)
{
    int m = WEFT_SEARCH_ALL;
    while (
        name && m < WEFT_N_SEARCH_METHODS
        && strcmp(name, weft_search_method_name((enum weft_search_method) m))
               != 0)
        m++;
    *out = (enum weft_search_method) m;
    return m < WEFT_N_SEARCH_METHODS;
}

/* Says which options do not go together, or NULL. */
static const char *misuse(struct weft_cli_plan_options *o, bool config)
{
    bool makes = o->plan.from || o->output;
    if (o->explain
        && (config || makes || o->plan.check || o->plan.nodes
            || o->plan.devices || o->plan.gpus || o->graph || o->svg
            || o->gangs || o->cluster || o->compare || o->lengths || o->scale
            || o->search || o->batch))
        return "--explain takes a plan alone, no configuration and no "
               "option but --json";
    if (!o->explain && !config)
        return "give a configuration file";
    if (o->graph && o->json)
        return "--graph has no JSON";
    if (o->graph && !o->svg
        && (makes || o->plan.check || o->plan.nodes || o->plan.devices
            || o->plan.gpus || o->gangs))
        return "--graph makes no plan, but with --svg";
    if (o->plan.check && makes)
        return "--check makes no plan: leave out --from and --output";
    if (o->search && !o->compare
        && (o->graph || o->plan.from || o->plan.check))
        return "--search makes the plan: leave out --from, --check and "
               "--graph";
    if (!o->search
        && (o->seed >= 0 || o->evaluations >= 0 || o->branches >= 0
            || o->time_limit > 0 || o->recording > 0 || o->restarts > 0
            || o->threads > 0 || o->method))
        return "--method, --threads, --seed, --evaluations, --restarts, "
               "--branches, --time-limit and --recording are for --search";
    if (!method_of(o->method, &o->which))
        return "'--method' must be all, greedy, anneal, branches or "
               "exhaustive";
    if (o->no_search && (o->search || !o->compare))
        return "--no-search is for --compare, without --search";
    int32_t first, last;
    if (o->scale && !weft_cli_scale_sizes(o->scale, &first, &last))
        return "--scale takes two numbers of devices, at most 1024, like "
               "8..64";
    if (o->scale
        && (o->compare || o->search || o->graph || makes || o->plan.check
            || o->plan.nodes || o->plan.devices || o->plan.gpus || o->json))
        return "--scale prints a table of its own for all placements: leave "
               "out other results, --from and numbers of devices";
    if (o->batch && strcmp(o->batch, "max") != 0)
        return "--batch takes 'max'; other batches are keys: "
               "rollout.prompts, train.batch";
    if (o->batch
        && ((o->search && !o->compare) || o->scale || (o->graph && !o->svg)))
        return "--batch is for one plan, or with --compare";
    if (o->lengths && !o->compare && !o->search && !o->scale)
        return "--lengths is for --compare, --scale and --search; memory is "
               "for the longest";
    if (o->compare && (o->graph || o->output))
        return "--compare writes no plan and prints no graph";
    return weft_cli_plan_misuse(&o->plan);
}

int weft_cmd_plan(int argc, char **argv)
{
    struct weft_cli_plan_options o = {
        .seed = -1, .evaluations = -1, .branches = -1};
    const struct weft_cli_option table[] = {
        {0, "from", WEFT_CLI_STRING, &o.plan.from, 0, 0},
        {0, "nodes", WEFT_CLI_INT, &o.plan.nodes, 1, WEFT_MAX_NODES},
        {0, "devices", WEFT_CLI_INT, &o.plan.devices, 1, WEFT_MAX_DEVICES},
        {0, "gpus", WEFT_CLI_INT, &o.plan.gpus, 1, WEFT_MAX_DEVICES},
        {'o', "output", WEFT_CLI_OUTPUT, &o.output, 0, 0},
        {0, "check", WEFT_CLI_STRING, &o.plan.check, 0, 0},
        {0, "explain", WEFT_CLI_STRING, &o.explain, 0, 0},
        {0, "gangs", WEFT_CLI_FLAG, &o.gangs, 0, 0},
        {0, "cluster", WEFT_CLI_STRING, &o.cluster, 0, 0},
        {0, "compare", WEFT_CLI_FLAG, &o.compare, 0, 0},
        {0, "lengths", WEFT_CLI_STRING, &o.lengths, 0, 0},
        {0, "scale", WEFT_CLI_STRING, &o.scale, 0, 0},
        {0, "batch", WEFT_CLI_STRING, &o.batch, 0, 0},
        {0, "search", WEFT_CLI_FLAG, &o.search, 0, 0},
        {0, "no-search", WEFT_CLI_FLAG, &o.no_search, 0, 0},
        {0, "seed", WEFT_CLI_INT, &o.seed, 0, INT32_MAX},
        {0, "evaluations", WEFT_CLI_INT, &o.evaluations, 0, INT32_MAX},
        {0, "branches", WEFT_CLI_INT, &o.branches, 0, INT32_MAX},
        {0, "time-limit", WEFT_CLI_INT, &o.time_limit, 1, INT32_MAX},
        {0, "recording", WEFT_CLI_INT, &o.recording, 1, INT32_MAX},
        {0, "restarts", WEFT_CLI_INT, &o.restarts, 1, 10000},
        {0, "threads", WEFT_CLI_INT, &o.threads, 1, 4096},
        {0, "method", WEFT_CLI_STRING, &o.method, 0, 0},
        {0, "graph", WEFT_CLI_FLAG, &o.graph, 0, 0},
        {0, "svg", WEFT_CLI_OUTPUT, &o.svg, 0, 0},
        {0, "json", WEFT_CLI_FLAG, &o.json, 0, 0},
    };
    int first, status;
    if (!weft_cli_parse(argc, argv, weft_help_plan, table, WEFT_COUNT(table),
                        0, -1, &first, &status))
        return status;
    if (o.plan.from && strcmp(o.plan.from, "list") == 0) {
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
    int rc = weft_world_open(&err);
    if (rc)
        return weft_cli_fail("plan", &err);
    rc = run_on_ranks(&o, argc - first, argv + first, &err);
    if (rc)
        status = weft_world_rank() == 0 ? weft_cli_fail("plan", &err)
                                        : WEFT_EXIT_FAILED;
    else
        status = weft_cli_finish("plan");
    weft_world_close();
    return status;
}
