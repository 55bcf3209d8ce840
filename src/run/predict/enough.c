/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/enough.h"

#include <math.h>

#include "run/predict/options_inside.h"

/* Calls are tried on all nodes, a half, a third and a quarter of them, each in
 * so many places at most, and with 1, 2 and 4 replicas. */
enum { PARTS = 4, PLACES = 8, REPLICAS = 4 };

/* ---- Clusters ----------------------------------------------------------- */

int32_t weft_enough_step(const struct weft_cluster *cluster)
{
    int32_t common = cluster->n_nodes, step = 0;
    for (int32_t i = 0; i < cluster->n_kinds; i++)
        for (int32_t b = cluster->kind[i].n_nodes; b != 0;) {
            int32_t rest = common % b;
            common = b;
            b = rest;
        }
    for (int32_t i = 0; i < cluster->n_kinds; i++)
        step += cluster->kind[i].n_nodes / common;
    return step;
}

/* The cluster with other numbers of nodes, in the same proportion. */
static struct weft_cluster resized(const struct weft_cluster *cluster,
                                   int32_t n_nodes)
{
    struct weft_cluster out = *cluster;
    out.n_nodes = n_nodes;
    for (int32_t i = 0; i < out.n_kinds; i++)
        out.kind[i].n_nodes = (int32_t) ((int64_t) cluster->kind[i].n_nodes
                                         * n_nodes / cluster->n_nodes);
    return out;
}

/* ---- Layouts ------------------------------------------------------------ */

/* One of n parts of all nodes, or of the devices of a node; none: 0 devices. */
static struct weft_mesh part_of(const struct weft_finding *f, int32_t n)
{
    struct weft_mesh mesh = {0, f->needs->n_nodes / n, 0, f->n_devices};
    if (mesh.n_nodes == 0) {
        mesh.n_nodes = 1;
        for (mesh.n_devices = 1; 2 * mesh.n_devices * n <= f->n_devices;)
            mesh.n_devices *= 2;
    }
    return mesh;
}

/* The most tp members that a call can have on a mesh: a power of two. */
static int32_t most_tp(const struct weft_finding *f, int32_t call,
                       const struct weft_mesh *mesh)
{
    const struct weft_shape *s =
        f->needs->shape[f->needs->flow->call[call].role];
    int32_t tp = 1;
    while (2 * tp <= s->n_blocks && mesh->n_devices % (2 * tp) == 0)
        tp *= 2;
    return tp;
}

/* A layout of a call with dp replicas on so many nodes, or fewer, where that
 * makes no whole stages; false: there is none. */
static bool lay_out(const struct weft_finding *f, int32_t call, int32_t dp,
                    struct weft_mesh mesh, struct weft_call_plan *out)
{
    const struct weft_dataflow *flow = f->needs->flow;
    bool trains = weft_flow_trains(flow, call);
    int32_t tp = most_tp(f, call, &mesh), each = mesh.n_devices;
    int32_t layers = f->needs->shape[flow->call[call].role]->n_layers;
    int32_t pp = weft_min32(weft_mesh_size(&mesh) / tp / dp,
                            weft_min32(layers, WEFT_MAX_STAGES));
    while (pp > 0 && dp * tp * pp % each != 0)
        pp--;
    if (pp == 0)
        return false;
    mesh.n_nodes = dp * tp * pp / each;
    *out = (struct weft_call_plan){.mesh = mesh,
                                   .dp = dp,
                                   .tp = tp,
                                   .pp = pp,
                                   .zero = trains && dp > 1 ? 3 : 0,
                                   .recompute = trains,
                                   .offload = weft_flow_frozen(flow, call)
                                           && flow->call[call].kind
                                                  == WEFT_INFER};
    return weft_price_can(f->needs, call, out);
}

