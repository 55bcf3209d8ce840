/* SPDX-License-Identifier: Apache-2.0 */
/* Devices that stand for an instance of four Hopper GPUs as
 * examples/clusters/rlhfuse_hopper.yaml has them: one is as fast as the four,
 * and a layer takes 10 us more, as its sums do. And the model that
 * generates. */
#ifndef WEFT_BENCH_HOPPERS_H
#define WEFT_BENCH_HOPPERS_H

#include "bench/made.h"

static const struct made_size hoppers_actor = {"33B", 6656,  60,   52,
                                               52,    17920, 32000};

static const char hoppers_yaml[] =
    "name: instances\n"
    "kinds:\n"
    "  - name: four_hoppers\n"
    "    nodes: 1\n"
    "    devices: 64\n"
    "    memory_gib: 320\n"
    "    tflops: {f32: 268, bf16: 3956}\n"
    "    memory_gbs: 13400\n"
    "    by_rows: [[1, 0.005], [16, 0.08], [64, 0.25], [256, 0.45], "
    "[1024, 0.6], [4096, 0.65]]\n"
    "    by_bytes: [[262144, 0.02], [4194304, 0.25], [67108864, 0.7], "
    "[1073741824, 0.85]]\n"
    "    task_us: 10\n"
    "    layer_us: 50\n"
    "    inside: {gbs: 450, us: 3}\n"
    "    network: {rails: 8, gbs: 25, us: 5}\n";

#endif
