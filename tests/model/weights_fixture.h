/* SPDX-License-Identifier: Apache-2.0 */
/* Model folders whose weights are a function of name and place, in a temporary
 * directory. */
#ifndef WEFT_TESTS_MODEL_WEIGHTS_FIXTURE_H
#define WEFT_TESTS_MODEL_WEIGHTS_FIXTURE_H

#include <unistd.h>

#include "harness.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash.h"
#include "model/tensors.h"
#include "model/weights.h"

static char dir[64];

static inline const char *in(const char *name)
{
    static char path[8][256];
    static int i;
    i = (i + 1) % 8;
    snprintf(path[i], sizeof path[i], "%s/%s", dir, name);
    return path[i];
}

static inline void fresh(void)
{
    snprintf(dir, sizeof dir, "/tmp/weft-w-XXXXXX");
    REQUIRE(mkdtemp(dir) != NULL);
}

static inline void done(void)
{
    struct weft_err err = {0};
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
}

/* ---- Models whose weights are a function of name and place ------------ */

/* Two KV heads for eight query heads: blocks share them from T = 4 on. Sizes
 * are no multiples of panels. */
static inline struct weft_arch arch(enum weft_family family)
{
    struct weft_arch a = {
        .family = family, .bos = -1, .pad = -1, .initializer_range = 0.02};
    a.shape = (struct weft_shape){.hidden = 44,
                                  .n_layers = 2,
                                  .n_heads = 8,
                                  .n_kv_heads = 2,
                                  .head_dim = 6,
                                  .intermediate = 530,
                                  .vocab = 601,
                                  .max_positions = 64,
                                  .rms_eps = 1e-5f,
                                  .rope_theta = 1e4};
    return a;
}

static const struct variant {
    const char *name;
    bool tied, qkv_bias, o_bias, qk_norm, scalar;
    int32_t kv_heads;
} variants[] = {
    {"plain", false, false, false, false, false, 2},
    {"tied with biases", true, true, false, false, false, 2},
    {"norms, all biases", false, true, true, true, false, 4},
    {"scalar", false, false, false, false, true, 8},
    {"one KV head", false, true, false, false, false, 1},
};

static inline struct weft_arch variant(size_t i)
{
    struct weft_arch a = arch(WEFT_LLAMA);
    a.shape.tied = variants[i].tied;
    a.shape.qkv_bias = variants[i].qkv_bias;
    a.shape.o_bias = variants[i].o_bias;
    a.shape.qk_norm = variants[i].qk_norm;
    a.shape.scalar_head = variants[i].scalar;
    a.shape.n_kv_heads = variants[i].kv_heads;
    return a;
}

static inline float value(const char *name, int64_t row, int64_t col)
{
    int64_t key[2] = {row, col};
    uint64_t h = weft_hash64(name, strlen(name)) ^ weft_hash64(key, 16);
    return (float) ((int64_t) (h >> 40) - (1 << 23)) * 0x1p-24f;
}

static inline void write_model(const struct weft_arch *a, const char *path,
                               enum weft_dtype dtype,
                               uint64_t max_shard_bytes)
{
    struct weft_weights_writer_options o = {
        .dtype = dtype, .max_shard_bytes = max_shard_bytes};
    struct weft_weights_writer *w;
    struct weft_err err = {0};
    REQUIRE_OK(weft_weights_writer_open(path, a, &o, &w, &err), err);
    for (size_t i = 0; i < weft_tensor_count(&a->shape); i++) {
        struct weft_tensor t;
        weft_tensor_get(&a->shape, i, &t);
        int64_t cols = t.cols ? t.cols : 1;
        float *x = weft_alloc((size_t) (t.rows * cols), sizeof *x);
        REQUIRE(x != NULL);
        for (int64_t j = 0; j < t.rows * cols; j++)
            x[j] = value(t.name, j / cols, j % cols);
        REQUIRE_OK(weft_weights_writer_put_tensor(
                       w, i, 0, (size_t) (t.rows * cols), x, &err),
                   err);
        weft_free(x);
    }
    REQUIRE_OK(weft_weights_writer_close(w, &err), err);
}

#endif
