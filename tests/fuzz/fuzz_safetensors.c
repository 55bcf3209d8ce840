/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a safetensors file: refused with a sentence, or every tensor
 * can be read to its last element. */
#include <stdlib.h>

#include "model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct weft_safetensors *st;
    struct weft_err err = {0};
    int rc = weft_safetensors_parse(data, n, "input", &st, &err);
    if (rc) {
        if (rc != WEFT_EFORMAT || !err.text[0])
            abort();
        return 0;
    }
    volatile float sum = 0;
    for (size_t i = 0; i < weft_safetensors_count(st); i++) {
        const struct weft_st_tensor *t = weft_safetensors_get(st, i);
        if (weft_safetensors_find(st, t->name) != t || t->at + t->n_bytes > n)
            abort();
        for (size_t j = 0; t->readable && j < t->n; j++) {
            float x;
            weft_st_tensor_read(t, j, 1, &x);
            sum = sum + x;
        }
        for (size_t j = 0; j < t->n_bytes; j++)
            sum = sum + t->data[j];
    }
    weft_safetensors_close(st);
    return 0;
}
