/* SPDX-License-Identifier: Apache-2.0 */
/* What a search finds: with and without fused training, simulated as a whole, also
 * with inter-stage fusion, and once more where a run may need more memory. */
#include <math.h>
#include <string.h>

#include "job/plan_needs.h"
#include "plan/shares.h"
#include "run/predict/options_inside.h"
#include "run/trainer.h"

/* ---- Problems ----------------------------------------------------------- */

/* The calls with training apart, and with that fused; not all may be there. */
struct problems {
    struct weft_search_problem p[2];
    bool has[2];
};

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

static int make_problems(struct weft_finding *f, struct problems *all,
                         struct weft_found *out, struct weft_err *err)
{
    bool fuses = weft_finding_fuses(f);
    bool must = f->config->train.intra_stage_fusion;
    *all = (struct problems){.has = {!must, false}};
    int rc = fuses ? weft_finding_pair(f, err) : 0;
    out->pairs = f->n_pairs;
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
static void join(struct weft_search_result r[2], const bool *has,
                 struct weft_search_result *out)
{
    int better = !has[0]                ? 1
               : !has[1]                ? 0
               : r[1].fits != r[0].fits ? r[1].fits
               : !r[0].fits             ? 0
                            : r[1].value.period < r[0].value.period;
    *out = r[better];
    out->n_finalists = 0;
    for (int k = 0; k < 2; k++) {
        if (!has[k] || k == better)
            continue;
        out->bound = fmin(out->bound, r[k].bound);
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

static int search_both(const struct weft_finding *f,
                       const struct problems *all, struct weft_found *out,
                       struct weft_err *err)
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
    join(r, all->has, &out->result);
    merge(r, all->has, n, out);
    return 0;
}

/* ---- Simulations -------------------------------------------------------- */

static bool stop(const struct weft_find *find)
{
    return find->stop && find->stop(find->how.ctx);
}

/* Whether samples can move so that devices infer sooner: generation has replicas
 * to free, whose devices infer. */
static bool can_move(const struct weft_plan *plan)
{
    const struct weft_dataflow *flow = &plan->flow;
    for (int32_t g = 1; g < flow->n_calls; g++)
        for (int32_t i = 1; i < flow->n_calls; i++)
            for (int32_t d = 0;
                 d < plan->n_nodes * plan->n_devices
                 && flow->call[g].kind == WEFT_GENERATE
                 && flow->call[i].kind == WEFT_INFER
                 && weft_flow_placed(flow, i) && plan->call[g].dp > 1;
                 d++)
                if (weft_mesh_has(plan, &plan->call[g].mesh, d)
                    && weft_mesh_has(plan, &plan->call[i].mesh, d))
                    return true;
    return false;
}

/* The fastest that fits, or else the one that is nearest to it. */
static bool better(const struct weft_simulated *a,
                   const struct weft_simulated *b)
{
    bool fits = a->fullest <= 1;
    if (fits != (b->fullest <= 1))
        return fits;
    return fits ? a->iteration_s < b->iteration_s * (1 - WEFT_SEARCH_NEAR)
                : a->fullest < b->fullest;
}

struct ranking {
    struct weft_finding *f;
    const struct problems *all;
    struct weft_plan *plan;
    struct weft_found *out;
    /* of each finalist, when its last samples move: seconds of an iteration that
     * these cannot undercut; INFINITY: they cannot move, or did */
    double least_s[WEFT_SEARCH_FINALISTS];
};

static void take(struct ranking *r, int32_t i, bool moves)
{
    struct weft_found *out = r->out;
    int fused = out->fused[i];
    weft_finding_choose(r->f, &r->all->p[fused],
                        out->result.finalist[i].choice, r->plan);
    r->plan->inter_stage_fusion = moves;
}

/* Simulates a finalist. first: there is none to compare with. */
static int simulate(struct ranking *r, int32_t i, bool moves, bool first,
                    struct weft_err *err)
{
    struct weft_found *out = r->out;
    struct weft_simulated s;
    take(r, i, moves);
    int rc = weft_plan_check(r->plan, r->f->needs, err);
    if (!rc)
        rc = weft_pricer_simulate(r->f->pricer, r->plan, &s, err);
    if (rc)
        return rc;
    double *best = &out->best_s[out->fused[i]][moves];
    if (s.fullest <= 1 && (*best <= 0 || s.iteration_s < *best))
        *best = s.iteration_s;
    r->least_s[i] = INFINITY;
    if (!moves && s.fullest <= 1 && can_move(r->plan))
        r->least_s[i] = s.gen_infer_least_s > 0
                          ? s.iteration_s - s.gen_infer_s
                                + s.gen_infer_least_s
                          : 0;
    if (first || better(&s, &out->simulated)) {
        out->simulated = s;
        out->taken = i;
        out->moves = moves;
    }
    return 0;
}

/* Finalists that can still become the fastest when their last samples move, those
 * first that can become so most. */
static int simulate_moves(struct ranking *r, struct weft_err *err)
{
    int32_t n = r->out->finalists;
    int rc = 0;
    while (!rc && !stop(r->f->find)) {
        int32_t at = 0;
        for (int32_t i = 1; i < n; i++)
            at = r->least_s[i] < r->least_s[at] ? i : at;
        if (!(r->least_s[at] < r->out->simulated.iteration_s))
            break;
        rc = simulate(r, at, true, false, err);
    }
    return rc;
}

static int rank(struct weft_finding *f, const struct problems *all,
                struct weft_plan *plan, struct weft_found *out,
                struct weft_err *err)
{
    struct ranking r = {.f = f, .all = all, .plan = plan, .out = out};
    bool must = f->config->rollout.inter_stage_fusion;
    int32_t n = out->result.n_finalists;
    int rc = 0;
    for (int32_t i = 0; i < n && !rc && (i == 0 || !stop(f->find)); i++) {
        rc = simulate(&r, i, must, i == 0, err);
        out->finalists += !rc;
        if (f->find->progress)
            f->find->progress(i + 1, n);
    }
    if (!rc && !must)
        rc = simulate_moves(&r, err);
    if (rc)
        return rc;
    take(&r, out->taken, out->moves);
    plan->predicted_s.iteration_s = out->simulated.iteration_s;
    memcpy(plan->predicted_s.call_s, out->simulated.call_s,
           sizeof plan->predicted_s.call_s);
    return 0;
}

static int attempt(struct weft_finding *f, const struct problems *all,
                   struct weft_plan *plan, struct weft_found *out,
                   struct weft_err *err)
{
    out->finalists = out->taken = 0;
    out->moves = false;
    memset(out->best_s, 0, sizeof out->best_s);
    out->bytes = all->p[0].device_bytes;
    int rc = search_both(f, all, out, err);
    if (!rc && !out->result.fits)
        rc = weft_err_set(err, WEFT_EINVAL,
                          "no plan fits: the least that was tried takes "
                          "%.2f GiB of a device, which has %.2f",
                          out->result.value.bytes / 0x1p30,
                          out->bytes / 0x1p30);
    return rc ? rc : rank(f, all, plan, out, err);
}

/* ---- Memory of a run ---------------------------------------------------- */

/* By how much a run of the plan can exceed a device's memory, in the worst order
 * of its tasks. Records of tasks are the host's. */
static int find_excess(const struct weft_finding *f, struct weft_plan *plan,
                       double *out, bool *by_gangs, struct weft_err *err)
{
    const struct weft_plan_needs *n = f->needs;
    bool own = f->config->runtime.place == WEFT_PLACE_DEVICE || n->n_gpus > 0;
    int32_t n_devices = plan->n_nodes * plan->n_devices;
    int32_t sharing = own ? 1 : plan->n_devices;
    const struct weft_g_job job = {
        plan->n_nodes, plan->n_devices,
        f->config->runtime.place == WEFT_PLACE_DEVICE, plan->n_gpus};
    *by_gangs = f->find->gangs || n_devices > WEFT_FEW_DEVICES;
    int rc = weft_trainer_predict(f->config, &job, by_gangs, 0, plan, err);
    *out = -INFINITY;
    for (int32_t d = 0; d < n_devices && !rc; d++) {
        const int64_t *m = plan->memory[d];
        int64_t tasks = own ? m[WEFT_MEM_TASKS] : 0;
        *out = fmax(*out, (double) (m[WEFT_MEM_ALL] - tasks) / sharing
                              - (double) n->device_bytes);
    }
    return rc;
}

/* A search's memory is that of one order of tasks. Where a run can take more, it
 * is made again with so much less memory, a few times; if nothing fits then, the
 * plan is the one that exceeds memory least. */
static int search_again(struct weft_finding *f, struct problems *all,
                        struct weft_plan *plan, struct weft_found *out,
                        struct weft_err *err)
{
    enum { TIMES = 4 };
    int rc = find_excess(f, plan, &out->excess, &out->by_gangs, err);
    double excess = out->excess;
    bool found = true;
    for (int k = 0; k < TIMES && found && !rc && excess > 0
                    && excess < all->p[0].device_bytes && !stop(f->find);
         k++) {
        struct weft_found next = *out;
        struct weft_plan other;
        struct weft_err ignored;
        for (int i = 0; i < 2; i++)
            all->p[i].device_bytes -= excess;
        weft_plan_begin(f->needs, &other);
        found = attempt(f, all, &other, &next, &ignored) == 0;
        if (found)
            rc = find_excess(f, &other, &excess, &next.by_gangs, err);
        bool better = found && !rc && excess < out->excess;
        weft_plan_release(better ? plan : &other);
        if (better) {
            next.excess = excess;
            *plan = other;
            *out = next;
        }
    }
    return rc;
}

static int search(struct weft_finding *f, struct weft_plan *plan,
                  struct weft_found *out, struct weft_err *err)
{
    struct problems all;
    int rc = make_problems(f, &all, out, err);
    if (!rc)
        rc = attempt(f, &all, plan, out, err);
    return rc ? rc : search_again(f, &all, plan, out, err);
}

int weft_run_find(const struct weft_config *config,
                  const struct weft_plan_needs *needs,
                  const struct weft_find *find, struct weft_plan *plan_out,
                  struct weft_found *out, struct weft_err *err)
{
    struct weft_finding f;
    *out = (struct weft_found){.options = 0};
    weft_plan_begin(needs, plan_out);
    int rc = weft_finding_open(config, needs, find, &f, err);
    out->priced = f.n_priced;
    out->left_out = f.n_left_out;
    out->stopped = f.stopped;
    if (!rc)
        rc = search(&f, plan_out, out, err);
    out->stopped = out->stopped || out->result.stopped;
    weft_finding_close(&f);
    return rc;
}
