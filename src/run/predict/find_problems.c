/* SPDX-License-Identifier: Apache-2.0 */
/* What is searched: with and without fused training, of plans whose last samples
 * stay, and, for a bound alone, of those whose last samples move. */
#include "run/predict/find_inside.h"

#include <math.h>
#include <string.h>

#include "plan/shares.h"

/* ---- Problems ----------------------------------------------------------- */

void weft_finding_choose(const struct weft_finding *f,
                         const struct weft_search_problem *p,
                         const int32_t *choice, struct weft_plan *plan)
{
    bool fused = false;
    for (int32_t i = 0; i < p->n_calls; i++)
        fused = fused || p->call[i].two;
    for (int32_t i = 0; i < p->n_calls; i++) {
        const struct weft_option *o = &p->call[i].option[choice[i]];
        plan->call[fused ? f->fused_call_of[i] : f->call_of[i]] = o->plan;
        if (p->call[i].two)
            plan->call[f->fused[1]] = o->with;
    }
    plan->intra_stage_fusion = fused;
    plan->inter_stage_fusion = f->config->rollout.inter_stage_fusion;
    if (f->needs->cluster)
        weft_plan_share_by_speed(plan, f->needs, f->needs->cluster);
}

static int make_moved(struct weft_finding *f, struct weft_find_problems *all,
                      struct weft_err *err)
{
    struct weft_finding *m = f->moved;
    int64_t options = 0;
    if (!weft_finding_can_move(f))
        return 0;
    int rc = weft_finding_place(m, &all->p[WEFT_MOVED], &options, err);
    all->has[WEFT_MOVED] = all->has[0];
    all->has[WEFT_MOVED + 1] = m->n_options[0] > 0;
    if (!rc && all->has[WEFT_MOVED + 1])
        rc = weft_finding_fuse(m, &all->p[WEFT_MOVED],
                               &all->p[WEFT_MOVED + 1], err);
    return rc ? rc : weft_finding_prune(m, &all->p[WEFT_MOVED], err);
}

int weft_find_make_problems(struct weft_finding *f,
                            struct weft_find_problems *all,
                            struct weft_found *out, struct weft_err *err)
{
    bool fuses = weft_finding_fuses(f);
    bool must = f->config->train.intra_stage_fusion;
    *all = (struct weft_find_problems){.has = {!must}};
    int rc = fuses ? weft_finding_pair(f, err) : 0;
    out->pairs = f->n_pairs;
    if (!rc && weft_finding_moves(f))
        rc = weft_finding_move(f, err);
    if (!rc)
        rc = weft_finding_place(f, &all->p[0], &out->options, err);
    if (!rc && f->n_options[0] > 0)
        rc = weft_finding_fuse(f, &all->p[0], &all->p[1], err);
    all->has[1] = f->n_options[0] > 0;
    if (!rc && must && !all->has[1])
        rc = weft_err_set(err, WEFT_EINVAL,
                          "train.intra_stage_fusion: no plan with pipelines "
                          "to fuse takes less than training one model after "
                          "another");
    if (!rc)
        rc = make_moved(f, all, err);
    if (!rc && !must)
        rc = weft_finding_prune(f, &all->p[0], err);
    out->options += f->n_options[0];
    for (int32_t k = 0; k < 2 && !rc; k++)
        for (int32_t i = 0; all->has[k] && i < all->p[k].n_calls; i++)
            if (k == 0 || all->p[k].call[i].two || !all->has[0])
                out->needed += all->p[k].call[i].n_options;
    return rc;
}

/* ---- Searching ---------------------------------------------------------- */

/* The best of both, and a bound of both. */
static void join(const struct weft_search_result r[2], const bool *has,
                 struct weft_search_result *out, bool *fused_out)
{
    int better = !has[0]                ? 1
               : !has[1]                ? 0
               : r[1].fits != r[0].fits ? r[1].fits
               : !r[0].fits             ? 0
                            : r[1].value.period < r[0].value.period;
    *out = r[better];
    *fused_out = better;
    out->n_finalists = 0;
    for (int k = 0; k < 2; k++) {
        if (!has[k] || k == better)
            continue;
        out->bound = fmin(out->bound, r[k].bound);
        out->any_order = fmin(out->any_order, r[k].any_order);
        out->evaluations += r[k].evaluations;
        out->branches += r[k].branches;
        out->stopped = out->stopped || r[k].stopped;
    }
}

/* The best n finalists, half of them with fused training if there are as many,
 * the shortest first. */
static void merge(const struct weft_search_result r[2], const bool *has,
                  int32_t n, struct weft_found *out)
{
    int32_t of[2] = {has[0] ? r[0].n_finalists : 0,
                     has[1] ? r[1].n_finalists : 0},
            at[2] = {0, 0};
    int32_t fused = weft_min32(of[1], n / 2);
    of[0] = weft_min32(of[0], n - fused);
    of[1] = weft_min32(of[1], n - of[0]);
    while (at[0] < of[0] || at[1] < of[1]) {
        const struct weft_search_finalist *a = &r[0].finalist[at[0]];
        const struct weft_search_finalist *b = &r[1].finalist[at[1]];
        int k = at[0] == of[0]
             || (at[1] < of[1] && b->value.period < a->value.period);
        out->fused[out->result.n_finalists] = k;
        out->result.finalist[out->result.n_finalists++] = k ? *b : *a;
        at[k]++;
    }
}

/* Seconds that no plan takes less than, within the model, whose last samples
 * move, as far as that is less than what is known without. */
static int search_moved(const struct weft_finding *f,
                        const struct weft_find_problems *all,
                        struct weft_found *out, struct weft_err *err)
{
    struct weft_search_how how = f->find->how;
    int rc = 0;
    bool known = (f->moved && !f->moved->stopped)
              || !weft_config_generates(f->config);
    out->moved_bound = known ? INFINITY : 0;
    if (how.method == WEFT_SEARCH_EXHAUSTIVE) /* a bound alone */
        how.method = WEFT_SEARCH_BRANCHES;
    how.known = out->result.value.period;
    how.evaluations /= 8;
    for (int k = WEFT_MOVED; k < WEFT_PROBLEMS && !rc; k++) {
        struct weft_search_result r;
        struct weft_search *s = NULL;
        if (!all->has[k] || !out->result.fits)
            continue;
        rc = weft_search_create(&all->p[k], &s, err);
        if (!rc)
            rc = weft_search_run(s, &how, &r, err);
        weft_search_free(s);
        if (!rc)
            out->moved_bound = fmin(out->moved_bound, r.bound);
    }
    return rc;
}

int weft_find_search(const struct weft_finding *f,
                     const struct weft_find_problems *all,
                     struct weft_found *out, struct weft_err *err)
{
    struct weft_search_result r[2];
    int32_t n = f->find->finalists > 0 ? f->find->finalists
                                       : WEFT_SEARCH_FINALISTS;
    int rc = 0;
    memset(r, 0, sizeof r);
    for (int k = 0; k < 2 && !rc; k++) {
        struct weft_search_how how = f->find->how;
        struct weft_search *s = NULL;
        if (!all->has[k])
            continue;
        if (k == 1 && r[0].fits) {
            how.known = r[0].value.period;
            how.evaluations /= 2;
        }
        rc = weft_search_create(&all->p[k], &s, err);
        if (!rc)
            rc = weft_search_run(s, &how, &r[k], err);
        weft_search_free(s);
    }
    if (rc)
        return rc;
    join(r, all->has, &out->result, &out->fused[0]);
    merge(r, all->has, n, out);
    return search_moved(f, all, out, err);
}
