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

int32_t weft_iteration_instances(const struct weft_iteration *p)
{
    int32_t n = 0;
    for (int32_t k = 0; k < p->n_sets; k++)
        n += p->t->gen[p->set[k].call].n_instances;
    return n;
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
        && (moves || p->deal.paced || weft_run_bounds(p->t))
        && !c->any_device;
}

/* ---- Replicas ----------------------------------------------------------- */

/* Whether a replica's devices generate, any of them. */
static bool generates(const struct weft_iteration *p,
                      const struct weft_g_layout *layout, int32_t dp)
{
    for (int32_t i = 0; i < n_devices(layout); i++)
        if (p->deal.n_busy[device_of(layout, dp, i)] > 0)
            return true;
    return false;
}

/* When a replica's devices are done with what they were given. */
static double done_s(const struct weft_iteration *p,
                     const struct weft_g_layout *layout, int32_t dp)
{
    double at = 0;
    for (int32_t i = 0; i < n_devices(layout); i++)
        at = fmax(at, p->deal.free_s[device_of(layout, dp, i)]);
    return at;
}

/* To be called when what a replica has been given, or whether its devices
 * generate, has changed. */
static void update_next(const struct weft_iteration *p,
                        struct weft_iteration_call *c, int32_t dp)
{
    const struct weft_g_layout *layout = &p->t->layout[c->call];
    bool waits = !p->deal.last && generates(p, layout, dp);
    weft_min_tree_set(&c->next, dp,
                      waits                        ? INFINITY
                      : weft_iteration_paced(p, c) ? done_s(p, layout, dp)
                                                   : c->load[dp]);
}

static void update_all(struct weft_iteration *p)
{
    for (int32_t k = 0; k < p->n_calls; k++)
        for (int32_t dp = 0; dp < p->t->layout[p->call[k].call].plan.dp; dp++)
            update_next(p, &p->call[k], dp);
}

/* The replicas that have the device. */
static void update_users(struct weft_iteration *p, int32_t device)
{
    for (int32_t k = 0; k < p->n_calls; k++)
        if (p->call[k].replica[device] >= 0)
            update_next(p, &p->call[k], p->call[k].replica[device]);
}

void weft_iteration_deal_busy(const struct weft_iteration_set *set,
                              int32_t instance, bool busy)
{
    const struct weft_g_generate *gen = &set->p->t->gen[set->call];
    for (int32_t i = 0; i < n_devices(&gen->layout); i++) {
        int32_t device = device_of(&gen->layout, gen->instance[instance].dp,
                                   i);
        int32_t *n = &set->p->deal.n_busy[device];
        *n += busy ? 1 : -1;
        weft_assert(*n >= 0);
        if (*n == busy)
            update_users(set->p, device);
    }
    set->p->deal.n_generate += busy ? 1 : -1;
}

void weft_iteration_deal_last(struct weft_iteration *p, bool last)
{
    if (p->deal.last == last)
        return;
    p->deal.last = last;
    update_all(p);
}

/* The replica that has had least of its share of micro-batches; in turn where
 * all are alike, or cut by the shares. Who has the next does not depend on
 * lengths: no replica has more of them than where all samples are longest, for
 * which records and memory are bounded. */
static int32_t next_turn(const struct weft_iteration_call *c,
                         const struct weft_call_plan *plan, int32_t turn)
{
    bool alike = plan->shares.n == 0 || plan->micro_batches > 0;
    int32_t best = turn;
    for (int32_t k = 1; k < plan->dp && !alike; k++) {
        int32_t dp = (turn + k) % plan->dp;
        if ((double) c->load[dp] / weft_shares_of(&plan->shares, dp)
            < (double) c->load[best] / weft_shares_of(&plan->shares, best))
            best = dp;
    }
    return best;
}

