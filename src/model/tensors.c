/* SPDX-License-Identifier: Apache-2.0 */
#include "model/tensors.h"

#include <stdio.h>

/* Names, and the position of a tensor in the state_dict's order of its
 * layer. */
static const char *const names[WEFT_N_TENSOR_IDS] = {
    [WEFT_TENSOR_EMBED] = "model.embed_tokens.weight",
    [WEFT_TENSOR_NORM1] = "input_layernorm.weight",
    [WEFT_TENSOR_NORM2] = "post_attention_layernorm.weight",
    [WEFT_TENSOR_QNORM] = "self_attn.q_norm.weight",
    [WEFT_TENSOR_KNORM] = "self_attn.k_norm.weight",
    [WEFT_TENSOR_Q] = "self_attn.q_proj.weight",
    [WEFT_TENSOR_Q_BIAS] = "self_attn.q_proj.bias",
    [WEFT_TENSOR_K] = "self_attn.k_proj.weight",
    [WEFT_TENSOR_K_BIAS] = "self_attn.k_proj.bias",
    [WEFT_TENSOR_V] = "self_attn.v_proj.weight",
    [WEFT_TENSOR_V_BIAS] = "self_attn.v_proj.bias",
    [WEFT_TENSOR_O] = "self_attn.o_proj.weight",
    [WEFT_TENSOR_O_BIAS] = "self_attn.o_proj.bias",
    [WEFT_TENSOR_GATE] = "mlp.gate_proj.weight",
    [WEFT_TENSOR_UP] = "mlp.up_proj.weight",
    [WEFT_TENSOR_DOWN] = "mlp.down_proj.weight",
    [WEFT_TENSOR_NORM] = "model.norm.weight",
    [WEFT_TENSOR_HEAD] = "lm_head.weight",
    [WEFT_TENSOR_SCORE] = "score.weight",
};

static const enum weft_tensor_id layer_order[] = {
    WEFT_TENSOR_Q,      WEFT_TENSOR_Q_BIAS, WEFT_TENSOR_K,
    WEFT_TENSOR_K_BIAS, WEFT_TENSOR_V,      WEFT_TENSOR_V_BIAS,
    WEFT_TENSOR_O,      WEFT_TENSOR_O_BIAS, WEFT_TENSOR_QNORM,
    WEFT_TENSOR_KNORM,  WEFT_TENSOR_GATE,   WEFT_TENSOR_UP,
    WEFT_TENSOR_DOWN,   WEFT_TENSOR_NORM1,  WEFT_TENSOR_NORM2,
};

static bool is_there(const struct weft_shape *s, enum weft_tensor_id id)
{
    switch (id) {
    case WEFT_TENSOR_Q_BIAS:
    case WEFT_TENSOR_K_BIAS:
    case WEFT_TENSOR_V_BIAS:
        return s->qkv_bias;
    case WEFT_TENSOR_O_BIAS:
        return s->o_bias;
    case WEFT_TENSOR_QNORM:
    case WEFT_TENSOR_KNORM:
        return s->qk_norm;
    case WEFT_TENSOR_HEAD:
        return !s->scalar_head && !s->tied;
    case WEFT_TENSOR_SCORE:
        return s->scalar_head;
    default:
        return true;
    }
}

static void fill(const struct weft_shape *s, enum weft_tensor_id id,
                 int32_t layer, struct weft_tensor *out)
{
    int64_t h = s->hidden, d = s->head_dim, f = s->intermediate;
    int64_t q = s->n_heads * d, kv = s->n_kv_heads * d;
    const int64_t sizes[WEFT_N_TENSOR_IDS][2] = {
        [WEFT_TENSOR_EMBED] = {s->vocab, h},
        [WEFT_TENSOR_NORM1] = {h, 0},
        [WEFT_TENSOR_NORM2] = {h, 0},
        [WEFT_TENSOR_QNORM] = {d, 0},
        [WEFT_TENSOR_KNORM] = {d, 0},
        [WEFT_TENSOR_Q] = {q, h},
        [WEFT_TENSOR_Q_BIAS] = {q, 0},
        [WEFT_TENSOR_K] = {kv, h},
        [WEFT_TENSOR_K_BIAS] = {kv, 0},
        [WEFT_TENSOR_V] = {kv, h},
        [WEFT_TENSOR_V_BIAS] = {kv, 0},
        [WEFT_TENSOR_O] = {h, q},
        [WEFT_TENSOR_O_BIAS] = {h, 0},
        [WEFT_TENSOR_GATE] = {f, h},
        [WEFT_TENSOR_UP] = {f, h},
        [WEFT_TENSOR_DOWN] = {h, f},
        [WEFT_TENSOR_NORM] = {h, 0},
        [WEFT_TENSOR_HEAD] = {s->vocab, h},
        [WEFT_TENSOR_SCORE] = {1, h},
    };
    *out = (struct weft_tensor){
        .id = id, .layer = layer, .rows = sizes[id][0], .cols = sizes[id][1]};
    if (layer < 0)
        snprintf(out->name, sizeof out->name, "%s", names[id]);
    else
        snprintf(out->name, sizeof out->name, "model.layers.%d.%s", layer,
                 names[id]);
}

