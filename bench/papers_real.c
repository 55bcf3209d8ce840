/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ReaL's gains over its heuristic (section 8) beside what prices make of them:
 * weak scaling, a context of 8,192 tokens, and DPO, GRPO and ReMax.
 *
 *     bench/papers_real CLUSTER.yaml [--only NAME]
 *
 * with examples/clusters/real_h100.yaml. NAME: of those alone whose names begin
 * so; "systems": those with a name.
 *
 * All calls have all devices and follow one another. The heuristic (section
 * 8.1) gives all of them one layout: tp in a node, the fewest stages with which
 * memory suffices, dp for the rest; as in its published plans generation has 4
 * batches, with 70B 8 (tables 3 and 5), one after the other. With 8,192 tokens
 * they are 4 times shorter, as the batch is. Beside it each call has its own
 * layout, the fastest of those with tp up to 8 and up to 16 stages that fit
 * together (4 in generation, as in all published plans), and up to 128 samples
 * of a replica in a batch. ReMax's two generations may also be beside one another
 * on a half of the devices each (section 8.3). Calls beside one another, of which
 * ReaL's plan of 7B + 7B has some (bench/papers), are not among them.
 *
 * The cluster has the two numbers that bench/papers calibrates. Prompts have
 * 1,024 tokens and responses are as long as they can be; an iteration has 8
 * mini-batches, of which one in `share` is priced, as one batch of generation is.
 * DPO, GRPO and ReMax have the base setting's 512 prompts (appendix A), GRPO
 * groups of 8; DPO makes one step of all. Training has ZeRO 1 and recomputes
 * activations.
 */
#include "base/clock.h"
#include "bench/real.h"
#include "bench/rows.h"
#include "job/plan_needs.h"
#include "job/run_config.h"
#include "plan/strategy.h"
#include "run/predict/price.h"

/* The part of a device's memory that a run may take. */
static const double FULL = 0.95;

static const struct job {
    const char *name, *algorithm;
    int actor, nodes, samples, group, response, mini_batches;
    int share;   /* one in so many mini-batches is priced */
    int batches; /* the heuristic's of generation */
    double gain; /* published; 0: none of this alone */
    bool flagged;
    const char *why;
} jobs[] = {
    {"PPO 7B + 7B", "ppo", REAL_7B, 2, 512, 1, 1024, 8, 1, 4, 1.92, false,
     "these layouts are faster than ReaL's own plan, which is priced above"},
    {"PPO 13B + 7B", "ppo", REAL_13B, 4, 1024, 1, 1024, 8, 2, 4, 0, false,
     NULL},
    {"PPO 34B + 7B", "ppo", REAL_34B, 8, 2048, 1, 1024, 8, 4, 4, 0, false,
     NULL},
    {"PPO 70B + 7B", "ppo", REAL_70B, 16, 4096, 1, 1024, 8, 4, 8, 1.43, false,
     "these layouts are faster than ReaL's own plan, which is priced above"},
    {"8,192 PPO 7B + 7B", "ppo", REAL_7B, 2, 128, 1, 7168, 8, 1, 4, 1.81,
     true,
     "the paper does not say for which models, nor in how many batches its "
     "heuristic generates then (4 are assumed; 1 would be 4 times as short)"},
    {"DPO 70B", "dpo", REAL_70B, 16, 512, 1, 1024, 1, 1, 8, 1.53, false,
     NULL},
    {"GRPO 70B", "grpo", REAL_70B, 16, 4096, 8, 1024, 8, 4, 8, 1.17, true,
     "its 61 PFLOP/s are 5 times what the same calls do in table 6 (4,096 "
     "samples in 469 s)"},
    {"ReMax 70B", "remax", REAL_70B, 16, 512, 1, 1024, 8, 1, 8, 2.91, true,
     "the paper does not say in how many batches its heuristic generates "
     "(8 are assumed, as in its plan for PPO)"}};
enum { N_SCALED = 4 }; /* the first are the weak scaling */

