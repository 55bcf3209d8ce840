/* SPDX-License-Identifier: Apache-2.0 */
/* model/weights*.c, model/tensors.c: every element of every tile against the
 * layout that base/shape.h describes, for all T; round trips between tiles
 * and files. */
#include "weights_fixture.h"

#include <math.h>
#include <pthread.h>

#include "base/log.h"
#include "model/safetensors.h"

/* ---- The oracle: what shape.h says a tile holds ----------------------- */

static float in_layer(int32_t layer, const char *name, int64_t r, int64_t c)
{
    char full[96];
    snprintf(full, sizeof full, "model.layers.%d.%s", layer, name);
    return value(full, r, c);
}

/* Row n of the block's QKV: q heads, then k heads, then v heads. */
static float qkv(const struct weft_shape *s, const struct weft_block *b,
                 int32_t layer, const char *suffix, int64_t n, int64_t k)
{
    static const char *const proj[] = {"q", "k", "v"};
    int64_t d = s->head_dim, q = b->n_heads * d, kv = b->n_kv * d;
    int which = n < q ? 0 : n < q + kv ? 1 : 2;
    int64_t row = which == 0 ? b->head0 * d + n
                : which == 1 ? b->kv0 * d + n - q
                             : b->kv0 * d + n - q - kv;
    char name[40];
    snprintf(name, sizeof name, "self_attn.%s_proj.%s", proj[which], suffix);
    return in_layer(layer, name, row, k);
}

static float expected(const struct weft_shape *s, int32_t layer,
                      int32_t block, const struct weft_part *p, int64_t n,
                      int64_t k)
{
    const struct weft_block *b = &s->block[block];
    switch (p->id) {
    case WEFT_PART_EMBED:
        return value("model.embed_tokens.weight", b->vocab0 + n, k);
    case WEFT_PART_HEAD:
        return value(s->tied ? "model.embed_tokens.weight" : "lm_head.weight",
                     b->vocab0 + n, k);
    case WEFT_PART_QKV:
        return qkv(s, b, layer, "weight", n, k);
    case WEFT_PART_QKV_BIAS:
        return qkv(s, b, layer, "bias", n, 0);
    case WEFT_PART_O:
        return in_layer(layer, "self_attn.o_proj.weight", n,
                        b->head0 * s->head_dim + k);
    case WEFT_PART_GATE_UP: { /* 32 gate rows, 32 up rows, ... */
        int64_t f = n / 64 * 32 + n % 32;
        return f >= b->n_ff ? 0
                            : in_layer(layer,
                                       n % 64 < 32 ? "mlp.gate_proj.weight"
                                                   : "mlp.up_proj.weight",
                                       b->ff0 + f, k);
    }
    case WEFT_PART_DOWN:
        return k >= b->n_ff
                 ? 0
                 : in_layer(layer, "mlp.down_proj.weight", n, b->ff0 + k);
    case WEFT_PART_NORM1:
        return in_layer(layer, "input_layernorm.weight", n, 0);
    case WEFT_PART_NORM2:
        return in_layer(layer, "post_attention_layernorm.weight", n, 0);
    case WEFT_PART_QNORM:
        return in_layer(layer, "self_attn.q_norm.weight", n, 0);
    case WEFT_PART_KNORM:
        return in_layer(layer, "self_attn.k_norm.weight", n, 0);
    case WEFT_PART_O_BIAS:
        return in_layer(layer, "self_attn.o_proj.bias", n, 0);
    case WEFT_PART_NORM:
        return value("model.norm.weight", n, 0);
    case WEFT_PART_SCORE:
        return value("score.weight", 0, n);
    default:
        return NAN;
    }
}

/* Elements of a tile that differ from the oracle, padding included. */
static size_t count_wrong(const struct weft_shape *s,
                          enum weft_tile_kind kind, int32_t layer,
                          int32_t block, const float *flat)
{
    struct weft_layout l;
    size_t wrong = 0, checked = 0;
    weft_layout_get(s, kind, block, &l);
    for (int32_t i = 0; i < l.n_parts; i++) {
        const struct weft_part *p = &l.part[i];
        const float *x = flat + p->offset;
        for (int64_t n = 0; n < p->n_pad; n++)
            for (int64_t k = 0; k < (p->k ? p->k : 1); k++) {
                float v = n < p->n ? expected(s, layer, block, p, n, k) : 0;
                float got = p->k == 0 ? x[n]
                          : p->id == WEFT_PART_EMBED
                              ? x[n * p->k + k]
                              : x[(n / 32 * p->k + k) * 32 + n % 32];
                wrong += !(v == got);
                checked++;
            }
        wrong += p->n_flat != (size_t) p->n_pad * (p->k ? p->k : 1);
    }
    CHECK(checked > 0);
    return wrong;
}

