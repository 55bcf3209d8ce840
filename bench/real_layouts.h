/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts of all devices for the calls of an algorithm, priced: what
 * bench/papers_real compares. What is assumed is said there. A failure ends the
 * program.
 */
#ifndef WEFT_BENCH_REAL_LAYOUTS_H
#define WEFT_BENCH_REAL_LAYOUTS_H

#include "bench/real.h"
#include "job/plan_needs.h"
#include "job/run_config.h"
#include "run/predict/price.h"

/* The part of a device's memory that a run may take. */
static const double FULL = 0.95;

/* What an iteration is made of. */
struct job {
    const char *name, *algorithm;
    int actor, nodes, samples, group, response, mini_batches;
    int share; /* one in so many mini-batches is priced */
};

enum { MOST_LAYOUTS = 24, GPUS = 8, MOST_STAGES = 16, DECODING_STAGES = 4 };
enum { PROMPT = 1024, MICRO_BATCH = 16384, MOST_SLOTS = 128 };

/* A layout of all devices, and what each call takes with it. */
struct option {
    int32_t dp, tp, pp;
    struct weft_priced price[WEFT_MAX_CALLS];
    double half_s; /* of generation with half the replicas; 0: not priced */
};

struct bench {
    char dir[256];
    struct weft_cluster cluster;
    bool shares; /* groups share the tokens of their prompt */
    struct weft_dataflow flow;
    struct option option[MOST_LAYOUTS];
    int n;
};

/* A folder for configurations, with all models, and the calibrated cluster. */
static inline void bench_open(struct bench *b, const char *cluster)
{
    CHECK(weft_cluster_read(cluster, &b->cluster, &err));
    b->cluster = real_calibrated(&b->cluster, REAL_BY_ROWS, REAL_LAYER_S);
    real_folder(b->dir, sizeof b->dir);
}

static inline void write_config(const struct bench *b, const struct job *job)
{
    bool pairs = strcmp(job->algorithm, "dpo") == 0;
    bool critic = strcmp(job->algorithm, "ppo") == 0;
    char path[600];
    snprintf(path, sizeof path, "%s/run.yaml", b->dir);
    FILE *f = fopen(path, "w");
    if (!f) {
        perror(path);
        exit(1);
    }
    fprintf(f,
            "algorithm: %s\nrun_dir: unset\niterations: 10\n"
            "numerics: {dtype: bf16}\nruntime: {place: device}\n"
            "model: {actor: %s, reference: %s%s}\n",
            job->algorithm, real_size[job->actor].name,
            real_size[job->actor].name, critic ? ", critic: 7b" : "");
    if (pairs)
        fprintf(f,
                "data: {prompt_tokens: 1024, response_tokens: %d}\n"
                "train: {micro_batch_tokens: 16384, batch: %d}\n",
                job->response, job->samples / job->mini_batches);
    else
        fprintf(f,
                "data: {prompt_tokens: 1024}\n"
                "train: {micro_batch_tokens: 16384}\n"
                "reward: [{type: model, model: reward}]\n"
                "rollout: {prompts: %d, max_new_tokens: %d, "
                "samples_per_prompt: %d, prefix_sharing: %s}\n"
                "ppo: {mini_batches: %d}\n",
                job->samples / job->group, job->response, job->group,
                b->shares ? "true" : "false", job->mini_batches);
    if (fclose(f) != 0) {
        perror(path);
        exit(1);
    }
}

/* Writes the configuration of a job, and reads its calls. */
static inline void take_job(struct bench *b, const struct job *job)
{
    struct weft_config config;
    struct weft_run_needs needs;
    char path[600];
    write_config(b, job);
    snprintf(path, sizeof path, "%s/run.yaml", b->dir);
    CHECK(weft_run_config_read(path, 0, NULL, &config, &err));
    CHECK(weft_run_needs_read(&config, job->nodes, GPUS, 0, &needs, &err));
    b->flow = needs.flow;
    weft_config_release(&config);
}

/* What of a job is priced at a time: samples and mini-batches, on so many nodes
 * with so many replicas, each with so many slots for generation. */
struct part {
    int samples, mini_batches, nodes, dp, slots;
    int32_t micro_batches; /* of a gradient group or replica; 0: by tokens */
};

/* Prices calls (bits) with a layout, training from its whole record. Returns
 * whether the recordings had room. */
