/* SPDX-License-Identifier: Apache-2.0 */
#include "text/dataset.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "text/dataset_impl.h"

#include <stdio.h>
#include <string.h>

struct line {
    size_t at, number; /* byte offset; line number from 1 */
};

struct weft_dataset {
    struct weft_map map; /* the mapped file; empty for memory */
    const char *text;
    size_t n;
    char *name;
    char *key[5]; /* copies of the named keys */
    struct weft_row_format format;
    size_t n_rows;
    struct line *row;
};

/* ---- Lines ------------------------------------------------------------ */

/* Bytes of the line at `at`, without its end. */
static size_t line_length(const struct weft_dataset *d, size_t at)
{
    const char *end = memchr(d->text + at, '\n', d->n - at);
    size_t n = end ? (size_t) (end - d->text) - at : d->n - at;
    return n > 0 && d->text[at + n - 1] == '\r' ? n - 1 : n;
}

static bool is_blank(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r')
            return false;
    return true;
}

/* Refuses formats that people mistake for JSONL. */
static int check_magic(const struct weft_dataset *d, struct weft_err *err)
{
    static const struct {
        const char *magic, *what;
        size_t n;
    } others[] = {{"PAR1", "a Parquet file", 4},
                  {"\x1f\x8b", "compressed with gzip", 2},
                  {"\x28\xb5\x2f\xfd", "compressed with zstd", 4},
                  {"ARROW1", "an Arrow file", 6},
                  {"\xff\xfe", "UTF-16", 2},
                  {"\xfe\xff", "UTF-16", 2}};
    for (size_t i = 0; i < WEFT_COUNT(others); i++)
        if (d->n >= others[i].n
            && memcmp(d->text, others[i].magic, others[i].n) == 0)
            return weft_err_set(err, WEFT_EUNSUPPORTED,
                                "%s: is %s; Weft reads JSON lines in UTF-8",
                                d->name, others[i].what);
    return 0;
}

/* The object of a line; free with json_decref(). */
static int parse_line(const struct weft_dataset *d, struct line line,
                      json_t **out, struct weft_err *err)
{
    json_t *object = NULL;
    int rc = weft_json_parse_texts(d->text + line.at, line_length(d, line.at),
                                   d->name, line.number, &object, err);
    if (rc)
        return rc;
    if (!json_is_object(object)) {
        rc = weft_err_set(err, WEFT_EFORMAT,
                          "%s:%zu: each line must be a JSON object, this is "
                          "%s",
                          d->name, line.number, weft_json_type(object));
        json_decref(object);
        return rc;
    }
    *out = object;
    return 0;
}

/* ---- Opening ---------------------------------------------------------- */

static int add_row(struct weft_dataset *d, struct line line, size_t *capacity,
                   struct weft_err *err)
{
    if (d->n_rows == *capacity) {
        size_t more = 2 * *capacity + 1024;
        struct line *row = weft_realloc(d->row, more, sizeof *row);
        if (!row)
            return weft_err_nomem(err, "a data set", more * sizeof *row);
        d->row = row;
        *capacity = more;
    }
    d->row[d->n_rows++] = line;
    return 0;
}

static int check_line(struct weft_dataset *d, struct line line, bool first,
                      struct weft_err *err)
{
    struct weft_row row = {0};
    json_t *object = NULL;
    char subject[512];
    int rc = parse_line(d, line, &object, err);
    if (rc)
        return rc;
    snprintf(subject, sizeof subject, "%.400s:%zu", d->name, line.number);
    if (first)
        rc = weft_row_detect(object, subject, &d->format, err);
    if (!rc)
        rc = weft_row_fill(object, subject, &d->format, &row, err);
    weft_row_release(&row);
    json_decref(object);
    return rc;
}

static int scan(struct weft_dataset *d, struct weft_err *err)
{
    size_t at = 0, number = 1, capacity = 0;
    if (d->n >= 3 && memcmp(d->text, "\xef\xbb\xbf", 3) == 0)
        at = 3;
    while (at < d->n) {
        struct line line = {at, number++};
        const char *end = memchr(d->text + at, '\n', d->n - at);
        size_t n = end ? (size_t) (end - d->text) - at : d->n - at;
        if (!is_blank(d->text + at, n)) {
            int rc = check_line(d, line, d->n_rows == 0, err);
            if (!rc)
                rc = add_row(d, line, &capacity, err);
            if (rc)
                return rc;
        }
        at += n + 1;
    }
    if (d->n_rows == 0)
        return weft_err_set(err, WEFT_EINVAL,
                            "%s: has no rows; a JSON object per line is "
                            "expected",
                            d->name);
    if (d->n_rows > UINT32_MAX)
        return weft_err_set(err, WEFT_EUNSUPPORTED,
                            "%s: has %zu rows; Weft takes fewer than 2^32",
                            d->name, d->n_rows);
    return 0;
}

