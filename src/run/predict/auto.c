/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/auto.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/threads.h"
#include "plan/fixed.h"
#include "run/common.h"
#include "run/plans.h"
#include "run/predict/known.h"
#include "run/predict/spread.h"

/* Sets what is known of the devices. */
static void know(struct weft_plan_needs *needs,
                 const struct weft_cluster *cluster)
{
    if (needs->device_bytes == 0)
        needs->device_bytes = (int64_t) weft_cluster_device_bytes(cluster);
    if (cluster->n_kinds > 1)
        needs->cluster = cluster;
}

/* Whether a file has a plan for the job, which is as the configuration asks
 * for. */
static bool read_plan(const char *path, const struct weft_plan_needs *needs,
                      const struct weft_fixed *fixed, struct weft_plan *out)
{
    struct weft_err ignored;
    if (!weft_file_exists(path)
        || weft_plan_read(path, needs->flow, out, &ignored) != 0)
        return false;
    if (weft_plan_check(out, needs, &ignored) == 0
        && weft_fixed_holds(fixed, out))
        return true;
    weft_plan_release(out);
    *out = (struct weft_plan){0};
    return false;
}

/* The plan that the run had, if it is still one for the job. */
static bool keep(const struct weft_trainer *t,
                 const struct weft_plan_needs *needs,
                 const struct weft_fixed *fixed, struct weft_plan *out)
{
    char path[4096], *last = NULL;
    struct weft_err ignored;
    if (!t->planned)
        return false;
    snprintf(path, sizeof path, "%s/plan.json", t->config.run_dir);
    (void) weft_plans_last(t->config.run_dir, t->iteration, &last, &ignored);
    bool has = (last && read_plan(last, needs, fixed, out))
            || read_plan(path, needs, fixed, out);
    weft_free(last);
    return has;
}

int weft_auto_find(struct weft_trainer *t, struct weft_plan_needs *needs,
                   const struct weft_lengths *lengths,
                   const struct weft_search_how *how, struct weft_plan *out,
                   struct weft_found *found_out, struct weft_err *err)
{
    struct weft_simulate_options simulate = weft_known_options(t->known,
                                                               &t->job);
    struct weft_find find = {
        .simulate = &simulate, .how = *how, .stop = how->stop};
    find.how.n_threads = weft_threads_usable();
    find.how.spread = weft_spread_restarts;
    if (lengths)
        simulate.lengths = lengths;
    know(needs, simulate.cluster);
    int rc = weft_run_find(&t->config, needs, &find, out, found_out, err);
    weft_free(out->memory); /* the run predicts it */
    out->memory = NULL;
    return rc;
}

/* Whether somebody wants the run to end: whatever the search came to by then is
 * of no use to it. */
static bool is_stopped(const struct weft_trainer_opening *o)
{
    return weft_world_rank() == 0 && o->stop && o->stop(o->ctx);
}

static int find(struct weft_trainer *t, struct weft_plan_needs *needs,
                struct weft_plan *out, struct weft_err *err)
{
    struct weft_search_how how = WEFT_FIND_HOW;
    struct weft_found found;
    how.stop = t->opening->stop;
    how.ctx = t->opening->ctx;
    if (!t->known)
        return weft_err_set(err, WEFT_EINVAL,
                            "'plan: auto' needs to know what tasks take: run "
                            "'weft profile' on the configuration and add "
                            "'costs: costs.json', or name a 'cluster'");
    weft_info("plan: auto: looks for a plan");
    int rc = weft_auto_find(t, needs, NULL, &how, out, &found, err);
    if (rc || is_stopped(t->opening))
        return rc;
    /* The bound is one of the search's model, not of simulations. */
    weft_info("found a plan of %.4g s an iteration, simulated (%.4g within "
              "the search's model, where no plan takes less than %.4g), "
              "among %d layouts%s",
              found.simulated.iteration_s,
              found.result.finalist[found.taken].value.period,
              found.moved_bound > 0
                  ? fmin(found.result.bound, found.moved_bound)
                  : found.result.bound,
              (int) found.priced, weft_auto_fusion(out));
    return 0;
}

const char *weft_auto_fusion(const struct weft_plan *plan)
{
    static const char *const told[2][2] = {
        {"", "; the last samples move"},
        {"; models train under one schedule",
         "; models train under one schedule; the last samples move"}};
    return told[plan->intra_stage_fusion][plan->inter_stage_fusion];
}

int weft_auto_share(const struct weft_trainer *t, struct weft_plan *plan,
                    struct weft_err *err)
{
    bool first = weft_world_rank() == 0;
    char *text = first ? weft_plan_json(plan) : NULL;
    size_t n = text ? strlen(text) : 0;
    int rc = weft_run_share_text(&text, &n, "a plan", err);
    if (!rc && !first)
        rc = weft_plan_parse(text, n, "the plan", &t->flow, plan, err);
    weft_free(text);
    return weft_world_agree(rc, err);
}

/* On rank 0. */
static int keep_or_find(struct weft_trainer *t, struct weft_plan_needs *needs,
                        struct weft_plan *out, struct weft_err *err)
{
    struct weft_fixed fixed;
    int rc = weft_fixed_read(t->config.layout, needs, &fixed, err);
    if (rc)
        return rc;
    if (t->known)
        know(needs, weft_known_options(t->known, &t->job).cluster);
    return keep(t, needs, &fixed, out) ? 0 : find(t, needs, out, err);
}

static void tell(const struct weft_trainer_opening *o, bool begins)
{
    if (o->searches)
        o->searches(begins);
}

int weft_auto_plan(struct weft_trainer *t, struct weft_plan_needs *needs,
                   struct weft_plan *out, struct weft_err *err)
{
    *out = (struct weft_plan){0};
    tell(t->opening, true);
    int rc = weft_world_agree(0,
                              err); /* all ranks are told before it begins */
    if (!rc && weft_world_rank() == 0) {
        rc = keep_or_find(t, needs, out, err);
        weft_spread_end();
    } else if (!rc) {
        weft_spread_serve(NULL, NULL);
    }
    rc = weft_world_agree(rc, err);
    if (is_stopped(t->opening))
        rc = weft_err_set(err, WEFT_EINTERRUPTED,
                          "stopped while it searched for a plan, before an "
                          "iteration: the same command begins again; 'weft "
                          "plan --search --time-limit S -o plan.json' takes "
                          "the best that is found in S seconds, for "
                          "'plan: plan.json'");
    rc = weft_world_agree(rc, err);
    if (rc != WEFT_EINTERRUPTED) /* a rank may get its signal later */
        tell(t->opening, false);
    if (!rc && weft_world_size() > 1)
        rc = weft_auto_share(t, out, err);
    if (rc)
        weft_plan_release(out);
    return rc;
}
