/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sampling with top-k and top-p on a GPU: the buckets, sums and order of
 * sample_cpu.c, and so its tokens. A block per row. Candidates are listed in
 * the order of ids; every bucket has one thread, which adds up its candidates
 * in that order; a bucket that contains a boundary is sorted.
 */
#include "kern/kern_cuda.h"
#include "kern/sample_cuda.h"

#include <math.h>

enum {
    THREADS = SOFTMAX_THREADS,
    BUCKETS = 2048,
    EACH = 4, /* candidates of a thread that are looked at together */
    STEP = THREADS * EACH
};

struct item {
    float logit;
    int32_t id;
};

/* The tokens of all buckets before `bucket`, and the first n_in of its own. */
struct prefix {
    int32_t bucket, n_in;
    double weight;
};

struct pool {
    struct whole_row row;
    struct item *item;   /* (n) candidates, by id */
    struct item *sorted; /* of one bucket */
    int32_t n;
    float scale, max, per_unit;
    int32_t place[STEP]; /* of some candidates */
    float e[STEP];
    int32_t before[THREADS]; /* how many earlier threads keep */
    int32_t count[BUCKETS];
    double weight[BUCKETS];
    struct prefix kept;
    bool cuts; /* kept.bucket has to be sorted */
};

static __device__ float place_of(const struct pool *p, float logit)
{
    return (p->max - logit * p->scale) * p->per_unit;
}

static __device__ double weight_of(const struct pool *p, float logit)
{
    return (double) weft_expf(logit * p->scale - p->max);
}

/* Replaces each thread's n by the sum over the threads before it; returns the
 * sum over all. */
static __device__ int32_t sum_before(struct pool *p, int32_t *n)
{
    int me = threadIdx.x;
    p->before[me] = *n;
    __syncthreads();
    for (int apart = 1; apart < THREADS; apart *= 2) {
        int32_t more = me >= apart ? p->before[me - apart] : 0;
        __syncthreads();
        p->before[me] += more;
        __syncthreads();
    }
    int32_t all = p->before[THREADS - 1];
    *n = p->before[me] - *n;
    __syncthreads();
    return all;
}

/* Lists those of the n items, or logits where `from` is NULL, that are in one
 * bucket, or in any where it is -1, in their order. Returns how many. */
static __device__ int32_t list(struct pool *p, const float *logits,
                               const struct item *from, int32_t n,
                               int32_t bucket, struct item *out)
{
    int32_t n_out = 0;
    for (int32_t j = 0; j < n; j += STEP) {
        struct item mine[EACH];
        int32_t n_mine = 0, i = j + (int32_t) threadIdx.x * EACH;
        for (int32_t k = i; k < i + EACH && k < n; k++) {
            struct item x;
            x.logit = from ? from[k].logit : logits[k];
            x.id = from ? from[k].id : k;
            float at = place_of(p, x.logit);
            if (at < (float) BUCKETS
                && (bucket < 0 || (int32_t) at == bucket))
                mine[n_mine++] = x;
        }
        int32_t at = n_mine, all = sum_before(p, &at);
        for (int32_t k = 0; k < n_mine; k++)
            out[n_out + at + k] = mine[k];
        n_out += all;
    }
    __syncthreads();
    return n_out;
}

/* Counts and weighs all buckets. */
static __device__ void weigh(struct pool *p)
{
    int me = threadIdx.x;
    for (int b = me; b < BUCKETS; b += THREADS) {
        p->count[b] = 0;
        p->weight[b] = 0;
    }
    for (int32_t j = 0; j < p->n; j += STEP) {
        int32_t m = (int32_t) weft_min64(STEP, p->n - j);
        for (int32_t i = me; i < m; i += THREADS) {
            float logit = p->item[j + i].logit;
            p->place[i] = (int32_t) place_of(p, logit);
            p->e[i] = weft_expf(logit * p->scale - p->max);
        }
        __syncthreads();
        for (int32_t i = 0; i < m; i++)
            if (p->place[i] % THREADS == me) {
                p->count[p->place[i]]++;
                p->weight[p->place[i]] += (double) p->e[i];
            }
        __syncthreads();
    }
}

