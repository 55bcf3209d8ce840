/* SPDX-License-Identifier: Apache-2.0 */
#include "model/init.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "model/tensors.h"
#include "model/weights.h"

/* ---- Presets ---------------------------------------------------------- */

static const struct preset {
    const char *name;
    enum weft_family family;
    int32_t hidden, layers, heads, kv_heads, head_dim, intermediate, vocab;
    int32_t max_positions;
    double rope_theta;
    bool tied;
} presets[] = {
    /* 0.1M: tests */
    {"nano", WEFT_LLAMA, 64, 2, 4, 2, 16, 128, 0, 1024, 10000, true},
    /* 0.8M: examples */
    {"tiny", WEFT_LLAMA, 128, 4, 4, 2, 32, 384, 0, 2048, 10000, true},
    /* 110M, as GPT-2 small: benchmarks */
    {"110m", WEFT_LLAMA, 768, 12, 12, 12, 64, 2048, 32000, 2048, 10000, true},
    /* Qwen2.5-0.5B */
    {"0.5b", WEFT_QWEN2, 896, 24, 14, 2, 64, 4864, 151936, 32768, 1000000,
     true},
    /* Llama-3.2-1B */
    {"1b", WEFT_LLAMA, 2048, 16, 32, 8, 64, 8192, 128256, 131072, 500000,
     true},
    /* Llama-3.1-8B */
    {"8b", WEFT_LLAMA, 4096, 32, 32, 8, 128, 14336, 128256, 131072, 500000,
     false},
};

bool weft_init_preset(const char *name, struct weft_init_options *o)
{
    for (size_t i = 0; i < WEFT_COUNT(presets); i++) {
        const struct preset *p = &presets[i];
        if (strcmp(p->name, name) != 0)
            continue;
        o->family = p->family;
        o->hidden = p->hidden;
        o->layers = p->layers;
        o->heads = p->heads;
        o->kv_heads = p->kv_heads;
        o->head_dim = p->head_dim;
        o->intermediate = p->intermediate;
        o->vocab = p->vocab;
        o->max_positions = p->max_positions;
        o->rope_theta = p->rope_theta;
        o->tied = p->tied;
        return true;
    }
    return false;
}

/* ---- Weights ---------------------------------------------------------- */

enum { CHUNK = 1 << 16, NORMALS = 4 /* of one Philox block */ };

/* Writes elements [first, first + n) of a stream; `first` is a multiple of
 * NORMALS. Each pair of words of a Philox block gives two numbers by
 * Box-Muller, one by cosine and one by sine. */
static void fill_normal(uint64_t seed, uint32_t stream, size_t first,
                        size_t n, double std, float *x)
{
    for (size_t i = 0; i < n; i += NORMALS) {
        uint64_t block = (first + i) / NORMALS;
        uint32_t w[4];
        float z[NORMALS];
        weft_rng_words(seed, WEFT_RNG_INIT, stream, (uint32_t) (block >> 32),
                       (uint32_t) block, w);
        for (int j = 0; j < 2; j++) {
            double u = ((double) w[2 * j] + 0.5) * 0x1p-32;
            double angle = 6.283185307179586 * (double) w[2 * j + 1]
                         * 0x1p-32;
            double r = std * sqrt(-2.0 * log(u));
            z[2 * j] = (float) (r * cos(angle));
            z[2 * j + 1] = (float) (r * sin(angle));
        }
        for (size_t j = 0; j < NORMALS && i + j < n; j++)
            x[i + j] = z[j];
    }
}

static bool is_norm(enum weft_tensor_id id)
{
    return id == WEFT_TENSOR_NORM1 || id == WEFT_TENSOR_NORM2
        || id == WEFT_TENSOR_QNORM || id == WEFT_TENSOR_KNORM
        || id == WEFT_TENSOR_NORM;
}

static int fill_tensor(struct weft_weights_writer *w, size_t i,
                       const struct weft_tensor *t, uint64_t seed, double std,
                       float *chunk, struct weft_err *err)
{
    uint32_t stream = (uint32_t) t->id
                    + (uint32_t) WEFT_N_TENSOR_IDS
                          * (uint32_t) (t->layer + 1);
    size_t n = (size_t) t->rows * (size_t) weft_max64(t->cols, 1);
    int rc = 0;
    for (size_t first = 0; first < n && !rc; first += CHUNK) {
        size_t m = n - first < CHUNK ? n - first : CHUNK;
        if (t->cols > 0)
            fill_normal(seed, stream, first, m, std, chunk);
        else
            for (size_t j = 0; j < m; j++)
                chunk[j] = is_norm(t->id) ? 1.0f : 0.0f;
        rc = weft_weights_writer_put_tensor(w, i, first, m, chunk, err);
    }
    return rc;
}

