/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inference and generation on every layout, of models that are at home on
 * another: the bits of one device. Reallocation brings every tile that a call
 * needs, and moves no more than it must.
 */
#include "graphs/calls/tiles.h"
#include "layout_fixture.h"
#include "lm/rollout.h"

/* Where the models are at home; ZeRO counts where they are trained. */
static const struct degrees homes[] = {
    {1, 1, 1, 0, 0, 0, false}, {2, 2, 2, 0, 3, 0, false},
    {4, 1, 1, 4, 3, 0, false}, {1, 4, 1, 2, 0, 0, false},
    {2, 1, 3, 0, 1, 0, false}, {1, 3, 1, 5, 0, 0, false},
    {2, 3, 1, 0, 3, 0, false}, {8, 1, 1, 0, 2, 0, false}};
static const struct degrees calls[] = {
    {1, 4, 1, 0, 0, 0, false}, {1, 3, 1, 2, 0, 0, false},
    {3, 1, 1, 0, 0, 0, false}, {8, 1, 1, 0, 0, 0, false},
    {1, 1, 3, 5, 0, 0, false}, {1, 1, 4, 0, 0, 0, false},
    {2, 2, 2, 0, 0, 0, false}, {1, 2, 4, 0, 0, 0, false},
    {2, 4, 1, 0, 0, 0, false}, {2, 1, 3, 1, 0, 0, false},
    {1, 8, 1, 0, 0, 0, false}, {1, 5, 1, 3, 0, 0, false},
    {1, 1, 1, 7, 0, 0, false}};

/* The home of model s for call i: another one each time. */
static const struct degrees *home_of(size_t s, size_t i,
                                     const struct weft_shape *shape)
{
    const struct degrees *d = &homes[(3 * s + i) % WEFT_COUNT(homes)];
    return fits(d, shape) ? d : &one_device;
}

static void model_open(struct task_fixture *f, const struct weft_shape *shape,
                       bool trained, const struct degrees *d)
{
    struct weft_g_layout home;
    layout_open(f, shape, d, &home);
    fixture_open_model(f, shape, trained, &home);
    weft_g_layout_release(&home);
}

static void fixture_close_rt(struct task_fixture *f)
{
    weft_seq_free(f->seq);
    weft_rt_stop(f->rt);
}

/* ---- Inference -------------------------------------------------------- */

struct inferred {
    float out[2][N][128]; /* log-probs: of the response, of all tokens;
                             values, scores */
};

static void infer(struct task_fixture *f, const struct degrees *d,
                  struct inferred *result)
{
    struct weft_err err;
    struct weft_g_layout layout;
    struct weft_g_view view;
    struct weft_g_copies *copies;
    struct weft_g_infer_sample sample[2][N];
    bool scalar = f->model.shape.scalar_head;
    static const enum weft_g_infer_kind kind[2][2] = {
        {WEFT_INFER_LOGPROB, WEFT_INFER_LOGPROB_ALL},
        {WEFT_INFER_VALUE, WEFT_INFER_SCORE}};
    memset(result, 0, sizeof *result);
    layout_open(f, &f->model.shape, d, &layout);
    REQUIRE_OK(
        weft_g_view_open(f->seq, &anywhere, &f->model, &layout, &view, &err),
        err);
    REQUIRE_OK(weft_g_copies_create(f->rt, &copies, &err), err);
    for (int q = 0; q < 2; q++)
        for (int32_t r = 0; r < d->dp; r++) {
            struct weft_range mine = weft_plan_range(N, d->dp, r);
            for (int32_t i = mine.first; i < mine.first + mine.n; i++)
                sample[q][i] = (struct weft_g_infer_sample){
                    .rollout = q ? sample[0][i].rollout
                                 : fixture_text(f, 1, lengths[i],
                                                (uint32_t) i),
                    .n_prompt = 1,
                    .n_total = lengths[i],
                    .out = fixture_tile_at(
                        f, sizeof result->out[q][i],
                        weft_g_infer_out_place(&layout, r))};
            if (mine.n > 0)
                weft_g_infer(f->seq, &anywhere, &view, r, kind[scalar][q],
                             0.8f, mine.n, sample[q] + mine.first, copies,
                             NULL);
        }
    weft_g_view_close(&view);
    REQUIRE_OK(weft_seq_wait(f->seq, &err), err);
    weft_g_copies_free(copies);
    for (int q = 0; q < 2; q++)
        for (int i = 0; i < N; i++) {
            struct weft_tile *out = sample[q][i].out;
            memcpy(result->out[q][i], weft_tile_acquire(out, WEFT_READ),
                   sizeof result->out[q][i]);
            weft_tile_unacquire(out);
            weft_tile_release(out);
            if (q == 1)
                weft_tile_release(sample[q][i].rollout);
        }
    weft_g_layout_release(&layout);
}

