/* SPDX-License-Identifier: Apache-2.0 */
/* weft plan: who computes what where. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "job/as_completed.h"
#include "job/profile.h"
#include "job/run_config.h"
#include "plan/strategy.h"
#include "run/predict/compare.h"
#include "run/predict/options.h"
#include "run/predict/scale.h"
#include "run/trainer.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/planned.h"

WEFT_COMMAND(plan);

const char weft_help_plan[] =
    "usage: weft plan [options] CONFIG.yaml [key=value ...]\n"
    "       weft plan --explain PLAN.json\n"
    "\n"
    "Makes the execution plan of a run: devices and layout of each model\n"
    "function call. Prints it as a table. Any plan gives the same numbers; "
    "a\n"
    "run takes it with plan: PLAN.json. Without --from it is the\n"
    "configuration's 'layout' or, where there is none, data parallel;\n"
    "--search finds the fastest there is, as simulated.\n"
    "\n"
    "options:\n"
    "      --from layout=TEXT  one layout for all calls: dp2tp2pp1, then\n"
    "                          ,zero=1 ,micro_batches=4 ,recompute ,offload\n"
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
    "which is\n"
    "                          no bound: up to 3 % less in all, 22 % of "
    "samples;\n"
    "                          always above 64 devices\n"
    "      --cluster FILE      make it for all of a cluster (doc/costs.md)\n"
    "      --compare           simulate all placements there; --svg draws "
    "it\n"
    "      --batch max         the largest batch that fits; with --compare "
    "each's\n"
    "      --scale A..B        the same on A, 2 A, ... B devices of that "
    "kind\n"
    "      --search            find the plan with the shortest iterations "
    "there\n"
    "      --seed N, --evaluations N, --branches N, --time-limit S  of the "
    "search;\n"
    "                          default: 1, 400 and 20000 thousand, none\n"
    "      --lengths WHAT      of responses, for both: see weft simulate\n"
    "      --graph             print the algorithm's dataflow graph\n"
    "      --svg FILE          draw the graph with the devices of each call\n"
    "      --json              print JSON instead of the table\n"
    "      --help              this text\n"
    "\n"
    "example:\n"
    "  weft plan examples/quickstart/ppo.yaml --from layout=dp2tp2 --devices "
    "4\n"
    "  weft plan examples/quickstart/ppo.yaml --compare \\\n"
    "      --cluster examples/clusters/cpu_2cores.yaml\n";

struct options {
    struct weft_cli_planned plan;
    const char *output, *explain, *svg, *cluster, *lengths, *scale, *batch;
    const struct weft_costs_file *costs; /* of the cluster; NULL: none */
    bool json, graph, gangs, compare, search;
    /* of the search, the last two in thousands; -1: not given */
    int32_t seed, evaluations, branches;
    int32_t time_limit; /* seconds; 0: not given */
};

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

/* Whether memory is counted by instructions of tp groups. */
static bool by_gangs(const struct options *o, const struct weft_plan *plan)
{
    return o->gangs || plan->n_nodes * plan->n_devices > WEFT_FEW_DEVICES;
}

/* Predicts what a run of the plan takes, and says so where it is no bound. */
static int predict(const struct options *o, const struct weft_config *config,
                   struct weft_plan *plan, struct weft_err *err)
{
    bool gangs = by_gangs(o, plan);
    struct weft_g_job job = {plan->n_nodes, plan->n_devices,
                             config->runtime.place == WEFT_PLACE_DEVICE,
                             plan->n_gpus};
    int rc = weft_trainer_predict(config, &job, gangs, plan, err);
    if (!rc && gangs)
        weft_info("memory is counted by instruction of a tp group, which is "
                  "more than a run needs; records of tasks are those of "
                  "instructions");
    return rc;
}

/* Prints a line of its own beside the table. */
static void tell(const struct options *o, const char *what)
{
    if (o->json)
        weft_warn("%s", what);
    else
        printf("%s\n\n", what);
}

/* Names idle devices. */
static void tell_idle(const struct options *o, const struct weft_plan *plan,
                      const struct weft_plan_needs *needs)
{
    char idle[400];
    if (weft_plan_idle(plan, needs, idle, sizeof idle))
        tell(o, idle);
}

