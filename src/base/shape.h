/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shape of a model, its partition into T tensor blocks, and the layout of
 * parameters in tiles.
 *
 * Results depend on the partition (doc/numerics.md), so it is chosen once per
 * run and stored in checkpoints. Every layer is cut into T blocks: each has a
 * range of query heads with the KV heads that they read, and a range of MLP
 * columns. The embedding and the head are cut by vocabulary.
 *
 * A tile is one f32 vector in *flat* order, which holds the tile's parts one
 * after another. A matrix part W (N, K) is stored as panels of WEFT_PANEL
 * rows: flat[panel][k][row] is W[panel * WEFT_PANEL + row][k], and N is padded
 * with rows of 0. Master weights, gradients and Adam's moments have flat
 * order, so that the optimizer works elementwise. The *published* weights,
 * which products read, have the same order in the run's dtype (bf16: pairs of
 * k interleaved); for dX there is also a published transpose.
 */
#ifndef WEFT_BASE_SHAPE_H
#define WEFT_BASE_SHAPE_H

#include "base/dtype.h"
#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEFT_PANEL = 32,    /* rows of a panel of a matrix part */
    WEFT_FF_GRAIN = 64, /* MLP columns and vocabulary are cut at multiples */
    WEFT_MAX_BLOCKS = 32,    /* T */
    WEFT_DEFAULT_BLOCKS = 8, /* T where the configuration has none, at most */
    WEFT_PAGE_TOKENS = 64    /* KV page, and the aligned attention segment */
};

enum weft_rope { WEFT_ROPE_DEFAULT, WEFT_ROPE_LINEAR, WEFT_ROPE_LLAMA3 };

/* One tensor block: ranges [x0, x0 + n_x). Where neighbouring blocks read the
 * same KV head, each holds a replica of it; the first of them owns the
 * head. */
struct weft_block {
    int32_t head0, n_heads; /* query heads */
    int32_t kv0, n_kv;      /* KV heads they read */
    int32_t ff0, n_ff;      /* MLP columns */
    int32_t vocab0, n_vocab;
};

struct weft_shape {
    int32_t hidden, n_layers, n_heads, n_kv_heads, head_dim;
    int32_t intermediate, vocab, max_positions;
    float rms_eps;
    enum weft_rope rope;
    double rope_theta;
    double rope_factor;         /* linear, llama3 */
    double rope_low, rope_high; /* llama3: low_freq_factor, high_... */
    int32_t rope_original;      /* llama3: original_max_position_... */
    bool qkv_bias, o_bias, qk_norm, tied;
    /* the head is score (1, hidden), without a vocabulary */
    bool scalar_head;
    /* a score vector beside the language head: a critic that shares all else
     * with the policy. Only plans have it: no kernel computes both heads. */
    bool value_head;
    /* The score of a text is that of its last token other than score_pad, as
     * in Transformers; without score_skips_pad it is that of its last
     * token. */
    bool score_skips_pad;
    int32_t score_pad;
    /* Rank of the LoRA adapters beside every matrix of the layers, which alone
     * are trained then, with a score vector; 0: there are none, and all
     * weights are. Only plans have them: no kernel computes with adapters. */
    int32_t lora_rank;
    enum weft_dtype dtype; /* published weights, product inputs, KV */
    int32_t n_blocks;      /* T; 0 until weft_shape_partition() */
    struct weft_block block[WEFT_MAX_BLOCKS];
};

/* Tensor blocks, chunks, ... number first .. first + n - 1. */
struct weft_range {
    int32_t first, n;
};

WEFT_INLINE int32_t weft_range_end(struct weft_range range)
{
    return range.first + range.n;
}

/* The largest T there can be: a power of two that divides the query heads and
 * leaves every block a panel of the MLP and of the vocabulary. */
int32_t weft_shape_most_blocks(const struct weft_shape *shape);
/* The default T: the largest such up to WEFT_DEFAULT_BLOCKS. */
int32_t weft_shape_default_blocks(const struct weft_shape *shape);

/* Fills shape->block for T = n_blocks (0: the default). Errors: T not a power
 * of two up to WEFT_MAX_BLOCKS, T not dividing the query heads, fewer MLP or
 * vocabulary panels than T (so no block is ever empty). */
int weft_shape_partition(struct weft_shape *shape, int32_t n_blocks,
                         struct weft_err *err);

/* Whether two models are alike but for their weights and the length of their
 * texts; both shapes are partitioned. */
bool weft_shape_alike(const struct weft_shape *a, const struct weft_shape *b);

/* Whether it has a score vector, alone or beside a language head. */
WEFT_INLINE bool weft_shape_has_score(const struct weft_shape *shape)
{
    return shape->scalar_head || shape->value_head;
}

/* The lowest block that holds KV head `kv`. */
int32_t weft_shape_kv_owner(const struct weft_shape *shape, int32_t kv);

/* ---- Tiles of parameters ---------------------------------------------- */

enum weft_tile_kind {
    /* per block: token embedding, row-major (v, hidden) */
    WEFT_TILE_EMBED,
    WEFT_TILE_LAYER, /* per layer and block: the matrices */
    WEFT_TILE_NORMS, /* per layer: replicated vectors, always f32 */
    WEFT_TILE_HEAD,  /* per block: lm_head rows; absent for a scalar head */
    WEFT_TILE_FINAL, /* final norm, and the score vector if there is one */
    WEFT_N_TILE_KINDS
};

