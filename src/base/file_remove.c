/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only code that removes folders with their contents. A wrong name here
 * would cost somebody's files, so it is strict: it removes only names of a few
 * forms, finds them by descriptor below the caller's folder, never follows
 * links, and removes nothing at all when anything inside must not be removed.
 */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"

/* ---- Names ------------------------------------------------------------ */

static const char digits[] = "0123456789";

/* Whether the name is ".<name>.tmp-<pid>", or that with "-<i>" after it: a
 * stage or a file that is being written. */
static bool is_stage(const char *name)
{
    const char *at = NULL;
    if (name[0] != '.')
        return false;
    for (const char *p = name + 1; (p = strstr(p, ".tmp-")) != NULL; p++)
        at = p;
    if (!at || at < name + 2)
        return false;
    at += strlen(".tmp-");
    size_t pid = strspn(at, digits);
    if (pid == 0 || at[pid] != '-')
        return pid > 0 && at[pid] == 0;
    at += pid + 1;
    size_t i = strspn(at, digits);
    return i > 0 && at[i] == 0;
}

/* Whether the name is a checkpoint's, such as "iteration-000010". */
static bool is_checkpoint(const char *name)
{
    static const char word[] = "iteration-";
    if (strncmp(name, word, sizeof word - 1) != 0)
        return false;
    size_t n = strspn(name + sizeof word - 1, digits);
    return n >= 6 && name[sizeof word - 1 + n] == 0;
}

/* Whether the name is "weft-<words>-XXXXXX", as mkdtemp() makes it. */
static bool is_temporary(const char *name)
{
    static const char mark[] = "0123456789abcdefghijklmnopqrstuvwxyz"
                               "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t n = strlen(name), first = strlen("weft-");
    if (strncmp(name, "weft-", first) != 0 || n < first + 8
        || name[n - 7] != '-')
        return false;
    return strspn(name + n - 6, mark) == 6
        && strspn(name + first, "-0123456789abcdefghijklmnopqrstuvwxyz")
               >= n - 6 - first;
}

/* ---- Walking ---------------------------------------------------------- */

enum { MAX_DEPTH = 16 }; /* deeper than anything that weft makes */

struct identity {
    dev_t device;
    ino_t inode;
};

struct walk {
    const char *dir, *name; /* for messages */
    dev_t device;           /* the device on which everything must lie */
    bool remove;            /* else look only */
    struct identity never[3];
    struct weft_err *err;
};

static int refuse(const struct walk *w, const char *why)
{
    return weft_err_set(w->err, WEFT_EINVAL, "'%s/%s' is not removed: %s",
                        w->dir, w->name, why);
}

static int fail(const struct walk *w)
{
    int rc = weft_err_sys(w->err, "remove", w->name);
    weft_err_prefix(w->err, "'%s'", w->dir);
    return rc;
}

static void set_identity(struct identity *out, const char *path)
{
    struct stat st;
    if (path && stat(path, &st) == 0)
        *out = (struct identity){st.st_dev, st.st_ino};
}

static bool is_mount_point(int fd)
{
#ifdef STATX_ATTR_MOUNT_ROOT
    struct statx x;
    return statx(fd, "", AT_EMPTY_PATH | AT_NO_AUTOMOUNT, STATX_BASIC_STATS,
                 &x)
            == 0
        && (x.stx_attributes & STATX_ATTR_MOUNT_ROOT);
#else
    (void) fd;
    return false; /* mounts of another device are noticed by st_dev */
#endif
}

/* Why the open folder must not be removed, or NULL; `seen` is what was found
 * under its name before it was opened. */
static const char *objection(const struct walk *w, int fd,
                             const struct stat *seen, int depth)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_ino != seen->st_ino
        || st.st_dev != seen->st_dev)
        return "another folder takes its place";
    if (st.st_dev != w->device || is_mount_point(fd))
        return "a file system is mounted in it";
    for (size_t i = 0; i < WEFT_COUNT(w->never); i++)
        if (st.st_dev == w->never[i].device && st.st_ino == w->never[i].inode)
            return "the system's root or a home is in it";
    if (depth >= MAX_DEPTH)
        return "it is deeper than what weft writes";
    if (depth == 0 && is_temporary(w->name)
        && (st.st_uid != geteuid() || (st.st_mode & 077) != 0))
        return "it is not a temporary folder of this user";
    return NULL;
}