/* Says why training waits for all samples where it was told not to. */
static void tell_order(const struct options *o,
                       const struct weft_config *config,
                       const struct weft_plan *plan,
                       const struct weft_plan_needs *needs)
{
    char why[400];
    if (!weft_run_trains_as_completed(config, needs->flow, plan, why,
                                      sizeof why)
        && why[0])
        tell(o, why);
}

static void list_strategies(void)
{
    const char *name, *what;
    for (int32_t i = 0; (name = weft_strategy_name(i, &what)); i++)
        printf("%-21s %s\n", name, what);
}

/* Tells somebody who watches a line now and then, where it takes long. */
static void tell_progress(int32_t done, int32_t of)
{
    static double told_s;
    double now_s = weft_clock_s();
    if (told_s <= 0)
        told_s = now_s;
    if (now_s < told_s + 2 || !isatty(STDERR_FILENO))
        return;
    told_s = now_s;
    weft_info("%d of %d simulated", (int) done, (int) of);
}

static int print_comparison(const struct options *o,
                            const struct weft_comparison *c,
                            const struct weft_dataflow *flow,
                            struct weft_err *err)
{
    struct weft_string text = {0}, picture = {0};
    int rc = o->json ? weft_compare_json(c, flow, &text, err)
                     : weft_compare_text(c, flow, &text, err);
    if (!rc && o->svg)
        rc = weft_compare_svg(c, &picture, err);
    if (!rc && o->svg)
        rc = weft_file_write(o->svg, picture.data, picture.n, err);
    if (!rc)
        fputs(text.data, stdout);
    weft_string_release(&text);
    weft_string_release(&picture);
    return rc;
}

/* Simulations of the run on the cluster. */
static struct weft_simulate_options simulations(
    const struct options *o, const struct weft_cluster *cluster,
    const struct weft_lengths *lengths, const struct weft_plan_needs *needs)
{
    return (struct weft_simulate_options){
        .cluster = cluster,
        .costs = o->costs,
        .lengths = lengths,
        .iterations = 3,
        .gangs = o->gangs
              || needs->n_nodes * needs->n_devices > WEFT_FEW_DEVICES};
}

static void tell_found(const struct options *o, const struct weft_found *f,
                       double has)
{
    const struct weft_search_result *r = &f->result;
    double gap = 1 - r->bound / r->value.period;
    char text[600], less[100] = "";
    if (f->bytes < has)
        snprintf(
            less, sizeof less,
            " with %.4g GiB of a device, so that any order of tasks fits",
            f->bytes / 0x1p30);
    snprintf(text, sizeof text,
             "%.4g s an iteration within the model, %.4g s simulated as a "
             "whole, the best of %d finalists; the model's best takes %.4g "
             "s%s, %s (gap %.2g %%): %lld options, of which %lld are needed, "
             "of %lld layouts, %lld evaluations%s",
             r->finalist[f->taken].value.period, f->simulated.iteration_s,
             (int) f->finalists, r->value.period, f->excess <= 0 ? less : "",
             gap <= 2 * WEFT_SEARCH_NEAR ? "proven" : "not proven", 100 * gap,
             (long long) f->options, (long long) f->needed,
             (long long) f->priced, (long long) r->evaluations,
             f->stopped ? "; stopped before the end" : "");
    if (o->json)
        weft_info("%s", text);
    else
        printf("%s\n\n", text);
}

/* A simulation is one order of tasks; in another a run may need more. */
static void tell_memory(const struct options *o, const struct weft_found *f,
                        double has)
{
    char text[200];
    if (f->excess <= 0)
        return;
    snprintf(text, sizeof text,
             "it may not fit: a run can take %.3g GiB of a device, which has "
             "%.3g",
             (has + f->excess) / 0x1p30, has / 0x1p30);
    if (o->json)
        weft_warn("%s", text);
    else
        printf("%s\n\n", text);
}

/* Time that a search has: three quarters of it before plans are simulated as a
 * whole. */
struct limit {
    double searched_s, end_s; /* INFINITY: none */
};

static bool search_is_over(void *ctx)
{
    const struct limit *limit = ctx;
    return weft_cli_stop || weft_clock_s() > limit->searched_s;
}

