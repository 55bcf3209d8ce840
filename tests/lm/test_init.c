/* SPDX-License-Identifier: Apache-2.0 */
/* run/init.c: what `weft init` makes is a model that opens, is normal where
 * it should be, and is a function of the seed. */
#include <dirent.h>
#include <math.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "folder.h"
#include "model/safetensors.h"
#include "text/tokenizer.h"
#include "model/weights.h"
#include "lm/init.h"

static struct weft_init_options nano(void)
{
    struct weft_init_options o = {.seed = 7, .tokenizer = "bytes"};
    REQUIRE(weft_init_preset("nano", &o));
    return o;
}

static struct weft_hash hash_of(const char *model)
{
    struct weft_hash h = {0, 0};
    struct weft_err err = {0};
    uint64_t n;
    char path[300];
    snprintf(path, sizeof path, "%s/model.safetensors", model);
    REQUIRE_OK(weft_hash_file(path, &h, &n, &err), err);
    return h;
}

static void test_folder(void)
{
    struct weft_init_options o = nano();
    struct weft_arch made, a;
    struct weft_weights *w;
    struct weft_tokenizer *tok;
    struct weft_err err = {0};
    folder_make();
    REQUIRE_OK(weft_init_model(&o, in("m"), &made, &err), err);
    REQUIRE_OK(weft_arch_read(in("m"), &a, &err), err);
    CHECK_INT(a.family, WEFT_LLAMA);
    CHECK(a.shape.tied);
    CHECK_INT(a.shape.hidden, 64);
    CHECK_INT(a.shape.n_kv_heads, 2);
    REQUIRE_OK(weft_weights_open(in("m"), &a, NULL, &w, &err), err);
    weft_weights_close(w);
    REQUIRE_OK(weft_tokenizer_open(in("m"), &tok, &err), err);
    CHECK_INT(a.shape.vocab, weft_tokenizer_size(tok));
    CHECK_INT(a.shape.vocab, 259);
    CHECK_INT(a.n_eos, 1);
    CHECK_INT(a.eos[0], weft_tokenizer_find(tok, "<|endoftext|>"));
    CHECK_INT(a.pad, a.eos[0]);
    CHECK_INT(a.bos, -1);
    weft_tokenizer_free(tok);
    CHECK(memcmp(&made.shape, &a.shape, sizeof a.shape) == 0);
    folder_remove();
}

/* Mean within 4 deviations of the mean, spread within 4 of the spread, and
 * about 68.3 % inside one deviation. */
static void test_distribution(void)
{
    struct weft_init_options o = nano();
    struct weft_safetensors *st;
    struct weft_err err = {0};
    o.family = WEFT_QWEN2;
    o.std = 0.05;
    folder_make();
    REQUIRE_OK(weft_init_model(&o, in("m"), NULL, &err), err);
    REQUIRE_OK(weft_safetensors_open(in("m"), "model", &st, &err), err);
    for (size_t i = 0; i < weft_safetensors_count(st); i++) {
        const struct weft_st_tensor *t = weft_safetensors_get(st, i);
        float *x = weft_alloc(t->n, sizeof *x);
        REQUIRE(x != NULL);
        weft_st_tensor_read(t, 0, t->n, x);
        if (t->n_dims == 1) {
            float wanted = strstr(t->name, "bias") ? 0 : 1;
            for (size_t j = 0; j < t->n; j++)
                CHECK(x[j] == wanted);
            weft_free(x);
            continue;
        }
        double sum = 0, squares = 0, inside = 0, n = (double) t->n;
        for (size_t j = 0; j < t->n; j++) {
            double z = (double) x[j] / 0.05;
            sum += z;
            squares += z * z;
            inside += fabs(z) < 1;
        }
        CHECK(fabs(sum / n) < 4 / sqrt(n));
        CHECK(fabs(squares / n - 1) < 4 * sqrt(2 / n));
        CHECK(fabs(inside / n - 0.6827) < 4 * sqrt(0.6827 * 0.3173 / n));
        weft_free(x);
    }
    weft_safetensors_close(st);
    folder_remove();
}

static void test_seed(void)
{
    struct weft_init_options o = nano();
    struct weft_err err = {0};
    folder_make();
    REQUIRE_OK(weft_init_model(&o, in("a"), NULL, &err), err);
    REQUIRE_OK(weft_init_model(&o, in("b"), NULL, &err), err);
    o.seed++;
    REQUIRE_OK(weft_init_model(&o, in("c"), NULL, &err), err);
    CHECK(weft_hash_equal(hash_of(in("a")), hash_of(in("b"))));
    CHECK(!weft_hash_equal(hash_of(in("a")), hash_of(in("c"))));
    folder_remove();
}

/* A scalar model, a sharded one, one with more layers: the shared tensors
 * have the same bits; bf16 is their rounding. */
