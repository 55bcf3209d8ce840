/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/options.h"

#include <string.h>

#include "base/alloc.h"
#include "run/predict/price.h"

struct finding {
    const struct weft_config *config;
    const struct weft_plan_needs *needs;
    const struct weft_find *find;
    int32_t n_devices;            /* of a node, of those that are used */
    struct weft_call_plan *tried; /* from node 0, device 0 on */
    int32_t n_tried, room;
    struct weft_option *option[WEFT_MAX_CALLS];
    int32_t n_options[WEFT_MAX_CALLS], option_room[WEFT_MAX_CALLS];
    int32_t call_of[WEFT_MAX_CALLS]; /* of the search's calls, in the graph */
};

/* Makes room for one more element. */
static bool grow(void *array, int32_t n, int32_t *room, size_t size)
{
    void **at = array;
    if (n < *room)
        return true;
    int32_t more = *room > 0 ? 2 * *room : 64;
    void *p = weft_realloc(*at, (size_t) more, size);
    if (!p)
        return false;
    *at = p;
    *room = more;
    return true;
}

/* ---- Layouts ------------------------------------------------------------ */

static int try_layout(struct finding *f, struct weft_call_plan plan,
                      struct weft_err *err)
{
    if (!grow(&f->tried, f->n_tried, &f->room, sizeof *f->tried))
        return weft_err_nomem(err, "layouts", sizeof *f->tried);
    f->tried[f->n_tried++] = plan;
    return 0;
}

/* All degrees on a mesh, and levels of ZeRO where there are replicas. */
static int try_mesh(struct finding *f, int32_t nodes, int32_t devices,
                    struct weft_err *err)
{
    int32_t size = nodes * devices;
    int rc = 0;
    for (int32_t tp = 1; tp <= devices; tp *= 2) {
        if (devices % tp != 0)
            continue;
        for (int32_t pp = 1; pp <= size / tp && pp <= WEFT_MAX_STAGES; pp++) {
            if (size / tp % pp != 0)
                continue;
            struct weft_call_plan plan = {.mesh = {0, nodes, 0, devices},
                                          .dp = size / tp / pp,
                                          .tp = tp,
                                          .pp = pp};
            for (; plan.zero <= 3 && !rc; plan.zero += plan.zero == 1 ? 2 : 1)
                if (plan.zero == 0 || plan.dp > 1)
                    rc = try_layout(f, plan, err);
        }
    }
    return rc;
}

static int try_all(struct finding *f, struct weft_err *err)
{
    int rc = 0;
    for (int32_t d = 1; d < f->n_devices && !rc; d *= 2)
        rc = try_mesh(f, 1, d, err);
    for (int32_t n = 1; n <= f->needs->n_nodes && !rc; n++)
        rc = try_mesh(f, n, f->n_devices, err);
    return rc;
}

/* Whether a call can have a layout; of those that do not train, those without
 * ZeRO alone are tried. */
static bool can(const struct finding *f, int32_t call,
                const struct weft_call_plan *p)
{
    const struct weft_dataflow *flow = f->needs->flow;
    const struct weft_flow_call *c = &flow->call[call];
    const struct weft_shape *shape = f->needs->shape[c->role];
    return p->tp <= shape->n_blocks && p->pp <= shape->n_layers
        && p->dp <= weft_plan_most_dp(f->needs, call)
        && (p->zero == 0 || c->kind == WEFT_TRAIN);
}

/* ---- Options ------------------------------------------------------------ */

static bool add_option(struct finding *f, int32_t call,
                       struct weft_call_plan plan,
                       const struct weft_priced *priced)
{
    const struct weft_dataflow *flow = f->needs->flow;
    bool trained = flow->role[flow->call[call].role].trained;
    bool trains = weft_flow_trains(flow, call);
    if (!grow(&f->option[call], f->n_options[call], &f->option_room[call],
              sizeof **f->option))
        return false;
    f->option[call][f->n_options[call]++] = (struct weft_option){
        .plan = plan,
        .seconds = priced->seconds,
        .held = trains  ? priced->weights + priced->state
              : trained ? 0
                        : priced->weights,
        .active = priced->active,
        .weights = trained && !trains ? priced->weights : 0};
    return true;
}

