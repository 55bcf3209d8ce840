/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files and folders: reading, mapping, and writing so that a reader (or the
 * next start after a crash) sees the old content or the new, never half.
 *
 * New content is written beside its place under a temporary name,
 * ".<name>.tmp-<pid>", brought to the disk, and renamed; then the parent
 * folder is brought to the disk. What a process left behind when it was
 * killed is swept away by the next write to the same place.
 *
 * Errors everywhere: WEFT_EIO, WEFT_ENOTFOUND, WEFT_EFULL (the sentence says
 * how much was wanted and is free), WEFT_ENOMEM.
 */
#ifndef WEFT_BASE_FILE_H
#define WEFT_BASE_FILE_H

#include <stdio.h>

#include "base/err.h"

/* ---- Paths ------------------------------------------------------------ */

/* "a/b"; `b` alone when absolute, or when `a` is empty. NULL when memory is
 * out. Caller frees. */
char *weft_path_join(const char *a, const char *b);
/* The folder part: "." when there is none. Caller frees; NULL: no memory. */
char *weft_path_parent(const char *path);
/* The last part, without trailing slashes. Caller frees; NULL: no memory. */
char *weft_path_name(const char *path);

bool weft_file_exists(const char *path); /* exists, and is no folder */
bool weft_dir_exists(const char *path);
/* Something has that name: a file, a folder, a link to nothing. For a file
 * that may be absent, but must be readable where it is there. */
bool weft_path_exists(const char *path);
/* True when nothing is at `path`, or a folder with nothing in it. */
bool weft_path_is_free(const char *path);

/* ---- Reading ---------------------------------------------------------- */

/* Reads a whole file and adds a zero byte that n_out does not count. A file
 * larger than max_bytes (0: no limit) is WEFT_EINVAL. Caller frees. */
int weft_file_read(const char *path, size_t max_bytes, char **data_out,
                   size_t *n_out, struct weft_err *err);

/* A file mapped read-only. data is not NULL, even if n is 0. */
struct weft_map {
    const unsigned char *data;
    size_t n;
};
/* Close with weft_map_close(). */
int weft_map_open(const char *path, struct weft_map *out,
                  struct weft_err *err);
void weft_map_close(struct weft_map *map); /* a zeroed one is allowed */

/* ---- Writing ---------------------------------------------------------- */

/* Whether a file may be written there: makes one beside it, which goes again.
 * Errors: those of weft_file_writer_open(). */
int weft_file_may_write(const char *path, struct weft_err *err);
/* Replaces or creates a file with n bytes, atomically. */
int weft_file_write(const char *path, const void *data, size_t n,
                    struct weft_err *err);

/* The same with a text, which it frees; NULL: memory ran out. */
int weft_file_write_text(const char *path, char *text, struct weft_err *err);
/* The same with what put() prints, for the file `name` of the folder `dir`. */
int weft_file_print(const char *dir, const char *name,
                    void (*put)(FILE *f, const void *what), const void *what,
                    struct weft_err *err);

/* In pieces. close and abandon free the writer. */
struct weft_file_writer;
/* Reserves n_bytes on the disk (0: size unknown), so that a full disk is found
 * before the work. The file has that size until more is put. */
int weft_file_writer_open(const char *path, size_t n_bytes,
                          struct weft_file_writer **out,
                          struct weft_err *err);
/* Writes n bytes at offset `at`. Several threads may write at the same
 * time. */
int weft_file_writer_put(struct weft_file_writer *writer, uint64_t at,
                         const void *data, size_t n, struct weft_err *err);
/* Brings the file to the disk and renames it into place; on failure nothing is
 * left. */
int weft_file_writer_close(struct weft_file_writer *writer,
                           struct weft_err *err);
/* Removes what was written. NULL is allowed. */
void weft_file_writer_abandon(struct weft_file_writer *writer);

/* Copies a file, atomically. */
int weft_file_copy(const char *from, const char *to, struct weft_err *err);

/* ---- Folders ---------------------------------------------------------- */

/* Creates a folder and its parents where they are missing. */
int weft_dir_create(const char *path, struct weft_err *err);
/* Removes dir/name, a folder with all in it or a file; dir_fd is `dir` open.
 * The name must have one of the forms that weft gives to what it removes
 * later, or nothing happens and the error says so (WEFT_EINVAL):
 *     .<name>.tmp-<pid>     what is being written
 *     iteration-<digits>    checkpoints
 *     weft-<words>-XXXXXX   of mkdtemp(), of this user and for this user
 * Nor is anything removed when a file system is mounted in it, or the root or
 * a home is in it. Symbolic links are removed, not followed. Nothing there is
 * no error. There is no other recursive removal in the program. */
int weft_dir_remove_below(int dir_fd, const char *dir, const char *name,
                          struct weft_err *err);
/* The same by path, whose last part is the name. */
int weft_dir_remove(const char *path, struct weft_err *err);
/* Whether weft_dir_remove() would remove the path; removes nothing. */
int weft_dir_may_be_removed(const char *path, struct weft_err *err);
/* Removes an empty folder; true when there is none at `path` now. */
bool weft_dir_remove_empty(const char *path);
/* Removes everything of the first form in a folder and in its folders, whoever
 * wrote it: for a folder in which nobody else works. Warns of what cannot be
 * removed. */
void weft_dir_sweep(const char *path);

/* Makes an empty folder beside `path`, to be filled and then committed or
 * removed; creates the parents. Caller frees the name. */
int weft_dir_stage(const char *path, char **stage_out, struct weft_err *err);
/* Brings the staged folder to the disk, whose files must be on the disk
 * already, and renames it to `path`. With `replace` a folder that
 * weft_dir_remove() would remove is exchanged in one step and then removed.
 * Otherwise anything but an empty folder at `path` is an error. On failure the
 * stage is removed. */
int weft_dir_commit(const char *stage, const char *path, bool replace,
                    struct weft_err *err);

/* Bytes that an ordinary user may still write where `path` is or would be. */
int weft_disk_free(const char *path, uint64_t *out, struct weft_err *err);

#endif
