/* SPDX-License-Identifier: Apache-2.0 */
#include "run/run_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "job/run_config.h"
#include "run/checkpoint.h"
#include "run/plans.h"

enum { PATH_BYTES = 4096 };

/* dir/name; a path that is too long for the system becomes "", for which every
 * system call fails. */
static const char *path_of(char buf[PATH_BYTES], const char *dir,
                           const char *name)
{
    if (snprintf(buf, PATH_BYTES, "%s/%s", dir, name) >= PATH_BYTES)
        buf[0] = 0;
    return buf;
}

/* Whether a new run may use the folder: it has nothing, or only what remains
 * of a run that ended before it had written its configuration, or that was
 * undone. */
static int is_empty(const char *dir, bool *out, struct weft_err *err)
{
    static const char part[] = ".config.yaml.tmp-";
    DIR *d = opendir(dir);
    *out = true;
    if (!d)
        return errno == ENOENT ? 0 : weft_err_sys(err, "read", dir);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0
            && strcmp(e->d_name, "lock") != 0
            && strcmp(e->d_name, "trace") != 0
            && strncmp(e->d_name, part, sizeof part - 1) != 0)
            *out = false;
    closedir(d);
    return 0;
}

int weft_run_dir_open(struct weft_trainer *t, char **checkpoint_out,
                      struct weft_err *err)
{
    const char *run = t->config.run_dir;
    char path[PATH_BYTES];
    int32_t *found = NULL, n = 0;
    bool empty;
    *checkpoint_out = NULL;
    path_of(path, run, "config.yaml");
    if (!weft_file_exists(path)) {
        int rc = is_empty(run, &empty, err);
        if (!rc && !empty)
            rc = weft_err_set(err, WEFT_EINVAL,
                              "run_dir '%s' holds other files and no run; "
                              "give an empty or new folder",
                              run);
        return rc;
    }
    struct weft_config old;
    int rc = weft_run_config_read(path, 0, NULL, &old, err);
    if (rc)
        return rc;
    t->planned = weft_config_plans(&old);
    /* The default may have changed; the run keeps its own. */
    if (t->config.numerics.default_groups)
        t->config.numerics.gradient_groups = old.numerics.gradient_groups;
    rc = weft_config_check_resume(&old, &t->config, err);
    weft_config_release(&old);
    if (!rc)
        rc = weft_checkpoint_list(run, &found, &n, err);
    if (!rc && n > 0) {
        t->iteration = found[0];
        *checkpoint_out = weft_checkpoint_path(run, found[0]);
        if (!*checkpoint_out)
            rc = weft_err_nomem(err, "a path", strlen(path));
    }
    weft_free(found);
    return rc;
}

/* The highest folder of a path that is missing, or NULL. Caller frees. */
static char *first_missing(const char *path)
{
    char *missing = NULL, *at = weft_strdup(path);
    while (at && !weft_dir_exists(at)) {
        weft_free(missing);
        missing = at;
        at = weft_path_parent(missing);
    }
    weft_free(at);
    return missing;
}

/* Removes the run directory and the folders above it that this process made,
 * as far as they are empty. */
static void remove_folders(const struct weft_trainer *t)
{
    char *at = t->made_dir ? weft_strdup(t->config.run_dir) : NULL;
    while (at && weft_dir_remove_empty(at)) {
        bool top = strlen(at) <= strlen(t->made_dir);
        char *up = top ? NULL : weft_path_parent(at);
        weft_free(at);
        at = up;
    }
    weft_free(at);
}

static int take_lock(struct weft_trainer *t, struct weft_err *err)
{
    char path[PATH_BYTES];
    path_of(path, t->config.run_dir, "lock");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return weft_err_sys(err, "write", path);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int saved = errno;
        close(fd);
        errno = saved;
        if (saved != EWOULDBLOCK)
            return weft_err_sys(err, "lock", path);
        return weft_err_set(err, WEFT_ESTATE,
                            "another process works in run_dir '%s'; wait for "
                            "it, or take another run_dir",
                            t->config.run_dir);
    }
    t->lock = fd;
    return 0;
}

