/* SPDX-License-Identifier: Apache-2.0 */
#include "rt/fxt.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "config.h"
#include "rt/internal.h"

extern char **environ;

/* ---- Where the other StarPU lies ---------------------------------------- */

/* Finds `name` in the folder of the StarPU that this process uses: `make
 * install` puts the tracing libraries into its subfolder fxt/, and the tool
 * beside those. False: there is no such file. */
static bool beside_starpu(const char *name, char path[4096])
{
    Dl_info info;
    const void *starpu = dlsym(RTLD_DEFAULT, "starpu_init");
    if (!starpu || !dladdr(starpu, &info) || !info.dli_fname)
        return false;
    const char *slash = strrchr(info.dli_fname, '/');
    int n = slash ? (int) (slash - info.dli_fname) : 0;
    n = snprintf(path, 4096, "%.*s/%s", n, info.dli_fname, name);
    return slash && n < 4096 && access(path, F_OK) == 0;
}

/* "": there is none. */
static const char *library_folder(void)
{
    static char path[4096];
    return beside_starpu("fxt", path) ? path : WEFT_FXT_LIBDIR;
}

static const char *tool_path(void)
{
    static char path[4096];
    return beside_starpu("starpu_fxt_tool", path) ? path
                                                  : WEFT_FXT_BINDIR
               "/starpu_fxt_tool";
}

/* ---- Starting again with it --------------------------------------------- */

bool weft_fxt_built(void)
{
    return library_folder()[0] != 0;
}

/* A StarPU with FxT brings libfxt into the process. */
bool weft_fxt_needed(void)
{
    return dlsym(RTLD_DEFAULT, "fut_setup_flush_callback") == NULL;
}

static const char again[] = "WEFT_FXT_STARTED_AGAIN";

int weft_fxt_reexec(char *const argv[], struct weft_err *err)
{
    if (!weft_fxt_built())
        return weft_err_set(err, WEFT_EUNSUPPORTED,
                            "no StarPU traces: Weft was built without a "
                            "StarPU that has FxT (tools/build-starpu makes "
                            "one; then configure again)");
    const char *folder = library_folder();
    if (getenv(again))
        return weft_err_set(err, WEFT_EUNSUPPORTED,
                            "no StarPU traces: '%s' has no StarPU that traces"
                            " (tools/build-starpu makes one)",
                            folder);
    const char *old = getenv("LD_LIBRARY_PATH");
    size_t size = strlen(folder) + (old ? strlen(old) : 0) + 2;
    char *path = weft_alloc(size, 1);
    if (!path)
        return weft_err_nomem(err, "LD_LIBRARY_PATH", size);
    snprintf(path, size, "%s%s%s", folder, old && *old ? ":" : "",
             old ? old : "");
    int rc = setenv("LD_LIBRARY_PATH", path, 1) || setenv(again, "1", 1);
    weft_free(path);
    if (rc)
        return weft_err_nomem(err, "LD_LIBRARY_PATH", size);
    execv("/proc/self/exe", argv);
    return weft_err_sys(err, "start", "/proc/self/exe");
}

/* The folder that StarPU writes to. It is only ever one made by mkdtemp(), as
 * it is removed afterwards. */
static char work_folder[1024];

static int make_work_folder(struct weft_err *err)
{
    const char *tmp = getenv("TMPDIR");
    tmp = tmp && tmp[0] == '/' ? tmp : "/tmp";
    /* a second trace would be appended to the first one's file */
    if (work_folder[0])
        return weft_err_set(err, WEFT_ESTATE,
                            "StarPU traces once in the life of a process");
    char path[sizeof work_folder];
    int n = snprintf(path, sizeof path, "%s/weft-fxt-XXXXXX", tmp);
    if (n < 0 || (size_t) n >= sizeof path)
        return weft_err_set(err, WEFT_EINVAL, "TMPDIR is too long: '%s'",
                            tmp);
    if (!mkdtemp(path))
        return weft_err_sys(err, "create a folder in", tmp);
    memcpy(work_folder, path, sizeof path);
    return 0;
}

