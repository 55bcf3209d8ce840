/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include "plan/layout.h"

enum { MAX_PP = 8 };

struct search {
    int64_t layer, first, last; /* costs */
    int32_t pp, n_layers;
    int32_t count[MAX_PP], best[MAX_PP];
    int64_t best_sorted[MAX_PP]; /* costs of the stages, descending */
    bool found;
};

static int descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *) a, y = *(const int64_t *) b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Counts are tried in ascending order, so the first of equals stays. */
static void judge(struct search *s)
{
    int64_t cost[MAX_PP];
    for (int32_t i = 0; i < s->pp; i++)
        cost[i] = s->count[i] * s->layer;
    cost[0] += s->first;
    cost[s->pp - 1] += s->last;
    qsort(cost, (size_t) s->pp, sizeof *cost, descending);
    int32_t i = 0;
    while (i < s->pp && s->found && cost[i] == s->best_sorted[i])
        i++;
    if (s->found && (i == s->pp || cost[i] > s->best_sorted[i]))
        return;
    s->found = true;
    memcpy(s->best, s->count, sizeof s->best);
    memcpy(s->best_sorted, cost, sizeof cost);
}

static void try_all(struct search *s, int32_t stage, int32_t left)
{
    if (stage == s->pp - 1) {
        s->count[stage] = left;
        judge(s);
        return;
    }
    for (int32_t n = 1; n <= left - (s->pp - 1 - stage); n++) {
        s->count[stage] = n;
        try_all(s, stage + 1, left - n);
    }
}

/* Multiply-adds of a layer, matrix by matrix. */
static int64_t matrices(const struct weft_shape *s)
{
    int64_t q = (int64_t) s->n_heads * s->head_dim * s->hidden;
    int64_t k = (int64_t) s->n_kv_heads * s->head_dim * s->hidden;
    int64_t gate = (int64_t) s->intermediate * s->hidden;
    return q + k + k + q + gate + gate + gate;
}

static void check_shape(const struct weft_shape *shape)
{
    int32_t first[MAX_PP + 1];
    for (int32_t pp = 1; pp <= MAX_PP && pp <= shape->n_layers; pp++) {
        struct search s = {.layer = matrices(shape),
                           .first = shape->hidden,
                           .last = shape->scalar_head
                                     ? shape->hidden
                                     : (int64_t) shape->hidden * shape->vocab,
                           .pp = pp,
                           .n_layers = shape->n_layers};
        try_all(&s, 0, shape->n_layers);
        weft_plan_stages(shape, pp, first);
        CHECK_INT(first[0], 0);
        for (int32_t i = 0; i < pp; i++)
            CHECK_INT(first[i + 1] - first[i], s.best[i]);
        CHECK_INT(first[pp], shape->n_layers);
    }
}

static void test_stages_exhaustive(void)
{
    /* A head of nothing, of half a layer, of one and of three layers. */
    static const int32_t vocab[] = {2, 250, 500, 501, 1502};
    for (int32_t layers = 1; layers <= 14; layers++)
        for (size_t v = 0; v < WEFT_COUNT(vocab); v++)
            for (int scalar = 0; scalar < 2; scalar++) {
                struct weft_shape s = {.hidden = 32,
                                       .n_layers = layers,
                                       .n_heads = 4,
                                       .n_kv_heads = 2,
                                       .head_dim = 16,
                                       .intermediate = 103,
                                       .vocab = vocab[v],
                                       .scalar_head = scalar};
                check_shape(&s);
            }
}

/* Llama 3 8B on four stages: its head is worth two and a half layers. */
static void test_stages_llama(void)
{
    const struct weft_shape s = {.hidden = 4096,
                                 .n_layers = 32,
                                 .n_heads = 32,
                                 .n_kv_heads = 8,
                                 .head_dim = 128,
                                 .intermediate = 14336,
                                 .vocab = 128256};
    const int32_t expected[] = {0, 8, 17, 26, 32};
    int32_t first[5];
    weft_plan_stages(&s, 4, first);
    for (int32_t i = 0; i <= 4; i++)
        CHECK_INT(first[i], expected[i]);
}

WEFT_TESTS("plan/stages", {"test_stages_exhaustive", test_stages_exhaustive},
           {"test_stages_llama", test_stages_llama})