int weft_run_dir_lock(struct weft_trainer *t, struct weft_err *err)
{
    t->made_dir = first_missing(t->config.run_dir);
    int rc = weft_dir_create(t->config.run_dir, err);
    if (!rc)
        rc = take_lock(t, err);
    if (rc)
        remove_folders(t);
    else
        weft_dir_sweep(t->config.run_dir);
    return rc;
}

int weft_run_dir_begin(struct weft_trainer *t, struct weft_err *err)
{
    static const char *const folder[] = {"samples", "checkpoints"};
    const char *run = t->config.run_dir;
    char path[PATH_BYTES];
    /* This file comes first: a folder with it is a run directory. */
    int rc = weft_config_write(&t->config, path_of(path, run, "config.yaml"),
                               err);
    if (!rc)
        rc = weft_plan_write(&t->plan, path_of(path, run, "plan.json"), err);
    for (size_t i = 0; i < WEFT_COUNT(folder) && !rc; i++)
        rc = weft_dir_create(path_of(path, run, folder[i]), err);
    if (!rc)
        rc = weft_samples_truncate(run, t->iteration, err);
    if (!rc)
        rc = weft_plans_cut(run, t->iteration, err);
    if (!rc)
        rc = weft_metrics_open(run, t->iteration, t->config.tensorboard,
                               t->config.metric_names, &t->metrics_writer,
                               err);
    return rc;
}

/* ---- A run that did not begin ----------------------------------------- */

static const char events[] = "events.out.tfevents.";

/* What weft_run_dir_begin() creates: these files, and these folders, which are
 * empty but for TensorBoard's event file. */
static const char *const made_file[] = {
    "config.yaml", "plan.json", "metrics.jsonl", "decisions.jsonl", "lock"};
static const char *const made_folder[] = {"samples", "checkpoints",
                                          "tensorboard"};

static bool is_one_of(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, list[i]) == 0)
            return true;
    return false;
}

/* Calls fn for each entry except . and ..; true if all calls return true. */
static bool for_each_entry(const char *dir,
                           bool (*fn)(const char *dir, const char *name))
{
    DIR *d = opendir(dir);
    bool all = true;
    for (struct dirent *e; d && all && (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            all = fn(dir, e->d_name);
    if (d)
        closedir(d);
    return all;
}

static bool is_event_file(const char *dir, const char *name)
{
    (void) dir;
    return strncmp(name, events, sizeof events - 1) == 0;
}

static bool is_made(const char *dir, const char *name)
{
    char path[PATH_BYTES];
    struct stat st;
    if (lstat(path_of(path, dir, name), &st) != 0)
        return false;
    if (is_one_of(name, made_file, WEFT_COUNT(made_file)))
        return S_ISREG(st.st_mode)
            && (!strstr(name, ".jsonl") || st.st_size == 0);
    return is_one_of(name, made_folder, WEFT_COUNT(made_folder))
        && S_ISDIR(st.st_mode) && for_each_entry(path, is_event_file);
}

static bool unlink_in(const char *dir, const char *name)
{
    char path[PATH_BYTES];
    return unlink(path_of(path, dir, name)) == 0;
}

void weft_run_dir_undo(struct weft_trainer *t)
{
    const char *run = t->config.run_dir;
    char path[PATH_BYTES];
    if (t->lock <= 0 || t->iteration > 0 || !for_each_entry(run, is_made))
        return;
    weft_metrics_writer_close(t->metrics_writer);
    t->metrics_writer = NULL;
    for (size_t i = 0; i < WEFT_COUNT(made_folder); i++) {
        path_of(path, run, made_folder[i]);
        (void) for_each_entry(path, unlink_in);
        (void) weft_dir_remove_empty(path);
    }
    for (size_t i = 0; i < WEFT_COUNT(made_file); i++)
        (void) unlink_in(run, made_file[i]);
    remove_folders(t);
}