static inline bool price_part(struct bench *b, const struct job *job,
                              const struct option *o, const struct part *part,
                              uint32_t calls, bool trains,
                              struct weft_priced *out)
{
    enum { WORDS = 4 };
    const struct weft_lengths lengths = {.kind = WEFT_LENGTHS_MOST};
    struct weft_cluster links = real_links(&b->cluster, o->tp);
    const struct weft_simulate_options how = {.cluster = &links,
                                              .lengths = &lengths,
                                              .iterations = 3,
                                              .gangs = true};
    const struct weft_call_plan plan = {.mesh = {0, part->nodes, 0, GPUS},
                                        .dp = part->dp,
                                        .tp = o->tp,
                                        .pp = o->pp,
                                        .micro_batches = part->micro_batches,
                                        .zero = trains && part->dp > 1,
                                        .recompute = trains};
    struct weft_config config;
    struct weft_run_needs needs;
    struct weft_pricer *pricer;
    char path[600], text[WORDS][64];
    const char *word[WORDS] = {text[0], text[1], text[2], text[3]};
    bool generates = strcmp(job->algorithm, "dpo") != 0;
    snprintf(path, sizeof path, "%s/run.yaml", b->dir);
    snprintf(text[0], sizeof text[0], "numerics.gradient_groups=%d",
             part->dp);
    snprintf(text[1], sizeof text[1],
             generates ? "rollout.prompts=%d" : "train.batch=%d",
             part->samples / job->group);
    snprintf(text[2], sizeof text[2], "rollout.slots=%d", part->slots);
    snprintf(text[3], sizeof text[3], "ppo.mini_batches=%d",
             part->mini_batches);
    CHECK(weft_run_config_read(path, generates ? WORDS : 2, word, &config,
                               &err));
    CHECK(weft_run_needs_read(&config, job->nodes, GPUS, 0, &needs, &err));
    CHECK(weft_pricer_create(&config, &needs.plan, &how, trains, &pricer,
                             &err));
    int rc = weft_pricer_price(pricer, &plan, calls, out, &err);
    weft_pricer_free(pricer);
    weft_config_release(&config);
    if (rc && rc != WEFT_ENOMEM)
        CHECK(rc);
    return rc == 0;
}

/* ---- Published plans ----------------------------------------------------- */

/* Which call of a published plan has the part of a job's call. */
static inline int real_call_of(const struct weft_dataflow *flow, int32_t call)
{
    bool scalar = flow->role[flow->call[call].role].scalar;
    return flow->call[call].kind == WEFT_GENERATE ? REAL_GENERATE
         : weft_flow_trains(flow, call)
             ? scalar ? REAL_CRITIC_TRAIN : REAL_ACTOR_TRAIN
         : !scalar                      ? REAL_REFERENCE
         : weft_flow_frozen(flow, call) ? REAL_REWARD
                                        : REAL_CRITIC;
}

/* Seconds of a job's call, laid out as a published plan's. Its parts of
 * generation and inference follow one another; the code has them in an outer
 * loop ("split mini-batches in the outer loop"), so that each fills the
 * pipeline anew. A part is cut for the pipeline into as many as there are
 * stages, and training, which has one pipeline, into twice as many of each of
 * its micro-batches (the code does so); generation's are batches, instances of
 * so many slots. halves: on half the nodes, with half the replicas. */
static inline double price_published(struct bench *b, const struct job *job,
                                     const struct real_plan *p, int32_t call,
                                     bool halves)
{
    int at = real_call_of(&b->flow, call), by = halves ? 2 : 1;
    const struct option o = {.dp = p->call[at].dp / by,
                             .tp = p->call[at].tp,
                             .pp = p->call[at].pp};
    bool trains = at >= REAL_ACTOR_TRAIN;
    int n = p->call[at].micro_batches, each = job->samples / o.dp;
    int pieces = n < each / o.pp
                   ? n
                   : each / o.pp; /* a stage has one, at least */
    int parts = trains ? job->share : pieces,
        steps = trains ? job->mini_batches : 1;
    int filled = trains && o.pp > 1 ? 2 * o.pp * n : trains ? n : o.pp;
    struct weft_priced out[WEFT_MAX_CALLS] = {{0}};
    const struct part part = {.samples = job->samples / parts,
                              .mini_batches = trains ? steps / parts : 1,
                              .nodes = p->call[at].nodes / by,
                              .dp = o.dp,
                              .slots = each / parts / o.pp,
                              .micro_batches = at == REAL_GENERATE ? 0
                                             : filled < each / steps
                                                 ? filled
                                                 : each / steps};
    if (!price_part(b, job, &o, &part, 1u << call, trains, out)) {
        fprintf(stderr, "%s: no room to price a call\n", job->name);
        exit(1);
    }
    return parts * out[call].seconds;
}

/* An iteration by ReaL's algorithm 1: generation, then what infers, then what
 * trains, each as soon as its nodes are free. Moves of weights and samples are
 * left out. */
static inline double iteration_s(const struct real_plan *p,
                                 const double *call_s)
{
    double free_s[16] = {0}, ready_s = 0, end_s = 0;
    for (int c = 0; c < N_REAL_CALLS; c++) {
        double start_s = ready_s;
        if (c == 1 || c == REAL_ACTOR_TRAIN)
            start_s = ready_s = end_s;
        for (int n = p->call[c].node; n < p->call[c].node + p->call[c].nodes;
             n++)
            start_s = fmax(start_s, free_s[n]);
        for (int n = p->call[c].node; n < p->call[c].node + p->call[c].nodes;
             n++)
            free_s[n] = start_s + call_s[c];
        end_s = fmax(end_s, start_s + call_s[c]);
    }
    return end_s;
}

/* ---- Layouts of all devices ---------------------------------------------- */

/* Micro-batches of a gradient group: as many as tokens ask for (0), or more, to
 * fill a pipeline. */