/* The option, wherever its mesh can be. */
static int place(struct weft_finding *f, int32_t call, struct weft_option *o,
                 struct weft_err *err)
{
    struct weft_mesh *m = &o->plan.mesh;
    int32_t nodes = f->needs->n_nodes, each = f->n_devices;
    int32_t step = nodes <= PLACES ? 1 : m->n_nodes; /* few: anywhere */
    for (int32_t i = 0; i < PLACES; i++) {
        int32_t device = i * m->n_devices;
        m->device = m->n_devices < each ? device % each : 0;
        m->node = m->n_devices < each ? device / each : i * step;
        if (m->node + m->n_nodes > nodes)
            break;
        if (!weft_finding_grow(&f->option[call], f->n_options[call],
                               &f->option_room[call], sizeof **f->option))
            return weft_err_nomem(err, "options", sizeof **f->option);
        f->option[call][f->n_options[call]++] = *o;
    }
    return 0;
}

static bool is_listed(const struct weft_finding *f, int32_t call,
                      const struct weft_call_plan *at)
{
    for (int32_t i = 0; i < f->n_options[call]; i++) {
        const struct weft_call_plan *p = &f->option[call][i].plan;
        if (p->mesh.n_nodes == at->mesh.n_nodes
            && p->mesh.n_devices == at->mesh.n_devices && p->dp == at->dp)
            return true;
    }
    return false;
}

/* Prices a layout. As in a search optimizer states are offloaded where what a
 * call holds exceeds a device by itself. */
static int price(struct weft_finding *f, int32_t call,
                 struct weft_call_plan *at, struct weft_option *out,
                 struct weft_err *err)
{
    struct weft_priced priced[WEFT_MAX_CALLS];
    int rc = weft_pricer_price(f->pricer, at, 1u << call, priced, err);
    if (rc)
        return rc;
    *out = weft_finding_option(f, call, at, &priced[call]);
    if (out->held <= (double) f->needs->device_bytes || at->offload
        || !weft_flow_trains(f->needs->flow, call))
        return 0;
    at->offload = true;
    return price(f, call, at, out, err);
}

static int list(struct weft_finding *f, int32_t call, struct weft_err *err)
{
    int rc = 0;
    for (int32_t n = 1; n <= PARTS && !rc; n++) {
        const struct weft_mesh mesh = part_of(f, n);
        for (int32_t dp = 1; dp <= REPLICAS && !rc; dp *= 2) {
            struct weft_call_plan at;
            struct weft_option o;
            if (!lay_out(f, call, dp, mesh, &at) || is_listed(f, call, &at))
                continue;
            rc = price(f, call, &at, &o, err);
            if (!rc)
                rc = place(f, call, &o, err);
        }
    }
    return rc;
}

/* ---- Memory ------------------------------------------------------------- */

/* What takes most of a device in a choice. */
static void find_most(const struct weft_finding *f,
                      const struct weft_search_problem *p,
                      const int32_t *choice, struct weft_enough *out)
{
    const struct weft_dataflow *flow = f->needs->flow;
    *out = (struct weft_enough){.bytes = 0};
    for (int32_t i = 0; i < p->n_calls; i++) {
        const struct weft_option *o = &p->call[i].option[choice[i]];
        int32_t c = f->call_of[i];
        enum weft_mem_class held = flow->call[c].kind == WEFT_GENERATE
                                     ? WEFT_MEM_KV
                                 : weft_flow_trains(flow, c)
                                     ? WEFT_MEM_GRADIENTS
                                     : WEFT_MEM_WEIGHTS;
        const struct weft_enough part[] = {
            {0, c, held, o->held},
            {0, c, WEFT_MEM_ACTIVATIONS, o->active},
            {0, c, WEFT_MEM_WEIGHTS, o->weights}};
        for (size_t k = 0; k < WEFT_COUNT(part); k++)
            if (part[k].bytes > out->bytes)
                *out = part[k];
    }
}

