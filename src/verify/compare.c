/* SPDX-License-Identifier: Apache-2.0 */
#include "verify/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "model/safetensors.h"
#include "plan/dataflow.h"
#include "run/digest.h"

enum { PATH_BYTES = 4096 };

static const char *const stem_name[] = {"model", "exp_avg", "exp_avg_sq"};
enum { N_STEMS = 3 };

/* The trained roles of a run: those that have gradient norms in its digests,
 * and folders of tensors in its checkpoints. */
struct roles {
    char name[WEFT_MAX_ROLES][WEFT_MAX_NAME];
    int n;
};

static int read_digests(const char *run_dir, int32_t iteration, json_t **out,
                        struct weft_err *err)
{
    char *path = weft_digest_path(run_dir, iteration);
    if (!path)
        return weft_err_nomem(err, "a path", strlen(run_dir));
    int rc = weft_json_read(path, 0, out, err);
    if (!rc && !json_is_object(*out)) {
        rc = weft_err_set(err, WEFT_EFORMAT, "'%s' is no JSON object", path);
        json_decref(*out);
        *out = NULL;
    }
    weft_free(path);
    return rc;
}

/* Whether a key of digests is "<role>_grad_norms". */
static bool is_norms(const char *key, struct roles *roles)
{
    static const char end[] = "_grad_norms";
    size_t n = strlen(key), m = sizeof end - 1;
    if (n <= m || n - m >= WEFT_MAX_NAME || strcmp(key + n - m, end) != 0)
        return false;
    if (roles && roles->n < WEFT_MAX_ROLES)
        snprintf(roles->name[roles->n++], WEFT_MAX_NAME, "%.*s",
                 (int) (n - m), key);
    return true;
}

static int read_roles(const char *run_dir, int32_t iteration,
                      struct roles *out, struct weft_err *err)
{
    json_t *o, *ignored;
    const char *key;
    out->n = 0;
    int rc = read_digests(run_dir, iteration, &o, err);
    if (rc)
        return rc;
    json_object_foreach(o, key, ignored)(void) is_norms(key, out);
    json_decref(o);
    return 0;
}

/* A checkpoint's weights (stem 0) or moments of one role. */
static int open_tensors(const char *run_dir, int32_t iteration,
                        const char *role, int stem,
                        struct weft_safetensors **out, struct weft_err *err)
{
    char dir[PATH_BYTES];
    if (snprintf(dir, sizeof dir, "%s/checkpoints/iteration-%06d/%s%s",
                 run_dir, (int) iteration, stem ? "optimizer/" : "", role)
        >= PATH_BYTES)
        return weft_err_set(err, WEFT_EINVAL, "'%s' is too long a path",
                            run_dir);
    return weft_safetensors_open(dir, stem_name[stem], out, err);
}

/* ---- Hashes ----------------------------------------------------------- */

/* Adds the digest of a column, if the run has it. */
static int hash_column(const json_t *o, const char *name,
                       struct weft_hasher *h, struct weft_err *err)
{
    json_t *column;
    const char *all;
    if (!json_object_get(o, name))
        return 0;
    int rc = weft_json_object(o, "digests", name, &column, err);
    if (!rc)
        rc = weft_json_string(column, name, "all", &all, err);
    if (!rc)
        weft_hasher_add(h, all, strlen(all));
    return rc;
}

static int hash_norms(const json_t *o, const char *name,
                      struct weft_hasher *h, struct weft_err *err)
{
    json_t *list, *norm;
    size_t i;
    int rc = weft_json_array(o, "digests", name, &list, err);
    if (rc)
        return rc;
    json_array_foreach(list, i, norm)
    {
        const char *bits = json_string_value(norm);
        if (!bits)
            return weft_err_set(err, WEFT_EFORMAT,
                                "digests: '%s' must hold strings", name);
        weft_hasher_add(h, bits, strlen(bits));
    }
    return 0;
}

/* The norms of all trained roles. */
static int hash_all_norms(const json_t *o, struct weft_hasher *h,
                          struct weft_err *err)
{
    const char *key;
    json_t *ignored;
    int rc = 0;
    json_object_foreach((json_t *) (uintptr_t) o, key,
                        ignored) if (!rc && is_norms(key, NULL))
        rc = hash_norms(o, key, h, err);
    return rc;
}

