/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training on every layout gives the bits of one device: weights, transposes,
 * optimizer state, norms, statistics. Places are devices, so that nothing is
 * shared that another layout would have to send; some layouts are run again
 * with one place for all.
 */
#include "calls.h"
#include "train_step.h"
#include "graphs/calls/gather.h"
#include "layout_fixture.h"

enum { G = 4 };

/* ---- What a model holds ----------------------------------------------- */

enum { TILES = WEFT_N_TILE_KINDS * LAYERS * WEFT_MAX_BLOCKS };

/* Published weights, their transposes, optimizer state. */
static void model_hash(const struct weft_g_model *m,
                       struct weft_hash out[USES][TILES])
{
    for (int u = 0; u < USES; u++)
        for (int i = 0; i < TILES; i++) {
            int b = i % WEFT_MAX_BLOCKS, l = i / WEFT_MAX_BLOCKS % LAYERS;
            enum weft_tile_kind kind = (enum weft_tile_kind)(
                i / WEFT_MAX_BLOCKS / LAYERS);
            out[u][i] = l < m->shape.n_layers && b < m->shape.n_blocks
                          ? copies_hash(m, u, kind, l, b)
                          : no_tile;
        }
}

/* ---- Training --------------------------------------------------------- */

struct trained {
    struct weft_hash hash[USES][TILES];
    struct weft_grad_norm norm[2];
    double stats[2][N][WEFT_N_POLICY_STATS];
};

/* Advantages and values that are somewhere, as inference leaves them. */
static struct weft_pack_sample sample_make(struct task_fixture *f, int32_t i,
                                           int32_t place)
{
    int32_t n = lengths[i] - 1;
    struct weft_pack_sample s = {
        .rollout = fixture_text(f, 1, lengths[i], (uint32_t) i),
        .advantage = fixture_tile_at(f, weft_advantage_bytes(n), place),
        .value = fixture_tile_at(f, (size_t) n * 4, place),
        .ref = fixture_tile_at(f, (size_t) n * 4, 0),
        .n_prompt = 1,
        .n_total = lengths[i],
        .weight = 0.01f};
    struct weft_advantage *a = weft_tile_acquire(s.advantage, WEFT_WRITE);
    float *value = weft_tile_acquire(s.value, WEFT_WRITE);
    float *ref = weft_tile_acquire(s.ref, WEFT_WRITE);
    *a = (struct weft_advantage){.n = n};
    for (int32_t k = 0; k < n; k++) {
        float u = weft_rng_uniform(5, WEFT_RNG_SAMPLE, (uint32_t) i,
                                   (uint32_t) k, 0);
        weft_advantage_of(a)[k] = u - 0.4f;
        weft_return_of(a)[k] = 2 * u;
        value[k] = 0.5f - u;
        ref[k] = -5 - u;
    }
    weft_tile_unacquire(s.advantage);
    weft_tile_unacquire(s.value);
    weft_tile_unacquire(s.ref);
    return s;
}

static struct weft_loss_args loss_of(enum weft_loss loss)
{
    return (struct weft_loss_args){
        .loss = loss,
        .inv_temperature = 1.25f,
        .policy = {0.2f, 0.3f, 0, 0.01f, 0.1f, WEFT_KL_K3, WEFT_POLICY_PPO},
        .value_clip = 0.2f};
}

static void collect(struct weft_g_stats *stats, int32_t n_stats, int32_t n,
                    enum weft_loss loss, double (*out)[WEFT_N_POLICY_STATS])
{
    int32_t width = weft_loss_n_stats(loss), seen = 0;
    for (int32_t k = 0; k < n_stats; k++) {
        const double *p = weft_tile_acquire(stats[k].tile, WEFT_READ);
        for (int32_t i = 0; i < stats[k].n; i++)
            memcpy(out[stats[k].sample[i]], p + i * width,
                   (size_t) width * sizeof *p);
        seen += stats[k].n;
        weft_tile_unacquire(stats[k].tile);
        weft_tile_release(stats[k].tile);
        weft_free(stats[k].sample);
    }
    CHECK_INT(seen, n);
}

