/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/options_inside.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "graphs/algorithms.h"
#include "run/predict/together.h"
#include "run/trainer.h"

bool weft_finding_grow(void *array, int32_t n, int32_t *room, size_t size)
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

bool weft_finding_stops(const struct weft_finding *f)
{
    const struct weft_find *find = f->find;
    bool (*stop)(void *ctx) = find->stop_pricing ? find->stop_pricing
                                                 : find->how.stop;
    return stop && stop(find->how.ctx);
}

void weft_finding_tell(const struct weft_finding *f,
                       enum weft_find_stage stage, int64_t done, int64_t of)
{
    if (f->find->progress)
        f->find->progress(stage, (int32_t) done, (int32_t) of);
}

/* ---- Layouts ------------------------------------------------------------ */

/* The most nodes of which every number makes a mesh, anywhere, as in ReaL; of
 * more they are powers of two, at multiples of that, as all would be four times
 * the layouts on 16 nodes (doc/strategies.md). */
enum { FEW_NODES = 8 };

static int32_t step_of(const struct weft_finding *f, int32_t n_nodes)
{
    return f->needs->n_nodes > FEW_NODES ? n_nodes : 1;
}

static int32_t larger(const struct weft_finding *f, int32_t n_nodes)
{
    return f->needs->n_nodes > FEW_NODES ? 2 * n_nodes : n_nodes + 1;
}

/* Whether n ranks from a on and from b on are on nodes of the same kinds, and
 * share these alike: a layout has one price there. */
static bool are_alike(const struct weft_finding *f, int32_t a, int32_t b,
                      int32_t n)
{
    const struct weft_cluster *cluster = f->find->simulate->cluster;
    int32_t node[2], last[2] = {0, 0}, first;
    for (int32_t i = 0; i < n && cluster->n_kinds > 1; i++) {
        for (int k = 0; k < 2; k++)
            node[k] = weft_cluster_rank(cluster, f->needs->n_nodes,
                                        f->n_devices, (k ? b : a) + i,
                                        &first);
        if (weft_cluster_node(cluster, node[0])
                != weft_cluster_node(cluster, node[1])
            || (i > 0 && (node[0] == last[0]) != (node[1] == last[1])))
            return false;
        memcpy(last, node, sizeof last);
    }
    return true;
}

static int try_degrees(struct weft_finding *f,
                       const struct weft_call_plan *plan,
                       struct weft_err *err)
{
    if (!weft_finding_grow(&f->tried, f->n_tried, &f->room, sizeof *f->tried))
        return weft_err_nomem(err, "layouts", sizeof *f->tried);
    f->tried[f->n_tried++] = *plan;
    return 0;
}

/* All degrees on a mesh. */
static int try_mesh(struct weft_finding *f, const struct weft_mesh *mesh,
                    struct weft_err *err)
{
    int32_t size = weft_mesh_size(mesh), devices = mesh->n_devices;
    int rc = 0;
    for (int32_t tp = 1; tp <= devices; tp *= 2) {
        if (devices % tp != 0)
            continue;
        for (int32_t pp = 1; pp <= size / tp && pp <= WEFT_MAX_STAGES && !rc;
             pp++) {
            const struct weft_call_plan plan = {
                .mesh = *mesh, .dp = size / tp / pp, .tp = tp, .pp = pp};
            if (size / tp % pp == 0)
                rc = try_degrees(f, &plan, err);
        }
    }
    return rc;
}

/* Meshes of so many nodes: one of those that are alike. */
static int try_meshes(struct weft_finding *f, int32_t nodes, int32_t devices,
                      struct weft_err *err)
{
    struct weft_mesh m = {0, nodes, 0, devices};
    int32_t step = step_of(f, nodes);
    int rc = 0;
    for (; m.node + nodes <= f->needs->n_nodes && !rc; m.node += step) {
        int32_t k = 0;
        while (!are_alike(f, k, m.node, nodes))
            k += step;
        if (k == m.node)
            rc = try_mesh(f, &m, err);
    }
    return rc;
}

/* The largest meshes first: where time is up before all are priced, every call
 * has some. */
