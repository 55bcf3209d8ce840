/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of KV heads that several blocks read: the blocks' dk and dv
 * are added by the T tree before the backward pass continues.
 *
 * Where all blocks that read a head belong to one member, that member adds
 * them. Otherwise every such member sends the sums of its roots, and all of
 * them do the remaining additions of the tree.
 */
#include "kern/layer.h"

#include <string.h>

/* The blocks that hold a KV head. */
static struct weft_range holders_of(const struct weft_shape *s, int32_t kv)
{
    struct weft_range r = {weft_shape_kv_owner(s, kv), 1};
    while (weft_range_end(r) < s->n_blocks
           && s->block[weft_range_end(r)].kv0 == kv)
        r.n++;
    return r;
}

/* The intersection of two ranges; n <= 0 if it is empty. */
static struct weft_range common(struct weft_range a, struct weft_range b)
{
    int32_t first = a.first > b.first ? a.first : b.first;
    int32_t end_a = weft_range_end(a), end_b = weft_range_end(b);
    return (struct weft_range){first,
                               (end_a < end_b ? end_a : end_b) - first};
}

static struct weft_range heads_of(const struct weft_shape *s,
                                  struct weft_range range)
{
    const struct weft_block *last = &s->block[weft_range_end(range) - 1];
    int32_t first = s->block[range.first].kv0;
    return (struct weft_range){first, last->kv0 + last->n_kv - first};
}

/* A range sends dk and dv (2, M, D) for every pair of a shared KV head and a
 * root of the range with a block that holds the head. */
struct slot {
    int32_t kv;
    struct weft_range root;
};

/* Lists what a range sends; returns how many. Only the first and the last KV
 * head of a range can be held by blocks outside it. */
static int32_t slots_of(const struct weft_shape *s, struct weft_range range,
                        struct slot out[2 * WEFT_MAX_ROOTS])
{
    struct weft_range root[WEFT_MAX_ROOTS], heads = heads_of(s, range);
    int32_t n_roots = weft_k_roots(s->n_blocks, range, root), n = 0;
    for (int32_t kv = heads.first; kv < weft_range_end(heads); kv++) {
        struct weft_range holders = holders_of(s, kv);
        for (int32_t j = 0; j < n_roots; j++)
            if (common(holders, range).n < holders.n
                && common(holders, root[j]).n > 0)
                out[n++] = (struct slot){kv, root[j]};
    }
    return n;
}

size_t weft_k_shared_kv_bytes(const struct weft_shape *s,
                              struct weft_range range, int64_t n_rows)
{
    struct slot slot[2 * WEFT_MAX_ROOTS];
    return (size_t) slots_of(s, range, slot) * 2 * (size_t) n_rows
         * (size_t) s->head_dim * sizeof(float);
}

static float *head_rows(const struct weft_shape *s, int32_t t, int32_t kv,
                        bool is_v, float *const dqkv[])
{
    return dqkv[t] + weft_block_q(s, t)
         + (kv - s->block[t].kv0) * (int64_t) s->head_dim
         + (is_v ? weft_block_kv(s, t) : 0);
}

static struct weft_heads_sum of_blocks(const struct weft_shape *s,
                                       struct weft_range blocks, int32_t kv,
                                       bool is_v, float *const dqkv[])
{
    struct weft_heads_sum p = {.n_zero = 0};
    for (int32_t t = blocks.first; t < weft_range_end(blocks); t++) {
        p.x[t] = head_rows(s, t, kv, is_v, dqkv);
        p.ld[t] = weft_block_qkv(s, t);
    }
    return p;
}

static struct weft_heads_sum of_members(const struct weft_shape *s, int64_t m,
                                        int32_t kv, bool is_v,
                                        int32_t n_members,
                                        const struct weft_k_shared *member)
{
    struct weft_heads_sum p = {.n_zero = 0};
    for (int32_t i = 0; i < n_members; i++) {
        struct slot slot[2 * WEFT_MAX_ROOTS];
        int32_t n = slots_of(s, member[i].range, slot);
        for (int32_t j = 0; j < n; j++) {
            if (slot[j].kv != kv)
                continue;
            p.x[slot[j].root.first] = member[i].shared
                                    + (2 * j + is_v) * m * s->head_dim;
            p.ld[slot[j].root.first] = s->head_dim;
        }
    }
    return p;
}

void weft_layer_sum_heads(const struct weft_heads_sum *sum, void *context)
{
    const struct weft_heads_sum_cpu *cpu = context;
    size_t bytes = (size_t) cpu->d * sizeof(float);
    for (int64_t r = 0; r < cpu->m; r++) {
        float *leaf[WEFT_MAX_BLOCKS] = {NULL};
        for (int32_t t = sum->tree.first; t < weft_range_end(sum->tree);
             t++) {
            if (!sum->x[t])
                continue;
            leaf[t] = cpu->work + t * cpu->d;
            memcpy(leaf[t], sum->x[t] + r * sum->ld[t], bytes);
        }
        memcpy(sum->to + r * sum->ld_to,
               weft_layer_tree(leaf + sum->tree.first, sum->tree.n,
                               (size_t) cpu->d),
               bytes);
        for (int32_t i = 0; i < sum->n_zero; i++)
            memset(sum->zero[i] + r * sum->ld_zero[i], 0, bytes);
    }
}

void weft_layer_share_heads(const struct weft_shape *s,
                            struct weft_range range, int64_t m,
                            float *const dqkv[], float *shared,
                            weft_heads_sum_fn sum, void *context)
{
    struct slot slot[2 * WEFT_MAX_ROOTS];
    int32_t n = slots_of(s, range, slot);
    for (int32_t i = 0; i < 2 * n; i++) {
        struct weft_range root = slot[i / 2].root;
        int32_t kv = slot[i / 2].kv;
        struct weft_heads_sum p = of_blocks(
            s, common(holders_of(s, kv), root), kv, i % 2, dqkv);
        p.tree = root;
        p.ld_to = s->head_dim;
        p.to = shared + i * m * p.ld_to;
        sum(&p, context);
    }
}

/* Where the sum of dk or dv of one head goes: to the first of `mine`. */
static void set_targets(const struct weft_shape *s, struct weft_range mine,
                        int32_t kv, bool is_v, float *const dqkv[],
                        struct weft_heads_sum *p)
{
    p->tree = weft_all_blocks(s);
    p->to = head_rows(s, mine.first, kv, is_v, dqkv);
    p->ld_to = weft_block_qkv(s, mine.first);
    for (int32_t t = mine.first + 1; t < weft_range_end(mine); t++) {
        p->zero[p->n_zero] = head_rows(s, t, kv, is_v, dqkv);
        p->ld_zero[p->n_zero++] = weft_block_qkv(s, t);
    }
}

void weft_layer_join_heads(const struct weft_shape *s,
                           struct weft_range range, int64_t m,
                           int32_t n_members,
                           const struct weft_k_shared *member,
                           float *const dqkv[], weft_heads_sum_fn sum,
                           void *context)
{
    struct weft_range heads = heads_of(s, range);
    for (int32_t kv = heads.first; kv < weft_range_end(heads); kv++) {
        struct weft_range holders = holders_of(s, kv);
        struct weft_range mine = common(holders, range);
        for (int i = 0; i < 2 && holders.n > 1; i++) {
            struct weft_heads_sum p = mine.n == holders.n
                                        ? of_blocks(s, mine, kv, i, dqkv)
                                        : of_members(s, m, kv, i, n_members,
                                                     member);
            set_targets(s, mine, kv, i, dqkv, &p);
            sum(&p, context);
        }
    }
}
