/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode steps of a tp group whose members are GPUs that may use one another's
 * memory. Each computes its blocks of a layer; where all need a sum over blocks
 * they meet on their streams (kern/meet_cuda.cu), and then each adds what all
 * have left in their own memory, in the tree's order. So a step, or a chunk of
 * them, is one task of each member, and may be a CUDA graph of each: meetings
 * are kernels, too.
 *
 * Nobody waits for ever:
 * - The tasks are a gang: all members' bodies run at the same time, and the
 *   gangs that a device has in common with another begin in one order on both
 *   (sched/lanes.c). A GPU's worker puts one body after the other on one
 *   stream, whether or not those before have ended. So two streams have their
 *   meetings in one order, and the first that has not taken place waits for no
 *   other: only for kernels and copies before it, which end.
 * - Bodies meet before they put any of these kernels on their streams, those of
 *   a chunk each time. What may wait for a GPU, or for another thread, is done
 *   before: memory is allocated, products are chosen, a graph is captured. What
 *   follows are launches alone, of kernels that are on the GPU already: all of
 *   ours since the runtime started (weft_k_load_cuda()), the library's since its
 *   products were chosen. And until all have made theirs no other thread waits
 *   for a whole GPU, or has CUDA find memory or take it back, which may keep a
 *   GPU that waits for another from being told to (rt/card.c). So a thread that
 *   waits for a GPU, as the first member of a chunk does, waits for kernels that
 *   are there, or that come whatever it does.
 * - A meeting is one warp that needs no other of its GPU, so it finds room
 *   beside what copiers and other streams do.
 * - A member that cannot launch ends the others' meetings, and a meeting that
 *   nobody ends gives up. Then the group's numbers are wrong, and who draws
 *   tokens says so.
 *
 * The sum of many rows is shared: each member adds its part of the rows, they
 * meet once more, and each copies the others' parts. That moves two rows of each
 * member's part and not one of each member, the same bits.
 *
 * What one member reads of another's stays there until that one is behind the
 * next meeting. The first member's plans and the rows that pass between stages
 * are read before a meeting that its task has, too.
 */
#include "codelets/gen_gpu.h"
#include "codelets/parts.h"
#include "codelets/work.h"

/* The next piece of an area that begins at `at`, of which *used bytes are;
 * NULL: only they are counted. */
static void *carve(char *at, size_t *used, size_t bytes)
{
    void *p = at ? at + *used : NULL;
    *used += (bytes + 63) / 64 * 64;
    return p;
}

static size_t exchange_at(const struct weft_shape *shape,
                          const struct weft_stage_layers *layers,
                          struct weft_range range, int64_t n_rows,
                          int32_t n_slots, char *at,
                          struct weft_gen_exchange *out)
{
    struct weft_range root[WEFT_MAX_ROOTS];
    size_t rows = (size_t) (n_rows * shape->hidden) * sizeof(float);
    size_t n_roots = (size_t) weft_k_roots(shape->n_blocks, range, root);
    size_t used = 0;
    *out = (struct weft_gen_exchange){0};
    out->meetings = carve(at, &used, sizeof *out->meetings);
    if (layers->is_last) {
        out->token = carve(at, &used, (size_t) n_slots * 4);
        out->logp = carve(at, &used, (size_t) n_slots * 4);
    }
    if (layers->is_first)
        out->embedded = carve(at, &used, rows);
    for (int i = 0; i < 2; i++)
        out->roots[i] = carve(at, &used, n_roots * rows);
    out->joined = carve(at, &used, rows);
    if (layers->is_last)
        out->logits = carve(at, &used,
                            (size_t) n_slots * (size_t) shape->vocab
                                * sizeof(float));
    return used;
}

size_t weft_gen_exchange_bytes(const struct weft_shape *shape,
                               const struct weft_stage_layers *layers,
                               struct weft_range range, int64_t n_rows,
                               int32_t n_slots)
{
    struct weft_gen_exchange none;
    return exchange_at(shape, layers, range, n_rows, n_slots, NULL, &none);
}

/* Of a shared sum a member reads 2 (n - 1) / n times the rows and not n - 1
 * times, and all meet twice. That is less where n - 2 times the rows take
 * longer than a meeting: some 5 us, in which 400 GB/s are 160 rows of a model
 * of 4,096 columns, and of others as many within a factor of two. An estimate:
 * no card has measured it. */
static bool is_shared(int32_t n, int64_t n_rows)
{
    return n_rows * (n - 2) >= 160;
}

