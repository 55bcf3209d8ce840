/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/again.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "job/plan_needs.h"
#include "lm/migration.h"
#include "run/predict/auto.h"
#include "run/predict/known.h"
#include "run/predict/memory.h"
#include "run/predict/spread.h"
#include "run/plans.h"
#include "run/tail.h"

/* Lengths are others when one of these parts of them ends at a length that has
 * changed by that share. The least and the most are chance. */
static const double parts[] = {0.1, 0.25, 0.5, 0.75, 0.9};
static const double DRIFT = 0.1;

/* A quarter of what is searched when a run begins, which waits meanwhile. */
static const struct weft_search_how search_how = {
    .seed = 1, .evaluations = 100000, .branches = 5000000};

struct weft_again {
    double looked[WEFT_COUNT(parts)]; /* when a plan was last looked for */
};

void weft_again_free(struct weft_again *a)
{
    weft_free(a);
}

bool weft_again_is_due(const struct weft_trainer *t, int32_t done)
{
    int32_t every = t->config.plan_again.every;
    return every > 0 && done > 0 && done < t->n_iterations
        && done % every == 0;
}

/* ---- Lengths ------------------------------------------------------------ */

static int by_length(const void *x, const void *y)
{
    int32_t a = *(const int32_t *) x, b = *(const int32_t *) y;
    return (a > b) - (a < b);
}

/* Of n lengths those of responses, ascending. Release it. */
static int sort(size_t n, const int32_t *length, struct weft_lengths *out,
                struct weft_err *err)
{
    *out = (struct weft_lengths){.kind = WEFT_LENGTHS_GIVEN};
    out->given = weft_alloc(n, sizeof *out->given);
    if (!out->given)
        return weft_err_nomem(err, "lengths", n * sizeof *out->given);
    for (size_t i = 0; i < n; i++)
        if (length[i] > 0)
            out->given[out->n++] = length[i];
    qsort(out->given, (size_t) out->n, sizeof *out->given, by_length);
    return 0;
}

/* Whether lengths, if there are any, are others than when a plan was last
 * looked for; then these are. */
static bool has_drifted(struct weft_again *a, const struct weft_lengths *now)
{
    double end[WEFT_COUNT(parts)];
    bool drifted = false;
    if (now->n == 0)
        return false;
    for (size_t k = 0; k < WEFT_COUNT(parts); k++) {
        end[k] = now->given[(int64_t) ((double) now->n * parts[k])];
        drifted |= fabs(end[k] - a->looked[k]) > DRIFT * a->looked[k];
    }
    if (drifted)
        memcpy(a->looked, end, sizeof end);
    return drifted;
}

/* Drifts of a run's lengths by the time it went on, n of them an iteration. */
static int drift_before(const struct weft_trainer *t, struct weft_again *a,
                        const int32_t *length, size_t n, struct weft_err *err)
{
    int32_t every = t->config.plan_again.every;
    int rc = 0;
    for (int32_t done = every; done < t->began && !rc; done += every) {
        int32_t past = weft_min32(done, WEFT_TAIL_PAST);
        struct weft_lengths seen;
        rc = sort((size_t) past * n, length + (size_t) (done - past) * n,
                  &seen, err);
        if (!rc)
            (void) has_drifted(a, &seen);
        weft_lengths_release(&seen);
    }
    return rc;
}

/* Begins t->again as it was when the run was interrupted, by its record. */
static int begin(struct weft_trainer *t, struct weft_err *err)
{
    size_t n = (size_t) weft_run_samples_all(&t->config, &t->flow);
    size_t all = (size_t) t->began * n;
    int32_t *length = weft_alloc(all, sizeof *length);
    char *path = weft_path_join(t->config.run_dir, WEFT_TAIL_FILE);
    t->again = weft_alloc(1, sizeof *t->again);
    int rc = t->again && length && path
               ? weft_plans_write(t->config.run_dir, &t->plan, t->began, err)
               : weft_err_nomem(err, "lengths", all * sizeof *length);
    if (!rc && t->began > 0)
        rc = weft_tail_lengths(t, path, 0, t->began, n, length, err);
    if (!rc)
        rc = drift_before(t, t->again, length, n, err);
    weft_free(length);
    weft_free(path);
    return rc;
}

/* ---- Choosing ----------------------------------------------------------- */

/* Seconds in which models move to the homes that a plan gives them: all they
 * have passes to rank 0 and from there, by the slowest link on the way. */
static double move_s(const struct weft_trainer *t,
                     const struct weft_plan *plan,
                     const struct weft_cluster *cluster)
{
    const struct weft_node_kind *node = weft_cluster_node(cluster, 0);
    const struct weft_link *link = t->job.n_ranks > 1 ? &node->rail
                                                      : &node->inside;
    double bytes = 0;
    for (int32_t r = 0; r < t->flow.n_roles; r++) {
        const struct weft_shape *s = &t->model[r].arch.shape;
        int32_t values = t->flow.role[r].trained ? 3
                                                 : 1; /* master, moments */
        if (weft_trainer_moves(t, plan, r))
            bytes += (double) weft_shape_n_params(s) * values * sizeof(float);
    }
    return link->bytes_per_s > 0 ? 2 * bytes / link->bytes_per_s : 0;
}

/* Whether generation has enough replicas for what the run says of samples that
 * move. */
static bool can_generate(const struct weft_trainer *t,
                         const struct weft_plan *plan)
{
    struct weft_err ignored;
    bool can = true;
    for (int32_t c = 1; c < t->flow.n_calls; c++)
        if (t->flow.call[c].kind == WEFT_GENERATE)
            can &= weft_migration_check(t->config.rollout.instances,
                                        t->flow.call[c].name,
                                        plan->call[c].dp, &ignored)
                == 0;
    return can;
}

