/* SPDX-License-Identifier: Apache-2.0 */
/* Token embedding and its gradient. */
#include "codelets/access_list.h"
#include "rt/codelet.h"

struct embed_args {
    const struct weft_shape *shape;
};

static int embed_cpu(const void *args_, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    (void) x;
    const struct embed_args *args = args_;
    struct weft_take take = {buf, n_buf, 0};
    void *table[WEFT_MAX_BLOCKS];
    weft_take_blocks(&take, args->shape->n_blocks, table);
    const struct weft_batch *b = weft_take(&take);
    float *out = weft_take(&take);
    weft_take_end(&take);
    weft_k_embed(args->shape, (const void *const *) table, b->n_rows,
                 weft_batch_at(b, b->token), out);
    return 0;
}

WEFT_CODELET(embed, 0x9ccc65, embed_cpu)

void weft_insert_embed(struct weft_seq *seq, const struct weft_where *where,
                       const struct weft_shape *shape,
                       const struct weft_params *fwd, struct weft_tile *batch,
                       struct weft_tile *x)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct embed_args args = {shape};
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add_blocks(&access, fwd->embed, WEFT_READ);
    weft_access_list_add(&access, batch, WEFT_READ);
    weft_access_list_add(&access, x, WEFT_WRITE);
    weft_access_list_insert(&access, seq, where, &weft_cl_embed, &args,
                            sizeof args);
}
