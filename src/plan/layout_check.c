/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with a plan, in a sentence. */
#include "plan/layout.h"
#include "plan/shares.h"

#include <stdio.h>

struct check {
    const struct weft_plan *plan;
    const struct weft_plan_needs *needs;
    int32_t call;
    const struct weft_call_plan *c;
    struct weft_err *err;
};

/* "CALL: sentence" */
WEFT_PRINTF(2, 3)
static int wrong(const struct check *k, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return weft_err_set(k->err, WEFT_EINVAL, "%s: %s",
                        k->needs->flow->call[k->call].name, text);
}

static const struct weft_shape *shape_of(const struct check *k)
{
    return k->needs->shape[k->needs->flow->call[k->call].role];
}

static bool generates(const struct check *k)
{
    return k->needs->flow->call[k->call].kind == WEFT_GENERATE;
}

static int32_t power_below(int32_t n)
{
    int32_t p = 1;
    while (p <= n / 2)
        p *= 2;
    return p;
}

static int check_mesh(const struct check *k)
{
    const struct weft_mesh *m = &k->c->mesh;
    int32_t nodes = k->plan->n_nodes, devices = k->plan->n_devices;
    if (m->node < 0 || m->n_nodes < 1 || m->n_nodes > nodes - m->node)
        return wrong(k,
                     "a mesh of %d nodes from node %d on does not fit the "
                     "%d nodes",
                     m->n_nodes, m->node, nodes);
    if (m->device < 0 || m->n_devices < 1
        || m->n_devices > devices - m->device)
        return wrong(k,
                     "a mesh of %d devices from device %d on does not fit "
                     "the %d devices of a node",
                     m->n_devices, m->device, devices);
    int32_t gpus = k->plan->n_gpus, end = m->device + m->n_devices;
    bool is_gpus = weft_plan_is_gpu(k->plan, m->device);
    if (is_gpus && end > gpus)
        return wrong(k,
                     "devices %d to %d are GPUs up to %d and CPU devices "
                     "from there on, and round otherwise; take those of one "
                     "kind",
                     m->device, end - 1, gpus - 1);
    int32_t base = is_gpus ? 0 : gpus;
    devices = is_gpus ? gpus : devices - gpus;
    if (m->n_devices == devices)
        return 0;
    if (m->n_nodes > 1)
        return wrong(k,
                     "a mesh of %d nodes has all %d %s of each, not "
                     "%d",
                     m->n_nodes, devices,
                     is_gpus    ? "GPUs"
                     : gpus > 0 ? "CPU devices"
                                : "devices",
                     m->n_devices);
    int32_t n = power_below(m->n_devices);
    int32_t first = base + (m->device - base) / n * n;
    if (n != m->n_devices || first != m->device)
        return wrong(k,
                     "devices %d to %d are no mesh: a part of a node is a "
                     "power of two and begins at a multiple of it%s, like %d "
                     "to %d",
                     m->device, end - 1, base > 0 ? " after the GPUs" : "",
                     first, first + n - 1);
    return 0;
}

static int check_degrees(const struct check *k)
{
    const struct weft_call_plan *c = k->c;
    int32_t size = weft_mesh_size(&c->mesh);
    if (c->dp < 1 || c->tp < 1 || c->pp < 1)
        return wrong(k, "dp %d, tp %d and pp %d must be at least 1", c->dp,
                     c->tp, c->pp);
    double product = (double) c->dp * c->tp * c->pp;
    if (product > size || product < size)
        return wrong(k,
                     "dp %d x tp %d x pp %d is %.0f devices, but the mesh "
                     "has %d",
                     c->dp, c->tp, c->pp, product, size);
    return 0;
}

static int check_blocks(const struct check *k)
{
    const struct weft_shape *s = shape_of(k);
    int32_t tp = k->c->tp, raised = power_below(tp);
    if (tp <= s->n_blocks)
        return 0;
    raised *= raised < tp ? 2 : 1;
    if (raised <= weft_shape_most_blocks(s))
        return wrong(k,
                     "tp %d is more than the model's %d tensor blocks; "
                     "take tp %d, or numerics.tensor_blocks %d",
                     tp, s->n_blocks, s->n_blocks, raised);
    return wrong(k,
                 "tp %d is more than the model's %d tensor blocks; take "
                 "tp %d",
                 tp, s->n_blocks, s->n_blocks);
}

static int check_layers(const struct check *k)
{
    int32_t pp = k->c->pp, layers = shape_of(k)->n_layers;
    if (pp > layers)
        return wrong(k,
                     "pp %d is more than the model's %d layers; take pp "
                     "%d",
                     pp, layers, layers);
    if (pp > WEFT_MAX_STAGES)
        return wrong(k, "pp %d is more than the %d stages there may be", pp,
                     WEFT_MAX_STAGES);
    return 0;
}

static int check_samples(const struct check *k)
{
    int32_t dp = k->c->dp, groups = k->needs->gradient_groups;
    bool greedy = k->needs->flow->call[k->call].greedy;
    int32_t samples = greedy ? k->needs->n_prompts : k->needs->n_samples;
    int32_t raised = power_below(dp);
    raised *= raised < dp ? 2 : 1;
    if (weft_flow_trains(k->needs->flow, k->call) && dp > groups)
        return wrong(k,
                     "dp %d is more than the %d gradient groups; take dp "
                     "%d, or numerics.gradient_groups %d",
                     dp, groups, groups, raised);
    if (generates(k) && dp > samples)
        return wrong(k,
                     "dp %d is more than the %d samples of an iteration; "
                     "take dp %d, or more rollout.prompts",
                     dp, samples, samples);
    return 0;
}

