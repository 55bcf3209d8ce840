/* SPDX-License-Identifier: Apache-2.0 */
#include "job/profile.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/topology.h"
#include "job/gpus.h"
#include "job/plan_needs.h"
#include "job/profile_inside.h"
#include "kern/device_cuda.h"
#include "kern/kern.h"
#include "rt/graph.h"

enum {
    MOST_TASKS = 1 << 20, /* of which it is noted when they ran */
    LEAST_LAYERS = 2,
    GPU_CACHE_BYTES = 64 << 20,
    FEW_ROWS = 64, /* of a model of which only the head is new */
    GROWS = 2
};

/* How many GPUs of this machine a run has, of n_here. */
static int32_t count_gpus(const struct weft_config *config, int32_t n_here)
{
    int rank;
    int32_t n = config->runtime.gpus * weft_world_here(&rank)
              / config->runtime.ranks_per_gpu;
    n_here = n_here < WEFT_MAX_DEVICES ? n_here : WEFT_MAX_DEVICES;
    return n > 0 && n < n_here ? n : n_here;
}

/* Which devices a run has: CPUs, or GPUs, which must be of one kind. */
static int name_device(const struct weft_config *config,
                       char out[WEFT_COSTS_TEXT], struct weft_err *err)
{
    struct weft_k_device gpu[WEFT_MAX_DEVICES];
    char other[WEFT_COSTS_TEXT];
    snprintf(out, WEFT_COSTS_TEXT, "CPU");
    if (config->runtime.devices != WEFT_ON_GPUS)
        return 0;
    int32_t n = count_gpus(config,
                           weft_k_devices_cuda(gpu, WEFT_MAX_DEVICES, NULL));
    snprintf(out, WEFT_COSTS_TEXT, "no GPU"); /* it is only planned */
    if (n > 0)
        weft_gpu_text(&gpu[0], out, WEFT_COSTS_TEXT);
    for (int32_t i = 1; i < n; i++) {
        weft_gpu_text(&gpu[i], other, sizeof other);
        if (strcmp(out, other) != 0)
            return weft_err_set(err, WEFT_EUNSUPPORTED,
                                "GPU 0 is '%s' and GPU %d '%s', and measured "
                                "costs are of one kind of GPU; set "
                                "runtime.gpus to use only the first %d",
                                out, i, other, i);
    }
    return 0;
}

int weft_profile_machine(const struct weft_config *config, int32_t n_devices,
                         struct weft_costs_machine *out, struct weft_err *err)
{
    struct weft_topology topology;
    *out = (struct weft_costs_machine){.n_devices = n_devices};
    int rc = weft_k_init(config->numerics.isa, err);
    if (!rc)
        rc = weft_topology_read(&topology, err);
    if (rc)
        return rc;
    snprintf(out->cpu, sizeof out->cpu, "%s", topology.cpu_name);
    snprintf(out->kernels, sizeof out->kernels, "%s",
             weft_k_isa_name(weft_k_isa()));
    snprintf(out->version, sizeof out->version, "%s", weft_version());
    return name_device(config, out->device, err);
}

int weft_profile_read(const char *path, const struct weft_config *config,
                      struct weft_costs_file *out, struct weft_err *err)
{
    struct weft_costs_machine here;
    int rc = weft_run_check_supported(config, "measured costs have", err);
    if (!rc)
        rc = weft_profile_machine(config, 1, &here, err);
    return rc ? rc : weft_costs_file_read(path, &here, out, err);
}

/* ---- Time -------------------------------------------------------------- */

/* Says what comes. False: it would take too long, if it takes GROWS times what
 * came before. */
bool weft_profile_goes_on(struct weft_profile_bench *b, const char *what,
                          int64_t size)
{
    char text[80];
    double now = weft_clock_s(), last = now - b->since_s;
    bool first = b->what != what;
    b->what = what;
    b->since_s = now;
    if (!first && now + GROWS * last > b->part_end_s)
        return false;
    snprintf(text, sizeof text, "%s, %lld", what, (long long) size);
    if (b->options->progress)
        b->options->progress(b->options->ctx, text,
                             (now - b->start_s) / b->options->limit_s);
    return true;
}

/* ---- Models ------------------------------------------------------------ */

void weft_profile_fill(struct weft_tile *tile)
{
    if (!tile)
        return;
    memset(weft_tile_acquire(tile, WEFT_WRITE), 0x3c, weft_tile_bytes(tile));
    weft_tile_unacquire(tile);
}

