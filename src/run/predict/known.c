/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/known.h"

#include "base/alloc.h"
#include "base/topology.h"
#include "job/profile.h"
#include "kern/device_cuda.h"
#include "plan/card_memory.h"
#include "rt/graph.h"

enum { ITERATIONS = 3 };

struct weft_known {
    struct weft_costs_file costs;
    struct weft_cluster cluster;
    struct weft_lengths lengths;
    bool has_costs, has_cluster;
    double free_bytes; /* of this machine */
    double gpu_bytes;  /* of a GPU, of a run that has them */
    int32_t n_cores;   /* of this machine */
};

/* Of the machine's first GPU, as a run begins. */
static double gpu_budget(const struct weft_k_device *gpu, int32_t n_sharing)
{
    int64_t total = gpu->memory_bytes, left = weft_k_device_free_cuda(0);
    return (double) weft_card_budget((size_t) (left > 0 ? left : total),
                                     (size_t) total, (size_t) n_sharing);
}

static int read_files(const struct weft_config *c, struct weft_known *k,
                      struct weft_err *err)
{
    struct weft_topology machine;
    int rc = weft_lengths_read("max", &k->lengths, err);
    k->has_costs = c->costs != NULL;
    k->has_cluster = c->cluster != NULL;
    if (!rc && k->has_costs)
        rc = weft_profile_read(c->costs, c, &k->costs, err);
    if (!rc && k->has_cluster)
        rc = weft_cluster_read(c->cluster, &k->cluster, err);
    if (!rc)
        rc = weft_topology_read(&machine, err);
    if (!rc)
        k->free_bytes = (double) machine.free_bytes;
    if (!rc)
        k->n_cores = weft_topology_cores(&machine);
    k->gpu_bytes = c->runtime.gpu_memory_gib * 0x1p30;
    struct weft_k_device gpu;
    if (k->gpu_bytes == 0 && c->runtime.devices == WEFT_ON_GPUS
        && weft_k_devices_cuda(&gpu, 1, NULL) > 0)
        k->gpu_bytes = gpu_budget(&gpu, c->runtime.ranks_per_gpu);
    return rc;
}

int weft_known_open(const struct weft_config *config, struct weft_known **out,
                    struct weft_err *err)
{
    *out = NULL;
    if (!config->costs && !config->cluster)
        return 0;
    struct weft_known *k = weft_alloc(1, sizeof *k);
    if (!k)
        return weft_err_nomem(err, "costs", sizeof *k);
    int rc = read_files(config, k, err);
    if (rc)
        weft_known_close(k);
    else
        *out = k;
    return rc;
}

void weft_known_close(struct weft_known *k)
{
    if (!k)
        return;
    weft_costs_file_release(&k->costs);
    weft_lengths_release(&k->lengths);
    weft_free(k);
}

struct weft_simulate_options weft_known_options(struct weft_known *k,
                                                const struct weft_g_job *job)
{
    int32_t n = job->n_ranks * job->n_devices;
    int32_t n_gpus = job->n_gpus, rank;
    int32_t here = weft_world_here(&rank);
    here = here > 0 ? here : job->n_ranks; /* none was started */
    if (!k->has_cluster)
        weft_costs_file_cluster(
            &k->costs, job->n_ranks, n_gpus ? n_gpus : job->n_devices,
            n_gpus ? k->gpu_bytes : k->free_bytes / n, &k->cluster);
    return (struct weft_simulate_options){
        .cluster = &k->cluster,
        .costs = k->has_costs ? &k->costs : NULL,
        .lengths = &k->lengths,
        .iterations = ITERATIONS,
        .gangs = n > WEFT_FEW_DEVICES,
        .crowded = !k->has_cluster && n_gpus == 0
                && here * job->n_devices >= k->n_cores};
}
