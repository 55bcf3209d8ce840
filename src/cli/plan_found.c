/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plan_found.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/threads.h"
#include "cli/cli.h"
#include "cli/plan_told.h"
#include "run/predict/batch.h"
#include "run/predict/compare.h"
#include "run/predict/options.h"
#include "run/predict/scale.h"
#include "run/predict/shortage.h"
#include "run/predict/spread.h"
#include "run/predict/weigh.h"

/* ---- Telling ----------------------------------------------------------- */

/* Whether memory is counted by instructions of tp groups. */
bool weft_cli_by_gangs(const struct weft_cli_plan_options *o,
                       const struct weft_plan *plan)
{
    return o->gangs || plan->n_nodes * plan->n_devices > WEFT_FEW_DEVICES;
}

/* Prints a line of its own beside the table. */
void weft_cli_tell(const struct weft_cli_plan_options *o, const char *what)
{
    if (o->json)
        weft_info("%s", what);
    else
        printf("%s\n\n", what);
}

/* Tells somebody who watches a line now and then, where it takes long. */
static void tell_part(int32_t done, int32_t of, const char *what)
{
    static double told_s;
    double now_s = weft_clock_s();
    if (told_s <= 0)
        told_s = now_s;
    if (now_s < told_s + 2 || !isatty(STDERR_FILENO))
        return;
    told_s = now_s;
    weft_info("%d of %d %s", (int) done, (int) of, what);
}

static void tell_progress(int32_t done, int32_t of)
{
    tell_part(done, of, "simulated");
}

static void tell_search(enum weft_find_stage stage, int32_t done, int32_t of)
{
    if (stage == WEFT_FIND_SEARCHES)
        weft_info("%d layouts priced; the search begins", (int) done);
    else if (stage == WEFT_FIND_PRICES)
        tell_part(done, of, "layouts priced, at most");
    else
        tell_part(done, of, "finalists simulated");
}

