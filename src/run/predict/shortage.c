/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/shortage.h"

#include <math.h>
#include <stdio.h>

#include "base/string.h"
#include "run/predict/enough.h"

struct weft_needed weft_shortage_needed(const struct weft_config *config,
                                        const struct weft_plan_needs *needs,
                                        const struct weft_plan *plan,
                                        bool by_gangs)
{
    bool own = config->runtime.place == WEFT_PLACE_DEVICE
            || needs->n_gpus > 0;
    int32_t sharing = own ? 1 : plan->n_devices;
    struct weft_needed out = {.all = -1, .by_gangs = by_gangs};
    for (int32_t d = 0; d < plan->n_nodes * plan->n_devices; d++) {
        const int64_t *m = plan->memory[d];
        int64_t tasks = own ? m[WEFT_MEM_TASKS] : 0;
        double all = (double) (m[WEFT_MEM_ALL] - tasks) / sharing;
        if (all <= out.all)
            continue;
        out.all = all;
        out.device = d;
        out.most = -1;
        for (int c = 0; c < WEFT_N_MEM_CLASSES; c++) {
            bool there = weft_mem_class_at_place(c)
                      && !(own && c == WEFT_MEM_TASKS)
                      && !(needs->n_gpus > 0 && weft_mem_class_on_host(c));
            double bytes = (double) m[c] / sharing;
            if (there && bytes > out.most) {
                out.most = bytes;
                out.mem = (enum weft_mem_class) c;
            }
        }
    }
    return out;
}

void weft_shortage_least(const struct weft_needed *m,
                         const struct weft_plan_needs *needs, char *text,
                         size_t size)
{
    snprintf(text, size,
             "can take %.4g GiB of device %d%s, which has %.4g; most of it, "
             "%.3g GiB, is %s",
             m->all / 0x1p30, (int) m->device,
             m->by_gangs ? ", counted by instruction of a tp group" : "",
             (double) needs->device_bytes / 0x1p30, m->most / 0x1p30,
             weft_mem_class_name(m->mem));
}

double weft_shortage_state_bytes(const struct weft_config *config,
                                 const struct weft_shape *shape)
{
    double weight = (double) weft_dtype_bytes(shape->dtype), f32 = 4;
    double state = 2 * f32 + (weight < f32 ? f32 : 0);
    return (double) weft_shape_n_params(shape) * weight
         + (double) weft_shape_n_trained(shape)
               * (f32 + (config->train.offload_optimizer ? 0 : state));
}

/* As many devices as it fills, spread over all; 0: their memory is unknown. */
static int64_t least_devices(const struct weft_config *config,
                             const struct weft_plan_needs *needs)
{
    double bytes = 0;
    for (int32_t r = 0; r < needs->flow->n_roles; r++)
        if (needs->flow->role[r].trained)
            bytes += weft_shortage_state_bytes(config, needs->shape[r]);
    return needs->device_bytes > 0
             ? (int64_t) ceil(bytes / (double) needs->device_bytes)
             : 0;
}

/* How many nodes are enough, where that is not what there is. */
static void add_enough(const struct weft_config *config,
                       const struct weft_plan_needs *needs,
                       const struct weft_simulate_options *simulate,
                       enum weft_searched searched, struct weft_string *out)
{
    const struct weft_cluster *cluster = simulate->cluster;
    const char *kind = cluster->n_kinds == 1
                         ? "of this kind"
                         : "of these kinds, in their proportion";
    struct weft_enough e;
    int32_t has = cluster->n_kinds == 1 ? needs->n_nodes : cluster->n_nodes;
    if (weft_run_enough(config, needs, simulate, has, &e, NULL) != 0)
        return;
    if (e.n_nodes == 0)
        weft_string_addf(out,
                         "; no number of nodes %s would do: %s of %s alone "
                         "take %.3g GiB of a device",
                         kind, weft_mem_class_name(e.mem),
                         needs->flow->call[e.call].name, e.bytes / 0x1p30);
    else if (e.n_nodes > has || searched == WEFT_SEARCHED)
        weft_string_addf(
            out, "; by prices of calls it needs at least %d nodes %s",
            (int) weft_max32(e.n_nodes, has + weft_enough_step(cluster)),
            kind);
    else
        weft_string_addf(out,
                         "; another plan fits here, by prices of its calls: "
                         "%s looks for one",
                         searched == WEFT_SEARCH_STOPPED
                             ? "'weft plan --search' with more time"
                             : "'weft plan --search'");
}

void weft_shortage_text(const struct weft_config *config,
                        const struct weft_plan_needs *needs,
                        const struct weft_simulate_options *simulate,
                        enum weft_searched searched, char *text, size_t size)
{
    struct weft_string out = {0};
    weft_string_addf(&out,
                     "weights, gradients and optimizer state of what is "
                     "trained fill %lld such devices",
                     (long long) least_devices(config, needs));
    add_enough(config, needs, simulate, searched, &out);
    snprintf(text, size, "%s", out.data ? out.data : "");
    weft_string_release(&out);
}
