/* SPDX-License-Identifier: Apache-2.0 */
/* Records and plays the runs that price a layout. */
#include <math.h>

#include "base/alloc.h"
#include "job/plan_needs.h"
#include "plan/shares.h"
#include "run/predict/price_recorded.h"
#include "run/predict/pricer_inside.h"

/* Decode steps that pass stages as one are this part of the longest response's,
 * or less: by so much a pipeline takes longer to fill. */
enum { FINE = 128 };

static const struct weft_call_plan one_device = {
    .mesh = {0, 1, 0, 1}, .dp = 1, .tp = 1, .pp = 1};

bool weft_price_can(const struct weft_plan_needs *needs, int32_t call,
                    const struct weft_call_plan *p)
{
    const struct weft_shape *shape =
        needs->shape[needs->flow->call[call].role];
    return p->tp <= shape->n_blocks && p->pp <= shape->n_layers
        && p->dp <= weft_plan_most_dp(needs, call)
        && (p->zero < 3
            || !weft_flow_is_shared(needs->flow,
                                    needs->flow->call[call].role));
}

/* ---- A run that is smaller ---------------------------------------------- */

/* `at` for the devices of some of its replicas. */
static struct weft_call_plan fewer_nodes(const struct weft_call_plan *at,
                                         int32_t nodes, int32_t of)
{
    struct weft_call_plan plan = *at;
    if (of > 0) {
        plan.dp = weft_price_part(at->dp, nodes, of);
        plan.mesh.n_nodes = weft_price_part(at->mesh.n_nodes, nodes, of);
    }
    return plan;
}

/* `at` for the devices of its first replica, as far as these are a part of each
 * node. */
static struct weft_call_plan one_replica(const struct weft_call_plan *at)
{
    struct weft_call_plan plan = *at;
    if (at->mesh.n_devices % at->dp == 0) {
        plan.mesh.n_devices /= at->dp;
        plan.dp = 1;
    }
    return plan;
}

/* What training has while others are priced: the same degrees, so that weights
 * need not move, in as few tasks as there can be. */
static struct weft_call_plan plain(const struct weft_call_plan *at)
{
    struct weft_call_plan plan = *at;
    plan.zero = 0;
    plan.recompute = plan.offload = false;
    plan.micro_batches = 1;
    return plan;
}

/* Calls that are not priced are on one device, but for training if weights
 * would then move at the cost of the one that is, and generation, whose samples
 * are then where they are read. */
static void set_plan(const struct weft_pricer *p, int32_t call,
                     const struct weft_call_plan *at, struct weft_trainer *t)
{
    const struct weft_dataflow *flow = p->needs->flow;
    bool trains = weft_flow_trains(flow, call);
    struct weft_call_plan one = one_device;
    one.mesh.node = at->mesh.node;
    weft_plan_begin(p->needs, &t->plan);
    if (p->needs->n_nodes
        <= p->options->cluster->n_nodes) /* ranks are nodes */
        t->plan.n_nodes = at->mesh.node + at->mesh.n_nodes;
    for (int32_t c = 1; c < flow->n_calls; c++) {
        if (!weft_flow_placed(flow, c))
            continue;
        bool same = !trains && weft_price_can(p->needs, c, at)
                 && (weft_flow_trains(flow, c)
                     || flow->call[c].kind == WEFT_GENERATE);
        t->plan.call[c] = c == call ? *at : same ? plain(at) : one;
    }
    t->job = (struct weft_g_job){t->plan.n_nodes, t->plan.n_devices,
                                 p->t->job.place_per_device, t->plan.n_gpus,
                                 p->t->job.gpus_apart};
}

/* Gives the members of calls their shares of the recorded run, where devices
 * are of several kinds. */
static void set_shares(const struct weft_pricer *p, struct weft_trainer *t)
{
    struct weft_plan_needs needs = *p->needs;
    needs.n_prompts = t->config.rollout.prompts;
    needs.n_samples = weft_run_samples(&t->config);
    needs.gradient_groups = t->config.numerics.gradient_groups;
    if (needs.cluster)
        weft_plan_share_by_speed(&t->plan, &needs, needs.cluster);
}

/* Gives each member of a tp group one tensor block: all that it has of a layer
 * is then in one tile. Its bytes and operations are the same, as long as no two
 * blocks have the same KV rows. But where replicas on several nodes hide their
 * sums of gradients behind layers, and where weights come from the host or from
 * other replicas (ZeRO 3), tiles are the pieces in which they pass. */
static void join_blocks(const struct weft_pricer *p,
                        const struct weft_call_plan *at, bool exchanges,
                        struct weft_shape *s)
{
    bool apart = s->n_kv_heads % s->n_blocks == 0;
    if (!p->options->costs && apart && !exchanges && !at->offload
        && at->zero < 3 && s->n_blocks % at->tp == 0)
        (void) weft_shape_partition(s, at->tp, NULL);
}

