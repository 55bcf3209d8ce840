/* SPDX-License-Identifier: Apache-2.0 */
#include "model/arch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

/* Writes the shortest decimal that reads back as the same number (with is_f32:
 * as the same f32), as a JSON number with a fraction. */
static void put_real(FILE *f, double v, bool is_f32)
{
    char text[40];
    if (v == floor(v) && fabs(v) < 1e15) {
        fprintf(f, "%.1f", v);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        double back = strtod(text, NULL);
        if (back == v || (is_f32 && (float) back == (float) v))
            break;
    }
    fputs(text, f);
    if (!strpbrk(text, ".e"))
        fputs(".0", f);
}

static void put_key_real(FILE *f, const char *key, double v)
{
    fprintf(f, "  \"%s\": ", key);
    put_real(f, v, false);
    fputs(",\n", f);
}

static void put_key_id(FILE *f, const char *key, int32_t id)
{
    if (id < 0)
        fprintf(f, "  \"%s\": null,\n", key);
    else
        fprintf(f, "  \"%s\": %d,\n", key, id);
}

static void put_eos(FILE *f, const struct weft_arch *a)
{
    if (a->n_eos <= 1) {
        put_key_id(f, "eos_token_id", a->n_eos ? a->eos[0] : -1);
        return;
    }
    fputs("  \"eos_token_id\": [", f);
    for (int32_t i = 0; i < a->n_eos; i++)
        fprintf(f, "%s%d", i ? ", " : "", a->eos[i]);
    fputs("],\n", f);
}

/* Writes the map of RoPE's settings for the old and the new spelling; only the
 * new one has theta inside. */
static void put_rope_map(FILE *f, const struct weft_shape *s, bool theta)
{
    static const char *const type[] = {"default", "linear", "llama3"};
    fprintf(f, "{\"rope_type\": \"%s\"", type[s->rope]);
    if (theta) {
        fputs(", \"rope_theta\": ", f);
        put_real(f, s->rope_theta, false);
    }
    if (s->rope != WEFT_ROPE_DEFAULT) {
        fputs(", \"factor\": ", f);
        put_real(f, s->rope_factor, false);
    }
    if (s->rope == WEFT_ROPE_LLAMA3) {
        fputs(", \"low_freq_factor\": ", f);
        put_real(f, s->rope_low, false);
        fputs(", \"high_freq_factor\": ", f);
        put_real(f, s->rope_high, false);
        fprintf(f, ", \"original_max_position_embeddings\": %d",
                s->rope_original);
    }
    fputc('}', f);
}

static void put_rope(FILE *f, const struct weft_shape *s)
{
    fputs("  \"rope_parameters\": ", f);
    put_rope_map(f, s, true);
    fputs(",\n  \"rope_scaling\": ", f);
    if (s->rope == WEFT_ROPE_DEFAULT)
        fputs("null", f);
    else
        put_rope_map(f, s, false);
    fputs(",\n", f);
    put_key_real(f, "rope_theta", s->rope_theta);
}

static void put_family(FILE *f, const struct weft_arch *a)
{
    const struct weft_shape *s = &a->shape;
    bool plain_head = s->head_dim * s->n_heads == s->hidden;
    if (a->family == WEFT_LLAMA || a->family == WEFT_QWEN3)
        fprintf(f, "  \"attention_bias\": %s,\n",
                s->qkv_bias ? "true" : "false");
    if (a->family == WEFT_LLAMA)
        fputs("  \"mlp_bias\": false,\n", f);
    if (a->family != WEFT_QWEN2 || !plain_head)
        fprintf(f, "  \"head_dim\": %d,\n", s->head_dim);
    if (a->family != WEFT_LLAMA)
        fputs("  \"sliding_window\": null,\n", f);
    if (a->family == WEFT_QWEN2 || a->family == WEFT_QWEN3)
        fprintf(f,
                "  \"use_sliding_window\": false,\n"
                "  \"max_window_layers\": %d,\n",
                s->n_layers);
}