static int hash_file(const char *run_dir, int32_t iteration, const char *role,
                     int stem, struct weft_hasher *h, struct weft_err *err)
{
    struct weft_safetensors *st;
    int rc = open_tensors(run_dir, iteration, role, stem, &st, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < weft_safetensors_count(st); i++) {
        const struct weft_st_tensor *t = weft_safetensors_get(st, i);
        weft_hasher_add(h, t->name, strlen(t->name));
        weft_hasher_add(h, t->data, t->n_bytes);
    }
    weft_safetensors_close(st);
    return 0;
}

static int hash_tensors(const char *run_dir, int32_t iteration,
                        struct weft_hasher *h, struct weft_err *err)
{
    struct roles roles;
    int rc = read_roles(run_dir, iteration, &roles, err);
    for (int r = 0; r < roles.n && !rc; r++)
        for (int stem = 0; stem < N_STEMS && !rc; stem++)
            rc = hash_file(run_dir, iteration, roles.name[r], stem, h, err);
    if (!rc && roles.n == 0)
        rc = weft_err_set(err, WEFT_EFORMAT,
                          "'%s': the digests have no gradient norms",
                          run_dir);
    return rc;
}

int weft_verify_read(const char *run_dir, int32_t iterations,
                     struct weft_verify_hashes *out, struct weft_err *err)
{
    enum { TOKENS, LOGPROBS, NORMS, WEIGHTS, N };
    bool has_logprobs = false;
    struct weft_hasher *h[N];
    int rc = 0;
    for (int i = 0; i < N; i++)
        if (!(h[i] = weft_hasher_create()))
            rc = weft_err_nomem(err, "hashes", 1024);
    for (int32_t k = 1; k <= iterations && !rc; k++) {
        json_t *o;
        rc = read_digests(run_dir, k, &o, err);
        if (rc)
            break;
        has_logprobs = json_object_get(o, "logprobs") != NULL;
        rc = hash_column(o, "tokens", h[TOKENS], err);
        if (!rc)
            rc = hash_column(o, "logprobs", h[LOGPROBS], err);
        if (!rc)
            rc = hash_all_norms(o, h[NORMS], err);
        json_decref(o);
    }
    if (!rc)
        rc = hash_tensors(run_dir, iterations, h[WEIGHTS], err);
    if (!rc)
        *out = (struct weft_verify_hashes){
            .tokens = weft_hasher_digest64(h[TOKENS]),
            .logprobs = has_logprobs ? weft_hasher_digest64(h[LOGPROBS]) : 0,
            .norms = weft_hasher_digest64(h[NORMS]),
            .weights = weft_hasher_digest64(h[WEIGHTS])};
    for (int i = 0; i < N; i++)
        weft_hasher_free(h[i]);
    return rc;
}

/* ---- The first number ------------------------------------------------- */

/* The first entry of two lists that differs, or the length of the shorter
 * one; -1: they are the same. */
static long first_entry(const json_t *a, const json_t *b)
{
    size_t n = json_array_size(a), m = json_array_size(b);
    for (size_t i = 0; i < n && i < m; i++)
        if (!json_equal(json_array_get(a, i), json_array_get(b, i)))
            return (long) i;
    return n == m ? -1 : (long) (n < m ? n : m);
}

/* Value i of a list, as it is written. */
static const char *value_text(const json_t *list, long i, char out[32])
{
    const json_t *value = json_array_get(list, (size_t) i);
    char *text = value ? weft_json_text(value) : NULL;
    snprintf(out, 32, "%s", text ? text : "none");
    weft_free(text);
    return out;
}

/* Describes the first difference in a column; false: there is none. */
static bool find_in_column(const json_t *one, const json_t *other,
                           const char *name, int32_t iteration, char *out,
                           size_t n)
{
    const json_t *a = json_object_get(one, name),
                 *b = json_object_get(other, name);
    char x[32], y[32];
    bool none = !a && !b; /* e.g. runs without a reference model */
    if (none
        || json_equal(json_object_get(a, "all"), json_object_get(b, "all")))
        return false;
    const json_t *va = json_object_get(a, "values"),
                 *vb = json_object_get(b, "values");
    long i = first_entry(va, vb);
    snprintf(out, n, "iteration %d: %s", (int) iteration, name);
    if (i < 0)
        return true;
    va = json_array_get(va, (size_t) i);
    vb = json_array_get(vb, (size_t) i);
    long k = first_entry(va, vb);
    snprintf(out, n,
             "iteration %d: %s of sample %ld differ at %ld: %s and %s",
             (int) iteration, name, i, k, value_text(va, k, x),
             value_text(vb, k, y));
    return true;
}

