/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sampling the next token.
 *
 * Without top-k and top-p, probabilities are added up in the order of ids, a
 * chunk at a time. With one of them they are added up in descending order,
 * without sorting the whole vocabulary: tokens are put into buckets by their
 * distance from the maximum, and only a bucket that contains a boundary (of
 * top-k, of top-p, or the drawn token) is sorted.
 */
#include "kern/sample.h"
#include "kern/softmax.h"

#include "base/rng.h"
#include "kern/vec.h"

enum { CHUNK = WEFT_SOFTMAX_COLUMNS, BUCKETS = 2048 };

struct item {
    float logit;
    int32_t id;
};

struct pool {
    struct item *item;
    int32_t n;
    float scale, max; /* weight of a token: e^(logit * scale - max) */
    float per_unit;   /* buckets per unit of that exponent */
    int32_t count[BUCKETS];
    double weight[BUCKETS]; /* sums in the order of ids */
};

/* The tokens of all buckets before `bucket`, and the first n_in of its own. */
struct prefix {
    int32_t bucket, n_in;
    double weight;
};

/* A token's bucket, as a float. Rounding is monotonic, so a larger logit is
 * never in a later bucket. */
static float place(const struct pool *p, float logit)
{
    return (p->max - logit * p->scale) * p->per_unit;
}

/* Fills an empty pool with the tokens whose exponent is above `low` (< 0). The
 * loop has no branch, as it would often be mispredicted. */
static void pool_fill(struct pool *p, const float *logits, int32_t v,
                      float low)
{
    const struct weft_softmax_ops *ops = weft_softmax_ops();
    p->per_unit = BUCKETS / -low;
    for (int32_t j = 0; j < v; j += CHUNK) {
        int32_t m = (int32_t) weft_min64(CHUNK, v - j), n = 0;
        struct item *item = p->item + p->n;
        float e[CHUNK], sum, dot;
        ops->exp(logits + j, m, p->scale, p->max, e, &sum, &dot);
        for (int32_t i = 0; i < m; i++) {
            item[n] = (struct item){logits[j + i], j + i};
            e[n] = e[i];
            n += place(p, logits[j + i]) < (float) BUCKETS;
        }
        for (int32_t i = 0; i < n; i++) {
            int32_t b = (int32_t) place(p, item[i].logit);
            p->count[b]++;
            p->weight[b] += (double) e[i];
        }
        p->n += n;
    }
}

static bool before(struct item a, struct item b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* Restores the heap below `i`; the item that is last in order is on top. */
static void sift(struct item *item, int32_t i, int32_t n)
{
    struct item x = item[i];
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(item[child], item[child + 1]))
            child++;
        if (!before(x, item[child]))
            break;
        item[i] = item[child];
    }
    item[i] = x;
}

static void sort(struct item *item, int32_t n)
{
    int32_t sorted = 1;
    while (sorted < n && before(item[sorted - 1], item[sorted]))
        sorted++;
    if (sorted >= n) /* e.g. when many logits are equal */
        return;
    for (int32_t i = n / 2; i-- > 0;)
        sift(item, i, n);
    for (int32_t i = n; i-- > 1;) {
        struct item x = item[0];
        item[0] = item[i];
        item[i] = x;
        sift(item, 0, i);
    }
}

/* Moves a bucket's items to the front of the pool and sorts them. */
static void sort_bucket(struct pool *p, int32_t bucket)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n && n < p->count[bucket]; i++) {
        struct item x = p->item[i];
        if ((int32_t) place(p, x.logit) != bucket)
            continue;
        p->item[i] = p->item[n];
        p->item[n++] = x;
    }
    sort(p->item, n);
}

static double item_weight(const struct pool *p, int32_t i)
{
    float e, sum, dot;
    weft_softmax_ops()->exp(&p->item[i].logit, 1, p->scale, p->max, &e, &sum,
                            &dot);
    return (double) e;
}

/* The k tokens with the largest logits. */
static struct prefix take_count(struct pool *p, int32_t k)
{
    struct prefix all = {0, 0, 0};
    for (int32_t b = 0; b < BUCKETS && k > 0; b++) {
        if (p->count[b] == 0)
            continue;
        all.bucket = b;
        all.n_in = p->count[b];
        if (k < p->count[b]) {
            sort_bucket(p, b);
            for (all.n_in = 0; all.n_in < k; all.n_in++)
                all.weight += item_weight(p, all.n_in);
            return all;
        }
        all.weight += p->weight[b];
        k -= p->count[b];
    }
    return all;
}

