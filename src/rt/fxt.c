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
#include "base/log.h"
#include "config.h"
#include "rt/internal.h"
#include "rt/trace.h"
#include "rt/world.h"

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

/* ---- Gathering -------------------------------------------------------- */

/* Ranks' traces that starpu_fxt_tool reads at most. */
enum { MOST_RANKS = STARPU_FXT_MAX_FILES };

/* The name of a rank's trace in the work folder. */
static void name_of(int rank, char name[16])
{
    snprintf(name, 16, "rank-%d", rank);
}

static void path_of(int rank, char path[sizeof work_folder + 16])
{
    char name[16];
    name_of(rank, name);
    snprintf(path, sizeof work_folder + 16, "%s/%s", work_folder, name);
}

/* Gives its name to the file that StarPU wrote, prof_file_<user>_<rank>. */
static int find_own(struct weft_err *err)
{
    char from[sizeof work_folder + 264], to[sizeof work_folder + 16];
    DIR *d = opendir(work_folder);
    if (!d)
        return weft_err_sys(err, "read", work_folder);
    bool found = false;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strncmp(e->d_name, "prof_file_", 10) != 0)
            continue;
        snprintf(from, sizeof from, "%s/%s", work_folder, e->d_name);
        found = true;
    }
    closedir(d);
    if (!found)
        return weft_err_set(err, WEFT_ENOTFOUND,
                            "StarPU left no trace in '%s'", work_folder);
    path_of(weft_world_rank(), to);
    return rename(from, to) ? weft_err_sys(err, "rename", from) : 0;
}

enum { PIECE_BYTES = 1 << 22 };

static void send_own(const struct weft_map *own)
{
    weft_world_send(0, &own->n, sizeof own->n);
    for (size_t at = 0; at < own->n; at += PIECE_BYTES) {
        size_t n = own->n - at;
        weft_world_send(0, own->data + at, n < PIECE_BYTES ? n : PIECE_BYTES);
    }
}

/* Takes all pieces even when they cannot be written: the rank sends them. */
static int receive(int rank, char *piece, struct weft_err *err)
{
    char path[sizeof work_folder + 16];
    size_t left;
    int rc = 0;
    path_of(rank, path);
    FILE *f = fopen(path, "w");
    if (!f)
        rc = weft_err_sys(err, "write", path);
    weft_world_receive(rank, &left, sizeof left);
    while (left > 0) {
        size_t n = left < PIECE_BYTES ? left : PIECE_BYTES;
        weft_world_receive(rank, piece, n);
        left -= n;
        if (!rc && fwrite(piece, 1, n, f) != n)
            rc = weft_err_sys(err, "write", path);
    }
    if (f && fclose(f) != 0 && !rc)
        rc = weft_err_sys(err, "write", path);
    return rc;
}

static int receive_all(int n_ranks, char *piece, struct weft_err *err)
{
    struct weft_err later;
    int rc = 0;
    for (int r = 1; r < n_ranks; r++) {
        int one = receive(r, piece, rc ? &later : err);
        rc = rc ? rc : one;
    }
    return rc;
}

/* Brings the traces of the first n_ranks ranks into rank 0's work folder: the
 * ranks may be on different machines. Collective. */
static int gather(int n_ranks, struct weft_err *err)
{
    char path[sizeof work_folder + 16], *piece = NULL;
    struct weft_map own = {0};
    int rank = weft_world_rank(), rc = find_own(err);
    if (!rc && rank > 0) {
        path_of(rank, path);
        rc = weft_map_open(path, &own, err);
    } else if (!rc && n_ranks > 1) {
        piece = weft_alloc(PIECE_BYTES, 1);
        rc = piece ? 0 : weft_err_nomem(err, "a trace", PIECE_BYTES);
    }
    rc = weft_world_agree(rc, err);
    if (!rc && rank == 0)
        rc = receive_all(n_ranks, piece, err);
    else if (!rc && rank < n_ranks)
        send_own(&own);
    weft_map_close(&own);
    weft_free(piece);
    return weft_world_agree(rc, err);
}

/* ---- Conversion ------------------------------------------------------- */

static int run_tool(char *const argv[], struct weft_err *err)
{
    const char *tool = argv[0];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, work_folder);
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

/* starpu_fxt_tool puts the ranks' clocks right by the barrier that StarPU-MPI
 * has them pass at its start. */
static int merge(int n_ranks, struct weft_err *err)
{
    static char tool[4096], colours[] = "-c", exact[] = "-no-smooth",
                            input[] = "-i";
    char name[MOST_RANKS][16], *argv[3 + 2 * MOST_RANKS + 1];
    int n = 0;
    snprintf(tool, sizeof tool, "%s", tool_path());
    argv[n++] = tool;
    argv[n++] = colours;
    argv[n++] = exact;
    for (int r = 0; r < n_ranks; r++) {
        name_of(r, name[r]);
        argv[n++] = input;
        argv[n++] = name[r];
    }
    argv[n] = NULL;
    return run_tool(argv, err);
}

static int convert(int n_ranks, const char *dir, struct weft_err *err)
{
    char raw[sizeof work_folder + 16], path[4096];
    struct stat st;
    int rc = merge(n_ranks, err);
    if (rc)
        return rc;
    snprintf(raw, sizeof raw, "%s/paje.trace", work_folder);
    snprintf(path, sizeof path, "%s/paje.trace", dir);
    if (stat(raw, &st) || st.st_size == 0)
        return weft_err_set(err, WEFT_EFORMAT,
                            "starpu_fxt_tool made nothing of StarPU's trace");
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

/* Whether rank 0 has the folder around `dir`: a run that ended before its own
 * folder was made leaves no trace. */
static bool has_place(const char *dir)
{
    char *parent = weft_path_parent(dir);
    bool there = parent && weft_dir_exists(parent);
    weft_free(parent);
    weft_world_share(&there, sizeof there);
    return there;
}

int weft_fxt_end(const char *dir, struct weft_err *err)
{
    int n_ranks = weft_world_size(), rank = weft_world_rank();
    if (!has_place(dir))
        return 0;
    if (n_ranks > MOST_RANKS) {
        n_ranks = MOST_RANKS;
        if (rank == 0)
            weft_warn("StarPU's trace holds ranks 0 to %d, as many as "
                      "starpu_fxt_tool reads",
                      n_ranks - 1);
    }
    int rc = gather(n_ranks, err);
    if (!rc && rank == 0)
        rc = convert(n_ranks, dir, err);
    return weft_world_agree(rc, err);
}

void weft_fxt_clear(void)
{
    (void) weft_dir_remove(work_folder, NULL);
}
