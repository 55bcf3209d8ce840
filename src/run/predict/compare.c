/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/compare.h"

#include <stdio.h>
#include <string.h>

#include "base/svg.h"
#include "plan/strategy.h"

/* ---- Simulating --------------------------------------------------------- */

static int simulate(const struct weft_config *config, struct weft_plan *plan,
                    const struct weft_simulate_options *options,
                    struct weft_compared *row, struct weft_err *err)
{
    struct weft_g_job job = {plan->n_nodes, plan->n_devices,
                             config->runtime.place == WEFT_PLACE_DEVICE,
                             plan->n_gpus};
    struct weft_simulate_options one = *options;
    one.svg = one.trace = NULL;
    one.simulated = &row->simulated;
    int rc = weft_run_simulate(config, &job, plan, &one, NULL, err);
    row->fits = !rc && row->simulated.fullest <= 1;
    return rc;
}

/* A plan that cannot be had is no error. */
static int refuse(struct weft_compared *row, struct weft_err *err)
{
    if (err->code == WEFT_ENOMEM)
        return err->code;
    snprintf(row->why, sizeof row->why, "%s", err->text);
    *err = (struct weft_err){0};
    return 0;
}

static int add_strategy(const struct weft_config *config,
                        const struct weft_plan_needs *needs,
                        const struct weft_simulate_options *options,
                        struct weft_compared *row, struct weft_err *err)
{
    struct weft_plan plan = {0};
    int rc = weft_plan_strategy(row->name, needs, &plan, err);
    if (!rc)
        rc = weft_plan_check(&plan, needs, err);
    if (!rc)
        rc = simulate(config, &plan, options, row, err);
    weft_plan_release(&plan);
    return rc ? refuse(row, err) : 0;
}

int weft_run_compare(const struct weft_config *config,
                     const struct weft_plan_needs *needs,
                     const struct weft_plan *own,
                     const struct weft_simulate_options *options,
                     void (*progress)(int32_t done, int32_t of),
                     struct weft_comparison *out, struct weft_err *err)
{
    struct weft_plan plan = *own;
    const char *name = "this plan";
    int rc = 0;
    *out = (struct weft_comparison){.best = -1};
    for (; name; name = weft_strategy_name(out->n - 1, NULL))
        out->row[out->n++].name = name;
    weft_assert(out->n <= (int32_t) WEFT_COUNT(out->row));
    for (int32_t i = 0; i < out->n && !rc; i++) {
        struct weft_compared *row = &out->row[i];
        if (i > 0)
            rc = add_strategy(config, needs, options, row, err);
        else if (simulate(config, &plan, options, row, err) != 0)
            rc = refuse(row, err);
        if (row->fits
            && (out->best < 0
                || row->simulated.iteration_s
                       < out->row[out->best].simulated.iteration_s))
            out->best = i;
        if (progress)
            progress(i + 1, out->n);
    }
    return rc;
}

/* ---- Showing ------------------------------------------------------------ */

static bool ran(const struct weft_compared *row)
{
    return row->simulated.iteration_s > 0;
}

static double ratio(const struct weft_comparison *c, int32_t i)
{
    double s = c->row[i].simulated.iteration_s;
    return c->best < 0 ? 0 : s / c->row[c->best].simulated.iteration_s;
}

int weft_compare_text(const struct weft_comparison *c,
                      const struct weft_dataflow *flow,
                      struct weft_string *out, struct weft_err *err)
{
    weft_string_addf(out, "%-21s %11s %6s %10s", "placement", "s/iteration",
                     "ratio", "GiB/device");
    for (int32_t k = 1; k < flow->n_calls; k++)
        if (weft_flow_placed(flow, k))
            weft_string_addf(out, "  %s", flow->call[k].name);
    weft_string_add(out, "\n");
    for (int32_t i = 0; i < c->n; i++) {
        const struct weft_compared *row = &c->row[i];
        if (!ran(row))
            continue;
        weft_string_addf(out, "%-21s %11.4f %6.2f %10.2f", row->name,
                         row->simulated.iteration_s, ratio(c, i),
                         row->simulated.device_bytes / 0x1p30);
        for (int32_t k = 1; k < flow->n_calls; k++)
            if (weft_flow_placed(flow, k))
                weft_string_addf(out, "  %*.4f",
                                 (int) strlen(flow->call[k].name),
                                 row->simulated.call_s[k]);
        weft_string_addf(out, "%s\n",
                         row->fits ? "" : "  does not fit the memory");
    }
    for (int32_t i = 0; i < c->n; i++)
        if (!ran(&c->row[i]))
            weft_string_addf(out, "%-21s refused: %s\n", c->row[i].name,
                             c->row[i].why);
    return weft_string_check(out, "a comparison", err);
}

int weft_compare_json(const struct weft_comparison *c,
                      const struct weft_dataflow *flow,
                      struct weft_string *out, struct weft_err *err)
{
    weft_string_add(out, "[");
    for (int32_t i = 0; i < c->n; i++) {
        const struct weft_compared *row = &c->row[i];
        weft_string_addf(out, "%s\n {\"placement\": \"%s\", ", i ? "," : "",
                         row->name);
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
        weft_string_addf(out, ", \"fits\": %s, \"calls_s\": {",
                         row->fits ? "true" : "false");
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

int weft_compare_svg(const struct weft_comparison *c, struct weft_string *out,
                     struct weft_err *err)
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
                     LEFT + WIDTH + 220, 2 * TOP + ROW * (int) c->n);
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
            weft_string_addf(out, "%.4g s, %.2f%s",
                             row->simulated.iteration_s, ratio(c, i),
                             row->fits ? "" : ", does not fit the memory");
        weft_string_add(out, "</text>\n");
    }
    weft_string_add(out, "</svg>\n");
    return weft_string_check(out, "a picture", err);
}
