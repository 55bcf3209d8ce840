/* SPDX-License-Identifier: Apache-2.0 */
/* How large the runs are that are recorded to price a layout, and how far along
 * the lines through their prices the whole run is. */
#include <math.h>

#include "plan/deal.h"
#include "plan/shares.h"
#include "run/predict/pricer_inside.h"

/* Replicas that train of which none is left out; of one of several stages,
 * those for which recorded layers stand that are few, too. */
enum { FEW_REPLICAS = 16, FEW_OF_STAGE = 4 };

/* ---- Sizes -------------------------------------------------------------- */

/* How many layers a head takes the time of. */
static double head_layers(const struct weft_shape *s)
{
    return weft_plan_stage_share(s, 0, true)
         / weft_plan_stage_share(s, 1, false);
}

/* Of the stage that has most to do, in layers. time: with the head. */
static double stage_layers(const struct weft_shape *whole, int32_t n_layers,
                           int32_t pp, bool time)
{
    struct weft_shape s = *whole;
    int32_t first[WEFT_MAX_STAGES + 1];
    double most = 0, head = time ? head_layers(whole) : 0;
    s.n_layers = n_layers;
    weft_plan_stages(&s, pp, first);
    for (int32_t i = 0; i < pp; i++) {
        double n = first[i + 1] - first[i] + (i == pp - 1 ? head : 0);
        most = n > most ? n : most;
    }
    return most;
}

/* Whether replicas on several nodes exchange gradients of a stage. Who waits for
 * which link depends there on who holds which part of each layer. Of several
 * stages with a few replicas each, prices are near without, and take less time
 * to make (doc/strategies.md). */
static bool exchanges(const struct weft_pricer *p, int32_t call,
                      const struct weft_call_plan *at)
{
    int32_t few = at->pp > 1 ? FEW_OF_STAGE : 1;
    return weft_flow_trains(p->needs->flow, call) && at->dp > few
        && at->dp * at->tp > at->mesh.n_devices;
}

/* Of inference and training, how many layers of each stage are recorded that
 * stand for all of it; 0: they stand for themselves. With ZeRO 2 and 3 stages
 * wait for what is sent and gathered of single layers, so that more of them are
 * needed. Optimizer states that come from the host are there by the layer. */
static int32_t standing(const struct weft_pricer *p, int32_t call,
                        const struct weft_call_plan *at,
                        const struct weft_price_sizes *z)
{
    const struct weft_dataflow *flow = p->needs->flow;
    bool trains = weft_flow_trains(flow, call);
    if (p->whole || p->options->costs || at->offload || z->exchanges)
        return 0;
    if (!trains)
        return flow->call[call].kind == WEFT_INFER;
    if (at->pp == 1)
        return at->zero >= 2 ? 6 : 4;
    return at->zero + (at->pp == 2) >= 3 ? 6
         : at->zero == 2 || at->pp == 2  ? 4
                                         : 2;
}

/* The least number of layers of a stage with which other stages have as much to
 * do as the one with the head, and whether the call's model is larger than a
 * few more. Where replicas of one node exchange gradients of one stage, those of
 * the head and the embedding are hidden behind a few layers. With ZeRO 2 and 3
 * what is exchanged of the two is hidden behind several layers, and what is
 * gathered ahead alternates between two. A model that is no larger than both
 * recorded ones together is recorded itself, and so is one whose replicas on
 * several nodes exchange gradients of a stage. */
static void set_layers(const struct weft_pricer *p, int32_t call,
                       const struct weft_call_plan *at,
                       struct weft_price_sizes *z)
{
    const struct weft_dataflow *flow = p->needs->flow;
    const struct weft_shape *own = p->needs->shape[flow->call[call].role];
    int32_t *end = z->end[WEFT_PRICE_LAYERS], few = standing(p, call, at, z);
    z->stands = few > 0;
    if (z->stands) {
        end[0] = end[1] = few;
        return;
    }
    bool gathers = at->zero >= 2 && at->pp == 1;
    bool sums = weft_flow_trains(flow, call) && at->dp > 1;
    int32_t least = 1, more = gathers || sums ? 2 : 1;
    if (gathers)
        least = 5;
    else if (sums || at->zero == 3 || at->offload)
        least = 3;
    for (int32_t r = 0; r < flow->n_roles && at->pp > 1; r++)
        least = (int32_t) weft_max64(
            least, 1 + (int64_t) ceil(head_layers(p->needs->shape[r])));
    end[0] = end[1] = INT32_MAX / WEFT_MAX_STAGES;
    int64_t both = (int64_t) weft_price_layers(own, at->pp, least)
                 + weft_price_layers(own, at->pp, least + more);
    if (both < own->n_layers && !p->whole && !z->exchanges) {
        end[0] = least;
        end[1] = least + more;
    }
}

/* Whether devices share nothing: neither rails, nor a network's core, nor the
 * program that inserts their tasks, nor a memory. */
static bool are_apart(const struct weft_pricer *p)
{
    const struct weft_cluster *c = p->options->cluster;
    const struct weft_node_kind *kind = &c->kind[0];
    return !p->options->costs && c->n_kinds == 1 && kind->insert_s <= 0
        && kind->n_rails >= kind->n_devices && c->core_bytes_per_s <= 0
        && p->needs->n_nodes <= c->n_nodes
        && (p->t->job.place_per_device || p->t->job.n_gpus > 0);
}