/* The choice that takes least: the search asks for it where nothing fits. */
static int find_least(struct weft_finding *f, double *bytes_out,
                      struct weft_enough *most_out, struct weft_err *err)
{
    const struct weft_search_how how = {
        .method = WEFT_SEARCH_ALL, .seed = 1, .evaluations = 20000};
    struct weft_search_problem p;
    struct weft_search_result r;
    struct weft_search *s = NULL;
    weft_finding_set_problem(f, &p);
    p.device_bytes = 1;
    int rc = weft_search_create(&p, &s, err);
    if (!rc)
        rc = weft_search_run(s, &how, &r, err);
    weft_search_free(s);
    if (rc)
        return rc;
    *bytes_out = r.value.bytes;
    find_most(f, &p, r.choice, most_out);
    return 0;
}

int weft_run_least_bytes(const struct weft_config *config,
                         const struct weft_plan_needs *needs,
                         const struct weft_simulate_options *simulate,
                         int32_t n_nodes, double *bytes_out,
                         struct weft_enough *most_out, struct weft_err *err)
{
    struct weft_plan_needs some = *needs;
    struct weft_simulate_options options = *simulate;
    struct weft_cluster cluster = resized(simulate->cluster, n_nodes);
    const struct weft_find find = {.simulate = &options};
    struct weft_finding f;
    int32_t used = weft_plan_n_used(needs);
    options.cluster = &cluster;
    options.gangs = true;
    some.n_nodes = n_nodes;
    if (used == weft_cluster_common(&cluster)) /* of unlike nodes */
        some.n_nodes = weft_cluster_fits(&cluster, used);
    if (some.cluster)
        some.cluster = &cluster;
    int rc = weft_finding_begin(config, &some, &find, &f, err);
    if (!rc && f.fixed.any)
        rc = weft_err_set(err, WEFT_EINVAL, "layouts are fixed");
    for (int32_t c = 1; c < needs->flow->n_calls && !rc; c++)
        if (weft_flow_placed(needs->flow, c))
            rc = list(&f, c, err);
    if (!rc)
        rc = find_least(&f, bytes_out, most_out, err);
    weft_finding_close(&f);
    return rc;
}

/* Whether so many times the least number of nodes are enough. less_out: so many
 * are not; on fewer nodes a device has nearly as much more at least. */
static int fits(const struct weft_config *config,
                const struct weft_plan_needs *needs,
                const struct weft_simulate_options *simulate, int32_t steps,
                struct weft_enough *out, bool *fits_out, int32_t *less_out,
                struct weft_err *err)
{
    const double nearly = 0.8;
    double has = (double) needs->device_bytes, bytes = INFINITY;
    int32_t n_nodes = steps * weft_enough_step(simulate->cluster);
    int rc = weft_run_least_bytes(config, needs, simulate, n_nodes, &bytes,
                                  out, err);
    *fits_out = bytes <= has;
    double least = fmin(nearly * steps * bytes / has, WEFT_MAX_NODES);
    *less_out = *fits_out ? 0 : weft_max32(steps, (int32_t) least);
    return rc;
}

int weft_run_enough(const struct weft_config *config,
                    const struct weft_plan_needs *needs,
                    const struct weft_simulate_options *simulate,
                    int32_t n_nodes, struct weft_enough *out,
                    struct weft_err *err)
{
    int32_t step = weft_enough_step(simulate->cluster);
    int32_t most = WEFT_MAX_NODES / step;
    /* steps: what may be enough, and too few */
    int32_t enough = weft_max32(n_nodes / step, 1), few = enough - 1;
    int32_t less;
    bool fit = false;
    int rc = fits(config, needs, simulate, enough, out, &fit, &less, err);
    while (!rc && !fit && enough < most) {
        few = weft_min32(weft_max32(few, less), most - 1);
        enough = weft_min32(weft_max32(2 * enough, few + 1 + few / 4), most);
        rc = fits(config, needs, simulate, enough, out, &fit, &less, err);
    }
    if (rc || !fit)
        return rc;
    while (enough - few > 1 && !rc) {
        int32_t n = few + (enough - few) / 2;
        rc = fits(config, needs, simulate, n, out, &fit, &less, err);
        if (fit)
            enough = n;
        else
            few = weft_max32(few, weft_min32(less, enough - 1));
    }
    *out = (struct weft_enough){.n_nodes = enough * step};
    return rc;
}
