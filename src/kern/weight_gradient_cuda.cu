/* SPDX-License-Identifier: Apache-2.0 */
/*
 * G += dY^T X on tensor cores, for bf16. Every element of G is one chain that
 * starts from the gradient's present value and takes 16 tokens of a sample at
 * a time, samples in order, with zeros behind the last token of each: so
 * micro-batches do not change it, and G is read and written once for all of
 * them. A library's product would go through G once for every sample, and in
 * slices of 32 rows, as G lies in panels:
 *
 *     G(n, k) is number (n / 32) 32 K + 32 k + n % 32
 *
 * A block has 128 columns of X and 128 of dY, a warp 64 of each, the gradients
 * of which stay in its registers.
 */
#include "kern/mma_cuda.h"

#include "kern/weight_gradient_cuda.h"

enum {
    TILE = 128,
    PART = TILE / 2, /* of a warp */
    STEP = 16,       /* tokens */
    STAGES = 5,      /* steps that are loaded or used at once */
    LD = TILE + 8,   /* banks do not collide */
    THREADS = 4 * WEFT_WARP
};
#ifdef WEFT_CUDA_EXECUTOR /* so that tests have several launches */
enum { MAX_RUNS = 4 };
#else
enum { MAX_RUNS = 256 };
#endif

struct samples {
    int32_t n, rows[MAX_RUNS];
};
struct gradient {
    int64_t n, k, lddy, ldx;
    const uint16_t *dy, *x;
    float *grad;
    bool is_aligned; /* eight numbers can be copied at once */
};

struct alignas(16) stage {
    uint16_t x[STEP][LD], dy[STEP][LD];
};
struct stages {
    struct stage of[STAGES];
};

/* ---- Loads ------------------------------------------------------------ */

/* Where the next step begins. */
struct cursor {
    int32_t sample, token; /* of the sample */
    int64_t row;
};

/* n numbers of a row, of which eight from `column` on. */
static __device__ __forceinline__ void load8(uint16_t *to,
                                             const uint16_t *row,
                                             int64_t column, int64_t n,
                                             bool is_there, bool is_aligned)
{
    if (is_aligned) {
        is_there = is_there && column < n;
        weft_copy16(to, is_there ? row + column : row, is_there);
        return;
    }
    for (int e = 0; e < 8; e++)
        to[e] = is_there && column + e < n ? row[column + e] : 0;
}

/* Begins to load a step, unless all are, and goes on to the next. */
static __device__ __forceinline__ void begin_step(struct stage &s,
                                                  const struct gradient &g,
                                                  const struct samples &of,
                                                  struct cursor *at)
{
    while (at->sample < of.n && at->token >= of.rows[at->sample]) {
        at->row += of.rows[at->sample++];
        at->token = 0;
    }
    if (at->sample < of.n) {
        int left = of.rows[at->sample] - at->token;
        int64_t row = at->row + at->token;
        int64_t k0 = (int64_t) blockIdx.x * TILE;
        int64_t n0 = (int64_t) blockIdx.y * TILE;
#pragma unroll
        for (int e = threadIdx.x; e < STEP * TILE / 8; e += THREADS) {
            int i = e / (TILE / 8), j = e % (TILE / 8) * 8;
            bool is_there = i < left;
            int64_t from = row + (is_there ? i : 0);
            load8(&s.x[i][j], g.x + from * g.ldx, k0 + j, g.k, is_there,
                  g.is_aligned);
            load8(&s.dy[i][j], g.dy + from * g.lddy, n0 + j, g.n, is_there,
                  g.is_aligned);
        }
        at->token += STEP;
    }
    weft_copies_end();
}

/* ---- Products ----------------------------------------------------------- */

static __device__ __forceinline__ void add_step(float c[4][8][4],
                                                const struct stage &s, int k,
                                                int n)
{
    uint32_t a[4][4], b[4][4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        weft_load_a_columns(a[i], &s.x[0][k + 16 * i], LD);
        weft_load_b(b[i], &s.dy[0][n + 16 * i], LD);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            weft_mma(c[i][j], a[i], &b[j / 2][j % 2 * 2]);
}

/* The lane's gradients in columns k.. of X and n.. of dY, n being a multiple of
 * two panels: from G, or to it. */
template <bool STORES>
static __device__ __forceinline__ void move_gradient(const struct gradient &g,
                                                     int64_t k, int64_t n,
                                                     float c[4][8][4])
{
    int lane = threadIdx.x % WEFT_WARP;
    k += lane / 4;
    float *mine = g.grad + n * g.k + k * WEFT_PANEL + lane % 4 * 2;
    int k_left = (int) (g.k - k), n_left = (int) (g.n - n) - lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float *panel = mine + j / 4 * WEFT_PANEL * g.k + j % 4 * 8;
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int row = 8 * j + e % 2, column = 16 * i + e / 2 * 8;
                float *at = panel + column * WEFT_PANEL + e % 2;
                bool is_there = row < n_left && column < k_left;
                if (STORES && is_there)
                    *at = c[i][j][e];
                if (!STORES)
                    c[i][j][e] = is_there ? *at : 0;
            }
    }
}

static __global__ __launch_bounds__(THREADS,
                                    2) void weight_gradient(struct gradient g,
                                                            struct samples of)
{
    WEFT_SHARED(struct stages, s);
    int warp = threadIdx.x / WEFT_WARP, n_steps = 0;
    int k = warp % 2 * PART, n = warp / 2 * PART;
    int64_t all_k = (int64_t) blockIdx.x * TILE + k;
    int64_t all_n = (int64_t) blockIdx.y * TILE + n;
    bool has_any = all_k < g.k && all_n < g.n; /* the warp */
    for (int i = 0; i < of.n; i++)
        n_steps += (of.rows[i] + STEP - 1) / STEP;
    struct cursor at = {0, 0, 0};
    for (int i = 0; i < STAGES - 1; i++)
        begin_step(s.of[i], g, of, &at);
    float c[4][8][4];
    move_gradient<false>(g, all_k, all_n, c);
    for (int i = 0; i < n_steps; i++) {
        weft_copies_wait<STAGES - 2>();
        __syncthreads(); /* step i is there, and i - 1 not used any more */
        begin_step(s.of[(i + STAGES - 1) % STAGES], g, of, &at);
        if (has_any)
            add_step(c, s.of[i % STAGES], k, n);
    }
    move_gradient<true>(g, all_k, all_n, c);
}

void weft_weight_gradient_cuda(cudaStream_t stream,
                               const struct weft_k_gemm_dw_args *a)
{
    struct gradient g;
    g.n = a->n;
    g.k = a->k;
    g.lddy = a->lddy;
    g.ldx = a->ldx;
    g.dy = (const uint16_t *) a->dy;
    g.x = (const uint16_t *) a->x;
    g.grad = a->grad;
    dim3 grid(blocks_for(g.k, TILE), blocks_for(g.n, TILE));
    struct samples of;
    for (int32_t i = 0; i < a->n_runs; i += of.n) {
        int64_t rows = 0;
        of.n = weft_min32(a->n_runs - i, MAX_RUNS);
        for (int32_t j = 0; j < of.n; j++)
            rows += of.rows[j] = a->run_rows[i + j];
        g.is_aligned = (g.n | g.k | g.lddy | g.ldx) % 8 == 0
                    && ((uintptr_t) g.dy | (uintptr_t) g.x) % 16 == 0;
        if (rows > 0)
            WEFT_LAUNCH(weight_gradient, grid, THREADS, stream, g, of);
        g.dy += rows * g.lddy;
        g.x += rows * g.ldx;
    }
}
