/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/strategy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/divide.h"

/* What the strategies tell apart. The leading role is the one that generates
 * or, where samples come from the data, the first. */
enum what {
    LEAD_TRAINS,
    LEAD_GENERATES,
    LEAD_INFERS,
    OTHER_TRAINS,
    OTHER_INFERS,
    FROZEN_INFERS, /* a language model that is not trained */
    FROZEN_SCORES, /* a scalar head that is not trained */
    N_WHAT
};

enum how {
    DATA,   /* data parallel */
    ZERO,   /* the same; where the call trains, all state is split (ZeRO 3) */
    ZERO_2, /* the same, all but the weights */
    NODE,   /* tensor parallel within a node, data parallel beyond */
    LEAST,  /* tensor parallel as little as weights need that have half of a
               device's memory, data parallel beyond */
    THREE_D /* tensor parallel within a node; data parallel as much as all
               that lies there fits, in stages for the rest (Narayanan et al.
               2021) */
};

/* Part number `part` of `of` equal parts of the cluster, a power of two. of
 * ONE: a single device, the last. */
enum { ONE = 0 };
struct spot {
    int8_t part, of, how;
};

struct strategy {
    const char *name, *what;
    struct spot spot[N_WHAT];
};

static const struct strategy strategies[] = {
    {"deepspeed-chat",
     "all on all devices; ZeRO 3, generation tensor parallel in a node",
     {{0, 1, ZERO},
      {0, 1, NODE},
      {0, 1, DATA},
      {0, 1, ZERO},
      {0, 1, DATA},
      {0, 1, DATA},
      {0, 1, DATA}}},
    {"deepspeed-chat-zero2",
     "the same for small models: ZeRO 2, all else data parallel",
     {{0, 1, ZERO_2},
      {0, 1, DATA},
      {0, 1, DATA},
      {0, 1, ZERO_2},
      {0, 1, DATA},
      {0, 1, DATA},
      {0, 1, DATA}}},
    {"openrlhf",
     "half of the devices generate; a quarter for policy and reference, a "
     "quarter for value and reward models; ZeRO 3",
     {{0, 4, ZERO},
      {1, 2, LEAST},
      {0, 4, DATA},
      {1, 4, ZERO},
      {1, 4, DATA},
      {0, 4, DATA},
      {1, 4, DATA}}},
    {"nemo-aligner",
     "policy and reference on one half, value and reward models on the "
     "other; 3D parallel",
     {{0, 2, THREE_D},
      {0, 2, NODE},
      {0, 2, THREE_D},
      {1, 2, THREE_D},
      {1, 2, THREE_D},
      {0, 2, THREE_D},
      {1, 2, THREE_D}}},
    {"verl",
     "all on all devices; ZeRO 3, generation with the least tensor "
     "parallelism that fits",
     {{0, 1, ZERO},
      {0, 1, LEAST},
      {0, 1, DATA},
      {0, 1, ZERO},
      {0, 1, DATA},
      {0, 1, DATA},
      {0, 1, DATA}}},
    {"trlx-standalone",
     "reward models alone on the last device, all else on the first half",
     {{0, 2, ZERO},
      {0, 2, DATA},
      {0, 2, DATA},
      {0, 2, ZERO},
      {0, 2, DATA},
      {0, 2, DATA},
      {0, ONE, DATA}}},
    {"trlx-coexisted",
     "all on all devices, but reward models on one of them",
     {{0, 1, ZERO},
      {0, 1, DATA},
      {0, 1, DATA},
      {0, 1, ZERO},
      {0, 1, DATA},
      {0, 1, DATA},
      {0, ONE, DATA}}},
    {"real-heuristic",
     "one 3D layout for all calls: tensor parallel in a node, the most data "
     "parallelism that fits",
     {{0, 1, THREE_D},
      {0, 1, THREE_D},
      {0, 1, THREE_D},
      {0, 1, THREE_D},
      {0, 1, THREE_D},
      {0, 1, THREE_D},
      {0, 1, THREE_D}}},
    {"rlhfuse-base",
     "all on all devices; training 3D parallel, the others with the least "
     "tensor parallelism that fits",
     {{0, 1, THREE_D},
      {0, 1, LEAST},
      {0, 1, LEAST},
      {0, 1, THREE_D},
      {0, 1, LEAST},
      {0, 1, LEAST},
      {0, 1, LEAST}}},
    {"interleave-1",
     "trained models on all devices; reference on one half, reward models "
     "on the other (FlexRLHF)",
     {{0, 1, ZERO},
      {0, 1, NODE},
      {0, 1, DATA},
      {0, 1, ZERO},
      {0, 1, DATA},
      {0, 2, DATA},
      {1, 2, DATA}}},
    {"interleave-2",
     "policy and reward models on one half, value model and reference on the "
     "other (FlexRLHF)",
     {{0, 2, ZERO},
      {0, 2, NODE},
      {0, 2, DATA},
      {1, 2, ZERO},
      {1, 2, DATA},
      {1, 2, DATA},
      {0, 2, DATA}}},
    {"disaggregated",
     "half of the devices generate, a quarter infers, a quarter trains "
     "(FlexRLHF)",
     {{3, 4, NODE},
      {0, 2, LEAST},
      {2, 4, DATA},
      {3, 4, NODE},
      {2, 4, DATA},
      {2, 4, DATA},
      {2, 4, DATA}}},
};

