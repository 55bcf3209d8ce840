/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Upper bounds of the memory of calls' temporary tiles, which pipeline.c,
 * stage*.c, update.c, infer.c and generate.c create. They hold because tasks
 * run in a fixed order on each device, and tasks that allocate tiles are part
 * of this order.
 */
#include "graphs/shard.h"
#include "graphs/stage.h"

/* ---- Exchange ---------------------------------------------------------- */

/* Bytes of a member's part. */
typedef size_t (*part_fn)(const struct weft_shape *shape,
                          struct weft_range range, int64_t n);

static size_t rows_part(const struct weft_shape *s, struct weft_range range,
                        int64_t n)
{
    return weft_part_bytes(s, range, n * s->hidden);
}

static size_t whole_part(const struct weft_shape *s, struct weft_range range,
                         int64_t n)
{
    (void) range;
    return (size_t) (n * s->hidden) * sizeof(float);
}

static size_t head_part(const struct weft_shape *s, struct weft_range range,
                        int64_t n)
{
    (void) s;
    return weft_part_head_bytes(range, (int32_t) n);
}

static size_t logits_part(const struct weft_shape *s, struct weft_range range,
                          int64_t n)
{
    (void) range;
    return (size_t) (n * s->vocab) * sizeof(float);
}

/* Bytes of an exchange at place number q: its members' parts, their join, and
 * the parts of other places. */
