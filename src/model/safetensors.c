/* SPDX-License-Identifier: Apache-2.0 */
#include "model/safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"

/* The reference's limit (safetensors/src/tensor.rs, MAX_HEADER_SIZE). */
static const uint64_t MAX_HEADER_BYTES = 100000000;
static const size_t MAX_INDEX_BYTES = (size_t) 100 << 20;

/* The formats of the reference, with the bits of an element. */
static const struct format {
    const char *name;
    unsigned bits;
    bool readable;
    enum weft_dtype dtype;
} formats[] = {
    {"F32", 32, true, WEFT_F32},  {"BF16", 16, true, WEFT_BF16},
    {"F16", 16, true, WEFT_F16},  {"BOOL", 8, false, 0},
    {"U8", 8, false, 0},          {"I8", 8, false, 0},
    {"F8_E5M2", 8, false, 0},     {"F8_E4M3", 8, false, 0},
    {"F8_E8M0", 8, false, 0},     {"F8_E4M3FNUZ", 8, false, 0},
    {"F8_E5M2FNUZ", 8, false, 0}, {"I16", 16, false, 0},
    {"U16", 16, false, 0},        {"I32", 32, false, 0},
    {"U32", 32, false, 0},        {"I64", 64, false, 0},
    {"U64", 64, false, 0},        {"F64", 64, false, 0},
    {"C64", 64, false, 0},        {"F4", 4, false, 0},
    {"F6_E2M3", 6, false, 0},     {"F6_E3M2", 6, false, 0},
};

struct shard {
    char *path;
    struct weft_map map; /* of an opened file */
};

struct weft_safetensors {
    struct shard *shard;
    size_t n_shards;
    struct weft_st_tensor *tensor; /* sorted by name once it is open */
    size_t n_tensors;
};

/* A file that is being checked. Messages count the file's bytes from 0. */
struct source {
    const unsigned char *data;
    size_t n;
    const char *name; /* lives in the shard */
    /* where the tensors' bytes begin, and how many there are */
    uint64_t buffer, n_buffer;
    struct weft_err *err;
};

static int bad(const struct source *s, const char *fmt, ...)
    WEFT_PRINTF(2, 3);
