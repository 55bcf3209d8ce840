/* SPDX-License-Identifier: Apache-2.0 */
/* What a search finds: with and without fused training, simulated as a whole,
 * also with inter-stage fusion; the fastest of these that fits memory in any
 * order of its tasks, and where none does, that of a search with less
 * memory. */
#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "job/plan_needs.h"
#include "run/predict/compare.h"
#include "run/predict/find_inside.h"
#include "run/predict/shortage.h"
#include "run/trainer.h"

/* ---- Simulations -------------------------------------------------------- */

static bool stop(const struct weft_find *find)
{
    return find->stop && find->stop(find->how.ctx);
}

/* Whether samples can move so that devices infer sooner: generation has
 * replicas to free, whose devices infer. */
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

/* A finalist, as it was simulated. */
struct played {
    int32_t finalist;
    bool moves; /* its last samples do */
    struct weft_simulated simulated;
};

struct ranking {
    struct weft_finding *f;
    const struct weft_find_problems *all;
    struct weft_plan *plan;
    struct weft_found *out;
    struct played played[2 * WEFT_SEARCH_FINALISTS];
    int32_t n_played, best; /* of played; the fastest */
    /* of each finalist, when its last samples move: seconds of an iteration
     * that these cannot undercut; INFINITY: they cannot move, or did, or it was
     * not simulated */
    double least_s[WEFT_SEARCH_FINALISTS];
};

static void choose(const struct ranking *r, int32_t i, bool moves,
                   struct weft_plan *plan)
{
    int fused = r->out->fused[i];
    weft_finding_choose(r->f, &r->all->p[fused],
                        r->out->result.finalist[i].choice, plan);
    plan->inter_stage_fusion = moves;
}

/* What a finalist takes by the search alone. */
static void set_searched(const struct ranking *r, int32_t i,
                         struct weft_simulated *out)
{
    const struct weft_search_value *v = &r->out->result.finalist[i].value;
    *out = (struct weft_simulated){
        .iteration_s = v->period,
        .device_bytes = v->bytes,
        .fullest = v->bytes / (double) r->f->needs->device_bytes};
}

/* A finalist to be simulated, and what comes of it. */
struct trial {
    const struct ranking *r;
    int32_t finalist;
    bool moves;    /* its last samples do ... */
    bool can_move; /* ... or could */
    int rc;
    struct weft_err err;
    struct weft_simulated simulated;
};

/* One of several threads' trials. */
static void try(void *ctx, int64_t i)
{
    struct trial *t = (struct trial *) ctx + i;
    const struct weft_finding *f = t->r->f;
    struct weft_plan plan;
    weft_plan_begin(f->needs, &plan);
    choose(t->r, t->finalist, t->moves, &plan);
    t->rc = weft_plan_check(&plan, f->needs, &t->err);
    if (!t->rc)
        t->rc = weft_pricer_simulate(f->pricer, &plan, f->find->stop,
                                     f->find->how.ctx, &t->simulated,
                                     &t->err);
    t->can_move = can_move(&plan);
    weft_plan_release(&plan);
}

/* Where time is up before the first one has been simulated, or it is too large,
 * it is taken as the search has it until another one is simulated; a later one
 * is left out. */
static int rank(struct ranking *r, const struct trial *t,
                struct weft_err *err)
{
    struct weft_found *out = r->out;
    int32_t i = t->finalist;
    bool missed = t->rc == WEFT_EINTERRUPTED || t->rc == WEFT_ENOMEM;
    r->least_s[i] = INFINITY;
    if (missed && r->n_played > 0)
        return 0;
    if (t->rc && !missed)
        return weft_err_set(err, t->rc, "%s", t->err.text);
    if (out->unplayed)
        r->n_played = r->best = 0;
    out->unplayed = missed;
    struct played *now = &r->played[r->n_played];
    struct weft_simulated *s = &now->simulated;
    *s = t->simulated;
    if (missed)
        set_searched(r, i, s);
    now->finalist = i;
    now->moves = t->moves;
    double *best = &out->best_s[out->fused[i]][t->moves];
    if (!out->unplayed && s->fullest <= 1
        && (*best <= 0 || s->iteration_s < *best))
        *best = s->iteration_s;
    if (!t->moves && s->fullest <= 1 && t->can_move)
        r->least_s[i] = s->gen_infer_least_s > 0
                          ? s->iteration_s - s->gen_infer_s
                                + s->gen_infer_least_s
                          : 0;
    if (better(s, &r->played[r->best].simulated))
        r->best = r->n_played;
    r->n_played++;
    return 0;
}

