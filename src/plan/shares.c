/* SPDX-License-Identifier: Apache-2.0 */
/* Shares of dp members, and those that follow from their devices' speed. */
#include "plan/shares.h"

#include <math.h>

bool weft_shares_add(struct weft_shares *s, int32_t share)
{
    if (s->n > 0 && s->run[s->n - 1].share == share) {
        s->run[s->n - 1].n++;
        return true;
    }
    if (s->n == WEFT_MAX_SHARES)
        return false;
    s->run[s->n++] = (struct weft_share_run){1, share};
    return true;
}

int32_t weft_shares_of(const struct weft_shares *s, int32_t member)
{
    int32_t k = 0;
    if (s->n == 0)
        return 1;
    for (; k < s->n - 1 && member >= s->run[k].n; k++)
        member -= s->run[k].n;
    return s->run[k].share;
}

int32_t weft_shares_members(const struct weft_shares *s)
{
    int32_t n = 0;
    for (int32_t k = 0; k < s->n; k++)
        n += s->run[k].n;
    return n;
}

/* What the members of each run get: everyone `each`, the first `more` of them
 * one more. */
struct parts {
    int32_t each[WEFT_MAX_SHARES], more[WEFT_MAX_SHARES];
};

/* The largest part, by its member's share, is as small as can be; ties: earlier
 * members. */
static void deal(const struct weft_shares *s, int32_t n, struct parts *out)
{
    bool done[WEFT_MAX_SHARES] = {false};
    int64_t all = 0, rest = n;
    for (int32_t k = 0; k < s->n; k++)
        all += (int64_t) s->run[k].n * s->run[k].share;
    for (int32_t k = 0; k < s->n; k++) {
        out->each[k] = (int32_t) ((int64_t) n * s->run[k].share / all);
        out->more[k] = 0;
        rest -= (int64_t) out->each[k] * s->run[k].n;
    }
    while (rest > 0) { /* fewer than there are members */
        int32_t best = -1;
        for (int32_t k = 0; k < s->n; k++)
            if (!done[k]
                && (best < 0
                    || (int64_t) (out->each[k] + 1) * s->run[best].share
                           < (int64_t) (out->each[best] + 1)
                                 * s->run[k].share))
                best = k;
        out->more[best] = (int32_t) weft_min64(rest, s->run[best].n);
        rest -= out->more[best];
        done[best] = true;
    }
}

struct weft_range weft_plan_share(const struct weft_call_plan *c, int32_t n,
                                  int32_t member)
{
    const struct weft_shares *s = &c->shares;
    struct parts p;
    int32_t first = 0, k = 0;
    if (s->n == 0)
        return weft_plan_range(n, c->dp, member);
    deal(s, n, &p);
    for (; k < s->n - 1 && member >= s->run[k].n; k++) {
        first += p.each[k] * s->run[k].n + p.more[k];
        member -= s->run[k].n;
    }
    return (struct weft_range){first + p.each[k] * member
                                   + weft_min32(member, p.more[k]),
                               p.each[k] + (member < p.more[k])};
}

int32_t weft_plan_most_share(const struct weft_call_plan *c, int32_t n)
{
    struct parts p;
    int32_t most = 0;
    if (c->shares.n == 0)
        return (int32_t) weft_ceil_div(n, c->dp);
    deal(&c->shares, n, &p);
    for (int32_t k = 0; k < c->shares.n; k++)
        most = weft_max32(most, p.each[k] + (p.more[k] > 0));
    return most;
}

/* ---- By speed ----------------------------------------------------------- */

static double least(double a, double b)
{
    return a < b ? a : b;
}

/* What a call's tasks are limited by: generation by the memory, which it reads
 * for every token, the others by products. */
static double speed_of(const struct weft_node_kind *kind,
                       enum weft_call_kind call, enum weft_dtype dtype)
{
    double flops = kind->flops[dtype] > 0 ? kind->flops[dtype]
                                          : kind->flops[WEFT_F32];
    return call == WEFT_GENERATE
             ? least(kind->memory_bytes_per_s,
                     kind->node_bytes_per_s / kind->n_devices)
             : flops;
}

