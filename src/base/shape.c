/* SPDX-License-Identifier: Apache-2.0 */
#include "base/shape.h"

#include <string.h>

enum { ALIGN_FLAT = 16, ALIGN_BYTES = 64 };

/* Sides of a layer's adapters with as many rows as the model is wide: A of q, k,
 * v, gate and up, B of o and down. */
enum { LORA_WHOLE = 7 };

/* The number of panels that the narrower of MLP and vocabulary has for all
 * blocks. */
static int64_t panels_to_deal(const struct weft_shape *s)
{
    return weft_ceil_div(weft_min64(s->intermediate, s->vocab),
                         WEFT_FF_GRAIN);
}

int32_t weft_shape_most_blocks(const struct weft_shape *shape)
{
    int32_t t = WEFT_MAX_BLOCKS;
    int64_t panels = panels_to_deal(shape);
    while (t > 1 && (shape->n_heads % t != 0 || panels < t))
        t /= 2;
    return t;
}

int32_t weft_shape_default_blocks(const struct weft_shape *shape)
{
    return weft_min32(weft_shape_most_blocks(shape), WEFT_DEFAULT_BLOCKS);
}

/* Computes the share of block t when n columns or rows are dealt to the blocks
 * in panels of WEFT_FF_GRAIN. */
static void deal(int32_t n, int32_t t, int32_t n_blocks, int32_t *first_out,
                 int32_t *count_out)
{
    int64_t panels = weft_ceil_div(n, WEFT_FF_GRAIN);
    int64_t a = panels * t / n_blocks * WEFT_FF_GRAIN;
    int64_t b = weft_min64(panels * (t + 1) / n_blocks * WEFT_FF_GRAIN, n);
    *first_out = (int32_t) weft_min64(a, n);
    *count_out = (int32_t) weft_max64(b - *first_out, 0);
}

int weft_shape_partition(struct weft_shape *s, int32_t n_blocks,
                         struct weft_err *err)
{
    int32_t most = weft_shape_most_blocks(s);
    if (n_blocks == 0)
        n_blocks = weft_shape_default_blocks(s);
    if (n_blocks < 1 || n_blocks > WEFT_MAX_BLOCKS
        || (n_blocks & (n_blocks - 1)) != 0)
        return weft_err_set(err, WEFT_EINVAL,
                            "tensor_blocks %d is not 1, 2, 4, 8, 16 or 32",
                            n_blocks);
    if (s->n_heads % n_blocks != 0)
        return weft_err_set(err, WEFT_EINVAL,
                            "tensor_blocks %d does not divide the %d query "
                            "heads; the largest that does is %d",
                            n_blocks, s->n_heads, most);
    if (panels_to_deal(s) < n_blocks)
        return weft_err_set(err, WEFT_EINVAL,
                            "tensor_blocks %d: intermediate size %d and "
                            "vocabulary %d must each have %d panels of %d; "
                            "the largest that fits is %d",
                            n_blocks, s->intermediate, s->vocab, n_blocks,
                            WEFT_FF_GRAIN, most);
    s->n_blocks = n_blocks;
    int32_t heads = s->n_heads / n_blocks;
    int32_t per_kv = s->n_heads / s->n_kv_heads;
    for (int32_t t = 0; t < n_blocks; t++) {
        struct weft_block *b = &s->block[t];
        b->head0 = t * heads;
        b->n_heads = heads;
        b->kv0 = b->head0 / per_kv;
        b->n_kv = (b->head0 + heads - 1) / per_kv - b->kv0 + 1;
        deal(s->intermediate, t, n_blocks, &b->ff0, &b->n_ff);
        deal(s->vocab, t, n_blocks, &b->vocab0, &b->n_vocab);
    }
    return 0;
}

int32_t weft_shape_kv_owner(const struct weft_shape *s, int32_t kv)
{
    int32_t t = 0;
    while (kv >= s->block[t].kv0 + s->block[t].n_kv)
        t++;
    return t;
}

static void add_part(struct weft_layout *l, enum weft_part_id id, int64_t n,
                     int64_t k, enum weft_dtype dtype)
{
    weft_assert(l->n_parts < WEFT_MAX_PARTS);
    struct weft_part *p = &l->part[l->n_parts++];
    bool matrix = k > 0 && id != WEFT_PART_EMBED && id < WEFT_PART_LORA_CUT;
    p->id = id;
    p->n = (int32_t) n;
    p->k = (int32_t) k;
    p->n_pad = (int32_t) (matrix ? weft_round_up(n, WEFT_PANEL) : n);
    p->k_pad = (int32_t) (matrix ? weft_round_up(k, WEFT_PANEL) : 0);
    p->n_flat = (size_t) p->n_pad * (size_t) weft_max64(k, 1);
    p->offset = l->n_flat;
    p->fwd_bytes = l->fwd_bytes;
    p->bwd_bytes = l->bwd_bytes;
    size_t element = k > 0 ? weft_dtype_bytes(dtype) : sizeof(float);
    l->n_flat += (size_t) weft_round_up((int64_t) p->n_flat, ALIGN_FLAT);
    l->fwd_bytes += (size_t) weft_round_up((int64_t) (p->n_flat * element),
                                           ALIGN_BYTES);
    if (matrix)
        l->bwd_bytes += (size_t) p->k_pad * (size_t) p->n_pad * element;
}

