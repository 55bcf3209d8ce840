/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include "base/alloc.h"
#include "base/edit_distance.h"
#include "base/file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Reading ---------------------------------------------------------- */

static int parse_error(const json_error_t *e, const char *name, size_t line,
                       struct weft_err *err)
{
    line += e->line > 0 ? (size_t) e->line - 1 : 0;
    switch (json_error_code(e)) {
    case json_error_out_of_memory:
        return weft_err_set(err, WEFT_ENOMEM, "out of memory: reading '%s'",
                            name);
    case json_error_null_character:
    case json_error_null_byte_in_key:
        return weft_err_set(err, WEFT_EFORMAT,
                            "%s:%zu:%d: a string holds the zero character "
                            "'\\u0000', which Weft does not take",
                            name, line, e->column);
    case json_error_premature_end_of_input:
        return weft_err_set(err, WEFT_EFORMAT,
                            "%s:%zu:%d: the JSON text ends too early", name,
                            line, e->column);
    default:
        return weft_err_set(err, WEFT_EFORMAT, "%s:%zu:%d: not JSON: %s",
                            name, line, e->column, e->text);
    }
}

/* Makes a real of each integer that 64 bits do not hold, and leaves all other
 * values what they are: "e2" stands for the last two of its digits, so that
 * nothing moves. 17 digits or more are left, which is what a real holds. */
static void make_reals(char *text, size_t n)
{
    static const char most[] = "9223372036854775807";
    const size_t m = sizeof most - 1;
    size_t i = 0;
    while (i < n) {
        size_t first = i;
        if (text[i] == '"') {
            for (i++; i < n && text[i] != '"'; i++)
                i += text[i] == '\\';
            i++;
            continue;
        }
        while (i < n && text[i] >= '0' && text[i] <= '9')
            i++;
        size_t digits = i - first;
        while (digits > 0 && i < n && memchr("0123456789.+-eE", text[i], 15))
            i++; /* a fraction, an exponent */
        if (i == first + digits
            && (digits > m
                || (digits == m && memcmp(text + first, most, m) > 0)))
            memcpy(text + i - 2, "e2", 2);
        i += i == first;
    }
}

/* json_loadb() of a text with integers that 64 bits do not hold. */
static json_t *load_large(const char *text, size_t n, size_t flags,
                          json_error_t *e)
{
    char *copy = weft_alloc(n, 1);
    json_t *root = NULL;
    if (copy) {
        memcpy(copy, text, n);
        make_reals(copy, n);
        root = json_loadb(copy, n, flags, e);
    }
    weft_free(copy);
    return root;
}

static int parse(const char *text, size_t n, const char *name, size_t line,
                 size_t more_flags, json_t **out, struct weft_err *err)
{
    const size_t flags = JSON_DECODE_ANY | JSON_REJECT_DUPLICATES
                       | more_flags;
    json_error_t e = {0};
    bool blank = true;
    for (size_t i = 0; i < n && blank; i++)
        blank = memchr(" \t\r\n", text[i], 4) != NULL;
    if (blank)
        return weft_err_set(err, WEFT_EFORMAT,
                            "%s:%zu: empty, where JSON is expected", name,
                            line);
    json_t *root = json_loadb(text, n, flags, &e);
    if (!root && json_error_code(&e) == json_error_numeric_overflow)
        root = load_large(text, n, flags, &e);
    if (!root)
        return parse_error(&e, name, line, err);
    *out = root;
    return 0;
}

int weft_json_parse(const char *text, size_t n, const char *name,
                    json_t **out, struct weft_err *err)
{
    return parse(text, n, name, 1, 0, out, err);
}

int weft_json_parse_texts(const char *text, size_t n, const char *name,
                          size_t line, json_t **out, struct weft_err *err)
{
    return parse(text, n, name, line, JSON_ALLOW_NUL, out, err);
}

struct weft_str weft_json_str(const json_t *value)
{
    return (struct weft_str){json_string_value(value),
                             json_string_length(value)};
}

