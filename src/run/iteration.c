/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Submits one iteration of an algorithm, by its dataflow graph: samples, which
 * are generated or come from the data; inference on samples as they finish;
 * rewards and advantages; training. Each task waits only for the data that it
 * reads.
 */
#include "run/iteration.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "fuse/fuse.h"
#include "job/plan_needs.h"
#include "run/predict/again.h"
#include "run/predict/recorded.h"
#include "run/scorer.h"

const struct weft_iteration_set *weft_iteration_set(
    const struct weft_iteration *p, int32_t sample)
{
    const struct weft_iteration_set *s = p->set;
    while (sample >= s->first + s->n)
        s++;
    return s;
}

int32_t weft_iteration_prompt(const struct weft_iteration *p, int32_t sample)
{
    const struct weft_iteration_set *s = weft_iteration_set(p, sample);
    return (sample - s->first) / s->each;
}

struct weft_tile *weft_iteration_field(const struct weft_iteration *p,
                                       int32_t sample,
                                       enum weft_field_type type)
{
    int32_t f = weft_iteration_set(p, sample)->of[type];
    return f < 0 ? NULL : p->extra[sample].field[f];
}

struct weft_tile *weft_iteration_home(const struct weft_iteration *p,
                                      int32_t sample,
                                      enum weft_field_type type)
{
    int32_t f = weft_iteration_set(p, sample)->of[type];
    return f < 0 ? NULL : p->extra[sample].home[f];
}

float weft_iteration_inv_temperature(const struct weft_config *c)
{
    return c->rollout.temperature > 0 ? 1 / c->rollout.temperature : 1;
}

struct weft_tile *weft_iteration_rollout(const struct weft_iteration *p,
                                         int32_t sample)
{
    struct weft_tile *tile = weft_iteration_home(p, sample,
                                                 WEFT_FIELD_REREAD);
    return tile ? tile : weft_iteration_home(p, sample, WEFT_FIELD_ROLLOUT);
}

int weft_iteration_meet(struct weft_iteration *p)
{
    struct weft_seq *seq = p->t->seq;
    return p->told_bytes > 0
             ? weft_seq_tell(seq, NULL, p->told_bytes, true, p->err)
             : weft_seq_agree(seq, NULL, 0, p->err);
}

/* ---- The iteration ---------------------------------------------------- */

/* After an error: completes the tiles that wait for rewards, so that the tasks
 * which read them can end. */
static void give_up(struct weft_iteration *p)
{
    static const double none = 0;
    for (int32_t i = 0; p->extra && i < p->n_all; i++)
        if (p->extra[i].answer) {
            weft_external_complete(p->extra[i].answer, &none, sizeof none);
            p->extra[i].answer = NULL;
        }
}

/* The rewards of samples that are due. A rank that has an error with them
 * continues until all ranks agree on it. */
static int reward(struct weft_iteration *p)
{
    if (p->set->of[WEFT_FIELD_ANSWER] < 0)
        return 0;
    int rc = weft_iteration_meet(p);
    if (!rc && weft_iteration_rewards(p)) {
        weft_seq_fail(p->t->seq, p->err->code, "%s", p->err->text);
        give_up(p);
    }
    return rc;
}

int weft_iteration_judge(struct weft_iteration *p)
{
    int rc = weft_iteration_advantages(p);
    return rc ? rc : reward(p);
}

