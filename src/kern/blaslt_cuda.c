/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuBLASLt, which is opened when the first product is asked for: a program
 * that uses no GPU starts without it.
 *
 * One algorithm per kind of product, all numbers but that of tokens; the first
 * of the library's proposals that does not split the depth and that gives a
 * row the same bits wherever it is and however many there are.
 */
#include <dlfcn.h>
#include <pthread.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "config.h"
#include "kern/blaslt_cuda.h"
#include "kern/device_cuda.h"
#include "kern/kern_cuda.h"
#include "kern/sum_blocks_cuda.h"

enum {
    MAX_CARDS = 16,
    MAX_KINDS = 1024,
    PROPOSALS = 16,
    PROOF_ROWS = 256,
    ALIGNMENT = 16, /* the most that an algorithm may ask for */
    PATTERN = 65521 /* numbers; a prime, so that rows differ */
};
#ifdef WEFT_CUDA_EXECUTOR /* smaller, as loops of tests take their time */
enum { PROOF_STEP = 127 };
#else
enum { PROOF_STEP = 1 };
#endif

/* ---- The library -------------------------------------------------------- */

#define EACH_FUNCTION(f)                                                     \
    f(Create) f(GetVersion) f(Matmul) f(MatmulAlgoConfigGetAttribute)        \
        f(MatmulAlgoGetHeuristic) f(MatmulDescCreate) f(MatmulDescDestroy)   \
            f(MatmulDescSetAttribute) f(MatmulPreferenceCreate)              \
                f(MatmulPreferenceDestroy) f(MatmulPreferenceSetAttribute)   \
                    f(MatrixLayoutCreate) f(MatrixLayoutDestroy)             \
                        f(MatrixLayoutSetAttribute)

static struct library {
#define MEMBER(name) __typeof__(&cublasLt##name) name;
    EACH_FUNCTION(MEMBER)
} lt;