/* The first member packs samples besides. Where gradients or weights pass
 * between replicas while layers are computed (ZeRO 2 and 3), members receive
 * them meanwhile, and the group waits for that: there one of the others is
 * needed, too, and all where each layer is gathered from other nodes. So are
 * all replicas there, with one stage, and where those of a stage are on several
 * nodes: they wait for one another's messages.
 * Else two of them are enough, which exchange gradients at the end of a step:
 * what comes from others is there then (plan/recording.h). */
struct weft_price_few weft_price_few(const struct weft_pricer *p,
                                     int32_t call,
                                     const struct weft_call_plan *at,
                                     const struct weft_price_sizes *z)
{
    struct weft_price_few few = {at->tp, at->dp};
    if (p->whole || !p->options->gangs || !are_apart(p)
        || at->tp > at->mesh.n_devices)
        return few;
    if (at->zero < 3 || !z->exchanges)
        few.members = weft_min32(at->tp, at->zero >= 2 ? 2 : 1);
    if (p->samples[call].alike && at->pp > 1 && at->zero < 2 && !z->exchanges)
        few.replicas = weft_min32(at->dp, 2);
    return few;
}

/* Steps of the optimizer that are recorded. Where sums of gradients are sent
 * back to all replicas, steps that overlap take more and less time by turns. */
static int32_t steps_of(const struct weft_pricer *p, int32_t call,
                        const struct weft_call_plan *at, bool all_layers)
{
    int32_t all = p->t->settings.mini_batches;
    int32_t few = !weft_flow_trains(p->needs->flow, call) ? 1
                : at->zero == 0 && all_layers             ? 4
                                                          : 2;
    return p->whole ? all : weft_min32(few, all);
}

/* Of nodes whose replicas train, a few that divide them as all do: gradient
 * groups, powers of two, are subtrees of as many replicas then. */
static int32_t least_nodes(int32_t n)
{
    while (n % 2 == 0 && n >= 8)
        n /= 2;
    return n;
}

void weft_price_sizes_set(const struct weft_pricer *p, int32_t call,
                          const struct weft_call_plan *at,
                          struct weft_price_sizes *z)
{
    bool trains = weft_flow_trains(p->needs->flow, call);
    int32_t of_node = at->mesh.n_devices, replicas = at->dp * at->tp;
    bool all_layers = exchanges(p, call, at);
    *z = (struct weft_price_sizes){.trains = trains,
                                   .exchanges = all_layers,
                                   .steps = steps_of(p, call, at, all_layers),
                                   .alone = !p->whole && !trains
                                         && are_apart(p)};
    set_layers(p, call, at, z);
    if (at->mesh.n_nodes > 1 && replicas % of_node == 0)
        z->nodes = replicas / of_node;
    z->end[WEFT_PRICE_NODES][0] = z->end[WEFT_PRICE_NODES][1] = z->nodes;
    int32_t least = trains ? least_nodes(z->nodes) : 1;
    int32_t most = trains ? 2 * least : 1;
    bool mixed = p->needs->cluster != NULL; /* nodes differ */
    bool few = trains && at->dp <= FEW_REPLICAS;
    if (z->nodes > most && at->dp * least % z->nodes == 0 && !p->whole
        && !mixed && !few) {
        z->end[WEFT_PRICE_NODES][0] = least;
        z->end[WEFT_PRICE_NODES][1] = most;
    }
}

/* ---- The whole run ------------------------------------------------------ */

/* Replicas exchange in log2 rounds; a device holds its part of what they
 * share. */
static double of_replicas(int32_t dp, bool time)
{
    return time ? log2(dp) : 1 - 1.0 / dp;
}

/* How far along the line of a size the whole run is: 0 at its first end, 1 at
 * its second. time: of seconds, else of bytes. */
static double along(const struct weft_pricer *p, int32_t call,
                    const struct weft_call_plan *at,
                    const struct weft_price_sizes *z, int size, bool time)
{
    const int32_t *end = z->end[size];
    const struct weft_shape *s =
        p->needs->shape[p->needs->flow->call[call].role];
    double x[3];
    for (int i = 0; i < 3 && size == WEFT_PRICE_LAYERS; i++)
        x[i] = stage_layers(
            s, i < 2 ? weft_price_layers(s, at->pp, end[i]) : s->n_layers,
            at->pp, time);
    for (int i = 0; i < 3 && size == WEFT_PRICE_NODES; i++)
        x[i] = of_replicas(
            weft_price_part(at->dp, i < 2 ? end[i] : z->nodes, z->nodes),
            time);
    return x[1] > x[0] ? (x[2] - x[0]) / (x[1] - x[0]) : 1;
}

double weft_price_share(const struct weft_pricer *p, int32_t call,
                        const struct weft_call_plan *at,
                        const struct weft_price_sizes *z, unsigned corner,
                        bool time)
{
    double share = 1;
    for (int size = 0; size < WEFT_PRICE_SIZES; size++) {
        if (z->end[size][0] == z->end[size][1])
            continue;
        double x = along(p, call, at, z, size, time);
        share *= corner >> size & 1 ? x : 1 - x;
    }
    return share;
}
