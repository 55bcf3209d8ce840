/* SPDX-License-Identifier: Apache-2.0 */
#include "run/memory.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "plan/deal.h"
#include "run/plan_needs.h"
#include "run/recorded.h"
#include "run/reward_text.h"

/* When tiles exist: all the time; from the submission of generation on, to
 * receive its messages; or during a call. */
enum phase {
    ALWAYS,
    AHEAD,
    GENERATE,
    INFER,  /* frozen models */
    VALUES, /* inference of a trained role */
    FIRST,  /* training of role 0 ... */
    OTHERS, /* ... and of the others */
    N_PHASES
};

struct budget {
    const struct weft_trainer *t;
    int32_t n_places;
    size_t (*phase[N_PHASES])[WEFT_N_MEM_CLASSES]; /* (n_places) */
};

/* ---- Sizes ------------------------------------------------------------ */

static bool generates(const struct weft_trainer *t)
{
    return weft_config_generates(&t->config);
}

static const struct weft_shape *shape_of(const struct weft_trainer *t,
                                         int32_t call)
{
    return &t->model[t->flow.call[call].role].arch.shape;
}

static int32_t max_new(const struct weft_trainer *t)
{
    return generates(t) ? t->config.rollout.max_new_tokens : 0;
}

static int64_t longest(const struct weft_trainer *t)
{
    return t->max_prompt + max_new(t);
}

static int64_t shortest(const struct weft_trainer *t)
{
    int64_t n = t->max_prompt;
    for (int32_t i = 0; i < t->n_prompts; i++)
        n = weft_min64(n, t->prompt[i].n);
    return n + (max_new(t) > 1 ? 1 : max_new(t));
}

static int32_t n_samples(const struct weft_trainer *t)
{
    return weft_run_samples(&t->config);
}

/* How many units of samples of any length fit into a micro-batch, by its
 * rows. */
static int64_t fit_rows(const struct weft_trainer *t, int32_t unit)
{
    return weft_max64(1, t->config.train.micro_batch_tokens
                             / (unit * longest(t)));
}

/* The most rows of a micro-batch that is limited by rows. */
static int64_t row_budget(const struct weft_trainer *t, int32_t unit)
{
    int64_t l = unit * longest(t);
    int64_t budget = t->config.train.micro_batch_tokens;
    if (unit * shortest(t) == l)
        budget -= budget % l;
    return weft_max64(budget, l);
}

/* The size of n samples with n_rows rows in all, with the most runs and
 * targets. */
static struct weft_g_rows rows_of(const struct weft_trainer *t, int64_t n,
                                  int64_t n_rows)
{
    n_rows = weft_min64(n_rows, n * longest(t));
    int64_t runs = weft_min64(n, n_rows / shortest(t));
    int64_t targets = generates(t) ? weft_min64(n_rows, runs * max_new(t))
                                   : n_rows;
    return (struct weft_g_rows){n_rows, (int32_t) runs, (int32_t) targets};
}

/* The most rows of a part when samples are cut into parts of about the same
 * cost, none of which costs more than k of the longest samples. */
static int64_t rows_by_cost(const struct weft_trainer *t,
                            const struct weft_shape *shape, int64_t k)
{
    int64_t l = longest(t), s = shortest(t);
    double most = weft_plan_sample_cost(shape, (int32_t) l) * (double) k;
    double row = weft_plan_sample_cost(shape, (int32_t) s) / (double) s;
    return (int64_t) (most / row * (1 + 1e-9));
}

static struct weft_g_train_size train_size(const struct weft_trainer *t,
                                           const struct weft_shape *shape,
                                           int32_t call)
{
    const struct weft_config *c = &t->config;
    const struct weft_call_plan *plan = &t->layout[call].plan;
    int32_t groups = c->numerics.gradient_groups, unit = weft_run_unit(c);
    int32_t steps = t->settings.epochs * t->settings.mini_batches;
    int64_t n = weft_ceil_div(n_samples(t) / unit, /* units */
                              t->settings.mini_batches);
    int64_t of_group = weft_ceil_div(n, groups), parts = plan->micro_batches;
    int64_t rows = row_budget(t, unit), cuts;
    if (parts > 0)
        rows = rows_by_cost(t, shape, unit * weft_ceil_div(of_group, parts));
    cuts = parts > 0 ? weft_min64(parts, of_group)
                     : weft_ceil_div(of_group, fit_rows(t, unit));
    int32_t slot = t->flow.role[t->flow.call[call].role].slot;
    size_t stats = (size_t) weft_loss_n_stats(
        t->settings.learn[slot].loss.loss);
    return (struct weft_g_train_size){
        .most = rows_of(t, unit * of_group, rows),
        .n_flights = (int32_t) weft_min64(
            n, cuts * weft_ceil_div(groups, plan->dp)),
        .fused = c->train.intra_stage_fusion,
        .n_groups = groups,
        .n_steps = steps,
        .messages = t->job.n_ranks > 1,
        .stats_bytes = (size_t) n_samples(t) * stats * sizeof(double)
                     * (size_t) t->settings.epochs};
}

