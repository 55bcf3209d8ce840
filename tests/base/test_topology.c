/* SPDX-License-Identifier: Apache-2.0 */
/* The machine as read, against the system's own files and a made-up one. */
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/topology.h"
#include "tests/harness.h"

static char root[] = "/tmp/weft-topology-XXXXXX";

/* Writes a file under the made-up root, folders and all. */
static void put(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s%s", root, name);
    for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        (void) mkdir(path, 0700);
        *p = '/';
    }
    FILE *f = fopen(path, "w");
    REQUIRE(f != NULL);
    fputs(text, f);
    fclose(f);
}

static void fresh_root(void)
{
    strcpy(root, "/tmp/weft-topology-XXXXXX");
    REQUIRE(mkdtemp(root) != NULL);
}

static void drop_root(void)
{
    struct weft_err err;
    REQUIRE_OK(weft_dir_remove(root, &err), err);
}

static void test_topology_read_this_machine(void)
{
    struct weft_topology t;
    struct weft_err err = {0};
    REQUIRE_OK(weft_topology_read(&t, &err), err);
    cpu_set_t mask;
    REQUIRE(sched_getaffinity(0, sizeof mask, &mask) == 0);
    CHECK_INT(t.n_threads, CPU_COUNT(&mask));
    CHECK(t.n_cores >= 1 && t.n_cores <= t.n_threads);
    CHECK(t.n_all_cores >= t.n_cores);
    CHECK(t.n_usable >= 1 && t.n_usable <= t.n_threads);
    CHECK(t.n_packages >= 1);
    CHECK(t.n_numa >= 1);
    CHECK(t.cpu_name[0] != 0);
    int64_t physical = (int64_t) sysconf(_SC_PHYS_PAGES)
                     * (int64_t) sysconf(_SC_PAGESIZE);
    CHECK(t.memory_bytes > 0 && t.memory_bytes <= physical);
    CHECK(t.free_bytes > 0 && t.free_bytes <= t.memory_bytes);
}

static void test_topology_read_affinity(void)
{
    cpu_set_t before, one;
    REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &before))
            CPU_SET(i, &one);
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    struct weft_topology t;
    struct weft_err err = {0};
    int rc = weft_topology_read(&t, &err);
    CHECK_INT(sched_setaffinity(0, sizeof before, &before), 0);
    CHECK_INT(rc, 0);
    CHECK_INT(t.n_threads, 1);
    CHECK_INT(t.n_cores, 1);
    CHECK_INT(t.n_usable, 1);
}

static void test_cgroup_read_v2_takes_smallest_of_parents(void)
{
    struct weft_cgroup g;
    fresh_root();
    put("/proc/self/cgroup", "0::/slice/job\n");
    put("/sys/fs/cgroup/slice/memory.max", "1000000\n");
    put("/sys/fs/cgroup/slice/memory.current", "900000\n");
    put("/sys/fs/cgroup/slice/cpu.max", "150000 100000\n");
    put("/sys/fs/cgroup/slice/job/memory.max", "2000000\n");
    put("/sys/fs/cgroup/slice/job/memory.current", "50000\n");
    put("/sys/fs/cgroup/slice/job/cpu.max", "max 100000\n");
    weft_cgroup_read(root, &g);
    CHECK_INT(g.memory_bytes, 1000000);
    CHECK_INT(g.free_bytes, 100000);
    CHECK(g.cpus == 1.5);
    drop_root();
}

static void test_cgroup_read_v1(void)
{
    struct weft_cgroup g;
    fresh_root();
    put("/proc/self/cgroup", "5:memory:/\n4:cpu,cpuacct:/\n1:name=x:/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "4096000\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "5000000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    weft_cgroup_read(root, &g);
    CHECK_INT(g.memory_bytes, 4096000);
    CHECK_INT(g.free_bytes, 0);
    CHECK(g.cpus == 0.5);
    drop_root();
}

static void test_cgroup_read_no_limits(void)
{
    struct weft_cgroup g;
    fresh_root();
    weft_cgroup_read(root, &g); /* nothing there at all */
    CHECK_INT(g.memory_bytes, -1);
    put("/proc/self/cgroup", "garbage\n5:memory:/\n4:cpu:/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "9223372036854771712\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    weft_cgroup_read(root, &g);
    CHECK_INT(g.memory_bytes, -1);
    CHECK_INT(g.free_bytes, -1);
    CHECK(g.cpus == -1);
    drop_root();
}

WEFT_TESTS("base/topology",
           {"topology_read_this_machine", test_topology_read_this_machine},
           {"topology_read_affinity", test_topology_read_affinity},
           {"cgroup_read_v2_takes_smallest_of_parents",
            test_cgroup_read_v2_takes_smallest_of_parents},
           {"cgroup_read_v1", test_cgroup_read_v1},
           {"cgroup_read_no_limits", test_cgroup_read_no_limits})