static bool time_is_over(void *ctx)
{
    const struct limit *limit = ctx;
    return weft_cli_stop || weft_clock_s() > limit->end_s;
}

static struct limit limit_of(const struct options *o)
{
    double now_s = weft_clock_s();
    if (o->time_limit == 0)
        return (struct limit){INFINITY, INFINITY};
    return (struct limit){now_s + 0.75 * o->time_limit,
                          now_s + o->time_limit};
}

static int64_t given(int32_t value, int32_t otherwise)
{
    return value < 0 ? otherwise : value;
}

static int search(const struct options *o, const struct weft_cluster *cluster,
                  struct weft_config *config, struct weft_plan *out,
                  struct weft_err *err)
{
    struct weft_run_needs needs;
    struct weft_found found;
    struct weft_lengths lengths = {.n = 0};
    bool own_places = config->runtime.place == WEFT_PLACE_DEVICE;
    int rc = weft_lengths_read(o->lengths ? o->lengths : "max", &lengths,
                               err);
    if (!rc) /* for its needs */
        rc = weft_cli_plan(&o->plan, config, &needs, out, err);
    if (!rc) {
        struct weft_simulate_options s = simulations(o, cluster, &lengths,
                                                     &needs.plan);
        struct limit limit = limit_of(o);
        own_places = own_places || needs.plan.n_gpus > 0;
        s.gangs = s.gangs || own_places;
        struct weft_find find = {
            .simulate = &s,
            .finalists = WEFT_SEARCH_FINALISTS,
            .gangs = o->gangs,
            .stop = time_is_over,
            .how = {.seed = (uint64_t) given(o->seed, 1),
                    .evaluations = 1000 * given(o->evaluations, 400),
                    .branches = 1000 * given(o->branches, 20000),
                    .stop = search_is_over,
                    .ctx = &limit},
            .progress = tell_progress};
        weft_plan_release(out);
        weft_cli_catch_stop("\nweft: the best plan so far follows; again "
                            "to end at once\n");
        rc = weft_run_find(config, &needs.plan, &find, out, &found, err);
    }
    weft_lengths_release(&lengths);
    if (!rc && o->output)
        rc = weft_plan_write(out, o->output, err);
    if (!rc) {
        double has = weft_cluster_device_bytes(cluster);
        tell_found(o, &found, has);
        tell_memory(o, &found, has);
    }
    return rc;
}

/* Simulates all placements; needs are those of the run. */
static int compare_all(const struct options *o,
                       const struct weft_cluster *cluster,
                       struct weft_config *config,
                       struct weft_run_needs *needs,
                       struct weft_comparison *out, struct weft_err *err)
{
    struct weft_plan plan = {0};
    struct weft_lengths lengths = {.n = 0};
    int rc = weft_lengths_read(o->lengths ? o->lengths : "max", &lengths,
                               err);
    if (!rc)
        rc = weft_cli_plan(&o->plan, config, needs, &plan, err);
    if (!rc) {
        struct weft_simulate_options s = simulations(o, cluster, &lengths,
                                                     &needs->plan);
        rc = weft_run_compare(config, &needs->plan, &plan, &s,
                              o->batch ? weft_cluster_device_bytes(cluster)
                                       : 0,
                              tell_progress, out, err);
    }
    weft_lengths_release(&lengths);
    weft_plan_release(&plan);
    return rc;
}

static int compare(const struct options *o,
                   const struct weft_cluster *cluster,
                   struct weft_config *config, struct weft_err *err)
{
    struct weft_run_needs needs;
    struct weft_comparison c;
    int rc = compare_all(o, cluster, config, &needs, &c, err);
    return rc ? rc : print_comparison(o, &c, &needs.flow, err);
}

/* Reads "8..1024". */
static bool read_sizes(const char *text, int32_t *first, int32_t *last)
{
    int n = 0;
    return sscanf(text, "%" SCNd32 "..%" SCNd32 "%n", first, last, &n) == 2
        && !text[n] && *first >= 1 && *first <= *last
        && *last <= WEFT_MAX_NODES;
}

/* The cluster with so many devices, of its only kind, and as the options have
 * them. */