static int write_weights(const struct weft_init_options *o, const char *dir,
                         const struct weft_arch *a, struct weft_err *err)
{
    struct weft_weights_writer_options options = {
        .dtype = o->dtype, .max_shard_bytes = o->max_shard_bytes};
    struct weft_weights_writer *w;
    float *chunk = weft_alloc(CHUNK, sizeof *chunk);
    if (!chunk)
        return weft_err_nomem(err, "weights", CHUNK * sizeof *chunk);
    int rc = weft_weights_writer_open(dir, a, &options, &w, err);
    if (rc)
        goto out;
    for (size_t i = 0; i < weft_tensor_count(&a->shape) && !rc; i++) {
        struct weft_tensor t;
        weft_tensor_get(&a->shape, i, &t);
        rc = fill_tensor(w, i, &t, o->seed, a->initializer_range, chunk, err);
    }
    if (rc)
        weft_weights_writer_abandon(w);
    else
        rc = weft_weights_writer_close(w, err);
out:
    weft_free(chunk);
    return rc;
}

/* ---- The model --------------------------------------------------------- */

static int check_options(const struct weft_init_options *o,
                         struct weft_err *err)
{
    if (o->hidden < 1 || o->layers < 1 || o->heads < 1)
        return weft_err_set(err, WEFT_EINVAL,
                            "hidden size, layers and heads must be given and "
                            "be 1 or more");
    if (o->head_dim == 0 && o->hidden % o->heads != 0)
        return weft_err_set(err, WEFT_EINVAL,
                            "hidden size %d is not a multiple of the %d "
                            "heads, and no head size is given",
                            o->hidden, o->heads);
    if (o->attention_bias && o->family == WEFT_MISTRAL)
        return weft_err_set(err, WEFT_EINVAL,
                            "the family mistral has no attention biases");
    return 0;
}

static void describe(const struct weft_init_options *o, struct weft_arch *a)
{
    struct weft_shape *s = &a->shape;
    *a = (struct weft_arch){.family = o->family,
                            .dtype = o->dtype,
                            .bos = -1,
                            .pad = -1,
                            .initializer_range = o->std > 0 ? o->std : 0.02,
                            .generation = {.temperature = 1,
                                           .top_k = 50,
                                           .top_p = 1,
                                           .repetition_penalty = 1}};
    s->hidden = o->hidden;
    s->n_layers = o->layers;
    s->n_heads = o->heads;
    s->n_kv_heads = o->kv_heads ? o->kv_heads : o->heads;
    s->head_dim = o->head_dim ? o->head_dim : o->hidden / o->heads;
    s->intermediate = o->intermediate ? o->intermediate
                                      : (int32_t) weft_round_up(
                                          (int64_t) o->hidden * 8 / 3, 64);
    s->vocab = o->vocab;
    s->max_positions = o->max_positions ? o->max_positions : 2048;
    s->rms_eps = 1e-5f;
    s->rope_theta = o->rope_theta > 0 ? o->rope_theta : 10000;
    s->qk_norm = o->family == WEFT_QWEN3;
    s->qkv_bias = o->family == WEFT_QWEN2 || o->attention_bias;
    s->o_bias = o->family != WEFT_QWEN2 && o->attention_bias;
    s->tied = o->tied;
    s->dtype = o->dtype == WEFT_BF16 ? WEFT_BF16 : WEFT_F32;
    if (o->scalar_head)
        weft_arch_make_scalar(a);
}

int weft_init_arch(const struct weft_init_options *o, struct weft_arch *out,
                   struct weft_err *err)
{
    int rc = check_options(o, err);
    if (!rc)
        describe(o, out);
    return rc;
}

int weft_init_write(const struct weft_init_options *o,
                    const struct weft_arch *arch, const char *dir,
                    struct weft_err *err)
{
    int rc = weft_arch_write(dir, arch, err);
    return rc ? rc : write_weights(o, dir, arch, err);
}
