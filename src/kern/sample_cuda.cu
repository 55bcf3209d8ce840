/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sampling the next token on a GPU from the whole distribution (with top-k and
 * top-p: sample_cut_cuda.cu), with the draws of sample_cpu.c: probabilities are
 * added up in the order of ids, chunks of 1024 at once where the draw lies
 * behind them. A block per row.
 */
#include "kern/sample_cuda.h"

enum { THREADS = SOFTMAX_THREADS, COLUMNS = WEFT_SOFTMAX_COLUMNS };

/* What the threads of a block share about their row. */
struct row {
    struct whole_row whole;
    float sum[SOFTMAX_CHUNKS]; /* of some chunks */
    float e[COLUMNS];          /* of one chunk */
    float best[THREADS];
    int32_t best_id[THREADS];
    int32_t enter; /* the chunk to look into, or -1 */
    int32_t token; /* -1: none yet */
};

/* The lowest id that has the largest logit. */
static __device__ void greedy(struct row *row, int32_t n, const float *logits)
{
    int me = threadIdx.x;
    float best = -INFINITY;
    int32_t id = n;
    for (int32_t j = me; j < n; j += THREADS)
        if (logits[j] > best || (logits[j] == best && id == n)) {
            best = logits[j];
            id = j;
        }
    row->best[me] = best;
    row->best_id[me] = id;
    __syncthreads();
    for (int i = 1; me == 0 && i < THREADS; i++)
        if (row->best[i] > best
            || (row->best[i] == best && row->best_id[i] < id)) {
            best = row->best[i];
            id = row->best_id[i];
        }
    if (me == 0)
        row->token = id;
    __syncthreads();
}

/* Looks into one chunk; the first thread adds its probabilities to *weight. */
static __device__ void look_into(struct row *row, int32_t first, int32_t n,
                                 const float *logits, float scale,
                                 double least, double *weight)
{
    for (int32_t i = threadIdx.x; i < n; i += THREADS)
        row->e[i] = weft_expf(logits[first + i] * scale - row->whole.all.max);
    __syncthreads();
    for (int32_t i = 0; threadIdx.x == 0 && i < n && row->token < 0; i++) {
        *weight += (double) row->e[i];
        if (*weight > least)
            row->token = first + i;
    }
    __syncthreads();
}

/* The first token at which the sum of probabilities exceeds the share u of
 * all; none when rounding keeps it below. */
static __device__ void draw(struct row *row, int32_t n, const float *logits,
                            float scale, float u)
{
    int chunk = threadIdx.x / SOFTMAX_PARTS;
    double least = (double) row->whole.all.sum * (double) u, weight = 0;
    for (int32_t j = 0; j < n && row->token < 0;
         j += SOFTMAX_CHUNKS * COLUMNS) {
        float x[SOFTMAX_EACH];
        int64_t at = j + chunk * COLUMNS;
        int64_t left = weft_min64(COLUMNS, n - at);
        softmax_load(logits + at, left, x);
        struct softmax_sums s = softmax_chunk_sums(x, left, scale,
                                                   row->whole.all.max);
        if (threadIdx.x % SOFTMAX_PARTS == 0)
            row->sum[chunk] = s.sum;
        for (int32_t c = 0; c < SOFTMAX_CHUNKS && row->token < 0;) {
            __syncthreads();
            if (threadIdx.x == 0) { /* passes chunks before the draw */
                while (c < SOFTMAX_CHUNKS && j + (c + 1) * COLUMNS < n
                       && weight + (double) row->sum[c] <= least)
                    weight += (double) row->sum[c++];
                row->enter = c;
            }
            __syncthreads();
            c = row->enter;
            int32_t first = j + c * COLUMNS;
            if (c < SOFTMAX_CHUNKS && first < n)
                look_into(row, first,
                          (int32_t) weft_min64(COLUMNS, n - first), logits,
                          scale, least, &weight);
            c++;
        }
        __syncthreads();
    }
}

static __global__ void sample(struct vocabulary v, struct held held,
                              bool is_cold, float scale, uint64_t seed,
                              float *logits, int64_t ld, const uint32_t *at,
                              int32_t *token_out, float *logp_out)
{
    WEFT_SHARED(struct row, row);
    int64_t i = blockIdx.x;
    logits += i * ld;
    at += 4 * i;
    if (has_ended(at, token_out + i, logp_out + i))
        return;
    if (threadIdx.x == 0)
        row.token = -1;
    bool is_good = open_row(&row.whole, v, held, at, logits, scale);
    if (is_good && !is_cold)
        draw(&row, v.n, logits, scale, uniform_at(seed, at));
    if (is_good && row.token < 0)
        greedy(&row, v.n, logits);
    if (threadIdx.x != 0)
        return;
    token_out[i] = row.token;
    if (row.token >= 0)
        logp_out[i] = logits[row.token] * scale - row.whole.lse;
}

void weft_k_sample_cuda(cudaStream_t stream, const struct weft_shape *s,
                        const struct weft_k_sampling *sampling,
                        int32_t n_held, const int32_t *held_, int32_t m,
                        float *logits, int64_t ld, const uint32_t *at,
                        int32_t *token_out, float *logp_out, void *scratch)
{
    struct vocabulary v;
    struct held held;
    held.n = n_held;
    for (int32_t i = 0; i < n_held; i++)
        held.token[i] = held_[i];
    v.n_blocks = s->n_blocks;
    v.n = s->vocab;
    for (int32_t t = 0; t < s->n_blocks; t++) {
        v.first[t] = s->block[t].vocab0;
        v.n_of[t] = s->block[t].n_vocab;
    }
    bool is_cold = sampling->temperature == 0;
    if (m == 0
        || weft_sample_cut_cuda(stream, &v, sampling, &held, m, logits, ld,
                                at, token_out, logp_out, scratch))
        return;
    WEFT_LAUNCH(sample, m, THREADS, stream, v, held, is_cold,
                is_cold ? 1 : 1 / sampling->temperature, sampling->seed,
                logits, ld, at, token_out, logp_out);
}
