/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who infers which micro-batch, and when it is submitted. Without costs all
 * replicas have them in turn, or as samples that move free devices. With costs
 * a clock tells when each device should be done with what it was given, so that
 * it is given the next when it is, of any call: as if devices took work
 * themselves (plan/fusion/overlap.h). The clock goes on with statuses of
 * generation, which all ranks have alike.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "plan/shares.h"
#include "run/iteration.h"
#include "run/predict/recorded.h"

/* A replica has as many devices; the i-th one of them. */
static int32_t n_devices(const struct weft_g_layout *layout)
{
    return layout->plan.pp * layout->plan.tp;
}

static int32_t device_of(const struct weft_g_layout *layout, int32_t dp,
                         int32_t i)
{
    int32_t tp = layout->plan.tp;
    return weft_g_layout_member(layout, dp, i / tp, i % tp)->device;
}

/* The devices of all calls: one more than the last one's number. */
static size_t count_devices(const struct weft_trainer *t)
{
    int32_t most = -1;
    for (int32_t c = 1; c < t->flow.n_calls; c++)
        for (int32_t k = 0; k < t->layout[c].plan.dp; k++)
            for (int32_t i = 0; i < n_devices(&t->layout[c]); i++)
                most = weft_max32(most, device_of(&t->layout[c], k, i));
    return (size_t) most + 1;
}

/* Whether replicas `a` and `b` of two layouts have a device together. */
static bool share_device(const struct weft_g_layout *of_a, int32_t a,
                         const struct weft_g_layout *of_b, int32_t b)
{
    for (int32_t i = 0; i < n_devices(of_a); i++)
        for (int32_t k = 0; k < n_devices(of_b); k++)
            if (device_of(of_a, a, i) == device_of(of_b, b, k))
                return true;
    return false;
}

bool weft_iteration_shares(const struct weft_g_layout *a,
                           const struct weft_g_layout *b)
{
    for (int32_t i = 0; i < a->plan.dp; i++)
        for (int32_t k = 0; k < b->plan.dp; k++)
            if (share_device(a, i, b, k))
                return true;
    return false;
}

/* Finds which devices still generate, in p->generating. Returns whether others
 * have been freed of their last samples. */
static bool find_generating(const struct weft_iteration *p)
{
    bool freed = false;
    memset(p->generating, 0, p->n_devices * sizeof *p->generating);
    for (int32_t k = 0; k < p->n_sets; k++) {
        const struct weft_g_generate *gen = &p->t->gen[p->set[k].call];
        for (int32_t n = 0; n < gen->n_instances; n++) {
            const struct weft_g_instance *x = &gen->instance[n];
            freed = freed || x->freed;
            for (int32_t i = 0;
                 i < n_devices(&gen->layout) && !x->freed && !x->idle; i++)
                p->generating[device_of(&gen->layout, x->dp, i)] = true;
        }
    }
    return freed;
}

/* Whether devices of a replica do. */
static bool generates(const struct weft_iteration *p,
                      const struct weft_g_layout *layout, int32_t dp)
{
    for (int32_t i = 0; i < n_devices(layout); i++)
        if (p->generating[device_of(layout, dp, i)])
            return true;
    return false;
}

static bool is_one_place(const struct weft_g_layout *layout)
{
    const struct weft_g_member *first = weft_g_layout_member(layout, 0, 0, 0);
    for (int32_t k = 1; k < layout->plan.dp; k++)
        if (weft_g_layout_member(layout, k, 0, 0)->place != first->place)
            return false;
    return true;
}

/* Whether micro-batches of a call wait for devices that are free: not where
 * nothing says when these will be, neither costs nor samples that move; not
 * where any device takes them, as then those that are free do; and not where
 * replicas have shares, which micro-batches are cut by. */
static bool holds(const struct weft_iteration *p,
                  const struct weft_iteration_call *c)
{
    const struct weft_g_layout *layout = &p->t->layout[c->call];
    bool moves = p->tail[c->set->call].when.share > 0;
    return p->t->plan.inter_stage_fusion && layout->plan.shares.n == 0
        && (moves || p->deal.pace || weft_run_bounds(p->t))
        && !(layout->any_device && is_one_place(layout));
}

int32_t weft_iteration_by_share(const struct weft_iteration_call *c,
                                const struct weft_call_plan *plan)
{
    bool alike = plan->shares.n == 0 || plan->micro_batches > 0;
    int32_t best = c->turn;
    for (int32_t k = 1; k < plan->dp && !alike; k++) {
        int32_t dp = (c->turn + k) % plan->dp;
        if ((double) c->load[dp] / weft_shares_of(&plan->shares, dp)
            < (double) c->load[best] / weft_shares_of(&plan->shares, best))
            best = dp;
    }
    return best;
}

