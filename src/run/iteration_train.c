/* SPDX-License-Identifier: Apache-2.0 */
/* The training calls of an iteration. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "fuse/fuse.h"
#include "job/plan_needs.h"
#include "run/predict/largest.h"
#include "run/iteration.h"
#include "run/predict/recorded.h"

/* An optimizer step in progress. */
struct one_step {
    struct weft_g_train train;
    int32_t n; /* samples */
    bool any;  /* whichever of the iteration's */
    const uint32_t *index;
    struct weft_pack_sample *pack; /* (n) */
    struct weft_g_step *step;
};

/* One model's training calls. */
struct training {
    struct weft_iteration *p;
    struct weft_run_model *model;
    bool policy; /* or it learns values */
    struct weft_iteration_update *update;
    struct weft_g_train train;     /* what all steps have in common */
    struct weft_g_rows most;       /* the largest micro-batch there can be */
    uint32_t *order;               /* (n) samples in the epoch's order */
    struct weft_pack_sample *pack; /* (n) in that order */
    struct one_step *step;         /* (n_steps) submitted together */
    int32_t n_steps;
};

static int by_index(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *) a, y = *(const uint32_t *) b;
    return x < y ? -1 : x > y;
}

/* How a call's role learns. */
static const struct weft_learning *learning_of(const struct weft_trainer *t,
                                               int32_t call)
{
    int32_t role = t->flow.call[call].role;
    return &t->settings.learn[t->flow.role[role].slot];
}

static int training_init(struct weft_iteration *p, int32_t call,
                         struct training *out)
{
    struct weft_trainer *t = p->t;
    const struct weft_config *c = &t->config;
    struct weft_run_model *model = &t->model[t->flow.call[call].role];
    struct weft_iteration_update *u = &p->update[model->role];
    bool fused = t->plan.intra_stage_fusion, policy = model->role == 0;
    int32_t joined = fused ? c->train.joined_mini_batches : 1;
    size_t n = (size_t) p->n, epochs = (size_t) t->settings.epochs,
           steps = epochs * (size_t) t->settings.mini_batches;
    const struct weft_learning *learning = learning_of(t, call);
    u->loss = learning->loss.loss;
    *out = (struct training){
        .p = p,
        .model = model,
        .policy = policy,
        .update = u,
        .most = weft_run_most_train(t, call),
        .train =
            {
                .model = &model->tiles,
                .grads = &model->grads,
                .gather = model->gather,
                .order = &t->order_of_tasks,
                .copies = p->copies,
                .loss = learning->loss,
                .micro_batch_rows = c->train.micro_batch_tokens,
                .unit = weft_run_unit(c),
                .call = call,
                .chain = policy || fused ? 0 : 1,
                .priority = policy || fused ? WEFT_PRIORITY_TRAIN_POLICY
                                            : WEFT_PRIORITY_TRAIN,
                .iteration = p->iteration,
                .moments = policy
                                && t->settings.whiten == WEFT_WHITEN_ITERATION
                             ? p->moments
                             : NULL,
                .most = weft_run_bounds(t) ? &out->most : NULL,
            },
        .order = weft_alloc(n, sizeof *out->order),
        .pack = weft_alloc(n, sizeof *out->pack),
        .step = weft_alloc((size_t) joined, sizeof *out->step),
        .n_steps = joined,
    };
    out->train.grad_clip = model->optim->grad_clip;
    out->train.loss.kto_kl = p->kl;
    u->stats = weft_alloc(epochs * n, sizeof *u->stats);
    u->norm = weft_alloc(steps, sizeof *u->norm);
    u->moments = weft_alloc(steps, sizeof *u->moments);
    return out->order && out->pack && out->step && u->stats && u->norm
                && u->moments
             ? 0
             : weft_err_nomem(p->err, "training", n * sizeof *out->pack);
}

static void training_release(struct training *r)
{
    for (int32_t i = 0; r->step && i < r->n_steps; i++)
        weft_g_step_abandon(r->step[i].step);
    weft_free(r->step);
    weft_free(r->order);
    weft_free(r->pack);
}

