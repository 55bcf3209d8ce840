/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training step of a small model at the place of a GPU: embedding, layers
 * whole and by two members, head, loss, all backwards, clipped AdamW, tied
 * tables. On emulated cards, whose products have the CPU's order, all of it has
 * the bits of a CPU place. On a real card each group of numbers is within 1e-5,
 * in bf16 3e-2, of its largest one, but for masters, which a step of AdamW may
 * move either way where a gradient is nothing but rounding; and two cards have
 * the same bits. The host waits for sums of squares alone. Few blocks may
 * read pinned memory: those that copy a batch for the embedding, the loss and
 * the embedding backwards, one for each sample's loss, and one that leaves
 * each tile's sum of squares there.
 */
#include "gpus_fixture.h"

#include <math.h>

#include "../cuda/cpu_bits.h"
#include "codelets/parts.h"

enum { N_SAMPLES = 3, N_GROUPS = 3 };

static const int32_t totals[N_SAMPLES] = {37, 9, 70};
static const int32_t prompts[N_SAMPLES] = {5, 4, 30};

/* A parameter group's tiles at a place. */
struct tiles {
    enum weft_param_group group;
    struct weft_layer_tiles fwd, bwd, grad, opt;
    struct weft_chunks chunks;
};

struct model {
    int place;
    const struct weft_shape *s;
    struct tiles of[N_GROUPS]; /* by enum weft_param_group */
    struct weft_layer_tiles layer[3];
    struct weft_params fwd, bwd, grad;
};

enum { MOST_GROUPS = 64 };

struct result {
    size_t n, at;
    unsigned char *bytes; /* of all that is compared */
    int n_groups;
    struct {
        size_t from, n; /* bytes, f32 numbers */
    } group[MOST_GROUPS];
};

static struct weft_tile **slot_of(struct weft_layer_tiles *t, int32_t i)
{
    return i == WEFT_MAX_BLOCKS ? &t->norms : &t->block[i];
}

static enum weft_tile_kind kind_of(enum weft_param_group group, bool norms)
{
    return group == WEFT_GROUP_EMBED ? WEFT_TILE_EMBED
         : group == WEFT_GROUP_LAYER
             ? norms ? WEFT_TILE_NORMS : WEFT_TILE_LAYER
         : norms ? WEFT_TILE_FINAL
                 : WEFT_TILE_HEAD;
}

static bool has(const struct model *m, enum weft_param_group group, int32_t i)
{
    if (i == WEFT_MAX_BLOCKS)
        return group != WEFT_GROUP_EMBED;
    return i < m->s->n_blocks
        && !(group == WEFT_GROUP_HEAD && m->s->scalar_head);
}

/* Masters of random weights, zero moments and gradients. */
static void make_group(struct model *m, enum weft_param_group group)
{
    struct tiles *t = &m->of[group];
    float *flat[WEFT_MAX_BLOCKS + 1] = {NULL};
    struct weft_layout l[WEFT_MAX_BLOCKS + 1];
    for (int32_t i = 0; i <= WEFT_MAX_BLOCKS; i++) {
        bool norms = i == WEFT_MAX_BLOCKS;
        if (!has(m, group, i))
            continue;
        weft_layout_get(m->s, kind_of(group, norms), norms ? 0 : i, &l[i]);
        flat[i] = fixture_flat(&l[i], kind_of(group, norms), 0,
                               norms ? 0 : i);
    }
    if (group == WEFT_GROUP_LAYER)
        weft_k_share_range(m->s, weft_all_blocks(m->s), flat);
    for (int32_t i = 0; i <= WEFT_MAX_BLOCKS; i++) {
        enum weft_tile_kind kind = kind_of(group, i == WEFT_MAX_BLOCKS);
        if (!flat[i])
            continue;
        size_t bytes = weft_opt_bytes(m->s, kind, l[i].n_flat);
        size_t fwd_bytes = l[i].fwd_bytes;
        if (m->s->tied && group == WEFT_GROUP_EMBED) {
            struct weft_layout head; /* a table has the room of its head */
            weft_layout_get(m->s, WEFT_TILE_HEAD, i, &head);
            fwd_bytes = head.fwd_bytes;
        }
        float *opt = weft_alloc_aligned(bytes, 1);
        memset(opt, 0, bytes);
        t->chunks.of[i] = (struct weft_range){0, weft_layout_n_chunks(&l[i])};
        *slot_of(&t->fwd, i) = tile_at(m->place, WEFT_MEM_WEIGHTS, fwd_bytes);
        *slot_of(&t->grad, i) = tile_at(m->place, WEFT_MEM_GRADIENTS,
                                        l[i].n_flat * sizeof(float));
        *slot_of(&t->opt, i) = tile_at(m->place, WEFT_MEM_OPTIMIZER, bytes);
        if (l[i].bwd_bytes)
            *slot_of(&t->bwd, i) = tile_at(m->place, WEFT_MEM_WEIGHTS,
                                           l[i].bwd_bytes);
        if (weft_master_apart(m->s, kind))
            memcpy(opt, flat[i], l[i].n_flat * sizeof(float));
        else
            put(*slot_of(&t->fwd, i), flat[i]);
        put(*slot_of(&t->opt, i), opt);
        weft_free(opt);
        weft_free(flat[i]);
    }
}