/* Two optimizer steps on the first n samples. */
static void steps(struct task_fixture *f, struct weft_g_train *t, int32_t n,
                  const struct weft_pack_sample *pack, struct trained *out)
{
    struct weft_err err;
    for (int step = 0; step < 2; step++) {
        struct weft_g_stats stats[N];
        struct weft_tile *norm;
        int32_t n_stats;
        t->adamw = (struct weft_k_adamw){1e-2f, 0.9f, 0.999f,
                                         1e-8f, 0.1f, step + 1};
        REQUIRE_OK(
            train_step(f->seq, t, n, pack, stats, &n_stats, &norm, &err),
            err);
        REQUIRE_OK(weft_seq_wait(f->seq, &err), err);
        weft_g_order_reset(t->order);
        weft_g_copies_drop(t->copies);
        collect(stats, n_stats, n, t->loss.loss, out->stats[step]);
        memcpy(&out->norm[step], weft_tile_acquire(norm, WEFT_READ),
               sizeof out->norm[step]);
        weft_tile_unacquire(norm);
        weft_tile_release(norm);
    }
}

static void train(struct task_fixture *f, const struct sketch *k,
                  const struct degrees *d, int32_t n, int32_t n_groups,
                  struct trained *out)
{
    struct weft_err err;
    struct weft_shape shape = shape_of(k);
    struct weft_g_layout home;
    struct weft_g_grads grads;
    struct weft_g_gather *gather;
    struct weft_g_copies *copies;
    struct weft_g_order order;
    struct weft_pack_sample pack[N];
    memset(out, 0, sizeof *out);
    layout_open(f, &shape, d, &home);
    fixture_open_model(f, &shape, true, &home);
    weft_g_layout_release(&home);
    REQUIRE_OK(weft_g_grads_init(&f->model, n_groups, &grads, &err), err);
    REQUIRE_OK(weft_g_gather_create(&f->model, &gather, &err), err);
    REQUIRE_OK(weft_g_copies_create(f->rt, &copies, &err), err);
    REQUIRE_OK(weft_g_order_init(f->rt, &order, &err), err);
    for (int32_t i = 0; i < n; i++)
        pack[i] = sample_make(f, i, i % weft_rt_n_places(f->rt));
    struct weft_g_train t = {.model = &f->model,
                             .grads = &grads,
                             .gather = gather,
                             .order = &order,
                             .copies = copies,
                             .loss = loss_of(k->loss),
                             .grad_clip = 1,
                             .micro_batch_rows = 40,
                             .call = CALL_ACTOR_TRAIN};
    steps(f, &t, n, pack, out);
    model_hash(&f->model, out->hash);
    for (int32_t i = 0; i < n; i++) {
        weft_tile_release(pack[i].rollout);
        weft_tile_release(pack[i].advantage);
        weft_tile_release(pack[i].value);
        weft_tile_release(pack[i].ref);
    }
    weft_g_grads_release(&f->model, &grads);
    weft_g_gather_free(gather);
    weft_g_copies_free(copies);
    weft_g_order_release(&order);
    weft_g_model_release(&f->model);
}

/* With ZeRO 3 there are no transposes and no tied tables. */
static bool same_tiles(const struct degrees *d, const struct trained *a,
                       const struct trained *b)
{
    bool same = true;
    for (int u = 0; u < USES; u++)
        for (int i = 0; i < TILES; i++)
            same = same
                && (weft_hash_equal(a->hash[u][i], b->hash[u][i])
                    || (d->zero == 3
                        && weft_hash_equal(b->hash[u][i], no_tile)
                        && (u == 1
                            || i / WEFT_MAX_BLOCKS / LAYERS
                                   == WEFT_TILE_EMBED)));
    return same;
}