static void fill_params(const struct weft_shape *s,
                        const struct weft_params *p, int32_t n_places)
{
    for (int32_t i = 0; p && i < n_places; i++)
        for (int32_t b = 0; b <= WEFT_MAX_BLOCKS; b++) {
            bool norms = b == WEFT_MAX_BLOCKS;
            for (int32_t l = 0; l < s->n_layers; l++)
                weft_profile_fill(norms ? p[i].layer[l].norms
                                        : p[i].layer[l].block[b]);
            weft_profile_fill(norms ? p[i].head.norms : p[i].head.block[b]);
            if (!norms)
                weft_profile_fill(p[i].embed[b]);
        }
}

int32_t weft_profile_layers(const struct weft_profile_bench *b,
                            const struct weft_shape *shape)
{
    struct weft_topology topology = {.l3_bytes = 0};
    int64_t layer = 0, cache = GPU_CACHE_BYTES;
    struct weft_err err;
    if (b->options->n_gpus == 0 && weft_topology_read(&topology, &err) == 0
        && topology.l3_bytes > 0)
        cache = topology.l3_bytes * (topology.n_l3 > 0 ? topology.n_l3 : 1);
    for (int32_t i = 0; i < shape->n_blocks; i++)
        layer += (int64_t) weft_g_fwd_bytes(shape, WEFT_TILE_LAYER, i);
    int64_t n = weft_ceil_div(2 * cache, layer + 1);
    return (int32_t) weft_min64(shape->n_layers, weft_max64(n, LEAST_LAYERS));
}

int weft_profile_layout(struct weft_profile_bench *b,
                        const struct weft_shape *shape,
                        const struct weft_call_plan *call,
                        struct weft_g_layout *out, struct weft_err *err)
{
    const struct weft_g_job job = weft_g_job_of(b->rt);
    struct weft_plan plan = {
        .n_nodes = 1, .n_devices = job.n_devices, .n_gpus = job.n_gpus};
    plan.call[1] = *call;
    return weft_g_layout_init(&job, shape, &plan, 1, out, err);
}

int weft_profile_model(struct weft_profile_bench *b,
                       const struct weft_shape *shape, bool trained,
                       int32_t tp, int32_t pp, struct weft_g_model *model,
                       struct weft_g_layout *layout, struct weft_err *err)
{
    const struct weft_call_plan call = {
        .mesh = {0, 1, 0, b->n}, .dp = b->n / (tp * pp), .tp = tp, .pp = pp};
    return weft_profile_model_on(b, shape, trained, &call, model, layout,
                                 err);
}

int weft_profile_model_on(struct weft_profile_bench *b,
                          const struct weft_shape *shape, bool trained,
                          const struct weft_call_plan *call,
                          struct weft_g_model *model,
                          struct weft_g_layout *layout, struct weft_err *err)
{
    *model = (struct weft_g_model){.rt = NULL};
    int rc = weft_profile_layout(b, shape, call, layout, err);
    if (!rc && layout->on_gpus) {
        weft_g_choose_products(b->seq, layout, 1, shape, !shape->scalar_head,
                               trained);
        rc = weft_context_wait(b->seq, 0, err);
    }
    if (!rc)
        rc = weft_g_model_init(b->rt, "profiled", shape, trained, layout,
                               model, err);
    if (rc)
        return rc;
    fill_params(shape, model->fwd, model->n_places);
    fill_params(shape, model->bwd, model->n_places);
    fill_params(shape, model->opt, model->n_places);
    return 0;
}

/* ---- All --------------------------------------------------------------- */

/* What is measured of one shape, at each degree of tp. */
static int measure_shape(struct weft_profile_bench *b,
                         const struct weft_shape *shape, bool trained,
                         bool generates, bool is_new, struct weft_err *err)
{
    int32_t n = b->n;
    int64_t most = b->most_rows;
    int rc = 0;
    if (!is_new)
        b->most_rows = FEW_ROWS;
    for (int32_t tp = 1; tp <= n && tp <= shape->n_blocks && !rc; tp *= 2) {
        if (n % tp != 0)
            continue;
        double left = b->start_s + b->options->limit_s - weft_clock_s();
        b->part_end_s = weft_clock_s() + left * 0.5 / b->n_left;
        b->what = NULL;
        rc = weft_profile_train(b, shape, trained, tp, err);
        left = b->start_s + b->options->limit_s - weft_clock_s();
        b->part_end_s = weft_clock_s() + left * 0.5 / b->n_left;
        if (!rc && generates)
            rc = weft_profile_generate(b, shape, tp, 1, err);
        /* steps of stages */
        if (!rc && generates && n % (2 * tp) == 0 && shape->n_layers > 1)
            rc = weft_profile_generate(b, shape, tp, 2, err);
        b->n_left -= is_new;
    }
    b->most_rows = most;
    return rc;
}

static bool generates(const struct weft_dataflow *flow, int32_t role)
{
    return weft_flow_call_of(flow, WEFT_GENERATE, role) >= 0;
}

