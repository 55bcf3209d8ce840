/* SPDX-License-Identifier: Apache-2.0 */
#include "model/arch.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

/* The families' defaults for keys that config.json lacks (transformers 5.23,
 * configuration_<family>.py). */
static const struct family {
    const char *name;
    int32_t kv_heads; /* 0: as many as query heads */
    int32_t head_dim; /* 0: hidden / heads */
    int32_t max_positions;
    int32_t bos, eos; /* -1: none */
} families[WEFT_N_FAMILIES] = {
    [WEFT_LLAMA] = {"llama", 0, 0, 2048, 1, 2},
    [WEFT_QWEN2] = {"qwen2", 32, 0, 32768, -1, -1},
    [WEFT_QWEN3] = {"qwen3", 32, 128, 32768, -1, -1},
    [WEFT_MISTRAL] = {"mistral", 8, 0, 131072, 1, 2},
};

const char *weft_family_name(enum weft_family family)
{
    return families[family].name;
}

bool weft_family_find(const char *name, enum weft_family *out)
{
    for (int i = 0; i < WEFT_N_FAMILIES; i++)
        if (strcmp(families[i].name, name) == 0) {
            *out = (enum weft_family) i;
            return true;
        }
    return false;
}

/* ---- Typed keys; the first error stays -------------------------------- */

struct reader {
    const json_t *root;
    const char *name;
    struct weft_err *err;
    int rc;
};

static void bad(struct reader *r, int code, const char *fmt, ...)
    WEFT_PRINTF(3, 4);
static void bad(struct reader *r, int code, const char *fmt, ...)
{
    char text[sizeof r->err->text];
    va_list ap;
    if (r->rc)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    r->rc = weft_err_set(r->err, code, "'%s': %s", r->name, text);
}

/* The value, or NULL when the key is absent or null. */
static const json_t *get(const json_t *map, const char *key)
{
    const json_t *v = json_object_get(map, key);
    return json_is_null(v) ? NULL : v;
}

