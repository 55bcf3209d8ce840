/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuBLASLt, which is opened when the first product is asked for: a program
 * that uses no GPU starts without it.
 *
 * What a kind of product is says blaslt_cuda.h, and blaslt_choice_cuda.c
 * which of the library's algorithms it has.
 */
#include <dlfcn.h>
#include <pthread.h>

#include "base/alloc.h"
#include "config.h"
#include "kern/blaslt_choice_cuda.h"
#include "kern/device_cuda.h"
#include "kern/kern_cuda.h"

enum { MAX_CARDS = 16, MAX_KINDS = 1024 };

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
    struct weft_blaslt_algorithms algorithms;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static cublasLtHandle_t handles[MAX_CARDS];
static int first_alike[MAX_CARDS]; /* of a card with a handle */
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

/* The machine's first card that is like this one: what was chosen for that
 * holds here, too, so that the cards of a rank do not all wait for one
 * another's. */
static int alike(int card)
{
    struct cudaDeviceProp mine = {.major = 0}, other;
    if (cudaGetDeviceProperties(&mine, card) != cudaSuccess)
        return card;
    for (int i = 0; i < card; i++)
        if (cudaGetDeviceProperties(&other, i) == cudaSuccess
            && strcmp(mine.name, other.name) == 0 && mine.major == other.major
            && mine.minor == other.minor
            && mine.multiProcessorCount == other.multiProcessorCount)
            return i;
    return card;
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
        first_alike[card] = alike(card);
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

cublasStatus_t weft_blaslt_run(cublasLtHandle_t handle,
                               const struct weft_blaslt_product *p,
                               const cublasLtMatmulAlgo_t *algorithm,
                               cudaStream_t stream, const void *a,
                               const void *b, void *d)
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

/* ---- Proposals ---------------------------------------------------------- */

size_t weft_blaslt_bytes(cudaDataType_t type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

/* Bytes to which the rows of a matrix are aligned. */
static uint32_t alignment(cudaDataType_t type, int64_t ld)
{
    uint32_t n = 1, bytes = (uint32_t) ((size_t) ld * weft_blaslt_bytes(type)
                                        % WEFT_BLASLT_ALIGNMENT);
    while (n < WEFT_BLASLT_ALIGNMENT && bytes % (2 * n) == 0)
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

/* No memory of its own: the library may use none by default. */
int weft_blaslt_propose(
    cublasLtHandle_t handle, const struct weft_blaslt_product *p,
    cublasLtMatmulHeuristicResult_t out[WEFT_BLASLT_PROPOSALS])
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
                                     WEFT_BLASLT_PROPOSALS, out, &n)
               != CUBLAS_STATUS_SUCCESS)
        n = 0;
    lt.MatmulPreferenceDestroy(wish);
    forget(&s);
    return n;
}

bool weft_blaslt_splits_depth(const cublasLtMatmulAlgo_t *algorithm)
{
    int32_t parts = 0;
    size_t written;
    return lt.MatmulAlgoConfigGetAttribute(algorithm,
                                           CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                           &parts, sizeof parts, &written)
            != CUBLAS_STATUS_SUCCESS
        || parts > 1;
}

/* ---- Kinds -------------------------------------------------------------- */

/* The product for which the algorithm of *p is chosen: without tokens, and
 * with the least leading dimension of D that is aligned as this one. */
static struct weft_blaslt_product kind_of(const struct weft_blaslt_product *p)
{
    struct weft_blaslt_product key = *p;
    int64_t element = (int64_t) weft_blaslt_bytes(p->out);
    int64_t aligned = alignment(p->out, p->ldd);
    bool is_beside = !p->is_deep && p->stride_d == p->m;
    key.ldd = weft_round_up(is_beside ? p->m * p->batch : p->m,
                            WEFT_BLASLT_ALIGNMENT / element);
    if (aligned < WEFT_BLASLT_ALIGNMENT)
        key.ldd += aligned / element;
    key.add = 0;
    *(key.is_deep ? &key.k : &key.n) = 0;
    return key;
}

/* Finds the kind of a product, or chooses its algorithms now. */
static int find(const struct weft_blaslt_product *p,
                cublasLtHandle_t *handle_out,
                const struct weft_blaslt_algorithms **out,
                struct weft_err *err)
{
    struct weft_blaslt_product key = kind_of(p);
    pthread_mutex_lock(&mutex);
    int rc = handle_of(p->card, handle_out, err), i = 0;
    if (rc == 0)
        key.card = first_alike[p->card];
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
            rc = weft_blaslt_choose_algorithms(*handle_out, &key,
                                               &kind->algorithms, err);
        if (rc == 0)
            kinds[n_kinds++] = kind;
        else
            weft_free(kind);
    }
    if (rc == 0)
        *out = &kinds[i]->algorithms; /* kept as it is */
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

/* Rows come in pieces of as many as were tested. */
static cublasStatus_t multiply(cublasLtHandle_t handle,
                               struct weft_blaslt_product p,
                               const struct weft_blaslt_algorithms *has,
                               cudaStream_t stream, const char *a,
                               const char *b, char *d)
{
    int64_t n = p.n, most = has->most[has->n - 1];
    size_t in = weft_blaslt_bytes(p.in), out = weft_blaslt_bytes(p.out);
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (p.is_deep)
        return weft_blaslt_run(handle, &p, &has->of[0], stream, a, b, d);
    for (int64_t r = 0; r < n && status == CUBLAS_STATUS_SUCCESS; r += most) {
        int32_t i = 0;
        p.n = weft_min64(most, n - r);
        while (p.n > has->most[i])
            i++;
        status = weft_blaslt_run(handle, &p, &has->of[i], stream, a,
                                 b + (size_t) (r * p.ldb) * in,
                                 d + (size_t) (r * p.ldd) * out);
    }
    return status;
}

void weft_blaslt_multiply(struct weft_blaslt_product p, cudaStream_t stream,
                          const void *a, const void *b, void *d)
{
    cublasLtHandle_t handle = NULL;
    const struct weft_blaslt_algorithms *algorithms;
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
    int rc = find(&p, &handle, &algorithms, &failure);
    chooses = only;
    if (rc != 0 || only || !a)
        return;
    cublasStatus_t status = multiply(handle, p, algorithms, stream, a, b, d);
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