/* A role whose shape another one has, which does all that it does. */
static bool is_known(const struct weft_run_needs *needs, int32_t role)
{
    const struct weft_role *r = needs->flow.role;
    for (int32_t i = 0; i < needs->flow.n_roles; i++)
        if (i != role
            && weft_shape_alike(&needs->shape[i], &needs->shape[role])
            && (r[i].trained > r[role].trained
                || (r[i].trained == r[role].trained && i < role)))
            return true;
    return false;
}

/* Whether no role before it has its layers, trained if this one is. */
static bool is_new(const struct weft_run_needs *needs, int32_t role)
{
    for (int32_t i = 0; i < role; i++) {
        struct weft_shape like = needs->shape[i];
        like.scalar_head = needs->shape[role].scalar_head;
        like.tied = needs->shape[role].tied;
        if (weft_shape_alike(&like, &needs->shape[role])
            && needs->flow.role[i].trained >= needs->flow.role[role].trained)
            return false;
    }
    return true;
}

static int32_t count_parts(const struct weft_run_needs *needs,
                           int32_t n_devices)
{
    int32_t n = 0;
    for (int32_t i = 0; i < needs->flow.n_roles; i++)
        for (int32_t tp = 1;
             tp <= n_devices && tp <= needs->shape[i].n_blocks; tp *= 2)
            n += is_new(needs, i) && n_devices % tp == 0;
    return n ? n : 1;
}

static int measure(struct weft_profile_bench *b,
                   const struct weft_run_needs *needs, struct weft_err *err)
{
    int rc = weft_profile_memory(b, err);
    if (!rc)
        rc = weft_profile_samples(b, err);
    /* and one for heads that are new */
    b->n_left = count_parts(needs, b->n) + 1;
    for (int32_t i = 0; i < needs->flow.n_roles && !rc; i++)
        if (generates(&needs->flow, i))
            rc = weft_profile_moves(b, &needs->shape[i], err);
    for (int32_t i = 0; i < needs->flow.n_roles && !rc; i++)
        if (!is_known(needs, i))
            rc = measure_shape(
                b, &needs->shape[i], needs->flow.role[i].trained,
                generates(&needs->flow, i), is_new(needs, i), err);
    if (!rc)
        rc = weft_recording_status(&b->recording, err);
    if (!rc)
        rc = weft_costs_file_add(b->file, &b->recording, MOST_TASKS, b->ran,
                                 err);
    return rc ? rc
              : weft_costs_file_turns(b->file, &b->recording, MOST_TASKS,
                                      b->ran, err);
}

int weft_profile(const struct weft_config *config,
                 const struct weft_profile_options *options,
                 struct weft_costs_file *out, struct weft_err *err)
{
    struct weft_run_needs *needs = weft_alloc(1, sizeof *needs);
    int32_t n_devices = options->n_gpus + options->n_devices;
    struct weft_profile_bench b = {
        .options = options,
        .n = options->n_gpus > 0 ? options->n_gpus : options->n_devices,
        .file = out,
        .ran = weft_alloc(MOST_TASKS, sizeof *b.ran),
        .start_s = weft_clock_s(),
        .most_rows = config->train.micro_batch_tokens > 4096
                       ? config->train.micro_batch_tokens
                       : 4096,
        .most_slots = config->rollout.slots > 0 ? config->rollout.slots : 32};
    *out = (struct weft_costs_file){.n_ops = 0};
    weft_recording_init(&b.recording);
    int rc = needs && b.ran
               ? weft_profile_machine(config, b.n, &out->machine, err)
               : weft_err_nomem(err, "a profile", MOST_TASKS * sizeof *b.ran);
    if (!rc)
        rc = weft_run_needs_read(config, 1, n_devices, options->n_gpus, needs,
                                 err);
    if (!rc)
        rc = weft_context_open_with(
            &(struct weft_context_options){
                .isa = config->numerics.isa,
                .rt = {.n_devices = options->n_devices,
                       .n_gpus = options->n_gpus,
                       .first_gpu = options->first_gpu,
                       .gpu_memory_bytes =
                           (size_t) (config->runtime.gpu_memory_gib * 0x1p30),
                       .nap = -1,
                       .recording = &b.recording,
                       .task_span = b.ran,
                       .n_task_spans = MOST_TASKS}},
            &b.context, err);
    if (!rc) {
        b.rt = weft_context_rt(b.context);
        b.seq = b.context->seq;
        b.longest = needs->shape[0].max_positions;
        for (int32_t i = 0; i < needs->flow.n_roles; i++)
            if (needs->flow.role[i].every > 0)
                b.mix = needs->flow.role[i].mix;
        rc = measure(&b, needs, err);
    }
    weft_context_close(b.context);
    weft_recording_release(&b.recording);
    weft_free(b.ran);
    weft_free(needs);
    return rc;
}