/* Calls visit for every tile; blocks of NORMS and FINAL: 0 only. */
struct tile {
    enum weft_tile_kind kind;
    int32_t layer, block;
};
static size_t list_tiles(const struct weft_shape *s, struct tile *out)
{
    size_t n = 0;
    for (int kind = 0; kind < WEFT_N_TILE_KINDS; kind++) {
        bool layers = kind == WEFT_TILE_LAYER || kind == WEFT_TILE_NORMS;
        bool blocks = kind != WEFT_TILE_NORMS && kind != WEFT_TILE_FINAL;
        if (kind == WEFT_TILE_HEAD && s->scalar_head)
            continue;
        for (int32_t l = 0; l < (layers ? s->n_layers : 1); l++)
            for (int32_t b = 0; b < (blocks ? s->n_blocks : 1); b++)
                out[n++] = (struct tile){(enum weft_tile_kind) kind,
                                         layers ? l : -1, b};
    }
    return n;
}

static float *read_tile(const struct weft_weights *w,
                        const struct weft_shape *s, const struct tile *t)
{
    struct weft_layout l;
    struct weft_err err = {0};
    weft_layout_get(s, t->kind, t->block, &l);
    float *flat = weft_alloc(l.n_flat, sizeof *flat);
    REQUIRE(flat != NULL);
    memset(flat, 0x7f, l.n_flat * sizeof *flat);
    REQUIRE_OK(
        weft_weights_read_tile(w, s, t->kind, t->layer, t->block, flat, &err),
        err);
    return flat;
}

static bool same_files(const char *a, const char *b)
{
    struct weft_err err = {0};
    struct weft_hash x = {0, 0}, y = {0, 1};
    uint64_t n;
    REQUIRE_OK(weft_hash_file(a, &x, &n, &err), err);
    REQUIRE_OK(weft_hash_file(b, &y, &n, &err), err);
    return weft_hash_equal(x, y);
}

/* ---- Cases ------------------------------------------------------------ */

static void test_tensor_order(void)
{
    for (size_t v = 0; v < WEFT_COUNT(variants); v++) {
        struct weft_arch a = variant(v);
        int64_t n_params = 0;
        for (size_t i = 0; i < weft_tensor_count(&a.shape); i++) {
            struct weft_tensor t;
            weft_tensor_get(&a.shape, i, &t);
            CHECK_INT(weft_tensor_index(&a.shape, t.id, t.layer), i);
            n_params += t.rows * (t.cols ? t.cols : 1);
        }
        CHECK_INT(n_params, weft_shape_n_params(&a.shape));
    }
    struct weft_arch a = variant(0);
    CHECK_INT(weft_tensor_index(&a.shape, WEFT_TENSOR_Q_BIAS, 0), -1);
    CHECK_INT(weft_tensor_index(&a.shape, WEFT_TENSOR_Q, 2), -1);
    CHECK_INT(weft_tensor_index(&a.shape, WEFT_TENSOR_SCORE, -1), -1);
    struct weft_tensor t;
    weft_tensor_get(&a.shape, 1, &t);
    CHECK_STR(t.name, "model.layers.0.self_attn.q_proj.weight");
    weft_tensor_get(&a.shape, 18, &t);
    CHECK_STR(t.name, "model.layers.1.post_attention_layernorm.weight");
}