/* Seconds of an iteration by a plan with these lengths. */
static int simulate(struct weft_trainer *t, const struct weft_plan *plan,
                    const struct weft_lengths *lengths, double *out,
                    struct weft_err *err)
{
    struct weft_simulate_options how = weft_known_options(t->known, &t->job);
    struct weft_simulated simulated;
    struct weft_plan copy = *plan;
    how.lengths = lengths;
    how.simulated = &simulated;
    int rc = weft_run_simulate(&t->config, &t->job, &copy, &how, NULL, err);
    *out = rc ? 0 : simulated.iteration_s;
    return rc;
}

int weft_again_choose(struct weft_trainer *t,
                      const struct weft_lengths *lengths,
                      struct weft_plan *plan, struct weft_again_choice *out,
                      struct weft_err *err)
{
    const struct weft_cluster *cluster =
        weft_known_options(t->known, &t->job).cluster;
    struct weft_run_needs needs;
    struct weft_found found;
    *out = (struct weft_again_choice){.takes = 0};
    int rc = weft_run_needs_read(&t->config, t->job.n_ranks, t->job.n_devices,
                                 t->job.n_gpus, &needs, err);
    if (!rc)
        rc = simulate(t, &t->plan, lengths, &out->before_s, err);
    if (!rc)
        rc = weft_auto_find(t, &needs.plan, lengths, &search_how, plan,
                            &found, err);
    if (!rc)
        rc = simulate(t, plan, lengths, &out->after_s, err);
    if (rc)
        return rc;
    double saved_s = out->before_s - out->after_s;
    int32_t left = t->n_iterations - t->iteration;
    out->looked = true;
    out->move_s = move_s(t, plan, cluster);
    out->takes = saved_s > 0
              && saved_s >= t->config.plan_again.gain * out->before_s
              && left * saved_s > out->move_s && can_generate(t, plan);
    return 0;
}

/* On rank 0. A search that finds nothing leaves the plan as it is. */
static int look(struct weft_trainer *t, struct weft_plan *plan,
                struct weft_again_choice *out, struct weft_err *err)
{
    struct weft_lengths lengths = {.n = 0};
    const int32_t *length;
    if (!t->known)
        return 0;
    int rc = t->again ? 0 : begin(t, err);
    int32_t n = weft_tail_responses(t->tail, &length);
    if (!rc)
        rc = sort((size_t) n, length, &lengths, err);
    if (!rc && has_drifted(t->again, &lengths)) {
        rc = weft_again_choose(t, &lengths, plan, out, err);
        if (!rc && out->takes)
            rc = weft_memory_of_change(t, plan, err);
        if (rc && rc != WEFT_ENOMEM) {
            weft_info("no other plan is found: %s", err ? err->text : "");
            *out = (struct weft_again_choice){.takes = 0};
            rc = 0;
        }
    }
    weft_lengths_release(&lengths);
    return rc;
}

/* ---- Going on ----------------------------------------------------------- */

/* All ranks go on by rank 0's plan if each of them has its memory. */
static int take(struct weft_trainer *t, struct weft_plan *plan,
                struct weft_again_choice *c, struct weft_err *err)
{
    bool first = weft_world_rank() == 0, fits = false;
    int rc = weft_world_size() > 1 ? weft_auto_share(t, plan, err) : 0;
    if (!rc)
        rc = weft_world_agree(weft_memory_fits(t, plan, &fits, err), err);
    if (rc)
        return rc;
    c->takes = weft_world_min(fits) != 0;
    if (!c->takes) {
        if (first)
            weft_info("a plan of %.4g s an iteration is not taken, as moving "
                      "to it needs more memory than there is",
                      c->after_s);
        return 0;
    }
    rc = weft_trainer_change_plan(t, plan, err);
    if (!rc && first)
        rc = weft_plans_write(t->config.run_dir, &t->plan, t->iteration, err);
    if (!rc && first)
        rc = weft_memory_write(t, err);
    if (!rc && first)
        weft_info("goes on by a plan of %.4g s an iteration; with such "
                  "lengths the one before takes %.4g%s",
                  c->after_s, c->before_s, weft_auto_fusion(&t->plan));
    return weft_world_agree(rc, err);
}

int weft_again_plan(struct weft_trainer *t, struct weft_err *err)
{
    struct weft_plan plan = {.n_nodes = 0};
    struct weft_again_choice c = {.takes = 0};
    double start = weft_clock_s();
    int rc = 0;
    if (t->config.plan_again.every == 0)
        return 0;
    weft_metrics_set(t->metrics, "plan/replanned", 0);
    if (!weft_again_is_due(t, t->iteration))
        return 0;
    if (weft_world_rank() == 0) {
        rc = look(t, &plan, &c, err);
        weft_spread_end();
    } else {
        weft_spread_serve(NULL, NULL);
    }
    rc = weft_world_agree(rc, err);
    weft_world_share_from(0, &c, sizeof c);
    if (!rc && c.takes)
        rc = take(t, &plan, &c, err);
    weft_plan_release(&plan);
    weft_metrics_set(t->metrics, "plan/replanned", c.takes);
    if (c.looked)
        weft_metrics_set(t->metrics, "plan/gain", 1 - c.after_s / c.before_s);
    weft_metrics_set(t->metrics, "timing_s/plan", weft_clock_s() - start);
    return rc;
}