static void infer_everywhere(bool place_per_device)
{
    static struct inferred one, other;
    struct task_fixture f;
    fixture_open_rt(&f, DEVICES, place_per_device);
    for (size_t s = 0; s < WEFT_COUNT(sketches); s++) {
        struct weft_shape shape = shape_of(&sketches[s]);
        model_open(&f, &shape, false, &one_device);
        infer(&f, &one_device, &one);
        weft_g_model_release(&f.model);
        CHECK(one.out[0][1][3] != 0 && one.out[1][4][0] != 0);
        for (size_t i = 0; i < WEFT_COUNT(calls); i++) {
            if (!fits(&calls[i], &shape) || (!place_per_device && i % 2))
                continue;
            model_open(&f, &shape, i % 2, home_of(s, i, &shape));
            infer(&f, &calls[i], &other);
            bool same = memcmp(&one, &other, sizeof one) == 0;
            if (!same)
                say(&sketches[s], &calls[i], "other log-probs or values");
            CHECK(same);
            weft_g_model_release(&f.model);
        }
    }
    fixture_close_rt(&f);
}

static void test_infer_layouts(void)
{
    infer_everywhere(true);
}

static void test_infer_one_place(void)
{
    infer_everywhere(false);
}

/* ---- Generation ------------------------------------------------------- */

enum { NEW = 14, MOST = 70 + NEW };

struct generated {
    int32_t n_total[N], ended[N], token[N][MOST];
    float logp[N][MOST];
};

static void generate(struct task_fixture *f, const struct degrees *d,
                     int32_t slots, struct generated *out)
{
    struct weft_err err;
    struct weft_g_layout layout;
    struct weft_g_view view;
    struct weft_g_generate gen;
    struct weft_sample sample[N];
    struct weft_rollout_stats stats;
    int32_t prompt[MOST];
    struct weft_gen_args args = {.sampling = {0.9f, 0, 1, 11},
                                 .iteration = 2,
                                 .n_steps = 3,
                                 .prefill_tokens = 29,
                                 .n_stop = 3,
                                 .stop = {17, 18, 19}};
    memset(out, 0, sizeof *out);
    for (int i = 0; i < MOST; i++)
        prompt[i] = (i * 29 + 3) % 270;
    for (int i = 0; i < N; i++)
        sample[i] = (struct weft_sample){.n_prompt = lengths[i],
                                         .limit = lengths[i] + NEW - i,
                                         .token = prompt + i % 2};
    layout_open(f, &f->model.shape, d, &layout);
    REQUIRE_OK(
        weft_g_view_open(f->seq, &anywhere, &f->model, &layout, &view, &err),
        err);
    REQUIRE_OK(weft_g_generate_init(&f->model, &layout, N, slots, MOST,
                                    args.prefill_tokens, 0, &gen, &err),
               err);
    weft_rollout_reset(&gen);
    REQUIRE_OK(weft_rollout_run(f->seq, &gen, &view, &args, N, sample, NULL,
                                NULL, &stats, &err),
               err);
    REQUIRE_OK(weft_seq_wait(f->seq, &err), err);
    for (int i = 0; i < N; i++) {
        const struct weft_rollout *r = weft_tile_acquire(sample[i].rollout,
                                                         WEFT_READ);
        size_t bytes = (size_t) r->n_total * 4;
        REQUIRE(r->n_total <= MOST);
        out->n_total[i] = r->n_total;
        out->ended[i] = r->ended;
        memcpy(out->token[i], weft_rollout_token(r), bytes);
        memcpy(out->logp[i], weft_rollout_logp(r), bytes);
        weft_tile_unacquire(sample[i].rollout);
        weft_tile_release(sample[i].rollout);
    }
    weft_g_generate_release(&gen);
    weft_g_view_close(&view);
    weft_g_layout_release(&layout);
}