/* A sample's field that a step reads. Values may be learned of some samples
 * while others are still inferred; of which, is another matter in every
 * iteration. So where any iteration's memory is asked for, the first of several
 * steps does not wait for what inference makes, but for what comes when all
 * samples have been generated, or as soon as it can where mini-batches train as
 * they complete. */
static struct weft_tile *input_of(const struct training *r,
                                  const struct one_step *o, int32_t k,
                                  enum weft_field_type type)
{
    struct weft_tile *tile = weft_iteration_field(r->p, k, type);
    struct weft_tile *answer = weft_iteration_field(r->p, k,
                                                    WEFT_FIELD_ANSWER);
    return tile && answer && o->any ? answer : tile;
}

/* Sets the tiles and numbers of the step's samples that its tasks read. */
static void fill_pack(const struct training *r, struct one_step *o)
{
    const struct weft_iteration *p = r->p;
    const struct weft_settings *set = &p->t->settings;
    const struct weft_learning *learning = learning_of(p->t, r->train.call);
    int32_t unit = weft_run_unit(&p->t->config);
    int64_t n_tokens = 0;
    int32_t n = 0;
    for (int32_t i = 0; i < o->n; i++) {
        const struct weft_sample *s = &p->sample[o->index[i]];
        if (set->skip_cut && !s->ended)
            continue;
        n_tokens += weft_iteration_learned(p, (int32_t) o->index[i]);
        n++;
    }
    for (int32_t i = 0; i < o->n; i++) {
        const struct weft_sample *s = &p->sample[o->index[i]];
        int32_t k = (int32_t) o->index[i];
        bool skip = set->skip_cut && !s->ended;
        struct weft_tile *reread = weft_iteration_field(p, k,
                                                        WEFT_FIELD_REREAD);
        o->pack[i] = (struct weft_pack_sample){
            .rollout = reread ? reread : s->rollout,
            .advantage = input_of(r, o, k, WEFT_FIELD_ADVANTAGE),
            .value = input_of(r, o, k, WEFT_FIELD_VALUE),
            .ref = input_of(r, o, k, WEFT_FIELD_LOGP),
            .n_prompt = s->n_prompt,
            .n_total = s->n_total,
            .learned = p->prompt[k]->learned,
            .n_ranges = p->prompt[k]->n_ranges,
            .n_learned = p->prompt[k]->n_learned,
            .weight = skip ? 0
                           : weft_sample_weight(set, learning, n / unit,
                                                n_tokens,
                                                weft_iteration_learned(p, k)),
            .label = p->prompt[k]->label,
        };
    }
}

/* ---- Early stop -------------------------------------------------------- */

/* At the first place, which may generate meanwhile. */
static struct weft_where where_of(const struct training *r)
{
    return (struct weft_where){.device = -1,
                               .priority = WEFT_PRIORITY_SAMPLE,
                               .call = r->train.call,
                               .iteration = r->p->iteration,
                               .micro_batch = -1,
                               .layer = -1};
}

/* Makes the gate of the first step, which is open. */
static int gate_init(struct training *r)
{
    struct weft_iteration *p = r->p;
    struct weft_trainer *t = p->t;
    struct weft_iteration_update *u = r->update;
    const struct weft_where where = where_of(r);
    const struct weft_tile_id id = {"run", "gate", 0, -1, -1, 0};
    static const float is_open = 1;
    size_t n = (size_t) t->settings.epochs
             * (size_t) t->settings.mini_batches;
    struct weft_external *answer = NULL;
    if (!r->policy || t->settings.kl_stop <= 0)
        return 0;
    u->gate = weft_alloc(n + 1, sizeof *u->gate);
    if (!u->gate)
        return weft_err_nomem(p->err, "training", n * sizeof *u->gate);
    int rc = weft_tile_create_temp(t->rt, &id, WEFT_MEM_SAMPLES,
                                   sizeof(float), &u->gate[0], p->err);
    if (rc)
        return rc;
    u->n_gates = 1;
    rc = weft_external_begin(t->seq, u->gate[0], &where, &answer, p->err);
    if (!rc && !t->recorded)
        weft_external_complete(answer, &is_open, sizeof is_open);
    r->train.loss.gate = u->gate[0];
    return rc;
}

