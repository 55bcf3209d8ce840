/* SPDX-License-Identifier: Apache-2.0 */
#include "codelets/work.h"

#include "codelets/head.h"

struct weft_block_sums weft_block_sums(const struct weft_shape *shape,
                                       struct weft_range range)
{
    struct weft_block_sums sums = {.qkv = 0};
    int64_t d = shape->head_dim;
    for (int32_t i = range.first; i < weft_range_end(range); i++) {
        const struct weft_block *b = &shape->block[i];
        sums.attended += b->n_heads * d;
        sums.kv += b->n_kv * d;
        sums.mlp += b->n_ff;
        sums.vocab += b->n_vocab;
    }
    sums.qkv = sums.attended + 2 * sums.kv;
    return sums;
}

static struct weft_work work_of(const struct weft_shape *shape,
                                struct weft_range range, int64_t n_rows,
                                double flop)
{
    return (struct weft_work){
        .shape = shape, .n_blocks = range.n, .n_rows = n_rows, .flop = flop};
}

/* Numbers of the LoRA adapters that a range computes with, of parts forwards:
 * sides that are not cut are every range's. whole_out: of these. */
static double n_adapters(const struct weft_shape *shape,
                         const struct weft_block_sums *sums, int parts,
                         double *whole_out)
{
    double cut = 0, whole = 0, r = shape->lora_rank;
    if (parts & WEFT_WORK_ATTENTION) {
        cut += (double) (sums->qkv + sums->attended);
        whole += 4; /* of q, k, v and o */
    }
    if (parts & WEFT_WORK_MLP) {
        cut += 3 * (double) sums->mlp;
        whole += 3; /* of gate, up and down */
    }
    if (parts & WEFT_WORK_MLP_INPUT) {
        cut += 2 * (double) sums->mlp;
        whole += 2;
    }
    *whole_out = r * whole * shape->hidden;
    return r * cut + *whole_out;
}

/* Operations of the adapters for each row. Backwards there are two products with
 * each side of them for one forwards, by input and by weights. */
static double adapter_flop(const struct weft_shape *shape,
                           const struct weft_block_sums *sums, int parts)
{
    double whole, flop = 2 * n_adapters(shape, sums, parts, &whole);
    if (parts & WEFT_WORK_MLP_BACKWARD)
        flop += 4 * n_adapters(shape, sums, WEFT_WORK_MLP, &whole);
    if (parts & WEFT_WORK_HEADS_BACKWARD)
        flop += 4 * shape->lora_rank
              * (double) (sums->attended + shape->hidden);
    if (parts & WEFT_WORK_QKV_BACKWARD)
        flop += 4 * shape->lora_rank
              * (double) (sums->qkv + 3 * (int64_t) shape->hidden);
    return flop;
}

/* Floating-point operations for each row, and for each key that it attends to.
 * Backwards a matrix has two products, by input and by weights; where adapters
 * are trained in its place, only the first. */
static void layer_flop(const struct weft_shape *shape,
                       const struct weft_block_sums *sums, int parts,
                       double *row_out, double *key_out)
{
    double h = (double) shape->hidden, attended = (double) sums->attended;
    double qkv = h * (double) sums->qkv, o = h * attended;
    double mlp = h * (double) sums->mlp;
    double back = shape->lora_rank > 0 ? 2 : 4; /* of a number, backwards */
    *row_out = adapter_flop(shape, sums, parts);
    *key_out = 0;
    if (parts & WEFT_WORK_ATTENTION) {
        *row_out += 2 * (qkv + o);
        *key_out += 4 * attended;
    }
    if (parts & WEFT_WORK_MLP)
        *row_out += 6 * mlp;
    if (parts & WEFT_WORK_MLP_INPUT)
        *row_out += 4 * mlp;
    if (parts & WEFT_WORK_MLP_BACKWARD)
        *row_out += 3 * back * mlp;
    if (parts & WEFT_WORK_HEADS_BACKWARD) {
        *row_out += back * o;
        *key_out += 10 * attended; /* scores, dP, dQ, dK, dV */
    }
    if (parts & WEFT_WORK_QKV_BACKWARD)
        *row_out += back * qkv;
}