static size_t count_layer(const struct weft_shape *s)
{
    size_t n = 0;
    for (size_t i = 0; i < WEFT_COUNT(layer_order); i++)
        n += is_there(s, layer_order[i]);
    return n;
}

size_t weft_tensor_count(const struct weft_shape *s)
{
    return 2 + (size_t) s->n_layers * count_layer(s)
         + is_there(s, WEFT_TENSOR_HEAD) + is_there(s, WEFT_TENSOR_SCORE);
}

/* embedding, layers, final norm, head or score */
void weft_tensor_get(const struct weft_shape *s, size_t i,
                     struct weft_tensor *out)
{
    size_t per_layer = count_layer(s);
    size_t in_layers = (size_t) s->n_layers * per_layer;
    weft_assert(i < weft_tensor_count(s));
    if (i == 0)
        fill(s, WEFT_TENSOR_EMBED, -1, out);
    else if (i == in_layers + 1)
        fill(s, WEFT_TENSOR_NORM, -1, out);
    else if (i == in_layers + 2)
        fill(s, s->scalar_head ? WEFT_TENSOR_SCORE : WEFT_TENSOR_HEAD, -1,
             out);
    else {
        size_t at = (i - 1) % per_layer, j = 0;
        while (!is_there(s, layer_order[j]) || at-- > 0)
            j++;
        fill(s, layer_order[j], (int32_t) ((i - 1) / per_layer), out);
    }
}

int64_t weft_tensor_index(const struct weft_shape *s, enum weft_tensor_id id,
                          int32_t layer)
{
    int64_t per_layer = (int64_t) count_layer(s), at = 0;
    if (!is_there(s, id))
        return -1;
    switch (id) {
    case WEFT_TENSOR_EMBED:
        return 0;
    case WEFT_TENSOR_NORM:
        return s->n_layers * per_layer + 1;
    case WEFT_TENSOR_HEAD:
    case WEFT_TENSOR_SCORE:
        return s->n_layers * per_layer + 2;
    default:
        break;
    }
    if (layer < 0 || layer >= s->n_layers)
        return -1;
    for (size_t j = 0; layer_order[j] != id; j++)
        at += is_there(s, layer_order[j]);
    return 1 + layer * per_layer + at;
}

/* ---- Pieces ----------------------------------------------------------- */

/* Counts the pieces, and keeps number `want` of them. */
struct cutter {
    size_t n, want;
    struct weft_piece *out; /* NULL: only counting */
};

static void add(struct cutter *c, const struct weft_piece *piece)
{
    if (c->out && c->n == c->want)
        *c->out = *piece;
    c->n++;
}

static void add_vector(struct cutter *c, enum weft_tensor_id id,
                       enum weft_part_id part, int64_t n)
{
    struct weft_piece p = {
        .id = id, .n_rows = n, .part = part, .owned = true};
    add(c, &p);
}

/* Cuts the q rows, then k and v with a piece per KV head. With cols 0 it cuts
 * the biases. */
static void cut_qkv(const struct weft_shape *s, int32_t block,
                    struct cutter *c, int64_t cols)
{
    static const enum weft_tensor_id id[2][3] = {
        {WEFT_TENSOR_Q, WEFT_TENSOR_K, WEFT_TENSOR_V},
        {WEFT_TENSOR_Q_BIAS, WEFT_TENSOR_K_BIAS, WEFT_TENSOR_V_BIAS}};
    const enum weft_tensor_id *qkv = id[cols == 0];
    const struct weft_block *b = &s->block[block];
    int64_t d = s->head_dim;
    struct weft_piece p = {.id = qkv[0],
                           .row0 = b->head0 * d,
                           .n_rows = b->n_heads * d,
                           .n_cols = cols,
                           .owned = true,
                           .part = cols ? WEFT_PART_QKV : WEFT_PART_QKV_BIAS};
    add(c, &p);
    for (int64_t i = 0; i < 2 * (int64_t) b->n_kv; i++) {
        int32_t kv = b->kv0 + (int32_t) (i % b->n_kv);
        p.id = qkv[1 + i / b->n_kv];
        p.row0 = kv * d;
        p.n_rows = d;
        p.row_at = (b->n_heads + i) * d;
        p.owned = weft_shape_kv_owner(s, kv) == block;
        add(c, &p);
    }
}

