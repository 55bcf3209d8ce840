/* SPDX-License-Identifier: Apache-2.0 */
/* model/arch.c: config.json of all families and spellings, every refusal by
 * name, and what is written reads back. */
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "harness.h"
#include "model/arch.h"

/* What all families need; %s: more keys. */
#define SIZES                                                                \
    "\"vocab_size\": 320, \"hidden_size\": 64, \"intermediate_size\": 176, " \
    "\"num_hidden_layers\": 3, \"num_attention_heads\": 8"
#define LLAMA(more) "{\"model_type\": \"llama\", " SIZES ", " more "}"
#define FAMILY(name, more)                                                   \
    "{\"model_type\": \"" name "\", " SIZES                                  \
    ", \"num_key_value_heads\": 2, " more "}"

static int parse(const char *text, struct weft_arch *out,
                 struct weft_err *err)
{
    return weft_arch_parse(text, strlen(text), "m/config.json", out, err);
}

static struct weft_arch good(const char *text)
{
    struct weft_arch a = {0};
    struct weft_err err = {0};
    REQUIRE_OK(parse(text, &a, &err), err);
    return a;
}

static void test_llama(void)
{
    struct weft_arch a = good(
        LLAMA("\"architectures\": [\"LlamaForCausalLM\"], "
              "\"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-05, "
              "\"rope_theta\": 500000.0, \"torch_dtype\": \"bfloat16\", "
              "\"bos_token_id\": 300, \"eos_token_id\": [301, 302, 301], "
              "\"pad_token_id\": null, \"max_position_embeddings\": 4096, "
              "\"rope_scaling\": {\"factor\": 8.0, \"low_freq_factor\": 1.0, "
              "\"high_freq_factor\": 4.0, \"rope_type\": \"llama3\", "
              "\"original_max_position_embeddings\": 8192}"));
    CHECK_INT(a.family, WEFT_LLAMA);
    CHECK_INT(a.shape.hidden, 64);
    CHECK_INT(a.shape.n_layers, 3);
    CHECK_INT(a.shape.n_heads, 8);
    CHECK_INT(a.shape.n_kv_heads, 2);
    CHECK_INT(a.shape.head_dim, 8);
    CHECK_INT(a.shape.intermediate, 176);
    CHECK_INT(a.shape.vocab, 320);
    CHECK_INT(a.shape.max_positions, 4096);
    CHECK(a.shape.rms_eps == 1e-5f);
    CHECK_INT(a.shape.rope, WEFT_ROPE_LLAMA3);
    CHECK(a.shape.rope_theta == 500000 && a.shape.rope_factor == 8);
    CHECK(a.shape.rope_low == 1 && a.shape.rope_high == 4);
    CHECK_INT(a.shape.rope_original, 8192);
    CHECK(!a.shape.qkv_bias && !a.shape.o_bias && !a.shape.qk_norm);
    CHECK(!a.shape.tied && !a.shape.scalar_head);
    CHECK_INT(a.dtype, WEFT_BF16);
    CHECK_INT(a.shape.dtype, WEFT_BF16);
    CHECK_INT(a.bos, 300);
    CHECK_INT(a.pad, -1);
    CHECK_INT(a.n_eos, 2);
    CHECK_INT(a.eos[0], 301);
    CHECK_INT(a.eos[1], 302);
    CHECK_INT(a.shape.n_blocks, 0);
}

