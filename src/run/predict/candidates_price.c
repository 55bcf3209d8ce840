/* SPDX-License-Identifier: Apache-2.0 */
/* Prices layouts of calls, ahead of time in several threads. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/threads.h"
#include "run/predict/candidates_inside.h"

/* Whether two layouts of training have the same weights, gradients and
 * optimizer state on the same devices, wherever these are kept. */
static bool has_same_state(const struct weft_call_plan *a,
                           const struct weft_call_plan *b)
{
    return memcmp(&a->mesh, &b->mesh, sizeof a->mesh) == 0 && a->dp == b->dp
        && a->tp == b->tp && a->pp == b->pp && a->zero == b->zero;
}

/* Whether a training layout's weights, gradients and optimizer state, or those
 * without that where it is offloaded, are known to exceed a device: they are
 * the same with any micro-batches, recomputed or not. */
static bool is_large(const struct weft_finding *f, int32_t call,
                     const struct weft_call_plan *at, bool offload)
{
    const struct weft_candidates *list = &f->candidates[call];
    for (int32_t k = 0; k < list->n; k++) {
        const struct weft_call_plan *p = &list->at[k].plan;
        if (list->at[k].large && p->offload == offload
            && has_same_state(p, at))
            return true;
    }
    return false;
}

/* Whether a layout need not be priced: it exceeds a device as another one does,
 * or offloads what fits, which takes time. That without is listed before it. */
static bool is_needless(const struct weft_finding *f, int32_t call,
                        const struct weft_call_plan *at)
{
    return weft_flow_trains(f->needs->flow, call)
        && (is_large(f, call, at, at->offload)
            || (at->offload && !f->fixed.call[call].offload
                && !is_large(f, call, at, false)));
}

/* The price of a layout whose samples are cut alike, as it is one of another
 * number of micro-batches; NULL: none was priced. Its variant may have been
 * left out since. */
static const struct weft_option *known_price(const struct weft_finding *f,
                                             int32_t call,
                                             const struct weft_call_plan *at)
{
    for (int32_t k = 0; k < f->n_variants[call]; k++)
        if (weft_pricer_same(f->pricer, &f->variant[call][k].plan, at, call))
            return &f->variant[call][k];
    return NULL;
}

static void set_large(const struct weft_finding *f,
                      const struct weft_option *o, struct weft_candidate *c)
{
    double has = (double) f->needs->device_bytes;
    c->needs = o->held + o->active;
    c->large = o->held > has;
    c->lost = c->needs > has;
}

int32_t weft_candidates_open(const struct weft_finding *f, int32_t call)
{
    int32_t n = 0;
    for (int32_t k = 0; k < f->candidates[call].n; k++)
        n += !f->candidates[call].at[k].closed;
    return n;
}

int32_t weft_candidates_all_open(const struct weft_finding *f)
{
    int32_t n = 0;
    for (int32_t c = 0; c < WEFT_MAX_CALLS; c++)
        n += weft_candidates_open(f, c);
    return n;
}

static void price_now(const struct weft_finding *f, int32_t call,
                      const struct weft_candidate *c,
                      struct weft_ahead_price *out)
{
    struct weft_priced priced[WEFT_MAX_CALLS];
    out->rc = weft_pricer_price(f->pricer, &c->plan, 1u << call, priced,
                                &out->err);
    out->priced = priced[call];
}

