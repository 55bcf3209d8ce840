/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA graphs of decode steps: one for each number of rows, whether it is a
 * loop or not, and what they take of a GPU's memory. */
#include "base/alloc.h"
#include "codelets/gen.h"
#include "kern/kern_cuda.h"

/* CUDA does not say what a node takes. Somebody saw 33 MB for 500 more
 * (forums.developer.nvidia.com, thread 244901, CUDA 11.2), before graphs
 * without branches became smaller; bench/gpu says what the card takes. */
enum { NODE_BYTES = 68 << 10, GRAPH_BYTES = 1 << 20 };

/* ---- Which ---------------------------------------------------------------- */

int32_t weft_gen_launch_rows(const struct weft_batch *step, int32_t n_slots)
{
    int32_t rows = 1, n = step->n_rows;
    if (!weft_gen_is_decode(step))
        return n;
    while (rows < n && rows < 8)
        rows *= 2;
    if (rows < n)
        rows = (n + 7) / 8 * 8;
    return rows < n_slots ? rows : n_slots;
}

/* The number of the graph of n rows: those of 1, 2, 4, 8, 16, 24 ... */
static int32_t index_of(int32_t n)
{
    int32_t i = 0;
    for (int32_t rows = 1; rows < n && rows < 8; rows *= 2)
        i++;
    return n <= 8 ? i : 2 + (n + 7) / 8;
}

struct weft_gen_graphs *weft_gen_graphs_create(int32_t n_slots)
{
    int32_t n = index_of(n_slots) + 1;
    struct weft_gen_graphs *graphs = weft_alloc(
        1, sizeof *graphs + (size_t) n * sizeof *graphs->of);
    if (graphs)
        graphs->n = n;
    return graphs;
}

static void drop(struct weft_gen_graph *graph)
{
#ifdef WEFT_HAVE_CUDA
    weft_k_graph_free_cuda(graph->graph);
#endif
    *graph = (struct weft_gen_graph){0};
}

void weft_gen_graphs_free(struct weft_gen_graphs *graphs)
{
    for (int32_t i = 0; graphs && i < graphs->n; i++)
        drop(&graphs->of[i]);
    weft_free(graphs);
}

struct weft_gen_graph *weft_gen_graph_of(struct weft_gen_graphs *graphs,
                                         int32_t n_rows, uint64_t key)
{
    int32_t i = index_of(n_rows);
    weft_assert(i < graphs->n);
    struct weft_gen_graph *graph = &graphs->of[i];
    if (graph->key != key)
        drop(graph);
    graph->key = key;
    return graph;
}

/* ---- Memory --------------------------------------------------------------- */

/* The kernels that a step in which every text has one row launches
 * (tests/kern/test_layer_cuda counts a layer's). A product is
 * two where columns may be left over from panels (f32). */
int64_t weft_gen_graph_nodes(const struct weft_shape *shape,
                             const struct weft_stage_layers *layers,
                             struct weft_range range)
{
    enum {
        LAYER = 5,     /* rows and norm; q, k, v; two sums; SwiGLU */
        ATTENTION = 2, /* and its join */
        HEAD = 2 + 4,  /* norm and rows; draws */
        STEP = 4, /* what it is told; tokens before it, embedded; its own */
        LOOP = 1, /* whether another follows */
        /* Of a group: a norm, and for each sum a meeting, the members' roots'
         * sum, and where it is shared another meeting and the others' rows. A
         * member with several roots has a sum of each. */
        GROUP_LAYER = 1 + 2 * 4,
        GROUP = 3 + 1 /* meetings; what is selected of all rows */
    };
    int64_t product = shape->dtype == WEFT_BF16 ? 1 : 2, heads = 0;
    int32_t n_blocks = shape->n_blocks, n_kv = shape->n_kv_heads;
    bool is_group = range.n < n_blocks;
    struct weft_range root[WEFT_MAX_ROOTS];
    int32_t n_roots = weft_k_roots(n_blocks, range, root);
    /* one launch if all KV heads are read alike */
    bool alike = n_kv % n_blocks == 0 || n_blocks % n_kv == 0;
    for (int32_t t = range.first; t < weft_range_end(range); t++)
        heads += shape->block[t].n_kv;
    int64_t layer = LAYER + 4 * range.n * product
                  + ATTENTION * (alike ? 1 : heads)
                  + (is_group ? GROUP_LAYER + 2 * (n_roots - 1) : 0);
    int64_t pieces = 0; /* of logits: products, and copies */
    for (int32_t t = range.first; t < weft_range_end(range); t++)
        pieces += weft_ceil_div(shape->block[t].n_vocab, WEFT_K_HEAD_COLUMNS);
    int64_t head = layers->is_last ? HEAD + pieces * (product + 1) : 0;
    if (is_group) /* the first member copies the others' logits */
        head += GROUP + (layers->is_last ? n_blocks - range.n : 0);
    int64_t step = STEP + (layers->is_first && layers->is_last ? LOOP : 0);
    return (layers->end - layers->first) * layer + head + step;
}

size_t weft_gen_graphs_bytes(const struct weft_shape *shape,
                             const struct weft_stage_layers *layers,
                             struct weft_range range, int32_t n_slots)
{
    size_t one = GRAPH_BYTES
               + (size_t) weft_gen_graph_nodes(shape, layers, range)
                     * NODE_BYTES;
    return (size_t) (index_of(n_slots) + 1) * one;
}
