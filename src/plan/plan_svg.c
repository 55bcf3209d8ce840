/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A dataflow graph and its plan as a picture (as ReaL, Figures 1 and 2). Above,
 * a box per call, data from left to right; an edge that follows from others is
 * left out, and broken lines bring the trained weights to the next iteration.
 * Beneath, under each box, the devices of its mesh.
 */
#include <stdio.h>
#include <string.h>

#include "base/string.h"
#include "base/svg.h"
#include "plan/layout.h"

/* Pixels. */
enum {
    LEFT = 70,
    TOP = 40,
    BOX = 168,
    COLUMN = 222,
    BOX_HEIGHT = 50,
    ROW = 66,
    LANE = 14,
    GAP = 36,
    FOOT = 16
};
/* Of a device's row, and of all rows together. */
enum { LEAST_DEVICE = 2, MOST_DEVICE = 18, ALL_DEVICES = 512, DIGIT = 7 };

static const char *const no_role = "#707070";

struct picture {
    FILE *f;
    const struct weft_plan *plan;
    const struct weft_dataflow *flow;
    int32_t column[WEFT_MAX_CALLS], row[WEFT_MAX_CALLS];
    int32_t in_column[WEFT_MAX_CALLS]; /* calls of a column ... */
    int32_t placed[WEFT_MAX_CALLS];    /* ... with devices */
    int32_t n_columns, n_rows;
    bool before[WEFT_MAX_CALLS][WEFT_MAX_CALLS]; /* [a][b]: b's data need a */
    double device;                               /* height */
    int lanes, top; /* y of the broken lines, and of the devices */
};

static const char *colour_of(const struct weft_dataflow *flow, int32_t call)
{
    int32_t role = flow->call[call].role;
    return role < 0 ? no_role
                    : weft_svg_colour((size_t) role, WEFT_SVG_PLAIN);
}

/* ---- Places ------------------------------------------------------------ */

static bool feeds(const struct weft_dataflow *flow, int32_t a, int32_t b)
{
    return a != b && (flow->call[a].writes & flow->call[b].reads) != 0;
}

/* A call's column is the number of calls that must have come before it, one
 * after another. */
static void arrange(struct picture *p)
{
    const struct weft_dataflow *flow = p->flow;
    int32_t order[WEFT_MAX_CALLS];
    weft_flow_order(flow, order);
    for (int32_t n = 0; n < flow->n_calls - 1; n++) {
        int32_t b = order[n];
        for (int32_t k = 0; k < n; k++) {
            int32_t a = order[k];
            if (!feeds(flow, a, b))
                continue;
            p->before[a][b] = true;
            for (int32_t i = 1; i < flow->n_calls; i++)
                p->before[i][b] = p->before[i][b] || p->before[i][a];
            if (p->column[b] <= p->column[a])
                p->column[b] = p->column[a] + 1;
        }
        p->row[b] = p->in_column[p->column[b]]++;
        p->placed[p->column[b]] += p->plan->call[b].dp > 0;
        if (p->column[b] >= p->n_columns)
            p->n_columns = p->column[b] + 1;
        if (p->row[b] >= p->n_rows)
            p->n_rows = p->row[b] + 1;
    }
    int32_t n_devices = p->plan->n_nodes * p->plan->n_devices;
    p->lanes = TOP + p->n_rows * ROW;
    p->top = p->lanes + flow->n_roles * LANE + GAP;
    p->device = (double) ALL_DEVICES / n_devices;
    if (p->device > MOST_DEVICE)
        p->device = MOST_DEVICE;
    if (p->device < LEAST_DEVICE)
        p->device = LEAST_DEVICE;
}

static int x_of(const struct picture *p, int32_t call)
{
    return LEFT + p->column[call] * COLUMN;
}

static int y_of(const struct picture *p, int32_t call)
{
    return TOP + p->row[call] * ROW;
}

/* ---- The graph --------------------------------------------------------- */

/* Whether b's data need a's only through another call. */
static bool follows(const struct picture *p, int32_t a, int32_t b)
{
    for (int32_t i = 1; i < p->flow->n_calls; i++)
        if (p->before[a][i] && p->before[i][b])
            return true;
    return false;
}