/* Those that are chosen among others, or have numbers. */
static const char guideline[] = "flexrlhf-guideline";
static const char ratio[] = "ratio=";
static const char divided[] = "rlinf";
static const struct {
    const char *name, *what;
} others[] = {
    {guideline, "interleave-1 or deepspeed-chat on up to two nodes, "
                "disaggregated beyond, as FlexRLHF advises"},
    {divided, "all on all devices, or generation, inference and training on "
              "devices of their own, by the seconds of each: rlinf=12:3:9"}};

const char *weft_strategy_name(int32_t i, const char **what_out)
{
    const int32_t n = (int32_t) WEFT_COUNT(strategies);
    if (i >= n + (int32_t) WEFT_COUNT(others))
        return NULL;
    if (what_out)
        *what_out = i < n ? strategies[i].what : others[i - n].what;
    return i < n ? strategies[i].name : others[i - n].name;
}

static const struct strategy *find(const char *name)
{
    for (size_t i = 0; i < WEFT_COUNT(strategies); i++)
        if (strcmp(strategies[i].name, name) == 0)
            return &strategies[i];
    return NULL;
}

bool weft_strategy_is(const char *text)
{
    return find(text) || strcmp(text, guideline) == 0
        || strncmp(text, ratio, strlen(ratio)) == 0
        || weft_strategy_is_divided(text);
}

bool weft_strategy_is_divided(const char *text)
{
    size_t n = strlen(divided);
    return strncmp(text, divided, n) == 0 && (!text[n] || text[n] == '=');
}

/* ---- Meshes ------------------------------------------------------------- */

struct making {
    const struct weft_plan_needs *needs;
    struct weft_plan *plan;
    int32_t lead;      /* the leading role */
    int32_t n_devices; /* of each node, of those that are used */
};

/* Part number `part` of `of`: whole nodes, or a power of two of a node's
 * devices; where there are fewer devices than parts, parts share. */
static struct weft_mesh part_of(const struct making *m, int32_t part,
                                int32_t of)
{
    int32_t nodes = m->needs->n_nodes, n = m->n_devices;
    if (of == ONE)
        return (struct weft_mesh){nodes - 1, 1, n - 1, 1};
    if (of <= nodes) {
        struct weft_range r = weft_plan_range(nodes, of, part);
        return (struct weft_mesh){r.first, r.n, 0, n};
    }
    int32_t per_node = (of + nodes - 1) / nodes, size = 1;
    while (size * 2 <= n / per_node)
        size *= 2;
    return (struct weft_mesh){part / per_node, 1, part % per_node * size % n,
                              size};
}