int32_t weft_run_micro_batches(const struct weft_trainer *t,
                               const struct weft_shape *shape, int32_t call)
{
    return train_size(t, shape, call).n_flights;
}

/* ---- Models ----------------------------------------------------------- */

static void count_trained(struct budget *b, const struct weft_run_model *m,
                          int32_t call, enum phase phase)
{
    const struct weft_trainer *t = b->t;
    const struct weft_g_layout *home = &t->layout[call];
    const struct weft_shape *shape = &m->arch.shape;
    struct weft_g_train_size size = train_size(t, shape, call);
    size_t(*always)[WEFT_N_MEM_CLASSES] = b->phase[ALWAYS];
    weft_g_model_bytes(shape, true, home, always);
    weft_g_gather_bytes(shape, home, always);
    weft_g_grads_bytes(shape, home, t->config.numerics.gradient_groups,
                       always);
    weft_g_train_bytes(shape, home, &size, always, b->phase[phase]);
    always[0][WEFT_MEM_SAMPLES] += size.stats_bytes;
    for (int32_t p = 0; p < b->n_places; p++)
        always[p][WEFT_MEM_SAMPLES] += (size_t) size.n_steps
                                     * sizeof(struct weft_grad_norm);
}

static void count_inference(struct budget *b, const struct weft_run_model *m,
                            int32_t call, enum phase phase)
{
    const struct weft_trainer *t = b->t;
    const struct weft_g_layout *layout = &t->layout[call];
    int64_t n = n_samples(t), dp = layout->plan.dp, rows = row_budget(t, 1);
    int64_t each = fit_rows(t, 1), parts = layout->plan.micro_batches;
    int32_t reward = t->flow.role[m->role].index;
    int64_t text = reward < 0 ? 0 : weft_reward_text_limit(t, reward);
    int64_t most = text > 0 ? text : longest(t);
    if (text > 0) {
        each = weft_max64(1, t->config.train.micro_batch_tokens / text);
        rows = weft_max64(t->config.train.micro_batch_tokens, text);
    }
    if (parts > 0) {
        each = weft_ceil_div(n, dp * parts);
        rows = each * most;
    }
    int64_t share = weft_ceil_div(weft_ceil_div(n, each), dp);
    /* A device on its own ends a micro-batch before it begins the next one. */
    if (layout->plan.tp * layout->plan.pp == 1)
        share = weft_min64(share, layout->any_device ? t->job.n_devices : 1);
    struct weft_g_rows all = rows_of(t, n, share * rows);
    if (text > 0)
        all = (struct weft_g_rows){weft_min64(share * rows, n * text),
                                   (int32_t) n, (int32_t) n};
    weft_g_infer_bytes(&m->arch.shape, layout, &all, (int32_t) share,
                       b->phase[phase]);
}

/* The call in whose layout the weights of a call's role lie. */
static int32_t home_of(const struct weft_trainer *t, int32_t call)
{
    int32_t role = t->flow.call[call].role;
    return weft_flow_call_of(
        &t->flow, t->flow.role[role].trained ? WEFT_TRAIN : WEFT_INFER, role);
}

static void count_frozen(struct budget *b, const struct weft_run_model *m,
                         int32_t call)
{
    const struct weft_g_layout *home = &b->t->layout[call];
    enum phase phase = home->plan.offload ? INFER : ALWAYS;
    bool first = call == home_of(b->t, call); /* of calls of the role */
    if (first)
        weft_g_model_bytes(&m->arch.shape, false, home, b->phase[phase]);
    if (first && home->plan.offload)
        weft_g_host_bytes(&m->arch.shape, home, b->phase[ALWAYS]);
    count_inference(b, m, call, INFER);
}