/* What config.json does not say: transformers' class defaults. */
static void test_defaults(void)
{
    struct weft_arch a = good(LLAMA("\"head_dim\": null"));
    CHECK_INT(a.shape.n_kv_heads, 8);
    CHECK_INT(a.shape.head_dim, 8);
    CHECK_INT(a.shape.max_positions, 2048);
    CHECK(a.shape.rms_eps == 1e-6f && a.shape.rope_theta == 10000);
    CHECK_INT(a.shape.rope, WEFT_ROPE_DEFAULT);
    CHECK_INT(a.bos, 1);
    CHECK_INT(a.n_eos, 1);
    CHECK_INT(a.eos[0], 2);
    CHECK_INT(a.dtype, WEFT_F32);
    CHECK(a.initializer_range == 0.02);
    a = good(LLAMA("\"bos_token_id\": null, \"eos_token_id\": null"));
    CHECK_INT(a.bos, -1);
    CHECK_INT(a.n_eos, 0);
    a = good(FAMILY("qwen3", "\"dtype\": \"float16\""));
    CHECK_INT(a.shape.head_dim, 128);
    CHECK(a.shape.qk_norm && !a.shape.qkv_bias);
    CHECK_INT(a.n_eos, 0);
    CHECK_INT(a.dtype, WEFT_F16);
    CHECK_INT(a.shape.dtype, WEFT_F32);
    a = good(FAMILY("qwen2",
                    "\"tie_word_embeddings\": true, "
                    "\"sliding_window\": 32768, \"max_window_layers\": 3, "
                    "\"use_sliding_window\": false"));
    CHECK(a.shape.qkv_bias && !a.shape.o_bias && a.shape.tied);
    a = good(FAMILY("mistral", "\"sliding_window\": null"));
    CHECK_INT(a.family, WEFT_MISTRAL);
    CHECK_INT(a.shape.max_positions, 131072);
    a = good(LLAMA("\"attention_bias\": true"));
    CHECK(a.shape.qkv_bias && a.shape.o_bias);
    a = good(FAMILY("qwen3", "\"attention_bias\": true"));
    CHECK(a.shape.qkv_bias && a.shape.o_bias);
    a = good("{\"model_type\": \"mistral\", \"sliding_window\": null, " SIZES
             "}"); /* mistral's default of 8 KV heads */
    CHECK_INT(a.shape.n_kv_heads, 8);
}

static void test_rope_spellings(void)
{
    static const char *const linear[] = {
        LLAMA("\"rope_theta\": 20000.0, "
              "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}"),
        LLAMA(
            "\"rope_theta\": 20000, "
            "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2.5}"),
        LLAMA("\"rope_parameters\": {\"rope_type\": \"linear\", "
              "\"factor\": 2.5, \"rope_theta\": 20000.0}"),
        LLAMA("\"rope_theta\": 20000.0, \"rope_parameters\": {\"rope_type\": "
              "\"linear\", \"factor\": 2.5, \"rope_theta\": 20000.0}, "
              "\"rope_scaling\": {\"rope_type\": \"linear\", "
              "\"factor\": 2.5}"),
    };
    for (size_t i = 0; i < WEFT_COUNT(linear); i++) {
        struct weft_arch a = good(linear[i]);
        CHECK_INT(a.shape.rope, WEFT_ROPE_LINEAR);
        CHECK(a.shape.rope_theta == 20000 && a.shape.rope_factor == 2.5);
    }
    struct weft_arch a = good(LLAMA("\"rope_parameters\": {\"rope_type\": "
                                    "\"default\", \"rope_theta\": 7.0}"));
    CHECK_INT(a.shape.rope, WEFT_ROPE_DEFAULT);
    CHECK(a.shape.rope_theta == 7);
    a = good(LLAMA("\"original_max_position_embeddings\": 512, "
                   "\"rope_parameters\": {\"rope_type\": \"llama3\", "
                   "\"factor\": 2, \"low_freq_factor\": 1, "
                   "\"high_freq_factor\": 4}"));
    CHECK_INT(a.shape.rope_original, 512);
}

static void test_scalar_heads(void)
{
    static const char *const text[] = {
        LLAMA("\"architectures\": [\"LlamaForSequenceClassification\"], "
              "\"tie_word_embeddings\": true, \"num_labels\": 1"),
        LLAMA("\"architectures\": [\"LlamaForSequenceClassification\"], "
              "\"id2label\": {\"0\": \"LABEL_0\"}")};
    for (size_t i = 0; i < WEFT_COUNT(text); i++) {
        struct weft_arch a = good(text[i]);
        CHECK(a.shape.scalar_head && !a.shape.tied);
    }
    struct weft_arch a = good(LLAMA("\"tie_word_embeddings\": true"));
    weft_arch_make_scalar(&a);
    CHECK(a.shape.scalar_head && !a.shape.tied);
}

