/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small products inside attention, compiled for one instruction set and
 * included after rows_impl.h.
 */

/* C (rows, cols) = [C +] A (rows, k) B (k, cols), each element one ascending
 * chain over k. A is addressed a[row * ars + k * aks]. */
struct mm {
    int64_t rows, cols, k;
    const float *a;
    int64_t ars, aks;
    const void *b; /* f32, or bf16 when b_bf16 */
    int64_t ldb;
    float *c;
    int64_t ldc;
    bool b_bf16, add;
    const char *ahead; /* the next product's b, to prefetch; or NULL */
};

/* Rows from r0 and `nv` vectors of columns from c0; the last vector has `tail`
 * columns. */
WEFT_INLINE void mm_block(const struct mm *t, const int rows, const int nv,
                          const bool bf16, const bool partial, int64_t r0,
                          int64_t c0, int64_t tail)
{
    weft_v16 s[6][4];
    float *c = t->c + r0 * t->ldc + c0;
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < nv; v++)
            s[r][v] = !t->add ? v_set1(0)
                    : partial ? v_load_n(c + r * t->ldc, tail)
                              : v_load(c + r * t->ldc + v * 16);
    const float *a = t->a + r0 * t->ars;
    const float *bf = (const float *) t->b + c0;
    const uint16_t *bh = (const uint16_t *) t->b + c0;
    /* With few rows, loads take longer than arithmetic, so b is prefetched. */
    const char *ahead = rows <= 3 ? t->ahead : NULL;
    const int size = bf16 ? 2 : 4;
    if (ahead)
        ahead += c0 * size;
    for (int64_t k = 0; k < t->k; k++) {
        weft_v16 b[4];
        if (ahead) {
            for (int line = 0; line < nv * 16 * size; line += 64)
                WEFT_PREFETCH(ahead + line);
            ahead += t->ldb * size;
        }
        for (int v = 0; v < nv; v++)
            b[v] = bf16
                     ? (partial ? v_load_bf16_n(bh, tail)
                                : v_load_bf16(bh + v * 16))
                     : (partial ? v_load_n(bf, tail) : v_load(bf + v * 16));
        for (int r = 0; r < rows; r++) {
            weft_v16 x = v_set1(a[r * t->ars]);
            for (int v = 0; v < nv; v++)
                s[r][v] = v_fma(x, b[v], s[r][v]);
        }
        a += t->aks;
        bf += t->ldb;
        bh += t->ldb;
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < nv; v++)
            if (partial)
                v_store_n(c + r * t->ldc, s[r][v], tail);
            else
                v_store(c + r * t->ldc + v * 16, s[r][v]);
}

WEFT_INLINE void mm_columns(const struct mm *t, const int nv, const bool bf16,
                            const bool partial, int64_t c0, int64_t tail)
{
    int64_t r = 0;
#ifdef __AVX512F__ /* 32 registers */
    for (; r + 6 <= t->rows; r += 6)
        mm_block(t, 6, nv, bf16, partial, r, c0, tail);
    if (r + 3 <= t->rows) {
        mm_block(t, 3, nv, bf16, partial, r, c0, tail);
        r += 3;
    }
#endif
    for (; r < t->rows; r++)
        mm_block(t, 1, nv, bf16, partial, r, c0, tail);
}

WEFT_INLINE void mm_of(const struct mm *t, const bool bf16)
{
    int64_t c = 0;
    for (; c + 64 <= t->cols; c += 64)
        mm_columns(t, 4, bf16, false, c, 0);
    if (c + 32 <= t->cols) {
        mm_columns(t, 2, bf16, false, c, 0);
        c += 32;
    }
    if (c + 16 <= t->cols) {
        mm_columns(t, 1, bf16, false, c, 0);
        c += 16;
    }
    if (c < t->cols)
        mm_columns(t, 1, bf16, true, c, t->cols - c);
}

static void mm(const struct mm *t)
{
    if (t->b_bf16)
        mm_of(t, true);
    else
        mm_of(t, false);
}
