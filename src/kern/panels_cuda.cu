/* SPDX-License-Identifier: Apache-2.0 */
/* What a GPU does with matrices in flat order besides products: rows of panels
 * that blocks share, tied tables, and sums of squares of chunks. */
#include "kern/cuda_lang.h"
#include "kern/layer_rows_cuda.h"

enum { THREADS = 256 };

static __device__ __forceinline__ int64_t flat(int64_t row, int64_t column,
                                               int64_t k)
{
    return (row / WEFT_PANEL * k + column) * WEFT_PANEL + row % WEFT_PANEL;
}

/* n rows of k columns; a vector has one. */
static __global__ void copy_rows(int64_t n, int64_t k, bool is_vector,
                                 const float *from, int64_t from_row,
                                 float *to, int64_t to_row)
{
    int64_t i = (int64_t) blockIdx.x * THREADS + threadIdx.x;
    if (i >= n * k)
        return;
    int64_t r = i % n, c = i / n;
    int64_t a = is_vector ? from_row + r : flat(from_row + r, c, k);
    int64_t b = is_vector ? to_row + r : flat(to_row + r, c, k);
    to[b] = from ? from[a] : 0;
}

static void copy(const struct weft_rows_copy *c, void *stream)
{
    int64_t k = c->k > 0 ? c->k : 1;
    WEFT_LAUNCH(copy_rows, blocks_for(c->n * k, THREADS), THREADS,
                (cudaStream_t) stream, c->n, k, c->k == 0, c->from,
                c->from_row, c->to, c->to_row);
}

void weft_k_share_range_cuda(cudaStream_t stream, const struct weft_shape *s,
                             struct weft_range range, float *const tile[])
{
    weft_layer_share_range(s, range, tile, copy, stream);
}

/* ---- Tied tables ----------------------------------------------------- */

static __global__ void tied_add(int64_t size, int64_t n, int64_t k,
                                const float *embed, float *head)
{
    int64_t i = (int64_t) blockIdx.x * THREADS + threadIdx.x;
    int64_t row = i / (WEFT_PANEL * k) * WEFT_PANEL + i % WEFT_PANEL;
    if (i < size && row < n)
        head[i] = head[i] + embed[row * k + i / WEFT_PANEL % k];
}

void weft_k_tied_add_gradient_cuda(cudaStream_t stream,
                                   const struct weft_shape *s, int32_t t,
                                   struct weft_range chunks,
                                   const float *embed_grad, float *head_grad)
{
    int64_t first = (int64_t) chunks.first * WEFT_PANEL;
    int64_t n = weft_min64((int64_t) weft_range_end(chunks) * WEFT_PANEL,
                           s->block[t].n_vocab)
              - first;
    int64_t size = weft_round_up(n, WEFT_PANEL) * s->hidden;
    if (n > 0)
        WEFT_LAUNCH(tied_add, blocks_for(size, THREADS), THREADS, stream,
                    size, n, (int64_t) s->hidden, embed_grad, head_grad);
}

static __global__ void rows_of_panels(int64_t size, int64_t k,
                                      const float *head, float *table)
{
    int64_t i = (int64_t) blockIdx.x * THREADS + threadIdx.x;
    if (i < size)
        table[i] = head[flat(i / k, i % k, k)];
}

size_t weft_k_tied_table_scratch_bytes_cuda(const struct weft_shape *s,
                                            int32_t t)
{
    return (size_t) (weft_round_up(s->block[t].n_vocab, WEFT_PANEL)
                     * s->hidden)
         * weft_dtype_bytes(s->dtype);
}

void weft_k_tied_table_cuda(cudaStream_t stream, const struct weft_shape *s,
                            int32_t t, const void *head, void *table,
                            void *scratch)
{
    size_t bytes = weft_k_tied_table_scratch_bytes_cuda(s, t);
    int64_t size = (int64_t) (bytes / sizeof(float));
    bool in_place = head == table;
    if (s->dtype == WEFT_F32 && in_place) {
        cudaMemcpyAsync(scratch, head, bytes, cudaMemcpyDeviceToDevice,
                        stream);
        head = scratch;
    }
    if (s->dtype == WEFT_F32)
        WEFT_LAUNCH(rows_of_panels, blocks_for(size, THREADS), THREADS,
                    stream, size, (int64_t) s->hidden, (const float *) head,
                    (float *) table);
    else if (!in_place) /* a GPU's published head is row-major itself */
        cudaMemcpyAsync(table, head, bytes, cudaMemcpyDeviceToDevice, stream);
}

/* ---- Sums of squares ------------------------------------------------- */

/* Whether block t's first KV head is another's. */
static bool has_replica(const struct weft_shape *s, enum weft_tile_kind kind,
                        int32_t t)
{
    return kind == WEFT_TILE_LAYER
        && weft_shape_kv_owner(s, s->block[t].kv0) != t;
}

