/* SPDX-License-Identifier: Apache-2.0 */
/* RLHFuse's setting (section 7), priced: models, instances that generate and
 * infer, and the jobs of inter-stage fusion. What is assumed is at the top of
 * bench/fusion.c. */
#ifndef WEFT_BENCH_FUSION_H
#define WEFT_BENCH_FUSION_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "bench/check.h"
#include "codelets/work.h"
#include "model/init.h"
#include "plan/costs.h"
#include "plan/fusion/bound.h"
#include "plan/lengths.h"

enum { SAMPLES = 512, PROMPT = 256, READ_ROWS = 256, PAST = 2, SEED = 15 };
enum { REFERENCE, REWARD, CRITIC, N_MODELS };

static const struct size {
    const char *name;
    int hidden, layers, heads, intermediate;
} sizes[] = {{"13B", 5120, 40, 40, 13824},
             {"33B", 6656, 60, 52, 17920},
             {"65B", 8192, 80, 64, 22016}};
static const int pairs[][2] = {{0, 1}, {1, 0}, {1, 2}, {2, 1}};
static const int longest[] = {512, 1024, 2048};
/* Lognormal responses, each with the ratio of p99.9 to the median halved and
 * doubled. The first: a median of 200, and 11.8 times that, as "more than ten
 * times" in section 2.2. The second, "paper", has all of what that section
 * says: a longer limit changes what happens to less than 1 % of the samples, so
 * p99 is the shortest limit, 512; and these take more than half of the
 * generation, so p99.9 is twice that, the middle limit. */
static const struct tail {
    const char *name;
    int median;
    double sigma;
} tails[] = {{"half", 200, 0.576},  {"1", 200, 0.8},
             {"twice", 200, 1.024}, {"paper/2", 63, 0.683},
             {"paper", 63, 0.907},  {"paper*2", 63, 1.131}};

/* ---- Costs -------------------------------------------------------------- */

/* One pass of a model through the devices of a tp group. */
struct model {
    struct weft_shape shape;
    struct weft_cluster cluster;
    struct weft_costs *costs;
    struct weft_recording r;
    int32_t tp;
    bool head;
};

static inline void shape_of(const struct size *size, struct weft_shape *out)
{
    const struct weft_init_options o = {.family = WEFT_LLAMA,
                                        .hidden = size->hidden,
                                        .layers = size->layers,
                                        .heads = size->heads,
                                        .kv_heads = size->heads,
                                        .intermediate = size->intermediate,
                                        .vocab = 32000,
                                        .max_positions = 4096,
                                        .dtype = WEFT_F32};
    struct weft_arch arch;
    CHECK(weft_init_arch(&o, &arch, &err));
    *out = arch.shape;
    out->dtype = WEFT_BF16;
    CHECK(weft_shape_partition(out, 0, &err));
}

static inline struct weft_work work_of(const struct model *m,
                                       const struct weft_work_rows *rows)
{
    const struct weft_range range = {0, m->shape.n_blocks / m->tp};
    return weft_work_steps(&m->shape, range, m->shape.n_layers, m->head, 1,
                           rows);
}

static inline void open_model(struct model *m, const struct size *size,
                              int32_t tp, bool head,
                              const struct weft_cluster *cluster)
{
    const struct weft_work_rows rows = {1, 1, 1, 0};
    m->tp = tp;
    m->head = head;
    m->cluster = *cluster;
    m->cluster.kind[0].inside.bytes_per_s *= tp;
    const struct weft_costs_job job = {.cluster = &m->cluster,
                                       .n_ranks = 1,
                                       .n_devices = 8,
                                       .place_per_device = true};
    shape_of(size, &m->shape);
    CHECK(weft_costs_create(&job, &m->costs, &err));
    weft_recording_init(&m->r);
    for (int32_t k = 0; k < tp; k++) {
        const struct weft_where where = {.device = k};
        const struct weft_work work = work_of(m, &rows);
        weft_recording_gang(&m->r, &(struct weft_rec_gang){.task = k});
        weft_recording_task(&m->r, WEFT_REC_TASK, "pass", &where, k);
        weft_recording_work(&m->r, &work);
        m->r.task[k].member = (uint8_t) k;
        m->r.task[k].n_members = (uint8_t) tp;
    }
    CHECK(weft_recording_status(&m->r, &err));
}

static inline void close_model(struct model *m)
{
    weft_recording_release(&m->r);
    weft_costs_free(m->costs);
}

