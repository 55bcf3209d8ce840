/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/lengths.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"

enum { MAX_BYTES = 256 << 20 };

void weft_lengths_release(struct weft_lengths *l)
{
    weft_free(l->given);
    *l = (struct weft_lengths){.kind = WEFT_LENGTHS_MOST};
}

/* ---- Named distributions ----------------------------------------------- */

static const struct {
    const char *name, *form;
    enum weft_lengths_kind kind;
    int n; /* numbers */
} named[] = {{"max", "max", WEFT_LENGTHS_MOST, 0},
             {"fixed", "fixed:N, N of 1 or more", WEFT_LENGTHS_FIXED, 1},
             {"uniform", "uniform:A:B, 1 <= A <= B", WEFT_LENGTHS_UNIFORM, 2},
             {"lognormal",
              "lognormal:MEDIAN:SIGMA, a median of 1 or more and a sigma "
              "from 0 to 5",
              WEFT_LENGTHS_LOGNORMAL, 2}};

static bool in_range(const struct weft_lengths *l)
{
    bool a = l->kind == WEFT_LENGTHS_MOST || (l->a >= 1 && l->a <= 1e9);
    return a
        && (l->kind != WEFT_LENGTHS_UNIFORM || (l->b >= l->a && l->b <= 1e9))
        && (l->kind != WEFT_LENGTHS_LOGNORMAL || (l->b >= 0 && l->b <= 5));
}

static int read_named(const char *text, size_t k, struct weft_lengths *out,
                      struct weft_err *err)
{
    const char *at = text + strlen(named[k].name);
    double *number[] = {&out->a, &out->b};
    bool ok = true;
    out->kind = named[k].kind;
    for (int i = 0; i < named[k].n && ok; i++) {
        char *end;
        ok = *at == ':';
        *number[i] = ok ? strtod(at + 1, &end) : 0;
        ok = ok && end > at + 1;
        at = ok ? end : at;
    }
    if (ok && *at == 0 && in_range(out))
        return 0;
    return weft_err_set(err, WEFT_EINVAL,
                        "lengths '%.60s' cannot be read; give %s", text,
                        named[k].form);
}

/* ---- Files ------------------------------------------------------------- */

static int wrong_line(const char *path, int64_t line, struct weft_err *err)
{
    return weft_err_set(err, WEFT_EINVAL,
                        "%s:%lld: a line must hold a number of tokens from 1 "
                        "on, or the metrics of an iteration",
                        path, (long long) line);
}

static int read_metrics(const char *path, const char *at, size_t n,
                        int64_t line, struct weft_lengths *out,
                        struct weft_err *err)
{
    json_t *root;
    int rc = weft_json_parse(at, n, path, &root, err);
    if (rc)
        return rc;
    rc = weft_json_double(root, path, "response_length/min", &out->a, err);
    if (!rc)
        rc = weft_json_double(root, path, "response_length/max", &out->b,
                              err);
    if (!rc)
        rc = weft_json_double(root, path, "response_length/mean", &out->mean,
                              err);
    json_decref(root);
    out->kind = WEFT_LENGTHS_SPREAD;
    if (!rc && !(out->a <= out->mean && out->mean <= out->b && out->b >= 1))
        rc = wrong_line(path, line, err);
    return rc;
}

static int read_line(const char *path, const char *at, size_t n, int64_t line,
                     struct weft_lengths *out, struct weft_err *err)
{
    char *end;
    if (n == 0)
        return 0;
    if (*at == '{')
        return read_metrics(path, at, n, line, out, err);
    long tokens = strtol(at, &end, 10);
    while (end < at + n && (*end == ' ' || *end == '\r'))
        end++;
    if (end != at + n || tokens < 1 || tokens > INT32_MAX)
        return wrong_line(path, line, err);
    out->kind = WEFT_LENGTHS_GIVEN;
    out->given[out->n++] = (int32_t) tokens;
    return 0;
}

static int read_file(const char *path, struct weft_lengths *out,
                     struct weft_err *err)
{
    char *text;
    size_t n;
    int64_t line = 0;
    int rc = weft_file_read(path, MAX_BYTES, &text, &n, err);
    if (rc)
        return rc;
    out->given = weft_alloc(n / 2 + 1, sizeof *out->given);
    if (!out->given)
        rc = weft_err_nomem(err, path, n * 2);
    for (const char *at = text; at < text + n && !rc;) {
        const char *end = memchr(at, '\n', (size_t) (text + n - at));
        end = end ? end : text + n;
        rc = read_line(path, at, (size_t) (end - at), ++line, out, err);
        at = end + 1;
    }
    weft_free(text);
    if (!rc && out->kind == WEFT_LENGTHS_MOST)
        rc = weft_err_set(err, WEFT_EINVAL,
                          "'%s' is empty; give a number of tokens a line, or "
                          "a run's metrics.jsonl",
                          path);
    return rc;
}

int weft_lengths_read(const char *text, struct weft_lengths *out,
                      struct weft_err *err)
{
    *out = (struct weft_lengths){.kind = WEFT_LENGTHS_MOST};
    for (size_t k = 0; k < WEFT_COUNT(named); k++) {
        size_t n = strlen(named[k].name);
        if (strncmp(text, named[k].name, n) == 0
            && (text[n] == 0 || text[n] == ':'))
            return read_named(text, k, out, err);
    }
    return read_file(text, out, err);
}

/* ---- Drawing ----------------------------------------------------------- */

static double between(double a, double b, double u)
{
    return a + u * (b - a);
}

/* p (a + m) / 2 + (1 - p) (m + b) / 2 = m for p = (b - m) / (b - a). */
static double spread(const struct weft_lengths *l, double side, double u)
{
    if (l->b <= l->a)
        return l->mean;
    return side < (l->b - l->mean) / (l->b - l->a)
             ? between(l->a, l->mean, u)
             : between(l->mean, l->b, u);
}

int64_t weft_lengths_above(const struct weft_lengths *l, int32_t most,
                           int64_t *n_out)
{
    int64_t n = l->kind == WEFT_LENGTHS_FIXED && l->a > most;
    *n_out = l->kind == WEFT_LENGTHS_GIVEN ? l->n : 1;
    for (int64_t i = 0; i < l->n; i++)
        n += l->given[i] > most;
    return n;
}

int32_t weft_lengths_draw(const struct weft_lengths *l, uint64_t seed,
                          int32_t iteration, int64_t sample, int32_t most)
{
    uint32_t i = (uint32_t) iteration, high = (uint32_t) (sample >> 32);
    uint32_t low = (uint32_t) sample, word[4];
    double x = most;
    weft_rng_words(seed, WEFT_RNG_LENGTH, i, high, low, word);
    double u = word[0] / 4294967296.0, v = word[1] / 4294967296.0;
    switch (l->kind) {
    case WEFT_LENGTHS_FIXED:
        x = l->a;
        break;
    case WEFT_LENGTHS_UNIFORM:
        x = floor(between(l->a, l->b + 1, u));
        break;
    case WEFT_LENGTHS_LOGNORMAL:
        x = round(
            l->a
            * exp(l->b
                  * weft_rng_normal(seed, WEFT_RNG_LENGTH, i, high, low)));
        break;
    case WEFT_LENGTHS_SPREAD:
        x = round(spread(l, v, u));
        break;
    case WEFT_LENGTHS_GIVEN:
        x = l->given[(int64_t) (u * (double) l->n)];
        break;
    case WEFT_LENGTHS_MOST:
        break;
    }
    return x < 1 ? 1 : x > most ? most : (int32_t) x;
}
