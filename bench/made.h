/* SPDX-License-Identifier: Apache-2.0 */
/* What benchmarks of plans need on disk: folders of models that have a shape
 * and a tokenizer but no weights, and prompts. A failure ends the program. */
#ifndef WEFT_BENCH_MADE_H
#define WEFT_BENCH_MADE_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/file.h"
#include "bench/check.h"
#include "model/arch.h"
#include "model/init.h"
#include "text/tokenizer.h"

struct made_size {
    const char *name;
    int hidden, layers, heads, kv_heads, intermediate, vocab;
};

/* Folder `name` below dir: config.json and the tokenizer of bytes. */
static void made_model(const char *dir, const char *name,
                       const struct made_size *size, bool scalar_head)
{
    const struct weft_init_options o = {.family = WEFT_LLAMA,
                                        .hidden = size->hidden,
                                        .layers = size->layers,
                                        .heads = size->heads,
                                        .kv_heads = size->kv_heads,
                                        .intermediate = size->intermediate,
                                        .vocab = size->vocab,
                                        .max_positions = 16384,
                                        .scalar_head = scalar_head,
                                        .dtype = WEFT_F32};
    struct weft_arch arch;
    struct weft_tokenizer_ids ids;
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (mkdir(path, 0777) != 0) {
        perror(path);
        exit(1);
    }
    CHECK(weft_tokenizer_place("bytes", path, &ids, &err));
    CHECK(weft_init_arch(&o, &arch, &err));
    arch.bos = ids.bos;
    arch.pad = ids.pad;
    arch.eos[0] = ids.eos;
    arch.n_eos = 1;
    CHECK(weft_arch_write(path, &arch, &err));
}

/* File `name` below dir: n prompts of `least` to `most` tokens, which differ
 * from their first ones on: what is common would not be computed again. */
static inline void made_prompts(const char *dir, const char *name, int n,
                                int least, int most)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    for (int i = 0; f && i < n; i++)
        fprintf(f, "{\"prompt\": \"%08u%0*d\"}\n",
                i * 2654435761u % 100000000u,
                least - 8 + i % (most - least + 1), i);
    if (!f || fclose(f) != 0) {
        perror(path);
        exit(1);
    }
}

#endif