static int print_comparison(const struct weft_cli_plan_options *o,
                            const struct weft_comparison *c,
                            const struct weft_dataflow *flow,
                            struct weft_err *err)
{
    struct weft_string text = {0}, picture = {0};
    int rc = o->json ? weft_compare_json(c, flow, &text, err)
                     : weft_compare_text(c, flow, &text, err);
    if (!rc && o->svg)
        rc = weft_compare_svg(c, flow, &picture, err);
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
    const struct weft_cli_plan_options *o, const struct weft_cluster *cluster,
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

int weft_cli_tell_shortage(const struct weft_cli_plan_options *o,
                           const struct weft_cluster *cluster,
                           const struct weft_config *config,
                           const struct weft_plan_needs *needs,
                           const struct weft_plan *plan, struct weft_err *err)
{
    const struct weft_needed m = weft_shortage_needed(
        config, needs, plan, weft_cli_by_gangs(o, plan));
    struct weft_lengths lengths = {.n = 0};
    char takes[200], more[400], text[700];
    if (m.all <= (double) needs->device_bytes)
        return 0;
    int rc = weft_cli_lengths(o->lengths, config, &lengths, err);
    if (rc)
        return rc;
    const struct weft_simulate_options how = simulations(o, cluster, &lengths,
                                                         needs);
    weft_shortage_least(&m, needs, takes, sizeof takes);
    weft_shortage_text(config, needs, &how, WEFT_NOT_SEARCHED, more,
                       sizeof more);
    weft_lengths_release(&lengths);
    snprintf(text, sizeof text, "it does not fit: a run %s; %s", takes, more);
    weft_cli_tell(o, text);
    return 0;
}

int weft_cli_weigh(const struct weft_cli_plan_options *o,
                   const struct weft_cluster *cluster,
                   const struct weft_config *config,
                   const struct weft_plan_needs *needs,
                   struct weft_plan *plan, struct weft_err *err)
{
    struct weft_simulated s;
    struct weft_lengths lengths = {.n = 0};
    char text[300], more[400];
    int rc = weft_cli_lengths(o->lengths, config, &lengths, err);
    if (rc)
        return rc;
    struct weft_simulate_options how = simulations(o, cluster, &lengths,
                                                   needs);
    rc = weft_run_weigh(config, needs, &how, plan, &s, err);
    if (!rc && s.fullest > 1.05)
        weft_shortage_text(config, needs, &how, WEFT_NOT_SEARCHED, more,
                           sizeof more);
    weft_lengths_release(&lengths);
    if (rc)
        return rc;
    double has = (double) needs->device_bytes;
    snprintf(
        text, sizeof text,
        "%s: by prices of its calls, as the search has them, an iteration "
        "takes %.4g s, and the fullest device %.4g of %.4g GiB, give or "
        "take 5 %%",
        s.fullest <= 0.95   ? "it fits"
        : s.fullest <= 1.05 ? "it may not fit"
                            : "it does not fit",
        s.iteration_s, s.device_bytes / 0x1p30, has / 0x1p30);
    weft_cli_tell(o, text);
    if (s.fullest > 1.05)
        weft_cli_tell(o, more);
    return 0;
}

/* ---- A search ---------------------------------------------------------- */

/* Time that a search has: half of it to price layouts, three fifths before
 * plans are simulated as a whole, a tenth to count the plan's memory. */
struct limit {
    double priced_s, searched_s, end_s; /* INFINITY: none */
    double all_s; /* when a search ends that nobody asked for */
};

/* Seconds of a search that nobody asked for, with all that is before it; and
 * with how few of them it is not worth to begin. */
enum { UNASKED_S = 30, FEW_S = 3 };

/* Whether it is time, or somebody has asked any rank to stop. */
static bool is_over(double at_s)
{
    return weft_cli_stop || weft_clock_s() > at_s || weft_spread_stopped();
}

static bool pricing_is_over(void *ctx)
{
    const struct limit *limit = ctx;
    return is_over(limit->priced_s);
}

static bool search_is_over(void *ctx)
{
    const struct limit *limit = ctx;
    return is_over(limit->searched_s);
}

static bool time_is_over(void *ctx)
{
    const struct limit *limit = ctx;
    return is_over(limit->end_s);
}

static void set_limit(struct limit *limit, double now_s, double seconds)
{
    limit->priced_s = now_s + 0.5 * seconds;
    limit->searched_s = now_s + 0.6 * seconds;
    limit->end_s = now_s + 0.9 * seconds;
}

/* What is left of its time is a search's. */
static bool begin_unasked(void *ctx)
{
    struct limit *limit = ctx;
    double now_s = weft_clock_s();
    set_limit(limit, now_s, limit->all_s - now_s);
    return limit->all_s - now_s >= FEW_S;
}

static int64_t given(int32_t value, int32_t otherwise)
{
    return value < 0 ? otherwise : value;
}

/* Simulations of a search, among those of the options: of whole instructions
 * where devices are places. */
static struct weft_simulate_options searches(
    const struct weft_cli_plan_options *o,
    const struct weft_simulate_options *options,
    const struct weft_config *config, const struct weft_plan_needs *needs)
{
    struct weft_simulate_options s = *options;
    s.gangs = s.gangs || needs->n_gpus > 0
           || config->runtime.place == WEFT_PLACE_DEVICE;
    s.most_bytes = (int64_t) o->recording << 20;
    return s;
}

/* The search of the options; borrows both. */
static struct weft_find find_of(const struct weft_cli_plan_options *o,
                                const struct weft_simulate_options *simulate,
                                struct limit *limit)
{
    double now_s = weft_clock_s();
    limit->all_s = now_s + UNASKED_S;
    double seconds = o->time_limit;
    set_limit(limit, now_s, seconds > 0 ? seconds : INFINITY);
    return (struct weft_find){
        .simulate = simulate,
        .begin = o->search ? NULL : begin_unasked,
        .finalists = WEFT_SEARCH_FINALISTS,
        .gangs = o->gangs,
        .stop = time_is_over,
        .stop_pricing = pricing_is_over,
        .how = {.method = o->which,
                .seed = (uint64_t) given(o->seed, 1),
                .n_threads = o->threads > 0 ? o->threads
                                            : weft_threads_usable(),
                .evaluations = 1000 * given(o->evaluations, 400),
                .restarts = o->restarts,
                .branches = 1000 * given(o->branches, 10000),
                .stop = search_is_over,
                .ctx = limit,
                .spread = weft_spread_restarts}};
}

static void catch_stop(void)
{
    weft_cli_catch_stop("\nweft: the best plan so far follows; again to end "
                        "at once\n");
    weft_info("prices layouts of calls; Ctrl-C takes the best plan so far");
}

/* The configuration is one of a run that searches: its layout says what may not
 * change (plan/fixed.h). */
static int ask_search(struct weft_config *config, struct weft_err *err)
{
    weft_free(config->plan);
    config->plan = weft_strdup(WEFT_PLAN_AUTO);
    return config->plan
             ? 0
             : weft_err_nomem(err, "a plan", sizeof WEFT_PLAN_AUTO);
}

int weft_cli_search(const struct weft_cli_plan_options *o,
                    const struct weft_cluster *cluster,
                    struct weft_config *config, struct weft_plan *out,
                    struct weft_err *err)
{
    struct weft_run_needs needs;
    struct weft_found found;
    struct weft_lengths lengths = {.n = 0};
    bool by_gangs = false;
    int rc = ask_search(config, err);
    if (!rc)
        rc = weft_cli_lengths(o->lengths, config, &lengths, err);
    if (!rc) /* for its needs */
        rc = weft_cli_plan(&o->plan, config, &needs, out, err);
    if (!rc) {
        struct weft_simulate_options s = simulations(o, cluster, &lengths,
                                                     &needs.plan);
        struct limit limit;
        s = searches(o, &s, config, &needs.plan);
        by_gangs = s.gangs;
        struct weft_find find = find_of(o, &s, &limit);
        find.progress = tell_search;
        weft_plan_release(out);
        catch_stop();
        rc = weft_run_find(config, &needs.plan, &find, out, &found, err);
    }
    weft_lengths_release(&lengths);
    if (!rc && o->output)
        rc = weft_plan_write(out, o->output, err);
    if (!rc)
        weft_cli_tell_found(o, &found, weft_cluster_device_bytes(cluster),
                            by_gangs, out);
    return rc;
}

/* ---- All placements ---------------------------------------------------- */

/* Simulations of plans that are made for the run, whose needs these are.
 * Release lengths and plan also after an error. */
static int begin_plans(const struct weft_cli_plan_options *o,
                       const struct weft_cluster *cluster,
                       struct weft_config *config,
                       struct weft_run_needs *needs,
                       struct weft_lengths *lengths, struct weft_plan *own,
                       struct weft_simulate_options *out,
                       struct weft_err *err)
{
    *lengths = (struct weft_lengths){.n = 0};
    *own = (struct weft_plan){0};
    int rc = weft_cli_lengths(o->lengths, config, lengths, err);
    if (!rc)
        rc = weft_cli_plan(&o->plan, config, needs, own, err);
    if (!rc)
        *out = simulations(o, cluster, lengths, &needs->plan);
    return rc;
}

/* Simulates all placements, and what a search finds; needs are those of the
 * run. */
static int compare_all(const struct weft_cli_plan_options *o,
                       const struct weft_cluster *cluster,
                       struct weft_config *config,
                       struct weft_run_needs *needs,
                       struct weft_comparison *out, struct weft_err *err)
{
    struct weft_plan plan;
    struct weft_lengths lengths;
    struct weft_simulate_options s;
    int rc = begin_plans(o, cluster, config, needs, &lengths, &plan, &s, err);
    if (!rc) {
        struct weft_simulate_options search = searches(o, &s, config,
                                                       &needs->plan);
        struct limit limit;
        const struct weft_find find = find_of(o, &search, &limit);
        const struct weft_compare_how how = {
            .find = o->no_search ? NULL : &find,
            .batch_bytes = o->batch ? weft_cluster_device_bytes(cluster) : 0,
            .progress = tell_progress};
        if (o->search)
            catch_stop();
        rc = weft_run_compare(config, &needs->plan, &plan, &s, &how, out,
                              err);
    }
    weft_lengths_release(&lengths);
    weft_plan_release(&plan);
    return rc;
}

int weft_cli_compare(const struct weft_cli_plan_options *o,
                     const struct weft_cluster *cluster,
                     struct weft_config *config, struct weft_err *err)
{
    struct weft_run_needs needs;
    struct weft_comparison c;
    int rc = compare_all(o, cluster, config, &needs, &c, err);
    return rc ? rc : print_comparison(o, &c, &needs.flow, err);
}

/* ---- More and more devices --------------------------------------------- */

/* Reads "8..1024". */
bool weft_cli_scale_sizes(const char *text, int32_t *first, int32_t *last)
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

/* The fastest placement on n devices of the cluster's kind. */
static int scale_one(const struct weft_cli_plan_options *o,
                     const struct weft_cluster *cluster,
                     struct weft_config *config, int32_t n,
                     struct weft_scaled *out, struct weft_err *err)
{
    struct weft_cli_plan_options one = *o;
    struct weft_cluster sized;
    struct weft_run_needs needs;
    struct weft_plan plan = {0};
    struct weft_lengths lengths = {.n = 0};
    struct weft_simulate_options s;
    int rc = resize(cluster, config, n, &sized, &one.plan, err);
    if (!rc)
        rc = begin_plans(&one, &sized, config, &needs, &lengths, &plan, &s,
                         err);
    if (!rc)
        rc = weft_run_scale(config, &needs.plan, &plan, &s, tell_progress,
                            out, err);
    weft_lengths_release(&lengths);
    weft_plan_release(&plan);
    return rc;
}

/* All placements on 1, 2, 4, ... times the first number of devices. */
int weft_cli_scale(const struct weft_cli_plan_options *o,
                   const struct weft_cluster *cluster,
                   struct weft_config *config, struct weft_err *err)
{
    struct weft_scale all = {.n_samples = weft_run_samples(config)};
    struct weft_string text = {0}, picture = {0};
    int32_t first = 0, last = 0;
    int rc = 0;
    weft_assert(weft_cli_scale_sizes(o->scale, &first, &last));
    for (int32_t n = first; n <= last && !rc; n *= 2)
        rc = scale_one(o, cluster, config, n, &all.row[all.n++], err);
    if (!rc)
        rc = weft_scale_text(&all, &text, err);
    if (!rc && o->svg)
        rc = weft_scale_svg(&all, &picture, err);
    if (!rc && o->svg)
        rc = weft_file_write(o->svg, picture.data, picture.n, err);
    if (!rc)
        fputs(text.data, stdout);
    weft_string_release(&text);
    weft_string_release(&picture);
    return rc;
}

/* ---- The largest batch ------------------------------------------------- */

/* The largest batch of the plan; memory is that batch's then. */
int weft_cli_batch(const struct weft_cli_plan_options *o,
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
    int rc = weft_run_largest_batch(
        config, device_bytes, weft_cli_by_gangs(o, plan), plan, &batch, err);
    if (!rc)
        rc = weft_batch_text(&batch, device_bytes, &text, err);
    if (!rc && o->json)
        weft_info("%.*s", (int) text.n - 1, text.data);
    else if (!rc)
        printf("%s\n", text.data);
    weft_string_release(&text);
    return rc;
}
