/* SPDX-License-Identifier: Apache-2.0 */
/* What was played as tables and as JSON. */
#include "plan/engine/played.h"

#include <stdio.h>

/* Devices that have a line each; of more, the least, mean and most. */
enum { LINES = 16 };

int32_t weft_played_shown(const struct weft_played *p)
{
    return p->n > 2 ? p->n - 2 : p->n - 1;
}

static const struct weft_played_call *call_of(const struct weft_played *p,
                                              int32_t call)
{
    return &p->call[weft_played_shown(p) * WEFT_MAX_CALLS + call];
}

static double mib(int64_t bytes)
{
    return (double) bytes / (1024 * 1024);
}

/* ---- Tables ------------------------------------------------------------ */

static void add_call_use(struct weft_played_use use, struct weft_string *out)
{
    weft_string_addf(out, "  %10.4f  %10.4f  %10.4f\n", use.busy_s,
                     use.moving_s, use.waiting_s);
}

static void add_calls(const struct weft_played *p, struct weft_string *out)
{
    struct weft_played_use all = {0};
    double begin = p->iteration[weft_played_shown(p)].start_s;
    weft_string_addf(out,
                     "\ncalls of iteration %d of %d, since its first task:\n"
                     "%-16s  %10s  %10s  %10s  %10s  %10s\n",
                     (int) weft_played_shown(p) + 1, (int) p->n, "call",
                     "start s", "end s", "busy s", "moving s", "waiting s");
    for (int32_t i = 1; i <= p->flow->n_calls; i++) {
        int32_t call = i % p->flow->n_calls; /* 0 comes last */
        const struct weft_played_call *c = call_of(p, call);
        if (c->span.end_s <= 0)
            continue;
        weft_string_addf(out, "%-16s  %10.4f  %10.4f",
                         weft_played_name(p, call), c->span.start_s - begin,
                         c->span.end_s - begin);
        add_call_use(c->use, out);
        all.busy_s += c->use.busy_s;
        all.moving_s += c->use.moving_s;
        all.waiting_s += c->use.waiting_s;
    }
    weft_string_addf(out, "%-16s  %10s  %10s", "all", "", "");
    add_call_use(all, out);
}

static void add_bound(const struct weft_played *p, struct weft_string *out)
{
    if (p->bound_s > 0)
        weft_string_addf(out,
                         "generation and inference: %.4f s; no schedule with "
                         "these lengths takes less than %.4f\n",
                         weft_played_gen_infer_s(p), p->bound_s);
}

static void add_waited(const struct weft_played *p, struct weft_string *out)
{
    double s = weft_played_waited_s(p);
    if (p->job->moves)
        weft_string_addf(out,
                         "moves that nothing hides: %.4f s, %.1f %% of an "
                         "iteration, mean of all devices\n",
                         s, 100 * s / p->steady_s);
}

static void add_device(const struct weft_played *p, const char *name,
                       struct weft_played_use d, struct weft_string *out)
{
    double all = p->end_s > 0 ? p->end_s / 100 : 1;
    weft_string_addf(out, "%-16s  %8.1f %%  %8.1f %%  %8.1f %%\n", name,
                     d.busy_s / all, d.moving_s / all, d.waiting_s / all);
}

static void add_summary(const struct weft_played *p, struct weft_string *out)
{
    struct weft_played_use least = p->device[0], most = least, sum = {0};
    int32_t n = p->job->n_devices;
    for (int32_t i = 0; i < n; i++) {
        struct weft_played_use d = p->device[i];
        least = d.busy_s < least.busy_s ? d : least;
        most = d.busy_s > most.busy_s ? d : most;
        sum.busy_s += d.busy_s / n;
        sum.moving_s += d.moving_s / n;
        sum.waiting_s += d.waiting_s / n;
    }
    add_device(p, "least busy", least, out);
    add_device(p, "mean", sum, out);
    add_device(p, "most busy", most, out);
}

static void add_devices(const struct weft_played *p, struct weft_string *out)
{
    weft_string_addf(out, "\n%-16s  %10s  %10s  %10s\n", "device", "busy",
                     "moving", "waiting");
    for (int32_t d = 0; d < p->job->n_devices && p->job->n_devices <= LINES;
         d++) {
        char name[16];
        snprintf(name, sizeof name, "%d", (int) d);
        add_device(p, name, p->device[d], out);
    }
    if (p->job->n_devices > LINES)
        add_summary(p, out);
}

/* The place that holds most, by class. */
static void add_memory(const struct weft_played *p, struct weft_string *out)
{
    int32_t most = weft_played_fullest(p);
    const int64_t *bytes = weft_engine_memory(p->engine, most);
    weft_string_addf(out, "\nMiB at most, where it is most: device %d\n",
                     (int) weft_played_first_device(p, most));
    for (int c = 0; c < WEFT_N_MEM_CLASSES; c++)
        if (bytes[c] > 0)
            weft_string_addf(out, "%-16s  %10.1f\n",
                             weft_mem_class_name((enum weft_mem_class) c),
                             mib(bytes[c]));
    weft_string_addf(out, "%-16s  %10.1f\n", "all at one time",
                     mib(bytes[WEFT_MEM_ALL]));
}

int weft_played_text(const struct weft_played *p, struct weft_string *out,
                     struct weft_err *err)
{
    weft_string_addf(out,
                     "%d iterations on %d devices: %.4f s each once they "
                     "follow one another%s\n",
                     (int) p->n, (int) p->job->n_devices, p->steady_s,
                     p->by_instruction ? ", by instruction of tp groups"
                                       : "");
    if (p->one_round)
        weft_string_add(out,
                        "one round of generation is simulated: which prompts "
                        "are replaced (rollout.refills) depends on scores, "
                        "which are not known\n");
    add_calls(p, out);
    add_bound(p, out);
    add_waited(p, out);
    add_devices(p, out);
    add_memory(p, out);
    return weft_string_check(out, "tables", err);
}

