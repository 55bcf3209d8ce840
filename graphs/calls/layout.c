/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/calls/layout.h"

#include <string.h>

#include "base/alloc.h"

struct weft_g_job weft_g_job_of(const struct weft_rt *rt)
{
    int32_t devices = weft_rt_n_devices(rt);
    int32_t each = weft_rt_devices_per_rank(rt);
    return (struct weft_g_job){devices / each, each,
                               weft_rt_n_places(rt) == devices,
                               weft_rt_n_gpus(rt), weft_rt_gpus_apart(rt)};
}

int32_t weft_g_job_places_per_rank(const struct weft_g_job *job)
{
    return job->place_per_device ? job->n_devices : job->n_gpus + 1;
}

int32_t weft_g_job_n_places(const struct weft_g_job *job)
{
    return job->n_ranks * weft_g_job_places_per_rank(job);
}

int32_t weft_g_job_place_of(const struct weft_g_job *job, int32_t device)
{
    int32_t rank = device / job->n_devices, i = device % job->n_devices;
    if (!job->place_per_device && i > job->n_gpus)
        i = job->n_gpus;
    return rank * weft_g_job_places_per_rank(job) + i;
}

static int32_t n_members(const struct weft_g_layout *l)
{
    return l->plan.dp * l->plan.tp * l->plan.pp;
}

static bool is_any_device(const struct weft_g_job *job,
                          const struct weft_g_layout *l)
{
    /* the replicas are all CPU devices of whole ranks, and those of a rank
     * are one place */
    int32_t n_cpus = job->n_devices - job->n_gpus;
    return l->plan.tp == 1 && l->plan.pp == 1 && !l->on_gpus
        && (!job->place_per_device || n_cpus == 1)
        && l->plan.mesh.n_devices == n_cpus;
}

static bool is_gang(const struct weft_g_layout *l)
{
    bool same = true;
    for (int32_t i = 0; i < n_members(l); i++)
        same = same
            && l->member[i].place
                   == l->member[i / l->plan.tp * l->plan.tp].place;
    return same && (l->plan.tp == 1 || !l->on_gpus);
}

static bool is_gpu_gang(const struct weft_g_job *job,
                        const struct weft_g_layout *l)
{
    int32_t tp = l->plan.tp, each = weft_g_job_places_per_rank(job);
    bool near = l->on_gpus && !job->gpus_apart && tp > 1;
    for (int32_t i = 0; i < n_members(l); i++)
        near = near
            && l->member[i].place / each
                   == l->member[i / tp * tp].place / each;
    return near;
}

static void count_elements(const struct weft_shape *shape,
                           struct weft_g_layout *l)
{
    struct weft_layout tile;
    for (int k = 0; k < WEFT_N_TILE_KINDS; k++)
        for (int32_t b = 0; b < shape->n_blocks; b++) {
            weft_layout_get(shape, (enum weft_tile_kind) k, b, &tile);
            size_t n = weft_layout_n_trained(&tile);
            size_t *trained = l->before[WEFT_G_TRAINED][k];
            size_t *frozen = l->before[WEFT_G_FROZEN][k];
            trained[b + 1] = trained[b] + n;
            frozen[b + 1] = frozen[b] + tile.n_flat - n;
        }
}

/* ---- Places ------------------------------------------------------------ */

/* Sizes of `place` and `n_place`. */
static size_t places_size(const struct weft_g_layout *l)
{
    return 2 * (size_t) n_members(l);
}

static size_t counts_size(const struct weft_g_layout *l)
{
    return (size_t) (l->plan.pp * (l->plan.tp + 1));
}

/* Where a stage's places begin, and how many there are, for tp index k; index
 * tp: of all. */
static int32_t *places_at(const struct weft_g_layout *l, int32_t stage,
                          int32_t k, int32_t **n_out)
{
    *n_out = &l->n_place[stage * (l->plan.tp + 1) + k];
    return &l->place[(2 * stage * l->plan.tp + k) * l->plan.dp];
}

/* seen[p]: the last list to which place p was added, from 1 on. */
static void list_places(struct weft_g_layout *l, int32_t stage, int32_t k,
                        int32_t *seen)
{
    int32_t tp = l->plan.tp, *n, *at = places_at(l, stage, k, &n);
    int32_t list = stage * (tp + 1) + k + 1;
    for (int32_t i = 0; i < l->plan.dp * tp; i++) {
        int32_t p = l->member[stage * l->plan.dp * tp + i].place;
        if ((k < tp && i % tp != k) || seen[p] == list)
            continue;
        seen[p] = list;
        at[(*n)++] = p;
    }
}

static int places_init(const struct weft_g_job *job, struct weft_g_layout *l,
                       struct weft_err *err)
{
    size_t n_places = (size_t) weft_g_job_n_places(job);
    int32_t *seen = weft_alloc(n_places, sizeof *seen);
    l->place = weft_alloc(places_size(l), sizeof *l->place);
    l->n_place = weft_alloc(counts_size(l), sizeof *l->n_place);
    bool room = seen && l->place && l->n_place;
    for (int32_t s = 0; s < l->plan.pp && room; s++)
        for (int32_t k = 0; k <= l->plan.tp; k++)
            list_places(l, s, k, seen);
    weft_free(seen);
    return room ? 0
                : weft_err_nomem(err, "a layout",
                                 places_size(l) * sizeof *l->place);
}