/* For a checkpoint, tiles are copied to rank 0 one after another; there can be
 * two at a time, as one may not be released yet. */
static void count_saved(struct budget *b, const struct weft_shape *shape)
{
    size_t most = 0;
    for (int kind = 0; kind < WEFT_N_TILE_KINDS; kind++)
        for (int32_t i = 0; i < shape->n_blocks; i++) {
            enum weft_tile_kind k = (enum weft_tile_kind) kind;
            struct weft_layout l;
            weft_layout_get(shape, k, i, &l);
            size_t opt = weft_opt_bytes(shape, k, l.n_flat);
            size_t fwd = weft_g_fwd_bytes(shape, k, i);
            most = opt > most ? opt : most;
            most = fwd > most ? fwd : most;
        }
    if (b->t->job.n_ranks > 1)
        b->phase[ALWAYS][0][WEFT_MEM_OPTIMIZER] += 2 * most;
}

/* ---- Generation and samples -------------------------------------------- */

static void count_generation(struct budget *b, int32_t call)
{
    const struct weft_trainer *t = b->t;
    const struct weft_config *c = &t->config;
    const struct weft_g_layout *layout = &t->layout[call];
    const struct weft_shape *shape = shape_of(t, call);
    int32_t n = n_samples(t);
    int32_t instances = weft_g_generate_instances(layout, n);
    struct weft_g_decode_size size = {
        .n_instances = instances,
        .n_slots = (int32_t) weft_min64(c->rollout.slots,
                                        weft_ceil_div(n, instances)),
        .max_total = (int32_t) longest(t),
        .prefill_tokens = c->rollout.prefill_tokens,
        .n_steps = c->rollout.chunk_tokens,
        .n_chunks = c->runtime.overlap ? 3 : 2};
    weft_g_generate_bytes(shape, layout, instances, size.n_slots,
                          size.max_total, b->phase[ALWAYS]);
    weft_g_decode_bytes(shape, layout, &size, b->phase[AHEAD],
                        b->phase[GENERATE]);
    if (t->job.n_ranks > 1) /* the controller's copies of statuses */
        b->phase[AHEAD][0][WEFT_MEM_SAMPLES] +=
            (size_t) (size.n_chunks * instances)
            * weft_gen_status_bytes(size.n_slots);
}

static bool serves(const struct weft_g_layout *layout, int32_t place)
{
    for (int32_t i = 0; i < layout->plan.dp; i++)
        if (weft_g_infer_pack_place(layout, i) == place
            || weft_g_infer_out_place(layout, i) == place)
            return true;
    return false;
}

/* Whether tiles of samples may lie at a place: calls write or pack them there,
 * or the controller reads them there. */
static bool has_samples(const struct weft_trainer *t, int32_t place)
{
    bool has = place == 0;
    for (int c = 0; c < WEFT_MAX_CALLS; c++)
        has = has || serves(&t->layout[c], place);
    return has;
}

/* A sample's bytes when it comes from the data. */
static size_t bytes_of_fields(const struct weft_trainer *t)
{
    size_t bytes = 0, l = (size_t) longest(t);
    for (int32_t f = 0; f < t->flow.n_fields; f++) {
        enum weft_field_type type = t->flow.field[f].type;
        bytes += type == WEFT_FIELD_ROLLOUT || type == WEFT_FIELD_MISMATCH
                   ? weft_rollout_bytes((int32_t) l)
                   : l * sizeof(float);
    }
    return bytes;
}

static void count_samples(struct budget *b)
{
    const struct weft_trainer *t = b->t;
    size_t n = (size_t) n_samples(t), new = (size_t) max_new(t);
    size_t each = weft_rollout_bytes((int32_t) longest(t));
    if (!generates(t))
        each = bytes_of_fields(t);
    else /* reference log-probs, values, scores of models, score */
        each += weft_advantage_bytes((int32_t) new) + 2 * new * sizeof(float)
              + 2 * (size_t) t->config.n_rewards * sizeof(float)
              + sizeof(double);
    for (int32_t r = 0; r < t->config.n_rewards; r++)
        if (weft_reward_text_limit(t, r) > 0)
            each += weft_rollout_bytes(weft_reward_text_limit(t, r));
    if (t->config.runtime.overlap) /* two iterations' */
        n *= 2;
    for (int32_t p = 0; p < b->n_places; p++)
        if (has_samples(t, p))
            b->phase[ALWAYS][p][WEFT_MEM_SAMPLES] +=
                n * each + sizeof(struct weft_moments)
                + sizeof(struct weft_kl_state);
}