static void add_step(const struct weft_shape *shape,
                     const struct weft_gang_ranges *members, int32_t k,
                     const struct weft_work_rows *rows,
                     struct weft_work *work)
{
    const struct weft_stage_layers *layers = &members->layers;
    int32_t n = members->n, others = n - 1;
    double row = (double) shape->hidden * sizeof(float);
    double all = rows->n_rows * row, own = all / n, sum = 0, logits = 0;
    bool shared = is_shared(n, rows->n_rows);
    for (int32_t i = 0; i < n; i++) {
        struct weft_range root[WEFT_MAX_ROOTS];
        if (i == k)
            continue;
        sum += weft_k_roots(shape->n_blocks, members->range[i], root)
             * (shared ? own : all);
        logits += (double) weft_block_sums(shape, members->range[i]).vocab
                * rows->n_targets * sizeof(float);
    }
    int32_t sums = 2 * (layers->end - layers->first);
    bool is_chunk = layers->is_first && layers->is_last;
    work->received += sums * (sum + (shared ? others * own : 0));
    work->n_received += sums * (shared ? 2 : 1);
    if (layers->is_first)
        work->received += others * own;
    if (layers->is_last && k == 0)
        work->received += logits;
    if (is_chunk && k > 0) /* tokens and log-probs */
        work->received += 8.0 * rows->n_targets;
    work->n_received += layers->is_first + layers->is_last + is_chunk;
}

void weft_gen_exchange_work(const struct weft_shape *shape,
                            const struct weft_gang_ranges *members, int32_t k,
                            int32_t n_steps,
                            const struct weft_work_rows step[],
                            struct weft_work *work)
{
    for (int32_t i = 0; i < n_steps; i++)
        if (step[i].n_rows > 0)
            add_step(shape, members, k, &step[i], work);
}

#ifdef WEFT_HAVE_CUDA

/* Finds the members' memory for one another. */
static void open_group(struct weft_gen_gpu *g,
                       const struct weft_gang_ranges *members,
                       struct weft_exec *x)
{
    struct weft_gen_group *group = &g->group;
    *group = (struct weft_gen_group){
        .n = members->n, .k = weft_exec_member(x), .range = members->range};
    for (int32_t i = 0; i < members->n && members->n > 1; i++) {
        const struct weft_gen_told *told = weft_exec_shared(x)[i];
        exchange_at(g->shape, &members->layers, members->range[i],
                    g->n_slots + g->gen->prefill_tokens, g->n_slots,
                    told->exchange, &group->of[i]);
        group->meetings.of[i] = group->of[i].meetings;
    }
    group->meetings.n = members->n;
    group->meetings.k = group->k;
}

struct weft_gen_told *weft_gen_gpu_tell(
    struct weft_gen_gpu *g, const struct weft_gang_ranges *members,
    const struct weft_gen_told *mine, struct weft_exec *x, int *rc)
{
    struct weft_gen_told *told = weft_exec_scratch(x, sizeof *told);
    if (!told) {
        *rc = WEFT_ENOMEM;
        return NULL;
    }
    *told = *mine;
    weft_exec_shared(x)[weft_exec_member(x)] = told;
    if (!weft_exec_meet(x))
        return NULL;
    told = weft_exec_shared(x)[0];
    g->step = told->step;
    g->step_bytes = told->step_bytes;
    g->passed = told->passed;
    g->n_slots = told->n_slots;
    open_group(g, members, x);
    return told;
}

static const struct weft_gen_exchange *own(const struct weft_gen_gpu *g)
{
    return &g->group.of[g->group.k];
}

void weft_gen_group_meet(const struct weft_gen_gpu *g)
{
    weft_k_meet_cuda(g->stream, &g->group.meetings);
}

void weft_gen_group_embed(const struct weft_gen_gpu *g,
                          const struct weft_k_batch *batch)
{
    struct weft_k_part part[WEFT_MAX_BLOCKS];
    const void *table[WEFT_MAX_BLOCKS] = {NULL};
    for (int32_t t = 0; t < g->range.n; t++)
        table[g->range.first + t] = g->weights.embed[t];
    weft_k_embed_cuda(g->stream, g->shape, table, batch->n_rows, batch->token,
                      own(g)->embedded);
    for (int32_t i = 0; i < g->group.n; i++)
        part[i] = (struct weft_k_part){g->group.range[i],
                                       g->group.of[i].embedded};
    weft_gen_group_meet(g);
    weft_k_embed_select_cuda(g->stream, g->shape, batch->n_rows, batch->token,
                             g->group.n, part, g->x);
}