static void test_refusals(void)
{
    static const struct {
        int rc;
        const char *text, *part;
    } bad[] = {
        {WEFT_EFORMAT, "", "m/config.json:1: empty, where JSON is expected"},
        {WEFT_EFORMAT, "{\n \"model_type\": \"\\u0000\"}",
         "m/config.json:2:23: a string holds the zero character"},
        {WEFT_EFORMAT, "[1]", "must be a map of keys, not a list"},
        {WEFT_EFORMAT, "{}", "'model_type' is missing"},
        {WEFT_EFORMAT, "{\"a\": 1, \"a\": 2}", "duplicate"},
        {WEFT_EUNSUPPORTED, "{\"model_type\": \"gemma\"}",
         "'model_type' \"gemma\" is not supported; llama, qwen2, qwen3 and "
         "mistral are"},
        {WEFT_EFORMAT, "{\"model_type\": 3}", "'model_type' must be a text"},
        {WEFT_EFORMAT, "{\"model_type\": \"llama\"}",
         "'hidden_size' is missing"},
        {WEFT_EUNSUPPORTED, LLAMA("\"hidden_act\": \"gelu\""),
         "'hidden_act' \"gelu\""},
        {WEFT_EUNSUPPORTED, LLAMA("\"mlp_bias\": true"), "'mlp_bias'"},
        {WEFT_EUNSUPPORTED, LLAMA("\"quantization_config\": {}"),
         "'quantization_config'"},
        {WEFT_EUNSUPPORTED, LLAMA("\"num_local_experts\": 8"),
         "'num_local_experts'"},
        {WEFT_EUNSUPPORTED, LLAMA("\"sliding_window\": 4096"),
         "'sliding_window'"},
        {WEFT_EUNSUPPORTED, FAMILY("mistral", "\"sliding_window\": 4096"),
         "'sliding_window'"},
        {WEFT_EUNSUPPORTED, FAMILY("mistral", "\"use_cache\": true"),
         "'sliding_window' is absent"},
        {WEFT_EUNSUPPORTED, FAMILY("qwen2", "\"use_sliding_window\": true"),
         "'use_sliding_window'"},
        {WEFT_EUNSUPPORTED,
         FAMILY("qwen3", "\"layer_types\": [\"full_attention\", "
                         "\"sliding_attention\"]"),
         "layer 1 is \"sliding_attention\""},
        {WEFT_EUNSUPPORTED, FAMILY("qwen2", "\"attention_bias\": false"),
         "'attention_bias' false"},
        {WEFT_EUNSUPPORTED,
         FAMILY("mistral", "\"sliding_window\": null, "
                           "\"attention_bias\": true"),
         "'attention_bias' true"},
        {WEFT_EUNSUPPORTED, LLAMA("\"attention_dropout\": 0.1"),
         "'attention_dropout'"},
        {WEFT_EUNSUPPORTED,
         LLAMA("\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}"),
         "'rope_scaling': RoPE type \"yarn\""},
        {WEFT_EUNSUPPORTED,
         LLAMA("\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4}"),
         "RoPE type \"dynamic\""},
        {WEFT_EUNSUPPORTED,
         LLAMA("\"rope_parameters\": {\"rope_type\": \"longrope\"}"),
         "'rope_parameters': RoPE type \"longrope\""},
        {WEFT_EFORMAT, LLAMA("\"rope_scaling\": 2"), "must be a map"},
        {WEFT_EUNSUPPORTED, LLAMA("\"partial_rotary_factor\": 0.5"),
         "'partial_rotary_factor'"},
        {WEFT_EINVAL, LLAMA("\"rope_scaling\": {\"type\": \"linear\"}"),
         "'factor'"},
        {WEFT_EINVAL,
         LLAMA("\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, "
               "\"low_freq_factor\": 4, \"high_freq_factor\": 1}"),
         "'low_freq_factor'"},
        {WEFT_EINVAL,
         LLAMA("\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, "
               "\"low_freq_factor\": 1, \"high_freq_factor\": 4}"),
         "'original_max_position_embeddings'"},
        {WEFT_EINVAL,
         LLAMA("\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, "
               "\"rope_parameters\": {\"type\": \"linear\", \"factor\": 3}"),
         "disagree"},
        {WEFT_EINVAL,
         LLAMA("\"rope_theta\": 5.0, "
               "\"rope_parameters\": {\"rope_theta\": 6.0}"),
         "'rope_theta' is 5"},
        {WEFT_EINVAL, LLAMA("\"rope_theta\": 0"), "'rope_theta' is 0"},
        {WEFT_EUNSUPPORTED, LLAMA("\"dtype\": \"float8_e4m3fn\""),
         "'dtype' \"float8_e4m3fn\""},
        {WEFT_EUNSUPPORTED,
         LLAMA("\"architectures\": [\"LlamaForTokenClassification\"]"),
         "'architectures' \"LlamaForTokenClassification\""},
        {WEFT_EUNSUPPORTED,
         LLAMA("\"architectures\": [\"LlamaForSequenceClassification\"]"),
         "'num_labels' is 2 where it is absent"},
        {WEFT_EUNSUPPORTED,
         LLAMA("\"architectures\": [\"LlamaForSequenceClassification\"], "
               "\"num_labels\": 5"),
         "'num_labels' is 5"},
        {WEFT_EFORMAT, LLAMA("\"architectures\": \"x\""),
         "'architectures' must be a list"},
        {WEFT_EINVAL, LLAMA("\"num_key_value_heads\": 3"),
         "'num_key_value_heads' 3 does not divide the 8"},
        {WEFT_EINVAL, LLAMA("\"num_key_value_heads\": 16"),
         "'num_key_value_heads' is 16"},
        {WEFT_EINVAL, LLAMA("\"num_key_value_heads\": 0"),
         "'num_key_value_heads' is 0"},
        {WEFT_EINVAL, LLAMA("\"head_dim\": 7"), "'head_dim' is 7"},
        {WEFT_EFORMAT, LLAMA("\"head_dim\": 8.0"),
         "'head_dim' must be a whole number, not a fraction"},
        {WEFT_EINVAL, LLAMA("\"rms_norm_eps\": 0"), "'rms_norm_eps'"},
        {WEFT_EINVAL, LLAMA("\"eos_token_id\": 320"),
         "'eos_token_id' is 320, but the vocabulary has the ids 0 to 319"},
        {WEFT_EINVAL, LLAMA("\"eos_token_id\": [3, 4000]"),
         "'eos_token_id' is 4000"},
        {WEFT_EFORMAT, LLAMA("\"pad_token_id\": \"x\""),
         "'pad_token_id' must be a token id, not a text"},
        {WEFT_EINVAL, LLAMA("\"max_position_embeddings\": 3000000000"),
         "'max_position_embeddings' is 3000000000"},
        {WEFT_EINVAL,
         "{\"model_type\": \"llama\", \"vocab_size\": 320, "
         "\"hidden_size\": 100, \"intermediate_size\": 5, "
         "\"num_hidden_layers\": 1, \"num_attention_heads\": 8}",
         "'hidden_size' 100 is not a multiple of the 8"},
        {WEFT_EINVAL,
         "{\"model_type\": \"llama\", \"vocab_size\": 320, "
         "\"hidden_size\": -64, \"intermediate_size\": 5, "
         "\"num_hidden_layers\": 1, \"num_attention_heads\": 8}",
         "'hidden_size' is -64"},
        {WEFT_EINVAL,
         "{\"model_type\": \"llama\", \"vocab_size\": 320, "
         "\"hidden_size\": 64, \"intermediate_size\": 5, "
         "\"num_hidden_layers\": 100000, \"num_attention_heads\": 8}",
         "'num_hidden_layers' is 100000; it must be from 1 to 1024"},
    };
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        struct weft_arch a;
        struct weft_err err;
        CHECK_FAILS(parse(bad[i].text, &a, &err), bad[i].rc, err,
                    bad[i].part);
        CHECK(strncmp(err.text, "'m/config.json'", 15) == 0
              || strncmp(err.text, "m/config.json:", 14) == 0);
    }
}

