/* SPDX-License-Identifier: Apache-2.0 */
/* Start and stop: what is accepted, what is refused, and how it is said. */
#include "rt/graph.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "harness.h"
#include "rt/codelet.h"

static int start(const struct weft_rt_options *options, struct weft_rt **rt,
                 struct weft_err *err)
{
    err->text[0] = 0;
    return weft_rt_start(options, rt, err);
}

static void test_counts(void)
{
    static const int good[] = {1, 2, 3, 8}, bad[] = {-1, 65, 1000000};
    struct weft_err err;
    struct weft_rt *rt;
    for (size_t i = 0; i < WEFT_COUNT(good); i++) {
        if (good[i] > STARPU_MAXCPUS)
            continue;
        struct weft_rt_options options = {.n_devices = good[i], .nap = -1};
        REQUIRE_OK(start(&options, &rt, &err), err);
        CHECK_INT(weft_rt_n_devices(rt), good[i]);
        weft_rt_stop(rt);
    }
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        char part[64];
        struct weft_rt_options options = {.n_devices = bad[i]};
        snprintf(part, sizeof part, "cannot start %d devices: 1 to ", bad[i]);
        CHECK_FAILS(start(&options, &rt, &err), WEFT_EINVAL, err, part);
    }
    struct weft_rt_options options = {.n_devices = 0};
    REQUIRE_OK(start(&options, &rt, &err), err);
    CHECK(weft_rt_n_devices(rt) >= 1);
    weft_rt_stop(rt);
    weft_rt_stop(NULL);
}

static void test_one_per_process(void)
{
    struct weft_err err;
    struct weft_rt *rt, *second;
    struct weft_rt_options options = {.n_devices = 1, .nap = 1};
    REQUIRE_OK(start(&options, &rt, &err), err);
    CHECK_FAILS(start(&options, &second, &err), WEFT_ESTATE, err,
                "running in this process already");
    weft_rt_stop(rt);
    REQUIRE_OK(start(&options, &rt, &err), err);
    weft_rt_stop(rt);
}

static void test_several_processes(void)
{
    struct weft_err err;
    struct weft_rt *rt;
    struct weft_rt_options options = {.n_devices = 1};
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    CHECK_FAILS(start(&options, &rt, &err), WEFT_EUNSUPPORTED, err,
                "one of 2 processes (OMPI_COMM_WORLD_SIZE); this command "
                "runs in one process");
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    REQUIRE_OK(start(&options, &rt, &err), err);
    weft_rt_stop(rt);
    unsetenv("OMPI_COMM_WORLD_SIZE");
}

/* A variable of StarPU's is followed or refused, not passed over. */
static void test_environment(void)
{
    static const struct {
        const char *name, *value, *instead;
    } bad[] = {{"STARPU_SCHED", "dmda", "order of Weft's plan"},
               {"STARPU_SCHED_LIB", "x.so", "order of Weft's plan"},
               {"STARPU_NCPU", "1", "(runtime.devices)"},
               {"STARPU_NCPUS", "1", "(runtime.devices)"},
               {"STARPU_RESERVE_NCPU", "1", "(runtime.devices)"},
               {"STARPU_NCUDA", "1", "runtime.gpus"},
               {"STARPU_NWORKER_PER_CUDA", "2", "one device"},
               {"STARPU_WORKERS_CUDAID", "1", "CUDA_VISIBLE_DEVICES"},
               {"STARPU_CUDA_THREAD_PER_DEV", "0", "has a thread"},
               {"STARPU_CUDA_THREAD_PER_WORKER", "1", "has a thread"},
               {"STARPU_LIMIT_CUDA_MEM", "100", "runtime.gpu_memory_gib"},
               {"STARPU_DISABLE_PINNING", "1", "the host's memory"},
               {"STARPU_NOPENCL", "1", "CUDA's GPUs"},
               {"STARPU_LIMIT_CPU_MEM", "100", "runtime.memory_limit_gib"}};
    struct weft_err err;
    struct weft_rt *rt;
    struct weft_rt_options options = {.n_devices = 2, .nap = 1};
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        char part[64];
        setenv(bad[i].name, bad[i].value, 1);
        snprintf(part, sizeof part, "the environment has %s=%s,", bad[i].name,
                 bad[i].value);
        CHECK_FAILS(start(&options, &rt, &err), WEFT_EINVAL, err, part);
        CHECK(strstr(err.text, bad[i].instead) != NULL);
        unsetenv(bad[i].name);
    }
    setenv("STARPU_NCUDA", "0", 1);
    setenv("STARPU_NOPENCL", "0", 1);
    setenv("STARPU_RESERVE_NCPU", "0", 1);
    REQUIRE_OK(start(&options, &rt, &err), err);
    weft_rt_stop(rt);
    unsetenv("STARPU_NCUDA");
    unsetenv("STARPU_NOPENCL");
    unsetenv("STARPU_RESERVE_NCPU");
}

