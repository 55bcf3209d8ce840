/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/price_recorded.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"

/* ---- Memory ------------------------------------------------------------- */

/* From when to when a tile has memory; place -1: it is not used. */
struct lease {
    double begin_s, end_s, bytes;
    int32_t place;
};

struct change {
    double at_s, bytes;
};

/* What goes, goes first. */
static int compare(const void *left, const void *right)
{
    const struct change *a = left, *b = right;
    if (a->at_s < b->at_s || a->at_s > b->at_s)
        return a->at_s < b->at_s ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* When each tile that tasks use is there, as they were played. */
static void set_leases(const struct weft_simulation *s, struct lease *lease)
{
    const struct weft_recording *r = &s->r;
    for (int64_t i = 0; i < r->n_tasks; i++) {
        const struct weft_rec_task *t = &r->task[i];
        struct weft_span span;
        int32_t device;
        if (!weft_engine_span(s->engine, i, &span, &device))
            continue;
        for (int64_t a = t->access; a < t->access + t->n_access; a++) {
            int32_t tile = (int32_t) r->access[a].tile;
            if (r->tile[tile].whole >= 0)
                tile = r->tile[tile].whole;
            struct lease *l = &lease[tile];
            if (l->place < 0)
                *l = (struct lease){span.start_s, span.end_s,
                                    (double) r->tile[tile].bytes,
                                    r->tile[tile].place};
            l->begin_s = span.start_s < l->begin_s ? span.start_s
                                                   : l->begin_s;
            l->end_s = span.end_s > l->end_s ? span.end_s : l->end_s;
        }
    }
}

/* Whether a tile counts only while it is used: what tasks leave to one
 * another, and what is gathered or added up on the way. */
static bool is_active(const struct weft_rec_tile *t)
{
    return !t->permanent || t->mem == WEFT_MEM_SAMPLES;
}

/* The most that changes from nothing come to together. */
static double most_of(struct change *change, size_t n)
{
    double now = 0, most = 0;
    qsort(change, n, sizeof *change, compare);
    for (size_t i = 0; i < n; i++) {
        now += change[i].bytes;
        most = now > most ? now : most;
    }
    return most;
}

/* The most bytes that tasks need of a place while they run, given when tiles
 * are there. end: for places, and one more. */
static double most_active(const struct weft_simulation *s,
                          const struct lease *lease, struct change *change,
                          size_t *end)
{
    const struct weft_recording *r = &s->r;
    double most = 0;
    for (int64_t i = 0; i < r->n_tiles; i++)
        if (lease[i].place >= 0 && is_active(&r->tile[i]))
            end[lease[i].place + 1] += 2;
    for (int32_t p = 0; p < s->job.n_places; p++)
        end[p + 1] += end[p];
    /* a place's begin where the one before ends, and that moves on */
    for (int64_t i = 0; i < r->n_tiles; i++) {
        const struct lease *l = &lease[i];
        if (l->place < 0 || !is_active(&r->tile[i]))
            continue;
        change[end[l->place]++] = (struct change){l->begin_s, l->bytes};
        change[end[l->place]++] = (struct change){l->end_s, -l->bytes};
    }
    for (int32_t p = 0; p < s->job.n_places; p++) {
        size_t from = p > 0 ? end[p - 1] : 0;
        most = fmax(most, most_of(change + from, end[p] - from));
    }
    return most;
}

static int find_active(const struct weft_simulation *s,
                       const struct lease *lease, double *most_out,
                       struct weft_err *err)
{
    size_t n = (size_t) s->r.n_tiles;
    struct change *change = weft_alloc(2 * n + 1, sizeof *change);
    size_t *end = weft_alloc((size_t) s->job.n_places + 1, sizeof *end);
    if (change && end)
        *most_out = most_active(s, lease, change, end);
    int rc = change && end
               ? 0
               : weft_err_nomem(err, "prices", n * sizeof *change);
    weft_free(change);
    weft_free(end);
    return rc;
}

/* The most bytes of a class, or of two, that what is used has at a place for
 * good. */
static int find_held(const struct weft_simulation *s,
                     const struct lease *lease, uint32_t classes,
                     double *most_out, struct weft_err *err)
{
    const struct weft_recording *r = &s->r;
    double *held = weft_alloc((size_t) s->job.n_places, sizeof *held);
    if (!held)
        return weft_err_nomem(err, "prices", 8);
    *most_out = 0;
    for (int64_t i = 0; i < r->n_tiles; i++) {
        const struct weft_rec_tile *t = &r->tile[i];
        if (t->whole >= 0 || !t->permanent || !(classes >> t->mem & 1)
            || lease[i].place < 0)
            continue;
        held[t->place] += (double) t->bytes;
        if (held[t->place] > *most_out)
            *most_out = held[t->place];
    }
    weft_free(held);
    return 0;
}

/* ---- Prices ------------------------------------------------------------- */

/* From the first begin of a lot's tasks to the last end; lots count from 1. */
static struct weft_span span_of(const struct weft_simulation *s, int64_t lot)
{
    const struct weft_recording *r = &s->r;
    int64_t end = lot < r->n_lots ? r->lot[lot] : r->n_tasks;
    struct weft_span all = {INFINITY, 0};
    for (int64_t i = r->lot[lot - 1]; i < end; i++) {
        struct weft_span span;
        int32_t device;
        if (!weft_engine_span(s->engine, i, &span, &device))
            continue;
        all.start_s = fmin(all.start_s, span.start_s);
        all.end_s = fmax(all.end_s, span.end_s);
    }
    return all;
}

/* How much longer all takes with a lot more: with all lots than with the first
 * alone, for each of the others. Where lots overlap neither their ends nor their
 * begins are as far apart: the first is played by itself, and then all. With
 * ZeRO 3 they do not: a step gathers the weights that the one before has
 * updated. */
static int play_lots(struct weft_simulation *s, double *step_s,
                     struct weft_err *err)
{
    struct weft_recording *r = &s->r;
    int64_t n_tasks = r->n_tasks, n = r->n_lots;
    int32_t call = __builtin_ctz(s->how.calls);
    bool overlap = s->t->plan.call[call].zero < 3;
    double first_s = 0;
    int rc = 0;
    if (n >= 2 && overlap) {
        r->n_tasks = r->lot[1];
        rc = weft_simulation_play(s, err);
        first_s = rc ? 0 : span_of(s, 1).end_s;
        r->n_tasks = n_tasks;
    }
    if (!rc)
        rc = weft_simulation_play(s, err);
    if (!rc && n >= 2 && !overlap)
        first_s = span_of(s, 1).end_s;
    *step_s = 0;
    if (!rc && n >= 2)
        *step_s = (span_of(s, n).end_s - first_s) / (double) (n - 1);
    return rc;
}

static int ascending(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

/* When samples leave generation. */
static int find_came(const struct weft_simulation *s, struct weft_priced *out,
                     struct weft_err *err)
{
    const struct weft_recording *r = &s->r;
    double *at = weft_alloc((size_t) r->n_tasks + 1, sizeof *at);
    size_t n = 0;
    if (!at)
        return weft_err_nomem(err, "prices",
                              (size_t) r->n_tasks * sizeof *at);
    for (int64_t i = 0; i < r->n_tasks; i++) {
        const struct weft_rec_task *t = &r->task[i];
        struct weft_span span;
        int32_t device;
        if (t->kind == WEFT_REC_TASK && t->priority == WEFT_PRIORITY_SAMPLE
            && s->t->flow.call[t->call].kind == WEFT_GENERATE
            && weft_engine_span(s->engine, i, &span, &device))
            at[n++] = span.end_s;
    }
    qsort(at, n, sizeof *at, ascending);
    for (size_t k = 0; k < WEFT_SEARCH_PARTS; k++)
        out->came[k] = n > 0
                         ? at[(n - 1) * k / WEFT_SEARCH_PARTS] / out->seconds
                         : 1;
    weft_free(at);
    return 0;
}

/* Seconds in which devices pass micro-batches, of all devices. */
static double passes_s(const struct weft_simulation *s)
{
    const struct weft_recording *r = &s->r;
    double sum = 0;
    for (int64_t i = 0; i < r->n_tasks; i++) {
        const struct weft_rec_task *t = &r->task[i];
        struct weft_span span;
        int32_t device;
        if (t->kind == WEFT_REC_TASK && t->micro_batch >= 0
            && weft_engine_span(s->engine, i, &span, &device) && device >= 0)
            sum += span.end_s - span.start_s;
    }
    return sum;
}

/* How long tasks are; of a layer that stands for several one is a task. */
static void set_tasks(const struct weft_simulation *s,
                      struct weft_priced *out)
{
    const struct weft_recording *r = &s->r;
    const struct weft_g_layout *l =
        &s->t->layout[__builtin_ctz(s->how.calls)];
    int32_t n_layers = l->times ? l->first_layer[l->plan.pp] : 0;
    double n = 0, sum = 0, squares = 0;
    for (int64_t i = 0; i < r->n_tasks; i++) {
        const struct weft_rec_task *t = &r->task[i];
        struct weft_span span;
        int32_t device;
        if (t->kind != WEFT_REC_TASK
            || !weft_engine_span(s->engine, i, &span, &device) || device < 0)
            continue;
        double all = span.end_s - span.start_s;
        int32_t of = t->layer >= 0 && t->layer < n_layers ? l->times[t->layer]
                                                          : 1;
        n += of;
        sum += all;
        squares += all * all / of;
    }
    out->task_s = n > 0 ? sum / n : 0;
    out->long_task_s = sum > 0 ? squares / sum : 0;
}

/* Micro-batches of a replica: those of all replicas are numbered together. */
static int32_t count_micro_batches(const struct weft_simulation *s)
{
    int32_t call = __builtin_ctz(s->how.calls), n = 0;
    for (int64_t i = 0; i < s->r.n_tasks; i++)
        n = weft_max32(n, s->r.task[i].micro_batch + 1);
    return (int32_t) weft_ceil_div(n, s->t->plan.call[call].dp);
}

/* The number of the kind of node that has a device. */
static int32_t kind_of(const struct weft_simulation *s, int32_t device)
{
    const struct weft_cluster *cluster = s->options->cluster;
    const struct weft_node_kind *kind = weft_simulation_node(s, device);
    return (int32_t) (kind - cluster->kind);
}

/* Sets what devices of the call's mesh do in the mean, of which n are recorded,
 * and what those of each kind of node do beyond that. */
static void set_busy(const struct weft_simulation *s, int32_t n,
                     struct weft_priced *out)
{
    const struct weft_mesh *mesh =
        &s->t->plan.call[__builtin_ctz(s->how.calls)].mesh;
    double busy_s[WEFT_CLUSTER_KINDS] = {0}, all_s = 0;
    int32_t nodes[WEFT_CLUSTER_KINDS] = {0};
    for (int32_t d = 0; d < s->job.n_devices; d++) {
        double one = weft_engine_use(s->engine, d).busy_s;
        busy_s[kind_of(s, d)] += one;
        all_s += one;
    }
    for (int32_t i = 0; i < mesh->n_nodes; i++)
        nodes[kind_of(s, (mesh->node + i) * s->t->job.n_devices)]++;
    out->busy_s = all_s / n;
    for (int k = 0; k < WEFT_CLUSTER_KINDS; k++)
        out->uneven[k] = nodes[k] > 0 && all_s > 0
                           ? busy_s[k] / all_s * mesh->n_nodes / nodes[k] - 1
                           : 0;
}

int weft_price_recorded(struct weft_simulation *s, int32_t n_devices,
                        struct weft_priced *out, double *step_s,
                        struct weft_err *err)
{
    int32_t devices = s->job.n_devices / s->job.n_places;
    size_t n = (size_t) s->r.n_tiles;
    struct lease *lease = weft_alloc(n + 1, sizeof *lease);
    s->job.memory = false; /* it is counted here, as each tile is used */
    int rc = lease ? play_lots(s, step_s, err)
                   : weft_err_nomem(err, "prices", n * sizeof *lease);
    for (size_t i = 0; i < n && !rc; i++)
        lease[i].place = -1;
    if (!rc) {
        set_leases(s, lease);
        out->seconds = weft_engine_now_s(s->engine);
        set_busy(s, n_devices, out);
        out->passes_s = fmin(passes_s(s) / n_devices, out->busy_s);
        out->micro_batches = count_micro_batches(s);
        set_tasks(s, out);
        rc = find_came(s, out, err);
    }
    if (!rc)
        rc = find_active(s, lease, &out->active, err);
    if (!rc)
        rc = find_held(s, lease, 1u << WEFT_MEM_WEIGHTS, &out->weights, err);
    if (!rc)
        rc = find_held(s, lease,
                       1u << WEFT_MEM_GRADIENTS | 1u << WEFT_MEM_OPTIMIZER
                           | 1u << WEFT_MEM_KV,
                       &out->state, err);
    out->active /= devices;
    out->weights /= devices;
    out->state /= devices;
    weft_free(lease);
    return rc;
}
