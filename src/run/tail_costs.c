/* SPDX-License-Identifier: Apache-2.0 */
/* What the costs say of a set's generation and inference, with the lengths that
 * were noted last: simulations with samples that move and without, their bound,
 * and the pace. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "lm/steps.h"
#include "lm/weights.h"
#include "plan/fusion/bound.h"
#include "run/iteration.h"
#include "run/tail_inside.h"

/* ---- Prices ------------------------------------------------------------- */

struct priced {
    struct weft_steps steps;
    /* of another set that is generated on the same devices meanwhile, which has
     * as many samples left, and reads as many prompts, for each of this one's */
    struct weft_steps beside;
    double beside_each; /* 0: there is none */
    struct weft_pass_price *model[WEFT_OVERLAP_MODELS];
    double replicas[WEFT_OVERLAP_MODELS]; /* of it for one of generation */
    /* until its weights come (overlap.h) */
    double restore_s[WEFT_OVERLAP_MODELS], move_s[WEFT_OVERLAP_MODELS];
    int32_t call[WEFT_OVERLAP_MODELS]; /* which infers with it */
    int32_t n_models;
    double prompt;             /* tokens, in the mean: no rows of the head */
    struct inferred *inferred; /* (N_INFERRED) */
};

/* What was priced last of those that fall together: simulations that differ in
 * when samples move have most micro-batches in common. */
struct inferred {
    int32_t model, n; /* n 0: nothing */
    double tokens, seconds;
};
enum { N_INFERRED = 4096 };

/* Chunks of two sets take turns on a device: a step waits for the other's. */
static double step_s(void *ctx, const struct weft_work_rows *rows)
{
    struct priced *p = ctx;
    double seconds = weft_steps_s(&p->steps, rows), each = p->beside_each;
    if (each <= 0)
        return seconds;
    if (rows->n_targets < rows->n_rows)
        return seconds * (1 + each);
    int32_t n = (int32_t) fmin(ceil(each * rows->n_rows), p->beside.slots);
    int64_t keys = rows->n_keys * n / rows->n_rows;
    const struct weft_work_rows other = {n, n, keys, keys - n};
    return seconds + weft_steps_s(&p->beside, &other);
}

/* Seconds of a pass of texts of `each` tokens. */
static double texts_s(const struct priced *p, int32_t model, double tokens,
                      double each)
{
    double targets = tokens * fmax(1 - p->prompt / each, 0);
    const struct weft_work_rows rows = {(int32_t) ceil(tokens),
                                        (int32_t) ceil(fmax(targets, 1)),
                                        (int64_t) (tokens * each / 2), 0};
    return weft_pass_price_s(p->model[model], &rows);
}

static double infer_s(void *ctx, int32_t model, int32_t n, double n_tokens)
{
    struct priced *p = ctx;
    double of = p->replicas[model];
    uint64_t key = ((uint64_t) n_tokens * 31 + (uint64_t) n) * 31
                 + (uint64_t) model;
    struct inferred *at = &p->inferred[key % N_INFERRED];
    if (at->model == model && at->n == n && at->tokens <= n_tokens
        && at->tokens >= n_tokens)
        return at->seconds;
    *at = (struct inferred){
        model, n, n_tokens,
        texts_s(p, model, n_tokens / fmax(of, 1), n_tokens / n)
            / fmin(of, 1)};
    return at->seconds;
}

static void priced_release(struct priced *p)
{
    weft_steps_release(&p->steps);
    weft_steps_release(&p->beside);
    weft_free(p->inferred);
    for (int32_t i = 0; i < p->n_models; i++)
        weft_pass_price_free(p->model[i]);
}

static double mean_prompt(const struct weft_tail *tail)
{
    int32_t n = tail->n_past * tail->n_samples;
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += tail->prompt[i];
    return n > 0 ? sum / n : 0;
}

/* Inference calls that are made as the set's samples end, on devices that
 * generate: others gain nothing. NOTE: texts in tokens of a call's own count as
 * if they were as long as in the policy's; nothing tells their lengths
 * beforehand. */
static bool competes(const struct weft_iteration_set *set,
                     const struct weft_iteration_call *c)
{
    const struct weft_trainer *t = set->p->t;
    return c->set == set
        && weft_iteration_shares(&t->gen[set->call].layout,
                                 &t->layout[c->call]);
}

