/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/children.h"
#include "base/svg.h"
#include "base/topology.h"
#include "job/plan_needs.h"
#include "plan/strategy.h"
#include "run/predict/divided.h"
#include "run/predict/limit.h"
#include "run/predict/price.h"
#include "run/predict/shortage.h"
#include "run/predict/weigh.h"

/* ---- Simulating --------------------------------------------------------- */

static struct weft_g_job job_of(const struct weft_config *config,
                                const struct weft_plan *plan)
{
    return (struct weft_g_job){plan->n_nodes, plan->n_devices,
                               config->runtime.place == WEFT_PLACE_DEVICE,
                               plan->n_gpus, false};
}

static int simulate(const struct weft_config *config, struct weft_plan *plan,
                    const struct weft_simulate_options *options,
                    int64_t most_bytes, struct weft_compared *row,
                    struct weft_err *err)
{
    struct weft_g_job job = job_of(config, plan);
    struct weft_simulate_options one = *options;
    one.most_bytes = most_bytes;
    one.svg = one.trace = NULL;
    one.simulated = &row->simulated;
    one.limit = true;
    int rc = weft_run_simulate(config, &job, plan, &one, NULL, err);
    row->fits = !rc && row->simulated.fullest <= 1;
    return rc;
}

/* A plan that cannot be had is no error, nor one whose prices take more memory
 * than they may. */
static int refuse(struct weft_compared *row, bool priced,
                  struct weft_err *err)
{
    if (err->code == WEFT_ENOMEM && !priced)
        return err->code;
    snprintf(row->why, sizeof row->why, "%s", err->text);
    *err = (struct weft_err){0};
    return 0;
}

struct comparing {
    const struct weft_config *config;
    const struct weft_plan_needs *needs;
    const struct weft_plan *own;
    const struct weft_simulate_options *options;
    const struct weft_compare_how *how;
    int32_t n, searched;       /* the row of the search */
    struct weft_compared *row; /* in memory that children share */
};

/* What prices say of a plan. */
static int weigh(const struct comparing *c, const struct weft_config *config,
                 struct weft_plan *plan, struct weft_compared *row,
                 struct weft_err *err)
{
    struct weft_plan_needs needs = *c->needs;
    needs.gradient_groups = config->numerics.gradient_groups;
    int rc = weft_run_weigh(config, &needs, c->options, plan, &row->simulated,
                            err);
    row->fits = !rc && row->simulated.fullest <= 1;
    return rc;
}

/* Of a row's recording; to make and play a larger one takes over half a minute. */
static const int64_t MOST_BYTES = (int64_t) 3 << 30;
/* Memory by prices of what surely does not fit: prices are some 5 % off. */
static const double TOO_FULL = 1.25;

/* What takes too long to simulate has its prices: on many devices what has no
 * memory there, with which no run begins, and anywhere a plan of too many
 * tasks. */
static int value(const struct comparing *c, const struct weft_config *config,
                 struct weft_plan *plan, struct weft_compared *row,
                 struct weft_err *err)
{
    bool fused = plan->intra_stage_fusion; /* that has no price */
    bool many = plan->n_nodes * plan->n_devices > WEFT_FEW_DEVICES;
    bool first = c->how->priced || (many && !fused);
    int rc = first ? weigh(c, config, plan, row, err) : 0;
    row->priced = first && !rc
               && (c->how->priced || row->simulated.fullest > TOO_FULL);
    if (c->how->priced || row->priced || rc == WEFT_ENOMEM)
        return rc;
    int64_t most = c->options->most_bytes ? c->options->most_bytes
                                          : MOST_BYTES;
    rc = simulate(config, plan, c->options, fused ? 0 : most, row, err);
    row->priced = rc == WEFT_ENOMEM && !fused;
    return row->priced ? weigh(c, config, plan, row, err) : rc;
}

/* The plan of the strategy with that row's name, for a configuration. */
static int try_plan(const struct comparing *c,
                    const struct weft_config *config,
                    struct weft_compared *row, struct weft_plan *out,
                    struct weft_err *err)
{
    struct weft_plan_needs needs = *c->needs;
    struct weft_config named = *config;
    int rc = 0;
    snprintf(row->asked, sizeof row->asked, "%s", row->name);
    needs.gradient_groups = config->numerics.gradient_groups;
    named.plan = NULL;
    named.layout = row->asked;
    if (weft_strategy_is_divided(row->name))
        rc = weft_run_divided(config, &needs, c->options, row->asked,
                              sizeof row->asked, err);
    return rc ? rc : weft_run_plan(&named, &needs, out, err);
}