static void update(struct model *m, enum weft_param_group group,
                   const struct weft_k_adamw *o, struct weft_tile *norm)
{
    struct weft_where where = at(m->place);
    struct tiles *t = &m->of[group];
    if (group == WEFT_GROUP_HEAD && m->s->tied)
        weft_insert_tied_add(seq, &where, m->s,
                             &m->of[WEFT_GROUP_EMBED].chunks, &t->grad,
                             &m->of[WEFT_GROUP_EMBED].grad);
    weft_insert_adamw(seq, &where, m->s, o, group, &t->chunks, &t->grad, norm,
                      &t->opt, &t->fwd);
    if (group != WEFT_GROUP_EMBED
        && !(group == WEFT_GROUP_HEAD && m->s->scalar_head))
        weft_insert_transpose(seq, &where, m->s, weft_all_blocks(m->s), group,
                              0, &m->fwd, &m->bwd);
    if (group == WEFT_GROUP_HEAD && m->s->tied)
        weft_insert_tied_table(seq, &where, m->s, weft_all_blocks(m->s),
                               m->fwd.head.block, m->fwd.embed);
}

static void make_model(struct model *m, int place, const struct weft_shape *s)
{
    /* a step of length 0 publishes */
    struct weft_k_adamw still = {0, 0.9f, 0.95f, 1e-8f, 0, 1};
    struct weft_grad_norm value = {1, 1, 0};
    struct weft_tile *norm = tile_at(place, WEFT_MEM_SAMPLES, sizeof value);
    *m = (struct model){.place = place, .s = s};
    put(norm, &value);
    for (int g = 0; g < N_GROUPS; g++) {
        m->of[g].group = (enum weft_param_group) g;
        make_group(m, m->of[g].group);
    }
    m->layer[0] = m->of[WEFT_GROUP_LAYER].fwd;
    m->layer[1] = m->of[WEFT_GROUP_LAYER].bwd;
    m->layer[2] = m->of[WEFT_GROUP_LAYER].grad;
    m->fwd = (struct weft_params){.layer = &m->layer[0],
                                  .head = m->of[WEFT_GROUP_HEAD].fwd};
    m->bwd = (struct weft_params){.layer = &m->layer[1],
                                  .head = m->of[WEFT_GROUP_HEAD].bwd};
    m->grad = (struct weft_params){.layer = &m->layer[2],
                                   .head = m->of[WEFT_GROUP_HEAD].grad};
    for (int32_t b = 0; b < s->n_blocks; b++) {
        m->fwd.embed[b] = m->of[WEFT_GROUP_EMBED].fwd.block[b];
        m->grad.embed[b] = m->of[WEFT_GROUP_EMBED].grad.block[b];
    }
    for (int g = 0; g < N_GROUPS; g++)
        update(m, m->of[g].group, &still, norm);
    if (place != host_place()) {
        struct weft_where where = at(place);
        weft_insert_choose_products(seq, &where, s, false, true);
    }
    must_wait();
    weft_tile_release(norm);
}