/* Weights come from the host when the iteration begins, where they are
 * offloaded, and to the call's devices when its first sample has ended. */
static int price_weights(const struct weft_iteration_set *set,
                         const struct weft_iteration_call *c,
                         double *restore_s_out, double *move_s_out,
                         struct weft_err *err)
{
    const struct weft_trainer *t = set->p->t;
    const struct weft_costs *costs = t->tail->costs;
    const struct weft_shape *shape = &c->model->arch.shape;
    const struct weft_g_layout *home = &t->layout[c->model->home];
    int rc = 0;
    if (c->model->offload)
        rc = weft_weights_restore_s(costs, shape, home, t->job.n_gpus,
                                    restore_s_out, err);
    return rc ? rc
              : weft_weights_move_s(costs, shape, home, &t->layout[c->call],
                                    move_s_out, err);
}

static int price_steps(const struct weft_trainer *t, int32_t call,
                       struct weft_steps *out, struct weft_err *err)
{
    const struct weft_g_generate *gen = &t->gen[call];
    int32_t replicas = weft_migration_replicas(gen);
    return weft_steps_init(t->tail->costs, &gen->model->shape, &gen->layout,
                           gen->n_instances / replicas, gen->n_slots,
                           gen->max_total, out, err);
}

/* Prices the set that is generated on the same devices meanwhile, if there is
 * one; no algorithm has more. */
static int price_beside(const struct weft_iteration_set *set,
                        struct priced *out, struct weft_err *err)
{
    const struct weft_iteration *p = set->p;
    const struct weft_mesh *mesh = &p->t->plan.call[set->call].mesh;
    for (int32_t k = 0; k < p->n_sets; k++) {
        const struct weft_iteration_set *other = &p->set[k];
        const struct weft_mesh *m = &p->t->plan.call[other->call].mesh;
        if (other == set || memcmp(m, mesh, sizeof *m) != 0)
            continue;
        out->beside_each = (double) other->n / set->n;
        return price_steps(p->t, other->call, &out->beside, err);
    }
    return 0;
}

/* texts: also of calls that read texts in tokens of their own. */
static int priced_init(const struct weft_iteration_set *set, bool texts,
                       struct priced *out, struct weft_err *err)
{
    const struct weft_iteration *p = set->p;
    const struct weft_trainer *t = p->t;
    const struct weft_g_generate *gen = &t->gen[set->call];
    int32_t replicas = weft_migration_replicas(gen);
    *out = (struct priced){
        .prompt = mean_prompt(t->tail),
        .inferred = weft_alloc(N_INFERRED, sizeof *out->inferred)};
    if (!out->inferred)
        return weft_err_nomem(err, "costs",
                              N_INFERRED * sizeof *out->inferred);
    int rc = price_steps(t, set->call, &out->steps, err);
    for (int32_t k = 0; k < p->n_calls && !rc; k++) {
        const struct weft_iteration_call *c = &p->call[k];
        const struct weft_g_layout *layout = &t->layout[c->call];
        if (!competes(set, c) || (c->length && !texts))
            continue;
        out->replicas[out->n_models] = (double) layout->plan.dp / replicas;
        out->call[out->n_models] = c->call;
        rc = price_weights(set, c, &out->restore_s[out->n_models],
                           &out->move_s[out->n_models], err);
        if (rc)
            break;
        rc = weft_pass_price_create(t->tail->costs, &c->model->arch.shape,
                                    layout, false,
                                    &out->model[out->n_models++], err);
    }
    return rc;
}

/* ---- Simulations -------------------------------------------------------- */

struct choice {
    struct priced priced;
    struct weft_migrate_costs costs;
    struct weft_overlap_job job[WEFT_TAIL_PAST];
    struct weft_overlap_sample *sample; /* (past, set->n) */
    int32_t n_seen, seen[WEFT_MIGRATE_SEEN];
};

/* The replica that begins sample k of n: instances have equal shares, one after
 * another, as far as slots last; the others come as slots become free. */
static int32_t replica_of(const struct weft_g_generate *gen, int32_t k,
                          int32_t n)
{
    int64_t share = weft_min64(gen->n_slots,
                               weft_ceil_div(n, gen->n_instances));
    int32_t i = (int32_t) (k / share);
    return (i < gen->n_instances ? i : k) % weft_migration_replicas(gen);
}

