/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW against the formula in double, many steps, and that the cut into
 * calls and the instruction set do not matter. */
#include "products.h"

static const struct weft_k_adamw options = {
    .lr = 1e-2f,
    .beta1 = 0.9f,
    .beta2 = 0.99f,
    .eps = 1e-6f,
    .weight_decay = 0.1f,
};

/* Vectors of one optimizer. */
struct state {
    float *grad, *master, *m, *v;
};

static struct state state_make(int64_t n)
{
    struct state s = {test_alloc(n, 4), test_alloc(n, 4), test_alloc(n, 4),
                      test_alloc(n, 4)};
    for (int64_t i = 0; i < n; i++)
        s.master[i] = test_uniform(1, i);
    return s;
}

static void state_free(struct state *s)
{
    weft_free(s->grad);
    weft_free(s->master);
    weft_free(s->m);
    weft_free(s->v);
}

static void set_grad(struct state *s, int64_t n, int step)
{
    for (int64_t i = 0; i < n; i++)
        s->grad[i] = test_uniform(2 + (uint32_t) step, i)
                   * (i % 2 ? 1e-4f : 10.0f);
}

/* Tolerance: per step each of m, v, master rounds a handful of times, the
 * update itself to 8 roundings of a number below 10 lr; both against numbers
 * of at most 1.5. */
static void test_adamw_formula(void)
{
    enum { N = 37, STEPS = 20 };
    for (int isa = 0; isa < test_n_isas(); isa++) {
        double w[N], m[N] = {0}, v[N] = {0};
        struct state s = state_make(N);
        int bad = 0;
        test_use_isa(isa);
        for (int i = 0; i < N; i++)
            w[i] = s.master[i];
        for (int step = 1; step <= STEPS; step++) {
            struct weft_k_adamw o = options;
            o.step = step;
            set_grad(&s, N, step);
            for (int i = 0; i < N; i++) {
                double g = (double) s.grad[i] * 0.25;
                double b1 = o.beta1, b2 = o.beta2, lr = o.lr;
                m[i] = b1 * m[i] + (1 - b1) * g;
                v[i] = b2 * v[i] + (1 - b2) * g * g;
                w[i] -= lr * o.weight_decay * w[i];
                w[i] -= lr * m[i] / (1 - pow(b1, step))
                      / (sqrt(v[i] / (1 - pow(b2, step))) + o.eps);
            }
            weft_k_adamw(&o, N, 0.25f, s.grad, s.master, s.m, s.v);
            for (int i = 0; i < N; i++) {
                bad += !(fabs(s.master[i] - w[i]) <= step * 4 * 0x1p-24);
                bad += !(fabs(s.m[i] - m[i]) <= step * 4 * 0x1p-24 * 2.5);
                bad += !(fabs(s.v[i] - v[i]) <= step * 6 * 0x1p-24 * v[i]);
            }
        }
        CHECK_INT(bad, 0);
        state_free(&s);
    }
}

/* One call, element after element, or in pieces, in every set. */
static void test_adamw_cuts(void)
{
    enum { N = 1200 };
    static const int64_t piece[] = {N, 1, 7, 16, 500, 513};
    struct weft_k_adamw o = options;
    struct state first = {0};
    for (int isa = 0; isa < test_n_isas(); isa++)
        for (size_t c = 0; c < WEFT_COUNT(piece); c++) {
            struct state s = state_make(N);
            test_use_isa(isa);
            for (o.step = 1; o.step <= 3; o.step++) {
                set_grad(&s, N, (int) o.step);
                for (int64_t i = 0; i < N; i += piece[c])
                    weft_k_adamw(&o, (size_t) weft_min64(piece[c], N - i),
                                 0.5f, s.grad + i, s.master + i, s.m + i,
                                 s.v + i);
            }
            if (!first.m) {
                first = s;
                continue;
            }
            CHECK(same_bits(s.master, first.master, N, sizeof(float)));
            CHECK(same_bits(s.m, first.m, N, sizeof(float)));
            CHECK(same_bits(s.v, first.v, N, sizeof(float)));
            state_free(&s);
        }
    state_free(&first);
}

/* No gradient, no decay: nothing moves; decay alone scales. */
static void test_adamw_still(void)
{
    enum { N = 20 };
    struct weft_k_adamw o = options;
    struct state s = state_make(N);
    o.step = 1;
    o.weight_decay = 0;
    weft_k_adamw(&o, N, 1, s.grad, s.master, s.m, s.v);
    for (int64_t i = 0; i < N; i++)
        CHECK(s.master[i] == test_uniform(1, i));
    o.weight_decay = 0.5f;
    weft_k_adamw(&o, N, 1, s.grad, s.master, s.m, s.v);
    float keep = (float) (1 - (double) o.lr * 0.5);
    for (int64_t i = 0; i < N; i++)
        CHECK(s.master[i] == test_uniform(1, i) * keep);
    state_free(&s);
}

WEFT_TESTS("kern/adamw", {"test_adamw_formula", test_adamw_formula},
           {"test_adamw_cuts", test_adamw_cuts},
           {"test_adamw_still", test_adamw_still})