enum { MOST_LAYOUTS = 24, GPUS = 8, MOST_STAGES = 16, DECODING_STAGES = 4 };
enum { PROMPT = 1024, MICRO_BATCH = 16384, MOST_SLOTS = 128 };

/* A layout of all devices, and what each call takes with it. */
struct option {
    int32_t dp, tp, pp;
    struct weft_priced price[WEFT_MAX_CALLS];
    double
        half_s; /* of generation with half the replicas; 0: it is not priced */
};

struct bench {
    char dir[256];
    struct weft_cluster cluster;
    struct weft_dataflow flow;
    struct option option[MOST_LAYOUTS];
    int n;
};

static void write_config(const struct bench *b, const struct job *job)
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
                "samples_per_prompt: %d}\n"
                "ppo: {mini_batches: %d}\n",
                job->samples / job->group, job->response, job->group,
                job->mini_batches);
    if (fclose(f) != 0) {
        perror(path);
        exit(1);
    }
}

/* Micro-batches of a gradient group: as many as tokens ask for (0), or more, to
 * fill a pipeline. */
static int32_t micro_batches(const struct job *job, const struct option *o)
{
    int32_t unit = strcmp(job->algorithm, "dpo") == 0 ? 2 : 1;
    int32_t n = job->samples / job->mini_batches / o->dp; /* of a step */
    int32_t fill = 2 * o->pp < n ? 2 * o->pp : n;
    double tokens = (double) n * unit * (PROMPT + job->response);
    return o->pp == 1 || tokens / MICRO_BATCH >= fill ? 0 : fill;
}

/* What of a job is priced at a time: samples and mini-batches, on so many nodes
 * with so many replicas, each with so many slots for generation. */
struct part {
    int samples, mini_batches, nodes, dp, slots;
};

/* Prices calls (bits) with a layout, training from its whole record. Returns
 * whether the recordings had room. */