static int try_all(struct weft_finding *f, struct weft_err *err)
{
    int32_t nodes[WEFT_MAX_NODES + 1], n_sizes = 0;
    int rc = 0;
    for (int32_t n = 1; n <= f->needs->n_nodes; n = larger(f, n))
        nodes[n_sizes++] = n;
    if (nodes[n_sizes - 1] < f->needs->n_nodes)
        nodes[n_sizes++] = f->needs->n_nodes;
    for (int32_t i = n_sizes - 1; i >= 0 && !rc; i--)
        rc = try_meshes(f, nodes[i], f->n_devices, err);
    int32_t part = 1;
    while (2 * part < f->n_devices)
        part *= 2;
    for (; part > 0 && part < f->n_devices && !rc; part /= 2)
        rc = try_meshes(f, 1, part, err);
    return rc;
}

/* ---- Options ------------------------------------------------------------ */

int weft_finding_add(struct weft_finding *f, int32_t call,
                     const struct weft_option *o, struct weft_err *err)
{
    if (!weft_finding_grow(&f->variant[call], f->n_variants[call],
                           &f->variant_room[call], sizeof **f->variant))
        return weft_err_nomem(err, "options", sizeof **f->variant);
    f->variant[call][f->n_variants[call]++] = *o;
    return 0;
}

/* The share of its time that a device needs for a call, which works `times` as
 * long as the mean. */
static double share_of(const struct weft_priced *priced, double times)
{
    double busy = times * priced->busy_s / priced->seconds;
    return 1 - WEFT_FINDING_BUBBLES * fmax(1 - busy, 0);
}

struct weft_option weft_finding_option(const struct weft_finding *f,
                                       int32_t call,
                                       const struct weft_call_plan *plan,
                                       const struct weft_priced *priced)
{
    const struct weft_dataflow *flow = f->needs->flow;
    const struct weft_role *role = &flow->role[flow->call[call].role];
    bool trains = weft_flow_trains(flow, call);
    struct weft_option o = {.plan = *plan,
                            .seconds = priced->seconds,
                            .passes_s = priced->passes_s,
                            .share = share_of(priced, 1),
                            .held = priced->state,
                            .active = priced->active,
                            .gang = priced->gang,
                            .any_device = priced->any_device,
                            .task_s = priced->task_s,
                            .long_task_s = priced->long_task_s,
                            .micro_batches = priced->micro_batches};
    for (int k = 0; k < WEFT_CLUSTER_KINDS; k++)
        o.uneven[k] =
            (float) (share_of(priced, 1 + priced->uneven[k]) / o.share - 1);
    for (int k = 0; k < WEFT_SEARCH_PARTS; k++)
        o.came[k] = fmin(fmax(priced->came[k], k > 0 ? o.came[k - 1] : 0), 1);
    if ((role->trained && !trains) || role->shares >= 0)
        o.weights = priced->weights;
    else
        o.held += priced->weights; /* those that are offloaded are active */
    return o;
}

/* Whether a call can have a layout, and its weights fit the devices. */
static bool can(const struct weft_finding *f, int32_t call,
                const struct weft_call_plan *p)
{
    const struct weft_shape *s =
        f->needs->shape[f->needs->flow->call[call].role];
    double bytes = (double) weft_shape_n_params(s)
                 * (double) weft_dtype_bytes(s->dtype) / p->tp / p->pp;
    return weft_price_can(f->needs, call, p)
        && bytes <= (double) f->needs->device_bytes;
}

/* Lists a layout for a set of calls. */
static int list(struct weft_finding *f, const struct weft_call_plan *at,
                uint32_t calls, struct weft_err *err)
{
    int rc = 0;
    for (uint32_t m = calls; m && !rc; m &= m - 1)
        rc = weft_candidate_add(f, __builtin_ctz(m), at, err);
    return rc;
}

/* The next number of micro-batches of a gradient group: as many as tokens ask
 * for (0), or 1, 2, 4 and so on. */
static bool more_micro_batches(const struct weft_finding *f,
                               struct weft_call_plan *at)
{
    int32_t steps = f->mini_batches * f->needs->gradient_groups;
    at->micro_batches = at->micro_batches == 0 ? 1 : 2 * at->micro_batches;
    return at->micro_batches <= 2 * at->pp
        && (int64_t) at->micro_batches * steps <= f->needs->n_samples;
}