/* How long samples wait for a full micro-batch: as long as theirs would take,
 * by a run's clock (iteration_infer.c); here one of one sample. */
static double wait_s(struct choice *c, int32_t n)
{
    const struct weft_overlap_sample *sample = c->sample;
    double most = 0, tokens = 0;
    for (int32_t i = 0; i < n; i++)
        tokens += (double) (sample[i].prompt + sample[i].length) / n;
    for (int32_t k = 0; k < c->priced.n_models; k++)
        most = fmax(most, infer_s(&c->priced, k, 1, tokens));
    return most;
}

static void fill_jobs(const struct weft_iteration_set *set, struct choice *c)
{
    const struct weft_trainer *t = set->p->t;
    const struct weft_tail *tail = t->tail;
    const struct weft_g_generate *gen = &t->gen[set->call];
    int32_t n = set->n, all = n * tail->n_past;
    bool shares = t->config.rollout.prefix_sharing && set->each > 1;
    for (int32_t i = 0; i < all; i++) {
        int64_t at = (int64_t) (i / n) * tail->n_samples + set->first + i % n;
        c->sample[i] = (struct weft_overlap_sample){
            replica_of(gen, i % n, n), tail->prompt[at], tail->response[at],
            shares ? 1 + i % n / set->each : 0};
    }
    double longest_s = wait_s(c, all);
    for (int32_t i = 0; i < tail->n_past; i++) {
        c->job[i] = (struct weft_overlap_job){
            .costs = &c->costs,
            .n_instances = weft_migration_replicas(gen),
            .slots = c->priced.steps.slots,
            .n_samples = n,
            .sample = c->sample + (size_t) i * (size_t) n,
            .most = t->config.rollout.max_new_tokens,
            .n_seen = c->n_seen,
            .seen = c->seen,
            .shares_prefixes = t->config.rollout.prefix_sharing,
            .n_models = c->priced.n_models,
            .infer_s = infer_s,
            .micro_tokens = t->config.train.micro_batch_tokens,
            .wait_s = longest_s};
        memcpy(c->job[i].restore_s, c->priced.restore_s,
               sizeof c->priced.restore_s);
        memcpy(c->job[i].move_s, c->priced.move_s, sizeof c->priced.move_s);
    }
}

/* BS_max for samples as long as those of the tail are. */
static int32_t most_batch(const struct choice *c)
{
    int32_t n = c->n_seen;
    int32_t first = n - (int32_t) weft_ceil_div(n, 5);
    double tokens = c->job[0].sample[0].prompt;
    for (int32_t i = first; i < n; i++)
        tokens += (double) c->seen[i] / (n - first);
    return weft_migrate_most_batch(&c->costs, tokens, c->priced.steps.slots);
}

/* Of KV, of an instance. */
static double token_bytes(const struct weft_g_generate *gen)
{
    int32_t n = gen->layout.plan.pp * gen->layout.plan.tp;
    double bytes = 0;
    for (int32_t k = 0; k < n; k++)
        bytes += (double) weft_tile_bytes(gen->instance[0].arena[k]);
    return bytes / ((double) gen->n_pages * WEFT_PAGE_TOKENS);
}

/* Seconds that a byte of KV takes from one instance to another, of which each
 * member sends its part to the same member there, over the link that is busy
 * longest; busy_s (n_links): scratch, zeros before and after. 0: all goes
 * within places. */
static double byte_s(const struct weft_costs *costs,
                     const struct weft_g_generate *gen, int32_t from,
                     int32_t to, double *busy_s)
{
    int32_t n = gen->layout.plan.pp * gen->layout.plan.tp, n_links;
    const double *speed = weft_costs_links(costs, &n_links);
    struct weft_tile *const *a = gen->instance[from].arena;
    struct weft_tile *const *b = gen->instance[to].arena;
    double all = 0, most_s = 0, latency_s;
    int32_t link[WEFT_COSTS_PATH];
    for (int32_t k = 0; k < n; k++) {
        double bytes = (double) weft_tile_bytes(a[k]);
        int32_t n_path = weft_costs_path(costs, weft_tile_place(a[k]),
                                         weft_tile_place(b[k]), link,
                                         &latency_s);
        all += bytes;
        for (int32_t i = 0; i < n_path; i++) {
            busy_s[link[i]] += bytes / speed[link[i]];
            most_s = fmax(most_s, busy_s[link[i]]);
        }
    }
    for (int32_t k = 0; k < n; k++) {
        int32_t n_path = weft_costs_path(costs, weft_tile_place(a[k]),
                                         weft_tile_place(b[k]), link,
                                         &latency_s);
        for (int32_t i = 0; i < n_path; i++)
            busy_s[link[i]] = 0;
    }
    return most_s / all;
}