static const struct weft_node_kind *kind_of(
    const struct weft_plan *plan, const struct weft_cluster *cluster,
    int32_t device)
{
    int32_t each = plan->n_gpus > 0 ? plan->n_gpus : plan->n_devices, first;
    int32_t node = weft_cluster_rank(cluster, plan->n_nodes, each,
                                     device / plan->n_devices, &first);
    return weft_cluster_node(cluster, weft_min32(node, cluster->n_nodes - 1));
}

/* The slowest device of a dp member. */
static double member_speed(const struct weft_plan *plan, int32_t call,
                           const struct weft_cluster *cluster,
                           enum weft_dtype dtype, int32_t member)
{
    const struct weft_call_plan *c = &plan->call[call];
    double speed = INFINITY;
    for (int32_t s = 0; s < c->pp; s++)
        for (int32_t k = 0; k < c->tp; k++) {
            int32_t device = weft_plan_device(plan, c, member, s, k);
            speed = least(speed, speed_of(kind_of(plan, cluster, device),
                                          plan->flow.call[call].kind, dtype));
        }
    return speed;
}

static int32_t divisor_of(int32_t a, int32_t b)
{
    while (b != 0) {
        int32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Divides by what all have in common; alike: no shares. */
static void reduce(struct weft_shares *s)
{
    int32_t common = 0;
    for (int32_t k = 0; k < s->n; k++)
        common = divisor_of(s->run[k].share, common);
    for (int32_t k = 0; k < s->n; k++)
        s->run[k].share /= common;
    if (s->n == 1)
        s->n = 0;
}

static void share_call(struct weft_plan *plan, int32_t call,
                       const struct weft_cluster *cluster,
                       enum weft_dtype dtype, int32_t n_things)
{
    struct weft_call_plan *c = &plan->call[call];
    struct weft_call_plan shared = *c;
    double fastest = 0;
    bool ok = true;
    shared.shares.n = 0;
    for (int32_t i = 0; i < c->dp; i++)
        fastest = fmax(fastest, member_speed(plan, call, cluster, dtype, i));
    for (int32_t i = 0; i < c->dp && ok; i++) {
        double speed = member_speed(plan, call, cluster, dtype, i);
        int32_t share = (int32_t) lround(WEFT_SHARE_FASTEST * speed
                                         / fastest);
        ok = weft_shares_add(&shared.shares, weft_max32(share, 1));
    }
    reduce(&shared.shares);
    for (int32_t i = 0; i < c->dp && ok; i++)
        ok = weft_plan_share(&shared, n_things, i).n > 0;
    if (ok)
        *c = shared;
}

void weft_plan_share_by_speed(struct weft_plan *plan,
                              const struct weft_plan_needs *needs,
                              const struct weft_cluster *cluster)
{
    for (int32_t i = 1; i < plan->flow.n_calls; i++) {
        const struct weft_flow_call *f = &plan->flow.call[i];
        if (plan->call[i].dp > 1 && plan->call[i].shares.n == 0)
            share_call(plan, i, cluster, needs->shape[f->role]->dtype,
                       f->kind == WEFT_TRAIN ? needs->gradient_groups
                       : f->greedy           ? needs->n_prompts
                                             : needs->n_samples);
    }
}

int weft_plan_check_kinds(const struct weft_plan *plan,
                          const struct weft_cluster *cluster,
                          struct weft_err *err)
{
    for (int32_t i = 1; i < plan->flow.n_calls; i++) {
        const struct weft_call_plan *c = &plan->call[i];
        int32_t n_groups = c->dp * c->pp;
        for (int32_t g = 0; g < n_groups && c->tp > 1; g++) {
            int32_t dp = g % c->dp, s = g / c->dp;
            const struct weft_node_kind *a = kind_of(
                plan, cluster, weft_plan_device(plan, c, dp, s, 0));
            for (int32_t k = 1; k < c->tp; k++) {
                const struct weft_node_kind *b = kind_of(
                    plan, cluster, weft_plan_device(plan, c, dp, s, k));
                if (a != b)
                    return weft_err_set(
                        err, WEFT_EINVAL,
                        "%s: tp %d puts devices of '%s' and '%s' into one "
                        "group, which would wait for the slower ones; take a "
                        "tp that stays within a kind of node",
                        plan->flow.call[i].name, (int) c->tp, a->name,
                        b->name);
            }
        }
    }
    return 0;
}