static double norm_at(const json_t *list, long i)
{
    const char *digits = json_string_value(json_array_get(list, (size_t) i));
    uint64_t bits = strtoull(digits ? digits : "", NULL, 16);
    double norm;
    memcpy(&norm, &bits, sizeof norm);
    return norm;
}

static bool find_in_norms(const json_t *one, const json_t *other,
                          const char *name, int32_t iteration, char *out,
                          size_t n)
{
    const json_t *a = json_object_get(one, name),
                 *b = json_object_get(other, name);
    long i = first_entry(a, b);
    if (i >= 0)
        snprintf(out, n,
                 "iteration %d: %s differ at step %ld: %.17g and %.17g",
                 (int) iteration, name, i, norm_at(a, i), norm_at(b, i));
    return i >= 0;
}

static int find_number(const char *run_dir, const char *other_dir,
                       int32_t iterations, char *out, size_t n,
                       struct weft_err *err)
{
    bool found = false;
    int rc = 0;
    for (int32_t k = 1; k <= iterations && !rc && !found; k++) {
        json_t *one = NULL, *other = NULL;
        rc = read_digests(run_dir, k, &one, err);
        if (!rc)
            rc = read_digests(other_dir, k, &other, err);
        const char *name;
        for (int c = 0; !rc && !found && (name = weft_digest_column(c)); c++)
            found = find_in_column(one, other, name, k, out, n);
        json_t *ignored;
        json_object_foreach(one, name, ignored) if (!rc && !found
                                                    && is_norms(name, NULL))
            found = find_in_norms(one, other, name, k, out, n);
        json_decref(one);
        json_decref(other);
    }
    return rc;
}

/* ---- The first tensor ------------------------------------------------- */

static bool same_form(const struct weft_st_tensor *a,
                      const struct weft_st_tensor *b)
{
    return b && a->readable && b->readable && a->dtype == b->dtype
        && a->n_dims == b->n_dims
        && memcmp(a->dim, b->dim, (size_t) a->n_dims * sizeof *a->dim) == 0;
}

/* Describes the first difference of two tensors of the same shape. */
static void find_element(const struct weft_st_tensor *a,
                         const struct weft_st_tensor *b, const char *role,
                         int stem, char *out, size_t n)
{
    size_t i = 0, width = a->n_bytes / a->n;
    float x, y;
    char shape[96];
    while (memcmp(a->data + i * width, b->data + i * width, width) == 0)
        i++;
    weft_st_tensor_read(a, i, 1, &x);
    weft_st_tensor_read(b, i, 1, &y);
    snprintf(out, n,
             "%s %s: tensor '%.160s' differs at element %zu of %s: %.9g and "
             "%.9g",
             role, stem_name[stem], a->name, i,
             weft_st_shape_text(a->dim, a->n_dims, shape), (double) x,
             (double) y);
}

static bool find_in_file(const struct weft_safetensors *one,
                         const struct weft_safetensors *other,
                         const char *role, int stem, char *out, size_t n)
{
    for (size_t i = 0; i < weft_safetensors_count(one); i++) {
        const struct weft_st_tensor *a = weft_safetensors_get(one, i);
        const struct weft_st_tensor *b = weft_safetensors_find(other,
                                                               a->name);
        if (!same_form(a, b)) {
            snprintf(out, n,
                     "%s %s: tensor '%.160s' is missing, or of another form",
                     role, stem_name[stem], a->name);
            return true;
        }
        if (memcmp(a->data, b->data, a->n_bytes) != 0) {
            find_element(a, b, role, stem, out, n);
            return true;
        }
    }
    return false;
}

static int find_tensor(const char *run_dir, const char *other_dir,
                       int32_t iteration, char *out, size_t n,
                       struct weft_err *err)
{
    struct roles roles;
    bool found = false;
    int rc = read_roles(run_dir, iteration, &roles, err);
    for (int f = 0; f < roles.n * N_STEMS && !rc && !found; f++) {
        struct weft_safetensors *one = NULL, *other = NULL;
        const char *role = roles.name[f / N_STEMS];
        int stem = f % N_STEMS;
        rc = open_tensors(run_dir, iteration, role, stem, &one, err);
        if (!rc)
            rc = open_tensors(other_dir, iteration, role, stem, &other, err);
        if (!rc)
            found = find_in_file(one, other, role, stem, out, n);
        weft_safetensors_close(one);
        weft_safetensors_close(other);
    }
    return rc;
}