static void test_same_numbers(void)
{
    struct weft_init_options o = nano(), scalar = o, longer = o;
    struct weft_safetensors *a, *b;
    struct weft_err err = {0};
    folder_make();
    REQUIRE_OK(weft_init_model(&o, in("a"), NULL, &err), err);
    scalar.scalar_head = true;
    scalar.max_shard_bytes = 100000;
    longer.layers = 3;
    longer.dtype = WEFT_BF16;
    const struct weft_init_options *other[2] = {&scalar, &longer};
    REQUIRE_OK(weft_safetensors_open(in("a"), "model", &a, &err), err);
    for (int i = 0; i < 2; i++) {
        size_t compared = 0, wrong = 0;
        REQUIRE_OK(weft_init_model(other[i], in(i ? "c" : "b"), NULL, &err),
                   err);
        REQUIRE_OK(
            weft_safetensors_open(in(i ? "c" : "b"), "model", &b, &err), err);
        for (size_t j = 0; j < weft_safetensors_count(a); j++) {
            const struct weft_st_tensor *x = weft_safetensors_get(a, j);
            const struct weft_st_tensor *y;
            y = weft_safetensors_find(b, x->name);
            REQUIRE(y != NULL && y->n == x->n);
            for (size_t k = 0; k < x->n; k++) {
                float u, v;
                weft_st_tensor_read(x, k, 1, &u);
                weft_st_tensor_read(y, k, 1, &v);
                if (other[i]->dtype == WEFT_BF16)
                    u = weft_bf16_to_f32(weft_f32_to_bf16(u));
                wrong += u != v;
                compared++;
            }
        }
        CHECK(compared > 50000);
        CHECK_INT(wrong, 0);
        weft_safetensors_close(b);
    }
    weft_safetensors_close(a);
    struct weft_arch arch;
    REQUIRE_OK(weft_arch_read(in("b"), &arch, &err), err);
    CHECK(arch.shape.scalar_head);
    folder_remove();
}

static void test_copied_tokenizer(void)
{
    struct weft_init_options o = nano(), copy = o;
    struct weft_arch a;
    struct weft_err err = {0};
    char from[300];
    folder_make();
    REQUIRE_OK(weft_init_model(&o, in("a"), NULL, &err), err);
    snprintf(from, sizeof from, "%s", in("a"));
    copy.tokenizer = from;
    copy.vocab = 300;
    REQUIRE_OK(weft_init_model(&copy, in("b"), NULL, &err), err);
    REQUIRE_OK(weft_arch_read(in("b"), &a, &err), err);
    CHECK_INT(a.shape.vocab, 300);
    CHECK_INT(a.eos[0], 256);
    CHECK(weft_file_exists(in("b/tokenizer_config.json")));
    copy.vocab = 258;
    CHECK_FAILS(weft_init_model(&copy, in("c"), NULL, &err), WEFT_EINVAL, err,
                "a vocabulary of 258 is smaller than the tokenizer's 259");
    copy.tokenizer = dir;
    CHECK_FAILS(weft_init_model(&copy, in("c"), NULL, &err), WEFT_ENOTFOUND,
                err, "it has no tokenizer.json");
    folder_remove();
}

static void test_failures(void)
{
    struct weft_init_options o = nano();
    struct weft_err err = {0};
    folder_make();
    REQUIRE_OK(weft_init_model(&o, in("a"), NULL, &err), err);
    CHECK_FAILS(weft_init_model(&o, in("a"), NULL, &err), WEFT_EINVAL, err,
                "exists already");
    o.heads = 3;
    o.head_dim = 0;
    CHECK_FAILS(weft_init_model(&o, in("b"), NULL, &err), WEFT_EINVAL, err,
                "not a multiple of the 3 heads");
    o = nano();
    o.kv_heads = 3;
    CHECK_FAILS(weft_init_model(&o, in("b"), NULL, &err), WEFT_EINVAL, err,
                "'num_key_value_heads' 3");
    o = nano();
    o.tokenizer = NULL;
    CHECK_FAILS(weft_init_model(&o, in("b"), NULL, &err), WEFT_EINVAL, err,
                "without a tokenizer");
    o = nano();
    o.hidden = 1 << 16;
    o.heads = 512;
    o.kv_heads = o.head_dim = 0;
    o.intermediate = 1 << 20;
    o.layers = 1000; /* 800 TB */
    CHECK_FAILS(weft_init_model(&o, in("b"), NULL, &err), WEFT_EFULL, err,
                "disk full");
    o = nano();
    o.layers = 0;
    CHECK_FAILS(weft_init_model(&o, in("b"), NULL, &err), WEFT_EINVAL, err,
                "must be given");
    int entries = 0;
    DIR *d = opendir(dir);
    while (d && readdir(d))
        entries++;
    if (d)
        closedir(d);
    CHECK_INT(entries, 3); /* ., .., a: nothing half-made */
    folder_remove();
}

static void test_presets(void)
{
    static const char *const names[] = {"nano", "tiny", "110m",
                                        "0.5b", "1b",   "8b"};
    for (size_t i = 0; i < WEFT_COUNT(names); i++) {
        struct weft_init_options o = {0};
        CHECK(weft_init_preset(names[i], &o));
        CHECK(o.hidden > 0 && o.layers > 0 && o.heads % o.kv_heads == 0);
        if (strcmp(names[i], "110m") == 0) {
            struct weft_shape s = {.hidden = o.hidden,
                                   .n_layers = o.layers,
                                   .n_heads = o.heads,
                                   .n_kv_heads = o.kv_heads,
                                   .head_dim = o.head_dim,
                                   .intermediate = o.intermediate,
                                   .vocab = o.vocab,
                                   .tied = o.tied};
            CHECK_INT(weft_shape_n_params(&s), 109529856);
        }
    }
    CHECK(!weft_init_preset("7e", &(struct weft_init_options){0}));
}

WEFT_TESTS("run/init", {"test_folder", test_folder},
           {"test_distribution", test_distribution}, {"test_seed", test_seed},
           {"test_same_numbers", test_same_numbers},
           {"test_copied_tokenizer", test_copied_tokenizer},
           {"test_failures", test_failures}, {"test_presets", test_presets})
