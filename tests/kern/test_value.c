/* SPDX-License-Identifier: Apache-2.0 */
/* The scalar head and the value loss. */
#include "kern/losses.h"

#include <math.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "tests/kern/each_isa.h"
#include "tests/kern/ppo_golden.h"

static void test_value_loss_golden(void)
{
    FILE *f = golden_open();
    static struct golden g;
    int n_cases = 0;
    while (golden_next(f, "value", &g)) {
        float v[GOLDEN_MAX_N], old[GOLDEN_MAX_N], ret[GOLDEN_MAX_N];
        float dvalue[GOLDEN_MAX_N];
        double stat[WEFT_N_VALUE_STATS] = {0}, sum = 0;
        golden_row(&g, "value", v);
        golden_row(&g, "old", old);
        golden_row(&g, "ret", ret);
        weft_k_value_loss(golden_number(&g, "clip"), g.n,
                          golden_number(&g, "w"), v, old, ret, dvalue, stat);
        for (int i = 0; i < g.n; i++) {
            /* three f32 operations on numbers below 4 */
            golden_near(&g, "dvalue", dvalue[i], golden_get(&g, "dvalue")[i],
                        1e-6);
            sum += (double) v[i];
        }
        golden_near(&g, "loss", stat[WEFT_VSTAT_LOSS],
                    golden_get(&g, "loss")[0], 1e-6);
        golden_near(&g, "clipped", stat[WEFT_VSTAT_CLIPPED],
                    golden_get(&g, "clipped")[0], 1e-9);
        golden_near(&g, "value", stat[WEFT_VSTAT_VALUE], sum, 1e-12);
        CHECK(stat[WEFT_VSTAT_TOKENS] == g.n);
        n_cases++;
    }
    fclose(f);
    CHECK_INT(n_cases, 3);
}

/* A scalar head of hidden size h with weights away from 1 and 0. */
struct head {
    struct weft_shape shape;
    float *final, *grad; /* FINAL, flat */
    size_t score;        /* offset of the score vector */
    size_t n_flat;
    float *x; /* (rows, h) */
    void *scratch;
};

static float noise(uint32_t stream, int64_t i)
{
    return (float) weft_rng_normal(3, WEFT_RNG_INIT, stream, 0, (uint32_t) i);
}

static void head_init(struct head *t, int32_t h, int32_t rows)
{
    struct weft_layout l;
    *t = (struct head){.shape = {.hidden = h,
                                 .rms_eps = 1e-3f,
                                 .scalar_head = true,
                                 .n_blocks = 1}};
    weft_layout_get(&t->shape, WEFT_TILE_FINAL, 0, &l);
    t->score = weft_layout_part(&l, WEFT_PART_SCORE)->offset;
    t->n_flat = l.n_flat;
    t->final = weft_alloc_aligned(l.n_flat, sizeof(float));
    t->grad = weft_alloc_aligned(l.n_flat, sizeof(float));
    t->x = weft_alloc_aligned((size_t) (rows * h), sizeof(float));
    t->scratch = weft_alloc_aligned(weft_k_value_scratch_bytes(&t->shape), 1);
    REQUIRE(t->final && t->grad && t->x && t->scratch);
    for (int32_t j = 0; j < h; j++) {
        t->final[j] = 1 + 0.2f * noise(1, j);
        t->final[t->score + (size_t) j] = noise(2, j);
    }
    for (int64_t i = 0; i < rows * h; i++)
        t->x[i] = 2 * noise(4, i);
}

static void head_release(struct head *t)
{
    weft_free(t->final);
    weft_free(t->grad);
    weft_free(t->x);
    weft_free(t->scratch);
}

static double naive_value(const struct head *t, const float *x)
{
    int h = t->shape.hidden;
    double square = 0, sum = 0;
    for (int j = 0; j < h; j++)
        square += (double) x[j] * (double) x[j];
    double r = 1 / sqrt(square / h + (double) t->shape.rms_eps);
    for (int j = 0; j < h; j++)
        sum += (double) x[j] * r * (double) t->final[j]
             * (double) t->final[t->score + (size_t) j];
    return sum;
}