static int bad(const struct source *s, const char *fmt, ...)
{
    char text[sizeof s->err->text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return weft_err_set(s->err, WEFT_EFORMAT, "'%s': %s", s->name, text);
}

/* ---- The header ------------------------------------------------------- */

static int read_shape(const struct source *s, const char *name,
                      const json_t *shape, struct weft_st_tensor *out)
{
    if (!json_is_array(shape))
        return bad(s, "tensor '%.200s': 'shape' must be a list of sizes",
                   name);
    if (json_array_size(shape) > WEFT_ST_MAX_DIMS)
        return bad(s, "tensor '%.200s' has %zu dimensions; %d are the most",
                   name, json_array_size(shape), WEFT_ST_MAX_DIMS);
    out->n_dims = (int32_t) json_array_size(shape);
    out->n = 1;
    for (int32_t i = 0; i < out->n_dims; i++) {
        const json_t *v = json_array_get(shape, (size_t) i);
        json_int_t d = json_integer_value(v);
        if (!json_is_integer(v) || d < 0)
            return bad(s,
                       "tensor '%.200s': size %d of 'shape' must be a whole "
                       "number, 0 or more",
                       name, i);
        if (d > 0 && out->n > (size_t) INT64_MAX / 64 / (uint64_t) d)
            return bad(s, "tensor '%.200s': 'shape' is larger than any file",
                       name);
        out->dim[i] = d;
        out->n *= (size_t) d;
    }
    return 0;
}

static int read_format(const struct source *s, const char *name,
                       const json_t *type, struct weft_st_tensor *out,
                       unsigned *bits_out)
{
    const char *word = json_string_value(type);
    if (!word)
        return bad(s,
                   "tensor '%.200s': 'dtype' must be a text such as \"BF16\"",
                   name);
    for (size_t i = 0; i < WEFT_COUNT(formats); i++)
        if (strcmp(word, formats[i].name) == 0) {
            out->type = formats[i].name;
            out->readable = formats[i].readable;
            out->dtype = formats[i].dtype;
            *bits_out = formats[i].bits;
            return 0;
        }
    return bad(s, "tensor '%.200s': unknown dtype '%.40s'", name, word);
}

static int read_entry(const struct source *s, const char *name,
                      const json_t *entry, struct weft_st_tensor *out)
{
    unsigned bits = 0;
    *out = (struct weft_st_tensor){.file = s->name};
    if (!json_is_object(entry))
        return bad(s,
                   "tensor '%.200s' must be described by dtype, shape and "
                   "data_offsets",
                   name);
    int rc = read_format(s, name, json_object_get(entry, "dtype"), out,
                         &bits);
    if (!rc)
        rc = read_shape(s, name, json_object_get(entry, "shape"), out);
    if (rc)
        return rc;
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *a = json_array_get(offsets, 0);
    const json_t *b = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(a)
        || !json_is_integer(b) || json_integer_value(a) < 0)
        return bad(s, "tensor '%.200s': 'data_offsets' must be [begin, end]",
                   name);
    json_int_t begin = json_integer_value(a), end = json_integer_value(b);
    if (end < begin)
        return bad(s,
                   "tensor '%.200s' ends before it begins: data_offsets "
                   "[%" JSON_INTEGER_FORMAT ", %" JSON_INTEGER_FORMAT "]",
                   name, begin, end);
    if ((uint64_t) end > s->n_buffer)
        return bad(s,
                   "tensor '%.200s' ends at byte %" PRIu64 ", but the file "
                   "has %zu bytes; it is truncated or its header is wrong",
                   name, s->buffer + (uint64_t) end, s->n);
    uint64_t n_bits = (uint64_t) out->n * bits;
    if (n_bits % 8 != 0 || n_bits / 8 != (uint64_t) (end - begin)) {
        char text[96];
        return bad(s,
                   "tensor '%.200s': %s of %s are %" PRIu64 " bytes, but "
                   "its data_offsets span %" JSON_INTEGER_FORMAT,
                   name, weft_st_shape_text(out->dim, out->n_dims, text),
                   out->type, (n_bits + 7) / 8, end - begin);
    }
    out->n_bytes = n_bits / 8;
    out->at = s->buffer + (uint64_t) begin;
    out->data = s->data + out->at;
    out->name = weft_strdup(name);
    return out->name ? 0 : weft_err_nomem(s->err, s->name, strlen(name));
}

static int check_metadata(const struct source *s, json_t *metadata)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return bad(s, "'__metadata__' must be a map of texts");
    json_object_foreach(
        metadata, key,
        value) if (!json_is_string(value)) return bad(s,
                                                      "'__metadata__': "
                                                      "'%.80s' must be a "
                                                      "text",
                                                      key);
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct weft_st_tensor *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->n_bytes < y->n_bytes ? -1 : x->n_bytes > y->n_bytes;
}