static __device__ bool is_before(struct item a, struct item b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* Lists a bucket's items and sorts them: a bitonic network on the next power
 * of two. */
static __device__ void sort_bucket(struct pool *p, int32_t bucket)
{
    struct item *x = p->sorted;
    int32_t n = list(p, NULL, p->item, p->n, bucket, x), all = 1;
    while (all < n)
        all *= 2;
    for (int32_t i = n + (int32_t) threadIdx.x; i < all; i += THREADS) {
        x[i].logit = -INFINITY;
        x[i].id = INT32_MAX;
    }
    __syncthreads();
    for (int32_t size = 2; size <= all; size *= 2)
        for (int32_t apart = size / 2; apart > 0; apart /= 2) {
            for (int32_t i = threadIdx.x; i < all; i += THREADS) {
                int32_t k = i ^ apart;
                bool up = (i & size) == 0;
                if (k > i && is_before(x[k], x[i]) == up) {
                    struct item y = x[i];
                    x[i] = x[k];
                    x[k] = y;
                }
            }
            __syncthreads();
        }
}

/* p->kept = the k tokens with the largest logits. */
static __device__ void take_count(struct pool *p, int32_t k)
{
    if (threadIdx.x == 0) {
        struct prefix all;
        all.bucket = all.n_in = 0;
        all.weight = 0;
        p->cuts = false;
        for (int32_t b = 0; b < BUCKETS && k > 0 && !p->cuts; b++) {
            if (p->count[b] == 0)
                continue;
            all.bucket = b;
            all.n_in = p->count[b];
            p->cuts = k < p->count[b];
            if (p->cuts)
                all.n_in = k;
            else
                all.weight += p->weight[b];
            k -= p->count[b];
        }
        p->kept = all;
    }
    __syncthreads();
    if (!p->cuts)
        return;
    sort_bucket(p, p->kept.bucket);
    for (int32_t i = 0; threadIdx.x == 0 && i < p->kept.n_in; i++)
        p->kept.weight += weight_of(p, p->sorted[i].logit);
    __syncthreads();
}

/* Shortens p->kept to the part that weighs `least` or more (more than `least`
 * when `strictly`); its last item is then p->sorted[n_in - 1]. */
static __device__ void take_weight(struct pool *p, double least,
                                   bool strictly)
{
    struct prefix all = p->kept;
    double weight = 0;
    int32_t b = 0;
    for (; b < all.bucket; b++) {
        double next = weight + p->weight[b];
        if (p->count[b] > 0 && (strictly ? next > least : next >= least))
            break;
        weight = next;
    }
    int32_t n = b < all.bucket ? p->count[b] : all.n_in, i = 0;
    sort_bucket(p, b);
    while (threadIdx.x == 0 && i < n) {
        weight += weight_of(p, p->sorted[i++].logit);
        if (strictly ? weight > least : weight >= least)
            break;
    }
    if (threadIdx.x == 0) {
        p->kept.bucket = b;
        p->kept.n_in = i;
        p->kept.weight = weight;
    }
    __syncthreads();
}

struct cut {
    int32_t top_k; /* 0: none */
    float top_p, scale, per_unit;
    uint64_t seed;
};

static __global__ void sample_cut(struct vocabulary v, struct held held,
                                  struct cut cut, float *logits, int64_t ld,
                                  const uint32_t *at, int32_t *token_out,
                                  float *logp_out, struct item *scratch,
                                  int64_t room)
{
    WEFT_SHARED(struct pool, p);
    int64_t i = blockIdx.x;
    logits += i * ld;
    at += 4 * i;
    if (has_ended(at, token_out + i, logp_out + i))
        return;
    if (!open_row(&p.row, v, held, at, logits, cut.scale)) {
        if (threadIdx.x == 0)
            token_out[i] = -1;
        return;
    }
    if (threadIdx.x == 0) {
        p.item = scratch + i * room;
        p.sorted = p.item + v.n;
        p.scale = cut.scale;
        p.max = p.row.all.max;
        p.per_unit = cut.per_unit;
    }
    __syncthreads();
    int32_t n = list(&p, logits, NULL, v.n, -1, p.item);
    if (threadIdx.x == 0)
        p.n = n;
    __syncthreads();
    weigh(&p);
    take_count(&p, cut.top_k > 0 ? cut.top_k : n);
    double total = cut.top_k > 0 ? p.kept.weight : (double) p.row.all.sum;
    if (cut.top_p < 1)
        take_weight(&p, total * (double) cut.top_p, false);
    float u = uniform_at(cut.seed, at);
    take_weight(&p, p.kept.weight * (double) u, true);
    if (threadIdx.x != 0)
        return;
    int32_t token = p.sorted[p.kept.n_in - 1].id;
    token_out[i] = token;
    logp_out[i] = logits[token] * cut.scale - p.row.lse;
}

bool weft_sample_cut_cuda(cudaStream_t stream, const struct vocabulary *v,
                          const struct weft_k_sampling *sampling,
                          const struct held *held, int32_t m, float *logits,
                          int64_t ld, const uint32_t *at, int32_t *token_out,
                          float *logp_out, void *scratch)
{
    struct cut cut;
    float low = WEFT_EXP_MIN;
    bool has_k = sampling->top_k > 0 && sampling->top_k < v->n;
    if (!weft_k_sample_is_cut(v->n, sampling))
        return false;
    if (!has_k) {
        double tail = (1 - (double) sampling->top_p) / v->n;
        low = fmaxf(low, fminf((float) log(tail), -1));
    }
    cut.top_k = has_k ? sampling->top_k : 0;
    cut.top_p = sampling->top_p;
    cut.scale = 1 / sampling->temperature;
    cut.per_unit = BUCKETS / -low;
    cut.seed = sampling->seed;
    WEFT_LAUNCH(sample_cut, m, THREADS, stream, *v, *held, cut, logits, ld,
                at, token_out, logp_out, (struct item *) scratch,
                weft_k_sample_room(v->n));
    return true;
}
