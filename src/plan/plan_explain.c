/* SPDX-License-Identifier: Apache-2.0 */
/* The plan as a table for people. */
#include "plan/layout.h"

#include <stdio.h>
#include <string.h>

#include "base/string.h"

/* "3" or "0-3" */
static const char *range(int64_t first, int64_t n, char out[48])
{
    if (n == 1)
        snprintf(out, 48, "%lld", (long long) first);
    else
        snprintf(out, 48, "%lld-%lld", (long long) first,
                 (long long) (first + n - 1));
    return out;
}

static void put_call(FILE *f, const struct weft_plan *plan, int32_t call)
{
    const struct weft_dataflow *flow = &plan->flow;
    const struct weft_call_plan *c = &plan->call[call];
    char nodes[48], devices[48], parts[16] = "by tokens";
    if (flow->call[call].kind == WEFT_GENERATE)
        snprintf(parts, sizeof parts, "-");
    else if (c->micro_batches > 0)
        snprintf(parts, sizeof parts, "%d", c->micro_batches);
    fprintf(f, "%-14s  %-9s  %-9s  %4d  %2d  %2d  %-13s  ",
            flow->call[call].name,
            range(c->mesh.node, c->mesh.n_nodes, nodes),
            range(c->mesh.device, c->mesh.n_devices, devices), c->dp, c->tp,
            c->pp, parts);
    if (weft_flow_trains(flow, call))
        fprintf(f, "%4d  %-9s  %s", c->zero, c->recompute ? "yes" : "no",
                c->offload ? "optimizer" : "-");
    else
        fprintf(f, "   -  -          %s",
                !weft_flow_frozen(flow, call) ? "-"
                : c->offload                  ? "yes"
                                              : "no");
    if (c->hpz)
        fputs("  hpz", f);
    for (int32_t i = 0; i < c->shares.n; i++)
        fprintf(f, "%s%d x %d", i > 0 ? ", " : "  shares ",
                (int) c->shares.run[i].n, (int) c->shares.run[i].share);
    fputs("\n", f);
}

/* The columns are the classes of a place, their sum, and, in plans that
 * offload, what the host keeps beside them. */
static int column(int i)
{
    return i < WEFT_MEM_HOST  ? i
         : i == WEFT_MEM_HOST ? WEFT_MEM_ALL
                              : WEFT_MEM_HOST;
}

static int n_columns(const struct weft_plan *plan)
{
    int64_t n = (int64_t) plan->n_nodes * plan->n_devices;
    for (int64_t d = 0; d < n; d++)
        if ((plan->memory && plan->memory[d][WEFT_MEM_HOST] > 0)
            || (plan->measured && plan->measured[d][WEFT_MEM_HOST] > 0)
            || (plan->replayed && plan->replayed[d][WEFT_MEM_HOST] > 0))
            return WEFT_MEM_ALL + 1;
    return WEFT_MEM_ALL;
}

static void put_bytes(FILE *f, const char *name, const char *devices, int n,
                      const int64_t bytes[WEFT_MEM_ALL + 1])
{
    fprintf(f, "%s %-*s", name, 14 - (int) strlen(name), devices);
    for (int i = 0; i < n; i++)
        fprintf(f, "  %11.1f", (double) bytes[column(i)] / (1024 * 1024));
    fputs("\n", f);
}

/* Measured in percent of predicted. */
static void put_share(FILE *f, int n,
                      const int64_t predicted[WEFT_MEM_ALL + 1],
                      const int64_t measured[WEFT_MEM_ALL + 1])
{
    fprintf(f, "%-15s", "  %");
    for (int i = 0; i < n; i++) {
        int c = column(i);
        if (predicted[c] > 0)
            fprintf(f, "  %11.1f",
                    100 * (double) measured[c] / (double) predicted[c]);
        else
            fprintf(f, "  %11s", "-");
    }
    fputs("\n", f);
}

