/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/shortage.h"

#include <math.h>
#include <stdio.h>

/* Bytes of a trained role in any layout: weights, a sum of gradients and two
 * moments; rounded weights have masters. */
static double trained_bytes(const struct weft_config *config,
                            const struct weft_shape *shape)
{
    double weight = (double) weft_dtype_bytes(shape->dtype), f32 = 4;
    double state = 2 * f32 + (weight < f32 ? f32 : 0);
    return (double) weft_shape_n_params(shape)
         * (weight + f32 + (config->train.offload_optimizer ? 0 : state));
}

/* As many devices as it fills, spread over all; 0: their memory is unknown. */
static int64_t least_devices(const struct weft_config *config,
                             const struct weft_plan_needs *needs)
{
    double bytes = 0;
    for (int32_t r = 0; r < needs->flow->n_roles; r++)
        if (needs->flow->role[r].trained)
            bytes += trained_bytes(config, needs->shape[r]);
    return needs->device_bytes > 0
             ? (int64_t) ceil(bytes / (double) needs->device_bytes)
             : 0;
}

void weft_shortage_text(const struct weft_config *config,
                        const struct weft_plan_needs *needs, char *text,
                        size_t size)
{
    int64_t each = needs->n_gpus > 0 ? needs->n_gpus : needs->n_devices;
    int64_t has = needs->n_nodes * each;
    int64_t least = least_devices(config, needs);
    int64_t first = weft_max64(2 * has, weft_round_up(least, each));
    int n = snprintf(text, size,
                     "weights, gradients and optimizer state of what is "
                     "trained fill %lld such devices",
                     (long long) least);
    if (n > 0 && (size_t) n < size && first <= WEFT_MAX_NODES
        && !needs->cluster) /* of several kinds */
        snprintf(text + n, size - (size_t) n,
                 "; 'weft plan --scale %lld..%lld' says on how many of them "
                 "a placement fits",
                 (long long) first,
                 (long long) weft_min64(8 * first, WEFT_MAX_NODES));
}