int weft_json_read(const char *path, size_t max_bytes, json_t **out,
                   struct weft_err *err)
{
    char *text = NULL;
    size_t n = 0, skip = 0;
    int rc = weft_file_read(path, max_bytes, &text, &n, err);
    if (rc)
        return rc;
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        skip = 3;
    rc = weft_json_parse(text + skip, n - skip, path, out, err);
    weft_free(text);
    return rc;
}

/* ---- Finding ---------------------------------------------------------- */

const char *weft_json_type(const json_t *value)
{
    if (!value)
        return "nothing";
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "true or false";
    case JSON_NULL:
        return "null";
    }
    return "something";
}

/* Returns NULL for a null, which counts as missing. */
static json_t *get(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

json_t *weft_json_find(const json_t *root, const char *path)
{
    json_t *value = get(root, path);
    const char *dot = path;
    while (!value && (dot = strchr(dot, '.'))) {
        char key[256];
        size_t n = (size_t) (dot - path);
        if (n >= sizeof key)
            return NULL;
        memcpy(key, path, n);
        key[n] = 0;
        dot++;
        json_t *inner = get(root, key);
        if (json_is_object(inner))
            value = weft_json_find(inner, dot);
    }
    return value;
}

static int missing(const char *subject, const char *key, struct weft_err *err)
{
    return weft_err_set(err, WEFT_ENOTFOUND, "%s: '%s' is missing", subject,
                        key);
}

static int wrong(const json_t *value, const char *subject, const char *key,
                 const char *wanted, struct weft_err *err)
{
    return weft_err_set(err, WEFT_EFORMAT, "%s: '%s' must be %s, not %s",
                        subject, key, wanted, weft_json_type(value));
}

/* ---- Typed getters ---------------------------------------------------- */

int weft_json_int(const json_t *object, const char *subject, const char *key,
                  int64_t low, int64_t high, int64_t *out,
                  struct weft_err *err)
{
    const json_t *value = get(object, key);
    if (!value)
        return missing(subject, key, err);
    int64_t i = json_integer_value(value);
    if (json_is_real(value)) { /* 1e3 and 2.0 are integers too */
        double d = json_real_value(value);
        if (!(fabs(d) < 9e15) || d != floor(d))
            return wrong(value, subject, key, "an integer", err);
        i = (int64_t) d;
    } else if (!json_is_integer(value)) {
        return wrong(value, subject, key, "an integer", err);
    }
    if (i < low || i > high)
        return weft_err_set(err, WEFT_EINVAL,
                            "%s: '%s' is %lld, but must be between %lld and "
                            "%lld",
                            subject, key, (long long) i, (long long) low,
                            (long long) high);
    *out = i;
    return 0;
}

int weft_json_double(const json_t *object, const char *subject,
                     const char *key, double *out, struct weft_err *err)
{
    const json_t *value = get(object, key);
    if (!value)
        return missing(subject, key, err);
    if (!json_is_number(value))
        return wrong(value, subject, key, "a number", err);
    *out = json_number_value(value);
    return 0;
}

int weft_json_bool(const json_t *object, const char *subject, const char *key,
                   bool *out, struct weft_err *err)
{
    const json_t *value = get(object, key);
    if (!value)
        return missing(subject, key, err);
    if (!json_is_boolean(value))
        return wrong(value, subject, key, "true or false", err);
    *out = json_is_true(value);
    return 0;
}

int weft_json_string(const json_t *object, const char *subject,
                     const char *key, const char **out, struct weft_err *err)
{
    const json_t *value = get(object, key);
    if (!value)
        return missing(subject, key, err);
    if (!json_is_string(value))
        return wrong(value, subject, key, "a string", err);
    *out = json_string_value(value);
    return 0;
}

int weft_json_object(const json_t *object, const char *subject,
                     const char *key, json_t **out, struct weft_err *err)
{
    json_t *value = get(object, key);
    if (!value)
        return missing(subject, key, err);
    if (!json_is_object(value))
        return wrong(value, subject, key, "an object", err);
    *out = value;
    return 0;
}

int weft_json_array(const json_t *object, const char *subject,
                    const char *key, json_t **out, struct weft_err *err)
{
    json_t *value = get(object, key);
    if (!value)
        return missing(subject, key, err);
    if (!json_is_array(value))
        return wrong(value, subject, key, "an array", err);
    *out = value;
    return 0;
}

int weft_json_int_or(const json_t *object, const char *subject,
                     const char *key, int64_t low, int64_t high,
                     int64_t fallback, int64_t *out, struct weft_err *err)
{
    if (get(object, key))
        return weft_json_int(object, subject, key, low, high, out, err);
    *out = fallback;
    return 0;
}

int weft_json_double_or(const json_t *object, const char *subject,
                        const char *key, double fallback, double *out,
                        struct weft_err *err)
{
    if (get(object, key))
        return weft_json_double(object, subject, key, out, err);
    *out = fallback;
    return 0;
}

int weft_json_bool_or(const json_t *object, const char *subject,
                      const char *key, bool fallback, bool *out,
                      struct weft_err *err)
{
    if (get(object, key))
        return weft_json_bool(object, subject, key, out, err);
    *out = fallback;
    return 0;
}

int weft_json_string_or(const json_t *object, const char *subject,
                        const char *key, const char *fallback,
                        const char **out, struct weft_err *err)
{
    if (get(object, key))
        return weft_json_string(object, subject, key, out, err);
    *out = fallback;
    return 0;
}

int weft_json_object_or(const json_t *object, const char *subject,
                        const char *key, json_t **out, struct weft_err *err)
{
    if (get(object, key))
        return weft_json_object(object, subject, key, out, err);
    *out = NULL;
    return 0;
}

int weft_json_array_or(const json_t *object, const char *subject,
                       const char *key, json_t **out, struct weft_err *err)
{
    if (get(object, key))
        return weft_json_array(object, subject, key, out, err);
    *out = NULL;
    return 0;
}

/* ---- Unknown keys ----------------------------------------------------- */

static int unknown(const char *subject, const char *key,
                   const char *const *known, size_t n, struct weft_err *err)
{
    const char *best = NULL;
    size_t least = 3 + strlen(key) / 6;
    for (size_t i = 0; i < n; i++) {
        size_t d = weft_edit_distance(key, known[i]);
        if (d < least && d < strlen(known[i])) {
            least = d;
            best = known[i];
        }
    }
    return weft_err_set(err, WEFT_EINVAL, "%s: unknown key '%.100s'%s%s%s",
                        subject, key, best ? "; did you mean '" : "",
                        best ? best : "", best ? "'?" : "");
}

int weft_json_keys(const json_t *object, const char *subject,
                   const char *const *known, size_t n, struct weft_err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *) (uintptr_t) object, key, value)
    {
        size_t i = 0;
        while (i < n && strcmp(key, known[i]) != 0)
            i++;
        if (i == n)
            return unknown(subject, key, known, n, err);
    }
    return 0;
}

/* ---- Writing ---------------------------------------------------------- */

/* The number of digits (1..17) with which json_dumps() writes the value so
 * that it reads back the same: the most that any real in it needs. */
static size_t digits(const json_t *value)
{
    size_t most = 1, i;
    const char *key;
    json_t *item;
    if (json_is_real(value)) {
        double d = json_real_value(value);
        char text[64];
        for (int p = 1; p < 17; p++) {
            snprintf(text, sizeof text, "%.*g", p, d);
            double back = 0;
            if (sscanf(text, "%lf", &back) == 1 && !(back < d || back > d))
                return (size_t) p;
        }
        return 17;
    }
    json_array_foreach(value, i, item)
    {
        size_t n = digits(item);
        most = n > most ? n : most;
    }
    json_object_foreach((json_t *) (uintptr_t) value, key, item)
    {
        size_t n = digits(item);
        most = n > most ? n : most;
    }
    return most;
}

char *weft_json_text(const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY
                                       | JSON_REAL_PRECISION(digits(value)));
    char *copy = text ? weft_strdup(text) : NULL;
    free(text);
    return copy;
}