int32_t weft_iteration_replica(const struct weft_iteration *p,
                               const struct weft_iteration_call *c, int32_t n,
                               bool last)
{
    const struct weft_g_layout *layout = &p->t->layout[c->call];
    int32_t dp = layout->plan.dp, best = -1;
    if (!holds(p, c))
        return weft_iteration_by_share(c, &layout->plan);
    bool freed = find_generating(p);
    for (int32_t k = 0; k < dp; k++) {
        bool busy = generates(p, layout, k);
        bool more = freed || c->load[k] + n <= weft_ceil_div(c->set->n, dp);
        if ((last || (!busy && more))
            && (best < 0 || c->load[k] < c->load[best]))
            best = k;
    }
    return best;
}

/* ---- By the clock ------------------------------------------------------- */

int weft_iteration_deal_init(struct weft_iteration *p)
{
    struct weft_iteration_deal *d = &p->deal;
    size_t n = 1;
    for (int32_t k = 0; k < p->n_sets; k++)
        n += (size_t) p->t->gen[p->set[k].call].n_instances;
    p->n_devices = count_devices(p->t);
    p->generating = weft_alloc(p->n_devices, sizeof *p->generating);
    *d = (struct weft_iteration_deal){.pace = NULL};
    d->made_s = weft_alloc(n, sizeof *d->made_s);
    d->free_s = weft_alloc(p->n_devices, sizeof *d->free_s);
    return p->generating && d->made_s && d->free_s
             ? 0
             : weft_err_nomem(p->err, "inference", p->n_devices);
}

void weft_iteration_deal_release(struct weft_iteration *p)
{
    weft_free(p->generating);
    weft_free(p->deal.made_s);
    weft_free(p->deal.free_s);
    p->generating = NULL;
    p->deal = (struct weft_iteration_deal){.pace = NULL};
}

void weft_iteration_deal_begin(struct weft_iteration *p)
{
    const struct weft_tail_pace *pace = &p->tail[p->set->call].pace;
    p->deal.pace = p->n_sets == 1 && pace->known ? pace : NULL;
}

bool weft_iteration_paced(const struct weft_iteration *p,
                          const struct weft_iteration_call *c)
{
    return p->deal.pace && weft_iteration_takes(p, c, 1) > 0 && holds(p, c);
}

void weft_iteration_deal_turn(struct weft_iteration *p,
                              const struct weft_rollout_turn *turn)
{
    struct weft_iteration_deal *d = &p->deal;
    if (!d->pace)
        return;
    double seconds = turn->n_steps
                       * (d->pace->step_s
                          + turn->n_samples * d->pace->sample_s
                          + turn->n_tokens * d->pace->token_s)
                   + (double) turn->n_prefilled * d->pace->read_s;
    d->made_s[turn->instance] += seconds;
    d->now_s = fmax(d->now_s, d->made_s[turn->instance]);
    d->made_s[turn->instance] = d->now_s;
    d->ahead_s = 2 * seconds;
}

double weft_iteration_takes(const struct weft_iteration *p,
                            const struct weft_iteration_call *c,
                            double n_tokens)
{
    return p->deal.pace->infer[c->call].batch_s
         + n_tokens * p->deal.pace->infer[c->call].token_s;
}

/* From when on a replica's devices have nothing to infer. */
static double free_s(const struct weft_iteration *p,
                     const struct weft_g_layout *layout, int32_t dp)
{
    double at = p->deal.now_s;
    for (int32_t i = 0; i < n_devices(layout); i++)
        at = fmax(at, p->deal.free_s[device_of(layout, dp, i)]);
    return at;
}

int32_t weft_iteration_free(const struct weft_iteration *p,
                            const struct weft_iteration_call *c, bool last,
                            bool *idle_out)
{
    const struct weft_g_layout *layout = &p->t->layout[c->call];
    double best_s = last ? INFINITY : p->deal.now_s + p->deal.ahead_s;
    int32_t best = -1;
    find_generating(p);
    for (int32_t k = 0; k < layout->plan.dp; k++) {
        double at = free_s(p, layout, k);
        if (at >= best_s || (!last && generates(p, layout, k)))
            continue;
        best = k;
        best_s = at;
    }
    *idle_out = best_s <= p->deal.now_s;
    return best;
}

void weft_iteration_deal_add(struct weft_iteration *p,
                             const struct weft_iteration_call *c, int32_t dp,
                             double n_tokens)
{
    const struct weft_g_layout *layout = &p->t->layout[c->call];
    double at = free_s(p, layout, dp) + weft_iteration_takes(p, c, n_tokens);
    for (int32_t i = 0; i < n_devices(layout); i++)
        p->deal.free_s[device_of(layout, dp, i)] = at;
}