/* Makes the gate of the next step from that of the last and its statistics. A
 * gate's tile is never changed, as copies are found by its address. */
static void gate_next(struct training *r, int32_t n,
                      const struct weft_g_stats *stats)
{
    struct weft_trainer *t = r->p->t;
    struct weft_iteration_update *u = r->update;
    const struct weft_where where = where_of(r);
    if (!u->gate)
        return;
    struct weft_gate_stats *s = weft_insert_alloc((size_t) n, sizeof *s,
                                                  "a gate");
    struct weft_tile *gate = weft_g_copy_to(t->seq, &where, t->rt,
                                            u->gate[u->n_gates - 1],
                                            WEFT_MEM_SAMPLES, "gate", 0);
    for (int32_t k = 0; k < n; k++)
        s[k] = (struct weft_gate_stats){
            weft_g_copy_at(r->p->copies, t->seq, &where, stats[k].tile, 0),
            stats[k].n, stats[k].sample};
    weft_insert_kl_gate(t->seq, &where, t->settings.kl_stop, n, s, gate);
    weft_free(s);
    u->gate[u->n_gates++] = gate;
    r->train.loss.gate = gate;
}

/* ---- Steps -------------------------------------------------------------- */

void weft_iteration_permute(const struct weft_iteration *p, int32_t epoch,
                            uint32_t *order)
{
    weft_rng_permutation(p->t->config.seed, WEFT_RNG_MINIBATCH,
                         (uint32_t) p->iteration, (uint32_t) epoch,
                         (uint32_t) p->n, order);
}

struct weft_range weft_iteration_mini_batch(const struct weft_iteration *p,
                                            int32_t k)
{
    int64_t n = p->n, parts = p->t->settings.mini_batches;
    int32_t first = (int32_t) (n * k / parts);
    return (struct weft_range){first,
                               (int32_t) (n * (k + 1) / parts) - first};
}

/* Learning rate of optimizer step `step` (from 0) out of n_steps. */
static float lr_at(const struct weft_optimizer_config *o, int64_t step,
                   int64_t n_steps)
{
    if (step < o->warmup_steps)
        return o->lr * (float) (step + 1) / (float) o->warmup_steps;
    double span = (double) (n_steps - o->warmup_steps);
    double x = span > 0 ? (double) (step - o->warmup_steps) / span : 0;
    double low = (double) o->min_lr_ratio, scale = 1;
    x = x > 1 ? 1 : x;
    if (o->schedule == WEFT_LR_LINEAR)
        scale = low + (1 - low) * (1 - x);
    else if (o->schedule == WEFT_LR_COSINE)
        scale = low + (1 - low) * 0.5 * (1 + cos(3.14159265358979324 * x));
    return (float) ((double) o->lr * scale);
}

/* AdamW's settings at optimizer step `step`. */
static struct weft_k_adamw adamw_at(const struct weft_optimizer_config *o,
                                    int64_t step, int64_t n_steps)
{
    return (struct weft_k_adamw){.lr = lr_at(o, step, n_steps),
                                 .beta1 = o->beta1,
                                 .beta2 = o->beta2,
                                 .eps = o->eps,
                                 .weight_decay = o->weight_decay,
                                 .step = step + 1};
}

/* The moments that whiten the step's advantages, where they are its own. */
static int whiten(struct training *r, struct one_step *o)
{
    struct weft_iteration *p = r->p;
    struct weft_iteration_update *u = r->update;
    size_t n = (size_t) o->n;
    if (!r->policy || p->t->settings.whiten != WEFT_WHITEN_MINI_BATCH)
        return 0;
    struct weft_tile **advantage = weft_alloc(n, sizeof *advantage);
    if (!advantage)
        return weft_err_nomem(p->err, "training", n * sizeof *advantage);
    for (int32_t i = 0; i < o->n; i++)
        advantage[i] = o->pack[i].advantage;
    int rc = weft_iteration_moments(p, true, o->n, advantage,
                                    &u->moments[u->n_moments]);
    weft_free(advantage);
    if (!rc)
        o->train.moments = u->moments[u->n_moments++];
    return rc;
}

