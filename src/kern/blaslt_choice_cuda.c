/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An algorithm for few rows, and one for many, that give a row the same bits.
 *
 * The reference is the first of the library's proposals for 256 rows that
 * does not split the depth and gives a row the same bits wherever it is and
 * however many there are. One tile for all numbers of rows would leave most
 * of a card idle where there are few (3,584 columns are 28 tiles of 128), and
 * be a small one where there are many. So each size has the first of the
 * proposals for it that has the reference's bits in all that is tested, or
 * else the reference: algorithms whose tiles differ often add along the depth
 * in the same order, and one that does not shows at once, as whole results
 * are compared. Times are not measured, so the choice is the same each time.
 */
#include "kern/blaslt_choice_cuda.h"
#include "kern/kern_cuda.h"
#include "kern/sum_blocks_cuda.h"

/* How many rows a size has at most, and in which steps they are tested. The
 * steps are odd, so that all places in a tile occur. */
static const struct {
    int64_t most, step;
} sizes[WEFT_BLASLT_SIZES] = {
#ifdef WEFT_CUDA_EXECUTOR /* smaller, as loops of tests take their time */
    {2, 1}, {4, 1}, {8, 3}, {16, 7}, {96, 79}
#else
    {16, 1}, {64, 1}, {256, 5}, {1024, 61}, {4096, 509}
#endif
};
enum { REFERENCE = 2 }; /* its size; all kinds have so many rows */

/* Results that are compared take at most so much, but for those of the
 * reference's size. It bounds rows by a kind's columns, not by free memory: a
 * choice is the same on a card that is full. */
#ifdef WEFT_CUDA_EXECUTOR
enum { RESULT_BYTES = 128 << 10 };
#else
enum { RESULT_BYTES = 128 << 20 };
#endif

struct proof {
    struct weft_blaslt_product p; /* of all tokens that are tested */
    cublasLtHandle_t handle;
    int32_t n_sizes;
    size_t bytes; /* of what follows, had or not */
    char *a, *b, *all, *some;
    uint32_t *unlike; /* on the device */
};

/* ---- The proof ---------------------------------------------------------- */

/* Device memory; NULL: there is not enough. */
static void *device_memory(size_t bytes)
{
    void *p = NULL;
    return cudaMalloc(&p, bytes) == cudaSuccess ? p : NULL;
}

static int64_t last(int64_t ld, int64_t columns, int64_t rows, int32_t batch,
                    int64_t stride)
{
    return ld * (columns - 1) + rows + (batch - 1) * stride;
}

/* What is computed for the comparison, whose columns lie farther apart: their
 * bits must not depend on that. */
static struct weft_blaslt_product some_of(const struct weft_blaslt_product *p)
{
    struct weft_blaslt_product some = *p;
    if (!p->is_deep) /* else they fill a panel */
        some.ldd += WEFT_BLASLT_ALIGNMENT
                  / (int64_t) weft_blaslt_bytes(p->out);
    return some;
}

static void fill(const struct proof *t)
{
    const struct weft_blaslt_product *p = &t->p;
    enum weft_dtype dtype = p->in == CUDA_R_32F ? WEFT_F32 : WEFT_BF16;
    struct weft_operand_cuda a = {.n = p->m,
                                  .depth = p->k,
                                  .step = p->trans_a ? p->lda : 1,
                                  .depth_step = p->trans_a ? 1 : p->lda,
                                  .n_sets = p->batch,
                                  .set = p->stride_a};
    struct weft_operand_cuda b = {.n = p->n,
                                  .depth = p->k,
                                  .step = p->trans_b ? 1 : p->ldb,
                                  .depth_step = p->trans_b ? p->ldb : 1,
                                  .n_sets = 1,
                                  .cancels = true};
    weft_fill_operand_cuda(0, dtype, &a, t->a);
    weft_fill_operand_cuda(0, dtype, &b, t->b);
}