static enum what what_of(const struct making *m, int32_t call)
{
    const struct weft_flow_call *c = &m->plan->flow.call[call];
    const struct weft_role *role = &m->plan->flow.role[c->role];
    if (!role->trained)
        return role->scalar ? FROZEN_SCORES : FROZEN_INFERS;
    if (c->kind == WEFT_TRAIN)
        return c->role == m->lead ? LEAD_TRAINS : OTHER_TRAINS;
    if (c->kind == WEFT_GENERATE)
        return LEAD_GENERATES;
    return c->role == m->lead ? LEAD_INFERS : OTHER_INFERS;
}

/* ---- Degrees ------------------------------------------------------------ */

/* The largest divisor of n that is at most `most` (>= 1). */
static int32_t divisor(int32_t n, int64_t most)
{
    int32_t d = (int32_t) weft_min64(n, most);
    while (n % d != 0)
        d--;
    return d;
}

/* Bytes of a parameter that stay between calls: weights, and where the role is
 * trained those that the step makes, the replica's sums of gradients, and
 * master weights and two moments, which are split over dp (ZeRO 1). */
static double held_bytes(const struct weft_shape *shape, bool trained,
                         int32_t dp, int32_t groups)
{
    double weight = (double) weft_dtype_bytes(shape->dtype);
    double sums = 1 + fmax(0, log2((double) groups / dp));
    return (double) weft_shape_n_params(shape)
         * (trained ? 2 * weight + 4 * sums + 12.0 / dp : weight);
}

/* Whether all roles that are laid out as `call` is, on its mesh, fit three
 * quarters of a device with these degrees: the rest is for activations. */
static bool all_fit(const struct making *m, const struct strategy *s,
                    const struct spot *spot, int32_t dp, int32_t split)
{
    const struct weft_dataflow *flow = &m->plan->flow;
    uint32_t seen = 0;
    double bytes = 0;
    for (int32_t i = 1; i < flow->n_calls; i++) {
        if (!weft_flow_placed(flow, i))
            continue;
        const struct spot *other = &s->spot[what_of(m, i)];
        uint32_t role = 1u << flow->call[i].role;
        if (other->part != spot->part || other->of != spot->of
            || other->how != THREE_D || (seen & role))
            continue;
        seen |= role;
        bytes += held_bytes(m->needs->shape[flow->call[i].role],
                            flow->role[flow->call[i].role].trained, dp,
                            m->needs->gradient_groups)
               / split;
    }
    return m->needs->device_bytes == 0
        || bytes <= 0.75 * (double) m->needs->device_bytes;
}

static void three_d(const struct making *m, const struct strategy *s,
                    const struct spot *spot, int32_t call)
{
    struct weft_call_plan *c = &m->plan->call[call];
    const struct weft_dataflow *flow = &m->plan->flow;
    int64_t most = INT32_MAX;
    int32_t tp = c->mesh.n_devices, layers = WEFT_MAX_STAGES;
    /* one layout for all that are laid out so */
    for (int32_t i = 1; i < flow->n_calls; i++) {
        if (!weft_flow_placed(flow, i))
            continue;
        const struct weft_shape *shape = m->needs->shape[flow->call[i].role];
        const struct spot *other = &s->spot[what_of(m, i)];
        if (other->part != spot->part || other->how != THREE_D)
            continue;
        most = weft_min64(most, weft_plan_most_dp(m->needs, i));
        tp = (int32_t) weft_min64(tp, shape->n_blocks);
        layers = (int32_t) weft_min64(layers, shape->n_layers);
    }
    c->tp = divisor(c->mesh.n_devices, tp);
    int32_t rest = weft_mesh_size(&c->mesh) / c->tp;
    c->dp = divisor(rest, most);
    for (int32_t dp = c->dp; dp >= 1 && rest / dp <= layers; dp--) {
        if (rest % dp != 0)
            continue;
        c->dp = dp;
        if (all_fit(m, s, spot, dp, c->tp * (rest / dp)))
            break;
    }
    c->pp = rest / c->dp;
    c->zero = weft_flow_trains(flow, call) && c->dp > 1;
}

