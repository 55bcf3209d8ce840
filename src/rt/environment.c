/* SPDX-License-Identifier: Apache-2.0 */
/* Environment variables that StarPU reads, and the folder that they name. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "rt/internal.h"
#include "rt/environment.h"

int weft_environment_check(struct weft_err *err)
{
    static const struct {
        const char *name, *same, *instead;
    } ours[] = {
        {"STARPU_SCHED", NULL, "tasks run in the order of Weft's plan"},
        {"STARPU_SCHED_LIB", NULL, "tasks run in the order of Weft's plan"},
        {"STARPU_NCPU", NULL, "set the devices (runtime.devices)"},
        {"STARPU_NCPUS", NULL, "set the devices (runtime.devices)"},
        {"STARPU_RESERVE_NCPU", "0", "set the devices (runtime.devices)"},
        {"STARPU_NCUDA", "0",
         "set the GPUs (runtime.devices=gpu, runtime.gpus)"},
        {"STARPU_NWORKER_PER_CUDA", "1", "a GPU is one device"},
        {"STARPU_WORKERS_CUDAID", NULL,
         "set CUDA_VISIBLE_DEVICES, which says what GPUs there are"},
        {"STARPU_CUDA_THREAD_PER_DEV", "1", "each GPU has a thread"},
        {"STARPU_CUDA_THREAD_PER_WORKER", "0", "each GPU has a thread"},
        {"STARPU_LIMIT_CUDA_MEM", NULL,
         "set the GPUs' memory (runtime.gpu_memory_gib)"},
        {"STARPU_DISABLE_PINNING", "0", "GPUs read the host's memory"},
        {"STARPU_NOPENCL", "0", "devices are CPUs or CUDA's GPUs"},
        {"STARPU_LIMIT_CPU_MEM", NULL,
         "set the memory (runtime.memory_limit_gib)"},
    };
    for (size_t i = 0; i < WEFT_COUNT(ours); i++) {
        const char *value = getenv(ours[i].name);
        if (value && (!ours[i].same || strcmp(value, ours[i].same) != 0))
            return weft_err_set(err, WEFT_EINVAL,
                                "the environment has %s=%s, which Weft does "
                                "not follow: unset it; %s",
                                ours[i].name, value, ours[i].instead);
    }
    return 0;
}

bool weft_environment_blocks(void)
{
    const char *value = getenv("CUDA_LAUNCH_BLOCKING");
    return value && *value && strcmp(value, "0") != 0;
}

static bool folder_is_good(const char *path)
{
    struct weft_err err;
    return weft_dir_create(path, &err) == 0 && access(path, W_OK | X_OK) == 0;
}

void weft_environment_set_home(void)
{
    char path[4096];
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    if (getenv("STARPU_HOME"))
        return;
    path[0] = 0;
    if (cache && cache[0] == '/')
        snprintf(path, sizeof path, "%s/weft/starpu", cache);
    else if (home && home[0] == '/' && weft_dir_exists(home))
        snprintf(path, sizeof path, "%s/.cache/weft/starpu", home);
    if (!path[0] || !folder_is_good(path)) {
        const char *tmp = getenv("TMPDIR");
        snprintf(path, sizeof path, "%s/weft-starpu-%ld",
                 tmp && tmp[0] == '/' && weft_dir_exists(tmp) ? tmp : "/tmp",
                 (long) getuid());
        if (!folder_is_good(path))
            return;
    }
    setenv("STARPU_HOME", path, 1);
}

int weft_environment_lock_home(int n_gpus)
{
    char host[65] = "", name[80], path[4200];
    const char *home = getenv("STARPU_HOME");
    if (gethostname(host, sizeof host - 1) != 0)
        strcpy(host, "localhost");
    snprintf(name, sizeof name, "%s-%d-gpus", host, n_gpus);
    setenv("STARPU_HOSTNAME", name, 0);
    snprintf(path, sizeof path, "%s/.starpu/sampling/bus/%s.config",
             home ? home : "", getenv("STARPU_HOSTNAME"));
    int how = weft_file_exists(path) ? LOCK_SH : LOCK_EX;
    snprintf(path, sizeof path, "%s/weft-%s.lock", home ? home : "",
             getenv("STARPU_HOSTNAME"));
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    while (fd >= 0 && flock(fd, how) != 0 && errno == EINTR)
        continue;
    return fd;
}