static void cut_layer(const struct weft_shape *s, int32_t block,
                      struct cutter *c)
{
    const struct weft_block *b = &s->block[block];
    int64_t h = s->hidden, d = s->head_dim;
    cut_qkv(s, block, c, h);
    if (s->qkv_bias)
        cut_qkv(s, block, c, 0);
    struct weft_piece o = {.id = WEFT_TENSOR_O,
                           .n_rows = h,
                           .col0 = b->head0 * d,
                           .n_cols = b->n_heads * d,
                           .part = WEFT_PART_O,
                           .owned = true};
    add(c, &o);
    struct weft_piece gate = {.id = WEFT_TENSOR_GATE,
                              .row0 = b->ff0,
                              .n_rows = b->n_ff,
                              .n_cols = h,
                              .part = WEFT_PART_GATE_UP,
                              .gate_up = true,
                              .owned = true};
    add(c, &gate);
    gate.id = WEFT_TENSOR_UP;
    gate.is_up = true;
    add(c, &gate);
    struct weft_piece down = {.id = WEFT_TENSOR_DOWN,
                              .n_rows = h,
                              .col0 = b->ff0,
                              .n_cols = b->n_ff,
                              .part = WEFT_PART_DOWN,
                              .owned = true};
    add(c, &down);
}

static void cut_vocab(const struct weft_shape *s, int32_t block,
                      struct cutter *c, bool head)
{
    const struct weft_block *b = &s->block[block];
    struct weft_piece p = {.id = head && !s->tied ? WEFT_TENSOR_HEAD
                                                  : WEFT_TENSOR_EMBED,
                           .row0 = b->vocab0,
                           .n_rows = b->n_vocab,
                           .n_cols = s->hidden,
                           .part = head ? WEFT_PART_HEAD : WEFT_PART_EMBED,
                           .owned = head || !s->tied || s->scalar_head};
    add(c, &p);
}

static void cut(const struct weft_shape *s, enum weft_tile_kind kind,
                int32_t block, struct cutter *c)
{
    switch (kind) {
    case WEFT_TILE_EMBED:
        cut_vocab(s, block, c, false);
        break;
    case WEFT_TILE_LAYER:
        cut_layer(s, block, c);
        break;
    case WEFT_TILE_NORMS:
        add_vector(c, WEFT_TENSOR_NORM1, WEFT_PART_NORM1, s->hidden);
        add_vector(c, WEFT_TENSOR_NORM2, WEFT_PART_NORM2, s->hidden);
        if (s->qk_norm) {
            add_vector(c, WEFT_TENSOR_QNORM, WEFT_PART_QNORM, s->head_dim);
            add_vector(c, WEFT_TENSOR_KNORM, WEFT_PART_KNORM, s->head_dim);
        }
        if (s->o_bias)
            add_vector(c, WEFT_TENSOR_O_BIAS, WEFT_PART_O_BIAS, s->hidden);
        break;
    case WEFT_TILE_HEAD:
        if (!s->scalar_head)
            cut_vocab(s, block, c, true);
        break;
    case WEFT_TILE_FINAL:
        add_vector(c, WEFT_TENSOR_NORM, WEFT_PART_NORM, s->hidden);
        if (s->scalar_head) /* the file has (1, H), which is a vector here */
            add_vector(c, WEFT_TENSOR_SCORE, WEFT_PART_SCORE, s->hidden);
        break;
    default:
        weft_assert(false && "a known tile kind");
    }
}

size_t weft_piece_count(const struct weft_shape *s, enum weft_tile_kind kind,
                        int32_t block)
{
    struct cutter c = {0};
    cut(s, kind, block, &c);
    return c.n;
}

void weft_piece_get(const struct weft_shape *s, enum weft_tile_kind kind,
                    int32_t block, size_t i, struct weft_piece *out)
{
    struct cutter c = {.want = i, .out = out};
    cut(s, kind, block, &c);
    weft_assert(i < c.n);
}
