/* SPDX-License-Identifier: Apache-2.0 */
/* What model/weights*.c refuses, to read and to write. */
#include "weights_fixture.h"

#include <math.h>

#include "base/log.h"
#include "model/safetensors.h"

/* A model's file with one tensor changed: another name, shape or value. */
static void write_with(const struct weft_arch *a, enum weft_tensor_id id,
                       int32_t layer, const char *name, int64_t rows,
                       int64_t cols, size_t bad_at, float bad)
{
    struct weft_st_spec spec[64];
    struct weft_tensor t[64];
    struct weft_st_writer *st;
    struct weft_err err = {0};
    size_t n = weft_tensor_count(&a->shape);
    size_t at = (size_t) weft_tensor_index(&a->shape, id, layer);
    for (size_t j = 0; j < n; j++) {
        weft_tensor_get(&a->shape, j, &t[j]);
        spec[j] = (struct weft_st_spec){t[j].name, WEFT_F32, t[j].rows,
                                        t[j].cols};
    }
    spec[at] = (struct weft_st_spec){name ? name : t[at].name, WEFT_F32, rows,
                                     cols};
    REQUIRE_OK(
        weft_st_writer_open(in("model.safetensors"), n, spec, &st, &err),
        err);
    REQUIRE_OK(weft_st_writer_put(st, at, bad_at, 1, &bad, &err), err);
    REQUIRE_OK(weft_st_writer_close(st, &err), err);
}

static void test_wrong_tensors(void)
{
    struct weft_arch a = variant(0);
    struct weft_weights *w;
    struct weft_err err;
    fresh();
    write_with(&a, WEFT_TENSOR_DOWN, 1, "elsewhere", 44, 530, 0, 1);
    CHECK_FAILS(weft_weights_open(dir, &a, NULL, &w, &err), WEFT_ENOTFOUND,
                err,
                "tensor 'model.layers.1.mlp.down_proj.weight' is "
                "missing among the 21");
    write_with(&a, WEFT_TENSOR_HEAD, -1, "head", 601, 44, 0, 1);
    CHECK_FAILS(weft_weights_open(dir, &a, NULL, &w, &err), WEFT_ENOTFOUND,
                err, "\"tie_word_embeddings\": true");
    write_with(&a, WEFT_TENSOR_K, 0, NULL, 44, 12, 0, 1);
    CHECK_FAILS(weft_weights_open(dir, &a, NULL, &w, &err), WEFT_EFORMAT, err,
                "'model.layers.0.self_attn.k_proj.weight' has shape "
                "[44, 12]; config.json makes it [12, 44]");
    CHECK(strstr(err.text, in("model.safetensors")) != NULL);
    write_with(&a, WEFT_TENSOR_NORM, -1, NULL, 44, 1, 0, 1);
    CHECK_FAILS(weft_weights_open(dir, &a, NULL, &w, &err), WEFT_EFORMAT, err,
                "has shape [44, 1]; config.json makes it [44]");
    done();
    CHECK_FAILS(weft_weights_open(dir, &a, NULL, &w, &err), WEFT_ENOTFOUND,
                err, "there is no model folder");
}

static void test_names_without_prefix(void)
{
    struct weft_arch a = variant(0);
    struct weft_weights *w;
    struct weft_err err = {0};
    fresh();
    write_with(&a, WEFT_TENSOR_Q, 1, "layers.1.self_attn.q_proj.weight", 48,
               44, 0, 1);
    REQUIRE_OK(weft_weights_open(dir, &a, NULL, &w, &err), err);
    weft_weights_close(w);
    done();
}