static void put_config(FILE *f, const void *arch)
{
    const struct weft_arch *a = arch;
    static const char *const class[] = {"Llama", "Qwen2", "Qwen3", "Mistral"};
    static const char *const dtype[] = {"float32", "bfloat16", "float16"};
    const struct weft_shape *s = &a->shape;
    fprintf(f, "{\n  \"architectures\": [\"%sFor%s\"],\n", class[a->family],
            s -> scalar_head ? "SequenceClassification" : "CausalLM");
    if (s->scalar_head)
        fputs("  \"id2label\": {\"0\": \"LABEL_0\"},\n"
              "  \"label2id\": {\"LABEL_0\": 0},\n"
              "  \"num_labels\": 1,\n",
              f);
    fputs("  \"attention_dropout\": 0.0,\n", f);
    put_key_id(f, "bos_token_id", a->bos);
    put_eos(f, a);
    put_key_id(f, "pad_token_id", a->pad);
    fprintf(f, "  \"dtype\": \"%s\",\n  \"torch_dtype\": \"%s\",\n",
            dtype[a->dtype], dtype[a->dtype]);
    fputs("  \"hidden_act\": \"silu\",\n", f);
    fprintf(f, "  \"hidden_size\": %d,\n", s->hidden);
    put_key_real(f, "initializer_range", a->initializer_range);
    fprintf(f,
            "  \"intermediate_size\": %d,\n"
            "  \"max_position_embeddings\": %d,\n"
            "  \"num_attention_heads\": %d,\n"
            "  \"num_hidden_layers\": %d,\n"
            "  \"num_key_value_heads\": %d,\n",
            s->intermediate, s->max_positions, s->n_heads, s->n_layers,
            s->n_kv_heads);
    put_family(f, a);
    fputs("  \"rms_norm_eps\": ", f);
    put_real(f, (double) s->rms_eps, true);
    fputs(",\n", f);
    put_rope(f, s);
    fprintf(f,
            "  \"tie_word_embeddings\": %s,\n"
            "  \"use_cache\": true,\n"
            "  \"vocab_size\": %d,\n"
            "  \"model_type\": \"%s\"\n}\n",
            s->tied ? "true" : "false", s->vocab,
            weft_family_name(a->family));
}

/* Writes what differs from transformers' defaults; temperature, top_k and
 * top_p only with do_sample, as transformers accepts them only there. */
static void put_generation(FILE *f, const void *arch)
{
    const struct weft_arch *a = arch;
    const struct weft_generation *g = &a->generation;
    fputs("{\n", f);
    put_key_id(f, "bos_token_id", a->bos);
    put_eos(f, a);
    if (a->pad >= 0)
        put_key_id(f, "pad_token_id", a->pad);
    if (g->do_sample) {
        put_key_real(f, "temperature", g->temperature);
        fprintf(f, "  \"top_k\": %d,\n", g->top_k);
        put_key_real(f, "top_p", g->top_p);
    }
    if (g->repetition_penalty != 1)
        put_key_real(f, "repetition_penalty", g->repetition_penalty);
    if (g->max_new_tokens > 0)
        fprintf(f, "  \"max_new_tokens\": %d,\n", g->max_new_tokens);
    if (g->min_new_tokens > 0)
        fprintf(f, "  \"min_new_tokens\": %d,\n", g->min_new_tokens);
    fprintf(f, "  \"do_sample\": %s\n}\n", g->do_sample ? "true" : "false");
}

int weft_arch_write(const char *dir, const struct weft_arch *arch,
                    struct weft_err *err)
{
    int rc = weft_file_print(dir, "config.json", put_config, arch, err);
    if (!rc && !arch->shape.scalar_head)
        rc = weft_file_print(dir, "generation_config.json", put_generation,
                             arch, err);
    return rc;
}