/* GPUs that are not there are refused before anything runs. */
static void test_no_gpus(void)
{
    struct weft_err err;
    struct weft_rt *rt;
    struct weft_rt_options options = {.n_devices = 1, .nap = 1, .n_gpus = -1};
    CHECK_FAILS(start(&options, &rt, &err), WEFT_EINVAL, err,
                "cannot start -1 GPUs beside 1 other devices");
    options.n_gpus = 1 << 20;
    CHECK_FAILS(start(&options, &rt, &err), WEFT_EINVAL, err,
                "cannot start 1048576 GPUs");
    options.n_gpus = 63;
    CHECK_FAILS(start(&options, &rt, &err), WEFT_EUNSUPPORTED, err,
                "cannot use 63 GPUs");
    options.n_gpus = 0;
    REQUIRE_OK(start(&options, &rt, &err), err);
    weft_rt_stop(rt);
}

/* StarPU's files go to the user's cache, not into his home. */
static void test_starpu_home(void)
{
    char dir[] = "/tmp/weft-test-XXXXXX", path[64];
    struct weft_err err;
    struct weft_rt *rt;
    struct stat st;
    struct weft_rt_options options = {.n_devices = 1, .nap = 1};
    const char *set = getenv("STARPU_HOME");
    char *old = set ? strdup(set) : NULL;
    REQUIRE(mkdtemp(dir) != NULL);
    unsetenv("STARPU_HOME");
    setenv("XDG_CACHE_HOME", dir, 1);
    REQUIRE_OK(start(&options, &rt, &err), err);
    weft_rt_stop(rt);
    snprintf(path, sizeof path, "%s/weft/starpu", dir);
    CHECK_STR(getenv("STARPU_HOME"), path);
    CHECK(stat(path, &st) == 0 && S_ISDIR(st.st_mode));
    unsetenv("XDG_CACHE_HOME");
    /* A home that is not there is not made, as root could. */
    const char *home = getenv("HOME");
    char *old_home = home ? strdup(home) : NULL;
    snprintf(path, sizeof path, "%s/no-home", dir);
    setenv("HOME", path, 1);
    setenv("TMPDIR", dir, 1);
    unsetenv("STARPU_HOME");
    REQUIRE_OK(start(&options, &rt, &err), err);
    weft_rt_stop(rt);
    CHECK(stat(path, &st) != 0);
    CHECK(strncmp(getenv("STARPU_HOME"), dir, strlen(dir)) == 0);
    unsetenv("TMPDIR");
    unsetenv("HOME");
    if (old_home)
        setenv("HOME", old_home, 1);
    free(old_home);
    if (old)
        setenv("STARPU_HOME", old, 1);
    free(old);
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
}

WEFT_TESTS("rt/start", {"test_counts", test_counts},
           {"test_one_per_process", test_one_per_process},
           {"test_several_processes", test_several_processes},
           {"test_starpu_home", test_starpu_home},
           {"test_environment", test_environment},
           {"test_no_gpus", test_no_gpus})
