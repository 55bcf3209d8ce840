/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backward pass of attention over a whole sequence, compiled for one
 * instruction set and included after attention_impl.h. Probabilities are
 * recomputed from the log-sum-exp of each row, 64 rows by 64 keys at a time.
 * Every element of dQ is one chain of additions over keys; every element of dK
 * and dV one chain over query rows, then over query heads.
 */

static float row_dot(enum weft_dtype dtype, int64_t d, const void *x,
                     const float *y)
{
    weft_v16 s = v_set1(0);
    for (int64_t i = 0; i < d; i += 16)
        s = v_fma(row_load(dtype, x, i, d), row_load(WEFT_F32, y, i, d), s);
    return v_sum(s);
}

/* p holds scores and becomes probabilities P; ds holds dP and becomes
 * (dP - delta) P scale. */
static void tile_gradient(int64_t limit, float scale, float lse, float delta,
                          float *p, float *ds)
{
    for (int64_t j = 0; j < PAGE; j += 16) {
        weft_v16 x = v_exp(
            v_sub(v_mul(v_load(p + j), v_set1(scale)), v_set1(lse)));
        weft_v16 g = v_mul(v_sub(v_load(ds + j), v_set1(delta)),
                           v_mul(x, v_set1(scale)));
        if (limit < j + 16) {
            int64_t n = weft_max64(limit - j, 0);
            x = v_keep(x, n, 0);
            g = v_keep(g, n, 0);
        }
        v_store(p + j, x);
        v_store(ds + j, g);
    }
}

struct head_backward {
    const struct weft_attention_backward *a;
    float *k, *kt, *vt; /* (n, D), segments (D, 64) of K and V */
    float *q, *delta;   /* (n, D), (n) of the query head */
    float *p, *ds;      /* (64, 64) */
};

/* On the diagonal, what a query gives to keys after it is 0: six rows at a
 * time go without what is 0 for all of them, which would add nothing. In
 * mm_lower() the rows of A are queries, in mm_upper() keys. */
enum { ROWS_AT_ONCE = 6 };

static void mm_lower(struct mm t, bool diagonal)
{
    int64_t rows = t.rows, k = t.k;
    if (!diagonal) {
        mm(&t);
        return;
    }
    for (int64_t i = 0; i < rows; i += t.rows) {
        t.rows = weft_min64(ROWS_AT_ONCE, rows - i);
        t.k = weft_min64(i + t.rows, k);
        mm(&t);
        t.a += t.rows * t.ars;
        t.c += t.rows * t.ldc;
    }
}

static void mm_upper(struct mm t, bool diagonal)
{
    int64_t rows = t.rows;
    if (!diagonal) {
        mm(&t);
        return;
    }
    for (int64_t i = 0; i < rows; i += t.rows) {
        t.rows = weft_min64(ROWS_AT_ONCE, rows - i);
        mm(&t);
        t.k -= t.rows;
        t.a += t.rows * (t.ars + t.aks);
        t.b = (const float *) t.b + t.rows * t.ldb;
        t.c += t.rows * t.ldc;
    }
}

/* Scores of 64 keys; on the diagonal the first rows need half of them. */
static void mm_scores(struct mm t, bool diagonal)
{
    enum { HALF = PAGE / 2 };
    int64_t rows = t.rows;
    if (diagonal) {
        t.rows = weft_min64(rows, HALF);
        t.cols = HALF;
        mm(&t);
        t.a += HALF * t.ars;
        t.c += HALF * t.ldc;
        t.rows = rows - HALF;
        t.cols = PAGE;
    }
    if (t.rows > 0)
        mm(&t);
}

/* 64 query rows from `r` (a multiple of 64) and the keys of segment s. */
static void head_tile(const struct head_backward *h, int64_t head, int64_t s,
                      int64_t r)
{
    const struct weft_attention_backward *a = h->a;
    int64_t d = a->head_dim, ldd = a->ldd, key = s * PAGE;
    int64_t rows = weft_min64(PAGE, a->n - r);
    int64_t keys = weft_min64(PAGE, a->n - key);
    const float *dout = a->dout + r * a->ldo + head * d;
    bool diagonal = key == r;
    struct mm scores = {.rows = rows,
                        .cols = PAGE,
                        .k = d,
                        .a = h->q + r * d,
                        .ars = d,
                        .aks = 1,
                        .b = h->kt + key * d,
                        .ldb = PAGE,
                        .c = h->p,
                        .ldc = PAGE};
    mm_scores(scores, diagonal);
    scores.a = dout;
    scores.ars = a->ldo;
    scores.b = h->vt + key * d;
    scores.c = h->ds;
    mm_scores(scores, diagonal);
    for (int64_t i = 0; i < rows; i++)
        tile_gradient(r + i - key + 1, a->scale,
                      a->lse[(r + i) * a->ldlse + head], h->delta[r + i],
                      h->p + i * PAGE, h->ds + i * PAGE);
    struct mm by_key = {.rows = keys,
                        .cols = d,
                        .k = rows,
                        .a = h->p,
                        .ars = 1,
                        .aks = PAGE,
                        .b = dout,
                        .ldb = a->ldo,
                        .c = a->dv + key * ldd,
                        .ldc = ldd,
                        .add = true};
    struct mm by_query = {.rows = rows,
                          .cols = d,
                          .k = keys,
                          .a = h->ds,
                          .ars = PAGE,
                          .aks = 1,
                          .b = h->k + key * d,
                          .ldb = d,
                          .c = a->dq + r * ldd + head * d,
                          .ldc = ldd,
                          .add = true};
    mm_upper(by_key, diagonal);
    by_key.a = h->ds;
    by_key.b = h->q + r * d;
    by_key.ldb = d;
    by_key.c = a->dk + key * ldd;
    mm_upper(by_key, diagonal);
    mm_lower(by_query, diagonal);
}

static void zero_rows(int64_t n, int64_t d, float *x, int64_t ld)
{
    for (int64_t r = 0; r < n; r++)
        memset(x + r * ld, 0, (size_t) d * sizeof *x);
}

static void attention_backward(const struct weft_attention_backward *a)
{
    int64_t d = a->head_dim, n = a->n;
    int64_t padded = weft_round_up(n, PAGE) * d;
    struct head_backward h = {.a = a, .k = a->scratch};
    h.kt = h.k + padded;
    h.vt = h.kt + padded;
    h.q = h.vt + padded;
    h.delta = h.q + n * d;
    h.p = h.delta + n;
    h.ds = h.p + PAGE * PAGE;
    widen(a->dtype, n, d, a->k, a->ldqkv, h.k);
    transpose(a->dtype, n, d, a->k, a->ldqkv, h.kt, d * PAGE);
    transpose(a->dtype, n, d, a->v, a->ldqkv, h.vt, d * PAGE);
    zero_rows(n, d, a->dk, a->ldd);
    zero_rows(n, d, a->dv, a->ldd);
    zero_rows(n, d * a->n_group, a->dq, a->ldd);
    for (int64_t head = 0; head < a->n_group; head++) {
        widen(a->dtype, n, d, row_of(a->dtype, a->q, head * d), a->ldqkv,
              h.q);
        for (int64_t r = 0; r < n; r++)
            h.delta[r] = row_dot(
                a->dtype, d, row_of(a->dtype, a->out, r * a->ldo + head * d),
                a->dout + r * a->ldo + head * d);
        for (int64_t s = 0; s * PAGE < n; s++)
            for (int64_t r = s * PAGE; r < n; r += PAGE)
                head_tile(&h, head, s, r);
    }
}