static void keep(struct result *r, struct weft_tile *tile)
{
    size_t n = weft_tile_bytes(tile);
    REQUIRE(r->at + n <= r->n);
    memcpy(r->bytes + r->at, weft_tile_acquire(tile, WEFT_READ), n);
    weft_tile_unacquire(tile);
    r->at += n;
}

/* The last n_groups times n numbers that were kept are groups of f32. */
static void group(struct result *r, size_t n_groups, size_t n)
{
    for (size_t i = n_groups; i > 0; i--) {
        REQUIRE(r->n_groups < MOST_GROUPS);
        r->group[r->n_groups].from = r->at - i * n * sizeof(float);
        r->group[r->n_groups++].n = n;
    }
}

static void keep_rows(struct result *r, struct weft_tile *tile)
{
    keep(r, tile);
    group(r, 1, weft_tile_bytes(tile) / sizeof(float));
}

static void release_model(struct model *m, struct result *r)
{
    for (int g = 0; g < N_GROUPS; g++)
        for (int32_t i = 0; i <= WEFT_MAX_BLOCKS; i++) {
            struct tiles *t = &m->of[g];
            if (!*slot_of(&t->opt, i))
                continue;
            keep_rows(r, *slot_of(&t->grad, i));
            keep(r, *slot_of(&t->opt, i)); /* moments come last */
            group(r, 2,
                  weft_tile_bytes(*slot_of(&t->grad, i)) / sizeof(float));
            weft_tile_release(*slot_of(&t->fwd, i));
            weft_tile_release(*slot_of(&t->bwd, i));
            weft_tile_release(*slot_of(&t->grad, i));
            weft_tile_release(*slot_of(&t->opt, i));
        }
}

/* ---- A micro-batch --------------------------------------------------- */

static struct weft_tile *rollout_at(int place, const struct weft_shape *s,
                                    int32_t sample)
{
    int32_t n = totals[sample];
    size_t bytes = weft_rollout_bytes(n);
    struct weft_tile *tile = tile_at(place, WEFT_MEM_SAMPLES, bytes);
    struct weft_rollout *r = weft_tile_acquire(tile, WEFT_WRITE);
    memset(r, 0, bytes);
    *r = (struct weft_rollout){n, prompts[sample], n, 1};
    for (int32_t i = 0; i < n; i++)
        weft_rollout_token(r)[i] = (i * i + 7 * sample) % s->vocab;
    weft_tile_unacquire(tile);
    return tile;
}

struct step {
    struct model *m;
    int32_t n_rows;
    size_t x_bytes, saved_bytes;
    struct weft_tile *batch, *x[3], *saved;
};

static struct weft_tile *rows_at(const struct step *p)
{
    return temp_at(p->m->place, WEFT_MEM_ACTIVATIONS, p->x_bytes);
}

/* The layer by its two halves of tensor blocks, as two members compute it. */
static void layer_by_members(struct step *p, struct weft_tile *x,
                             struct weft_tile *y)
{
    const struct model *m = p->m;
    const struct weft_shape *s = m->s;
    struct weft_where where = at(m->place);
    struct weft_tile *x_mid = rows_at(p);
    struct weft_part_tile part[2], joined;
    for (int i = 0; i < 2; i++) {
        part[i].range = (struct weft_range){i * s->n_blocks / 2,
                                            s->n_blocks / 2};
        size_t bytes = weft_part_bytes(s, part[i].range,
                                       (int64_t) p->n_rows * s->hidden);
        part[i].tile = temp_at(m->place, WEFT_MEM_ACTIVATIONS, bytes);
        weft_insert_attention_part(seq, &where, s, part[i].range, &m->fwd, 0,
                                   p->batch, x, NULL, NULL, part[i].tile);
    }
    weft_insert_join_rows(seq, &where, s, &m->fwd, 0, true, p->batch, 2, part,
                          x, x_mid);
    for (int i = 0; i < 2; i++)
        weft_insert_mlp_part(seq, &where, s, part[i].range, &m->fwd, 0,
                             p->batch, x_mid, NULL, part[i].tile);
    joined.range = weft_all_blocks(s);
    joined.tile = rows_at(p);
    weft_insert_join_parts(seq, &where, s, p->batch, false, s->hidden, 1, 2,
                           part, joined.tile);
    weft_insert_join_rows(seq, &where, s, &m->fwd, 0, false, p->batch, 1,
                          &joined, x_mid, y);
    weft_tile_release(part[0].tile);
    weft_tile_release(part[1].tile);
    weft_tile_release(joined.tile);
    weft_tile_release(x_mid);
}