/* The same; where the configuration has fewer gradient groups than the strategy
 * trains replicas, with more of them. */
static int make_plan(const struct comparing *c, struct weft_config *config,
                     struct weft_compared *row, struct weft_plan *out,
                     struct weft_err *err)
{
    int32_t *groups = &config->numerics.gradient_groups, own = *groups;
    int64_t all = (int64_t) c->needs->n_nodes * c->needs->n_devices;
    int64_t most = weft_min64(all, WEFT_MAX_GROUPS);
    int rc = try_plan(c, config, row, out, err);
    const struct weft_err first = *err;
    while (rc == WEFT_EINVAL && 2 * *groups <= most) {
        *groups *= 2;
        rc = try_plan(c, config, row, out, err);
    }
    row->groups = !rc && *groups > own ? *groups : 0;
    *err = rc ? first : (struct weft_err){0};
    return rc;
}

static int search(const struct comparing *c, struct weft_compared *row,
                  struct weft_plan *out, struct weft_err *err)
{
    const struct weft_find *find = c->how->find;
    struct weft_found found;
    int rc = weft_run_find(c->config, c->needs, find, out, &found, err);
    row->cut = rc == WEFT_EINTERRUPTED || found.stopped
            || (find->stop && find->stop(find->how.ctx));
    return rc;
}

/* Row 0 is the configuration's own plan. A search that may take its time is
 * done first, as it takes longest. */
static int do_row(void *ctx, int32_t number, struct weft_err *err)
{
    struct comparing *c = ctx;
    const struct weft_compare_how *how = c->how;
    bool last_first = how->find && !how->find->begin;
    int32_t i = !last_first ? number : number > 0 ? number - 1 : c->n - 1;
    struct weft_compared *row = &c->row[i];
    struct weft_plan plan = {0}, own = *c->own;
    struct weft_config config = *c->config;
    if (how->rows && !(how->rows >> i & 1))
        return 0;
    int rc = i == 0           ? 0
           : i == c->searched ? search(c, row, &plan, err)
                              : make_plan(c, &config, row, &plan, err);
    struct weft_plan *p = i > 0 ? &plan : &own;
    if (!rc)
        rc = value(c, &config, p, row, err);
    if (!rc && how->batch_bytes > 0)
        rc = weft_run_largest_batch(&config, how->batch_bytes,
                                    c->options->gangs, p, &row->batch, err);
    if (i == 0 && own.memory != c->own->memory)
        weft_free(own.memory);
    weft_plan_release(&plan);
    return rc ? refuse(row, how->priced, err) : 0;
}

/* All rows are simulated by instruction if the own plan must be, and on many
 * devices. If it is refused, its row will say why. */
static int choose_detail(const struct comparing *c,
                         struct weft_simulate_options *options,
                         struct weft_err *err)
{
    struct weft_plan own = *c->own;
    struct weft_g_job job = job_of(c->config, &own);
    if (job.n_ranks * job.n_devices > WEFT_FEW_DEVICES)
        options->gangs = true;
    int rc = weft_simulate_by_gangs(c->config, &job, &own, options,
                                    &options->gangs, err);
    if (own.memory != c->own->memory)
        weft_free(own.memory);
    if (rc == WEFT_ENOMEM && options->most_bytes > 0) {
        options->gangs = true;
        rc = 0;
    }
    if (rc != WEFT_ENOMEM)
        *err = (struct weft_err){0};
    return rc == WEFT_ENOMEM ? rc : 0;
}

static int32_t find_best(const struct weft_comparison *c)
{
    int32_t best = -1;
    for (int32_t i = 0; i < c->n; i++)
        if (c->row[i].fits
            && (best < 0
                || c->row[i].simulated.iteration_s
                       < c->row[best].simulated.iteration_s))
            best = i;
    return best;
}

/* As many as there are processors, and memory for so many bytes each. */
static int32_t at_once(int64_t each)
{
    struct weft_topology topology;
    if (weft_topology_read(&topology, NULL))
        return 1;
    int64_t fit = topology.free_bytes / 2 / weft_max64(each, 1);
    return (int32_t) weft_max64(1, weft_min64(fit, topology.n_usable));
}

/* bench/record --simulate: 4 GB for 1,024 devices. */
static int64_t simulation_bytes(const struct weft_plan_needs *needs)
{
    enum { DEVICE_MIB = 4 };
    return (int64_t) needs->n_nodes * needs->n_devices * DEVICE_MIB << 20;
}

int32_t weft_simulate_at_once(const struct weft_plan_needs *needs)
{
    return at_once(simulation_bytes(needs));
}

