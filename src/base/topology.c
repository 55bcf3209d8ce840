/* SPDX-License-Identifier: Apache-2.0 */
#include "base/topology.h"

#include <config.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#ifdef WEFT_HAVE_HWLOC
#include <hwloc.h>
#endif

#include "base/compiler.h"
#include "base/err.h"

/* ---- Control groups ----------------------------------------------------- */

/* Reads a small file; false when there is none. */
static bool read_text(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    size_t n = fread(text, 1, size - 1, f);
    fclose(f);
    text[n] = 0;
    return n > 0;
}

/* Reads a byte count from `dir`/`name`; -1 for "max", an absent file, or the
 * huge number that means "no limit" in version 1. */
static int64_t read_bytes(const char *dir, const char *name)
{
    char path[8192], text[64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (!read_text(path, text, sizeof text))
        return -1;
    char *end;
    long long v = strtoll(text, &end, 10);
    if (end == text || v < 0 || v >= (1LL << 60))
        return -1;
    return v;
}

static void take_memory(struct weft_cgroup *out, int64_t limit, int64_t used)
{
    if (limit < 0)
        return;
    int64_t left = weft_max64(0, limit - weft_max64(0, used));
    if (out->memory_bytes < 0 || limit < out->memory_bytes)
        out->memory_bytes = limit;
    if (out->free_bytes < 0 || left < out->free_bytes)
        out->free_bytes = left;
}

static void take_cpus(struct weft_cgroup *out, double quota, double period)
{
    if (quota <= 0 || period <= 0)
        return;
    if (out->cpus < 0 || quota / period < out->cpus)
        out->cpus = quota / period;
}

static void read_folder(const char *dir, struct weft_cgroup *out)
{
    char path[8192], text[128];
    double quota, period;
    take_memory(out, read_bytes(dir, "memory.max"),
                read_bytes(dir, "memory.current"));
    take_memory(out, read_bytes(dir, "memory.limit_in_bytes"),
                read_bytes(dir, "memory.usage_in_bytes"));
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    if (read_text(path, text, sizeof text)
        && sscanf(text, "%lf %lf", &quota, &period) == 2)
        take_cpus(out, quota, period);
    take_cpus(out, (double) read_bytes(dir, "cpu.cfs_quota_us"),
              (double) read_bytes(dir, "cpu.cfs_period_us"));
}

/* Reads the limits of a group and of its parents, whose limits hold for it
 * too. Inside a container the path may be the host's and not exist here, but
 * the mount's root always exists. */
static void read_group(const char *mount, const char *group,
                       struct weft_cgroup *out)
{
    char dir[4096];
    int n = snprintf(dir, sizeof dir, "%s%s", mount, group);
    if (n < 0 || (size_t) n >= sizeof dir)
        n = snprintf(dir, sizeof dir, "%s", mount);
    for (;;) {
        read_folder(dir, out);
        char *slash = strrchr(dir, '/');
        if (strlen(dir) <= strlen(mount) || !slash)
            break;
        *slash = 0;
    }
}

void weft_cgroup_read(const char *root, struct weft_cgroup *out)
{
    *out = (struct weft_cgroup){-1, -1, -1};
    char path[4096], line[2048], mount[4096];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "r");
    if (!f)
        return;
    while (fgets(line, sizeof line, f)) {
        /* number:controllers:/path; no controllers in version 2 */
        line[strcspn(line, "\n")] = 0;
        char *names = strchr(line, ':');
        char *group = names ? strchr(names + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = 0;
        names++;
        if (strcmp(group, "/") == 0)
            *group = 0; /* the mount itself */
        bool v2 = *names == 0;
        if (!v2 && !strstr(names, "memory") && !strstr(names, "cpu"))
            continue;
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s%s", root,
                 v2 ? "" : "/", names);
        read_group(mount, group, out);
    }
    fclose(f);
}

/* ---- The machine -------------------------------------------------------- */

/* Reads the value of a line "key : value" of /proc/cpuinfo or
 * /proc/meminfo. */
static bool read_proc(const char *file, const char *key, char *out,
                      size_t size)
{
    char line[512];
    FILE *f = fopen(file, "r");
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        colon[strcspn(colon, "\n")] = 0;
        snprintf(out, size, "%s", colon);
        found = true;
    }
    if (f)
        fclose(f);
    return found;
}

static void read_system(struct weft_topology *t)
{
    char text[128];
    if (!read_proc("/proc/cpuinfo", "model name", t->cpu_name,
                   sizeof t->cpu_name))
        snprintf(t->cpu_name, sizeof t->cpu_name, "unknown");
    t->memory_bytes = (int64_t) sysconf(_SC_PHYS_PAGES)
                    * (int64_t) sysconf(_SC_PAGESIZE);
    t->free_bytes = t->memory_bytes;
    if (read_proc("/proc/meminfo", "MemAvailable", text, sizeof text))
        t->free_bytes = (int64_t) strtoll(text, NULL, 10) * 1024;

    cpu_set_t mask;
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    if (sched_getaffinity(0, sizeof mask, &mask) == 0)
        n = CPU_COUNT(&mask);
    t->n_threads = n > 0 ? (int) n : 1;
    t->n_cores = t->n_threads;
    n = sysconf(_SC_NPROCESSORS_ONLN);
    t->n_all_cores = n > 0 ? (int) n : t->n_cores;
    t->n_packages = 1;
    t->n_numa = 1;
    t->numa_bytes[0] = t->memory_bytes;
}

