/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors files (github.com/huggingface/safetensors), single or sharded:
 * mapped, checked whole before a tensor is handed out, and written.
 *
 * Layout: u64 little-endian N, N bytes of JSON, then the tensors' bytes
 * without gap or overlap. Every number in a header is distrusted; a sentence
 * names file, tensor and byte.
 */
#ifndef WEFT_MODEL_SAFETENSORS_H
#define WEFT_MODEL_SAFETENSORS_H

#include "base/dtype.h"
#include "base/err.h"

enum { WEFT_ST_MAX_DIMS = 8 };

/* A tensor of a file; all pointers are borrowed from the opened struct. */
struct weft_st_tensor {
    const char *name;
    const char *file; /* the file's path, for messages */
    const char *type; /* as the file spells it: "BF16" */
    /* true for F32, BF16 and F16; only then is `dtype` valid */
    bool readable;
    enum weft_dtype dtype;
    int32_t n_dims; /* 0: a single number */
    int64_t dim[WEFT_ST_MAX_DIMS];
    size_t n; /* elements */
    uint64_t n_bytes;
    uint64_t at;               /* byte in the file where it begins */
    const unsigned char *data; /* row-major, not aligned */
};

struct weft_safetensors;

/* Opens dir/<stem>.safetensors, or else the shards that
 * dir/<stem>.safetensors.index.json lists. Close with
 * weft_safetensors_close(). Errors: WEFT_ENOTFOUND, WEFT_EFORMAT, WEFT_EIO,
 * WEFT_ENOMEM. */
int weft_safetensors_open(const char *dir, const char *stem,
                          struct weft_safetensors **out,
                          struct weft_err *err);
/* Opens one file by its path. */
int weft_safetensors_open_file(const char *path,
                               struct weft_safetensors **out,
                               struct weft_err *err);
/* Opens a file's n bytes in memory, which must outlive the result; `name`
 * names them in messages. */
int weft_safetensors_parse(const void *data, size_t n, const char *name,
                           struct weft_safetensors **out,
                           struct weft_err *err);
void weft_safetensors_close(struct weft_safetensors *st); /* NULL: allowed */

/* The tensors, sorted by name. */
size_t weft_safetensors_count(const struct weft_safetensors *st);
const struct weft_st_tensor *weft_safetensors_get(
    const struct weft_safetensors *st, size_t i);
/* NULL when there is none of that name. */
const struct weft_st_tensor *weft_safetensors_find(
    const struct weft_safetensors *st, const char *name);
/* Writes dimensions as "[3, 4]"; returns out. */
const char *weft_st_shape_text(const int64_t *dim, int32_t n_dims,
                               char out[96]);

/* Reads elements [first, first + n) as f32. The tensor must be readable. */
void weft_st_tensor_read(const struct weft_st_tensor *tensor, size_t first,
                         size_t n, float *out);

/* ---- Writing ---------------------------------------------------------- */

/* A tensor that will be written; it has one or two dimensions, as weights
 * have. */
struct weft_st_spec {
    const char *name; /* borrowed while the writer is open */
    enum weft_dtype dtype;
    int64_t rows, cols; /* cols 0: a vector of `rows` */
};

struct weft_st_writer;

/* Begins a file of n tensors and reserves its disk space. In the file they
 * have the reference's order: wider formats first, then by name. The header
 * has {"format": "pt"}. close and abandon free the writer. */
int weft_st_writer_open(const char *path, size_t n,
                        const struct weft_st_spec *spec,
                        struct weft_st_writer **out, struct weft_err *err);
/* Writes elements [first, first + n) of tensor i of `spec`, rounded to its
 * format. Several threads may write at the same time. */
int weft_st_writer_put(struct weft_st_writer *writer, size_t i, size_t first,
                       size_t n, const float *x, struct weft_err *err);
/* Brings the file to the disk and renames it into place. Elements that were
 * never put are zero. */
int weft_st_writer_close(struct weft_st_writer *writer, struct weft_err *err);
void weft_st_writer_abandon(
    struct weft_st_writer *writer); /* NULL: allowed */

#endif