/* ---- JSON -------------------------------------------------------------- */

/* A member of an object. */
static void add_number(struct weft_string *out, const char *name, double x)
{
    weft_string_addf(out, "\"%s\": ", name);
    weft_string_add_number(out, x);
}

static void add_span(struct weft_string *out, struct weft_span span)
{
    add_number(out, "start_s", span.start_s);
    weft_string_add(out, ", ");
    add_number(out, "end_s", span.end_s);
}

static void add_use(struct weft_played_use use, struct weft_string *out)
{
    add_number(out, "busy_s", use.busy_s);
    weft_string_add(out, ", ");
    add_number(out, "moving_s", use.moving_s);
    weft_string_add(out, ", ");
    add_number(out, "waiting_s", use.waiting_s);
    weft_string_add(out, ", ");
}

static void add_iteration(const struct weft_played *p, int32_t i,
                          struct weft_string *out)
{
    const char *between = "";
    weft_string_add(out, "  {");
    add_span(out, p->iteration[i]);
    weft_string_add(out, ", \"calls\": [");
    for (int32_t k = 0; k < p->flow->n_calls; k++) {
        const struct weft_played_call *c = &p->call[i * WEFT_MAX_CALLS + k];
        if (c->span.end_s <= 0)
            continue;
        weft_string_addf(out, "%s\n   {\"call\": ", between);
        weft_string_add_json(out, weft_played_name(p, k));
        weft_string_add(out, ", ");
        add_span(out, c->span);
        weft_string_add(out, ", ");
        add_use(c->use, out);
        add_number(out, "waited_for_moves_s", c->waited_s);
        weft_string_add(out, "}");
        between = ",";
    }
    weft_string_addf(out, "]}%s\n", i + 1 < p->n ? "," : "");
}

static void add_row(const struct weft_played *p, int32_t d,
                    struct weft_string *out)
{
    const int64_t *bytes = weft_engine_memory(p->engine, p->job->place_of[d]);
    weft_string_addf(out, "  {\"device\": %d, ", (int) d);
    add_use(p->device[d], out);
    weft_string_add(out, "\"memory\": {");
    for (int c = 0; c < WEFT_N_MEM_CLASSES; c++)
        weft_string_addf(out, "\"%s\": %lld, ",
                         weft_mem_class_name((enum weft_mem_class) c),
                         (long long) bytes[c]);
    weft_string_addf(out, "\"all\": %lld}}%s\n",
                     (long long) bytes[WEFT_MEM_ALL],
                     d + 1 < p->job->n_devices ? "," : "");
}

/* What a place holds over time: a list for each class that it has. */
static void add_place(const struct weft_played *p, int32_t place, int32_t n,
                      struct weft_string *out)
{
    const int64_t *peak = weft_engine_memory(p->engine, place);
    int64_t bytes[WEFT_MEM_ALL + 1];
    weft_string_addf(out, "   {\"device\": %d",
                     (int) weft_played_first_device(p, place));
    for (int c = 0; c <= WEFT_MEM_ALL; c++) {
        if (peak[c] == 0
            || (c < WEFT_MEM_ALL && !weft_engine_counts(p->engine, place, c)))
            continue;
        weft_string_addf(out, ",\n    \"%s\": [",
                         c == WEFT_MEM_ALL ? "all" : weft_mem_class_name(c));
        for (int32_t i = 0; i < n; i++) {
            weft_engine_slice(p->engine, place, i, bytes);
            weft_string_addf(out, "%s%lld", i ? ", " : "",
                             (long long) bytes[c]);
        }
        weft_string_add(out, "]");
    }
    weft_string_addf(out, "}%s\n", place + 1 < p->job->n_places ? "," : "");
}

static void add_over_time(const struct weft_played *p,
                          struct weft_string *out)
{
    double slice_s;
    int32_t n = weft_engine_slices(p->engine, &slice_s);
    if (n == 0)
        return;
    weft_string_add(out, ",\n \"memory_over_time\": {");
    add_number(out, "slice_s", slice_s);
    weft_string_add(out, ", \"places\": [\n");
    for (int32_t k = 0; k < p->job->n_places; k++)
        add_place(p, k, n, out);
    weft_string_add(out, "  ]}");
}

int weft_played_json(const struct weft_played *p, struct weft_string *out,
                     struct weft_err *err)
{
    weft_string_add(out, "{");
    add_number(out, "steady_s", p->steady_s);
    weft_string_add(out, ", ");
    add_number(out, "end_s", p->end_s);
    if (p->bound_s > 0) {
        weft_string_add(out, ", ");
        add_number(out, "gen_infer_bound_s", p->bound_s);
    }
    if (p->one_round)
        weft_string_add(out, ", \"one_round\": true");
    weft_string_addf(out, ", \"tasks\": %lld,\n \"iterations\": [\n",
                     (long long) p->r->n_tasks);
    for (int32_t i = 0; i < p->n; i++)
        add_iteration(p, i, out);
    weft_string_add(out, " ],\n \"devices\": [\n");
    for (int32_t d = 0; d < p->job->n_devices; d++)
        add_row(p, d, out);
    weft_string_add(out, " ]");
    add_over_time(p, out);
    weft_string_add(out, "}\n");
    return weft_string_check(out, "JSON", err);
}