static const char *what(const json_t *v)
{
    static const char *const word[] = {
        [JSON_OBJECT] = "a map",    [JSON_ARRAY] = "a list",
        [JSON_STRING] = "a text",   [JSON_INTEGER] = "a whole number",
        [JSON_REAL] = "a fraction", [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",     [JSON_NULL] = "null"};
    return word[json_typeof(v)];
}

/* Reads a whole number in [min, max]; `otherwise` when the key is absent. */
static int32_t get_int(struct reader *r, const json_t *map, const char *key,
                       int32_t otherwise, int32_t min, int32_t max)
{
    const json_t *v = get(map, key);
    if (!v)
        return otherwise;
    json_int_t i = json_integer_value(v);
    if (!json_is_integer(v))
        bad(r, WEFT_EFORMAT, "'%s' must be a whole number, not %s", key,
            what(v));
    else if (i < min || i > max)
        bad(r, WEFT_EINVAL,
            "'%s' is %" JSON_INTEGER_FORMAT "; it must be from %d to %d", key,
            i, min, max);
    else
        return (int32_t) i;
    return otherwise;
}

static int32_t need_int(struct reader *r, const char *key, int32_t min,
                        int32_t max)
{
    if (!get(r->root, key))
        bad(r, WEFT_EFORMAT, "'%s' is missing", key);
    return get_int(r, r->root, key, min, min, max);
}

static double get_double(struct reader *r, const json_t *map, const char *key,
                         double otherwise)
{
    const json_t *v = get(map, key);
    if (!v)
        return otherwise;
    if (!json_is_number(v)) {
        bad(r, WEFT_EFORMAT, "'%s' must be a number, not %s", key, what(v));
        return otherwise;
    }
    return json_number_value(v);
}

static bool get_bool(struct reader *r, const json_t *map, const char *key,
                     bool otherwise)
{
    const json_t *v = get(map, key);
    if (!v)
        return otherwise;
    if (!json_is_boolean(v))
        bad(r, WEFT_EFORMAT, "'%s' must be true or false, not %s", key,
            what(v));
    return json_is_true(v);
}

/* Reads a string; NULL when the key is absent. */
static const char *get_text(struct reader *r, const json_t *map,
                            const char *key)
{
    const json_t *v = get(map, key);
    if (v && !json_is_string(v))
        bad(r, WEFT_EFORMAT, "'%s' must be a text, not %s", key, what(v));
    return json_string_value(v);
}

/* ---- What Weft does not do -------------------------------------------- */

static void refuse_unsupported(struct reader *r, enum weft_family family)
{
    static const char *const experts[] = {"num_experts", "num_local_experts",
                                          "n_routed_experts"};
    const char *act = get_text(r, r->root, "hidden_act");
    const char *name = families[family].name;
    if (act && strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        bad(r, WEFT_EUNSUPPORTED,
            "'hidden_act' \"%.40s\" is not supported; only \"silu\" is", act);
    if (get(r->root, "quantization_config"))
        bad(r, WEFT_EUNSUPPORTED,
            "'quantization_config': quantized weights are not supported; "
            "save the model in bfloat16 or float32");
    for (size_t i = 0; i < WEFT_COUNT(experts); i++)
        if (get(r->root, experts[i]))
            bad(r, WEFT_EUNSUPPORTED,
                "'%s': mixtures of experts are not supported", experts[i]);
    if (get_bool(r, r->root, "mlp_bias", false))
        bad(r, WEFT_EUNSUPPORTED, "'mlp_bias' true is not supported");
    bool bias = get_bool(r, r->root, "attention_bias", false);
    if (family == WEFT_MISTRAL && bias)
        bad(r, WEFT_EUNSUPPORTED,
            "'attention_bias' true is not supported in the family mistral, "
            "which has none");
    if (family == WEFT_QWEN2 && get(r->root, "attention_bias") && !bias)
        bad(r, WEFT_EUNSUPPORTED,
            "'attention_bias' false is not supported in the family qwen2, "
            "which always has q, k and v biases");
    if (get_double(r, r->root, "attention_dropout", 0) != 0)
        bad(r, WEFT_EUNSUPPORTED,
            "'attention_dropout' other than 0 is not supported");
    if (get_double(r, r->root, "partial_rotary_factor", 1) != 1)
        bad(r, WEFT_EUNSUPPORTED,
            "'partial_rotary_factor' other than 1 is not supported in the "
            "family %s",
            name);
}

/* Weft has full attention only. Without the key transformers' mistral has a
 * window of 4096; qwen2 and qwen3 have one only with use_sliding_window. */
static void refuse_sliding_window(struct reader *r, enum weft_family family)
{
    static const char *const window = "sliding_window";
    const json_t *layers = get(r->root, "layer_types");
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const char *type = json_string_value(json_array_get(layers, i));
        if (!type || strcmp(type, "full_attention") != 0)
            bad(r, WEFT_EUNSUPPORTED,
                "'layer_types': layer %zu is \"%.40s\"; only "
                "\"full_attention\" is supported",
                i, type ? type : "not a text");
    }
    if (get_bool(r, r->root, "use_sliding_window", false))
        bad(r, WEFT_EUNSUPPORTED,
            "'use_sliding_window' true: sliding windows are not supported");
    if (family == WEFT_QWEN2 || family == WEFT_QWEN3)
        return;
    if (get(r->root, window))
        bad(r, WEFT_EUNSUPPORTED,
            "'%s': sliding windows are not supported; a model trained "
            "without one says null",
            window);
    else if (family == WEFT_MISTRAL && !json_object_get(r->root, window))
        bad(r, WEFT_EUNSUPPORTED,
            "'%s' is absent, which means 4096 in the family mistral, and "
            "sliding windows are not supported; a model trained without one "
            "says null",
            window);
}

/* ---- RoPE ------------------------------------------------------------- */

struct rope {
    enum weft_rope type;
    double factor, low, high;
    int32_t original;
};

static struct rope read_rope(struct reader *r, const json_t *map,
                             const char *key)
{
    struct rope rope = {.type = WEFT_ROPE_DEFAULT};
    if (!json_is_object(map)) {
        bad(r, WEFT_EFORMAT, "'%s' must be a map, not %s", key, what(map));
        return rope;
    }
    if (json_is_object(json_object_get(map, "full_attention")))
        bad(r, WEFT_EUNSUPPORTED,
            "'%s': one RoPE per kind of layer is not supported", key);
    const char *type = get_text(r, map, "rope_type");
    if (!type)
        type = get_text(r, map, "type");
    if (get_double(r, map, "partial_rotary_factor", 1) != 1)
        bad(r, WEFT_EUNSUPPORTED,
            "'%s': 'partial_rotary_factor' other than 1 is not supported",
            key);
    if (!type || strcmp(type, "default") == 0)
        return rope;
    if (strcmp(type, "linear") == 0)
        rope.type = WEFT_ROPE_LINEAR;
    else if (strcmp(type, "llama3") == 0)
        rope.type = WEFT_ROPE_LLAMA3;
    else
        bad(r, WEFT_EUNSUPPORTED,
            "'%s': RoPE type \"%.40s\" is not supported; default, linear and "
            "llama3 are",
            key, type);
    rope.factor = get_double(r, map, "factor", 0);
    if (rope.type == WEFT_ROPE_LLAMA3) {
        rope.low = get_double(r, map, "low_freq_factor", 0);
        rope.high = get_double(r, map, "high_freq_factor", 0);
        const char *original = "original_max_position_embeddings";
        rope.original = get_int(r, get(map, original) ? map : r->root,
                                original, 0, 1, INT32_MAX);
    }
    return rope;
}

static bool same_rope(const struct rope *a, const struct rope *b)
{
    return a->type == b->type && a->factor == b->factor && a->low == b->low
        && a->high == b->high && a->original == b->original;
}

/* New files have RoPE's settings in rope_parameters, old ones in rope_scaling
 * beside rope_theta. A file may have both if they agree. */
static void read_ropes(struct reader *r, struct weft_shape *s)
{
    const json_t *new = get(r->root, "rope_parameters");
    const json_t *old = get(r->root, "rope_scaling");
    struct rope rope = {.type = WEFT_ROPE_DEFAULT};
    if (old)
        rope = read_rope(r, old, "rope_scaling");
    if (new) {
        struct rope other = read_rope(r, new, "rope_parameters");
        if (old && !r->rc && !same_rope(&rope, &other))
            bad(r, WEFT_EINVAL,
                "'rope_parameters' and 'rope_scaling' disagree; leave one of "
                "them out");
        rope = other;
    }
    double top = get_double(r, r->root, "rope_theta", 0);
    double theta = get_double(r, new, "rope_theta", top);
    if (top != 0 && theta != top)
        bad(r, WEFT_EINVAL,
            "'rope_theta' is %g, but %g in 'rope_parameters'; leave one of "
            "them out",
            top, theta);
    s->rope = rope.type;
    s->rope_theta = theta != 0 || get(r->root, "rope_theta")
                         || get(new, "rope_theta")
                      ? theta
                      : 10000;
    s->rope_factor = rope.factor;
    s->rope_low = rope.low;
    s->rope_high = rope.high;
    s->rope_original = rope.original;
}

/* ---- The rest of config.json ------------------------------------------ */

static void read_dtype(struct reader *r, struct weft_arch *a)
{
    const char *name = get_text(r, r->root, "dtype");
    if (!name)
        name = get_text(r, r->root, "torch_dtype");
    if (name && strncmp(name, "torch.", 6) == 0)
        name += 6;
    if (!name || strcmp(name, "float32") == 0)
        a->dtype = WEFT_F32;
    else if (strcmp(name, "bfloat16") == 0)
        a->dtype = WEFT_BF16;
    else if (strcmp(name, "float16") == 0)
        a->dtype = WEFT_F16;
    else
        bad(r, WEFT_EUNSUPPORTED,
            "'dtype' \"%.40s\" is not supported; float32, bfloat16 and "
            "float16 are",
            name);
    a->shape.dtype = a->dtype == WEFT_BF16 ? WEFT_BF16 : WEFT_F32;
}

/* Checks that there is one label. transformers saves the labels' names, not
 * their number, and nothing when there are 2. */
static void check_labels(struct reader *r)
{
    const json_t *names = get(r->root, "id2label");
    int32_t n = names ? (int32_t) json_object_size(names) : 2;
    n = get_int(r, r->root, "num_labels", n, 0, INT32_MAX);
    if (n != 1)
        bad(r, WEFT_EUNSUPPORTED, "'num_labels' is %d%s; a scalar head has 1",
            n,
            get(r->root, "num_labels") || names ? ""
                                                : " where it is "
                                                  "absent");
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static void read_head(struct reader *r, struct weft_arch *a)
{
    const json_t *list = get(r->root, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));
    if (list
        && (!json_is_array(list) || (json_array_size(list) > 0 && !name)))
        bad(r, WEFT_EFORMAT, "'architectures' must be a list of texts");
    a->shape.tied = get_bool(r, r->root, "tie_word_embeddings", false);
    if (!name || ends_with(name, "ForCausalLM") || ends_with(name, "Model"))
        return;
    if (!ends_with(name, "ForSequenceClassification")) {
        bad(r, WEFT_EUNSUPPORTED,
            "'architectures' \"%.80s\" is not supported; *ForCausalLM and "
            "*ForSequenceClassification are",
            name);
        return;
    }
    check_labels(r);
    weft_arch_make_scalar(a);
}

void weft_arch_make_scalar(struct weft_arch *a)
{
    a->shape.scalar_head = true;
    a->shape.tied = false; /* a scalar head has no lm_head to tie */
    a->shape.score_skips_pad = a->pad >= 0;
    a->shape.score_pad = a->shape.score_skips_pad ? a->pad : 0;
}

static void add_eos(struct reader *r, struct weft_arch *a, json_int_t id)
{
    for (int32_t i = 0; i < a->n_eos; i++)
        if (a->eos[i] == id)
            return;
    if (a->n_eos == WEFT_MAX_EOS)
        bad(r, WEFT_EUNSUPPORTED, "'eos_token_id' has more than %d ids",
            WEFT_MAX_EOS);
    else
        a->eos[a->n_eos++] = (int32_t) id;
}

/* Reads the token id v of a key, or of an item of its list; false for none. */
static bool token_id(struct reader *r, const char *key, const json_t *v,
                     int32_t vocab, json_int_t *out)
{
    json_int_t id = json_integer_value(v);
    if (!json_is_integer(v))
        bad(r, WEFT_EFORMAT, "'%s' must be a token id, not %s", key, what(v));
    else if (id < -1 || id >= vocab)
        bad(r, WEFT_EINVAL,
            "'%s' is %" JSON_INTEGER_FORMAT ", but the "
            "vocabulary has the ids 0 to %d",
            key, id, vocab - 1);
    *out = id;
    return !r->rc && id >= 0;
}

static void read_one_id(struct reader *r, const char *key, int32_t vocab,
                        int32_t otherwise, int32_t *out)
{
    json_int_t id;
    const json_t *v = json_object_get(r->root, key);
    *out = v || otherwise >= vocab ? -1 : otherwise;
    if (v && !json_is_null(v) && token_id(r, key, v, vocab, &id))
        *out = (int32_t) id;
}

static void read_eos(struct reader *r, struct weft_arch *a, int32_t otherwise)
{
    static const char *const key = "eos_token_id";
    const json_t *v = json_object_get(r->root, key);
    json_int_t id;
    if (!v && otherwise >= 0 && otherwise < a->shape.vocab)
        add_eos(r, a, otherwise);
    for (size_t i = 0; i < json_array_size(v); i++)
        if (token_id(r, key, json_array_get(v, i), a->shape.vocab, &id))
            add_eos(r, a, id);
    if (v && !json_is_null(v) && !json_is_array(v)
        && token_id(r, key, v, a->shape.vocab, &id))
        add_eos(r, a, id);
}

static void read_sizes(struct reader *r, struct weft_arch *a)
{
    const struct family *f = &families[a->family];
    struct weft_shape *s = &a->shape;
    s->hidden = need_int(r, "hidden_size", 1, INT32_MAX);
    s->n_layers = need_int(r, "num_hidden_layers", 1, INT32_MAX);
    s->n_heads = need_int(r, "num_attention_heads", 1, INT32_MAX);
    s->intermediate = need_int(r, "intermediate_size", 1, INT32_MAX);
    s->vocab = need_int(r, "vocab_size", 1, INT32_MAX);
    bool null_kv = json_is_null(
        json_object_get(r->root, "num_key_value_heads"));
    s->n_kv_heads = get_int(
        r, r->root, "num_key_value_heads",
        f->kv_heads && !null_kv ? f->kv_heads : s->n_heads, 1, INT32_MAX);
    if (!get(r->root, "head_dim") && !f->head_dim
        && s->hidden % s->n_heads != 0)
        bad(r, WEFT_EINVAL,
            "'hidden_size' %d is not a multiple of the %d "
            "'num_attention_heads', and there is no 'head_dim'",
            s->hidden, s->n_heads);
    s->head_dim = get_int(r, r->root, "head_dim",
                          f->head_dim ? f->head_dim : s->hidden / s->n_heads,
                          1, INT32_MAX);
    s->max_positions = get_int(r, r->root, "max_position_embeddings",
                               f->max_positions, 1, INT32_MAX);
    s->rms_eps = (float) get_double(r, r->root, "rms_norm_eps", 1e-6);
    a->initializer_range = get_double(r, r->root, "initializer_range", 0.02);
}

static void read_family(struct reader *r, struct weft_arch *a)
{
    const char *type = get_text(r, r->root, "model_type");
    if (!type)
        bad(r, WEFT_EFORMAT,
            "'model_type' is missing; it must be llama, qwen2, qwen3 or "
            "mistral");
    else if (!weft_family_find(type, &a->family))
        bad(r, WEFT_EUNSUPPORTED,
            "'model_type' \"%.40s\" is not supported; llama, qwen2, qwen3 "
            "and mistral are",
            type);
}

static int open_json(struct reader *r, const char *text, size_t n,
                     json_t **out)
{
    r->rc = weft_json_parse(text, n, r->name, out, r->err);
    if (!r->rc && !json_is_object(*out))
        bad(r, WEFT_EFORMAT, "must be a map of keys, not %s", what(*out));
    r->root = *out;
    return r->rc;
}

int weft_arch_parse(const char *text, size_t n, const char *name,
                    struct weft_arch *out, struct weft_err *err)
{
    struct reader r = {.name = name, .err = err};
    struct weft_arch a = {.bos = -1,
                          .pad = -1,
                          .generation = {.temperature = 1,
                                         .top_k = 50,
                                         .top_p = 1,
                                         .repetition_penalty = 1}};
    json_t *root = NULL;
    if (!open_json(&r, text, n, &root))
        read_family(&r, &a);
    if (!r.rc) {
        refuse_unsupported(&r, a.family);
        refuse_sliding_window(&r, a.family);
        read_sizes(&r, &a);
        read_ropes(&r, &a.shape);
        read_dtype(&r, &a);
        read_head(&r, &a);
        bool bias = get_bool(&r, r.root, "attention_bias", false);
        a.shape.qkv_bias = bias || a.family == WEFT_QWEN2;
        a.shape.o_bias = bias && a.family != WEFT_QWEN2;
        a.shape.qk_norm = a.family == WEFT_QWEN3;
    }
    if (!r.rc) {
        read_one_id(&r, "bos_token_id", a.shape.vocab, families[a.family].bos,
                    &a.bos);
        read_one_id(&r, "pad_token_id", a.shape.vocab, -1, &a.pad);
        a.shape.score_skips_pad = a.shape.scalar_head && a.pad >= 0;
        a.shape.score_pad = a.shape.score_skips_pad ? a.pad : 0;
        read_eos(&r, &a, families[a.family].eos);
    }
    if (!r.rc) {
        r.rc = weft_arch_check(&a, err);
        if (r.rc)
            weft_err_prefix(err, "'%s'", name);
    }
    json_decref(root);
    if (!r.rc)
        *out = a;
    return r.rc;
}

int weft_arch_parse_generation(const char *text, size_t n, const char *name,
                               struct weft_arch *arch, struct weft_err *err)
{
    struct reader r = {.name = name, .err = err};
    struct weft_arch a = *arch;
    struct weft_generation *g = &a.generation;
    json_t *root = NULL;
    if (!open_json(&r, text, n, &root)) {
        g->found = true;
        g->do_sample = get_bool(&r, root, "do_sample", false);
        g->temperature = get_double(&r, root, "temperature", 1);
        g->top_k = get_int(&r, root, "top_k", 50, 0, INT32_MAX);
        g->top_p = get_double(&r, root, "top_p", 1);
        g->repetition_penalty = get_double(&r, root, "repetition_penalty", 1);
        g->max_new_tokens = get_int(&r, root, "max_new_tokens", 0, 0,
                                    INT32_MAX);
        g->min_new_tokens = get_int(&r, root, "min_new_tokens", 0, 0,
                                    INT32_MAX);
        read_eos(&r, &a, -1);
        if (a.bos < 0)
            read_one_id(&r, "bos_token_id", a.shape.vocab, -1, &a.bos);
        if (a.pad < 0)
            read_one_id(&r, "pad_token_id", a.shape.vocab, -1, &a.pad);
    }
    if (!(g->temperature >= 0) || !(g->top_p > 0 && g->top_p <= 1)
        || !(g->repetition_penalty > 0))
        bad(&r, WEFT_EINVAL,
            "'temperature' must be 0 or more, 'top_p' in (0, 1], "
            "'repetition_penalty' above 0");
    json_decref(root);
    if (!r.rc)
        *arch = a;
    return r.rc;
}