/* The shortest part of `all` that weighs `least` or more (more than `least`
 * when `strictly`); its last item is then item[n_in - 1]. */
static struct prefix take_weight(struct pool *p, struct prefix all,
                                 double least, bool strictly)
{
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
    while (i < n) {
        weight += item_weight(p, i++);
        if (strictly ? weight > least : weight >= least)
            break;
    }
    return (struct prefix){b, i, weight};
}

static int32_t draw_cut(const struct weft_shape *s,
                        const struct weft_k_sampling *sampling,
                        const float *logits, float scale,
                        const struct weft_softmax *all, float u,
                        void *scratch)
{
    struct pool p = {.item = scratch, .scale = scale, .max = all->max};
    float low = WEFT_EXP_MIN;
    bool top_k = sampling->top_k > 0 && sampling->top_k < s->vocab;
    if (!top_k) { /* the tokens left out weigh less than 1 - top_p together */
        double tail = (1 - (double) sampling->top_p) / s->vocab;
        low = fmaxf(low, fminf((float) log(tail), -1));
    }
    pool_fill(&p, logits, s->vocab, low);
    struct prefix kept = take_count(&p, top_k ? sampling->top_k : p.n);
    double total = top_k ? kept.weight : (double) all->sum;
    if (sampling->top_p < 1)
        kept = take_weight(&p, kept, total * (double) sampling->top_p, false);
    kept = take_weight(&p, kept, kept.weight * (double) u, true);
    return p.item[kept.n_in - 1].id;
}

static int32_t greedy(const struct weft_shape *s, const float *logits)
{
    float max = weft_softmax_ops()->max(logits, s->vocab);
    int32_t i = 0;
    while (logits[i] != max)
        i++;
    return i;
}

static int32_t draw_all(const struct weft_shape *s, const float *logits,
                        float scale, const struct weft_softmax *all, float u)
{
    double least = (double) all->sum * (double) u, weight = 0;
    for (int32_t j = 0; j < s->vocab; j += CHUNK) {
        int32_t m = (int32_t) weft_min64(CHUNK, s->vocab - j);
        float e[CHUNK], sum, dot;
        weft_softmax_ops()->exp(logits + j, m, scale, all->max, e, &sum,
                                &dot);
        if (j + m < s->vocab && weight + (double) sum <= least) {
            weight += (double) sum;
            continue;
        }
        for (int32_t i = 0; i < m; i++) {
            weight += (double) e[i];
            if (weight > least)
                return j + i;
        }
    }
    return greedy(s, logits); /* rounding: no prefix reached the draw */
}

static bool is_fine(const struct weft_softmax *all)
{
    return all->sum > 0 && all->sum < INFINITY;
}

int32_t weft_k_sample(const struct weft_shape *s,
                      const struct weft_k_sampling *sampling,
                      const float *logits, uint32_t a, uint32_t b,
                      uint32_t position, float *logp_out, void *scratch)
{
    bool cold = sampling->temperature == 0;
    float scale = cold ? 1 : 1 / sampling->temperature;
    struct weft_softmax all = weft_softmax_row(s, logits, scale);
    if (!is_fine(&all))
        return -1;
    float u = weft_rng_uniform(sampling->seed, WEFT_RNG_SAMPLE, a, b,
                               position);
    bool cut = sampling->top_p < 1
            || (sampling->top_k > 0 && sampling->top_k < s->vocab);
    int32_t token = cold ? greedy(s, logits)
                  : cut
                      ? draw_cut(s, sampling, logits, scale, &all, u, scratch)
                      : draw_all(s, logits, scale, &all, u);
    *logp_out = logits[token] * scale - weft_softmax_lse(&all);
    return token;
}

int32_t weft_k_sample_held(const struct weft_shape *s,
                           const struct weft_k_sampling *sampling,
                           int32_t n_held, const int32_t *held, float *logits,
                           uint32_t a, uint32_t b, uint32_t position,
                           float *logp_out, void *scratch)
{
    if (n_held == 0)
        return weft_k_sample(s, sampling, logits, a, b, position, logp_out,
                             scratch);
    float scale = sampling->temperature == 0 ? 1 : 1 / sampling->temperature;
    struct weft_softmax all = weft_softmax_row(s, logits, scale);
    float logp;
    if (!is_fine(&all))
        return -1;
    for (int32_t i = 0; i < n_held; i++)
        logits[held[i]] = -INFINITY;
    int32_t token = weft_k_sample(s, sampling, logits, a, b, position, &logp,
                                  scratch);
    if (token >= 0)
        *logp_out = logits[token] * scale - weft_softmax_lse(&all);
    return token;
}
