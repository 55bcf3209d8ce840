/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/spread.h"

#include <string.h>

#include "base/alloc.h"
#include "rt/graph.h"
#include "run/predict/moving.h"

/* A search of fewer evaluations ends before others have its problem. */
enum { FEW = 10000 };

/* What rank 0 tells the others: a search's problem and where its restarts
 * begin. Options follow; pointers mean nothing to them. */
struct order {
    bool ends; /* there is no more to do */
    struct weft_search_how how;
    struct weft_search_result best;
    struct weft_search_problem p;
    int32_t n_nodes; /* of struct weft_moving, with its shapes */
    struct weft_cluster cluster;
    struct weft_shape shape[WEFT_MAX_ROLES];
};

/* ---- Stopping ----------------------------------------------------------- */

struct asking {
    bool (*stop)(void *ctx);
    void *ctx;
};

/* Whether any rank is to stop; then all are told. */
static bool stops(void *ctx)
{
    const struct asking *a = ctx;
    bool stop = weft_world_said_stop() || (a->stop && a->stop(a->ctx));
    if (stop)
        weft_world_say_stop();
    return stop;
}

static void ask_meanwhile(void *ctx)
{
    (void) stops(ctx);
}

/* ---- Restarts ----------------------------------------------------------- */

/* Makes rank 0's problem that of all ranks. option: the problem's; free it. */
static int share_problem(struct weft_search_problem *p,
                         struct weft_option **option, struct weft_err *err)
{
    size_t n = 0;
    for (int32_t c = 0; c < p->n_calls; c++)
        n += (size_t) p->call[c].n_options;
    *option = weft_alloc(n, sizeof **option);
    int rc = *option ? 0
                     : weft_err_nomem(err, "options", n * sizeof **option);
    rc = weft_world_agree(rc, err);
    if (rc)
        return rc;
    struct weft_option *at = *option;
    for (int32_t c = 0; c < p->n_calls; c++) {
        size_t n_call = (size_t) p->call[c].n_options;
        if (weft_world_rank() == 0)
            memcpy(at, p->call[c].option, n_call * sizeof *at);
        p->call[c].option = at;
        at += n_call;
    }
    weft_world_share(*option, n * sizeof **option);
    return 0;
}

/* Does this rank's restarts; then all ranks have the results of all. */
static void restart(const struct weft_search *s,
                    const struct weft_search_how *how,
                    const struct weft_search_result *best,
                    struct weft_search_result *own)
{
    int n_ranks = weft_world_size();
    weft_search_restart(s, how, best, weft_world_rank(), n_ranks, own);
    for (int32_t i = 0; i < how->restarts; i++)
        weft_world_share_while(i % n_ranks, &own[i], sizeof own[i],
                               ask_meanwhile, how->ctx);
}

/* Follows an order, which all ranks have. own: (restarts), NULL: there was no
 * memory for them. Collective. */
static int follow(struct order *o, struct asking *asking,
                  struct weft_search_result *own, struct weft_err *err)
{
    struct weft_moving moving = {
        o->n_nodes, o->p.n_devices, &o->cluster, {NULL}};
    struct weft_option *option = NULL;
    struct weft_search *s = NULL;
    for (int32_t r = 0; r < WEFT_MAX_ROLES; r++)
        moving.shape[r] = &o->shape[r];
    o->p.move = weft_moving_s;
    o->p.ctx = &moving;
    o->how.stop = stops;
    o->how.ctx = asking;
    int rc = share_problem(&o->p, &option, err);
    if (!rc) {
        rc = own ? weft_search_create(&o->p, &s, err)
                 : weft_err_nomem(err, "restarts",
                                  (size_t) o->how.restarts * sizeof *own);
        rc = weft_world_agree(rc, err);
    }
    if (!rc)
        restart(s, &o->how, &o->best, own);
    weft_search_free(s);
    weft_free(option);
    return rc;
}

int weft_spread_restarts(const struct weft_search *s,
                         const struct weft_search_how *how,
                         const struct weft_search_result *best,
                         struct weft_search_result *own, struct weft_err *err)
{
    struct asking asking = {how->stop, how->ctx};
    const struct weft_search_problem *p = weft_search_problem_of(s);
    const struct weft_moving *moving = p->ctx;
    if (weft_world_size() == 1 || how->evaluations < FEW) {
        weft_search_restart(s, how, best, 0, 1, own);
        return 0;
    }
    weft_assert(p->move == weft_moving_s);
    struct order o = {.how = *how,
                      .best = *best,
                      .p = *p,
                      .n_nodes = moving->n_nodes,
                      .cluster = *moving->cluster};
    for (int32_t r = 0; r < WEFT_MAX_ROLES; r++)
        if (moving->shape[r])
            o.shape[r] = *moving->shape[r];
    weft_world_share(&o, sizeof o);
    return follow(&o, &asking, own, err);
}

/* ---- Serving ------------------------------------------------------------ */

bool weft_spread_stopped(void)
{
    return weft_world_said_stop();
}

void weft_spread_end(void)
{
    struct order o = {.ends = true};
    weft_world_share(&o, sizeof o);
    weft_world_forget_stop();
}

void weft_spread_serve(bool (*stop)(void *ctx), void *ctx)
{
    struct asking asking = {stop, ctx};
    struct order o;
    while (weft_world_share_while(0, &o, sizeof o, ask_meanwhile, &asking),
           !o.ends) {
        struct weft_err ignored; /* rank 0 has it, too */
        struct weft_search_result *own = weft_alloc((size_t) o.how.restarts,
                                                    sizeof *own);
        (void) follow(&o, &asking, own, &ignored);
        weft_free(own);
    }
    weft_world_forget_stop();
}