/* A row's, in which each device may be a replica that copies each layer from
 * all (ZeRO 3). Seen with 80 layers and 64 of them: 9.7 GB. */
static int64_t row_bytes(const struct weft_plan_needs *needs)
{
    enum { COPY_BYTES = 32 << 10 }; /* of all steps */
    int64_t devices = (int64_t) needs->n_nodes * needs->n_devices;
    int64_t layers = 0;
    for (int32_t i = 0; i < needs->flow->n_roles; i++)
        layers = weft_max64(layers, needs->shape[i]->n_layers);
    return weft_min64(simulation_bytes(needs)
                          + devices * devices * layers * COPY_BYTES,
                      MOST_BYTES / 3 * 4);
}

int weft_run_compare(const struct weft_config *config,
                     const struct weft_plan_needs *needs,
                     const struct weft_plan *own,
                     const struct weft_simulate_options *options,
                     const struct weft_compare_how *how,
                     struct weft_comparison *out, struct weft_err *err)
{
    const size_t n = WEFT_COUNT(out->row);
    struct weft_simulate_options detail = *options;
    struct comparing c = {.config = config,
                          .needs = needs,
                          .own = own,
                          .options = &detail,
                          .how = how,
                          .searched = -1,
                          .row = weft_children_alloc(n, sizeof *c.row)};
    const char *name = "this plan";
    *out = (struct weft_comparison){
        .best = -1, .found = -1, .batches = how->batch_bytes > 0};
    if (!c.row)
        return weft_err_nomem(err, "a comparison", n * sizeof *c.row);
    for (; name; name = weft_strategy_name(out->n - 1, NULL))
        c.row[out->n++].name = name;
    if (how->find) {
        c.searched = out->n;
        c.row[out->n++].name = "searched plan";
    }
    c.n = out->n;
    weft_assert(out->n <= (int32_t) n);
    int rc = how->priced ? 0 : choose_detail(&c, &detail, err);
    if (!rc)
        rc = weft_children_run(
            &(struct weft_children){
                .n = out->n,
                .at_once = at_once(how->priced ? WEFT_PRICE_BYTES
                                               : row_bytes(needs)),
                .one = do_row,
                .ctx = &c,
                .progress = how->progress},
            err);
    memcpy(out->row, c.row, sizeof out->row);
    weft_children_free(c.row, n, sizeof *c.row);
    out->best = find_best(out);
    if (out->best < 0 && !rc)
        weft_shortage_text(config, needs, options,
                           !how->find                 ? WEFT_NOT_SEARCHED
                           : out->row[c.searched].cut ? WEFT_SEARCH_STOPPED
                                                      : WEFT_SEARCHED,
                           out->none, sizeof out->none);
    if (how->find && out->row[c.searched].fits)
        out->found = c.searched;
    return rc;
}

/* ---- Showing ------------------------------------------------------------ */

static bool ran(const struct weft_compared *row)
{
    return row->simulated.iteration_s > 0;
}

static double ratio(const struct weft_comparison *c, int32_t i)
{
    int32_t to = c->found >= 0 ? c->found : c->best;
    double s = c->row[i].simulated.iteration_s;
    return to < 0 ? 0 : s / c->row[to].simulated.iteration_s;
}

/* The fastest that fits and is slower than the best; -1: none. */
static int32_t find_next(const struct weft_comparison *c)
{
    struct weft_comparison others = *c;
    for (int32_t i = 0; i < c->n; i++)
        if (c->row[i].simulated.iteration_s
            < c->row[c->best].simulated.iteration_s * (1 + 1e-9))
            others.row[i].fits = false;
    return find_best(&others);
}

static const char *call_name(const struct weft_dataflow *flow, int32_t call)
{
    return call > 0 ? flow->call[call].name : "other";
}

/* What limits a plan: its memory, or a call. */
static void add_limit(const struct weft_compared *row,
                      const struct weft_dataflow *flow,
                      struct weft_string *out)
{
    const struct weft_limit *l = &row->simulated.limit;
    if (row->priced)
        weft_string_addf(out, "%s, by prices of calls",
                         row->fits ? "it has too many tasks to simulate"
                                   : "does not fit the memory");
    else if (row->fits)
        weft_string_addf(out, "%s, %.0f %%: %s", call_name(flow, l->call),
                         100 * l->share, weft_limit_name(l->by));
    else
        weft_string_addf(out, "does not fit the memory: %s %.4g GiB",
                         weft_mem_class_name(l->mem), l->mem_bytes / 0x1p30);
}

