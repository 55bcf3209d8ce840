/* SPDX-License-Identifier: Apache-2.0 */
/* FlexRLHF's published rates, and what prices make of its placements: a step's
 * seconds and the samples that fit (papers_flexrlhf.c says how). */
#ifndef WEFT_BENCH_FLEXRLHF_H
#define WEFT_BENCH_FLEXRLHF_H

#include <math.h>
#include <stdio.h>

#include "bench/made.h"
#include "bench/rows.h"
#include "job/plan_needs.h"
#include "job/run_config.h"
#include "run/predict/batch.h"
#include "run/predict/price.h"
#include "run/trainer.h"

enum { N_SIZES = 4, TOKENS = 256, DEVICES = 8, LORA_RANK = 4 };

static const struct made_size sizes[N_SIZES] = {
    {"7b", 4096, 32, 32, 32, 11008, 32000},
    {"13b", 5120, 40, 40, 40, 13824, 32000},
    {"33b", 6656, 60, 52, 52, 17920, 32000},
    {"65b", 8192, 80, 64, 64, 22016, 32000}};

enum strategy {
    CO_LOCATED,
    INTERLEAVE_1,
    INTERLEAVE_2,
    DISAGGREGATED,
    STANDALONE, /* AC-Share from here on */
    COEXISTED,
    INTERLEAVED
};
/* Whether the critic is a value head on the actor. */
static inline bool is_shared(enum strategy s)
{
    return s >= STANDALONE;
}
static const char *const name_of[] = {
    "DeepSpeed-Chat",  "Interleave1",    "Interleave2", "Disaggregated",
    "trlX standalone", "trlX coexisted", "Interleaving"};

/* Samples per second; 0: none is published, OOM: it did not fit. */
#define OOM (-1.0)
struct cell {
    const char *table;
    int devices;
    enum strategy strategy;
    bool keeps; /* activations, without gradient checkpointing */
    double rate[N_SIZES];
};
static const struct cell cells[] = {
    {"I", 8, CO_LOCATED, false, {16.12, 7.32, 0.69, OOM}},
    {"I", 8, INTERLEAVE_1, false, {17.35, 7.63, 0.69, OOM}},
    {"I", 16, CO_LOCATED, false, {32.15, 15.35, 0.64, 0.14}},
    {"I", 16, INTERLEAVE_1, false, {34.7, 15.66, 0.64, 0.14}},
    {"I", 16, INTERLEAVE_2, false, {18.27, 8.27, 0.97, 0.24}},
    {"I", 32, CO_LOCATED, false, {61.95, 28.6, 0.93, 0.2}},
    {"I", 32, INTERLEAVE_1, false, {69.44, 28.54, 0.95, 0.2}},
    {"II", 32, DISAGGREGATED, false, {0, 0, 4.76, 1.75}},
    {"II", 128, CO_LOCATED, false, {0, 0, 2.11, 0.55}},
    {"II", 128, DISAGGREGATED, false, {0, 0, 10.07, 6.8}},
    {"IV", 8, STANDALONE, true, {6.04, 2.84, 0, 0}},
    {"IV", 8, COEXISTED, true, {6.2, 2.2, 0, 0}},
    {"IV", 8, INTERLEAVED, true, {11.17, 2.96, 0, 0}},
    {"IV", 8, STANDALONE, false, {5.92, 2.87, 0, 0}},
    {"IV", 8, COEXISTED, false, {6.21, 2.22, 0, 0}},
    {"IV", 8, INTERLEAVED, false, {27.27, 11.76, 0, 0}},
    {"V", 16, COEXISTED, false, {7.76, 3.23, 0, 0}},
    {"V", 16, INTERLEAVED, false, {54.71, 24.63, 0, 0}},
    {"V", 32, COEXISTED, false, {8.87, 4.24, 0, 0}},
    {"V", 32, INTERLEAVED, false, {109.18, 46.16, 0, 0}}};

/* What configurations of one size differ in; none of it in tables I to III. */
struct setting {
    bool shared; /* AC-Share */
    bool keeps;
};
static const struct setting plain = {false, false};
static inline struct setting setting_of(const struct cell *row)
{
    return (struct setting){is_shared(row->strategy), row->keeps};
}

struct bench {
    char dir[256];
    struct weft_cluster cluster;
    double gather_share; /* of links' rates, calibrated */
    /* of a device; [1]: AC-Share; [1]: keeps activations */
    double sample_bytes[N_SIZES][2][2];
};

/* tp in a node; 52 heads are cut in four at the most. */
static inline int node_tp(int size)
{
    return sizes[size].heads % DEVICES ? 4 : DEVICES;
}

enum { GENERATE, REWARD, REFERENCE, CRITIC, TRAIN, TRAIN_CRITIC, N_CALLS };
static const char *const call_name[N_CALLS] = {
    "actor_generate", "reward_infer", "ref_infer",
    "critic_infer",   "actor_train",  "critic_train"};

static inline double weight_bytes(int size)
{
    const struct made_size *s = &sizes[size];
    double h = s->hidden, layer = 4 * h * h + 3 * h * s->intermediate;
    return 2 * (s->layers * layer + 2 * h * s->vocab);
}