/* Copies of weights that a call needs beside those of the role's training. */
static int count_view(struct budget *b, int32_t call, enum phase phase,
                      struct weft_err *err)
{
    const struct weft_trainer *t = b->t;
    int32_t home = home_of(t, call);
    return weft_g_view_bytes(shape_of(t, call), &t->layout[home],
                             &t->layout[call], b->n_places, b->phase[phase],
                             err);
}

/* The policy's training needs all inference; that of others does not. */
static int count_call(struct budget *b, int32_t call, struct weft_err *err)
{
    const struct weft_trainer *t = b->t;
    const struct weft_run_model *m = &t->model[t->flow.call[call].role];
    enum weft_call_kind kind = t->flow.call[call].kind;
    if (kind == WEFT_TRAIN)
        count_trained(b, m, call,
                      t->flow.call[call].role == 0 ? FIRST : OTHERS);
    else if (weft_flow_frozen(&t->flow, call))
        count_frozen(b, m, call);
    else if (kind == WEFT_INFER)
        count_inference(b, m, call, VALUES);
    else
        count_generation(b, call);
    if (call == home_of(t, call))
        return 0;
    return count_view(b, call,
                      kind == WEFT_GENERATE              ? GENERATE
                      : weft_flow_frozen(&t->flow, call) ? INFER
                                                         : VALUES,
                      err);
}

/* ---- Together --------------------------------------------------------- */

static size_t sum_of(const struct budget *b, enum phase phase, int32_t place,
                     int c)
{
    const size_t *bytes = b->phase[phase][place];
    size_t sum = 0;
    if (c != WEFT_MEM_ALL)
        return bytes[c];
    for (int k = 0; k < WEFT_N_MEM_CLASSES; k++)
        sum += weft_mem_class_at_place((enum weft_mem_class) k) ? bytes[k]
                                                                : 0;
    return sum;
}

/* Phases that can overlap. Inference may still run when the critic's training
 * begins, but must have ended before the actor's begins. Generation of the
 * next iteration needs the actor's new weights, and inference of its values
 * the critic's. */
static const bool together[][N_PHASES] = {
    {[GENERATE] = true, [INFER] = true, [VALUES] = true},
    {[INFER] = true, [VALUES] = true, [OTHERS] = true},
    {[FIRST] = true, [OTHERS] = true},
    {[GENERATE] = true, [INFER] = true, [OTHERS] = true}}; /* ahead */
/* Training on the data's samples begins with the first micro-batch whose
 * inference has ended, and that on the next iteration's may run beside it. */
static const bool from_data[N_PHASES] = {
    [INFER] = true, [VALUES] = true, [FIRST] = true, [OTHERS] = true};

static int64_t peak_of(const struct budget *b, int32_t place, int c)
{
    const bool(*set)[N_PHASES] = generates(b->t) ? together : &from_data;
    size_t most = 0, n = generates(b->t) ? WEFT_COUNT(together) : 1;
    if (n > 1 && !b->t->config.runtime.overlap)
        n--;
    for (size_t k = 0; k < n; k++) {
        size_t sum = 0;
        for (int i = 0; i < N_PHASES; i++)
            if (set[k][i])
                sum += sum_of(b, (enum phase) i, place, c);
        most = sum > most ? sum : most;
    }
    return (int64_t) (most + sum_of(b, ALWAYS, place, c)
                      + sum_of(b, AHEAD, place, c));
}

static int budget_create(const struct weft_trainer *t, struct budget *out,
                         struct weft_err *err)
{
    size_t n = (size_t) weft_g_job_n_places(&t->job);
    *out = (struct budget){.t = t, .n_places = (int32_t) n};
    for (int i = 0; i < N_PHASES; i++) {
        out->phase[i] = weft_alloc(n, sizeof *out->phase[i]);
        if (!out->phase[i])
            return weft_err_nomem(err, "a memory plan",
                                  n * sizeof *out->phase[i]);
    }
    return 0;
}