enum weft_part_id {
    WEFT_PART_EMBED,
    WEFT_PART_QKV, /* rows: block's q heads, then k heads, then v heads */
    WEFT_PART_QKV_BIAS, /* vector (n) */
    WEFT_PART_O,        /* N = hidden, K = n_heads * head_dim of the block */
    WEFT_PART_GATE_UP,  /* panels alternate: 32 gate rows, 32 up rows */
    WEFT_PART_DOWN,     /* N = hidden, K = n_ff padded to 32 */
    WEFT_PART_NORM1,
    WEFT_PART_NORM2,
    WEFT_PART_QNORM,
    WEFT_PART_KNORM,
    WEFT_PART_O_BIAS,
    WEFT_PART_HEAD, /* N = n_vocab, K = hidden */
    WEFT_PART_NORM,
    WEFT_PART_SCORE,
    /* LoRA: of each product y = W x + B (A x) the sides that tensor blocks cut
     * with W, k = rank: rows of B for q, k, v, gate and up, columns of A for o
     * and down */
    WEFT_PART_LORA_CUT,
    WEFT_PART_LORA_WHOLE, /* the other sides, which every member has; f32 */
    WEFT_N_PARTS
};

/* One part of a tile. Vectors have k = 0. */
struct weft_part {
    enum weft_part_id id;
    int32_t n, k;     /* rows without padding, columns */
    int32_t n_pad;    /* n rounded up to WEFT_PANEL (vectors, embed: n) */
    size_t offset;    /* first element in flat order */
    size_t n_flat;    /* elements: n_pad * max(k, 1) */
    size_t fwd_bytes; /* byte offset in the published forward tile */
    size_t bwd_bytes; /* byte offset in the published transposed tile */
    int32_t k_pad;    /* columns of the transposed pack's panels: k to 32 */
};

enum { WEFT_MAX_PARTS = 6 };

/* Its chunks: panels of a matrix, or a whole vector. */
WEFT_INLINE int32_t weft_part_chunks(const struct weft_part *p)
{
    return p->k > 0 ? (p->n_pad + WEFT_PANEL - 1) / WEFT_PANEL : 1;
}

/* Layout of one tile: parts, and total sizes. Offsets are multiples of 64
 * bytes. Published forward tile: matrices in the run's dtype, vectors and
 * norms in f32, the embedding in dtype. Published transposed tile: matrices
 * only, as [k_pad / 32][n_pad][32] (bf16: [k_pad/32][n_pad/2][32][2]). */
struct weft_layout {
    int32_t n_parts;
    int32_t first_trained; /* chunk */
    struct weft_part part[WEFT_MAX_PARTS];
    size_t n_flat; /* f32 elements of master, gradient, each moment */
    size_t fwd_bytes;
    size_t bwd_bytes; /* 0 where there is nothing to transpose */
};

/* `block` is ignored for NORMS and FINAL. Needs a partitioned shape. */
void weft_layout_get(const struct weft_shape *shape, enum weft_tile_kind kind,
                     int32_t block, struct weft_layout *out);

/* The tile's part of that id, or NULL when it has none. */
const struct weft_part *weft_layout_part(const struct weft_layout *layout,
                                         enum weft_part_id id);

/* Flat index (within the part) of element (n, k) of a matrix part. */
WEFT_INLINE size_t weft_flat_index(const struct weft_part *p, int64_t n,
                                   int64_t k)
{
    return ((size_t) (n / WEFT_PANEL) * (size_t) p->k + (size_t) k)
             * WEFT_PANEL
         + (size_t) (n % WEFT_PANEL);
}

/* The row of the GATE_UP part that holds the block's column f of the gate
 * projection, or with is_up of the up projection. */
WEFT_INLINE int64_t weft_gate_up_row(int64_t f, bool is_up)
{
    return f / WEFT_PANEL * 2 * WEFT_PANEL + (is_up ? WEFT_PANEL : 0)
         + f % WEFT_PANEL;
}

/* ---- Chunks ----------------------------------------------------------- */

/* A tile's flat order is cut into chunks: WEFT_PANEL rows of a matrix or of an
 * embedding, or a whole vector. Parts of a tile that are summed or stored
 * separately consist of whole chunks. In the published forward tile too the
 * numbers of a chunk are contiguous, and begin at a multiple of 64 bytes. */
int32_t weft_layout_n_chunks(const struct weft_layout *layout);
/* First element of chunk i in flat order, and its first byte in the published
 * forward tile of a run's dtype; i = n_chunks: the tile's ends. */
size_t weft_layout_chunk(const struct weft_layout *layout, int32_t i);
size_t weft_layout_chunk_byte(const struct weft_layout *layout,
                              enum weft_dtype dtype, int32_t i);
/* The part that has chunk i < n_chunks; n_out gets the chunk's number of
 * elements. */
const struct weft_part *weft_layout_chunk_part(
    const struct weft_layout *layout, int32_t i, size_t *n_out);
/* The chunks that training changes, for which there are gradients and optimizer
 * state: all, or with adapters these, which are the last; n may be 0. And how
 * many elements they have. */
struct weft_range weft_layout_trained(const struct weft_layout *layout);
size_t weft_layout_n_trained(const struct weft_layout *layout);
/* The number i, 0 to n_chunks, for which weft_layout_chunk(i) is nearest to an
 * element. */
int32_t weft_layout_chunk_near(const struct weft_layout *layout,
                               size_t element);

/* Number of parameters (tied embedding counted once), adapters included; and of
 * those that are trained. */
int64_t weft_shape_n_params(const struct weft_shape *shape);
int64_t weft_shape_n_trained(const struct weft_shape *shape);
/* Bytes of published weights that training changes, of a member of a tp group
 * that has all layers. */
double weft_shape_changed_bytes(const struct weft_shape *shape, int32_t tp);

#ifdef __cplusplus
}
#endif
#endif