/* Of a sample's keys and values; all heads have their own. */
static inline double cache_bytes(int size)
{
    const struct made_size *s = &sizes[size];
    return 2. * 2 * s->layers * s->hidden * 2 * TOKENS;
}

/* The configuration of a batch on so many nodes. */
static inline void read_config(const struct bench *b, int size, int samples,
                               int groups, struct setting setting,
                               struct weft_config *out)
{
    enum { N_WORDS = 10 };
    char path[600], word[N_WORDS][700];
    const char *words[N_WORDS];
    const char *name = sizes[size].name;
    snprintf(path, sizeof path, "%s/run.yaml", b->dir);
    snprintf(word[0], sizeof word[0], "model.actor=%s/%s", b->dir, name);
    snprintf(word[1], sizeof word[1], "model.reference=%s/%s", b->dir, name);
    snprintf(word[2], sizeof word[2], "model.critic=%s/%s", b->dir, name);
    snprintf(word[3], sizeof word[3],
             "reward=[{type: model, model: \"%s/%s-reward\"}]", b->dir, name);
    snprintf(word[4], sizeof word[4], "rollout.prompts=%d", samples);
    snprintf(word[5], sizeof word[5], "numerics.gradient_groups=%d", groups);
    snprintf(word[6], sizeof word[6], "train.recompute=%s",
             setting.keeps ? "false" : "true");
    snprintf(word[7], sizeof word[7], "actor.lora_rank=%d", LORA_RANK);
    snprintf(word[8], sizeof word[8], "critic.lora_rank=%d",
             setting.shared ? 0 : LORA_RANK);
    snprintf(word[9], sizeof word[9], "critic.shares=%s",
             setting.shared ? "true" : "false");
    for (int i = 0; i < N_WORDS; i++)
        words[i] = word[i];
    CHECK(weft_run_config_read(path, N_WORDS, words, out, &err));
    weft_batch_set(out, samples);
}

/* ---- Seconds ------------------------------------------------------------ */

/* What a call has: devices from the first on, tp, ZeRO. */
struct layout {
    int devices, tp, zero;
};

static inline double price(const struct bench *b, int size, int call,
                           const struct layout *l, int samples,
                           struct setting setting)
{
    const struct weft_lengths lengths = {.kind = WEFT_LENGTHS_MOST};
    struct weft_cluster cluster = b->cluster;
    struct weft_config config;
    struct weft_run_needs needs;
    struct weft_pricer *pricer;
    struct weft_priced priced[WEFT_MAX_CALLS] = {{0}};
    const struct weft_simulate_options how = {.cluster = &cluster,
                                              .lengths = &lengths,
                                              .iterations = 3,
                                              .gangs = true};
    int dp = l->devices / l->tp, groups = 1;
    while (groups < dp)
        groups *= 2;
    cluster.kind[0].inside.bytes_per_s *= l->tp; /* as in bench/papers.c */
    read_config(b, size, samples, groups, setting, &config);
    CHECK(weft_run_needs_read(&config, 16, DEVICES, 0, &needs, &err));
    CHECK(
        weft_pricer_create(&config, &needs.plan, &how, false, &pricer, &err));
    int32_t at = weft_flow_find_call(&needs.flow, call_name[call]);
    bool trains = weft_flow_trains(&needs.flow, at);
    int nodes = l->devices > DEVICES ? l->devices / DEVICES : 1;
    const struct weft_call_plan plan = {
        .mesh = {0, nodes, 0, l->devices / nodes},
        .dp = dp,
        .tp = l->tp,
        .pp = 1,
        .zero = trains && dp > 1 ? l->zero : 0,
        .recompute = trains && !setting.keeps};
    CHECK(weft_pricer_price(pricer, &plan, 1u << at, priced, &err));
    weft_pricer_free(pricer);
    weft_config_release(&config);
    return priced[at].seconds;
}

/* All weights to all devices, TOKENS times: inside a node over its links, and
 * into each node over its rails, once. */
static inline double gathers(const struct bench *b, int size, int devices)
{
    const struct weft_node_kind *kind = &b->cluster.kind[0];
    int nodes = devices > DEVICES ? devices / DEVICES : 1;
    double w = weight_bytes(size), inside = w * (DEVICES - 1) / DEVICES;
    double s = inside / kind->inside.bytes_per_s
             + w * (nodes - 1) / nodes
                   / (kind->n_rails * kind->rail.bytes_per_s);
    return TOKENS * s / b->gather_share;
}

/* Disaggregated: half of the devices generate, of 16 nodes three, as the paper
 * says of 65B; what is left is shared by inference and training in whole
 * nodes. */
static inline int generating(int devices)
{
    return devices == 128 ? 24 : devices / 2;
}

static inline int inferring(int devices)
{
    return (devices - generating(devices)) / 2 / DEVICES * DEVICES;
}

struct step {
    int samples;
    double seconds, generation, gathered;
};