/* Lists a layout, and where that saves memory, with optimizer states offloaded,
 * for calls that exceed a device without. */
static int list_offloaded(struct weft_finding *f,
                          const struct weft_call_plan *at, uint32_t calls,
                          bool saving, struct weft_err *err)
{
    struct weft_call_plan off = *at;
    int rc = list(f, at, calls, err);
    off.offload = true;
    return rc || !saving ? rc : list(f, &off, calls, err);
}

/* Lists it also with hpz, where that means something. */
static int list_hpz(struct weft_finding *f, struct weft_call_plan at,
                    uint32_t calls, bool saving, struct weft_err *err)
{
    int32_t nodes = at.mesh.n_nodes;
    int rc = list_offloaded(f, &at, calls, saving, err);
    at.hpz = at.zero == 3 && nodes > 1 && at.dp > nodes;
    return rc || !at.hpz ? rc : list_offloaded(f, &at, calls, saving, err);
}

/* All that training can have beside a layout's degrees. saving: what takes more
 * time to need less memory; else the others. ZeRO 2 and 3 are tried with as
 * many micro-batches as tokens ask for alone, 3 also with hpz, where nodes have
 * several replicas. */
static int list_training(struct weft_finding *f, struct weft_call_plan at,
                         uint32_t calls, bool saving, struct weft_err *err)
{
    int rc = 0;
    do {
        int32_t most_zero = at.dp == 1 ? 0 : at.micro_batches > 0 ? 1 : 3;
        for (at.zero = 0; at.zero <= most_zero && !rc; at.zero++)
            for (int32_t r = 0; r <= 1 && !rc; r++) {
                at.recompute = r;
                bool saves = r || (at.pp == 1 && at.micro_batches > 0);
                if (saves == saving)
                    rc = list_hpz(f, at, calls, saving, err);
            }
        at.zero = 0;
    } while (!rc && more_micro_batches(f, &at));
    return rc;
}

static int list_all(struct weft_finding *f, bool saving, struct weft_err *err)
{
    const struct weft_dataflow *flow = f->needs->flow;
    int rc = 0;
    for (int32_t i = 0; i < f->n_tried && !rc; i++) {
        struct weft_call_plan at = f->tried[i];
        uint32_t trains = 0, others = 0, frozen = 0, infers = 0;
        for (int32_t c = 1; c < flow->n_calls; c++) {
            if (!weft_flow_placed(flow, c) || !can(f, c, &at))
                continue;
            bool t = weft_flow_trains(flow, c);
            trains |= (uint32_t) t << c;
            others |= (uint32_t) !t << c;
            infers |= (uint32_t) (flow->call[c].kind == WEFT_INFER) << c;
            frozen |= (uint32_t) weft_flow_frozen(flow, c) << c;
        }
        rc = list_training(f, at, trains, saving, err);
        if (!rc && !saving)
            rc = list(f, &at, others, err);
        for (int32_t n = 1; n <= 2 * at.pp && at.pp > 1 && !rc && !saving;
             n *= 2) {
            at.micro_batches = n;
            rc = list(f, &at, infers, err);
        }
        at.micro_batches = 0;
        at.offload = true;
        if (!rc && saving)
            rc = list(f, &at, frozen & infers, err);
    }
    return rc;
}

/* Each call has a layout of those that the configuration allows. */
static int check_listed(const struct weft_finding *f, struct weft_err *err)
{
    const struct weft_dataflow *flow = f->needs->flow;
    for (int32_t c = 1; c < flow->n_calls && f->fixed.any; c++)
        if (weft_flow_placed(flow, c) && f->candidates[c].n == 0)
            return weft_err_set(err, WEFT_EINVAL,
                                "layout '%.100s': %s has no such layout on "
                                "%d nodes of %d devices",
                                f->config->layout, flow->call[c].name,
                                f->needs->n_nodes, f->n_devices);
    return 0;
}

/* Whether memory can ever count: what all calls together hold and need, each in
 * the layout that takes most, exceeds a device. */
static bool memory_counts(const struct weft_finding *f)
{
    double sum = 0;
    for (int32_t c = 0; c < WEFT_MAX_CALLS; c++) {
        double most = 0;
        for (int32_t i = 0; i < f->n_variants[c]; i++) {
            const struct weft_option *o = &f->variant[c][i];
            double bytes = o->held + o->active + o->weights;
            most = bytes > most ? bytes : most;
        }
        sum += most;
    }
    return sum > (double) f->needs->device_bytes;
}