/* Begins optimizer step k of epoch e. */
static int step_begin(struct training *r, int32_t e, int32_t k,
                      struct one_step *o)
{
    struct weft_iteration *p = r->p;
    int32_t parts = p->t->settings.mini_batches;
    struct weft_range of = weft_iteration_mini_batch(p, k);
    uint32_t *index = r->order + of.first;
    if (k == 0)
        weft_iteration_permute(p, e, r->order);
    qsort(index, (size_t) of.n, sizeof *index, by_index);
    *o = (struct one_step){.train = r->train,
                           .n = of.n,
                           .any = weft_run_bounds(p->t) && e + k == 0
                               && p->t->settings.epochs * parts > 1,
                           .index = index,
                           .pack = r->pack + of.first};
    o->train.loss.exact_first = p->t->settings.exact && r->policy && e == 0
                             && k == 0 && !p->stale;
    o->train.adamw = adamw_at(r->model->optim, r->model->steps,
                              (int64_t) p->t->settings.epochs * parts
                                  * p->t->n_iterations);
    r->update->lr = (double) o->train.adamw.lr;
    r->model->steps++;
    fill_pack(r, o);
    int rc = whiten(r, o);
    return rc ? rc
              : weft_g_step_begin(p->t->seq, &o->train, o->n, o->pack,
                                  &o->step, p->err);
}

static void step_end(struct training *r, struct one_step *o)
{
    struct weft_iteration_update *u = r->update;
    struct weft_g_stats *stats = u->stats + u->n_stats;
    int32_t n_stats;
    weft_g_step_end(o->step, stats, &n_stats, &u->norm[u->n_norms]);
    o->step = NULL;
    for (int32_t k = 0; k < n_stats; k++)
        for (int32_t i = 0; i < stats[k].n; i++)
            stats[k].sample[i] = (int32_t) o->index[stats[k].sample[i]];
    u->n_stats += n_stats;
    gate_next(r, n_stats, stats);
    if (u->n_norms++ == 0)
        u->first_stats = n_stats;
}

/* Submits optimizer steps k .. k + n_steps - 1 of n models together. */
static int steps(struct training r[], int32_t n, int32_t e, int32_t k,
                 int32_t n_steps)
{
    struct weft_trainer *t = r->p->t;
    size_t count = (size_t) n * (size_t) n_steps;
    struct weft_g_step **all = weft_alloc(count, sizeof *all);
    int rc = all ? 0 : weft_err_nomem(r->p->err, "training", count * 8);
    for (int32_t i = 0; i < n * n_steps && !rc; i++) {
        struct one_step *o = &r[i % n].step[i / n];
        rc = step_begin(&r[i % n], e, k + i / n, o);
        all[i] = o->step;
    }
    if (!rc)
        rc = n == 1 ? weft_g_step_submit(all, n_steps, NULL, 0, r->p->err)
                    : weft_fuse_submit(t->fuse, all, n_steps, r->p->err);
    for (int32_t i = 0; i < n * n_steps && !rc; i++)
        step_end(&r[i % n], &r[i % n].step[i / n]);
    weft_free(all);
    return rc;
}

/* Whether submission waits for mini-batches that are under way. */
static bool has_windows(const struct weft_trainer *t)
{
    return t->config.train.mini_batches_ahead > 0 && t->flow.staleness == 0;
}

/* Waits until mini-batch number n - mini_batches_ahead of the update has
 * ended; the tasks of number n, which is submitted next, are a new lot
 * (rt/graph.h). Joined mini-batches count as one. Every rank waits only for
 * its own tasks, which do not depend on later mini-batches. With staleness
 * generation, which is submitted after all of them, waits for none. */
static void open_window(struct weft_trainer *t, int32_t n)
{
    int32_t ahead = t->config.train.mini_batches_ahead;
    if (!has_windows(t))
        return;
    int64_t lot = weft_seq_lot(t->seq);
    if (n >= ahead)
        weft_seq_wait_lot(t->seq, lot - ahead);
}

/* Where it is: epoch and mini-batch are those that are submitted next. */
struct weft_iteration_training {
    struct training model[WEFT_MAX_ROLES];
    int32_t n;
    bool fused;
    int32_t epoch, mini_batch;
    int32_t n_windows;
};