static bool price_part(struct bench *b, const struct job *job,
                       const struct option *o, const struct part *part,
                       uint32_t calls, bool trains, struct weft_priced *out)
{
    enum { WORDS = 4 };
    const struct weft_lengths lengths = {.kind = WEFT_LENGTHS_MOST};
    struct weft_cluster links = real_links(&b->cluster, o->tp);
    const struct weft_simulate_options how = {.cluster = &links,
                                              .lengths = &lengths,
                                              .iterations = 3,
                                              .gangs = true};
    const struct weft_call_plan plan = {
        .mesh = {0, part->nodes, 0, GPUS},
        .dp = part->dp,
        .tp = o->tp,
        .pp = o->pp,
        .micro_batches = trains ? micro_batches(job, o) : 0,
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
    snprintf(text[1], sizeof text[1], "rollout.slots=%d", part->slots);
    snprintf(text[2], sizeof text[2], "rollout.prompts=%d",
             part->samples / job->group);
    snprintf(text[3], sizeof text[3], "ppo.mini_batches=%d",
             part->mini_batches);
    CHECK(weft_run_config_read(path, generates ? WORDS : 1, word, &config,
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

static void scale(uint32_t calls, double times, struct weft_priced *out)
{
    for (int32_t c = 1; c < WEFT_MAX_CALLS; c++)
        if (calls >> c & 1)
            out[c].seconds *= times;
}

/* Generation in so many batches; 0: as few as slots allow. halves: on half the
 * nodes. One batch is priced. */
static bool price_generation(struct bench *b, const struct job *job,
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

static bool price_rest(struct bench *b, const struct job *job,
                       const struct option *o, uint32_t calls, bool trains,
                       struct weft_priced *out)
{
    const struct part part = {.nodes = job->nodes,
                              .dp = o->dp,
                              .slots = 1,
                              .samples = job->samples / job->share,
                              .mini_batches = job->mini_batches / job->share};
    if (!price_part(b, job, o, &part, calls, trains, out))
        return false;
    scale(calls, job->share, out);
    return true;
}

/* Calls that generate, infer or train. */
static void sort_calls(const struct weft_dataflow *flow, uint32_t *generate,
                       uint32_t *infer, uint32_t *train)
{
    *generate = *infer = *train = 0;
    for (int32_t c = 1; c < flow->n_calls; c++)
        if (weft_flow_placed(flow, c))
            *(flow->call[c].kind == WEFT_GENERATE ? generate
              : weft_flow_trains(flow, c)         ? train
                                                  : infer) |= 1u << c;
}

static int32_t first_generation(const struct weft_dataflow *flow)
{
    for (int32_t c = 1; c < flow->n_calls; c++)
        if (flow->call[c].kind == WEFT_GENERATE)
            return c;
    return -1;
}

/* Returns false for a layout that cannot be priced. Generation has at most
 * DECODING_STAGES stages, as all published plans. */
static bool price(struct bench *b, const struct job *job, struct option *o)
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

/* The calls of a job. */
static void read_flow(struct bench *b, const struct job *job)
{
    struct weft_config config;
    struct weft_run_needs needs;
    char path[600];
    snprintf(path, sizeof path, "%s/run.yaml", b->dir);
    CHECK(weft_run_config_read(path, 0, NULL, &config, &err));
    CHECK(weft_run_needs_read(&config, job->nodes, GPUS, 0, &needs, &err));
    b->flow = needs.flow;
    weft_config_release(&config);
}

static void price_all(struct bench *b, const struct job *job)
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

/* ---- Choosing ----------------------------------------------------------- */

/* Bytes of a device: what calls hold, and the most that one needs beside. A
 * trained model's weights elsewhere and a KV cache are there for the call. */
static double bytes_of(const struct bench *b, const int *choice)
{
    double held = 0, most = 0;
    for (int32_t c = 1; c < b->flow.n_calls; c++) {
        const struct weft_priced *p = &b->option[choice[c]].price[c];
        bool keeps = weft_flow_trains(&b->flow, c)
                  || weft_flow_frozen(&b->flow, c);
        if (!weft_flow_placed(&b->flow, c))
            continue;
        held += keeps ? p->weights + p->state : 0;
        most = fmax(most, p->active + (keeps ? 0 : p->weights + p->state));
    }
    return held + most;
}

/* Generations in one layout of which half the replicas are priced are beside one
 * another where that is faster. */
static double seconds_of(const struct bench *b, const int *choice)
{
    double s = 0, generation_s = 0, beside_s = 0;
    for (int32_t c = 1; c < b->flow.n_calls; c++) {
        const struct option *o = &b->option[choice[c]];
        if (b->flow.call[c].kind != WEFT_GENERATE) {
            s += o->price[c].seconds;
            continue;
        }
        generation_s += o->price[c].seconds;
        beside_s = fmax(beside_s, o->half_s > 0 ? o->half_s : INFINITY);
    }
    return s + fmin(generation_s, beside_s > 0 ? beside_s : INFINITY);
}

/* With the heuristic's batches of generation, one after the other. */
static double heuristic_s(struct bench *b, const struct job *job, int choice)
{
    const struct option *o = &b->option[choice];
    struct weft_priced price[WEFT_MAX_CALLS];
    double s = 0;
    memcpy(price, o->price, sizeof price);
    uint32_t generate, infer, train;
    sort_calls(&b->flow, &generate, &infer, &train);
    if (generate)
        price_generation(b, job, o, generate, job->batches, false, price);
    for (int32_t c = 1; c < b->flow.n_calls; c++)
        s += price[c].seconds;
    return s;
}

static bool fits(const struct bench *b, const int *choice)
{
    return bytes_of(b, choice) <= FULL * b->cluster.kind[0].memory_bytes;
}

/* One layout for all. Returns whether one fits. */
static bool choose_heuristic(const struct bench *b, int *choice)
{
    for (int i = 0; i < b->n && b->option[i].tp == GPUS; i++) {
        for (int c = 0; c < WEFT_MAX_CALLS; c++)
            choice[c] = i;
        if (fits(b, choice))
            return true;
    }
    return false;
}

/* From a choice that fits: changes calls to the layouts that save most, one at a
 * time, then two, as long as that fits. */
static void improve(const struct bench *b, int *choice)
{
    for (bool better = true; better;) {
        int best[WEFT_MAX_CALLS], try[WEFT_MAX_CALLS];
        double least = seconds_of(b, choice) * (1 - 1e-9);
        better = false;
        for (int32_t c = 1; c < b->flow.n_calls; c++)
            for (int32_t d = c; d < b->flow.n_calls; d++)
                for (int i = 0; i < b->n * b->n; i++) {
                    memcpy(try, choice, sizeof try);
                    try[c] = i / b->n;
                    try[d] = i % b->n;
                    double s = seconds_of(b, try);
                    if (s >= least || !fits(b, try))
                        continue;
                    least = s;
                    memcpy(best, try, sizeof best);
                    better = true;
                }
        if (better)
            memcpy(choice, best, sizeof best);
    }
}

static void show(const struct bench *b, const int *choice)
{
    for (int32_t c = 1; c < b->flow.n_calls; c++) {
        const struct option *o = &b->option[choice[c]];
        if (weft_flow_placed(&b->flow, c))
            printf("    %-16s dp%d tp%d pp%d %8.1f s\n", b->flow.call[c].name,
                   (int) o->dp, (int) o->tp, (int) o->pp,
                   o->price[c].seconds);
    }
}

/* The predicted gain; 0: nothing fits. */
static double compare(struct bench *b, const struct job *job,
                      double *best_s_out)
{
    int choice[WEFT_MAX_CALLS];
    write_config(b, job);
    read_flow(b, job);
    price_all(b, job);
    if (!choose_heuristic(b, choice)) {
        printf("%-20s nothing fits\n", job->name);
        return 0;
    }
    const struct option *o = &b->option[choice[1]];
    double before = heuristic_s(b, job, choice[1]);
    printf("%-20s %5d GPUs: heuristic dp%d tp%d pp%d %.1f s, ", job->name,
           job->nodes * GPUS, (int) o->dp, (int) o->tp, (int) o->pp, before);
    improve(b, choice);
    *best_s_out = seconds_of(b, choice);
    double gain = before / *best_s_out;
    if (job->gain > 0)
        add_row(&(struct row){job->flagged ? ROW_FLAGGED : ROW_PREDICTED,
                              "ReaL", job->name, "over heuristic", "times",
                              job->gain, gain, job->why});
    printf("own layouts %.1f s: %.2f times", *best_s_out, gain);
    if (job->gain > 0)
        printf(", published %.2f, %+.0f %%", job->gain,
               100 * (gain / job->gain - 1));
    printf("\n");
    show(b, choice);
    fflush(stdout);
    return gain;
}

/* Systems with a name, as weft plan --from has them, beside the fastest of
 * these: the paper says by how much it is faster than they, at most. */
static void compare_systems(struct bench *b, const struct job *job,
                            double best_s)
{
    static const char *const name[] = {"deepspeed-chat", "openrlhf",
                                       "nemo-aligner", "verl"};
    const struct weft_lengths lengths = {.kind = WEFT_LENGTHS_MOST};
    const struct weft_g_job on = {
        .n_ranks = job->nodes, .n_devices = GPUS, .place_per_device = true};
    struct weft_simulated simulated;
    struct weft_cluster links = real_links(&b->cluster, GPUS);
    const struct weft_simulate_options how = {.cluster = &links,
                                              .lengths = &lengths,
                                              .iterations = 3,
                                              .gangs = true,
                                              .simulated = &simulated};
    const char *words[] = {"numerics.gradient_groups=16", "rollout.slots=128",
                           "train.recompute=true"};
    double most = 0;
    char path[600];
    printf("%s, %d GPUs, systems with a name:\n", job->name,
           job->nodes * GPUS);
    write_config(b, job);
    snprintf(path, sizeof path, "%s/run.yaml", b->dir);
    for (size_t i = 0; i < WEFT_COUNT(name); i++) {
        struct weft_config config;
        struct weft_run_needs needs;
        struct weft_plan plan;
        struct weft_err why;
        CHECK(weft_run_config_read(path, 3, words, &config, &err));
        CHECK(
            weft_run_needs_read(&config, job->nodes, GPUS, 0, &needs, &err));
        needs.plan.device_bytes = (int64_t) links.kind[0].memory_bytes;
        int rc = weft_plan_strategy(name[i], &needs.plan, &plan, &why);
        if (!rc)
            rc = weft_plan_check(&plan, &needs.plan, &why);
        if (!rc)
            rc = weft_run_simulate(&config, &on, &plan, &how, NULL, &why);
        if (rc) {
            printf("    %-16s %s\n", name[i], why.text);
        } else {
            double ratio = simulated.iteration_s / best_s;
            printf("    %-16s %8.1f s, %.2f times as long, %.0f %% of "
                   "memory\n",
                   name[i], simulated.iteration_s, ratio,
                   100 * simulated.fullest);
            most = fmax(most, ratio);
        }
        fflush(stdout);
        weft_plan_release(&plan);
        weft_config_release(&config);
    }
    printf("at most %.2f times a system with a name, published 3.58, %+.0f "
           "%%\n",
           most, 100 * (most / 3.58 - 1));
    add_row(&(struct row){
        ROW_PREDICTED, "ReaL", job->name, "over systems with a name", "times",
        3.58, most,
        "placement and layout alone: their engines and limits are not "
        "priced"});
}

static void sum_up(const double gain[])
{
    double sum = 0;
    for (int i = 0; i < N_SCALED; i++)
        sum += gain[i] / N_SCALED;
    printf("weak scaling: %.2f times on average, published 1.54\n", sum);
    add_row(&(struct row){ROW_PREDICTED, "ReaL", "PPO, 16 to 128 GPUs",
                          "over heuristic, mean", "times", 1.54, sum,
                          "as the settings that it is the mean of"});
    add_row(&(struct row){ROW_ORDER, "ReaL", "DPO, GRPO, ReMax",
                          "order of their gains", "", 1,
                          gain[7] > gain[5] && gain[5] > gain[6], NULL});
    printf("order of DPO, GRPO, ReMax as published (ReMax, DPO, GRPO): %s\n",
           gain[7] > gain[5] && gain[5] > gain[6] ? "met" : "missed");
}

int main(int argc, char **argv)
{
    static struct bench b;
    double gain[WEFT_COUNT(jobs)] = {0}, best_s[WEFT_COUNT(jobs)] = {0};
    bool all = argc == 2;
    double start = weft_clock_s();
    if (!all && (argc != 4 || strcmp(argv[2], "--only") != 0)) {
        fprintf(stderr, "usage: papers_real CLUSTER.yaml [--only NAME]\n");
        return 2;
    }
    CHECK(weft_cluster_read(argv[1], &b.cluster, &err));
    b.cluster = real_calibrated(&b.cluster, REAL_BY_ROWS, REAL_LAYER_S);
    real_folder(b.dir, sizeof b.dir);
    bool systems = all || strcmp(argv[3], "systems") == 0;
    printf("ReaL, section 8: layouts of calls beside one layout for all\n");
    for (size_t i = 0; i < WEFT_COUNT(jobs); i++)
        if (all || (systems && i == 0)
            || strncmp(jobs[i].name, argv[3], strlen(argv[3])) == 0)
            gain[i] = compare(&b, &jobs[i], &best_s[i]);
    if (systems)
        compare_systems(&b, &jobs[0], best_s[0]);
    if (all)
        sum_up(gain);
    weft_dir_remove(b.dir, NULL);
    printf("%.0f s\n", weft_clock_s() - start);
    return 0;
}
