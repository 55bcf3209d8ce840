/* SPDX-License-Identifier: Apache-2.0 */
#include "codelets/gang.h"

#include <string.h>

#include "codelets/member.h"

struct weft_gang_ranges weft_gang_ranges_of(const struct weft_members *m)
{
    struct weft_gang_ranges out = {.n = m->n, .layers = m->layers};
    memcpy(out.range, m->range, (size_t) m->n * sizeof *m->range);
    return out;
}

void weft_insert_members(struct weft_seq *seq, const struct weft_members *m)
{
    if (m->n > 1)
        weft_insert_gang(seq, m->n);
}

void weft_gang_member_init(struct weft_exec *exec,
                           const struct weft_shape *shape,
                           const struct weft_gang_ranges *all,
                           struct weft_gang_member *out)
{
    int k = weft_exec_member(exec);
    *out = (struct weft_gang_member){.exec = exec,
                                     .shape = shape,
                                     .all = all,
                                     .range = all->range[k],
                                     .k = k};
}

static size_t sum_floats(const struct weft_gang_member *m, int64_t rows)
{
    return (size_t) (weft_part_n_roots(m->shape, m->range) * rows
                     * m->shape->hidden);
}

size_t weft_gang_rows_bytes(const struct weft_gang_member *m, int64_t rows)
{
    size_t floats = (size_t) (rows * m->shape->hidden);
    if (m->all->n > 1)
        floats += 2 * sum_floats(m, rows);
    return floats * sizeof(float);
}

void weft_gang_rows_at(struct weft_gang_member *m, int64_t rows, void *at)
{
    float *next = at;
    m->x = next;
    next += rows * m->shape->hidden;
    for (int i = 0; i < 2 && m->all->n > 1; i++) {
        m->roots->of[i][m->k] = next;
        next += sum_floats(m, rows);
    }
}

void weft_gang_rows_from(struct weft_gang_member *m, int64_t rows, float *x)
{
    if (m->k == 0)
        m->x = x;
    else if (!m->all->layers.is_first)
        memcpy(m->x, x, (size_t) (rows * m->shape->hidden) * sizeof *x);
}

size_t weft_gang_scratch_bytes(const struct weft_gang_member *m,
                               const struct weft_k_batch *batch)
{
    size_t joined = (size_t) batch->n_rows * (size_t) m->shape->hidden
                  * sizeof(float);
    size_t layer = weft_k_part_forward_scratch_bytes(m->shape, m->range,
                                                     batch);
    return joined > layer ? joined : layer;
}

/* ---- Weights ----------------------------------------------------------- */

void weft_access_list_add_weights(struct weft_access_list *access,
                                  const struct weft_shape *shape,
                                  const struct weft_stage_layers *layers,
                                  struct weft_range range,
                                  struct weft_range embedded,
                                  const struct weft_params *fwd)
{
    if (layers->is_first)
        weft_access_list_add_range(access, embedded, fwd->embed, WEFT_READ);
    for (int32_t l = layers->first; l < layers->end; l++)
        weft_access_list_add_member(access, range, &fwd->layer[l], NULL);
    if (layers->is_last && !shape->scalar_head)
        weft_access_list_add_range(access, range, fwd->head.block, WEFT_READ);
    if (layers->is_last)
        weft_access_list_add(access, fwd->head.norms, WEFT_READ);
}

void weft_gang_take_weights(struct weft_take *take,
                            const struct weft_shape *shape,
                            const struct weft_stage_layers *layers,
                            struct weft_range range,
                            struct weft_range embedded,
                            struct weft_gang_weights *out)
{
    out->layers = *layers;
    out->range = range;
    out->embedded = embedded;
    out->embed = take->buf + take->next;
    take->next += layers->is_first ? embedded.n : 0;
    out->layer = take->buf + take->next;
    take->next += (layers->end - layers->first) * (range.n + 1);
    for (int32_t b = range.first;
         b < weft_range_end(range) && layers->is_last && !shape->scalar_head;
         b++)
        out->head.fwd[b] = weft_take(take);
    if (layers->is_last)
        out->head.final = weft_take(take);
    out->n_buffers = (int) (take->buf + take->next - out->embed);
}

struct weft_k_layer weft_gang_layer(const struct weft_gang_weights *weights,
                                    int32_t layer)
{
    struct weft_range range = weights->range;
    void *const *buf = weights->layer
                     + (size_t) (layer - weights->layers.first)
                           * (size_t) (range.n + 1);
    struct weft_k_layer out = {.norms = buf[range.n]};
    for (int b = 0; b < range.n; b++)
        out.fwd[range.first + b] = buf[b];
    return out;
}

/* ---- Layers ------------------------------------------------------------ */

/* x = (sum over all blocks + bias) + x */
static bool join(const struct weft_gang_member *m, int sum, int64_t rows,
                 const float *bias)
{
    struct weft_k_part part[WEFT_MAX_BLOCKS];
    if (!weft_exec_meet(m->exec))
        return false;
    for (int i = 0; i < m->all->n; i++)
        part[i] = (struct weft_k_part){m->all->range[i],
                                       m->roots->of[sum][i]};
    weft_k_join_rows(m->shape->n_blocks, m->all->n, part, rows,
                     m->shape->hidden, bias, m->x, m->x, m->scratch);
    return true;
}

/* layer: of the stage. */
static bool layer_forward(const struct weft_gang_member *m,
                          const struct weft_k_layer *weights, int32_t layer,
                          const struct weft_k_batch *batch,
                          const struct weft_k_kv *kv)
{
    if (m->all->n == 1) {
        weft_k_layer_forward(m->shape, weights, layer, batch, kv, m->x, m->x,
                             NULL, m->scratch);
        return true;
    }
    weft_k_attention_forward(m->shape, m->range, weights, layer, batch, kv,
                             m->x, NULL, m->roots->of[0][m->k], m->scratch);
    if (!join(m, 0, batch->n_rows, weft_k_o_bias(m->shape, weights->norms)))
        return false;
    weft_k_mlp_forward(m->shape, m->range, weights, batch, m->x, NULL,
                       m->roots->of[1][m->k], m->scratch);
    return join(m, 1, batch->n_rows, NULL);
}

bool weft_gang_forward(const struct weft_gang_member *m,
                       const struct weft_gang_weights *weights,
                       const struct weft_k_batch *batch,
                       const struct weft_k_kv *kv)
{
    bool goes_on = true;
    if (weights->layers.is_first)
        weft_k_embed(m->shape, (const void *const *) weights->embed,
                     batch->n_rows, batch->token, m->x);
    for (int32_t l = weights->layers.first;
         l < weights->layers.end && goes_on; l++) {
        struct weft_k_layer layer = weft_gang_layer(weights, l);
        goes_on = layer_forward(m, &layer, l - weights->layers.first, batch,
                                kv);
    }
    return goes_on;
}