static void iteration_free(struct weft_iteration *p)
{
    weft_scorer_forget(p->t->scorer, p);
    weft_iteration_train_release(p);
    weft_iteration_early_release(p);
    weft_iteration_left_release(p);
    for (int32_t i = 0; p->sample && p->extra && i < p->n_all; i++) {
        struct weft_iteration_sample *x = &p->extra[i];
        for (int32_t f = 0; f < WEFT_MAX_FIELDS; f++)
            weft_tile_release(x->field[f]);
        for (int32_t k = 0; k < WEFT_MAX_REWARDS; k++)
            weft_tile_release(x->shaped[k]);
    }
    for (int32_t k = 0; k < p->n_sets; k++)
        if (p->set[k].policy.model)
            weft_g_view_close(&p->set[k].policy);
    for (int32_t i = 0; i < WEFT_MAX_CALLS; i++)
        if (p->kept[i].model)
            weft_g_view_close(&p->kept[i]);
    for (int32_t i = 0; p->moved && i < p->n_rounds * WEFT_MAX_CALLS; i++)
        weft_migrated_release(&p->moved[i]);
    weft_free(p->moved);
    if (p->seen && !p->t->recorded) {
        weft_seen_release(p->seen);
        weft_free(p->seen);
    }
    weft_g_copies_free(p->copies);
    weft_iteration_calls_release(p);
    weft_tile_release(p->moments);
    weft_tile_release(p->kl);
    weft_iteration_texts_release(p);
    for (int32_t r = 0; r < WEFT_MAX_ROLES; r++)
        weft_iteration_update_release(&p->update[r]);
    weft_free(p->sample);
    weft_free(p->extra);
    weft_free(p->prompt);
    weft_free(p->index);
    weft_free(p->round_sample);
    weft_free(p->n_total);
    weft_free(p->n_text);
    weft_free(p->advantage);
    if (!p->order.follows)
        weft_rollout_order_release(&p->order);
    weft_free(p);
}

/* Lists the graph's sets of samples. n_rows: those from the data. */
static void make_sets(struct weft_iteration *p, int32_t n_rows)
{
    const struct weft_dataflow *flow = &p->t->flow;
    for (int32_t f = 0; f < flow->n_fields; f++) {
        if (weft_flow_origin(flow, f) != f)
            continue;
        struct weft_iteration_set *s = &p->set[p->n_sets++];
        int32_t call = weft_flow_writer(flow, f);
        *s = (struct weft_iteration_set){
            .p = p,
            .field = f,
            .call = call,
            .first = p->n_all,
            .n = flow->call[call].kind == WEFT_DATA
                   ? n_rows
                   : weft_run_samples_at(&p->t->config, flow, f),
            .each = flow->call[call].kind == WEFT_GENERATE
                         && !flow->call[call].greedy
                      ? p->t->config.rollout.samples_per_prompt
                      : 1};
        s->n_round = s->n;
        p->n_all += s->n;
        for (int k = 0; k < WEFT_N_FIELD_TYPES; k++)
            s->of[k] = -1;
    }
    p->n = p->set[0].n;
    for (int32_t f = flow->n_fields - 1; f >= 0; f--) {
        int32_t origin = weft_flow_origin(flow, f), k = 0;
        while (p->set[k].field != origin)
            k++;
        p->set_of[f] = k;
        p->set[k].of[flow->field[f].type] = f;
    }
}

/* Borrows the order that a recording, or a replay of decisions, follows. */
static void give_order(struct weft_iteration *p)
{
    const struct weft_recorded *r = p->t->recorded;
    int32_t i = r ? p->iteration - r->first : -1;
    const struct weft_rollout_order *decided = weft_tail_order(p->t,
                                                               p->iteration);
    p->order.follows = p->t->in_turn;
    if (decided) {
        p->order = *decided;
        p->order.follows = true;
    }
    if (i < 0 || i >= r->n_orders)
        return;
    p->order = r->order[i];
    p->order.follows = true;
}

static int iteration_create(struct weft_trainer *t, int32_t iteration,
                            struct weft_iteration **out, struct weft_err *err)
{
    int64_t first = t->drawn;
    int32_t n_rows = weft_config_generates(&t->config)
                       ? 0
                       : weft_prompts_batch(t, iteration, &first);
    struct weft_iteration *p = weft_alloc(1, sizeof *p);
    if (!p)
        return weft_err_nomem(err, "an iteration", sizeof *p);
    *p = (struct weft_iteration){
        .t = t, .iteration = iteration, .err = err, .first_prompt = first};
    make_sets(p, n_rows);
    give_order(p);
    size_t n = (size_t) p->n_all;
    p->sample = weft_alloc(n, sizeof *p->sample);
    p->extra = weft_alloc(n, sizeof *p->extra);
    p->prompt = weft_alloc(n, sizeof *p->prompt);
    p->index = weft_alloc(n, sizeof *p->index);
    p->round_sample = weft_alloc(n, sizeof *p->round_sample);
    p->advantage = weft_alloc(n, sizeof *p->advantage);
    p->n_total = weft_alloc(n * (size_t) (t->settings.refills + 1),
                            sizeof *p->n_total);
    p->moved = weft_alloc((size_t) (t->settings.refills + 1) * WEFT_MAX_CALLS,
                          sizeof *p->moved);
    p->n_text = weft_alloc(n * (size_t) t->config.n_rewards,
                           sizeof *p->n_text);
    *out = p;
    if (!p->sample || !p->extra || !p->prompt || !p->advantage || !p->index
        || !p->round_sample || !p->n_total || !p->moved || !p->n_text)
        return weft_err_nomem(err, "an iteration", n * sizeof *p->extra);
    return weft_g_copies_create(t->rt, &p->copies, err);
}