static void put_edges(const struct picture *p)
{
    for (int32_t a = 1; a < p->flow->n_calls; a++)
        for (int32_t b = 1; b < p->flow->n_calls; b++) {
            if (!feeds(p->flow, a, b) || follows(p, a, b))
                continue;
            int x = x_of(p, a) + BOX, y = y_of(p, a) + BOX_HEIGHT / 2;
            int to_x = x_of(p, b), to_y = y_of(p, b) + BOX_HEIGHT / 2;
            int bend = (to_x - x) / 2;
            fprintf(p->f,
                    "<path class=\"e\" marker-end=\"url(#arrow)\" "
                    "d=\"M%d %dC%d %d %d %d %d %d\"/>\n",
                    x, y, x + bend, y, to_x - bend, to_y, to_x - 4, to_y);
        }
}

/* The weights that a training call writes, to the calls that read them in the
 * next iteration. */
static void put_versions(const struct picture *p)
{
    const struct weft_dataflow *flow = p->flow;
    for (int32_t a = 1; a < flow->n_calls; a++)
        for (int32_t b = 1; weft_flow_trains(flow, a) && b < flow->n_calls;
             b++) {
            int32_t role = flow->call[a].role;
            if (b == a || flow->call[b].role != role)
                continue;
            int lane = p->lanes + role * LANE, in = 10 + role * 6;
            int x = x_of(p, a) + BOX - in, to_x = x_of(p, b) - in;
            int to_y = y_of(p, b) + BOX_HEIGHT - 10;
            fprintf(p->f,
                    "<path class=\"v\" stroke=\"%s\" "
                    "marker-end=\"url(#arrow)\" d=\"M%d %dV%dH%dV%dH%d\"/>\n",
                    colour_of(flow, a), x, y_of(p, a) + BOX_HEIGHT, lane,
                    to_x, to_y, x_of(p, b) - 4);
        }
}

static void put_fields(const struct picture *p, const char *word,
                       uint32_t set)
{
    const char *between = " ";
    fputs(word, p->f);
    for (int32_t i = 0; i < p->flow->n_fields; i++)
        if (set & weft_flow_bit(i)) {
            fprintf(p->f, "%s%s", between, p->flow->field[i].name);
            between = ", ";
        }
}

static void put_box(const struct picture *p, int32_t call)
{
    static const char *const does[] = {"generates", "inference", "training",
                                       "step", "data"};
    const struct weft_flow_call *c = &p->flow->call[call];
    int x = x_of(p, call), y = y_of(p, call);
    fprintf(p->f,
            "<g><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\" "
            "fill=\"#fff\" stroke=\"%s\" stroke-width=\"2\"/>\n",
            x, y, BOX, BOX_HEIGHT, colour_of(p->flow, call));
    fprintf(p->f, "<text x=\"%d\" y=\"%d\" class=\"t\">%s</text>\n", x + 8,
            y + 15, c->name);
    fprintf(p->f, "<text x=\"%d\" y=\"%d\">%s", x + 8, y + 30, does[c->kind]);
    if (c->role >= 0)
        fprintf(p->f, ", %s%s", p->flow->role[c->role].name,
                p->flow->role[c->role].trained ? "" : " (frozen)");
    fprintf(p->f, "</text>\n<text x=\"%d\" y=\"%d\">", x + 8, y + 44);
    if (c->kind == WEFT_TRAIN)
        fputs("version i to i + 1", p->f);
    else
        put_fields(p, "writes", c->writes);
    fputs("</text>\n<title>", p->f);
    put_fields(p, "reads", c->reads);
    put_fields(p, "; writes", c->writes);
    fputs("</title></g>\n", p->f);
}

/* ---- The devices ------------------------------------------------------- */

static double y_of_device(const struct picture *p, int32_t node,
                          int32_t device)
{
    return p->top + p->device * (node * p->plan->n_devices + device);
}

/* A line between nodes; as many names as there is room for. */
static void put_nodes(const struct picture *p)
{
    const struct weft_plan *plan = p->plan;
    double height = p->device * plan->n_devices;
    int32_t each = 1 + (int32_t) (12 / height);
    fprintf(p->f, "<text x=\"%d\" y=\"%d\" class=\"t\">devices</text>\n",
            LEFT - 62, p->top - 10);
    for (int32_t n = 0; n <= plan->n_nodes; n++) {
        double y = y_of_device(p, n, 0);
        if (n % each == 0 || n == plan->n_nodes)
            fprintf(p->f, "<path class=\"n\" d=\"M%d %gH%d\"/>\n", LEFT - 62,
                    y, LEFT + p->n_columns * COLUMN);
        if (n < plan->n_nodes && n % each == 0)
            fprintf(p->f, "<text x=\"%d\" y=\"%g\">node %d</text>\n",
                    LEFT - 62, y + 12, (int) n);
    }
}