/* Tensor parallelism of `tp` at most in a node, data parallelism beyond. */
static void two_d(struct weft_call_plan *c, int64_t tp)
{
    c->tp = divisor(c->mesh.n_devices, tp);
    c->dp = weft_mesh_size(&c->mesh) / c->tp;
    c->pp = 1;
}

/* On the call's mesh. */
static int64_t least_tp(const struct making *m, int32_t call)
{
    const struct weft_call_plan *c = &m->plan->call[call];
    const struct weft_shape *shape =
        m->needs->shape[m->plan->flow.call[call].role];
    double room = m->needs->device_bytes > 0
                    ? 0.5 * (double) m->needs->device_bytes
                    : INFINITY;
    int64_t tp = 1, size = weft_mesh_size(&c->mesh);
    while (tp < shape->n_blocks && tp < c->mesh.n_devices
           && (held_bytes(shape, false, 1, 1) / (double) tp > room
               || size / tp > weft_plan_most_dp(m->needs, call)))
        tp *= 2;
    return tp;
}

static void place(const struct making *m, const struct strategy *s,
                  int32_t call)
{
    const struct spot *spot = &s->spot[what_of(m, call)];
    const struct weft_dataflow *flow = &m->plan->flow;
    struct weft_call_plan *c = &m->plan->call[call];
    c->mesh = part_of(m, spot->part, spot->of);
    if (spot->how == THREE_D)
        three_d(m, s, spot, call);
    else if (spot->how == LEAST)
        two_d(c, least_tp(m, call));
    else if (spot->how == NODE)
        two_d(c, m->needs->shape[flow->call[call].role]->n_blocks);
    else
        two_d(c, 1);
    if (spot->how == ZERO || spot->how == ZERO_2)
        c->zero = c->dp == 1 ? 0 : spot->how == ZERO ? 3 : 2;
}

/* ---- Strategies that are chosen, or have numbers ------------------------ */

/* FlexRLHF section IV-C. */
static const struct strategy *advised(const struct making *m)
{
    const struct weft_dataflow *flow = &m->plan->flow;
    double room = (double) m->needs->device_bytes * m->n_devices;
    bool fits = room <= 0;
    for (int32_t r = 0; r < flow->n_roles && !fits; r++)
        fits = !flow->role[r].trained
            && held_bytes(m->needs->shape[r], false, 1, 1) <= room;
    return find(m->needs->n_nodes > 2 ? "disaggregated"
                : fits                ? "interleave-1"
                                      : "deepspeed-chat");
}

/* The role of that name, or whose name and calls begin with it, as "reference"
 * and "ref_infer" do with "ref"; -1: none. */
static int32_t find_role(const struct weft_dataflow *flow, const char *name)
{
    size_t n = strlen(name);
    int32_t r = weft_flow_find_role(flow, name);
    for (int32_t i = 1; i < flow->n_calls && r < 0; i++)
        if (weft_flow_placed(flow, i) && flow->call[i].name[n] == '_'
            && strncmp(flow->call[i].name, name, n) == 0
            && strncmp(flow->role[flow->call[i].role].name, name, n) == 0)
            r = flow->call[i].role;
    return r;
}

/* "actor:1,critic:1,ref:0.5": the share of the devices that each role has, 1
 * where none is given; into share (n_roles). */