/* The run of the corner, with all that it borrows from the whole one. */
static void make_smaller(const struct weft_pricer *p, int32_t call,
                         const struct weft_call_plan *whole,
                         const struct weft_price_sizes *z, unsigned corner,
                         struct weft_trainer *t)
{
    struct weft_call_plan at = fewer_nodes(
        whole, weft_price_end(z, WEFT_PRICE_NODES, corner), z->nodes);
    if (z->alone)
        at = one_replica(&at);
    struct weft_config *c = &t->config;
    int32_t all = p->t->settings.mini_batches;
    *t = *p->t;
    set_plan(p, call, &at, t);
    for (int32_t r = 0; r < t->flow.n_roles; r++) {
        struct weft_shape *s = &t->model[r].arch.shape;
        s->n_layers = weft_price_layers(
            s, at.pp, weft_price_end(z, WEFT_PRICE_LAYERS, corner));
        if (!p->whole)
            join_blocks(p, whole, z->exchanges, s);
    }
    if (p->whole) {
        set_shares(p, t);
        return;
    }
    c->rollout.prompts = weft_price_part(c->rollout.prompts, at.dp,
                                         whole->dp);
    c->train.batch = weft_price_part(c->train.batch, at.dp, whole->dp);
    c->numerics.gradient_groups = weft_price_part(c->numerics.gradient_groups,
                                                  at.dp, whole->dp);
    t->settings.mini_batches = z->steps;
    if (c->train.mini_batches_ahead == 0)
        c->train.mini_batches_ahead = z->steps; /* for their lots */
    if (z->trains) /* a step has a sample, though replicas have less each */
        c->rollout.prompts = (int32_t) weft_max64(
            weft_price_part(c->rollout.prompts, z->steps, all), z->steps);
    else /* training in as few tasks as there can be */
        c->numerics.gradient_groups = (int32_t) weft_min64(
            c->numerics.gradient_groups, at.dp);
    set_shares(p, t);
}

/* For how many layers of the whole model each recorded one of the call stands:
 * those of a stage for all that it has there. NULL: for itself alone. */
static int set_times(const struct weft_pricer *p, int32_t call,
                     const struct weft_price_sizes *z,
                     const struct weft_trainer *t, int32_t **out,
                     struct weft_err *err)
{
    int32_t role = t->flow.call[call].role, pp = t->plan.call[call].pp;
    const struct weft_shape *few = &t->model[role].arch.shape;
    int32_t whole[WEFT_MAX_STAGES + 1], first[WEFT_MAX_STAGES + 1];
    *out = z->stands ? weft_alloc((size_t) few->n_layers, sizeof **out)
                     : NULL;
    if (!z->stands)
        return 0;
    if (!*out)
        return weft_err_nomem(err, "prices", (size_t) few->n_layers * 4);
    weft_plan_stages(p->needs->shape[role], pp, whole);
    weft_plan_stages(few, pp, first);
    for (int32_t s = 0; s < pp; s++) {
        int32_t left = whole[s + 1] - whole[s];
        for (int32_t l = first[s]; l < first[s + 1]; l++) {
            (*out)[l] = left / (first[s + 1] - l);
            left -= (*out)[l];
        }
    }
    return 0;
}

static int lay_out(struct weft_trainer *t, struct weft_err *err)
{
    int rc = 0;
    for (int32_t c = 0; c < t->flow.n_calls; c++)
        t->layout[c] = (struct weft_g_layout){.member = NULL};
    for (int32_t c = 1; c < t->flow.n_calls && !rc; c++)
        if (weft_flow_placed(&t->flow, c))
            rc = weft_g_layout_init(
                &t->job, &t->model[t->flow.call[c].role].arch.shape, &t->plan,
                c, &t->layout[c], err);
    return rc;
}

static void release_layouts(struct weft_trainer *t)
{
    for (int32_t c = 0; c < t->flow.n_calls; c++)
        weft_g_layout_release(&t->layout[c]);
}

/* Sets the places of members and replicas that are not recorded. NULL: there
 * are none. */
static int set_left_out(const struct weft_trainer *t, int32_t call,
                        struct weft_price_few few, bool **out,
                        struct weft_err *err)
{
    const struct weft_g_layout *l = &t->layout[call];
    int32_t tp = l->plan.tp, dp = l->plan.dp;
    size_t n = (size_t) weft_g_job_n_places(&t->job);
    *out = NULL;
    if (few.members == tp && few.replicas == dp)
        return 0;
    *out = weft_alloc(n, sizeof **out);
    if (!*out)
        return weft_err_nomem(err, "prices", n);
    for (int32_t i = 0; i < dp * l->plan.pp * tp; i++)
        (*out)[l->member[i].place] = i % tp >= few.members
                                  || i / tp % dp >= few.replicas;
    return 0;
}