/* A layer sums twice over the members. */
static inline double pass_s(struct model *m,
                            const struct weft_work_rows *rows)
{
    struct weft_rec_work *at = &m->r.task[0].work;
    const struct weft_work work = work_of(m, rows);
    double sums = 2.0 * m->shape.n_layers * (m->tp - 1);
    at->flop = (float) work.flop;
    at->bytes = (float) work.bytes;
    at->n_rows = (int32_t) work.n_rows;
    at->n_layers = (uint16_t) m->shape.n_layers;
    m->r.gang[0].n_received = (int32_t) sums;
    m->r.gang[0].received_bytes = (int64_t) (sums * 4 * m->shape.hidden
                                             * rows->n_rows);
    return weft_costs_task(m->costs, &m->r, 0, 0);
}

static inline double weight_bytes(const struct model *m)
{
    return 2.0 * (double) weft_shape_n_params(&m->shape) / m->tp;
}

/* An instance: so many devices, an actor and the models that infer. Decode
 * steps are priced at some lengths and are linear between them. */
enum { GRID = 9, GRID_TOKENS = 512 };
struct instance {
    struct model actor, model[N_MODELS];
    int32_t n_devices;
    double scale;  /* of what inference takes */
    double padded; /* tokens that it has of each; 0: its own */
    double step[SAMPLES + 1][GRID]; /* 0: not priced yet */
};

static inline double step_at(struct instance *in, int32_t n, int k)
{
    double *at = &in->step[n][k];
    int64_t keys = (int64_t) n * (1 + k * GRID_TOKENS);
    const struct weft_work_rows rows = {n, n, keys, keys - n};
    if (*at <= 0)
        *at = pass_s(&in->actor, &rows);
    return *at;
}

static inline double step_s(void *ctx, const struct weft_work_rows *rows)
{
    struct instance *in = ctx;
    int32_t n = rows->n_rows;
    if (rows->n_targets < n) /* some are read */
        return pass_s(&in->actor, rows);
    double x = fmin(((double) rows->n_keys / n - 1) / GRID_TOKENS, GRID - 1);
    int k = x > 0 ? (int) fmin(x, GRID - 2) : 0;
    double a = step_at(in, n, k);
    return a + (step_at(in, n, k + 1) - a) * (fmax(x, 0) - k);
}

static inline double infer_s(void *ctx, int32_t model, int32_t n,
                             double n_tokens)
{
    struct instance *in = ctx;
    struct model *m = &in->model[model];
    int32_t replicas = in->n_devices / m->tp;
    if (replicas > n)
        replicas = n;
    double each = fmax(n_tokens / n, in->padded);
    double tokens = each * n / replicas;
    const struct weft_work_rows rows = {(int32_t) tokens, (int32_t) tokens,
                                        (int64_t) (tokens * each / 2), 0};
    return in->scale * pass_s(m, &rows);
}

/* ---- A setting ---------------------------------------------------------- */

struct setting {
    int actor, critic, most;
    struct tail tail;
    struct weft_migrate_costs costs;
    struct weft_overlap_job job[PAST + 1]; /* the last: this iteration */
    struct weft_overlap_sample sample[PAST + 1][SAMPLES];
    int32_t seen[SAMPLES * PAST];
};

static inline int by_length(const void *a, const void *b)
{
    int32_t x = *(const int32_t *) a, y = *(const int32_t *) b;
    return (x > y) - (x < y);
}

static inline void open_instance(struct instance *in, const struct setting *s,
                                 int32_t tp,
                                 const struct weft_cluster *cluster)
{
    memset(in, 0, sizeof *in);
    in->n_devices = tp;
    in->scale = 1;
    open_model(&in->actor, &sizes[s->actor], tp, true, cluster);
    for (int j = 0; j < N_MODELS; j++) {
        const struct size *size =
            &sizes[j == REFERENCE ? s->actor : s->critic];
        struct weft_shape shape;
        shape_of(size, &shape);
        open_model(&in->model[j], size,
                   shape.n_blocks < tp ? shape.n_blocks : tp, j == REFERENCE,
                   cluster);
    }
}

static inline void close_instance(struct instance *in)
{
    close_model(&in->actor);
    for (int j = 0; j < N_MODELS; j++)
        close_model(&in->model[j]);
}

/* Memory of a device: nine tenths, less optimizer state and gradients of what
 * trains (16 bytes a parameter, over all devices) and the actor's weights. Of
 * inference models those that fit beside the KV caches of the instance's own
 * samples, as long as they may become, come while it generates (section 6);
 * the others when first used, from the host. False: too little. */