/* The n-th mesh of a column; they lie side by side. */
static void put_mesh(const struct picture *p, int32_t call, int32_t n_th)
{
    const struct weft_call_plan *c = &p->plan->call[call];
    double width = (double) BOX / p->placed[p->column[call]];
    double x = x_of(p, call) + n_th * width;
    bool whole = c->mesh.n_devices == p->plan->n_devices;
    int32_t n = whole ? 1 : c->mesh.n_nodes;
    double height = p->device * c->mesh.n_devices
                  * (whole ? c->mesh.n_nodes : 1);
    for (int32_t i = 0; i < n; i++) {
        double y = y_of_device(p, c->mesh.node + i, c->mesh.device);
        char text[64];
        int size = snprintf(text, sizeof text, "dp%d tp%d pp%d", (int) c->dp,
                            (int) c->tp, (int) c->pp);
        fprintf(p->f,
                "<g><rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" "
                "fill=\"%s\" fill-opacity=\".8\" stroke=\"#fff\"/>",
                x, y, width, height, colour_of(p->flow, call));
        bool across = size * DIGIT < width - 4;
        if (across && height >= 14)
            fprintf(p->f, "<text x=\"%g\" y=\"%g\" class=\"m\">%s</text>",
                    x + 4, y + height / 2 + 4, text);
        else if (size * DIGIT < height && width >= 14)
            fprintf(p->f,
                    "<text transform=\"translate(%g %g) rotate(-90)\" "
                    "class=\"m\">%s</text>",
                    x + width / 2 + 4, y + height - 4, text);
        fprintf(p->f, "<title>%s: %s</title></g>\n", p->flow->call[call].name,
                text);
    }
}

/* ---- Together ---------------------------------------------------------- */

static void put_all(const struct picture *p)
{
    const struct weft_plan *plan = p->plan;
    int n = 0;
    for (int32_t i = 1; i < p->flow->n_calls; i++)
        n += weft_flow_placed(p->flow, i);
    int width = LEFT + p->n_columns * COLUMN + FOOT;
    double height = y_of_device(p, plan->n_nodes, 0) + FOOT;
    fprintf(p->f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %g\" "
            "width=\"%d\" height=\"%g\">\n<style>"
            "text{font:11px sans-serif;fill:#333}.t{font-weight:bold}"
            ".m{fill:#fff}.e,.v,.n{fill:none}.e{stroke:#999;stroke-width:1.3}"
            ".v{stroke-dasharray:5 4}.n{stroke:#ccc}</style>\n"
            "<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"4\" "
            "refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" "
            "orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#777\"/>"
            "</marker></defs>\n<rect width=\"100%%\" height=\"100%%\" "
            "fill=\"#fff\"/>\n",
            width, height, width, height);
    fprintf(p->f,
            "<text x=\"8\" y=\"18\" class=\"t\">%d model function calls on "
            "%d x %d devices; broken lines: weights of the next "
            "iteration</text>\n",
            n, (int) plan->n_nodes, (int) plan->n_devices);
    put_edges(p);
    put_versions(p);
    for (int32_t i = 1; i < p->flow->n_calls; i++)
        put_box(p, i);
    put_nodes(p);
    for (int32_t c = 0; c < p->n_columns; c++)
        for (int32_t i = 1, k = 0; i < p->flow->n_calls; i++)
            if (p->column[i] == c && plan->call[i].dp > 0)
                put_mesh(p, i, k++);
    fputs("</svg>\n", p->f);
}

char *weft_plan_svg(const struct weft_plan *plan)
{
    struct picture p = {.plan = plan, .flow = &plan->flow};
    char *text = NULL;
    size_t size = 0;
    p.f = open_memstream(&text, &size);
    if (!p.f)
        return NULL;
    arrange(&p);
    put_all(&p);
    return weft_string_end_stream(p.f, &text);
}