int64_t weft_trainer_drawn(const struct weft_trainer *t)
{
    return t->next ? t->next->first_prompt : t->drawn;
}

void weft_iteration_forget(struct weft_trainer *t)
{
    if (t->next) {
        t->drawn = t->next->first_prompt;
        iteration_free(t->next);
    }
    t->next = NULL;
}

/* Generates an iteration's samples. */
static int generate(struct weft_iteration *p)
{
    int rc = 0;
    if (weft_trainer_as_completed(p->t)) {
        rc = weft_iteration_early_init(p);
        if (!rc)
            rc = weft_iteration_keep_weights(p);
    }
    return rc ? rc : weft_iteration_generate(p);
}

/* Takes the samples that were generated during the last iteration, or
 * generates them now. */
static int begin(struct weft_trainer *t, struct weft_iteration **out,
                 struct weft_err *err)
{
    *out = t->next;
    t->next = NULL;
    if (*out) {
        (*out)->err = err;
        return 0;
    }
    if (t->flow.staleness > 0 && t->iteration > 0 && !t->recorded && !t->ahead
        && weft_world_rank() == 0)
        weft_warn("iteration %d is generated with the newest weights: the "
                  "run had ended before it, so its samples are not in the "
                  "checkpoint",
                  t->iteration + 1);
    int rc = iteration_create(t, t->iteration, out, err);
    return rc ? rc : generate(*out);
}

/* Whether the next iteration's generation begins in this one. With staleness it
 * needs no new weights, and checkpoints and changes of the plan take its
 * samples along (run/ahead.h). Else it needs the actor's new weights, but not
 * the critic's, so it runs during the critic's training; inference on samples
 * from the data needs neither. It does not begin before a checkpoint then, nor
 * before the run may go on by another plan, nor where training begins with it:
 * that belongs to its own turn. */
static bool is_ahead(const struct weft_trainer *t)
{
    int32_t every = t->config.checkpoint.every, done = t->iteration + 1;
    if (done >= t->n_iterations || weft_trainer_as_completed(t))
        return false;
    return t->flow.staleness > 0
        || (t->config.runtime.overlap && (every == 0 || done % every != 0)
            && !weft_again_is_due(t, done)
            && (weft_flow_call_of(&t->flow, WEFT_GENERATE, -1) >= 0
                || weft_flow_call_of(&t->flow, WEFT_INFER, -1) >= 0));
}

/* Before training: what the next iteration is generated with if that may lack
 * this one's update. */
static int keep_weights(struct weft_trainer *t, struct weft_err *err)
{
    if (t->flow.staleness == 0 || !is_ahead(t))
        return 0;
    int rc = iteration_create(t, t->iteration + 1, &t->next, err);
    if (rc)
        return rc;
    t->next->stale = true;
    return weft_iteration_keep_weights(t->next);
}

static int generate_ahead(struct weft_trainer *t, struct weft_err *err)
{
    if (!is_ahead(t))
        return 0;
    int rc = t->next ? 0
                     : iteration_create(t, t->iteration + 1, &t->next, err);
    return rc ? rc : weft_iteration_generate(t->next);
}

