/* SPDX-License-Identifier: Apache-2.0 */
#include "run/plans.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"

enum { NAME_BYTES = 32 };

static void name_of(int32_t iteration, char out[NAME_BYTES])
{
    snprintf(out, NAME_BYTES, "iteration-%06d.json", (int) iteration);
}

/* The iteration of a file's name; -1: it is none of ours. */
static int32_t iteration_of(const char *name)
{
    char ours[NAME_BYTES];
    int k = -1;
    if (sscanf(name, "iteration-%d", &k) != 1 || k < 0)
        return -1;
    name_of(k, ours);
    return strcmp(ours, name) == 0 ? k : -1;
}

static char *folder_of(const char *run_dir)
{
    return weft_path_join(run_dir, "plans");
}

int weft_plans_write(const char *run_dir, const struct weft_plan *plan,
                     int32_t iteration, struct weft_err *err)
{
    char name[NAME_BYTES];
    name_of(iteration, name);
    char *dir = folder_of(run_dir);
    char *path = dir ? weft_path_join(dir, name) : NULL;
    int rc = path ? weft_dir_create(dir, err)
                  : weft_err_nomem(err, "a path", strlen(run_dir));
    if (!rc)
        rc = weft_plan_write(plan, path, err);
    weft_free(dir);
    weft_free(path);
    return rc;
}

/* Goes through the plans: those of iterations that are not done are removed if
 * `cut`; *last_out: the newest of the others, -1: none. */
static int walk(const char *dir, int32_t done, bool cut, int32_t *last_out,
                struct weft_err *err)
{
    DIR *d = opendir(dir);
    int rc = 0;
    *last_out = -1;
    if (!d)
        return errno == ENOENT ? 0 : weft_err_sys(err, "read", dir);
    for (struct dirent *e; !rc && (e = readdir(d)) != NULL;) {
        int32_t k = iteration_of(e->d_name);
        if (k < (done > 0 ? done : 1))
            *last_out = k > *last_out ? k : *last_out;
        else if (cut && unlinkat(dirfd(d), e->d_name, 0) != 0)
            rc = weft_err_sys(err, "remove", e->d_name);
    }
    closedir(d);
    return rc;
}

int weft_plans_last(const char *run_dir, int32_t done, char **path_out,
                    struct weft_err *err)
{
    char name[NAME_BYTES];
    char *dir = folder_of(run_dir);
    int32_t last = -1;
    int rc = dir ? walk(dir, done, false, &last, err)
                 : weft_err_nomem(err, "a path", strlen(run_dir));
    *path_out = NULL;
    if (!rc && last >= 0) {
        name_of(last, name);
        *path_out = weft_path_join(dir, name);
        rc = *path_out ? 0 : weft_err_nomem(err, "a path", strlen(dir));
    }
    weft_free(dir);
    return rc;
}

int weft_plans_cut(const char *run_dir, int32_t done, struct weft_err *err)
{
    char *dir = folder_of(run_dir);
    int32_t last;
    int rc = dir ? walk(dir, done, true, &last, err)
                 : weft_err_nomem(err, "a path", strlen(run_dir));
    weft_free(dir);
    return rc;
}