static void test_tiles(void)
{
    for (size_t v = 0; v < WEFT_COUNT(variants); v++)
        for (int32_t n_blocks = 1; n_blocks <= 8; n_blocks *= 2) {
            struct weft_arch a = variant(v);
            struct weft_shape s = a.shape;
            struct weft_weights *w;
            struct weft_err err = {0};
            struct tile tile[64];
            size_t wrong = 0;
            fresh();
            write_model(&a, dir, WEFT_F32, 0);
            REQUIRE_OK(weft_shape_partition(&s, n_blocks, &err), err);
            REQUIRE_OK(weft_weights_open(dir, &a, NULL, &w, &err), err);
            size_t n = list_tiles(&s, tile);
            for (size_t i = 0; i < n; i++) {
                float *flat = read_tile(w, &s, &tile[i]);
                wrong += count_wrong(&s, tile[i].kind, tile[i].layer,
                                     tile[i].block, flat);
                weft_free(flat);
            }
            if (wrong > 0)
                printf("\n    %s, T %d: %zu wrong", variants[v].name,
                       n_blocks, wrong);
            CHECK_INT(wrong, 0);
            weft_weights_close(w);
            done();
        }
}

/* Tiles of T blocks, put in reverse, make the very file of whole tensors. */
static void test_round_trip(void)
{
    static const enum weft_dtype dtype[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
    for (size_t v = 0; v < WEFT_COUNT(variants); v++)
        for (size_t d = 0; d < 3; d++) {
            struct weft_arch a = variant(v);
            struct weft_shape s = a.shape;
            struct weft_weights_writer_options o = {.dtype = dtype[d],
                                                    .stem = "again"};
            struct weft_weights_writer *out;
            struct weft_weights *w;
            struct weft_err err = {0};
            struct tile tile[64];
            fresh();
            write_model(&a, dir, dtype[d], 0);
            REQUIRE_OK(weft_shape_partition(&s, 8 >> d, &err), err);
            REQUIRE_OK(weft_weights_open(dir, &a, NULL, &w, &err), err);
            REQUIRE_OK(weft_weights_writer_open(dir, &a, &o, &out, &err),
                       err);
            for (size_t i = list_tiles(&s, tile); i-- > 0;) {
                const struct tile *t = &tile[i];
                float *flat = read_tile(w, &s, t);
                REQUIRE_OK(weft_weights_writer_put(out, &s, t->kind, t->layer,
                                                   t->block, flat, &err),
                           err);
                weft_free(flat);
            }
            REQUIRE_OK(weft_weights_writer_close(out, &err), err);
            weft_weights_close(w);
            CHECK(
                same_files(in("model.safetensors"), in("again.safetensors")));
            done();
        }
}

/* The reference's own files come out again byte for byte. */
static void test_reference_round_trip(void)
{
    static const char *const name[] = {"golden/llama", "golden/qwen2",
                                       "golden/qwen3"};
    for (size_t i = 0; i < WEFT_COUNT(name); i++) {
        struct weft_arch a;
        struct weft_weights_writer_options o = {.dtype = WEFT_F32};
        struct weft_weights_writer *out;
        struct weft_weights *w;
        struct weft_err err = {0};
        struct tile tile[64];
        const char *from = weft_test_data(name[i]);
        char original[4200];
        fresh();
        REQUIRE_OK(weft_arch_read(from, &a, &err), err);
        struct weft_shape s = a.shape;
        REQUIRE_OK(weft_shape_partition(&s, 2, &err), err);
        REQUIRE_OK(weft_weights_open(from, &a, NULL, &w, &err), err);
        REQUIRE_OK(weft_weights_writer_open(dir, &a, &o, &out, &err), err);
        for (size_t j = list_tiles(&s, tile); j-- > 0;) {
            float *flat = read_tile(w, &s, &tile[j]);
            REQUIRE_OK(weft_weights_writer_put(out, &s, tile[j].kind,
                                               tile[j].layer, tile[j].block,
                                               flat, &err),
                       err);
            weft_free(flat);
        }
        REQUIRE_OK(weft_weights_writer_close(out, &err), err);
        weft_weights_close(w);
        snprintf(original, sizeof original, "%s/model.safetensors", from);
        CHECK(same_files(original, in("model.safetensors")));
        done();
    }
}

static void test_shards(void)
{
    struct weft_arch a = variant(0);
    struct weft_shape s = a.shape;
    struct weft_weights *w;
    struct weft_err err = {0};
    struct tile tile[64];
    size_t wrong = 0;
    fresh();
    write_model(&a, dir, WEFT_F32, 200000);
    CHECK(!weft_file_exists(in("model.safetensors")));
    CHECK(weft_file_exists(in("model.safetensors.index.json")));
    CHECK(weft_file_exists(in("model-00001-of-00005.safetensors")));
    CHECK(weft_file_exists(in("model-00005-of-00005.safetensors")));
    REQUIRE_OK(weft_shape_partition(&s, 4, &err), err);
    REQUIRE_OK(weft_weights_open(dir, &a, NULL, &w, &err), err);
    for (size_t i = list_tiles(&s, tile); i-- > 0;) {
        float *flat = read_tile(w, &s, &tile[i]);
        wrong += count_wrong(&s, tile[i].kind, tile[i].layer, tile[i].block,
                             flat);
        weft_free(flat);
    }
    CHECK_INT(wrong, 0);
    weft_weights_close(w);
    done();
    fresh(); /* the sharded folder the reference wrote */
    REQUIRE_OK(weft_arch_read(weft_test_data("golden/mistral"), &a, &err),
               err);
    REQUIRE_OK(weft_weights_open(weft_test_data("golden/mistral"), &a, NULL,
                                 &w, &err),
               err);
    weft_weights_close(w);
    done();
}

/* ---- Threads ---------------------------------------------------------- */

struct worker {
    const struct weft_weights *in;
    struct weft_weights_writer *out;
    const struct weft_shape *shape;
    int32_t block;
    int rc;
};

static void *work(void *p)
{
    struct worker *me = p;
    struct tile tile[64];
    for (size_t i = list_tiles(me->shape, tile); i-- > 0;) {
        struct weft_layout l;
        const struct tile *t = &tile[i];
        if (t->block != me->block)
            continue;
        weft_layout_get(me->shape, t->kind, t->block, &l);
        float *flat = weft_alloc(l.n_flat, sizeof *flat);
        if (!me->rc && flat)
            me->rc = weft_weights_read_tile(me->in, me->shape, t->kind,
                                            t->layer, t->block, flat, NULL);
        if (!me->rc && flat)
            me->rc = weft_weights_writer_put(me->out, me->shape, t->kind,
                                             t->layer, t->block, flat, NULL);
        weft_free(flat);
    }
    return NULL;
}

static void test_threads(void)
{
    struct weft_arch a = variant(2);
    struct weft_shape s = a.shape;
    struct weft_weights_writer_options o = {.stem = "again"};
    struct weft_weights_writer *out;
    struct weft_weights *w;
    struct weft_err err = {0};
    struct worker worker[4];
    pthread_t thread[4];
    fresh();
    write_model(&a, dir, WEFT_F32, 0);
    REQUIRE_OK(weft_shape_partition(&s, 4, &err), err);
    REQUIRE_OK(weft_weights_open(dir, &a, NULL, &w, &err), err);
    REQUIRE_OK(weft_weights_writer_open(dir, &a, &o, &out, &err), err);
    for (int32_t i = 0; i < 4; i++) {
        worker[i] = (struct worker){w, out, &s, i, 0};
        REQUIRE(pthread_create(&thread[i], NULL, work, &worker[i]) == 0);
    }
    for (int32_t i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        CHECK_INT(worker[i].rc, 0);
    }
    REQUIRE_OK(weft_weights_writer_close(out, &err), err);
    weft_weights_close(w);
    CHECK(same_files(in("model.safetensors"), in("again.safetensors")));
    done();
}

/* ---- Scalar heads ----------------------------------------------------- */

static void test_score_from_trunk(void)
{
    struct weft_arch a = variant(0);
    struct weft_weights_options o = {.score = WEFT_SCORE_ZERO};
    struct weft_weights *w;
    struct weft_err err = {0};
    fresh();
    write_model(&a, dir, WEFT_F32, 0);
    weft_arch_make_scalar(&a);
    struct weft_shape s = a.shape;
    REQUIRE_OK(weft_shape_partition(&s, 1, &err), err);
    CHECK_FAILS(weft_weights_open(dir, &a, NULL, &w, &err), WEFT_ENOTFOUND,
                err, "tensor 'score.weight' is missing");
    const struct tile final = {WEFT_TILE_FINAL, -1, 0};
    struct weft_layout l;
    weft_layout_get(&s, WEFT_TILE_FINAL, 0, &l);
    size_t at = weft_layout_part(&l, WEFT_PART_SCORE)->offset;
    REQUIRE_OK(weft_weights_open(dir, &a, &o, &w, &err), err);
    float *x = read_tile(w, &s, &final);
    for (int32_t i = 0; i < s.hidden; i++)
        CHECK(x[at + (size_t) i] == 0 && x[i] != 0);
    weft_free(x);
    weft_weights_close(w);

    o = (struct weft_weights_options){.score = WEFT_SCORE_RANDOM, .seed = 5};
    double sum = 0;
    for (int twice = 0; twice < 2; twice++) {
        REQUIRE_OK(weft_weights_open(dir, &a, &o, &w, &err), err);
        x = read_tile(w, &s, &final);
        for (int32_t i = 0; i < s.hidden; i++)
            sum += (double) x[at + (size_t) i] * (double) x[at + (size_t) i];
        weft_free(x);
        weft_weights_close(w);
    }
    /* 2 * 44 squares of deviation 1 / sqrt(45): 88 / 45, within 4 sigma */
    CHECK(fabs(sum - 88.0 / 45) < 4 * 2 * sqrt(2.0 * 44) / 45);
    done();
}

/* Other names of a scalar head, and a vector instead of (1, H). */
static void test_score_names(void)
{
    static const char *const name[] = {"score.weight", "v_head.weight",
                                       "v_head.summary.weight"};
    for (size_t i = 0; i < WEFT_COUNT(name); i++) {
        struct weft_arch a = variant(3);
        struct weft_weights *w;
        struct weft_err err = {0};
        struct weft_st_spec spec[32];
        struct weft_tensor t[32];
        struct weft_st_writer *st;
        float x[44];
        fresh();
        size_t n = weft_tensor_count(&a.shape);
        for (size_t j = 0; j < n; j++) {
            weft_tensor_get(&a.shape, j, &t[j]);
            spec[j] = (struct weft_st_spec){t[j].name, WEFT_F32, t[j].rows,
                                            t[j].cols};
        }
        spec[n - 1] = (struct weft_st_spec){name[i], WEFT_F32, 44, 0};
        for (int j = 0; j < 44; j++)
            x[j] = (float) j;
        bool biased = i == 2;
        if (biased)
            spec[n] = (struct weft_st_spec){"v_head.summary.bias", WEFT_F32,
                                            1, 0};
        for (int bias = 0; bias <= biased; bias++) {
            REQUIRE_OK(weft_st_writer_open(in("model.safetensors"),
                                           n + biased, spec, &st, &err),
                       err);
            REQUIRE_OK(weft_st_writer_put(st, n - 1, 0, 44, x, &err), err);
            if (bias)
                REQUIRE_OK(weft_st_writer_put(st, n, 0, 1, x + 1, &err), err);
            REQUIRE_OK(weft_st_writer_close(st, &err), err);
            if (bias) {
                CHECK_FAILS(weft_weights_open(dir, &a, NULL, &w, &err),
                            WEFT_EUNSUPPORTED, err, "with a bias");
                continue;
            }
            struct weft_shape s = a.shape;
            REQUIRE_OK(weft_shape_partition(&s, 2, &err), err);
            REQUIRE_OK(weft_weights_open(dir, &a, NULL, &w, &err), err);
            float *flat = read_tile(w, &s,
                                    &(struct tile){WEFT_TILE_FINAL, -1, 0});
            CHECK(memcmp(flat + 48, x, sizeof x) == 0); /* 44 to 64 bytes */
            weft_free(flat);
            weft_weights_close(w);
        }
        done();
    }
}

int main(void)
{
    static const struct weft_test tests[] = {
        {"test_tensor_order", test_tensor_order},
        {"test_tiles", test_tiles},
        {"test_round_trip", test_round_trip},
        {"test_reference_round_trip", test_reference_round_trip},
        {"test_shards", test_shards},
        {"test_threads", test_threads},
        {"test_score_from_trunk", test_score_from_trunk},
        {"test_score_names", test_score_names},
    };
    weft_log_set_level(WEFT_LOG_ERROR);
    return weft_test_main("model/weights", tests, WEFT_COUNT(tests));
}