static int resize(const struct weft_cluster *cluster,
                  const struct weft_config *config, int32_t n,
                  struct weft_cluster *out, struct weft_cli_planned *plan,
                  struct weft_err *err)
{
    int32_t each = cluster->kind[0].n_devices;
    *out = *cluster;
    if (cluster->n_kinds > 1)
        return weft_err_set(err, WEFT_EINVAL,
                            "--scale is for clusters of one kind of node; "
                            "'%s' has %d",
                            cluster->name, (int) cluster->n_kinds);
    if (n > each && n % each != 0)
        return weft_err_set(err, WEFT_EINVAL,
                            "--scale: %d devices are not whole nodes, which "
                            "have %d in '%s'",
                            (int) n, (int) each, cluster->name);
    out->n_nodes = out->kind[0].n_nodes = n > each ? n / each : 1;
    plan->nodes = out->n_nodes;
    *(config->runtime.devices == WEFT_ON_GPUS
          ? &plan->gpus
          : &plan->devices) = n > each ? each : n;
    return 0;
}

/* All placements on 1, 2, 4, ... times the first number of devices. */
static int scale(const struct options *o, const struct weft_cluster *cluster,
                 struct weft_config *config, struct weft_err *err)
{
    struct weft_scale all = {.n_samples = weft_run_samples(config)};
    struct weft_string text = {0};
    int32_t first = 0, last = 0;
    int rc = 0;
    weft_assert(read_sizes(o->scale, &first, &last));
    for (int32_t n = first; n <= last && !rc; n *= 2) {
        struct weft_cluster sized;
        struct weft_comparison c;
        struct weft_run_needs needs;
        struct options one = *o;
        rc = resize(cluster, config, n, &sized, &one.plan, err);
        if (!rc)
            rc = compare_all(&one, &sized, config, &needs, &c, err);
        if (!rc)
            all.row[all.n++] = (struct weft_scaled){
                n, c.best < 0 ? (struct weft_compared){.name = NULL}
                              : c.row[c.best]};
    }
    if (!rc)
        rc = weft_scale_text(&all, &text, err);
    if (!rc)
        fputs(text.data, stdout);
    weft_string_release(&text);
    return rc;
}

/* The largest batch of the plan; memory is that batch's then. */
static int find_batch(const struct options *o,
                      const struct weft_config *config, double device_bytes,
                      struct weft_plan *plan, struct weft_err *err)
{
    struct weft_largest_batch batch;
    struct weft_string text = {0};
    if (!(device_bytes > 0))
        return weft_err_set(err, WEFT_EINVAL,
                            "--batch needs to know what memory a device has: "
                            "--cluster FILE, the key 'cluster' or "
                            "'runtime.gpu_memory_gib'");
    int rc = weft_run_largest_batch(config, device_bytes, by_gangs(o, plan),
                                    plan, &batch, err);
    if (!rc)
        rc = weft_batch_text(&batch, device_bytes, &text, err);
    if (!rc && o->json)
        weft_info("%.*s", (int) text.n - 1, text.data);
    else if (!rc)
        printf("%s\n", text.data);
    weft_string_release(&text);
    return rc;
}

/* Makes or checks the plan, and predicts its memory. */
static int make(const struct options *o, struct weft_config *config,
                struct weft_plan *out, struct weft_err *err)
{
    struct weft_run_needs needs;
    int rc = weft_cli_plan(&o->plan, config, &needs, out, err);
    if (!rc)
        rc = o->batch ? find_batch(o, config,
                                   (double) needs.plan.device_bytes, out, err)
                      : predict(o, config, out, err);
    if (!rc && o->output)
        rc = weft_plan_write(out, o->output, err);
    if (!rc) {
        tell_idle(o, out, &needs.plan);
        tell_order(o, config, out, &needs.plan);
    }
    return rc;
}

static int show(const struct options *o, const struct weft_plan *plan,
                struct weft_err *err)
{
    int rc = o->svg ? draw(plan, o->svg, err) : 0;
    if (rc)
        return rc;
    return o->graph ? print_graph(&plan->flow, err)
                    : print(plan, o->json, err);
}

static int run(struct options *o, struct weft_config *config,
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
        rc = o->scale            ? scale(o, &cluster, config, err)
           : o->compare          ? compare(o, &cluster, config, err)
           : o->graph && !o->svg ? weft_run_flow(config, &plan.flow, err)
           : o->search           ? search(o, &cluster, config, &plan, err)
                                 : make(o, config, &plan, err);
    if (!rc && !o->scale && !o->compare)
        rc = show(o, &plan, err);
    weft_costs_file_release(&costs);
    weft_plan_release(&plan);
    return rc;
}

