/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a call takes at least in a layout, without a recording: in no order of its
 * tasks, and with nothing to wait for but what is named here.
 *
 *     work       of the stage with most layers: the operations of all samples at
 *                the highest rate that a device reaches with so many rows, or in
 *                generation the bytes of weights, for each step of each
 *                instance, and of KV caches; and what each task takes for each
 *                of its layers
 *     updates    in training, for each optimizer step, the bytes of AdamW and of
 *                adding gradient groups up
 *     pipelines  in training, for each optimizer step, the smallest micro-batch
 *                through all other stages and back
 *     steps      in generation, the longest response's, one after another
 *     exchanges  in each layer, of sums over the members of a tp group; in
 *                generation of as many rows as a step has room for
 *     norms      in each layer, with residual sums, where they have a price
 *                (row_bytes), of all rows by every member
 *
 *     replicas   in training, what each device receives of gradients, their sums
 *                and weights from replicas of other nodes, by its rail; and a
 *                step's last gradients, for which the norm waits, and so the next
 *                step, after the last backward pass has begun
 *
 * Embeddings, heads but generation's, prompts, and what replicas of one node
 * exchange are left out.
 */
#include <math.h>
#include <string.h>

#include "codelets/work.h"
#include "job/plan_needs.h"
#include "run/predict/pricer_inside.h"

static double layer_flop(const struct weft_shape *s, int parts, int32_t n)
{
    const struct weft_work_rows rows = {.n_rows = n,
                                        .n_keys = (int64_t) n * (n + 1) / 2};
    return weft_work_layer(s, (struct weft_range){0, s->n_blocks}, parts,
                           &rows)
        .flop;
}

/* Samples as long as they are in what is recorded, but for prompts: all are
 * taken to be as long as the shortest. */
static struct weft_price_samples samples_of(const struct weft_pricer *p,
                                            int32_t call, int32_t prompt)
{
    enum {
        FORWARD = WEFT_WORK_ATTENTION | WEFT_WORK_MLP,
        BACKWARD = WEFT_WORK_MLP_BACKWARD | WEFT_WORK_HEADS_BACKWARD
                 | WEFT_WORK_QKV_BACKWARD,
        AGAIN = WEFT_WORK_ATTENTION | WEFT_WORK_MLP_INPUT
    };
    const struct weft_config *c = &p->t->config;
    const struct weft_dataflow *flow = p->needs->flow;
    const struct weft_shape *s = p->needs->shape[flow->call[call].role];
    int32_t field = weft_flow_origin_of_call(flow, call);
    bool generates = weft_config_generates(c);
    struct weft_price_samples all = {.least = INT32_MAX,
                                     .alike = p->t->max_prompt == prompt};
    all.n = weft_flow_trains(flow, call)
              ? weft_run_samples(c)
              : weft_run_samples_at(c, flow, field);
    for (int32_t k = 0; k < all.n; k++) {
        int32_t made = 1;
        if (generates)
            made = weft_lengths_draw(p->options->lengths, c->seed,
                                     p->t->settings.warmup, k,
                                     c->rollout.max_new_tokens);
        int32_t n = weft_max32(prompt + made - 1, 1); /* none of the last */
        double flop = s->n_layers * layer_flop(s, FORWARD, n);
        all.tokens += n;
        all.flop += flop;
        all.decoded += made - 1;
        all.cached += (made - 1.0) * (prompt + made / 2.0);
        all.longest = weft_max32(all.longest, made - 1);
        all.most = weft_max32(all.most, n);
        all.alike = all.alike
                 && made == (generates ? c->rollout.max_new_tokens : 1);
        if (n >= all.least)
            continue;
        all.least = n;
        all.shortest_flop = flop;
        all.backward = s->n_layers * layer_flop(s, BACKWARD, n) / flop;
        all.again = s->n_layers * layer_flop(s, AGAIN, n) / flop;
    }
    return all;
}

void weft_price_samples_set(struct weft_pricer *p)
{
    const struct weft_dataflow *flow = p->needs->flow;
    int32_t prompt = INT32_MAX;
    for (int32_t i = 0; i < p->t->n_prompts; i++)
        prompt = weft_min32(prompt, p->t->prompt[i].n_prompt);
    for (int32_t c = 1; c < flow->n_calls; c++)
        if (weft_flow_placed(flow, c))
            p->samples[c] = samples_of(p, c, prompt);
}

static double greatest(const struct weft_size_table *t)
{
    double most = t->n > 0 ? 0 : 1;
    for (int32_t i = 0; i < t->n; i++)
        most = fmax(most, t->value[i]);
    return most;
}