void weft_iteration_deal_give(const struct weft_iteration *p,
                              struct weft_iteration_call *c, int32_t dp,
                              int32_t n)
{
    const struct weft_call_plan *plan = &p->t->layout[c->call].plan;
    c->load[dp] += plan->shares.n > 0 ? 1 : n;
    c->turn = next_turn(c, plan, (dp + 1) % plan->dp);
    update_next(p, c, dp);
}

int32_t weft_iteration_replica(const struct weft_iteration *p,
                               const struct weft_iteration_call *c, int32_t n)
{
    double least = weft_min_tree_least(&c->next);
    int32_t n_freed = 0;
    if (!holds(p, c))
        return c->turn;
    for (int32_t k = 0; k < p->n_sets; k++)
        n_freed += p->t->gen[p->set[k].call].n_freed;
    if (least == INFINITY
        || (!p->deal.last && n_freed == 0
            && least + n > (double) weft_ceil_div(
                   c->set->n, p->t->layout[c->call].plan.dp)))
        return -1;
    return weft_min_tree_first(&c->next, least);
}

/* ---- The clock ---------------------------------------------------------- */

int weft_iteration_deal_init(struct weft_iteration *p)
{
    struct weft_iteration_deal *d = &p->deal;
    size_t n = (size_t) weft_iteration_instances(p);
    *d = (struct weft_iteration_deal){.n_devices = count_devices(p->t)};
    d->made_s = weft_alloc(n, sizeof *d->made_s);
    d->others_s = weft_alloc(n, sizeof *d->others_s);
    d->chunks_s = weft_alloc((size_t) p->n_sets * d->n_devices,
                             sizeof *d->chunks_s);
    d->free_s = weft_alloc(d->n_devices, sizeof *d->free_s);
    d->n_busy = weft_alloc(d->n_devices, sizeof *d->n_busy);
    if (!d->made_s || !d->others_s || !d->chunks_s || !d->free_s
        || !d->n_busy)
        return weft_err_nomem(p->err, "inference", d->n_devices);
    for (int32_t k = 0; k < p->n_sets; k++)
        for (int32_t i = 0; i < p->t->gen[p->set[k].call].n_instances; i++)
            weft_iteration_deal_busy(&p->set[k], i, true);
    return 0;
}

void weft_iteration_deal_release(struct weft_iteration *p)
{
    weft_free(p->deal.n_busy);
    weft_free(p->deal.made_s);
    weft_free(p->deal.chunks_s);
    weft_free(p->deal.others_s);
    weft_free(p->deal.free_s);
    p->deal = (struct weft_iteration_deal){.paced = false};
}

int weft_iteration_deal_call(const struct weft_iteration *p,
                             struct weft_iteration_call *c)
{
    const struct weft_g_layout *layout = &p->t->layout[c->call];
    int32_t dp = layout->plan.dp;
    c->any_device = layout->any_device && is_one_place(layout);
    c->load = weft_alloc((size_t) dp, sizeof *c->load);
    c->replica = weft_alloc(p->deal.n_devices, sizeof *c->replica);
    int rc = weft_min_tree_init(&c->next, (size_t) dp);
    if (rc || !c->load || !c->replica)
        return weft_err_nomem(p->err, "inference", p->deal.n_devices);
    memset(c->replica, 0xff, p->deal.n_devices * sizeof *c->replica);
    for (int32_t k = 0; k < dp; k++) {
        for (int32_t i = 0; i < n_devices(layout); i++) {
            int32_t *replica = &c->replica[device_of(layout, k, i)];
            weft_assert(*replica < 0);
            *replica = k;
        }
        update_next(p, c, k);
    }
    return 0;
}

void weft_iteration_deal_begin(struct weft_iteration *p)
{
    p->deal.paced = true;
    for (int32_t k = 0; k < p->n_sets; k++)
        p->deal.paced = p->deal.paced && p->tail[p->set[k].call].pace.known;
    update_all(p);
}

bool weft_iteration_paced(const struct weft_iteration *p,
                          const struct weft_iteration_call *c)
{
    return p->deal.paced && weft_iteration_takes(p, c, 1) > 0 && holds(p, c);
}