static int explain(const struct options *o, struct weft_err *err)
{
    struct weft_plan plan = {0};
    int rc = weft_plan_read(o->explain, NULL, &plan, err);
    if (!rc)
        rc = show(o, &plan, err);
    weft_plan_release(&plan);
    return rc;
}

/* Says which options do not go together, or NULL. */
static const char *misuse(const struct options *o, bool config)
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
    if (o->search
        && (o->compare || o->graph || o->plan.from || o->plan.check))
        return "--search makes the plan: leave out --from, --check, "
               "--compare "
               "and --graph";
    if (!o->search
        && (o->seed >= 0 || o->evaluations >= 0 || o->branches >= 0
            || o->time_limit > 0))
        return "--seed, --evaluations, --branches and --time-limit are for "
               "--search";
    int32_t first, last;
    if (o->scale && !read_sizes(o->scale, &first, &last))
        return "--scale takes two numbers of devices, at most 1024, like "
               "8..64";
    if (o->scale
        && (o->compare || o->search || o->graph || makes || o->plan.check
            || o->plan.nodes || o->plan.devices || o->plan.gpus || o->svg
            || o->json))
        return "--scale prints a table of its own for all placements: leave "
               "out other results, --from and numbers of devices";
    if (o->batch && strcmp(o->batch, "max") != 0)
        return "--batch takes 'max'; other batches are keys: "
               "rollout.prompts, train.batch";
    if (o->batch && (o->search || o->scale || (o->graph && !o->svg)))
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
    struct options o = {.seed = -1, .evaluations = -1, .branches = -1};
    const struct weft_cli_option table[] = {
        {0, "from", WEFT_CLI_STRING, &o.plan.from, 0, 0},
        {0, "nodes", WEFT_CLI_INT, &o.plan.nodes, 1, WEFT_MAX_NODES},
        {0, "devices", WEFT_CLI_INT, &o.plan.devices, 1,
         WEFT_MAX_NODE_DEVICES},
        {0, "gpus", WEFT_CLI_INT, &o.plan.gpus, 1, WEFT_MAX_NODE_DEVICES},
        {'o', "output", WEFT_CLI_STRING, &o.output, 0, 0},
        {0, "check", WEFT_CLI_STRING, &o.plan.check, 0, 0},
        {0, "explain", WEFT_CLI_STRING, &o.explain, 0, 0},
        {0, "gangs", WEFT_CLI_FLAG, &o.gangs, 0, 0},
        {0, "cluster", WEFT_CLI_STRING, &o.cluster, 0, 0},
        {0, "compare", WEFT_CLI_FLAG, &o.compare, 0, 0},
        {0, "lengths", WEFT_CLI_STRING, &o.lengths, 0, 0},
        {0, "scale", WEFT_CLI_STRING, &o.scale, 0, 0},
        {0, "batch", WEFT_CLI_STRING, &o.batch, 0, 0},
        {0, "search", WEFT_CLI_FLAG, &o.search, 0, 0},
        {0, "seed", WEFT_CLI_INT, &o.seed, 0, INT32_MAX},
        {0, "evaluations", WEFT_CLI_INT, &o.evaluations, 0, INT32_MAX},
        {0, "branches", WEFT_CLI_INT, &o.branches, 0, INT32_MAX},
        {0, "time-limit", WEFT_CLI_INT, &o.time_limit, 1, INT32_MAX},
        {0, "graph", WEFT_CLI_FLAG, &o.graph, 0, 0},
        {0, "svg", WEFT_CLI_STRING, &o.svg, 0, 0},
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
    struct weft_config config;
    int rc = o.explain
               ? explain(&o, &err)
               : weft_run_config_read(argv[first], argc - first - 1,
                                      (const char *const *) argv + first + 1,
                                      &config, &err);
    if (!rc && !o.explain) {
        rc = run(&o, &config, &err);
        weft_config_release(&config);
    }
    return rc ? weft_cli_fail("plan", &err) : weft_cli_finish("plan");
}