/* No prefix of a good file crashes, and only the whole is accepted. */
static void test_truncated(void)
{
    static const char text[] = LLAMA("\"eos_token_id\": [1, 2]");
    struct weft_arch a;
    struct weft_err err;
    for (size_t n = 0; n < sizeof text - 1; n++)
        CHECK_INT(weft_arch_parse(text, n, "c", &a, &err), WEFT_EFORMAT);
    CHECK_INT(weft_arch_parse(text, sizeof text - 1, "c", &a, &err), 0);
}

static void test_generation(void)
{
    static const char text[] =
        "{\"eos_token_id\": [301, 2], \"bos_token_id\": 7, "
        "\"pad_token_id\": 9, \"do_sample\": true, \"temperature\": 0.6, "
        "\"top_k\": 20, \"top_p\": 0.95, \"max_new_tokens\": 32, "
        "\"min_new_tokens\": 5}";
    struct weft_arch a = good(LLAMA("\"eos_token_id\": 2"));
    struct weft_err err = {0};
    REQUIRE_OK(weft_arch_parse_generation(text, strlen(text), "g", &a, &err),
               err);
    CHECK_INT(a.n_eos, 2); /* the union, config.json's first */
    CHECK_INT(a.eos[0], 2);
    CHECK_INT(a.eos[1], 301);
    CHECK_INT(a.bos, 1); /* config.json's stays */
    CHECK_INT(a.pad, 9);
    CHECK(a.generation.found && a.generation.do_sample);
    CHECK(a.generation.temperature == 0.6 && a.generation.top_p == 0.95);
    CHECK_INT(a.generation.top_k, 20);
    CHECK_INT(a.generation.max_new_tokens, 32);
    CHECK_INT(a.generation.min_new_tokens, 5);
    static const char *const bad[] = {
        "{\"eos_token_id\": 9999}", "{\"temperature\": -1}",
        "{\"top_p\": 1.5}", "{\"top_k\": \"x\"}", "nothing"};
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        struct weft_arch b = a;
        CHECK(
            weft_arch_parse_generation(bad[i], strlen(bad[i]), "g", &b, &err)
            < 0);
        CHECK(memcmp(&a, &b, sizeof a) == 0);
    }
}

