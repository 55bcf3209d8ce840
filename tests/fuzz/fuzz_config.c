/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as config.json, as generation_config.json, and as YAML: refused
 * with a sentence, or numbers that keep their promises. */
#include <stdlib.h>

#include "base/yaml.h"
#include "model/arch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void walk(const struct weft_yaml *node)
{
    int64_t i;
    double d;
    bool b;
    const char *s;
    struct weft_err err;
    (void) weft_yaml_int(node, "k", &i, &err);
    (void) weft_yaml_double(node, "k", &d, &err);
    (void) weft_yaml_bool(node, "k", &b, &err);
    (void) weft_yaml_string(node, "k", &s, &err);
    for (size_t j = 0; j < node->n; j++) {
        if (node->key && weft_yaml_get(node, node->key[j]) != node->child[j])
            abort();
        walk(node->child[j]);
    }
}

static void check_arch(const char *text, size_t n)
{
    static const char known[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 320, \"hidden_size\": "
        "64,"
        "\"intermediate_size\": 176, \"num_hidden_layers\": 3, "
        "\"num_attention_heads\": 8}";
    struct weft_arch a;
    struct weft_err err = {0};
    int rc = weft_arch_parse(text, n, "config.json", &a, &err);
    if (rc ? !err.text[0] : weft_arch_check(&a, NULL) != 0)
        abort();
    if (rc == 0 && weft_shape_partition(&a.shape, 0, NULL) == 0
        && weft_shape_n_params(&a.shape) <= 0)
        abort();
    if (weft_arch_parse(known, sizeof known - 1, "known", &a, &err) != 0)
        abort();
    rc = weft_arch_parse_generation(text, n, "generation", &a, &err);
    if (rc ? !err.text[0] : a.n_eos < 0 || a.n_eos > WEFT_MAX_EOS)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *text = (const char *) data;
    struct weft_yaml *root;
    struct weft_err err = {0};
    check_arch(text, n);
    if (weft_yaml_parse(text, n, "input", &root, &err) == 0) {
        walk(root);
        weft_yaml_free(root);
    } else if (!err.text[0])
        abort();
    return 0;
}