int weft_verify_compare(const char *run_dir, const char *other,
                        int32_t iterations,
                        struct weft_verify_difference *out,
                        struct weft_err *err)
{
    struct weft_verify_difference d = {{0}, {0}};
    int rc = find_number(run_dir, other, iterations, d.number,
                         sizeof d.number, err);
    if (!rc)
        rc = find_tensor(run_dir, other, iterations, d.tensor,
                         sizeof d.tensor, err);
    if (!rc)
        *out = d;
    return rc;
}

/* ---- Numbers that are near --------------------------------------------- */

/* How many tokens two samples have alike from their beginning. */
static size_t begin_alike(const json_t *a, const json_t *b)
{
    long at = first_entry(a, b);
    return at < 0 ? json_array_size(a) : (size_t) at;
}

/* Samples of a column; NULL: the run does not have it. */
static const json_t *values_of(const json_t *digests, const char *name)
{
    return json_object_get(json_object_get(digests, name), "values");
}

/* Log-probs of tokens that both runs have, with the same tokens before them. */
static void measure_column(const json_t *one, const json_t *other,
                           const char *name, struct weft_verify_distance *out)
{
    const json_t *tokens = values_of(one, "tokens"), *sample;
    size_t i;
    json_array_foreach(tokens, i, sample)
    {
        const json_t *a = json_array_get(values_of(one, name), i),
                     *b = json_array_get(values_of(other, name), i);
        size_t n_prompt = json_array_size(sample) - json_array_size(a);
        size_t n = begin_alike(sample,
                               json_array_get(values_of(other, "tokens"), i));
        for (size_t k = 0; n_prompt + k < n && k < json_array_size(b); k++) {
            double far = fabs(json_number_value(json_array_get(a, k))
                              - json_number_value(json_array_get(b, k)));
            out->logprob = far > out->logprob ? far : out->logprob;
            out->n_logprobs++;
        }
    }
}

static void measure_norms(const json_t *one, const json_t *other,
                          struct weft_verify_distance *out)
{
    const char *name;
    json_t *list;
    json_object_foreach((json_t *) (uintptr_t) one, name, list)
    {
        double norm = norm_at(list, 0);
        if (!is_norms(name, NULL))
            continue;
        double far = fabs(norm_at(json_object_get(other, name), 0) - norm);
        out->norm = norm > 0 && far / norm > out->norm ? far / norm
                                                       : out->norm;
        out->n_norms++;
    }
}

int weft_verify_measure(const char *run_dir, const char *other_dir,
                        enum weft_dtype dtype,
                        struct weft_verify_distance *out,
                        struct weft_verify_difference *difference_out,
                        struct weft_err *err)
{
    static const double most_logprob[] = {
        [WEFT_F32] = 1e-4, [WEFT_BF16] = 0.1};
    static const double most_norm[] = {[WEFT_F32] = 1e-3, [WEFT_BF16] = 0.05};
    struct weft_verify_distance d = {0};
    json_t *one = NULL, *other = NULL;
    int rc = read_digests(run_dir, 1, &one, err);
    if (!rc)
        rc = read_digests(other_dir, 1, &other, err);
    const char *name;
    for (int c = 0; !rc && (name = weft_digest_column(c)) != NULL; c++)
        if (strstr(name, "logprobs"))
            measure_column(one, other, name, &d);
    if (!rc
        && json_equal(values_of(one, "tokens"), values_of(other, "tokens")))
        measure_norms(one, other, &d);
    json_decref(one);
    json_decref(other);
    if (rc)
        return rc;
    *out = d;
    *difference_out = (struct weft_verify_difference){{0}, {0}};
    if (d.n_logprobs == 0 && d.n_norms == 0)
        snprintf(difference_out->number, sizeof difference_out->number,
                 "iteration 1: no response begins with the same token");
    else if (d.logprob > most_logprob[dtype])
        snprintf(difference_out->number, sizeof difference_out->number,
                 "iteration 1: log-probs of the same tokens are up to %.2g "
                 "apart; %s may have %.2g",
                 d.logprob, weft_dtype_name(dtype), most_logprob[dtype]);
    else if (d.norm > most_norm[dtype])
        snprintf(difference_out->number, sizeof difference_out->number,
                 "iteration 1: norms of the first gradient are up to %.2g of "
                 "them apart; %s may have %.2g",
                 d.norm, weft_dtype_name(dtype), most_norm[dtype]);
    return 0;
}