/* Records the run that was made smaller, and plays it. */
static int record_smaller(const struct weft_pricer *p, int32_t call,
                          const struct weft_price_sizes *z,
                          const int32_t *response, struct weft_trainer *t,
                          struct weft_priced *out, double *step_s,
                          struct weft_err *err)
{
    struct weft_simulate_options one = *p->options;
    struct weft_g_layout *layout = &t->layout[call];
    struct weft_simulation s;
    const struct weft_call_plan *at = &layout->plan;
    const struct weft_price_few few = weft_price_few(p, call, at, z);
    int32_t *times = NULL;
    bool *left_out = NULL;
    one.iterations = 1;
    one.calls = 1u << call;
    one.response = response;
    if (!p->whole)
        one.joined_steps = p->t->config.rollout.max_new_tokens / FINE;
    if (p->whole)
        one.most_bytes = 0;
    else if (one.most_bytes == 0)
        one.most_bytes = WEFT_PRICE_BYTES;
    int rc = set_times(p, call, z, t, &times, err);
    if (!rc)
        rc = set_left_out(t, call, few, &left_out, err);
    if (!rc) {
        layout->times = times;
        one.left_out = left_out;
        rc = weft_simulation_open(t, &one, &s, err);
        if (!rc && times)
            weft_recording_stretch(&s.r, layout->first_layer[at->pp], times);
        if (!rc)
            rc = weft_price_recorded(&s, at->pp * few.members * few.replicas,
                                     out, step_s, err);
        weft_simulation_close(&s);
    }
    weft_free(times);
    weft_free(left_out);
    return rc;
}

static int price_corner(const struct weft_pricer *p, int32_t call,
                        const struct weft_call_plan *at,
                        const struct weft_price_sizes *z, unsigned corner,
                        struct weft_priced *out, struct weft_err *err)
{
    struct weft_trainer *t = weft_alloc(1, sizeof *t);
    struct weft_price_lengths lengths = {.response = NULL};
    double step_s = 0;
    if (!t)
        return weft_err_nomem(err, "a run", sizeof *t);
    make_smaller(p, call, at, z, corner, t);
    int rc = lay_out(t, err);
    if (!rc && !p->whole)
        rc = weft_price_lengths_set(p, call, at->dp, t, &lengths, err);
    if (!rc)
        rc = record_smaller(p, call, z, lengths.response, t, out, &step_s,
                            err);
    if (!rc && lengths.simulated) {
        out->busy_s = fmin(out->busy_s * lengths.busy, out->seconds);
        memcpy(out->came, lengths.came, sizeof out->came);
    }
    weft_price_lengths_release(&lengths);
    const struct weft_g_layout *layout = &t->layout[call];
    bool trains = weft_flow_trains(p->needs->flow, call);
    bool generates = p->needs->flow->call[call].kind == WEFT_GENERATE;
    out->gang = layout->plan.tp > 1 && !trains
             && (layout->is_gang || (layout->is_gpu_gang && generates));
    out->any_device = layout->any_device && !trains && layout->plan.dp > 1
                   && layout->plan.mesh.n_nodes == 1 /* of a place */
                   && !generates;
    if (!rc && out->seconds > 0 && step_s > 0) {
        double more = step_s * p->t->settings.epochs
                    * (p->t->settings.mini_batches - z->steps);
        out->busy_s *= 1 + more / out->seconds;
        out->passes_s *= 1 + more / out->seconds;
        out->seconds += more;
    }
    release_layouts(t);
    weft_free(t);
    return rc;
}

/* ---- The whole run ------------------------------------------------------ */

static double positive(double x)
{
    return x > 0 ? x : 0;
}

/* A straight line through two recordings can lead anywhere: the whole run takes
 * no less than the smallest that was recorded, nor than it can. */
static void set_least(const struct weft_pricer *p,
                      const struct weft_call_plan *at, int32_t call,
                      double recorded_s, struct weft_priced *out)
{
    const struct weft_least least = weft_pricer_least(p, at, call);
    out->seconds = fmax(out->seconds, fmax(recorded_s, least.seconds));
    out->busy_s = fmin(fmax(out->busy_s, least.busy_s), out->seconds);
}