/* The policy learns nothing during the critic's warm-up. */
static int begin(struct weft_iteration *p)
{
    const struct weft_trainer *t = p->t;
    struct weft_iteration_training *x = weft_alloc(1, sizeof *x);
    bool warm = p->iteration >= t->settings.warmup;
    int rc = 0;
    if (!x)
        return weft_err_nomem(p->err, "training", sizeof *x);
    p->training = x;
    for (int32_t i = 1; i < t->flow.n_calls && !rc; i++)
        if (weft_flow_trains(&t->flow, i) && weft_run_inserts(t, i)
            && (warm || t->flow.call[i].role != 0)) {
            rc = training_init(p, i, &x->model[x->n++]);
            if (!rc)
                rc = gate_init(&x->model[x->n - 1]);
        }
    x->fused = warm && t->plan.intra_stage_fusion;
    if (x->n == 0)
        x->epoch = t->settings.epochs;
    return rc;
}

/* Submits the next mini-batches of all models, fused or one after the other.
 * The actor's tasks have priority on devices that both models use. */
static int submit_next(struct weft_iteration *p)
{
    struct weft_iteration_training *x = p->training;
    int32_t all = p->t->settings.mini_batches;
    int32_t joined = x->model[0].n_steps, k = x->mini_batch;
    int32_t count = joined < all - k ? joined : all - k;
    int rc = 0;
    /* the first epoch may train while samples are generated */
    if (p->as_completed && x->epoch == 0)
        weft_rt_when(p->t->rt, WEFT_REC_EARLY);
    if (x->fused)
        rc = steps(x->model, x->n, x->epoch, k, count);
    for (int32_t i = 0; i < x->n && !x->fused && !rc; i++)
        rc = steps(&x->model[i], 1, x->epoch, k, count);
    weft_rt_when(p->t->rt, WEFT_REC_IN_TURN);
    x->mini_batch += count;
    if (x->mini_batch == all) {
        x->mini_batch = 0;
        x->epoch++;
    }
    return rc;
}

int weft_iteration_train_next(struct weft_iteration *p)
{
    int rc = p->training ? 0 : begin(p);
    bool any = !rc && p->training->epoch < p->t->settings.epochs;
    return any ? submit_next(p) : rc;
}

/* Ends the job, as others wait for what this rank alone could not submit: with
 * the first error of this rank. */
WEFT_NORETURN static void end_alone(struct weft_iteration *p, int rc)
{
    weft_seq_fail(p->t->seq, rc, "%s", p->err->text);
    (void) weft_seq_status(p->t->seq, p->err);
    weft_world_abort(p->err);
}

int weft_iteration_train(struct weft_iteration *p)
{
    int rc = p->training ? 0 : begin(p);
    while (!rc && p->training->epoch < p->t->settings.epochs) {
        struct weft_iteration_training *x = p->training;
        if (!p->as_completed || x->epoch > 0)
            open_window(p->t, x->n_windows++);
        rc = submit_next(p);
    }
    weft_iteration_train_release(p);
    if (rc && has_windows(p->t) && weft_world_size() > 1
        && !weft_seq_is_shared(p->t->seq))
        end_alone(p, rc);
    return rc;
}

void weft_iteration_train_release(struct weft_iteration *p)
{
    for (int32_t i = 0; p->training && i < p->training->n; i++)
        training_release(&p->training->model[i]);
    weft_free(p->training);
    p->training = NULL;
}

void weft_iteration_update_release(struct weft_iteration_update *u)
{
    for (int32_t i = 0; i < u->n_stats; i++) {
        weft_tile_release(u->stats[i].tile);
        weft_free(u->stats[i].sample);
    }
    for (int32_t i = 0; i < u->n_norms; i++)
        weft_tile_release(u->norm[i]);
    for (int32_t i = 0; i < u->n_gates; i++)
        weft_tile_release(u->gate[i]);
    for (int32_t i = 0; i < u->n_moments; i++)
        weft_tile_release(u->moments[i]);
    weft_free(u->moments);
    weft_free(u->gate);
    weft_free(u->stats);
    weft_free(u->norm);
}