static void squares_at(const struct weft_shape *s, enum weft_tile_kind kind,
                       int32_t t, int32_t n_chunks, struct weft_arena *arena,
                       int64_t **begin_out, double **sum_out,
                       float **owned_out)
{
    struct weft_layout l;
    weft_layout_get(s, kind, t, &l);
    *begin_out = (int64_t *) weft_arena_take(arena, n_chunks + 1, 8);
    *sum_out = (double *) weft_arena_take(arena, n_chunks, 8);
    *owned_out = (float *) weft_arena_take(
        arena, has_replica(s, kind, t) ? (int64_t) l.n_flat : 0, 4);
}

size_t weft_k_chunk_squares_scratch_bytes_cuda(const struct weft_shape *s,
                                               enum weft_tile_kind kind,
                                               int32_t t, int32_t n_chunks)
{
    struct weft_arena arena = {NULL, 0};
    int64_t *begin;
    double *sum;
    float *owned;
    squares_at(s, kind, t, n_chunks, &arena, &begin, &sum, &owned);
    return arena.used;
}

/* Zeroes the replica's rows of a whole tile. */
static void drop_replica(cudaStream_t stream, const struct weft_shape *s,
                         int32_t t, const struct weft_layout *l, float *tile)
{
    static const enum weft_part_id id[2] = {WEFT_PART_QKV,
                                            WEFT_PART_QKV_BIAS};
    int64_t d = s->head_dim;
    int64_t row[2] = {s->block[t].n_heads * d,
                      (s->block[t].n_heads + s->block[t].n_kv) * d};
    for (int i = 0; i < 4; i++) {
        const struct weft_part *p = weft_layout_part(l, id[i / 2]);
        struct weft_rows_copy c;
        if (!p)
            continue;
        memset(&c, 0, sizeof c);
        c.n = d;
        c.k = p->k;
        c.to = tile + p->offset;
        c.to_row = row[i % 2];
        copy(&c, stream);
    }
}

/* Where chunk i of a tile begins. */
static __device__ __forceinline__ int64_t
chunk_at(const struct weft_layout &l, int32_t i)
{
    for (int32_t p = 0; p < l.n_parts; p++) {
        int32_t n = weft_part_chunks(&l.part[p]);
        if (i < n)
            return (int64_t) l.part[p].offset
                 + (int64_t) i * WEFT_PANEL * l.part[p].k;
        i -= n;
    }
    return (int64_t) l.n_flat;
}

static __global__ void find_chunks(struct weft_layout l,
                                   struct weft_range chunks, int64_t *begin)
{
    int32_t i = (int32_t) (blockIdx.x * THREADS + threadIdx.x);
    if (i <= chunks.n)
        begin[i] = chunk_at(l, chunks.first + i) - chunk_at(l, chunks.first);
}

struct some_sums {
    double of[THREADS];
};

/* One block: a thread adds what all of them have read, in order. */
static __global__ void add_up(int32_t n, const double *x, double *out)
{
    WEFT_SHARED(struct some_sums, some);
    double sum = 0;
    for (int32_t first = 0; first < n; first += THREADS) {
        int32_t here = weft_min32(n - first, THREADS);
        if ((int32_t) threadIdx.x < here)
            some.of[threadIdx.x] = x[first + (int32_t) threadIdx.x];
        __syncthreads();
        for (int32_t i = 0; threadIdx.x == 0 && i < here; i++)
            sum += some.of[i];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        *out = sum;
}

void weft_k_chunk_squares_cuda(cudaStream_t stream,
                               const struct weft_shape *s,
                               enum weft_tile_kind kind, int32_t t,
                               struct weft_range chunks, const float *grad,
                               bool whole, double *out, void *scratch)
{
    struct weft_layout l;
    struct weft_arena arena = {(char *) scratch, 0};
    int64_t *begin;
    double *sum;
    float *owned;
    weft_layout_get(s, kind, t, &l);
    squares_at(s, kind, t, chunks.n, &arena, &begin, &sum, &owned);
    if (has_replica(s, kind, t)) {
        size_t first = weft_layout_chunk(&l, chunks.first);
        size_t n = weft_layout_chunk(&l, weft_range_end(chunks)) - first;
        cudaMemcpyAsync(owned + first, grad, n * sizeof *grad,
                        cudaMemcpyDeviceToDevice, stream);
        drop_replica(stream, s, t, &l, owned);
        grad = owned + first;
    }
    WEFT_LAUNCH(find_chunks, blocks_for(chunks.n + 1, THREADS), THREADS,
                stream, l, chunks, begin);
    weft_k_sum_squares_cuda(stream, chunks.n, begin, grad, sum);
    if (whole)
        WEFT_LAUNCH(add_up, 1, THREADS, stream, chunks.n, sum, out);
    else
        weft_k_get_cuda(stream, out, sum, (size_t) chunks.n * sizeof *sum);
}