static int check_options(const struct check *k)
{
    const struct weft_call_plan *c = k->c;
    bool trains = weft_flow_trains(k->needs->flow, k->call);
    if (c->zero < 0 || c->zero > 3)
        return wrong(k, "zero %d must be 0 to 3", c->zero);
    if (c->zero > 0 && !trains)
        return wrong(k, "zero %d is for calls that train; take zero 0",
                     c->zero);
    if (c->zero == 3
        && weft_flow_is_shared(k->needs->flow,
                               k->needs->flow->call[k->call].role))
        return wrong(k, "zero 3 cuts the weights that the reference shares, "
                        "which is not planned for; take zero 2");
    if (c->hpz && c->zero != 3)
        return wrong(k, "hpz is for zero 3, here it is %d", c->zero);
    if (c->recompute && !trains)
        return wrong(k, "recompute is for calls that train");
    if (c->offload && !trains && !weft_flow_frozen(k->needs->flow, k->call))
        return wrong(k,
                     "offload is for calls that train, and for models that "
                     "are never trained and share no weights");
    if (c->micro_batches < 0)
        return wrong(k, "micro_batches %d must be at least 0",
                     c->micro_batches);
    if (c->micro_batches > 0 && generates(k))
        return wrong(k,
                     "micro_batches %d is for calls that infer or train; "
                     "take 0",
                     c->micro_batches);
    return 0;
}

/* Whether call i has the model of this one, or weights move between both. */
static bool shares_weights(const struct check *k, int32_t i)
{
    const struct weft_dataflow *flow = k->needs->flow;
    int32_t own = flow->call[k->call].role, other = flow->call[i].role;
    return own == other || flow->role[own].follows == other
        || flow->role[other].follows == own || flow->role[own].shares == other
        || flow->role[other].shares == own;
}

/* The log-probs of a model's calls are compared to the bit. */
static int check_kind(const struct check *k)
{
    const struct weft_dataflow *flow = k->needs->flow;
    bool gpus = weft_plan_on_gpus(k->plan, k->call);
    for (int32_t i = 1; i < k->call; i++) {
        const struct weft_call_plan *c = &k->plan->call[i];
        if (!weft_flow_placed(flow, i) || c->dp == 0 || !shares_weights(k, i)
            || weft_plan_on_gpus(k->plan, i) == gpus)
            continue;
        if (flow->call[i].role == flow->call[k->call].role
            && !k->needs->mixes)
            return wrong(k,
                         "%s has %s and this call has %s, which round "
                         "otherwise; give both calls of the %s one kind, or "
                         "set numerics.exact to false",
                         flow->call[i].name, gpus ? "CPU devices" : "GPUs",
                         gpus ? "GPUs" : "CPU devices",
                         flow->role[flow->call[i].role].name);
        if (c->zero >= 3 || k->c->zero >= 3)
            return wrong(
                k,
                "%s has %s and this call has %s, and zero 3 does not "
                "move weights between them; take zero 2",
                flow->call[i].name, gpus ? "CPU devices" : "GPUs",
                gpus ? "GPUs" : "CPU devices");
    }
    return 0;
}

/* Every member gets something. */
static int check_shares(const struct check *k)
{
    const struct weft_call_plan *c = k->c;
    const struct weft_plan_needs *needs = k->needs;
    bool trains = weft_flow_trains(needs->flow, k->call);
    int32_t n = trains                            ? needs->gradient_groups
              : needs->flow->call[k->call].greedy ? needs->n_prompts
                                                  : needs->n_samples;
    int32_t members = weft_shares_members(&c->shares);
    if (c->shares.n == 0)
        return 0;
    if (members != c->dp)
        return wrong(k, "shares are of %d members, but dp is %d", members,
                     c->dp);
    for (int32_t i = 0; i < c->dp; i++)
        if (weft_plan_share(c, n, i).n == 0)
            return wrong(k,
                         "with a share of %d member %d of %d gets none of "
                         "the %d %s; give it more, or %s",
                         weft_shares_of(&c->shares, i), i, c->dp, n,
                         trains ? "gradient groups" : "samples",
                         trains ? "raise numerics.gradient_groups"
                                : "others less");
    return 0;
}

static int check_call(const struct check *k)
{
    int rc;
    if (k->c->dp == 0)
        return wrong(k, "the run makes this call, but the plan has no place "
                        "for it");
    rc = check_mesh(k);
    if (!rc)
        rc = check_degrees(k);
    if (!rc)
        rc = check_blocks(k);
    if (!rc)
        rc = check_layers(k);
    if (!rc)
        rc = check_samples(k);
    if (!rc)
        rc = check_options(k);
    if (!rc)
        rc = check_shares(k);
    return rc ? rc : check_kind(k);
}

int weft_plan_check(const struct weft_plan *plan,
                    const struct weft_plan_needs *needs, struct weft_err *err)
{
    int rc = 0;
    if (plan->n_nodes != needs->n_nodes
        || plan->n_devices != needs->n_devices)
        return weft_err_set(err, WEFT_EINVAL,
                            "the plan is for %d nodes of %d devices, but the "
                            "run has %d of %d",
                            plan->n_nodes, plan->n_devices, needs->n_nodes,
                            needs->n_devices);
    if (plan->n_gpus != needs->n_gpus)
        return weft_err_set(err, WEFT_EINVAL,
                            "the plan is for nodes of %d GPUs, but the run "
                            "has %d",
                            plan->n_gpus, needs->n_gpus);
    for (int32_t i = 1; i < needs->flow->n_calls && !rc; i++) {
        struct check k = {plan, needs, i, &plan->call[i], err};
        if (weft_flow_placed(needs->flow, i))
            rc = check_call(&k);
    }
    return rc || !needs->cluster
             ? rc
             : weft_plan_check_kinds(plan, needs->cluster, err);
}