/* Lists layouts and prices them; those that save memory where that counts, as
 * may be known of a few layouts already. */
static int price_all(struct weft_finding *f, struct weft_err *err)
{
    int rc = list_all(f, false, err);
    if (!rc)
        rc = check_listed(f, err);
    if (!rc && weft_candidates_bounded(f))
        rc = weft_candidates_probe(f, err);
    bool saving = !rc && memory_counts(f);
    if (saving)
        rc = list_all(f, true, err);
    if (!rc)
        rc = weft_candidates_price(f, err);
    if (!rc && !saving && memory_counts(f)) {
        rc = list_all(f, true, err);
        if (!rc)
            rc = weft_candidates_price(f, err);
    }
    return rc ? rc : weft_candidates_leave(f, err);
}

/* ---- Places ------------------------------------------------------------- */

/* Whether a call, 0: both that train, may be on a mesh. */
static bool allows(const struct weft_finding *f, int32_t call,
                   const struct weft_mesh *mesh)
{
    return call > 0 ? weft_fixed_allows(&f->fixed, call, mesh)
                    : weft_fixed_allows(&f->fixed, f->fused[0], mesh)
                          && weft_fixed_allows(&f->fixed, f->fused[1], mesh);
}

static int place_at(struct weft_finding *f, int32_t call,
                    const struct weft_option *at, int32_t n,
                    const struct weft_mesh *mesh, struct weft_err *err)
{
    for (int32_t i = 0; i < n && allows(f, call, mesh); i++) {
        if (!weft_finding_grow(&f->option[call], f->n_options[call],
                               &f->option_room[call], sizeof **f->option))
            return weft_err_nomem(err, "options", sizeof **f->option);
        struct weft_option *o = &f->option[call][f->n_options[call]++];
        *o = at[i];
        o->plan.mesh = o->with.mesh = *mesh;
    }
    return 0;
}

/* Options of one mesh follow one another. */
static int place_call(struct weft_finding *f, int32_t call,
                      struct weft_err *err)
{
    const struct weft_option *v = f->variant[call];
    int rc = 0;
    for (int32_t i = 0, n; i < f->n_variants[call]; i += n) {
        struct weft_mesh m = v[i].plan.mesh;
        int32_t step = step_of(f, m.n_nodes), first = m.node;
        for (n = 1; i + n < f->n_variants[call]
                    && memcmp(&v[i + n].plan.mesh, &m, sizeof m) == 0;)
            n++;
        for (m.node = 0; m.node + m.n_nodes <= f->needs->n_nodes && !rc;
             m.node += step)
            for (m.device = 0; m.device + m.n_devices <= f->n_devices && !rc;
                 m.device += m.n_devices)
                if (are_alike(f, first, m.node, m.n_nodes))
                    rc = place_at(f, call, v + i, n, &m, err);
    }
    return rc;
}

/* Leaves out layouts with which a call exceeds a device by itself, if it has
 * others: no plan with one of them fits. */
static void leave_out_large(struct weft_finding *f, int32_t call)
{
    struct weft_option *v = f->variant[call];
    double has = (double) f->needs->device_bytes;
    int32_t n = 0;
    for (int32_t i = 0; i < f->n_variants[call]; i++)
        n += v[i].held + v[i].active <= has;
    for (int32_t i = 0, kept = 0; n > 0 && i < f->n_variants[call]; i++)
        if (v[i].held + v[i].active <= has)
            v[kept++] = v[i];
    if (n > 0)
        f->n_variants[call] = n;
}

static bool is_later(const struct weft_mesh *a, const struct weft_mesh *b)
{
    int32_t more = weft_mesh_size(b) - weft_mesh_size(a);
    return more > 0 || (more == 0 && a->node > b->node);
}

/* Those on one mesh together, in the order in which they were priced. */
static void sort_variants(struct weft_option *v, int32_t n)
{
    for (int32_t i = 1; i < n; i++) {
        struct weft_option o = v[i];
        int32_t at = i;
        for (; at > 0 && is_later(&v[at - 1].plan.mesh, &o.plan.mesh); at--)
            v[at] = v[at - 1];
        v[at] = o;
    }
}

