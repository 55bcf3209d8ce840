/* SPDX-License-Identifier: Apache-2.0 */
/* A file of JSON objects, one a line, each of an iteration of a run: appended
 * to, read, and cut back when the run goes on from an earlier iteration. */
#ifndef WEFT_RECORD_LINES_H
#define WEFT_RECORD_LINES_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/json.h"
#include "base/string.h"

/* A position among the lines of a file's text. */
struct weft_lines {
    const char *path; /* errors name it */
    const char *at, *end;
    int number;
    bool torn; /* the present line has no line feed; it is the last */
};

/* A line of the file, and what is in it. */
struct weft_line {
    const char *text;
    size_t n;
    json_t *o; /* NULL: there is no more */
    int64_t iteration;
};

/* Reads the next line that is whole; the caller drops out->o. Errors:
 * WEFT_EFORMAT: it is no JSON object with "iteration". */
int weft_lines_next(struct weft_lines *lines, struct weft_line *out,
                    struct weft_err *err);
/* Removes the lines of iterations after n_iterations from the file, and an
 * incomplete last line; a file that is not there is left so. Errors: as
 * weft_lines_next(), those of writing. */
int weft_lines_cut(const char *path, int64_t n_iterations,
                   struct weft_err *err);

/* A file that lines are appended to. */
struct weft_line_file {
    char *path;
    int fd;
    off_t n_bytes; /* of complete lines */
};

/* Creates it if it is not there. Close it also after an error. */
int weft_line_file_open(const char *dir, const char *name,
                        int64_t n_iterations, struct weft_line_file *out,
                        struct weft_err *err);
/* Appends a line; after an error removes what was written of it. */
int weft_line_file_add(struct weft_line_file *file,
                       const struct weft_string *line, struct weft_err *err);
void weft_line_file_close(struct weft_line_file *file);

#endif