/* The same of sizes up to one. */
static double greatest_up_to(const struct weft_size_table *t, double size)
{
    double most = weft_size_table_at(t, size);
    for (int32_t i = 0; i < t->n && t->size[i] <= size; i++)
        most = fmax(most, t->value[i]);
    return most;
}

/* Operations of a device in a second, at most, with so many rows at a time. */
static double flop_rate(const struct weft_node_kind *kind,
                        const struct weft_shape *s, double rows)
{
    bool half = s->dtype != WEFT_F32 && kind->flops[WEFT_BF16] > 0;
    return kind->flops[half ? WEFT_BF16 : WEFT_F32]
         * greatest_up_to(&kind->by_rows, rows);
}

/* Bytes that a device reads or writes in a second, at most. */
static double byte_rate(const struct weft_node_kind *kind)
{
    return fmin(kind->memory_bytes_per_s, kind->node_bytes_per_s > 0
                                              ? kind->node_bytes_per_s
                                              : kind->memory_bytes_per_s)
         * greatest(&kind->by_bytes);
}

/* Seconds in which a member of a tp group receives the other members' parts of
 * a row's sums, of which a layer has as many; members at one place receive
 * nothing. Links between nodes, the only ones where a node has one device, are
 * taken to be no faster than those inside. */
static double exchange_s(const struct weft_pricer *p,
                         const struct weft_shape *s, int32_t tp, int sums)
{
    const struct weft_node_kind *kind = &p->options->cluster->kind[0];
    if (kind->inside.bytes_per_s == 0
        || !(p->t->job.place_per_device || p->t->job.n_gpus > 0))
        return 0;
    return (tp - 1) * sums * (double) sizeof(float) * s->hidden
         / kind->inside.bytes_per_s;
}

/* Seconds of a row in so many passes through a layer's norms and the like. */
static double norms_s(const struct weft_node_kind *kind,
                      const struct weft_shape *s, int passes)
{
    return passes * s->hidden * kind->row_bytes / byte_rate(kind);
}

/* Layers of the smallest stage and of the largest. */
static void stage_sizes(const struct weft_shape *s, int32_t pp,
                        int32_t *least_out, int32_t *most_out)
{
    int32_t first[WEFT_MAX_STAGES + 1];
    weft_plan_stages(s, pp, first);
    *least_out = s->n_layers;
    *most_out = 0;
    for (int32_t i = 0; i < pp; i++) {
        int32_t n = first[i + 1] - first[i];
        *least_out = n < *least_out ? n : *least_out;
        *most_out = n > *most_out ? n : *most_out;
    }
}

/* Micro-batches of a replica in a step, the samples of each, at least, and its
 * rows, at most. */
static double micro_batches(const struct weft_pricer *p,
                            const struct weft_call_plan *at,
                            const struct weft_price_samples *all,
                            double each_step, double *samples_out,
                            double *rows_out)
{
    const struct weft_config *c = &p->t->config;
    double groups = fmin(c->numerics.gradient_groups, each_step);
    double of_group = floor(each_step / groups);
    double rows = fmax(c->train.micro_batch_tokens, all->most);
    *rows_out = at->micro_batches > 0 ? ceil(each_step / groups) * all->most
                                      : rows;
    if (at->micro_batches > 0) {
        if (all->alike)
            *rows_out = ceil(ceil(each_step / groups) / at->micro_batches)
                      * all->most;
        *samples_out = fmax(floor(of_group / at->micro_batches), 1);
        return groups * fmin(at->micro_batches, of_group) / at->dp;
    }
    *samples_out = all->least < all->most
                     ? 1
                     : fmax(fmin(of_group, floor(rows / all->most)), 1);
    double full = each_step * all->tokens / all->n / rows;
    return fmax(groups, full) / at->dp;
}

/* Of a layer, by one of the functions that count a shape's. */
static double layer_params(const struct weft_shape *s,
                           int64_t (*count)(const struct weft_shape *))
{
    struct weft_shape none = *s;
    none.n_layers = 0;
    return (double) (count(s) - count(&none)) / s->n_layers;
}

/* Seconds of a layer, in an optimizer step, of a mean device: AdamW reads a
 * gradient, reads and writes three numbers and writes the weight, of all of the
 * device's or, with ZeRO, of its replica's part; the sums of all gradient
 * groups are added up, wherever. All but weights are f32. */
static double update_s(const struct weft_node_kind *kind,
                       const struct weft_call_plan *at,
                       const struct weft_shape *s, double groups)
{
    double n = layer_params(s, weft_shape_n_trained) / at->tp;
    double adamw = 7 * sizeof(float) + (double) weft_dtype_bytes(s->dtype);
    double add = 3 * sizeof(float) * (groups - 1);
    return n * (adamw / (at->zero > 0 ? at->dp : 1) + add / at->dp)
         / byte_rate(kind);
}