/* ---- The problem -------------------------------------------------------- */

/* Roles whose frozen weights are the same, as LoRA adapters are beside them. */
static int32_t trunk_of(const struct weft_finding *f, int32_t role)
{
    int32_t shares = f->needs->flow->role[role].shares;
    if (shares >= 0)
        return shares + 1;
    return f->needs->shape[role]->lora_rank > 0 ? role + 1 : 0;
}

/* As tasks have them in a run. */
static int priority_of(const struct weft_dataflow *flow, int32_t call)
{
    if (flow->call[call].kind == WEFT_GENERATE)
        return WEFT_PRIORITY_GENERATE;
    if (!weft_flow_trains(flow, call))
        return WEFT_PRIORITY_INFER_AHEAD;
    return flow->call[call].role == 0 ? WEFT_PRIORITY_TRAIN_POLICY
                                      : WEFT_PRIORITY_TRAIN;
}

/* The trainings that generation begins behind (weft_g_generate_behind()): those
 * of other models, if it waits for new weights itself and for all training. */
static uint32_t behind(const struct weft_finding *f,
                       const struct weft_search_problem *p, int32_t call)
{
    const struct weft_dataflow *flow = f->needs->flow;
    uint32_t set = 0;
    if (flow->call[f->call_of[call]].kind != WEFT_GENERATE
        || flow->staleness > 0 || f->config->train.as_completed)
        return 0;
    for (int32_t t = 0; t < p->n_calls; t++)
        if (p->call[t].trains && p->call[t].role != p->call[call].role)
            set |= 1u << t;
    return set;
}

/* Where kinds of nodes end, as the cluster numbers them. */
static void set_kinds(const struct weft_finding *f,
                      struct weft_search_problem *p)
{
    const struct weft_cluster *cluster = f->find->simulate->cluster;
    for (int32_t n = p->n_nodes - 1, first; n > 0; n--) {
        int32_t node = weft_cluster_rank(cluster, p->n_nodes, f->n_devices, n,
                                         &first);
        const struct weft_node_kind *kind = weft_cluster_node(cluster, node);
        if (kind > cluster->kind)
            p->kind_ends[kind - cluster->kind - 1] = n;
    }
}

void weft_finding_set_problem(struct weft_finding *f,
                              struct weft_search_problem *p)
{
    const struct weft_dataflow *flow = f->needs->flow;
    int32_t number[WEFT_MAX_CALLS] = {0};
    *p = (struct weft_search_problem){
        .n_nodes = f->needs->n_nodes,
        .n_devices = f->n_devices,
        .device_bytes = (double) f->needs->device_bytes,
        /* 0 would say that no layout was left out */
        .left_out_s = fmax(f->left_out_s, DBL_MIN),
        .alike = f->find->simulate->cluster->n_kinds == 1 && !f->fixed.meshes,
        .one_by_one = !f->config->train.as_completed,
        .move = weft_moving_s,
        .ctx = &f->moving};
    set_kinds(f, p);
    for (int32_t c = 1; c < flow->n_calls; c++) {
        if (!weft_flow_placed(flow, c))
            continue;
        number[c] = p->n_calls;
        f->call_of[p->n_calls] = c;
        p->call[p->n_calls++] = (struct weft_search_call){
            .option = f->option[c],
            .n_options = f->n_options[c],
            .role = flow->call[c].role,
            .priority = priority_of(flow, c),
            .trains = weft_flow_trains(flow, c),
            .trained = flow->role[flow->call[c].role].trained,
            .trunk = trunk_of(f, flow->call[c].role),
            .moves = f->moves && flow->call[c].kind == WEFT_GENERATE};
    }
    for (int32_t i = 0; i < p->n_calls; i++) {
        for (uint32_t m = weft_before(flow, f->call_of[i]); m; m &= m - 1)
            p->call[i].before |= 1u << number[__builtin_ctz(m)];
        p->call[i].behind = behind(f, p, i);
    }
    p->n_together = weft_together(flow, p->n_calls, f->call_of, p->together);
}

