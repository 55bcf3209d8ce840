/* SPDX-License-Identifier: Apache-2.0 */
/* How the members of a gang draw tokens: each computes the logits of its part
 * of the vocabulary, they meet, and each draws its share of the rows. */
#include <string.h>

#include "codelets/gen.h"

static size_t rows_bytes(const struct weft_shape *shape, int32_t n)
{
    size_t bytes = (size_t) n * (size_t) shape->hidden * sizeof(float);
    return (bytes + 63) / 64 * 64;
}

size_t weft_gen_drawn_scratch_bytes(const struct weft_shape *shape,
                                    int32_t n_slots)
{
    return (size_t) n_slots * ((size_t) shape->vocab + 2) * 4 + 3 * 64;
}

void weft_gen_drawn_at(const struct weft_shape *shape, int32_t n_slots,
                       char **at, struct weft_gen_drawn *out)
{
    size_t n = (size_t) n_slots;
    out->token = weft_gen_carve(at, n * sizeof *out->token);
    out->logp = weft_gen_carve(at, n * sizeof *out->logp);
    out->logits = weft_gen_carve(at, n * (size_t) shape->vocab
                                         * sizeof *out->logits);
}

size_t weft_gen_draw_own_bytes(const struct weft_shape *shape,
                               int32_t n_slots)
{
    size_t head = weft_k_head_scratch_bytes(shape, n_slots);
    size_t draw = (size_t) shape->vocab * 8;
    return rows_bytes(shape, n_slots) + (head > draw ? head : draw);
}

bool weft_gen_draw_member(const struct weft_gang_member *m,
                          const struct weft_gang_weights *weights,
                          const struct weft_gen_view *view,
                          const struct weft_gen_args *gen, int32_t n,
                          const int32_t *row, const int32_t *slot, void *own,
                          const struct weft_gen_drawn *out)
{
    const struct weft_shape *shape = m->shape;
    int64_t h = shape->hidden, v = shape->vocab;
    float *last = own;
    void *scratch = (char *) own + rows_bytes(shape, n);
    for (int32_t i = 0; i < n; i++)
        memcpy(last + i * h, m->x + row[i] * h, (size_t) h * sizeof(float));
    weft_k_head_logits_part(shape, m->range, &weights->head, n, last,
                            out->logits, scratch);
    if (!weft_exec_meet(m->exec))
        return false;
    for (int32_t i = n * m->k / m->all->n; i < n * (m->k + 1) / m->all->n;
         i++)
        out->token[i] = weft_gen_draw_row(view, shape, gen, slot[i],
                                          out->logits + i * v, &out->logp[i],
                                          scratch);
    return weft_exec_meet(m->exec);
}

int weft_gen_put_drawn(const struct weft_gen_view *view,
                       const struct weft_gen_args *gen, int32_t n,
                       const int32_t *slot,
                       const struct weft_gen_drawn *drawn,
                       struct weft_err *err)
{
    int rc = 0;
    for (int32_t i = 0; i < n && !rc; i++)
        rc = weft_gen_put(view, gen, slot[i], drawn->token[i], drawn->logp[i],
                          err);
    return rc;
}
