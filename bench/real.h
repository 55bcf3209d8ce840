/* SPDX-License-Identifier: Apache-2.0 */
/* What benchmarks of ReaL's tables share: its models (table 1), the two numbers
 * of its cluster that bench/papers calibrates, and a folder to describe runs in.
 * A failure ends the program. */
#ifndef WEFT_BENCH_REAL_H
#define WEFT_BENCH_REAL_H

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "bench/made.h"
#include "plan/cluster.h"

enum { REAL_7B, REAL_13B, REAL_34B, REAL_70B, N_REAL_SIZES };
static const struct made_size real_size[N_REAL_SIZES] = {
    {"7b", 4096, 32, 32, 8, 14336, 128256},
    {"13b", 5120, 40, 40, 40, 13824, 128256},
    {"34b", 8192, 48, 64, 8, 22016, 128256},
    {"70b", 8192, 80, 64, 8, 28672, 128256}};

/* by_rows times the first, and seconds of a layer: `papers --calibrate`
 * finds them. */
static const double REAL_BY_ROWS = 0.751, REAL_LAYER_S = 182e-6;

/* ReaL's norms are PyTorch's operations one by one, in f32 (the class of its code
 * for Llama's): to f32, squares, mean, product with the root, to bf16, product
 * with the weights read and write 36 bytes of a number, two residual sums 6
 * each; and two norms a layer. */
static const double REAL_ROW_BYTES = 2 * (36 + 6);

static struct weft_cluster real_calibrated(const struct weft_cluster *cluster,
                                           double factor, double layer_s)
{
    struct weft_cluster c = *cluster;
    struct weft_size_table *by_rows = &c.kind[0].by_rows;
    for (int32_t i = 0; i < by_rows->n; i++)
        by_rows->value[i] = fmin(1, by_rows->value[i] * factor);
    c.kind[0].task_s = 0; /* layers have what its launches take */
    c.kind[0].layer_s = layer_s;
    c.kind[0].row_bytes = REAL_ROW_BYTES;
    return c;
}

/* Members of a tp group of P send each other P - 1 whole f32 sums here, where
 * the paper's systems send 2 (P - 1) / P bf16 ones: P times less. So a call's
 * links inside a node are taken as P times as fast. That members here also read
 * P f32 parts from memory is left in the prices: with memory ten times as fast
 * but for the norms, calls with tp 8 of 7B are 18 to 29 % below what is
 * published, and the median error of calls is 16 % in place of 13. */
static inline struct weft_cluster real_links(
    const struct weft_cluster *cluster, int tp)
{
    struct weft_cluster c = *cluster;
    c.kind[0].inside.bytes_per_s *= tp;
    return c;
}

/* Makes a folder with all models, and "reward" of 7B; weft_dir_remove() removes
 * it. */
static void real_folder(char *dir, size_t n)
{
    snprintf(dir, n, "%s/weft-papers-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(dir)) {
        perror(dir);
        exit(1);
    }
    for (int i = 0; i < N_REAL_SIZES; i++)
        made_model(dir, real_size[i].name, &real_size[i], false);
    made_model(dir, "reward", &real_size[REAL_7B], true);
}

#endif