static void check_same(const struct weft_arch *a, const struct weft_arch *b)
{
    const struct weft_shape *s = &a->shape, *t = &b->shape;
    CHECK_INT(b->family, a->family);
    CHECK_INT(t->hidden, s->hidden);
    CHECK_INT(t->n_layers, s->n_layers);
    CHECK_INT(t->n_heads, s->n_heads);
    CHECK_INT(t->n_kv_heads, s->n_kv_heads);
    CHECK_INT(t->head_dim, s->head_dim);
    CHECK_INT(t->intermediate, s->intermediate);
    CHECK_INT(t->vocab, s->vocab);
    CHECK_INT(t->max_positions, s->max_positions);
    CHECK(t->rms_eps == s->rms_eps);
    CHECK_INT(t->rope, s->rope);
    CHECK(t->rope_theta == s->rope_theta && t->rope_factor == s->rope_factor
          && t->rope_low == s->rope_low && t->rope_high == s->rope_high);
    CHECK_INT(t->rope_original, s->rope_original);
    CHECK_INT(t->qkv_bias, s->qkv_bias);
    CHECK_INT(t->o_bias, s->o_bias);
    CHECK_INT(t->qk_norm, s->qk_norm);
    CHECK_INT(t->tied, s->tied);
    CHECK_INT(t->scalar_head, s->scalar_head);
    CHECK_INT(b->dtype, a->dtype);
    CHECK(b->initializer_range == a->initializer_range);
    CHECK_INT(b->bos, a->bos);
    CHECK_INT(b->pad, a->pad);
    CHECK_INT(b->n_eos, a->n_eos);
    CHECK(memcmp(b->eos, a->eos, sizeof a->eos) == 0);
}