int weft_candidate_price(struct weft_finding *f, int32_t call,
                         struct weft_candidate *c, struct weft_err *err)
{
    struct weft_ahead_price now;
    c->closed = true;
    c->lost = is_needless(f, call, &c->plan);
    if (c->lost)
        return 0;
    const struct weft_option *known = known_price(f, call, &c->plan);
    if (known) {
        struct weft_option o = *known;
        o.plan = c->plan;
        set_large(f, &o, c);
        return weft_finding_add(f, call, &o, err);
    }
    if (c->ahead)
        now = *c->ahead;
    else
        price_now(f, call, c, &now);
    int rc = now.rc;
    if (rc)
        *err = now.err;
    f->n_priced += !rc;
    f->n_left_out += rc == WEFT_ENOMEM;
    if (rc == WEFT_ENOMEM) {
        f->left_out_s = fmin(f->left_out_s, c->bound);
        rc = 0;
    } else if (!rc) {
        const struct weft_option o = weft_finding_option(f, call, &c->plan,
                                                         &now.priced);
        set_large(f, &o, c);
        rc = weft_finding_add(f, call, &o, err);
    }
    f->stopped = !c->ahead && weft_finding_stops(f);
    weft_finding_tell(f, WEFT_FIND_PRICES, f->n_priced,
                      f->n_priced + weft_candidates_all_open(f));
    return rc;
}

/* ---- Ahead of time ------------------------------------------------------- */

static void price_ahead(void *ctx, int64_t i)
{
    struct weft_pricing *l = ctx;
    struct weft_candidate *c = l->at[i].c;
    if (!atomic_load(&l->over) && weft_finding_stops(l->f))
        atomic_store(&l->over, true);
    if (atomic_load(&l->over))
        return;
    c->ahead = weft_alloc(1, sizeof *c->ahead); /* NULL: it is priced later */
    if (c->ahead)
        price_now(l->f, l->at[i].call, c, c->ahead);
}

int weft_pricing_add(struct weft_pricing *l, int32_t call,
                     struct weft_candidate *c, struct weft_err *err)
{
    if (!weft_finding_grow(&l->at, l->n, &l->room, sizeof *l->at))
        return weft_err_nomem(err, "layouts", sizeof *l->at);
    l->at[l->n++] = (struct weft_pricing_item){call, c};
    return 0;
}

/* Whether what is found of layout a can make a price of b needless. */
static bool can_spare(const struct weft_finding *f,
                      const struct weft_pricing_item *a,
                      const struct weft_pricing_item *b)
{
    const struct weft_call_plan *p = &a->c->plan, *q = &b->c->plan;
    return a->call == b->call && weft_flow_trains(f->needs->flow, a->call)
        && has_same_state(p, q);
}

static bool is_decided(const struct weft_finding *f,
                       const struct weft_pricing_item *i)
{
    return i->c->ahead || is_needless(f, i->call, &i->c->plan)
        || known_price(f, i->call, &i->c->plan);
}

int weft_pricing_ahead(struct weft_pricing *all, int32_t first,
                       struct weft_err *err)
{
    struct weft_pricing free = {.f = all->f};
    int rc = 0;
    for (int32_t i = first; i < all->n && !rc; i++) {
        bool waits = is_decided(all->f, &all->at[i]);
        for (int32_t k = first; k < i && !waits; k++)
            waits = can_spare(all->f, &all->at[k], &all->at[i]);
        if (!waits)
            rc = weft_pricing_add(&free, all->at[i].call, all->at[i].c, err);
    }
    if (!rc)
        weft_threads_run(all->f->find->how.n_threads, free.n, price_ahead,
                         &free);
    weft_free(free.at);
    if (atomic_load(&free.over))
        atomic_store(&all->over, true);
    return rc;
}

int weft_pricing_run(struct weft_pricing *l, struct weft_err *err)
{
    struct weft_finding *f = l->f;
    bool together = f->find->how.n_threads > 1;
    int rc = 0;
    for (int32_t i = 0; i < l->n && !f->stopped && !rc; i++) {
        struct weft_pricing_item *item = &l->at[i];
        bool decided = !together || is_decided(f, item);
        if (!decided && !atomic_load(&l->over))
            rc = weft_pricing_ahead(l, i, err);
        /* where it is over, what is priced already counts, and no more is */
        bool left = !decided && !item->c->ahead && atomic_load(&l->over);
        if (!rc && !left)
            rc = weft_candidate_price(f, item->call, item->c, err);
    }
    f->stopped = f->stopped || atomic_load(&l->over);
    return rc;
}