/* The slowest from the first instance to another, or the memory's speed within
 * a place. */
static int find_link(const struct weft_iteration_set *set, double *out,
                     struct weft_err *err)
{
    const struct weft_trainer *t = set->p->t;
    const struct weft_g_generate *gen = &t->gen[set->call];
    int32_t n_links;
    double slowest_s = 1e-10;
    weft_costs_links(t->tail->costs, &n_links);
    double *busy_s = weft_alloc((size_t) n_links + 1, sizeof *busy_s);
    if (!busy_s)
        return weft_err_nomem(err, "links", (size_t) n_links * 8);
    for (int32_t i = 1; i < gen->n_instances; i++)
        slowest_s = fmax(slowest_s,
                         byte_s(t->tail->costs, gen, 0, i, busy_s));
    weft_free(busy_s);
    *out = 1 / slowest_s;
    return 0;
}

/* Prices what the last iterations' samples take. least: what they take at least,
 * without what is generated beside them, or texts in other tokens, which may be
 * shorter. Close it also after an error. */
static int choice_open(const struct weft_iteration_set *set, bool least,
                       struct choice *c, struct weft_err *err)
{
    const struct weft_g_generate *gen = &set->p->t->gen[set->call];
    size_t all = (size_t) set->n * (size_t) set->p->t->tail->n_past;
    *c = (struct choice){.sample = weft_alloc(all, sizeof *c->sample)};
    int rc = priced_init(set, !least, &c->priced, err);
    double bytes_per_s = 0;
    if (!rc && !least)
        rc = price_beside(set, &c->priced, err);
    if (!rc && !c->sample)
        rc = weft_err_nomem(err, "lengths", all * sizeof *c->sample);
    if (!rc)
        rc = weft_tail_seen(set, &c->n_seen, c->seen, err);
    if (!rc)
        rc = find_link(set, &bytes_per_s, err);
    if (rc)
        return rc;
    int64_t pages = (int64_t) c->priced.steps.n_instances * gen->n_pages;
    double each = token_bytes(gen);
    c->costs = (struct weft_migrate_costs){
        .ctx = &c->priced,
        .step_s = step_s,
        .read_rows = c->priced.steps.n_instances
                   * set->p->t->config.rollout.prefill_tokens,
        .token_bytes = each,
        .memory_bytes = each * (double) pages * WEFT_PAGE_TOKENS,
        .link_bytes_per_s = bytes_per_s};
    fill_jobs(set, c);
    return 0;
}

static void choice_close(struct choice *c)
{
    priced_release(&c->priced);
    weft_free(c->sample);
}

static int simulate(const struct weft_iteration_set *set, struct choice *c,
                    struct weft_tail_choice *out, struct weft_err *err)
{
    const struct weft_g_generate *gen = &set->p->t->gen[set->call];
    struct weft_overlap_when when = {.share = 0};
    double unmoved_s[WEFT_TAIL_PAST];
    int32_t n = set->p->t->tail->n_past;
    int rc = weft_overlap_choose(n, c->job, &when, &out->seconds, unmoved_s,
                                 err);
    for (int32_t i = 0; i < n && !rc; i++)
        out->unmoved_s += unmoved_s[i] / n;
    out->seconds /= n;
    out->when = (struct weft_migration_when){
        .share = when.share,
        .instances = when.instances,
        .most_batch = when.most_batch > 0 ? when.most_batch : most_batch(c),
        .n_later = when.n_later};
    out->when.n_cached = weft_migrate_cached(&c->costs, gen->max_total,
                                             out->when.cached);
    memcpy(out->when.later, when.later, sizeof when.later);
    return rc;
}

int weft_tail_choose(const struct weft_iteration_set *set,
                     struct weft_tail_choice *out, struct weft_err *err)
{
    struct choice c;
    int rc = choice_open(set, false, &c, err);
    if (!rc)
        rc = simulate(set, &c, out, err);
    choice_close(&c);
    return rc;
}

