/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine: cores, caches, NUMA nodes, memory, and how much of them this
 * process may use (affinity mask, control group). It is read once at the
 * start, by hwloc where that is compiled in, else from the system's own
 * counts.
 */
#ifndef WEFT_BASE_TOPOLOGY_H
#define WEFT_BASE_TOPOLOGY_H

#include <stdint.h>

#include "weft.h"

enum { WEFT_TOPOLOGY_NUMA_MAX = 64 };

/* Counts and bytes; 0 where the system does not give them. */
struct weft_topology {
    char cpu_name[128];
    int n_packages;
    int n_cores;       /* of this process's affinity mask */
    int n_all_cores;   /* of the machine, or of this control group's part */
    int n_threads;     /* hardware threads of that mask */
    int n_usable;      /* threads, fewer with a CPU quota; >= 1 */
    int64_t l1d_bytes; /* one cache of each level, of the first core */
    int64_t l2_bytes;
    int64_t l3_bytes;
    int n_l3;   /* how many L3 caches there are */
    int n_numa; /* >= 1 */
    int64_t numa_bytes[WEFT_TOPOLOGY_NUMA_MAX];
    int64_t memory_bytes; /* physical, or the control group's limit */
    int64_t free_bytes;   /* what could be allocated now without swapping */
    /* whether ulimit -v or -d leaves less than the machine */
    bool of_process;
};

/* What a control group (v1 or v2, and its parents) allows. */
struct weft_cgroup {
    int64_t memory_bytes; /* -1: no limit */
    int64_t free_bytes;   /* what is left of that limit; -1: no limit */
    double cpus;          /* CPU time per wall time; -1: no limit */
};

/* Fills `out`. Fails with WEFT_EINTERNAL only when hwloc cannot start. */
int weft_topology_read(struct weft_topology *out, struct weft_err *err);

/* How many devices of one core each this process can keep busy. */
int weft_topology_cores(const struct weft_topology *topology);

/* The limits of this process's control group under the system root `root`
 * ("" is the real one; a folder with proc/ and sys/ for tests). What cannot
 * be read counts as no limit. */
void weft_cgroup_read(const char *root, struct weft_cgroup *out);

#endif
