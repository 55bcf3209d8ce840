/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a call takes at least in a layout, without a recording: in no order of its
 * tasks, and with nothing to wait for but what is named here.
 *
 *     work       of the stage with most layers: the operations of all samples at
 *                the highest rate that a device reaches, or in generation the
 *                bytes of weights, for each step of each instance, and of KV
 *                caches; and what each task takes for each of its layers
 *     pipelines  in training, for each optimizer step, the smallest micro-batch
 *                through all other stages and back
 *     steps      in generation, the longest response's, one after another
 *     exchanges  in each layer, of sums over the members of a tp group
 *
 * Embeddings, heads, prompts, and what replicas exchange are left out.
 */
#include <math.h>

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
    struct weft_price_samples all = {.least = INT32_MAX};
    all.n = weft_flow_trains(flow, call)
              ? weft_run_samples(c)
              : weft_run_samples_at(c, flow, field);
    for (int32_t k = 0; k < all.n; k++) {
        int32_t made = 1;
        if (weft_config_generates(c))
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

/* Operations of a device in a second, at most. */
static double flop_rate(const struct weft_node_kind *kind,
                        const struct weft_shape *s)
{
    bool half = s->dtype != WEFT_F32 && kind->flops[WEFT_BF16] > 0;
    return kind->flops[half ? WEFT_BF16 : WEFT_F32]
         * greatest(&kind->by_rows);
}

/* Seconds in which a member of a tp group receives the other members' parts of a
 * row's sums, of which a layer has as many. Links between nodes, the only ones
 * where a node has one device, are taken to be no faster than those inside. */
static double exchange_s(const struct weft_node_kind *kind,
                         const struct weft_shape *s, int32_t tp, int sums)
{
    if (kind->inside.bytes_per_s == 0)
        return 0;
    return (tp - 1) * sums * (double) sizeof(float) * s->hidden
         / kind->inside.bytes_per_s;
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

/* Micro-batches of a replica in a step, and the samples of each, at least. */
static double micro_batches(const struct weft_pricer *p,
                            const struct weft_call_plan *at,
                            const struct weft_price_samples *all,
                            double each_step, double *samples_out)
{
    const struct weft_config *c = &p->t->config;
    double groups = fmin(c->numerics.gradient_groups, each_step);
    double of_group = floor(each_step / groups);
    double rows = fmax(c->train.micro_batch_tokens, all->most);
    if (at->micro_batches > 0) {
        *samples_out = fmax(floor(of_group / at->micro_batches), 1);
        return groups * fmin(at->micro_batches, of_group) / at->dp;
    }
    *samples_out = all->least < all->most
                     ? 1
                     : fmax(fmin(of_group, floor(rows / all->most)), 1);
    double full = each_step * all->tokens / all->n / rows;
    return fmax(groups, full) / at->dp;
}

static struct weft_least training(const struct weft_pricer *p,
                                  const struct weft_call_plan *at,
                                  const struct weft_shape *s,
                                  const struct weft_price_samples *all)
{
    const struct weft_node_kind *kind = &p->options->cluster->kind[0];
    double rate = flop_rate(kind, s) * at->tp, samples;
    double steps = p->t->settings.mini_batches;
    double n = micro_batches(p, at, all, all->n / steps, &samples);
    double passes = at->recompute ? 3 : 2; /* tasks that a layer has */
    double times = 1 + all->backward + (at->recompute ? all->again : 0);
    double epochs = p->t->settings.epochs;
    int32_t least, most;
    stage_sizes(s, at->pp, &least, &most);
    double row_s = exchange_s(kind, s, at->tp, at->recompute ? 5 : 4);
    double layer_s = (times * all->flop / s->n_layers / rate
                      + all->tokens * row_s)
                       / at->dp
                   + steps * n * passes * kind->layer_s;
    double one_s = samples
                     * (times * all->shortest_flop / s->n_layers / rate
                        + all->least * row_s)
                 + passes * kind->layer_s;
    return (struct weft_least){
        .seconds = epochs
                 * (most * layer_s + steps * (at->pp - 1) * least * one_s),
        .busy_s = epochs * layer_s * s->n_layers / at->pp};
}

static struct weft_least inference(const struct weft_pricer *p,
                                   const struct weft_call_plan *at,
                                   const struct weft_shape *s,
                                   const struct weft_price_samples *all)
{
    const struct weft_node_kind *kind = &p->options->cluster->kind[0];
    double rate = flop_rate(kind, s) * at->tp;
    int32_t least, most;
    stage_sizes(s, at->pp, &least, &most);
    double row_s = exchange_s(kind, s, at->tp, 2);
    double layer_s = (all->flop / s->n_layers / rate + all->tokens * row_s)
                   / at->dp;
    double one_s = all->shortest_flop / s->n_layers / rate
                 + all->least * row_s;
    return (struct weft_least){.seconds = most * layer_s
                                        + (at->pp - 1) * least * one_s,
                               .busy_s = layer_s * s->n_layers / at->pp};
}

/* An instance has slots of its own, and there is one for each stage of a
 * replica. */
static struct weft_least generation(const struct weft_pricer *p,
                                    const struct weft_call_plan *at,
                                    const struct weft_shape *s,
                                    const struct weft_price_samples *all)
{
    const struct weft_node_kind *kind = &p->options->cluster->kind[0];
    double instances = fmin((double) at->dp * at->pp, all->n);
    double slots = fmin(ceil(all->n / instances), p->t->config.rollout.slots);
    double rate = fmin(kind->memory_bytes_per_s,
                       kind->node_bytes_per_s > 0 ? kind->node_bytes_per_s
                                                  : kind->memory_bytes_per_s)
                * greatest(&kind->by_bytes);
    const struct weft_work_rows none = {.n_rows = 1};
    struct weft_range blocks = {0, s->n_blocks};
    /* of a row without keys: weights, and its own keys and values */
    struct weft_work weights = weft_work_steps(s, blocks, 1, false, 1, &none);
    double step_s = weights.bytes / at->tp / rate + kind->layer_s;
    double kv = 2.0 * (double) weft_dtype_bytes(s->dtype)
              * (double) weft_block_sums(s, blocks).kv;
    double row_s = exchange_s(kind, s, at->tp, 2);
    double layer_s = (all->decoded / slots * step_s
                      + all->cached * kv / at->tp / rate
                      + all->decoded * row_s)
                   / at->dp;
    int32_t least, most;
    stage_sizes(s, at->pp, &least, &most);
    return (struct weft_least){
        .seconds = fmax(most * layer_s, all->longest * s->n_layers * step_s),
        .busy_s = layer_s * s->n_layers / at->pp};
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