static inline bool set_memory(struct setting *s, const struct instance *in,
                              const struct weft_cluster *cluster,
                              double load_s[])
{
    const struct weft_node_kind *kind = &cluster->kind[0];
    const struct weft_shape *shape = &in->actor.shape;
    int32_t tp = in->n_devices, n_devices = weft_cluster_n_devices(cluster);
    double trained = (double) weft_shape_n_params(shape)
                   + (double) weft_shape_n_params(&in->model[CRITIC].shape);
    double left = 0.9 * kind->memory_bytes - 16 * trained / n_devices
                - weight_bytes(&in->actor);
    s->costs.token_bytes = 4.0 * shape->n_layers * shape->hidden;
    double kv = s->costs.token_bytes / tp * (PROMPT + s->most);
    double own = kv * ceil((double) SAMPLES * tp / n_devices);
    bool fits = left >= own;
    for (int j = 0; j < N_MODELS; j++) {
        double bytes = weight_bytes(&in->model[j]);
        bool held = left - bytes >= own;
        load_s[j] = held ? 0 : bytes / kind->host.bytes_per_s;
        left -= held ? bytes : 0;
    }
    s->costs.memory_bytes = left * tp;
    s->costs.link_bytes_per_s = kind->rail.bytes_per_s * tp;
    s->costs.link_latency_s = kind->rail.latency_s;
    return fits;
}

static inline void set_jobs(struct setting *s, struct instance *in,
                            const struct weft_cluster *cluster,
                            const double load_s[])
{
    const struct weft_lengths lengths = {.kind = WEFT_LENGTHS_LOGNORMAL,
                                         .a = s->tail.median,
                                         .b = s->tail.sigma};
    int32_t n = weft_cluster_n_devices(cluster) / in->n_devices;
    for (int i = 0; i <= PAST; i++) {
        s->job[i] = (struct weft_overlap_job){.costs = &s->costs,
                                              .n_instances = n,
                                              .n_samples = SAMPLES,
                                              .sample = s->sample[i],
                                              .most = s->most,
                                              .seen = s->seen,
                                              .n_seen = SAMPLES * PAST,
                                              .n_models = N_MODELS,
                                              .infer_s = infer_s,
                                              .micro_tokens = 4096};
        memcpy(s->job[i].load_s, load_s, N_MODELS * sizeof *load_s);
        for (int k = 0; k < SAMPLES; k++) {
            int32_t length = weft_lengths_draw(&lengths, SEED, i, k, s->most);
            s->sample[i][k] = (struct weft_overlap_sample){k % n, PROMPT,
                                                           length, 0};
            if (i < PAST)
                s->seen[i * SAMPLES + k] = length;
        }
    }
    qsort(s->seen, SAMPLES * PAST, sizeof(int32_t), by_length);
    s->costs.ctx = in;
    s->costs.step_s = step_s;
    s->costs.read_rows = READ_ROWS;
}

static inline double simulate_when(const struct weft_overlap_job *job,
                                   bool serial,
                                   const struct weft_overlap_when *when,
                                   struct weft_overlapped *out)
{
    struct weft_overlap_job one = *job;
    one.serial = serial;
    CHECK(weft_overlap_simulate(&one, when, out, NULL, &err));
    return out->all_s;
}

static inline double simulate(const struct weft_overlap_job *job, bool serial,
                              double share, int32_t instances,
                              struct weft_overlapped *out)
{
    const struct weft_overlap_when when = {.share = share,
                                           .instances = instances};
    return simulate_when(job, serial, &when, out);
}

/* Lays instances out as is fastest one stage after the other. */
static inline int32_t lay_out(struct setting *s, struct instance *in,
                              const struct weft_cluster *cluster)
{
    struct weft_overlapped out;
    double best_s = INFINITY, load_s[N_MODELS];
    int32_t best = 0;
    for (int32_t last = 0, tp = 1; tp <= 8 || !last; tp *= 2) {
        last = tp > 8;
        tp = last ? best : tp;
        struct weft_shape shape;
        shape_of(&sizes[s->actor], &shape);
        if (tp > shape.n_blocks)
            continue;
        open_instance(in, s, tp, cluster);
        bool fits = set_memory(s, in, cluster, load_s);
        set_jobs(s, in, cluster, load_s);
        if (last)
            return best;
        double seconds = fits ? simulate(&s->job[0], true, 0, 0, &out)
                              : INFINITY;
        if (seconds < best_s) {
            best_s = seconds;
            best = tp;
        }
        close_instance(in);
    }
    return best;
}

static inline void set_up(struct setting *s, struct instance *in, size_t pair,
                          int most, const struct tail *tail,
                          const struct weft_cluster *cluster)
{
    *s = (struct setting){.actor = pairs[pair][0],
                          .critic = pairs[pair][1],
                          .most = most,
                          .tail = *tail};
    if (!lay_out(s, in, cluster)) {
        fprintf(stderr, "fusion: %s does not fit\n", sizes[s->actor].name);
        exit(1);
    }
}

#endif