static void test_generate_layouts(void)
{
    static struct generated one, other;
    struct task_fixture f;
    fixture_open_rt(&f, DEVICES, true);
    for (size_t s = 0; s < WEFT_COUNT(sketches); s++) {
        struct weft_shape shape = shape_of(&sketches[s]);
        if (shape.scalar_head)
            continue;
        model_open(&f, &shape, false, &one_device);
        generate(&f, &one_device, N, &one);
        weft_g_model_release(&f.model);
        CHECK(one.n_total[0] > lengths[0]);
        for (size_t i = 0; i < WEFT_COUNT(calls); i++) {
            if (!fits(&calls[i], &shape) || calls[i].dp > N)
                continue;
            model_open(&f, &shape, i % 2, home_of(s, i, &shape));
            generate(&f, &calls[i], 1 + (int32_t) i % 3, &other);
            bool same = memcmp(&one, &other, sizeof one) == 0;
            if (!same)
                say(&sketches[s], &calls[i], "other tokens or log-probs");
            CHECK(same);
            weft_g_model_release(&f.model);
        }
    }
    fixture_close_rt(&f);
}

/* ---- Reallocation ----------------------------------------------------- */

/* Does a member of the layout at `place` read the tile? By walking over
 * members and asking what each computes. */
static bool is_needed(const struct weft_g_layout *layout,
                      const struct weft_shape *s, int32_t place,
                      enum weft_tile_kind kind, int32_t layer, int32_t block)
{
    const struct weft_call_plan *plan = &layout->plan;
    for (int32_t at = 0; at < plan->pp * plan->dp * plan->tp; at++) {
        const struct weft_g_member *m = &layout->member[at];
        int32_t stage = at / (plan->dp * plan->tp);
        bool first = stage == 0, last = stage == plan->pp - 1;
        bool layers = layer >= layout->first_layer[stage]
                   && layer < layout->first_layer[stage + 1];
        bool blocks = block >= m->blocks.first
                   && block < m->blocks.first + m->blocks.n;
        if (m->place == place
            && ((kind == WEFT_TILE_EMBED && first && blocks)
                || (kind == WEFT_TILE_LAYER && layers && blocks)
                || (kind == WEFT_TILE_NORMS && layers)
                || (kind == WEFT_TILE_HEAD && last && blocks
                    && !s->scalar_head)
                || (kind == WEFT_TILE_FINAL && last)))
            return true;
    }
    return false;
}

/* A tied embedding's table: the head's rows, zeros up to a panel. */
static struct weft_hash table_hash(const struct weft_shape *s, int32_t block)
{
    struct weft_layout l;
    size_t room = weft_g_fwd_bytes(s, WEFT_TILE_EMBED, block);
    weft_layout_get(s, WEFT_TILE_EMBED, block, &l);
    float *flat = weft_alloc_aligned(l.n_flat, sizeof *flat);
    void *table = weft_alloc_aligned(room, 1);
    REQUIRE(flat && table && room >= l.fwd_bytes);
    fixture_tie(s, block, flat);
    weft_k_publish(&l, s->dtype, flat, table, NULL);
    struct weft_hash hash = weft_hash128(table, room);
    weft_free(flat);
    weft_free(table);
    return hash;
}