static int walk_entry(struct walk *w, int parent, const char *name,
                      int depth);

static int walk_folder(struct walk *w, int parent, const char *name,
                       const struct stat *st, int depth)
{
    int fd = openat(parent, name,
                    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : fail(w);
    const char *why = objection(w, fd, st, depth);
    DIR *d = why ? NULL : fdopendir(fd);
    if (!d) {
        int rc = why ? refuse(w, why) : fail(w);
        close(fd);
        return rc;
    }
    int rc = 0;
    for (struct dirent *e; !rc && (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            rc = walk_entry(w, fd, e->d_name, depth + 1);
    closedir(d);
    if (!rc && w->remove && unlinkat(parent, name, AT_REMOVEDIR) != 0
        && errno != ENOENT)
        rc = fail(w);
    return rc;
}

static int walk_entry(struct walk *w, int parent, const char *name, int depth)
{
    struct stat st;
    if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : fail(w);
    if (S_ISDIR(st.st_mode))
        return walk_folder(w, parent, name, &st, depth);
    if (w->remove && unlinkat(parent, name, 0) != 0 && errno != ENOENT)
        return fail(w);
    return 0;
}

/* Checks all of dir/name; with `remove` removes it if there is no
 * objection. */
static int walk(int dir_fd, const char *dir, const char *name, bool remove,
                struct weft_err *err)
{
    struct walk w = {.dir = dir, .name = name, .err = err};
    struct stat st;
    struct passwd room, *user = NULL;
    char text[4096];
    if (strchr(name, '/')
        || !(is_stage(name) || is_checkpoint(name) || is_temporary(name)))
        return refuse(&w, "its name is none that weft gives to what it "
                          "removes");
    if (fstat(dir_fd, &st) != 0)
        return fail(&w);
    w.device = st.st_dev;
    set_identity(&w.never[0], "/");
    set_identity(&w.never[1], getenv("HOME"));
    if (getpwuid_r(geteuid(), &room, text, sizeof text, &user) == 0 && user)
        set_identity(&w.never[2], user->pw_dir);
    int rc = walk_entry(&w, dir_fd, name, 0);
    w.remove = true;
    return rc || !remove ? rc : walk_entry(&w, dir_fd, name, 0);
}

int weft_dir_remove_below(int dir_fd, const char *dir, const char *name,
                          struct weft_err *err)
{
    return walk(dir_fd, dir, name, true, err);
}

/* ---- By path ---------------------------------------------------------- */

static int walk_path(const char *path, bool remove, struct weft_err *err)
{
    char *dir = weft_path_parent(path), *name = weft_path_name(path);
    int rc = 0, fd = -1;
    if (!dir || !name) {
        rc = weft_err_nomem(err, path, strlen(path) + 32);
        goto out;
    }
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT)
        rc = weft_err_sys(err, "open folder", dir);
    else if (fd >= 0)
        rc = walk(fd, dir, name, remove, err);
out:
    if (fd >= 0)
        close(fd);
    weft_free(dir);
    weft_free(name);
    return rc;
}

int weft_dir_remove(const char *path, struct weft_err *err)
{
    return walk_path(path, true, err);
}

int weft_dir_may_be_removed(const char *path, struct weft_err *err)
{
    return walk_path(path, false, err);
}

bool weft_dir_remove_empty(const char *path)
{
    return rmdir(path) == 0 || errno == ENOENT;
}

/* Removes the stages in an open folder, and in its folders if `deeper`. */
static void sweep(int fd, const char *dir, bool deeper)
{
    struct weft_err err;
    DIR *d = fdopendir(fd);
    if (!d) {
        close(fd);
        return;
    }
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (is_stage(e->d_name)) {
            if (weft_dir_remove_below(fd, dir, e->d_name, &err) != 0)
                weft_warn("%s", err.text);
            continue;
        }
        if (!deeper || e->d_name[0] == '.')
            continue;
        int below = openat(fd, e->d_name,
                           O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        char *path = below >= 0 ? weft_path_join(dir, e->d_name) : NULL;
        if (below >= 0)
            sweep(below, path ? path : e->d_name, false);
        weft_free(path);
    }
    closedir(d);
}

void weft_dir_sweep(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        sweep(fd, path, true);
}