int weft_tail_refine(const struct weft_iteration_set *set,
                     struct weft_migration_when *when, struct weft_err *err)
{
    int32_t n = set->p->t->tail->n_past;
    struct choice c;
    bool moves = n > 0;
    double more_s = 0; /* of all slots */
    int rc = choice_open(set, false, &c, err);
    if (!rc)
        when->n_cached = weft_migrate_cached(
            &c.costs, set->p->t->gen[set->call].max_total, when->cached);
    for (int32_t i = 0; i < n && !rc; i++) {
        struct weft_overlap_when batch = {.share = when->share,
                                          .instances = when->instances};
        struct weft_overlapped few = {0}, all = {0};
        rc = weft_overlap_simulate(&c.job[i], &batch, &few, NULL, err);
        batch.most_batch = c.job[i].slots;
        if (!rc)
            rc = weft_overlap_simulate(&c.job[i], &batch, &all, NULL, err);
        more_s += all.all_s - few.all_s;
        moves = moves && few.n_migrated > 0;
    }
    if (!rc && moves && more_s >= 0)
        when->most_batch = most_batch(&c);
    choice_close(&c);
    return rc;
}

/* Of the samples that were noted last. */
static int bound(const struct weft_iteration_set *set, double *out,
                 struct weft_err *err)
{
    const struct weft_trainer *t = set->p->t;
    struct choice c;
    bool fewer = false;
    int rc = choice_open(set, true, &c, err);
    for (int32_t k = 0; k < c.priced.n_models; k++)
        fewer = fewer || c.priced.replicas[k] < 1;
    *out = 0;
    if (!rc && !fewer)
        rc = weft_overlap_bound(&c.job[t->tail->n_past - 1], out, err);
    choice_close(&c);
    return rc;
}

int weft_tail_bound(const struct weft_iteration *p, double *out,
                    struct weft_err *err)
{
    int rc = 0;
    /* what a run decided is decided again without costs */
    bool known = p->t->tail && p->t->tail->costs;
    *out = 0;
    for (int32_t k = 0; k < p->n_sets && known && !rc; k++) {
        double one;
        rc = bound(&p->set[k], &one, err);
        *out = rc ? *out : fmax(*out, one);
    }
    return rc;
}

/* ---- Pace --------------------------------------------------------------- */

/* What a row of a prompt adds to a step in which all slots decode. */
static double read_more_s(struct priced *p, int32_t most)
{
    int32_t n = p->steps.slots;
    int64_t keys = (int64_t) (n * p->steps.longest / 2);
    struct weft_work_rows rows = {n, n, keys, keys - n};
    double decoded_s = step_s(p, &rows);
    weft_work_rows_add(&rows, 0, most);
    return fmax(step_s(p, &rows) - decoded_s, 0) / most;
}

/* Lines through the smallest and the largest batches; one that would begin
 * below 0, as where large batches cost more for each row, begins there. */
int weft_tail_find_pace(const struct weft_iteration_set *set,
                        struct weft_tail_pace *out, struct weft_err *err)
{
    struct priced p;
    int rc = priced_init(set, true, &p, err);
    double slots = p.steps.slots, each = p.steps.longest / 2;
    double most = fmax(set->p->t->config.train.micro_batch_tokens, 2 * each);
    if (!rc) {
        out->known = true;
        const struct weft_step *one = weft_steps_decode(&p.steps, 1);
        const struct weft_step *all = weft_steps_decode(&p.steps,
                                                        p.steps.slots);
        out->sample_s = fmax(all->each_step - one->each_step, 0)
                      / fmax(slots - 1, 1);
        out->step_s = fmax(one->each_step - out->sample_s, 0);
        out->token_s = all->each_token;
        out->read_s = read_more_s(&p,
                                  set->p->t->config.rollout.prefill_tokens);
    }
    for (int32_t k = 0; k < p.n_models && !rc; k++) {
        double one = texts_s(&p, k, each, each);
        double full = texts_s(&p, k, most, each);
        double token_s = fmax(full - one, 0) / (most - each);
        out->infer[p.call[k]].token_s = token_s;
        out->infer[p.call[k]].batch_s = fmax(one - each * token_s, 0);
    }
    priced_release(&p);
    return rc;
}
