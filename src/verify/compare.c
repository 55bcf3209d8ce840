/* SPDX-License-Identifier: Apache-2.0 */
#include "verify/compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "model/safetensors.h"
#include "run/digest.h"

enum { PATH_BYTES = 4096 };

static const char *const norms_name[] = {"actor_grad_norms",
                                         "critic_grad_norms"};
static const char *const model_name[] = {"actor", "critic"};
static const char *const stem_name[] = {"model", "exp_avg", "exp_avg_sq"};
/* tensor files of a checkpoint in f32: each stem of each model */
enum { N_FILES = 6 };

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
    }
    weft_free(path);
    return rc;
}

static int open_tensors(const char *run_dir, int32_t iteration, int file,
                        struct weft_safetensors **out, struct weft_err *err)
{
    char dir[PATH_BYTES];
    if (snprintf(dir, sizeof dir, "%s/checkpoints/iteration-%06d/%s%s",
                 run_dir, (int) iteration, file % 3 ? "optimizer/" : "",
                 model_name[file / 3])
        >= PATH_BYTES)
        return weft_err_set(err, WEFT_EINVAL, "'%s' is too long a path",
                            run_dir);
    return weft_safetensors_open(dir, stem_name[file % 3], out, err);
}

/* ---- Hashes ----------------------------------------------------------- */

/* Adds the digest of a column. */
static int hash_column(const json_t *o, const char *name,
                       struct weft_hasher *h, struct weft_err *err)
{
    json_t *column;
    const char *all;
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

static int hash_tensors(const char *run_dir, int32_t iteration,
                        struct weft_hasher *h, struct weft_err *err)
{
    int rc = 0;
    for (int f = 0; f < N_FILES && !rc; f++) {
        struct weft_safetensors *st;
        rc = open_tensors(run_dir, iteration, f, &st, err);
        if (rc)
            return rc;
        for (size_t i = 0; i < weft_safetensors_count(st); i++) {
            const struct weft_st_tensor *t = weft_safetensors_get(st, i);
            weft_hasher_add(h, t->name, strlen(t->name));
            weft_hasher_add(h, t->data, t->n_bytes);
        }
        weft_safetensors_close(st);
    }
    return rc;
}

int weft_verify_read(const char *run_dir, int32_t iterations,
                     struct weft_verify_hashes *out, struct weft_err *err)
{
    enum { TOKENS, LOGPROBS, NORMS, WEIGHTS, N };
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
        rc = hash_column(o, "tokens", h[TOKENS], err);
        if (!rc)
            rc = hash_column(o, "logprobs", h[LOGPROBS], err);
        for (int i = 0; i < 2 && !rc; i++)
            rc = hash_norms(o, norms_name[i], h[NORMS], err);
        json_decref(o);
    }
    if (!rc)
        rc = hash_tensors(run_dir, iterations, h[WEIGHTS], err);
    if (!rc)
        *out = (struct weft_verify_hashes){
            .tokens = weft_hasher_digest64(h[TOKENS]),
            .logprobs = weft_hasher_digest64(h[LOGPROBS]),
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
        for (int i = 0; i < 2 && !rc && !found; i++)
            found = find_in_norms(one, other, norms_name[i], k, out, n);
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
                         const struct weft_st_tensor *b, int file, char *out,
                         size_t n)
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
             model_name[file / 3], stem_name[file % 3], a->name, i,
             weft_st_shape_text(a->dim, a->n_dims, shape), (double) x,
             (double) y);
}

static bool find_in_file(const struct weft_safetensors *one,
                         const struct weft_safetensors *other, int file,
                         char *out, size_t n)
{
    for (size_t i = 0; i < weft_safetensors_count(one); i++) {
        const struct weft_st_tensor *a = weft_safetensors_get(one, i);
        const struct weft_st_tensor *b = weft_safetensors_find(other,
                                                               a->name);
        if (!same_form(a, b)) {
            snprintf(out, n,
                     "%s %s: tensor '%.160s' is missing, or of another form",
                     model_name[file / 3], stem_name[file % 3], a->name);
            return true;
        }
        if (memcmp(a->data, b->data, a->n_bytes) != 0) {
            find_element(a, b, file, out, n);
            return true;
        }
    }
    return false;
}

static int find_tensor(const char *run_dir, const char *other_dir,
                       int32_t iteration, char *out, size_t n,
                       struct weft_err *err)
{
    bool found = false;
    int rc = 0;
    for (int f = 0; f < N_FILES && !rc && !found; f++) {
        struct weft_safetensors *one = NULL, *other = NULL;
        rc = open_tensors(run_dir, iteration, f, &one, err);
        if (!rc)
            rc = open_tensors(other_dir, iteration, f, &other, err);
        if (!rc)
            found = find_in_file(one, other, f, out, n);
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