static void value_naive(void)
{
    static const int32_t sizes[] = {1, 2, 15, 16, 17, 64, 100, 768};
    for (size_t s = 0; s < WEFT_COUNT(sizes); s++) {
        struct head t;
        int32_t h = sizes[s], row[3] = {0, 2, 5};
        struct weft_k_targets targets = {3, row, NULL, 0, NULL};
        float value[3], alone;
        head_init(&t, h, 6);
        weft_k_value(&t.shape, t.final, t.x, &targets, value, t.scratch);
        for (int i = 0; i < 3; i++) {
            /* h / 16 + 4 additions of terms of size 2, one rounding each */
            CHECK(fabs(naive_value(&t, t.x + row[i] * h) - (double) value[i])
                  < 6e-8 * (h / 16 + 8) * 2 * h);
            struct weft_k_targets one = {1, &row[i], NULL, 0, NULL};
            weft_k_value(&t.shape, t.final, t.x, &one, &alone, t.scratch);
            CHECK(memcmp(&alone, &value[i], sizeof alone) == 0);
        }
        head_release(&t);
    }
}

static double weighted(const struct head *t, const int32_t *row,
                       const float *dvalue, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double) dvalue[i]
             * naive_value(t, t->x + row[i] * t->shape.hidden);
    return sum;
}

static double slope(const struct head *t, float *at, const int32_t *row,
                    const float *dvalue)
{
    float keep = *at, step = 0x1p-8f;
    *at = keep + step;
    double up = weighted(t, row, dvalue, 2);
    float high = *at;
    *at = keep - step;
    double down = weighted(t, row, dvalue, 2), low = (double) *at;
    *at = keep;
    return (up - down) / ((double) high - low);
}

static void value_backward_finite_differences(void)
{
    struct head t;
    int32_t h = 19, row[2] = {1, 3};
    float dvalue[2] = {0.7f, -1.3f};
    float *dx = calloc((size_t) (4 * h), sizeof *dx);
    struct weft_k_targets targets = {2, row, NULL, 0, NULL};
    head_init(&t, h, 4);
    dx[0] = 5; /* overwritten */
    weft_k_value_backward(&t.shape, t.final, 4, t.x, &targets, dvalue, dx,
                          t.grad, t.scratch);
    /* central differences in double: error step^2 / 6 * third derivative */
    for (int32_t j = 0; j < h; j++) {
        CHECK(dx[j] == 0 && dx[2 * h + j] == 0);
        CHECK(fabs(slope(&t, &t.x[h + j], row, dvalue) - (double) dx[h + j])
              < 2e-5);
        CHECK(fabs(slope(&t, &t.x[3 * h + j], row, dvalue)
                   - (double) dx[3 * h + j])
              < 2e-5);
        size_t score = t.score + (size_t) j;
        CHECK(fabs(slope(&t, &t.final[j], row, dvalue) - (double) t.grad[j])
              < 2e-5);
        CHECK(fabs(slope(&t, &t.final[score], row, dvalue)
                   - (double) t.grad[score])
              < 2e-5);
    }
    free(dx);
    head_release(&t);
}

/* Any cut into micro-batches continues the same chains. */
static void test_value_backward_continues(void)
{
    struct head t;
    int32_t h = 48, row[5] = {0, 1, 2, 3, 4};
    float dvalue[5] = {1, -2, 0.3f, 0, 0.11f};
    float *dx = calloc((size_t) (10 * h), sizeof *dx);
    head_init(&t, h, 5);
    struct weft_k_targets all = {5, row, NULL, 0, NULL},
                          first = {2, row, NULL, 0, NULL},
                          rest = {3, row, NULL, 0, NULL};
    weft_k_value_backward(&t.shape, t.final, 5, t.x, &all, dvalue, dx, t.grad,
                          t.scratch);
    float *grad = weft_alloc(t.n_flat, sizeof *grad);
    REQUIRE(dx && grad);
    float *dx2 = dx + 5 * h;
    weft_k_value_backward(&t.shape, t.final, 2, t.x, &first, dvalue, dx2,
                          grad, t.scratch);
    weft_k_value_backward(&t.shape, t.final, 3, t.x + 2 * h, &rest,
                          dvalue + 2, dx2 + 2 * h, grad, t.scratch);
    CHECK(memcmp(dx, dx2, (size_t) (5 * h) * sizeof *dx) == 0);
    CHECK(memcmp(grad, t.grad, t.n_flat * sizeof *grad) == 0);
    weft_free(grad);
    free(dx);
    head_release(&t);
}

static void test_value_naive(void)
{
    each_isa(value_naive);
}

static void test_value_backward_finite_differences(void)
{
    each_isa(value_backward_finite_differences);
}

WEFT_TESTS("kern/value", {"test_value_loss_golden", test_value_loss_golden},
           {"test_value_naive", test_value_naive},
           {"test_value_backward_finite_differences",
            test_value_backward_finite_differences},
           {"test_value_backward_continues", test_value_backward_continues})
