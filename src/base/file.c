/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/string.h"

static int nomem(struct weft_err *err, const char *path)
{
    return weft_err_nomem(err, path, strlen(path) + 32);
}

/* ---- Paths ------------------------------------------------------------ */

char *weft_path_join(const char *a, const char *b)
{
    if (b[0] == '/' || !*a)
        return weft_strdup(b);
    size_t n = strlen(a);
    char *out = weft_alloc(n + strlen(b) + 2, 1);
    if (!out)
        return NULL;
    while (n > 1 && a[n - 1] == '/')
        n--;
    memcpy(out, a, n);
    if (a[n - 1] != '/')
        out[n++] = '/';
    strcpy(out + n, b);
    return out;
}

/* Finds the end of the path without trailing slashes, and the beginning of its
 * last part. */
static void split(const char *path, size_t *end_out, size_t *name_out)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t name = end;
    while (name > 0 && path[name - 1] != '/')
        name--;
    *end_out = end;
    *name_out = name;
}

char *weft_path_parent(const char *path)
{
    size_t end, name;
    split(path, &end, &name);
    if (name == 0)
        return weft_strdup(".");
    while (name > 1 && path[name - 1] == '/')
        name--;
    return weft_strndup(path, name);
}

char *weft_path_name(const char *path)
{
    size_t end, name;
    split(path, &end, &name);
    return weft_strndup(path + name, end - name);
}

bool weft_file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

bool weft_dir_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool weft_path_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

bool weft_path_is_free(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT || errno == ENOTDIR;
    DIR *dir = opendir(path);
    bool empty = dir != NULL;
    for (struct dirent *e; empty && (e = readdir(dir));)
        empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
    if (dir)
        closedir(dir);
    return empty;
}

/* ---- Reading ---------------------------------------------------------- */

static int open_for_reading(const char *path, int *fd_out, struct stat *st,
                            struct weft_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return weft_err_sys(err, "open", path);
    int rc = 0;
    if (fstat(fd, st) != 0)
        rc = weft_err_sys(err, "read", path);
    else if (S_ISDIR(st->st_mode))
        rc = weft_err_set(err, WEFT_EINVAL,
                          "'%s' is a folder; a file is wanted", path);
    if (rc)
        close(fd);
    else
        *fd_out = fd;
    return rc;
}