static void compare_trained(const struct sketch *k, const struct degrees *d,
                            const struct trained *a, const struct trained *b)
{
    bool norms = memcmp(a->norm, b->norm, sizeof a->norm) == 0;
    bool stats = memcmp(a->stats, b->stats, sizeof a->stats) == 0;
    bool tiles = same_tiles(d, a, b);
    if (!norms)
        say(k, d, "another norm");
    if (!stats)
        say(k, d, "other statistics");
    if (!tiles)
        say(k, d, "other weights or moments");
    CHECK(norms && stats && tiles);
}

static const struct degrees train_layouts[] = {
    {1, 4, 1, 0, 0, 0, false}, {1, 3, 1, 2, 0, 0, true},
    {1, 2, 1, 0, 0, 2, true},  {3, 1, 1, 0, 1, 0, false},
    {4, 1, 1, 4, 3, 2, false}, {1, 1, 3, 5, 0, 0, false},
    {1, 1, 4, 0, 0, 2, true},  {2, 2, 2, 0, 0, 2, false},
    {2, 2, 2, 0, 2, 0, true},  {2, 2, 2, 0, 3, 3, true},
    {2, 1, 4, 0, 3, 0, false}, {1, 2, 4, 0, 0, 1, false},
    {2, 4, 1, 0, 1, 0, false}, {3, 2, 1, 0, 3, 0, false},
    {2, 1, 3, 1, 2, 0, true},  {4, 2, 1, 0, 2, 1, false},
    {1, 8, 1, 0, 0, 0, false}, {1, 5, 1, 0, 0, 0, true}};

static struct trained expected, found;

static void train_everywhere(bool place_per_device)
{
    struct task_fixture f;
    fixture_open_rt(&f, DEVICES, place_per_device);
    for (size_t s = 0; s < WEFT_COUNT(sketches); s++) {
        const struct sketch *k = &sketches[s];
        struct weft_shape shape = shape_of(k);
        train(&f, k, &one_device, N, G, &expected);
        CHECK(expected.norm[0].norm > 0.01);
        CHECK(expected.norm[0].norm > 1 ? expected.norm[0].scale < 1 : true);
        for (size_t i = 0; i < WEFT_COUNT(train_layouts); i++) {
            /* one place for all: every fourth, others for each shape */
            if (!fits(&train_layouts[i], &shape)
                || (!place_per_device && (i + s) % 4 != 0))
                continue;
            train(&f, k, &train_layouts[i], N, G, &found);
            compare_trained(k, &train_layouts[i], &expected, &found);
        }
    }
    weft_seq_free(f.seq);
    weft_rt_stop(f.rt);
}

static void test_train_layouts(void)
{
    train_everywhere(true);
}

static void test_train_one_place(void)
{
    train_everywhere(false);
}

/* Fewer samples than gradient groups: replicas without any; and as many
 * replicas as groups. */
static void test_train_empty_groups(void)
{
    static const struct degrees to[] = {
        {4, 1, 1, 0, 0, 0, false}, {2, 2, 2, 0, 2, 0, false},
        {4, 2, 1, 0, 3, 0, true},  {7, 1, 1, 1, 1, 0, false},
        {5, 1, 1, 0, 3, 0, false}, {8, 1, 1, 0, 2, 0, false},
        {2, 1, 4, 0, 3, 2, false}};
    struct task_fixture f;
    fixture_open_rt(&f, DEVICES, true);
    for (int32_t n = 1; n <= N; n += 2 * n) {
        train(&f, &sketches[0], &one_device, n, 8, &expected);
        for (size_t i = 0; i < WEFT_COUNT(to); i++) {
            train(&f, &sketches[0], &to[i], n, 8, &found);
            compare_trained(&sketches[0], &to[i], &expected, &found);
        }
    }
    weft_seq_free(f.seq);
    weft_rt_stop(f.rt);
}

WEFT_TESTS("graphs/layouts", {"test_train_layouts", test_train_layouts},
           {"test_train_one_place", test_train_one_place},
           {"test_train_empty_groups", test_train_empty_groups})