static void test_not_finite(void)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    static const char *const word[] = {"NaN", "infinite", "infinite"};
    struct weft_arch a = variant(0);
    struct weft_shape s = a.shape;
    struct weft_err err = {0};
    struct weft_layout l;
    fresh();
    REQUIRE_OK(weft_shape_partition(&s, 2, &err), err);
    weft_layout_get(&s, WEFT_TILE_LAYER, 1, &l);
    float *flat = weft_alloc(l.n_flat, sizeof *flat);
    REQUIRE(flat != NULL);
    for (int i = 0; i < 3; i++) {
        struct weft_weights *w;
        char part[200];
        write_with(&a, WEFT_TENSOR_GATE, 1, NULL, 530, 44, 500 * 44 + 7,
                   bad[i]);
        REQUIRE_OK(weft_weights_open(dir, &a, NULL, &w, &err), err);
        snprintf(part, sizeof part,
                 "tensor 'model.layers.1.mlp.gate_proj."
                 "weight': element [500, 7] is %s",
                 word[i]);
        CHECK_INT(
            weft_weights_read_tile(w, &s, WEFT_TILE_LAYER, 1, 0, flat, &err),
            0); /* the other half */
        CHECK_FAILS(
            weft_weights_read_tile(w, &s, WEFT_TILE_LAYER, 1, 1, flat, &err),
            WEFT_ENUMERIC, err, part);
        weft_weights_close(w);
    }
    weft_free(flat);
    done();
}

/* lm_head beside a tied embedding: the same bits, or refused. */
static void test_tied_head(void)
{
    struct weft_arch untied = variant(0), tied = variant(0);
    struct weft_weights *w;
    struct weft_err err = {0};
    tied.shape.tied = true;
    fresh();
    write_model(&untied, dir, WEFT_F32, 0);
    CHECK_FAILS(weft_weights_open(dir, &tied, NULL, &w, &err), WEFT_EFORMAT,
                err, "'lm_head.weight' differs from the embedding");
    /* both all zero but for the same element */
    write_with(&untied, WEFT_TENSOR_NORM, -1, NULL, 44, 0, 0, 1);
    REQUIRE_OK(weft_weights_open(dir, &tied, NULL, &w, &err), err);
    weft_weights_close(w);
    done();
}

static int open_writer(const struct weft_arch *a, enum weft_dtype dtype,
                       struct weft_weights_writer **out, struct weft_err *err)
{
    struct weft_weights_writer_options o = {.dtype = dtype,
                                            .max_shard_bytes = 100000};
    return weft_weights_writer_open(dir, a, &o, out, err);
}

static void test_writer_refusals(void)
{
    struct weft_arch a = variant(0);
    struct weft_weights_writer *w;
    struct weft_err err = {0};
    float x[44];
    for (int i = 0; i < 44; i++)
        x[i] = (float) i;
    fresh();
    REQUIRE_OK(open_writer(&a, WEFT_F32, &w, &err), err);
    CHECK_FAILS(weft_weights_writer_close(w, &err), WEFT_ESTATE, err,
                "tensor 'model.embed_tokens.weight' was put in part");
    CHECK(weft_path_is_free(dir)); /* nothing is left */
    REQUIRE_OK(open_writer(&a, WEFT_F32, &w, &err), err);
    x[7] = NAN;
    CHECK_FAILS(weft_weights_writer_put_tensor(w, 19, 0, 44, x, &err),
                WEFT_ENUMERIC, err, "tensor 'model.norm.weight': element 7");
    weft_weights_writer_abandon(w);
    REQUIRE_OK(open_writer(&a, WEFT_F16, &w, &err), err);
    x[7] = 65519;
    CHECK_INT(weft_weights_writer_put_tensor(w, 19, 0, 44, x, &err), 0);
    x[7] = -65520;
    CHECK_FAILS(weft_weights_writer_put_tensor(w, 19, 0, 44, x, &err),
                WEFT_ENUMERIC, err, "as a finite f16");
    weft_weights_writer_abandon(w);
    CHECK(weft_path_is_free(dir));
    done();
    CHECK_FAILS(open_writer(&a, WEFT_F32, &w, &err), WEFT_ENOTFOUND, err,
                "model-00001");
}

int main(void)
{
    static const struct weft_test tests[] = {
        {"test_wrong_tensors", test_wrong_tensors},
        {"test_names_without_prefix", test_names_without_prefix},
        {"test_not_finite", test_not_finite},
        {"test_tied_head", test_tied_head},
        {"test_writer_refusals", test_writer_refusals},
    };
    weft_log_set_level(WEFT_LOG_ERROR);
    return weft_test_main("model/weights_refused", tests, WEFT_COUNT(tests));
}