/* Simulates n finalists from the first on, each in a thread, and ranks them. */
static int simulate(struct ranking *r, int32_t first, int32_t n, bool moves,
                    struct weft_err *err)
{
    struct trial trial[WEFT_SEARCH_FINALISTS];
    int rc = 0;
    for (int32_t i = 0; i < n; i++)
        trial[i] = (struct trial){
            .r = r, .finalist = first + i, .moves = moves};
    weft_threads_run(n, n, try, trial);
    for (int32_t i = 0; i < n && !rc; i++)
        rc = rank(r, &trial[i], err);
    return rc;
}

/* Finalists that can still become the fastest when their last samples move,
 * those first that can become so most. */
static int simulate_moves(struct ranking *r, struct weft_err *err)
{
    int32_t n = r->out->result.n_finalists;
    int rc = 0;
    while (!rc && !stop(r->f->find)) {
        int32_t at = 0;
        for (int32_t i = 1; i < n; i++)
            at = r->least_s[i] < r->least_s[at] ? i : at;
        if (!(r->least_s[at] < r->played[r->best].simulated.iteration_s))
            break;
        rc = simulate(r, at, 1, true, err);
    }
    return rc;
}

/* Simulations at the same time, for which there are threads and memory. */
static int32_t n_at_once(const struct weft_finding *f)
{
    int32_t n = f->find->how.n_threads;
    return n > 1 ? weft_min32(n, weft_simulate_at_once(f->needs)) : 1;
}

static int simulate_all(struct ranking *r, struct weft_err *err)
{
    const struct weft_finding *f = r->f;
    struct weft_found *out = r->out;
    bool must = f->config->rollout.inter_stage_fusion;
    int32_t n = out->result.n_finalists;
    int rc = 0;
    for (int32_t i = 0, k; i < n && !rc && (i == 0 || !stop(f->find));
         i += k) {
        k = weft_min32(n - i, n_at_once(f));
        rc = simulate(r, i, k, must, err);
        out->finalists = out->unplayed ? 0 : r->n_played;
        weft_finding_tell(f, WEFT_FIND_SIMULATES, i + k, n);
    }
    return rc || must ? rc : simulate_moves(r, err);
}

/* ---- Memory of a run ---------------------------------------------------- */

/* What a run of the plan can take of the fullest device, which the plan's
 * memory is then. by_gangs: do not try to count by task. */
static int find_needed(const struct weft_finding *f, struct weft_plan *plan,
                       bool by_gangs, struct weft_needed *out,
                       struct weft_err *err)
{
    const struct weft_plan_needs *n = f->needs;
    int32_t n_devices = plan->n_nodes * plan->n_devices;
    bool gangs = by_gangs || f->find->gangs || n_devices > WEFT_FEW_DEVICES;
    const struct weft_g_job job = {
        plan->n_nodes, plan->n_devices,
        f->config->runtime.place == WEFT_PLACE_DEVICE, plan->n_gpus, false};
    int rc = weft_trainer_predict(f->config, &job, &gangs, 0, plan, err);
    if (!rc)
        *out = weft_shortage_needed(f->config, n, plan, gangs);
    return rc;
}

static bool fits(const struct weft_finding *f, const struct weft_needed *m)
{
    return m->all <= (double) f->needs->device_bytes;
}

/* Says that no plan fits, and with how many nodes one would; m: what the one
 * needs that needs least. */
static int refuse(const struct weft_finding *f, const struct weft_needed *m,
                  struct weft_err *err)
{
    double has = (double) f->needs->device_bytes / 0x1p30;
    bool stopped = f->stopped || stop(f->find);
    char least[300], more[400] = "";
    if (m->one_order)
        snprintf(least, sizeof least,
                 "found until time was up needs %.4g GiB of a device, which "
                 "has %.4g",
                 m->all / 0x1p30, has);
    else
        weft_shortage_least(m, f->needs, least, sizeof least);
    if (!m->one_order)
        weft_shortage_text(f->config, f->needs, f->find->simulate,
                           stopped ? WEFT_SEARCH_STOPPED : WEFT_SEARCHED,
                           more, sizeof more);
    return weft_err_set(err, WEFT_EINVAL,
                        "no plan fits: the least that was %s%s%s%s%s",
                        m->one_order ? "" : "tried ", least,
                        stopped && !m->one_order
                            ? "; the search was stopped before it had tried "
                              "all"
                            : "",
                        more[0] ? "; " : "", more);
}