/* Keeps the caller's names. */
static int copy_keys(struct weft_dataset *d,
                     const struct weft_dataset_keys *keys,
                     struct weft_err *err)
{
    struct weft_dataset_keys *to = &d->format.named;
    if (keys) {
        const char *from[] = {keys->prompt, keys->response, keys->label,
                              keys->chosen, keys->rejected};
        const char **place[] = {&to->prompt, &to->response, &to->label,
                                &to->chosen, &to->rejected};
        for (size_t i = 0; i < WEFT_COUNT(from); i++) {
            if (!from[i])
                continue;
            d->key[i] = weft_strdup(from[i]);
            if (!d->key[i])
                return weft_err_nomem(err, "a data set", strlen(from[i]));
            *place[i] = d->key[i];
        }
        to->need = keys->need;
    }
    if (to->need == 0)
        to->need = WEFT_NEED_PROMPT;
    return 0;
}

/* Opens n bytes; takes over the map, which is empty for memory. */
static int open_text(struct weft_map map, const char *text, size_t n,
                     const char *name, const struct weft_dataset_keys *keys,
                     struct weft_dataset **out, struct weft_err *err)
{
    struct weft_dataset *d = weft_alloc(1, sizeof *d);
    int rc;
    if (!d) {
        weft_map_close(&map);
        return weft_err_nomem(err, "a data set", sizeof *d);
    }
    d->map = map;
    d->text = text;
    d->n = n;
    d->name = weft_strdup(name);
    rc = d->name ? 0 : weft_err_nomem(err, "a data set", strlen(name));
    if (!rc)
        rc = copy_keys(d, keys, err);
    if (!rc)
        rc = check_magic(d, err);
    if (!rc)
        rc = scan(d, err);
    if (rc) {
        weft_dataset_close(d);
        return rc;
    }
    *out = d;
    return 0;
}

int weft_dataset_open(const char *path, const struct weft_dataset_keys *keys,
                      struct weft_dataset **out, struct weft_err *err)
{
    struct weft_map map = {0};
    int rc = weft_map_open(path, &map, err);
    return rc ? rc
              : open_text(map, (const char *) map.data, map.n, path, keys,
                          out, err);
}

int weft_dataset_parse(const char *text, size_t n, const char *name,
                       const struct weft_dataset_keys *keys,
                       struct weft_dataset **out, struct weft_err *err)
{
    return open_text((struct weft_map){0}, text, n, name, keys, out, err);
}

void weft_dataset_close(struct weft_dataset *d)
{
    if (!d)
        return;
    weft_map_close(&d->map);
    weft_free(d->name);
    for (size_t i = 0; i < WEFT_COUNT(d->key); i++)
        weft_free(d->key[i]);
    weft_free(d->row);
    weft_free(d);
}

/* ---- Rows ------------------------------------------------------------- */

size_t weft_dataset_size(const struct weft_dataset *d)
{
    return d->n_rows;
}

int weft_dataset_row(const struct weft_dataset *d, size_t i,
                     struct weft_row *out, struct weft_err *err)
{
    struct weft_row row = {0};
    json_t *object = NULL;
    char subject[512];
    weft_assert(i < d->n_rows);
    const struct line *line = &d->row[i];
    int rc = parse_line(d, *line, &object, err);
    if (rc)
        return rc;
    snprintf(subject, sizeof subject, "%.400s:%zu", d->name, line->number);
    rc = weft_row_fill(object, subject, &d->format, &row, err);
    json_decref(object);
    if (rc)
        return rc;
    size_t n = line_length(d, line->at);
    row.line = line->number;
    row.json = weft_strndup(d->text + line->at, n);
    if (!row.json) {
        weft_row_release(&row);
        return weft_err_nomem(err, "a row", n + 1);
    }
    *out = row;
    return 0;
}

void weft_dataset_order(uint32_t n, uint64_t seed, uint32_t epoch,
                        uint32_t *order_out)
{
    weft_rng_permutation(seed, WEFT_RNG_SHUFFLE, epoch, 0, n, order_out);
}