static void budget_release(struct budget *b)
{
    for (int i = 0; i < N_PHASES; i++)
        weft_free(b->phase[i]);
}

static int table_create(const struct weft_trainer *t,
                        int64_t (**out)[WEFT_MEM_ALL + 1],
                        struct weft_err *err)
{
    size_t n = (size_t) (t->job.n_ranks * t->job.n_devices);
    weft_free(*out);
    *out = weft_alloc(n, sizeof **out);
    return *out ? 0 : weft_err_nomem(err, "a memory plan", n * sizeof **out);
}

/* Records of tasks: a rank's, at its first place. */
static int predict_tasks(struct weft_trainer *t, struct weft_err *err)
{
    size_t n = (size_t) t->job.n_ranks;
    struct weft_rec_open *open = weft_alloc(n, sizeof *open);
    int rc = open ? weft_run_record_open(t, open, err)
                  : weft_err_nomem(err, "a memory plan", n * sizeof *open);
    for (int32_t d = 0; d < t->job.n_ranks * t->job.n_devices && !rc; d++) {
        if (t->job.place_per_device && d % t->job.n_devices > 0)
            continue;
        int64_t bytes = open[d / t->job.n_devices].bytes;
        t->plan.memory[d][WEFT_MEM_TASKS] = bytes;
        t->plan.memory[d][WEFT_MEM_ALL] += bytes;
    }
    weft_free(open);
    return rc;
}

int weft_memory_predict(struct weft_trainer *t, struct weft_err *err)
{
    struct budget b;
    int rc = budget_create(t, &b, err);
    if (!rc)
        rc = table_create(t, &t->plan.memory, err);
    if (!rc) {
        count_saved(&b, &t->model[0].arch.shape);
        count_samples(&b);
    }
    for (int32_t i = 1; i < t->flow.n_calls && !rc; i++)
        if (weft_flow_placed(&t->flow, i))
            rc = count_call(&b, i, err);
    for (int32_t d = 0; d < t->job.n_ranks * t->job.n_devices && !rc; d++)
        for (int c = 0; c <= WEFT_MEM_ALL; c++)
            t->plan.memory[d][c] = peak_of(
                &b, weft_g_job_place_of(&t->job, d), c);
    budget_release(&b);
    return rc ? rc : predict_tasks(t, err);
}

/* ---- Measured --------------------------------------------------------- */

static void warn_of(const struct weft_trainer *t, int32_t device, int c)
{
    const double mib = 1048576.0;
    int64_t predicted = t->plan.memory[device][c];
    int64_t measured = t->plan.measured[device][c];
    if (measured > predicted)
        weft_warn("place %d: %s took %.2f MiB, %.2f were predicted",
                  (int) weft_g_job_place_of(&t->job, device),
                  c == WEFT_MEM_ALL
                      ? "all"
                      : weft_mem_class_name((enum weft_mem_class) c),
                  (double) measured / mib, (double) predicted / mib);
}

int weft_memory_measure(struct weft_trainer *t, struct weft_err *err)
{
    size_t n = (size_t) weft_rt_n_places(t->rt);
    size_t *peak = weft_alloc(n, sizeof *peak);
    int32_t last = -1;
    int rc = table_create(t, &t->plan.measured, err);
    if (!rc && !peak)
        rc = weft_err_nomem(err, "a memory plan", n * sizeof *peak);
    rc = weft_world_agree(rc, err);
    for (int c = 0; c <= WEFT_MEM_ALL && !rc; c++) {
        weft_rt_memory_places(t->rt, (enum weft_mem_class) c, peak);
        for (int32_t d = 0; d < t->job.n_ranks * t->job.n_devices; d++)
            t->plan.measured[d][c] = (int64_t)
                peak[weft_g_job_place_of(&t->job, d)];
    }
    weft_free(peak);
    for (int32_t d = 0; d < t->job.n_ranks * t->job.n_devices && !rc; d++) {
        int32_t place = weft_g_job_place_of(&t->job, d);
        for (int c = 0; c <= WEFT_MEM_ALL && place != last; c++)
            if (weft_world_rank() == 0)
                warn_of(t, d, c);
        last = place;
    }
    return rc;
}

int weft_memory_write(const struct weft_trainer *t, struct weft_err *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/plan.json", t->config.run_dir);
    return weft_plan_write(&t->plan, path, err);
}