struct weft_g_places weft_g_layout_places(const struct weft_g_layout *l,
                                          int32_t stage, int32_t tp)
{
    int32_t *n, *at = places_at(l, stage, tp < 0 ? l->plan.tp : tp, &n);
    return (struct weft_g_places){*n, at};
}

/* ---- The layout -------------------------------------------------------- */

static int init(const struct weft_g_job *job, const struct weft_shape *shape,
                const struct weft_plan *plan,
                const struct weft_call_plan *call, struct weft_g_layout *out,
                struct weft_err *err)
{
    *out = (struct weft_g_layout){.plan = *call};
    size_t n = (size_t) n_members(out);
    if (call->dp > WEFT_G_MAX_DP)
        return weft_err_set(err, WEFT_EINVAL, "dp %d is above %d", call->dp,
                            WEFT_G_MAX_DP);
    out->member = weft_alloc(n, sizeof *out->member);
    if (!out->member)
        return weft_err_nomem(err, "a layout", n * sizeof *out->member);
    weft_plan_stages(shape, call->pp, out->first_layer);
    count_elements(shape, out);
    for (int32_t s = 0, at = 0; s < call->pp; s++)
        for (int32_t i = 0; i < call->dp; i++)
            for (int32_t k = 0; k < call->tp; k++, at++) {
                int32_t device = weft_plan_device(plan, call, i, s, k);
                out->member[at] = (struct weft_g_member){
                    device, weft_g_job_place_of(job, device),
                    weft_plan_range(shape->n_blocks, call->tp, k)};
            }
    out->on_gpus = call->mesh.device < job->n_gpus;
    out->any_device = is_any_device(job, out);
    out->is_gang = is_gang(out);
    out->is_gpu_gang = is_gpu_gang(job, out);
    out->places_per_rank = weft_g_job_places_per_rank(job);
    return places_init(job, out, err);
}

int weft_g_layout_init(const struct weft_g_job *job,
                       const struct weft_shape *shape,
                       const struct weft_plan *plan, int32_t call,
                       struct weft_g_layout *out, struct weft_err *err)
{
    return init(job, shape, plan, &plan->call[call], out, err);
}

int weft_g_layout_simple(struct weft_rt *rt, const struct weft_shape *shape,
                         int32_t dp, int32_t tp, struct weft_g_layout *out,
                         struct weft_err *err)
{
    struct weft_plan plan = {.n_nodes = 1, .n_devices = dp * tp};
    struct weft_call_plan call = {
        .mesh = {.n_nodes = 1, .n_devices = dp * tp},
        .dp = dp,
        .tp = tp,
        .pp = 1};
    struct weft_g_job job = weft_g_job_of(rt);
    return init(&job, shape, &plan, &call, out, err);
}

int weft_g_layout_copy(const struct weft_g_layout *from,
                       struct weft_g_layout *out, struct weft_err *err)
{
    size_t n = (size_t) n_members(from);
    *out = *from;
    out->member = weft_alloc(n, sizeof *out->member);
    out->place = weft_alloc(places_size(from), sizeof *out->place);
    out->n_place = weft_alloc(counts_size(from), sizeof *out->n_place);
    if (!out->member || !out->place || !out->n_place)
        return weft_err_nomem(err, "a layout", n * sizeof *out->member);
    memcpy(out->member, from->member, n * sizeof *out->member);
    memcpy(out->place, from->place, places_size(from) * sizeof *out->place);
    memcpy(out->n_place, from->n_place,
           counts_size(from) * sizeof *out->n_place);
    return 0;
}

void weft_g_layout_release(struct weft_g_layout *layout)
{
    weft_free(layout->member);
    weft_free(layout->place);
    weft_free(layout->n_place);
    *layout = (struct weft_g_layout){0};
}

const struct weft_g_member *weft_g_layout_member(
    const struct weft_g_layout *l, int32_t dp, int32_t stage, int32_t tp)
{
    return &l->member[(stage * l->plan.dp + dp) * l->plan.tp + tp];
}

int32_t weft_g_layout_stage_of(const struct weft_g_layout *l, int32_t layer)
{
    int32_t s = 0;
    while (layer >= l->first_layer[s + 1])
        s++;
    return s;
}

void weft_g_stage_get(const struct weft_g_layout *l, int32_t dp,
                      int32_t stage, struct weft_g_stage *out)
{
    *out = (struct weft_g_stage){
        .dp = dp,
        .index = stage,
        .first = l->first_layer[stage],
        .end = l->first_layer[stage + 1],
        .is_first = stage == 0,
        .is_last = stage == l->plan.pp - 1,
        .n = l->plan.tp,
        .member = weft_g_layout_member(l, dp, stage, 0),
    };
    for (int32_t k = 0; k < out->n; k++) {
        int32_t place = out->member[k].place;
        if (k > 0 && place == out->place[out->n_places - 1])
            continue;
        out->lead[out->n_places] = k;
        out->place[out->n_places++] = place;
    }
}