/* Samples first.. first + n - 1, forwards and backwards. */
static void micro_batch(struct model *m, int32_t first, int32_t n,
                        struct result *r)
{
    const struct weft_shape *s = m->s;
    struct weft_where where = at(m->place);
    struct weft_pack_sample sample[N_SAMPLES];
    struct weft_loss_args loss = {.loss = WEFT_LOSS_SFT,
                                  .inv_temperature = 1};
    struct weft_batch layout;
    struct step p = {.m = m};
    int32_t targets = 0;
    for (int32_t i = 0; i < n; i++) {
        sample[i] = (struct weft_pack_sample){
            .rollout = rollout_at(m->place, s, first + i),
            .n_prompt = prompts[first + i],
            .n_total = totals[first + i],
            .weight = 0.25f};
        p.n_rows += totals[first + i];
        targets += totals[first + i] - prompts[first + i];
    }
    weft_batch_layout(p.n_rows, n, targets, false, &layout);
    p.x_bytes = (size_t) (p.n_rows * s->hidden) * sizeof(float);
    p.batch = temp_at(m->place, WEFT_MEM_SAMPLES, layout.bytes);
    for (int i = 0; i < 3; i++)
        p.x[i] = rows_at(&p);
    p.saved = temp_at(m->place, WEFT_MEM_ACTIVATIONS,
                      weft_layer_saved_bytes(s, p.n_rows));
    struct weft_tile *dx = rows_at(&p);
    struct weft_tile *stats = temp_at(
        m->place, WEFT_MEM_SAMPLES,
        (size_t) (n * weft_loss_n_stats(loss.loss)) * sizeof(double));
    int64_t before = n_waits(), pinned = n_pinned();
    weft_insert_pack(seq, &where, WEFT_TARGETS_RESPONSE, false, n, sample,
                     NULL, p.batch);
    weft_insert_embed(seq, &where, s, &m->fwd, p.batch, p.x[0]);
    weft_insert_layer_forward(seq, &where, s, &m->fwd, 0, p.batch, p.x[0],
                              NULL, p.x[1], p.saved);
    layer_by_members(&p, p.x[1], p.x[2]);
    weft_insert_loss(seq, &where, s, &m->fwd, &m->bwd, &loss, p.batch, p.x[2],
                     NULL, dx, &m->grad, stats);
    weft_insert_layer_backward(seq, &where, s, &m->fwd, &m->bwd, 0, p.batch,
                               p.x[1], NULL, dx, &m->grad);
    weft_insert_layer_backward(seq, &where, s, &m->fwd, &m->bwd, 0, p.batch,
                               p.x[0], p.saved, dx, &m->grad);
    weft_insert_embed_backward_part(seq, &where, s, weft_all_blocks(s),
                                    p.batch, dx, &m->grad);
    must_wait_once(before);
    check_pinned(pinned, 3 + n);
    keep_rows(r, p.x[2]);
    keep(r, stats);
    keep_rows(r, dx);
    for (int32_t i = 0; i < n; i++)
        weft_tile_release(sample[i].rollout);
    for (int i = 0; i < 3; i++)
        weft_tile_release(p.x[i]);
    weft_tile_release(p.batch);
    weft_tile_release(p.saved);
    weft_tile_release(dx);
    weft_tile_release(stats);
}