/* Copies the results of an update that rank 0 reads to the first place. */
static void update_home(struct weft_iteration *p,
                        struct weft_iteration_update *u)
{
    for (int32_t k = 0; k < u->n_stats; k++)
        weft_trainer_fetch(p->t, &u->stats[k].tile);
    for (int32_t k = 0; k < u->n_norms; k++)
        weft_trainer_fetch(p->t, &u->norm[k]);
}

/* Moves the weights of roles that follow others, after the iteration's
 * updates. */
static int follow(struct weft_iteration *p)
{
    struct weft_trainer *t = p->t;
    int rc = 0;
    for (int32_t r = 0; r < t->flow.n_roles && !rc; r++) {
        const struct weft_role *role = &t->flow.role[r];
        if (!weft_flow_moves(&t->flow, r, p->iteration))
            continue;
        const struct weft_run_model *from = &t->model[role->follows];
        const struct weft_where where = {.device = -1,
                                         .call = from->home,
                                         .iteration = p->iteration,
                                         .micro_batch = -1,
                                         .layer = -1};
        rc = weft_g_follow(t->seq, &where, &from->tiles, role->mix,
                           weft_trainer_weights(&t->model[r]), p->err);
        t->model[r].steps++;
    }
    return rc;
}

/* Whether any model trains: not in a recording of other calls alone. */
static bool trains(const struct weft_trainer *t)
{
    bool any = false;
    for (int32_t c = 1; c < t->flow.n_calls; c++)
        any = any
           || (weft_flow_trains(&t->flow, c) && weft_run_inserts(t, c));
    return any;
}

/* Submits the rest of the iteration. The rewards are computed before training,
 * as weft_iteration_train() waits for mini-batches, which need them. */
static int submit(struct weft_iteration *p)
{
    bool judges = p->set->of[WEFT_FIELD_ADVANTAGE] >= 0 && trains(p->t);
    weft_iteration_early_release(p);
    int rc = weft_iteration_refill(p);
    if (!rc)
        weft_tail_note(p);
    const struct weft_recorded *recorded = p->t->recorded;
    if (!rc && recorded && recorded->bound_s)
        rc = weft_tail_bound(
            p, &recorded->bound_s[p->iteration - recorded->first], p->err);
    if (!rc && judges)
        rc = weft_iteration_advantages(p);
    if (!rc && judges)
        rc = weft_iteration_sum_up(p);
    if (!rc && p->n_sets > 1 && p->set[1].of[WEFT_FIELD_KL] >= 0)
        rc = weft_iteration_kl(p);
    if (!rc)
        rc = reward(p);
    if (!rc)
        rc = keep_weights(p->t, p->err);
    if (!rc)
        rc = weft_iteration_train(p);
    if (!rc)
        rc = follow(p);
    for (int32_t r = 0; r < p->t->flow.n_roles; r++)
        update_home(p, &p->update[r]);
    return rc;
}

int weft_iteration_run(struct weft_trainer *t, struct weft_err *err)
{
    struct weft_iteration *p = NULL;
    double start = weft_clock_s();
    int rc = begin(t, &p, err);
    if (!rc)
        rc = submit(p);
    if (!rc)
        rc = generate_ahead(t, err);
    if (rc) { /* submitted tasks then end without doing anything */
        weft_seq_fail(t->seq, rc, "%s", err && err->code ? err->text : "");
        if (p)
            give_up(p);
        (void) weft_seq_wait(t->seq, err);
    } else {
        rc = weft_seq_wait(t->seq, err);
    }
    weft_g_order_reset(&t->order_of_tasks);
    if (!rc && !t->recorded) {
        weft_rt_times_all(t->rt, p->iteration, p->time);
        p->start_s = start;
        rc = weft_replay_keep(t, p, err);
        if (!rc)
            rc = weft_fuse_measure(t->fuse, err);
        if (!rc && weft_world_rank() == 0)
            rc = weft_iteration_report(p);
        if (!rc)
            rc = weft_tail_write(p, err);
        rc = weft_world_agree(rc, err);
        if (!rc)
            rc = weft_world_agree(weft_seen_write(p, err), err);
    }
    weft_fuse_forget(t->fuse);
    if (rc)
        weft_iteration_forget(t);
    if (p)
        iteration_free(p);
    return rc;
}