/* What chunks of other sets have taken of a replica's devices so far. */
static double others_s(const struct weft_iteration_set *set, int32_t dp)
{
    const struct weft_iteration *p = set->p;
    const struct weft_iteration_deal *d = &p->deal;
    const struct weft_g_layout *layout = &p->t->gen[set->call].layout;
    double most = 0;
    for (int32_t i = 0; i < n_devices(layout) && p->n_sets > 1; i++) {
        const double *s = d->chunks_s + device_of(layout, dp, i);
        double sum = 0;
        for (int32_t k = 0; k < p->n_sets; k++, s += d->n_devices)
            sum += &p->set[k] == set ? 0 : *s;
        most = fmax(most, sum);
    }
    return most;
}

/* Chunks of different sets have a device one after the other; those of a
 * replica's own instances are in its stages at the same time. */
void weft_iteration_deal_turn(const struct weft_iteration_set *set,
                              const struct weft_rollout_turn *turn)
{
    struct weft_iteration *p = set->p;
    struct weft_iteration_deal *d = &p->deal;
    const struct weft_tail_pace *pace = &p->tail[set->call].pace;
    const struct weft_g_generate *gen = &p->t->gen[set->call];
    if (!d->paced) {
        d->now_s++;
        return;
    }
    int32_t dp = gen->instance[turn->own].dp;
    double seconds = turn->n_steps
                       * (pace->step_s + turn->n_samples * pace->sample_s
                          + turn->n_tokens * pace->token_s)
                   + (double) turn->n_prefilled * pace->read_s;
    double others = others_s(set, dp);
    double *chunks_s = d->chunks_s + (size_t) (set - p->set) * d->n_devices;
    for (int32_t i = 0; i < n_devices(&gen->layout); i++)
        chunks_s[device_of(&gen->layout, dp, i)] +=
            seconds * weft_migration_replicas(gen) / gen->n_instances;
    d->made_s[turn->instance] += seconds + others
                               - d->others_s[turn->instance];
    d->others_s[turn->instance] = others;
    d->now_s = fmax(d->now_s, d->made_s[turn->instance]);
    d->made_s[turn->instance] = d->now_s;
    d->ahead_s = 2 * seconds;
}

bool weft_iteration_late(const struct weft_iteration *p,
                         const struct weft_iteration_call *c)
{
    bool moves = p->tail[c->set->call].when.share > 0;
    return moves && !p->deal.paced && holds(p, c) && c->n_waiting > 0
        && p->deal.now_s - c->since_s >= 2 * p->deal.n_generate;
}

double weft_iteration_takes(const struct weft_iteration *p,
                            const struct weft_iteration_call *c,
                            double n_tokens)
{
    const struct weft_tail_pace *pace = &p->tail[c->set->call].pace;
    return pace->infer[c->call].batch_s
         + n_tokens * pace->infer[c->call].token_s;
}

int32_t weft_iteration_free(const struct weft_iteration *p,
                            const struct weft_iteration_call *c,
                            bool *idle_out)
{
    const struct weft_iteration_deal *d = &p->deal;
    double at = fmax(weft_min_tree_least(&c->next), d->now_s);
    *idle_out = at <= d->now_s;
    return at < (d->last ? INFINITY : d->now_s + d->ahead_s)
             ? weft_min_tree_first(&c->next, at)
             : -1;
}

void weft_iteration_deal_add(struct weft_iteration *p,
                             const struct weft_iteration_call *c, int32_t dp,
                             double n_tokens)
{
    const struct weft_g_layout *layout = &p->t->layout[c->call];
    double at = fmax(done_s(p, layout, dp), p->deal.now_s)
              + weft_iteration_takes(p, c, n_tokens);
    for (int32_t i = 0; i < n_devices(layout); i++)
        p->deal.free_s[device_of(layout, dp, i)] = at;
    for (int32_t i = 0; i < n_devices(layout); i++)
        update_users(p, device_of(layout, dp, i));
}
