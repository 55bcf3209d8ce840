/* SPDX-License-Identifier: Apache-2.0 */
/* What benchmarks of ReaL's tables share: its models (table 1), its plans
 * (tables 2 to 6), the numbers of its cluster that bench/papers calibrates, and a
 * folder to describe runs in. A failure ends the program. */
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

enum {
    REAL_GENERATE,
    REAL_REWARD,
    REAL_REFERENCE,
    REAL_CRITIC,
    REAL_ACTOR_TRAIN,
    REAL_CRITIC_TRAIN,
    N_REAL_CALLS
};
static const char *const real_call_name[N_REAL_CALLS] = {
    "actor_generate", "reward_infer", "ref_infer",
    "critic_infer",   "actor_train",  "critic_train"};

enum { N_REAL_PLANS = 4, REAL_7B_PLANS = 0, REAL_70B_PLANS = 2 };

/* A plan of tables 2 to 5 and its column of table 6. Prompts and responses have
 * 1,024 tokens each, an iteration 8 mini-batches. The paper leaves the batch
 * of the 70B plans open (512 by its base setting, 4,096 by its weak scaling):
 * at 512 their training would do 28 TFLOP/s a GPU, at 4,096 it does 226, as
 * the 7B plans'. */
static const struct real_plan {
    const char *name, *actor;
    int samples, nodes;
    struct {
        int node, nodes, tp, pp, dp, micro_batches;
        double seconds;
    } call[N_REAL_CALLS];
    double all_s; /* end to end */
    double launched_s,
        launched_all_s; /* generation, and all, without graphs */
} real_plan[N_REAL_PLANS] = {{"7B + 7B, heuristic",
                              "7b",
                              512,
                              2,
                              {{0, 2, 8, 1, 2, 4, 44.2},
                               {0, 2, 8, 1, 2, 4, 7.3},
                               {0, 2, 8, 1, 2, 4, 7.6},
                               {0, 2, 8, 1, 2, 4, 6.8},
                               {0, 2, 8, 1, 2, 4, 24.7},
                               {0, 2, 8, 1, 2, 4, 24.3}},
                              122.6,
                              104.6,
                              183.0},
                             {"7B + 7B, searched",
                              "7b",
                              512,
                              2,
                              {{0, 2, 2, 2, 4, 1, 16.3},
                               {0, 1, 2, 1, 4, 16, 6.0},
                               {1, 1, 1, 2, 4, 16, 8.0},
                               {0, 2, 1, 2, 8, 8, 4.7},
                               {0, 1, 2, 4, 1, 2, 26.6},
                               {1, 1, 4, 2, 1, 2, 28.1}},
                              64.0,
                              34.5,
                              82.2},
                             {"70B + 7B, heuristic",
                              "70b",
                              4096,
                              16,
                              {{0, 16, 8, 4, 4, 8, 241.8},
                               {0, 16, 8, 4, 4, 8, 12.6},
                               {0, 16, 8, 4, 4, 8, 63.5},
                               {0, 16, 8, 4, 4, 8, 12.5},
                               {0, 16, 8, 4, 4, 8, 163.4},
                               {0, 16, 8, 4, 4, 8, 35.7}},
                              546.8,
                              241.8,
                              912.3},
                             {"70B + 7B, searched",
                              "70b",
                              4096,
                              16,
                              {{0, 16, 2, 4, 16, 4, 185.1},
                               {0, 16, 1, 8, 16, 4, 5.6},
                               {0, 16, 1, 8, 16, 16, 35.6},
                               {0, 16, 1, 8, 16, 16, 5.6},
                               {0, 16, 2, 16, 4, 2, 108.0},
                               {0, 16, 8, 4, 4, 2, 20.8}},
                              383.1,
                              185.1,
                              547.4}};

/* by_rows times the first, and seconds of a layer; the last: in generation
 * without CUDA graphs, which only what table 6 has of that uses.
 * `papers --calibrate` finds them. */
static const double REAL_BY_ROWS = 0.750, REAL_LAYER_S = 186e-6,
                    REAL_LAUNCHED_S = 555e-6;

/* ReaL's norms are PyTorch's operations one by one, in f32 (the class of its
 * code for Llama's): to f32, squares, mean, product with the root, to bf16,
 * product with the weights read and write 36 bytes of a number, two residual
 * sums 6 each; and two norms a layer. */
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