/* What a place has at home of a tile: with ZeRO 3 what it owns, of a tied
 * embedding as rows of the head. */
static size_t bytes_at(const struct weft_g_model *m, int32_t place,
                       enum weft_tile_kind kind, int32_t layer, int32_t block)
{
    if (m->shape.tied && kind == WEFT_TILE_EMBED && m->home.plan.zero == 3)
        kind = WEFT_TILE_HEAD;
    struct weft_tile *tile = weft_g_params_tile(&m->fwd[place], kind, layer,
                                                block);
    return tile ? weft_tile_bytes(tile) : 0;
}

/* One kind of tile at all places: there where it is needed, with the contents
 * that places have at home. Returns the bytes that had to come. */
static size_t check_tile(const struct weft_g_view *v,
                         enum weft_tile_kind kind, int32_t layer,
                         int32_t block)
{
    const struct weft_g_model *m = v->model;
    bool tied = m->shape.tied && kind == WEFT_TILE_EMBED;
    struct weft_hash want = tied ? table_hash(&m->shape, block)
                                 : copies_hash(m, 0, kind, layer, block);
    size_t bytes = 0;
    for (int32_t p = 0; p < m->n_places; p++) {
        struct weft_tile *tile = weft_g_params_tile(&v->fwd[p], kind, layer,
                                                    block);
        if (!is_needed(&v->layout, &m->shape, p, kind, layer, block))
            continue;
        REQUIRE(tile != NULL);
        CHECK_INT(weft_tile_place(tile), p);
        CHECK(weft_hash_equal(tile_hash(tile), want));
        bytes += weft_g_fwd_bytes(&m->shape, kind, block)
               - bytes_at(m, p, kind, layer, block);
    }
    return bytes;
}

static size_t check_tiles(const struct weft_g_view *v)
{
    const struct weft_shape *s = &v->model->shape;
    size_t bytes = check_tile(v, WEFT_TILE_FINAL, -1, 0);
    for (int32_t l = 0; l < s->n_layers; l++)
        bytes += check_tile(v, WEFT_TILE_NORMS, l, 0);
    for (int32_t b = 0; b < s->n_blocks; b++) {
        bytes += check_tile(v, WEFT_TILE_EMBED, -1, b);
        bytes += check_tile(v, WEFT_TILE_HEAD, -1, b);
        for (int32_t l = 0; l < s->n_layers; l++)
            bytes += check_tile(v, WEFT_TILE_LAYER, l, b);
    }
    return bytes;
}

/* From the model's home to a call's layout; returns the bytes moved. */
static size_t reallocate(struct task_fixture *f, const struct degrees *d)
{
    struct weft_err err;
    struct weft_g_layout layout;
    struct weft_g_view view;
    struct weft_traffic before, after;
    weft_rt_traffic(f->rt, WEFT_MEM_WEIGHTS, &before);
    layout_open(f, &f->model.shape, d, &layout);
    REQUIRE_OK(
        weft_g_view_open(f->seq, &anywhere, &f->model, &layout, &view, &err),
        err);
    REQUIRE_OK(weft_seq_wait(f->seq, &err), err);
    weft_rt_traffic(f->rt, WEFT_MEM_WEIGHTS, &after);
    size_t bytes = check_tiles(&view), made = 0;
    CHECK_INT(view.copied_bytes, bytes);
    CHECK_INT(after.copied_bytes - before.copied_bytes, bytes);
    for (int32_t i = 0; i < view.n_copies; i++)
        made += weft_tile_bytes(view.copy[i]);
    CHECK(made >= bytes); /* what a place owns of them does not travel */
    weft_g_view_close(&view);
    weft_g_layout_release(&layout);
    return bytes;
}