static int read_ratios(const char *text, const struct weft_dataflow *flow,
                       double *share, struct weft_err *err)
{
    for (int32_t r = 0; r < flow->n_roles; r++)
        share[r] = 1;
    for (const char *at = text + strlen(ratio); *at;) {
        char name[WEFT_MAX_NAME];
        char *end = NULL;
        size_t n = strcspn(at, ":,");
        double v = at[n] == ':' ? strtod(at + n + 1, &end) : 0;
        snprintf(name, sizeof name, "%.*s", (int) n, at);
        int32_t r = find_role(flow, name);
        if (r < 0)
            return weft_err_set(err, WEFT_EINVAL,
                                "'%.200s': '%s' is no role of the run; 'weft "
                                "plan --graph' lists them",
                                text, name);
        if (!end || end == at + n + 1 || (*end && *end != ',')
            || !(v > 0 && v <= 1))
            return weft_err_set(err, WEFT_EINVAL,
                                "'%.200s': the ratio of '%s' must be a "
                                "number above 0, at most 1, like %s:0.5",
                                text, name, name);
        share[r] = v;
        at = *end ? end + 1 : end;
    }
    return 0;
}

/* Roles in turn take the next devices, the share rounded to 1, 1/2, 1/4, ...,
 * beginning again at the first where none are left. */
static void place_ratios(const struct making *m, const double *share)
{
    const struct weft_dataflow *flow = &m->plan->flow;
    double next = 0;
    for (int32_t r = 0; r < flow->n_roles; r++) {
        int32_t of = 1 << (int) fmin(round(-log2(share[r])), 20);
        int32_t part = (int32_t) ceil(next * of) % of;
        next = of == 1 ? next : (double) (part + 1) / of;
        for (int32_t i = 1; i < flow->n_calls; i++) {
            struct weft_call_plan *c = &m->plan->call[i];
            if (flow->call[i].role != r || !weft_flow_placed(flow, i))
                continue;
            c->mesh = part_of(m, part, of);
            two_d(c, flow->call[i].kind == WEFT_GENERATE
                         ? m->needs->shape[r]->n_blocks
                         : 1);
            c->zero = weft_flow_trains(flow, i) && c->dp > 1 ? 3 : 0;
        }
    }
}

/* Which of the three stages a call is part of. */
static int stage_of(const struct weft_dataflow *flow, int32_t call)
{
    return flow->call[call].kind == WEFT_GENERATE ? 0
         : weft_flow_trains(flow, call)           ? 2
                                                  : 1;
}

/* "rlinf=12.5:3:9": seconds of the stages that the run has. */
static int read_seconds(const char *text, const struct weft_dataflow *flow,
                        double seconds[WEFT_DIVIDE_STAGES],
                        struct weft_err *err)
{
    int n = 0;
    double *s = seconds;
    bool right = sscanf(text + strlen(divided), "=%lf:%lf:%lf%n", &s[0],
                        &s[1], &s[2], &n)
                  == 3
              && !text[strlen(divided) + (size_t) n];
    bool has[WEFT_DIVIDE_STAGES] = {false};
    for (int32_t i = 1; i < flow->n_calls; i++)
        if (weft_flow_placed(flow, i))
            has[stage_of(flow, i)] = true;
    for (int i = 0; i < WEFT_DIVIDE_STAGES && right; i++) {
        right = isfinite(s[i]) && (has[i] ? s[i] > 0 : s[i] >= 0);
        s[i] = has[i] ? s[i] : 0;
    }
    if (right)
        return 0;
    return weft_err_set(
        err, WEFT_EINVAL,
        "'%.200s' needs the seconds that generation, inference and training "
        "of an iteration take on all devices, like rlinf=12.5:3:9, where 0 "
        "is a stage that the run has not; 'weft plan --compare' finds them",
        text);
}

/* What the stages of the run are, besides their seconds; instances as large as
 * on all devices. */