static bool proof_begin(struct proof *t)
{
    const struct weft_blaslt_product *p = &t->p;
    size_t in = weft_blaslt_bytes(p->in), out = weft_blaslt_bytes(p->out);
    int64_t a = p->trans_a ? last(p->lda, p->m, p->k, p->batch, p->stride_a)
                           : last(p->lda, p->k, p->m, p->batch, p->stride_a);
    int64_t b = p->trans_b ? last(p->ldb, p->k, p->n, 1, 0)
                           : last(p->ldb, p->n, p->k, 1, 0);
    int64_t all = last(p->ldd, p->n, p->m, p->batch, p->stride_d);
    int64_t some = last(some_of(p).ldd, p->n, p->m, p->batch, p->stride_d);
    t->bytes = (size_t) (a + b) * in + (size_t) (all + some) * out;
    t->a = device_memory((size_t) a * in);
    t->b = device_memory((size_t) b * in);
    t->all = device_memory((size_t) all * out);
    t->some = device_memory((size_t) some * out);
    t->unlike = device_memory(sizeof *t->unlike);
    bool has_all = t->a && t->b && t->all && t->some && t->unlike;
    if (has_all)
        fill(t);
    return has_all;
}

static void proof_end(struct proof *t)
{
    cudaFree(t->a);
    cudaFree(t->b);
    cudaFree(t->all);
    cudaFree(t->some);
    cudaFree(t->unlike);
}

static int too_little_memory(const struct proof *t, struct weft_err *err)
{
    size_t has = 0, total = 0;
    (void) cudaGetLastError(); /* what is known already */
    (void) cudaMemGetInfo(&has, &total);
    return weft_err_set(
        err, WEFT_ENOMEM,
        "testing products of %lld by %lld takes %.1f MiB of the GPU's "
        "memory, of which %.1f MiB are free",
        (long long) t->p.m, (long long) (t->p.is_deep ? t->p.n : t->p.k),
        (double) t->bytes / (1 << 20), (double) has / (1 << 20));
}

/* *p of t->p, with the tokens from `first` on, into t->some, against
 * t->all. */
static bool is_like(const struct proof *t,
                    const struct weft_blaslt_product *p, int64_t first,
                    const cublasLtMatmulAlgo_t *algorithm)
{
    uint32_t is_unlike = 1;
    size_t in = weft_blaslt_bytes(p->in), out = weft_blaslt_bytes(p->out);
    const struct weft_blaslt_product some = some_of(p);
    if (weft_blaslt_run(t->handle, &some, algorithm, 0, t->a,
                        t->b + (size_t) (first * p->ldb) * in, t->some)
        != CUBLAS_STATUS_SUCCESS)
        return false;
    weft_find_unlike_cuda(
        0, p->n, p->batch, (size_t) p->m * out, (size_t) p->stride_d * out,
        t->all + (size_t) (first * p->ldd) * out, (size_t) p->ldd * out,
        t->some, (size_t) some.ldd * out, t->unlike);
    if (cudaMemcpy(&is_unlike, t->unlike, sizeof is_unlike,
                   cudaMemcpyDeviceToHost)
        != cudaSuccess)
        return false;
    return !is_unlike;
}

/* Whether n rows have, first and last of t->all, the bits that they have
 * there. */
static bool rows_are_like(const struct proof *t, int64_t n,
                          const cublasLtMatmulAlgo_t *algorithm)
{
    struct weft_blaslt_product p = t->p;
    p.n = n;
    return is_like(t, &p, 0, algorithm)
        && is_like(t, &p, t->p.n - n, algorithm);
}

/* Whether all numbers of rows of a size have the bits of t->all. Most come
 * first, where another order of sums is seen at once. */
static bool size_is_like(const struct proof *t, int32_t size,
                         const cublasLtMatmulAlgo_t *algorithm)
{
    int64_t least = size > 0 ? sizes[size - 1].most + 1 : 1;
    int64_t n = sizes[size].most;
    for (; n > least; n -= sizes[size].step)
        if (!rows_are_like(t, n, algorithm))
            return false;
    return rows_are_like(t, least, algorithm);
}

/* Computes t->all, and says whether the bits of a row there, or for gradients
 * those of a sample, depend on nothing else. */
static bool is_invariant(const struct proof *t,
                         const cublasLtMatmulAlgo_t *algorithm)
{
    bool is = weft_blaslt_run(t->handle, &t->p, algorithm, 0, t->a, t->b,
                              t->all)
           == CUBLAS_STATUS_SUCCESS;
    if (t->p.is_deep)
        return is && is_like(t, &t->p, 0, algorithm)
            && is_like(t, &t->p, 0, algorithm);
    for (int32_t i = 0; is && i < t->n_sizes; i++)
        is = size_is_like(t, i, algorithm);
    return is;
}