static void test_reallocate(void)
{
    struct task_fixture f;
    fixture_open_rt(&f, DEVICES, true);
    for (size_t s = 0; s < WEFT_COUNT(sketches); s++)
        for (size_t h = 0; h < WEFT_COUNT(homes); h++) {
            struct weft_shape shape = shape_of(&sketches[s]);
            if (!fits(&homes[h], &shape))
                continue;
            model_open(&f, &shape, true, &homes[h]);
            for (size_t i = 0; i < WEFT_COUNT(calls); i++)
                if (fits(&calls[i], &shape))
                    (void) reallocate(&f, &calls[i]);
            size_t own = reallocate(&f, &homes[h]);
            CHECK(homes[h].zero == 3 ? own > 0 : own == 0);
            weft_g_model_release(&f.model);
        }
    fixture_close_rt(&f);
}

/* Opens a view, whose copies a task uses when `answer` is there, and closes it.
 * Returns the bytes of the copies, which are all at one place. */
static size_t use_view(struct task_fixture *f,
                       const struct weft_g_layout *layout,
                       struct weft_tile *answer)
{
    struct weft_err err;
    struct weft_g_view view;
    size_t bytes = 0;
    REQUIRE_OK(
        weft_g_view_open(f->seq, &anywhere, &f->model, layout, &view, &err),
        err);
    REQUIRE(view.n_copies > 0);
    for (int32_t i = 0; i < view.n_copies; i++)
        bytes += weft_tile_bytes(view.copy[i]);
    weft_insert_open(f->seq, &anywhere, answer, view.n_copies, view.copy);
    weft_g_view_close(&view);
    return bytes;
}

/* Where no optimizer step says when new weights may come, they take no memory
 * before those that came last have given theirs back. */
static void test_reallocate_in_turn(void)
{
    static const struct degrees there = {1, 1, 1, 3, 0, 0, false};
    struct task_fixture f;
    struct weft_err err;
    struct weft_g_layout layout;
    struct weft_external *answer;
    struct weft_where behind = anywhere;
    size_t before, peak;
    struct weft_shape shape = shape_of(&sketches[0]);
    fixture_open_rt(&f, DEVICES, true);
    model_open(&f, &shape, true, &one_device);
    layout_open(&f, &shape, &there, &layout);
    struct weft_tile *reads = fixture_tile_at(&f, 8, 3);
    struct weft_tile *last = fixture_tile_at(&f, 8, 3);
    weft_rt_memory(f.rt, WEFT_MEM_WEIGHTS, &before, &peak);
    REQUIRE_OK(weft_external_begin(f.seq, reads, &anywhere, &answer, &err),
               err);
    size_t bytes = use_view(&f, &layout, reads);
    CHECK_INT(use_view(&f, &layout, NULL), bytes);
    behind.priority = -1;
    weft_insert_open(f.seq, &behind, NULL, 1, &last);
    (void) weft_tile_acquire(last, WEFT_READ); /* nothing else is ready */
    weft_tile_unacquire(last);
    weft_external_complete(answer, &(int64_t){0}, 8);
    REQUIRE_OK(weft_seq_wait(f.seq, &err), err);
    weft_rt_memory(f.rt, WEFT_MEM_WEIGHTS, &before, &peak);
    CHECK_INT(peak, before + bytes);
    weft_tile_release(reads);
    weft_tile_release(last);
    weft_g_layout_release(&layout);
    weft_g_model_release(&f.model);
    fixture_close_rt(&f);
}

WEFT_TESTS("graphs/reallocate", {"test_reallocate", test_reallocate},
           {"test_reallocate_in_turn", test_reallocate_in_turn},
           {"test_infer_layouts", test_infer_layouts},
           {"test_infer_one_place", test_infer_one_place},
           {"test_generate_layouts", test_generate_layouts})