static int by_name(const void *a, const void *b)
{
    const struct weft_st_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Checks that every byte of the buffer belongs to exactly one tensor. */
static int check_cover(const struct source *s, struct weft_st_tensor *t,
                       size_t n)
{
    if (n > 1)
        qsort(t, n, sizeof *t, by_place);
    uint64_t at = s->buffer;
    for (size_t i = 0; i < n; i++) {
        if (t[i].at < at)
            return bad(s,
                       "tensor '%.200s' begins at byte %" PRIu64 ", inside "
                       "tensor '%.200s', which ends at byte %" PRIu64,
                       t[i].name, t[i].at, t[i - 1].name, at);
        if (t[i].at > at)
            return bad(s,
                       "bytes %" PRIu64 " to %" PRIu64 ", before tensor "
                       "'%.200s', belong to no tensor",
                       at, t[i].at, t[i].name);
        at = t[i].at + t[i].n_bytes;
    }
    if (at != s->n)
        return bad(s,
                   "the last tensor ends at byte %" PRIu64 ", but the file "
                   "has %zu bytes",
                   at, s->n);
    return 0;
}

static int read_header(struct source *s, json_t **out)
{
    uint64_t n = 0;
    if (s->n < 8)
        return bad(s,
                   "not safetensors: %zu bytes, and the length of the header "
                   "alone takes 8",
                   s->n);
    for (int i = 7; i >= 0; i--)
        n = n << 8 | s->data[i];
    if (n > MAX_HEADER_BYTES)
        return bad(s,
                   "not safetensors: its first 8 bytes announce a header of "
                   "%" PRIu64 " bytes; the limit is %" PRIu64,
                   n, MAX_HEADER_BYTES);
    if (n > s->n - 8)
        return bad(s,
                   "truncated: its header ends at byte %" PRIu64 ", but the "
                   "file has %zu bytes",
                   n + 8, s->n);
    if (n == 0 || s->data[8] != '{')
        return bad(s, "not safetensors: byte 8 must be '{', where the header "
                      "begins");
    json_error_t e;
    *out = json_loadb((const char *) s->data + 8, (size_t) n,
                      JSON_REJECT_DUPLICATES, &e);
    if (!*out)
        return bad(s, "header, byte %d: %s",
                   e.position < 0 ? 8 : e.position + 8, e.text);
    s->buffer = n + 8;
    s->n_buffer = s->n - s->buffer;
    return 0;
}

/* Appends the tensors of one file. */
static int add_file(struct weft_safetensors *st, struct source *s)
{
    json_t *header = NULL, *entry;
    const char *name;
    int rc = read_header(s, &header);
    if (rc)
        return rc;
    size_t first = st->n_tensors, n = json_object_size(header);
    struct weft_st_tensor *t = weft_realloc(st->tensor, first + n, sizeof *t);
    if (!t) {
        rc = weft_err_nomem(s->err, s->name, n * sizeof *t);
        goto out;
    }
    st->tensor = t;
    json_object_foreach(header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            rc = check_metadata(s, entry);
        else {
            rc = read_entry(s, name, entry, &t[st->n_tensors]);
            if (!rc)
                st->n_tensors++;
        }
        if (rc)
            goto out;
    }
    rc = check_cover(s, t + first, st->n_tensors - first);
out:
    json_decref(header);
    return rc;
}

/* ---- Opening ---------------------------------------------------------- */

static int create(size_t n_shards, struct weft_safetensors **out,
                  struct weft_err *err)
{
    struct weft_safetensors *st = weft_alloc(1, sizeof *st);
    if (st)
        st->shard = weft_alloc(n_shards, sizeof *st->shard);
    if (!st || !st->shard) {
        weft_free(st);
        return weft_err_nomem(err, "safetensors",
                              n_shards * sizeof *st->shard);
    }
    *out = st;
    return 0;
}

/* Sorts the tensors by name and refuses a name that two shards have. */
static int finish(struct weft_safetensors *st, struct weft_err *err)
{
    if (st->n_tensors > 1)
        qsort(st->tensor, st->n_tensors, sizeof *st->tensor, by_name);
    for (size_t i = 1; i < st->n_tensors; i++)
        if (strcmp(st->tensor[i - 1].name, st->tensor[i].name) == 0)
            return weft_err_set(err, WEFT_EFORMAT,
                                "tensor '%.200s' is in '%s' and again in "
                                "'%s'",
                                st->tensor[i].name, st->tensor[i - 1].file,
                                st->tensor[i].file);
    return 0;
}

static int add_shard(struct weft_safetensors *st, const char *path,
                     struct weft_err *err)
{
    struct shard *shard = &st->shard[st->n_shards];
    shard->path = weft_strdup(path);
    if (!shard->path)
        return weft_err_nomem(err, path, strlen(path));
    st->n_shards++;
    int rc = weft_map_open(path, &shard->map, err);
    if (rc)
        return rc;
    struct source s = {.data = shard->map.data,
                       .n = shard->map.n,
                       .name = shard->path,
                       .err = err};
    return add_file(st, &s);
}

int weft_safetensors_open_file(const char *path,
                               struct weft_safetensors **out,
                               struct weft_err *err)
{
    struct weft_safetensors *st;
    int rc = create(1, &st, err);
    if (rc)
        return rc;
    rc = add_shard(st, path, err);
    if (!rc)
        rc = finish(st, err);
    if (rc)
        weft_safetensors_close(st);
    else
        *out = st;
    return rc;
}

int weft_safetensors_parse(const void *data, size_t n, const char *name,
                           struct weft_safetensors **out,
                           struct weft_err *err)
{
    struct weft_safetensors *st;
    int rc = create(1, &st, err);
    if (rc)
        return rc;
    st->shard[0].path = weft_strdup(name);
    st->n_shards = 1;
    struct source s = {
        .data = data, .n = n, .name = st->shard[0].path, .err = err};
    rc = s.name ? add_file(st, &s) : weft_err_nomem(err, name, strlen(name));
    if (!rc)
        rc = finish(st, err);
    if (rc)
        weft_safetensors_close(st);
    else
        *out = st;
    return rc;
}

static int bad_index(const char *path, const char *key, const char *what,
                     struct weft_err *err)
{
    return weft_err_set(err, WEFT_EFORMAT, "'%s': tensor '%.200s': %s", path,
                        key, what);
}

/* Opens each file of the map once, then looks every tensor up. */
static int open_shards(const char *dir, const char *path, const json_t *map,
                       struct weft_safetensors **out, struct weft_err *err)
{
    struct weft_safetensors *st;
    const char *key;
    json_t *value;
    int rc = create(json_object_size(map), &st, err);
    if (rc)
        return rc;
    json_object_foreach((json_t *) (uintptr_t) map, key, value)
    {
        const char *file = json_string_value(value);
        if (!file || !*file || strchr(file, '/') || file[0] == '.')
            rc = bad_index(path, key, "its file must be a plain file name",
                           err);
        char *shard = rc ? NULL : weft_path_join(dir, file);
        if (!rc && !shard)
            rc = weft_err_nomem(err, path, strlen(path));
        bool seen = false;
        for (size_t i = 0; !rc && i < st->n_shards && !seen; i++)
            seen = strcmp(st->shard[i].path, shard) == 0;
        if (!rc && !seen)
            rc = add_shard(st, shard, err);
        weft_free(shard);
        if (rc)
            goto out;
    }
    rc = finish(st, err);
    if (rc)
        goto out;
    json_object_foreach((json_t *) (uintptr_t) map, key, value)
    {
        const struct weft_st_tensor *t = weft_safetensors_find(st, key);
        const char *name = t ? strrchr(t->file, '/') : NULL;
        if (!t
            || strcmp(name ? name + 1 : t->file, json_string_value(value))
                   != 0) {
            rc = bad_index(path, key, "is not in the file the index names",
                           err);
            goto out;
        }
    }
out:
    if (rc)
        weft_safetensors_close(st);
    else
        *out = st;
    return rc;
}

static int open_index(const char *dir, const char *path,
                      struct weft_safetensors **out, struct weft_err *err)
{
    char *text;
    size_t n;
    json_error_t e;
    int rc = weft_file_read(path, MAX_INDEX_BYTES, &text, &n, err);
    if (rc)
        return rc;
    json_t *index = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    const json_t *map = json_object_get(index, "weight_map");
    if (!index)
        rc = weft_err_set(err, WEFT_EFORMAT, "'%s': line %d: %s", path,
                          e.line, e.text);
    else if (json_object_size(map) == 0)
        rc = weft_err_set(err, WEFT_EFORMAT,
                          "'%s': 'weight_map' must map tensors to files",
                          path);
    else
        rc = open_shards(dir, path, map, out, err);
    json_decref(index);
    weft_free(text);
    return rc;
}

static int fail_missing(const char *dir, const char *stem,
                        struct weft_err *err)
{
    if (!weft_dir_exists(dir))
        return weft_err_set(err, WEFT_ENOTFOUND,
                            "there is no model folder '%s'", dir);
    char *torch = weft_path_join(dir, "pytorch_model.bin");
    bool pickle = torch && weft_file_exists(torch);
    weft_free(torch);
    return weft_err_set(err, WEFT_ENOTFOUND,
                        "no weights in '%s': neither '%s.safetensors' nor "
                        "'%s.safetensors.index.json' is there%s",
                        dir, stem, stem,
                        pickle ? "; save pytorch_model.bin again as "
                                 "safetensors"
                               : "");
}

int weft_safetensors_open(const char *dir, const char *stem,
                          struct weft_safetensors **out, struct weft_err *err)
{
    char name[256];
    int n = snprintf(name, sizeof name, "%s.safetensors.index.json", stem);
    weft_assert(n > 0 && (size_t) n < sizeof name);
    char *index = weft_path_join(dir, name);
    name[n - (int) strlen(".index.json")] = 0;
    char *single = weft_path_join(dir, name);
    int rc;
    if (!index || !single)
        rc = weft_err_nomem(err, dir, strlen(dir));
    else if (weft_file_exists(single))
        rc = weft_safetensors_open_file(single, out, err);
    else if (weft_file_exists(index))
        rc = open_index(dir, index, out, err);
    else
        rc = fail_missing(dir, stem, err);
    weft_free(index);
    weft_free(single);
    return rc;
}

void weft_safetensors_close(struct weft_safetensors *st)
{
    if (!st)
        return;
    for (size_t i = 0; i < st->n_tensors; i++)
        weft_free((char *) (uintptr_t) st->tensor[i].name);
    for (size_t i = 0; i < st->n_shards; i++) {
        weft_map_close(&st->shard[i].map);
        weft_free(st->shard[i].path);
    }
    weft_free(st->tensor);
    weft_free(st->shard);
    weft_free(st);
}

/* ---- Tensors ---------------------------------------------------------- */

size_t weft_safetensors_count(const struct weft_safetensors *st)
{
    return st->n_tensors;
}

const struct weft_st_tensor *weft_safetensors_get(
    const struct weft_safetensors *st, size_t i)
{
    weft_assert(i < st->n_tensors);
    return &st->tensor[i];
}

const struct weft_st_tensor *weft_safetensors_find(
    const struct weft_safetensors *st, const char *name)
{
    struct weft_st_tensor key = {.name = name};
    return st->n_tensors
             ? bsearch(&key, st->tensor, st->n_tensors, sizeof key, by_name)
             : NULL;
}

const char *weft_st_shape_text(const int64_t *dim, int32_t n_dims,
                               char out[96])
{
    int n = snprintf(out, 96, "[");
    for (int32_t i = 0; i < n_dims && n < 90; i++)
        n += snprintf(out + n, (size_t) (96 - n), "%s%" PRId64, i ? ", " : "",
                      dim[i]);
    if (n < 95)
        snprintf(out + n, (size_t) (96 - n), "]");
    return out;
}

void weft_st_tensor_read(const struct weft_st_tensor *t, size_t first,
                         size_t n, float *out)
{
    weft_assert(t->readable && first <= t->n && n <= t->n - first);
    const unsigned char *p = t->data + first * weft_dtype_bytes(t->dtype);
    if (t->dtype == WEFT_F32) {
        memcpy(out, p, n * sizeof *out);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, p + 2 * i, sizeof bits);
        out[i] = t->dtype == WEFT_BF16 ? weft_bf16_to_f32(bits)
                                       : weft_f16_to_f32(bits);
    }
}