/* ---- The choice --------------------------------------------------------- */

static void set_tokens(struct weft_blaslt_product *p, int64_t n)
{
    *(p->is_deep ? &p->k : &p->n) = n;
}

/* Proposals for so many tokens that may be chosen at all; returns how many of
 * the *n_out there are. */
static int usable(const struct proof *t, int64_t n_tokens,
                  cublasLtMatmulAlgo_t out[WEFT_BLASLT_PROPOSALS], int *n_out)
{
    cublasLtMatmulHeuristicResult_t proposal[WEFT_BLASLT_PROPOSALS];
    struct weft_blaslt_product p = t->p;
    int n = 0;
    set_tokens(&p, n_tokens);
    *n_out = weft_blaslt_propose(t->handle, &p, proposal);
    for (int i = 0; i < *n_out; i++)
        if (proposal[i].state == CUBLAS_STATUS_SUCCESS
            && proposal[i].workspaceSize == 0
            && !weft_blaslt_splits_depth(&proposal[i].algo))
            out[n++] = proposal[i].algo;
    return n;
}

/* Behind it t->all has the reference's results. */
static int choose_reference(const struct proof *t, cublasLtMatmulAlgo_t *out,
                            struct weft_err *err)
{
    cublasLtMatmulAlgo_t algorithm[WEFT_BLASLT_PROPOSALS];
    int n_proposals, n, i = 0;
    n = usable(t, sizes[REFERENCE].most, algorithm, &n_proposals);
    while (i < n && !is_invariant(t, &algorithm[i]))
        i++;
    if (i == n)
        return weft_err_set(
            err, WEFT_EUNSUPPORTED,
            "none of cuBLASLt's %d algorithms for products of "
            "%lld by %lld gives a row the same bits among any "
            "number of rows",
            n_proposals, (long long) t->p.m,
            (long long) (t->p.is_deep ? t->p.n : t->p.k));
    *out = algorithm[i];
    return 0;
}

static cublasLtMatmulAlgo_t choose_for(const struct proof *t, int32_t size,
                                       const cublasLtMatmulAlgo_t *reference)
{
    cublasLtMatmulAlgo_t algorithm[WEFT_BLASLT_PROPOSALS];
    int n_proposals, n = usable(t, sizes[size].most, algorithm, &n_proposals);
    for (int i = 0; i < n; i++)
        if (memcmp(&algorithm[i], reference, sizeof *reference) == 0
            || size_is_like(t, size, &algorithm[i]))
            return algorithm[i];
    return *reference;
}

/* Sizes whose results may be compared. */
static int32_t sizes_of(const struct weft_blaslt_product *kind)
{
    int32_t n = WEFT_BLASLT_SIZES;
    int64_t row = kind->ldd * (int64_t) weft_blaslt_bytes(kind->out);
    if (kind->is_deep)
        return 1;
    while (n > REFERENCE + 1 && sizes[n - 1].most * row > RESULT_BYTES)
        n--;
    return n;
}

int weft_blaslt_choose_algorithms(cublasLtHandle_t handle,
                                  const struct weft_blaslt_product *kind,
                                  struct weft_blaslt_algorithms *out,
                                  struct weft_err *err)
{
    struct proof t = {
        .p = *kind, .handle = handle, .n_sizes = sizes_of(kind)};
    cublasLtMatmulAlgo_t reference;
    set_tokens(&t.p, kind->is_deep ? sizes[REFERENCE].most
                                   : sizes[t.n_sizes - 1].most);
    int rc = proof_begin(&t) ? choose_reference(&t, &reference, err)
                             : too_little_memory(&t, err);
    if (rc == 0)
        *out = (struct weft_blaslt_algorithms){.n = t.n_sizes};
    for (int32_t i = 0; rc == 0 && i < t.n_sizes; i++) {
        bool is_reference = kind->is_deep || i == REFERENCE;
        out->most[i] = sizes[i].most;
        out->of[i] = is_reference ? reference : choose_for(&t, i, &reference);
    }
    proof_end(&t);
    return rc;
}
