/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/planned.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/topology.h"
#include "job/gpus.h"
#include "plan/strategy.h"

/* Counts the CPU devices that the run has: by default one per core. */
static int count_cpus(const struct weft_config *config, int32_t *out,
                      struct weft_err *err)
{
    struct weft_topology topology;
    *out = config->runtime.devices == WEFT_ON_GPUS
             ? config->runtime.cpu_devices
             : config->runtime.devices;
    if (*out > 0)
        return 0;
    int rc = weft_topology_read(&topology, err);
    if (!rc)
        *out = weft_topology_cores(&topology);
    return rc;
}

/* Counts the devices of each node. */
static int count_devices(const struct weft_cli_planned *o,
                         const struct weft_config *config, int32_t *out,
                         int32_t *gpus_out, struct weft_err *err)
{
    int rc = 0;
    int32_t first;
    *out = o->devices;
    *gpus_out = o->gpus > 0 ? o->gpus : config->runtime.gpus;
    if (o->gpus > 0 && config->runtime.devices != WEFT_ON_GPUS)
        return weft_err_set(err, WEFT_EINVAL,
                            "--gpus is for runs on GPUs: add "
                            "runtime.devices=gpu");
    if (*gpus_out == 0)
        rc = weft_run_gpus(config, gpus_out, &first, err);
    if (!rc && *out == 0)
        rc = count_cpus(config, out, err);
    *out += *gpus_out;
    return rc;
}

static int read_needs(const struct weft_cli_planned *o,
                      const struct weft_config *config, int32_t n_nodes,
                      int32_t n_devices, int32_t n_gpus,
                      struct weft_run_needs *out, struct weft_err *err)
{
    int rc = weft_run_needs_read(config, n_nodes, n_devices, n_gpus, out,
                                 err);
    if (!rc && out->plan.device_bytes == 0)
        out->plan.device_bytes = (int64_t) o->device_bytes;
    if (!rc && o->cluster && o->cluster->n_kinds > 1)
        out->plan.cluster = o->cluster;
    return rc;
}

/* Whether the nodes of a cluster have room for the plan's: its GPUs, if the
 * plan has any, are the cluster's devices. */
static int check_cluster(const struct weft_cluster *cluster,
                         const struct weft_plan *plan, struct weft_err *err)
{
    int32_t devices = plan->n_gpus > 0 ? plan->n_gpus : plan->n_devices;
    int32_t n = weft_cluster_fits(cluster, devices);
    return n >= plan->n_nodes
             ? 0
             : weft_err_set(
                 err, WEFT_EINVAL,
                 "the plan is for %d nodes of %d devices, of which "
                 "cluster '%s' has %d",
                 (int) plan->n_nodes, (int) devices, cluster->name, (int) n);
}

/* Reads and checks the plan of `--check`; its cluster is used where none is
 * given. */
static int check(const struct weft_cli_planned *o,
                 const struct weft_config *config,
                 struct weft_run_needs *needs, struct weft_plan *out,
                 struct weft_err *err)
{
    struct weft_dataflow flow;
    int rc = weft_run_flow(config, &flow, err);
    if (!rc)
        rc = weft_plan_read(o->check, &flow, out, err);
    if (!rc)
        rc = weft_run_fuse(config, out, err);
    if (rc)
        return rc;
    int32_t gpus = o->gpus ? o->gpus : out->n_gpus;
    int32_t cpus = o->devices ? o->devices : out->n_devices - out->n_gpus;
    rc = read_needs(o, config, o->nodes ? o->nodes : out->n_nodes,
                    gpus + cpus, gpus, needs, err);
    if (rc)
        return rc;
    rc = weft_plan_check(out, &needs->plan, err);
    if (!rc && o->cluster)
        rc = check_cluster(o->cluster, out, err);
    if (rc)
        weft_err_prefix(err, "%s", o->check);
    return rc;
}

/* Length of "layout=" where the text begins so. */
static size_t layout_length(const char *from)
{
    static const char layout[] = "layout=";
    size_t n = sizeof layout - 1;
    return strncmp(from, layout, n) == 0 ? n : 0;
}

int weft_cli_lengths(const char *text, const struct weft_config *config,
                     struct weft_lengths *out, struct weft_err *err)
{
    int32_t most = config->rollout.max_new_tokens;
    int64_t n;
    int rc = weft_lengths_read(text ? text : "max", out, err);
    if (rc || !weft_config_generates(config))
        return rc;
    int64_t above = weft_lengths_above(out, most, &n);
    if (above > 0)
        weft_warn(
            "%s: %lld of %lld lengths exceed rollout.max_new_tokens, %d, "
            "and count as that",
            text, (long long) above, (long long) n, (int) most);
    return 0;
}

const char *weft_cli_costs(const char *costs, const char *asked,
                           const struct weft_config *config)
{
    return costs ? costs : asked ? NULL : config->costs;
}

const char *weft_cli_plan_misuse(const struct weft_cli_planned *o)
{
    if (o->from && layout_length(o->from) == 0 && !weft_strategy_is(o->from))
        return "'--from' must be layout=TEXT, like layout=dp2tp2pp1, "
               "ratio=ROLE:SHARE,... or a name that --from list prints";
    return NULL;
}

void weft_cli_use_cluster(struct weft_cli_planned *o,
                          const struct weft_cluster *cluster,
                          const struct weft_config *config)
{
    bool gpus = config->runtime.devices == WEFT_ON_GPUS;
    int32_t each = weft_cluster_common(cluster);
    o->device_bytes = weft_cluster_device_bytes(cluster);
    o->cluster = cluster;
    if (o->check)
        return;
    if (o->nodes == 0)
        o->nodes = weft_cluster_fits(cluster, each);
    if (!gpus && o->devices == 0)
        o->devices = each;
    if (gpus && o->gpus == 0)
        o->gpus = each;
}

static int make(const struct weft_cli_planned *o, struct weft_config *config,
                struct weft_run_needs *needs, struct weft_plan *out,
                struct weft_err *err)
{
    int32_t devices, gpus;
    /* the command makes a new plan; what layout says with plan: auto is for a
     * search */
    if (o->from || !weft_config_plans(config)) {
        weft_free(config->plan);
        config->plan = NULL;
    }
    if (o->from) {
        weft_free(config->layout);
        config->layout = weft_strdup(o->from + layout_length(o->from));
        if (!config->layout)
            return weft_err_nomem(err, "a layout", strlen(o->from));
    }
    int rc = count_devices(o, config, &devices, &gpus, err);
    if (!rc)
        rc = read_needs(o, config, o->nodes ? o->nodes : 1, devices, gpus,
                        needs, err);
    if (!rc)
        rc = weft_run_plan(config, &needs->plan, out, err);
    return rc;
}

int weft_cli_plan(const struct weft_cli_planned *o,
                  struct weft_config *config,
                  struct weft_run_needs *needs_out, struct weft_plan *out,
                  struct weft_err *err)
{
    return o->check ? check(o, config, needs_out, out, err)
                    : make(o, config, needs_out, out, err);
}