/* A step; its samples in one micro-batch, or in two. */
static void train_at(int place, const struct weft_shape *s, bool two,
                     struct result *r)
{
    struct weft_k_adamw o = {1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 1};
    struct weft_where where = at(place);
    struct weft_tile *squares[N_GROUPS], *norm;
    struct model m;
    make_model(&m, place, s);
    if (two) {
        micro_batch(&m, 0, 1, r);
        micro_batch(&m, 1, 2, r);
    } else {
        micro_batch(&m, 0, N_SAMPLES, r);
    }
    norm = temp_at(place, WEFT_MEM_SAMPLES, sizeof(struct weft_grad_norm));
    int64_t before = n_waits(), pinned = n_pinned(), n_tiles = 0;
    for (int g = 0; g < N_GROUPS; g++) {
        struct tiles *t = &m.of[g];
        squares[g] = temp_at(place, WEFT_MEM_SAMPLES,
                             weft_squares_bytes(s, t->group, &t->chunks));
        weft_insert_sum_squares(seq, &where, s, t->group, g, &t->chunks,
                                &t->grad, squares[g]);
        for (int32_t i = 0; i <= WEFT_MAX_BLOCKS; i++)
            n_tiles += has(&m, t->group, i);
    }
    weft_insert_grad_norm(seq, &where, s, 0.5f, N_GROUPS, squares, NULL,
                          norm);
    for (int g = 0; g < N_GROUPS; g++)
        update(&m, m.of[g].group, &o, norm);
    must_wait_once(before);
    check_pinned(pinned, n_tiles);
    keep(r, norm);
    for (int g = 0; g < N_GROUPS; g++)
        weft_tile_release(squares[g]);
    weft_tile_release(norm);
    release_model(&m, r);
}

static struct result result_of(int place, const struct weft_shape *s,
                               bool two)
{
    struct result r = {.n = 8 << 20};
    r.bytes = weft_alloc_aligned(r.n, 1);
    train_at(place, s, two, &r);
    return r;
}

static void check_near(const struct result *got, const struct result *want,
                       double tolerance)
{
    CHECK_INT(got->n_groups, want->n_groups);
    for (int g = 0; g < want->n_groups; g++) {
        const float *x = (void *) (got->bytes + got->group[g].from);
        const float *y = (void *) (want->bytes + want->group[g].from);
        double by = 0, size = 0;
        for (size_t i = 0; i < want->group[g].n; i++) {
            double d = fabs((double) x[i] - (double) y[i]);
            by = d > by || d != d ? d : by;
            size = fmax(size, fabs((double) y[i]));
        }
        if (!(by <= tolerance * size))
            printf("\n    group %d differs by %g of %g\n", g, by, size);
        CHECK(by <= tolerance * size);
    }
}

static void train_in(const struct weft_shape *s, bool two)
{
    struct result cpu = result_of(host_place(), s, two);
    struct result gpu = result_of(0, s, two);
    REQUIRE(cpu.at == gpu.at);
    if (products_are_cpus())
        CHECK(memcmp(cpu.bytes, gpu.bytes, cpu.at) == 0);
    check_near(&gpu, &cpu, s->dtype == WEFT_F32 ? 1e-5 : 3e-2);
    if (weft_rt_n_gpus(rt) > 1) {
        struct result other = result_of(1, s, two);
        CHECK(memcmp(other.bytes, gpu.bytes, gpu.at) == 0);
        weft_free(other.bytes);
    }
    weft_free(cpu.bytes);
    weft_free(gpu.bytes);
}

static void train(void)
{
    start(0);
    for (int i = 0; i < 3; i++) {
        struct weft_shape s = fixture_shape(i == 0 ? WEFT_F32 : WEFT_BF16,
                                            false, i == 1);
        s.head_dim = 12; /* bf16 attention has the CPU's bits, too */
        for (int two = 0; two < (i == 1 ? 2 : 1); two++)
            train_in(&s, two);
    }
    stop();
}

static void test_training(void)
{
    each_card_order(train);
}

int main(void)
{
    const struct weft_test tests[] = {{"test_training", test_training}};
    return gpus_main("codelets/gpu_training", tests, WEFT_COUNT(tests));
}