/* Adds adapters' sides of so many rows; what lies before is not trained. */
static void add_adapters(const struct weft_shape *s, struct weft_layout *l,
                         enum weft_part_id id, int64_t rows,
                         enum weft_dtype dtype)
{
    if (s->lora_rank == 0)
        return;
    l->first_trained = weft_layout_n_chunks(l);
    add_part(l, id, rows, s->lora_rank, dtype);
}

/* Adds the parts of tile `kind`. */
static void add_parts(const struct weft_shape *s, enum weft_tile_kind kind,
                      int32_t block, struct weft_layout *out)
{
    const struct weft_block *b = &s->block[block];
    int64_t h = s->hidden, d = s->head_dim;
    switch (kind) {
    case WEFT_TILE_EMBED:
        add_part(out, WEFT_PART_EMBED, b->n_vocab, h, s->dtype);
        break;
    case WEFT_TILE_LAYER: {
        int64_t n_qkv = (b->n_heads + 2 * (int64_t) b->n_kv) * d;
        int64_t ff = weft_round_up(b->n_ff, WEFT_PANEL);
        add_part(out, WEFT_PART_QKV, n_qkv, h, s->dtype);
        if (s->qkv_bias)
            add_part(out, WEFT_PART_QKV_BIAS, n_qkv, 0, s->dtype);
        add_part(out, WEFT_PART_O, h, b->n_heads * d, s->dtype);
        add_part(out, WEFT_PART_GATE_UP, 2 * ff, h, s->dtype);
        add_part(out, WEFT_PART_DOWN, h, ff, s->dtype);
        add_adapters(s, out, WEFT_PART_LORA_CUT,
                     n_qkv + b->n_heads * d + 3 * (int64_t) b->n_ff,
                     s->dtype);
        break;
    }
    case WEFT_TILE_NORMS:
        add_part(out, WEFT_PART_NORM1, h, 0, s->dtype);
        add_part(out, WEFT_PART_NORM2, h, 0, s->dtype);
        if (s->qk_norm) {
            add_part(out, WEFT_PART_QNORM, d, 0, s->dtype);
            add_part(out, WEFT_PART_KNORM, d, 0, s->dtype);
        }
        if (s->o_bias)
            add_part(out, WEFT_PART_O_BIAS, h, 0, s->dtype);
        add_adapters(s, out, WEFT_PART_LORA_WHOLE, LORA_WHOLE * h, WEFT_F32);
        break;
    case WEFT_TILE_HEAD:
        if (!s->scalar_head)
            add_part(out, WEFT_PART_HEAD, b->n_vocab, h, s->dtype);
        break;
    case WEFT_TILE_FINAL:
        add_part(out, WEFT_PART_NORM, h, 0, s->dtype);
        if (weft_shape_has_score(s))
            add_part(out, WEFT_PART_SCORE, h, 0, s->dtype);
        break;
    default:
        weft_assert(kind < WEFT_N_TILE_KINDS); /* an id of ours */
        break;
    }
}

void weft_layout_get(const struct weft_shape *s, enum weft_tile_kind kind,
                     int32_t block, struct weft_layout *out)
{
    bool layers = kind == WEFT_TILE_LAYER || kind == WEFT_TILE_NORMS;
    *out = (struct weft_layout){0};
    add_parts(s, kind, block, out);
    if (s->lora_rank > 0 && !layers) {
        out->first_trained = weft_layout_n_chunks(out);
        out->first_trained -= weft_layout_part(out, WEFT_PART_SCORE) != NULL;
    }
}

const struct weft_part *weft_layout_part(const struct weft_layout *l,
                                         enum weft_part_id id)
{
    for (int32_t i = 0; i < l->n_parts; i++)
        if (l->part[i].id == id)
            return &l->part[i];
    return NULL;
}

int32_t weft_layout_n_chunks(const struct weft_layout *l)
{
    int32_t n = 0;
    for (int32_t i = 0; i < l->n_parts; i++)
        n += weft_part_chunks(&l->part[i]);
    return n;
}

/* The part that has chunk *i; *i becomes the chunk's number within the part.
 * NULL: there is no such chunk. */
static const struct weft_part *part_of_chunk(const struct weft_layout *l,
                                             int32_t *i)
{
    for (int32_t p = 0; p < l->n_parts; p++) {
        if (*i < weft_part_chunks(&l->part[p]))
            return &l->part[p];
        *i -= weft_part_chunks(&l->part[p]);
    }
    return NULL;
}

/* Elements of a part before its chunk number i. */
static size_t before_chunk(const struct weft_part *p, int32_t i)
{
    return (size_t) i * WEFT_PANEL * (size_t) p->k;
}

size_t weft_layout_chunk(const struct weft_layout *l, int32_t i)
{
    const struct weft_part *p = part_of_chunk(l, &i);
    return p ? p->offset + before_chunk(p, i) : l->n_flat;
}