int weft_fxt_begin(struct weft_err *err)
{
    char prefix[sizeof work_folder + 2];
    if (weft_fxt_needed())
        return weft_err_set(err, WEFT_EUNSUPPORTED,
                            "no StarPU traces: this process runs a StarPU "
                            "without FxT");
    int rc = make_work_folder(err);
    if (rc)
        return rc;
    snprintf(prefix, sizeof prefix, "%s/", work_folder);
    setenv("STARPU_FXT_TRACE", "1", 1);
    /* with 1 StarPU 1.3.10 crashes at exit */
    setenv("STARPU_GENERATE_TRACE", "0", 1);
    setenv("STARPU_FXT_PREFIX", prefix, 1);
    /* The size is in MiB, of which only the used part takes memory. A full
     * buffer stops the run while it is written, and StarPU prints two
     * lines. */
    setenv("STARPU_TRACE_BUFFER_SIZE", "256", 0);
    return 0;
}

void weft_fxt_off(void)
{
    setenv("STARPU_FXT_TRACE", "0", 1);
}

/* ---- Conversion ------------------------------------------------------- */

/* Finds the file that StarPU wrote; its name contains the user's:
 * prof_file_<user>_<rank>. */
static int find_profile(const char *dir, char *name, size_t size,
                        struct weft_err *err)
{
    DIR *d = opendir(dir);
    if (!d)
        return weft_err_sys(err, "read", dir);
    bool found = false;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strncmp(e->d_name, "prof_file_", 10) != 0)
            continue;
        snprintf(name, size, "%s", e->d_name);
        found = true;
    }
    closedir(d);
    if (!found)
        return weft_err_set(err, WEFT_ENOTFOUND,
                            "StarPU left no trace in '%s'", dir);
    return 0;
}

static int run_tool(const char *dir, const char *profile,
                    struct weft_err *err)
{
    const char *tool = tool_path();
    char *const argv[] = {
        (char *) (uintptr_t) tool,    "-c", "-no-smooth", "-i",
        (char *) (uintptr_t) profile, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, dir);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    pid_t pid;
    int rc = posix_spawn(&pid, tool, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc) {
        errno = rc;
        return weft_err_sys(err, "run", tool);
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return weft_err_sys(err, "wait for", tool);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return weft_err_set(err, WEFT_EFORMAT,
                            "starpu_fxt_tool failed on StarPU's trace");
    return 0;
}

static int convert(const char *dir, struct weft_err *err)
{
    char profile[280], raw[sizeof work_folder + 16], path[4096];
    struct stat st;
    int rc = find_profile(work_folder, profile, sizeof profile, err);
    if (!rc)
        rc = run_tool(work_folder, profile, err);
    if (rc)
        return rc;
    snprintf(raw, sizeof raw, "%s/paje.trace", work_folder);
    snprintf(path, sizeof path, "%s/paje.trace", dir);
    if (stat(raw, &st) || st.st_size == 0)
        return weft_err_set(err, WEFT_EFORMAT,
                            "starpu_fxt_tool made nothing of '%s'", profile);
    rc = weft_dir_create(dir, err);
    if (!rc)
        rc = weft_paje_mend(raw, path, err);
    return rc;
}

void weft_rt_fxt_stop(struct weft_rt *rt)
{
    if (rt->fxt_dir && !atomic_exchange(&rt->fxt_stopped, true))
        starpu_fxt_stop_profiling();
}

int weft_fxt_end(const char *dir, struct weft_err *err)
{
    int rc = 0;
    /* A run that ended before its own folder was made leaves no trace. */
    char *parent = dir ? weft_path_parent(dir) : NULL;
    if (parent && weft_dir_exists(parent))
        rc = convert(dir, err);
    weft_free(parent);
    (void) weft_dir_remove(work_folder, NULL);
    return rc;
}