/* The layout wherever its mesh can be. */
static bool add_options(struct finding *f, int32_t call,
                        const struct weft_call_plan *at,
                        const struct weft_priced *priced)
{
    struct weft_call_plan p = *at;
    bool ok = true;
    for (p.mesh.node = 0;
         p.mesh.node + p.mesh.n_nodes <= f->needs->n_nodes && ok;
         p.mesh.node++)
        for (p.mesh.device = 0;
             p.mesh.device + p.mesh.n_devices <= f->n_devices && ok;
             p.mesh.device += p.mesh.n_devices)
            ok = add_option(f, call, p, priced);
    return ok;
}

/* Prices a layout for the calls that can have it; the others are on one
 * device meanwhile. */
static int price_layout(struct finding *f, const struct weft_call_plan *at,
                        struct weft_err *err)
{
    const struct weft_dataflow *flow = f->needs->flow;
    struct weft_priced priced[WEFT_MAX_CALLS] = {{0}};
    struct weft_plan plan = {0};
    uint32_t calls = 0;
    weft_plan_begin(f->needs, &plan);
    for (int32_t c = 1; c < flow->n_calls; c++) {
        if (!weft_flow_placed(flow, c))
            continue;
        bool has = can(f, c, at);
        calls |= (uint32_t) has << c;
        plan.call[c] = has
                         ? *at
                         : (struct weft_call_plan){
                             .mesh = {0, 1, 0, 1}, .dp = 1, .tp = 1, .pp = 1};
    }
    if (!calls)
        return 0;
    struct weft_g_job job = {plan.n_nodes, plan.n_devices,
                             f->config->runtime.place == WEFT_PLACE_DEVICE,
                             plan.n_gpus};
    int rc = weft_run_price(f->config, &job, &plan, f->find->simulate, priced,
                            err);
    for (int32_t c = 1; c < flow->n_calls && !rc; c++)
        if ((calls >> c & 1) && !add_options(f, c, at, &priced[c]))
            rc = weft_err_nomem(err, "options", sizeof **f->option);
    weft_plan_release(&plan);
    return rc;
}

/* ---- The problem -------------------------------------------------------- */

/* Placed calls whose results a call reads, itself or through steps. */
static uint32_t before(const struct weft_dataflow *flow, int32_t call)
{
    uint32_t set = 0;
    for (int32_t i = 1; i < flow->n_calls; i++) {
        if (i == call || !(flow->call[i].writes & flow->call[call].reads))
            continue;
        set |= weft_flow_placed(flow, i) ? 1u << i : before(flow, i);
    }
    return set;
}

/* Weights of a destination's device, by the slowest link on their way. */
static double move_s(void *ctx, int32_t role,
                     const struct weft_call_plan *from,
                     const struct weft_call_plan *to)
{
    const struct finding *f = ctx;
    const struct weft_shape *shape = f->needs->shape[role];
    const struct weft_cluster *cluster = f->find->simulate->cluster;
    /* ranks beyond the cluster's nodes share them */
    const struct weft_node_kind *node = weft_cluster_node(
        cluster,
        to->mesh.node
            / (int32_t) weft_ceil_div(f->needs->n_nodes, cluster->n_nodes));
    bool inside = from->mesh.node == to->mesh.node && from->mesh.n_nodes == 1
               && to->mesh.n_nodes == 1;
    const struct weft_link *link = inside ? &node->inside : &node->rail;
    double bytes = (double) weft_shape_n_params(shape)
                 * (double) weft_dtype_bytes(shape->dtype) / to->tp / to->pp;
    double rate = link->bytes_per_s;
    if (!inside && node->n_rails < node->n_devices)
        rate *= (double) node->n_rails / node->n_devices;
    return rate > 0 ? link->latency_s + bytes / rate : 0;
}