/* What a device receives of one layer in an optimizer step from replicas of
 * other nodes, in seconds of its rail: in the mean of the replicas, each of which
 * owns a part of the layer. A node has place for no more replicas than it has
 * groups of tp devices, which share what comes of gradients and weights, but with
 * ZeRO 3 the latter only by hpz: else they come for each micro-batch. n:
 * micro-batches of a replica. */
struct exchanged {
    double all_s, last_s; /* last: gradients that the norm waits for */
};

static struct exchanged replicas_s(const struct weft_pricer *p,
                                   const struct weft_call_plan *at,
                                   const struct weft_shape *s, double groups,
                                   double n)
{
    double rate = p->options->cluster->kind[0].rail.bytes_per_s;
    bool apart = p->t->job.place_per_device || p->t->job.n_gpus > 0;
    double beside = ceil((double) at->mesh.n_devices / at->tp);
    double away = fmin(at->dp, groups) - beside;
    if (rate <= 0 || away <= 0 || !apart)
        return (struct exchanged){0, 0};
    double each_s = 1.0 / at->tp / at->dp * away / rate;
    double sent_s = layer_params(s, weft_shape_n_trained) * each_s / beside;
    double whole_s = layer_params(s, weft_shape_n_params) * each_s;
    double leaves = at->zero >= 2 && beside <= 1 ? floor(groups / at->dp) : 1;
    double weight = (double) weft_dtype_bytes(s->dtype);
    double back_s = at->zero == 0 ? sent_s * sizeof(float)
                  : at->zero < 3 || (at->hpz && beside > 1)
                      ? sent_s * weight
                      : whole_s * 2 * floor(n) * weight;
    return (struct exchanged){.all_s = sent_s * leaves * sizeof(float)
                                     + back_s,
                              .last_s = sent_s * sizeof(float)};
}

static struct weft_least training(const struct weft_pricer *p,
                                  const struct weft_call_plan *at,
                                  const struct weft_shape *s,
                                  const struct weft_price_samples *all)
{
    const struct weft_node_kind *kind = &p->options->cluster->kind[0];
    double steps = p->t->settings.mini_batches, samples, rows;
    double n = micro_batches(p, at, all, all->n / steps, &samples, &rows);
    double rate = flop_rate(kind, s, rows) * at->tp;
    double groups = fmin(p->t->config.numerics.gradient_groups,
                         floor(all->n / steps));
    double step_s = steps * update_s(kind, at, s, groups);
    double passes = at->recompute ? 3 : 2; /* tasks that a layer has */
    double times = 1 + all->backward + (at->recompute ? all->again : 0);
    double epochs = p->t->settings.epochs;
    int32_t least, most;
    stage_sizes(s, at->pp, &least, &most);
    double row_s = exchange_s(p, s, at->tp, at->recompute ? 5 : 4)
                 + norms_s(kind, s, at->recompute ? 4 : 3);
    double layer_s = (times * all->flop / s->n_layers / rate
                      + all->tokens * row_s)
                       / at->dp
                   + steps * n * passes * kind->layer_s;
    double one_s = samples
                     * (times * all->shortest_flop / s->n_layers / rate
                        + all->least * row_s)
                 + passes * kind->layer_s;
    const struct exchanged e = replicas_s(p, at, s, groups, n);
    double largest = fmax(floor(rows / all->most), samples); /* samples */
    double backward_s = most
                      * (largest
                             * ((times - 1) * all->shortest_flop / s->n_layers
                                    / rate
                                + all->least * row_s)
                         + passes * kind->layer_s);
    bool alike = all->alike && fmod(groups, at->dp) <= 0;
    double last_s = alike ? fmax(least * e.last_s - backward_s, 0) : 0;
    double stages_s = (at->pp - 1) * least * one_s + last_s;
    /* a stage may update while others still pass micro-batches */
    return (struct weft_least){
        .seconds = epochs
                 * fmax(fmax(most * layer_s + steps * stages_s,
                             most * (layer_s + step_s)),
                        steps * most * e.all_s),
        .busy_s = epochs * (layer_s + step_s) * s->n_layers / at->pp};
}

static struct weft_least inference(const struct weft_pricer *p,
                                   const struct weft_call_plan *at,
                                   const struct weft_shape *s,
                                   const struct weft_price_samples *all)
{
    const struct weft_node_kind *kind = &p->options->cluster->kind[0];
    double rate = flop_rate(kind, s, INFINITY) * at->tp;
    int32_t least, most;
    stage_sizes(s, at->pp, &least, &most);
    double row_s = exchange_s(p, s, at->tp, 2) + norms_s(kind, s, 1);
    double layer_s = (all->flop / s->n_layers / rate + all->tokens * row_s)
                   / at->dp;
    double one_s = all->shortest_flop / s->n_layers / rate
                 + all->least * row_s;
    return (struct weft_least){.seconds = most * layer_s
                                        + (at->pp - 1) * least * one_s,
                               .busy_s = layer_s * s->n_layers / at->pp};
}