/* A step of algorithm 1 or 2 with the layouts at the top. */
static inline struct step play(const struct bench *b, const struct cell *row,
                               int size, int samples)
{
    int n = row->devices, zero = size == 0 ? 2 : 3;
    enum strategy s = row->strategy;
    bool shared = is_shared(s), two = s == INTERLEAVE_2;
    bool apart = s == DISAGGREGATED, by_zero = size >= 2 && !apart;
    int infers = apart ? inferring(n) : two ? n / 2 : n;
    int trains = apart ? n - generating(n) - infers : infers;
    int generates = apart ? generating(n) : trains;
    int frozen = s == INTERLEAVE_1 || s == INTERLEAVED ? n / 2 : infers;
    bool alone = s == STANDALONE || s == COEXISTED;
    int tp = apart ? node_tp(size) : 1;
    struct layout of[N_CALLS] = {
        {generates, size == 1 && !shared ? node_tp(size) : tp, 0},
        {alone ? 1 : frozen, alone ? 1 : tp, 0},
        {frozen, tp, 0},
        {infers, tp, 0},
        {trains, tp, zero},
        {trains, tp, zero}};
    struct step step = {.samples = samples};
    double t[N_CALLS] = {0};
    for (int c = 0; c < N_CALLS; c++)
        if (!shared || c != TRAIN_CRITIC) /* TRAIN is of both */
            t[c] = price(b, size, c, &of[c], samples, setting_of(row));
    step.gathered = by_zero ? gathers(b, size, generates) : 0;
    if (s == STANDALONE) { /* the others have one device less */
        t[GENERATE] *= n / (n - 1.0);
        t[REFERENCE] *= n / (n - 1.0);
        t[CRITIC] *= n / (n - 1.0);
        t[TRAIN] *= n / (n - 1.0);
    }
    step.generation = t[GENERATE] + step.gathered;
    double infer = frozen < infers ? fmax(t[REFERENCE], t[REWARD]) + t[CRITIC]
                 : two             ? fmax(t[REWARD], t[REFERENCE] + t[CRITIC])
                                   : t[REWARD] + t[REFERENCE] + t[CRITIC];
    double train = two ? fmax(t[TRAIN], t[TRAIN_CRITIC])
                       : t[TRAIN] + t[TRAIN_CRITIC];
    step.seconds = step.generation + infer + train;
    return step;
}

/* ---- Memory ------------------------------------------------------------- */

/* Bytes of a sample on a device: between 2 and 4 samples of each of 8
 * replicas. */
static inline double slope(const struct bench *b, int size,
                           struct setting setting)
{
    const struct weft_g_job job = {
        .n_ranks = 1, .n_devices = DEVICES, .place_per_device = true};
    double bytes[2];
    for (int i = 0; i < 2; i++) {
        struct weft_config config;
        struct weft_run_needs needs;
        struct weft_plan plan;
        int each = 2 << i;
        read_config(b, size, each * DEVICES, DEVICES, setting, &config);
        CHECK(weft_run_needs_read(&config, 1, DEVICES, 0, &needs, &err));
        CHECK(weft_run_plan(&config, &needs.plan, &plan, &err));
        bool gangs = false;
        CHECK(weft_trainer_predict(&config, &job, &gangs, 0, &plan, &err));
        const int64_t *m = plan.memory[0];
        bytes[i] = (double) (m[WEFT_MEM_KV] + m[WEFT_MEM_ACTIVATIONS]
                             + m[WEFT_MEM_SAMPLES]);
        weft_plan_release(&plan);
        weft_config_release(&config);
    }
    return (bytes[1] - bytes[0]) / 2;
}

/* Weights of the device that has most: whole with ZeRO 2 and with AC-Share,
 * else over the devices of each call, and two layers that are gathered. */
static inline double weights(const struct cell *row, int size)
{
    static const double whole[] = {4, 3, 2, 0, 2, 3, 2};
    double w = weight_bytes(size), n = row->devices;
    double layers = 2 * w / sizes[size].layers;
    if (row->strategy == DISAGGREGATED)
        return 3 * w / node_tp(size); /* what infers, tp in a node */
    if (size == 0 || is_shared(row->strategy))
        return whole[row->strategy] * w;
    return 4 * w / n + layers; /* halves have half of the models each */
}

/* Samples of a device or, tensor parallel, of a tp group. */
static inline int largest_batch(const struct bench *b, const struct cell *row,
                                int size)
{
    double room = WEFT_BATCH_SHARE * b->cluster.kind[0].memory_bytes
                - weights(row, size);
    struct setting setting = setting_of(row);
    double each = b->sample_bytes[size][setting.shared][setting.keeps];
    if (row->strategy == DISAGGREGATED)
        each /= node_tp(size);
    return room < each ? 0 : (int) (room / each);
}

static inline int samples_of(const struct cell *row, int size, int batch)
{
    return row->strategy == DISAGGREGATED
             ? batch * (inferring(row->devices) / node_tp(size))
         : row->strategy == INTERLEAVE_2 ? batch * row->devices / 2
                                         : batch * row->devices;
}

#endif