struct kind {
    struct weft_blaslt_product key; /* kind_of() */
    cublasLtMatmulAlgo_t algorithm;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static cublasLtHandle_t handles[MAX_CARDS];
static struct kind *kinds[MAX_KINDS];
static int n_kinds;
static _Thread_local struct weft_err failure;
static _Thread_local bool chooses;

static int fail(struct weft_err *err, const char *what, cublasStatus_t status)
{
    return weft_err_set(err, WEFT_EINTERNAL, "cuBLASLt: %s failed (%d)", what,
                        (int) status);
}

static int cuda_fail(struct weft_err *err, const char *what)
{
    return weft_err_set(err, WEFT_EINTERNAL, "%s: %s", what,
                        cudaGetErrorString(cudaGetLastError()));
}

int weft_blaslt_open(const char *name, const char *path, struct weft_err *err)
{
    struct library found;
    const char *opened = name;
    void *f, *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        library = dlopen(opened = path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return weft_err_set(err, WEFT_ENOTFOUND,
                            "products on GPUs need cuBLASLt: %s", dlerror());
    bool has_all = true;
#define LOADED(name)                                                         \
    f = dlsym(library, "cublasLt" #name);                                    \
    has_all &= f != NULL;                                                    \
    memcpy(&found.name, &f, sizeof f);
    EACH_FUNCTION(LOADED)
    if (!has_all) {
        dlclose(library);
        return weft_err_set(err, WEFT_EUNSUPPORTED,
                            "%s lacks functions that Weft needs", opened);
    }
    lt = found;
    return 0;
}

static int open_library(struct weft_err *err)
{
#ifdef WEFT_CUDA_EXECUTOR
    (void) err;
#define LINKED(name) lt.name = cublasLt##name;
    EACH_FUNCTION(LINKED)
    return 0;
#else
    return weft_blaslt_open(WEFT_CUBLASLT, WEFT_CUBLASLT_PATH, err);
#endif
}

int weft_k_products_version_cuda(int64_t *out, struct weft_err *err)
{
    pthread_mutex_lock(&mutex);
    int rc = lt.Create ? 0 : open_library(err);
    if (rc == 0)
        *out = (int64_t) lt.GetVersion();
    pthread_mutex_unlock(&mutex);
    return rc;
}

/* The card's handle. The mutex is held. */
static int handle_of(int card, cublasLtHandle_t *out, struct weft_err *err)
{
    int rc = 0;
    if (card < 0 || card >= MAX_CARDS)
        return weft_err_set(err, WEFT_EUNSUPPORTED,
                            "products use the first %d GPUs of a machine",
                            MAX_CARDS);
    if (!lt.Create)
        rc = open_library(err);
    if (rc == 0 && !handles[card]) {
        cublasStatus_t status = lt.Create(&handles[card]);
        if (status != CUBLAS_STATUS_SUCCESS)
            rc = fail(err, "starting it", status);
    }
    *out = handles[card];
    return rc;
}

/* ---- One product -------------------------------------------------------- */

/* The library's descriptions of a product. */
struct described {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    bool is_ok;
};

static void set_layout(struct described *s, cublasLtMatrixLayout_t *out,
                       cudaDataType_t type, bool transposed, int64_t rows,
                       int64_t cols, int64_t ld, int32_t batch,
                       int64_t stride)
{
    s->is_ok &= lt.MatrixLayoutCreate(
                    out, type, (uint64_t) (transposed ? cols : rows),
                    (uint64_t) (transposed ? rows : cols), ld)
             == CUBLAS_STATUS_SUCCESS;
    if (batch == 1 || !s->is_ok)
        return;
    s->is_ok &= lt.MatrixLayoutSetAttribute(
                    *out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                    sizeof batch)
             == CUBLAS_STATUS_SUCCESS;
    s->is_ok &= lt.MatrixLayoutSetAttribute(
                    *out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                    &stride, sizeof stride)
             == CUBLAS_STATUS_SUCCESS;
}

static void transpose(struct described *s,
                      cublasLtMatmulDescAttributes_t which, bool is)
{
    cublasOperation_t op = is ? CUBLAS_OP_T : CUBLAS_OP_N;
    s->is_ok &= lt.MatmulDescSetAttribute(s->desc, which, &op, sizeof op)
             == CUBLAS_STATUS_SUCCESS;
}

static struct described describe(const struct weft_blaslt_product *p)
{
    struct described s = {.is_ok = true};
    s.is_ok &= lt.MatmulDescCreate(&s.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F)
            == CUBLAS_STATUS_SUCCESS;
    if (s.is_ok) {
        transpose(&s, CUBLASLT_MATMUL_DESC_TRANSA, p->trans_a);
        transpose(&s, CUBLASLT_MATMUL_DESC_TRANSB, p->trans_b);
    }
    set_layout(&s, &s.a, p->in, p->trans_a, p->m, p->k, p->lda, p->batch,
               p->stride_a);
    set_layout(&s, &s.b, p->in, p->trans_b, p->k, p->n, p->ldb, p->batch, 0);
    set_layout(&s, &s.d, p->out, false, p->m, p->n, p->ldd, p->batch,
               p->stride_d);
    return s;
}

static void forget(const struct described *s)
{
    if (s->desc)
        lt.MatmulDescDestroy(s->desc);
    if (s->a)
        lt.MatrixLayoutDestroy(s->a);
    if (s->b)
        lt.MatrixLayoutDestroy(s->b);
    if (s->d)
        lt.MatrixLayoutDestroy(s->d);
}

/* Puts a product on a stream. */
static cublasStatus_t run(cublasLtHandle_t handle,
                          const struct weft_blaslt_product *p,
                          const cublasLtMatmulAlgo_t *algorithm,
                          cudaStream_t stream, const void *a, const void *b,
                          void *d)
{
    const float one = 1, beta = p->add ? 1 : 0;
    struct described s = describe(p);
    cublasStatus_t status = CUBLAS_STATUS_ALLOC_FAILED;
    if (s.is_ok)
        status = lt.Matmul(handle, s.desc, &one, a, s.a, b, s.b, &beta, d,
                           s.d, d, s.d, algorithm, NULL, 0, stream);
    forget(&s);
    return status;
}

/* ---- The proof ---------------------------------------------------------- */

static size_t bytes_of(cudaDataType_t type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

/* Device memory of n numbers that repeat a pattern; NULL: out of memory. */
static void *filled(cudaDataType_t type, int64_t n)
{
    size_t element = bytes_of(type), bytes = (size_t) n * element;
    char *pattern = weft_alloc_aligned(PATTERN, element), *out = NULL;
    if (!pattern || cudaMalloc((void **) &out, bytes) != cudaSuccess)
        out = NULL;
    for (uint32_t i = 0; out && i < PATTERN; i++) {
        float x = 2 * weft_rng_uniform(5, WEFT_RNG_INIT, 0, 0, i) - 1;
        uint16_t half = weft_f32_to_bf16(x);
        memcpy(pattern + i * element, element == 4 ? (void *) &x : &half,
               element);
    }
    for (size_t at = 0; out && at < bytes; at += PATTERN * element) {
        size_t some = bytes - at < PATTERN * element ? bytes - at
                                                     : PATTERN * element;
        cudaError_t copied = cudaMemcpy(out + at, pattern, some,
                                        cudaMemcpyHostToDevice);
        weft_assert(copied == cudaSuccess);
    }
    weft_free(pattern);
    return out;
}

struct proof {
    const struct weft_blaslt_product *p; /* of PROOF_ROWS tokens */
    cublasLtHandle_t handle;
    size_t bytes; /* of what follows, had or not */
    char *a, *b, *all, *some;
    uint32_t *unlike; /* on the device */
};

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
        some.ldd += ALIGNMENT / (int64_t) bytes_of(p->out);
    return some;
}

static bool proof_begin(struct proof *t)
{
    const struct weft_blaslt_product *p = t->p;
    int64_t ldd = some_of(p).ldd;
    int64_t a = p->trans_a ? last(p->lda, p->m, p->k, p->batch, p->stride_a)
                           : last(p->lda, p->k, p->m, p->batch, p->stride_a);
    int64_t b = p->trans_b ? last(p->ldb, p->k, p->n, 1, 0)
                           : last(p->ldb, p->n, p->k, 1, 0);
    int64_t d = last(ldd, p->n, p->m, p->batch, p->stride_d);
    t->bytes = (size_t) (a + b) * bytes_of(p->in)
             + (size_t) (2 * d) * bytes_of(p->out);
    t->a = filled(p->in, a);
    t->b = filled(p->in, b);
    t->all = filled(p->out, d);
    t->some = filled(p->out, d);
    return t->a && t->b && t->all && t->some
        && cudaMalloc((void **) &t->unlike, 16) == cudaSuccess;
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
        (long long) t->p->m, (long long) (t->p->is_deep ? t->p->n : t->p->k),
        (double) t->bytes / (1 << 20), (double) has / (1 << 20));
}

/* Rows first.. first + n - 1 alone, into t->some, against t->all. */
static bool rows_are_like(const struct proof *t,
                          const struct weft_blaslt_product *p,
                          const cublasLtMatmulAlgo_t *algorithm,
                          int64_t first)
{
    uint32_t is_unlike = 1;
    size_t in = bytes_of(p->in), out = bytes_of(p->out);
    int64_t b = p->is_deep ? 0 : first * p->ldb;
    char *all = t->all + (size_t) (p->is_deep ? 0 : first * p->ldd) * out;
    const struct weft_blaslt_product some = some_of(p);
    if (run(t->handle, &some, algorithm, 0, t->a, t->b + (size_t) b * in,
            t->some)
        != CUBLAS_STATUS_SUCCESS)
        return false;
    weft_find_unlike_cuda(0, p->n, p->batch, (size_t) p->m * out,
                          (size_t) p->stride_d * out, all,
                          (size_t) p->ldd * out, t->some,
                          (size_t) some.ldd * out, t->unlike);
    if (cudaMemcpy(&is_unlike, t->unlike, sizeof is_unlike,
                   cudaMemcpyDeviceToHost)
        != cudaSuccess)
        return false;
    return !is_unlike;
}

/* Whether the bits of a row, or for gradients those of a sample, depend on
 * nothing else. */
static bool is_invariant(const struct proof *t,
                         const cublasLtMatmulAlgo_t *algorithm)
{
    struct weft_blaslt_product p = *t->p;
    p.add = 0;
    if (run(t->handle, &p, algorithm, 0, t->a, t->b, t->all)
        != CUBLAS_STATUS_SUCCESS)
        return false;
    if (p.is_deep)
        return rows_are_like(t, &p, algorithm, 0)
            && rows_are_like(t, &p, algorithm, 0);
    for (int64_t n = 1; n <= PROOF_ROWS; n += PROOF_STEP) {
        p.n = n;
        if (!rows_are_like(t, &p, algorithm, 0)
            || !rows_are_like(t, &p, algorithm, PROOF_ROWS - n))
            return false;
    }
    return true;
}

/* ---- The choice --------------------------------------------------------- */

/* Bytes to which the rows of a matrix are aligned. */
static uint32_t alignment(cudaDataType_t type, int64_t ld)
{
    uint32_t n = 1,
             bytes = (uint32_t) ((size_t) ld * bytes_of(type) % ALIGNMENT);
    while (n < ALIGNMENT && bytes % (2 * n) == 0)
        n *= 2;
    return n;
}

static bool prefer(cublasLtMatmulPreference_t preference,
                   cublasLtMatmulPreferenceAttributes_t which, uint32_t value)
{
    return lt.MatmulPreferenceSetAttribute(preference, which, &value,
                                           sizeof value)
        == CUBLAS_STATUS_SUCCESS;
}

/* Asks for proposals, the fastest first; returns how many there are. No memory
 * of its own: the library may use none by default. */
static int propose(cublasLtHandle_t handle,
                   const struct weft_blaslt_product *p,
                   cublasLtMatmulHeuristicResult_t out[PROPOSALS])
{
    cublasLtMatmulPreference_t wish;
    struct described s = describe(p);
    int n = 0;
    uint32_t d = alignment(p->out, p->ldd);
    if (lt.MatmulPreferenceCreate(&wish) != CUBLAS_STATUS_SUCCESS) {
        forget(&s);
        return 0;
    }
    if (s.is_ok
        && prefer(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                  CUBLASLT_REDUCTION_SCHEME_NONE)
        && prefer(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                  alignment(p->in, p->lda))
        && prefer(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                  alignment(p->in, p->ldb))
        && prefer(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, d)
        && prefer(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, d)
        && lt.MatmulAlgoGetHeuristic(handle, s.desc, s.a, s.b, s.d, s.d, wish,
                                     PROPOSALS, out, &n)
               != CUBLAS_STATUS_SUCCESS)
        n = 0;
    lt.MatmulPreferenceDestroy(wish);
    forget(&s);
    return n;
}

static bool splits_depth(const cublasLtMatmulAlgo_t *algorithm)
{
    int32_t parts = 0;
    size_t written;
    return lt.MatmulAlgoConfigGetAttribute(algorithm,
                                           CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                           &parts, sizeof parts, &written)
            != CUBLAS_STATUS_SUCCESS
        || parts > 1;
}

/* Chooses the algorithm of a kind. The mutex is held. */
static int choose(cublasLtHandle_t handle, struct kind *kind,
                  struct weft_err *err)
{
    cublasLtMatmulHeuristicResult_t proposal[PROPOSALS];
    struct weft_blaslt_product p = kind->key;
    *(p.is_deep ? &p.k : &p.n) = PROOF_ROWS;
    struct proof proof = {.p = &p, .handle = handle};
    int n = propose(handle, &p, proposal), found = -1;
    bool has_memory = proof_begin(&proof);
    for (int i = 0; has_memory && found < 0 && i < n; i++)
        if (proposal[i].state == CUBLAS_STATUS_SUCCESS
            && proposal[i].workspaceSize == 0
            && !splits_depth(&proposal[i].algo)
            && is_invariant(&proof, &proposal[i].algo))
            found = i;
    proof_end(&proof);
    if (!has_memory)
        return too_little_memory(&proof, err);
    if (found < 0)
        return weft_err_set(
            err, WEFT_EUNSUPPORTED,
            "none of cuBLASLt's %d algorithms for products of "
            "%lld by %lld gives a row the same bits among any "
            "number of rows",
            n, (long long) kind->key.m, (long long) (p.is_deep ? p.n : p.k));
    kind->algorithm = proposal[found].algo;
    return 0;
}

/* The product for which the algorithm of *p is chosen: without tokens, and with
 * the least leading dimension of D that is aligned as this one. */
static struct weft_blaslt_product kind_of(const struct weft_blaslt_product *p)
{
    struct weft_blaslt_product key = *p;
    int64_t element = (int64_t) bytes_of(p->out);
    int64_t aligned = alignment(p->out, p->ldd);
    bool is_beside = !p->is_deep && p->stride_d == p->m;
    key.ldd = weft_round_up(is_beside ? p->m * p->batch : p->m,
                            ALIGNMENT / element);
    if (aligned < ALIGNMENT)
        key.ldd += aligned / element;
    key.add = 0;
    *(key.is_deep ? &key.k : &key.n) = 0;
    return key;
}

/* Finds the kind of a product, or chooses its algorithm now. */
static int find(const struct weft_blaslt_product *p,
                cublasLtHandle_t *handle_out, cublasLtMatmulAlgo_t *out,
                struct weft_err *err)
{
    struct weft_blaslt_product key = kind_of(p);
    pthread_mutex_lock(&mutex);
    int rc = handle_of(key.card, handle_out, err), i = 0;
    while (rc == 0 && i < n_kinds
           && memcmp(&kinds[i]->key, &key, sizeof key) != 0)
        i++;
    if (rc == 0 && i == n_kinds) {
        struct kind *kind = i < MAX_KINDS ? weft_alloc(1, sizeof *kind)
                                          : NULL;
        rc = kind ? 0
                  : weft_err_nomem(err, "kinds of products", sizeof *kind);
        if (kind)
            kind->key = key;
        if (rc == 0)
            rc = choose(*handle_out, kind, err);
        if (rc == 0)
            kinds[n_kinds++] = kind;
        else
            weft_free(kind);
    }
    if (rc == 0)
        *out = kinds[i]->algorithm;
    pthread_mutex_unlock(&mutex);
    return rc;
}

void weft_blaslt_choose(bool only)
{
    chooses = only;
}

bool weft_blaslt_chooses(void)
{
    return chooses;
}

int weft_blaslt_n_kinds(void)
{
    pthread_mutex_lock(&mutex);
    int n = n_kinds;
    pthread_mutex_unlock(&mutex);
    return n;
}

void weft_blaslt_multiply(struct weft_blaslt_product p, cudaStream_t stream,
                          const void *a, const void *b, void *d)
{
    cublasLtHandle_t handle = NULL;
    cublasLtMatmulAlgo_t algorithm;
    int card = 0;
    if (failure.code != 0)
        return;
    if (cudaGetDevice(&card) != cudaSuccess) {
        cuda_fail(&failure, "no GPU for products");
        return;
    }
    p.card = card;
    bool only = chooses;
    chooses = false; /* the proof launches kernels */
    int rc = find(&p, &handle, &algorithm, &failure);
    chooses = only;
    if (rc != 0 || only || !a)
        return;
    cublasStatus_t status = run(handle, &p, &algorithm, stream, a, b, d);
    if (status != CUBLAS_STATUS_SUCCESS)
        fail(&failure, "a product", status);
}

int weft_k_products_error_cuda(struct weft_err *err)
{
    int rc = failure.code;
    if (rc != 0)
        weft_err_set(err, rc, "%s", failure.text);
    failure = (struct weft_err){0};
    return rc;
}