struct weft_work weft_work_layer(const struct weft_shape *shape,
                                 struct weft_range range, int parts,
                                 const struct weft_work_rows *rows)
{
    struct weft_block_sums sums = weft_block_sums(shape, range);
    double each_row, each_key;
    layer_flop(shape, &sums, parts, &each_row, &each_key);
    struct weft_work work = work_of(shape, range, rows->n_rows,
                                    each_row * rows->n_rows
                                        + each_key * (double) rows->n_keys);
    /* parts of one count once */
    work.n_layers = (parts & (WEFT_WORK_ATTENTION | WEFT_WORK_QKV_BACKWARD))
                 != 0;
    work.n_passes = ((parts & WEFT_WORK_ATTENTION) ? 1 : 0)
                  + ((parts & WEFT_WORK_QKV_BACKWARD) ? 2 : 0);
    if (parts & (WEFT_WORK_ATTENTION | WEFT_WORK_HEADS_BACKWARD))
        work.n_keys = rows->n_keys;
    if (parts & WEFT_WORK_ATTENTION)
        work.bytes = 2.0 * (double) sums.kv * (double) rows->n_cached
                   * (double) weft_dtype_bytes(shape->dtype);
    return work;
}

static struct weft_work columns_work(const struct weft_shape *shape,
                                     struct weft_range range, int64_t columns,
                                     int n_products,
                                     const struct weft_work_rows *rows)
{
    return work_of(shape, range, rows->n_targets,
                   2.0 * n_products * (double) columns
                       * (double) shape->hidden * rows->n_targets);
}

struct weft_work weft_work_value(const struct weft_shape *shape,
                                 int n_products,
                                 const struct weft_work_rows *rows)
{
    return columns_work(shape, weft_all_blocks(shape), 1, n_products, rows);
}

/* A scalar head has one column, which all members compute. */
struct weft_work weft_work_head(const struct weft_shape *shape,
                                struct weft_range range, int n_products,
                                const struct weft_work_rows *rows)
{
    int64_t columns = shape->scalar_head
                        ? 1
                        : weft_block_sums(shape, range).vocab;
    return columns_work(shape, range, columns, n_products, rows);
}

struct weft_work weft_work_head_backward(const struct weft_shape *shape,
                                         struct weft_range range,
                                         int n_products, bool keeps,
                                         const struct weft_work_rows *rows)
{
    if (shape->lora_rank > 0 && !shape->scalar_head)
        n_products--;
    struct weft_work work = weft_work_head(shape, range, n_products, rows);
    struct weft_work_rows again = *rows;
    if (keeps)
        again.n_targets -= weft_head_n_kept(shape, range, rows->n_targets);
    work.flop += weft_work_head(shape, range, 1, &again).flop;
    return work;
}

struct weft_work weft_work_embed(const struct weft_shape *shape,
                                 struct weft_range range, size_t table_bytes,
                                 bool adds, const struct weft_work_rows *rows)
{
    struct weft_work work = work_of(shape, range, rows->n_rows, 0);
    work.bytes = (double) rows->n_rows * (double) shape->hidden
               * (double) ((adds ? 2 : 1) * table_bytes + sizeof(float));
    work.is_all = true;
    return work;
}

struct weft_work weft_work_steps(const struct weft_shape *shape,
                                 struct weft_range range, int32_t n_layers,
                                 bool head, int32_t n_steps,
                                 const struct weft_work_rows step[])
{
    struct weft_block_sums sums = weft_block_sums(shape, range);
    double h = (double) shape->hidden, each_row, each_key;
    double size = (double) weft_dtype_bytes(shape->dtype);
    double layer = h * (double) (sums.qkv + sums.attended + 3 * sums.mlp);
    int parts = WEFT_WORK_ATTENTION | WEFT_WORK_MLP;
    double whole, adapters = n_adapters(shape, &sums, parts, &whole);
    double columns = head ? (double) sums.vocab : 0;
    struct weft_work work = work_of(shape, range, 0, 0);
    layer_flop(shape, &sums, parts, &each_row, &each_key);
    for (int32_t i = 0; i < n_steps; i++) {
        const struct weft_work_rows *r = &step[i];
        work.n_steps += r->n_rows > 0;
        work.n_rows += r->n_rows;
        work.n_keys += r->n_keys;
        work.flop += n_layers
                       * (each_row * r->n_rows
                          + each_key * (double) r->n_keys)
                   + 2 * h * columns * r->n_targets;
        work.bytes += n_layers * 2.0 * size * (double) sums.kv
                    * (double) (r->n_cached + r->n_rows);
    }
    work.n_layers = work.n_passes = n_layers;
    work.bytes += work.n_steps * size * (n_layers * layer + columns * h);
    work.bytes += (double) work.n_steps * n_layers
                * (size * (adapters - whole) + sizeof(float) * whole);
    work.is_all = true;
    return work;
}