static size_t exchange_bytes(const struct weft_shape *shape,
                             const struct weft_g_stage *stage, int32_t q,
                             part_fn part, int64_t n, bool joins)
{
    size_t sum = 0;
    for (int32_t p = 0; p < stage->n_places; p++) {
        int32_t end = p + 1 < stage->n_places ? stage->lead[p + 1] : stage->n;
        struct weft_range all = {stage->member[stage->lead[p]].blocks.first,
                                 0};
        size_t parts = 0;
        for (int32_t k = stage->lead[p]; k < end; k++) {
            all.n += stage->member[k].blocks.n;
            parts += part(shape, stage->member[k].blocks, n);
        }
        bool joined = joins && stage->n_places > 1
                   && end - stage->lead[p] > 1;
        if (p == q)
            sum += parts + (joined ? part(shape, all, n) : 0);
        else
            sum += joined ? part(shape, all, n) : parts;
    }
    return sum;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t forward_bytes(const struct weft_shape *shape,
                            const struct weft_g_stage *stage, int32_t q,
                            int64_t n_rows)
{
    size_t layer = exchange_bytes(shape, stage, q, rows_part, n_rows, true);
    if (stage->n_places == 1 || !stage->is_first)
        return layer;
    return larger(layer,
                  exchange_bytes(shape, stage, q, whole_part, n_rows, false));
}

static size_t head_bytes(const struct weft_shape *shape,
                         const struct weft_g_stage *stage, int32_t q,
                         int64_t n_targets)
{
    if (!stage->is_last || shape->scalar_head)
        return 0;
    return exchange_bytes(shape, stage, q, head_part, n_targets, false)
         + exchange_bytes(shape, stage, q, rows_part, n_targets, true)
         + weft_part_dloss_bytes((int32_t) n_targets);
}

static size_t backward_bytes(const struct weft_shape *shape,
                             const struct weft_g_stage *stage, int32_t q,
                             int64_t n_rows)
{
    size_t sum = exchange_bytes(shape, stage, q, rows_part, n_rows, true)
               + exchange_bytes(shape, stage, q, weft_part_shared_bytes,
                                n_rows, false)
               + exchange_bytes(shape, stage, q, weft_part_head_norms_bytes,
                                n_rows, true);
    for (int32_t k = 0; k < stage->n; k++)
        if (stage->member[k].place == stage->place[q])
            sum += weft_part_dqkv_bytes(shape, stage->member[k].blocks,
                                        n_rows);
    return sum;
}

/* ---- Training ---------------------------------------------------------- */

static bool has_place(const struct weft_g_stage *stage, int32_t place)
{
    for (int32_t p = 0; p < stage->n_places; p++)
        if (stage->place[p] == place)
            return true;
    return false;
}

/* Stage number s of replica i; a stage without places if there is none. */
static struct weft_g_stage stage_or_none(const struct weft_g_layout *home,
                                         int32_t i, int32_t s)
{
    struct weft_g_stage stage = {.n_places = 0};
    if (s >= 0 && s < home->plan.pp)
        weft_g_stage_get(home, i, s, &stage);
    return stage;
}

static size_t batch_bytes(const struct weft_g_rows *most, bool columns)
{
    struct weft_batch layout;
    weft_batch_layout((int32_t) most->n_rows, most->n_runs, most->n_targets,
                      columns, &layout);
    return layout.bytes;
}

/* The most micro-batches that are between forward and backward on a stage. */
static int64_t in_flight(const struct weft_g_layout *home, int32_t s,
                         const struct weft_g_train_size *size)
{
    return size->fused ? size->n_flights
                       : weft_min64(home->plan.pp - s, size->n_flights);
}

/* How many values (n_rows, H) a micro-batch in flight keeps at place number q
 * of stage s of replica i. */
static int64_t kept_rows(const struct weft_g_layout *home, int32_t i,
                         int32_t s, int32_t q)
{
    struct weft_g_stage stage = stage_or_none(home, i, s);
    struct weft_g_stage before = stage_or_none(home, i, s - 1);
    int32_t layers = stage.end - stage.first;
    bool gets_x = s > 0 && !has_place(&before, stage.place[q]);
    bool mid = stage.n > 1 && !home->plan.recompute;
    return layers + (s == 0 || gets_x) + (mid ? layers : 0);
}

/* Bytes that member k keeps of a layer for the backward pass. */
static size_t saved_bytes(const struct weft_shape *shape,
                          const struct weft_g_stage *stage, int32_t k,
                          int64_t n_rows)
{
    return stage->n == 1
             ? weft_layer_saved_bytes(shape, n_rows)
             : weft_part_saved_bytes(shape, stage->member[k].blocks, n_rows);
}

size_t weft_g_held_bytes(const struct weft_shape *shape,
                         const struct weft_g_layout *home, int32_t s,
                         int64_t n_rows)
{
    struct weft_g_stage stage = stage_or_none(home, 0, s);
    size_t x = (size_t) (n_rows * shape->hidden) * sizeof(float), sum = 0;
    for (int32_t q = 0; q < stage.n_places; q++)
        sum += (size_t) kept_rows(home, 0, s, q) * x;
    for (int32_t k = 0; k < stage.n && !home->plan.recompute; k++)
        sum += (size_t) (stage.end - stage.first)
             * saved_bytes(shape, &stage, k, n_rows);
    return sum;
}

/* Adds inputs, outputs and gradients of layers at place number q, and the
 * tiles that exchanges and messages between stages need. */
static void count_rows(const struct weft_shape *shape,
                       const struct weft_g_layout *home, int32_t i, int32_t s,
                       int32_t q, const struct weft_g_train_size *size,
                       size_t ahead[WEFT_N_MEM_CLASSES],
                       size_t bytes[WEFT_N_MEM_CLASSES])
{
    struct weft_g_stage stage = stage_or_none(home, i, s);
    struct weft_g_stage before = stage_or_none(home, i, s - 1);
    struct weft_g_stage after = stage_or_none(home, i, s + 1);
    bool tp = stage.n > 1;
    int32_t place = stage.place[q];
    int64_t flights = in_flight(home, s, size);
    bool gets_x = s > 0 && !has_place(&before, place);
    bool gets_dx = !stage.is_last && !has_place(&after, place);
    int64_t n = flights * kept_rows(home, i, s, q);
    n += 1 + gets_x; /* a gradient; the next input, which is being received */
    n += tp && home->plan.recompute;
    size_t x = (size_t) (size->most.n_rows * shape->hidden) * sizeof(float);
    bytes[WEFT_MEM_ACTIVATIONS] += (size_t) n * x;
    if (tp)
        bytes[WEFT_MEM_ACTIVATIONS] += larger(
            head_bytes(shape, &stage, q, size->most.n_targets),
            larger(forward_bytes(shape, &stage, q, size->most.n_rows),
                   backward_bytes(shape, &stage, q, size->most.n_rows)));
    ahead[WEFT_MEM_ACTIVATIONS] += (size_t) (gets_x ? 2 : gets_dx) * x;
    bool packs = s == 0 && q == 0;
    (packs ? bytes
           : ahead)[WEFT_MEM_SAMPLES] += (size_t) (packs ? flights
                                                         : 2 + size->messages)
                                       * batch_bytes(&size->most, true);
}

static void count_stage(const struct weft_shape *shape,
                        const struct weft_g_layout *home, int32_t i,
                        int32_t s, const struct weft_g_train_size *size,
                        size_t (*ahead)[WEFT_N_MEM_CLASSES],
                        size_t (*bytes)[WEFT_N_MEM_CLASSES])
{
    struct weft_g_stage stage = stage_or_none(home, i, s);
    int64_t flights = in_flight(home, s, size);
    int64_t kept = home->plan.recompute ? stage.n > 1
                                        : flights * (stage.end - stage.first);
    for (int32_t q = 0; q < stage.n_places; q++)
        count_rows(shape, home, i, s, q, size, ahead[stage.place[q]],
                   bytes[stage.place[q]]);
    for (int32_t k = 0; k < stage.n; k++)
        bytes[stage.member[k].place][WEFT_MEM_ACTIVATIONS] +=
            (size_t) kept * saved_bytes(shape, &stage, k, size->most.n_rows);
}

/* ---- The tree over gradient groups -------------------------------------- */

static int32_t replica_of(const struct weft_g_layout *home, int32_t n_groups,
                          int32_t group)
{
    for (int32_t d = 0;; d++) {
        struct weft_range mine = weft_plan_range(n_groups, home->plan.dp, d);
        if (group < mine.first + mine.n)
            return d;
    }
}

/* The most nodes of the subtree over groups lo .. lo + size - 1 that wait at a
 * time for the rest of it. Leaves of one replica arrive in order, those of
 * different replicas in any order. */
static int32_t waiting(const struct weft_g_layout *home, int32_t n_groups,
                       int32_t lo, int32_t size)
{
    if (size == 1)
        return 0;
    int32_t half = size / 2;
    int32_t l = waiting(home, n_groups, lo, half);
    int32_t r = waiting(home, n_groups, lo + half, half);
    if (replica_of(home, n_groups, lo)
        == replica_of(home, n_groups, lo + size - 1))
        return l > 1 + r ? l : 1 + r;
    int32_t a = (l > 1 ? l : 1) + r, b = l + (r > 1 ? r : 1);
    return a > b ? a : b;
}

/* The most copies of a shard at its owner at a time, when replicas give their
 * roots in order. pending[k]: the root of 2^k groups that waits; 0: none, 1:
 * the owner's own tile, 2: a copy. */
static int32_t root_copies(const struct weft_g_model *m,
                           const struct weft_g_shard *shard, int32_t n_groups)
{
    const struct weft_g_bundle *b = &shard->bundle;
    int32_t owner = shard->place, pending[32] = {0};
    int32_t stage = weft_g_bundle_stage(m, b), now = 0, most = 0, size;
    for (int32_t d = 0; d < m->home.plan.dp; d++) {
        struct weft_range mine = weft_plan_range(n_groups, m->home.plan.dp,
                                                 d);
        int32_t place =
            weft_g_layout_member(&m->home, d, stage, b->tp)->place;
        for (int32_t lo = mine.first; lo < mine.first + mine.n; lo += size) {
            int32_t k = 0, node = place != owner ? 2 : 1;
            for (size = 1;
                 lo % (2 * size) == 0 && lo + 2 * size <= mine.first + mine.n;
                 size *= 2)
                k++;
            now += node == 2;
            most = now > most ? now : most;
            for (; pending[k]; k++) {
                now -= node == 2;
                node = pending[k];
                pending[k] = 0;
            }
            pending[k] = node;
        }
    }
    return most;
}

static void count_shard(const struct weft_g_model *m,
                        const struct weft_g_shard *shard,
                        const struct weft_g_train_size *size,
                        size_t (*bytes)[WEFT_N_MEM_CLASSES])
{
    size_t *at = bytes[shard->place];
    size_t squares = (size_t) size->n_steps
                   * weft_squares_bytes(&m->shape, shard->bundle.group,
                                        &shard->chunks);
    bool at_once = m->home.plan.zero >= 2 && size->n_groups > m->home.plan.dp;
    int32_t copies = at_once
                       ? waiting(&m->home, size->n_groups, 0, size->n_groups)
                             + 1
                       : root_copies(m, shard, size->n_groups);
    copies += size->messages && copies > 0;
    at[WEFT_MEM_GRADIENTS] += (size_t) copies * weft_g_shard_bytes(m, shard);
    if (m->shape.tied && shard->bundle.group == WEFT_GROUP_EMBED)
        return; /* its sum is added to the head's, which is counted */
    at[WEFT_MEM_SAMPLES] += squares;
    bytes[m->home.member[0].place][WEFT_MEM_SAMPLES] += squares;
}

static void count_update(const struct weft_g_model *m,
                         const struct weft_g_train_size *size,
                         size_t (*bytes)[WEFT_N_MEM_CLASSES])
{
    struct weft_g_shard shard[WEFT_G_MAX_DP];
    for (int32_t i = 0; i < weft_g_n_bundles(m); i++) {
        struct weft_g_bundle b = weft_g_bundle_get(m, i);
        int32_t n = weft_g_shards(m, &b, shard);
        for (int32_t k = 0; k < n; k++)
            count_shard(m, &shard[k], size, bytes);
    }
}

void weft_g_train_bytes(const struct weft_shape *shape,
                        const struct weft_g_layout *home,
                        const struct weft_g_train_size *size,
                        size_t (*ahead)[WEFT_N_MEM_CLASSES],
                        size_t (*bytes)[WEFT_N_MEM_CLASSES])
{
    const struct weft_g_model model = {.shape = *shape, .home = *home};
    for (int32_t i = 0; i < home->plan.dp; i++) {
        const struct weft_g_member *last = weft_g_layout_member(
            home, i, home->plan.pp - 1, 0);
        for (int32_t s = 0; s < home->plan.pp; s++)
            count_stage(shape, home, i, s, size, ahead, bytes);
        bytes[last->place][WEFT_MEM_SAMPLES] += size->stats_bytes;
    }
    count_update(&model, size, bytes);
}

/* ---- Inference and generation ------------------------------------------- */

/* Adds the tiles of n_rows rows in the stages of one replica. A layer writes
 * its output over its input. */
static void count_through(const struct weft_shape *shape,
                          const struct weft_g_layout *layout, int32_t i,
                          int64_t n_rows, int64_t n_targets, part_fn head,
                          size_t (*bytes)[WEFT_N_MEM_CLASSES])
{
    size_t x = (size_t) (n_rows * shape->hidden) * sizeof(float);
    for (int32_t s = 0; s < layout->plan.pp; s++) {
        struct weft_g_stage stage = stage_or_none(layout, i, s);
        struct weft_g_stage before = stage_or_none(layout, i, s - 1);
        for (int32_t q = 0; q < stage.n_places; q++) {
            size_t *at = &bytes[stage.place[q]][WEFT_MEM_ACTIVATIONS];
            *at += has_place(&before, stage.place[q]) ? 0 : x;
            if (stage.n > 1)
                *at += x + forward_bytes(shape, &stage, q, n_rows);
            if (stage.is_last && !shape->scalar_head
                && (stage.n > 1 || head == logits_part))
                *at += exchange_bytes(shape, &stage, q, head, n_targets,
                                      false);
        }
    }
}

void weft_g_infer_bytes(const struct weft_shape *shape,
                        const struct weft_g_layout *layout,
                        const struct weft_g_rows *all,
                        int32_t n_micro_batches,
                        size_t (*bytes)[WEFT_N_MEM_CLASSES])
{
    size_t batch = batch_bytes(all, false)
                 + (size_t) n_micro_batches
                       * (sizeof(struct weft_batch) + 64);
    for (int32_t i = 0; i < layout->plan.dp; i++) {
        count_through(shape, layout, i, all->n_rows, all->n_targets,
                      head_part, bytes);
        for (int32_t s = 0; s < layout->plan.pp; s++) {
            struct weft_g_stage stage = stage_or_none(layout, i, s);
            for (int32_t q = 0; q < stage.n_places; q++)
                bytes[stage.place[q]][WEFT_MEM_SAMPLES] += batch;
        }
    }
}

void weft_g_decode_bytes(const struct weft_shape *shape,
                         const struct weft_g_layout *layout,
                         const struct weft_g_decode_size *size,
                         size_t (*ahead)[WEFT_N_MEM_CLASSES],
                         size_t (*bytes)[WEFT_N_MEM_CLASSES])
{
    struct weft_batch step;
    int32_t pages = (int32_t) weft_ceil_div(size->max_total,
                                            WEFT_PAGE_TOKENS);
    if (layout->plan.tp * layout->plan.pp == 1)
        return;
    weft_step_layout(size->n_slots + size->prefill_tokens, size->n_slots,
                     pages, &step);
    for (int32_t k = 0; k < size->n_instances; k++) {
        int32_t i = k % layout->plan.dp;
        count_through(shape, layout, i, size->n_slots + size->prefill_tokens,
                      size->n_slots, logits_part, bytes);
        for (int32_t s = 0; s < layout->plan.pp; s++) {
            struct weft_g_stage stage = stage_or_none(layout, i, s);
            for (int32_t q = 0; q < stage.n_places; q++)
                ahead[stage.place[q]][WEFT_MEM_SAMPLES] +=
                    (size_t) (size->n_chunks * size->n_steps) * step.bytes;
        }
    }
}