static void test_write_and_read(void)
{
    static const char *const text[] = {
        LLAMA("\"tie_word_embeddings\": true, \"rms_norm_eps\": 1e-5, "
              "\"attention_bias\": true, \"dtype\": \"bfloat16\", "
              "\"rope_theta\": 500000.0, \"initializer_range\": 0.0123, "
              "\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8.5, "
              "\"low_freq_factor\": 1, \"high_freq_factor\": 4, "
              "\"original_max_position_embeddings\": 512}"),
        LLAMA("\"rope_scaling\": {\"type\": \"linear\", \"factor\": 3}, "
              "\"eos_token_id\": [5, 6, 7], \"pad_token_id\": 0"),
        LLAMA("\"architectures\": [\"LlamaForSequenceClassification\"], "
              "\"num_labels\": 1, \"dtype\": \"float16\""),
        FAMILY("qwen2", "\"tie_word_embeddings\": true"),
        FAMILY("qwen2", "\"head_dim\": 16"),
        FAMILY("qwen3", "\"head_dim\": 32, \"eos_token_id\": 5"),
        FAMILY("mistral", "\"sliding_window\": null, \"bos_token_id\": null"),
    };
    struct weft_err err = {0};
    char dir[32];
    for (size_t i = 0; i < WEFT_COUNT(text); i++) {
        strcpy(dir, "/tmp/weft-arch-XXXXXX");
        REQUIRE(mkdtemp(dir) != NULL);
        struct weft_arch a = good(text[i]), b = {0};
        REQUIRE_OK(weft_arch_write(dir, &a, &err), err);
        REQUIRE_OK(weft_arch_read(dir, &b, &err), err);
        check_same(&a, &b);
        REQUIRE_OK(weft_dir_remove(dir, &err), err);
    }
    REQUIRE(mkdir(dir, 0700) == 0);
    struct weft_arch a = good(text[0]), b = {0};
    a.generation.do_sample = true;
    a.generation.temperature = 0.7;
    a.generation.top_k = 11;
    a.generation.top_p = 0.9;
    a.generation.max_new_tokens = 99;
    a.generation.min_new_tokens = 9;
    a.generation.repetition_penalty = 1.1;
    REQUIRE_OK(weft_arch_write(dir, &a, &err), err);
    REQUIRE_OK(weft_arch_read(dir, &b, &err), err);
    a.generation.found = true;
    CHECK(memcmp(&a.generation, &b.generation, sizeof a.generation) == 0);
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
    CHECK_FAILS(weft_arch_read(dir, &b, &err), WEFT_ENOTFOUND, err,
                "there is no model folder");
    REQUIRE(mkdir(dir, 0700) == 0);
    CHECK_FAILS(weft_arch_read(dir, &b, &err), WEFT_ENOTFOUND, err,
                "it has no config.json");
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
}

/* Folders that transformers saved, in the old spelling and the new one
 * (tests/data/golden/make_goldens.py). */
static void test_reference_folders(void)
{
    static const struct {
        const char *name;
        enum weft_family family;
        int32_t kv_heads, head_dim;
        enum weft_rope rope;
        double theta;
        bool tied;
    } golden[] = {
        {"golden/llama", WEFT_LLAMA, 2, 16, WEFT_ROPE_LLAMA3, 1e4, false},
        {"golden/qwen2", WEFT_QWEN2, 2, 16, WEFT_ROPE_DEFAULT, 1e6, true},
        {"golden/qwen3", WEFT_QWEN3, 2, 24, WEFT_ROPE_DEFAULT, 1e6, true},
        {"golden/mistral", WEFT_MISTRAL, 1, 16, WEFT_ROPE_DEFAULT, 1e4,
         false},
    };
    for (size_t i = 0; i < WEFT_COUNT(golden); i++) {
        struct weft_arch a;
        struct weft_err err = {0};
        REQUIRE_OK(weft_arch_read(weft_test_data(golden[i].name), &a, &err),
                   err);
        CHECK_INT(a.family, golden[i].family);
        CHECK_INT(a.shape.n_kv_heads, golden[i].kv_heads);
        CHECK_INT(a.shape.head_dim, golden[i].head_dim);
        CHECK_INT(a.shape.rope, golden[i].rope);
        CHECK(a.shape.rope_theta == golden[i].theta);
        CHECK_INT(a.shape.tied, golden[i].tied);
        CHECK_INT(a.bos, 256);
        CHECK_INT(a.n_eos, 1);
        CHECK_INT(a.eos[0], 257);
        CHECK_INT(a.pad, 258);
        CHECK(a.generation.found);
    }
}

static void test_families(void)
{
    enum weft_family f;
    for (int i = 0; i < WEFT_N_FAMILIES; i++) {
        CHECK(weft_family_find(weft_family_name((enum weft_family) i), &f));
        CHECK_INT(f, i);
    }
    CHECK(!weft_family_find("gpt2", &f));
}

WEFT_TESTS("model/arch", {"test_llama", test_llama},
           {"test_defaults", test_defaults},
           {"test_rope_spellings", test_rope_spellings},
           {"test_scalar_heads", test_scalar_heads},
           {"test_refusals", test_refusals},
           {"test_truncated", test_truncated},
           {"test_generation", test_generation},
           {"test_write_and_read", test_write_and_read},
           {"test_reference_folders", test_reference_folders},
           {"test_families", test_families})
