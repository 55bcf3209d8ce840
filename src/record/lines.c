/* SPDX-License-Identifier: Apache-2.0 */
#include "record/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"

static bool next_line(struct weft_lines *l, const char **line, size_t *n)
{
    if (l->at == l->end)
        return false;
    const char *feed = memchr(l->at, '\n', (size_t) (l->end - l->at));
    l->torn = !feed;
    *line = l->at;
    *n = (size_t) ((feed ? feed : l->end) - l->at);
    l->at = feed ? feed + 1 : l->end;
    l->number++;
    return true;
}

static bool is_empty(const char *line, size_t n)
{
    while (n > 0 && strchr(" \t\r", line[n - 1]))
        n--;
    return n == 0;
}

int weft_lines_next(struct weft_lines *l, struct weft_line *r,
                    struct weft_err *err)
{
    char name[4200];
    *r = (struct weft_line){.text = NULL};
    do
        if (!next_line(l, &r->text, &r->n))
            return 0;
    while (is_empty(r->text, r->n));
    err = l->torn ? NULL : err;
    snprintf(name, sizeof name, "%s:%d", l->path, l->number);
    int rc = weft_json_parse(r->text, r->n, name, &r->o, err);
    if (!rc && !json_is_object(r->o))
        rc = weft_err_set(err, WEFT_EFORMAT, "%s: not a JSON object", name);
    else if (!rc)
        rc = weft_json_int(r->o, name, "iteration", 0, INT64_MAX,
                           &r->iteration, err);
    if (!rc)
        return 0;
    if (r->o)
        json_decref(r->o);
    r->o = NULL;
    return l->torn ? 0 : rc;
}

/* Appends to `keep` the lines of at most n_iterations. */
static int keep_lines(const char *path, const char *text, size_t n_text,
                      int64_t n_iterations, struct weft_string *keep,
                      struct weft_err *err)
{
    struct weft_lines l = {path, text, text + n_text, 0, false};
    struct weft_line r;
    int rc;
    while (!(rc = weft_lines_next(&l, &r, err)) && r.o) {
        json_decref(r.o);
        if (r.iteration <= n_iterations) {
            weft_string_add_n(keep, r.text, r.n);
            weft_string_add(keep, "\n");
        }
    }
    return rc ? rc : weft_string_check(keep, path, err);
}

int weft_lines_cut(const char *path, int64_t n_iterations,
                   struct weft_err *err)
{
    char *text;
    size_t n;
    if (!weft_file_exists(path))
        return 0;
    int rc = weft_file_read(path, 0, &text, &n, err);
    if (rc)
        return rc;
    struct weft_string keep = {0};
    if (n_iterations > 0)
        rc = keep_lines(path, text, n, n_iterations, &keep, err);
    if (!rc && (keep.n != n || (n > 0 && memcmp(keep.data, text, n) != 0)))
        rc = weft_file_write(path, keep.n > 0 ? keep.data : "", keep.n, err);
    weft_string_release(&keep);
    weft_free(text);
    return rc;
}

/* ---- Appending ---------------------------------------------------------- */

int weft_line_file_open(const char *dir, const char *name,
                        int64_t n_iterations, struct weft_line_file *out,
                        struct weft_err *err)
{
    *out = (struct weft_line_file){.path = weft_path_join(dir, name),
                                   .fd = -1};
    int rc = out->path ? weft_lines_cut(out->path, n_iterations, err)
                       : weft_err_nomem(err, "a path", strlen(dir));
    if (rc)
        return rc;
    out->fd = open(out->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                   0666);
    if (out->fd < 0)
        return weft_err_sys(err, "open", out->path);
    out->n_bytes = lseek(out->fd, 0, SEEK_END);
    return out->n_bytes < 0 ? weft_err_sys(err, "read", out->path) : 0;
}

int weft_line_file_add(struct weft_line_file *w,
                       const struct weft_string *line, struct weft_err *err)
{
    size_t done = 0;
    while (done < line->n) {
        ssize_t n = write(w->fd, line->data + done, line->n - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int rc = weft_err_sys(err, "write", w->path);
            (void) !ftruncate(w->fd, w->n_bytes);
            return rc;
        }
        done += (size_t) n;
    }
    w->n_bytes += (off_t) line->n;
    return 0;
}

void weft_line_file_close(struct weft_line_file *w)
{
    if (w->fd >= 0)
        close(w->fd);
    weft_free(w->path);
    *w = (struct weft_line_file){.fd = -1};
}