int weft_finding_check_priced(const struct weft_finding *f, int32_t call,
                              struct weft_err *err)
{
    const char *name = f->needs->flow->call[call].name;
    if (!weft_flow_placed(f->needs->flow, call) || f->n_variants[call] > 0)
        return 0;
    if (f->stopped)
        return weft_err_set(err, WEFT_EINVAL,
                            "the search was stopped before it had a layout "
                            "for %s: give it more time",
                            name);
    if (f->n_left_out > 0)
        return weft_err_set(err, WEFT_ENOMEM,
                            "to price a layout of %s takes too much memory, "
                            "whatever the layout: allow its recording more "
                            "(weft plan --search --recording MIB)",
                            name);
    return 0;
}

int weft_finding_place(struct weft_finding *f, struct weft_search_problem *p,
                       int64_t *options_out, struct weft_err *err)
{
    int rc = 0;
    for (int32_t c = 1; c < f->needs->flow->n_calls && !rc; c++)
        rc = weft_finding_check_priced(f, c, err);
    for (int32_t c = 0; c < WEFT_MAX_CALLS && !rc; c++) {
        f->n_options[c] = 0;
        leave_out_large(f, c);
        sort_variants(f->variant[c], f->n_variants[c]);
        rc = place_call(f, c, err);
    }
    weft_finding_set_problem(f, p);
    for (int32_t i = 0; i < p->n_calls; i++)
        *options_out += p->call[i].n_options;
    return rc;
}

int weft_finding_prune(struct weft_finding *f, struct weft_search_problem *p,
                       struct weft_err *err)
{
    struct weft_option *array[WEFT_MAX_CALLS];
    for (int32_t i = 0; i < p->n_calls; i++)
        array[i] = f->option[f->call_of[i]];
    return weft_search_prune(p, array, err);
}

int weft_finding_problem(struct weft_finding *f,
                         struct weft_search_problem *p, int64_t *options_out,
                         struct weft_err *err)
{
    int rc = weft_finding_place(f, p, options_out, err);
    return rc ? rc : weft_finding_prune(f, p, err);
}

int weft_finding_begin(const struct weft_config *config,
                       const struct weft_plan_needs *needs,
                       const struct weft_find *find, struct weft_finding *f,
                       struct weft_err *err)
{
    struct weft_settings settings;
    *f = (struct weft_finding){
        .config = config,
        .needs = needs,
        .find = find,
        .moving = {.n_nodes = needs->n_nodes,
                   .n_devices = weft_plan_n_used(needs),
                   .cluster = find->simulate->cluster},
        .n_devices = weft_plan_n_used(needs),
        .left_out_s = INFINITY};
    memcpy(f->moving.shape, needs->shape, sizeof f->moving.shape);
    weft_settings_of(config, &settings);
    f->mini_batches = settings.mini_batches;
    f->steps = settings.mini_batches * settings.epochs;
    int rc = weft_fixed_read(weft_config_plans(config) ? config->layout
                                                       : NULL,
                             needs, &f->fixed, err);
    return rc ? rc
              : weft_pricer_create(config, needs, find->simulate, false,
                                   &f->pricer, err);
}

int weft_finding_open(const struct weft_config *config,
                      const struct weft_plan_needs *needs,
                      const struct weft_find *find, struct weft_finding *f,
                      struct weft_err *err)
{
    int rc = weft_finding_begin(config, needs, find, f, err);
    if (!rc)
        rc = try_all(f, err);
    return rc ? rc : price_all(f, err);
}

void weft_finding_free_options(struct weft_finding *f)
{
    for (int32_t c = 0; c < WEFT_MAX_CALLS; c++) {
        weft_free(f->variant[c]);
        weft_free(f->option[c]);
        weft_free(f->copy[c]);
    }
}

void weft_finding_close(struct weft_finding *f)
{
    if (f->moved)
        weft_finding_free_options(f->moved);
    weft_free(f->moved);
    weft_finding_free_options(f);
    for (int32_t c = 0; c < WEFT_MAX_CALLS; c++) {
        for (int32_t k = 0; k < f->candidates[c].n; k++)
            weft_free(f->candidates[c].at[k].ahead);
        weft_free(f->candidates[c].at);
    }
    weft_free(f->tried);
    weft_pricer_free(f->pricer);
}