static int price(struct weft_pricer *p, const struct weft_call_plan *at,
                 int32_t call, struct weft_priced *out, struct weft_err *err)
{
    struct weft_price_sizes z;
    double shortest_s = 0;
    int rc = 0;
    weft_price_sizes_set(p, call, at, &z);
    *out = (struct weft_priced){.seconds = 0};
    for (unsigned corner = 0; corner < 1u << WEFT_PRICE_SIZES && !rc;
         corner++) {
        struct weft_priced one;
        bool same = false;
        for (int size = 0; size < WEFT_PRICE_SIZES; size++)
            same = same
                || (z.end[size][0] == z.end[size][1] && (corner >> size & 1));
        if (same)
            continue; /* as the corner without */
        rc = price_corner(p, call, at, &z, corner, &one, err);
        if (rc)
            return rc;
        double bytes = weft_price_share(p, call, at, &z, corner, false);
        double time = weft_price_share(p, call, at, &z, corner, true);
        if (corner == 0)
            shortest_s = one.seconds;
        out->gang = one.gang;
        out->any_device = one.any_device;
        out->micro_batches = one.micro_batches;
        out->task_s = one.task_s;
        out->long_task_s = one.long_task_s;
        out->seconds += one.seconds * time;
        out->busy_s += one.busy_s * time;
        for (int k = 0; k < WEFT_CLUSTER_KINDS; k++)
            out->uneven[k] += one.uneven[k] * one.busy_s * time;
        out->passes_s += one.passes_s * time;
        for (int k = 0; k < WEFT_SEARCH_PARTS; k++)
            out->came[k] += one.came[k] * one.seconds * time;
        out->weights += one.weights * bytes;
        out->state += one.state * bytes;
        out->active += one.active * bytes;
    }
    for (int k = 0; k < WEFT_SEARCH_PARTS; k++)
        out->came[k] /= out->seconds;
    for (int k = 0; k < WEFT_CLUSTER_KINDS && out->busy_s > 0; k++)
        out->uneven[k] /= out->busy_s;
    if (!p->whole)
        set_least(p, at, call, shortest_s, out);
    out->weights = positive(out->weights);
    out->state = positive(out->state);
    out->active = positive(out->active);
    return rc;
}

int weft_pricer_price(struct weft_pricer *p, const struct weft_call_plan *at,
                      uint32_t calls, struct weft_priced *out,
                      struct weft_err *err)
{
    int rc = 0;
    for (uint32_t m = calls; m && !rc; m &= m - 1) {
        int32_t c = __builtin_ctz(m);
        rc = price(p, at, c, &out[c], err);
    }
    return rc;
}

int weft_pricer_simulate(struct weft_pricer *p, struct weft_plan *plan,
                         bool (*stop)(void *ctx), void *ctx,
                         struct weft_simulated *out, struct weft_err *err)
{
    struct weft_simulate_options options = *p->options;
    struct weft_trainer *t = weft_alloc(1, sizeof *t);
    if (!t)
        return weft_err_nomem(err, "a run", sizeof *t);
    options.simulated = out;
    options.stop = stop;
    options.stop_ctx = ctx;
    options.most_bytes = options.finalist_bytes;
    options.bound = !plan->inter_stage_fusion;
    if (plan->n_nodes * plan->n_devices > WEFT_FEW_DEVICES)
        options.joined_steps = p->t->config.rollout.max_new_tokens / FINE;
    *t = *p->t;
    t->plan = *plan;
    t->job = (struct weft_g_job){plan->n_nodes, plan->n_devices,
                                 p->t->job.place_per_device, plan->n_gpus,
                                 p->t->job.gpus_apart};
    int rc = lay_out(t, err);
    if (!rc)
        rc = weft_simulation_run(t, &options, NULL, err);
    release_layouts(t);
    weft_free(t);
    return rc;
}

/* ---- Life cycle --------------------------------------------------------- */

int weft_pricer_create(const struct weft_config *config,
                       const struct weft_plan_needs *needs,
                       const struct weft_simulate_options *options,
                       bool whole, struct weft_pricer **out,
                       struct weft_err *err)
{
    struct weft_pricer *p = weft_alloc(1, sizeof *p);
    const struct weft_g_job job = {needs->n_nodes, needs->n_devices,
                                   config->runtime.place == WEFT_PLACE_DEVICE,
                                   needs->n_gpus, false};
    struct weft_plan plan;
    if (!p)
        return weft_err_nomem(err, "prices", sizeof *p);
    *p = (struct weft_pricer){
        .needs = needs, .options = options, .whole = whole};
    weft_plan_begin(needs, &plan); /* any plan will do */
    for (int32_t c = 1; c < needs->flow->n_calls; c++)
        if (weft_flow_placed(needs->flow, c))
            plan.call[c] = one_device;
    int rc = weft_trainer_describe(config, &job, &plan, &p->t, err);
    if (rc) {
        weft_free(p);
        return rc;
    }
    weft_price_samples_set(p);
    *out = p;
    return 0;
}

void weft_pricer_free(struct weft_pricer *p)
{
    if (!p)
        return;
    weft_trainer_forget(p->t);
    weft_free(p);
}