static void measure(const struct making *m, struct weft_divide *d)
{
    const struct weft_dataflow *flow = &m->plan->flow;
    d->n_nodes = m->needs->n_nodes;
    d->n_devices = m->n_devices;
    d->n_groups = m->needs->n_prompts;
    d->n_samples = m->needs->n_samples;
    d->slots = m->needs->slots;
    d->instance = 1;
    for (int i = 0; i < WEFT_DIVIDE_STAGES; i++)
        d->most[i] = d->n_nodes * d->n_devices;
    for (int32_t i = 1; i < flow->n_calls; i++) {
        if (!weft_flow_placed(flow, i))
            continue;
        int stage = stage_of(flow, i);
        int64_t most = weft_plan_most_dp(m->needs, i);
        m->plan->call[i].mesh = part_of(m, 0, 1);
        if (stage == 0)
            d->instance = divisor(m->n_devices, least_tp(m, i));
        most *= stage == 0 ? d->instance : 1;
        d->most[stage] = (int32_t) weft_min64(d->most[stage], most);
    }
}

/* Devices of the stages one after another, the largest part first: so each
 * begins where a mesh of its size can. */
static void lie_down(const struct making *m,
                     const int32_t n[WEFT_DIVIDE_STAGES],
                     struct weft_mesh mesh[WEFT_DIVIDE_STAGES])
{
    bool done[WEFT_DIVIDE_STAGES] = {false};
    int32_t of = m->n_devices, at = 0;
    for (int k = 0; k < WEFT_DIVIDE_STAGES; k++) {
        int most = -1;
        for (int i = 0; i < WEFT_DIVIDE_STAGES; i++)
            if (!done[i] && (most < 0 || n[i] > n[most]))
                most = i;
        done[most] = true;
        mesh[most] = n[most] < of
                       ? (struct weft_mesh){at / of, 1, at % of, n[most]}
                       : (struct weft_mesh){at / of, n[most] / of, 0, of};
        at += n[most];
    }
}

static int place_divided(const struct making *m, const char *text,
                         struct weft_err *err)
{
    const struct weft_dataflow *flow = &m->plan->flow;
    struct weft_divide d = {.instance = 1};
    struct weft_mesh mesh[WEFT_DIVIDE_STAGES];
    int32_t n[WEFT_DIVIDE_STAGES];
    int rc = read_seconds(text, flow, d.seconds, err);
    if (rc)
        return rc;
    measure(m, &d);
    weft_divide(&d, n);
    bool turns = n[0] + n[1] + n[2] == 0;
    lie_down(m, n, mesh);
    for (int32_t i = 1; i < flow->n_calls; i++) {
        struct weft_call_plan *c = &m->plan->call[i];
        if (!weft_flow_placed(flow, i))
            continue;
        c->mesh = turns ? part_of(m, 0, 1) : mesh[stage_of(flow, i)];
        two_d(c, stage_of(flow, i) == 0 ? d.instance : 1);
        c->zero = weft_flow_trains(flow, i) && c->dp > 1 ? 3 : 0;
    }
    return 0;
}

int weft_plan_strategy(const char *text, const struct weft_plan_needs *needs,
                       struct weft_plan *out, struct weft_err *err)
{
    struct making m = {.needs = needs, .plan = out};
    double share[WEFT_MAX_ROLES];
    bool by_ratio = strncmp(text, ratio, strlen(ratio)) == 0;
    weft_plan_begin(needs, out);
    m.n_devices = weft_plan_n_used(needs);
    int32_t generates = weft_flow_call_of(&out->flow, WEFT_GENERATE, -1);
    m.lead = generates > 0 ? out->flow.call[generates].role : 0;
    if (weft_strategy_is_divided(text))
        return place_divided(&m, text, err);
    if (by_ratio) {
        int rc = read_ratios(text, &out->flow, share, err);
        if (!rc)
            place_ratios(&m, share);
        return rc;
    }
    const struct strategy *s = strcmp(text, guideline) == 0 ? advised(&m)
                                                            : find(text);
    for (int32_t i = 1; i < out->flow.n_calls; i++)
        if (weft_flow_placed(&out->flow, i))
            place(&m, s, i);
    return 0;
}