static bool same(int64_t (*table)[WEFT_MEM_ALL + 1], int64_t a, int64_t b)
{
    return !table || memcmp(table[a], table[b], sizeof table[a]) == 0;
}

/* Devices of the same numbers are one line. */
static void put_memory(FILE *f, const struct weft_plan *plan)
{
    int64_t n = (int64_t) plan->n_nodes * plan->n_devices, end;
    int wide = n_columns(plan);
    fprintf(f, "\n%-15s", "MiB at most");
    for (int i = 0; i < wide; i++) {
        int c = column(i);
        fprintf(f, "  %11s",
                c == WEFT_MEM_ALL
                    ? "all"
                    : weft_mem_class_name((enum weft_mem_class) c));
    }
    fputs("\n", f);
    for (int64_t d = 0; d < n; d = end) {
        char devices[48];
        for (end = d + 1; end < n; end++)
            if (!same(plan->memory, d, end) || !same(plan->measured, d, end)
                || !same(plan->replayed, d, end))
                break;
        range(d, end - d, devices);
        if (plan->memory)
            put_bytes(f, "device", devices, wide, plan->memory[d]);
        if (plan->measured)
            put_bytes(f, "  measured", plan->memory ? "" : devices, wide,
                      plan->measured[d]);
        if (plan->replayed)
            put_bytes(f, "  replayed", "", wide, plan->replayed[d]);
        if (plan->memory && plan->measured)
            put_share(f, wide, plan->memory[d], plan->measured[d]);
    }
}

static void put_seconds(FILE *f, const char *name, double predicted,
                        double measured)
{
    fprintf(f, "%-14s", name);
    if (predicted > 0)
        fprintf(f, "  %11.4f", predicted);
    else
        fprintf(f, "  %11s", "-");
    if (measured > 0)
        fprintf(f, "  %11.4f", measured);
    else
        fprintf(f, "  %11s", "-");
    if (predicted > 0 && measured > 0)
        fprintf(f, "  %7.1f %%", 100 * (predicted / measured - 1));
    fputs("\n", f);
}

static void put_times(FILE *f, const struct weft_plan *plan)
{
    const struct weft_plan_times *p = &plan->predicted_s;
    const struct weft_plan_times *m = &plan->measured_s;
    fprintf(f, "\n%-14s  %11s  %11s  %9s\n", "seconds", "predicted",
            "measured", "error");
    for (int32_t i = 1; i < plan->flow.n_calls; i++)
        if (plan->call[i].dp > 0)
            put_seconds(f, plan->flow.call[i].name, p->call_s[i],
                        m->call_s[i]);
    put_seconds(f, "iteration", p->iteration_s, m->iteration_s);
}

char *weft_plan_explain(const struct weft_plan *plan)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    fprintf(f, "nodes %d, devices of each %d", plan->n_nodes,
            plan->n_devices);
    if (plan->n_gpus > 0)
        fprintf(f, ", of which the first %d are GPUs", plan->n_gpus);
    fputs("\n\n", f);
    fprintf(f, "%-14s  %-9s  %-9s  %4s  tp  pp  micro-batches  zero  %s\n",
            "call", "nodes", "devices", "dp", "recompute  offload");
    for (int32_t i = 1; i < plan->flow.n_calls; i++)
        if (plan->call[i].dp > 0)
            put_call(f, plan, i);
    if (plan->intra_stage_fusion)
        fputs("\nmodels train under one schedule (intra-stage fusion)\n", f);
    if (plan->inter_stage_fusion)
        fputs(
            "\nthe last samples are generated by fewer replicas, where that "
            "pays (inter-stage\nfusion)\n",
            f);
    if (plan->predicted_s.iteration_s > 0 || plan->measured_s.iteration_s > 0)
        put_times(f, plan);
    if (plan->memory || plan->measured)
        put_memory(f, plan);
    return weft_string_end_stream(f, &text);
}