size_t weft_layout_chunk_byte(const struct weft_layout *l,
                              enum weft_dtype dtype, int32_t i)
{
    const struct weft_part *p = part_of_chunk(l, &i);
    if (p && p->id == WEFT_PART_LORA_WHOLE)
        dtype = WEFT_F32;
    return p ? p->fwd_bytes + before_chunk(p, i) * weft_dtype_bytes(dtype)
             : l->fwd_bytes;
}

const struct weft_part *weft_layout_chunk_part(const struct weft_layout *l,
                                               int32_t i, size_t *n_out)
{
    const struct weft_part *p = part_of_chunk(l, &i);
    size_t left = p->n_flat - before_chunk(p, i);
    size_t most = (size_t) WEFT_PANEL * (size_t) p->k;
    *n_out = p->k > 0 && most < left ? most : left;
    return p;
}

struct weft_range weft_layout_trained(const struct weft_layout *l)
{
    return (struct weft_range){l->first_trained,
                               weft_layout_n_chunks(l) - l->first_trained};
}

size_t weft_layout_n_trained(const struct weft_layout *l)
{
    return l->n_flat - weft_layout_chunk(l, l->first_trained);
}

int32_t weft_layout_chunk_near(const struct weft_layout *l, size_t element)
{
    int32_t n = weft_layout_n_chunks(l), low = 0, high = n;
    /* find the first chunk that begins at `element` or later */
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (weft_layout_chunk(l, middle) < element)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return 0;
    size_t after = weft_layout_chunk(l, low), before;
    before = weft_layout_chunk(l, low - 1);
    return element >= after || element - before >= after - element ? low
                                                                   : low - 1;
}

static bool same_rope(const struct weft_shape *a, const struct weft_shape *b)
{
    /* bits: the values were read, not computed */
    return a->rope == b->rope && a->rope_original == b->rope_original
        && memcmp(&a->rope_theta, &b->rope_theta, sizeof a->rope_theta) == 0
        && memcmp(&a->rope_factor, &b->rope_factor, sizeof a->rope_factor)
               == 0
        && memcmp(&a->rope_low, &b->rope_low, sizeof a->rope_low) == 0
        && memcmp(&a->rope_high, &b->rope_high, sizeof a->rope_high) == 0;
}

bool weft_shape_alike(const struct weft_shape *a, const struct weft_shape *b)
{
    return a->hidden == b->hidden && a->n_layers == b->n_layers
        && a->n_heads == b->n_heads && a->n_kv_heads == b->n_kv_heads
        && a->head_dim == b->head_dim && a->intermediate == b->intermediate
        && a->vocab == b->vocab && a->qkv_bias == b->qkv_bias
        && a->o_bias == b->o_bias && a->qk_norm == b->qk_norm
        && a->tied == b->tied && a->scalar_head == b->scalar_head
        && a->value_head == b->value_head && a->dtype == b->dtype
        && a->n_blocks == b->n_blocks && a->lora_rank == b->lora_rank
        && memcmp(&a->rms_eps, &b->rms_eps, sizeof a->rms_eps) == 0
        && same_rope(a, b);
}

/* Of a layer's adapters. */
static int64_t n_adapters(const struct weft_shape *s)
{
    int64_t heads = 2 * ((int64_t) s->n_heads + s->n_kv_heads) * s->head_dim;
    return s->lora_rank
         * ((int64_t) LORA_WHOLE * s->hidden + heads
            + 3 * (int64_t) s->intermediate);
}

int64_t weft_shape_n_params(const struct weft_shape *s)
{
    int64_t h = s->hidden, d = s->head_dim;
    int64_t qkv = (s->n_heads + 2 * (int64_t) s->n_kv_heads) * d;
    int64_t layer = qkv * h + s->n_heads * d * h + 3 * h * s->intermediate
                  + 2 * h + (s->qkv_bias ? qkv : 0) + (s->o_bias ? h : 0)
                  + (s->qk_norm ? 2 * d : 0) + n_adapters(s);
    bool language = !s->scalar_head && !s->tied;
    int64_t head = (language ? (int64_t) s->vocab * h : 0)
                 + (weft_shape_has_score(s) ? h : 0);
    return s->vocab * h + s->n_layers * layer + h + head;
}

int64_t weft_shape_n_trained(const struct weft_shape *s)
{
    return s->lora_rank == 0
             ? weft_shape_n_params(s)
             : s->n_layers * n_adapters(s)
                   + (weft_shape_has_score(s) ? s->hidden : 0);
}

double weft_shape_changed_bytes(const struct weft_shape *s, int32_t tp)
{
    double element = (double) weft_dtype_bytes(s->dtype);
    if (s->lora_rank == 0)
        return (double) weft_shape_n_params(s) * element / tp;
    double whole = (double) s->lora_rank * LORA_WHOLE * s->hidden;
    double cut = (double) n_adapters(s) - whole;
    double score = weft_shape_has_score(s) ? (double) s->hidden : 0;
    return s->n_layers * (sizeof(float) * whole + element * cut / tp)
         + sizeof(float) * score;
}