/* Into how many parts a finalist cuts its calls' replicas. */
static int32_t n_parts(const struct ranking *r, const struct played *p)
{
    struct weft_plan plan;
    weft_plan_begin(r->f->needs, &plan);
    choose(r, p->finalist, p->moves, &plan);
    int32_t n = p->moves;
    for (int32_t c = 1; c < plan.flow.n_calls; c++)
        if (weft_flow_placed(&plan.flow, c))
            n += plan.call[c].tp * plan.call[c].pp;
    weft_plan_release(&plan);
    return n;
}

/* Of those that take as long as the best one, as far as measured costs can
 * tell, the one with fewest parts: what a run has besides, like waking who
 * waits, grows with them. */
static int32_t simplest_like(const struct ranking *r, const bool *done,
                             int32_t best)
{
    const double alike = 1.02;
    const struct weft_simulated *b = &r->played[best].simulated;
    int32_t like = best, least = n_parts(r, &r->played[best]);
    for (int32_t i = 0; i < r->n_played && b->fullest <= 1; i++) {
        const struct weft_simulated *s = &r->played[i].simulated;
        if (done[i] || s->fullest > 1
            || s->iteration_s > alike * b->iteration_s)
            continue;
        int32_t parts = n_parts(r, &r->played[i]);
        if (parts < least
            || (parts == least && better(s, &r->played[like].simulated))) {
            like = i;
            least = parts;
        }
    }
    return like;
}

/* The next one in the order of `better`, of those that are not done. */
static int32_t next_played(const struct ranking *r, const bool *done)
{
    int32_t best = -1;
    for (int32_t i = 0; i < r->n_played; i++)
        if (!done[i]
            && (best < 0
                || better(&r->played[i].simulated,
                          &r->played[best].simulated)))
            best = i;
    return best < 0 || !r->f->find->simulate->costs
             ? best
             : simplest_like(r, done, best);
}

static void set_taken(const struct ranking *r, int32_t i,
                      const struct weft_needed *needed,
                      const struct weft_plan *plan)
{
    const struct played *p = &r->played[i];
    struct weft_found *out = r->out;
    out->simulated = p->simulated;
    out->taken = p->finalist;
    out->moves = p->moves;
    out->memory = *needed;
    weft_plan_release(r->plan);
    *r->plan = *plan;
    r->plan->predicted_s.iteration_s = p->simulated.iteration_s;
    memcpy(r->plan->predicted_s.call_s, p->simulated.call_s,
           sizeof r->plan->predicted_s.call_s);
}

/* What a finalist needs as it was simulated, or as the search has it. */
static struct weft_needed needed_as_played(const struct played *p)
{
    return (struct weft_needed){.all = p->simulated.device_bytes,
                                .one_order = true};
}

/* Whether there is no time to count what a run of many devices needs, which can
 * take longer than its simulation. */
static bool no_time_to_count(const struct weft_finding *f)
{
    return stop(f->find)
        && f->needs->n_nodes * f->n_devices > WEFT_FEW_DEVICES;
}

/* Takes the fastest finalist that fits in any order of its tasks; if none does,
 * the fastest. Counting by instruction takes long where it is done, and says
 * less: then only a few are asked. least_out: what the one takes that takes
 * least of those that were asked. */
static int take(struct ranking *r, struct weft_needed *least_out,
                struct weft_err *err)
{
    enum { FEW = 4 };
    bool done[2 * WEFT_SEARCH_FINALISTS] = {false}, fit = false;
    struct weft_needed needed = {.by_gangs = false};
    int32_t at;
    int rc = 0;
    for (int32_t k = 0;
         !rc && !fit && (at = next_played(r, done)) >= 0
         && (k == 0 || !stop(r->f->find)) && !(needed.by_gangs && k == FEW);
         k++) {
        struct weft_plan plan;
        weft_plan_begin(r->f->needs, &plan);
        choose(r, r->played[at].finalist, r->played[at].moves, &plan);
        if (no_time_to_count(r->f))
            needed = needed_as_played(&r->played[at]);
        else
            rc = find_needed(r->f, &plan, needed.by_gangs, &needed, err);
        fit = !rc && fits(r->f, &needed);
        if (!rc && (k == 0 || fit))
            set_taken(r, at, &needed, &plan);
        else
            weft_plan_release(&plan);
        if (!rc && (k == 0 || needed.all < least_out->all))
            *least_out = needed;
        done[at] = true;
    }
    return rc;
}

/* ---- All together ------------------------------------------------------- */

/* Where no choice fits within the model, says what the one needs that exceeds
 * memory least. */
