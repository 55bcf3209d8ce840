/* SPDX-License-Identifier: Apache-2.0 */
#include "model/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/string.h"

/* elements rounded at a time, on the stack */
enum { ROUND_ELEMENTS = 1 << 14 };

struct place {
    const struct weft_st_spec *spec;
    uint64_t at; /* byte of the file */
    size_t n;    /* elements */
};

struct weft_st_writer {
    struct weft_file_writer *file;
    struct place *place; /* in the order of the specs */
    size_t n;
};

static const char *format_name(enum weft_dtype d)
{
    static const char *const names[] = {"F32", "BF16", "F16"};
    return names[d];
}

/* The reference's order: wider formats first, BF16 before F16 (as in enum
 * weft_dtype), then by name. */
static int in_file_order(const void *a, const void *b)
{
    const struct place *const *x = a, *const *y = b;
    int p = (int) (*x)->spec->dtype, q = (int) (*y)->spec->dtype;
    return p != q ? p - q : strcmp((*x)->spec->name, (*y)->spec->name);
}

static void put_json_text(FILE *f, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char) *text;
        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else if (c < 0x20)
            fprintf(f, "\\u%04x", c);
        else
            fputc(c, f);
    }
}

/* Makes the header of the tensors in file order. Writes their offsets, counted
 * from the buffer's first byte, into the places. */
static char *format_header(struct place **order, size_t n, size_t *n_out,
                           uint64_t *n_buffer_out)
{
    char *text = NULL;
    size_t size = 0;
    uint64_t at = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    fputs("{\"__metadata__\":{\"format\":\"pt\"}", f);
    for (size_t i = 0; i < n; i++) {
        const struct weft_st_spec *s = order[i]->spec;
        uint64_t end = at + order[i]->n * weft_dtype_bytes(s->dtype);
        fputs(",\"", f);
        put_json_text(f, s->name);
        fprintf(f, "\":{\"dtype\":\"%s\",\"shape\":[%" PRId64,
                format_name(s->dtype), s->rows);
        if (s->cols > 0)
            fprintf(f, ",%" PRId64, s->cols);
        fprintf(f, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at, end);
        order[i]->at = at;
        at = end;
    }
    fputc('}', f);
    for (long n_text = ftell(f); n_text % 8 != 0; n_text++)
        fputc(' ', f);
    text = weft_string_end_stream(f, &text);
    *n_out = size;
    *n_buffer_out = at;
    return text;
}

static int begin(struct weft_st_writer *w, const char *path, char *header,
                 size_t n_header, uint64_t n_buffer, struct weft_err *err)
{
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char) ((uint64_t) n_header >> 8 * i);
    for (size_t i = 0; i < w->n; i++)
        w->place[i].at += 8 + n_header;
    int rc = weft_file_writer_open(path, 8 + n_header + (size_t) n_buffer,
                                   &w->file, err);
    if (!rc)
        rc = weft_file_writer_put(w->file, 0, length, 8, err);
    if (!rc)
        rc = weft_file_writer_put(w->file, 8, header, n_header, err);
    return rc;
}

int weft_st_writer_open(const char *path, size_t n,
                        const struct weft_st_spec *spec,
                        struct weft_st_writer **out, struct weft_err *err)
{
    int rc = 0;
    char *header = NULL;
    size_t n_header = 0;
    uint64_t n_buffer = 0;
    struct weft_st_writer *w = weft_alloc(1, sizeof *w);
    struct place **order = weft_alloc(n, sizeof(struct place *));
    if (w) {
        w->place = weft_alloc(n, sizeof *w->place);
        w->n = n;
    }
    if (!w || !w->place || !order) {
        rc = weft_err_nomem(err, path, n * sizeof *w->place);
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        const struct weft_st_spec *s = &spec[i];
        weft_assert(s->rows >= 0 && s->cols >= 0);
        w->place[i] = (struct place){.spec = s,
                                     .n = (size_t) s->rows
                                        * (size_t) weft_max64(s->cols, 1)};
        order[i] = &w->place[i];
    }
    if (n > 1)
        qsort(order, n, sizeof(struct place *), in_file_order);
    header = format_header(order, n, &n_header, &n_buffer);
    rc = header ? begin(w, path, header, n_header, n_buffer, err)
                : weft_err_nomem(err, path, n * 128);
out:
    free(header);
    weft_free(order);
    if (rc)
        weft_st_writer_abandon(w);
    else
        *out = w;
    return rc;
}

int weft_st_writer_put(struct weft_st_writer *w, size_t i, size_t first,
                       size_t n, const float *x, struct weft_err *err)
{
    weft_assert(i < w->n && first <= w->place[i].n
                && n <= w->place[i].n - first);
    enum weft_dtype dtype = w->place[i].spec->dtype;
    size_t size = weft_dtype_bytes(dtype);
    uint64_t at = w->place[i].at + first * size;
    if (dtype == WEFT_F32)
        return weft_file_writer_put(w->file, at, x, n * size, err);
    uint16_t rounded[ROUND_ELEMENTS];
    int rc = 0;
    for (size_t done = 0; done < n && !rc;) {
        size_t m = n - done < ROUND_ELEMENTS ? n - done : ROUND_ELEMENTS;
        weft_convert(rounded, dtype, x + done, WEFT_F32, m);
        rc = weft_file_writer_put(w->file, at + done * size, rounded,
                                  m * size, err);
        done += m;
    }
    return rc;
}

int weft_st_writer_close(struct weft_st_writer *w, struct weft_err *err)
{
    int rc = weft_file_writer_close(w->file, err);
    w->file = NULL;
    weft_st_writer_abandon(w);
    return rc;
}

void weft_st_writer_abandon(struct weft_st_writer *w)
{
    if (!w)
        return;
    weft_file_writer_abandon(w->file);
    weft_free(w->place);
    weft_free(w);
}
