/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plan_told.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void tell_found(const struct weft_cli_plan_options *o,
                       const struct weft_found *f, double has)
{
    const struct weft_search_result *r = &f->result;
    double gap = 1 - r->bound / r->value.period;
    char text[700], less[100] = "", whole[100];
    if (f->unplayed)
        snprintf(whole, sizeof whole,
                 "not simulated as a whole, for which there was no time or "
                 "no memory");
    else
        snprintf(whole, sizeof whole,
                 "%.4g s simulated as a whole, the best of %d finalists",
                 f->simulated.iteration_s, (int) f->finalists);
    if (f->bytes < has)
        snprintf(
            less, sizeof less,
            " with %.4g GiB of a device, so that any order of tasks fits",
            f->bytes / 0x1p30);
    snprintf(
        text, sizeof text,
        "%.4g s an iteration within the model, %s; the model's best takes "
        "%.4g s%s, %s (gap %.2g %%; of all options, in any order of tasks, "
        "%.2g %%): %lld options, of which %lld were searched, of %lld "
        "layouts, %lld pairs of them to train fused, %lld evaluations%s",
        r->finalist[f->taken].value.period, whole, r->value.period,
        f->memory.all <= has ? less : "",
        gap <= 2 * WEFT_SEARCH_NEAR ? "proven" : "not proven", 100 * gap,
        100 * (1 - r->any_order / r->value.period), (long long) f->options,
        (long long) f->needed, (long long) f->priced, (long long) f->pairs,
        (long long) r->evaluations,
        f->stopped ? "; stopped before the end" : "");
    if (f->left_out > 0)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "; %lld of calls were left out, as pricing them takes "
                 "too much memory",
                 (long long) f->left_out);
    weft_cli_tell(o, text);
}

/* Whether the certificate covers plans whose last samples move, and how far
 * these can be below the model's best. */
static void tell_moved(const struct weft_cli_plan_options *o,
                       const struct weft_found *f)
{
    double best_s = f->result.value.period;
    double gap = 1 - f->moved_bound / best_s;
    char text[300];
    if (f->moved_bound == INFINITY)
        return;
    if (f->moved_bound <= 0)
        snprintf(text, sizeof text,
                 "what is proven is about plans whose last samples stay: of "
                 "the others, with inter-stage fusion, nothing is known");
    else if (gap <= 2 * WEFT_SEARCH_NEAR)
        snprintf(text, sizeof text,
                 "proven with inter-stage fusion, too: no plan whose last "
                 "samples move takes less than the model's best");
    else
        snprintf(text, sizeof text,
                 "with inter-stage fusion no plan takes less than %.4g s by "
                 "the model: a gap of %.2g %% to its best without",
                 f->moved_bound, 100 * gap);
    weft_cli_tell(o, text);
}

static double least(double a, double b)
{
    return a > 0 && (b <= 0 || a < b) ? a : b;
}

/* A kind of fusion was simulated, with which the best plan takes with_s, and
 * without it without_s; 0: none fits. */
static void tell_fused(const struct weft_cli_plan_options *o,
                       const char *kind, bool taken, double with_s,
                       double without_s)
{
    char text[200];
    double less = without_s > 0 ? 1 - with_s / without_s : 0;
    if (with_s > 0 && without_s > 0)
        snprintf(text, sizeof text,
                 "%s is%s taken: %.4g s an iteration simulated with it, %.4g "
                 "s without (%+.2f %%)",
                 kind, taken ? "" : " not", with_s, without_s, -100 * less);
    else if (with_s > 0)
        snprintf(text, sizeof text, "%s is taken: %.4g s an iteration", kind,
                 with_s);
    else
        return;
    weft_cli_tell(o, text);
}

static void tell_fusion(const struct weft_cli_plan_options *o,
                        const struct weft_found *f)
{
    const double(*s)[2] = f->best_s;
    tell_fused(o, "intra-stage fusion", f->fused[f->taken],
               least(s[1][0], s[1][1]), least(s[0][0], s[0][1]));
    tell_fused(o, "inter-stage fusion", f->moves, least(s[0][1], s[1][1]),
               least(s[0][0], s[1][0]));
}

/* Where devices are places the search plays a tp group's instructions, not the
 * tasks of its members; weft simulate does so with --gangs alone. */
static void tell_gangs(const struct weft_cli_plan_options *o,
                       const struct weft_plan *plan)
{
    bool groups = false;
    for (int32_t c = 1; c < plan->flow.n_calls; c++)
        groups = groups || plan->call[c].tp > 1;
    if (groups && plan->n_nodes * plan->n_devices <= WEFT_FEW_DEVICES)
        weft_cli_tell(o, "simulated by instruction of a tp group, as by "
                         "weft simulate --gangs; task by task it can take "
                         "longer");
}

/* A simulation is one order of tasks; in another a run may need more, where
 * memory was not counted by task. */
static void tell_memory(const struct weft_cli_plan_options *o,
                        const struct weft_found *f, double has)
{
    const struct weft_needed *m = &f->memory;
    char text[300];
    if (m->one_order)
        snprintf(
            text, sizeof text,
            "it may not fit: there was no time to count what a run can "
            "take; by one order of its tasks it is %.4g GiB of a device, "
            "which has %.4g",
            m->all / 0x1p30, has / 0x1p30);
    if (m->one_order)
        weft_cli_tell(o, text);
    if (m->one_order || m->all <= has)
        return;
    snprintf(text, sizeof text,
             "it may not fit: a run can take %.4g GiB of device %d, which "
             "has %.4g; most of it, %.3g GiB, is %s. This is counted by "
             "instruction of a tp group, which can be far more than it needs",
             m->all / 0x1p30, (int) m->device, has / 0x1p30, m->most / 0x1p30,
             weft_mem_class_name(m->mem));
    weft_cli_tell(o, text);
}

void weft_cli_tell_found(const struct weft_cli_plan_options *o,
                         const struct weft_found *f, double has,
                         bool by_gangs, const struct weft_plan *plan)
{
    tell_found(o, f, has);
    if (by_gangs)
        tell_gangs(o, plan);
    tell_moved(o, f);
    tell_fusion(o, f);
    tell_memory(o, f, has);
}