static void set_problem(struct finding *f, struct weft_search_problem *p)
{
    const struct weft_dataflow *flow = f->needs->flow;
    int32_t number[WEFT_MAX_CALLS] = {0};
    *p = (struct weft_search_problem){
        .n_nodes = f->needs->n_nodes,
        .n_devices = f->n_devices,
        .device_bytes = (double) f->needs->device_bytes,
        .move = move_s,
        .ctx = f};
    for (int32_t c = 1; c < flow->n_calls; c++) {
        if (!weft_flow_placed(flow, c))
            continue;
        number[c] = p->n_calls;
        f->call_of[p->n_calls] = c;
        p->call[p->n_calls++] = (struct weft_search_call){
            .option = f->option[c],
            .n_options = f->n_options[c],
            .role = flow->call[c].role,
            .trains = weft_flow_trains(flow, c),
            .trained = flow->role[flow->call[c].role].trained};
    }
    for (int32_t i = 0; i < p->n_calls; i++)
        for (uint32_t m = before(flow, f->call_of[i]); m; m &= m - 1)
            p->call[i].before |= 1u << number[__builtin_ctz(m)];
}

static int search(struct finding *f, struct weft_plan *plan,
                  struct weft_found *out, struct weft_err *err)
{
    struct weft_search_problem p;
    struct weft_search *s = NULL;
    set_problem(f, &p);
    int rc = weft_search_create(&p, &s, err);
    if (!rc)
        rc = weft_search_run(s, &f->find->how, &out->result, err);
    weft_search_free(s);
    for (int32_t i = 0; i < p.n_calls && !rc; i++) {
        plan->call[f->call_of[i]] =
            p.call[i].option[out->result.choice[i]].plan;
        out->options += p.call[i].n_options;
    }
    if (!rc && !out->result.fits)
        rc = weft_err_set(err, WEFT_EINVAL,
                          "no plan fits: the least takes %.1f GiB of a "
                          "device, which has %.1f",
                          out->result.value.bytes / 0x1p30,
                          (double) f->needs->device_bytes / 0x1p30);
    return rc;
}

static int simulate(const struct finding *f, struct weft_plan *plan,
                    struct weft_found *out, struct weft_err *err)
{
    struct weft_simulate_options o = *f->find->simulate;
    struct weft_g_job job = {plan->n_nodes, plan->n_devices,
                             f->config->runtime.place == WEFT_PLACE_DEVICE,
                             plan->n_gpus};
    o.simulated = &out->simulated;
    int rc = weft_run_simulate(f->config, &job, plan, &o, NULL, err);
    plan->predicted_s.iteration_s = out->simulated.iteration_s;
    memcpy(plan->predicted_s.call_s, out->simulated.call_s,
           sizeof plan->predicted_s.call_s);
    return rc;
}

int weft_run_find(const struct weft_config *config,
                  const struct weft_plan_needs *needs,
                  const struct weft_find *find, struct weft_plan *plan_out,
                  struct weft_found *out, struct weft_err *err)
{
    struct finding f = {.config = config,
                        .needs = needs,
                        .find = find,
                        .n_devices = weft_plan_n_used(needs)};
    *out = (struct weft_found){.options = 0};
    int rc = try_all(&f, err);
    for (int32_t i = 0; i < f.n_tried && !rc; i++) {
        rc = price_layout(&f, &f.tried[i], err);
        if (find->progress)
            find->progress(i + 1, f.n_tried);
    }
    out->layouts = f.n_tried;
    weft_plan_begin(needs, plan_out);
    if (!rc)
        rc = search(&f, plan_out, out, err);
    if (!rc)
        rc = weft_plan_check(plan_out, needs, err);
    if (!rc)
        rc = simulate(&f, plan_out, out, err);
    for (int32_t c = 0; c < WEFT_MAX_CALLS; c++)
        weft_free(f.option[c]);
    weft_free(f.tried);
    return rc;
}