static inline int32_t micro_batches(const struct job *job,
                                    const struct option *o)
{
    int32_t unit = strcmp(job->algorithm, "dpo") == 0 ? 2 : 1;
    int32_t n = job->samples / job->mini_batches / o->dp; /* of a step */
    int32_t fill = 2 * o->pp < n ? 2 * o->pp : n;
    double tokens = (double) n * unit * (PROMPT + job->response);
    return o->pp == 1 || tokens / MICRO_BATCH >= fill ? 0 : fill;
}

static inline void scale(uint32_t calls, double times,
                         struct weft_priced *out)
{
    for (int32_t c = 1; c < WEFT_MAX_CALLS; c++)
        if (calls >> c & 1)
            out[c].seconds *= times;
}

/* Generation in so many batches; 0: as few as slots allow. halves: on half the
 * nodes. One batch is priced. */
static inline bool price_generation(struct bench *b, const struct job *job,
                                    const struct option *o, uint32_t calls,
                                    int batches, bool halves,
                                    struct weft_priced *out)
{
    struct part part = {.nodes = halves ? job->nodes / 2 : job->nodes,
                        .dp = halves ? o->dp / 2 : o->dp,
                        .mini_batches = 1};
    int most = job->samples / part.dp,
        n = most < MOST_SLOTS ? most : MOST_SLOTS;
    if (batches)
        n = most / batches > 0 ? most / batches : 1;
    /* of the parts of a batch in the pipeline, each of which is an instance */
    part.slots = n / o->pp > 0 ? n / o->pp : 1;
    part.samples = n * part.dp;
    if (!price_part(b, job, o, &part, calls, false, out))
        return false;
    scale(calls, (double) most / n, out);
    return true;
}

static inline bool price_rest(struct bench *b, const struct job *job,
                              const struct option *o, uint32_t calls,
                              bool trains, struct weft_priced *out)
{
    const struct part part = {.nodes = job->nodes,
                              .dp = o->dp,
                              .slots = 1,
                              .samples = job->samples / job->share,
                              .mini_batches = job->mini_batches / job->share,
                              .micro_batches = trains ? micro_batches(job, o)
                                                      : 0};
    if (!price_part(b, job, o, &part, calls, trains, out))
        return false;
    scale(calls, job->share, out);
    return true;
}

/* Calls that generate, infer or train. */
static inline void sort_calls(const struct weft_dataflow *flow,
                              uint32_t *generate, uint32_t *infer,
                              uint32_t *train)
{
    *generate = *infer = *train = 0;
    for (int32_t c = 1; c < flow->n_calls; c++)
        if (weft_flow_placed(flow, c))
            *(flow->call[c].kind == WEFT_GENERATE ? generate
              : weft_flow_trains(flow, c)         ? train
                                                  : infer) |= 1u << c;
}

static inline int32_t first_generation(const struct weft_dataflow *flow)
{
    for (int32_t c = 1; c < flow->n_calls; c++)
        if (flow->call[c].kind == WEFT_GENERATE)
            return c;
    return -1;
}

/* Returns false for a layout that cannot be priced. Generation has at most
 * DECODING_STAGES stages, as all published plans. */
static inline bool price(struct bench *b, const struct job *job,
                         struct option *o)
{
    struct weft_priced half[WEFT_MAX_CALLS];
    uint32_t generate, infer, train;
    sort_calls(&b->flow, &generate, &infer, &train);
    if ((infer && !price_rest(b, job, o, infer, false, o->price))
        || !price_rest(b, job, o, train, true, o->price))
        return false;
    if (o->pp > DECODING_STAGES
        || (generate
            && !price_generation(b, job, o, generate, 0, false, o->price))) {
        for (int32_t c = 1; c < b->flow.n_calls; c++)
            if (generate >> c & 1)
                o->price[c].seconds = INFINITY;
        return true;
    }
    int32_t c = first_generation(&b->flow);
    if (strcmp(job->algorithm, "remax") == 0 && o->dp % 2 == 0
        && price_generation(b, job, o, 1u << c, 0, true, half))
        o->half_s = half[c].seconds;
    return true;
}

static inline void price_all(struct bench *b, const struct job *job)
{
    const struct made_size *s = &real_size[job->actor];
    double params = (double) s->layers * s->hidden
                  * (3.0 * s->intermediate + 2.0 * s->hidden);
    b->n = 0;
    for (int32_t tp = 8; tp >= 1; tp /= 2)
        for (int32_t pp = 1;
             pp <= MOST_STAGES && pp <= job->nodes * GPUS / tp; pp *= 2) {
            struct option *o = &b->option[b->n];
            *o = (struct option){
                .dp = job->nodes * GPUS / tp / pp, .tp = tp, .pp = pp};
            if (2 * params / tp / pp
                    > FULL * b->cluster.kind[0].memory_bytes / 2
                || o->dp > 64 || b->n == MOST_LAYOUTS)
                continue;
            if (price(b, job, o))
                b->n++;
            else
                printf("%s: dp%d tp%d pp%d is left out\n", job->name,
                       (int) o->dp, (int) o->tp, (int) o->pp);
        }
}

#endif
