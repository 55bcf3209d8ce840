/* SPDX-License-Identifier: Apache-2.0 */
/* The gate that ends training at a limit of the KL from the old policy. */
#include <string.h>

#include "base/alloc.h"
#include "codelets/access_list.h"
#include "rt/codelet.h"

struct gate_task {
    float limit;
    int32_t n_tiles, n_samples;
    int32_t number[]; /* of runs (n_tiles), then their samples, by tile */
};

static int kl_gate_cpu(const void *args, void *const buf[], int n_buf,
                       struct weft_exec *x)
{
    enum { WIDTH = WEFT_N_POLICY_STATS };
    const struct gate_task *t = args;
    const int32_t *sample = t->number + t->n_tiles;
    struct weft_take take = {buf, n_buf, 0};
    float *gate = weft_take(&take);
    size_t bytes = (size_t) t->n_samples * WIDTH * sizeof(double);
    double *by_sample = weft_exec_scratch(x, bytes);
    if (!by_sample)
        return WEFT_ENOMEM;
    /* Which micro-batch a sample is in depends on the layout. */
    memset(by_sample, 0, bytes);
    for (int32_t k = 0; k < t->n_tiles; k++) {
        const double *stat = weft_take(&take);
        for (int32_t i = 0; i < t->number[k]; i++, stat += WIDTH)
            memcpy(by_sample + (size_t) *sample++ * WIDTH, stat,
                   WIDTH * sizeof *stat);
    }
    weft_take_end(&take);
    if (weft_k_kl_gate(t->limit, t->n_samples, by_sample) == 0)
        *gate = 0;
    return 0;
}

WEFT_CODELET(kl_gate, 0x6a1b9a, kl_gate_cpu)

void weft_insert_kl_gate(struct weft_seq *seq, const struct weft_where *where,
                         float limit, int32_t n,
                         const struct weft_gate_stats *stats,
                         struct weft_tile *gate)
{
    if (!weft_seq_is_here(seq, where))
        return;
    size_t numbers = (size_t) n;
    for (int32_t k = 0; k < n; k++)
        numbers += (size_t) stats[k].n;
    size_t bytes = sizeof(struct gate_task) + numbers * sizeof(int32_t);
    struct gate_task *task = weft_insert_alloc(1, bytes, "a gate");
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, gate, WEFT_READ_WRITE);
    int32_t *sample = task->number + n;
    *task = (struct gate_task){.limit = limit, .n_tiles = n};
    for (int32_t k = 0; k < n; k++) {
        weft_access_list_add(&access, stats[k].tile, WEFT_READ);
        task->number[k] = stats[k].n;
        for (int32_t i = 0; i < stats[k].n; i++) {
            *sample++ = stats[k].sample[i];
            if (stats[k].sample[i] >= task->n_samples)
                task->n_samples = stats[k].sample[i] + 1;
        }
    }
    weft_access_list_insert(&access, seq, where, &weft_cl_kl_gate, task,
                            bytes);
    weft_free(task);
}