/* The rows that each member adds of a shared sum; the last may have fewer. */
static int64_t rows_each(int32_t n, int64_t n_rows)
{
    return (n_rows + n - 1) / n;
}

/* Each adds its rows, and copies the others'. */
static void share(const struct weft_gen_gpu *g,
                  const struct weft_k_part part[], int64_t n_rows,
                  const float *bias)
{
    struct weft_k_sources from = {{NULL}};
    int64_t each = rows_each(g->group.n, n_rows), first = g->group.k * each;
    weft_k_join_some_rows_cuda(
        g->stream, g->shape->n_blocks, g->group.n, part,
        weft_all_blocks(g->shape), n_rows, first,
        weft_max64(0, weft_min64(each, n_rows - first)), g->shape->hidden,
        bias, g->x, own(g)->joined);
    for (int32_t i = 0; i < g->group.n; i++)
        from.x[i] = g->group.of[i].joined;
    weft_gen_group_meet(g);
    weft_k_gather_rows_cuda(g->stream, n_rows, g->shape->hidden, each, &from,
                            g->x);
}

/* x = (sum over all blocks + bias) + x */
static void join(const struct weft_gen_gpu *g, int sum, int64_t n_rows,
                 const float *bias)
{
    struct weft_k_part part[WEFT_MAX_BLOCKS];
    for (int32_t i = 0; i < g->group.n; i++)
        part[i] = (struct weft_k_part){g->group.range[i],
                                       g->group.of[i].roots[sum]};
    weft_gen_group_meet(g);
    if (is_shared(g->group.n, n_rows))
        share(g, part, n_rows, bias);
    else
        weft_k_join_rows_cuda(g->stream, g->shape->n_blocks, g->group.n, part,
                              weft_all_blocks(g->shape), n_rows,
                              g->shape->hidden, bias, g->x, g->x);
}

void weft_gen_group_layer(const struct weft_gen_gpu *g,
                          const struct weft_k_layer *weights, int32_t layer,
                          const struct weft_k_batch *batch)
{
    weft_k_attention_forward_cuda(g->stream, g->shape, g->range, weights,
                                  layer, batch, &g->kv, g->x, NULL,
                                  own(g)->roots[0], g->scratch);
    join(g, 0, batch->n_rows, weft_k_o_bias(g->shape, weights->norms));
    weft_k_mlp_forward_cuda(g->stream, g->shape, g->range, weights, batch,
                            g->x, NULL, own(g)->roots[1], g->scratch);
    join(g, 1, batch->n_rows, NULL);
}

void weft_gen_group_logits(const struct weft_gen_gpu *g, int32_t n,
                           const int32_t *row)
{
    int64_t v = g->shape->vocab;
    weft_k_head_logits_cuda(g->stream, g->shape, g->range, &g->weights.head,
                            n, row, g->x, own(g)->logits, g->scratch);
    weft_gen_group_meet(g);
    for (int32_t i = 1; i < g->group.n && g->group.k == 0; i++) {
        int32_t first, columns;
        weft_k_vocab_range(g->shape, g->group.range[i], &first, &columns);
        weft_k_copy_columns_cuda(g->stream, n, columns,
                                 g->group.of[i].logits + first, v,
                                 own(g)->logits + first, v);
    }
}

static bool holds_gpus(const struct weft_gen_gpu *g)
{
    return g->group.n > 1 && g->group.k == 0;
}

bool weft_gen_group_begin(const struct weft_gen_gpu *g, struct weft_exec *x)
{
    if (!weft_exec_meet(x)) /* before it they may capture, and hold them */
        return false;
    if (holds_gpus(g))
        weft_exec_hold_gpus();
    bool all = weft_exec_meet(x);
    if (holds_gpus(g) && !all)
        weft_exec_let_gpus();
    return all;
}

bool weft_gen_group_end(const struct weft_gen_gpu *g, struct weft_exec *x)
{
    bool all = weft_exec_meet(x);
    if (holds_gpus(g))
        weft_exec_let_gpus();
    return all;
}

void weft_gen_group_close(const struct weft_gen_gpu *g)
{
    if (g->group.n > 1 && !weft_k_has_launched_cuda())
        weft_k_end_meetings_cuda(g->stream, &g->group.meetings);
}

#endif