/* Says which rows have other gradient groups than the configuration. */
static void add_groups(const struct weft_comparison *c,
                       struct weft_string *out)
{
    for (int32_t groups = 2; groups <= WEFT_MAX_GROUPS; groups *= 2) {
        const char *between = NULL;
        for (int32_t i = 0; i < c->n; i++) {
            if (!ran(&c->row[i]) || c->row[i].groups != groups)
                continue;
            if (!between)
                weft_string_addf(
                    out,
                    "with numerics.gradient_groups=%d, one for each "
                    "replica that trains:",
                    groups);
            weft_string_addf(out, "%s %s", between ? between : "",
                             c->row[i].name);
            between = ",";
        }
        weft_string_add(out, between ? "\n" : "");
    }
}

/* Says what makes the best one faster than the next, or what would fit. */
static void add_reason(const struct weft_comparison *c,
                       const struct weft_dataflow *flow,
                       struct weft_string *out)
{
    int32_t next = c->best < 0 ? -1 : find_next(c);
    if (c->best < 0)
        weft_string_addf(out, "\nnone fits: %s\n", c->none);
    if (next < 0)
        return;
    const struct weft_simulated *a = &c->row[c->best].simulated;
    const struct weft_simulated *b = &c->row[next].simulated;
    weft_string_addf(out,
                     "\n%s is the fastest that fits: %.4g s less than %s",
                     c->row[c->best].name, b->iteration_s - a->iteration_s,
                     c->row[next].name);
    const char *between = ", as ";
    for (int32_t k = 1; k < flow->n_calls; k++) {
        double less = b->call_s[k] - a->call_s[k];
        if (!weft_flow_placed(flow, k) || fabs(less) < 0.01 * b->iteration_s)
            continue;
        weft_string_addf(out, "%s%s takes %.4g s %s", between,
                         flow->call[k].name, fabs(less),
                         less > 0 ? "less" : "more");
        between = ", ";
    }
    weft_string_add(out, "\n");
}

int weft_compare_text(const struct weft_comparison *c,
                      const struct weft_dataflow *flow,
                      struct weft_string *out, struct weft_err *err)
{
    weft_string_addf(out, "%-21s %11s %6s %10s", "placement", "s/iteration",
                     "ratio", "GiB/device");
    weft_string_add(out, c->batches ? "     batch" : "");
    for (int32_t k = 1; k < flow->n_calls; k++)
        if (weft_flow_placed(flow, k))
            weft_string_addf(out, "  %s", flow->call[k].name);
    weft_string_add(out, "  limited by\n");
    for (int32_t i = 0; i < c->n; i++) {
        const struct weft_compared *row = &c->row[i];
        if (!ran(row))
            continue;
        weft_string_addf(out, "%-21s %11.4f ", row->name,
                         row->simulated.iteration_s);
        if (c->best < 0)
            weft_string_add(out, "     -");
        else
            weft_string_addf(out, "%6.2f", ratio(c, i));
        weft_string_addf(out, " %10.2f",
                         row->simulated.device_bytes / 0x1p30);
        if (c->batches)
            weft_string_addf(out, "%10d",
                             row->batch.n ? (int) row->batch.samples : 0);
        for (int32_t k = 1; k < flow->n_calls; k++)
            if (weft_flow_placed(flow, k))
                weft_string_addf(out, "  %*.4f",
                                 (int) strlen(flow->call[k].name),
                                 row->simulated.call_s[k]);
        weft_string_add(out, "  ");
        add_limit(row, flow, out);
        weft_string_add(out, "\n");
    }
    for (int32_t i = 0; i < c->n; i++)
        if (!ran(&c->row[i]))
            weft_string_addf(out, "%-21s refused: %s\n", c->row[i].name,
                             c->row[i].why);
    for (int32_t i = 0; i < c->n; i++)
        if (weft_strategy_is_divided(c->row[i].name) && ran(&c->row[i]))
            weft_string_addf(out, "%s is --from %s\n", c->row[i].name,
                             c->row[i].asked);
    add_groups(c, out);
    if (c->row[c->n - 1].cut && ran(&c->row[c->n - 1]))
        weft_string_add(out, "time was up before the search had done all, so "
                             "that it can find another plan next time: "
                             "--search takes all the time that it needs\n");
    add_reason(c, flow, out);
    return weft_string_check(out, "a comparison", err);
}