/* Applies this process's own limits (ulimit -v and -d). Threads, StarPU and
 * malloc() take some of that memory for themselves, and StarPU aborts when it
 * gets none. */
static void read_limits(struct weft_topology *t)
{
    enum { RESERVE_BYTES = 96 << 20 };
    static const struct {
        int resource;
        const char *used; /* key in /proc/self/status, kB */
    } limit[] = {{RLIMIT_AS, "VmSize"}, {RLIMIT_DATA, "VmData"}};
    char text[128];
    for (size_t i = 0; i < WEFT_COUNT(limit); i++) {
        struct rlimit r;
        if (getrlimit(limit[i].resource, &r) != 0
            || r.rlim_cur >= (rlim_t) INT64_MAX
            || !read_proc("/proc/self/status", limit[i].used, text,
                          sizeof text))
            continue;
        int64_t all = (int64_t) r.rlim_cur;
        int64_t left = all - (int64_t) strtoll(text, NULL, 10) * 1024
                     - RESERVE_BYTES;
        t->memory_bytes = weft_min64(t->memory_bytes, all);
        if (left >= t->free_bytes)
            continue;
        t->free_bytes = weft_max64(left, 0);
        t->of_process = true;
    }
}

#ifdef WEFT_HAVE_HWLOC
static int64_t cache_bytes(hwloc_topology_t h, hwloc_obj_type_t type)
{
    hwloc_obj_t o = hwloc_get_obj_by_type(h, type, 0);
    return o ? (int64_t) o->attr->cache.size : 0;
}

static int read_hwloc(struct weft_topology *t, struct weft_err *err)
{
    hwloc_topology_t h;
    if (hwloc_topology_init(&h) != 0)
        return weft_err_set(err, WEFT_EINTERNAL, "hwloc does not start");
    int rc = 0;
    if (hwloc_topology_load(h) != 0) {
        rc = weft_err_set(err, WEFT_EINTERNAL,
                          "hwloc cannot read this machine's topology");
        goto out;
    }
    hwloc_cpuset_t mask = hwloc_bitmap_alloc();
    if (!mask) {
        rc = weft_err_nomem(err, "an affinity mask", sizeof(cpu_set_t));
        goto out;
    }
    if (hwloc_get_cpubind(h, mask, HWLOC_CPUBIND_PROCESS) == 0) {
        int cores = hwloc_get_nbobjs_inside_cpuset_by_type(h, mask,
                                                           HWLOC_OBJ_CORE);
        int some = 0;
        /* A core counts even if this process may use only one of its
         * threads. */
        hwloc_obj_t core = NULL;
        while ((core = hwloc_get_next_obj_covering_cpuset_by_type(
                    h, mask, HWLOC_OBJ_CORE, core))
               != NULL)
            some++;
        t->n_cores = some > cores ? some : cores;
        t->n_threads = hwloc_bitmap_weight(mask);
    }
    hwloc_bitmap_free(mask);
    if (t->n_cores < 1)
        t->n_cores = t->n_threads;
    int n = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_CORE);
    t->n_all_cores = n > 0 ? n : t->n_threads;
    n = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_PACKAGE);
    t->n_packages = n > 0 ? n : 1;
    t->l1d_bytes = cache_bytes(h, HWLOC_OBJ_L1CACHE);
    t->l2_bytes = cache_bytes(h, HWLOC_OBJ_L2CACHE);
    t->l3_bytes = cache_bytes(h, HWLOC_OBJ_L3CACHE);
    n = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_L3CACHE);
    t->n_l3 = n > 0 ? n : 0;
    n = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_NUMANODE);
    t->n_numa = n < 1 ? 1 : n;
    for (int i = 0; i < n && i < WEFT_TOPOLOGY_NUMA_MAX; i++)
        t->numa_bytes[i] = (int64_t) hwloc_get_obj_by_type(
                               h, HWLOC_OBJ_NUMANODE, (unsigned) i)
                               ->attr->numanode.local_memory;
out:
    hwloc_topology_destroy(h);
    return rc;
}
#else
static int read_hwloc(struct weft_topology *t, struct weft_err *err)
{
    (void) err;
    long l1 = sysconf(_SC_LEVEL1_DCACHE_SIZE);
    long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    t->l1d_bytes = l1 > 0 ? l1 : 0;
    t->l2_bytes = l2 > 0 ? l2 : 0;
    t->l3_bytes = l3 > 0 ? l3 : 0;
    t->n_l3 = l3 > 0;
    return 0;
}
#endif

int weft_topology_cores(const struct weft_topology *t)
{
    return t->n_cores > 0 && t->n_cores < t->n_usable ? t->n_cores
                                                      : t->n_usable;
}

int weft_topology_read(struct weft_topology *out, struct weft_err *err)
{
    struct weft_topology t = {0};
    struct weft_cgroup group;

    read_system(&t);
    int rc = read_hwloc(&t, err);
    if (rc != 0)
        return rc;
    weft_cgroup_read("", &group);
    if (group.memory_bytes >= 0) {
        t.memory_bytes = weft_min64(t.memory_bytes, group.memory_bytes);
        t.free_bytes = weft_min64(t.free_bytes, group.free_bytes);
    }
    read_limits(&t);
    t.n_usable = t.n_threads;
    if (group.cpus > 0 && ceil(group.cpus) < t.n_usable)
        t.n_usable = (int) ceil(group.cpus);
    if (t.n_usable < 1)
        t.n_usable = 1;
    *out = t;
    return 0;
}