static int read_all(int fd, const char *path, size_t max_bytes, char **data,
                    size_t *n, size_t room, struct weft_err *err)
{
    for (;;) {
        if (*n + 1 >= room) {
            room = 2 * room + 4096;
            char *more = weft_realloc(*data, room, 1);
            if (!more)
                return weft_err_nomem(err, path, room);
            *data = more;
        }
        ssize_t got = read(fd, *data + *n, room - 1 - *n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return weft_err_sys(err, "read", path);
        if (got == 0)
            break;
        *n += (size_t) got;
        if (max_bytes && *n > max_bytes)
            return weft_err_set(err, WEFT_EINVAL,
                                "'%s' is larger than %.0f MiB, the limit for "
                                "such a file",
                                path, (double) max_bytes / 1048576.0);
    }
    (*data)[*n] = 0;
    return 0;
}

int weft_file_read(const char *path, size_t max_bytes, char **data_out,
                   size_t *n_out, struct weft_err *err)
{
    int fd;
    struct stat st;
    int rc = open_for_reading(path, &fd, &st, err);
    if (rc)
        return rc;
    size_t n = 0, room = 4096;
    if (st.st_size > 0 && (!max_bytes || (uint64_t) st.st_size <= max_bytes))
        room = (size_t) st.st_size + 2;
    char *data = weft_alloc(room, 1);
    rc = data ? read_all(fd, path, max_bytes, &data, &n, room, err)
              : weft_err_nomem(err, path, room);
    close(fd);
    if (rc) {
        weft_free(data);
        return rc;
    }
    *data_out = data;
    *n_out = n;
    return 0;
}

int weft_map_open(const char *path, struct weft_map *out,
                  struct weft_err *err)
{
    static const unsigned char nothing[1];
    int fd;
    struct stat st;
    int rc = open_for_reading(path, &fd, &st, err);
    if (rc)
        return rc;
    struct weft_map map = {nothing, (size_t) st.st_size};
    if (!S_ISREG(st.st_mode))
        rc = weft_err_set(err, WEFT_EINVAL, "'%s' is not an ordinary file",
                          path);
    else if (map.n > 0) {
        void *p = mmap(NULL, map.n, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            rc = weft_err_sys(err, "map", path);
        else
            map.data = p;
    }
    close(fd);
    if (!rc)
        *out = map;
    return rc;
}

void weft_map_close(struct weft_map *map)
{
    if (map->data && map->n > 0)
        munmap((void *) (uintptr_t) map->data, map->n);
    *map = (struct weft_map){0};
}

/* ---- Temporary names -------------------------------------------------- */

/* Makes "<parent>/.<name>.tmp-<pid>"; for the i-th try it ends in
 * "-<pid>-<i>". */
static char *temp_name(const char *path, int i)
{
    size_t end, name, room = strlen(path) + 48;
    split(path, &end, &name);
    char *out = weft_alloc(room, 1);
    if (!out)
        return NULL;
    int n = snprintf(out, room, "%.*s.%.*s.tmp-%ld", (int) name, path,
                     (int) (end - name), path + name, (long) getpid());
    if (i > 0)
        snprintf(out + n, room - (size_t) n, "-%d", i);
    return out;
}

/* Removes what processes that no longer run have left beside `path`. */
static void sweep(const char *path)
{
    size_t end, at;
    split(path, &end, &at);
    char *parent = weft_path_parent(path);
    DIR *dir = parent ? opendir(parent) : NULL;
    size_t n = end - at;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        const char *name = e->d_name;
        if (name[0] != '.' || strncmp(name + 1, path + at, n) != 0
            || strncmp(name + 1 + n, ".tmp-", 5) != 0)
            continue;
        long pid = strtol(name + n + 6, NULL, 10);
        if (pid <= 0 || kill((pid_t) pid, 0) == 0 || errno != ESRCH)
            continue;
        (void) weft_dir_remove_below(dirfd(dir), parent, name, NULL);
    }
    if (dir)
        closedir(dir);
    weft_free(parent);
}

/* Brings a folder's entries to the disk. */
static int sync_dir(const char *path, struct weft_err *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return weft_err_sys(err, "open folder", path);
    int rc = 0;
    /* EINVAL: some file systems cannot sync */
    if (fsync(fd) != 0 && errno != EINVAL)
        rc = weft_err_sys(err, "bring to the disk folder", path);
    close(fd);
    return rc;
}

static int sync_parent(const char *path, struct weft_err *err)
{
    char *parent = weft_path_parent(path);
    int rc = parent ? sync_dir(parent, err) : nomem(err, path);
    weft_free(parent);
    return rc;
}

/* ---- Writing ---------------------------------------------------------- */

struct weft_file_writer {
    int fd;
    char *path, *temp;
};

/* Writes the error of a failed write; for a full disk it says how much was
 * wanted, if that is known, and how much is free. */
static int fail_write(const char *path, uint64_t wanted, struct weft_err *err)
{
    uint64_t left;
    bool small = wanted < 1048576;
    double unit = small ? 1024 : 1048576;
    const char *name = small ? "KiB" : "MiB";
    if (errno == EFBIG)
        return weft_err_set(err, WEFT_EFULL,
                            "cannot write '%s': this process may not write "
                            "files that large (ulimit -f)",
                            path);
    if ((errno == ENOSPC || errno == EDQUOT)
        && weft_disk_free(path, &left, NULL) == 0)
        return wanted == 0
                 ? weft_err_set(
                     err, WEFT_EFULL,
                     "disk full: cannot write '%s', where %.1f KiB are "
                     "free",
                     path, (double) left / 1024)
                 : weft_err_set(
                     err, WEFT_EFULL,
                     "disk full: cannot write '%s', which needs %.1f "
                     "%s where %.1f %s are free",
                     path, (double) wanted / unit, name, (double) left / unit,
                     name);
    return weft_err_sys(err, "write", path);
}

/* Uses fallocate(): posix_fallocate() may be emulated by writing all of the
 * file. */
static int reserve(struct weft_file_writer *w, size_t n, struct weft_err *err)
{
    uint64_t left;
    if (n == 0)
        return 0;
    if (weft_disk_free(w->path, &left, NULL) == 0 && left < n) {
        errno = ENOSPC;
        return fail_write(w->path, n, err);
    }
    if (fallocate(w->fd, 0, 0, (off_t) n) == 0)
        return 0;
    if (errno != EOPNOTSUPP && errno != EINVAL && errno != ENOSYS)
        return fail_write(w->path, n, err);
    return ftruncate(w->fd, (off_t) n) == 0 ? 0 : fail_write(w->path, n, err);
}

int weft_file_writer_open(const char *path, size_t n_bytes,
                          struct weft_file_writer **out, struct weft_err *err)
{
    struct weft_file_writer *w = weft_alloc(1, sizeof *w);
    if (!w)
        return nomem(err, path);
    w->fd = -1;
    w->path = weft_strdup(path);
    int rc = 0;
    struct stat st;
    /* The new file takes the path's place, and /dev/null must stay. */
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        rc = weft_err_set(
            err, WEFT_EINVAL, "cannot write '%s': it is %s", path,
            S_ISDIR(st.st_mode) ? "a folder" : "no regular file");
    if (!rc)
        sweep(path);
    for (int i = 0; i < 100 && !rc && w->fd < 0; i++) {
        weft_free(w->temp);
        w->temp = temp_name(path, i);
        if (!w->path || !w->temp) {
            rc = nomem(err, path);
            break;
        }
        w->fd = open(w->temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (w->fd < 0 && (errno != EEXIST || i == 99))
            rc = fail_write(path, n_bytes, err);
    }
    if (!rc)
        rc = reserve(w, n_bytes, err);
    if (rc)
        weft_file_writer_abandon(w);
    else
        *out = w;
    return rc;
}

int weft_file_writer_put(struct weft_file_writer *w, uint64_t at,
                         const void *data, size_t n, struct weft_err *err)
{
    const char *p = data;
    while (n > 0) {
        ssize_t done = pwrite(w->fd, p, n, (off_t) at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return fail_write(w->path, n, err);
        p += done;
        at += (uint64_t) done;
        n -= (size_t) done;
    }
    return 0;
}

int weft_file_writer_close(struct weft_file_writer *w, struct weft_err *err)
{
    int rc = 0;
    if (fsync(w->fd) != 0)
        rc = fail_write(w->path, 0, err);
    if (close(w->fd) != 0 && !rc)
        rc = fail_write(w->path, 0, err);
    w->fd = -1;
    if (!rc && rename(w->temp, w->path) != 0)
        rc = weft_err_sys(err, "create", w->path);
    if (!rc) {
        weft_free(w->temp); /* the file has its final name now */
        w->temp = NULL;
        rc = sync_parent(w->path, err);
    }
    weft_file_writer_abandon(w);
    return rc;
}

void weft_file_writer_abandon(struct weft_file_writer *w)
{
    if (!w)
        return;
    if (w->fd >= 0)
        close(w->fd);
    if (w->temp)
        unlink(w->temp);
    weft_free(w->temp);
    weft_free(w->path);
    weft_free(w);
}

int weft_file_may_write(const char *path, struct weft_err *err)
{
    struct weft_file_writer *w;
    int rc = weft_file_writer_open(path, 0, &w, err);
    if (!rc)
        weft_file_writer_abandon(w);
    return rc;
}

int weft_file_write(const char *path, const void *data, size_t n,
                    struct weft_err *err)
{
    struct weft_file_writer *w;
    int rc = weft_file_writer_open(path, n, &w, err);
    if (rc)
        return rc;
    rc = weft_file_writer_put(w, 0, data, n, err);
    if (!rc)
        return weft_file_writer_close(w, err);
    weft_file_writer_abandon(w);
    return rc;
}

int weft_file_write_text(const char *path, char *text, struct weft_err *err)
{
    if (!text)
        return weft_err_nomem(err, path, 4096);
    int rc = weft_file_write(path, text, strlen(text), err);
    weft_free(text);
    return rc;
}

int weft_file_print(const char *dir, const char *name,
                    void (*put)(FILE *f, const void *what), const void *what,
                    struct weft_err *err)
{
    char *text = NULL, *path = weft_path_join(dir, name);
    size_t n = 0;
    FILE *f = path ? open_memstream(&text, &n) : NULL;
    if (f) {
        put(f, what);
        text = weft_string_end_stream(f, &text);
    }
    int rc = path ? weft_file_write_text(path, text, err)
                  : weft_err_nomem(err, name, 4096);
    weft_free(path);
    return rc;
}

int weft_file_copy(const char *from, const char *to, struct weft_err *err)
{
    struct weft_map map;
    int rc = weft_map_open(from, &map, err);
    if (rc)
        return rc;
    rc = weft_file_write(to, map.data, map.n, err);
    weft_map_close(&map);
    return rc;
}

/* ---- Folders ---------------------------------------------------------- */

int weft_dir_create(const char *path, struct weft_err *err)
{
    char *part = weft_strdup(path);
    if (!part)
        return nomem(err, path);
    int rc = 0;
    for (char *p = part; !rc && *p;) {
        while (*p == '/')
            p++;
        while (*p && *p != '/')
            p++;
        char saved = *p;
        *p = 0;
        if (*part && mkdir(part, 0777) != 0
            && (errno != EEXIST || !weft_dir_exists(part)))
            rc = weft_err_sys(err, "create folder", part);
        *p = saved;
    }
    weft_free(part);
    return rc;
}

int weft_dir_stage(const char *path, char **stage_out, struct weft_err *err)
{
    char *parent = weft_path_parent(path);
    int rc = parent ? weft_dir_create(parent, err) : nomem(err, path);
    weft_free(parent);
    if (rc)
        return rc;
    sweep(path);
    for (int i = 0; i < 100; i++) {
        char *stage = temp_name(path, i);
        if (!stage)
            return nomem(err, path);
        if (mkdir(stage, 0777) == 0) {
            *stage_out = stage;
            return 0;
        }
        if (errno != EEXIST || i == 99)
            rc = weft_err_sys(err, "create folder", path);
        weft_free(stage);
        if (rc)
            break;
    }
    return rc;
}

/* Exchanges the stage and a folder. The old folder is removed only after the
 * exchange has reached the disk. */
static int exchange(const char *stage, const char *path, struct weft_err *err)
{
    int rc = weft_dir_may_be_removed(path, err);
    if (rc)
        return rc;
    if (renameat2(AT_FDCWD, stage, AT_FDCWD, path, RENAME_EXCHANGE) == 0) {
        rc = sync_parent(path, err);
        return rc ? rc : weft_dir_remove(stage, err);
    }
    if (errno != EINVAL && errno != ENOSYS)
        return weft_err_sys(err, "replace", path);
    /* The file system cannot exchange, so for a moment there is no folder at
     * `path`. */
    char *old = temp_name(path, 100);
    rc = old ? weft_dir_remove(old, err) : nomem(err, path);
    if (!rc && rename(path, old) != 0)
        rc = weft_err_sys(err, "replace", path);
    else if (!rc && rename(stage, path) != 0) {
        rc = weft_err_sys(err, "replace", path);
        (void) rename(old, path);
    }
    if (!rc)
        rc = sync_parent(path, err);
    if (!rc)
        rc = weft_dir_remove(old, err);
    weft_free(old);
    return rc;
}

int weft_dir_commit(const char *stage, const char *path, bool replace,
                    struct weft_err *err)
{
    int rc = sync_dir(stage, err);
    if (!rc && rename(stage, path) != 0) {
        bool there = errno == EEXIST || errno == ENOTEMPTY
                  || errno == ENOTDIR;
        if (there && replace)
            rc = exchange(stage, path, err);
        else if (there)
            rc = weft_err_set(err, WEFT_EINVAL,
                              "'%s' exists already and is not empty", path);
        else
            rc = weft_err_sys(err, "create folder", path);
    } else if (!rc)
        rc = sync_parent(path, err);
    if (rc)
        (void) weft_dir_remove(stage, NULL);
    return rc;
}

int weft_disk_free(const char *path, uint64_t *out, struct weft_err *err)
{
    char *at = weft_strdup(path);
    struct statvfs fs;
    int rc = 0;
    if (!at)
        return nomem(err, path);
    while (statvfs(at, &fs) != 0) {
        char *up = errno == ENOENT ? weft_path_parent(at) : NULL;
        if (!up || strcmp(up, at) == 0) {
            weft_free(up);
            rc = weft_err_sys(err, "look at", path);
            goto out;
        }
        weft_free(at);
        at = up;
    }
    *out = (uint64_t) fs.f_bavail * fs.f_frsize;
out:
    weft_free(at);
    return rc;
}