static void add_limit_json(const struct weft_compared *row,
                           const struct weft_dataflow *flow,
                           struct weft_string *out)
{
    const struct weft_limit *l = &row->simulated.limit;
    weft_string_addf(out, "\"limited_by\": {\"call\": \"%s\", \"share\": ",
                     call_name(flow, l->call));
    weft_string_add_number(out, l->share);
    weft_string_addf(out, ", \"by\": \"%s\"", weft_limit_name(l->by));
    if (!row->fits) {
        weft_string_addf(out, ", \"memory\": \"%s\", \"bytes\": ",
                         weft_mem_class_name(l->mem));
        weft_string_add_number(out, l->mem_bytes);
    }
    weft_string_add(out, "}, ");
}

int weft_compare_json(const struct weft_comparison *c,
                      const struct weft_dataflow *flow,
                      struct weft_string *out, struct weft_err *err)
{
    weft_string_add(out, "[");
    for (int32_t i = 0; i < c->n; i++) {
        const struct weft_compared *row = &c->row[i];
        weft_string_addf(out, "%s\n {\"placement\": \"%s\", %s", i ? "," : "",
                         row->name, row->cut ? "\"search_cut\": true, " : "");
        if (!ran(row)) {
            weft_string_add(out, "\"refused\": ");
            weft_string_add_json(out, row->why);
            weft_string_add(out, "}");
            continue;
        }
        weft_string_add(out, "\"iteration_s\": ");
        weft_string_add_number(out, row->simulated.iteration_s);
        weft_string_add(out, ", \"device_bytes\": ");
        weft_string_add_number(out, row->simulated.device_bytes);
        weft_string_addf(out, ", \"fits\": %s, ",
                         row->fits ? "true" : "false");
        if (row->priced)
            weft_string_add(out, "\"by_prices\": true, ");
        else
            add_limit_json(row, flow, out);
        if (row->groups)
            weft_string_addf(out, "\"gradient_groups\": %d, ", row->groups);
        if (c->batches)
            weft_string_addf(out, "\"largest_batch\": %d, ",
                             row->batch.n ? (int) row->batch.samples : 0);
        weft_string_add(out, "\"calls_s\": {");
        const char *between = "";
        for (int32_t k = 1; k < flow->n_calls; k++) {
            if (!weft_flow_placed(flow, k))
                continue;
            weft_string_addf(out, "%s\"%s\": ", between, flow->call[k].name);
            weft_string_add_number(out, row->simulated.call_s[k]);
            between = ", ";
        }
        weft_string_add(out, "}}");
    }
    weft_string_add(out, "\n]\n");
    return weft_string_check(out, "a comparison", err);
}

int weft_compare_svg(const struct weft_comparison *c,
                     const struct weft_dataflow *flow,
                     struct weft_string *out, struct weft_err *err)
{
    enum { LEFT = 180, WIDTH = 560, ROW = 24, TOP = 16, TEXT = 17 };
    double most = 0;
    for (int32_t i = 0; i < c->n; i++)
        if (c->row[i].simulated.iteration_s > most)
            most = c->row[i].simulated.iteration_s;
    weft_string_addf(out,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
                     "height=\"%d\" font-family=\"sans-serif\" "
                     "font-size=\"13\">\n<rect width=\"100%%\" "
                     "height=\"100%%\" fill=\"#ffffff\"/>\n",
                     LEFT + WIDTH + 420, 2 * TOP + ROW * (int) c->n);
    for (int32_t i = 0; i < c->n; i++) {
        const struct weft_compared *row = &c->row[i];
        int y = TOP + ROW * (int) i;
        double width = ran(row) ? WIDTH * row->simulated.iteration_s / most
                                : 0;
        enum weft_svg_shade shade = i == c->best ? WEFT_SVG_DARK
                                  : row->fits    ? WEFT_SVG_PLAIN
                                                 : WEFT_SVG_LIGHT;
        weft_string_addf(out,
                         "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s"
                         "</text>\n<rect x=\"%d\" y=\"%d\" width=\"%.1f\" "
                         "height=\"%d\" fill=\"%s\"/>\n",
                         LEFT - 8, y + TEXT, row->name, LEFT, y + 3, width,
                         ROW - 6, weft_svg_colour(0, shade));
        weft_string_addf(out, "<text x=\"%.1f\" y=\"%d\">", LEFT + width + 6,
                         y + TEXT);
        if (!ran(row))
            weft_string_add(out, "refused");
        else
            weft_string_addf(out, "%.4g s, %.2f; ",
                             row->simulated.iteration_s, ratio(c, i));
        if (ran(row))
            add_limit(row, flow, out);
        weft_string_add(out, "</text>\n");
    }
    weft_string_add(out, "</svg>\n");
    return weft_string_check(out, "a picture", err);
}