static int refuse_choice(struct weft_finding *f,
                         const struct weft_find_problems *all,
                         const struct weft_found *found,
                         struct weft_plan *plan, struct weft_err *err)
{
    struct weft_needed needed;
    if (stop(f->find)) { /* no time to count what a run needs */
        needed = (struct weft_needed){.all = found->result.value.bytes,
                                      .one_order = true};
        return refuse(f, &needed, err);
    }
    weft_finding_choose(f, &all->p[found->fused[0]], found->result.choice,
                        plan);
    int rc = find_needed(f, plan, false, &needed, err);
    needed.all = fmax(needed.all, found->result.value.bytes);
    return rc ? rc : refuse(f, &needed, err);
}

/* err NULL: it need not be said why there is no plan, which takes long. */
static int attempt(struct weft_finding *f,
                   const struct weft_find_problems *all,
                   struct weft_plan *plan, struct weft_found *out,
                   struct weft_needed *least_out, struct weft_err *err)
{
    struct ranking r = {.f = f, .all = all, .plan = plan, .out = out};
    for (int32_t i = 0; i < WEFT_SEARCH_FINALISTS; i++)
        r.least_s[i] = INFINITY;
    out->finalists = 0;
    out->unplayed = false;
    memset(out->best_s, 0, sizeof out->best_s);
    out->bytes = all->p[0].device_bytes;
    int rc = weft_find_search(f, all, out, err);
    if (!rc && !out->result.fits)
        return err ? refuse_choice(f, all, out, plan, err) : WEFT_EINVAL;
    if (!rc)
        rc = simulate_all(&r, err);
    return rc ? rc : take(&r, least_out, err);
}

double weft_find_less_memory(double has, int k, double low, double high,
                             double needed)
{
    double step = k > 0 ? 0.02 * (1 << k) * high : 0;
    double less = high - fmax(needed - has, step);
    return less > low ? less : low + (high - low) / 2;
}

/* Whether a is to be taken in place of b, which does not fit: it fits or, where
 * only instructions of it were counted, may fit. */
static bool is_nearer(const struct weft_finding *f,
                      const struct weft_needed *a,
                      const struct weft_needed *b)
{
    return fits(f, a) || (a->by_gangs && !b->by_gangs && !b->one_order);
}

/* Where the plan of a search does not fit in any order of its tasks, others
 * are made with less memory, a few times. Then, if tasks were counted, no plan
 * fits; of instructions it is not known. */
static int search(struct weft_finding *f, struct weft_plan *plan,
                  struct weft_found *out, struct weft_err *err)
{
    enum { TIMES = 4 };
    struct weft_find_problems all;
    struct weft_needed needed;
    weft_finding_tell(f, WEFT_FIND_SEARCHES, f->n_priced, f->n_priced);
    int rc = weft_find_make_problems(f, &all, out, err);
    if (!rc)
        rc = attempt(f, &all, plan, out, &needed, err);
    if (rc)
        return rc;
    struct weft_needed least = needed;
    double high = all.p[0].device_bytes, low = 0;
    for (int k = 0; k < TIMES && !fits(f, &out->memory) && !stop(f->find);
         k++) {
        double bytes = weft_find_less_memory((double) f->needs->device_bytes,
                                             k, low, high, needed.all);
        struct weft_found next = *out;
        struct weft_plan other;
        for (int i = 0; i < WEFT_PROBLEMS; i++)
            all.p[i].device_bytes = bytes;
        weft_plan_begin(f->needs, &other);
        bool found = attempt(f, &all, &other, &next, &needed, NULL) == 0;
        *(found ? &high : &low) = bytes;
        least = found && needed.all < least.all ? needed : least;
        bool taken = found && is_nearer(f, &next.memory, &out->memory);
        weft_plan_release(taken ? plan : &other);
        if (taken) {
            *plan = other;
            *out = next;
        }
    }
    return fits(f, &out->memory) || out->memory.by_gangs
                || out->memory.one_order
             ? 0
             : refuse(f, &least, err);
}

int weft_run_find(const struct weft_config *config,
                  const struct weft_plan_needs *needs,
                  const struct weft_find *find, struct weft_plan *plan_out,
                  struct weft_found *out, struct weft_err *err)
{
    struct weft_finding f;
    *out = (struct weft_found){.options = 0};
    weft_plan_begin(needs, plan_out);
    if (find->begin && !find->begin(find->how.ctx))
        return weft_err_set(err, WEFT_EINTERRUPTED,
                            "the other placements took all time; with "
                            "--search it has as long as it needs, or "
                            "--time-limit S");
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