/* Seconds in which a member of the last stage's tp group reads its part of the
 * head in a step. */
static double head_s(const struct weft_shape *s, int32_t tp, double rate)
{
    return (double) s->vocab * s->hidden * (double) weft_dtype_bytes(s->dtype)
         / tp / rate;
}

/* An instance has slots of its own, and there is one for each stage of a
 * replica. */
static struct weft_least generation(const struct weft_pricer *p,
                                    const struct weft_call_plan *at,
                                    const struct weft_shape *s,
                                    const struct weft_price_samples *all)
{
    const struct weft_node_kind *kind = &p->options->cluster->kind[0];
    const struct weft_config *c = &p->t->config;
    double instances = fmin((double) at->dp * at->pp, all->n);
    double slots = fmin(ceil(all->n / instances), c->rollout.slots);
    double room = fmin(floor(all->n / instances), c->rollout.slots)
                + c->rollout.prefill_tokens;
    double rate = byte_rate(kind);
    const struct weft_work_rows none = {.n_rows = 1};
    struct weft_range blocks = {0, s->n_blocks};
    /* of a row without keys: weights, and its own keys and values */
    struct weft_work weights = weft_work_steps(s, blocks, 1, false, 1, &none);
    double kv = 2.0 * (double) weft_dtype_bytes(s->dtype)
              * (double) weft_block_sums(s, blocks).kv;
    double step_s = weights.bytes / at->tp / rate + kind->layer_s
                  + room * exchange_s(p, s, at->tp, 2);
    double steps = all->decoded / slots / at->dp; /* of a replica */
    double layer_s = steps * step_s
                   + (all->cached * kv / at->tp / rate
                      + all->decoded * norms_s(kind, s, 1))
                         / at->dp;
    double head = head_s(s, at->tp, rate);
    int32_t first[WEFT_MAX_STAGES + 1], least, most;
    stage_sizes(s, at->pp, &least, &most);
    weft_plan_stages(s, at->pp, first);
    int32_t last = first[at->pp] - first[at->pp - 1];
    return (struct weft_least){
        .seconds = fmax(fmax(most * layer_s, last * layer_s + steps * head),
                        all->longest * (s->n_layers * step_s + head)),
        .busy_s = (layer_s * s->n_layers + steps * head) / at->pp};
}

/* Where all samples are alike, as many micro-batches as tokens ask for may be
 * as many as are given. */
bool weft_pricer_same(const struct weft_pricer *p,
                      const struct weft_call_plan *a,
                      const struct weft_call_plan *b, int32_t call)
{
    const struct weft_config *c = &p->t->config;
    const struct weft_price_samples *all = &p->samples[call];
    int32_t steps = p->t->settings.mini_batches;
    int32_t groups = c->numerics.gradient_groups;
    if (memcmp(&a->mesh, &b->mesh, sizeof a->mesh) != 0 || a->dp != b->dp
        || a->tp != b->tp || a->pp != b->pp || a->zero != b->zero
        || a->hpz != b->hpz || a->recompute != b->recompute
        || a->offload != b->offload)
        return false;
    if (a->micro_batches == b->micro_batches)
        return true;
    if (!weft_flow_trains(p->needs->flow, call) || !all->alike || p->whole
        || weft_run_unit(c) != 1 || all->n % (steps * groups) != 0
        || groups % a->dp != 0)
        return false;
    int32_t of_group = all->n / steps / groups, cut[2];
    int32_t fit = weft_max32(c->train.micro_batch_tokens / all->most, 1);
    fit = weft_min32(fit, of_group);
    for (int k = 0; k < 2; k++) {
        int32_t n = (k ? b : a)->micro_batches;
        cut[k] = weft_min32(n > 0 ? n : of_group / fit, of_group);
        if (of_group % (n > 0 ? cut[k] : fit) != 0)
            return false;
    }
    return cut[0] == cut[1];
}

struct weft_least weft_pricer_least(const struct weft_pricer *p,
                                    const struct weft_call_plan *at,
                                    int32_t call)
{
    const struct weft_dataflow *flow = p->needs->flow;
    const struct weft_shape *s = p->needs->shape[flow->call[call].role];
    if (p->options->costs || p->options->cluster->n_kinds > 1)
        return (struct weft_least){0, 0};
    const struct weft_price_samples *all = &p->samples[call];
    return weft_flow_trains(flow, call)           ? training(p, at, s, all)
         : flow->call[call].kind == WEFT_GENERATE ? generation(p, at, s, all)
                                                  : inference(p, at, s, all);
}
